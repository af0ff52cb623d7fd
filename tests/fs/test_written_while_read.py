# SPDX-License-Identifier: Apache-2.0
"""Holes and other bytes in a carton or the cache, while it is read; cartons still being written."""
import contextlib
import ctypes
import errno
import os
import random
import shutil
import struct
import threading
import urllib.request
from collections import Counter

import pytest

import chunkindex
import harness
from harness import CARTONFS, ctl, eventually, mountinfo, run
from origin import MIB, Cache, LinkedCarton, digest, lines_of
from tamper import Tamperer, Target, judge, reads
from zipwriter import Carton, sample

BLOCK = 32 << 10
SIZE = 6 * MIB
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
HOLES = [0, 5, 20, 47]                  # blocks
PUNCH_HOLE = 0x02 | 0x01                # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


def punch(path, off, n):
    """As root, whatever the mode is; as another user the mode of a cache entry is in the way."""
    mode = os.stat(path).st_mode
    os.chmod(path, mode | 0o600)
    fd = os.open(path, os.O_RDWR)
    try:
        if LIBC.fallocate(fd, PUNCH_HOLE, off, n):
            raise OSError(ctypes.get_errno(), 'fallocate', path)
    finally:
        os.close(fd)
        os.chmod(path, mode)


class Readers:
    """Threads that read parts of files, past the page cache, until stop(), and compare."""

    def __init__(self, m, want, number=4):
        self.m, self.want, self.wrong, self.errors = m, want, [], set()
        self.reads, self.ending = 0, threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(i,)) for i in range(number)]

    def __enter__(self):
        self.fds = {p: os.open(self.m / p, os.O_RDONLY) for p in self.want}
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        for t in self.threads:
            t.join()
        for fd in self.fds.values():
            os.close(fd)
        assert self.reads > 0 and self.wrong == [] and self.errors <= {'EIO'}

    def work(self, seed):
        rng = random.Random(seed)
        while not self.ending.is_set():
            path = rng.choice(list(self.want))
            off = rng.randrange(SIZE)
            n = rng.choice([1, 4096, BLOCK, 1000])
            os.posix_fadvise(self.fds[path], 0, 0, os.POSIX_FADV_DONTNEED)
            try:
                got = os.pread(self.fds[path], n, off)
            except OSError as e:
                self.errors.add(errno.errorcode[e.errno])
                continue
            finally:
                self.reads += 1
            if not got or got != self.want[path][off:off + len(got)]:
                self.wrong.append((path, off, n, len(got)))

    def bad_blocks(self, path):
        """The numbers of the 32 KiB blocks that cannot be read."""
        bad, fd = [], self.fds[path]
        for off in range(0, SIZE, BLOCK):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            try:
                assert os.pread(fd, 1, off) == self.want[path][off:off + 1]
            except OSError as e:
                assert e.errno == errno.EIO
                bad.append(off // BLOCK)
        return bad

    def some(self, n=50):
        """Waits until so many more reads have been done."""
        goal = self.reads + n
        harness.eventually('reads go on', lambda: self.reads >= goal)


def reread(m, path):
    """All of a file that is opened anew; '' or the errno name."""
    with open(m / path, 'rb', buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return b''.join(iter(lambda: f.read(MIB), b''))


def large(method):
    c = Carton(method=method)
    for name in 'abc':
        c.add(f'model/{name}', random.Random(name).randbytes(SIZE), level=1)
    return c


@pytest.mark.parametrize('method', ['stored', 'deflate', 'zstd'])
def test_holes_in_the_carton(mount, work, method):
    c = large(method)
    source, want = c.write(work / 'm.carton'), c.files()
    # ahead=off: the third file is not decoded before it has holes
    with mount(source, '-o', f'ahead=off,cache_dir={work}/cache') as m:
        with Readers(m, {p: want[p] for p in ('model/a', 'model/b')}) as r:
            r.some()
            for block in HOLES:
                punch(source, c.placed['model/a'].data + block * BLOCK + 1000, 4096)
                r.some(10)
            # of what is decoded nothing is read from the carton again
            assert r.bad_blocks('model/a') == (HOLES if method == 'stored' else [])
            assert r.bad_blocks('model/b') == []
        punch(source, c.placed['model/c'].data + MIB, 4096)
        assert m.error('model/c') == 'EIO' and m.state('model/c') == 'corrupt'
        assert reread(m, 'model/b') == want['model/b']


@pytest.mark.parametrize('method', ['deflate', 'zstd'])
def test_holes_in_a_cache_entry(mount, work, method):
    c, cache = large(method), Cache(work / 'cache')
    source, want = c.write(work / 'm.carton'), c.files()
    with mount(source, *cache.options) as m:
        with Readers(m, {p: want[p] for p in ('model/a', 'model/b')}) as r:
            r.some()
            entry = cache.objects()[c.hashes()['model/a']]
            with open(entry, 'rb') as f:        # it is removed as soon as a read notices
                for block in HOLES:
                    punch(f'/proc/self/fd/{f.fileno()}', block * BLOCK + 1000, 4096)
                    r.some(10)
            assert r.bad_blocks('model/a') == HOLES and r.bad_blocks('model/b') == []
        # who opens it now gets it made again
        harness.eventually('it reads again', lambda: m.error('model/a') == '')
        assert reread(m, 'model/a') == want['model/a'] and reread(m, 'model/b') == want['model/b']
    cache.check()


@pytest.mark.parametrize('method', ['stored', 'deflate', 'zstd'])
def test_holes_while_it_is_first_read(mount, work, method):
    """The verification itself meets them: an open gives the right bytes or EIO."""
    c = Carton(method=method)
    for i in range(12):
        c.add(f'model/{i}', random.Random(i).randbytes(2 * MIB), level=1)
    source, want = c.write(work / 'm.carton'), c.files()
    ending = threading.Event()

    def puncher():
        rng = random.Random(1)
        while not ending.is_set():
            place = c.placed[f'model/{rng.randrange(4, 12)}']
            punch(source, place.data + rng.randrange(MIB), 1 + rng.randrange(9000))

    t = threading.Thread(target=puncher)
    with mount(source, '-o', f'cache_dir={work}/cache') as m:
        assert m.read('model/0') == want['model/0']
        t.start()
        try:
            results = []
            for i in range(12):
                try:
                    assert m.read(f'model/{i}') == want[f'model/{i}'], i
                    results.append('')
                except OSError as e:
                    results.append(errno.errorcode[e.errno])
        finally:
            ending.set()
            t.join()
        assert set(results) <= {'', 'EIO'} and set(results[:4]) == {''}
        for i in range(4, 12):
            punch(source, c.placed[f'model/{i}'].data + MIB, 4096)
            if results[i] == '':
                assert method != 'stored' or m.error(f'model/{i}') in ('', 'EIO')


# ---- still being written ----

@pytest.mark.parametrize('verify', ['open', 'mount'])
def test_half_written(point, work, verify):
    """What is not complete is refused in one line that names the file, at any length."""
    data = open(sample().write(work / 'whole.carton'), 'rb').read()
    source, where = work / 'm.carton', point()
    for n in sorted({0, 1, 3, 22, 30, len(data) // 3, len(data) // 2, len(data) - 23,
                     len(data) - 22, len(data) - 1}):
        source.write_bytes(data[:n])
        p = run(CARTONFS, '-o', f'verify={verify},cache_dir={work}/cache', source, where)
        assert p.returncode == 32 and mountinfo(where) is None, (n, p.stderr)
        assert 1 <= len(p.stderr.splitlines()) <= 3, p.stderr
        assert lines_of(p.stderr, 'was cut off|is empty: was it downloaded'), (n, p.stderr)
        assert f'{source}: not mounted' in p.stderr.splitlines()[-1], (n, p.stderr)


def test_read_as_it_grows(work):
    """A writer in a hurry: until its last byte is there nobody takes the carton for one."""
    c = large('stored')
    data = open(c.write(work / 'whole.carton'), 'rb').read()
    source, tried = work / 'm.carton', 0
    source.write_bytes(b'')

    def writer():
        with open(source, 'ab', buffering=0) as f:
            for off in range(0, len(data) - 1, MIB // 4):
                f.write(data[off:min(off + MIB // 4, len(data) - 1)])

    t = threading.Thread(target=writer)
    t.start()
    while t.is_alive() or tried == 0:
        p = ctl('hash', source)
        assert p.returncode != 0 and lines_of(p.stderr, 'was cut off|is empty: was it downloaded'), p.stderr
        tried += 1
    t.join()
    assert ctl('hash', source).returncode != 0, 'one byte is missing'
    with open(source, 'ab') as f:
        f.write(data[-1:])
    p = ctl('verify', source)
    assert p.returncode == 0, p.stdout + p.stderr


def test_grows_while_mounted(mount, work):
    """Bytes behind the end change nothing for a mount; another one is refused."""
    c = large('stored')
    source, want = c.write(work / 'm.carton'), c.files()
    with mount(source) as m:
        assert m.read('model/a') == want['model/a']
        with open(source, 'ab') as f:
            for _ in range(20):
                f.write(random.Random(0).randbytes(70000))
                f.flush()
                assert reread(m, 'model/a') == want['model/a']
        assert m.read('model/b') == want['model/b'] and m.read('MANIFEST') == want['MANIFEST']
        p = ctl('hash', source)
        assert p.returncode != 0 and lines_of(p.stderr, 'zip|end'), p.stderr


def test_directory_being_written(mount, work):
    """An unpacked carton whose files are not complete: EIO for those, never a part of them."""
    c = large('stored')
    root, want = c.unpack(work / 'unpacked'), c.files()
    os.truncate(f'{root}/model/a', SIZE // 2)
    os.truncate(f'{root}/model/b', 0)
    with mount(root) as m:
        assert m.error('model/a') == m.error('model/b') == 'EIO'
        assert m.read('model/c') == want['model/c']
        for name in 'ab':
            with open(f'{root}/model/{name}', 'wb') as f:
                f.write(want[f'model/{name}'])
            assert m.error(f'model/{name}') in ('', 'EIO')
    with mount(root) as m:
        assert m.read('model/a') == want['model/a'] and m.read('model/b') == want['model/b']


# ---- written to while it is hashed and tagged ----

N_TAMPERED = 8
TAMPERINGS = int(os.environ.get('TAMPERINGS', 8))      # of each kind, at least; hundreds in make check-long


class Intake:
    """One way for bytes to come in: a carton, and which files are written to meanwhile."""
    by_chunks, size = False, 5 * MIB        # more than is kept in memory

    def __init__(self, nginx, work, method='zstd'):
        self.nginx, self.work = nginx, work
        self.data = {f'model/{i}': random.Random(i).randbytes(self.size + i) for i in range(N_TAMPERED)}
        self.carton, self.source = LinkedCarton(method=method), work / 'm.carton'
        self.add()
        self.carton.write(self.source)
        self.pin = self.carton.model_hash()

    def add(self):
        for path, data in self.data.items():
            self.carton.add(path, data, level=1)

    def link(self):
        for path, data in self.data.items():
            self.carton.link(path, data, self.nginx.put(f'tampered/{path}', data))

    def index(self):
        self.carton.add(chunkindex.PATH, chunkindex.index(*self.data.values()), method='stored')

    def prepare(self, cache):
        """Before each mount with an empty cache."""

    def target(self, cache, path):
        """What is written to is the copy that the cache gets."""
        data = self.data[path]
        return Target(data, cache.path / 'v1/partials' / digest(data))


class FetchedWhole(Intake):
    add = Intake.link


class FetchedByChunks(Intake):
    by_chunks, size = True, 9 * MIB         # more than is fetched whole despite an index

    def add(self):
        self.link()
        self.index()

    def target(self, cache, path):
        data = self.data[path]
        return Target(data, cache.path / 'v1/partials' / chunkindex.partial_name(data))


class Resumed(FetchedWhole):
    """Half of each file is there from a fetch that was cut off."""

    def prepare(self, cache):
        for path, data in self.data.items():
            url = self.nginx.url(f'tampered/{path}')
            etag = urllib.request.urlopen(url).headers['ETag']
            validator, name = f'{etag} {url}'.encode(), cache.path / 'v1/partials' / digest(data)
            name.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            half = len(data) // 2
            name.write_bytes(data[:half])
            name.with_suffix('.v').write_bytes(b'cfspart1' + struct.pack('<QI', half, len(validator)) + validator)


class Adopted(FetchedWhole):
    """Another process has fetched them, and left no seals."""

    def prepare(self, cache):
        p = ctl('fetch', '--private-links', cache.flag, self.source)
        assert p.returncode == 0, p.stderr
        for seal in cache.seals().values():
            seal.unlink()
        for entry in cache.objects().values():
            entry.chmod(0o600)

    def target(self, cache, path):
        data = self.data[path]
        return Target(data, cache.path / 'v1/objects' / digest(data)[:2] / digest(data))


class Decoded(Intake):
    pass


class InPlace(Intake):
    """A local carton, of which nothing is copied."""

    def __init__(self, nginx, work):
        super().__init__(nginx, work, 'stored')
        self.right = self.source.read_bytes()

    def prepare(self, cache):
        with open(self.source, 'r+b') as f:
            f.write(self.right)

    def target(self, cache, path):
        return Target(self.data[path], self.source, self.carton.placed[path].data)


class InPlaceByChunks(InPlace):
    by_chunks = True

    def add(self):
        super().add()
        self.index()


class Unpacked(Intake):
    def prepare(self, cache):
        self.source = self.work / 'unpacked'
        shutil.rmtree(self.source, ignore_errors=True)
        self.carton.unpack(self.source)

    def target(self, cache, path):
        return Target(self.data[path], self.source / path)


INTAKES = [FetchedWhole, FetchedByChunks, Resumed, Adopted, Decoded, InPlace, InPlaceByChunks, Unpacked]


def taken_in(m, path, window, by_chunks):
    """Opens and reads a file. Chunks are taken in as they are read, and all of it after that."""
    try:
        with window:
            f = open(m / path, 'rb', buffering=0)
            with contextlib.suppress(OSError):
                if by_chunks and reads(f):
                    eventually('all of it is hashed', lambda: m.state(path) != 'chunks')
        with f:
            return reads(f)
    except OSError as e:
        return errno.errorcode[e.errno]


def tampered_round(mount, intake, cache, seed, counts):
    """All files once, then in two later mounts; how many were written to in the window."""
    intake.prepare(cache)
    paths, options = list(intake.data), (*cache.options, '-o', f'private_links,manifest_sha256={intake.pin}')
    targets = [intake.target(cache, p) for p in paths]
    with mount(intake.source, *options) as m, Tamperer(targets, seed) as t:
        for i, path in enumerate(paths):
            for word, window in ('', t.reading(i)), ('again ', contextlib.nullcontext()):
                got = taken_in(m, path, window, intake.by_chunks)
                counts[word + judge(got, intake.data[path])] += 1
    for _ in range(2):
        with mount(intake.source, *options, '-o', 'offline') as m:
            for path in paths:
                got = judge(taken_in(m, path, contextlib.nullcontext(), False), intake.data[path])
                counts[f'later {got}'] += 1
                counts['sealed'] += got == 'right' and m.state(path) == 'sealed'
    counts['writes'] += t.writes()
    return t.hits()


@pytest.mark.parametrize('kind', INTAKES)
def test_written_while_taken_in(nginx, mount, work, kind):
    """Whoever writes to a file between its hash and its tags gets nobody to read that."""
    intake, counts, hits, rounds = kind(nginx, work), Counter(), 0, 0
    # some rounds more, where none of these has yet left a file right for later, with a seal
    while hits < TAMPERINGS or not (counts['later right'] and counts['sealed']):
        cache = Cache(work / 'cache')
        hits += tampered_round(mount, intake, cache, rounds, counts)
        shutil.rmtree(cache.path)
        rounds += 1
        assert rounds < 2 * TAMPERINGS, f'{hits} of {rounds * N_TAMPERED} were hit: {dict(counts)}'
    print(f'{kind.__name__}: {hits} tamperings, {dict(sorted(counts.items()))}', flush=True)
    assert not [k for k in counts if 'wrong' in k], dict(counts)
    assert counts['later right'] and counts['sealed'], dict(counts)
