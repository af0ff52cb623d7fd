# SPDX-License-Identifier: Apache-2.0
"""
The local header of a large Stored entry comes with its first bytes, or beside them, and is compared with the central
directory before any of them is used.
"""
import concurrent.futures
import errno
import os
import threading

import pytest

import chunkindex
from chunkindex import CHUNK, pread
from harness import eventually
from origin import MIB, errno_of, fault_bytes, lines_of
from rawhttp import HOLD, Raw, right
from relay import relay
from zipwriter import Carton, extra_field

NAME = 'model/large'
CONNECTIONS = 4
DATA = fault_bytes(12 * MIB + 999, seed=5)
# how it differs: where in the header, and what is said
FAULTS = {'name': (30, 'has another name'), 'flags': (6, 'has other flags'), 'method': (8, 'has another compression method'),
          'crc': (14, 'has another crc'), 'size': (22, 'has other sizes'), 'longer': (28, 'overlaps what follows it'),
          'signature': (0, 'has no local header')}


def written(path, index=True, **entry):
    c = Carton(method='stored').add('misc/before', b'b').add(NAME, DATA, **entry)
    if index:
        c.add(chunkindex.PATH, chunkindex.index(DATA))
    c.write(path)
    return c


def damage(path, c, wrong):
    """As a writer that may keep the time of the file, and so the server its ETag."""
    at, st = c.placed[NAME].local + FAULTS[wrong][0], os.stat(path)
    with open(path, 'r+b') as f:
        f.seek(at)
        byte = f.read(1)[0] ^ 1
        f.seek(at)
        f.write(bytes([byte]))
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


def test_one_request(nginx, mount, cache):
    """4 KiB at the start are one request, and those behind one more; a later mount asks for the header before them."""
    written(nginx.root / 'one.carton')
    for reads in ((0, 1), (20, 1)), ((0, 0), (30, 2), (40, 1)):
        with mount(nginx.url('one.carton'), *cache.options) as m:
            for chunk, requests in reads:
                nginx.clear()
                assert pread(m / NAME, 4096, chunk * CHUNK) == DATA[chunk * CHUNK:][:4096]
                assert len(nginx.requests()) == requests


def test_readers_at_once(nginx, mount, cache):
    """The header is asked for once, whoever waits for it."""
    c = written(nginx.root / 'once.carton')
    chunks = range(2, 42, 5)
    with relay(nginx.port, rtt=50) as link, mount(f'http://127.0.0.1:{link.port}/once.carton', *cache.options) as m:
        nginx.clear()
        with concurrent.futures.ThreadPoolExecutor(len(chunks)) as pool:
            got = pool.map(lambda i: pread(m / NAME, 4096, i * CHUNK), chunks)
            assert list(got) == [DATA[i * CHUNK:][:4096] for i in chunks]
        headers = [r for r in nginx.requests() if r['range'].startswith(f'bytes={c.placed[NAME].local}-')]
        assert len(headers) == 1


OTHER = 'model/another'
OTHER_DATA = fault_bytes(9 * MIB, seed=6)


class DataFirst:
    """A Raw whose answer with the header alone waits for the data to be sent, which sets `came`."""

    def __init__(self, path, **entry):
        self.c = Carton(method='stored').add(OTHER, OTHER_DATA).add(NAME, DATA, **entry)
        self.c.add(chunkindex.PATH, chunkindex.index(DATA, OTHER_DATA)).write(path)
        self.came, self.both = threading.Event(), threading.Barrier(2)
        self.path = path

    def answer(self, r):
        at, other = self.c.placed[NAME], self.c.placed[OTHER]
        if other.data < r.range[0] < r.range[1] <= other.end:
            self.both.wait(60)
        if r.range[1] == at.data:
            self.came.wait(60)
        yield from right(r)
        if at.data <= r.range[0] < r.range[1] <= at.end:
            self.came.set()

    def start(self):
        return Raw({'x': self.path.read_bytes()}, {'x': self.answer})

    def connect(self, raw, m):
        """Two requests at once: then there are two connections. Returns how many requests there were."""
        assert pread(m / OTHER, 10, 0) == OTHER_DATA[:10]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for off, got in zip((10 * CHUNK, 20 * CHUNK), pool.map(lambda off: pread(m / OTHER, 10, off),
                                                                 (10 * CHUNK, 20 * CHUNK)), strict=True):
                assert got == OTHER_DATA[off:off + 10]
        return len(raw.requests)

    def nothing_kept(self, cache):
        """But three chunks of the other file."""
        assert self.c.hashes()[NAME] not in cache.objects()
        assert sum(p.stat().st_blocks * 512 for p in (cache.path / 'v1/partial').iterdir()) < 4 * CHUNK


EXTRA = extra_field(0xd935, bytes(5000))


@pytest.mark.parametrize('entry', [{}, dict(local_extra=EXTRA), dict(local_extra=EXTRA, central_extra=extra_field(0xd935, b'1')),
                                   dict(central_extra=extra_field(0xd935, b''))])
def test_data_beside_it(work, mount_fg, cache, entry):
    """One round trip for both, whatever extra fields there are: where the data begins follows from where it ends."""
    x = DataFirst(work / 'x', **entry)
    with x.start() as raw, mount_fg(raw.url('x'), *cache.options) as m:
        before = x.connect(raw, m)
        assert pread(m / NAME, 4096, 20 * CHUNK) == DATA[20 * CHUNK:][:4096]
        assert x.came.is_set() and len(raw.requests) == before + 2


@pytest.mark.parametrize('wrong', FAULTS)
def test_data_that_comes_before_it(work, mount_fg, cache, wrong):
    """Data that has the right hash is of no use, and not kept, once the header turns out to be wrong."""
    x = DataFirst(work / 'x', local_extra=EXTRA)
    damage(work / 'x', x.c, wrong)
    with x.start() as raw, mount_fg(raw.url('x'), *cache.options) as m:
        x.connect(raw, m)
        assert errno_of(pread, m / NAME, 10, 20 * CHUNK) == errno.EIO
        assert x.came.is_set()
        assert lines_of(m.log(), f'{NAME}: {FAULTS[wrong][1]}')
        # nor is it there for who asks again
        assert errno_of(pread, m / NAME, 10, 20 * CHUNK) == errno.EIO
    x.nothing_kept(cache)


def test_data_elsewhere(work, mount_fg, cache):
    """A header whose extra field is shorter than the room for it: the data would begin earlier than it is read."""
    x = DataFirst(work / 'x', local_extra=EXTRA, local=dict(extra_len=4))
    with x.start() as raw, mount_fg(raw.url('x'), *cache.options) as m:
        x.connect(raw, m)
        assert errno_of(pread, m / NAME, 10, 20 * CHUNK) == errno.EIO
        assert x.came.is_set()
        assert lines_of(m.log(), f'{NAME}: ')
    x.nothing_kept(cache)


def test_header_in_parts(work, mount_fg, cache):
    """From a server that gives less than it was asked for: its parts come one after the other."""
    c = written(work / 'x', local_extra=extra_field(0xd935, bytes(65500)))
    at = c.placed[NAME]

    def answer(r):
        if r.range[0] == at.local:
            r.range = at.local, at.local + 65536
        yield from right(r)

    with Raw({'x': (work / 'x').read_bytes()}, {'x': answer}) as raw, mount_fg(raw.url('x'), *cache.options) as m:
        for off in 20 * CHUNK, 0:
            assert pread(m / NAME, 4096, off) == DATA[off:off + 4096]


def test_whole(nginx, mount, cache):
    """No request is for the header alone."""
    written(nginx.root / 'whole.carton', index=False)
    with mount(nginx.url('whole.carton'), *cache.options, '-o', 'connections=1') as m:
        nginx.clear()
        assert m.read(NAME) == DATA
        sizes = [r['sent'] for r in nginx.requests()]
        assert min(sizes[:-1]) > CHUNK and sum(sizes) < len(DATA) + 4096 * len(sizes)


@pytest.mark.parametrize('wrong', FAULTS)
def test_differs(nginx, mount_fg, cache, wrong):
    """An error wherever the file is read, told once, and nothing is kept of it."""
    for index, off in (True, 0), (True, 20 * CHUNK), (False, 0):
        name = f'{wrong}-{index}-{off}.carton'
        c = written(nginx.root / name, index)
        damage(nginx.root / name, c, wrong)
        with mount_fg(nginx.url(name), *cache.options, '-o', f'connections={CONNECTIONS}') as m:
            nginx.clear()
            assert errno_of(pread, m / NAME, 10, off) == errno.EIO
            assert lines_of(m.log(), f'{NAME}: {FAULTS[wrong][1]}')
            # no more was asked for than what comes beside it
            headers = [r for r in nginx.requests() if r['range'].startswith(f'bytes={c.placed[NAME].local}-')]
            assert len(headers) == 1 and len(nginx.requests()) <= (2 if index else CONNECTIONS)
            assert m.read('misc/before') == b'b'
        # a later mount would find data by its hash
        assert c.hashes()[NAME] not in cache.objects()
        assert sum(p.stat().st_blocks * 512 for p in (cache.path / 'v1/partial').iterdir()) < CHUNK


def test_differs_when_resumed(fault, mount_fg, cache):
    """What was fetched while it was right is not enough."""
    path = os.path.join(fault.root, 'resumed.carton')
    c = written(path, index=False)
    url = fault.url('x', file='resumed.carton', etag='same', rate=4 * MIB)
    with mount_fg(url, *cache.options) as m:
        reader = threading.Thread(target=lambda: errno_of(m.read, NAME))
        reader.start()
        eventually('much of it is here', lambda: max(cache.partials().values(), default=0) >= 4 * MIB)
        m.process.kill()
        m.process.wait()
        m.ended = True
        reader.join()
    damage(path, c, 'name')
    with mount_fg(url, *cache.options) as m:
        assert errno_of(m.read, NAME) == errno.EIO
        assert lines_of(m.log(), f'{NAME}: has another name')
    assert c.hashes()[NAME] not in cache.objects()


def header_breaks(c, n):
    """An answer() of a Raw: the first one with the header ends after so many bytes; -1: none has it, ever."""
    asked = []

    def answer(r):
        if n >= 0 and asked or r.h['range'].startswith('bytes=-') or not r.range[0] < c.placed[NAME].data < r.range[1] + 1:
            yield from right(r)
            return
        asked.append(r)
        yield HOLD if n < 0 else b''.join(right(r))[:-(r.range[1] - r.range[0])] + r.data[r.range[0]:][:n]
        yield None
    return {'x': answer}


@pytest.mark.parametrize('wrong', [None, 'name'])
@pytest.mark.parametrize('n', [0, 9, 60])
@pytest.mark.parametrize('off', [0, 20 * CHUNK])
def test_answer_that_breaks_off(work, mount_fg, cache, off, n, wrong):
    """Within the header, or behind it: that is compared when all of it is there."""
    c = written(work / 'x')
    if wrong:
        damage(work / 'x', c, wrong)
    with Raw({'x': (work / 'x').read_bytes()}, header_breaks(c, n)) as raw, mount_fg(raw.url('x'), *cache.options) as m:
        if wrong:
            for _ in range(2):
                assert errno_of(pread, m / NAME, 4096, off) == errno.EIO
            assert lines_of(m.log(), f'{NAME}: has another name')
        else:
            assert pread(m / NAME, 4096, off) == DATA[off:off + 4096]


def test_header_that_does_not_come(work, mount_fg, cache):
    """Nothing is read without it."""
    c = written(work / 'x')
    with Raw({'x': (work / 'x').read_bytes()}, header_breaks(c, -1)) as raw, \
            mount_fg(raw.url('x'), *cache.options, '-o', 'timeout=2') as m:
        for off in 20 * CHUNK, 0:
            assert errno_of(pread, m / NAME, 10, off) == errno.ETIMEDOUT
        assert m.read('misc/before') == b'b'
