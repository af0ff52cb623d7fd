# SPDX-License-Identifier: Apache-2.0
"""The carton file changes while it is mounted: the old bytes or an error, never other bytes."""
import errno
import json
import os
import random

import pytest

from harness import expected, read_file, scan
from origin import Cache
from zipwriter import Carton, sample

BLOCK = 32 << 10
LARGE = 4 << 20
METHODS = ['stored', 'deflate', 'zstd']


@pytest.fixture(params=['seals=off', 'sealed now', 'sealed before'])
def mount(request, mount, work):
    """All of this without seals, with new ones, and with those of an earlier mount."""
    cache = Cache(work / 'cache')

    def make(source):
        if request.param == 'seals=off':
            return mount(source, *cache.options, '-o', 'seals=off')
        if request.param == 'sealed before':
            with mount(source, *cache.options) as m:
                scan(m.path)
        return mount(source, *cache.options)
    make.decoded = request.param == 'sealed before'     # the cache has the large files that are compressed
    return make


def large(method):
    c = Carton(method=method)
    for i in range(3):
        c.add(f'model/{i}', random.Random(i).randbytes(LARGE), level=1)
    return c.add('misc/small', b'small')


def reread(fd, n, off):
    """pread past the page cache; the bytes, or an errno name."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        return os.pread(fd, n, off)
    except OSError as e:
        return errno.errorcode[e.errno]


def is_gone(mount, m, method, path, want):
    """An error; or the bytes that an earlier mount has verified, from its copy."""
    if mount.decoded and method != 'stored' and len(want[path]) == LARGE:
        assert m.read(path) == want[path]
    else:
        assert m.error(path) == 'EIO'


def test_replaced_by_rename(mount, work):
    old, new = sample(), sample().change('model/main.py', data=b'something else')
    source = old.write(work / 'm.carton')
    with mount(source) as m:
        assert m.read('model/main.py') == old.files()['model/main.py']
        os.rename(new.write(work / 'new.carton'), source)
        assert scan(m.path) == expected(old.files(), old.links())
        os.unlink(source)
        assert scan(m.path) == expected(old.files(), old.links())


@pytest.mark.parametrize('method', METHODS)
def test_overwritten_in_place(mount, work, method):
    c = large(method)
    source = c.write(work / 'm.carton')
    want = c.files()
    with mount(source) as m:
        fd = os.open(m / 'model/0', os.O_RDONLY)
        assert os.pread(fd, LARGE, 0) == want['model/0']
        with open(source, 'r+b') as f:
            for path in ('model/0', 'model/1'):
                f.seek(c.placed[path].data + 5 * BLOCK + 100)
                f.write(b'OVERWRITTEN')
        # model/0 was verified: a block that changed is EIO, every other one reads on.
        failed = []
        for off in range(0, LARGE, BLOCK):
            got = reread(fd, BLOCK, off)
            if got == 'EIO':
                failed.append(off // BLOCK)
            else:
                assert got == want['model/0'][off:off + BLOCK], off
        assert failed in ([5], [5, 6]) if method == 'stored' else failed == []
        os.close(fd)
        # model/1 was not read in this mount. model/2 did not change.
        is_gone(mount, m, method, 'model/1', want)
        assert m.read('model/2') == want['model/2']
        got = m.error('model/0')
        assert got in ('', 'EIO') and (got or m.read('model/0') == want['model/0'])


def test_state_while_it_is_open(mount, work):
    """As soon as a read has failed: who looks then may come before the kernel has told of the close."""
    c = large('stored')
    source = c.write(work / 'm.carton')
    with mount(source) as m, open(m / 'model/0', 'rb') as f:
        assert m.state('model/0') in ('verified', 'sealed')
        with open(source, 'r+b') as g:
            g.seek(c.placed['model/0'].data + 5 * BLOCK + 100)
            g.write(b'OVERWRITTEN')
        assert reread(f.fileno(), BLOCK, 5 * BLOCK) == 'EIO'
        assert m.state('model/0') == 'corrupt'
        status = json.loads(read_file(m / '.cartonfs/status.json'))
        assert (status['corrupt_files'], status['corrupt_bytes']) == (1, LARGE)


@pytest.mark.parametrize('method', METHODS)
def test_truncated_in_place(mount, work, method):
    c = large(method)
    source = c.write(work / 'm.carton')
    want = c.files()
    with mount(source) as m:
        fds = {p: os.open(m / p, os.O_RDONLY) for p in ('model/0', 'model/2')}
        os.truncate(source, c.placed['model/1'].data + 1000)
        for path, fd in fds.items():
            for off in range(0, LARGE, 7 * BLOCK):
                got = reread(fd, BLOCK, off)
                assert got == 'EIO' or got == want[path][off:off + BLOCK]
                if path == 'model/0' or method != 'stored':
                    assert got != 'EIO', (path, off)
                else:
                    assert got == 'EIO', (path, off)
            os.close(fd)
        is_gone(mount, m, method, 'model/1', want)
        os.truncate(source, 0)
        for path in want:
            error = m.error(path)
            assert error in ('', 'EIO') and (error or m.read(path) == want[path])
        assert sorted(os.listdir(m / 'model')) == ['0', '1', '2']


@pytest.mark.parametrize('method', METHODS)
def test_other_carton_copied_over_it(mount, work, method):
    """cp new.carton m.carton: same names, other contents, every read is the old bytes or EIO."""
    old, new = large(method), Carton(method=method)
    for i in range(3):
        new.add(f'model/{i}', random.Random(10 + i).randbytes(LARGE), level=1)
    new.add('misc/small', b'SMALL')
    source = old.write(work / 'm.carton')
    with mount(source) as m:
        fd = os.open(m / 'model/0', os.O_RDONLY)
        data = read_file(new.write(work / 'new.carton'))
        with open(source, 'r+b') as f:
            f.write(data)
            f.truncate()
        for off in range(0, LARGE, 3 * BLOCK):
            got = reread(fd, BLOCK, off)
            assert got == 'EIO' or got == old.files()['model/0'][off:off + BLOCK]
        os.close(fd)
        for path in ('model/1', 'model/2', 'misc/small'):
            is_gone(mount, m, method, path, old.files())
        assert m.read('MANIFEST') == old.manifest_bytes()


def test_file_of_a_directory_source_changes(mount, work):
    c = large('stored')
    root = c.unpack(work / 'unpacked')
    want = c.files()
    with mount(root) as m:
        fd = os.open(m / 'model/0', os.O_RDONLY)
        with open(f'{root}/model/0', 'r+b') as f:
            f.seek(3 * BLOCK)
            f.write(b'OVERWRITTEN')
        for off in range(0, LARGE, BLOCK):
            got = reread(fd, BLOCK, off)
            assert got == 'EIO' if off == 3 * BLOCK else got == want['model/0'][off:off + BLOCK]
        os.close(fd)
        os.unlink(f'{root}/model/1')
        assert m.error('model/1') != ''
        os.unlink(f'{root}/model/2')
        os.symlink('/etc/hostname', f'{root}/model/2')
        assert m.error('model/2') != ''
        os.unlink(f'{root}/misc/small')
        os.mkfifo(f'{root}/misc/small')
        assert m.error('misc/small') != ''


def test_mtime_changes_nothing(mount, work):
    """touch, chmod and a further hard link leave the bytes as they are."""
    c = large('stored')
    source = c.write(work / 'm.carton')
    with mount(source) as m:
        assert m.read('model/0') == c.files()['model/0']
        os.utime(source)
        os.chmod(source, 0o600)
        os.link(source, work / 'again')
        assert m.read('model/1') == c.files()['model/1']


def test_evicted_and_read_again(mount, work):
    """More small decoded files than any memory budget keeps: each reads right a second time."""
    c = Carton(method='zstd')
    for i in range(320):
        c.add(f'model/{i:03}', b'%03d ' % i * (250 << 10), level=1)
    with mount(c.write(work / 'm.carton')) as m:
        hashes = c.hashes()
        for _ in range(2):
            for path in hashes:
                if path.startswith('model/'):
                    fd = os.open(m / path, os.O_RDONLY)
                    want = path[-3:].encode() + b' '
                    assert reread(fd, 4096, 500_000 // 4096 * 4096) == want * 1024
                    os.close(fd)
