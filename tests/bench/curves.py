# SPDX-License-Identifier: Apache-2.0
"""
How cost grows: with the size of a file, and with the number of readers. `make bench` draws these.
"""
import hashlib
import os
import statistics
import threading
import zlib

import data
import timing
from timing import timed

MIB = 1 << 20


def sparse_carton(path, mib):
    """A carton with one Stored file of that many MiB of zeros, which take no space on the disk."""
    zeros, sha, crc = bytes(MIB), hashlib.sha256(), 0
    for _ in range(mib):
        sha.update(zeros)
        crc = zlib.crc32(zeros, crc)
    w = data.Writer(path)
    w.bytes('carton.toml', data.TOML, data.DEFLATE)
    w.add('model/big', mib * MIB, crc, sha.hexdigest(), hole(w.f, mib * MIB))
    w.close()


def hole(file, size):
    """What Writer.add() writes for a hole of that size: nothing, but the file continues after it."""
    yield b''
    file.seek(size, os.SEEK_CUR)


def sizes(b):
    """Opening a file and reading 4 KiB of its middle: the first mount hashes it, a later one need not."""
    s = b.section('Open and 4 KiB, by the size of the file')
    points = {'first mount': [], 'later mount': [], 'sha256 in one thread': []}
    for mib in (1, 16, 256) if b.quick else (1, 16, 64, 256, 1024, 4096, 16384):
        source = b.path(f'sparse{mib}.carton')
        sparse_carton(source, mib)

        def look(top):
            fd = os.open(f'{top}/model/big', os.O_RDONLY)
            os.pread(fd, 4096, mib * MIB // 2)
            os.close(fd)

        times = {name: [] for name in points}
        for _ in range(3 if mib <= 1024 else 1):
            cache = b.new_cache()
            for name in ('first mount', 'later mount'):
                with b.carton(source, cache=cache) as top:
                    times[name].append(timed(look, top))
            times['sha256 in one thread'].append(timed(timing.hash_file, source))
        os.unlink(source)
        for name in points:
            points[name].append((mib, statistics.median(times[name])))
    s.curve('seconds', 'MiB', points)


def readers(b):
    """One file, read by 1 to 64 readers at once: each reads all of it, for the first time in this mount."""
    mib = b.size // MIB // 4
    s = b.section(f'A file of {mib} MiB, read by several at once')
    points = {}
    for method, name in ((data.STORED, 'Stored'), (data.ZSTD, 'zstd')):
        try:
            source, _ = b.large(method, mib)
        except FileNotFoundError:
            s.skipped.append('zstd is not installed')
            continue
        points[name] = []
        for n in (1, 8, 64):
            def all_read(top):
                threads = [threading.Thread(target=timing.read_file, args=(f'{top}/model/big',))
                           for _ in range(n)]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
            times = []
            for _ in range(3):
                with b.carton(source) as top:
                    times.append(timed(all_read, top))
            points[name].append((n, statistics.median(times)))
    s.curve('seconds', 'readers', points)
