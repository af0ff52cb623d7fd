# SPDX-License-Identifier: Apache-2.0
"""A cache without room: what is packed in a remote carton comes once all the same, and one line says what helps."""
import os
import random
import re
import resource
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import chunkindex
from chunkindex import pread, whole_is_hashed
from harness import ctl, eventually, small_disk
from origin import MIB, PRIVATE, Cache, LinkedCarton, digest, lines_of, needs_root
from zipwriter import Carton

PACKED = ['deflate', 'zstd']
FULL = 'there is no room for it in the cache'


def rng_bytes(n, seed=0):
    return random.Random(seed).randbytes(n)


@pytest.fixture
def served(nginx, mount_fg):
    """served(method, *contents, cache=…) -> a mount of a remote carton that has them as model/0, model/1, …"""
    def make(method, *contents, cache, options=(), **kw):
        c = Carton(method=method).add('misc/first', b'opened before, so that there is something to drop\n' * 4000)
        for i, data in enumerate(contents):
            c.add(f'model/{i}', data)
        c.write(nginx.root / 'packed.carton')
        return mount_fg(nginx.url('packed.carton'), *cache.options, *options, **kw)
    return make


def read(m, nginx, *contents):
    """Reads them one after the other, after another file. How many bytes came for each byte of theirs."""
    assert m.read('misc/first')
    nginx.clear()
    for i, data in enumerate(contents):
        assert m.read(f'model/{i}') == data
    return sum(r['sent'] for r in nginx.requests()) / sum(map(len, contents))


def missing(m):
    """How many bytes the only line says."""
    line, = lines_of(m.log(), FULL)
    assert 'cache_size' in line and 'cache_dir' in line
    return int(re.search(r': (\d+) bytes \([\d.]+ MiB\) are missing;', line)[1])


@pytest.mark.parametrize('method', [*PACKED, 'stored'])
@pytest.mark.parametrize('size', [3 * MIB, 12 * MIB], ids=['small', 'large'])
def test_larger_than_the_cache(served, nginx, cache, method, size):
    """Its bytes come once, to a file of this mount, and stay there; the line says how much larger it is."""
    data = rng_bytes(size)
    with served(method, data, cache=cache, options=('-o', 'cache_size=2M')) as m:
        assert 1 <= read(m, nginx, data) <= 1.1
        assert size - 2 * MIB <= missing(m) <= size
        assert m.read('model/0') == data
        assert sum(r['sent'] for r in nginx.requests()) <= 1.1 * size
    assert digest(data) not in cache.objects() and cache.partials() == {}


@pytest.mark.parametrize('method', PACKED)
def test_one_line_for_all(served, nginx, cache, method):
    """However many have no room."""
    contents = [rng_bytes(3 * MIB, i) for i in range(5)]
    with served(method, *contents, cache=cache, options=('-o', 'cache_size=2M')) as m:
        assert 1 <= read(m, nginx, *contents) <= 1.1
        assert MIB <= missing(m) <= 3 * MIB


@pytest.mark.parametrize('method', PACKED)
def test_all_in_use(served, nginx, cache, method):
    """Each would fit alone, and those that have room are open: they go on to be read."""
    contents = [rng_bytes(3 * MIB, i) for i in range(4)]
    with served(method, *contents, cache=cache, options=('-o', 'cache_size=7M')) as m:
        gate = threading.Barrier(len(contents))

        def hold(i):
            with open(m / f'model/{i}', 'rb') as f:
                gate.wait()
                return f.read() == contents[i]
        nginx.clear()
        with ThreadPoolExecutor(len(contents)) as pool:
            assert all(pool.map(hold, range(len(contents))))
        assert sum(r['sent'] for r in nginx.requests()) <= 1.1 * sum(map(len, contents))
        # how many of the four are there at that moment is a matter of time
        assert 0 < missing(m) <= sum(map(len, contents)) - 7 * MIB
    assert len(set(cache.objects()) & {digest(c) for c in contents}) == 2


@pytest.mark.parametrize('method', PACKED)
def test_small_files(served, nginx, cache, method):
    """They come together, and once: those that have come early do not displace each other."""
    contents = [rng_bytes(20000, i) for i in range(300)]
    filler = rng_bytes(3 * MIB, 1000)
    with served(method, *contents, filler, cache=cache, options=('-o', 'cache_size=3M')) as m:
        with open(m / f'model/{len(contents)}', 'rb') as f:
            assert f.read() == filler
            assert 1 <= read(m, nginx, *contents) <= 1.1
        assert 0 < missing(m) <= 3 * MIB


def test_room_is_enough(served, nginx, cache):
    """Nothing is said, and others give way."""
    contents = [rng_bytes(3 * MIB, i) for i in range(4)]
    with served('deflate', *contents, cache=cache, options=('-o', 'cache_size=7M')) as m:
        assert 1 <= read(m, nginx, *contents) <= 1.1
        assert not lines_of(m.log(), 'room')
    assert cache.used() <= 7.1 * MIB


# ---- disks ----


@needs_root
@pytest.mark.parametrize('method', PACKED)
@pytest.mark.parametrize('size', [3, 15, 40])
def test_small_disk(work, served, nginx, method, size):
    """What the cache's disk has no room for, with its packed form or without, goes elsewhere."""
    data = rng_bytes(10 * MIB)
    with small_disk(work / 'disk', size) as disk:
        full = Cache(disk / 'cache')
        with served(method, data, cache=full, options=('-o', 'cache_size=1G')) as m:
            assert 1 <= read(m, nginx, data) <= 1.1
            if size == 3:
                assert 7 * MIB < missing(m) <= 10 * MIB
            assert len(lines_of(m.log(), 'room')) <= 1
        assert (digest(data) in full.objects()) == (size == 40)
        full.check()


def fill(disk):
    """All of it, but for what a few names take."""
    with open(disk / 'filler', 'wb') as f:
        with pytest.raises(OSError):
            while True:
                os.write(f.fileno(), bytes(4096))


@needs_root
@pytest.mark.parametrize('method', PACKED)
def test_no_room_on_any_disk(work, served, nginx, method):
    """Memory has what is not too large; no byte of what is too large comes."""
    small, large = rng_bytes(2 * MIB), rng_bytes(10 * MIB, 1)
    with small_disk(work / 'disk', 40) as disk:
        full = Cache(disk / 'cache')
        with served(method, small, large, cache=full, options=('-o', 'cache_size=1G'), env=dict(TMPDIR=str(disk))) as m:
            fill(disk)
            assert 1 <= read(m, nginx, small) <= 1.1
            nginx.clear()
            assert m.error('model/1') == 'ENOSPC'
            assert sum(r['sent'] for r in nginx.requests()) < MIB
            assert missing(m)
            os.unlink(disk / 'filler')
            assert m.read('model/1') == large
        full.check()


# ---- chunks of large files ----

@pytest.fixture
def indexed(nginx):
    """The URL of a carton whose file model/large has an index, and its bytes."""
    data = rng_bytes(20 * MIB)
    c = Carton(method='stored').add('model/large', data).add(chunkindex.PATH, chunkindex.index(data))
    c.write(nginx.root / 'chunks.carton')
    return nginx.url('chunks.carton'), data


def sent(nginx):
    return sum(r['sent'] for r in nginx.requests('chunks.carton'))


@needs_root
def test_chunks_on_a_small_disk(work, nginx, indexed, mount_fg):
    """Those that the disk has no room for go elsewhere, of two mounts at once; each comes to a mount once."""
    url, data = indexed
    with small_disk(work / 'disk', 8) as disk:
        full = Cache(disk / 'cache')
        options = (*full.options, '-o', 'cache_size=1G')
        with mount_fg(url, *options) as a, mount_fg(url, *options) as b:
            nginx.clear()
            for m in a, b:
                for i in random.Random(1).sample(range(20), 20):
                    assert pread(m / 'model/large', MIB, i * MIB) == data[i * MIB:(i + 1) * MIB], i
                with open(m / 'model/large', 'rb') as f:
                    assert f.read() == data
                    eventually('all of it is hashed', whole_is_hashed(m, 'model/large'))
                assert len(lines_of(m.log(), 'room')) <= 1 and not lines_of(m.log(), 'sha256')
        full.check()


def test_chunks_on_a_disk_that_is_fuller_than_it_says(disk, nginx, indexed, mount_fg):
    """As one with a quota is: what was to be written there is asked for once more."""
    url, data = indexed
    full = Cache(disk.path / 'cache')
    with mount_fg(url, *full.options) as m:
        with open(m / 'model/large', 'rb') as f:
            assert os.pread(f.fileno(), MIB, 0) == data[:MIB]
            disk.set('full', 'partials')
            assert f.read() == data
            eventually('all of it is hashed', whole_is_hashed(m, 'model/large'))
        assert not lines_of(m.log(), 'sha256') and not lines_of(m.log(), 'No space')
        disk.set('none')
    # what is in two files is no entry of the cache
    full.check()
    assert not [o for o in full.objects().values() if o.stat().st_size == len(data)]


@needs_root
def test_chunks_that_no_disk_has_room_for(work, indexed, mount_fg):
    """No reader waits, or gets other bytes; what there is room for is read."""
    url, data = indexed
    with small_disk(work / 'disk', 8) as disk:
        full = Cache(disk / 'cache')
        with mount_fg(url, *full.options, '-o', 'cache_size=1G', env=dict(TMPDIR=str(disk))) as m:
            assert pread(m / 'model/large', MIB, 0) == data[:MIB]
            assert m.error('model/large') == 'ENOSPC'


# ---- the limit of the size of files ----

LIMIT = 'the limit of the size of files is met; raise it: ulimit -f, or LimitFSIZE= of a unit\n'


def limit_files(m, n):
    """From now on no file of the daemon may be larger."""
    resource.prlimit(m.process.pid, resource.RLIMIT_FSIZE, (n, resource.RLIM_INFINITY))


@pytest.mark.parametrize('method', [*PACKED, 'stored', 'indexed', 'linked'])
def test_limit_of_the_size_of_files(nginx, mount_fg, cache, method):
    """What no file can hold is an error, in the cache or elsewhere, and displaces nothing; all else is read."""
    small, large = rng_bytes(200000), rng_bytes(9 * MIB, 1)
    c = LinkedCarton(method=method if method in PACKED else 'stored')
    c.add('misc/first', b'opened before\n' * 20000).add('model/small', small)
    if method == 'linked':
        (nginx.root / 'large').write_bytes(large)
        c.link('model/large', large, nginx.url('large'))
    else:
        c.add('model/large', large)
    if method == 'indexed':
        c.add(chunkindex.PATH, chunkindex.index(large))
    c.write(nginx.root / 'limited.carton')
    with mount_fg(nginx.url('limited.carton'), *PRIVATE, *cache.options, '-o', 'cache_size=1G') as m:
        assert m.read('misc/first')
        limit_files(m, MIB)
        before = set(cache.objects())
        assert before
        for _ in range(2):
            assert m.error('model/large') == 'EFBIG'
            assert m.read('model/small') == small
        # all of it, and each of the lines
        assert set(lines_of(m.log(), 'model/large: no file can hold it: ')) == {
            f'cartonfs: model/large: no file can hold it: {LIMIT}'.strip()}
        assert before <= set(cache.objects()) and digest(small) in cache.objects()
        limit_files(m, resource.RLIM_INFINITY)
        assert m.read('model/large') == large
    cache.check()


@pytest.mark.parametrize('ranges', [True, False])
def test_limit_of_the_size_of_files_of_a_download(nginx, work, cache, ranges):
    """Also where no server says how large it is; what is there of it goes."""
    data = rng_bytes(3 * MIB)
    Carton(method='deflate').add('model/small', b'x' * 500).add('model/large', data).write(nginx.root / 'limited.carton')
    url = nginx.url('limited.carton' if ranges else 'norange/limited.carton')
    limit = dict(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB)))
    p = ctl('fetch', cache.flag, url, **limit)
    assert p.returncode == 1 and p.stderr.count(f'no file can hold it: {LIMIT}') == 1, p.stderr
    assert not cache.partials() and digest(data) not in cache.objects()
    if ranges:
        p = ctl('extract', cache.flag, url, work / 'out', **limit)
        assert p.returncode == 1 and f'model/large: no file can hold it: {LIMIT}' in p.stderr, p.stderr
        assert sorted(os.listdir(work / 'out/model')) == ['small'] and not (work / 'out/MANIFEST').exists()


def test_limit_of_the_size_of_files_and_logs(nginx, mount_fg, cache, work):
    """A daemon that may write to no file at all: not its log, not its error_file; it goes on."""
    good, bad = rng_bytes(100000), rng_bytes(100000, 1)
    c = Carton(method='stored').add('model/good', good).add('model/bad', bad, sha=digest(b'another'))
    c.write(work / 'm.carton')
    with mount_fg(work / 'm.carton', *cache.options, '-o', f'error_file={work}/errors') as m:
        limit_files(m, 0)
        for _ in range(3):
            assert m.error('model/bad') == 'EIO' and m.read('model/good') == good
        assert m.log() == '' and (work / 'errors').read_bytes() == b''
        limit_files(m, resource.RLIM_INFINITY)
        assert m.process.poll() is None
