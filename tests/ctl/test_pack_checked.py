# SPDX-License-Identifier: Apache-2.0
"""
What cartonctl pack has written is read once more and compared, before it gets its name: by tags of the bytes that were
hashed.
"""
import functools
import hashlib
import os
import random
import shutil

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
