# SPDX-License-Identifier: Apache-2.0
"""
A mount is known by its device, wherever it is by now: the end of a process, and `cartonctl stop`, detach that one and no
other that has its path. What another user puts at the path is not mounted on.
"""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess

import pytest

import harness
from harness import CARTONFS, EXIT_S, NOBODY, SLOW, ctl, environment, eventually, mountinfo, run, wait_exit
from probing import mounter_of
from zipwriter import Carton

pytestmark = pytest.mark.needs_root     # it mounts what is in the way


def mounts_of(device, work):
    """The paths below `work` at which a file system is mounted. Once it is gone, a mount of another test may get its number."""
    lines = harness.Path('/proc/self/mountinfo').read_text().splitlines()
    return [line.split(' ')[4] for line in lines
            if line.split(' ')[2] == device and harness.Path(line.split(' ')[4]).is_relative_to(work)]


def device_of(m):
    return mountinfo(m.path)[2]


@contextlib.contextmanager
def tmpfs(path):
    """With a file `mine`."""
    assert run('mount', '-t', 'tmpfs', 'none', path).returncode == 0
    try:
        harness.Path(path, 'mine').write_text('mine')
        yield
    finally:
        run('umount', '-l', path)


@pytest.fixture
def two(session_dir):
    """Paths of two cartons that differ."""
    return [Carton().add('model/w', name).write(session_dir / f'{name.decode()}.carton') for name in (b'old', b'new')]


def end(m, sig=signal.SIGTERM):
    """Ends the daemon, which unmounts what is its own."""
    os.kill(m.pids[0], sig)
    wait_exit(m.pids[0])
    m.ended = True


def said(m, text):
    """The mounter writes the log, perhaps a moment later."""
    eventually(f'the log has {text!r}', lambda: text in m.log(), why=m.log)


@pytest.mark.parametrize('sig', [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_new_mount_at_the_path(two, point, who, sig):
    """A model is replaced: readers of the old one go on, until its process is ended."""
    where = point(who)
    with harness.mounted(two[0], where, uid=who) as old:
        reader = subprocess.Popen(['tail', '-f', old / 'model/w'], stdout=subprocess.PIPE, **harness.identity(who))
        assert reader.stdout.read(3) == b'old'
        assert harness.unmount(where, who, lazy=True).returncode == 0
        assert run(CARTONFS, two[1], where, uid=who).returncode == 0
        new, = set(harness.daemons(where)) - set(old.pids)
        end(old, sig)
        assert old.read('model/w') == b'new'
        assert ctl('stop', where, uid=who).returncode == 0
        assert wait_exit(new) in (0, None) and old.gone()
        reader.kill()
        reader.communicate()


def test_something_on_top(sample_carton, work, point, who):
    """What is on it stays. The dead mount below goes once that is gone."""
    where = point(who)
    with harness.mounted(sample_carton[0], where, uid=who) as m:
        device, mounters = device_of(m), mounter_of(m.pids[0])
        with tmpfs(where):
            end(m)
            assert os.listdir(where) == ['mine'] and mounts_of(device, work) == [where]
            said(m, f'not unmounted yet: a tmpfs is mounted on it or in it, at {where}: first run umount {where}')
        eventually('it is gone, too', lambda: not mounts_of(device, work))
        assert os.listdir(where) == []
        for pid in mounters:
            wait_exit(pid)


@pytest.mark.parametrize('when', ['while it waits', 'before'])
def test_the_end_of_what_waits(sample_carton, work, point, who, when):
    """What removes the dead mount later ends by SIGTERM: at once, or, as where a whole service is ended, instead of waiting."""
    where = point(who)
    with harness.mounted(sample_carton[0], where, uid=who) as m:
        device, (mounter,) = device_of(m), mounter_of(m.pids[0])
        with tmpfs(where):
            if when == 'before':
                os.kill(mounter, signal.SIGTERM)
            end(m)
            said(m, f'at {where}: first run umount {where}; this mount, whose process has ended, ' +
                 ('then goes by itself' if when == 'while it waits' else 'then goes by umount -l'))
            if when != 'before':
                os.kill(mounter, signal.SIGTERM)
            wait_exit(mounter)
            assert os.listdir(where) == ['mine'] and mounts_of(device, work) == [where]
        assert mounts_of(device, work) == [where]
        assert harness.unmount(where, lazy=True).returncode == 0


def test_something_in_it(sample_carton, work, mount):
    with mount(sample_carton[0]) as m:
        device = device_of(m)
        with tmpfs(m / 'model'):
            end(m)
            assert os.listdir(m / 'model') == ['mine']
            said(m, f'at {m / "model"}: first run umount {m / "model"}')
        eventually('it is gone, too', lambda: not mounts_of(device, work))


@pytest.mark.parametrize('other', ['tmpfs', 'carton'])
def test_moved_with_its_parent(two, work, who, other):
    """Nothing that stands at the old path is touched, and no dead mount stays at the new one."""
    def make():
        (work / 'a/m').mkdir(parents=True)
        if who:
            os.chown(work / 'a/m', who, who)
    make()
    with harness.mounted(two[0], work / 'a/m', uid=who) as m:
        device = device_of(m)
        os.rename(work / 'a', work / 'b')
        make()
        with tmpfs(work / 'a/m') if other == 'tmpfs' else contextlib.nullcontext():
            if other == 'carton':
                assert run(CARTONFS, two[1], work / 'a/m', uid=who).returncode == 0
            assert mounts_of(device, work) == [str(work / 'b/m')]
            end(m)
            assert mounts_of(device, work) == [] and os.listdir(work / 'b/m') == []
            if other == 'tmpfs':
                assert os.listdir(work / 'a/m') == ['mine']
            else:
                assert m.read('model/w') == b'new'
                assert ctl('stop', work / 'a/m', uid=who).returncode == 0


@pytest.mark.parametrize('way', ['bind', 'move'])
def test_mounted_elsewhere(sample_carton, mount, work, way):
    """mount --bind makes one more mount of it, mount --move moves it: both would be dead."""
    base = work / 'base'
    base.mkdir()
    assert run('mount', '-t', 'tmpfs', 'none', base).returncode == run('mount', '--make-private', base).returncode == 0
    try:
        for name in 'm', 'other':
            (base / name).mkdir()
        with harness.mounted(sample_carton[0], base / 'm') as m:
            device = device_of(m)
            assert run('mount', f'--{way}', m.path, base / 'other').returncode == 0
            assert str(base / 'other') in mounts_of(device, work)
            end(m)
            assert mounts_of(device, work) == []
    finally:
        run('umount', '-l', base)


def test_parent_covered(sample_carton, work):
    """It cannot be reached: nothing that is there by its path is unmounted."""
    (work / 'a/m').mkdir(parents=True)
    with harness.mounted(sample_carton[0], work / 'a/m') as m:
        device = device_of(m)
        with tmpfs(work / 'a'):
            (work / 'a/m').mkdir()
            with tmpfs(work / 'a/m'):
                end(m)
                assert os.listdir(work / 'a/m') == ['mine']
                said(m, 'not unmounted yet: another mount covers it: first unmount that')
        eventually('it is gone, too', lambda: not mounts_of(device, work))


@pytest.mark.parametrize('part', ['', 'model'])
def test_stop_with_a_bind_mount(sample_carton, mount, work, part):
    """It says where the file system is mounted besides, whole or in part, and does not wait for the end."""
    other = work / 'a bind'
    other.mkdir()
    with mount(sample_carton[0]) as m:
        assert run('mount', '--bind', os.path.join(m.path, part), other).returncode == 0
        try:
            p = ctl('stop', m.path)
        finally:
            assert run('umount', other).returncode == 0
        assert p.stderr == (f"cartonctl: {m.path}: unmounted, but it is also mounted at {other}: "
                            f"run umount '{other}', so that its process ends\n"), p.stderr
        assert p.returncode == 0 and mountinfo(m.path) is None
        m.wait_end()


@pytest.mark.parametrize('part', ['', 'model'])
def test_stop_with_something_on_top(sample_carton, mount, who, part):
    with mount(sample_carton[0], uid=who) as m:
        where = m / part if part else m.path
        with tmpfs(where) if part == '' or who is None else contextlib.nullcontext():
            if part and who:
                return          # root may not look into the mount of a user
            p = ctl('stop', m.path, uid=who)
            assert p.returncode == 1 and os.listdir(where) == ['mine']
            assert p.stderr == (f'cartonctl: {m.path}: not unmounted: a tmpfs is mounted on it or in it, at {where}: '
                                f'first run umount {where}\n')
        assert ctl('stop', m.path, uid=who).returncode == 0
        m.wait_end()


def test_mountpoint_of_another_user(disk, sample_carton, work):
    """Root's mountpoint is in a directory of a user, who swaps it for a symlink before it is mounted: not on its target."""
    home, victim = work / 'home', work / 'victim'
    (home / 'm').mkdir(parents=True)
    victim.mkdir()
    os.chown(home, NOBODY, NOBODY)
    shutil.copy(sample_carton[0], disk.files / 'm.carton')
    disk.set('slow 100')
    p = subprocess.Popen([CARTONFS, '-f', disk.path / 'm.carton', home / 'm'], stderr=subprocess.PIPE, text=True,
                         env=environment())
    try:
        # it looks at the mountpoint before it opens the carton, which takes a while
        eventually('it has the mountpoint', lambda: p.poll() is not None or any(
            str(home / 'm') in links(pid) for pid in [p.pid, *mounter_of(p.pid)]))
        assert p.poll() is None and mountinfo(home / 'm') is None
        os.rename(home / 'm', home / 'old')
        os.symlink(victim, home / 'm')
        disk.set('none')
        eventually('a mount or an end', lambda: p.poll() is not None or mountinfo(home / 'old') or mountinfo(victim))
        assert mountinfo(victim) is None and os.listdir(victim) == []
        assert p.poll() is None and os.path.exists(home / 'old/MANIFEST')
        p.terminate()
        assert p.wait(EXIT_S * SLOW) == 0
        eventually('unmounted', lambda: mountinfo(home / 'old') is None)
    finally:
        p.kill()
        p.communicate()
        for path in victim, home / 'old':
            harness.abandon(path, [])


def links(pid):
    found = []
    for n in os.listdir(f'/proc/{pid}/fd'):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f'/proc/{pid}/fd/{n}'))
    return found


def test_dead_mount_is_removed_and_no_other(two, work, point):
    """A dead mount at the path goes at the next start; what is on it stays, and the start says so."""
    where = point()
    with harness.mounted(two[0], where) as m:
        device = device_of(m)
        end(m, signal.SIGKILL)
        with tmpfs(where):
            p = run(CARTONFS, two[1], where)
            assert p.returncode == 0 and 'is not empty' in p.stderr
            assert ctl('stop', where).returncode == 0
            assert os.listdir(where) == ['mine'] and mounts_of(device, work) == [where]
        with harness.mounted(two[1], where) as new:
            assert re.search('removed a dead cartonfs mount', new.stderr) and new.read('model/w') == b'new'
            assert mounts_of(device_of(new), work) == [where]
        assert new.gone()


@pytest.mark.parametrize('options', [(), ('-o', 'mount_only')], ids=['a daemon', 'mount_only'])
def test_a_mountpoint_that_cannot_be_entered(sample_carton, work, options):
    """Root without the right to search it mounts nothing, says why, and tells the service manager of no mount."""
    (work / 'm').mkdir(mode=0)
    os.chown(work / 'm', NOBODY, NOBODY)
    less = '-dac_override,-dac_read_search'
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(work / 'notify'))
        manager.setblocking(False)
        p = run('setpriv', f'--bounding-set={less}', f'--inh-caps={less}', CARTONFS, *options, sample_carton[0], work / 'm',
                env={'NOTIFY_SOCKET': str(work / 'notify')})
        assert (p.returncode, p.stderr) == (32, f'cartonfs: {work}/m: cannot be mounted on: Permission denied\n')
        assert mountinfo(work / 'm') is None
        with pytest.raises(BlockingIOError):
            while True:
                assert manager.recv(4096).startswith(b'STATUS=')


@pytest.mark.needs_plain_build      # a sanitizer needs /proc
def test_a_mount_that_is_not_found(sample_carton, work):
    """Without /proc, it is not known where the mount is: the end says that it stays."""
    (work / 'm').mkdir()
    p = run('unshare', '--mount', 'sh', '-ec', """
        mount -t tmpfs none /proc
        "$1" -f "$2" m &
        until [ -e m/MANIFEST ] || ! kill -0 $!; do sleep 0.02; done
        kill $!
        wait $!
        ls m || :
    """, 'sh', CARTONFS, sample_carton[0], cwd=work)
    warning = f'cartonfs: warning: {work}/m: '
    assert (p.returncode, p.stdout) == (0, '') and p.stderr.splitlines()[:2] == [
        f'{warning}is mounted, but is not in /proc/self/mountinfo, as if it was moved: it has to be unmounted by umount',
        f'{warning}not unmounted: it was not found; its process has ended: remove it with umount -l'], p.stderr
    assert 'not connected' in p.stderr
