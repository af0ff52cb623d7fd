# SPDX-License-Identifier: Apache-2.0
"""
Do others read our signatures? Sigstore's own library, @sigstore/bundle, parses them: `make check-sign` gets it from npm,
and runs this. Not part of the tests of cartonctl, which need no network.
"""
import json
import os
from pathlib import Path

import pytest

import oms
from harness import ctl, run
from signing import chain, payload
from zipwriter import Carton

CLIENT = """
import fs from 'node:fs';
import { bundleFromJSON, bundleToJSON, isBundleWithDsseEnvelope, isBundleWithPublicKey } from '@sigstore/bundle';
import { Bundle } from '@sigstore/protobuf-specs';
const [what, path] = process.argv.slice(2);
const json = JSON.parse(fs.readFileSync(path));
const bundle = what == 'whole' ? bundleFromJSON(json) : Bundle.fromJSON(json);
const envelope = bundle.content.dsseEnvelope;
console.log(JSON.stringify({
    type: bundle.mediaType, kind: bundle.verificationMaterial.content.$case,
    dsse: isBundleWithDsseEnvelope(bundle), key: isBundleWithPublicKey(bundle),
    hint: bundle.verificationMaterial.content.publicKey?.hint,
    certificates: bundle.verificationMaterial.content.x509CertificateChain?.certificates.length,
    payload: envelope.payload.toString('latin1'), payloadType: envelope.payloadType,
    again: what == 'whole' ? bundleToJSON(bundle) : Bundle.toJSON(bundle),
}));
"""


@pytest.fixture
def read():
    program = Path(os.environ['NPM_CLIENT']) / 'client.mjs'
    program.write_text(CLIENT)

    def call(what, path):
        p = run('node', program, what, path)
        assert p.returncode == 0, p.stderr
        return json.loads(p.stdout)
    return call


def check(got, text, carton):
    assert got['type'] == 'application/vnd.dev.sigstore.bundle.v0.3+json' and got['dsse']
    assert got['payloadType'] == 'application/vnd.in-toto+json'
    assert got['payload'].encode('latin1') == payload(carton.hashes())
    # all that we write is known there; an empty text or list may be left out
    again, ours = got['again'], json.loads(text)
    assert again['dsseEnvelope']['payload'] == ours['dsseEnvelope']['payload']
    assert again['dsseEnvelope']['signatures'][0]['sig'] == ours['dsseEnvelope']['signatures'][0]['sig']
    assert {k: v for k, v in again['verificationMaterial'].items() if v} == \
        {k: v for k, v in ours['verificationMaterial'].items() if v}


@pytest.mark.parametrize('curve', oms.CURVES)
def test_key(work, read, curve):
    c = Carton().add('model/ü', b'1')
    c.write(work / 'm.carton')
    key = oms.Key(work, curve=curve)
    assert ctl('sign', 'm.carton', f'--key={key.path}', cwd=work).returncode == 0
    got = read('whole', work / 'm.carton.sig')
    assert got['key'] and len(got['hint']) == 64
    check(got, (work / 'm.carton.sig').read_text(), c)


def test_certificates(work, read):
    """A chain of certificates is a part of the format, but not of what Sigstore's own verifier takes in 0.3."""
    c = Carton().add('model/a', b'1')
    c.write(work / 'm.carton')
    key, root = oms.Key(work), oms.Authority(work)
    pems = chain(work / 'chain.pem', root.certify(key, '/CN=me', oms.LEAF, root), root.cert)
    assert ctl('sign', 'm.carton', f'--key={key.path}', f'--cert={pems}', cwd=work).returncode == 0
    got = read('parts', work / 'm.carton.sig')
    assert (got['kind'], got['certificates']) == ('x509CertificateChain', 2)
    check(got, (work / 'm.carton.sig').read_text(), c)
