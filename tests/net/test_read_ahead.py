# SPDX-License-Identifier: Apache-2.0
"""What is fetched ahead of readers of large files, behind a link."""
import concurrent.futures
import errno
import json
import os
import random
import signal
import time

import pytest

import chunkindex
import zipwriter
from chunkindex import CHUNK, overwrite
from harness import eventually, freeze
from origin import MIB, PRIVATE, LinkedCarton, errno_of
from relay import relay

SIZE = 128 * MIB
NAME = 'model/large'
# what a mount reads at the end of the carton
TAIL = 256 << 10


def content(i, size):
    return random.Random(i).randbytes(size)


@pytest.fixture(scope='module')
def large(nginx):
    """(name, content) of a carton with one large file."""
    data = b''.join(content(i, MIB) for i in range(SIZE // MIB))
    carton = zipwriter.Carton(method='stored').add(NAME, data)
    path = carton.add(chunkindex.PATH, chunkindex.index(data)).write(nginx.root / 'ahead.carton')
    yield path.name, data
    os.unlink(path)


def read_pieces(path, at, size):
    """By reads of 1 MiB."""
    with open(path, 'rb') as f:
        return b''.join(os.pread(f.fileno(), MIB, off) for off in range(at, at + size, MIB))


def test_tensors_at_once(nginx, large, mount, cache):
    """8 readers, each of 8 MiB, need 5 to 9 requests each, and what they did not read is bounded."""
    nginx.clear()
    size = 8 * MIB
    with relay(nginx.port, rtt=20, rate=1000, slow_start=True) as link:
        with mount(f'http://127.0.0.1:{link.port}/{large[0]}', *cache.options) as m:
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                starts = range(0, SIZE, SIZE // 8)
                for at, got in zip(starts, pool.map(lambda at: read_pieces(m / NAME, at, size), starts), strict=True):
                    assert got == large[1][at:at + size]
        # 1.3 times where the machine is quiet: what is read ahead grows with the time that an answer takes
        assert link.counts()['down'] <= 1.8 * 8 * size < SIZE
    assert len(nginx.requests(large[0])) <= 72


def test_random_reads(nginx, large, mount, cache):
    """Nothing is fetched ahead of who reads here and there."""
    chunks = random.Random(5).sample(range(0, SIZE // CHUNK, 3), 30)
    with relay(nginx.port, rtt=5) as link, mount(f'http://127.0.0.1:{link.port}/{large[0]}', *cache.options) as m:
        before = link.counts()['down']
        for i in chunks:
            assert chunkindex.pread(m / NAME, 4096, i * CHUNK) == large[1][i * CHUNK:][:4096]
        assert link.counts()['down'] - before <= len(chunks) * (CHUNK + 4096) + 4096


def test_nothing_comes_after_the_last_close(nginx, large, mount, cache):
    """What is under way for a reader ends when nobody has the file open any more."""
    size, others = 12 * MIB, range(32 * MIB, 92 * MIB, 6 * CHUNK)

    def fetched(m):
        return json.loads(m.read('.cartonfs/status.json'))['fetched_bytes']

    with relay(nginx.port, rtt=100, rate=80, slow_start=True) as link:
        with mount(f'http://127.0.0.1:{link.port}/{large[0]}', *cache.options) as m:
            with open(m / NAME, 'rb') as f:
                # what the kernel itself reads ahead would keep it open
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
                assert b''.join(os.pread(f.fileno(), MIB, off) for off in range(0, size, MIB)) == large[1][:size]
            before = fetched(m)
            # what was asked for ahead would come beside these 10 MiB
            for at in others:
                assert chunkindex.pread(m / NAME, 4096, at) == large[1][at:at + 4096]
            assert fetched(m) - before <= len(others) * CHUNK + MIB
            # who comes back gets the rest
            assert read_pieces(m / NAME, size, 4 * MIB) == large[1][size:][:4 * MIB]


def test_pieces_of_a_slow_link(nginx, large, mount, cache):
    """Who reads beside others that come slowly waits as long as something comes."""
    offsets, timeout = range(0, 2 * MIB, 2 * CHUNK), 5
    with relay(nginx.port, rtt=20, rate=2) as link:
        with mount(f'http://127.0.0.1:{link.port}/{large[0]}', *cache.options, '-o', f'timeout={timeout}') as m:
            began = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(len(offsets)) as pool:
                got = pool.map(lambda at: chunkindex.pread(m / NAME, 2 * CHUNK, at), offsets)
                for at, data in zip(offsets, got, strict=True):
                    assert data == large[1][at:at + 2 * CHUNK]
            assert time.monotonic() - began > timeout, 'the link is slow'


def test_what_came_before_an_error(nginx, large, mount, cache):
    """A read that ends early has all before the bytes that time out; the next fails, and is never an end of file."""
    with relay(nginx.port, rtt=20, rate=6) as link:
        with mount(f'http://127.0.0.1:{link.port}/{large[0]}', *cache.options, '-o', 'timeout=2') as m, \
                open(m / NAME, 'rb', buffering=0) as f, concurrent.futures.ThreadPoolExecutor(1) as pool:
            before = link.counts()['down']
            first = pool.submit(os.pread, f.fileno(), 8 * CHUNK, 0)
            eventually('some has come', lambda: link.counts()['down'] - before > CHUNK * 5 // 4)
            freeze(link.process.pid)
            try:
                got = first.result()
                assert 0 < len(got) < 8 * CHUNK and got == large[1][:len(got)]
                assert errno_of(os.pread, f.fileno(), CHUNK, len(got)) == errno.ETIMEDOUT
            finally:
                link.process.send_signal(signal.SIGCONT)
            assert chunkindex.pread(m / NAME, 8 * CHUNK, 0) == large[1][:8 * CHUNK]


def test_near_and_far(nginx, mount, cache, tmp_path):
    """How far ahead a file is fetched depends on its own server, not on the one that was asked before."""
    near, far = content(301, 48 * MIB), content(302, 64 * MIB)
    with relay(nginx.port, rtt=100, rate=1000, slow_start=True) as link:
        carton = LinkedCarton(method='stored')
        carton.link('model/near', near, nginx.put('near', near))
        carton.link('model/far', far, nginx.put('far', far).replace(f':{nginx.port}/', f':{link.port}/'))
        path = carton.add(chunkindex.PATH, chunkindex.index(near, far)).write(tmp_path / 'm.carton')
        with mount(path, *PRIVATE, *cache.options) as m:
            assert read_pieces(m / 'model/near', 0, len(near)) == near
            nginx.clear()
            assert read_pieces(m / 'model/far', 0, len(far)) == far
    # requests of 2 MiB, the least that a window is, would be 32
    assert len(nginx.requests('far')) <= 30
    for name in 'near', 'far':
        os.unlink(nginx.root / name)


# ---- across files ----

SHARD, COUNT = 8 * MIB + 12345, 8


@pytest.fixture(scope='module', params=[False, True], ids=['whole', 'index'])
def shards(nginx, request):
    """(name, contents by path) of a carton with a set of large files."""
    files = {f'model/model-{i:05}-of-{COUNT:05}.bin': content(100 + i, SHARD) for i in range(COUNT)}
    carton = zipwriter.Carton(method='stored')
    for name, data in files.items():
        carton.add(name, data)
    if request.param:
        carton.add(chunkindex.PATH, chunkindex.index(*files.values()))
    path = carton.write(nginx.root / f'shards{request.param:d}.carton')
    yield path.name, files
    os.unlink(path)


def ranges(nginx, name):
    """The parts of the file that were asked for: (first, last)."""
    found = [r['range'] for r in nginx.requests(name) if r['range'].startswith('bytes=')]
    return [tuple(int(x) for x in r[6:].split('-')) for r in found if not r.startswith('bytes=-')]


def is_asked_for(nginx, shards, name):
    """Has any part of the file been asked for, behind its first chunk?"""
    where = (nginx.root / shards[0]).read_bytes().index(shards[1][name][:4096])
    return lambda: any(first < where + SHARD and last > where + CHUNK for first, last in ranges(nginx, shards[0]))


def test_next_shard(nginx, shards, mount, cache):
    """Who has read two in order, and holds the second open, has the third; all come once."""
    nginx.clear()
    names = list(shards[1])
    with mount(nginx.url(shards[0]), *cache.options) as m:
        assert m.read(names[0]) == shards[1][names[0]]
        with open(m / names[1], 'rb') as f:
            assert f.read() == shards[1][names[1]]
            eventually('the next one comes', is_asked_for(nginx, shards, names[2]))
            # no further than two
            assert not is_asked_for(nginx, shards, names[5])()
        for name in names[2:]:
            assert m.read(name) == shards[1][name]
        assert sum(r['sent'] for r in nginx.requests(shards[0])) <= COUNT * (SHARD + 4096) + TAIL


@pytest.mark.parametrize('order', ['number', 'name'])
def test_numbers_without_zeros(nginx, mount, cache, order):
    """Shards are read in the order of their numbers by some, of their names by others: the next one comes to both."""
    files = {f'model/x-{i}.bin': content(200 + i, SHARD) for i in (1, 2, 3, 4, 10, 11)}
    carton = zipwriter.Carton(method='stored')
    for name, data in files.items():
        carton.add(name, data)
    path = carton.write(nginx.root / f'{order}.carton')
    nginx.clear()
    first, second, third = [f'model/x-{i}.bin' for i in ((1, 2, 3) if order == 'number' else (1, 10, 11))]
    with mount(nginx.url(path.name), *cache.options) as m:
        assert m.read(first) == files[first]
        with open(m / second, 'rb') as f:
            assert f.read() == files[second]
            eventually('the next one comes', is_asked_for(nginx, (path.name, files), third))
    path.unlink()


def test_not_in_order(nginx, shards, mount, cache):
    nginx.clear()
    names = list(shards[1])
    with mount(nginx.url(shards[0]), *cache.options) as m:
        for i in (6, 3, 1):
            assert m.read(names[i]) == shards[1][names[i]]
    assert not any(is_asked_for(nginx, shards, names[i])() for i in (0, 2, 4, 5, 7))


def test_off(nginx, shards, mount, cache):
    """After the end of the mount, nothing can come any more."""
    nginx.clear()
    names = list(shards[1])
    with mount(nginx.url(shards[0]), *cache.options, '-o', 'ahead=off') as m:
        for name in names[:3]:
            assert m.read(name) == shards[1][name]
    assert not any(is_asked_for(nginx, shards, name)() for name in names[3:])


def test_no_room(nginx, shards, mount, cache):
    """There is room for one of them: each is read all the same, and nothing is fetched in vain."""
    nginx.clear()
    names = list(shards[1])
    with mount(nginx.url(shards[0]), *cache.options, '-o', f'cache_size={SHARD + 2 * MIB}') as m:
        for name in names:
            assert m.read(name) == shards[1][name]
    assert sum(r['sent'] for r in nginx.requests(shards[0])) <= 1.3 * COUNT * SHARD


def test_wrong_bytes(nginx, shards, mount_fg, cache):
    """The file that was fetched ahead is an error for its reader only, and logged once."""
    names = list(shards[1])
    path = nginx.root / shards[0]
    at = path.read_bytes().index(shards[1][names[2]][:4096]) + CHUNK
    good = shards[1][names[2]][CHUNK]
    overwrite(path, at, bytes([good ^ 1]))
    nginx.clear()
    try:
        with mount_fg(nginx.url(shards[0]), *cache.options) as m:
            assert m.read(names[0]) == shards[1][names[0]]
            with open(m / names[1], 'rb') as f:
                assert f.read() == shards[1][names[1]]
                eventually('the next one comes', is_asked_for(nginx, shards, names[2]))
            eventually('it is found', lambda: m.log().count('sha256') == 1)
            with pytest.raises(OSError) as e:
                m.read(names[2])
            assert e.value.errno == errno.EIO
            for name in names[3:]:
                assert m.read(name) == shards[1][name]
            assert m.log().count('sha256') == 1
            with pytest.raises(OSError):
                m.read(names[2])
    finally:
        overwrite(path, at, bytes([good]))


@pytest.mark.parametrize('shards', [False], ids=['whole'], indirect=True)
def test_no_request_for_little(nginx, shards, mount, cache):
    """A shard is not cut into pieces that take longer to ask for than to send."""
    nginx.clear()
    with relay(nginx.port, rtt=20, rate=1000, slow_start=True) as link, \
            mount(f'http://127.0.0.1:{link.port}/{shards[0]}', *cache.options) as m:
        for name, data in shards[1].items():
            assert m.read(name) == data
    sizes = [last + 1 - first for first, last in ranges(nginx, shards[0]) if first >= CHUNK]
    assert min(sizes) >= CHUNK
    assert sum(sizes) <= COUNT * (SHARD + 4096)


@pytest.mark.parametrize('shards', [True], ids=['index'], indirect=True)
def test_window_goes_on(nginx, shards, mount, cache):
    """Who has read one in order has a window from the start of the next; not so who has read one to its end by chance."""
    names, data = list(shards[1]), (nginx.root / shards[0]).read_bytes()
    with mount(nginx.url(shards[0]), *cache.options) as m:
        assert m.read(names[0]) == shards[1][names[0]]
        for name, most in (names[1], None), (names[5], CHUNK + 4096):
            nginx.clear()
            assert chunkindex.pread(m / name, 4096, 0) == shards[1][name][:4096]
            where = data.index(shards[1][name][:4096])
            first, = [r for r in ranges(nginx, shards[0]) if r[0] <= where < r[1]]
            assert first[1] - where > CHUNK if most is None else first[1] - where < most


@pytest.mark.parametrize('shards', [True], ids=['index'], indirect=True)
def test_beginnings(nginx, shards, mount, cache):
    """Who reads the headers of two has those of the others, and not more of them."""
    nginx.clear()
    names, data = list(shards[1]), (nginx.root / shards[0]).read_bytes()
    where = [data.index(shards[1][name][:4096]) for name in names]

    def begun():
        return all(any(first <= at <= last for first, last in ranges(nginx, shards[0])) for at in where)

    with mount(nginx.url(shards[0]), *cache.options) as m:
        for name in names[:2]:
            assert chunkindex.pread(m / name, 4096, 0) == shards[1][name][:4096]
        eventually('all of them come', begun)
        assert sum(r['sent'] for r in nginx.requests(shards[0])) <= TAIL + COUNT * (CHUNK + 4096)
        nginx.clear()
        for name in names[2:]:
            assert chunkindex.pread(m / name, 4096, 0) == shards[1][name][:4096]
        assert not nginx.requests(shards[0])
        for name in names:
            assert m.read(name) == shards[1][name]
