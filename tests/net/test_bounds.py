# SPDX-License-Identifier: Apache-2.0
"""
How much a server may send: what the carton or the server says, or max_size=; no cache is filled by a body without end.
"""
import errno
import os
import re
import threading
import zlib
from pathlib import Path

import pytest

import chunkindex
from harness import ctl
from origin import MIB, PRIVATE, LinkedCarton, as_expected, digest, errno_of, fault_bytes, lines_of
from rawhttp import CHUNKED, ETAG, Raw, head
from rawhttp2 import DATA_, STATUS_200, Http2, frame
from rawhttp2 import head as head2
from zipwriter import Carton

BOUND = 2 * MIB
LIMIT = ('-o', f'max_size={BOUND}')
DATA = fault_bytes(BOUND, seed=3)
# what the buffers of two sockets and of a transfer may hold besides, for each of a few requests
SPARE = 64 * MIB


class Endless(Raw):
    """A server that answers each GET of `names` by bytes without end; counts those that it could send."""

    def __init__(self, how, *names, files=()):
        super().__init__(dict.fromkeys(names, b'') | dict(files), dict.fromkeys(names, getattr(self, how)))
        self.heads = dict.fromkeys(names, lambda r: [head(404, 'Content-Length: 0')])
        self.sent, self.counting = 0, threading.Lock()

    def go_on(self, block, n=1 << 16):
        while self.sent < 4 * SPARE:        # a test that fails need not fill the disk
            yield block() if callable(block) else block
            with self.counting:
                self.sent += n

    def plain(self, r):
        yield head(200, ETAG)
        yield from self.go_on(bytes(1 << 16))

    def chunked(self, r):
        yield head(200, CHUNKED)
        yield from self.go_on(b'10000\r\n' + bytes(1 << 16) + b'\r\n')

    def gzip(self, r):
        c = zlib.compressobj(1, zlib.DEFLATED, 31)
        yield head(200, CHUNKED, 'Content-Encoding: gzip')

        def block():
            data = c.compress(bytes(1 << 22)) + c.flush(zlib.Z_SYNC_FLUSH)
            return b'%x\r\n' % len(data) + data + b'\r\n'
        yield from self.go_on(block, 1 << 15)       # about as much as it is coded

    def announced(self, r):
        yield head(200, f'Content-Length: {1 << 62}', ETAG)
        yield from self.go_on(bytes(1 << 16))

    def part(self, r):
        """The total of a part is as good as a length."""
        first = r.range[0] if r.range else 0
        yield head(206, f'Content-Range: bytes {first}-{(1 << 40) - 1}/{1 << 40}', ETAG)
        yield from self.go_on(bytes(1 << 16))


HOW = pytest.mark.parametrize('how', ['plain', 'chunked', 'gzip', 'announced', 'part'])


def nothing_left(cache):
    """No partial file, and nothing else that is as long as the bound."""
    left = {p.name: p.stat().st_size for p in cache.path.rglob('*') if p.is_file() and 'seals' not in p.parts}
    assert not list(cache.path.glob('v1/partials/*')), left
    assert sum(left.values()) < BOUND, left


def told(text, name='x'):
    """One line says what to do."""
    lines = lines_of(text, f'{name}: .*(refused|stopped)')
    assert len(lines) == 1 and re.search('the option (max_size|--max-size) ', lines[0]), text


@HOW
def test_links(work, mount_fg, cache, how):
    with Endless(how, 'x') as raw:
        c = LinkedCarton().link('model/x', DATA, raw.url('x'))
        with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *LIMIT, *cache.options) as m:
            assert errno_of(m.read, 'model/x') == errno.EFBIG, m.log()
            nothing_left(cache)
            told(m.log())
    assert raw.sent < SPARE


def test_links_over_http2(work, mount_fg, cache, certificate):
    def endless(s, data, get):
        yield head2(s, STATUS_200)
        for _ in range(4 * SPARE // 16000):
            yield frame(DATA_, 0, s, bytes(16000))
    with Http2(certificate, {'a': DATA}, {'a': endless}) as server:
        c = LinkedCarton().link('model/x', DATA, server.url('a'))
        with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *LIMIT, *cache.options, '-o',
                      f'cacert={certificate[0]}') as m:
            assert errno_of(m.read, 'model/x') == errno.EFBIG, m.log()
            nothing_left(cache)
            told(m.log(), 'a')


@pytest.mark.parametrize('size', [BOUND, BOUND + 1])
@pytest.mark.parametrize('how', ['length', 'chunked', 'ranges'])
def test_the_bound_itself(fault, work, mount_fg, cache, how, size):
    """As many bytes are fetched, one more is not, whether they are announced or not."""
    kw = {'length': dict(norange=1, noaccept=1), 'chunked': dict(norange=1, noaccept=1, chunked=1), 'ranges': {}}[how]
    data = fault_bytes(size)
    c = LinkedCarton().link('model/x', data, fault.url('x', size=size, **kw))
    with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *LIMIT, *cache.options) as m:
        if size == BOUND:
            assert m.read('model/x') == data
        else:
            assert errno_of(m.read, 'model/x') == errno.EFBIG, m.log()
            nothing_left(cache)
            told(m.log())


def test_without_the_option(fault, work, mount_fg, cache):
    """What a server announces is believed up to 1 TiB."""
    urls = {str(i): fault.url(f'x{i}', size=9, length=(1 << 40) + i, norange=1, noaccept=1) for i in (0, 1)}
    c = LinkedCarton()
    for name, url in urls.items():
        c.link(f'model/{name}', fault_bytes(9, seed=int(name)), url)
    with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *cache.options) as m:
        assert errno_of(m.read, 'model/1') == errno.EFBIG, m.log()
        told(m.log(), 'x1')
        assert errno_of(m.read, 'model/0') not in (0, errno.EFBIG), m.log()
        nothing_left(cache)


@pytest.mark.parametrize('first', [True, False])
def test_another_url_helps(fault, work, mount_fg, cache, first):
    with Endless('plain', 'x') as raw:
        urls = [raw.url('x'), fault.url('good', size=BOUND, seed=3)]
        c = LinkedCarton().link('model/x', DATA, *urls[::1 if first else -1])
        with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *LIMIT, *cache.options) as m:
            assert m.read('model/x') == DATA
    assert raw.sent < SPARE


def test_another_url_that_fails(fault, work, mount_fg, cache):
    """An error that may pass is told rather than the bound, and nothing is left of what was over it."""
    with Endless('plain', 'x') as raw:
        c = LinkedCarton().link('model/x', DATA, raw.url('x'), fault.url('denied', status=403))
        with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *LIMIT, *cache.options) as m:
            assert errno_of(m.read, 'model/x') == errno.EACCES
            nothing_left(cache)


@HOW
def test_user_mirror(fault, work, mount_fg, cache, how):
    """One that has no end is a miss, of a file in LINKS and of an entry, whose size is known."""
    c = Carton(method='stored').add('model/entry', DATA)
    remote = c.write(work / 'root.carton').read_bytes()
    with Endless(how, digest(DATA), files={'r.carton': remote}) as raw:
        template = ('-o', f'mirror={raw.url("{sha256}")}')
        linked = LinkedCarton().link('model/x', DATA, fault.url('good', size=BOUND, seed=3))
        with mount_fg(linked.write(work / 'm.carton'), *PRIVATE, *LIMIT, *template, *cache.options) as m:
            as_expected(m, linked)
        ctl('cache', 'gc', '0', cache.flag)
        with mount_fg(raw.url('r.carton'), *template, *cache.options) as m:
            as_expected(m, c)
    assert raw.sent < SPARE


def test_known_size(work, mount_fg, cache):
    """A chunk index says how long a file is: a longer one is not fetched beyond that, whatever the option allows."""
    data = fault_bytes(9 * MIB, seed=4)
    with Endless('plain', 'x') as raw:
        c = LinkedCarton().link('model/x', data, raw.url('x'))
        c.add(chunkindex.PATH, chunkindex.index(data))
        with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *cache.options) as m:
            assert errno_of(m.read, 'model/x') == errno.EIO
            assert len(lines_of(m.log(), 'says that it has 9437184 bytes, but it has more')) == 1, m.log()
            assert cache.used() <= 9 * MIB
    assert raw.sent < SPARE


SOURCES = {'http': (lambda raw: raw.url('m.carton'), lambda raw: {}),
           's3': (lambda raw: 's3://bucket/m.carton', lambda raw: {'AWS_ENDPOINT_URL': raw.url('')[:-1]}),
           'hf': (lambda raw: 'hf://org/repo/m.carton', lambda raw: {'HF_ENDPOINT': raw.url('')[:-1]})}


@pytest.mark.parametrize('source', SOURCES)
@pytest.mark.parametrize('how', ['plain', 'chunked', 'gzip', 'announced'])
def test_source(work, cache, source, how):
    """A carton that is fetched as a whole."""
    url, env = SOURCES[source]
    with Endless(how, 'm.carton') as raw:
        p = ctl('hash', '--max-size=2M', cache.flag, url(raw), env=env(raw))
        assert p.returncode == 1 and p.stdout == ''
        told(p.stderr, 'm.carton')
        nothing_left(cache)
    assert raw.sent < SPARE


@pytest.mark.parametrize('more', [0, 1])
def test_size_of_a_source(fault, work, cache, more):
    data = Carton(method='stored').add('model/x', DATA).write(Path(fault.root) / 'b.carton').read_bytes()
    url = fault.url('b', file='b.carton', norange=1, noaccept=1, chunked=1)
    p = ctl('verify', f'--max-size={len(data) - more}', cache.flag, url)
    assert p.returncode == more, p.stderr
    if more:
        told(p.stdout + p.stderr, 'b')
        nothing_left(cache)


def test_a_carton_that_is_read_by_ranges(fault, work, cache):
    """It may be longer: as much of it is fetched as is read."""
    c = Carton(method='stored').add('model/x', DATA).add('model/y', fault_bytes(BOUND, seed=5))
    c.write(Path(fault.root) / 'c.carton')
    p = ctl('verify', '--max-size=2M', cache.flag, fault.url('c', file='c.carton'))
    assert p.returncode == 0, p.stderr


def test_bodies_that_nobody_wants(work, mount_fg, cache):
    """Of an error, of a redirect, behind HEAD, and headers without end: none is kept, and another URL helps."""
    def of_head(r):
        yield head(200, f'Content-Length: {len(r.data)}', 'Accept-Ranges: bytes', ETAG)
        yield from raw.go_on(bytes(1 << 16))

    def error(r):
        yield head(404)
        yield from raw.go_on(bytes(1 << 16))

    def redirect(r):
        yield head(302, 'Location: /good-redirect', CHUNKED)
        yield from raw.go_on(b'10000\r\n' + bytes(1 << 16) + b'\r\n')

    def headers(r):
        yield b'HTTP/1.1 200 OK\r\n'
        yield from raw.go_on(b'X: ' + b'y' * 997 + b'\r\n', 1002)

    def trailers(r):
        yield head(200, CHUNKED) + b'5\r\nHello\r\n0\r\n'
        yield from raw.go_on(b'X: ' + b'y' * 997 + b'\r\n', 1002)

    answers = {'error': error, 'redirect': redirect, 'headers': headers, 'trailers': trailers}
    c = LinkedCarton()
    data = {name: DATA[i:] for i, name in enumerate([*answers, 'head'])}
    with Endless('plain', files=data | {f'good-{name}': d for name, d in data.items()}) as raw:
        raw.answers, raw.heads = answers, {'head': of_head}
        for name, d in data.items():
            c.link(f'model/{name}', d, raw.url(name), raw.url(f'good-{name}'))
        with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *LIMIT, *cache.options) as m:
            assert os.stat(m / 'model/head').st_size == len(data['head'])
            assert [name for name, d in data.items() if m.read(f'model/{name}') != d] == [], m.log()
            assert not list(cache.path.glob('v1/partials/*'))
    assert raw.sent < SPARE
