# SPDX-License-Identifier: Apache-2.0
"""
README.md is true: every command of its sh blocks is run, in order, as a newcomer would.

Two stand-ins: where we are root, `sudo` is nothing; and `make install` gets a DESTDIR, so that nothing
is installed on this machine. What would run this test again is only looked at.
"""
import http.server
import json
import os
import re
import subprocess
import sys
import threading

import pytest

import faultserver
from harness import BUILD, IS_ROOT, PROGRAMS, ROOT, SANITIZED, mountinfo, run
from zipwriter import TOML, sample

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
    named = set(re.findall(r'(?:`|^)make ([a-z-]+)', TEXT + CONTRIBUTING, re.M))
    assert {'demo', 'check', 'asan', 'tsan', 'fuzz', 'uninstall'} <= named
    for target in named:
        make('-n', target)


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
    for text in ('$ cartonfs ', '$ ls ', '$ cat ', 'sha256sum -c', 'model/weights.bin: OK',
                 '$ getfattr ', 'user.carton.state="verified"', 'Input/output error',
                 'misc/zero.png: OK'):
        assert text in out, text
    assert out.count('$ umount ' if IS_ROOT else '$ fusermount3 -u ') == 2
    at = 0
    for line in re.search(r'```console\n(.*?)```', TEXT, re.S)[1].splitlines():
        at = out.find(line + '\n', at)
        assert at >= 0, f'README.md shows {line!r}, the demo does not, or elsewhere'


def test_make_install(work):
    """Both words of README.md, into a directory; the build is not touched."""
    for target in ('install', 'uninstall'):
        assert f'make {target}' in TEXT
        make('-o', 'all', target, f'BUILD={BUILD}', f'DESTDIR={work}/dest')
        there = (work / 'dest/usr/local/bin/cartonfs').exists()
        assert there == (target == 'install')


SELF_TEST = b"""
[[self_test]]
inputs = { x = '@tensor_data/numeric' }
"""


class Triton(http.server.BaseHTTPRequestHandler):
    """Takes what curl sends; test_view_triton.py is the strict one."""

    def do_POST(self):
        assert self.path == '/v2/models/m/infer'
        body = self.rfile.read(int(self.headers['Content-Length']))
        json.loads(body[:int(self.headers['Inference-Header-Content-Length'])])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'understood')

    def log_message(self, *args):
        pass


@pytest.fixture
def servers(work):
    """{URL in the text: URL here}: one server has m.carton, one is a model's."""
    origin = subprocess.Popen([sys.executable, faultserver.__file__, '--root', work],
                              stdout=subprocess.PIPE, text=True)
    port = origin.stdout.readline().strip()
    triton = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Triton)
    threading.Thread(target=triton.serve_forever, daemon=True).start()
    yield {'https://example.com/': f'http://127.0.0.1:{port}/file=m.carton/',
           'http://localhost:8000/': f'http://127.0.0.1:{triton.server_port}/'}
    triton.shutdown()
    origin.kill()
    origin.wait()
    origin.stdout.close()


@pytest.fixture
def newcomer(work):
    """A directory with m.carton, and a shell that finds the programs as if they were installed."""
    carton = sample(toml=TOML + SELF_TEST)
    carton.write(work / 'm.carton')
    (work / 'mymodel').mkdir()
    (work / 'mymodel/model.safetensors').write_bytes(b'')
    (work / 'bin').mkdir()
    sudo = work / 'bin/sudo'
    sudo.write_text('#!/bin/sh\nexec "$@"\n')
    sudo.chmod(0o755)
    path = f'{work}/bin:{PROGRAMS}:{os.environ.get("PATH", "")}:/usr/sbin:/usr/bin:/sbin:/bin'
    yield work, carton, path
    if mountinfo(work / 'mnt'):
        run('umount' if IS_ROOT else 'fusermount3', '-l' if IS_ROOT else '-uz', work / 'mnt')


def test_commands(newcomer, servers, request):
    work, carton, path = newcomer
    if IS_ROOT:
        request.getfixturevalue('installed')    # mount(8) has a PATH of its own
    assert any(c.startswith('cartonfs ') for c in OTHERS)
    assert any(c.startswith('cartonctl verify') for c in OTHERS)
    seen = {}
    for command in OTHERS:
        if command.startswith('sudo ') and not IS_ROOT:
            assert command.split()[1] in ('mount', 'umount')    # which only root may
            continue
        here = command
        for there, url in servers.items():
            here = here.replace(there, url)
        p = run('sh', '-ec', here, cwd=work, env={'PATH': path})
        assert p.returncode == 0, f'{command}: {p.stderr}'
        seen[command] = p.stdout
    assert mountinfo(work / 'mnt') is None, 'README.md leaves a mount behind'
    assert seen['cat mnt/carton.toml'] == carton.entries['carton.toml'].data.decode()
    assert 'user.carton.state="' in seen['getfattr -d mnt/carton.toml']
    assert seen['sha256sum mnt/MANIFEST'].split()[0] == carton.model_hash()
    assert set(seen['ls mnt'].split()) >= {'MANIFEST', 'carton.toml', 'model', 'misc'}
    assert carton.model_hash() in seen['cartonctl hash m.carton']
    assert 'numeric.npy' in seen['ls mnt/views/tensor_data'].split()
    assert len(seen['cartonctl cache list'].splitlines()) > 5
    for command, out in seen.items():
        if re.match('cartonctl (repack|link)', command) or command == 'cartonctl hash m3.carton':
            assert out.strip() == carton.model_hash(), command
    assert seen['cartonctl pack mymodel mymodel.carton'] == run(PROGRAMS / 'cartonctl', 'hash',
                                                                work / 'mymodel.carton').stdout
    curl, = [out for command, out in seen.items() if command.startswith('curl ')]
    assert curl == 'understood'



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
