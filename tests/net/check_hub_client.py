# SPDX-License-Identifier: Apache-2.0
"""
Is the hub of the tests like the real one? The hub's own client, @huggingface/hub, lists and reads its repositories:
`make check-hub` gets it from npm, and runs this. Not part of the mount tests, which need no network.
"""
import hashlib
import json
import os
from pathlib import Path

import pytest

from harness import ctl, run
from hubrepo import HubServer, Repo, git_id, pointer
from origin import MIB, fault_bytes

CLIENT = """
import * as hub from '@huggingface/hub';
const [what, hubUrl, repo, revision, accessToken] = process.argv.slice(2);
const at = { repo: JSON.parse(repo), hubUrl, revision, ...(accessToken ? { accessToken } : {}) };
const hash = async (bytes) => Buffer.from(await crypto.subtle.digest('SHA-256', bytes)).toString('hex');
try {
    const out = {};
    if (what == 'info')
        Object.assign(out, await hub.modelInfo({ name: at.repo.name, hubUrl, revision, additionalFields: ['sha', 'cardData'] }));
    for await (const f of what == 'info' ? [] : hub.listFiles({ ...at, recursive: true })) {
        out[f.path] = { listed: f };
        if (f.type != 'file' || what != 'read')
            continue;
        const { size, etag } = await hub.fileDownloadInfo({ ...at, path: f.path });
        const blob = await hub.downloadFile({ ...at, path: f.path });
        Object.assign(out[f.path], { size, etag, sha256: await hash(await blob.arrayBuffer()) });
        if (size > 100)
            out[f.path].part = await hash(await blob.slice(10, 100).arrayBuffer());
    }
    if (what == 'read')
        out.missing = await hub.fileDownloadInfo({ ...at, path: 'no/such/file' });
    console.log(JSON.stringify(out));
} catch (e) {
    console.log(JSON.stringify({ error: e.message, status: e.statusCode }));
}
"""
WANTED = {'config.json': b'{"a": 1}\n', 'empty': b'', 'sub/a b/\u00fc.py': b'print()\n', 'sub/x.bin': fault_bytes(2 * MIB, seed=1),
          'model.safetensors': fault_bytes(3 * MIB, seed=2)} | {f'many/{i}': b'%d' % i for i in range(10)}


@pytest.fixture
def client():
    """client(what, hub, repository, revision, token): what the client's program prints."""
    program = Path(os.environ['NPM_CLIENT']) / 'client.mjs'
    program.write_text(CLIENT)

    def call(what, hub, repo='me/my-model', revision='main', token=''):
        name = json.dumps({'type': 'model', 'name': repo} if isinstance(repo, str) else repo)
        p = run('node', program, what, hub.endpoint, name, revision, token)
        assert p.returncode == 0, p.stderr
        return json.loads(p.stdout)
    return call


@pytest.mark.parametrize('revision', ['main', 'refs/pr/1', None])
@pytest.mark.parametrize('kind', ['model', 'dataset', 'space'])
def test_reads(client, kind, revision):
    """It lists all pages, and gets the bytes of each file, and of a part of it."""
    repo = Repo(WANTED, page=7)
    with HubServer({f'{kind}s/me/x': repo}) as hub:
        # a slash in a revision is encoded by one of its functions only
        what = 'list' if revision == 'refs/pr/1' else 'read'
        out = client(what, hub, {'type': kind, 'name': 'me/x'}, (revision or repo.commit).replace('/', '%2F'))
        assert out.pop('missing', None) is None and 'error' not in out, out
        files = {p: f for p, f in out.items() if f['listed']['type'] == 'file'}
        assert set(files) == set(WANTED) and set(out) - set(files) == {'sub', 'sub/a b', 'many'}
        for path, f in files.items():
            data, listed = WANTED[path], f['listed']
            sha256 = hashlib.sha256(data).hexdigest()
            assert listed['size'] == len(data)
            assert listed['oid'] == git_id(pointer(sha256, len(data)) if 'lfs' in listed else data)
            assert listed.get('lfs', {}).get('oid', sha256) == sha256 and ('lfs' in listed) == (len(data) > 1024)
            if what == 'read':
                assert (f['size'], f['sha256']) == (len(data), sha256)
                assert f['etag'] == f'"{sha256 if "lfs" in listed else git_id(data)}"'
                assert f.get('part', '') == (hashlib.sha256(data[10:100]).hexdigest() if len(data) > 100 else '')
        assert set(hub.secrets) <= {None}


def test_what_a_model_is(client):
    repo = Repo(WANTED, gated=True)
    with HubServer({'models/me/my-model': repo}, renamed={'models/old/name': 'models/me/my-model'}) as hub:
        for name in ('me/my-model', 'Me/My-Model', 'old/name'):
            info = client('info', hub, name)
            assert info['name'] == 'me/my-model' and info['sha'] == repo.commit and info['gated'], info
            assert info['cardData']['license'] == 'apache-2.0' and not info['private']


def test_refusals(client):
    """The client sees the same statuses as the real hub's."""
    repos = {'models/me/gated': Repo(WANTED, gated=True), 'models/me/private': Repo(WANTED, private=True)}
    with HubServer(repos, token='hf_abc') as hub:
        assert client('read', hub, 'me/gated')['status'] == 401
        assert client('read', hub, 'me/private')['status'] == 401 == client('read', hub, 'me/none')['status']
        assert client('read', hub, 'me/none', token='hf_abc')['status'] == 404
        assert client('read', hub, 'me/private', 'none', token='hf_abc')['status'] == 404
        assert 'Invalid credentials' in client('read', hub, 'me/private', token='hf_other')['error']
        for name in ('gated', 'private'):
            assert client('read', hub, f'me/{name}', token='hf_abc')['config.json']['size'] == len(WANTED['config.json'])
        assert set(hub.secrets) == {None}


def test_the_same_files(client, cache):
    """cartonctl lists the same repository as the client does."""
    with HubServer({'models/me/my-model': Repo(WANTED, page=7)}) as hub:
        p = ctl('ls', '--json', cache.flag, 'hf://me/my-model', env={'HF_ENDPOINT': hub.endpoint, 'HF_TOKEN': ''})
        found = {f['path'].removeprefix('model/'): f['sha256'] for f in json.loads(p.stdout) if '/' in f['path']}
        out = client('read', hub)
        assert found == {p: f['sha256'] for p, f in out.items() if f and 'sha256' in f}
