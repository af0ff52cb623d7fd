#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An HTTP/1.1 origin that misbehaves on demand, for what a real server cannot do.

    faultserver.py [--host H] [--port P] [--root DIR] [--tls CERT KEY]

prints its port on stdout, then serves until it is killed or its stdin is closed (--stdin).

The path says what happens: segments `key` or `key=value`, percent-encoded, in any order; the last
segment is a free name. `/size=1000/enc=gzip/stall=500/a.bin` is a gzip answer that stops after 500
bytes. The query is ignored.

What is served
  size=N seed=S     N pseudo-random bytes, the block of BLOCK bytes of `pattern(S)` again and again
  zeros             zeros instead
  text=T            T itself
  file=REL          a file beneath --root
  enc=A[,B]         coded with gzip, deflate (zlib), rawdeflate, br, zstd, densebr, gzips (three members), gzipz (and zeros behind them);
                    in that order
  as=NAME           what Content-Encoding says instead ('' leaves it out)
  honour            enc only when the request's Accept-Encoding lists it
  etag=E            the entity tag's text (default: a hash of what is served); weak; noetag
  newetag           a fresh entity tag for each request
  lastmod=DATE      Last-Modified
  type=T            Content-Type
How it is sent
  chunked           chunked, no Content-Length
  close             neither: the end of the connection ends the body
  trailers=N        with chunked: N trailer lines
  rate=B            B bytes a second on each connection
  delay=MS          wait before the answer
  slowhead=MS       wait between any two header lines
What goes wrong
  refuse            reset before any answer
  silent            never answer
  eof               close before any answer
  garbage           an answer that is not HTTP
  stall=N           N bytes of the body, then silence
  reset=N           N bytes, then a reset
  truncate=N        N bytes, then a clean close
  extra=N           N bytes more than Content-Length
  long=N            N bytes more than there are, and Content-Length says so
  flip=N            bit 0 of body byte N flipped (before coding)
  flipwire=N        the same after coding
  norange           200 and everything, whatever Range asks for
  nosuffix[=C]      the same, or status C, for a Range of the last bytes only
  nofirst           the same for a Range from the first byte on
  unconditional     If-Match and If-Unmodified-Since are ignored
  never             412 to each If-Match and If-Unmodified-Since
  tags=N            N entity tags, another one for each request in turn
  noaccept          no Accept-Ranges
  badrange=K        Content-Range shifted by K, the right bytes
  shiftrange=K      the bytes shifted by K, the right Content-Range
  badtotal=K        the total of Content-Range off by K
  length=N          Content-Length says N
  headlen=N         the same for HEAD only
  nohead            405 for HEAD
  headstatus=C      that status for HEAD, with the Retry-After of retryafter=
  notag206          no ETag and no Last-Modified in a 206
  status=C          that status, body as configured
  fail=N[:C]        the first N requests for this path get status C (500); 0: a reset
  flap=N:C          N requests are answered, then N get status C or, for 0, a reset; and so on
  odd=N:C           request number N for this path gets status C, or for 200 a page of HTML
  brief=K:N         the first K requests get N bytes of another file, half of what is announced
  retryafter=V      Retry-After with status=, fail=
  ratelimit=V       the same in a RateLimit
  auth=USER:PASS    401 without these (Basic)
  need=NAME:VALUE   401 without this header
  needs=NAME:FILE   401 unless that header is what a file beneath --root says
  signed=FILE       403 unless the query's X-Amz-Signature is
  redirect=C to=URL Location: URL, status C
  hops=N            302 to the same with N - 1; at 0 the content
  loop              302 to itself
  dl=URL            x-carton-dl-url
  h=NAME:VALUE      one more header line, as often as wanted
  headers=N         N more header lines;  headersize=N  one of N bytes
  info=N            N 103 answers first

/_log is {"connections": N, "requests": [{n, conn, method, path, query, headers, status, sent,
done, began}]} (these paths are not in it); /_clear empties it; /_codings lists what enc can do;
/_bandwidth=B sets the whole server's limit.
"""

import argparse
import base64
import ctypes
import ctypes.util
import email.utils
import functools
import gzip
import hashlib
import json
import os
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse
import zlib

BLOCK = 65521  # a prime: no power of two maps the pattern onto itself


@functools.lru_cache(256)
def pattern(seed):
    """The block that is repeated; easy to write in any language."""
    x = (seed * 2654435761 + 12345) & 0xFFFFFFFF
    out = bytearray(BLOCK)
    for i in range(BLOCK):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
        out[i] = x >> 16 & 0xFF
    return bytes(out)


class Patterned:
    """N bytes of a repeated block, sliced without being built."""

    def __init__(self, block, size):
        self.block, self.size = block, size

    def __len__(self):
        return self.size

    def slice(self, first, n):
        n = max(0, min(n, self.size - first))
        skip = first % len(self.block)
        times = (skip + n) // len(self.block) + 1
        return (self.block * times)[skip:skip + n]


class Bytes(Patterned):
    def __init__(self, data):
        self.data, self.size = data, len(data)

    def slice(self, first, n):
        return self.data[first:first + n]


class File(Patterned):
    def __init__(self, path):
        self.f = open(path, 'rb')
        self.size = os.fstat(self.f.fileno()).st_size

    def slice(self, first, n):
        return os.pread(self.f.fileno(), n, first)


class Flipped(Patterned):
    def __init__(self, inner, at):
        self.inner, self.size, self.at = inner, len(inner), at

    def slice(self, first, n):
        data = bytearray(self.inner.slice(first, n))
        if first <= self.at < first + len(data):
            data[self.at - first] ^= 1
        return bytes(data)


class Shifted(Patterned):
    def __init__(self, inner, by):
        self.inner, self.size, self.by = inner, len(inner), by

    def slice(self, first, n):
        return self.inner.slice(max(0, first + self.by), n).ljust(n, b'\0')


# ---- codings ----

def library(name, *sonames):
    for soname in sonames:
        try:
            return ctypes.CDLL(soname)
        except OSError:
            pass
    found = ctypes.util.find_library(name)
    return ctypes.CDLL(found) if found else None


BROTLI = library('brotlienc', 'libbrotlienc.so.1')
ZSTD = library('zstd', 'libzstd.so.1')


def brotli(data, quality=1):
    BROTLI.BrotliEncoderMaxCompressedSize.restype = ctypes.c_size_t
    BROTLI.BrotliEncoderMaxCompressedSize.argtypes = [ctypes.c_size_t]
    out = ctypes.create_string_buffer(BROTLI.BrotliEncoderMaxCompressedSize(len(data)) or
                                      len(data) + 1024)
    n = ctypes.c_size_t(len(out))
    BROTLI.BrotliEncoderCompress.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int,
                                             ctypes.c_size_t, ctypes.c_char_p,
                                             ctypes.POINTER(ctypes.c_size_t), ctypes.c_char_p]
    if not BROTLI.BrotliEncoderCompress(quality, 22, 0, len(data), data, ctypes.byref(n), out):
        raise ValueError('brotli')
    return out.raw[:n.value]


def zstd(data):
    ZSTD.ZSTD_compressBound.restype = ctypes.c_size_t
    ZSTD.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
    ZSTD.ZSTD_compress.restype = ctypes.c_size_t
    ZSTD.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p,
                                   ctypes.c_size_t, ctypes.c_int]
    out = ctypes.create_string_buffer(ZSTD.ZSTD_compressBound(len(data)))
    n = ZSTD.ZSTD_compress(out, len(out), data, len(data), 1)
    if n > len(out):
        raise ValueError('zstd')
    return out.raw[:n]


def raw_deflate(data):
    c = zlib.compressobj(1, zlib.DEFLATED, -15)
    return c.compress(data) + c.flush()


def members(data):
    """gzip as of files that were joined: an empty member among them."""
    third = len(data) // 3
    return b''.join(gzip.compress(d, 1, mtime=0) for d in (data[:third], b'', data[third:]))


CODERS = {'gzips': members, 'gzipz': lambda d: members(d) + bytes(70000), 'gzip': lambda d: gzip.compress(d, 1, mtime=0), 'deflate': lambda d: zlib.compress(d, 1),
          'rawdeflate': raw_deflate}
if BROTLI:
    CODERS['br'] = brotli
    CODERS['densebr'] = lambda d: brotli(d, 5)
if ZSTD:
    CODERS['zstd'] = zstd

REASONS = {200: 'OK', 206: 'Partial Content', 302: 'Found', 401: 'Unauthorized', 404: 'Not Found',
           405: 'Method Not Allowed', 412: 'Precondition Failed', 416: 'Range Not Satisfiable',
           429: 'Too Many Requests', 500: 'Internal Server Error'}


class Bucket:
    """Says how long to wait before n more bytes may go."""

    def __init__(self, rate):
        self.rate, self.lock, self.free_at = rate, threading.Lock(), time.monotonic()

    def take(self, n):
        if not self.rate:
            return
        with self.lock:
            now = time.monotonic()
            self.free_at = max(self.free_at, now) + n / self.rate
            wait = self.free_at - now
        time.sleep(wait)


class Gone(Exception):
    """The connection is to be dropped; reset says how."""

    def __init__(self, reset=False):
        super().__init__()
        self.reset = reset


class Server:
    def __init__(self, root):
        self.root = root
        self.lock = threading.Lock()
        self.requests, self.connections, self.counts, self.active = [], 0, {}, 0
        self.patterns, self.coded = {}, {}
        self.coding = threading.Lock()
        self.bandwidth = Bucket(0)

    def block(self, seed):
        with self.coding:
            if seed not in self.patterns:
                self.patterns[seed] = pattern(seed)
            return self.patterns[seed]

    def count(self, path):
        with self.lock:
            self.counts[path] = self.counts.get(path, 0) + 1
            return self.counts[path]

    def encode(self, key, body, coders):
        """The coded body, made once for each kind."""
        with self.coding:
            if key not in self.coded:
                data = body.slice(0, len(body))
                for coder in coders:
                    data = CODERS[coder](data)
                self.coded[key] = data
            return Bytes(self.coded[key])


class Options(dict):
    def __init__(self, path):
        super().__init__()
        self.extra = []
        for segment in path.split('/')[1:-1]:
            key, _, value = segment.partition('=')
            value = urllib.parse.unquote(value)
            if key == 'h':
                self.extra.append(value)
            self[key] = value

    def int(self, key, default=None):
        return int(self[key]) if key in self else default


class Connection(threading.Thread):
    def __init__(self, server, sock, number):
        super().__init__(daemon=True)
        self.server, self.sock, self.number = server, sock, number
        self.bucket = Bucket(0)
        self.rest = b''

    def run(self):
        try:
            while self.one():
                pass
        except Gone as gone:
            if gone.reset:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        except (OSError, ValueError):
            pass
        finally:
            try:
                if isinstance(self.sock, ssl.SSLSocket):
                    self.sock.unwrap()
            except (OSError, ValueError):
                pass
            self.sock.close()

    def read_request(self):
        while b'\r\n\r\n' not in self.rest:
            more = self.sock.recv(65536)
            if not more or len(self.rest) > 1 << 20:
                raise Gone()
            self.rest += more
        head, _, self.rest = self.rest.partition(b'\r\n\r\n')
        lines = head.decode('latin-1').split('\r\n')
        method, target, _ = lines[0].split(' ', 2)
        headers = [[k.strip(), v.strip()] for k, _, v in (x.partition(':') for x in lines[1:])]
        return method, target, headers

    def one(self):
        method, target, headers = self.read_request()
        path, _, query = target.partition('?')
        if path.startswith('http://'):      # we are asked as a proxy: we are every host
            path = '/' + path.split('/', 3)[3]
        if path.startswith('/_'):
            return self.admin(path)
        entry = {'conn': self.number, 'method': method, 'path': path, 'query': query,
                 'headers': headers, 'status': 0, 'sent': 0, 'done': False,
                 'began': time.monotonic()}
        with self.server.lock:
            entry['n'] = len(self.server.requests)
            entry['beside'] = self.server.active    # others that are being answered
            self.server.active += 1
            self.server.requests.append(entry)
        answer = Answer(self, entry, method, path, {k.lower(): v for k, v in headers})
        try:
            keep = answer.go()
        finally:
            with self.server.lock:
                self.server.active -= 1
        entry['done'] = True
        return keep

    def admin(self, path):
        server, out = self.server, {}
        with server.lock:
            server.connections -= 1         # those of the test itself do not count
            if path == '/_log':
                out = {'connections': server.connections, 'requests': server.requests}
            elif path == '/_clear':
                server.requests, server.counts, server.connections = [], {}, 0
                out = 'cleared'
            elif path == '/_codings':
                out = sorted(CODERS)
            elif path.startswith('/_bandwidth='):
                server.bandwidth = Bucket(int(path.partition('=')[2]))
            body = json.dumps(out).encode()
        self.sock.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n'
                          b'Content-Length: %d\r\nConnection: close\r\n\r\n' % len(body) + body)
        return False

    def silence(self):
        """Until the other side gives up."""
        while self.sock.recv(65536):
            pass
        raise Gone()


class Answer:
    """One request and what becomes of it."""

    def __init__(self, conn, entry, method, path, headers):
        self.conn, self.server, self.entry = conn, conn.server, entry
        self.method, self.path, self.headers = method, path, headers
        self.o = Options(path)
        self.nth = self.server.count(path)
        self.status, self.lines = 200, []

    # -- what is served --

    def content(self):
        o = self.o
        if 'file' in o:
            root = os.path.realpath(self.server.root or '/nonexistent')
            path = os.path.realpath(os.path.join(root, o['file']))
            if not path.startswith(root + '/') or not os.path.isfile(path):
                return None
            body = File(path)
            self.key = (path, os.stat(path).st_mtime_ns, len(body))
        elif 'text' in o:
            body = Bytes(o['text'].encode())
            self.key = ('text', o['text'])
        else:
            size, seed = o.int('size', 0), o.int('seed', 0)
            body = Patterned(bytes(BLOCK) if 'zeros' in o else self.server.block(seed), size)
            self.key = ('zeros' in o, size, seed)
        if 'flip' in o:
            body = Flipped(body, o.int('flip'))
            self.key += ('flip', o['flip'])
        return body

    def coded(self, body):
        o, coders = self.o, [c for c in self.o.get('enc', '').split(',') if c]
        if 'honour' in o:
            accept = [a.split(';')[0].strip() for a in
                      self.headers.get('accept-encoding', '').split(',')]
            coders = [c for c in coders if c.replace('raw', '') in accept]
        if coders:
            body = self.server.encode((self.key, tuple(coders)), body, coders)
        named = o.get('as', ', '.join(c.replace('raw', '') for c in coders))
        if named:
            self.lines.append('Content-Encoding: ' + named)
        if 'flipwire' in o:
            body = Flipped(body, o.int('flipwire'))
        return body

    def validators(self):
        o = self.o
        tag = o.get('etag') or hashlib.sha256(repr(self.key).encode()).hexdigest()[:16]
        if 'newetag' in o:
            tag = '%s-%d' % (tag, self.nth)
        if 'tags' in o:
            tag = '%s-%d' % (tag, self.nth % o.int('tags'))
        self.etag = None if 'noetag' in o else ('W/' if 'weak' in o else '') + '"%s"' % tag
        self.lastmod = o.get('lastmod')
        if self.etag:
            self.lines.append('ETag: ' + self.etag)
        if self.lastmod:
            self.lines.append('Last-Modified: ' + self.lastmod)

    def precondition_fails(self):
        if 'unconditional' in self.o:
            return False
        match = self.headers.get('if-match')
        since = self.headers.get('if-unmodified-since')
        if 'never' in self.o:
            return bool(match or since)
        if match is not None:
            tags = [t.strip() for t in match.split(',')]
            return '*' not in tags and (not self.etag or self.etag.startswith('W/') or
                                        self.etag not in tags)
        if since is not None and self.lastmod:
            then = email.utils.parsedate_to_datetime(since)
            return email.utils.parsedate_to_datetime(self.lastmod) > then
        return False

    def range(self, size):
        """(first, n) of what was asked for, None for all, () for what cannot be."""
        spec, o = self.headers.get('range', ''), self.o
        condition = self.headers.get('if-range')
        if not spec.startswith('bytes=') or ',' in spec or 'norange' in o:
            return None
        if spec.startswith('bytes=-') and 'nosuffix' in o or spec.startswith('bytes=0-') and 'nofirst' in o:
            return None
        if condition is not None and (condition not in (self.etag, self.lastmod) or
                                      condition.startswith('W/')):
            return None
        first, _, last = spec[6:].partition('-')
        if not first:
            n = min(int(last), size)
            return (size - n, n) if n else ()
        first, last = int(first), min(int(last) if last else size - 1, size - 1)
        return (first, last - first + 1) if first < size and first <= last else ()

    # -- how it goes --

    def go(self):
        o, conn = self.o, self.conn
        if 'delay' in o:
            time.sleep(o.int('delay') / 1000)
        if 'refuse' in o:
            raise Gone(reset=True)
        if 'eof' in o:
            raise Gone()
        if 'silent' in o:
            conn.silence()
        if 'garbage' in o:
            conn.sock.sendall(b'SSH-2.0-not-http\r\n' * 4)
            raise Gone()
        conn.bucket.rate = o.int('rate', 0)
        return self.simple() or self.serve()

    def text_of(self, file):
        with open(os.path.join(self.conn.server.root, file)) as f:
            return f.read()

    def simple(self):
        """Answers without the content; None when there is more to do."""
        o = self.o
        user = base64.b64encode(o.get('auth', '').encode()).decode()
        name, _, value = o.get('need', '').partition(':')
        count, _, code = o.get('fail', '0').partition(':')
        run, _, bad = o.get('flap', '0').partition(':')
        if int(run) and (self.nth - 1) // int(run) % 2:
            count, code = self.nth, bad
        if 'auth' in o and self.headers.get('authorization') != 'Basic ' + user:
            return self.short(401, ['WWW-Authenticate: Basic realm="x"'])
        if 'need' in o and self.headers.get(name.lower()) != value.strip():
            return self.short(401)
        if 'needs' in o:
            name, _, file = o['needs'].partition(':')
            if self.headers.get(name.lower()) != self.text_of(file):
                return self.short(401)
        if 'signed' in o and dict(urllib.parse.parse_qsl(self.entry['query'])).get(
                'X-Amz-Signature') != self.text_of(o['signed']):
            return self.short(403)
        if self.nth <= int(count) and code == '0':
            raise Gone(reset=True)
        if self.nth <= int(count):
            return self.short(int(code or 500), self.retry_after())
        count, _, code = o.get('odd', '0').partition(':')
        if self.nth == int(count):
            return self.short(int(code), ['Content-Type: text/html'], b'<html>%d</html>\n')
        if o.int('nosuffix', 1) > 1 and self.headers.get('range', '').startswith('bytes=-'):
            return self.short(o.int('nosuffix'))
        count, _, n = o.get('brief', '0:0').partition(':')
        if self.nth <= int(count):
            self.lines = ['Content-Length: %d' % (2 * int(n))]
            self.send_head()
            self.conn.sock.sendall(self.server.block(99) * (int(n) // BLOCK) + bytes(int(n) % BLOCK))
            raise Gone()
        if 'redirect' in o:
            return self.short(int(o['redirect']), ['Location: ' + o['to']] if 'to' in o else [])
        if 'loop' in o:
            return self.short(302, ['Location: ' + self.path])
        if o.int('hops', 0) > 0:
            n = o.int('hops')
            return self.short(302, ['Location: ' + self.path.replace('hops=%d' % n,
                                                                     'hops=%d' % (n - 1))])
        if 'nohead' in o and self.method == 'HEAD':
            return self.short(405)
        if 'headstatus' in o and self.method == 'HEAD':
            return self.short(o.int('headstatus'), self.retry_after())
        return None

    def retry_after(self):
        return [f'{name}: {self.o[key]}' for name, key in (('Retry-After', 'retryafter'), ('RateLimit', 'ratelimit'))
                if key in self.o]

    def short(self, status, lines=(), body=b'%d\n'):
        body = body % status if status != 204 else b''
        self.status = status
        self.lines = list(lines) + ['Content-Length: %d' % len(body)]
        self.send_head()
        if self.method != 'HEAD':
            self.conn.sock.sendall(body)
        return True

    def serve(self):
        o, body = self.o, self.content()
        if body is None:
            return self.short(404)
        self.validators()
        body = self.coded(body)
        if 'shiftrange' in o:
            body = Shifted(body, o.int('shiftrange'))
        if 'noaccept' not in o and 'norange' not in o:
            self.lines.append('Accept-Ranges: bytes')
        if self.precondition_fails():
            return self.short(412)
        part = self.range(len(body))
        if part == ():
            return self.short(416, ['Content-Range: bytes */%d' % len(body)])
        first, n = part or (0, len(body))
        if part:
            k = o.int('badrange', 0)
            self.status = 206
            if 'notag206' in o:
                self.lines = [x for x in self.lines
                              if not x.startswith(('ETag:', 'Last-Modified:'))]
            self.lines.append('Content-Range: bytes %d-%d/%d' % (
                first + k, first + n - 1 + k, len(body) + o.int('badtotal', 0)))
        if 'status' in o:
            self.status = o.int('status')
            self.lines += self.retry_after()
        return self.deliver(body, first, n)

    def deliver(self, body, first, n):
        o = self.o
        announced = n + o.int('long', 0)
        announced = o.int('length', announced)
        if self.method == 'HEAD':
            announced = o.int('headlen', announced)
        if 'chunked' in o:
            self.lines.append('Transfer-Encoding: chunked')
        elif 'close' in o:
            self.lines.append('Connection: close')
        else:
            self.lines.append('Content-Length: %d' % announced)
        if 'type' in o:
            self.lines.append('Content-Type: ' + o['type'])
        if 'dl' in o:
            self.lines.append('x-carton-dl-url: ' + o['dl'])
        self.lines += o.extra
        self.lines += ['X-Filler-%d: x' % i for i in range(o.int('headers', 0))]
        if 'headersize' in o:
            self.lines.append('X-Large: ' + 'x' * o.int('headersize'))
        self.send_head()
        if self.method == 'HEAD':
            return True
        self.send_body(body, first, n)
        return not ({'close', 'extra', 'long', 'length'} & set(o))

    def send_head(self):
        o, sock = self.o, self.conn.sock
        self.entry['status'] = self.status
        lines = ['HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n'] * o.int('info', 0)
        lines.append('HTTP/1.1 %d %s' % (self.status, REASONS.get(self.status, 'Status')))
        lines += self.lines + ['', '']
        if 'slowhead' not in o:
            sock.sendall('\r\n'.join(lines).encode('latin-1'))
            return
        for line in lines[:-1]:
            sock.sendall(line.encode('latin-1') + b'\r\n')
            time.sleep(o.int('slowhead') / 1000)

    def send_body(self, body, first, n):
        o = self.o
        stops = [(o.int(k), k) for k in ('stall', 'reset', 'truncate') if k in o]
        stop, how = min(stops) if stops else (n, None)
        end = first + min(stop, n)
        slow = self.conn.bucket.rate or self.server.bandwidth.rate
        step = max(1, min(65536, slow // 20)) if slow else 262144
        while first < end:
            data = body.slice(first, min(step, end - first))
            if not data:
                break
            self.conn.bucket.take(len(data))
            self.server.bandwidth.take(len(data))
            self.send(data)
            first += len(data)
        if how == 'stall':
            self.conn.silence()
        elif how:
            raise Gone(reset=how == 'reset')
        if 'extra' in o or 'long' in o:
            self.send(b'x' * (o.int('extra', 0) + o.int('long', 0)))
        if 'chunked' in o:
            trailers = ''.join('X-Trailer-%d: x\r\n' % i for i in range(o.int('trailers', 0)))
            self.conn.sock.sendall(b'0\r\n' + trailers.encode() + b'\r\n')

    def send(self, data):
        # counted first: a client that has the last byte may ask for the log before this thread goes on
        self.entry['sent'] += len(data)
        try:
            self.conn.sock.sendall(b'%x\r\n' % len(data) + data + b'\r\n' if 'chunked' in self.o else data)
        except BaseException:
            self.entry['sent'] -= len(data)
            raise


def accept(listener, server, context):
    while True:
        sock, _ = listener.accept()
        with server.lock:
            server.connections += 1
            number = server.connections
        threading.Thread(target=greet, args=(sock, server, context, number), daemon=True).start()


def greet(sock, server, context, number):
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context:
            sock = context.wrap_socket(sock, server_side=True)
    except OSError:
        sock.close()
        return
    Connection(server, sock, number).run()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--host', default='127.0.0.1')
    parser.add_argument('--port', type=int, default=0)
    parser.add_argument('--root')
    parser.add_argument('--tls', nargs=2, metavar=('CERT', 'KEY'))
    parser.add_argument('--stdin', action='store_true', help='end when stdin is closed')
    args = parser.parse_args()
    context = None
    if args.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*args.tls)
    family = socket.AF_INET6 if ':' in args.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((args.host, args.port))
    listener.listen(512)
    print(f'{listener.getsockname()[1]}\n', end='', flush=True)
    server = Server(args.root)
    if args.stdin:
        threading.Thread(target=accept, args=(listener, server, context), daemon=True).start()
        while sys.stdin.buffer.read(4096):
            pass
    else:
        accept(listener, server, context)


if __name__ == '__main__':
    main()
