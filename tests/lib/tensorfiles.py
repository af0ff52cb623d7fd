# SPDX-License-Identifier: Apache-2.0
"""
Independent makers and readers of tensor files: numpy for .npy, json and struct for safetensors.

  Tensor, TensorData    what tensor_data/ of a carton holds, and what its views must be
  reference_file()      the safetensors file that the reference serializer would write
  st_bytes(), BAD       safetensors files of any header, and one for each rule that they can break
"""
import io
import itertools
import json
import math
import random
import struct
import urllib.parse
import warnings
from dataclasses import dataclass, field

import numpy as np
from numpy.lib import format as npy_format

CARTON = {  # carton dtype: numpy, safetensors, Triton
    'float32': ('<f4', 'F32', 'FP32'), 'float64': ('<f8', 'F64', 'FP64'),
    'int8': ('|i1', 'I8', 'INT8'), 'int16': ('<i2', 'I16', 'INT16'),
    'int32': ('<i4', 'I32', 'INT32'), 'int64': ('<i8', 'I64', 'INT64'),
    'uint8': ('|u1', 'U8', 'UINT8'), 'uint16': ('<u2', 'U16', 'UINT16'),
    'uint32': ('<u4', 'U32', 'UINT32'), 'uint64': ('<u8', 'U64', 'UINT64'),
}
LIKE_CARTON = {
    'BOOL': 'bool', 'F4': 'float4', 'F6_E2M3': 'float6_e2m3', 'F6_E3M2': 'float6_e3m2', 'F8_E5M2': 'float8_e5m2',
    'F8_E4M3': 'float8_e4m3', 'F8_E8M0': 'float8_e8m0', 'F8_E4M3FNUZ': 'float8_e4m3fnuz',
    'F8_E5M2FNUZ': 'float8_e5m2fnuz', 'F16': 'float16', 'BF16': 'bfloat16', 'C64': 'complex64',
}
# What the reference serializer puts first, of the dtypes a carton has.
ORDER = 'U64 I64 F64 F32 U32 I32 U16 I16 I8 U8'.split()
BITS = {'BOOL': 8, 'F4': 4, 'F6_E2M3': 6, 'F6_E3M2': 6, 'U8': 8, 'I8': 8, 'F8_E5M2': 8,
        'F8_E4M3': 8, 'F8_E8M0': 8, 'F8_E4M3FNUZ': 8, 'F8_E5M2FNUZ': 8, 'I16': 16, 'U16': 16,
        'F16': 16, 'BF16': 16, 'I32': 32, 'U32': 32, 'F32': 32, 'C64': 64, 'F64': 64, 'I64': 64,
        'U64': 64}
# safetensors dtypes that numpy has
NUMPY = {v[1]: v[0] for v in CARTON.values()} | {'BOOL': '|b1', 'F16': '<f2', 'C64': '<c8'}
# every rank from 0 to 5, with a dimension of 0 at every place and at several
SHAPES = [s for rank in range(6) for s in itertools.product((0, 2), repeat=rank)] + [
    (1,), (7,), (3, 1, 2), (1, 2, 3, 4, 5)]


# ---- names and TOML ----

def random_name(rng):
    alphabet = ['a', 'B', '/', '%', '.', '..', '\0', '\n', '\x7f', '\x85', ' ', '"', '\\', '🥳',
                'é', '.bin', '.npy', '.json', 'index', '2', 'F', '~', 'x' * 60]
    return ''.join(rng.choice(alphabet) for _ in range(rng.randrange(8)))


def toml_string(s):
    out = ''
    for c in s:
        plain = c >= ' ' and c not in '"\\' and c != '\x7f'
        out += c if plain else f'\\u{ord(c):04x}'
    return f'"{out}"'


def strings_toml(strings):
    return ('data = [' + ', '.join(map(toml_string, strings)) + ']\n').encode()


# ---- forms ----

def bytes_form(strings):
    """Triton's BYTES."""
    return b''.join(struct.pack('<I', len(s.encode())) + s.encode() for s in strings)


def npy_bytes(array):
    f = io.BytesIO()
    np.save(f, array)
    return f.getvalue()


def numpy_header(descr, shape):
    f = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')     # it warns of format 2.0
        npy_format._write_array_header(
            f, {'descr': descr, 'fortran_order': False, 'shape': tuple(shape)})
    return f.getvalue()


# ---- tensor_data/ ----

@dataclass
class Tensor:
    name: str
    dtype: str
    shape: tuple = ()
    data: object = b''                  # bytes; of strings a list of str
    inner: list = None                  # of a nested one: names
    file: str = None                    # below tensor_data/; '' leaves the key out
    raw: bytes = None                   # what the file holds, instead of what it should
    keys: dict = field(default_factory=dict)    # TOML text by key, last; None leaves the key out

    def array(self):
        if self.dtype == 'string':
            width = max(map(len, self.data), default=0)
            return np.array(self.data, dtype=f'<U{max(1, width)}').reshape(self.shape)
        return np.frombuffer(self.data, CARTON[self.dtype][0]).reshape(self.shape)

    def contents(self):
        """Of its file in tensor_data/."""
        if self.raw is not None:
            return self.raw
        return strings_toml(self.data) if self.dtype == 'string' else self.data

    def bin(self):
        return bytes_form(self.data) if self.dtype == 'string' else self.data

    def npy(self):
        """None where there is none: a string that ends in NUL, which numpy takes for padding."""
        if self.dtype == 'string' and any(s.endswith('\0') for s in self.data):
            return None
        return npy_bytes(self.array())

    def toml(self):
        keys = {'name': toml_string(self.name), 'dtype': toml_string(self.dtype)}
        if self.dtype == 'nested':
            keys['inner'] = '[' + ', '.join(map(toml_string, self.inner)) + ']'
        else:
            keys |= {'shape': str(list(self.shape)), 'file': toml_string(self.file)}
        keys |= self.keys
        return '[[tensor]]\n' + ''.join(f'{k} = {v}\n' for k, v in keys.items() if v is not None)


class TensorData:
    """Tensors in the order they are added; put() writes tensor_data/ into a carton."""

    def __init__(self, *tensors, inner_everywhere=False):
        self.list, self.inner_everywhere = [], inner_everywhere
        for t in tensors:
            self.add(t)

    def add(self, t):
        if t.file is None and t.dtype != 'nested':
            t.file = f't{len(self.list)}.' + ('toml' if t.dtype == 'string' else 'bin')
        if self.inner_everywhere and t.dtype != 'nested':
            t.keys.setdefault('inner', '[]')
        self.list.append(t)
        return self

    def toml(self):
        return '\n'.join(t.toml() for t in self.list).encode()

    def put(self, carton, **kw):
        carton.add('tensor_data/index.toml', self.toml())
        for t in self.list:
            path = f'tensor_data/{t.file}'
            if t.file and path not in carton.entries:
                carton.add(path, t.contents(), **kw)
        return carton

    def views(self):
        """{path below views/tensor_data: bytes} of all but index.json, for plain names."""
        by_name, out = {t.name: t for t in self.list}, {}
        for t in self.list:
            if t.dtype == 'nested':
                for i, name in enumerate(t.inner):
                    out[f'{t.name}/{i}.bin'] = by_name[name].bin()
                continue
            out[f'{t.name}.bin'] = t.bin()
            if t.npy() is not None:
                out[f'{t.name}.npy'] = t.npy()
        return out

    def numeric(self):
        return [t for t in self.list if t.dtype in CARTON]


def size_of(dtype, shape):
    return math.prod(shape) * np.dtype(CARTON[dtype][0]).itemsize


def numeric(rng, name, dtype, shape, **kw):
    return Tensor(name, dtype, tuple(shape), rng.randbytes(size_of(dtype, shape)), **kw)


def every_dtype_and_shape(seed=1):
    """A TensorData of each numeric dtype and string in each of SHAPES."""
    rng, td = random.Random(seed), TensorData()
    for shape in SHAPES:
        label = 'x'.join(map(str, shape)) or 'scalar'
        for dtype in CARTON:
            td.add(numeric(rng, f'{dtype}-{label}', dtype, shape))
        words = [rng.choice(['', 'a', 'zwei', 'é', '🥳', 'q"\\\n', '\0x', 'x' * 300])
                 for _ in range(math.prod(shape))]
        td.add(Tensor(f'string-{label}', 'string', shape, words))
    return td


def random_tensors(seed, n):
    """(name, dtype, shape) of numeric tensors with odd names, each name once."""
    rng = random.Random(seed)
    names = {random_name(rng) for _ in range(n)} - {'__metadata__'}
    return [(name, rng.choice(list(CARTON)), [rng.randrange(5) for _ in range(rng.randrange(6))])
            for name in sorted(names, key=lambda _: rng.random())]


def decoded(stem):
    """The tensor's name in a file name that is not shortened."""
    return urllib.parse.unquote(stem, errors='strict')


# ---- safetensors ----

def in_reference_order(tensors):
    """(name, dtype, shape), with carton dtypes."""
    return sorted(tensors, key=lambda t: (ORDER.index(CARTON[t[1]][1]), t[0].encode()))


def reference_header(tensors):
    """An independent writer of what the reference serializer gives: header and data size."""
    offset, out = 0, {}
    for name, dtype, shape in in_reference_order(tensors):
        size = size_of(dtype, shape)
        out[name] = {'dtype': CARTON[dtype][1], 'shape': list(shape),
                     'data_offsets': [offset, offset + size]}
        offset += size
    # json escapes DEL as it is and controls as serde_json does, but for \b and \f being alike.
    text = json.dumps(out, ensure_ascii=False, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    return struct.pack('<Q', len(text)) + text, offset


def reference_file(tensors):
    """All of a list of Tensor as one file, byte for byte."""
    by_name = {t.name: t for t in tensors}
    listed = [(t.name, t.dtype, t.shape) for t in tensors]
    header, _ = reference_header(listed)
    return header + b''.join(by_name[n].data for n, _, _ in in_reference_order(listed))


def st_bytes(header, data=b'', pad=True):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    if pad:
        text += b' ' * (-len(text) % 8)
    return struct.pack('<Q', len(text)) + text + data


def st_file(path, header, data=b'', pad=True):
    path.write_bytes(st_bytes(header, data, pad))
    return path


def st(dtype='U8', shape=(1,), begin=0, end=1):
    return {'dtype': dtype, 'shape': list(shape), 'data_offsets': [begin, end]}


def every_safetensors_dtype(seed=3):
    """(header with metadata, data): each dtype in several shapes, in random order of names."""
    header, at = {'__metadata__': {'format': 'pt', '': 'é"\n\u0001'}}, 0
    for dtype, bits in BITS.items():
        for shape in ((), (0,), (8,), (2, 4), (8, 0, 3), (4, 2, 1)):
            n = math.prod(shape)
            if n * bits % 8:
                continue
            header[f'{dtype}{shape}'] = st(dtype, shape, at, at + n * bits // 8)
            at += n * bits // 8
    names = list(header)
    random.Random(seed).shuffle(names)
    return {n: header[n] for n in names}, random.Random(seed).randbytes(at)


RAW = '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}%s}'
BAD = {  # name: header, data, what the message must say
    'empty header': (b'', b'', 'empty'),
    'not an object': (b'[1]', b'', "begin with '{'"),
    'space before': (b' {}', b'', "begin with '{'"),
    'bom': (b'\xef\xbb\xbf{}', b'', "begin with '{'"),
    'form feed behind': (b'{}\f', b'', 'white space'),
    'nul behind': (b'{}\0', b'', 'white space'),
    'second object': (b'{}{}', b'', 'white space'),
    'unfinished': (b'{"a":', b'', 'not valid JSON'),
    'trailing comma': (RAW % ',', b'x', 'not valid JSON'),
    'comment': (RAW % '/**/', b'x', 'not valid JSON'),
    'vertical tab': (RAW % '\v', b'x', 'control character'),
    'nan': (b'{"a":NaN}', b'', 'not valid JSON'),
    'duplicate tensor': (RAW % ',"a":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}', b'x',
                         'twice'),
    'duplicate by escape': (RAW % ',"\\u0061":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}',
                            b'x', 'twice'),
    'duplicate dtype': (b'{"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}', b'',
                        'twice'),
    'duplicate metadata': (b'{"__metadata__":{},"__metadata__":{}}', b'', 'twice'),
    'duplicate metadata key': (b'{"__metadata__":{"k":"1","k":"2"}}', b'', 'twice'),
    'duplicate unknown key': (b'{"a":{"x":{"k":1,"k":2},"dtype":"U8","shape":[0],'
                              b'"data_offsets":[0,0]}}', b'', 'twice'),
    'metadata number': ({'__metadata__': {'k': 1}}, b'', 'object of strings'),
    'metadata true': ({'__metadata__': True}, b'', 'object of strings'),
    'metadata value null': ({'__metadata__': {'k': None}}, b'', 'object of strings'),
    'metadata null twice': (b'{"__metadata__":null,"__metadata__":null}', b'', 'twice'),
    'metadata nested': ({'__metadata__': {'k': {}}}, b'', 'object of strings'),
    'tensor is a list': ({'a': []}, b'', 'not an object'),
    'no dtype': ({'a': {'shape': [], 'data_offsets': [0, 0]}}, b'', 'no dtype'),
    'no shape': ({'a': {'dtype': 'U8', 'data_offsets': [0, 0]}}, b'', 'no shape'),
    'no offsets': ({'a': {'dtype': 'U8', 'shape': [0]}}, b'', 'no data_offsets'),
    'dtype number': ({'a': st(dtype=8)}, b'x', 'dtype that is not a string'),
    'dtype unknown': ({'a': st('F9')}, b'x', "unknown dtype 'F9'"),
    'dtype lower case': ({'a': st('u8')}, b'x', 'unknown dtype'),
    'shape string': ({'a': {**st(), 'shape': '1'}}, b'x', 'not a list of integers'),
    'shape float': ({'a': st(shape=(1.0,))}, b'x', 'not a list of integers'),
    'shape exponent': (b'{"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}', b'x',
                       'not a list of integers'),
    'shape negative': ({'a': st(shape=(-1, -1))}, b'x', 'not a list of integers'),
    'shape minus zero': (b'{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}', b'',
                         'not a list of integers'),
    'shape nested': ({'a': st(shape=([1],))}, b'x', 'not a list of integers'),
    'shape beyond 64 bits': ({'a': st(shape=(2 ** 64,))}, b'x', 'not a list of integers'),
    'leading zero': (b'{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}', b'x',
                     'not valid JSON'),
    'shape overflow': ({'a': st('U64', (2 ** 32, 2 ** 32), 0, 0)}, b'', 'does not fit 64 bits'),
    'bytes overflow': ({'a': st('U64', (2 ** 61,), 0, 0)}, b'', 'does not fit 64 bits'),
    'rank': ({'a': st(shape=[1] * 65)}, b'x', 'more than 64 dimensions'),
    'size': ({'a': st('U16')}, b'x', '1 bytes by its data_offsets, but 2'),
    'half a byte': ({'a': st('F4', (3,), 0, 1)}, b'x', 'whole number of bytes'),
    'one offset': ({'a': {**st(), 'data_offsets': [0]}}, b'x', 'not two integers'),
    'three offsets': ({'a': {**st(), 'data_offsets': [0, 1, 1]}}, b'x', 'not two integers'),
    'offset float': ({'a': {**st(), 'data_offsets': [0, 1.0]}}, b'x', 'not two integers'),
    'offsets reversed': ({'a': st(begin=1, end=0)}, b'x', 'before it begins'),
    'hole at the start': ({'a': st(begin=1, end=2)}, b'xx', 'hole'),
    'hole': ({'a': st(), 'b': st(begin=2, end=3)}, b'xxx', 'hole'),
    'overlap': ({'a': st(shape=(2,), end=2), 'b': st(begin=1, end=2)}, b'xx', 'overlapping'),
    'same bytes': ({'a': st(), 'b': st()}, b'x', 'overlapping'),
    'trailing byte': ({'a': st()}, b'xy', '2 bytes of data'),
    'missing byte': ({'a': st()}, b'', '0 bytes of data'),
    'data without tensors': ({}, b'x', '1 bytes of data'),
    'bad utf-8': (b'{"\xff":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', b'', ''),
    'overlong utf-8': (b'{"\xc0\xaf":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', b'', ''),
    'raw surrogate': (b'{"\xed\xa0\x80":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', b'',
                      'UTF-8'),
    'lone high': (b'{"__metadata__":{"k":"\\ud800"}}', b'', 'surrogate'),
    'lone low': (b'{"__metadata__":{"k":"\\udc00"}}', b'', 'surrogate'),
    'high then escaped backslash': (b'{"__metadata__":{"k":"\\ud800\\\\u0"}}', b'', 'surrogate'),
    'two high': (b'{"__metadata__":{"k":"\\ud800\\ud800"}}', b'', 'surrogate'),
    'short escape': (b'{"__metadata__":{"k":"\\u12"}}', b'', 'hex digits'),
    'bad escape': (b'{"__metadata__":{"k":"\\x"}}', b'', 'not valid JSON'),
    'control in a string': (b'{"__metadata__":{"k":"\n"}}', b'', 'control character'),
    'long name': ({'n' * 65537: st()}, b'x', '65537 bytes'),
    'depth': (b'{"a":{"x":' + b'[' * 63 + b']' * 63 + b',"dtype":"U8","shape":[0],'
              b'"data_offsets":[0,0]}}', b'', 'nested too deeply'),
}


def floats(*values):
    return struct.pack(f'<{len(values)}f', *values)


def safetensors(tensors):
    """The bytes of a file with {name: (dtype, shape, data)}."""
    header, data = {}, b''
    for name, (dtype, shape, part) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [len(data), len(data) + len(part)]}
        data += part
    return st_bytes(header, data)


def weights(**tensors):
    return safetensors({n: ('F32', [len(v) // 4], v) for n, v in tensors.items()})


def header(n, tensor):
    """A safetensors file of `n` tensors of one byte."""
    text = '{' + ','.join(f'"{i:x}":{tensor % (i, i + 1)}' for i in range(n)) + '}'
    return len(text).to_bytes(8, 'little') + text.encode() + bytes(n)
