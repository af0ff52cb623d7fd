#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
libcarton from Python, without a compiler: lists a carton, or reads a tensor of it into NumPy.

	example.py CARTON [PATH.npy]

Set LIBCARTON=FILE if the library is not installed.
"""
import ctypes
import errno
import io
import os
import sys
import threading

c_int, c_char_p, c_void_p, c_size_t = ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t
DONE = ctypes.CFUNCTYPE(None, c_void_p, c_int)
LOG = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)


class Options(ctypes.Structure):
    """struct carton_options; all zero is the default for everything."""
    _fields_ = [('verify', c_int), ('manifest_sha256', c_char_p), ('sha256', c_char_p), ('cache_dir', c_char_p),
                ('cache_size', ctypes.c_uint64), ('noseals', ctypes.c_bool), ('hash_all', ctypes.c_bool),
                ('chunks', ctypes.c_bool), ('memory', ctypes.c_uint64),
                ('offline', ctypes.c_bool), ('connections', ctypes.c_uint),
                ('timeout_s', ctypes.c_uint), ('wait', ctypes.c_bool), ('max_size', ctypes.c_uint64),
                ('private_links', ctypes.c_bool), ('hub_token', ctypes.c_bool),
                ('cacert', c_char_p), ('header_file', c_char_p), ('mirrors', c_void_p), ('views', c_char_p),
                ('views_hidden', ctypes.c_bool), ('keep_going', ctypes.c_bool),
                ('confine', c_void_p), ('confine_ctx', c_void_p),
                ('damaged', c_void_p), ('damaged_ctx', c_void_p), ('push_to', c_char_p),
                ('verify_keys', c_void_p), ('verify_cas', c_void_p), ('signer', c_char_p), ('signature', c_char_p),
                ('beside', c_char_p)]


lib = ctypes.CDLL(os.environ.get('LIBCARTON', 'libcarton.so.0'))
for name, result, *arguments in (
        ('carton_open', c_int, c_char_p, ctypes.POINTER(Options), ctypes.POINTER(c_void_p)),
        ('carton_close', None, c_void_p),
        ('carton_root', c_void_p, c_void_p),
        ('carton_next', c_void_p, c_void_p, c_void_p),
        ('carton_resolve', c_int, c_void_p, c_char_p, ctypes.POINTER(c_void_p)),
        ('carton_path', None, c_void_p, c_char_p),
        ('carton_pin', c_int, c_void_p, c_void_p, DONE, c_void_p, ctypes.POINTER(c_void_p)),
        ('carton_unpin', None, c_void_p),
        ('carton_request_free', None, c_void_p),
        ('carton_read', ctypes.c_ssize_t, c_void_p, c_void_p, c_size_t, ctypes.c_uint64, ctypes.c_bool),
        ('carton_log_set', None, LOG, c_void_p)):
    function = getattr(lib, name)
    function.restype, function.argtypes = result, arguments


@LOG
def on_log(_ctx, level, subject, message):
    if level <= 1:
        print((subject + b': ' if subject else b'').decode() + message.decode(), file=sys.stderr)


def check(r, what):
    if r < 0:
        raise OSError(-r, os.strerror(-r), what)
    return r


class Carton:
    def __init__(self, source):
        self.handle = c_void_p()
        check(lib.carton_open(os.fsencode(source), ctypes.byref(Options(views=b'views')),
                              ctypes.byref(self.handle)), source)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        lib.carton_close(self.handle)

    def paths(self):
        node, path = lib.carton_root(self.handle), ctypes.create_string_buffer(4096)
        while node:
            lib.carton_path(node, path)
            yield os.fsdecode(path.value)
            node = lib.carton_next(self.handle, node)

    def read(self, path):
        """The bytes of a file, which are verified by then."""
        file, request, ended = c_void_p(), c_void_p(), threading.Event()
        results = []

        @DONE
        def on_done(_ctx, result):      # on a thread of the library's
            results.append(result)
            ended.set()

        check(lib.carton_resolve(self.handle, os.fsencode(path), ctypes.byref(file)), path)
        r = lib.carton_pin(self.handle, file, on_done, None, ctypes.byref(request))
        if r == -errno.EINPROGRESS:
            ended.wait()
            lib.carton_request_free(request)
            r = results[0]
        check(r, path)
        try:
            data, block = bytearray(), ctypes.create_string_buffer(1 << 20)
            while n := check(lib.carton_read(file, block, len(block), len(data), False), path):
                data += block.raw[:n]
            return bytes(data)
        finally:
            lib.carton_unpin(file)


def main():
    lib.carton_log_set(on_log, None)
    with Carton(sys.argv[1]) as c:
        if len(sys.argv) == 2:
            print('\n'.join(filter(None, c.paths())))
        else:
            import numpy
            print(numpy.load(io.BytesIO(c.read(sys.argv[2]))).tolist())


if __name__ == '__main__':
    main()
