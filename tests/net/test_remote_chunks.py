# SPDX-License-Identifier: Apache-2.0
"""Remote cartons with a chunk index: only the chunks that are read are fetched, and they are kept."""
import concurrent.futures
import errno
import hashlib
import json
import os
import random
import re
import struct
import subprocess
import time

import numpy
import pytest

import chunkindex
import zipwriter
from chunkindex import CHUNK
from chunkindex import overwrite, pread, whole_is_hashed
from harness import ctl, eventually
from origin import MIB, lines_of

N_CHUNKS = 100
LARGE = random.Random(13).randbytes(N_CHUNKS * CHUNK + 999)
NAME = 'model/large'
SHA = hashlib.sha256(LARGE).hexdigest()
# what a mount reads at the end of the carton
TAIL = 256 << 10


def written(path, data=LARGE, name=NAME):
    carton = zipwriter.Carton(method='stored')
    carton.add(name, data)
    carton.add(chunkindex.PATH, chunkindex.index(data))
    return carton.write(path)


@pytest.fixture
def remote(nginx):
    """The URL of a carton, and the path of its file."""
    path = written(nginx.root / 'chunks.carton')
    nginx.clear()
    yield nginx.url('chunks.carton'), path
    os.unlink(path)


def sent(nginx):
    return sum(r['sent'] for r in nginx.requests('chunks.carton'))


def partials(cache):
    """The files of chunks that are not complete."""
    return [p for p in (cache.path / 'v1/partials').iterdir() if p.stat().st_size == len(LARGE)]


def chunk_at(i):
    return LARGE[i * CHUNK:(i + 1) * CHUNK]


def test_what_is_read_is_fetched(nginx, remote, mount, cache):
    """Mounting and 4 KiB: the end of the carton, one chunk, and little else."""
    with mount(remote[0], *cache.options) as m:
        assert pread(m / NAME, 4096, 50 * CHUNK + 77) == LARGE[50 * CHUNK + 77:][:4096]
        assert m.state(NAME) == 'chunks'
        assert len(nginx.requests('chunks.carton')) <= 6
        assert sent(nginx) <= TAIL + CHUNK + 64 * 1024
        nginx.clear()
        assert pread(m / NAME, 100, 50 * CHUNK) == chunk_at(50)[:100]
        assert not nginx.requests('chunks.carton')
        # the last one is short
        assert pread(m / NAME, 10000, len(LARGE) - 10) == LARGE[-10:]


def test_what_is_there_in_part_is_listed(remote, mount, cache):
    """With its size on disk, as gc counts it; it is no entry that verify hashes, or whose path is given."""
    with mount(remote[0], *cache.options) as m:
        assert pread(m / NAME, 8 * CHUNK, 0) == LARGE[:8 * CHUNK]
    part, = [x for x in json.loads(ctl('cache', 'list', '--json', cache.flag).stdout) if x['partial']]
    file, = partials(cache)
    assert (part['sha256'], part['size'], part['seal']) == (file.name, file.stat().st_blocks * 512, False)
    assert part['size'] >= 8 * CHUNK and part['used'] == int(file.stat().st_mtime)
    line, = [x.split() for x in ctl('cache', 'list', cache.flag).stdout.splitlines() if file.name in x]
    assert (line[1], line[4:]) == (str(part['size']), ['part'])
    assert file.name not in cache.list() and ctl('cache', 'path', file.name, cache.flag).returncode == 1
    assert ctl('cache', 'verify', cache.flag).stdout == '0 damaged entries removed\n' and partials(cache) == [file]
    assert ctl('cache', 'gc', '0', cache.flag).returncode == 0
    assert json.loads(ctl('cache', 'list', '--json', cache.flag).stdout) == []


def test_what_is_here_is_counted(remote, mount, cache):
    """Chunks that were read are here, although the whole of their file was not hashed."""
    with mount(remote[0], '-o', 'ahead=off', *cache.options) as m:
        counted = [json.loads(m.read('.cartonfs/status.json'))]
        assert pread(m / NAME, 50 * CHUNK, 0) == LARGE[:50 * CHUNK]
        counted.append(json.loads(m.read('.cartonfs/status.json')))
        before, after = ([x['cached_bytes'], x['remote_bytes']] for x in counted)
        assert m.state(NAME) == 'chunks' and sum(before) == sum(after)
        assert 50 * CHUNK <= after[0] - before[0] < len(LARGE)


def test_all_of_it(nginx, remote, mount, cache):
    """Read from its start to its end it comes once; then it is a cache entry that needs no server."""
    with mount(remote[0], *cache.options) as m:
        assert m.read(NAME) == LARGE
        eventually('all of it is hashed', whole_is_hashed(m, NAME))
        assert m.state(NAME) == 'verified'
        assert sent(nginx) <= len(LARGE) + TAIL + 64 * 1024
        assert m.read(NAME) == LARGE
    with mount(remote[0], *cache.options, '-o', 'offline') as m:
        assert m.state(NAME) == 'unverified'
        assert m.read(NAME) == LARGE


def test_chunks_are_kept(nginx, remote, mount, cache):
    """Another mount finds those that were fetched, also without the server; others are an error then."""
    with mount(remote[0], *cache.options) as m:
        assert pread(m / NAME, 10, 7 * CHUNK) == chunk_at(7)[:10]
    with mount(remote[0], *cache.options, '-o', 'offline') as m:
        assert pread(m / NAME, CHUNK, 7 * CHUNK) == chunk_at(7)
        with pytest.raises(OSError) as e:
            pread(m / NAME, 10, 30 * CHUNK)
        assert e.value.errno == errno.ENETUNREACH
    nginx.clear()
    with mount(remote[0], *cache.options) as m:
        assert m.read(NAME) == LARGE
        assert sent(nginx) <= len(LARGE) + TAIL + 64 * 1024


def test_damaged_chunk_is_fetched_again(remote, mount, cache):
    with mount(remote[0], *cache.options) as m:
        assert pread(m / NAME, CHUNK, 7 * CHUNK) == chunk_at(7)
    [partial] = partials(cache)
    overwrite(partial, 7 * CHUNK + 5, bytes([LARGE[7 * CHUNK + 5] ^ 1]))
    with mount(remote[0], *cache.options) as m:
        assert pread(m / NAME, CHUNK, 7 * CHUNK) == chunk_at(7)


def test_lying_index_has_a_file_of_its_own(nginx, remote, mount, mount_fg, cache):
    """Who believes it does not write over what others have verified."""
    evil = bytearray(LARGE)
    evil[7 * CHUNK + 5] ^= 1
    lie = chunkindex.index_of([(bytes.fromhex(SHA), len(LARGE), CHUNK, chunkindex.states(bytes(evil)))])
    zipwriter.Carton(method='stored').add(NAME, bytes(evil), sha=SHA).add(chunkindex.PATH, lie).write(
        nginx.root / 'lie.carton')
    with mount_fg(remote[0], *cache.options) as m, mount(nginx.url('lie.carton'), *cache.options) as other, \
            open(m / NAME, 'rb') as f:
        assert pread(m / NAME, CHUNK, 7 * CHUNK) == chunk_at(7)
        assert pread(other / NAME, CHUNK, 7 * CHUNK) == evil[7 * CHUNK:8 * CHUNK]
        assert len(partials(cache)) == 2
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert pread(m / NAME, CHUNK, 7 * CHUNK) == chunk_at(7) and 'changed' not in m.log()


@pytest.fixture
def left(remote, mount, cache):
    """The file of chunks of a mount that was killed when all was there, but not verified: it has no seal."""
    with mount(remote[0], *cache.options) as m:
        assert pread(m / NAME, CHUNK, 7 * CHUNK) == chunk_at(7)
    beside = {p.name: p.read_bytes() for p in (cache.path / 'v1/partials').iterdir() if p.suffix}
    with mount(remote[0], *cache.options) as m:
        assert m.read(NAME) == LARGE
        eventually('all of it is hashed', whole_is_hashed(m, NAME))
    for seal in cache.seals().values():
        seal.unlink()
    partial = cache.path / 'v1/partials' / chunkindex.partial_name(LARGE)
    cache.objects()[SHA].rename(partial)
    partial.chmod(0o600)
    for name, data in beside.items():
        (partial.parent / name).write_bytes(data)
    assert partials(cache) == [partial]
    return partial


@pytest.mark.parametrize('first', ['start', 'end', 'nobody'])
@pytest.mark.parametrize('i', [0, 7, N_CHUNKS])
def test_left_chunks_are_hashed(nginx, remote, left, mount_fg, cache, i, first):
    """A later mount hashes each when it is read, whoever left it, and fetches what was changed, alone."""
    overwrite(left, i * CHUNK + 5, bytes([LARGE[i * CHUNK + 5] ^ 1]))
    nginx.clear()
    with mount_fg(remote[0], *cache.options) as m:
        with open(m / NAME, 'rb', buffering=0) as f:
            if first == 'end':
                assert os.pread(f.fileno(), 10, len(LARGE) - 10) == LARGE[-10:]
            if first != 'nobody':
                assert m.read(NAME) == LARGE
                eventually('all of it is hashed', whole_is_hashed(m, NAME))
                assert m.state(NAME) == 'verified'
        assert m.log() == ''
    assert sent(nginx) <= TAIL + 8 * CHUNK
    with mount_fg(remote[0], *cache.options) as m:
        assert m.read(NAME) == LARGE
        eventually('all of it is hashed', whole_is_hashed(m, NAME))
        assert m.log() == ''
    assert SHA in cache.objects() and SHA in cache.seals() and not partials(cache)


def test_left_file_that_is_cut_off(nginx, remote, left, mount_fg, cache):
    """By another program: what is missing comes again, and nothing is said of the model."""
    with mount_fg(remote[0], *cache.options) as m, open(m / NAME, 'rb', buffering=0) as f:
        os.truncate(left, 50 * CHUNK)
        assert os.pread(f.fileno(), 4096, 60 * CHUNK) == chunk_at(60)[:4096]
        assert m.read(NAME) == LARGE
        assert 'MANIFEST' not in m.log() and 'cut off' not in m.log()


def test_left_chunks_that_are_gone(nginx, remote, left, mount_fg, cache):
    """What never got to the disk, or was removed, is fetched."""
    subprocess.run(['fallocate', '--punch-hole', f'--offset={7 * CHUNK}', f'--length={2 * CHUNK}', left], check=True)
    nginx.clear()
    with mount_fg(remote[0], *cache.options) as m:
        assert m.read(NAME) == LARGE
        assert 'changed' not in m.log()
    assert sent(nginx) <= TAIL + 8 * CHUNK


def test_left_chunks_without_a_server(remote, left, mount, cache):
    """All of it is there; of what was changed since, no byte is given."""
    overwrite(left, 7 * CHUNK + 5, bytes([LARGE[7 * CHUNK + 5] ^ 1]))
    with mount(remote[0], *cache.options, '-o', 'offline') as m:
        assert pread(m / NAME, 7 * CHUNK, 0) == LARGE[:7 * CHUNK]
        with pytest.raises(OSError):
            pread(m / NAME, 4096, 7 * CHUNK)
        assert pread(m / NAME, len(LARGE), 8 * CHUNK) == LARGE[8 * CHUNK:]


def test_two_mounts(remote, mount, cache):
    """They fill one file; both are right."""
    with mount(remote[0], *cache.options) as a, mount(remote[0], *cache.options) as b:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            assert all(pool.map(lambda m: m.read(NAME) == LARGE, (a, b)))
        for m in a, b:
            eventually('all of it is hashed', whole_is_hashed(m, NAME))
            assert m.state(NAME) == 'verified'
    assert SHA in cache.objects() and not partials(cache)


def test_readers_beside_each_other(remote, mount, cache):
    with mount(remote[0], *cache.options) as m:
        def read(seed):
            order = random.Random(seed).sample(range(0, len(LARGE), 4096), 100)
            return all(pread(m / NAME, 5000, off) == LARGE[off:off + 5000] for off in order)

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            assert all(pool.map(read, range(16)))


def test_killed(remote, mount_fg, mount, cache):
    """What a killed mount has fetched is used, as far as it is right."""
    with mount_fg(remote[0], *cache.options) as m:
        assert pread(m / NAME, CHUNK, 9 * CHUNK) == chunk_at(9)
        m.process.kill()
        m.process.wait()
        m.ended = True
    with mount(remote[0], *cache.options) as m:
        assert m.read(NAME) == LARGE


def test_killed_while_it_is_completed(remote, mount_fg, mount, cache):
    """At whatever moment: the next mount has right bytes, and in the end the cache has all of it."""
    for i in range(6):
        with mount_fg(remote[0], *cache.options) as m:
            assert m.read(NAME) == LARGE
            time.sleep(i * 0.02)        # while all of it is hashed, or moved to its name
            m.process.kill()
            m.process.wait()
            m.ended = True
        if i % 2:
            for path in cache.objects().values():
                path.unlink()
    with mount(remote[0], *cache.options) as m:
        assert m.read(NAME) == LARGE
        eventually('all of it is hashed', whole_is_hashed(m, NAME))
    assert SHA in cache.objects() and not partials(cache)


# ---- room in the cache ----

def used(cache):
    """Bytes of disk of what has a name there."""
    return sum(p.stat().st_blocks * 512 for d in ('partials', 'objects')
               for p in (cache.path / 'v1' / d).rglob('*') if p.is_file())


def test_gc(nginx, remote, mount, cache):
    """It removes chunks, unless a mount has them; then they are fetched again."""
    with mount(remote[0], *cache.options) as m:
        with open(m / NAME, 'rb') as f:
            assert os.pread(f.fileno(), CHUNK, 9 * CHUNK) == chunk_at(9)
            assert ctl('cache', 'gc', cache.flag, '0').returncode == 0
            assert partials(cache)
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            nginx.clear()
            assert os.pread(f.fileno(), CHUNK, 9 * CHUNK) == chunk_at(9)
            assert not nginx.requests('chunks.carton')
    assert ctl('cache', 'gc', cache.flag, '0').returncode == 0
    assert not partials(cache)
    with mount(remote[0], *cache.options) as m:
        assert pread(m / NAME, CHUNK, 9 * CHUNK) == chunk_at(9)


def test_chunks_do_not_outgrow_the_cache(remote, mount_fg, cache):
    """What has no room there goes on without it, and a line says how much that is."""
    most = 8 * MIB
    with mount_fg(remote[0], *cache.options, '-o', f'cache_size={most}') as m:
        with open(m / NAME, 'rb') as f:
            for i in range(N_CHUNKS):
                assert os.pread(f.fileno(), CHUNK, i * CHUNK) == chunk_at(i)
                # room is not held for chunks that are on their way
                assert used(cache) <= most + most // 4
        assert m.read(NAME) == LARGE
        line, = lines_of(m.log(), 'there is no room for it in the cache')
        missing = int(re.search(r': (\d+) bytes \([\d.]+ MiB\) are missing;', line)[1])
        assert len(LARGE) - most <= missing <= len(LARGE) - most // 2
        # nobody was refused: what the line says is no error
        shown = ctl('status', m.path).stdout
        assert re.search(r'^ +warnings +[\d:]+ ' + NAME, shown, re.M) and not re.search('^ +errors', shown, re.M), shown


@pytest.mark.parametrize('again', [True, False])
def test_chunks_give_way(nginx, mount, cache, again):
    """Those of a file that nobody has open, to those of another; also if it ends like that."""
    other = random.Random(14).randbytes(len(LARGE))
    carton = zipwriter.Carton(method='stored').add(NAME, LARGE).add('model/other', other)
    carton.add(chunkindex.PATH, chunkindex.index(LARGE, other))
    path = carton.write(nginx.root / 'chunks.carton')
    most = len(LARGE) + 4 * MIB
    with mount(nginx.url('chunks.carton'), *cache.options, '-o', f'cache_size={most}') as m:
        for i in range(0, N_CHUNKS, 2):
            assert pread(m / NAME, 10, i * CHUNK) == chunk_at(i)[:10]
        assert partials(cache)
        assert m.read('model/other') == other
        assert used(cache) <= most
        eventually('all of it is hashed', whole_is_hashed(m, 'model/other'))
        assert hashlib.sha256(other).hexdigest() in cache.objects()
        assert not again or m.read(NAME) == LARGE
    os.unlink(path)


def test_bad_chunk(nginx, remote, mount_fg, cache):
    data = remote[1].read_bytes()
    begin = data.index(LARGE[:100])
    overwrite(remote[1], begin + 20 * CHUNK + 3, bytes([LARGE[20 * CHUNK + 3] ^ 1]))
    with mount_fg(remote[0], *cache.options) as m:
        with pytest.raises(OSError) as e:
            pread(m / NAME, 10, 20 * CHUNK)
        assert e.value.errno == errno.EIO
        assert pread(m / NAME, 10, 60 * CHUNK) == chunk_at(60)[:10]
        assert f'{NAME}: bytes {20 * CHUNK} to {21 * CHUNK - 1} do not have the sha256' in m.log()
        assert sent(nginx) < 2 * MIB


def test_server_that_is_gone(nginx, remote, mount, cache):
    """A read fails with what the network says, and works again later."""
    with mount(remote[0], *cache.options, '-o', 'timeout=1') as m:
        assert pread(m / NAME, 10, 0) == LARGE[:10]
        moved = remote[1].with_name('moved')
        os.rename(remote[1], moved)
        with pytest.raises(OSError):
            pread(m / NAME, 10, 40 * CHUNK)
        assert pread(m / NAME, 10, 100) == LARGE[100:110]
        os.rename(moved, remote[1])
        assert pread(m / NAME, 10, 40 * CHUNK) == chunk_at(40)[:10]


def test_without_chunks(nginx, remote, mount, cache):
    with mount(remote[0], *cache.options, '-o', 'verify=open') as m:
        assert pread(m / NAME, 10, 0) == LARGE[:10]
        assert m.state(NAME) == 'verified'
        assert sent(nginx) > len(LARGE)


def test_fetched_by_cartonctl(nginx, remote, mount, cache):
    """What is in the cache is not fetched again, and opens at once."""
    assert ctl('fetch', cache.flag, remote[0]).returncode == 0
    with mount(remote[0], *cache.options, '-o', 'offline') as m:
        assert m.read(NAME) == LARGE


def test_one_tensor(nginx, mount, cache):
    """np.load(mmap_mode='r') of a tensor in a remote safetensors file fetches little more than the tensor."""
    size, n = 16 * MIB, 4
    tensors = random.Random(7).randbytes(size)
    header = json.dumps({f't{i}': {'dtype': 'U8', 'shape': [size],
                                   'data_offsets': [i * size, (i + 1) * size]} for i in range(n)})
    file = struct.pack('<Q', len(header)) + header.encode() + tensors * n
    path = written(nginx.root / 'chunks.carton', file, 'model/w.safetensors')
    nginx.clear()
    with mount(nginx.url('chunks.carton'), *cache.options) as m:
        got = numpy.load(m / 'views/model/w.safetensors/t2.npy', mmap_mode='r')
        assert got.tobytes() == tensors
        del got
        assert sent(nginx) - TAIL <= 1.2 * size
    os.unlink(path)
