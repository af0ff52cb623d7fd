# SPDX-License-Identifier: Apache-2.0
"""Artifacts whose layers are archives: tars of docker-registry, read once, hashed, and shown as their files."""
import errno
import fcntl
import hashlib
import io
import json
import os
import tarfile
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import layers
from harness import SLOW, ctl, eventually
from layers import device, directory, hard, image, link, packed, tar
from origin import MIB, PRIVATE, fault_bytes
from registry import FILEPATH, MODEL, Artifact, Front, digest_of, layout

KIT = 'application/vnd.kitops.modelkit'


def put(registry, work, artifact):
    name = f'layers/{hashlib.sha256(str(work).encode()).hexdigest()[:8]}'
    registry.push(layout(tempfile.mkdtemp(dir=work), artifact), name=name)
    return registry.oci(name=name)


def only(registry, artifact):
    """A server that has one artifact: its `artifact`."""
    def before(method, path, body):
        if '/manifests/' in path:
            return 200, {}, front.artifact.text()
        return 200, {}, {digest_of(d): d for d in front.artifact.blobs}[path.rpartition('/')[2]]
    front = Front(registry, before=before)
    front.artifact = artifact
    return front


def status_of(m):
    return json.loads(ctl('status', '--json', m.path).stdout)[0]


def tree(m):
    """{path: bytes, or the target of a link} below model/."""
    out = {}
    for d, _, files in os.walk(m / 'model'):
        for f in files:
            path = os.path.join(d, f)
            name = os.path.relpath(path, m / 'model')
            out[name] = os.readlink(path) if os.path.islink(path) else m.read(f'model/{name}')
    return out


FILES = {'config.json': b'{"a": 1}\n', 'sub/a b/\u00fc.py': b'print()\n', 'sub/e\u0301': b'NFD', 'sub/\u00e9': b'NFC',
         'long/' + 'x' * 150 + '/' + 'y' * 200: b'long', 'empty': b'', 'model.safetensors': fault_bytes(5 * MIB // 4, seed=70)}


@pytest.mark.parametrize('coding, form', [('', 'pax'), ('', 'gnu'), ('+gzip', 'pax'), ('+gzip ', 'gnu'), ('+zstd', 'pax'),
                                          ('+gzip padded', 'gnu')])
def test_a_layer(mount, cache, work, registry, tmp_path, coding, form):
    """One layer: the files of the tar; the blob comes once; later mounts have all from the cache."""
    t = tar(FILES, form)
    url = put(registry, work, image(t, coding=coding))
    with mount(url, *cache.options) as m:
        assert tree(m) == FILES
        blob = packed(t, coding)[1]
        assert sum(registry.blobs()[digest_of(blob)]) == len(blob)
        # the tar is there as it is, and the blob only if it is that; its large file was hashed once
        assert digest_of(t)[7:] in cache.objects()
        assert coding == '' or digest_of(blob)[7:] not in cache.objects()
        assert status_of(m)['hashed_bytes'] < MIB
    with mount(url, *cache.options, '-o', 'offline') as m:
        assert tree(m) == FILES
    registry.clear()
    p = ctl('import', cache.flag, url, tmp_path / 'm.carton')
    assert p.returncode == 0 and not registry.blobs(), p.stderr
    with mount(tmp_path / 'm.carton') as m:
        assert tree(m) == FILES
        lines = m.read('MANIFEST').decode().splitlines()
        assert lines[1:] == [f'model/{p}={hashlib.sha256(d).hexdigest()}' for p, d in sorted(FILES.items())]
        assert not os.path.exists(m / 'LINKS')


def test_layers(mount, cache, work, registry, tmp_path):
    """Later layers replace and take away; links and modes; what no carton has is left out, and said."""
    low = tar([('models/', directory()), ('models/a', b'old'), ('models/b', b'b'), ('models/d/x', b'x'), ('models/d/y', b'y'),
               ('models/o/1', b'1'), ('models/o/2', b'2'), ('models/run', b'#!'), ('etc/passwd', b'root'),
               ('models/f', b'a file'), ('models/g/h', b'in a directory'), ('models/w/1', b'1'), ('models/w/x/2', b'2')],
              executable=['models/run'])
    high = tar([('./models/a', b'first'), ('./models/a', b'new'), ('/models/.wh.b', b''), ('models/d/.wh.x', b''),
                ('models/o/3', b'3'), ('models/o/.wh..wh..opq', b''), ('models/null', device()), ('models/.wh.w', b''),
                ('models/.wh..wh.plnk', b''), ('models/f/now', b'a directory'), ('models/g', b'now a file'),
                ('models/l', link('d/../a')), ('models/d/l', link('/models/d/y')), ('models/d/l2', link('l')),
                ('models/out', link('../../etc/passwd')), ('models/etc', link('/etc/passwd')), ('models/dir', link('d')),
                ('models/loop', link('loop')), ('models/h', hard('models/run')), ('models/h2', hard('models/h')),
                ('models/bad\\name', b'x')])
    wanted = {'a': b'new', 'd/y': b'y', 'o/3': b'3', 'run': b'#!', 'f/now': b'a directory', 'g': b'now a file', 'l': 'a',
              'd/l': 'y', 'd/l2': 'l', 'h': b'#!', 'h2': b'#!'}
    url = put(registry, work, image(low, high, coding='+gzip'))
    with mount(url, *cache.options) as m:
        assert tree(m) == wanted
        assert m.read('model/d/l2') == b'y'
        for name in wanted:
            assert os.access(m / f'model/{name}', os.X_OK) == (name in ('run', 'h', 'h2')), name
    p = ctl('import', f'--cache-dir={tmp_path}/other', url, tmp_path / 'm.carton')
    assert p.returncode == 0 and 'are left out' in p.stderr and '3 more' in p.stderr, p.stderr
    with mount(tmp_path / 'm.carton') as m:
        assert tree(m) == wanted
        assert os.access(m / 'model/run', os.X_OK) and not os.access(m / 'model/a', os.X_OK)
    p = ctl('verify', tmp_path / 'm.carton')
    assert p.returncode == 0, p.stderr


def test_kitops(mount, cache, work, registry, tmp_path):
    """Raw layers are fetched as they are read, and stay behind URLs; those that are tars are in the carton."""
    data = fault_bytes(100000, seed=71)
    t = tar({'weights/m.bin': data, 'README.md': b'#', 'out': link('../README.md'), 'weights/l': link('../README.md')})
    a = Artifact(layers=[(f'{KIT}.model.v1.tar+gzip', {}, layers.members(t), {}), (f'{KIT}.code.v1.tar', {}, tar({'c.py': b'1'}), {}),
                         (f'{MODEL}.weight.v1.raw', {FILEPATH: 'raw.bin'}, b'raw', {})],
                 config=(f'{KIT}.config.v1+json', b'{}'))
    wanted = {'weights/m.bin': data, 'README.md': b'#', 'c.py': b'1', 'raw.bin': b'raw', 'weights/l': '../README.md'}
    url = put(registry, work, a)
    p = ctl('import', cache.flag, '--json', url, tmp_path / 'm.carton')
    got = json.loads(p.stdout)
    assert (got['files'], got['linked']) == (6, 1) and got['model_hash'] == ctl('hash', cache.flag, url).stdout.split()[0], got
    with mount(url, *cache.options) as m:
        assert tree(m) == wanted
    with mount(tmp_path / 'm.carton', *PRIVATE, *cache.options) as m:
        assert tree(m) == wanted


# ---- layers that are refused ----

def header(**fields):
    """The header of a file that says what its tar does not have."""
    info = tarfile.TarInfo('x')
    for k, v in fields.items():
        setattr(info, k, v)
    return info.tobuf(tarfile.GNU_FORMAT)


def sparse():
    """As GNU tar -S writes a file of 1 MiB with 512 bytes of data."""
    head = bytearray(header(name='x', size=512, type=b'S'))
    head[386:410] = b'%011o\0%011o\0' % (0, 512)
    head[483:495] = b'%011o\0' % MIB
    head[148:156] = b' ' * 8
    head[148:156] = b'%06o\0 ' % sum(head)
    return bytes(head) + b'd' * 512 + bytes(1024)


def many_holes():
    """As pax writes a sparse file, but with a map of 100,000 holes, which is parsed before anything is known of it."""
    text = b'100000\n' + b'0\n0\n' * 100000
    text += bytes(-len(text) % 512)
    with io.BytesIO() as f:
        with tarfile.open(fileobj=f, mode='w', format=tarfile.PAX_FORMAT) as t:
            member = tarfile.TarInfo('x')
            member.size = len(text)
            member.pax_headers = {'GNU.sparse.major': '1', 'GNU.sparse.minor': '0', 'GNU.sparse.name': 'x',
                                  'GNU.sparse.realsize': '0'}
            t.addfile(member, io.BytesIO(text))
        return f.getvalue()


ONE = tar({'a': fault_bytes(100000, seed=72)})
BAD = {
    'a name that goes up': (tar({'a/../../b': b'x'}), 'leads out of the tree'),
    'a name that goes up and comes back': (tar({'a/../b': b'x'}), 'leads out of the tree'),
    'a file through a link': (tar([('a', link('/etc')), ('a/passwd', b'x')]), 'is below what is a file or a link'),
    'a file in a file': (tar([('a', b'y'), ('a/b', b'x')]), 'is below what is a file or a link'),
    'a hard link out': (tar({'a': hard('../../etc/passwd')}), 'is a hard link to what is no file of the tree'),
    'a hard link to what is not there': (tar({'a': hard('/etc/passwd')}), 'is a hard link to what is no file'),
    'a hard link to itself': (tar({'z': hard('z')}), 'is a hard link to what is no file'),
    'a hard link to a later file': (tar([('a', hard('b')), ('b', b'x')]), 'is a hard link to what is no file'),
    'a hard link to a directory': (tar([('d', directory()), ('a', hard('d'))]), 'is a hard link to what is no file'),
    'a huge size': (header(size=1 << 60) + bytes(4096), 'cannot be read as a tar'),
    'cut in a file': (ONE[:50000], 'cannot be read as a tar, behind 1 entries'),
    'cut in a header': (ONE[:300], 'cannot be read as a tar'),
    'a sparse file': (sparse(), 'is a sparse file'),
    'many holes': (many_holes(), 'has a header of more than 192 KiB, behind 0 entries'),
    'a name that is too long': (tar({'a/' * 2048 + 'b': b'x'}), 'is longer than 4095 bytes'),
    'a link to a name that is too long': (tar({'a': b'x', 'z': link('./' * 2048 + 'a')}), 'z: in layer 2 of'),
    'a hard link to a name that is too long': (tar({'a': b'x', 'z': hard('./' * 2048 + 'a')}), 'longer than 4095 bytes'),
    'a link from too deep': (tar({'a': b'x', 'd/' * 1500 + 'z': link('/a')}), 'so deep that its target'),
    'no tar': (b'GGUF' + bytes(5000), 'cannot be read as a tar'),
    'nothing in it': (tar({'d': directory()}), 'has no files'),
    'gzip that is cut': (layers.members(ONE)[:-9], 'ends too early'),
    'gzip, and something else': (layers.members(ONE) + b'other', 'is damaged'),
    'gzip, zeros, and something else': (layers.members(ONE) + bytes(100000) + b'\x1f\x8b', 'is damaged'),
    'zstd that is cut': (layers.zstd(ONE)[:-9], 'ends too early'),
    'zstd, and something else': (layers.zstd(ONE) + b'x', 'is followed by other bytes'),
    'zstd of a window that is too large': (bytes.fromhex('28b52ffd00ff') + bytes(100), 'window is larger than 2^27'),
    'zstd of 200 MiB of zeros': (layers.zstd(bytes(200 * MIB)), 'unpacks to more than 1100 times its size'),
}


@pytest.mark.parametrize('kind', BAD)
def test_bad_layers(cache, registry, kind):
    """One line, with what is wrong; nothing is shown, and nothing of it is kept as good."""
    data, message = BAD[kind]
    a = Artifact(layers=[(layers.LAYER, {}, ONE, {}), (layers.LAYER, {}, data, {})] if kind != 'nothing in it' else
                 [(layers.LAYER, {}, data, {})], config=(layers.CONFIG, b'{}'))
    with only(registry, a) as front:
        p = ctl('ls', cache.flag, f'oci://{front.host}/a/b')
        assert p.returncode == 1 and not p.stdout and message in p.stderr and len(p.stderr.splitlines()) <= 2, p.stderr
    # the blobs, as they are what their digests say, and no list that leads to them
    assert set(cache.objects()) <= {digest_of(d)[7:] for d in (ONE, data)}
    assert not cache.partials()


def test_another_digest(cache, registry):
    """A layer whose last byte is wrong: all of it was read, and nothing is shown or kept."""
    t = tar({'model.bin': fault_bytes(MIB, seed=73), 'last': b'x'})
    a = image(t)

    def change(path, status, headers, body):
        return (200, {}, t[:-1] + b'!') if path.endswith(digest_of(t)) else None
    with only(registry, a) as front:
        before = front.before
        front.before = lambda *x: change(x[1], *before(*x)) or before(*x)
        p = ctl('ls', cache.flag, f'oci://{front.host}/a/b')
        assert p.returncode == 1 and not p.stdout and 'its bytes are wrong' in p.stderr, p.stderr
        assert not cache.objects() and not cache.seals()
        front.before = before
        p = ctl('ls', cache.flag, f'oci://{front.host}/a/b')
        assert p.returncode == 0 and 'model.bin' in p.stdout, p.stderr


def test_another_diff_id(cache, registry):
    """The config says what a layer unpacks to."""
    with only(registry, image(ONE, coding='+gzip', diff_ids=[digest_of(b'other')])) as front:
        p = ctl('ls', cache.flag, f'oci://{front.host}/a/b')
        assert p.returncode == 1 and 'contradicts the manifest' in p.stderr, p.stderr


def test_a_damaged_blob_in_the_cache(mount, cache, registry):
    """What the cache has of a layer is hashed before it is read as a tar: here it is fetched again."""
    a = image(ONE)
    with only(registry, a) as front:
        assert ctl('ls', cache.flag, f'oci://{front.host}/a/b').returncode == 0
        where = cache.objects()[digest_of(ONE)[7:]]
        where.chmod(0o600)
        where.write_bytes(ONE[:2000] + b'!' + ONE[2001:])
        front.artifact = image(ONE, tar({'b': b'new'}))
        with mount(f'oci://{front.host}/a/b', *cache.options) as m:
            assert tree(m) == {'a': fault_bytes(100000, seed=72), 'b': b'new'}
            assert cache.objects()[digest_of(ONE)[7:]].read_bytes() == ONE


def test_a_blob_in_the_cache_that_became_sparse(cache, registry):
    """What cannot be read as a tar because it is damaged is fetched again, too."""
    with only(registry, image(ONE)) as front:
        url = f'oci://{front.host}/a/b'
        assert ctl('ls', cache.flag, url).returncode == 0
        where = cache.objects()[digest_of(ONE)[7:]]
        where.chmod(0o600)
        where.write_bytes(sparse().ljust(len(ONE), b'\0'))
        front.artifact = image(ONE, tar({'b': b'new'}))
        p = ctl('ls', cache.flag, url)
        assert p.returncode == 0 and 'model/b' in p.stdout, p.stderr
        assert cache.objects()[digest_of(ONE)[7:]].read_bytes() == ONE


def test_a_blob_that_another_holds(cache, registry):
    """A cache entry that cannot be looked at: the layer is fetched to a file of its own, and there is no loop."""
    with only(registry, image(ONE)) as front:
        url = f'oci://{front.host}/a/b'
        assert ctl('ls', cache.flag, url).returncode == 0
        front.artifact = image(ONE, tar({'b': b'new'}))
        where = cache.objects()[digest_of(ONE)[7:]]
        with open(where, 'rb') as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            p = ctl('ls', cache.flag, url)
        assert p.returncode == 0 and 'model/a' in p.stdout and 'model/b' in p.stdout, p.stderr


def blobs_of(front, artifact):
    """How often each layer was asked for."""
    return [len([x for x, _ in front.seen if x.endswith(digest_of(d))]) for d in artifact.blobs[1:]]


@pytest.mark.parametrize('coding', ['', '+gzip', '+zstd'])
def test_two_at_once(cache, registry, coding):
    """A layer comes once, and the one who waits reads what the other has unpacked."""
    a = image(tar({'a': fault_bytes(MIB, seed=74)}), ONE, coding=coding)
    first, waits = threading.Event(), threading.Event()
    with only(registry, a) as front:
        before = front.before

        def hold(method, path, body):
            if '/blobs/' in path and path.endswith(digest_of(a.blobs[1])):
                first.set()
                waits.wait(30 * SLOW)
            return before(method, path, body)
        front.before = hold
        url = f'oci://{front.host}/a/b'
        with ThreadPoolExecutor(2) as pool:
            one = pool.submit(ctl, 'ls', cache.flag, url)
            assert first.wait(30 * SLOW)
            two = pool.submit(ctl, 'ls', cache.flag, url)
            eventually('the other has the manifest', lambda: len([x for x, _ in front.seen if '/manifests/' in x]) == 2)
            waits.set()
            assert one.result().returncode == 0 and one.result().stdout == two.result().stdout, two.result().stderr
        assert blobs_of(front, a) == [1, 1]
        # the first layer was unpacked by a reader of another artifact
        front.artifact = image(ONE, tar({'b': b'new'}), coding=coding)
        p = ctl('ls', cache.flag, url)
        assert p.returncode == 0 and 'model/a' in p.stdout and 'model/b' in p.stdout, p.stderr
        assert blobs_of(front, front.artifact) == [1, 1]


def test_a_damaged_tar_in_the_cache(mount, cache, registry):
    """No byte of it is shown that is not what was read first; then it is fetched again."""
    with only(registry, image(tar({'a': b'right', 'b': b'b'}), coding='+gzip')) as front:
        url = f'oci://{front.host}/a/b'
        assert ctl('ls', cache.flag, url).returncode == 0
        where = next(p for p in cache.objects().values() if b'right' in p.read_bytes() and b'ustar' in p.read_bytes())
        where.chmod(0o600)
        where.write_bytes(where.read_bytes().replace(b'right', b'wrong'))
        with mount(url, *cache.options) as m:
            with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                m.read('model/a')
            assert m.read('model/b') == b'b'
        with mount(url, *cache.options) as m:
            assert tree(m) == {'a': b'right', 'b': b'b'}


@pytest.mark.parametrize('coding', ['+gzip ', '+gzip estargz'])
def test_estargz(mount, cache, registry, coding):
    """What eStargz adds to the root of a layer is no file of the model, but only in eStargz."""
    own = {'.prefetch.landmark': b'\x0f', './.no.prefetch.landmark': b'\x0f', 'stargz.index.json': b'{"version":1}'}
    other = {'a': b'x', 'sub/stargz.index.json': b'{}', 'sub/.prefetch.landmark': b'y'}
    t = tar(own | other)
    wanted = other if 'estargz' in coding else other | {k.removeprefix('./'): v for k, v in own.items()}
    with only(registry, image(t, coding=coding)) as front:
        for url in f'oci://{front.host}/a/b', f'oci://{front.host}/a/b', f'oci://{front.host}/a/b':
            with mount(url, *cache.options) as m:
                assert tree(m) == wanted
            # the tar of that layer is found by its note
            front.artifact = image(t, tar({'b': b'new'}), coding=coding)
            wanted = wanted | {'b': b'new'}
        assert blobs_of(front, front.artifact) == [1, 1]


def test_a_damaged_tar_that_was_noted(mount, cache, registry):
    """Of another artifact with that layer: all of the tar is hashed before a file of it counts."""
    t = tar({'a': b'right'})
    with only(registry, image(t, coding='+gzip')) as front:
        url = f'oci://{front.host}/a/b'
        assert ctl('ls', cache.flag, url).returncode == 0
        where = cache.objects()[digest_of(t)[7:]]
        where.chmod(0o600)
        where.write_bytes(t.replace(b'right', b'wrong'))
        front.artifact = image(t, tar({'b': b'new'}), coding='+gzip')
        with mount(url, *cache.options) as m:
            assert tree(m) == {'a': b'right', 'b': b'new'}
        assert blobs_of(front, front.artifact) == [2, 1]
        assert cache.objects()[digest_of(t)[7:]].read_bytes() == t


@pytest.mark.parametrize('right', [True, False])
def test_a_mirror(cache, work, registry, right):
    """One of registries.conf is asked for layers first; what has another hash comes from the registry."""
    a = image(ONE)
    where = work / 'containers'
    where.mkdir()
    with only(registry, a) as front, only(registry, a) as other:
        (where / 'registries.conf').write_text(
            f'[[registry]]\nlocation = "{front.host}"\n[[registry.mirror]]\nlocation = "{other.host}"\ninsecure = true\n')
        if not right:
            before = other.before
            other.before = lambda *x: (200, {}, ONE[:-1] + b'!') if x[1].endswith(digest_of(ONE)) else before(*x)
        p = ctl('ls', cache.flag, f'oci://{front.host}/a/b', env={'XDG_CONFIG_HOME': str(work)})
        assert p.returncode == 0 and not p.stderr, p.stderr
        assert [x for x, _ in other.seen if x.endswith(digest_of(ONE))]
        assert len([x for x, _ in front.seen if x.endswith(digest_of(ONE))]) == (0 if right else 1)


def test_a_carton_with_an_archive(cache, registry):
    files = {'carton.toml': b'spec_version = 1\n', 'MANIFEST': b''}
    a = Artifact(layers=[*((f'{MODEL}.doc.v1.raw', {FILEPATH: p}, d, {}) for p, d in files.items()), (layers.LAYER, {}, ONE, {})],
                 config=(layers.CONFIG, b'{}'))
    with only(registry, a) as front:
        p = ctl('ls', cache.flag, f'oci://{front.host}/a/b')
        assert p.returncode == 1 and 'there, each file is a layer of its own' in p.stderr, p.stderr


def test_many_entries(cache, registry):
    """They are counted in the memory of the carton, and are no more than a repository may have."""
    with only(registry, image(layers.many(100001))) as front:
        p = ctl('ls', cache.flag, f'oci://{front.host}/a/b', '--memory=16M')
        assert p.returncode == 1 and 'memory' in p.stderr, p.stderr
        p = ctl('ls', cache.flag, f'oci://{front.host}/a/b')
        assert p.returncode == 1 and 'more than 100000 files' in p.stderr, p.stderr
