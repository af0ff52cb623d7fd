# SPDX-License-Identifier: Apache-2.0
"""Seals: what was verified once is opened at once later, and checked at every read all the same."""
import errno
import json
import os
import shutil
import signal
import subprocess

import pytest

import harness
from harness import CARTONCTL, ctl, eventually, scan, expected
from origin import MIB, PRIVATE, LinkedCarton, digest, errno_of, fault_bytes, lines_of
from zipwriter import Carton

SIZE = 6 * MIB + 123
DATA = fault_bytes(SIZE)
KINDS = ['stored', 'unpacked', 'zstd', 'link']


@pytest.fixture
def carton(request, work, fault):
    """carton(kind): (source, where the bytes of model/x are: (path, offset), or None: in the cache)."""
    def make(kind, name='m.carton'):
        if kind == 'link':
            c = LinkedCarton().link('model/x', DATA, fault.url('x', size=SIZE))
            return c.write(work / name), None
        c = Carton(method='zstd' if kind == 'zstd' else 'stored').add('model/x', DATA, level=1)
        if kind == 'unpacked':
            root = c.unpack(work / name)
            return root, (os.path.join(root, 'model/x'), 0)
        path = c.write(work / name)
        return path, (path, c.placed['model/x'].data) if kind == 'stored' else None
    return make


def overwrite(path, at, data=b'damaged'):
    mode = os.stat(path).st_mode
    os.chmod(path, 0o600)
    with open(path, 'r+b') as f:
        f.seek(at)
        f.write(data)
    os.chmod(path, mode)


def damage(cache, where, at):
    overwrite(*(where[0], where[1] + at) if where else (cache.objects()[digest(DATA)], at))


def opened(m):
    """Opens it, and says how: verified or sealed."""
    os.close(m.do(os.open, m / 'model/x', os.O_RDONLY))
    return m.state('model/x')


@pytest.fixture
def sealed(carton, mount, cache):
    """sealed(kind): what carton() gives, and the options of a mount that has sealed its file."""
    def make(kind):
        source, where = carton(kind)
        options = [*PRIVATE, *cache.options]
        with mount(source, *options) as m:
            assert opened(m) == 'verified'
        return source, where, options
    return make


@pytest.mark.parametrize('kind', KINDS)
def test_later_mount(carton, mount, cache, kind):
    source, _ = carton(kind)
    options = [*PRIVATE, *cache.options]
    with mount(source, *options) as m:
        assert m.state('model/x') == 'unverified'
        assert opened(m) == 'verified' and m.read('model/x') == DATA
    assert set(cache.seals()) == {digest(DATA)}
    with mount(source, *options) as m:
        assert m.state('model/x') == 'unverified' and opened(m) == 'sealed'
        assert m.read('model/x') == DATA
    with mount(source, *options, '-o', 'seals=off') as m:
        assert opened(m) == 'verified' and m.read('model/x') == DATA
    with mount(source, *options, '-o', 'verify=mount') as m:
        assert m.state('model/x') == 'verified' and m.read('model/x') == DATA
    with mount(source, *options, '-o', 'verify=off,seals=on') as m:
        assert m.read('model/x') == DATA
    cache.check()


def test_off_leaves_none(carton, mount, cache):
    with mount(carton('stored')[0], *cache.options, '-o', 'seals=off') as m:
        assert opened(m) == 'verified'
    assert cache.seals() == {}


def test_each_source_for_itself(carton, mount, cache, work):
    """A seal is of one source, with its pins: no other one believes it, replaces it or drops it."""
    first, _ = carton('stored')
    pin = ('-o', f'manifest_sha256={harness.ctl("hash", first).stdout.strip()}')
    upper = ('-o', pin[1].upper().replace('MANIFEST_SHA256', 'manifest_sha256'))
    os.mkdir(work / 'other')
    copy = shutil.copy(first, work / 'other/n.carton')
    os.symlink(first, work / 'other/link')
    more = Carton(method='stored').add('misc/before', b'1234567').add('model/x', DATA)
    sources = [(first,), (first, *pin), (copy,), (carton('unpacked', 'unpacked')[0],), (more.write(work / 'more.carton'),)]
    for state in ('verified', 'sealed'):
        for source, *options in sources:
            with mount(source, *cache.options, *options) as m:
                assert opened(m) == state and m.read('model/x') == DATA
    assert len(list(cache.path.glob('v1/seals/*'))) == len(sources)
    # the same source by another name, and the same pin in other letters
    for source, *options in ((work / 'other/../m.carton',), (work / 'other/link',), (first, *upper)):
        with mount(source, *cache.options, *options) as m:
            assert opened(m) == 'sealed'
    # what changes in one of them is no matter of the others
    with open(first, 'rb') as f:
        at = f.read().index(DATA[:100])
    overwrite(first, at + MIB)
    with mount(first, *cache.options) as m:
        assert errno_of(m.read, 'model/x') == errno.EIO
    for source, *options in sources[2:]:
        with mount(source, *cache.options, *options) as m:
            assert opened(m) == 'sealed'
    # what is compressed or linked has to be in the cache, too, where all sources share the bytes
    for kind in ('zstd', 'link'):
        for state in ('verified', 'sealed'):
            with mount(carton(kind, f'{kind}.carton')[0], *PRIVATE, *cache.options) as m:
                assert opened(m) == state and m.read('model/x') == DATA
    assert set(cache.objects()) == {digest(DATA)}


def test_bad_copy_of_what_has_a_seal(sealed, carton, mount_fg):
    """It has never been verified itself, and did not change: both are said, and both errors advise the same."""
    source, _, options = sealed('stored')
    copy, (path, at) = carton('stored', 'copy.carton')
    overwrite(path, at + 4 * MIB)
    os.rename(copy, source)
    with mount_fg(source, *options) as m:
        assert errno_of(m.read, 'model/x') == errno.EIO
        line, = lines_of(m.log(), 'model/x: changed on disk')
        assert 'since it was verified, or is a bad copy of what was, near byte ' in line
        assert line.endswith('; close and open it again, which hashes all of it')


@pytest.mark.parametrize('method', ['zstd', 'deflate'])
@pytest.mark.parametrize('size', [MIB - 1, MIB, 4 * MIB])
def test_small_compressed(mount, work, cache, method, size):
    """From 1 MiB on it is decoded and hashed once for all mounts. The attacker has the copy in the cache."""
    data, name, options = DATA[:size], 'model/x', cache.options
    source = Carton(method=method).add(name, data, level=1).write(work / 'm.carton')
    key, kept = digest(data), size >= MIB
    with mount(source, *options, '-o', 'verify=off') as m:
        assert m.read(name) == data
    assert key not in cache.objects()
    with mount(source, *options) as m:
        assert opened(m) == 'verified' and m.read(name) == data
    assert (key in cache.seals()) == (key in cache.objects()) == kept
    with mount(source, *options) as m:
        assert opened(m) == ('sealed' if kept else 'verified') and m.read(name) == data
    if not kept:
        return
    # all of it is another's, and of its size: no byte of that; it is made again, and right
    for gone in (False, True):
        overwrite(cache.objects()[key], 0, bytes(size))
        if gone:
            os.unlink(cache.seals()[key])
        with mount(source, *options) as m:
            if not gone:
                assert errno_of(m.read, name) == errno.EIO
            eventually('it is made again', lambda: not errno_of(m.read, name), 10)
            assert m.read(name) == data and m.state(name) == 'verified'
        cache.check()


@pytest.mark.parametrize('kind', KINDS)
def test_changed_since(sealed, mount_fg, cache, kind):
    """Changed between two mounts: the read that meets it fails, and all of it is hashed again."""
    source, where, options = sealed(kind)
    damage(cache, where, 4 * MIB)
    with mount_fg(source, *options) as m:
        with open(m / 'model/x', 'rb', buffering=0) as f:
            assert m.state('model/x') == 'sealed'
            assert os.pread(f.fileno(), 5000, MIB) == DATA[MIB:MIB + 5000]
            assert errno_of(os.pread, f.fileno(), 100, 4 * MIB) == errno.EIO
            assert digest(DATA) not in cache.seals()
        if where:       # which cannot be had again; FUSE says only later that it was closed
            eventually('it is hashed again', lambda: errno_of(opened, m) == errno.EIO)
            assert m.state('model/x') == 'corrupt'
        else:
            eventually('it is made again', lambda: not errno_of(m.read, 'model/x'), 10)
            assert m.read('model/x') == DATA and m.state('model/x') == 'verified'
        assert len(lines_of(m.log(), 'model/x: changed on disk')) == 1, m.log()
    assert (digest(DATA) in cache.seals()) == (not where)


@pytest.mark.parametrize('step', [4096, -4096])
@pytest.mark.parametrize('kind', KINDS)
def test_changed_ahead_of_a_reader(sealed, mount, cache, kind, step):
    """
    What was read ahead of who reads in order, also towards the start, is compared when it is read: a change since
    then is seen.
    """
    source, where, options = sealed(kind)
    with mount(source, *options) as m, open(m / 'model/x', 'rb', buffering=0) as f:
        assert m.state('model/x') == 'sealed'
        # by itself, the kernel reads half a MiB ahead of it here, and nothing with this
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for off in range(3 * MIB, 3 * MIB + 512 * step, step):
            assert os.pread(f.fileno(), 4096, off) == DATA[off:off + 4096]
        damage(cache, where, off + step + 77)
        assert errno_of(os.pread, f.fileno(), 4096, off + step) == errno.EIO
        assert digest(DATA) not in cache.seals()


@pytest.mark.parametrize('kind', ['stored', 'zstd'])
def test_every_chunk_is_checked(carton, mount, cache, kind):
    """A bit of each tenth block is flipped: no read gives it."""
    source, where = carton(kind)
    with mount(source, *cache.options) as m:
        assert opened(m) == 'verified'
    step = 10 * (32 << 10)
    path, at = where or (cache.objects()[digest(DATA)], 0)
    bad = range(777, SIZE, step)
    for off in bad:
        overwrite(path, at + off, bytes([DATA[off] ^ 1]))
    with mount(source, *cache.options) as m:
        with open(m / 'model/x', 'rb', buffering=0) as f:
            assert m.state('model/x') == 'sealed'
            for off in range(0, SIZE, 4096):
                try:
                    got = os.pread(f.fileno(), 4096, off)
                except OSError as e:
                    assert e.errno == errno.EIO
                    continue
                assert got == DATA[off:off + 4096]
            for off in bad:
                assert errno_of(os.pread, f.fileno(), 1, off) == errno.EIO


@pytest.mark.parametrize('verify', ['mount', 'ctl'])
@pytest.mark.parametrize('kind', ['stored', 'unpacked', 'link'])
def test_all_is_hashed(carton, mount, point, cache, kind, verify):
    """verify=mount and `cartonctl verify` trust no seal."""
    source, where = carton(kind)
    with mount(source, *PRIVATE, *cache.options) as m:
        assert opened(m) == 'verified'
    damage(cache, where, 5 * MIB)
    if verify == 'ctl':
        p = ctl('verify', '--private-links', cache.flag, source)
    else:
        p = harness.run(harness.CARTONFS, *PRIVATE, *cache.options, '-o', 'verify=mount', source,
                        where_ := point())
    if where:       # a cache entry is fetched again
        assert p.returncode != 0 and lines_of(p.stdout + p.stderr, 'sha256 mismatch')
    else:
        assert lines_of(p.stdout + p.stderr, digest(DATA)) and cache.wrong() == []
        if verify == 'mount':
            assert harness.unmount(where_).returncode == 0
            eventually('the daemon ends', lambda: not harness.daemons(where_))


@pytest.mark.parametrize('how', ['flip', 'cut', 'fifo', 'directory', 'other', 'key', 'empty'])
def test_damaged_seal(carton, mount_fg, cache, work, how):
    """Whatever is in its place, or in that of the key, costs a hash, and nothing else."""
    source, _ = carton('stored')
    options = (*cache.options, '-o', f'cache_key={work / "key"}')
    with mount_fg(source, *options) as m:
        assert opened(m) == 'verified'
    path, key = cache.seals()[digest(DATA)], work / 'key'
    content = path.read_bytes()
    if how == 'key':
        key.write_text(f'{0:064}\n')
    else:
        path.unlink()
    if how == 'fifo':
        os.mkfifo(path)
    elif how == 'directory':
        path.mkdir()
        (path / 'x').mkdir()
    elif how == 'other':
        os.symlink(key, path)
    elif how != 'key':
        path.write_bytes({'flip': content[:200] + bytes([content[200] ^ 8]) + content[201:],
                          'cut': content[:-1], 'empty': b''}[how])
    with mount_fg(source, *options) as m:
        assert opened(m) == 'verified' and m.read('model/x') == DATA
        assert len(lines_of(m.log(), 'seal')) == (how in ('flip', 'cut', 'empty')), m.log()
    ctl('cache', 'gc', cache.flag)
    with mount_fg(source, *options) as m:
        assert opened(m) == ('verified' if how == 'directory' else 'sealed')


def test_cartonctl(carton, mount, cache):
    source, _ = carton('stored')
    assert ctl('fetch', cache.flag, source).returncode == 0
    with mount(source, *cache.options) as m:
        assert opened(m) == 'sealed'
    p = ctl('cache', 'list', cache.flag)
    size = cache.seals()[digest(DATA)].stat().st_size
    assert p.stdout.split()[:2] == [digest(DATA), str(size)] and p.stdout.endswith(f'  seal  {source}: model/x\n')
    listed, = json.loads(ctl('cache', 'list', '--json', cache.flag).stdout)
    assert listed['seal'] is True and listed['sha256'] == digest(DATA) and listed['size'] == size
    assert ctl('cache', 'verify', cache.flag).stdout == '0 damaged entries removed\n'
    overwrite(cache.seals()[digest(DATA)], 100, b'!')
    p = ctl('cache', 'verify', cache.flag)
    assert p.returncode == 1 and p.stdout == '1 damaged entry removed\n'
    assert lines_of(p.stderr, digest(DATA)) and cache.seals() == {}
    assert ctl('fetch', '--seals=off', cache.flag, source).returncode == 0 and cache.seals() == {}
    assert ctl('fetch', '--seals=on', cache.flag, source).returncode == 0 and cache.seals()
    p = ctl('fetch', '--seals=maybe', cache.flag, source)
    assert p.returncode == 1 and 'expected on or off' in p.stderr
    assert ctl('cache', 'gc', '0', cache.flag).returncode == 0 and cache.seals() == {}


def test_killed(carton, mount, cache, work):
    """Killed at any time: what is left is right, and the next one goes on."""
    c = Carton(method='stored')
    for i in range(40):
        c.add(f'model/{i}', fault_bytes(MIB + i, seed=i))
    source = c.write(work / 'many.carton')
    for n in (1, 5, 20):
        p = subprocess.Popen([CARTONCTL, 'fetch', cache.flag, source], stderr=subprocess.DEVNULL,
                             env=harness.environment())
        eventually('some are there', lambda: len(cache.seals()) >= n or p.poll() is not None)
        p.kill()
        assert p.wait() in (0, -signal.SIGKILL)
        assert ctl('cache', 'verify', cache.flag).stdout == '0 damaged entries removed\n'
    with mount(source, *cache.options) as m:
        assert scan(m.path) == expected(c.files())
    assert len(cache.seals()) == 40 and list(cache.path.glob('v1/tmp/*')) == []


def test_private(carton, mount, cache, work):
    """Only the owner can read tags, and the key, which is not in the cache."""
    key = work / 'state/cartonfs/cache.key'
    with mount(carton('stored')[0], *cache.options, env={'XDG_STATE_HOME': str(work / 'state')}) as m:
        assert opened(m) == 'verified'
    for path in (*cache.seals().values(), key):
        assert path.stat().st_mode & 0o7777 == 0o600
    assert (cache.path / 'v1/seals').stat().st_mode & 0o777 == 0o700
