# SPDX-License-Identifier: Apache-2.0
"""What is no carton: one line says what it is, and what to do."""
import gzip
import io
import os
import pickle
import tarfile
import unicodedata

import pytest

from harness import CARTONFS, IS_ROOT, NOBODY, ctl, run
from packing import zipped
from tensorfiles import weights
from zipwriter import sample

PACK = 'cartonctl init DIR and cartonctl pack DIR OUT.carton'
PUT, UNPACK = f'put it into a directory DIR, then run {PACK}', f'unpack it to a directory DIR, then run {PACK}'


def tarred():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w') as t:
        t.addfile(tarfile.TarInfo('a'))
    return out.getvalue()


MISSING = 'has no MANIFEST, so it is not a carton: '
HTML = 'is an HTML page: the URL is wrong, or needs a login; a repository of a hub is hf://ORG/REPO'
PICKLE = 'is a pickle, which runs code when it is loaded: save the model as safetensors'
FILES = {
    'gguf': (b'GGUF\3\0\0\0' + bytes(1000), f'is a GGUF model, not a carton: {PUT}'),
    'zip': (zipped('model/a', 'b'), MISSING + UNPACK),
    'torch zip': (zipped('archive/data.pkl', 'archive/data/0'), MISSING + 'it is a checkpoint of PyTorch and ' + PICKLE),
    'html': (b'\n <!DOCTYPE HTML><html>', HTML),
    'html without doctype': (b'<HTML lang=en>' + b'x' * 300000, HTML),
    'xml': (b'<?xml version="1.0"?><Error/>', 'is an XML text, perhaps an error of its server: is the URL right?'),
    'tar': (tarred(), f'is a tar archive, not a carton: {UNPACK}'),
    'tar.gz': (gzip.compress(tarred()), f'is a gzip file, not a carton: {UNPACK}'),
    'zstd': (b'\x28\xb5\x2f\xfd' + bytes(20), f'is a zstd file, not a carton: {UNPACK}'),
    'pickle': (pickle.dumps({'a': 1}), PICKLE),
    'old torch': (pickle.dumps(0x1950a86a20f9469cfc6c, protocol=2), PICKLE),
    'empty': (b'', 'is empty: was it downloaded to its end?'),
    'lfs': (b'version https://git-lfs.github.com/spec/v1\noid sha256:' + b'0' * 64 + b'\nsize 5\n',
            'is a git-lfs pointer, not the file: run git lfs pull, or cartonctl import hf://ORG/REPO OUT.carton'),
    'safetensors': (weights(a=b'1234'), 'is a safetensors file: with a name in .safetensors it can be mounted'),
    'hdf5': (b'\x89HDF\r\n\x1a\n' + bytes(100), f'is an HDF5 file, not a carton: {PUT}'),
    'other': (b'no zip at all', 'is not a zip file, or was cut off: it has no end of central directory record; '
                                'was it downloaded to its end?'),
}


@pytest.mark.parametrize('name', FILES)
def test_files(work, name):
    data, says = FILES[name]
    (work / 'x').write_bytes(data)
    p = ctl('ls', work / 'x')
    assert (p.returncode, p.stdout, p.stderr) == (1, '', f'cartonctl: {work}/x: {says}\n')


def test_directories(work):
    (work / 'd').mkdir()
    (work / 'd/model.safetensors').write_bytes(weights(a=b'1234'))
    (work / 'd/new\nline').touch()     # no name of a carton, which this is not
    p = ctl('ls', work / 'd')
    assert p.stderr == f'cartonctl: {work}/d: {MISSING}run {PACK}\n'
    (work / 'd/carton.toml').write_text('spec_version = 1\n')
    p = ctl('ls', work / 'd')
    assert p.stderr == f'cartonctl: {work}/d: {MISSING}run cartonctl pack DIR OUT.carton\n'


@pytest.mark.parametrize('names, where', [
    (('m/MANIFEST', 'm/carton.toml', 'm/model/a'), 'm'), (('a/', 'a/b c/carton.toml', 'a/b c/MANIFEST'), 'a/b c'),
    (('m-main/carton.toml', 'm-main/model/', 'm-main/model/a'), 'm-main'),
    (('__MACOSX/m/._MANIFEST', 'm/MANIFEST', 'm/carton.toml', 'n/MANIFEST', 'n/carton.toml'), 'm'),
    (('m/MANIFEST', 'model/a'), None), (('m/carton.toml', 'n/MANIFEST'), None), (('m/xcarton.toml', 'm/MANIFEST'), None),
])
def test_directory_was_zipped(work, names, where):
    (work / 'x.zip').write_bytes(zipped(*names))
    p = ctl('ls', work / 'x.zip')
    says = MISSING + UNPACK if where is None else (
        f'has no MANIFEST, but a carton lies in {where}/: the directory was zipped, not what is in it; unpack it, then '
        f'run cartonctl pack {where} OUT.carton')
    assert (p.returncode, p.stderr) == (1, f'cartonctl: {work}/x.zip: {says}\n')


def test_carton_in_a_directory(work):
    """Who names the directory above it is told so; init and pack make a carton in a carton, and say that."""
    sample().unpack(work / 'd/m\nn')
    p = ctl('ls', work / 'd')
    assert p.returncode == 1 and 'has no MANIFEST, but a carton lies in m\\x0an/: name that directory\n' in p.stderr
    (work / 'd/m\nn').rename(work / 'd/m')
    says = ('model/m/carton.toml: there is a MANIFEST beside it, so model/m is a carton, and this makes a carton in a '
            'carton; to pack that one, name its directory\n')
    assert says in ctl('init', work / 'd').stderr
    assert says in ctl('pack', work / 'd', work / 'd.carton').stderr
    assert 'is a carton' not in ctl('pack', work / 'd/m', work / 'm.carton').stderr


@pytest.mark.parametrize('forms', [('NFD', 'NFC'), ('NFC', 'NFD')])
def test_names_in_another_normal_form(work, forms):
    """As where the zip was made on a Mac, and its MANIFEST was not."""
    zipped_form, listed = (f'model/{unicodedata.normalize(form, "größe 모델 データ")}' for form in forms)
    c = sample()
    c.add(listed, b'x')
    c.manifest = c.manifest_bytes()
    del c.entries[listed]
    c.add(zipped_form, b'x', listed=False)
    p = ctl('ls', c.write(work / 'm.carton'))
    assert p.returncode == 1 and len(p.stderr.splitlines()) == 2, p.stderr
    assert f'{listed}: is listed in MANIFEST, but what the carton has is this name with its characters composed in another way ' \
           in p.stderr
    del c.entries[zipped_form]
    p = ctl('ls', c.write(work / 'm.carton'))
    assert p.returncode == 1 and 'neither the carton nor LINKS has it' in p.stderr


def test_mount_says_it_in_one_line(work):
    (work / 'x').write_bytes(zipped('model/a'))
    (work / 'mnt').mkdir()
    p = run(CARTONFS, work / 'x', work / 'mnt')
    assert p.returncode != 0 and p.stderr == f'cartonfs: {work}/x: not mounted: {MISSING}{UNPACK}\n'


@pytest.mark.skipif(not IS_ROOT, reason='makes a file that another user cannot read')
def test_unreadable(work):
    """Whose it is, or that the way there is closed."""
    (work / 'd').mkdir()
    path = sample().write(work / 'd/m.carton')
    os.chmod(path, 0o600)
    p = ctl('ls', path, uid=NOBODY)
    says = f'cartonctl: {path}: cannot open: Permission denied: '
    assert (p.returncode, p.stdout) == (1, '')
    assert p.stderr == f'{says}it belongs to uid 0 with mode 0600, and this is uid {NOBODY}\n'
    os.chmod(work / 'd', 0o700)
    p = ctl('ls', path, uid=NOBODY)
    assert p.stderr == f'{says}a directory above it may not be entered by uid {NOBODY}\n'
