# SPDX-License-Identifier: Apache-2.0
"""
How cost grows: with the size of a file, and with the number of readers. `make bench` draws these.
"""
import os
import shutil
import threading

import data
import timing
from timing import timed

MIB = 1 << 20


def sizes(b):
    """Opening a file and reading 4 KiB of its middle: the first mount hashes it, a later one need not."""
    s = b.section('Open a Stored file and read 4 KiB of it, by its size')
    counts = b.pick((1, 16, 64, 256, 1024, 4096), (1, 16, 128), (1, 8))
    kinds = ('first mount', 'later mount', 'sha256 in one thread')
    for mib in counts:
        source, plain = b.large(data.STORED, mib)

        def look(top):
            fd = os.open(f'{top}/model/big', os.O_RDONLY)
            os.pread(fd, 4096, mib * MIB // 2)
            os.close(fd)

        def cartonfs(note):
            cache = b.new_cache()
            for name in kinds[:2]:
                with b.carton(source, cache=cache) as top:
                    note(f'{name}, {mib} MiB', timed(look, top))

        def limit(note):
            b.conditions.pages(plain, name='file')
            note(f'{kinds[2]}, {mib} MiB', timed(timing.hash_file, plain))

        s.run(cartonfs, limit)
        if mib > b.size // MIB:
            b.forget(data.STORED, mib)
    for mib in counts:
        s.row(f'{kinds[0]}, {mib} MiB', f'{kinds[2]}, {mib} MiB')
        s.row(f'{kinds[1]}, {mib} MiB', f'{kinds[0]}, {mib} MiB')
    s.time_curve('MiB', {name: [(mib, f'{name}, {mib} MiB') for mib in counts] for name in kinds})


def readers(b):
    """One file, read by 1 to 64 readers at once: each reads all of it, for the first time in this mount."""
    mib = b.size // MIB // 4
    s = b.section(f'A file of {mib} MiB, read by several at once')
    lines, contestants = {}, []

    def contest(name, source, n):
        def all_read(top):
            threads = [threading.Thread(target=timing.read_file, args=(f'{top}/model/big',)) for _ in range(n)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()

        def run(note):
            with b.carton(source) as top:
                note(f'{name}, {n}', timed(all_read, top))
        return run

    for method, name in ((data.STORED, 'Stored'), (data.ZSTD, 'zstd')):
        if method == data.ZSTD and not shutil.which('zstd'):
            s.skipped.append('zstd is not installed')
            continue
        source = b.large(method, mib)[0]
        counts = (1, 8, 64)
        contestants += [contest(name, source, n) for n in counts]
        lines[name] = [(n, f'{name}, {n}') for n in counts]
    s.run(*contestants)
    s.time_curve('readers', lines)
