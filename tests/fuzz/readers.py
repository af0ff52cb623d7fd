# SPDX-License-Identifier: Apache-2.0
"""
Other readers of zip archives, and ours, behind one interface for differential.py.

Each takes the bytes of an archive and gives None if it does not open it, else a list of Seen: the name
without a trailing slash; 'file', 'dir', 'symlink' or 'other' (not a directory, and the reader knows no
more); the size; the sha256 of the content, or None if the reader fails on the entry.
"""
import ctypes
import ctypes.util
import hashlib
import io
import json
import locale
import stat
import os
import struct
import subprocess
import tempfile
import zipfile
import zlib
from typing import NamedTuple, Optional

MAX_READ = 8 << 20      # of one entry


class Seen(NamedTuple):
    name: str
    kind: str
    size: int
    sha256: Optional[str]


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Ours:
    """core/archive, through the program zip-read. `why`: the reason of the last refusal."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, data):
        self.process.stdin.write(struct.pack('<I', len(data)) + data)
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f'zip-read died: {self.process.wait()}'
        got = json.loads(line)
        self.why = got.get('refused')
        return None if self.why is not None else [Seen(*e) for e in got['entries']]

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


def unicode_name(info):
    """The name in the field 0x7075, as Python from 3.13 on takes it (and later ones of 3.12), or None."""
    raw, extra = info.orig_filename.encode('utf-8' if info.flag_bits & 0x800 else 'cp437'), info.extra
    while len(extra) >= 4:
        ident, n = struct.unpack('<HH', extra[:4])
        body, extra = extra[4:4 + n], extra[4 + n:]
        if ident == 0x7075 and len(body) > 5 and body[:5] == struct.pack('<BI', 1, zlib.crc32(raw)):
            return body[5:].decode()
    return None


def python(data):
    """zipfile. It has no kinds but directories."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except Exception:       # it raises many kinds, and all mean that it does not open it
        return None
    out = []
    for info in archive.infolist():
        name = unicode_name(info) or info.filename
        try:
            digest = sha256(archive.open(info).read(MAX_READ)) if info.file_size < MAX_READ else None
        except Exception:
            digest = None
        kind = 'dir' if name.endswith('/') else 'other'
        out.append(Seen(name.removesuffix('/'), kind, info.file_size, digest))
    return out


def library(name):
    path = ctypes.util.find_library(name)
    assert path, f'lib{name} is missing; make test-deps'
    return ctypes.CDLL(path)


def declare(lib, prototypes):
    for name, (result, *args) in prototypes.items():
        fn = getattr(lib, name)
        fn.restype, fn.argtypes = result, args


P, S, N, I, I64 = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int64)
U64, U32 = ctypes.c_uint64, ctypes.c_uint32


class LibArchive:
    """libarchive: its seekable reader, which takes the central directory; or its streaming one."""
    OK, EOF, WARN = 0, 1, -20

    def __init__(self, streaming=False):
        locale.setlocale(locale.LC_CTYPE, 'C.UTF-8')
        self.lib = library('archive')
        declare(self.lib, {
            'archive_read_new': (P,), 'archive_read_free': (I, P),
            'archive_read_support_format_zip_seekable': (I, P),
            'archive_read_support_format_zip_streamable': (I, P),
            'archive_read_open_memory': (I, P, S, N),
            'archive_read_next_header': (I, P, ctypes.POINTER(P)),
            'archive_read_data': (ctypes.c_ssize_t, P, P, N),
            'archive_entry_pathname_utf8': (S, P), 'archive_entry_symlink_utf8': (S, P),
            'archive_entry_filetype': (U32, P), 'archive_entry_size': (I64, P),
            'archive_entry_size_is_set': (I, P)})
        self.streaming = streaming
        self.buffer = ctypes.create_string_buffer(MAX_READ)

    def __call__(self, data):
        lib = self.lib
        a = lib.archive_read_new()
        try:
            if self.streaming:
                lib.archive_read_support_format_zip_streamable(a)
            else:
                lib.archive_read_support_format_zip_seekable(a)
            if lib.archive_read_open_memory(a, data, len(data)) != self.OK:
                return None
            return self.entries(a)
        finally:
            lib.archive_read_free(a)

    def entries(self, a):
        lib, out, e = self.lib, [], P()
        while True:
            r = lib.archive_read_next_header(a, ctypes.byref(e))
            if r == self.EOF:
                return out
            if r < self.WARN:
                return None
            name = lib.archive_entry_pathname_utf8(e)
            name = '?' if name is None else name.decode('utf-8', 'surrogateescape')
            mode = lib.archive_entry_filetype(e)
            if stat.S_ISLNK(mode):
                target = lib.archive_entry_symlink_utf8(e) or b''
                out.append(Seen(name, 'symlink', len(target), sha256(target)))
                continue
            kind = 'dir' if stat.S_ISDIR(mode) else 'file'
            if self.streaming and kind == 'file':
                kind = 'other'      # local headers have no modes
            size, digest = self.content(a)
            if lib.archive_entry_size_is_set(e):
                size = lib.archive_entry_size(e)
            out.append(Seen(name.removesuffix('/'), kind, size, digest))

    def content(self, a):
        n = 0
        while n < MAX_READ:
            got = self.lib.archive_read_data(a, ctypes.byref(self.buffer, n), MAX_READ - n)
            if got < 0:
                return n, None
            if got == 0:
                return n, sha256(ctypes.string_at(self.buffer, n))
            n += got
        return n, None


class Extracted:
    """
    What a program extracts: `command` with the path of the archive behind it, in an empty directory.
    An exit status of `warns` says that it has read the archive, too.
    """

    def __init__(self, *command, warns=()):
        self.command, self.warns = command, (0, *warns)

    def __call__(self, data):
        with tempfile.TemporaryDirectory() as top:
            path, out = os.path.join(top, 'archive.zip'), os.path.join(top, 'out')
            with open(path, 'wb') as f:
                f.write(data)
            os.mkdir(out)
            p = subprocess.run([*self.command, path], cwd=out, stdin=subprocess.DEVNULL, capture_output=True,
                               env=os.environ | {'LC_ALL': 'C.UTF-8'})
            return None if p.returncode not in self.warns else list(self.found(out))

    @staticmethod
    def found(out):
        for at, dirs, files in os.walk(out):
            for full in (os.path.join(at, n) for n in dirs + files):
                name = os.path.relpath(full, out)
                if os.path.islink(full):
                    target = os.readlink(full).encode()
                    yield Seen(name, 'symlink', len(target), sha256(target))
                elif os.path.isdir(full):
                    yield Seen(name, 'dir', 0, None)
                else:
                    with open(full, 'rb') as f:
                        content = f.read()
                    yield Seen(name, 'file', len(content), sha256(content))


# 1: a warning, also without a word; 2: of "/", which has no name to extract
UNZIP = Extracted('unzip', '-q', '-o', warns=(1, 2))
SEVENZIP = Extracted('7zz', 'x', '-y')


class ZipStat(ctypes.Structure):
    _fields_ = [('valid', U64), ('name', S), ('index', U64), ('size', U64), ('comp_size', U64),
                ('mtime', ctypes.c_long), ('crc', U32), ('comp_method', ctypes.c_uint16),
                ('encryption_method', ctypes.c_uint16), ('flags', U32)]


class LibZip:
    """libzip, without its consistency checks: what most programs use. It has no kinds but directories."""

    def __init__(self):
        self.lib = library('zip')
        declare(self.lib, {
            'zip_source_buffer_create': (P, S, U64, I, P), 'zip_source_free': (None, P),
            'zip_open_from_source': (P, P, I, P), 'zip_discard': (None, P),
            'zip_get_num_entries': (I64, P, U32), 'zip_stat_index': (I, P, U64, U32, P),
            'zip_get_name': (S, P, U64, U32), 'zip_fopen_index': (P, P, U64, U32),
            'zip_fread': (I64, P, P, U64), 'zip_fclose': (I, P)})
        self.buffer = ctypes.create_string_buffer(MAX_READ)

    def __call__(self, data):
        lib = self.lib
        source = lib.zip_source_buffer_create(data, len(data), 0, None)
        archive = lib.zip_open_from_source(source, 16, None)     # ZIP_RDONLY
        if not archive:
            lib.zip_source_free(source)
            return None
        out = []
        for i in range(lib.zip_get_num_entries(archive, 0)):
            st = ZipStat()
            name = lib.zip_get_name(archive, i, 0)
            if name is None or lib.zip_stat_index(archive, i, 0, ctypes.byref(st)) < 0:
                out.append(Seen('?', 'other', 0, None))
                continue
            name = name.decode('utf-8', 'surrogateescape')
            kind = 'dir' if name.endswith('/') else 'other'
            out.append(Seen(name.removesuffix('/'), kind, st.size, self.content(archive, i)))
        lib.zip_discard(archive)
        return out

    def content(self, archive, i):
        f = self.lib.zip_fopen_index(archive, i, 0)
        if not f:
            return None
        n = self.lib.zip_fread(f, self.buffer, MAX_READ)
        end = self.lib.zip_fread(f, ctypes.byref(self.buffer, n), 1) if 0 <= n < MAX_READ else -1
        bad = self.lib.zip_fclose(f)
        return None if n < 0 or end != 0 or bad else sha256(ctypes.string_at(self.buffer, n))
