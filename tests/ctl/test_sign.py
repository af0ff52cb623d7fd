# SPDX-License-Identifier: Apache-2.0
"""cartonctl sign: what it signs, with which keys, and what it refuses. openssl verifies all of it, and no code of ours."""
import fcntl
import hashlib
import json
import os
import pty
import shutil
import signal
import subprocess
import termios
from pathlib import Path

import pytest

import oms
from harness import (CARTONCTL, CARTONFS, IS_ROOT, NOBODY, ctl, daemons, environment, eventually, identity, mountinfo,
                     run, unmount, wait_exit)
from packing import pack
from probing import mounter_of, status
from signing import chain, payload, verified
from zipwriter import TOML, Carton, sample



@pytest.fixture
def key(work):
    return oms.Key(work)


@pytest.fixture
def root(work):
    return oms.Authority(work)


@pytest.fixture
def model(work):
    """A directory, with names whose order is another by bytes than by directories, and what is left out."""
    files = {'config.json': b'{}\n', 'a/b': b'1', 'a-b': b'2', 'a.b': b'3', 'a/.git/x': b'4', '__pycache__/x': b'5',
             'sub/.gitignore': b'6', 'ü "\\.txt': b'7', 'empty': b'', '.gitmodules': b'8'}
    left = {'.git/config': b'x', '.gitignore': b'x', '.gitattributes': b'x', '.github/a/b': b'x'}
    for name, data in (files | left).items():
        path = work / 'my-model' / name.replace('\\', '')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return work / 'my-model', {n.replace('\\', ''): hashlib.sha256(d).hexdigest() for n, d in files.items()}


def signed(*words, note='', **kw):
    """Runs it; what it prints. All that it says is one line with `note` in it, if there is one."""
    p = ctl('sign', *words, **kw)
    assert p.returncode == 0 and p.stderr.count('\n') == bool(note) and note in p.stderr, p.stderr
    return p.stdout


def refused(*words, says, where='m.carton', **kw):
    """Nothing is left, and nothing changed; one line says why."""
    here = Path(kw['cwd'])
    before = {p: p.read_bytes() for p in here.rglob('*') if p.is_file()}
    p = ctl('sign', *words, **kw)
    assert (p.returncode, p.stdout) == (1, '')
    *before_it, why, last = p.stderr.splitlines()
    assert [line for line in before_it if 'not verified' not in line] == []
    assert says in why and last == f'cartonctl: {where} was not signed', p.stderr
    assert {p: p.read_bytes() for p in here.rglob('*') if p.is_file()} == before


# ---- what is signed ----

GOLDEN = (
    '{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"two","digest":{"sha256":'
    '"a49c7c8b9aca10635b2481820b832847a81a24fd01379580af97a593b2d5f1a2"}}],"predicateType":'
    '"https://model_signing/signature/v1.0","predicate":{"resources":[{"name":"a","digest":'
    '"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb","algorithm":"sha256"},{"name":"b/c","digest":'
    '"2e7d2c03a9507ae265ecf5b5356885a53393a2029d241394997265a1a25aefc6","algorithm":"sha256"}],"serialization":'
    '{"method":"files","hash_type":"sha256","allow_symlinks":false,"ignore_paths":'
    '[".git",".gitattributes",".github",".gitignore","model.sig"]}}}')


def test_payload_is_the_same_each_time(work, key):
    """To the byte; the signature is another one."""
    (work / 'two/b').mkdir(parents=True)
    (work / 'two/b/c').write_bytes(b'c')
    (work / 'two/a').write_bytes(b'a')
    bundles = set()
    for source in ('two', 'two/', './two', work / 'two', '.'):
        signed(source, f'--key={key.path}', cwd=work / 'two' if source == '.' else work)
        assert verified(work / 'two/model.sig', key.public).decode() == GOLDEN
        bundles.add((work / 'two/model.sig').read_text())
    assert len(bundles) == 5
    bundle = json.loads(bundles.pop())
    assert bundle['mediaType'] == 'application/vnd.dev.sigstore.bundle.v0.3+json'
    assert bundle['verificationMaterial'] == {'publicKey': {'hint': key.hint}, 'tlogEntries': []}
    assert bundle['dsseEnvelope']['payloadType'] == 'application/vnd.in-toto+json'
    assert [sorted(s) for s in bundle['dsseEnvelope']['signatures']] == [['keyid', 'sig']]


@pytest.mark.parametrize('curve', oms.CURVES)
def test_carton(work, curve):
    """Its MANIFEST, in the order of a signature; symlinks are files of the list."""
    c = sample().add('model/a/b', b'1').add('model/a-b', b'2')
    c.write(work / 'm.carton')
    key = oms.Key(work, curve=curve)
    out = signed('m.carton', f'--key={key.path}', cwd=work)
    assert out == f'm.carton.sig: {len(c.hashes())} files of MANIFEST signed\nkey {key.hint}\n'
    assert verified(work / 'm.carton.sig', key.public) == payload(c.hashes(), symlinks=True)


def test_nothing_of_a_carton_is_hashed(work, key):
    """Nor fetched: the files are damaged, or nowhere."""
    c = Carton(method='stored').add('model/a', b'x' * 5000).add('model/b', b'y' * 5000)
    damaged, linked = work / 'm.carton', work / 'l.carton'
    c.write(damaged)
    want = payload(c.hashes())
    pack('link', damaged, linked, '--url=http://127.0.0.1:1/{sha256}', 'model')
    damaged.write_bytes(damaged.read_bytes().replace(b'x' * 5000, b'z' * 5000))
    assert ctl('verify', damaged).returncode == 2
    for source in (damaged, linked):
        signed(source, f'--key={key.path}', f'--output={work}/out.sig')
        assert verified(work / 'out.sig', key.public) == want.replace(b'm.carton', source.name.encode())


def test_unpacked_carton(work, key):
    """A directory with a MANIFEST is a carton: its signature is beside it."""
    c = sample()
    c.unpack(work / 'dir')
    signed('dir/', f'--key={key.path}', cwd=work)
    assert verified(work / 'dir.sig', key.public) == payload(c.hashes(), 'dir', symlinks=True)


def test_directory(work, key, model):
    """All files but what the specification leaves out, at the top only, and but the signature."""
    path, hashes = model
    out = signed(path, f'--key={key.path}')
    assert out.startswith(f'{path}/model.sig: {len(hashes)} files signed\n')
    want = payload(hashes, 'my-model', ['model.sig'])
    assert verified(path / 'model.sig', key.public) == want
    # elsewhere in it
    (path / 'model.sig').unlink()
    signed(path, f'--key={key.path}', f'--output={path}/sub/x.sig')
    assert verified(path / 'sub/x.sig', key.public) == want.replace(b'model.sig', b'sub/x.sig')
    # and outside: now that one is a file like any other
    signed(path, f'--key={key.path}', f'--output={work}/y.sig')
    hashes['sub/x.sig'] = hashlib.sha256((path / 'sub/x.sig').read_bytes()).hexdigest()
    assert verified(work / 'y.sig', key.public) == payload(hashes, 'my-model', [])


def test_large_files(work, key):
    """Several at once; each is read as a whole."""
    (work / 'd').mkdir()
    hashes = {}
    for i in range(6):
        data = bytes([i]) * ((3 << 20) + i)
        (work / f'd/{i}').write_bytes(data)
        hashes[str(i)] = hashlib.sha256(data).hexdigest()
    signed(work / 'd', f'--key={key.path}')
    assert verified(work / 'd/model.sig', key.public) == payload(hashes, 'd', ['model.sig'])


def test_symlinks(work, key, model):
    path, hashes = model
    (work / 'elsewhere').write_bytes(b'far')
    os.symlink('../../elsewhere', path / 'a/link')
    refused(path, f'--key={key.path}', cwd=work, where=path,
            says='a/link: is a symlink: --dereference signs what it leads to')
    signed(path, '--dereference', f'--key={key.path}')
    hashes['a/link'] = hashlib.sha256(b'far').hexdigest()
    assert verified(path / 'model.sig', key.public) == payload(hashes, 'my-model', ['model.sig'], True)
    os.symlink('..', path / 'a/loop')
    refused(path, '--dereference', f'--key={key.path}', cwd=work, where=path, says='a/loop: is a symlink to a directory that it is in')


def test_signature_in_the_carton(work, key):
    """As the manual page says: pack, sign, pack. There is a chunk index, too, which is signed."""
    (work / 'm/model').mkdir(parents=True)
    (work / 'm/misc').mkdir()
    (work / 'm/model/large').write_bytes(os.urandom(9 << 20))
    assert ctl('init', work / 'm').returncode == 0
    out = work / 'm/misc/model.sig'
    for again in (False, True):                 # the second time, the first signature is in the carton
        pack('pack', work / 'm', work / 'm.carton')
        signed(work / 'm.carton', f'--key={key.path}', f'--output={out}')
        pack('pack', work / 'm', work / 'm.carton')
        lines = dict(line.rsplit('=', 1) for line in ctl('cat', work / 'm.carton', 'MANIFEST').stdout.splitlines())
        assert lines.pop('misc/model.sig') == hashlib.sha256(out.read_bytes()).hexdigest()
        assert 'misc/.cartonfs/chunks' in lines
        assert verified(out, key.public) == payload(lines)


def test_json(work, key, root):
    sample().write(work / 'm.carton')
    got = json.loads(signed('-j', 'm.carton', f'--key={key.path}', cwd=work))
    n = len(sample().hashes())
    assert got == {'signature': 'm.carton.sig', 'replaced': False, 'files': n, 'key': key.hint, 'signer': None}
    cert = root.certify(key, '/O=Example/CN=me', oms.LEAF, root, days=365)
    got = json.loads(signed('-j', 'm.carton', f'--key={key.path}', f'--cert={cert}', cwd=work))
    assert got.pop('ends') > 0
    assert got == {'signature': 'm.carton.sig', 'replaced': True, 'files': n, 'key': key.hint, 'signer': 'CN=me,O=Example'}


# ---- what a mount says of it ----

def mounts(source, point, options):
    """Is it mounted? Else the reason."""
    where = point()
    p = run(CARTONFS, '-o', f'noviews,{options}', source, where)
    if p.returncode == 0:
        unmount(where)
        eventually('the daemon ended', lambda: not daemons(where))
        return True
    assert p.returncode == 32 and not mountinfo(where), p.stderr
    return p.stderr.splitlines()[0]


@pytest.mark.parametrize('curve', oms.CURVES)
def test_signed_is_mounted(work, point, root, curve):
    """However it is stored: one signature for all of them. By a key, and by a certificate."""
    c = sample()
    c.write(work / 'm.carton')
    c.unpack(work / 'dir')
    pack('repack', '--compress=store', work / 'm.carton', work / 'r.carton')
    pack('link', work / 'm.carton', work / 'l.carton', '--url=http://127.0.0.1:1/{sha256}', 'model')
    key = oms.Key(work, curve=curve)
    cert = chain(work / 'chain', root.certify(key, '/CN=me', oms.LEAF, days=365), root.between.cert)
    for trusted, words in ((f'verify_key={key.public}', []), (f'verify_ca={root.cert},signer=CN=me', [f'--cert={cert}'])):
        signed(work / 'm.carton', f'--key={key.path}', *words)
        assert mounts(work / 'm.carton', point, trusted) is True
        for other in ('dir', 'r.carton', 'l.carton'):
            assert mounts(work / other, point, f'{trusted},signature={work}/m.carton.sig') is True, other


def test_not_signed_is_not_mounted(work, point, key, root):
    """Each of these has a MANIFEST that is right, beside the signature of the carton that it was."""
    def make(change=lambda c: None):
        c = Carton().add('model/a', b'1').add('model/b', b'2')
        change(c)
        c.write(work / 'm.carton')

    make()
    signed(work / 'm.carton', f'--key={key.path}')
    text = (work / 'm.carton.sig').read_text()
    options, other = f'verify_key={key.public}', oms.Key(work, 'other')
    for change, says in ((lambda c: c.add('model/a', b'3'), 'resources: model/a is signed with another sha256'),
                         (lambda c: c.add('model/c', b'3'), 'MANIFEST: it lists model/c, and the signature does not'),
                         (lambda c: c.add('misc/.cartonfs/chunks', b'3'), 'MANIFEST: it lists misc/.cartonfs/chunks'),
                         (lambda c: c.entries.pop('model/b'), 'resources: model/b is signed, and MANIFEST does not list it'),
                         (lambda c: c.add('carton.toml', TOML + b'#'), 'resources: carton.toml is signed with another')):
        make(change)
        assert says in mounts(work / 'm.carton', point, options)
    make()
    assert mounts(work / 'm.carton', point, options) is True
    assert 'key: ' in mounts(work / 'm.carton', point, f'verify_key={other.public}')
    assert 'key: ' in mounts(work / 'm.carton', point, f'verify_ca={root.cert},signer=CN=me')
    # one letter of the payload
    at = text.index('"payload":"') + 50
    (work / 'm.carton.sig').write_text(text[:at] + ('A' if text[at] != 'A' else 'B') + text[at + 1:])
    assert 'signature: it is not of these bytes by this key' in mounts(work / 'm.carton', point, options)
    # another root, and one that only has the same name
    cert = chain(work / 'chain', root.certify(key, '/CN=me', oms.LEAF, days=365), root.between.cert)
    signed(work / 'm.carton', f'--key={key.path}', f'--cert={cert}')
    os.mkdir(work / 'elsewhere')
    for foreign in (oms.Authority(work, 'foreign'), oms.Authority(work / 'elsewhere')):
        assert 'chain: ' in mounts(work / 'm.carton', point, f'verify_ca={foreign.cert},signer=CN=me')
    assert mounts(work / 'm.carton', point, f'verify_ca={root.cert},signer=CN=me') is True
    assert 'signer: ' in mounts(work / 'm.carton', point, f'verify_ca={root.cert},signer=CN=you')


def test_signature_in_the_carton_is_found(work, point, key):
    Carton().add('model/a', b'1').unpack(work / 'm')
    (work / 'm/misc').mkdir()
    pack('pack', work / 'm', work / 'm.carton')
    signed(work / 'm.carton', f'--key={key.path}', f'--output={work}/m/misc/model.sig')
    pack('pack', work / 'm', work / 'm.carton')
    assert mounts(work / 'm.carton', point, f'verify_key={key.public}') is True
    (work / 'm/model/a').write_bytes(b'2')
    pack('pack', work / 'm', work / 'm.carton')
    assert 'model/a is signed with another sha256' in mounts(work / 'm.carton', point, f'verify_key={key.public}')


# ---- keys and certificates ----

@pytest.mark.parametrize('curve', oms.CURVES)
def test_certificates(work, root, curve):
    """A chain over another authority; the root need not be there."""
    c = sample()
    c.write(work / 'm.carton')
    key, middle = oms.Key(work, curve=curve), root.between
    leaf = root.certify(key, '/O=Example/CN=models', oms.LEAF, days=365)
    for pems in ([leaf, middle.cert], [leaf, middle.cert, root.cert]):
        out = signed('m.carton', f'--key={key.path}', f'--cert={chain(work / "chain.pem", *pems)}', cwd=work)
        assert '\nby CN=models,O=Example, until 20' in out
        assert verified(work / 'm.carton.sig', '--ca', root.cert) == payload(c.hashes(), symlinks=True)
        material = json.loads((work / 'm.carton.sig').read_text())['verificationMaterial']
        assert len(material['x509CertificateChain']['certificates']) == len(pems) and 'publicKey' not in material


def test_certificate_that_ends_soon(work, key, root):
    sample().write(work / 'm.carton')
    cert = root.certify(key, '/CN=me', oms.LEAF, days=29)
    signed('m.carton', f'--key={key.path}', f'--cert={cert}', cwd=work, note='the certificate of the key ends on 20')


def test_certificates_that_no_verifier_accepts(work, key, root):
    sample().write(work / 'm.carton')
    other = oms.Key(work, 'other')
    good = work / 'good.crt'
    good.write_bytes(root.certify(key, '/CN=me', oms.LEAF, root, days=365).read_bytes())

    def bad(says, *pems):
        refused('m.carton', f'--key={key.path}', f'--cert={chain(work / "chain.pem", *pems)}', cwd=work, says=says)

    bad('its first certificate is not that of the key', root.certify(other, '/CN=o', oms.LEAF))
    bad('certificate 1 has ended on 20', root.certify(key, '/CN=me', oms.LEAF, days=-1))
    for extensions in ('basicConstraints=CA:FALSE\n', 'keyUsage=critical,keyAgreement\n'):
        bad('has no key usage digitalSignature', root.certify(key, '/CN=me', extensions))
    bad('certificate 2 has not signed certificate 1', good, root.between.cert)
    bad('certificate 2 has not signed certificate 1', good, good)
    bad('has more than 8 certificates', good, *[root.cert] * 8)
    bad('has no certificate', key.path)
    refused('m.carton', f'--key={key.path}', '--cert=nosuch', cwd=work, says='nosuch: cannot open: No such file')


@pytest.mark.parametrize('curve', ['secp256k1', 'brainpoolP256r1', 'ed25519', 'rsa'])
def test_other_keys(work, curve):
    sample().write(work / 'm.carton')
    if curve == 'rsa':
        oms.openssl('genrsa', '-out', work / 'key.pem')
    elif curve == 'ed25519':
        oms.openssl('genpkey', '-algorithm', 'ed25519', '-out', work / 'key.pem')
    else:
        oms.Key(work, curve=curve)
    refused('m.carton', '--key=key.pem', cwd=work, says='key.pem: is no key on P-256, P-384 or P-521')


def test_no_keys(work, key):
    sample().write(work / 'm.carton')
    for word, says in (('nosuch', 'nosuch: No such file or directory'),
                       (key.public.name, 'key.pub: has no private key that OpenSSL can read'),
                       ('m.carton', 'm.carton: has no private key that OpenSSL can read'),
                       ('pkcs11:object=m?pin-value=1234', 'pkcs11:object=m: has no private key that OpenSSL can read')):
        refused('m.carton', f'--key={word}', cwd=work, says=says)
    p = ctl('sign', 'm.carton', cwd=work)
    assert p.returncode == 1 and p.stderr.startswith('cartonctl: sign: --key=FILE is missing\n')


def test_key_by_uri(work, key):
    """As OpenSSL's store opens it; those of tokens need a provider."""
    c = sample()
    c.write(work / 'm.carton')
    signed('m.carton', f'--key=file:{key.path}', cwd=work)
    assert verified(work / 'm.carton.sig', key.public)


def test_key_that_everybody_reads(work, key):
    sample().write(work / 'm.carton')
    key.path.chmod(0o644)
    signed('m.carton', '--key=key.pem', cwd=work, note='key.pem: can be read by every user: chmod 600')


@pytest.fixture
def encrypted(work, key):
    oms.openssl('ec', '-in', key.path, '-aes256', '-passout', 'pass:correct horse', '-out', work / 'enc.pem')
    sample().write(work / 'm.carton')
    return work / 'enc.pem'


def test_passphrase_file(work, key, encrypted):
    (work / 'pass').write_text('correct horse\nmore\n')
    signed('m.carton', '--key=enc.pem', '--passphrase-file=pass', cwd=work)
    assert verified(work / 'm.carton.sig', key.public)
    (work / 'm.carton.sig').unlink()
    for text, says in (('wrong', 'enc.pem: cannot be read with this passphrase'),
                       ('', 'enc.pem: needs a passphrase, and the file that was named has none')):
        (work / 'pass').write_text(text)
        refused('m.carton', '--key=enc.pem', '--passphrase-file=pass', cwd=work, says=says)
    refused('m.carton', '--key=enc.pem', cwd=work, start_new_session=True,
            says='enc.pem: needs a passphrase, and there is no terminal to ask at')


@pytest.mark.parametrize('word, status', [('correct horse', 0), ('wrong', 1)])
def test_passphrase_at_the_terminal(work, key, encrypted, word, status):
    """It is asked for, and not shown."""
    leader, follower = pty.openpty()

    def control():
        os.setsid()
        fcntl.ioctl(follower, termios.TIOCSCTTY, 0)

    p = subprocess.Popen([CARTONCTL, 'sign', 'm.carton', '--key=enc.pem'], cwd=work, env=environment(), stdin=follower,
                         stdout=follower, stderr=follower, preexec_fn=control)
    os.close(follower)
    shown = b''
    while b'Passphrase of enc.pem: ' not in shown:
        shown += os.read(leader, 4096)
    eventually('what is typed is not shown', lambda: not termios.tcgetattr(leader)[3] & termios.ECHO)
    os.write(leader, f'{word}\n'.encode())
    try:
        while block := os.read(leader, 4096):
            shown += block
    except OSError:                     # the other side is closed
        pass
    os.close(leader)
    assert p.wait() == status and word.encode() not in shown, shown
    assert (work / 'm.carton.sig').exists() == (status == 0)


def is_ending(pid):
    """Is a process gone, or about to be, and not only asleep?"""
    try:
        s = status(f'/proc/{pid}/status')
    except (FileNotFoundError, ProcessLookupError):
        return True
    return s['State'][0] != 'S' or bool((int(s['SigPnd'], 16) | int(s['ShdPnd'], 16)) >> (signal.SIGKILL - 1) & 1)


@pytest.mark.needs_root
def test_nobody_reads_the_key(work, encrypted):
    """
    The process that has it gives its memory to no other of the user, and does not outlive the one that signs, whatever
    ends that.
    """
    for path in (work, *work.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    leader, follower = pty.openpty()
    os.fchown(follower, NOBODY, NOBODY)

    def control():
        os.setsid()
        fcntl.ioctl(follower, termios.TIOCSCTTY, 0)

    # the end of the first process of a terminal would end all others
    p = subprocess.Popen(['sh', '-c', '"$@"; cat', 'sh', CARTONCTL, 'sign', 'm.carton', '--key=enc.pem'], cwd=work,
                         env=environment(NOBODY), stdin=follower, stdout=follower, stderr=follower, preexec_fn=control,
                         **identity(NOBODY))
    shown = b''
    while b'Passphrase of enc.pem: ' not in shown:
        shown += os.read(leader, 4096)
    signs, = mounter_of(p.pid)
    key, = mounter_of(signs)
    assert os.stat(f'/proc/{p.pid}').st_uid == NOBODY
    assert os.stat(f'/proc/{key}/mem').st_uid == 0
    eventually('it waits for what is typed', lambda: status(f'/proc/{key}/status')['State'][0] == 'S')
    os.kill(signs, signal.SIGKILL)
    wait_exit(signs)
    assert is_ending(key)
    wait_exit(key)
    p.kill()
    p.wait()
    os.close(leader)
    os.close(follower)


# ---- where it goes ----

def test_an_older_signature_is_replaced(work, key):
    sample().write(work / 'm.carton')
    signed('m.carton', f'--key={key.path}', cwd=work)
    old = (work / 'm.carton.sig').read_text()
    assert ', in place of an older signature\n' in signed('m.carton', f'--key={key.path}', cwd=work)
    assert (work / 'm.carton.sig').read_text() != old
    assert sorted(os.listdir(work))[-2:] == ['m.carton', 'm.carton.sig']


@pytest.mark.parametrize('command', ['pack', 'repack', 'link'])
def test_a_new_carton_is_not_judged_by_an_old_signature(work, point, key, command):
    """A signature of other files is set aside, and all that is said is one line. One of the same files stays."""
    def make(**files):
        c = Carton()
        for name, data in files.items():
            c.add(f'model/{name}', data)
        c.manifest_entry = {'skip': True}
        return c.unpack(work / 'tree')

    out, sig, old = (work / f'm.carton{suffix}' for suffix in ('', '.sig', '.sig.old'))
    options, words = f'verify_key={key.public}', [command]
    pack('pack', make(a=b'1', b=b'2'), out)
    signed(out, f'--key={key.path}')
    text = sig.read_text()
    # the same files, stored in another way
    for k in ('repack', 'link'):
        url = ['--url=http://127.0.0.1:1/{sha256}'] * (k == 'link')
        pack(k, *url, out, work / 'other')
        shutil.copy(work / 'other', out)
        pack(k, *url, work / 'other', out)
        assert sig.read_text() == text and mounts(out, point, options) is True
    source = work / 'tree'
    make(a=b'1', b=b'3')
    if command != 'pack':
        source = work / 'new.carton'
        pack('pack', work / 'tree', source)
        words += ['--url=http://127.0.0.1:1/{sha256}'] * (command == 'link')
    pack(*words, source, out, note=f'{sig}: does not sign the new carton: it is m.carton.sig.old now')
    assert old.read_text() == text and not sig.exists()
    assert 'there is no signature beside it' in mounts(out, point, options)
    # the attacker's: it lists the same files, and is of another key; or it is no signature
    signed(out, f'--key={oms.Key(work, "other").path}')
    text = sig.read_text()
    pack(*words, source, out)
    assert sig.read_text() == text and 'key: ' in mounts(out, point, options)
    for text in ('', '{}', 'x' * 100000):
        sig.write_text(text)
        pack(*words, source, out, note='does not sign the new carton')
        assert old.read_text() == text and not sig.exists()
    # what is no file is nobody's signature; and where nothing is made, it stays
    os.mkdir(sig)
    pack(*words, source, out)
    os.rmdir(sig)
    sig.write_text('x')
    assert ctl(*words, work / 'nothing', out).returncode == 1
    assert sig.read_text() == 'x'


def test_an_old_signature_that_cannot_be_judged_stays(work, key):
    """Nobody is told to remove what may be right. One that no reader would read is set aside, for that reason."""
    (work / 'out').mkdir()
    elsewhere = work / 'elsewhere'
    elsewhere.mkdir()
    out, sig = work / 'out/m.carton', work / 'out/m.carton.sig'
    source = sample().write(work / 'source')
    pack('repack', source, out)
    signed(out, f'--key={key.path}')
    sig.rename(elsewhere / 'sig')
    sig.symlink_to(elsewhere / 'sig')
    p = ctl('repack', source, out)
    assert p.returncode == 0 and 'remove it' not in p.stderr and 'does not sign' not in p.stderr, p.stderr
    assert sig.readlink() == elsewhere / 'sig' and not (work / 'out/m.carton.sig.old').exists()
    sig.unlink()
    with open(sig, 'w') as f:
        f.truncate(1 << 40)
    p = ctl('repack', source, out)
    assert p.returncode == 0 and 'memory' not in p.stderr, p.stderr
    assert not sig.exists() and (work / 'out/m.carton.sig.old').exists()


def test_no_other_file_is_replaced(work, key):
    c = sample()
    c.write(work / 'm.carton')
    (work / 'dir').mkdir()
    os.symlink('m.carton', work / 'link')
    os.mkfifo(work / 'fifo')
    for out, says in (('m.carton', 'is there and is no signature'), (key.path.name, 'is there and is no signature'),
                      ('dir', 'dir: '), ('link', 'link: '), ('fifo', 'fifo: '), ('dir/', 'is not the name of a file'),
                      ('nosuch/x', 'cannot open its directory')):
        refused('m.carton', f'--key={key.path}', f'--output={out}', cwd=work, says=says)
    refused('https://example.invalid/m.carton', f'--key={key.path}', cwd=work, where='https://example.invalid/m.carton',
            says='--output=FILE says so')


def test_what_cannot_be_signed(work, key):
    (work / 'empty/.git').mkdir(parents=True)
    (work / 'empty/.git/x').write_text('x')
    refused('empty', f'--key={key.path}', cwd=work, where='empty', says='empty: has no file that could be signed')
    (work / 'fifo').mkdir()
    os.mkfifo(work / 'fifo/x')
    refused('fifo', f'--key={key.path}', cwd=work, where='fifo', says='x: is a fifo, device or socket')
    (work / 'latin').mkdir()
    Path(os.fsdecode(bytes(work / 'latin') + b'/\xfc')).write_text('x')
    refused('latin', f'--key={key.path}', cwd=work, where='latin', says='UTF-8')
    refused('nosuch', f'--key={key.path}', cwd=work, where='nosuch', says='nosuch: cannot open: No such file')
    (work / 'x.safetensors').write_bytes(b'\x02\0\0\0\0\0\0\0{}')
    refused('x.safetensors', f'--key={key.path}', cwd=work, where='x.safetensors', says='is a bare file, which has no list')


@pytest.mark.needs_root
def test_as_another_user(work, key):
    """Neither a key nor a directory that one may not read is signed."""
    assert IS_ROOT
    sample().write(work / 'm.carton')
    work.chmod(0o755)
    p = ctl('sign', work / 'm.carton', f'--key={key.path}', f'--output={work}/x', uid=NOBODY)
    assert p.returncode == 1 and 'Permission denied' in p.stderr and not (work / 'x').exists()


def test_to_standard_output(work, key):
    """The signature, and what is printed goes to standard error; a file of the directory is not in its own list."""
    (work / 'dir').mkdir()
    for name in 'ab':
        (work / 'dir' / name).write_bytes(name.encode())
    for out in 'out.sig', 'dir/other.sig':
        with open(work / out, 'wb') as f:
            p = subprocess.run([CARTONCTL, 'sign', f'--key={key.path}', '--output=-', 'dir'], stdout=f,
                               stderr=subprocess.PIPE, cwd=work, env=environment(), text=True)
        assert (p.returncode, p.stderr) == (0, f'standard output: 2 files signed\nkey {key.hint}\n')
        listed = json.loads(verified(work / out, key.public))['predicate']['resources']
        assert [r['name'] for r in listed] == ['a', 'b']
