# SPDX-License-Identifier: Apache-2.0
"""
Mounts, timed readers, and the table.

A section has contestants that take turns, each round in another order. Only ratios of times of the
same round are reported, as their median: a machine that is slow for a while is slow for all.
"""
import contextlib
import hashlib
import mmap
import os
import select
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

IS_ROOT = os.geteuid() == 0
BUF = 1 << 20
# Bytes between the place in its page where a copy out of a mapping begins and that of its target, as behind the header
# of a model. Without it, memcpy of glibc begins at the end: the mapping would not be read in order.
ASIDE = 1000


class Skip(Exception):
    """Why something is not measured."""


# ---- the table ----

class Section:
    def __init__(self, bench, title):
        self.bench, self.title, self.times, self.conditions = bench, title, {}, {}
        self.word = None                # what --only calls it
        self.rows, self.curves, self.goals, self.skipped = [], [], [], []

    def run(self, *contestants, rounds=None):
        """Each is called once a round with note(name, seconds). One that raises Skip is out."""
        live = list(contestants)
        for i in range(rounds or self.bench.rounds):
            turn = i % max(len(live), 1)
            for c in live[turn:] + live[:turn]:
                self.bench.say(f'{self.title}: round {i + 1} of {self.bench.rounds}')
                self.bench.conditions.begin()
                try:
                    c(lambda name, seconds, i=i: self.note(name, i, seconds))
                except Skip as e:
                    live.remove(c)
                    self.skipped.append(str(e))
        return self

    def note(self, name, turn, seconds):
        """Also notes the condition, which must be that of the rounds before."""
        now = self.bench.conditions.text()
        was = self.conditions.setdefault(name, now)
        if was != now:
            del self.times[name]
            raise Skip(f'{name}: "{was}" in one round, "{now}" in another')
        self.times.setdefault(name, {}).setdefault(turn, seconds)

    def row(self, name, reference, remark='', count=1):
        """
        One line of the table: how many times as long as the reference `name` took. What takes that long was
        done `count` times.
        """
        a, b = self.times.get(name, {}), self.times.get(reference, {})
        ratios = sorted(a[i] / b[i] for i in a if i in b)
        if ratios:
            self.rows.append(dict(what=name, against=reference, remark=remark, rounds=len(ratios),
                                  ratio=statistics.median(ratios), low=ratios[0], high=ratios[-1], count=count,
                                  seconds=statistics.median(a.values()),
                                  reference_seconds=statistics.median(b.values()),
                                  condition=self.conditions[name],
                                  reference_condition=self.conditions[reference]))
        return self

    def curve(self, y, x, lines, condition):
        """A cost as it grows: lines is {name: [(x, y)…]}, with the units of both."""
        self.curves.append(dict(x=x, y=y, lines=lines, condition=condition))

    def time_curve(self, x, lines):
        """lines is {name: [(x, what was noted)…]}: the medians of these."""
        points = {name: [(n, statistics.median(self.times[what].values())) for n, what in line if
                         what in self.times] for name, line in lines.items()}
        self.curve('seconds', x, {name: p for name, p in points.items() if p}, '; '.join(
            f'{name}: {self.conditions[line[0][1]]}' for name, line in lines.items() if points[name]))

    def print(self):
        self.bench.say('')
        print(f'\n{self.title}')
        heading = None
        for r in self.rows:
            if heading != r['condition']:
                heading = r['condition']
                print(f' {heading}:')
            print(f'  {r["what"]:<44} {number(r["ratio"]):>7}  ({number(r["low"])}-'
                  f'{number(r["high"])})'.ljust(72) + f'x  {r["against"]}' +
                  (f'; {r["remark"]}' if r['remark'] else '') +
                  (f' ({r["reference_condition"]})' if r['reference_condition'] != heading else ''))
        for r in self.goals:
            if heading != r['condition']:
                heading = r['condition']
                print(f' {heading}:')
            goal = ('≥' if r['least'] else '≤') + f' {number(r["goal"])}'
            print(f'  {r["what"]:<66} {number(r["value"]):>7} {r["unit"]:<6} {goal:>8}  '
                  f'{"met" if r["met"] else "NOT MET"}')
        for c in self.curves:
            print(f' {c["condition"]}:')
            for name, points in c['lines'].items():
                print(f'  {name:<24} ' + '  '.join(f'{x:g} {c["x"]}: {number(y)} {c["y"]}' for x, y in points))
        for s in self.skipped:
            print(f'  not measured: {s}')

    def json(self):
        return dict(word=self.word, title=self.title, rows=self.rows, curves=self.curves, goals=self.goals,
                    skipped=self.skipped)


def number(x):
    return f'{x:.0f}' if x >= 100 else f'{x:.3g}'


# ---- mounts ----

# Programs that mount a zip, and how; each returns when the mount is there. All may keep pages in the kernel from
# one open to the next, as cartonfs does, and none may keep anything from one mount to the next.
PEERS = {
    'mount-zip': ['mount-zip'],
    'fuse-zip': ['fuse-zip', '-r', '-o', 'kernel_cache'],
    'fuse-archive': ['fuse-archive'],
    'archivemount': ['archivemount', '-o', 'readonly,kernel_cache'],
    'ratarmount': ['ratarmount', '--index-file', ':memory:', '-o', 'kernel_cache'],
    'squashfuse': ['squashfuse_ll'],    # of an image with the same files; it keeps pages by itself
}


def unmount(path):
    """Also when it is busy: a reader that was given up may still be in there."""
    if IS_ROOT:
        commands = [['umount', path], ['umount', '-l', path]]
    else:
        commands = [[c, f, path] for f in ('-u', '-uz') for c in ('fusermount3', 'fusermount')]
    for cmd in commands:
        if shutil.which(cmd[0]) and subprocess.run(cmd, capture_output=True).returncode == 0:
            return
    raise RuntimeError(f'cannot unmount {path}')


@contextlib.contextmanager
def mounted(command, source, where, note=None, timeout=60, env=None):
    """Runs `command source mountpoint`; note(seconds) of that. Afterwards waits for the daemon."""
    os.makedirs(where, exist_ok=True)
    r, w = os.pipe()                    # open as long as the daemon lives
    start = time.perf_counter()
    try:
        p = subprocess.run([*command, source, where], pass_fds=[w], stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=timeout,
                           env=os.environ | (env or {}) | {'HELD': f'/dev/fd/{w}'})  # else cartonfs closes it
    except subprocess.TimeoutExpired:
        if os.path.ismount(where):
            unmount(where)
        raise Skip(f'{command[0]}: no mount within {timeout} s') from None
    finally:
        os.close(w)
    seconds = time.perf_counter() - start
    try:
        if p.returncode or not os.path.ismount(where):
            raise Skip(f'{os.path.basename(command[0])}: does not mount it: '
                       f'{p.stderr.decode(errors="replace").strip()}')
        if note:
            note(seconds)
        yield where
    finally:
        if os.path.ismount(where):
            unmount(where)
        select.select([r], [], [], 20)
        os.close(r)


def peak_memory(where):
    """The most memory, in bytes, that the largest process of that mount has had."""
    peak = 0
    for pid in filter(str.isdigit, os.listdir('/proc')):
        with contextlib.suppress(OSError, StopIteration):
            with open(f'/proc/{pid}/cmdline', 'rb') as f:
                words = f.read().split(b'\0')
            if os.fsencode(where) in words:
                with open(f'/proc/{pid}/status') as f:
                    line = next(x for x in f if x.startswith('VmHWM'))
                peak = max(peak, int(line.split()[1]) << 10)
    return peak


# ---- what is timed ----

ends = None                             # when the reader of the moment is given up


@contextlib.contextmanager
def patience(name, seconds):
    """Within it, readers of this process that take longer raise Skip."""
    global ends
    ends = time.monotonic() + seconds
    try:
        yield
    except TimeoutError:
        raise Skip(f'{name}: given up after {seconds} s') from None
    finally:
        ends = None


def check_patience():
    if ends and time.monotonic() > ends:
        raise TimeoutError


def processes(n, work):
    """Runs work(i) in `n` processes at once. TimeoutError: one of them has failed, or lost its patience."""
    pids = []
    for i in range(n):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                work(i)
                status = 0
            finally:
                os._exit(status)
        pids.append(pid)
    if [os.waitpid(p, 0)[1] for p in pids] != [0] * n:
        raise TimeoutError


def timed(fn, *args, **kw):
    start = time.perf_counter()
    fn(*args, **kw)
    return time.perf_counter() - start


def verify(path):
    """Has a file verified and nothing else: O_DIRECT keeps its bytes out of the page cache."""
    os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))


def drain(fd):
    """Reads all of it, as cat does."""
    buf = bytearray(BUF)
    os.lseek(fd, 0, os.SEEK_SET)
    while os.readv(fd, [buf]):
        check_patience()


def read_file(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        drain(fd)
    finally:
        os.close(fd)


def open_and_read(path):
    """(seconds of open, seconds of reading)"""
    start = time.perf_counter()
    fd = os.open(path, os.O_RDONLY)
    opened = time.perf_counter()
    try:
        drain(fd)
    finally:
        os.close(fd)
    return opened - start, time.perf_counter() - opened


def hash_file(path):
    """sha256 in this thread, by the library that `openssl dgst` uses. A path or a descriptor."""
    sha, buf = hashlib.sha256(), bytearray(BUF)
    with open(path, 'rb', buffering=0, closefd=isinstance(path, str)) as f:
        while n := f.readinto(buf):
            sha.update(memoryview(buf)[:n])


def shell(command, *args, timeout=600):
    """Runs a shell command with $1 $2 …; its exit status is that of the last of a pipe."""
    p = subprocess.Popen(['sh', '-c', command, 'sh', *args], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    try:
        err = p.communicate(timeout=timeout)[1]
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        p.communicate()
        raise Skip(f'takes longer than {timeout} s') from None
    if p.returncode:
        raise RuntimeError(f'{command}: {err.decode(errors="replace").strip()}')


def pread_all(path, offsets, n):
    fd = os.open(path, os.O_RDONLY)
    try:
        for off in offsets:
            os.pread(fd, n, off)
            check_patience()
    finally:
        os.close(fd)


def touch_all(path, offsets):
    with open(path, 'rb') as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
        for off in offsets:
            m[off]
            check_patience()


def walk(top):
    """Lists and stats everything below."""
    todo = [top]
    while todo:
        with os.scandir(todo.pop()) as it:
            for e in it:
                e.stat(follow_symlinks=False)
                if e.is_dir(follow_symlinks=False):
                    todo.append(e.path)



@contextlib.contextmanager
def scratch(where):
    """A new directory that is removed afterwards; never through a mount that was left in it."""
    path = os.path.realpath(tempfile.mkdtemp(prefix='cartonfs-bench-', dir=where))
    try:
        yield path
    finally:
        with open('/proc/self/mountinfo') as f:
            points = [line.split()[4] for line in f]
        for m in reversed([m for m in points if m.startswith(path + '/')]):
            with contextlib.suppress(RuntimeError):
                unmount(m)
        if not any(os.path.ismount(os.path.join(path, d)) for d in os.listdir(path)):
            shutil.rmtree(path, ignore_errors=True)
