# SPDX-License-Identifier: Apache-2.0
"""A server that sends what a test says, byte by byte, and readers that must not wait for it."""
import concurrent.futures
import contextlib
import socket
import struct
import threading
import time

import harness
from origin import MIB, fault_bytes

N = MIB + 7                             # two requests: for the first 512 KiB, and for the rest
DATA = fault_bytes(N, seed=5)
ETAG = 'ETag: "v1"'
CHUNKED = 'Transfer-Encoding: chunked'
HOLD, RESET = object(), object()        # silence until the other side goes; a reset of the connection


class Request:
    """`n`: how many GETs of that path were there before; `range`: (first, end) of `data`, or None."""

    def __init__(self, text, data, n):
        lines = text.decode('latin-1').split('\r\n')
        self.method, self.path, _ = lines[0].split(' ')
        self.h = {k.lower(): v.strip() for k, _, v in (x.partition(':') for x in lines[1:])}
        self.data, self.n, self.range = data, n, None
        first, dash, last = self.h.get('range', '').removeprefix('bytes=').partition('-')
        if dash and first:
            self.range = int(first), min(int(last or len(data)) + 1, len(data))
        elif dash:
            self.range = max(0, len(data) - int(last)), len(data)


class Listener:
    """A server that calls serve(socket) in a thread for each connection."""

    def __init__(self):
        self.listener = socket.create_server(('', 0), backlog=200)
        self.thread = threading.Thread(target=self.accept, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *a):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                s = self.listener.accept()[0]
                s.settimeout(60)
                threading.Thread(target=self.serve, args=[s], daemon=True).start()


class Raw(Listener):
    """A server of {name: data} that sends what answers[name](request) yields, byte by byte; others are right."""

    def __init__(self, files, answers):
        super().__init__()
        self.files, self.answers, self.requests, self.lock = files, answers, [], threading.Lock()
        self.heads = {}                 # the same for HEAD

    def url(self, name, host=0):
        """Each number of a host is an origin of its own: none reads what another one has left on a connection."""
        return f'http://127.0.{host // 250}.{host % 250 + 1}:{self.listener.getsockname()[1]}/{name}'

    def serve(self, s):
        rest = b''
        with s, contextlib.suppress(OSError):
            while True:
                while b'\r\n\r\n' not in rest:
                    got = s.recv(65536)
                    if not got:
                        return
                    rest += got
                text, _, rest = rest.partition(b'\r\n\r\n')
                if not self.answer(s, text):
                    return

    def answer(self, s, text):
        path = text.split(b' ')[1].decode()
        name = path.rpartition('/')[2].partition('?')[0]
        if name not in self.files:
            s.sendall(head(404, 'Content-Length: 0'))
            return True
        with self.lock:
            gets = sum(q.path == path and q.method == 'GET' for q in self.requests)
            r = Request(text, self.files[name], gets)
            self.requests.append(r)
        for part in (self.answers if r.method == 'GET' else self.heads).get(name, right)(r):
            if part is HOLD:
                while s.recv(65536):
                    pass
            if part is RESET:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            if not isinstance(part, bytes):
                return False
            s.sendall(part)
        return True


def head(status, *lines):
    return '\r\n'.join([f'HTTP/1.1 {status}', *lines, '', '']).encode('latin-1')


def right(r, *lines, etag=ETAG):
    """Keeps the connection; as all that is wrong below ends with None, which does not."""
    first, end = r.range or (0, len(r.data))
    status = 206 if r.range else 200
    lines += (f'Content-Range: bytes {first}-{end - 1}/{len(r.data)}',) if r.range else ()
    yield head(status, f'Content-Length: {end - first}', 'Accept-Ranges: bytes', etag, *lines)
    if r.method == 'GET':
        yield r.data[first:end]


def numbered(i, data=DATA):
    """The same bytes would be the same object."""
    return struct.pack('<Q', i) + data[8:]


def elapsed(fn, *args):
    """(what fn(*args) returns, or its errno, how many seconds it took)"""
    before = time.monotonic()
    try:
        value = fn(*args)
    except OSError as e:
        value = e.errno
    return value, time.monotonic() - before


def at_once(fn, many, limit=harness.TIMEOUT / 3, threads=8):
    """[fn(x) for x in many], several at a time; none takes as long as a timeout."""
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        done = list(pool.map(lambda x: elapsed(fn, x), many))
    late = [(x, s) for x, (_, s) in zip(many, done) if s > limit * harness.SLOW]
    assert late == []
    return [value for value, _ in done]
