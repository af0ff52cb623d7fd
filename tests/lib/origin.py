# SPDX-License-Identifier: Apache-2.0
"""
Origins on loopback for the tests of LINKS, remote cartons and the cache, and what the tests share.

  Nginx          a real server (package nginx-light or nginx): ranges, codings, limits, a log
  Fault          faultserver.py, for what a real server cannot do; its docstring is the manual
  LinkedCarton   a Carton with files that only LINKS leads to
  Cache          a cache directory of one test, which must hold nothing wrong at its end

conftest.py registers this file as a plugin: its fixtures need no import. Each test file has its own
servers.
"""
import contextlib
import ctypes
import hashlib
import http.client
import json
import os
import re
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import urllib.parse
import zlib
from pathlib import Path

import pytest
import zstandard

import harness
from faultserver import BLOCK, BROTLI, pattern
from harness import eventually
from zipwriter import Carton, Entry, sha256

PRIVATE = ('-o', 'private_links')       # all origins here are on loopback
MIB = 1 << 20
BROTLI_MODULE = '/usr/lib/nginx/modules/ngx_http_brotli_filter_module.so'


def reserved_port(family=socket.AF_INET):
    """(port, socket): bound but not listening, so whoever connects is refused."""
    s = socket.socket(family, socket.SOCK_STREAM)
    s.bind(('127.0.0.1', 0))
    return s.getsockname()[1], s


def free_port():
    port, s = reserved_port()
    s.close()
    return port


# ---- nginx ----

# One process, so that the log has requests in the order in which they ended.
CONF = """
load_module {brotli};
daemon off;
master_process {master};
pid {dir}/pid;
error_log {dir}/error.log warn;
events {{ worker_connections 512; }}
http {{
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    log_format test escape=json
        '{{"method":"$request_method","path":"$uri","query":"$args","range":"$http_range",'
        '"if_range":"$http_if_range","if_match":"$http_if_match","accept":"$http_accept_encoding",'
        '"cache_control":"$http_cache_control","authorization":"$http_authorization",'
        '"x_token":"$http_x_token","status":$status,"sent":$body_bytes_sent,"conn":$connection,'
        '"protocol":"$server_protocol","coding":"$sent_http_content_encoding"}}';
    access_log {dir}/access.log test;
    default_type application/octet-stream;
    limit_req_zone $binary_remote_addr zone=requests:1m rate=20r/s;
    limit_conn_zone $binary_remote_addr zone=connections:1m;
    open_file_cache off;
    sendfile on;
    root {root};
    server {{
        listen 127.0.0.1:{port};
        {tls}
        location / {{ }}
        location /norange/ {{ alias {root}/; max_ranges 0; }}
        location /slow/ {{ alias {root}/; limit_rate {rate}; }}
        location /secret/ {{ alias {root}/; if ($http_x_token != "open sesame") {{ return 401; }} }}
        location /netrc/ {{ alias {root}/; if ($http_authorization = "") {{ return 401; }} }}
        location /gone/ {{ return 404; }}
        location /limited/ {{ alias {root}/; limit_req zone=requests; limit_req_status 503; }}
        location /narrow/ {{ alias {root}/; limit_conn connections 2; limit_conn_status 429;
                             limit_rate 4m; }}
        location /denied/ {{ return 403; }}
        location /gzip/ {{ alias {root}/; gzip on; gzip_comp_level 1; gzip_min_length 0;
                           gzip_types *; etag on; }}
        location /br/ {{ alias {root}/; brotli on; brotli_types *; brotli_min_length 0;
                         brotli_comp_level 1; }}
        {coded}
        {more}
    }}
}}
"""
CODED = """
        location /as-{name}/ {{ alias {root}/as-{name}/; add_header Content-Encoding {name}; }}
"""


class Nginx:
    """A running nginx; `root` is what it serves. With a `master` it can reload, by SIGHUP."""

    def __init__(self, where, rate=4 * MIB, more='', tls=None, master=False):
        self.dir, self.root = Path(where), Path(where) / 'root'
        self.root.mkdir(parents=True)
        self.rate, self.more, self.tls, self.process = rate, more, tls, None
        self.master = ('on; user root' if harness.IS_ROOT else 'on') if master else 'off'
        self.seen = self.marks = 0

    def start(self):
        exe = harness.run('sh', '-c', 'command -v nginx').stdout.strip()
        assert exe, 'these tests need nginx: apt-get install nginx-light'
        assert os.path.exists(BROTLI_MODULE), 'needs its brotli module; make test-deps'
        for _ in range(5):
            self.port = free_port()
            (self.dir / 'conf').write_text(CONF.format(
                dir=self.dir, root=self.root, port=self.port, rate=self.rate, more=self.more,
                master=self.master, brotli=BROTLI_MODULE,
                tls='' if not self.tls else 'listen 127.0.0.1:%d ssl http2; ssl_certificate %s; '
                'ssl_certificate_key %s;' % self.tls_words(),
                coded=''.join(CODED.format(name=n, root=self.root) for n in COMPRESS)))
            # stderr has only warnings of its library from before error_log is opened
            self.process = subprocess.Popen(
                [exe, '-p', str(self.dir), '-c', str(self.dir / 'conf'), '-e',
                 str(self.dir / 'error.log')], stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, env=harness.environment())
            if eventually('nginx answers or ends', self.state) == 'up':
                self.clear()
                return self
        raise AssertionError((self.dir / 'error.log').read_text())

    def tls_words(self):
        self.tls_port = free_port()
        return self.tls_port, *self.tls

    def state(self):
        if self.process.poll() is not None:
            return 'ended'
        with contextlib.suppress(OSError):
            self.ask('/_up')
            return 'up'

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(10)

    def ask(self, path):
        c = http.client.HTTPConnection('127.0.0.1', self.port, timeout=60 * harness.SLOW)
        c.request('GET', path)
        c.getresponse().read()
        c.close()

    def url(self, path):
        return f'http://127.0.0.1:{self.port}/' + urllib.parse.quote(str(path))

    def put(self, name, data):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return self.url(name)

    # -- the log --

    def marked(self):
        """The log since clear(), up to a request of our own, which is logged after its answer."""
        self.marks += 1
        name = f'/_mark{self.marks}'
        self.ask(name)

        def logged():
            with open(self.dir / 'access.log', 'rb') as f:
                f.seek(self.seen)
                text = f.read()
            before, mark, after = text.partition(f'"{name}"'.encode())
            return b'\n' in after and before + mark + after[:after.index(b'\n') + 1]
        return eventually(f'{name} is in the log', logged)

    def clear(self):
        self.seen += len(self.marked())

    def requests(self, path=None):
        """The requests since clear(), oldest first; those for one path if it is given."""
        lines = [json.loads(line) for line in self.marked().splitlines()]
        lines = [x for x in lines if not x['path'].startswith('/_')]
        if path is not None:
            lines = [x for x in lines if x['path'].endswith('/' + str(path))]
        return lines


@contextlib.contextmanager
def nginx_at(where, **kw):
    n = Nginx(where, **kw)
    try:
        yield n.start()
    finally:
        n.stop()


# ---- the fault server ----

class Fault:
    """faultserver.py in a process of its own."""

    def __init__(self, host='127.0.0.1', port=0, root=None, tls=None, prefix=()):
        script = Path(__file__).with_name('faultserver.py')
        cmd = [*prefix, sys.executable, str(script), '--host', host, '--port', str(port), '--stdin']
        cmd += ['--root', str(root)] if root else []
        cmd += ['--tls', *map(str, tls)] if tls else []
        self.host, self.root, self.scheme = host, root, 'https' if tls else 'http'
        self.process = subprocess.Popen(cmd, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=harness.environment(PYTHONDONTWRITEBYTECODE='1'))
        self.port = int(self.process.stdout.readline())

    def stop(self):
        self.process.stdin.close()
        self.process.kill()             # connections may be in the middle of a silence
        self.process.wait()
        self.process.stdout.close()

    def url(self, path, **kw):
        """`path` as faultserver.py's docstring has it; further options by name."""
        parts = [f'{k}={urllib.parse.quote(str(v), safe="")}' for k, v in kw.items()]
        host = f'[{self.host}]' if ':' in self.host else self.host
        return f'{self.scheme}://{host}:{self.port}/' + '/'.join(parts + [path])

    def coded_url(self, path, **kw):
        """The same of what takes seconds to be coded: that is done, so that no client waits for it. Clears the log."""
        url = self.url(path, **kw)
        c = http.client.HTTPConnection(self.host, self.port, timeout=60 * harness.SLOW)
        c.request('HEAD', urllib.parse.urlsplit(url).path)
        c.getresponse().read()
        c.close()
        self.clear()
        return url

    def ask(self, path):
        c = http.client.HTTPConnection(self.host, self.port, timeout=60 * harness.SLOW)
        c.request('GET', path)
        answer = json.loads(c.getresponse().read())
        c.close()
        return answer

    def clear(self):
        self.ask('/_clear')

    def requests(self, name=None):
        """All since clear(), or those whose path ends in /name."""
        all_of_them = self.ask('/_log')['requests']
        for r in all_of_them:
            r['h'] = {k.lower(): v for k, v in r['headers']}
        return [r for r in all_of_them if name is None or r['path'].endswith('/' + name)]

    def connections(self):
        return self.ask('/_log')['connections']


def fault_bytes(size, seed=0, zeros=False):
    """What the fault server sends for size=, seed= or zeros."""
    block = bytes(BLOCK) if zeros else pattern(seed)
    return (block * (size // BLOCK + 1))[:size]


# ---- cartons ----

class LinkedCarton(Carton):
    """Paths added with link() are in MANIFEST and LINKS, but not in the container."""

    def __init__(self, **kw):
        super().__init__(**kw)
        self.linked, self.urls, self.links_text = {}, {}, None

    def link(self, path, data, *urls, sha=None):
        """`data`: bytes, Sparse, or (size, sha256); `sha`: a wrong one."""
        self.linked[path] = data
        self.urls.setdefault(sha or self.sum(data), []).extend(urls)
        return self

    def resolve(self, path):
        """As in Carton; a symlink may lead to a linked file."""
        while path not in self.linked and stat.S_ISLNK(self.entries[path].mode):
            target = self.entries[path].data.decode()
            path = os.path.normpath(os.path.join(os.path.dirname(path), target))
        return Entry(path, self.linked[path]) if path in self.linked else self.entries[path]

    @staticmethod
    def sum(data):
        return data[1] if isinstance(data, tuple) else sha256(data)

    def hashes(self):
        return super().hashes() | {p: self.sum(d) for p, d in self.linked.items()}

    def files(self):
        out = {p: self.linked[p] if p in self.linked else self.resolve(p).data
               for p in self.hashes()}
        return {p: d if isinstance(d, (bytes, tuple)) else (len(d), sha256(d))
                for p, d in out.items()} | {'MANIFEST': self.manifest_bytes()}

    def links_toml(self):
        lines = ['version = 1', '[urls]']
        lines += [f'{h} = [{", ".join(json.dumps(u) for u in urls)}]'
                  for h, urls in self.urls.items()]
        return '\n'.join(lines) + '\n'

    def write(self, path):
        text = self.links_text if self.links_text is not None else self.links_toml()
        self.add('LINKS', text.encode() if isinstance(text, str) else text, method='stored')
        return super().write(path)


# ---- codings ----

def deflated(data):
    return zlib.compress(data, 1)


def gzipped(data):
    c = zlib.compressobj(1, zlib.DEFLATED, 31)
    return c.compress(data) + c.flush()


def brotlied(data):
    """libbrotlienc at its fastest."""
    b = BROTLI
    b.BrotliEncoderMaxCompressedSize.restype = ctypes.c_size_t
    b.BrotliEncoderMaxCompressedSize.argtypes = [ctypes.c_size_t]
    b.BrotliEncoderCompress.argtypes = [ctypes.c_int] * 3 + [
        ctypes.c_size_t, ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t), ctypes.c_char_p]
    out = ctypes.create_string_buffer(b.BrotliEncoderMaxCompressedSize(len(data)) + 1024)
    n = ctypes.c_size_t(len(out))
    assert b.BrotliEncoderCompress(0, 18, 0, len(data), data, ctypes.byref(n), out)
    return out.raw[:n.value]


COMPRESS = {'gzip': gzipped, 'deflate': deflated, 'br': brotlied,
            'zstd': zstandard.ZstdCompressor(level=1).compress}


# ---- the cache ----

def sealed(path):
    """The sha256 that a seal says it is of."""
    return path.read_bytes()[16:48].hex()


class Cache:
    """A cache directory; `options` are for cartonfs, `flag` for cartonctl."""

    def __init__(self, path, uid=None):
        self.path, self.uid = Path(path), uid
        self.options = ('-o', f'cache_dir={path}')
        self.flag = f'--cache-dir={path}'

    def objects(self):
        """{sha256: path} of what is published."""
        return {p.name: p for p in self.path.glob('v1/objects/*/*')}

    def seals(self):
        """{sha256: path} of what says that objects were verified; of several, the last made by any source."""
        return {sealed(p): p for p in sorted(self.path.glob('v1/seals/*'), key=lambda p: p.stat().st_mtime_ns)}

    def partials(self):
        """{name: noted length} of partial entries that have a validator."""
        out = {}
        for p in self.path.glob('v1/partials/*.v'):
            with contextlib.suppress(OSError):
                out[p.stem] = struct.unpack('<Q', p.read_bytes()[8:16])[0]
        return out

    def used(self):
        return sum(p.lstat().st_blocks * 512 for p in self.path.rglob('*')
                   if not p.is_dir())

    def wrong(self):
        """Names of objects with bytes of another hash; not found by the program under test."""
        return [name for name, p in self.objects().items()
                if harness.sha_file(p) != name or p.stat().st_mode & 0o7777 != 0o400]

    def check(self):
        """Checks all objects, here and with `cartonctl cache verify`."""
        if not (self.path / 'v1/objects').exists():
            return
        assert self.wrong() == []
        p = harness.ctl('cache', 'verify', self.flag, uid=self.uid)
        assert p.returncode == 0 and p.stdout == '0 damaged entries removed\n', p.stdout + p.stderr

    def list(self):
        p = harness.ctl('cache', 'list', self.flag, uid=self.uid)
        assert p.returncode == 0, p.stderr
        return {line.split()[0]: int(line.split()[1]) for line in p.stdout.splitlines()
                if line.split()[4:5] not in (['seal'], ['part'])}


# ---- fixtures ----

@pytest.fixture(scope='module')
def nginx(session_dir):
    with nginx_at(tempfile.mkdtemp(prefix='nginx', dir=session_dir)) as n:
        yield n


@pytest.fixture(scope='module')
def fault(session_dir):
    """What it serves by file= is in its `root`."""
    f = Fault(root=tempfile.mkdtemp(prefix='fault', dir=session_dir))
    yield f
    f.stop()


@pytest.fixture(scope='module')
def refusing():
    """The URL of a port that nobody listens on."""
    port, s = reserved_port()
    yield f'http://127.0.0.1:{port}/nobody'
    s.close()


@pytest.fixture(autouse=True)
def fresh_logs(request):
    for name in ('nginx', 'fault'):
        if name in request.fixturenames:
            request.getfixturevalue(name).clear()


@pytest.fixture
def cache(work):
    """A Cache of this test alone; what it holds is checked at the end."""
    c = Cache(work / 'cache')
    yield c
    c.check()


@pytest.fixture(scope='module')
def certificate(session_dir):
    """(certificate, key) for 127.0.0.1 and localhost, signed by itself."""
    where = Path(tempfile.mkdtemp(prefix='tls', dir=session_dir))
    cert, key = where / 'cert.pem', where / 'key.pem'
    p = harness.run('openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2',
                    '-subj', '/CN=127.0.0.1', '-addext',
                    'subjectAltName=IP:127.0.0.1,DNS:localhost', '-keyout', key, '-out', cert)
    assert p.returncode == 0, p.stderr
    return cert, key


# ---- helpers ----

def lines_of(text, word):
    return [line for line in text.splitlines() if re.search(word, line)]


def errno_of(fn, *args):
    """The errno of fn(*args); 0 if it does not fail."""
    try:
        fn(*args)
    except OSError as e:
        return e.errno
    return 0


def as_expected(mount, carton):
    """Reads all of a carton through the mount and compares."""
    assert harness.scan(mount.path) == harness.expected(carton.files(), carton.links())


def digest(data):
    return hashlib.sha256(data).hexdigest()


needs_root = pytest.mark.needs_root     # conftest.py deselects it for other users


def mirror(*templates):
    return [x for t in templates for x in ('-o', f'mirror={t}')]
