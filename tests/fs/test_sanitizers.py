# SPDX-License-Identifier: Apache-2.0
"""In a build with sanitizers: what they find in a daemon, which has no stderr, fails the test, with a function's name."""
import contextlib
import os

import pytest

import harness

pytestmark = pytest.mark.needs_sanitizers

FAULTS = {'race': 'ThreadSanitizer: data race'} if harness.RACES else {
    'overflow': 'AddressSanitizer: heap-buffer-overflow',
    'leak': 'LeakSanitizer: detected memory leaks',
    'undefined': 'runtime error: signed integer overflow'}


@pytest.fixture(autouse=True)
def faulty(monkeypatch):
    monkeypatch.setattr(harness, 'CARTONFS', str(harness.BUILD / 'tests/faulty-cartonfs'))


@pytest.mark.parametrize('kind', FAULTS)
def test_a_fault_of_a_daemon_is_reported(sample_carton, mount, who, kind):
    """A daemon in the background, confined, that makes a fault while it answers (tests/tools/linked/faults.c)."""
    with mount(sample_carton[0], uid=who, env=dict(FAULT=kind)) as m:
        assert harness.take_reports() == ''
        with contextlib.suppress(OSError):      # the report may end the daemon
            m.do(os.statvfs, m)
        assert harness.unmount(m.path, who).returncode == 0
        status = [harness.wait_exit(pid) for pid in m.pids]
        m.ended = True
    report = harness.take_reports()
    assert FAULTS[kind] in report and f'fault_{kind}' in report
    assert status != [0]


def test_without_a_fault_nothing_is_reported(sample_carton, mount):
    """That program is as the other, but for the fault."""
    with mount(sample_carton[0]) as m:
        os.statvfs(m)
    assert harness.take_reports() == ''
