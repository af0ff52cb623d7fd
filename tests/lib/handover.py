# SPDX-License-Identifier: Apache-2.0
"""A FUSE device that root has mounted for others, how it gets to them, and programs that serve it."""
import contextlib
import ctypes
import os
import socket
import subprocess
import threading

import pytest

import harness
from harness import CARTONFS, eventually, mountinfo, run
from zipwriter import sample

LIBC = ctypes.CDLL(None, use_errno=True)
UNPRIVILEGED = ('setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--no-new-privs',
                '--inh-caps=-all', '--bounding-set=-all')


@contextlib.contextmanager
def device(where, options='user_id=65534,group_id=65534', flags=1 | 2 | 4):
    """An open /dev/fuse that is mounted at `where`, by default for uid 65534 and with ro,nosuid,nodev."""
    fd = os.open('/dev/fuse', os.O_RDWR)
    data = f'fd={fd},rootmode=40000,{options},allow_other'
    if LIBC.mount(b'carton', os.fsencode(where), b'fuse.cartonfs', flags, data.encode()):
        raise OSError(ctypes.get_errno(), 'mount')
    try:
        yield fd
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)
        if mountinfo(where):
            run('umount', '-l', where)


@pytest.fixture
def carton(work):
    c = sample()
    path = c.write(work / 'm.carton')
    path.chmod(0o644)
    work.chmod(0o755)
    (work / 'mnt').mkdir()
    (work / 'cache').mkdir()
    os.chown(work / 'cache', 65534, 65534)
    return c, path, work / 'mnt'


def serves(where, c, process):
    eventually('the mount answers', lambda: process.poll() is not None or
               run('timeout', '-s', 'KILL', '3', 'test', '-f', where / 'MANIFEST').returncode == 0)
    assert process.poll() is None, process.stderr.read()
    for name, sha in c.hashes().items():
        assert harness.sha_file(where / name) == sha


def start(path, mountpoint, work, *options, fds=(), env=None):
    return subprocess.Popen([*UNPRIVILEGED, CARTONFS, '-f', '-o', f'cache_dir={work}/cache', *options,
                             str(path), str(mountpoint)], pass_fds=fds, stderr=subprocess.PIPE,
                            text=True, env=harness.environment(65534, **(env or {})))


def send(connection, fd, message=b'\0'):
    socket.send_fds(connection, [message], [fd])
    os.close(fd)
    connection.close()


@contextlib.contextmanager
def listener(path, uid=0):
    """A socket that `uid` has made, and listens at."""
    s = socket.socket(socket.AF_UNIX)
    os.seteuid(uid)
    try:
        s.bind(str(path))
        os.chmod(path, 0o666)
        s.listen()
    finally:
        os.seteuid(0)
    with s:
        yield s


@contextlib.contextmanager
def listening(path, fd):
    """Hands the device to whoever connects."""
    with listener(path) as s:
        t = threading.Thread(target=lambda: send(s.accept()[0], fd))
        t.start()
        yield path
        t.join(harness.EXIT_S)


@contextlib.contextmanager
def csi_driver(directory, where):
    """
    What the generic FUSE CSI driver does: the directory, an emptyDir, and the socket belong to uid 65534, who serves it;
    it mounts for root, once somebody has connected, and sends the device with a text in JSON.
    """
    directory.mkdir()
    directory.chmod(0o777)
    with contextlib.ExitStack() as mounted, listener(directory / 'fuse.sock') as s:
        for path in (directory, directory / 'fuse.sock'):
            os.chown(path, 65534, 65534)

        def hand_over():
            connection, _ = s.accept()
            fd = mounted.enter_context(device(where, 'user_id=0,group_id=0,default_permissions'))
            send(connection, fd, b'{"volumeName":"model"}')
        t = threading.Thread(target=hand_over)
        t.start()
        yield directory / 'fuse.sock'
        t.join(harness.EXIT_S)


def serves_in_container(where, c, command):
    """The container that `command` runs in the foreground serves the mount, until that is unmounted."""
    p = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                         env=harness.environment())
    try:
        serves(where, c, p)
    finally:
        run('umount', '-l', where)
        p.terminate()
        p.wait(harness.EXIT_S)
        p.stderr.close()
