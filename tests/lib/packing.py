# SPDX-License-Identifier: Apache-2.0
"""Runs cartonctl pack and the like: what they make is whole and verified, or nothing is left."""
import hashlib
import io
import os
import zipfile
from pathlib import Path

from harness import ctl

COMMIT = '0123456789abcdef0123456789abcdef01234567'


def zipped(*names):
    """The bytes of a zip file with entries of these names."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w') as z:
        for name in names:
            z.writestr(name, b'' if name.endswith('/') else b'x')
    return out.getvalue()


def pack(*words, note='', **kw):
    """Runs it; the model hash. All that it says is one line with `note` in it, if there is one."""
    p = ctl(*words, **kw)
    assert p.returncode == 0 and p.stderr.count('\n') == bool(note) and note in p.stderr, p.stderr
    assert len(p.stdout) == 65, p.stdout
    return p.stdout.strip()


def verified(path, *options):
    """All that is accepted passes `verify` without a line."""
    p = ctl('verify', *options, path)
    assert p.returncode == 0 and p.stdout.startswith('ok:') and p.stdout.count('\n') == 1 and p.stderr == '', \
        p.stdout + p.stderr


def refused(out, *words, status=1, old=None, **kw):
    """Nothing is left, or what was there; the messages."""
    out = Path(out)
    before = sorted(os.listdir(out.parent))
    p = ctl(*words, **kw)
    assert p.returncode == status and p.stdout == '', p.stdout + p.stderr
    assert sorted(os.listdir(out.parent)) == before
    if old is not None:
        assert out.read_bytes() == old
    else:
        assert not os.path.lexists(out)
    return p.stderr


def files_of(carton):
    p = ctl('ls', '-0', carton)
    assert p.returncode == 0, p.stderr
    return set(p.stdout.split('\0')[:-1]) - {'MANIFEST', 'carton.toml'}


def hub_cache(root, files, revision=True):
    """As huggingface_hub lays it out; the directory of the snapshot."""
    repo = root / 'models--org--name'
    snapshot = repo / 'snapshots' / COMMIT
    for name, data in files.items():
        blob = repo / 'blobs' / hashlib.sha256(data).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(os.path.relpath(blob, (snapshot / name).parent), snapshot / name)
    if revision:
        (repo / 'refs').mkdir()
        (repo / 'refs/main').write_text(COMMIT)
    return snapshot
