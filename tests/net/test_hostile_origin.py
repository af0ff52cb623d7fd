# SPDX-License-Identifier: Apache-2.0
"""
Origins that break RFC 9110 and 9112, or use what these allow and nobody does. Each read ends with the right bytes or
with one error, soon, whatever the server sends; and another URL helps.

What a server does with bytes, codings and sizes is in test_links.py, what redirects are refused in
tests/unit/test_http_access.c.
"""
import email.utils
import errno
import gzip
import itertools
import time

import pytest

import chunkindex
from harness import ctl
from origin import COMPRESS, MIB, PRIVATE, LinkedCarton, digest, errno_of, fault_bytes, lines_of
from rawhttp import (CHUNKED, DATA, ETAG, HOLD, N, RESET, Raw, Request, at_once, head, numbered, right)
from zipwriter import Carton

DATE = 'Tue, 15 Nov 1994 12:45:26 GMT'

# ---- what an origin may say to a GET ----

CASES = {}


def case(fn, name=None):
    CASES[name or fn.__name__] = fn


def part(name, value, body=lambda r, first, end: r.data[first:end], *lines, status=206):
    """A wrong answer to a request for a range: its Content-Range is value(r, first, end)."""
    def answer(r):
        if not r.range:
            yield from right(r)
            return
        data = body(r, *r.range)
        text = value(r, *r.range)
        yield head(status, f'Content-Length: {len(data)}', ETAG, *lines,
                   *(f'Content-Range: {t}' for t in (text if isinstance(text, list) else [text]) if t))
        yield data
        yield None
    case(answer, name)


part('total that grows', lambda r, a, b: f'bytes {a}-{b - 1}/{N + r.n}')
part('total that shrinks', lambda r, a, b: f'bytes {a}-{b - 1}/{max(b, N - r.n)}')
part('no total', lambda r, a, b: f'bytes {a}-{b - 1}/*')
part('beyond the end', lambda r, a, b: f'bytes {a}-{b + 9}/{N + 10}', lambda r, a, b: r.data[a:b] + bytes(10))
part('descending', lambda r, a, b: f'bytes {b - 1}-{a}/{N}')
part('one before', lambda r, a, b: f'bytes {max(a - 1, 0)}-{b - 2}/{N}', lambda r, a, b: r.data[max(a - 1, 0):b - 1])
part('one behind', lambda r, a, b: f'bytes {a + 1}-{b - 1}/{N}', lambda r, a, b: r.data[a + 1:b])
part('the last bytes', lambda r, a, b: f'bytes {N - (b - a)}-{N - 1}/{N}', lambda r, a, b: r.data[a - b:])
part('half of it', lambda r, a, b: f'bytes {a}-{(a + b) // 2 - 1}/{N}', lambda r, a, b: r.data[a:(a + b) // 2])
part('one byte of it', lambda r, a, b: f'bytes {a}-{a}/{N}', lambda r, a, b: r.data[a:a + 1])
part('more than asked', lambda r, a, b: f'bytes {a}-{N - 1}/{N}', lambda r, a, b: r.data[a:])
part('two ranges', lambda r, a, b: [f'bytes {a}-{b - 1}/{N}', f'bytes 0-{b - a - 1}/{N}'])
part('another unit', lambda r, a, b: f'lines {a}-{b - 1}/{N}')
part('no Content-Range', lambda r, a, b: None)
part('a number beyond any', lambda r, a, b: f'bytes {a}-{b - 1}/{10 ** 30}')
part('other bytes', lambda r, a, b: f'bytes {a}-{b - 1}/{N}', lambda r, a, b: bytes(b - a) if a else r.data[:b])
part('part as all', lambda r, a, b: None, status=200)
part('coded part', lambda r, a, b: f'bytes {a}-{b - 1}/{N}', lambda r, a, b: gzip.compress(r.data[a:b]),
     'Content-Encoding: gzip')
MULTI = 'Content-Type: multipart/byteranges; boundary=X'


def in_parts(r, a, b):
    return (b'--X\r\nContent-Range: bytes %d-%d/%d\r\n\r\n' % (a, b - 1, N)) + r.data[a:b] + b'\r\n--X--\r\n'


part('multipart', lambda r, a, b: None, in_parts, MULTI)
part('multipart with a Content-Range', lambda r, a, b: f'bytes {a}-{b - 1}/{N}', in_parts, MULTI)
part('416 with a size', lambda r, a, b: f'bytes */{N}', lambda r, a, b: b'', status=416)
part('416', lambda r, a, b: None, lambda r, a, b: b'', status=416)
part('416 with a wrong size', lambda r, a, b: 'bytes */5', lambda r, a, b: b'', status=416)


def always(name, *parts):
    """These parts for each GET, and then the end of the connection."""
    def answer(r):
        for p in parts:
            yield p(r) if callable(p) else p
        yield None
    case(answer, name)


def all_of(r):
    return r.data


always('206 for no range', head(206, f'Content-Length: {N}', f'Content-Range: bytes 0-{N - 1}/{N}'), all_of)
always('200 for a range', head(200, f'Content-Length: {N}', ETAG), all_of)
always('416 for all', head(416, 'Content-Length: 0'))
for status in (100, 101, 202, 204, 205, 300, 302, 304, 305, 399, 418, 600, 999):
    always(f'{status} for all', head(status, 'Content-Length: 0'))
always('302 with an empty Location', head(302, 'Location:', 'Content-Length: 0'))
always('302 with two Locations', head(302, 'Location: /a', 'Location: /b', 'Content-Length: 0'))
always('304 with a body', head(304, f'Content-Length: {N}'), all_of)
always('99', b'HTTP/1.1 99 x\r\n\r\n')
always('no status', b'HTTP/1.1\r\n\r\n')
always('ICY', b'ICY 200 OK\r\n\r\n', all_of)
always('HTTP 7', b'HTTP/7.0 200 OK\r\nContent-Length: 5\r\n\r\nHello')
always('length too small', head(200, f'Content-Length: {N - 1}'), all_of)
always('length too large', head(200, f'Content-Length: {N + 1}'), all_of)
always('length negative', head(200, 'Content-Length: -1'), all_of)
always('length in hex', head(200, f'Content-Length: {N:#x}'), all_of)
always('two lengths', head(200, f'Content-Length: {N}', 'Content-Length: 5'), all_of)
always('list of lengths', head(200, f'Content-Length: {N}, 5'), all_of)
always('length beyond any', head(200, f'Content-Length: {10 ** 30}'), all_of)
always('length of 2^63-1', head(200, f'Content-Length: {2 ** 63 - 1}'), all_of)
always('length and chunks', head(200, 'Content-Length: 5', CHUNKED), b'%x\r\n' % N, all_of, b'\r\n0\r\n\r\n')
always('chunks with trailers', head(200, CHUNKED), b'%x;a=b\r\n' % N, all_of,
       b'\r\n0\r\nContent-Length: 5\r\nContent-Range: bytes 0-4/5\r\nLocation: /x\r\nETag: "w"\r\n\r\n')
always('no last chunk', head(200, CHUNKED), b'%x\r\n' % N, all_of, b'\r\n')
always('half a chunk', head(200, CHUNKED), b'%x\r\n' % (2 * N), all_of)
always('no end of chunk', head(200, CHUNKED), b'%x\r\n' % (N - 1), all_of, b'0\r\n\r\n')
for size in (b'-5', b'f' * 40, b'0x5', b'five', b'', b' '):
    always(f'chunk of {size.decode()[:4]!r}', head(200, CHUNKED), size + b'\r\n', all_of, b'\r\n0\r\n\r\n')
always('gzip as a transfer', head(200, 'Transfer-Encoding: gzip, chunked'), b'5\r\nHello\r\n0\r\n\r\n')
always('chunked twice', head(200, 'Transfer-Encoding: chunked, chunked'), b'5\r\nHello\r\n0\r\n\r\n')
always('header of 1 MiB', b'HTTP/1.1 200 OK\r\nX: ' + b'x' * MIB + b'\r\n\r\n')
always('name of 1 MiB', b'HTTP/1.1 200 OK\r\n' + b'x' * MIB + b': x\r\n\r\n')
always('status line of 1 MiB', b'HTTP/1.1 200 ' + b'x' * MIB + b'\r\n\r\n')
always('100,000 headers', b'HTTP/1.1 200 OK\r\n' + b'X: y\r\n' * 100000 + b'\r\n')
always('folded header', b'HTTP/1.1 200 OK\r\nX: y\r\n folded\r\nContent-Length: 0\r\n\r\n')
always('NUL in a header', b'HTTP/1.1 200 OK\r\nX: y\0z\r\nContent-Length: 0\r\n\r\n')
always('CR in a header', b'HTTP/1.1 200 OK\r\nX: y\rContent-Length: 5\r\nContent-Length: 0\r\n\r\n')
always('header without a colon', b'HTTP/1.1 200 OK\r\nnonsense\r\n\r\n')
always('two blocks of headers', b'HTTP/1.1 200 OK\r\nX: y\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
always('nothing', b'')
always('reset', RESET)
always('half a gzip', head(200, 'Content-Encoding: gzip'), lambda r: gzip.compress(r.data)[:N // 3])
for coding in ('br', 'zstd', 'deflate'):
    always(f'half a {coding}', head(200, f'Content-Encoding: {coding}'),
           lambda r, coding=coding: COMPRESS[coding](r.data)[:N // 3])
always('gzip and more', head(200, 'Content-Encoding: gzip'), lambda r: gzip.compress(r.data) + b'x' * 999)


def endless(name, start, block):
    """Until the other side has had enough."""
    def answer(r):
        yield start
        while True:
            yield block
    case(answer, name)


endless('endless 1xx', b'', head(102))
endless('endless headers', b'HTTP/1.1 200 OK\r\n', b'X-Filler: y\r\n' * 1000)
endless('endless line', b'HTTP/1.1 200 OK\r\nX: ', b'x' * 4096)
endless('endless body of 101', head(101, 'Upgrade: x', 'Connection: upgrade'), bytes(65536))
endless('endless body of 302', head(302, 'Location: /none'), bytes(65536))
endless('endless body of 404', head(404), bytes(65536))
endless('endless trailers', head(200, CHUNKED) + b'5\r\nHello\r\n0\r\n', b'X: y\r\n' * 1000)
endless('not HTTP', b'', b'SSH-2.0-x\r\n' * 99)


def changing(name, etag):
    case(lambda r: right(r, etag=etag(r)), name)


changing('ETag that changes', lambda r: f'ETag: "v{r.n}"')
changing('weak ETag that changes', lambda r: f'ETag: W/"v{r.n}"')
changing('ETag that becomes weak', lambda r: f'ETag: {"W/" * bool(r.n)}"v"')
changing('ETag that goes', lambda r: 'X: y' if r.n else ETAG)
changing('weak ETag', lambda r: 'ETag: W/"v"')
changing('date that changes', lambda r: f'Last-Modified: {email.utils.formatdate(1e9 + r.n, usegmt=True)}')
changing('ETag of 1,000 bytes', lambda r: f'ETag: "{"x" * 1000}"')
changing('two ETags', lambda r: 'ETag: "a"\r\nETag: "b"')
changing('dates that are none', lambda r: 'Last-Modified: yesterday\r\nDate: 0\r\nExpires: -1\r\nRetry-After: -5')
changing('LF in a value', lambda r: 'Last-Modified: Tue\n')

REDIRECTS = ['file:///etc/passwd', 'ftp://127.0.0.1/x', 'gopher://127.0.0.1/', 'data:,x', 'javascript:0', 'http://',
             'http:///x', 'http://[::1', 'http://127.0.0.1:99999/x', 'http://127.0.0.1:0/x', 'dict://127.0.0.1:1/x',
             '//', 'https://127.0.0.1:1/x', 's3://bucket/key', 'hf://a/b/c', 'unix:/run/x', '/' + 'x' * 9000]
for to in REDIRECTS:
    always(f'redirect to {to[:30]}', head(302, f'Location: {to}', 'Content-Length: 0'))

# the bytes can be had from these, perhaps at the second request
GOOD = {'200 for a range', 'half of it', 'length and chunks', 'chunks with trailers'}
GOOD |= {name for name in CASES if 'ETag' in name or 'date' in name}


def test_links(work, mount_fg, cache):
    """Each answer, from the only URL of a file, and from the first of two."""
    files, answers, c = {}, {}, LinkedCarton(method='stored')
    for i, name in enumerate(CASES):
        files |= {f'{i}-alone': numbered(i), f'{i}-first': numbered(i + 1000), f'{i}-next': numbered(i + 1000)}
        answers |= {f'{i}-alone': CASES[name], f'{i}-first': CASES[name]}
    with Raw(files, answers) as raw:
        for i, _ in enumerate(CASES):
            c.link(f'model/{i}-alone', numbered(i), raw.url(f'{i}-alone', i))
            c.link(f'model/{i}-helped', numbered(i + 1000), raw.url(f'{i}-first', i), raw.url(f'{i}-next', 999))
        # who resets each connection is waited for
        with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *cache.options, '-o', 'timeout=10') as m:
            alone = at_once(m.read, [f'model/{i}-alone' for i, _ in enumerate(CASES)])
            helped = at_once(m.read, [f'model/{i}-helped' for i, _ in enumerate(CASES)])
            log = m.log()
    wrong = []
    for i, name in enumerate(CASES):
        lines = lines_of(log, f'/{i}-alone: ')
        if helped[i] != numbered(i + 1000):
            wrong.append((name, 'another URL does not help', helped[i]))
        if isinstance(alone[i], int) and (name in GOOD or not 1 <= len(lines) <= 7):
            wrong.append((name, errno.errorcode[alone[i]], lines))
        if not isinstance(alone[i], int) and alone[i] != numbered(i):
            wrong.append((name, 'wrong bytes'))
    assert wrong == [], '\n'.join(map(str, wrong))


RANGES = [name for name, fn in CASES.items() if fn.__qualname__.startswith(('part', 'changing'))]


def test_chunks(work, mount_fg, cache):
    """The same for a file that is read by chunks: the next URL has what the first one has not."""
    data = {i: numbered(i, fault_bytes(9 * MIB, seed=3)) for i, _ in enumerate(RANGES)}
    files = {f'{i}-{which}': data[i] for i in data for which in ('first', 'next')}
    c = LinkedCarton(method='stored').add(chunkindex.PATH, chunkindex.index(*data.values()))
    with Raw(files, {f'{i}-first': CASES[name] for i, name in enumerate(RANGES)}) as raw:
        for i in data:
            c.link(f'model/{i}', data[i], raw.url(f'{i}-first', i), raw.url(f'{i}-next', 999))
        with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *cache.options) as m:
            for off in (0, 4 * MIB - 5, 9 * MIB - 10, 2 * MIB):
                def read(i):
                    with open(m / f'model/{i}', 'rb') as f:
                        f.seek(off)
                        return f.read(10)
                assert at_once(read, list(data)) == [data[i][off:off + 10] for i in data]


def test_cartons(work):
    """A whole carton there is read, or refused in a few lines; nothing of it is half a success."""
    c = Carton(method='stored').add('model/x', DATA).add('misc/y', b'y' * 5000)
    data = c.write(work / 'm.carton').read_bytes()

    def verify(i):
        return ctl('verify', f'--cache-dir={work}/{i}', '--timeout=5', raw.url(i, int(i)))

    with Raw({str(i): data for i, _ in enumerate(CASES)},
             {str(i): fn for i, fn in enumerate(CASES.values())}) as raw:
        done = at_once(verify, [str(i) for i, _ in enumerate(CASES)])
        # what an earlier one has left in the cache is of no harm
        again = at_once(verify, [str(i) for i, _ in enumerate(CASES)])
    wrong = []
    for name, *both in zip(CASES, done, again):
        for p in both:
            said = (p.stdout + p.stderr).splitlines()
            if p.returncode < 0 or (p.returncode and not 1 <= len(said) <= 6):
                wrong.append((name, p.returncode, said))
    assert wrong == [], '\n'.join(map(str, wrong))


# ---- an end at each byte ----


@pytest.mark.parametrize('how', ['close', 'reset'])
def test_end_at_each_byte(work, mount_fg, cache, how):
    """The first answer breaks off there: the next request has it all."""
    whole = b''.join(right(Request(b'GET /x HTTP/1.1', bytes(64), 0)))
    files = {str(i): numbered(i, bytes(64)) for i in range(len(whole))}

    def broken(r):
        if r.n > 0:
            yield from right(r)
            return
        yield b''.join(right(r))[:int(r.path[1:])]
        yield RESET if how == 'reset' else None

    c = LinkedCarton()
    with Raw(files, dict.fromkeys(files, broken)) as raw:
        for i, data in files.items():
            c.link(f'model/{i}', data, raw.url(i, int(i)))
        with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *cache.options) as m:
            got = at_once(m.read, [f'model/{i}' for i in files])
            assert [i for i, data in files.items() if got[int(i)] != data] == [], m.log()


# ---- slow ones ----


def drip(*parts):
    """The first parts at once; of the last one a byte now and then, for ever."""
    def answer(r):
        yield from parts[:-1]
        for byte in itertools.cycle(parts[-1]):
            time.sleep(.1)
            yield bytes([byte])
    return answer


SLOW = {'status': drip(b'HTTP/1.1 200 O', b'K'), 'header': drip(b'HTTP/1.1 200 OK\r\nX', b'y'),
        'headers': drip(b'HTTP/1.1 200 OK\r\n', b'X: y\r\n'), '1xx': drip(head(102)),
        'body': drip(head(200, f'Content-Length: {N}'), b'x'), 'chunk size': drip(head(200, CHUNKED), b'0'),
        'chunk extension': drip(head(200, CHUNKED) + b'5;', b'x'), 'chunks': drip(head(200, CHUNKED), b'1\r\nx\r\n'),
        'trailers': drip(head(200, CHUNKED) + b'1\r\nx\r\n0\r\n', b'X: y\r\n'),
        'part': drip(head(206, 'Content-Length: 524288', f'Content-Range: bytes 0-524287/{N}', ETAG), b'x'),
        'redirect': drip(head(302, 'Location: /none', 'Content-Length: 999'), b'x'),
        'gzip': drip(head(200, 'Content-Encoding: gzip') + gzip.compress(DATA)[:99], b'\0'),
        'nothing': lambda r: [HOLD]}


def test_slow(work, mount_fg, cache):
    """A byte now and then, at each stage: all end by the timeout."""
    files = {str(i): numbered(i) for i, _ in enumerate(SLOW)}
    c = LinkedCarton()
    with Raw(files, {str(i): fn for i, fn in enumerate(SLOW.values())}) as raw:
        for i, data in files.items():
            c.link(f'model/{i}', data, raw.url(i))
        with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *cache.options, '-o', 'timeout=3') as m:
            got = at_once(lambda i: errno_of(m.read, f'model/{i}'), list(files))
    # a part is given up, and the next request is not for a part
    assert dict(zip(SLOW, got)) == dict.fromkeys(SLOW, errno.ETIMEDOUT) | {'part': errno.EIO}


# ---- come back later ----

def http_date(after):
    return email.utils.formatdate(time.time() + after, usegmt=True)


HOUR = 3600
LATER = {'negative': lambda: ['Retry-After: -5'], 'word': lambda: ['Retry-After: soon'],
         'fraction': lambda: ['Retry-After: 0.5'], 'exponent': lambda: ['Retry-After: 1e9'],
         'past': lambda: [f'Retry-After: {DATE}'],
         'year 1': lambda: ['Retry-After: Thu, 01 Jan 0001 00:00:00 GMT'],
         'clock that is ahead': lambda: [f'Retry-After: {http_date(HOUR + 1)}', f'Date: {http_date(HOUR)}'],
         'clock that is behind': lambda: [f'Date: {http_date(-HOUR)}', f'Retry-After: {http_date(1 - HOUR)}']}


@pytest.mark.parametrize('kind', LATER)
def test_retry_after(work, mount_fg, cache, kind):
    """What makes no sense is left out; a date is one by the server's clock."""
    def busy(r):
        if r.n == 0:
            yield head(503, *LATER[kind](), 'Content-Length: 0')
            return
        yield from right(r)
    with Raw({'x': DATA}, {'x': busy}) as raw:
        c = LinkedCarton().link('model/x', DATA, raw.url('x'))
        with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *cache.options) as m:
            assert at_once(m.read, ['model/x']) == [DATA]


@pytest.mark.parametrize('value', ['9' * 12, '9' * 40, 'Fri, 31 Dec 9999 23:59:59 GMT'])
def test_retry_after_the_end_of_time(work, mount_fg, cache, value):
    """Nobody waits for that."""
    with Raw({'x': DATA}, {'x': lambda r: [head(503, f'Retry-After: {value}', 'Content-Length: 0')]}) as raw:
        c = LinkedCarton().link('model/x', DATA, raw.url('x'))
        with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *cache.options) as m:
            assert at_once(m.read, ['model/x']) == [errno.ETIMEDOUT]
            assert len(lines_of(m.log(), 'overloaded')) <= 2


# ---- downloads that go on ----

@pytest.mark.parametrize('kind', ['another version', 'no version', 'a part of it', 'no total'])
def test_download_that_goes_on_wrong(work, cache, kind):
    """
    Of a server without ranges that open it the whole carton is downloaded, and no hash is known of it: what another version,
    or a part, would make of it must not be taken for the file.
    """
    c = Carton(method='stored').add('model/x', fault_bytes(3 * MIB, seed=8))
    data = c.write(work / 'm.carton').read_bytes()
    old = bytes(len(data))

    def answer(r):
        opening = r.h.get('range', '').startswith(('bytes=-', 'bytes=0-'))
        whole = [q for q in raw.requests if 'range' not in q.h and q.method == 'GET']
        if r.range is None and len(whole) == 1:     # the first one breaks off
            yield head(200, f'Content-Length: {len(data)}', ETAG)
            yield (old if kind == 'another version' else data)[:2 * MIB]
            yield None
        elif r.range is None or opening:
            yield from right(Request(b'GET /x HTTP/1.1', r.data, 0), etag='ETag: "v2"' if kind == 'another version'
                             else ETAG)
        else:
            first, end = r.range
            end -= 5000 if kind == 'a part of it' else 0
            total = '*' if kind == 'no total' else len(data)
            yield head(206, f'Content-Length: {end - first}', f'Content-Range: bytes {first}-{end - 1}/{total}',
                       {'another version': 'ETag: "v2"', 'no version': 'X: y'}.get(kind, ETAG))
            yield data[first:end]

    with Raw({'x': data}, {'x': answer}) as raw:
        for _ in range(2):
            p = ctl('cat', cache.flag, raw.url('x'), 'model/x', text=False)
            assert p.returncode == 0 and p.stdout == fault_bytes(3 * MIB, seed=8), p.stderr


def test_no_suffix_ranges(work, cache):
    """A server may say 416 to a request for the last bytes: it has no such ranges, and the carton is not empty."""
    data = Carton(method='stored').add('model/x', DATA).write(work / 'm.carton').read_bytes()

    def answer(r):
        if r.h.get('range', '').startswith('bytes=-'):
            return [head(416, f'Content-Range: bytes */{len(data)}', 'Content-Length: 0')]
        return right(r)
    with Raw({'x': data}, {'x': answer}) as raw:
        p = ctl('verify', cache.flag, raw.url('x'))
        assert p.returncode == 0, p.stderr


def test_half_ranges(work, mount, cache):
    """A server may give a part of what it was asked for (RFC 9110, 15.3.7): the rest is asked for again."""
    data = Carton(method='stored').add('model/x', fault_bytes(12 * MIB, seed=8)).write(work / 'm.carton').read_bytes()
    most = 300000

    def answer(r):
        if r.range and not r.h['range'].startswith('bytes=-') and r.range[1] - r.range[0] > most:
            r.range = r.range[0], r.range[0] + most
        return right(r)
    with Raw({'x': data}, {'x': answer}) as raw:
        with mount(raw.url('x'), *cache.options) as m:
            assert m.sha('model/x') == digest(fault_bytes(12 * MIB, seed=8))
        assert sum(q.method == 'GET' for q in raw.requests) >= 40


def test_half_ranges_that_break_off(work, cache):
    """Each answer is a byte shorter than what was asked for, and breaks off: the missing ends do not pile up."""
    content = fault_bytes(7 * MIB, seed=8)
    data = Carton(method='stored').add('model/x', content).write(work / 'm.carton').read_bytes()
    least = 65536                                   # what counts as progress

    def answer(r):
        first, end = r.range or (0, 0)
        if r.h.get('range', '').startswith('bytes=-') or end - first <= least + 1:
            yield from right(r)
            return
        yield head(206, f'Content-Length: {end - 1 - first}',
                   f'Content-Range: bytes {first}-{end - 2}/{len(data)}', ETAG)
        yield data[first:first + least]
        yield None

    with Raw({'x': data}, {'x': answer}) as raw:
        p = ctl('cat', cache.flag, raw.url('x'), 'model/x', text=False)
        assert p.returncode == 0 and p.stdout == content, p.stderr
        assert len(raw.requests) > 100
