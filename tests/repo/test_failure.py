# SPDX-License-Identifier: Apache-2.0
"""What a failed test prints (tests/lib/failure.py), from tests that fail (fails.py)."""
import os
import re
import sys

import pytest

from harness import BUILD, ROOT, run

LOST = "OSError: [Errno 107] Transport endpoint is not connected"

# What the output of each has to say: the comparison, how the daemon is, its mount.
SAYS = {
    'test_compares': ["assert b'good' == b'g00d'", 'because 0', '-- cartonfs m.carton mnt', 'daemon: runs',
                      'printed 0', 'printed 99'],
    'test_fails_deep_inside': ['fails.py:', "OSError: [Errno 5] Input/output error", '-- cartonfs -f m.carton mnt',
                               'daemon: runs'],
    'test_is_killed': [LOST, '-- cartonfs m.carton mnt', 'daemon: killed by SIGKILL', 'its process has ended'],
    'test_mounts_two': ["assert b'good' == b'g00d'", '-- cartonfs -o verify=open m.carton mnt', 'daemon: runs',
                        '-- cartonfs m.carton mnt', 'daemon: exit status 0'],
}


@pytest.fixture(scope='module')
def printed():
    """{name: what is printed of this test}"""
    p = run(sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', '-n', '1', 'tests/repo/fails.py', cwd=ROOT,
            env=dict(BUILD_DIR=str(BUILD), PYTHONDONTWRITEBYTECODE='1'))
    text = p.stdout.partition('= FAILURES =')[2].rpartition('= short test summary info =')[0]
    parts = re.split(r'^_+ (\w+) _+$', text, flags=re.M)
    assert p.returncode == 1 and parts[1:], p.stdout + p.stderr
    return dict(zip(parts[1::2], parts[2::2]))


def test_each_fails(printed):
    assert printed.keys() == SAYS.keys()


@pytest.mark.parametrize('name', SAYS)
def test_says_what_broke(printed, name):
    text = printed[name].rstrip('=').rstrip()
    assert [word for word in SAYS[name] if word not in text] == [], text
    assert re.search(r'^ +status: (\{.*"corrupt_files": 20|cartonctl: )', text, re.M), text
    # the end of the log, which says more than a status
    assert re.search(r'^ +\| .*model/bad19: sha256 mismatch: .* the bytes have ', text, re.M), text
    # with the title, of which this is the rest
    assert len(text.splitlines()) <= 60, text


def test_command_runs_it_alone(printed):
    command = re.search(r'^-- alone: (.*)$', printed['test_compares'], re.M)[1]
    p = run('sh', '-c', command, cwd=ROOT, env={k: v for k, v in os.environ.items() if k == 'PYTHONDONTWRITEBYTECODE'})
    assert re.search(r'^1 failed in', p.stdout, re.M), p.stdout + p.stderr
    assert 'FAILED tests/repo/fails.py::test_compares\n' in p.stdout
