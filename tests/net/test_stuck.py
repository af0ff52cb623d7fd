# SPDX-License-Identifier: Apache-2.0
"""Never stuck: Ctrl-C, umount and SIGTERM under dead servers, and what goes on meanwhile."""
import contextlib
import errno
import itertools
import os
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

import harness
from harness import STALL, eventually
from origin import MIB, PRIVATE, Fault, LinkedCarton, digest, errno_of, fault_bytes
from tensorfiles import st, st_bytes
from zipwriter import Carton

DEAD = {'silent': dict(silent=1), 'stall': dict(stall=300000), 'head only': dict(stall=0),
        'slow head': dict(slowhead=60000), 'trickle': dict(rate=100)}
SIZE = 3 * MIB


@pytest.fixture
def mounts(work, mount_fg, cache):
    """mounts(*options, **files) -> a Mount of a carton whose model/NAME are linked."""
    numbers = itertools.count()
    with contextlib.ExitStack() as stack:
        def make(*options, source=None, **files):
            c = LinkedCarton().add('misc/local', b'in the carton\n')
            c.add('misc/large', bytes(9 * MIB), method='deflate')
            c.add('misc/near.safetensors', st_bytes({'t': st()}, b'x'))
            for path, (data, *urls) in files.items():
                c.link('model/' + path, data, *urls)
            path = work / f'm{next(numbers)}.carton'
            c.write(path)
            return stack.enter_context(mount_fg(source or path, *PRIVATE,
                                                *cache.options, *options))
        yield make


@pytest.fixture
def readers():
    """readers(path, …) -> cat processes; none is left at the end."""
    them = []

    def start(*paths):
        new = [subprocess.Popen(['cat', p], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
               for p in paths]
        them.extend(new)
        return new
    yield start
    for p in them:
        p.kill()
        p.communicate()


def state(pid):
    return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0]


def none_in_d_state(pids):
    """No thread sleeps where no signal reaches it."""
    def stuck():
        found = []
        for stat in (p for pid in pids for p in Path(f'/proc/{pid}/task').glob('*/stat')):
            with contextlib.suppress(OSError):
                if stat.read_text().rpartition(')')[2].split()[0] == 'D':
                    found.append(stat)
        return found
    eventually('no one in D state', lambda: not stuck(), 2)     # a moment of it is a disk's


def asked(fault, name, n=1):
    eventually(f'{name} was asked for', lambda: len(fault.requests(name)) >= n)


def alive(m):
    """The mount answers, and fast."""
    with harness.at_once(STALL):
        assert m.read('misc/local') == b'in the carton\n'
        assert {'model', 'misc', 'MANIFEST'} <= set(os.listdir(m.path)) and os.listdir(m / 'model')
        assert os.stat(m / 'misc/large').st_size == 9 * MIB


# ---- Ctrl-C ----


@pytest.mark.parametrize('kind', DEAD)
def test_interrupted(mounts, readers, fault, kind):
    """A cat over a dead server ends as soon as it is told to, and the mount goes on."""
    m = mounts(x=(fault_bytes(SIZE), fault.url('x', size=SIZE, **DEAD[kind])))
    took = []
    for _ in range(3):
        n = len(fault.requests('x'))
        cat, = readers(m / 'model/x')
        eventually('it waits', lambda: state(cat.pid) == 'S' and
                   len(fault.requests('x')) >= max(n, 1))
        alive(m)
        none_in_d_state([cat.pid, m.process.pid])
        before = time.monotonic()
        cat.send_signal(signal.SIGINT)
        cat.wait()
        took.append(time.monotonic() - before)
        assert cat.returncode == -signal.SIGINT and cat.stdout.read() == b''
    # the best of three, because the machine may be busy
    assert min(took) < STALL / 100 * harness.SLOW, took
    alive(m)


def test_names_in_a_directory_that_waits(mounts, readers, fault):
    """Each who asks for another name in what is still to be generated can be told to end."""
    m = mounts(**{'w.safetensors': (fault_bytes(SIZE), fault.url('dead', size=SIZE, stall=0))})
    cats = readers(*(m / f'views/model/w.safetensors/{n}.bin' for n in 'abcd'))
    asked(fault, 'dead')
    eventually('all wait', lambda: all(state(c.pid) in 'SD' for c in cats))
    none_in_d_state([c.pid for c in cats])
    for cat in reversed(cats):
        cat.send_signal(signal.SIGINT)
        with harness.at_once(STALL):
            assert cat.wait() == -signal.SIGINT
    alive(m)


def threads(m):
    return len(os.listdir(f'/proc/{m.process.pid}/task'))


def waiting_views(mounts, readers, fault, n, *options):
    """A mount, and as many who look at views of files at a server that is dead."""
    m = mounts(*options, **{f'd{i}.safetensors': (b'%d' % i, fault.url(f'd{i}', silent=1))
                            for i in range(n)})
    before = threads(m), sockets(m.process.pid)
    cats = readers(*(m / f'views/model/d{i}.safetensors/t.bin' for i in range(n)))
    eventually('all are asked for', lambda: len(fault.requests()) == n)
    return m, cats, before


def test_views_that_wait(mounts, readers, fault):
    """They hold up no other view; once nobody wants them, their requests and threads end."""
    m, cats, (n_threads, n_sockets) = waiting_views(mounts, readers, fault, 80)
    with harness.at_once(STALL):
        assert m.read('views/misc/near.safetensors/t.bin') == b'x'
    assert threads(m) > 80, 'each has a thread'
    alive(m)
    none_in_d_state([m.process.pid])
    for c in cats:
        c.send_signal(signal.SIGINT)
    with harness.at_once(STALL):
        assert {c.wait() for c in cats} == {-signal.SIGINT}
        eventually('no request is under way', lambda: sockets(m.process.pid) <= n_sockets + 1)
        eventually('the threads end', lambda: threads(m) < n_threads + 40)
    alive(m)


@pytest.mark.parametrize('how', ['SIGTERM', 'umount'])
def test_end_while_views_wait(mounts, readers, fault, how):
    m, cats, _ = waiting_views(mounts, readers, fault, 30, '-o', 'timeout=600')
    with harness.at_once(STALL):
        if how == 'umount':
            assert harness.unmount(m.path, lazy=True).returncode == 0
        else:
            m.process.send_signal(signal.SIGTERM)
        assert 0 not in {c.wait() for c in cats}
        m.wait_end()


def test_view_times_out(mounts, fault):
    """Its deadline counts from the request, not from each of what it waits for."""
    m = mounts('-o', f'timeout={TIMEOUT}', **{'w.safetensors': (b'x', fault.url('x', silent=1))})
    before = time.monotonic()
    assert errno_of(os.listdir, m / 'views/model/w.safetensors') == errno.ETIMEDOUT
    assert time.monotonic() - before < 2 * TIMEOUT * harness.SLOW
    alive(m)


def test_interrupted_while_it_connects(mounts, readers, work):
    """A server whose queue is full: no connection comes to be."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(('127.0.0.1', 0))
        listener.listen(0)
        for _ in range(4):
            s = stack.enter_context(socket.socket())
            s.setblocking(False)
            s.connect_ex(listener.getsockname())
        m = mounts(x=(b'x', 'http://127.0.0.1:%d/x' % listener.getsockname()[1]))
        cat, = readers(m / 'model/x')
        eventually('it waits', lambda: state(cat.pid) == 'S')
        alive(m)
        with harness.at_once(STALL):
            cat.send_signal(signal.SIGINT)
            cat.wait()


def test_interrupted_stat(mounts, fault):
    m = mounts(x=(fault_bytes(SIZE), fault.url('x', silent=1)))
    p = subprocess.Popen(['stat', m / 'model/x'], stdout=subprocess.PIPE)
    asked(fault, 'x')
    with harness.at_once(STALL):
        p.send_signal(signal.SIGINT)
        assert p.communicate()[0] == b'' and p.returncode == -signal.SIGINT
    alive(m)


def test_interrupted_remote(mounts, readers, work):
    """The same for a file of a remote carton whose server hangs after the mount."""
    c = Carton(method='stored').add('model/x', fault_bytes(20 * MIB))
    c.add('misc/local', b'in the carton\n').add('misc/large', bytes(9 * MIB), method='deflate')
    c.write(work / 'r.carton')
    server = Fault(root=work)
    try:
        m = mounts(source=server.url('r.carton', file='r.carton'))
        assert m.read('misc/local')
        harness.freeze(server.process.pid)
        cat, = readers(m / 'model/x')
        eventually('it waits', lambda: state(cat.pid) == 'S')
        alive(m)
        with harness.at_once(STALL):
            cat.send_signal(signal.SIGINT)
            cat.wait()
        alive(m)
        server.process.send_signal(signal.SIGCONT)
        assert m.sha('model/x') == digest(fault_bytes(20 * MIB)), 'as soon as it is back'
    finally:
        server.stop()


# ---- others ----


def test_killed_reader_harms_nobody(mounts, readers, fault):
    """Two read what is on its way; one is killed; the other gets all of it, by one request."""
    data = fault_bytes(SIZE)
    m = mounts(x=(data, fault.url('x', size=SIZE, rate=2 * MIB)))
    one, other = readers(m / 'model/x', m / 'model/x')
    eventually('it downloads', lambda: any(r['method'] == 'GET' and r['sent']
                                           for r in fault.requests('x')))
    one.kill()
    one.wait()
    assert other.communicate()[0] == data
    assert len([r for r in fault.requests('x') if r['method'] == 'GET']) == 1


def test_last_reader_killed_then_another(mounts, readers, fault):
    """Nobody waits any more, then somebody does: he is served."""
    data = fault_bytes(SIZE)
    m = mounts(x=(data, fault.url('x', size=SIZE, rate=2 * MIB)))
    one, = readers(m / 'model/x')
    eventually('it downloads', lambda: any(r['method'] == 'GET' and r['sent']
                                           for r in fault.requests('x')))
    one.kill()
    one.wait()
    assert m.read('model/x') == data


def hundred(mounts, readers, fault, **more):
    dead = {f'd{i}': (b'%d' % i, fault.url(f'd{i}', silent=1)) for i in range(100)}
    m = mounts(**dead, **more)
    cats = readers(*[m / f'model/d{i}' for i in range(100)])
    eventually('many wait', lambda: len(fault.requests()) >= 10)
    eventually('all wait', lambda: all(state(c.pid) == 'S' for c in cats))
    return m, cats


def test_hundred_parked_readers(mounts, readers, fault):
    """They are in nobody's way, and all can be interrupted."""
    m, cats = hundred(mounts, readers, fault)
    for _ in range(5):
        alive(m)
    assert m.sha('misc/large') == digest(bytes(9 * MIB))
    none_in_d_state([c.pid for c in cats] + [m.process.pid])
    with harness.at_once(STALL):
        for c in cats:
            c.send_signal(signal.SIGINT)
        assert {c.wait() for c in cats} == {-signal.SIGINT}
    alive(m)


def test_hundred_parked_readers_and_a_good_server(mounts, readers, fault):
    """Nor in the way of what another server has, while they wait and when they have gone."""
    data = [fault_bytes(SIZE, i) for i in range(2)]
    good = {f'g{i}': (data[i], fault.url(f'g{i}', size=SIZE, seed=i)) for i in range(2)}
    m, cats = hundred(mounts, readers, fault, **good)
    with harness.at_once(STALL):
        got = subprocess.run(['cat', m / 'model/g0'], stdout=subprocess.PIPE)
    assert got.stdout == data[0], 'while they wait'
    for c in cats:
        c.kill()
    with harness.at_once(STALL):
        again = subprocess.run(['cat', m / 'model/g1'], stdout=subprocess.PIPE)
    assert again.stdout == data[1], 'when gone'


TIMEOUT = 3
PARKED, READ = 990, 20


class Openers:
    """A thread for each path that opens it, and how that ended: (errno, seconds)."""

    def __init__(self, *paths):
        self.ended = [None] * len(paths)
        self.threads = [threading.Thread(target=self.open, args=x, daemon=True)
                        for x in enumerate(paths)]
        for t in self.threads:
            t.start()

    def open(self, i, path):
        before = time.monotonic()
        error = errno_of(lambda: os.close(os.open(path, os.O_RDONLY)))
        self.ended[i] = error, time.monotonic() - before

    def join(self):
        eventually('all opens end', lambda: None not in self.ended, why=lambda: f'{self.ended.count(None)} still wait')
        return {error for error, _ in self.ended}, min(seconds for _, seconds in self.ended)


def sockets(pid):
    """How many sockets a process has."""
    found = 0
    for path in Path(f'/proc/{pid}/fd').iterdir():
        with contextlib.suppress(OSError):
            found += os.readlink(path).startswith('socket:')
    return found


@pytest.fixture
def dead():
    """A server that takes connections and no more."""
    with socket.create_server(('127.0.0.1', 0), backlog=2 * PARKED) as s:
        yield s


def parked(dead):
    """Files of that server."""
    return {f'd{i}': (b'%d' % i, 'http://127.0.0.1:%d/%d' % (dead.getsockname()[1], i)) for i in range(PARKED)}


def connections(server):
    """How many have come that nobody has accepted."""
    found = 0
    server.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            found += 1
    return found


def open_all(m):
    return Openers(*(m / f'model/d{i}' for i in range(PARKED)))


def test_parked_readers_delay_nobody(mounts, fault, dead):
    """Another server's file and a local one as if they were not there; and the end comes at once."""
    good, other = ({f'g{i}': (fault_bytes(SIZE, i + n), fault.url(f'g{i + n}', size=SIZE, seed=i + n)) for i in range(READ)}
                   for n in (0, READ))
    m, alone = mounts(**good, **parked(dead)), mounts(**other)
    openers = open_all(m)
    eventually('all are connected', lambda: sockets(m.process.pid) > PARKED)
    took = {m: [], alone: []}
    for i in range(READ):
        for where, first in ((m, 0), (alone, READ)):
            before = time.monotonic()
            assert where.read(f'model/g{i}') == fault_bytes(SIZE, i + first)
            took[where].append(time.monotonic() - before)
        # the best of some, and more than this machine takes without them: it may be busy
        if min(took[m]) - min(took[alone]) < TIMEOUT / 10 * harness.SLOW:
            break
    else:
        raise AssertionError(f'beside the others: {took[m]}, without: {took[alone]}')
    alive(m)
    assert len(os.listdir(f'/proc/{m.process.pid}/task')) < PARKED / 10, 'none has a thread'
    with harness.at_once():
        m.process.send_signal(signal.SIGTERM)
        m.wait_end()
    assert not openers.join()[0] & {0, errno.ETIMEDOUT}, 'none has waited for the timeout'


def test_parked_readers_end_at_the_timeout(mounts, dead):
    m = mounts('-o', f'timeout={TIMEOUT}', **parked(dead))
    errors, shortest = open_all(m).join()
    # the others have waited for a busy machine, too
    assert errors == {errno.ETIMEDOUT} and shortest < 2 * TIMEOUT * harness.SLOW
    assert 0 < connections(dead) <= PARKED, 'no second wait'


@pytest.mark.parametrize('kind', [dict(chunked=1, zeros=1, size=1 << 40), dict(enc='gzip', size=20 * MIB)])
def test_size_of_what_never_ends(mounts, fault, kind):
    """Only all of it would tell the size: asking for it ends at the timeout."""
    m = mounts('-o', f'timeout={TIMEOUT}',
               x=(b'x', fault.url('x', norange=1, rate=50000, **kind)))
    before = time.monotonic()
    assert errno_of(os.stat, m / 'model/x') == errno.ETIMEDOUT
    assert time.monotonic() - before < TIMEOUT + TIMEOUT / 3 * harness.SLOW
    alive(m)


def test_last_reader_leaves_a_range_read(mounts, readers, work):
    """What nobody wants any more is not fetched on."""
    Carton(method='stored').add('misc/local', b'in the carton\n').add(
        'misc/large', bytes(9 * MIB), method='deflate').add(
        'model/x', fault_bytes(20 * MIB)).write(work / 'r.carton')
    server = Fault(root=work)
    try:
        m = mounts(source=server.url('r.carton', file='r.carton', rate=400000))
        idle = sockets(m.process.pid)
        cat, = readers(m / 'model/x')
        eventually('it is fetched', lambda: sockets(m.process.pid) > idle + 2)
        before = time.monotonic()
        cat.kill()
        cat.wait()
        eventually('no request is under way', lambda: sockets(m.process.pid) <= idle + 1)
        assert time.monotonic() - before < 2 * harness.SLOW
        assert sum(r['sent'] for r in server.requests('r.carton')) < 20 * MIB
    finally:
        server.stop()


# ---- the end ----


@pytest.mark.parametrize('how', ['SIGTERM', 'SIGINT', 'umount'])
@pytest.mark.parametrize('kind', ['silent', 'stall', 'backoff', 'running'])
def test_end(mounts, readers, fault, kind, how):
    """With opens parked, pauses between retries and downloads running: over within seconds."""
    options = {'backoff': dict(fail='99:503', retryafter=20), 'running': dict(rate=100000)}.get(
        kind) or DEAD[kind]
    m = mounts(**{n: (fault_bytes(SIZE, i), fault.url(n, size=SIZE, seed=i, **options))
                  for i, n in enumerate('abcd')})
    cats = readers(*[m / f'model/{n}' for n in 'abcd'])
    # a server that asks for a pause is asked for nothing else meanwhile
    if kind == 'backoff':
        eventually('one was asked for', lambda: any(fault.requests(n) for n in 'abcd'))
    else:
        for n in 'abcd':
            asked(fault, n)
    with harness.at_once(STALL):
        if how == 'umount':
            # A mount with a call under way is busy. The downloads go on without the readers.
            for c in cats:
                c.kill()
                c.wait()
            p = harness.unmount(m.path)
            assert p.returncode == 0, p.stderr
        else:
            m.process.send_signal(getattr(signal, how))
        m.wait_end()
    if how != 'umount':
        for c in cats:
            assert c.communicate()[0] == b'' and c.returncode == 1


def test_lazy_umount(mounts, readers, fault):
    """umount -l under waiting opens: they end at once, and so does the daemon."""
    m = mounts('-o', 'timeout=600', x=(fault_bytes(SIZE), fault.url('x', silent=1)))
    cats = readers(*[m / 'model/x'] * 20)
    asked(fault, 'x')
    assert harness.unmount(m.path, lazy=True).returncode == 0 and m.gone()
    for c in cats:
        assert c.communicate()[0] == b'' and c.returncode == 1
    m.wait_end()


def test_lazy_umount_leaves_open_files(mounts, readers, fault):
    """What is open can be read on."""
    data = fault_bytes(SIZE, 1)
    m = mounts('-o', 'timeout=600', x=(fault_bytes(SIZE), fault.url('x', silent=1)),
               good=(data, fault.url('good', size=SIZE, seed=1)))
    with open(m / 'model/good', 'rb', buffering=0) as f:
        cat, = readers(m / 'model/x')
        asked(fault, 'x')
        assert harness.unmount(m.path, lazy=True).returncode == 0 and m.gone()
        assert cat.communicate()[0] == b'' and cat.returncode == 1
        assert os.pread(f.fileno(), SIZE + 1, 0) == data
    m.wait_end()


# ---- time ----


def test_stalls_fail_over(mounts, readers, fault):
    """Less than 1 KiB/s for 10 s, in whatever way, and the next URL is tried."""
    data = {n: fault_bytes(SIZE, i) for i, n in enumerate(DEAD)}
    files = {n.replace(' ', '_'): (d, fault.url('dead', size=SIZE, seed=i, **DEAD[n]),
                                   fault.url('good', size=SIZE, seed=i))
             for i, (n, d) in enumerate(data.items())}
    m = mounts(**files)
    before = time.monotonic()
    cats = readers(*[m / f'model/{n}' for n in files])
    for c, d in zip(cats, data.values()):
        assert c.communicate()[0] == d
    # a HEAD that is not answered costs its ten seconds too
    assert STALL * 0.9 < time.monotonic() - before < STALL * 2.5 * harness.SLOW
    assert len([r for r in fault.requests('good') if r['method'] == 'GET']) == len(DEAD)


def test_silent_urls_leave_time_for_others(mounts, fault):
    """However short the deadline: each URL has its share of it."""
    data = fault_bytes(SIZE)
    dead = [fault.url(f'dead{i}', silent=1) for i in range(2)]
    m = mounts('-o', 'timeout=3', x=(data, *dead, fault.url('good', size=SIZE)))
    assert m.read('model/x') == data
    assert fault.requests('dead0') and fault.requests('dead1') and fault.requests('good')


def test_deadline_grows_while_bytes_arrive(mounts, fault):
    """-o timeout= is for silence: a download may take longer."""
    data = fault_bytes(SIZE)
    timeout = 1
    m = mounts('-o', f'timeout={timeout}', x=(data, fault.url('x', size=SIZE, rate=MIB)))
    before = time.monotonic()
    assert m.read('model/x') == data
    assert time.monotonic() - before > 2 * timeout


def test_deadline_of_a_view_grows_while_bytes_arrive(mounts, fault):
    """And those of the file that it is made of are its bytes."""
    data = st_bytes({'t': st('U8', (SIZE,), 0, SIZE)}, fault_bytes(SIZE))
    (Path(fault.root) / 'w').write_bytes(data)
    m = mounts('-o', 'timeout=1', **{'w.safetensors': (data, fault.url('w', file='w', rate=MIB))})
    before = time.monotonic()
    assert 't.bin' in os.listdir(m / 'views/model/w.safetensors')
    assert time.monotonic() - before > 2


def test_failed_open_is_retried_by_the_next(mounts, fault):
    data = fault_bytes(50)
    m = mounts('-o', 'timeout=1', x=(data, fault.url('x', size=50, fail='4:503', retryafter=30)))
    assert errno_of(m.read, 'model/x') in (errno.EIO, errno.ETIMEDOUT)
    eventually('it can be read', lambda: errno_of(m.read, 'model/x') == 0, why=m.log)
    assert m.read('model/x') == data and re.search('model/x|/x', m.log())
