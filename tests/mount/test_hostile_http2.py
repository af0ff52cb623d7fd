# SPDX-License-Identifier: Apache-2.0
"""
Origins that break RFC 9113: frames that no real server sends. Each read ends with the right bytes or with one error,
soon; and another mirror helps.
"""
import contextlib
import errno
import ssl
import struct

import harness
from origin import PRIVATE, LinkedCarton, fault_bytes, lines_of
from test_hostile_origin import Listener, at_once, numbered

DATA = fault_bytes(5000, seed=9)
DATA_, HEADERS, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
STATUS_200, STATUS_206 = b'\x88', b'\x8a'       # indices of HPACK's table
END = object()                                  # of the connection


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


LENGTH = field(b'content-length', b'%d' % len(DATA))


def right(s, data, get):
    yield head(s, STATUS_200 + LENGTH, 0 if get else END_STREAM)
    if get:
        yield frame(DATA_, END_STREAM, s, data)


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


# digits, `/` and letters of HPACK's Huffman code that names are made of: (code, bits)
CODES = {'0': (0, 5), '1': (1, 5), '2': (2, 5), '3': (0x19, 6), '4': (0x1a, 6), '5': (0x1b, 6), '6': (0x1c, 6),
         '7': (0x1d, 6), '8': (0x1e, 6), '9': (0x1f, 6), '/': (0x18, 6), 'a': (3, 5), 'f': (0x25, 6), 'n': (0x2a, 6)}


def coded(name):
    """/NAME as a string of HPACK."""
    bits = ''.join(format(CODES[c][0], f'0{CODES[c][1]}b') for c in '/' + name)
    bits += '1' * (-len(bits) % 8)
    return bytes([128 | len(bits) // 8]) + int(bits, 2).to_bytes(len(bits) // 8, 'big')


CASES = {}


def case(name, answer):
    CASES[name] = lambda s, data, get: answer(s, data)


OK = STATUS_200 + LENGTH
for code in (*range(14), 255, 2 ** 32 - 1):
    error = struct.pack('>I', code)
    case(f'reset {code}', lambda s, d, e=error: [frame(RST, 0, s, e)])
    case(f'reset {code} behind the headers', lambda s, d, e=error: [head(s, OK), frame(RST, 0, s, e)])
    case(f'reset {code} in the body', lambda s, d, e=error: [head(s, OK), frame(DATA_, 0, s, d[:99]),
                                                            frame(RST, 0, s, e)])
    case(f'goaway {code}', lambda s, d, e=error: [frame(GOAWAY, 0, 0, bytes(4) + e), END])
    case(f'goaway {code} in the body', lambda s, d, e=error: [head(s, OK), frame(DATA_, 0, s, d[:99]),
                                                             frame(GOAWAY, 0, 0, struct.pack('>I', s) + e), END])
case('reset behind the body', lambda s, d: [head(s, OK), frame(DATA_, END_STREAM, s, d), frame(RST, 0, s, bytes(4))])
case('end of the connection', lambda s, d: [END])
case('end in the body', lambda s, d: [head(s, OK), frame(DATA_, 0, s, d[:99]), END])
case('end in a frame', lambda s, d: [head(s, OK), frame(DATA_, 0, s, d)[:99], END])
case('end in the headers', lambda s, d: [head(s, OK)[:12], END])
case('body too short', lambda s, d: [head(s, OK), frame(DATA_, END_STREAM, s, d[:99])])
case('body too long', lambda s, d: [head(s, OK), frame(DATA_, END_STREAM, s, d + d)])
case('no body', lambda s, d: [head(s, OK, END_STREAM)])
case('body first', lambda s, d: [frame(DATA_, END_STREAM, s, d)])
case('no status', lambda s, d: [head(s, LENGTH), frame(DATA_, END_STREAM, s, d)])
case('two statuses', lambda s, d: [head(s, STATUS_200 + STATUS_206 + LENGTH), frame(DATA_, END_STREAM, s, d)])
for value in (b'2000', b'-200', b'', b'20x', b'101'):
    case(f'status {value}', lambda s, d, v=value: [head(s, field(b':status', v) + LENGTH),
                                                   frame(DATA_, END_STREAM, s, d)])
case('name in capitals', lambda s, d: [head(s, OK + field(b'X-Y', b'z')), frame(DATA_, END_STREAM, s, d)])
case('name with a LF', lambda s, d: [head(s, OK + field(b'x\ny', b'z')), frame(DATA_, END_STREAM, s, d)])
case('value with a LF', lambda s, d: [head(s, OK + field(b'x', b'y\r\nlocation: /z')), frame(DATA_, END_STREAM, s, d)])
case('transfer-encoding', lambda s, d: [head(s, OK + field(b'transfer-encoding', b'chunked')),
                                        frame(DATA_, END_STREAM, s, d)])
case('two lengths', lambda s, d: [head(s, OK + field(b'content-length', b'7')), frame(DATA_, END_STREAM, s, d)])
case('headers of stream 0', lambda s, d: [head(0, OK), frame(DATA_, END_STREAM, s, d)])
case('body of another stream', lambda s, d: [head(s, OK), frame(DATA_, END_STREAM, s + 98, d)])
case('headers of another stream', lambda s, d: [head(s + 98, OK), frame(DATA_, END_STREAM, s + 98, d)])
case('promised', lambda s, d: [frame(PUSH, END_HEADERS, s, struct.pack('>I', 2) + b'\x82\x87\x84'), head(2, OK)])
case('settings that are none', lambda s, d: [frame(SETTINGS, 0, 0, struct.pack('>HI', 4, 2 ** 32 - 1))])
case('settings of 5 bytes', lambda s, d: [frame(SETTINGS, 0, 0, b'12345')])
case('no more streams', lambda s, d: [frame(SETTINGS, 0, 0, struct.pack('>HI', 3, 0)), *right(s, d, True)])
case('window of 0', lambda s, d: [frame(WINDOW, 0, s, bytes(4))])
case('window beyond any', lambda s, d: [frame(WINDOW, 0, 0, b'\x7f\xff\xff\xff')] * 2)
case('frame of 16 MiB', lambda s, d: [b'\xff\xff\xff\0\0' + struct.pack('>I', s), bytes(1 << 20)])
case('padding beyond the frame', lambda s, d: [head(s, OK), frame(DATA_, PADDED | END_STREAM, s, b'\xff' + d[:9])])
case('unknown frames', lambda s, d: [frame(200, 255, s, b'x' * 99), *right(s, d, True)])
case('index 0 of a table', lambda s, d: [head(s, b'\x80')])
case('index beyond the table', lambda s, d: [head(s, b'\xff\xff\xff\xff\x0f')])
case('table beyond its limit', lambda s, d: [head(s, b'\x3f\xff\xff\xff\x0f' + OK)])
case('headers without an end', lambda s, d: [frame(HEADERS, 0, s, OK), frame(DATA_, END_STREAM, s, d)])
case('headers beyond the limit', lambda s, d: [frame(HEADERS, 0, s, OK), *[
    frame(CONTINUATION, 0, s, field(b'x', b'y' * 16000))] * 100, frame(CONTINUATION, END_HEADERS, s)])
case('the same header 10,000 times', lambda s, d: [
    frame(HEADERS, 0, s, OK + b'\x40' + text(b'x') + text(b'y' * 4000)),
    *[frame(CONTINUATION, 0, s, b'\xbe' * 1000)] * 10, frame(CONTINUATION, END_HEADERS, s)])
case('trailers with a status', lambda s, d: [head(s, OK), frame(DATA_, 0, s, d), head(s, STATUS_206, END_STREAM)])


def endless(name, block):
    def answer(s, d):
        while True:
            yield block(s)
    case(name, answer)


endless('endless empty frames', lambda s: frame(CONTINUATION, 0, s))
endless('endless 1xx', lambda s: head(s, field(b':status', b'103')))
endless('endless settings', lambda s: frame(SETTINGS, 0, 0) * 100)
endless('endless pings', lambda s: frame(PING, 0, 0, bytes(8)) * 100)
GOOD = {'reset behind the body', 'unknown frames', 'no more streams'}

# libcurl 8.5 (Ubuntu 24.04) says nothing about `body first` and `headers of stream 0`: the timeout ends these, and
# what shares their connection, which is tried once more.
TIMEOUT = harness.TIMEOUT / 2


def test_frames(work, mount_fg, cache, certificate):
    files, answers, c = {}, {}, LinkedCarton()
    for i, name in enumerate(CASES):
        files |= {f'a{i}a': numbered(i, DATA), f'f{i}f': numbered(i + 1000, DATA), f'n{i}n': numbered(i + 1000, DATA)}
        answers |= {f'a{i}a': CASES[name], f'f{i}f': CASES[name]}
    # The good ones have a server of their own: libcurl 8.14 (Debian 13) goes on with a connection that was flooded.
    with Http2(certificate, files, answers) as server, Http2(certificate, files, {}) as good:
        for i, _ in enumerate(CASES):
            c.link(f'model/{i}-alone', files[f'a{i}a'], server.url(f'a{i}a'))
            c.link(f'model/{i}-helped', files[f'n{i}n'], server.url(f'f{i}f'), good.url(f'n{i}n'))
        options = f'cacert={certificate[0]},timeout={TIMEOUT:.0f}'
        with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *cache.options, '-o', options) as m:
            alone = at_once(m.read, [f'model/{i}-alone' for i, _ in enumerate(CASES)], 2 * TIMEOUT)
            helped = at_once(m.read, [f'model/{i}-helped' for i, _ in enumerate(CASES)], 2 * TIMEOUT)
            log = m.log()
    wrong = []
    for i, name in enumerate(CASES):
        lines = lines_of(log, f'/a{i}a: ')
        if helped[i] != files[f'n{i}n']:
            wrong.append((name, 'another URL does not help', helped[i]))
        if isinstance(alone[i], int) and (name in GOOD or not 1 <= len(lines) <= 7):
            wrong.append((name, errno.errorcode[alone[i]], lines))
        if not isinstance(alone[i], int) and alone[i] != files[f'a{i}a']:
            wrong.append((name, 'wrong bytes'))
    assert wrong == [], '\n'.join(map(str, wrong))
