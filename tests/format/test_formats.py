# SPDX-License-Identifier: Apache-2.0
"""
The format modules against independent makers and readers: numpy for .npy, json and struct for
safetensors and Triton. Nothing is mounted: format-tool prints what the modules make.
"""
import io
import itertools
import json
import os
import random
import resource
import struct
import subprocess

import numpy as np
import pytest

import harness
from tensorfiles import (BAD, CARTON, bytes_form, decoded, every_safetensors_dtype, numpy_header,
                         random_name, random_tensors, reference_header, size_of, st, st_file,
                         strings_toml, toml_string)

TOOL = str(harness.TOOLS / 'format-tool')


def run(*args, data=b'', ok=True):
    """stdout of format-tool as bytes; with ok=False it must fail, and stderr is given."""
    p = subprocess.run([TOOL, *map(str, args)], input=data, capture_output=True, check=False)
    assert p.returncode == (0 if ok else 1), p.stderr
    return p.stdout if ok else p.stderr.decode(errors='replace')


# ---- .npy ----

def headers(cases):
    lines = '\n'.join(' '.join([d, *map(str, s)]) for d, s in cases) + '\n'
    return run('npy', data=lines.encode())


def test_npy_is_what_numpy_saves():
    """Every dtype, rank 0 to 5, with dimensions of 0 at every place."""
    descrs = [v[0] for v in CARTON.values()] + ['|b1', '<f2', '<c8', '<U1', '<U7']
    cases = [(d, s) for d in descrs for rank in range(6)
             for s in itertools.product((0, 1, 3), repeat=rank)]
    want = io.BytesIO()
    for descr, shape in cases:
        array = np.zeros(shape, np.dtype(descr))
        f = io.BytesIO()
        np.save(f, array)
        want.write(f.getvalue()[:len(f.getvalue()) - array.nbytes])
    assert headers(cases) == want.getvalue()


def test_npy_random_and_wide():
    rng = random.Random(1)
    cases = [('<f4', [rng.randrange(2 ** rng.randrange(1, 64)) for _ in range(rng.randrange(33))])
             for _ in range(10000)]
    cases += [('<U%d' % rng.randrange(1, 2 ** 29), [rng.randrange(9)]) for _ in range(200)]
    # Every length around the places where padding and the version change.
    cases += [('<i8', [1] * n) for n in range(1, 120)]
    edge = [n for n in range(21700, 21900)
            if numpy_header('<i8', [1] * n)[6] != numpy_header('<i8', [1] * (n + 1))[6]]
    assert len(edge) == 1
    cases += [('<i8', [1] * n) for n in range(edge[0] - 70, edge[0] + 70)]
    assert headers(cases) == b''.join(numpy_header(*c) for c in cases)


def test_npy_is_loaded(tmp_path):
    data = np.arange(24, dtype='<f4').reshape(2, 3, 4)
    path = tmp_path / 'x.npy'
    path.write_bytes(headers([('<f4', data.shape)]) + data.tobytes())
    for mode in (None, 'r'):
        got = np.load(path, mmap_mode=mode)
        assert got.dtype == data.dtype and (got == data).all()


# ---- names ----

def file_names(names):
    data = b''.join(struct.pack('<I', len(n.encode())) + n.encode() for n in names)
    out = run('names', data=data).decode().split('\n')
    return list(zip(out[0:-1:2], out[1:-1:2]))


def test_names_never_collide():
    rng = random.Random(2)
    names = {random_name(rng) for _ in range(20000)}
    names |= {'', '.', '..', '...', 'index', 'index.json', 'A', 'A.bin', 'A.npy', 'A.npy.bin', '%',
              '%~empty', '%2E', 'A%2Ebin', 'x' * 251, 'x' * 252, 'x' * 5000, 'x' * 5001,
              'é' * 125, 'é' * 126, '/' * 83, '/' * 84, '0', '0.bin'}
    names = sorted(names)
    seen = {'index.json': None}
    for name, (plain, nested) in zip(names, file_names(names)):
        for entry in (plain + '.bin', plain + '.npy', nested):
            assert entry not in seen, (name, seen[entry])
            seen[entry] = name
            assert 0 < len(entry.encode()) <= 255 and not entry.startswith('.')
            assert '/' not in entry and not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in entry)
        if '%~' not in plain:
            assert decoded(plain) == name
            assert decoded(nested) == name


def test_names_as_they_are():
    want = {'weight': 'weight', 'a/b%c': 'a%2Fb%25c', '..hid.den': '%2E%2Ehid.den', '': '%~empty',
            'A.npy': 'A.npy', 'tab\t\0': 'tab%09%00', 'émoji 🥳': 'émoji 🥳'}
    assert [p for p, _ in file_names(want)] == list(want.values())
    assert file_names(['A.npy', 'A.json', '.bin']) == [
        ('A.npy', 'A%2Enpy'), ('A.json', 'A%2Ejson'), ('%2Ebin', '%2Ebin')]
    (long, _), = file_names(['x' * 252])
    assert long.startswith('x' * 100 + '%~') and len(long) == 100 + 2 + 64


# ---- index.toml, safetensors and Triton out of it ----

def write_carton(path, tensors):
    """tensors: (name, dtype, shape) with data of zeros."""
    data = path / 'tensor_data'
    data.mkdir(parents=True)
    text = ''
    for i, (name, dtype, shape) in enumerate(tensors):
        text += (f'[[tensor]]\nname = {toml_string(name)}\ndtype = "{dtype}"\n'
                 f'shape = {list(shape)}\nfile = "t{i}.bin"\ninner = []\n')
        with open(data / f't{i}.bin', 'wb') as f:
            f.truncate(size_of(dtype, shape))
    (data / 'index.toml').write_text(text, newline='')


@pytest.mark.parametrize('seed', range(20))
def test_safetensors_written(tmp_path, seed):
    tensors = random_tensors(seed, 500)
    write_carton(tmp_path, tensors)
    got = run('write', tmp_path)
    want, size = reference_header(tensors)
    assert got == want
    path = tmp_path / 'x.safetensors'
    path.write_bytes(got)
    os.truncate(path, len(got) + size)
    listed = json.loads(run('read', path))
    assert {t['name']: t['shape'] for t in listed['tensors']} == {t[0]: t[2] for t in tensors}
    index = json.loads(run('tensors', tmp_path))
    assert index['problems'] == []
    assert [(t['name'], t['dtype'], t['shape']) for t in index['tensors']] == tensors


def test_triton_request(tmp_path):
    tensors = random_tensors(99, 300)
    write_carton(tmp_path, tensors)
    text = run('triton', tmp_path)
    request = json.loads(text)
    assert list(request) == ['inputs', 'parameters']
    assert request['parameters'] == {'binary_data_output': True}
    assert request['inputs'] == [
        {'name': n, 'shape': s, 'datatype': CARTON[d][2],
         'parameters': {'binary_data_size': size_of(d, s)}}
        for n, d, s in sorted(tensors, key=lambda t: t[0].encode())]
    assert text == json.dumps(request, ensure_ascii=False, separators=(',', ':')).encode()


# ---- safetensors read ----

def test_safetensors_every_dtype(tmp_path):
    header, data = every_safetensors_dtype()
    names = list(header)
    path = st_file(tmp_path / 'a', header, data)
    got = json.loads(run('read', path))
    assert got['metadata'] == header.pop('__metadata__')
    assert [x['name'] for x in got['tensors']] == [n for n in names if n in header]
    for x in got['tensors']:
        want = header[x['name']]
        assert (x['dtype'], x['shape']) == (want['dtype'], want['shape'])
        assert x['bytes'] == want['data_offsets'][1] - want['data_offsets'][0]


@pytest.mark.parametrize('case', BAD)
def test_safetensors_refused(tmp_path, case):
    header, data, says = BAD[case]
    if isinstance(header, str):
        header = header.encode()
    message = run('read', st_file(tmp_path / 'x', header, data, pad=False), ok=False)
    assert says in message and message.count('\n') == 1


@pytest.mark.parametrize('header', [
    b'{}', b'{}   ', b'{"__metadata__":{}}',
    b'{ \t\r\n"a" :\n{"shape":[0],"data_offsets":[0,0],"dtype":"F32"} }',
    b'{"a":{"x":[{"k":null},true,-1.5e3,"s"],"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
    b'{"\\ud83e\\udd73\\u0000":{"dtype":"U8","shape":[0,18446744073709551615],'
    b'"data_offsets":[0,0]}}',
    b'{"a":{"x":' + b'[' * 62 + b']' * 62 + b',"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
])
def test_safetensors_accepted(tmp_path, header):
    want = json.loads(header)
    metadata = want.pop('__metadata__', {})
    got = json.loads(run('read', st_file(tmp_path / 'x', header, pad=False)))
    assert [x['name'] for x in got['tensors']] == list(want)
    assert got.get('metadata', {}) == metadata


def test_safetensors_lengths(tmp_path):
    path = tmp_path / 'x'
    for data, says in ((b'', 'too few'), (b'\2\0\0\0\0\0\0', 'too few'),
                       (struct.pack('<Q', 3) + b'{}', 'more than the file'),
                       (struct.pack('<Q', 2 ** 64 - 1) + b'{}', 'more than 100000000'),
                       (struct.pack('<Q', 100000001) + b'{}', 'more than 100000000')):
        path.write_bytes(data)
        assert says in run('read', path, ok=False)
    path.write_bytes(struct.pack('<Q', 100000000) + b'{}' + b' ' * 99999998)
    assert json.loads(run('read', path))['tensors'] == []


def test_safetensors_many(tmp_path):
    """100,000 tensors take a second of CPU at most, whatever the order of their offsets."""
    header = {f'model.layers.{i}.mlp.weight': st('F32', (4, 4), 64 * i, 64 * i + 64)
              for i in range(100000)}
    names = list(header)
    random.Random(4).shuffle(names)
    path = st_file(tmp_path / 'x', {n: header[n] for n in names})
    os.truncate(path, path.stat().st_size + 64 * 100000)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = run('read', path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert [x['name'] for x in json.loads(out)['tensors']] == names
    assert took < 1 * harness.SLOW


# ---- string tensors ----

STRINGS = [[], [''], ['', ''], ['a', 'é', '🥳', '', '\0', 'x\0y', 'tail\0', 'q"\\\n'],
           ['🥳' * 100000], ['x' * (1 << 20), 'y'], ['p' * 65532, 'q' * 65535, 'r' * 65536],
           [str(i) for i in range(20000)]]


@pytest.mark.parametrize('strings', STRINGS, ids=range(len(STRINGS)))
def test_strings(strings):
    text, want = strings_toml(strings), bytes_form(strings)
    width = max(map(len, strings), default=0)
    assert run('measure', len(strings), data=text).decode() == f'{len(want)} {width}\n'
    assert run('bytes', len(strings), data=text) == want
    array = np.array(strings, dtype=f'<U{max(1, width)}')
    assert run('ucs4', len(strings), max(1, width), data=text) == array.tobytes()


@pytest.mark.parametrize('text, says', [
    ('', 'has no key data'), ('other = 1', 'line 1: unexpected key'),
    ('data = ["a", "b"]\nx = 1', 'line 2: unexpected key'),
    ('data = "a"', 'not an array'), ('data = ["a", 1]', 'not a string'),
    ('data = [["a", "b"]]', 'not a string'), ('data = [{a = "b"}, "c"]', 'not a string'),
    ('data.x = "a"', 'not an array'), ('[data]\nx = "a"', 'not an array'),
    ('[[data]]\nx = "a"', ''), ('data = ["a", "b"', 'line 1'),
    ('data = ["a", "b"]\ndata = []', 'line 2'),
])
def test_strings_refused(text, says):
    for what in ('measure', 'bytes'):
        assert says in run(what, 2, data=text.encode(), ok=False)


@pytest.mark.parametrize('text, says', [
    ('data = ["a"]', '1 elements, but its shape 2'), ('data = ["a", "b", "c"]', 'more than the 2'),
])
def test_other_number_of_strings(text, says):
    assert says in run('bytes', 2, data=text.encode(), ok=False)


def test_strings_memory_is_flat():
    """Ten times the elements in hardly more memory."""
    def peak(n):
        text = b'data = [' + b'"0123456789",' * n + b']'
        p = subprocess.Popen([TOOL, 'measure', str(n)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
        p.stdin.write(text)
        p.stdin.close()
        out = p.stdout.read()
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = status
        assert status == 0 and out == b'%d 10\n' % (14 * n)
        return usage.ru_maxrss
    assert peak(2000000) < peak(200000) + 2048
