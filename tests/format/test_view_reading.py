# SPDX-License-Identifier: Apache-2.0
"""Views as files: read in parts, by many at once, over corrupt data and over a network."""
import concurrent.futures
import errno
import json
import os
import random
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

import harness
from harness import eventually, run
from origin import PRIVATE, LinkedCarton, errno_of
from tensorfiles import (Tensor, TensorData, every_dtype_and_shape, every_safetensors_dtype,
                         npy_bytes, numeric, reference_file, st, st_bytes)
from viewcheck import (DATA, MIB, check_index, check_values, files_in, index_of, io_read,
                       names_of_walk, write)
from zipwriter import TOML, Carton, Sparse, sha256


# ---- reading ----

def mixed_carton(method):
    """(Carton, {path of a view: its bytes}) of every kind of view that has a body."""
    rng, words = random.Random(13), ['wörd', '', '🥳' * 9, 'x' * 1000] * 700
    td = TensorData(numeric(rng, 'a', 'float64', (50, 1000)), numeric(rng, 'b', 'uint8', (131072,)),
                    numeric(rng, 'c', 'int16', (1,)), numeric(rng, 'd', 'int32', (333, 33)),
                    numeric(rng, 'e', 'uint64', (0,)), Tensor('s', 'string', (len(words),), words))
    td.add(Tensor('n', 'nested', inner=['s', 'b']))
    c = Carton(TOML + b'[[self_test]]\ninputs = {x = "@tensor_data/a", y = "@tensor_data/s", '
               b'z = "@tensor_data/d"}\n', method=method)
    td.put(c)
    body = rng.randbytes(300001)
    header = {'p': {'dtype': 'U8', 'shape': [1], 'data_offsets': [0, 1]},
              'q': {'dtype': 'F32', 'shape': [75000], 'data_offsets': [1, 300001]}}
    c.add('model/w.safetensors', st_bytes(header, body))
    want = {f'tensor_data/{k}': v for k, v in td.views().items()}
    want['tensor_data.safetensors'] = reference_file(td.numeric())
    want['model/w.safetensors/q.bin'] = body[1:]
    want['model/w.safetensors/q.npy'] = npy_bytes(np.frombuffer(body[1:], '<f4'))
    return c, want


@pytest.mark.parametrize('method', ['stored', 'zstd'])
def test_any_offset_and_length(work, mount, method):
    """Reads of any part, with and without the page cache, are parts of the whole."""
    c, want = mixed_carton(method)
    c.write(work / 'm.carton')
    rng = random.Random(17)
    with mount(work / 'm.carton') as m:
        request = m.read('views/triton/self_test-0/request')
        assert len(request) > 500000
        for path, data in (want | {'triton/self_test-0/request': request}).items():
            edges = [0, 1, 63, 64, 127, 128, 129, 4095, 4096, 4097, 131071, 131072, 131073,
                     len(data) - 1, len(data), len(data) + 1]
            fds = [os.open(m / f'views/{path}', os.O_RDONLY | flag) for flag in (0, os.O_DIRECT)]
            for fd in fds:
                assert os.fstat(fd).st_size == len(data)
                for _ in range(100):
                    off = max(0, rng.choice(edges) + rng.randrange(-2, 3)) if rng.random() < .5 \
                        else rng.randrange(len(data) + 10)
                    n = rng.choice([0, 1, 2, 7, 4096, 65536, 131072, 200000, 1 << 20])
                    got = os.pread(fd, n, off)
                    assert got == data[off:off + n], (path, off, n)
                os.close(fd)


@pytest.mark.parametrize('method', ['stored', 'zstd'])
def test_corrupt_data(work, mount, method):
    """A bad file is EIO at open of just the views over it."""
    c, want = mixed_carton(method)
    path = 'tensor_data/t3.bin'         # of d
    raw = bytearray(c.entries[path].data)
    raw[777] ^= 1
    c.change(path, sha=sha256(c.entries[path].data), data=bytes(raw))
    c.write(work / 'm.carton')
    over = {'tensor_data/d.bin', 'tensor_data/d.npy', 'tensor_data.safetensors'}
    with mount(work / 'm.carton') as m:
        assert files_in(m) == {p[12:] for p in want if p.startswith('tensor_data/')}
        for view, data in want.items():
            for _ in range(2):
                if view in over:
                    assert errno_of(os.open, m / f'views/{view}', os.O_RDONLY) == errno.EIO, view
                else:
                    assert m.read(f'views/{view}') == data, view
        assert m.error('views/triton/self_test-0/request') == 'EIO'
        assert m.error('views/triton/self_test-0/headers') == ''
        assert m.error(path) == 'EIO' and m.state(path) == 'corrupt'
        assert index_of(m)['problems'] == []


def test_listing_reads_no_tensor_data(work, mount):
    """ls -lR of all views leaves numeric data unread; the strings are."""
    td = every_dtype_and_shape()
    big = Tensor('big', 'uint8', (300 * MIB,), b'')
    td.list = td.list[::7]
    td.put(Carton(method='stored'))
    td.add(big)
    big.raw = Sparse(300 * MIB)
    big.raw._sums = 0, '00' * 32        # nobody may look
    td.put(c := Carton(method='stored')).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        before = eventually('io', lambda: io_read(m.pids[0]) + 1)
        p = run('ls', '-lR', m / 'views')
        assert p.returncode == 0 and f' {300 * MIB} ' in p.stdout
        assert io_read(m.pids[0]) - before < 10 * MIB
        for t in td.list:
            assert m.state(f'tensor_data/{t.file}') == (
                'verified' if t.dtype == 'string' else 'unverified'), t.name
        assert m.error(f'{DATA}/big.bin') == 'EIO'
    assert c


def test_views_share_the_verified_bytes(work, mount):
    """What a view has verified is verified for the file and all other views, in one copy."""
    data = random.Random(1).randbytes(6 * MIB) + bytes(6 * MIB)
    write(work, Tensor('a', 'uint8', (12 * MIB,), data))
    cache = work / 'cache'
    with mount(work / 'm.carton', '-o', f'cache_dir={cache}') as m:
        assert m.read(f'{DATA}/a.bin') == data
        assert m.state('tensor_data/t0.bin') == 'verified'
        assert [p.name for p in cache.glob('v1/objects/*/*')] == [sha256(data)]
        before = io_read(m.pids[0])
        for path, at in (('a.npy', 128), ('../../tensor_data/t0.bin', 0), ('a.bin', 0)):
            fd = os.open(m / f'{DATA}/{path}', os.O_RDONLY | os.O_DIRECT)
            assert os.pread(fd, 4096, at + 5 * MIB) == data[5 * MIB:5 * MIB + 4096]
            os.close(fd)
        # a few parts: none of them decodes and hashes again
        assert io_read(m.pids[0]) - before < MIB
        assert [p.name for p in cache.glob('v1/objects/*/*')] == [sha256(data)]


def test_replaced_under_the_mount(work, mount):
    """A carton that is overwritten while mounted gives EIO in a view, never other bytes."""
    data = random.Random(1).randbytes(9 * MIB)
    c = TensorData(Tensor('a', 'uint8', (9 * MIB,), data)).put(Carton(method='stored'))
    c.write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        fd = os.open(m / f'{DATA}/a.npy', os.O_RDONLY | os.O_DIRECT)
        assert os.pread(fd, 4096, 128 + 5 * MIB) == data[5 * MIB:5 * MIB + 4096]
        with open(work / 'm.carton', 'r+b') as f:
            f.seek(c.placed['tensor_data/t0.bin'].data + 5 * MIB)
            f.write(b'other')
        assert errno_of(os.pread, fd, 4096, 128 + 5 * MIB) == errno.EIO
        assert os.pread(fd, 4096, 128) == data[:4096]
        os.close(fd)


def read_all(m, want, seed):
    names = sorted(want)
    random.Random(seed).shuffle(names)
    return [n for n in names if m.read('views/' + n) != want[n]]


@pytest.mark.parametrize('method', ['stored', 'zstd'])
def test_concurrent_first_use(work, mount, method):
    """Many readers at once, all of them the first."""
    c, want = mixed_carton(method)
    c.write(work / 'm.carton')
    for round_ in range(3):
        with mount(work / 'm.carton') as m, concurrent.futures.ThreadPoolExecutor(16) as pool:
            jobs = [pool.submit(read_all, m, want, 100 * round_ + i) for i in range(12)]
            walks = [pool.submit(names_of_walk, m / 'views') for _ in range(4)]
            assert [j.result() for j in jobs] == [[]] * 12
            assert len({tuple(w.result()) for w in walks}) == 1


# ---- over a network ----

def linked_carton(fault, td, c=None, also=()):  # noqa: F811
    """A carton whose tensor data (and files in `also`) is at the fault server alone."""
    c = td.put(c or LinkedCarton())
    for path in [p for p in c.entries if p.startswith('tensor_data/t') or p in also]:
        e = c.entries.pop(path)
        name = path.replace('/', '_')
        with open(os.path.join(fault.root, name), 'wb') as f:
            f.write(e.data)
        c.link(path, e.data, fault.url(name, file=name))
    return c


def network_tensors():
    rng = random.Random(19)
    td = TensorData(numeric(rng, 'a', 'float32', (100, 100)),
                    numeric(rng, 'b', 'uint8', (5 * MIB,)),
                    numeric(rng, 'c', 'int64', ()), numeric(rng, 'z', 'int8', (0, 4)),
                    Tensor('s', 'string', (3,), ['a', '🥳', '']))
    return td.add(Tensor('n', 'nested', inner=['s', 'a', 'z']))


def test_linked(work, mount, fault):  # noqa: F811
    """Tensors of LINKS: nothing is asked for before it is needed, and once."""
    td = network_tensors()
    td.list = [t for t in td.list if t.name not in ('s', 'n')]
    linked_carton(fault, td).write(work / 'm.carton')
    with mount(work / 'm.carton', *PRIVATE, '-o', f'cache_dir={work}/cache') as m:
        p = run('ls', '-lR', m / 'views')
        assert p.returncode == 0 and f' {5 * MIB} ' in p.stdout
        assert fault.requests() == [], 'sizes are shape and dtype'
        check_values(m, td)
        check_index(m, td)
        assert m.read('views/tensor_data.safetensors') == reference_file(td.numeric())
        for t in td.list:
            gets = [r for r in fault.requests('tensor_data_' + t.file) if r['method'] == 'GET']
            assert sum(r['sent'] for r in gets) == len(t.data), t.name


def test_linked_strings(work, mount, fault):  # noqa: F811
    td = network_tensors()
    linked_carton(fault, td).write(work / 'm.carton')
    with mount(work / 'm.carton', *PRIVATE, '-o', f'cache_dir={work}/cache') as m:
        check_index(m, td)
        assert {r['path'].rpartition('/')[2] for r in fault.requests()} == {'tensor_data_t4.toml'}
        check_values(m, td)


def test_linked_index_and_all(work, mount, fault):  # noqa: F811
    td = network_tensors()
    linked_carton(fault, td, also=['tensor_data/index.toml']).write(work / 'm.carton')
    with mount(work / 'm.carton', *PRIVATE, '-o', f'cache_dir={work}/cache') as m:
        check_values(m, td)
        check_index(m, td)


def test_linked_of_another_size(work, mount, fault):  # noqa: F811
    """Only the server knows that the file is no tensor of that shape: EIO of its views alone."""
    rng = random.Random(1)
    td = TensorData(numeric(rng, 'good', 'int32', (4,)),
                    Tensor('short', 'int32', (4,), bytes(16), raw=bytes(12)),
                    Tensor('long', 'int32', (4,), bytes(16), raw=bytes(20)),
                    Tensor('none', 'int32', (4,), bytes(16), raw=b''))
    linked_carton(fault, td).write(work / 'm.carton')
    with mount(work / 'm.carton', *PRIVATE, '-o', f'cache_dir={work}/cache') as m:
        assert m.read(f'{DATA}/good.npy') == td.list[0].npy()
        for t in td.list[1:]:
            assert m.error(f'{DATA}/{t.name}.bin') == m.error(f'{DATA}/{t.name}.npy') == 'EIO'
            assert m.read(f'tensor_data/{t.file}') == t.raw
        assert m.error('views/tensor_data.safetensors') == 'EIO'


def test_linked_corrupt(work, mount, fault):  # noqa: F811
    td = network_tensors()
    c = linked_carton(fault, td)
    with open(os.path.join(fault.root, 'tensor_data_t0.bin'), 'r+b') as f:
        f.write(b'other')
    c.write(work / 'm.carton')
    with mount(work / 'm.carton', *PRIVATE, '-o', f'cache_dir={work}/cache') as m:
        assert index_of(m)['problems'] == []
        for view in ('a.bin', 'a.npy', 'n/1.bin', '../tensor_data.safetensors'):
            assert errno_of(os.open, m / f'{DATA}/{view}', os.O_RDONLY) == errno.EIO
        for view in ('b.bin', 'n/0.bin', 'c.npy', 's.npy'):
            assert m.error(f'{DATA}/{view}') == ''


def test_remote(work, mount, fault):  # noqa: F811
    """Behind a URL: the views are the same, and to list them no big tensor is asked for."""
    td = network_tensors()
    td.put(Carton(method='stored')).write(os.path.join(fault.root, 'remote.carton'))
    with mount(fault.url('remote.carton', file='remote.carton'), *PRIVATE,
               '-o', f'cache_dir={work}/cache') as m:
        check_index(m, td)
        assert sum(r['sent'] for r in fault.requests() if r['method'] == 'GET') < 2 * MIB
        check_values(m, td)
        assert m.read('views/tensor_data.safetensors') == reference_file(td.numeric())


# ---- waiting ----

LISTER = '''
import os, signal, sys
def handler(*_): raise KeyboardInterrupt
signal.signal(signal.SIGINT, handler if sys.argv[2] == 'handler' else signal.SIG_DFL)
print('here', flush=True)
try:
    getattr(os, sys.argv[3])(sys.argv[1])
except KeyboardInterrupt:
    sys.exit(7)
except InterruptedError:
    sys.exit(8)
'''


def wchan(p):
    return harness.read_file(f'/proc/{p.pid}/wchan')


def asks(p):
    """Does the process wait for an answer of FUSE?"""
    return b'request_wait' in wchan(p)


def blocked(p):
    """It waits for the mount: for an answer, or behind another who does."""
    eventually('it waits', lambda: asks(p) or re.search(b'fuse|d_alloc', wchan(p)))


def lister(path, how='default', call='listdir'):
    """A process that is about to list a directory; on SIGINT it ends in one of two ways."""
    p = subprocess.Popen([sys.executable, '-c', LISTER, path, how, call], stdout=subprocess.PIPE)
    assert p.stdout.readline() == b'here\n'
    return p


def end(*processes):
    for p in processes:
        p.kill()
    for p in processes:
        p.wait(harness.EXIT_S * harness.SLOW)
        p.stdout.close()


@pytest.fixture
def stalled(work, mount_fg, fault):  # noqa: F811
    """A mount where listing views/tensor_data waits for a server that never answers."""
    td = network_tensors()
    c = linked_carton(fault, td)
    words = next(t for t in td.list if t.name == 's')
    c.linked.pop('tensor_data/' + words.file)
    c.link('tensor_data/' + words.file, b'never seen', fault.url('silence', silent=1))
    header, data = every_safetensors_dtype()
    c.add('model/w.safetensors', st_bytes(header, data))
    c.write(work / 'm.carton')
    with mount_fg(work / 'm.carton', *PRIVATE, '-o', f'cache_dir={work}/cache') as m:
        yield m


@pytest.mark.parametrize('call', ['listdir', 'stat'])
@pytest.mark.parametrize('how', ['handler', 'default'])
def test_interrupt_a_listing(stalled, how, call):
    """
    SIGINT ends it at once. Of several, the kernel lets one ask and the others wait behind it,
    unless libfuse (from 3.17 on) tells it otherwise; so each of them in its turn.
    """
    m = stalled
    path = DATA if call == 'listdir' else DATA + '/a.bin'
    listers = [lister(m / path, how, call) for _ in range(3)]
    try:
        for p in listers:
            blocked(p)
        waiting = listers[:]
        while waiting:
            first = eventually('one asks', lambda: [p for p in waiting if asks(p)])[0]
            with harness.at_once(harness.STALL):
                first.send_signal(signal.SIGINT)
                assert first.wait() in (7, 8, -signal.SIGINT)
            waiting.remove(first)
        assert m.read('carton.toml') == TOML
    finally:
        end(*listers)


def test_a_listing_that_waits_holds_up_nothing_else(stalled):
    """Other views are made, listed and read meanwhile."""
    m = stalled
    p = lister(m / DATA)
    blocked(p)
    reader = lister(m / 'views/model/w.safetensors')
    try:
        assert reader.wait(5 * harness.SLOW) == 0
        assert m.error('views/tensor_data.safetensors') == ''
    finally:
        end(p, reader)


def test_end_while_a_listing_waits(stalled):
    m = stalled
    p = lister(m / DATA)
    blocked(p)
    m.process.send_signal(signal.SIGTERM)
    assert m.process.wait(harness.EXIT_S * harness.SLOW) == 0, m.log()
    end(p)
    eventually('unmounted', m.gone)
    m.ended = True


def away(fault, path):  # noqa: F811
    """The server does not have it, until the function that is returned is called."""
    real = os.path.join(fault.root, path.replace('/', '_'))
    os.rename(real, real + '.away')
    return lambda: os.rename(real + '.away', real)


def test_unreachable_strings(work, mount, fault):  # noqa: F811
    """Strings that cannot be had hide nothing else; they are there as soon as their server is."""
    td = network_tensors()
    td.add(Tensor('m', 'string', (2,), ['x', 'y']))
    linked_carton(fault, td).write(work / 'm.carton')
    back = away(fault, 'tensor_data/t4.toml')
    rest = [t for t in td.list if t.name not in ('s', 'n')]
    with mount(work / 'm.carton', *PRIVATE, '-o', f'cache_dir={work}/cache,timeout=5') as m:
        assert set(os.listdir(m / DATA)) == {'index.json', 's.bin', 'n', 'm.bin', 'm.npy'} | {
            f'{t.name}.{e}' for t in rest for e in ('bin', 'npy')}
        for t in rest:
            assert m.read(f'{DATA}/{t.name}.bin') == t.bin()
        assert m.read('views/tensor_data.safetensors') == reference_file(td.numeric())
        index = json.loads(m.read(f'{DATA}/index.json'))
        known = {t['name']: t['bytes'] for t in index['tensors']}
        assert known == {t.name: len(t.bin()) for t in rest} | {'s': None, 'n': None}
        problem, = index['problems']
        assert problem['name'] == 's' and 'cannot be read now' in problem['problem']
        for path in ('s.bin', 'n/0.bin'):
            assert errno_of(os.stat, m / f'{DATA}/{path}') and errno_of(m.read, f'{DATA}/{path}')
        back()
        s = next(t for t in td.list if t.name == 's')
        for path in ('s.bin', 'n/0.bin'):
            assert os.stat(m / f'{DATA}/{path}').st_size == len(s.bin())
            assert m.read(f'{DATA}/{path}') == s.bin()
        assert m.read(f'{DATA}/n/1.bin') == td.list[0].bin()
    with mount(work / 'm.carton', *PRIVATE, '-o', f'cache_dir={work}/cache') as m:
        check_values(m, td)
        check_index(m, td)


def two_of_strings():
    return TensorData(Tensor('a', 'uint8', (2,), b'ab'), Tensor('s', 'string', (1,), ['x']),
                      Tensor('t', 'string', (1,), ['y']))


def test_two_unreachable_strings(work, mount, fault):  # noqa: F811
    """Each is waited for once, and both are told of."""
    td = two_of_strings()
    linked_carton(fault, td).write(work / 'm.carton')
    for t in td.list[1:]:
        away(fault, f'tensor_data/{t.file}')
    with mount(work / 'm.carton', *PRIVATE, '-o', f'cache_dir={work}/cache') as m:
        assert {'s.bin', 't.bin', 'a.bin'} < set(os.listdir(m / DATA))
        problems = json.loads(m.read(f'{DATA}/index.json'))['problems']
        assert [p['name'] for p in problems] == ['s', 't']
        assert [p for p in problems if 'cannot be read now' not in p['problem']] == []


def test_strings_hold_up_no_other_view(work, mount, fault):  # noqa: F811
    """While the strings of one view are waited for, another is filled."""
    td = two_of_strings()
    toml = TOML + b'[[self_test]]\ninputs.a = "@tensor_data/a"\n'
    c = td.put(LinkedCarton(toml=toml))
    path = f'tensor_data/{td.list[1].file}'
    c.link(path, c.entries.pop(path).data, fault.url('s', silent=1))
    c.write(work / 'm.carton')
    with mount(work / 'm.carton', *PRIVATE, '-o', f'cache_dir={work}/cache,timeout=8') as m:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            listing = pool.submit(os.listdir, m / DATA)
            eventually('it is asked for', lambda: fault.requests('s'))
            assert os.listdir(m / 'views/triton/self_test-0')
            assert not listing.done()
            assert errno_of(listing.result) in (0, errno.ETIMEDOUT)


def test_unreachable_index(work, mount, fault):  # noqa: F811
    """Without the index nobody knows the tensors of tensor_data; other views need it not."""
    td, data = network_tensors(), st_bytes({'t': st()}, b'x')
    c = linked_carton(fault, td, also=('tensor_data/index.toml',))
    c.add('model/w.safetensors', data).write(work / 'm.carton')
    back = away(fault, 'tensor_data/index.toml')
    with mount(work / 'm.carton', *PRIVATE, '-o', f'cache_dir={work}/cache,timeout=5') as m:
        assert sorted(os.listdir(m / 'views')) == ['.cartonfs-views', 'model', 'tensor_data']
        assert m.read('views/model/w.safetensors/t.bin') == b'x'
        assert errno_of(os.listdir, m / DATA)
        back()
        check_values(m, td)
        check_index(m, td)
