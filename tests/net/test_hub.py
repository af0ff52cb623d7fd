# SPDX-License-Identifier: Apache-2.0
"""hf://: the URL that it stands for, and where the token comes from and goes to."""
import pytest

from harness import ctl
from hub import Hub, HubAndCdn
from origin import MIB, PRIVATE, LinkedCarton, as_expected, fault_bytes
from zipwriter import Carton

TOKEN = 'hf_abcDEF'


def endpoint(hub):
    return {'HF_ENDPOINT': hub.url('')[:-len('hub/')]}


@pytest.mark.parametrize('url, path', [
    ('me/my-model.v1/m.carton', 'me/my-model.v1/resolve/main/m.carton'),
    ('me/m@v1.0/a b/ä+%/m.carton', 'me/m/resolve/v1.0/a%20b/%C3%A4%2B%25/m.carton'),
    ('me/m@refs%2Fpr%2F1/m.carton', 'me/m/resolve/refs%2Fpr%2F1/m.carton'),
    ('m@refs/pr/1/m.carton', 'm/resolve/refs%2Fpr%2F1/m.carton'),
    ('datasets/me/m/@x?y#z/m.carton', 'datasets/me/m/resolve/main/%40x%3Fy%23z/m.carton')])
def test_carton_of_a_hub(mount, cache, tmp_path, url, path):
    c = Carton(method='stored').add('model/x', fault_bytes(20 * MIB, seed=1))
    c.write(tmp_path / 'm.carton')
    with Hub({'m.carton': (tmp_path / 'm.carton').read_bytes()}) as hub:
        env = endpoint(hub) | {'HF_TOKEN': TOKEN}
        with mount(f'hf://{url}', *cache.options, env=env) as m:
            as_expected(m, c)
        assert hub.asked == ['/' + path] and [t for _, t in hub.resolves] == [f'Bearer {TOKEN}']
        assert hub.parts and set(hub.secrets) == {None}
        asked = len(hub.parts)
        with mount(f'hf://{url}', *cache.options, '-o', 'offline', env=env) as m:
            as_expected(m, c)
        assert len(hub.asked) == 1 and len(hub.parts) == asked


@pytest.mark.parametrize('url', ['/', 'me//', 'me/m@/m.carton', 'me//m.carton', 'me/../m.carton',
                                 'me/m/a/../b', 'me/m@../b', 'datasets/me//', 'datasets/', 'me/m@', 'm@/x', '../m','a b/m/x', 'me/m/./x'])
def test_bad_urls(cache, url):
    p = ctl('info', cache.flag, f'hf://{url}', env={'HF_ENDPOINT': 'http://127.0.0.1:1'})
    assert p.returncode == 1 and ('not hf://ORG/REPO[@REVISION][/PATH]' in p.stderr or
                                  'a path with the component' in p.stderr), p.stderr


@pytest.mark.parametrize('where', ['environment', 'path', 'hf_home', 'xdg', 'home', 'none', 'header_file', 'old', 'both', 'no_new', 'blank'])
def test_where_the_token_is(cache, tmp_path, where):
    Carton().add('model/x', b'x').write(tmp_path / 'm.carton')
    at = tmp_path / {'home': '.cache/huggingface/token', 'xdg': 'huggingface/token'}.get(where, 'token')
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(TOKEN + '\n')
    old = 'HUGGING_FACE_HUB_TOKEN'
    env = {'HOME': tmp_path / 'nobody', old: ''} | {
        'old': {old: TOKEN, 'HF_TOKEN_PATH': '/nowhere'}, 'both': {'HF_TOKEN': TOKEN, old: 'hf_other'},
        'no_new': {'HF_TOKEN': '', old: f' {TOKEN}\n'}, 'blank': {'HF_TOKEN': ' ', old: 'hf_other', 'HF_TOKEN_PATH': at},
        'environment': {'HF_TOKEN': TOKEN, 'HF_TOKEN_PATH': '/nowhere'}, 'path': {'HF_TOKEN_PATH': at},
        'hf_home': {'HF_HOME': tmp_path}, 'xdg': {'XDG_CACHE_HOME': tmp_path}, 'home': {'HOME': tmp_path},
        'none': {}, 'header_file': {'HF_TOKEN': TOKEN}}[where]
    options = []
    if where == 'header_file':
        at.write_text('Authorization: Bearer other\n')
        options = [f'--header-file={at}']
    with Hub({'m.carton': (tmp_path / 'm.carton').read_bytes()}) as hub:
        p = ctl('hash', 'hf://me/m/m.carton', cache.flag, *options,
                env={k: str(v) for k, v in env.items()} | endpoint(hub))
        assert p.returncode == 0, p.stderr
        wanted = {'none': None, 'header_file': 'Bearer other'}.get(where, f'Bearer {TOKEN}')
        assert {t for _, t in hub.resolves} == {wanted}


@pytest.mark.parametrize('text', ['two words', 'new\nline', 'x' * 2000, 'bell\a'])
def test_what_is_no_token(cache, text):
    p = ctl('hash', 'hf://me/m/m.carton', cache.flag,
            env={'HF_TOKEN': text, 'HF_ENDPOINT': 'http://127.0.0.1:1'})
    assert p.returncode == 1 and 'is no token' in p.stderr and text[:8] not in p.stderr


def test_links_and_mirrors(mount, cache, tmp_path):
    """They are public URLs: the token is not sent, unless the carton is at the same hub."""
    data = {n: fault_bytes(MIB, seed=i) for i, n in enumerate('xyz')}
    with Hub(data) as hub:
        c = LinkedCarton().link('model/x', data['x'], 'hf://me/m/x')
        c.link('model/y', data['y'], 'http://127.0.0.1:1/none')
        path = c.write(tmp_path / 'm.carton')
        env = endpoint(hub) | {'HF_TOKEN': TOKEN}
        p = ctl('fetch', cache.flag, path, 'model/x', env=env)
        assert p.returncode and 'loopback address' in p.stderr and not hub.asked
        with mount(path, *PRIVATE, *cache.options, '-o', 'mirror=hf://me/mirror/{path}', env=env) as m:
            assert m.read('model/y') == data['y']
        assert {'/me/mirror/resolve/main/model/y'} == set(hub.asked) and {t for _, t in hub.resolves} == {None}
        del hub.asked[:], hub.resolves[:]
        assert ctl('fetch', cache.flag, '--private-links', path, 'model/x', env=env).returncode == 0
        assert set(hub.asked) == {'/me/m/resolve/main/x'} and {t for _, t in hub.resolves} == {None}
        hub.files['m.carton'] = path.read_bytes()
        del hub.asked[:], hub.resolves[:]
        assert ctl('fetch', f'--cache-dir={tmp_path}/other', '--private-links', 'hf://me/m/m.carton', 'model/x',
                   env=env).returncode == 0
        assert {t for _, t in hub.resolves} == {f'Bearer {TOKEN}'} and len(hub.asked) >= 2
        assert set(hub.secrets) == {None}


def test_the_token_is_the_hubs(cache, tmp_path):
    """A carton at another server does not get it, though a mirror is at the hub."""
    with Hub({'x': b'x', 'm.carton': LinkedCarton().add('model/x', b'x').write(tmp_path / 'm.carton').read_bytes()}) as hub:
        p = ctl('hash', cache.flag, '--mirror=hf://me/mirror/{path}', hub.url('m.carton'),
                env={'HF_ENDPOINT': 'https://hub.example', 'HF_TOKEN': TOKEN})
        assert p.returncode == 0, p.stderr
        assert {t for _, t in hub.resolves} == {None} == set(hub.secrets)


class Proxy(HubAndCdn):
    """Answers for any host; `seen` has the URL and the Authorization of each request."""

    def __init__(self, data):
        self.data, self.seen = data, []

    def deliver(self, h):
        self.resolve(h)

    def resolve(self, h):
        self.seen.append((h.path, h.headers.get('Authorization')))
        leads = '//hub.example' in h.path and 'elsewhere' in h.path
        h.send_response(302 if leads else 200)
        if leads:
            h.send_header('Location', 'http://hub.example.evil/moved')
        h.send_header('Content-Length', str(0 if leads else len(self.data)))
        h.end_headers()
        if not leads and h.command != 'HEAD':
            h.wfile.write(self.data)

    def env(self, hub):
        return {'HF_ENDPOINT': hub, 'HF_TOKEN': TOKEN, 'http_proxy': f'http://127.0.0.1:{self.hub.server_address[1]}'}


def fetched(cache, path, *options, env):
    p = ctl('fetch', cache.flag, '--private-links', '--max-size=1M', *options, path, env=env)
    return p.returncode, p.stderr


def test_hub_token(mount, cache, tmp_path):
    """With the user's word a local carton's LINKS to the hub get the token; where that redirects gets none."""
    data = fault_bytes(MIB, seed=1)
    with Hub({'x': data}) as hub:
        path = LinkedCarton().link('model/x', data, hub.url('x')).write(tmp_path / 'm.carton')
        env = endpoint(hub) | {'HF_TOKEN': TOKEN}
        assert fetched(cache, path, env=env) == (0, '') and {t for _, t in hub.resolves} == {None}
        del hub.resolves[:]
        with mount(path, *PRIVATE, '-o', 'hub_token', f'-ocache_dir={tmp_path}/other', env=env) as m:
            assert m.read('model/x') == data
        assert {t for _, t in hub.resolves} == {f'Bearer {TOKEN}'} and set(hub.secrets) == {None}
        for command in ('verify', 'info'):
            p = ctl(command, cache.flag, '--hub-token', '--private-links', path, env=env)
            assert p.returncode == 0, p.stderr


@pytest.mark.parametrize('url', [
    'http://hub.example', 'http://localhost.evil:1/x', 'http://localhost:1.evil/x', 'http://localhost:2/x',
    'http://evil/localhost:1/x', 'http://evil/?http://localhost:1/', 'http://x.localhost:1/x', 'http://127.0.0.1:1/x'])
def test_hub_token_elsewhere(cache, tmp_path, url):
    """A URL that only looks like the hub's does not get it; by http, no proxy does, whatever the URL is."""
    with Proxy(b'x' * 10) as proxy:
        path = LinkedCarton().link('model/x', proxy.data, url, 'http://localhost:1/x').write(tmp_path / 'm.carton')
        r, errors = fetched(cache, path, '--hub-token', env=proxy.env('http://localhost:1'))
        assert {t for _, t in proxy.seen} <= {None}, proxy.seen
        assert proxy.seen or 'carton' in errors, errors


@pytest.mark.parametrize('host, gets', [('127.0.0.1', True), ('localhost', False), ('x.localhost', False)])
def test_hub_token_is_for_one_name(cache, tmp_path, host, gets):
    """The same server by another name does not get it."""
    data = fault_bytes(MIB, seed=1)
    with Hub({'x': data}) as hub:
        path = LinkedCarton().link('model/x', data, hub.url('x').replace('127.0.0.1', host)).write(tmp_path / 'm.carton')
        assert fetched(cache, path, '--hub-token', env=endpoint(hub) | {'HF_TOKEN': TOKEN})[0] == 0
        assert {t for _, t in hub.resolves} == {f'Bearer {TOKEN}' if gets else None}


def test_hub_token_and_a_proxy(cache, tmp_path):
    """The hub on this machine, by http: a proxy on the way gets no token, and that is said; without, the hub gets it."""
    data = Carton().add('model/x', b'x').write(tmp_path / 'm.carton').read_bytes()
    with Proxy(data) as proxy:
        env = proxy.env('http://localhost:1')
        p = ctl('hash', cache.flag, 'hf://me/m/m.carton', env=env)
        assert p.returncode == 0 and proxy.seen and {t for _, t in proxy.seen} == {None}
        assert 'your token is not sent: the proxy could read it; set no_proxy' in p.stderr, p.stderr
        hub = proxy.env('')['http_proxy']
        p = ctl('hash', f'--cache-dir={tmp_path}/other', 'hf://me/m/m.carton', env=env | {
            'HF_ENDPOINT': hub, 'no_proxy': '127.0.0.1'})
        assert p.returncode == 0 and proxy.seen[-1][1] == f'Bearer {TOKEN}', p.stderr


@pytest.mark.parametrize('url', ['http://hub.example/x', 'http://hub.example:443/x', 'http://hub.example/elsewhere/x'])
def test_hub_token_downgrade(cache, tmp_path, url):
    """The hub's address without https does not get it, nor does where that redirects."""
    with Proxy(b'x' * 10) as proxy:
        path = LinkedCarton().link('model/x', proxy.data, url).write(tmp_path / 'm.carton')
        assert fetched(cache, path, '--hub-token', env=proxy.env('https://hub.example')) == (0, '')
        assert proxy.seen and {t for _, t in proxy.seen} == {None}


@pytest.mark.parametrize('hub', ['http://hub.example', 'http://127.0.0.1.evil', 'http://localhost@evil', 'http://localhost:x@evil',
                                 'http://[::2]'])
def test_hub_without_https(cache, tmp_path, hub):
    """The token stays here, whoever asks the hub; and that is said."""
    with Proxy(Carton().add('model/x', b'x').write(tmp_path / 'm.carton').read_bytes()) as proxy:
        p = ctl('hash', cache.flag, 'hf://me/m/m.carton', env=proxy.env(hub))
        assert p.returncode == 0 and proxy.seen and not any(t and TOKEN in t for _, t in proxy.seen), p.stderr
        assert p.stderr == ('cartonctl: hf://me/m/m.carton: HF_ENDPOINT: has no https: the hub is asked without your '
                            'token, which others could read on the way\n')
        p = ctl('ls', cache.flag, '--hub-token', tmp_path / 'm.carton', env=proxy.env(hub))
        assert p.returncode and 'there is no token' in p.stderr, p.stderr


def test_hub_token_is_needed(cache, tmp_path):
    path = LinkedCarton().link('model/x', b'x', 'http://127.0.0.1:1/x').write(tmp_path / 'm.carton')
    p = ctl('ls', cache.flag, '--hub-token', path, env={'HF_TOKEN': ''})
    assert p.returncode and 'there is no token; set HF_TOKEN' in p.stderr, p.stderr
    p = ctl('ls', cache.flag, '--hub-token', 'http://127.0.0.1:1/m.carton', env={'HF_TOKEN': TOKEN})
    assert p.returncode and '--hub-token is for a carton that is here' in p.stderr, p.stderr
