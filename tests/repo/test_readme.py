# SPDX-License-Identifier: Apache-2.0
"""
README.md is true: every command of its sh blocks is run, in order, as a newcomer would.

Two stand-ins: where we are root, `sudo` is nothing; and `make install` gets a DESTDIR, so that nothing
is installed on this machine. What would run this test again is only looked at.
"""
import hashlib
import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys

import pytest

import faultserver
from harness import BUILD, IS_ROOT, PROGRAMS, ROOT, SANITIZED, ctl, mountinfo, run
from hubrepo import HubServer, Repo, settled
from terminal import plain, terminal, width
from termsvg import picture

TEXT = (ROOT / 'README.md').read_text()
CONTRIBUTING = (ROOT / '.github/CONTRIBUTING.md').read_text()
# A block of code that begins with the path of a file.
CODE = re.findall(r'^```c\n/\* (\S+) \*/\n(.*?)^```$', CONTRIBUTING, re.M | re.S)
STACK = (ROOT / 'core/README.md').read_text()
BLOCKS = re.findall(r'^```sh\n(.*?)^```$', TEXT, re.M | re.S)


def commands(block):
    lines = [re.sub(r'\s+#.*', '', line).strip() for line in block.splitlines()]
    return [line for line in lines if line]


ALL = [c for block in BLOCKS for c in commands(block)]
MAKE = [c for c in ALL if re.match(r'(sudo )?make\b', c)]
OTHERS = [c for c in ALL if c not in MAKE]


def make(*args):
    p = run('make', '--no-print-directory', *args, cwd=ROOT, timeout=300)
    assert p.returncode == 0, p.stdout + p.stderr
    return p.stdout


def test_readme_begins_with_the_two_commands():
    assert commands(BLOCKS[0]) == ['make demo', 'make check']
    assert len(ALL) > 15 and len(MAKE) > 3


@pytest.mark.parametrize('command', MAKE)
def test_make_targets_exist(command):
    assert make('-n', *command.removeprefix('sudo ').split()[1:])


def test_targets_in_the_text_exist():
    """Also what is named outside of sh blocks, and for contributors."""
    named = set(re.findall(r'(?:`|^)make ([a-z][a-z0-9-]*)', TEXT + CONTRIBUTING, re.M))
    assert {'demo', 'check', 'asan', 'tsan', 'fuzz', 'uninstall'} <= named
    make('-n', *named)


@pytest.mark.parametrize('path, block', CODE, ids=[path for path, _ in CODE])
def test_code_that_is_shown_is_ours(path, block):
    """As it is: what stands between two empty lines follows each other in the file too."""
    text = (ROOT / path).read_text()
    for part in block.strip('\n').split('\n\n'):
        assert part in text, part


def test_code_is_shown():
    assert len(CODE) >= 3


def test_make_demo():
    """For real, with what is built; a build with other flags must not be built anew here."""
    assert 'tests/demo' in make('-n', 'demo')
    if SANITIZED:
        p = run('tests/demo', BUILD, cwd=ROOT)
        assert p.returncode == 0, p.stdout + p.stderr
        out = p.stdout
    else:
        out = make('demo', f'BUILD={BUILD}')
    for text in ('$ cartonctl info ', '$ cartonctl tree ', '$ cartonctl status ', '$ cartonfs ', '$ cat ', 'sha256sum -c', 'model/weights.bin: OK',
                 '$ cartonctl info mnt/model/embeddings.bin\n', '$ getfattr ', 'Input/output error',
                 'misc/zero.png: OK'):
        assert text in out, text
    assert out.count('$ umount ' if IS_ROOT else '$ fusermount3 -u ') == 2
    assert (BUILD / 'sample.carton').exists() and (BUILD / 'sample/MANIFEST').exists()
    at = 0
    for line in re.search(r'```console\n(.*?)```', TEXT, re.S)[1].splitlines():
        at = out.find(line + '\n', at)
        assert at >= 0, f'README.md shows {line!r}, the demo does not, or elsewhere'


def test_demo_at_a_terminal():
    """Its commands see a terminal as well: no hash is broken at its edge, and colours change no check."""
    out = plain(terminal(80, BUILD, program=ROOT / 'tests/demo'))
    assert 'Everything worked as expected.' in out, out
    found = out.split('$ cartonctl verify damaged.carton\n')[1]
    assert len(re.findall(r'\b[0-9a-f]{64}\b', found)) == 2 and max(map(width, found.splitlines())) <= 80, found
    assert '\n$ (cd mnt; ' in out, 'the next command is in the directory above'


def test_make_install(work):
    """Both words of README.md, into a directory; the build is not touched."""
    for target in ('install', 'uninstall'):
        assert f'make {target}' in TEXT
        make('-o', 'all', target, f'BUILD={BUILD}', f'DESTDIR={work}/dest')
        there = (work / 'dest/usr/local/bin/cartonfs').exists()
        assert there == (target == 'install')


@pytest.fixture
def server(work):
    """{URL in the text: URL here}: of a server that has build/sample.carton."""
    origin = subprocess.Popen([sys.executable, faultserver.__file__, '--root', work / 'build'],
                              stdout=subprocess.PIPE, text=True)
    port = origin.stdout.readline().strip()
    yield {'https://example.com/': f'http://127.0.0.1:{port}/file=sample.carton/'}
    origin.kill()
    origin.wait()
    origin.stdout.close()


def load_demo():
    """tests/demo as a module."""
    loader = importlib.machinery.SourceFileLoader('demo', str(ROOT / 'tests/demo'))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('demo', loader))
    loader.exec_module(module)
    return module


@pytest.fixture
def newcomer(work):
    """A directory with what `make demo` has left in build/, and a shell that finds the programs as if installed."""
    (work / 'build').mkdir()
    hashes = load_demo().write_carton(work / 'build/sample.carton')
    assert ctl('extract', work / 'build/sample.carton', work / 'build/sample').returncode == 0
    (work / 'core').symlink_to(ROOT / 'core')
    (work / 'build/libcarton.so.0').symlink_to(BUILD / 'libcarton.so.0')
    (work / 'bin').mkdir()
    for name, text in {'sudo': '"$@"', **({} if IS_ROOT else {'umount': 'fusermount3 -u "$@"'})}.items():
        (work / 'bin' / name).write_text(f'#!/bin/sh\nexec {text}\n')
        (work / 'bin' / name).chmod(0o755)
    path = f'{work}/bin:{PROGRAMS}:{os.environ.get("PATH", "")}:/usr/sbin:/usr/bin:/sbin:/bin'
    yield work, hashes, path
    if mountinfo(work / 'mnt'):
        run('umount' if IS_ROOT else 'fusermount3', '-l' if IS_ROOT else '-uz', work / 'mnt')


def test_commands(newcomer, server):
    work, hashes, path = newcomer
    seen = {}
    for command in OTHERS:
        if SANITIZED and 'python3' in command:      # the interpreter has no sanitizer
            continue
        here = command
        for there, url in server.items():
            here = here.replace(there, url)
        p = run('sh', '-ec', here, cwd=work, env={'PATH': path, 'PYTHONDONTWRITEBYTECODE': '1'})
        assert p.returncode == 0, f'{command}: {p.stderr}'
        seen[command] = p.stdout
    assert mountinfo(work / 'mnt') is None, 'README.md leaves a mount behind'
    model = ctl('hash', work / 'build/sample.carton').stdout.strip()
    assert seen['cat mnt/carton.toml'] == load_demo().CARTON_TOML
    assert re.search(r'^state +(un)?verified$', seen['cartonctl info mnt/carton.toml'], re.M)
    assert 'zero.npy' in seen['ls mnt/views mnt/views/tensor_data'].split()
    assert seen['cartonctl verify build/sample.carton'].startswith(f'ok: {len(hashes)} files') and model
    assert seen['cartonctl diff build/sample.carton build/sample'].startswith('the same: ')
    assert len(seen['cartonctl cache list'].splitlines()) >= 5
    assert (seen['cartonctl pack --compress=store --chunk-index mymodel mymodel.carton']
            == ctl('hash', work / 'mymodel.carton').stdout)
    assert 'misc/.cartonfs/chunks' in seen['cartonctl ls --sort=size mymodel.carton']


def test_what_the_demo_leaves_is_used():
    """Each block that needs a carton has that one."""
    for block in BLOCKS:
        assert 'build/sample' in block or all(c in MAKE for c in commands(block)), block


def test_options_of_the_table_exist():
    """Each mount option in the table is in --help."""
    rows = re.findall(r'^\| (`.*?) \|', TEXT, re.M)
    shown = run(BUILD / 'cartonfs', '--help').stdout
    names = {n for row in rows for n in re.findall(r'`(\w+)', row)}
    assert len(names) > 5
    for name in names:
        assert re.search(rf'\b{name}\b', shown), name


@pytest.mark.parametrize('name', ['README.md', 'core/README.md', '.github/CONTRIBUTING.md',
                                  '.github/SECURITY.md', 'tests/README.md'])
def test_files_that_the_text_names_exist(name):
    """In backquotes, or linked; in core/README.md paths begin in core/, or in the root."""
    text = (ROOT / name).read_text()
    named = set(re.findall(r'`((?:core|fs|tests|systemd|\.github)/[\w./-]*)`', text))
    named |= set(re.findall(r'\]\(([\w./-]+)\)', text))
    if name == 'core/README.md':
        folders = '|'.join(p.name for p in (ROOT / 'core').iterdir() if p.is_dir())
        named |= {f'core/{n}' for n in re.findall(rf'`((?:(?:{folders})/[\w.]*)|\w+\.[ch])`', text)}
    assert named
    for path in named:
        assert (ROOT / path).exists(), path
    for path in re.findall(r'build/(tests/\w+/\w+)', text):
        assert (ROOT / f'{path}.c').exists(), path


def test_glossary_is_complete():
    """Words that the project's texts use in a sense of their own."""
    words = set(re.findall(r'^\| ([a-z ]+) \| [A-Z]', STACK, re.M))
    assert words >= {'object', 'pin', 'verify', 'materialize', 'extent', 'lazy directory', 'mirror',
                     'fill', 'file', 'fetcher', 'cancel token', 'cache entry', 'waiter'}
    assert sorted(words, key=str.lower) == re.findall(r'^\| ([a-z ]+) \| [A-Z]', STACK, re.M)


# ---- the picture ----

PICTURE = ROOT / '.github/terminal.svg'
GIB = 1 << 30


def test_picture(mount, cache):
    """.github/terminal.svg is what the programs print; `PICTURE=new make check` puts it there anew."""
    large = {f'model-{i}-of-4.safetensors': (4 * GIB + i, hashlib.sha256(b'%d' % i).hexdigest()) for i in range(1, 5)}
    small = {'config.json': b'{"model_type": "llama"}\n', 'tokenizer.json': b'{}' * 900000,
             'generation_config.json': b'{"temperature": 0.6}\n', 'README.md': b'---\nlicense: apache-2.0\n---\n'}
    with HubServer({'models/org/model': Repo(large | small)}) as hub:
        env = {'HF_ENDPOINT': hub.endpoint, 'HF_TOKEN': ''}
        with mount('hf://org/model', *cache.options, env=env) as m:
            tree = terminal(76, 'tree', cache.flag, 'hf://org/model', 'model', **env)
            assert m.read('model/tokenizer.json') == small['tokenizer.json']
            settled(m)
            status = terminal(76, 'status', m.path)
            status = re.sub(r'\d+, up [\d:]+', '4711, up 0:00:12', status.replace(str(m.path), '/home/me/mnt'))
            status = '\n'.join(line for line in status.splitlines() if not re.match(r'\s*\S*(traffic|cache)\b', plain(line)))
    lines = ['$ cartonfs hf://org/model mnt', '$ cartonctl tree hf://org/model model', *tree.splitlines(),
             '$ wc -c mnt/model/tokenizer.json', '1800000 mnt/model/tokenizer.json', '$ cartonctl status mnt',
             *status.splitlines()]
    text = picture(lines)
    if os.environ.get('PICTURE') == 'new':
        PICTURE.write_text(text)
    assert PICTURE.read_text() == text
