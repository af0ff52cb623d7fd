# SPDX-License-Identifier: Apache-2.0
"""Files of LINKS, and mirrors by hash, that are fetched chunk by chunk; and who waits for chunks."""
import concurrent.futures
import contextlib
import errno
import mmap
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import chunkindex
import harness
from chunkindex import CHUNK, pread, whole_is_hashed
from harness import eventually
from origin import MIB, PRIVATE, Fault, LinkedCarton, digest, errno_of, fault_bytes, lines_of, mirror
from zipwriter import Carton

N_CHUNKS = 60
SIZE = N_CHUNKS * CHUNK + 777
LARGE = fault_bytes(SIZE, seed=13)
NAME = 'model/large'
TIMEOUT = 3


def linked(path, *urls, data=LARGE, index=None, **kw):
    """A local carton whose LINKS says where a file is that is in its index."""
    c = LinkedCarton(method='stored', **kw).link(NAME, data, *urls).add('misc/local', b'here')
    c.add(chunkindex.PATH, index or chunkindex.index(data))
    return c.write(path)


def gets(server, name):
    return [r for r in server.requests(name) if r['method'] == 'GET']


def sent(server, name):
    return sum(r['sent'] for r in gets(server, name))


def chunk_at(i):
    return LARGE[i * CHUNK:(i + 1) * CHUNK]


@pytest.fixture
def served(nginx, tmp_path):
    """The path of a carton whose LINKS leads to `nginx`."""
    yield linked(tmp_path / 'm.carton', nginx.put('linked', LARGE))
    os.unlink(nginx.root / 'linked')


# ---- LINKS ----

def test_what_is_read_is_fetched(nginx, served, mount, cache):
    """A stat asks nobody; an open has one chunk fetched; then those that are read."""
    nginx.clear()
    with mount(served, *PRIVATE, *cache.options) as m:
        assert os.stat(m / NAME).st_size == SIZE
        assert not nginx.requests()
        assert pread(m / NAME, 4096, 40 * CHUNK + 5) == LARGE[40 * CHUNK + 5:][:4096]
        assert m.state(NAME) == 'chunks'
        asked = nginx.requests('linked')
        assert sum(r['sent'] for r in asked) == 2 * CHUNK and len(asked) == 2
        assert pread(m / NAME, 4096, 40 * CHUNK) == chunk_at(40)[:4096]
        assert len(nginx.requests('linked')) == 2
    nginx.clear()
    # another mount finds both
    with mount(served, *PRIVATE, *cache.options) as m:
        assert pread(m / NAME, CHUNK, 40 * CHUNK) == chunk_at(40)
        assert not nginx.requests('linked')


def test_all_of_it(nginx, served, mount, cache):
    """Each byte comes once; then it is in the cache, and needs no server."""
    nginx.clear()
    with mount(served, *PRIVATE, *cache.options) as m:
        assert m.read(NAME) == LARGE
        eventually('all of it is hashed', whole_is_hashed(m, NAME))
        assert m.state(NAME) == 'verified'
        assert sum(r['sent'] for r in nginx.requests('linked')) == SIZE
    assert digest(LARGE) in cache.objects()
    with mount(served, *PRIVATE, *cache.options, '-o', 'offline') as m:
        assert m.read(NAME) == LARGE


def test_offline_with_some_chunks(served, mount, cache):
    with mount(served, *PRIVATE, *cache.options) as m:
        assert pread(m / NAME, 10, 7 * CHUNK) == chunk_at(7)[:10]
    with mount(served, *PRIVATE, *cache.options, '-o', 'offline') as m:
        assert pread(m / NAME, CHUNK, 7 * CHUNK) == chunk_at(7)
        with pytest.raises(OSError) as e:
            pread(m / NAME, 10, 30 * CHUNK)
        assert e.value.errno == errno.ENETUNREACH


def test_server_without_ranges(nginx, tmp_path, mount, cache):
    """All of it is fetched at the first open, as without an index."""
    nginx.put('linked', LARGE)
    nginx.clear()
    path = linked(tmp_path / 'm.carton', nginx.url('norange/linked'))
    with mount(path, *PRIVATE, *cache.options) as m:
        assert pread(m / NAME, 10, 7 * CHUNK) == chunk_at(7)[:10]
        assert m.state(NAME) == 'verified'
        assert m.read(NAME) == LARGE


def test_server_with_another_file(fault, tmp_path, mount_fg, cache):
    """The first chunk shows it: all of it is tried, as without an index."""
    path = linked(tmp_path / 'm.carton', fault.url('other', size=SIZE, seed=14))
    with mount_fg(path, *PRIVATE, *cache.options) as m:
        assert m.error(NAME) == 'EIO'
        assert 'has other bytes than MANIFEST says' in m.log()


def test_wrong_index(nginx, tmp_path, mount, cache):
    """An index that is wrong from its first chunk on: MANIFEST decides."""
    url = nginx.put('linked', LARGE)
    hashes = [bytes(32), *chunkindex.states(LARGE)[1:]]
    index = chunkindex.index_of([(bytes.fromhex(digest(LARGE)), SIZE, CHUNK, hashes)])
    with mount(linked(tmp_path / 'm.carton', url, index=index), *PRIVATE, *cache.options) as m:
        assert m.read(NAME) == LARGE


def test_one_chunk(nginx, tmp_path, mount, cache):
    """The chunk that an open has fetched may be all of the file."""
    index = chunkindex.index(LARGE, chunk=16 * MIB)
    with mount(linked(tmp_path / 'm.carton', nginx.put('linked', LARGE), index=index),
               *PRIVATE, *cache.options) as m:
        assert pread(m / NAME, 10, SIZE - 10) == LARGE[-10:]
        eventually('all of it is hashed', whole_is_hashed(m, NAME))
        assert m.state(NAME) == 'verified' and m.read(NAME) == LARGE
    assert digest(LARGE) in cache.objects()


def test_index_with_another_size(nginx, tmp_path, mount_fg, cache):
    """Everybody was told that size: the file is not read by halves, but refused."""
    url = nginx.put('linked', LARGE)
    index = chunkindex.index_of([(bytes.fromhex(digest(LARGE)), SIZE - CHUNK, CHUNK,
                                  chunkindex.states(LARGE)[:-1])])
    path = linked(tmp_path / 'm.carton', url, index=index)
    with mount_fg(path, *PRIVATE, *cache.options) as m:
        assert m.error(NAME) == 'EIO'
        assert f'says that it has {SIZE - CHUNK} bytes, but it has {SIZE}' in m.log()
    with mount_fg(path, *PRIVATE, *cache.options, '-o', 'verify=open') as m:
        assert m.read(NAME) == LARGE


def test_cached_file_of_another_size_than_the_index_says(nginx, tmp_path, mount_fg, cache):
    """Its chunks are right as far as it goes, but not a byte of it is read as one of that size."""
    longer = LARGE + bytes(CHUNK)
    index = chunkindex.index_of([(bytes.fromhex(digest(LARGE)), len(longer), CHUNK, chunkindex.states(longer))])
    path = linked(tmp_path / 'm.carton', nginx.put('linked', LARGE), index=index)
    with mount_fg(path, *PRIVATE, *cache.options, '-o', 'verify=open') as m:
        assert m.read(NAME) == LARGE
    with mount_fg(path, *PRIVATE, *cache.options) as m:
        assert errno_of(pread, m / NAME, 10, 0) == errno.EIO
        assert f'says that it has {len(longer)} bytes, but it has {SIZE}' in m.log()


# ---- servers that lie ----

def flipping(fault, name, chunk):
    return fault.url(name, size=SIZE, seed=13, flip=chunk * CHUNK + 9)


def test_first_url_flips_a_byte(fault, tmp_path, mount_fg, cache):
    """It is found with its chunk, named once, and not asked again; the right bytes come from the next."""
    good = fault.url('good', size=SIZE, seed=13)
    path = linked(tmp_path / 'm.carton', flipping(fault, 'bad', 3), good)
    with mount_fg(path, *PRIVATE, *cache.options) as m:
        assert m.read(NAME) == LARGE
        assert sent(fault, 'bad') + sent(fault, 'good') <= SIZE + MIB
        # with what was read ahead until then
        assert sent(fault, 'bad') <= 4 * CHUNK + 2 * MIB
        asked = len(gets(fault, 'bad'))
        log = m.log()
        assert len(lines_of(log, 'bad: has other bytes of "model/large"')) == 1, log
        assert f'from {3 * CHUNK} to {4 * CHUNK - 1}' in log
        eventually('all of it is hashed', whole_is_hashed(m, NAME))
        assert m.state(NAME) == 'verified'
        assert len(gets(fault, 'bad')) == asked


def test_the_only_url_flips_a_byte(fault, tmp_path, mount_fg, cache):
    """The server is wrong, and what is here is right: that is not shown as corrupt."""
    path = linked(tmp_path / 'm.carton', flipping(fault, 'bad', 40))
    with mount_fg(path, *PRIVATE, *cache.options) as m, open(m / NAME, 'rb', buffering=0) as f:
        assert f.read(10) == LARGE[:10]
        assert errno_of(pread, m / NAME, 10, 40 * CHUNK) == errno.EIO
        assert lines_of(m.log(), 'bad: has other bytes of "model/large"')
        assert m.state(NAME) == 'chunks' and pread(m / NAME, 10, 0) == LARGE[:10]


# of several codings the answer is refused before a byte of it is taken
CODED = {'size': SIZE, 'seed': 13, 'h': 'Content-Encoding:gzip, gzip'}


def test_first_url_cannot_be_decoded(fault, tmp_path, mount_fg, cache):
    """Nothing of it is wrong, since nothing came: the next one is asked."""
    good = fault.url('good', size=SIZE, seed=13)
    with mount_fg(linked(tmp_path / 'm.carton', fault.url('bad', **CODED), good),
                  *PRIVATE, *cache.options) as m:
        assert pread(m / NAME, 4096, 40 * CHUNK) == chunk_at(40)[:4096]
        assert m.read(NAME) == LARGE
        assert len(gets(fault, 'bad')) <= 2 and sent(fault, 'good') == SIZE
        assert len(lines_of(m.log(), 'coded more than once')) == 1


def test_mirror_by_hash_cannot_be_decoded(fault, nginx, work, mount_fg, cache):
    """Then the carton is asked."""
    c = Carton(method='stored').add(NAME, LARGE).add(chunkindex.PATH, chunkindex.index(LARGE))
    c.write(nginx.root / 'm.carton')
    template = fault.url('x', **CODED)[:-1] + '{sha256}'
    with mount_fg(nginx.url('m.carton'), *PRIVATE, *mirror(template), *cache.options) as m:
        assert pread(m / NAME, 4096, 40 * CHUNK) == chunk_at(40)[:4096]
        assert len(gets(fault, digest(LARGE))) <= 2


@pytest.mark.parametrize('chunk', [0, 3, N_CHUNKS])
@pytest.mark.parametrize('remote', [False, True], ids=['links', 'entry'])
def test_mirror_by_hash_flips_a_byte(fault, nginx, work, mount_fg, cache, remote, chunk):
    """The same for a mirror that the user names: what it had wrong comes from where it would come without it."""
    template = flipping(fault, 'x', chunk)[:-1] + '{sha256}'
    if remote:
        c = Carton(method='stored').add(NAME, LARGE).add(chunkindex.PATH, chunkindex.index(LARGE))
        c.write(nginx.root / 'm.carton')
        source = nginx.url('m.carton')
    else:
        source = linked(work / 'm.carton', nginx.put('linked', LARGE))
    nginx.clear()
    with mount_fg(source, *PRIVATE, *mirror(template), *cache.options) as m:
        for i in range(0, N_CHUNKS + 1, 3):
            assert pread(m / NAME, 4096, i * CHUNK) == chunk_at(i)[:4096]
        wasted = sent(fault, digest(LARGE)) - chunk * CHUNK
        assert chunk == N_CHUNKS or wasted <= MIB
        assert len(lines_of(m.log(), 'has other bytes of')) == 1
        from_origin = sum(r['sent'] for r in nginx.requests() if r['method'] == 'GET')
        assert (from_origin <= 2 * MIB) == (chunk == N_CHUNKS)
        assert m.read(NAME) == LARGE


def test_mirror_has_all_of_it(fault, nginx, work, mount_fg, cache):
    """Nothing is asked of the origin."""
    path = linked(work / 'm.carton', nginx.put('linked', LARGE))
    nginx.clear()
    template = fault.url('x', size=SIZE, seed=13)[:-1] + '{sha256}'
    with mount_fg(path, *PRIVATE, *mirror(template), *cache.options) as m:
        assert m.read(NAME) == LARGE
    assert not nginx.requests('linked') and sent(fault, digest(LARGE)) == SIZE


def test_mirror_misses(fault, nginx, served, mount_fg, cache):
    """It is asked once, and that is not logged."""
    with mount_fg(served, *PRIVATE, *mirror(nginx.url('nothing/') + '{sha256}'), *cache.options) as m:
        nginx.clear()
        assert pread(m / NAME, 10, 7 * CHUNK) == chunk_at(7)[:10]
        assert pread(m / NAME, 10, 17 * CHUNK) == chunk_at(17)[:10]
        assert len([r for r in nginx.requests() if '/nothing/' in r['path']]) == 1
        assert not lines_of(m.log(), 'warning|error')


def test_url_that_is_gone(nginx, tmp_path, mount_fg, cache):
    path = linked(tmp_path / 'm.carton', nginx.url('gone/linked'), nginx.put('linked', LARGE))
    with mount_fg(path, *PRIVATE, *cache.options) as m:
        assert m.read(NAME) == LARGE


# ---- who waits ----

@contextlib.contextmanager
def stopped(server):
    """Takes connections, and no more."""
    harness.freeze(server.process.pid)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


@pytest.fixture
def own():
    """A server of one test."""
    server = Fault()
    yield server
    server.stop()


def begun(work, server, mount_fg, cache, *options):
    """A mount of a linked file."""
    return mount_fg(linked(work / 'm.carton', server.url('x', size=SIZE, seed=13)), *PRIVATE,
                    *cache.options, *options)


def has_opened(pid, path):
    """Has the process opened the file, and does it sleep?"""
    with contextlib.suppress(OSError):
        return (any(os.readlink(fd) == str(path) for fd in Path(f'/proc/{pid}/fd').iterdir()) and
                Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] in 'SD' and
                Path(f'/proc/{pid}/wchan').read_text() not in ('', '0'))


# a fault without readahead, which the kernel interrupts
MAPPED = '''
import mmap, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
with open(sys.argv[-1], 'rb') as f:
    view = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    view.madvise(mmap.MADV_RANDOM)
    view[-1]
'''


@pytest.mark.parametrize('reader', [['tail', '-c', '10'], [sys.executable, '-c', MAPPED]],
                         ids=['cached', 'mapped'])
def test_interrupted(work, own, mount_fg, cache, reader):
    """A reader who waits for a chunk of a dead server ends as soon as it is told to, and the mount goes on."""
    with begun(work, own, mount_fg, cache) as m:
        assert pread(m / NAME, 10, 0) == LARGE[:10]
        with stopped(own):
            tail = subprocess.Popen([*reader, m / NAME], stdout=subprocess.DEVNULL)
            eventually('it waits', lambda: has_opened(tail.pid, m / NAME))
            with harness.at_once():
                tail.send_signal(signal.SIGINT)
                tail.wait()
            assert tail.returncode == -signal.SIGINT
            with harness.at_once():
                assert m.read('misc/local') == b'here'
        assert pread(m / NAME, 99, SIZE - 99) == LARGE[-99:]


def read_direct(path, n, off):
    """In one request, past the page cache: how many bytes came."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, n) as buf:
            return os.preadv(fd, [buf], off)
    finally:
        os.close(fd)


def test_what_came_before_wrong_bytes_stays(work, own, fault, mount_fg, cache):
    """A chunk is there as soon as it has come, and not written to again by the next server, which sends other bytes."""
    key = Path(fault.root) / 'key'
    key.write_text('good')
    first = fault.url('x', size=SIZE, seed=13, rate=CHUNK, reset=CHUNK * 3 // 2, signed='key') + '?X-Amz-Signature=good'
    c = linked(work / 'm.carton', first, own.url('y', size=SIZE, seed=14))
    at = 32
    with mount_fg(c, *PRIVATE, *cache.options, '-o', f'max_read={MIB}') as m:
        assert pread(m / NAME, 10, 0) == LARGE[:10]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            much = pool.submit(errno_of, read_direct, m / NAME, MIB, at * CHUNK)
            assert pread(m / NAME, 4096, at * CHUNK) == chunk_at(at)[:4096]
            # half of the next chunk later the first server answers no more
            key.write_text('bad')
            assert much.result() in (errno.EACCES, errno.EIO)
        ranges = [dict(r['headers'])['Range'] for r in gets(own, 'y')]
        assert ranges and not [r for r in ranges if r.startswith(f'bytes={at * CHUNK}-')]
        for off in range(0, CHUNK, 4096):
            assert pread(m / NAME, 4096, at * CHUNK + off) == chunk_at(at)[off:off + 4096]
        assert not lines_of(m.log(), 'changed on disk')


@pytest.mark.needs_plain_build
def test_memory_of_reads_that_wait(work, own, mount_fg, cache):
    """What they have of their bytes already is not kept meanwhile: 200 times 1 MiB."""
    with begun(work, own, mount_fg, cache, '-o', f'timeout={TIMEOUT},max_read={MIB}') as m:
        assert read_direct(m / NAME, MIB, 0) == MIB

        def peak():
            text = Path(f'/proc/{m.process.pid}/status').read_text()
            return int(re.search(r'VmHWM:\s+(\d+) kB', text)[1]) >> 10

        before = peak()
        with stopped(own), concurrent.futures.ThreadPoolExecutor(200) as pool:
            # far behind what was read ahead of the first reader
            errors = set(pool.map(lambda _: errno_of(read_direct, m / NAME, MIB, 8 * MIB + 4096), range(200)))
        assert errors <= {errno.ETIMEDOUT, errno.EIO}
        assert peak() - before < 80


class Readers:
    """A thread for each offset at which the file is read, and how that ended: (errno, seconds)."""

    def __init__(self, path, offsets):
        self.path, self.ended = path, []
        self.threads = [threading.Thread(target=self.read, args=[off], daemon=True) for off in offsets]
        for t in self.threads:
            t.start()

    def read(self, off):
        before = time.monotonic()
        error = 0
        try:
            pread(self.path, 1, off)
        except OSError as e:
            error = e.errno
        self.ended.append((error, time.monotonic() - before))

    def join(self, seconds):
        end = time.monotonic() + seconds
        for t in self.threads:
            t.join(max(end - time.monotonic(), 0))
        assert len(self.ended) == len(self.threads), 'some still wait'
        return {error for error, _ in self.ended}, max(s for _, s in self.ended)


PARKED = 990


@pytest.fixture
def parked(work, own, fault, mount_fg, cache):
    """A mount with as many who read chunks of a server that has stopped, each another one."""
    many = fault_bytes((8 + PARKED) * CHUNK, seed=4)
    good = [fault_bytes(SIZE, seed=20 + i) for i in range(5)]
    c = LinkedCarton(method='stored').add('misc/local', b'here').add('misc/large', LARGE)
    c.link(NAME, many, own.url('x', size=len(many), seed=4))
    for i, data in enumerate(good):
        c.link(f'model/g{i}', data, fault.url(f'g{i}', size=SIZE, seed=20 + i))
    c.add(chunkindex.PATH, chunkindex.index(many, LARGE, *good))
    with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *cache.options, '-o', f'timeout={TIMEOUT}') as m:
        assert pread(m / NAME, 10, 0) == many[:10]
        with stopped(own):
            readers = Readers(m / NAME, [i * CHUNK + 5000 for i in range(8, 8 + PARKED)])
            yield m, readers, good


def test_readers_of_chunks_delay_nobody(parked):
    """Nobody's thread waits: another server and local files are as fast as ever, and each ends in time."""
    m, readers, good = parked
    took = []
    for i, data in enumerate(good):
        before = time.monotonic()
        assert m.read('misc/local') == b'here'
        assert pread(m / 'misc/large', 4096, (2 + i) * CHUNK) == LARGE[(2 + i) * CHUNK:][:4096]
        assert pread(m / f'model/g{i}', 4096, 9 * CHUNK) == data[9 * CHUNK:][:4096]
        took.append(time.monotonic() - before)
    assert not readers.ended
    assert min(took) < TIMEOUT / 10 * harness.SLOW, took
    assert len(os.listdir(f'/proc/{m.process.pid}/task')) < PARKED / 10
    errors, longest = readers.join(3 * TIMEOUT * harness.SLOW)
    assert errors <= {errno.ETIMEDOUT, errno.EIO} and longest < 2 * TIMEOUT * harness.SLOW


def test_end_with_readers_of_chunks(parked):
    m, readers, _ = parked
    before = time.monotonic()
    m.process.send_signal(signal.SIGTERM)
    m.wait_end()
    assert time.monotonic() - before < 2 / 3 * TIMEOUT * harness.SLOW
    assert 0 not in readers.join(TIMEOUT)[0]


def test_server_that_stops_now_and_then(work, own, mount_fg, cache):
    """Readers beside each other get the right bytes, and none is stuck."""
    with begun(work, own, mount_fg, cache, '-o', 'timeout=60') as m:
        wrong = []

        def read(seed):
            for off in random.Random(seed).sample(range(0, SIZE - 5000, 4096), 60):
                if pread(m / NAME, 5000, off) != LARGE[off:off + 5000]:
                    wrong.append(off)

        them = [threading.Thread(target=read, args=[i]) for i in range(8)]
        for t in them:
            t.start()
        for _ in range(5):
            with stopped(own):
                assert m.read('misc/local') == b'here'
        for t in them:
            t.join()
        assert not wrong
