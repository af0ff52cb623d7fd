# SPDX-License-Identifier: Apache-2.0
"""
What tests/bench says is measured as it says: contents that differ, a cache that nobody else has, a condition
beside each time. All of it runs here, at the smallest size; the figures themselves are not looked at.
"""
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
import types
import zipfile

import pytest

from harness import BUILD, ROOT, run
from zipwriter import sample

BENCH = ROOT / 'tests/bench'
sys.path.append(str(BENCH))

import copies  # noqa: E402
import data  # noqa: E402
import memory  # noqa: E402
import table  # noqa: E402


def script(name):
    """A program without .py, as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(BENCH / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


SECTIONS = list(script('run').SECTIONS)


@pytest.fixture
def measure(work):
    """measure(section, ...): its JSON. The home of whoever calls is empty, and stays so."""
    homes = {name: work / name.lower() for name in ('HOME', 'TMPDIR', 'XDG_CACHE_HOME', 'XDG_CONFIG_HOME')}
    for path in (*homes.values(), work / 'dir'):
        path.mkdir()

    def call(section, *args, under=()):
        p = run(*under, BENCH / 'run', '--tiny', '--alone', '--rounds', '2', '--only', section, '--dir', work / 'dir',
                '--json', work / 'dir/numbers', *args, BUILD, env=homes, timeout=240)
        assert p.returncode == 0, p.stdout + p.stderr
        out = work / 'dir/numbers'
        sections = json.loads(out.read_text())['sections']
        out.unlink()
        for path in (*homes.values(), work / 'dir'):
            assert list(path.iterdir()) == [], f'{section} left something there'
        assert not any(line.split()[4].startswith(str(work)) for line in open('/proc/self/mountinfo'))
        return sections, p.stdout
    return call


# These take up to a minute, however small their files are: make check-long runs them.
LONG = 'loaders', 'net', 'goals'


@pytest.mark.parametrize('word', [pytest.param(w, marks=pytest.mark.slow) if w in LONG else w for w in SECTIONS])
def test_each_section(measure, word):
    """It runs, and nothing that it prints is without a condition."""
    sections, shown = measure(word)
    assert {s['word'] for s in sections} == {word}
    measured = [x for s in sections for kind in ('rows', 'curves', 'goals') for x in s[kind]]
    assert measured or word == 'passthrough' and 'not possible here' in shown
    for x in measured:
        assert re.search('cache|page cache', x['condition']), x
        assert f' {x["condition"]}:\n' in shown
    for row in (r for s in sections for r in s['rows']):
        assert row['reference_condition'] and row['rounds'] == 2, row
    for _, work_done, *parts in (r for r in table.ROWS if r[0] == word):
        ours = [part for part in parts if not part[0].startswith(('fuse-zip', 'squashfuse'))]
        assert not ours or table.line(sections, word, work_done, ours[:1], []), work_done


def test_one_row(measure):
    """--row measures that one: requests and bytes are those of its reader, and of a client that knows all it wants."""
    (section,), _ = measure('net', '--row', 'tensor')
    row, *curl = section['rows']
    assert [(r['requests'], r['bytes'] // (1 << 20)) for r in curl] == [(1, 2), (8, 2), (16, 2)]
    assert row['requests'] >= 1 and 2 << 20 <= row['bytes'] < 12 << 20 and row['reference_seconds'] > 0
    assert row['seconds'] > row['reference_seconds'] and f'{row["requests"]:g} requests' in row['remark']


def test_home(work):
    """Also a program that nobody gave a cache of its own finds none of the caller's, and leaves nothing there."""
    sample().write(work / 'm.carton')
    for name in ('home', 'dir'):
        (work / name).mkdir()
    isolated = 'import sys, subprocess, conditions; conditions.isolate(sys.argv[1]); ' \
               'sys.exit(subprocess.call(sys.argv[2:]))'
    names = ('HOME', 'TMPDIR', 'XDG_CACHE_HOME', 'XDG_CONFIG_HOME')
    p = run(sys.executable, '-c', isolated, work / 'dir', BUILD / 'cartonctl', 'info', work / 'm.carton',
            env=dict.fromkeys(names, str(work / 'home')) | {'PYTHONPATH': str(BENCH), 'PYTHONDONTWRITEBYTECODE': '1'})
    assert p.returncode == 0, p.stderr
    assert list((work / 'home').iterdir()) == []
    assert (work / 'dir/xdg_cache_home/cartonfs').is_dir()


@pytest.mark.needs_root
@pytest.mark.parametrize('word', ['extract', 'zstd'])
def test_nothing_is_written_elsewhere(measure, work, word):
    """All but its directory is read-only."""
    enter = ('mount --make-rprivate / && mount --bind "$0" "$0" && mount -o remount,bind,ro / && '
             '! touch / 2>/dev/null && exec "$@"')
    sections, _ = measure(word, under=('unshare', '--mount', 'sh', '-c', enter, work))
    assert [s for s in sections if not s['rows']] == []


def contents(path):
    with zipfile.ZipFile(path) as z:
        return [hashlib.sha256(z.read(e)).digest() for e in z.infolist()]


def test_files_differ(work):
    """What counts as sixteen files is sixteen contents, after they were decoded by somebody else."""
    several, small, tiny = work / 'several', work / 'small', work / 'tiny'
    plain = data.write_several(str(several), str(work / 'plain'), 1, [data.STORED, data.DEFLATE] * 8)
    data.write_small(str(small), 3000)
    memory.write_tiny(str(tiny), 3000)
    for path, count in ((several, 16), (small, 3000), (tiny, 3000)):
        found = contents(path)
        assert len(found) == len(set(found)) == count + 2       # and carton.toml, MANIFEST
    blocks = [open(p, 'rb').read()[i:i + 65536] for p in plain for i in range(0, 1 << 20, 65536)]
    assert len(blocks) == 16 * 16 == len(set(blocks))


def test_blocks_of_one_file_differ(work):
    """No chunk of it has the hash of another, nor of one of another size."""
    seen = []
    for mib in (4, 8):
        data.write_plain(work / 'plain', mib << 20, mib)
        with open(work / 'plain', 'rb') as f:
            seen += iter(lambda: f.read(4096), b'')
    assert len(seen) == 12 * 256 == len(set(seen))


def test_files_to_pack_differ(work):
    data.write_plain(work / 'plain', 1 << 20, 0)
    b = types.SimpleNamespace(plain=lambda mib: (work / 'plain', None), pick=lambda full, quick, tiny: full)
    paths = copies.write_tree(b, str(work / 'tree'), 1)
    assert len(paths) == len({hashlib.sha256(open(p, 'rb').read()).digest() for p in paths}) == 1003


def test_same_content_is_refused(work):
    w = data.Writer(work / 'c')
    w.bytes('model/a', b'same')
    with pytest.raises(ValueError, match='model/b has the content of another file'):
        w.bytes('model/b', b'same')
    w.f.close()


class Told:
    """A Bench for a Section."""

    def __init__(self, work, rounds):
        import conditions
        self.rounds, self.conditions = rounds, conditions.Conditions(str(work))

    def say(self, text):
        pass


def test_conditions(work, monkeypatch):
    """A time needs one; one that changes from round to round is no median of anything; a default cache is noticed."""
    monkeypatch.setenv('XDG_CACHE_HOME', str(work / 'xdg'))
    from timing import Section
    b = Told(work, 2)
    with pytest.raises(RuntimeError, match='under which condition'):
        Section(b, 's').run(lambda note: note('x', 1))
    cache = b.conditions.new_cache()

    def kept(note):                     # as if each round used what the one before left
        b.conditions.cache(cache)
        os.makedirs(cache, exist_ok=True)
        note('kept', 1)

    def anew(note):
        b.conditions.cache(str(work / 'none'))
        note('anew', 2)

    s = Section(b, 's').run(kept, anew).row('kept', 'anew').row('anew', 'anew')
    assert s.skipped == ['kept: "first mount, cache empty" in one round, '
                         '"later mount, cache filled by the first" in another']
    assert [(r['what'], r['condition']) for r in s.rows] == [('anew', 'first mount, cache empty')]
    os.makedirs(work / 'xdg/cartonfs')
    with pytest.raises(RuntimeError, match='default cache'):
        Section(b, 's').run(anew)


def test_pages(work):
    """What is said of the page cache is so."""
    import conditions
    path = work / 'file'
    path.write_bytes(os.urandom(4 << 20))
    c = conditions.Conditions(str(work))
    for cached, text in ((True, 'file in the page cache'), (False, 'file not in the page cache')):
        c.pages(path, cached=cached, name='file')
        assert c.text() == text
        assert conditions.resident(path) == (4 << 20 if cached else 0)
