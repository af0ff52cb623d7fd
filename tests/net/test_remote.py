# SPDX-License-Identifier: Apache-2.0
"""Cartons behind a URL: what a mount and a file cost, one version or none, servers of all kinds."""
import contextlib
import errno
import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import urllib.parse

import pytest

import harness
from harness import ctl, eventually, run
from origin import (MIB, PRIVATE, LinkedCarton, as_expected, digest, errno_of, fault_bytes,
                    lines_of, nginx_at)
from served import Served
from zipwriter import Carton, Sparse, sample

def rng_bytes(n, seed=0):
    return random.Random(seed).randbytes(n)


def but_where(p):
    """What cartonctl has printed, without where the bytes are and how they are packed."""
    return re.sub(r'(?m)^(where|packed|size) .*\n', '', p.stdout)


def refused(source, point, *options, says='', code=32, env=None):
    """The mount fails at once, and the last line says so, with the reason if that is about the carton itself."""
    where = point()
    with harness.at_once():
        p = run(harness.CARTONFS, *options, source, where, env=env)
    assert p.returncode == code and harness.mountinfo(where) is None, p.stderr
    assert lines_of(p.stderr, says) and 'not mounted' in p.stderr.splitlines()[-1], p.stderr
    return p.stderr


# ---- what it costs ----


def test_everything_is_there(nginx, mount, cache):
    c = sample()
    c.write(nginx.root / 'sample.carton')
    nginx.clear()
    with mount(nginx.url('sample.carton'), *cache.options) as m:
        assert len(nginx.requests()) <= 3
        as_expected(m, c)
        assert m.state('model/weights.bin') == 'verified'
    assert [r for r in nginx.requests() if r['status'] != 206] == []


def test_ten_thousand_entries(nginx, mount, cache):
    """At most three requests for a mount, one for a small file, none for what was read before."""
    c = Carton(method='deflate')
    for i in range(9997):
        c.add(f'model/{i % 100:02}/{i:05}-of-a-shard-with-a-long-name.bin', rng_bytes(900, i))
    c.write(nginx.root / 'many.carton')
    nginx.clear()
    with mount(nginx.url('many.carton'), *cache.options) as m:
        cost = nginx.requests()
        assert len(cost) <= 3, cost
        assert sum(r['sent'] for r in cost) < os.path.getsize(nginx.root / 'many.carton') // 4
        assert len(os.listdir(m / 'model/07')) == 100
        assert sum(len(f) for _, _, f in os.walk(m / 'model')) == 9997
        assert os.stat(m / 'model/03/05003-of-a-shard-with-a-long-name.bin').st_size == 900
        nginx.clear()
        for i in (4711, 17, 9000):
            name = f'model/{i % 100:02}/{i:05}-of-a-shard-with-a-long-name.bin'
            assert m.read(name) == m.read(name) == rng_bytes(900, i)
        asked = nginx.requests()
        assert [r['status'] for r in asked] == [206] * 3
        assert [r for r in asked if not (r['sent'] < 2000 and r['if_match'])] == []


def test_large_file_over_many_connections(nginx, mount, cache):
    """Its ranges are asked for at once, each byte once, and the hash of all is right."""
    data = rng_bytes(60 * MIB + 12345)
    c = Carton().add('model/w', data, method='stored')
    c.add('misc/x', data[:9 * MIB], method='deflate')
    c.write(nginx.root / 'large.carton')
    with mount(nginx.url('large.carton'), *cache.options, '-o', 'connections=6') as m:
        nginx.clear()
        as_expected(m, c)
        # at most 4 MiB each, and less if the machine is slow
        parts = [r for r in nginx.requests() if r['sent'] > MIB / 8]
        assert 3 <= len({r['conn'] for r in parts}) and len(parts) >= 15
        # 9 of them are of misc/x; what is on the way when a request is cut short comes twice: less than a request has
        assert sum(r['sent'] for r in nginx.requests()) < len(data) + 12 * MIB
        assert [r for r in parts if not (r['status'] == 206 and r['if_match'])] == []


@pytest.mark.parametrize('size', [9, 24, 40])
@pytest.mark.parametrize('kind', ['remote', 'linked'])
def test_connections_beat_a_limit(fault, work, mount, cache, kind, size):
    """
    Of a server that limits each connection, eight are read at once, and the one that brings most bytes, which takes
    longest, brings not much more than an eighth.
    """
    most, data = 8, fault_bytes(size * MIB, seed=size)
    limit = dict(rate=size * MIB // 8)
    if kind == 'remote':
        Carton().add('model/x', data, method='stored').write(os.path.join(fault.root, f'{size}.carton'))
        source = remote(fault, f'{size}.carton', **limit)
    else:
        source = LinkedCarton().link('model/x', data, fault.url('x', size=size * MIB, seed=size, **limit)).write(
            work / f'{size}.carton')
    with mount(source, *PRIVATE, *cache.options, '-o', f'connections={most}') as m:
        # not cleared, since connections that stay would get the numbers of new ones
        before = len(fault.requests())
        assert m.sha('model/x') == digest(data)
    asked, brought = fault.requests()[before:], {}
    for r in asked:
        brought[r['conn']] = brought.get(r['conn'], 0) + r['sent']
    assert max(r['beside'] for r in asked) == most - 1
    assert max(brought.values()) <= len(data) / 5.5, brought


@pytest.mark.parametrize('sig', [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize('kind', ['remote', 'linked'])
def test_an_interruption_loses_little(fault, work, cache, kind, sig):
    """Of many connections at a low rate: what came is kept, but for about a second's worth."""
    size = 60 * MIB
    data = fault_bytes(size, seed=4)
    if kind == 'linked':
        LinkedCarton().link('model/x', data, fault.url('x', size=size, seed=4, rate=MIB)).write(
            work / 'm.carton')
        source, name = work / 'm.carton', 'x'
    else:
        name = f'{kind}.carton'
        Carton().add('model/x', data, method='stored').write(os.path.join(fault.root, name))
        source = remote(fault, name, rate=MIB)

    def sent():
        return sum(r['sent'] for r in fault.requests(name))
    p = subprocess.Popen([harness.CARTONCTL, 'fetch', '--private-links', '--connections=8',
                          cache.flag, source], stderr=subprocess.DEVNULL,
                         env=harness.environment())
    came = eventually('much of it has come', lambda: sent() if sent() > 16 * MIB else 0)
    p.send_signal(sig)
    p.wait()
    noted = max(cache.partials().values(), default=0)
    assert noted > came - 8 * MIB, (noted, came)
    cache.check()


@pytest.mark.slow
def test_two_gibibytes(nginx, mount, cache):
    """A Stored entry beyond 2 GiB."""
    size = (2 << 30) + 4321
    c = Carton(method='stored').add('misc/before', b'b')
    pieces = {0: b'first', (2 << 30) - 2: b'across', size - 4: b'last'}
    sums = 812439197, '5db42b7563a75c86fc1050db005f4f96c0dfd9f8459360eb49e6c481ed2eeb8c'
    c.add('model/big', Sparse(size, pieces, sums))
    c.add('misc/after', b'after')
    c.write(nginx.root / 'huge.carton')
    with mount(nginx.url('huge.carton'), *cache.options) as m:
        with open(m / 'model/big', 'rb') as f:      # which is when its hash is checked
            f.seek((2 << 30) - 2)
            assert f.read(6) == b'across'
            f.seek(size - 4)
            assert f.read() == b'last'
        assert m.state('model/big') == 'verified'
        assert m.read('misc/after') == b'after'
    assert size < sum(r['sent'] for r in nginx.requests()) < size + MIB
    (nginx.root / 'huge.carton').unlink()
    cache.objects()[c.hashes()['model/big']].unlink()


@pytest.mark.parametrize('method', ['stored', 'deflate', 'zstd'])
def test_methods(nginx, mount, cache, method):
    """Entries of each method, in memory and larger than what is kept there."""
    c = sample(method)
    c.add('model/large', rng_bytes(5 * MIB) + bytes(8 * MIB))
    c.add('model/middle', rng_bytes(300000))
    c.write(nginx.root / f'{method}.carton')
    for _ in range(2):
        with mount(nginx.url(f'{method}.carton'), *cache.options) as m:
            as_expected(m, c)


def test_corrupt_entry(nginx, mount_fg, cache):
    """A flipped byte behind a URL is an error as in a local carton."""
    c = Carton(method='stored').add('model/x', rng_bytes(100000)).add('model/y', b'good')
    c.write(nginx.root / 'flip.carton')
    with open(nginx.root / 'flip.carton', 'r+b') as f:
        f.seek(c.placed['model/x'].data + 5000)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 1]))
    with mount_fg(nginx.url('flip.carton'), *cache.options) as m:
        assert errno_of(m.read, 'model/x') == errno.EIO and m.read('model/y') == b'good'
        assert m.state('model/x') == 'corrupt' and lines_of(m.log(), 'model/x.*sha256')


def test_as_a_user(nginx, mount, work, who):
    """An ordinary user's cache in his home; everything readable, and nothing of it for others."""
    c = sample()
    c.write(nginx.root / 'user.carton')
    with mount(nginx.url('user.carton'), uid=who) as m:
        assert m.do(harness.scan, m.path) == harness.expected(c.files(), c.links())
    home = os.path.join(harness.HOMES[who], '.cache/cartonfs')
    assert os.stat(home).st_mode & 0o777 == 0o700 and os.stat(home).st_uid == (who or os.geteuid())
    p = ctl('cache', 'verify', uid=who)
    assert p.returncode == 0 and p.stdout == '0 damaged entries removed\n'


# ---- one version ----


def remote(fault, name, **kw):
    return fault.url(name, file=name, **kw)


def put_large(fault, name='v.carton', seed=0, size=20 * MIB):
    """A carton with two files beyond what a mount fetches."""
    c = Carton(method='stored')
    for n in 'ab':
        c.add(f'model/{n}', rng_bytes(size, seed), method='stored')
    c.add('model/small', rng_bytes(2000, seed))
    c.add('misc/tail', rng_bytes(300000, seed))
    c.write(os.path.join(fault.root, 'next'))
    os.replace(os.path.join(fault.root, 'next'), os.path.join(fault.root, name))
    return c


def test_replaced_while_mounted(fault, mount_fg, cache):
    """Another version behind the URL: ESTALE with a clear log, not other bytes."""
    c = put_large(fault)
    with mount_fg(remote(fault, 'v.carton'), *cache.options) as m:
        assert m.read('model/a') == c.entries['model/a'].data
        put_large(fault, seed=1)
        for name in ('model/small', 'misc/tail'):
            assert errno_of(m.read, name) == errno.ESTALE
        assert lines_of(m.log(), 'v.carton: .*changed')
        assert m.read('model/a') == c.entries['model/a'].data, 'what was verified stays'
    assert [r['status'] for r in fault.requests('v.carton')][-2:] == [412, 206], 'and its end is another one'


@pytest.mark.parametrize('kind', [dict(norange=1), dict(badrange=1), dict(badtotal=1)])
def test_server_that_changes_its_ways(fault, mount_fg, cache, kind):
    """Right at mount, wrong later: 200 for a Range, another Content-Range or size."""
    c = put_large(fault, 'w.carton', size=9 * MIB)
    with switching(remote(fault, 'w.carton', etag='same')) as n:
        with mount_fg(n.url('m.carton'), *cache.options) as m:
            n.switch(remote(fault, 'w.carton', etag='same', **kind))
            for name in ('model/a', 'model/small'):
                assert errno_of(m.read, name) == errno.ESTALE, name
            assert lines_of(m.log(), 'm.carton: .*(changed|no longer)')
            n.switch(remote(fault, 'w.carton', etag='same'))
            assert m.read('model/small') == c.entries['model/small'].data
    assert not set(cache.objects()) & {c.hashes()['model/a']}


DATED = dict(noetag=1, lastmod='Tue, 01 Jan 2019 00:00:00 GMT')
LATER = dict(noetag=1, lastmod='Tue, 01 Jan 2030 00:00:00 GMT')


@pytest.mark.parametrize('new', [False, True], ids=['same', 'new'])
@pytest.mark.parametrize('first, then', [
    ({}, dict(newetag=1)), ({}, dict(newetag=1, unconditional=1)), ({}, dict(notag206=1)), ({}, dict(never=1)),
    (DATED, LATER), (DATED, LATER | dict(unconditional=1)), (DATED, DATED | dict(notag206=1))],
    ids=['tag', 'tag for each', 'no tag', 'never', 'date', 'date for each', 'date without tag'])
def test_validators_that_change(fault, mount_fg, cache, first, then, new):
    """
    Another ETag or date, or none: of the same carton the bytes are right, as their hashes say; of a new one of the same
    size no byte is read, and it is said that it is a new one, after its last bytes.
    """
    c = put_large(fault, 'vc.carton', size=9 * MIB)
    with switching(remote(fault, 'vc.carton', **first)) as n:
        with mount_fg(n.url('m.carton'), *cache.options) as m:
            if new:
                put_large(fault, 'vc.carton', seed=1, size=9 * MIB)
            n.switch(remote(fault, 'vc.carton', **then))
            fault.clear()
            for name in ('model/small', 'model/a'):
                if new:
                    assert errno_of(m.read, name) == errno.ESTALE, name
                else:
                    assert m.read(name) == c.entries[name].data
            assert bool(lines_of(m.log(), 'm.carton: changed')) == new, m.log()
            if new:
                assert sum(r['sent'] for r in fault.requests('vc.carton')) < 2 * MIB, 'both times its end'
                put_large(fault, 'vc.carton', size=9 * MIB)
                n.switch(remote(fault, 'vc.carton', **first))
                assert m.read('model/small') == c.entries['model/small'].data


@pytest.mark.parametrize('status, want', [
    (401, {errno.EACCES}), (404, {errno.EIO}), (500, {errno.EIO, errno.ETIMEDOUT})])
def test_failures_are_told_once(fault, mount_fg, cache, status, want):
    """With the URL, without its query, and the status."""
    put_large(fault, 'told.carton', size=24 * MIB)
    with switching(remote(fault, 'told.carton')) as n:
        with mount_fg(n.url('told') + '?token=hunter2', *cache.options, '-o', 'timeout=2') as m:
            n.switch(fault.url('s', fail=f'999:{status}'))
            for name in ('model/a', 'model/small'):
                assert errno_of(m.read, name) in want, name
            assert len(lines_of(m.log(), f'/told: .*status {status}')) == 1, m.log()
            assert 'hunter2' not in m.log()


def test_a_few_bytes_now_and_then(fault, mount_fg, cache):
    """They do not keep an open waiting beyond its timeout."""
    put_large(fault, 'few.carton', size=9 * MIB)
    with switching(remote(fault, 'few.carton')) as n:
        with mount_fg(n.url('m.carton'), *cache.options, '-o', 'timeout=2') as m:
            n.switch(remote(fault, 'few.carton', stall=10))
            for name in ('model/a', 'model/small'):
                assert errno_of(m.read, name) == errno.ETIMEDOUT, name
            assert len(fault.requests('few.carton')) < 40


def fds(pid, kind):
    found = []
    for name in os.listdir(f'/proc/{pid}/fd'):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f'/proc/{pid}/fd/{name}'))
    return [f for f in found if f.startswith(kind)]


def test_many_large_files_at_once(fault, mount_fg, cache):
    """Connections and threads are bounded for all of them together: 64, and one for each file."""
    c = Carton(method='stored')
    for i in range(24):
        c.add(f'model/f{i}', rng_bytes(9 * MIB, i), method='stored')
    c.write(os.path.join(fault.root, 'much.carton'))
    hashes = c.hashes()
    with mount_fg(remote(fault, 'much.carton', rate=2 * MIB), *cache.options) as m:
        most, sockets, readers = 0, 0, [subprocess.Popen(['sha256sum', m / f'model/f{i}'], stdout=subprocess.PIPE)
                            for i in range(24)]
        for i, p in enumerate(readers):
            while p.poll() is None:
                most = max(most, len(os.listdir(f'/proc/{m.process.pid}/task')))
                sockets = max(sockets, len(fds(m.process.pid, 'socket:')))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    p.wait(0.02)
            assert p.stdout.read().split()[0].decode() == hashes[f'model/f{i}']
    assert most < 40 and 24 < sockets <= 64 + 24 + 32, 'as many may be kept idle: %d, %d' % (most, sockets)


def test_slow_link(fault, mount, cache):
    """What opening a carton takes may take longer than the timeout, while bytes arrive."""
    c = put_large(fault, 'slow.carton', size=1000)
    with mount(remote(fault, 'slow.carton', rate=128 << 10), *cache.options, '-o', 'timeout=1') as m:
        as_expected(m, c)


@pytest.mark.parametrize('h', ['ETag:"a\x01b"', 'Last-Modified:Tue,\x02'], ids=['etag', 'date'])
def test_validators_that_cannot_be_sent(fault, mount, cache, h):
    """They name nothing, and stop nothing."""
    c = put_large(fault, 'ctl.carton', size=9 * MIB)
    with mount(remote(fault, 'ctl.carton', noetag=1, h=h), *cache.options) as m:
        as_expected(m, c)


def test_no_secret_in_what_is_said(fault, mount_fg, cache):
    """Neither a password nor a query: also not where only errno is left to say."""
    put_large(fault, 'sec.carton', size=1000)
    url = remote(fault, 'sec.carton').replace('://', '://joe:sesame@') + '?token=hunter2'
    with mount_fg(url, *cache.options, '-o', 'verify=off') as m:
        log = m.log()
    assert 'verify=off' in log
    for kind in (dict(file='sec.carton', badtotal=1), dict(size=0), dict(size=10, norange=1),
                 dict(status=500)):
        bad = fault.url('sec', **kind).replace('://', '://joe:sesame@')
        p = ctl('hash', cache.flag, bad + '?token=hunter2')
        assert p.returncode != 0 and p.stderr, kind
        log += p.stderr
    assert 'sesame' not in log and 'hunter2' not in log, log


def test_stale_is_told_once(fault, mount_fg, cache):
    """The kernel opens again what is stale: no second request, and no second line, for that."""
    put_large(fault, 'so.carton')
    with mount_fg(remote(fault, 'so.carton'), *cache.options) as m:
        put_large(fault, 'so.carton', seed=1)
        fault.clear()
        assert errno_of(m.read, 'model/small') == errno.ESTALE
        assert [r['status'] for r in fault.requests('so.carton')] == [412, 206], 'the second one is for its end'
        assert len(lines_of(m.log(), 'so.carton: .*changed')) == 1, m.log()
        assert len(lines_of(m.log(), 'model/small')) == 1, m.log()


def test_verify_says_why_it_was_not_open(fault, cache):
    """The problem is what the last attempt met, not the name of its errno."""
    url = fault.url('v', fail='999:404')
    p = ctl('verify', '--json', cache.flag, url)
    problem, = json.loads(p.stdout)['problems']
    assert p.returncode == 1
    assert problem['subject'] == url.split('?')[0] and problem['message'].startswith('the server answers with status 404')


def test_verify_counts_a_failure_once(fault, cache):
    """A server that fails at each try is one problem, and one line about the attempts."""
    p = ctl('verify', cache.flag, '--timeout=3', fault.url('v', fail='999:500'))
    assert p.returncode == 75 and '1 problem;' in p.stdout, p
    assert len(lines_of(p.stdout, 'status 500')) == len(lines_of(p.stderr, 'status 500')) == 1, p
    p = ctl('hash', cache.flag, '--timeout=3', fault.url('v', fail='999:500'))
    assert p.returncode == 75 and len(lines_of(p.stderr, 'status 500')) == 1, p.stderr


class switching(Served):
    """A server that passes on what is at a URL, until switch() names another."""

    def __init__(self, url):
        self.to = url

    def answer(self, h):
        to = urllib.parse.urlsplit(self.to)
        c = http.client.HTTPConnection(to.hostname, to.port)
        try:
            c.request(h.command, to.path, headers=dict(h.headers))
            answer = c.getresponse()
            h.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                h.send_header(name, value)
            h.end_headers()
            while block := answer.read1(1 << 16):
                h.wfile.write(block)
        except OSError:
            h.close_connection = True
        finally:
            c.close()

    def switch(self, url):
        self.to = url


def test_changes_in_the_middle_of_a_file(fault, mount_fg, cache):
    """While the ranges of one large file arrive."""
    c = put_large(fault, 'x.carton', size=24 * MIB)
    options = [*cache.options, '-o', 'connections=2']
    with mount_fg(remote(fault, 'x.carton', rate=2 * MIB), *options) as m:
        reader = Reader(m / 'model/b')
        harness.eventually('it has begun', lambda: cache.partials() and
                           max(cache.partials().values()) > 0, 20)
        put_large(fault, 'x.carton', seed=1, size=24 * MIB)
        assert reader.result() == errno.ESTALE
        assert lines_of(m.log(), 'x.carton: .*changed')
    assert c.hashes()['model/b'] not in cache.objects()


class Reader:
    """Reads a file in a thread: result() is its sha256 or an errno."""

    def __init__(self, path):
        self.value = None
        self.thread = threading.Thread(target=self.read, args=(path,), daemon=True)
        self.thread.start()

    def read(self, path):
        try:
            self.value = harness.sha_file(path)
        except OSError as e:
            self.value = e.errno

    def result(self):
        self.thread.join(60 * harness.SLOW)
        assert not self.thread.is_alive()
        return self.value


@pytest.mark.parametrize('kind', [
    dict(fail='2:500'), dict(fail='1:429', retryafter=1), dict(noaccept=1),
    dict(weak=1, lastmod='Tue, 01 Jan 2019 00:00:00 GMT'), dict(noetag=1)])
def test_servers_that_are_good_enough(fault, mount, cache, kind):
    c = sample('stored').add('model/large', rng_bytes(9 * MIB))
    c.write(os.path.join(fault.root, 'good.carton'))
    with mount(remote(fault, 'good.carton', **kind), *cache.options) as m:
        as_expected(m, c)
    assert [r for r in fault.requests('good.carton') if r['status'] not in (206, 500, 429)] == []


def test_connections_that_break(fault, mount, cache):
    """Every answer ends after 3 MiB: it goes on from there."""
    c = put_large(fault, 'y.carton', size=20 * MIB)
    with mount(remote(fault, 'y.carton', truncate=3 * MIB), *cache.options) as m:
        as_expected(m, c)
    asked = fault.requests('y.carton')
    assert sum(r['sent'] for r in asked) < 22 * MIB, 'each byte once; both files are one object'


# ---- without ranges ----


@pytest.mark.parametrize('path', ['norange', 'fault'])
def test_no_ranges(nginx, fault, mount, cache, path):
    """Downloaded once; a later mount of the same version takes what is there."""
    c = put_large(fault, 'nr.carton', size=30 * MIB)
    full = os.path.join(fault.root, 'nr.carton')
    shutil.copy(full, nginx.root / 'nr.carton')
    server, url = (nginx, nginx.url('norange/nr.carton')) if path == 'norange' else (
        fault, remote(fault, 'nr.carton', norange=1))
    for most in (os.path.getsize(full) + 12 * MIB, 24 * MIB):
        server.clear()
        with mount(url, *cache.options) as m:
            as_expected(m, c)
            came = json.loads(m.read('.cartonfs/status.json'))['fetched_bytes']
        sent = sum(r['sent'] for r in server.requests('nr.carton'))
        assert sent < most, 'once, and what was on its way when we knew'
        assert came <= sent and (most == 24 * MIB or came >= os.path.getsize(full)), 'what came before the mount, too'
    assert harness.sha_file(full) in cache.objects()
    put_large(fault, 'nr.carton', seed=5, size=MIB)
    shutil.copy(full, nginx.root / 'nr.carton')
    with mount(url, *cache.options) as m:
        assert m.read('model/small') == rng_bytes(2000, 5), 'another version is fetched anew'


def test_no_ranges_and_a_broken_download(fault, mount, cache):
    """The first two answers fail; the third is it."""
    c = put_large(fault, 'nb.carton', size=4 * MIB)
    with mount(remote(fault, 'nb.carton', norange=1, fail='2:503'), *cache.options) as m:
        as_expected(m, c)


def test_no_ranges_and_two_processes(fault, mount, cache):
    """Two mounts of it at once download it once."""
    c = put_large(fault, 'two.carton', size=6 * MIB)
    url = remote(fault, 'two.carton', norange=1, rate=8 * MIB)
    first = subprocess.Popen([harness.CARTONCTL, 'fetch', cache.flag, url],
                             stderr=subprocess.DEVNULL, env=harness.environment())
    eventually('the first has begun', lambda: cache.partials())
    with mount(url, *cache.options) as m:
        as_expected(m, c)
        assert json.loads(m.read('.cartonfs/status.json'))['fetched_bytes'] == 0
    assert first.wait() == 0


@pytest.mark.needs_plain_build
@pytest.mark.parametrize('call', range(1, 6))
def test_no_ranges_and_an_end_after_it(fault, mount, cache, killer, call):
    """Who waits for a download goes on once that is an entry of the cache, perhaps before its process has done more."""
    c = put_large(fault, 'end.carton', size=MIB)
    url = remote(fault, 'end.carton', norange=1)
    p = ctl('fetch', cache.flag, url, env=dict(LD_PRELOAD=str(killer), KILL_AT=f'renameat {call} after'))
    assert p.returncode in (0, -signal.SIGKILL), p.stderr
    whole = os.path.join(fault.root, 'end.carton')
    there = harness.sha_file(whole) in cache.objects()
    with mount(url, *cache.options) as m:
        as_expected(m, c)
        came = json.loads(m.read('.cartonfs/status.json'))['fetched_bytes']
    assert came == 0 if there else came >= os.path.getsize(whole)


@pytest.mark.parametrize('kind', ['breaks', 'killed', 'changes'])
def test_download_goes_on(fault, mount, cache, kind):
    """A server that has ranges, but neither of the last bytes nor of the first: what broke off is gone on with."""
    c = put_large(fault, 'on.carton', size=12 * MIB)
    whole = os.path.getsize(os.path.join(fault.root, 'on.carton'))
    if kind == 'breaks':
        url = remote(fault, 'on.carton', nosuffix=1, nofirst=1, truncate=9 * MIB)
    else:
        url = remote(fault, 'on.carton', nosuffix=1, nofirst=1, rate=12 * MIB)
        p = subprocess.Popen([harness.CARTONCTL, 'fetch', cache.flag, url],
                             stderr=subprocess.DEVNULL, env=harness.environment())
        eventually('a part of it is noted',
                   lambda: max(cache.partials().values(), default=0) >= 8 * MIB, 30)
        p.kill()
        p.wait()
        if kind == 'changes':
            c = put_large(fault, 'on.carton', seed=9, size=12 * MIB)
        fault.clear()
    with mount(url, *cache.options) as m:
        as_expected(m, c)
    went_on = [r for r in fault.requests('on.carton') if r['status'] == 206]
    assert bool(went_on) == (kind != 'changes')
    assert [r for r in went_on if 'if-range' not in r['h']] == []
    if kind == 'killed':
        assert sum(r['sent'] for r in went_on) <= whole - 8 * MIB
    assert cache.partials() == {}


# ---- without the network ----


@pytest.mark.parametrize('kind', ['ranges', 'no ranges'])
def test_offline(fault, mount_fg, cache, kind):
    """What cartonctl fetch got can be mounted, read and listed without the server."""
    c = sample()
    c.write(os.path.join(fault.root, 'off.carton'))
    url = remote(fault, 'off.carton', **({'norange': 1} if kind == 'no ranges' else {}))
    assert ctl('fetch', cache.flag, url).returncode == 0
    fault.clear()
    with mount_fg(url, *cache.options, '-o', 'offline') as m:
        as_expected(m, c)
        assert os.listdir(m / 'views/tensor_data')
        assert not lines_of(m.log(), 'cannot|failed'), m.log()
    for cmd in (('info', '--tensors'), ('ls',), ('hash',)):
        far = ctl(*cmd, '--offline', cache.flag, url)
        assert far.returncode == 0 and but_where(far) == but_where(ctl(*cmd, cache.flag, os.path.join(
            fault.root, 'off.carton'))), far.stderr
    assert fault.requests() == []


def test_offline_after_a_mount(fault, mount, mount_fg, cache):
    """What was read before reads again; the rest is listed, and fails at once."""
    c = put_large(fault, 'part.carton', size=2 * MIB)
    c.add('model/other', rng_bytes(MIB, 7)).write(os.path.join(fault.root, 'part.carton'))
    url = remote(fault, 'part.carton')
    with mount(url, *cache.options) as m:
        m.read('model/a')
    fault.clear()
    before = cache.objects()
    with mount_fg(url, *cache.options, '-o', 'offline') as m:
        assert m.read('model/a') == m.read('model/b') == c.entries['model/a'].data
        assert os.stat(m / 'model/other').st_size == MIB
        assert errno_of(m.read, 'model/other') == errno.ENETUNREACH
        assert lines_of(m.log(), 'model/other.*offline')
    assert fault.requests() == [] and cache.objects() == before and cache.partials() == {}


@pytest.mark.parametrize('kind', ['never seen', 'another URL', 'damaged', 'cut', 'no note'])
def test_offline_without_a_snapshot(fault, mount, cache, point, kind):
    """Nothing is known of it, or nothing that is right: the mount is refused, and says what to do."""
    sample().write(os.path.join(fault.root, 'none.carton'))
    url = remote(fault, 'none.carton')
    if kind != 'never seen':
        with mount(url, *cache.options):
            pass
        note, = cache.path.glob('v1/notes/*')
        snapshot = cache.objects()[note.read_text()[64:]]  # behind its code
    if kind == 'another URL':
        url = remote(fault, 'none.carton', noaccept=1)
    elif kind == 'no note':
        note.write_text('0' * 63)
    elif kind in ('damaged', 'cut'):
        data = snapshot.read_bytes()
        snapshot.chmod(0o600)
        snapshot.write_bytes(data[:-1] if kind == 'cut' else data[:300] + b'!' + data[301:])
        snapshot.chmod(0o400)
    fault.clear()
    refused(url, point, *cache.options, '-o', 'offline', says='offline.*cartonctl fetch')
    assert fault.requests() == []
    if kind != 'never seen':
        with mount(remote(fault, 'none.carton'), *cache.options):
            pass
        with mount(remote(fault, 'none.carton'), *cache.options, '-o', 'offline') as m:
            assert 'model' in os.listdir(m.path)


# ---- which URL, and who may ----


def test_download_url_header(fault, nginx, mount, cache):
    """x-carton-dl-url leads to the bytes, as a redirect does."""
    c = sample()
    c.write(nginx.root / 'dl.carton')
    url = fault.url('dl', text='<html>', dl=nginx.url('dl.carton'))
    with mount(url, *cache.options) as m:
        as_expected(m, c)
    assert {r['status'] for r in nginx.requests('dl.carton')} == {206}
    assert fault.requests('dl')


def test_redirect(fault, nginx, mount, cache, point):
    c = sample()
    c.write(nginx.root / 'r.carton')
    with mount(fault.url('r', redirect=302, to=nginx.url('r.carton')), *cache.options) as m:
        as_expected(m, c)
    refused(fault.url('loop', loop=1), point, says='circle|redirect')
    refused(fault.url('hops', hops=6, text='x'), point, says='redirect')


def test_pinned(nginx, mount, cache, point):
    c = sample()
    c.write(nginx.root / 'pin.carton')
    pin = f'manifest_sha256={c.model_hash()}'
    with mount(nginx.url('pin.carton'), *cache.options, '-o', pin) as m:
        as_expected(m, c)
    refused(nginx.url('pin.carton'), point, '-o', 'manifest_sha256=' + 'a' * 64,
            says=c.model_hash())
    assert ctl('hash', nginx.url('pin.carton')).stdout.strip() == c.model_hash()


def test_header_file(nginx, fault, mount, cache, work, point):
    """Sent to the origin of the URL, not where a redirect or LINKS lead."""
    data = rng_bytes(100000)
    c = LinkedCarton().link('model/x', data, nginx.put('elsewhere', data))
    c.write(os.path.join(fault.root, 'h.carton'))
    headers = work / 'headers'
    headers.write_text('X-Token: open sesame\nAuthorization: Bearer 12345\n')
    options = [*PRIVATE, *cache.options, '-o', f'header_file={headers}']
    url = remote(fault, 'h.carton', need='X-Token:open sesame')
    with mount(url, *options) as m:
        assert m.read('model/x') == data
    asked = nginx.requests('elsewhere')
    assert asked and all(r['x_token'] == r['authorization'] == '' for r in asked)
    assert [r for r in fault.requests('h.carton') if r['h']['authorization'] != 'Bearer 12345'] == []
    c.write(nginx.root / 'secret.carton')
    nginx.clear()
    refused(fault.url('away', redirect=302, to=nginx.url('secret/secret.carton')), point, *options,
            says='40[13]|permission')
    assert {r['x_token'] for r in nginx.requests('secret.carton')} == {''}
    refused(nginx.url('secret/secret.carton'), point, says='401; it wants a login: .*header_file, or in ~/.netrc')


LOGIN = r'\(option header_file, or ~/\.netrc\)'


@pytest.mark.parametrize('status, advice', [
    (400, ''), (401, '; it wants a login: give it with the option header_file, or in ~/\\.netrc'),
    (403, f'; it wants a login that may read this {LOGIN}, or the URL has expired'),
    (404, f'; the URL is wrong, or needs a login {LOGIN}'), (410, f'; the URL is wrong, or needs a login {LOGIN}'),
    (451, '')])
def test_advice_of_a_status(fault, work, point, cache, status, advice):
    """Of the URL that the user typed. Those in LINKS get no login, so none is advised."""
    url = fault.url('advice', status=status, size=5)
    says = f'{re.escape(url)}: not mounted: the server answers with status {status}{advice}$'
    refused(url, point, *cache.options, says=says)
    p = ctl('hash', cache.flag, url)
    assert re.search(f'status {status}{advice.replace("header_file", "--header-file")}$', p.stderr, re.M), p.stderr
    path = LinkedCarton().link('model/x', b'linked', url).write(work / 'm.carton')
    p = ctl('verify', '--private-links', cache.flag, path)
    assert p.returncode and lines_of(p.stderr + p.stdout, f'cannot be fetched from there: the server answers with status {status}$') and 'login' not in p.stderr + p.stdout


def test_netrc(nginx, fault, mount, work, cache, point):
    """~/.netrc for the host of the URL; LINKS on the same host but another port get nothing."""
    data = rng_bytes(1000)
    c = LinkedCarton().link('model/x', data, fault.url('linked', size=1000)).add('model/y', data)
    c.urls.clear()
    c.link('model/x', fault_bytes(1000), fault.url('linked', size=1000))
    c.write(nginx.root / 'n.carton')
    home = work / 'home'
    home.mkdir()
    (home / '.netrc').write_text('machine 127.0.0.1 login me password hunter2\n')
    os.chmod(home / '.netrc', 0o600)
    env = dict(HOME=str(home))
    refused(nginx.url('netrc/n.carton'), point, says='401')
    with mount(nginx.url('netrc/n.carton'), *PRIVATE, *cache.options, env=env) as m:
        as_expected(m, c)
    assert [r for r in fault.requests('linked') if 'authorization' in r['h']] == []
    assert {r['authorization'] for r in nginx.requests('n.carton') if r['status'] == 206} == {
        'Basic bWU6aHVudGVyMg=='}


def test_user_and_password_in_the_url(nginx, mount_fg, cache):
    """Of the URL that the user typed: used, and shown nowhere."""
    c = sample()
    c.write(nginx.root / 'auth.carton')
    url = nginx.url('netrc/auth.carton').replace('//', '//me:hunter2@')
    with mount_fg(url, *cache.options) as m:
        as_expected(m, c)
        assert 'hunter2' not in ' '.join(harness.mountinfo(m.path)) + m.log()
    assert {r['authorization'] for r in nginx.requests('auth.carton')} == {'Basic bWU6aHVudGVyMg=='}


@pytest.mark.needs_plain_build
@pytest.mark.parametrize('year, status', [(1970, 75), (2100, 1)])
def test_certificate_and_clock(session_dir, certificate, at_clock, year, status):
    """A certificate that is not yet valid in 1970 may be later, when the clock is set; the clock is named."""
    with nginx_at(session_dir / f'clock-{year}', tls=certificate) as n:
        sample().write(n.root / 'm.carton')
        p = ctl('info', f'--cacert={certificate[0]}', '--timeout=1', f'https://127.0.0.1:{n.tls_port}/m.carton', env=at_clock(year))
    assert p.returncode == status, p.stderr
    assert ('the clock of this machine says 1970-01-01' in p.stderr and 'set the clock' in p.stderr) == (year == 1970)


def test_https_and_http2(session_dir, certificate, mount, cache, point):
    c = sample('stored').add('model/large', rng_bytes(20 * MIB))
    with nginx_at(session_dir / 'tls-nginx', tls=certificate) as n:
        c.write(n.root / 'm.carton')
        url = f'https://127.0.0.1:{n.tls_port}/m.carton'
        refused(url, point, says='certificate; if you trust it, name a file with its CA')
        p = ctl('info', url)
        assert p.returncode == 1 and '(option --cacert)' in p.stderr
        refused(n.url('m.carton').replace('http:', 'https:'), point, says='its server does not speak https')
        n.clear()
        with mount(url, *cache.options, '-o', f'cacert={certificate[0]}') as m:
            as_expected(m, c)
        asked = n.requests('m.carton')
        assert {r['protocol'] for r in asked} == {'HTTP/2.0'}
        assert len({r['conn'] for r in asked}) < len(asked), 'connections are used again'


# ---- what is refused ----


@pytest.mark.parametrize('kind, says', [
    ('404', '404|No such file'), ('403', '403|[Pp]ermission'), ('refused', 'refused|connect'),
    ('not a carton', 'zip|carton'), ('empty', 'zip|carton|empty'), ('garbage', 'HTTP|http'),
    ('bad URL', 'URL'), ('500', '500')])
def test_no_mount(nginx, fault, refusing, point, work, kind, says):
    nginx.put('empty', b'')
    url = {'404': nginx.url('gone/m.carton'), '403': nginx.url('denied/m.carton'),
           'refused': refusing, 'not a carton': nginx.put('text', b'no zip at all' * 1000),
           'empty': nginx.url('empty'),
           'garbage': fault.url('g', garbage=1), 'bad URL': 'http://[::1/m.carton',
           '500': fault.url('s', status=500, size=5)}[kind]
    err = refused(url, point, '-o', f'cache_dir={work}/cache,timeout=3', says=says,
                  code={'bad URL': 1, 'refused': 75, '500': 75}.get(kind, 32))
    # libcurl says after how many milliseconds
    assert len(set(re.sub(r'\d+ ms', '', err).splitlines())) <= 3, err


def test_silent_server(fault, point, work):
    """-o timeout= is how long a mount waits."""
    refused(fault.url('s', silent=1), point, '-o', 'timeout=2', says='answer|timed out', code=75)


def test_cut_off(nginx, point, work):
    """Half a carton is refused as half a local one is."""
    sample().write(nginx.root / 'whole.carton')
    data = (nginx.root / 'whole.carton').read_bytes()
    refused(nginx.put('half.carton', data[:len(data) // 2]), point, says='zip|end|directory')


def test_ctl(nginx, cache):
    """cartonctl takes a URL wherever it takes a file."""
    c = sample()
    c.write(nginx.root / 'ctl.carton')
    url = nginx.url('ctl.carton')
    for cmd in (('info', '--tensors'), ('ls',), ('hash',), ('verify',)):
        local, far = (ctl(*cmd, cache.flag, s) for s in (nginx.root / 'ctl.carton', url))
        assert far.returncode == 0 and but_where(far) == but_where(local), far.stderr
    got = ctl('cat', cache.flag, url, 'model/weights.bin', text=False)
    assert got.stdout == c.entries['model/weights.bin'].data


@pytest.mark.parametrize('fail', ['2:500', '3:502', '1:0'])
def test_verify_counts_what_a_retry_has_not_mended(fault, cache, fail):
    """A failed request is said, and is no damage; with all of them it is for later."""
    c = Carton(method='stored').add('model/x', fault_bytes(3 * MIB)).add('misc/y', b'y' * 5000)
    c.write(os.path.join(fault.root, 'v.carton'))

    def verify(fail, *options):
        return ctl('verify', cache.flag, *options, fault.url('v.carton', file='v.carton', fail=fail))

    p = verify(fail)
    assert p.returncode == 0 and p.stdout.startswith('ok: 4 files'), p.stdout + p.stderr
    assert 'v.carton: ' in p.stderr
    p = verify(fail, '--json')
    assert p.returncode == 0 and json.loads(p.stdout)['problems'] == []
    always = '9999' + fail[fail.index(':'):]
    p = verify(always, '--timeout=2')
    assert p.returncode == 75 and '1 problem; a server is away' in p.stdout, p.stdout + p.stderr
    p = verify(always, '--timeout=2', '--json')
    assert p.returncode == 75 and len(json.loads(p.stdout)['problems']) == 1
