# SPDX-License-Identifier: Apache-2.0
"""
System calls on a mount and their errors: what changes anything is EROFS, and what POSIX says of
names that are missing, too long, no directory, a loop, or not allowed. A name stands for each call.
"""
import ctypes
import errno
import fcntl
import mmap
import os
import resource
import socket
import stat
import struct

import pytest

import harness
from harness import IS_ROOT, NOBODY, as_user, in_child
from zipwriter import sample

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
FILE, LINK, DIR, SCRIPT = 'model/main.py', 'misc/latest.png', 'model', 'model/run.sh'


def libc(name, *args):
    """A function of the C library that Python does not have; strings are paths."""
    args = [os.fsencode(a) if isinstance(a, str) else a for a in args]
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    if getattr(LIBC, name)(*args) == -1:
        raise OSError(ctypes.get_errno(), name)


def with_fd(path, fn, flags=os.O_RDONLY):
    fd = os.open(path, flags)
    try:
        return fn(fd)
    finally:
        os.close(fd)


def opens(path, flags):
    return lambda: with_fd(path, lambda fd: None, flags)


def bind_socket(path):
    """At a short path: a socket's has no more than 107 bytes."""
    where, name = os.path.split(path)
    s = socket.socket(socket.AF_UNIX)
    d = os.open(where, os.O_RDONLY)
    try:
        s.bind(f'/proc/thread-self/fd/{d}/{name}')
    finally:
        os.close(d)
        s.close()


def outcome(calls):
    """{name: errno name, or '' when it succeeds}."""
    out = {}
    for name, call in calls.items():
        try:
            call()
            out[name] = ''
        except OSError as e:
            out[name] = errno.errorcode[e.errno]
    return out


def differences(m, table, uid=None):
    """What did not end as the table {name: (errnos, call)} has it."""
    got = as_user(uid if uid is not None else m.uid, outcome, {k: c for k, (_, c) in table.items()})
    return {k: (got[k], want) for k, (want, _) in table.items() if got[k] not in want.split('|')}


# ---- what changes something ----

def changes(root, outside):
    """{name: (errnos, call)}; `outside` is a directory elsewhere that the user can write to."""
    f, new, d, link = (f'{root}/{n}' for n in (FILE, 'model/new', DIR, LINK))
    other = f'{outside}/file'

    calls = {
        'open O_WRONLY': opens(f, os.O_WRONLY),
        'open O_RDWR': opens(f, os.O_RDWR),
        'open O_WRONLY O_APPEND': opens(f, os.O_WRONLY | os.O_APPEND),
        'open O_TRUNC': opens(f, os.O_WRONLY | os.O_TRUNC),
        'open O_RDONLY O_TRUNC': opens(f, os.O_RDONLY | os.O_TRUNC),
        'open O_WRONLY through a link': opens(link, os.O_WRONLY),
        'open O_CREAT': opens(new, os.O_WRONLY | os.O_CREAT),
        'open O_CREAT O_RDONLY': opens(new, os.O_RDONLY | os.O_CREAT),
        'open O_CREAT O_EXCL': opens(new, os.O_RDWR | os.O_CREAT | os.O_EXCL),
        'creat at the top': opens(f'{root}/new', os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        'creat in views': opens(f'{root}/views/new', os.O_WRONLY | os.O_CREAT),
        'mkdir': lambda: os.mkdir(new),
        'mkdir at the top': lambda: os.mkdir(f'{root}/new'),
        'mknod regular': lambda: os.mknod(new, stat.S_IFREG | 0o600),
        'mkfifo': lambda: os.mkfifo(new),
        'bind': lambda: bind_socket(new),
        'symlink': lambda: os.symlink('main.py', new),
        'link': lambda: os.link(f, new),
        'linkat through a link': lambda: os.link(link, new, follow_symlinks=True),
        'rename': lambda: os.rename(f, new),
        'rename onto a file': lambda: os.rename(f, f'{root}/{SCRIPT}'),
        'rename a directory': lambda: os.rename(d, f'{root}/new'),
        'renameat2 NOREPLACE': lambda: libc('renameat2', AT_FDCWD, f, AT_FDCWD, new,
                                            RENAME_NOREPLACE),
        'renameat2 EXCHANGE': lambda: libc('renameat2', AT_FDCWD, f, AT_FDCWD, f'{root}/{SCRIPT}',
                                           RENAME_EXCHANGE),
        'unlink': lambda: os.unlink(f),
        'unlink a link': lambda: os.unlink(link),
        'rmdir': lambda: os.rmdir(d),
        'rmdir views': lambda: os.rmdir(f'{root}/views'),
        'chmod': lambda: os.chmod(f, 0o600),
        'chmod a directory': lambda: os.chmod(d, 0o700),
        'chmod to what it is': lambda: os.chmod(f, 0o444),
        'fchmod': lambda: with_fd(f, lambda fd: os.fchmod(fd, 0o600)),
        'chown': lambda: os.chown(f, os.geteuid(), os.getegid()),
        'chown of nothing': lambda: os.chown(f, -1, -1),
        'lchown': lambda: os.lchown(link, os.geteuid(), os.getegid()),
        'fchown': lambda: with_fd(f, lambda fd: os.fchown(fd, os.geteuid(), os.getegid())),
        'truncate to 0': lambda: os.truncate(f, 0),
        'truncate to what it is': lambda: os.truncate(f, os.stat(f).st_size),
        'truncate to more': lambda: os.truncate(f, 1 << 30),
        'utimensat now': lambda: os.utime(f),
        'utimensat': lambda: os.utime(f, ns=(1, 1)),
        'utimensat of a link': lambda: os.utime(link, follow_symlinks=False),
        'futimens': lambda: with_fd(f, os.utime),
        'setxattr': lambda: os.setxattr(f, 'user.new', b'x'),
        'setxattr of ours': lambda: os.setxattr(f, 'user.carton.state', b'x', os.XATTR_REPLACE),
        'setxattr of a directory': lambda: os.setxattr(d, 'user.new', b'x'),
        'fsetxattr': lambda: with_fd(f, lambda fd: os.setxattr(fd, 'user.new', b'x')),
        'removexattr': lambda: os.removexattr(f, 'user.carton.state'),
        'access W_OK': lambda: libc('access', f, os.W_OK),
        'access W_OK of a directory': lambda: libc('access', d, os.W_OK),
    }
    table = {name: ('EROFS', call) for name, call in calls.items()}
    more = {
        # where several errors apply, POSIX leaves it open which of them is reported
        'open O_TMPFILE': ('EROFS|EOPNOTSUPP', opens(d, os.O_TMPFILE | os.O_RDWR)),
        'open a directory O_WRONLY': ('EISDIR|EROFS', opens(d, os.O_WRONLY)),
        'open O_CREAT O_EXCL of a file': ('EEXIST|EROFS', opens(f, os.O_CREAT | os.O_EXCL)),
        'mkdir of a file': ('EEXIST|EROFS', lambda: os.mkdir(f)),
        'symlink onto a file': ('EEXIST|EROFS', lambda: os.symlink('x', f)),
        'rmdir of a file': ('ENOTDIR|EROFS', lambda: os.rmdir(f)),
        'unlink a directory': ('EISDIR|EPERM|EROFS', lambda: os.unlink(d)),
        'unlink nothing': ('ENOENT|EROFS', lambda: os.unlink(new)),
        'truncate a directory': ('EISDIR|EROFS', lambda: os.truncate(d, 0)),
        'posix acl': ('EROFS|EOPNOTSUPP', lambda: os.setxattr(
            f, 'system.posix_acl_access', struct.pack('<IHHIHHIHHI', 2, 1, 4, MAX, 4, 4, MAX,
                                                      32, 4, MAX))),
        'mknod device': ('EROFS|EPERM', lambda: os.mknod(new, stat.S_IFCHR | 0o600, 259)),
        'link to elsewhere': ('EXDEV|EROFS', lambda: os.link(f, f'{outside}/link')),
        'link from elsewhere': ('EXDEV|EROFS', lambda: os.link(other, new)),
        'rename to elsewhere': ('EXDEV|EROFS', lambda: os.rename(f, f'{outside}/moved')),
        'rename from elsewhere': ('EXDEV|EROFS', lambda: os.rename(other, new)),
        # with a descriptor that is open for reading
        'write': ('EBADF', lambda: with_fd(f, lambda fd: os.write(fd, b'x'))),
        'pwrite': ('EBADF', lambda: with_fd(f, lambda fd: os.pwrite(fd, b'x', 0))),
        'ftruncate': ('EINVAL|EBADF', lambda: with_fd(f, lambda fd: os.ftruncate(fd, 0))),
        'fallocate': ('EBADF', lambda: with_fd(f, lambda fd: os.posix_fallocate(fd, 0, 10))),
        'copy_file_range': ('EBADF', lambda: with_fd(other, lambda src: with_fd(
            f, lambda fd: os.copy_file_range(src, fd, 1)))),
        'sendfile': ('EBADF', lambda: with_fd(other, lambda src: with_fd(
            f, lambda fd: os.sendfile(fd, src, 0, 1)))),
        'mmap PROT_WRITE': ('EACCES', lambda: with_fd(f, lambda fd: mmap.mmap(
            fd, 10, mmap.MAP_SHARED, mmap.PROT_WRITE))),
        'lock F_WRLCK': ('EBADF', lambda: with_fd(f, lambda fd: fcntl.lockf(
            fd, fcntl.LOCK_EX | fcntl.LOCK_NB))),
        # and what changes nothing
        'open O_CREAT O_RDONLY of a file': ('', opens(f, os.O_CREAT | os.O_RDONLY)),
        'fsync': ('', lambda: with_fd(f, os.fsync)),
        'fdatasync': ('', lambda: with_fd(f, os.fdatasync)),
        'fsync of a directory': ('', lambda: with_fd(d, os.fsync)),
        'flock': ('', lambda: with_fd(f, lambda fd: fcntl.flock(fd, fcntl.LOCK_EX))),
        'lock F_RDLCK': ('', lambda: with_fd(f, lambda fd: fcntl.lockf(
            fd, fcntl.LOCK_SH | fcntl.LOCK_NB))),
        'mmap MAP_PRIVATE PROT_WRITE': ('', lambda: with_fd(f, lambda fd: mmap.mmap(
            fd, 10, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE))),
        'copy_file_range from it': ('|EXDEV', lambda: with_fd(f, lambda src: with_fd(
            other, lambda fd: os.copy_file_range(src, fd, 1, 0, 0), os.O_WRONLY))),
    }
    return table | more


MAX = 0xffffffff


@pytest.fixture
def outside(work, who):
    path = work / 'outside'
    path.mkdir()
    (path / 'file').write_bytes(b'x')
    if who is not None:
        for p in (path, path / 'file'):
            os.chown(p, who, who)
    return str(path)


def test_changes_are_refused(mount, sample_carton, who, outside):
    path, c = sample_carton
    with mount(path, uid=who) as m:
        before = m.do(harness.scan, m.path, True)
        assert differences(m, changes(m.path, outside)) == {}
        assert m.do(harness.scan, m.path, True) == before
    assert os.listdir(outside) == ['file']


# ---- names ----

def names(root):
    """{name: (errnos, call)} of calls that read."""
    f, d, link = (f'{root}/{n}' for n in (FILE, DIR, LINK))
    lookups = {
        'stat': os.stat, 'lstat': os.lstat, 'open': lambda p: with_fd(p, lambda fd: None),
        'access': lambda p: libc('access', p, os.F_OK), 'statvfs': os.statvfs,
        'readlink': os.readlink, 'opendir': os.listdir, 'chdir': os.chdir,
        'getxattr': lambda p: os.getxattr(p, 'user.carton.sha256'), 'listxattr': os.listxattr,
        'pathconf': lambda p: os.pathconf(p, 'PC_NAME_MAX'),
        'execve': lambda p: os.execv(p, ['x']),
        'open O_PATH': lambda p: with_fd(p, lambda fd: None, os.O_PATH),
    }
    wrong = {
        'missing': (f'{root}/nothing', 'ENOENT'),
        'missing below a directory': (f'{d}/nothing', 'ENOENT'),
        'missing in the middle': (f'{root}/nothing/x', 'ENOENT'),
        'missing in views': (f'{root}/views/nothing', 'ENOENT'),
        'empty': ('', 'ENOENT'),
        'a file in the middle': (f'{f}/x', 'ENOTDIR'),
        'a file with a slash': (f'{f}/', 'ENOTDIR'),
        'a file with a dot': (f'{f}/.', 'ENOTDIR'),
        'a file and back': (f'{f}/../main.py', 'ENOTDIR'),
        'a link to a file in the middle': (f'{link}/x', 'ENOTDIR'),
        '255 bytes': (f'{d}/' + 'n' * 255, 'ENOENT'),
        '256 bytes': (f'{d}/' + 'n' * 256, 'ENAMETOOLONG'),
        '256 bytes in the middle': (f'{d}/' + 'n' * 256 + '/x', 'ENAMETOOLONG'),
        'a path of PATH_MAX': (root + '/.' * 2048, 'ENAMETOOLONG'),
    }
    table = {f'{call}: {kind}': (want, lambda fn=fn, p=p: fn(p))
             for call, fn in lookups.items() for kind, (p, want) in wrong.items()}
    return table | {
        'opendir of a file': ('ENOTDIR', lambda: os.listdir(f)),
        'chdir to a file': ('ENOTDIR', lambda: os.chdir(f)),
        'open a file O_DIRECTORY': ('ENOTDIR', opens(f, os.O_DIRECTORY)),
        'openat in a file': ('ENOTDIR', lambda: with_fd(f, lambda fd: os.stat('x', dir_fd=fd))),
        'open a link O_NOFOLLOW': ('ELOOP', opens(link, os.O_NOFOLLOW)),
        'open a link O_NOFOLLOW O_DIRECTORY': ('ENOTDIR|ELOOP', opens(
            link, os.O_NOFOLLOW | os.O_DIRECTORY)),
        'open a link O_NOFOLLOW O_PATH': ('', opens(link, os.O_NOFOLLOW | os.O_PATH)),
        'readlink of a file': ('EINVAL', lambda: os.readlink(f)),
        'readlink of a directory': ('EINVAL', lambda: os.readlink(d)),
        'read of a directory': ('EISDIR', lambda: with_fd(d, lambda fd: os.read(fd, 1))),
        'pread of a directory': ('EISDIR', lambda: with_fd(d, lambda fd: os.pread(fd, 1, 0))),
        'mmap of a directory': ('ENODEV|EACCES', lambda: with_fd(d, lambda fd: mmap.mmap(
            fd, 1, mmap.MAP_PRIVATE, mmap.PROT_READ))),
        'execve of a file': ('EACCES', lambda: os.execv(f, ['x'])),
        'execve of a directory': ('EACCES', lambda: os.execv(d, ['x'])),
        'access X_OK of a file': ('EACCES', lambda: libc('access', f, os.X_OK)),
        'access R_OK': ('', lambda: libc('access', f, os.R_OK)),
        'access X_OK of a script': ('', lambda: libc('access', f'{root}/{SCRIPT}', os.X_OK)),
        'access X_OK of a directory': ('', lambda: libc('access', d, os.X_OK)),
        'getxattr of another name': ('ENODATA', lambda: os.getxattr(f, 'user.other')),
        'getxattr of another space': ('ENODATA|ENOTSUP|EOPNOTSUPP|EPERM', lambda: os.getxattr(
            f, 'trusted.x')),
        'getxattr too short': ('ERANGE', lambda: libc('getxattr', f, 'user.carton.sha256',
                                                      ctypes.create_string_buffer(1), 1)),
        'listxattr': ('', lambda: libc('listxattr', f, ctypes.create_string_buffer(1), 1)),
        'pread before the start': ('EINVAL', lambda: with_fd(f, lambda fd: os.pread(fd, 1, -1))),
        'lseek before the start': ('EINVAL', lambda: with_fd(f, lambda fd: os.lseek(fd, -1, 0))),
        'SEEK_DATA behind the end': ('ENXIO', lambda: with_fd(f, lambda fd: os.lseek(
            fd, 1 << 30, os.SEEK_DATA))),
        'SEEK_HOLE behind the end': ('ENXIO', lambda: with_fd(f, lambda fd: os.lseek(
            fd, 1 << 30, os.SEEK_HOLE))),
        'ioctl': ('ENOTTY', lambda: with_fd(f, lambda fd: fcntl.ioctl(fd, 0x5401, bytes(60)))),
    }


def test_names(mount, sample_carton, who):
    with mount(sample_carton[0], uid=who) as m:
        assert differences(m, names(m.path)) == {}


def test_reads_at_the_end(mount, sample_carton):
    """No error, and no byte, from the end on."""
    path, c = sample_carton
    want = c.files()[FILE]
    with mount(path) as m, open(m / FILE, 'rb', buffering=0) as f:
        fd, size = f.fileno(), len(want)
        assert os.pread(fd, 10, size) == os.pread(fd, 10, size + 1) == b''
        assert os.pread(fd, 10, (1 << 63) - 11) == b'' == os.pread(fd, 0, 0)
        assert os.pread(fd, 10, size - 3) == want[-3:]
        assert os.lseek(fd, 0, os.SEEK_END) == size and os.read(fd, 1) == b''
        assert os.lseek(fd, 0, os.SEEK_HOLE) == size and os.lseek(fd, 5, os.SEEK_DATA) == 5
        assert os.preadv(fd, [bytearray(5), bytearray(size)], 3) == size - 3
        assert os.readv(fd, [bytearray(1)] * 1) == 0 or os.lseek(fd, 0, os.SEEK_CUR) == 6


def test_links_in_a_row(mount, work):
    """The kernel follows 40 symlinks: so many can be in a carton, one more is ELOOP."""
    c = sample()
    for i in range(40):
        c.symlink(f'misc/link{i}', f'link{i - 1}' if i else 'picture.png')
    with mount(c.write(work / 'm.carton')) as m:
        assert m.read('misc/link39') == c.files()['misc/picture.png']
        os.symlink(m / 'misc/link39', work / 'one more')
        table = {'stat': os.stat, 'open': lambda p: os.open(p, os.O_RDONLY), 'chdir': os.chdir,
                 'access': lambda p: libc('access', p, os.F_OK),
                 'getxattr': lambda p: os.getxattr(p, 'user.carton.sha256'),
                 'execve': lambda p: os.execv(p, ['x'])}
        path = str(work / 'one more')
        assert differences(m, {k: ('ELOOP', lambda fn=fn: fn(path))
                               for k, fn in table.items()}) == {}


# ---- permissions ----

@pytest.mark.needs_root
@pytest.mark.parametrize('options', ['', 'allow_other,umask=077', 'allow_other,umask=0777'])
def test_others(mount, sample_carton, options):
    """Whom the mode or the mount keeps out gets EACCES, for each way in."""
    with mount(sample_carton[0], *(['-o', options] if options else [])) as m:
        f, d = f'{m.path}/{FILE}', f'{m.path}/{DIR}'
        calls = {'stat': lambda: os.stat(f), 'open': opens(f, os.O_RDONLY),
                 'opendir': lambda: os.listdir(d), 'chdir': lambda: os.chdir(d),
                 'readlink': lambda: os.readlink(f'{m.path}/{LINK}'),
                 'access': lambda: libc('access', f, os.F_OK),
                 'getxattr': lambda: os.getxattr(f, 'user.carton.sha256'),
                 'execve': lambda: os.execv(f'{m.path}/{SCRIPT}', ['x']),
                 'open O_WRONLY': opens(f, os.O_WRONLY), 'unlink': lambda: os.unlink(f),
                 'mkdir': lambda: os.mkdir(f'{d}/new')}
        assert differences(m, {k: ('EACCES', call) for k, call in calls.items()}, NOBODY) == {}
        assert m.read(FILE) and IS_ROOT


def test_descriptors_used_up(mount, sample_carton):
    """EMFILE is the reader's own, and the mount goes on."""
    path, c = sample_carton
    with mount(path) as m:
        def exhaust():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            fds, got = [], ''
            while not got:
                try:
                    fds.append(os.open(m / FILE, os.O_RDONLY))
                except OSError as e:
                    got = errno.errorcode[e.errno]
            return got, len(fds), os.pread(fds[-1], 1 << 20, 0)
        # a child, so that the limit stays there
        got, n, data = in_child(exhaust)
        assert (got, data) == ('EMFILE', c.files()[FILE]) and n > 20
        assert m.read(FILE) == c.files()[FILE]
