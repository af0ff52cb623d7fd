# SPDX-License-Identifier: Apache-2.0
"""The local header of a large Stored entry comes with its first bytes, and is compared with the central directory."""
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
from zipwriter import Carton

NAME = 'model/large'
DATA = fault_bytes(12 * MIB + 999, seed=5)
# how it differs: where in the header, and what is said
FAULTS = {'name': (30, 'has another name'), 'flags': (6, 'has other flags'), 'method': (8, 'has another compression method'),
          'crc': (14, 'has another crc'), 'size': (22, 'has other sizes'), 'longer': (28, 'overlaps what follows it'),
          'signature': (0, 'has no local header')}


def written(path, index=True):
    c = Carton(method='stored').add('misc/before', b'b').add(NAME, DATA)
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
        with mount_fg(nginx.url(name), *cache.options) as m:
            nginx.clear()
            assert errno_of(pread, m / NAME, 10, off) == errno.EIO
            assert lines_of(m.log(), f'{NAME}: {FAULTS[wrong][1]}')
            # nothing was asked for behind it
            assert len(nginx.requests()) == 1
            assert m.read('misc/before') == b'b'
        # a later mount would find data by its hash
        assert c.hashes()[NAME] not in cache.objects()
        assert sum(p.stat().st_blocks * 512 for p in (cache.path / 'v1/partials').iterdir()) < CHUNK


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
