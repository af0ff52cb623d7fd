# SPDX-License-Identifier: Apache-2.0
"""Without privileges: a FUSE device that somebody else has mounted, over a descriptor or a socket."""
import contextlib
import errno
import os
import socket
import threading

import pytest

import handover
import harness
from handover import csi_driver, device, listener, listening, send, serves, serves_in_container, start
from harness import CARTONFS, run

pytestmark = pytest.mark.needs_root     # mounts for others
carton = handover.carton      # a fixture


def serves_and_ends(where, c, p):
    """The process serves the mount, and ends in order when it is told to."""
    try:
        serves(where, c, p)
        p.terminate()
        assert p.wait(harness.EXIT_S * harness.SLOW) == 0, p.stderr.read()
    finally:
        p.kill()
        p.wait()
        p.stderr.close()


@pytest.mark.parametrize('how', ['descriptor', 'socket', 'variable'])
def test_device_from_another(carton, work, how):
    """All capabilities dropped, no new privileges, uid 65534."""
    c, path, where = carton
    with contextlib.ExitStack() as stack:
        fd = stack.enter_context(device(where))
        if how == 'descriptor':
            p = start(path, f'/dev/fd/{fd}', work, fds=(fd,))
            os.close(fd)
        elif how == 'socket':
            p = start(path, stack.enter_context(listening(work / 'sock', fd)), work)
        else:
            a, b = socket.socketpair()
            p = start(path, where, work, fds=(b.fileno(),), env={'_FUSE_COMMFD': str(b.fileno())})
            b.close()
            send(a, fd)
        serves_and_ends(where, c, p)


def refused(carton, given, s, why):
    """Root's cartonfs takes nothing from the socket: it says why, and asks nobody for a device, or no further."""
    with device(carton[2]) as fd:
        t = threading.Thread(target=offer, args=(s, os.dup(fd)))
        t.start()
        p = run(CARTONFS, '-f', carton[1], given)
        assert p.returncode == 32 and why in p.stderr and p.stderr.count('\n') == 1, p.stderr
        s.shutdown(socket.SHUT_RDWR)
        t.join()


def offer(s, fd):
    with contextlib.suppress(OSError):
        send(s.accept()[0], fd)


@pytest.mark.parametrize('options', ['', ',default_permissions'])
def test_device_of_a_writable_mount(carton, work, options):
    """As mount.fuse3 -o drop_privileges makes it without ro: the mount is read-only all the same, for root too."""
    c, path, where = carton
    file, status = where / 'model/main.py', where / '.cartonfs/status.json'
    with device(where, 'user_id=65534,group_id=65534' + options, 2 | 4) as fd:
        p = start(path, f'/dev/fd/{fd}', work, fds=[fd])
        os.close(fd)
        serves(where, c, p)
        for call, *words in [
                (open, file, 'r+'), (open, file, 'w'), (open, where / 'new', 'w'), (open, status, 'r+'), (os.unlink, status),
                (os.truncate, file, 0), (os.mkdir, where / 'new'), (os.rmdir, where / 'model'), (os.unlink, file),
                (os.rename, file, where / 'new'), (os.link, file, where / 'new'), (os.symlink, 'x', where / 'new'),
                (os.mknod, where / 'new'), (os.chmod, file, 0o777), (os.chown, file, 1, 1), (os.utime, file),
                (os.setxattr, file, 'user.x', b'x'), (os.removexattr, file, 'user.carton.state')]:
            with pytest.raises(OSError) as e:
                call(*words)
            assert e.value.errno == errno.EROFS, (call, words, e.value)
        if not options:
            assert not os.access(file, os.W_OK)
        assert os.access(file, os.R_OK)
        serves_and_ends(where, c, p)


@pytest.fixture
def theirs(work):
    """A directory of another user."""
    path = work / 'theirs'
    path.mkdir()
    os.chown(path, 65534, 65534)
    return path


def test_socket_of_another_user(carton, theirs):
    """He would read root's carton, through a mount of his own."""
    with listener(theirs / 'mnt', 65534) as s:
        refused(carton, theirs / 'mnt', s, f'{theirs} belongs to another user')


def test_socket_of_another_user_in_a_sticky_directory(carton, work):
    (work / 'open').mkdir()
    (work / 'open').chmod(0o1777)
    with listener(work / 'open/mnt', 65534) as s:
        refused(carton, work / 'open/mnt', s, f'{work}/open/mnt belongs to another user')


def test_socket_that_another_user_listens_at(carton, work):
    """The name belongs to root, but not who answers."""
    work.chmod(0o777)
    with listener(work / 'sock', 65534) as s:
        os.chown(work / 'sock', 0, 0)
        work.chmod(0o755)
        refused(carton, work / 'sock', s, 'uid 65534 listens there')


@pytest.mark.parametrize('mode', [0o777, 0o775])
def test_socket_that_another_user_could_replace(carton, work, mode):
    """Each directory of the way counts: there he can put another of root's sockets."""
    (work / 'open/below').mkdir(parents=True)
    (work / 'open').chmod(mode)
    with listener(work / 'open/below/mnt') as s:
        refused(carton, work / 'open/below/mnt', s, f'{work}/open/below is in a directory that another user')


def test_socket_behind_a_symlink(carton, work):
    with listener(work / 'sock') as s:
        (work / 'link').symlink_to(work)
        refused(carton, work / 'link/sock', s, f'{work}/link is a symlink')


@pytest.mark.parametrize('mode', [0o1777, 0o755])
def test_socket_where_nobody_can_replace_it(carton, work, mode):
    """In a sticky directory, such as /tmp, others cannot rename what is ours or root's."""
    c, path, where = carton
    (work / 'open').mkdir()
    (work / 'open').chmod(mode)
    with device(where) as fd, listening(work / 'open/sock', fd):
        serves_and_ends(where, c, start(path, work / 'open/sock', work))


@pytest.mark.parametrize('message', ['no descriptor', 'closed'])
def test_no_device_comes(carton, work, message):
    _, path, where = carton
    a, b = socket.socketpair()
    errors = work / 'cache/errors'
    p = start(path, where, work, '-o', f'error_file={errors}', fds=(b.fileno(),),
              env={'_FUSE_COMMFD': str(b.fileno())})
    b.close()
    if message == 'no descriptor':
        a.send(b'x')
    a.close()
    assert p.wait(harness.EXIT_S * harness.SLOW) == 32
    assert 'cannot receive a FUSE device from this socket' in p.stderr.read()
    assert 'exit status 32' in errors.read_text()
    p.stderr.close()


@pytest.mark.parametrize('number', ['3', '30', '0', 'x'])
def test_no_device_there(carton, number):
    """As after a step of the service that was killed: 3 would be a socket of the program, which it reads for ever."""
    p = run(CARTONFS, '-f', carton[1], f'/dev/fd/{number}')
    assert p.returncode == 32 and 'is not an open FUSE device' in p.stderr


def test_error_file(carton, work):
    """Why it failed after the device was handed over, where the supervisor looks for it."""
    _, _, where = carton
    bad = work / 'bad.carton'
    bad.write_bytes(b'no zip' * 1000)
    bad.chmod(0o644)
    errors = work / 'cache/errors'
    errors.write_text('of an earlier run')
    errors.chmod(0o666)
    with device(where) as fd:
        p = start(bad, f'/dev/fd/{fd}', work, '-o', f'error_file={errors}', fds=(fd,))
        os.close(fd)
        assert p.wait(harness.EXIT_S * harness.SLOW) == 32
        p.stderr.close()
    first, *_, last = errors.read_text().splitlines()
    assert 'zip' in first and last.endswith('exit status 32') and 'earlier' not in first
    p = run(CARTONFS, '-o', f'error_file={work}/none/x', bad, where)
    assert p.returncode == 1 and 'none/x' in p.stderr


@pytest.mark.parametrize('what', ['symlink', 'hard link', 'file'])
def test_error_file_of_another_user(carton, work, theirs, what):
    """Root writes, and empties, nothing that he points to."""
    bad, precious, errors = work / 'bad.carton', work / 'precious', theirs / 'errors'
    bad.write_bytes(b'no zip' * 1000)
    precious.write_text('keep me')
    if what == 'symlink':
        errors.symlink_to(precious)
    elif what == 'hard link':
        os.link(precious, errors)
    else:
        errors.write_text('keep me')
        os.chown(errors, 65534, 65534)
    p = run(CARTONFS, '-f', '-o', f'error_file={errors}', bad, carton[2])
    assert p.returncode == 1 and f'{errors}: ' in p.stderr and 'zip' not in p.stderr, p.stderr
    assert precious.read_text() == 'keep me' and errors.read_text() == 'keep me'


def test_generic_csi_driver(carton, work):
    """Its socket is taken once the directory is sticky, which the container can see to."""
    c, path, where = carton
    with csi_driver(work / 'handover', where) as s:
        p = start(path, s, work)
        assert 'another user can change' in p.communicate()[1] and p.returncode == 32
        assert run(*handover.UNPRIVILEGED, 'chmod', '1777', work / 'handover').returncode == 0
        p = start(path, s, work)
        serves_and_ends(where, c, p)


@pytest.mark.needs_podman
def test_podman(carton, work):
    """A container with this system's files serves what came over a socket."""
    c, path, where = carton
    podman = [*harness.podman(work / 'rootfs'), f'--volume={work}:/w', f'--volume={harness.PROGRAMS}:/prog:ro',
              '--rootfs', work / 'rootfs']
    with device(where) as fd, listening(work / 'sock', fd):
        serves_in_container(where, c, [*podman, '/prog/cartonfs', '-f', '-o', 'cache_dir=/w/cache', f'/w/{path.name}',
                                       '/w/sock'])
