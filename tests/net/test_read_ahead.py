# SPDX-License-Identifier: Apache-2.0
"""What is fetched ahead of readers of large files, behind a link."""
import concurrent.futures
import os
import random

import pytest

import chunkindex
import zipwriter
from chunkindex import CHUNK
from origin import MIB
from relay import relay

SIZE = 128 * MIB
NAME = 'model/large'
# what a mount reads at the end of the carton
TAIL = 256 << 10


def content(i, size):
    return random.Random(i).randbytes(size)


@pytest.fixture(scope='module')
def large(nginx):
    """(name, content) of a carton with one large file."""
    data = b''.join(content(i, MIB) for i in range(SIZE // MIB))
    carton = zipwriter.Carton(method='stored').add(NAME, data)
    path = carton.add(chunkindex.PATH, chunkindex.index(data)).write(nginx.root / 'ahead.carton')
    yield path.name, data
    os.unlink(path)


def read_pieces(path, at, size):
    """By reads of 1 MiB."""
    with open(path, 'rb') as f:
        return b''.join(os.pread(f.fileno(), MIB, off) for off in range(at, at + size, MIB))


def test_tensors_at_once(nginx, large, mount, cache):
    """8 readers, each of 8 MiB, need about 5 requests each, and what they did not read is bounded."""
    nginx.clear()
    size = 8 * MIB
    with relay(nginx.port, rtt=20, rate=1000, slow_start=True) as link:
        with mount(f'http://127.0.0.1:{link.port}/{large[0]}', *cache.options) as m:
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                starts = range(0, SIZE, SIZE // 8)
                for at, got in zip(starts, pool.map(lambda at: read_pieces(m / NAME, at, size), starts), strict=True):
                    assert got == large[1][at:at + size]
        assert link.counts()['down'] <= 1.5 * 8 * size
    assert len(nginx.requests(large[0])) <= 60


def test_random_reads(nginx, large, mount, cache):
    """Nothing is fetched ahead of who reads here and there."""
    chunks = random.Random(5).sample(range(0, SIZE // CHUNK, 3), 30)
    with relay(nginx.port, rtt=5) as link, mount(f'http://127.0.0.1:{link.port}/{large[0]}', *cache.options) as m:
        before = link.counts()['down']
        for i in chunks:
            assert chunkindex.pread(m / NAME, 4096, i * CHUNK) == large[1][i * CHUNK:][:4096]
        assert link.counts()['down'] - before <= len(chunks) * (CHUNK + 4096) + 4096


def test_nothing_comes_after_the_last_close(nginx, large, mount, cache):
    """What is under way for a reader ends when nobody has the file open any more."""
    size, others = 12 * MIB, range(32 * MIB, 92 * MIB, 6 * CHUNK)
    with relay(nginx.port, rtt=100, rate=80, slow_start=True) as link:
        with mount(f'http://127.0.0.1:{link.port}/{large[0]}', *cache.options) as m:
            assert read_pieces(m / NAME, 0, size) == large[1][:size]
            # 8 requests were under way, one of 8 MiB; all of it would come beside these 10 MiB
            for at in others:
                assert chunkindex.pread(m / NAME, 4096, at) == large[1][at:at + 4096]
            assert link.counts()['down'] <= size + len(others) * CHUNK + 5 * MIB
            # who comes back gets the rest
            assert read_pieces(m / NAME, size, 4 * MIB) == large[1][size:][:4 * MIB]
