# SPDX-License-Identifier: Apache-2.0
"""
cartonctl pack, repack, link and embed. What they write is read by programs of others and by a mount, and
compared with the tree that it was made of; what they do not write must leave nothing behind.
"""
import contextlib
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import zipfile

import pytest
import zstandard

import chunkindex
import harness
import oms
import packerform
from harness import CARTONCTL, IS_ROOT, REFERENCE, ctl, environment, eventually, run, scan, sha_file
from origin import MIB
from packing import pack, refused, verified
from zipwriter import Carton, Sparse

TEXT = b''.join(b'line %d of a text that can be compressed\n' % i for i in range(30000))
NOISE = random.Random(7).randbytes(MIB + 17)
NAMES = ['model/ä/Ω 名前', 'model/a b=c', 'model/' + 'n' * 200, 'misc/🥳.png']
METHODS = {0: 'stored', 8: 'deflate', 93: 'zstd'}


def sample(**more):
    """A Carton of all that pack has to write: text, noise, no bytes, deep and odd names, links, a zip."""
    c = packerform.packed()
    del c.entries['LINKS']
    c.add('model/text', TEXT).add('model/noise', NOISE, mode=stat.S_IFREG | 0o755)
    c.add('misc/none').add('model/' + '/'.join('abcdefgh') + '/deep', b'x' * 5000)
    for i, name in enumerate(NAMES):
        c.add(name, b'%d' % i)
    c.symlink('misc/link to noise', '../model/noise').symlink('model/ä/up', '../text')
    # an end record of its own, near the end of the archive
    c.add('tensor_data/empty.zip', b'PK\5\6' + bytes(18))
    for name, data in more.items():
        c.add(name, data)
    return c


@pytest.fixture
def tree(work):
    """(the Carton, its files unpacked without MANIFEST)."""
    c = sample()
    c.manifest_entry = {'skip': True}
    return c, c.unpack(work / 'tree')


def methods(path):
    with zipfile.ZipFile(path) as z:
        return {i.filename: METHODS[i.compress_type] for i in z.infolist()}


# ---- what others read ----

def tree_of(path):
    """scan() of a directory, with what is executable."""
    out = scan(path, views=True)
    return {name: (*what, bool(os.stat(path / name).st_mode & 0o100)) if what[0] == 'file' else what
            for name, what in out.items()}


@pytest.mark.parametrize('compress', ['store', 'auto', 'zstd', 'zstd:19'])
def test_read_by_others(tree, work, compress):
    c, path = tree
    out = work / 'm.carton'
    assert pack('pack', f'--compress={compress}', path, out) == c.model_hash()
    verified(out)
    seven = '7zz' if shutil.which('7zz') else '7z'
    no_zstd = ['unzip'] + [seven] * ('ZSTD' not in run(seven, 'i').stdout)     # so that of Ubuntu 24.04
    want = tree_of(path)
    want['MANIFEST'] = ('file', len(c.manifest_bytes()),
                        hashlib.sha256(c.manifest_bytes()).hexdigest(), False)
    for name, words in (('bsdtar', ['bsdtar', '-xpf', out, '-C', work / 'bsdtar']),
                        (seven, [seven, 'x', '-snld', f'-o{work}/{seven}', out]),
                        ('unzip', ['unzip', '-q', out, '-d', work / 'unzip'])):
        if name in no_zstd and compress != 'store':
            continue
        os.mkdir(work / name)
        p = run(*words)
        assert p.returncode == 0, f'{name}: {p.stdout}{p.stderr}'
        assert tree_of(work / name) == want, name
    with zipfile.ZipFile(out) as z:
        assert [i.filename for i in z.infolist()][:-1] == sorted(z.namelist()[:-1], key=str.encode)
        assert z.namelist()[-1] == 'MANIFEST'
        for i in z.infolist():
            assert i.date_time == (1980, 1, 1, 0, 0, 0)
            if i.compress_type == 0:            # of Python's zipfile, 3.14 is the first to have zstd
                data = z.read(i)
                link = stat.S_ISLNK(i.external_attr >> 16)
                assert data == (c.entries[i.filename].data if link else c.files()[i.filename])
    if compress == 'store':
        assert run('unzip', '-tq', out).returncode == 0


def test_read_by_a_mount(tree, work, mount):
    c, path = tree
    pack('pack', path, work / 'm.carton')
    with mount(work / 'm.carton') as m:
        got = m.do(scan, m.path)
        assert got.pop('MANIFEST')[1] == len(c.manifest_bytes())
        assert got == scan(path)
        pack('pack', path, work / 'again.carton')
        shutil.copytree(m.path, work / 'copy', symlinks=True,
                        ignore=lambda d, names: ['views'] if d == m.path else [])
    # what a mount shows can be packed again, its MANIFEST too
    pack('pack', work / 'copy', work / 'copy.carton')
    assert (work / 'copy.carton').read_bytes() == (work / 'm.carton').read_bytes()


@pytest.mark.needs_reference
def test_reference_packer(work):
    """The unpacked carton of the reference packer has its model hash again, however it is stored."""
    want = ctl('hash', REFERENCE).stdout.strip()
    os.mkdir(work / 'tree')
    assert run('bsdtar', '-xf', REFERENCE, '-C', work / 'tree').returncode == 0
    assert run('chmod', '-R', 'u=rwX', work / 'tree').returncode == 0
    for compress in ('auto', 'store', 'zstd'):
        out = work / f'{compress}.carton'
        assert pack('pack', f'--compress={compress}', work / 'tree', out) == want
        verified(out)
        assert pack('repack', f'--compress={compress}', REFERENCE, out) == want
        verified(out)


# ---- what it writes ----

def test_choice_and_alignment(tree, work):
    c, path = tree
    for align in (1, 2, 4, 512, 4096, 32768):
        out = work / 'm.carton'
        pack('pack', f'--align={align}', path, out)
        verified(out)
        data = out.read_bytes()
        with zipfile.ZipFile(out) as z:
            for i in z.infolist():
                at = i.header_offset + 30 + sum(data[i.header_offset + 26 + k] << (k % 2 * 8) for k in range(4))
                if i.compress_type == 0 and i.file_size >= align and i.filename != 'MANIFEST' \
                        and not stat.S_ISLNK(i.external_attr >> 16):
                    assert at % align == 0, (i.filename, align)
                if i.compress_type == 0:
                    assert i.file_size == i.compress_size
                else:
                    frame = data[at:at + i.compress_size]
                    d = zstandard.ZstdDecompressor().decompressobj()
                    assert d.decompress(frame) == c.files()[i.filename] and not d.unused_data
                    assert i.compress_size <= i.file_size * 19 // 20
    how = methods(out)
    assert how['model/text'] == 'zstd' and how['model/noise'] == 'stored' and how['misc/none'] == 'stored'
    assert how['misc/latest.png'] == 'stored'
    pack('pack', '--compress=zstd', path, out)
    how = methods(out)
    assert how['model/noise'] == 'zstd' and how['MANIFEST'] == how['misc/latest.png'] == 'stored'
    pack('pack', '--compress=store', path, out)
    assert set(methods(out).values()) == {'stored'}


def test_the_same_bytes(tree, work):
    """Whatever the number of threads, the memory, the order and the times of files."""
    _, path = tree
    # large files: one that is compressed in parts by several threads, and two that are sampled
    (path / 'model/big').write_bytes(TEXT * 8)
    (path / 'model/bigger').write_bytes(NOISE * 9)
    (path / 'misc/mixed').write_bytes(TEXT * 3 + NOISE * 6)
    other = work / 'other'
    for name in reversed(sorted(scan(path))):
        full = path / name
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        if full.is_symlink():
            os.symlink(os.readlink(full), other / name)
        elif full.is_file():
            (other / name).write_bytes(full.read_bytes())
            os.chmod(other / name, 0o700 if os.stat(full).st_mode & 0o100 else 0o600)
            os.utime(other / name, (12345, 67890))
    for compress in ('store', 'auto', 'zstd:1'):
        sums = set()
        for words, source in ((['--jobs=1'], path), (['--jobs=7'], other), (['--memory=20M'], path),
                              (['--jobs=2'], other)):
            out = work / 'm.carton'
            pack('pack', f'--compress={compress}', *words, source, out)
            sums.add(sha_file(out))
        assert len(sums) == 1, compress
        verified(out)
    how = methods(work / 'm.carton')
    assert how['model/big'] == 'zstd'


def test_fixture(work):
    """Stored cartons are the same on every machine: this one was made once."""
    root = work / 'tree'
    for name, data in {'carton.toml': Carton().entries['carton.toml'].data, 'model/ä': b'1' * 5000,
                       'model/b.sh': b'#!/bin/sh\n', 'misc/none': b''}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    os.chmod(root / 'model/b.sh', 0o755)
    os.symlink('../model/ä', root / 'misc/link')
    assert pack('pack', '--compress=store', root, work / 'm.carton') == MODEL
    assert sha_file(work / 'm.carton') == FIXTURE


MODEL = '7a8c6766470ba822cd8ce29c40c42b1e84df18151135200469ea40c5131980b0'
FIXTURE = '76b57e01130e605fd541c4d502b4d07b10fc5496e5454f25b88b0a9586029301'


@pytest.mark.slow
def test_many_files(work):
    """More than 65535 entries: the end record is that of zip64."""
    root = work / 'tree'
    for i in range(100):
        os.makedirs(root / f'model/{i}')
        for k in range(1000):
            os.close(os.open(root / f'model/{i}/{k}', os.O_CREAT | os.O_WRONLY))
        (root / f'model/{i}/999').write_bytes(b'%d' % i)
    (root / 'carton.toml').write_bytes(Carton().entries['carton.toml'].data)
    pack('pack', root, work / 'm.carton', timeout=300)
    verified(work / 'm.carton')
    with zipfile.ZipFile(work / 'm.carton') as z:
        assert len(z.namelist()) == 100002
        assert z.read('model/99/999') == b'99'
    assert b'PK\6\6' in (work / 'm.carton').read_bytes()[-100:]


@pytest.mark.slow
def test_large_file(work):
    """Offsets and sizes over 4 GiB, both of Stored files and of those that shrink."""
    root = work / 'tree'
    os.makedirs(root / 'model')
    (root / 'carton.toml').write_bytes(Carton().entries['carton.toml'].data)
    with open(root / 'model/big', 'wb') as f:
        f.truncate((4 << 30) + 5)
        f.seek((4 << 30) + 1)
        f.write(b'end')
    (root / 'model/zz').write_bytes(b'behind it')
    p = ctl('pack', '--compress=store', root, work / 'm.carton', timeout=300)
    lines = p.stderr.splitlines()
    assert p.returncode == 0 and len(lines) == 9, p.stderr
    assert [(i, ln) for i, ln in enumerate(lines) if ln != f'cartonctl: pack: {i + 1}0% of 4.0 GiB'] == [], p.stderr
    p = run('unzip', '-tq', work / 'm.carton', timeout=300)
    assert p.returncode == 0, p.stdout
    with zipfile.ZipFile(work / 'm.carton') as z:
        assert z.getinfo('model/zz').header_offset > 4 << 30 and z.read('model/zz') == b'behind it'
    p = ctl('repack', '--compress=zstd', work / 'm.carton', work / 'z.carton', timeout=300)
    assert p.returncode == 0, p.stderr
    assert os.path.getsize(work / 'z.carton') < 16 * MIB
    for name in ('m', 'z'):
        p = run(shutil.which('7zz') or '7z', 't', work / f'{name}.carton', timeout=300)
        assert p.returncode == 0, p.stdout


# ---- what it refuses ----

def refused_tree(work, path, **kw):
    out = work / 'out' / 'm.carton'
    out.parent.mkdir(exist_ok=True)
    return refused(out, 'pack', path, out, **kw)


@pytest.mark.parametrize('name, target, text', [
    ('model/l', '/etc/passwd', 'model/l: is a symlink that does not lead'),
    ('model/l', '../../outside', 'model/l: is a symlink that does not lead'),
    ('model/l', 'l', 'model/l: is a symlink that does not lead'),
    ('model/l', 'gone', 'model/l: is a symlink that does not lead'),
    ('model/l', '../misc', 'model/l: is a symlink to a directory, and those of a carton lead to files'),
])
def test_refused_symlinks(tree, work, name, target, text):
    _, path = tree
    (work / 'outside').write_bytes(b'secret')
    os.symlink(target, path / name)
    assert text in refused_tree(work, path)


def test_refused_kinds(tree, work):
    _, path = tree
    os.mkfifo(path / 'model/fifo')
    assert 'model/fifo: is a fifo' in refused_tree(work, path)
    os.unlink(path / 'model/fifo')
    with socket.socket(socket.AF_UNIX) as s:
        at = os.getcwd()
        os.chdir(path)
        s.bind('model/socket')
        os.chdir(at)
        assert 'model/socket: is a fifo, device or socket' in refused_tree(work, path)
        os.unlink(path / 'model/socket')
    if IS_ROOT:
        os.mknod(path / 'model/null', stat.S_IFCHR | 0o666, os.makedev(1, 3))
        assert 'model/null: is a fifo, device' in refused_tree(work, path)


@pytest.mark.parametrize('name', [b'model/\xff', b'model/a\nb', b'model/back\\slash', b'model/\x7f',
                                  b'model/' + b'/'.join([b'd' * 250] * 17) + b'/f'])
def test_refused_names(tree, work, name):
    _, path = tree
    full = os.path.join(os.fsencode(path), name)
    if len(name) < 4096:
        with open(full, 'wb'):
            pass
    else:
        # deeper than a path can name
        at = os.open(path / 'model', os.O_RDONLY)
        for part in name.split(b'/')[1:-1]:
            os.mkdir(part, dir_fd=at)
            at, last = os.open(part, os.O_RDONLY, dir_fd=at), at
            os.close(last)
        os.close(os.open(b'f', os.O_CREAT, dir_fd=at))
        os.close(at)
    assert 'model/' in refused_tree(work, path)
    run('rm', '-rf', path)


@pytest.mark.parametrize('name, text', [('README.md', 'README.md: is not a part of a carton'),
                                        ('.github/config', '.github: is not a part of a carton'),
                                        ('LINKS', 'LINKS: is there'), ('MANIFEST/x', 'MANIFEST: is not')])
def test_refused_parts(tree, work, name, text):
    _, path = tree
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_bytes(b'')
    said = refused_tree(work, path)
    assert text in said and said.count('\n') == 2


@pytest.mark.parametrize('change, text', [
    (lambda t: t.replace("[runner", "[other"), 'carton.toml: has no [runner]'),
    (lambda t: t.replace("spec_version = 1", "spec_version = 2"), 'carton.toml'),
    (lambda t: t.replace("'=3.11'", "'no version'"), 'carton.toml: line'),
    (lambda t: t.replace("@misc/_example_misc_file_0", "@misc/gone"), '@misc/gone'),
    (lambda t: t.replace("@tensor_data/_tensor_2", "@tensor_data/gone"), 'carton.toml: line'),
    (lambda t: t + 'x = [', 'carton.toml'),
])
def test_refused_by_the_loader(tree, work, change, text):
    _, path = tree
    toml = path / 'carton.toml'
    toml.write_text(change(toml.read_text()))
    assert text in refused_tree(work, path)


def test_refused_tensors(tree, work):
    _, path = tree
    os.unlink(path / 'tensor_data/tensor_2.bin')
    assert 'tensor_data/index.toml: line' in refused_tree(work, path)
    for name in ('model', 'misc', 'tensor_data'):
        shutil.rmtree(path / name)
    (path / 'carton.toml').write_bytes(Carton().entries['carton.toml'].data)
    assert 'model: is missing' in refused_tree(work, path)
    os.unlink(path / 'carton.toml')
    assert 'carton.toml: is missing' in refused_tree(work, path)


def test_refused_usage(tree, work):
    _, path = tree
    out = work / 'm.carton'
    for words, text in ((['pack', path], 'OUT is missing'), (['pack'], 'DIRECTORY is missing'),
                        (['pack', path, out, 'more'], 'too many arguments: more'),
                        (['pack', out, path], f'OUT is a directory: {path}; DIRECTORY comes first'),
                        (['pack', '--compress=best', path, out], 'expected auto, store'),
                        (['pack', '--compress=zstd:20', path, out], 'expected auto, store'),
                        (['pack', '--compress=store:3', path, out], 'expected auto, store'),
                        (['pack', '--align=3', path, out], 'a power of two'),
                        (['pack', '--align=65536', path, out], 'a power of two'),
                        (['pack', '--jobs=0', path, out], 'expected a number'),
                        (['pack', '--url=http://h/{sha256}', path, out], 'pack has no option --url'),
                        (['link', path, out], "--url='https://HOST/{sha256}' is missing"),
                        (['link', '--url=http://h/', path, out], 'http://h/: has no {sha256}'),
                        (['link', '--url=ftp://h/{sha256}', path, out], 'ftp://h/{sha256}'),
                        (['ls', '--jobs=2', path], 'ls has no option'),
                        (['pack', path, work / 'none/m.carton'], 'none/m.carton: cannot open its directory'),
                        (['pack', path, work], 'is there and is not a regular file'),
                        (['pack', path, f'{work}/x/'], 'is not the name of a file'),
                        (['pack', path, path / 'm.carton'], f'lies in {path}, of which it is made'),
                        (['pack', f'{path}/', path / 'model/../model/m.carton'], f'lies in {path}, of'),
                        (['pack', work / 'gone', out], 'gone: cannot open'),
                        (['pack', path / 'carton.toml', out], 'is not a directory')):
        assert text in refused(out, *words), words
    os.symlink('carton.toml', out)
    p = ctl('pack', path, out)
    assert p.returncode == 1 and 'is there and is not a regular file' in p.stderr and os.path.islink(out)


@pytest.mark.parametrize('kind, text', [('shrink 1', ''), ('eio 1', 'Input/output error'),
                                         ('shrink 100000', '')])
def test_source_disk(tree, work, disk, kind, text):
    """A source that ends early, or cannot be read."""
    _, path = tree
    shutil.copytree(path, disk.files / 'tree', symlinks=True)
    out = work / 'm.carton'
    disk.set(kind, 'noise')
    if 'eio' in kind:
        assert text in refused(out, 'pack', disk.path / 'tree', out)
    elif ctl('pack', disk.path / 'tree', out).returncode == 0:      # it was that short when listed
        verified(out)
    disk.set('none')
    pack('pack', disk.path / 'tree', out)
    verified(out)


def pack_that_reads(work, disk, path, part):
    """A process that packs the tree on a disk that holds the reads of files that contain `part`, and is in one."""
    shutil.copytree(path, disk.files / 'tree', symlinks=True)
    disk.set('hold 1', part)
    p = subprocess.Popen([CARTONCTL, 'pack', '--jobs=1', '--compress=store', disk.path / 'tree',
                          work / 'm.carton'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env=environment())

    def reads():
        with contextlib.suppress(OSError):
            return any(os.readlink(f'/proc/{p.pid}/fd/{f}').endswith(part)
                       for f in os.listdir(f'/proc/{p.pid}/fd'))
    eventually('it is read', reads)
    return p


@pytest.mark.parametrize('how', ['shrink', 'grow', 'change'])
def test_changed_while_read(tree, work, disk, how):
    _, path = tree
    p = pack_that_reads(work, disk, path, 'model/noise')
    file = disk.files / 'tree/model/noise'
    if how == 'shrink':
        os.truncate(file, 1000)
    else:
        with open(file, 'ab' if how == 'grow' else 'r+b') as f:
            f.write(b'more')
    disk.set('none')
    out, err = p.communicate()
    now = file.read_bytes()
    if p.returncode == 0:       # it was opened, but not yet looked at: what is packed is the file as it is now
        assert how == 'change'
        verified(work / 'm.carton')
        with zipfile.ZipFile(work / 'm.carton') as z:
            assert z.read('model/noise') == now
        return
    assert p.returncode == 1 and out == '' and not (work / 'm.carton').exists(), err
    # noticed when it is opened, while it is read, or at its end
    assert re.search('model/noise: (had .* when listed|became shorter|has changed)', err), err


# ---- whole or not at all ----

OLD = b'what was there'


@pytest.mark.needs_plain_build
@pytest.mark.parametrize('old', [False, True])
def test_killed_while_it_is_written(tree, work, killer, old):
    """In headers, in data, in the directory."""
    _, path = tree
    out = work / 'out/m.carton'
    out.parent.mkdir()
    if old:
        out.write_bytes(OLD)
    for call in (1, 2, 3, 5, 8, 20, 33, 40):
        for when in 'before', 'after':
            p = run(CARTONCTL, 'pack', path, out, env=dict(LD_PRELOAD=str(killer), KILL_AT=f'pwrite64 {call} {when}'))
            assert p.returncode == -signal.SIGKILL, (call, p.stderr)
            assert os.listdir(out.parent) == (['m.carton'] if old else [])
            assert not old or out.read_bytes() == OLD
    pack('pack', path, out)
    verified(out)


LIMIT = 'the limit of the size of files is met; raise it: ulimit -f, or LimitFSIZE= of a unit\n'


def limited(n):
    """For Popen: no file may have more bytes."""
    return dict(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)))


@pytest.mark.parametrize('old', [False, True])
def test_limit_of_the_size_of_files(tree, work, old):
    """At any byte: in headers, in data, in the directory. It is said once, and nothing is left."""
    _, path = tree
    out = work / 'out/m.carton'
    out.parent.mkdir()
    pack('pack', path, work / 'm.carton')
    size = os.path.getsize(work / 'm.carton')
    if old:
        out.write_bytes(OLD)
    for limit in (0, 1, 5000, size // 2, size - 70000, size - 3000, size - 30, size - 1):
        err = refused(out, 'pack', path, out, old=OLD if old else None, **limited(limit))
        assert re.fullmatch(f'cartonctl: .*cannot be written: {LIMIT}cartonctl: {out} was not made\n', err), (limit, err)
    pack('pack', path, out, **limited(size))
    verified(out)


@pytest.mark.parametrize('command', ['repack', 'embed', 'link', 'objects', 'sign', 'extract', 'cat'])
def test_limit_of_the_size_of_files_of_others(tree, work, command):
    """All that writes: a line says which file, and what helps; nothing half-written stays."""
    _, path = tree
    carton, out = work / 'm.carton', work / 'out/m'
    out.parent.mkdir()
    pack('pack', path, carton)
    words = {'repack': ['repack', '--compress=store', carton, out], 'embed': ['embed', carton, out],
             'link': ['link', '--url=https://x.org/{sha256}', carton, out, 'model/a b=c'],
             'objects': ['link', '--url=https://x.org/{sha256}', f'--objects={work}/objects', carton, out],
             'sign': ['sign', f'--key={oms.Key(work).path}', f'--output={out}', carton],
             'extract': ['extract', carton, out], 'cat': ['cat', carton, 'model/noise']}[command]
    if command == 'cat':
        p = run('sh', '-c', 'ulimit -f 20; "$@" >"$0"', out, CARTONCTL, *words)
        assert p.returncode == 1 and p.stderr.endswith(f'cartonctl: cannot write: {LIMIT}'), p.stderr
        assert os.path.getsize(out) <= 20 * 1024
        return
    limit = 500 if command == 'sign' else 20000
    if command == 'extract':
        p = ctl(*words, **limited(limit))
        assert p.returncode == 1 and f'cartonctl: model/noise: cannot be written in {out}: {LIMIT}' in p.stderr, p.stderr
        left = {str(f.relative_to(out)) for f in out.rglob('*') if f.is_file()}
        assert 'MANIFEST' not in left and 'model/noise' not in left and 'model/a b=c' in left
        assert not [f for f in left if f.startswith('.')]
        return
    err = refused(out, *words, **limited(limit))
    assert err.count(LIMIT) == 1 and 'cannot be written: ' in err, err
    assert command != 'objects' or all(hashlib.sha256(f.read_bytes()).hexdigest() == f.name
                                       for f in (work / 'objects').iterdir())


@pytest.fixture(scope='module')
def notmpfile(session_dir):
    """A library to preload, with which no file system has unnamed files."""
    out = session_dir / 'notmpfile.so'
    p = run('cc', '-shared', '-fPIC', '-o', out, harness.PRELOAD / 'notmpfile.c')
    assert p.returncode == 0, p.stderr
    return dict(LD_PRELOAD=str(out))


@pytest.mark.needs_root
@pytest.mark.needs_plain_build
@pytest.mark.parametrize('command', ['pack', 'repack', 'embed', 'link'])
def test_temporary_file_of_another_user(tree, work, notmpfile, command):
    """What he has made beforehand is his: he could change it when it was verified, until it is published."""
    _, path = tree
    out = work / 'shared'
    out.mkdir()
    out.chmod(0o1777)
    source = path
    if command != 'pack':
        source = work / 'm.carton'
        assert ctl('pack', path, source).returncode == 0
    more = ['--url=https://example.com/{sha256}'] if command == 'link' else []
    new = out / '.m.carton.new'
    new.write_bytes(b'')
    new.chmod(0o666)
    os.chown(new, harness.NOBODY, harness.NOBODY)
    p = ctl(command, source, out / 'm.carton', *more, env=notmpfile)
    assert p.returncode == 1 and f'belongs to uid {harness.NOBODY}' in p.stderr, p.stderr
    assert os.listdir(out) == ['.m.carton.new'] and new.read_bytes() == b''
    # one that a killed process of the same user has left is removed, and not written to
    os.chown(new, 0, 0)
    with open(new, 'rb') as before:
        p = ctl(command, source, out / 'm.carton', *more, env=notmpfile)
        assert p.returncode == 0, p.stderr
        assert before.read() == b'' and os.listdir(out) == ['m.carton']
    verified(out / 'm.carton') if command != 'link' else None


@pytest.mark.needs_plain_build
@pytest.mark.parametrize('call', ['fsync 1', 'linkat 1', 'linkat 2', 'renameat 1', 'fsync 2'])
@pytest.mark.parametrize('when', ['before', 'after'])
@pytest.mark.parametrize('old', [False, True])
def test_killed_while_it_gets_its_name(tree, work, killer, call, when, old):
    """Old or new, and both whole. Only between link and rename the new one has another name, for one call."""
    _, path = tree
    out = work / 'out/m.carton'
    out.parent.mkdir()
    if old:
        out.write_bytes(OLD)
    p = run(CARTONCTL, 'pack', path, out, env=dict(LD_PRELOAD=str(killer), KILL_AT=f'{call} {when}'))
    if p.returncode == 0:
        assert not old and call in ('linkat 2', 'renameat 1')
        return
    assert p.returncode == -signal.SIGKILL, p.stderr
    published = (call, when) in {('linkat 1', 'after'), ('fsync 2', 'before'), ('fsync 2', 'after')} and not old \
        or old and (call, when) in {('renameat 1', 'after'), ('fsync 2', 'before'), ('fsync 2', 'after')}
    between = old and (call, when) in {('linkat 2', 'after'), ('renameat 1', 'before')}
    assert sorted(os.listdir(out.parent)) == ['.m.carton.new'] * between + ['m.carton'] * (old or published)
    if published:
        verified(out)
    elif old:
        assert out.read_bytes() == OLD
    # and the next one removes it
    pack('pack', path, out)
    assert os.listdir(out.parent) == ['m.carton']
    verified(out)


@pytest.mark.needs_root
@pytest.mark.parametrize('old', [False, True])
def test_full_disk(tree, work, old):
    _, path = tree
    for kib in (4, 64, 1024):
        disk = work / f'disk{kib}'
        disk.mkdir()
        assert run('mount', '-t', 'tmpfs', '-o', f'size={kib}k,mode=0755', 'none', disk).returncode == 0
        try:
            out = disk / 'm.carton'
            if old:
                out.write_bytes(OLD)
            err = refused(out, 'pack', path, out, old=OLD if old else None)
            assert err.count('No space left on device') == 1 and 'm.carton was not made' in err
        finally:
            run('umount', disk)


@pytest.mark.parametrize('kind', ['full 1', 'full 5', 'full 40', 'write 1', 'write 7', 'dead'])
def test_output_disk(tree, disk, kind):
    """A disk without unnamed files, that fails: the temporary name is removed, or taken over."""
    _, path = tree
    out = disk.path / 'm.carton'
    out.write_bytes(OLD)
    disk.set(kind)
    p = ctl('pack', path, out)
    disk.set('none')
    assert p.returncode == 1 and p.stdout == '' and 'was not made' in p.stderr, p.stderr
    assert out.read_bytes() == OLD
    pack('pack', path, out)
    assert os.listdir(disk.files) == ['m.carton']
    verified(disk.files / 'm.carton')


# ---- repack ----

def test_repack(tree, work):
    c, path = tree
    first = pack('pack', '--compress=zstd:5', path, work / 'a.carton')
    frames = {}
    for name, words in (('keep', []), ('zstd', ['--compress=zstd']), ('zstd5', ['--compress=zstd:5'])):
        assert pack('repack', *words, work / 'a.carton', work / 'b.carton') == first
        frames[name] = (work / 'b.carton').read_bytes()
    # copied as they are, or the same again
    assert set(frames.values()) == {(work / 'a.carton').read_bytes()}
    for words, out in ((['--compress=store'], 's'), (['--compress=auto'], 'auto'), (['--align=1'], '1')):
        assert pack('repack', *words, work / 'a.carton', work / f'{out}.carton') == first
        verified(work / f'{out}.carton')
    assert set(methods(work / 's.carton').values()) == {'stored'}
    how = methods(work / 'auto.carton')
    assert how['model/noise'] == 'stored' and how['model/text'] == 'zstd'
    # from Stored to what pack writes
    pack('pack', path, work / 'p.carton')
    assert pack('repack', '--compress=auto', work / 's.carton', work / 'p2.carton') == first
    assert (work / 'p2.carton').read_bytes() == (work / 'p.carton').read_bytes()
    # in its own place
    assert pack('repack', '--compress=store', work / 'p.carton', work / 'p.carton') == first
    assert (work / 'p.carton').read_bytes() == (work / 's.carton').read_bytes()


@pytest.mark.parametrize('method', ['stored', 'deflate', 'zstd'])
@pytest.mark.parametrize('descriptor', ['', 'sig', 'nosig64'])
def test_repack_others(work, method, descriptor):
    """Entries as other programs write them; MANIFEST stays as it is, in whatever order."""
    c = Carton(method=method)
    c.add('model/text', TEXT, descriptor=descriptor).add('model/noise', NOISE, descriptor=descriptor, level=1)
    c.manifest = b''.join(sorted(c.manifest_bytes().splitlines(True), reverse=True))
    c.write(work / 'a.carton')
    for compress in ([], ['--compress=auto'], ['--compress=store'], ['--compress=zstd']):
        assert pack('repack', *compress, work / 'a.carton', work / 'b.carton') == c.model_hash()
        p = ctl('verify', work / 'b.carton')
        assert p.stdout.splitlines()[0].startswith('MANIFEST: line 2 is not in alph') and p.stdout.count('\n') == 2
    how = methods(work / 'b.carton')
    assert how['model/text'] == how['model/noise'] == 'zstd'


@pytest.mark.parametrize('words', [[], ['--compress=store'], ['--compress=zstd:2'], ['--align=1']])
@pytest.mark.parametrize('method', ['stored', 'zstd'])
def test_repack_damaged(work, words, method):
    """Every byte is verified on the way, also of entries that are copied."""
    c = Carton(method=method).add('model/noise', NOISE, level=1).add('model/text', TEXT)
    c.change('model/text', sha='0' * 64)
    c.write(work / 'a.carton')
    out = work / 'b.carton'
    out.write_bytes(OLD)
    assert 'model/text: sha256 mismatch' in refused(out, 'repack', *words, work / 'a.carton', out, old=OLD)
    c = Carton(method=method).add('model/noise', NOISE, level=1)
    c.write(work / 'a.carton')
    with open(work / 'a.carton', 'r+b') as f:
        f.seek(c.placed['model/noise'].data + 500000)
        f.write(b'changed')
    assert 'model/noise: ' in refused(out, 'repack', *words, work / 'a.carton', out, old=OLD)


def test_repack_directory(tree, work):
    """An unpacked carton keeps its MANIFEST; one that lies is refused."""
    c, path = tree
    (path / 'MANIFEST').write_bytes(c.manifest_bytes())
    assert pack('repack', path, work / 'a.carton') == c.model_hash()
    os.unlink(path / 'MANIFEST')
    pack('pack', path, work / 'b.carton')
    assert (work / 'a.carton').read_bytes() == (work / 'b.carton').read_bytes()
    (path / 'MANIFEST').write_bytes(c.manifest_bytes())
    (path / 'model/text').write_bytes(TEXT[::-1])
    assert 'model/text: sha256 mismatch' in refused(work / 'c.carton', 'repack', path, work / 'c.carton')


def test_repack_url(nginx, work, cache):
    c = sample()
    c.write(nginx.root / 'm.carton')
    out = work / 'm.carton'
    assert pack('repack', cache.flag, '--compress=store', nginx.url('m.carton'), out) == c.model_hash()
    verified(out)
    assert set(methods(out).values()) == {'stored'}


# ---- link and embed ----

def linked_names(path):
    with zipfile.ZipFile(path) as z:
        return z.read('LINKS').decode(), set(z.namelist())


def test_link_and_embed(tree, nginx, work, cache, mount):
    c, path = tree
    os.chmod(path / 'model/noise', 0o644)       # LINKS knows no modes
    pack('pack', path, work / 'm.carton')
    before = (work / 'm.carton').read_bytes()
    objects = nginx.root / 'objects'
    url = nginx.url('objects/') + '{sha256}'
    out = work / 'l.carton'
    paths = ['model/noise', 'model/text', 'misc']
    assert pack('link', work / 'm.carton', out, f'--url={url}', '--url=https://other.example/{sha256}?a=%22b%22',
                f'--objects={objects}', *paths) == c.model_hash()
    text, names = linked_names(out)
    gone = {p for p in c.files() if p in paths or p.startswith('misc/') and p not in c.links()}
    assert names == set(c.entries) - gone | {'LINKS', 'MANIFEST'}
    sums = sorted({c.resolve(p).sha256() for p in gone})
    assert text == 'version = 1\n\n[urls]\n' + ''.join(
        f'{h} = ["{url.replace("{sha256}", h)}", "https://other.example/{h}?a=%22b%22"]\n' for h in sums
    ) + '\n[sizes]\n' + ''.join(f'{h} = {os.path.getsize(objects / h)}\n' for h in sums)
    assert sorted(os.listdir(objects)) == sums
    assert [h for h in sums if sha_file(objects / h) != h] == []
    verified(out, '--private-links', cache.flag)
    with mount(out, '-o', 'private_links', *cache.options) as m:
        got = m.do(scan, m.path)
        got.pop('MANIFEST')
        assert got == scan(path)
    # and back
    assert pack('embed', '--private-links', cache.flag, out, work / 'e.carton') == c.model_hash()
    assert (work / 'e.carton').read_bytes() == before
    # repack keeps LINKS as it is; link adds to it
    assert pack('repack', '--compress=store', out, work / 'r.carton') == c.model_hash()
    assert linked_names(work / 'r.carton') == (text, names)
    assert pack('link', out, work / 'r.carton', '--url=https://third.example/{sha256}', 'model/noise',
                'model/a b=c') == c.model_hash()
    more, _ = linked_names(work / 'r.carton')
    noise, small = c.entries['model/noise'].sha256(), c.entries['model/a b=c'].sha256()
    assert f'{noise} = ["https://third.example/{noise}", "{url.replace("{sha256}", noise)}", ' in more
    assert f'{small} = ["https://third.example/{small}"]\n' in more and len(more.splitlines()) == 2 * len(sums) + 7
    assert f'{small} = {len(c.entries["model/a b=c"].data)}\n' in more


def test_link_everything(tree, nginx, work, cache):
    c, path = tree
    pack('pack', path, work / 'm.carton')
    url = nginx.url('all/') + '{sha256}'
    pack('link', work / 'm.carton', work / 'l.carton', f'--url={url}', f'--objects={nginx.root}/all')
    _, names = linked_names(work / 'l.carton')
    assert names == {'carton.toml', 'MANIFEST', 'LINKS', *c.links()}
    assert pack('embed', '--private-links', cache.flag, work / 'l.carton', work / 'e.carton') == c.model_hash()
    verified(work / 'e.carton')


def test_link_refused(tree, work):
    _, path = tree
    pack('pack', path, work / 'm.carton')
    out = work / 'l.carton'
    for name, text in (('model/gone', 'is not in the carton'), ('carton.toml', 'has to stay'),
                       ('MANIFEST', 'has to stay'), ('misc/latest.png', 'is a symlink: name its file'),
                       ('', 'is not in the carton')):
        assert text in refused(out, 'link', work / 'm.carton', out, '--url=https://h/{sha256}', name)


def test_embed_refused(nginx, work, cache):
    """A file that its URL does not have, or has with other bytes."""
    c = Carton().add('model/m', NOISE, level=1)
    c.write(work / 'm.carton')
    url = nginx.url('gone/') + '{sha256}'
    pack('link', work / 'm.carton', work / 'l.carton', f'--url={url}')
    (work / 'out').mkdir()
    words = 'embed', '--private-links', cache.flag, work / 'l.carton', work / 'out/e.carton'
    assert 'model/m: ' in refused(words[-1], *words)
    nginx.put('gone/' + c.entries['model/m'].sha256(), TEXT)
    assert 'model/m: ' in refused(words[-1], *words)


# ---- the chunk index ----

def with_index(c, index):
    return c.add(chunkindex.PATH, index, method='stored')


def test_chunk_index(tree, work):
    """It is what cartonfs-chunks(5) says, whichever command makes it, and of whatever storage."""
    c, path = tree
    (path / 'model/more').write_bytes(NOISE[::-1])
    (path / 'model/a MiB').write_bytes(NOISE[:MIB])         # is not listed
    c.add('model/more', NOISE[::-1]).add('model/a MiB', NOISE[:MIB])
    plain = c.model_hash()
    with_index(c, chunkindex.index(TEXT, NOISE, NOISE[::-1]))
    want = c.model_hash()
    assert len(TEXT) > MIB and plain != want
    assert pack('pack', path, work / 'a.carton') == plain
    text, all_of_it = 'stores them: model/text', 'stores them: model/more, model/noise, model/text'
    for words, note in ((['pack', path], text), (['repack', work / 'a.carton'], text),
                        (['repack', '--compress=zstd', work / 'a.carton'], all_of_it),
                        (['pack', '--compress=zstd', path], all_of_it),
                        (['repack', '--compress=store', work / 'a.carton'], ''),
                        (['link', '--url=https://h/{sha256}', work / 'a.carton'], '')):
        assert pack(words[0], '--chunk-index', *words[1:], work / 'm.carton', note=note) == want, words
        if words[0] != 'link':
            verified(work / 'm.carton')
    assert chunkindex.PATH in linked_names(work / 'm.carton')[1]
    # made anew, or kept
    pack('pack', '--chunk-index', path, work / 'm.carton', note=text)
    assert pack('repack', '--chunk-index', work / 'm.carton', work / 'n.carton', note=text) == want
    assert (work / 'm.carton').read_bytes() == (work / 'n.carton').read_bytes()
    assert pack('repack', '--compress=store', work / 'm.carton', work / 'n.carton') == want
    (path / 'misc/.cartonfs').mkdir()
    (path / chunkindex.PATH).write_bytes(b'of other files')
    assert pack('pack', path, work / 'n.carton') == want
    assert (work / 'm.carton').read_bytes() == (work / 'n.carton').read_bytes()
    assert 'embed has no option --chunk-index' in refused(work / 'e', 'embed', '--chunk-index', work / 'm.carton', work / 'e')


LARGE = (TEXT * 7)[:8 * MIB]


def test_default_is_quick_to_mount(tree, work):
    """From 8 MiB on a file is Stored, at a multiple of 4096, and indexed; others are zstd where that saves."""
    c, path = tree
    (path / 'model/below').write_bytes(LARGE[1:])
    pack('pack', path, work / 'm.carton')
    assert methods(work / 'm.carton')['model/below'] == 'zstd' and chunkindex.PATH not in methods(work / 'm.carton')
    (path / 'model/large').write_bytes(LARGE)
    c.add('model/below', LARGE[1:]).add('model/large', LARGE)
    plain = c.model_hash()
    want = with_index(c, chunkindex.index(TEXT, NOISE, LARGE[1:], LARGE)).model_hash()
    for words in ([], ['--compress=auto'], ['--jobs=1']):
        assert pack('pack', *words, path, work / 'm.carton') == want
        how = methods(work / 'm.carton')
        assert (how['model/below'], how['model/large'], how['model/text']) == ('zstd', 'stored', 'zstd')
        with zipfile.ZipFile(work / 'm.carton') as z, open(work / 'm.carton', 'rb') as f:
            f.seek(z.getinfo('model/large').header_offset + 26)
            at = f.tell() + 4 + sum(int.from_bytes(f.read(2), 'little') for _ in range(2))
            assert at % 4096 == 0
    # what was extracted makes the same carton
    assert ctl('extract', work / 'm.carton', work / 'copy').returncode == 0
    assert pack('pack', work / 'copy', work / 'n.carton') == want
    assert (work / 'm.carton').read_bytes() == (work / 'n.carton').read_bytes()
    # an archive, and what is made of it; repack copies unless it is told
    for how, method in ('zstd', 'zstd'), ('store', 'stored'):
        assert pack('pack', f'--compress={how}', path, work / 'z.carton') == plain
        assert methods(work / 'z.carton')['model/large'] == method
    pack('pack', '--compress=zstd', path, work / 'z.carton')
    assert pack('repack', work / 'z.carton', work / 'n.carton') == plain
    assert (work / 'z.carton').read_bytes() == (work / 'n.carton').read_bytes()
    assert pack('repack', '--compress=auto', work / 'z.carton', work / 'n.carton') == plain
    assert methods(work / 'n.carton')['model/large'] == 'stored'
    assert pack('repack', '--compress=auto', '--chunk-index', work / 'z.carton', work / 'n.carton',
                note='model/below, model/text') == want


@pytest.mark.parametrize('words, requests, most', [([], 8, 5 * MIB), (['--compress=zstd'], 99, 99 * MIB)])
def test_first_bytes_over_the_network(work, nginx, mount, cache, words, requests, most):
    """4 KiB of a large file: a few requests and little of it; before, and as an archive, all of it."""
    data = random.Random(3).randbytes(40 * MIB)
    path = Carton().add('model/large', data).unpack(work / 'tree')
    pack('pack', *words, path, nginx.root / 'first.carton')
    nginx.clear()
    with mount(nginx.url('first.carton'), *cache.options) as m:
        assert chunkindex.pread(m / 'model/large', 4096, 0) == data[:4096]
        asked = nginx.requests('first.carton')
    sent = sum(r['sent'] for r in asked)
    assert len(asked) <= requests and sent <= most, asked
    assert words == [] or sent > len(data)


def test_symlink_to_the_chunk_index(tree, work):
    """Its hash is that of the index that is made, as for any other file."""
    _, path = tree
    (path / 'misc/.cartonfs').mkdir()
    (path / chunkindex.PATH).write_bytes(b'of other files')
    (path / 'misc/a link').symlink_to('.cartonfs/chunks')
    (path / 'model/link').symlink_to('../' + chunkindex.PATH)
    pack('pack', path, work / 'm.carton')
    verified(work / 'm.carton')


@pytest.mark.parametrize('index, text', [
    (lambda: chunkindex.index(TEXT[:-1] + b'?'), 'of 1 file that the carton does not have'),
    (lambda: chunkindex.index_of([(hashlib.sha256(NOISE).digest(), len(NOISE), chunkindex.CHUNK,
                                   chunkindex.states(NOISE[:MIB - 2] + b'??' + NOISE[MIB:]))]),
     'chunk 3 of "model/noise" has another state than the file'),
    (lambda: chunkindex.index_of([(hashlib.sha256(NOISE).digest(), len(NOISE) - 1, chunkindex.CHUNK,
                                   chunkindex.states(NOISE))]), f'which has {len(NOISE)}'),
    (lambda: b'no index', chunkindex.PATH),
])
@pytest.mark.parametrize('method', ['stored', 'zstd'])
def test_bad_chunk_index(work, index, text, method):
    """verify finds it, and so does what makes a carton of it; with a new index that is good."""
    c = with_index(Carton(method=method).add('model/noise', NOISE, level=1), index())
    c.write(work / 'm.carton')
    p = ctl('verify', work / 'm.carton')
    assert p.returncode == 2 and text in p.stdout and p.stdout.endswith('\n1 problem\n'), p.stdout
    assert text in refused(work / 'n.carton', 'repack', work / 'm.carton', work / 'n.carton')
    pack('repack', '--chunk-index', work / 'm.carton', work / 'n.carton', note='model/noise' if method == 'zstd' else '')
    verified(work / 'n.carton')


# ---- the terminal ----

def test_help_fits():
    for command in ('init', 'pack', 'repack', 'link', 'embed', 'import'):
        p = ctl(command, '--help')
        lines = p.stdout.splitlines()
        assert p.returncode == 0 and lines[0].startswith(f'usage: cartonctl {command} ')
        assert len(lines) <= 24 and max(map(len, lines)) <= 80


def test_as_a_user(tree, work, who):
    """Into a directory of their own, and not into one of others."""
    _, path = tree
    out = work / 'home'
    out.mkdir()
    if who is not None:
        os.chown(out, who, who)
    pack('pack', path, out / 'm.carton', uid=who)
    assert os.stat(out / 'm.carton').st_mode & 0o777 == 0o644
    if IS_ROOT:     # into the directory of another user, too
        os.chown(out, 12345, 12345)
        os.chmod(out, 0o755)
        if who is None:
            pack('pack', path, out / 'm2.carton')
        else:
            assert 'Permission denied' in refused(out / 'm2.carton', 'pack', path, out / 'm2.carton', uid=who)


def test_holes_are_read(work):
    """They are zeros like any others."""
    c = Carton(method='stored').add('model/hole', Sparse(20 * MIB, {5 * MIB: b'data'}))
    c.manifest_entry = {'skip': True}
    path = c.unpack(work / 'tree')
    assert pack('pack', '--compress=zstd', path, work / 'm.carton') == c.model_hash()
    assert methods(work / 'm.carton')['model/hole'] == 'zstd'
    with_index(c, chunkindex.index(bytes(5 * MIB) + b'data' + bytes(15 * MIB - 4)))
    assert pack('pack', path, work / 'm.carton') == c.model_hash()
    assert methods(work / 'm.carton')['model/hole'] == 'stored'


def test_link_large_files(tree, work):
    """Small files stay, unless one is named itself; LINKS says the sizes, info and status show them."""
    c, path = tree
    (path / 'model/edge').write_bytes(bytes(range(256)) * 4096)
    (path / 'model/below').write_bytes(bytes(range(256)) * 4095)
    pack('pack', path, work / 'm.carton')
    url = '--url=https://h.example/{sha256}'
    all_of_them = {p for p in os.listdir(path / 'model') if (path / 'model' / p).is_file() and not (path / 'model' / p).is_symlink()}

    def gone(*more):
        pack('link', work / 'm.carton', work / 'l.carton', url, *more)
        text, names = linked_names(work / 'l.carton')
        assert text.count('https://h.example/') == len(text.partition('[sizes]\n')[2].splitlines())
        return {p for p in all_of_them if f'model/{p}' not in names}, text
    large = {p for p in all_of_them if (path / 'model' / p).stat().st_size >= 1 << 20}
    linked, text = gone('--min-size=1M')
    assert linked == large and 'edge' in large and 'below' not in large
    assert text.endswith(''.join(sorted(f'{sha_file(path / "model" / p)} = {(path / "model" / p).stat().st_size}\n'
                                        for p in large)))
    assert gone('--min-size=1M', 'model/below', 'misc')[0] == {'below'}
    assert gone('--min-size=1048321', 'model')[0] == large
    assert gone('--min-size=0', 'model')[0] == all_of_them
    p = run(CARTONCTL, 'link', work / 'm.carton', work / 'l.carton', url)
    assert p.returncode == 0 and linked_names(work / 'l.carton')[0] == text, 'the default is 1M'
    size = sum((path / 'model' / p).stat().st_size for p in large)
    info = json.loads(ctl('info', '--json', work / 'l.carton').stdout)
    assert (info['linked_files'], info['linked_bytes'], info['unsized_files']) == (len(large), size, 0)
    whole = json.loads(ctl('info', '--json', work / 'm.carton').stdout)
    assert info['bytes'] == whole['bytes'] and whole['linked_files'] == 0
    shown = ctl('info', work / 'l.carton').stdout
    assert re.search(rf'^in LINKS +{len(large)} files?, ', shown, re.M)
    # what the packed sizes are of: what the carton has
    of = r'[\d.]+ [KM]?i?B'
    assert re.search(rf'^files +\d+ files, {of}; {of} of it in the carton, packed to {of}$', shown, re.M), shown
    assert re.search(rf'  +\d+% of {of} in it$', ctl('ls', work / 'l.carton').stdout.splitlines()[-1])
    assert re.search(r'  +\d+%$', ctl('ls', work / 'm.carton').stdout.splitlines()[-1])
    assert gone('--min-size=9G')[0] == set()


# ---- standard output ----

MADE = {'pack': (), 'repack': ('--compress=zstd',), 'embed': (), 'link': ('--url=https://example.com/{sha256}',)}


@pytest.mark.parametrize('command', MADE)
@pytest.mark.parametrize('out', ['-', '/dev/stdout', '/proc/self/fd/1', '/dev/fd/1'])
def test_to_standard_output(tree, work, command, out):
    """A pipe gets the bytes that a file gets, and standard error what is printed; no file is made."""
    _, path = tree
    source = path
    if command != 'pack':
        source = work / 'm.carton'
        pack('pack', path, source)
    p = ctl(command, *MADE[command], source, work / 'file')
    before = sorted(os.listdir(work))
    got = ctl(command, *MADE[command], source, out, text=False, cwd=work)
    assert (got.returncode, got.stderr.decode()) == (0, p.stdout), got.stderr
    assert got.stdout == (work / 'file').read_bytes()
    assert sorted(os.listdir(work)) == before


def test_to_a_file_called_so(tree, work):
    _, path = tree
    hash_ = pack('pack', path, './-', cwd=work)
    verified(work / '-')
    p = run('bash', '-c', '"$0" pack "$1" - >redirected && cmp ./- redirected', CARTONCTL, path, cwd=work)
    assert (p.returncode, p.stdout, p.stderr) == (0, '', f'{hash_}\n')


@pytest.mark.parametrize('how, why', [
    ('>/dev/full', 'the output: cannot be written: No space left on device; it has 0 of [0-9]+ bytes'),
    ('1</dev/null', 'the output: is not open for writing'),
    ('>&-', 'the output: is not open for writing'),
    ('| :', 'the output: cannot be written: its reader has ended; it has [0-9]+ of [0-9]+ bytes'),
    ('>"$1/misc/m"', 'the output: lies in .*, of which it is made; write it to another directory'),
])
def test_standard_output_that_takes_nothing(tree, work, how, why):
    _, path = tree
    (path / 'misc').mkdir(exist_ok=True)
    p = run('bash', '-c', f'set -o pipefail; "$0" pack "$1" - {how}', CARTONCTL, path, cwd=work)
    assert p.returncode == 1 and p.stdout == '', p.stderr
    assert re.fullmatch(f'cartonctl: {why}\n(cartonctl: standard output has got no whole file\n)?', p.stderr), p.stderr


def test_standard_output_gets_nothing_that_is_not_verified(tree, work):
    """Nor a byte of what cannot be packed; and none that a limit of its temporary file cuts off."""
    _, path = tree
    p = ctl('pack', path, '-', text=False, env=dict(TMPDIR=str(work)), **limited(20000))
    assert p.returncode == 1 and p.stdout == b'' and LIMIT.encode() in p.stderr, p.stderr
    os.mkfifo(path / 'model/fifo')
    p = ctl('pack', path, '-', text=False)
    assert p.returncode == 1 and p.stdout == b'' and b'model/fifo' in p.stderr, p.stderr


def test_terminal_gets_no_carton(tree, work):
    _, path = tree
    master, terminal = os.openpty()
    try:
        p = subprocess.run([CARTONCTL, 'pack', path, '-'], stdout=terminal, stderr=subprocess.PIPE, text=True,
                           stdin=subprocess.DEVNULL, env=environment())
    finally:
        os.close(terminal)
        os.close(master)
    assert p.returncode == 1 and p.stderr.count('\n') == 1, p.stderr
    assert p.stderr.startswith('cartonctl: standard output: is a terminal: name a file')


def test_pipe_that_is_slow_and_does_not_wait(tree, work):
    """It is written to in parts, and waited for."""
    _, path = tree
    want = ctl('pack', path, '-', text=False).stdout
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    p = subprocess.Popen([CARTONCTL, 'pack', path, '-'], stdout=theirs, stderr=subprocess.PIPE, env=environment())
    os.close(theirs)
    got = b''
    while part := os.read(ours, 1000):
        got += part
    os.close(ours)
    assert p.communicate()[1].count(b'\n') == 1 and p.returncode == 0 and got == want


@pytest.mark.needs_root
def test_no_room_for_its_temporary_file(tree, work):
    _, path = tree
    with harness.small_disk(work / 'disk', 1) as disk:
        p = ctl('pack', '--compress=store', path, '-', text=False, env=dict(TMPDIR=str(disk)))
    assert p.returncode == 1 and p.stdout == b'', p.stderr
    assert b'cannot be written: No space left on device' in p.stderr and b'TMPDIR names a directory' in p.stderr


@pytest.mark.parametrize('words', [
    'pack - x', 'repack - x', 'import - x', 'info -', 'diff m -', 'verify m -', 'extract m -', 'init -', 'stop -',
    'fetch -', 'sign --key=- m', 'link --objects=- m x', 'ls --cache-dir=- m'])
def test_dash_that_is_no_output(work, words):
    """Nothing is read from standard input, and nothing called so is looked for or made; ./- is."""
    p = ctl(*words.split(), cwd=work)
    assert p.returncode == 1 and p.stderr.count('\n') == 2, p.stderr
    assert ('- is not taken here' in p.stderr and 'a file called so is ./-' in p.stderr) or '=-: expected a ' in p.stderr
    assert os.listdir(work) == []
