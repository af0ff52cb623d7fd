# SPDX-License-Identifier: Apache-2.0
"""
Nine ways in which programs read the shards of a model, each by itself. A pattern gets the paths of the shards, runs in
a process of its own, and reads with the lock of the interpreter released, so that its threads are threads.
"""
import contextlib
import ctypes
import mmap
import os
import random
import resource
import shutil
import statistics
import subprocess
import threading

import data
import remote
import timing
from timing import Skip, processes

MIB = 1 << 20
HEADER = MIB
PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None)


class Mapping:
    def __init__(self, path):
        self.f = open(path, 'rb')
        self.size = os.fstat(self.f.fileno()).st_size
        LIBC.mmap.restype = ctypes.c_void_p
        self.at = LIBC.mmap(None, ctypes.c_size_t(self.size), mmap.PROT_READ, mmap.MAP_SHARED, self.f.fileno(),
                            ctypes.c_long(0))
        assert self.at != ctypes.c_void_p(-1).value

    def copy(self, off, to, n):
        n = min(n, self.size - off)
        LIBC.memcpy(to, ctypes.c_void_p(self.at + off), ctypes.c_size_t(n))


def threads(n, work, items):
    """`n` threads call work(next item, a buffer of their own)."""
    todo, lock, failed = iter(items), threading.Lock(), []

    def run():
        try:
            with mmap.mmap(-1, 16 * MIB + PAGE) as buf:
                while True:
                    with lock:
                        item = next(todo, None)
                    if item is None or failed:
                        return
                    timing.check_patience()
                    work(item, buf)
        except (OSError, TimeoutError) as e:
            failed.append(e)

    all_of = [threading.Thread(target=run) for _ in range(n)]
    for t in all_of:
        t.start()
    for t in all_of:
        t.join()
    if failed:
        raise failed[0]


def blocks(paths, n):
    return [(p, off) for p in paths for off in range(0, os.path.getsize(p), n)]


def map_all(paths, items, n, count=1):
    """Copies `n` bytes at each (path, offset) out of mappings."""
    maps = {p: Mapping(p) for p in paths}

    def work(item, buf):
        maps[item[0]].copy(item[1], ctypes.byref(ctypes.c_char.from_buffer(buf, timing.ASIDE)), n)
    threads(count, work, items)


def pread_all(paths, items, count, flags=0):
    """Reads (path, offset, bytes) by preads."""
    with contextlib.ExitStack() as stack:
        fds = {}
        for p in paths:
            fds[p] = os.open(p, os.O_RDONLY | flags)
            stack.callback(os.close, fds[p])
        threads(count, lambda i, buf: os.preadv(fds[i[0]], [memoryview(buf)[:i[2]]], i[1]), items)


def in_order(paths):
    for p in paths:
        os.stat(p)
    pread_all(paths, [(p, 0, HEADER) for p in paths], 1)
    map_all(paths, blocks(paths, 16 * MIB), 16 * MIB)


def prefetched(paths):
    def work(i):
        if i == 0:
            pread_all(paths, [(*x, 16 * MIB) for x in blocks(paths, 16 * MIB)], 8)
        else:
            map_all(paths, blocks(paths, 16 * MIB), 16 * MIB)
    processes(2, work)


def faulted(paths):
    for p in paths:
        map_all([p], blocks([p], MIB), MIB, 32)


def sliced(paths):
    processes(4, lambda i: map_all(paths, [(p, off) for p, off in blocks(paths, 2 * MIB) if off // (2 * MIB) % 4 == i],
                                   2 * MIB))


def streamed(paths):
    pread_all(paths, [(*x, 2 * MIB) for x in blocks(paths, 2 * MIB)], 16)


def direct(paths):
    items = [(*x, MIB) for x in blocks(paths, MIB)]
    processes(4, lambda i: pread_all(paths, items[i::4], 16, os.O_DIRECT))


def planned(paths):
    """Every other range, each of 64 KiB to 4 MiB."""
    rng, items = random.Random(6), []
    for p in paths:
        off, size = 0, os.path.getsize(p)
        while off < size:
            n = rng.randrange(64 << 10, 4 * MIB)
            items.append((p, off, min(n, size - off)))
            off += 2 * n
    pread_all(paths, items, 8)


def whole(paths):
    for p in paths:
        size = os.path.getsize(p)
        with open(p, 'rb', buffering=0) as f, mmap.mmap(-1, size) as buf:
            at = 0
            while n := f.readinto(memoryview(buf)[at:]):
                at += n


@contextlib.contextmanager
def little_memory(size):
    """A cgroup of that many bytes, to be entered by its children: what they have the kernel keep counts there."""
    for root, name in ('/sys/fs/cgroup/memory', 'memory.limit_in_bytes'), ('/sys/fs/cgroup', 'memory.max'):
        group = f'{root}/cartonfs-bench-{os.getpid()}'
        with contextlib.suppress(OSError):
            os.mkdir(group)
            try:
                with open(f'{group}/{name}', 'w') as f:
                    f.write(str(size))
                yield f'{group}/cgroup.procs'
                return
            finally:
                with contextlib.suppress(OSError):
                    os.rmdir(group)
    raise Skip('random pages with less memory than the file: no cgroup can be made')


def scattered(paths):
    rng, size = random.Random(7), os.path.getsize(paths[0])
    with little_memory(max(sum(map(os.path.getsize, paths)) // 2, 16 * MIB)) as group:
        def work(_):
            with open(group, 'w') as f:
                f.write('0')
            map_all(paths, [(rng.choice(paths), rng.randrange(size // PAGE) * PAGE) for _ in range(4000)], PAGE)
        processes(1, work)


ALL = {
    'shards in order, headers first': in_order,
    '8 x 16 MiB read beside a mapping': prefetched,
    '32 threads fault one mapping': faulted,
    '4 processes map slices': sliced,
    '16 x pread of 2 MiB': streamed,
    'O_DIRECT, 4 processes x 16': direct,
    'planned ranges, 8 at once': planned,
    'a file in one read': whole,
    'random pages, half the memory': scattered,
}


def timed(fn, paths):
    """(seconds, major faults) of a pattern in a process of its own."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        said, status = b'', 1
        try:
            seconds = timing.timed(fn, paths)
            faults = sum(resource.getrusage(x).ru_majflt for x in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
            said, status = f'{seconds} {faults}'.encode(), 0
        except Skip as e:
            said, status = str(e).encode(), 2
        except TimeoutError:
            status = 3
        finally:
            os.write(w, said)
            os._exit(status)
    os.close(w)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with open(r) as f:
        said = f.read()
    if status == 2:
        raise Skip(said)
    if status == 3:
        raise TimeoutError
    if status:
        raise RuntimeError(f'{fn.__name__}: exit {status}')
    seconds, faults = map(float, said.split())
    return seconds, faults


# ---- the section ----

def cpu_seconds(where):
    """Of all processes that serve the mount there."""
    ticks = 0
    for pid in filter(str.isdigit, os.listdir('/proc')):
        with contextlib.suppress(OSError):
            with open(f'/proc/{pid}/cmdline', 'rb') as f:
                if os.fsencode(where) not in f.read().split(b'\0'):
                    continue
            with open(f'/proc/{pid}/stat') as f:
                ticks += sum(map(int, f.read().rsplit(')', 1)[1].split()[11:13]))
    return ticks / os.sysconf('SC_CLK_TCK')


class Patterns:
    """What the shards cost in each condition: seconds are the section's, the rest is noted here."""

    def __init__(self, b, mib, count):
        self.b, self.mib, self.count = b, mib, count
        self.cost = {}                  # name: [(CPU seconds of the daemon, major faults of the reader)]
        self.plain = b.path('shards')
        self.cartons = {kind: b.path(f'shards-{kind}.carton') for kind in ('local', 'chunked')}
        for kind, carton in self.cartons.items():
            data.write_shards(carton, count, mib, kind == 'chunked')
        subprocess.run(b.ctl('extract', self.cartons['local'], self.plain), check=True, capture_output=True)
        self.kinds = dict(self.cartons)

    def paths(self, top):
        return [f'{top}/model/{i:02}' for i in range(self.count)]

    def read(self, name, pattern, top, note):
        before = cpu_seconds(top)
        seconds, faults = timed(ALL[pattern], self.paths(top))
        note(name, seconds)
        self.cost.setdefault(name, []).append((cpu_seconds(top) - before, faults))

    def beneath(self, pattern):
        def contest(note):
            for cached, word in (False, 'out'), (True, 'in'):
                self.b.conditions.pages(*self.paths(self.plain), cached=cached, name='file')
                self.read(f'ext4: {pattern}, {word}', pattern, self.plain, note)
        return contest

    def ours(self, kind, pattern):
        def contest(note):
            source = self.kinds[kind]
            for cached, words in ((False, ('first, out',)), (True, ('first, in', 'again')), (False, ('later, out',)),
                                  (True, ('later, in',))):
                if words == ('first, out',) and kind == 'remote':
                    continue        # the page cache is the server's
                if words[0].startswith('first'):
                    cache = self.b.new_cache()
                with self.b.carton(source, cache=cache, cached=cached) as top:
                    for word in words:
                        if word == 'again':
                            self.b.conditions.say('read before in this mount')
                        self.read(f'{kind}: {pattern}, {word}', pattern, top, note)
                self.b.conditions.texts.pop('more', None)
        return contest

    def peer(self, name, pattern):
        def contest(note):
            for cached, word in (False, 'out'), (True, 'in'):
                with self.b.patience(name), self.b.peer(self.b.peers[name], self.cartons['local'], cached=cached) as top:
                    self.read(f'{name}: {pattern}, {word}', pattern, top, note)
        return contest

    def row(self, s, name, against):
        """With what it cost, as medians."""
        cost = self.cost.get(name)
        if cost:
            cpu, faults = (statistics.median(x) for x in zip(*cost))
            s.row(name, against, f'daemon {cpu:.2f} s of CPU, reader {faults:.0f} major faults')

    def run(self, pattern, peers):
        s = self.b.section(f'Loading {self.count} shards of {self.mib} MiB: {pattern}')
        s.run(self.beneath(pattern), *[self.ours(kind, pattern) for kind in self.kinds],
              *[self.peer(name, pattern) for name in peers])
        for word in 'first, out', 'first, in', 'later, out', 'later, in', 'again':
            beneath = word.partition(', ')[2] or 'in'
            for kind in self.kinds:
                self.row(s, f'{kind}: {pattern}, {word}', f'ext4: {pattern}, {beneath}')
            for name in peers if word.startswith('later') else ():
                self.row(s, f'{name}: {pattern}, {beneath}', f'ext4: {pattern}, {beneath}')
        return s


def patterns(b):
    p = Patterns(b, b.pick(64, 16, 2), b.pick(4, 4, 2))
    peers = [name for name in ('mount-zip', 'squashfuse') if name in b.peers]
    try:
        nginx, url = remote.start_nginx(b, b.where, remote.NGINX, rate=0)
    except Skip as e:
        nginx, missing = None, str(e)
    else:
        p.kinds['remote'] = f'{url}/{os.path.basename(p.cartons["chunked"])}'
    try:
        for pattern in ALL:
            s = p.run(pattern, peers)
            if not nginx:
                s.skipped.append(f'remote: {missing}')
    finally:
        if nginx:
            nginx.terminate()
            nginx.wait()
        shutil.rmtree(p.plain)
        for carton in p.cartons.values():
            b.remove(carton)
