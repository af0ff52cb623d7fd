# SPDX-License-Identifier: Apache-2.0
"""
Small files of a remote carton come together, when they are opened in order and when all are wanted: how many requests
that takes, and what a server can do to it.
"""
import concurrent.futures
import contextlib
import errno
import hashlib
import http.server
import os
import random
import re
import resource
import struct
import subprocess
import threading
import zipfile

import pytest

import zipwriter
from harness import SLOW, at_once, ctl, unmount
from origin import LinkedCarton
from served import serving

COUNT = 1000
MAX_REQUESTS = 50   # on a busy machine; 16 to 18 on a quiet one, and COUNT without neighbours
CONNECTIONS = 8     # the default


def contents(count=COUNT, seed=5):
    """Some have the same bytes, one is empty."""
    rng = random.Random(seed)
    files = {f'model/f{i:04}': rng.randbytes(rng.randrange(1000, 10000)) for i in range(count)}
    files[f'model/f{count // 2:04}'] = b''
    files[f'model/f{count // 2 + 1:04}'] = files['model/f0003']
    return files


FILES = contents()


def written(path, files=None, shuffle=False, method='deflate'):
    files = FILES if files is None else files
    carton = zipwriter.Carton(method=method)
    for name, data in files.items():
        carton.add(name, data)
    if shuffle:
        def reorder(entries):
            entries = list(entries)
            random.Random(3).shuffle(entries)
            return entries
        carton.reorder = reorder
    return carton.write(path)


class Server(http.server.ThreadingHTTPServer):
    """Ranges of one file with an ETag. `tamper` gets (first, bytes), and returns what is sent."""

    request_queue_size = 512

    def __init__(self, path):
        super().__init__(('127.0.0.1', 0), Handler)
        with open(path, 'rb') as f:
            self.data = f.read()
        self.etag = '"one"'
        self.tamper = lambda first, data: data
        self.lock, self.ranges, self.active, self.most = threading.Lock(), [], 0, 0
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.url = f'http://127.0.0.1:{self.server_address[1]}/m.carton'

    def handle_error(self, request, client_address):
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        pass

    def do_GET(self):
        s = self.server
        with s.lock:
            s.active += 1
            s.most = max(s.most, s.active)
            data, etag, tamper = s.data, s.etag, s.tamper
        try:
            m = re.fullmatch(r'bytes=(\d*)-(\d*)', self.headers['Range'])
            first = int(m[1]) if m[1] else len(data) - int(m[2])
            last = min(int(m[2]) if m[1] and m[2] else len(data) - 1, len(data) - 1)
            if self.headers.get('If-Match', etag) != etag:
                self.send_response(412)
                self.send_header('Content-Length', '0')
                self.end_headers()
                return
            with s.lock:
                s.ranges.append((first, last + 1))
            s.begun.set()
            s.gate.wait(60)
            sent = tamper(first, data[first:last + 1])
            self.send_response(206)
            self.send_header('ETag', etag)
            self.send_header('Content-Range', f'bytes {first}-{last}/{len(data)}')
            self.send_header('Content-Length', str(last + 1 - first))
            self.end_headers()
            self.wfile.write(sent)
            if len(sent) < last + 1 - first:
                self.close_connection = True
        finally:
            with s.lock:
                s.active -= 1


@pytest.fixture
def served(tmp_path):
    """served(path): a Server of that file."""
    with contextlib.ExitStack() as stack:
        def serve(path):
            s = stack.enter_context(serving(Server(path)))
            stack.callback(s.gate.set)
            return s
        yield serve


def in_order(names, m):
    return {name: m.read(name) for name in names}


# ---- how many requests ----

@pytest.mark.parametrize('order', ['archive', 'backwards', 'name of a shuffled archive'])
def test_in_order(nginx, mount, cache, order):
    """As tar and cp do: few requests, not much more than the carton, and all bytes right."""
    path = written(nginx.root / 'm.carton', shuffle=order.startswith('name'))
    nginx.clear()
    names = sorted(FILES, reverse=order == 'backwards')
    with mount(nginx.url('m.carton'), *cache.options) as m:
        assert in_order(names, m) == FILES
    assert len(nginx.requests()) <= MAX_REQUESTS
    assert sum(r['sent'] for r in nginx.requests()) <= 1.2 * os.path.getsize(path)


def test_without_a_cache(nginx, mount):
    """Few are kept then, but each comes about once."""
    path = written(nginx.root / 'm.carton')
    nginx.clear()
    with mount(nginx.url('m.carton'), env={'XDG_CACHE_HOME': '/proc/none', 'HOME': '/proc/none'}) as m:
        assert in_order(FILES, m) == FILES
    assert len(nginx.requests()) <= COUNT / 10
    assert sum(r['sent'] for r in nginx.requests()) <= 1.3 * os.path.getsize(path)


def test_several_at_once(nginx, mount, cache):
    """16 readers, each of a part, in its order."""
    path = written(nginx.root / 'm.carton')
    nginx.clear()
    names = list(FILES)
    step = len(names) // 16 + 1
    parts = [names[i:i + step] for i in range(0, len(names), step)]
    with mount(nginx.url('m.carton'), *cache.options) as m, concurrent.futures.ThreadPoolExecutor(16) as pool:
        for part in pool.map(lambda part: in_order(part, m), parts):
            assert [(name, data) for name, data in part.items() if FILES[name] != data] == []
    assert len(nginx.requests()) <= COUNT / 8
    assert sum(r['sent'] for r in nginx.requests()) <= 2 * os.path.getsize(path)


def test_random_readers_get_no_neighbours(nginx, mount, cache):
    """Who opens a few here and there gets these, and no others."""
    files = contents(4000)
    written(nginx.root / 'm.carton', files)
    nginx.clear()
    names = random.Random(8).sample(sorted(files), 20)
    with mount(nginx.url('m.carton'), *cache.options) as m:
        before = sum(r['sent'] for r in nginx.requests())
        assert [name for name in names if m.read(name) != files[name]] == []
        assert sum(r['sent'] for r in nginx.requests()) - before <= 2 * sum(len(files[name]) + 200 for name in names)


@pytest.mark.parametrize('shuffle', [False, True])
def test_all_is_wanted(nginx, cache, tmp_path, shuffle):
    """fetch, extract and verify: few requests from the first file on."""
    path = written(nginx.root / 'm.carton', shuffle=shuffle)
    for words in (['fetch', cache.flag], ['extract'], ['verify']):
        nginx.clear()
        own = ['--cache-dir', tmp_path / f'cache-{words[0]}'] if len(words) == 1 else []
        p = ctl(*words, *own, nginx.url('m.carton'), *([tmp_path / 'out'] if words[0] == 'extract' else []))
        assert p.returncode == 0, p.stderr
        assert len(nginx.requests()) <= MAX_REQUESTS, words
        assert sum(r['sent'] for r in nginx.requests()) <= 1.2 * os.path.getsize(path)
    assert [(name, data) for name, data in FILES.items() if (tmp_path / 'out' / name).read_bytes() != data] == []
    # all of it is in the cache
    nginx.clear()
    p = ctl('fetch', cache.flag, nginx.url('m.carton'))
    assert p.returncode == 0 and len(nginx.requests()) <= 3


def test_only_what_is_wanted(nginx, cache):
    """fetch of some files does not fetch those between them that are far from all of these."""
    names = sorted(FILES)[::100]
    written(nginx.root / 'm.carton')
    nginx.clear()
    assert ctl('fetch', cache.flag, nginx.url('m.carton'), *names).returncode == 0
    with zipfile.ZipFile(nginx.root / 'm.carton') as z:
        assert z.testzip() is None
    assert ctl('fetch', '--offline', cache.flag, nginx.url('m.carton'), *names).returncode == 0
    assert ctl('fetch', '--offline', cache.flag, nginx.url('m.carton'), sorted(FILES)[50]).returncode != 0


def test_an_interrupted_fetch_goes_on(nginx, cache):
    """Half is in the cache: the other half comes, in as few requests."""
    path = written(nginx.root / 'm.carton')
    half = sorted(FILES)[:COUNT // 2]
    assert ctl('fetch', cache.flag, nginx.url('m.carton'), *half).returncode == 0
    nginx.clear()
    assert ctl('fetch', cache.flag, nginx.url('m.carton')).returncode == 0
    assert len(nginx.requests()) <= MAX_REQUESTS
    assert sum(r['sent'] for r in nginx.requests()) <= .9 * os.path.getsize(path)


# ---- no more at once than a server gets, and than there are descriptors ----

def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))


class Counted(http.server.BaseHTTPRequestHandler):
    """The files by their sha256."""

    protocol_version = 'HTTP/1.1'
    files = {hashlib.sha256(d).hexdigest(): d for d in FILES.values()}

    def log_message(self, *args):
        pass

    def do_GET(self):
        s = self.server
        data = self.files[self.path[1:]]
        with s.lock:
            s.now += 1
            s.most = max(s.most, s.now)
        try:
            self.send_response(200)
            self.send_header('Content-Length', str(len(data)))
            self.end_headers()
        finally:
            # before the last bytes: the next request may come as soon as these are there
            with s.lock:
                s.now -= 1
        self.wfile.write(data)


@pytest.fixture
def counting():
    """Counts the requests at once: `most`."""
    with serving(http.server.ThreadingHTTPServer(('127.0.0.1', 0), Counted)) as s:
        s.lock, s.now, s.most = threading.Lock(), 0, 0
        s.url = f'http://127.0.0.1:{s.server_address[1]}'
        yield s


@pytest.mark.parametrize('given', [None, 3])
def test_connections(counting, cache, tmp_path, given):
    """LINKS: each file is a request of its own, but no more than `connections` are there at once."""
    carton = LinkedCarton(method='stored')
    for name, data in FILES.items():
        carton.link(name, data, f'{counting.url}/{hashlib.sha256(data).hexdigest()}')
    path = carton.write(tmp_path / 'm.carton')
    words = [f'--connections={given}'] * bool(given)
    p = ctl('fetch', '--private-links', *words, cache.flag, path, preexec_fn=few_descriptors)
    assert p.returncode == 0, p.stderr
    assert 1 < counting.most <= (given or CONNECTIONS)
    assert {hashlib.sha256(d).hexdigest() for d in FILES.values()} <= set(cache.objects())


def from_span(s, name):
    """Where the data of that file is in the carton."""
    with zipfile.ZipFile(s) as z:
        info = z.getinfo(name)
    with open(s, 'rb') as f:
        f.seek(info.header_offset + 26)
        n, extra = struct.unpack('<HH', f.read(4))
    at = info.header_offset + 30 + n + extra
    return info.header_offset, at, at + info.compress_size


# ---- what a server can do ----

def read_all(m, names):
    """{name: bytes, or the errno}"""
    out = {}
    for name in names:
        try:
            out[name] = m.read(name)
        except OSError as e:
            out[name] = e.errno
    return out


def tampered(change, begin, end):
    """A tamper(): the bytes [begin, end) are changed wherever they are sent."""
    def tamper(first, data):
        low, high = max(begin, first), min(end, first + len(data))
        if low >= high:
            return data
        data = bytearray(data)
        data[low - first:high - first] = change(bytes(data[low - first:high - first]))
        return bytes(data)
    return tamper


VICTIM = 'model/f0100'


@pytest.mark.parametrize('what', ['flipped', 'shifted', 'swapped', 'header'])
def test_wrong_bytes_of_one(served, mount, cache, tmp_path, what):
    """One entry of a span is wrong: nobody reads a wrong byte of it, and all others are right."""
    path = written(tmp_path / 'm.carton', method='stored')
    header, begin, end = from_span(path, VICTIM)
    s = served(path)
    if what == 'flipped':
        s.tamper = tampered(lambda d: bytes([d[0] ^ 1]) + d[1:], begin, end)
    elif what == 'shifted':
        s.tamper = tampered(lambda d: d[-1:] + d[:-1], begin, end)
    elif what == 'swapped':
        other = FILES['model/f0200'] * 10
        s.tamper = tampered(lambda d: other[:len(d)], begin, end)
    else:
        s.tamper = tampered(lambda d: bytes([d[0] ^ 1]) + d[1:], header + 30, begin)
    with mount(s.url, *cache.options) as m:
        got = read_all(m, sorted(FILES))
        assert got.pop(VICTIM) == errno.EIO
        assert got == {name: data for name, data in FILES.items() if name != VICTIM}
    assert len(s.ranges) <= MAX_REQUESTS + 5
    cache.check()


def test_everything_is_shifted(served, mount, cache, tmp_path):
    """All spans are of other bytes: no file is right, and none is shown."""
    path = written(tmp_path / 'm.carton', method='stored')
    s = served(path)
    with mount(s.url, *cache.options) as m:
        s.tamper = lambda first, data: data[1:] + data[:1]
        names = sorted(FILES)[:200]
        assert {v for v in read_all(m, names).values()} <= {errno.EIO}
    cache.check()


def test_spans_are_refused(served, mount, cache, tmp_path):
    """A server, or a proxy, that cuts off all that is long: each file comes alone, and is right."""
    path = written(tmp_path / 'm.carton', method='stored')
    s = served(path)
    with mount(s.url, *cache.options) as m:
        s.tamper = lambda first, data: data if len(data) < 12000 else data[:0]
        names = sorted(FILES)[:40]
        assert in_order(names, m) == {name: FILES[name] for name in names}


def test_a_span_is_cut_short(served, mount, cache, tmp_path):
    """The first answer of each range ends in its middle: it is asked for again."""
    path = written(tmp_path / 'm.carton', method='stored')
    s = served(path)
    seen = set()

    def tamper(first, data):
        if len(data) > 12000 and first not in seen:
            seen.add(first)
            return data[:len(data) // 2]
        return data
    with mount(s.url, *cache.options) as m:
        s.tamper = tamper
        assert in_order(sorted(FILES), m) == FILES
    assert seen
    cache.check()


def test_another_carton(served, mount, cache, tmp_path):
    """The file at the URL is another one from some time on: what is read is of the first, or an error."""
    path = written(tmp_path / 'm.carton', method='stored')
    other = written(tmp_path / 'n.carton', contents(seed=6), method='stored')
    s = served(path)
    with mount(s.url, *cache.options) as m:
        names = sorted(FILES)
        assert in_order(names[:100], m) == {name: FILES[name] for name in names[:100]}
        with open(other, 'rb') as f, s.lock:
            s.data, s.etag = f.read(), '"two"'
        got = read_all(m, names)
        assert [(name, data) for name, data in got.items() if isinstance(data, bytes) and data != FILES[name]] == []
        assert any(not isinstance(data, bytes) for data in got.values())
    cache.check()


def test_a_reader_that_is_interrupted(served, mount, cache, tmp_path):
    """Who waits for a span can be interrupted; then the same file is read after all."""
    path = written(tmp_path / 'm.carton', method='stored')
    s = served(path)
    names = sorted(FILES)
    with mount(s.url, *cache.options) as m:
        assert in_order(names[:1], m)
        s.begun.clear()
        s.gate.clear()
        p = subprocess.Popen(['cat', m / names[1]], stdout=subprocess.DEVNULL)
        assert s.begun.wait(60 * SLOW)
        p.terminate()
        with at_once():
            p.wait()
        s.gate.set()
        assert in_order(names, m) == FILES


def test_an_end_while_a_span_comes(served, mount_fg, cache, tmp_path):
    """Whatever waits for a span, and the fills of neighbours, end with the mount."""
    path = written(tmp_path / 'm.carton', method='stored')
    s = served(path)
    names = sorted(FILES)
    with mount_fg(s.url, *cache.options) as m:
        in_order(names[:1], m)
        s.begun.clear()
        s.gate.clear()
        p = subprocess.Popen(['cat', m / names[1]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert s.begun.wait(60 * SLOW)
        with at_once():
            assert unmount(m.path, lazy=True).returncode == 0
            assert p.wait() != 0
            m.wait_end()


def test_bad_neighbour_of_a_fetch(served, cache, tmp_path):
    """fetch names the one that is damaged, and has all others."""
    path = written(tmp_path / 'm.carton', method='stored')
    _, begin, end = from_span(path, VICTIM)
    s = served(path)
    s.tamper = tampered(lambda d: bytes(len(d)), begin, end)
    p = ctl('fetch', cache.flag, s.url)
    assert p.returncode == 1 and VICTIM in p.stderr
    want = {hashlib.sha256(d).hexdigest() for name, d in FILES.items() if name != VICTIM}
    assert want <= set(cache.objects())
