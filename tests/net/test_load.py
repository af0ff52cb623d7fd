# SPDX-License-Identifier: Apache-2.0
"""What a server is asked for: overloaded ones, ranges that caches like, redirects to signed URLs."""
import os
import re
import time
from collections import Counter
from json import loads as parse

import pytest

import chunkindex
import harness
from harness import PACE, ctl, problems
from hub import Hub
from origin import MIB, PRIVATE, LinkedCarton, as_expected, fault_bytes, lines_of
from zipwriter import Carton

KIB = 1 << 10


def rng(size, seed):
    return fault_bytes(size, seed=seed)


def fetch(source, cache, *options, **kw):
    p = ctl('fetch', cache.flag, '--private-links', *options, source, timeout=120, **kw)
    assert p.returncode == 0, p.stderr
    return p


def drop(cache):
    for path in cache.objects().values():
        path.unlink()


# ---- overloaded servers ----

def many(nginx):
    c = Carton(method='stored').add('model/large', rng(100 * MIB, 1))
    for i in range(100):
        c.add(f'model/f{i}', rng(300000, i), method='stored')
    c.write(nginx.root / 'many.carton')


def sent(nginx, *statuses):
    return sum(r['sent'] for r in nginx.requests() if not statuses or r['status'] in statuses)


@pytest.mark.parametrize('where, status', [('limited', 503), ('narrow', 429)])
def test_limited_server(nginx, cache, where, status):
    """It refuses few, is asked for each byte once in smaller pieces, and two lines are logged each time."""
    many(nginx)
    fetch(nginx.url('many.carton'), cache)
    free, size = len(nginx.requests()), sent(nginx)
    drop(cache)
    nginx.clear()
    before = time.monotonic()
    p = fetch(nginx.url(f'{where}/many.carton'), cache)
    took = time.monotonic() - before
    seen = Counter(r['status'] for r in nginx.requests())
    assert seen[status] > 0 and set(seen) == {206, status}
    # of 16 at once, 8 of them pieces of the large file, the server takes 2: the limit is halved three times, and may
    # then rise by one after each 16 right answers
    refused = 14 + 6 + 2 + free // 16
    assert sent(nginx, 206) <= 1.01 * size and seen[status] <= refused and seen[206] <= 1.5 * free, (seen, free)
    # some seconds without a refusal end an incident: a busy machine, which takes longer, may have more than one
    lines = problems(p).splitlines()
    assert 2 <= len(lines) <= 2 * (1 + took // PACE['calm']), (took, lines)
    assert all(f'many.carton: the server is overloaded (status {status})' in line for line in lines[::2]), lines
    again = [int(re.search(r': was overloaded: (\d+) request', line)[1]) for line in lines[1::2]]
    assert sum(again) == seen[status], lines


@pytest.mark.parametrize('json', [[], ['--json']])
@pytest.mark.parametrize('damaged', [False, True])
def test_verify_of_an_overloaded_server(fault, cache, tmp_path, damaged, json):
    """A server that is overloaded for a while is no problem of the carton: stderr says so, and nothing else."""
    data = fault_bytes(1000)
    c = LinkedCarton().link('model/x', data, fault.url('x', size=1000, fail='1:429', retryafter=1, flip=7)
                            if damaged else fault.url('x', size=1000, fail='1:429', retryafter=1))
    p = ctl('verify', cache.flag, '--private-links', *json, c.write(tmp_path / 'm.carton'))
    assert p.returncode == (2 if damaged else 0), p
    assert len(lines_of(p.stderr, 'overloaded')) == 2 and 'overloaded' not in p.stdout, p
    if json:
        assert parse(p.stdout)['ok'] is not damaged and bool(parse(p.stdout)['problems']) is damaged, p
    else:
        assert p.stdout.startswith('ok: ') is not damaged, p


def test_one_pause_for_all(fault, cache, tmp_path):
    """Retry-After of one request holds for all to that server: nothing is sent before."""
    pause = 2
    c = LinkedCarton()
    for i in range(10):
        c.link(f'model/{i}', fault_bytes(1000, seed=i),
               fault.url('busy' if i == 0 else f'f{i}', size=1000, seed=i,
                         **(dict(fail='1:429', retryafter=pause, n=0) if i == 0 else dict(delay=300))))
    p = fetch(c.write(tmp_path / 'm.carton'), cache)
    asked = fault.requests()
    refused = next(i for i, r in enumerate(asked) if r['status'] == 429)
    times = [r['began'] for r in asked]
    later = [t for t in times if t > times[refused] + 0.5]
    assert later and min(later) >= times[refused] + pause, times
    assert len(lines_of(p.stderr, 'overloaded')) == 2


def test_until_the_timeout(fault, cache, mount_fg):
    """A server that stays overloaded: tried again until then, and no longer."""
    timeout = 3
    c = Carton(method='stored').add('model/x', rng(9 * MIB, 3))
    c.write(fault.root + '/late.carton')
    fault.clear()
    with mount_fg(fault.url('late.carton', file='late.carton'), *cache.options,
                  '-o', f'timeout={timeout}') as m:
        assert m.error('model/x') == ''
    drop(cache)
    before = time.monotonic()
    p = ctl('info', fault.url('x', fail='9999:503'), cache.flag, f'--timeout={timeout}')
    took = time.monotonic() - before
    assert p.returncode and took > timeout / 2, p.stderr
    assert 'overloaded until the timeout' in p.stderr
    assert 2 < len(fault.requests('x')) < 100


# ---- ranges ----

def ranges(requests):
    return sorted(tuple(map(int, r['range'].removeprefix('bytes=').split('-'))) for r in requests)


@pytest.mark.parametrize('size', [100 * MIB + 77777, 5 * MIB, 1000, 0])
def test_ranges_of_a_link(nginx, cache, tmp_path, size):
    """Every byte once, from the first request on by ranges, which are aligned to their size."""
    data = rng(size, 5)
    c = LinkedCarton().link('model/x', data, nginx.put('x', data))
    nginx.clear()
    fetch(c.write(tmp_path / 'm.carton'), cache)
    got = nginx.requests('x')
    assert sum(r['sent'] for r in got if r['status'] < 400) == size
    if size == 0:
        return
    assert [r for r in got if not r['range']] == []
    parts = ranges(got)
    assert parts[0][0] == 0 and all(r['status'] == 206 for r in got)
    if size > 8 * MIB:
        for first, last in parts[1:-1]:
            n = last + 1 - first
            assert n & (n - 1) == 0 and first % n == 0 and n >= 256 * KIB, (first, last)
        assert len({r['conn'] for r in got}) <= 8


# ---- redirects to signed URLs ----

def hub_carton(tmp_path):
    c = Carton(method='stored').add('model/x', rng(60 * MIB, 7)).add('model/y', rng(20 * MIB, 8))
    c.write(tmp_path / 'hub.carton')
    return c, (tmp_path / 'hub.carton').read_bytes()


def test_redirect_is_kept(mount, cache, tmp_path):
    """One resolve for a whole carton; what is secret stays with the hub."""
    c, data = hub_carton(tmp_path)
    header = tmp_path / 'token'
    header.write_text('Authorization: Bearer hf_secret\n')
    with Hub({'m.carton': data}) as hub:
        with mount(hub.url('m.carton'), *cache.options, '-o', f'header_file={header}') as m:
            as_expected(m, c)
        assert [s for _, s in hub.resolves] == ['Bearer hf_secret']
        assert len(hub.parts) > 10 and set(hub.secrets) == {None}


def test_redirect_of_a_link_is_kept(mount, cache, tmp_path):
    data = rng(60 * MIB, 7)
    with Hub({'x': data}) as hub:
        c = LinkedCarton().link('model/x', data, hub.url('x'))
        with mount(c.write(tmp_path / 'm.carton'), *PRIVATE, *cache.options) as m:
            as_expected(m, c)
        # for its size, and for its bytes
        assert len(hub.resolves) <= 2 and len(hub.parts) > 10


@pytest.mark.parametrize('ttl', [1, 1000])
def test_signed_urls_that_expire(mount, cache, tmp_path, ttl):
    """One resolve for each expiry, from a slow server: the bytes are right."""
    c, data = hub_carton(tmp_path)
    with Hub({'m.carton': data}, ttl=ttl, rate=2 * MIB) as hub:
        before = time.time()
        with mount(hub.url('m.carton'), *cache.options) as m:
            as_expected(m, c)
        took = time.time() - before
        # its URL is left a tenth of its life before the end
        assert len(hub.resolves) <= 2 + took / (ttl * 0.9)
        assert ttl > took or len(hub.resolves) > 1


@pytest.mark.parametrize('status', [401, 403, 404, 410, 500, 503])
def test_final_url_that_fails(mount, cache, tmp_path, status):
    """Then the first one is asked again, once."""
    c, data = hub_carton(tmp_path)
    with Hub({'m.carton': data}, dead=lambda n: status if n == 12 else 0) as hub:
        with mount(hub.url('m.carton'), *cache.options) as m:
            as_expected(m, c)
        assert len(hub.resolves) == 2 and len(set(hub.parts)) == 2, hub.parts


def test_final_url_that_fails_before_its_first_byte(mount, cache, tmp_path):
    """A second request of the same try, since the file cannot be split, begins at the final URL; then at the first."""
    data = rng(MIB, 7)
    with Hub({'x': data}, dead=lambda n: 403 if n == 1 else 0, etag='W/"weak"') as hub:
        c = LinkedCarton().link('model/x', data, hub.url('x'))
        with harness.at_once():
            fetch(c.write(tmp_path / 'm.carton'), cache)
        assert len(hub.resolves) == 2 and len(hub.parts) == 3


CHUNKED = 'model/large'


def chunked_at(hub, tmp_path, data):
    """A local carton, one large file of which LINKS says is at the hub, and the index has its chunks."""
    c = LinkedCarton(method='stored').link(CHUNKED, data, hub.url('x'))
    return c.add(chunkindex.PATH, chunkindex.index(data)).write(tmp_path / 'm.carton')


def read_chunks(m, data, numbers):
    for i in numbers:
        off = i * chunkindex.CHUNK + i
        with open(m / CHUNKED, 'rb') as f:
            assert os.pread(f.fileno(), 100, off) == data[off:off + 100]


def test_chunks_go_to_the_final_url(mount, cache, tmp_path):
    """One resolve for all chunks of a file, however they are read; none is needed for its size."""
    data = rng(16 * MIB, 7)
    with Hub({'x': data}) as hub:
        with mount(chunked_at(hub, tmp_path, data), *PRIVATE, *cache.options) as m:
            read_chunks(m, data, [40, 3, 17, 9, 60])
            assert len(hub.parts) >= 5 and len(hub.resolves) == 1
            assert m.read(CHUNKED) == data
        assert len(hub.resolves) == 1 and len(set(hub.parts)) == 1


@pytest.mark.parametrize('status', [200, 400, 401, 403, 404, 410, 416, 500, 503])
def test_final_url_of_chunks_fails(mount_fg, cache, tmp_path, status):
    """Then the first one is asked again, once, and nothing is logged."""
    data = rng(16 * MIB, 7)
    with Hub({'x': data}, dead=lambda n: status if n == 3 else 0) as hub:
        with mount_fg(chunked_at(hub, tmp_path, data), *PRIVATE, *cache.options) as m:
            with harness.at_once():
                read_chunks(m, data, [40, 3, 17, 9, 60])
            assert len(hub.resolves) == 2 and len(set(hub.parts)) == 2, hub.parts
            assert m.read(CHUNKED) == data
            assert len(hub.resolves) == 2 and not lines_of(m.log(), 'hub/x')


def test_final_url_of_chunks_expires(mount, cache, tmp_path):
    """One resolve for each expiry."""
    data = rng(16 * MIB, 7)
    with Hub({'x': data}, ttl=1, rate=4 * MIB) as hub:
        before = time.time()
        with mount(chunked_at(hub, tmp_path, data), *PRIVATE, *cache.options) as m:
            # backwards: each chunk is a request
            for at in range(len(data) - 1, 0, -256 * KIB):
                assert chunkindex.pread(m / CHUNKED, 1, at) == data[at:at + 1]
            assert m.read(CHUNKED) == data
        assert 1 < len(hub.resolves) <= 2 + (time.time() - before) / .9


def test_addresses_at_each_hop(cache, tmp_path):
    """A URL of LINKS may not lead to a private address, at the first request or later."""
    data = rng(20 * MIB, 7)
    with Hub({'x': data}) as hub:
        c = LinkedCarton().link('model/x', data, hub.url('x'))
        p = ctl('fetch', cache.flag, c.write(tmp_path / 'm.carton'))
        assert p.returncode and 'loopback address' in p.stderr
        assert not hub.resolves and not hub.parts
