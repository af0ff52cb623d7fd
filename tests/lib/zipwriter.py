# SPDX-License-Identifier: Apache-2.0
"""
A zip and carton writer that shares no code with the program under test.

Three layers, each usable alone:

  local_header(), central_header(), end_record() ...  one structure of APPNOTE.TXT as bytes
  Entry, Zip                                          an archive; any field can be overridden
  Carton                                              adds MANIFEST, symlinks, an unpacked directory

Overrides are dictionaries by field name (`Entry(..., local={'crc': 0})`); they are applied last, so
an archive can be wrong in exactly one place.
"""
import contextlib
import hashlib
import os
import stat
import struct
import zlib
from dataclasses import dataclass, field

import zstandard

METHODS = {'stored': 0, 'deflate': 8, 'zstd': 93}
MAX16, MAX32 = 0xffff, 0xffffffff
BLOCK = 1 << 20


class Sparse:
    """
    `size` zero bytes with `pieces` ({offset: bytes}) in them; written as a hole, Stored only.
    `sums`: (crc32, sha256 in hex) if they are known; gigabytes take seconds.
    """

    def __init__(self, size, pieces=None, sums=None):
        self.size, self.pieces = size, dict(sorted((pieces or {}).items()))
        self._sums = sums

    def __len__(self):
        return self.size

    def blocks(self):
        zero, pos = bytes(BLOCK), 0
        for off, data in [*self.pieces.items(), (self.size, b'')]:
            while pos < off:
                n = min(BLOCK, off - pos)
                yield zero[:n] if n < BLOCK else zero
                pos += n
            yield data
            pos += len(data)

    def sums(self):
        """(crc32, sha256 in hex), computed once."""
        if self._sums is None:
            crc, sha = 0, hashlib.sha256()
            for b in self.blocks():
                crc = zlib.crc32(b, crc)
                sha.update(b)
            self._sums = crc, sha.hexdigest()
        return self._sums


def crc32(data):
    return data.sums()[0] if isinstance(data, Sparse) else zlib.crc32(data)


def sha256(data):
    return data.sums()[1] if isinstance(data, Sparse) else hashlib.sha256(data).hexdigest()


def compress(data, method, level=None):
    if method == 0:
        return data
    if method == 8:
        # level 6 would take most of the time of a test with large data
        c = zlib.compressobj((6 if len(data) < BLOCK else 1) if level is None else level, zlib.DEFLATED, -15)
        return c.compress(data) + c.flush()
    if method == 93:
        return zstandard.ZstdCompressor(level=1 if level is None else level).compress(data)
    return data


def zstd_frame(raw, window_log=20, dictionary=None):
    """A zstd frame by hand: no content size, raw blocks, so its header is ours to choose."""
    out = b'\x28\xb5\x2f\xfd' + bytes([0 if dictionary is None else 1, (window_log - 10) << 3])
    if dictionary is not None:
        out += bytes([dictionary])
    cuts = range(0, max(len(raw), 1), 65536)
    for i in cuts:
        part = raw[i:i + 65536]
        out += struct.pack('<I', (i == cuts[-1]) | len(part) << 3)[:3] + part
    return out


# ---- one structure each ----

def local_header(name=b'', extra=b'', **f):
    d = dict(signature=0x04034b50, version=20, flags=0, method=0, time=0, date=0, crc=0, csize=0,
             usize=0, name_len=len(name), extra_len=len(extra)) | f
    return struct.pack('<IHHHHHIIIHH', *d.values()) + name + extra


def central_header(name=b'', extra=b'', comment=b'', **f):
    d = dict(signature=0x02014b50, made_by=3 << 8 | 63, version=20, flags=0, method=0, time=0,
             date=0, crc=0, csize=0, usize=0, name_len=len(name), extra_len=len(extra),
             comment_len=len(comment), disk=0, internal=0, external=0, offset=0) | f
    return struct.pack('<IHHHHHHIIIHHHHHII', *d.values()) + name + extra + comment


def descriptor(form, crc, csize, usize):
    """`form`: 'sig', 'nosig', 'sig64' or 'nosig64'."""
    sig = b'' if form.startswith('no') else struct.pack('<I', 0x08074b50)
    return sig + struct.pack('<IQQ' if form.endswith('64') else '<III', crc, csize, usize)


def extra_field(ident, data, size=None):
    return struct.pack('<HH', ident, len(data) if size is None else size) + data


def zip64_extra(*values):
    return extra_field(1, struct.pack('<%dQ' % len(values), *values))


def unicode_path_extra(name, unicode_name):
    return extra_field(0x7075, struct.pack('<BI', 1, zlib.crc32(name)) + unicode_name)


def end64_record(tail=b'', **f):
    d = dict(signature=0x06064b50, size=44 + len(tail), made_by=3 << 8 | 63, version=45, disk=0,
             cd_disk=0, here=0, total=0, cd_size=0, cd_offset=0) | f
    return struct.pack('<IQHHIIQQQQ', *d.values()) + tail


def locator64(**f):
    d = dict(signature=0x07064b50, disk=0, offset=0, disks=1) | f
    return struct.pack('<IIQI', *d.values())


def end_record(comment=b'', **f):
    d = dict(signature=0x06054b50, disk=0, cd_disk=0, here=0, total=0, cd_size=0, cd_offset=0,
             comment_len=len(comment)) | f
    return struct.pack('<IHHHHIIH', *d.values()) + comment


def dos_time(t):
    """(date, time) of a 6-tuple; None is what the reference packer writes: month 0, day 0."""
    if t is None:
        return 0, 0
    return (t[0] - 1980) << 9 | t[1] << 5 | t[2], t[3] << 11 | t[4] << 5 | t[5] // 2


# ---- an archive ----

@dataclass
class Entry:
    name: object                        # str, or bytes for names that are not UTF-8
    data: object = b''                  # bytes or Sparse
    method: object = 'stored'           # of METHODS, or a number (data goes in as it is)
    mode: int = stat.S_IFREG | 0o644    # 0: none, as the reference packer
    mtime: tuple = (2023, 4, 5, 6, 7, 8)  # None: month 0
    descriptor: str = ''                # '' or a form of descriptor()
    zip64: bool = False                 # sentinels and extras although nothing needs them
    payload: bytes = None               # the compressed bytes, instead of those of `data`
    flags: int = None                   # None: what name and descriptor need
    gap: bytes = b''                    # bytes before the local header
    local_extra: bytes = b''
    central_extra: bytes = b''
    comment: bytes = b''
    level: int = None
    local: dict = field(default_factory=dict)
    central: dict = field(default_factory=dict)
    desc: dict = field(default_factory=dict)
    in_central: bool = True             # False: bytes in the file that no record names
    in_file: bool = True                # False: a record only; give central={'offset': …}
    listed: bool = True                 # in MANIFEST (Carton)
    sha: str = None                     # its MANIFEST hash, instead of the right one (Carton)
    hashed: tuple = (None, '')          # (data, its sha256), kept by sha256()

    def raw_name(self):
        return self.name.encode() if isinstance(self.name, str) else self.name

    def sha256(self):
        if self.hashed[0] is not self.data:
            self.hashed = self.data, sha256(self.data)
        return self.hashed[1]


@dataclass
class Placed:
    """Where a written structure lies; Zip.write() returns these by entry name."""
    local: int
    data: int
    end: int
    central: int = 0


@dataclass
class Zip:
    entries: list = field(default_factory=list)
    comment: bytes = b''
    prefix: bytes = b''
    prefix_counted: bool = True         # are offsets from the file's start, or the prefix's end?
    central_order: object = None        # a function of the list of (entry, record)
    before_central: bytes = b''
    after_central: bytes = b''
    before_end: bytes = b''             # between zip64 structures (or directory) and end record
    before_locator: bytes = b''
    trailing: bytes = b''
    zip64_end: bool = None              # None: when needed
    locator: dict = field(default_factory=dict)
    no_locator: bool = False
    no_end64: bool = False
    end64: dict = field(default_factory=dict)
    end64_tail: bytes = b''
    end: dict = field(default_factory=dict)

    def write(self, path):
        """
        Writes it to a path or an open file; returns {name: Placed} and under None the Placed of
        directory and end.
        """
        with (contextlib.nullcontext(path) if hasattr(path, 'write')
              else open(path, 'wb', buffering=1 << 20)) as f:
            f.write(self.prefix)
            base = 0 if self.prefix_counted else len(self.prefix)
            records, places = [], {}
            for e in self.entries:
                rec, places[e.name] = self._entry(f, e, base)
                if e.in_central:
                    records.append((e, rec))
            f.write(self.before_central)
            if self.central_order:
                records = self.central_order(records)
            start = f.tell()
            pos = start
            for e, rec in records:
                places[e.name].central = pos
                f.write(rec)
                pos += len(rec)
            places[None] = Placed(start, pos, 0, start)
            f.write(self.after_central)
            self._end(f, len(records), pos - start, start - base)
            places[None].end = f.tell()
            f.write(self.trailing)
        return places

    def _entry(self, f, e, base):
        name = e.raw_name()
        method = METHODS.get(e.method, e.method)
        body = e.payload if e.payload is not None else compress(e.data, method, e.level)
        flags = e.flags
        if flags is None:
            flags = (8 if e.descriptor else 0) | (0 if name.isascii() else 0x800)
        date, time = dos_time(e.mtime)
        crc, csize, usize = crc32(e.data), len(body), len(e.data)
        f.write(e.gap)
        offset = f.tell() - base
        big = e.zip64 or csize >= MAX32 or usize >= MAX32
        common = dict(version=45 if big else 20, flags=flags, method=method, time=time, date=date)

        late = bool(e.descriptor)
        h = common | dict(crc=0 if late else crc, csize=0 if late else csize,
                          usize=0 if late else usize)
        extra = e.local_extra
        if big:
            extra = zip64_extra(h['usize'], h['csize']) + extra
            h |= dict(csize=MAX32, usize=MAX32)
        place = Placed(f.tell(), 0, 0)
        if e.in_file:
            f.write(local_header(**({'name': name, 'extra': extra} | h | e.local)))
            place.data = f.tell()
            if isinstance(body, Sparse):
                self._sparse(f, body)
            else:
                f.write(body)
            if e.descriptor:
                d = dict(crc=crc, csize=csize, usize=usize) | e.desc
                f.write(descriptor(e.descriptor, **d))
            place.end = f.tell()

        c = common | dict(made_by=3 << 8 | 63, crc=crc, csize=csize, usize=usize, offset=offset,
                          external=e.mode << 16 & MAX32)
        values = []
        for key in ('usize', 'csize', 'offset'):
            if e.zip64 or c[key] >= MAX32:
                values.append(c[key])
                c[key] = MAX32
        extra = (zip64_extra(*values) if values else b'') + e.central_extra
        d = {'name': name, 'extra': extra, 'comment': e.comment} | c | e.central
        return central_header(**d), place

    @staticmethod
    def _sparse(f, body):
        start = f.tell()
        for off, data in body.pieces.items():
            f.seek(start + off)
            f.write(data)
        f.seek(start + body.size)

    def _end(self, f, count, size, offset):
        need = self.zip64_end
        if need is None:
            need = count > MAX16 or size >= MAX32 or offset >= MAX32
        e = dict(here=count, total=count, cd_size=size, cd_offset=offset)
        if need:
            pos = f.tell()
            if not self.no_end64:
                f.write(end64_record(self.end64_tail, **(e | self.end64)))
            f.write(self.before_locator)
            if not self.no_locator:
                f.write(locator64(**({'offset': pos} | self.locator)))
            if self.zip64_end:
                e = dict(here=MAX16, total=MAX16, cd_size=MAX32, cd_offset=MAX32)
            else:
                e = {k: min(v, MAX16 if k in ('here', 'total') else MAX32) for k, v in e.items()}
        f.write(self.before_end)
        f.write(end_record(**({'comment': self.comment} | e | self.end)))


# ---- a carton ----

TOML = b"""spec_version = 1
model_name = 'Sample model'
short_description = 'A sample'
license = 'Apache-2.0'

[[input]]
name = 'x'
dtype = 'float32'
shape = ['batch', 3]

[[output]]
name = 'y'
dtype = 'float32'
shape = '*'

[runner]
runner_name = 'python'
required_framework_version = '=3.11'
runner_compat_version = 1
"""


class Carton:
    """Paths in the order they are added, MANIFEST last unless `reorder` says otherwise."""

    def __init__(self, toml=TOML, method='zstd', **zip_fields):
        self.method = method
        self.entries = {}
        self.zip = Zip(**zip_fields)
        self.manifest = None            # bytes instead of the computed text
        self.manifest_entry = {}        # Entry fields of MANIFEST; 'skip': leave it out
        self.reorder = None             # a function of the list of all entries
        if toml is not None:
            self.add('carton.toml', toml)

    def add(self, path, data=b'', **kw):
        kw.setdefault('method', self.method)
        self.entries[path] = Entry(path, data, **kw)
        return self

    def add_entry(self, entry, key=None):
        """A further entry, also one whose name is taken: `key` keeps it apart."""
        self.entries[key or entry.name] = entry
        return self

    def symlink(self, path, target, **kw):
        kw.setdefault('method', 'stored')
        raw = target if isinstance(target, bytes) else target.encode()
        return self.add(path, raw, mode=stat.S_IFLNK | 0o777, **kw)

    def directory(self, path, **kw):
        kw.setdefault('mode', stat.S_IFDIR | 0o755)
        kw.setdefault('method', 'stored')
        return self.add(path + '/', listed=False, **kw)

    def change(self, path, **fields):
        for k, v in fields.items():
            setattr(self.entries[path], k, v)
        return self

    def resolve(self, path):
        """The Entry a path ends in, through symlinks; KeyError when there is none."""
        start = path
        for _ in range(100):
            e = self.entries[path]
            if not stat.S_ISLNK(e.mode):
                return e
            target = os.path.join(os.path.dirname(path), e.data.decode())
            path = os.path.normpath(target)
        raise KeyError(start)

    def hashes(self):
        """{path: hex} of what MANIFEST lists."""
        out = {}
        for path, e in self.entries.items():
            if e.listed and path not in ('MANIFEST', 'LINKS'):
                out[path] = e.sha or self.resolve(path).sha256()
        return out

    def manifest_bytes(self):
        if self.manifest is not None:
            return self.manifest
        pairs = sorted((p if isinstance(p, bytes) else p.encode(), h.encode())
                       for p, h in self.hashes().items())
        return b''.join(p + b'=' + h + b'\n' for p, h in pairs)

    def model_hash(self):
        return hashlib.sha256(self.manifest_bytes()).hexdigest()

    def files(self):
        """{path: data} of what a mount shows, links followed, MANIFEST included."""
        out = {p: self.resolve(p).data for p in self.hashes()}
        out['MANIFEST'] = self.manifest_bytes()
        return out

    def links(self):
        return {p: e.data.decode() for p, e in self.entries.items()
                if e.listed and stat.S_ISLNK(e.mode)}

    def write(self, path):
        entries = list(self.entries.values())
        kw = dict(self.manifest_entry)
        if not kw.pop('skip', False):
            kw.setdefault('name', 'MANIFEST')
            entries.append(Entry(**({'data': self.manifest_bytes()} | kw)))
        self.zip.entries = self.reorder(entries) if self.reorder else entries
        self.placed = self.zip.write(path)
        return path

    def unpack(self, root):
        os.makedirs(root, exist_ok=True)
        for path, e in self.entries.items():
            full = os.path.join(root, path)
            if path.endswith('/'):
                os.makedirs(full, exist_ok=True)
                continue
            os.makedirs(os.path.dirname(full), exist_ok=True)
            if stat.S_ISLNK(e.mode):
                os.symlink(e.data, full)
                continue
            with open(full, 'wb') as f:
                for block in e.data.blocks() if isinstance(e.data, Sparse) else [e.data]:
                    f.write(block)
            os.chmod(full, stat.S_IMODE(e.mode) & 0o777 or 0o644)
        if not self.manifest_entry.get('skip'):
            with open(os.path.join(root, 'MANIFEST'), 'wb') as f:
                f.write(self.manifest_bytes())
        return root


INDEX = b"""[[tensor]]
name = 'numeric'
dtype = 'float32'
shape = [2, 3]
file = 'tensor_0.bin'

[[tensor]]
name = 'words'
dtype = 'string'
shape = [2]
file = 'tensor_1.toml'

[[tensor]]
name = 'ragged'
dtype = 'nested'
inner = ['numeric', 'words']
"""


def sample(method='zstd', **kw):
    """A small carton with all that the format has: model, misc, tensors, a symlink, a script."""
    c = Carton(method=method, **kw)
    c.add('model/main.py', b'def get_model():\n    return None\n' * 20)
    c.add('model/weights.bin', bytes(range(256)) * 64)
    c.add('model/run.sh', b'#!/bin/sh\necho hello\n', mode=stat.S_IFREG | 0o755)
    c.add('misc/picture.png', b'\x89PNG\r\n\x1a\n' + bytes(i * i % 251 for i in range(3000)))
    c.symlink('misc/latest.png', 'picture.png')
    c.add('misc/a=b c.txt', b'equals and space\n')
    c.add('misc/empty', b'')
    c.add('tensor_data/index.toml', INDEX)
    c.add('tensor_data/tensor_0.bin', struct.pack('<6f', *range(6)))
    c.add('tensor_data/tensor_1.toml', 'data = ["a", "zwei 🥳"]\n'.encode())
    return c


def read_zip(path):
    """{name: bytes} as python's zipfile sees the archive; zstd, which it lacks, by zstandard."""
    import zipfile
    out = {}
    with zipfile.ZipFile(path) as z, open(path, 'rb') as f:
        for i in z.infolist():
            if i.filename.endswith('/'):
                continue
            if i.compress_type != 93:
                out[i.filename] = z.read(i)
                continue
            f.seek(i.header_offset + 26)
            f.seek(sum(struct.unpack('<HH', f.read(4))), os.SEEK_CUR)
            raw = f.read(i.compress_size)
            out[i.filename] = zstandard.ZstdDecompressor().decompressobj().decompress(raw)
            assert zlib.crc32(out[i.filename]) == i.CRC and len(out[i.filename]) == i.file_size
    return out
