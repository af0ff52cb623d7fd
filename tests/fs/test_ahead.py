# SPDX-License-Identifier: Apache-2.0
"""Files that are verified before anyone opens them: the next ones in order, or all."""
import random
import subprocess

import pytest

from harness import eventually, expected, scan
from zipwriter import Carton

METHODS = ['stored', 'deflate', 'zstd']


def carton(method, size=2 << 20, count=6):
    c = Carton(method=method)
    for i in range(count):
        # other bytes by each method: what the cache has of them is not verified ahead
        c.add(f'model/{i}', random.Random(f'{method} {size} {i}').randbytes(size), level=1)
    return c


def verified(m, names):
    return lambda: all(m.state(n) == 'verified' for n in names)


@pytest.mark.parametrize('size', [1000, 2 << 20])
@pytest.mark.parametrize('method', METHODS)
def test_next_in_order(mount, work, method, size):
    c = carton(method, size)
    with mount(c.write(work / 'm.carton')) as m:
        for i in range(5):
            assert m.read(f'model/{i}') == c.files()[f'model/{i}']
            if i >= 1:
                eventually(f'model/{i + 1} is verified', verified(m, [f'model/{i + 1}']))
        assert m.read('model/5') == c.files()['model/5']


def test_not_in_order(mount, work):
    """Files that are opened in another order are all that is verified."""
    c = carton('zstd', 1000)
    with mount(c.write(work / 'm.carton')) as m:
        for i in (5, 3, 1):
            assert m.read(f'model/{i}') == c.files()[f'model/{i}']
        assert [m.state(f'model/{i}') for i in (0, 2, 4)] == ['unverified'] * 3


@pytest.mark.parametrize('method', METHODS)
def test_background(mount, work, method):
    c = carton(method).add('model/sub/small', b'small').add('model/sub/z', b'z' * 300000)
    with mount(c.write(work / 'm.carton'), '-o', 'verify=background,seals=off') as m:
        eventually('all are verified', verified(m, c.hashes()))
        assert scan(m.path) == expected(c.files())


def test_background_behind_symlinks(mount, work):
    """Many nodes between two files do not end it."""
    c = Carton().add('model/a', b'a')
    for i in range(100):
        c.symlink(f'model/b{i}', 'a')
    c.add('model/z', b'z')
    with mount(c.write(work / 'm.carton'), '-o', 'verify=background,seals=off') as m:
        eventually('the last is verified', verified(m, ['model/a', 'model/z']))


def test_background_finds_a_bad_file(mount_fg, work):
    """It is logged once, the others are verified, and it cannot be opened."""
    c = carton('zstd').change('model/2', sha='0' * 64)
    with mount_fg(c.write(work / 'm.carton'), '-o', 'verify=background,seals=off') as m:
        eventually('it is found', lambda: m.state('model/2') == 'corrupt')
        assert m.error('model/2') == 'EIO'
        eventually('the others are verified', verified(m, [f'model/{i}' for i in (0, 1, 3, 4, 5)]))
        assert m.log().count('sha256 mismatch') == 1


@pytest.mark.parametrize('year', [None, pytest.param(2100, marks=pytest.mark.needs_plain_build)])
def test_gives_way(mount, work, at_clock, year):
    """Readers in any order get their bytes while all is verified, and then all is, also if the clock is set meanwhile."""
    c = carton('stored', 8 << 20, 12)
    with mount(c.write(work / 'm.carton'), '-o', 'verify=background,seals=off', env=at_clock(year) if year else {}) as m:
        names = [n for n in c.hashes() if n.startswith('model/')]
        random.Random(7).shuffle(names)
        for name in names[:6]:
            assert m.read(name) == c.files()[name]
        eventually('all are verified', verified(m, c.hashes()))


def test_unmounted_meanwhile(mount, work):
    """The daemon ends with what is under way given up."""
    c = carton('stored', 32 << 20, 8)
    source = c.write(work / 'm.carton')
    for options in (('-o', 'verify=background'), ()):
        with mount(source, *options) as m:
            subprocess.run(['head', '-c', '1', m / 'model/0', m / 'model/1'], check=True,
                           stdout=subprocess.DEVNULL)
