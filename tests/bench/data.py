# SPDX-License-Identifier: Apache-2.0
"""
The cartons that are measured, written with the standard library (and `zstd`, where it is there).
"""
import hashlib
import json
import os
import random
import struct
import subprocess
import zlib

import chunkindex

STORED, DEFLATE, ZSTD = 0, 8, 93
BLOCK = 1 << 20
MAX16, MAX32 = 0xffff, 0xffffffff
SMALL = 1024                            # bytes of a small file
PER_DIR = 1000

TOML = b"""spec_version = 1
model_name = 'bench'

[[input]]
name = 'x'
dtype = 'float32'
shape = ['n']

[[output]]
name = 'y'
dtype = 'float32'
shape = ['n']

[runner]
runner_name = 'python'
required_framework_version = '=3.11'
runner_compat_version = 1
"""


def zip64(*numbers):
    """The extra field of the sizes, and of the offset, that do not fit in 32 bits."""
    return struct.pack(f'<HH{len(numbers)}Q', 1, 8 * len(numbers), *numbers) if numbers else b''


class Writer:
    """
    A zip, written in order; MANIFEST comes last. No two of its files have the same content: cartonfs would decode,
    hash and keep them as one, where other programs do each of them.
    """

    def __init__(self, path):
        self.f = open(path, 'wb', buffering=1 << 20)
        self.central, self.count, self.lines, self.hashes = [], 0, [], set()

    def add(self, name, size, crc, sha, chunks, stored=None, method=STORED):
        """`chunks` yields the `stored` bytes; `size`, `crc` and `sha` are of what they become."""
        raw, at = name.encode(), self.f.tell()
        stored = size if stored is None else stored
        sizes = (size, stored) if max(size, stored) >= MAX32 else ()
        if sizes:
            size = stored = MAX32
        common = struct.pack('<HHHHHIIIH', 45 if sizes else 20, 0, method, 0, 0x21, crc, stored, size,
                             len(raw))
        extra = zip64(*sizes)
        self.f.write(b'PK\3\4' + common + struct.pack('<H', len(extra)) + raw + extra)
        for c in chunks:
            self.f.write(c)
        extra = zip64(*sizes, *(at,) * (at >= MAX32))
        self.central.append(b'PK\1\2' + struct.pack('<H', 0x314) + common + struct.pack(
            '<HHHHII', len(extra), 0, 0, 0, 0o100644 << 16, min(at, MAX32)) + raw + extra)
        self.count += 1
        if sha:
            if sha in self.hashes:
                raise ValueError(f'{name} has the content of another file')
            self.hashes.add(sha)
            self.lines.append(f'{name}={sha}\n')

    def bytes(self, name, data, method=STORED, listed=True):
        c = zlib.compressobj(6, zlib.DEFLATED, -15)
        body = c.compress(data) + c.flush() if method == DEFLATE else data
        self.add(name, len(data), zlib.crc32(data), listed and hashlib.sha256(data).hexdigest(),
                 [body], len(body), method)

    def close(self):
        self.bytes('MANIFEST', ''.join(sorted(self.lines)).encode(), listed=False)
        start, records = self.f.tell(), b''.join(self.central)
        self.f.write(records)
        n, size, end = self.count, len(records), self.f.tell()
        if n > MAX16 or start >= MAX32:
            self.f.write(struct.pack('<IQHHIIQQQQ', 0x06064b50, 44, 45, 45, 0, 0, n, n, size,
                                     start))
            self.f.write(struct.pack('<IIQI', 0x07064b50, 0, end, 1))
        n, start = min(n, MAX16), min(start, MAX32)
        self.f.write(struct.pack('<IHHHHIIH', 0x06054b50, 0, 0, n, n, size, start, 0))
        self.f.close()


def floats(seed):
    """BLOCK bytes that look like float32 weights to a compressor: few exponents, random mantissas."""
    rng, out = random.Random(seed), bytearray(BLOCK)
    for i in range(3):
        out[i::4] = rng.randbytes(BLOCK // 4)
    signs = bytes((0x3b, 0x3c, 0x3c, 0x3d, 0xbb, 0xbc, 0xbc, 0xbd)[i & 7] for i in range(256))
    out[3::4] = rng.randbytes(BLOCK // 4).translate(signs)
    return bytes(out)


def write_plain(path, size, seed):
    """`size` bytes (whole blocks) of floats, no block like another, nor like one of another seed. (size, crc, sha)"""
    crc, sha = 0, hashlib.sha256()
    with open(path, 'wb', buffering=0) as f:
        for i in range(size // BLOCK):
            data = floats(f'{seed}/{i}')
            f.write(data)
            crc = zlib.crc32(data, crc)
            sha.update(data)
    return size, crc, sha.hexdigest()


def chunks_of(path, size=1 << 20):
    with open(path, 'rb') as f:
        while data := f.read(size):
            yield data


def deflated(path, out):
    """The file as one raw deflate stream."""
    c = zlib.compressobj(1, zlib.DEFLATED, -15)
    with open(out, 'wb') as f:
        for data in chunks_of(path):
            f.write(c.compress(data))
        f.write(c.flush())


def zstandard(path, out):
    subprocess.run(['zstd', '-q', '-f', '-1', path, '-o', out], check=True)


def pack(plain, packed, method):
    """Makes `packed` of a plain file; the path of what to add."""
    if method == STORED:
        return plain
    (deflated if method == DEFLATE else zstandard)(plain, packed)
    return packed


def write_large(carton, name, plain, what, body, method, index=False):
    """A carton with one large file; `what` is what write_plain() gave, `body` is packed. `index`: of its chunks."""
    w = Writer(carton)
    w.bytes('carton.toml', TOML, DEFLATE)
    w.add(name, *what, chunks_of(body), os.path.getsize(body), method)
    if index:
        states = chunkindex.states_of(chunks_of(plain, chunkindex.CHUNK))
        w.bytes(chunkindex.PATH, chunkindex.index_of([(bytes.fromhex(what[2]), what[0], chunkindex.CHUNK, states)]))
    w.close()


def write_shards(carton, count, mib, index):
    """model/00, model/01, ...: Stored files of `mib` MiB, each of other content. With an index of their chunks."""
    w, listed = Writer(carton), []
    w.bytes('carton.toml', TOML, DEFLATE)
    for i in range(count):
        data = b''.join(floats(f'shard{i}/{j}') for j in range(mib))
        w.bytes(f'model/{i:02}', data)
        listed.append((hashlib.sha256(data).digest(), len(data), chunkindex.CHUNK, chunkindex.states(data)))
    if index:
        w.bytes(chunkindex.PATH, chunkindex.index_of(listed))
    w.close()


def sized(count):
    """(name, content) of files from 1 to 10 KiB that nothing compresses; 5.6 MB are 1000."""
    rng = random.Random(4)
    for i in range(count):
        yield f'model/f{i:04}', rng.randbytes(rng.randrange(1024, 10240))


def write_sized(carton, count):
    w = Writer(carton)
    w.bytes('carton.toml', TOML, DEFLATE)
    for name, data in sized(count):
        w.bytes(name, data)
    w.close()


def write_linked(carton, where, url, count):
    """The same files in the directory `where`; the carton has only LINKS to them, below `url`."""
    w, lines = Writer(carton), ['version = 1', '[urls]']
    w.bytes('carton.toml', TOML, DEFLATE)
    os.makedirs(where, exist_ok=True)
    for name, data in sized(count):
        sha = hashlib.sha256(data).hexdigest()
        with open(os.path.join(where, sha), 'wb') as f:
            f.write(data)
        w.lines.append(f'{name}={sha}\n')
        lines.append(f'{sha} = ["{url}/{sha}"]')
    w.bytes('LINKS', ('\n'.join(lines) + '\n').encode(), listed=False)
    w.close()


def write_several(carton, prefix, mib, methods):
    """
    model/00, model/01, ...: files of `mib` MiB, one for each of the methods, each of other content. Beside the carton
    stay the plain files, prefix00 and so on; their paths.
    """
    w, paths = Writer(carton), []
    w.bytes('carton.toml', TOML, DEFLATE)
    for i, method in enumerate(methods):
        path = f'{prefix}{i:02}'
        what = write_plain(path, mib << 20, os.path.basename(path))
        body = pack(path, f'{path}.packed', method)
        w.add(f'model/{i:02}', *what, chunks_of(body), os.path.getsize(body), method)
        if body != path:
            os.unlink(body)
        paths.append(path)
    w.close()
    return paths


def write_small(carton, count):
    """`count` small files in directories of 1000: all different, some compressible."""
    w, rng = Writer(carton), random.Random(1)
    w.bytes('carton.toml', TOML, DEFLATE)
    for i in range(count):
        data = rng.randbytes(SMALL // 4).hex().encode() + b'x' * (SMALL // 2)
        w.bytes(f'model/d{i // PER_DIR:03}/file{i % PER_DIR:04}', data, DEFLATE)
    w.close()


def write_tensors(carton, big, what, count):
    """One large float32 tensor, and `count` small ones."""
    w, rng = Writer(carton), random.Random(2)
    w.bytes('carton.toml', TOML, DEFLATE)
    w.add('tensor_data/tensor_big.bin', *what, chunks_of(big))
    index = ["[[tensor]]\nname = 'big'\ndtype = 'float32'\n"
             f"shape = [{what[0] // 4096}, 1024]\nfile = 'tensor_big.bin'\n"]
    for i in range(count):
        w.bytes(f'tensor_data/tensor_{i}.bin', rng.randbytes(256))
        index.append(f"[[tensor]]\nname = 't{i}'\ndtype = 'float32'\nshape = [8, 8]\n"
                     f"file = 'tensor_{i}.bin'\n")
    w.bytes('tensor_data/index.toml', ''.join(index).encode(), DEFLATE)
    w.close()


def write_safetensors(carton, count):
    """A safetensors file of `count` float32 tensors of 64 bytes; its header, which is JSON."""
    tensors = {f'model.layers.{i}.mlp.weight': {'dtype': 'F32', 'shape': [4, 4],
                                                'data_offsets': [64 * i, 64 * i + 64]}
               for i in range(count)}
    header = json.dumps(tensors, separators=(',', ':')).encode()
    w = Writer(carton)
    w.bytes('carton.toml', TOML, DEFLATE)
    w.bytes('model/w.safetensors', struct.pack('<Q', len(header)) + header +
            random.Random(3).randbytes(64 * count))
    w.close()
    return header
