# SPDX-License-Identifier: Apache-2.0
"""
File handles, as an NFS server keeps them: open_by_handle_at(2) works after the kernel has forgotten the inode, and a
handle that somebody has forged leads to a file of this mount or to none.
"""
import ctypes
import errno
import os
import random
import struct

import pytest

from harness import read_file
from tensorfiles import st, st_bytes
from zipwriter import Carton

pytestmark = pytest.mark.needs_root
LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
REMOUNT = 32 | 1 | 2 | 4         # MS_REMOUNT with MS_RDONLY, MS_NOSUID, MS_NODEV
# of the kernel's fs/fuse: the inode number in two halves of 32 bits, the higher one first, and a generation
HANDLE, ONE, WITH_PARENT = struct.Struct('@III'), 0x81, 0x82


class FileHandle(ctypes.Structure):
    _fields_ = [('bytes', ctypes.c_uint), ('type', ctypes.c_int), ('data', ctypes.c_ubyte * 128)]


def handle_of(path):
    handle, mount = FileHandle(bytes=128), ctypes.c_int()
    if LIBC.name_to_handle_at(AT_FDCWD, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount), 0):
        raise OSError(ctypes.get_errno(), path)
    return handle


def forged(ino, kind=ONE, generation=0, parent=None):
    data = HANDLE.pack(ino >> 32, ino & 0xffffffff, generation)
    if kind == WITH_PARENT:
        data += HANDLE.pack(parent >> 32, parent & 0xffffffff, generation)
    handle = FileHandle(bytes=len(data), type=kind)
    handle.data[:len(data)] = data
    return handle


def number_in(handle):
    high, low, generation = HANDLE.unpack(bytes(handle.data[:HANDLE.size]))
    assert handle.type == ONE and generation == 0
    return high << 32 | low


def open_handle(root, handle):
    """A descriptor, or the name of the errno."""
    fd = LIBC.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
    return fd if fd >= 0 else errno.errorcode[ctypes.get_errno()]


def forget(m):
    """A remount drops all names of the mount, and so all inodes that nobody has open."""
    if LIBC.mount(None, os.fsencode(m.path), None, REMOUNT, None):
        raise OSError(ctypes.get_errno(), 'remount')


@pytest.fixture
def shown(mount, work):
    c = Carton().add('model/a', b'the bytes\n').add('model/deep/er/b', b'bee')
    c.add('model/w.safetensors', st_bytes({'t': st('F32', (2, 3), 0, 24)}, bytes(range(24))))
    c.symlink('misc/link', '../model/a')
    with mount(c.write(work / 'm.carton')) as m:
        root = os.open(m.path, os.O_RDONLY | os.O_DIRECTORY)
        yield m, root
        os.close(root)


PATHS = ('model', 'model/a', 'model/deep/er/b', 'views', 'views/model/w.safetensors', 'views/model/w.safetensors/t.bin',
         'MANIFEST', '.cartonfs/status.json')     # .cartonfs is not listed, so it has no way back to the root


def test_forgotten(shown):
    """Files, directories, what is generated and what is no part of the carton."""
    m, root = shown
    handles, wanted = [], []
    for path in PATHS:
        handles.append(handle_of(m / path))
        is_dir = os.path.isdir(m / path)
        wanted.append((os.stat(m / path).st_ino, sorted(os.listdir(m / path)) if is_dir else read_file(m / path)))
    numbers = [number_in(h) for h in handles]
    assert len(set(numbers)) == len(numbers)
    forget(m)
    for path, handle, (ino, content) in zip(PATHS, handles, wanted):
        fd = open_handle(root, handle)
        assert isinstance(fd, int), (path, fd)
        try:
            assert os.fstat(fd).st_ino == ino
            if isinstance(content, list):
                assert sorted(os.listdir(fd)) == content
                # the kernel asks for "..", and finds the name of the directory
                assert os.readlink(f'/proc/self/fd/{fd}') == str(m / path)
            elif path != '.cartonfs/status.json':
                assert os.pread(fd, 1 << 20, 0) == content
        finally:
            os.close(fd)


def test_forged(shown):
    """Any number: those of files lead to them; no other does anything, least of all an address of the daemon."""
    m, root = shown
    views = [number_in(handle_of(m / p)) for p in PATHS if p.startswith('views/')]
    assert all(n >> 48 for n in views)
    with open(f'/proc/{m.pids[0]}/maps') as maps:
        addresses = [int(line.split('-')[0], 16) for line in maps]
    rng = random.Random(1)
    numbers = {n ^ 1 << bit for n in views for bit in range(64)}
    numbers |= {tag << 48 | a + 16 * rng.randrange(256) for a in addresses for tag in (0, 1)}
    numbers |= {rng.getrandbits(rng.randrange(1, 65)) for _ in range(300)} | set(range(64)) | {(1 << 64) - 1}
    known = {os.stat(os.path.join(at, name)).st_ino for at, dirs, files in os.walk(m.path) for name in (*dirs, *files)}
    known |= {os.stat(m / p).st_ino for p in ('.', '.cartonfs', '.cartonfs/status.json', '.cartonfs/metrics')}
    opened = set()
    for n in sorted(numbers):
        for handle in forged(n), forged(n, generation=1), forged(n, WITH_PARENT, parent=rng.choice(sorted(numbers))):
            if rng.randrange(100) == 0:
                forget(m)
            fd = open_handle(root, handle)
            if isinstance(fd, int):
                opened.add(os.fstat(fd).st_ino)
                os.close(fd)
            else:
                assert fd in ('ESTALE', 'ELOOP', 'ENOENT', 'EIO'), (hex(n), fd)
    assert m.read('model/a') == b'the bytes\n'
    assert opened <= known and {os.stat(m / p).st_ino for p in ('model', 'model/a', '.cartonfs/metrics')} <= opened
    assert m.read('views/model/w.safetensors/t.bin') == bytes(range(24))


def test_generation(shown):
    """A handle of another generation is of another file."""
    m, root = shown
    n = number_in(handle_of(m / 'model/a'))
    assert open_handle(root, forged(n, generation=1)) == 'ESTALE'
    forget(m)
    assert open_handle(root, forged(n, generation=1)) == 'ESTALE'
    os.close(open_handle(root, forged(n)))
