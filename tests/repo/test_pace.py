# SPDX-License-Identifier: Apache-2.0
"""Pauses and deadlines: programs have those that are documented, and what tests run differs by them alone."""
import re
import struct

import pytest

from harness import BUILD, ROOT, pace_of, run

SHIPPED, TESTED = ROOT / 'core/base/pace.c', ROOT / 'tests/lib/pace.c'
PROGRAMS = ('cartonfs', 'cartonctl')
NUMBERS = {'half a second': .5, 'ten seconds': 10, 'five minutes': 300}

# Where a time is said: the text before it, itself, the text behind it.
SAID = [
    ('timeout', 'fs/mount/cartonfs.1', r'Cm timeout .*\n.*\nThe default is (\d+)\.'),
    ('timeout', 'fs/common/option_table.c', r'without data \((\d+)\)'),
    ('timeout', 'core/carton.h', r'unsigned timeout_s; .*; 0: (\d+) '),
    ('idle', 'fs/mount/cartonfs.7', r'nobody has read for (half a second), or after'),
    ('hash', 'fs/mount/cartonfs.7', r'nobody has read for half a second, or after (ten seconds)'),
    ('soon', 'fs/mount/cartonfs.7', r'mounting is less patient and fails after (\d+) seconds'),
    ('soon', 'fs/ctl/cartonctl.1', r'cannot be reached is given up after (\d+) seconds'),
    ('soon', 'core/carton.h', r'servers that are not reached; false: (\d+) s '),
    ('connect', 'core/http/http.h', r'connect_timeout_ms; .* default ([\d,]+) '),
    ('stall', 'core/http/http.h', r'with -ETIMEDOUT; defaults ([\d,]+) '),
    ('helper', 'core/http/helper.h', r'after (\d+) s;'),
    ('oci_renew', 'fs/mount/cartonfs.7', r'once for each registry, again every (five minutes) while'),
]


@pytest.mark.parametrize('name, path, pattern', SAID, ids=[f'{name}-{path.rpartition("/")[2]}' for name, path, _ in SAID])
def test_documented(name, path, pattern):
    said = re.search(pattern, (ROOT / path).read_text())[1]
    seconds = NUMBERS.get(said) or int(said.replace(',', '')) / (1000 if ',' in said else 1)
    assert seconds == pace_of(SHIPPED)[name]


def test_tables():
    """Of the tests' table no time is longer, and none so short that a busy machine would take it for over."""
    shipped, tested = pace_of(SHIPPED), pace_of(TESTED)
    assert len(shipped) > 20 and list(shipped) == list(tested)
    assert all(0 < tested[name] <= shipped[name] for name in shipped)
    assert tested != shipped


def symbol(path, name):
    """(address, size, kind) of a symbol of a program."""
    [line] = [x for x in run('nm', '-S', path).stdout.splitlines() if x.split()[3:] == [name]]
    address, size, kind, _ = line.split()
    return int(address, 16), int(size, 16), kind


def sections(path):
    """{name: (address, bytes)} of all that is loaded from the file, but for the id that a linker gives it."""
    data, out = path.read_bytes(), {}
    for line in run('readelf', '-SW', path).stdout.splitlines():
        if m := re.match(r' +\[ *\d+\] (\S+) +(\S+) +(\w+) (\w+) (\w+) \w+ +(\w*A\w*) ', line):
            name, kind, address, at, size = m[1], m[2], *(int(x, 16) for x in m.groups()[2:5])
            if kind != 'NOBITS' and name != '.note.gnu.build-id':
                out[name] = address, data[at:at + size]
    assert {'.text', '.rodata', '.data'} <= set(out)
    return out


def table(path):
    """(section, offset, size) of the table in a program; nobody can write to it."""
    address, size, kind = symbol(path, 'pace')
    assert kind == 'r'
    [(name, at)] = [(name, address - at) for name, (at, data) in sections(path).items() if at <= address < at + len(data)]
    return name, at, size


@pytest.mark.needs_plain_build     # sanitizers name the files of constants
@pytest.mark.parametrize('program', PROGRAMS)
@pytest.mark.parametrize('where, source', [('', SHIPPED), ('tests', TESTED)], ids=['shipped', 'tested'])
def test_values(where, source, program):
    """A program has the times of its table, in its order."""
    path = BUILD / where / program
    name, at, size = table(path)
    values = struct.unpack(f'<{size // 8}q', sections(path)[name][1][at:at + size])
    assert values == tuple(int(n) for n in re.findall(r'^\t\.\w+ = (\d+),$', source.read_text(), re.M))


@pytest.mark.needs_plain_build
@pytest.mark.parametrize('program', PROGRAMS)
def test_what_tests_run(program):
    """It is what is installed, byte by byte, but for the table."""
    shipped, tested = BUILD / program, BUILD / 'tests' / program
    name, at, size = where = table(shipped)
    assert table(tested) == where
    a, b = sections(shipped), sections(tested)
    assert a[name][1][at:at + size] != b[name][1][at:at + size]
    for s in a, b:
        start, data = s[name]
        s[name] = start, data[:at] + data[at + size:]
    assert a.keys() == b.keys()
    assert [n for n in a if a[n] != b[n]] == []
