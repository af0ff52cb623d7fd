# SPDX-License-Identifier: Apache-2.0
"""cartonctl extract writes large files once, while they are decoded and hashed; under their names if they are right."""
import os
import random

import pytest

import chunkindex
from harness import ctl, expected, scan
from zipwriter import Carton

BLOCK = random.Random(5).randbytes(1 << 20)
LARGE = b''.join(BLOCK[i * 1000:] + BLOCK[:i * 1000] for i in range(9)) + b'end'


def carton(method, **fields):
    return Carton(method=method).add('model/a', LARGE, **fields).add('model/b', LARGE[::-1], level=1)


def used(path):
    return sum(os.lstat(os.path.join(d, f)).st_blocks * 512 for d, _, files in os.walk(path) for f in files)


@pytest.mark.parametrize('index', [False, True])
@pytest.mark.parametrize('method', ['stored', 'deflate', 'zstd'])
def test_nothing_goes_through_the_cache(work, cache, method, index):
    c = carton(method).add('model/twin', LARGE)     # one object: read from where it was written
    if index:
        c.add(chunkindex.PATH, chunkindex.index(LARGE, LARGE[::-1]))
    p = ctl('extract', cache.flag, c.write(work / 'm.carton'), work / 'out')
    assert p.returncode == 0 and p.stderr == '', p.stderr
    assert scan(work / 'out') == expected(c.files(), c.links())
    assert cache.objects() == {} and used(cache.path) < len(LARGE) // 4
    # a seal says that bytes are here: those of a Stored entry stay in the carton
    assert len(cache.seals()) == (2 if method == 'stored' else 0)


@pytest.mark.parametrize('index', [False, True])
@pytest.mark.parametrize('method', ['stored', 'deflate', 'zstd'])
def test_wrong_bytes_get_no_name(work, cache, method, index):
    """Also where all chunks are as the index says; what was written of it is gone."""
    c = carton(method, sha='1' * 64)
    if index:
        c.add(chunkindex.PATH, chunkindex.index_of([(bytes.fromhex('1' * 64), len(LARGE), chunkindex.CHUNK,
                                                     chunkindex.states(LARGE))]))
    p = ctl('extract', cache.flag, c.write(work / 'm.carton'), work / 'out')
    assert p.returncode == 1 and p.stderr.count('model/a: sha256 mismatch') == 1, p.stderr
    left = [os.path.join(d, f)[len(str(work / 'out')) + 1:] for d, _, files in os.walk(work / 'out') for f in files]
    assert sorted(set(left) - {chunkindex.PATH}) == ['carton.toml', 'model/b']
    assert cache.objects() == {}


@pytest.mark.parametrize('how', ['flip', 'cut'])
def test_a_damaged_copy_of_the_cache(work, cache, mount, how):
    """Its bytes were written before they were found to be wrong; those of the carton replace them."""
    c = carton('zstd')
    path = c.write(work / 'm.carton')
    with mount(path, *cache.options) as m:
        m.read('model/a')
    (entry,) = cache.objects().values()
    os.chmod(entry, 0o600)
    with open(entry, 'r+b') as f:
        if how == 'cut':
            f.truncate(len(LARGE) - 5)
        else:
            f.seek(6 << 20)
            f.write(b'wrong')
    p = ctl('extract', cache.flag, '--seals=off', path, work / 'out')
    assert p.returncode == 0, p.stderr
    assert scan(work / 'out') == expected(c.files(), c.links())
