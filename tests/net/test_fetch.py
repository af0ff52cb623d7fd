# SPDX-License-Identifier: Apache-2.0
"""cartonctl fetch: packed entries of a remote carton are resumed, and nothing that was kept is trusted."""
import os
import random
import signal
import subprocess

import pytest

import harness
from harness import CARTONCTL, ctl, eventually
from origin import MIB, PRIVATE, digest, lines_of
from zipwriter import Carton

SIZE = 24 * MIB


def rng_bytes(n, seed=0):
    return random.Random(seed).randbytes(n)


# ---- packed entries of a remote carton ----

DATA = rng_bytes(SIZE)


def packed(fault, method, rate=6 * MIB):
    """A URL of a carton whose only large entry is packed, as large as its content."""
    Carton(method='stored').add('model/x', DATA, method=method).write(os.path.join(fault.root, 'p.carton'))
    return fault.url('p.carton', file='p.carton', rate=rate)


def sent(fault):
    return sum(r['sent'] for r in fault.requests('p.carton'))


def interrupted(source, cache, sig=signal.SIGKILL):
    """A fetch that ends in the middle. Returns how many bytes are noted, and the file that has them."""
    p = subprocess.Popen([CARTONCTL, 'fetch', '--connections=2', cache.flag, source],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=harness.environment())
    eventually('a part is noted', lambda: max(cache.partials().values(), default=0) >= 6 * MIB, 30)
    p.send_signal(sig)
    assert p.wait() == -sig
    (name, noted), = [(n, v) for n, v in cache.partials().items() if v]
    assert noted < SIZE and name != digest(DATA)
    return noted, cache.path / 'v1/partial' / name


def all_there(cache):
    assert harness.sha_file(cache.objects()[digest(DATA)]) == digest(DATA)
    assert cache.partials() == {} and not list(cache.path.glob('v1/partial/*'))
    cache.check()


@pytest.mark.parametrize('method', ['zstd', 'deflate'])
@pytest.mark.parametrize('sig', [signal.SIGKILL, signal.SIGTERM])
def test_packed_entry_is_resumed(fault, cache, method, sig):
    """What has come stays, byte by byte; it is gone when all is decoded."""
    url = packed(fault, method)
    noted, _ = interrupted(url, cache, sig)
    cache.check()
    fault.clear()
    p = ctl('fetch', cache.flag, url)
    assert p.returncode == 0, p.stderr
    assert SIZE - noted <= sent(fault) < SIZE - noted + MIB
    all_there(cache)


def test_packed_entry_is_resumed_by_a_mount(fault, cache, mount):
    url = packed(fault, 'zstd')
    noted, _ = interrupted(url, cache)
    fault.clear()
    with mount(url, *PRIVATE, *cache.options) as m:
        assert m.read('model/x') == DATA
    assert sent(fault) < SIZE - noted + MIB
    all_there(cache)


@pytest.mark.parametrize('at', [0, 5000, 4 * MIB], ids=['header', 'start', 'middle'])
@pytest.mark.parametrize('method', ['zstd', 'deflate'])
def test_kept_part_is_tampered_with(fault, cache, mount, method, at):
    """It is found out by the hash of what is decoded, said, and all comes once more from the server."""
    url = packed(fault, method)
    _, part = interrupted(url, cache)
    with open(part, 'r+b') as f:
        f.seek(at)
        f.write(b'damaged')
    fault.clear()
    p = ctl('fetch', cache.flag, url)
    assert p.returncode == 0 and lines_of(p.stderr, 'fetched again'), p.stderr
    assert sent(fault) > SIZE
    all_there(cache)
    with mount(url, *PRIVATE, *cache.options) as m:
        assert m.read('model/x') == DATA


def test_kept_part_is_cut(fault, cache):
    """Less is there than was noted: only that counts."""
    url = packed(fault, 'zstd')
    _, part = interrupted(url, cache)
    os.truncate(part, MIB)
    fault.clear()
    p = ctl('fetch', cache.flag, url)
    assert p.returncode == 0 and p.stderr == '', p.stderr
    assert SIZE - MIB <= sent(fault) < SIZE
    all_there(cache)


@pytest.mark.parametrize('note', ['etag', 'longer'])
def test_kept_part_of_another_version(fault, cache, note):
    """Nothing of it is used: neither where the carton has changed, nor where more is noted than there can be."""
    url = packed(fault, 'zstd')
    _, part = interrupted(url, cache)
    side = part.with_suffix('.v')
    if note == 'etag':
        os.utime(os.path.join(fault.root, 'p.carton'), (1, 1))
    else:
        side.write_bytes(side.read_bytes()[:8] + (99 * MIB).to_bytes(8, 'little') + side.read_bytes()[16:])
        os.truncate(part, 99 * MIB)
    fault.clear()
    p = ctl('fetch', cache.flag, url)
    assert p.returncode == 0 and p.stderr == '', p.stderr
    assert sent(fault) >= SIZE
    all_there(cache)


def test_kept_part_is_no_use_where_nothing_is_verified(fault, cache, mount):
    url = packed(fault, 'zstd')
    _, part = interrupted(url, cache)
    with open(part, 'r+b') as f:
        f.seek(4 * MIB)
        f.write(b'damaged')
    fault.clear()
    with mount(url, *PRIVATE, *cache.options, '-o', 'verify=off') as m:
        assert m.read('model/x') == DATA
    assert sent(fault) > SIZE and part.exists()
