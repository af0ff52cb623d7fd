# SPDX-License-Identifier: Apache-2.0
"""
A server of files by Range, in a process of its own, which may be evil.

Which answers are evil says `kind.stage(name, first, last)`, and how, a fault of FAULTS. Each evil answer whose
bytes were sent counts as a change in effect.
"""
import hashlib
import os
import random
import re
import sys
import threading
import time
import traceback
from multiprocessing import get_context

from served import Handler, Server

PIECE = 64 << 10
STEP = 16 << 10


# ---- what an evil server answers: fault(answer, rng) changes it ----

class Answer:
    """The bytes [first, first + len(body)) of what has `size` bytes, as `status` and headers say."""

    def __init__(self, data, other, first, n, part):
        self.data, self.other = data, other
        self.first, self.size, self.part = first, len(data), part
        self.body, self.etag = data[first:first + n], '"%s"' % hashlib.sha256(data).hexdigest()[:16]
        self.length = None          # what Content-Length says, if that is a lie

    def same_of(self, data):
        return data[self.first:self.first + len(self.body)]


def flip(a, rng):
    body = bytearray(a.body)
    for at in range(rng.randrange(min(STEP, len(body))), len(body), STEP):
        body[at] ^= 0x40
    a.body = bytes(body)


def flip_one(a, rng):
    at = rng.randrange(len(a.body))
    a.body = a.body[:at] + bytes([a.body[at] ^ 1]) + a.body[at + 1:]


def other(a, rng):
    """Of another file of that size, with the same ETag."""
    a.body = a.same_of(a.other)


def version(a, rng):
    """The file has changed since."""
    a.body, a.etag = a.same_of(a.other), '"%d"' % rng.randrange(1000)


def zeros(a, rng):
    a.body = bytes(len(a.body))


def shift(a, rng):
    """Other bytes than Content-Range says."""
    a.body = (a.data[a.first + 16:] + a.data)[:len(a.body)]


def shifted_range(a, rng):
    """Bytes from elsewhere, and Content-Range says so."""
    n = len(a.body)
    a.first = rng.randrange(max(a.size - n, 0) + 1)
    a.body = a.data[a.first:a.first + n]


def short(a, rng):
    """Wrong, and then the end of the connection."""
    a.length = len(a.body)
    flip(a, rng)
    a.body = a.body[:rng.randrange(len(a.body)) + 1]


def less(a, rng):
    """Less than was asked for, and the server says so."""
    flip(a, rng)
    a.body = a.body[:rng.randrange(len(a.body)) + 1]


def long(a, rng):
    flip(a, rng)
    a.body += a.other[:1000]


def longer_file(a, rng):
    flip(a, rng)
    a.size += 1000


def whole(a, rng):
    """All of another file, whatever Range asks for."""
    a.first, a.part, a.body = 0, False, a.other


FAULTS = [flip, flip_one, other, version, zeros, shift, shifted_range, short, less, long, longer_file, whole]


# ---- the server ----

class Origin:
    """put() all files, then start()."""

    def __init__(self, kind):
        self.kind, self.files, self.process = kind, {}, None
        self.server = Server(('127.0.0.1', 0), Handler)
        self.server.daemon_threads, self.server.answer = True, self.answer
        self.server.handle_error = self.failed
        self.lock, self.n, self.row = threading.Lock(), 0, kind.rows[-2]

    def url(self, name):
        return f'http://127.0.0.1:{self.server.server_address[1]}/{name}'

    def put(self, name, data, wrong=None):
        self.files[name] = data, data[::-1] if wrong is None else wrong
        return self.url(name)

    def start(self):
        self.process = get_context('fork').Process(target=self.work, args=(os.getpid(),), daemon=True)
        self.process.start()
        self.server.server_close()

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.join()

    def work(self, parent):
        self.kind.row = self.row
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(0)

    def failed(self, *_):
        """A client may go at any time; any other fault is ours."""
        if not isinstance(sys.exc_info()[1], OSError):
            with self.lock:
                self.kind.note('unexpected', traceback.format_exc()[-400:])

    def answer(self, h):
        found = self.files.get(h.path.partition('?')[0][1:])
        if not found:
            return send(h, 404, {'Content-Length': '0'})
        first, n, part = asked(h.headers.get('Range'), len(found[0]))
        a = Answer(*found, first, n, part)
        if h.headers.get('If-Match', a.etag) != a.etag:
            return send(h, 412, {'Content-Length': '0'})
        if h.headers.get('If-Range', a.etag) != a.etag:
            a = Answer(*found, 0, len(found[0]), False)
        fault = self.fault(h, a, n)
        sent = self.send_answer(h, a)
        if fault and sent and h.command == 'GET':
            with self.lock:
                self.kind.count('effect')

    def fault(self, h, a, n):
        with self.lock:
            self.n += 1
            rng = random.Random(f'{self.kind.seed}/{self.n}')
        if not n or not self.kind.is_evil(rng, h.path[1:], a.first, n):
            return None
        before = a.body
        rng.choice(self.kind.ways())(a, rng)
        return a.body != before

    def send_answer(self, h, a):
        """Was all of it sent?"""
        head = {'ETag': a.etag, 'Accept-Ranges': 'bytes',
                'Content-Length': str(a.length if a.length is not None else len(a.body))}
        if a.part:
            head['Content-Range'] = f'bytes {a.first}-{a.first + (a.length or len(a.body)) - 1}/{a.size}'
        send(h, 206 if a.part else 200, head)
        rate = getattr(self.kind, 'rate', 0)
        try:
            for at in range(0, len(a.body) if h.command == 'GET' else 0, PIECE):
                h.wfile.write(a.body[at:at + PIECE])
                if rate:
                    time.sleep(PIECE / rate)
        except OSError:
            return False
        if a.length is not None:
            h.close_connection = True
        return True


def send(h, status, headers):
    h.send_response(status)
    for name, value in headers.items():
        h.send_header(name, value)
    h.end_headers()


def asked(text, size):
    """(first, length, is it a part) of what a Range asks for."""
    m = re.fullmatch(r'bytes=(\d*)-(\d*)', text or '')
    if not m or m[0] == 'bytes=-':
        return 0, size, False
    if not m[1]:
        first, last = max(size - int(m[2]), 0), size - 1
    else:
        first, last = int(m[1]), min(int(m[2] or size - 1), size - 1)
    return (first, last - first + 1, True) if first <= last else (0, size, False)
