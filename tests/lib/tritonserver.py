# SPDX-License-Identifier: Apache-2.0
"""
A strict parser of inference requests and answers with binary tensor data (protocol v2, as Triton
has it), and a server that takes nothing but what it accepts.
"""
import http.server
import json
import math
import re
import struct

import numpy as np

from tensorfiles import CARTON

SIZES = {v[2]: np.dtype(v[0]).itemsize for v in CARTON.values()}


class Refused(Exception):
    pass


def need(condition, why):
    if not condition:
        raise Refused(why)


def once(pairs):
    need(len({k for k, _ in pairs}) == len(pairs), 'a key is there twice')
    return dict(pairs)


def no_constant(name):
    raise Refused(f'{name} is not JSON')


def parse_json(text):
    need(text[:1] == b'{' and text[-1:] == b'}', 'the header is not just an object')
    return json.loads(text.decode('utf-8'), object_pairs_hook=once, parse_constant=no_constant)


def parse_tensor(t, rest):
    """One tensor with its binary block: (name, datatype, shape, bytes), and what follows."""
    need(set(t) == {'name', 'shape', 'datatype', 'parameters'}, f'keys {list(t)}')
    need('data' not in t and set(t['parameters']) == {'binary_data_size'},
         'exactly one of data and size')
    size, shape, datatype = t['parameters']['binary_data_size'], t['shape'], t['datatype']
    need(type(t['name']) is str, 'name')
    need(type(size) is int and 0 <= size <= len(rest), f'size {size} of {len(rest)}')
    need(type(shape) is list and all(type(d) is int and d >= 0 for d in shape), f'shape {shape}')
    block, n = rest[:size], math.prod(shape)
    if datatype == 'BYTES':
        at = 0
        for _ in range(n):
            need(at + 4 <= size, 'an element is cut')
            length, = struct.unpack_from('<I', block, at)
            need(at + 4 + length <= size, 'an element is cut')
            block[at + 4:at + 4 + length].decode('utf-8')
            at += 4 + length
        need(at == size, 'bytes after the last element')
    else:
        need(datatype in SIZES and size == n * SIZES[datatype],
             f'{size} bytes of {datatype} {shape}')
    return (t['name'], datatype, shape, block), rest[size:]


def parse_body(body, header_length, key):
    """(header, tensors of header[key]) of a body of JSON and binary blocks."""
    need(0 < header_length <= len(body), 'header length')
    header, rest, out = parse_json(body[:header_length]), body[header_length:], []
    need(type(header.get(key)) is list, f'{key} is no list')
    for t in header[key]:
        tensor, rest = parse_tensor(t, rest)
        out.append(tensor)
    need(rest == b'', f'{len(rest)} bytes too many')
    need(len({t[0] for t in out}) == len(out), 'a name is there twice')
    return header, out


def parse_headers(text):
    """What curl -H @file sends for each line: {lower-case name: value}."""
    out = {}
    need(text.endswith(b'\n') and b'\r' not in text, 'lines')
    for line in text.decode('ascii').splitlines():
        name, value = re.fullmatch(r'([A-Za-z-]+): (\S.*)', line).groups()
        need(name.lower() not in out, 'a header is there twice')
        out[name.lower()] = value
    return out


def parse_request(request, headers):
    """The tensors of an inference request."""
    fields = parse_headers(headers)
    need(set(fields) == {'content-type', 'inference-header-content-length'}, f'headers {fields}')
    need(fields['content-type'] == 'application/octet-stream', 'content type')
    length = fields['inference-header-content-length']
    need(re.fullmatch('0|[1-9][0-9]*', length), 'a length in decimal')
    header, tensors = parse_body(request, int(length), 'inputs')
    need(header['parameters'] == {'binary_data_output': True}, 'parameters')
    need(set(header) == {'inputs', 'parameters'}, f'keys {list(header)}')
    return tensors


def json_length(body):
    """Of the object that a body begins with, by counting brackets outside of strings."""
    depth, text, escape = 0, False, False
    for i, c in enumerate(body):
        c = chr(c)
        if text:
            escape, text = c == '\\' and not escape, text and (c != '"' or escape)
        elif c == '"':
            text, escape = True, False
        else:
            depth += (c in '{[') - (c in '}]')
            if depth == 0:
                return i + 1
    raise Refused('the object has no end')


def parse_expected(body):
    header, tensors = parse_body(body, json_length(body), 'outputs')
    need(set(header) <= {'model_name', 'outputs'}, f'keys {list(header)}')
    return header, tensors


class Model(http.server.BaseHTTPRequestHandler):
    """Takes an inference request, and refuses what is not right in any detail."""
    protocol_version = 'HTTP/1.1'

    def do_POST(self):
        try:
            answer, status = self.infer(), 200
        except (Refused, ValueError, KeyError) as e:
            answer, status = json.dumps({'error': str(e)}).encode(), 400
        self.send_response(status)
        self.send_header('Content-Length', str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def infer(self):
        need(self.path == '/v2/models/m/infer', self.path)
        need(self.headers.get_all('Transfer-Encoding') is None, 'chunked')
        lengths = self.headers.get_all('Content-Length')
        need(lengths and len(lengths) == 1, 'Content-Length')
        body = self.rfile.read(int(lengths[0]))
        names = ('Content-Type', 'Inference-Header-Content-Length')
        got = {n: self.headers.get_all(n) for n in names}
        need(all(v and len(v) == 1 for v in got.values()), f'headers {got}')
        if got[names[1]] == ['0']:
            self.server.seen.append(('raw', body))
        else:
            headers = ''.join(f'{n}: {v[0]}\n' for n, v in got.items()).encode()
            self.server.seen.append(parse_request(body, headers))
        return b'taken'

    def log_message(self, *_):
        pass
