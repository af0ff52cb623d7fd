# SPDX-License-Identifier: Apache-2.0
"""How a registry is reached: with the tokens that it has."""
import json
import tempfile

import pytest

from harness import ctl, problems
from registry import BASIC, Artifact, Front, layout, tokens_at
from zipwriter import Carton

DATA = b'x' * 5000
ARTIFACT = Artifact({'a.safetensors': DATA, 'b': b'1'})
NAME = 'tests/m'


@pytest.fixture
def plain(registry):
    """A registry without TLS, which has ARTIFACT."""
    return registry.push(layout(tempfile.mkdtemp(dir=registry.dir), ARTIFACT), 'v1', NAME)


@pytest.fixture
def user(work):
    """user(**auths): the environment of a user with these logins."""
    def make(**auths):
        (work / 'config/docker').mkdir(parents=True)
        (work / 'config/docker/config.json').write_text(json.dumps({'auths': {h: {'auth': a} for h, a in auths.items()}}))
        return {'DOCKER_CONFIG': str(work / 'config/docker')}
    return make


def url(port, host='127.0.0.1'):
    return f'oci://{host}:{port}/{NAME}:v1'


def opens(cache, source, *options, **kw):
    p = ctl('hash', cache.flag, *options, source, **kw)
    assert p.returncode == 0, p.stderr
    return p


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


@pytest.mark.parametrize('kind', ['token', 'bad', 'password'])
def test_a_login_that_has_ended(cache, work, plain, user, kind):
    """The file is named, once; what anybody may read is read without it, and nothing is pushed so."""
    tokens = []

    def before(method, path, body):
        sent = front.seen[-1][1].get('Authorization', '')
        if path.startswith('/token'):
            tokens.append(sent)
            return (400 if kind == 'bad' else 401, {}, b'{}') if sent else (200, {}, b'{"token": "anybody"}')
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
