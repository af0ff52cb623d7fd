# SPDX-License-Identifier: Apache-2.0
"""
Whatever a carton, a server or a name says: no command prints what a terminal obeys, what reorders text, or what
nobody sees. The carton, its directory and its mountpoint have such names, and so has all that is in it.
"""
import contextlib
import json
import os
import socketserver
import subprocess
import unicodedata

import pytest

import harness
from harness import CARTONCTL, CARTONFS, environment
from origin import LinkedCarton, fault_bytes
from served import serving
from terminal import terminal
from zipwriter import Carton

# in a name inside of a carton: no C0, C1 (those are refused)
UNSEEN = '\u200b\ufeff\u202ecod\u2066\u2069\u200e\u200f\u2060\u2028\u2029\u061c\U000e0041'
CONTROL = '\x1b[2J\x1b]0;title\x07\x7f\r\x9b2J\x9d' + UNSEEN
# in a name of the file system: bytes that are not UTF-8 too
RAW = b'\xff\x9b2J\xe2\x80' + CONTROL.encode().replace(b'\r', b'\r\n')
SIZE = 3000


def shown(what, out):
    """Fails if `out` (bytes) has what must not be seen; returns it as text."""
    text = out.decode()                 # all of it is UTF-8
    for c in text:
        bad = c != '\n' and (unicodedata.category(c) in ('Cc', 'Cf', 'Zl', 'Zp', 'Cs', 'Cn'))
        assert not bad, f'{what}: {c!r} in {text!r}'
    return text


def call(*words, program=CARTONCTL, **kw):
    """Runs it. (exit status, stdout, stderr), both checked."""
    p = subprocess.run([program, *words], capture_output=True, stdin=subprocess.DEVNULL, env=environment(),
                       timeout=harness.TIMEOUT * harness.SLOW, **kw)
    return p.returncode, shown(words, p.stdout), shown(words, p.stderr)


@pytest.fixture
def place(work):
    """A directory with a hostile name, as bytes."""
    path = os.fsencode(work) + b'/d' + RAW
    os.mkdir(path)
    return path


TOML_LINES = """spec_version = 1
model_name = {t}
short_description = {t}
model_description = {t}
license = {t}
repository = {t}
homepage = {t}

[[input]]
name = {t}
dtype = 'float32'
shape = [{t}, 3]
description = {t}
internal_name = {t}

[[output]]
name = 'y'
dtype = 'float32'
shape = '*'

[runner]
runner_name = {t}
required_framework_version = '*'
runner_compat_version = 1
opts = { {t} = {t} }
"""


def toml(text):
    # TOML has the same escapes as JSON, but no surrogate pairs
    quoted = json.dumps(text.replace('\U000e0041', '')).replace('\x7f', '\\u007f')
    return TOML_LINES.replace('{t}', quoted).encode()


@pytest.fixture
def carton(place):
    """A sound one: its path, and the name of a file in it."""
    name = 'model/' + UNSEEN + '.bin'
    c = Carton(toml=toml(CONTROL)).add(name, b'x' * SIZE)
    c.symlink('misc/' + UNSEEN, '../' + name)
    path = place + b'/m' + RAW + b'.carton'
    c.write(path)
    return path, name, c


def variants(command):
    return [[command], [command, '--json']] if command in ('info', 'ls', 'verify', 'diff', 'status') else [[command]]


@pytest.mark.parametrize('command', ['info', 'ls', 'tree', 'hash', 'verify', 'fetch'])
def test_sound(carton, command):
    path, name, _ = carton
    for words in variants(command):
        status, out, err = call(*words, path)
        assert status == 0 and err == '', err
        if words[-1] == '--json':
            value = json.loads(out)
            assert command != 'ls' or name in [e['path'] for e in value]
            assert command != 'info' or value['model_name'] == CONTROL.replace('\U000e0041', '')
        elif command == 'ls':
            assert '\\xe2\\x80\\x8b\\xef\\xbb\\xbf\\xe2\\x80\\xaecod' in out


@pytest.mark.parametrize('command', ['info', 'ls', 'tree'])
def test_at_a_terminal(carton, command):
    out = terminal(100, command, os.fsdecode(carton[0]), NO_COLOR='1')
    shown(command, out.encode())


def test_names_stay_apart(work):
    """Two names that differ in a character that nobody sees are two in the list."""
    names = ['model/ab', 'model/a\u200bb', 'model/a\u200cb', 'model/a\u2060b', 'model/a\ufeffb', 'model/a\ufe0fb']
    c = Carton()
    for name in names:
        c.add(name, name.encode())
    _, out, _ = call('ls', c.write(work / 'm.carton'))
    rows = {line.split()[0] for line in out.splitlines() if line.startswith('model/')}
    assert len(rows) == len(names)


@pytest.mark.parametrize('words', [
    ['cat', 'x' + CONTROL], ['fetch', 'x' + CONTROL], ['ls', 'x' + CONTROL], ['tree', 'x' + CONTROL],
    ['extract', 'out' + CONTROL, 'x' + CONTROL], ['info', '--manifest-sha256=' + CONTROL], ['ls', '--' + CONTROL],
    ['ls', '-' + CONTROL], ['hash', CONTROL], ['hash', '--cache-dir=/none/' + CONTROL, CONTROL], [CONTROL]])
def test_arguments(carton, work, words):
    command, *more = words
    status, out, err = call(command, os.fsdecode(carton[0]), *more, cwd=work)
    assert status != 0 and err, (out, err)


@pytest.mark.parametrize('command', ['info', 'ls', 'tree', 'hash', 'verify', 'fetch', 'cat', 'extract', 'diff', 'pack',
                                     'repack', 'link', 'embed', 'refresh', 'stop', 'status'])
@pytest.mark.parametrize('what', ['missing', 'no zip', 'bad hash', 'bad toml', 'bad path'])
def test_refused(carton, place, work, command, what):
    path, name, c = carton
    if what == 'missing':
        os.unlink(path)
    elif what == 'no zip':
        with open(path, 'wb') as f:
            f.write(CONTROL.encode() * 1000)
    elif what == 'bad hash':
        c.change(name, sha='0' * 64)
        c.write(path)
    elif what == 'bad toml':
        Carton(toml=f'spec_version = {CONTROL}\n'.encode()).write(path)
    else:
        Carton().add('model/' + CONTROL, b'x').write(path)
    out = place + b'/out'
    more = {'cat': [name], 'extract': [out], 'diff': [path], 'pack': [out], 'repack': [out], 'embed': [out],
            'link': [out, '--url=https://example.com/{sha256}/' + CONTROL], 'refresh': ['http://x/' + CONTROL]}
    for words in variants(command):
        if command == 'cat' and what == 'bad toml':
            more['cat'] = ['MANIFEST/' + UNSEEN]
        status, _, err = call(*words, path, *more.get(command, []))
        assert status != 0 or what in ('bad hash', 'bad toml'), err


def test_made(carton, place):
    """pack, repack, link, embed, extract and diff of what is sound."""
    path, name, _ = carton
    out = [place + b'/%d' % i + RAW for i in range(6)]
    other = place + b'/other'
    Carton(toml=toml(CONTROL + 'x')).add(name, b'y').add('model/x' + UNSEEN, b'z').write(other)
    assert call('extract', path, out[0])[0] == 0
    assert call('extract', path, out[0])[0] == 0
    assert call('pack', out[0], out[1])[0] == 0
    assert call('repack', path, out[2])[0] == 0
    assert call('link', path, out[3], '--url=https://example.com/{sha256}')[0] == 0
    assert call('embed', path, out[4])[0] == 0
    for words in variants('diff'):
        status, text, _ = call(*words, path, other)
        assert status == 1 and ('\\xe2\\x80\\x8b' in text or '\\u200b' in text)


# ---- a mount ----

@pytest.mark.parametrize('sound', [True, False])
def test_mount(carton, place, sound):
    """Its log, status.json, metrics, error_file; cartonctl status and stop."""
    path, name, c = carton
    if not sound:
        del c.entries['misc/' + UNSEEN]
        c.change(name, sha='0' * 64)
        c.write(path)
    where = place + b'/mnt\n'
    os.mkdir(where)
    errors = place + b'/errors'
    with open(errors, 'wb') as err:
        p = subprocess.Popen([CARTONFS, '-f', path, where], stderr=err, stdin=subprocess.DEVNULL, env=environment())
    try:
        harness.eventually('it is mounted', lambda: os.path.exists(where + b'/MANIFEST'),
                           why=lambda: open(errors, 'rb').read())
        with contextlib.suppress(OSError), open(os.path.join(where, name.encode()), 'rb') as f:
            f.read()
        with open(where + b'/.cartonfs/status.json', 'rb') as f:
            status = json.loads(shown('status.json', f.read()))
        assert UNSEEN in status['source'] and (status['errors'] > 0) != sound
        with open(where + b'/.cartonfs/metrics', 'rb') as f:
            shown('metrics', f.read())
        for words in ['status'], ['status', '--json']:
            code, out, err = call(*words, where)
            assert code == 0 and err == ''
            assert [m['source'] for m in json.loads(out)] == [status['source']] if len(words) > 1 else '\\x81' in out
        held = os.open(where + b'/MANIFEST', os.O_RDONLY)
        assert call('stop', where)[0] == 1
        os.close(held)
        code, _, err = call('stop', where)
        assert code == 0, err
    finally:
        subprocess.run(['umount', '-l', where], capture_output=True)
        p.wait(harness.EXIT_S * harness.SLOW)
    with open(errors, 'rb') as f:
        assert sound or '\\xe2\\x80\\x8b' in shown('log', f.read())


@pytest.mark.needs_root     # binds a file
def test_status_of_another_program(mount, work):
    """What serves a mount may say anything in its status.json."""
    quoted = json.dumps(CONTROL)
    lists = ''.join(f',\n "{name}": [\n  {{"path": {quoted}, "state": {quoted}, "message": {quoted}, "opens": 2}}\n ]'
                    for name in ('waiting', 'last_errors'))
    (work / 'status.json').write_text(f'{{\n "source": {quoted},\n "model_hash": {quoted}{lists}\n}}\n')
    bind = 'mount --bind "$0" "$1/.cartonfs/status.json" && shift && exec "$@"'
    with mount(Carton().add('model/a', b'x').write(work / 'm.carton')) as m:
        for words in ['status'], ['status', '--json']:
            status, out, err = call('--mount', 'sh', '-ec', bind, work / 'status.json', m, CARTONCTL, *words, m,
                                    program='unshare')
            assert status == 0 and err == '', err
            assert len(words) > 1 or ('2 opens' in out and out.count('\\x1b[2J') >= 5)


def test_mount_is_refused(carton, place):
    path = carton[0]
    with open(path, 'wb') as f:
        f.write(CONTROL.encode() * 1000)
    errors = place + b'/errors'
    where = place + b'/mnt'
    os.mkdir(where)
    for words in ([path, where], [path, where + b'/' + CONTROL.encode()], ['-o', CONTROL, path, where],
                  ['-o', b'verify=' + CONTROL.encode(), path, where], ['--' + CONTROL, path, where],
                  ['-f', '-o', b'header_file=/none/' + CONTROL.encode(), b'http://127.0.0.1:1/' + RAW, where]):
        status, _, err = call('-o', b'error_file=' + errors.replace(b'\\', b'\\\\'), *words, program=CARTONFS)
        assert status != 0 and err
        with contextlib.suppress(FileNotFoundError), open(errors, 'rb') as f:
            shown('error_file', f.read())


# ---- a server ----

class Hostile(socketserver.StreamRequestHandler):
    """Answers with controls wherever a server can put text."""
    answers = {
        'reason': b'HTTP/1.1 500 oh' + RAW.replace(b'\r\n', b'') + b'\r\n',
        'location': b'HTTP/1.1 302 F\r\nLocation: http://127.0.0.1:1/' + RAW.replace(b'\r\n', b'') + b'\r\n',
        'scheme': b'HTTP/1.1 302 F\r\nLocation: x' + RAW.replace(b'\r\n', b'') + b'://h/\r\n',
        'type': b'HTTP/1.1 200 OK\r\nContent-Type: ' + RAW.replace(b'\r\n', b'') + b'\r\n',
        'coding': b'HTTP/1.1 200 OK\r\nContent-Encoding: ' + RAW.replace(b'\r\n', b'') + b'\r\n',
        'length': b'HTTP/1.1 200 OK\r\nContent-Length: 7' + RAW.replace(b'\r\n', b'') + b'\r\n',
        'etag': b'HTTP/1.1 200 OK\r\nETag: "' + RAW.replace(b'\r\n', b'') + b'"\r\n',
        'retry': b'HTTP/1.1 503 x\r\nRetry-After: ' + RAW.replace(b'\r\n', b'') + b'\r\n',
        'garbage': RAW + b'\r\n',
    }

    def handle(self):
        with contextlib.suppress(OSError):
            path = self.rfile.readline().split(b' ')[1].decode()
            while self.rfile.readline().strip():
                pass
            self.wfile.write(self.answers[path.split('/')[1]] + b'Connection: close\r\n\r\n' + RAW)


@pytest.fixture(scope='module')
def hostile():
    with serving(socketserver.ThreadingTCPServer(('127.0.0.1', 0), Hostile)) as s:
        yield f'http://127.0.0.1:{s.server_address[1]}'


@pytest.mark.parametrize('kind', sorted(Hostile.answers))
def test_server(hostile, work, place, kind):
    options = ['--allow-private', '--allow-http', '--timeout=2', f'--cache-dir={work}/cache']
    status, _, err = call('info', *options, f'{hostile}/{kind}/x')
    assert status == 1 and err
    c = LinkedCarton().link('model/' + UNSEEN, fault_bytes(SIZE), f'{hostile}/{kind}/{UNSEEN}', f'{hostile}/{kind}/x')
    c.write(place + b'/linked')
    for words in ['fetch'], ['verify'], ['verify', '--json'], ['cat'], ['embed'], ['extract']:
        more = {'cat': ['model/' + UNSEEN], 'embed': [place + b'/embedded'], 'extract': [place + b'/x']}
        status, _, err = call(*words, *options, place + b'/linked', *more.get(words[0], []))
        assert status == 1


@pytest.mark.parametrize('text', [CONTROL, RAW])
def test_links(work, text):
    """A URL that cannot be used is named."""
    for url in ('https://h/', 'x', 'https://', 'https://h\x1b', 'ftp://'):
        c = LinkedCarton().link('model/a', b'x' * SIZE, 'https://h/')
        quoted = url.encode().replace(b'\x1b', b'\\u001b') + (json.dumps(text)[1:-1].replace('\x7f', '\\u007f').replace(
            '\\udb40\\udc41', '').encode() if isinstance(text, str) else text)
        c.links_text = c.links_toml().encode().replace(b'"https://h/"', b'"' + quoted + b'"')
        c.write(work / 'm.carton')
        for words in ['info'], ['ls'], ['verify'], ['verify', '--json'], ['fetch']:
            call(*words, '--offline' if words[0] != 'fetch' else '--timeout=1', work / 'm.carton')
