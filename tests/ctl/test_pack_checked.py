# SPDX-License-Identifier: Apache-2.0
"""
What cartonctl pack has written is read once more and compared, before it gets its name: by tags of the bytes that were
hashed.
"""
import functools
import hashlib
import os
import random
import re
import shutil
import zipfile

import pytest

import chunkindex
from harness import ctl
from origin import MIB
from packing import pack, refused, verified
from zipwriter import Carton


@functools.cache
def right():
    return random.Random(3).randbytes(40 * MIB + 4321)      # several parts for several threads


@functools.cache
def wrong():
    return right()[:33 * MIB] + b'other bytes' + right()[33 * MIB + 11:]


@pytest.fixture
def tree(work):
    c = Carton(method='stored').add('model/large', right())
    c.manifest_entry = {'skip': True}
    return c.unpack(work / 'tree')


@pytest.mark.parametrize('how', ['flip', 'forge'])
@pytest.mark.parametrize('words, text', [
    (['--compress=store', '--chunk-index'], 'model/large: has other bytes than those that were written'),
    (['--compress=store'], 'model/large: has other bytes than those that were written'),
    (['--compress=zstd', '--chunk-index'], ''),         # the decoder says it, or the tags
])
def test_what_the_disk_has_is_compared(tree, work, disk, how, words, text):
    """Not what was written: some reads of the output have bits that were not there, and may have the right crc."""
    (disk.path / 'sub').mkdir()
    out = disk.path / 'sub/m.carton'
    disk.set(f'{how} 40')
    err = refused(out, 'pack', *words, tree, out)
    assert text in err and 'm.carton was not made' in err, err
    disk.set('none')
    pack('pack', *words, tree, out, note='does nothing' if 'zstd' in words[0] else '')
    verified(out)


@pytest.mark.parametrize('words', [['--compress=store', '--chunk-index'], ['--compress=store'], ['--compress=zstd']])
def test_a_source_that_changes_between_reads(tree, work, disk, words):
    """Each read of it may have other bytes: what is hashed, tagged and written is of one read, so the carton is whole."""
    out = work / 'm.carton'
    shutil.copytree(tree, disk.files / 'tree')
    disk.set('forge 7', 'large')
    pack('pack', *words, disk.path / 'tree', out)
    disk.set('none')
    verified(out)
    assert right() not in out.read_bytes()


@pytest.mark.parametrize('words', [[], ['--compress=store'], ['--chunk-index'], ['--chunk-index', '--compress=store'],
                                   ['--compress=auto']])
def test_an_index_of_the_source_does_not_vouch(work, words):
    """Its chunks have the hashes of the index, and all of the file another one than MANIFEST says."""
    sha, chunks = hashlib.sha256(right()), chunkindex.states(wrong())
    c = Carton(method='stored').add('model/large', wrong())
    c.add(chunkindex.PATH, chunkindex.index_of([(sha.digest(), len(wrong()), chunkindex.CHUNK, chunks)]))
    c.change('model/large', sha=sha.hexdigest())
    c.write(work / 'a.carton')
    assert 'model/large: sha256 mismatch' in refused(work / 'b.carton', 'repack', *words, work / 'a.carton',
                                                     work / 'b.carton')


@pytest.mark.parametrize('compress', ['store', 'auto', 'zstd'])
def test_an_index_that_is_taken_over_is_compared(work, compress):
    """Tags vouch for an index that is made of the same bytes, but not for that of the source."""
    c = Carton(method='deflate').add('model/large', right())
    c.add(chunkindex.PATH, chunkindex.index_of([(hashlib.sha256(right()).digest(), len(right()), chunkindex.CHUNK,
                                                 chunkindex.states(wrong()))]))
    c.write(work / 'a.carton')
    words = 'repack', f'--compress={compress}', work / 'a.carton', work / 'b.carton'
    assert 'chunk 132 of "model/large" has another state' in refused(work / 'b.carton', *words)
    pack(*words, '--chunk-index', note='does nothing' if compress == 'zstd' else '')
    verified(work / 'b.carton')


def test_the_crc_of_parts(tree, work):
    """It is that of the whole, which other programs compare."""
    pack('pack', '--compress=store', '--chunk-index', tree, work / 'm.carton')
    verified(work / 'm.carton')
    data = (work / 'm.carton').read_bytes()
    assert data.count(right()) == 1
    if shutil.which('unzip'):
        assert os.system(f"unzip -tqq '{work}/m.carton' > /dev/null") == 0
    # a wrong one is not taken over
    c = Carton(method='stored').add('model/large', right())
    c.change('model/large', local={'crc': 1}, central={'crc': 1})
    c.write(work / 'c.carton')
    assert 'crc mismatch' in ctl('verify', work / 'c.carton').stdout
    assert 'crc mismatch' in refused(work / 'd.carton', 'repack', work / 'c.carton', work / 'd.carton')
    pack('repack', '--chunk-index', work / 'c.carton', work / 'd.carton')
    verified(work / 'd.carton')


# ---- several files by one thread, which hashes them together ----

@functools.cache
def several():
    """Large ones, which go to their place, and small ones, which are prepared in memory."""
    sizes = [8 * MIB + 1, 9 * MIB, 700_000, 8 * MIB + 64, 70_000, 524_288, 9 * MIB + 5, 3, 524_289, 9 * MIB, 600_000]
    rng = random.Random(43)
    return {f'model/{i:02}': rng.randbytes(n) for i, n in enumerate(sizes)}


TOGETHER = ['--compress=store', '--chunk-index', '--jobs=2']


def together(**how):
    c = Carton(method='stored')
    for path, data in several().items():
        c.add(path, data, **how)
    return c


def hashes_of(files):
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def hashes_in(path):
    """Of what is in a carton; MANIFEST has the same."""
    with zipfile.ZipFile(path) as z:
        lines = dict(line.split('=') for line in z.read('MANIFEST').decode().splitlines())
        found = hashes_of({name: z.read(name) for name in several()})
    assert found == {name: lines[name] for name in found}
    return found


def test_several_files_beside_each_other(work):
    """Each has its own bytes, hash and states, in its place; the number of threads changes nothing."""
    c = together()
    c.manifest_entry = {'skip': True}
    c.unpack(work / 'tree')
    pack('pack', *TOGETHER, work / 'tree', work / 'a.carton')
    verified(work / 'a.carton')
    assert hashes_in(work / 'a.carton') == hashes_of(several())
    right = (work / 'a.carton').read_bytes()
    together().write(work / 'b.carton')
    for i, words in enumerate((['pack', *TOGETHER[:2], '--jobs=1', work / 'tree'],
                               ['repack', '--chunk-index', '--jobs=2', work / 'b.carton'])):
        pack(*words, work / f'{i}.carton')
        assert (work / f'{i}.carton').read_bytes() == right


@pytest.mark.parametrize('part', ['00', '01', '02', '03', '05'])
def test_one_changes_beside_others(work, disk, part):
    """Each read of it may have other bytes: it is whole as it was read once, and the others are as they were."""
    c = together()
    c.manifest_entry = {'skip': True}
    c.unpack(disk.files / 'tree')
    disk.set('forge 2', part)
    pack('pack', *TOGETHER, disk.path / 'tree', work / 'm.carton')
    disk.set('eio 1', part)
    err = refused(work / 'n.carton', 'pack', *TOGETHER, disk.path / 'tree', work / 'n.carton')
    disk.set('none')
    assert re.findall(r'model/\d\d', err) == [f'model/{part}'], err
    verified(work / 'm.carton')
    right, found = hashes_of(several()), hashes_in(work / 'm.carton')
    assert {name for name in found if found[name] != right[name]} == {f'model/{part}'}


def test_one_is_wrong_beside_others(work):
    for path, data in list(several().items())[:6]:
        c = together()
        c.change(path, sha=hashlib.sha256(data + b'x').hexdigest())
        c.write(work / 'a.carton')
        err = refused(work / 'b.carton', 'repack', '--chunk-index', '--jobs=2', work / 'a.carton', work / 'b.carton')
        assert re.findall(r'model/\d\d', err) == [path] and 'sha256 mismatch' in err, err
