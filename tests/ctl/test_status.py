# SPDX-License-Identifier: Apache-2.0
""".cartonfs/ in a mount, cartonctl status and stop, and signs of life during a first open."""
import contextlib
import errno
import fcntl
import json
import os
import pty
import pwd
import re
import signal
import socket
import struct
import subprocess
import termios
import time

import pytest

import handover
import harness
from faultydisk import Disk
from harness import CARTONCTL, CARTONFS, ctl, environment, eventually, run, unmount
from origin import MIB, PRIVATE, LinkedCarton, fault_bytes
from probing import mounter_of
from terminal import plain, terminal, width
from zipwriter import Carton, sample

JSON, METRICS = '.cartonfs/status.json', '.cartonfs/metrics'


def status(m):
    return json.loads(m.read(JSON))


def metrics(m):
    return parse_metrics(m.read(METRICS).decode())


def parse_metrics(text):
    """{name{labels}: value}, after a check of the format."""
    families, values = {}, {}
    assert text.endswith('\n')
    for line in text.splitlines():
        if line.startswith('# '):
            kind, name, rest = line[2:].split(' ', 2)
            assert kind not in families.get(name, {}), f'{kind} of {name} comes twice'
            families.setdefault(name, {})[kind] = rest
            continue
        match = re.fullmatch(r'((cartonfs_[a-z_]+)(?:\{[a-z_]+="[^\n]*"(?:,[a-z_]+="[^\n]*")*\})?) (\d+)', line)
        assert match, line
        family = families[match[2]]
        assert set(family) == {'HELP', 'TYPE'}
        assert match[2].endswith('_total') == (family['TYPE'] == 'counter')
        values[match[1]] = int(match[3])
    return values


def test_counts(mount, work, who):
    c = sample()
    with mount(c.write(work / 'm.carton'), uid=who) as m:
        before = status(m)
        assert before['source'] == str(work / 'm.carton') and before['mountpoint'] == m.path
        assert before['model_hash'] == c.model_hash() and before['pid'] in m.pids
        assert before['files'] == len(c.hashes()) + 1 - len(c.links())
        data = m.read('model/weights.bin')
        after = status(m)
        assert after['verified_files'] == before['verified_files'] + 1
        assert after['verified_bytes'] == before['verified_bytes'] + len(data)
        assert after['unread_bytes'] == before['unread_bytes'] - len(data)
        for s in (before, after):
            for unit in ('files', 'bytes'):
                assert s[f'verified_{unit}'] + s[f'corrupt_{unit}'] + s[f'unread_{unit}'] == s[unit]
        for name in m.do(harness.scan, m.path):
            if name in c.files():
                m.read(name)
        assert status(m)['unread_files'] == 0


def test_screen_names_each_state(mount, sample_carton):
    """A file that was not read is still to verify; the numbers are those of status.json."""
    with mount(sample_carton[0]) as m:
        m.read('model/weights.bin')
        text, want = ctl('status', m.path).stdout, status(m)
        for label, state in ('verified', 'verified'), ('to verify', 'unread'):
            assert int(re.search(rf'^ +{label} +(\d+) files? ', text, re.M)[1]) == want[f'{state}_files'] > 0


def test_metrics_are_the_same_numbers(mount, work):
    with mount(sample().write(work / 'a"b\\c.carton')) as m:
        m.read('model/weights.bin')
        have, want = metrics(m), status(m)
        for state in ('verified', 'corrupt', 'unread'):
            assert have[f'cartonfs_files{{state="{state}"}}'] == want[f'{state}_files']
            assert have[f'cartonfs_files_size_bytes{{state="{state}"}}'] == want[f'{state}_bytes']
        assert have['cartonfs_hashed_bytes_total'] == want['hashed_bytes'] > 0
        info, = [n for n in have if n.startswith('cartonfs_info')]
        assert r'a\"b\\c.carton' in info


@pytest.fixture
def loner(work):
    """A user of whom no other test has mounts. Without root there is but one user, who runs nothing else."""
    if not harness.IS_ROOT:
        return None
    uid = pwd.getpwnam('games').pw_uid      # fusermount3 wants one with a name
    harness.make_home(uid, work / 'home')
    return uid


def test_metrics_of_all_mounts(mount, work, loner):
    """One description for each family; the numbers of each mount, with its mountpoint, once."""
    paths = [sample().write(work / name) for name in ('a"b\\c{,mountpoint=.carton', 'n.carton')]
    with mount(paths[0], uid=loner) as a, mount(paths[1], uid=loner) as b:
        a.read('model/weights.bin')
        p = ctl('status', '--metrics', uid=loner)
        assert p.returncode == 0 and p.stderr == ''
        have, one = parse_metrics(p.stdout), parse_metrics(ctl('status', '--metrics', b.path, uid=loner).stdout)
        for m in (a, b):
            label = f'mountpoint="{m.path}"'
            assert have[f'cartonfs_up{{{label}}}'] == 1
            for name, value in metrics(m).items():
                if name.startswith('cartonfs_info'):
                    continue
                name, _, labels = name.partition('{')
                assert have[f'{name}{{{label}' + (f',{labels}' if labels else '}')] == value
            info, = [n for n in have if n.startswith('cartonfs_info{') and label in n]
            assert info.count(label) == 1
            assert status(m)['model_hash'] in info
        assert [name for name in one if f'mountpoint="{b.path}"' not in name] == []
        assert have[f'cartonfs_files{{mountpoint="{a.path}",state="verified"}}'] > 0
        assert ctl('status', '--metrics', '--json').returncode == 1
        pid = status(a)['pid']
        harness.freeze(pid)
        try:
            have = parse_metrics(ctl('status', '--metrics', uid=loner).stdout)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert [have[f'cartonfs_up{{mountpoint="{m.path}"}}'] for m in (a, b)] == [0, 1]
        assert not any(f'mountpoint="{a.path}"' in name for name in have if not name.startswith('cartonfs_up'))
    assert f'"{b.path}"' not in ctl('status', '--metrics', uid=loner).stdout


@pytest.mark.needs_promtool
def test_promtool(mount, sample_carton):
    with mount(sample_carton[0]) as m:
        p = run('promtool', 'check', 'metrics', input=m.read(METRICS).decode(), stdin=None)
        assert (p.returncode, p.stdout, p.stderr) == (0, '', '')


def test_hidden(mount, sample_carton, work, who):
    """Found by name, not listed; read-only; a copy does not have it."""
    with mount(sample_carton[0], uid=who) as m:
        assert '.cartonfs' not in m.do(os.listdir, m.path)
        assert sorted(m.do(os.listdir, m / '.cartonfs')) == ['metrics', 'status.json']
        assert run('find', m.path, '-name', '*.json', uid=who).stdout.count('cartonfs/') == 0
        for name, why in (('.cartonfs/none', errno.ENOENT), (f'{JSON}/x', errno.ENOTDIR)):
            with pytest.raises(OSError) as e:
                m.do(os.stat, m / name)
            assert e.value.errno == why
        with pytest.raises(OSError) as e:
            m.do(open, m / JSON, 'w')
        assert e.value.errno in (errno.EROFS, errno.EACCES)
        assert m.do(os.listxattr, m / JSON) == []
        p = run('ls', '-la', m / '.cartonfs', uid=who)
        assert p.returncode == 0 and p.stderr == ''
        assert run('cp', m / METRICS, work / 'copy', uid=None if who is None else 0).returncode in (0, 1)


def test_the_carton_comes_first(mount, work):
    c = sample().add('.cartonfs/status.json', b'of the carton').add('.cartonfs/x', b'x')
    with mount(c.write(work / 'm.carton')) as m:
        assert m.read(JSON) == b'of the carton' and m.read('.cartonfs/x') == b'x'
        assert '.cartonfs' in os.listdir(m.path)


def test_corrupt_files_and_errors(mount_fg, work):
    c = Carton(method='stored').add('model/bad', b'b' * 1000, sha='1' * 64).add('model/good', b'good')
    with mount_fg(c.write(work / 'm.carton')) as m:
        assert m.error('model/bad') == 'EIO'
        s = status(m)
        assert (s['corrupt_files'], s['corrupt_bytes'], s['errors']) == (1, 1000, 1)
        error, = s['last_errors']
        assert 'model/bad: sha256 mismatch' in error['message'] and error['time'] > 0
        out = ctl('status', m.path).stdout
        assert re.search(r'corrupt +1 file +1000 B', out)
        assert 'model/bad: sha256 mismatch' in ' '.join(out.split())
        for _ in range(20):
            m.error('model/bad')
        assert len(status(m)['last_errors']) <= 8


def test_signs_of_life(mount_fg, work, fault, cache):
    """While an open waits for a server: its state has a percentage, and the status names it, at once."""
    data = fault_bytes(4 * MIB)
    c = LinkedCarton().add('misc/local', b'local').link('model/m', data, fault.url('m', size=4 * MIB, stall=3 * MIB))
    with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *cache.options) as m:
        assert m.state('model/m') == 'unverified'
        assert status(m)['remote_bytes'] in (0, 4 * MIB)        # nobody asked for the size yet
        reader = subprocess.Popen(['cat', m / 'model/m'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            eventually('a percentage', lambda: re.fullmatch(r'fetching [1-9]\d*%', m.state('model/m')))
            with harness.at_once():
                s = status(m)
            waiting, = s['waiting']
            assert (waiting['path'], waiting['state'], waiting['opens']) == ('model/m', 'fetching', 1)
            assert 0 < waiting['done'] <= waiting['size'] == 4 * MIB
            # what has come of it is here, and the rest is to be fetched: the numbers agree
            assert 0 < s['cached_bytes'] <= s['fetched_bytes'] and s['cached_bytes'] + s['remote_bytes'] == 4 * MIB
            assert 0 < s['fetched_bytes'] < 4 * MIB
            assert metrics(m)['cartonfs_waiting_opens'] == 1
            out = ctl('status', m.path).stdout
            assert re.search(r'waiting +model/m  fetching \d+%, 1 open\n', out)
        finally:
            reader.kill()
            reader.wait()


def test_a_large_local_file(mount, disk):
    """Its percentage grows while it is hashed: from a disk that gives a part of it, and then more."""
    Carton(method='stored').add('model/big', fault_bytes(64 * MIB)).write(disk.files / 'm.carton')
    with mount(disk.path / 'm.carton') as m:
        disk.set(f'hold {16 * MIB}')
        reader = subprocess.Popen(['head', '-c1', m / 'model/big'], stdout=subprocess.DEVNULL)

        def percentage():
            seen = re.fullmatch(r'verifying (\d+)%', m.state('model/big'))
            return int(seen[1]) if seen else 0
        try:
            seen = eventually('a percentage', percentage)
            assert seen <= 25
            waiting, = status(m)['waiting']
            assert (waiting['path'], waiting['state']) == ('model/big', 'verifying')
            disk.set(f'hold {48 * MIB}')
            eventually('more', lambda: 25 < percentage() <= 75)
            disk.set('none')
            assert reader.wait() == 0
        finally:
            reader.kill()
            reader.wait()


def test_remote(mount, nginx, work, cache):
    c = Carton(method='stored').add('model/a', os.urandom(2 * MIB)).add('model/b', os.urandom(MIB))
    c.write(nginx.root / 'status.carton')
    with mount(nginx.url('status.carton'), *cache.options) as m:
        before = status(m)
        assert before['remote_bytes'] >= 3 * MIB
        m.read('model/a')
        after = status(m)
        assert after['remote_bytes'] == before['remote_bytes'] - 2 * MIB
        assert after['cached_bytes'] == before['cached_bytes'] + 2 * MIB
        assert after['fetched_bytes'] >= 2 * MIB and after['cache_misses'] > 0
    with mount(nginx.url('status.carton'), *cache.options) as m:
        # what the cache has needs not be fetched, before it is read, too: the rest is as it was
        eventually('it is found', lambda: status(m)['remote_bytes'] == after['remote_bytes'])
        assert status(m)['cached_bytes'] == after['cached_bytes'] and status(m)['verified_files'] < after['verified_files']
        m.read('model/a')
        assert status(m)['cache_hits'] > 0 and status(m)['fetched_bytes'] < MIB
        # what another process has fetched meanwhile
        assert ctl('fetch', cache.flag, nginx.url('status.carton')).returncode == 0
        eventually('all is found', lambda: status(m)['remote_bytes'] == 0)
        out = ctl('status', m.path).stdout
        assert re.search(r'^ +remote +3\.0 MiB here, 0 B to fetch$', out, re.M), out
        assert re.search(r'^ +cache +had \d of \d files that were looked for in it$', out, re.M), out
        # and what has gone since
        assert ctl('cache', 'gc', '0', cache.flag).returncode == 0
        eventually('it is gone', lambda: status(m)['remote_bytes'] >= MIB)


# ---- cartonctl status ----

@pytest.mark.parametrize('columns', [80, 40])
def test_screen_fits(mount, work, columns):
    """Words that are longer than a line, such as a URL or a hash, are broken below the words before them."""
    data, url = b'linked' * 1000, f'http://127.0.0.1:9/obj/{"f" * 64}/{"g" * 64}'
    c = LinkedCarton().add('model/' + 'long' * 20, os.urandom(5000)).link('model/m', data, url)
    where = work / ('m' * 60)
    where.mkdir()
    with mount(c.write(where / 'a\nb.carton')) as m:
        assert m.error('model/m')
        text = plain(terminal(columns, 'status', m.path))
        lines = text.splitlines()
        assert [line for line in lines if width(line) > columns] == [], text
        assert [line for line in lines[1:] if line.strip() and not re.match('  [ a-z]{10}', line)] == [], text
        assert all(x in ''.join(text.split()) for x in (url, c.model_hash(), str(where / 'a\\x0ab.carton'))), text



def test_all_mounts_of_a_user(mount, sample_carton, who):
    with mount(sample_carton[0], uid=who) as a, mount(sample_carton[0], uid=who) as b:
        out = ctl('status', uid=who).stdout
        assert f'{a.path}\n' in out and f'{b.path}\n' in out
        mounts = {s['mountpoint'] for s in json.loads(ctl('status', '--json', uid=who).stdout)}
        assert {a.path, b.path} <= mounts
        one = ctl('status', a.path, uid=who)
        assert one.returncode == 0 and a.path in one.stdout and b.path not in one.stdout
        relative = ctl('status', os.path.basename(a.path), uid=who, cwd=os.path.dirname(a.path))
        assert relative.stdout.splitlines()[0] == a.path


def test_a_mount_that_says_nothing(mount, sample_carton, work):
    """The status of a process that has just ended may be empty: that is no JSON, and no line."""
    disk = Disk(work, ',subtype=cartonfs')
    try:
        (disk.files / '.cartonfs').mkdir()
        for name in 'status.json', 'metrics':
            (disk.files / '.cartonfs' / name).write_bytes(b'')
        with mount(sample_carton[0]) as m:
            mounts = json.loads(ctl('status', '--json').stdout)
            assert m.path in [s['mountpoint'] for s in mounts] and None not in mounts
            assert str(disk.path) not in [s['mountpoint'] for s in mounts]
            assert str(disk.path) not in ctl('status').stdout
    finally:
        disk.stop()


@pytest.mark.needs_root
def test_not_those_of_others(mount, sample_carton):
    """Root too: a file system of another user could keep it waiting."""
    with mount(sample_carton[0]) as m:
        assert m.path not in ctl('status', uid=harness.NOBODY).stdout
        p = ctl('stop', m.path, uid=harness.NOBODY)
        assert p.returncode == 1 and 'only root and the user who has mounted' in p.stderr
    with mount(sample_carton[0], uid=harness.NOBODY) as m:
        assert m.path not in ctl('status').stdout
        p = ctl('status', m.path)
        assert p.returncode == 1 and p.stderr == f'cartonctl: {m.path}: Permission denied\n'


@pytest.mark.needs_root
@pytest.mark.parametrize('kind', ['link', 'directory', 'fifo'])
@pytest.mark.parametrize('option', [[], ['--json'], ['--metrics']], ids=['text', 'json', 'metrics'])
def test_no_link_in_a_mount_of_others(work, kind, option):
    """Any user can make a mount of this type: what it has in place of its status leads root to no other file."""
    secret = work / 'secret'
    secret.mkdir(0o700)
    for name in 'status.json', 'metrics':
        (secret / name).write_text('# HELP cartonfs_x secret-of-root\n{"pid": 1, "source": "secret-of-root"}\n')
    where = work / 'fake'
    where.mkdir()
    disk = Disk(where, ',subtype=cartonfs')
    try:
        if kind == 'directory':
            os.symlink(secret, disk.files / '.cartonfs')
        else:
            (disk.files / '.cartonfs').mkdir()
            for name in 'status.json', 'metrics':
                if kind == 'link':
                    os.symlink(secret / name, disk.files / '.cartonfs' / name)
                else:
                    os.mkfifo(disk.files / '.cartonfs' / name)
        p = ctl('status', *option, disk.path)
        assert 'secret-of-root' not in p.stdout + p.stderr
        assert NO_ANSWER not in p.stdout
        if option != ['--metrics']:
            assert p.returncode == 1 and 'shows a link or another kind of file in place of its status' in p.stderr
    finally:
        disk.stop()


@pytest.mark.needs_root
def test_stop_of_a_mount_of_others(work):
    """Root does not ask it for its process: it may name any, or not answer, as here."""
    with handover.device(work):
        p = ctl('stop', work)
        assert (p.returncode, p.stderr) == (0, '')


def test_a_path_in_a_mount(mount, sample_carton, work):
    """A user may be in it: the message says where the mountpoint is."""
    with mount(sample_carton[0]) as m:
        for path in f'{m.path}/model', f'{m.path}/carton.toml':
            for command in 'status', 'stop':
                p = ctl(command, path)
                assert (p.returncode, p.stderr) == (
                    1, f'cartonctl: {path}: is in a mount of cartonfs; name the mountpoint, {m.path}\n')
        assert os.path.ismount(m.path)


def test_no_mount(work):
    p = ctl('status', work)
    assert p.returncode == 1 and p.stderr == f'cartonctl: {work}: is not a mount of cartonfs\n'
    p = ctl('stop', work)
    assert p.returncode == 1 and p.stderr == f'cartonctl: {work}: is not a mount of cartonfs\n'
    for command in 'status', 'stop':
        p = ctl(command, work / 'none')
        assert p.returncode == 1 and p.stderr == f'cartonctl: {work}/none: No such file or directory\n'
    p = ctl('stop', work / 'none/mnt')
    assert p.returncode == 1 and 'none/mnt: No such file or directory' in p.stderr


def test_names_that_are_not_utf8(work, sample_carton):
    """They are shown with a replacement, so that the JSON and the metrics can be read."""
    where = os.fsencode(work) + b'/m\xff\n"'
    os.mkdir(where)
    p = subprocess.run([CARTONFS, sample_carton[0], where], env=environment(), capture_output=True, text=True)
    assert p.returncode == 0, p.stderr
    try:
        with open(where + b'/.cartonfs/status.json', encoding='utf-8') as f:
            assert json.load(f)['mountpoint'] == f'{work}/m\ufffd\n"'
        with open(where + b'/.cartonfs/metrics', encoding='utf-8') as f:
            assert f',mountpoint="{work}/m\ufffd\\n\\"",' in f.read()
    finally:
        unmount(os.fsdecode(where))


def test_watch(mount, sample_carton):
    """Draws again and again, from the top, and ends when the mount does."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack('4H', 50, 80, 0, 0))
    with mount(sample_carton[0]) as m:
        p = subprocess.Popen([CARTONCTL, 'status', '--watch', m.path], stdin=subprocess.DEVNULL, stdout=follower,
                             stderr=follower, env=environment(TERM='xterm'))
        os.close(follower)
        out = b''
        while out.count(b'\x1b[H') < 3:
            out += os.read(leader, 65536)
        assert b'/s hashed' in out
        assert max(map(len, plain(out.decode()).replace('\r', '').split('\n'))) <= 80 + len('\x1b[H\x1b[J')
        unmount(m.path)
        m.wait_end()
    assert p.wait(harness.EXIT_S * harness.SLOW) == 0
    os.close(leader)


# ---- daemons that do not answer ----

NO_ANSWER = 'does not answer'


def answer_ms():
    """What the program gives each mount."""
    header = (harness.ROOT / 'fs/ctl/ask.h').read_text()
    return int(re.search(r'#define CTL_ANSWER_MS (\d+)', header)[1])


@pytest.fixture
def stopped(mount, sample_carton):
    """stopped(n, uid=None): mounts whose daemons are stopped; they go on at the end."""
    with contextlib.ExitStack() as stack:
        def make(n, uid=None):
            made = []
            for _ in range(n):
                m = stack.enter_context(mount(sample_carton[0], uid=uid))
                stack.callback(resume, m)
                harness.freeze(m.pids[0])
                made.append(m)
            return made
        yield make


def state_of(pid):
    return harness.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0]


def resume(m):
    with contextlib.suppress(ProcessLookupError):
        os.kill(m.pids[0], signal.SIGCONT)


def in_time(*words, uid=None, prepare=lambda: ()):
    """
    Runs cartonctl; all mounts together take the time of one, and a pipe of its output is closed then. What takes longer
    is run again: the machine may have been busy, but who waits for each mount takes long each time. The last words are
    what prepare() returns, if it is given.
    """
    took = []
    while not took or took[-1] >= 2 * answer_ms() / 1000 * harness.SLOW:
        assert len(took) < 5, took
        last = prepare()
        begin = time.monotonic()
        p = ctl(*words, *last, uid=uid)
        took.append(time.monotonic() - begin)
    return p


def test_status_of_stopped_daemons(mount, stopped, sample_carton, who):
    """Each row says so, also if there are ten; the others are shown."""
    with mount(sample_carton[0], uid=who) as good:
        silent = stopped(10, uid=who)
        p = in_time('status', uid=who)
        assert p.returncode == 1
        rows = p.stdout.split('\n\n')
        for m in silent:
            row, = (r for r in rows if r.startswith(m.path))
            assert NO_ANSWER in row
        row, = (r for r in rows if r.startswith(good.path))
        assert NO_ANSWER not in row and 'verified' in row
        p = in_time('status', '--json', uid=who)
        listed = {e['mountpoint']: e for e in json.loads(p.stdout)}
        assert p.returncode == 1 and 'pid' in listed[good.path]
        assert [m for m in silent if NO_ANSWER not in listed[m.path]['error']] == []


@pytest.mark.parametrize('name', ['{}', '{}/', '{}//'])
def test_status_of_one_stopped_daemon(stopped, who, name):
    m, = stopped(1, uid=who)
    # and nothing of it is left running
    p = in_time('status', name.format(m.path), uid=who)
    assert p.returncode == 1 and p.stdout.startswith(m.path) and NO_ANSWER in p.stdout and p.stderr == ''


def test_watch_of_a_stopped_daemon(stopped):
    """Draws on, and shows the mount again when its daemon goes on."""
    m, = stopped(1)
    with subprocess.Popen([CARTONCTL, 'status', '--watch', m.path], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, env=environment()) as p:
        seen = 0
        for line in p.stdout:
            seen += NO_ANSWER in line
            if seen == 2:
                resume(m)
            if 'verified' in line or 'to verify' in line:
                break
        assert seen >= 2
        p.terminate()


def test_stop_of_a_stopped_daemon(stopped, who):
    """It is unmounted at once; the process ends when it goes on."""
    made = []

    def prepare():
        made.append(*stopped(1, uid=who))
        return [made[-1].path]
    p = in_time('stop', uid=who, prepare=prepare)
    assert p.returncode == 0 and NO_ANSWER in p.stderr, p.stderr
    for m in made[:-1]:
        resume(m)
        m.wait_end()
    m = made[-1]
    assert m.gone() and state_of(m.pids[0]) == 'T'
    resume(m)
    m.wait_end()


def test_refresh_of_a_stopped_daemon(stopped, who):
    m, = stopped(1, uid=who)
    p = in_time('refresh', m.path, 'http://h/x', uid=who)
    assert p.returncode == 1 and NO_ANSWER in p.stderr


# ---- cartonctl stop ----

def test_stop(mount, sample_carton, who):
    with mount(sample_carton[0], uid=who) as m:
        p = ctl('stop', m.path, uid=who)
        assert (p.returncode, p.stdout, p.stderr) == (0, '', '')
        # it has waited for the process
        assert not harness.daemons(m.path)
        m.wait_end()


def test_stop_from_inside(mount, sample_carton):
    """Its own working directory does not keep it busy."""
    with mount(sample_carton[0]) as m:
        p = ctl('stop', '..', cwd=m / 'model')
        assert (p.returncode, p.stdout, p.stderr) == (0, '', '')
        m.wait_end()


@pytest.mark.parametrize('how', ['has its working directory there', 'has files open', 'has files mapped'])
def test_stop_names_who_is_in_the_way(mount, sample_carton, who, how):
    script = {'has its working directory there': 'os.chdir(sys.argv[1])',
              'has files open': 'f = open(sys.argv[1] + "/carton.toml")',
              'has files mapped': 'f = open(sys.argv[1] + "/carton.toml"); '
                                  'm = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); f.close()'}[how]
    if how == 'has files mapped':
        # mmap of Python keeps a descriptor of its own
        script += '; [os.close(n) for n in range(3, 10) if os.path.exists(f"/proc/self/fd/{n}")]'
    with mount(sample_carton[0], uid=who) as m:
        user = subprocess.Popen(
            ['/usr/bin/python3', '-c', f'import mmap, os, sys; {script}; print(flush=True); sys.stdin.read()', m.path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, **harness.identity(who))
        user.stdout.readline()
        p = ctl('stop', m.path, uid=who)
        assert p.returncode == 1 and m.path in p.stderr
        assert re.search(rf'^ +{user.pid}  python3 +{how}$', p.stderr, re.M), p.stderr
        user.communicate()
        assert ctl('stop', m.path, uid=who).returncode == 0
        m.wait_end()


def test_stop_while_a_status_is_read(mount, sample_carton, who):
    """Who asks how a mount is does not keep it busy: stop waits for the end of that."""
    with mount(sample_carton[0], uid=who) as m:
        script = 'f = open(sys.argv[1]); print(flush=True); sys.stdin.read()'
        with subprocess.Popen(['/usr/bin/python3', '-c', f'import sys; {script}', m / JSON], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, **harness.identity(who)) as reader:
            reader.stdout.readline()
            with subprocess.Popen([CARTONCTL, 'stop', m.path], stderr=subprocess.PIPE, text=True, env=environment(who),
                                  **harness.identity(who)) as p:
                eventually('it waits', lambda: p.poll() is not None or 'poll' in harness.doing(p.pid))
                reader.communicate()
                assert p.communicate()[1] == '' and p.returncode == 0
        m.wait_end()


def test_end_while_a_status_is_open(mount, sample_carton, who):
    """The text is freed though no RELEASE comes: else the address sanitizer ends the daemon with 1."""
    with mount(sample_carton[0], uid=who) as m:
        with subprocess.Popen(['tail', '-f', m / JSON], stdout=subprocess.PIPE, **harness.identity(who)) as reader:
            reader.stdout.readline()
            os.kill(m.pids[0], signal.SIGTERM)
            m.wait_end()
            reader.kill()


def test_stop_of_a_dead_mount(mount, sample_carton):
    with mount(sample_carton[0]) as m:
        os.kill(m.pids[0], 9)
        assert harness.wait_exit(m.pids[0]) in (-9, None)
        p = ctl('status', m.path)
        assert p.returncode == 1 and 'its process has ended; cartonctl stop removes the mount' in p.stderr
        assert ctl('stop', m.path).returncode == 0
        m.ended = True


# ---- where else it is said ----

def test_systemd_gets_a_status(work, mount_fg):
    path = str(work / 'notify')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        c = sample().add('model/bad', b'x' * 1000, sha='1' * 64)
        with mount_fg(c.write(work / 'm.carton'), env={'NOTIFY_SOCKET': path}) as m:
            assert m
            texts = []
            while not texts or 'READY=1' not in texts[-1]:
                texts.append(s.recv(4096).decode())
            m.error('model/bad')
            assert 'STATUS=last error: model/bad: sha256 mismatch' in s.recv(4096).decode()
        assert re.search(rf'^STATUS=\d+ files, model {c.model_hash()[:12]}$', texts[-1], re.M)


def many_bad(path):
    """So many that their errors fill each queue of the kernel's."""
    c = Carton().add('model/good', b'good')
    for i in range(700):
        c.add(f'model/bad{i}', b'b' * 100 + b'%d' % i, sha='%064x' % (i + 1))
    return c.write(path)


def all_are_answered(m):
    assert {m.error(f'model/bad{i}') for i in range(700)} == {'EIO'}
    assert m.read('model/good') == b'good'


def test_service_manager_that_does_not_read(work, mount_fg):
    """Errors are shown there if it takes them; nobody waits for it."""
    path = str(work / 'notify')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        with mount_fg(many_bad(work / 'm.carton'), env={'NOTIFY_SOCKET': path}) as m:
            all_are_answered(m)
            # and when it reads again, it is told again
            s.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    s.recv(4096)
        texts = []
        with contextlib.suppress(BlockingIOError):
            while True:
                texts.append(s.recv(4096))
        assert b'STOPPING=1' in texts


# malloc asks for the number of processors once it has more arenas: at another moment with each number
@pytest.mark.parametrize('arenas', [None, 3, 4, 8])
def test_log_that_is_stuck(work, mount, arenas):
    """The process that writes to syslog may hang with it."""
    env = {'MALLOC_ARENA_TEST': str(arenas)} if arenas else {}
    with mount(many_bad(work / 'm.carton'), env=env) as m:
        pid, = mounter_of(m.pids[0])
        harness.freeze(pid)
        try:
            readers = [subprocess.Popen(['sh', '-c', f'cat {m.path}/model/bad{i}?'], stderr=subprocess.DEVNULL)
                       for i in range(1, 9)]
            eventually('they all have ended', lambda: all(p.poll() is not None for p in readers))
            all_are_answered(m)
        finally:
            os.kill(pid, signal.SIGCONT)


def test_priorities_for_the_journal(mount_fg, work):
    """A hash mismatch is an error there, not information."""
    c = Carton().add('model/bad', b'b' * 1000, sha='1' * 64)
    path = c.write(work / 'm.carton')
    with open(work / 'journal', 'w+b') as err:
        st = os.fstat(err.fileno())
        where = work / 'mnt'
        where.mkdir()
        p = subprocess.Popen([harness.CARTONFS, '-f', path, where], stderr=err, stdin=subprocess.DEVNULL,
                             env=environment(JOURNAL_STREAM=f'{st.st_dev}:{st.st_ino}'))
        eventually('it is mounted', lambda: harness.mountinfo(where))
        with pytest.raises(OSError):
            (where / 'model/bad').read_bytes()
        unmount(where)
        assert p.wait(harness.EXIT_S * harness.SLOW) == 0
        lines = (work / 'journal').read_text().splitlines()
        assert any(ln.startswith('<3>cartonfs: model/bad: sha256 mismatch') for ln in lines), lines
        # what ends a unit before it has mounted: each in one line, without a hint that is for people at a terminal
        (work / 'junk').write_text('no zip')
        for args, says in (((work / 'junk', where), 'not mounted: is not a zip file'),
                           (('-o', 'verify=x', path, where), '-o verify=x: expected auto, open'), ((path, ''), 'MOUNTPOINT is')):
            err.truncate(0)
            err.seek(0)
            p = subprocess.run([harness.CARTONFS, '-f', *args], stderr=err, stdin=subprocess.DEVNULL,
                               env=environment(JOURNAL_STREAM=f'{st.st_dev}:{st.st_ino}'))
            lines = (work / 'journal').read_text().splitlines()
            assert p.returncode in (1, 32) and says in lines[-1] and all(ln.startswith('<3>') for ln in lines), lines
    # elsewhere there is no prefix
    with mount_fg(path) as m:
        m.error('model/bad')
        assert 'cartonfs: model/bad: sha256' in m.log() and '<3>' not in m.log()


def test_the_source_is_named(work):
    (work / 'x').write_bytes(b'not a zip')
    for command in ('info', 'ls', 'hash'):
        p = ctl(command, work / 'x')
        assert p.returncode == 1 and p.stderr.count('\n') == 1
        assert p.stderr.startswith(f'cartonctl: {work}/x: '), p.stderr
