# SPDX-License-Identifier: Apache-2.0
"""Starting and stopping: every way to end a mount, idle and under load, and what is left then."""
import contextlib
import errno
import os
import random
import re
import select
import signal
import subprocess
from pathlib import Path

import pytest

import harness
from harness import (CARTONFS, EXIT_S, IS_ROOT, NOBODY, SLOW, environment, eventually, mountinfo,
                     read_file, run, sha_file, try_unmount, unmount, wait_exit, when_unused)
from probing import in_open
from zipwriter import Carton, Sparse

NAMES = [f'model/{i:02}' for i in range(40)]
QUARTER_SUMS = 2530268403, '5ed817a7681630f0f37921564804dedba7aa9a3ac6d997b4c5da68d5bff1c69e'
needs_root = pytest.mark.needs_root     # mount(8) and a second user do


@pytest.fixture(scope='module')
def load_carton(session_dir):
    """Forty files, large enough that a reader is nearly always inside a request."""
    c = Carton()
    for i, name in enumerate(NAMES):
        c.add(name, random.Random(i).randbytes(700_000), level=1,
              method=('stored', 'deflate', 'zstd')[i % 3])
    return c.write(session_dir / 'load.carton'), c


class Readers:
    """Processes that open and read files of a mount over and over until that gives an error."""

    def __init__(self, m, carton, count=6):
        self.hashes = carton.hashes()
        self.read_end, write_end = os.pipe()
        self.pids = []
        for i in range(count):
            pid = os.fork()
            if pid == 0:
                code = 70
                with contextlib.suppress(BaseException):
                    os.close(self.read_end)
                    if m.uid is not None:
                        os.setgroups([])
                        os.setresgid(m.uid, m.uid, m.uid)
                        os.setresuid(m.uid, m.uid, m.uid)
                    code = self.loop(m, write_end, random.Random(i))
                os._exit(code)
            self.pids.append(pid)
        os.close(write_end)
        for _ in range(count):          # each has read a whole file
            assert os.read(self.read_end, 1) == b'.'

    def loop(self, m, write_end, rng):
        """0: ended by an error of the mount's end; 1: wrong bytes; 2: some other error."""
        said = False
        while True:
            name = rng.choice(NAMES)
            try:
                if sha_file(m / name) != self.hashes[name]:
                    return 1
            except OSError as e:
                ended = (errno.ENOTCONN, errno.ENOENT, errno.ECONNABORTED, errno.ENODEV, errno.EIO)
                return 0 if e.errno in ended else 2
            if not said:
                os.write(write_end, b'.')
                said = True

    def finish(self):
        codes = [wait_exit(p) for p in self.pids]
        os.close(self.read_end)
        assert codes == [0] * len(codes), codes

    def kill(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            wait_exit(pid)
        os.close(self.read_end)


def stop(m, way):
    if way in ('SIGTERM', 'SIGINT', 'SIGHUP'):
        os.kill(m.pids[0], getattr(signal, way))
    else:
        cmd = {'umount': ['umount'], 'umount -l': ['umount', '-l'],
               'fusermount3 -u': ['fusermount3', '-u'],
               'fusermount3 -uz': ['fusermount3', '-uz']}[way]
        p = when_unused(m.path, run, *cmd, m.path, uid=m.uid)
        assert p.returncode == 0, p.stderr


WAYS = ['SIGTERM', 'SIGINT', 'SIGHUP', 'umount', 'umount -l', 'fusermount3 -u', 'fusermount3 -uz']


def only_root_may(way, uid):
    """umount(8) of a FUSE mount that is in no fstab is root's; users have fusermount3."""
    return way.startswith('umount') and (uid is not None or not IS_ROOT)


@pytest.mark.parametrize('way', WAYS)
def test_end_idle(mount, load_carton, who, way):
    if only_root_may(way, who):
        way = 'fusermount3 -u'
    with mount(load_carton[0], uid=who) as m:
        m.sha(NAMES[0])
        stop(m, way)
        m.wait_end()


@pytest.mark.parametrize('way', ['SIGTERM', 'SIGINT', 'umount -l', 'fusermount3 -uz'])
def test_end_under_load(mount, load_carton, who, way):
    if only_root_may(way, who):
        way = 'fusermount3 -uz'
    path, c = load_carton
    with mount(path, uid=who) as m:
        readers = Readers(m, c)
        stop(m, way)
        m.wait_end()
        readers.finish()


@pytest.mark.parametrize('way', ['umount', 'fusermount3 -u'])
def test_busy_unmount_is_refused(mount, load_carton, who, way):
    if only_root_may(way, who):
        way = 'fusermount3 -u'
    path, c = load_carton
    with mount(path, uid=who) as m:
        code = "import sys; f = open(sys.argv[1]); print('.', flush=True); sys.stdin.read()"
        holder = subprocess.Popen(['/usr/bin/python3', '-c', code, m / NAMES[1]],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  env=environment(who),
                                  **harness.identity(who))
        assert holder.stdout.readline() == b'.\n'
        p = run(*way.split(), m.path, uid=who)
        assert p.returncode != 0 and 'busy' in p.stderr.lower(), p.stderr
        assert m.sha(NAMES[2]) == c.hashes()[NAMES[2]]
        holder.communicate()


def test_busy_under_load(mount, load_carton):
    path, c = load_carton
    with mount(path) as m:
        fd = os.open(m / NAMES[0], os.O_RDONLY)
        readers = Readers(m, c)
        assert try_unmount(m.path).returncode != 0
        readers.kill()
        assert m.sha(NAMES[3]) == c.hashes()[NAMES[3]]
        os.close(fd)


def test_open_file_outlives_lazy_unmount(mount, load_carton):
    path, c = load_carton
    with mount(path) as m:
        with open(m / NAMES[4], 'rb', buffering=0) as f:
            assert unmount(m.path, lazy=True).returncode == 0
            assert m.gone() and os.listdir(m.path) == []
            assert f.readall() == c.files()[NAMES[4]]
            assert os.path.exists(f'/proc/{m.pids[0]}')
        m.wait_end()


def test_kill_9_then_mount_again(load_carton, point, who):
    path, c = load_carton
    where = point(who)
    with harness.mounted(path, where, uid=who) as m:
        m.sha(NAMES[0])
        os.kill(m.pids[0], signal.SIGKILL)
        m.pids = [p for p in m.pids if wait_exit(p) is None]
        with pytest.raises(OSError) as e:
            m.do(os.listdir, where)
        assert e.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)
        # On the dead mount: it works, or says what to do. It never hangs.
        p = run(CARTONFS, path, where, uid=who, timeout=20)
        assert p.returncode in (0, 32)
        if p.returncode:
            assert where in p.stderr and 'umount' in p.stderr, p.stderr
        while mountinfo(where):
            assert unmount(where, who).returncode == 0
        m.ended = True
        for pid in harness.daemons(where):
            wait_exit(pid)
    with harness.mounted(path, where, uid=who) as m:
        assert m.sha(NAMES[0]) == c.hashes()[NAMES[0]]


def fusermount_version():
    words = run('fusermount3', '-V').stdout.split()
    return tuple(int(n) for n in words[-1].split('.')[:2])


def unmounts_itself(mount, path, c, who):
    """Does the mount of a daemon that was killed go away?"""
    def watchers():
        return [p for p in Path('/proc').glob('[0-9]*/cmdline')
                if b'fusermount3\0' in (words := read_some(p)) and os.fsencode(m.path) in words]
    with mount(path, '-o', 'auto_unmount', uid=who) as m:
        assert m.sha(NAMES[0]) == c.hashes()[NAMES[0]]
        assert watchers()
        os.kill(m.pids[0], signal.SIGKILL)
        wait_exit(m.pids[0])
        eventually('fusermount3 has seen it', lambda: not watchers())
        gone = m.gone()
        assert gone or unmount(m.path, who).returncode == 0
        m.ended = True
    return gone


def read_some(path):
    with contextlib.suppress(OSError):
        return read_file(path)
    return b''


def test_auto_unmount(mount, load_carton, who):
    """
    Once in a while fusermount3 looks before the kernel has closed all that the dead daemon had, takes
    the mount for a live one, and leaves it.
    """
    # before 3.15 it asks as root, who may not look into a user's mount
    can = who is None or fusermount_version() >= (3, 15)
    assert any(unmounts_itself(mount, *load_carton, who) for _ in range(8 if can else 1)) == can


def test_auto_unmount_ends_normally(mount, load_carton, who):
    with mount(load_carton[0], '-o', 'auto_unmount', uid=who) as m:
        m.sha(NAMES[0])


def test_foreground_signal(mount_fg, load_carton, who):
    for sig in (signal.SIGTERM, signal.SIGINT):
        with mount_fg(load_carton[0], uid=who) as m:
            m.sha(NAMES[0])
            m.process.send_signal(sig)
            assert m.process.wait(EXIT_S * SLOW) == 0, m.log()
            eventually('unmounted', m.gone)
            m.ended = True


@pytest.fixture
def long_carton(disk):
    """(path, Carton): model/big takes minutes to be hashed, unless that is cancelled or the disk is set to 'none'."""
    c = Carton(method='stored').add('misc/before', b'before')
    c.add('model/big', Sparse(1 << 28, {0: b'first'}, QUARTER_SUMS))
    c.write(disk.files / 'm.carton')
    disk.set('slow 100')
    return disk.path / 'm.carton', c


def test_signal_during_a_long_open(mount, long_carton):
    """SIGTERM while megabytes are being hashed for someone: the end does not wait for that."""
    with mount(long_carton[0], '-o', 'seals=off') as m:
        reader = subprocess.Popen(['cat', m / 'model/big'], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        in_open(reader.pid, m / 'model/big')
        os.kill(m.pids[0], signal.SIGTERM)
        m.wait_end()
        reader.wait(EXIT_S * SLOW)


# Opens small cold files all at once and drops them from the page cache, so that one is read while a
# worker puts it there for another. Says when it is at it.
EVICT_CODE = """
import os, sys
root, readers, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
gate_r, gate_w = os.pipe()
for i in range(readers):
    if os.fork() == 0:
        try:
            os.close(gate_w)
            os.read(gate_r, 1)          # ends when the parent closes its end
            for k in range(files):
                fd = os.open('%s/model/%04d' % (root, k), os.O_RDONLY)
                os.pread(fd, 9000, 0)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.pread(fd, 9000, 0)
                os.close(fd)
                if (i, k) == (0, files // 10):
                    os.write(1, b'.')
        except OSError:
            pass
        finally:
            os._exit(0)
os.close(gate_w)
for i in range(readers):
    os.wait()
"""


@pytest.mark.parametrize('sig', [signal.SIGTERM, signal.SIGKILL])
def test_signal_while_pages_are_filled(mount, session_dir, sig):
    """
    What is stored in the page cache at open must not wait for a reader of these pages: where nobody
    is left to answer him, all of them would wait for ever, and no signal would help.
    """
    c = Carton()
    for i in range(200):
        c.add(f'model/{i:04}', random.Random(i).randbytes(9000), level=1)
    c.write(session_dir / 'small.carton')
    for _ in range(20):                 # it used to hang in one of six
        with mount(session_dir / 'small.carton') as m:
            p = subprocess.Popen(['/usr/bin/python3', '-S', '-c', EVICT_CODE, m.path, '8', '200'],
                                 stdout=subprocess.PIPE)
            assert p.stdout.read(1) == b'.'
            os.kill(m.pids[0], sig)
            if sig == signal.SIGTERM:
                m.wait_end()
            harness.wait_exit(m.pids[0])
            p.communicate(timeout=EXIT_S * SLOW)


def test_signal_that_comes_twice(mount_fg, load_carton):
    """An impatient Ctrl-C is one."""
    with mount_fg(load_carton[0]) as m:
        m.sha(NAMES[0])
        for _ in range(5):
            m.process.send_signal(signal.SIGINT)
        assert m.process.wait(EXIT_S * SLOW) == 0, m.log()
        eventually('unmounted', m.gone)
        m.ended = True


def test_ignored_signal_is_ignored(load_carton, point):
    """As under nohup: SIGHUP ends nothing, SIGTERM does."""
    path, c = load_carton
    where = point()
    p = subprocess.Popen(['env', '--ignore-signal=HUP', CARTONFS, '-f', str(path), where], stderr=subprocess.PIPE,
                         env=environment())
    try:
        eventually('a mount or an end', lambda: mountinfo(where) or p.poll() is not None, 30)
        p.send_signal(signal.SIGHUP)
        assert sha_file(os.path.join(where, NAMES[0])) == c.hashes()[NAMES[0]]
        assert p.poll() is None
        p.send_signal(signal.SIGTERM)
        assert p.wait(EXIT_S * SLOW) == 0, p.communicate()
        eventually('unmounted', lambda: mountinfo(where) is None)
    finally:
        p.kill()
        p.communicate()
        harness.abandon(where, [])


@pytest.mark.needs_plain_build
def test_signal_right_before_the_wait(sample_carton, killer, point):
    """SIGTERM when the main thread has looked whether there was one, and does not wait for one yet."""
    where = point()
    p = subprocess.Popen([CARTONFS, '-f', sample_carton[0], where], stderr=subprocess.PIPE,
                         stdin=subprocess.PIPE, env=environment(LD_PRELOAD=str(killer), KILL_AT='sem_wait 1 term'))
    try:
        eventually('a mount or an end', lambda: mountinfo(where) or p.poll() is not None)
        assert 'model' in os.listdir(where)     # so the other threads wait for requests by now
        assert p.communicate(b'.', timeout=EXIT_S * SLOW)[1] == b'' and p.returncode == 0
        eventually('unmounted', lambda: mountinfo(where) is None)
    finally:
        p.kill()
        p.communicate()
        harness.abandon(where, [])


# ---- readers that go away ----


@pytest.mark.parametrize('sig', [signal.SIGINT, signal.SIGKILL])
def test_interrupted_reader(mount, long_carton, who, sig):
    path, c = long_carton
    with mount(path, uid=who) as m:
        reader = subprocess.Popen(['cat', m / 'model/big'], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, **harness.identity(who))
        in_open(reader.pid, m / 'model/big')
        assert re.fullmatch(r'unverified|verifying \d+%', m.state('model/big'))
        reader.send_signal(sig)
        assert reader.wait(EXIT_S * SLOW) == -sig
        # where nobody waits any more, hashing ends; the reader has not waited until it was done
        eventually('unverified', lambda: m.state('model/big') == 'unverified')
        assert m.read('misc/before') == c.files()['misc/before']


def test_other_readers_wait_on(mount, disk, long_carton):
    """Of three readers of one cold file the first is killed: the others get it."""
    with mount(long_carton[0], '-o', 'seals=off') as m:
        head = ['head', '-c', '5', m / 'model/big']
        readers = [subprocess.Popen(head, stdout=subprocess.PIPE) for _ in range(3)]
        for r in readers:
            in_open(r.pid, m / 'model/big')
        readers[0].kill()
        assert readers[0].communicate(timeout=EXIT_S * SLOW)[0] == b''
        for r in readers[1:]:   # which runs for a moment between the look-up and the open
            in_open(r.pid, m / 'model/big')
        disk.set('none')
        assert [r.communicate(timeout=60 * SLOW)[0] for r in readers[1:]] == [b'first'] * 2


def test_interrupted_python_open(mount, long_carton):
    """A signal with a handler: open(2) gives EINTR, which the handler's exception shows."""
    code = """
import signal, sys
class Stop(Exception): pass
def handler(*a): raise Stop
signal.signal(signal.SIGUSR1, handler)
try:
    open(sys.argv[1], 'rb')
except Stop:
    print('stopped')
"""
    with mount(long_carton[0], '-o', 'seals=off') as m:
        p = subprocess.Popen(['/usr/bin/python3', '-c', code, m / 'model/big'],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        in_open(p.pid, m / 'model/big')
        p.send_signal(signal.SIGUSR1)
        assert p.communicate(timeout=EXIT_S * SLOW) == (b'stopped\n', b'')
        # where nobody waits any more, hashing ends; the reader has not waited until it was done
        eventually('unverified', lambda: m.state('model/big') == 'unverified')


CROWD = 1000


@pytest.fixture(scope='module')
def crowd_carton(session_dir):
    c = Carton()
    for i in range(CROWD):
        c.add(f'model/{i:04}', random.Random(i).randbytes(2000) * 100, level=1,
              method=('stored', 'deflate', 'zstd')[i % 3])
    return c.write(session_dir / 'crowd.carton'), c


# Run by a small process of its own: forking a thousand times from pytest takes ten times as long.
CROWD_CODE = """
import hashlib, os, random, signal, sys
root, count, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
hashes = sys.stdin.read().split()
gate_r, gate_w = os.pipe()
pids = []
for i in range(count):
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            os.close(gate_w)
            os.read(gate_r, 1)          # ends when the parent closes its end
            with open('%s/model/%04d' % (root, i % files), 'rb', buffering=0) as f:
                code = hashlib.sha256(f.readall()).hexdigest() != hashes[i % files]
        finally:
            os._exit(code)
    pids.append(pid)
os.close(gate_r)
os.close(gate_w)
killed = set(random.Random(9).sample(pids, count // 10))
for pid in killed:
    os.kill(pid, signal.SIGKILL)
for pid in pids:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != 0 and not (pid in killed and code == -9):
        print('reader', pid, 'ended with', code)
"""


@pytest.mark.parametrize('files', [CROWD, 1])
def test_a_thousand_readers_a_hundred_killed(mount, crowd_carton, files):
    """Each opens a cold file at once (or all the same one); nobody hangs, nobody reads wrong."""
    path, c = crowd_carton
    hashes = c.hashes()
    with mount(path) as m:
        p = subprocess.run(['/usr/bin/python3', '-c', CROWD_CODE, m.path, str(CROWD), str(files)],
                           input='\n'.join(hashes[f'model/{i:04}'] for i in range(CROWD)),
                           capture_output=True, text=True, timeout=60 * SLOW)
        assert (p.returncode, p.stdout, p.stderr) == (0, '', '')
        assert m.read('model/0000') == c.files()['model/0000']


def test_a_thousand_threads(mount, crowd_carton):
    """The same from one process: a thousand opens are outstanding at once."""
    import threading
    path, c = crowd_carton
    hashes = c.hashes()
    with mount(path) as m:
        wrong, start = [], threading.Barrier(CROWD)

        def reader(name):
            start.wait()
            try:
                if sha_file(m / name) != hashes[name]:
                    wrong.append(name)
            except OSError as e:
                wrong.append((name, e))
        threads = [threading.Thread(target=reader, args=(f'model/{i:04}',)) for i in range(CROWD)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60 * SLOW)
        assert not wrong and not any(t.is_alive() for t in threads)


def test_idle_daemon_is_idle(mount, load_carton):
    """No thread polls: an idle mount uses no processor time."""
    def ticks(pid):
        fields = read_file(f'/proc/{pid}/stat').rsplit(b')', 1)[1].split()
        return int(fields[11]) + int(fields[12])
    with mount(load_carton[0]) as m:
        m.sha(NAMES[0])
        before = ticks(m.pids[0])
        select.select([], [], [], 1.0)          # the measurement, not a wait for something
        assert ticks(m.pids[0]) - before <= 1


def test_no_descriptor_and_no_memory_is_left_behind(mount, load_carton):
    """Reading everything again and again: descriptors return, memory stays bounded."""
    def usage(pid):
        status = read_file(f'/proc/{pid}/status').decode()
        rss = int(status.split('VmRSS:')[1].split()[0])
        return len(os.listdir(f'/proc/{pid}/fd')), rss
    path, c = load_carton
    with mount(path) as m:
        for name in NAMES:
            m.sha(name)
        fds, rss = usage(m.pids[0])
        for _ in range(5):
            for name in NAMES:
                fd = os.open(m / name, os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.pread(fd, 100000, 0)
                os.close(fd)
        after_fds, after_rss = usage(m.pids[0])
        assert after_fds <= fds + 2 and after_rss <= rss + 32 * 1024


@needs_root
def test_two_users_mount_the_same(load_carton, point):
    path, c = load_carton
    with harness.mounted(path, point(NOBODY), uid=NOBODY) as a, harness.mounted(path, point()) as b:
        assert a.sha(NAMES[0]) == b.sha(NAMES[0]) == c.hashes()[NAMES[0]]
