# SPDX-License-Identifier: Apache-2.0
"""The chunk index: cartonfs-chunks(5), and mounts of cartons that have one."""
import concurrent.futures
import contextlib
import errno
import functools
import hashlib
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy
import pytest

import chunkindex
import zipwriter
from bigcarton import BIG
from chunkindex import CHUNK, overwrite, pread, whole_is_hashed
from harness import CARTONFS, ROOT, ctl, eventually, run, unmount
from origin import MIB, PRIVATE, LinkedCarton, errno_of

PAGE = ROOT / 'fs/ctl/cartonfs-chunks.5'
# each mount hashes, and none finds what another test has left
UNSEALED = '-o', 'seals=off'


# ---- the man page ----

def literal_blocks():
    return [re.sub(r'\\e', r'\\', block)
            for block in re.findall(r'^\.Bd -literal\n(.*?)^\.Ed', PAGE.read_text(), re.M | re.S)]


def test_page_example():
    """The bytes in the page are the index that this page describes, and its reader reads them."""
    dump, reader = literal_blocks()
    data = bytes.fromhex(''.join(line[6:53] for line in dump.splitlines()))
    content = bytes(300000)
    assert data == chunkindex.index(content)
    names = {}
    exec(reader, names)
    chunk, slots = names['chunks'](data, hashlib.sha256(content).digest())
    assert chunk == chunkindex.CHUNK and slots == chunkindex.states(content)
    assert names['chunks'](data, bytes(32)) is None


def test_page_is_valid():
    p = run('mandoc', '-T', 'lint', '-W', 'warning', PAGE)
    assert p.returncode == 0, p.stdout


def test_states_are_those_of_sha256():
    """What the tests make states with, which is quick, against what FIPS 180-4 says, which is slow."""
    data, state = content(3 * 4096 + 64, 9), chunkindex.START
    want = []
    for i in range(0, len(data), 4096):
        state = chunkindex.compress(state, data[i:i + 4096])
        want.append(state)
    assert chunkindex.states(data, 4096) == [*want[:-1], hashlib.sha256(data).digest()]
    padding = b'\x80' + bytes(55) + struct.pack('>Q', 8 * len(data))
    assert chunkindex.compress(state, padding) == hashlib.sha256(data).digest()


# ---- cartons with an index ----

def content(n, seed):
    """Bytes of which no two chunks are alike."""
    return b''.join(hashlib.sha256(b'%d %d' % (seed, i)).digest() for i in range(n // 32 + 1))[:n]


LARGE = content(5 * CHUNK + 4321, 1)
OTHER = content(len(LARGE), 2)


def carton_of(index, data=LARGE, **kw):
    carton = zipwriter.Carton(method='stored')
    carton.add('model/large', data, **kw)
    carton.add(chunkindex.PATH, index)
    return carton


def indexed(data=LARGE, **kw):
    """A carton with a file that is indexed as `data`, whatever it is."""
    return carton_of(chunkindex.index(data), data, **kw)


@pytest.fixture
def big_indexed(big_carton, work):
    """
    The path of big_carton() with an index, and where model/big begins in it. Of its chunks few are not zero.
    Hashing it takes seconds, reading a chunk less than a thousandth.
    """
    return make_big(big_carton[1].entries['model/big'].data, work)


def chunk_of(big, at):
    chunk = bytearray(min(CHUNK, len(big) - at))
    for off, data in big.pieces.items():
        for k in range(max(off, at), min(off + len(data), at + len(chunk))):
            chunk[k - at] = data[k - off]
    return chunk


@functools.cache
def states_of(big):
    """It takes seconds, once."""
    zeros, pieces = bytes(CHUNK), {at // CHUNK for off, data in big.pieces.items() for at in range(off, off + len(data))}
    return chunkindex.states_of(chunk_of(big, at) if at // CHUNK in pieces else zeros[:len(big) - at]
                                for at in range(0, len(big), CHUNK))


def make_big(big, work, sha=None, name='model/big'):
    """`sha`: another sha256 of it in MANIFEST and in the index."""
    carton = zipwriter.Carton(method='stored')
    carton.add(name, big, sha=sha)
    carton.add(chunkindex.PATH, chunkindex.index_of(
        [(bytes.fromhex(sha or big.sums()[1]), len(big), CHUNK, states_of(big))]))
    path = carton.write(work / 'm.carton')
    with zipfile.ZipFile(path) as z:
        header = z.getinfo(name).header_offset
    with open(path, 'rb') as f:
        f.seek(header + 26)
        name, extra = struct.unpack('<HH', f.read(4))
    return path, header + 30 + name + extra


def test_opens_and_reads_before_all_is_hashed(big_indexed, mount, who):
    with mount(big_indexed[0], *UNSEALED, uid=who) as m:
        assert m.state('model/big') == 'unverified'
        assert m.do(pread, m / 'model/big', 6, (1 << 32) - 3) == b'across'
        assert m.state('model/big') == 'chunks'
        assert m.do(pread, m / 'model/big', 5, 0) == b'first'
        assert m.do(pread, m / 'model/big', 100, BIG - 4) == b'last'


def test_bad_chunk(big_indexed, mount_fg, cache):
    """One that is bad is an error for who reads it, and a SIGBUS for who has it mapped; others are not."""
    path, begin = big_indexed
    overwrite(path, begin + 7 * CHUNK + 5, b'x')
    # what it notes of this file is not for others
    with mount_fg(path, *UNSEALED, *cache.options) as m:
        assert pread(m / 'model/big', 5, 0) == b'first'
        with pytest.raises(OSError) as e:
            pread(m / 'model/big', 1, 7 * CHUNK + 5)
        assert e.value.errno == errno.EIO
        p = run(sys.executable, '-c', MAPPED, m / 'model/big', str(7 * CHUNK))
        assert p.returncode == -signal.SIGBUS
        p = run(sys.executable, '-c', MAPPED, m / 'model/big', str(99 * CHUNK))
        assert p.returncode == 0, p.stderr
        assert f'model/big: bytes {7 * CHUNK} to {8 * CHUNK - 1} do not have the sha256' in m.log()


MAPPED = '''
import mmap, sys
with open(sys.argv[1], 'rb') as f:
    mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)[int(sys.argv[2])]
'''


def test_all_of_it(work, mount, who):
    path = indexed().write(work / 'm.carton')
    with mount(path, *UNSEALED, uid=who) as m:
        assert m.read('model/large') == LARGE
        eventually('all of it is hashed', whole_is_hashed(m))
        assert m.state('model/large') == 'verified'
        assert m.read('model/large') == LARGE
        assert json.loads(m.read('.cartonfs/status.json'))['hashed_bytes'] >= len(LARGE)


def test_seal(work, mount):
    """What was hashed in the background is sealed, too: a later mount needs no index."""
    path = indexed().write(work / 'm.carton')
    cache = '-o', f'cache_dir={work}/cache'
    with mount(path, *cache) as m:
        assert pread(m / 'model/large', 100, CHUNK) == LARGE[CHUNK:CHUNK + 100]
        eventually('all of it is hashed', whole_is_hashed(m))
    with mount(path, *cache) as m:
        assert m.read('model/large') == LARGE
        assert m.state('model/large') == 'sealed'


def hashed(m):
    return json.loads(m.read('.cartonfs/status.json'))['hashed_bytes']


@pytest.mark.parametrize('readers', ['nobody', 'some', 'all'])
def test_hashed_once(work, mount, readers):
    """Chunk by chunk, whoever does it, readers or the background: that proves the whole, which is not hashed again."""
    with mount(indexed().write(work / 'm.carton'), *UNSEALED) as m:
        before = hashed(m)
        with open(m / 'model/large', 'rb', buffering=0) as f:
            for i in {'nobody': (), 'some': (4, 1), 'all': range(6)}[readers]:
                assert os.pread(f.fileno(), 4000, i * CHUNK) == LARGE[i * CHUNK:][:4000]
            eventually('all of it is hashed', whole_is_hashed(m))
            assert m.state('model/large') == 'verified' and hashed(m) - before == len(LARGE)
            assert f.read() == LARGE
        assert hashed(m) - before == len(LARGE)


def test_no_seal_before_all_chunks(work, mount, cache):
    """A mount that ends before leaves nothing that later ones would believe of the whole, or of a chunk."""
    c = indexed()
    path = c.write(work / 'm.carton')
    with mount(path, *cache.options) as m:      # unless the machine is slow: then it is a seal of all
        assert pread(m / 'model/large', 100, 2 * CHUNK) == LARGE[2 * CHUNK:][:100]
        sealed = len(cache.seals())
    assert len(cache.seals()) == sealed and notes(cache) == []
    overwrite(path, c.placed['model/large'].data + 2 * CHUNK + 7, b'damaged')
    with mount(path, *cache.options) as m:
        assert errno_of(pread, m / 'model/large', 100, 2 * CHUNK) == errno.EIO


def test_all_chunks_are_sealed_at_once(work, mount_fg, cache):
    """Who reads all of it and is killed leaves that seal."""
    c = indexed()
    path = c.write(work / 'm.carton')
    with mount_fg(path, *cache.options) as m:
        assert m.read('model/large') == LARGE
        assert len(cache.seals()) == 1
        os.kill(m.process.pid, signal.SIGKILL)
        m.process.wait()
        assert unmount(m.path, None).returncode == 0
        m.ended = True
    for i in range(5):
        overwrite(path, c.placed['model/large'].data + i * CHUNK + 7, b'damaged')
    with mount_fg(path, *cache.options) as m, open(m / 'model/large', 'rb', buffering=0) as f:
        for i in range(5):
            assert errno_of(os.pread, f.fileno(), 100, i * CHUNK) == errno.EIO
        assert 'changed on disk' in m.log() and 'do not have the sha256' not in m.log()
        # the rest was not changed
        assert os.pread(f.fileno(), 4000, 5 * CHUNK) == LARGE[5 * CHUNK:][:4000]


@pytest.mark.parametrize('honest', ['index', 'none'])
def test_seal_of_an_index_that_lies(work, mount, cache, honest):
    """
    The chunks of another file than MANIFEST lists are sealed for cartons with that index alone: with another, or none,
    not a byte of them is read under the hash of the right ones.
    """
    sha = hashlib.sha256(OTHER).digest()
    lie = chunkindex.index_of([(sha, len(LARGE), CHUNK, chunkindex.states(LARGE))])
    with mount(carton_of(lie, sha=sha.hex()).write(work / 'lie.carton'), *cache.options) as m:
        with contextlib.suppress(OSError):      # unless it shows before this is answered
            assert m.read('model/large') == LARGE
    c = zipwriter.Carton(method='stored').add('model/large', LARGE, sha=sha.hex())
    if honest == 'index':
        c.add(chunkindex.PATH, chunkindex.index(OTHER))
    with mount(c.write(work / 'm.carton'), *cache.options) as m:
        assert set(read_by_parts_of(m).values()) == {errno.EIO}


def read_by_parts_of(m):
    got = read_by_parts(m / 'model/large')
    return got if isinstance(got, dict) else {0: got}


def test_lie_of_a_chunk_that_nobody_reads(work, mount, cache):
    """
    The background looks at it, so it is found. The file is right, as the next open sees, and a later mount hashes it
    before it opens, or has the seal of that.
    """
    at = AT // CHUNK * CHUNK
    states = [*STATES[:at // CHUNK], bytes(32), *STATES[at // CHUNK + 1:]]
    path = carton_of(one(slots=states)).write(work / 'm.carton')
    with mount(path, *cache.options) as m:
        with open(m / 'model/large', 'rb', buffering=0) as f:
            assert os.pread(f.fileno(), 100, at - CHUNK) == LARGE[at - CHUNK:][:100]
            eventually('all of it is hashed', whole_is_hashed(m))
            assert m.state('model/large') == 'corrupt' and len(notes(cache)) == 1 and not cache.seals()
        eventually('it can be read', lambda: m.error('model/large') == '')
        assert m.read('model/large') == LARGE and m.state('model/large') == 'verified'
    with mount(path, *cache.options) as m:
        assert m.read('model/large') == LARGE and m.state('model/large') == 'sealed'
    for _ in range(2):      # nor is the index believed where the seal is gone
        with mount(path, *cache.options, *UNSEALED) as m:
            assert pread(m / 'model/large', 100, at) == LARGE[at:][:100]
            assert m.read('model/large') == LARGE and m.state('model/large') == 'verified'


def test_unpacked(work, mount):
    root = work / 'unpacked'
    indexed().unpack(root)
    with mount(root, *UNSEALED) as m:
        assert m.read('model/large') == LARGE
        eventually('all of it is hashed', whole_is_hashed(m))
        assert m.state('model/large') == 'verified'


def test_whole_differs(work, mount_fg):
    """
    Right chunks of another file than MANIFEST lists, but for the last, as an index has to end in the sha256: it is
    read until that shows, and never after.
    """
    sha = hashlib.sha256(OTHER).digest()
    index = chunkindex.index_of([(sha, len(LARGE), CHUNK, chunkindex.states(LARGE))])
    path = carton_of(index, sha=sha.hex()).write(work / 'm.carton')
    with mount_fg(path, *UNSEALED) as m:
        with contextlib.suppress(OSError):      # unless it shows before this is answered
            assert pread(m / 'model/large', 100, CHUNK) == LARGE[CHUNK:CHUNK + 100]
        eventually('it fails', lambda: m.error('model/large') == 'EIO')
        assert m.error('model/large') == 'EIO'
        eventually('no chunk is read', lambda: errno_of(pread, m / 'model/large', 100, CHUNK) == errno.EIO)
        assert re.search('model/large: (does not have the sha256 that MANIFEST says|'
                         f'bytes {5 * CHUNK} to {len(LARGE) - 1} do not have the sha256)', m.log())


@pytest.mark.parametrize('kind', ['eio 1', 'dead'])
def test_a_disk_that_fails_while_the_whole_is_hashed(disk, mount_fg, kind):
    """Nothing is known to be wrong with the file: it is not shown as corrupt, and is read as soon as the disk is."""
    indexed().write(disk.files / 'm.carton')
    with mount_fg(disk.path / 'm.carton', *UNSEALED) as m:
        with open(m / 'model/large', 'rb'):
            disk.set(kind)
            eventually('it cannot be hashed', lambda: 'model/large: cannot be hashed: Input/output error' in m.log())
            disk.set('none')
            assert m.state('model/large') == 'chunks'
            assert json.loads(m.read('.cartonfs/status.json'))['corrupt_files'] == 0
            assert pread(m / 'model/large', 4096, 2 * CHUNK) == LARGE[2 * CHUNK:][:4096]
        eventually('nobody has it open', lambda: m.state('model/large') == 'unverified')
        assert m.read('model/large') == LARGE and m.state('model/large') == 'verified'


# ---- later mounts of what had another hash than its chunks ----

def notes(cache):
    return list(cache.path.glob('v1/notes/*'))


def damaged_late(work, mount, cache):
    """A carton of which one chunk is bad; a mount has hashed it after it was opened and read. Its path, where."""
    c = indexed()
    path = c.write(work / 'm.carton')
    at = c.placed['model/large'].data + 4 * CHUNK
    overwrite(path, at, b'other')
    with mount(path, *cache.options) as m:
        with open(m / 'model/large', 'rb'):     # it opens; what is read before it is hashed is right
            eventually('all of it is hashed', whole_is_hashed(m))
        assert m.state('model/large') == 'corrupt'
    return path, at


def test_failed_whole_is_hashed_first_later(work, mount, cache):
    """No byte of it is read before. The note stays when it is right again: the index may be what lied, and lie again."""
    path, at = damaged_late(work, mount, cache)
    for _ in range(2):
        with mount(path, *cache.options) as m:
            assert errno_of(pread, m / 'model/large', 1, 0) == errno.EIO
            assert m.state('model/large') == 'corrupt'
    assert len(notes(cache)) == 1
    overwrite(path, at, LARGE[4 * CHUNK:][:5])
    with mount(path, *cache.options) as m:
        assert pread(m / 'model/large', 1000, 0) == LARGE[:1000] and m.state('model/large') == 'verified'
        assert m.read('model/large') == LARGE
    assert len(notes(cache)) == 1
    with mount(path, *cache.options, *UNSEALED) as m:
        assert pread(m / 'model/large', 1000, 0) == LARGE[:1000] and m.state('model/large') == 'verified'


def test_failed_whole_elsewhere(work, mount, cache, nginx):
    """An index that lies of what LINKS names: a server with the right bytes heals it."""
    data, lie = content(40 * CHUNK, 3), content(40 * CHUNK, 4)
    c = LinkedCarton(method='stored').link('model/large', data, nginx.put('lie', lie))
    c.add(chunkindex.PATH, chunkindex.index_of(
        [(hashlib.sha256(data).digest(), len(data), CHUNK, chunkindex.states(lie))]))
    path = c.write(work / 'm.carton')
    with mount(path, *PRIVATE, *cache.options) as m:
        assert pread(m / 'model/large', 1000, 0) == lie[:1000]
        assert m.error('model/large') == 'EIO'  # the last chunk has to fit what MANIFEST says
        eventually('it is noted', lambda: notes(cache))
    assert len(notes(cache)) == 1
    with mount(path, *PRIVATE, *cache.options) as m:
        assert errno_of(pread, m / 'model/large', 1, 0) == errno.EIO
    nginx.put('lie', data)
    with mount(path, *PRIVATE, *cache.options) as m:
        assert m.read('model/large') == data and m.state('model/large') == 'verified'
    assert len(notes(cache)) == 1       # it lied, and would lie again


@pytest.mark.parametrize('text', [b'', b'any', b'x' * 99999, None], ids=['empty', 'any', 'long', 'directory'])
def test_forged_note(work, mount, cache, text):
    """Who writes notes has a file hashed first; it is read as ever."""
    path, at = damaged_late(work, mount, cache)
    overwrite(path, at, LARGE[4 * CHUNK:][:5])
    note = notes(cache)[0]
    note.unlink()
    note.mkdir() if text is None else note.write_bytes(text)
    with mount(path, *cache.options) as m:
        assert m.read('model/large') == LARGE
        eventually('all of it is hashed', whole_is_hashed(m))
        assert m.state('model/large') == 'verified'
    assert notes(cache) == [note]
    if text is None:
        note.rmdir()


KEPT = '''
import mmap, os, sys, time
path, off = sys.argv[1], int(sys.argv[2])
fd = os.open(path, os.O_RDONLY)
view = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
print(view[off], os.pread(fd, 1, off)[0], flush=True)
sys.stdin.readline()
try:
    # the pages go right after the file was found to be damaged
    while os.pread(fd, 1, off):
        time.sleep(0.01)
except OSError as e:
    print(e.errno, flush=True)
print(view[off])
'''


# Of a file that is hashed so much is read from the disk, and the rest later: readers have what they want before.
READ_AHEAD = 4 * MIB


def test_whole_differs_under_a_reader(disk, mount_fg):
    """Who has the file open, or mapped, loses what the kernel has kept of it."""
    # the crc is not looked at
    make_big(zipwriter.Sparse(3 * READ_AHEAD, {0: b'first'}, (0, 'ab' * 32)), disk.files, sha='ab' * 32)
    with mount_fg(disk.path / 'm.carton', *UNSEALED) as m:
        disk.set(f'hold {READ_AHEAD}')
        with subprocess.Popen([sys.executable, '-c', KEPT, m / 'model/big', '0'], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
            assert p.stdout.readline() == f'{b"f"[0]} {b"f"[0]}\n'
            disk.set('none')
            eventually('it is found', lambda: 'model/big: does not have the sha256 that MANIFEST says' in m.log())
            # the log says it first
            eventually('nobody reads it any more', lambda: m.state('model/big') == 'corrupt')
            assert m.error('model/big') == 'EIO'
            out, _ = p.communicate('go on\n')
        assert out == f'{errno.EIO}\n' and p.returncode == -signal.SIGBUS


def test_views_of_what_differs(disk, mount_fg):
    """Nothing of a view that was made of the chunks is left: not its text, not its names, not its open files."""
    size, room = 3 * READ_AHEAD, 256
    header = json.dumps({'t': {'dtype': 'U8', 'shape': [size - 8 - room],
                               'data_offsets': [0, size - 8 - room]}}).encode().ljust(room)
    data = zipwriter.Sparse(size, {0: struct.pack('<Q', room) + header}, (0, 'ab' * 32))
    make_big(data, disk.files, sha='ab' * 32, name='model/w.safetensors')
    with mount_fg(disk.path / 'm.carton', *UNSEALED) as m, contextlib.ExitStack() as stack:
        disk.set(f'hold {READ_AHEAD}')
        root = Path(m / 'views/model/w.safetensors')
        kept = [stack.enter_context(open(root / name, 'rb', buffering=0)) for name in ('index.json', 't.npy')]
        assert b'"t"' in os.pread(kept[0].fileno(), 999, 0)
        assert os.pread(kept[1].fileno(), 6, 0) == b'\x93NUMPY'
        disk.set('none')
        eventually('it is found', lambda: 'w.safetensors: does not have the sha256 that MANIFEST says' in m.log())
        for f in kept:
            eventually('its pages go', lambda: errno_of(os.pread, f.fileno(), 999, 0) == errno.EIO)
        for name in 'index.json', 't.npy', 't.bin':
            assert errno_of(os.open, root / name, os.O_RDONLY) == errno.EIO
        assert errno_of(os.listdir, root) == errno.EIO


READING = '''
import os, random, sys
fd = int(sys.argv[1])
try:
    while True:
        off = random.randrange(os.fstat(fd).st_size // 4096) * 4096
        os.pread(fd, 4096, off)
        os.posix_fadvise(fd, off, 4096, os.POSIX_FADV_DONTNEED)
except OSError as e:
    print(e.errno)
'''


def test_whole_differs_under_many_readers(disk, mount_fg):
    """More of them wait for the disk than there are threads that read: all end, and no page is left."""
    data = random.Random(3).randbytes(48 * CHUNK)
    sha = 'ab' * 32
    index = chunkindex.index_of([(bytes.fromhex(sha), len(data), CHUNK, chunkindex.states(data))])
    carton_of(index, data, sha=sha).write(disk.files / 'm.carton')
    disk.set('slow 20')
    with mount_fg(disk.path / 'm.carton', *UNSEALED) as m, contextlib.ExitStack() as stack:
        fd = os.open(m / 'model/large', os.O_RDONLY)
        stack.callback(os.close, fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        readers = [stack.enter_context(subprocess.Popen([sys.executable, '-c', READING, str(fd)], text=True,
                                                        stdout=subprocess.PIPE, pass_fds=[fd])) for _ in range(40)]
        for p in readers:
            stack.callback(p.kill)
        eventually('it is found', lambda: 'model/large: does not have the sha256' in m.log(), 60)
        eventually('all have ended', lambda: all(p.poll() is not None for p in readers))
        assert {p.stdout.read() for p in readers} == {f'{errno.EIO}\n'}
        disk.set('none')
        for off in range(0, len(data), 4096):
            with pytest.raises(OSError) as e:
                os.pread(fd, 4096, off)
            assert e.value.errno == errno.EIO


@pytest.mark.parametrize('options, says', [('chunks=off', 'open'), ('verify=auto,chunks=off', 'open'),
                                           ('verify=open', 'open'), ('verify=mount', 'mount'),
                                           ('verify=background,chunks=off', 'background'),
                                           ('verify=mount,chunks=off', 'mount'), ('chunks=on,verify=open', 'open')])
def test_without_chunks(work, mount, options, says):
    path = indexed().write(work / 'm.carton')
    with mount(path, '-o', options, *UNSEALED) as m:
        with open(m / 'model/large', 'rb'):
            assert m.state('model/large') == 'verified'
        assert json.loads(m.read('.cartonfs/status.json'))['verify'] == says
        assert ('chunks=off is an old name of verify=open' in m.stderr) == ('chunks=off' in options and says == 'open')


# ---- when is what verified: an attacker's bytes in each mode of verify= ----

EVIL = b'evil bytes' * 9
AT = 3 * CHUNK + 77


def attacked(work, when):
    """
    A carton with a file that the index lists and one that it does not, both with other bytes at AT if `when` is
    'before'; what does that; and what is in the files.
    """
    whole = content(len(LARGE), 3)
    c = indexed().add('model/whole', whole)
    path = c.write(work / 'm.carton')

    def attack():
        for name in 'model/large', 'model/whole':
            overwrite(path, c.placed[name].data + AT, EVIL)

    if when == 'before':
        attack()
    return path, attack, {'model/large': LARGE, 'model/whole': whole}


def read_by_parts(path):
    """What a reader gets past the page cache: {offset: 4096 bytes, or the errno}; an errno if it does not open."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as e:
        return e.errno
    try:
        got = {}
        for off in range(0, len(LARGE), 4096):
            try:
                got[off] = os.pread(fd, 4096, off)
            except OSError as e:
                got[off] = e.errno
        return got
    finally:
        os.close(fd)


def check_parts(got, want):
    """Right bytes or EIO, and EIO where the attacker has written."""
    if isinstance(got, int):
        assert got == errno.EIO
        return
    assert [(off, part) for off, part in got.items() if part not in (errno.EIO, want[off:off + 4096])] == []
    assert got[AT // 4096 * 4096] == errno.EIO


@pytest.mark.parametrize('verify', ['', 'verify=auto', 'verify=open', 'chunks=off', 'verify=background',
                                    'verify=background,chunks=off'])
def test_attack_before_the_first_open(work, mount, verify):
    path, _, want = attacked(work, 'before')
    with mount(path, *(['-o', verify] if verify else []), *UNSEALED) as m:
        got = {name: read_by_parts(m / name) for name in want}
        for name in want:
            check_parts(got[name], want[name])
        # not in the index, or that is not used: it does not even open
        assert got['model/whole'] == errno.EIO
        if verify in ('verify=open', 'chunks=off', 'verify=background,chunks=off'):
            assert got['model/large'] == errno.EIO


@pytest.mark.parametrize('verify', ['auto', 'open', 'mount', 'background'])
def test_attack_after_the_first_open(work, mount, verify):
    """What was verified is compared again with what was verified."""
    path, attack, want = attacked(work, 'after')
    with mount(path, '-o', f'verify={verify}', *UNSEALED) as m:
        for name in want:
            assert b''.join(read_by_parts(m / name).values()) == want[name]
        attack()
        for name in want:
            check_parts(read_by_parts(m / name), want[name])


def test_attack_and_verify_mount(work, mount, point):
    path, _, _ = attacked(work, 'before')
    p = run(CARTONFS, '-o', 'verify=mount', path, point())
    assert p.returncode == 32 and 'model/large: sha256 mismatch' in p.stderr and 'model/whole: sha256' in p.stderr


def test_attack_and_verify_off(work, mount):
    """Only here are they read, and that is said: else the tests above would show nothing."""
    path, _, want = attacked(work, 'before')
    with mount(path, '-o', 'verify=off', *UNSEALED) as m:
        assert 'nothing that is read is checked' in m.stderr
        for name in want:
            got = read_by_parts(m / name)
            assert EVIL in got[AT // 4096 * 4096]


SHA = hashlib.sha256(LARGE).digest()
STATES = chunkindex.states(LARGE)


def one(size=len(LARGE), chunk=CHUNK, first=0, slots=STATES, **kw):
    return chunkindex.assemble([chunkindex.record(SHA, size, chunk, first)], slots, **kw)


BAD_INDEXES = {
    'empty': (b'', 'byte 0: ends in its header'),
    'text': (b'model/large\n' * 99, 'byte 0: does not begin with'),
    'version': (one(version=3), 'byte 16: version is 3'),
    'truncated': (one()[:-1], 'byte 24: 1 files and 6 chunks do not make'),
    'chunk-0': (one(chunk=0), 'byte 80: chunks of 0 bytes'),
    'chunk-2-63': (one(chunk=1 << 63), 'byte 80: chunks of 9223372036854775808 bytes'),
    'size-0': (one(size=0), 'byte 72: a file of 0 bytes'),
    'size-large': (one(size=len(LARGE) + CHUNK), 'byte 72: the file has 7 chunks; only 6'),
    'size-small': (one(size=CHUNK), 'byte 32: 6 chunks; the files have 1'),
    'first': (one(first=1), 'byte 88: the first chunk is 1'),
    'twice': (chunkindex.assemble([chunkindex.record(SHA, len(LARGE), CHUNK, i) for i in (0, 6)],
                                  STATES * 2), 'byte 96: the same file for the second time'),
    'unsorted': (chunkindex.assemble([chunkindex.record(SHA, len(LARGE), CHUNK, 0),
                                      chunkindex.record(bytes(32), 1, CHUNK, 6)],
                                     STATES + STATES[:1]), 'byte 96: the files are not sorted'),
    'last': (one(slots=[*STATES[:-1], STATES[0]]), 'byte 256: the last slot of a file is not its sha256'),
    'many': (chunkindex.MAGIC + struct.pack('<QQQ', 2, 2000001, 0), 'byte 24: lists 2000001 files'),
}


@pytest.mark.parametrize('index, says', BAD_INDEXES.values(), ids=BAD_INDEXES)
def test_bad_index(work, mount_fg, index, says):
    """It is named with the byte, and not used; `verify` finds it, too."""
    path = carton_of(index).write(work / 'm.carton')
    with mount_fg(path, *UNSEALED) as m:
        assert f'{chunkindex.PATH}: {says}' in m.log()
        with open(m / 'model/large', 'rb'):
            assert m.state('model/large') == 'verified'
        assert m.read('model/large') == LARGE
    p = ctl('verify', path)
    assert p.returncode == 2 and says in p.stdout


@pytest.mark.parametrize('index', [
    chunkindex.index_of([(SHA, len(LARGE) + 1, CHUNK, STATES)]),        # of another size
    chunkindex.index(OTHER),                                            # of a file that is not there
    chunkindex.index(),
], ids=['size', 'unknown', 'none'])
def test_index_of_no_use(work, mount, index):
    path = carton_of(index).write(work / 'm.carton')
    with mount(path, *UNSEALED) as m:
        with open(m / 'model/large', 'rb'):
            assert m.state('model/large') == 'verified'
        assert m.read('model/large') == LARGE


def test_damaged_index(work, mount_fg):
    """It is a file of the carton: its own sha256 comes first."""
    path = indexed(sha=None).change(chunkindex.PATH, sha='0' * 64).write(work / 'm.carton')
    with mount_fg(path, *UNSEALED) as m:
        assert m.error(chunkindex.PATH) == 'EIO'
        with open(m / 'model/large', 'rb'):
            assert m.state('model/large') == 'verified'
        assert m.read('model/large') == LARGE


def test_index_with_one_wrong_state(work, mount):
    """MANIFEST decides: once all was hashed the file is good, and `verify` says what the carton's fault is."""
    index = one(slots=[*STATES[:3], bytes(32), *STATES[4:]])
    path = carton_of(index).write(work / 'm.carton')
    with mount(path, *UNSEALED) as m:
        m.error('model/large')                  # EIO, unless all was hashed before it came to that chunk
        eventually('it can be read', lambda: m.error('model/large') == '')
        assert m.read('model/large') == LARGE
    p = ctl('verify', path)
    assert p.returncode == 2
    assert 'chunk 3 of "model/large" has another state than the file' in p.stdout


def test_first_version(work, mount_fg, cache):
    """
    Cartons of 0.2.0 are right, and only slower to open: a line says so, once a mount. `verify` finds nothing wrong, and
    what copies one can, until it makes the index anew.
    """
    hashes = [hashlib.sha256(LARGE[i:i + CHUNK]).digest() for i in range(0, len(LARGE), CHUNK)]
    path = carton_of(one(slots=hashes, version=1)).write(work / 'm.carton')
    says = f'{chunkindex.PATH}: is of version 1, which is not read'
    for state in 'verified', 'sealed':
        with mount_fg(path, *cache.options) as m:
            assert m.log().count(says) == 1 and '`cartonctl repack --chunk-index`' in m.log()
            assert 'the model hash is another one' in m.log() and 'signature' in m.log()
            with open(m / 'model/large', 'rb'):
                assert m.state('model/large') == state
            assert m.read('model/large') == LARGE
            assert m.log().count(says) == 1
    p = ctl('verify', path)
    assert p.returncode == 0 and says in p.stderr, p
    p = ctl('repack', path, work / 'n.carton')
    assert p.returncode == 0 and says in p.stderr and ctl('hash', work / 'n.carton').stdout == ctl('hash', path).stdout
    p = ctl('repack', '--chunk-index', path, work / 'n.carton')
    assert p.returncode == 0, p.stderr
    p = ctl('verify', work / 'n.carton')
    assert p.returncode == 0 and p.stderr == ''
    with mount_fg(work / 'n.carton', *UNSEALED) as m, open(m / 'model/large', 'rb'):
        assert m.state('model/large') in ('chunks', 'verified') and m.log() == ''


def test_verify(work):
    p = ctl('verify', indexed().write(work / 'm.carton'))
    assert p.returncode == 0, p.stderr
    p = ctl('verify', carton_of(chunkindex.index(OTHER)).write(work / 'o.carton'))
    assert p.returncode == 2
    assert 'has chunks of 1 file that the carton does not have' in p.stdout
    index = chunkindex.index_of([(SHA, len(LARGE) + 1, CHUNK, STATES)])
    p = ctl('verify', carton_of(index).write(work / 's.carton'))
    assert p.returncode == 2 and f'has {len(LARGE) + 1} bytes for "model/large", which has {len(LARGE)}' in p.stdout


def test_views(work, mount):
    """A tensor is read through its chunks."""
    data = content(3 * CHUNK, 7)
    header = json.dumps({'t': {'dtype': 'U8', 'shape': [len(data)], 'data_offsets': [0, len(data)]},
                         'u': {'dtype': 'U8', 'shape': [2 * CHUNK],
                               'data_offsets': [len(data), len(data) + 2 * CHUNK]}})
    file = struct.pack('<Q', len(header)) + header.encode() + data + content(2 * CHUNK, 8)
    carton = zipwriter.Carton(method='stored')
    carton.add('model/w.safetensors', file)
    carton.add(chunkindex.PATH, chunkindex.index(file))
    with mount(carton.write(work / 'm.carton'), *UNSEALED) as m:
        got = numpy.load(m / 'views/model/w.safetensors/t.npy', mmap_mode='r')
        assert got.tobytes() == data
        del got
        assert m.read('model/w.safetensors') == file


def test_readers_beside_each_other(work, mount):
    path = indexed().write(work / 'm.carton')
    with mount(path, *UNSEALED) as m:
        def read(seed):
            order = random.Random(seed).sample(range(0, len(LARGE), 4096), 200)
            return all(pread(m / 'model/large', 5000, off) == LARGE[off:off + 5000] for off in order)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert all(pool.map(read, range(8)))


def test_verify_in_background(big_indexed, work, mount):
    """Files that the index lists open at once all the same; in the end all are verified."""
    carton = indexed()
    for i in range(8):
        data = content(3 * MIB + i, 100 + i)
        carton.add(f'model/part{i}', data)
    files = [e.data for name, e in carton.entries.items() if name.startswith('model/')]
    carton.change(chunkindex.PATH, data=chunkindex.index(*files))
    with mount(carton.write(work / 'all.carton'), '-o', 'verify=background', *UNSEALED) as m:
        for name in ['model/large', *(f'model/part{i}' for i in range(8))]:
            eventually(f'{name} is hashed', whole_is_hashed(m, name))
            assert m.state(name) == 'verified'
    with mount(big_indexed[0], '-o', 'verify=background', *UNSEALED) as m:
        assert m.do(pread, m / 'model/big', 5, 0) == b'first'
        assert m.state('model/big') == 'chunks'
