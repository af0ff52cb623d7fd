# SPDX-License-Identifier: Apache-2.0
"""
What all kinds of soak share.

A Kind has files whose right bytes are known, and mounts that show them. In each of many short rounds it mounts
them, readers read past the page cache and compare what they get, and a changer does what the kind is named for.
A read that fails is counted; a wrong byte, an operation that does not end, and a kind whose changes were never in
effect while somebody read are failures.

The readers and the changer are processes, which share counters with this one; each counter has one writer.
"""
import contextlib
import errno
import json
import mmap
import os
import random
import shutil
import signal
import subprocess
import time
import traceback
from ctypes import c_int64
from multiprocessing import get_context
from multiprocessing.sharedctypes import RawArray
from pathlib import Path

import harness
from harness import CARTONFS, SLOW, eventually, mountinfo
from origin import MIB, Cache

COUNTS = ['reads', 'bytes', 'errors', 'forgiven', 'wrong', 'unexpected', 'effect', 'refused', 'busy_since']
HUNG_S = 90 * SLOW              # no single action takes so long
STEP = 16 << 10                 # a byte is changed in each part of a file that is so long
HOLD_S = 0.05, 1.0              # for how long
PATIENCE_S = 60 * SLOW          # how much longer a kind may run that has seen nothing
SHOWN = 5                       # problems of one kind that are printed
PAGE = 4096


def bytes_of(name, size):
    """The right bytes of a file, the same in each run."""
    return random.Random(str(name)).randbytes(size)


def other_bytes(data):
    """Wrong bytes of the same size: each of them differs."""
    return (int.from_bytes(data, 'little') ^ int.from_bytes(b'\x40' * len(data), 'little')).to_bytes(len(data), 'little')


# ---- mounts ----

class Mounted:
    """cartonfs in the foreground; can be killed and started again."""

    def __init__(self, source, where, options, log):
        self.source, self.options, self.where, self.log, self.process = source, options, str(where), log, None

    def start(self):
        """False: it refused the source."""
        cmd = [CARTONFS, '-f', *self.options, str(self.source), self.where]
        with open(self.log, 'ab') as log:
            self.process = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=harness.environment())
        eventually('a mount or an end', lambda: self.process.poll() is not None or self.serves(), 90)
        return self.process.poll() is None

    def serves(self):
        """Opens a file: of a killed mount the kernel still knows names, but opens none."""
        with contextlib.suppress(OSError):
            os.close(os.open(f'{self.where}/carton.toml', os.O_RDONLY | os.O_CLOEXEC))
            return True
        # what is served may be damaged; .cartonfs is generated
        return mountinfo(self.where) is not None and os.path.exists(f'{self.where}/.cartonfs')

    def kill(self):
        """And waits for the mounter, which has /dev/fuse open as well."""
        self.process.kill()
        self.process.wait()
        eventually('all of it has ended', lambda: not harness.daemons(self.where))

    def stop(self):
        """The exit status, after an unmount; or why there is none. Others may look at all mounts of the machine."""
        with contextlib.suppress(AssertionError):
            eventually('it is unmounted', lambda: harness.unmount(self.where).returncode == 0)
        if mountinfo(self.where):
            return 'is busy'
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(30 * SLOW)
        return 'does not end'

    def clean(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        harness.abandon(self.where, [])


# ---- a kind ----

class Kind:
    """One way for bytes to go wrong. A subclass has what differs."""
    n_mounts, n_readers = 2, 3
    round_s = 2.0               # of reading, on average
    errors = {'EIO'}            # that a read may end with
    hurts = True                # some read must end so
    may_refuse = False          # a mount may refuse what it is given
    keep_cache = False          # from one round to the next
    share = 1                   # of the time, beside others
    options = ('-o', 'private_links,timeout=5')

    def __init__(self, name, where, seed):
        self.name, self.where, self.seed = name, Path(where), f'{seed}/{name}'
        self.where.mkdir()
        self.cache = Cache(self.where / 'cache')
        self.content = {}       # {path: right bytes} of what is read
        self.rows = [RawArray(c_int64, len(COUNTS)) for _ in range(self.n_readers + 2)]
        # going: may readers read; epoch of each mount: odd while it is not there
        self.going, self.ending = RawArray(c_int64, 1), RawArray(c_int64, 1)
        self.epoch, self.idle = RawArray(c_int64, self.n_mounts), RawArray(c_int64, self.n_readers + 1)
        self.epoch[:] = [1] * self.n_mounts
        self.rounds, self.faults = 0, []
        self.row = self.rows[-1]                # of this process
        self.problems = os.open(self.where / 'problems', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.mounts = []

    # -- what a subclass has --

    def setup(self):
        """Makes the source and `content`. Called once, before any process is forked."""

    def begin(self, rng):
        """Before each round, when nothing is mounted."""

    def source(self, i):
        return self.where / 'm.carton'

    def mount_options(self, i):
        return [*self.options, *self.cache.options]

    def change(self, rng):
        """One change, for as long as it lasts. How many were in effect while somebody read."""
        time.sleep(0.05)
        return 0

    def between(self, rng):
        """Called again and again in a round, by the process that has the mounts."""

    def is_evil(self, rng, name, first, n):
        """Does the server answer a request for these bytes wrong?"""
        return False

    def look(self, i, path):
        """Called by a reader before each read."""

    def may_fail(self, name, i, path):
        """May a read fail with this error?"""
        return name in self.errors

    def right(self, i, path, off, got):
        """May a reader get these bytes?"""
        return got == self.content[path][off:off + len(got)]

    def clean(self):
        pass

    # -- counters --

    def total(self, name):
        n = COUNTS.index(name)
        return sum(row[n] for row in self.rows)

    def count(self, name, n=1):
        self.row[COUNTS.index(name)] += n

    def note(self, what, text):
        self.count(what)
        os.write(self.problems, f'{what}: {text}\n'.encode(errors='replace')[:1000])

    def read_during(self, begin):
        """Has a read ended since total('reads') was `begin`?"""
        return self.total('reads') > begin

    # -- the run --

    def run(self, seconds):
        """Reads and changes for so long, in rounds."""
        self.setup()
        for i in range(self.n_mounts):
            (self.where / f'mnt{i}').mkdir()
            self.mounts.append(Mounted(self.source(i), self.where / f'mnt{i}', self.mount_options(i),
                                       self.where / f'mnt{i}.log'))
        fork, begin = get_context('fork').Process, time.monotonic()
        self.workers = [fork(target=work, args=(self, i), daemon=True) for i in range(self.n_readers + 1)]
        for p in self.workers:
            p.start()
        rng = random.Random(f'{self.seed}/rounds')
        try:
            while not self.faults and (time.monotonic() - begin < seconds or (
                    self.is_blind() and time.monotonic() - begin < seconds + PATIENCE_S)):
                self.round(rng, rng.uniform(0.5, 1.5) * self.round_s)
            self.ending[0] = 1
            self.end_workers()
        finally:
            for p in self.workers:
                p.kill()
            for m in self.mounts:
                m.clean()
            self.clean()

    def round(self, rng, seconds):
        if not self.keep_cache:
            shutil.rmtree(self.cache.path, ignore_errors=True)
        self.begin(rng)
        self.rounds += 1
        up = [i for i in range(self.n_mounts) if self.start(i)]
        if up:
            self.going[0] = 1
            end = time.monotonic() + seconds
            while time.monotonic() < end and not self.hung() and not self.died(up):
                self.between(rng)
                time.sleep(0.01)
            self.pause()
        # what the last one leaves in the cache, others find
        for i in rng.sample(up, len(up)):
            self.stop(i)

    def start(self, i):
        m = self.mounts[i]
        m.source, m.options = self.source(i), self.mount_options(i)
        if m.start():
            self.epoch[i] += 1
            return True
        self.count('refused')
        if not self.may_refuse or m.process.returncode < 0:
            self.faults.append(f'no mount: {m.process.returncode}, {self.log(i)}')
        return False

    def stop(self, i):
        self.epoch[i] += 1
        if not self.faults and (status := self.mounts[i].stop()) != 0:
            self.faults.append(f'a daemon ends with {status}: {self.log(i)}')
        self.mounts[i].clean()

    def log(self, i):
        return Path(self.mounts[i].log).read_text(errors='replace')[-1500:]

    def died(self, up):
        for i in up:
            if self.mounts[i].process.poll() is not None and self.epoch[i] % 2 == 0:
                self.faults.append(f'a daemon died: {self.mounts[i].process.returncode}, {self.log(i)}')
        return bool(self.faults)

    def hung(self):
        # each is read once: it may become 0 meanwhile
        now, busy = time.monotonic(), [row[COUNTS.index('busy_since')] for row in self.rows]
        late = [i for i, since in enumerate(busy) if since and now - since > HUNG_S]
        if late:
            self.faults.append(f'processes {late} hang: {self.total("reads")} reads')
        return late

    def pause(self):
        self.going[0] = 0
        while not all(self.idle) and not self.hung():
            if any(not p.is_alive() for p in self.workers):
                self.faults.append('a process of the soak ended')
                return
            time.sleep(0.002)

    def end_workers(self):
        for p in self.workers:
            p.join(HUNG_S)
            if p.exitcode != 0:
                self.faults.append(f'a process of the soak ends with {p.exitcode}')

    # -- the result --

    def is_blind(self):
        """Has nobody read, or nothing changed, or no reader met it?"""
        t = self.total
        return t('reads') == 0 or t('effect') == 0 or (self.hurts and t('errors') + t('wrong') == 0)

    def verdict(self):
        """What is wrong, as words; [] if nothing is."""
        words, t = list(self.faults), self.total
        if t('wrong'):
            words.append(f'{t("wrong")} reads got a wrong byte')
        if t('unexpected'):
            words.append(f'{t("unexpected")} errors that must not be')
        if self.is_blind():
            words.append('saw nothing')
        if reports := harness.take_reports():
            words.append(reports[:4000])
        if any(mountinfo(m.where) or harness.daemons(m.where) for m in self.mounts):
            words.append('leaves a mount')
        return words

    def numbers(self):
        t = self.total
        return (f'{t("reads")} reads, {t("bytes") >> 20} MiB, {t("errors")} errors, {t("wrong")} wrong, '
                f'{t("effect")} changes in effect, {self.rounds} rounds'
                + (f', {t("refused")} mounts refused' if t('refused') else '')
                + (f', {t("forgiven")} errors of killed mounts' if t('forgiven') else ''))

    def details(self):
        os.close(self.problems)
        return (self.where / 'problems').read_text().splitlines()[:SHOWN]


# ---- the processes ----

def work(kind, i):
    """The last one is the changer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    kind.row = kind.rows[i]
    rng = random.Random(f'{kind.seed}/{i}')
    one = Reader(kind, rng).one if i < kind.n_readers else lambda: kind.count('effect', kind.change(rng))
    busy, parent = COUNTS.index('busy_since'), os.getppid()
    try:
        while not kind.ending[0]:
            # first: who sees that nobody reads knows that nobody begins
            kind.idle[i] = 0
            if kind.going[0]:
                kind.row[busy] = int(time.monotonic())
                one()
                kind.row[busy] = 0
                continue
            kind.idle[i] = 1
            assert os.getppid() == parent
            time.sleep(0.002)
    except BaseException:       # noqa: B902: the parent sees it by the exit status
        os.write(kind.problems, traceback.format_exc()[-1500:].encode())
        os._exit(3)
    os._exit(0)


class Reader:
    """Opens files of all mounts, reads parts of them past the page cache, and compares."""

    def __init__(self, kind, rng):
        self.kind, self.rng, self.buffer = kind, rng, mmap.mmap(-1, MIB)
        self.paths = sorted(kind.content)

    def one(self):
        i, path = self.rng.randrange(self.kind.n_mounts), self.rng.choice(self.paths)
        epoch = self.kind.epoch[i]
        if epoch % 2:
            return
        try:
            self.read_some(i, path)
        except OSError as e:
            name = errno.errorcode.get(e.errno)
            if self.kind.epoch[i] != epoch:
                self.kind.count('forgiven')     # its mount was killed
            elif self.kind.may_fail(name, i, path):
                self.kind.count('errors')
            else:
                self.kind.note('unexpected', f'{name} {self.kind.mounts[i].where}/{path}')

    def read_some(self, i, path):
        direct = self.rng.random() < 0.5
        fd = os.open(f'{self.kind.mounts[i].where}/{path}', os.O_RDONLY | os.O_CLOEXEC | (direct and os.O_DIRECT))
        try:
            size, data = os.fstat(fd).st_size, self.kind.content[path]
            if size != len(data):
                self.kind.note('wrong', f'{path} has {size} bytes instead of {len(data)}')
            for _ in range(self.rng.choice([1, 5, 20])):
                self.kind.look(i, path)
                (self.direct if direct else self.dropped)(i, fd, path, data)
        finally:
            os.close(fd)

    def direct(self, i, fd, path, data):
        """O_DIRECT, whose buffers and offsets are those of pages."""
        off = self.rng.randrange(len(data) // PAGE + 1) * PAGE
        n = self.rng.choice([PAGE, STEP, 64 << 10, MIB])
        got = os.preadv(fd, [memoryview(self.buffer)[:n]], off)
        self.compare(i, path, off, self.buffer[:got], min(n, len(data) - off))

    def dropped(self, i, fd, path, data):
        off, n = self.rng.randrange(len(data)), self.rng.choice([1, 1000, PAGE, STEP, 64 << 10, 256 << 10])
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        self.compare(i, path, off, os.pread(fd, n, off), min(n, len(data) - off))

    def compare(self, i, path, off, got, n):
        """Less than was asked for may be what the kernel had before an error, but not nothing."""
        self.kind.count('reads')
        self.kind.count('bytes', len(got))
        if not self.kind.right(i, path, off, got) or (n and not got) or len(got) > n:
            self.kind.note('wrong', f'{path} of {self.kind.mounts[i].where}: {len(got)} bytes at {off}')


# ---- what several kinds do ----

@contextlib.contextmanager
def writable(path):
    """A descriptor of a file that may have a mode of 0400, which only root can write to."""
    mode = os.stat(path, follow_symlinks=False).st_mode
    os.chmod(path, 0o600)
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fchmod(fd, mode & 0o777)
        yield fd
    finally:
        os.close(fd)


def tamper(kind, rng, path, at, n, for_good=0.1, hold=HOLD_S):
    """
    Changes a byte in each STEP of [at, at + n) of a file. 1 if it was so while somebody read: the bytes still
    were wrong at the end, and the file was in use.
    """
    with writable(path) as fd:
        spots = range(at + rng.randrange(min(STEP, n)), at + n, STEP)
        right = {}
        for off in spots:
            byte = os.pread(fd, 1, off)
            if byte:
                right[off] = byte
                os.pwrite(fd, bytes([byte[0] ^ 0x40]), off)
        begin = kind.total('reads')
        time.sleep(rng.uniform(*hold))
        still = [off for off, byte in right.items() if os.pread(fd, 1, off) == bytes([byte[0] ^ 0x40])]
        if rng.random() >= for_good:
            for off in still:
                os.pwrite(fd, right[off], off)
        return int(bool(still) and kind.read_during(begin))


def state(path):
    return os.getxattr(path, 'user.carton.state').decode()


def status(kind, i):
    with open(f'{kind.mounts[i].where}/.cartonfs/status.json', 'rb') as f:
        return json.load(f)
