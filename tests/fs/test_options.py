# SPDX-License-Identifier: Apache-2.0
"""The command line: exit codes, options, mount(8) and fstab, cache_dir, mountpoints, paths."""
import contextlib
import ctypes
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
from pathlib import Path

import pytest

import harness
from harness import (CARTONCTL, CARTONFS, EXIT_S, IS_ROOT, NOBODY, SLOW, environment, eventually, expected, mountinfo, run,
                     scan)
from zipwriter import Carton, sample

needs_root = pytest.mark.needs_root     # mount(8) does
LARGE = 40 << 20


def fails(code, *args, says='', **kw):
    p = run(CARTONFS, *args, **kw)
    assert p.returncode == code, f'exit {p.returncode}: {p.stderr}'
    assert re.search(says, p.stderr, re.I), p.stderr
    return p


# ---- usage and exit codes ----


@pytest.mark.parametrize('args', [(), ('SOURCE',), ('SOURCE', 'MNT', 'three'), ('-o',), ('', 'MNT'), ('SOURCE', ''),
                                  ('--bogus', 'SOURCE', 'MNT'), ('-Z', 'SOURCE', 'MNT')])
def test_usage(sample_carton, point, args):
    words = {'SOURCE': sample_carton[0], 'MNT': point()}
    p = fails(1, *[words.get(a, a) for a in args])
    assert p.stderr and p.stdout == ''
    assert mountinfo(words['MNT']) is None


def test_help_and_version():
    p = run(CARTONFS, '--help')
    assert p.returncode == 0
    for word in ('SOURCE', 'MOUNTPOINT', 'verify=', 'manifest_sha256=', 'cache_dir=', 'umask='):
        assert word in p.stdout, word
    lines = p.stdout.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert run(CARTONFS, '-h').stdout == p.stdout
    for flag in ('--version', '-V'):
        p = run(CARTONFS, flag)
        assert p.returncode == 0 and re.search(r'cartonfs.* \d', p.stdout)


@pytest.mark.parametrize('option', ['verify=sometimes', 'verify=', 'nosuchoption', 'uid=-1x',
                                    'umask=9', 'manifest_sha256=abc', 'manifest_sha256=' + 'g' * 64,
                                    'cache_dir=', 'timeout', 'timeout=0', 'connections=33',
                                    'cache_size=0', 'offline=1', 'noviews=1', 'max_read=x'])
def test_bad_option(sample_carton, point, option):
    where = point()
    fails(1, '-o', option, sample_carton[0], where, says=re.escape(option.split('=')[0]))
    assert mountinfo(where) is None


@pytest.mark.parametrize('typed, meant', [('verfy=mount', 'verify'), ('cachedir=/x', 'cache_dir'),
                                          ('privatelinks', 'private_links'), ('alow_other', 'allow_other'),
                                          ('nosuchoption', None)])
def test_unknown_option(work, point, typed, meant):
    """It is reported before the carton is opened: there is none."""
    p = fails(1, '-o', typed, work / 'none.carton', point())
    assert p.stderr == (f'cartonfs: unknown option: -o {typed}; ' +
                        (f'did you mean {meant}?\n' if meant else 'cartonfs(1) lists them\n'))


def test_mount_option_with_dashes(sample_carton, point):
    """It is said how it is written; what follows it is not shown, since it may be a URL with a password."""
    p = fails(1, '--mirror=https://u:secret@h/', sample_carton[0], point())
    assert p.stderr.splitlines()[0] == 'cartonfs: unknown option: --mirror; write -o mirror'
    assert 'secret' not in p.stderr
    p = fails(1, '--mirrr=https://u:secret@h/', sample_carton[0], point())
    assert p.stderr.splitlines()[0] == 'cartonfs: unknown option: --mirrr; did you mean -o mirror?'
    assert 'secret' not in p.stderr
    p = fails(1, '--verson', sample_carton[0], point())
    assert p.stderr.splitlines()[0] == 'cartonfs: unknown option: --verson; did you mean --version?'
    p = fails(1, '--bogus=1', sample_carton[0], point())
    assert p.stderr.splitlines()[0] == 'cartonfs: unknown option: --bogus'


@needs_root
def test_no_fuse_device(sample_carton, point):
    """As in a container that was not given it: one line, which says so."""
    where = point()
    script = 'mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec "$@"'
    p = run('unshare', '-m', 'sh', '-ec', script, 'sh', CARTONFS, sample_carton[0], where)
    assert p.returncode == 32 and mountinfo(where) is None
    assert p.stderr == ('cartonfs: /dev/fuse: is missing; run modprobe fuse as root, or start the container with '
                        '--device /dev/fuse\n')


@needs_root
def test_fuse_device_of_root_alone(sample_carton, point):
    """As where no udev has set its mode."""
    where = point(uid=NOBODY)
    script = 'mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 600 /dev/fuse c 10 229 && exec "$@"'
    p = run('unshare', '-m', 'sh', '-ec', script, 'sh', 'setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}',
            '--clear-groups', CARTONFS, sample_carton[0], where)
    assert p.returncode == 32 and mountinfo(where) is None
    assert p.stderr == ('cartonfs: /dev/fuse: is not for you to use; its mode should be 666: run chmod 666 /dev/fuse '
                        'as root\n')


@needs_root
def test_no_fusermount(sample_carton, point):
    """It mounts for users: without it, one line says so."""
    where, program = point(harness.NOBODY), shutil.which('fusermount3')
    script = 'mount --bind /dev/null "$1" && shift && exec "$@"'
    user = ['setpriv', f'--reuid={harness.NOBODY}', f'--regid={harness.NOBODY}', '--clear-groups']
    p = run('unshare', '-m', 'sh', '-ec', script, 'sh', program, *user, CARTONFS, sample_carton[0], where)
    assert p.returncode == 32 and mountinfo(where) is None
    assert p.stderr == ('cartonfs: fusermount3: is missing, which mounts for users: install the package fuse3, or mount '
                        'as root\n')


def test_missing_source(work, point):
    fails(32, work / 'none.carton', point(), says='none.carton.*no such file')


def test_refused_source_is_named(work, point):
    (work / 'junk').write_text('no zip')
    p = fails(32, work / 'junk', point())
    assert [line.startswith(f'cartonfs: {work}/junk: ') for line in p.stderr.splitlines()] == [True], p.stderr


def test_unreadable_source(sample_carton, work, point):
    path = shutil.copy(sample_carton[0], work / 'private.carton')
    os.chmod(path, 0)
    if IS_ROOT:
        uid = harness.NOBODY
        fails(32, path, point(uid), says='private.carton.*permission', uid=uid)
    else:
        fails(32, path, point(), says='private.carton.*permission')


@pytest.mark.parametrize('kind', ['/dev/null', 'fifo'])
def test_source_of_another_kind(work, point, kind):
    if kind == 'fifo':
        kind = work / 'fifo'
        os.mkfifo(kind)
    fails(32, kind, point(), timeout=10)


@pytest.mark.parametrize('kind', ['missing', 'file', 'not mine'])
def test_bad_mountpoint(sample_carton, work, kind):
    where, kw = work / 'where', {}
    if kind == 'file':
        where.write_text('x')
    if kind == 'not mine' and IS_ROOT:
        where.mkdir(mode=0o755)
        kw = dict(uid=harness.NOBODY)
    elif kind == 'not mine':
        where = Path('/mnt')            # root's, and empty
    p = fails(32, sample_carton[0], where, says=re.escape(str(where)), **kw)
    assert len(p.stderr.splitlines()) <= 3 and mountinfo(where) is None


def test_mountpoint_not_empty(sample_carton, work):
    """As every FUSE 3 file system: it may be mounted over; what is below comes back."""
    where, (path, c) = work / 'where', sample_carton
    where.mkdir()
    (where / 'below').write_text('x')
    p = run(CARTONFS, path, where)
    assert p.returncode == 0
    pids = harness.daemons(where)
    assert scan(where) == expected(c.files(), c.links())
    assert harness.unmount(where).returncode == 0
    assert [harness.wait_exit(pid) for pid in pids] == [0]
    assert (where / 'below').read_text() == 'x'


def test_mounted_twice(sample_carton, work):
    """Allowed, as for every file system; but it is most often a mistake, so it is said."""
    where, (path, _) = work / 'where', sample_carton
    where.mkdir()
    said = []
    try:
        for _ in range(2):
            p = run(CARTONFS, path, where)
            assert p.returncode == 0
            said.append(p.stderr)
        status = json.loads((where / '.cartonfs/status.json').read_text())
        assert (status['errors'], status['last_errors']) == (0, []), 'nothing is wrong with it'
        assert said[0] == '' and re.fullmatch(f'cartonfs: warning: {where}: a carton is mounted there already.*\n', said[1])
    finally:
        while mountinfo(where):
            assert harness.unmount(where).returncode == 0
    assert len(said) == 2


def test_mounted_twice_by_a_user(sample_carton, point, mount):
    """fusermount3, which is setuid root, may not look at the mount of a user: it would say Permission denied."""
    uid = NOBODY if IS_ROOT else None
    with mount(sample_carton[0], uid=uid) as m:
        p = run(CARTONFS, sample_carton[0], m.path, uid=uid)
        assert p.returncode == 32 and p.stderr == \
            f'cartonfs: {m.path}: a carton is mounted there already; first unmount it with cartonctl stop {m.path}\n'


@pytest.mark.skipif(not IS_ROOT, reason='hides a program of the system')
def test_fusermount3_without_setuid(sample_carton, work):
    """What libfuse says of that, "Operation not permitted", does not tell a user what is wrong."""
    helper = shutil.which('fusermount3')
    shutil.copy(sample_carton[0], work / 'm.carton')
    for path in (work, work / 'm.carton'):
        os.chown(path, NOBODY, NOBODY)
    lack = 'cp "$1" copy; chmod 755 copy; mount --bind copy "$1"'
    script = f'{lack}; shift; export HOME=.; mkdir mnt; chown {NOBODY} mnt; exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups "$@"'
    p = run('unshare', '--mount', 'sh', '-ec', script, 'sh', helper, CARTONFS, 'm.carton', 'mnt', cwd=work)
    assert p.returncode == 32 and p.stderr.splitlines()[-1] == (
        f'cartonfs: {helper}: is not setuid root, so it cannot mount for users other than root'), p.stderr
    assert mountinfo(work / 'mnt') is None


@pytest.mark.skipif(not IS_ROOT, reason='hides a program of the system')
def test_a_user_who_may_mount(sample_carton, work):
    """As in a container that gives the capability: libfuse needs no fusermount3 then."""
    shutil.copy(sample_carton[0], work / 'm.carton')
    for path in (work, work / 'm.carton'):
        os.chown(path, NOBODY, NOBODY)
    user = f'setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups --inh-caps=+sys_admin --ambient-caps=+sys_admin'
    script = (f'mount --bind /dev/null "$1"; export HOME=$PWD XDG_STATE_HOME=$PWD/state; {user} mkdir top; {user} "$2" m.carton top; '
              f'{user} cat top/carton.toml; umount top')
    p = run('unshare', '--mount', 'sh', '-ec', script, 'sh', shutil.which('fusermount3'), CARTONFS, cwd=work)
    assert p.returncode == 0 and p.stderr == '' and 'spec_version' in p.stdout, p.stderr


def test_relative_paths(sample_carton, work, point):
    """Source, mountpoint and cache_dir count from where the command runs, not from /."""
    shutil.copy(sample_carton[0], work / 'm.carton')
    (work / 'mnt').mkdir()
    (work / 'cache').mkdir()
    options = ('-o', 'cache_dir=cache')
    with harness.mounted('m.carton', work / 'mnt', *options, cwd=work, name='mnt') as m:
        assert scan(m.path) == expected(sample_carton[1].files(), sample_carton[1].links())


def test_odd_paths(sample_carton, work):
    for name in ('with space', 'with,comma', 'ünï🥳', 'back\\slash', '-o'):
        (work / name).mkdir()
        source = shutil.copy(sample_carton[0], work / name / 'm, a=b.carton')
        (work / name / 'mnt').mkdir()
        where = work / name / 'mnt'
        p = run(CARTONFS, source, where)
        assert p.returncode == 0, (name, p.stderr)
        pids = harness.daemons(where)
        try:
            assert (where / 'misc/empty').read_bytes() == b''
        finally:
            assert harness.unmount(where).returncode == 0
        assert [harness.wait_exit(pid) for pid in pids] == [0]


def test_two_mounts_of_one_carton(sample_carton, mount):
    path, c = sample_carton
    with mount(path) as a:
        with mount(path) as b:
            assert scan(a.path) == scan(b.path) == expected(c.files(), c.links())
        assert scan(a.path) == expected(c.files(), c.links())


def test_source_inside_another_mount(sample_carton, mount, work):
    """A carton that lies in a carton."""
    outer = Carton().add('model/inner.carton', sample_carton[0].read_bytes(), method='stored')
    with mount(outer.write(work / 'outer.carton')) as a:
        with mount(a / 'model/inner.carton') as b:
            assert scan(b.path) == expected(sample_carton[1].files(), sample_carton[1].links())


# ---- verify=, manifest_sha256= ----


def damaged(method='stored'):
    c = sample(method)
    return c.change('model/weights.bin', sha='3' * 64)


@pytest.mark.parametrize('method', ['stored', 'deflate', 'zstd'])
def test_verify_mount(mount, point, work, method):
    good = sample(method)
    with mount(good.write(work / 'good.carton'), '-o', 'verify=mount') as m:
        for path in good.hashes():
            if path not in good.links():
                assert m.state(path) == 'verified', path
        assert scan(m.path) == expected(good.files(), good.links())
    where = point()
    fails(32, '-o', 'verify=mount', damaged(method).write(work / 'bad.carton'), where,
          says='model/weights.bin')
    assert mountinfo(where) is None


def test_verify_auto_is_the_default(mount, work):
    """As verify=open where there is no index of chunks."""
    source = damaged().write(work / 'm.carton')
    for options in ((), ('-o', 'verify=auto'), ('-o', 'verify=open')):
        with mount(source, *options) as m:
            assert m.error('model/weights.bin') == 'EIO' and m.error('model/main.py') == ''


@pytest.mark.parametrize('method', ['stored', 'deflate', 'zstd'])
def test_verify_off(mount, work, method):
    c = damaged(method)
    with mount(c.write(work / 'm.carton'), '-o', 'verify=off') as m:
        assert re.search('verify=off|not verified|unverified|without', m.stderr, re.I), m.stderr
        assert m.read('model/weights.bin') == c.files()['model/weights.bin']
        assert m.state('model/weights.bin') != 'verified'


def test_manifest_sha256(mount, point, sample_carton):
    path, c = sample_carton
    with mount(path, '-o', 'manifest_sha256=' + c.model_hash()) as m:
        assert scan(m.path) == expected(c.files(), c.links())
    p = fails(32, '-o', 'manifest_sha256=' + '4' * 64, path, point())
    assert p.stderr.splitlines() == [f'cartonfs: {path}: not mounted: not the model of manifest_sha256: '
                                     f'its hash is {c.model_hash()}, not {"4" * 16}...']


def test_manifest_sha256_pins_a_directory(mount, point, work):
    c = sample()
    root = c.unpack(work / 'dir')
    with mount(root, '-o', 'manifest_sha256=' + c.model_hash()) as m:
        assert m.error('model/main.py') == ''
    with open(root / 'MANIFEST', 'rb+') as f:
        f.truncate(len(c.manifest_bytes()) - 1)
    fails(32, '-o', 'manifest_sha256=' + c.model_hash(), root, point(), says='MANIFEST|sha256')


# ---- cache_dir ----


@contextlib.contextmanager
def tmpfs(where, size):
    where.mkdir()
    run('mount', '-t', 'tmpfs', '-o', f'size={size},mode=0700', 'tmpfs', where).check_returncode()
    try:
        yield where
    finally:
        run('umount', where).check_returncode()


@needs_root
@pytest.mark.parametrize('method', ['deflate', 'zstd'])
def test_disk_full(mount, work, method):
    c = sample().add('model/large', bytes(range(250)) * (LARGE // 250), method=method, level=1)
    source = c.write(work / 'm.carton')
    want = c.files()
    with tmpfs(work / 'cache', '60m') as cache:
        (cache / 'filler').write_bytes(bytes(50 << 20))
        with mount(source, '-o', f'cache_dir={cache}', env=dict(TMPDIR=str(cache))) as m:
            assert m.error('model/large') == 'ENOSPC'
            assert m.read('model/main.py') == want['model/main.py']
            assert m.state('model/large') == 'unverified'
            assert m.error('model/large') == 'ENOSPC'
            (cache / 'filler').unlink()
            assert m.read('model/large') == want['model/large']
            assert m.state('model/large') == 'verified'


@needs_root
def test_cache_dir_is_used(mount, work):
    """Decoded bytes lie there and nowhere else, although they are more than a tenth of it."""
    c = Carton().add('model/large', bytes(range(250)) * (LARGE // 250), method='zstd')
    source = c.write(work / 'm.carton')

    def used():
        s = os.statvfs(work / 'cache')
        return (s.f_blocks - s.f_bfree) * s.f_frsize
    with tmpfs(work / 'cache', '100m') as cache:
        with mount(source, '-o', f'cache_dir={cache}') as m:
            assert m.error('model/large') == ''
            assert used() >= LARGE
        with mount(source, '-o', f'cache_dir={cache}') as m:
            assert m.read('model/large') == c.files()['model/large']


@pytest.mark.parametrize('kind', ['missing', 'file'])
def test_bad_cache_dir(sample_carton, point, work, kind):
    where = work / 'cache'
    if kind == 'file':
        where.write_text('x')
    p = run(CARTONFS, '-o', f'cache_dir={where}', sample_carton[0], mnt := point())
    if kind == 'missing':               # it is made
        assert p.returncode == 0
        pids = harness.daemons(mnt)
        assert harness.unmount(mnt).returncode == 0
        assert [harness.wait_exit(pid) for pid in pids] == [0]
        return
    assert p.returncode == 32 and str(where) in p.stderr, p.stderr


# ---- usual mount options, mount(8), fstab ----


def test_end_of_options(sample_carton, point):
    """Behind -- the options that are always set would be none; with an option for libfuse it stays at the end."""
    where = point()
    assert run(CARTONFS, '-o', 'noexec', sample_carton[0], where, '--').returncode == 0
    pids = harness.daemons(where)
    assert {'ro', 'nosuid', 'nodev', 'noexec'} <= set(mountinfo(where)[5].split(','))
    assert harness.unmount(where).returncode == 0
    assert [harness.wait_exit(pid) for pid in pids] == [0]


@pytest.mark.parametrize('options', ['ro', 'noatime', 'nodev,nosuid', 'noexec', 'fsname=other',
                                     'subtype=x', 'max_read=131072', 'default_permissions'])
def test_usual_options(mount, sample_carton, who, options):
    path, c = sample_carton
    with mount(path, '-o', options, uid=who) as m:
        assert m.do(scan, m.path) == expected(c.files(), c.links())
        have = mountinfo(m.path)[5].split(',')
        assert 'ro' in have
        if options == 'noexec':
            assert 'noexec' in have


@pytest.mark.parametrize('form', ['-o {}', '-o{}', '-o ro,{},noatime', '-o {} -o noatime'])
@pytest.mark.parametrize('value', ['a,b', 'a', ',', 'a=b,c='])
def test_values_in_quotes(sample_carton, point, form, value):
    """As mount(8) and fstab have them: a comma between quotes is a part of the value."""
    where = point()
    words = form.format(f'fsname="{value}"').split()
    assert run(CARTONFS, *words, sample_carton[0], where).returncode == 0
    info = mountinfo(where)
    assert info[info.index('-') + 2] == value, info
    assert harness.unmount(where).returncode == 0


def test_quotes_that_are_none(sample_carton, point, work):
    """One that ends no value, one within a value, a comma that has a backslash anyway, and what is no option."""
    where = point()
    for option, name in ('fsname="a', '"a'), ('fsname=a"b"', 'a"b"'), ('fsname="a"b', '"a"b'), ('fsname="a\\,b"', 'a,b'):
        assert run(CARTONFS, '-o', option, sample_carton[0], where).returncode == 0, option
        info = mountinfo(where)
        assert info[info.index('-') + 2] == name, option
        assert harness.unmount(where).returncode == 0
    assert run(CARTONFS, '-o', 'fsname="a,b', sample_carton[0], where).returncode == 1
    source = shutil.copy(sample_carton[0], work / '-ox="a,b"')
    assert run(CARTONFS, '--', source.name, where, cwd=work).returncode == 0
    assert harness.unmount(where).returncode == 0


@needs_root
@pytest.mark.parametrize('form', ['-o ro,{},noatime', '-o{},noatime'])
def test_context_of_selinux(sample_carton, point, work, form):
    """Its categories have commas, and the kernel reads the quotes: they get there."""
    library, context = work / 'mountdata.so', 'context="system_u:object_r:container_file_t:s0:c1,c2"'
    assert run('cc', '-shared', '-fPIC', '-o', library, harness.PRELOAD / 'mountdata.c').returncode == 0
    where = point()
    p = run(CARTONFS, *form.format(context).split(), sample_carton[0], where,
            env={'LD_PRELOAD': library, 'MOUNT_DATA': work / 'data'})
    assert context in (work / 'data').read_text(), p.stderr
    if p.returncode == 0:       # with SELinux
        assert harness.unmount(where).returncode == 0


def test_rw_is_refused(sample_carton, point, work):
    """A mount is never writable: who asks for that is told. mount(8) says it always, and is not asked."""
    where = point()
    p = run(CARTONFS, '-o', 'rw', sample_carton[0], where)
    assert p.returncode == 1 and p.stderr.startswith('cartonfs: -o rw: a carton is never writable'), p.stderr
    assert not mountinfo(where)
    assert run(helper(work), sample_carton[0], where, '-o', 'rw').returncode == 0
    with pytest.raises(OSError):
        open(f'{where}/new', 'w')
    assert harness.unmount(where).returncode == 0


def test_what_is_covered_is_told_once_it_is_mounted(sample_carton, work):
    where = work / 'where'
    where.mkdir()
    (where / 'file').touch()
    p = run(CARTONFS, work / 'none.carton', where)
    assert p.returncode == 32 and 'covers' not in p.stderr, p.stderr
    p = run(CARTONFS, sample_carton[0], where)
    assert p.returncode == 0 and f'{where}: is not empty: the carton covers its files' in p.stderr
    p = run(CARTONFS, work / 'none.carton', where)
    assert p.returncode == 32 and 'covers' not in p.stderr, p.stderr
    assert harness.unmount(where).returncode == 0


TYPES = pytest.mark.parametrize('kind', ['cartonfs', 'fuse.cartonfs'])


@needs_root
@TYPES
def test_mount_8(installed, sample_carton, point, kind):
    path, c = sample_carton
    where = point()
    p = run('mount', '-t', kind, '-o', 'uid=1000,verify=mount', path, where)
    assert p.returncode == 0, p.stderr
    try:
        info = mountinfo(where)
        assert info[info.index('-') + 1] == 'fuse.cartonfs'
        assert scan(where) == expected(c.files(), c.links())
        assert os.stat(f'{where}/MANIFEST').st_uid == 1000
    finally:
        assert harness.unmount(where).returncode == 0
    bad = run('mount', '-t', kind, '/nonexistent/x.carton', where)
    assert bad.returncode == 32 and '/nonexistent/x.carton' in bad.stderr
    harness.eventually('every daemon ended', lambda: not harness.daemons(where))


@needs_root
@TYPES
def test_fstab(installed, sample_carton, point, work, kind):
    path, c = sample_carton
    where = point()
    table = work / 'fstab'
    table.write_text(f'{path} {where} {kind} noauto,nofail,x-systemd.automount,ro,noatime,'
                     f'x-systemd.idle-timeout=60,X-mount.mkdir,defaults,rw,suid,dev,norelatime,nostrictatime,lazytime,comment=its,'
                     f'allow_other,_netdev,umask=0022,verify=open 0 0\n')
    p = run('mount', '-T', table, where)
    assert p.returncode == 0, p.stderr
    try:
        assert scan(where) == expected(c.files(), c.links())
        assert harness.as_user(harness.NOBODY, os.listdir, where)
    finally:
        assert harness.unmount(where).returncode == 0
    harness.eventually('the daemon ended', lambda: not harness.daemons(where))


@needs_root
def test_mount_all(installed, sample_carton, point, work):
    """mount -a mounts once; findmnt and umount find it by either name; -n, -s and -v change nothing."""
    path, c = sample_carton
    where = point()
    table = work / 'fstab'
    table.write_text(f'{path} {where} cartonfs nofail,_netdev 0 0\n')
    for _ in range(2):
        p = run('mount', '-n', '-s', '-v', '-a', '-T', table)
        assert p.returncode == 0, p.stderr
    shown = run('findmnt', '-n', '-o', 'SOURCE,TARGET,FSTYPE', path).stdout.split()
    assert shown == [str(path), str(where), 'fuse.cartonfs']
    assert scan(where) == expected(c.files(), c.links())
    assert harness.when_unused(where, run, 'umount', path).returncode == 0
    assert mountinfo(where) is None
    harness.eventually('the daemon ended', lambda: not harness.daemons(where))


@needs_root
def test_user_mounts_by_fstab(installed, sample_carton, point, work):
    """An ordinary user mounts what fstab has with `user`, by the setuid mount(8), and unmounts it."""
    path, c = sample_carton
    where = point()
    work.chmod(0o755)
    os.chmod(path, 0o644)
    os.chown(where, harness.NOBODY, harness.NOBODY)
    cache = work / 'cache'
    cache.mkdir(mode=0o700)
    os.chown(cache, harness.NOBODY, harness.NOBODY)
    table = work / 'fstab'
    table.write_text(f'{path} {where} cartonfs user,noauto,cache_dir={cache} 0 0\n')
    # the daemons of other tests would outlive their umount as long as this namespace has copies of their mounts
    lines = 'umount -a -l -t fuse.cartonfs; mount --bind "$1" /etc/fstab && shift && ' \
            f'exec setpriv --reuid={harness.NOBODY} --regid={harness.NOBODY} --clear-groups sh -ec "$@"'
    p = run('unshare', '--mount', 'sh', '-ec', lines, 'sh', table,
            'mount "$0"; findmnt -n -o OPTIONS "$0"; cat "$0/carton.toml"; umount "$0"', where,
            cwd='/')
    assert p.returncode == 0, p.stderr
    options, _, text = p.stdout.partition('\n')
    assert {'ro', 'nosuid', 'nodev', 'noexec', f'user_id={harness.NOBODY}'} <= set(options.split(','))
    assert text == c.entries['carton.toml'].data.decode()
    assert mountinfo(where) is None
    harness.eventually('the daemon ended', lambda: not harness.daemons(where))


def helper(work):
    """cartonfs, as mount(8) calls it."""
    link = work / 'mount.cartonfs'
    link.symlink_to(CARTONFS)
    return link


def test_helper_arguments(sample_carton, point, work):
    """-f is mount's fake and not the foreground; the others change nothing, whatever their order."""
    path, c = sample_carton
    where = point()
    assert run(helper(work), path, where, '-f', '-n', '-o', 'rw').returncode == 0
    assert mountinfo(where) is None
    p = run(work / 'mount.cartonfs', path, where, '-s', '-n', '-v', '-t', 'cartonfs', '-o',
            'rw,exec,async,atime,diratime,symfollow,user=me,_netdev,x-gvfs-show,noauto')
    assert p.returncode == 0, p.stderr
    assert scan(where) == expected(c.files(), c.links())
    assert harness.unmount(where).returncode == 0
    harness.eventually('the daemon ended', lambda: not harness.daemons(where))
    for args in (['-x'], ['-o', 'verfy=mount']):
        assert run(work / 'mount.cartonfs', path, where, *args).returncode == 1
    assert run(CARTONFS, '-n', path, where).returncode == 1


def test_remount_is_refused(sample_carton, point):
    p = run(CARTONFS, '-o', 'remount,noexec', sample_carton[0], point())
    assert p.returncode == 1 and 'unmount it' in p.stderr


@pytest.mark.parametrize('option, mode', [('mkdir', 0o755), ('mkdir=0700', 0o700),
                                          ('X-mount.mkdir=0750', 0o750), ('x-mount.mkdir', 0o755)])
def test_mkdir(sample_carton, work, option, mode):
    """Relative, with missing parents; it stays after the unmount, and is no error if it is there."""
    path, c = sample_carton
    where = work / 'made/by//cartonfs/'
    for _ in range(2):
        p = run(CARTONFS, '-o', option, path, 'made/by//cartonfs/', cwd=work)
        assert p.returncode == 0, p.stderr
        assert scan(where) == expected(c.files(), c.links())
        status = json.loads((where / '.cartonfs/status.json').read_text())
        assert status['mountpoint'] == str(work / 'made/by/cartonfs')
        assert harness.unmount(work / 'made/by/cartonfs').returncode == 0
        harness.eventually('the daemon ended', lambda: not harness.daemons(work / 'made/by/cartonfs'))
    assert where.stat().st_mode & 0o777 == mode


def test_mkdir_failures(sample_carton, work):
    path, _ = sample_carton
    (work / 'file').touch()
    for where in (work / 'file', work / 'file/below', '/proc/none'):
        p = run(CARTONFS, '-o', 'mkdir', path, where)
        assert p.returncode == 32 and len(p.stderr.splitlines()) == 1, p.stderr
    p = run(CARTONFS, '-o', 'mkdir=0999', path, work / 'new')
    assert p.returncode == 1 and 'octal' in p.stderr
    p = run(CARTONFS, '-o', 'mkdir,verify=x', path, work / 'new')
    assert p.returncode == 1 and not (work / 'new').exists()
    p = run(CARTONFS, '-o', f'error_file={work}/errors', path, work / 'new')
    assert p.returncode == 32 and not (work / 'new').exists()
    assert 'new: no such directory; create it' in (work / 'errors').read_text()
    assert 'exit status 32' in (work / 'errors').read_text()


@pytest.mark.needs_root
def test_mount_in_another_namespace(installed, sample_carton, point):
    """mount -N is refused, with what does it; nothing is mounted here."""
    where = point()
    p = run('mount', '-N', '/proc/self/ns/mnt', '-t', 'cartonfs', sample_carton[0], where)
    assert p.returncode != 0 and 'nsenter --mount=NAMESPACE mount -t cartonfs SOURCE MOUNTPOINT' in p.stderr, p.stderr
    assert mountinfo(where) is None
    p = run('nsenter', '--mount=/proc/self/ns/mnt', 'mount', '-t', 'cartonfs', sample_carton[0], where)
    assert p.returncode == 0 and mountinfo(where)
    assert run(CARTONCTL, 'stop', where).returncode == 0


@pytest.mark.parametrize('word', ['-h', '--help', '-V', '--version', '--x-words'])
def test_output_that_cannot_be_written(word):
    with open('/dev/full', 'wb') as full:
        p = subprocess.run([CARTONFS, word], stdout=full, stderr=subprocess.PIPE, text=True, env=environment())
    assert (p.returncode, p.stderr) == (2, 'cartonfs: cannot write: No space left on device\n')


@pytest.mark.parametrize('word', ['-h', '-V', '--x-words'])
@pytest.mark.parametrize('program, status', [(CARTONFS, 2), (CARTONCTL, 1)])
def test_output_that_is_closed(program, status, word):
    p = run('sh', '-c', 'exec "$0" "$1" >&-', program, word)
    assert p.returncode == status
    assert p.stderr == f'{os.path.basename(program)}: cannot write: Bad file descriptor\n'


def test_daemon_lets_go(sample_carton, mount, work):
    """A daemon holds no terminal and no working directory of its caller."""
    with mount(sample_carton[0], cwd=work) as m:
        pid = m.pids[0]
        assert os.readlink(f'/proc/{pid}/cwd') == '/'
        for n in (0, 1, 2):
            assert os.readlink(f'/proc/{pid}/fd/{n}') == '/dev/null'
        assert os.getsid(pid) != os.getsid(0)


@pytest.mark.parametrize('foreground', [False, True])
def test_inherited_descriptors(sample_carton, point, work, who, foreground):
    """The lock that its caller has is free once that is gone, and a pipe has an end. What is named stays open."""
    where = point(who)
    r, w = os.pipe()
    with open(work / 'lock', 'w') as lock, open(sample_carton[0], 'rb') as named, open(work / 'lock') as other:
        fcntl.flock(lock, fcntl.LOCK_EX)
        gap = os.dup2(w, named.fileno() + 20)
        p = subprocess.Popen(
            [*harness.as_command(who), CARTONFS, *['-f'] * foreground, f'/dev/fd/{named.fileno()}', where],
            pass_fds=[lock.fileno(), w, gap, named.fileno()], env=environment(who))
        lock.close()
        for fd in w, gap:
            os.close(fd)
        try:
            if not foreground:
                assert p.wait(EXIT_S * SLOW) == 0
            eventually('a mount', lambda: mountinfo(where))
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.set_blocking(r, False)
            assert os.read(r, 1) == b''
            assert harness.as_user(who, harness.read_file, f'{where}/MANIFEST')
            assert harness.unmount(where, who).returncode == 0
            for pid in harness.daemons(where):
                harness.wait_exit(pid)
        finally:
            p.kill() if foreground else None
            p.wait()
            harness.abandon(where, [])
    os.close(r)


@pytest.mark.parametrize('form', ['/dev/fd/{}', '/proc/self/fd/{}'])
def test_descriptor_in_an_option(sample_carton, mount, work, form):
    """As a shell passes <(…): no other of the same digits."""
    with open(work / 'key', 'w+') as key, open(work / 'other', 'w') as other:
        key.write('no key\n')
        key.flush()
        fd, far = key.fileno(), os.dup2(other.fileno(), 100 + key.fileno())
        p = subprocess.run([CARTONFS, '-o', 'ro,verify_key=' + form.format(fd), sample_carton[0], work], text=True,
                           pass_fds=[fd, far], env=environment(), capture_output=True)
        os.close(far)
    assert 'has no public key in PEM' in p.stderr, p.stderr


# ---- secrets ----


def secret_url(nginx):
    """A URL with two secrets in it, and what may be seen of it."""
    shown = nginx.url('m.carton')
    return shown.replace('http://', 'http://me:hunter2@') + '?token=tok3n', shown


def check_cmdline(pid, shown):
    words = harness.read_file(f'/proc/{pid}/cmdline')
    assert b'hunter2' not in words and b'tok3n' not in words
    assert shown.encode() in words.split(b'\0'), words


def test_secrets_in_a_url_are_hidden(mount, mount_fg, nginx, who):
    """Every user can read the command line of every process."""
    c = sample()
    c.write(nginx.root / 'm.carton')
    url, shown = secret_url(nginx)
    for make in (mount, mount_fg):
        with make(url, uid=who) as m:
            check_cmdline(m.pids[0], shown)
            assert m.do(scan, m.path) == expected(c.files(), c.links())
            assert mountinfo(m.path)[-2] == shown


def test_secrets_in_a_url_are_hidden_while_mounting(fault, point):
    """Also in the process that waits for the daemon to be ready."""
    url, where = fault.url('silent/m.carton').replace('http://', 'http://me:hunter2@'), point()
    p = subprocess.Popen([CARTONFS, url, where], stderr=subprocess.DEVNULL, env=harness.environment())
    try:
        harness.eventually('it asks the server', lambda: fault.requests('m.carton'))
        pids = harness.daemons(where)
        assert p.pid in pids and len(pids) == 2
        for pid in pids:
            check_cmdline(pid, fault.url('silent/m.carton'))
    finally:
        p.terminate()
        p.wait(harness.EXIT_S * harness.SLOW)
        harness.abandon(where, [])


def test_secrets_in_a_url_are_hidden_by_cartonctl(nginx, cache):
    c = Carton(method='stored').add('model/m', bytes(8 << 20))
    c.write(nginx.root / 'm.carton')
    url, shown = secret_url(nginx)
    p = subprocess.Popen([CARTONCTL, 'cat', cache.flag, url, 'model/m'], stdout=subprocess.PIPE,
                         env=harness.environment())
    assert p.stdout.read(1) == b'\0'        # it now writes to a full pipe
    check_cmdline(p.pid, shown)
    assert p.stdout.read() == bytes((8 << 20) - 1) and p.wait(60 * harness.SLOW) == 0
    p.stdout.close()


ODD = ['http:///me:hunter2@{}', 'http:/me:hunter2@{}', 'http:me:hunter2@{}', 'HTTP:\\\\me:hunter2@{}',
       ' http://me:hunter2@{}', 'ht\ttp://me:hunter2@{}', 'http://me:hunter2%40{}', 'http://me:hunter2\uff20{}',
       '//me:hunter2@{}', 'me:hunter2@{}', 'http://me:hunter2\\@{}', 's3://ID:1/hunter2@{}']


@pytest.mark.parametrize('form', ODD)
def test_secrets_in_a_url_of_no_form(nginx, point, cache, tmp_path, form):
    """libcurl takes some of these for URLs: they are refused, and nothing shows the password."""
    sample().write(nginx.root / 'm.carton')
    url, where, path = form.format(nginx.url('m.carton').partition('//')[2]), point(), tmp_path / 'error'
    p = harness.run(CARTONFS, '-o', f'error_file={path}', *cache.options, url, where)
    assert p.returncode and p.stderr and 'hunter2' not in p.stderr + p.stdout + path.read_text(), p.stderr
    assert not os.path.ismount(where)
    for words in (['info', cache.flag, url], ['diff', url, url], [url, 'x'], ['info', '--offline', cache.flag, url],
                  ['repack', url, tmp_path / 'x'], ['pack', url, tmp_path / 'x'], ['verify', '--json', url],
                  ['info', 'x', url], [f'--mirrror={url}'], ['info', f'--mirror={url}', 'x'],
                  ['link', f'--url={url}', 'x', 'y']):
        p = harness.ctl(*words)
        assert p.returncode and 'hunter2' not in p.stderr + p.stdout, (words, p.stderr)
    for words in (['-o', f'mirror={url}'], ['-o', f'mirrror={url}'], [f'--mirror={url}'], ['-o', f'timeout={url}'],
                  ['-o', 'mirror=http://me:hun,hunter2@h/{sha256}'], ['a', 'b', url], [f'-{url}'],
                  ['-o', f'verify={url}'], ['-o', f'mkdir={url}']):
        p = harness.run(CARTONFS, *words, tmp_path / 'none', where)
        assert p.returncode and 'hunter2' not in p.stderr + p.stdout, (words, p.stderr)


@pytest.mark.parametrize('how', ['-o', '-olist', 'foreground'])
def test_secrets_of_a_mirror_are_hidden(mount, mount_fg, nginx, cache, how):
    """In the process list, mountinfo, status.json, metrics, the log and what cartonctl prints."""
    c = sample()
    c.write(nginx.root / 'm.carton')
    url, shown = secret_url(nginx)
    template = (nginx.url('') + 'objects/{sha256}').replace('//', '//me:hunter2@') + '?token=tok3n'
    options = [f'-oro,mirror={template},timeout=9'] if how == '-olist' else ['-o', f'mirror={template}']
    with (mount_fg if how == 'foreground' else mount)(url, *options, *cache.options) as m:
        assert m.do(scan, m.path) == expected(c.files(), c.links())
        for pid in m.pids:
            words = harness.read_file(f'/proc/{pid}/cmdline') + harness.read_file(f'/proc/{pid}/environ')
            assert b'hunter2' not in words and b'tok3n' not in words, words
        check_cmdline(m.pids[0], shown)
        said = ''.join(m.read(f'.cartonfs/{name}').decode() for name in ('status.json', 'metrics'))
        said += ' '.join(mountinfo(m.path)) + (m.log() if how == 'foreground' else '')
        for words in (['status', m.path], ['status', '--json', m.path], ['info', '--json', cache.flag, url]):
            said += harness.ctl(*words).stdout
        said += harness.run('df', m.path).stdout
        assert shown in said and 'hunter2' not in said and 'tok3n' not in said, said


def test_secrets_of_a_mirror_are_hidden_by_cartonctl(nginx, cache):
    c = Carton(method='stored').add('model/m', bytes(8 << 20))
    c.write(nginx.root / 'm.carton')
    url, shown = secret_url(nginx)
    template = (nginx.url('') + 'objects/{sha256}').replace('//', '//me:hunter2@') + '?token=tok3n'
    p = subprocess.Popen([CARTONCTL, 'cat', cache.flag, f'--mirror={template}', '--mirror', template, url, 'model/m'],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=harness.environment())
    assert p.stdout.read(1) == b'\0'        # it now writes to a full pipe
    check_cmdline(p.pid, shown)
    assert p.stdout.read() == bytes((8 << 20) - 1)
    err = p.stderr.read()
    assert p.wait(60 * harness.SLOW) == 0
    p.stdout.close()
    p.stderr.close()
    assert b'hunter2' not in err and b'tok3n' not in err, err


@pytest.fixture
def core_dumps_allowed():
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, before)


def test_no_core_dump(core_dumps_allowed, mount_fg, sample_carton):
    """It would hold credentials, and the key of the read check."""
    with mount_fg(sample_carton[0]) as m:
        limits = harness.read_file(f'/proc/{m.process.pid}/limits').decode()
        assert re.search(r'^Max core file size +1 +1 +bytes', limits, re.M), limits
        m.process.send_signal(signal.SIGABRT)   # sanitizers handle SIGSEGV
        _, status = os.waitpid(m.process.pid, 0)
        assert os.WTERMSIG(status) == signal.SIGABRT and not os.WCOREDUMP(status)
        m.ended = True


# ---- how it was started ----


def test_relative_names(work, sample_carton, point):
    """Everything is found from where the user stands; what is not there is nowhere else either."""
    shutil.copy(sample_carton[0], work / 'x.carton')
    where = point()
    p = run(CARTONFS, '-o', 'cache_dir=cc', 'x.carton', where, cwd=work)
    try:
        assert p.returncode == 0 and (work / 'cc').is_dir(), p.stderr
    finally:
        harness.unmount(where)
    below = os.path.relpath(work / 'x.carton', '/')
    fails(32, below, point(), says='no such file', cwd=work)
    os.symlink('loop', work / 'loop')
    fails(32, 'loop', point(), says='symbolic links', cwd=work)


@pytest.mark.parametrize('closed', ['<&-', '>&-', '2>&-', '<&- >&-', '<&- >&- 2>&-'])
def test_closed_standard_files(sample_carton, point, closed):
    """No file of ours takes their place."""
    path, c = sample_carton
    where = point()
    p = run('sh', '-c', f'exec "$0" "$1" "$2" {closed}', CARTONFS, path, where, timeout=20)
    try:
        assert p.returncode == 0
        for name, sha in c.hashes().items():
            assert harness.sha_file(os.path.join(where, name)) == sha, name
    finally:
        harness.unmount(where)


@pytest.mark.parametrize('sig', [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_start_that_is_ended(big_carton, point, sig):
    """A signal to the process that starts the daemon ends the daemon: no mount comes later."""
    where = point()
    p = subprocess.Popen([CARTONFS, '-o', 'verify=mount', big_carton[0], where],
                         stderr=subprocess.PIPE, env=harness.environment())
    child, = harness.eventually('it has a child', lambda: [
        d for d in harness.daemons(where) if harness.parent(d) == p.pid])
    p.send_signal(sig)
    assert p.wait(harness.EXIT_S * harness.SLOW) != 0
    harness.wait_exit(child)
    assert mountinfo(where) is None
    p.communicate()


# ---- automount ----

IOC_READY = 0x9360                      # of linux/auto_fs.h


@contextlib.contextmanager
def automounted(where):
    """
    autofs at `where`, as systemd mounts it: who comes there waits until this process, or one of its group, has
    mounted. Gives the pipe with the requests, and a descriptor of the directory below.
    """
    r, w = os.pipe()
    libc = ctypes.CDLL(None, use_errno=True)
    data = f'fd={w},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct'
    if libc.mount(b'test', os.fsencode(where), b'autofs', 0, data.encode()):
        raise OSError(ctypes.get_errno(), 'autofs')
    os.close(w)
    below = os.open(where, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield r, below
    finally:
        os.close(r)                     # ends all waits
        os.close(below)
        run('umount', '-l', where)


@needs_root
@pytest.mark.needs_autofs
def test_automount(sample_carton, work):
    """All processes that mount belong to the automounter's group, else they wait for themselves."""
    path, c = sample_carton
    where = work / 'auto'
    where.mkdir()
    with automounted(where) as (requests, below):
        reader = subprocess.Popen(['cat', where / 'MANIFEST'], stdout=subprocess.PIPE, start_new_session=True)
        try:
            _, _, token = struct.unpack_from('=iiI', os.read(requests, 512))
            p = run(CARTONFS, path, where, timeout=20)
            assert p.returncode == 0, p.stderr
            fcntl.ioctl(below, IOC_READY, token)
            assert reader.communicate(timeout=20 * harness.SLOW)[0] == c.manifest_bytes()
        finally:
            reader.kill()
            reader.wait()
            harness.unmount(where)
