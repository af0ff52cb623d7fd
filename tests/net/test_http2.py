# SPDX-License-Identifier: Apache-2.0
"""
Origins that speak HTTP/2: a real nginx with TLS, and between it and cartonfs, where connections have
to break, a relay of bytes.
"""
import concurrent.futures
import contextlib
import errno
import random
import select
import signal
import socket
import tempfile
import threading
import time

import pytest

import harness
from harness import CARTONFS, ctl, eventually, mountinfo, run
from origin import (MIB, PRIVATE, LinkedCarton, as_expected, errno_of, gzipped, lines_of, nginx_at)
from zipwriter import Carton, sample


def rng_bytes(n, seed=0):
    return random.Random(seed).randbytes(n)


@pytest.fixture(scope='module')
def h2(session_dir, certificate):
    """An nginx with a master, which can be told to reload."""
    where = tempfile.mkdtemp(prefix='h2', dir=session_dir)
    more = ('location /closes/ { return 444; } '
            'location /away/ { return 301 https://$host:$server_port/m.carton; } '
            'location /plain/ { return 301 http://$host/m.carton; }')
    with nginx_at(where, tls=certificate, master=True, more=more, rate=MIB) as n:
        yield n


@pytest.fixture(autouse=True)
def fresh_log(h2):
    h2.clear()


@pytest.fixture
def options(certificate, cache):
    return [*PRIVATE, *cache.options, '-o', f'cacert={certificate[0]}']


def url(n, path, port=None):
    return f'https://127.0.0.1:{port or n.tls_port}/{path}'


def all_http2(n, name):
    """The requests for a file, which were all made by HTTP/2."""
    asked = n.requests(name)
    assert asked and {r['protocol'] for r in asked} == {'HTTP/2.0'}
    return asked


class Relay:
    """
    Carries connections to a port. `cut`: after how many bytes from the server each of the next
    connections is reset, or with `stall` carries no more.
    """

    def __init__(self, port, stall=False):
        self.to, self.cut, self.stall, self.connections = port, [], stall, 0
        self.ending = threading.Event()
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self):
        while not self.ending.is_set():
            if select.select([self.listener], [], [], 0.05)[0]:
                self.connections += 1
                t = threading.Thread(target=self.carry, args=(
                    self.listener.accept()[0], self.cut.pop(0) if self.cut else None))
                self.threads.append(t)
                t.start()

    def carry(self, client, cut):
        server = socket.create_connection(('127.0.0.1', self.to))
        ends, seen = {client: server, server: client}, 0
        with client, server, contextlib.suppress(OSError):
            while not self.ending.is_set():
                for s in select.select(list(ends), [], [], 0.05)[0]:
                    data = s.recv(65536)
                    if not data:
                        return
                    seen += len(data) if s is server else 0
                    if cut is not None and seen >= cut:
                        if self.stall:
                            self.ending.wait()
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes(
                            [1, 0, 0, 0, 0, 0, 0, 0]))
                        return
                    ends[s].sendall(data)

    def stop(self):
        self.ending.set()
        for t in self.threads:
            t.join()
        self.listener.close()


@pytest.fixture
def relay(h2):
    """relay(stall=False): a Relay to the server."""
    made = []

    def make(**kw):
        made.append(Relay(h2.tls_port, **kw))
        return made[-1]
    yield make
    for r in made:
        r.stop()


# ---- what works ----

@pytest.mark.parametrize('method', ['stored', 'deflate', 'zstd'])
def test_ranges(h2, mount, options, method):
    c = sample(method).add('model/large', rng_bytes(5 * MIB), level=1)
    c.write(h2.root / f'{method}.carton')
    with mount(url(h2, f'{method}.carton'), *options) as m:
        as_expected(m, c)
    asked = all_http2(h2, f'{method}.carton')
    assert {r['status'] for r in asked if r['method'] == 'GET'} == {206}
    assert len({r['conn'] for r in asked}) < len(asked), 'connections are used again'


def test_without_ranges(h2, mount, options):
    c = sample('stored').add('model/large', rng_bytes(3 * MIB))
    c.write(h2.root / 'norange.carton')
    with mount(url(h2, 'norange/norange.carton'), *options) as m:
        as_expected(m, c)
    assert 200 in {r['status'] for r in all_http2(h2, 'norange.carton')}


def test_many_readers(h2, mount, options):
    """At once, on whatever threads: each byte once, over no more connections than can be busy together."""
    n, size = 12, 3 * MIB
    data = {f'model/{i}': rng_bytes(size, i) for i in range(n)}
    c = Carton(method='stored')
    for name, content in data.items():
        c.add(name, content)
    c.write(h2.root / 'many.carton')
    with mount(url(h2, 'many.carton'), *options) as m, concurrent.futures.ThreadPoolExecutor(n) as pool:
        assert dict(zip(data, pool.map(m.read, data))) == data
    asked = all_http2(h2, 'many.carton')
    assert n * size <= sum(r['sent'] for r in asked) < (n + 1) * size
    assert len({r['conn'] for r in asked}) <= n + 1


def linked(h2, work, port=None):
    """A carton of links: from one place, coded, after URLs that fail, of a larger file."""
    data = {n: rng_bytes(300_000, n) for n in ('one', 'coded', 'several', 'empty')}
    data |= dict(empty=b'', large=rng_bytes(20 * MIB))
    for name, content in data.items():
        h2.put(name, content)
    h2.put('as-gzip/coded', gzipped(data['coded']))
    h2.put('wrong', rng_bytes(300_000, 'other'))
    h2.put('short', data['several'][:-1])
    paths = dict(coded=['as-gzip/coded'],
                 several=['gone/x', 'denied/x', 'closes/x', 'wrong', 'short', 'several'])
    c = LinkedCarton().add('misc/local', b'in the carton\n')
    for name, content in data.items():
        c.link(f'model/{name}', content, *(url(h2, p, port) for p in paths.get(name, [name])))
    c.write(work / 'm.carton')
    return c


def test_links(h2, mount_fg, work, options):
    c = linked(h2, work)
    with mount_fg(work / 'm.carton', *options) as m:
        as_expected(m, c)
        assert lines_of(m.log(), 'gone/x: ') and lines_of(m.log(), 'denied/x: ')
    for name in ('one', 'coded', 'several', 'large', 'x', 'wrong', 'short'):
        all_http2(h2, name)


@pytest.mark.parametrize('path, says', [('gone/m', '404'), ('denied/m', '403|[Pp]ermission'),
                                        ('closes/m', 'close|empty|http|HTTP|connection'),
                                        ('plain/m', 'redirect|https'), ('nothing', '404')])
def test_refused(h2, point, options, path, says):
    where = point()
    p = run(CARTONFS, *options, '-o', 'timeout=5', url(h2, path), where)
    # 75: worth another try later
    assert p.returncode == (75 if path == 'closes/m' else 32) and mountinfo(where) is None, p.stderr
    assert lines_of(p.stderr, says) and 'not mounted' in p.stderr.splitlines()[-1], p.stderr


def test_links_that_fail(h2, mount_fg, work, options):
    """Each with an error of its own, at once; the mount goes on."""
    c = LinkedCarton().add('misc/local', b'in the carton\n')
    for i, path in enumerate(['gone/x', 'denied/x', 'wrong-length']):
        h2.put('wrong-length', b'x' * 10)
        c.link(f'model/{i}', rng_bytes(1000, i), url(h2, path))
    c.write(work / 'm.carton')
    with mount_fg(work / 'm.carton', *options) as m:
        got = [m.error(f'model/{i}') for i in range(3)]
        assert got[2] == 'EIO' and '' not in got, got
        assert m.read('misc/local') == b'in the carton\n'
        for path in ('gone/x', 'denied/x', 'wrong-length'):
            assert lines_of(m.log(), path), m.log()


def test_redirect(h2, mount, options):
    c = sample()
    c.write(h2.root / 'm.carton')
    with mount(url(h2, 'away/x'), *options) as m:
        as_expected(m, c)


# ---- connections that end ----

def test_connections_break(h2, relay, mount, work, options):
    """Reset in the middle of frames, again and again: what has come is kept."""
    r = relay()
    c = linked(h2, work, r.port)
    with mount(work / 'm.carton', *options, '-o', 'timeout=20') as m:
        r.cut += [100, 5000, 70_000, MIB, 3 * MIB, 5 * MIB]
        assert m.read('model/large') == c.files()['model/large']
        assert r.cut == [] and r.connections > 6
        as_expected(m, c)


def test_connections_stall(h2, relay, mount, work, options):
    """No byte comes any more: the read ends, and the next one works."""
    r = relay(stall=True)
    c = linked(h2, work, r.port)
    with mount(work / 'm.carton', *options, '-o', 'timeout=2') as m:
        r.cut += [20_000] * 40
        before = time.monotonic()
        assert errno_of(m.read, 'model/one') == errno.ETIMEDOUT
        assert time.monotonic() - before < 10 * harness.SLOW
        r.cut.clear()
        as_expected(m, c)


def reload(n):
    """The server starts a new worker and tells the old one to end: its connections get a GOAWAY."""
    pid = int((n.dir / 'pid').read_text())

    def workers():
        return set(open(f'/proc/{pid}/task/{pid}/children').read().split())
    old = workers()
    n.process.send_signal(signal.SIGHUP)
    eventually('a new worker', lambda: workers() - old)


def test_goaway_between_requests(h2, mount_fg, work, options):
    c = linked(h2, work)
    with mount_fg(work / 'm.carton', *options) as m:
        for path in ('model/one', 'model/coded', 'model/several', 'model/large', 'model/empty'):
            assert errno_of(m.read, path) == 0, m.log()
            assert m.read(path) == c.files()[path]
            reload(h2)
    assert len({r['conn'] for r in h2.requests()}) >= 4, 'none is used after its GOAWAY'


@pytest.mark.parametrize('kind', ['link', 'carton'])
def test_goaway_during_requests(h2, mount, options, work, kind):
    """Reloads while a large file is on its way."""
    data = rng_bytes(12 * MIB)
    if kind == 'link':
        h2.put('slow-one', data)
        c = LinkedCarton().link('model/large', data, url(h2, 'slow/slow-one'))
        source = c.write(work / 'm.carton')
    else:
        c = Carton(method='stored').add('model/large', data)
        c.write(h2.root / 'slow.carton')
        source = url(h2, 'slow/slow.carton')
    with mount(source, *options) as m:
        got = []
        t = threading.Thread(target=lambda: got.append(m.read('model/large')))
        t.start()
        reloads = 0
        while t.is_alive():
            reload(h2)
            reloads += 1
            t.join(0.3)
        assert reloads > 1 and got == [data]
        as_expected(m, c)


def test_goaway_at_once(certificate, mount, cache, session_dir, work):
    """After two requests on a connection the server says GOAWAY, every time."""
    with nginx_at(work / 'few', tls=certificate,
                  more='keepalive_requests 2; http2_max_concurrent_streams 1;') as n:
        c = sample('stored').add('model/large', rng_bytes(10 * MIB))
        for i in range(20):
            c.add(f'model/small{i}', rng_bytes(100_000, i))
        c.write(n.root / 'm.carton')
        with mount(url(n, 'm.carton'), *cache.options, '-o', f'cacert={certificate[0]}') as m:
            as_expected(m, c)
        asked = all_http2(n, 'm.carton')
        assert len({r['conn'] for r in asked}) * 2 >= len(asked) > 10


def test_ctl(h2, certificate, cache):
    c = sample()
    c.write(h2.root / 'ctl.carton')
    p = ctl('verify', f'--cacert={certificate[0]}', cache.flag, url(h2, 'ctl.carton'))
    assert p.returncode == 0, p.stdout + p.stderr
