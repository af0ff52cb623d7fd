# SPDX-License-Identifier: Apache-2.0
"""
Writes chunk indexes, as cartonfs-chunks(5) describes them and independently of core/format/chunks.c; and what the
tests of such cartons share.
"""
import ctypes
import ctypes.util
import hashlib
import os
import struct

PATH = 'misc/.cartonfs/chunks'
MAGIC = b'cartonfs-chunks\n'
CHUNK = 256 << 10


# ---- SHA-256, as FIPS 180-4 has it ----

def _roots(power, n):
    """The first 32 bits of the fractional parts of these roots of the first n primes."""
    primes = [p for p in range(2, 312) if all(p % q for q in range(2, p))][:n]
    return [_root(p << 32 * power, power) & 0xffffffff for p in primes]


def _root(x, power):
    low, high = 0, 1 << 80
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle ** power <= x else (low, middle)
    return low


K = _roots(3, 64)
START = struct.pack('>8L', *_roots(2, 8))


def _turn(x, n):
    return (x >> n | x << 32 - n) & 0xffffffff


def compress(state, data):
    """The state after whole blocks of 64 bytes: slow, for what is small and for what is compared with Sha256."""
    h = struct.unpack('>8L', state)
    for at in range(0, len(data), 64):
        w = list(struct.unpack('>16L', data[at:at + 64]))
        for t in range(16, 64):
            x, y = w[t - 15], w[t - 2]
            w.append((w[t - 16] + w[t - 7] + (_turn(x, 7) ^ _turn(x, 18) ^ x >> 3) +
                      (_turn(y, 17) ^ _turn(y, 19) ^ y >> 10)) & 0xffffffff)
        a, b, c, d, e, f, g, i = h
        for t in range(64):
            one = i + (_turn(e, 6) ^ _turn(e, 11) ^ _turn(e, 25)) + (e & f ^ ~e & g) + K[t] + w[t]
            two = (_turn(a, 2) ^ _turn(a, 13) ^ _turn(a, 22)) + (a & b ^ a & c ^ b & c)
            a, b, c, d, e, f, g, i = (one + two) & 0xffffffff, a, b, c, (d + one) & 0xffffffff, e, f, g
        h = [(x + y) & 0xffffffff for x, y in zip(h, (a, b, c, d, e, f, g, i))]
    return struct.pack('>8L', *h)


class _Context(ctypes.Structure):
    """SHA256_CTX of OpenSSL's <openssl/sha.h>."""
    _fields_ = [('h', ctypes.c_uint32 * 8), ('n', ctypes.c_uint32 * 2), ('data', ctypes.c_uint32 * 16),
                ('num', ctypes.c_uint32), ('md_len', ctypes.c_uint32)]


CRYPTO = ctypes.CDLL(ctypes.util.find_library('crypto'))


class Sha256:
    """As hashlib's, and gives its state after whole blocks; tests/fs/test_chunks.py compares it with compress()."""

    def __init__(self):
        self._context = _Context()
        CRYPTO.SHA256_Init(ctypes.byref(self._context))

    def update(self, data):
        data = bytes(data)
        CRYPTO.SHA256_Update(ctypes.byref(self._context), data, ctypes.c_size_t(len(data)))

    def state(self):
        return struct.pack('>8L', *self._context.h)

    def digest(self):
        """Ends it."""
        out = ctypes.create_string_buffer(32)
        CRYPTO.SHA256_Final(out, ctypes.byref(self._context))
        return out.raw


# ---- the index ----

def states_of(pieces):
    """The state after each chunk but the last, and the sha256 of them all; each piece is a chunk."""
    hashed, own = Sha256(), []
    for piece in pieces:
        hashed.update(piece)
        own.append(hashed.state())
    return [*own[:-1], hashed.digest()] if own else []


def states(data, chunk=CHUNK):
    return states_of(data[i:i + chunk] for i in range(0, len(data), chunk))


def record(sha256, size, chunk, first):
    return sha256 + struct.pack('<QQQ', size, chunk, first)


def assemble(records, slots, magic=MAGIC, version=2):
    """The index of records() and slots, whether they fit together or not."""
    return magic + struct.pack('<QQQ', version, len(records), len(slots)) + b''.join(records + slots)


def index_of(files):
    """
    The index of (sha256, size, chunk size, states()), in any order. The states may be those of another file: what is
    no state but the sha256 is that of this one, without which no index is read.
    """
    records, slots = [], []
    for sha256, size, chunk, own in sorted(files):
        records.append(record(sha256, size, chunk, len(slots)))
        slots += [*own[:-1], sha256]
    return assemble(records, slots)


def index(*contents, chunk=CHUNK):
    """The index of these contents, each bytes."""
    own = {data: tuple(states(data, chunk)) for data in contents}
    return index_of((slots[-1], len(data), chunk, slots) for data, slots in own.items())


def partial_name(data, chunk=CHUNK):
    """The name in the cache of the file of chunks that all fill who have the same index of it."""
    key = hashlib.sha256(b'chunks\0' + hashlib.sha256(data).digest() + struct.pack('<QQ', len(data), chunk)).digest()
    slots = states(data, chunk)
    for i in range(0, len(slots), 128):
        key = hashlib.sha256(key + b''.join(slots[i:i + 128])).digest()
    return key.hex()


def pread(path, n, off):
    """Also where the kernel gives less: what it has before an error, which the next read meets."""
    fd = os.open(path, os.O_RDONLY)
    try:
        got = part = os.pread(fd, n, off)
        while part and len(got) < n:
            part = os.pread(fd, n - len(got), off + len(got))
            got += part
        return got
    finally:
        os.close(fd)


def overwrite(path, off, data):
    with open(path, 'r+b') as f:
        f.seek(off)
        f.write(data)


def whole_is_hashed(m, name='model/large'):
    return lambda: m.state(name) in ('verified', 'sealed', 'corrupt')
