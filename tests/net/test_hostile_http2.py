# SPDX-License-Identifier: Apache-2.0
"""
Origins that break RFC 9113: frames that no real server sends. Each read ends with the right bytes or with one error,
soon; and another URL helps.
"""
import concurrent.futures
import contextlib
import errno
import struct

import pytest

import harness
from origin import PRIVATE, LinkedCarton, fault_bytes, lines_of
from rawhttp import at_once, numbered
from rawhttp2 import (CONTINUATION, DATA_, END, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED,
                      PING, PUSH, RST, SETTINGS, STATUS_200, STATUS_206, WINDOW, Http2, field,
                      frame, head, right, text)

DATA = fault_bytes(5000, seed=9)
LENGTH = field(b'content-length', b'%d' % len(DATA))
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
# what shares their connection, which is tried once more: at most two waits, and never a third.
TIMEOUT = harness.TIMEOUT / 8 * harness.SLOW


def test_frames(work, mount_fg, cache, certificate):
    files, c = {}, LinkedCarton()
    for i, _ in enumerate(CASES):
        files |= {f'a{i}a': numbered(i, DATA), f'f{i}f': numbered(i + 1000, DATA), f'n{i}n': numbered(i + 1000, DATA)}
    with contextlib.ExitStack() as stack:
        good = stack.enter_context(Http2(certificate, files, {}))
        for i, answer in enumerate(CASES.values()):
            # of its own, since one that fails is waited for by all that it has
            server = stack.enter_context(Http2(certificate, files, {f'a{i}a': answer, f'f{i}f': answer}))
            c.link(f'model/{i}-alone', files[f'a{i}a'], server.url(f'a{i}a'))
            c.link(f'model/{i}-helped', files[f'n{i}n'], server.url(f'f{i}f'), good.url(f'n{i}n'))
        options = f'cacert={certificate[0]},timeout={TIMEOUT:.0f}'
        with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *cache.options, '-o', options) as m:
            alone = at_once(m.read, [f'model/{i}-alone' for i, _ in enumerate(CASES)], 3 * TIMEOUT, len(CASES))
            helped = at_once(m.read, [f'model/{i}-helped' for i, _ in enumerate(CASES)], 3 * TIMEOUT, len(CASES))
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


# Many small frames in each TLS record: they take longer to read than to send.
FLOODS = {'unknown': lambda s: frame(200, 0, s) * 7000,
          'empty bodies': lambda s: frame(DATA_, 0, s) * 7000,
          '1xx': lambda s: head(s, field(b':status', b'103')) * 3000,
          'windows': lambda s: frame(WINDOW, 0, s, b'\0\0\0\1') * 5000}


@pytest.mark.parametrize('kind', FLOODS)
def test_flood_keeps_nobody_else(work, mount_fg, cache, certificate, kind):
    """One thread reads from all servers: another server's file is read, and the mount ends."""
    sent = []

    def answer(s, data, get):
        if kind == 'empty bodies':
            yield head(s, STATUS_200 + field(b'content-length', b'%d' % len(data)))
        while True:
            yield FLOODS[kind](s)
            sent.append(kind)

    files = {name: numbered(i, DATA) for i, name in enumerate(('aa', 'ff'))}
    c = LinkedCarton()
    with Http2(certificate, files, {'aa': answer}) as server, Http2(certificate, files, {}) as good:
        c.link('model/flood', files['aa'], server.url('aa'))
        c.link('model/good', files['ff'], good.url('ff'))
        options = f'cacert={certificate[0]},timeout={TIMEOUT:.0f}'
        with mount_fg(c.write(work / 'm.carton'), *PRIVATE, *cache.options, '-o', options) as m, \
                concurrent.futures.ThreadPoolExecutor(1) as pool:
            flooded = pool.submit(m.error, 'model/flood')
            harness.eventually('frames come', lambda: len(sent) > 20)
            with harness.at_once():
                assert m.read('model/good') == files['ff']
            assert flooded.result() in ('EIO', 'ETIMEDOUT')
