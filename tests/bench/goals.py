# SPDX-License-Identifier: Apache-2.0
"""
What cartonfs is meant to reach: a table of values, each with its goal. A value is the median of the rounds; in
each, all of them take turns. Ratios are of two times of the same round.
"""
import concurrent.futures
import ctypes
import mmap
import os
import random
import shutil
import statistics
import subprocess

import data
import loaders
import memory
import timing
from timing import Skip, timed

MIB = 1 << 20
BIG = 'model/big'


class Goals:
    def __init__(self, b):
        self.b, self.values, self.skipped, self.given_up = b, {}, [], set()
        self.cartonctl = os.path.join(os.path.dirname(b.cartonfs), 'cartonctl')

    def note(self, what, value, goal, unit='×', least=False):
        self.values.setdefault(what, (goal, unit, least, []))[3].append(value)

    def rows(self):
        for what, (goal, unit, least, values) in self.values.items():
            value = statistics.median(values)
            yield dict(what=what, value=value, goal=goal, unit=unit, least=least, low=min(values),
                       high=max(values), met=value >= goal if least else value <= goal)


def shell(command, *args):
    return timed(timing.shell, command, *args)


def drop(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)        # what is not written yet is not dropped
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def read(path):
    return sum(timing.open_and_read(path))


def by_peers(g, what, source, fn):
    """fn(mountpoint) through each peer that mounts it. One that cannot do `what` is not asked again."""
    found = []
    for name, command in g.b.peers.items():
        if (name, what) in g.given_up:
            continue
        try:
            with g.b.patience(name), timing.mounted(command, source, g.b.mnt) as top:
                found.append(fn(top))
        except (Skip, OSError):     # too slow; or it cannot decode zstd
            g.given_up.add((name, what))
            g.skipped.append(f'{what} by {name}')
    return found


def at_best(g, what, source, fn):
    """The shortest time of these, or None."""
    return min(by_peers(g, what, source, fn), default=None)


def have(*programs):
    missing = [p for p in programs if not shutil.which(p)]
    if missing:
        raise Skip(f'{", ".join(missing)}: not installed')


# ---- one file ----

def first_reads(g):
    b, mib = g.b, g.b.size // MIB
    have('openssl')
    kinds = [('Stored', data.STORED, mib, 'openssl dgst -sha256 "$1"', '', 1.25)]
    if shutil.which('zstd'):
        kinds.append(('zstd', data.ZSTD, mib // 2, 'zstd -qdc "$1" | openssl dgst -sha256', '.zst', 1.1))
    kinds.append(('Deflate', data.DEFLATE, mib // 2, None, '', None))
    for name, method, size, limit, suffix, goal in kinds:
        source, plain = b.large(method, size)
        cache = b.new_cache()
        with b.carton(source, cache=cache) as top:
            first = read(f'{top}/{BIG}')
        with b.carton(source, cache=cache) as top:
            later = read(f'{top}/{BIG}')
        if limit:
            timing.read_file(plain + suffix)
            g.note(f'first read of {name} / its limit', first / shell(limit, plain + suffix), goal)
        best = at_best(g, f'first read of {name}', source, lambda top: read(f'{top}/{BIG}'))
        if best:
            if name == 'Deflate':
                g.note('first read of Deflate: times the best peer', best / first, 1.6, least=True)
            g.note(f'later mount, all of {name}: times the best peer', best / later,
                   {'Stored': 1.2, 'zstd': 5, 'Deflate': 10}[name], least=True)


def later_opens(g):
    for mib in sorted({1, 64, g.b.size // MIB} if not g.b.quick else {8, 64}):
        if mib < 8:
            mib = 8     # write_plain() makes whole blocks
        source, cache = g.b.large(data.STORED, mib)[0], g.b.path(f'goal{mib}')
        for again in (False, True):
            with g.b.carton(source, cache=cache) as top:
                t = timed(timing.pread_all, f'{top}/{BIG}', [mib * MIB // 2], 4096)
            if again:
                g.note(f'later mount, open and 4 KiB of {mib} MiB', t * 1000, 5, 'ms')


def resident(path):
    """Bytes of it in the page cache."""
    with open(path, 'rb') as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
        pages = (ctypes.c_ubyte * -(-len(m) // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(m)
        r = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(m)),
                                      pages)
        del start
        assert r == 0
        return sum(p & 1 for p in pages) * mmap.PAGESIZE


def rereads(g):
    b, mib = g.b, g.b.size // MIB // 2
    source, plain = b.large(data.STORED, mib)
    timing.read_file(plain)
    drop(source)
    with b.carton(source) as top:
        path = f'{top}/{BIG}'
        timing.read_file(path)
        g.note('page cache held for a file that was read',
               (resident(path) + resident(source)) / (mib * MIB), 1.1, 'times')
        drop(path)
        g.note('read again, pages dropped', mib / timed(timing.read_file, path), 1570, 'MiB/s', True)
        pages = random.Random(len(g.values)).sample(range(mib * 256), 2000)
        drop(path)
        t = timed(timing.pread_all, path, [p * 4096 for p in pages], 4096)
        g.note('random 4 KiB, not in the page cache', t / len(pages) * 1e6, 50, 'µs')
    if shutil.which('zstd'):
        source, plain = b.large(data.ZSTD, mib)
        with b.carton(source, options=['passthrough']) as top, open(f'{top}/{BIG}', 'rb'):
            if os.getxattr(f'{top}/{BIG}', 'user.carton.passthrough') != b'yes':
                raise Skip('passthrough: not possible here')
            timing.read_file(f'{top}/{BIG}')
            timing.read_file(plain)
            ours = timed(timing.read_file, f'{top}/{BIG}')
            g.note('read again, passed through: speed / that of the file beneath',
                   timed(timing.read_file, plain) / ours, .83, least=True)


def readers(g):
    def several(top, n):
        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            list(pool.map(timing.read_file, [f'{top}/{BIG}'] * n))

    source, _ = g.b.large(data.STORED, g.b.size // MIB)
    with g.b.carton(source) as top:
        ours = timed(several, top, 8)
    best = at_best(g, '8 readers', source, lambda top: timed(several, top, 8))
    if best:
        g.note('8 readers of a Stored file: times the best peer', best / ours, 1, least=True)
    have('zstd')
    source, _ = g.b.large(data.ZSTD, g.b.size // MIB // 4)
    times = {}
    for n in (8, 64):
        with g.b.carton(source) as top:
            times[n] = timed(several, top, n) / n
    g.note('zstd, 64 readers / 8 readers, per reader', times[64] / times[8], 1)


def loading(g):
    b, mib = g.b, g.b.size // MIB // 2
    source, plain = b.large(data.STORED, mib)
    offsets = list(range(0, mib * MIB, loaders.TENSOR))
    random.Random(5).shuffle(offsets)
    ways = [('tensors from a mapping', loaders.copy_tensors, n) for n in (1, 4)] + \
           [('O_DIRECT', loaders.read_direct, n) for n in (1, 4, 8)]

    def all_ways(top):
        out = []
        timing.verify(f'{top}/{BIG}')
        for _, fn, n in ways:
            drop(f'{top}/{BIG}')
            out.append(timed(loaders.in_processes, n, fn, f'{top}/{BIG}', offsets))
        return out

    with b.carton(source) as top:
        ours = all_ways(top)
    timing.read_file(plain)
    for (what, fn, n), t in zip(ways[:2], ours):
        g.note(f'{what}, {n} at once: speed / that of ext4', timed(
            loaders.in_processes, n, fn, plain, offsets) / t, .9, least=True)
    peers = by_peers(g, 'loading', source, all_ways)
    for i, (what, _, n) in list(enumerate(ways))[2:]:
        if peers:
            g.note(f'{what}, {n} at once: times the best peer', min(p[i] for p in peers) / ours[i], 1.3,
                   least=True)


# ---- many files ----

def eight(g):
    b, mib = g.b, 32 if g.b.quick else 256
    have('zstd')
    source = b.path('eight.carton')
    plain, what = b.plain(mib)
    packed = f'{plain}.zst'
    if not os.path.exists(source):
        if not os.path.exists(packed):
            data.zstandard(plain, packed)
        w = data.Writer(source)
        w.bytes('carton.toml', data.TOML, data.DEFLATE)
        for i in range(8):      # of other content each: a tail of its own
            w.bytes(f'model/s{i}', bytes([i]) * 64)
            size, crc, sha = what
            w.add(f'model/{i}', size, crc, sha, data.chunks_of(packed if i % 2 else plain),
                  os.path.getsize(packed if i % 2 else plain), data.ZSTD if i % 2 else data.STORED)
        w.close()

    def all_of(top):
        return sum(read(f'{top}/model/{i}') for i in range(8))

    with b.carton(source) as top:
        ours = all_of(top)
    best = at_best(g, 'eight files', source, all_of)
    if best:
        g.note('eight files, one after the other: times the best peer', best / ours, 1.7, least=True)


def small(g):
    b, count = g.b, 20000 if g.b.quick else 100000
    source = b.path('small.carton')
    if not os.path.exists(source):
        data.write_small(source, count)
    with b.carton(source) as top:
        for turn, goal in (('first', 7), ('second', 5)):
            g.note(f'tar of {count} files of 1 KiB, {turn} time', shell('tar -C "$1" -cf - . | cat', top),
                   goal, 's')
        g.note('memory after that', timing.peak_memory(b.mnt) / MIB, 60, 'MiB')
    for command, goal in (('find "$1"', .3), ('ls -lR "$1"', .7), ('du -s "$1"', .6)):
        with b.carton(source) as top:
            g.note(f'{command.split(chr(34))[0]}of {count}', shell(command, f'{top}/model'), goal, 's')


def mounts(g):
    b = g.b
    for count, goal, scale, unit in ((12, 6, 1000, 'ms'), (100_000, .12, 1, 's'), (1_000_000, 1.5, 1, 's')):
        if b.quick and count > 12:
            continue
        source = b.path(f'entries{count}.carton')
        if not os.path.exists(source):
            memory.write_tiny(source, count)
        times = []
        with b.carton(source, times.append):
            peak = timing.peak_memory(b.mnt)
        g.note(f'mount of {count} entries', times[0] * scale, goal, unit)
        if count == 12:
            idle = peak
        elif count == 1_000_000:
            g.note('memory of an entry', (peak - idle) / count, 200, 'B')


def verifying(g):
    b = g.b
    have('openssl', 'xargs')
    count, mib = 64, 8 if b.quick else 32
    where, source = b.path('shards'), b.path('shards.carton')
    if not os.path.exists(source):
        os.makedirs(where)
        w, block = data.Writer(source), data.floats()
        w.bytes('carton.toml', data.TOML, data.DEFLATE)
        for i in range(count):
            path = f'{where}/{i:02}'
            turn = block[i * 4096:] + block[:i * 4096]
            with open(path, 'wb') as f:
                for _ in range(mib * MIB // data.BLOCK):
                    f.write(turn)
            w.add(f'model/{i:02}', *data.facts(path), data.chunks_of(path))
        w.close()
    ours = timed(subprocess.run, [g.cartonctl, 'verify', source], check=True, stdout=subprocess.DEVNULL,
                 stderr=subprocess.DEVNULL)
    theirs = shell('cpus=$(nproc); ls "$1"/* | xargs -P "$cpus" -n 4 openssl dgst -sha256', where)
    g.note(f'cartonctl verify of {count} Stored files / openssl dgst on all cores', ours / theirs, 1)


def goals(b):
    s, g = b.section('Goals'), Goals(b)
    parts = [first_reads, later_opens, rereads, readers, loading, eight, small, mounts, verifying]
    for i in range(b.rounds):
        for part in list(parts):
            b.say(f'{s.title}: {part.__name__}, round {i + 1} of {b.rounds}')
            try:
                part(g)
            except Skip as e:
                if str(e) not in s.skipped:
                    s.skipped.append(str(e))
    if not b.peers:
        s.skipped.append('times the best peer: no other program that mounts a zip was found')
    if b.quick:
        s.skipped.append('goals are for the sizes without --quick')
    s.skipped += g.skipped
    s.goals = list(g.rows())
