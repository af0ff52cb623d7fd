# SPDX-License-Identifier: Apache-2.0
"""
All at once, for longer: 16 processes read three mounts of one carton with a chunk index, in all ways that there
are. Meanwhile entries of the cache, which has no room for everything, are damaged and removed, copies are written
to while they are made, `cartonctl cache gc` and `verify` run, and readers are killed while they wait. One mount is
killed and mounted again. Two live all the time, of the file and of its URL, which is refreshed: their memory,
descriptors of each kind, threads and inotify watches must not grow.
"""
import contextlib
import errno
import hashlib
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import time
from collections import Counter
from multiprocessing import Process, RawArray
from pathlib import Path

import chunkindex
import harness
import soaking
from harness import CARTONCTL, SLOW, eventually, mountinfo, run
from origin import MIB, Cache, LinkedCarton, nginx_at
from zipwriter import INDEX

READERS = 16
WARM_UP = 0.25                          # of the time, before what lives is measured
DAMAGE_S, KILL_S, REFRESH_S = 0.5, 5.0, 5.0    # the mean time between two of them
FORGIVEN_S = 20 * SLOW                  # how long a file may give EIO after damage was noticed
TAMPER_S, TAMPER_WRITES = 0.2, 3000     # how long a copy is waited for, and how often a byte of it changes
HUNG_S = soaking.HUNG_S


# ---- the carton ----

def safetensors(rng):
    header, data = {}, b''
    for i in range(5):
        part = rng.randbytes(4 * 1000 * (i + 1) ** 3)
        header[f'layer.{i}'] = dict(dtype='F32', shape=[len(part) // 4],
                                    data_offsets=[len(data), len(data) + len(part)])
        data += part
    text = json.dumps(header).encode()
    return struct.pack('<Q', len(text)) + text + data


def pack(nginx, path):
    """Writes the carton; {path: bytes} of what is in it."""
    rng, c = random.Random(1), LinkedCarton(method='zstd')
    for method in ('stored', 'deflate', 'zstd'):
        for i in range(2):
            c.add(f'model/{method}-large{i}', rng.randbytes((5 + i) * MIB + i), method=method,
                  level=1)
        for i in range(10):
            data = (b'%d ' % i * 999 + rng.randbytes(3)) * rng.randrange(1, 60)
            c.add(f'model/{method}-small{i}', data, method=method)
    c.add('model/stored-huge', rng.randbytes(11 * MIB + 77), method='stored')
    c.add('model/weights.safetensors', safetensors(rng), method='stored')
    c.add('model/packed.safetensors', safetensors(rng), method='zstd', level=1)
    c.add('tensor_data/index.toml', INDEX)
    c.add('tensor_data/tensor_0.bin', struct.pack('<6f', *range(6)))
    c.add('tensor_data/tensor_1.toml', b'data = ["a", "b"]\n')
    c.symlink('misc/link', '../model/stored-large0')
    for i, size in enumerate([0, 1000, 300_000, MIB, 2 * MIB, 9 * MIB]):
        data = rng.randbytes(size)
        mirrors = [nginx.put(f'good/{i}', data),
                   nginx.put(f'lies/{i}', rng.randbytes(size)),
                   nginx.url('gone/x'), nginx.url('denied/x')]
        c.link(f'model/linked{i}', data, *rng.sample(mirrors, 4))
    c.add(chunkindex.PATH, chunkindex.index(*[d for d in c.files().values() if isinstance(d, bytes) and len(d) > MIB]),
          method='stored')
    nginx.put('m.carton', c.write(path).read_bytes())
    return c.files()


# ---- what all processes share ----

LIVES, KILLED, REMOTE = range(3)
MOUNTS = 3

# A mount of a URL has its index open until it ends: once the copy in the cache is damaged, it stays so.
KEPT_OPEN = {chunkindex.PATH}

COUNTS = ['reads', 'bytes', 'hashes', 'forgiven', 'killed', 'wrong', 'unexpected', 'busy_since']
ACTIONS = {}


def action(fn):
    ACTIONS[fn.__name__] = fn
    COUNTS.append(fn.__name__)
    return fn


class Shared:
    """Counters, a row for each reader, and what the main process does; each has one writer."""

    def __init__(self, content):
        self.content, self.paths = content, sorted(content)
        self.rows = None
        self.epoch = RawArray('q', MOUNTS)      # of each mount; odd while it is being killed and mounted
        # when the cached content of a path was damaged, and when each mount has noticed
        self.damaged = RawArray('d', len(self.paths))
        self.noticed = [RawArray('d', len(self.paths)) for _ in range(MOUNTS)]
        self.paused, self.ending = RawArray('q', 1), RawArray('q', 1)
        self.idle = RawArray('q', READERS)

    def total(self, name):
        n = COUNTS.index(name)
        return sum(row[n] for row in self.rows)


class Reader:
    def __init__(self, shared, number, roots, problems):
        self.s, self.row, self.number = shared, shared.rows[number], number
        self.mount = number % MOUNTS
        self.root, self.problems = roots[self.mount], problems
        self.rng = random.Random(os.getpid())

    def count(self, name, n=1):
        self.row[COUNTS.index(name)] += n

    def note(self, kind, text):
        self.count(kind)
        os.write(self.problems, f'{kind}: {text}\n'.encode())

    def run(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        names, busy = list(ACTIONS), COUNTS.index('busy_since')
        while not self.s.ending[0]:
            if self.s.paused[0] or self.s.epoch[self.mount] % 2:
                self.s.idle[self.number] = 1
                time.sleep(0.01)
                continue
            self.s.idle[self.number] = 0
            self.row[busy] = int(time.monotonic())
            self.one(self.rng.choice(names), self.rng.choice(self.s.paths))
            self.row[busy] = 0
        self.s.idle[self.number] = 1

    def one(self, name, path):
        epoch = self.s.epoch[self.mount]
        self.count(name)
        try:
            ACTIONS[name](self, os.path.join(self.root, path), self.s.content[path])
        except AssertionError as e:
            self.note('wrong', f'{name} {path}: {e}')
        except OSError as e:
            if self.s.epoch[self.mount] != epoch or epoch % 2:
                self.count('forgiven')  # its mount was killed
            # EACCES: the good URL is blamed for a copy that was written to, and another one answers 403
            elif e.errno in (errno.EIO, errno.EACCES) and self.was_damaged(self.s.paths.index(path)):
                self.count('forgiven')
            else:
                self.note('unexpected', f'{name} {path}: {errno.errorcode.get(e.errno)} {e}')

    def was_damaged(self, i):
        """Once noticed, which may be late, content has to be made again before long."""
        noticed, now = self.s.noticed[self.mount], time.monotonic()
        if self.mount == REMOTE and self.s.paths[i] in KEPT_OPEN:
            return self.s.damaged[i] > 0
        if self.s.damaged[i] > noticed[i]:
            noticed[i] = now
        return now - noticed[i] < FORGIVEN_S and noticed[i] > 0

    @contextlib.contextmanager
    def opened(self, path, flags=0):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
        try:
            if self.rng.random() < 0.7:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            yield fd
        finally:
            os.close(fd)

    def compare(self, got, data, off):
        self.count('reads')
        self.count('bytes', len(got))
        if got != data[off:off + len(got)]:
            raise AssertionError(f'other bytes at {off}, {len(got)}')

    def pread(self, fd, n, off, data):
        """Fewer bytes than asked for: the end, or an error, which the next try has."""
        got = os.pread(fd, n, off)
        self.compare(got, data, off)
        if len(got) < min(n, max(len(data) - off, 0)):
            if not got:
                raise AssertionError(f'ends at {off} of {len(data)}')
            self.pread(fd, n - len(got), off + len(got), data)


# ---- the ways to read ----

@action
def whole(r, path, data):
    sha, n = hashlib.sha256(), 0
    with r.opened(path) as fd:
        while part := os.read(fd, 1 << r.rng.randrange(12, 21)):
            r.count('reads')
            sha.update(part)
            n += len(part)
    r.count('hashes')
    r.count('bytes', n)
    if sha.digest() != hashlib.sha256(data).digest():
        raise AssertionError(f'another hash, of {n} bytes')


@action
def small_reads(r, path, data):
    with r.opened(path) as fd:
        for _ in range(50):
            off = r.rng.randrange(len(data) + 1)
            r.pread(fd, r.rng.choice([1, 10, 512, 4096, 5000, 70_000]), off, data)


@action
def direct(r, path, data):
    """O_DIRECT, whose buffers and offsets are those of pages."""
    with r.opened(path, os.O_DIRECT) as fd, mmap.mmap(-1, 256 << 10) as buf:
        for _ in range(5):
            off = r.rng.randrange(len(data) // 4096 + 1) * 4096
            n = os.preadv(fd, [buf], off)
            r.compare(buf[:n], data, off)
            if not n and off < len(data):
                raise AssertionError(f'ends at {off} of {len(data)}')


@action
def mapped(r, path, data):
    """In a child: an error is SIGBUS."""
    def child():
        with r.opened(path) as fd:
            if os.fstat(fd).st_size == 0:
                return 0 if not data else 1
            with mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ) as m:
                return 0 if m[:] == data else 1
    status = in_child(child)
    r.count('reads')
    if status == 1:
        raise AssertionError('other bytes in a mapping')
    if status == -signal.SIGBUS:
        raise OSError(errno.EIO, 'SIGBUS')
    if status:
        raise OSError(status - 1 if status > 0 else errno.EINTR, f'status {status}')
    r.count('bytes', len(data))


def in_child(fn):
    """0 or 1 as fn() has it, errno + 1 when that fails, negative: a signal."""
    pid = os.fork()
    if pid == 0:
        status = 254
        try:
            status = fn()
        except OSError as e:
            status = e.errno + 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@action
def killed(r, path, data):
    """A child that opens and reads, and is killed somewhere in between."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(OSError):
            with r.opened(path) as fd:
                while os.read(fd, 1 << 16):
                    pass
        os._exit(0)
    time.sleep(r.rng.random() ** 3 * 0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@action
def looked_up(r, path, data):
    st = os.stat(path)
    if st.st_size not in (len(data), 0):        # 0: of a link whose size is not known yet
        raise AssertionError(f'{st.st_size} bytes instead of {len(data)}')
    if os.path.basename(path) not in os.listdir(os.path.dirname(path)):
        raise AssertionError('is not listed')
    os.listxattr(path)


# ---- the mounts ----

COPIES = 'objects', 'partials', 'lock', 'unnamed'


def kind_of(target):
    if target.endswith(' (deleted)'):
        return 'unnamed'
    for part in COPIES:
        if f'/v1/{part}/' in target + '/':
            return part
    return target if target.startswith(('/dev/', 'anon_inode:')) else 'other'


class Measured(soaking.Mounted):
    def measure(self):
        """VmRSS in MiB, descriptors that are not sockets, threads."""
        proc = Path(f'/proc/{self.process.pid}')
        status = dict(line.split(':\t', 1) for line in (proc / 'status').read_text().splitlines()
                      if ':\t' in line)
        kinds = self.descriptors()
        return (int(status['VmRSS'].split()[0]) / 1024, sum(kinds.values()), int(status['Threads']),
                kinds, int(status['RssAnon'].split()[0]) / 1024)

    def descriptors(self):
        """How many there are of each kind but sockets, and inotify watches; of an ordinary user only root can see them."""
        proc, kinds = Path(f'/proc/{self.process.pid}'), Counter()
        for fd in os.listdir(proc / 'fd') if harness.IS_ROOT else ():
            with contextlib.suppress(OSError):
                to = os.readlink(proc / 'fd' / fd)
                if 'inotify' in to:
                    kinds['watches'] += (proc / 'fdinfo' / fd).read_text().count('inotify wd')
                if not to.startswith('socket:'):
                    kinds[kind_of(to)] += 1
        return kinds


def read_all(root, paths):
    """All files, one after the other, until each can be read: {path: bytes}."""
    out = {}
    for path in paths:
        def content():
            with contextlib.suppress(OSError):
                out[path] = harness.read_file(os.path.join(root, path))
            return path in out
        eventually(f'{path} can be read', content, 60)
    return out


# ---- disturbances ----

class Damage:
    """Does things to the cache that a disk, a user or another program could do."""

    def __init__(self, cache, shared):
        self.cache, self.s, self.done, self.runs = cache, shared, 0, []
        self.effect, self.deck = Counter(), []
        self.by_hash = {}
        for i, path in enumerate(shared.paths):
            self.by_hash.setdefault(hashlib.sha256(shared.content[path]).hexdigest(), []).append(i)

    KINDS = ['flip', 'cut', 'remove', 'fifo', 'directory', 'partial', 'tamper', 'gc', 'verify']

    def one(self):
        """The next kind of damage; each comes in turn, and again at once if it changed nothing."""
        self.reap()
        if not self.deck:
            self.deck = random.sample(self.KINDS, len(self.KINDS))
        kind = self.deck.pop()
        n = self.do(kind)
        self.effect[kind] += n
        self.done += n
        if not n:
            self.deck.append(kind)

    def is_done(self):
        """Was each kind in effect?"""
        return all(self.effect[kind] for kind in self.KINDS)

    def do(self, kind):
        """How much was changed; of a command, that it has begun."""
        objects = [*self.cache.objects().items(), *self.cache.seals().items()]
        if kind in ('gc', 'verify'):
            self.runs.append(subprocess.Popen(
                [CARTONCTL, 'cache', kind, self.cache.flag], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=harness.environment()))
            return 1
        if kind == 'tamper':
            self.copies_suffer()
            tampered = self.tamper()
            self.copies_suffer()
            return tampered
        if kind == 'partial':
            # chunks that were verified have gone, and a copy that is being written gets a hole
            self.copies_suffer()
            return sum(self.cut(p) for p in self.cache.path.glob('v1/partials/*'))
        with contextlib.suppress(OSError, IndexError):
            self.to(kind, *random.choice(objects))
            return 1
        return 0

    @staticmethod
    def cut(path):
        with contextlib.suppress(OSError):
            size = os.stat(path).st_size
            os.truncate(path, random.randrange(max(size, 1)))
            return int(size > 0)
        return 0

    def copies_suffer(self):
        """Whatever may be in a partial, or was made of it."""
        for i, path in enumerate(self.s.paths):
            if len(self.s.content[path]) > MIB // 8 or path.startswith('views/'):
                self.s.damaged[i] = time.monotonic()

    def tamper(self):
        """Changes a byte of a copy that is being made, to and fro; leaves it right or wrong. Was there one?"""
        end = time.monotonic() + TAMPER_S
        while time.monotonic() < end:
            with contextlib.suppress(OSError, IndexError, ValueError):       # there is none, or it is empty
                copies = [p for p in self.cache.path.glob('v1/partials/*') if p.suffix != '.v']
                with open(random.choice(copies), 'r+b', buffering=0) as f:
                    at = random.randrange(os.fstat(f.fileno()).st_size)
                    right = os.pread(f.fileno(), 1, at)
                    wrong = bytes([right[0] ^ 0x40])
                    for _ in range(TAMPER_WRITES):
                        os.pwrite(f.fileno(), wrong, at)
                        os.pwrite(f.fileno(), right, at)
                    os.pwrite(f.fileno(), random.choice([wrong, right]), at)
                    return 1
        return 0

    def to(self, kind, name, path):
        # views and files that are made of this content; of views all, as they read several
        for i, p in enumerate(self.s.paths):
            if i in self.by_hash.get(name, ()) or p.startswith('views/'):
                self.s.damaged[i] = time.monotonic()
        if kind in ('remove', 'fifo', 'directory'):
            path.unlink()
        if kind == 'fifo':
            os.mkfifo(path)
        elif kind == 'directory':
            path.mkdir()
        elif kind in ('flip', 'cut'):
            path.chmod(0o600)
            size = path.stat().st_size
            with open(path, 'r+b') as f:
                if kind == 'cut':
                    f.truncate(random.randrange(size + 1))
                else:
                    f.seek(random.randrange(max(size, 1)))
                    f.write(b'DAMAGE')
            path.chmod(0o400)

    def reap(self, wait=False):
        for p in self.runs:
            if wait:
                p.wait(60 * SLOW)
        self.runs = [p for p in self.runs if p.poll() is None]


# ---- the run ----

class Mixed:
    """All at once: each way to read, each kind of damage, kills, refreshes; memory and descriptors do not grow."""
    share = 6

    def __init__(self, name, where, seed):
        random.seed(f'{seed}/{name}')
        self.name, self.where, self.checks, self.faults = name, where, [], []
        self.where.mkdir()
        self.cache = Cache(where / 'cache')
        self.mounts, self.kills, self.refreshes = [], 0, 0
        self.samples = {LIVES: [], REMOTE: []}

    def run(self, seconds):
        self.seconds = seconds
        with nginx_at(self.where / 'nginx') as nginx:
            try:
                self.start(nginx)
                self.soak()
                self.finish()
            finally:
                self.clean()

    def check(self, what, ok, more=''):
        self.checks.append(bool(ok))
        if not ok:
            self.faults.append(f'{what}: {more}')

    # -- what is printed --

    def verdict(self):
        if not self.checks:
            self.check('it runs to its end', False)
        if reports := harness.take_reports():
            self.faults.append(reports[:4000])
        return self.faults

    def numbers(self):
        t = self.shared.total if hasattr(self, 'shared') else lambda name: 0
        return (f'{t("reads")} reads, {t("bytes") >> 20} MiB, {t("forgiven")} errors, {t("wrong")} wrong, '
                f'{self.damage.done if hasattr(self, "damage") else 0} changes in effect, {t("hashes")} hashes, '
                f'{self.kills} mounts and {t("killed")} readers killed, {self.refreshes} refreshes')

    def details(self):
        path = self.where / 'problems'
        return path.read_text().splitlines()[:soaking.SHOWN] if path.exists() else []

    # -- the run --

    def learn_views(self):
        """What is generated is read once, before anything goes wrong; it must not change."""
        root = self.mounts[0].where
        views = [os.path.relpath(os.path.join(d, f), root)
                 for d, _, files in os.walk(f'{root}/views') for f in files]
        assert len(views) > 15, views
        packed = read_all(root, self.content)
        assert packed == self.content, 'wrong before anything was done'
        self.content |= read_all(root, views)

    def start(self, nginx):
        self.content = pack(nginx, self.where / 'm.carton')
        options = ['-o', f'private_links,cache_dir={self.cache.path},cache_size=32M']
        self.url = nginx.url('m.carton')
        for name, source in ('lives', self.where / 'm.carton'), ('killed', self.where / 'm.carton'), ('remote', self.url):
            (self.where / name).mkdir()
            self.mounts.append(Measured(source, self.where / name, options, self.where / f'{name}.log'))
        for m in self.mounts:
            assert m.start(), f'{m.where} is not mounted'
        self.learn_views()
        self.shared = Shared(self.content)
        self.shared.rows = [RawArray('q', len(COUNTS)) for _ in range(READERS)]
        self.problems = os.open(self.where / 'problems', os.O_WRONLY | os.O_CREAT | os.O_APPEND,
                                0o600)
        roots = [m.where for m in self.mounts]
        self.readers = [Process(target=Reader(self.shared, i, roots, self.problems).run, daemon=True)
                        for i in range(READERS)]
        for p in self.readers:
            p.start()
        self.damage = Damage(self.cache, self.shared)

    def kill_one(self):
        """The second mount is killed, and mounted again over what is left of it."""
        self.shared.epoch[1] += 1
        self.mounts[1].kill()
        self.mounts[1].start()
        self.kills += 1
        self.shared.epoch[1] += 1

    def refresh(self):
        """The same carton, with another signature."""
        p = run(CARTONCTL, 'refresh', self.mounts[REMOTE].where, f'{self.url}?signature={random.random()}',
                env=harness.environment(), timeout=60)
        assert p.returncode == 0, p.stderr
        self.refreshes += 1

    def hung(self):
        # each is read once: it may become 0 meanwhile
        now, busy = time.monotonic(), [row[COUNTS.index('busy_since')] for row in self.shared.rows]
        return [i for i, since in enumerate(busy) if since and now - since > HUNG_S]

    def at_rest(self):
        """What the mounts that live have with nobody reading, after all was read once."""
        self.shared.paused[0] = 1
        eventually('readers pause', lambda: all(self.shared.idle), HUNG_S / SLOW)
        for i in self.samples:
            read_all(self.mounts[i].where, set(self.content) - (KEPT_OPEN if i == REMOTE else set()))
        rest = {i: self.mounts[i].measure() for i in self.samples}
        self.shared.paused[0] = 0
        return rest

    def soak(self):
        begin = time.monotonic()
        damage, kill, refresh, sample = 0.0, KILL_S, REFRESH_S, 0.0
        self.warm = None
        while not self.hung() and ((now := time.monotonic() - begin) < self.seconds or (
                now < self.seconds + soaking.PATIENCE_S and not self.damage.is_done())):
            if not self.warm and now > self.seconds * WARM_UP:
                self.warm = self.at_rest()
            if now > damage:
                self.damage.one()
                damage = now + random.uniform(0, 2 * DAMAGE_S)
            if now > kill:
                self.kill_one()
                kill = now + random.uniform(0, 2 * KILL_S)
            if now > refresh:
                self.refresh()
                refresh = now + random.uniform(0, 2 * REFRESH_S)
            if self.warm and now > sample:
                for i, samples in self.samples.items():
                    samples.append(self.mounts[i].measure()[0])
                sample = now + 1
            if any(self.mounts[i].process.poll() is not None for i in self.samples):
                break
            time.sleep(0.05)

    def finish(self):
        lives, t = [self.mounts[i].process for i in self.samples], self.shared.total
        hung = self.hung()
        self.check('no reader hangs', not hung, [list(self.shared.rows[i]) for i in hung] or '')
        alive = all(p.poll() is None for p in lives)
        self.check('the mounts that live are alive', alive, '' if alive else [p.poll() for p in lives])
        rest = self.at_rest() if alive and not hung else None
        self.shared.ending[0] = 1
        for p in self.readers:
            p.join(HUNG_S)
            p.kill()
        self.damage.reap(True)
        self.check('no wrong byte', t('wrong') == 0, t('wrong') or '')
        self.check('no unexpected error', t('unexpected') == 0, t('unexpected') or '')
        self.check('every way to read was tried', all(t(a) > 0 for a in ACTIONS),
                   ', '.join(f'{a} {t(a)}' for a in ACTIONS))
        self.check('each kind of damage was in effect', self.damage.is_done(),
                   dict(self.damage.effect))
        self.check('every reader ended well', all(p.exitcode == 0 for p in self.readers))
        for i in self.samples if self.warm and rest else ():
            self.flat(os.path.basename(self.mounts[i].where), self.samples[i], self.warm[i], rest[i])
        self.check('all mounts end with 0', [m.stop() for m in self.mounts] == [0] * MOUNTS)
        self.check('no process and no mount is left', not any(
            harness.daemons(m.where) or mountinfo(m.where) for m in self.mounts))
        run(CARTONCTL, 'cache', 'gc', self.cache.flag, timeout=60)
        run(CARTONCTL, 'cache', 'verify', self.cache.flag, timeout=60)
        self.check('the cache is mended by `cartonctl cache verify`', self.cache.wrong() == [])

    def flat(self, name, samples, warm, rest):
        half = len(samples) // 2
        first, second = (max(x, default=0) for x in (samples[:half], samples[half:]))
        self.check(f'{name}: memory is flat', second <= first * 1.1 + 8 and rest[0] <= warm[0] * 1.1 + 8,
                   f'at most {first:.0f} MiB after the warm-up, then {second:.0f}; '
                   f'at rest {warm[0]:.0f}, then {rest[0]:.0f}, of which anonymous {warm[4]:.0f}, then {rest[4]:.0f}')
        # what is large and not stored in the carton has one for its copy, and up to four while it is fetched
        large = sum(len(data) > MIB for data in self.content.values())
        copies, others = zip(*((sum(n for k, n in kinds.items() if k in COPIES),
                                Counter({k: n for k, n in kinds.items() if k not in COPIES}))
                               for kinds in (warm[3], rest[3])))
        self.check(f'{name}: descriptors and inotify watches are flat',
                   copies[1] <= max(copies[0] + 2, 4 * large) and others[1].total() <= others[0].total() + 2,
                   f'{dict(warm[3])}, then {dict(rest[3])}')
        # the pools of libfuse and of the workers grow up to their limits, when much comes at once
        self.check(f'{name}: threads are flat', rest[2] <= warm[2] + 10, f'{warm[2]}, then {rest[2]}')

    def clean(self):
        for p in getattr(self, 'readers', []):
            p.kill()
        for m in self.mounts:
            m.clean()


KINDS = {'mixed': Mixed}
