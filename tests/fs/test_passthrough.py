# SPDX-License-Identifier: Apache-2.0
"""
-o passthrough: what the kernel reads by itself, and what it never does.

Where libfuse, the kernel or the user cannot have it, the same reads are tested as without the option.
"""
import contextlib
import errno
import hashlib
import json
import mmap
import os
import re
import signal

import pytest

from harness import CARTONFS, IS_ROOT, NOBODY, ctl, eventually, run
from origin import MIB, PRIVATE, Cache, LinkedCarton, digest, errno_of, fault_bytes
from zipwriter import Carton

DATA = fault_bytes(6 * MIB + 123)
VERSION = tuple(map(int, re.search(r'libfuse (\d+)\.(\d+)', run(CARTONFS, '--version').stdout).groups()))
KERNEL = tuple(map(int, re.match(r'(\d+)\.(\d+)', os.uname().release).groups()))
HAVE = VERSION >= (3, 17) and KERNEL >= (6, 9) and IS_ROOT      # for root
ON = 'yes' if HAVE else 'no'
NAME = 'user.carton.passthrough'


@pytest.fixture
def carton(work):
    """A file that goes to the cache, one that stays in the carton, and a small one."""
    c = Carton(method='zstd').add('model/x', DATA, level=1).add('model/small', b'small')
    c.add('model/stored', DATA[:-1], method='stored')
    c.write(work / 'm.carton')
    return work / 'm.carton'


def passed(m, name='model/x'):
    return os.getxattr(m / name, NAME).decode()


def status(m):
    return json.loads(m.read('.cartonfs/status.json'))


def sha_of_mapping(path):
    with open(path, 'rb') as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as view:
        return hashlib.sha256(view).hexdigest()


def overwrite(cache, at, data):
    path = cache.objects()[digest(DATA)]
    os.chmod(path, 0o600)
    with open(path, 'r+b') as f:
        f.seek(at)
        f.write(data)


@pytest.mark.parametrize('who', [None, pytest.param(NOBODY, marks=pytest.mark.needs_root)])
def test_reads(mount_fg, work, carton, who):
    """All ways of reading, by several at once, and what shows how it is read."""
    os.mkdir(work / 'own')
    if who is not None:
        os.chown(work / 'own', who, who)
    cache, have = Cache(work / 'own/cache', who), HAVE and who is None
    with mount_fg(carton, *cache.options, '-o', 'passthrough', uid=who) as m:
        def look():
            assert os.getxattr(m / 'model/x', NAME).decode() == 'no'
            with open(m / 'model/x', 'rb') as f, open(m / 'model/x', 'rb', buffering=0) as g:
                assert os.getxattr(m / 'model/x', NAME).decode() == ('yes' if have else 'no')
                assert f.read() == g.read() == DATA and f.read() == b''
                assert os.pread(g.fileno(), 5000, 123_456) == DATA[123_456:128_456]
                assert sha_of_mapping(m / 'model/x') == digest(DATA)
                direct = os.open(m / 'model/x', os.O_RDONLY | os.O_DIRECT)
                with mmap.mmap(-1, MIB) as block:
                    assert os.preadv(direct, [block], MIB) == MIB and block[:] == DATA[MIB:2 * MIB]
                os.close(direct)
            with open(m / 'model/x', 'rb') as f:
                assert f.read() == DATA
        m.do(look)
        assert m.state('model/x') == 'verified'
        log = m.log()
    assert ('passthrough is off' in log) != have
    cache.check()


def test_status(mount_fg, carton, cache):
    with mount_fg(carton, *cache.options) as m:
        assert 'passthrough' not in status(m)
        assert errno_of(os.getxattr, m / 'model/x', NAME) == errno.ENODATA
    with mount_fg(carton, *cache.options, '-o', 'passthrough,seals=off') as m:
        with open(m / 'model/x', 'rb'), open(m / 'model/x', 'rb'):
            assert (status(m)['passthrough'], status(m)['passthrough_files']) == (HAVE, HAVE)
            out = ctl('status', m.path).stdout
            assert re.search(r'^  passed    (.*)', out, re.M)[1] == (
                '1 file open' if HAVE else 'none: passthrough is not possible here')
        eventually('all are closed', lambda: status(m)['passthrough_files'] == 0)
        assert passed(m) == 'no'


def test_only_what_was_hashed(mount_fg, carton, cache):
    """Neither what is verified by a seal, nor a part of the carton, nor small files, nor views."""
    options = [*cache.options, '-o', 'passthrough']
    with mount_fg(carton, *options) as m:
        for name in ('model/x', 'model/stored', 'model/small'):
            with open(m / name, 'rb') as f:
                f.read()
                assert passed(m, name) == (ON if name == 'model/x' else 'no')
    with mount_fg(carton, *options) as m:
        with open(m / 'model/x', 'rb') as f:
            assert f.read() == DATA and m.state('model/x') == 'sealed' and passed(m) == 'no'
    with mount_fg(carton, *options, '-o', 'seals=off') as m:
        with open(m / 'model/x', 'rb') as f:
            assert f.read() == DATA and m.state('model/x') == 'verified' and passed(m) == ON


@pytest.mark.parametrize('where', ['cache', 'carton'])
def test_a_wrong_hash_is_never_opened(mount_fg, work, carton, cache, where):
    """The whole file is hashed before the kernel gets it: what is wrong in the cache is made anew."""
    if where == 'carton':
        bad = Carton(method='zstd').add('model/x', DATA, level=1, sha='0' * 64)
        bad.write(carton)
    else:
        with mount_fg(carton, *cache.options, '-o', 'seals=off') as m:
            m.read('model/x')
        overwrite(cache, 3 * MIB, b'damaged')
    with mount_fg(carton, *cache.options, '-o', 'passthrough,seals=off') as m:
        if where == 'carton':
            assert m.error('model/x') == 'EIO'
            assert passed(m) == 'no' and status(m)['passthrough_files'] == 0
        else:
            with open(m / 'model/x', 'rb') as f:
                assert f.read() == DATA and passed(m) == ON


def test_what_is_given_up(mount_fg, carton, cache):
    """As the manual says: what is overwritten while it is open is read as it is; else it is an error."""
    with mount_fg(carton, *cache.options, '-o', 'passthrough') as m:
        with open(m / 'model/x', 'rb', buffering=0) as f:
            overwrite(cache, 4 * MIB, b'damaged')
            fd = f.fileno()
            if HAVE:
                assert os.pread(fd, 7, 4 * MIB) == b'damaged'
            else:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                assert errno_of(os.pread, fd, 7, 4 * MIB) == errno.EIO
    for path in cache.objects().values():
        path.unlink()


def test_links_and_many(mount_fg, work, cache, fault):
    """Fetched files; more of them open than closed, in any order."""
    data = {f'model/{i}': fault_bytes(2 * MIB + i, seed=i) for i in range(6)}
    c = LinkedCarton()
    for name, body in data.items():
        c.link(name, body, fault.url(name[6:], size=len(body), seed=int(name[6:])))
    with mount_fg(c.write(work / 'l.carton'), *PRIVATE, *cache.options, '-o', 'passthrough') as m, \
            contextlib.ExitStack() as stack:
        files = {n: stack.enter_context(open(m / n, 'rb')) for n in data}
        assert {passed(m, n) for n in data} == {ON}
        for name in list(data)[::2]:
            files[name].close()
        eventually('some are closed', lambda: [passed(m, n) for n in data] == ['no', ON] * 3)
        for name, body in data.items():
            with open(m / name, 'rb') as f:
                assert f.read() == body and passed(m, name) == ON


def test_readers_outlive_signals(mount_fg, carton, cache):
    """An interrupted open counts as none: a later one is passed through, and nothing is left open."""
    with mount_fg(carton, *cache.options, '-o', 'passthrough') as m:
        pids = []
        for _ in range(8):
            pid = os.fork()
            if pid == 0:
                with contextlib.suppress(BaseException):
                    m.read('model/x')
                os._exit(0)
            pids.append(pid)
        for pid in pids[::2]:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
        eventually('all are closed', lambda: status(m)['passthrough_files'] == 0)
        with open(m / 'model/x', 'rb') as f:
            assert f.read() == DATA and passed(m) == ON
        eventually('all are closed', lambda: status(m)['passthrough_files'] == 0)


def test_offers_no_mirror(mount_fg, carton, cache, tmp_path):
    """A directory of mirror= is another's: nothing is passed through with one."""
    with mount_fg(carton, *cache.options) as m:
        m.read('model/x')
    mine = Cache(tmp_path / 'mine')
    with mount_fg(carton, *mine.options, '-o', f'passthrough,mirror={cache.path}') as m:
        with open(m / 'model/x', 'rb') as f:
            assert f.read() == DATA and passed(m) == 'no'
