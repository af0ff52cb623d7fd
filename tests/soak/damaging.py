# SPDX-License-Identifier: Apache-2.0
"""Kinds that write to files: a byte in each 16 KiB of a whole file, for a part of a second or for good."""
import contextlib
import os
import random
import shutil
import time

import chunkindex
import harness
from origin import MIB, LinkedCarton, digest
from soaking import Kind, bytes_of, other_bytes, tamper
from soakserver import Origin

SPIN_S = 0.002                  # between two looks at what there is


class Stored(Kind):
    """A local carton whose files are stored: they are read in place, and all of each is hashed at its open."""
    method, sizes, index = 'stored', [300_000, MIB + 1, 2 * MIB, 3 * MIB + 5, 3 * MIB], False
    more_options = ('-o', 'seals=off')

    def setup(self):
        self.carton = LinkedCarton(method=self.method)
        for i, size in enumerate(self.sizes):
            path = f'model/{i}'
            self.content[path] = bytes_of((self.name, i), size)
            self.add(i, path, self.content[path])
        if self.index:
            self.carton.add(chunkindex.PATH, self.index_of(self.content), method='stored')
        self.carton.write(self.where / 'm.carton')
        self.whole = (self.where / 'm.carton').read_bytes()

    def add(self, i, path, data):
        self.carton.add(path, data, level=1)

    @staticmethod
    def index_of(content):
        return chunkindex.index(*(d for d in content.values() if len(d) > MIB))

    def mount_options(self, i):
        return [*super().mount_options(i), *self.more_options]

    def restore(self):
        with open(self.where / 'm.carton', 'r+b') as f:
            f.write(self.whole)

    def begin(self, rng):
        self.restore()

    def place(self, path):
        """(file, offset, bytes) of where a file's bytes lie."""
        placed = self.carton.placed[path]
        return self.where / 'm.carton', placed.data, placed.end - placed.data

    def change(self, rng):
        return tamper(self, rng, *self.place(rng.choice(sorted(self.content))))


class Unpacked(Stored):
    """The same in a directory."""

    def setup(self):
        super().setup()
        self.restore()

    def source(self, i):
        return self.where / 'unpacked'

    def restore(self):
        shutil.rmtree(self.where / 'unpacked', ignore_errors=True)
        self.carton.unpack(self.where / 'unpacked')

    def place(self, path):
        return self.where / 'unpacked' / path, 0, len(self.content[path])


class Decoded(Stored):
    """Deflated, zstd and small stored entries: more than is kept in memory, so that they are decoded again."""
    sizes = [20_000, 50_000, 100_000, 400_000, 900_000, MIB + 1] * 3
    round_s = 0.7

    def add(self, i, path, data):
        method = ['stored', 'deflate', 'zstd'][i // 6]
        self.carton.add(path, data, level=1, method='zstd' if method == 'stored' and len(data) > 128 << 10 else method)

    def change(self, rng):
        """Several at once: each is small."""
        paths = rng.sample(sorted(self.content), 6)
        return sum(tamper(self, rng, *self.place(p), for_good=0.3, hold=(0.005, 0.1)) for p in paths)


class Chunks(Stored):
    """A local carton with a chunk index: files open at once, and each chunk is hashed when it is first read."""
    sizes, index, round_s = [2 * MIB + i for i in range(8)], True, 0.7

    def change(self, rng):
        return tamper(self, rng, *self.place(rng.choice(sorted(self.content))), hold=(0.05, 0.5))


class Sealed(Stored):
    """A carton that an earlier mount has sealed: files open at once, and each read is compared with the seal."""
    keep_cache, round_s = True, 1.5
    more_options = ()
    sizes = [MIB + 1, 2 * MIB, 3 * MIB + 5, 3 * MIB]

    def prime(self):
        """All files are read once in a mount of their own; what that leaves in the cache is kept."""
        m = self.mounts[0]
        m.start()
        for path, data in self.content.items():
            assert harness.read_file(f'{m.where}/{path}') == data
        assert m.stop() == 0
        assert len(self.cache.seals()) == len(self.content), self.cache.seals()
        shutil.copytree(self.cache.path, self.where / 'primed', symlinks=True)

    def begin(self, rng):
        super().begin(rng)
        if not (self.where / 'primed').exists():
            self.prime()
        shutil.rmtree(self.cache.path)
        shutil.copytree(self.where / 'primed', self.cache.path, symlinks=True)


# ---- the cache ----

class Entries(Stored):
    """Entries of the cache, which two mounts share: decoded or fetched, hashed or sealed."""
    keep_cache, round_s = True, 2.0
    more_options = ()
    sizes = [MIB + 1, 2 * MIB, 3 * MIB, 100_000, MIB, 2 * MIB + 3]

    def setup(self):
        self.origin = Origin(self)
        super().setup()
        self.origin.start()

    def clean(self):
        self.origin.stop()

    def add(self, i, path, data):
        if i < len(self.sizes) // 2:
            self.carton.add(path, data, level=1, method='zstd')
        else:
            self.carton.link(path, data, self.origin.put(path, data))

    def mount_options(self, i):
        return [*super().mount_options(i), *(('-o', 'seals=off') if i and self.rounds % 2 else ())]

    def begin(self, rng):
        pass

    def change(self, rng):
        entries = sorted(self.cache.objects().values())
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if entries:
                path = rng.choice(entries)
                return tamper(self, rng, path, 0, max(os.stat(path).st_size, 1))
        time.sleep(SPIN_S)
        return 0


class Swaps(Entries):
    """Whole entries are exchanged between names, copied over others, or replaced by what is no file."""
    round_s, n_mounts = 0.5, 3
    sizes = [2 * MIB] * 6

    def swap(self, rng):
        """How many names have another content by now."""
        entries = sorted(self.cache.objects().values())
        if len(entries) < 2:
            return 0
        a, b = rng.sample(entries, 2)
        how = rng.choice(['exchange', 'exchange', 'exchange', 'copy', 'link', 'cut', 'fifo', 'directory'])
        spare = self.cache.path / 'spare'
        with contextlib.suppress(OSError):      # a daemon drops them meanwhile
            if how == 'exchange':
                os.rename(a, spare)
                os.rename(b, a)
                os.rename(spare, b)
                return 2
            if how == 'cut':
                os.chmod(a, 0o600)
                os.truncate(a, rng.randrange(os.stat(a).st_size + 1))
                os.chmod(a, 0o400)
                return 1
            os.unlink(a)
            if how == 'copy':
                shutil.copy(b, a)
            elif how == 'link':
                os.link(b, a)
            elif how == 'fifo':
                os.mkfifo(a)
            else:
                os.mkdir(a)
            return 1
        return 0

    def begin(self, rng):
        """What stood in the place of an entry, and no file, is removed: nobody else does that to a directory."""
        for path in self.cache.objects().values():
            if path.is_dir():
                path.rmdir()
        self.count('effect', sum(self.swap(rng) for _ in range(3)))

    def change(self, rng):
        begin = self.total('reads')
        n = self.swap(rng)
        Kind.change(self, rng)
        return n if self.read_during(begin) else 0


class Partials(Entries):
    """What is being fetched from a slow server, whole or by chunks, while two mounts wait for it."""
    keep_cache, index, round_s = False, True, 1.5
    sizes = [2 * MIB, 3 * MIB, MIB, 9 * MIB, 10 * MIB]
    rate = 12 * MIB

    def add(self, i, path, data):
        self.carton.link(path, data, self.origin.put(path, data))

    def mount_options(self, i):
        return Kind.mount_options(self, i)

    @staticmethod
    def index_of(content):
        """Of what is larger than 8 MiB: else it is fetched whole."""
        return chunkindex.index(*(d for d in content.values() if len(d) > 8 * MIB))

    def partials(self):
        return [p for p in self.cache.path.glob('v1/partials/*') if p.suffix != '.v']

    def change(self, rng):
        with contextlib.suppress(FileNotFoundError, PermissionError, ValueError):
            if partials := self.partials():
                path = rng.choice(partials)
                if size := os.stat(path).st_size:
                    return tamper(self, rng, path, 0, size, for_good=0.5, hold=(0.005, 0.3))
        time.sleep(SPIN_S)
        return 0


class Publish(Partials):
    """
    The name of a partial is given to a file of the attacker, which then would be published, or passed through to
    the kernel. The bytes that were fetched are right, so this costs no reader anything.
    """
    errors, hurts, index = set(), False, False
    sizes = [2 * MIB + i for i in range(8)]

    def setup(self):
        super().setup()
        self.others = {digest(d): other_bytes(d) for d in self.content.values()}

    def mount_options(self, i):
        return [*Kind.mount_options(self, i), '-o', 'seals=off', *(('-o', 'passthrough') if harness.IS_ROOT else ())]

    def change(self, rng):
        """Written to elsewhere, and put there in an instant, also just before it is published."""
        n, spare = 0, self.where / 'spare'
        for path in self.partials():
            if path.name in self.others:
                spare.write_bytes(self.others[path.name])
                if path.exists():
                    os.rename(spare, path)
                    n += 1
        time.sleep(SPIN_S)
        return n


class Kills(Partials):
    """Daemons that share a cache are killed in the middle, while files of the cache are written to."""
    n_mounts, keep_cache, round_s = 3, True, 5.0
    errors = {'EIO'}

    def setup(self):
        super().setup()
        self.kill_rng, self.kill_at = random.Random(f'{self.seed}/kills'), 0

    def begin(self, rng):
        """Each second time nothing is there."""
        if self.rounds % 2:
            shutil.rmtree(self.cache.path, ignore_errors=True)

    def between(self, rng):
        if self.total('reads') < self.kill_at:
            return
        self.kill_at = self.total('reads') + self.kill_rng.randrange(200)
        i = self.kill_rng.randrange(self.n_mounts)
        self.epoch[i] += 1
        self.mounts[i].kill()
        self.mounts[i].clean()
        self.count('effect')
        if not self.mounts[i].start():
            self.faults.append(f'no mount after a kill: {self.log(i)}')
        self.epoch[i] += 1

    def change(self, rng):
        if rng.random() < 0.5:
            Partials.change(self, rng)
        else:
            Entries.change(self, rng)
        return 0


KINDS = {
    'carton': Stored, 'unpacked': Unpacked, 'decoded': Decoded, 'chunks': Chunks, 'sealed': Sealed,
    'entries': Entries, 'swaps': Swaps, 'partials': Partials, 'publish': Publish, 'kills': Kills,
}
