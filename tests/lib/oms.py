# SPDX-License-Identifier: Apache-2.0
"""
Signatures of models (OpenSSF Model Signing 1.0), made by the openssl command alone, right or wrong in one place.

  Key, Authority          a key on a curve; an authority, which gives a chain of certificates to a key
  listing(), statement()  the files that are signed, and the payload
  bundle()                the file
"""
import base64
import hashlib
import json
import subprocess

TYPE = 'application/vnd.dev.sigstore.bundle.v0.3+json'
PAYLOAD = 'application/vnd.in-toto+json'
PREDICATE = 'https://model_signing/signature/v1.0'
CURVES = {'prime256v1': 'sha256', 'secp384r1': 'sha384', 'secp521r1': 'sha512'}


def openssl(*args, data=None):
    return subprocess.run(['openssl', *map(str, args)], input=data, capture_output=True, check=True).stdout


class Key:
    def __init__(self, directory, name='key', curve='prime256v1'):
        self.path, self.public = directory / f'{name}.pem', directory / f'{name}.pub'
        self.digest = CURVES.get(curve, 'sha256')
        openssl('ecparam', '-genkey', '-name', curve, '-noout', '-out', self.path)
        self.public.write_bytes(openssl('pkey', '-in', self.path, '-pubout'))
        self.hint = hashlib.sha256(self.public.read_bytes()).hexdigest()

    def sign(self, data):
        return openssl('dgst', '-' + self.digest, '-sign', self.path, data=data)

    def material(self):
        return {'publicKey': {'hint': self.hint}, 'tlogEntries': []}


class Authority(Key):
    """A root, and below it another authority, `between`, which certifies keys."""
    CA = 'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n'

    def __init__(self, directory, name='root', between=CA):
        super().__init__(directory, name)
        self.directory, self.name = directory, name
        self.cert = directory / f'{name}.crt'
        openssl('req', '-x509', '-new', '-key', self.path, '-subj', f'/CN={name}', '-days', '30', '-out', self.cert,
                '-addext', 'keyUsage=critical,keyCertSign')
        self.between = Key(directory, f'{name}-between')
        self.between.cert = self.certify(self.between, '/CN=between', between, self)

    def certify(self, key, subject, extensions, by=None, days=30):
        """The certificate of a key."""
        by, cert = by or self.between, key.path.with_suffix('.crt')
        key.path.with_suffix('.ext').write_text(extensions)
        request = openssl('req', '-new', '-key', key.path, '-subj', subject)
        key.path.with_suffix('.csr').write_bytes(request)
        openssl('x509', '-req', '-in', key.path.with_suffix('.csr'), '-CA', by.cert, '-CAkey', by.path, '-days', days,
                '-CAcreateserial', '-extfile', key.path.with_suffix('.ext'), '-out', cert)
        return cert


LEAF = 'keyUsage=critical,digitalSignature\n'


class Signer(Key):
    """A key with a certificate."""

    def __init__(self, authority, name='leaf', subject='/O=Acme/CN=Models', extensions=LEAF, days=30, curve='prime256v1'):
        super().__init__(authority.directory, name, curve)
        self.cert = authority.certify(self, subject, extensions, days=days)
        self.chain = [self.cert, authority.between.cert]

    def material(self):
        der = [openssl('x509', '-in', c, '-outform', 'der') for c in self.chain]
        return {'x509CertificateChain': {'certificates': [{'rawBytes': encode(d)} for d in der]}}


def encode(data):
    return base64.b64encode(data).decode()


def listing(hashes, below='', but=()):
    """What a signer lists of a carton, {path: sha256}: all, or what is in `below`."""
    names = {path[len(below):]: h for path, h in hashes.items() if path.startswith(below) and path not in but}
    return [{'name': n, 'digest': names[n], 'algorithm': 'sha256'} for n in sorted(names, key=lambda n: n.encode())]


def statement(resources, predicate_type=PREDICATE, method='files', hash_type='sha256', ignore=(), **more):
    digests = b''.join(bytes.fromhex(r['digest']) for r in resources if len(r['digest']) % 2 == 0)
    return {'_type': 'https://in-toto.io/Statement/v1',
            'subject': [{'name': 'm', 'digest': {'sha256': hashlib.sha256(digests).hexdigest()}}],
            'predicateType': predicate_type,
            'predicate': {'resources': resources,
                          'serialization': {'method': method, 'hash_type': hash_type, 'allow_symlinks': False,
                                            'ignore_paths': ['.git', *ignore]}, **more}}


def pae(payload, kind=PAYLOAD):
    return b'DSSEv1 %d %s %d ' % (len(kind), kind.encode(), len(payload)) + payload


def bundle(key, payload, signed=None, material=None, **fields):
    """As JSON. `payload`: a statement, or its bytes; `signed`: what is signed in place of its encoding."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    b = {'mediaType': TYPE, 'verificationMaterial': key.material() if material is None else material,
         'dsseEnvelope': {'payload': encode(data), 'payloadType': PAYLOAD,
                          'signatures': [{'sig': encode(key.sign(pae(data) if signed is None else signed)), 'keyid': ''}]}}
    return json.dumps(b | fields)
