# SPDX-License-Identifier: Apache-2.0
"""Servers that are away and come back: who reads what is mounted waits, all others are told soon."""
import contextlib
import errno
import os
import signal
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import harness
import relay
import served
from harness import CARTONCTL, CARTONFS, SLOW, ctl, eventually, run
from hub import Hub
from origin import (MIB, PRIVATE, Fault, LinkedCarton, as_expected, errno_of, fault_bytes, lines_of, needs_root,
                    reserved_port)
from zipwriter import Carton

SIZE = 20 * MIB
LONG = 600                              # a timeout that no test reaches
# what a server does that is away; each is seen more often than anything else is tried
AWAY = {'503': '503', '429': '429', '502': '502', '504': '504', 'reset': '0'}
TIMES = 8


@pytest.fixture
def linked(tmp_path, mount_fg, cache):
    """linked(url, size=…) -> a mount whose model/x, of what the fault server sends, is at that URL."""
    with contextlib.ExitStack() as stack:
        def make(url, *options, size=SIZE):
            c = LinkedCarton().link('model/x', fault_bytes(size), url).add('misc/local', b'in the carton\n')
            return stack.enter_context(mount_fg(c.write(tmp_path / 'm.carton'), *PRIVATE, *cache.options,
                                                '-o', f'timeout={LONG}', *options))
        yield make


@pytest.fixture
def later(tmp_path):
    """A port where nobody listens, and a function that starts a fault server there."""
    port, s = reserved_port()
    with contextlib.ExitStack() as stack:
        def start():
            s.close()
            f = Fault(port=port, root=tmp_path)
            stack.callback(f.stop)
            return f
        yield port, start
        s.close()


def reader(m, name='model/x'):
    """A thread that reads it; what it read is appended to its `got`."""
    t = threading.Thread(target=lambda: t.got.append(m.read(name)))
    t.got = []
    t.start()
    return t


def seen(m, word):
    eventually(f'{word} is logged', lambda: lines_of(m.log(), word), why=m.log)


@pytest.mark.parametrize('kind', AWAY)
def test_away_for_some_requests(linked, fault, kind):
    """Each request in vain is the only one of its time, and none is sent in vain afterwards."""
    m = linked(fault.url('x', size=SIZE, fail=f'{TIMES}:{AWAY[kind]}'))
    assert m.read('model/x') == fault_bytes(SIZE)
    asked = fault.requests('x')
    assert [r for r in asked[:TIMES] if r['status'] != int(AWAY[kind])] == []
    assert {r['status'] for r in asked[TIMES:]} <= {200, 206}
    assert sum(r['sent'] for r in asked if r['method'] == 'GET') <= SIZE + TIMES * 10 + 1


@pytest.mark.parametrize('kind', AWAY)
def test_away_for_a_while_in_a_remote_carton(fault, mount_fg, cache, tmp_path, kind):
    """The same of a carton at a URL: what is read once it is mounted waits, by several connections."""
    c = Carton(method='stored').add('model/x', fault_bytes(SIZE))
    c.write(os.path.join(fault.root, 'r.carton'))
    fail = f'{TIMES}:{AWAY[kind]}'
    # the server knows paths, and a mount goes on with the URL that it is given
    with mount_fg(fault.url('r.carton', file='r.carton'), *cache.options, '-o', f'timeout={LONG}') as m:
        p = ctl('refresh', m.path, fault.url('r.carton', file='r.carton', fail=fail))
        assert p.returncode == 0, p.stderr
        as_expected(m, c)
    asked = [r for r in fault.requests() if 'fail=' in r['path']]
    assert len([r for r in asked if r['status'] == int(AWAY[kind])]) == TIMES


def test_many_readers_of_one_that_is_away(fault, mount_fg, cache, tmp_path):
    """They ask one by one: the requests in vain are those of the server, not of each reader."""
    c, n = LinkedCarton(), 16
    for i in range(n):
        c.link(f'model/{i}', fault_bytes(1000, seed=i),
               fault.url(f'f{i}', size=1000, seed=i, **({'fail': f'{TIMES}:503'} if i == 0 else {'delay': 1})))
    with mount_fg(c.write(tmp_path / 'm.carton'), *PRIVATE, *cache.options, '-o', f'timeout={LONG}') as m:
        with ThreadPoolExecutor(n) as them:
            got = list(them.map(lambda i: m.read(f'model/{i}'), range(n)))
        assert got == [fault_bytes(1000, seed=i) for i in range(n)]
    # a HEAD and a GET for each at most
    assert len(fault.requests()) <= 2 * n + TIMES


def test_nobody_listens_for_a_while(linked, later):
    """The reader waits; what is here can be read; then the server is there, and the bytes are right."""
    port, start = later
    m = linked(f'http://127.0.0.1:{port}/size={SIZE}/x')
    t = reader(m)
    seen(m, 'x: .*[Cc]onnect')
    assert m.read('misc/local') == b'in the carton\n' and t.is_alive()
    fault = start()
    t.join()
    assert t.got == [fault_bytes(SIZE)]
    assert sum(r['sent'] for r in fault.requests('x') if r['method'] == 'GET') == SIZE


@pytest.mark.parametrize('how', ['interrupt', 'umount', 'SIGTERM'])
def test_who_waits_can_be_told_to_end(linked, later, how):
    """A reader of a server that is away, and the mount while one waits."""
    m = linked(f'http://127.0.0.1:{later[0]}/size={SIZE}/x')
    cat = subprocess.Popen(['cat', m / 'model/x'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    seen(m, 'x: .*[Cc]onnect')
    assert cat.poll() is None
    with harness.at_once():
        if how == 'interrupt':
            cat.send_signal(signal.SIGINT)
        elif how == 'umount':
            assert harness.unmount(m.path, lazy=True).returncode == 0
        else:
            m.process.send_signal(signal.SIGTERM)
        cat.communicate()
        assert cat.returncode == (-signal.SIGINT if how == 'interrupt' else 1)
        if how != 'interrupt':
            m.wait_end()


def test_other_programs_are_told_soon(later, tmp_path, cache):
    """The mount of a carton and cartonctl do not wait for the timeout."""
    url = f'http://127.0.0.1:{later[0]}/m.carton'
    c = LinkedCarton().link('model/x', b'text', url)
    (tmp_path / 'mnt').mkdir()
    with harness.at_once(LONG / 10):
        p = run(CARTONFS, *cache.options, '-o', f'timeout={LONG}', url, tmp_path / 'mnt')
        assert p.returncode == 75 and 'not mounted: Failed to connect to ' in p.stderr
        p = ctl('info', cache.flag, f'--timeout={LONG}', url)
        assert p.returncode and 'onnect' in p.stderr
        p = ctl('fetch', cache.flag, f'--timeout={LONG}', '--private-links', c.write(tmp_path / 'm.carton'))
        assert p.returncode and 'onnect' in p.stderr


@pytest.mark.parametrize('url, want', [('http://127.0.0.1:{}/x', errno.ECONNREFUSED),
                                       ('http://nobody.invalid:{}/x', errno.EHOSTUNREACH)])
def test_error_at_the_deadline(linked, later, url, want):
    """It is why the server is not reached, also for who only waited for what others asked."""
    m = linked(url.format(later[0]), '-o', 'timeout=2')
    with ThreadPoolExecutor(8) as them:
        assert {*them.map(lambda _: errno_of(m.read, 'model/x'), range(8))} == {want}


def test_no_answer_at_the_deadline(linked):
    """The last request has none, and the reader is told how those before it have failed."""
    port, s = reserved_port()
    with s:
        m = linked(f'http://127.0.0.1:{port}/x', '-o', 'timeout=4')
        with ThreadPoolExecutor(1) as it:
            x = it.submit(errno_of, m.read, 'model/x')
            seen(m, 'x: .*[Cc]onnect')
            s.listen()
            assert x.result() == errno.ECONNREFUSED
            s.settimeout(0)
            s.accept()[0].close()


@needs_root
def test_name_that_is_not_known_for_a_while(fault, tmp_path, cache):
    """In a namespace with an /etc/hosts of its own."""
    hosts, resolv, where = tmp_path / 'hosts', tmp_path / 'resolv', tmp_path / 'mnt'
    hosts.write_text('127.0.0.1 localhost\n')
    resolv.write_text('nameserver 127.0.0.1\noptions attempts:1\n')
    where.mkdir()
    url = fault.url('x', size=SIZE).replace('127.0.0.1', 'carton.test')
    path = LinkedCarton().link('model/x', fault_bytes(SIZE), url).write(tmp_path / 'm.carton')
    log = tmp_path / 'log'
    script = 'mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/resolv.conf && shift 2 && "$@" & ' \
             'until mountpoint -q "$0"; do kill -0 $! || exit; sleep .05; done; cat "$0/model/x"; umount -l "$0"; wait'
    with open(log, 'wb') as err:
        p = subprocess.Popen(['unshare', '--mount', 'sh', '-c', script, where, hosts, resolv, CARTONFS, '-f', *PRIVATE,
                              *cache.options, '-o', f'timeout={LONG}', path, where], stdout=subprocess.PIPE,
                             stderr=err, env=harness.environment())
        eventually('it does not resolve', lambda: b'resolve' in log.read_bytes() or p.poll() is not None)
        assert not fault.requests()
        with open(hosts, 'a') as f:         # the file that is mounted stays
            f.write('127.0.0.1 carton.test\n')
        out, _ = p.communicate()
    assert out == fault_bytes(SIZE), log.read_text()


@needs_root
def test_the_first_of_two_addresses_is_silent(tmp_path, cache):
    """The second is asked in time, however short the time is."""
    hosts, c = tmp_path / 'hosts', Carton().add('model/x', b'text')
    hosts.write_text('127.0.0.1 carton.test\n127.0.0.2 carton.test\n')
    data = c.write(tmp_path / 'm.carton').read_bytes()

    def answer(h):
        h.send_response(200)
        h.send_header('Content-Length', str(len(data)))
        h.end_headers()
        if h.command == 'GET':
            h.wfile.write(data)

    with contextlib.ExitStack() as queue:
        web = queue.enter_context(served.serving(served.Server(('127.0.0.2', 0), served.Handler)))
        web.answer = answer
        silent = queue.enter_context(socket.create_server(('127.0.0.1', web.server_port), backlog=0))
        for _ in range(4):              # whoever comes then gets no answer
            s = queue.enter_context(socket.socket())
            s.setblocking(False)
            s.connect_ex(silent.getsockname())
        p = run('unshare', '--mount', 'sh', '-c', 'mount --bind "$0" /etc/hosts && exec "$@"', hosts, CARTONCTL, 'hash',
                cache.flag, f'--timeout={int(2 * SLOW)}', f'http://carton.test:{web.server_port}/m.carton')
    assert p.stdout == c.model_hash() + '\n', p.stderr


def test_file_that_is_reset_by_a_server_that_is_there(fault, mount_fg, cache, tmp_path):
    """It is not waited for while others are served."""
    c, n = LinkedCarton().link('model/x', b'text', fault.url('x', size=4, refuse=1)), 300
    for i in range(n):
        c.link(f'model/{i}', fault_bytes(100, seed=i), fault.url(f'f{i}', size=100, seed=i))
    with mount_fg(c.write(tmp_path / 'm.carton'), *PRIVATE, *cache.options, '-o', f'timeout={LONG}') as m:
        others = iter(range(n))
        with ThreadPoolExecutor(1) as it:
            x = it.submit(errno_of, m.read, 'model/x')
            eventually('it is given up', lambda: m.read(f'model/{next(others)}') and x.done())
        assert x.result() in (errno.EIO, errno.ECONNRESET)


class HubWithBadNode(Hub):
    """The first redirects of a file lead to a node where nobody listens."""

    def __init__(self, files, node):
        super().__init__(files)
        self.node = node

    def resolve(self, h):
        if h.path.endswith('/x') and len([p for p in self.asked if p == h.path]) < TIMES:
            self.asked.append(h.path)
            h.send_response(302)
            h.send_header('Location', f'http://127.0.0.1:{self.node}/x')
            h.send_header('Content-Length', '0')
            h.end_headers()
        else:
            super().resolve(h)


def test_redirect_to_a_node_that_is_away(later, mount_fg, cache, tmp_path):
    """The hub is asked again, until it leads elsewhere; it is not bad itself."""
    data = {n: fault_bytes(SIZE, seed=i) for i, n in enumerate('xy')}
    with HubWithBadNode(data, later[0]) as hub:
        c = LinkedCarton()
        for n, text in data.items():
            c.link(f'model/{n}', text, hub.url(n))
        with mount_fg(c.write(tmp_path / 'm.carton'), *PRIVATE, *cache.options, '-o', f'timeout={LONG}') as m:
            t = reader(m)
            seen(m, 'x: .*[Cc]onnect')
            assert m.read('model/y') == data['y']
            t.join()
            assert t.got == [data['x']]


# ---- what the server says ----

def test_rate_limit(linked, fault):
    """The hub has no Retry-After; nothing is sent before its `t`."""
    pause = 2
    m = linked(fault.url('x', size=1000, fail='1:429', ratelimit=f'"api";r=0;t={pause}'), size=1000)
    with harness.at_once():
        assert m.read('model/x') == fault_bytes(1000)
    first, second, *_ = fault.requests('x')
    assert first['status'] == 429 and second['status'] in (200, 206)
    assert second['began'] - first['began'] >= pause, fault.requests('x')


def test_rate_limit_behind_the_deadline(linked, fault):
    m = linked(fault.url('x', size=1000, fail='9:429', ratelimit=f'"api";r=0;t={2 * LONG}'), size=1000)
    with harness.at_once():
        assert errno_of(m.read, 'model/x') == errno.ETIMEDOUT
    assert len(fault.requests('x')) <= 2


# ---- faults ----

def test_server_that_is_stopped(linked, tmp_path):
    """Its connections are there, and nothing comes, until each request has timed out."""
    fault = Fault(root=tmp_path)
    try:
        m = linked(fault.url('x', size=SIZE, rate=4 * MIB))
        t = reader(m)
        eventually('something has come', lambda: any(r['sent'] for r in fault.requests('x')))
        harness.freeze(fault.process.pid)
        seen(m, 'x: the server has stopped sending')
        fault.process.send_signal(signal.SIGCONT)
        t.join()
        assert t.got == [fault_bytes(SIZE)]
    finally:
        fault.process.send_signal(signal.SIGCONT)
        fault.stop()


def test_link_that_breaks_again_and_again(linked, fault):
    """After each so many bytes. What has come is not fetched again, but for what was under way."""
    breaks, part = 5, 3 * MIB
    link = relay.Relay(fault.port, rate=200)
    port, down = link.port, 0
    try:
        m = linked(f'http://127.0.0.1:{port}/size={SIZE}/x')
        t = reader(m)
        for _ in range(breaks):
            eventually('some more has come', lambda link=link: link.counts()['down'] >= part)
            down += link.stop()['down']
            link = relay.Relay(fault.port, rate=200, listen=port)
        t.join()
        down += link.counts()['down']
        assert t.got == [fault_bytes(SIZE)]
        assert down <= 2 * SIZE
    finally:
        link.stop()


@pytest.mark.parametrize('kind', ['502', '503', '0'])
@pytest.mark.parametrize('proxy', [False, True], ids=['server', 'proxy'])
def test_one_that_flaps(fault, mount_fg, cache, tmp_path, kind, proxy):
    """Some requests are answered, and as many are not, again and again: no byte comes twice, and the reader has all."""
    n, size = (6, SIZE // 2) if kind == '503' else (2, SIZE)    # one that is overloaded gets fewer and fewer
    url = fault.url('x', size=size, flap=f'{n}:{kind}')
    if proxy:
        url = url.replace(f'127.0.0.1:{fault.port}', 'carton.test')
    path = LinkedCarton().link('model/x', fault_bytes(size), url).write(tmp_path / 'm.carton')
    env = {'http_proxy': fault.url('')} if proxy else {}
    with mount_fg(path, *PRIVATE, *cache.options, '-o', f'timeout={LONG}', env=env) as m:
        assert m.read('model/x') == fault_bytes(size)
    asked = fault.requests('x')
    bad = [r for r in asked if r['status'] == int(kind)]
    assert 2 <= len(bad) <= len(asked) / 2
    assert sum(r['sent'] for r in asked if r['status'] in (200, 206)) <= size + MIB


def test_proxy_that_is_away_for_a_while(later, mount_fg, cache, tmp_path):
    """It is waited for as the server would be, which is asked through it only."""
    port, start = later
    url = f'http://carton.test/size={SIZE}/x'
    path = LinkedCarton().link('model/x', fault_bytes(SIZE), url).write(tmp_path / 'm.carton')
    with mount_fg(path, *PRIVATE, *cache.options, '-o', f'timeout={LONG}',
                  env={'http_proxy': f'http://127.0.0.1:{port}'}) as m:
        t = reader(m)
        seen(m, 'x: .*(onnect|proxy)')
        assert t.is_alive()
        fault = start()
        t.join()
        assert t.got == [fault_bytes(SIZE)]
        assert sum(r['sent'] for r in fault.requests('x') if r['method'] == 'GET') == SIZE


def test_answers_that_are_short(linked, fault):
    """A server that is there and gives nothing is not waited for."""
    m = linked(fault.url('x', size=SIZE, truncate=10))
    with harness.at_once(LONG / 10):
        assert errno_of(m.read, 'model/x') in (errno.EIO, errno.ECONNRESET)
    assert len(fault.requests('x')) < 100


def test_file_that_is_refused_by_a_server_that_serves_others(fault, mount_fg, cache, tmp_path):
    """Who reads it is told at the deadline, which what others are served does not put off."""
    c, n, timeout = LinkedCarton().link('model/x', b'text', fault.url('x', size=4, fail=f'{10**9}:429')), 2000, 3
    for i in range(n):
        c.link(f'model/{i}', fault_bytes(100 + i), fault.url(f'f{i}', size=100 + i))
    with mount_fg(c.write(tmp_path / 'm.carton'), *PRIVATE, *cache.options, '-o', f'timeout={timeout}') as m:
        others = iter(range(n))
        with ThreadPoolExecutor(1) as it:
            x = it.submit(errno_of, m.read, 'model/x')
            eventually('it is given up', lambda: errno_of(m.read, f'model/{next(others)}') is not None and x.done())
        assert x.result() == errno.ETIMEDOUT
    assert [r for r in fault.requests('x') if r['status'] != 429] == []
