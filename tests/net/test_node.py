# SPDX-License-Identifier: Apache-2.0
"""Several mounts of one cache that fetch chunks of the same file: each byte comes once, and each verifies it."""
import concurrent.futures
import contextlib
import errno
import fcntl
import os
import random
import signal
import struct

import pytest

import chunkindex
from chunkindex import CHUNK, overwrite, pread, whole_is_hashed
from harness import drop_pages, eventually, freeze
from origin import MIB, PRIVATE, Fault, LinkedCarton, digest, errno_of, fault_bytes, lines_of

N_CHUNKS = 100
SIZE = N_CHUNKS * CHUNK + 777
SEED = 31
LARGE = fault_bytes(SIZE, seed=SEED)
NAME = 'model/large'
MOUNTS = 8
TIMEOUT = 6
F_OFD_GETLK, F_OFD_SETLK = 36, 37


def linked(path, url, index=None):
    c = LinkedCarton(method='stored').link(NAME, LARGE, url).add('misc/local', b'here')
    return c.add(chunkindex.PATH, index or chunkindex.index(LARGE)).write(path)


@pytest.fixture
def own():
    """A server of one test."""
    server = Fault()
    yield server
    server.stop()


@pytest.fixture
def served(work, nginx):
    yield linked(work / 'm.carton', nginx.put('node', LARGE))
    os.unlink(nginx.root / 'node')


@pytest.fixture
def mounts(mount_fg, cache):
    """mounts(n, source, *options): a list of so many."""
    with contextlib.ExitStack() as stack:
        yield lambda n, source, *options: [
            stack.enter_context(mount_fg(source, *PRIVATE, *cache.options, *options)) for _ in range(n)]


def sent(server, name='node'):
    return sum(r['sent'] for r in server.requests(name) if r['method'] == 'GET')


def chunk_at(i):
    return LARGE[i * CHUNK:(i + 1) * CHUNK]


def at_once(fn, items):
    with concurrent.futures.ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(fn, items))


def partial(cache):
    """The file of chunks, once there is one."""
    [path] = [p for p in (cache.path / 'v1/partials').iterdir() if p.suffix != '.v']
    return path


def lock_words(kind, first, n):
    return struct.pack('hhqqi4x', kind, os.SEEK_SET, first, n, 0)


def is_claimed(path, i):
    with open(path, 'r+b') as f:
        words = fcntl.fcntl(f, F_OFD_GETLK, lock_words(fcntl.F_WRLCK, i * CHUNK, CHUNK))
    return struct.unpack('hhqqi4x', words)[0] != fcntl.F_UNLCK


@contextlib.contextmanager
def locked(path, first=0, n=0):
    """Somebody locks bytes of a file, as who fetches them does."""
    with open(path, 'r+b') as f:
        fcntl.fcntl(f, F_OFD_SETLK, lock_words(fcntl.F_WRLCK, first, n))
        yield f


@contextlib.contextmanager
def stopped(process):
    freeze(process.pid)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def kill(m):
    m.process.kill()
    m.process.wait()
    m.ended = True


# ---- each byte once ----

def test_all_at_once(nginx, served, mounts, cache):
    """All read all of it: it comes once, and the cache has one copy."""
    nginx.clear()
    them = mounts(MOUNTS, served)
    assert all(at_once(lambda m: m.read(NAME) == LARGE, them))
    assert sent(nginx) <= SIZE * 1.05
    for m in them:
        eventually('all of it is hashed', whole_is_hashed(m))
        assert m.state(NAME) == 'verified'
    eventually('it has its name', lambda: digest(LARGE) in cache.objects())
    assert cache.used() <= SIZE * 1.05 and not cache.partials()


def test_all_orders(nginx, served, mounts, cache):
    """Each in another order."""
    nginx.clear()

    def read(at):
        m, step = at
        order = (i * step % N_CHUNKS for i in range(N_CHUNKS))
        return all(pread(m / NAME, CHUNK, i * CHUNK) == chunk_at(i) for i in order)

    assert all(at_once(read, list(zip(mounts(4, served), (37, 43, 59, 61)))))
    # what one has asked for ahead of its reader is given up when that goes elsewhere, and comes again
    assert sent(nginx) <= SIZE * 1.25


def test_middle_beside_start(nginx, served, mounts, cache):
    nginx.clear()
    middle = N_CHUNKS // 2 * CHUNK
    parts = [(0, middle), (middle, SIZE)]
    them = mounts(2, served)

    def read(at):
        m, (first, end) = at
        with open(m / NAME, 'rb') as f:
            return all(os.pread(f.fileno(), CHUNK, off) == LARGE[off:off + CHUNK]
                       for off in range(first, end, CHUNK))

    for these in zip(them, parts), zip(them, reversed(parts)):
        assert all(at_once(read, list(these)))
    assert sent(nginx) <= SIZE * 1.05


def test_remote_carton(nginx, mounts, cache, work):
    """The same for an entry of a carton that is remote itself."""
    c = LinkedCarton(method='stored').add(NAME, LARGE).add(chunkindex.PATH, chunkindex.index(LARGE))
    path = c.write(nginx.root / 'node.carton')
    them = mounts(4, nginx.url('node.carton'))
    nginx.clear()
    assert all(at_once(lambda m: m.read(NAME) == LARGE, them))
    assert sent(nginx, 'node.carton') <= SIZE * 1.05
    os.unlink(path)


def test_no_room(served, mounts, cache):
    """Who has no room there for more goes on without it."""
    them = mounts(3, served, '-o', f'cache_size={8 * MIB}')
    assert all(at_once(lambda m: m.read(NAME) == LARGE, them))
    assert cache.used() <= 10 * MIB


def test_without_index(own, work, mounts):
    """One fetches all of it, which takes longer than the timeout; others wait as long as bytes come."""
    c = LinkedCarton(method='stored').link(NAME, LARGE, own.url('node', size=SIZE, seed=SEED))
    them = mounts(2, c.write(work / 'm.carton'), '-o', 'timeout=2')
    own.ask(f'/_bandwidth={4 * MIB}')
    assert all(at_once(lambda m: m.read(NAME) == LARGE, them))
    assert sent(own) <= SIZE * 1.05


# ---- who takes over ----

def test_six_kills(own, work, mounts, cache):
    """Of seven that read one after the other is killed, at some moment: the last one has all, most of it once."""
    path = linked(work / 'm.carton', own.url('node', size=SIZE, seed=SEED))
    own.ask(f'/_bandwidth={8 * MIB}')
    them = mounts(7, path)
    with concurrent.futures.ThreadPoolExecutor(7) as pool:
        reads = [pool.submit(m.read, NAME) for m in them]
        for i, m in enumerate(them[:6], 1):
            def has_come(part=i * SIZE // 8):
                return sum(p.stat().st_blocks * 512 for p in (cache.path / 'v1/partials').iterdir()) >= part
            eventually('some of it has come', has_come)
            kill(m)
        assert reads[6].result() == LARGE
        for read in reads[:6]:
            assert read.exception()
    assert sent(own) <= SIZE * 1.5
    eventually('all of it is hashed', whole_is_hashed(them[6]))
    assert digest(LARGE) in cache.objects() and not cache.partials()


@pytest.fixture
def held(own, work, mounts, cache):
    """Two mounts: the first has asked for a chunk, and the second waits for it; no server answers."""
    at = 9
    a, b = mounts(2, linked(work / 'm.carton', own.url('node', size=SIZE, seed=SEED)), '-o', f'timeout={TIMEOUT}')
    for m in a, b:
        assert pread(m / NAME, 10, 0) == LARGE[:10]
    own.clear()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        with stopped(own.process):
            first = pool.submit(pread, a / NAME, 4096, at * CHUNK)
            eventually('it is claimed', lambda: is_claimed(partial(cache), at))
            second = pool.submit(pread, b / NAME, 4096, at * CHUNK)
            yield a, b, first, second
        assert second.result() == chunk_at(at)[:4096]


def test_one_waits_for_another(held, own):
    """One request, and its bytes are both readers'."""
    _, _, first, second = held
    own.process.send_signal(signal.SIGCONT)
    assert first.result() == second.result()
    assert len(own.requests('node')) == 1


def test_killed_while_another_waits(held):
    kill(held[0])


def test_stopped_while_another_waits(held, own):
    """It has claimed a chunk, and does nothing: who waits fetches it by itself, in time."""
    a, _, _, second = held
    with stopped(a.process):
        own.process.send_signal(signal.SIGCONT)
        assert second.result() == chunk_at(9)[:4096]


def test_one_that_wakes_writes_other_bytes(own, nginx, served, work, mounts, cache):
    """Stopped while its server sends wrong bytes of a chunk, which another fetches meanwhile: that one's readers get right ones."""
    at = 9
    bad = own.url('node', size=SIZE, seed=SEED, flip=at * CHUNK + 99)
    [a] = mounts(1, linked(work / 'bad.carton', bad), '-o', f'timeout={TIMEOUT}')
    [b] = mounts(1, served, '-o', f'timeout={TIMEOUT}')
    for m in a, b:
        assert pread(m / NAME, 10, 0) == LARGE[:10]
    with concurrent.futures.ThreadPoolExecutor(1) as pool, open(b / NAME, 'rb') as f:
        with stopped(own.process):
            first = pool.submit(errno_of, pread, a / NAME, 4096, at * CHUNK)
            eventually('it is claimed', lambda: is_claimed(partial(cache), at))
            freeze(a.process.pid)
        try:
            assert os.pread(f.fileno(), 4096, at * CHUNK) == chunk_at(at)[:4096]
        finally:
            a.process.send_signal(signal.SIGCONT)
        assert first.result() == errno.EIO
        # that was written over the right bytes, and is seen when the kernel asks again
        with open(partial(cache), 'rb') as here:
            assert os.pread(here.fileno(), CHUNK, at * CHUNK) != chunk_at(at)
        drop_pages(f)
        before = sent(nginx)
        assert os.pread(f.fileno(), 4096, at * CHUNK) == chunk_at(at)[:4096]
        assert sent(nginx) >= before + CHUNK
    assert len(lines_of(b.log(), 'changed in the cache since')) == 1
    assert b.read(NAME) == LARGE


# ---- who cannot be trusted ----

@pytest.fixture
def alone(served, mounts, cache):
    """A mount that has read one chunk, and its file of chunks."""
    [m] = mounts(1, served, '-o', f'timeout={TIMEOUT}')
    assert pread(m / NAME, 10, 0) == LARGE[:10]
    return m, partial(cache)


def test_claims_without_end(alone):
    """Somebody claims all of it and fetches nothing."""
    m, path = alone
    with locked(path):
        for i in 7, N_CHUNKS:
            assert pread(m / NAME, 4096, i * CHUNK) == chunk_at(i)[:4096]


@pytest.mark.parametrize('what', [b'garbage', chunk_at(7)[:-1] + b'!', bytes(CHUNK), chunk_at(8)],
                         ids=['few', 'one', 'zeros', 'another'])
@pytest.mark.parametrize('kept', [False, True], ids=['given back', 'kept'])
def test_garbage_in_a_claimed_chunk(alone, nginx, what, kept):
    """What another process leaves there is looked at; then the chunk is fetched."""
    m, path = alone
    with locked(path, 7 * CHUNK, CHUNK) as f:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            read = pool.submit(pread, m / NAME, CHUNK, 7 * CHUNK)
            overwrite(path, 7 * CHUNK, what)
            if not kept:
                f.close()
            assert read.result() == chunk_at(7)
    assert not lines_of(m.log(), 'sha256')


def test_right_bytes_in_a_claimed_chunk(alone, nginx):
    """They are used, whoever keeps the claim."""
    m, path = alone
    nginx.clear()
    with locked(path, 7 * CHUNK, CHUNK):
        overwrite(path, 7 * CHUNK, chunk_at(7))
        assert pread(m / NAME, CHUNK, 7 * CHUNK) == chunk_at(7)
    assert not nginx.requests('node')


def test_offline_beside_another(alone, served, mounts):
    """Who may not ask a server reads in order what another process brings."""
    _, path = alone
    [m] = mounts(1, served, '-o', 'offline')
    with locked(path):
        overwrite(path, 0, LARGE)
        assert m.read(NAME) == LARGE


@pytest.mark.parametrize('size', [0, 20 * CHUNK + 5, 2 * SIZE])
def test_cut(alone, mounts, served, size):
    """Somebody cuts the file off, or makes it longer: what was not read is fetched again."""
    m, path = alone
    with open(m / NAME, 'rb') as f:
        assert os.pread(f.fileno(), 4096, 30 * CHUNK) == chunk_at(30)[:4096]
        os.truncate(path, size)
        for i in 10, 20, 40:
            assert os.pread(f.fileno(), 4096, i * CHUNK) == chunk_at(i)[:4096]
        drop_pages(f)
        try:
            assert os.pread(f.fileno(), 4096, 30 * CHUNK) == chunk_at(30)[:4096]
        except OSError as e:
            assert e.errno == errno.EIO and size < SIZE
    [other] = mounts(1, served)
    assert other.read(NAME) == LARGE
    assert m.read(NAME) == LARGE


def test_somebody_writes_all_the_time(served, mounts, cache):
    """No byte of that reaches a reader."""
    them = mounts(3, served, '-o', f'timeout={TIMEOUT}')
    assert pread(them[0] / NAME, 10, 0) == LARGE[:10]
    rng, done = random.Random(5), []

    def write(path):
        with open(path, 'r+b') as f:
            while not done:
                os.pwrite(f.fileno(), rng.randbytes(99), rng.randrange(SIZE))

    def read(m):
        with open(m / NAME, 'rb') as f:
            for i in range(N_CHUNKS):
                try:
                    got = os.pread(f.fileno(), CHUNK, i * CHUNK)
                    assert got and got == chunk_at(i)[:len(got)]
                except OSError as e:
                    assert e.errno == errno.EIO

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write, partial(cache))
        try:
            at_once(read, them)
        finally:
            done.append(True)
        writer.result()
    for m in them:
        # once the last one who had it open has closed it, it is fetched anew
        eventually('it can be read', lambda m=m: errno_of(m.read, NAME) == 0)
        assert m.read(NAME) == LARGE


def test_verified_bytes_are_written_to_again_and_again(alone, nginx):
    """What was verified is fetched once more, and then that is damage: neither wrong bytes nor an end of it."""
    m, path = alone
    with open(m / NAME, 'rb') as f:
        # in no order, so that nothing is fetched ahead
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for i in 7, 60, 33:
            assert os.pread(f.fileno(), CHUNK, i * CHUNK) == chunk_at(i)
        nginx.clear()
        overwrite(path, 7 * CHUNK + 5000, b'wrong')
        drop_pages(f)
        assert os.pread(f.fileno(), CHUNK, 7 * CHUNK) == chunk_at(7)
        assert sent(nginx) == CHUNK
        for _ in range(3):
            overwrite(path, 7 * CHUNK + 5000, b'wrong')
            drop_pages(f)
            assert errno_of(os.pread, f.fileno(), 4096, 7 * CHUNK + 4096) == errno.EIO
        assert sent(nginx) == CHUNK
        # another chunk has its own turn
        overwrite(path, 33 * CHUNK, bytes(CHUNK))
        drop_pages(f)
        assert os.pread(f.fileno(), CHUNK, 33 * CHUNK) == chunk_at(33)
    log = m.log()
    assert len(lines_of(log, 'changed in the cache since they were verified')) == 1
    assert len(lines_of(log, 'changed on disk since it was verified')) == 1
    eventually('it can be read', lambda: errno_of(m.read, NAME) == 0)
    assert m.read(NAME) == LARGE


def test_changes_before_all_is_there(alone, mounts, served, cache):
    """
    A chunk that has passed is not hashed again before the file gets its name. Each read is compared with what has
    passed, here and by the seal; nobody thinks worse of the index, which is right.
    """
    m, path = alone
    with open(m / NAME, 'rb') as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for i in range(N_CHUNKS + 1):
            if i == N_CHUNKS // 2:
                overwrite(path, 9 * CHUNK + 5000, b'wrong')
            assert os.pread(f.fileno(), CHUNK, i * CHUNK) == chunk_at(i)
        eventually('it has its name', lambda: digest(LARGE) in cache.objects())
        drop_pages(f)
        assert errno_of(os.pread, f.fileno(), 10, 9 * CHUNK + 5000) == errno.EIO
    assert len(lines_of(m.log(), 'changed on disk since it was verified')) == 1
    assert not list((cache.path / 'v1/notes').iterdir())
    [other] = mounts(1, served)
    for them in other, m:
        eventually('it can be read', lambda them=them: errno_of(them.read, NAME) == 0)
        assert them.read(NAME) == LARGE
        eventually('all of it is hashed', whole_is_hashed(them, NAME))
        assert them.state(NAME) in ('verified', 'sealed')


def test_lock_without_end(served, mounts, cache):
    """Somebody has the lock of the file for himself: others go on without the cache."""
    [m] = mounts(1, served)
    assert pread(m / NAME, 10, 0) == LARGE[:10]
    name = partial(cache).name
    m.process.send_signal(signal.SIGTERM)
    m.wait_end()
    at = int.from_bytes(bytes.fromhex(name)[:8], 'little') >> 2 & ~1     # its two bytes of the lock file
    with locked(cache.path / 'v1/lock', at, 2):
        [m] = mounts(1, served)
        assert m.read(NAME) == LARGE
    [m] = mounts(1, served)
    assert m.read(NAME) == LARGE
    eventually('it has its name', lambda: digest(LARGE) in cache.objects())


def test_another_index(alone, own, work, mounts):
    """A carton that says something else of the same file writes to a file of its own."""
    m, _ = alone
    with open(m / NAME, 'rb') as f:
        for i in range(N_CHUNKS // 2):
            assert os.pread(f.fileno(), CHUNK, i * CHUNK) == chunk_at(i)
        hashes = chunkindex.states(fault_bytes(SIZE, seed=SEED + 1))
        index = chunkindex.index_of([(bytes.fromhex(digest(LARGE)), SIZE, CHUNK, hashes)])
        [bad] = mounts(1, linked(work / 'bad.carton', own.url('bad', size=SIZE, seed=SEED + 1), index))
        with contextlib.suppress(OSError):
            bad.read(NAME)
        assert own.requests('bad')
        drop_pages(f)
        assert os.pread(f.fileno(), CHUNK, 7 * CHUNK) == chunk_at(7)
    assert not lines_of(m.log(), 'changed')
