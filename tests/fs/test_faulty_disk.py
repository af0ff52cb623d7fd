# SPDX-License-Identifier: Apache-2.0
"""
Disks that fail while a carton or the cache on them is used: EIO, flipped bits, short and slow
reads, files that end too early, writes that fail. Readers get the right bytes or EIO, at once.
"""
import contextlib
import errno
import functools
import os
import random
import signal
import tempfile
from pathlib import Path

import pytest

import harness
from harness import CARTONFS, ctl, mountinfo, run
from origin import MIB, PRIVATE, Cache, LinkedCarton, lines_of
from zipwriter import Carton

CHUNK = 32 << 10
# with these the bytes are right, only later
HARMLESS = {'short 5000', 'slow 10'}
READS = ['eio 1', 'eio 3', 'flip 1', 'flip 4', 'shrink 3000000', 'shrink 1', 'dead', *sorted(HARMLESS)]
TRANSIENT = {'eio 1', 'eio 3', 'dead'}      # of which the disk says itself that it could not read
SECONDS = 30                                # what any of this may take


@functools.lru_cache
def carton(method):
    """{path: data}, the zip file, the Carton: two files that go to the cache, one that does not."""
    c = Carton(method=method)
    for name, size in dict(a=4 * MIB + 5, b=4 * MIB + 4, small=MIB // 2).items():
        c.add(f'model/{name}', random.Random(name).randbytes(size), level=1)
    with tempfile.TemporaryDirectory() as where:
        return c.files(), Path(c.write(os.path.join(where, 'm'))).read_bytes(), c


def write(where, method, form='zip'):
    """The path of the carton in a directory, as a zip file or unpacked, and what is in it."""
    files, data, c = carton(method)
    path = where / 'carton'
    if form == 'zip':
        path.write_bytes(data)
    else:
        c.unpack(path)
    return path, files


def part_by_part(fd, size):
    """{offset: bytes or errno name} of what the disk gives, not the page cache."""
    out = {}
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    for off in range(0, size, CHUNK):
        try:
            out[off] = os.pread(fd, CHUNK, off)
        except OSError as e:
            out[off] = errno.errorcode[e.errno]
    return out


def right(got, want, off):
    """EIO, or bytes of the file; fewer than asked for where the rest could not be read."""
    return got == 'EIO' or len(got) > 0 and got == want[off:off + len(got)]


def attempts(m, want):
    """{path: '' or errno name} of opening and reading each; no wrong byte comes."""
    out = {}
    for path, data in want.items():
        try:
            assert m.read(path) == data, path
            out[path] = ''
        except OSError as e:
            out[path] = errno.errorcode[e.errno]
    return out


@contextlib.contextmanager
def within(seconds=SECONDS):
    """Kills us by SIGALRM if something waits for ever: there is no other way out of a read."""
    signal.alarm(int(seconds * harness.SLOW))
    try:
        yield
    finally:
        signal.alarm(0)


# ---- the carton ----

@pytest.mark.parametrize('kind', READS)
@pytest.mark.parametrize('form, method', [('zip', 'stored'), ('zip', 'deflate'), ('zip', 'zstd'),
                                          ('unpacked', 'stored')])
def test_carton(disk, mount_fg, work, form, method, kind):
    path, want = write(disk.files, method, form)
    source = disk.path / path.name
    cache = Cache(work / 'cache')
    with within(), mount_fg(source, *cache.options) as m:
        with open(m / 'model/a', 'rb', buffering=0) as f:
            disk.set(kind)
            parts = part_by_part(f.fileno(), len(want['model/a']))
            for off, got in parts.items():
                assert right(got, want['model/a'], off), off
            if kind in HARMLESS or method != 'stored':
                assert b''.join(parts.values()) == want['model/a']
            elif kind in ('eio 1', 'flip 1', 'shrink 1', 'dead'):
                assert set(parts.values()) == {'EIO'}
            results = attempts(m, want)
            assert set(results.values()) <= {'', 'EIO'}, results
            if kind in HARMLESS:
                assert set(results.values()) == {''}
            disk.set('none')
            # the descriptor reads on as soon as the disk does
            parts = part_by_part(f.fileno(), len(want['model/a']))
            assert 'EIO' not in parts.values() and b''.join(parts.values()) == want['model/a']
        again = attempts(m, want)
        if kind in HARMLESS | TRANSIENT:
            assert set(again.values()) == {''}, (results, again)
        else:
            assert set(again.values()) <= {'', 'EIO'}
        if 'EIO' in results.values():
            assert lines_of(m.log(), 'model/'), 'it is in the log'
    assert cache.wrong() == []


@pytest.mark.parametrize('kind', READS)
def test_mount(disk, mount, point, work, kind):
    """From the first byte on: a mount with the right bytes, or a line that says no."""
    path, want = write(disk.files, 'zstd')
    source, where = disk.path / path.name, point()
    disk.set(kind)
    with within():
        p = run(CARTONFS, '-o', f'cache_dir={work}/cache', source, where, timeout=SECONDS)
        if p.returncode:
            assert kind not in HARMLESS and p.returncode == 32 and mountinfo(where) is None
            assert 'not mounted' in p.stderr.splitlines()[-1], p.stderr
            disk.set('none')
            with mount(source, '-o', f'cache_dir={work}/cache') as m:
                assert set(attempts(m, want).values()) == {''}
            return
        m = harness.Mount(where, None, harness.daemons(where))
        try:
            results = attempts(m, want)
            assert set(results.values()) <= {'', 'EIO'}
            assert kind not in HARMLESS or set(results.values()) == {''}
            assert harness.unmount(where).returncode == 0
            m.wait_end()
        finally:
            harness.abandon(where, m.pids)


# ---- the cache ----

def refused(source, point, *options):
    """What cartonfs says of a mount that does not come to be."""
    where = point()
    p = run(CARTONFS, *options, source, where, timeout=SECONDS)
    assert p.returncode == 32 and mountinfo(where) is None, p.stderr
    assert 'not mounted' in p.stderr.splitlines()[-1], p.stderr
    return p.stderr


WRITES = ['write 1', 'write 5', 'full 1', 'full 3']


@pytest.mark.parametrize('when', ['before', 'while'])
@pytest.mark.parametrize('kind', READS + WRITES)
def test_cache(disk, mount_fg, nginx, point, work, kind, when):
    """What is in the carton can be read, whatever the disk of the cache does."""
    cache = Cache(disk.path / 'cache')
    linked = random.Random(kind).randbytes(4 * MIB + 3)
    want = dict(carton('deflate')[0], **{'model/linked': linked})
    c = LinkedCarton(method='deflate').link('model/linked', linked, nginx.put('linked', linked))
    for path, data in carton('deflate')[0].items():
        if path.startswith('model/'):
            c.add(path, data, level=1)
    source = c.write(work / 'm.carton')
    want['MANIFEST'] = c.manifest_bytes()
    assert ctl('hash', cache.flag, source).returncode == 0
    if when == 'before':
        disk.set(kind)
        if kind == 'dead':
            assert 'cannot open the cache directory: Input/output error' in refused(source, point, *cache.options)
            return
    with within(), mount_fg(source, *PRIVATE, *cache.options) as m:
        if when == 'while':
            with open(m / 'model/a', 'rb', buffering=0) as f:
                disk.set(kind)
                for off, got in part_by_part(f.fileno(), len(want['model/a'])).items():
                    assert right(got, want['model/a'], off), off
        results = attempts(m, want)
        assert set(results.values()) <= {'', 'EIO'}, results
        # an entry of the cache is read from its disk; all else must not need it
        assert results['model/small'] == ''
        if kind in HARMLESS or kind in WRITES:
            assert set(results.values()) == {''}, m.log()
        disk.set('none')
        assert set(attempts(m, want).values()) == {''}, m.log()
    # what a flipping disk was given is right; what it read back wrong was not believed
    assert Cache(disk.files / 'cache').wrong() == []
