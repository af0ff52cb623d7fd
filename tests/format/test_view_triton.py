# SPDX-License-Identifier: Apache-2.0
"""
views/triton/: request bodies and answers, parsed by a strict parser of the protocol that shares
nothing with their writer; and one sent by curl to a small server that parses it as strictly.
"""
import http.server
import json
import math
import os
import random
import re
import subprocess

import pytest

import harness
from origin import PRIVATE, LinkedCarton
from served import serving
from tensorfiles import CARTON, SHAPES, Tensor, TensorData, numeric, toml_string
from tritonserver import Model, Refused, parse_expected, parse_request
from viewcheck import xattr
from zipwriter import Carton, Sparse, sha256

TRITON = 'views/triton'
HEAD = "spec_version = 1\nmodel_name = 'a \"model\" é'\n[runner]\nrunner_name = 'python'\n" \
       "required_framework_version = '=3.11'\n"


# ---- cartons ----

def values(**kw):
    return '{' + ', '.join(f'{toml_string(k)} = {toml_string(v)}' for k, v in kw.items()) + '}'


def declared(kind, name, dtype='float32', shape='"*"'):
    return f'[[{kind}]]\nname = {toml_string(name)}\ndtype = "{dtype}"\nshape = {shape}\n'


def case(kind, inputs, outputs=None, more=''):
    key = 'expected_out' if kind == 'self_test' else 'sample_out'
    out = f'[[{kind}]]\n{more}inputs = {values(**inputs)}\n'
    return out + (f'{key} = {values(**outputs)}\n' if outputs is not None else '')


def at(name):
    return '@tensor_data/' + name


def write(work, toml, *tensors, method='zstd', name='m.carton'):
    td = TensorData(*tensors)
    td.put(Carton((HEAD + toml).encode(), method=method)).add('misc/picture',
                                                              b'x').write(work / name)
    return {t.name: t for t in td.list}


def as_tensor(name, t):
    """What a parser must find for an input of that name."""
    datatype = 'BYTES' if t.dtype == 'string' else CARTON[t.dtype][2]
    return name, datatype, list(t.shape), t.bin()


def request_of(m, which):
    return parse_request(m.read(f'{TRITON}/{which}/request'), m.read(f'{TRITON}/{which}/headers'))


# ---- bodies ----

def test_every_dtype_and_shape(work, mount):
    """One test for each dtype, with an input of each shape, zero-size ones among them."""
    rng, tensors, toml = random.Random(1), [], ''
    for dtype in [*CARTON, 'string']:
        inputs = {}
        for i, shape in enumerate(SHAPES):
            name = f'{dtype}{i}'
            if dtype == 'string':
                words = [rng.choice(['', 'é', '🥳\0', 'x' * 99]) for _ in range(math.prod(shape))]
                tensors.append(Tensor(name, dtype, shape, words))
            else:
                tensors.append(numeric(rng, name, dtype, shape))
            inputs['in ' + name] = at(name)
        toml += case('self_test', inputs, {'out': at(f'{dtype}3')})
    by_name = write(work, toml, *tensors)
    with mount(work / 'm.carton') as m:
        for i, dtype in enumerate([*CARTON, 'string']):
            want = [as_tensor('in ' + t.name, t) for t in tensors if t.dtype == dtype]
            got = request_of(m, f'self_test-{i}')
            assert got == sorted(want, key=lambda t: t[0].encode())
            header, out = parse_expected(m.read(f'{TRITON}/self_test-{i}/expected_output'))
            assert out == [as_tensor('out', by_name[f'{dtype}3'])]
            assert header['model_name'] == 'a "model" é'
            assert os.stat(m / f'{TRITON}/self_test-{i}/request').st_size == len(
                m.read(f'{TRITON}/self_test-{i}/request'))


def test_order(work, mount):
    """[[input]] order first, then the others by name, bytewise; outputs by [[output]]."""
    names = ['z', 'é', 'B', 'a', 'b', '🥳', 'aa', '', '~']
    rng = random.Random(2)
    tensors = [numeric(rng, f't{i}', 'int16', (i,)) for i in range(len(names))]
    toml = ''.join(declared('input', n) for n in ('b', 'not given', 'z', '~'))
    toml += declared('output', '🥳') + declared('output', 'B')
    pairs = {n: at(f't{i}') for i, n in enumerate(names)}
    write(work, toml + case('self_test', pairs, pairs), *tensors)
    with mount(work / 'm.carton') as m:
        rest = sorted((n for n in names if n not in 'bz~' or not n), key=str.encode)
        assert [t[0] for t in request_of(m, 'self_test-0')] == ['b', 'z', '~'] + rest
        _, out = parse_expected(m.read(f'{TRITON}/self_test-0/expected_output'))
        rest = sorted((n for n in names if n not in ('🥳', 'B')), key=str.encode)
        assert [t[0] for t in out] == ['🥳', 'B'] + rest
        for name, _, _, data in out:
            assert data == tensors[names.index(name)].data


def test_order_of_many(work, mount):
    """However many are declared; and two of one name, which `verify` tells of."""
    x, names = numeric(random.Random(2), 'x', 'int8', (1,)), [f'i{i}' for i in range(3000)]
    random.Random(2).shuffle(names)
    toml = ''.join(declared('input', n, 'int8', '[1]') for n in [*names, names[7]])
    write(work, toml + case('self_test', {n: at('x') for n in [*sorted(names), 'more', 'and']}), x)
    with mount(work / 'm.carton') as m:
        assert [t[0] for t in request_of(m, 'self_test-0')] == [*names, 'and', 'more']
    out = harness.ctl('verify', work / 'm.carton').stdout
    for text in (f'two inputs are named "{names[7]}"', '"and" is not declared',
                 '"more" is not declared'):
        assert out.count(text) == 1
    assert out.count('two inputs') == 1 and out.count('not declared') == 2


def test_names_in_json(work, mount):
    """The header's length is in bytes, whatever the names need in JSON."""
    names = ['"', '\\', '\n', '\x01', '\x7f', '</x>', '{', '}', '🥳', 'é' * 100, '\\"', '/',
             '\u2028']
    rng = random.Random(3)
    tensors = [numeric(rng, 'x', 'uint8', (5,))]
    write(work, case('self_test', {n: at('x') for n in names}, {n: at('x') for n in names}),
          *tensors)
    with mount(work / 'm.carton') as m:
        got = request_of(m, 'self_test-0')
        assert [t[0] for t in got] == sorted(names, key=str.encode)
        assert [t for t in got if t[3] != tensors[0].data] == []
        _, out = parse_expected(m.read(f'{TRITON}/self_test-0/expected_output'))
        assert [t[0] for t in out] == sorted(names, key=str.encode)


def test_tensor_names_of_any_kind(work, mount):
    """References name tensors, not files."""
    names = ['a/b', 'index', '%2F', '🥳', '..', 'A.npy', '', 'x' * 300]
    rng = random.Random(4)
    tensors = [numeric(rng, n, 'int8', (i + 1,)) for i, n in enumerate(names)]
    write(work, case('self_test', {f'{i}': at(n) for i, n in enumerate(names)}), *tensors)
    with mount(work / 'm.carton') as m:
        assert request_of(m, 'self_test-0') == [as_tensor(f'{i}', t) for i, t in enumerate(tensors)]


def test_which_directories(work, mount):
    """self_test-N for each, example-N for those of tensors alone; N counts all of its kind."""
    rng = random.Random(5)
    x, y = numeric(rng, 'x', 'float32', (2,)), Tensor('y', 'string', (1,), ['ü'])
    toml = (case('self_test', {'a': at('x')}) +
            case('self_test', {'b': at('y')}, {'o': at('x')}, 'name = "n"\n') +
            case('example', {'a': '@misc/picture'}, {'o': at('x')}) +
            case('example', {'a': at('y')}, {'o': at('x')}) +
            case('example', {'a': at('y')}, {'o': '@misc/picture'}) +
            case('example', {'a': at('x'), 'b': '@misc/picture'}, {'o': at('x')}) +
            case('example', {'a': at('x'), 'b': at('y')}, {'o': at('y'), 'p': at('x')}))
    write(work, toml, x, y)
    with mount(work / 'm.carton') as m:
        assert sorted(os.listdir(m / TRITON)) == ['example-1', 'example-4', 'self_test-0',
                                                  'self_test-1']
        assert sorted(os.listdir(m / f'{TRITON}/self_test-0')) == ['headers', 'request']
        assert sorted(os.listdir(m / f'{TRITON}/self_test-1')) == ['expected_output', 'headers',
                                                                   'request']
        assert request_of(m, 'self_test-1') == [as_tensor('b', y)]
        assert request_of(m, 'example-1') == [as_tensor('a', y)]
        assert request_of(m, 'example-4') == [as_tensor('a', x), as_tensor('b', y)]
        assert parse_expected(m.read(f'{TRITON}/example-4/expected_output'))[1] == [
            as_tensor('o', y), as_tensor('p', x)]


def test_no_tests(work, mount):
    write(work, declared('input', 'x'), numeric(random.Random(1), 'x', 'int8', (1,)))
    with mount(work / 'm.carton') as m:
        assert 'triton' not in os.listdir(m / 'views')


def test_no_model_name(work, mount):
    toml = HEAD.replace("model_name = 'a \"model\" é'\n", '') + case('self_test', {'x': at('x')},
                                                                     {'y': at('x')})
    x = numeric(random.Random(1), 'x', 'int8', (1,))
    TensorData(x).put(Carton(toml.encode())).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        header, out = parse_expected(m.read(f'{TRITON}/self_test-0/expected_output'))
        assert list(header) == ['outputs'] and out == [as_tensor('y', x)]


def test_no_inputs(work, mount):
    write(work, case('self_test', {}, {}), numeric(random.Random(1), 'x', 'int8', (1,)))
    with mount(work / 'm.carton') as m:
        assert request_of(m, 'self_test-0') == []
        assert parse_expected(m.read(f'{TRITON}/self_test-0/expected_output'))[1] == []


def test_inputs_that_are_not_there(work, mount):
    """A test says that it has no request; an example has no data for one, like others."""
    x = numeric(random.Random(1), 'x', 'int8', (1,))
    write(work, '[[self_test]]\nname = "a"\n[[example]]\nname = "b"\n[[self_test]]\n'
          f'expected_out = {values(y=at("x"))}\n[[example]]\nsample_out = {values(y=at("x"))}\n', x)
    with mount(work / 'm.carton') as m:
        assert sorted(os.listdir(m / TRITON)) == ['self_test-0', 'self_test-1']
        assert os.listdir(m / f'{TRITON}/self_test-0') == ['README']
        assert sorted(os.listdir(m / f'{TRITON}/self_test-1')) == ['README', 'expected_output']
        assert b'no inputs' in m.read(f'{TRITON}/self_test-1/README')


# ---- where there is none ----

README = {  # inputs, expected_out, what README says, what is there beside it
    'nested input': ({'a': at('pair')}, {'o': at('x')}, 'nested', {'expected_output'}),
    'nested among others': ({'a': at('x'), 'b': at('pair')}, {'o': at('x')}, 'nested',
                            {'expected_output'}),
    'nested output': ({'a': at('x')}, {'o': at('pair')}, 'nested', {'request', 'headers'}),
    'both': ({'a': at('pair')}, {'o': at('pair')}, 'nested', set()),
    'missing': ({'a': at('nobody')}, {'o': at('x')}, 'nobody', {'expected_output'}),
    'missing output': ({'a': at('x')}, {'o': at('nobody')}, 'nobody', {'request', 'headers'}),
    'bad': ({'a': at('short')}, {'o': at('x')}, 'short.*7 bytes', {'expected_output'}),
    'bad strings': ({'a': at('words')}, {'o': at('x')}, 'words.*1 elements', {'expected_output'}),
    'bad name twice': ({'a': at('twice')}, {'o': at('x')}, 'twice.*2 tensors', {'expected_output'}),
    'no tensor at all': ({'a': '@misc/picture'}, {'o': at('x')}, 'misc/picture',
                         {'expected_output'}),
    'not a reference': ({'a': 'x'}, {'o': at('x')}, 'x', {'expected_output'}),
    'good': ({'a': at('x')}, {'o': at('x')}, None, {'request', 'headers', 'expected_output'}),
}


def test_readme(work, mount):
    rng = random.Random(6)
    twice = numeric(rng, 'twice', 'int8', (1,))
    write(work, ''.join(case('self_test', i, o) for i, o, _, _ in README.values()),
          numeric(rng, 'x', 'float32', (2,)), Tensor('pair', 'nested', inner=['x']),
          Tensor('short', 'int64', (1,), bytes(8), raw=bytes(7)),
          Tensor('words', 'string', (2,), ['a']),
          twice, Tensor('twice', 'int8', (1,), b'x'))
    with mount(work / 'm.carton') as m:
        for i, (label, (_, _, says, files)) in enumerate(README.items()):
            where = f'{TRITON}/self_test-{i}'
            assert set(os.listdir(m / where)) == files | ({'README'} if says else set()), label
            if says:
                assert re.search(says, m.read(f'{where}/README').decode()), label
            if 'request' in files:
                request_of(m, f'self_test-{i}')
            if 'expected_output' in files:
                parse_expected(m.read(f'{where}/expected_output'))


def test_values_that_are_no_references(work, mount):
    """No request with a part of the inputs; an example with them is one that has other data."""
    odd = ['{x = "@tensor_data/x", y = 5}', '{x = "@tensor_data/x", y = ["@tensor_data/x"]}', '5',
           '"@tensor_data/x"', '[]', '{x = "@tensor_data/x", y.z = "@tensor_data/x"}',
           '{x = {}}', '{x = "@tensor_data/x", "y\\u0000" = "@tensor_data/x"}']
    good = '{x = "@tensor_data/x"}'
    toml = ''.join(f'[[self_test]]\ninputs = {o}\nexpected_out = {o}\n'
                   f'[[example]]\ninputs = {o}\nsample_out = {good}\n'
                   f'[[example]]\ninputs = {good}\nsample_out = {o}\n' for o in odd)
    toml += f'[[self_test]]\ninputs = {good}\nexpected_out = {odd[0]}\n'
    write(work, toml, numeric(random.Random(1), 'x', 'int8', (1,)))
    with mount(work / 'm.carton') as m:
        n = len(odd)
        assert set(os.listdir(m / TRITON)) == {f'self_test-{i}' for i in range(n + 1)}
        for i in range(n):
            assert os.listdir(m / f'{TRITON}/self_test-{i}') == ['README'], odd[i]
            assert b'values that are not references to tensors' in m.read(f'{TRITON}/self_test-{i}/README')
        assert set(os.listdir(m / f'{TRITON}/self_test-{n}')) == {'request', 'headers', 'README'}
    p = harness.ctl('verify', work / 'm.carton')
    assert p.returncode == 2
    for what in ('inputs', 'expected_out', 'sample_out'):
        assert re.search(f'carton.toml: line .*{what}: .*NAME', p.stdout), p.stdout


def test_without_tensor_data(work, mount):
    Carton((HEAD + case('self_test', {'a': at('x')})).encode()).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        assert os.listdir(m / f'{TRITON}/self_test-0') == ['README']


@pytest.mark.parametrize('beyond', [False, True])
def test_two_gib(work, mount, beyond):
    """A body of 2 GiB less a byte is there, one of 2 GiB is not. Nobody reads the tensor."""
    def build(size):
        big = Tensor('big', 'uint8', (size,), raw=Sparse(size))
        big.raw._sums = 0, '00' * 32
        return write(work, case('self_test', {'a': at('big')}), big, method='stored')
    header = len(json.dumps({'inputs': [{
        'name': 'a', 'shape': [2 ** 31 - 1], 'datatype': 'UINT8', 'parameters': {
            'binary_data_size': 2 ** 31 - 1}}], 'parameters': {'binary_data_output': True}},
        separators=(',', ':')))
    build(2 ** 31 - 1 - header + beyond)
    with mount(work / 'm.carton') as m:
        where = m / f'{TRITON}/self_test-0'
        if beyond:
            assert os.listdir(where) == ['README']
            assert '2 GiB' in m.read(f'{TRITON}/self_test-0/README').decode()
        else:
            assert sorted(os.listdir(where)) == ['headers', 'request']
            assert os.stat(where + '/request').st_size == 2 ** 31 - 1
        assert m.state('tensor_data/t0.bin') == 'unverified'


def test_long_json(work, mount):
    """So many inputs that the JSON alone would be over 64 MiB."""
    x = numeric(random.Random(1), 'x', 'uint8', (1,) * 64)
    one = len(json.dumps({'name': '', 'shape': x.shape, 'datatype': 'UINT8', 'parameters': {
        'binary_data_size': 1}}, separators=(',', ':')))
    n = 64 * 2 ** 20 // one
    write(work, case('self_test', {str(i): at('x') for i in range(n)}), x)
    with mount(work / 'm.carton', '-o', 'memory=1G') as m:
        assert os.listdir(m / f'{TRITON}/self_test-0') == ['README']
        assert '64 MiB' in m.read(f'{TRITON}/self_test-0/README').decode()


def test_corrupt(work, mount):
    """EIO at open of the bodies over it, and of nothing else."""
    rng = random.Random(7)
    td = TensorData(numeric(rng, 'x', 'int32', (9,)), numeric(rng, 'y', 'int32', (9,)))
    toml = HEAD + case('self_test', {'a': at('x')}, {'o': at('y')}) + case('self_test',
                                                                           {'a': at('y')})
    c = td.put(Carton(toml.encode())).change('tensor_data/t0.bin', sha=sha256(b'another'))
    c.write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        assert m.error(f'{TRITON}/self_test-0/request') == 'EIO'
        for name in ('headers', 'expected_output'):
            assert m.error(f'{TRITON}/self_test-0/{name}') == ''
        assert request_of(m, 'self_test-1') == [as_tensor('a', td.list[1])]


# ---- raw ----

RAW = [  # inputs declared as (dtype, shape); the tensor; is there a raw?
    ([('float32', '[2, 3]')], ('float32', (2, 3)), True),
    ([('float32', '["n", 3]')], ('float32', (2, 3)), True),
    ([('float32', '["*", 3]')], ('float32', (2, 3)), True),
    ([('float32', '["n", "m"]')], ('float32', (2, 3)), False),
    ([('float32', '"*"')], ('float32', (2, 3)), False),
    ([('float32', '"symbol"')], ('float32', (2, 3)), False),
    ([('float32', '[]')], ('float32', ()), True),
    ([('float32', '[0]')], ('float32', (0,)), True),
    ([('float32', '[2, 3]')], ('float32', (3, 2)), False),
    ([('int32', '[2, 3]')], ('float32', (2, 3)), False),
    ([('float33', '[2, 3]')], ('float32', (2, 3)), False),
    ([('float32', '["n", 0]')], ('float32', (5, 0)), False),
    ([('float32', '[2, 0]')], ('float32', (2, 0)), True),
    ([('float32', '[1.5, 3]')], ('float32', (3,)), False),
    ([('float32', '[[1], [2]]')], ('float32', ()), False),
    ([('float32', '[2]')], ('float32', (2, 1)), False),
    ([('string', '[1]')], ('string', (1,)), True),
    ([('string', '["n"]')], ('string', (1,)), False),
    ([('string', '[2]')], ('string', (2,)), False),
    ([('string', '[1, 1]')], ('string', (1, 1)), False),
    ([('float32', '[2]'), ('float32', '[2]')], ('float32', (2,)), False),
    ([], ('float32', (2,)), False),
]


def test_raw(work, mount):
    rng = random.Random(8)
    for i, (inputs, (dtype, shape), applies) in enumerate(RAW):
        t = Tensor('t', dtype, shape, ['word ü'] * math.prod(shape)) if dtype == 'string' else \
            numeric(rng, 't', dtype, shape)
        toml = ''.join(declared('input', f'in{k}', d, s) for k, (d, s) in enumerate(inputs))
        write(work, toml + case('self_test', {'in0': at('t')}), t, name=f'{i}.carton')
        with mount(work / f'{i}.carton') as m:
            assert ('raw' in os.listdir(m / f'{TRITON}/self_test-0')) == applies, RAW[i]
            if applies:
                raw = f'{TRITON}/self_test-0/raw'
                assert m.read(raw) == t.bin()
                assert {k: xattr(m / raw, k) for k in ('dtype', 'shape')} == {
                    'dtype': dtype, 'shape': json.dumps(shape, separators=(',', ':'))}
                assert os.listxattr(m / raw) == []
            assert request_of(m, 'self_test-0') == [as_tensor('in0', t)]


def test_no_raw_of_another_input(work, mount):
    """Raw bytes go to the input that is declared, whatever the test calls it."""
    x = numeric(random.Random(8), 'x', 'float32', (2, 3))
    write(work, declared('input', 'x', shape='["n", 3]') + case('self_test', {'x': at('x')}) +
          case('self_test', {'zzz': at('x')}), x)
    with mount(work / 'm.carton') as m:
        assert sorted(os.listdir(m / f'{TRITON}/self_test-0')) == ['headers', 'raw', 'request']
        assert sorted(os.listdir(m / f'{TRITON}/self_test-1')) == ['headers', 'request']


# ---- with a client and a server ----

@pytest.fixture
def model():
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Model)
    server.seen = []
    server.url = f'http://127.0.0.1:{server.server_port}/v2/models/m/infer'
    with serving(server):
        yield server


def curl(where, *args):
    p = subprocess.run(['curl', '-sS', '--noproxy', '*', *args], cwd=where, capture_output=True,
                       text=True,
                       env=harness.environment(), timeout=60 * harness.SLOW, check=False)
    assert p.returncode == 0, p.stderr
    return p.stdout


def test_curl(work, mount, model):
    """`curl -H @headers --data-binary @request URL`, with bodies small and large."""
    rng = random.Random(9)
    x, y = numeric(rng, 'x', 'float32', (700, 1000)), Tensor('y', 'string', (3,),
                                                             ['ü', '🥳\r\n\0', ''])
    z = numeric(rng, 'z', 'int64', (0,))
    toml = declared('input', 'q') + case('self_test', {'p': at('x'), 'q': at('y')}) + case(
        'self_test', {'e': at('z')}) + case('example', {'ü"\\': at('y')}, {'o': at('x')})
    write(work, toml, x, y, z)
    with mount(work / 'm.carton') as m:
        for which in ('self_test-0', 'self_test-1', 'example-0'):
            said = curl(m / f'{TRITON}/{which}', '-H', '@headers', '--data-binary', '@request',
                        model.url)
            assert said == 'taken'
        assert model.seen == [[as_tensor('q', y), as_tensor('p', x)], [as_tensor('e', z)],
                              [as_tensor('ü"\\', y)]]


def test_curl_raw(work, mount, model):
    """A raw request has the header with 0, and nothing but the tensor."""
    x = numeric(random.Random(9), 'x', 'float32', (5, 3))
    write(work, declared('input', 'x', shape='["n", 3]') + case('self_test', {'x': at('x')}), x)
    with mount(work / 'm.carton') as m:
        said = curl(m / f'{TRITON}/self_test-0', '-H', 'Content-Type: application/octet-stream',
                    '-H',
                    'Inference-Header-Content-Length: 0', '--data-binary', '@raw', model.url)
        assert said == 'taken' and model.seen == [('raw', x.data)]


def test_the_parser_is_strict(model, work):
    """What the tests above would not notice, were the parser lax."""
    head = {'inputs': [{'name': 'a', 'shape': [2], 'datatype': 'INT16',
                        'parameters': {'binary_data_size': 4}}],
            'parameters': {'binary_data_output': True}}
    text = json.dumps(head).encode()

    def check(body, n):
        parse_request(body, b'Content-Type: application/octet-stream\n'
                      b'Inference-Header-Content-Length: %d\n' % n)
    check(text + b'1234', len(text))
    for body, n in ((text + b'123', len(text)), (text + b'12345', len(text)),
                    (text + b'1234', len(text) - 1),
                    (text + b' 1234', len(text) + 1),
                    (text.replace(b'[2]', b'[3]') + b'1234', len(text)),
                    (text.replace(b'INT16', b'INT99') + b'1234', len(text)), (text, len(text))):
        with pytest.raises((Refused, ValueError)):
            check(body, n)


# ---- over a network ----

def test_linked(work, mount, fault):  # noqa: F811
    """Bodies of tensors that LINKS has: nothing is asked for to list, and each tensor once."""
    rng = random.Random(10)
    x, y = numeric(rng, 'x', 'float64', (1000,)), numeric(rng, 'y', 'uint8', (77,))
    td = TensorData(x, y)
    toml = HEAD + case('self_test', {'a': at('x'), 'b': at('y')}, {'o': at('y')})
    c = td.put(LinkedCarton(toml=toml.encode()))
    for t in td.list:
        path = f'tensor_data/{t.file}'
        del c.entries[path]
        with open(os.path.join(fault.root, t.file), 'wb') as f:
            f.write(t.data)
        c.link(path, t.data, fault.url(t.file, file=t.file))
    c.write(work / 'm.carton')
    with mount(work / 'm.carton', *PRIVATE, '-o', f'cache_dir={work}/cache') as m:
        listed = {e.name: e.stat().st_size for e in os.scandir(m / f'{TRITON}/self_test-0')}
        assert set(listed) == {'expected_output', 'headers', 'request'} and fault.requests() == []
        assert request_of(m, 'self_test-0') == [as_tensor('a', x), as_tensor('b', y)]
        assert len(m.read(f'{TRITON}/self_test-0/request')) == listed['request']
        _, out = parse_expected(m.read(f'{TRITON}/self_test-0/expected_output'))
        assert out == [as_tensor('o', y)]
        sent = sum(r['sent'] for r in fault.requests() if r['method'] == 'GET')
        assert sent == len(x.data) + len(y.data)
