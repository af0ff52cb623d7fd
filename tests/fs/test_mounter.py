# SPDX-License-Identifier: Apache-2.0
"""
The mounter keeps the privileges that the daemon gives up. Here the daemon's socket to it is in other hands: only
what its list of requests names is done, and nothing that was sent stays open. tests/fuzz/fuzz_mounter.c sends more.
"""
import contextlib
import ctypes
import errno
import os
import re
import socket
import struct

import pytest

from harness import eventually, mountinfo
from probing import mounter_of

pytestmark = pytest.mark.needs_root     # it takes a descriptor out of another process

PIDFD_GETFD = 438
# the requests, as fs/process/mounter.c numbers them
MOUNT, LOG, OPEN_FILES, BACKING_OPEN, BACKING_CLOSE = 0, 2, 3, 5, 6


def taken(pid, prefix):
    """Copies of what the daemon has open by such a name."""
    system = ctypes.CDLL(None, use_errno=True).syscall
    pidfd = os.pidfd_open(pid)
    try:
        for n in os.listdir(f'/proc/{pid}/fd'):
            if os.readlink(f'/proc/{pid}/fd/{n}').startswith(prefix):
                fd = system(PIDFD_GETFD, pidfd, int(n), 0)
                assert fd >= 0, os.strerror(ctypes.get_errno())
                yield fd
    finally:
        os.close(pidfd)


@contextlib.contextmanager
def taken_socket(pid):
    """The daemon's end of the socket to its mounter."""
    for fd in taken(pid, 'socket:'):
        with socket.socket(fileno=fd) as s:
            if s.type == socket.SOCK_SEQPACKET:
                yield s
                return
    raise AssertionError('the daemon has no such socket')


def held(pid):
    """What the process has open: numbers and names."""
    names = {}
    for n in os.listdir(f'/proc/{pid}/fd'):
        with contextlib.suppress(FileNotFoundError):    # closed meanwhile
            names[n] = re.sub(r'\d+', '', os.readlink(f'/proc/{pid}/fd/{n}'))
    return names


def test_requests_of_others(mount, sample_carton, work, who):
    secret = work / 'secret'
    secret.write_bytes(b'/etc/shadow\0')
    with mount(sample_carton[0], uid=who) as m, taken_socket(m.pids[0]) as s, \
            open('/dev/zero', 'rb') as device, open(secret, 'rb') as file:
        pid, = mounter_of(m.pids[0])

        def ask(kind, text=b'', fds=(device.fileno(), file.fileno()), size=None):
            socket.send_fds(s, [(struct.pack('=ii', kind, 0) + text)[:size]], list(fds))

        def answer():
            data, fds, *_ = socket.recv_fds(s, 1 << 14, 4)
            assert not fds
            return struct.unpack_from('=i', data)[0]

        ask(BACKING_OPEN)
        assert answer() == -errno.EBADF
        # it has done all that was asked before; after the answer, it closes the descriptors that came
        eventually('it holds none of ours', lambda: not any(
            name.endswith(('/zero', '/secret')) for name in held(pid).values()))
        before, mounts = held(pid), mountinfo(m.path)
        for _ in range(20):
            ask(MOUNT, size=4)                          # shorter than a request
            ask(1000)                                   # no request
            ask(-1)
            ask(LOG, b'a line of a test')
            ask(OPEN_FILES)                             # no listener
            ask(OPEN_FILES, fds=())
            ask(BACKING_CLOSE, b'\1\0\0\0')             # no FUSE device
            ask(BACKING_CLOSE, b'\1')
            ask(MOUNT)                                  # it is mounted
            assert answer() == -errno.EIO
            ask(BACKING_OPEN)
            assert answer() == -errno.EBADF
            ask(BACKING_OPEN, fds=())
            assert answer() == -errno.EBADF
        assert held(pid) == before
        assert mountinfo(m.path) == mounts
        assert m.read('MANIFEST')
    assert not os.path.exists(f'/proc/{pid}')


@pytest.mark.parametrize('flags', [os.O_PATH, os.O_WRONLY])
def test_file_that_is_not_open_for_reading(mount, sample_carton, work, flags):
    """The kernel would open it again with the rights of the mounter."""
    (work / 'secret').write_bytes(b'secret')
    with mount(sample_carton[0], '-o', 'passthrough') as m, taken_socket(m.pids[0]) as s:
        device, *more = taken(m.pids[0], '/dev/fuse')
        file = os.open(work / 'secret', flags)
        socket.send_fds(s, [struct.pack('=ii', BACKING_OPEN, 0)], [device, file])
        for fd in (device, file, *more):
            os.close(fd)
        assert struct.unpack_from('=i', s.recv(1 << 14)) == (-errno.EBADF,)
