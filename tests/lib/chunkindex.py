# SPDX-License-Identifier: Apache-2.0
"""
Writes chunk indexes, as cartonfs-chunks(5) describes them and independently of core/format/chunks.c; and what the
tests of such cartons share.
"""
import hashlib
import os
import struct

PATH = 'misc/.cartonfs/chunks'
MAGIC = b'cartonfs-chunks\n'
CHUNK = 256 << 10


def chunk_hashes(data, chunk=CHUNK):
    return [hashlib.sha256(data[i:i + chunk]).digest() for i in range(0, len(data), chunk)]


def record(sha256, size, chunk, first):
    return sha256 + struct.pack('<QQQ', size, chunk, first)


def assemble(records, hashes, magic=MAGIC, version=1):
    """The index of records() and hashes, whether they fit together or not."""
    return magic + struct.pack('<QQQ', version, len(records), len(hashes)) + b''.join(records + hashes)


def index_of(files):
    """The index of (sha256, size, chunk size, [sha256 of each chunk]), in any order."""
    records, hashes = [], []
    for sha256, size, chunk, own in sorted(files):
        records.append(record(sha256, size, chunk, len(hashes)))
        hashes += own
    return assemble(records, hashes)


def index(*contents, chunk=CHUNK):
    """The index of these contents, each bytes."""
    return index_of({(hashlib.sha256(data).digest(), len(data), chunk, tuple(chunk_hashes(data, chunk)))
                     for data in contents})


def partial_name(data, chunk=CHUNK):
    """The name in the cache of the file of chunks that all fill who have the same index of it."""
    key = hashlib.sha256(b'chunks\0' + hashlib.sha256(data).digest() + struct.pack('<QQ', len(data), chunk)).digest()
    hashes = chunk_hashes(data, chunk)
    for i in range(0, len(hashes), 128):
        key = hashlib.sha256(key + b''.join(hashes[i:i + 128])).digest()
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
