# SPDX-License-Identifier: Apache-2.0
"""LINKS: every coding and size from any URL, failover, sizes, and what is refused."""
import errno
import mmap
import os
import random
import subprocess
import time

import pytest

import harness
from harness import ctl, expected, scan
from origin import (COMPRESS, MIB, PRIVATE, LinkedCarton, as_expected, digest, errno_of,
                    fault_bytes, lines_of, needs_root, nginx_at)

CODINGS = ['identity', 'gzip', 'deflate', 'rawdeflate', 'br', 'zstd']
BIG = 96 * MIB
N = 100000                              # bytes of a file where any number will do


def gets(fault, name):
    """The requests for a file's bytes: not those that ask for its size."""
    return [r for r in fault.requests(name) if r['method'] == 'GET' and
            r['h'].get('range') != 'bytes=0-0']


def carton_of(work, name='m.carton', **files):
    """A carton whose model/NAME are linked: {name: (data, url, …)}."""
    c = LinkedCarton()
    for path, (data, *urls) in files.items():
        c.link('model/' + path, data, *urls)
    c.add('misc/local', b'in the carton\n')
    c.write(work / name)
    return c


@pytest.fixture
def linked(work, mount_fg, cache):
    """linked(*options, **files) -> (mount, carton) of carton_of(), with a cache."""
    stack = []

    def make(*options, **files):
        c = carton_of(work, **files)
        context = mount_fg(work / 'm.carton', *PRIVATE, *cache.options, *options)
        stack.append(context)
        return context.__enter__(), c
    yield make
    for context in reversed(stack):
        context.__exit__(None, None, None)


def test_libcurl_is_loaded_when_needed(linked, fault, mount, sample_carton):
    """It and what it depends on take longer to load than a local carton to mount."""
    data = fault_bytes(N)
    m, c = linked(x=(data, fault.url('good', size=N)))
    as_expected(m, c)
    with mount(sample_carton[0]) as local:
        maps = [harness.read_file(f'/proc/{pid}/maps') for pid in (m.pids[0], local.pids[0])]
    assert [b'/libcurl' in text for text in maps] == [True, False]
    assert not [text for text in maps if b'/libarchive.so' in text]


# ---- the matrix ----


@pytest.mark.parametrize('which', ['first', 'second'])
@pytest.mark.parametrize('size', [0, 1, MIB])
@pytest.mark.parametrize('coding', CODINGS)
def test_codings(linked, fault, refusing, coding, size, which):
    data = fault_bytes(size, seed=size + 1)
    kw = {} if coding == 'identity' else dict(enc=coding)
    urls = [fault.url('x', size=size, seed=size + 1, **kw)]
    if which == 'second':
        urls.insert(0, refusing)
    m, c = linked(x=(data, *urls))
    assert m.read('model/x') == data
    # the first request asks for a range: of an empty file there is none, and a part of coded bytes is of no use
    refused = [206] if kw else [416] if size == 0 else []
    assert [r['status'] for r in gets(fault, 'x')] == [*refused, 200]
    as_expected(m, c)
    assert m.state('model/x') in ('verified', 'sealed')     # another test may have fetched the same


@pytest.mark.parametrize('more', [{}, dict(chunked=1)], ids=str)
@pytest.mark.parametrize('size', [10, 3 * MIB])
@pytest.mark.parametrize('enc', ['gzips', 'gzipz'])
def test_gzip_of_many_members(linked, fault, enc, size, more):
    """Legal, and more than libcurl reads; zeros behind the last one are padding."""
    data = fault_bytes(size, seed=2)
    m, c = linked(x=(data, fault.url('x', size=size, seed=2, enc=enc, **{'as': 'gzip'}, **more)),
                  y=(data[1:], fault.url('y', size=size, enc=enc, flipwire=200 if size > 10
                                         else 25, **{'as': 'gzip'}),
                     fault.url('z', file='z')))
    with open(os.path.join(fault.root, 'z'), 'wb') as f:
        f.write(data[1:])
    as_expected(m, c)
    assert 1 <= len(gets(fault, 'x')) <= 3


@pytest.fixture(scope='module')
def big_body(nginx):
    """sha256 of 96 MiB, mostly zeros, at /big and coded at /as-CODING/big."""
    rng, zeros = random.Random(7), bytes(252 << 10)
    data = b''.join(rng.randbytes(4096) + zeros for _ in range(BIG // (256 << 10)))
    with open(nginx.root / 'big', 'wb') as f:
        f.write(data)
    for name, compress in COMPRESS.items():
        nginx.put(f'as-{name}/big', compress(data))
    return digest(data)


@pytest.mark.big
@pytest.mark.parametrize('coding', ['identity', *COMPRESS])
def test_big_codings(linked, nginx, refusing, big_body, coding):
    path = 'big' if coding == 'identity' else f'as-{coding}/big'
    urls = [refusing, nginx.url(path)]
    m, _ = linked(big=((BIG, big_body), *urls))
    assert m.sha('model/big') == big_body
    assert os.stat(m / 'model/big').st_size == BIG
    asked = nginx.requests('big')
    if coding == 'identity':
        ranges = [r for r in asked if r['status'] == 206]
        assert len({r['conn'] for r in ranges}) > 1, 'several connections at once'
        assert sum(r['sent'] for r in ranges) == BIG, 'each byte once'
    else:
        assert [r['coding'] for r in asked if r['status'] == 200 and r['sent'] > 0] == [coding]


def test_real_server_codings(linked, nginx):
    """What nginx compresses on the fly, because our request says that we can read it."""
    data = b'a line of text that is worth compressing\n' * 5000
    nginx.put('text', data)
    c = {p: (data + p.encode(), nginx.put(f'{p}-text', data + p.encode()).replace(
        f'/{p}-text', f'/{p}/{p}-text')) for p in ('gzip', 'br')}
    m, carton = linked(**c)
    for p in c:
        assert m.read('model/' + p) == data + p.encode()
        got = [r for r in nginx.requests(f'{p}-text') if r['method'] == 'GET']
        assert [r['coding'] for r in got] == [p] and got[0]['sent'] < 20000
        assert 'gzip' in got[0]['accept'] and 'zstd' in got[0]['accept']
    as_expected(m, carton)


# ---- failover ----

# what goes wrong at the first URL; a stall takes ten seconds: test_stuck.py has those
FAILURES = {
    'refuse': dict(refuse=1), 'eof': dict(eof=1), 'garbage': dict(garbage=1),
    'reset': dict(reset=5000), 'truncate': dict(truncate=5000), 'extra': dict(long=5),
    'shorter': dict(length=N // 2, truncate=N // 2), '404': dict(status=404),
    '403': dict(status=403), '500': dict(status=500), '503': dict(status=503),
    '429': dict(status=429), '400': dict(status=400), 'flip': dict(flip=77),
    'flip in gzip': dict(enc='gzip', flip=77),
    'broken gzip': dict(enc='gzip', flipwire=2000), 'cut gzip': dict(enc='gzip', truncate=3000),
    'double': dict(enc='gzip,gzip'), 'loop': dict(loop=1), 'hops': dict(hops=6),
    'partial': dict(status=206), 'too many headers': dict(headers=300),
    'large header': dict(headersize=70000),
}


@pytest.mark.parametrize('kind', FAILURES)
def test_failover(linked, fault, kind):
    """One bad URL costs time, nothing else; the good one is asked first from then on."""
    data, other = fault_bytes(N), fault_bytes(N, seed=1)
    bad = fault.url('bad', size=N, **FAILURES[kind])
    m, c = linked(x=(data, bad, fault.url('good', size=N)),
                  y=(other, fault.url('good', size=N, seed=1)))
    with harness.at_once(harness.STALL):
        assert m.read('model/x') == data
    assert fault.requests('bad') and len(gets(fault, 'good')) == 1
    # one that gives parts of coded bytes was asked for the size only
    only_size = all(r['h'].get('range') == 'bytes=0-0' for r in gets(fault, 'bad'))
    coded = 'enc' in FAILURES[kind] or 'as' in FAILURES[kind]
    assert lines_of(m.log(), 'bad') or (coded and only_size), 'the failure is logged'
    as_expected(m, c)


@pytest.mark.parametrize('bad', ['ftp://mirror.example/x', 'file:///srv/x', 'htps://host/x', 'http:/host/x',
                                 'nothing', 's3://', 'http://', 'HTTPS://[::1', 'http://a b/',
                                 'http://127.0.0.1:99999/'])
def test_url_that_nobody_can_ask(linked, fault, work, bad):
    """It counts as one that fails; where it is the only one, the file has none."""
    data = fault_bytes(10)
    m, c = linked(x=(data, bad, fault.url('good', size=10), bad))
    assert len(lines_of(m.log(), r'warning: LINKS: line 3: .*"model/x" is fetched from its other URLs')) == 1, m.log()
    as_expected(m, c)
    p = ctl('repack', work / 'm.carton', work / 're.carton')
    assert len(lines_of(p.stderr, 'fetched from its other URLs')) == 1, p.stderr
    carton_of(work, 'alone.carton', x=(data, bad))
    p = ctl('ls', work / 'alone.carton', check=False)
    assert p.returncode == 1 and 'LINKS: line 3: ' in p.stderr and 'needed by "model/x"' in p.stderr


def test_good_url_comes_first(linked, fault, cache):
    """The one that worked last is asked first, and the others not at all."""
    data = fault_bytes(N)
    m, _ = linked(x=(data, fault.url('bad', size=N, status=500), fault.url('good', size=N)))
    assert m.read('model/x') == data
    fault.clear()
    # gone from the cache, and from memory once it is unmounted: here only the order is left
    for path in cache.objects().values():
        path.unlink()
    with open(m / 'model/x', 'rb') as f:
        assert f.read() == data
    assert fault.requests('bad') == []


def test_three_bad_urls_then_a_good_one(linked, fault, refusing):
    data = fault_bytes(N)
    urls = [refusing, fault.url('a', size=N, flip=3), fault.url('b', size=N, truncate=10),
            fault.url('good', size=N)]
    m, c = linked(x=(data, *urls))
    as_expected(m, c)
    assert gets(fault, 'a') and gets(fault, 'b') and len(gets(fault, 'good')) == 1


def test_500_three_times_then_right(linked, fault):
    data = fault_bytes(N)
    m, _ = linked(x=(data, fault.url('x', size=N, fail='3:500')))
    assert m.read('model/x') == data
    assert [r['status'] for r in fault.requests('x')][:4] == [500, 500, 500, 206]


def test_retry_after(linked, fault):
    """Not before the server said."""
    data, pause = fault_bytes(N), 2
    m, _ = linked(x=(data, fault.url('x', size=N, fail='1:429', retryafter=pause)))
    before = time.monotonic()
    with harness.at_once():
        assert m.read('model/x') == data
    assert time.monotonic() - before >= pause
    first, second, *_ = fault.requests('x')
    assert (first['status'], second['status']) in ((429, 200), (429, 206))


def test_retry_after_too_long(linked, fault):
    """Who is told to come back in an hour does not wait for the deadline of this open."""
    m, _ = linked(x=(fault_bytes(N), fault.url('x', fail='9:503', retryafter=3600)))
    with harness.at_once():
        assert errno_of(m.read, 'model/x') == errno.ETIMEDOUT
    assert len(fault.requests('x')) <= 2


def test_no_time_is_lost_on_a_drip(linked, fault):
    """A byte on each connection is no progress, and is told once."""
    size = 20 * MIB
    data = fault_bytes(size)
    m, _ = linked('-o', 'timeout=20', x=(data, fault.url('drip', size=size, truncate=1),
                                         fault.url('good', size=size)))
    assert m.read('model/x') == data
    assert len(fault.requests('drip')) < 100
    assert len(lines_of(m.log(), '/drip: ')) <= 2, m.log()


def test_many_urls_of_one_file(work, linked, fault, refusing):
    """As many as any list of URLs has; one more is refused with its line."""
    data = fault_bytes(N)
    m, _ = linked(x=(data, *[refusing] * 255, fault.url('x', size=N)))
    assert m.read('model/x') == data
    carton_of(work, 'many.carton', x=(data, *[refusing] * 257))
    p = ctl('hash', work / 'many.carton')
    assert p.returncode == 1 and 'LINKS: line 3: more than 256 URLs' in p.stderr, p.stderr


@pytest.mark.parametrize('lie', [dict(length=1 << 49), dict(length=1 << 62), dict(zeros=1, size=1 << 40)],
                         ids=['length', 'longer', 'endless'])
def test_lengths_that_fit_nowhere(linked, fault, lie):
    """Another URL may have the file all the same."""
    data = fault_bytes(N)
    m, _ = linked('-o', 'cache_size=8M', x=(data, fault.url('lie', **(dict(size=N) | lie)),
                                            fault.url('good', size=N)))
    assert m.read('model/x') == data
    assert len(lines_of(m.log(), '/lie: .*no room')) <= 1, m.log()


# ---- wrong bytes ----


def past_caches(requests):
    return ['no-cache' in r['h'].get('cache-control', '') for r in requests]


@pytest.mark.parametrize('size', [N, 20 * MIB])
def test_wrong_bytes_then_the_next_url(linked, fault, size):
    """At most twice the bytes."""
    data = fault_bytes(size)
    m, _ = linked(x=(data, fault.url('bad', size=size, flip=9), fault.url('good', size=size)))
    assert m.read('model/x') == data
    assert not any(past_caches(fault.requests()))
    assert [sum(r['sent'] for r in gets(fault, name)) for name in ('bad', 'good')] == [size, size]
    assert lines_of(m.log(), 'bad.*' + digest(data))


def test_wrong_bytes_one_more_try_past_caches(linked, fault):
    """With no-cache, when no other URL is left."""
    m, _ = linked(x=(fault_bytes(N), fault.url('bad', size=N, flip=9), fault.url('gone', status=404),
                     fault.url('worse', size=N, flip=8)))
    assert errno_of(m.read, 'model/x') == errno.EIO
    asked = [r for r in fault.requests() if r['method'] == 'GET' and r['h'].get('range') != 'bytes=0-0']
    names = [r['path'].split('/')[-1] for r in asked]
    assert [*zip(names, past_caches(asked))] == [('bad', False), ('gone', False), ('worse', False), ('bad', True),
                                                 ('worse', True)]


def test_wrong_everywhere(linked, fault, cache):
    bad = [fault.url(f'bad{i}', size=N, flip=i) for i in range(3)]
    m, _ = linked(x=(fault_bytes(N), *bad))
    for _ in range(2):
        assert errno_of(m.read, 'model/x') == errno.EIO
    assert m.state('model/x') == 'corrupt'
    assert [len(gets(fault, f'bad{i}')) for i in range(3)] == [4, 4, 4]
    assert m.read('misc/local') == b'in the carton\n'
    assert digest(fault_bytes(N)) not in cache.objects() and cache.partials() == {}


def test_wrong_bytes_where_nothing_is_verified(linked, fault):
    """With verify=off, too, a URL that LINKS names is only a place where the bytes may be."""
    data = fault_bytes(N)
    m, _ = linked('-o', 'verify=off', x=(data, fault.url('bad', size=N, flip=9), fault.url('good', size=N)),
                  y=(fault_bytes(N, seed=2), fault.url('y', size=N, seed=2, flip=9)))
    assert m.read('model/x') == data and gets(fault, 'bad')
    assert errno_of(m.read, 'model/y') == errno.EIO


def test_mended_at_its_origin(linked, fault):
    """Each open asks again: a failure is that open's only."""
    data = fault_bytes(3000)
    path = os.path.join(fault.root, 'mended')
    with open(path, 'wb') as f:
        f.write(bytes(3000))
    m, _ = linked(x=(data, fault.url('x', file='mended')))
    assert errno_of(m.read, 'model/x') == errno.EIO
    with open(path, 'wb') as f:
        f.write(data)
    assert m.read('model/x') == data and m.state('model/x') == 'verified'


@pytest.mark.parametrize('kind, want', [
    ({'status': 401}, errno.EACCES), ({'status': 403}, errno.EACCES), (None, errno.ECONNREFUSED),
    ({'silent': 1}, errno.ETIMEDOUT), ({'status': 404}, errno.EIO), ({'status': 500}, errno.EIO),
    ({'enc': 'gzip,gzip'}, errno.EIO)], ids=str)
def test_errors_as_they_are(linked, fault, refusing, kind, want):
    """Of open and of stat; the directory lists; the next open asks again, and other files read."""
    url = fault.url('x', size=5, **kind) if kind else refusing
    m, c = linked('-o', 'timeout=2', x=(fault_bytes(5), url + '?secret=1'))
    assert errno_of(m.read, 'model/x') == want
    first = len(fault.requests('x'))
    assert errno_of(m.read, 'model/x') == want
    assert not kind or len(fault.requests('x')) > first
    assert os.listdir(m / 'model') == ['x']
    if kind != {'enc': 'gzip,gzip'}:
        assert errno_of(os.stat, m / 'model/x') == want
    assert m.read('misc/local') == b'in the carton\n'
    log = m.log()
    assert lines_of(log, url.rpartition('/')[2]) and 'secret' not in log


# ---- sizes ----


def test_listing_asks_nothing(linked, fault, nginx):
    files = {f'f{i}': (fault_bytes(i), fault.url(f'f{i}', size=i)) for i in range(1, 50)}
    m, _ = linked(**files)
    assert sorted(os.listdir(m / 'model')) == sorted(files)
    with os.scandir(m / 'model') as entries:
        assert [e for e in entries if not (e.is_file() and not e.is_symlink())] == []
    assert {r[2][0] for r in os.walk(m.path) if r[2]} and fault.requests() == []
    for i in (7, 7, 8):
        assert os.stat(m / f'model/f{i}').st_size == i
    assert [(r['method'], r['path'].split('/')[-1]) for r in fault.requests()] == [
        ('HEAD', 'f7'), ('HEAD', 'f8')]
    assert [r for r in fault.requests() if r['h']['accept-encoding'] != 'identity'] == []
    assert m.state('model/f7') == 'unverified'


def test_many_stats_ask_once(linked, fault):
    """Those who ask while the question is under way wait for the same answer."""
    m, _ = linked(x=(fault_bytes(N), fault.url('x', size=N, delay=300)))
    them = [subprocess.Popen(['stat', '-c', '%s', m / 'model/x'], stdout=subprocess.PIPE)
            for _ in range(8)]
    assert [p.communicate()[0] for p in them] == [b'%d\n' % N] * 8
    assert len(fault.requests('x')) == 1


@pytest.mark.parametrize('kind', [dict(nohead=1), dict(nohead=1, norange=1),
                                  dict(enc='gzip', honour=1), dict(noetag=1, noaccept=1)], ids=str)
def test_size_from_one_byte(linked, fault, kind):
    """Where HEAD does not help, one byte does; nothing is fetched for it."""
    m, _ = linked(x=(fault_bytes(5 * MIB), fault.url('x', size=5 * MIB, **kind)))
    assert os.stat(m / 'model/x').st_size == 5 * MIB
    assert m.state('model/x') == 'unverified'
    methods = [r['method'] for r in fault.requests('x')]
    assert methods == (['HEAD', 'GET'] if 'nohead' in kind else ['HEAD'])
    assert fault.requests('x')[-1]['h'].get('range', 'bytes=0-0') == 'bytes=0-0'


@pytest.mark.parametrize('status', [429, 500, 501, 503])
def test_head_fails(linked, fault, status):
    """A server that fails at HEAD has the file all the same: one byte, or all of it, tells."""
    data = fault_bytes(N)
    kinds = {'r': {}, 'n': dict(norange=1, chunked=1), 'w': dict(retryafter=1)}
    m, _ = linked(**{k: (data + k.encode(), fault.url(k, file=f'head-{k}', headstatus=status, **kw))
                     for k, kw in kinds.items()})
    for k in kinds:
        with open(os.path.join(fault.root, f'head-{k}'), 'wb') as f:
            f.write(data + k.encode())
        assert os.stat(m / f'model/{k}').st_size == N + 1, m.log()
        assert m.read(f'model/{k}') == data + k.encode()
        assert [r['method'] for r in fault.requests(k)].count('HEAD') == 1
    assert m.state('model/r') == 'verified'


@pytest.mark.parametrize('kind', [dict(chunked=1, norange=1), dict(enc='gzip', norange=1),
                                  dict(enc='gzip'), dict(enc='zstd', chunked=1),
                                  dict(close=1, norange=1)], ids=str)
def test_size_by_fetching(linked, fault, kind):
    """Nobody says how long it is: it is fetched, once, and the open finds it there."""
    data = fault_bytes(N)
    m, _ = linked(x=(data, fault.url('x', size=N, **kind)))
    assert os.stat(m / 'model/x').st_size == N
    whole = [r for r in fault.requests('x') if r['status'] == 200 and r['sent'] > 1000]
    before = len(fault.requests('x'))
    assert m.read('model/x') == data
    assert whole and len(fault.requests('x')) == before


def test_size_where_only_one_url_answers(linked, fault, refusing):
    """One that does not say and one that is dead: the file can be had, so it has a size."""
    data = fault_bytes(N)
    m, _ = linked(x=(data, fault.url('x', size=N, chunked=1, norange=1), refusing))
    assert os.stat(m / 'model/x').st_size == N and m.read('model/x') == data


def test_head_is_forbidden(linked, fault):
    """As a URL that is signed for GET only: HEAD gets 403."""
    data = fault_bytes(N)
    with open(os.path.join(fault.root, 'signed'), 'wb') as f:
        f.write(data)
    with nginx_at(os.path.join(fault.root, 'signed-nginx'), more='''
            location /signed/ { alias %s/; if ($request_method = HEAD) { return 403; } }
            ''' % fault.root) as n:
        m, _ = linked(x=(data, n.url('signed/signed')))
        assert os.stat(m / 'model/x').st_size == N
        assert m.read('model/x') == data
        assert [r['method'] for r in n.requests('signed')][:2] == ['HEAD', 'GET']


@pytest.mark.parametrize('lie', [0, 1, N - 1, N + 1, 100 * N])
def test_lying_head(linked, fault, lie):
    """Whatever HEAD says, every way of reading gives the file as it is."""
    data = fault_bytes(N)
    m, _ = linked(**{n: (data + n.encode(), fault.url(n, file=f'lie-{n}', headlen=lie))
                     for n in 'abcde'})
    for n in 'abcde':
        with open(os.path.join(fault.root, f'lie-{n}'), 'wb') as f:
            f.write(data + n.encode())
        assert os.stat(m / f'model/{n}').st_size == lie
    assert harness.run('cat', m / 'model/a', text=False).stdout == data + b'a'
    assert harness.run('tail', '-c', '5', m / 'model/b', text=False).stdout == data[-4:] + b'b'
    assert harness.run('cp', m / 'model/c', fault.root).returncode == 0
    assert harness.read_file(os.path.join(fault.root, 'c')) == data + b'c'
    fd = os.open(m / 'model/d', os.O_RDONLY)
    try:
        with mmap.mmap(fd, N + 1, prot=mmap.PROT_READ) as mapped:
            assert mapped[:] == data + b'd'
    finally:
        os.close(fd)
    fd = os.open(m / 'model/e', os.O_RDONLY)
    try:
        assert os.lseek(fd, 0, os.SEEK_END) == N + 1
        assert os.pread(fd, 10, N - 3) == data[-3:] + b'e' and os.pread(fd, 10, N + 1) == b''
        assert os.fstat(fd).st_size == N + 1
    finally:
        os.close(fd)
    assert os.stat(m / 'model/e').st_size == N + 1


@pytest.mark.parametrize('lie', [0, N - 1, 100 * N])
def test_lying_head_and_no_stat(linked, fault, lie):
    """Even who opens and never asks for the size is not misled by what an earlier stat was told."""
    data = fault_bytes(N)
    m, _ = linked(x=(data, fault.url('x', size=N, headlen=lie)))
    assert os.stat(m / 'model/x').st_size == lie
    r, w = os.pipe()
    fd = os.open(m / 'model/x', os.O_RDONLY)
    try:
        assert os.sendfile(w, fd, N - 5, 60) == 5 and os.read(r, 60) == data[-5:]
    finally:
        for f in (r, w, fd):
            os.close(f)


def test_no_size_still_lists(linked, fault):
    timeout = 2
    m, _ = linked('-o', f'timeout={timeout}', x=(b'?', fault.url('x', silent=1)),
                  y=(b'yy', fault.url('y', text='yy')))
    before = time.monotonic()
    with harness.at_once():
        assert errno_of(os.stat, m / 'model/x') == errno.ETIMEDOUT
    assert time.monotonic() - before > timeout * 0.75
    assert sorted(os.listdir(m / 'model')) == ['x', 'y']
    assert os.stat(m / 'model/y').st_size == 2
    assert os.statvfs(m.path).f_blocks * 4096 < 1 << 40, 'what is not known is not counted'


# ---- LINKS itself ----


def fails_to_mount(work, point, *says, options=PRIVATE):
    where = point()
    p = harness.run(harness.CARTONFS, *options, '-o', f'cache_dir={work}/other',
                    work / 'm.carton', where)
    assert p.returncode == 32 and harness.mountinfo(where) is None
    for word in says:
        assert lines_of(p.stderr, word), p.stderr
    return p


HASH = digest(b'x')


@pytest.mark.parametrize('text, says', [
    (f"version = 2\n[urls]\n{HASH} = ['http://h/x']\n", 'LINKS: line 1: version is not 1'),
    (f"version = '1'\n[urls]\n{HASH} = ['http://h/x']\n", 'LINKS: line 1: version'),
    (f"[urls]\n{HASH} = ['http://h/x']\n", 'LINKS: .*version'),
    (f"version = 1\n[urls]\n{HASH} = ['http://h/x'\n", 'LINKS: line [34]: '),
    ("version = 1\n[urls]\nabc = ['http://h/x']\n", 'LINKS: line 3: .*abc'),
    (f"version = 1\n[urls]\n{HASH.upper()} = ['http://h/x']\n", 'LINKS: line 3: '),
    (f"version = 1\n[urls]\n{HASH} = []\n", 'LINKS: line 3: no URL'),
    (f"version = 1\n[urls]\n{HASH} = 'http://h/x'\n", 'LINKS: line 3'),
    (f"version = 1\n[urls]\n{HASH} = [1]\n", 'LINKS: line 3'),
    (f"version = 1\n[urls]\n{HASH} = ['ftp://h/x']\n", 'LINKS: line 3: .*http'),
    (f"version = 1\n[urls]\n{HASH} = ['file:///etc/passwd']\n", 'LINKS: line 3: .*http'),
    (f"version = 1\n[urls]\n{HASH} = ['nothing']\n", 'LINKS: line 3: .*URL'),
    (f"version = 1\n[urls]\n{HASH} = ['http://', 'https://[::1']\n", 'LINKS: line 3'),
    ("version = 1\n[urls]\n", 'model/x.*neither the carton nor LINKS'),
    (b'\xff\xfe', 'LINKS: line 1'), ('', 'LINKS: .*version'),
])
def test_bad_links(work, point, mount, text, says):
    """Refused, with line and reason, where a file needs it; of no interest where none does."""
    c = LinkedCarton().link('model/x', b'x')
    c.links_text = text
    c.write(work / 'm.carton')
    p = fails_to_mount(work, point, says)
    assert '\ufffd' not in p.stderr and lines_of(p.stderr, 'model/x'), p.stderr
    c = LinkedCarton().add('model/x', b'x')
    c.links_text = text
    c.write(work / 'n.carton')
    with mount(work / 'n.carton') as m:
        as_expected(m, c)


def test_bad_url_of_another_file(linked, fault, work):
    """A fault in a line that no file needs is no fault of the carton."""
    data = fault_bytes(N)
    c = LinkedCarton().link('model/x', data, fault.url('x', size=N))
    c.links_text = c.links_toml() + f"{HASH} = ['gopher://h/x']\n"
    c.write(work / 'm.carton')
    assert ctl('cat', '--private-links', f'--cache-dir={work}/cache', work / 'm.carton', 'model/x',
               text=False).stdout == data


def test_no_links_and_no_entry(work, point):
    c = LinkedCarton().link('model/x', b'x')
    super(LinkedCarton, c).write(work / 'm.carton')
    fails_to_mount(work, point, 'model/x.*neither')


def test_links_are_not_shown_and_not_hashed(work, mount, fault, cache):
    """The model hash is that of the same files without LINKS; the mount looks the same."""
    data = fault_bytes(N)
    one, other = LinkedCarton(), LinkedCarton()
    one.add('model/x', data)
    other.link('model/x', data, fault.url('x', size=N))
    super(LinkedCarton, one).write(work / 'one.carton')
    other.write(work / 'other.carton')
    assert ctl('hash', work / 'one.carton').stdout == ctl('hash', work / 'other.carton').stdout
    assert other.model_hash() == ctl('hash', work / 'other.carton').stdout.strip()
    options = [*PRIVATE, *cache.options]
    with mount(work / 'one.carton') as a, mount(work / 'other.carton', *options) as b:
        assert scan(a.path) == scan(b.path) == expected(other.files())
        assert not os.path.exists(b / 'LINKS') and os.listdir(a.path) == os.listdir(b.path)
    assert b'LINKS' not in other.manifest_bytes()


def test_same_bytes_in_the_carton(work, mount, fault):
    """A missing path whose hash another entry has is that entry: LINKS is not needed, nor asked."""
    c = LinkedCarton().add('model/a', b'the same').link('model/b', b'the same')
    super(LinkedCarton, c).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        as_expected(m, c)
    c.link('model/b', b'the same', fault.url('b', text='the same'))
    c.write(work / 'n.carton')
    with mount(work / 'n.carton', *PRIVATE) as m:
        as_expected(m, c)
    assert fault.requests() == []


def test_links_in_a_directory(work, mount, fault, cache):
    """An unpacked carton has LINKS too."""
    data = fault_bytes(N)
    c = LinkedCarton().link('model/x', data, fault.url('x', size=N)).add('misc/y', b'y')
    c.add('LINKS', c.links_toml().encode())
    with mount(c.unpack(work / 'unpacked'), *PRIVATE, *cache.options) as m:
        assert m.read('model/x') == data and not os.path.exists(m / 'LINKS')


def test_symlink_to_a_linked_file(work, mount, fault, cache):
    data = fault_bytes(N)
    c = LinkedCarton().link('model/x', data, fault.url('x', size=N))
    c.symlink('model/latest', 'x')
    c.write(work / 'm.carton')
    with mount(work / 'm.carton', *PRIVATE, *cache.options) as m:
        assert os.readlink(m / 'model/latest') == 'x' and m.read('model/latest') == data
    assert len(gets(fault, 'x')) == 1


def test_metadata_by_links(work, mount, fault, cache):
    """Even carton.toml may be elsewhere: then the mount fetches it."""
    from zipwriter import TOML
    c = LinkedCarton(toml=None).link('carton.toml', TOML, fault.url('t', text=TOML.decode()))
    c.write(work / 'm.carton')
    with mount(work / 'm.carton', *PRIVATE, *cache.options) as m:
        as_expected(m, c)
        assert m.state('carton.toml') == 'verified'
    assert len(gets(fault, 't')) == 1


def test_two_paths_one_fetch(linked, fault):
    data = fault_bytes(N)
    m, c = linked(a=(data, fault.url('x', size=N)), b=(data,))
    as_expected(m, c)
    assert len(gets(fault, 'x')) == 1


def test_verify_at_mount(work, point, mount, fault, cache):
    carton_of(work, x=(fault_bytes(N), fault.url('x', size=N)))
    with mount(work / 'm.carton', *PRIVATE, *cache.options, '-o', 'verify=mount') as m:
        fault.clear()
        assert m.read('model/x') == fault_bytes(N) and fault.requests() == []
    carton_of(work, x=(fault_bytes(N), fault.url('x', size=N, flip=1)))
    fails_to_mount(work, point, 'sha256', options=PRIVATE + ('-o', 'verify=mount'))


@pytest.mark.parametrize('damaged', [False, True])
def test_verify_at_mount_without_its_server(work, point, fault, damaged):
    """It may be tried again later, unless another file is damaged."""
    more = {'y': (fault_bytes(N), fault.url('y', size=N, flip=1))} if damaged else {}
    carton_of(work, x=(fault_bytes(N + 1), 'http://127.0.0.1:1/x'), **more)
    p = harness.run(harness.CARTONFS, *PRIVATE, '-o', f'cache_dir={work}/other', '-o', 'verify=mount,timeout=2',
                    work / 'm.carton', point())
    assert p.returncode == (32 if damaged else 75), p.stderr
    assert p.stderr.splitlines()[-1].endswith('not mounted: 2 files failed' if damaged else 'not mounted: 1 file failed')


# ---- bombs and redirects ----


@pytest.mark.parametrize('coding', ['gzip', 'br', 'zstd'])
@needs_root
def test_bomb(linked, fault, work, coding):
    """A small answer that becomes 300 MiB: an error, with a bound on disk and memory."""
    disk = work / 'cache'
    disk.mkdir(mode=0o700)
    assert harness.run('mount', '-t', 'tmpfs', '-o', 'size=64m,mode=0700', 'none',
                       disk).returncode == 0
    try:
        good = fault_bytes(N)
        m, _ = linked(x=(b'something else', fault.coded_url('x', size=300 * MIB, zeros=1, enc=coding)),
                      y=(good, fault.url('y', size=N)))
        before = resident(m.process.pid)
        assert errno_of(m.read, 'model/x') in (errno.EIO, errno.ENOSPC)
        assert resident(m.process.pid) - before < 200 * MIB * harness.SLOW
        assert m.read('model/y') == good
        used = os.statvfs(disk)
        assert (used.f_blocks - used.f_bfree) * used.f_frsize < 8 * MIB, 'nothing is left of it'
        assert harness.unmount(m.path).returncode == 0
        m.process.wait(harness.EXIT_S * harness.SLOW)
        m.ended = True
    finally:
        harness.run('umount', '-l', disk)


def test_bomb_that_comes_slowly(linked, fault):
    """What libcurl need not hold is stopped all the same when it is more than can be honest."""
    m, _ = linked(x=(b'something else', fault.coded_url('x', size=200 * MIB, zeros=1, enc='densebr',
                                                        rate=200, **{'as': 'br'})))
    assert errno_of(m.read, 'model/x') == errno.EIO
    assert lines_of(m.log(), '/x: .*expands too strongly'), m.log()
    assert [r['h']['accept-encoding'] for r in gets(fault, 'x')
            if 'range' not in r['h']] == ['deflate, gzip, br, zstd', 'identity', 'identity'], 'decoded, and as it is'


def resident(pid):
    """Most memory a process has ever had."""
    with open(f'/proc/{pid}/status') as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith('VmHWM'))


def test_redirects(linked, fault, nginx):
    """Up to five; LINKS may lead to another host."""
    data = fault_bytes(N)
    nginx.put('at-last', data)
    m, c = linked(
        a=(data, fault.url('a', redirect=302, to=nginx.url('at-last'))),
        b=(data + b'b', fault.url('b', file='b', hops=5)),
        d=(data + b'd', fault.url('d', redirect=302, to='ftp://127.0.0.1/x')))
    with open(os.path.join(fault.root, 'b'), 'wb') as f:
        f.write(data + b'b')
    assert m.read('model/a') == data and m.read('model/b') == data + b'b'
    assert [r['status'] for r in gets(fault, 'b')] == [302] * 5 + [200]
    assert errno_of(m.read, 'model/d') == errno.EACCES


def test_https(work, mount_fg, nginx, certificate, cache):
    """Never down to http, never without a certificate that holds."""
    from origin import Fault
    data = fault_bytes(N)
    plain = nginx.put('plain', data)
    tls = Fault(tls=certificate)
    try:
        carton_of(work, good=(data, tls.url('good', size=N)),
                  down=(data + b'd', tls.url('down', redirect=302, to=plain)))
        options = [*PRIVATE, *cache.options]
        with mount_fg(work / 'm.carton', *options) as m:
            assert errno_of(m.read, 'model/good') == errno.EACCES
            assert lines_of(m.log(), 'certificate')
        with mount_fg(work / 'm.carton', *options, '-o', f'cacert={certificate[0]}') as m:
            assert errno_of(m.read, 'model/down') == errno.EACCES
            assert lines_of(m.log(), 'https to http') and nginx.requests('plain') == []
            assert m.read('model/good') == data
    finally:
        tls.stop()


def test_no_credentials_in_links(linked, fault, nginx):
    """User and password in a URL of LINKS are not sent, and not logged."""
    data = fault_bytes(N)
    url = nginx.put('open', data).replace('//', '//user:hunter2@')
    m, _ = linked(x=(data, url))
    assert m.read('model/x') == data
    assert os.stat(m / 'model/x').st_size == N
    assert {r['authorization'] for r in nginx.requests('open')} == {''}
    assert 'hunter2' not in m.log() and len(lines_of(m.log(), 'are not sent')) == 1


def test_each_failure_is_logged_once(linked, fault, refusing):
    m, _ = linked('-o', 'timeout=5', x=(fault_bytes(N), refusing + '?token=hunter2'))
    assert errno_of(m.read, 'model/x') == errno.ECONNREFUSED
    assert len(lines_of(m.log(), 'nobody')) == 1, m.log()
    assert 'hunter2' not in m.log()


def test_an_address_in_other_letters(work, fault, cache):
    """
    libcurl asks a proxy for the host that such letters stand for, in the locale that cartonctl sets: it is checked as
    that, or refused as no URL.
    """
    data, proxy = fault_bytes(N), fault.url('')
    for host in '\uff11\uff12\uff17.0.0.1', '127\u30020.0.1', '\u24dbocalhost', '127.0.0.1':
        carton_of(work, a=(data, f'http://{host}:9/x'))
        p = ctl('fetch', cache.flag, '--timeout=5', work / 'm.carton', env={'http_proxy': proxy})
        assert p.returncode == 1 and fault.requests() == []
        assert len(lines_of(p.stderr, 'refused: .*leads to a loopback address|not a URL of the form')) == 1, p.stderr
