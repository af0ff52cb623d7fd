# SPDX-License-Identifier: Apache-2.0
"""hf://ORG/REPO: a repository of a hub, mounted as it is at one commit."""
import hashlib
import json
import os
import re
import resource
import time
import zipfile

import pytest

from harness import CARTONFS, ctl, problems, run, small_disk
from hubrepo import NAME, HubServer, Repo, env, files, git_id, model_hash, pointer, same, settled
from origin import MIB, lines_of, needs_root

TOKEN = 'hf_abcDEF'


def test_a_repository(mount, cache):
    """A few requests mount it, `ls -lR` makes none, and each file comes from the CDN, without the token."""
    wanted = files()
    with HubServer({NAME: Repo(wanted, private=True)}, token=TOKEN) as hub:
        with mount('hf://me/my-model', *cache.options, env=env(hub, HF_TOKEN=TOKEN)) as m:
            assert settled(m) == model_hash(wanted)
            # nobody has to ask for what is empty
            assert len(hub.api()) == 2 and len(hub.asked) == 2 + 4
            for d, _, fs in os.walk(m / 'model'):
                for f in fs:
                    path = os.path.join(d, f)
                    assert os.stat(path).st_size == len(wanted[os.path.relpath(path, m / 'model')])
            assert len(hub.asked) == 6 and not hub.secrets
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
GOLDEN = '8b3bcde824e5c8081174132ac9dc0b58cebbb917f2a238fc1aa97b22079cf5ef'


def test_one_hash_everywhere(tmp_path, cache):
    """MANIFEST follows from the commit and the rule, so its hash can be a pin."""
    wanted = files()
    assert model_hash(wanted) == GOLDEN
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
        assert '/revision/refs%2Fpr%2F1' in hub.api()[0] and len(hub.api()) == 1 + 3


@pytest.mark.parametrize('kind', ['datasets', 'spaces'])
def test_kinds(mount, cache, kind):
    wanted = files(1)
    with HubServer({f'{kind}/me/data': Repo(wanted)}) as hub:
        with mount(f'hf://{kind}/me/data', *cache.options, env=env(hub)) as m:
            same(m, wanted)


@pytest.mark.parametrize('key, url', [
    ('models/gpt2', 'gpt2'), ('models/gpt2', 'gpt2@refs/pr/1'), ('datasets/squad', 'datasets/squad@v1'),
    (NAME, 'me/my-model@refs/pr/1'), ('models/gpt2', 'gpt2/'), (NAME, 'me/my-model/'), (NAME, 'me/my-model@main/')])
def test_names_of_the_hubs_own_tools(mount, cache, key, url):
    """Old repositories have no organisation; the revision of a pull request has slashes."""
    with HubServer({key: Repo(files(1))}) as hub:
        with mount(f'hf://{url}', *cache.options, env=env(hub)) as m:
            same(m, files(1))
            assert json.loads(m.read('.cartonfs/status.json'))['source'] == f'hf://{url}'
            name = key.rpartition('/')[2]
            assert f'model_name = "{name}"' in m.read('carton.toml').decode()
        if '@refs' in url:
            assert '/revision/refs%2Fpr%2F1' in hub.api()[0]


@pytest.mark.parametrize('at, says', [('/tree/', 'does not list its files'), ('/resolve/', 'not all that it lists')])
def test_a_proxy_without_all(cache, at, says):
    """What knows the commit is no hub without the repository."""
    def change(path, status, headers, body):
        return (404, {}, b'') if at in path else None
    with HubServer({NAME: Repo(files(1))}, change=change) as hub:
        p = ctl('hash', cache.flag, 'hf://me/my-model', env=env(hub))
        assert p.returncode == 1 and f'{hub.endpoint} has its commit, but {says}' in p.stderr, p.stderr
        assert 'Set HF_ENDPOINT' in p.stderr and 'no such repository' not in p.stderr


def test_the_next_commit(mount, cache):
    """Of it, only what has changed is fetched; and a mount stays at its commit."""
    wanted = files()
    with HubServer({NAME: Repo(wanted)}) as hub:
        with mount('hf://me/my-model', *cache.options, env=env(hub)) as m:
            settled(m)
            del hub.asked[:]
            new = wanted | {'config.json': b'{"a": 2}\n'}
            first = hub.repos[NAME]
            hub.repos[NAME] = Repo(new)
            assert m.read('model/config.json') == wanted['config.json']
            with mount('hf://me/my-model', *cache.options, env=env(hub)) as other:
                assert other.read('model/config.json') == new['config.json']
                assert settled(other) == model_hash(new)
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
        assert p.returncode and 'not the model of --manifest-sha256' in p.stderr


def test_wrong_bytes(mount, cache):
    """A flipped byte is EIO, at the CDN, and of a small file; what has to have all hashes ends."""
    def flip(path, status, headers, body):
        if status in (200, 206) and len(body) > 1024 and '/api/' not in path:
            return status, headers, body[:-1] + bytes([body[-1] ^ 1])
    with HubServer({NAME: Repo(files(1))}, change=flip) as hub:
        with mount('hf://me/my-model', *cache.options, env=env(hub)) as m:
            assert m.error('model/model-00001-of-00001.safetensors') == 'EIO'
            assert m.read('model/config.json') == files()['config.json']
    with HubServer({NAME: Repo({'config.json': b'{"a": 1}\n'})},
                   change=lambda p, s, h, b: (s, h, b'{"a": 2}\n') if 'resolve' in p else None) as hub:
        p = ctl('hash', f'--cache-dir={cache.path}2', 'hf://me/my-model', env=env(hub))
        assert p.returncode and 'other bytes than its listing' in p.stderr
        with mount('hf://me/my-model', '-o', f'cache_dir={cache.path}3', env=env(hub)) as m:
            assert m.error('model/config.json') == 'EIO' and m.error('MANIFEST') == 'EIO'


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
    (lie(path=None), 'without a path'),
    (lie(lfs_oid=5), 'no sha256'),
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
    (text(json.dumps([entry('a\\b')]).encode()), 'has no files but such as a\\b, whose name has a backslash'),
    (text(b'[' * 100), 'is no JSON'),
    (text(b'[{"path":' + b'[{"a":' * 10**6), 'is no JSON'),
    (text(b'[{"type":"directory"},{"type":"commit","path":"x","size":1,"oid":"%s"}]' % (b'1' * 40)), 'without a path'),
    (text(b'[]', Link='<{hub}/api/models/me/my-model/tree/main?cursor=1>; rel="next"'), 'at another commit'),
    (text(b'[]', Link='</elsewhere>; rel="next"'), 'at another commit'),
    (text(json.dumps([entry('x', b'y', size=17 * MIB)]).encode()), '16 MiB'),
    (text(b'{}', at='/revision/'), 'has no commit'),
    (text(b'{"sha": "%s"}' % (b'Z' * 40), at='/revision/'), 'has no commit'),
    (text(b' ' * (16 * MIB + 1)), 'larger')])
def test_bad_listings(cache, change, message):
    with HubServer({NAME: Repo(files(1))}) as hub:
        def change_links(*a):
            status, headers, body = change(*a) or a[1:]
            return status, {k: v.replace('{hub}', hub.endpoint) for k, v in headers.items()}, body
        hub.change = change_links
        p = ctl('ls', cache.flag, 'hf://me/my-model', env=env(hub))
        assert p.returncode == 1 and message in p.stderr, p.stderr
        assert not cache.objects() or 'no files' not in message


@pytest.mark.parametrize('length', [1, 2, 7])
def test_pages_in_a_circle(cache, length):
    def circle(path, status, headers, body):
        if '/tree/' in path:
            at = int(path.rpartition('cursor=')[2]) if 'cursor' in path else 0
            body = json.dumps([entry(f'f{len(hub.asked)}')]).encode()
            return status, {'Link': f'<{hub.endpoint}{path.partition("&cursor")[0]}&cursor={at % length + 1}>; rel="next"'}, body
    with HubServer({NAME: Repo(files(1))}, change=circle) as hub:
        p = ctl('ls', cache.flag, 'hf://me/my-model', env=env(hub))
        assert p.returncode == 1 and 'goes on where it has been, in a circle' in p.stderr
        assert len(hub.api()) <= 1 + 4 * (length + 1) and not cache.objects()


def test_pages_without_end(cache):
    def on(path, status, headers, body):
        if '/tree/' in path:
            path = f'{path.partition("&cursor")[0]}&cursor={len(hub.asked)}'
            return status, {'Link': f'<{hub.endpoint}{path}>; rel="next"'}, b'[]'
    with HubServer({NAME: Repo(files(1))}, change=on) as hub:
        p = ctl('ls', cache.flag, 'hf://me/my-model', env=env(hub))
        assert p.returncode == 1 and 'more than 200 pages' in p.stderr and len(hub.api()) == 1 + 200


def test_pages_of_directories(mount, cache):
    """One that has no files, or nothing at all, is no end."""
    wanted = {f'd{i}/x': b'%d' % i for i in range(10)}

    def change(path, status, headers, body):
        if path.endswith('cursor=4'):
            return status, headers, b'[]'
    repo = Repo(wanted, page=4)
    with HubServer({NAME: repo}, change=change) as hub:
        with mount('hf://me/my-model', *cache.options, env=env(hub)) as m:
            same(m, wanted)
        assert len(hub.api()) == 1 + 5


def test_a_million_files(cache):
    """The list ends at 100,000, by an error."""
    def change(path, status, headers, body):
        if '/tree/' in path:
            path, _, at = path.partition('&cursor=')
            listed = [entry(f'd/{at or 0}/{i}') for i in range(20000)]
            return status, {'Link': f'<{hub.endpoint}{path}&cursor={len(hub.asked)}>; rel="next"'}, json.dumps(listed).encode()
    with HubServer({NAME: Repo(files(1))}, change=change) as hub:
        p = ctl('ls', cache.flag, 'hf://me/my-model', env=env(hub))
        assert p.returncode == 1 and 'has more than 100000 files' in p.stderr and len(hub.asked) == 1 + 6
        assert not cache.objects() and not cache.partials()


def test_memory(cache):
    """What is written of a listing counts, too: it is refused before it is made."""
    sha256 = '5' * 64
    oid = git_id(pointer(sha256, 9))
    listed = [{'type': 'file', 'path': f'{i:06}', 'size': 9, 'oid': oid, 'lfs': {'oid': sha256, 'size': 9}}
              for i in range(60000)]
    with HubServer({NAME: Repo(files(1))}, change=text(json.dumps(listed).encode())) as hub:
        p = ctl('hash', cache.flag, '--memory=48M', 'hf://me/my-model', env=env(hub))
        assert p.returncode and 'cannot be written' in p.stderr and 'memory' in p.stderr, p.stderr
        assert not cache.objects()
        p = ctl('hash', cache.flag, '--memory=400M', 'hf://me/my-model', env=env(hub))
        assert p.returncode == 0, p.stderr


def test_memory_of_a_kept_list(cache):
    """
    The list of a late carton counts, too, when the whole carton is made of it. However little memory there is: a file whose
    link is not read any more does not become an empty one.
    """
    wanted = {f'{i:05}-{"x" * 60}': b'%d' % i for i in range(2000)}
    repo, refused = Repo(wanted), []
    repo.is_large = lambda path: True
    with HubServer({NAME: repo}) as hub:
        known = env(hub)
        assert ctl('ls', cache.flag, 'hf://me/my-model', env=known).returncode == 0
    for memory in range(4000, 8200, 300):
        p = ctl('hash', '--offline', cache.flag, f'--memory={memory}K', 'hf://me/my-model', env=known)
        if p.returncode == 0:
            assert p.stdout.split()[0] == model_hash(wanted)
            continue
        assert p.returncode == 1 and 'takes at least' in p.stderr, p.stderr
        refused.append('the list of its files cannot be read' in p.stderr)
    assert p.returncode == 0 and True in refused


SMALL = {'config.json': b'{}', 'model.safetensors': bytes(3000)}


def test_a_small_repository_takes_little_memory(mount, cache):
    """An answer counts as what it is, not as the longest that it could be."""
    with HubServer({NAME: Repo(SMALL)}) as hub:
        for more in (), ('-o', 'verify=mount'):
            with mount('hf://me/my-model', *cache.options, '-o', 'memory=1M', *more, env=env(hub)) as m:
                same(m, SMALL)


def in_chunks(data, n=65536):
    return [*(b'%x\r\n%s\r\n' % (len(part), part) for part in (data[i:i + n] for i in range(0, len(data), n))), b'0\r\n\r\n']


@pytest.mark.parametrize('chunked', [False, True])
def test_memory_of_an_answer(tmp_path, chunked):
    """Twice its length, and a small buffer for the connection: longer ones are refused, with what they need."""
    def change(path, status, headers, body):
        if '/tree/' not in path:
            return None
        body += b' ' * (size - len(body))
        return (status, {'Transfer-Encoding': 'chunked'}, in_chunks(body)) if chunked else (status, headers, body)

    def ls(memory):
        return ctl('ls', f'--cache-dir={tmp_path}/{size}', f'--memory={memory}M', 'hf://me/my-model', env=env(hub))
    with HubServer({NAME: Repo(SMALL)}, change=change) as hub:
        size = MIB - (200 << 10)
        assert ls(2).returncode == 0
        size = MIB + 1
        p = ls(2)
        assert p.returncode == 1 and p.stderr.count('\n') == 1, p.stderr
        needed, enough = re.search(r'takes at least (\d+) MiB.* the limit is 2 MiB.*memory=(\d+)M', p.stderr).groups()
        assert int(needed) > 2 and ls(int(enough)).returncode == 0, p.stderr


def endless(sent, n=65536, pause=0.0):
    while True:
        sent.append(n)
        yield b'%x\r\n%s\r\n' % (n, b' ' * n)
        time.sleep(pause)


@pytest.mark.parametrize('headers', [{'Content-Length': str(10**10)}, {'Transfer-Encoding': 'chunked'}])
@pytest.mark.parametrize('at', ['/revision/', '/tree/'])
def test_ten_gigabytes(cache, headers, at):
    """They are not taken: no more than a page, and what was under way."""
    sent = []
    with HubServer({NAME: Repo(files(1))}, change=lambda p, s, h, b: (s, headers, endless(sent)) if at in p else None) as hub:
        p = ctl('ls', cache.flag, 'hf://me/my-model', env=env(hub))
        assert p.returncode == 1 and 'answer is larger than 16 MiB' in p.stderr, p.stderr
        assert sum(sent) < 64 * MIB and not cache.objects() and not cache.partials()


def test_a_page_that_trickles(cache):
    """Bytes that come do not move its deadline."""
    with HubServer({NAME: Repo(files(1))}) as hub:
        hub.change = lambda p, s, h, b: (s, {'Transfer-Encoding': 'chunked'}, endless([], 2048, .1)) if '/tree/' in p else None
        p = ctl('ls', cache.flag, '--timeout=2', 'hf://me/my-model', env=env(hub))
        assert p.returncode and 'did not end before the deadline' in p.stderr, p.stderr
        assert not cache.objects() and not cache.partials()


@pytest.mark.parametrize('more', [-1, 1])
def test_sizes_of_a_listing_that_lie(mount, cache, more):
    """Though the git id fits, and the sha256 is right: the content has another size."""
    def change(path, status, headers, body):
        if '/tree/' not in path:
            return None
        listed = json.loads(body)
        for f in listed:
            if 'lfs' in f:
                f['size'] = f['lfs']['size'] = f['size'] + more
                f['oid'] = git_id(pointer(f['lfs']['oid'], f['size']))
        return status, headers, json.dumps(listed).encode()
    path = 'model/model-00001-of-00001.safetensors'
    with HubServer({NAME: Repo(files(1))}, change=change) as hub:
        with mount('hf://me/my-model', *cache.options, env=env(hub)) as m:
            assert m.error(path) == 'EIO' and m.read('model/config.json') == files()['config.json']


ODD = {'a\\b.txt': 'has a backslash', 'c:d.txt': 'begins with a drive letter', 'e\tf': 'has a control character',
       'g\x7f': 'has a control character', 'h\x85': 'has a control character', '/etc/x': 'is absolute',
       'up/../../x': 'has a ".." component', 'n' * 256: 'has a component of more than 255 bytes',
       'p/' * 2044 + 'pp': 'is longer than 4089 bytes', 'q/' * 2500: 'is longer than 4095 bytes',
       '': 'is empty', 'half\udc80': 'has a control character', 'nul\0': 'has a control character'}


@pytest.mark.parametrize('more', [0, 30])
def test_names_that_manifest_cannot_hold(mount, cache, tmp_path, more):
    """They are left out and named, and nothing else is; an import does the same."""
    odd = list(ODD) + [f'm{i}\\' for i in range(more)]

    def change(path, status, headers, body):
        if '/tree/' not in path:
            return None
        return status, headers, json.dumps(json.loads(body) + [entry(n) for n in odd]).encode()

    def named(text):
        found = {why for why in ODD.values() if f'is left out: its name {why}, so MANIFEST cannot list it' in text}
        assert 'a\\b.txt: is left out' in text and text.count(': is left out') == min(len(odd), 20), text
        assert (f'{len(odd) - 20} more files are left out' in text) == (len(odd) > 20)
        return found == set(ODD.values())
    with HubServer({NAME: Repo(files(1))}, change=change) as hub:
        with mount('hf://me/my-model', *cache.options, env=env(hub)) as m:
            same(m, files(1))
            status = json.loads(m.read('.cartonfs/status.json'))
            assert status['left_out_files'] == len(odd)
            told = {e['path']: e['fault'] for e in status['left_out']}
            assert len(told) == min(len(odd), 20)
            wanted = {n.translate({0: 1, 0xdc80: 1})[:4096] or '""': why for n, why in ODD.items()}
            assert {n: told[n] for n in wanted} == wanted
            assert f'left_out_files {len(odd)}\n' in m.read('.cartonfs/metrics').decode().replace('cartonfs_', '')
            p = ctl('ls', m.path)
            assert p.returncode == 0 and named(p.stderr)
            assert '  left out  a\\b.txt, whose name has a backslash\n' in ctl('status', m.path).stdout
        p = ctl('ls', cache.flag, '--offline', 'hf://me/my-model', env=env(hub))
        assert p.returncode == 0 and named(p.stderr)
        p = ctl('verify', cache.flag, 'hf://me/my-model', env=env(hub))
        assert p.returncode == 0, p.stdout
        p = ctl('import', f'--cache-dir={tmp_path}/other', 'hf://me/my-model', tmp_path / 'm.carton', env=env(hub))
        assert p.returncode == 0 and named(p.stderr)
        assert {model_hash(files(1))} == {ctl('hash', tmp_path / 'm.carton').stdout.split()[0],
                                          ctl('hash', cache.flag, 'hf://me/my-model', env=env(hub)).stdout.split()[0]}


def test_paths(mount, cache):
    """Case is a part of a name, as in MANIFEST; a file is no directory."""
    wanted = {'README.md': b'1', 'readme.md': b'2', 'Sub/x': b'3', 'sub/x': b'4'}
    with HubServer({NAME: Repo(wanted)}) as hub:
        with mount('hf://me/my-model', *cache.options, env=env(hub)) as m:
            same(m, wanted)
        hub.repos[NAME] = Repo({'a': b'x', 'a.b': b'z', 'a/b': b'y', 'a/b/c/d': b'z'})
        with mount('hf://me/my-model', *cache.options, env=env(hub)) as m:
            same(m, {'a.b': b'z', 'a/b/c/d': b'z'})
            told = json.loads(m.read('.cartonfs/status.json'))['left_out']
            assert told == [{'path': p, 'fault': 'is that of a directory, too'} for p in ('a', 'a/b')]


def test_small_files_after_a_429(cache):
    """What came before it is not fetched again."""
    wanted = {f'f{i}.json': b'%d' % i for i in range(40)} | {'empty': b''}
    limited = {'RateLimit': '"api";r=0;t=300'}
    with HubServer({NAME: Repo(wanted)}) as hub:
        hub.change = lambda path, *a: (429, limited, b'') if path.endswith(('9.json', '/empty')) else None
        p = ctl('hash', cache.flag, '--timeout=1', 'hf://me/my-model', env=env(hub))
        assert p.returncode == 75, p.stderr
        came = {q.rpartition('/')[2] for q in hub.resolved() if not q.endswith(('9.json', '/empty'))}
        hub.change = None
        del hub.asked[:]
        p = ctl('hash', cache.flag, 'hf://me/my-model', env=env(hub))
        assert p.stdout.split()[0] == model_hash(wanted), p.stderr
        assert came - {q.rpartition('/')[2] for q in hub.resolved()}


@pytest.mark.slow
def test_many_bytes_of_small_files(cache):
    """Over 64 MiB together they are on the disk until the carton of them is made."""
    data = os.urandom(15 * MIB)
    wanted = {f'f{i}.json': data[i:] for i in range(5)} | {'empty': b'', 'z': b'z'}
    repo = Repo(wanted)
    repo.is_large = lambda path: False
    with HubServer({NAME: repo}) as hub:
        p = ctl('hash', cache.flag, '--memory=150M', 'hf://me/my-model', env=env(hub))
        assert p.stdout.split()[0] == model_hash(wanted), p.stderr
        p = ctl('verify', cache.flag, '--offline', 'hf://me/my-model', env=env(hub))
        assert p.returncode == 0 and 'ok: 9 files' in p.stdout, p.stderr


@pytest.mark.parametrize('limit', [0, 100, 1000])
@pytest.mark.parametrize('command', ['import', 'fetch'])
def test_limit_of_the_size_of_files(work, command, limit):
    """Answers, small files and the carton that is made of both: what fails says that the limit is met."""
    words = [work / 'out'] if command == 'import' else []
    with HubServer({NAME: Repo(files())}) as hub:
        p = ctl(command, f'--cache-dir={work}/cache', 'hf://me/my-model', *words, env=env(hub),
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    *_, why = [line for line in problems(p).splitlines() if not line.endswith('was not made')]
    assert p.returncode == 1 and 'the limit of the size of files is met; raise it: ulimit -f' in why, p.stderr
    assert not os.path.exists(work / 'out')


@needs_root
def test_small_files_on_a_full_disk(work):
    """One line says how many they are, before any of them is fetched."""
    data = bytes(15 * MIB)
    repo = Repo({f'f{i}.json': data[i:] for i in range(5)})
    repo.is_large = lambda path: False
    with HubServer({NAME: repo}) as hub, small_disk(work / 'disk', 8) as disk:
        p = ctl('hash', f'--cache-dir={disk}/cache', 'hf://me/my-model', env=env(hub, TMPDIR=str(disk)))
        # before it, perhaps, that it waits for the server
        line, = lines_of(p.stderr, 'has 74 MiB of small files')
        assert not hub.resolved() and p.returncode == 1 and 'No space left' in line, p.stderr


def walked(m):
    """What `ls -lR` asks for: {path: size}."""
    return {os.path.relpath(p, m / 'model'): os.stat(p).st_size
            for d, _, fs in os.walk(m / 'model') for p in (os.path.join(d, f) for f in fs)}


def test_large_repository(mount, cache, tmp_path):
    """30 shards of 2 GB: two requests beside one for each small file, and none to list them; later one, or none."""
    small = {k: v for k, v in files(0).items() if len(v) <= 1024}
    shards = {f'model-{i + 1:05}-of-00030.safetensors': (2 * 10**9 + i, f'{i + 1:064x}') for i in range(30)}
    repo = Repo(small | shards)
    sizes = {p: len(d) for p, d in small.items()} | {p: size for p, (size, _) in shards.items()}
    with HubServer({NAME: repo}) as hub:
        with mount('hf://me/my-model', *cache.options, env=env(hub)) as m:
            settled(m)
            assert len(hub.api()) <= 4 and len(hub.asked) == len(hub.api()) + len(small) - 1
            asked = len(hub.asked)
            assert walked(m) == sizes and len(hub.asked) == asked
            p = ctl('status', m.path)
            assert 'hf://me/my-model' in p.stdout and re.search(f'commit +{repo.commit}\n', p.stdout), p.stdout
            assert json.loads(ctl('status', '--json', m.path).stdout)[0]['commit'] == repo.commit
            # the same commit by its name is another source, for which the small files are here already
            came = len(hub.resolved())
            assert ctl('hash', cache.flag, f'hf://me/my-model@{repo.commit}', env=env(hub)).returncode == 0
            assert len(hub.resolved()) == came
            asked = len(hub.asked)
            # the next commit: one shard and one small file are new
            new = shards | {'model-00030-of-00030.safetensors': (5 * 10**9, '5' * 64)}
            hub.repos[NAME] = Repo(small | new | {'config.json': b'{}'})
            with mount('hf://me/my-model', *cache.options, env=env(hub)) as other:
                settled(other)
                assert len(hub.asked) == asked + 3 and len(hub.resolved()) == len(small)
                assert walked(other)['model-00030-of-00030.safetensors'] == 5 * 10**9
            assert walked(m) == sizes
        last = hub.repos[NAME].commit
        for options, at, commit in ([], '', last), (['--offline'], '', last), (['--offline'], f'@{repo.commit}', repo.commit):
            p = ctl('info', cache.flag, *options, f'hf://me/my-model{at}', env=env(hub))
            assert p.returncode == 0 and re.search(f'commit +{commit}\n', p.stdout), p.stdout + p.stderr
            assert 'https://huggingface.co/me/my-model' in p.stdout
        p = ctl('info', '--json', cache.flag, 'hf://me/my-model', env=env(hub))
        assert json.loads(p.stdout)['commit'] == last
        assert ctl('repack', cache.flag, 'hf://me/my-model', tmp_path / 'm.carton', env=env(hub)).returncode == 0
        assert 'commit' not in ctl('info', tmp_path / 'm.carton').stdout


@pytest.mark.parametrize('name', ['{sha256}', 'sha256-{sha256}'])
def test_what_others_have_downloaded(mount, cache, tmp_path, name):
    """The cache of huggingface_hub and the store of Ollama are mirrors; wrong bytes there are no harm."""
    wanted = files(2)
    blobs = tmp_path / 'models--me--my-model' / 'blobs'
    blobs.mkdir(parents=True)
    for i, data in enumerate(d for d in wanted.values() if len(d) > 1024):
        (blobs / name.format(sha256=hashlib.sha256(data).hexdigest())).write_bytes(data if i else data[:-1] + b'x')
    with HubServer({NAME: Repo(wanted)}) as hub:
        with mount('hf://me/my-model', *cache.options, '-o', f'mirror={blobs}/{name}', env=env(hub)) as m:
            same(m, wanted)
        assert len(hub.secrets) == 1


# ---- refusals ----

LOOK = 'cartonctl: hf://me/my-model: me/my-model: '
WHERE = r'http://127\.0\.0\.1:\d+/me/my-model'


def code(status, word=None):
    return lambda p, s, h, b: (status, {'X-Error-Code': word} if word else {}, b'')


@pytest.mark.parametrize('change, token, line', [
    (code(401), '', 'does not exist, or is private: then a token is needed, in HF_TOKEN or as hf auth login saves it'),
    (code(401, 'RepoNotFound'), '',
     'does not exist, or is private: then a token is needed, in HF_TOKEN or as hf auth login saves it'),
    (code(401), TOKEN, 'the hub refuses your token: give another in HF_TOKEN, or run hf auth login'),
    (code(401, 'RepoNotFound'), TOKEN, f'does not exist, or your token may not see it: look at {WHERE}'),
    (code(404, 'RepoNotFound'), TOKEN, f'does not exist, or your token may not see it: look at {WHERE}'),
    (code(403), TOKEN, f'is gated: ask for access at {WHERE}; the account of your token has none'),
    (code(403), '', f'is gated: ask for access at {WHERE}, and give a token in HF_TOKEN'),
    (code(401, 'GatedRepo'), '', f'is gated: ask for access at {WHERE}, and give a token in HF_TOKEN'),
    (code(403, 'GatedRepo'), TOKEN, f'is gated: ask for access at {WHERE}; the account of your token has none'),
    (code(404, 'RevisionNotFound'), '', f'has no revision "main": its branches and tags are at {WHERE}'),
    (code(404), '', f'the hub has no such repository, or no revision "main" of it: look at {WHERE}'),
    (code(404, 'EntryNotFound'), '', f'the hub refuses it with status 404, EntryNotFound: look at {WHERE}'),
    (code(403, 'DisabledRepo'), TOKEN, f'the hub refuses it with status 403, DisabledRepo: look at {WHERE}'),
    (code(404, 'x' * 32), '', f'the hub has no such repository, or no revision "main" of it: look at {WHERE}'),
    (code(404, 'a\x1bb'), '', f'the hub has no such repository, or no revision "main" of it: look at {WHERE}')])
def test_refusals(cache, change, token, line):
    """One line says what it is, and what to do."""
    with HubServer({NAME: Repo(files(1))}, change=change) as hub:
        p = ctl('ls', cache.flag, 'hf://me/my-model', env=env(hub, HF_TOKEN=token))
        assert p.returncode == 1 and re.fullmatch(LOOK + line + '\n', p.stderr), p.stderr


@pytest.mark.parametrize('at', ['tree', 'resolve'])
def test_refusals_later(cache, at):
    with HubServer({NAME: Repo(files(1))}, change=lambda p, *a: code(403)(p, *a) if f'/{at}/' in p else None) as hub:
        p = ctl('ls' if at == 'tree' else 'hash', cache.flag, 'hf://me/my-model', env=env(hub, HF_TOKEN=TOKEN))
        line = f'is gated: ask for access at {WHERE}; the account of your token has none'
        assert p.returncode == 1 and re.fullmatch(LOOK + line + '\n', p.stderr), p.stderr


def test_gated(mount, cache):
    """It is listed, but its files are not for everybody; nor does the cache give them to whoever has no token."""
    wanted = files(1)
    with HubServer({NAME: Repo(wanted, gated=True)}, token=TOKEN) as hub:
        p = ctl('ls', cache.flag, 'hf://me/my-model', env=env(hub))
        assert re.fullmatch(f'{LOOK}is gated: ask for access at {WHERE}, and give a token in HF_TOKEN\n', p.stderr)
        assert not cache.objects()
        with mount('hf://me/my-model', *cache.options, env=env(hub, HF_TOKEN=TOKEN)) as m:
            hub.token = 'another'
            assert m.error('model/model-00001-of-00001.safetensors') == 'EACCES'
        p = ctl('cat', cache.flag, 'hf://me/my-model', 'model/config.json', env=env(hub, HF_TOKEN=TOKEN))
        assert p.stderr == f'{LOOK}the hub refuses your token: give another in HF_TOKEN, or run hf auth login\n'


def test_gated_links(cache, tmp_path):
    """A carton here that leads there: what is missing is said, with the option that helps."""
    out = tmp_path / 'm.carton'
    with HubServer({NAME: Repo(files(1), gated=True)}, token=TOKEN) as hub:
        assert ctl('import', cache.flag, 'hf://me/my-model', out, env=env(hub, HF_TOKEN=TOKEN)).returncode == 0
        read = ['cat', cache.flag, '--private-links', out, 'model/model-00001-of-00001.safetensors']
        p = ctl(*read, env=env(hub, HF_TOKEN=TOKEN))
        assert p.returncode == 1 and 'GatedRepo; the option --hub-token sends your token there\n' in p.stderr, p.stderr
        p = ctl(*read, '--hub-token', env=env(hub, HF_TOKEN='wrong'))
        assert p.returncode == 1 and 'hub-token' not in p.stderr, p.stderr
        p = ctl(*read, '--hub-token', env=env(hub, HF_TOKEN=TOKEN), text=False)
        assert p.stdout == files(1)['model-00001-of-00001.safetensors'], p.stderr


def test_rate_limit(mount, cache, point):
    """A wait that fits is waited; else it is said how long it would be, and a script knows that it may try again."""
    refusals = [2]

    def limit(path, status, headers, body):
        if refusals[0] and '/tree/' in path:
            refusals[0] -= 1
            return 429, {'RateLimit': '"api";r=0;t=1', 'RateLimit-Policy': '"fixed window";"api";q=500;w=300'}, b''
    wanted = files(1)
    with HubServer({NAME: Repo(wanted)}, change=limit) as hub:
        with mount('hf://me/my-model', *cache.options, env=env(hub)) as m:
            same(m, wanted)
        assert refusals == [0]
    with HubServer({NAME: Repo(wanted)}, change=lambda p, s, h, b: (429, {'RateLimit': '"api";r=0;t=300'}, b'')) as hub:
        p = run(CARTONFS, 'hf://me/my-model', point(None), *cache.options, env=env(hub))
        assert p.returncode == 75 and len(hub.asked) == 1
        assert re.search(r'overloaded until the timeout; try again in (29\d|30\d) seconds\n', p.stderr), p.stderr


# ---- names ----

def test_another_name(mount, cache, tmp_path):
    """Letters in another case, and the name from before, are the same model with the same hash."""
    wanted = files(1)
    with HubServer({NAME: Repo(wanted)}, renamed={'models/old/name': NAME}, token=TOKEN) as hub:
        right = ctl('hash', cache.flag, 'hf://me/my-model', env=env(hub)).stdout.split()[0]
        for name in ('Me/My-Model', 'old/name'):
            p = ctl('hash', f'--cache-dir={tmp_path}/{name[:2]}', f'hf://{name}', env=env(hub, HF_TOKEN=TOKEN))
            assert p.stdout.split()[0] == right, p.stderr
            assert ('is called me/my-model now: use that name' in p.stderr) == (name == 'old/name'), p.stderr
            p = ctl('hash', f'--cache-dir={tmp_path}/{name[:2]}', '--offline', f'hf://{name}', env=env(hub))
            assert p.stdout.split()[0] == right, p.stderr
        with mount('hf://ME/my-model', f'-ocache_dir={tmp_path}/third', env=env(hub)) as m:
            same(m, wanted)
        assert [p for p in hub.resolved() if '/me/my-model/' not in p] == []


@pytest.mark.parametrize('name', ['../..', 'me/..', '..', 'me/x/y', 'datasets/me', 'datasets/me/x', 'me/x@v1', 'me/x?y',
                                  'me/%2e%2e', '/x', 'me/', 'me/x\ny', '@evil/x', 'ü/x'])
def test_names_that_are_none(cache, name):
    body = json.dumps({'sha': '1' * 40, 'id': name}).encode()
    with HubServer({NAME: Repo(files(1))}, change=text(body, at='/revision/')) as hub:
        p = ctl('ls', cache.flag, 'hf://me/my-model', env=env(hub))
        assert p.returncode and 'by a name that no repository has' in p.stderr and len(hub.asked) == 1


def test_names_that_are_left_out(cache):
    """Of what is no text, or has no end, the name is not taken."""
    for name in (5, None, ['a/b'], 'a/' + 'b' * 300):
        with HubServer({NAME: Repo(files(1))}) as hub:
            hub.change = text(json.dumps({'sha': hub.repos[NAME].commit, 'id': name}).encode(), at='/revision/')
            p = ctl('hash', f'--cache-dir={cache.path}', 'hf://me/my-model', env=env(hub))
            assert p.returncode == 0, p.stderr


def test_redirects_elsewhere(cache):
    """What another server lists is not what this one has; and it does not get the token."""
    with HubServer({NAME: Repo(files(1))}) as other, HubServer({NAME: Repo(files(1))}) as hub:
        for at in ('/revision/', '/tree/'):
            hub.change = lambda p, s, h, b: (307, {'Location': f'{other.endpoint}{p}'}, b'') if at in p else None
            p = ctl('ls', cache.flag, 'hf://me/my-model', env=env(hub, HF_TOKEN=TOKEN))
            assert p.returncode and 'redirects to another server, which does not say what' in p.stderr, p.stderr
        assert other.tokens == [None, None] and set(hub.tokens) == {f'Bearer {TOKEN}'}
        assert len(other.asked) == 2 and not cache.objects()
        hub.change = lambda p, s, h, b: (302, {'Location': 'http://10.1.2.3/x'}, b'') if '/resolve/' in p else None
        for command in ['hash'], ['cat', 'model/config.json']:
            p = ctl(command[0], cache.flag, 'hf://me/my-model', *command[1:], env=env(hub, HF_TOKEN=TOKEN))
            assert p.returncode and 'a redirect leads to a private address' in p.stderr, p.stderr
        assert len(other.asked) == 2 and len(cache.objects()) == 1, 'that of the listing'


# as a mirror passes on what the hub says, a proxy what it is itself called, and RFC 8288 has it
NEXT = {
    'itself': '{endpoint}{path}', 'the hub': 'https://huggingface.co{path}', 'another': '{other}{path}',
    'another path': '{other}/behind/a/proxy{path}', 'without a scheme': '//huggingface.co{path}', 'relative': '{path}',
    'last component': '{last}', 'encoded': '{other}{encoded}', 'query': '',
}


@pytest.mark.parametrize('how', NEXT)
def test_next_page(cache, how):
    """Its path and query are asked for at the endpoint, which alone gets the token, wherever it says that it is."""
    wanted = files(5)
    with HubServer({NAME: Repo(wanted)}) as other, HubServer({NAME: Repo(wanted, page=4)}, token=TOKEN) as hub:
        def change(p, s, h, b):
            link = h.get('Link', '')
            if link:
                url = link[1:link.index('>')]
                path, _, query = url[len(hub.endpoint):].partition('?')
                there = NEXT[how].format(endpoint=hub.endpoint, other=other.endpoint, path=path, last=path.split('/')[-1],
                                         encoded=path[:-1] + f'%{ord(path[-1]):02X}')
                return s, h | {'Link': f'<{there}?{query}#x>; rel="next"'}, b
        hub.change = change
        p = ctl('ls', cache.flag, 'hf://me/my-model', env=env(hub, HF_TOKEN=TOKEN))
        assert p.returncode == 0 and all(f'model/{name}' in p.stdout for name in wanted), p.stderr
        assert len([p for p in hub.asked if '/tree/' in p]) == 3
        assert not other.asked and set(hub.tokens) == {f'Bearer {TOKEN}'}


@pytest.mark.parametrize('parameters, goes_on', [
    ('rel="last next"', True), ('rel="next\tlast"', True), ('rel=next', True), ('Rel = "NEXT"', True), ('rel=Next;title=x', True),
    ('title="a, b; rel=\\"prev\\""; rel="next"', True), ('anchor; rel="next"; rel="prev"', True),
    ('rel="prev"; rel="next"', False), ('rel="nextpage"', False), ('xrel="next"', False), ('title="rel=next"', False)])
def test_next_by_relation(cache, parameters, goes_on):
    """RFC 8288: types of relation are words of either case in the first rel, quoted or not; other texts are no types."""
    with HubServer({NAME: Repo(files(5), page=4)}) as hub:
        hub.change = lambda p, s, h, b: (s, h | {'Link': h['Link'].replace('rel="next"', parameters)}, b) if 'Link' in h else None
        p = ctl('ls', cache.flag, 'hf://me/my-model', env=env(hub))
        assert p.returncode == 0 and all(f'model/{name}' in p.stdout for name in files(5)) == goes_on, p.stderr
        assert len([p for p in hub.asked if '/tree/' in p]) == (3 if goes_on else 1)


def test_marked_files(cache):
    """What the hub's scan found is said, in a line for each of a few."""
    marks = {'a.bin': 'unsafe', 'b.bin': 'suspicious', 'c.bin': 'caution', 'd.bin': 'safe', 'e.bin': 'queued'}
    with HubServer({NAME: Repo(files(1), marked=marks)}) as hub:
        p = ctl('hash', cache.flag, 'hf://me/my-model', env=env(hub))
        assert p.stderr == ('cartonctl: hf://me/my-model: a.bin: is marked unsafe by the hub, in me/my-model\n'
                            'cartonctl: hf://me/my-model: b.bin: is marked suspicious by the hub, in me/my-model\n')
        hub.repos[NAME].marked = {f'{i}': 'unsafe' for i in range(1000)}
        p = ctl('hash', cache.flag, 'hf://me/my-model', env=env(hub))
        assert problems(p).count('\n') == 17 and 'has 984 more files' in p.stderr
    with HubServer({'datasets/me/data': Repo(files(1), marked=marks)}) as hub:
        p = ctl('hash', cache.flag, 'hf://datasets/me/data', env=env(hub))
        assert p.returncode == 0 and problems(p) == '' and 'securityStatus' not in hub.asked[0]


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
        sizes = [set(zipfile.ZipFile(tmp_path / f'{n}.carton').read('LINKS').partition(b'[sizes]\n')[2].splitlines())
                 for n in 'al']
        readme = wanted['README.md']
        assert len(sizes[0]) == 3
        assert sizes[1] == sizes[0] | {f'{hashlib.sha256(readme).hexdigest()} = {len(readme)}'.encode()}
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
    """Its name says all: what is kept of it opens again without the hub. A branch that has it is another source."""
    wanted = files(1)
    with HubServer({NAME: Repo(wanted)}) as hub:
        commit = hub.repos[NAME].commit
        for source in 'hf://me/my-model', f'hf://me/my-model@{commit}':
            with mount(source, *cache.options, env=env(hub)) as m:
                settled(m)
        hub.repos[NAME] = Repo(wanted | {'config.json': b'other'})
        asked = len(hub.asked)
        with mount(f'hf://me/my-model@{commit}', *cache.options, env=env(hub)) as m:
            assert m.read('model/config.json') == wanted['config.json']
        assert len(hub.asked) == asked
        for source in f'hf://me/my-model@{hub.repos[NAME].commit}', 'hf://me/my-model':
            with mount(source, *cache.options, env=env(hub)) as m:
                settled(m)
        asked = len(hub.asked)
        assert ctl('hash', cache.flag, 'hf://me/my-model', env=env(hub)).returncode == 0
        assert len(hub.asked) == asked + 1
    # the last commit of main, although it came by its own name first
    with mount('hf://me/my-model', *cache.options, '-o', 'offline', env=env(hub)) as m:
        assert m.read('model/config.json') == b'other'
    p = ctl('hash', cache.flag, 'hf://me/my-model', env=env(hub))
    assert p.returncode and 'the option --offline opens that' in p.stderr, p.stderr


def test_another_commit(cache):
    """A branch with the name of a commit, or a hub that says another one, is refused."""
    with HubServer({NAME: Repo(files(1))}, change=text(b'{"sha": "%s"}' % (b'1' * 40), at='/revision/')) as hub:
        p = ctl('hash', cache.flag, f'hf://me/my-model@{hub.repos[NAME].commit}', env=env(hub))
        assert p.returncode and 'is about another commit' in p.stderr, p.stderr
