# SPDX-License-Identifier: Apache-2.0
"""
views/tensor_data.safetensors, byte for byte what the reference serializer gives; and the tensors of
safetensors files in the carton, written by an independent writer, good and malformed.
"""
import concurrent.futures
import errno
import json
import os
import random
import re
import struct
import subprocess

import numpy as np
import pytest

import harness
from harness import ctl, eventually
from origin import PRIVATE, LinkedCarton, errno_of, lines_of
from tensorfiles import (BAD, BITS, CARTON, LIKE_CARTON, NUMPY, ORDER, RAW, Tensor, TensorData, decoded,
                         every_safetensors_dtype, npy_bytes, numeric, random_name, random_tensors,
                         reference_file, st, st_bytes)
from zipwriter import Carton, Sparse, compress, sha256

MIB = 1 << 20
W = 'views/model/w.safetensors'


def index_of(m, where=W):
    return json.loads(harness.read_file(m / f'{where}/index.json'))


def parse(data):
    """({name: (dtype, shape, bytes)}, metadata or None) of a file, by the rules of the format."""
    n, = struct.unpack_from('<Q', data)
    assert n <= 100000000 and 8 + n <= len(data) and data[8:9] == b'{'

    def once(pairs):
        assert len({k for k, _ in pairs}) == len(pairs), 'a key is there twice'
        return dict(pairs)
    header, rest = json.loads(data[8:8 + n], object_pairs_hook=once), data[8 + n:]
    metadata, at, out = header.pop('__metadata__', None), 0, {}
    for name, t in sorted(header.items(), key=lambda kv: kv[1]['data_offsets']):
        assert list(t) == ['dtype', 'shape', 'data_offsets']
        begin, end = t['data_offsets']
        assert begin == at and (end - begin) * 8 == np.prod(t['shape'],
                                                            dtype=object) * BITS[t['dtype']]
        out[name], at = (t['dtype'], t['shape'], rest[begin:end]), end
    assert at == len(rest)
    return out, metadata


# ---- all tensors of tensor_data as one file ----

@pytest.mark.parametrize('seed', range(4))
def test_collection(work, mount, seed):
    """Many tensors with odd names; strings and nested ones among them are left out."""
    rng, td = random.Random(seed), TensorData()
    for name, dtype, shape in random_tensors(seed, 600):
        td.add(numeric(rng, name, dtype, shape))
    td.list.insert(7, Tensor('only words', 'string', (1,), ['x'], file='words.toml'))
    td.add(Tensor('pair', 'nested', inner=[td.list[0].name, 'only words']))
    td.put(Carton()).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        got = m.read('views/tensor_data.safetensors')
        assert got == reference_file(td.numeric())
        assert os.stat(m / 'views/tensor_data.safetensors').st_size == len(got)
    tensors, metadata = parse(got)
    assert metadata is None and b'__metadata__' not in got
    assert tensors == {t.name: (CARTON[t.dtype][1], list(t.shape), t.data) for t in td.numeric()}
    assert sorted({ORDER.index(d) for d, _, _ in tensors.values()}) == list(range(len(ORDER)))
    # and in a carton it is a safetensors file like any other
    Carton().add('model/w.safetensors', got).write(work / 'n.carton')
    with mount(work / 'n.carton') as m:
        assert [t['name'] for t in index_of(m)['tensors']] == list(tensors)
        check_file(m, W, got)


@pytest.mark.parametrize('kind', ['all of one dtype', 'one scalar', 'only empty',
                                  'one empty and one'])
def test_collection_of_few(work, mount, kind):
    rng = random.Random(1)
    td = TensorData(*{
        'all of one dtype': [numeric(rng, n, 'int8', (3,)) for n in ('b', 'a', 'B', 'é', 'aa', '')],
        'one scalar': [numeric(rng, 'x', 'float64', ())],
        'only empty': [numeric(rng, 'x', 'uint16', (0,)), numeric(rng, 'a', 'uint16', (2, 0))],
        'one empty and one': [numeric(rng, 'x', 'int64', (0,)), numeric(rng, 'y', 'int64', (1,))],
    }[kind])
    td.put(Carton()).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        assert m.read('views/tensor_data.safetensors') == reference_file(td.list)


@pytest.mark.parametrize('kind', ['none', 'strings', 'bad'])
def test_no_collection_of_nothing(work, mount, kind):
    td = TensorData(*{'none': [], 'strings': [Tensor('s', 'string', (1,), ['x'])],
                      'bad': [Tensor('b', 'int8', (2,), bytes(2), raw=b'x')]}[kind])
    td.put(Carton()).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        assert sorted(os.listdir(m / 'views')) == ['.cartonfs-views', 'tensor_data']


def test_collection_without_the_bad_ones(work, mount):
    """And without one that has the name that the format keeps for itself."""
    rng = random.Random(1)
    good = [numeric(rng, 'a', 'int32', (2,)), numeric(rng, 'b', 'int8', (5,))]
    td = TensorData(good[0], Tensor('short', 'int64', (2,), bytes(16), raw=bytes(15)),
                    numeric(rng, 'twice', 'int8', (1,)), good[1],
                    numeric(rng, 'twice', 'int8', (1,)),
                    numeric(rng, '__metadata__', 'int8', (1,)))
    td.put(Carton()).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        assert m.read('views/tensor_data.safetensors') == reference_file(good)
        assert m.read('views/tensor_data/__metadata__.bin') == td.list[-1].data


@pytest.mark.parametrize('n', [8191, 8192])
def test_collection_beyond_every_file(work, mount_fg, n):
    """Tensors of one file of 2^50 bytes, together just below 2^63, or not; nobody reads it."""
    size, huge = 2 ** 50, Sparse(2 ** 50)
    huge._sums = 0, '00' * 32
    td = TensorData(*[Tensor(f't{i:04}', 'uint8', (size,), file='huge') for i in range(n)],
                    Tensor('few', 'nested', inner=['t0000'] * 16383),
                    Tensor('many', 'nested', inner=['t0000'] * 16384))
    c = Carton().add('tensor_data/huge', huge, payload=compress(b'x', 93))
    td.put(c).write(work / 'm.carton')
    with mount_fg(work / 'm.carton') as m:
        path = m / 'views/tensor_data.safetensors'
        if n == 8191:
            assert 0 < os.stat(path).st_size - n * size < 2 ** 21
        else:
            assert errno_of(os.stat, path) == errno.ENOENT
            assert lines_of(m.log(), '2.63 bytes or more')
        few, many = index_of(m, 'views/tensor_data')['tensors'][-2:]
        assert few['bytes'] == 16383 * size and many['bytes'] is None


def test_collection_of_large_compressed_files(work, mount):
    """Parts that are unpacked to files, more of them than a process may hold open with ease."""
    td = TensorData(*[Tensor(f't{i}', 'uint8', (5 * MIB,),
                             bytes([i]) * (5 * MIB)) for i in range(20)])
    td.put(Carton(method='zstd')).write(work / 'm.carton')
    with mount(work / 'm.carton', '-o', f'cache_dir={work}/cache') as m:
        assert m.sha('views/tensor_data.safetensors') == sha256(reference_file(td.list))


# ---- a file of the carton ----

def check_file(m, where, data):
    """Every tensor of a file, by its views; and that there is nothing else."""
    tensors, metadata = parse(data)
    index, files = index_of(m, where), {'index.json'}
    assert index['problems'] == [] and index.get('metadata') == (metadata or None)
    order = list(json.loads(data[8:8 + struct.unpack_from('<Q', data)[0]]))
    assert [t['name'] for t in index['tensors']] == [n for n in order if n != '__metadata__']
    for got in index['tensors']:
        dtype, shape, body = tensors[got['name']]
        assert (got['dtype'], got['shape'], got['bytes']) == (dtype, shape, len(body))
        paths = [m / f'{where}/{f}' for f in got['files']]
        assert harness.read_file(paths[0]) == body and paths[0].endswith('.bin')
        assert len(paths) == (2 if dtype in NUMPY else 1)
        if dtype in NUMPY:
            array = np.frombuffer(body, NUMPY[dtype]).reshape(shape)
            assert paths[1].endswith('.npy') and harness.read_file(paths[1]) == npy_bytes(array)
            for mode in (None, 'r'):
                assert np.load(paths[1], mmap_mode=mode).tobytes() == body
        for path in paths:
            label = os.getxattr(path, 'user.carton.dtype').decode()
            # as a carton spells it, or like that
            names = {v[1]: c for c, v in CARTON.items()} | LIKE_CARTON
            assert label == names[dtype]
            assert json.loads(os.getxattr(path, 'user.carton.shape')) == shape
        files |= set(got['files'])
    assert set(os.listdir(m / where)) == files


@pytest.mark.parametrize('storage', ['zstd', 'deflate', 'stored', 'directory'])
def test_every_dtype(work, mount, who, storage):
    data = st_bytes(*every_safetensors_dtype())
    c = Carton(method='stored' if storage == 'directory' else storage)
    c.add('model/w.safetensors', data)
    c.unpack(work / 'm') if storage == 'directory' else c.write(work / 'm')
    with mount(work / 'm', uid=who) as m:
        m.do(check_file, m, W, data)
        assert m.read('model/w.safetensors') == data


def test_wherever_it_is(work, mount):
    """views/ has the directories of the tree, with nothing in it but what holds tensors."""
    rng, c, want = random.Random(1), Carton(), {}
    for i, path in enumerate(['top.safetensors', 'model/a/b/c.safetensors', 'model/a.safetensors',
                              'model/a/b/d e🥳.safetensors', 'misc/x.safetensors',
                              'model/z/.safetensors',
                              'model/a/tensor_data/y.safetensors', 'model/empty.safetensors']):
        names = {} if 'empty' in path else {f'n{i}': st('I16', (i + 1,), 0, 2 * i + 2)}
        want[path] = st_bytes(names, rng.randbytes(2 * i + 2) if names else b'')
        c.add(path, want[path])
    for other in ('model/w.SAFETENSORS', 'model/safetensors', 'model/w.safetensors.json',
                  'model/a/w.bin'):
        c.add(other, want['top.safetensors'])
    c.write(work / 'm.carton')
    named = {p for p in want if not p.endswith('/.safetensors')}
    with mount(work / 'm.carton') as m:
        for path in named:
            check_file(m, 'views/' + path, want[path])
        found = {os.path.relpath(r, m / 'views') for r, _, files in os.walk(m / 'views')
                 if 'index.json' in files}
        assert found - {'model/z/.safetensors'} == named
        for r, d, _ in os.walk(m / 'views'):
            assert len(d) == len(set(d))


def test_symlinks(work, mount):
    """A symlink has views by its own name, whatever the file is called; and no others."""
    data, c = st_bytes({'t': st('I16', (3,), 0, 6)}, b'abcdef'), Carton()
    c.add('blobs/4711', data).add('model/w.safetensors', data)
    c.symlink('model/hub.safetensors', '../blobs/4711').symlink('model/far/l.safetensors',
                                                                '../hub.safetensors')
    c.symlink('model/other', 'w.safetensors').symlink('model/toml.safetensors', '../carton.toml')
    c.write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        for name in ('w', 'hub', 'far/l'):
            check_file(m, f'views/model/{name}.safetensors', data)
        assert sorted(os.listdir(m / 'views/model')) == [
            'far', 'hub.safetensors', 'toml.safetensors', 'w.safetensors']
        problem, = index_of(m, 'views/model/toml.safetensors')['problems']
        assert problem


def test_beside_the_views_of_tensor_data(work, mount_fg):
    """Names that views/ has taken: the files are there, the log says that they have no views."""
    td = TensorData(numeric(random.Random(1), 'a', 'int8', (3,)))
    c = td.put(Carton())
    data = st_bytes({'t': st()}, b'x')
    for path in ('tensor_data.safetensors', 'tensor_data/w.safetensors'):
        c.add(path, data)
    c.add('model/w.safetensors', data)
    c.write(work / 'm.carton')
    with mount_fg(work / 'm.carton') as m:
        assert m.read('views/tensor_data.safetensors') == reference_file(td.list)
        assert sorted(os.listdir(m / 'views/tensor_data')) == ['a.bin', 'a.npy', 'index.json']
        check_file(m, W, data)
        assert m.read('tensor_data.safetensors') == m.read('tensor_data/w.safetensors') == data
        assert lines_of(m.log(), 'w.safetensors')


def test_names(work, mount):
    rng = random.Random(2)
    names = {random_name(rng) for _ in range(2000)} | {'', '.', '..', '/', '%', '\0', 'index', 'A',
                                                       'A.npy',
                                                       'A.bin', 'x' * 300, 'x' * 65536, 'é' * 300,
                                                       '🥳'}
    names = sorted(names, key=lambda _: rng.random())
    header = {n: st('U16', (2,), 4 * i, 4 * i + 4) for i, n in enumerate(names)}
    data = st_bytes(header, rng.randbytes(4 * len(names)))
    Carton().add('model/w.safetensors', data).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        check_file(m, W, data)
        for t in index_of(m)['tensors']:
            if '%~' not in t['files'][0]:
                assert decoded(t['files'][0][:-4]) == t['name']


def test_the_same_file_twice(work, mount):
    data = st_bytes(*every_safetensors_dtype())
    Carton().add('model/a.safetensors', data).add('model/b.safetensors',
                                                  data).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        for name in 'ab':
            check_file(m, f'views/model/{name}.safetensors', data)


def test_tensors_at_any_offset(work, mount):
    """Odd offsets and a header of any length: data need not be aligned in the file."""
    rng, data = random.Random(3), b''
    header = {}
    for i, n in enumerate([1, 70001, 3, 131072, 131071, 0, 5]):
        header[f't{i}'] = st('U8', (n,), len(data), len(data) + n)
        data += rng.randbytes(n)
    data = st_bytes(json.dumps(header).encode() + b' ' * 3, data, pad=False)
    Carton(method='stored').add('model/w.safetensors', data).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        check_file(m, W, data)


@pytest.mark.parametrize('header', [
    pytest.param(RAW % ',"__metadata__":null', id='null'), pytest.param(RAW % '' + '\n\r\t \n', id='white space behind'),
    pytest.param(RAW.replace('{', '{ \n', 1).replace('%s', '\t'), id='white space within')])
def test_as_the_reference_reads_it(work, mount, header):
    """What other writers have made: no metadata by null, and padding that is not spaces."""
    data = st_bytes(header.encode(), b'x', pad=False)
    Carton(method='stored').add('model/w.safetensors', data).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        check_file(m, W, data)
    assert ctl('verify', work / 'm.carton').returncode == 0


# ---- malformed ----

@pytest.fixture(scope='module')
def bad_files(session_dir):
    """(path, {name: (data, what the problem says)}): one file for each rule, and a good one."""
    bad = {}
    for i, (_, (header, data, says)) in enumerate(BAD.items()):
        header = header.encode() if isinstance(header, str) else header
        bad[f'{i}.safetensors'] = st_bytes(header, data, pad=False), says
    lengths = [(b'', 'too few'), (b'\2\0\0\0\0\0\0', 'too few'),
               (struct.pack('<Q', 3) + b'{}', 'more than the file'),
               (struct.pack('<Q', 2 ** 64 - 1) + b'{}', 'more than 100000000'),
               (struct.pack('<Q', 2 ** 63) + b'{}', 'more than 100000000'),
               (struct.pack('<Q', 100000001) + b'{}', 'more than 100000000')]
    for i, pair in enumerate(lengths):
        bad[f'length-{i}.safetensors'] = pair
    c = Carton()
    for name, (data, _) in bad.items():
        c.add('model/' + name, data)
    c.add('model/good.safetensors', st_bytes(*every_safetensors_dtype()))
    return c.write(session_dir / 'bad-safetensors.carton'), bad


def test_malformed(mount_fg, bad_files):
    """A directory with nothing but the reason; the file itself is as it is."""
    path, bad = bad_files
    with mount_fg(path) as m:
        assert set(os.listdir(m / 'views/model')) == set(bad) | {'good.safetensors'}
        for name, (data, says) in bad.items():
            where = f'views/model/{name}'
            assert os.listdir(m / where) == ['index.json'], name
            index = index_of(m, where)
            assert index['tensors'] == [] and len(index['problems']) == 1
            assert says in index['problems'][0]['problem'], name
            assert m.read(f'model/{name}') == data
            assert lines_of(m.log(), re.escape(name)), 'it is logged'
        check_file(m, 'views/model/good.safetensors', st_bytes(*every_safetensors_dtype()))


def test_duplicates_are_refused(work, mount):
    """The reference reader takes the last of two: here there is no such file."""
    text = (b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
            b'"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}')
    Carton().add('model/w.safetensors', st_bytes(text, b'x')).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        assert 'twice' in index_of(m)['problems'][0]['problem']


def test_header_bound(work, mount):
    """100,000,000 bytes of header are read, one more is refused; neither fills the memory."""
    for n, good in ((100000000, True), (100000001, False)):
        body = Sparse(8 + n, {0: struct.pack('<Q', n) + b'{}'})
        data = struct.pack('<Q', n) + b'{}' + b' ' * (n - 2)
        assert len(body) == len(data)
        Carton(method='deflate').add('model/w.safetensors', data, level=1).write(work / 'm.carton')
        with mount(work / 'm.carton', '-o', f'memory=2G,cache_dir={work}/cache') as m:
            assert (index_of(m)['problems'] == []) == good


@pytest.mark.parametrize('method', ['stored', 'zstd'])
def test_corrupt_file(work, mount, method):
    """Its hash is wrong: the directory says so, and opening the file is EIO."""
    data = st_bytes(*every_safetensors_dtype())
    c = Carton(method=method).add('model/w.safetensors', data, sha=sha256(b'another'))
    c.add('model/good.safetensors', st_bytes({'t': st()}, b'x')).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        assert os.listdir(m / W) == ['index.json']
        assert 'damaged' in index_of(m)['problems'][0]['problem']
        assert m.error('model/w.safetensors') == 'EIO'
        check_file(m, 'views/model/good.safetensors', st_bytes({'t': st()}, b'x'))


# ---- when ----

@pytest.mark.parametrize('method', ['stored', 'zstd'])
def test_verified_at_first_use(work, mount, method):
    """Not at mount, nor by listing what is above it, but by the first look into it."""
    data = st_bytes({'t': st('U8', (9 * MIB,), 0, 9 * MIB)}, random.Random(1).randbytes(9 * MIB))
    c = Carton(method=method)
    for name in 'ab':
        c.add(f'model/{name}.safetensors', data[:-1] + name.encode())
    c.write(work / 'm.carton')
    with mount(work / 'm.carton', '-o', f'cache_dir={work}/cache') as m:
        assert sorted(os.listdir(m / 'views/model')) == ['a.safetensors', 'b.safetensors']
        os.stat(m / 'views/model/a.safetensors')
        assert m.state('model/a.safetensors') == m.state('model/b.safetensors') == 'unverified'
        assert os.stat(m / 'views/model/a.safetensors/t.bin').st_size == 9 * MIB
        assert m.state('model/a.safetensors') == 'verified'
        assert m.state('model/b.safetensors') == 'unverified'
        assert m.read('views/model/b.safetensors/t.bin')[-1:] == b'b'


def test_hundred_thousand(work, mount):
    """All are listed, and named in the index; tests/bench says how long the list takes."""
    names = [f'model.layers.{i}.mlp.weight' for i in range(100000)]
    header = {n: st('F32', (4, 4), 64 * i, 64 * i + 64) for i, n in enumerate(names)}
    data = random.Random(1).randbytes(6400000)
    Carton().add('model/w.safetensors', st_bytes(header, data)).write(work / 'm.carton')
    with mount(work / 'm.carton', '-o', f'cache_dir={work}/cache') as m:
        assert len(os.listdir(m / W)) == 200001
        for i in random.Random(2).sample(range(100000), 50):
            assert m.read(f'{W}/{names[i]}.bin') == data[64 * i:64 * i + 64]
        assert [t['name'] for t in index_of(m)['tensors']] == names


def test_concurrent_first_use(work, mount):
    data = {f'{i}': st_bytes(*every_safetensors_dtype(i)) for i in range(6)}
    c = Carton()
    for name, d in data.items():
        c.add(f'model/{name}.safetensors', d)
    c.write(work / 'm.carton')
    with mount(work / 'm.carton') as m, concurrent.futures.ThreadPoolExecutor(12) as pool:
        jobs = [pool.submit(check_file, m, f'views/model/{n}.safetensors', d)
                for _ in range(3) for n, d in data.items()]
        assert [j.result() for j in jobs] == [None] * len(jobs)


# ---- over a network ----

def test_linked(work, mount, fault):  # noqa: F811
    """A file of LINKS is fetched by the first look into its directory, and once."""
    data = st_bytes({'t': st('U8', (3 * MIB,), 0, 3 * MIB)}, random.Random(1).randbytes(3 * MIB))
    with open(os.path.join(fault.root, 'w'), 'wb') as f:
        f.write(data)
    c = LinkedCarton().link('model/w.safetensors', data, fault.url('w', file='w'))
    c.write(work / 'm.carton')
    with mount(work / 'm.carton', *PRIVATE, '-o', f'cache_dir={work}/cache') as m:
        assert os.listdir(m / 'views/model') == ['w.safetensors']
        assert fault.requests() == []
        check_file(m, W, data)
        assert m.read('model/w.safetensors') == data
        assert sum(r['sent'] for r in fault.requests() if r['method'] == 'GET') == len(data)


def test_linked_and_not_there_yet(work, mount, fault):  # noqa: F811
    """Looking into it fails as long as its server does; other files have their views meanwhile."""
    data = st_bytes({'t': st()}, b'x')
    near = st_bytes({'u': st()}, b'y')
    c = LinkedCarton().link('model/w.safetensors', data, fault.url('later', file='later'))
    c.add('model/near.safetensors', near).write(work / 'm.carton')
    with mount(work / 'm.carton', *PRIVATE, '-o', f'cache_dir={work}/cache,timeout=5') as m:
        assert errno_of(os.listdir, m / W) != 0
        check_file(m, 'views/model/near.safetensors', near)
        with open(os.path.join(fault.root, 'later'), 'wb') as f:
            f.write(data)
        check_file(m, W, data)


def test_remote(work, mount, fault):  # noqa: F811
    data = st_bytes(*every_safetensors_dtype())
    Carton(method='stored').add('model/w.safetensors', data).add('model/other',
                                                                 bytes(5 * MIB)).write(
        os.path.join(fault.root, 'r.carton'))
    with mount(fault.url('r.carton', file='r.carton'), *PRIVATE, '-o',
               f'cache_dir={work}/cache') as m:
        assert os.listdir(m / 'views/model') == ['w.safetensors']
        check_file(m, W, data)
        assert sum(r['sent'] for r in fault.requests() if r['method'] == 'GET') < 2 * MIB


def test_more_dead_servers_than_threads(work, mount, fault):  # noqa: F811
    """However many views wait for a server, others are listed meanwhile."""
    near, n = st_bytes({'u': st()}, b'y'), 40
    c = LinkedCarton().add('model/near.safetensors', near)
    for i in range(n):
        c.link(f'model/dead{i}.safetensors', b'%d' % i, fault.url(f'dead{i}', silent=1))
    c.write(work / 'm.carton')
    with mount(work / 'm.carton', *PRIVATE, '-o', f'cache_dir={work}/cache,timeout=100') as m:
        waiting = [subprocess.Popen(['ls', m / f'views/model/dead{i}.safetensors'],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                   for i in range(n)]
        try:
            eventually('all ask their server', lambda: len(fault.requests()) == n)
            check_file(m, 'views/model/near.safetensors', near)
            assert [p.poll() for p in waiting] == [None] * n
        finally:
            for p in waiting:
                p.kill()
                p.wait()
