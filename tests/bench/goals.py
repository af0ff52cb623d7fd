# SPDX-License-Identifier: Apache-2.0
"""
What cartonfs is meant to reach: a table of values, each with its goal. A value is the median of the rounds; in
each, all of them take turns, in another order. Ratios are of two times of the same round.
"""
import concurrent.futures
import os
import random
import shutil
import statistics
import subprocess

import conditions
import copies
import data
import loaders
import memory
import timing
from timing import Skip, timed

MIB = 1 << 20
BIG = 'model/big'
OURS = 'cartonfs'


class Goals:
    def __init__(self, b):
        self.b, self.values, self.skipped, self.given_up = b, {}, [], set()
        self.round, self.condition = 0, {}
        self.zip = {k: v for k, v in b.peers.items() if k != 'squashfuse'}     # goals are among those that mount a zip

    def race(self, *contestants):
        """
        Of (name, function): {name: what it returned}, without those that raise Skip. Each round begins with another.
        """
        turn = self.round % len(contestants)
        out = {}
        for name, fn in contestants[turn:] + contestants[:turn]:
            self.b.conditions.begin()
            try:
                out[name] = fn()
                self.condition[name] = self.b.conditions.text()
            except Skip as e:
                if name == OURS:
                    raise
                self.skipped.append(str(e))
        return out

    def peers(self, what, source, fn):
        """For race(): fn(mountpoint) through each peer. One that cannot do `what` is not asked again."""
        def contest(name, command):
            def run():
                try:
                    with self.b.patience(name), self.b.peer(command, source) as top:
                        return fn(top)
                except (Skip, OSError):     # too slow; or it cannot decode zstd
                    self.given_up.add((name, what))
                    raise Skip(f'{what} by {name}') from None
            return name, run
        return [contest(k, v) for k, v in self.zip.items() if (k, what) not in self.given_up]

    def best(self, times):
        """The shortest time of a peer, or None."""
        return min((t for name, t in times.items() if name in self.zip), default=None)

    def note(self, what, value, goal, unit='×', least=False):
        """Under the condition of ours in the last race."""
        row = self.values.setdefault(what, (goal, unit, least, self.condition[OURS], []))
        if row[3] != self.condition[OURS]:
            raise RuntimeError(f'{what}: "{row[3]}" in one round, "{self.condition[OURS]}" in another')
        row[4].append(value)

    def rows(self):
        for what, (goal, unit, least, condition, values) in self.values.items():
            value = statistics.median(values)
            yield dict(what=what, value=value, goal=goal, unit=unit, least=least, low=min(values), high=max(values),
                       met=value >= goal if least else value <= goal, condition=condition)


def shell(command, *args):
    return timed(timing.shell, command, *args)


def read(path):
    return sum(timing.open_and_read(path))


def have(*programs):
    missing = [p for p in programs if not shutil.which(p)]
    if missing:
        raise Skip(f'{", ".join(missing)}: not installed')


# ---- one file ----

def first_reads(g):
    b, mib = g.b, g.b.size // MIB
    have('openssl')
    kinds = [('Stored', data.STORED, mib, 'openssl dgst -sha256 "$1"', 1.25)]
    if shutil.which('zstd'):
        kinds.append(('zstd', data.ZSTD, mib // 2, 'zstd -qdc "$1" | openssl dgst -sha256', 1.1))
    kinds.append(('Deflate', data.DEFLATE, mib // 2, None, None))
    for name, method, size, limit, goal in kinds:
        source, plain = b.large(method, size)
        body = plain if method == data.STORED else f'{plain}.{method}'

        def ours():
            with b.carton(source) as top:
                return read(f'{top}/{BIG}')

        def by_limit():
            b.conditions.pages(body, name='file')
            return shell(limit, body)

        t = g.race((OURS, ours), *[('limit', by_limit)] * bool(limit),
                   *g.peers(f'first read of {name}', source, lambda top: read(f'{top}/{BIG}')))
        if limit:
            g.note(f'first read of {name} / its limit', t[OURS] / t['limit'], goal)
        best = g.best(t)
        if best and name == 'Deflate':
            g.note('first read of Deflate: times the best peer', best / t[OURS], 1.6, least=True)
        if best:
            later_read(g, name, source, best)


def later_read(g, name, source, best):
    cache = g.b.new_cache()

    def ours():
        for _ in range(2):
            with g.b.carton(source, cache=cache) as top:
                t = read(f'{top}/{BIG}')
        return t

    t = g.race((OURS, ours))
    g.note(f'later mount, all of {name}: times the first of the best peer', best / t[OURS],
           {'Stored': 1.2, 'zstd': 5, 'Deflate': 10}[name], least=True)


def later_opens(g):
    for mib in g.b.pick((8, 64, 1024), (8, 64), (8,)):
        source, cache = g.b.large(data.STORED, mib)[0], g.b.new_cache()

        def ours():
            for _ in range(2):
                with g.b.carton(source, cache=cache) as top:
                    t = timed(timing.pread_all, f'{top}/{BIG}', [mib * MIB // 2], 4096)
            return t

        t = g.race((OURS, ours))
        g.note(f'later mount, open and 4 KiB of {mib} MiB', t[OURS] * 1000, 5, 'ms')


def rereads(g):
    b, mib = g.b, g.b.size // MIB // 2
    source, _ = b.large(data.STORED, mib)

    def held():
        with b.carton(source, cached=False) as top:
            timing.read_file(f'{top}/{BIG}')
            return (conditions.resident(f'{top}/{BIG}') + conditions.resident(source)) / (mib * MIB)

    def again():
        with b.carton(source) as top:
            path = f'{top}/{BIG}'
            timing.read_file(path)
            conditions.drop(path)
            b.conditions.say('read before, not in the page cache of the mount')
            all_of = timed(timing.read_file, path)
            pages = random.Random(g.round).sample(range(mib * 256), min(2000, mib * 256))
            conditions.drop(path)
            return all_of, timed(timing.pread_all, path, [p * 4096 for p in pages], 4096) / len(pages)

    t = g.race((OURS, held))
    g.note('page cache held for a file that was read', t[OURS], 1.1, 'times')
    t = g.race((OURS, again))
    g.note('read again, pages dropped', mib / t[OURS][0], 1570, 'MiB/s', True)
    g.note('random 4 KiB, not in the page cache of the mount', t[OURS][1] * 1e6, 50, 'µs')


def readers(g):
    def several(top, n):
        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            list(pool.map(timing.read_file, [f'{top}/{BIG}'] * n))

    def ours(source, n):
        def run():
            with g.b.carton(source) as top:
                return timed(several, top, n)
        return run

    source, _ = g.b.large(data.STORED, g.b.size // MIB)
    t = g.race((OURS, ours(source, 8)), *g.peers('8 readers', source, lambda top: timed(several, top, 8)))
    if g.best(t):
        g.note('8 readers of a Stored file: times the best peer', g.best(t) / t[OURS], 1, least=True)
    have('zstd')
    source, _ = g.b.large(data.ZSTD, g.b.size // MIB // 4)
    t = g.race((OURS, ours(source, 64)), ('8', ours(source, 8)))
    g.note('zstd, 64 readers / 8 readers, per reader', t[OURS] / 64 / (t['8'] / 8), 1)


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
        g.b.conditions.say('verified, not in the page cache of the mount')
        for _, fn, n in ways:
            conditions.drop(f'{top}/{BIG}')
            out.append(timed(loaders.in_processes, n, fn, f'{top}/{BIG}', offsets))
        return out

    def ours():
        with b.carton(source) as top:
            return all_ways(top)

    def beneath():
        b.conditions.pages(plain, name='file')
        return [timed(loaders.in_processes, n, fn, plain, offsets) for _, fn, n in ways[:2]]

    t = g.race((OURS, ours), ('beneath', beneath), *g.peers('loading', source, all_ways))
    for i, (what, _, n) in enumerate(ways[:2]):
        g.note(f'{what}, {n} at once: speed / that of ext4', t['beneath'][i] / t[OURS][i], .9, least=True)
    peers = [p for name, p in t.items() if name in g.zip]
    for i, (what, _, n) in list(enumerate(ways))[2:]:
        if peers:
            g.note(f'{what}, {n} at once: times the best peer', min(p[i] for p in peers) / t[OURS][i], 1.3,
                   least=True)


def mappings(g):
    """A mapping read in sequence by a later mount: of a file that has a seal, and of one that has an index, too."""
    b, mib = g.b, g.b.size // MIB // 2
    (sealed, plain), (chunked, _) = b.large(data.STORED, mib), b.large(data.STORED, mib, index=True)
    offsets = range(0, mib * MIB, loaders.TENSOR)

    def mapped(path):
        return timed(loaders.in_processes, 1, loaders.copy_tensors, path, offsets)

    def ours(source, later, cached=True):
        def run():
            cache = b.new_cache()
            for _ in range(later):
                with b.carton(source, cache=cache) as top:
                    # with an index, an open alone verifies one chunk
                    timing.read_file(f'{top}/{BIG}')
            with b.carton(source, cache=cache, cached=cached) as top:
                return mapped(f'{top}/{BIG}')
        return run

    def beneath(cached):
        def run():
            b.conditions.pages(plain, cached=cached, name='file')
            return mapped(plain)
        return run

    for cached, goal in ((False, .9), (True, .4)):
        for name, source in (('', sealed), (', chunk index', chunked)):
            t = g.race((OURS, ours(source, 1, cached)), ('ext4', beneath(cached)))
            where = 'in memory' if cached else 'on disk'
            g.note(f'later mapping{name}, {where}: speed / that of ext4', t['ext4'] / t[OURS], goal, least=True)
    t = g.race((OURS, ours(chunked, 0)), ('no index', ours(sealed, 0)))
    g.note('first mapping, chunk index: speed / without', t['no index'] / t[OURS], .9, least=True)


def packing(g):
    """Both have written their copy to the disk when they end."""
    b, mib = g.b, g.b.size // MIB // 2
    tree, out = b.path('goals.tree'), b.path('goals.packed')
    paths = [os.path.join(where, f) for where, _, names in os.walk(tree) for f in names] or copies.write_tree(b, tree, mib)

    def made(*words):
        def run():
            b.conditions.pages(*paths, name='source')
            b.conditions.say('synced')
            try:
                return shell('cd "$1" && shift && "$@" && sync -f .', tree, *words)
            finally:
                subprocess.run(['rm', '-rf', out], check=True)
        return run

    for options in (['--compress=store'], ['--compress=store', '--chunk-index']):
        t = g.race((OURS, made(*b.ctl('pack', *options, '.', out))), ('cp', made('cp', '-r', '.', out)))
        g.note(f'pack {" ".join(options)}: speed / cp -r and sync', t['cp'] / t[OURS], .8, least=True)


# ---- many files ----

def eight(g):
    """Eight files of other content each, half of them Stored."""
    b, mib = g.b, g.b.pick(256, 32, 1)
    have('zstd')
    source = b.path('eight.carton')
    if not os.path.exists(source):
        for plain in data.write_several(source, b.path('eight'), mib, [data.STORED, data.ZSTD] * 4):
            os.unlink(plain)

    def all_of(top):
        return sum(read(f'{top}/model/{i:02}') for i in range(8))

    def ours():
        with b.carton(source) as top:
            return all_of(top)

    t = g.race((OURS, ours), *g.peers('eight files', source, all_of))
    if g.best(t):
        g.note('eight files, one after the other: times the best peer', g.best(t) / t[OURS], 1.7, least=True)


def small(g):
    b, count = g.b, g.b.pick(100000, 20000, 1000)
    source = b.path('small.carton')
    if not os.path.exists(source):
        data.write_small(source, count)

    def tar():
        with b.carton(source) as top:
            return [shell('tar -C "$1" -cf - . | cat', top) for _ in range(2)] + [timing.peak_memory(b.mnt)]

    t = g.race((OURS, tar))
    g.note(f'tar of {count} files of 1 KiB, first time', t[OURS][0], 7, 's')
    g.note(f'tar of {count} files of 1 KiB, second time', t[OURS][1], 5, 's')
    g.note('memory after that', t[OURS][2] / MIB, 60, 'MiB')
    for command, goal in (('find "$1"', .3), ('ls -lR "$1"', .7), ('du -s "$1"', .6)):
        def ours():
            with b.carton(source) as top:
                return shell(command, f'{top}/model')

        t = g.race((OURS, ours))
        g.note(f'{command.split(chr(34))[0]}of {count}', t[OURS], goal, 's')


def mounts(g):
    b = g.b
    for count, goal, scale, unit in ((12, 6, 1000, 'ms'), (100_000, .12, 1, 's'), (1_000_000, 1.5, 1, 's')):
        if b.quick and count > 12:
            continue
        source = b.path(f'entries{count}.carton')
        if not os.path.exists(source):
            memory.write_tiny(source, count)

        def ours():
            times = []
            with b.carton(source, times.append):
                return times[0], timing.peak_memory(b.mnt)

        seconds, peak = g.race((OURS, ours))[OURS]
        g.note(f'mount of {count} entries', seconds * scale, goal, unit)
        if count == 12:
            idle = peak
        elif count == 1_000_000:
            g.note('memory of an entry', (peak - idle) / count, 200, 'B')


def verifying(g):
    b = g.b
    have('openssl', 'xargs')
    count, mib = b.pick(64, 64, 4), b.pick(32, 8, 1)
    source, plain = b.path('shards.carton'), [b.path(f'shard{i:02}') for i in range(count)]
    if not os.path.exists(source):
        assert data.write_several(source, b.path('shard'), mib, [data.STORED] * count) == plain

    def ours():
        command = b.ctl('verify', source)
        b.conditions.pages(source)
        b.conditions.say('cache empty')
        return timed(subprocess.run, command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def theirs():
        b.conditions.pages(*plain, name='files')
        return shell('cpus=$(nproc); printf "%s\\0" "$@" | xargs -0 -P "$cpus" -n 4 openssl dgst -sha256', *plain)

    t = g.race((OURS, ours), ('openssl', theirs))
    g.note(f'cartonctl verify of {count} Stored files / openssl dgst on all cores', t[OURS] / t['openssl'], 1)


def goals(b):
    s, g = b.section('Goals'), Goals(b)
    parts = [first_reads, later_opens, rereads, readers, loading, mappings, packing, eight, small, mounts, verifying]
    for g.round in range(b.rounds):
        for part in parts:
            b.say(f'{s.title}: {part.__name__}, round {g.round + 1} of {b.rounds}')
            try:
                part(g)
            except Skip as e:
                g.skipped.append(str(e))
    if not g.zip:
        s.skipped.append('times the best peer: no other program that mounts a zip was found')
    if b.quick:
        s.skipped.append('goals are for the sizes without --quick')
    s.skipped += dict.fromkeys(g.skipped)
    s.goals = list(g.rows())
