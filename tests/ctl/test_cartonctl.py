# SPDX-License-Identifier: Apache-2.0
"""cartonctl info, ls, cat, hash, verify: what scripts may rely on, and exit codes."""
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import zipfile
import zlib

import pytest

from harness import CARTONCTL, CARTONFS, SLOW, ctl, environment, read_file, run
from zipwriter import TOML, Carton, read_zip, sample


@pytest.fixture(params=['carton', 'directory'])
def source(request, work):
    c = sample()
    path = c.write(work / 'm.carton') if request.param == 'carton' else c.unpack(work / 'dir')
    return path, c


def test_hash(source):
    path, c = source
    p = ctl('hash', path)
    assert (p.returncode, p.stderr) == (0, '')
    assert p.stdout.split()[0] == c.model_hash()
    assert len(p.stdout.splitlines()) == 1


def test_reference(packer_carton):
    source, links = packer_carton
    seen = read_zip(source)
    seen.pop('LINKS', None)
    assert ctl('hash', source).stdout.split()[0] == hashlib.sha256(seen['MANIFEST']).hexdigest()
    for path, data in seen.items():
        if path in links:
            data = seen[os.path.normpath(f'{os.path.dirname(path)}/{links[path]}')]
        assert ctl('cat', source, path, text=False).stdout == data
    p = ctl('info', source)
    assert p.returncode == 0 and 'Test Model' in p.stdout
    assert '🥳' in ctl('info', '--json', source).stdout
    p = ctl('verify', source)
    assert (p.returncode, p.stderr) == (0, ''), p.stdout


def test_cat(source):
    path, c = source
    for name, data in c.files().items():
        p = ctl('cat', path, name, text=False)
        assert (p.returncode, p.stdout, p.stderr) == (0, data, b''), name


def test_path_that_is_meant(source):
    """With ./ in front; where there is none, the one that has the name, or nearly the path."""
    path, c = source
    assert ctl('cat', path, './model/main.py').stdout.encode() == c.files()['model/main.py']
    for command in (['cat'], ['ls'], ['tree'], ['fetch']):
        for typed, near in (('main.py', 'model/main.py'), ('./model/mian.py', 'model/main.py'),
                            ('a/long/path/of/another/tree/mian.py', 'model/main.py')):
            p = ctl(*command, path, typed)
            assert (p.returncode, p.stderr) == (1, f'cartonctl: {typed}: is not in {path}; did you mean {near}?\n')


def test_cat_large(work):
    c = Carton().add('model/m', random.Random(1).randbytes(24 << 20), level=1)
    p = ctl('cat', c.write(work / 'm.carton'), 'model/m', text=False)
    assert p.returncode == 0 and p.stdout == c.files()['model/m']


@pytest.mark.parametrize('name', ['model/none', 'model', '', '/etc/passwd', '../m.carton', 'LINKS',
                                  'model/../carton.toml', 'misc/secret'])
def test_cat_of_what_is_not_there(work, name):
    c = sample().add('LINKS', b'version = 1\n[urls]\n').add('misc/secret', b'x', listed=False)
    p = ctl('cat', c.write(work / 'm.carton'), name)
    assert p.returncode != 0 and p.stdout == '' and p.stderr


@pytest.mark.parametrize('method', ['stored', 'deflate', 'zstd'])
@pytest.mark.parametrize('size', [100, 24 << 20])
def test_cat_prints_nothing_of_a_bad_file(work, method, size):
    c = Carton(method=method).add('model/m', bytes(range(100)) * (size // 100), sha='1' * 64)
    p = ctl('cat', c.write(work / 'm.carton'), 'model/m', text=False)
    assert p.returncode != 0 and p.stdout == b'' and b'model/m' in p.stderr


@pytest.mark.parametrize('ignored', [False, True])
def test_cat_to_a_closed_pipe(work, ignored):
    """`cartonctl cat … | head -c1` ends by itself, and says nothing: where SIGPIPE is ignored at the start, too."""
    c = Carton().add('model/m', bytes(8 << 20))
    p = subprocess.Popen([CARTONCTL, 'cat', c.write(work / 'm.carton'), 'model/m'], restore_signals=not ignored,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    p.stdout.read(1)
    p.stdout.close()
    err = p.stderr.read()
    assert (p.wait(30 * SLOW), err) == (-signal.SIGPIPE, b'')


def test_cat_to_a_full_disk(source):
    path, c = source
    with open('/dev/full', 'wb') as full:
        p = subprocess.run([CARTONCTL, 'cat', path, 'model/weights.bin'], stdout=full,
                           stderr=subprocess.PIPE, env=environment())
    assert p.returncode != 0 and p.stderr


def test_ls_long(source):
    path, c = source
    p = ctl('ls', '--long', path)
    assert p.returncode == 0
    lines = p.stdout.splitlines()
    for name, digest in c.hashes().items():
        line, = [ln for ln in lines if ln.startswith(f'{name} ')]
        words = line[len(name):].split()
        if name in c.links():
            assert words == ['->', c.links()[name], '-', 'symlink', '-', '-']
            continue
        assert words[0] == str(len(c.files()[name])) and words[3] == digest
        assert words[1] == (c.entries[name].method if os.path.isfile(path) else 'stored')


def test_ls(source):
    path, c = source
    head, *lines, total = ctl('ls', path).stdout.splitlines()
    assert head.split() == ['PATH', 'SIZE', 'PACKED', 'SHA256']
    assert total.startswith(f'{len(c.hashes())} files, 1 symlink ')
    assert len(lines) == len(c.hashes()) + 1
    for name, digest in c.hashes().items():
        line, = [ln for ln in lines if ln.startswith(f'{name} ')]
        if name not in c.links():
            assert line.endswith(f'  {digest[:12]}') and re.search(r' \d+(\.\d)? ([KM]i)?B  ', line)


def test_ls_only_paths(source):
    path, c = source
    p = ctl('ls', '-0', path)
    assert p.returncode == 0
    assert sorted(p.stdout.split('\0')) == sorted(['', 'MANIFEST', *c.hashes()])


def test_ls_of_paths(source):
    path, c = source
    p = ctl('ls', '-0', path, 'misc', 'model/main.py')
    assert p.returncode == 0
    assert set(p.stdout.split('\0')[:-1]) == {n for n in c.hashes() if n.startswith('misc/')} | {'model/main.py'}
    p = ctl('ls', path, 'misc', 'model/none')
    assert p.returncode == 1 and p.stderr == f'cartonctl: model/none: is not in {path}\n'
    assert 'misc/' in p.stdout
    for option in ((), ('-l',), ('-0',)):
        p = ctl('ls', *option, path, 'model/none')
        assert (p.returncode, p.stdout) == (1, '') and p.stderr == f'cartonctl: model/none: is not in {path}\n'


def test_ls_storage_and_size(work):
    c = Carton()
    for method in ('stored', 'deflate', 'zstd'):
        c.add(f'model/{method}', method[:1].encode() * 54321, method=method)
    path = c.write(work / 'm.carton')
    entries = {e['path']: e for e in json.loads(ctl('ls', '--json', path).stdout)}
    out = ctl('ls', '-l', path).stdout.splitlines()
    for method in ('stored', 'deflate', 'zstd'):
        words, = [ln.split()[1:4] for ln in out if ln.startswith(f'model/{method} ')]
        assert words[:2] == ['54321', method]
        assert entries[f'model/{method}']['storage'] == f'{method} {words[2]}'


def test_tree(source):
    path, c = source
    head, *lines, total = ctl('tree', path).stdout.splitlines()
    assert head.startswith(f'{os.path.basename(path)} ') and head.endswith('100%')
    assert total == f'{len(c.hashes())} files, 1 symlink'
    names = {re.split('  | -> ', ln[ln.index('── ') + 3:])[0] for ln in lines}
    assert {'misc/', 'model/', 'carton.toml'} <= names
    assert {os.path.basename(n) for n in c.files()} <= names
    assert ctl('tree', path, 'misc').stdout.startswith('misc ')
    p = ctl('tree', path, 'carton.toml')
    assert p.returncode == 1 and p.stderr == 'cartonctl: carton.toml: Not a directory\n'


def test_tree_of_what_is_large(work):
    """The largest of each directory first, one row for the rest, and no level too many."""
    c = Carton(method='stored')
    for i in range(8):
        c.add(f'model/a/{i}', bytes(100 * i + 1)).add(f'model/b/deep/{i}', bytes(1000 * i + 1))
    path = c.write(work / 'm.carton')
    lines = ctl('tree', '--top=2', path, 'model').stdout.splitlines()
    names = [re.split('  +', ln.lstrip('│├└─ '))[0] for ln in lines]
    assert names == ['model', 'b/', 'deep/', '7', '6', '… 6 more', 'a/', '7', '6', '… 6 more', '16 files']
    assert ' 14.7 KiB ' in lines[5]                 # of 0 to 5: 15,006 bytes
    lines = ctl('tree', '--depth=2', path, 'model').stdout.splitlines()
    assert [re.split('  +', ln.lstrip('│├└─ '))[0] for ln in lines[:-1]] == ['model', 'a/'] + [str(i) for i in range(8)] \
        + ['b/', 'deep/']
    assert ctl('tree', '--top=3', '--depth=1', path).stdout.count('\n') == 5 and ctl('tree', '--top=0', path).returncode == 1


def test_ls_by_size(work):
    c = sample()
    path = c.write(work / 'm.carton')
    sizes = [x.get('size', 0) for x in json.loads(ctl('ls', '--json', '--sort=size', path).stdout) if 'target' not in x]
    assert sizes == sorted(sizes, reverse=True)
    assert sorted(ctl('ls', '-0', '--sort=size', path).stdout) == sorted(ctl('ls', '-0', path).stdout)
    p = ctl('ls', '--sort=date', path)
    assert p.returncode == 1 and '--sort=date: expected path or size' in p.stderr


def test_counts_agree(mount, work):
    """A symlink is none of the files."""
    c = sample()
    path, n = c.write(work / 'm.carton'), len(c.hashes())
    assert ctl('verify', path).stdout.startswith(f'ok: {n} files, ')
    assert f'files        {n} files, ' in ctl('info', path).stdout
    for command in (('ls', path), ('tree', path), ('extract', path, work / 'out'), ('diff', path, work / 'out')):
        assert f'{n} files, 1 symlink' in ctl(*command).stdout, command
    with mount(path) as m:
        assert json.loads(ctl('status', '--json', m.path).stdout)[0]['files'] == n


def test_tree_of_deep_directories(work):
    """A path of 2,000 directories: the stack is enough, and no row is longer than its part."""
    deep = 'd/' * 2000 + 'f'
    p = ctl('tree', Carton().add(deep, b'x' * 100).write(work / 'm.carton'))
    assert p.returncode == 0 and p.stdout.endswith('\n3 files\n'), p.stderr
    assert p.stdout.count('d/ ') == 2000


def test_info(source):
    path, c = source
    p = ctl('info', path)
    assert p.returncode == 0 and p.stderr == ''
    for text in ('Sample model', 'A sample', 'Apache-2.0', 'python', '=3.11', 'float32', 'batch',
                 c.model_hash()):
        assert text in p.stdout, text


def test_info_json(source):
    path, c = source
    p = ctl('info', '--json', path)
    assert p.returncode == 0
    data = json.loads(p.stdout)
    assert isinstance(data, dict)

    def values(x):
        if isinstance(x, (dict, list)):
            for y in x.values() if isinstance(x, dict) else x:
                yield from values(y)
        else:
            yield x
    have = list(values(data))
    for v in ('Sample model', 'A sample', 'Apache-2.0', 'python', '=3.11', 'float32', 'batch', 3,
              c.model_hash()):
        assert v in have, v


def test_info_escapes_hostile_text(work):
    """Text of a carton is no terminal command, and JSON stays JSON."""
    toml = TOML.replace(b"'Sample model'", b'"a\\u001b[31m\\nb\\"\\\\\\u0000\\u009b"')
    path = Carton(toml).write(work / 'm.carton')
    p = ctl('info', path)
    assert p.returncode == 0 and '\x1b' not in p.stdout and '\x9b' not in p.stdout
    assert json.loads(ctl('info', '--json', path).stdout)
    # the same without a NUL, for which all of it would be dropped
    c1 = ''.join(f'\\u{i:04x}' for i in range(0x7f, 0xa0))
    toml = TOML.replace(b"'Sample model'", f'"a{c1}é\\tz\\u00a0🥳"'.encode())
    p = ctl('info', Carton(toml).write(work / 'n.carton'))
    escaped = '\\x7f' + ''.join(f'\\xc2\\x{i:02x}' for i in range(0x80, 0xa0))
    assert f'a{escaped}é z\u00a0🥳\n' in p.stdout.replace('é\nz', 'é z')


def test_info_options(work):
    """Values as they are: nested as in TOML, keys unquoted in JSON, shortest floats."""
    toml = TOML[:TOML.index(b'[runner]')] + b"""
[runner]
runner_name = 'python'
required_framework_version = '=3.11'
[runner.opts]
a = []
b = {}
"c.d" = 1
c.d = 2
"" = 3
"x[0]" = 4
x = [5, [], {}, [{}], [6]]
"q\\"" = { "\\u00fc" = {} }
f = [0.1, 100.0, 1e300, nan, -inf]
d = 1979-05-27
s = "a\\nb"
[runner.opts.c.e]
"""
    path = Carton(toml).write(work / 'm.carton')
    out = ctl('info', '--json', path).stdout
    assert json.loads(out)['runner']['opts'] == {
        'a': [], 'b': {}, 'c.d': 1, 'c': {'d': 2, 'e': {}}, '': 3, 'x[0]': 4,
        'x': [5, [], {}, [{}], [6]], 'q"': {'ü': {}}, 'f': [0.1, 100.0, 1e300, None, None],
        'd': '1979-05-27', 's': 'a\nb'}
    assert '"f":[0.1,100.0,1e+300,null,null]' in out
    lines = [ln.strip() for ln in ctl('info', path).stdout.splitlines()]
    for line in ('options      a = []', 'b = {}', '"c.d" = 1', 'c = { d = 2, e = {} }', '"" = 3', '"x[0]" = 4',
                 'x = [5, [], {}, [{}], [6]]', r'"q\"" = { "ü" = {} }',
                 'f = [0.1, 100.0, 1e+300, nan, -inf]', 'd = 1979-05-27', r's = "a\nb"'):
        assert line in lines, line


def test_info_lists_tests(work):
    """Self tests and examples by name, and internal names, in both forms."""
    toml = TOML[:TOML.index(b'[runner]')] + b"""
[[input]]
name = 'z'
dtype = 'int8'
shape = []
internal_name = 'scope/z:0'
[[self_test]]
name = 'first'
description = 'the first'
inputs = { x = '@tensor_data/a' }
expected_out = { y = '@tensor_data/b' }
[[self_test]]
inputs = {}
[[example]]
name = 'picture'
inputs = { x = '@misc/a' }
sample_out = {}
""" + TOML[TOML.index(b'[runner]'):]
    path = Carton(toml).write(work / 'm.carton')
    data = json.loads(ctl('info', '--json', path).stdout)
    assert data['inputs'][-1]['internal_name'] == 'scope/z:0'
    assert data['self_tests'][0] == {'name': 'first', 'description': 'the first',
                                     'inputs': {'x': '@tensor_data/a'},
                                     'expected_out': {'y': '@tensor_data/b'}}
    assert [t['name'] for t in data['self_tests']] == ['first', None]
    assert [e['name'] for e in data['examples']] == ['picture']
    lines = [ln.strip() for ln in ctl('info', path).stdout.splitlines()]
    for line in ('2 self tests', 'first  the first', '(no name)', '1 example', 'picture'):
        assert line in lines, lines
    line, = [ln for ln in lines if ln.startswith('z ')]
    assert line.split(None, 2)[:2] == ['z', 'int8'] and line.endswith('internal name scope/z:0')


# What the reference loader refuses, by the edit of a carton.toml that it takes; and what verify says.
REFUSED = {
    'version requirement': (b"'=3.11'", b"'3.11 or later'", 'is not a version requirement'),
    'version of another type': (b"'=3.11'", b'3.11', 'required_framework_version is not a string'),
    'platform': (b'[[input]]', b"required_platforms = ['linux']\n[[input]]", 'required_platforms does not'),
    'platforms of another type': (b'[[input]]', b"required_platforms = 'x86_64-apple-darwin'\n[[input]]",
                                  'required_platforms is not a list'),
    'input table': (b'[[input]]', b'[input]', 'input is not an array of tables'),
    'no compat version': (b'runner_compat_version = 1\n', b'', 'no runner_compat_version'),
    'compat version of another type': (b'runner_compat_version = 1', b'runner_compat_version = -1',
                                       'runner_compat_version is not'),
    'array option': (b'[runner.opts]', b'[runner.opts]\no = [1]', '"o" is an array'),
    'date option': (b'[runner.opts]', b'[runner.opts]\no = 1979-05-27', '"o" is a date'),
    'table option': (b'[runner.opts]', b'[runner.opts.o]', '"o" is a table'),
    'short description': (b"'short'", b"'%s'" % (b'd' * 101), 'more than 100 characters'),
}
LOADED = b"""spec_version = 1
model_name = 'm'
short_description = 'short'
%s
[[input]]
name = 'x'
dtype = 'string'
shape = '*'
[[output]]
name = 'y'
dtype = 'string'
shape = ['n', 3, '*']
[[self_test]]
inputs = { x = '@tensor_data/t' }
expected_out = { y = '@tensor_data/t' }
[runner]
runner_name = 'python'
required_framework_version = '=3.11'
runner_compat_version = 1
[runner.opts]
i = 1
f = 0.5
s = 's'
b = true
"""


def loaded(work, toml):
    c = Carton(toml)
    c.add('model/m', b'm')
    c.add('tensor_data/index.toml', b"[[tensor]]\nname = 't'\ndtype = 'string'\nshape = [1]\nfile = 't.toml'\n")
    c.add('tensor_data/t.toml', b"data = ['a']\n")
    return ctl('verify', c.write(work / 'm.carton'))


@pytest.mark.parametrize('name', REFUSED)
def test_verify_reports_what_the_loader_refuses(work, name):
    old, new, says = REFUSED[name]
    toml = LOADED % b''
    assert toml.count(old) == 1
    p = loaded(work, toml.replace(old, new))
    assert p.returncode == 2 and says in p.stdout + p.stderr, p.stdout + p.stderr


@pytest.mark.parametrize('platforms', [b'', b'required_platforms = []', b"""required_platforms = [
    'x86_64-unknown-linux-gnu', 'aarch64-unknown-linux-gnu', 'x86_64-apple-darwin', 'aarch64-apple-darwin']"""])
def test_verify_passes_what_the_loader_takes(work, platforms):
    p = loaded(work, (LOADED % platforms).replace(b"'short'", b"'%s'" % ('é' * 100).encode()))
    assert p.returncode == 0 and 'carton.toml' not in p.stdout + p.stderr, p.stdout + p.stderr


def test_verify_good(source):
    path, c = source
    p = ctl('verify', path)
    assert p.returncode == 0, p.stdout + p.stderr
    assert '\r' not in p.stdout + p.stderr and '\x1b' not in p.stdout + p.stderr    # no terminal


@pytest.mark.parametrize('kind', ['carton', 'directory'])
def test_verify_lists_every_problem(work, kind):
    c = sample().add('LINKS', b'version = 1\n[urls]\n')
    bad = ['model/main.py', 'model/weights.bin', 'misc/a=b c.txt']
    for path in bad:
        c.change(path, sha='2' * 64)
    c.change('carton.toml', data=TOML[:TOML.index(b'[runner]')] + b"""
[[self_test]]
inputs = { x = '@tensor_data/gone' }
""")
    lines = c.manifest_bytes().splitlines(True)
    c.manifest = b''.join(lines[::-1])
    source = c.write(work / 'm.carton') if kind == 'carton' else c.unpack(work / 'dir')
    p = ctl('verify', source)
    out = p.stdout + p.stderr
    assert p.returncode == 2
    for text in [*bad, 'gone', 'runner']:
        assert text in out, f'{text} not in {out}'
    for path in ('model/run.sh', 'misc/picture.png'):
        assert path not in out


@pytest.mark.parametrize('local', [{}, {'name': b'misc/evil'}, {'method': 8}, {'crc': 1}])
def test_verify_unlisted(work, local):
    """No mount shows them, but the zip must mean the same to all who read it."""
    c = sample().add('misc/note', b'unlisted', method='stored', listed=False, local=local)
    p = ctl('verify', c.write(work / 'm.carton'))
    told = [ln for ln in (p.stdout + p.stderr).splitlines() if 'misc/note' in ln]
    assert p.returncode == 2 and len(told) == (2 if local else 1), p.stdout + p.stderr
    assert 'not listed' in told[0] and (not local or 'local header' in told[1])


@pytest.mark.parametrize('entry', [{'method': 'deflate', 'payload': zlib.compress(b'unlisted')},
                                   {'local': {'crc': 1}, 'central': {'crc': 1}},
                                   {'payload': b'unlIsted'}])
def test_verify_unlisted_data(work, entry):
    """Readers that know no MANIFEST extract them too: their data must be right."""
    c = sample().add('misc/note', b'unlisted', **{'method': 'stored', **entry}, listed=False)
    p = ctl('verify', c.write(work / 'm.carton'))
    told = [ln for ln in (p.stdout + p.stderr).splitlines() if 'misc/note' in ln]
    assert p.returncode == 2 and len(told) == 2 and re.search('crc|deflate', told[1]), told


def test_verify_remote_directory(nginx, cache):
    """A mount does not ask a server for directories; verify does."""
    c = sample().directory('misc', local={'name': b'evil/'})
    c.write(nginx.root / 'm.carton')
    p = ctl('hash', cache.flag, nginx.url('m.carton'))
    assert p.returncode == 0, p.stderr
    p = ctl('verify', cache.flag, nginx.url('m.carton'))
    assert p.returncode == 2 and 'misc: has another name' in p.stdout, p.stdout + p.stderr


def test_verify_many_bad_files(work):
    """None is lost among many: all are listed, or the rest is counted."""
    c = Carton()
    for i in range(200):
        c.add(f'model/{i:03}', b'%d' % i, sha=f'{i:064x}')
    p = ctl('verify', c.write(work / 'm.carton'))
    out = p.stdout + p.stderr
    assert p.returncode == 2
    assert all(f'model/{i:03}' in out for i in range(200)) or '200' in out or '180' in out


def test_verify_finds_each_wrong_file(work):
    """Files are hashed together: each has its own answer, and none passes for what another has."""
    sizes = [530_000, 3, 530_000, 9000, 524_288, 524_289, 9000, 64, 9000]
    rng = random.Random(43)
    data = {f'model/{i:02}': rng.randbytes(n) for i, n in enumerate(sizes)}
    methods = ['stored', 'stored', 'deflate', 'stored', 'zstd', 'stored']

    def found(other):
        c = Carton()
        for i, (path, right) in enumerate(data.items()):
            c.add(path, other.get(path, right), method=methods[i % 6], sha=hashlib.sha256(right).hexdigest())
        p = ctl('verify', c.write(work / 'm.carton'))
        assert p.returncode == (2 if other else 0), p.stdout + p.stderr
        return {path for path in data if path in p.stdout + p.stderr}

    assert found({}) == set()
    for path, right in data.items():
        assert found({path: right[:-1] + bytes([right[-1] ^ 1])}) == {path}
    for a, b in (('model/00', 'model/02'), ('model/03', 'model/06'), ('model/06', 'model/08')):
        assert found({a: data[b], b: data[a]}) == {a, b}
    assert found({path: bytes([right[0] ^ 1]) + right[1:] for path, right in data.items()}) == set(data)


@pytest.mark.parametrize('args, says', [
    ((), 'COMMAND is missing'), (('nonsense',), 'unknown command: nonsense'),
    (('verfy', 'x'), 'unknown command: verfy; did you mean verify?'),
    (('umount', 'm'), 'unknown command: umount; did you mean stop?'),
    (('mount', 'x', 'm'), 'unknown command: mount; cartonfs SOURCE MOUNTPOINT mounts a carton'),
    (('help', 'cache', 'nothing'), 'help: too many arguments: nothing'),
    (('hash',), 'hash: SOURCE is missing'), (('cat', 'x'), 'cat: PATH is missing'),
    (('hash', 'x', 'y'), 'hash: too many arguments: y'),
    (('status', '--json', '--watch'), 'status: only one of --json, --metrics and --watch'),
    (('hash', '--json', 'x'), 'hash has no option --json'),
    (('info', '-l', 'x'), 'info has no option --long'), (('hash', '-0', 'x'), 'hash has no option -0'),
    (('cache', 'gc', '1x'), 'cache gc: expected a size such as 500M or 20G: 1x'),
    (('cache', 'path', '12'), 'cache path: expected 8 to 64 hexadecimal digits: 12'),
    (('cache',), 'cache: list, gc, verify, path or export is missing'),
    (('cache', 'lst'), 'cache: expected list, gc, verify, path or export: lst'),
    (('cache', 'path'), 'cache path: SHA256 is missing'),
    (('cache', 'list', '--json', 'x'), 'cache list: too many arguments: x'),
    (('cache', 'gc', '1M', 'x'), 'cache gc: too many arguments: x'),
    (('cache', 'gc', '--json'), 'cache gc has no option --json'),
    (('info', ''), 'info: SOURCE is empty'),
    (('info', '--bogus', 'x'), "unrecognized option '--bogus'"),
    (('info', '--jsn', 'x'), "unrecognized option '--jsn'; did you mean --json?"),
    (('ls', '--srt=https://u:secret@h/', 'x'), "unrecognized option '--srt'; did you mean --sort?"),
    (('info', '--cachedir=x', 'y'), "unrecognized option '--cachedir'; did you mean --cache-dir?"),
    (('info', '--offline=1', 'x'), "option '--offline' doesn't allow an argument"),
    (('info', '--timeout=0', 'x'), '--timeout=0: expected seconds from 1 to 86400'),
    (('info', '--cache-size=x', 'x'), '--cache-size=x: expected a size such as 500M or 20G')])
def test_usage(args, says):
    p = ctl(*args)
    assert (p.returncode, p.stdout) == (1, ''), args
    command = f'{args[0]} ' if args and args[0] not in ('nonsense', 'verfy', 'umount', 'mount') else ''
    assert p.stderr == f"cartonctl: {says}\nTry 'cartonctl {command}--help'.\n"




def test_help_and_version():
    p = ctl('--help')
    assert p.returncode == 0 and 'verify' in p.stdout and ctl('-h').stdout == p.stdout
    commands = re.findall(r'^  ([a-z]+) ', p.stdout, re.M)
    assert len(commands) == 21
    for command in [None, *commands]:
        lines = (ctl(command, '--help') if command else p).stdout.splitlines()
        assert len(lines) <= 24 and max(map(len, lines)) <= 80
        assert lines[0].startswith(f'usage: cartonctl {command or "COMMAND"} ')
    p = ctl('--version')
    assert p.returncode == 0 and any(ch.isdigit() for ch in p.stdout)


def test_help_and_version_as_commands():
    help_, version = ctl('--help').stdout, ctl('--version').stdout
    assert ctl('help').stdout == help_ and ctl('version').stdout == version
    for scheme in ('https://', 's3://', 'hf://', 'ms://', 'oci://'):
        assert scheme in help_ and scheme in run(CARTONFS, '--help').stdout
    page = ctl('help', 'pack')
    assert page.returncode == 0 and page.stdout == ctl('pack', '-h').stdout == ctl('-h', 'pack').stdout
    assert '\nexample: cartonctl pack ' in page.stdout
    assert ctl('help', 'cache', 'gc').stdout == ctl('cache', '--help').stdout
    for word in ('help', 'version'):
        assert run(CARTONFS, word).stderr.startswith(f'cartonfs: MOUNTPOINT is missing; did you mean --{word}?\n')
    p = ctl('help', 'verfy')
    assert p.stderr == "cartonctl: unknown command: verfy; did you mean verify?\nTry 'cartonctl --help'.\n"


def test_help_has_the_options_of_the_command():
    """Whose signature is wanted, where that is asked; and nothing that does not matter to the command."""
    assert 'verify_key=PEM' in run(CARTONFS, '--help').stdout
    for command in ('info', 'verify', 'extract', 'fetch'):
        page = ctl('help', command).stdout
        for option in ('--verify-key=', '--verify-ca=', '--signer=', '--signature=', '--hub-token', '--sha256='):
            assert option in page, (command, option)
    assert '--verify-key=' not in ctl('help', 'hash').stdout
    for option in ('--cache-dir=', '--cache-size=', '--nosandbox', '--json'):
        assert option in ctl('help', 'cache').stdout
    for command in ('init', 'status', 'stop', 'refresh', 'cache'):
        assert '--mirror' not in ctl('help', command).stdout
    for command in re.findall(r'^  ([a-z]+) ', ctl('help').stdout, re.M):
        assert '\n\n\n' not in ctl('help', command).stdout


@pytest.mark.parametrize('home', ['/proc/none', '/dev/null', ''])
def test_verify_needs_no_cache(work, home):
    """Of a local carton nothing is fetched: whether there is a home directory does not matter."""
    p = ctl('verify', sample().write(work / 'm.carton'), env={'HOME': home})
    assert (p.returncode, p.stderr) == (0, '') and p.stdout.startswith('ok: '), p.stdout


def test_verify_several(work):
    """Each under its name, and the worst exit status: damaged, then not checked, then to be tried again."""
    good, bad, none = sample().write(work / 'g.carton'), work / 'b.carton', work / 'n.carton'
    sample().change('model/weights.bin', sha='1' * 64).write(bad)
    away = 'http://none.invalid/m.carton'
    for sources, status in (((good, good), 0), ((good, bad, none), 2), ((good, none, away), 1), ((away, good), 75)):
        p = ctl('verify', *sources)
        lines = p.stdout.splitlines()
        assert p.returncode == status and [s for s in map(str, sources) if s in lines] == [*map(str, sources)], p.stdout
        assert len([x for x in lines if x.startswith('ok: ')]) == sources.count(good)
    out = json.loads(ctl('verify', '--json', good, bad).stdout)
    assert [(x['source'], x['ok']) for x in out] == [(str(good), True), (str(bad), False)]


def test_refused_source_is_named(work):
    """Which of several: the messages are about files in it, or about nothing."""
    good, plain, junk = sample().write(work / 'm.carton'), work / 'plain.zip', work / 'junk'
    with zipfile.ZipFile(plain, 'w') as z:
        z.writestr('carton.toml', '')
    junk.write_text('no zip')
    for bad, says in ((plain, 'has no MANIFEST, so it is not a carton'), (junk, 'is not a zip file, or was cut off')):
        for words in (('hash', bad), ('ls', bad), ('diff', good, bad), ('diff', bad, good)):
            p = ctl(*words)
            assert p.returncode != 0 and p.stderr.startswith(f'cartonctl: {bad}: {says}'), (words, p.stderr)
            assert len(p.stderr.splitlines()) == 1


def test_missing_source(work):
    for args in (('hash', work / 'none.carton'), ('cat', work / 'none.carton', 'x'),
                 ('info', work / 'none.carton'), ('ls', work / 'none.carton'),
                 ('verify', work / 'none.carton')):
        p = ctl(*args)
        assert p.returncode in (1, 2, 32) and 'none.carton' in p.stdout + p.stderr, args
        assert 'No such file' in p.stdout + p.stderr


def test_cat_agrees_with_a_mount(mount, sample_carton):
    path, c = sample_carton
    with mount(path) as m:
        for name in c.files():
            assert read_file(m / name) == ctl('cat', path, name, text=False).stdout
