# SPDX-License-Identifier: Apache-2.0
"""
Cartons from Python, by libcarton: files and tensors whose bytes are verified, without a mount.

    import carton
    with carton.open('m.carton') as c:
        print(c.paths())
        with c.file('model/config.json') as f:
            print(f.read())
        weights = c.tensor('weights')       # needs numpy

Options are the members of struct carton_options, see carton.h: carton.open(url, offline=True).
Failures are OSError with the text of the library. Threads of the library run while a carton is
open: do not fork then. LIBCARTON names the library if it is not installed.
"""
import atexit
import ctypes
import io
import os
import threading
import weakref

__all__ = ['open', 'Carton', 'File']

c_bool, c_char_p, c_int, c_void_p = ctypes.c_bool, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p
c_uint, c_uint64 = ctypes.c_uint, ctypes.c_uint64
_list = ctypes.POINTER(c_char_p)
_log_fn = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)


class _Options(ctypes.Structure):
    _fields_ = [('verify', c_int), ('manifest_sha256', c_char_p), ('sha256', c_char_p), ('cache_dir', c_char_p),
                ('cache_size', c_uint64), ('noseals', c_bool), ('hash_all', c_bool), ('chunks', c_bool),
                ('memory', c_uint64), ('offline', c_bool), ('connections', c_uint), ('timeout_s', c_uint),
                ('wait', c_bool), ('max_size', c_uint64), ('private_links', c_bool), ('hub_token', c_bool),
                ('cacert', c_char_p), ('header_file', c_char_p), ('mirrors', _list), ('views', c_char_p),
                ('views_hidden', c_bool), ('keep_going', c_bool), ('confine', c_void_p), ('confine_ctx', c_void_p),
                ('damaged', c_void_p), ('damaged_ctx', c_void_p), ('push_to', c_char_p), ('verify_keys', _list),
                ('verify_cas', _list), ('signer', c_char_p), ('signature', c_char_p), ('beside', c_char_p)]


class _Stat(ctypes.Structure):
    _fields_ = [('kind', c_int), ('executable', c_bool), ('ino', c_uint64), ('size', c_uint64),
                ('size_known', c_bool), ('size_certain', c_bool), ('nlink', ctypes.c_uint32), ('hidden', c_bool),
                ('mtime', ctypes.c_int64)]


_lib = ctypes.CDLL(os.environ.get('LIBCARTON', 'libcarton.so.0'))
for _name, _result, *_arguments in (
        ('open', c_int, c_char_p, ctypes.POINTER(_Options), ctypes.POINTER(c_void_p)),
        ('close', None, c_void_p), ('root', c_void_p, c_void_p), ('next', c_void_p, c_void_p, c_void_p),
        ('resolve', c_int, c_void_p, c_char_p, ctypes.POINTER(c_void_p)), ('path', None, c_void_p, c_char_p),
        ('pin_wait', c_int, c_void_p, c_void_p), ('unpin', None, c_void_p),
        ('stat', None, c_void_p, ctypes.POINTER(_Stat)),
        ('read', ctypes.c_ssize_t, c_void_p, c_void_p, ctypes.c_size_t, c_uint64, c_bool),
        ('model_hash', None, c_void_p, c_char_p), ('log_set', None, _log_fn, c_void_p)):
    _function = getattr(_lib, 'carton_' + _name)
    _function.restype, _function.argtypes = _result, _arguments

_TEXTS = 256
_texts = {}     # of errors, by their subject, such as a path; the newest are last
_newest = (0, None)     # how many there were, and the last with its subject
_thread = threading.local()


@_log_fn
def _on_log(_ctx, level, subject, message):
    """On any thread. A file is hashed on another one than that which waits, so its path finds the text."""
    global _newest
    if level == 0:
        subject, message = (subject or b'').decode(), message.decode()
        _texts.pop(subject, None)
        _texts[subject] = message
        _thread.text = f'{subject}: {message}' if subject else message
        _newest = _newest[0] + 1, _thread.text
        for old in list(_texts)[:-_TEXTS]:
            _texts.pop(old, None)


_lib.carton_log_set(_on_log, None)


def _check(r, path, text=None):
    if r < 0:
        raise OSError(-r, text or _texts.get(path) or os.strerror(-r), path)
    return r


class File(io.RawIOBase):
    """A file that was verified when it was opened; each read is checked again."""

    def __init__(self, carton, path):
        self._node, self._at, self._lock = None, 0, threading.RLock()
        self.name, self._carton = path, carton._use()
        node, before = c_void_p(), _newest
        try:
            _check(_lib.carton_resolve(carton._handle, os.fsencode(path), ctypes.byref(node)), path)
            r = _lib.carton_pin_wait(carton._handle, node)
            # a view is not what is damaged: its text has the path of that
            _check(r, path, None if path in _texts or _newest is before else _newest[1])
        except BaseException:
            self._carton = None
            carton._release()
            raise
        self._node, stat = node, _Stat()
        _lib.carton_stat(node, ctypes.byref(stat))
        self.size = stat.size

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self._at

    def seek(self, offset, whence=io.SEEK_SET):
        with self._lock:
            at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
            if at < 0:
                raise ValueError('before the start')
            self._at = at
            return at

    def readinto(self, buffer):
        with self._lock:
            if self.closed:
                raise ValueError('the file is closed')
            view = memoryview(buffer).cast('B')
            if not len(view):
                return 0
            n = _check(_lib.carton_read(self._node, (ctypes.c_char * len(view)).from_buffer(view), len(view),
                                        self._at, False), self.name)
            self._at += n
            return n

    def close(self):
        with self._lock:
            if not self.closed and self._node:
                _lib.carton_unpin(self._node)
                self._node = None
            carton, self._carton = self._carton, None
            super().close()
        if carton:
            carton._release()


class Carton:
    """What open() gives. It is closed once its files are, too."""

    def __init__(self, source, **options):
        self._handle, self._lock, self._users, self._closed = c_void_p(), threading.RLock(), 0, True
        known, values = dict(_Options._fields_), _Options(views=b'views', chunks=True)
        for name, value in options.items():
            if name not in known or known[name] is c_void_p:
                raise TypeError(f'no such option: {name}')
            if known[name] is _list:
                value = (c_char_p * (len(value) + 1))(*map(os.fsencode, value), None)
            elif known[name] is c_char_p and value is not None:
                value = os.fsencode(value)
            setattr(values, name, value)
        _thread.text = None
        _check(_lib.carton_open(os.fsencode(source), ctypes.byref(values), ctypes.byref(self._handle)),
               os.fspath(source), _thread.text)
        self._closed = False
        _open.add(self)

    def _use(self):
        with self._lock:
            if self._closed:
                raise ValueError('the carton is closed')
            self._users += 1
        return self

    def _release(self):
        with self._lock:
            self._users -= 1
            self._end()

    def _end(self):
        if self._closed and not self._users and self._handle:
            _lib.carton_close(self._handle)
            self._handle = c_void_p()

    def close(self):
        with self._lock:
            self._closed = True
            self._end()

    __del__ = close

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def model_hash(self):
        text = ctypes.create_string_buffer(65)
        self._use()
        try:
            _lib.carton_model_hash(self._handle, text)
        finally:
            self._release()
        return text.value.decode()

    def paths(self):
        """Those of all files and directories but views/."""
        found, path = [], ctypes.create_string_buffer(4096)
        self._use()
        try:
            node = _lib.carton_root(self._handle)
            while node := _lib.carton_next(self._handle, node):
                _lib.carton_path(node, path)
                found.append(os.fsdecode(path.value))
        finally:
            self._release()
        return found

    def file(self, path):
        """Verifies a file, and opens it."""
        return File(self, os.fspath(path))

    def memoryview(self, path):
        """The bytes of a file, in memory of their own."""
        with self.file(path) as f:
            data, at = memoryview(bytearray(f.size)), 0
            while at < len(data) and (n := f.readinto(data[at:])):
                at += n
            return data[:at].toreadonly()

    def tensor(self, name):
        """A tensor of carton.toml as a read-only array of numpy, over the bytes that were read."""
        import numpy
        data = self.memoryview(f'views/tensor_data/{name}.npy')
        head = io.BytesIO(data[:65536])
        version = numpy.lib.format.read_magic(head)
        read = numpy.lib.format.read_array_header_1_0 if version == (1, 0) else \
            numpy.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(head)
        return numpy.frombuffer(data, dtype, offset=head.tell()).reshape(shape, order='F' if fortran else 'C')


_open = weakref.WeakSet()


@atexit.register
def _at_exit():
    """Ends the threads of the library before the interpreter."""
    for c in list(_open):
        c.close()


def open(source, **options):    # noqa: A001: carton.open() is its name
    """Opens the carton at a path or URL."""
    return Carton(source, **options)
