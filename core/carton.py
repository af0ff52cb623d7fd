# SPDX-License-Identifier: Apache-2.0
"""
Cartons from Python, by libcarton: files and tensors whose bytes are verified, without a mount.

    import carton
    with carton.open('m.carton') as c:      # or https://, s3://, hf://, oci://
        print(c.listdir('model'), c.info()['model_name'])
        with c.open('model/config.json') as f:
            print(f.read())
        weights = c.tensor('weights')       # needs numpy

Options are the members of struct carton_options, see carton.h: carton.open(url, offline=True).
Failures are OSError with errno and the text of the library; DamagedError where bytes are not those
that MANIFEST says, of which none is returned. Ctrl-C ends a wait for a server at once. Any thread may
use a carton and its files, and under gevent and eventlet a wait stops the whole thread, as a read of
the disk does. Of a process that was forked they cannot be used: it opens the carton anew, and so does
whoever would copy or pickle one. Where fsspec is installed, fsspec.filesystem('carton', fo=source) is
a carton. LIBCARTON names a library that is not installed.
"""
import atexit
import collections
import ctypes
import difflib
import errno
import functools
import io
import itertools
import json
import math
import mmap
import operator
import os
import sys
import weakref
# gevent and eventlet replace threading and queue, and then a wait is for greenlets only; they do not replace these
from _queue import SimpleQueue
from _thread import RLock

__all__ = ['open', 'Carton', 'DamagedError', 'File', 'Stat']

c_bool, c_char_p, c_int, c_void_p = ctypes.c_bool, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p
c_uint, c_uint64 = ctypes.c_uint, ctypes.c_uint64
_list = ctypes.POINTER(c_char_p)
_pointer = ctypes.POINTER(c_void_p)
_done_fn = ctypes.CFUNCTYPE(None, c_void_p, c_int)


class _Options(ctypes.Structure):
    _fields_ = [('verify', c_int), ('manifest_sha256', c_char_p), ('sha256', c_char_p), ('cache_dir', c_char_p),
                ('cache_size', c_uint64), ('noseals', c_bool), ('hash_all', c_bool), ('chunks', c_bool),
                ('memory', c_uint64), ('offline', c_bool), ('connections', c_uint), ('timeout_s', c_uint),
                ('wait', c_bool), ('max_size', c_uint64), ('private_links', c_bool), ('hub_token', c_bool),
                ('cacert', c_char_p), ('header_file', c_char_p), ('mirrors', _list), ('views', c_char_p),
                ('views_hidden', c_bool), ('keep_going', c_bool), ('confine', c_void_p), ('confine_ctx', c_void_p),
                ('damaged', c_void_p), ('damaged_ctx', c_void_p), ('push_to', c_char_p), ('verify_keys', _list),
                ('verify_cas', _list), ('signer', c_char_p), ('signature', c_char_p), ('beside', c_char_p),
                ('progress', c_void_p), ('progress_ctx', c_void_p), ('date', ctypes.c_int64),
                ('requester_pays', c_bool), ('plain_http', _list), ('cache_key', c_char_p),
                ('late', c_int)]


class _Range(ctypes.Structure):
    _fields_ = [('file', c_void_p), ('off', c_uint64), ('n', ctypes.c_size_t)]


class _Stat(ctypes.Structure):
    _fields_ = [('kind', c_int), ('executable', c_bool), ('ino', c_uint64), ('size', c_uint64),
                ('size_known', c_bool), ('size_certain', c_bool), ('nlink', ctypes.c_uint32), ('hidden', c_bool),
                ('mtime', ctypes.c_int64)]


_lib = ctypes.CDLL(os.environ.get('LIBCARTON', 'libcarton.so.0'))
_libc = ctypes.CDLL(None)
_libc.free.restype, _libc.free.argtypes = None, [c_void_p]
for _name, _result, *_arguments in (
        ('open_later', c_int, c_char_p, ctypes.POINTER(_Options), _done_fn, c_void_p, _pointer),
        ('stop', None, c_void_p), ('close', None, c_void_p),
        ('error', c_char_p, c_int), ('is_bare', c_bool, c_void_p),
        ('model_hash', None, c_void_p, c_char_p),
        ('info', c_int, c_void_p, _pointer), ('root', c_void_p, c_void_p),
        ('next', c_void_p, c_void_p, c_void_p), ('child', c_void_p, c_void_p, ctypes.c_size_t),
        ('resolve', c_int, c_void_p, c_char_p, _pointer), ('path', None, c_void_p, c_char_p),
        ('name', c_char_p, c_void_p), ('stat', None, c_void_p, ctypes.POINTER(_Stat)),
        ('list', c_int, c_void_p, c_void_p, _done_fn, c_void_p, _pointer),
        ('size', c_int, c_void_p, c_void_p, _done_fn, c_void_p, _pointer),
        ('pin', c_int, c_void_p, c_void_p, _done_fn, c_void_p, _pointer), ('unpin', None, c_void_p),
        ('read', ctypes.c_ssize_t, c_void_p, c_void_p, ctypes.c_size_t, c_uint64, c_bool),
        ('read_later', c_int, c_void_p, ctypes.POINTER(_Range), _done_fn, c_void_p, _pointer),
        ('request_data', c_void_p, c_void_p), ('request_cancel', c_bool, c_void_p), ('request_free', None, c_void_p)):
    _function = getattr(_lib, 'carton_' + _name)
    _function.restype, _function.argtypes = _result, _arguments

_KINDS = 'directory', 'file', 'symlink'
_MAPPED = 1 << 20       # bytes from which memory is mapped: it comes zeroed, and goes back at once
_AT_ONCE = 1 << 20      # bytes of a read that does not wait,
_LATER = 1 << 24        # and of one that does, which the library has in memory once more
Stat = collections.namedtuple('Stat', 'name kind size executable mtime')
Stat.__doc__ = "kind: 'directory', 'file' or 'symlink'; mtime: seconds since 1970."


class DamagedError(OSError):
    """The bytes are not what MANIFEST says, or the carton is damaged."""


def _check(r, path, text=None):
    if r < 0:
        text = (text or _lib.carton_error(r)).decode(errors='replace')
        kind = DamagedError if -r == errno.EBADMSG else OSError
        raise kind(-r, text[len(path) + 2:] if text.startswith(path + ': ') else text, path)
    return r


def _bytes(path):
    """A path as the library takes it, which would end at a NUL."""
    path = os.fsencode(path)
    if b'\0' in path:
        raise ValueError('embedded null byte')
    return path


def _check_process(pid):
    if pid != os.getpid():
        raise RuntimeError('the carton was opened before a fork: open it in this process')


class _NotCopied:
    """An object that cannot be copied: what the library holds for it is freed once, at its end."""

    def __reduce_ex__(self, protocol):
        raise TypeError(f'cannot copy or pickle a {type(self).__name__}: open it again')


# ---- waits ----

_waits, _numbers = {}, itertools.count(1)
_late = []              # handles of cartons to close: carton_close() would wait for its own thread

for _shared in _waits, _late:           # the threads that have added to them are not in the child
    os.register_at_fork(after_in_child=_shared.clear)


@_done_fn
def _on_done(number, result):
    """Called on a thread of the library."""
    ended, results = _waits.pop(number, (None, None))
    if ended:       # else nobody waits any more
        results.extend((result, _lib.carton_error(result)))
        ended.put(None)


def _is_of_library():
    """
    Is this thread one of the library's? There, what is here was called first: _on_done(), or by the collector, which may
    run before and after it, too, the end of an object.
    """
    frame = sys._getframe()
    while frame.f_back:
        frame = frame.f_back
    return frame.f_globals is globals()


def _close_late():
    while _late:
        try:
            handle = _late.pop()
        except IndexError:      # another thread was faster
            return
        _lib.carton_close(handle)


def _run(begin, first, second, handle, cancel, undo=None):
    """
    Starts what has the handle, and waits for its end, or for Ctrl-C. Then `cancel` says whether nothing will come of
    it; else it ends soon, and `undo` reverts a success. The result, and the text of a failure.
    """
    number, ended, results = next(_numbers), SimpleQueue(), []
    _waits[number] = ended, results
    try:
        r = begin(first, second, _on_done, number, ctypes.byref(handle))
        if r == -errno.EINPROGRESS:
            ended.get()
    except BaseException:
        if handle and not cancel(handle):
            if not results:
                ended.get()
            if undo and results[0] == 0:
                undo()
        raise
    finally:
        _waits.pop(number, None)
        _close_late()
    return results or (r, None)


def _wait(begin, first, second, path, undo=None, take=None):
    """For a request that `begin` starts; `take` gets it with its result."""
    request = c_void_p()
    try:
        r, text = _run(begin, first, second, request, _lib.carton_request_cancel, undo)
        _check(r, path, text)
        return take(request, r) if take else r
    finally:
        _lib.carton_request_free(request)


# ---- files ----

class File(_NotCopied, io.RawIOBase):
    """A file that was verified when it was opened, or is as it is read; each read is checked."""
    mode = 'rb'

    def __init__(self, carton, path):
        self._node, self._at, self._lock, self._carton, self._pid = None, 0, RLock(), None, os.getpid()
        self.name, self._carton = os.fspath(path), carton._use()
        stat = _Stat()
        try:
            node = carton._resolve(path)
            _wait(_lib.carton_pin, carton._handle, node, os.fsdecode(path), lambda: _lib.carton_unpin(node))
        except BaseException:
            self.close()
            raise
        self._node = node
        _lib.carton_stat(node, ctypes.byref(stat))
        self.size = stat.size

    def _locked(self):
        """The lock; in a forked process an error, since a thread that is not there may hold the lock for good."""
        _check_process(self._pid)
        return self._lock

    def _check_open(self):
        if self.closed or not self._node:
            raise ValueError('I/O operation on closed file')

    def readable(self):
        return True

    seekable = readable

    def write(self, data):
        # io.RawIOBase has none
        raise io.UnsupportedOperation('not writable')

    def tell(self):
        return self.seek(0, io.SEEK_CUR)

    def seek(self, offset, whence=io.SEEK_SET):
        offset, whence = operator.index(offset), operator.index(whence)
        with self._locked():
            self._check_open()
            if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
                raise ValueError(f'invalid whence: {whence}')
            at = offset + (0, self._at, self.size)[whence]
            if at < 0:
                raise ValueError(f'negative seek position {at}')
            self._at = at
            return at

    def _read(self, view, at):
        """Some bytes; those that are not in memory are waited for, so that Ctrl-C is heeded."""
        def take(request, n):
            ctypes.memmove(into, _lib.carton_request_data(request), n)
            return n

        path, handle = os.fsdecode(self.name), self._carton._handle
        n, into = len(view), ctypes.byref(ctypes.c_char.from_buffer(view))
        got = _lib.carton_read(self._node, into, min(n, _AT_ONCE), at, True)
        if got < 0:     # what it has read by then may not have been compared
            ctypes.memset(into, 0, min(n, _AT_ONCE))
        if got != -errno.EAGAIN:
            return _check(got, path)
        part = _Range(self._node, at, min(n, _LATER))
        return _wait(_lib.carton_read_later, handle, ctypes.byref(part), path, take=take)

    def readinto(self, buffer):
        view, done = memoryview(buffer), 0
        view = view.cast('B') if view.nbytes else view      # there is no cast of nothing
        with self._locked():
            self._check_open()
            size = min(view.nbytes, max(self.size - self._at, 0))
            while done < size and (got := self._read(view[done:size], self._at + done)):
                done += got
            self._at += done
            return done

    def read(self, size=-1):
        return bytes(self.memoryview(size))

    def readall(self):
        return self.read()

    def memoryview(self, size=-1):
        """As read(), but without a copy of what was read into memory."""
        size = -1 if size is None else operator.index(size)
        with self._locked():
            self._check_open()
            n = max(self.size - self._at, 0)
            n = n if size < 0 else min(size, n)
            data, done = memoryview(mmap.mmap(-1, n) if n >= _MAPPED else bytearray(n)), 0
            while done < n and (got := self.readinto(data[done:])):
                done += got
            return data[:done].toreadonly()

    def close(self):
        if self._pid != os.getpid():
            return super().close()
        with self._lock:
            node, self._node = self._node, None
            carton, self._carton = self._carton, None
            super().close()
        if carton:
            carton._release(node)


def _passed_on(name):
    @functools.wraps(getattr(io.BufferedReader, name))
    def call(self, *args):
        return getattr(self._reader, name)(*args)
    return call


class BufferedFile(_NotCopied, io.BufferedIOBase):
    """
    A File with a buffer, as the built-in open() gives. It is no io.BufferedReader: numpy before 1.25 assumes that
    each of these has a file descriptor, and a File has none.
    """
    mode, _reader = 'rb', None

    def __init__(self, raw, size):
        self._reader, self.name, self.size = io.BufferedReader(raw, size), raw.name, raw.size

    @property
    def raw(self):
        return self._reader.raw

    @property
    def closed(self):
        return self._reader is None or self._reader.closed


for _name in ('close', 'detach', 'fileno', 'isatty', 'peek', 'read', 'read1', 'readable', 'readinto', 'readinto1',
              'readline', 'readlines', 'seek', 'seekable', 'tell'):
    setattr(BufferedFile, _name, _passed_on(_name))


# ---- cartons ----

def _in_use(function):
    @functools.wraps(function)
    def call(self, *args, **keywords):
        self._use()
        try:
            return function(self, *args, **keywords)
        finally:
            self._release()
    return call


_kinds = {name: kind for name, kind in _Options._fields_ if kind is not c_void_p}


def _option(name, value):
    """The value for the member `name` of _Options."""
    if name not in _kinds:
        near = difflib.get_close_matches(name, _kinds, 1)
        raise TypeError(f'no such option: {name}' + ''.join(f'; did you mean {n}?' for n in near))
    kind = _kinds[name]
    if kind is c_bool or (value is None and kind in (_list, c_char_p)):
        return value
    if kind is c_char_p:
        return _bytes(value)
    if kind is not _list:
        number = operator.index(value)
        if kind(number).value != number:
            raise OverflowError(f'{name} is out of range: {number}')
        return number
    if isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f'{name} takes a list: [{value!r}]')
    value = list(value)
    return (c_char_p * (len(value) + 1))(*map(_bytes, value), None)


class Carton(_NotCopied):
    """What open() gives. It is closed once its files are, too."""

    def __init__(self, source, **options):
        self._handle, self._lock, self._users, self._closed = c_void_p(), RLock(), 0, True
        self._pid, self._indexes, self.source = os.getpid(), {}, os.fspath(source)
        values = _Options(chunks=True)
        for name, value in {'views': 'views', **options}.items():
            setattr(values, name, _option(name, value))
        self._views = os.fsdecode(values.views or b'')
        name, strings = os.fsdecode(source), _bytes(source)
        try:
            r, text = _run(_lib.carton_open_later, strings, values, self._handle, _lib.carton_stop)
            _check(r, name, text)
        except BaseException:
            handle, self._handle = self._handle, c_void_p()
            _lib.carton_close(handle)
            raise
        self._closed = False
        _open.add(self)

    def _use(self):
        _check_process(self._pid)
        with self._lock:
            if self._closed:
                raise ValueError('the carton is closed')
            self._users += 1
        return self

    def _release(self, node=None):
        # a fork has neither the threads of the library, nor locks that can be trusted
        if self._pid == os.getpid():
            if node:
                _lib.carton_unpin(node)
            with self._lock:
                self._users -= 1
                self._end()

    def _end(self):
        if self._closed and not self._users and self._handle:
            handle, self._handle = self._handle, c_void_p()
            _late.append(handle)
            if not _is_of_library():
                _close_late()

    def close(self):
        if self._pid == os.getpid():
            with self._lock:
                self._closed = True
                self._end()

    def __del__(self):
        if hasattr(self, '_pid'):
            self.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _resolve(self, path):
        """Waits for the generated directories above it before the library would, which does not heed Ctrl-C."""
        node, name, parts = c_void_p(_lib.carton_root(self._handle)), os.fsdecode(path), _bytes(path).rstrip(b'/')
        parts = parts.split(b'/')
        for n in range(1, len(parts) + 1):
            _wait(_lib.carton_list, self._handle, node, name)
            _check(_lib.carton_resolve(self._handle, b'/'.join(parts[:n]), ctypes.byref(node)), name)
        return node

    def _stat(self, node):
        stat, name = _Stat(), os.fsdecode(_lib.carton_name(node))
        _lib.carton_stat(node, ctypes.byref(stat))
        if not stat.size_known:
            _wait(_lib.carton_size, self._handle, node, name)
            _lib.carton_stat(node, ctypes.byref(stat))
        return Stat(name, _KINDS[stat.kind], stat.size, stat.executable, stat.mtime), stat.hidden

    @property
    @_in_use
    def model_hash(self):
        """The sha256 of MANIFEST; '' of a bare file."""
        text = ctypes.create_string_buffer(65)
        _lib.carton_model_hash(self._handle, text)
        return text.value.decode()

    @_in_use
    def info(self):
        """What carton.toml says, as cartonctl info --json."""
        text = c_void_p()
        _check(_lib.carton_info(self._handle, ctypes.byref(text)), 'carton.toml')
        try:
            return json.loads(ctypes.string_at(text))
        finally:
            _libc.free(text)

    @_in_use
    def paths(self):
        """Those of all files and directories but what is below views/."""
        found, path = [], ctypes.create_string_buffer(4096)
        node = _lib.carton_root(self._handle)
        while node := _lib.carton_next(self._handle, node):
            _lib.carton_path(node, path)
            found.append(os.fsdecode(path.value))
        return found

    @_in_use
    def scandir(self, path=''):
        """A Stat of each entry of a directory."""
        directory, found = self._resolve(path), []
        if self._stat(directory)[0].kind != 'directory':
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        _wait(_lib.carton_list, self._handle, directory, os.fsdecode(path))
        for index in itertools.count():
            node = _lib.carton_child(directory, index)
            if not node:
                return found
            stat, hidden = self._stat(node)
            if not hidden:
                found.append(stat)

    def listdir(self, path=''):
        """The names in a directory."""
        return [entry.name for entry in self.scandir(path)]

    @_in_use
    def stat(self, path):
        """Of a symlink: of its file."""
        return self._stat(self._resolve(path))[0]

    def file(self, path):
        """Verifies a file, and opens it: a File, without a buffer."""
        return File(self, path)

    def open(self, path, mode='r', buffering=-1, **text):
        """As the built-in open(), for reading: a File with buffering=0, a reader with a buffer, or text."""
        if mode not in ('r', 'rt', 'tr', 'rb', 'br'):
            raise io.UnsupportedOperation(f'a carton can only be read, with the mode r, rt or rb: {mode!r}')
        buffering = operator.index(buffering)
        if buffering == 0 and 'b' not in mode:
            raise ValueError('text needs a buffer')
        raw = File(self, path)
        if buffering == 0:
            return raw
        reader = BufferedFile(raw, buffering if buffering > 1 else 1 << 17)
        return reader if 'b' in mode else io.TextIOWrapper(reader, **text)

    def memoryview(self, path):
        """The bytes of a file, in memory of their own."""
        with File(self, path) as f:
            return f.memoryview()

    def _index(self, file):
        where = os.path.join(self._views, file or 'tensor_data')
        where = '' if _lib.carton_is_bare(self._handle) else where
        if where not in self._indexes:
            try:
                index = json.loads(bytes(self.memoryview(os.path.join(where, 'index.json'))))
            except FileNotFoundError as e:
                self._explain(file, e)
                return where, {}
            if file and not index['tensors']:    # a damaged file has none, and its error says why
                with File(self, file) as f:
                    f.read(1)
            self._indexes[where] = {t['name']: t for t in index['tensors']}
        return where, self._indexes[where]

    def _explain(self, file, missing):
        """Returns if there is no index because the carton has no tensor_data."""
        try:
            self._resolve(file or 'tensor_data')
        except FileNotFoundError:
            if file:
                raise
            return
        raise FileNotFoundError(missing.errno, 'has no tensors, or views are off', file or 'tensor_data') from None

    @_in_use
    def tensors(self, file=None):
        """Of tensor_data, or of a safetensors file of the carton: a dict for each by name."""
        return {name: dict(tensor) for name, tensor in self._index(file)[1].items()}

    @_in_use
    def tensor(self, name, file=None):
        """
        A tensor as a read-only array of numpy, over the bytes that were read. What numpy has no dtype for, such as
        BF16, comes as unsigned integers of its size.
        """
        import numpy
        where, index = self._index(file)
        if name not in index:
            raise KeyError(name)
        files = [f for f in index[name]['files'] if '/' not in f]
        if not files:
            raise TypeError(f"{name} is nested: its parts are {', '.join(index[name].get('inner', ()))}")
        best = next((f for f in files if f.endswith('.npy')), files[0])
        data = self.memoryview(os.path.join(where, best))
        if not best.endswith('.npy'):
            return _plain(numpy, data, index[name]['shape'])
        head = io.BytesIO(data[:65536])
        version = numpy.lib.format.read_magic(head)
        read = numpy.lib.format.read_array_header_1_0 if version == (1, 0) else \
            numpy.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(head)
        return numpy.frombuffer(data, dtype, offset=head.tell()).reshape(shape, order='F' if fortran else 'C')


def _plain(numpy, data, shape):
    size, rest = divmod(len(data), math.prod(shape) or 1)
    plain = size in (1, 2, 4, 8) and not rest
    # else they have less than a byte each
    return numpy.frombuffer(data, f'<u{size}').reshape(shape) if plain else numpy.frombuffer(data, 'u1')


def __dir__():
    return [*__all__, '__doc__', '__file__', '__name__']


_open = weakref.WeakSet()


@atexit.register
def _at_exit():
    """Ends the threads of the library before the interpreter."""
    for c in list(_open):
        c.close()
    _close_late()


def open(source, **options):    # noqa: A001: carton.open() is its name
    """Opens the carton at a path or URL."""
    return Carton(source, **options)


try:    # an installed package is found by its entry point as well
    import fsspec as _fsspec
except ImportError:
    pass
else:
    _fsspec.register_implementation('carton', 'carton_fsspec.CartonFileSystem', clobber=True)
