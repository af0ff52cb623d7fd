# SPDX-License-Identifier: Apache-2.0
"""
views/tensor_data/: every tensor as .bin and .npy, under names that collide with nothing, whatever
the carton's storage; and the options that say where views are.
"""
import errno
import math
import os
import random
import re
import stat
import tomllib

import numpy as np
import pytest

import harness
from harness import ctl, run
from origin import errno_of, lines_of
from tensorfiles import (CARTON, Tensor, TensorData, bytes_form, decoded, every_dtype_and_shape,
                         npy_bytes, numeric, random_name, reference_file, toml_string)
from viewcheck import DATA, MIB, check_index, check_values, files_in, index_of, write
from zipwriter import Carton, sample


# ---- every dtype, rank and storage ----

@pytest.fixture(scope='module')
def everything():
    td = every_dtype_and_shape()
    rng = random.Random(5)
    td.add(Tensor('mixed', 'nested', inner=[t.name for t in rng.sample(td.list, 40)] * 2))
    td.add(Tensor('none', 'nested', inner=[]))
    return td


@pytest.mark.parametrize(('storage', 'uid'), [
    ('zstd', None), ('deflate', None), ('stored', None), ('directory', None),
    pytest.param('zstd', harness.NOBODY, marks=pytest.mark.needs_root, id='zstd-user')])
def test_every_dtype_rank_and_zero(work, mount, everything, storage, uid):
    td = everything
    carton = td.put(Carton(method='stored' if storage == 'directory' else storage))
    carton.add('model/main.py', b'')
    source = work / 'm'
    carton.unpack(source) if storage == 'directory' else carton.write(source)
    with mount(source, uid=uid) as m:
        m.do(check_values, m, td)
        m.do(check_index, m, td)
        assert m.read('views/tensor_data.safetensors') == reference_file(td.numeric())
        assert sorted(m.do(os.listdir, m / 'views')) == ['.cartonfs-views', 'tensor_data', 'tensor_data.safetensors']
    p = ctl('verify', source)
    assert p.returncode == 0, p.stdout + p.stderr


def test_views_take_one_block(work, mount):
    """`du` of a mount counts the model once. With no block at all, tar -S would write a hole in place of each."""
    td = write(work, numeric(random.Random(1), 'a', 'int16', (300, 500)))
    with mount(work / 'm.carton') as m:
        files = [os.path.join(d, f) for d, _, names in os.walk(m.path) for f in names]
        views = [f for f in files if '/views/' in f]
        assert len(views) > 2 and all(os.stat(f).st_blocks == (os.stat(f).st_size > 0) for f in views)
        assert [f for f in files if f not in views and os.stat(f).st_blocks * 512 < os.stat(f).st_size] == []
        assert run('cp', '--sparse=auto', m / 'views/tensor_data/a.npy', work / 'a.npy').returncode == 0
        assert run('tar', '-C', m / 'views/tensor_data', '-cSf', work / 'v.tar', 'a.npy').returncode == 0
    assert (work / 'a.npy').read_bytes() == td.views()['a.npy']
    assert run('tar', '-xOf', work / 'v.tar', 'a.npy', text=False).stdout == td.views()['a.npy']


def test_modes_and_sizes(work, mount):
    """Directories and files like those of the carton; sizes exact before anything is opened."""
    td = write(work, numeric(random.Random(1), 'a', 'int16', (3, 5)),
               Tensor('s', 'string', (2,), ['x', 'é']),
               Tensor('n', 'nested', inner=['s', 'a']))
    with mount(work / 'm.carton') as m:
        want = td.views() | {'index.json': None}
        for path, data in want.items():
            s = os.stat(m / f'{DATA}/{path}')
            assert stat.filemode(s.st_mode) == '-r--r--r--' and s.st_nlink == 1
            assert data is None or s.st_size == len(data)
            assert s.st_size == len(m.read(f'{DATA}/{path}'))
        for path in ('views', DATA, DATA + '/n'):
            assert stat.filemode(os.stat(m / path).st_mode) == 'drwxr-xr-x'
        numbers = [e.inode() for d in ('views', DATA, DATA + '/n') for e in os.scandir(m / d)]
        assert len(set(numbers)) == len(numbers)
        for path in (DATA, DATA + '/a.bin'):
            assert errno_of(os.open, m / path, os.O_RDWR) in (errno.EROFS, errno.EISDIR)
        assert errno_of(os.mkdir, m / f'{DATA}/new') == errno.EROFS


def test_inner_everywhere(work, mount):
    """The reference packer writes `inner = []` on every tensor; its absence means the same."""
    tensors = [numeric(random.Random(1), 'a', 'int8', (3,)), Tensor('s', 'string', (), ['x'])]
    for everywhere in (True, False):
        td = TensorData(*tensors, inner_everywhere=everywhere)
        assert (b'inner' in td.toml()) == everywhere
        td.put(Carton()).write(work / 'm.carton')
        with mount(work / 'm.carton') as m:
            check_values(m, td)
            check_index(m, td)
        for t in tensors:
            t.keys.clear()


def test_reference_packer(mount, packer_carton):
    """A carton of the form that the reference packer writes."""
    with mount(packer_carton[0]) as m:
        listed = tomllib.loads(m.read('tensor_data/index.toml').decode())['tensor']
        index = index_of(m)
        assert index['problems'] == [] and len(listed) > 0
        assert [t['name'] for t in index['tensors']] == [t['name'] for t in listed]
        for t in listed:
            if t['dtype'] in CARTON:
                raw = m.read('tensor_data/' + t['file'])
                array = np.frombuffer(raw, CARTON[t['dtype']][0]).reshape(t['shape'])
                assert m.read(f'{DATA}/{t["name"]}.bin') == raw
                assert m.read(f'{DATA}/{t["name"]}.npy') == npy_bytes(array)
            else:
                words = tomllib.loads(m.read('tensor_data/' + t['file']).decode())['data']
                assert m.read(f'{DATA}/{t["name"]}.bin') == bytes_form(words)
        assert {t['dtype'] for t in listed} > {'string', 'float32'}


def test_ten_thousand(work, mount):
    rng, td, kinds = random.Random(7), TensorData(), [*CARTON, 'string']
    for i in range(10000):
        dtype, shape = rng.choice(kinds), [rng.randrange(4) for _ in range(rng.randrange(4))]
        if dtype == 'string':
            words = [rng.choice(['', 'ab', 'ü']) for _ in range(math.prod(shape))]
            td.add(Tensor(f'layer/{i}', dtype, shape, words))
        else:
            td.add(numeric(rng, f'layer/{i}', dtype, shape))
    td.put(Carton(method='deflate')).write(work / 'm.carton')
    want = {k.replace('layer/', 'layer%2F'): v for k, v in td.views().items()}
    with mount(work / 'm.carton') as m:
        sizes = {e.name: e.stat().st_size for e in os.scandir(m / DATA)}
        assert set(sizes) == set(want) | {'index.json'}
        assert {k: v for k, v in sizes.items() if k != 'index.json'} == {
            k: len(v) for k, v in want.items()}
        for name in rng.sample(sorted(want), 3000):
            assert m.read(f'{DATA}/{name}') == want[name]
        assert m.read('views/tensor_data.safetensors') == reference_file(td.numeric())
        assert [t['name'] for t in index_of(m)['tensors']] == [t.name for t in td.list]


# ---- strings ----

STRINGS = {
    'emoji': ['🥳', '👨‍👩‍👧', 'aé🥳', '\U0010ffff', '\ufeffbom', 'e\u0301'],
    'empty': ['', '', ''], 'no elements': [],
    'nul inside': ['a\0b', '\0a'], 'nul at the end': ['a', 'b\0'], 'only nul': ['\0'],
    'escapes': ['"', '\\', '\n', '\r\n', '\t\b\f', '\x7f', '\x01', "'''", '"""', '\u2028'],
    'a MiB': ['x' * MIB, '🥳' * (MIB // 4), 'é' * (MIB // 2 - 1) + 'x', ''],
    'around 64 KiB': ['p' * 65531, 'q' * 65532, 'r' * 65535, 's' * 65536, 't' * 65537],
    'like TOML': ['data = ["x"]', '[[tensor]]', '# no comment', ','],
}


def test_strings(work, mount):
    td = TensorData()
    for name, words in STRINGS.items():
        td.add(Tensor(name, 'string', (len(words),), words))
    td.add(Tensor('all', 'nested', inner=list(STRINGS)))
    td.put(Carton()).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        check_values(m, td)
        check_index(m, td)
        for name in ('nul at the end', 'only nul'):
            assert not os.path.exists(m / f'{DATA}/{name}.npy')


def test_string_forms_of_toml(work, mount):
    """However TOML spells the strings, and with comments between them."""
    raw = ('# comment\n  data = [ \'lit\\eral\', """\n  multi\\\n   line""", # c\n'
           "'''\nraw\nlines''',\n\"\\u00e9\\U0001F973\\t\", ]  # end\n").encode()
    words = ['lit\\eral', '  multiline', 'raw\nlines', 'é🥳\t']
    td = write(work, Tensor('s', 'string', (2, 2), words, raw=raw))
    with mount(work / 'm.carton') as m:
        check_values(m, td)


def test_million_strings(work, mount):
    rng = random.Random(11)
    pool = ['', 'a', 'bc', 'déf', '🥳', 'x' * 12]
    words = [pool[b % 6] for b in rng.randbytes(1000000)]
    td = write(work, Tensor('many', 'string', (1000, 1000), words))
    t = td.list[0]
    with mount(work / 'm.carton') as m:
        assert m.read(f'{DATA}/many.bin') == t.bin()
        assert m.read(f'{DATA}/many.npy') == t.npy()
        assert index_of(m)['tensors'][0]['bytes'] == len(t.bin())
        assert (np.load(m / f'{DATA}/many.npy', mmap_mode='r') == t.array()).all()


def test_string_npy_bound(work, mount):
    """<U stays within 256 MiB: an array of just that is there, one element more is not."""
    wide = 'x' * MIB
    td = write(work, Tensor('within', 'string', (64,), [wide] + 63 * ['y']),
               Tensor('beyond', 'string', (65,), [wide] + 64 * ['y']))
    with mount(work / 'm.carton') as m:
        assert sorted(os.listdir(m / DATA)) == ['beyond.bin', 'index.json', 'within.bin',
                                                'within.npy']
        size = os.stat(m / f'{DATA}/within.npy').st_size
        assert size == 128 + (256 << 20)
        for t in td.list:
            assert m.read(f'{DATA}/{t.name}.bin') == t.bin()


def high_water(pid):
    return int(re.search(r'VmHWM:\s+(\d+) kB', open(f'/proc/{pid}/status').read())[1]) << 10


@pytest.mark.big
def test_large_strings_in_little_memory(work, mount):
    """300 MB of strings are listed and read without 300 MB of memory."""
    n, word = 3000000, 'a short line of some text, %s' + 80 * '.'
    words = [word % i for i in range(1000)]
    text = ', '.join(map(toml_string, words)).encode()
    raw = b'data = [' + (text + b', ') * (n // 1000) + b']\n'
    assert len(raw) > 300e6
    write(work, Tensor('many', 'string', (n,), raw=raw, data=[]))
    block = b''.join(len(w).to_bytes(4, 'little') + w.encode() for w in words)
    with mount(work / 'm.carton', '-o', f'cache_dir={work}/cache') as m:
        before = high_water(m.pids[0])
        names = os.listdir(m / DATA)
        assert os.stat(m / f'{DATA}/many.bin').st_size == len(block) * (n // 1000)
        listed = high_water(m.pids[0])
        with open(m / f'{DATA}/many.bin', 'rb', buffering=0) as f:
            piece = f.read(len(block))
            assert piece == block
            f.seek(len(block) * (n // 1000 - 1))
            assert f.read(len(block)) == block and f.read(1) == b''
        after = high_water(m.pids[0])
        assert 'many.npy' not in names, 'it would have over 1 GB'
        if harness.SLOW == 1:           # sanitizers keep freed memory
            assert listed - before < 64 * MIB and after - before < 100 * MIB


# ---- names ----

NAMES = ['a/b', '/', '//', '%', '%2F', '%~empty', 'nul\0', '\0', 'new\nline', '\x1b[31m', '\x7f',
         '\x85',
         '.', '..', '...', '.hidden', '..a', '', 'x' * 300, 'x' * 299 + 'y', 'é' * 300, '/' * 300,
         'x' * 251, 'x' * 252, '🥳' * 62, '🥳' * 63, 'index', 'index.json', 'A', 'A.npy', 'A.bin',
         'A.npy.bin',
         'A.json', 'A.bin.bin', '🥳', 'e\u0301', 'é', ' ', 'tab\t', '"', '\\', "'", 'X', 'x', '0',
         'a=b', '~', '-',
         'CON', '\u202egnp', '\ufeff', 'tensor_data', 'problems']


@pytest.mark.parametrize('kind', ['numeric', 'string', 'nested'])
def test_names(work, mount, kind):
    rng, td = random.Random(3), TensorData()
    names = NAMES + sorted({random_name(rng) for _ in range(500)} - set(NAMES))
    if kind == 'nested':
        td.add(numeric(rng, 'the one inside', 'uint8', (3,)))
    for i, name in enumerate(names):
        if kind == 'numeric':
            td.add(numeric(rng, name, 'uint32', (1, i % 3)))
        elif kind == 'string':
            td.add(Tensor(name, 'string', (1,), [name + '.']))
        else:
            td.add(Tensor(name, 'nested', inner=['the one inside'] * (i % 3)))
    td.put(Carton()).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        index, seen = index_of(m), {'index.json'}
        assert index['problems'] == []
        assert [t['name'] for t in index['tensors']] == [t.name for t in td.list]
        for got, t in zip(index['tensors'], td.list):
            if kind == 'nested' and t.dtype == 'nested':
                want = [td.list[0].bin()] * len(t.inner)
            else:
                want = [t.bin(), t.npy()] if t.npy() is not None else [t.bin()]
            assert [m.read(f'{DATA}/{f}') for f in got['files']] == want
            for f in got['files']:
                top = f.split('/')[0]
                assert not top.startswith('.') and len(top.encode()) <= 255
                assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in top)
                assert f not in seen
                seen.add(f)
        assert files_in(m) == seen - {'index.json'}
        # the same names next time, also the shortened ones
        first = sorted(os.listdir(m / DATA))
        stems = {n[:-4] for n in first if n.endswith('.bin') and '%~' not in n}
        if kind != 'nested':
            assert {decoded(s) for s in stems} <= set(names) and len(stems) > 400
    with mount(work / 'm.carton') as m:
        assert sorted(os.listdir(m / DATA)) == first


def test_names_collide_with_nothing(work, mount):
    """A plain A, A.npy and A.bin, and nested tensors called like the files of these."""
    rng, td = random.Random(3), TensorData()
    for name in ('A', 'A.npy', 'A.bin', 'index', 'index.json'):
        td.add(numeric(rng, name, 'int16', (2,)))
    for name in ('X.bin', 'A.npy.npy', 'A.bin.npy', 'index.json.bin', 'B.json', 'index.npy.bin',
                 'B'):
        td.add(Tensor(name, 'nested', inner=['A', 'index']))
    td.add(Tensor('X', 'string', (1,), ['x'])).add(Tensor('B.json', 'string', (1,), ['x']))
    td.list[-1].name = 'B.jso'
    td.put(Carton()).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        index, by_name = index_of(m), {t.name: t for t in td.list}
        assert index['problems'] == []
        for got in index['tensors']:
            t = by_name[got['name']]
            if t.dtype == 'nested':
                assert [m.read(f'{DATA}/{f}') for f in got['files']] == [
                    by_name[n].bin() for n in t.inner]
            else:
                assert [m.read(f'{DATA}/{f}') for f in got['files']] == [t.bin(), t.npy()]
        assert m.read(f'{DATA}/A.npy.bin') == by_name['A.npy'].bin()
        assert m.read(f'{DATA}/A.npy') == by_name['A'].npy()


# ---- options ----

@pytest.fixture(scope='module')
def plain_carton(session_dir):
    return sample().write(session_dir / 'plain.carton')


def test_noviews(mount, plain_carton):
    with mount(plain_carton, '-o', 'noviews') as m:
        assert sorted(os.listdir(m.path)) == ['MANIFEST', 'carton.toml', 'misc', 'model',
                                              'tensor_data']
        assert errno_of(os.stat, m / 'views') == errno.ENOENT


@pytest.mark.parametrize('name', ['generated', 'ünï 🥳', 'x' * 255, '.views', 'listed'])
def test_views_name(mount, plain_carton, name):
    with mount(plain_carton, '-o', f'views={name}') as m:
        assert name in os.listdir(m.path) and 'views' not in os.listdir(m.path)
        assert errno_of(os.stat, m / 'views') == errno.ENOENT
        assert len(m.read(f'{name}/tensor_data/numeric.bin')) == 24
        assert 'numeric.npy' in os.listdir(m / f'{name}/tensor_data')


def test_views_hidden(mount, plain_carton):
    with mount(plain_carton, '-o', 'views=hidden') as m:
        assert sorted(os.listdir(m.path)) == ['MANIFEST', 'carton.toml', 'misc', 'model',
                                              'tensor_data']
        assert len(m.read('views/tensor_data/numeric.bin')) == 24
        assert 'tensor_data' in os.listdir(m / 'views')
        # and not after it was found, either
        assert 'views' not in os.listdir(m.path)
        assert errno_of(os.stat, m / 'hidden') == errno.ENOENT


@pytest.mark.parametrize('name', ['', '.', '..', 'a/b', '/', 'x' * 256, 'a/', '../x'])
def test_views_bad_name(point, plain_carton, name):
    where = point()
    p = run(harness.CARTONFS, '-o', f'views={name}', plain_carton, where)
    assert p.returncode in (1, 32) and 'views' in p.stderr and harness.mountinfo(where) is None


@pytest.mark.parametrize('kind', ['file', 'directory', 'named'])
def test_carton_has_its_own_views(work, mount_fg, kind):
    own = {'file': 'views', 'directory': 'views/tensor_data/mine.bin', 'named': 'shown'}[kind]
    c = sample().add(own, b'of the carton')
    c.write(work / 'm.carton')
    options = ('-o', 'views=shown') if kind == 'named' else ()
    with mount_fg(work / 'm.carton', *options) as m:
        assert harness.scan(m.path, views=True) == harness.expected(c.files(), c.links())
        assert lines_of(m.log(), own.split('/')[0]), 'the log says so'
    # under another name they are there beside it
    with mount_fg(work / 'm.carton', '-o', 'views=other') as m:
        assert m.read(own) == b'of the carton'
        assert len(m.read('other/tensor_data/numeric.bin')) == 24


@pytest.mark.parametrize('verify', ['mount', 'off'])
def test_verify_option(work, mount, verify):
    c = sample()
    c.write(work / 'm.carton')
    with mount(work / 'm.carton', '-o', f'verify={verify}') as m:
        assert m.read(f'{DATA}/numeric.bin') == c.entries['tensor_data/tensor_0.bin'].data
        assert index_of(m)['problems'] == []


def test_not_without_looking(mount, plain_carton):
    """Nothing of it is made before somebody looks, and cartonctl ls does not show it."""
    with mount(plain_carton) as m:
        assert m.state('tensor_data/index.toml') == 'unverified'
        os.listdir(m / 'views')
        assert m.state('tensor_data/index.toml') == 'verified'
        assert m.state('tensor_data/tensor_0.bin') == 'unverified'
    assert 'views' not in ctl('ls', plain_carton).stdout


def test_cartonctl_cat(plain_carton):
    p = ctl('cat', plain_carton, 'views/tensor_data/numeric.bin', text=False)
    assert p.returncode == 0 and p.stdout == sample().entries['tensor_data/tensor_0.bin'].data
