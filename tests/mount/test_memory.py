# SPDX-License-Identifier: Apache-2.0
"""Memory: a limit for each carton, by the control group, the option or the size of the file."""
import contextlib
import os
import re
import subprocess
from pathlib import Path

import pytest

import harness
from origin import MIB, digest
from zipwriter import Carton

GROUPS = Path('/sys/fs/cgroup/memory')


@pytest.fixture
def group(monkeypatch):
    """group(bytes): what is started from then on runs in a control group with that limit."""
    own = re.search(r'^\d+:memory:(.*)$', Path('/proc/self/cgroup').read_text(), re.M)
    path = GROUPS / own[1].lstrip('/') / f'cartonfs-{os.getpid()}' if own else None
    try:
        path.mkdir()
    except (AttributeError, OSError):
        pytest.skip('no memory control group (version 1) can be made here')
    popen = subprocess.Popen

    def confined(cmd, *args, **kw):
        if str(cmd[0]) != harness.CARTONFS:
            return popen(cmd, *args, **kw)
        enter = f'echo $$ >{path}/cgroup.procs && exec "$@"'
        return popen(['sh', '-c', enter, 'sh', *map(str, cmd)], *args, **kw)

    def limit(n):
        (path / 'memory.limit_in_bytes').write_text(str(n))
        monkeypatch.setattr(subprocess, 'Popen', confined)

    yield limit
    monkeypatch.undo()
    for pid in (path / 'cgroup.procs').read_text().split():
        with contextlib.suppress(OSError):
            os.kill(int(pid), 9)
    harness.eventually('the group is empty', lambda: not (path / 'cgroup.procs').read_text())
    path.rmdir()


def packed(path, n):
    """A carton with `n` Deflate files of just under 4 MiB: {path: sha256}."""
    c, random, sums = Carton(), os.urandom(4 * MIB - 100), {}
    for i in range(n):
        data = b'%d' % i + random
        c.add(f'model/{i:03}', data, method='deflate', level=0)
        sums[f'model/{i:03}'] = digest(data)
    c.write(path)
    return sums


@pytest.mark.parametrize('size', [64 * MIB, 128 * MIB])
def test_small_objects_in_a_control_group(work, mount_fg, group, size):
    sums = packed(work / 'm.carton', size * 3 // 4 // MIB)      # 1.5 times what it may keep
    group(size)
    with mount_fg(work / 'm.carton') as m:
        for path in sums:
            assert m.sha(path) == sums[path]
        for path in reversed(sums):
            assert m.sha(path) == sums[path]


def test_small_objects_within_the_option(work, mount_fg):
    """So little that most go to the cache, and all are right."""
    sums = packed(work / 'm.carton', 12)
    with mount_fg(work / 'm.carton', '-o', 'memory=9M') as m:
        fds = [os.open(m / path, os.O_RDONLY) for path in sums]
        for path in sums:
            assert m.sha(path) == sums[path]
        for fd in fds:
            os.close(fd)
        assert peak(m.process.pid) < 48 * MIB


def peak(pid):
    """The most memory that the process had, in bytes."""
    return int(re.search(r'VmHWM:\s+(\d+) kB', Path(f'/proc/{pid}/status').read_text())[1]) << 10
