# SPDX-License-Identifier: Apache-2.0
"""cartonctl info laid out for people, and cartonctl diff."""
import itertools
import json
import struct
import tomllib

import pytest

import packerform
from harness import ctl, sha_file
from origin import LinkedCarton
from tensorfiles import floats, safetensors, weights
from terminal import plain, terminal, width
from zipwriter import TOML, Carton, sample

TEXT = TOML[:TOML.index(b'[runner]')] + b"""
[[input]]
name = 'image'
dtype = 'float32'
shape = ['batch', 3, 224, 224]
description = 'An image, normalized with the mean and the deviation of the data that the model was trained with'
[[output]]
name = 'logits'
dtype = 'float32'
shape = ['batch', 1000]
[[self_test]]
name = 'first'
inputs = {}
""" + TOML[TOML.index(b'[runner]'):]


@pytest.mark.parametrize('columns', [80, 120])
def test_info_fits_the_terminal(work, columns):
    words = 'It has **words** and `code_without_spaces` in paragraphs.'
    toml = TEXT.replace(b'[[input]]', b"[[input]]", 1)
    toml = b'model_description = """\n' + b'\n'.join(
        [(words + ' ').encode() * 9, b'* ' + words.encode() * 3, b'https://example.com/' + b'x' * 60]) + b'\n"""\n' + toml
    out = terminal(columns, 'info', Carton(toml).write(work / 'm.carton'))
    lines = plain(out).splitlines()
    assert max(map(width, lines)) <= min(columns, 100)
    assert '[batch, 3, 224, 224]' in plain(out)
    # no word is broken: each is found whole
    for word in words.split():
        assert word in plain(out)
    assert 'https://example.com/' + 'x' * 60 in lines
    assert '\n2 inputs\n' in plain(out) and '\n2 outputs\n' in plain(out) and '\n1 self test\n' in plain(out)
    assert '\x1b' not in terminal(columns, 'info', work / 'm.carton', NO_COLOR='1')


def test_info_has_the_runner_on_one_line(work):
    """With the versions that it needs; its options follow."""
    toml = TOML + b"opts = { entrypoint_fn_name = 'main', n = 5 }\n"
    lines = ctl('info', Carton(toml).write(work / 'm.carton')).stdout.splitlines()
    at = lines.index('runner       python, framework =3.11, compat version 1')
    assert lines[at + 1:at + 3] == ['options      entrypoint_fn_name = "main"', '             n = 5']
    assert not any(line.startswith(('framework', 'compat')) for line in lines)
    lines = ctl('info', Carton(TOML.replace(b'=3.11', b'*')).write(work / 'any.carton')).stdout.splitlines()
    assert 'runner       python, framework of any version, compat version 1' in lines


RUNNER = {
    'header': "[runner]\nrunner_name = 'r'\nrequired_framework_version = '*'\nrunner_compat_version = 1\n",
    'dotted': "runner.runner_name = 'r'\nrunner.required_framework_version = '*'\nrunner.runner_compat_version = 1\n",
    'inline': "runner = { runner_name = 'r', required_framework_version = '*', runner_compat_version = 1 }\n",
    'quoted': '"runner" . \'runner_name\' = \'r\'\nrunner."required_framework_version" = "*"\n'
              '"\\u0072unner".runner_compat_version = 1\n',
    'spaces': " [ runner ] # of it\n\trunner_name = 'r'\nrequired_framework_version='*'\r\nrunner_compat_version=0x1\n",
}
OPTS = {
    'none': '',
    'header': "[runner.opts]\na.b = 1\nc = [1, 2]\n",
    'header of a table in it': "[runner.opts.a]\nb = 1\n",
    'dotted': "{}opts.a.b = 1\n{}opts.c = 'x'\n",
    'inline': "{}opts = {{ a = {{ b = 1 }}, c = true }}\n",
    'inline, dotted': "{}opts = {{ a.b = 1, c = 1.5 }}\n",
}
TABLES = {
    'headers': "[[input]]\nname = 'x'\ndtype = 'float32'\nshape = '*'\n[[output]]\nname = 'y'\ndtype = 'int8'\nshape = [1]\n"
               "[[example]]\ninputs.x = '@misc/d'\n[example.sample_out]\ny = '@misc/d'\n",
    'inline': "input = [{ name = 'x', dtype = 'float32', shape = '*' }]\n"
              "output = [\n  { name = 'y', dtype = 'int8', shape = [\n1,\n] },\n]\n"
              "example = [{ inputs.x = '@misc/d', sample_out = { y = '@misc/d' } }]\n",
}


def test_all_ways_to_write_a_table(work):
    """All commands read the same in carton.toml, which is what Python's tomllib reads there."""
    tried = 0
    for (runner, opts), tables in zip(itertools.product(RUNNER, OPTS), itertools.cycle(TABLES)):
        prefix = '' if runner in ('header', 'spaces') else 'runner.'
        if runner == 'inline' and opts != 'none' or prefix and opts.startswith('header') and tables == 'inline':
            continue            # an inline table is complete, and keys behind a header are in its table
        # dotted keys at the top are before all headers
        parts = [RUNNER[runner] + OPTS[opts].format(prefix, prefix), TABLES[tables]]
        text = 'spec_version = 1\n' + ''.join(parts if prefix else parts[::-1])
        want = tomllib.loads(text)
        c = Carton(text.encode())
        c.add('model/a', b'a')
        c.add('misc/d', b'd')
        path = c.write(work / f'{tried}.carton')
        got = json.loads(ctl('info', '--json', path).stdout)
        assert got['runner'] == want['runner'] | {'opts': want['runner'].get('opts', {})}, text
        for ours, theirs in (('inputs', 'input'), ('outputs', 'output')):
            assert [{k: t[k] for k in t if t[k] is not None} for t in got[ours]] == want[theirs], text
        assert [(t['inputs'], t['sample_out']) for t in got['examples']] == [
            (t['inputs'], t['sample_out']) for t in want['example']], text
        if opts == 'none':      # a table is no option that the reference loader takes
            assert ctl('verify', path).stderr == '', text
        tried += 1
    assert tried > 20


def test_info_joins_paragraphs_but_no_lists(work):
    text = ['A paragraph whose lines are as long as an editor makes them, and', 'which goes on in the next line.',
            '', '* the first of a list, whose line is long enough to be wrapped', '* the second', '',
            '```', 'code = """a line of code that is long enough to be taken for text', 'code', '```']
    toml = b"model_description = '''\n" + '\n'.join(text).encode() + b"\n'''\n" + TOML
    out = ctl('info', Carton(toml).write(work / 'm.carton')).stdout
    assert 'and which goes on\nin the next line.' in out or 'and\nwhich goes on in the next line.' in out
    assert '\n'.join(text[3:]) in out


def test_info_sums_tensors(work):
    c = sample().add('model/a.safetensors', weights(x=floats(1, 2, 3), y=floats(*range(1000))))
    c.add('model/sub/b.safetensors', safetensors({'z': ('I8', [2, 3], bytes(6))}))
    out = ctl('info', c.write(work / 'm.carton')).stdout
    assert '3 tensors in the model: 1.0 thousand parameters, 3.9 KiB\n' in out
    rows = {ln.split()[0]: ln.split() for ln in out.partition('in tensor_data')[0].splitlines() if ln.endswith('%')}
    assert rows['float32'][1:3] == ['3.9', 'KiB'] and rows['int8'][1:3] == ['6', 'B']


def test_info_reads_what_is_large_only_when_asked(nginx, cache, work):
    """From a server, nothing but the directory and carton.toml."""
    c = Carton(toml=packerform.CARTON_TOML.encode()).add('model/a.safetensors', weights(x=floats(*range(90000))))
    c.write(nginx.root / 'info.carton')
    p = ctl('info', cache.flag, nginx.url('info.carton'))
    assert p.returncode == 0, p.stderr
    assert '1 file with tensors, 351.6 KiB: --tensors reads and sums them up\n' in p.stdout
    assert 'where        ' in p.stdout and 'to be fetched' in p.stdout
    p = ctl('info', '--tensors', cache.flag, nginx.url('info.carton'))
    assert '1 tensor in the model: 90.0 thousand parameters, 351.6 KiB\n' in p.stdout
    # now it is in the cache
    assert 'in the cache' in ctl('info', cache.flag, nginx.url('info.carton')).stdout


# ---- diff ----

def pair(work, change):
    """Two cartons: the second is changed by change(c)."""
    paths = []
    for name, changed in (('a', False), ('b', True)):
        c = sample().add('model/w.safetensors', weights(same=floats(1, 2), other=floats(3), gone=floats(4)))
        c.add('model/untouched.safetensors', weights(a=floats(1)))
        if changed:
            change(c)
        paths.append(c.write(work / f'{name}.carton'))
    return paths


def test_the_same(work):
    a, b = pair(work, lambda c: None)
    p = ctl('diff', a, b)
    assert (p.returncode, p.stderr) == (0, '') and p.stdout.startswith('the same: ')
    assert json.loads(ctl('diff', '--json', a, b).stdout)['files'] == []
    # another container with the same content
    assert ctl('diff', a, sample().unpack(work / 'd')).returncode == 1


def change_some(c):
    c.change('model/main.py', data=b'other')
    c.add('misc/new', b'new')
    c.change('model/w.safetensors', data=safetensors({
        'same': ('F32', [2], floats(1, 2)), 'other': ('F32', [1], floats(3.5)),
        'added': ('I8', [4], b'1234')}))


def test_files_and_tensors(work):
    a, b = pair(work, change_some)
    p = ctl('diff', a, b)
    assert (p.returncode, p.stderr) == (1, '')
    lines = p.stdout.splitlines()
    assert [ln for ln in lines if not ln.startswith(' ')][:-1] == [
        '+ misc/new  3 B', f'~ model/main.py  {lines[1].split("  ")[1]}', f'~ model/w.safetensors  {lines[2].split("  ")[1]}']
    assert [ln.strip() for ln in lines if ln.startswith(' ')] == [
        '+ added  int8 [4]', '- gone  float32 [1]', '~ other  float32 [1]  other values']
    assert lines[-1].startswith('3 differences: 2 changed, 0 removed, 1 added; ')
    # the other way round
    back = ctl('diff', b, a).stdout.splitlines()
    assert back[0] == '- misc/new  3 B' and '    + gone  float32 [1]' in back


def test_json(work):
    a, b = pair(work, change_some)
    p = ctl('diff', '--json', a, b)
    assert p.returncode == 1
    files = {f['path']: f for f in json.loads(p.stdout)['files']}
    assert set(files) == {'misc/new', 'model/main.py', 'model/w.safetensors'}
    assert files['misc/new'] == {'path': 'misc/new', 'change': 'added', 'b': files['misc/new']['b']}
    assert files['model/main.py']['a']['size'] != files['model/main.py']['b']['size'] == 5
    tensors = {t['name']: t for t in files['model/w.safetensors']['tensors']}
    assert {n: t['change'] for n, t in tensors.items()} == {
        'gone': 'removed', 'added': 'added', 'other': 'changed'}
    assert tensors['added']['b'] == {'dtype': 'int8', 'shape': [4]}


def test_another_shape(work):
    a, b = pair(work, lambda c: c.change('model/untouched.safetensors', data=safetensors({
        'a': ('F32', [1, 1], floats(1))})))
    assert '    ~ a  float32 [1] → float32 [1,1]\n' in ctl('diff', a, b).stdout


def test_tensor_data(work):
    paths = []
    for name, value in (('a', 1), ('b', 2)):
        c = packerform.packed()
        c.change('tensor_data/tensor_3.bin', data=struct.pack('<q', value), payload=packerform.frame(struct.pack('<q', value)))
        paths.append(c.write(work / f'{name}.carton'))
    p = ctl('diff', *paths)
    assert p.returncode == 1 and '    ~ _tensor_3  int64 []  other values\n' in p.stdout
    assert p.stdout.count('other values') == 1


def test_symlinks_and_directories(work):
    a = sample()
    b = sample()
    b.symlink('misc/added', 'picture.png')
    p = ctl('diff', a.unpack(work / 'a'), b.write(work / 'b.carton'))
    assert p.returncode == 1 and p.stdout.splitlines()[:-1] == ['+ misc/added  symlink']


def test_nothing_large_is_read(nginx, cache, work):
    """Of two remote models only directories are read, also where the files are damaged."""
    for name, byte in (('a', b'1'), ('b', b'2')):
        Carton().add('model/w.safetensors', weights(x=byte * 40000), sha=byte.decode() * 64).write(
            nginx.root / f'{name}.carton')
    p = ctl('diff', cache.flag, nginx.url('a.carton'), nginx.url('b.carton'))
    assert p.returncode == 1 and p.stderr == '' and '~ model/w.safetensors' in p.stdout
    assert '1 file with tensors not read: --tensors compares them\n' in p.stdout


def test_trouble(work):
    """As diff(1): 2 where it could not compare; 1 for usage errors as everywhere."""
    a, _ = pair(work, lambda c: None)
    assert ctl('diff', a, work / 'none').returncode == 2
    p = ctl('diff', a)
    assert p.returncode == 1 and p.stderr.startswith('cartonctl: diff: two SOURCEs are needed\n')
    assert sha_file(a)


@pytest.mark.parametrize('sized', [0, 1, 3])
def test_info_counts_linked_files(work, mount, sized):
    """Files behind LINKS with the sizes that LINKS says, for people, as JSON, and of a mount; nothing is asked."""
    c = LinkedCarton()
    data = [bytes([i]) * (1000 + i) for i in range(3)]
    for i, d in enumerate(data):
        c.link(f'model/{i}', d, 'https://nowhere.invalid/x')
    c.links_text = c.links_toml() + '[sizes]\n' + ''.join(f'{c.sum(d)} = {len(d)}\n' for d in data[:sized])
    path = c.write(work / 'l.carton')
    own = {'linked_files': 3, 'linked_bytes': sum(map(len, data[:sized])), 'unsized_files': 3 - sized}
    info = json.loads(ctl('info', '--json', path).stdout)
    assert own.items() <= info.items() and info['files'] == len(c.files())
    text = ctl('info', path).stdout
    says = {0: '3 files; sizes not known', 1: '3 files, 1000 B; 2 of unknown size', 3: '3 files, 2.9 KiB'}[sized]
    assert f'in LINKS     {says}\n' in text
    assert ('; 3 of unknown size\n' in text) == (sized == 0)
    with mount(path) as m:
        assert own.items() <= json.loads(m.read('.cartonfs/status.json')).items()
        assert f'  links     {says}\n' in ctl('status', m.path).stdout
        assert json.loads(m.read('.cartonfs/status.json'))['fetched_bytes'] == 0
