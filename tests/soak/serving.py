# SPDX-License-Identifier: Apache-2.0
"""Kinds whose server is evil at one stage: soakserver.py has what it does. All is pinned by manifest_sha256."""
import chunkindex
from origin import MIB, LinkedCarton, digest
from soaking import Kind, bytes_of, other_bytes
from soakserver import FAULTS, Origin


class Served(Kind):
    """A remote carton."""
    stored, packed, linked = [100_000, 3 * MIB, 9 * MIB], [50_000, 300_000, 2 * MIB], []
    round_s, may_refuse, index, evil = 1.0, True, False, 0.5
    errors = {'EIO', 'ESTALE'}

    def setup(self):
        self.origin, self.carton = Origin(self), LinkedCarton(method='zstd')
        for method, sizes in ('stored', self.stored), ('zstd', self.packed), ('linked', self.linked):
            for i, size in enumerate(sizes):
                path, data = f'model/{method}{i}', bytes_of((self.name, method, i), size)
                self.content[path] = data
                if method == 'linked':
                    self.link(path, data)
                else:
                    self.carton.add(path, data, method=method, level=1)
        if self.index:
            self.carton.add(chunkindex.PATH, chunkindex.index(*(d for d in self.content.values() if len(d) > MIB)),
                            method='stored')
        whole = self.carton.write(self.where / 'm.carton').read_bytes()
        self.source_url = self.origin.put('m.carton', whole, self.wrong(whole))
        self.data = [(p.data, p.end) for path, p in self.carton.placed.items() if path in self.content]
        self.origin.start()

    def link(self, path, data):
        self.carton.link(path, data, *(self.origin.put(f'{path}-{i}', data) for i in range(2)))

    def wrong(self, whole):
        """Another version of the carton: all that is in files is other bytes."""
        out = bytearray(whole)
        for path, placed in self.carton.placed.items():
            if path in self.content:
                out[placed.data:placed.end] = other_bytes(whole[placed.data:placed.end])
        return bytes(out)

    def clean(self):
        self.origin.stop()

    def source(self, i):
        return self.source_url

    def mount_options(self, i):
        return [*super().mount_options(i), '-o', f'manifest_sha256={self.carton.model_hash()}']

    def is_evil(self, rng, name, first, n):
        return self.stage(name, first, first + n) and rng.random() < self.evil

    def ways(self):
        return FAULTS

    def in_data(self, first, end):
        """Does a range of the carton have bytes of a file of the model?"""
        return any(first < e and end > at for at, e in self.data)


class Directory(Served):
    """The central directory, headers, MANIFEST and LINKS of a remote carton are wrong, or of another version."""
    hurts, evil, round_s = False, 0.5, 0.3

    def stage(self, name, first, end):
        return name == 'm.carton' and not self.in_data(first, end)


class Headers(Served):
    """Local headers of entries are wrong, which come with their data."""
    hurts = False

    def stage(self, name, first, end):
        return name == 'm.carton' and self.in_data(first, end)

    def ways(self):
        def header(a, rng):
            body, end = bytearray(a.body), a.first + len(a.body)
            for p in self.carton.placed.values():
                if p and p.local >= a.first and p.data <= end and p.data > p.local:
                    body[p.local - a.first + rng.randrange(p.data - p.local)] ^= 1 << rng.randrange(8)
            a.body = bytes(body)
        return [header]


class Entry(Served):
    """Entries of a remote carton are wrong, or of another version."""

    def stage(self, name, first, end):
        return name == 'm.carton' and self.in_data(first, end)


class RemoteChunks(Entry):
    """The same of stored ones, which are fetched by chunks as they are read."""
    stored, packed, index, evil = [9 * MIB, 9 * MIB + 1, 10 * MIB], [], True, 0.2
    round_s = 3.0


class Links(Served):
    """What LINKS names is wrong, or of another version: whole files, and chunks of large ones."""
    stored, packed, linked, index = [], [1000], [200_000, MIB, 2 * MIB, 9 * MIB, 10 * MIB + 1], True

    def stage(self, name, first, end):
        return name != 'm.carton'


class Mirrors(Links):
    """Mirrors are wrong, and the origin is not: any file and chunk comes from there then, without an error."""
    hurts, errors = False, set()

    def link(self, path, data):
        self.carton.link(path, data, self.origin.put(path, data))

    def mount_options(self, i):
        return [*super().mount_options(i), '-o', f'mirror={self.origin.url("mirror/")}{{sha256}}']

    def wrong(self, whole):
        for data in [*self.content.values(), whole]:
            self.origin.put(f'mirror/{digest(data)}', data)
        return super().wrong(whole)

    def stage(self, name, first, end):
        return name.startswith('mirror/')


KINDS = {
    'server-directory': Directory, 'server-headers': Headers, 'server-entries': Entry, 'server-chunks': RemoteChunks, 'server-links': Links,
    'server-mirrors': Mirrors,
}
