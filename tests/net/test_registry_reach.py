# SPDX-License-Identifier: Apache-2.0
"""
How a registry is reached: by https first, and by http only where that may be; with the mirrors, the other names and the
tokens that it has. 0.0.0.0 leads to this machine, but is not its name, and so stands for one on the network.
"""
import contextlib
import json
import socket
import tempfile
import threading
import zipfile

import pytest

from harness import CARTONCTL, ctl, problems, run
from origin import needs_root
from registry import BASIC, Artifact, Front, layout, registry_at, tokens_at
from zipwriter import Carton

DATA = b'x' * 5000
ARTIFACT = Artifact({'a.safetensors': DATA, 'b': b'1'})
NAME = 'tests/m'


class Peek:
    """A link to a server. `first`: the first byte of each connection, which of TLS is 22."""

    def __init__(self, port):
        self.to, self.first, self.server = port, [], socket.create_server(('127.0.0.1', 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.lead, args=(self.server.accept()[0],), daemon=True).start()

    def lead(self, client):
        data = client.recv(1 << 16)
        self.first.append(data[:1])
        with socket.create_connection(('127.0.0.1', self.to)) as server, client:
            server.sendall(data)
            threading.Thread(target=self.copy, args=(server, client), daemon=True).start()
            self.copy(client, server)

    @staticmethod
    def copy(a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 16):
                b.sendall(data)
            b.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.server.close()


@pytest.fixture(scope='module')
def tls(session_dir):
    """A registry with TLS, which has ARTIFACT."""
    where = tempfile.mkdtemp(prefix='tls', dir=session_dir)
    with registry_at(where, tls=True) as r:
        yield r.push(layout(tempfile.mkdtemp(dir=where), ARTIFACT), 'v1', NAME)


@pytest.fixture
def plain(registry):
    """One without."""
    return registry.push(layout(tempfile.mkdtemp(dir=registry.dir), ARTIFACT), 'v1', NAME)


@pytest.fixture
def user(work):
    """user(docker, podman, **auths): the environment of a user with these files."""
    def make(docker=None, podman=None, drop_in=None, **auths):
        for path, text in (('docker/daemon.json', docker), ('containers/registries.conf', podman),
                           ('containers/registries.conf.d/x.conf', drop_in)):
            at = work / 'config' / path
            at.parent.mkdir(parents=True, exist_ok=True)
            if text is not None:
                at.write_text(text if isinstance(text, str) else json.dumps(text))
        (work / 'config/docker/config.json').write_text(json.dumps({'auths': {h: {'auth': a} for h, a in auths.items()}}))
        return {'XDG_CONFIG_HOME': str(work / 'config'), 'DOCKER_CONFIG': str(work / 'config/docker')}
    return make


def insecure(*hosts):
    return {'insecure-registries': [*hosts]}


def url(port, host='127.0.0.1'):
    return f'oci://{host}:{port}/{NAME}:v1'


def opens(cache, source, *options, **kw):
    p = ctl('hash', cache.flag, *options, source, **kw)
    assert p.returncode == 0, p.stderr
    return p


# ---- https first ----

def test_tls_on_this_machine(mount, cache, work, tls):
    path = Carton().add('model/x', DATA).write(work / 'm.carton')
    with Peek(tls.port) as peek:
        with mount(url(peek.port), *cache.options, '-o', f'cacert={tls.cert}') as m:
            assert m.read('model/a.safetensors') == DATA
        p = ctl('push', f'--cacert={tls.cert}', path, url(peek.port).replace(':v1', ':v2'))
        assert p.returncode == 0, p.stderr
        assert set(peek.first) == {b'\x16'}


@pytest.mark.parametrize('option', [(), ('--plain-http',), ('--plain-http=127.0.0.1',)])
def test_a_failed_certificate(cache, tls, option):
    """Nothing goes there by http, whatever the user allows."""
    with Peek(tls.port) as peek:
        p = ctl('hash', cache.flag, *option, url(peek.port))
        assert p.returncode == 1 and 'option cacert' in p.stderr.replace('--cacert', 'option cacert'), p.stderr
        assert peek.first and set(peek.first) == {b'\x16'}


@needs_root
def test_no_file_of_authorities(cache, tls, plain, work):
    """As in a small container: one without TLS is reached, and of one with it is said what to install."""
    (work / 'empty').mkdir()

    def ask(port):
        script = 'mount --bind "$0" /etc/ssl/certs && exec "$@"'
        return run('unshare', '--mount', 'sh', '-c', script, work / 'empty',
                           CARTONCTL, 'hash', cache.flag, url(port))
    p = ask(plain.port)
    assert p.returncode == 0, p.stderr
    with Peek(tls.port) as peek:
        p = ask(peek.port)
        assert p.returncode == 1 and 'install ca-certificates, or name a file' in p.stderr, p.stderr
        assert peek.first and set(peek.first) == {b'\x16'}


def test_a_silent_server(cache):
    """That it may have TLS is not known: it is not asked by http."""
    with socket.create_server(('127.0.0.1', 0)) as server:
        got, there = [], []

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    there.append(server.accept()[0])
                    got.append(there[-1].recv(1))
        threading.Thread(target=accept, daemon=True).start()
        p = ctl('hash', cache.flag, '--timeout=1', url(server.getsockname()[1]))
        assert p.returncode == 75 and set(got) == {b'\x16'}, p.stderr


def test_no_https_on_the_network(cache, plain):
    """Neither bytes nor a question go there by http; the message names what allows it."""
    host = f'0.0.0.0:{plain.port}'
    with Peek(plain.port) as peek:
        p = ctl('hash', cache.flag, url(peek.port, '0.0.0.0'))
        assert p.returncode == 1 and set(peek.first) == {b'\x16'}
        assert f'does not speak https; --plain-http=0.0.0.0:{peek.port} lets' in p.stderr, p.stderr
    p = ctl('hash', cache.flag, f'--plain-http={host}0', url(plain.port, '0.0.0.0'))
    assert p.returncode == 1, p.stderr
    for option in '--plain-http', '--plain-http=0.0.0.0', f'--plain-http={host}':
        opens(cache, url(plain.port, '0.0.0.0'), option)


def test_by_http(mount, cache, work, plain):
    """All of it: a mount, one without the network, a carton made of it, a push."""
    host = f'0.0.0.0:{plain.port}'
    source = url(plain.port, '0.0.0.0')
    with mount(source, *cache.options, '-o', f'plain_http={host}') as m:
        assert m.read('model/a.safetensors') == DATA
    with mount(source, *cache.options, '-o', f'plain_http={host},offline') as m:
        assert m.read('model/a.safetensors') == DATA
    p = ctl('import', cache.flag, '--plain-http', source, work / 'm.carton')
    assert p.returncode == 0, p.stderr
    assert f'http://{host}/v2/{NAME}/blobs/' in zipfile.ZipFile(work / 'm.carton').read('LINKS').decode()
    p = ctl('push', '--plain-http', Carton().add('model/x', DATA).write(work / 'n.carton'), source.replace('v1', 'v3'))
    assert p.returncode == 0, p.stderr


def test_past_a_proxy(cache, tls, plain):
    """It cannot tell whether a registry on this machine has https; and its own refusal is not that of a registry."""
    dead = {'https_proxy': 'http://127.0.0.1:1'}
    opens(cache, url(plain.port), env=dead)
    with Peek(tls.port) as peek:
        p = ctl('hash', f'--cache-dir={cache.path}2', '--plain-http', url(peek.port, '0.0.0.0'), env=dead)
        assert p.returncode == 75 and not peek.first, p.stderr


@pytest.mark.parametrize('value', ['http://h', 'h/x', 'a b', 'h:x'])
def test_no_host(cache, value):
    p = ctl('hash', cache.flag, f'--plain-http={value}', 'oci://127.0.0.1:1/a')
    assert p.returncode == 1 and 'is no registry: HOST or HOST:PORT' in p.stderr, p.stderr


# ---- the files of docker and podman ----

@pytest.mark.parametrize('files', [
    lambda host: {'docker': insecure(host)}, lambda host: {'docker': insecure('0.0.0.0/8')},
    lambda host: {'podman': f'[[registry]]\nlocation = "{host}"\ninsecure = true\n'},
    lambda host: {'drop_in': f'[[registry]]\nprefix = "{host}/tests"\ninsecure = true\nlocation = "{host}/tests"\n'},
    lambda host: {'podman': f'[registries.insecure]\nregistries = ["{host}"]\n'}])
def test_insecure(cache, plain, user, files):
    """It means http, for this host alone."""
    opens(cache, url(plain.port, '0.0.0.0'), env=user(**files(f'0.0.0.0:{plain.port}')))
    if 'docker' not in files('') or insecure('0.0.0.0/8') != files('')['docker']:
        p = ctl('hash', cache.flag, url(plain.port, '0.0.0.0'), env=user(**files('0.0.0.0:1')))
        assert p.returncode == 1 and '--plain-http=' in p.stderr, p.stderr


def test_insecure_is_no_unchecked_certificate(cache, tls, user):
    with Peek(tls.port) as peek:
        env = user(insecure(f'0.0.0.0:{peek.port}'))
        p = ctl('hash', cache.flag, url(peek.port, '0.0.0.0'), env=env)
        assert p.returncode == 1 and 'no CA that is known here' in p.stderr, p.stderr
        assert set(peek.first) == {b'\x16'}


@pytest.mark.parametrize('kind', ['password', 'token', 'header'])
def test_no_secret_by_http(cache, work, user, kind):
    """An insecure registry is asked by http, and gets no password so, unless the user names it in plain_http."""
    with tokens_at(work / 'tokens', private=True) as t:
        t.realm = t.realm.replace('127.0.0.1', '0.0.0.0')
        with registry_at(work / 'registry', t if kind == 'token' else 'basic') as r, Front(r) as front:
            r.push(layout(tempfile.mkdtemp(dir=work), ARTIFACT), 'v1', NAME)
            del t.seen[:]
            host, source = f'0.0.0.0:{front.port}', url(front.port, '0.0.0.0')
            (work / 'headers').write_text(f'Authorization: Basic {BASIC}\n')
            options = [f'--header-file={work}/headers'] if kind == 'header' else []
            env = user(insecure(host), **({} if kind == 'header' else {host: BASIC}))
            p = ctl('hash', cache.flag, *options, source, env=env)
            assert p.returncode == 1 and front.seen, p.stderr
            assert kind == 'header' or f'is not sent by http: --plain-http={host} allows it' in p.stderr, p.stderr
            assert not t.seen and not [h for _, h in front.seen if 'Authorization' in h]
            if kind == 'token':     # the realm is at another port, which is not named
                p = ctl('hash', cache.flag, f'--plain-http={host}', source, env=env)
                assert p.returncode == 1 and not t.seen, p.stderr
            opens(cache, source, '--plain-http=0.0.0.0', *options, env=env)
            assert [h for _, h in front.seen if 'Authorization' in h]
            assert kind != 'token' or {secret for _, secret in t.seen} == {f'Basic {BASIC}'}


def mirrored(host, *mirrors, more=''):
    return f'[[registry]]\nprefix = "{host}"\nlocation = "{host}"\n{more}\n' + ''.join(
        f'[[registry.mirror]]\nlocation = "{m}"\n{extra}\n' for m, extra in mirrors)


def test_a_mirror(mount, cache, work, plain, user):
    """It is asked first, for the manifest and for files; what it has not, or has wrong, comes from the registry."""
    with Front(plain) as registry, Front(plain) as mirror:
        source = url(registry.port)
        at = mirrored(f'{registry.host}/tests', (f'{mirror.host}/tests', ''))
        with mount(source, *cache.options, env=user(podman=at)) as m:
            assert m.read('model/a.safetensors') == DATA and m.read('model/b') == b'1'
        assert len([p for p, _ in mirror.seen if p.startswith(f'/v2/{NAME}/')]) >= 3
        assert {p for p, _ in registry.seen} <= {'/v2/'}
        mirror.change = lambda path, status, headers, body: (404, {}, b'') if 'manifests' in path else (
            status, {k: v for k, v in headers.items() if k != 'Docker-Content-Digest'}, body[:-1] + b'?') if body else None
        with mount(source, '-o', f'cache_dir={work}/other', env=user(podman=at)) as m:
            assert m.read('model/a.safetensors') == DATA and m.read('model/b') == b'1'
        assert [p for p, _ in registry.seen if 'manifests' in p]


@pytest.mark.parametrize('option', [(), ('--plain-http=127.0.0.1',)])
def test_a_failed_certificate_of_a_mirror(cache, tls, plain, user, option):
    """Somebody on the way cannot turn it to http, whose word would be taken for a tag: the registry is asked instead."""
    with Front(plain) as registry, Peek(tls.port) as mirror:
        at = mirrored(registry.host, (f'127.0.0.1:{mirror.port}', 'insecure = true'))
        p = ctl('hash', cache.flag, *option, url(registry.port), env=user(podman=at))
        assert p.returncode == 0, p.stderr
        assert mirror.first and set(mirror.first) == {b'\x16'}


@pytest.mark.parametrize('pull, tag, digest', [('all', 1, 1), ('tag-only', 1, 0), ('digest-only', 0, 1), (None, 0, 1)])
def test_what_a_mirror_is_for(cache, plain, user, pull, tag, digest):
    more = 'mirror-by-digest-only = true' if pull is None else ''
    with Front(plain) as registry, Front(plain) as mirror:
        env = user(podman=mirrored(registry.host, (mirror.host, f'pull-from-mirror = "{pull or "all"}"'), more=more))
        for source, wanted in (url(registry.port), tag), (
                f'oci://{registry.host}/{NAME}@{ARTIFACT.digest}', digest):
            del mirror.seen[:]
            p = ctl('ls', f'--cache-dir={cache.path}{wanted}{source[-2:]}', source, env=env)
            assert p.returncode == 0, p.stderr
            assert len([p for p, _ in mirror.seen if '/manifests/' in p]) == wanted


def test_a_mirror_gets_no_credentials(cache, work, user, plain):
    """Those of the registry: it asks for them, and gets none; the registry does."""
    with registry_at(work / 'registry', 'basic') as r, Front(r) as registry, Front(plain, before=lambda *a: (
            401, {'WWW-Authenticate': 'Basic realm="x"'}, b'')) as mirror:
        r.push(layout(tempfile.mkdtemp(dir=work), ARTIFACT), 'v1', NAME)
        env = user(podman=mirrored(registry.host, (mirror.host, '')), **{registry.host: BASIC})
        opens(cache, url(registry.port), env=env)
        assert mirror.seen and not [h for _, h in mirror.seen if 'Authorization' in h]
        assert [h for _, h in registry.seen if h.get('Authorization') == f'Basic {BASIC}']


def test_mirrors_of_docker_hub(cache, plain, user):
    """What a mirror of daemon.json has is not asked for at Docker Hub."""
    env = user({'registry-mirrors': ['ftp://x', 'https://127.0.0.1:1', f'http://127.0.0.1:{plain.port}/']})
    opens(cache, f'oci://docker.io/{NAME}:v1', env=env)


def test_other_names(cache, plain, user):
    """Aliases, another location, and what is blocked; not the registries for all names without one."""
    host = plain.host
    env = user(podman=f'unqualified-search-registries = ["{host}"]\n[aliases]\n"m" = "{host}/{NAME}"\n"o/gone" = "{host}/x"\n'
                      f'[[registry]]\nprefix = "here.example/t"\nlocation = "{host}/tests"\n'
                      '[[registry]]\nlocation = "bad.example"\nblocked = true\n', drop_in='[aliases]\n"o/gone" = ""\n')
    for source in 'oci://m:v1', f'oci://m@{ARTIFACT.digest}', 'oci://here.example/t/m:v1':
        opens(cache, source, env=env)
    for source, message in ((f'oci://{NAME.split("/")[1]}x:v1', 'not oci://REGISTRY/NAME'),
                            ('oci://bad.example/x', 'is blocked in registries.conf'), ('oci://m..:v1', 'not oci://')):
        p = ctl('hash', cache.flag, source, env=env)
        assert p.returncode == 1 and message in p.stderr, p.stderr
    p = ctl('hash', cache.flag, 'oci://m', env=user(podman='[aliases]\nm = "../x"\n'))
    assert p.returncode == 1 and 'is no REGISTRY/NAME' in p.stderr, p.stderr


@pytest.mark.parametrize('files, message', [
    ({'docker': '{"insecure-registries": ["x"'}, 'daemon.json: is not used: it is no JSON'),
    ({'podman': '[[registry]\n'}, 'registries.conf: is not used: line 1: '),
    ({'drop_in': 'a = 1\na = 2\n'}, 'x.conf: is not used: line 2: '),
    ({'docker': ' ' * (1 << 20)}, 'daemon.json: is not used: File too large'),
    ({'podman': '[aliases]\n' + ''.join(f'a{i} = "b/c"\n' for i in range(10001))}, 'is not used: it is too large')])
def test_bad_files(cache, plain, user, files, message):
    """They are named, and the registry is asked without them."""
    p = opens(cache, url(plain.port), env=user(**files))
    assert message in p.stderr, p.stderr


# ---- tokens ----

@pytest.mark.parametrize('scope, asked', [
    ('::', [['repository:tests/m:pull']]), (None, [['repository:tests/m:pull']]),
    ('repository:user/image:pull', [['repository:user/image:pull', 'repository:tests/m:pull'], ['repository:tests/m:pull']]),
    ('repository:tests/m:pull,push', [['repository:tests/m:pull,push']])])
def test_scopes(cache, work, registry, plain, scope, asked):
    """What is needed is asked for, too; and alone, where a token server refuses the rest."""
    with tokens_at(work / 'tokens') as t:
        def before(method, path, body):
            sent = front.seen[-1][1].get('Authorization', '')
            if path.startswith('/v2/tests') and sent != 'Bearer good':
                text = f'Bearer realm="http://{front.host}/token",service="reg"' + (f',scope="{scope}"' if scope else '')
                return 401, {'WWW-Authenticate': text}, b'{}'
            if path.startswith('/token'):
                scopes = [x.partition('=')[2].replace('%2C', ',') for x in path.partition('?')[2].split('&')
                          if x.startswith('scope=')]
                t.seen.append(scopes)
                return (200, {}, b'{"token": "good"}') if len(scopes) == 1 else (400, {}, b'{}')
        with Front(plain, before=before) as front:
            opens(cache, url(front.port))
        assert t.seen == asked


@pytest.mark.parametrize('kind', ['token', 400, 403, 404, 422, 'password'])
def test_a_login_that_has_ended(cache, work, plain, user, kind):
    """The file is named, once; what anybody may read is read without it, and nothing is pushed so."""
    tokens = []

    def before(method, path, body):
        sent = front.seen[-1][1].get('Authorization', '')
        if path.startswith('/token'):
            tokens.append(sent)
            return (401 if kind == 'token' else kind, {}, b'{}') if sent else (200, {}, b'{"token": "anybody"}')
        if path.startswith('/v2/tests') and (sent != 'Bearer anybody' or method not in ('GET', 'HEAD')):
            text = 'Basic realm="x"' if kind == 'password' else f'Bearer realm="http://{front.host}/token",service="reg"'
            return 401, {'WWW-Authenticate': text}, b'{}'
    with Front(plain, before=before) as front:
        env = user(**{front.host: BASIC})
        p = ctl('hash', cache.flag, url(front.port), env=env)
        said = f'config/docker/config.json: the login for {front.host} is refused'
        assert p.returncode == (kind == 'password') and p.stderr.count(said) == 1, p.stderr
        assert kind == 'password' or tokens == [f'Basic {BASIC}', '']
        p = ctl('push', '--connections=1', Carton().add('model/x', DATA).write(work / 'm.carton'), url(front.port), env=env)
        assert p.returncode == 1 and p.stderr.count(said) == 1, p.stderr
        assert 'gives no token' in problems(p) or f'docker login {front.host}' in problems(p)
        assert kind == 'password' or all(token == f'Basic {BASIC}' for token in tokens[-1:])


@pytest.mark.parametrize('status', [408, 429, 503])
def test_a_login_outlives_a_token_server_that_is_overloaded(cache, plain, user, status):
    """A failure that may pass says nothing of the login: the next try has it, too."""
    tokens = []

    def before(method, path, body):
        sent = front.seen[-1][1].get('Authorization', '')
        if path.startswith('/token'):
            tokens.append(sent)
            return (status, {}, b'{}') if len(tokens) == 1 else (200, {}, b'{"token": "mine"}')
        if path.startswith('/v2/tests') and sent != 'Bearer mine':
            return 401, {'WWW-Authenticate': f'Bearer realm="http://{front.host}/token",service="reg"'}, b'{}'
    with Front(plain, before=before) as front:
        p = ctl('hash', cache.flag, url(front.port), env=user(**{front.host: BASIC}))
    assert p.returncode == 0 and 'is refused' not in p.stderr, p.stderr
    assert set(tokens) == {f'Basic {BASIC}'} and len(tokens) > 1


# ---- where an upload goes ----

@pytest.mark.parametrize('where, good', [
    ('https://127.0.0.1:{port}', True), ('', True), ('https://127.0.0.1', True), ('http://127.0.0.1', True),
    ('http://127.0.0.1:{port}', True), ('https://127.0.0.1:1', False), ('https://localhost:{port}', False),
    ('http://evil.example', False), ('https://127.0.0.1:{port}/../..//evil.example', False)])
def test_locations(work, tls, plain, where, good):
    """A proxy for TLS hides the scheme and the port; another server gets nothing."""
    path = Carton().add('model/x', DATA).write(work / 'm.carton')

    def change(asked, status, headers, body):
        if 'Location' in headers and 'uploads' in headers['Location']:
            rest = '/v2/' + headers['Location'].partition('/v2/')[2]
            return status, headers | {'Location': where.format(port=front.port) + rest}, body
    with Front(plain, change, tls=(tls.cert, tls.key)) as front:
        p = ctl('push', f'--cacert={tls.cert}', path, f'oci://{front.host}/tests/{work.name.lower().replace("_", "0")}:v1')
    assert (p.returncode == 0) == good, (p.stderr, [path for path, _ in front.seen])
    assert good or 'names another server' in p.stderr or 'status 40' in p.stderr, p.stderr
