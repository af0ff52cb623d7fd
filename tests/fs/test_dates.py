# SPDX-License-Identifier: Apache-2.0
"""
Dates and inode numbers follow from content: the same on every machine and from every source, others for another
version. So whatever compares size and date sees that a file is another one.
"""
import contextlib
import os
import subprocess
import sys
import time
import urllib.request
import zipfile

import pytest

from dates import FIRST, LAST, date_of, look
from harness import CARTONFS, ctl, environment, read_file, run
from tensorfiles import st, st_bytes
from zipwriter import Carton, Sparse, sample


def version(n, **kw):
    """A carton with files of the same names and sizes in each version; other dates inside change nothing."""
    c = Carton()
    c.add('model/w.bin', bytes([n]) * 100_000, **kw)
    c.add('model/code.py', b'VERSION = %d\n' % n, **kw)
    c.add('model/deep/same.txt', b'the same in all\n', **kw)
    c.symlink('misc/link', '../model/deep/same.txt', **kw)
    return c


def test_the_rule(mount, work):
    """A file's date is that of the manual; all are even seconds of years that every time zone reads alike."""
    c = sample()
    with mount(c.write(work / 'm.carton')) as m:
        got = look(m.path)
        for path, data in c.files().items():
            if path not in c.links() and not isinstance(data, Sparse):
                assert got[path][0] == date_of(data), path
        assert got['MANIFEST'][0] == date_of(read_file(m / 'MANIFEST'))
        assert got['views/tensor_data/numeric.bin'][0] == got['tensor_data/tensor_0.bin'][0]      # all of it
        ours = [os.stat(m / path).st_ino for path in ('.cartonfs', '.cartonfs/status.json', '.cartonfs/metrics')]
    assert all(FIRST <= date <= LAST and date % 2 == 0 for date, _ in got.values())
    numbers = [ino for _, ino in got.values()]
    assert len(set(numbers)) == len(numbers) and all(0 < ino < 1 << 48 for ino in numbers)
    assert got['.'][1] == 1 and ours == [2, 3, 4] and all(ino == 1 or ino > 15 for ino in numbers)


def test_same_from_everywhere(mount, work, nginx):
    """Packed again with other dates, in another time zone, stored otherwise, from a server, or without views."""
    one = version(1).write(work / 'one.carton')
    other = version(1, mtime=(2001, 2, 3, 4, 5, 6), method='deflate').write(nginx.root / 'other.carton')
    os.utime(other, (5, 5))
    with mount(one) as m:
        want = look(m.path)
    for source, options, zone in (other, (), 'Asia/Tokyo'), (nginx.url('other.carton'), (), 'America/Los_Angeles'):
        with mount(source, *options, '-o', f'cache_dir={work}/cache', env={'TZ': zone}) as m:
            assert look(m.path) == want
    with mount(one, '-o', 'noviews') as m:
        assert look(m.path) == {p: v for p, v in want.items() if not p.startswith('views')}


def test_other_content(mount, work):
    """Another version has other dates and numbers where the content differs, and above that; the rest stays."""
    with mount(version(1).write(work / '1.carton')) as m:
        one = look(m.path, views=False)
    with mount(version(2).write(work / '2.carton')) as m:
        two = look(m.path, views=False)
    changed = {p for p in one if one[p] != two[p]}
    assert changed == {'.', 'MANIFEST', 'model', 'model/w.bin', 'model/code.py'}
    assert all(one[p][0] != two[p][0] for p in changed)
    assert all(one[p][1] != two[p][1] for p in changed - {'.'})


def test_one_content_twice(mount, work):
    """Two paths with one content have one date and two numbers: nothing takes them for hard links."""
    c = Carton().add('model/a', b'same' * 1000).add('model/b', b'same' * 1000)
    with mount(c.write(work / 'm.carton')) as m:
        a, b = os.stat(m / 'model/a'), os.stat(m / 'model/b')
        assert a.st_mtime == b.st_mtime and a.st_ino != b.st_ino and a.st_nlink == b.st_nlink == 1
        assert run('cp', '-a', m / 'model', work / 'copy').returncode == 0
        assert os.stat(work / 'copy/a').st_nlink == 1


def test_own_dates(mount, work):
    """Files and symlinks of an unpacked directory keep their dates; its directories have those of a packed one."""
    root = version(1).unpack(work / 'unpacked')
    own = {'model/w.bin': 1_500_000_000, 'misc/link': 1_550_000_000, 'model': 1_600_000_000, '': 1_600_000_001}
    for path, date in own.items():
        os.utime(root / path, (date, date), follow_symlinks=False)
    with mount(version(1).write(work / 'm.carton')) as m:
        packed = look(m.path)
    with mount(root) as m:
        got = look(m.path)
    assert got['model/w.bin'][0] == 1_500_000_000 and got['misc/link'][0] == 1_550_000_000
    assert all(got[path] == packed[path] for path in ('.', 'model', 'model/deep', 'misc', 'views'))
    assert {path: ino for path, (_, ino) in got.items()} == {path: ino for path, (_, ino) in packed.items()}


def test_dates_of_the_mount(mount, work):
    """-o dates=mount: whatever asks which file is newer gets the time of the mount, equal for all."""
    before = int(time.time())
    with mount(version(1).write(work / 'm.carton'), '-o', 'dates=mount') as m:
        dates = {date for date, _ in look(m.path).values()}
        assert len(dates) == 1 and before <= dates.pop() <= time.time()
    p = run(CARTONFS, '-o', 'dates=never', work / 'm.carton', work)
    assert p.returncode == 1 and 'content' in p.stderr and 'mount' in p.stderr


def test_extract(work):
    """`extract` and the library have the same dates."""
    path = version(1).write(work / 'm.carton')
    assert ctl('extract', path, work / 'out').returncode == 0
    for name in ('model/w.bin', 'model/code.py', 'MANIFEST'):
        assert os.stat(work / 'out' / name).st_mtime == date_of((work / 'out' / name).read_bytes()), name


def test_views(mount, work):
    """A view of other bytes, or of other bytes in the same place with another header, has another date."""
    dates = []
    for dtype, data in ('I8', b'\1' * 4096), ('I8', b'\2' * 4096), ('U8', b'\2' * 4096):
        c = Carton()
        c.add('model/w.safetensors', st_bytes({'t': st(dtype, (4096,), 0, 4096)}, data))
        with mount(c.write(work / 'm.carton')) as m:
            dates.append([os.stat(m / f'views/model/w.safetensors/t{end}').st_mtime for end in ('.bin', '.npy')])
        assert dates[-1][0] != dates[-1][1]
    assert all(len(set(kind)) == len(kind) for kind in zip(*dates)), dates


# ---- programs that compare ----

@contextlib.contextmanager
def both(mount, work, *options):
    """Yields a function that calls its argument with the mount of version 1, then of version 2, at one place."""
    def with_each(fn):
        for n in 1, 2:
            with mount(version(n).write(work / f'{n}.carton'), *options) as m:
                point = work / 'point'
                with contextlib.suppress(FileNotFoundError):
                    point.unlink()
                point.symlink_to(m.path)
                fn(n, m)
    yield with_each


def check_copy(where, n):
    assert (where / 'model/w.bin').read_bytes() == bytes([n]) * 100_000
    assert (where / 'model/code.py').read_bytes() == b'VERSION = %d\n' % n


def test_rsync(mount, work):
    with both(mount, work) as each:
        def sync(n, m):
            assert run('rsync', '-a', f'{m.path}/', work / 'copy/').returncode == 0
            check_copy(work / 'copy', n)
        each(sync)


@pytest.mark.parametrize('dates, got', [('content', 1), ('mount', 2)])
def test_cp_update_by_order(mount, work, dates, got):
    """`cp -u` asks which file is newer: no date by content is newer than a copy of these years."""
    copied = 1_500_000_000
    assert LAST < copied < time.time()

    def sync(n, m):
        assert run('cp', '-ruT', m / 'model', work / 'copy').returncode == 0
        assert run('chmod', '-R', 'u+w', work / 'copy').returncode == 0
        os.utime(work / 'copy/w.bin', (copied, copied))
    with both(mount, work, '-o', f'dates={dates}') as each:
        each(sync)
    assert (work / 'copy/w.bin').read_bytes() == bytes([got]) * 100_000


def test_python_runs_the_version_that_is_there(mount, work):
    """Python compares size and date of a source with those in its .pyc."""
    show = ('import importlib.util as u, sys; s = u.spec_from_file_location("code_", sys.argv[1]); '
            'm = u.module_from_spec(s); s.loader.exec_module(m); print(m.VERSION)')

    def execute(n, m):
        p = subprocess.run([sys.executable, '-c', show, str(work / 'point/model/code.py')], capture_output=True,
                           text=True, env=environment(PYTHONPYCACHEPREFIX=str(work / 'pyc')))
        assert p.stdout == f'{n}\n', p.stderr
    with both(mount, work) as each:
        each(execute)
    assert list((work / 'pyc').rglob('*.pyc'))


def test_etag_of_nginx(mount, work, nginx):
    """nginx makes its ETag of date and size: the old one must not be answered with 304."""
    link, tag = nginx.root / 'mounted', None

    def fetch(n, m):
        nonlocal tag
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(m.path)
        request = urllib.request.Request(nginx.url('mounted/model/w.bin'), headers={'If-None-Match': tag or '"none"'})
        with urllib.request.urlopen(request) as r:
            assert r.status == 200 and r.read() == bytes([n]) * 100_000
            tag = r.headers['ETag']
    with both(mount, work) as each:
        each(fetch)


@pytest.mark.parametrize('zone', ['UTC', 'America/Los_Angeles', 'Asia/Tokyo', 'Pacific/Kiritimati'])
def test_zipfile(mount, work, zone):
    """Python's zipfile takes no date before 1980; a zip keeps two seconds."""
    pack = 'import shutil, sys; shutil.make_archive(sys.argv[1], "zip", sys.argv[2])'
    with mount(version(1).write(work / 'm.carton')) as m:
        p = run(sys.executable, '-c', pack, work / 'out', m / 'model', env={'TZ': zone})
        assert p.returncode == 0, p.stderr
        with zipfile.ZipFile(work / 'out.zip') as z:
            packed = z.getinfo('w.bin').date_time
        os.environ['TZ'], before = zone, os.environ.get('TZ')
        try:
            time.tzset()
            date = time.localtime(os.stat(m / 'model/w.bin').st_mtime)[:6]
        finally:
            os.environ.pop('TZ') if before is None else os.environ.update(TZ=before)
            time.tzset()
        assert packed == date
