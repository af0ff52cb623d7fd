# SPDX-License-Identifier: Apache-2.0
"""What cartonctl sign has to write, verified by openssl alone (tools/oms). Keys and authorities are those of oms.py."""
import base64
import json

import oms
from harness import ROOT, run

OMS = ROOT / 'tests/tools/oms'
LEFT_OUT = ['.git', '.gitattributes', '.github', '.gitignore']
OF_CARTON = ['LINKS', 'MANIFEST', 'misc/model.sig']


def payload(files, model='m.carton', ignored=OF_CARTON, symlinks=False):
    """The bytes that are signed of {name: sha256 in hex}, with no space that means nothing."""
    resources = oms.listing(files)
    st = oms.statement(resources)
    st['subject'][0]['name'] = model
    st['predicate']['serialization'] |= {'allow_symlinks': symlinks, 'ignore_paths': [*LEFT_OUT, *ignored]}
    return json.dumps(st, separators=(',', ':'), ensure_ascii=False).encode()


def verified(bundle, *trusted):
    """The signed bytes of the bundle at a path: verified by openssl with a public key, or with '--ca' and roots."""
    p = run(OMS, 'verify', *trusted, input=bundle.read_text(), stdin=None)
    assert p.returncode == 0, p.stderr
    data = p.stdout.encode()
    assert base64.b64decode(json.loads(bundle.read_text())['dsseEnvelope']['payload']) == data
    return data


def chain(path, *pems):
    path.write_text(''.join(p.read_text() for p in pems))
    return path
