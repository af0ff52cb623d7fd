# SPDX-License-Identifier: Apache-2.0
"""
Servers that speak HTTP in a way of their own, and have the right bytes: servers.md says who does. Each carton is read
as from any other server; what is wrong there is said.
"""
import bisect
import errno
import gzip
import os
import random

import pytest

import chunkindex

from harness import CARTONCTL, ctl, run
from origin import MIB, PRIVATE, LinkedCarton, digest, errno_of, fault_bytes, lines_of, nginx_at
from rawhttp import CHUNKED, RESET, Raw, head, right
from served import Handler, Served, serve, stop
from tensorfiles import weights
from zipwriter import Carton

X = fault_bytes(3 * MIB, seed=5)


@pytest.fixture
def url(fault):
    """The URL of a carton whose server does that."""
    c = Carton(method='stored').add('model/x', X).add('model/config.json', b'{}\n')
    c.write(os.path.join(fault.root, 'd.carton'))

    def of(**kind):
        fault.clear()
        return fault.url('d.carton', file='d.carton', **kind)
    return of


def cat(cache, url, *options):
    p = ctl('cat', cache.flag, *options, url, 'model/x', text=False)
    assert p.returncode == 0 and p.stdout == X, p.stderr
    return p


# ---- ranges ----


@pytest.mark.parametrize('status', [1, 400, 403, 404, 405, 416, 500, 501])
def test_no_last_bytes(fault, cache, url, status):
    """They are asked for by their numbers, once the first byte has come with the size: nothing else comes."""
    there = url(nosuffix=status)
    p = ctl('ls', cache.flag, there)
    assert p.returncode == 0 and 'config.json' in p.stdout and not p.stderr, p.stderr
    asked = [r['h']['range'] for r in fault.requests('d.carton')]
    assert asked[:2] == ['bytes=-262144', 'bytes=0-0'] and asked[2].startswith('bytes=')
    assert sum(r['sent'] for r in fault.requests('d.carton')[1:]) < MIB
    cat(cache, there)


@pytest.mark.parametrize('drops', [[RESET], [None]], ids=['reset', 'end'])
@pytest.mark.parametrize('always', [True, False], ids=['always', 'once'])
def test_dropped_at_the_last_bytes(tmp_path, cache, drops, always):
    """The same: whether it was the request or the connection, what is asked next shows."""
    Carton(method='stored').add('model/x', X).write(tmp_path / 'd')

    def answer(r):
        return drops if r.h.get('range', '').startswith('bytes=-') and (always or not r.n) else right(r)
    with Raw({'d': (tmp_path / 'd').read_bytes()}, {'d': answer}) as raw:
        cat(cache, raw.url('d'))


@pytest.mark.parametrize('status, requests', [(401, 1), (403, 2), (404, 2)])
def test_refused_all_the_same(fault, cache, url, status, requests):
    """What is refused by numbers, too, is refused: with its status, once. A login is asked for at once."""
    p = ctl('ls', cache.flag, url(fail=f'9999:{status}'))
    assert p.returncode == 1 and len(lines_of(p.stderr, f'status {status}')) == 1, p.stderr
    assert len(fault.requests('d.carton')) == requests


def test_other_bytes_for_the_last(cache, url, fault):
    """A server may read -N as 0-N: what it sends is not taken for the end."""
    url()
    with open(os.path.join(fault.root, 'd.carton'), 'rb') as f:
        data = f.read()

    def answer(r):
        if r.h.get('range', '').startswith('bytes=-'):
            r.range = 0, 262145
        return right(r)
    with Raw({'d': data}, {'d': answer}) as raw:
        cat(cache, raw.url('d'))


# ---- validators ----


@pytest.mark.parametrize('kind', [dict(never=1), dict(tags=2), dict(tags=3), dict(tags=2, unconditional=1)], ids=str)
def test_several_validators(fault, cache, url, kind):
    """412 to the tag that was just sent, or machines with a tag each: the end is compared, and the hashes decide."""
    cat(cache, url(**kind))


MANY = 150                              # requests: who asks for more never stops


@pytest.mark.parametrize('connections', [1, 8])
def test_several_validators_of_wrong_bytes(tmp_path, cache, connections):
    """Each try begins again in the middle, with the bytes that it has: all are asked for anew once, and not for ever."""
    x = fault_bytes(9 * MIB, seed=5)
    Carton(method='stored').add('model/x', x).write(tmp_path / 'd')
    data = bytearray((tmp_path / 'd').read_bytes())
    data[data.index(x) + 1000] ^= 1

    def answer(r):
        if len(raw.requests) > MANY:
            return [head(404, 'Content-Length: 0')]
        return right(r, etag='ETag: "B"' if MIB // 4 < r.range[0] < 8 * MIB else 'ETag: "A"')
    with Raw({'d': bytes(data)}, {'d': answer}) as raw:
        p = ctl('fetch', cache.flag, f'--connections={connections}', raw.url('d'))
    assert p.returncode == 1 and len(raw.requests) <= MANY, p.stderr
    assert len(lines_of(p.stderr, 'model/x: sha256 mismatch')) == 1, p.stderr


def test_412_to_ranges_without_conditions(tmp_path, cache):
    """The server refuses ranges with a validator and without one: the file is then asked for as a whole, once."""
    x = fault_bytes(9 * MIB, seed=5)

    def answer(r):
        if len(raw.requests) > MANY:
            return [head(404, 'Content-Length: 0')]
        return [head(412, 'Content-Length: 0')] if r.range and r.n else right(r)
    with Raw({'l': x}, {'l': answer}) as raw:
        c = LinkedCarton(method='stored').link('model/l', x, raw.url('l')).write(tmp_path / 'm.carton')
        p = ctl('fetch', cache.flag, '--private-links', '--connections=2', c)
    assert p.returncode == 0, p.stderr
    asked = [(r.range, 'if-match' in r.h) for r in raw.requests]
    assert len(asked) == len(set(asked)) <= 1 + 2 * 2 + 1, 'no piece twice in the same way'
    assert {True, False} == {condition for range_, condition in asked if range_ and range_[0] > 0}
    assert [r for r, _ in asked].count(None) == 1


@pytest.mark.parametrize('kind, says', [(dict(never=1), ''), (dict(tags=2), 'changed'), (dict(tags=2, unconditional=1), 'changed'),
                                        (dict(never=1, newetag=1), 'changed')], ids=str)
def test_validators_where_nothing_has_a_hash(fault, cache, kind, says):
    """Then only the validator says that it is one version: it may be compared here alone, but must be the same."""
    data = weights(a=X[:MIB])
    with open(os.path.join(fault.root, 'd.safetensors'), 'wb') as f:
        f.write(data)
    p = ctl('cat', cache.flag, fault.url('d.safetensors', file='d.safetensors', **kind), 'd.safetensors', text=False)
    assert (p.returncode == 0 and p.stdout == data) == (not says), p.stderr
    assert says in p.stderr.decode() and p.stdout in (data, b'')


@pytest.fixture(scope='module')
def two_versions(tmp_path_factory):
    """Two cartons of one size, and the bytes of each."""
    where = tmp_path_factory.mktemp('versions')

    def version(seed):
        c = Carton(method='stored')
        for i in range(3500):
            c.add(f'model/f{i:04}', b'%d %04d' % (seed, i))
        c.write(where / str(seed))
        return c, (where / str(seed)).read_bytes()
    return version(1), version(2)


@pytest.mark.parametrize('tag', [True, False], ids=['tags', 'no tag'])
def test_two_versions_behind_one_name(tmp_path, two_versions, tag):
    """
    Machines that have two versions of one size, with a directory and a MANIFEST that take several requests: what is
    read is one of them or an error, and never a model that is a part of each.
    """
    (a, data), (b, other) = two_versions
    assert len(data) == len(other) > 600000
    run, hashes, files = [1], {a.model_hash(), b.model_hash()}, {b'1 3499', b'2 3499'}

    def answer(r):
        r.data = (data, other)[len(raw.requests) // run[0] % 2]
        return right(r, etag=f'ETag: "{len(raw.requests) // run[0] % 2}"' if tag else 'X: y')
    with Raw({'v': data}, {'v': answer}) as raw:
        for run[0] in range(1, 5):
            p = ctl('hash', f'--cache-dir={tmp_path}/{run[0]}', raw.url('v'))
            assert p.returncode and p.stderr or p.stdout.split()[0] in hashes, p.stderr
            p = ctl('cat', f'--cache-dir={tmp_path}/{run[0]}', raw.url('v'), 'model/f3499', text=False)
            assert p.returncode and p.stderr or p.stdout in files, p.stderr


# ---- codings ----


@pytest.mark.parametrize('word', ['aws-chunked', 'none', 'utf-8', 'binary', 'identity', 'UTF-8, aws-chunked'])
def test_codings_that_are_none(fault, mount, cache, url, word):
    """Over the very bytes: by ranges, as a whole, as a part that was there, for an object of LINKS."""
    cat(cache, url(**{'as': word}))
    assert len(fault.requests('d.carton')) <= 6, 'none is asked for twice'
    assert ctl('verify', cache.flag, '--memory=1G', url(norange=1, **{'as': word})).returncode == 0
    c = LinkedCarton(method='stored').link('model/l', X, fault.url('l', size=len(X), seed=5, **{'as': word}))
    c.write(os.path.join(fault.root, 'linked.carton'))
    with mount(os.path.join(fault.root, 'linked.carton'), *PRIVATE, *cache.options) as m:
        assert m.read('model/l') == X


def test_real_coding_beside_one(fault, cache, url):
    """A store has gzip, and its own word before it; what is read is what was coded."""
    assert ctl('verify', cache.flag, url(norange=1, enc='gzip', **{'as': 'aws-chunked, gzip'})).returncode == 0


CODINGS = ['gzip', 'x-gzip', 'deflate', 'br', 'zstd', 'compress']


@pytest.mark.parametrize('word', CODINGS)
def test_codings_of_bytes_that_are_not_coded(fault, mount, cache, url, word):
    """
    Words kept from an upload, or by its name: what a body that has the length of the file is, the hash decides. By
    ranges, as a whole; an object that is asked for in parts, as a whole, and one whose length nobody says.
    """
    kind, large = {'as': word}, fault_bytes(9 * MIB, seed=6)
    assert cat(cache, url(**kind)).stderr == b''
    assert {r['status'] for r in fault.requests('d.carton')} == {206} and len(fault.requests('d.carton')) <= 6
    assert ctl('verify', f'--cache-dir={cache.path}/2', url(norange=1, **kind)).returncode == 0
    c = LinkedCarton(method='stored').link('model/l', X, fault.url('l', size=len(X), seed=5, **kind))
    c.link('model/large', large, fault.url('large', size=len(large), seed=6, **kind))
    c.link('model/long', X[1:], fault.url('long', file='long', chunked=1, norange=1, nohead=1, **kind))
    with open(os.path.join(fault.root, 'long'), 'wb') as f:
        f.write(X[1:])
    c.write(os.path.join(fault.root, 'linked.carton'))
    with mount(os.path.join(fault.root, 'linked.carton'), *PRIVATE, *cache.options) as m:
        assert [m.read('model/' + n) for n in ('l', 'large', 'long')] == [X, large, X[1:]]
    # how long it is, all by a range, each twice for the coding that comes; decoded once more; as it is
    assert max(len([r for r in fault.requests(n) if r['status'] == 200]) for n in ('l', 'large', 'long')) <= 6


@pytest.mark.parametrize('kind', [dict(enc='gzip'), dict(enc='br'), dict(enc='gzip', norange=1),
                                  {'enc': 'gzip', 'as': 'aws-chunked, gzip'}], ids=str)
def test_ranges_of_coded_bytes(cache, url, kind):
    """They are of no use: all of it is downloaded, and decoded."""
    cat(cache, url(**kind))


def just_as_long(x):
    """More bytes, of which gzip makes as many."""
    n = bisect.bisect(range(2000), 0, key=lambda n: len(x) + n - len(gzip.compress(x + bytes(n), 1))) - 1
    assert len(gzip.compress(x + bytes(n), 1)) == len(x) + n
    return x + bytes(n)


# a file, and what is sent in its place and is said to be gzip
SENT_AS_GZIP = {
    'coded file': lambda x: [gzip.compress(x, 1)] * 2,
    'just as long': lambda x: (just_as_long(x), gzip.compress(just_as_long(x), 1)),
    'wrong': lambda x: (x, x[:-1] + b'?'),
    'wrong in gzip': lambda x: (x, gzip.compress(x[:-1] + b'?', 1)),
    'nothing': lambda x: (x, b''),
    'bomb': lambda x: (x, gzip.compress(bytes(16 * MIB), 1)),
}


@pytest.mark.parametrize('kind', SENT_AS_GZIP)
def test_what_gzip_may_be(mount, tmp_path, kind):
    """Of a file whose length the chunk index says, or nobody; by ranges, as a whole, or in an answer without a length."""
    files, bodies, known = {}, {}, {}
    for sized in (True, False):
        for how in ('ranges', 'whole', 'chunked'):
            name = f'{how}-{sized}'
            files[name], bodies[name] = SENT_AS_GZIP[kind](random.Random(name).randbytes(300_000))
            known |= {name: files[name]} if sized else {}

    def answer(r):
        how = r.path[1:].partition('-')[0]
        r.range = r.range if how == 'ranges' else None
        if how == 'chunked':
            body = [b'%x\r\n' % len(r.data), r.data, b'\r\n'] if r.data else []
            return [head(200, 'Content-Encoding: gzip', CHUNKED), *(body + [b'0\r\n\r\n'] if r.method == 'GET' else [])]
        return right(r, 'Content-Encoding: gzip')
    with Raw(bodies, dict.fromkeys(bodies, answer)) as raw:
        raw.heads = raw.answers
        c = LinkedCarton(method='stored')
        for name, data in files.items():
            c.link('model/' + name, data, raw.url(name))
        c.add(chunkindex.PATH, chunkindex.index(*known.values()))
        c.write(tmp_path / 'm.carton')
        with mount(tmp_path / 'm.carton', *PRIVATE, '-o', f'cache_dir={tmp_path}/cache') as m:
            for name, data in files.items():
                if kind in ('coded file', 'just as long'):
                    assert m.read('model/' + name) == data, name
                else:
                    assert errno_of(m.read, 'model/' + name) == errno.EIO, name
        assert len(raw.requests) <= 60, [(r.path, r.h) for r in raw.requests]


def test_gzip_that_nobody_says(mount, tmp_path):
    """The bytes are taken for what they are: others."""
    with Raw({'l': gzip.compress(X, 1)}, {}) as raw:
        LinkedCarton(method='stored').link('model/l', X, raw.url('l')).write(tmp_path / 'm.carton')
        with mount(tmp_path / 'm.carton', *PRIVATE, '-o', f'cache_dir={tmp_path}/cache') as m:
            assert errno_of(m.read, 'model/l') == errno.EIO


@pytest.mark.parametrize('word', ['gzip', 'br'])
def test_a_listing_is_what_its_header_says(word):
    """It has no hash: one that cannot be decoded is refused."""
    def answer(r):
        file = b'[{"type": "file", "path": "a.txt", "size": 2, "oid": "%s"}]' % (b'2' * 40)
        body = file if '/tree/' in r.path else b'{"sha": "%s"}' % (b'1' * 40)
        r.send_response(200)
        r.send_header('Content-Length', str(len(body)))
        if '/tree/' in r.path:
            r.send_header('Content-Encoding', word)
        r.end_headers()
        r.wfile.write(body)
    server = serve(answer)
    p = ctl('ls', 'hf://org/model', env=os.environ | {'HF_ENDPOINT': 'http://127.0.0.1:%d' % server.server_port})
    stop(server)
    assert p.returncode == 1 and 'coded body is broken' in p.stderr, p.stderr


# ---- one odd answer in the middle ----


@pytest.mark.parametrize('status', [200, 204, 400, 401, 403, 404, 416])
@pytest.mark.parametrize('nth', [2, 3], ids=['first', 'middle'])
def test_one_odd_answer(fault, cache, url, nth, status):
    """It is asked for again, once, on another connection: one machine of many may be out of order."""
    p = cat(cache, url(odd=f'{nth}:{status}'))
    asked = fault.requests('d.carton')
    assert asked[nth - 1]['status'] == status and not p.stderr, p.stderr
    assert asked[nth]['h']['range'] == asked[nth - 1]['h']['range'] and asked[nth]['conn'] != asked[nth - 1]['conn']


def test_odd_answer_behind_a_redirect(fault, cache, url):
    """It is asked for again behind a new redirect: the other may lead to what is out of order."""
    there = url(odd='3:404')
    cat(cache, fault.url('go', redirect=302, to=there))
    assert [r['status'] for r in fault.requests('d.carton')].count(404) == 1
    assert len(fault.requests('go')) >= 2


def linked(fault, **kind):
    """A carton that has a file only by LINKS."""
    c = LinkedCarton(method='stored').link('model/l', X, fault.url('l', file='l.bin', **kind))
    with open(os.path.join(fault.root, 'l.bin'), 'wb') as f:
        f.write(X)
    return c.write(os.path.join(fault.root, 'linked.carton'))


@pytest.mark.parametrize('status', [403, 404])
def test_one_odd_answer_for_a_whole_file(fault, mount, cache, url, status):
    """Also a file that only LINKS leads to, where no other place has it."""
    linked(fault, odd=f'1:{status}')
    with mount(os.path.join(fault.root, 'linked.carton'), *PRIVATE, *cache.options) as m:
        assert m.read('model/l') == X
    assert fault.requests('l')[0]['status'] == status


@pytest.mark.parametrize('status', [206, 400, 402, 403, 404, 405, 406, 409, 418, 421])
def test_odd_answer_once_its_size_is_known(fault, mount, cache, url, status):
    """The request for all of it is made again, once, on another connection."""
    linked(fault, odd=f'2:{status}')
    with mount(os.path.join(fault.root, 'linked.carton'), *PRIVATE, *cache.options) as m:
        assert m.read('model/l') == X
    asked = fault.requests('l')
    assert [r['status'] for r in asked] == [200, status, 200] and asked[2]['conn'] != asked[1]['conn']


@pytest.mark.parametrize('status', [206, 400, 402, 405, 406, 409, 418, 421])
def test_odd_answer_first(fault, mount, cache, work, status):
    """To the first request for a file of which `link` has written the size."""
    path = Carton(method='stored').add('model/l', X).write(work / 'm.carton')
    with open(os.path.join(fault.root, 'l.bin'), 'wb') as f:
        f.write(X)
    p = ctl('link', f'--url={fault.url("{sha256}", file="l.bin", odd=f"1:{status}")}', path, work / 'linked.carton')
    assert p.returncode == 0, p.stderr
    with mount(work / 'linked.carton', *PRIVATE, *cache.options) as m:
        assert m.read('model/l') == X
    asked = fault.requests(digest(X))
    assert asked[0]['status'] == status and asked[1]['conn'] != asked[0]['conn']


@pytest.mark.parametrize('status', [400, 409, 418])
def test_odd_answers_for_a_whole_file(fault, mount, cache, url, status):
    """A file that is refused each time: two questions for its size, one for its first piece, then twice for all."""
    linked(fault, fail=f'9999:{status}')
    with mount(os.path.join(fault.root, 'linked.carton'), *PRIVATE, *cache.options) as m:
        with pytest.raises(OSError, match='Input/output error'):
            m.read('model/l')
    assert [(r['method'], r['h'].get('range')) for r in fault.requests('l')] == [
        ('HEAD', None), ('GET', 'bytes=0-0'), ('GET', 'bytes=0-524287'), ('GET', None), ('GET', None)]


# ---- authorities and proxies ----


@pytest.fixture(scope='module')
def secure(session_dir, certificate):
    """The https URL of a carton, whose certificate nobody knows."""
    with nginx_at(session_dir / 'dialects', tls=certificate) as n:
        Carton(method='stored').add('model/x', X).write(n.root / 'd.carton')
        yield f'https://127.0.0.1:{n.tls_port}/d.carton'


BUNDLES = ('CURL_CA_BUNDLE', 'SSL_CERT_FILE', 'REQUESTS_CA_BUNDLE', 'AWS_CA_BUNDLE')


@pytest.mark.parametrize('name', BUNDLES)
def test_authorities_of_the_environment(mount, cache, secure, certificate, name):
    """As curl, OpenSSL, requests and the programs of AWS take them; the last only where S3 is asked. The option wins."""
    p = ctl('cat', cache.flag, secure, 'model/x', text=False, env={name: str(certificate[0])})
    assert (p.returncode == 0 and p.stdout == X) == (name != 'AWS_CA_BUNDLE'), p.stderr
    p = ctl('hash', cache.flag, secure.replace('https:', 's3:').replace('127.0.0.1:', 'bucket'), env={
        'AWS_ENDPOINT_URL': secure[:-len('/d.carton')], name: str(certificate[0])})
    assert 'status 404' in p.stderr, 'it was reached: ' + p.stderr
    p = ctl('hash', cache.flag, f'--cacert={certificate[0]}', secure, env={name: '/none'})
    assert p.returncode == 0, p.stderr
    p = ctl('hash', cache.flag, secure, env={name: '', 'CURL_CA_BUNDLE': str(certificate[0])})
    assert p.returncode == 0, p.stderr


@pytest.mark.parametrize('profile, name', [('default', '[default]'), ('x', '[profile x]')])
@pytest.mark.parametrize('is_directory', [False, True])
def test_authorities_of_a_profile(cache, tmp_path, secure, certificate, is_directory, profile, name):
    """Of AWS: for a source in S3 only, instead of the other variables, which are instead of the system's."""
    (tmp_path / 'certificates').mkdir()
    (tmp_path / 'certificates/one.pem').write_text(certificate[0].read_text())
    at = tmp_path / 'certificates' if is_directory else certificate[0]
    (tmp_path / 'config').write_text(f'[other]\nca_bundle = /none\n{name}\nregion = eu-1\nca_bundle = {at}\n')
    env = {'AWS_CONFIG_FILE': str(tmp_path / 'config'), 'AWS_PROFILE': profile, 'CURL_CA_BUNDLE': '/none',
           'AWS_ENDPOINT_URL': secure[:-len('/d.carton')]}
    source = secure.replace('https:', 's3:').replace('127.0.0.1:', 'bucket')
    p = ctl('hash', cache.flag, source, env=env)
    assert 'status 404' in p.stderr, 'it was reached: ' + p.stderr
    assert 'cannot be read' in ctl('hash', cache.flag, secure, env=env).stderr
    assert 'by AWS_CA_BUNDLE cannot be read' in ctl('hash', cache.flag, source, env=env | {'AWS_CA_BUNDLE': '/none'}).stderr
    (tmp_path / 'config').write_text(f'{name}\nca_bundle = /none/x\n')
    p = ctl('hash', cache.flag, source, env=env | {'CURL_CA_BUNDLE': ''})
    assert p.returncode == 1 and '/none/x' in p.stderr and 'by the configuration of the service' in p.stderr, p.stderr


def test_authorities_of_a_mount(mount, cache, secure, certificate):
    """A daemon has left the directory in which the name was right."""
    name = os.path.relpath(certificate[0])
    with mount(secure, *cache.options, env={'SSL_CERT_FILE': name}) as m:
        assert m.read('model/x') == X


@pytest.mark.parametrize('path', ['/none', '/'])
def test_authorities_that_are_not_there(cache, secure, path):
    """No others are trusted in their place, and it is said which variable is meant."""
    p = ctl('hash', cache.flag, secure, env={'SSL_CERT_FILE': path})
    assert p.returncode == 1 and 'named by SSL_CERT_FILE cannot be read' in p.stderr, p.stderr


@pytest.fixture(scope='module')
def authorities(session_dir, certificate):
    """Directories of certificates: `good` of ours, by a name that is no hash; `other` of another; `none` of no use."""
    at = session_dir / 'authorities'
    for name in 'good', 'other', 'none':
        (at / name / 'directory').mkdir(parents=True)
        os.mkfifo(at / name / 'fifo')
        (at / name / 'dangling.pem').symlink_to('nowhere')
    outside = session_dir / 'outside.pem'
    outside.write_text(f'A comment.\n{certificate[1].read_text()}{certificate[0].read_text()}')
    (at / 'good/link.crt').symlink_to(outside)
    (at / 'good/12345678.0').symlink_to('link.crt')
    block = '-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----\n'
    (at / 'none/broken.pem').write_text(block % 'AAAA' + block % 'no base64' + block % 'MIIB' + '-----BEGIN CERTIFICATE-----')
    (at / 'none/key.pem').write_text(certificate[1].read_text())
    (at / 'good/broken.pem').write_text((at / 'none/broken.pem').read_text())
    p = run('openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2',
            '-subj', '/CN=other', '-keyout', '/dev/null', '-out', at / 'other/other.pem')
    assert p.returncode == 0, p.stderr
    return at


@pytest.mark.parametrize('env', [
    {'SSL_CERT_DIR': '{at}/good'}, {'SSL_CERT_DIR': '/none::{at}/none:{at}/good'}, {'CURL_CA_BUNDLE': '{at}/good'},
    {'REQUESTS_CA_BUNDLE': '{at}/good', 'AWS_CA_BUNDLE': '/none'}, {'SSL_CERT_FILE': '{at}/other/other.pem', 'SSL_CERT_DIR': '{at}/good'},
    {'SSL_CERT_FILE': '{at}/good/link.crt', 'SSL_CERT_DIR': '{at}/none'}, {'SSL_CERT_DIR': '{at}/good', 'REQUESTS_CA_BUNDLE': '/none'}],
    ids=lambda env: ','.join(f'{k}={v.replace("{at}/", "")}' for k, v in env.items()))
def test_directories_of_authorities(cache, secure, authorities, env):
    """OpenSSL's variable has a list of them, those of requests may name one; what is no certificate does not matter."""
    p = ctl('cat', cache.flag, secure, 'model/x', text=False, env={k: v.format(at=authorities) for k, v in env.items()})
    assert p.returncode == 0 and p.stdout == X, p.stderr


@pytest.mark.parametrize('env, says', [
    ({'REQUESTS_CA_BUNDLE': '{at}/none'}, 'named by REQUESTS_CA_BUNDLE cannot be read: it has no certificate'),
    ({'REQUESTS_CA_BUNDLE': '{at}/other'}, 'no CA that is known here'), ({'SSL_CERT_DIR': '{at}/other'}, 'no CA that is known here'),
    ({'SSL_CERT_DIR': '/none:{at}/none'}, 'SSL_CERT_DIR has no certificate that can be read'),
    ({'SSL_CERT_FILE': '/none', 'SSL_CERT_DIR': '{at}/good'}, 'named by SSL_CERT_FILE cannot be read: No such file')],
    ids=['no certificate', 'another', 'another of a list', 'no certificate of a list', 'no file'])
def test_directories_without_the_authority(cache, secure, authorities, env, says):
    p = ctl('hash', cache.flag, secure, env={k: v.format(at=authorities) for k, v in env.items()})
    assert p.returncode and says in p.stderr, p.stderr


def test_directories_of_a_mount(mount, cache, secure, authorities):
    """Read before the daemon is confined and has left the directory in which the name was right."""
    with mount(secure, *cache.options, env={'SSL_CERT_DIR': os.path.relpath(authorities / 'good')}) as m:
        assert m.read('model/x') == X


@pytest.mark.parametrize('how, trusted', [
    ({}, True), ({'SSL_CERT_FILE': 'other/other.pem'}, True), ({'SSL_CERT_DIR': 'other'}, True),
    ({'SSL_CERT_FILE': 'other/other.pem', 'SSL_CERT_DIR': 'other'}, False), ({'CURL_CA_BUNDLE': 'other/other.pem'}, False),
    ({'REQUESTS_CA_BUNDLE': 'other'}, False), ({'--cacert': 'other/other.pem'}, False)],
    ids=['the system', 'file', 'directory', 'file and directory', 'bundle', 'directory of requests', 'option'])
def test_the_authorities_of_the_system(cache, secure, certificate, authorities, tmp_path, how, trusted):
    """The option and others' bundles take their place; OpenSSL's two variables each that of the file or the directory."""
    script = """
    mount --bind "$1" /etc/ssl/certs
    shift
    exec "$@"
    """
    (tmp_path / 'ca.pem').write_text(certificate[0].read_text())
    assert run('openssl', 'rehash', tmp_path).returncode == 0
    (tmp_path / 'ca-certificates.crt').write_text(certificate[0].read_text())
    env = {k: str(authorities / v) for k, v in how.items() if '-' not in k}
    p = run('unshare', '--mount', 'sh', '-ec', script, 'sh', tmp_path, CARTONCTL, 'hash', cache.flag,
            *(f'{k}={authorities / v}' for k, v in how.items() if '-' in k), secure, env=env)
    assert (p.returncode == 0) == trusted and ('no CA that is known here' in p.stderr) != trusted, p.stderr


class Tunnels(Handler):
    do_CONNECT = Handler.do_GET


class Proxy(Served):
    """It wants a password, of requests and of tunnels."""
    handler = Tunnels

    @staticmethod
    def answer(h):
        h.send_response(407)
        h.send_header('Proxy-Authenticate', 'Basic realm="x"')
        h.send_header('Content-Length', '0')
        h.end_headers()


@pytest.mark.parametrize('scheme', ['http', 'https'])
def test_proxy_that_wants_a_password(cache, scheme):
    """It is the proxy's answer, and not that of the server, and says how to give one."""
    with Proxy() as proxy:
        p = ctl('hash', cache.flag, f'{scheme}://example.invalid/m.carton', env={f'{scheme}_proxy': proxy.url()})
    line, = lines_of(p.stderr, '407')
    assert p.returncode == 1 and 'the proxy, not the server, wants' in line and 'https_proxy=http://USER' in line
