# SPDX-License-Identifier: Apache-2.0
"""Registries that want a token, also for what anybody may read: 401, the token, the answer."""
import concurrent.futures
import contextlib
import json
import re
import threading
import urllib.parse

import pytest

import harness
from harness import ctl
from origin import MIB, PRIVATE, LinkedCarton, as_expected, fault_bytes
from served import serve, stop
from zipwriter import Carton


class Server:
    """answer(handler) for each request; `seen` has (method, path, query, headers)."""

    def __init__(self, answer):
        self.seen, self.lock, self.give = [], threading.Lock(), answer
        self.http = serve(self.answer)
        self.url = f'http://127.0.0.1:{self.http.server_address[1]}'

    def answer(self, h):
        path, _, query = h.path.partition('?')
        with self.lock:
            self.seen.append((h.command, path, dict(urllib.parse.parse_qsl(query)), h.headers))
        self.give(h, path)

    def stop(self):
        stop(self.http)


def send(h, status, body=b'', **headers):
    h.send_response(status)
    for name, value in headers.items():
        for v in value if isinstance(value, list) else [value]:
            h.send_header(name.replace('_', '-'), v)
    h.send_header('Content-Length', str(len(body)))
    h.end_headers()
    if h.command == 'GET':
        h.wfile.write(body)


def send_ranged(h, data):
    wanted = re.fullmatch(r'bytes=(\d*)-(\d*)', h.headers.get('Range', ''))
    if not wanted:
        return send(h, 200, data, ETag='"x"', Accept_Ranges='bytes')
    a, b = wanted.groups()
    first = int(a) if a else max(0, len(data) - int(b))
    last = min(int(b), len(data) - 1) if a else len(data) - 1
    return send(h, 206, data[first:last + 1], ETag='"x"',
                Content_Range=f'bytes {first}-{last}/{len(data)}')


class Registry:
    """Blobs at /v2/NAME/blobs/X, each repository with its own tokens, from a server of its own."""

    def __init__(self, blobs):
        self.blobs, self.good, self.given, self.away = blobs, {}, 0, {}
        self.field, self.expires = 'token', None
        self.challenge = 'Bearer realm="{realm}",service="reg",scope="repository:{name}:pull"'
        self.registry, self.tokens = Server(self.answer), Server(self.token)

    def token(self, h, path):
        self.given += 1
        name = self.registry_name(self.tokens.seen[-1][2].get('scope', ''))
        self.good[name] = f'tok{self.given}'
        answer = {self.field: self.good[name], 'issued_at': '2026-01-01T00:00:00Z'}
        if self.expires is not None:
            answer['expires_in'] = self.expires
        send(h, 200, json.dumps(answer).encode())

    @staticmethod
    def registry_name(scope):
        return scope.split(':')[1] if scope.count(':') == 2 else ''

    def answer(self, h, path):
        """Below /v2/ for a token, elsewhere for a name and a password."""
        if path.startswith('/v2/'):
            return self.blob(h, path)
        if not h.headers.get('Authorization', '').startswith('Basic '):
            return send(h, 401, WWW_Authenticate='Basic realm="x"')
        return send_ranged(h, self.blobs[path])

    def blob(self, h, path):
        name = path.split('/')[2]
        if h.headers.get('Authorization') != f'Bearer {self.good.get(name)}':
            text = self.challenge.format(realm=self.tokens.url + '/token', name=name)
            return send(h, 401, b'{"errors":[]}', WWW_Authenticate=text.split('\n'))
        if path in self.away:
            return send(h, 307, Location=self.away[path])
        return send_ranged(h, self.blobs[path])

    def url(self, path):
        return self.registry.url + path


@contextlib.contextmanager
def registry(blobs):
    r = Registry(blobs)
    try:
        yield r
    finally:
        r.registry.stop()
        r.tokens.stop()


def a_carton(tmp_path, seed=0):
    c = Carton(method='stored').add('model/x', fault_bytes(9 * MIB, seed=seed))
    return c, c.write(tmp_path / f'{seed}.carton').read_bytes()


BLOB = '/v2/a/blobs/m.carton'


@pytest.mark.parametrize('field', ['token', 'access_token'])
def test_anonymous(mount, cache, tmp_path, field):
    """One token for all requests; the request for it says nothing of the user and nothing of the file."""
    c, data = a_carton(tmp_path)
    with registry({BLOB: data}) as r:
        r.field = field
        url = r.url(BLOB).replace('http://', 'http://joe:hunter2@')
        with mount(url, *cache.options) as m:
            as_expected(m, c)
        [(method, path, query, headers)] = r.tokens.seen
        assert (method, path) == ('GET', '/token')
        assert query == {'service': 'reg', 'scope': 'repository:a:pull'}
        assert not {'authorization', 'range', 'if-match', 'cookie'} & {k.lower() for k in headers}
        tokens = [x[3].get('Authorization') for x in r.registry.seen]
        assert tokens[0].startswith('Basic ') and set(tokens[1:]) == {'Bearer tok1'}


def test_each_repository(mount, work, cache):
    """Each has its token, got once, however the requests alternate."""
    data = {n: fault_bytes(3 * MIB, seed=i) for i, n in enumerate('abc')}
    with registry({f'/v2/{n}/blobs/{i}': data[n] for n in data for i in range(3)}) as r:
        c = LinkedCarton()
        for i in range(3):
            for n in data:
                c.link(f'model/{n}{i}', data[n] + bytes([i]), r.url(f'/v2/{n}/blobs/{i}'))
                r.blobs[f'/v2/{n}/blobs/{i}'] = data[n] + bytes([i])
        c.write(work / 'm.carton')
        with mount(work / 'm.carton', *PRIVATE, *cache.options) as m:
            for i in range(3):
                for n in data:
                    assert m.read(f'model/{n}{i}') == data[n] + bytes([i])
        assert sorted(x[2]['scope'] for x in r.tokens.seen) == [f'repository:{n}:pull' for n in 'abc']


@pytest.mark.parametrize('scope, wheres', [('repository:{name}:pull', ('blobs', 'manifests')), ('all', ('x', 'y'))])
def test_beside_a_password(mount, cache, tmp_path, scope, wheres):
    """A token is sent where it was wanted; elsewhere at this origin, what the user has, as before."""
    with registry({}) as r:
        r.challenge = 'Bearer realm="{realm}",service="reg",scope="%s"' % scope
        if scope == 'all':
            r.registry_name = lambda s: 'a'
        c = LinkedCarton()
        for i, where in enumerate(2 * wheres):
            path = f'/v2/a/{where}/{i}'
            r.blobs[path] = fault_bytes(MIB, seed=i)
            c.link(f'model/{2 * i}', r.blobs[path], r.url(path))
            c.add(f'model/{2 * i + 1}', fault_bytes(MIB, seed=10 + i))
        c.write(tmp_path / 'm.carton')
        r.blobs['/plain/m.carton'] = (tmp_path / 'm.carton').read_bytes()
        url = r.url('/plain/m.carton').replace('http://', 'http://joe:hunter2@')
        with mount(url, *PRIVATE, *cache.options) as m:
            as_expected(m, c)
        assert r.given == 1
        sent = {k: [x[3].get('Authorization', '').split()[0] for x in r.registry.seen if x[1].startswith(k)]
                for k in ('/plain/', *(f'/v2/a/{where}/' for where in wheres))}
        assert set(sent['/plain/']) == {'Basic'}
        # the first request is refused: of the repository, or of each directory
        others = [x for where in wheres for x in sent[f'/v2/a/{where}/']]
        assert others.count('Basic') == (2 if scope == 'all' else 1)


def test_renewed(mount, cache, tmp_path):
    """A token that the registry no longer takes is replaced; one whose time is over is not sent."""
    c = Carton(method='stored')
    for i in range(4):
        c.add(f'model/{i}', fault_bytes(MIB, seed=i))
    data = c.write(tmp_path / 'm.carton').read_bytes()
    with registry({BLOB: data}) as r:
        with mount(r.url(BLOB), *cache.options) as m:
            for i in range(4):
                r.good.clear()
                m.sha(f'model/{i}')
            as_expected(m, c)
        assert r.given == 5


def test_redirect(mount, cache, tmp_path):
    """The token stays at the registry, also when the store that it sends us to asks for one."""
    c, data = a_carton(tmp_path)
    with registry({BLOB: data}) as r:
        store = Server(lambda h, path: send_ranged(h, data))
        asks = Server(lambda h, path: send(h, 401, WWW_Authenticate=f'Bearer realm="{r.tokens.url}/other"'))
        try:
            r.away[BLOB] = store.url + '/signed'
            with mount(r.url(BLOB), *cache.options) as m:
                as_expected(m, c)
            assert r.given == 1 and store.seen
            assert not [x for x in store.seen if 'Authorization' in x[3]]
            r.away[BLOB] = asks.url + '/signed'
            p = ctl('hash', r.url(BLOB), f'--cache-dir={tmp_path}/c')
            assert p.returncode == 1 and asks.seen
            assert {x[1] for x in r.tokens.seen} == {'/token'}
        finally:
            store.stop()
            asks.stop()


def test_no_token_behind_a_redirect(cache):
    """A server that another leads to has no token fetched, although none was wanted before."""
    tokens = Server(lambda h, path: send(h, 200, b'{"token": "tok"}'))
    asks = Server(lambda h, path: send(h, 401, WWW_Authenticate=f'Bearer realm="{tokens.url}/token"'))
    plain = Server(lambda h, path: send(h, 302, Location=asks.url + '/x'))
    try:
        p = ctl('hash', plain.url + '/m.carton', cache.flag)
        assert p.returncode == 1 and asks.seen and not tokens.seen, p.stderr
        assert not [x for x in asks.seen if 'Authorization' in x[3]]
    finally:
        for server in (plain, asks, tokens):
            server.stop()


@pytest.mark.parametrize('text', [
    'Basic realm="x", bearer scope="repository:{name}:pull",realm = "{realm}" , error="invalid_token"',
    'Basic realm="x"\nBearer realm="{realm}",scope="repository:{name}:pull"',
    'Negotiate abc==, Bearer realm="{realm}",scope="repository:{name}:\\pull"'])
def test_forms(cache, tmp_path, text):
    _, data = a_carton(tmp_path)
    with registry({BLOB: data}) as r:
        r.challenge = text
        p = ctl('hash', r.url(BLOB), cache.flag)
        assert p.returncode == 0 and r.given == 1, p.stderr


@pytest.mark.parametrize('text', [
    'Bearer', 'Bearer realm', 'Bearer scope="x"', 'Basic realm="{realm}"', 'Bearer realm="{realm}',
    'Bearer realm="{realm}",realm="{realm}"', 'Bearer realm="{realm}" scope="x"', 'Bearer realm="/token"',
    'Bearer realm="http://registry.invalid/token"', 'Bearer realm="ftp://127.0.0.1/token"',
    'Bearer realm="file:///etc/passwd"', 'Bearer realm="s3://bucket/token"', 'realm="{realm}"',
    'Bearer realm="{realm}",scope="' + 'x' * 1025 + '"', ''])
def test_not_followed(cache, tmp_path, text):
    _, data = a_carton(tmp_path)
    with registry({BLOB: data}) as r:
        r.challenge = text
        p = ctl('hash', r.url(BLOB), cache.flag)
        assert p.returncode == 1 and 'status 401' in p.stderr
        assert not r.tokens.seen and len(r.registry.seen) == 1


@pytest.mark.parametrize('body, status, says', [
    (b'', 200, 'sends no token'), (b'no json', 200, 'sends no token'), (b'{"token": 5}', 200, 'sends no token'),
    (b'{"token": "a\\r\\nX: y"}', 200, 'sends no token'), (b'[{"token": "a"}]', 200, 'sends no token'),
    (b'{"a": {"token": "a"}}', 200, 'sends no token'), (b' ' * 40000, 200, 'sends too much'),
    (b'{"token": "a"}', 401, 'gives no token'), (b'{"token": "a"}', 302, 'gives no token')])
def test_token_server_fails(cache, tmp_path, body, status, says):
    _, data = a_carton(tmp_path)
    with registry({BLOB: data}) as r:
        r.token = None
        bad = Server(lambda h, path: send(h, status, body, Location='/away'))
        r.tokens.stop()
        r.tokens = bad
        p = ctl('hash', r.url(BLOB), cache.flag)
        assert p.returncode == 1 and says in p.stderr, p.stderr
        assert len(bad.seen) == 1 == len(r.registry.seen)


def test_wrong_token(cache, tmp_path):
    """A token that is not taken is not asked for again and again."""
    _, data = a_carton(tmp_path)
    with registry({BLOB: data}) as r:
        r.registry_name = lambda scope: 'another'
        p = ctl('hash', r.url(BLOB), cache.flag)
        assert p.returncode == 1 and 'status 401' in p.stderr
        assert r.given == 1 and len(r.registry.seen) == 2


@pytest.mark.parametrize('broken', [0, 1])
def test_many_readers(mount, work, cache, broken):
    """A token that has ended while many read is asked for once: the others wait; if that fails, one of them asks."""
    n, left = 4, [None] * broken
    with registry({f'/v2/a/blobs/{i}': fault_bytes(2 * MIB, seed=i) for i in range(n + 1)}) as r:
        c = LinkedCarton()
        for i in range(n + 1):
            c.link(f'model/{i}', r.blobs[f'/v2/a/blobs/{i}'], r.url(f'/v2/a/blobs/{i}'))
        c.write(work / 'm.carton')
        give, blob, refused, changed = r.token, r.blob, [], threading.Condition()
        with mount(work / 'm.carton', *PRIVATE, *cache.options, '-o', 'ahead=off') as m:
            m.sha('model/0')
            r.good.clear()

            def count(h, path):
                blob(h, path)
                with changed:
                    refused.extend([path] * (h.headers.get('Authorization') == 'Bearer tok1'))
                    changed.notify_all()
            r.blob = count

            def slow(h, path):
                with changed:
                    assert changed.wait_for(lambda: len(refused) >= n, timeout=harness.EXIT_S * harness.SLOW)
                    if left:
                        left.pop()
                        h.close_connection = True
                    else:
                        give(h, path)
            r.tokens.give = slow
            with concurrent.futures.ThreadPoolExecutor(n) as pool:
                assert all(pool.map(lambda i: m.read(f'model/{i + 1}') == r.blobs[f'/v2/a/blobs/{i + 1}'], range(n)))
        assert r.given == 2 and len(r.tokens.seen) == 2 + broken
