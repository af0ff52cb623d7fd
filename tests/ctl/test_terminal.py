# SPDX-License-Identifier: Apache-2.0
"""What cartonctl prints at a terminal: its width, its colours, no text that the terminal obeys."""
import hashlib
import json
import os
import re
import subprocess

import pytest

from harness import CARTONCTL, ctl, environment, eventually
from terminal import plain, terminal, width
from zipwriter import Carton, sample

WIDE = 'モデル' * 20


@pytest.fixture
def wide_carton(work):
    c = sample().add('model/' + 'long/' * 40 + 'name.bin', b'x' * 5000)
    c.add(f'model/{WIDE}.bin', b'y' * 3000).add('model/e\u0301' + 'a\u0308' * 70, b'z')
    c.add('model/\u202ecod.exe', b'reversed')
    return c.write(work / 'm.carton')


@pytest.mark.parametrize('command', ['ls', 'tree'])
@pytest.mark.parametrize('columns', [80, 100, 120, 200])
def test_no_row_wraps(wide_carton, command, columns):
    lines = terminal(columns, command, wide_carton).splitlines()
    assert len(lines) > 10
    for line in lines:
        assert width(line) <= columns, line


@pytest.mark.parametrize('command', ['ls', 'tree'])
def test_colour_only_where_it_is_wanted(wide_carton, command):
    assert '\x1b[' in terminal(100, command, wide_carton)
    for env in ({'NO_COLOR': '1'}, {'TERM': 'dumb'}):
        assert '\x1b' not in terminal(100, command, wide_carton, **env)
    # an empty one does not count: no-color.org
    assert '\x1b[' in terminal(100, command, wide_carton, NO_COLOR='')
    p = subprocess.run([CARTONCTL, command, wide_carton], capture_output=True, text=True, env=environment())
    assert '\x1b' not in p.stdout


@pytest.mark.parametrize('command', ['ls', 'tree'])
def test_columns_are_aligned(wide_carton, command):
    """Names of wide and of combining characters move nothing."""
    ends = {width(ln[:re.search(r' [KM]?i?B ', ln).end()]) for ln in
            map(plain, terminal(100, command, wide_carton).splitlines()) if re.search(r' [KM]?i?B ', ln)}
    assert len(ends) == 1


def test_no_direction_is_changed(wide_carton):
    for command in ('ls', 'tree'):
        out = terminal(100, command, wide_carton)
        assert '\u202e' not in out and '\\xe2\\x80\\xaecod.exe' in out


def test_ascii_locale(work):
    path = Carton().add('model/m', b'x' * 5000).add('model/' + 'n' * 100, b'x').write(work / 'm.carton')
    for command in ('ls', 'tree'):
        out = terminal(80, command, path, LC_ALL='C')
        assert out.isascii(), out


def test_verify_fits(work):
    c = sample()
    out = plain(terminal(80, 'verify', c.write(work / 'm.carton'))).splitlines()
    assert out[0].startswith('ok: ') and out[1:] == [f'model {c.model_hash()}']


def test_what_verify_finds_fits(work):
    """At 80 columns no hash is broken, and what is wrong stands out."""
    bad = sample().change('model/weights.bin', sha='1' * 64).write(work / 'm.carton')
    shown = terminal(80, 'verify', bad)
    lines = plain(shown).splitlines()
    assert max(map(width, lines)) <= 80 and any('1' * 64 in x for x in lines), shown
    assert '\x1b[1;31mmodel/weights.bin\x1b[0m:' in shown and '\x1b[1;31m1 problem' in shown


def test_cache_list_is_a_table(work):
    """At a terminal; elsewhere a line for each, with all of its sha256, for programs."""
    objects = work / 'cache/v1/objects'
    for i in range(3):
        name = hashlib.sha256(bytes([i]) * (2 << 20)).hexdigest()
        (objects / name[:2]).mkdir(parents=True, exist_ok=True)
        (objects / name[:2] / name).write_bytes(bytes([i]) * (2 << 20))
        os.utime(objects / name[:2] / name, (10 ** 9 + i, 10 ** 9 + i))
    for d in (work / 'cache', *(work / 'cache').rglob('*')):
        d.chmod(0o700 if d.is_dir() else 0o400)
    names = work / 'cache/v1/names'
    shown = [f'https://host/\x1b[31m/{"a" * 30}.carton', 'hf://me/mine', f'/home/{"b" * 30}.carton']
    texts = [f'{x.name}\tmodel/{"long" * 30}-{{1}}.bin\t{source}' for x, source in zip(sorted(
        objects.rglob('?' * 64), key=lambda x: x.stat().st_mtime), shown)]
    names.write_text('\n'.join(texts) + '\n')
    names.chmod(0o600)
    flag = f'--cache-dir={work}/cache'
    for columns in 80, 40:
        head, *rows, total = plain(terminal(columns, 'cache', 'list', flag)).splitlines()
        assert head.split() == ['SHA256', 'SIZE', *(['USED', 'KIND'] if columns == 80 else []), 'NAME']
        assert total.split() == ['total', '6.0', 'MiB', '3', 'files']
        assert max(map(len, [head, *rows, total])) <= columns and len(rows) == 3
        assert rows[0].startswith(name[:12 if columns == 80 else 8] + '  ')
        # both can be told from those of the other rows: what is the carton, and which is the file
        for row, start, end in zip(rows, ('bb', 'mine: ', 'aa'), ('rton: ', 'mine: ', 'rton: ')):
            assert start in row and end in row and row.endswith('}.bin'), rows
    used = [x['used'] for x in json.loads(ctl('cache', 'list', '--json', flag).stdout)]
    assert used == [10 ** 9 + 2, 10 ** 9 + 1, 10 ** 9], 'the last used first'


def test_cache_list_says_what_a_seal_is(work, mount):
    path = Carton(method='stored').add('model/m', os.urandom(20 << 20)).write(work / 'm.carton')
    with mount(path, '-o', f'cache_dir={work}/c') as m:
        m.read('model/m')
        eventually('it is sealed', lambda: 'seal' in ctl('cache', 'list', f'--cache-dir={work}/c').stdout)
    lines = plain(terminal(80, 'cache', 'list', f'--cache-dir={work}/c')).splitlines()
    assert any(x.split()[5:] == ['seal', 'm.carton:', 'model/m'] for x in lines), lines
    assert max(map(len, lines)) <= 80 and re.match(r'A seal has the check values of a file', ' '.join(lines[-2:])), lines
