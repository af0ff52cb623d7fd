#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
Does every reader of zip archives see the same thing in what we accept?

    differential.py BUILD [--runs N] [--seed N] [--keep DIRECTORY] [FILE ...]

Feeds archives to core/archive, Python's zipfile, libarchive (seekable and streaming) and libzip: FILEs, or
the constructed ones below and N mutants. An archive we refuse is fine. In one that we accept, each entry must
be the same for every reader that opens the archive: name, kind, size and content. A reader that fails on an
entry has not shown another one. The forms that other programs write (forms()) are extracted by unzip and
7-Zip, too, and each says who has to read it, or that we refuse it.

If an entry cannot be read by us (it is damaged, or its local header disagrees), `cartonctl verify` refuses
the archive. A mount still shows the good entries: only zipfile, which also goes by the central directory,
is asked then. libarchive takes names from local headers, and libzip may take another end record.

Exceptions, each because the other reader cannot know better:
- A streaming reader sees no central directory. It guesses the length of a Stored entry with a data
  descriptor and the form of a descriptor; it is asked only if there are none.
- libarchive composes characters of names (NFC): names are compared in this form.
- Names are compared as they are extracted: "./a" is "a", a directory may be there twice, "./" and "/" are
  where it is extracted to.
- Pythons before 3.12 do not know the extra field 0x7075. Names in it are compared as later ones show them.
- unzip and libarchive do not open an archive whose zip64 locator counts 0 disks.
- libarchive cuts the target of a symlink at a NUL, and gives none that is not UTF-8; zip-read takes such a
  symlink as unreadable, as the loader of cartons does.
"""
import argparse
import collections
import io
import random
import stat
import sys
import unicodedata
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent / 'lib')]
import zipwriter as zw      # noqa: E402
from readers import LibArchive, LibZip, Ours, Seen, SEVENZIP, UNZIP, python    # noqa: E402
from zipwriter import MAX16, MAX32, Entry, Zip      # noqa: E402

SIGNATURES = (b'PK\1\2', b'PK\3\4', b'PK\5\6', b'PK\6\6', b'PK\6\7', b'PK\7\10')
EXTRA_IDS = (0x0001, 0x0007, 0x0008, 0x000d, 0x0017, 0x334d, 0x5455, 0x5855, 0x6375, 0x6c78, 0x7075, 0x7855,
             0x7875, 0x9901, 0xa11e, 0xcafe, 0xd935)
MODES = (0, stat.S_IFREG | 0o644, stat.S_IFREG | 0o755, stat.S_IFDIR | 0o755, stat.S_IFLNK | 0o777)
LOCAL_FIELDS = ('version', 'flags', 'method', 'crc', 'csize', 'usize', 'name_len', 'extra_len')
CENTRAL_FIELDS = ('made_by', *LOCAL_FIELDS, 'comment_len', 'disk', 'internal', 'external', 'offset')
END_FIELDS = ('disk', 'cd_disk', 'here', 'total', 'cd_size', 'cd_offset', 'comment_len')
END64_FIELDS = ('size', 'made_by', 'version', *END_FIELDS[:-1])


def written(z):
    out = io.BytesIO()
    z.write(out)
    return out.getvalue()


# ---- constructed archives ----

def hidden_by_record(where='tail'):
    """A second directory in the extensible data of a zip64 end record, which readers from the end see."""
    inner = zw.local_header(b'hidden', crc=zw.crc32(b'evil'), csize=4, usize=4) + b'evil'
    z = Zip([Entry('shown', b'good'), Entry('carrier', inner)], zip64_end=True)
    size = len(written(z)) - 22 - 20 - 56
    record = zw.central_header(b'hidden', crc=zw.crc32(b'evil'), csize=4, usize=4, offset=78)
    at = size + 56
    second = record + zw.end64_record(here=1, total=1, cd_size=len(record), cd_offset=at)
    if where == 'tail':
        z.end64_tail = second
    else:
        z.before_locator = second
    return z


def two_ends(order):
    """A whole archive as the comment of another, or around it."""
    a, b = written(Zip([Entry('a', b'first')])), written(Zip([Entry('b', b'second')]))
    if order == 'comment':
        return Zip([Entry('a', b'first')], comment=b)
    if order == 'prefix':
        return Zip([Entry('b', b'second')], prefix=a, prefix_counted=False)
    if order == 'prefix-counted':
        return Zip([Entry('b', b'second')], prefix=a)
    return Zip([Entry('a', b'first')], trailing=b)


def one(name='x', data=b'content', **fields):
    return Zip([Entry('first', b'1'), Entry(name, data, **fields), Entry('last', b'2')])


def constructed():
    for where in ('tail', 'before'):
        yield f'hidden by zip64 record, {where}', hidden_by_record(where)
    for order in ('comment', 'prefix', 'prefix-counted', 'trailing'):
        yield f'two ends, {order}', two_ends(order)
    for size in (0, 43, 45, 48, 100, 1 << 32, (1 << 64) - 1):
        yield f'zip64 record size {size}', Zip([Entry('a', b'1')], zip64_end=True, end64={'size': size})
        yield f'zip64 record tail {size}', Zip([Entry('a', b'1')], zip64_end=True,
                                                end64_tail=b'\0' * (size % 256))
    for name in ('é', '日本', 'e\u0301', '\u2215x'):
        for flags in (0, 0x800):
            yield f'name {name!a} flags {flags:#x}', one(name, flags=flags)
    for raw in (b'\x80', b'a\xff', b'a\0b', b'a\\b', b'./a', b'a/../b', b'/a', b'a//b', b'C:a', b'A/', b'a/'):
        for flags in (0, 0x800):
            yield f'raw name {raw!r} flags {flags:#x}', one(raw, flags=flags)
        yield f'local name {raw!r}', one('a', local={'name': raw})
    for shown in (b'x', b'y', b'X', 'é'.encode()):
        for flags in (0, 0x800):
            extra = zw.unicode_path_extra(b'x', shown)
            yield f'unicode path {shown!r}', one(flags=flags, central_extra=extra, local_extra=extra)
            yield f'local unicode path {shown!r}', one(flags=flags, local_extra=extra)
    for system in (0, 1, 3, 6, 7, 10, 13, 19, 30):
        for mode in MODES:
            for dos in (0, 0x10):
                for name in ('x', 'x/'):
                    data = b'' if name == 'x/' else b'first'
                    yield (f'system {system} mode {mode:o} dos {dos:#x} name {name}',
                           one(name, data, central={'made_by': system << 8 | 20,
                                                    'external': mode << 16 | dos}))
    for mode in MODES:
        for bits in (1, 3, 4, 5, 7, 15):
            body = bytes([bits]) + zw.struct.pack('<HHI', 3 << 8 | 20, 0, mode << 16)
            extra = zw.extra_field(0x6c78, body)
            yield f'field 0x6c78 mode {mode:o} bits {bits}', one('x', b'first', local_extra=extra)
            yield f'central field 0x6c78 mode {mode:o} bits {bits}', one('x', b'first', central_extra=extra)
    for ident in EXTRA_IDS:
        for body in (b'', b'\1', b'\0' * 4, b'\1' + b'x' * 12, b'\7' + b'\xff' * 28,
                     SIGNATURES[2] + bytes(18)):
            extra = zw.extra_field(ident, body)
            yield f'extra {ident:#x} {body!r}', one(local_extra=extra, central_extra=extra)
            yield f'local extra {ident:#x} {body!r}', one(local_extra=extra)
            yield f'central extra {ident:#x} {body!r}', one(central_extra=extra)
    for method in (0, 8, 93):
        for form in ('sig', 'nosig', 'sig64', 'nosig64'):
            for zip64 in (False, True):
                yield (f'descriptor {form} method {method} zip64 {zip64}',
                       one(data=b'content' * 9, method=method, descriptor=form, zip64=zip64))
        for tail in (b'x', bytes(12), SIGNATURES[5] + bytes(12)):
            body = zw.compress(b'content' * 9, method) + tail
            yield (f'method {method} data after the end {tail!r}',
                   one(data=b'content' * 9, method=method, payload=body))
    fake = b'lie' + zw.descriptor('sig', zw.crc32(b'lie'), 3, 3) + b'rest'
    for form in ('sig', 'sig64'):
        yield f'descriptor in stored data, {form}', one(data=fake, descriptor=form)
    nested = zw.local_header(b'nested', crc=zw.crc32(b'n'), csize=1, usize=1) + b'n'
    yield 'local header in stored data', one(data=nested)
    yield 'archive in stored data', one(data=written(one()))
    yield 'directory with data', one('d/', b'data')
    yield 'directory, empty zstd', one('d/', b'', method='zstd')
    yield 'directory, empty deflate', one('d/', b'', method='deflate')
    yield 'duplicate names', Zip([Entry('a', b'1'), Entry('a', b'2')])
    yield 'names by case', Zip([Entry('a', b'1'), Entry('A', b'2')])
    yield 'names by normal form', Zip([Entry('\u00e9', b'1'), Entry('e\u0301', b'2')])
    yield 'file and directory', Zip([Entry('a', b'1'), Entry('a/b', b'2')])
    yield 'deleted entry', Zip([Entry('a', b'1'), Entry('b', b'2', in_central=False)])
    yield 'reversed directory', Zip([Entry('a', b'1'), Entry('b', b'2')], central_order=lambda r: r[::-1])
    yield 'shared data', Zip([Entry('a', b'1'), Entry('b', b'1', in_file=False, central={'offset': 0})])
    yield 'empty', Zip([])
    yield 'empty, zip64', Zip([], zip64_end=True)
    for count in (0, 2, MAX16):
        yield f'count {count}', Zip([Entry('a', b'1')], end={'here': count, 'total': count})
    for n in range(1, 40):
        yield (f'comment of {n} with a signature',
               Zip([Entry('a', b'1')], comment=b'PK\5\6'.ljust(n, b'\0')[:n]))
    yield '65535 entries', Zip([Entry(f'{i}') for i in range(65535)])


# ---- forms ----

def named(raw, name, crc=0, version=1, **fields):
    """An entry with the field 0x7075 in both headers."""
    extra = zw.extra_field(0x7075, zw.struct.pack('<BI', version, zw.crc32(raw) ^ crc) + name)
    return one(raw, **({'flags': 0, 'local_extra': extra, 'central_extra': extra} | fields))


def tar(*names, **fields):
    return Zip([Entry(n, b'' if n.endswith('/') else b'of ' + n.encode(), **(
        {'mode': stat.S_IFDIR | 0o755} if n.endswith('/') else {}), **fields) for n in names])


def forms():
    """
    (label, archive, readers): forms in which other programs write archives, and those next to them. `readers`:
    who has to read it like us, of those that are asked; empty: it is refused.
    """
    everyone = frozenset(('zipfile', 'libarchive', 'unzip', '7-Zip'))
    big, dirs = b'text ' * 50, stat.S_IFDIR | 0o755
    text = 'größe.txt'.encode()

    yield 'names with ./', tar('./', './a', './d/', './d/b', './d/b c'), everyone
    yield 'some names with ./', tar('./a', 'b', './d/c'), everyone
    yield 'links with ./', Zip([Entry('./a', b'1'), Entry('./l', b'a', mode=stat.S_IFLNK | 0o777)]), everyone
    yield 'an entry /', tar('/', 'a', 'd/', 'd/b'), everyone
    yield 'a directory twice', tar('d/', 'd/a', 'd/', 'e/', 'e/'), everyone
    yield 'a directory twice, once with ./', tar('./d/', 'd/a', 'd/'), everyone
    for names in (('./a', 'a'), ('a', 'a'), ('d', 'd/'), ('./d', 'd/a'), ('/a',), ('.//a',), ('.',), ('a/./b',),
                  ('./../a',), ('././a',), ('//',)):
        yield f'names {names}', tar(*names), ()
    yield '/ with data', Zip([Entry('/', b'data', mode=dirs)]), ()
    yield '/ with a hidden file', Zip([Entry('/', b'', mode=dirs, payload=big, central={'csize': 0})]), ()
    yield 'a directory twice, with a hidden file', Zip([
        Entry('d/', b'', mode=dirs), Entry('d/', b'', mode=dirs, payload=big, central={'csize': 0})]), ()
    for n in (1, 2, 3, 5, 7):
        yield f'{n} zeros for local extra fields', one(local_extra=bytes(n)), everyone
        yield f'{n} zeros for central extra fields', one(central_extra=bytes(n)), everyone
        yield f'{n} zeros behind extra fields', one(local_extra=b'UT\1\0\0' + bytes(n)), everyone
        yield f'{n} bytes, not zero', one(local_extra=bytes(n - 1) + b'\1'), ()
    for code, name in (('cp437', 'größe'), ('gbk', '模型'), ('cp932', 'モデル'), ('cp932', 'd/表'), ('utf-8', 'ö')):
        for made in (3 << 8 | 20, 20):
            fields = {'central': {'made_by': made, 'external': 0}}
            yield f'{name} in {code} by {made:#x}', named(name.encode(code), name.encode(), **fields), everyone
    yield 'a directory in a code page', named(b'gr\x94\xe1e.txt/', text + b'/', data=b'', mode=dirs), everyone
    yield 'a code page and ./', named(b'./gr\x94\xe1e.txt', b'./' + text), everyone
    yield 'a code page without the letters', named(b'gr__e.txt', text), everyone
    yield 'a name changed later', named(b'x', text, crc=1), everyone
    yield 'a UTF-8 name changed later', named('é'.encode(), text, crc=1, flags=0x800), everyone
    yield 'a code page and another name', named(b'gr\x94\xe1e.txt', text, crc=1), ()
    yield 'another ASCII name', named(b'x', b'y'), ()
    yield 'ASCII for a code page', named(b'\x94', b'y'), ()
    yield 'another name than UTF-8', named('é'.encode(), text, flags=0x800), ()
    yield 'a field of version 2', named(b'gr\x94\xe1e.txt', text, version=2), ()
    yield 'a code page with a NUL', named(b'a\0\x94', text), ()
    yield 'a code page, another directory', named(b'd/\x94', text), ()
    for place in ('local', 'central'):
        extra = zw.unicode_path_extra(b'gr\x94\xe1e.txt', text)
        yield f'a field in the {place} header', one(b'gr\x94\xe1e.txt', flags=0, **{place + '_extra': extra}), ()
    for method in ('stored', 'deflate'):
        for bit in range(16):
            same = bit == 11 or (method == 'deflate' and bit in (1, 2))
            for place in ('local', 'central'):
                yield (f'bit {bit} in the {place} header, {method}',
                       one(data=big, method=method, **{place: {'flags': 1 << bit}}), everyone if same else ())
    for place in ('local', 'central'):
        yield f'UTF-8 in the {place} header', one('é', flags=0, **{place: {'flags': 0x800}}), ()
    for mark in (b'PK00', b'PK\7\10', b'PK01', b'PK\3\4', b'PK00PK00', b'\0\0\0\0'):
        for counted in (True, False):
            yield (f'begins with {mark!r}, counted {counted}',
                   Zip([Entry('a', b'1'), Entry('b', b'2')], prefix=mark, prefix_counted=counted),
                   everyone if counted and mark in (b'PK00', b'PK\7\10') else ())
    for n in (1, 5000, 10239):
        for comment in (b'', b'text', bytes(9)):
            z = Zip([Entry('a', b'1')], comment=comment, trailing=bytes(n))
            yield f'{n} zeros behind {comment!r}', z, everyone
    yield 'zeros behind the longest comment', Zip([Entry('a', b'1')], comment=b'c' * MAX16, trailing=b'\0'), ()
    yield 'a block of zeros behind it', Zip([Entry('a', b'1')], trailing=bytes(10240)), ()
    yield 'zeros and a byte behind it', Zip([Entry('a', b'1')], trailing=bytes(99) + b'\1'), ()
    for disks in (0, 2, MAX32):
        for end in ({}, {'cd_offset': 32}, {'cd_size': 47}, {'here': 1, 'total': 1, 'cd_size': 47, 'cd_offset': 32}):
            yield (f'{disks} disks, {end}', Zip([Entry('a', b'1')], zip64_end=True, locator={'disks': disks}, end=end),
                   {'zipfile', '7-Zip'} if disks == 0 and not end else ())


# ---- mutants ----

class Mutator:
    def __init__(self, rng):
        self.rng = rng
        self.said = []

    def one_of(self, *values):
        return self.rng.choice(values)

    def number(self, like=0):
        r = self.rng
        return r.choice((0, 1, 2, 3, 8, 0x10, 44, 0x800, MAX16, MAX16 - 1, MAX32, MAX32 - 1,
                         like + 1, max(like - 1, 0), like + r.randrange(100), r.getrandbits(16),
                         r.getrandbits(32)))

    def some_bytes(self):
        r = self.rng
        name = r.choice((b'a', b'dir/b', b'new'))
        return r.choice((
            lambda: b'', lambda: r.randbytes(r.randrange(1, 40)), lambda: bytes(r.randrange(1, 60)),
            lambda: r.choice(SIGNATURES), lambda: zw.end_record(), lambda: zw.end_record(total=1, here=1),
            lambda: zw.local_header(name) + b'x', lambda: zw.central_header(name),
            lambda: zw.locator64(disks=1),
            lambda: zw.end64_record(), lambda: zw.end64_record() + zw.locator64() + zw.end_record(),
            lambda: written(Zip([Entry('new', b'hidden')])),
            lambda: written(Zip([Entry('new', b'hidden')], zip64_end=True)),
            lambda: zw.descriptor('sig', r.getrandbits(32), self.number(), self.number())))()

    def extra(self):
        r, out = self.rng, b''
        for _ in range(r.choice((1, 1, 2))):
            ident = r.choice(EXTRA_IDS)
            body = r.choice((self.some_bytes, lambda: bytes(r.choice((4, 5, 8, 12, 16, 20, 24, 28))),
                             lambda: r.randbytes(r.randrange(33))))()
            if ident == 0x7075:
                body = zw.unicode_path_extra(r.choice((b'a', b'x')), r.choice((b'a', b'new', b'x')))[4:]
            if ident == 0x6c78:
                body = bytes([r.choice((1, 4, 5, 7))]) + zw.struct.pack('<HHI', 3 << 8, 0,
                                                                        r.choice(MODES) << 16)
            out += zw.extra_field(ident, body[:60000])
        return out

    # ---- archives that are accepted, mostly ----

    def entry(self, i):
        r = self.rng
        name = r.choice(('a', 'b.txt', 'dir/c', 'dir/d', 'é', 'x' * 40)) + str(i)
        kind = r.choice(('file',) * 6 + ('dir', 'symlink'))
        if kind == 'dir':
            return Entry(f'folder{i}/', b'', mode=r.choice((0, stat.S_IFDIR | 0o755)), zip64=r.random() < .1)
        e = Entry(name, r.choice((b'', b'x', r.randbytes(r.randrange(200)), self.some_bytes(), b'text' * 50)),
                  method=r.choice(('stored', 'stored', 'deflate', 'deflate', 'zstd')),
                  mode=r.choice(MODES[:3]))
        if kind == 'symlink':
            e.data, e.mode = b'a0', stat.S_IFLNK | 0o777
        if r.random() < .2:
            e.descriptor = r.choice(('sig', 'nosig', 'sig64', 'nosig64'))
        e.zip64 = r.random() < .15 or e.descriptor.endswith('64')
        if r.random() < .15:
            e.local_extra = e.central_extra = zw.extra_field(0x5455, b'\1' + r.randbytes(4))
        return e

    def base(self):
        z = Zip([self.entry(i) for i in range(self.rng.randrange(1, 6))])
        z.zip64_end = self.rng.random() < .3 or None
        if self.rng.random() < .1:
            z.comment = self.some_bytes()
        return z

    # ---- one change each ----

    def local_field(self, z, e):
        f = self.one_of(*LOCAL_FIELDS)
        e.local[f] = self.number(len(e.data))
        return f

    def central_field(self, z, e):
        f = self.one_of(*CENTRAL_FIELDS)
        e.central[f] = self.number(len(e.data))
        return f

    def both_fields(self, z, e):
        f = self.one_of(*LOCAL_FIELDS)
        e.local[f] = e.central[f] = self.number(len(e.data))
        return f

    def kind(self, z, e):
        e.central['made_by'] = self.one_of(0, 3, 3, 7, 10, 19, self.rng.randrange(256)) << 8 | 20
        e.central['external'] = self.one_of(*MODES) << 16 | self.one_of(0, 0, 0x10, 0x20)

    def flags(self, z, e):
        e.flags = (e.flags or 0) ^ 1 << self.rng.randrange(16)
        return hex(e.flags)

    def local_name(self, z, e):
        name = e.raw_name()
        e.local['name'] = self.one_of(b'new', b'a', name.upper(), name + b'/', name + b'\0', name[:-1])

    def name(self, z, e):
        e.name = self.one_of(b'caf\xe9', 'café'.encode(), b'a0', b'x\0y', b'dir', b'dir/c1/x', b'new/',
                             b'a b')
        e.flags = self.one_of(None, 0, 0x800)

    def local_extra(self, z, e):
        e.local_extra += self.extra()

    def central_extra(self, z, e):
        e.central_extra += self.extra()

    def both_extra(self, z, e):
        x = self.extra()
        e.local_extra += x
        e.central_extra += x

    def entry_comment(self, z, e):
        e.comment = self.some_bytes()

    def gap(self, z, e):
        e.gap = self.some_bytes()

    def descriptor(self, z, e):
        e.descriptor = self.one_of('sig', 'nosig', 'sig64', 'nosig64')
        if self.rng.random() < .5:
            e.desc[self.one_of('crc', 'csize', 'usize')] = self.number(len(e.data))

    def payload(self, z, e):
        method = zw.METHODS.get(e.method, e.method)
        body = zw.compress(e.data, method)
        e.payload = self.one_of(body + self.some_bytes(), body[:-1], body + body, b'')
        if method == 0 and self.rng.random() < .8:
            e.data = e.payload

    def sizes(self, z, e):
        grow = self.number()
        for h in (e.local, e.central):
            h['csize'] = h['usize'] = len(e.data) + grow

    def zip64(self, z, e):
        e.zip64 = True
        if self.rng.random() < .5:
            e.central['extra'] = zw.zip64_extra(*[self.number() for _ in range(self.rng.randrange(4))])
        else:
            e.local['extra'] = zw.zip64_extra(*[self.number() for _ in range(self.rng.randrange(4))])

    def not_in_central(self, z, e):
        e.in_central = False

    def shared(self, z, e):
        e.in_file, e.central = False, {'offset': self.one_of(0, 30, 60)}

    def again(self, z, e):
        z.entries.append(Entry(e.name, b'another'))

    def order(self, z, e):
        seed = self.rng.random()
        z.central_order = lambda records: random.Random(seed).sample(records, len(records))

    def end(self, z, e):
        f = self.one_of(*END_FIELDS)
        z.end[f] = self.number(len(z.entries))
        return f

    def end64(self, z, e):
        z.zip64_end = True
        f = self.one_of(*END64_FIELDS)
        z.end64[f] = self.number(len(z.entries))
        return f

    def end64_tail(self, z, e):
        z.zip64_end = True
        z.end64_tail = self.some_bytes()

    def locator(self, z, e):
        z.zip64_end = True
        z.locator[self.one_of('disk', 'offset', 'disks')] = self.number()

    def sentinel(self, z, e):
        z.zip64_end = True
        for f, v in (('here', MAX16), ('total', MAX16), ('cd_size', MAX32), ('cd_offset', MAX32)):
            if self.rng.random() < .5:
                z.end[f] = self.one_of(v, len(z.entries), 0)

    def around(self, z, e):
        place = self.one_of('prefix', 'before_central', 'after_central', 'before_end',
                            'before_locator', 'trailing', 'comment')
        setattr(z, place, self.some_bytes())
        z.prefix_counted = self.rng.random() < .5
        return place

    CHANGES = (local_field, central_field, both_fields, kind, kind, flags, local_name, name,
               local_extra, central_extra, both_extra, entry_comment, gap, descriptor, payload, sizes,
               zip64, not_in_central, shared, again, order, end, end64, end64_tail, locator, sentinel,
               around, around)

    # ---- changes of the bytes ----

    def bytes_changed(self, data):
        r = self.rng
        data = bytearray(data)
        for _ in range(r.choice((1, 1, 2, 4))):
            at = max(0, len(data) - r.choice((22, 76, 98, 200))) if r.random() < .5 else 0
            at = r.randrange(at, len(data))
            what = r.randrange(5)
            if what == 0:
                data[at] ^= 1 << r.randrange(8)
            elif what == 1:
                data[at] = r.choice((0, 1, 0x7f, 0x80, 0xff))
            elif what == 2:
                new = r.choice(SIGNATURES)
                data[at:at + len(new)] = new
            elif what == 3:
                data[at:at] = self.some_bytes()
            else:
                del data[at:at + r.randrange(1, 30)]
        return bytes(data)

    def mutant(self):
        z, self.said = self.base(), []
        for change in self.rng.choices(self.CHANGES, k=self.rng.choice((0, 1, 1, 1, 2, 3))):
            detail = change(self, z, self.rng.choice(z.entries))
            self.said.append(change.__name__ + (f' {detail}' if detail else ''))
        try:
            data = written(z)
        except (zw.struct.error, OverflowError, UnicodeEncodeError):
            return None     # a number too large for its field
        if self.rng.random() < .25:
            self.said.append('bytes')
            data = self.bytes_changed(data)
        return data


# ---- comparison ----

def has_descriptor(data):
    """Is there, anywhere, a local header of an entry with a data descriptor?"""
    at = -1
    while (at := data.find(b'PK\3\4', at + 1)) >= 0:
        if len(data) > at + 6 and data[at + 6] & 8:
            return True
    return False


def extracted(seen):
    """With names as the archive is extracted, each directory once, and without the one extracted to."""
    out = []
    for e in (e._replace(name=e.name.removeprefix('./')) for e in seen):
        if e.kind == 'dir' and (e.name in ('', '.') or any(x.kind == 'dir' and x.name == e.name for x in out)):
            continue
        out.append(e)
    return out


def with_parents(seen):
    """With the directories that extracting makes."""
    names = {e.name for e in seen}
    above = {n[:i] for n in names for i in range(len(n)) if n[i] == '/'}
    return seen + [Seen(n, 'dir', 0, None) for n in above - names]


def same_kind(ours, other):
    return ours == other or (other == 'other' and ours != 'dir')


def composed(seen):
    """With names as libarchive gives them, which composes characters."""
    return [e._replace(name=unicodedata.normalize('NFC', e.name)) for e in seen]


def difference(ours, theirs):
    """What is different in what another reader shows, or None."""
    names = collections.Counter(e.name for e in ours)
    others = collections.Counter(e.name for e in theirs)
    if names != others:
        return f'names: {sorted(names - others)!a} here, {sorted(others - names)!a} there'
    mine = {e.name: e for e in ours if names[e.name] < 2}
    for other in theirs:
        e = mine.get(other.name)
        if e is None or e.sha256 is None or (other.sha256 is None and other.kind != 'symlink'):
            continue
        if not same_kind(e.kind, other.kind):
            return f'kind of {e.name!a}: {e.kind} here, {other.kind} there'
        if e.kind != 'dir' and (e.size, e.sha256) != (other.size, other.sha256):
            return f'content of {e.name!a}: {e.size} bytes here, {other.size} there'
    return None


class Differential:
    def __init__(self, program, keep):
        self.ours = Ours(program)
        self.readers = {'zipfile': python, 'libarchive': LibArchive(),
                        'libarchive-streaming': LibArchive(True), 'libzip': LibZip()}
        self.keep = keep
        self.tried = self.accepted = 0
        self.opened = collections.Counter()
        self.found = []

    def check(self, label, data):
        self.tried += 1
        ours = self.ours(data)
        if ours is None:
            return
        self.accepted += 1
        unread = any(e.sha256 is None for e in ours)
        for name, reader in self.readers.items():
            if unread and name != 'zipfile':
                continue
            if name == 'libarchive-streaming' and has_descriptor(data):
                continue
            theirs = reader(data)
            if theirs is None:
                continue
            self.opened[name] += 1
            what = difference(composed(ours) if name.startswith('libarchive') else ours, extracted(theirs))
            if what:
                self.report(f'{name}: {label}: {what}', data)

    def check_form(self, label, data, expected):
        """The archive is taken, and read alike by those who have to read it; or refused."""
        ours = self.ours(data)
        taken = ours is not None and all(e.sha256 is not None for e in ours)
        if taken != bool(expected):
            self.report(f'{label}: {"taken" if taken else "refused: " + str(self.ours.why)}', data)
            return
        for name, reader in (self.readers | {'unzip': UNZIP, '7-Zip': SEVENZIP}).items() if taken else ():
            theirs = reader(data)
            if theirs is None:
                what = 'it does not read the archive' if name in expected else None
            elif isinstance(reader, type(UNZIP)):
                what = difference(with_parents(ours), theirs)
            else:
                what = difference(composed(ours) if name.startswith('libarchive') else ours, extracted(theirs))
            if what:
                self.report(f'{name}: {label}: {what}', data)

    def report(self, text, data):
        self.keep.mkdir(parents=True, exist_ok=True)
        path = self.keep / f'{len(self.found)}.zip'
        path.write_bytes(data)
        self.found.append(text)
        if len(self.found) <= 40:
            print(f'DIFFERENCE {path}: {text}')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('build', type=Path)
    parser.add_argument('--runs', type=int, default=20000)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--keep', type=Path, help='where archives with a difference are put')
    parser.add_argument('files', nargs='*', type=Path)
    args = parser.parse_args()
    d = Differential(args.build / 'tests/tools/zip-read', args.keep or args.build / 'differential')
    for path in args.files:
        d.check(str(path), path.read_bytes())
    n = n_forms = 0
    if not args.files:
        for label, z, expected in forms():
            d.check_form(label, written(z), expected)
            n_forms += 1
        for label, z in constructed():
            d.check(label, written(z))
            n += 1
        for i in range(args.runs):
            m = Mutator(random.Random(f'{args.seed}/{i}'))
            data = m.mutant()
            if data is not None:
                d.check(f'mutant {args.seed}/{i} ({", ".join(m.said)})', data)
    d.ours.close()
    opened = ', '.join(f'{name} {count}' for name, count in d.opened.items())
    print(f'differential: {n_forms} forms, {n} constructed archives and {d.tried - n} others (seed {args.seed}): '
          f'{d.accepted} accepted, of which opened by {opened or "none"}: {len(d.found)} differences')
    enough = args.files or min(d.opened[name] for name in d.readers) > d.tried // 20
    if not enough:
        print('differential: too few archives were accepted and opened to prove anything')
    return 1 if d.found or not enough else 0


if __name__ == '__main__':
    sys.exit(main())
