# SPDX-License-Identifier: Apache-2.0
"""
Large files are put into the page cache while they are verified. Whatever happens meanwhile, what can be
read is verified: by read(2), through a mapping, with O_DIRECT, or by a second opener.
"""
import contextlib
import ctypes
import errno
import mmap
import os
import random
import re
import subprocess
import threading

import pytest

from harness import eventually, read_file
from probing import in_open
from zipwriter import Carton

TAIL = 128 << 10                        # at the end, is never pushed
SIZE = (8 << 20) + 1000
METHODS = ['stored', 'deflate', 'zstd']

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p


@pytest.fixture
def mount(mount, work):
    """With a cache of its own: what an earlier test has left there is not hashed, and so not pushed."""
    def make(source, *options, **kw):
        return mount(source, '-o', f'cache_dir={work}/cache', *options, **kw)
    return make


def blob(seed, size=SIZE):
    """Half of it cannot be compressed."""
    return random.Random(seed).randbytes(size // 2) + b'x' * (size - size // 2)


def carton(method='stored', count=4, size=SIZE):
    c = Carton(method=method)
    for i in range(count):
        c.add(f'model/{i}', blob(i, size), level=1)
    return c


@contextlib.contextmanager
def opened(path, flags=0):
    fd = os.open(path, os.O_RDONLY | flags)
    try:
        yield fd
    finally:
        os.close(fd)


def resident(fd):
    """How many bytes of it are in the page cache."""
    size = os.fstat(fd).st_size
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    at = ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_PRIVATE, fd,
                                   ctypes.c_long(0)))
    assert libc.mincore(at, ctypes.c_size_t(size), pages) == 0, os.strerror(ctypes.get_errno())
    assert libc.munmap(at, ctypes.c_size_t(size)) == 0
    return sum(p & 1 for p in pages) * mmap.PAGESIZE


def was_pushed(path, flags=0):
    with opened(path, flags):
        with opened(path) as fd:
            n = resident(fd)
            assert n in (0, (os.fstat(fd).st_size - 1) // TAIL * TAIL)
            return n > 0


def error(fn, *args):
    try:
        fn(*args)
    except OSError as e:
        return errno.errorcode[e.errno]
    return ''


def read_mapped(path):
    with opened(path) as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as m:
        return m[:]


def read_direct(path):
    with opened(path, os.O_DIRECT) as fd, mmap.mmap(-1, 1 << 20) as block:
        out = b''
        while n := os.readv(fd, [block]):
            out += block[:n]
        return out


READERS = [read_file, read_mapped, read_direct]


@pytest.mark.parametrize('method', METHODS)
def test_pushed(mount, work, method):
    """An open leaves all but the end in the page cache; all readers get the same bytes."""
    c = carton(method)
    # not in order, so that none is verified before it is opened
    with mount(c.write(work / 'm.carton')) as m:
        assert was_pushed(m / 'model/1')
        for read in READERS:
            assert read(m / 'model/1') == c.files()['model/1']
        assert was_pushed(m / 'model/0')


@pytest.mark.parametrize('size', [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (4 << 20) + TAIL])
def test_sizes(mount, work, size):
    c = carton(size=size)
    with mount(c.write(work / 'm.carton')) as m:
        assert was_pushed(m / 'model/0')
        assert read_mapped(m / 'model/0') == c.files()['model/0']
        assert read_file(m / 'model/1') == c.files()['model/1']


def test_what_is_not_pushed(mount, work):
    """O_DIRECT, small files, and what is larger than the carton may take of memory."""
    c = carton(size=20 << 20).add('misc/small', blob(9, 300 << 10), method='stored')
    source = c.write(work / 'm.carton')
    with mount(source) as m:
        assert not was_pushed(m / 'model/0', os.O_DIRECT)
        assert not was_pushed(m / 'misc/small')
        assert was_pushed(m / 'model/1')
    with mount(source, '-o', 'memory=16M') as m:
        assert not was_pushed(m / 'model/0')
        assert read_file(m / 'model/0') == c.files()['model/0']


def test_ahead_of_direct_readers(mount, work):
    """
    Files that are verified ahead of who opens them with O_DIRECT are not pushed: the bytes that were hashed stay in
    the page cache of the carton, where these readers get them.
    """
    c = carton()
    with mount(c.write(work / 'm.carton')) as m:
        for i in range(4):
            os.stat(m / f'model/{i}')   # what the kernel does not know has no pages
        for i in range(2):
            with opened(m / f'model/{i}', os.O_DIRECT):
                pass
        eventually('the next one is verified', lambda: m.state('model/2') == 'verified')
        assert not was_pushed(m / 'model/2')
        for i in range(4):
            assert read_direct(m / f'model/{i}') == c.files()[f'model/{i}']


def test_readers_of_headers(mount, work):
    """When a file was not read to its end, the next ones are not pushed, until one is."""
    c = carton(count=30, size=1 << 20)
    want = c.files()
    # not in order, so that none is verified before it is opened
    names = [f'model/{i}' for i in range(29, -1, -1)]
    with mount(c.write(work / 'm.carton')) as m:
        pushed = []
        # the RELEASE of one may come after the open of the next
        while not pushed or pushed[-1]:
            name = names.pop(0)
            pushed.append(was_pushed(m / name))
        assert pushed[0] and len(names) > 2
        assert m.read(names[0]) == want[names[0]]
        assert was_pushed(m / names[1])


def test_two_paths_of_the_same_bytes(mount, work):
    c = carton(count=1).add('model/same', blob(0), method='stored')
    want = c.files()
    with mount(c.write(work / 'm.carton')) as m:
        for path in ('model/same', 'model/0', 'model/same'):
            assert m.read(path) == want[path]


@pytest.mark.parametrize('method', METHODS)
def test_wrong_hash(mount_fg, work, method):
    """However it is opened, by several at once: EIO. Logged once."""
    c = carton(method).change('model/1', sha='0' * 64)
    with mount_fg(c.write(work / 'm.carton')) as m:
        errors = []
        threads = [threading.Thread(target=lambda r=r: errors.append(error(r, m / 'model/1')))
                   for r in READERS * 3]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert errors == ['EIO'] * len(threads)
        assert [error(r, m / 'model/1') for r in READERS] == ['EIO'] * 3
        assert m.log().count('sha256 mismatch') == 1
        assert m.read('model/0') == c.files()['model/0']


def test_nothing_stays_of_a_pass_that_ended(mount, disk):
    """
    The first bytes are wrong, and are pushed; the reader is killed before the pass is over. When they
    are right again, an O_DIRECT open, which pushes nothing, verifies the file. No page may be left.
    """
    c = carton(count=1, size=16 << 20)
    want = c.files()['model/0']
    source = c.write(disk.files / 'm.carton')
    at = c.placed['model/0'].data
    for _ in range(3):
        with mount(disk.path / 'm.carton', '-o', 'seals=off') as m:
            disk.set(f'hold {8 << 20}')
            with open(source, 'r+b') as f:
                f.seek(at)
                f.write(b'WRONG' * 10000)
            reader = subprocess.Popen(['cat', m / 'model/0'], stdout=subprocess.PIPE)
            in_open(reader.pid, m / 'model/0')
            eventually('some of it is read', lambda: re.fullmatch(r'verifying [1-9]\d*%', m.state('model/0')))
            reader.kill()
            assert reader.communicate()[0] == b''
            assert m.state('model/0') != 'verified'
            disk.set('none')
            with open(source, 'r+b') as f:
                f.seek(at)
                f.write(want[:50000])
            with opened(m / 'model/0', os.O_DIRECT), opened(m / 'model/0') as fd:
                assert os.pread(fd, 1 << 20, 0) == want[:1 << 20]


def test_changes_during_the_pass(mount, work):
    """While bytes change all the time, an open gives what has the right hash, or EIO."""
    c = carton(count=8)
    want = c.files()
    source = c.write(work / 'm.carton')
    places = [c.placed[f'model/{i}'].data + 1000 for i in range(8)]
    over = threading.Event()

    def change():
        turn = 0
        with open(source, 'r+b', buffering=0) as f:
            while not over.is_set() or turn % 2:
                for i, at in enumerate(places):
                    os.pwrite(f.fileno(), b'OTHER' * 10 if turn % 2 == 0 else
                              want[f'model/{i}'][1000:1050], at)
                turn += 1

    writer = threading.Thread(target=change)
    with mount(source) as m:
        writer.start()
        try:
            for i in range(8):
                # a mapping of bytes that changed later is a SIGBUS
                for read in (read_file, read_direct):
                    with contextlib.suppress(OSError):
                        assert read(m / f'model/{i}') == want[f'model/{i}']
        finally:
            over.set()
            writer.join()
