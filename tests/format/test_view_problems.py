# SPDX-License-Identifier: Apache-2.0
"""Bad tensors and indexes: what is wrong with one tensor is a problem of that one alone."""
import json
import os
import random
import re
import signal

import numpy as np
import pytest

from harness import ctl
from origin import lines_of
from tensorfiles import (Tensor, TensorData, numeric, reference_file, st, st_bytes,
                         toml_string)
from viewcheck import DATA, check_values, index_of, names_in
from zipwriter import Carton, sample, sha256


def bad(name, says, **kw):
    """A tensor that would be good, but for what is given; and what its problem must say."""
    base = dict(dtype='int32', shape=(2,), data=bytes(8))
    return Tensor(name, **(base | kw)), says


def keys(**kw):
    return dict(keys=kw)


BAD = [
    bad('too short', '7 bytes.*8', raw=bytes(7)),
    bad('too long', '9 bytes.*8', raw=bytes(9)),
    bad('empty file', '0 bytes.*8', raw=b''),
    bad('size but empty shape', '8 bytes.*0', shape=(2, 0), data=b'', raw=bytes(8)),
    bad('overflow', 'too large', shape=(2 ** 62, 4), data=b''),
    bad('overflow of bytes', 'too large', shape=(2 ** 62,), data=b''),
    bad('overflow beside zero', 'too large', shape=(0, 2 ** 62, 2 ** 62), data=b''),
    bad('negative', 'negative', shape=(-1, -8)),
    bad('rank', '64 dimensions', shape=(1,) * 65, data=bytes(4)),
    bad('unknown dtype', "unknown", **keys(dtype='"float16"')),
    bad('upper case dtype', "unknown", **keys(dtype='"INT32"')),
    bad('dtype number', 'dtype is not a string', **keys(dtype='32')),
    bad('dtype list', 'dtype is not a string', **keys(dtype='["int32"]')),
    bad('no dtype', 'no dtype', **keys(dtype=None)),
    bad('no shape', 'no shape', **keys(shape=None)),
    bad('shape number', 'list of integers', **keys(shape='2')),
    bad('shape strings', 'list of integers', **keys(shape='["2"]')),
    bad('shape floats', 'list of integers', **keys(shape='[2.0]')),
    bad('shape nested', '', **keys(shape='[[2]]')),
    bad('no file', 'no file', **keys(file=None)),
    bad('file number', 'file is not a string', **keys(file='1')),
    bad('file missing', 'not in the carton', **keys(file='"missing.bin"')),
    bad('file a directory', 'not a regular file', **keys(file='"sub"')),
    bad('file above', 'inside tensor_data', **keys(file='"../model/weights.bin"')),
    bad('file down and up', 'inside tensor_data', **keys(file='"sub/../../model/weights.bin"')),
    bad('file dot', 'inside tensor_data', **keys(file='"./good.bin"')),
    bad('file absolute', 'inside tensor_data', **keys(file='"/etc/passwd"')),
    bad('file empty', 'inside tensor_data', **keys(file='""')),
    bad('file slash', 'inside tensor_data', **keys(file='"sub/"')),
    bad('file NUL', 'inside tensor_data', **keys(file='"good.bin\\u0000"')),
    bad('file too long', 'inside tensor_data', **keys(file=toml_string('x/' * 2100 + 'x'))),
    bad('has inner', 'not nested', **keys(inner='["good"]')),
    bad('inner number', 'inner', **keys(inner='1')),
    bad('name number', 'name is not a string', **keys(name='7')),
    bad('no name', 'no name', **keys(name=None)),
    bad('name too long', '65537 bytes', **keys(name=f'"{"n" * 65537}"')),
    bad('twice', '2 tensors', data=bytes(8)),
       bad('twice', '2 tensors', dtype='int8', data=bytes(2)),
    bad('thrice', '3 tensors'), bad('thrice', '3 tensors'), bad('thrice', '3 tensors'),
    bad('strings too few', '1 elements', dtype='string', data=['a']),
    bad('strings too many', '3 elements', dtype='string', data=['a', 'b', 'c']),
    bad('strings none', 'no key data', dtype='string', raw=b''),
    bad('strings not TOML', 'line 1', dtype='string', raw=b'data = ["a" "b"]'),
    bad('strings cut', 'line', dtype='string', raw=b'data = ["a", "b"'),
    bad('strings numbers', 'not a string', dtype='string', raw=b'data = ["a", 1]'),
    bad('strings nested', 'not a string', dtype='string', raw=b'data = [["a", "b"]]'),
    bad('strings other key', 'unexpected key', dtype='string', raw=b'data = ["a", "b"]\nmore = 1'),
    bad('strings not UTF-8', '', dtype='string', raw=b'data = ["a", "\xff"]'),
    bad('strings surrogate', '', dtype='string', raw=b'data = ["a", "\\ud800"]'),
    bad('strings in .bin', '.toml', dtype='string', data=['a', 'b'], file='words.bin'),
    bad('strings overflow', 'too large', dtype='string', data=['a'], shape=(2 ** 62, 2 ** 62)),
    bad('strings missing', 'not in the carton', dtype='string', data=[], **keys(file='"no.toml"')),
    bad('nested in nested', 'itself nested', dtype='nested', inner=['good', 'pair']),
    bad('nested in itself', 'itself nested', dtype='nested', inner=['nested in itself']),
    bad('nested of nobody', 'does not exist', dtype='nested', inner=['nobody']),
    bad('nested of bad', 'has a problem', dtype='nested', inner=['good', 'too short']),
    bad('nested of bad strings', 'has a problem', dtype='nested', inner=['strings too few']),
    bad('nested of twice', 'has a problem', dtype='nested', inner=['twice']),
    bad('nested with file', 'has a file', dtype='nested', inner=['good'],
        **keys(file='"good.bin"')),
    bad('nested without inner', 'no inner', dtype='nested', inner=[], **keys(inner=None)),
    bad('nested of number', 'list of names', dtype='nested', inner=[], **keys(inner='[1]')),
    bad('corrupt strings', 'damaged', dtype='string', data=['a', 'b']),
]


def good_ones():
    rng = random.Random(4)
    return [numeric(rng, 'good', 'float32', (2, 3), file='good.bin'),
            Tensor('words', 'string', (2,), ['a', 'b']),
            Tensor('pair', 'nested', inner=['words', 'good'])]


@pytest.fixture(scope='module')
def bad_carton(session_dir):
    """(path, TensorData of good ones, Carton): all of BAD among good ones."""
    good = TensorData(*good_ones())
    every = TensorData(*good.list[:2], *[t for t, _ in BAD], *good.list[2:])
    c = Carton()
    c.add('tensor_data/sub/file', b'x').add('model/weights.bin', bytes(8))
    for t, _ in BAD:
        if 'file' in t.keys or t.dtype == 'nested':
            t.file = ''
    every.put(c)
    corrupt = next(t for t in every.list if t.name == 'corrupt strings')
    c.change('tensor_data/' + corrupt.file, sha=sha256(b'another'))
    return c.write(session_dir / 'bad.carton'), good, c


def test_bad_tensors(mount_fg, bad_carton):
    path, good, c = bad_carton
    with mount_fg(path) as m:
        check_values(m, good)
        assert names_in(m) == set(good.views()) | {'pair'}
        index = index_of(m)
        assert [t['name'] for t in index['tensors']] == [t.name for t in good.list]
        unnamed = [p for p in index['problems'] if 'name' not in p]
        assert sorted(p['problem'] for p in unnamed) == sorted([
            'it has no name', 'its name is not a string',
            'its name has 65537 bytes, more than 65536'])
        lines = m.read('tensor_data/index.toml').split(b'\n')
        assert [p for p in index['problems'] if lines[p['line'] - 1] != b'[[tensor]]'] == []
        problems = [p for p in index['problems'] if 'name' in p]
        want = [(t.name, says) for t, says in BAD if 'name' not in t.keys]
        assert [p['name'] for p in problems] == [n for n, _ in want]
        for p, (name, says) in zip(problems, want):
            assert re.search(says, p['problem']), (name, p['problem'])
        log = m.log()
        for name, _ in want:
            assert lines_of(log, f'"{re.escape(name)}"'), name
        # the raw files are as good as ever
        corrupt = [p for p, e in c.entries.items() if e.sha]
        for name, data in c.files().items():
            if name in corrupt:
                assert m.error(name) == 'EIO'
            else:
                assert m.read(name) == data
        assert m.read('views/tensor_data.safetensors') == reference_file(good.numeric())


@pytest.mark.parametrize('form', ['text', 'json'])
def test_bad_tensors_are_reported_by_verify(bad_carton, form):
    path, good, c = bad_carton
    p = ctl('verify', *(['--json'] if form == 'json' else []), path)
    assert p.returncode not in (0, -signal.SIGSEGV) and p.returncode < 64
    text = p.stdout + p.stderr
    if form == 'json':
        text = '\n'.join(json.dumps(x, ensure_ascii=False) if not isinstance(x, str) else x
                         for x in json.loads(p.stdout)['problems']).replace('\\"', '"')
    for t, says in BAD:
        if 'name' not in t.keys:
            assert re.search(f'"{re.escape(t.name)}".*{says}', text), t.name
    assert 'it has no name' in text and 'its name is not a string' in text
    for t in good.list:
        assert f'"{t.name}":' not in text


@pytest.mark.parametrize('case', range(len(BAD)), ids=lambda i: BAD[i][0].name)
def test_bad_tensor_alone(work, mount, bad_carton, case):
    """Each by itself, in a carton without the others: no fault hides behind another."""
    t, says = BAD[case]
    good = TensorData(*good_ones())
    c = TensorData(good.list[0], t, *good.list[1:]).put(Carton())
    c.add('tensor_data/sub/file', b'x').add('model/weights.bin', bytes(8))
    c.write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        check_values(m, good)
        alone = ('twice', 'thrice', 'corrupt strings')
        assert len(index_of(m)['problems']) == (t.name not in alone)


INDEXES = {  # name: (index.toml, what the problem says)
    'not TOML': (b'[[tensor]\n', 'line|expected|]'),
    'not UTF-8': (b'[[tensor]]\nname = "\xff"\n', 'UTF-8'),
    'cut': (b'[[tensor]]\nname = "a', ''),
    'tensor a table': (b'[tensor]\nname = "a"\n', 'not an array'),
    'tensor a number': (b'tensor = 1\n', 'not an array'),
    'tensor of numbers': (b'tensor = [1, 2]\n', 'not a table'),
    'too many': (b'[[tensor]]\n' * 1000001, 'more than 1000000 tensors'),
    'key twice': (b'[[tensor]]\nname = "a"\nname = "b"\n', ''),
    'deep': (b'x = ' + b'[' * 100 + b']' * 100 + b'\n', ''),
}


@pytest.mark.parametrize('case', INDEXES)
def test_bad_index(work, mount_fg, case):
    text, says = INDEXES[case]
    c = sample().change('tensor_data/index.toml', data=text)
    c.write(work / 'm.carton')
    with mount_fg(work / 'm.carton', '-o', 'memory=2G') as m:
        assert os.listdir(m / DATA) == ['index.json']
        index = index_of(m)
        assert index['tensors'] == [] and len(index['problems']) == 1
        assert re.search(says, index['problems'][0]['problem'], re.S)
        assert not os.path.exists(m / 'views/tensor_data.safetensors')
        assert m.read('tensor_data/index.toml') == text
        assert m.read('tensor_data/tensor_0.bin') == c.entries['tensor_data/tensor_0.bin'].data
    p = ctl('verify', work / 'm.carton')
    assert p.returncode != 0 and 'tensor_data/index.toml' in p.stdout + p.stderr


def test_index_over_a_limit_is_no_fault_of_others(work, mount):
    """The rest of views/ is there."""
    data = st_bytes({'t': st()}, b'x')
    c = Carton().add('tensor_data/index.toml', INDEXES['too many'][0])
    c.add('model/w.safetensors', data).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        assert sorted(os.listdir(m / 'views')) == ['.cartonfs-views', 'model', 'tensor_data']
        assert m.read('views/model/w.safetensors/t.bin') == b'x'


def test_elements_that_are_no_tables(work, mount):
    """Beside them, tensors are what they are."""
    td = TensorData(numeric(random.Random(1), 'a', 'int8', (3,)))
    text = b"tensor = [1, {name = 'a', dtype = 'int8', shape = [3], file = 't0.bin'}, [{}], {}]\n"
    td.put(Carton()).change('tensor_data/index.toml', data=text).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        check_values(m, td)
        assert [p['problem'] for p in index_of(m)['problems']] == [
            'an element of tensor is not a table', 'it has no name']


def test_quoted_text_is_cut_between_characters(work, mount):
    """64 bytes of it, or a few less."""
    texts = ['a' * k + c * 40 for c in 'éに🥳' for k in range(4)]
    for key, says in (('dtype', 'dtype'), ('file', 'file')):
        td = TensorData(*[Tensor(f't{i}', 'int8', (1,), b'x', keys={key: toml_string('/' + t)})
                          for i, t in enumerate(texts)])
        td.put(Carton()).write(work / 'm.carton')
        with mount(work / 'm.carton') as m:
            problems = [p['problem'] for p in index_of(m)['problems']]
        for text, problem in zip(texts, problems, strict=True):
            quoted = problem.split("'")[1]
            assert says in problem and ('/' + text).startswith(quoted)
            assert 60 < len(quoted.encode()) <= 64


def test_shapes_that_numpy_has_not(work, mount):
    """An empty array of a size, without its dimension of 0, that does not fit: no .npy."""
    shapes = {'a': (0, 2 ** 61 - 1), 'b': (0, 2 ** 61), 'c': (2 ** 62, 0), 'd': (0, 2 ** 31, 2 ** 30)}
    td = TensorData(*[Tensor(n, 'float32', s) for n, s in shapes.items()],
                    Tensor('s', 'string', (0, 2 ** 61), []))
    header = {n: st('F32', s, 0, 0) for n, s in {**shapes, 'e': (0, 2 ** 63)}.items()}
    td.put(Carton()).add('model/w.safetensors', st_bytes(header)).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        for where, names in ((DATA, 'abcds'), ('views/model/w.safetensors', 'abcde')):
            assert sorted(os.listdir(m / where)) == sorted(
                [f'{n}.bin' for n in names] + ['a.npy', 'index.json'])
            assert np.load(m / f'{where}/a.npy').shape == shapes['a']
            assert index_of(m, where)['problems'] == []


def test_index_missing(work, mount):
    """A tensor_data without index.toml: reported, and the files are there."""
    c = Carton().add('tensor_data/a.bin', b'1234').add('model/x', b'x')
    c.write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        assert os.listdir(m / DATA) == ['index.json']
        assert 'index.toml' in index_of(m)['problems'][0]['problem']
        assert m.read('tensor_data/a.bin') == b'1234'
    p = ctl('verify', work / 'm.carton')
    assert p.returncode != 0 and 'index.toml' in p.stdout + p.stderr


def test_index_corrupt(work, mount):
    c = sample().change('tensor_data/index.toml', sha=sha256(b'another'))
    c.write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        assert os.listdir(m / DATA) == ['index.json']
        assert 'damaged' in index_of(m)['problems'][0]['problem']
        assert m.error('tensor_data/index.toml') == 'EIO'
        assert m.read('tensor_data/tensor_0.bin') == c.entries['tensor_data/tensor_0.bin'].data
    assert ctl('verify', work / 'm.carton').returncode != 0


@pytest.mark.parametrize('text', [b'', b'# nothing\n', b'tensor = []\n',
                                  b'other = 1\n[[more]]\nx = 1\n'])
def test_index_without_tensors(work, mount, text):
    Carton().add('tensor_data/index.toml', text).add('model/x', b'x').write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        assert index_of(m) == {'tensors': [], 'problems': []}
        assert sorted(os.listdir(m / 'views')) == ['.cartonfs-views', 'tensor_data']
    assert ctl('verify', work / 'm.carton').returncode == 0


def test_unknown_keys(work, mount):
    """What the format does not know is ignored, wherever it stands."""
    t = numeric(random.Random(1), 'a', 'int64', (2,), keys=dict(
        note='"x"', extra='[1, [2]]', table='{name = "b", shape = [9]}'))
    td = TensorData(t)
    c = td.put(Carton())
    c.change('tensor_data/index.toml', data=b'version = 3\n' + td.toml() +
             b'\n[tensors]\nname = 1\n')
    c.write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        check_values(m, td)


def test_no_tensor_data(work, mount):
    Carton().add('model/x', b'x').write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        assert os.listdir(m / 'views') == ['.cartonfs-views']
    assert ctl('verify', work / 'm.carton').returncode == 0


def test_shared_and_linked_files(work, mount):
    """Two tensors of one file, a file in a subdirectory, and a symlink to a file of the carton."""
    data = bytes(range(48))
    td = TensorData(Tensor('a', 'uint8', (48,), data, file='sub/dir/x'),
                    Tensor('b', 'float64', (2, 3), data, file='sub/dir/x'),
                    Tensor('c', 'int32', (12,), data, file='link.bin'))
    c = td.put(Carton().symlink('tensor_data/link.bin', '../model/real')).add('model/real', data)
    c.write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        check_values(m, td)
        assert m.read('views/tensor_data.safetensors') == reference_file(td.list)
