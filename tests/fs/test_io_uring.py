# SPDX-License-Identifier: Apache-2.0
"""
Reads by io_uring(7), many at once: the same bytes as by pread, the same errors.

Where the kernel does not let us have a ring, the one test that remains says so.
"""
import ctypes
import errno
import mmap
import os
import random
import struct

import pytest

import harness
from origin import MIB
from zipwriter import Carton

SETUP, ENTER, REGISTER = 425, 426, 427  # the same number for each architecture
NOP, READV, READ_FIXED, OPENAT, CLOSE, STATX, READ = 0, 1, 4, 18, 19, 21, 22
ASYNC, FIXED_FILE = 1 << 4, 1 << 0      # sqe flags
AT_FDCWD = -100
SQES_OFFSET, GETEVENTS = 0x10000000, 1
LIBC = ctypes.CDLL(None, use_errno=True)


def call(number, *args):
    r = LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a
                                              for a in args))
    if r < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return r


class Ring:
    """A ring of `entries`; submit() gives the results in the order of the requests."""

    def __init__(self, entries=64):
        params = ctypes.create_string_buffer(120)
        self.entries, self.fd = entries, -1
        self.fd = call(SETUP, entries, params)
        sq_entries, cq_entries = struct.unpack_from('<II', params)
        # struct io_sqring_offsets and io_cqring_offsets
        self.sq = struct.unpack_from('<IIIIIII', params, 40)
        self.cq = struct.unpack_from('<IIIIIII', params, 80)
        size = max(self.sq[6] + 4 * sq_entries, self.cq[5] + 16 * cq_entries)
        assert struct.unpack_from('<I', params, 20)[0] & 1, 'IORING_FEAT_SINGLE_MMAP'
        self.rings = mmap.mmap(self.fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self.sqes = mmap.mmap(self.fd, 64 * sq_entries, mmap.MAP_SHARED | mmap.MAP_POPULATE,
                              offset=SQES_OFFSET)

    def close(self):
        if self.fd >= 0:
            self.rings.close()
            self.sqes.close()
            os.close(self.fd)

    def u32(self, at, value=None):
        if value is not None:
            struct.pack_into('<I', self.rings, at, value & 0xffffffff)
        return struct.unpack_from('<I', self.rings, at)[0]

    def submit(self, requests):
        """requests: (op, flags, fd, off, address, length, rest of the sqe)."""
        out = [None] * len(requests)
        for start in range(0, len(requests), self.entries):
            self.batch(requests[start:start + self.entries], start, out)
        return out

    def batch(self, requests, start, out):
        head, tail, mask = self.sq[0], self.u32(self.sq[1]), self.u32(self.sq[2])
        assert self.u32(head) == tail
        for i, (op, flags, fd, off, address, n, *more) in enumerate(requests):
            slot = (tail + i) & mask
            struct.pack_into('<BBHiQQIIQHHiQQ', self.sqes, 64 * slot, op, flags, 0, fd, off,
                             address, n, more[0] if more else 0, start + i, 0, 0, 0, 0, 0)
            struct.pack_into('<I', self.rings, self.sq[6] + 4 * slot, slot)
        self.u32(self.sq[1], tail + len(requests))
        left = len(requests)
        assert call(ENTER, self.fd, left, left, GETEVENTS, None, 0) == left
        mask = self.u32(self.cq[2])
        while left:
            at, end = self.u32(self.cq[0]), self.u32(self.cq[1])
            for i in range((end - at) & 0xffffffff):
                slot = self.cq[5] + 16 * ((at + i) & mask)
                index, result = struct.unpack_from('<Qi', self.rings, slot)
                out[index] = result
                left -= 1
            self.u32(self.cq[0], end)
            if left:
                call(ENTER, self.fd, 0, left, GETEVENTS, None, 0)


def forbidden():
    """Why there can be no ring; '' when there can."""
    try:
        Ring(1).close()
    except OSError as e:
        return f'io_uring_setup: {e.strerror}'
    return ''


FORBIDDEN = forbidden()


@pytest.fixture
def ring():
    r = Ring()
    yield r
    r.close()


def carton(method):
    c = Carton(method=method)
    for name, size in dict(large=6 * MIB + 77, small=5000, empty=0).items():
        c.add(f'model/{name}', random.Random(name).randbytes(size), level=1)
    return c


class IoUring:
    """Collected as TestIoUring, unless io_uring is forbidden."""

    @pytest.mark.parametrize('flags', [0, ASYNC], ids=['inline', 'async'])
    @pytest.mark.parametrize('method', ['stored', 'deflate', 'zstd'])
    def test_reads(self, mount, work, ring, method, flags):
        c = carton(method)
        want = c.files()
        with mount(c.write(work / 'm.carton'), '-o', f'cache_dir={work}/cache') as m:
            for path in ('model/large', 'model/small', 'model/empty'):
                data, rng = want[path], random.Random(1)
                fd = os.open(m / path, os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                parts = [(rng.randrange(len(data) + 1), rng.choice([1, 4096, 100_000, MIB]))
                         for _ in range(150)] + [(len(data), 10), (len(data) + 5000, 10)]
                bufs = [ctypes.create_string_buffer(n) for _, n in parts]
                got = ring.submit([(READ, flags, fd, off, ctypes.addressof(b), n)
                                   for (off, n), b in zip(parts, bufs)])
                for (off, n), b, r in zip(parts, bufs, got):
                    part = data[off:off + n]
                    assert r == len(part) and b.raw[:r] == part, (path, off, n, r)
                os.close(fd)

    def test_vectors_and_fixed_buffers(self, mount, work, ring):
        c = carton('zstd')
        data = c.files()['model/large']
        with mount(c.write(work / 'm.carton'), '-o', f'cache_dir={work}/cache') as m:
            fd = os.open(m / 'model/large', os.O_RDONLY)
            a, b = ctypes.create_string_buffer(3000), ctypes.create_string_buffer(MIB)
            vector = struct.pack('<QQQQ', ctypes.addressof(a), 3000, ctypes.addressof(b), MIB)
            buf = ctypes.create_string_buffer(vector, len(vector))
            assert ring.submit([(READV, 0, fd, 777, ctypes.addressof(buf), 2)]) == [3000 + MIB]
            assert a.raw + b.raw == data[777:777 + 3000 + MIB]
            fixed = ctypes.create_string_buffer(MIB)
            iov = ctypes.create_string_buffer(struct.pack('<QQ', ctypes.addressof(fixed), MIB), 16)
            call(REGISTER, ring.fd, 0, iov, 1)                          # buffers
            files = ctypes.create_string_buffer(struct.pack('<i', fd), 4)
            call(REGISTER, ring.fd, 2, files, 1)                        # files
            got = ring.submit([(READ_FIXED, FIXED_FILE | ASYNC, 0, 4 * MIB + 1,
                                ctypes.addressof(fixed), MIB)])
            assert got == [MIB] and fixed.raw == data[4 * MIB + 1:5 * MIB + 1]
            os.close(fd)
            assert m.read('model/small') == c.files()['model/small']
            # the kernel ends a ring behind our back; until then it has the file open
            ring.close()
            ring.fd = -1
            assert harness.unmount(m.path).returncode == 0
            m.wait_end()

    def test_opens(self, mount, work, ring):
        """Opens that wait for a verification, all at once, one of a file that is damaged."""
        c = Carton(method='deflate')
        for i in range(20):
            c.add(f'model/{i}', random.Random(i).randbytes(300_000), level=1)
        c.change('model/7', sha='0' * 64)
        want = c.files()
        with mount(c.write(work / 'm.carton')) as m:
            names = [ctypes.create_string_buffer(os.fsencode(m / f'model/{i}')) for i in range(20)]
            missing = ctypes.create_string_buffer(os.fsencode(m / 'model/none'))
            fds = ring.submit([(OPENAT, 0, AT_FDCWD, 0, ctypes.addressof(n), 0,
                                os.O_RDONLY | os.O_CLOEXEC) for n in [*names, missing]])
            assert fds.pop() == -errno.ENOENT and fds.pop(7) == -errno.EIO
            assert min(fds) >= 0
            paths = [f'model/{i}' for i in range(20) if i != 7]
            bufs = [ctypes.create_string_buffer(300_000) for _ in fds]
            got = ring.submit([(READ, ASYNC, fd, 0, ctypes.addressof(b), 300_000)
                               for fd, b in zip(fds, bufs)])
            assert set(got) == {300_000}
            assert [b.raw for b in bufs] == [want[p] for p in paths]
            assert set(ring.submit([(CLOSE, 0, fd, 0, 0, 0) for fd in fds])) == {0}


if not FORBIDDEN:
    class TestIoUring(IoUring):
        pass


def test_ring_or_reason(capsys):
    """A ring works here, or the kernel has said why not."""
    if FORBIDDEN:
        known = map(os.strerror, (errno.EPERM, errno.ENOSYS, errno.EACCES))
        assert FORBIDDEN.split(': ')[1] in known
        with capsys.disabled():
            print(f'\n{FORBIDDEN}: reads by io_uring are not tested here')
        return
    r = Ring(4)
    assert r.submit([(NOP, 0, -1, 0, 0, 0)] * 10) == [0] * 10
    r.close()
