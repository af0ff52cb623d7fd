# SPDX-License-Identifier: Apache-2.0
"""
verify_key and verify_ca: what is mounted is what the signature covers, and nothing else is. The signatures are made by
the openssl command (oms.py), each wrong in one place.
"""
import base64
import fcntl
import hashlib
import json
import os
import pty
import re
import subprocess
import termios

import pytest

import oms
from harness import CARTONCTL, CARTONFS, EXIT_S, ROOT, environment, mountinfo, run
from zipwriter import Carton

FILES = {'model/a.bin': b'a' * 5000, 'model/a/b.txt': b'b', 'model/config.json': b'{}'}


@pytest.fixture(scope='module')
def keys(tmp_path_factory):
    """Keys and authorities, made once."""
    class Keys:
        d = tmp_path_factory.mktemp('keys')
        key, other = oms.Key(d), oms.Key(d, 'other')
        ca, foreign = oms.Authority(d), oms.Authority(d, 'foreign')
        leaf = oms.Signer(ca, extensions=oms.LEAF + 'subjectAltName=email:models@acme.example,URI:https://acme.example/m\n')
    os.chmod(Keys.d, 0o755)
    for path in Keys.d.iterdir():
        os.chmod(path, 0o644)
    return Keys


@pytest.fixture
def carton(work):
    c = Carton()
    for path, data in FILES.items():
        c.add(path, data)
    c.path = c.write(work / 'm.carton')
    c.sig = work / 'm.carton.sig'
    return c


def signed(c, key, *args, below='', **kw):
    text = oms.bundle(key, oms.statement(oms.listing(c.hashes(), below), *args, **kw))
    c.sig.write_text(text)
    return text


def refused(source, point, *options, status=32):
    """The reason, from the one line that has it."""
    where = point()
    p = run(CARTONFS, *options, source, where)
    assert p.returncode == status and not mountinfo(where), p.stderr
    lines = p.stderr.splitlines()
    assert len(lines) == 1 and (status != 32 or f'{source}: not mounted: ' in lines[0]), lines
    os.rmdir(where)
    return lines[0]


def tree(top):
    return {os.path.relpath(os.path.join(d, f), top): open(os.path.join(d, f), 'rb').read()
            for d, _, files in os.walk(top) for f in files}


def test_a_key_for_a_signature(carton, keys, point):
    says = refused(carton.path, point, '-o', f'verify_key={keys.key.public},signature={keys.key.public}')
    assert f'{keys.key.public}: is a key or a certificate, not a signature' in says


@pytest.mark.parametrize('option', ('verify_key={}', 'verify_ca={},signer=CN=me'))
def test_a_large_file_for_a_key(carton, point, work, option):
    """A carton, say, and no key: the user hears that, not that a file is too large."""
    large, where = work / 'large.pem', point()
    for size, says in ((1 << 19, 'has no '), (1 << 21, 'is not a PEM file: it is longer than any')):
        large.write_bytes(bytes(size))
        p = run(CARTONFS, '-o', option.format(large), carton.path, where)
        assert p.returncode == 1 and not mountinfo(where), p.stderr
        assert p.stderr.startswith(f'cartonfs: {carton.path}: not mounted: {large}: {says}') and p.stderr.count('\n') == 1


# ---- what is signed is mounted ----

@pytest.mark.parametrize('curve', oms.CURVES)
def test_key(carton, mount, work, curve, keys):
    key = oms.Key(work, 'mine', curve)
    signed(carton, key)
    with mount(carton.path, '-o', f'noviews,verify_key={keys.other.public},verify_key={key.public}') as m:
        assert tree(m.path) == carton.files()
        p = run(CARTONCTL, 'status', m.path)
        assert re.search(rf'^ *signed by +key\s+{key.hint}$', p.stdout, re.M), p.stdout
        assert json.loads(run(CARTONCTL, 'status', '--json', m.path).stdout)[0]['signed_by'] == f'key {key.hint}'
    p = run(CARTONCTL, 'verify', f'--verify-key={key.public}', carton.path)
    assert p.returncode == 0 and p.stdout.endswith(f', signed by key {key.hint}\n'), p.stdout
    p = run(CARTONCTL, 'verify', '--json', f'--verify-key={key.public}', carton.path)
    assert json.loads(p.stdout)['signed_by'] == f'key {key.hint}'
    assert 'signed' not in run(CARTONCTL, 'verify', carton.path).stdout
    out = work / 'out'
    p = run(CARTONCTL, 'extract', f'--verify-key={key.public}', carton.path, out)
    assert p.returncode == 0 and (out / 'model/a.bin').read_bytes() == FILES['model/a.bin'], p.stderr


def test_nobody_asks(carton, mount):
    with mount(carton.path) as m:
        assert re.search(r'^ *signature +not checked$', run(CARTONCTL, 'status', m.path).stdout, re.M)
        assert json.loads(run(CARTONCTL, 'status', '--json', m.path).stdout)[0]['signed_by'] is None
    assert re.search(r'^ *signature +not checked$', run(CARTONCTL, 'info', carton.path).stdout, re.M)
    assert json.loads(run(CARTONCTL, 'info', '--json', carton.path).stdout)['signed_by'] is None


@pytest.mark.parametrize('pin, other', [
    ('verify_key={k.key.public}', 'verify_key={k.other.public}'),
    (r'verify_ca={k.ca.cert},signer=CN=Models\,O=Acme', r'verify_ca={k.ca.cert},signer=CN=Models\,O=Other')])
def test_pinned_in_the_configuration_of_a_unit(carton, mount, point, work, keys, pin, other):
    """The shell reads single quotes as systemd does; the rest is as the unit has it."""
    unit = (ROOT / 'systemd/cartonfs@.service').read_text()
    words = re.search(r'^ExecStart=@BINDIR@/cartonfs -f -o \S+ (.*) /dev/fd/3$', unit, re.M)[1].split()
    signed(carton, keys.key if 'verify_key' in pin else keys.leaf)
    conf = work / 'm.conf'

    def values(options):
        conf.write_text(f"SOURCE={carton.path}\nOPTIONS='noviews,{options.format(k=keys)}'\n")
        return subprocess.check_output(['sh', '-c', f'. {conf}; printf "%s\\0" ' + ' '.join(f'"{w}"' for w in words)],
                                       text=True).split('\0')[:-1]

    *options, source = values(pin)
    with mount(source, *options) as m:
        assert tree(m.path) == carton.files()
    *options, source = values(other)
    assert re.search('key: it names another key|signer: it is', refused(source, point, *options))


@pytest.mark.parametrize('signer', [r'CN=Models\,O=Acme', 'models@acme.example', 'https://acme.example/m'])
def test_certificate(carton, mount, keys, signer):
    signed(carton, keys.leaf)
    with mount(carton.path, '-o', f'verify_ca={keys.ca.cert},signer={signer}'):
        pass
    p = run(CARTONCTL, 'info', f'--verify-ca={keys.ca.cert}', '--signer=' + signer.replace('\\', ''), carton.path)
    assert re.search(r'^ *signed by +CN=Models,O=Acme, until 20\d\d-\d\d-\d\d$', p.stdout, re.M), p.stdout
    # an authority below a root may be the one that is trusted
    p = run(CARTONCTL, 'info', f'--verify-ca={keys.ca.between.cert}', '--signer=models@acme.example', '--json', carton.path)
    got = json.loads(p.stdout)
    assert got['signed_by'] == 'CN=Models,O=Acme' and got['signed_until'] > 1.7e9


def test_no_extended_key_usage_is_asked_for(carton, mount, keys):
    signed(carton, oms.Signer(keys.ca, 'eku', extensions=oms.LEAF + 'extendedKeyUsage=clientAuth\n'))
    with mount(carton.path, '-o', rf'verify_ca={keys.ca.cert},signer=CN=Models\,O=Acme'):
        pass


def test_only_what_is_signed_is_shown(carton, work, mount, keys):
    """Of model/ alone: carton.toml is of nobody, and so are files that the signer has left out."""
    carton.add('model/.gitattributes', b'x').add('model/drafts/d', b'd').add('misc/.cartonfs/chunks', b'no index')
    carton.write(carton.path)
    files = [f for f in oms.listing(carton.hashes(), 'model/') if not f['name'].startswith(('.git', 'drafts/'))]
    carton.sig.write_text(oms.bundle(keys.key, oms.statement(files, ignore=['drafts'])))
    with mount(carton.path, '-o', f'noviews,verify_key={keys.key.public}') as m:
        assert tree(m.path) == FILES | {'MANIFEST': carton.manifest_bytes()}
        assert not os.path.exists(f'{m.path}/carton.toml') and not os.path.exists(f'{m.path}/model/drafts')
    p = run(CARTONCTL, 'verify', f'--verify-key={keys.key.public}', carton.path)
    assert p.returncode == 0, p.stdout
    p = run(CARTONCTL, 'info', f'--verify-key={keys.key.public}', '--json', carton.path)
    assert json.loads(p.stdout)['runner']['runner_name'] is None


def test_order_of_older_signers(carton, mount, keys):
    """They sort by the parts of a path: a/b.txt before a.bin."""
    files = oms.listing(carton.hashes())
    by_parts = sorted(files, key=lambda f: f['name'].split('/'))
    assert files != by_parts
    carton.sig.write_text(oms.bundle(keys.key, oms.statement(by_parts), material={'publicKey': {'rawBytes': 'AA=='}}))
    with mount(carton.path, '-o', f'verify_key={keys.key.public}'):
        pass


# ---- where it is ----

@pytest.mark.parametrize('where', ['given', 'beside', 'misc', 'model', 'directory'])
def test_places(carton, work, mount, keys, where):
    text, options, source = signed(carton, keys.key), '', carton.path
    if where == 'given':
        os.rename(carton.sig, work / 'else')
        options = f',signature={work}/else'
    elif where == 'misc':
        os.unlink(carton.sig)
        carton.add('misc/model.sig', text.encode()).write(carton.path)
    elif where == 'model':
        os.unlink(carton.sig)
        text = oms.bundle(keys.key, oms.statement(oms.listing(carton.hashes(), 'model/')))
        carton.add('model/model.sig', text.encode()).write(carton.path)
    elif where == 'directory':
        carton.unpack(work / 'dir')
        (work / 'dir/MANIFEST').write_bytes(carton.manifest_bytes())
        os.rename(carton.sig, work / 'dir.sig')
        source = f'{work}/dir/'
    with mount(source, '-o', f'verify_key={keys.key.public}{options}') as m:
        assert open(f'{m.path}/model/a.bin', 'rb').read() == FILES['model/a.bin']
        assert not os.path.exists(f'{m.path}/misc/model.sig')


def test_the_one_that_is_named_counts(carton, work, point, keys):
    """A right one elsewhere does not help."""
    signed(carton, keys.key)
    (work / 'else').write_text(oms.bundle(keys.other, oms.statement(oms.listing(carton.hashes()))))
    options = f'verify_key={keys.key.public}'
    assert f'{work}/else: key: ' in refused(carton.path, point, '-o', f'{options},signature={work}/else')
    os.unlink(carton.sig)
    assert 'there is no signature' in refused(carton.path, point, '-o', options)


# ---- what is refused ----

def wrong_payload(key, data, **kw):
    return oms.bundle(key, data, **kw)


def repeated(text, key, value):
    """The key twice, at its first place."""
    return text.replace(f'"{key}":', f'"{key}": {value}, "{key}":', 1)


def resources(change):
    """A list that is wrong, and signed."""
    def make(c, k):
        files = oms.listing(c.hashes())
        return oms.bundle(k.key, oms.statement(change(files) or files))
    return make


def payload_text(change):
    def make(c, k):
        return oms.bundle(k.key, change(json.dumps(oms.statement(oms.listing(c.hashes())))).encode())
    return make


def text(change):
    def make(c, k):
        return change(oms.bundle(k.key, oms.statement(oms.listing(c.hashes()))))
    return make


def envelope(change):
    def make(c, k):
        b = json.loads(oms.bundle(k.key, oms.statement(oms.listing(c.hashes()))))
        change(b['dsseEnvelope'])
        return json.dumps(b)
    return make


def serialization(**kw):
    return lambda c, k: oms.bundle(k.key, oms.statement(oms.listing(c.hashes()), **kw))


def swap(files):
    files[0], files[1] = files[1], files[0]


WRONG = {
    'media type': (text(lambda t: t.replace('v0.3', 'v0.4')), 'media type: it is "application/vnd.dev.sigstore.bundle.v0.4'),
    'no media type': (text(lambda t: t.replace('"mediaType"', '"x"')), 'media type: it is ""'),
    'no material': (lambda c, k: oms.bundle(k.key, {}, material={}), 'verification material: there is none'),
    'two materials': (lambda c, k: oms.bundle(k.key, {}, material=k.key.material() | k.leaf.material()),
                      'verification material: there is more than one'),
    'empty chain': (lambda c, k: oms.bundle(k.key, {}, material={'x509CertificateChain': {'certificates': []}}),
                    'verification material: there is none'),
    'sigstore': (lambda c, k: oms.bundle(k.key, {}, material={'certificate': {'rawBytes': 'AA=='}, 'tlogEntries': [{}]}),
                 'of sigstore, which is not checked here; use cosign'),
    'no envelope': (text(lambda t: t.replace('"dsseEnvelope"', '"x"')), 'envelope: there is no dsseEnvelope'),
    'payload type': (text(lambda t: t.replace(oms.PAYLOAD, 'text/plain')), 'envelope: its payload is "text/plain"'),
    'no payload': (text(lambda t: t.replace('"payload"', '"x"')), 'envelope: it has no payload'),
    'no signature': (envelope(lambda e: e['signatures'].clear()), 'envelope: it has 0 signatures'),
    'two signatures': (envelope(lambda e: e['signatures'].append(e['signatures'][0])), 'envelope: it has 2 signatures'),
    'other payload': (envelope(lambda e: e.update(payload=oms.encode(b'{}'))), 'signature: it is not of these bytes'),
    'signed without encoding': (lambda c, k: oms.bundle(k.key, oms.statement(oms.listing(c.hashes())),
                                                        signed=json.dumps(oms.statement(oms.listing(c.hashes()))).encode()),
                                'signature: it is not of these bytes'),
    'signed with another length': (lambda c, k: oms.bundle(k.key, b'{}', signed=oms.pae(b'{} ')), 'signature: it is not of'),
    'broken signature': (envelope(lambda e: e['signatures'][0].update(sig='AAAA')), 'signature: it is not of these bytes'),
    'other key': (lambda c, k: oms.bundle(k.other, oms.statement(oms.listing(c.hashes()))), 'key: it names another key, '),
    'other key, no hint': (lambda c, k: oms.bundle(k.other, oms.statement(oms.listing(c.hashes())), material={'publicKey': {}}),
                           'signature: it is not of these bytes'),
    'other key, our hint': (lambda c, k: oms.bundle(k.other, oms.statement(oms.listing(c.hashes())), material=k.key.material()),
                            'signature: it is not of these bytes'),
    'certificate': (lambda c, k: oms.bundle(k.leaf, oms.statement(oms.listing(c.hashes()))), 'and no verify_ca is given'),
    'predicate': (serialization(predicate_type='https://example.com/v1'), 'predicate type: it is "https://example.com/v1"'),
    'statement': (payload_text(lambda t: t.replace('Statement/v1', 'Statement/v0.1')), 'statement: it is "https://in-toto.io/'),
    'shards': (serialization(method='shards'), 'serialization: its method is "shards"'),
    'blake2b': (serialization(hash_type='blake2b'), 'serialization: its hash_type is "blake2b"'),
    'blake3': (serialization(hash_type='blake3'), 'serialization: its hash_type is "blake3"'),
    'one blake3': (resources(lambda f: f[2].update(algorithm='blake3')), 'resources: model/a/b.txt is hashed with "blake3"'),
    'no files': (resources(lambda f: f.clear()), 'resources: no file is listed'),
    'changed file': (resources(lambda f: f[1].update(digest='0' * 64)),
                     'resources: model/a.bin is signed with another sha256 than MANIFEST has'),
    'digest in capitals': (resources(lambda f: f[1].update(digest=f[1]['digest'].upper())), 'another sha256'),
    'longer digest': (resources(lambda f: f[1].update(digest=f[1]['digest'] + 'ab')), 'another sha256'),
    'digest with a digit more': (resources(lambda f: f[1].update(digest=f[1]['digest'] + 'a')), 'another sha256'),
    'one more': (resources(lambda f: f.append(dict(f[0], name='model/z'))),
                 'resources: model/z is signed, and MANIFEST does not list it'),
    'one less': (resources(lambda f: f[:-1]), 'MANIFEST: it lists model/config.json, and the signature does not'),
    'second less': (resources(lambda f: f[:1] + f[2:]), 'MANIFEST: it lists model/a.bin, and the signature does not'),
    # without carton.toml, the names are of model/
    'first less': (resources(lambda f: f[1:]), 'resources: model/model/a.bin is signed, and MANIFEST does not list it'),
    'another order': (resources(swap), 'resources: carton.toml is out of order'),
    'twice': (resources(lambda f: f.insert(1, f[1])), 'resources: model/a.bin is listed twice'),
    'not normal': (resources(lambda f: f[1].update(name='./' + f[1]['name'])), 'out of order'),
    'no name': (resources(lambda f: f[3].pop('name') and None), 'resources: a file has no name'),
    'long name': (resources(lambda f: f[3].update(name='m' * 5000)), 'has no name, or one that is too long'),
    'key twice in the bundle': (text(lambda t: repeated(t, 'payload', '"e30="')), 'JSON: the key "payload" is there twice'),
    'key twice in the payload': (payload_text(lambda t: repeated(t, 'resources', '[]')), 'JSON: the key "resources" is there'),
    'key twice in a file': (payload_text(lambda t: t.replace('"name": "model/a.bin"', '"name": "x", "name": "model/a.bin"')),
                            'JSON: the key "name" is there twice'),
    'base64 with a space': (envelope(lambda e: e.update(payload=' ' + e['payload'])), 'base64: "payload" is empty, or is not'),
    'base64 with a line': (envelope(lambda e: e.update(payload=e['payload'][:64] + '\n' + e['payload'][64:])), 'base64: "payload"'),
    'base64 of URLs': (lambda c, k: oms.bundle(k.key, b'\xff' * 300).replace('/', '_'), 'base64: "payload"'),
    'base64 without padding': (lambda c, k: oms.bundle(k.key, b'1234').replace('MTIzNA==', 'MTIzNA'), 'base64: "payload"'),
    'base64 in another way': (lambda c, k: oms.bundle(k.key, b'1234').replace('MTIzNA==', 'MTIzNB=='), 'base64: "payload"'),
    'more behind it': (text(lambda t: t + '{}'), 'JSON: it has more than white space'),
    'empty': (lambda c, k: '', 'JSON: it ends too early'),
    'half': (text(lambda t: t[:500]), 'JSON: it ends too early'),
    'no object': (lambda c, k: '[]', 'JSON: it is no object'),
    'payload is no JSON': (lambda c, k: oms.bundle(k.key, b'hello'), 'JSON: '),
    'payload with more': (payload_text(lambda t: t + '1'), 'JSON: it has more than white space'),
    'deep': (lambda c, k: '{"x":' + '[' * 100000, 'JSON: it is nested'),
    'deep payload': (lambda c, k: oms.bundle(k.key, b'{"x":' + b'[' * 100000), 'JSON: it is nested'),
}


@pytest.mark.parametrize('case', WRONG)
def test_refused(carton, point, keys, case):
    make, why = WRONG[case]
    carton.sig.write_text(make(carton, keys))
    line = refused(carton.path, point, '-o', f'verify_key={keys.key.public}')
    assert line.startswith(f'cartonfs: {carton.sig}: {why}') or why in line, line
    assert len(line) < 400


def add_and_list(c):
    """What an attacker does who cannot sign: MANIFEST agrees with the carton."""
    c.add('model/evil.py', b'evil')


CHANGES = {
    'a file more': (add_and_list, 'MANIFEST: it lists model/evil.py, and the signature does not'),
    'a file less': (lambda c: c.entries.pop('model/a.bin'), 'resources: model/a.bin is signed, and MANIFEST does not list it'),
    'another file': (lambda c: c.add('model/a.bin', b'evil'), 'resources: model/a.bin is signed with another sha256'),
    'another carton.toml': (lambda c: c.add('carton.toml', b'spec_version = 1\n'), 'resources: carton.toml is signed with'),
    'another case': (lambda c: c.add('model/A.bin', c.entries.pop('model/a.bin').data), 'resources: model/a.bin is signed, and'),
}


@pytest.mark.parametrize('case', CHANGES)
def test_changed_carton(carton, point, keys, case):
    """Carton and MANIFEST are changed together, after the signature was made."""
    signed(carton, keys.key)
    change, why = CHANGES[case]
    change(carton)
    carton.write(carton.path)
    assert why in refused(carton.path, point, '-o', f'verify_key={keys.key.public}')
    p = run(CARTONCTL, 'verify', f'--verify-key={keys.key.public}', carton.path)
    assert p.returncode == 1 and why in p.stdout, p.stdout
    for command in 'info', 'fetch':
        p = run(CARTONCTL, command, f'--verify-key={keys.key.public}', carton.path)
        assert p.returncode == 1 and why in p.stderr, p.stderr
    p = run(CARTONCTL, 'extract', f'--verify-key={keys.key.public}', carton.path, f'{carton.path}.out')
    assert p.returncode == 1 and why in p.stderr and not os.path.exists(f'{carton.path}.out/model'), p.stderr


def test_outside_of_model(carton, point, keys):
    """With names relative to model/, nothing else may be there but what makes a carton of it."""
    signed(carton, keys.key, below='model/')
    carton.add('tensor_data/evil', b'evil').write(carton.path)
    assert 'MANIFEST: it lists tensor_data/evil, and' in refused(carton.path, point, '-o', f'verify_key={keys.key.public}')


def test_one_signature_is_of_one_tree(carton, work, point, keys):
    """Whether names are of the carton or of model/ does not follow from MANIFEST, which an attacker writes."""
    other, more = work / 'other.carton', ['-o', f'verify_key={keys.key.public},signature={carton.sig}']
    signed(carton, keys.key)                        # of the carton: all of it is put into model/
    moved = Carton()
    for path, data in carton.files().items():
        moved.add(f'model/{path}', data)
    moved.write(other)
    assert 'resources: model/a.bin is signed, and MANIFEST does not list it; it is of model/, which has a carton.toml of ' \
        'its own: sign the carton' in refused(other, point, *more)
    # of model/, with all ignored that makes a carton of it: it is put to the top
    files = oms.listing(carton.hashes(), 'model/')
    carton.sig.write_text(oms.bundle(keys.key, oms.statement(files, ignore=['carton.toml', 'MANIFEST', 'LINKS'])))
    moved = Carton()
    for path, data in FILES.items():
        moved.add(path.removeprefix('model/'), data)
    moved.write(other)
    assert 'resources: model/a.bin is signed, and MANIFEST does not list it' in refused(other, point, *more)
    for data, why in (None, 'MANIFEST: it lists a/b.txt, and the signature does not'), (b'evil', 'resources: model/a.bin is signed with'):
        for path in FILES:                                                          # and both at once
            moved.add(path, data or FILES[path])
        moved.write(other)
        assert why in refused(other, point, *more)


def test_carton_toml_anywhere_in_the_list(carton, mount, keys):
    """It need not be the first that is listed."""
    carton.add('LICENSE', b'L').add('a', b'a').write(carton.path)
    signed(carton, keys.key)
    with mount(carton.path, '-o', f'noviews,verify_key={keys.key.public}') as m:
        assert tree(m.path) == FILES | {'LICENSE': b'L', 'a': b'a', 'carton.toml': carton.files()['carton.toml'],
                                        'MANIFEST': carton.manifest_bytes()}


def test_model_with_a_carton_toml(carton, point, keys):
    """Such a directory or repository was signed alone: the list is that of a carton, and it is said what to sign."""
    carton.add('model/carton.toml', b'its own').write(carton.path)
    signed(carton, keys.key, below='model/')
    why = refused(carton.path, point, '-o', f'verify_key={keys.key.public}')
    assert 'resources: a.bin is signed, and MANIFEST does not list it; it is of model/, which has a carton.toml of its own: ' \
        'sign the carton' in why
    signed(carton, keys.key)
    assert run(CARTONCTL, 'verify', f'--verify-key={keys.key.public}', carton.path).returncode == 0


def test_unsigned_chunk_index_is_not_used(carton, mount, keys):
    """It would say which bytes are right before the whole file is hashed."""
    carton.add('misc/.cartonfs/chunks', b'x' * 100).write(carton.path)
    signed(carton, keys.key, below='model/')
    with mount(carton.path, '-o', f'noviews,verify_key={keys.key.public}') as m:
        assert tree(m.path) == FILES | {'MANIFEST': carton.manifest_bytes()}
        assert 'chunk' not in m.stderr


# ---- certificates ----

def leaf(k, **kw):
    return oms.Signer(k.ca, 'case', **kw)


def weak(k):
    """A signer below an authority whose key others could find."""
    middle = oms.Key(k.d, 'weak', 'prime192v1')
    middle.cert = k.ca.certify(middle, '/CN=weak', oms.Authority.CA)
    signer = oms.Signer(k.ca, 'case')
    signer.cert = k.ca.certify(signer, '/O=Acme/CN=Models', oms.LEAF, by=middle)
    signer.chain = [signer.cert, middle.cert, k.ca.between.cert]
    return signer


CHAINS = {
    'expired': (lambda k: leaf(k, days=-1), 'chain: certificate 1: certificate has expired'),
    'other root': (lambda k: oms.Signer(k.foreign, 'case'), 'chain: certificate 2: unable to get'),
    'no digitalSignature': (lambda k: leaf(k, extensions='keyUsage=critical,keyAgreement\n'), 'has no digitalSignature'),
    'no key usage': (lambda k: leaf(k, extensions='basicConstraints=CA:FALSE\n'), 'has no digitalSignature'),
    'other signer': (lambda k: leaf(k, subject='/O=Acme/CN=Models2'), 'signer: it is "CN=Models2,O=Acme", and not'),
    'name with more': (lambda k: leaf(k, subject='/O=Acme/CN=Models/OU=x'), 'signer: it is "OU=x,CN=Models,O=Acme"'),
    'other name with more': (lambda k: leaf(k, subject='/CN=x', extensions=oms.LEAF + 'subjectAltName=DNS:a.CN=Models\n'),
                             'signer: it is "CN=x"'),
    'curve': (lambda k: leaf(k, curve='secp224r1'), 'key of certificate 1 is not on P-256'),
    'weak authority': (weak, 'certificate key too weak'),
}


@pytest.mark.parametrize('case', CHAINS)
def test_chain_is_refused(carton, point, keys, case):
    make, why = CHAINS[case]
    signed(carton, make(keys))
    line = refused(carton.path, point, '-o', rf'verify_ca={keys.ca.cert},signer=CN=Models\,O=Acme')
    assert why in line, line


@pytest.mark.parametrize('name', ['email:models@acme.example.com', 'email:xmodels@acme.example',
                                  'URI:mailto:models@acme.example'])
def test_other_name_that_is_longer(carton, point, keys, name):
    signed(carton, leaf(keys, subject='/CN=x', extensions=oms.LEAF + f'subjectAltName={name}\n'))
    assert 'signer: it is "CN=x"' in refused(carton.path, point, '-o', f'verify_ca={keys.ca.cert},signer=models@acme.example')


def test_address_is_no_name(carton, point, keys):
    """The four bytes of one are no text, although some spell a word."""
    signed(carton, leaf(keys, subject='/CN=x', extensions=oms.LEAF + 'subjectAltName=IP:97.98.99.100\n'))
    assert 'signer: it is "CN=x"' in refused(carton.path, point, '-o', f'verify_ca={keys.ca.cert},signer=abcd')


@pytest.mark.parametrize('between', [
    'basicConstraints=critical,CA:FALSE\n', 'keyUsage=critical,keyCertSign\n', 'subjectKeyIdentifier=hash\n',
    'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,digitalSignature\n'])
def test_authority_flag_is_missing(carton, point, work, between):
    """Also of one that the user trusts, for which OpenSSL asks less."""
    ca = oms.Authority(work, between=between)
    signed(carton, oms.Signer(ca))
    for trusted in ca.cert, ca.between.cert:
        line = refused(carton.path, point, '-o', rf'verify_ca={trusted},signer=CN=Models\,O=Acme')
        assert 'chain: certificate 2' in line or 'chain: certificate 1: unable to get' in line, line


def below_another(ca, extensions):
    """A signer whose authority is one of no right to have any below it, or to certify that name."""
    middle = oms.Signer(ca, 'middle', '/CN=middle', oms.Authority.CA)
    signer = oms.Signer(ca, 'below', extensions=extensions)
    signer.cert = ca.certify(signer, '/O=Acme/CN=Models', extensions, by=middle)
    signer.chain = [signer.cert, middle.cert, ca.between.cert]
    return signer


def self_signed(ca, extensions):
    signer = oms.Signer(ca, extensions=extensions)
    oms.openssl('req', '-x509', '-new', '-key', signer.path, '-subj', '/O=Acme/CN=Models', '-out', signer.cert,
                '-addext', 'keyUsage=critical,digitalSignature')
    signer.chain = [signer.cert]
    return signer


def plain(ca, extensions):
    return oms.Signer(ca, extensions=extensions)


MAIL = oms.LEAF + 'subjectAltName=email:models@acme.example\n'
RULES = {
    'length of the path': (below_another, 'basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign\n',
                           MAIL, 'path length constraint exceeded'),
    'names': (plain, oms.Authority.CA + 'nameConstraints=critical,permitted;email:other.example\n', MAIL,
              'permitted subtree violation'),
    'unknown and critical': (plain, oms.Authority.CA, MAIL + '1.2.3.4=critical,ASN1:NULL\n', 'unhandled critical extension'),
    'self-signed': (self_signed, oms.Authority.CA, MAIL, 'certificate 1: self'),
}


@pytest.mark.parametrize('case', RULES)
def test_rules_of_a_chain(carton, point, work, case):
    make, between, extensions, why = RULES[case]
    ca = oms.Authority(work, between=between)
    signed(carton, make(ca, extensions))
    for signer in r'CN=Models\,O=Acme', 'models@acme.example':
        line = refused(carton.path, point, '-o', f'verify_ca={ca.cert},signer={signer}')
        assert 'chain: certificate ' in line and why in line, line


def test_bytes_behind_a_certificate(carton, point, keys):
    material = keys.leaf.material()
    first = material['x509CertificateChain']['certificates'][0]
    first['rawBytes'] = oms.encode(base64.b64decode(first['rawBytes']) + b'0')
    carton.sig.write_text(oms.bundle(keys.leaf, oms.statement(oms.listing(carton.hashes())), material=material))
    assert 'chain: certificate 1 is malformed' in refused(
        carton.path, point, '-o', rf'verify_ca={keys.ca.cert},signer=CN=Models\,O=Acme')


def test_chain_of_another(carton, point, keys):
    """A right chain, and a signature by another key."""
    text = oms.bundle(keys.key, oms.statement(oms.listing(carton.hashes())), material=keys.leaf.material())
    carton.sig.write_text(text)
    options = rf'verify_ca={keys.ca.cert},signer=CN=Models\,O=Acme'
    assert 'signature: it is not of these bytes' in refused(carton.path, point, '-o', options)
    text = json.loads(text)
    text['verificationMaterial']['x509CertificateChain']['certificates'][0]['rawBytes'] = oms.encode(b'0' * 100)
    carton.sig.write_text(json.dumps(text))
    assert 'chain: certificate 1 is malformed' in refused(carton.path, point, '-o', options)
    text['verificationMaterial']['x509CertificateChain']['certificates'] *= 9
    carton.sig.write_text(json.dumps(text))
    assert 'chain: it has more than 8 certificates' in refused(carton.path, point, '-o', options)


# ---- size ----

def test_large(carton, point, keys, work):
    """Neither a file of a GiB nor a list of a million files is read into memory."""
    with open(carton.sig, 'wb') as f:
        f.write(b'{"mediaType": "')
        f.truncate(1 << 30)
    options = f'memory=128M,verify_key={keys.key.public}'
    p = run(CARTONFS, '-o', options, carton.path, point())
    assert p.returncode == 32 and 'm.carton.sig: is larger than 64 MiB' in p.stderr, p.stderr
    with open(carton.sig, 'w') as f:
        f.write('{"mediaType":"' + oms.TYPE + '","dsseEnvelope":{"resources":[')
        for i in range(1000000):
            f.write('{"name":"%07d","digest":"%064d","algorithm":"sha256"},' % (i, i))
    p = run(CARTONFS, '-o', options, carton.path, point())
    assert p.returncode == 32 and 'm.carton.sig: is larger than 64 MiB' in p.stderr, p.stderr


# ---- options ----

@pytest.mark.parametrize('options, why', [
    ('verify_key={none}', 'has no public key in PEM'), ('verify_key={private}', 
     'has no public key in PEM but a private one; write it by openssl pkey -in KEY -pubout'),
    ('verify_key={p224}', 'another kind of key than one on P-256'), ('verify_ca={key},signer=x', 'has no certificate in PEM'),
    ('verify_ca={ca}', 'verify_ca needs signer=NAME'),
    ('verify_ca={ca},signer=', 'signer=: expected the subject'),
    ('verify_key={key},signer=x', 'signer needs verify_ca'),
    ('signature={key}', 'signature is not checked without'), ('verify=off,verify_key={key}', 'verify=off compares no file')])
def test_options_that_make_no_sense(carton, point, keys, work, options, why):
    (work / 'none').write_text('none\n')
    options = options.format(none=work / 'none', private=keys.key.path, key=keys.key.public, ca=keys.ca.cert,
                             p224=oms.Key(work, 'p224', 'secp224r1').public)
    assert why in run(CARTONFS, '-o', options, carton.path, point()).stderr


@pytest.mark.parametrize('label, option', [('PRIVATE KEY', 'verify_key='), ('PUBLIC KEY', 'verify_key='),
                                           ('CERTIFICATE', 'signer=x,verify_ca=')])
def test_no_passphrase_is_asked_for(carton, point, keys, work, label, option):
    """What is encrypted is no key that anybody may know. A terminal is there, at which nothing is typed."""
    path = work / 'encrypted'
    oms.openssl('ec', '-in', keys.key.path, '-aes128', '-passout', 'pass:x', '-out', path)
    path.write_text(path.read_text().replace('EC PRIVATE KEY', label))
    leader, follower = pty.openpty()

    def control():
        os.setsid()
        fcntl.ioctl(follower, termios.TIOCSCTTY, 0)

    p = subprocess.run([CARTONFS, '-o', f'{option}{path}', carton.path, point()], env=environment(), preexec_fn=control,
                       stdin=follower, capture_output=True, text=True, timeout=EXIT_S)
    os.close(follower)
    with pytest.raises(OSError):        # nothing was written to it
        os.read(leader, 4096)
    os.close(leader)
    assert p.returncode == 1 and f'{path}: has no' in p.stderr, p.stderr


def test_files_that_are_not_there(carton, point, work, keys):
    p = run(CARTONFS, '-o', f'verify_key={work}/none', carton.path, point())
    assert p.returncode == 32 and f'{work}/none: cannot be read: No such file' in p.stderr, p.stderr
    p = run(CARTONFS, '-o', f'verify_key={keys.key.public},signature={work}/none', carton.path, point())
    assert p.returncode == 32 and f'{work}/none: cannot be read: No such file' in p.stderr, p.stderr


def test_bare_file(work, point, keys):
    path = work / 'm.safetensors'
    path.write_bytes(b'\x02\0\0\0\0\0\0\0{}')
    p = run(CARTONFS, '-o', f'verify_key={keys.key.public}', path, point())
    assert p.returncode == 1 and 'of a bare file it is sha256' in p.stderr, p.stderr
    assert hashlib.sha256(path.read_bytes()).hexdigest()
