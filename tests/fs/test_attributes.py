# SPDX-License-Identifier: Apache-2.0
"""Modes, owners, extended attributes, statfs, and that nothing can be written."""
import errno
import os
import stat

import pytest

from harness import as_user, mountinfo
from zipwriter import Carton, sample

REG = stat.S_IFREG


def modes(c):
    c.add('model/plain', b'1', mode=REG | 0o644)
    c.add('model/private', b'2', mode=REG | 0o600)
    c.add('model/none', b'3', mode=0)
    c.add('model/writable', b'4', mode=REG | 0o666)
    c.add('model/exec', b'5', mode=REG | 0o755)
    c.add('model/exec_other', b'6', mode=REG | 0o001)
    c.add('model/setuid', b'7', mode=REG | 0o6755)
    c.add('model/setgid', b'8', mode=REG | 0o2644)
    c.add('model/sticky', b'9', mode=REG | 0o1644)
    return c


WANT = {'plain': 0o444, 'private': 0o444, 'none': 0o444, 'writable': 0o444, 'exec': 0o555,
        'exec_other': 0o555, 'setuid': 0o555, 'setgid': 0o444, 'sticky': 0o444}


def attributes(root):
    out = {}
    for where, dirs, files in os.walk(root):
        for name in dirs + files:
            full = os.path.join(where, name)
            out[os.path.relpath(full, root)] = os.lstat(full)
    out['.'] = os.stat(root)
    return out


def test_modes_and_owner(mount, work, who):
    source = modes(sample()).write(work / 'm.carton')
    me = os.geteuid() if who is None else who
    with mount(source, uid=who) as m:
        got = m.do(attributes, m.path)
    for name, mode in WANT.items():
        assert oct(stat.S_IMODE(got['model/' + name].st_mode)) == oct(mode), name
    assert stat.S_IMODE(got['MANIFEST'].st_mode) == 0o444
    for path, st in got.items():
        assert (st.st_uid, st.st_gid) == (me, me if who else os.getegid()), path
        assert st.st_mode & 0o7222 == 0 or not stat.S_ISREG(st.st_mode), path
        if stat.S_ISDIR(st.st_mode):
            assert stat.S_IMODE(st.st_mode) == 0o755, path
            assert st.st_nlink >= 1
        else:
            assert st.st_nlink == 1
    inodes = [st.st_ino for st in got.values()]
    assert len(set(inodes)) == len(inodes) and 0 not in inodes


def test_modes_of_a_directory_source(mount, work):
    root = modes(sample()).unpack(work / 'unpacked')
    with mount(root) as m:
        for name, mode in WANT.items():
            assert stat.S_IMODE(os.stat(m / f'model/{name}').st_mode) == mode, name


def test_executable_runs(mount, sample_carton, who):
    def execute(path):
        return os.popen(path).read()
    with mount(sample_carton[0], uid=who) as m:
        assert m.do(execute, m / 'model/run.sh') == 'hello\n'


def test_uid_gid_umask(mount, sample_carton):
    with mount(sample_carton[0], '-o', 'uid=1234,gid=4321,umask=0027') as m:
        for path, st in attributes(m.path).items():
            assert (st.st_uid, st.st_gid) == (1234, 4321), path
            if not stat.S_ISLNK(st.st_mode):
                assert st.st_mode & 0o027 == 0, path
        assert stat.S_IMODE(os.stat(m / 'model/main.py').st_mode) == 0o440
        assert stat.S_IMODE(os.stat(m / 'model/run.sh').st_mode) == 0o550
        for name, mode in (('', 0o750), ('/status.json', 0o440), ('/metrics', 0o440)):
            st = os.stat(m / f'.cartonfs{name}')
            assert (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid) == (mode, 1234, 4321), name


@pytest.mark.needs_root         # and a second user
def test_allow_other(mount, sample_carton):
    with mount(sample_carton[0]) as m:
        with pytest.raises(PermissionError):
            as_user(65534, os.listdir, m.path)
    with mount(sample_carton[0], '-o', 'allow_other') as m:
        assert as_user(65534, os.listdir, m.path)
    with mount(sample_carton[0], '-o', 'allow_other,umask=077') as m:
        with pytest.raises(PermissionError):
            as_user(65534, os.listdir, m.path)


def test_xattrs(mount, work, who):
    c = Carton()
    for method in ('stored', 'deflate', 'zstd'):
        # three contents: one shared by several entries is one object, stored in one way
        c.add(f'model/{method}', method[:1].encode() * 1000, method=method)
    c.symlink('misc/link', '../model/zstd')
    source = c.write(work / 'm.carton')
    hashes = c.hashes()

    def look(path):
        assert os.listxattr(path) == []         # cp -a and rsync -X carry nothing to a copy
        return {n: os.getxattr(path, f'user.carton.{n}').decode() for n in ('sha256', 'state', 'storage')}

    def absent(path, name):
        try:
            os.getxattr(path, name)
        except OSError as e:
            return errno.errorcode[e.errno]
    with mount(source, uid=who) as m:
        for method in ('stored', 'deflate', 'zstd'):
            got = m.do(look, m / f'model/{method}')
            assert got['sha256'] == hashes[f'model/{method}']
            assert got['state'] == 'unverified'
            assert got['storage'].startswith(method)
            if method == 'stored':
                assert '1000' in got['storage']
            m.read(f'model/{method}')
            assert m.state(f'model/{method}') == 'verified'
        assert m.do(absent, m / 'model/zstd', 'user.carton.nothing') == 'ENODATA'
        assert m.do(absent, m / 'model/zstd', 'security.capability') in ('ENODATA', 'EOPNOTSUPP', 'ENOTSUP')
        assert m.do(os.listxattr, m / 'model') == []
        assert m.do(absent, m / 'model', 'user.carton.sha256') == 'ENODATA'


def test_xattr_size_protocol(mount, sample_carton):
    """A size of 0 asks for the length, one too small is ERANGE."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    with mount(sample_carton[0]) as m:
        path = os.fsencode(m / 'model/main.py')
        assert libc.getxattr(path, b'user.carton.sha256', None, 0) == 64
        buf = ctypes.create_string_buffer(64)
        assert libc.getxattr(path, b'user.carton.sha256', buf, 63) == -1
        assert ctypes.get_errno() == errno.ERANGE
        assert libc.getxattr(path, b'user.carton.sha256', buf, 64) == 64
        assert libc.listxattr(path, None, 0) == 0


@pytest.mark.parametrize('method', ['stored', 'deflate', 'zstd'])
def test_state_of_a_corrupt_file(mount_fg, work, method):
    c = sample(method).add('model/bad', bytes(range(200)) * 10, sha='0' * 64)
    with mount_fg(c.write(work / 'm.carton')) as m:
        assert m.state('model/bad') == 'unverified'
        assert m.error('model/bad') == 'EIO'
        assert m.state('model/bad') == 'corrupt'
        assert m.error('model/bad') == 'EIO'            # and it stays
        assert m.read('model/main.py') == c.files()['model/main.py']
        log = [ln for ln in m.log().splitlines() if 'model/bad' in ln]
        assert len(log) == 1 and '0' * 64 in log[0], m.log()     # once, with what was expected
        assert c.hashes()['model/bad'] == '0' * 64


def write_operations(root):
    f, d, new = f'{root}/model/main.py', f'{root}/model', f'{root}/model/new'
    return {
        'open write': lambda: os.open(f, os.O_WRONLY),
        'open read-write': lambda: os.open(f, os.O_RDWR),
        'open truncate': lambda: os.open(f, os.O_WRONLY | os.O_TRUNC),
        'append': lambda: os.open(f, os.O_WRONLY | os.O_APPEND),
        'create': lambda: os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL),
        'tmpfile': lambda: os.open(d, os.O_WRONLY | os.O_TMPFILE),
        'mkdir': lambda: os.mkdir(new),
        'mknod': lambda: os.mknod(new),
        'fifo': lambda: os.mkfifo(new),
        'unlink': lambda: os.unlink(f),
        'rmdir': lambda: os.rmdir(d),
        'rename': lambda: os.rename(f, new),
        'link': lambda: os.link(f, new),
        'symlink': lambda: os.symlink('x', new),
        'chmod': lambda: os.chmod(f, 0o777),
        'chown': lambda: os.chown(f, os.getuid(), os.getgid()),
        'utime': lambda: os.utime(f),
        'truncate': lambda: os.truncate(f, 0),
        'setxattr': lambda: os.setxattr(f, 'user.x', b'1'),
        'setxattr ours': lambda: os.setxattr(f, 'user.carton.state', b'verified'),
        'removexattr': lambda: os.removexattr(f, 'user.carton.state'),
        'access': lambda: None if os.access(f, os.W_OK) else raise_rofs(),
    }


def raise_rofs():
    raise OSError(errno.EROFS, 'read-only')


def attempt(root):
    out = {}
    for name, op in write_operations(root).items():
        try:
            op()
            out[name] = 'done'
        except OSError as e:
            out[name] = errno.errorcode[e.errno]
    return out


def test_writes_are_refused(mount, sample_carton, who):
    with mount(sample_carton[0], uid=who) as m:
        got = m.do(attempt, m.path)
        # The kernel asks for O_TMPFILE support before it looks at the mount's flags.
        assert got.pop('tmpfile') in ('EROFS', 'EOPNOTSUPP')
        assert got == dict.fromkeys(got, 'EROFS')
        assert m.read('model/main.py') == sample_carton[1].files()['model/main.py']


def test_statfs_and_mount_flags(mount, sample_carton, who):
    path, c = sample_carton
    with mount(path, uid=who) as m:
        s = m.do(lambda p: tuple(os.statvfs(p)), m.path)
        bsize, frsize, blocks, bfree, bavail, files, ffree, favail, flag, namemax = s[:10]
        assert blocks * frsize >= sum(len(d) for p, d in c.files().items() if p not in c.links())
        assert (bfree, bavail, ffree, favail, namemax) == (0, 0, 0, 0, 255)
        assert files >= len(c.files())
        info = mountinfo(m.path)
        options = info[5].split(',')
        assert {'ro', 'nosuid', 'nodev'} <= set(options), info
        assert info[info.index('-') + 1].startswith('fuse'), info
        assert str(path) in info[info.index('-') + 2] or 'carton' in info[info.index('-') + 2]


def test_access(mount, sample_carton, who):
    def ask(root):
        return [os.access(f'{root}/model/{n}', mode)
                for n in ('main.py', 'run.sh') for mode in (os.R_OK, os.W_OK, os.X_OK)]
    with mount(sample_carton[0], uid=who) as m:
        assert m.do(ask, m.path) == [True, False, False, True, False, True]


def test_missing_names(mount, sample_carton, who):
    def ask(root):
        out = []
        for name in ('nothing', 'model/nothing', 'model/main.py/x', 'model/' + 'n' * 256):
            try:
                os.stat(os.path.join(root, name))
            except OSError as e:
                out.append(errno.errorcode[e.errno])
        return out
    with mount(sample_carton[0], uid=who) as m:
        got = m.do(ask, m.path)
        assert got[:3] == ['ENOENT', 'ENOENT', 'ENOTDIR'] and got[3] in ('ENAMETOOLONG', 'ENOENT')
