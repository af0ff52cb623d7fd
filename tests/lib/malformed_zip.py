# SPDX-License-Identifier: Apache-2.0
"""Malformed zip structures: headers, records, end records, compressed streams. See malformed.py."""
import stat
import struct
import zlib

import zipwriter as zw
from malformed import case, fields, whole
from zipwriter import Entry, MAX16, MAX32

# ---- local header against central header ----

fields('local-name', 'name', 'either', local={'name': b'model/A'})
fields('local-name-shorter', 'name|overlap', 'either', local={'name': b'model/'})
fields('local-method', 'method', 'either', local={'method': 8})
fields('local-flags-encrypted', 'flag|encrypt', 'either', local={'flags': 1})
fields('local-flags-level', 'flag', 'either', local={'flags': 2})
fields('local-flags-level-zstd', 'flag', 'either', 'model/c', local={'flags': 4})
fields('local-flags-descriptor', 'flag', 'either', local={'flags': 8})
fields('central-flags-descriptor', 'flag|descriptor|overlap', 'either', central={'flags': 8})
fields('local-crc', 'crc', 'either', local={'crc': 1})
fields('local-compressed-size', 'size', 'either', local={'csize': 1})
fields('local-size', 'size', 'either', local={'usize': 1})
fields('local-size-deflate', 'size', 'either', 'model/b', local={'usize': 1})
fields('local-signature', 'local|header|signature', 'either', local={'signature': 0x04034b51})
fields('local-zip64-values', 'size|zip64', 'either', zip64=True,
       local={'extra': zw.zip64_extra(1, 1)})
fields('local-sentinel-without-zip64', 'zip64|size', 'either',
       local={'usize': MAX32, 'csize': MAX32})
fields('local-extra-overrun', 'extra|overlap|local|beyond', 'either', local={'extra_len': 60000})
fields('local-extra-short', 'extra', 'either', local={'extra': b'\x01\x00\x04'})
fields('local-unicode-path', 'unicode|0x7075|name', 'either',
       local={'extra': zw.unicode_path_extra(b'model/a', b'model/z')})
fields('local-unicode-path-only', '0x7075|Unicode path|another name', 'either',
       local={'extra': zw.unicode_path_extra(b'model/a', 'model/ä'.encode())})
fields('descriptor-crc', 'descriptor', 'either', descriptor='sig', desc={'crc': 5})
fields('descriptor-compressed-size', 'descriptor', 'either', descriptor='sig', desc={'csize': 5})
fields('descriptor-size', 'descriptor', 'either', descriptor='nosig', desc={'usize': 5})
fields('descriptor-size-zip64', 'descriptor', 'either', descriptor='sig64', zip64=True,
       desc={'usize': 5})
fields('offset-off-by-one', 'local|header|signature|offset|overlap|entr', 'either',
       named=None, victims=('model/a', 'carton.toml'), central={'offset': 1})
fields('offset-beyond-directory', 'beyond|offset|outside|overlap|director|range', 'mount',
       central={'offset': 1 << 30})

# ---- central records ----

fields('encrypted', 'encrypt', 'mount', flags=1)
fields('strong-encryption', 'encrypt', 'mount', flags=0x41)
fields('masked-headers', 'encrypt|mask', 'mount', flags=0x2000)
fields('patch-data', 'patch', 'mount', flags=0x20)
for number in (1, 6, 9, 12, 14, 19, 20, 95, 97, 98, 99):
    fields(f'method-{number}', 'method', 'mount', method=number)
for kind in ('FIFO', 'CHR', 'BLK', 'SOCK'):
    fields(f'mode-{kind.lower()}', r'mode|type|fifo|pipe|device|socket|special', 'mount',
           mode=getattr(stat, 'S_I' + kind if kind == 'FIFO' else 'S_IF' + kind) | 0o644)
fields('stored-sizes-differ', 'stored|size', 'mount', local={'usize': 3}, central={'usize': 3})
fields('central-signature', 'central|director|signature|record|count', 'mount',
       central={'signature': 0x02014b51}, named=None)
fields('entry-on-another-disk', 'disk|volume', 'mount', central={'disk': 1})
fields('size-sentinel-without-zip64', 'two sizes', 'mount', central={'usize': MAX32})
fields('compressed-sentinel-without-zip64', 'outside', 'mount', 'model/b', central={'csize': MAX32})
fields('offset-sentinel-without-zip64', 'outside', 'mount', central={'offset': MAX32})
fields('disk-sentinel-without-zip64', 'zip64|disk', 'mount', central={'disk': MAX16})
fields('version-64', 'later version', 'mount', central={'version': 64})
fields('disk-sentinel-without-number', 'disk', 'mount', zip64=True, central={'disk': MAX16})
fields('zip64-extra-short', 'zip64|extra|short', 'mount', zip64=True,
       central={'extra': zw.zip64_extra(650, 650)})
fields('zip64-extra-odd', 'zip64|extra|short', 'mount', zip64=True,
       central={'extra': zw.extra_field(1, bytes(13))})
fields('zip64-extra-twice', 'twice|duplicate|second|repeat', 'mount',
       zip64=True, central_extra=zw.zip64_extra(650, 650, 0))
fields('extra-of-libarchive', '0x6c78', 'mount', central_extra=zw.extra_field(0x6c78, b'\4' + bytes(4)))
fields('local-extra-of-libarchive', '0x6c78', 'either',
       local={'extra': zw.extra_field(0x6c78, b'\4' + bytes(4))})
ASI_LINK = zw.extra_field(0x756e, bytes(4) + struct.pack('<HIHH', stat.S_IFLNK | 0o777, 0, 0, 0))
fields('extra-of-asi-unix', '0x756e', 'mount', mode=0, central_extra=ASI_LINK)
fields('extra-short', 'extra|short', 'mount', central_extra=b'UT')
fields('extra-padding-not-zero', 'cut-off extra', 'mount', central_extra=bytes(2) + b'\1')
fields('extra-overrun', 'extra|short|beyond', 'mount',
       central_extra=zw.extra_field(0x5455, b'\1abcd', size=6))
fields('unicode-path', 'unicode|0x7075|name', 'mount',
       central_extra=zw.unicode_path_extra(b'model/a', b'model/z'))
fields('size-over-limit', 'size|large|limit|big', 'mount', zip64=True,
       central={'extra': zw.zip64_extra(1 << 60, 650, 0)})


@case('duplicate-name', 'duplicate|twice|second', entry='model/a')
def _(c):
    c.add_entry(Entry('model/a', b'another', listed=False), 'again')


@case('duplicate-name-with-dot', 'duplicate|twice|second', entry='model/a')
def _(c):
    c.add_entry(Entry('./model/a', b'another', listed=False), 'again')


@case('own-directory-with-data', 'data', entry='')
def _(c):
    c.directory('.', data=b'bytes')


@case('name-in-a-code-page', 'not UTF-8', entry='misc/\\x94')
def _(c):
    """Without the field that has the name in UTF-8; with that of another name."""
    c.add_entry(Entry(b'misc/\x94', b'x', flags=0, listed=False,
                      central_extra=zw.unicode_path_extra(b'misc/\x95', 'misc/ö'.encode())), 'misc/ö')


@case('duplicate-manifest', 'duplicate|twice|second', entry='MANIFEST')
def _(c):
    c.add_entry(Entry('MANIFEST', c.manifest_bytes(), listed=False), 'again')


@case('duplicate-record', 'duplicate|twice|second|overlap')
def _(c):
    c.zip.central_order = lambda records: records + records[1:2]


@case('overlap-same-place', 'overlap')
def _(c):
    c.add_entry(Entry('model/e', c.entries['model/a'].data, in_file=False))
    c.change('model/e', central={'offset': 30 + len('carton.toml') + len(zw.TOML)})


@case('overlap-nested', 'overlap')
def _(c):
    inner = zw.local_header(b'model/n', crc=zlib.crc32(b'nested'), csize=6, usize=6) + b'nested'
    c.change('model/a', data=b'x' * 100 + inner + b'y' * 100)
    c.add('model/n', b'nested', in_file=False)
    c.change('model/n', central={'offset': 30 + len('carton.toml') + len(zw.TOML) + 37 + 100})


@case('overlap-next-entry', 'overlap|size', entry='model/a')
def _(c):
    sizes = dict(csize=700, usize=700)
    c.change('model/a', local=dict(sizes), central=dict(sizes))


@case('overlap-central-directory', 'overlap|director|beyond|outside')
def _(c):
    sizes = dict(csize=10000, usize=10000)
    c.manifest_entry = {'local': dict(sizes), 'central': dict(sizes)}


GAP = 'gap|belong|between|unused|follow'
fields('gap-between-entries', GAP, 'either', 'model/b', named=None, victims=('model/a', 'model/b'),
       gap=b'hidden')


@case('gap-of-a-hidden-entry', GAP, 'either', victims=('model/c',))
def _(c):
    c.change('misc/d', in_central=False, listed=False)


whole('gap-before-directory', 'gap|belong|between|unused|follow|director', before_central=b'hidden')
whole('gap-after-directory', 'director|gap|belong|end|size', after_central=b'hidden')

# ---- directory and end record ----

whole('prefix-like-a-mark', 'before the first', prefix=b'PK01')
whole('prefix-mark-twice', 'before the first', prefix=b'PK00PK00')
whole('prefix-counted', 'before|first|start|begin', prefix=b'#!/bin/sh\nexit\n')
whole('prefix-not-counted', 'before|first|start|begin|offset|director|size', prefix=b'#!/bin/sh\n',
      prefix_counted=False)
whole('trailing-byte', 'after|end|trailing|comment', trailing=b'\1')
whole('trailing-kilobytes', 'after|end|trailing|comment', trailing=bytes(5000) + b'\1')
whole('trailing-blocks', 'after|end|trailing|comment', trailing=bytes(10240))
whole('comment-length-short', 'comment|after|end|trailing', comment=b'a comment',
      end={'comment_len': 4})
whole('comment-length-long', 'comment|after|end|trailing', comment=b'a comment',
      end={'comment_len': 40})
whole('second-end-in-comment', 'second|comment|end|twice|two',
      comment=b'text' + zw.end_record(here=0, total=0))


@case('second-zip-in-comment', 'second|comment|end|twice|two')
def _(c):
    other = b'\0' + zw.central_header(b'carton.toml') + zw.end_record(here=1, total=1, cd_size=57,
                                                                      cd_offset=1)
    c.zip.comment = other


for delta in (1, -1):
    way = 'more' if delta > 0 else 'less'
    whole(f'count-{way}', 'count|entries|director|entry',
          end={'here': 6 + delta, 'total': 6 + delta})
    whole(f'zip64-count-{way}', 'count|entries|director|entry', zip64_end=True,
          end64={'here': 6 + delta, 'total': 6 + delta})
whole('count-differs-by-disk', 'disk|count|entries', end={'here': 5})
whole('count-0', 'count|entries|director', end={'here': 0, 'total': 0})


def shifted(name, at, delta):
    """Adds `delta` to the 32-bit field at `at` of the end record."""
    @case(name, 'director|offset|size|end|signature|record|before')
    def _(c):
        def patch(data, placed):
            pos = placed[None].end - 22 + at
            value, = struct.unpack_from('<I', data, pos)
            struct.pack_into('<I', data, pos, value + delta)
        return patch


for _name, _at in (('directory-size', 12), ('directory-offset', 16)):
    for _delta in (1, -1, -46, 1 << 20):
        shifted(f'{_name}{_delta:+d}', _at, _delta)
whole('end-disk', 'disk|volume', end={'disk': 1})
whole('end-directory-disk', 'disk|volume', end={'cd_disk': 1})
whole('end-offset-sentinel', 'zip64', end={'cd_offset': MAX32})
whole('end-size-sentinel', 'zip64', end={'cd_size': MAX32})
whole('end-count-sentinel', 'zip64|count|entries', end={'here': MAX16, 'total': MAX16})

# ---- zip64 end structures ----

ANY64 = 'zip64|disk|count|director|entries|offset|size'
whole('zip64-record-missing', ANY64, zip64_end=True, no_end64=True)
whole('zip64-locator-missing', ANY64, zip64_end=True, no_locator=True)
whole('zip64-locator-offset', ANY64, zip64_end=True, locator={'offset': 7})
whole('zip64-locator-offset-beyond', ANY64, zip64_end=True, locator={'offset': 1 << 62})
whole('zip64-locator-disk', 'disk|zip64', zip64_end=True, locator={'disk': 1})
whole('zip64-locator-disks', 'disk|zip64', zip64_end=True, locator={'disks': 2})
whole('zip64-locator-no-disks', 'disk|zip64', zip64_end=True, locator={'disks': 0}, end={'cd_offset': 0})
whole('zip64-record-signature', ANY64, zip64_end=True, end64={'signature': 0x06064b51})
whole('zip64-record-size-small', ANY64, zip64_end=True, end64={'size': 43})
whole('zip64-record-size-large', ANY64, zip64_end=True, end64={'size': 45})
whole('zip64-record-size-huge', ANY64, zip64_end=True, end64={'size': (1 << 64) - 1})
whole('zip64-record-data', ANY64, zip64_end=True, end64_tail=b'later')
whole('zip64-record-disk', 'disk|zip64', zip64_end=True, end64={'disk': 1})
whole('zip64-record-directory-disk', 'disk|zip64', zip64_end=True, end64={'cd_disk': 1})
whole('zip64-record-here', ANY64, zip64_end=True, end64={'here': 5})
whole('zip64-record-offset', ANY64, zip64_end=True, end64={'cd_offset': 0})
whole('zip64-record-offset-huge', ANY64, zip64_end=True, end64={'cd_offset': (1 << 64) - 8})
whole('zip64-record-size-of-directory', ANY64, zip64_end=True, end64={'cd_size': 46})
whole('zip64-record-count-huge', ANY64, zip64_end=True,
      end64={'here': 1 << 62, 'total': 1 << 62})
whole('zip64-gap-before-locator', ANY64, zip64_end=True, before_locator=b'hidden')
whole('zip64-gap-before-end', ANY64 + '|end|gap|belong', zip64_end=True, before_end=b'hidden')
whole('zip64-disagrees-with-end', ANY64, zip64_end=True, end={'here': 5, 'total': 5})
whole('zip64-disagrees-offset', ANY64, zip64_end=True, end={'cd_offset': 3})

# ---- streams ----


def stream(name, regex, path, payload, usize=None, stage='open', **kw):
    """The entry's compressed bytes are `payload(good bytes, data)`; sizes say what is there."""
    @case(name, regex, stage, path, **kw)
    def _(c):
        e = c.entries[path]
        method = zw.METHODS[e.method]
        e.payload = payload(zw.compress(e.data, method), e.data)
        if usize is not None:
            e.local, e.central = {'usize': usize(e.data)}, {'usize': usize(e.data)}


for _m, _p in (('deflate', 'model/b'), ('zstd', 'model/c')):
    _n = zw.METHODS[_m]
    ANY = 'short|long|size|left|trail|trunc|end|corrupt|bytes|decod|hash|sha256|stream|data|frame'
    stream(f'{_m}-shorter-than-declared', ANY, _p, lambda z, d: z, lambda d: len(d) + 1)
    stream(f'{_m}-longer-than-declared', ANY, _p, lambda z, d: z, lambda d: len(d) - 1)
    stream(f'{_m}-declared-empty', ANY, _p, lambda z, d: z, lambda d: 0,
           stage='either')
    stream(f'{_m}-declared-4-gib', ANY, _p, lambda z, d: z, lambda d: MAX32 - 1,
           stage='either')
    stream(f'{_m}-leaves-a-byte', ANY, _p, lambda z, d: z + b'\0')
    stream(f'{_m}-leaves-much', ANY, _p, lambda z, d: z + bytes(100000))
    stream(f'{_m}-truncated', ANY, _p, lambda z, d: z[:-1])
    stream(f'{_m}-cut-in-half', ANY, _p, lambda z, d: z[:len(z) // 2])
    stream(f'{_m}-no-bytes', ANY, _p, lambda z, d: b'', stage='either')
    stream(f'{_m}-garbage', ANY, _p, lambda z, d: b'\xff' * len(z))
    stream(f'{_m}-other-content', ANY, _p,
           lambda z, d, n=_n: zw.compress(d[:-2] + b'!\n', n))
    stream(f'{_m}-stored-bytes', ANY, _p, lambda z, d: d)
    stream(f'{_m}-twice', ANY, _p, lambda z, d: z + z)
stream('stored-other-content', 'hash|sha256|content|crc', 'model/a', lambda z, d: d[:-2] + b'!\n')
stream('zstd-window-over-limit', 'window|memory|large|limit', 'model/c',
       lambda z, d: zw.zstd_frame(d, window_log=28), errors=('EIO', 'EFBIG', 'ENOTSUP'))
stream('zstd-window-2-tib', 'window|memory|large|limit', 'model/c',
       lambda z, d: zw.zstd_frame(d, window_log=41), errors=('EIO', 'EFBIG', 'ENOTSUP'))
stream('zstd-dictionary', 'dictionar|decod|corrupt|frame', 'model/c',
       lambda z, d: zw.zstd_frame(d, dictionary=7), errors=('EIO', 'ENOTSUP'))
stream('zstd-bomb', 'long|size|more', 'model/c',
       lambda z, d: zw.compress(bytes(1 << 28), 93))
stream('deflate-bomb', 'long|size|more', 'model/b', lambda z, d: zw.compress(bytes(1 << 26), 8))


@case('directory-with-data', 'director|size|data', entry='misc')
def _(c):
    c.directory('misc', data=b'bytes')


@case('directory-with-compressed-data', 'more than', entry='misc')
def _(c):
    c.directory('misc', payload=zw.compress(b'bytes', 93), method='zstd')


@case('zip64-record-hides-an-archive', 'zip64 end record is not of 56 bytes')
def _(c):
    """Python's zipfile takes the record right before the locator, which may be another one."""
    hidden = zw.central_header(b'hidden')
    size = len(c.manifest_bytes())
    c.zip.zip64_end = True
    c.zip.end64_tail = hidden + zw.end64_record(here=1, total=1, cd_size=len(hidden), cd_offset=size)


@case('end-record-in-a-comment', 'second end record')
def _(c):
    """libzip takes the end record whose directory looks best: here it may be one without entries."""
    c.change('model/a', comment=zw.end_record())


@case('name-without-utf8-flag', 'UTF-8 flag', entry='misc/é')
def _(c):
    c.add('misc/é', b'x', flags=0)


# FAT, and what 7-Zip takes for NTFS: it makes a symlink; VMS, Atari, BeOS, AtheOS: unzip does
for system in (0, 2, 5, 11, 16, 19, 30):
    @case(f'symlink-of-system-{system}', 'symlink for some', entry='misc/l')
    def _(c, system=system):
        c.symlink('misc/l', 'd', central={'made_by': system << 8 | 20})


fields('directory-of-amiga', 'directory', 'mount', central={'made_by': 1 << 8 | 20, 'external': 0o4000 << 16})


@case('symlink-with-internal-attributes', 'symlink for some', entry='misc/l')
def _(c):
    c.symlink('misc/l', 'd', central={'internal': 4})


@case('unlisted-local-name', 'misc/u: has another name')
def _(c):
    c.add('misc/u', b'x', listed=False, local={'name': b'misc/v'})


@case('directory-local-name', 'name', entry='misc')
def _(c):
    c.directory('misc', local={'name': b'evil/'})


@case('directory-hides-a-file', 'name', entry='misc')
def _(c):
    """Who reads front to back finds a file where the directory has its room for extra fields."""
    c.directory('misc', payload=b'#!/bin/sh\n',
                local={'name': b'evil.sh', 'csize': 10, 'usize': 10},
                central={'csize': 0, 'usize': 0})
    c.reorder = lambda entries: entries[-2:] + entries[:-2]


@case('directory-hides-in-its-extra', 'extra', entry='misc')
def _(c):
    c.directory('misc', local_extra=zw.local_header(b'evil.sh', csize=10, usize=10) + b'#!/bin/sh\n')


# ---- what has no central directory at all ----

for _label, _bytes in {'empty-file': b'', 'one-byte': b'P', 'text': b'not a zip at all\n' * 100,
                       'only-end-signature': b'PK\5\6', 'zeros': bytes(70000),
                       'empty-zip': zw.end_record()}.items():
    case(_label, r'zip|end of central|carton|MANIFEST')(lambda c, b=_bytes: lambda d, p: b)
for _cut in (1, 21, 22, 100):
    case(f'cut-{_cut}', 'end|zip|trunc|comment')(lambda c, n=_cut: lambda d, p: d[:-n])
case('cut-front', 'before|offset|director|signature|size|local|start|zip')(
    lambda c: lambda d, p: d[10:])
