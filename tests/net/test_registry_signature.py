# SPDX-License-Identifier: Apache-2.0
"""
Signatures that are attached to an artifact of docker-registry, which has no list of what refers to another: there they
are in the index of a tag. The list is served by a server before it.
"""
import contextlib
import hashlib
import http.client
import json
import signal
import subprocess
import tempfile
import threading
import urllib.parse
import urllib.request

import pytest

import harness
from harness import ctl
import oms
from origin import PRIVATE
from registry import INDEX, MANIFEST, Artifact, Front, descriptor, digest_of, layout
from zipwriter import Carton

TOOL = harness.BUILD / 'tests/tools/signatures'
BUNDLE = 'application/vnd.dev.sigstore.bundle.v0.3+json'
PREDICATE, OMS = 'dev.sigstore.bundle.predicateType', 'https://model_signing/signature/v1.0'
EMPTY = 'application/vnd.oci.empty.v1+json'
TEXTS = [json.dumps({'mediaType': BUNDLE, 'signer': i}).encode() for i in range(12)]


def bundle(text, subject, kind=BUNDLE, predicate=OMS):
    """A manifest that refers to `subject` and has the text as its layer."""
    a = Artifact(layers=[(kind, {}, text, {})], config=(EMPTY, b'{}'), artifactType=kind,
                 subject=descriptor(MANIFEST, subject.text()))
    if predicate:
        a.manifest['annotations'] = {PREDICATE: predicate}
    return a


def listed(a, **more):
    """Its descriptor in a list of what refers to another."""
    return descriptor(MANIFEST, a.text(), a.manifest.get('annotations'), artifactType=a.manifest['artifactType']) | more


def index_of(*descriptors):
    return json.dumps({'schemaVersion': 2, 'mediaType': INDEX, 'manifests': list(descriptors)}).encode()


def put(registry, name, reference, text, kind):
    r = urllib.request.Request(f'{registry.url}/v2/{name}/manifests/{reference}', text, {'Content-Type': kind}, method='PUT')
    with urllib.request.urlopen(r) as answer:
        assert answer.status == 201


class Signed:
    """An artifact in a repository of its own, and manifests that refer to it."""

    def __init__(self, registry, work, *texts, **kw):
        self.registry, self.name = registry, f'signed/{work.name[-12:].lower().strip("-_").replace("_", "0")}'
        self.artifact = Artifact({'x': work.name.encode()})
        self.push(work, self.artifact, 'v1')
        self.url, self.tag = registry.oci('v1', self.name), self.artifact.digest.replace(':', '-')
        self.bundles = [bundle(t, self.artifact, **kw) for t in texts]
        for b in self.bundles:
            self.push(work, b, 'b')

    def push(self, work, a, tag):
        self.registry.push(layout(tempfile.mkdtemp(dir=work), a), tag, self.name)

    def attach(self, *texts):
        """Many of them, without skopeo."""
        c = http.client.HTTPConnection('127.0.0.1', self.registry.port, timeout=60)

        def send(method, path, body=b'', status=201, **headers):
            c.request(method, path, body, headers)
            a = c.getresponse()
            body = a.read()
            assert a.status == status, body
            return a.getheader('Location')
        for blob in {b'{}', *texts}:
            at = urllib.parse.urlsplit(send('POST', f'/v2/{self.name}/blobs/uploads/', status=202))
            send('PUT', f'{at.path}?{at.query}&digest={digest_of(blob)}', blob)
        for b in [bundle(t, self.artifact) for t in texts]:
            send('PUT', f'/v2/{self.name}/manifests/{b.digest}', b.text(), **{'Content-Type': MANIFEST})
            self.bundles.append(b)
        c.close()
        self.registry.clear()

    def by_tag(self, *descriptors):
        put(self.registry, self.name, self.tag, index_of(*descriptors), INDEX)
        self.registry.clear()
        return self

    def api(self, answer):
        """A server that has the list."""
        return Front(self.registry, before=lambda method, path, body: answer(path) if '/referrers/' in path else None)


def find(cache, url, wanted='', offline=False, for_ms=None):
    """(status, the texts that were looked at, messages)"""
    p = harness.run(TOOL, url, cache.path, *([wanted] if wanted else []),
                    env=({'OFFLINE': '1'} if offline else {}) | ({'FOR_MS': str(for_ms)} if for_ms else {}))
    return p.returncode, p.stdout.encode().splitlines(), p.stderr


def asked(registry):
    return [path.split('?')[0].split('/')[-2] for _, path, _, _ in registry.requests()]


def test_a_tag(cache, work, registry):
    """Where the registry has no list, the tag has it. What was taken is kept: later, nothing is asked for."""
    s = Signed(registry, work, TEXTS[0])
    s.by_tag(listed(s.bundles[0]))
    assert find(cache, s.url, '"signer"') == (0, TEXTS[:1], '')
    assert asked(registry)[-4:] == ['referrers', 'manifests', 'manifests', 'blobs']
    registry.clear()
    assert find(cache, s.url, '"signer"') == (0, TEXTS[:1], '') and asked(registry) == ['manifests']
    assert find(cache, s.url, '"signer"', offline=True) == (0, TEXTS[:1], '')


def test_not_looked_for(mount, cache, work, registry):
    """A mount does not ask."""
    s = Signed(registry, work, TEXTS[0]).by_tag()
    with mount(s.url, *cache.options) as m:
        assert m.read('model/x') == work.name.encode()
    assert not [path for _, path, _, _ in registry.requests() if 'referrers' in path or s.tag in path]


def test_a_list(cache, work, registry):
    """A registry that has a list is asked for it; it goes on there, and only there, whatever name it has for itself."""
    s = Signed(registry, work, *TEXTS[:3])
    first, second, third = (listed(b) for b in s.bundles)

    def answer(path):
        assert path.partition('?')[2].startswith('artifactType=application%2Fvnd.dev.sigstore.bundle.v0.3%2Bjson')
        if 'page=' in path:
            return 200, {'Content-Type': INDEX}, index_of(third)
        return 200, {'Content-Type': INDEX, 'Link': f'<{path}&page=2>; rel="next"'}, index_of(first, second)
    with s.api(answer) as front:
        assert find(cache, front.oci(s.url), '"signer": 2') == (0, TEXTS[:3], '')
    for end, link in ((0, 'https://127.0.0.1:1'), (0, '/base'), (1, '')):
        def elsewhere(path):
            status, headers, body = answer(path)
            if 'Link' in headers:
                headers['Link'] = headers['Link'].replace('<', '<' + link) if link else '<http://127.0.0.1:1/x>; rel="next"'
            return status, headers, body
        with s.api(elsewhere) as front:
            status, texts, said = find(cache, front.oci(s.url), '"signer": 2' if end == 0 else '"signer": 1')
            assert status == end and (texts == TEXTS[:3]) == (end == 0), said
            assert end == 0 or 'goes on as another list' in said, said


def test_the_one_that_is_wanted(cache, work, registry):
    """Another is looked for when what was kept does not do any more; nothing is an answer, too."""
    s = Signed(registry, work, *TEXTS[:2])
    s.by_tag(*map(listed, s.bundles))
    assert find(cache, s.url, '"signer": 0') == (0, TEXTS[:1], '')
    assert find(cache, s.url, '"signer": 1') == (0, [TEXTS[0], *TEXTS[:2]], '')
    assert find(cache, s.url, '"signer": 1', offline=True) == (0, TEXTS[1:2], '')
    assert find(cache, s.url, 'nobody') == (2, [TEXTS[1], *TEXTS[:2]], '')
    assert find(cache, Signed(registry, work).url.replace(':v1', f'@{s.artifact.digest}'))[0] == 2


def test_what_was_refused_is_not_kept(cache, work, registry):
    """Whoever may write to a registry can attach one: it does not take the place of the right one, which is kept."""
    s = Signed(registry, work, *TEXTS[:2])
    s.by_tag(*map(listed, s.bundles))
    assert find(cache, s.url, '"signer": 0') == (0, TEXTS[:1], '')
    assert find(cache, s.url, 'nobody') == (2, [TEXTS[0], *TEXTS[:2]], '')
    assert find(cache, s.url, '"signer": 0', offline=True) == (0, TEXTS[:1], '')


def test_kept_of_each_version(cache, work, registry):
    """What a tag names next has a signature of its own; that of the version before stays."""
    s, last = Signed(registry, work, TEXTS[0]), Artifact({'x': b'the next one'})
    s.by_tag(listed(s.bundles[0]))
    assert find(cache, s.url, '"signer": 0')[0] == 0
    # a source of its own
    pinned = s.url.replace(':v1', f'@{s.artifact.digest}')
    assert find(cache, pinned, '"signer": 0') == (0, TEXTS[:1], '')
    s.push(work, last, 'v1')
    b = bundle(TEXTS[1], last)
    s.push(work, b, 'b')
    put(registry, s.name, last.digest.replace(':', '-'), index_of(listed(b)), INDEX)
    assert find(cache, s.url, '"signer": 1') == (0, TEXTS[1:2], '')
    assert find(cache, s.url, '"signer": 1', offline=True) == (0, TEXTS[1:2], '')
    assert find(cache, pinned, '"signer": 0', offline=True) == (0, TEXTS[:1], '')


def test_damaged_in_the_cache(cache, work, registry):
    s = Signed(registry, work, TEXTS[0])
    s.by_tag(listed(s.bundles[0]))
    assert find(cache, s.url, '"signer"')[0] == 0
    kept = cache.objects()[digest_of(TEXTS[0])[7:]]
    kept.chmod(0o600)
    kept.write_bytes(TEXTS[1])
    status, texts, said = find(cache, s.url, '"signer"')
    assert (status, texts) == (0, TEXTS[:1]) and said.count('\n') == 1, said


OTHER = 'application/vnd.example.sbom+json'


def test_others(cache, work, registry):
    """What is no signature is not fetched: of another type, about something else, the index itself, without sha256."""
    s = Signed(registry, work, TEXTS[0])
    sbom, slsa = (bundle(b'{}', s.artifact, kind=OTHER),
                  bundle(b'{}', s.artifact, predicate='https://slsa.dev/provenance/v1'))
    itself = {'mediaType': INDEX, 'digest': 'sha256:' + '0' * 64, 'size': 1}
    s.push(work, sbom, 'sbom')
    s.push(work, slsa, 'slsa')
    good = listed(s.bundles[0])
    with s.api(lambda path: (200, {}, index_of(
            listed(sbom), listed(slsa), itself, good | {'digest': 'sha512:' + '0' * 128}, good, good))) as front:
        assert find(cache, front.oci(s.url)) == (2, TEXTS[:1], '')
    fetched = [path for _, path, _, _ in registry.requests()]
    assert not [p for p in fetched if sbom.digest in p or slsa.digest in p or '0' * 64 in p]


@pytest.mark.parametrize('what, message', [
    ('manifest', 'sends other bytes than'), ('layer', 'sends other bytes than'), ('large', 'larger than 16384 KiB'),
    ('lies', 'larger than 32768 bytes'), ('no layer', 'has no bundle'), ('cycle', 'has no bundle'), ('no json', 'is no JSON'),
    ('gone', 'has no "')])
def test_hostile(cache, work, registry, what, message):
    """One that is damaged, too large, or leads in a circle: one line, and the next is looked at."""
    s = Signed(registry, work, TEXTS[1])
    bad = bundle(TEXTS[0], s.artifact)
    if what == 'large':
        bad.manifest['layers'][0]['size'] = 100 << 20
    elif what == 'no layer':
        bad.manifest['layers'] = []
    elif what == 'cycle':
        bad.manifest = {'schemaVersion': 2, 'mediaType': INDEX, 'manifests': [listed(s.bundles[0])],
                        'artifactType': BUNDLE}
    text = b'no json' if what == 'no json' else bad.text()
    digest = digest_of(text)

    def before(method, path, body):
        if '/referrers/' in path:
            return 200, {}, index_of(listed(bad) | {'digest': digest}, listed(s.bundles[0]))
        if path.endswith(digest) and what != 'gone':
            return 200, {}, text.replace(b'2', b'3') if what == 'manifest' else text
        if path.endswith(bad.manifest.get('layers', [{}])[0]['digest'] if bad.manifest.get('layers') else '?'):
            return 200, {}, bytes(100 << 20) if what == 'lies' else TEXTS[1] if what == 'layer' else TEXTS[0]
    with Front(registry, before=before) as front:
        status, texts, said = find(cache, front.oci(s.url))
    assert (status, texts) == (2, TEXTS[1:2]) and message in said and said.count('\n') == 1, said


@pytest.mark.parametrize('text, message', [
    (None, 'larger than 16 MiB'), (b'{"manifests": [', 'is no JSON'), (b'[' * 100000, 'is no JSON')])
def test_hostile_list(cache, work, registry, text, message):
    s = Signed(registry, work)
    with s.api(lambda path: (200, {}, text or bytes(100 << 20))) as front:
        status, texts, said = find(cache, front.oci(s.url))
    assert status == 1 and not texts and message in said and said.count('\n') == 1, said


def numbered(i):
    return json.dumps({'mediaType': BUNDLE, 'signer': i}).encode()


@contextlib.contextmanager
def by_either(s, way):
    """The source where what is attached is listed by the API, or by the tag."""
    if way == 'tag':
        s.by_tag(*map(listed, s.bundles))
        yield s.url
        return
    with s.api(lambda path: (200, {'Content-Type': INDEX}, index_of(*map(listed, s.bundles)))) as front:
        yield front.oci(s.url)


@pytest.mark.parametrize('way', ['api', 'tag'])
@pytest.mark.parametrize('n', [9, 50])
def test_among_many(cache, work, registry, n, way):
    """However many others are before it, the right one is found; then it is kept."""
    s, texts = Signed(registry, work), [numbered(i) for i in range(n + 1)]
    s.attach(*texts)
    with by_either(s, way) as url:
        assert find(cache, url, f'"signer": {n}}}') == (0, texts, '')
        assert find(cache, url, f'"signer": {n}}}') == (0, texts[n:], '')
        assert find(cache, url, 'nobody') == (2, [texts[n], *texts], '')


def test_one_bundle_of_many_manifests(cache, work, registry):
    """Each bundle is looked at once, and each manifest, on whatever page."""
    s = Signed(registry, work)
    s.attach(TEXTS[0], TEXTS[1])
    more = [bundle(TEXTS[0], s.artifact, predicate=None) for _ in range(2)]
    more[1].manifest['annotations'] = {'n': '1'}
    s.bundles += more

    def answer(path):
        more = {'Link': f'<{path}&page=2>; rel="next"'} if 'page=' not in path else {}
        return 200, more, index_of(*map(listed, s.bundles))

    def before(method, path, body):
        if '/referrers/' in path:
            return answer(path)
        return next(((200, {}, b.text()) for b in more if path.endswith(b.digest)), None)
    with Front(registry, before=before) as front:
        assert find(cache, front.oci(s.url)) == (2, TEXTS[:2], '')
        fetched = [path for path, _ in front.seen if '/manifests/sha256:' in path or '/blobs/' in path]
    assert [path for path in fetched if '/blobs/' in path and digest_of(TEXTS[0]) in path] and \
        len(fetched) == len(set(fetched)), fetched


def large(i, size):
    """A manifest whose bundle should have so many bytes."""
    a = Artifact(layers=[(BUNDLE, {}, b'%d' % i, {})], config=(EMPTY, b'{}'), artifactType=BUNDLE)
    a.manifest['layers'][0]['size'] = size
    return a


@pytest.mark.parametrize('more, status', [(0, 0), (1, 2)])
def test_bytes(cache, work, registry, more, status):
    """All of them together are as long as 1 GiB; a byte more, and the last one is not looked at, which is said."""
    s, page, least = Signed(registry, work), 16 << 20, 32 << 10
    s.attach(TEXTS[0])
    # an answer counts as 32 KiB at least: the list, each manifest, and what is behind these
    left = (1 << 30) - least - 63 * (page + least) - least - 2 * least
    others = [large(i, page) for i in range(63)] + [large(63, left + more)]
    texts = {a.digest: a.text() for a in others}
    blobs = {a.manifest['layers'][0]['digest'] for a in others}
    index = index_of(*map(listed, others), listed(s.bundles[0]))
    assert len(index) <= least < left

    def before(method, path, body):
        last = path.split('/')[-1]
        if '/referrers/' in path:
            return 200, {}, index
        # more than was said: none of it is read
        return (200, {}, texts[last]) if last in texts else (200, {}, bytes(page + 1)) if last in blobs else None
    with Front(registry, before=before) as front:
        got, looked_at, said = find(cache, front.oci(s.url), '"signer": 0')
        asked_for = [path for path, _ in front.seen if path.split('/')[-1] in blobs]
    lines = said.splitlines()
    assert (got, looked_at, len(asked_for)) == (status, [] if status else TEXTS[:1], 64), said
    # the first of those that are damaged are named, the others are counted
    assert sum('larger than 16777216 bytes' in line for line in lines) == 20
    if status == 0:
        assert len(lines) == 20, said
    else:
        assert len(lines) == 22 and '44 signatures more that cannot be read' in lines[20] and \
            'more signatures than the 0 that were looked at' in lines[21] and '1024 MiB' in lines[21], said


def endless(s, page):
    """Serves a list that never ends: `page(i)` are the descriptors of the page `i`."""
    def before(method, path, body):
        if '/referrers/' in path:
            i = int(path.partition('page=')[2] or 0)
            return 200, {'Link': f'<{path.partition("&")[0]}&page={i + 1}>; rel="next"'}, index_of(*page(i))
        return (404, {}, b'') if '/manifests/sha256:' + 32 * '0' in path else None
    return Front(s.registry, before=before)


def test_pages(cache, work, registry):
    """A list that goes on for ever ends after 200 pages: one on the last of them is found, one behind that is not."""
    s = Signed(registry, work)
    s.attach(*TEXTS[:2])
    for at, status in ((199, 0), (200, 2)):
        with endless(s, lambda i: [listed(s.bundles[1])] if i == at else [listed(s.bundles[0])]) as front:
            got, texts, said = find(cache, front.oci(s.url), '"signer": 1')
            pages = [path for path, _ in front.seen if '/referrers/' in path]
        assert (got, texts) == (status, TEXTS[:2 if status == 0 else 1]) and len(pages) == 200, said
        assert status == 0 or (said.count('\n') == 1 and '200 pages' in said), said


def test_time(cache, work, registry):
    """The search ends when its time is over, though there are more and each is answered at once."""
    s = Signed(registry, work)
    s.attach(TEXTS[0])

    def page(i):
        """The first is short: on a busy machine, one of all takes longer than the search may."""
        none = [listed(s.bundles[0]) | {'digest': f'sha256:{100 * i + n:064}'} for n in range(100)]
        return none if i else [listed(s.bundles[0])]

    with endless(s, page) as front:
        status, texts, said = find(cache, front.oci(s.url), for_ms=1000)
        fetched = [path for path, _ in front.seen if '/manifests/sha256:' + 32 * '0' in path]
    lines, n = said.splitlines(), len(fetched)
    assert (status, texts) == (2, TEXTS[:1]) and 'for 1 s' in lines[-1], said
    assert 0 < n < 16384 and sum('has no "' in line for line in lines) == min(n, 20), said
    assert len(lines) == min(n, 20) + 1 + (n > 20) and (n <= 20 or f'{n - 20} signatures more' in lines[-2]), said


@pytest.mark.parametrize('status', [400, 404, 405])
def test_no_list(cache, work, registry, status):
    s = Signed(registry, work, TEXTS[0])
    s.by_tag(listed(s.bundles[0]))
    with s.api(lambda path: (status, {}, b'')) as front:
        assert find(cache, front.oci(s.url)) == (2, TEXTS[:1], '')


def test_not_reached(cache, work, registry):
    s = Signed(registry, work)
    with s.api(lambda path: (403, {}, b'')) as front:
        status, texts, said = find(cache, front.oci(s.url))
    assert status == 1 and 'docker login' in said and said.count('\n') == 1, said


# ---- what push attaches ----

def push(path, url, *options):
    p = ctl('push', '--json', *options, path, url)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)


def target(registry, work, tag='v1'):
    return registry.oci(tag, f'signed/{hashlib.sha256(str(work).encode()).hexdigest()[:8]}')


def raw(registry, url, reference):
    p = harness.run('skopeo', 'inspect', '--raw', '--tls-verify=false',
                    f'docker://{url[len("oci://"):].rpartition(":")[0]}{reference}')
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)


@pytest.mark.parametrize('inside', [False, True])
def test_attached(cache, work, registry, inside):
    """SOURCE.sig, else misc/model.sig, is found there; what others have attached stays; and all of it is the same again."""
    c, url = Carton().add('model/x', b'x'), target(registry, work)
    if inside:
        c.add('misc/model.sig', TEXTS[0])
    path = c.write(work / 'm.carton')
    if not inside:
        (work / 'm.carton.sig').write_bytes(TEXTS[0])
    got = push(path, url)
    assert got['signature'] and find(cache, url, '"signer"') == (0, TEXTS[:1], '')
    tag = got['digest'].replace(':', '-')
    first = raw(registry, url, f':{tag}')
    manifest = raw(registry, url, f'@{first["manifests"][0]["digest"]}')
    assert manifest['subject']['digest'] == got['digest'] and manifest['artifactType'] == BUNDLE
    assert [x['digest'] for x in manifest['layers']] == [digest_of(TEXTS[0])]
    registry.clear()
    assert push(path, url) == got | {'sent': 0, 'sent_bytes': 0} and raw(registry, url, f':{tag}') == first
    (work / 'm.carton.sig').write_bytes(TEXTS[1])
    assert push(path, url)['digest'] == got['digest']
    both = raw(registry, url, f':{tag}')['manifests']
    assert len(both) == 2 and first['manifests'][0] in both
    assert find(cache, url, '"signer": 1')[0] == 0


def test_attached_to_a_list(work, registry):
    """Where the registry lists what refers to another, there is no tag."""
    url = target(registry, work)
    (work / 'm.carton.sig').write_bytes(TEXTS[0])
    registry.clear()
    with Front(registry, before=lambda method, path, body: (200, {}, index_of()) if '/referrers/' in path else None) as front:
        got = push(Carton().add('model/x', b'x').write(work / 'm.carton'), front.oci(url))
    assert got['signature']
    assert not [path for method, path, _, _ in registry.requests() if method == 'PUT' and '/manifests/sha256-' in path]


@pytest.mark.parametrize('where', ['/referrers/', '/manifests/sha256-'])
def test_attached_in_the_end(cache, work, registry, where):
    """A registry that fails for a moment is asked again, also for what is attached there."""
    url, bad = target(registry, work), [503, 500]
    (work / 'm.carton.sig').write_bytes(TEXTS[0])
    with Front(registry, before=lambda method, path, body: (
            (bad.pop(), {}, b'x') if method == 'GET' and where in path and bad else None)) as front:
        assert push(Carton().add('model/x', b'x').write(work / 'm.carton'), front.oci(url))['signature']
    assert not bad and find(cache, url, '"signer"') == (0, TEXTS[:1], '')


def test_not_attached(work, registry):
    url = target(registry, work)
    path = Carton().add('model/x', b'x').write(work / 'm.carton')
    registry.clear()
    assert not push(path, url)['signature']
    assert not [p for _, p, _, _ in registry.requests() if 'referrers' in p]


@pytest.mark.parametrize('answer, message', [
    ((403, {}, b''), 'attached there: status 403'), ((500, {}, b''), 'is overloaded, or fails'),
    ((200, {'Content-Type': INDEX}, b'x' * (5 << 20)), 'was not pushed')])
def test_what_others_attached_stays(work, registry, answer, message):
    """A list that cannot be read is not replaced."""
    url, sent = target(registry, work), []
    (work / 'm.carton.sig').write_bytes(TEXTS[0])

    def before(method, path, body):
        if '/manifests/sha256-' in path:
            sent.append(method)
            return answer
    with Front(registry, before=before) as front:
        p = ctl('push', Carton().add('model/x', b'x').write(work / 'm.carton'), front.oci(url))
    assert p.returncode and message in p.stderr and 'PUT' not in sent, p.stderr
def test_mount_of_a_signed_artifact(mount, point, cache, tmp_path, registry):
    """Others can attach signatures, too: one of these has to be right."""
    work = tmp_path / 'signed'
    work.mkdir()
    key, other, third = (oms.Key(tmp_path, name) for name in ('key', 'other', 'third'))
    statement = oms.statement(oms.listing({'x': hashlib.sha256(work.name.encode()).hexdigest()}))
    s = Signed(registry, work, oms.bundle(other, statement).encode(), b'{}', oms.bundle(key, statement).encode())
    s.by_tag(*map(listed, s.bundles))
    for more in (), ('-o', 'offline'):
        with mount(s.url, *PRIVATE, *cache.options, '-o', f'noviews,memory=1M,verify_key={key.public}', *more) as m:
            assert m.read('model/x') == work.name.encode()
            assert json.loads(harness.ctl('status', '--json', m.path).stdout)[0]['signed_by'] == f'key {key.hint}'
    p = harness.run(harness.CARTONFS, *PRIVATE, *cache.options, '-o', f'verify_key={third.public}', s.url, point())
    assert p.returncode == 32 and 'signature in the registry: key: it names another key' in p.stderr, p.stderr


@pytest.mark.parametrize('way', ['api', 'tag'])
def test_mount_behind_junk(mount, point, cache, tmp_path, registry, way):
    """
    Fifty that others have attached, each of half a MiB, and of each kind, stand before the right one. The memory
    suffices for one at a time. None of the others is taken, with the right one or without it.
    """
    work = tmp_path / 'signed'
    work.mkdir()
    key, other = oms.Key(tmp_path, 'key'), oms.Key(tmp_path, 'other')
    right = oms.statement(oms.listing({'x': hashlib.sha256(work.name.encode()).hexdigest()}))
    wrong = oms.statement(oms.listing({'x': hashlib.sha256(b'other').hexdigest()}))
    kinds = [oms.bundle(other, right), oms.bundle(key, wrong), oms.bundle(other, right, material=key.material()),
             oms.bundle(key, right, signed=b'else'), '{}', 'no json']
    s = Signed(registry, work)
    s.attach(*(kinds[i % len(kinds)].encode() + b' ' * ((512 << 10) + i) for i in range(50)))
    options = (*PRIVATE, *cache.options, '-o', f'noviews,memory=8M,verify_key={key.public}')
    with by_either(s, way) as url:
        p = harness.run(harness.CARTONFS, *options, url, point())
        assert p.returncode == 32 and 'signature in the registry: key: it names another key' in p.stderr, p.stderr
        s.attach(oms.bundle(key, right).encode())
    with by_either(s, way) as url, mount(url, *options) as m:
        assert m.read('model/x') == work.name.encode()
        assert json.loads(harness.ctl('status', '--json', m.path).stdout)[0]['signed_by'] == f'key {key.hint}'


def test_interrupted(point, cache, tmp_path, registry):
    """The search ends at once while an answer does not come, and nothing is mounted."""
    work, waits, go = tmp_path / 'signed', threading.Event(), threading.Event()
    work.mkdir()
    key = oms.Key(tmp_path, 'key')
    s = Signed(registry, work)
    s.attach(*map(numbered, range(10)))

    def before(method, path, body):
        if '/referrers/' in path:
            return 200, {}, index_of(*map(listed, s.bundles))
        if digest_of(numbered(9)) in path:
            waits.set()
            go.wait()
        return None
    with Front(registry, before=before) as front:
        p = subprocess.Popen([harness.CARTONFS, *PRIVATE, *cache.options, '-o', f'verify_key={key.public}',
                              front.oci(s.url), point()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, env=harness.environment(), text=True)
        assert waits.wait(harness.SLOW * 60), p.communicate()
        p.send_signal(signal.SIGINT)
        said = p.communicate()[1]
        go.set()
        assert p.returncode == 128 + signal.SIGINT and 'interrupted; nothing is mounted' in said, said


def test_too_large_for_the_memory(mount, point, cache, tmp_path, registry):
    """One that the memory has no room for does not hide the right one; where it is the only one, that is said."""
    work = tmp_path / 'signed'
    work.mkdir()
    key = oms.Key(tmp_path, 'key')
    right = oms.bundle(key, oms.statement(oms.listing({'x': hashlib.sha256(work.name.encode()).hexdigest()}))).encode()
    s = Signed(registry, work)
    s.attach(right + b' ' * (3 << 20), right + b' ' * (12 << 20))
    s.by_tag(*map(listed, s.bundles))
    options = (*PRIVATE, *cache.options, '-o', f'noviews,memory=8M,verify_key={key.public}')
    p = harness.run(harness.CARTONFS, *options, s.url, point())
    assert p.returncode == 32 and 'listing this carton takes at least 2' in p.stderr and \
        'of memory are not there to read one of them: memory= gives it' in p.stderr, p.stderr
    s.attach(right)
    s.by_tag(*map(listed, s.bundles))
    with mount(s.url, *options) as m:
        assert m.read('model/x') == work.name.encode()
