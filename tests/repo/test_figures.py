# SPDX-License-Identifier: Apache-2.0
"""
The figures of README.md are those of .github/bench.json, which `make bench-readme` measured. Without that file there
are none.
"""
import importlib.machinery
import importlib.util
import json
import re
import sys

from harness import BUILD, ROOT, run

sys.path.append(str(ROOT / 'tests/bench'))

import table  # noqa: E402

README = (ROOT / 'README.md').read_text()
FILE, PICTURE = ROOT / '.github/bench.json', ROOT / '.github/bench.svg'
NUMBERS = FILE.exists() and json.loads(FILE.read_text())
WORDS = {word for word, *_ in table.ROWS}


def chart():
    """The program, as a module."""
    loader = importlib.machinery.SourceFileLoader('chart', str(ROOT / 'tests/bench/chart'))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('chart', loader))
    loader.exec_module(module)
    return module


def test_figures_are_of_the_measured():
    """At full size; each line has its condition and the section that measures it."""
    assert table.put(README, table.figures(NUMBERS) if NUMBERS else '') == README
    assert PICTURE.exists() == bool(NUMBERS) == (table.HEAD[0] in README)
    if NUMBERS:
        for line in table.table(NUMBERS)[0][2:]:
            _, condition, _, word = line.strip('| ').split(' | ')
            assert 'page cache' in condition and word.strip('`') in WORDS
        assert not NUMBERS['quick'] and NUMBERS['rounds'] >= 3
        words = chart().in_words({'sections': [s for s in NUMBERS['sections'] if s['word'] == 'sizes']})
        assert words.count('MiB') > 10 and words in PICTURE.read_text()


def test_figures_of_anything():
    """What is put into README.md from numbers that look like those of the bench; a second time changes nothing."""
    row = dict(what='first open and read', against='sha256 in one thread', ratio=1.5, seconds=1, count=1,
               condition='first mount, cache empty; carton in the page cache', reference_condition='x')
    machine = dict(loads=[1.5], cpus=2, date='2026-01-01', system='Debian', kernel='6.12.1-amd64', processor='CPU',
                   sha_instructions=False)
    numbers = dict(machine=machine, rounds=5, sections=[dict(word='stored', title='of 1024 MiB', rows=[row])])
    text = table.put(README, table.figures(numbers))
    assert ('Measured on 2026-01-01 with `make bench-readme` on Debian, Linux 6.12.1, on 2 CPUs (CPU, without SHA '
            'instructions); medians of 5 rounds.\n') in text
    assert ('| first read of a stored file of 1024 MiB | first mount, cache empty; carton in the page cache | '
            '1.50 times the time of its sha256 in one thread | `stored` |\n') in text
    assert table.put(text, table.figures(numbers)) == text
    machine['loads'] += [17.3]
    assert 'other programs ran on the machine, load 17;' in table.figures(numbers)


def test_one_command_makes_a_line():
    """That of README.md; test_bench.py runs the same, at the smallest size."""
    word = re.search(r'^make bench ONLY=(\w+) ', README, re.M)[1]
    assert word in WORDS
    out = run('make', '-n', 'bench', f'ONLY={word}', f'BUILD={BUILD}', cwd=ROOT).stdout
    assert f'tests/bench/run --only {word} ' in out and 'tests/bench/table.py ' in out
