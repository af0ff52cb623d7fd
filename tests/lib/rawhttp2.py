# SPDX-License-Identifier: Apache-2.0
"""A server that sends the frames of HTTP/2 that a test says: RFC 9113, and HPACK's literals (RFC 7541)."""
import contextlib
import functools
import ssl
import struct

from rawhttp import Listener

DATA_, HEADERS, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
STATUS_200, STATUS_206 = b'\x88', b'\x8a'       # indices of HPACK's table
END = object()                                  # of the connection
# digits, `/` and letters of HPACK's Huffman code that names are made of: (code, bits)
CODES = {'0': (0, 5), '1': (1, 5), '2': (2, 5), '3': (0x19, 6), '4': (0x1a, 6), '5': (0x1b, 6), '6': (0x1c, 6),
         '7': (0x1d, 6), '8': (0x1e, 6), '9': (0x1f, 6), '/': (0x18, 6), 'a': (3, 5), 'f': (0x25, 6), 'n': (0x2a, 6)}


def frame(kind, flags, stream, payload=b''):
    return struct.pack('>I', len(payload))[1:] + struct.pack('>BBI', kind, flags, stream) + payload


def text(t):
    """A string of HPACK; up to 126 bytes and 127 + 127 * 128 of them."""
    n = len(t)
    return (bytes([n]) if n < 127 else b'\x7f' + bytes([(n - 127) % 128 | 128, (n - 127) // 128])) + t


def field(name, value):
    return b'\0' + text(name) + text(value)


def head(stream, block, flags=0):
    return frame(HEADERS, END_HEADERS | flags, stream, block)


def right(s, data, get):
    yield head(s, STATUS_200 + field(b'content-length', b'%d' % len(data)), 0 if get else END_STREAM)
    if get:
        yield frame(DATA_, END_STREAM, s, data)


@functools.cache
def coded(name):
    """/NAME as a string of HPACK."""
    bits = ''.join(format(CODES[c][0], f'0{CODES[c][1]}b') for c in '/' + name)
    bits += '1' * (-len(bits) % 8)
    return bytes([128 | len(bits) // 8]) + int(bits, 2).to_bytes(len(bits) // 8, 'big')


class Http2(Listener):
    """A server of {name: data} that answers a GET with the frames that answers[name](stream, data, get) yields."""

    def __init__(self, certificate, files, answers):
        super().__init__()
        self.files, self.answers = files, answers
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*certificate)
        self.context.set_alpn_protocols(['h2'])

    def url(self, name):
        return f'https://127.0.0.1:{self.listener.getsockname()[1]}/{name}'

    def serve(self, raw):
        with raw, contextlib.suppress(OSError), self.context.wrap_socket(raw, server_side=True) as s:
            with s.makefile('rb') as f:
                f.read(24)              # the preface
                s.sendall(frame(SETTINGS, 0, 0))
                while self.one(s, f):
                    pass

    def one(self, s, f):
        top = f.read(9)
        if len(top) < 9:
            return False
        n, kind, flags, stream = (*struct.unpack('>I', b'\0' + top[:3]), *struct.unpack('>BBI', top[3:]))
        payload = f.read(n)
        if kind in (SETTINGS, PING) and not flags & 1:
            s.sendall(frame(kind, 1, 0, payload if kind == PING else b''))
        if kind != HEADERS:
            return True
        # names are made of what Huffman codes leave as it is: the request has the path somewhere, coded or not
        get = payload[:1] == b'\x82' or payload[5:6] == b'\x82' and flags & 32
        name = self.name_of(payload)
        for part in (self.answers.get(name, right) if get else right)(stream, self.files[name], get):
            if part is END:
                return False
            s.sendall(part)
        return True

    def name_of(self, payload):
        return next(n for n in self.files if coded(n) in payload or b'/' + n.encode() in payload)
