# SPDX-License-Identifier: Apache-2.0
"""
tests/tools/relay is the link that it says. Times are compared with other times of the same run: lower bounds hold on
any machine; for upper bounds, the best of some tries counts.
"""
import contextlib
import select
import socket
import socketserver
import threading
import time

import pytest

from harness import eventually, run
from relay import PROGRAM, Relay, relay
from served import serving

RTT = 200       # ms
MBIT = 80
MIB = 1 << 20
QUANTUM = 16 << 10     # what a connection sends in its turn


class Sender(socketserver.StreamRequestHandler):
    """Answers each line, a number, with as many bytes; `reset` with a reset."""

    def handle(self):
        for line in self.rfile:
            if line == b'reset\n':
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\1\0\0\0\0\0\0\0')
                return
            self.wfile.write(bytes(int(line)))
        self.wfile.write(b'end')


@pytest.fixture(scope='module')
def server():
    class Server(socketserver.ThreadingTCPServer):
        daemon_threads, allow_reuse_address, request_queue_size = True, True, 64
        # no shutdown() before the close, which may be a reset
        shutdown_request = socketserver.ThreadingTCPServer.close_request

    with serving(Server(('127.0.0.1', 0), Sender)) as s:
        yield s.server_address[1]


def connect(r):
    return socket.create_connection(('127.0.0.1', r.port))


def ask(s, n):
    s.sendall(f'{n}\n'.encode())
    while n:
        got = len(s.recv(min(n, MIB)))
        assert got, f'{n} bytes are missing'
        n -= got


def timed(fn, *args):
    start = time.monotonic()
    fn(*args)
    return (time.monotonic() - start) * 1000


def new(r, n=1):
    with connect(r) as s:
        ask(s, n)


def best(tries, fn, *args):
    return min(timed(fn, *args) for _ in range(tries))


def test_round_trip(server):
    """A request takes a round trip; two on a new connection."""
    with relay(server, rtt=RTT) as r:
        first = best(4, new, r)
        with connect(r) as s:
            ask(s, 1)
            kept = best(4, ask, s, 1)
    assert kept >= RTT and first >= 2 * RTT
    assert 1.6 < first / kept < 2.4


def test_rate(server):
    """Bytes of all connections together have the rate."""
    with relay(server, rate=MBIT) as r:
        with connect(r) as s:
            one, four = (best(3, ask, s, n * MIB) for n in (1, 4))

        def all_at_once():
            them = [threading.Thread(target=new, args=(r, MIB)) for _ in range(4)]
            for t in them:
                t.start()
            for t in them:
                t.join()
        beside = best(3, all_at_once)
    assert one >= MIB * 8 / MBIT / 1000 * .99
    assert 3 < four / one < 5 and 3 < beside / one < 5


def test_turns(server):
    """A connection that has as much to send as the others gets as much of the link."""
    size = 20 * QUANTUM
    with relay(server, rate=16) as r, contextlib.ExitStack() as stack:
        them = {stack.enter_context(connect(r)): 0 for _ in range(4)}
        for s in them:
            ask(s, 1)
        for s in them:
            s.sendall(f'{size}\n'.encode())
        while max(them.values()) < size:
            for s in select.select(list(them), [], [])[0]:
                them[s] += len(s.recv(MIB))
        assert min(them.values()) >= size - 4 * QUANTUM, them


def test_slow_start(server):
    """1 MiB is 10 + 20 + … segments: 6 more round trips, on a new connection only."""
    seconds = {}
    for slow in (False, True):
        with relay(server, rtt=RTT, rate=1000, slow_start=slow) as r:
            with connect(r) as s:
                seconds[slow] = timed(ask, s, MIB)
                again = best(3, ask, s, MIB)
    assert seconds[True] > seconds[False] + 4 * RTT
    assert seconds[True] > again + 4 * RTT
    assert again < 4 * RTT


@pytest.mark.needs_plain_build      # memory that is freed counts with the others
def test_backpressure(server):
    """What a client does not read stays with the server: the relay keeps a window of it."""
    with relay(server, rtt=1, rate=1000) as r, connect(r) as s:
        s.sendall(b'100000000\n')
        down = [0, 0, 0]

        def same():
            down.append(r.counts()['down'])
            return down[-1] > MIB and len(set(down[-100:])) == 1 and len(down) > 100
        eventually('the relay takes no more', same)
        assert down[-1] < 50 * MIB
        with open(f'/proc/{r.process.pid}/status') as f:
            peak = next(int(line.split()[1]) for line in f if line.startswith('VmHWM'))
        assert peak < 16 << 10
        left = 100_000_000
        while left:
            left -= len(s.recv(MIB))


def test_ends(server):
    """The end of either direction arrives behind all that was sent; so does a reset. The counts are of all."""
    r = Relay(server, rtt=20)
    with connect(r) as s:
        s.sendall(b'5\n')
        s.shutdown(socket.SHUT_WR)
        with s.makefile('rb') as f:
            assert f.read() == bytes(5) + b'end'
    eventually('the connection is gone', lambda: r.counts()['open'] == 0)
    with connect(r) as s:
        s.sendall(b'3\nreset\n')
        with pytest.raises(ConnectionResetError), s.makefile('rb') as f:
            f.read()
    eventually('the connection is gone', lambda: r.counts()['open'] == 0)
    assert r.stop() == dict(connections=2, open=0, up=2 + 8, down=5 + 3 + 3)
    assert r.process.returncode == 0


def test_nobody_listens():
    """A reset, after a round trip."""
    with socket.socket() as held:
        held.bind(('127.0.0.1', 0))
        with relay(held.getsockname()[1], rtt=RTT) as r, connect(r) as s:
            def answer():
                with pytest.raises(ConnectionResetError):
                    s.recv(1)
            assert timed(answer) >= RTT


@pytest.mark.parametrize('words, text', [
    (['0'], 'usage'), (['0', '1', '--rtt=x'], '--rtt: not a number'), (['0', '1', '--rate=-1'], '--rate: not a number'),
    (['0', '1', '--fast'], 'unknown option: --fast'), (['0', '65536'], 'TARGET_PORT: not a number')])
def test_command_line(words, text):
    p = run(PROGRAM, *words)
    assert p.returncode == 2 and text in p.stderr, p.stderr
