# SPDX-License-Identifier: Apache-2.0
"""The cache: shared, resumed, never trusted, bounded; offline; cartonctl fetch and cache."""
import contextlib
import errno
import fcntl
import json
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import threading

import pytest

import harness
from harness import CARTONCTL, NOBODY, ctl, eventually, problems, run, small_disk
from origin import (MIB, PRIVATE, Cache, LinkedCarton, as_expected, digest, errno_of, fault_bytes,
                    lines_of, needs_root)
from zipwriter import Carton, sample

N = 200000
NO_SEALS = ('-o', 'seals=off')


def rng_bytes(n, seed=0):
    return random.Random(seed).randbytes(n)


def carton_of(work, name='m.carton', **files):
    """A carton whose model/NAME are linked: {name: (data, url, …)}."""
    c = LinkedCarton().add('misc/local', b'in the carton\n')
    for path, (data, *urls) in files.items():
        c.link('model/' + path, data, *urls)
    c.write(work / name)
    return c


def bodies(fault, name):
    return [r for r in fault.requests(name) if r['method'] == 'GET']


def fetch(source, *args, **kw):
    return ctl('fetch', '--private-links', source, *args, **kw)


# ---- shared ----


def test_two_mounts_one_fetch(work, mount, fault, cache):
    """Two processes that want one object at the same time fetch it once; cartons share it."""
    data = fault_bytes(2 * MIB)
    for name in 'ab':
        url = fault.url('x', size=2 * MIB, rate=MIB)
        c = carton_of(work, f'{name}.carton', **{name: (data, url)})
    options = [*PRIVATE, *cache.options]
    with mount(work / 'a.carton', *options) as a, mount(work / 'b.carton', *options) as b:
        them = [subprocess.Popen(['sha256sum', p], stdout=subprocess.PIPE)
                for p in (a / 'model/a', b / 'model/b', a / 'model/a', b / 'model/b')]
        assert {p.communicate()[0].split()[0].decode() for p in them} == {digest(data)}
    assert len(bodies(fault, 'x')) == 1
    fault.clear()
    with mount(work / 'b.carton', *options, '-o', 'offline') as m:
        assert m.read('model/b') == data and os.stat(m / 'model/b').st_size == len(data)
    assert fault.requests() == [] and set(cache.objects()) == {digest(data)}
    assert c.hashes()['model/b'] in cache.list()


def test_linked_and_packed_share(work, mount, fault, cache):
    """What one carton unpacked, another need not fetch. It hashes that itself, and asks for its size before."""
    data = rng_bytes(5 * MIB)
    Carton().add('model/y', data, method='deflate').write(work / 'packed.carton')
    carton_of(work, x=(data, fault.url('never', size=1)))
    with mount(work / 'packed.carton', *cache.options) as m:
        assert m.read('model/y') == data
    for state in ('verified', 'sealed'):
        with mount(work / 'm.carton', *PRIVATE, *cache.options) as m:
            with open(m / 'model/x', 'rb') as f:
                assert f.read() == data and m.state('model/x') == state
        assert sum(r['sent'] for r in fault.requests()) <= (state == 'verified')
        fault.clear()


@pytest.mark.parametrize('kind', ['flip', 'cut', 'longer', 'empty', 'other'])
def test_damaged_object(work, mount_fg, fault, cache, kind):
    """No trust in old files: dropped, with a log line, and fetched again."""
    data, options = fault_bytes(N), [*PRIVATE, *cache.options]
    carton_of(work, x=(data, fault.url('x', size=N)))
    with mount_fg(work / 'm.carton', *options) as m:
        assert m.read('model/x') == data
    path = cache.objects()[digest(data)]
    path.chmod(0o600)
    path.write_bytes({'flip': data[:777] + bytes([data[777] ^ 4]) + data[778:], 'cut': data[:-1],
                      'longer': data + b'x', 'empty': b'', 'other': rng_bytes(N)}[kind])
    path.chmod(0o400)
    fault.clear()
    with mount_fg(work / 'm.carton', *options) as m:
        assert m.read('model/x') == data and os.stat(m / 'model/x').st_size == N
        assert lines_of(m.log(), digest(data)), m.log()
    assert len(bodies(fault, 'x')) == 1


@pytest.mark.parametrize('size', [0, 1000, 2 * MIB])
@pytest.mark.parametrize('kind', ['cut', 'longer'])
def test_size_of_a_damaged_object(work, mount_fg, fault, cache, size, kind):
    """stat(2) asks no server where the cache knows, and shows no size of a damaged file."""
    data = fault_bytes(size)
    carton_of(work, x=(data, fault.url('x', size=size)))
    with mount_fg(work / 'm.carton', *PRIVATE, *cache.options) as m:
        assert m.read('model/x') == data
    fault.clear()
    with mount_fg(work / 'm.carton', *PRIVATE, *cache.options) as m:
        assert os.stat(m / 'model/x').st_size == size and fault.requests() == []
    path = cache.objects()[digest(data)]
    path.chmod(0o600)
    path.write_bytes(data + b'longer' if kind == 'longer' else data[:size // 2])
    path.chmod(0o400)
    with mount_fg(work / 'm.carton', *PRIVATE, *cache.options) as m:
        assert os.stat(m / 'model/x').st_size == size
        assert m.read('model/x') == data


@pytest.mark.parametrize('size', [2 * MIB - 1, 2 * MIB + 1])
def test_size_that_links_has_wrong(work, mount_fg, fault, cache, size):
    """Everybody was told that size: what the cache has is right, and is not read as if it were longer or shorter."""
    data = fault_bytes(2 * MIB)
    c = carton_of(work, x=(data, fault.url('x', size=len(data))))
    with mount_fg(work / 'm.carton', *PRIVATE, *cache.options) as m:
        assert m.read('model/x') == data
    c.links_text = c.links_toml() + f'[sizes]\n{digest(data)} = {size}\n'
    c.write(work / 'm.carton')
    for seals in ('on', 'off'):
        with mount_fg(work / 'm.carton', *PRIVATE, *cache.options, '-o', f'seals={seals}') as m:
            assert os.stat(m / 'model/x').st_size == size
            assert m.error('model/x') == 'EIO'
            assert digest(data) in cache.objects()


def damage(path, at):
    """Other bytes in a published object, as a disk makes them: mode and size stay."""
    path.chmod(0o600)
    with open(path, 'r+b') as f:
        f.seek(at)
        f.write(b'!' * 10)
    path.chmod(0o400)


def test_damaged_while_open(work, mount_fg, fault, cache):
    """Bytes that change under a mount are an error, never other bytes."""
    data = fault_bytes(4 * MIB)
    carton_of(work, x=(data, fault.url('x', size=4 * MIB)))
    with mount_fg(work / 'm.carton', *PRIVATE, *cache.options) as m:
        fd = os.open(m / 'model/x', os.O_RDONLY)
        try:
            damage(cache.objects()[digest(data)], 3 * MIB)
            assert errno_of(os.pread, fd, 100, 3 * MIB) == errno.EIO
            assert os.pread(fd, 100, 100) == data[100:200]
        finally:
            os.close(fd)
    assert ctl('cache', 'verify', cache.flag).returncode == 0, 'it is dropped already'
    assert digest(data) not in cache.objects()


@pytest.mark.parametrize('seals', [(), NO_SEALS])
@pytest.mark.parametrize('kind', ['linked', 'remote', 'packed'])
def test_damaged_while_mounted(work, mount_fg, fault, nginx, cache, kind, seals):
    """Reads fail; who opens it anew gets it as it should be, made again from where it came."""
    data = fault_bytes(6 * MIB)
    if kind == 'linked':
        carton_of(work, x=(data, fault.url('x', size=6 * MIB)))
        source = work / 'm.carton'
    else:
        method = 'stored' if kind == 'remote' else 'deflate'
        Carton().add('model/x', data, method=method).write(nginx.root / 'dm.carton')
        source = nginx.url('dm.carton') if kind == 'remote' else nginx.root / 'dm.carton'
    with mount_fg(source, *PRIVATE, *cache.options, *seals) as m:
        with open(m / 'model/x', 'rb', buffering=0) as f:
            damage(cache.objects()[digest(data)], 4 * MIB)
            harness.drop_pages(f)
            assert errno_of(os.pread, f.fileno(), 100, 4 * MIB) == errno.EIO
            assert digest(data) not in cache.objects() or cache.wrong(), 'no lookup finds it'

        def reads():
            return not errno_of(m.read, 'model/x')
        eventually('it reads again', reads, 10)
        assert m.read('model/x') == data and m.state('model/x') == 'verified'
        assert len(lines_of(m.log(), 'model/x: changed on disk')) == 1, m.log()
    assert harness.sha_file(cache.objects()[digest(data)]) == digest(data)


@pytest.mark.parametrize('seals', [(), NO_SEALS])
@pytest.mark.parametrize('kind', ['zip', 'unpacked'])
def test_carton_damaged_while_mounted(work, mount_fg, cache, kind, seals):
    """A carton's own bytes cannot be had again: an error, and it stays one."""
    data = fault_bytes(6 * MIB)
    c = Carton(method='stored').add('model/x', data)
    if kind == 'zip':
        source = path = c.write(work / 'z.carton')
        at = c.placed['model/x'].data + 4 * MIB
    else:
        source = c.unpack(work / 'unpacked')
        path, at = os.path.join(source, 'model/x'), 4 * MIB
    with mount_fg(source, *cache.options, *seals) as m:
        with open(m / 'model/x', 'rb', buffering=0) as f:
            with open(path, 'r+b') as g:
                g.seek(at)
                g.write(b'!' * 10)
            harness.drop_pages(f)
            assert errno_of(os.pread, f.fileno(), 100, 4 * MIB) == errno.EIO
        for _ in range(3):
            assert errno_of(m.read, 'model/x') == errno.EIO


# ---- killed and resumed ----


SIZE = 40 * MIB


@pytest.fixture(params=['linked', 'linked, one connection', 'remote'])
def download(request, work, nginx, fault, cache):
    """(source, path in it, sha256, options, requests): a slow download of SIZE."""
    data = fault_bytes(SIZE, seed=3)
    if request.param == 'remote':
        c = Carton(method='stored').add('model/x', data)
        c.write(os.path.join(fault.root, 'slow.carton'))
        source, name = fault.url('slow.carton', file='slow.carton', rate=3 * MIB), 'slow.carton'
    else:
        carton_of(work, x=(data, fault.url('x', size=SIZE, seed=3, rate=16 * MIB)))
        source, name = work / 'm.carton', 'x'
    n = 1 if request.param.endswith('one connection') else 4
    return source, digest(data), ['--private-links', f'--connections={n}', cache.flag], name


@pytest.mark.parametrize('after', [4, 12, 28])
def test_killed_and_resumed(download, fault, cache, after):
    """kill -9 in the middle: nothing wrong is left, and the next one goes on from there."""
    source, sha, options, name = download
    p = subprocess.Popen([CARTONCTL, 'fetch', *options, source], stderr=subprocess.DEVNULL,
                         env=harness.environment())
    noted = eventually('so much of it is there', lambda: max(
        [n for n in cache.partials().values() if n >= after * MIB], default=0), 30)
    p.kill()
    assert p.wait() == -signal.SIGKILL and noted
    noted = max(cache.partials().values())
    cache.check()
    assert sha not in cache.objects() and list(cache.path.glob('v1/tmp/*')) == []
    fault.clear()
    assert ctl('fetch', *options, source).returncode == 0
    asked = [r for r in fault.requests(name) if r['sent']]
    if name == 'x':
        first = next(r for r in fault.requests(name) if 'if-range' in r['h'])
        assert first['h']['range'].startswith(f'bytes={noted}-') and first['status'] == 206
    assert SIZE - noted <= sum(r['sent'] for r in asked) < SIZE - noted + 4.5 * MIB
    assert sha in cache.objects() and cache.partials() == {}


@pytest.mark.parametrize('kind', ['etag', 'prefix', 'longer', 'no ranges'])
def test_resumed_against_the_odds(work, fault, cache, kind):
    """What was kept is of another version, or damaged: the object is right all the same."""
    data = fault_bytes(12 * MIB)
    path = os.path.join(fault.root, 'odd')
    with open(path, 'wb') as f:
        f.write(data)
    url = fault.url('x', file='odd', rate=6 * MIB)
    carton_of(work, x=(data, url))
    command = [CARTONCTL, 'fetch', '--private-links', '--connections=1', cache.flag,
               work / 'm.carton']
    p = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=harness.environment())
    eventually('a part is noted', lambda: max(cache.partials().values(), default=0) >= 4 * MIB, 30)
    p.kill()
    p.wait()
    part, = [p for p in cache.path.glob('v1/partials/*') if p.suffix != '.v']
    if kind == 'etag':
        os.utime(path, (1, 1))
    elif kind == 'no ranges':
        side, = cache.path.glob('v1/partials/*.v')
        side.write_bytes(side.read_bytes()[:8] + (99 * MIB).to_bytes(8, 'little') +
                         side.read_bytes()[16:])
    else:
        with open(part, 'r+b') as f:
            f.seek(1000 if kind == 'prefix' else 4 * MIB)
            f.write(b'damaged')
    got = run(*command)
    assert got.returncode == 0, got.stderr
    assert harness.sha_file(cache.objects()[digest(data)]) == digest(data)


@pytest.mark.parametrize('at', [1000, 4 * MIB], ids=['prefix', 'longer'])
def test_resumed_entry_of_a_remote_carton(work, fault, cache, at):
    """What was kept of an entry was written to: it is not the server that is blamed, and all is fetched anew."""
    data = fault_bytes(12 * MIB)
    Carton(method='stored').add('model/x', data).write(os.path.join(fault.root, 'odd.carton'))
    command = [CARTONCTL, 'fetch', '--connections=1', cache.flag, fault.url('x', file='odd.carton', rate=6 * MIB)]
    p = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=harness.environment())
    eventually('a part is noted', lambda: max(cache.partials().values(), default=0) >= 4 * MIB, 30)
    p.kill()
    p.wait()
    part, = [p for p in cache.path.glob('v1/partials/*') if p.suffix != '.v']
    with open(part, 'r+b') as f:
        f.seek(at)
        f.write(b'damaged')
    got = run(*command)
    assert got.returncode == 0, got.stderr
    assert harness.sha_file(cache.objects()[digest(data)]) == digest(data)


def test_entry_that_another_holds(work, cache):
    """Two paths with one wrong content, and a cache entry that cannot be looked at: an error, and no loop."""
    wrong, sha = b'B' * (5 * MIB), digest(b'A' * (5 * MIB))
    c = Carton(method='deflate').add('model/a', wrong, sha=sha).add('model/b', wrong, sha=sha)
    c.write(work / 'm.carton')
    held = cache.path / 'v1/objects' / sha[:2] / sha
    held.parent.mkdir(parents=True)
    for path in (cache.path, cache.path / 'v1', cache.path / 'v1/objects', held.parent):
        path.chmod(0o700)
    held.write_bytes(b'x' * len(wrong))
    held.chmod(0o400)
    with open(held, 'rb') as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        p = ctl('cat', cache.flag, work / 'm.carton', 'model/a')
    assert p.returncode == 1 and p.stdout == '' and 'model/a' in p.stderr
    held.unlink()


def test_dead_holder_is_followed(work, mount, fault, cache):
    """One who waits for another process's download takes over when that is killed."""
    data = fault_bytes(12 * MIB)
    carton_of(work, x=(data, fault.url('x', size=12 * MIB, rate=4 * MIB)))
    p = subprocess.Popen([CARTONCTL, 'fetch', '--private-links', '--connections=1', '--timeout=60',
                          cache.flag, work / 'm.carton'], stderr=subprocess.DEVNULL,
                         env=harness.environment())
    eventually('it downloads', lambda: max(cache.partials().values(), default=0) > 0, 20)
    with mount(work / 'm.carton', *PRIVATE, *cache.options, '-o', 'timeout=2') as m:
        reader = subprocess.Popen(['sha256sum', m / 'model/x'], stdout=subprocess.PIPE)
        eventually('the reader has asked for the size', lambda: any(
            r['method'] == 'HEAD' for r in fault.requests('x')))
        assert len(bodies(fault, 'x')) == 1, 'it waits'
        p.kill()
        p.wait()
        assert reader.communicate(timeout=60 * harness.SLOW)[0].split()[0].decode() == digest(data)
    assert bodies(fault, 'x')[1]['h']['range'].startswith('bytes=')


def test_killed_mount(work, point, fault, cache):
    """A daemon killed while it publishes many small ones: all that is there is right."""
    files = {f'f{i}': (fault_bytes(1000 + i), fault.url(f'f{i}', size=1000 + i)) for i in range(60)}
    carton_of(work, **files)
    command = [CARTONCTL, 'fetch', '--private-links', cache.flag, work / 'm.carton']
    for n in (1, 10, 30):
        p = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=harness.environment())
        eventually('some are there', lambda: len(cache.objects()) >= n or p.poll() is not None)
        p.kill()
        p.wait()
        assert cache.wrong() == []
    assert run(*command).returncode == 0
    assert len(set(cache.objects()) & {digest(d) for d, _ in files.values()}) == 60
    ctl('cache', 'gc', cache.flag)
    assert list(cache.path.glob('v1/tmp/*')) == [] and cache.partials() == {}


# ---- offline, fetch ----


def test_offline(work, mount_fg, fault, cache):
    """What is cached reads; all else fails at once, and says why."""
    c = carton_of(work, x=(fault_bytes(N), fault.url('x', size=N)),
                  y=(fault_bytes(N, 1), fault.url('y', size=N, seed=1)))
    assert fetch(work / 'm.carton', 'model/x', cache.flag).returncode == 0
    fault.clear()
    with mount_fg(work / 'm.carton', *PRIVATE, *cache.options, '-o', 'offline') as m:
        assert m.read('model/x') == fault_bytes(N)
        with harness.at_once():
            for _ in range(2):
                assert errno_of(m.read, 'model/y') == errno.ENETUNREACH
                assert errno_of(os.stat, m / 'model/y') == errno.ENETUNREACH
        assert sorted(os.listdir(m / 'model')) == ['x', 'y']
        assert lines_of(m.log(), 'model/y.*offline')
        assert 'cannot be read now' not in m.log()    # once is enough
    assert fault.requests() == []
    assert c.hashes()['model/y'] not in cache.objects()


def test_fetch(work, fault, nginx, cache, mount):
    """All, or the paths given; a second time costs nothing; plain when nobody looks on."""
    files = {n: (fault_bytes(N, i), fault.url(n, size=N, seed=i)) for i, n in enumerate('abc')}
    c = carton_of(work, **files)
    c.symlink('model/l', 'b').write(work / 'm.carton')
    p = fetch(work / 'm.carton', 'model/a', 'model/l', cache.flag)
    assert p.returncode == 0 and problems(p) == ''
    assert re.fullmatch(r'fetched 390\.6 KiB in [\d.]+ s, 2 of 2 files in the cache\n', p.stdout), p.stdout
    assert {r['path'].split('/')[-1] for r in fault.requests()} == {'a', 'b'}
    p = fetch(work / 'm.carton', cache.flag)
    assert p.returncode == 0 and len(bodies(fault, 'c')) == 1 and len(bodies(fault, 'a')) == 1
    fault.clear()
    assert fetch(work / 'm.carton', cache.flag).returncode == 0 and fault.requests() == []
    with mount(work / 'm.carton', *cache.options, '-o', 'offline') as m:
        as_expected(m, c)
    for h in (c.hashes()[f'model/{n}'] for n in 'abc'):
        # as a terminal shows it, too
        for digits in (h, h[:12], h[:8].upper()):
            p = ctl('cache', 'path', digits, cache.flag)
            assert p.returncode == 0 and digest(open(p.stdout.rstrip('\n'), 'rb').read()) == h
    assert 'expected 8 to 64 hexadecimal digits' in ctl('cache', 'path', h[:7], cache.flag).stderr
    other = work / 'cache/v1/objects' / h[:2] / (h[:9] + '0' * 55)
    other.write_bytes(b'')
    for n in 8, 9:
        p = ctl('cache', 'path', h[:n], cache.flag)
        assert p.returncode == 1 and p.stdout == '', p
        assert f'{h[:n]}: 2 hashes in the cache begin so: more digits are needed' in p.stderr
    assert ctl('cache', 'path', h[:16], cache.flag).returncode == 0
    other.unlink()


def test_fetch_failures(work, fault, cache):
    """Exit 1 when any fails; the others are fetched."""
    carton_of(work, good=(fault_bytes(N), fault.url('good', size=N)),
              bad=(fault_bytes(N, 1), fault.url('bad', size=N, status=404)))
    p = fetch(work / 'm.carton', cache.flag)
    assert p.returncode == 1 and lines_of(p.stderr, 'bad') and lines_of(p.stderr, '1 file')
    assert set(cache.objects()) >= {digest(fault_bytes(N))}
    for args, code in ((['model/none'], 1), (['model'], 1), (['--bogus'], 1)):
        assert fetch(work / 'm.carton', cache.flag, *args).returncode == code
    assert fetch(work / 'none.carton', cache.flag).returncode == 1
    assert fetch(work / 'm.carton', cache.flag, '--offline', 'model/bad').returncode == 1


@pytest.mark.parametrize('kind', ['linked', 'chunked', 'remote'])
def test_fetch_shows_a_bar(work, fault, cache, kind):
    """On a terminal there is a bar that is gone before the summary; where no server says a size, what has come."""
    if kind != 'remote':
        more = dict(chunked=1) if kind == 'chunked' else {}
        carton_of(work, x=(fault_bytes(6 * MIB), fault.url('x', size=6 * MIB, rate=3 * MIB, **more)))
        source = work / 'm.carton'
    else:
        Carton().add('model/x', fault_bytes(9 * MIB), method='stored').write(
            os.path.join(fault.root, 'bar.carton'))
        source = fault.url('bar.carton', file='bar.carton', rate=3 * MIB)
    master, slave = pty.openpty()
    p = subprocess.Popen([CARTONCTL, 'fetch', '--private-links', '--connections=1', cache.flag,
                          source], stdout=slave, stderr=slave, env=harness.environment())
    os.close(slave)
    shown = b''
    while True:
        try:
            block = os.read(master, 4096)
        except OSError:
            break
        shown += block
    os.close(master)
    assert p.wait() == 0
    shown, end, summary = shown.rpartition(b'\r\x1b[K')
    assert end and re.fullmatch(rb'fetched \d\.0 MiB in \d+ s, \d of \d files in the cache(, \d in the carton)?\r\n', summary), summary
    if kind == 'chunked':
        assert b'%' not in shown and re.search(rb'fetch \d+\.\d [KMG]iB  \d+\.\d [KMG]iB/s', shown), shown
    else:
        assert re.search(r'fetch [█▉▊▋▌▍▎▏ ]* +\d+%  ', shown.decode()) and b'100%' not in shown, shown


def test_fetch_remote(nginx, mount, cache):
    """A whole remote carton; a mount after it asks for no file."""
    c = sample('stored').add('model/large', rng_bytes(10 * MIB))
    c.write(nginx.root / 'f.carton')
    assert fetch(nginx.url('f.carton'), cache.flag).returncode == 0
    with mount(nginx.url('f.carton'), *cache.options) as m:
        nginx.clear()
        as_expected(m, c)
        assert nginx.requests() == []


def test_fetch_counts_all_files(nginx, fault, cache, work):
    """As cartonctl verify: MANIFEST is one of them, and a symlink is none; and so are those that are here."""
    sample('stored').write(nginx.root / 'n.carton')
    n = json.loads(ctl('verify', '--json', nginx.url('n.carton')).stdout)['files']
    assert fetch(nginx.url('n.carton'), cache.flag).stdout.endswith(f', {n} of {n} files in the cache\n')
    said = json.loads(fetch(nginx.url('n.carton'), '--json', cache.flag).stdout)
    assert (said['ok'], said['files'], said['local'], said['cached'], said['failed']) == (True, n, 0, n, 0)
    carton_of(work, x=(fault_bytes(N), fault.url('x', size=N)))
    n = json.loads(ctl('verify', '--json', '--private-links', work / 'm.carton').stdout)['files']
    assert fetch(work / 'm.carton', cache.flag).stdout.endswith(f', 1 of {n} files in the cache, {n - 1} in the carton\n')
    said = json.loads(fetch(work / 'm.carton', '--json', cache.flag).stdout)
    assert (said['ok'], said['files'], said['local'], said['cached'], said['failed']) == (True, n, n - 1, 1, 0)


# ---- cartonctl cache ----


def test_cache_commands(work, fault, cache):
    files = {n: (fault_bytes(N, i), fault.url(n, size=N, seed=i)) for i, n in enumerate('abc')}
    c = carton_of(work, **files)
    assert ctl('cache', 'gc', '--json', cache.flag).returncode == 1
    assert fetch(work / 'm.carton', cache.flag).returncode == 0
    hashes = {n: c.hashes()[f'model/{n}'] for n in 'abc'}
    assert cache.list() == {h: N for h in hashes.values()}
    listed = json.loads(ctl('cache', 'list', '--json', cache.flag).stdout)
    assert {x['sha256']: x['size'] for x in listed} == {h: N for h in hashes.values()}
    assert all(set(x) == {'sha256', 'size', 'used', 'seal', 'path', 'source', 'partial'} and not x['seal'] and not x['partial'] and x['used'] == int(
        cache.objects()[x['sha256']].stat().st_mtime) for x in listed)
    assert {x['sha256']: (x['path'], x['source']) for x in listed} == {
        h: (f'model/{n}', str(work / 'm.carton')) for n, h in hashes.items()}
    lines = ctl('cache', 'list', cache.flag).stdout.splitlines()
    assert {line.split()[0]: line.rpartition('  ')[2] for line in lines} == {
        h: f'{work}/m.carton: model/{n}' for n, h in hashes.items()}
    path = cache.objects()[hashes['a']]
    path.chmod(0o600)
    path.write_bytes(b'damaged')
    p = ctl('cache', 'verify', cache.flag)
    assert p.returncode == 1 and '1 damaged' in p.stdout and lines_of(p.stderr, hashes['a'])
    assert hashes['a'] not in cache.list()
    assert ctl('cache', 'path', hashes['a'], cache.flag).returncode == 1
    assert ctl('cache', 'path', 'abc', cache.flag).returncode == 1
    os.utime(cache.objects()[hashes['b']], (10 ** 9, 10 ** 9))
    p = ctl('cache', 'gc', str(N + 50000), cache.flag)
    assert p.returncode == 0 and set(cache.list()) == {hashes['c']}, 'what was used last stays'
    assert ctl('cache', 'gc', '0', cache.flag).returncode == 0 and cache.list() == {}
    assert json.loads(ctl('cache', 'list', '--json', cache.flag).stdout) == []
    for words in (['cache'], ['cache', 'bogus'], ['cache', 'gc', '-1'], ['cache', 'list', 'x']):
        assert ctl(*words, cache.flag).returncode == 1


@pytest.mark.parametrize('words', [('list',), ('list', '--json'), ('gc',), ('gc', '0'), ('verify',),
                                   ('path', '0' * 64)], ids=' '.join)
def test_no_cache(work, words):
    """One line says so, and the directory is not made."""
    (work / 'other/v1').mkdir(parents=True)
    for name in ('typo', 'other'):
        p = ctl('cache', *words, f'--cache-dir={work / name}')
        assert (p.returncode, p.stdout) == (1, ''), p
        assert p.stderr == f'cartonctl: {work / name}: there is no cache here\n'
    assert not (work / 'typo').exists() and list((work / 'other').rglob('*')) == [work / 'other/v1']


def test_export_before_the_first_mount(work):
    """It is a step of setting up a server, which may come first."""
    p = ctl('cache', 'export', f'--cache-dir={work / "new"}')
    assert p.returncode == 0 and str(work / 'new') in p.stdout, p


def test_no_cache_in_the_home(work):
    p = ctl('cache', 'list', env=dict(XDG_CACHE_HOME=str(work)))
    assert (p.returncode, p.stdout) == (1, '')
    assert p.stderr == ('cartonctl: there is no cache here: neither in $XDG_CACHE_HOME/cartonfs nor in '
                        '~/.cache/cartonfs\n')
    assert list(work.iterdir()) == []


@needs_root
@pytest.mark.parametrize('there', ['home', 'home/.cache'])
@pytest.mark.parametrize('variable', ['HOME', 'XDG_CACHE_HOME'])
def test_root_in_the_home_of_a_user(work, fault, variable, there):
    """As by sudo -E: it makes nothing there, since the user could not use it, and says what to do."""
    carton_of(work, large=(fault_bytes(N), fault.url('large', size=N)))
    (work / there).mkdir(parents=True)
    for d in {work / 'home', work / there}:
        os.chown(d, NOBODY, NOBODY)
    home = work / 'home'
    p = fetch(work / 'm.carton', env={'XDG_CACHE_HOME': '', 'HOME': str(home)} |
              ({variable: str(home / '.cache')} if variable != 'HOME' else {}))
    assert p.returncode == 1 and f'{work / there} belongs to uid {NOBODY}; run it with' in p.stderr, p.stderr
    assert {x for x in home.rglob('*')} == {work / there} - {home}
    # the cache of the user is there: it is not that of root, and is left as it is
    assert fetch(work / 'm.carton', env=dict(XDG_CACHE_HOME='', HOME=str(home)), uid=NOBODY).returncode == 0
    assert all(os.stat(x).st_uid == NOBODY for x in home.rglob('*'))


@needs_root
@pytest.mark.parametrize('there', ['home', 'home/state'])
def test_the_key_of_root_in_the_home_of_a_user(work, cache, there):
    """As the cache: no directory is made for it there. One that the user has made is used, and its key is the user's."""
    source, home = Carton(method='stored').add('model/x', rng_bytes(MIB)).write(work / 'm.carton'), work / 'home'
    (work / there).mkdir(parents=True)
    for d in {home, work / there}:
        os.chown(d, NOBODY, NOBODY)
    env = {'XDG_STATE_HOME': f'{home}/state'}
    p = fetch(source, cache.flag, env=env)
    assert p.returncode == 0 and lines_of(p.stderr, (
        f'{home}/state/cartonfs/cache.key: cannot be the key of the cache: it cannot be made: '
        f'root makes no directory in one of uid {NOBODY}.')), p.stderr
    assert {x for x in home.rglob('*')} == {work / there} - {home} and cache.seals() == {}
    (home / 'state/cartonfs').mkdir(parents=True)
    os.chown(home / 'state/cartonfs', NOBODY, NOBODY)
    p = fetch(source, cache.flag, env=env)
    assert (p.returncode, p.stderr) == (0, '') and cache.seals() != {}
    assert os.stat(home / 'state/cartonfs/cache.key').st_uid == NOBODY


def test_names_show_no_secret(fault, cache, mount):
    """Of the URL of a carton what a message may show; a seal is called as its file."""
    Carton(method='stored').add('model/large', rng_bytes(2 * MIB)).write(os.path.join(fault.root, 'named.carton'))
    url = fault.url('named.carton', file='named.carton')
    with mount(url.replace('//', '//joe:secret@') + ('&' if '?' in url else '?') + 'token=hidden', *cache.options) as m:
        assert len(m.read('model/large')) == 2 * MIB
    listed = json.loads(ctl('cache', 'list', '--json', cache.flag).stdout)
    named = [x for x in listed if x['path'] == 'model/large']
    assert sorted(x['seal'] for x in named) == [False, True]
    assert {x['source'] for x in listed} == {url.split('?')[0]}
    whole = fault.url('named.carton', file='named.carton', norange=1)
    assert fetch(whole, cache.flag).returncode == 0
    assert (whole.split('?')[0], '') in [(x['source'], x['path']) for x in json.loads(
        ctl('cache', 'list', '--json', cache.flag).stdout)]
    assert not re.search(b'secret|hidden', (cache.path / 'v1/names').read_bytes())


def test_gc_leaves_what_is_open(work, mount, fault, cache):
    data = fault_bytes(N)
    carton_of(work, x=(data, fault.url('x', size=N)))
    with mount(work / 'm.carton', *PRIVATE, *cache.options) as m:
        with open(m / 'model/x', 'rb') as f:
            assert ctl('cache', 'gc', '0', cache.flag).returncode == 0
            assert set(cache.list()) == {digest(data)} and f.read() == data


# ---- bounds ----


def test_cache_size(work, mount, fault, cache):
    """The limit is kept, by what was used longest ago."""
    files = {f'f{i}': (fault_bytes(MIB, i), fault.url(f'f{i}', size=MIB, seed=i))
             for i in range(12)}
    carton_of(work, **files)
    for i in range(12):
        p = fetch(work / 'm.carton', f'model/f{i}', cache.flag, '--cache-size=5M')
        assert p.returncode == 0, p.stderr
        for path in cache.objects().values():       # an hour has passed
            st = path.stat()
            os.utime(path, (st.st_atime - 3600, st.st_mtime - 3600))
        assert cache.used() < 6 * MIB
    left = set(cache.list())
    assert digest(files['f11'][0]) in left and digest(files['f10'][0]) in left
    assert digest(files['f0'][0]) not in left and 2 <= len(left) <= 5
    with mount(work / 'm.carton', *PRIVATE, *cache.options, '-o', 'cache_size=5M') as m:
        for name, (data, _) in files.items():
            assert m.read('model/' + name) == data
        assert cache.used() < 14 * MIB, 'what is open or was just read may stay'


@pytest.mark.parametrize('kind', [{}, dict(enc='gzip'), dict(chunked=1)], ids=str)
def test_larger_than_the_cache(work, mount, fault, cache, kind):
    """What is larger than all of the cache reads, and does not stay, be its length known or not."""
    data = fault_bytes(12 * MIB)
    carton_of(work, x=(data, fault.url('x', size=12 * MIB, **kind)))
    with mount(work / 'm.carton', *PRIVATE, *cache.options, '-o', 'cache_size=4M') as m:
        assert m.read('model/x') == data
    assert digest(data) not in cache.objects() and cache.used() < 4.5 * MIB


@contextlib.contextmanager
def watching(disk):
    """A list of one number: how many bytes of it were used at most."""
    most, over = [0], threading.Event()

    def watch():
        while not over.is_set():
            st = os.statvfs(disk)
            most[0] = max(most[0], (st.f_blocks - st.f_bfree) * st.f_frsize)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        over.set()
        watcher.join()


@pytest.mark.parametrize('wrong', [dict(size=5 * MIB, seed=9), dict(size=3 * MIB, long=2 * MIB)],
                         ids=['other', 'long'])
@pytest.mark.parametrize('kind', [{}, dict(chunked=1)], ids=str)
def test_leftovers_of_a_url(work, mount, fault, cache, kind, wrong):
    """What one URL has left in a file outside of the cache is no part of the next one's answer."""
    data = fault_bytes(3 * MIB)
    carton_of(work, x=(data, fault.url('bad', **kind, **wrong), fault.url('good', size=3 * MIB)))
    with mount(work / 'm.carton', *PRIVATE, *cache.options, '-o', 'cache_size=1M') as m:
        assert m.read('model/x') == data
        assert os.stat(m / 'model/x').st_size == len(data)
        with open(m / 'model/x', 'rb') as f:
            assert os.pread(f.fileno(), 10, len(data)) == b''
    cache.check()


def test_leftovers_of_a_download(fault, mount, cache):
    """The same of a whole carton, from a server that breaks off and then has a smaller one."""
    c = sample()
    c.write(os.path.join(fault.root, 'left.carton'))
    url = fault.url('left', file='left.carton', norange=1, noaccept=1, brief=f'4:{MIB}')
    with mount(url, *cache.options, '-o', 'cache_size=100K') as m:
        as_expected(m, c)


@needs_root
def test_no_disk_is_filled_by_a_download(fault, work):
    """A whole carton that never ends stops while there is space, wherever it goes."""
    url = fault.url('endless', size=300 * MIB, zeros=1, norange=1, noaccept=1, chunked=1)
    with small_disk(work / 'disk', 100) as disk:
        with watching(disk) as most:
            p = ctl('hash', '--cache-dir', disk / 'cache', '--cache-size=10M', url,
                    env=dict(os.environ, TMPDIR=str(disk)))
        assert p.returncode != 0 and 'space' in p.stderr, p.stderr
        assert 5 * MIB < most[0] <= 95 * MIB, most


def test_a_lie_evicts_nothing(work, mount, fault, cache):
    """What a server only says it will send costs no other object."""
    files = {f'f{i}': (fault_bytes(MIB, i), fault.url(f'f{i}', size=MIB, seed=i)) for i in range(6)}
    carton_of(work, **files)
    assert fetch(work / 'm.carton', cache.flag, '--cache-size=8M').returncode == 0
    kept = set(cache.list())
    assert len(kept) == 6
    small = fault_bytes(1000, 9)
    carton_of(work, x=(small, fault.url('lie', size=1000, seed=9, length=7 * MIB),
                       fault.url('good', size=1000, seed=9)))
    with mount(work / 'm.carton', *PRIVATE, *cache.options, '-o', 'cache_size=8M') as m:
        assert m.read('model/x') == small
    assert kept < set(cache.list())


def test_cache_size_in_one_mount(work, mount_fg, fault, cache):
    """What was read and closed makes room for what is read next."""
    files = {f'f{i}': (fault_bytes(MIB, i), fault.url(f'f{i}', size=MIB, seed=i)) for i in range(20)}
    carton_of(work, **files)
    with mount_fg(work / 'm.carton', *PRIVATE, *cache.options, '-o', 'cache_size=5M') as m:
        for name, (data, _) in files.items():
            assert m.read('model/' + name) == data
        assert digest(files['f19'][0]) in cache.objects() and cache.used() < 6 * MIB
        deleted = [f for f in os.listdir(f'/proc/{m.process.pid}/fd')
                   if '(deleted)' in os.readlink(f'/proc/{m.process.pid}/fd/{f}')]
        assert len(deleted) < 5, 'no copies besides the cache'
    cache.check()


@pytest.mark.parametrize('how', ['removed', 'broken'])
def test_cache_that_goes_away(work, mount_fg, fault, cache, how):
    """A mount outlives its cache: what is in the carton and what is fetched reads on."""
    packed, linked = rng_bytes(5 * MIB), fault_bytes(N)
    c = LinkedCarton().add('model/p', packed, method='deflate')
    c.link('model/x', linked, fault.url('x', size=N))
    c.write(work / 'm.carton')
    with mount_fg(work / 'm.carton', *PRIVATE, *cache.options) as m:
        if how == 'removed':
            shutil.rmtree(cache.path)
        else:
            (cache.path / 'v1/lock').unlink(missing_ok=True)
            (cache.path / 'v1/lock').mkdir()
        assert m.read('model/p') == packed and m.read('model/x') == linked
        assert len(lines_of(m.log(), 'the cache cannot be used')) == 1, m.log()
    shutil.rmtree(cache.path, ignore_errors=True)


def test_stopped_holder(work, mount_fg, fault, cache):
    """Who fetches an object and was stopped does not keep it from the others for ever."""
    data = fault_bytes(4 * MIB)
    carton_of(work, x=(data, fault.url('x', size=4 * MIB, rate=MIB)))
    first = subprocess.Popen([CARTONCTL, 'fetch', '--private-links', cache.flag, work / 'm.carton'],
                             stderr=subprocess.DEVNULL, env=harness.environment())
    try:
        eventually('the first has begun', cache.partials)
        harness.freeze(first.pid)
        with mount_fg(work / 'm.carton', *PRIVATE, *cache.options, '-o', 'timeout=2') as m:
            assert m.read('model/x') == data
            assert lines_of(m.log(), 'model/x: .*another process'), m.log()
        assert digest(data) not in cache.objects()
    finally:
        first.send_signal(signal.SIGCONT)
        assert first.wait() == 0
    assert digest(data) in cache.objects()
    cache.check()


def test_verify_is_no_use(work, fault, cache):
    """Looking whether objects are good does not change which go first."""
    files = {f'f{i}': (fault_bytes(MIB, i), fault.url(f'f{i}', size=MIB, seed=i)) for i in range(3)}
    carton_of(work, **files)
    assert fetch(work / 'm.carton', cache.flag).returncode == 0
    for i, path in enumerate(cache.objects().values()):
        os.utime(path, (1e9 + i, 1e9 + i))
    before = {name: int(p.stat().st_mtime) for name, p in cache.objects().items()}
    cache.check()
    assert {name: int(p.stat().st_mtime) for name, p in cache.objects().items()} == before


def test_dates_in_the_future(work, fault, cache):
    """As a clock leaves them that was wrong: they go first, not last, and what would never be old goes at all."""
    files = {f'f{i}': (fault_bytes(MIB, i), fault.url(f'f{i}', size=MIB, seed=i)) for i in range(3)}
    hashes = carton_of(work, **files).hashes()
    assert fetch(work / 'm.carton', cache.flag).returncode == 0
    os.utime(cache.objects()[hashes['model/f1']], (4e9, 4e9))
    note = cache.path / 'v1/notes' / ('0' * 64)
    note.write_text('')
    os.utime(note, (4e9, 4e9))
    assert ctl('cache', 'gc', str(2 * MIB + 50000), cache.flag).returncode == 0
    left = set(cache.objects())
    assert left == {hashes['model/f0'], hashes['model/f2']} and not note.exists()


def test_old_notes_go(nginx, mount, cache):
    """What is remembered of a URL, when nobody asked for it in months."""
    for name in 'ab':
        sample().write(nginx.root / f'{name}.carton')
        with mount(nginx.url(f'norange/{name}.carton'), *cache.options):
            pass
    notes = list(cache.path.glob('v1/notes/*'))
    assert len(notes) >= 2
    os.utime(notes[0], (1e9, 1e9))
    assert ctl('cache', 'gc', cache.flag).returncode == 0
    assert set(cache.path.glob('v1/notes/*')) == set(notes[1:])


@needs_root
def test_full_disk(work, mount, fault, nginx):
    """No room in the cache: small files still read, large ones are ENOSPC, all recovers."""
    disk = work / 'disk'
    disk.mkdir()
    assert run('mount', '-t', 'tmpfs', '-o', 'size=16m', 'none', disk).returncode == 0
    full = Cache(disk / 'cache')
    try:
        small, large = fault_bytes(N), fault_bytes(8 * MIB)
        carton_of(work, s=(small, fault.url('s', size=N)),
                  l=(large, fault.url('l', size=8 * MIB)))
        c = Carton(method='stored').add('model/r', small)
        c.write(nginx.root / 'full.carton')
        os.mkdir(full.path, 0o700)
        nowhere = dict(TMPDIR=str(disk))
        with mount(work / 'm.carton', *PRIVATE, *full.options, env=nowhere) as m, \
                mount(nginx.url('full.carton'), *full.options, env=nowhere) as r:
            with open(disk / 'filler', 'wb') as f:
                with pytest.raises(OSError):
                    while True:
                        os.write(f.fileno(), bytes(4096))
            assert errno_of(m.read, 'model/l') == errno.ENOSPC
            assert r.read('model/r') == small and m.read('model/s') == small, 'they are small'
            os.unlink(disk / 'filler')
            assert m.read('model/l') == large and m.read('model/s') == small
        full.check()
    finally:
        run('umount', '-l', disk)


@needs_root
@pytest.mark.parametrize('kind', [{}, dict(chunked=1), dict(enc='gzip')], ids=str)
def test_cache_on_a_small_disk(work, mount, fault, nginx, kind):
    """What the cache's disk cannot hold goes where temporary files are."""
    linked, stored = fault_bytes(3 * MIB), rng_bytes(12 * MIB)
    packed = rng_bytes(5 * MIB)
    carton_of(work, x=(linked, fault.url('x', size=3 * MIB, **kind)))
    c = Carton(method='stored').add('model/r', stored).add('model/p', packed, method='deflate')
    c.write(nginx.root / 'sd.carton')
    with small_disk(work / 'disk', 1) as disk:
        tiny = Cache(disk / 'cache')
        with mount(work / 'm.carton', *PRIVATE, *tiny.options) as m:
            assert m.read('model/x') == linked
        with mount(nginx.url('sd.carton'), *tiny.options) as m:
            assert m.read('model/r') == stored and m.read('model/p') == packed
        assert set(tiny.objects()) & {digest(linked), digest(stored), digest(packed)} == set()
        tiny.check()


@needs_root
def test_no_disk_is_filled(work, mount_fg, fault):
    """A small answer that becomes a large one: stopped with a log line while there is space."""
    kind = dict(size=300 * MIB, zeros=1, enc='gzip')
    carton_of(work, x=(b'something else', fault.coded_url('x', **kind) + '?token=hunter2'))
    with small_disk(work / 'disk', 100) as disk:
        c = Cache(disk / 'cache')
        with watching(disk) as most, \
                mount_fg(work / 'm.carton', *PRIVATE, *c.options, '-o', 'cache_size=10M',
                         env=dict(TMPDIR=str(disk))) as m:
            assert errno_of(m.read, 'model/x') == errno.ENOSPC
            log = m.log()
        assert 5 * MIB < most[0] <= 95 * MIB, most
        assert c.used() < MIB and c.partials() == {}
    assert lines_of(log, '/x: .*no room for it in the cache') and lines_of(log, '/x: .*no room for it on the disk'), log
    assert 'hunter2' not in log
    whole = [r for r in bodies(fault, 'x') if 'range' not in r['h']]
    assert len(whole) == 2, 'once into the cache, once into a file'


@needs_root
def test_unprivileged_user(work, mount, fault, point):
    """His own cache, mode 0700; a cache of somebody else, or open to others, is not used."""
    data = fault_bytes(N)
    carton_of(work, x=(data, fault.url('x', size=N)))
    mine = work / 'mine'
    mine.mkdir()
    os.chown(mine, NOBODY, NOBODY)
    c = Cache(mine / 'cache', NOBODY)
    with mount(work / 'm.carton', *PRIVATE, *c.options, uid=NOBODY) as m:
        assert m.read('model/x') == data
    assert os.stat(c.path).st_mode & 0o777 == 0o700 and os.stat(c.path).st_uid == NOBODY
    assert all(p.lstat().st_uid == NOBODY and not p.lstat().st_mode & 0o077
               for p in c.path.rglob('*') if p.name != 'CACHEDIR.TAG')
    c.check()
    other = work / 'other'
    other.mkdir(mode=0o777)
    os.chmod(other, 0o777)
    p = run(harness.CARTONFS, *PRIVATE, '-o', f'cache_dir={other}', work / 'm.carton',
            point(NOBODY), uid=NOBODY)
    assert p.returncode == 32 and lines_of(p.stderr, str(other)), p.stderr
