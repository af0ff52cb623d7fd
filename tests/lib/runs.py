# SPDX-License-Identifier: Apache-2.0
"""
Deals tests out to the workers of pytest-xdist in runs: tests that follow each other in one file.

A worker starts the servers of a file before its first test of the file. If single tests were dealt out, each worker would
start the servers of each file. If whole files were, one worker would have a long file left at the end. Tests of one
function share what is expensive to make, so a run ends between two functions if it can.
"""
import functools

from xdist.scheduler import LoadScopeScheduling

SHORT, LONG = 16, 32    # tests: a run of SHORT ends before the next function, one of LONG within the function


def runs(names):
    """{name of a test: number of its run}"""
    out, last, length, number = {}, (None, None), 0, 0
    for name in names:
        file, _, function = name.partition('[')[0].partition('::')
        if file != last[0] or length >= (LONG if function == last[1] else SHORT):
            length, number = 0, number + 1
        last, length = (file, function), length + 1
        out[name] = number
    return out


class Runs(LoadScopeScheduling):
    """Its scopes are the runs."""
    @functools.cached_property
    def run_of(self):
        return runs(self.collection)

    def _split_scope(self, nodeid):
        return self.run_of[nodeid]


def pytest_xdist_make_scheduler(config, log):
    return Runs(config, log)
