# SPDX-License-Identifier: Apache-2.0
"""Signatures that come over a network: beside a carton, from a URL, of a repository; in test_registry_signature.py, in a registry."""
import hashlib
import os
import re

import pytest

import oms
from harness import CARTONCTL, CARTONFS, mountinfo, run
from hubrepo import HubServer, Repo
from origin import PRIVATE
from served import Served
from zipwriter import Carton

LARGE = b'weights' * 1000


@pytest.fixture(scope='module')
def key(tmp_path_factory):
    d = tmp_path_factory.mktemp('keys')
    os.chmod(d, 0o755)
    k, other = oms.Key(d), oms.Key(d, 'other')
    k.other = other
    for path in d.iterdir():
        os.chmod(path, 0o644)
    return k


def sign(key, hashes, below='', but=()):
    return oms.bundle(key, oms.statement(oms.listing(hashes, below, but))).encode()


class Server(Served):
    """Files by their names, with ranges. `choose(n)` gives those for the n-th request."""

    def __init__(self, files=None, choose=None):
        self.choose, self.asked = choose or (lambda n: files), []

    def answer(self, h):
        name = h.path.partition('?')[0].strip('/')
        n = len(self.asked)
        self.asked.append(h.path)
        data = self.choose(n).get(name)
        if isinstance(data, int) or data is None:
            h.send_response(data or 404)
            h.send_header('Content-Length', '0')
            return h.end_headers()
        m = re.match(r'bytes=(\d*)-(\d*)$', h.headers.get('Range', ''))
        first, last = 0, len(data) - 1
        if m:
            first = int(m[1]) if m[1] else max(0, len(data) - int(m[2]))
            last = min(last, int(m[2])) if m[1] and m[2] else last
        h.send_response(206 if m else 200)
        if m:
            h.send_header('Content-Range', f'bytes {first}-{last}/{len(data)}')
        h.send_header('Accept-Ranges', 'bytes')
        h.send_header('ETag', '"one"')
        h.send_header('Content-Length', str(last + 1 - first))
        h.end_headers()
        h.wfile.write(data[first:last + 1])


def packed(work, name='m.carton', **files):
    c = Carton(method='stored')
    for path, data in (files or {'a': LARGE, 'b': b'b'}).items():
        c.add(f'model/{path}', data)
    c.path = c.write(work / name)
    c.bytes = (work / name).read_bytes()
    return c


def test_beside_a_url(mount, cache, tmp_path, key):
    """With what follows the path of the URL, such as a token."""
    c = packed(tmp_path)
    with Server({'m.carton': c.bytes, 'm.carton.sig': sign(key, c.hashes())}) as s:
        with mount(s.url('m.carton?token=x'), *PRIVATE, *cache.options, '-o', f'verify_key={key.public}') as m:
            assert m.read('model/a') == LARGE
        assert '/m.carton.sig?token=x' in s.asked


@pytest.mark.parametrize('status', [404, 403])
def test_inside_of_a_url(mount, cache, tmp_path, key, status):
    """There is none beside it."""
    c = packed(tmp_path)
    c.add('misc/model.sig', sign(key, c.hashes())).write(c.path)
    with Server({'m.carton': c.path.read_bytes(), 'm.carton.sig': status}) as s:
        with mount(s.url('m.carton'), *PRIVATE, *cache.options, '-o', f'verify_key={key.public}') as m:
            assert m.read('model/a') == LARGE and not os.path.exists(m / 'misc')


@pytest.mark.parametrize('sig, why', [
    ('none', '/sig: there is no signature'), ('other', '/sig: key: it names another key'), ('large', 'is larger than 64 MiB'),
    ('offline', '/sig: is not fetched when offline')])
def test_url_of_a_local_carton(mount, cache, point, tmp_path, key, sig, why):
    c = packed(tmp_path)
    texts = {'none': None, 'other': sign(key.other, c.hashes()), 'large': b' ' * (65 << 20), 'offline': b''}
    options = [*PRIVATE, *cache.options, '-o']
    with Server({'good': sign(key, c.hashes()), 'sig': texts[sig]}) as s:
        with mount(c.path, *options, f'verify_key={key.public},signature={s.url("good")}') as m:
            assert m.read('model/a') == LARGE
        more = ',offline' if sig == 'offline' else ''
        where = point()
        p = run(CARTONFS, *options, f'verify_key={key.public},signature={s.url("sig")}{more}', c.path, where)
        assert p.returncode == 32 and why in p.stderr and not mountinfo(where), p.stderr


def test_server_that_fails(cache, point, tmp_path, key):
    """It may have a signature: another place is not asked, and the mount may succeed later."""
    c = packed(tmp_path)
    c.add('misc/model.sig', sign(key, c.hashes())).write(c.path)
    with Server({'m.carton': c.path.read_bytes(), 'm.carton.sig': 500}) as s:
        p = run(CARTONFS, *PRIVATE, *cache.options, '-o', f'timeout=1,verify_key={key.public}', s.url('m.carton'), point())
        assert p.returncode == 75, p.stderr


def test_carton_is_swapped(cache, tmp_path, key):
    """
    An attacker at the server changes the carton at each moment, to one of the same size whose MANIFEST has other hashes,
    or back. The MANIFEST that was compared is the one that counts: readers get signed bytes, or none.
    """
    good, evil = (packed(tmp_path, f'{x}.carton', a=x.encode() * 2000, b=x.encode()) for x in ('x', 'y'))
    assert len(good.bytes) == len(evil.bytes) and good.hashes() != evil.hashes()
    sig = sign(key, good.hashes())
    views = [{'m.carton': c.bytes, 'm.carton.sig': sig} for c in (good, evil)]
    ends = set()
    for first in 0, 1:
        for k in range(12):
            out = tmp_path / f'out{first}{k}'
            with Server(choose=lambda n: views[first if n < k else 1 - first]) as s:
                p = run(CARTONCTL, 'extract', '--private-links', '--timeout=5', f'--cache-dir={tmp_path}/c{first}{k}',
                        f'--verify-key={key.public}', s.url('m.carton'), out)
            for name, data in (('a', b'x' * 2000), ('b', b'x')):
                path = out / 'model' / name
                assert not path.exists() or path.read_bytes() == data, (first, k)
            assert p.returncode == 0 or not (out / 'model/a').exists() or not (out / 'model/b').exists()
            ends.add(p.returncode == 0)
    assert ends == {True, False}


def test_repository(mount, cache, point, key):
    """model.sig lists the files as the repository has them; what git needs is left out, and not shown."""
    files = {'config.json': b'{}', 'model.safetensors': LARGE, 'sub/x.txt': b'x', '.gitattributes': b'*'}
    hashes = {p: hashlib.sha256(d).hexdigest() for p, d in files.items()}
    files['model.sig'] = sign(key, hashes, but=['.gitattributes'])
    repos = {'models/me/m': Repo(files)}
    with HubServer(repos) as hub:
        env = {'HF_ENDPOINT': hub.endpoint, 'HF_TOKEN': ''}
        options = [*cache.options, '-o', f'noviews,verify_key={key.public}']
        for more in (), ('-o', 'offline'):
            with mount('hf://me/m', *options, *more, env=env) as m:
                for path in 'config.json', 'model.safetensors', 'sub/x.txt':
                    assert m.read(f'model/{path}') == files[path]
                assert sorted(os.listdir(m.path)) == ['MANIFEST', 'model']
                assert sorted(os.listdir(m / 'model')) == ['config.json', 'model.safetensors', 'sub']
        # the next commit has one more file
        files['evil.py'] = b'evil'
        p = run(CARTONFS, *options, 'hf://me/m', point(), env=env)
        assert p.returncode == 32 and 'MANIFEST: it lists model/evil.py, and the signature does not' in p.stderr, p.stderr
        # a carton.toml of the repository is a file of model/, and what lists one is of a carton
        files['carton.toml'] = b'its own'
        hashes['carton.toml'], hashes['evil.py'] = (hashlib.sha256(files[path]).hexdigest() for path in ('carton.toml', 'evil.py'))
        files['model.sig'] = sign(key, hashes, but=['.gitattributes'])
        p = run(CARTONFS, *options, 'hf://me/m', point(), env=env)
        assert p.returncode == 32 and 'it is of model/, which has a carton.toml of its own: sign the carton' in p.stderr, p.stderr
