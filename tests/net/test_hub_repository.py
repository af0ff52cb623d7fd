# SPDX-License-Identifier: Apache-2.0
"""hf://ORG/REPO: a repository of a hub, mounted as it is at one commit."""
import hashlib
import json
import os
import re
import zipfile

import pytest

from harness import ctl
from hubrepo import HubServer, Repo, git_id, same
from origin import MIB, fault_bytes

TOKEN = 'hf_abcDEF'
NAME = 'models/me/my-model'


def files(n=3):
    return {'config.json': b'{"a": 1}\n', 'README.md': b'---\nlicense: apache-2.0\n---\n', 'empty': b'',
            'sub/a b/ü.py': b'print()\n', '.gitattributes': b'*.safetensors filter=lfs\n'} | {
        f'model-{i + 1:05}-of-{n:05}.safetensors': fault_bytes(2 * MIB + i, seed=40 + i) for i in range(n)}


def env(hub, **kw):
    return {'HF_ENDPOINT': hub.endpoint, 'HF_TOKEN': ''} | kw


def test_a_repository(mount, cache):
    """A few requests mount it, `ls -lR` makes none, and each file comes from the CDN, without the token."""
    wanted = files()
    with HubServer({NAME: Repo(wanted)}, token=TOKEN) as hub:
        with mount('hf://me/my-model', *cache.options, env=env(hub, HF_TOKEN=TOKEN)) as m:
            assert len(hub.api()) == 2 and len(hub.asked) == 2 + 5
            for d, _, fs in os.walk(m / 'model'):
                for f in fs:
                    path = os.path.join(d, f)
                    assert os.stat(path).st_size == len(wanted[os.path.relpath(path, m / 'model')])
            assert len(hub.asked) == 7 and not hub.secrets
            same(m, wanted)
            assert set(hub.secrets) == {None}
            toml = m.read('carton.toml').decode()
            assert 'model_name = "my-model"' in toml and 'license = "apache-2.0"' in toml
            assert 'homepage = "https://huggingface.co/me/my-model"' in toml
        asked = len(hub.asked)
        # the same commit: one request
        with mount('hf://me/my-model', *cache.options, env=env(hub, HF_TOKEN=TOKEN)) as m:
            same(m, wanted)
        assert len(hub.asked) == asked + 1
    with mount('hf://me/my-model', *cache.options, '-o', 'offline', env=env(hub)) as m:
        same(m, wanted)


# Version 1 of the rule: a later release gives the same hash for the same commit.
TOML = b"""\
spec_version = 1
model_name = "my-model"
license = "apache-2.0"
homepage = "https://huggingface.co/me/my-model"

[runner]
runner_name = "noop"
required_framework_version = "*"
runner_compat_version = 1
"""
GOLDEN = '8b3bcde824e5c8081174132ac9dc0b58cebbb917f2a238fc1aa97b22079cf5ef'


def test_one_hash_everywhere(tmp_path, cache):
    """MANIFEST follows from the commit and the rule, so its hash can be a pin."""
    wanted = files()
    lines = [f'{path}={hashlib.sha256(data).hexdigest()}\n'
             for path, data in sorted(({'carton.toml': TOML} | {f'model/{p}': d for p, d in wanted.items()}).items())]
    assert hashlib.sha256(''.join(lines).encode()).hexdigest() == GOLDEN
    with HubServer({NAME: Repo(wanted, page=2)}) as hub:
        p = ctl('hash', cache.flag, 'hf://me/my-model', env=env(hub))
        assert p.stdout.split()[0] == GOLDEN, p.stderr
        other = ctl('hash', f'--cache-dir={tmp_path}/other', 'hf://me/my-model@v1', env=env(hub))
        assert other.stdout == p.stdout
        assert len([p for p in hub.api() if '/tree/' in p]) == 2 * 5


def test_pages(mount, cache):
    wanted = {f'd{i % 7}/f{i}': b'%d' % i for i in range(120)}
    with HubServer({NAME: Repo(wanted, page=50)}) as hub:
        with mount('hf://me/my-model@refs%2Fpr%2F1', *cache.options, env=env(hub)) as m:
            same(m, wanted)
        assert hub.api()[0].endswith('/revision/refs%2Fpr%2F1') and len(hub.api()) == 1 + 3


@pytest.mark.parametrize('kind', ['datasets', 'spaces'])
def test_kinds(mount, cache, kind):
    wanted = files(1)
    with HubServer({f'{kind}/me/data': Repo(wanted)}) as hub:
        with mount(f'hf://{kind}/me/data', *cache.options, env=env(hub)) as m:
            same(m, wanted)


def test_the_next_commit(mount, cache):
    """Of it, only what has changed is fetched; and a mount stays at its commit."""
    wanted = files()
    with HubServer({NAME: Repo(wanted)}) as hub:
        with mount('hf://me/my-model', *cache.options, env=env(hub)) as m:
            del hub.asked[:]
            new = wanted | {'config.json': b'{"a": 2}\n'}
            first = hub.repos[NAME]
            hub.repos[NAME] = Repo(new)
            assert m.read('model/config.json') == wanted['config.json']
            with mount('hf://me/my-model', *cache.options, env=env(hub)) as other:
                assert other.read('model/config.json') == new['config.json']
                assert [p.rpartition('/')[2] for p in hub.resolved()] == ['config.json']
            hub.repos[NAME] = first
            same(m, wanted)


def test_pin(cache, mount):
    with HubServer({NAME: Repo(files())}) as hub:
        pin = ctl('hash', cache.flag, 'hf://me/my-model', env=env(hub)).stdout.split()[0]
        with mount('hf://me/my-model', *cache.options, '-o', f'manifest_sha256={pin}', env=env(hub)) as m:
            assert m.read('model/config.json') == files()['config.json']
        hub.repos[NAME] = Repo(files() | {'config.json': b'other'})
        p = ctl('ls', cache.flag, f'--manifest-sha256={pin}', 'hf://me/my-model', env=env(hub))
        assert p.returncode and 'not the model asked for' in p.stderr


def test_wrong_bytes(mount, cache):
    """A flipped byte at the CDN is EIO; of a small file it ends the mount."""
    def flip(path, status, headers, body):
        if status in (200, 206) and len(body) > 1024 and '/api/' not in path:
            return status, headers, body[:-1] + bytes([body[-1] ^ 1])
    with HubServer({NAME: Repo(files(1))}, change=flip) as hub:
        with mount('hf://me/my-model', *cache.options, env=env(hub)) as m:
            assert m.error('model/model-00001-of-00001.safetensors') == 'EIO'
            assert m.read('model/config.json') == files()['config.json']
    with HubServer({NAME: Repo({'config.json': b'{"a": 1}\n'})},
                   change=lambda p, s, h, b: (s, h, b'{"a": 2}\n') if 'resolve' in p else None) as hub:
        p = ctl('ls', f'--cache-dir={cache.path}2', 'hf://me/my-model', env=env(hub))
        assert p.returncode and 'other bytes than its listing' in p.stderr


def lie(**kw):
    """Changes each large file of the listing."""
    def change(path, status, headers, body):
        if '/tree/' not in path:
            return None
        listed = json.loads(body)
        for f in listed:
            if 'lfs' in f:
                f.update({k: v for k, v in kw.items() if k not in ('lfs_oid', 'lfs_size')})
                f['lfs'].update({k[4:]: v for k, v in kw.items() if k.startswith('lfs_')})
        return status, headers, json.dumps(listed).encode()
    return change


def text(what, at='/tree/', **headers):
    return lambda path, status, h, body: (status, h | headers, what) if at in path else None


def entry(path, data=b'x', **kw):
    return {'type': 'file', 'path': path, 'size': len(data), 'oid': git_id(data)} | kw


@pytest.mark.parametrize('change, message', [
    (lie(path='../x'), 'component'),
    (lie(path='a\\b'), 'backslash'),
    (lie(size=5, lfs_size=5), 'contradicts itself'),
    (lie(lfs_size=5), 'two sizes'),
    (lie(lfs_oid='0' * 64), 'contradicts itself'),
    (lie(lfs_oid='A' * 64), 'no sha256'),
    (lie(path='config.json'), 'is there twice'),
    (lie(size='5'), 'without a path, a size or a git id'),
    (lie(oid='x'), 'without a path, a size or a git id'),
    (text(b'<html>'), 'is no JSON'),
    (text(b'{}'), 'is no list of files'),
    (text(b'[]'), 'has no files'),
    (text(b'[' * 100), 'is no JSON'),
    (text(b'[]', Link='</elsewhere>; rel="next"'), 'at another server'),
    (text(json.dumps([entry('x', b'y', size=17 * MIB)]).encode()), '16 MiB'),
    (text(b'{}', at='/revision/'), 'has no commit'),
    (text(b'{"sha": "%s"}' % (b'Z' * 40), at='/revision/'), 'has no commit'),
    (text(b' ' * (16 * MIB + 1)), 'larger')])
def test_bad_listings(cache, change, message):
    with HubServer({NAME: Repo(files(1))}, change=change) as hub:
        p = ctl('ls', cache.flag, 'hf://me/my-model', env=env(hub))
        assert p.returncode == 1 and message in p.stderr, p.stderr
        assert not cache.objects() or 'no files' not in message


def test_pages_in_a_circle(cache):
    def circle(path, status, headers, body):
        if '/tree/' in path:
            return status, {'Link': f'<{hub.endpoint}{path}>; rel="next"'}, body
    with HubServer({NAME: Repo(files(1))}, change=circle) as hub:
        p = ctl('ls', cache.flag, 'hf://me/my-model', env=env(hub))
        assert p.returncode == 1 and 'more than 200 pages' in p.stderr and len(hub.api()) == 1 + 200


@pytest.mark.parametrize('status, message', [(404, 'no such repository'), (401, 'Ask for access at'),
                                             (403, 'Ask for access at')])
def test_not_there(cache, status, message):
    with HubServer({NAME: Repo(files(1))}, change=lambda p, s, h, b: (status, h, b'')) as hub:
        p = ctl('ls', cache.flag, 'hf://me/my-model', env=env(hub))
        assert p.returncode and message in p.stderr, p.stderr


def test_import(mount, cache, tmp_path):
    """repack writes the carton: some KB, twice the same bytes; it leads to the hub."""
    wanted = files()
    with HubServer({NAME: Repo(wanted)}) as hub:
        for name in ('a', 'b'):
            p = ctl('repack', cache.flag, 'hf://me/my-model', tmp_path / f'{name}.carton', env=env(hub))
            assert p.returncode == 0, p.stderr
        data = (tmp_path / 'a.carton').read_bytes()
        assert data == (tmp_path / 'b.carton').read_bytes() and len(data) < 100_000
        assert not hub.secrets
        # and so does what link makes of it, with the sizes
        p = ctl('link', cache.flag, '--url=https://h.example/{sha256}', tmp_path / 'a.carton', tmp_path / 'l.carton',
                'model/README.md')
        assert p.returncode == 0, p.stderr
        sizes = [zipfile.ZipFile(tmp_path / f'{n}.carton').read('LINKS').partition(b'[sizes]')[2] for n in 'al']
        assert sizes[0] == sizes[1] and sizes[0].count(b' = ') == 3
        p = ctl('fetch', f'--cache-dir={cache.path}2', '--private-links', tmp_path / 'a.carton', env=env(hub))
        assert p.returncode == 0, p.stderr
        assert hashlib.sha256(data).hexdigest() == hashlib.sha256((tmp_path / 'b.carton').read_bytes()).hexdigest()


def with_sizes(source, to, size):
    """The carton with other numbers in [sizes] of its LINKS."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(to, 'w') as new:
        for i in old.infolist():
            data = old.read(i)
            if i.filename == 'LINKS':
                urls, _, sizes = data.decode().partition('[sizes]')
                data = f'{urls}[sizes]{re.sub("= .*", f"= {size}", sizes)}'.encode()
            new.writestr(i.filename, data)
    return to


@pytest.mark.parametrize('size, message', [(0, 'LINKS says that it has 0 bytes'), (5, 'but it has'),
                                           (2 * MIB - 1, 'but it has'), (2 * MIB + 1, 'but it has'),
                                           (2**50, 'but it has')])
def test_sizes_that_lie(mount, cache, tmp_path, size, message):
    """They are an error of that file; what the cache has of it is right, and stays."""
    path = 'model/model-00001-of-00001.safetensors'
    with HubServer({NAME: Repo(files(1))}) as hub:
        good = tmp_path / 'good.carton'
        ctl('repack', cache.flag, 'hf://me/my-model', good, env=env(hub))
        bad = with_sizes(good, tmp_path / 'bad.carton', size)
        with mount(bad, '-o', 'private_links', f'-ocache_dir={cache.path}2', env=env(hub)) as m:
            assert os.stat(m / path).st_size == size
            assert m.error(path) == 'EIO' and m.error(path) == 'EIO'
        assert ctl('fetch', cache.flag, '--private-links', good, env=env(hub)).returncode == 0
        asked, there = len(hub.secrets), cache.objects()
        for _ in range(2):
            p = ctl('cat', cache.flag, '--private-links', bad, path, env=env(hub))
            assert p.returncode and message in p.stderr and 'dropped' not in p.stderr, p.stderr
        assert len(hub.secrets) == asked and cache.objects() == there


@pytest.mark.parametrize('size', [2**50 + 1, 2**63 - 1, -1, '"5"', '1.0'])
def test_sizes_that_are_none(cache, tmp_path, size):
    with HubServer({NAME: Repo(files(1))}) as hub:
        ctl('repack', cache.flag, 'hf://me/my-model', tmp_path / 'good.carton', env=env(hub))
    p = ctl('info', with_sizes(tmp_path / 'good.carton', tmp_path / 'bad.carton', size))
    assert p.returncode and 'a size that no file can have' in p.stderr, p.stderr


def test_a_commit_is_asked_for_once(mount, cache):
    """Its name says all: what is kept of it opens again without the hub, whatever it was opened by."""
    wanted = files(1)
    with HubServer({NAME: Repo(wanted)}) as hub:
        commit = hub.repos[NAME].commit
        with mount('hf://me/my-model', *cache.options, env=env(hub)):
            pass
        hub.repos[NAME] = Repo(wanted | {'config.json': b'other'})
        asked = len(hub.asked)
        with mount(f'hf://me/my-model@{commit}', *cache.options, env=env(hub)) as m:
            assert m.read('model/config.json') == wanted['config.json']
        assert len(hub.asked) == asked
        with mount(f'hf://me/my-model@{hub.repos[NAME].commit}', *cache.options, env=env(hub)):
            pass
        asked = len(hub.asked)
        assert ctl('hash', cache.flag, 'hf://me/my-model', env=env(hub)).returncode == 0
        assert len(hub.asked) == asked + 1
    # the last commit of main, although it came by its own name first
    with mount('hf://me/my-model', *cache.options, '-o', 'offline', env=env(hub)) as m:
        assert m.read('model/config.json') == b'other'
    p = ctl('hash', cache.flag, 'hf://me/my-model', env=env(hub))
    assert p.returncode and 'the option offline opens that' in p.stderr, p.stderr


def test_another_commit(cache):
    """A branch with the name of a commit, or a hub that says another one, is refused."""
    with HubServer({NAME: Repo(files(1))}, change=text(b'{"sha": "%s"}' % (b'1' * 40), at='/revision/')) as hub:
        p = ctl('hash', cache.flag, f'hf://me/my-model@{hub.repos[NAME].commit}', env=env(hub))
        assert p.returncode and 'is about another commit' in p.stderr, p.stderr
