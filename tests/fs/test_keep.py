# SPDX-License-Identifier: Apache-2.0
"""
Readers survive the process: the service manager keeps the FUSE device, and the next process goes on. Here
the test is the manager; tests/vm has a real one.
"""
import contextlib
import errno
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

import harness
import oms
from harness import CARTONFS, eventually, mountinfo, run
from origin import PRIVATE, Fault, LinkedCarton
from tensorfiles import header
from zipwriter import Carton, sample

MIB = 1 << 20
pytestmark = pytest.mark.needs_resend
AS_RUNNER = pytest.mark.parametrize('who', [None], indirect=True)       # the disk is for who runs the tests


class Manager:
    """What systemd does: it is told, keeps descriptors by their names, and passes them to the next process."""

    def __init__(self, work, who):
        self.who, self.stored, self.process = who, {}, None
        self.runtime = work / 'run'
        self.runtime.mkdir()
        self.kept = self.runtime / 'kept'
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(work / 'notify'))
        self.socket.setblocking(False)
        os.chmod(work / 'notify', 0o666)
        if who is not None:
            os.chown(self.runtime, who, who)
        self.env = harness.environment(who, NOTIFY_SOCKET=str(work / 'notify'), RUNTIME_DIRECTORY=str(self.runtime))
        self.log = open(work / 'log', 'w+b')

    def told(self):
        """Reads what has come: the words of all messages."""
        words = []
        while True:
            try:
                text, fds, *_ = socket.recv_fds(self.socket, 4096, 4)
            except BlockingIOError:
                return words
            state = dict(x.split('=', 1) for x in text.decode().split('\n'))
            words += text.decode().split('\n')
            name = state.get('FDNAME')
            if 'FDSTOREREMOVE' in state and name in self.stored:
                os.close(self.stored.pop(name))
            if 'FDSTORE' in state:
                assert name not in self.stored and len(fds) == 1
                self.stored[name] = fds[0]

    def mount(self, source, where):
        """The step before the main process."""
        p = run(CARTONFS, '-o', 'mount_only', source, where, uid=self.who, env=self.env)
        assert p.returncode == 0, p.stderr
        return self.told()

    def start(self, source, *options, ready=True):
        """The main process. Descriptors come in any order."""
        names = sorted(self.stored, reverse=True)
        fds = [self.stored[n] for n in names]

        def place():
            high = [os.dup(fd) for fd in fds]
            for i, fd in enumerate(high):
                os.dup2(fd, 3 + i)
                os.set_inheritable(3 + i, True)

        self.process = subprocess.Popen(
            ['sh', '-c', 'LISTEN_PID=$$ exec "$@"', 'sh', CARTONFS, '-f', *options, source, '/dev/fd/3'],
            preexec_fn=place, pass_fds=range(3, 3 + len(fds)), stdin=subprocess.DEVNULL, stderr=self.log,
            env={**self.env, 'LISTEN_FDS': str(len(fds)), 'LISTEN_FDNAMES': ':'.join(names)},
            **harness.identity(self.who))
        if ready:
            words = []
            eventually('it is ready', lambda: 'READY=1' in words or self.process.poll() is not None or
                       words.extend(self.told()))
            assert self.process.poll() is None, self.said()
            eventually('it settles', lambda: self.kept.exists() and self.kept.stat().st_size)

    def said(self):
        return os.pread(self.log.fileno(), 1 << 20, 0).decode()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.told()

    def end(self):
        if self.process:
            self.kill()
        for fd in self.stored.values():
            os.close(fd)
        self.socket.close()
        self.log.close()


@pytest.fixture
def place(work, point, who):
    """(manager, mountpoint); nothing is mounted yet."""
    m, where = Manager(work, who), point(who)
    yield m, where
    m.end()
    harness.abandon(where, [])


def child(who, fn, *args):
    """fn(*args) in a process of its own. This one, which is the manager, never waits for the mount."""
    return harness.as_user(os.geteuid() if who is None else who, fn, *args)


def is_dead(who, where):
    """A request that is under way while the kernel closes the connection gets ECONNABORTED; each later one this."""
    eventually('the mount is dead', lambda: child(who, error, os.listdir, where) == errno.ENOTCONN)


class Later(threading.Thread):
    """Calls something that waits for the next process."""

    def __init__(self, fn, *args):
        super().__init__(daemon=True)
        self.fn, self.args, self.result = fn, args, None
        self.start()

    def run(self):
        try:
            self.result = self.fn(*self.args)
        except OSError as e:
            self.result = e

    def get(self):
        self.join(harness.EXIT_S * harness.SLOW)
        assert not self.is_alive(), 'it still waits'
        return self.result


def big(work, method='stored'):
    c = Carton(method=method)
    data = random.Random(7).randbytes(8 * MIB)
    c.add('model/big', data, level=1)
    c.add('model/small', b'not much')
    for i in range(20):
        c.add(f'misc/{i}', bytes([65 + i]) * 30000)
    return c, c.write(work / 'm.carton'), data


@pytest.mark.parametrize('method', ['stored', 'zstd'])
def test_readers_go_on(work, place, who, method):
    """Open files, mappings, a working directory, and requests while there is no process: none sees an error."""
    m, where = place
    c, path, data = big(work, method)
    m.mount(path, where)
    m.start(path)
    assert sorted(m.stored) == ['cartonfs', 'cartonfs-source', 'cartonfs-state']
    reader = subprocess.Popen(['sh', '-c', 'cd "$1"/model; echo; read x; exec sha256sum big small', 'sh', where],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **harness.identity(who))
    assert reader.stdout.readline() == '\n'
    script = (f'import os, mmap, sys\n'
              f'fd = os.open({os.path.join(where, "model/big")!r}, os.O_RDONLY)\n'
              f'm = mmap.mmap(fd, 0, prot=mmap.PROT_READ)\n'
              f'os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)\n'
              f'for line in sys.stdin:\n'
              f'    off = int(line)\n'
              f'    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)\n'
              f'    print(os.pread(fd, 5000, off).hex(), m[off + 1000000:off + 1005000].hex(), flush=True)\n')
    other = subprocess.Popen(['python3', '-c', script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             **harness.identity(who))

    def ask(off):
        other.stdin.write(f'{off}\n')
        other.stdin.flush()

    def answered(off):
        a, b = other.stdout.readline().split()
        assert bytes.fromhex(a) == data[off:off + 5000]
        assert bytes.fromhex(b) == data[off + 1000000:off + 1005000]
    try:
        ask(0)
        answered(0)
        for turn in range(1, 4):
            m.kill()
            assert 'FDNAME=cartonfs' not in m.mount(path, where)           # it is mounted, and asks nobody
            ask(turn * 2 * MIB)
            looks = Later(child, who, harness.sha_file, os.path.join(where, f'misc/{turn}'))
            stats = Later(child, who, os.stat, os.path.join(where, f'misc/{10 + turn}'))
            m.start(path)
            answered(turn * 2 * MIB)
            assert looks.get() == c.hashes()[f'misc/{turn}']
            assert stats.get().st_size == 30000
            ask(turn * MIB)
            answered(turn * MIB)
        assert reader.communicate('go\n')[0].split()[::2] == [c.hashes()['model/big'], c.hashes()['model/small']]
        other.stdin.close()
        assert other.wait() == 0
        for name, sha in c.hashes().items():
            assert child(who, harness.sha_file, os.path.join(where, name)) == sha
        eventually('it says so', lambda: m.said().count('took over the mount of the last process') == 3, why=m.said)
        m.process.terminate()
        assert m.process.wait() == 0
        m.told()
        assert m.stored == {} and m.kept.read_text() == ''
        is_dead(who, where)
    finally:
        for process in (reader, other):
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def error(fn, *args):
    """The errno that fn(*args) fails with; None: it does not."""
    try:
        fn(*args)
    except OSError as e:
        return e.errno
    return None


@pytest.mark.parametrize('version', ['same', 'other'])
def test_generated_files(work, place, who, version):
    """They are found again by who has them open. Another program may generate others: they get ESTALE then."""
    m, where = place
    path = sample().write(work / 'm.carton')
    m.mount(path, where)
    m.start(path)
    views = os.path.join(where, 'views')
    before = child(who, harness.scan, views)
    names = [n for n in sorted(before) if n.endswith(('.npy', '.bin', '.json'))]
    assert len(names) > 4
    content = [child(who, harness.read_file, os.path.join(views, n)) for n in names]
    os.chmod(work, 0o777)

    def read_all(turn):
        """Opens views and the status, waits for the test, reads them."""
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(open(os.path.join(views, n), 'rb', buffering=0)) for n in names]
            status = stack.enter_context(open(os.path.join(where, '.cartonfs/status.json'), 'rb', buffering=0))
            directory = os.open(os.path.join(views, 'tensor_data'), os.O_RDONLY)
            for f in files:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            (work / f'open{turn}').touch()
            eventually('a new process', lambda: (work / f'new{turn}').exists())
            got = [error(f.read) or os.pread(f.fileno(), 1 << 20, 0) for f in files]
            return got, error(os.listdir, directory), error(status.read)
    for turn in range(3 if version == 'same' else 1):
        later = Later(child, who, read_all, turn)
        eventually('it is open', lambda: (work / f'open{turn}').exists())
        m.kill()
        if version == 'other':
            os.pwrite(m.stored['cartonfs-state'], b'0.0.1', 16)
        m.mount(path, where)
        m.start(path)
        (work / f'new{turn}').touch()
        got, listed, status = later.get()
        assert status == errno.ESTALE           # of a process that has ended
        if version == 'same':
            assert got == content and listed is None
        else:
            assert set(got) == {errno.ESTALE}
        assert child(who, harness.scan, views) == before
        assert b'last_errors' in child(who, harness.read_file, os.path.join(where, '.cartonfs/status.json'))
    # notes that are cut off, or are none
    end = os.fstat(m.stored['cartonfs-state']).st_size
    os.pwrite(m.stored['cartonfs-state'], b'\xff' * 3, end - 3)
    m.kill()
    m.mount(path, where)
    m.start(path)
    assert child(who, harness.scan, views) == before


def test_notes_of_others(work, place, who):
    """A process in other hands has noted numbers: of the next process, which are addresses there, and one for two."""
    m, where = place
    path = sample().write(work / 'm.carton')
    m.mount(path, where)
    m.start(path)
    views, state = os.path.join(where, 'views'), m.stored['cartonfs-state']
    start = os.fstat(state).st_size
    before = child(who, harness.scan, views)
    names = [n for n in sorted(before) if n.endswith(('.npy', '.bin'))]
    content = [child(who, harness.read_file, os.path.join(views, n)) for n in names]
    m.kill()
    os.truncate(state, start)

    def note(number, name):
        text = f'views/{name}'.encode() + b'\0'
        os.pwrite(state, struct.pack('=QH', number, len(text)) + text, os.fstat(state).st_size)

    for n, name in enumerate(names):
        note((2 << 48 | 0x1000) if n % 2 else 1 << 48 | 7, name)
    m.mount(path, where)
    m.start(path)
    # else it could wait for ever, for a process that has crashed
    assert Later(child, who, harness.scan, views).get() == before
    assert [child(who, harness.read_file, os.path.join(views, n)) for n in names] == content
    assert m.process.poll() is None, m.said()


def test_generated_files_over_the_limit(work, place, who):
    """Their notes take no more than an eighth of memory=; what was not noted is found by its name."""
    m, where = place
    limit, n = 16 * MIB, 20000
    path = Carton().add('model/w.safetensors', header(n, '{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}'),
                        method='zstd').write(work / 'm.carton')
    m.mount(path, where)
    m.start(path, '-o', f'memory={limit}')
    top = os.path.join(where, 'views/model/w.safetensors')
    for turn in range(2):
        names = child(who, os.listdir, top)
        assert len(names) == 2 * n + 1
        assert limit // 16 < os.fstat(m.stored['cartonfs-state']).st_size < limit // 8
        assert m.said().count('the notes of generated files have reached') == turn + 1
        m.kill()
        m.mount(path, where)
        m.start(path, '-o', f'memory={limit}')
        assert child(who, harness.read_file, os.path.join(top, f'{n - 1:x}.bin')) == b'\0'
    assert m.process.poll() is None


def test_generated_directories(work, place, who):
    """One that is open and was not listed is listed whole, one that is a working directory has a path, and nothing is
    noted twice."""
    m, where = place
    path = sample().write(work / 'm.carton')
    m.mount(path, where)
    m.start(path)
    script = ('import os, sys\n'
              'os.chdir(sys.argv[1] + "/tensor_data/ragged/..")\n'
              'fds = [os.open(d, os.O_RDONLY) for d in (".", "..")]\n'
              'print(flush=True)\n'
              'input()\n'
              'print(*[sorted(os.listdir(fd)) for fd in fds], os.getcwd(), sep="\\n", flush=True)\n')
    views = os.path.join(where, 'views')
    sizes = []
    for turn in range(3):
        with subprocess.Popen(['python3', '-c', script, views], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              **harness.identity(who)) as reader:
            assert reader.stdout.readline() == '\n'
            m.kill()
            m.mount(path, where)
            m.start(path)
            inner, outer, cwd = reader.communicate('\n')[0].splitlines()
        assert 'words.npy' in inner and 'tensor_data' in outer and cwd == os.path.join(views, 'tensor_data')
        names = sorted(child(who, harness.scan, views))
        assert inner == str([n.split('/')[1] for n in names if n.count('/') == 1])
        sizes.append(os.fstat(m.stored['cartonfs-state']).st_size)
    assert sizes[1] == sizes[2]


def test_generated_files_of_a_dead_server(work, place, who):
    """Once one does not answer in time, the others are not asked: readers of other files wait for that."""
    m, where = place
    (work / 'root').mkdir()
    server, silence = Fault(root=work / 'root'), socket.socket()
    c = LinkedCarton().add('misc/local', b'in the carton')
    for i in range(4):
        head = b'{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
        data = struct.pack('<Q', len(head)) + head + bytes([i] * 4)
        (work / 'root' / str(i)).write_bytes(data)
        c.link(f'model/{i}.safetensors', data, server.url(str(i), file=str(i)))
    options = [*PRIVATE, '-o', f'timeout=3,cache_dir={work}/cache']
    if who is not None:
        os.chown(work, who, who)
    try:
        m.mount(c.write(work / 'm.carton'), where)
        m.start(work / 'm.carton', *options)
        child(who, harness.scan, os.path.join(where, 'views'))
        m.kill()
        server.stop()
        shutil.rmtree(work / 'cache')
        silence.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        silence.bind((server.host, server.port))
        silence.listen()
        m.mount(work / 'm.carton', where)
        m.start(work / 'm.carton', *options)
        asked = []
        silence.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                asked.append(silence.accept()[0].recv(4096))
        # the request ends at the same moment as the wait for the view: either may say so first
        assert len(asked) == 1 and m.said().count('no answer before the deadline') <= 1
        assert 'safetensors: cannot be read now: Connection timed out' in m.said()
        assert child(who, harness.read_file, os.path.join(where, 'misc/local')) == b'in the carton'
    finally:
        silence.close()
        if server.process.returncode is None:
            server.stop()


@pytest.mark.parametrize('what', ['carton', 'times', 'options', 'dates'])
def test_another_carton_is_mounted_anew(work, place, who, what):
    """The kernel has cached what was: the next process ends, and the one behind it serves a new mount."""
    m, where = place
    c, path, _ = big(work)
    if what == 'times':
        path = c.unpack(work / 'unpacked')
    m.mount(path, where)
    m.start(path)
    assert child(who, harness.read_file, os.path.join(where, 'model/small')) == b'not much'
    m.kill()
    options = {'options': ('-o', 'umask=077'), 'dates': ('-o', 'dates=mount')}.get(what, ())
    if what == 'times':
        os.utime(path / 'model/small', (10 ** 9, 10 ** 9))      # files of a directory keep theirs
    elif what == 'carton':
        path.unlink()
        c = Carton().add('model/small', b'new')
        c.write(path)
    m.mount(path, where)
    m.start(path, *options, ready=False)
    assert m.process.wait() == 2
    assert 'the carton or its options have changed' in m.said()
    m.told()
    assert m.stored == {} and m.kept.read_text() == ''
    # as ExecStopPost= does
    assert harness.unmount(where, who, lazy=True).returncode == 0
    m.mount(path, where)
    m.start(path, *options)
    for name, sha in c.hashes().items():
        assert child(who, harness.sha_file, os.path.join(where, name)) == sha


def test_other_times_in_a_zip(work, place, who):
    """No mount shows them, so the next process goes on."""
    m, where = place
    c, path, data = big(work)
    m.mount(path, where)
    m.start(path)
    before = child(who, os.stat, os.path.join(where, 'model/big')).st_mtime
    m.kill()
    path.unlink()
    for e in c.entries.values():
        e.mtime = (2001, 2, 3, 4, 5, 6)
    c.write(path)
    os.utime(path, (10 ** 9, 10 ** 9))
    m.mount(path, where)
    m.start(path)
    # it says so a moment after it is ready
    eventually('it says so', lambda: 'took over the mount of the last process' in m.said(), why=m.said)
    assert child(who, os.stat, os.path.join(where, 'model/big')).st_mtime == before
    assert child(who, harness.read_file, os.path.join(where, 'model/big')) == data


def test_dates_of_the_first_process(work, place, who):
    """With dates=mount, the next process shows the date of the first one, also of what nobody has looked at yet."""
    m, where = place
    _, path, _ = big(work)
    options = '-o', 'dates=mount'
    begin = int(time.time())
    m.mount(path, where)
    m.start(path, *options)
    date = child(who, os.stat, os.path.join(where, 'misc/1')).st_mtime
    assert begin <= date <= time.time()
    m.kill()
    eventually('the clock goes on', lambda: time.time() > date + 1)
    m.mount(path, where)
    m.start(path, *options)
    # it says so a moment after it is ready
    eventually('it says so', lambda: 'took over the mount of the last process' in m.said(), why=m.said)
    assert child(who, os.stat, os.path.join(where, 'misc/2')).st_mtime == date


@pytest.mark.parametrize('damage', ['size', 'version', 'reply'])
def test_state_that_is_not_understood(work, place, who, damage):
    """As of another version of the program, or one that has agreed on other things with the kernel."""
    m, where = place
    _, path, _ = big(work)
    m.mount(path, where)
    m.start(path)
    m.kill()
    fd = m.stored['cartonfs-state']
    if damage == 'size':
        os.ftruncate(fd, 100)
    else:
        at = 0 if damage == 'version' else 16 + 32 + 256 + 256
        os.pwrite(fd, bytes([os.pread(fd, 1, at)[0] ^ 1]), at)
    m.start(path, ready=False)
    assert m.process.wait() == 2
    assert 'cannot take over the mount of the last process' in m.said()
    m.told()
    assert m.stored == {}


@AS_RUNNER
def test_requests_are_sent_again(work, disk, place, who):
    """Those that the process had read, and not answered, when it was killed."""
    m, where = place
    c, _, data = big(disk.files)
    path = disk.path / 'm.carton'
    m.mount(path, where)
    m.start(path, '-o', f'cache_dir={work}/cache')
    disk.set(f'hold {4 * MIB}')
    opens = [Later(child, who, harness.read_file, os.path.join(where, 'model/big')) for _ in range(3)]
    eventually('it is verified', lambda: b'verifying' in os.getxattr(
        os.path.join(where, 'model/big'), 'user.carton.state'))
    m.kill()
    assert [x for x in opens if not x.is_alive()] == []
    disk.set('none')
    m.mount(path, where)
    m.start(path, '-o', f'cache_dir={work}/cache')
    assert [x for x in opens if x.get() != data] == []


@AS_RUNNER
def test_pages_of_a_killed_verification(work, disk, place, who):
    """What was in the page cache and not verified when the process was killed is never read."""
    m, where = place
    c, real, data = big(disk.files)
    good = real.read_bytes()
    at = good.index(data[:64])
    real.write_bytes(good[:at] + bytes(MIB) + good[at + MIB:])
    os.utime(real, (10 ** 9, 10 ** 9))
    path = disk.path / 'm.carton'
    m.mount(path, where)
    m.start(path, '-o', f'cache_dir={work}/cache')
    disk.set(f'hold {5 * MIB}')
    later = Later(child, who, harness.read_file, os.path.join(where, 'model/big'))

    def part():
        state = os.getxattr(os.path.join(where, 'model/big'), 'user.carton.state').decode()
        return int((re.search(r'(\d+)%', state) or [0, 0])[1])
    eventually('some of it is read', lambda: part() >= 30)
    m.kill()
    real.write_bytes(good)
    os.utime(real, (10 ** 9, 10 ** 9))
    disk.set('none')
    m.mount(path, where)
    m.start(path, '-o', f'cache_dir={work}/cache')
    got = later.get()
    assert got == data
    assert child(who, harness.read_file, os.path.join(where, 'model/big')) == data


def test_a_service_without_its_directory_keeps_nothing(work, place, who):
    """As before: the mount ends with the main process."""
    m, where = place
    _, path, _ = big(work)
    del m.env['RUNTIME_DIRECTORY']
    m.mount(path, where)
    m.start(path, ready=False)
    words = []
    eventually('it is ready', lambda: 'READY=1' in words or words.extend(m.told()))
    assert m.stored == {} and mountinfo(where)
    m.process.send_signal(signal.SIGKILL)
    m.process.wait()
    is_dead(who, where)


@pytest.mark.parametrize('mistake, status, says', [
    ('options', 1, 'did you mean allow_other'), ('value', 1, 'expected auto, open, mount'), ('mountpoint', 32, 'mkdir -p')])
def test_mount_step_that_fails_ends_the_service(work, place, who, mistake, status, says):
    """systemd looks at the status of the main process only: that ends with the status of the step, and says nothing
    again. Once the mistake is mended it serves."""
    m, where = place
    _, path, _ = big(work)
    options = {'options': ('-o', 'alow_other'), 'value': ('-o', 'verify=x')}.get(mistake, ())
    at = os.path.join(where, 'none') if mistake == 'mountpoint' else where
    p = run(CARTONFS, '-o', 'mount_only', *options, path, at, uid=who, env=m.env)
    assert p.returncode == status and says in p.stderr and mountinfo(at) is None
    m.start(path, *options, ready=False)
    assert m.process.wait() == status and m.said() == ''
    m.mount(path, where)
    m.start(path)
    assert child(who, harness.read_file, os.path.join(where, 'model/small')) == b'not much'


def test_mount_step_checks_options_of_a_mount_that_waits(work, place, who):
    """So a reload with a mistake is refused. It asks nothing of the mount, which nobody serves."""
    m, where = place
    _, path, _ = big(work)
    m.mount(path, where)
    m.start(path)
    m.kill()
    p = run(CARTONFS, '-o', 'mount_only', '-o', 'noatime,alow_other', path, where, uid=who, env=m.env)
    assert p.returncode == 1 and 'did you mean allow_other' in p.stderr
    assert 'FDNAME=cartonfs' not in m.mount(path, where)
    m.start(path)
    assert child(who, harness.read_file, os.path.join(where, 'model/small')) == b'not much'


def test_a_request_that_kills_every_process(work, place, who):
    """It is sent again to each next one: after some of them the mount is made anew."""
    m, where = place
    _, path, _ = big(work)
    m.mount(path, where)
    m.start(path)
    for _ in range(8):
        m.kill()
        m.mount(path, where)
        m.start(path)
    m.kill()
    m.mount(path, where)
    m.start(path, ready=False)
    assert m.process.wait() == 2 and 'has ended 8 times within 60 s' in m.said()
    m.told()
    assert m.stored == {} and m.kept.read_text() == ''
    is_dead(who, where)


@pytest.mark.needs_root
@AS_RUNNER
def test_main_process_of_another_user(work, place, who):
    """As the unit has it: root mounts, and opens a carton that only root can read."""
    m, where = place
    c, path, data = big(work)
    path.chmod(0o600)
    os.chown(m.runtime, harness.NOBODY, harness.NOBODY)
    root, other = m.env, harness.environment(harness.NOBODY) | {k: m.env[k] for k in ('NOTIFY_SOCKET', 'RUNTIME_DIRECTORY')}

    def step(uid, env, fn, *args, **kw):
        m.who, m.env = uid, env
        return fn(*args, **kw)
    step(None, root, m.mount, path, where)
    inode = os.fstat(m.stored['cartonfs-source']).st_ino
    assert inode == path.stat().st_ino
    step(harness.NOBODY, other, m.start, path)
    assert child(who, harness.read_file, os.path.join(where, 'model/big')) == data
    # the check of a reload is the other user's, and leaves what is stored
    step(harness.NOBODY, other, m.mount, path, where)
    assert os.fstat(m.stored['cartonfs-source']).st_ino == inode
    m.kill()
    step(None, root, m.mount, path, where)
    step(harness.NOBODY, other, m.start, path)
    assert child(who, harness.read_file, os.path.join(where, 'misc/1')) == c.files()['misc/1']
    assert Path(f'/proc/{m.process.pid}/status').read_text().count(f'\t{harness.NOBODY}\t') >= 2
    m.kill()
    # why the step has failed is the other user's to read, whatever the umask
    p = run('sh', '-c', 'umask 077; exec "$@"', 'sh', CARTONFS, '-o', 'mount_only,alow_other', path, where, env=root)
    assert p.returncode == 1, p.stderr
    step(harness.NOBODY, other, m.start, path, ready=False)
    assert m.process.wait() == 1


@AS_RUNNER
def test_signature_is_checked_again(work, place, who):
    """Also beside a carton that comes as an open file. A signature by another key ends the service, and its mount."""
    m, where = place
    c, path, data = big(work)
    key, other = oms.Key(work), oms.Key(work, 'other')
    statement = oms.statement(oms.listing(c.hashes()))
    sig, option = Path(f'{path}.sig'), ('-o', f'verify_key={key.public}')
    sig.write_text(oms.bundle(key, statement))
    m.mount(path, where)
    assert 'cartonfs-source' in m.stored
    m.start(path, *option)
    fd = os.open(os.path.join(where, 'model/big'), os.O_RDONLY)
    m.kill()
    m.start(path, *option)
    assert Later(os.pread, fd, 1000, 5).get() == data[5:1005]
    os.close(fd)
    m.kill()
    sig.write_text(oms.bundle(other, statement))
    m.start(path, *option, ready=False)
    assert m.process.wait() == 32
    assert f'{path}: not mounted: {sig}: key: it names another key' in m.said()
    m.told()
    assert m.stored == {}
    assert harness.unmount(where, who, lazy=True).returncode == 0
    sig.write_text(oms.bundle(key, statement))
    m.mount(path, where)
    m.start(path, *option)
    assert child(who, harness.read_file, os.path.join(where, 'model/big')) == data
