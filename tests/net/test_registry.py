# SPDX-License-Identifier: Apache-2.0
"""oci://: artifacts of a registry, mounted as they are at one digest; docker-registry has them, skopeo pushed them."""
import base64
import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

import chunkindex
from harness import CARTONCTL, ctl, environment, eventually
from origin import MIB, PRIVATE, LinkedCarton, as_expected, fault_bytes, mirror
from registry import (BASIC, FILEPATH, INDEX, MODEL, PASSWORD, REPOSITORY, USER, Artifact, Front, Index, descriptor,
                      digest_of, layout, registry_at, tokens_at)
from zipwriter import Carton


SMALL = Artifact({'a': b'x'})


def files(n=2):
    return {'config.json': b'{"a": 1}\n', 'README.md': b'# me\n', 'sub/a b/ü.py': b'print()\n'} | {
        f'model-{i + 1:05}-of-{n:05}.safetensors': fault_bytes(9 * MIB + i, seed=60 + i) for i in range(n)}


def same(m, wanted):
    found = {os.path.relpath(os.path.join(d, f), m / 'model') for d, _, fs in os.walk(m / 'model') for f in fs}
    assert found == set(wanted)
    for path, data in wanted.items():
        assert m.read(f'model/{path}') == data, path


@pytest.fixture
def env(work):
    """env(**auths): the files of docker, which has these credentials, and no others."""
    def make(config=None, **auths):
        (work / 'docker').mkdir(exist_ok=True)
        (work / 'docker/config.json').write_text(
            config if isinstance(config, str) else json.dumps(config or {'auths': auths}))
        return {'DOCKER_CONFIG': str(work / 'docker')}
    return make


def put(registry, work, artifact, reference='latest', name=None):
    """Pushes it to a repository of this test alone, and returns oci://…"""
    name = name or f'tests/{hashlib.sha256(str(work).encode()).hexdigest()[:8]}'
    registry.push(layout(tempfile.mkdtemp(dir=work), artifact), reference, name)
    return registry.oci(reference, name)


@pytest.fixture(scope='module')
def small(running_registry, session_dir):
    """The URL of an artifact that tests leave as it is: SMALL."""
    work = Path(tempfile.mkdtemp(prefix='small', dir=session_dir))
    return put(running_registry, work, SMALL)


def asked_once(registry, wanted):
    """Each blob came whole, and no byte of it twice."""
    def got():
        return {digest: sum(n) for digest, n in registry.blobs().items()}
    want = {digest_of(d): len(d) for d in wanted}
    # the log has an answer after the reader has its last byte
    eventually('the log has all', lambda: sum(got().values()) >= sum(want.values()), why=got)
    assert got() == want


def test_an_artifact(mount, cache, work, registry):
    """Two requests mount it, `ls -lR` makes none, and each blob is asked for once."""
    wanted = files()
    a = Artifact(wanted)
    url = put(registry, work, a)
    with mount(url, *cache.options) as m:
        assert [x[1].split('/')[-2] for x in registry.requests()] == ['manifests', 'blobs']
        for d, _, fs in os.walk(m / 'model'):
            for f in fs:
                path = os.path.join(d, f)
                assert os.stat(path).st_size == len(wanted[os.path.relpath(path, m / 'model')])
        assert len(registry.requests()) == 2
        same(m, wanted)
        asked_once(registry, [*wanted.values(), a.blobs[0]])
        assert 'license = "apache-2.0"' in m.read('carton.toml').decode()
    registry.clear()
    # the digest is asked for again, and nothing else
    with mount(url, *cache.options) as m:
        same(m, wanted)
    assert len(registry.requests()) == 1
    registry.clear()
    with mount(f'{url.rpartition(":")[0]}@{a.digest}', *cache.options) as m:
        same(m, wanted)
    with mount(url, *cache.options, '-o', 'offline') as m:
        same(m, wanted)
    assert not registry.requests()


# Version 1 of the rule: a later release gives the same hash for the same digest.
TOML = b"""\
spec_version = 1
model_name = "my-model"
license = "apache-2.0"

[runner]
runner_name = "noop"
required_framework_version = "*"
runner_compat_version = 1
"""


def test_one_hash_everywhere(cache, work, registry, tmp_path):
    """MANIFEST follows from the digest and the name: it is the same at another registry, and by any tag."""
    wanted = files()
    lines = [f'{path}={hashlib.sha256(data).hexdigest()}\n'
             for path, data in sorted(({'carton.toml': TOML} | {f'model/{p}': d for p, d in wanted.items()}).items())]
    want = hashlib.sha256(''.join(lines).encode()).hexdigest()
    url = put(registry, work, Artifact(wanted), 'v1.0', REPOSITORY)
    p = ctl('hash', cache.flag, url)
    assert p.stdout.split()[0] == want, p.stderr
    with Front(registry) as front:
        p = ctl('hash', f'--cache-dir={tmp_path}/other', front.oci(url))
        assert p.stdout.split()[0] == want, p.stderr


def test_the_next_digest(mount, cache, work, registry):
    """A tag is what it is when it is mounted; a mount stays at its digest."""
    first, second = {'a': b'1'}, {'a': b'2', 'b': b'3'}
    url = put(registry, work, Artifact(first))
    with mount(url, *cache.options) as m:
        put(registry, work, Artifact(second))
        with mount(url, *cache.options) as other:
            same(other, second)
        same(m, first)
    with mount(f'{url.rpartition(":")[0]}:latest@{Artifact(first).digest}', *cache.options) as m:
        same(m, first)


def test_a_small_artifact_takes_little_memory(mount, cache, registry, small):
    """An answer counts as what it is, not as the longest that it could be."""
    with mount(small, *cache.options, '-o', 'memory=1M') as m:
        same(m, {'a': b'x'})


def test_capitals(mount, cache, registry, small):
    """Which names there are, the registry says: hf.co has them with capitals."""
    name = small.split('/', 3)[3].partition(':')[0]

    def before(method, path, body):
        assert '/v2/Org/Model-3.2-GGUF/' in path or path == '/v2/'
        c = registry.connect()
        c.request(method, path.replace('Org/Model-3.2-GGUF', name).replace('Q4_K_M', 'latest'), headers={
            'Accept': front.seen[-1][1].get('Accept', '*/*')})
        a = c.getresponse()
        answer = a.status, dict(a.getheaders()), a.read()
        c.close()
        return answer
    with Front(registry, before=before) as front:
        with mount(f'oci://{front.host}/Org/Model-3.2-GGUF:Q4_K_M', *cache.options) as m:
            same(m, {'a': b'x'})


# ---- kinds of artifacts ----

AI, OLLAMA, TITLE = 'application/vnd.docker.ai', 'application/vnd.ollama.image', 'org.opencontainers.image.title'


def of_docker(version, layers):
    text = {'config': {'format': 'gguf'}, 'rootfs': {'type': 'rootfs', 'diff_ids': [digest_of(x[2]) for x in layers]}}
    return Artifact(layers=layers, config=(f'{AI}.model.config.v{version}+json', json.dumps(text).encode()))


def layer(kind, data, path=None, key=FILEPATH, **more):
    return kind, {key: path} if path else {}, data, more


KINDS = {
    'docker 0.1': (of_docker('0.1', [layer(f'{AI}.gguf.v3', b'G' * 5000), layer(f'{AI}.license', b'L'),
                                     layer(f'{AI}.chat.template.jinja', b'J')]),
                   {'model.gguf': b'G' * 5000, 'LICENSE': b'L', 'template.jinja': b'J'}),
    'docker 0.1 in parts': (of_docker('0.1', [layer(f'{AI}.gguf.v3', b'G'), layer(f'{AI}.gguf.v3', b'H')]),
                            {'model-00001-of-00002.gguf': b'G', 'model-00002-of-00002.gguf': b'H'}),
    'docker 0.2': (of_docker('0.2', [layer(f'{AI}.model.file', b'{}', 'sub/config.json'),
                                     layer(f'{AI}.safetensors', b'S', 'model.safetensors')]),
                   {'sub/config.json': b'{}', 'model.safetensors': b'S'}),
    'ollama': (Artifact(layers=[layer(f'{OLLAMA}.model', b'G'), layer(f'{OLLAMA}.template', b'T'),
                                layer(f'{OLLAMA}.license', b'L'), layer(f'{OLLAMA}.license', b'M'),
                                layer(f'{OLLAMA}.params', b'{}'), layer(f'{OLLAMA}.json', b'[]', name='config.json')],
                        config=('application/vnd.docker.container.image.v1+json', b'{"model_format": "gguf"}')),
               {'model.gguf': b'G', 'template': b'T', 'LICENSE-00001-of-00002': b'L', 'LICENSE-00002-of-00002': b'M',
                'params.json': b'{}', 'config.json': b'[]'}),
    'oras': (Artifact(layers=[layer('text/plain', b'x', 'a/b.txt', TITLE),
                              layer('application/vnd.oci.image.layer.v1.tar', b'y', 'c', TITLE)],
                      config=('application/vnd.oci.empty.v1+json', b'{}')),
             {'a/b.txt': b'x', 'c': b'y'}),
    'the same bytes twice': (Artifact({'a': b'x', 'b': b'x', 'empty': b''}), {'a': b'x', 'b': b'x', 'empty': b''}),
}


@pytest.mark.parametrize('kind', KINDS)
def test_kinds(mount, cache, work, registry, kind):
    artifact, wanted = KINDS[kind]
    with mount(put(registry, work, artifact), *cache.options) as m:
        same(m, wanted)


A, B = Artifact({'a': b'1'}), Artifact({'b': b'2'})
MODELS = {'artifactType': f'{MODEL}.manifest.v1+json'}
ATTEST = {'annotations': {'vnd.docker.reference.type': 'attestation-manifest'}}


def platform(machine):
    return {'platform': {'os': 'linux', 'architecture': machine}}


HERE = platform({'x86_64': 'amd64', 'aarch64': 'arm64'}.get(os.uname().machine, os.uname().machine))


@pytest.mark.parametrize('more, wanted', [([{}], 'a'), ([{}, MODELS], 'b'), ([{}, ATTEST], 'a'), ([{}, {}], None),
                                          ([MODELS, MODELS], None), ([HERE, platform('other')], 'a'), ([HERE, HERE], None)])
def test_an_index(mount, cache, work, registry, more, wanted):
    """Its only manifest, the only one of a model, or that of an image for this machine; the pin is the index."""
    index = Index(A, B, more=more)
    index.manifest['manifests'] = index.manifest['manifests'][:len(more)]
    url = put(registry, work, A, 'a')
    put(registry, work, B, 'b')
    with Front(registry, lambda path, status, headers, body:
               (200, {'Content-Type': INDEX}, index.text()) if path.endswith('/latest') else None) as front:
        source = front.oci(url).replace(':a', ':latest')
        if not wanted:
            p = ctl('ls', cache.flag, source)
            assert p.returncode == 1 and 'name one of them by its digest' in p.stderr, p.stderr
            return
        with mount(source, *cache.options) as m:
            assert os.listdir(m / 'model') == [wanted]
        # manifest by its digest, and config
        assert [x[0].split('/')[-2] for x in front.seen] == ['manifests', 'manifests', 'blobs']


def carton_artifact(path, c):
    """The files of a carton as layers, with carton.toml and MANIFEST."""
    data = {p: d for p, d in c.files().items() if isinstance(d, bytes)}
    return Artifact(data)


def test_a_carton(mount, cache, work, registry, tmp_path):
    """carton.toml and MANIFEST are those of the artifact: the model hash is that of the carton."""
    c = Carton().add('model/x.safetensors', fault_bytes(5 * MIB, seed=7)).add('misc/a', b'1')
    path = c.write(tmp_path / 'm.carton')
    data = {p: c.resolve(p).data for p in c.hashes()} | {'MANIFEST': c.manifest_bytes()}
    url = put(registry, work, Artifact(data))
    with mount(url, *cache.options) as m:
        assert len(registry.requests()) == 4
        as_expected(m, c)
    assert ctl('hash', cache.flag, url).stdout.split()[0] == ctl('hash', path).stdout.split()[0]


def test_an_index_of_chunks(mount, cache, work, registry):
    """A carton that has one opens at once, and no blob comes whole."""
    data = fault_bytes(64 * MIB, seed=8)
    c = Carton(method='stored').add('model/x', data).add(chunkindex.PATH, chunkindex.index(data))
    files = {p: c.resolve(p).data for p in c.hashes()} | {'MANIFEST': c.manifest_bytes()}
    with mount(put(registry, work, Artifact(files)), *cache.options, '-o', 'ahead=off') as m:
        assert chunkindex.pread(m / 'model/x', 4096, 40 * MIB) == data[40 * MIB:40 * MIB + 4096]
        assert sum(registry.blobs()[digest_of(data)]) < len(data)
        as_expected(m, c)


def test_import(mount, cache, work, registry, tmp_path):
    """A carton of some KB, twice the same bytes, which leads to the registry; of a carton, its own texts."""
    wanted = files(1)
    a = Artifact(wanted)
    url = put(registry, work, a)
    for name in 'ab':
        p = ctl('import', cache.flag, '--json', url, tmp_path / name)
        assert p.returncode == 0 and json.loads(p.stdout)['commit'] == a.digest, p.stderr
    data = (tmp_path / 'a').read_bytes()
    assert data == (tmp_path / 'b').read_bytes() and len(data) < 10000
    assert json.loads(p.stdout)['model_hash'] == ctl('hash', cache.flag, url).stdout.split()[0]
    with mount(tmp_path / 'a', *cache.options, *PRIVATE) as m:
        same(m, wanted)
    c = Carton().add('model/x', b'1')
    url = put(registry, work, Artifact({p: c.resolve(p).data for p in c.hashes()} | {'MANIFEST': c.manifest_bytes()}))
    p = ctl('import', cache.flag, '--json', url, tmp_path / 'c')
    assert json.loads(p.stdout)['model_hash'] == hashlib.sha256(c.manifest_bytes()).hexdigest()
    p = ctl('import', f'--cache-dir={tmp_path}/other', '--runner=torchscript', url, tmp_path / 'd')
    assert p.returncode and 'names its runner' in p.stderr, p.stderr


@pytest.mark.parametrize('change, message', [
    (lambda d: d.update({'model/x': b'2'}), 'has another sha256 than in its MANIFEST'),
    (lambda d: d.update({'carton.toml': b'spec_version = 1\n'}), 'has another sha256 than in its MANIFEST'),
    (lambda d: d.update({'model/y': b'2'}), 'is not listed in its MANIFEST'),
    (lambda d: d.pop('misc/a'), 'MANIFEST lists 3 files, the artifact has 2'),
    (lambda d: d.update(MANIFEST=b'nonsense'), 'MANIFEST')])
def test_no_whole_carton(cache, work, registry, change, message):
    c = Carton().add('model/x', b'1').add('misc/a', b'1')
    data = {p: c.resolve(p).data for p in c.hashes()} | {'MANIFEST': c.manifest_bytes()}
    change(data)
    p = ctl('ls', cache.flag, put(registry, work, Artifact(data)))
    assert p.returncode == 1 and message in p.stderr, p.stderr


# ---- artifacts that are refused ----

def raw(data=b'x', path='a', **more):
    return descriptor(f'{MODEL}.weight.v1.raw', data, {FILEPATH: path} if path else None) | more


def longer_than_any():
    return b'{"layers": [' + b' ' * 100 * MIB


def changed(**kw):
    return SMALL.manifest | kw


@pytest.mark.parametrize('manifest, message', [
    (changed(layers=[raw(), raw(b'y')]), 'is there twice'),
    (changed(layers=[raw(path='../a')]), 'component'),
    (changed(layers=[raw(path='/etc/passwd')]), 'absolute'),
    (changed(layers=[raw(path=None)]), 'layer 1 of the artifact (application/vnd.cncf.model.weight.v1.raw) has no path'),
    (changed(layers=[raw(mediaType='application/x+zstd', size=2**60)]), 'larger than any file'),
    (changed(layers=[raw(mediaType=f'{MODEL}.weight.v1.tar')] * 1001), 'layer 1001 of the artifact'),
    (changed(layers=[raw(digest='sha512:' + '0' * 128)]), 'a digest that is not sha256'),
    (changed(layers=[raw(digest='sha256:' + 'A' * 64)]), 'a digest that is not sha256'),
    (changed(layers=[raw(digest=5)]), 'no digest or no size'),
    (changed(layers=[raw(size=-1)]), 'no digest or no size'),
    (changed(layers=[raw(size=2**60)]), 'larger than any file'),
    (changed(layers=[raw(), raw(path='b', size=2)]), 'has the digest of model/'),
    (changed(layers=[raw(path='carton.toml'), raw(b'y', path='carton.toml')]), 'two layers of the artifact are its carton'),
    (changed(layers=[raw(path='MANIFEST'), raw(b'y', path=None, name='MANIFEST')]), 'two layers of the artifact are its MAN'),
    (changed(layers=[]), 'has no files'),
    (changed(layers={}), 'is no manifest of an artifact'),
    (changed(layers=[raw(), raw(b'y', path='b')]), 'it has 1 layers, the manifest has 2'),
    pytest.param(changed(layers=[raw(b'z')]), 'contradicts the manifest: it has the layer sha256:', id='layer of the config'),
    (changed(config=descriptor(f'{MODEL}.config.v1+json', b'no')), 'sends other bytes than'),
    ({'schemaVersion': 1}, 'is no manifest of an artifact'),
    ([], 'is no manifest of an artifact'), (b'<html>', 'is no JSON'), (b'', 'is no JSON'), (b'[' * 100, 'is no JSON'),
    (longer_than_any, 'larger')])
def test_bad_artifacts(cache, registry, small, manifest, message):
    """One line, whatever the registry says; and nothing is kept."""
    def change(path, status, headers, body):
        if '/manifests/' in path:
            made = manifest() if callable(manifest) else manifest
            return 200, {}, made if isinstance(made, bytes) else json.dumps(made).encode()
        return 200, {}, SMALL.blobs[0]
    with Front(registry, change) as front:
        p = ctl('ls', cache.flag, front.oci(small))
        assert p.returncode == 1 and message in p.stderr and len(p.stderr.splitlines()) <= 2, p.stderr
    assert not cache.objects()


@pytest.mark.parametrize('answer, message', [
    ((404, {}, b''), 'has no "latest" of it'), ((401, {}, b''), 'docker login'), ((403, {}, b''), 'docker login'),
    ((200, {'Docker-Content-Digest': 'sha256:' + '0' * 64}, SMALL.text()), 'but sends other bytes')])
def test_not_there(cache, registry, small, answer, message):
    with Front(registry, lambda *a: answer) as front:
        p = ctl('ls', cache.flag, front.oci(small))
        assert p.returncode == 1 and message in p.stderr, p.stderr


def test_another_digest(cache, registry, small):
    """What was asked for by its digest has it."""
    with Front(registry, lambda *a: (200, {}, Artifact({'b': b'x'}).text())) as front:
        p = ctl('ls', cache.flag, f'{front.oci(small).rpartition(":")[0]}@{SMALL.digest}')
        assert p.returncode == 1 and 'sends other bytes than sha256:' in p.stderr, p.stderr


@pytest.mark.parametrize('url, message', [
    ('oci://', 'not oci://'), ('oci://h', 'not oci://'), ('oci://h/', 'not oci://'), ('oci://h/..', 'a name has'),
    ('oci://h/a/../b', 'a name has'), ('oci://h/a/./b', 'a name has'), ('oci://h/a//b', 'a name has'),
    ('oci://h/%2e%2e/b', 'a name has'), ('oci://h/a\\b', 'a name has'), ('oci://h/a/', 'a name has'), ('oci://h/a:', 'a tag has'), ('oci://h/a:-b', 'a tag has'),
    ('oci://h/a:' + 'b' * 129, 'a tag has'), ('oci://h/a@sha512:' + '0' * 128, 'only digests sha256'),
    ('oci://h/a@sha256:0', 'only digests sha256'), ('oci://joe:pw@h/a', 'docker login'), ('oci://h:x/a', 'not oci://'),
    ('oci:h/a', 'not oci://'), ('oci://h/a?b', 'a name has'), ('oci://h/a:b/c', 'a tag has')])
def test_no_references(cache, url, message):
    p = ctl('ls', cache.flag, url)
    assert p.returncode == 1 and message in p.stderr and 'pw' not in p.stderr, p.stderr


def test_offline_without_it(cache):
    p = ctl('ls', cache.flag, '--offline', 'oci://registry.example/a')
    assert p.returncode == 1 and 'is not in the cache' in p.stderr, p.stderr


def test_wrong_bytes(mount, cache, work, registry):
    url = put(registry, work, Artifact(files(1)))

    def flip(path, status, headers, body):
        return (status, headers, body[:-1] + bytes([body[-1] ^ 1])) if len(body) > 1000 and 'blobs' in path else None
    with Front(registry, flip) as front:
        with mount(front.oci(url), *cache.options) as m:
            assert m.error('model/model-00001-of-00001.safetensors') == 'EIO'
            assert m.read('model/README.md') == files()['README.md']


def test_no_ranges(mount, cache, work, registry):
    """A registry need not have them: files come whole."""
    wanted = files(1)
    with Front(registry, ranges=False) as front:
        with mount(front.oci(put(registry, work, Artifact(wanted))), *cache.options) as m:
            same(m, wanted)


# ---- credentials ----

@pytest.fixture
def basic(work):
    with registry_at(work / 'basic', 'basic') as r:
        yield r


def helper(work, text, name='test'):
    """A docker-credential-NAME in a directory of its own; the environment with that in PATH."""
    path = work / 'bin' / f'docker-credential-{name}'
    path.parent.mkdir(exist_ok=True)
    path.write_text('#!/bin/sh\n' + text)
    path.chmod(0o755)
    return {'PATH': f'{path.parent}:{os.environ["PATH"]}'}


GOOD = f'read host; echo "$1 $host" >> "$0.log"; echo \'{{"Username": "{USER}", "Secret": "{PASSWORD}"}}\'\n'


@pytest.mark.parametrize('file', ['docker', 'home', 'podman', 'file', 'namespace', 'https', 'credHelpers', 'credsStore'])
def test_a_login(mount, cache, work, basic, file):
    """Wherever docker and podman keep it: sent when the registry has asked for it, once for all requests."""
    wanted = files(1)
    url = put(basic, work, Artifact(wanted))
    home = {'docker': 'docker', 'home': '.docker', 'podman': 'containers'}.get(file, 'docker')
    variable = {'docker': 'DOCKER_CONFIG', 'home': 'HOME', 'podman': 'XDG_RUNTIME_DIR', 'file': 'REGISTRY_AUTH_FILE'}.get(
        file, 'DOCKER_CONFIG')
    name = 'auth.json' if file == 'podman' else 'config.json'
    host = {'namespace': f'{basic.host}/tests', 'https': f'https://{basic.host}/v1/'}.get(file, basic.host)
    config = {'credHelpers': {'credHelpers': {basic.host: 'test'}}, 'credsStore': {'credsStore': 'test'}}.get(
        file, {'auths': {f'{basic.host}/other': {'auth': 'eDp5'}, 'h': {'auth': 'eDp5'}, host: {'auth': BASIC}}})
    (work / home).mkdir()
    (work / home / name).write_text(json.dumps(config))
    at = {'home': work, 'podman': work, 'file': work / home / name}.get(file, work / home)
    env = {variable: str(at)} | helper(work, GOOD)
    with Front(basic) as front:
        front_host = config.get('auths', config.get('credHelpers', {}))
        for key in [k for k in front_host if basic.host in k]:
            front_host[key.replace(basic.host, front.host)] = front_host[key]
        (work / home / name).write_text(json.dumps(config))
        with mount(front.oci(url), *cache.options, env=env) as m:
            same(m, wanted)
        sent = [h.get('Authorization') for _, h in front.seen]
        assert sent == [None] + [f'Basic {BASIC}'] * (len(sent) - 1)
        if file in ('credHelpers', 'credsStore'):
            assert (work / 'bin/docker-credential-test.log').read_text() == f'get {front.host}\n'


def test_no_login(cache, work, basic, env):
    url = put(basic, work, Artifact({'a': b'x'}))
    p = ctl('ls', cache.flag, url, env=env())
    assert p.returncode == 1 and f'podman login {basic.host}' in p.stderr, p.stderr
    p = ctl('ls', cache.flag, url, env=env(**{basic.host: {'auth': base64.b64encode(b'joe:no').decode()}}))
    assert p.returncode == 1 and 'docker login' in p.stderr, p.stderr


@pytest.mark.parametrize('text, message', [
    ('{', 'is no JSON'), ('{"auths": {"%s": {"auth": "a b"}}}', 'is no JSON'),
    ('{"auths": {"%s": {"auth": "a\\r\\nX: y"}}}', 'is no JSON'), ('{"credHelpers": {"%s": "../x; y"}}', 'is no JSON'),
    ('{"credsStore": "' + 'x' * 100 + '", "a": "%s"}', 'is no JSON'), (' ' * (1 << 20) + '%s', 'too large'),
    ('{"auths": {"%s": {"auth": "' + 'a' * 20000 + '"}}}', 'is no JSON')])
def test_bad_files(cache, env, text, message):
    p = ctl('ls', cache.flag, 'oci://127.0.0.1:1/a', env=env(text.replace('%s', '127.0.0.1:1')))
    assert p.returncode == 1 and message in p.stderr.splitlines()[-1], p.stderr


@pytest.mark.parametrize('text, message', [
    ('echo no', 'writes no JSON'), ('yes', 'writes no JSON'), ('exit 1', 'has failed'), ('kill -9 $$', 'has failed'),
    ('echo {}', 'writes no JSON'), ('echo \'{"Username": "a:b", "Secret": "c"}\'', 'writes no JSON'),
    ('echo \'{"Username": "<token>", "Secret": "c"}\'', 'an identity token'),
    ('echo credentials not found in native keychain; exit 1', 'docker login')])
def test_bad_helpers(cache, work, basic, env, text, message):
    url = put(basic, work, Artifact({'a': b'x'}))
    p = ctl('ls', cache.flag, url, env=env({'credsStore': 'test'}) | helper(work, text + '\n'))
    assert p.returncode == 1 and message in p.stderr, p.stderr


@pytest.mark.parametrize('text', ['', 'exec >&-; '])
def test_a_helper_that_hangs(cache, work, env, text):
    """It ends with whoever waits for it, also if its output is complete."""
    says = f'echo $$ > "$0.tmp"; mv "$0.tmp" "$0.pid"; {text} exec sleep 1000\n'
    login = env({'credsStore': 'test'}) | helper(work, says)
    pid = work / 'bin/docker-credential-test.pid'
    p = subprocess.Popen([CARTONCTL, 'ls', cache.flag, 'oci://127.0.0.1:1/a'], env=environment(**login),
                         stderr=subprocess.DEVNULL)
    eventually('the helper runs', pid.exists)
    name = Path('/proc', pid.read_text().strip(), 'comm')
    eventually('the helper sleeps', lambda: name.read_text() == 'sleep\n')
    p.kill()
    p.wait()
    eventually('the helper has ended', lambda: not name.exists() or name.read_text() != 'sleep\n')


@pytest.mark.parametrize('config, message', [
    ({'credHelpers': {'HOST': 'none'}}, 'docker-credential-none, which has the credentials, has failed'),
    ({'credsStore': 'none'}, 'docker-credential-none, which has the credentials, has failed'),
    ({'auths': {'HOST': {'auth': 'eDo=', 'identitytoken': 'x'}}}, 'HOST an identity token, which cannot be used here'),
    ({'auths': {'HOST': {'identitytoken': 'x', 'auth': 'eDo='}}}, 'HOST an identity token, which cannot be used here')])
def test_no_credentials(cache, work, registry, basic, env, config, message):
    """It is said what is wrong with them; what anybody may read needs none."""
    for r, code in (registry, 0), (basic, 1):
        url = put(r, work, Artifact({'a': b'x'}))
        p = ctl('ls', cache.flag, url, env=env(json.dumps(config).replace('HOST', r.host)))
        assert p.returncode == code and message.replace('HOST', r.host) in p.stderr, p.stderr
        assert p.stderr.count('cartonctl: ') == 1 + code, p.stderr


@pytest.mark.parametrize('kind', ['basic', 'token'])
def test_a_password_that_ends(mount, cache, work, env, kind):
    """The helper is run again when one is refused, and the reader notices nothing; not for one that it gives again."""
    wanted = files(1)
    text = 'read host; echo "$1 $host" >> "$0.log"; read p < "$0.password"\n' \
           f'echo "{{\\"Username\\": \\"{USER}\\", \\"Secret\\": \\"$p\\"}}"\n'
    login = env({'credsStore': 'test'}) | helper(work, text)
    password, log = work / 'bin/docker-credential-test.password', work / 'bin/docker-credential-test.log'
    good = [PASSWORD]

    def basic_of():
        return f'Basic {base64.b64encode(f"{USER}:{good[0]}".encode()).decode()}'

    def before(method, path, body):
        sent = front.seen[-1][1].get('Authorization')
        if path.startswith('/token'):
            return (200, {}, json.dumps({'token': good[0]}).encode()) if sent == basic_of() else (401, {}, b'{}')
        wants = basic_of() if kind == 'basic' else f'Bearer {good[0]}'
        challenge = 'Basic realm="x"' if kind == 'basic' else f'Bearer realm="http://{front.host}/token",service="reg"'
        return None if sent == wants else (401, {'WWW-Authenticate': challenge}, b'{}')
    with registry_at(work / 'registry') as r:
        url = put(r, work, Artifact(wanted))
        with Front(r, before=before) as front:
            password.write_text(PASSWORD + '\n')
            with mount(front.oci(url), *cache.options, '-o', 'ahead=off', env=login) as m:
                assert m.read('model/README.md') == wanted['README.md']
                assert len(log.read_text().splitlines()) == 1
                good[0] = 'another'
                password.write_text('another\n')
                same(m, wanted)
            assert len(log.read_text().splitlines()) == 2
            password.write_text('wrong\n')
            p = ctl('fetch', f'--cache-dir={work}/other', front.oci(url), env=login)
            assert p.returncode == 1 and 'docker login' in p.stderr, p.stderr
            assert len(log.read_text().splitlines()) == 4


def test_a_token_server_that_redirects(cache, registry, small, env):
    """It gets the login; a server that it names gets no request."""
    with Front(registry) as away, Front(registry, before=lambda *a: (
            307, {'Location': f'http://{away.host}/token'}, b'')) as tokens, Front(registry, before=lambda *a: (
            401, {'WWW-Authenticate': f'Bearer realm="http://{tokens.host}/token",service="reg"'}, b'')) as front:
        p = ctl('ls', cache.flag, front.oci(small), env=env(**{
            x.host: {'auth': BASIC} for x in (front, tokens, away)}))
        assert p.returncode == 1 and 'gives no token' in p.stderr, p.stderr
        assert [h.get('Authorization') for _, h in tokens.seen] == [f'Basic {BASIC}'] and not away.seen


@pytest.mark.parametrize('private', [False, True])
def test_tokens(mount, cache, work, env, private):
    """Anybody's, or the user's: one for the repository; a token that ends is renewed, and the reader notices nothing."""
    wanted = files(1)
    with tokens_at(work / 'tokens', private=private) as t, registry_at(work / 'registry', t) as r:
        url = put(r, work, Artifact(wanted))
        name = url.split('/', 3)[3].rpartition(':')[0]
        del t.seen[:]
        login = env(**({r.host: {'auth': BASIC}} if private else {}))
        with mount(url, *cache.options, '-o', 'ahead=off', env=login) as m:
            assert t.seen == [({'service': ['reg'], 'scope': [f'repository:{name}:pull']},
                               f'Basic {BASIC}' if private else None)]
            assert m.read('model/README.md') == wanted['README.md']
            t.new_key()
            r.restart()
            same(m, wanted)
            assert len(t.seen) == 2
            asked_once(r, [d for p, d in wanted.items() if p != 'README.md'])


def test_not_where_it_redirects(mount, cache, work, basic, registry, env):
    """The store that has the blobs gets nothing, also if it asks."""
    wanted = files(1)
    a = Artifact(wanted)
    url, away = put(basic, work, a), put(registry, work, a)
    store = f'{registry.url}/{away.split("/", 3)[3].rpartition(":")[0]}'.replace(registry.url, registry.url + '/v2')
    with Front(registry) as asks:
        store = store.replace(registry.host, asks.host)
        with Front(basic, lambda path, status, headers, body: (307, {'Location': store + path[path.index('/blobs/'):]}, b'')
                   if '/blobs/' in path and status < 300 else None) as front:
            options = env(**{front.host: {'auth': BASIC}, asks.host: {'auth': BASIC}})
            with mount(front.oci(url), *cache.options, env=options) as m:
                same(m, wanted)
            asks.change = lambda *a: (401, {'WWW-Authenticate': 'Basic realm="x"'}, b'')
            p = ctl('fetch', f'--cache-dir={work}/other', front.oci(url), env=options)
            assert p.returncode, p.stderr
        assert asks.seen and not [h for _, h in asks.seen if 'Authorization' in h]


def test_not_to_a_proxy(cache, work, env):
    """http is for this machine, and a proxy may be elsewhere: it gets nothing to read."""
    with tokens_at(work / 'tokens', private=True) as t:
        for auth in ('basic', t):
            with registry_at(tempfile.mkdtemp(dir=work), auth) as r:
                url = put(r, work, Artifact({'a': b'x'}))
                del t.seen[:]
                with Front(r) as proxy:
                    login = env(**{r.host: {'auth': BASIC}})
                    p = ctl('ls', cache.flag, url, env=login | {'http_proxy': f'http://{proxy.host}'})
                assert p.returncode == 1 and proxy.seen, p.stderr
                assert not [h for _, h in proxy.seen if 'Authorization' in h] and not t.seen
                p = ctl('ls', cache.flag, url, env=login | {
                    'http_proxy': f'http://{proxy.host}', 'no_proxy': '127.0.0.1'})
                assert p.returncode == 0, p.stderr


# ---- a registry as a mirror ----

def blobs(registry, name):
    return mirror(f'{registry.url}/v2/{name}/blobs/sha256:{{sha256}}')


def test_a_mirror(mount, cache, work, basic, env):
    """By the hash, with the login of the registry that the user names; LINKS may name it, and gets none."""
    data = fault_bytes(5 * MIB, seed=3)
    url = put(basic, work, Artifact({'x': data, 'y': b'secret'}))
    name = url.split('/', 3)[3].rpartition(':')[0]
    c = LinkedCarton().link('model/x', data, f'{basic.url}/gone')
    c.link('model/y', b'secret', f'{basic.url}/v2/{name}/blobs/{digest_of(b"secret")}?')
    c.write(work / 'm.carton')
    login = env(**{basic.host: {'auth': BASIC}})
    with mount(work / 'm.carton', *cache.options, *blobs(basic, name), *PRIVATE, env=login) as m:
        as_expected(m, c)
    with Front(basic) as front:
        login = env(**{basic.host: {'auth': BASIC}, front.host: {'auth': BASIC}})
        c = LinkedCarton().link('model/y', b'secret', f'http://{front.host}/v2/{name}/blobs/{digest_of(b"secret")}')
        c.write(work / 'n.carton')
        with mount(work / 'n.carton', '-o', f'cache_dir={work}/other', *PRIVATE, env=login,
                   *mirror(f'http://{front.host}/v2/other/blobs/sha256:{{sha256}}')) as m:
            assert m.error('model/y')
        links = [h for p, h in front.seen if f'/{name}/' in p]
        assert links and not [h for h in links if 'Authorization' in h]


def test_mirrors_of_one_registry(mount, cache, work, basic, env):
    """Its helper is run once, whatever they are named, and its login is for all of them."""
    data = fault_bytes(5 * MIB, seed=3)
    url = put(basic, work, Artifact({'x': data}))
    name = url.split('/', 3)[3].rpartition(':')[0]
    LinkedCarton().link('model/x', data, f'{basic.url}/gone').write(work / 'm.carton')
    with mount(work / 'm.carton', *cache.options, *blobs(basic, 'other'), *blobs(basic, name), *PRIVATE,
               env=env({'credsStore': 'test'}) | helper(work, GOOD)) as m:
        assert m.read('model/x') == data
    assert (work / 'bin/docker-credential-test.log').read_text() == f'get {basic.host}\n'


def test_a_token_of_the_user(mount, cache, work, env):
    """It is for the URLs that the user has named: LINKS gets nothing of the same repository."""
    data = fault_bytes(5 * MIB, seed=3)
    a = Artifact({'x': data})
    with tokens_at(work / 'tokens', private=True) as t, registry_at(work / 'registry', t) as r:
        name = put(r, work, a).split('/', 3)[3].rpartition(':')[0]
        c = LinkedCarton().link('model/x', data, f'{r.url}/gone')
        c.link('model/y', a.text(), f'{r.url}/v2/{name}/manifests/latest')
        c.write(work / 'm.carton')
        with mount(work / 'm.carton', *cache.options, *blobs(r, name), *PRIVATE,
                   env=env(**{r.host: {'auth': BASIC}})) as m:
            assert m.read('model/x') == data
            assert m.error('model/y')
            assert m.read('model/x') == data
        paths = [(p, status) for _, p, status, _ in r.requests() if p.endswith('/manifests/latest')]
        assert paths and {status for _, status in paths} == {401}


def test_a_mirror_with_a_password(mount, cache, work, basic, env):
    """A password in its URL is neither shown nor sent; what is saved for the registry is."""
    data = fault_bytes(5 * MIB, seed=3)
    name = put(basic, work, Artifact({'x': data})).split('/', 3)[3].rpartition(':')[0]
    LinkedCarton().link('model/x', data, f'{basic.url}/gone').write(work / 'm.carton')
    template = mirror(f'http://ann:s3cret@{basic.host}/v2/{name}/blobs/sha256:{{sha256}}')
    p = ctl('verify', cache.flag, f'--{template[1]}', work / 'm.carton', env=env('{'))
    said = p.stdout + p.stderr
    assert p.returncode and f'credentials for {basic.host} cannot' in said and 's3cret' not in said, said
    with mount(work / 'm.carton', *cache.options, *template, *PRIVATE, env=env(**{basic.host: {'auth': BASIC}})) as m:
        assert m.read('model/x') == data
