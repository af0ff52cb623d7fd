# SPDX-License-Identifier: Apache-2.0
"""Kinds with forgeries: seals, chunk indexes and MANIFESTs that somebody else has made, and chunks that go bad."""
import errno
import shutil
import struct
import time
import zlib

import chunkindex
import harness
from damaging import Entries, Sealed, Stored
from harness import eventually
from origin import MIB, Cache, digest, errno_of
from soaking import Kind, bytes_of, other_bytes, state
from zipwriter import Carton


def overwrite(path, at, data):
    with open(path, 'r+b') as f:
        f.seek(at)
        f.write(data)


# ---- seals ----

class Seals(Sealed):
    """
    Seals are damaged, exchanged, made with another key, or given another header. What they are of is right, so
    that costs a hash, and no error.
    """
    errors, hurts, round_s = set(), False, 0.4
    sizes = [MIB + 1, 2 * MIB, MIB + 1, 2 * MIB]

    def prime(self):
        """And the same with a second cache and another key."""
        mine, self.cache = self.cache, Cache(self.where / 'stranger')
        self.mounts[0].options = [*self.mount_options(0), '-o', f'cache_key={self.where}/stranger.key']
        super().prime()
        self.stranger, self.cache = self.cache, mine
        shutil.rmtree(self.where / 'primed')
        self.mounts[0].options = self.mount_options(0)
        super().prime()

    def begin(self, rng):
        super().begin(rng)
        self.count('effect', sum(self.forge(rng) for _ in range(3)))

    def change(self, rng):
        return Kind.change(self, rng)

    def forge(self, rng):
        seals = Cache(self.where / 'primed').seals()
        name, path = rng.choice(sorted(seals.items()))
        other = rng.choice(sorted(n for n in seals if n != name))
        text, how = path.read_bytes(), rng.choice(['flip', 'cut', 'stranger', 'renamed', 'header', 'zeros'])
        if how == 'flip':
            at = rng.randrange(len(text))
            text = text[:at] + bytes([text[at] ^ 1 << rng.randrange(8)]) + text[at + 1:]
        elif how == 'cut':
            text = text[:rng.randrange(len(text))]
        elif how == 'stranger':
            text = self.stranger.seals()[name].read_bytes()
        elif how == 'renamed':
            text = seals[other].read_bytes()
        elif how == 'header':
            text = text[:64] + seals[other].read_bytes()[64:]
        else:
            text = text[:92] + bytes(len(text) - 92)
        (self.cache.path / 'v1/seals' / path.name).write_bytes(text)
        return 1


class SealCopies(Sealed):
    """
    Other bytes of the same size have a right seal of the same source, as they were in an earlier carton of this
    name. This seal is put under the name of the right bytes, with its header changed or not, and the other bytes in
    their place.
    """
    round_s = 0.5
    sizes = [MIB + 1, 2 * MIB, 3 * MIB, 2 * MIB + 7]

    def setup(self):
        super().setup()
        self.others = {path: other_bytes(data) for path, data in self.content.items()}
        self.evil = Carton(method='stored')
        for path, data in self.others.items():
            self.evil.add(path, data)
        self.evil.write(self.where / 'evil.carton')

    def prime(self):
        """Both cartons, with one cache, and at one path: seals of one source have one key."""
        m, right = self.mounts[0], self.content
        shutil.copy(self.where / 'evil.carton', self.source(0))
        self.content = self.others
        super().prime()
        shutil.rmtree(self.where / 'primed')
        self.source(0).write_bytes(self.whole)
        self.content = right
        m.start()
        for path, data in right.items():
            assert harness.read_file(f'{m.where}/{path}') == data
        assert m.stop() == 0
        shutil.copytree(self.cache.path, self.where / 'primed', symlinks=True)

    def begin(self, rng):
        super().begin(rng)
        for path in rng.sample(sorted(self.content), 3):
            data, wrong = self.content[path], self.others[path]
            seals = self.cache.seals()
            text = seals[digest(wrong)].read_bytes()
            if rng.random() < 0.7:
                text = text[:16] + bytes.fromhex(digest(data)) + text[48:]
            seals[digest(data)].write_bytes(text)
            overwrite(*self.place(path)[:2], wrong)
            self.count('effect')

    def change(self, rng):
        return Kind.change(self, rng)


# ---- indexes and MANIFESTs ----

class IndexLies(Kind):
    """
    An index that MANIFEST vouches for has the states of other bytes, which are in the carton; only the last chunk does
    not fit. The others are read, until all of the file was looked at: from then on nobody gets them, in any mount with
    that cache. A second carton with the same files, in a mount with the same cache, is honest, and costs no error.
    """
    round_s = 2.0
    sizes = [2 * MIB, 2 * MIB + 1, 2 * MIB + 1, 2 * MIB]
    READ_S = 0.3                # the whole is hashed once nobody has read for half a second
    known = False

    def setup(self):
        for i, size in enumerate(self.sizes):
            self.content[f'model/{i}'] = bytes_of((self.name, i), size)
        self.lies = {p: d[:MIB] + other_bytes(d[MIB:MIB + 1]) + d[MIB + 1:] for p, d in self.content.items()}
        self.lies['model/0'] = self.content['model/0']
        self.write('m.carton', self.lies)
        self.write('honest.carton', self.content)

    def write(self, name, lies):
        c = Carton(method='stored')
        records = [(bytes.fromhex(digest(d)), len(d), chunkindex.CHUNK, tuple(chunkindex.states(lies[p])))
                   for p, d in self.content.items()]
        for path, data in self.content.items():
            c.add(path, data)
        c.add(chunkindex.PATH, chunkindex.index_of(records), method='stored')
        c.write(self.where / name)
        for path, data in lies.items():
            overwrite(self.where / name, c.placed[path].data, data)

    def source(self, i):
        return self.where / ('honest.carton' if i else 'm.carton')

    def begin(self, rng):
        """What was found out is remembered in some rounds; some end before anything is hashed."""
        if self.rounds % 3 == 0:
            shutil.rmtree(self.cache.path, ignore_errors=True)
            self.known = False
        self.rest_at = time.monotonic() + self.READ_S if self.rounds % 3 else float('inf')

    keep_cache = True

    def look(self, i, path):
        self.before = state(f'{self.mounts[i].where}/{path}')

    def right(self, i, path, off, got):
        if super().right(i, path, off, got):
            return True
        return (i == 0 and got == self.lies[path][off:off + len(got)] and not self.known and
                self.before in ('chunks', 'corrupt'))

    def may_fail(self, name, i, path):
        return name == 'EIO' and i == 0 and path != 'model/0'

    def between(self, rng):
        """Lets all of the files be looked at."""
        if time.monotonic() < self.rest_at:
            return
        self.pause()

        def states():
            return [state(f'{self.mounts[0].where}/{p}') for p in self.content if p != 'model/0']
        eventually('the whole is hashed', lambda: 'chunks' not in states(), 60)
        self.count('effect', states().count('corrupt'))
        for path in self.content:
            if path != 'model/0':
                eventually('it is no longer read', lambda path=path: errno_of(
                    chunkindex.pread, f'{self.mounts[0].where}/{path}', 1, 0) == errno.EIO, 60)
        self.known = True
        self.rest_at = time.monotonic() + self.READ_S
        self.going[0] = 1


class IndexForged(Stored):
    """Other bytes are in the carton, and an index that says their hashes, but not the index of MANIFEST."""
    index, round_s = True, 0.5
    sizes = [2 * MIB + i for i in range(6)]
    more_options = ()

    def begin(self, rng):
        super().begin(rng)
        chosen = rng.sample(sorted(self.content), 4)
        content = self.content | {p: other_bytes(self.content[p]) for p in chosen}
        hashes = [(bytes.fromhex(digest(d)), len(d), chunkindex.CHUNK, tuple(chunkindex.states(content[p])))
                  for p, d in self.content.items()]
        index = chunkindex.index_of(hashes)
        self.put(chunkindex.PATH, index)
        for path in chosen:
            self.put(path, content[path])
        self.count('effect', len(chosen))

    def put(self, path, data):
        """Other bytes of an entry, with its CRC in both places."""
        placed, crc = self.carton.placed[path], struct.pack('<I', zlib.crc32(data))
        overwrite(self.where / 'm.carton', placed.data, data)
        overwrite(self.where / 'm.carton', placed.local + 14, crc)
        overwrite(self.where / 'm.carton', placed.central + 16, crc)

    def change(self, rng):
        return Kind.change(self, rng)


class Manifest(Stored):
    """
    Whole cartons that are right in themselves, but have another MANIFEST than the user has named; or whose
    MANIFEST has another hash for a file, a file more, or one less.
    """
    may_refuse, hurts, round_s = True, False, 0.3
    sizes = [20_000, 300_000, MIB + 1, 2 * MIB]
    index = True

    def setup(self):
        super().setup()
        self.pin = self.carton.model_hash()
        self.more_options = ('-o', f'manifest_sha256={self.pin}')
        self.forged = []
        wrong = {p: other_bytes(d) for p, d in self.content.items()}
        for how in 'others', 'one', 'more', 'less':
            c = Carton(method='stored')
            for i, (path, data) in enumerate(self.content.items()):
                if how != 'less' or i != 1:
                    c.add(path, wrong[path] if how == 'others' or (how == 'one' and i == 2) else data)
            if how == 'more':
                c.add('model/more', b'more')
            c.add(chunkindex.PATH, self.index_of(self.content if how == 'more' else wrong), method='stored')
            self.forged.append(c.write(self.where / f'{how}.carton'))

    def begin(self, rng):
        self.now = [rng.choice([*self.forged, self.where / 'm.carton']) for _ in range(self.n_mounts)]
        self.count('effect', sum(path in self.forged for path in self.now))

    def source(self, i):
        return self.now[i] if self.rounds else self.where / 'm.carton'

    def change(self, rng):
        """While it is mounted, the path gets another file, which the mount does not see."""
        return Kind.change(self, rng)


# ---- chunks that were left in the cache ----

class LeftChunks(Entries):
    """
    Chunks that an earlier mount has fetched are changed in the cache before a later one reads them: they are fetched
    again, and no reader gets an error.
    """
    errors, hurts, keep_cache, index = set(), False, True, True
    n_mounts, round_s = 1, 1.2
    sizes = [9 * MIB, 10 * MIB + 5]

    def mount_options(self, i):
        return Kind.mount_options(self, i)

    def add(self, i, path, data):
        self.carton.link(path, data, self.origin.put(path, data))

    def read(self, n):
        """Reads so many bytes of each file; what is noted beside their partials then."""
        m = self.mounts[0]
        m.start()
        for path, data in self.content.items():
            assert chunkindex.pread(f'{m.where}/{path}', n, 0) == data[:n]
        if n >= max(map(len, self.content.values())):
            eventually('all is published', lambda: {digest(d) for d in self.content.values()} <= set(self.cache.objects()), 60)
        assert m.stop() == 0
        return {p: p.read_bytes() for p in self.cache.path.glob('v1/partials/*') if p.suffix}

    def prime(self):
        """All chunks are there, under the names of files that are not complete, and without seals."""
        shutil.rmtree(self.cache.path, ignore_errors=True)
        beside = self.read(100)
        self.read(max(map(len, self.content.values())))
        for data in self.content.values():
            partial = self.cache.path / 'v1/partials' / chunkindex.partial_name(data)
            self.cache.objects()[digest(data)].rename(partial)
            partial.chmod(0o600)
        for path, data in beside.items():
            path.write_bytes(data)
        for seal in self.cache.seals().values():
            seal.unlink()

    def partials(self):
        names = {chunkindex.partial_name(d): d for d in self.content.values()}
        return {p: names[p.name] for p in self.cache.path.glob('v1/partials/*') if p.name in names}

    def begin(self, rng):
        if not (self.where / 'primed').exists():
            self.prime()
            shutil.copytree(self.cache.path, self.where / 'primed', symlinks=True)
        shutil.rmtree(self.cache.path)
        shutil.copytree(self.where / 'primed', self.cache.path, symlinks=True)
        for path, data in self.partials().items():
            for i in rng.sample(range(len(data) // chunkindex.CHUNK), 12):
                at = i * chunkindex.CHUNK + rng.randrange(chunkindex.CHUNK)
                overwrite(path, at, other_bytes(data[at:at + 1]))
                self.count('effect')

    def change(self, rng):
        return Kind.change(self, rng)


KINDS = {
    'seals': Seals, 'seal-copies': SealCopies, 'index-lies': IndexLies, 'index-forged': IndexForged,
    'manifest': Manifest, 'left-chunks': LeftChunks,
}