# SPDX-License-Identifier: Apache-2.0
"""
Which worker of pytest-xdist gets which tests: runs of tests that follow each other in a file.

Each worker that gets a test of a file starts the servers of that file: all do, if one test goes here and the next there. If
whole files went, one worker would be left with a long one at the end. Tests of one function share what is expensive to
make, so a run ends between functions if it can.
"""
from xdist.scheduler import LoadScopeScheduling

SHORT, LONG = 16, 32


def runs(names):
    """{name of a test: (file, number of the run in it)}"""
    out, last, length, number = {}, (None, None), 0, 0
    for name in names:
        file, _, function = name.partition('[')[0].partition('::')
        if file != last[0] or length >= (LONG if function == last[1] else SHORT):
            length, number = 0, number + 1
        last, length = (file, function), length + 1
        out[name] = file, number
    return out


class Runs(LoadScopeScheduling):
    """Its scopes are the runs."""
    of = None

    def _split_scope(self, nodeid):
        if self.of is None:
            self.of = runs(self.collection)
        return self.of[nodeid]


def pytest_xdist_make_scheduler(config, log):
    return Runs(config, log)
