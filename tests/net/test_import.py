# SPDX-License-Identifier: Apache-2.0
"""cartonctl import: a repository of a hub as a carton of some KB, which leads to its files."""
import hashlib
import json
import os
import pty
import re
import signal
import subprocess
import threading
import zipfile

import pytest

from chunkindex import pread
from harness import PROGRAMS, SLOW, ctl, environment, problems
from hubrepo import HubServer, Repo, large
from modelscope import Model, ModelScope
from origin import MIB, fault_bytes

NAME, SOURCE = 'models/me/my-model', 'hf://me/my-model'
SHARDS = {f'model-{i}.safetensors': fault_bytes(2 * MIB + i, seed=80 + i) for i in range(3)}
FILES = {'config.json': b'{"a": 1}\n', 'README.md': b'# m\n'} | SHARDS
FIRST = 'model/model-0.safetensors'


def env(hub=None, ms=None):
    return {'HF_TOKEN': '', 'HF_ENDPOINT': hub.endpoint if hub else 'http://127.0.0.1:1',
            'MODELSCOPE_ENDPOINT': ms.endpoint if ms else 'http://127.0.0.1:1'}


def imported(cache, out, *options, source=SOURCE, **servers):
    p = ctl('import', cache.flag, '--json', *options, source, out, env=env(**servers))
    assert p.returncode == 0 and not problems(p), p.stderr
    return json.loads(p.stdout)


def links_of(carton):
    """{sha256: [URL]} and {sha256: size}"""
    text = zipfile.ZipFile(carton).read('LINKS').decode()
    urls, _, sizes = text.partition('[sizes]')
    return ({k: json.loads(v) for k, v in re.findall(r'^(\w{64}) = (\[.*\])$', urls, re.M)},
            {k: int(v) for k, v in re.findall(r'^(\w{64}) = (\d+)$', sizes, re.M)})


def sha(path):
    return hashlib.sha256(FILES[path]).hexdigest()


# ---- what it makes ----

def test_thirty_shards(cache, tmp_path):
    """60 GB of files that nobody has to read; the same bytes again, on another machine."""
    shards = {f'model-{i:05}-of-00030.safetensors': (2 * 10**9 + i, hashlib.sha256(b'%d' % i).hexdigest())
              for i in range(30)}
    small = {'config.json': b'{}', 'tokenizer.json': b'{"x": 1}' * 100}
    with HubServer({NAME: Repo(shards | small)}) as hub:
        flag = cache.flag
        for name in 'ab':
            cache.flag = flag + name
            got = imported(cache, tmp_path / f'{name}.carton', hub=hub)
            hash_of = ctl('hash', cache.flag, SOURCE, env=env(hub)).stdout.split()[0]
            assert got['model_hash'] == hash_of and got['commit'] == hub.repos[NAME].commit
            assert got['linked'] == 30 and got['bytes'] > 60 * 10**9 and got['shared'] == 0
        cache.flag = flag
        assert not hub.secrets
        urls, sizes = links_of(tmp_path / 'a.carton')
        assert sizes == {sha256: size for size, sha256 in shards.values()}
        assert [u for u in urls.values() if not (len(u) == 1 and f'/resolve/{hub.repos[NAME].commit}/' in u[0])] == []
        # 4 requests or fewer, beside one for each small file; and for the hash of the same commit, one
        assert len(hub.asked) <= 2 * (4 + len(small)) + 2
    data = (tmp_path / 'a.carton').read_bytes()
    assert data == (tmp_path / 'b.carton').read_bytes() and len(data) == got['carton_bytes'] < 100_000


def test_exit_status(cache, tmp_path):
    """75 where only the hub is in the way: a script may try again."""
    out = tmp_path / 'm.carton'
    p = ctl('import', cache.flag, '--timeout=1', SOURCE, out, env=env())
    assert p.returncode == 75 and p.stderr.endswith(f'{out} was not made\n'), p.stderr
    assert ctl('import', cache.flag, '--offline', SOURCE, out, env=env()).returncode == 1


def test_one_content_with_several_names(cache, tmp_path):
    """Its URLs are in the order of the paths."""
    names = [f'{i:03}.bin' for i in range(200)]
    with HubServer({NAME: Repo(dict.fromkeys(reversed(names), SHARDS['model-0.safetensors']))}) as hub:
        imported(cache, tmp_path / 'm.carton', hub=hub)
    (urls,) = links_of(tmp_path / 'm.carton')[0].values()
    assert [u.rpartition('/')[2] for u in urls] == names


def test_text(cache, tmp_path):
    out = tmp_path / 'm.carton'
    with HubServer({NAME: Repo(FILES)}) as hub:
        p = ctl('import', cache.flag, SOURCE, out, env=env(hub))
        model = ctl('hash', out).stdout.split()[0]
        assert p.stdout.splitlines()[0] == f'commit {hub.repos[NAME].commit}'
        assert p.stdout.splitlines()[-1] == f'model {model}' and '3 of them behind URLs' in p.stdout
        # and anew, over it
        before = out.read_bytes()
        assert ctl('import', cache.flag, SOURCE, out, env=env(hub)).returncode == 0 and out.read_bytes() == before


def test_another_machine(mount, cache, tmp_path):
    """It fetches by LINKS, and verifies; what the hub has changed since does not matter."""
    with HubServer({NAME: Repo(FILES)}) as hub:
        imported(cache, tmp_path / 'm.carton', hub=hub)
        p = ctl('fetch', f'--cache-dir={tmp_path}/other', '--private-links', tmp_path / 'm.carton')
        assert p.returncode == 0, p.stderr
        p = ctl('verify', f'--cache-dir={tmp_path}/other', '--offline', tmp_path / 'm.carton')
        assert p.returncode == 0, p.stdout
        with mount(tmp_path / 'm.carton', '-o', f'private_links,cache_dir={tmp_path}/third') as m:
            for path, data in FILES.items():
                assert m.read(f'model/{path}') == data


def flip(path, status, headers, body):
    if status in (200, 206) and len(body) > 1024 and '/api/' not in path:
        return status, headers, body[:-1] + bytes([body[-1] ^ 1])
    return None


def test_flipped(mount, cache, tmp_path):
    with HubServer({NAME: Repo(FILES)}, change=flip) as hub:
        imported(cache, tmp_path / 'm.carton', hub=hub)
        with mount(tmp_path / 'm.carton', '-o', 'private_links', *cache.options) as m:
            assert m.error(FIRST) == 'EIO' and m.read('model/config.json') == FILES['config.json']
        # nor is anything made of such bytes
        p = ctl('import', '--chunk-index', cache.flag, SOURCE, tmp_path / 'c.carton', env=env(hub))
        assert p.returncode and 'was not made' in p.stderr and not (tmp_path / 'c.carton').exists()


def test_runner(cache, tmp_path):
    with HubServer({NAME: Repo(FILES)}) as hub:
        plain = imported(cache, tmp_path / 'p.carton', hub=hub)
        for options, table in ((['--runner=vllm'], ('vllm', '*', 1)),
                               (['--runner=vllm@3', '--framework=>=0.8, <1'], ('vllm', '>=0.8, <1', 3))):
            for again in range(2):
                got = imported(cache, tmp_path / 'm.carton', *options, hub=hub)
                text = ctl('cat', tmp_path / 'm.carton', 'carton.toml').stdout
                assert text.endswith('[runner]\nrunner_name = "%s"\nrequired_framework_version = "%s"\n'
                                     'runner_compat_version = %d\n' % table)
                assert got['model_hash'] != plain['model_hash']
        assert imported(cache, tmp_path / 'p.carton', hub=hub) == plain
        for bad in ('a b', 'a"', 'x' * 65, 'vllm@', 'vllm@"', 'vllm@0', '@1'):
            p = ctl('import', cache.flag, f'--runner={bad}', SOURCE, tmp_path / 'x.carton', env=env(hub))
            assert p.returncode and 'expected NAME' in p.stderr or 'name of a runner' in p.stderr, bad
        p = ctl('import', cache.flag, '--framework=new', SOURCE, tmp_path / 'x.carton', env=env(hub))
        assert p.returncode and 'is no version requirement' in p.stderr
    assert not (tmp_path / 'x.carton').exists()


@pytest.mark.parametrize('source, says', [
    ('', 'is a directory: pack makes'), ('p.carton', 'is a file, not a repository: link leaves'),
    ('none', 'is no repository, such as hf://ORG/REPO'), ('https://h.example/me/my-model', 'is no repository, such as'),
    ('hf://me/my-model/x', 'is no repository, such as'), ('hf://me//', 'is no repository, such as'),
    ('ms://me', 'is no repository, such as')])
def test_no_repository(cache, tmp_path, source, says):
    (tmp_path / 'p.carton').write_bytes(b'')
    p = ctl('import', cache.flag, source if '://' in source else tmp_path / source, tmp_path / 'x.carton')
    assert p.returncode == 1 and says in p.stderr and not (tmp_path / 'x.carton').exists()


# ---- mirrors ----

def test_also(mount, cache, tmp_path):
    """Of each sha256 that both have there are two URLs; of what only one has, or as other bytes, not."""
    theirs = {'renamed.safetensors': FILES['model-0.safetensors'], 'model-1.safetensors': b'other' * 999, 'x': b'x' * 9}
    out = tmp_path / 'm.carton'
    with ModelScope({'me/m': Model(theirs)}) as ms:
        with HubServer({NAME: Repo(FILES), 'models/you/copy': Repo(SHARDS)}) as hub:
            plain = imported(cache, out, hub=hub)
            for again in range(2):
                got = imported(cache, out, '--also=ms://me/m', '--also=hf://you/copy', hub=hub, ms=ms)
                assert got['model_hash'] == plain['model_hash'] and got['shared'] == 3
            urls, sizes = links_of(out)
            assert set(urls) == set(sizes) == {large(d)[1] for d in SHARDS.values()}
            mine, scope, copy = urls[sha('model-0.safetensors')]
            assert mine.startswith(f'{hub.endpoint}/me/my-model/') and copy.startswith(f'{hub.endpoint}/you/copy/')
            assert scope == f'{ms.endpoint}/models/me/m/resolve/{ms.repos["me/m"].commit}/renamed.safetensors'
            assert [len(urls[sha(f'model-{i}.safetensors')]) for i in (1, 2)] == [2, 2]
        # the first hub is down
        with mount(out, '-o', 'private_links', *cache.options) as m:
            assert m.read(FIRST) == FILES['model-0.safetensors']


def test_also_where_the_first_is_wrong(mount, cache, tmp_path):
    with HubServer({NAME: Repo(FILES)}, change=flip) as hub, ModelScope({'me/m': Model(SHARDS)}) as ms:
        imported(cache, tmp_path / 'm.carton', '--also=ms://me/m', hub=hub, ms=ms)
        with mount(tmp_path / 'm.carton', '-o', 'private_links', *cache.options) as m:
            for path, data in FILES.items():
                assert m.read(f'model/{path}') == data


def test_also_lies(cache, tmp_path):
    """One that lists another size for a sha256 is no mirror of it."""
    def lie(path, status, headers, body):
        if '/repo/files' in path:
            listed = json.loads(body)
            for f in listed['Data']['Files']:
                f['Size'] += 1
            return status, headers, json.dumps(listed).encode()
        return None
    with HubServer({NAME: Repo(FILES)}) as hub, ModelScope({'me/m': Model(SHARDS)}, change=lie) as ms:
        assert imported(cache, tmp_path / 'm.carton', '--also=ms://me/m', hub=hub, ms=ms)['shared'] == 0


@pytest.mark.parametrize('also, says', [(['ms://me/none'], 'no such model'), (['/tmp'], 'is no repository'),
                                        (['ms://me/m'] * 9, 'at most 8 times')])
def test_also_that_is_none(cache, tmp_path, also, says):
    with HubServer({NAME: Repo(FILES)}) as hub, ModelScope({'me/m': Model(SHARDS)}) as ms:
        p = ctl('import', cache.flag, *(f'--also={a}' for a in also), SOURCE, tmp_path / 'm.carton', env=env(hub, ms))
        assert p.returncode and says in p.stderr and not (tmp_path / 'm.carton').exists(), p.stderr


def test_the_token_goes_to_its_hub_only(cache, tmp_path):
    with HubServer({NAME: Repo(FILES)}, token='hf_abcDEF') as hub, ModelScope({'me/m': Model(SHARDS)}) as ms:
        p = ctl('import', cache.flag, '--also=ms://me/m', SOURCE, tmp_path / 'm.carton',
                env=env(hub, ms) | {'HF_TOKEN': 'hf_abcDEF'})
        assert p.returncode == 0 and set(hub.tokens) == {'Bearer hf_abcDEF'} and set(ms.secrets) == {None}, p.stderr
        # nor does that of the other go to the source
        p = ctl('import', cache.flag, f'--also={SOURCE}', 'ms://me/m', tmp_path / 'n.carton',
                env=env(hub, ms) | {'HF_TOKEN': 'hf_abcDEF'})
        assert p.returncode == 0 and set(hub.tokens) == {'Bearer hf_abcDEF'} and set(ms.secrets) == {None}, p.stderr


# ---- the chunk index ----

def test_chunk_index(mount, cache, tmp_path):
    """Each file is read once; then the first 4 KiB of a shard are one chunk, by few requests."""
    shard = fault_bytes(40 * MIB, seed=90)
    with HubServer({NAME: Repo(FILES | {'big.safetensors': shard})}) as hub:
        got = [imported(cache, tmp_path / f'{n}.carton', '--chunk-index', hub=hub) for n in 'ab']
        assert got[0] == got[1] and (tmp_path / 'a.carton').read_bytes() == (tmp_path / 'b.carton').read_bytes()
        plain = imported(cache, tmp_path / 'p.carton', hub=hub)
        assert got[0]['model_hash'] != plain['model_hash'] and got[0]['carton_bytes'] < 100_000
        p = ctl('verify', cache.flag, '--offline', tmp_path / 'a.carton')
        assert p.returncode == 0, p.stdout
        del hub.asked[:], hub.secrets[:]
        with mount(tmp_path / 'a.carton', '-o', f'private_links,cache_dir={tmp_path}/other') as m:
            assert pread(m / 'model/big.safetensors', 4096, 0) == shard[:4096]
            assert m.state('model/big.safetensors') == 'chunks'
            assert len(hub.secrets) <= 2 and len(hub.asked) <= 2


def test_progress_without_a_terminal(cache, tmp_path):
    """None for what is small."""
    with HubServer({NAME: Repo(FILES)}) as hub:
        p = ctl('import', '--chunk-index', cache.flag, SOURCE, tmp_path / 'm.carton', env=env(hub))
        assert p.returncode == 0 and not problems(p)


def test_progress_of_small_files(cache, tmp_path):
    """A bar at a terminal while there is no carton yet, also when nothing comes."""
    go = threading.Event()

    def wait(path, status, headers, body):
        if path.endswith('config.json'):
            go.wait(60)
    leader, follower = pty.openpty()
    with HubServer({NAME: Repo(FILES)}, change=wait) as hub:
        p = subprocess.Popen([PROGRAMS / 'cartonctl', 'import', cache.flag, SOURCE, tmp_path / 'm.carton'],
                             env=environment() | env(hub), stdout=subprocess.DEVNULL, stderr=follower)
        os.close(follower)
        shown = b''
        while not re.search(r'import [█▉▊▋▌▍▎▏ ]* +\d+%  \d+ B/13 B', shown.decode(errors='ignore')):
            shown += os.read(leader, 4096)
        go.set()
        assert p.wait() == 0
    os.close(leader)


# ---- ends ----

@pytest.mark.parametrize('how', [signal.SIGINT, signal.SIGKILL])
def test_interrupted(cache, tmp_path, how):
    """While a file comes: nothing is left, and an older carton stays."""
    came, go = threading.Event(), threading.Event()

    def wait(path, status, headers, body):
        if '/api/' not in path and len(body) > 1024:
            came.set()
            go.wait(60)
    out = tmp_path / 'd' / 'm.carton'
    out.parent.mkdir()
    out.write_bytes(b'older')
    with HubServer({NAME: Repo(FILES)}, change=wait) as hub:
        p = subprocess.Popen([PROGRAMS / 'cartonctl', 'import', '--chunk-index', cache.flag, SOURCE, out],
                             env=environment(**env(hub)), stderr=subprocess.PIPE)
        assert came.wait(60 * SLOW)
        p.send_signal(how)
        p.communicate(timeout=60 * SLOW)
        assert p.returncode == -how
        go.set()
    assert [f.name for f in out.parent.iterdir()] == ['m.carton'] and out.read_bytes() == b'older'


def test_as_it_was_kept(cache, tmp_path):
    """What was mounted or imported once can be imported offline."""
    with HubServer({NAME: Repo(FILES)}) as hub:
        got = imported(cache, tmp_path / 'a.carton', hub=hub)
    assert imported(cache, tmp_path / 'b.carton', '--offline', hub=hub) == got
    p = ctl('import', cache.flag, '--offline', '--runner=vllm', SOURCE, tmp_path / 'c.carton', env=env(hub))
    assert p.returncode and 'is not in the cache' in p.stderr
