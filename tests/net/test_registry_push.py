# SPDX-License-Identifier: Apache-2.0
"""cartonctl push: a carton in docker-registry, which is mounted back, and which skopeo reads."""
import base64
import contextlib
import hashlib
import json
import re
import signal
import socket
import subprocess
import threading

import pytest

import origin
from harness import CARTONCTL, ctl, environment, eventually, problems, run
from origin import MIB, LinkedCarton, as_expected, fault_bytes
from registry import BASIC, FILEPATH, MANIFEST, MODEL, Cut, Front, digest_of, registry_at, tokens_at
from zipwriter import Carton


def login(work, *hosts, auth=BASIC):
    (work / 'docker').mkdir(exist_ok=True)
    (work / 'docker/config.json').write_text(json.dumps({'auths': {h: {'auth': auth} for h in hosts}}))
    return {'DOCKER_CONFIG': str(work / 'docker')}


def sample():
    data = fault_bytes(9 * MIB, seed=1)
    c = Carton(method='stored').add('model/a.safetensors', data).add('model/config.json', b'{"a": 1}\n')
    c.add('model/sub/ü b.py', b'print()\n').add('model/again', data).add('model/empty').add('misc/README.md', b'# me\n')
    return c.add('tensor_data/index.toml', b'tensor = []\n')


def to(registry, work, tag='v1'):
    """Where it is pushed: a repository of this test alone."""
    return registry.oci(tag, f'tests/{hashlib.sha256(str(work).encode()).hexdigest()[:8]}')


def push(source, url, *options, **kw):
    p = ctl('push', '--json', *options, source, url, **kw)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)


def uploads(registry):
    """The digests of all blobs that were taken since clear()."""
    return [re.search(r'digest=(sha256:\w+)', path).group(1) for method, path, status, _ in registry.requests()
            if method == 'PUT' and '/blobs/' in path and status == 201]


def has_tag(registry, url):
    p = run('skopeo', 'inspect', '--raw', '--tls-verify=false', url.replace('oci://', 'docker://'))
    return p.returncode == 0


@pytest.mark.parametrize('auth', [None, 'basic', 'token'])
def test_there_and_back(mount, cache, work, auth):
    """The same model hash, the same files; nothing is sent that is there; each content once."""
    c = sample()
    path = c.write(work / 'm.carton')
    with tokens_at(work / 'tokens', private=True) as t, registry_at(
            work / 'registry', t if auth == 'token' else auth) as r:
        env, url = login(work, *([r.host] if auth else [])), to(r, work)
        first = push(path, url, env=env)
        contents = {digest_of(x) for x in c.files().values()}
        assert len(uploads(r)) == len(set(uploads(r))) == len(contents) + 1 and set(uploads(r)) > contents
        assert (first['files'], first['sent'], first['blobs']) == (len(c.files()), len(contents) + 1, len(contents) + 1)
        if auth == 'token':
            scopes = {q['scope'][0].rpartition(':')[2] for q, _ in t.seen}
            assert 'pull,push' in scopes and {secret for _, secret in t.seen} == {f'Basic {BASIC}'}
        r.clear()
        again = push(path, url, env=env)
        assert not uploads(r) and again == first | {'sent': 0, 'sent_bytes': 0}
        assert first['pin'] == f'{url.rpartition(":")[0]}@{first["digest"]}'
        p = ctl('diff', cache.flag, path, first['pin'], env=env)
        assert p.returncode == 0 and 'the same' in p.stdout, p.stdout + p.stderr
        assert ctl('hash', cache.flag, url, env=env).stdout == ctl('hash', path).stdout
        with mount(url, *cache.options, env=env) as m:
            as_expected(m, c)


def test_what_is_printed(work, registry):
    p = ctl('push', sample().write(work / 'm.carton'), to(registry, work))
    assert p.returncode == 0 and not problems(p)
    said, pin = p.stdout.splitlines()
    assert re.fullmatch(r'9 files, 9\.0 MiB: sent 9 of 9 blobs, 9\.0 MiB, in [^,]* s', said), said
    assert re.fullmatch(re.escape(to(registry, work)[:-3]) + '@sha256:[0-9a-f]{64}', pin)


def test_skopeo_reads_it(work, registry):
    """Raw layers with the types and paths of ModelPack; each blob is the file."""
    c = sample()
    url = to(registry, work)
    pushed = push(c.write(work / 'm.carton'), url)
    p = run('skopeo', '--insecure-policy', 'copy', '-q', '--preserve-digests', '--src-tls-verify=false',
            url.replace('oci://', 'docker://'), f'oci:{work}/layout:x')
    assert p.returncode == 0, p.stderr
    blob = lambda digest: (work / 'layout/blobs/sha256' / digest.partition(':')[2]).read_bytes()
    manifest = json.loads(blob(pushed['digest']))
    assert manifest['artifactType'] == f'{MODEL}.manifest.v1+json' and manifest['mediaType'] == MANIFEST
    layers = {x['annotations'][FILEPATH]: x for x in manifest['layers']}
    assert {p: blob(x['digest']) for p, x in layers.items()} == c.files()
    assert {p: x['size'] for p, x in layers.items()} == {p: len(d) for p, d in c.files().items()}
    assert {p: x['mediaType'][len(MODEL) + 1:] for p, x in layers.items()} == {
        'model/a.safetensors': 'weight.v1.raw', 'model/config.json': 'weight.config.v1.raw',
        'model/sub/ü b.py': 'code.v1.raw', 'model/again': 'weight.v1.raw', 'model/empty': 'weight.v1.raw',
        'misc/README.md': 'doc.v1.raw', 'tensor_data/index.toml': 'weight.config.v1.raw',
        'carton.toml': 'weight.config.v1.raw', 'MANIFEST': 'weight.config.v1.raw'}
    config = json.loads(blob(manifest['config']['digest']))
    assert config['modelfs'] == {'type': 'layers', 'diffIds': [x['digest'] for x in manifest['layers']]}


def test_links(mount, cache, work, registry, fault):
    """What LINKS has is fetched, verified, and pushed as a whole; what it leads to is not needed any more."""
    data = fault_bytes(5 * MIB, seed=2)
    c = LinkedCarton().link('model/x', data, fault.url('push', size=5 * MIB, seed=2)).add('model/y', b'1')
    c.write(work / 'm.carton')
    path, url = work / 'm.carton', to(registry, work)
    first = push(path, url, cache.flag, '--private-links')
    # with a size that only the registry knows, nothing is fetched, and the digest is the same
    asked = len(fault.requests('push'))
    assert asked
    assert push(path, url, f'--cache-dir={work}/other', '--private-links') == first | {'sent': 0, 'sent_bytes': 0}
    assert len(fault.requests('push')) == asked
    with mount(url, '-o', f'cache_dir={work}/third') as m:
        assert m.read('model/x') == data and m.read('model/y') == b'1'
    assert ctl('hash', url).stdout == ctl('hash', path).stdout


# ---- what is damaged, and what breaks off ----

DATA = fault_bytes(9 * MIB, seed=1)


def one(work):
    """A carton with one large file."""
    return Carton(method='stored').add('model/x', DATA).add('model/y', b'1').write(work / 'm.carton')


def flip(path, data=DATA):
    """Changes a byte in the middle of what the carton stores."""
    text = path.read_bytes()
    at = text.index(data[:4096]) + len(data) // 2
    with open(path, 'r+b') as f:
        f.seek(at)
        f.write(bytes([text[at] ^ 1]))


@pytest.mark.parametrize('sealed', [False, True])
def test_damaged(cache, work, registry, sealed):
    """No damaged byte leaves, and there is no tag. Behind a seal, no block but those that are right."""
    path, url, got = one(work), to(registry, work), []
    if sealed:
        assert ctl('cat', cache.flag, path, 'model/x', text=False).stdout == DATA
    flip(path)
    with Front(registry, before=lambda method, path, body: got.append(body)) as front:
        p = ctl('push', cache.flag, path, front.oci(url))
    assert p.returncode == 1 and 'model/x' in p.stderr and 'was not pushed' in p.stderr, p.stderr
    assert not has_tag(registry, url)
    large = [b for b in got if len(b) > 4096]
    assert not [b for b in large if not DATA.startswith(b) or len(b) > len(DATA) // 2] and (sealed or not large)


def test_changed_on_the_way(cache, work, registry):
    """An attacker's byte that comes after the file was verified is not sent, whatever the registry would do."""
    path, url, got, asked = one(work), to(registry, work), [], []

    def before(method, where, body):
        got.append(body)
        asked.append(where)
        # the registry was asked for this one last: now it is verified
        if method == 'POST' and digest_of(DATA) in asked[-2]:
            flip(path)
    with Front(registry, before=before) as front:
        p = ctl('push', '--connections=1', cache.flag, path, front.oci(url))
    assert p.returncode == 1 and not has_tag(registry, url), p.stderr
    large = [b for b in got if len(b) > 4096]
    assert large and not [b for b in large if not DATA.startswith(b) or len(b) > len(DATA) // 2]


def test_breaks_off(work, registry):
    """A try that fails is made again; if all do, there is no tag, and the next push sends what is not there."""
    c, url = sample(), to(registry, work)
    path, large, dropped = c.write(work / 'm.carton'), digest_of(fault_bytes(9 * MIB, seed=1)), []

    def drop(method, where, body):
        if method == 'PUT' and large in where and len(dropped) < most:
            dropped.append(len(body))
            return 'drop'
    with Front(registry, before=drop) as front:
        most = 100
        p = ctl('push', path, front.oci(url))
        assert p.returncode == 75 and len(dropped) > 1, p.stderr
        assert not has_tag(registry, url)
        registry.clear()
        most = len(dropped) + 1
        first = push(path, front.oci(url))
    assert len(dropped) == most and uploads(registry)[-1:] == [large]
    assert has_tag(registry, url)
    assert first['digest'] == push(path, url)['digest']


def test_interrupted(work, registry):
    """Ctrl-C ends it, also while the registry says nothing; there is no tag."""
    path, url = one(work), to(registry, work)
    began, over = threading.Event(), threading.Event()

    def wait(method, where, body):
        if method == 'PUT':
            began.set()
            over.wait()
    with Front(registry, before=wait) as front:
        p = subprocess.Popen([CARTONCTL, 'push', path, front.oci(url)], stderr=subprocess.PIPE, env=environment())
        eventually('the upload begins', began.is_set)
        p.send_signal(signal.SIGINT)
        eventually('it ends', lambda: p.poll() is not None)
        p.communicate()
        over.set()
    assert p.returncode == -signal.SIGINT and not has_tag(registry, url)


SIZE = 80 * MIB


def large(work):
    """The path of a carton, and the digest of its file of SIZE."""
    data = fault_bytes(SIZE, seed=3)
    return Carton(method='stored').add('model/x', data).write(work / 'm.carton'), digest_of(data)


@pytest.mark.parametrize('keeps', [False, True])
def test_resumed(work, registry, keeps):
    """Where connections break, the upload goes on: behind the last part, or where a registry keeps all, behind that."""
    (path, digest), url, cuts = large(work), to(registry, work), 5 if keeps else 2
    with Front(registry, keeps=keeps) as front, Cut(front, (12 if keeps else 40) * MIB, cuts) as cut:
        p = ctl('push', '--connections=1', path, cut.oci(url))
        assert p.returncode == 0, p.stderr
        # a part at most is sent twice for each
        assert cut.cuts == 0 and cut.up < SIZE + (1 if keeps else cuts * 32) * MIB, cut.up / MIB
    parts = [x for x in registry.requests() if x[0] == 'PATCH']
    # the registry keeps 12 MiB of each part that is cut, and gets the last 20 of the 80 in one part; or it sees
    # only parts that are whole, of 32, 32 and 16 MiB
    assert len(parts) == (cuts + 1 if keeps else 3) and digest in uploads(registry) and has_tag(registry, url)
    assert push(path, url)['sent'] == 0


# a silent link is noticed after ten seconds without a byte
@pytest.mark.parametrize('silent', [False, pytest.param(True, marks=pytest.mark.slow)])
def test_resumed_at_docker_registry(work, registry, silent):
    """It takes no more of an upload in which a part broke off: another one begins."""
    (path, _), url = large(work), to(registry, work)
    with Cut(registry, 40 * MIB, silent=silent) as cut:
        p = ctl('push', '--connections=1', path, cut.oci(url))
    assert p.returncode == 0 and cut.cuts == 0, p.stderr
    assert [m for m, _, status, _ in registry.requests() if status == 404 and m == 'GET'] and has_tag(registry, url)


def test_resumed_nowhere(work, registry):
    """An upload that a registry has lost, or of which it says what is wrong, is begun again, and not for ever."""
    (path, _), url, asked = large(work), to(registry, work), []

    def before(method, where, body):
        if method == 'PATCH' and len(asked) < most:
            asked.append(where)
            return 'drop'
        if method == 'GET' and '/uploads/' in where:
            return answer
    for answer in ((404, {}, b''), (204, {}, b''), (204, {'Range': '0-0', 'Location': '/v2/x'}, b''),
                   (204, {'Range': f'0-{1 << 40}', 'Location': '/v2/x'}, b'')):
        del asked[:]
        most = 1
        with Front(registry, before=before) as front:
            assert push(path, front.oci(url))['sent']
        url = registry.oci('v1', f'tests/{hashlib.sha256(repr(answer).encode()).hexdigest()[:8]}')
    most, answer = 100, (204, {'Range': f'0-{30 * MIB}', 'Location': '/v2/a/blobs/uploads/x'}, b'')
    del asked[:]
    with Front(registry, before=before) as front:
        p = ctl('push', path, front.oci(url))
    assert p.returncode == 75 and not has_tag(registry, url) and len(asked) < 20, p.stderr


def test_resumed_with_other_bytes(work, registry):
    """What a registry says it has need not be what was sent: the digest shows it, and all is sent anew."""
    (path, _), url, lies = large(work), to(registry, work), []

    def before(method, where, body):
        if method == 'PATCH' and not lies:
            lies.append(where)
            return 'drop'
        if method == 'GET' and '/uploads/' in where and len(lies) == 1:
            lies.append(where)
            return 204, {'Range': f'0-{SIZE // 2}', 'Location': where}, b''
    with Front(registry, before=before) as front:
        assert push(path, front.oci(url))['sent']
    assert len(lies) == 2 and has_tag(registry, url)


# ---- what registries take ----

def refuses(status, when):
    return lambda method, body: status if when(method, len(body)) else None


PARTS, WHOLE = ('PATCH', 32 * MIB), ('PUT', 33 * MIB)
PATCHED = refuses(416, lambda method, n: method == 'PATCH' and n > 4 * MIB)


@pytest.mark.parametrize('size, answer, wanted', [
    # Google's registry takes no parts; others, or what is in front of them, say so in other words
    (33 * MIB, refuses(405, lambda method, n: method == 'PATCH'), [PARTS, WHOLE, WHOLE]),
    *((33 * MIB, refuses(status, lambda method, n: method == 'PATCH'), [PARTS, WHOLE]) for status in (400, 403, 404, 501)),
    # those that fail at them seem to be overloaded
    *((33 * MIB, refuses(status, lambda method, n: method == 'PATCH'), [PARTS, PARTS, WHOLE, WHOLE]) for status in (500, 503)),
    # ghcr.io
    (33 * MIB, PATCHED, [PARTS] + 2 * (8 * [('PATCH', 4 * MIB)] + [('PATCH', MIB)])),
    # nginx as it is when it is installed, in front of a registry
    (5 * MIB, refuses(413, lambda method, n: n > MIB), [('PUT', 5 * MIB), ('PATCH', 4 * MIB)] + 10 * [('PATCH', MIB)]),
    # proxies that say so in other words
    *((5 * MIB, refuses(status, lambda method, n: n > 2 * MIB),
       [('PUT', 5 * MIB), ('PATCH', 5 * MIB), ('PATCH', 4 * MIB)] + 10 * [('PATCH', MIB)]) for status in (400, 403)),
    *((33 * MIB, refuses(status, lambda method, n: n > 5 * MIB),
       [PARTS, WHOLE] + 2 * (8 * [('PATCH', 4 * MIB)] + [('PATCH', MIB)])) for status in (400, 403)),
    # JFrog's was known to take parts only, which a small file finds out
    (5 * MIB, refuses(405, lambda method, n: method == 'PUT' and n > 0), 2 * [('PATCH', 5 * MIB)])],
    ids=['405', '400', '403', '404', '501', '500', '503', 'ghcr', 'nginx', 'small 400', 'small 403', 'large 400',
         'large 403', 'parts'])
def test_dialects(work, registry, size, answer, wanted):
    """What is refused in one way is sent in another, which the next file goes at once; what was taken is not sent again."""
    c, url, sent = Carton(method='stored'), to(registry, work), []
    c.add('model/x', fault_bytes(size, seed=4))
    if wanted != [PARTS, WHOLE]:
        c.add('model/y', fault_bytes(size, seed=5))
    path = c.write(work / 'm.carton')

    def before(method, where, body):
        if method in ('PATCH', 'PUT') and '/blobs/' in where:
            sent.extend([(method, len(body))] * (len(body) > 4096))
            status = answer(method, body)
            return (status, {}, errors('UNSUPPORTED', 'x')) if status else None
    with Front(registry, before=before) as front:
        got = push(path, front.oci(url), '--connections=1')
    assert got['sent'] == got['blobs'] == len(uploads(registry)) and sent == wanted
    assert push(path, url)['sent'] == 0


def test_least_part(work, registry):
    """OCI-Chunk-Min-Length: no part but the last is smaller."""
    c, sent, least = Carton(method='stored'), [], 34 * MIB
    path, url = c.add('model/x', fault_bytes(35 * MIB, seed=4)).write(work / 'm.carton'), to(registry, work)

    def change(where, status, headers, body):
        return (status, headers | {'OCI-Chunk-Min-Length': str(least)}, body) if where.endswith('/uploads/') else None
    with Front(registry, change, before=lambda method, where, body: sent.extend([len(body)] * (method == 'PATCH'))) as front:
        push(path, front.oci(url))
    assert sent == [least, MIB] and has_tag(registry, url)


def test_lost(work, registry):
    """An upload that is lost behind its first part is begun again, and then sent as a whole."""
    (path, digest), url, sent = large(work), to(registry, work), []

    def before(method, where, body):
        if method in ('PATCH', 'PUT') and len(body) > 4096:
            sent.append((method, len(body)))
            return (404, {}, errors('BLOB_UPLOAD_UNKNOWN', 'x')) if sent[-2:] == 2 * [PARTS] else None
    with Front(registry, before=before) as front:
        push(path, front.oci(url), '--connections=1')
    assert sent == [PARTS, PARTS, PARTS, ('PUT', SIZE)] or sent == 4 * [PARTS] + [('PUT', SIZE)], sent
    assert digest in uploads(registry) and has_tag(registry, url)


# ---- blobs of another repository ----

@pytest.mark.parametrize('auth', [None, 'token'])
def test_mounted(work, auth):
    """What another repository of the registry has is not sent: one that is named, or the source."""
    path = one(work)
    with tokens_at(work / 'tokens', private=True) as t, registry_at(work / 'registry', t if auth else None) as r:
        env = login(work, *([r.host] if auth else []))
        first, second, third = (r.oci('v1', f'team/{x}') for x in 'abc')
        all_of_it = push(path, first, env=env)
        r.clear()
        got = push(path, second, '--mount-from=team/a', env=env)
        assert not uploads(r) and (got['sent'], got['digest']) == (0, all_of_it['digest'])
        assert len([x for x in r.requests() if x[0] == 'POST' and x[2] == 201]) == got['blobs']
        # the carton is in the registry: nothing of it comes here
        r.clear()
        got = push(first, third, f'--cache-dir={work}/cache', env=env)
        assert got['digest'] == all_of_it['digest'] and not [u for u in uploads(r) if u == digest_of(DATA)]
        assert digest_of(DATA) not in r.blobs()
        assert ctl('hash', third, env=env).stdout == ctl('hash', path).stdout


@pytest.mark.parametrize('answer', [None, (401, {}, b''), (404, {}, b''), (400, {}, b''), (201, {}, b'')])
def test_not_mounted(work, registry, answer):
    """A repository that has none, that may not be read, or does not have what it says: then it is sent."""
    path, url = one(work), to(registry, work)
    with Front(registry, before=lambda method, where, body: answer if 'mount=' in where else None) as front:
        assert push(path, front.oci(url), '--mount-from=team/none')['sent'] == 5
    assert has_tag(registry, url)


def test_links_are_no_word_of_the_user(work, registry):
    """Credentials do not open repositories that only LINKS names."""
    url = to(registry, work)
    other = registry.oci('v1', 'team/secret')
    push(one(work), other)
    c = LinkedCarton().link('model/x', DATA, f'{registry.url}/v2/team/secret/blobs/{digest_of(DATA)}').add('model/y', b'1')
    c.write(work / 'l.carton')
    registry.clear()
    ctl('push', '--private-links', f'--cache-dir={work}/cache', work / 'l.carton', url)
    assert not [path for _, path, _, _ in registry.requests() if 'mount=' in path]


@pytest.mark.parametrize('name', ['a//b', 'a%2fb', 'a?b', '../x', 'a b', 'oci://h/a'])
def test_mount_from_is_a_name(work, name):
    p = ctl('push', f'--mount-from={name}', one(work), 'oci://127.0.0.1:1/a:b')
    assert p.returncode == 1 and '--mount-from is no name of a repository' in p.stderr, p.stderr


# ---- TLS ----

class Tunnel:
    """A proxy that leads each CONNECT to a registry, whatever name is asked for. `seen`: what clients have sent."""

    def __init__(self, registry):
        self.seen, self.server = b'', socket.create_server(('127.0.0.1', 0))
        self.url = f'http://127.0.0.1:{self.server.getsockname()[1]}'
        self.registry = registry
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.lead, args=(self.server.accept()[0],), daemon=True).start()

    def lead(self, client):
        head = b''
        while b'\r\n\r\n' not in head and (data := client.recv(4096)):
            head += data
        self.seen += head
        server = socket.create_connection(('127.0.0.1', self.registry.port))
        client.sendall(b'HTTP/1.1 200 OK\r\n\r\n')
        threading.Thread(target=self.copy, args=(server, client), daemon=True).start()
        self.copy(client, server)

    def copy(self, a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 16):
                if b.getpeername()[1] == self.registry.port:
                    self.seen += data
                b.sendall(data)
            b.shutdown(socket.SHUT_RDWR)


def test_tls(mount, work):
    """A registry of another name is reached by https, with a certificate that the user trusts, and with that alone."""
    path = one(work)
    with registry_at(work / 'registry', 'basic', tls=True) as r:
        tunnel, url = Tunnel(r), 'oci://localhost.example/a/b:v1'
        env = login(work, 'localhost.example') | {'https_proxy': tunnel.url}
        p = ctl('push', path, url, env=env)
        assert p.returncode and 'certificate' in p.stderr and not r.requests(), p.stderr
        push(path, url, f'--cacert={r.cert}', env=env)
        assert len(uploads(r)) == 5 and BASIC.encode() not in tunnel.seen and DATA[:64] not in tunnel.seen
        with mount(url, '-o', f'cacert={r.cert},cache_dir={work}/cache', env=env) as m:
            assert m.read('model/x') == DATA


# ---- what is refused ----

@pytest.mark.parametrize('url, message', [
    ('oci://h/a', 'has no tag: oci://REGISTRY/NAME:TAG'), ('oci://h:80/a', 'has no tag'),
    ('oci://h/a:b@sha256:' + '0' * 64, 'names a digest, which follows from the carton'),
    ('oci://h/a:-', 'a tag has at most 128'), ('oci://h/a//b:b', 'a name has'), ('oci://joe:pw@h/a:b', 'docker login'),
    ('https://h/a:b', 'is no artifact of a registry'), ('m.carton', 'is no artifact of a registry')])
def test_no_target(work, url, message):
    p = ctl('push', Carton().add('model/x', b'1').write(work / 'm.carton'), url)
    assert p.returncode == 1 and message in p.stderr and 'pw' not in p.stderr, p.stderr


def test_who_may_not(work):
    path = Carton().add('model/x', b'1').write(work / 'm.carton')
    with registry_at(work / 'registry', 'basic') as r:
        for auth, more in (None, 0), (base64.b64encode(b'joe:no').decode(), 1):
            env = login(work, *([r.host] if auth else []), auth=auth)
            p = ctl('push', path, to(r, work), env=env)
            assert p.returncode == 1 and f'docker login {r.host}' in p.stderr, p.stderr
            assert len(problems(p).splitlines()) == 2 + more
            assert (f'docker/config.json: the login for {r.host} is refused' in p.stderr) == bool(more)
        assert not uploads(r)


@pytest.mark.parametrize('token', [403, 'only for pushes'])
def test_a_login_that_may_only_write(work, registry, token):
    """What it may not read is sent; the registry need not say whether it is there."""
    path, url, asked = one(work), to(registry, work), []

    def before(method, where, body):
        sent = front.seen[-1][1].get('Authorization', '')
        if where.startswith('/token'):
            asked.append(where)
            if token == 403 and len(asked) == 1 or 'push' not in where:
                return 403, {}, b'{}'
            return 200, {}, b'{"token": "writes"}'
        if where.startswith('/v2/tests') and sent != 'Bearer writes':
            scope = 'pull,push' if '/uploads/' in where or method == 'PUT' else 'pull'
            name = where[4:].partition('/blobs')[0].partition('/manifests')[0]
            return 401, {'WWW-Authenticate': f'Bearer realm="http://{front.host}/token",service="r",'
                         f'scope="repository:{name}:{scope}"'}, b'{}'
        if method == 'HEAD':
            return 403, {}, b''
    with Front(registry, before=before) as front:
        got = push(path, front.oci(url), '--connections=1', env=login(work, front.host))
    assert got['sent'] == got['blobs'] == len(uploads(registry)) and has_tag(registry, url)


def test_not_reached(work):
    path = Carton().add('model/x', b'1').write(work / 'm.carton')
    p = ctl('push', path, f'oci://127.0.0.1:{origin.free_port()}/a:b')
    assert p.returncode == 75 and 'onnect' in p.stderr and len(problems(p).splitlines()) == 2, p.stderr
    p = ctl('push', '--offline', path, 'oci://127.0.0.1:1/a:b')
    assert p.returncode == 1 and 'nothing can be pushed offline' in p.stderr, p.stderr
    p = ctl('push', '--verify=off', path, 'oci://127.0.0.1:1/a:b')
    assert p.returncode == 1, p.stderr


def errors(code, message):
    return json.dumps({'errors': [{'code': code, 'message': message, 'detail': {}}]}).encode()


@pytest.mark.parametrize('what, answer, status, message', [
    ('POST', (404, {}, errors('NAME_UNKNOWN', 'no such repository')), 1, 'status 404: NAME_UNKNOWN: no such repository'),
    ('POST', (404, {}, b'<html>'), 1, 'it has no such repository'), ('POST', (405, {}, b''), 1, 'cannot be written to'),
    ('POST', (403, {}, errors('DENIED', 'x')), 1, 'docker login'), ('POST', (202, {}, b''), 1, 'does not say where'),
    ('POST', (307, {'Location': '/v2/other/'}, b''), 1, 'status 307'), ('POST', (503, {}, b''), 75, 'is overloaded'),
    ('PUT', (413, {}, b''), 1, 'model/x: '), ('PUT', (413, {}, b'{"errors": ['), 1, 'it is too large for this registry'),
    ('PUT', (403, {}, errors('DENIED', 'a rule')), 1, 'refuses it with status 403: DENIED: a rule'),
    ('PUT', (400, {}, errors('DIGEST_INVALID', 'not \x1b[1m\n it')), 1, 'status 400: DIGEST_INVALID: not ?[1m? it'),
    ('manifests', (400, {}, errors('MANIFEST_INVALID', 'unknown media type')), 1, 'the manifest: '),
    ('manifests', (201, {'Docker-Content-Digest': 'sha256:' + '0' * 64}, b''), 1, 'has taken another manifest')])
def test_refused(work, registry, what, answer, status, message):
    """One line says what, and why."""
    path, url = Carton().add('model/x', fault_bytes(1000, seed=9)).write(work / 'm.carton'), to(registry, work)
    large = digest_of(fault_bytes(1000, seed=9))

    def before(method, where, body):
        if what == method and (method != 'PUT' or large in where) or what in where and method == 'PUT':
            return answer
    with Front(registry, before=before) as front:
        p = ctl('push', '--connections=1', path, front.oci(url))
    assert p.returncode == status and message in p.stderr, p.stderr
    assert len(problems(p).splitlines()) == 2 and not has_tag(registry, url)


def test_elsewhere(work, registry):
    """Neither bytes nor credentials go to a server that the registry names for them."""
    path, url = Carton().add('model/x', b'1').write(work / 'm.carton'), to(registry, work)
    with Front(registry) as other:
        def before(method, where, body):
            return (202, {'Location': f'http://{other.host}{where}x'}, b'') if method == 'POST' else None
        with Front(registry, before=before) as front:
            p = ctl('push', path, front.oci(url), env=login(work, front.host, other.host))
        assert p.returncode == 1 and 'names another server' in p.stderr, p.stderr
        assert not other.seen
