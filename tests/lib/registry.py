# SPDX-License-Identifier: Apache-2.0
"""
A registry of OCI artifacts: docker-registry itself (package docker-registry), on loopback. skopeo (package skopeo)
pushes to it what layout() writes.

  Registry       `auth`: None, 'basic' (USER and PASSWORD) or a TokenServer, whose tokens it takes
  TokenServer    gives tokens to anybody, or to USER only; signed by a key that it makes
  layout         a directory in the OCI layout, with one artifact
"""
import base64
import contextlib
import hashlib
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

import pytest

import harness
from harness import eventually
from origin import free_port
from served import Handler, Server, serve, start, stop

USER, PASSWORD = 'joe', 'hunter2'
BCRYPT = 'joe:$2y$05$qfBl//4VqGY0OgjuY/Bm4.xIjQNRhUuChR/RieonLDUFjYmOvWlbu\n'     # of these
BASIC = base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()
MODEL = 'application/vnd.cncf.model'
FILEPATH = 'org.cncf.model.filepath'
MANIFEST = 'application/vnd.oci.image.manifest.v1+json'
INDEX = 'application/vnd.oci.image.index.v1+json'
REPOSITORY = 'me/my-model'


def digest_of(data):
    return 'sha256:' + hashlib.sha256(data).hexdigest()


def url_safe(data):
    return base64.urlsafe_b64encode(data).rstrip(b'=')


def new_certificate(key, cert, *more):
    p = harness.run('openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes',
                    '-days', '2', '-subj', '/CN=tests', '-keyout', key, '-out', cert, *more)
    assert p.returncode == 0, p.stderr


class TokenServer:
    """Gives tokens. `seen`: (query, Authorization) of each request."""

    def __init__(self, where, private=False):
        outer, self.dir, self.private, self.seen = self, Path(where), private, []
        self.dir.mkdir(exist_ok=True)
        self.new_key()

        class Own(Handler):
            def do_GET(self):
                query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
                secret = self.headers.get('Authorization')
                outer.seen.append((query, secret))
                refused = secret not in (None, f'Basic {BASIC}') or (outer.private and not secret)
                body = json.dumps({} if refused else {'token': outer.token(query), 'expires_in': 300}).encode()
                self.send_response(401 if refused else 200)
                self.send_header('Content-Length', str(len(body)))
                self.end_headers()
                self.wfile.write(body)
        self.http = serve(handler=Own)
        self.realm = f'http://127.0.0.1:{self.http.server_address[1]}/token'

    def new_key(self):
        """A registry that is started now takes no tokens that were given before."""
        self.key, self.cert = self.dir / 'token.key', self.dir / 'token.pem'
        new_certificate(self.key, self.cert)

    def token(self, query):
        der = subprocess.run(['openssl', 'x509', '-in', self.cert, '-outform', 'der'], capture_output=True, check=True)
        head = {'typ': 'JWT', 'alg': 'ES256', 'x5c': [base64.b64encode(der.stdout).decode()]}
        now, scopes = int(time.time()), [s.split(':') for s in query.get('scope', [])]
        claims = {'iss': 'tests', 'sub': '', 'aud': query['service'][0], 'exp': now + 300, 'nbf': now - 60, 'iat': now,
                  'jti': str(len(self.seen)), 'access': [
                      {'type': kind, 'name': name, 'actions': what.split(',')} for kind, name, what in scopes]}
        text = b'.'.join(url_safe(json.dumps(x).encode()) for x in (head, claims))
        p = subprocess.run(['openssl', 'dgst', '-sha256', '-sign', self.key], input=text, capture_output=True, check=True)
        # the signature is DER with two numbers; ES256 has both of them as 32 bytes
        n = p.stdout[3]
        two = (int.from_bytes(x, 'big').to_bytes(32, 'big') for x in (p.stdout[4:4 + n], p.stdout[6 + n:]))
        return (text + b'.' + url_safe(b''.join(two))).decode()

    def stop(self):
        stop(self.http)


LINE = re.compile(r'^\S+ - \S* \[[^]]*\] "(\w+) (\S+) [^"]*" (\d+) (\d+)', re.M)


class Registry:
    """A running docker-registry. `url`: where its API is; `host`: what comes behind oci://."""

    def __init__(self, where, auth=None, tls=False):
        self.dir, self.auth, self.process, self.port = Path(where), auth, None, free_port()
        self.dir.mkdir(exist_ok=True)
        self.key, self.cert = (self.dir / 'tls.key', self.dir / 'tls.pem') if tls else (None, None)
        if tls:
            new_certificate(self.key, self.cert, '-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost.example')
        self.log, self.mark, self.marks = self.dir / 'access.log', 0, 0
        (self.dir / 'htpasswd').write_text(BCRYPT)
        self.start()

    @property
    def host(self):
        return f'127.0.0.1:{self.port}'

    @property
    def url(self):
        return f'http://{self.host}'

    def config(self):
        config = {'version': 0.1, 'log': {'level': 'error'},
                  'storage': {'filesystem': {'rootdirectory': str(self.dir / 'data')}, 'delete': {'enabled': True}},
                  'http': {'addr': self.host, 'secret': 'x'}}
        if self.cert:
            config['http']['tls'] = {'certificate': str(self.cert), 'key': str(self.key)}
        if self.auth == 'basic':
            config['auth'] = {'htpasswd': {'realm': 'tests', 'path': str(self.dir / 'htpasswd')}}
        elif self.auth:
            config['auth'] = {'token': {'realm': self.auth.realm, 'service': 'reg', 'issuer': 'tests',
                                        'rootcertbundle': str(self.auth.cert)}}
        return config

    def start(self):
        exe = harness.run('sh', '-c', 'command -v docker-registry').stdout.strip()
        assert exe, 'these tests need docker-registry: apt-get install docker-registry'
        path = self.dir / 'config.yml'
        path.write_text(json.dumps(self.config()))      # JSON is YAML
        with open(self.log, 'ab') as log, open(self.dir / 'error.log', 'ab') as errors:
            self.process = subprocess.Popen([exe, 'serve', str(path)], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=errors, env=harness.environment())
        eventually('the registry answers or ends', self.answers, why=lambda: (self.dir / 'error.log').read_text())
        self.clear()

    def answers(self):
        assert self.process.poll() is None, (self.dir / 'error.log').read_text()
        with contextlib.suppress(OSError):
            c = self.connect()
            c.request('GET', '/v2/')
            status = c.getresponse().status
            c.close()
            return status in (200, 401)

    def connect(self):
        if not self.cert:
            return http.client.HTTPConnection('127.0.0.1', self.port, timeout=10)
        return http.client.HTTPSConnection('127.0.0.1', self.port, timeout=10,
                                           context=ssl.create_default_context(cafile=self.cert))

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def restart(self):
        self.stop()
        self.start()

    def clear(self):
        self.requests()
        self.mark = os.path.getsize(self.log)

    def requests(self):
        """(method, path, status, bytes) of all since clear(): the log has a request once its answer has gone."""
        if self.process.poll() is None:
            self.marks += 1
            mark = f'/v2/?mark={self.marks}'
            c = self.connect()
            c.request('GET', mark)
            c.getresponse().read()
            c.close()
            eventually(f'{mark} is in the log', lambda: mark.encode() in self.log.read_bytes())
        text = self.log.read_bytes()[self.mark:].decode()
        return [(m, path, int(status), int(n)) for m, path, status, n in LINE.findall(text) if '?mark=' not in path]

    def blobs(self):
        """{digest: [bytes of each answer]} since clear()."""
        out = {}
        for method, path, status, n in self.requests():
            if method == 'GET' and '/blobs/' in path and status < 300:
                out.setdefault(path.rpartition('/')[2], []).append(n)
        return out

    def oci(self, reference='latest', name=REPOSITORY):
        return f'oci://{self.host}/{name}{"@" if reference.startswith("sha256:") else ":"}{reference}'

    def push(self, path, reference='latest', name=REPOSITORY):
        """By skopeo, as it is in the layout."""
        login = ['--dest-creds', f'{USER}:{PASSWORD}'] if self.auth else []
        p = harness.run('skopeo', '--insecure-policy', 'copy', '-q', '--all', '--preserve-digests',
                        '--dest-tls-verify=false', *login, f'oci:{path}', f'docker://{self.host}/{name}:{reference}')
        assert p.returncode == 0, p.stderr
        self.clear()
        return self


class Front:
    """
    A server before a registry. `change(path, status, headers, body)` may change an answer; `before(method, path, body)`
    may give one in place of the registry, or 'drop' the connection; `seen`: path, headers. A request that breaks off
    does not reach the registry; with `keeps`, what came of an upload does, as at registries that keep all they get.
    `tls`: the files of its certificate and its key.
    """

    def __init__(self, registry, change=None, ranges=True, before=None, keeps=False, tls=None):
        outer, self.registry, self.change, self.before, self.seen = self, registry, change, before, []
        uploads, self.lock = {}, threading.Lock()

        class Own(Handler):
            def do_GET(self):
                # whoever asks how far an upload is waits for what is on its way
                with outer.lock if keeps and '/uploads/' in self.path else contextlib.nullcontext():
                    self.handle_it()

            def handle_it(self):
                outer.seen.append((self.path, dict(self.headers)))
                length = int(self.headers.get('Content-Length', 0))
                sent = self.rfile.read(length)
                own = outer.before(self.command, self.path, sent) if outer.before else None
                self.close_connection |= len(sent) < length
                if own == 'drop' or (len(sent) < length and not keeps):
                    self.close_connection = True
                    return
                if own:
                    self.answer(*own)
                    return
                c = http.client.HTTPConnection('127.0.0.1', registry.port, timeout=60)
                upload = self.path.partition('?')[0]
                path = uploads.get(upload, self.path) if self.command == 'GET' else self.path
                c.request(self.command, path, sent or None, headers={
                    k: v for k, v in self.headers.items()
                    if k.lower() not in ('host', 'content-length') and (ranges or k.lower() != 'range')})
                a = c.getresponse()
                status, headers, body = a.status, dict(a.getheaders()), a.read()
                c.close()
                if keeps and self.command == 'PATCH':
                    uploads[upload] = headers['Location'].replace(registry.url, '')
                if 'Location' in headers:
                    headers['Location'] = headers['Location'].replace(registry.host, self.headers['Host'])
                if not ranges:
                    headers.pop('Accept-Ranges', None)
                if outer.change:
                    status, headers, body = outer.change(self.path, status, headers, body) or (status, headers, body)
                self.answer(status, headers, body)

            do_HEAD = do_POST = do_PUT = do_PATCH = do_GET

            def answer(self, status, headers, body):
                self.send_response(status)
                length = {} if self.command == 'HEAD' else {'Content-Length': str(len(body))}
                for k, v in (headers | length).items():
                    self.send_header(k, v)
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(b'' if self.command == 'HEAD' else body)
        self.http = Server(('127.0.0.1', 0), Own)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        start(self.http)
        self.port = self.http.server_address[1]
        self.host = f'127.0.0.1:{self.port}'

    def __enter__(self):
        return self

    def __exit__(self, *a):
        stop(self.http)

    def oci(self, url):
        """The same artifact through this server."""
        return re.sub('(?<=oci://)[^/]*', self.host, url)


class Cut:
    """
    A link to a registry, or a Front, that breaks when a client has sent `after` bytes through one connection, each time while `cuts`
    are left. The client gets a reset or, if the link is `silent`, can send no more. `up`: all bytes that clients have sent.
    """

    def __init__(self, registry, after, cuts=1, silent=False):
        self.silent = silent
        self.registry, self.after, self.cuts, self.up = registry, after, cuts, 0
        self.lock, self.socket = threading.Lock(), socket.create_server(('127.0.0.1', 0))
        self.host = f'127.0.0.1:{self.socket.getsockname()[1]}'
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.socket.accept()[0]
                server = socket.create_connection(('127.0.0.1', self.registry.port))
                for a, b, up in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self.copy, args=(a, b, up), daemon=True).start()

    def copy(self, a, b, up):
        sent = 0
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 16):
                b.sendall(data)
                sent += len(data)
                with self.lock:
                    self.up += len(data) * up
                    cut = up and sent >= self.after and self.cuts > 0
                    self.cuts -= cut
                if cut:
                    break
        for s in (a, b):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            if not self.silent:
                s.close()       # what comes after that is answered by a reset

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.socket.close()

    oci = Front.oci


@contextlib.contextmanager
def registry_at(where, auth=None, tls=False):
    r = Registry(where, auth, tls)
    try:
        yield r
    finally:
        r.stop()


@pytest.fixture(scope='module')
def running_registry(session_dir):
    with registry_at(tempfile.mkdtemp(prefix='registry', dir=session_dir)) as r:
        yield r


@pytest.fixture
def registry(running_registry):
    """Its requests() are those of one test."""
    running_registry.clear()
    return running_registry


@contextlib.contextmanager
def tokens_at(where, **kw):
    t = TokenServer(where, **kw)
    try:
        yield t
    finally:
        t.stop()


# ---- artifacts ----

def descriptor(kind, data, annotations=None, **more):
    out = {'mediaType': kind, 'digest': digest_of(data), 'size': len(data)}
    return out | ({'annotations': annotations} if annotations else {}) | more


def model_config(files):
    """The config of a ModelPack artifact with these files, each a raw layer."""
    return {'descriptor': {'name': 'my-model', 'licenses': ['apache-2.0']}, 'config': {'format': 'safetensors'},
            'modelfs': {'type': 'layers', 'diffIds': [digest_of(d) for d in files.values()]}}


class Artifact:
    """
    What an artifact is made of: `manifest`, which a test may change, and its blobs. A ModelPack of `files`, unless
    `layers` has (media type, annotations, bytes, other members of the descriptor) and `config` is (media type, bytes).
    """

    def __init__(self, files=None, layers=None, config=None, **manifest):
        if layers is None:
            layers = [(f'{MODEL}.{"weight" if p.endswith(".safetensors") else "weight.config"}.v1.raw', {FILEPATH: p}, d,
                       {}) for p, d in files.items()]
            manifest = {'artifactType': f'{MODEL}.manifest.v1+json'} | manifest
        kind, text = config or (f'{MODEL}.config.v1+json', json.dumps(model_config(files)).encode())
        self.blobs = [text, *(x[2] for x in layers)]
        self.manifest = {'schemaVersion': 2, 'mediaType': MANIFEST, 'config': descriptor(kind, text), 'layers': [
            descriptor(k, data, annotations, **more) for k, annotations, data, more in layers]} | manifest

    def text(self):
        return json.dumps(self.manifest).encode()

    @property
    def digest(self):
        return digest_of(self.text())


def layout(path, *artifacts):
    """Writes an OCI layout with these artifacts, or what json.dumps() makes of a dict (an index)."""
    where = Path(path)
    blobs = where / 'blobs/sha256'
    blobs.mkdir(parents=True)
    (where / 'oci-layout').write_text('{"imageLayoutVersion": "1.0.0"}')
    for a in artifacts:
        for data in [*a.blobs, a.text()]:
            (blobs / hashlib.sha256(data).hexdigest()).write_bytes(data)
    listed = [descriptor(a.manifest['mediaType'], a.text()) for a in artifacts[-1:]]
    (where / 'index.json').write_text(json.dumps({'schemaVersion': 2, 'mediaType': INDEX, 'manifests': listed}))
    return where


class Index(Artifact):
    """An index of these artifacts; `more`: members of the descriptor of each."""

    def __init__(self, *artifacts, more=None):
        self.blobs = [x for a in artifacts for x in [*a.blobs, a.text()]]
        self.manifest = {'schemaVersion': 2, 'mediaType': INDEX, 'manifests': [
            descriptor(MANIFEST, a.text(), **m) for a, m in zip(artifacts, more or [{}] * len(artifacts))]}
