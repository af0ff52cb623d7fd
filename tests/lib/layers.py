# SPDX-License-Identifier: Apache-2.0
"""
Layers of artifacts that are archives, written by Python's tarfile, gzip and the zstd command.

  Entry    what a tar has under a name: bytes, or one of link(), hard(), directory(), device()
  tar      the bytes of a tar with these entries, in one of the formats of FORMATS
  packed   the same compressed: as it is, gzip, gzip in many members as pigz -i writes it, eStargz, gzip with
           zeros behind it, zstd
  image    an artifact as image builders push it: its config lists what each layer unpacks to
"""
import gzip
import io
import json
import struct
import subprocess
import tarfile

from registry import Artifact, digest_of

FORMATS = {'pax': tarfile.PAX_FORMAT, 'gnu': tarfile.GNU_FORMAT, 'ustar': tarfile.USTAR_FORMAT}
LAYER, CONFIG = 'application/vnd.oci.image.layer.v1.tar', 'application/vnd.oci.image.config.v1+json'


def link(target):
    return {'type': tarfile.SYMTYPE, 'linkname': target}


def hard(target):
    return {'type': tarfile.LNKTYPE, 'linkname': target}


def directory():
    return {'type': tarfile.DIRTYPE, 'mode': 0o755}


def device():
    return {'type': tarfile.CHRTYPE, 'devmajor': 1, 'devminor': 3}


def tar(entries, form='pax', executable=()):
    """`entries`: a dict, or pairs where a name comes twice."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=FORMATS[form], encoding='utf-8') as t:
        for name, what in (entries.items() if isinstance(entries, dict) else entries):
            info = tarfile.TarInfo(name)
            info.mode = 0o755 if name in executable else 0o644
            if isinstance(what, bytes):
                info.size = len(what)
            else:
                for k, v in what.items():
                    setattr(info, k, v)
            t.addfile(info, io.BytesIO(what) if isinstance(what, bytes) else None)
    return out.getvalue()


def many(n):
    """A tar with so many empty files: one header, in which name and sum change."""
    head = tarfile.TarInfo('0' * 6).tobuf(tarfile.USTAR_FORMAT)
    rest, least = head[156:512], sum(head[:148]) + sum(head[156:]) + 8 * 32 - 6 * 48
    names = (b'%06d' % i for i in range(n))
    return b''.join(b'%b%b%06o\0 %b' % (name, head[6:148], least + sum(name), rest) for name in names) + bytes(1024)


def members(data, size=20000):
    return b''.join(gzip.compress(data[i:i + size], 1, mtime=0) for i in range(0, len(data), size))


def zstd(data):
    return subprocess.run(['zstd', '-q', '-c', '-1'], input=data, capture_output=True, check=True).stdout


def estargz(data):
    """As stargz-snapshotter writes it: its last member, without data, says where that of the index begins."""
    parts = members(data)
    extra = b'SG' + struct.pack('<H', 22) + b'%016xSTARGZ' % (len(parts) - 100)
    footer = b'\x1f\x8b\x08\x04' + bytes(5) + b'\xff' + struct.pack('<H', len(extra)) + extra
    return parts + footer + b'\x01\0\0\xff\xff' + bytes(8)


CODINGS = {'': lambda data: data, '+gzip': lambda data: gzip.compress(data, 1, mtime=0), '+gzip ': members, '+gzip estargz': estargz,
           '+gzip padded': lambda data: members(data) + bytes(100000),
           '+zstd': lambda data: zstd(data[:30000]) + zstd(data[30000:])}


def packed(data, coding=''):
    """(media type, its bytes)"""
    return LAYER + coding.split(' ')[0], CODINGS[coding](data)


def image(*tars, coding='', diff_ids=None, config=CONFIG):
    text = {'architecture': 'amd64', 'os': 'linux', 'rootfs': {
        'type': 'layers', 'diff_ids': [digest_of(t) for t in tars] if diff_ids is None else diff_ids}}
    layers = [(kind, {}, data, {}) for kind, data in (packed(t, coding) for t in tars)]
    return Artifact(layers=layers, config=(config, json.dumps(text).encode()))
