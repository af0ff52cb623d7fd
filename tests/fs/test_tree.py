# SPDX-License-Identifier: Apache-2.0
"""What a mount shows: the whole tree, byte for byte, against python's zipfile and hashlib."""
import ctypes
import hashlib
import io
import mmap
import os
import random
import stat
import struct
import zipfile

import pytest

import harness
from bigcarton import BIG
from harness import expected, manifest, read_file, scan, sha_file
from zipwriter import INDEX, TOML, Carton, Entry, Zip, local_header, read_zip, sample

METHODS = ['stored', 'deflate', 'zstd']
REQUEST = 128 << 10
SIZES = [0, 1, REQUEST - 1, REQUEST, REQUEST + 1, (1 << 20) + 3, 20 << 20]


def noise(n, seed=1):
    return random.Random(seed).randbytes(n)


def pattern(n):
    """Compressible, and no two 4 KiB pages of it are alike."""
    page = b''.join(struct.pack('<I', i) + bytes(28) for i in range(n // 32 + 1))
    return page[:n]


def check(mount, carton, source=None, work=None, **kw):
    """Mounts it and compares the whole tree with what went in and with an independent reader."""
    source = source or carton.write(work / 'm.carton')
    if not os.path.isdir(source):
        seen = read_zip(source)
        for path, data in carton.files().items():
            assert path in carton.links() or seen[path] == data, f'zipfile disagrees on {path}'
    with mount(source, **kw) as m:
        assert m.do(scan, m.path) == expected(carton.files(), carton.links())


def test_sample(mount, sample_carton, who):
    check(mount, sample_carton[1], sample_carton[0], uid=who)


@pytest.mark.parametrize('kind', ['noise', 'pattern'])
@pytest.mark.parametrize('method', METHODS)
def test_methods_and_sizes(mount, work, method, kind):
    c = Carton(method=method)
    for i, size in enumerate(SIZES):
        c.add(f'model/{size}', noise(size, i) if kind == 'noise' else pattern(size), level=1)
    check(mount, c, work=work)


@pytest.mark.parametrize('form', ['sig', 'nosig', 'sig64', 'nosig64'])
@pytest.mark.parametrize('method', METHODS)
def test_data_descriptors(mount, work, method, form):
    c = sample(method)
    for e in c.entries.values():
        e.descriptor, e.zip64 = form, form.endswith('64')
    c.manifest_entry = {'method': method, 'descriptor': form, 'zip64': form.endswith('64')}
    check(mount, c, work=work)


@pytest.mark.parametrize('method', METHODS)
def test_zip64_forced(mount, work, method):
    c = sample(method, zip64_end=True)
    for e in c.entries.values():
        e.zip64 = True
    check(mount, c, work=work)


def test_zip64_end_alone(mount, work):
    check(mount, sample(zip64_end=True), work=work)


def test_comments(mount, work):
    c = sample(comment=b'made by a test, 100% \xff bytes' * 2000)
    for e in c.entries.values():
        e.comment = b'entry comment'
    check(mount, c, work=work)


def test_explicit_directories(mount, work):
    c = sample()
    for d in ('model', 'misc', 'tensor_data', 'misc/empty_directory'):
        c.directory(d)
    source = c.write(work / 'm.carton')
    with mount(source) as m:
        got = scan(m.path)
    # A directory that holds no listed file may be shown or not: MANIFEST knows only files.
    got.pop('misc/empty_directory', None)
    assert got == expected(c.files(), c.links())


@pytest.mark.parametrize('seed', range(3))
def test_any_order(mount, work, seed):
    def shuffled(entries):
        entries = list(entries)
        random.Random(seed).shuffle(entries)
        return entries
    c = sample(central_order=shuffled)
    c.reorder = lambda entries: shuffled(entries[::-1])
    check(mount, c, work=work)


def test_names(mount, work, who):
    c = sample()
    for i, name in enumerate(['a=b', '=', 'a==', ' lead and trail ', 'ünïcode', '🥳/🎉.bin',
                              '日本語', 'x' * 255, 'é' * 127, '...', '.hidden', 'a:b', '-rf',
                              'quo"te\'s', 'a=b=/c=d', '~', '%41', 'UPPER', 'upper', 'e\u0301',
                              '\u00e9', 'MANIFEST', 'LINKS', 'carton.toml']):
        c.add('misc/names/' + name, b'%d' % i)
    check(mount, c, work=work, uid=who)


def test_deepest_path(mount, work):
    """4095 bytes, 255 a component: longer than one system call may name, so step by step."""
    path = 'model/' + '/'.join([chr(97 + i) * 255 for i in range(15)])
    path += '/' + 'z' * (4095 - len(path) - 1)
    assert len(path) == 4095
    levels = 'model/' + 'd/' * 2000 + 'e'
    c = sample().add(path, b'deep').add(levels, b'many levels')
    source = c.write(work / 'm.carton')
    with mount(source) as m:
        for name, data in ((path, b'deep'), (levels, b'many levels')):
            fd = os.open(m.path, os.O_PATH)
            *parents, last = name.split('/')
            for part in parents:
                fd, old = os.open(part, os.O_PATH | os.O_DIRECTORY, dir_fd=fd), fd
                os.close(old)
            assert os.listdir(f'/proc/thread-self/fd/{fd}') == [last]
            with open(os.open(last, os.O_RDONLY, dir_fd=fd), 'rb') as f:
                assert f.read() == data
            os.close(fd)
        assert m.sha('carton.toml') == hashlib.sha256(TOML).hexdigest()


@pytest.mark.slow
def test_beyond_4_gib(mount, big_carton):
    path, c = big_carton
    with mount(path) as m:
        assert m.read('misc/after') == b'behind 4 GiB\n'
        with open(m / 'model/big', 'rb', buffering=0) as f:
            assert os.fstat(f.fileno()).st_size == BIG
            assert os.pread(f.fileno(), 100, 0) == b'first' + bytes(95)
            assert os.pread(f.fileno(), 10, (1 << 32) - 5) == b'\0\0across\0\0'
            assert os.pread(f.fileno(), 10, BIG - 4) == b'last'
            assert os.pread(f.fileno(), 10, BIG) == b''
            for off in (1 << 31, (1 << 32) + 12345):
                assert os.pread(f.fileno(), 70000, off) == bytes(70000)
        assert m.state('model/big') == 'verified'


MANY = 100_000


@pytest.fixture(scope='module')
def many(session_dir):
    c = Carton(method='stored')
    for i in range(MANY):
        c.add(f'model/many/{i:06}', b'%d\n' % i)
    return c.write(session_dir / 'many.carton'), c


def test_100000_entries(mount, many):
    path, c = many
    with mount(path) as m:
        where = m / 'model/many'
        assert sorted(os.listdir(where)) == [f'{i:06}' for i in range(MANY)]
        for i in random.Random(2).sample(range(MANY), 500):
            assert read_file(f'{where}/{i:06}') == b'%d\n' % i
        with pytest.raises(FileNotFoundError):
            os.stat(f'{where}/{MANY:06}')
        with os.scandir(where) as entries:
            assert sum(e.stat().st_size for e in entries) == sum(map(len, c.files().values())) - (
                len(c.manifest_bytes()) + len(TOML))


class Dirent(ctypes.Structure):
    _fields_ = [('ino', ctypes.c_uint64), ('off', ctypes.c_int64), ('reclen', ctypes.c_ushort),
                ('type', ctypes.c_ubyte), ('name', ctypes.c_char * 256)]


def test_seekdir(mount, many):
    """telldir cookies of a large directory lead back to the same entry; rewinddir starts over."""
    libc = ctypes.CDLL(None)
    libc.opendir.restype = ctypes.c_void_p
    libc.readdir.restype = ctypes.POINTER(Dirent)
    libc.telldir.restype = ctypes.c_long
    for name in ('readdir', 'telldir', 'closedir', 'rewinddir'):
        getattr(libc, name).argtypes = [ctypes.c_void_p]
    libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
    with mount(many[0]) as m:
        d = libc.opendir(os.fsencode(m / 'model/many'))
        assert d
        order, cookies = [], []
        cookie = libc.telldir(d)
        while entry := libc.readdir(d):
            order.append(entry.contents.name)
            cookies.append(cookie)
            cookie = libc.telldir(d)
        assert len(order) == len(set(order)) == MANY + 2
        for i in random.Random(3).sample(range(len(order)), 50):
            libc.seekdir(d, cookies[i])
            assert libc.readdir(d).contents.name == order[i]
            if i + 1 < len(order):
                assert libc.readdir(d).contents.name == order[i + 1]
        libc.rewinddir(d)
        assert libc.readdir(d).contents.name == order[0]
        libc.closedir(d)


def test_unlisted_entry_is_not_shown(mount_fg, work):
    c = sample().add('misc/secret.txt', b'not in MANIFEST', listed=False)
    with mount_fg(c.write(work / 'm.carton')) as m:
        assert m.do(scan, m.path) == expected(c.files(), c.links())
        for op in (os.stat, read_file):
            with pytest.raises(FileNotFoundError):
                op(m / 'misc/secret.txt')
        assert 'misc/secret.txt' in m.log()


def test_manifest_shown_and_links_not(mount, work):
    c = sample().add('LINKS', b'version = 1\n[urls]\n', method='stored')
    with mount(c.write(work / 'm.carton')) as m:
        assert m.read('MANIFEST') == c.manifest_bytes()
        assert 'LINKS' not in os.listdir(m.path)
        with pytest.raises(FileNotFoundError):
            os.stat(m / 'LINKS')


@pytest.mark.parametrize('method', METHODS)
def test_symlinks(mount, work, who, method):
    c = sample()
    for path, target in {'misc/up': '../model/main.py', 'misc/chain': 'up', 'top': 'model/main.py',
                         'model/sub/deep': '../../misc/../model/./main.py',
                         'misc/ü=🥳': 'a=b c.txt', 'misc/same': './picture.png'}.items():
        c.symlink(path, target, method=method)
    check(mount, c, work=work, uid=who)
    with mount(work / 'm.carton') as m:
        assert read_file(m / 'misc/chain') == c.files()['model/main.py']
        assert stat.S_ISLNK(os.lstat(m / 'misc/chain').st_mode)


def test_directory_source(mount, work, who):
    c = sample()
    c.add('misc/=odd name=', b'x').symlink('misc/up', '../model/main.py')
    c.add('model/deep/' + 'd/' * 50 + 'file', noise(REQUEST + 1))
    check(mount, c, c.unpack(work / 'unpacked'), uid=who)
    os.symlink('unpacked', work / 'link')
    check(mount, c, work / 'link', uid=who)


def test_directory_equals_carton(mount, work):
    c = sample()
    with mount(c.write(work / 'm.carton')) as a, mount(c.unpack(work / 'dir')) as b:
        assert scan(a.path) == scan(b.path)


def test_python_zipfile_as_writer(mount, work):
    """The standard library's own archives, written to a file and to a pipe-like stream."""
    class Unseekable(io.RawIOBase):
        def __init__(self, f):
            self.f = f

        def writable(self):
            return True

        def write(self, b):
            return self.f.write(b)

    files = {'carton.toml': TOML, 'model/m.bin': noise(300000), 'tensor_data/index.toml': INDEX,
             'tensor_data/tensor_0.bin': bytes(24),
             'tensor_data/tensor_1.toml': b'data = ["a", "b"]\n'}
    lines = ''.join(f'{p}={hashlib.sha256(d).hexdigest()}\n' for p, d in sorted(files.items()))
    files['MANIFEST'] = lines.encode()
    for stream in (False, True):
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            with open(work / 'm.carton', 'wb') as f:
                with zipfile.ZipFile(Unseekable(f) if stream else f, 'w', method) as z:
                    for i, (path, data) in enumerate(files.items()):
                        with z.open(zipfile.ZipInfo(path, (2020, 1, 2, 3, 4, 6)), 'w',
                                    force_zip64=i % 2 == 1) as out:
                            out.write(data)
            with mount(work / 'm.carton') as m:
                assert scan(m.path) == expected(files)


def test_reference_carton(mount, who, packer_carton):
    source, links = packer_carton
    seen = read_zip(source)
    hashes = manifest(seen['MANIFEST'])
    assert set(hashes) == set(seen) - {'MANIFEST', 'LINKS'}
    seen.pop('LINKS', None)
    with mount(source, uid=who) as m:
        assert m.do(scan, m.path) == expected(seen, links)
        for path, digest in hashes.items():
            assert m.sha(path) == digest
            assert m.state(path) == 'verified'


# ---- ways of reading ----

@pytest.fixture(scope='module')
def readers(session_dir):
    c = Carton()
    data = {m: noise(3 * REQUEST + 777, i) + pattern(1 << 20) for i, m in enumerate(METHODS)}
    for method, d in data.items():
        c.add(f'model/{method}', d, method=method)
    # three times the same content: one object under several paths
    for method in METHODS:
        c.add(f'misc/same_{method}', data['zstd'], method=method)
    return c.write(session_dir / 'readers.carton'), c


@pytest.mark.parametrize('method', METHODS)
def test_random_offsets(mount, readers, method):
    path, c = readers
    want, rng = c.files()[f'model/{method}'], random.Random(4)
    with mount(path) as m:
        fd = os.open(m / f'model/{method}', os.O_RDONLY)
        for cold in (True, False):
            for _ in range(300):
                off, n = rng.randrange(len(want) + 5000), rng.choice([1, 17, 4096, REQUEST, 400000])
                if cold:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                assert os.pread(fd, n, off) == want[off:off + n]
        os.close(fd)
        fd = os.open(m / f'model/{method}', os.O_RDONLY | os.O_DIRECT)
        buf = mmap.mmap(-1, 1 << 20)
        for off in (0, 4096, REQUEST - 4096, REQUEST, len(want) // 4096 * 4096):
            n = os.preadv(fd, [buf], off)
            assert buf[:n] == want[off:off + n] and n == min(len(buf), len(want) - off)
        os.close(fd)


@pytest.mark.parametrize('method', METHODS)
def test_mmap(mount, readers, method, who):
    path, c = readers
    want = c.files()[f'model/{method}']

    def mapped(name):
        with open(name, 'rb') as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as view:
            return view[-1], view[REQUEST], view[:]
    with mount(path, uid=who) as m:
        assert m.do(mapped, m / f'model/{method}') == (want[-1], want[REQUEST], want)


@pytest.mark.parametrize('method', METHODS)
def test_kernel_copies(mount, readers, work, method):
    path, c = readers
    want = c.files()[f'model/{method}']
    with mount(path) as m, open(m / f'model/{method}', 'rb') as src:
        with open(work / 'sent', 'wb') as dst:
            while os.sendfile(dst.fileno(), src.fileno(), dst.tell(), 1 << 20):
                dst.seek(0, os.SEEK_END)
        assert read_file(work / 'sent') == want
        with open(work / 'copied', 'wb') as dst:
            done = 0
            try:
                while n := os.copy_file_range(src.fileno(), dst.fileno(), 1 << 20, done, done):
                    done += n
            except OSError as e:
                # between two file systems the kernel may refuse; then cp falls back as well
                assert (errno_name(e), done) in {('EXDEV', 0), ('EINVAL', 0), ('EOPNOTSUPP', 0)}
                done = None
        if done is not None:
            assert read_file(work / 'copied') == want
        harness.run('cp', m / f'model/{method}', work / 'cp').check_returncode()
        assert read_file(work / 'cp') == want


def errno_name(e):
    import errno
    return errno.errorcode[e.errno]


def test_one_content_many_paths(mount, readers):
    path, c = readers
    want = hashlib.sha256(c.files()['model/zstd']).hexdigest()
    with mount(path) as m:
        for method in METHODS:
            assert sha_file(m / f'misc/same_{method}') == want


def test_exact_65535_entries_without_zip64(mount, work):
    c = Carton(method='stored')
    for i in range(65535 - 2):
        c.add(f'model/{i}')
    c.zip.zip64_end = False
    source = c.write(work / 'm.carton')
    assert len(c.zip.entries) == 65535
    with mount(source) as m:
        assert len(os.listdir(m / 'model')) == 65533


def test_writer_has_exact_control():
    """The tests lean on this: an override changes its field and nothing else."""
    buf = io.BytesIO()
    buf.write(local_header(b'n', crc=7))
    want = struct.pack('<IHHHHHIIIHH', 0x04034b50, 20, 0, 0, 0, 0, 7, 0, 0, 1, 0)
    assert buf.getvalue() == want + b'n'
    assert Zip([Entry('x')]).entries[0].central == {}
