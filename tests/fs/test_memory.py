# SPDX-License-Identifier: Apache-2.0
"""Memory: a limit for each carton, by the control group, the option or the size of the file."""
import concurrent.futures
import contextlib
import os
import re
import subprocess
from pathlib import Path

import pytest
import zstandard

import chunkindex
import harness
from origin import MIB, digest
from tensorfiles import header
from zipwriter import TOML, Carton

pytestmark = pytest.mark.needs_plain_build      # sanitizers take memory of their own


@pytest.fixture
def group(monkeypatch):
    """group(bytes): what is started from then on runs in a control group with that limit."""
    path = harness.memory_group()
    path.mkdir()
    popen = subprocess.Popen

    def confined(cmd, *args, **kw):
        if str(cmd[0]) != harness.CARTONFS:
            return popen(cmd, *args, **kw)
        enter = f'echo $$ >{path}/cgroup.procs && exec "$@"'
        return popen(['sh', '-c', enter, 'sh', *map(str, cmd)], *args, **kw)

    def limit(n):
        (path / 'memory.limit_in_bytes').write_text(str(n))
        monkeypatch.setattr(subprocess, 'Popen', confined)

    yield limit
    monkeypatch.undo()
    for pid in (path / 'cgroup.procs').read_text().split():
        with contextlib.suppress(OSError):
            os.kill(int(pid), 9)
    harness.eventually('the group is empty', lambda: not (path / 'cgroup.procs').read_text())
    path.rmdir()


def packed(path, n):
    """A carton with `n` Deflate files of just under 4 MiB: {path: sha256}."""
    c, random, sums = Carton(), os.urandom(4 * MIB - 100), {}
    for i in range(n):
        data = b'%d' % i + random
        c.add(f'model/{i:03}', data, method='deflate', level=0)
        sums[f'model/{i:03}'] = digest(data)
    c.write(path)
    return sums


@pytest.mark.needs_memory_group
@pytest.mark.parametrize('size', [64 * MIB, 128 * MIB])
def test_small_objects_in_a_control_group(work, mount_fg, group, size):
    sums = packed(work / 'm.carton', size * 3 // 4 // MIB)      # 1.5 times what it may keep
    group(size)
    with mount_fg(work / 'm.carton') as m:
        for path in sums:
            assert m.sha(path) == sums[path]
        for path in reversed(sums):
            assert m.sha(path) == sums[path]


def in_parallel(paths, read):
    with concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
        return list(pool.map(read, paths))


@pytest.mark.needs_memory_group
def test_chunks_are_fetched_in_a_control_group(work, mount_fg, group, nginx):
    """Each is 16 MiB, and is in memory until it is verified: so few at once that there is room."""
    chunk, n = 16 * MIB, 12
    block = os.urandom(chunk - 1)
    data = b''.join(block + bytes([i]) for i in range(n))
    c = Carton(method='stored').add('model/large', data)
    c.add(chunkindex.PATH, chunkindex.index(data, chunk=chunk))
    c.write(nginx.root / 'large.carton')
    group(64 * MIB)
    with mount_fg(nginx.url('large.carton'), '-o', f'cache_dir={work}/cache') as m:
        def last(i):
            fd = os.open(m / 'model/large', os.O_RDONLY)
            try:
                return os.pread(fd, 1, (i + 1) * chunk - 1)
            finally:
                os.close(fd)

        assert in_parallel(range(n), last) == [bytes([i]) for i in range(n)]
        assert m.process.poll() is None


@pytest.mark.needs_memory_group
def test_many_fetches_in_a_control_group(work, mount_fg, group, nginx):
    """Their buffers alone would be 128 MiB."""
    sums = packed(nginx.root / 'many.carton', 64)
    group(64 * MIB)
    with mount_fg(nginx.url('many.carton'), '-o', f'cache_dir={work}/cache') as m:
        assert in_parallel(sums, m.sha) == list(sums.values())
        assert m.process.poll() is None


def test_small_objects_within_the_option(work, mount_fg):
    """So little that most go to the cache, and all are right."""
    sums = packed(work / 'm.carton', 12)
    with mount_fg(work / 'm.carton', '-o', 'memory=9M') as m:
        fds = [os.open(m / path, os.O_RDONLY) for path in sums]
        for path in sums:
            assert m.sha(path) == sums[path]
        for fd in fds:
            os.close(fd)
        assert peak(m.process.pid) < 48 * MIB


DEPTH = 2038                            # directories of one letter that a path has room for


def deep(n, toml):
    """Lines of a MANIFEST for `n` long paths in directories of their own."""
    return ''.join(f'{i:05}/{"a/" * DEPTH}f={digest(toml)}\n' for i in range(n)).encode()


def small_file(path, kind):
    """A carton of less than 1 MiB that means much more."""
    toml, c = TOML, Carton()
    if kind == 'directories':
        c.manifest = b'carton.toml=' + digest(toml).encode() + b'\n' + deep(3900, toml)
    elif kind == 'lines':
        names = [b'%07d' % i for i in range(900000)] + [b'carton.toml']
        c.manifest = b''.join(b'%s=%s\n' % (name, digest(toml).encode()) for name in names)
    elif kind == 'carton.toml':
        c.add('carton.toml', toml + b''.join(b'k%06d=1\n' % i for i in range(900000)))
    elif kind == 'LINKS':
        c.add('LINKS', b'version = 1\n[urls]\n' + b'%s = [%s]\n' % (
            digest(b'').encode(), b'"http://x/",' * 900000), listed=False)
    c.manifest_entry = {'method': 'zstd'}
    c.write(path)
    assert path.stat().st_size < MIB
    return path


@pytest.mark.parametrize('kind', ['directories', 'lines', 'carton.toml', 'LINKS'])
def test_a_small_file_cannot_take_much(work, kind):
    path = small_file(work / 'm.carton', kind)
    limited = ['sh', '-c', 'ulimit -d 131072 && exec "$@"', 'sh']
    p = subprocess.run([*limited, harness.CARTONCTL, 'ls', path],
                       capture_output=True, text=True, env=harness.environment(), timeout=60 * harness.SLOW)
    assert p.returncode == 1
    lines = p.stderr.splitlines()
    assert re.search(r'takes at least \d+ MiB of memory, and the limit is \d+ MiB; '
                     r'.*memory=\d+M$', lines[0]), p.stderr
    assert len(lines) <= 2, p.stderr


def table(text, n):
    """An index.toml of `n` tensors: `text` with the number of each."""
    return b''.join(b'[[tensor]]\nname = "%x"\n' % i + text.replace(b'#', b'%x' % i)
                    for i in range(n))


def lone_header(text):
    return len(text).to_bytes(8, 'little') + text


# What views make of much text in few bytes: {name: (path, content)}.
VIEWS = {
    'tables': lambda: ('tensor_data/index.toml', b'[[tensor]]\n' * 900000),
    'keys': lambda: ('tensor_data/index.toml', b''.join(b'k%x=1\n' % i for i in range(300000))),
    'shapes': lambda: ('tensor_data/index.toml',
                       table(b'shape = [0x#, %s1]\n' % (b'1,' * 62), 99999)),
    'names': lambda: ('tensor_data/index.toml', table(
        b'dtype = "uint8"\nshape = [1]\nfile = "../misc/x"\n', 400000)),
    'inner': lambda: ('tensor_data/index.toml', b'[[tensor]]\nname = "a"\ndtype = "nested"\n'
                      b'inner = [' + b'"b",' * 990000 + b']\n'),
    'string': lambda: ('tensor_data/index.toml', b'x = "\\n' + b'a' * (60 * MIB) + b'"\n'),
    'header': lambda: ('model/w.safetensors', header(
        150000, '{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}')),
    'ranks': lambda: ('model/w.safetensors', header(
        100000, '{"dtype":"U8","shape":[' + '1,' * 63 + '1],"data_offsets":[%d,%d]}')),
    'metadata': lambda: ('model/w.safetensors', lone_header(
        b'{"__metadata__":{' + b','.join(b'"%x":""' % i for i in range(400000)) + b'}}')),
    'text': lambda: ('model/w.safetensors', lone_header(
        b'{"__metadata__":{"a":"' + b'x' * 90000000 + b'"}}')),
}


@pytest.mark.parametrize('kind', VIEWS)
def test_views_of_a_small_file_cannot_take_much(work, mount_fg, kind):
    path, text = VIEWS[kind]()
    c = Carton().add(path, text, method='zstd').add('misc/x', b'1')
    c.write(work / 'm.carton')
    assert (work / 'm.carton').stat().st_size < MIB
    with mount_fg(work / 'm.carton', '-o', f'cache_dir={work}/cache') as m:
        top = m / ('views/' + ('tensor_data' if 'toml' in path else path))
        for _ in range(2):
            assert 'index.json' in os.listdir(top)
        assert peak(m.process.pid) < 128 * MIB


def test_a_window_is_counted(work, mount_fg):
    """A zstd frame may ask for 128 MiB. A small file gets it only if the user allows that."""
    data = b'start' + bytes(150 * MIB)
    params = zstandard.ZstdCompressionParameters.from_level(1, window_log=27)
    frame = zstandard.ZstdCompressor(compression_params=params).compress(data)
    Carton().add('model/x', data, method='zstd', payload=frame).write(work / 'm.carton')
    with mount_fg(work / 'm.carton', '-o', f'cache_dir={work}/cache') as m:
        assert m.error('model/x') == 'EFBIG'
        assert re.search(r'model/x: decoding takes 129 MiB of memory, and the limit for all of this '
                         r'carton is \d+ MiB; .*memory=', m.log())
        assert peak(m.process.pid) < 64 * MIB
    with mount_fg(work / 'm.carton', '-o', f'memory=512M,cache_dir={work}/cache') as m:
        assert m.sha('model/x') == digest(data)


def test_directories_are_counted_exactly(work):
    """What is named as needed is enough, and less is refused before it is allocated."""
    toml, c = TOML, Carton()
    c.manifest = b'carton.toml=' + digest(toml).encode() + b'\n' + deep(50, toml)
    c.write(work / 'm.carton')
    listed = harness.ctl('ls', work / 'm.carton')
    assert listed.returncode == 0 and listed.stdout.count('\n') > 50
    p = harness.ctl('ls', '--memory=4M', work / 'm.carton')
    assert p.returncode == 1
    needed = int(re.search(r'takes at least (\d+) MiB', p.stderr)[1])
    assert harness.ctl('ls', f'--memory={needed - 1}M', work / 'm.carton').returncode == 1
    enough = re.search(r'memory=(\d+M)$', p.stderr.splitlines()[0])[1]
    assert harness.ctl('ls', f'--memory={enough}', work / 'm.carton').stdout == listed.stdout


def test_another_entry_replaces_a_damaged_one(work, mount):
    """Objects are made late, so the other entries of a hash are looked for when one is damaged."""
    data = os.urandom(3000)
    c = Carton().add('model/a', bytes(3000), method='stored', sha=digest(data))
    c.add('model/b', data, method='deflate')
    c.add('model/c', b'1' * 3000, method='stored', sha=digest(data))
    c.add('model/d', b'1' * 2999, method='stored', sha=digest(data))    # another size: alone
    c.write(work / 'm.carton')
    for first in 'abc':
        with mount(work / 'm.carton') as m:
            for name in (first, 'a', 'b', 'c'):
                assert m.read(f'model/{name}') == data
            assert m.error('model/d') == 'EIO'


def peak(pid):
    """The most memory that the process had, in bytes."""
    return int(re.search(r'VmHWM:\s+(\d+) kB', Path(f'/proc/{pid}/status').read_text())[1]) << 10
