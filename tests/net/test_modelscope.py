# SPDX-License-Identifier: Apache-2.0
"""ms://ORG/REPO: a model of ModelScope, mounted as it is at one commit."""
import hashlib
import os

import pytest

from harness import ctl
from hubrepo import lie_to, same
from modelscope import Model, ModelScope
from origin import MIB, fault_bytes

FILES = {'config.json': b'{"a": 1}\n', 'README.md': b'# m\n', 'sub/a b/ü.py': b'print()\n',
         'x.safetensors': fault_bytes(2 * MIB, seed=70)}
TOML = b"""\
spec_version = 1
model_name = "m"
homepage = "https://modelscope.cn/models/me/m"

[runner]
runner_name = "noop"
required_framework_version = "*"
runner_compat_version = 1
"""


def env(ms):
    return {'MODELSCOPE_ENDPOINT': ms.endpoint, 'HF_TOKEN': 'hf_secret'}


def test_a_model(mount, cache):
    """One request mounts it; each file is at the commit that has changed it last; no token is sent."""
    with ModelScope({'me/m': Model(FILES, older=['README.md'])}) as ms:
        with mount('ms://me/m', *cache.options, env=env(ms)) as m:
            assert [os.stat(m / f'model/{p}').st_size for p in FILES] == [len(d) for d in FILES.values()]
            assert len(ms.asked) == 1
            same(m, FILES)
            assert len(ms.asked) == 1 + len(FILES)
        with mount(f'ms://me/m@{ms.repos["me/m"].commit}', *cache.options, env=env(ms)) as m:
            same(m, FILES)
        # another source, whose list is asked for
        assert len(ms.asked) == 2 + len(FILES) and set(ms.secrets) == {None}
    with mount('ms://me/m', *cache.options, '-o', 'offline', env=env(ms)) as m:
        same(m, FILES)


def test_one_hash(cache):
    lines = [f'{path}={hashlib.sha256(data).hexdigest()}\n'
             for path, data in sorted(({'carton.toml': TOML} | {f'model/{p}': d for p, d in FILES.items()}).items())]
    with ModelScope({'me/m': Model(FILES)}) as ms:
        p = ctl('hash', cache.flag, 'ms://me/m@v1', env=env(ms))
        assert p.stdout.split()[0] == hashlib.sha256(''.join(lines).encode()).hexdigest(), p.stderr


def test_a_file_of_it(cache, tmp_path):
    """With a path it is a carton there."""
    with ModelScope({'me/m': Model(FILES)}) as ms:
        p = ctl('repack', cache.flag, 'ms://me/m', tmp_path / 'a.carton', env=env(ms))
        assert p.returncode == 0, p.stderr
    model = Model({'d/a.carton': (tmp_path / 'a.carton').read_bytes()})
    with ModelScope({'me/n': model}) as ms:
        p = ctl('ls', cache.flag, f'ms://me/n@{model.commit}/d/a.carton', env=env(ms))
        assert 'x.safetensors' in p.stdout, p.stderr


def test_flipped(mount, cache):
    def flip(path, status, headers, body):
        if status in (200, 206) and '/api/' not in path and body:
            return status, headers, body[:-1] + bytes([body[-1] ^ 1])
    with ModelScope({'me/m': Model(FILES)}, change=flip) as ms:
        with mount('ms://me/m', *cache.options, env=env(ms)) as m:
            assert m.error('model/x.safetensors') == 'EIO' and m.error('model/config.json') == 'EIO'


def whole(lie):
    return lie_to('/repo/files', lie)


def answer(**kw):
    """Changes each file of the listing."""
    return whole(lambda body: [f.update(kw) for f in body['Data']['Files']])


@pytest.mark.parametrize('change, message', [
    (answer(Sha256=''), 'no sha256'), (answer(Sha256='A' * 63), 'no sha256'), (answer(Sha256=5), 'no sha256'),
    (answer(Sha256='g' * 64), 'no sha256'), (answer(Path='../x'), 'component'), (answer(Path='x'), 'is there twice'),
    (answer(Path=None), 'without a path'), (answer(Size='5'), 'without a path or a size'),
    (answer(Size=-1), 'without a path or a size'), (answer(Size=2**60), 'larger than any file'),
    (answer(Type='link'), 'without a path'), (whole(lambda b: b['Data'].update(Files=[])), 'has no files'),
    (whole(lambda b: b['Data'].update(Files=None)), 'has no files'),
    (whole(lambda b: b.update(Code=10010205001)), 'the error 10010205001'),
    (whole(lambda b: [f.update(Revision='master') for f in b['Data']['Files']]), 'has no commit'),
    (lambda p, s, h, b: (s, h, b'<html>'), 'is no JSON'), (lambda p, s, h, b: (404, h, b), 'no such model'),
    (lambda p, s, h, b: (403, h, b), 'gets no token')])
def test_bad_listings(cache, change, message):
    with ModelScope({'me/m': Model(FILES)}, change=change) as ms:
        p = ctl('ls', cache.flag, 'ms://me/m', env=env(ms))
        assert p.returncode == 1 and message in p.stderr, p.stderr
        assert len(p.stderr.splitlines()) <= 2 and not cache.objects()


def test_commits(cache):
    """What the listing says of its commit may be missing; a file without one is at the user's."""
    def no_latest(body):
        del body['Data']['LatestCommitter']

    def no_revision(body):
        for f in body['Data']['Files']:
            del f['Revision']
    model = Model(FILES, older=['README.md'])
    with ModelScope({'me/m': model}, change=whole(no_latest)) as ms:
        p = ctl('hash', cache.flag, 'ms://me/m', env=env(ms))
        assert p.returncode == 0, p.stderr
    with ModelScope({'me/m': Model(FILES)}, change=whole(no_revision)) as ms:
        p = ctl('cat', f'--cache-dir={cache.path}2', f'ms://me/m@{ms.repos["me/m"].commit}', 'model/README.md',
                env=env(ms))
        assert p.stdout == '# m\n', p.stderr
