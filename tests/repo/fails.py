# SPDX-License-Identifier: Apache-2.0
"""Tests that fail, for test_failure.py, which runs them. Their file's name keeps others from collecting them."""
import os
import signal

import pytest

import harness
import zipwriter

BAD = 20


@pytest.fixture
def damaged(work):
    """A carton with files whose bytes are not those of MANIFEST."""
    carton = zipwriter.Carton(method='stored')
    for i in range(BAD):
        carton.add(f'model/bad{i}', b'%d' % i, sha=f'{i + 1:064x}')
    carton.add('model/good', b'good')
    return carton.write(work / 'm.carton')


def read_all(m):
    for i in range(BAD):
        assert m.error(f'model/bad{i}') == 'EIO'


def test_compares(damaged, mount):
    with mount(damaged) as m:
        read_all(m)
        print('\n'.join(f'printed {i}' for i in range(100)))
        assert m.read('model/good') == b'g00d', '\n'.join(f'because {i}' for i in range(100))


def deeper(m, n):
    return deeper(m, n - 1) if n else m.read('model/bad0')


def test_fails_deep_inside(damaged, mount_fg):
    with mount_fg(damaged) as m:
        read_all(m)
        deeper(m, 50)


def test_is_killed(damaged, mount):
    with mount(damaged) as m:
        read_all(m)
        os.kill(m.pids[0], signal.SIGKILL)
        harness.eventually('its end', lambda: m.is_how() != 'runs')
        m.read('model/good')


@pytest.fixture
def mounted(damaged, mount):
    with mount(damaged, '-o', 'verify=open') as m:
        yield m


def test_mounts_two(mounted, damaged, mount):
    read_all(mounted)
    with mount(damaged) as other:
        read_all(other)
    assert mounted.read('model/good') == b'g00d'
