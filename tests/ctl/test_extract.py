# SPDX-License-Identifier: Apache-2.0
"""cartonctl extract, and copies of a mount: each is a carton again."""
import fcntl
import os
import random
import re
import shutil
import signal
import stat
import subprocess

import pytest

import harness
import packerform
from harness import CARTONCTL, ctl, environment, eventually, expected, run, scan
from terminal import terminal
from zipwriter import Carton, sample

TMP = '.cartonctl-extract'


def good(where):
    p = ctl('verify', where)
    assert p.returncode == 0, p.stdout + p.stderr
    return p.stdout


@pytest.fixture(params=['carton', 'directory'])
def source(request, work):
    c = sample()
    path = c.write(work / 'm.carton') if request.param == 'carton' else c.unpack(work / 'dir')
    return path, c


def test_everything(source, work, who):
    path, c = source
    out = work / 'home' / 'out'
    os.mkdir(out.parent)
    if who is not None:
        os.chown(out.parent, who, who)
    p = ctl('extract', path, out, uid=who)
    assert p.returncode == 0 and p.stderr == '', p.stderr
    assert scan(out) == expected(c.files(), c.links())
    assert good(out).split()[-1] == c.model_hash()
    for root, dirs, files in os.walk(out):
        assert os.stat(root).st_mode & 0o700 == 0o700
        for name in files:
            st = os.lstat(os.path.join(root, name))
            rel = os.path.relpath(os.path.join(root, name), out)
            assert bool(st.st_mode & 0o111) == bool(stat.S_ISLNK(st.st_mode) or rel == 'model/run.sh'), rel
    # nothing keeps the owner from removing it
    assert run('rm', '-rf', out, uid=who).returncode == 0 and not out.exists()


def test_times_are_kept(work, mount):
    path = sample().write(work / 'm.carton')
    assert ctl('extract', path, work / 'out').returncode == 0
    with mount(path) as m:
        for name in ('MANIFEST', 'model/main.py', 'model/weights.bin'):
            assert os.stat(work / 'out' / name).st_mtime == os.stat(m / name).st_mtime, name


def test_resumes(work):
    """What is there and right is kept; what is damaged, missing or of another type is made anew."""
    c = sample()
    path, out = c.write(work / 'm.carton'), work / 'out'
    assert ctl('extract', path, out).returncode == 0
    kept = os.stat(out / 'model/weights.bin').st_ino
    (out / 'model/main.py').write_bytes(b'X' * len(c.files()['model/main.py']))
    os.remove(out / 'MANIFEST')
    (out / 'misc/picture.png').unlink()
    os.symlink('/etc/passwd', out / 'misc/picture.png')
    (out / TMP).mkdir()
    (out / TMP / '3').write_bytes(b'left by a killed process')
    p = ctl('extract', path, out)
    assert p.returncode == 0, p.stderr
    links = len(c.links())
    assert f'; {len(c.hashes()) + 1 - links - 3} kept' in p.stdout
    assert scan(out) == expected(c.files(), c.links())
    assert os.stat(out / 'model/weights.bin').st_ino == kept
    good(out)


def test_paths(source, work):
    path, c = source
    p = ctl('extract', path, work / 'out', 'misc', 'model/main.py')
    assert p.returncode == 0, p.stderr
    want = {n: d for n, d in c.files().items() if n.startswith('misc/') or n == 'model/main.py'}
    assert scan(work / 'out') == expected(want, c.links())
    p = ctl('extract', path, work / 'out', 'none')
    assert p.returncode == 1 and p.stderr == f'cartonctl: none: is not in {path}\n'


@pytest.mark.parametrize('method', ['stored', 'zstd'])
def test_a_bad_file_is_not_written(work, method):
    """The rest is; there is no MANIFEST, so nobody takes it for the carton."""
    c = Carton(method=method).add('model/good', b'good').add('model/bad', b'bad' * 9000, sha='1' * 64)
    p = ctl('extract', c.write(work / 'm.carton'), work / 'out')
    assert p.returncode == 1 and p.stderr.count('model/bad') == 1
    assert p.stderr.endswith('1 file not extracted\n'), 'running it again would not help'
    assert set(scan(work / 'out')) == {'model', 'model/good', 'carton.toml'}


def test_never_leaves_the_directory(work):
    """Symlinks that wait in the directory are not followed."""
    out, trap = work / 'out', work / 'trap'
    for d in (out, trap):
        d.mkdir()
    os.symlink(trap, out / 'model')
    os.symlink(trap / 'file', out / 'carton.toml')
    p = ctl('extract', Carton().add('model/x', b'x').write(work / 'm.carton'), out)
    assert p.returncode == 1 and 'model/x' in p.stderr and 'Not a directory' in p.stderr
    assert os.listdir(trap) == []
    assert not os.path.islink(out / 'carton.toml')


def test_only_one_at_a_time(work):
    out = work / 'out'
    (out / TMP).mkdir(parents=True)
    fd = os.open(out / TMP, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    path = sample().write(work / 'm.carton')
    p = ctl('extract', path, out)
    assert p.returncode == 1 and p.stderr == f'cartonctl: {out}: another process is extracting here\n'
    os.close(fd)
    assert ctl('extract', path, out).returncode == 0


def test_killed_in_the_middle(work):
    """No file of a wrong content is ever there; the second run goes on."""
    c = Carton()
    for i in range(24):
        c.add(f'model/{i}', random.Random(i).randbytes(4 << 20), method='stored')
    path, out = c.write(work / 'm.carton'), work / 'out'
    p = subprocess.Popen([CARTONCTL, 'extract', path, out], env=environment(), stdout=subprocess.DEVNULL)
    eventually('some files are there', lambda: (out / 'model').exists() and len(os.listdir(out / 'model')) > 3)
    p.send_signal(signal.SIGKILL)
    p.wait()
    want = expected(c.files())
    for name, what in scan(out).items():
        assert name.split('/')[0] == TMP or what == want[name]
    assert ctl('extract', path, out).returncode == 0
    assert scan(out) == want
    good(out)


@pytest.mark.needs_root
def test_full_disk(work):
    out = work / 'small'
    out.mkdir()
    assert run('mount', '-t', 'tmpfs', '-o', 'size=4M', 'none', out).returncode == 0
    try:
        path = Carton().add('model/m', random.Random(1).randbytes(9 << 20)).write(work / 'm.carton')
        p = ctl('extract', path, out)
        assert p.returncode == 1 and 'model/m' in p.stderr and 'No space left' in p.stderr
        assert p.stderr.endswith('1 file not extracted; make room, and run it again to resume\n')
        assert not (out / 'model/m').exists() and not (out / 'MANIFEST').exists()
    finally:
        run('umount', out)


def test_remote(nginx, cache, work):
    """Over the network, in parallel; the second time from the cache."""
    c = sample()
    for i in range(20):
        c.add(f'model/part{i}', random.Random(i).randbytes(300000))
    c.write(nginx.root / 'extract.carton')
    for flags in ([], ['--offline']):
        out = work / f'out{len(flags)}'
        p = ctl('extract', cache.flag, *flags, nginx.url('extract.carton'), out)
        assert p.returncode == 0, p.stderr
        assert scan(out) == expected(c.files(), c.links())


def test_a_terminal_gets_a_bar_only_if_it_takes_long(work):
    out = terminal(80, 'extract', sample().write(work / 'm.carton'), work / 'out')
    assert re.fullmatch(r'\d+ files, 1 symlink, [\d.]+ \w+ in /\S+\n', out)


@pytest.mark.needs_root
def test_root_extracts_for_another_user(work):
    """Capabilities are dropped, but not the one to write into the home of a user."""
    out = work / 'out'
    out.mkdir(0o755)
    os.chown(out, harness.NOBODY, harness.NOBODY)
    p = ctl('extract', sample().write(work / 'm.carton'), out)
    assert p.returncode == 0, p.stderr


# ---- a file system that takes two names for one ----

FOLDED = {
    'case': ('model/Readme.txt', 'model/readme.txt'),
    'dots': ('model/end', 'model/end..'),
    'unicode': ('model/caf\xe9', 'model/cafe\u0301'),
    'directories': ('model/Data/first', 'model/data/second'),
    'a file and a directory': ('model/Data/first', 'model/data'),
    'MANIFEST': ('MANIFEST', 'Manifest'),
}


def beside(p, out, *names):
    """The program has failed, and one line has the path of one of them and that of the other."""
    assert p.returncode == 1 and p.stdout == '', p.stdout + p.stderr
    assert any(f'cartonctl: {x}: cannot be in {out} beside {y}: they are one name to its file system;' in p.stderr
               for x, y in (names, names[::-1])), p.stderr


@pytest.mark.parametrize('same', [False, True], ids=['other bytes', 'same bytes'])
@pytest.mark.parametrize('kind', FOLDED)
def test_two_names_that_are_one(work, disk, kind, same):
    """No file is put over another of the carton, now or when it is run again, and there is no MANIFEST."""
    pair = FOLDED[kind]
    c = Carton().add('model/other', b'other')
    for name in pair:
        if name != 'MANIFEST':
            c.add(name, b'same' if same else name.encode())
    disk.set('fold')
    path, out = c.write(work / 'm.carton'), disk.path / 'out'
    directories = [os.path.dirname(x) for x in pair] if kind == 'directories' else pair
    if kind.endswith('a directory'):
        directories = ('model/Data', 'model/data')
    for _ in range(2):
        beside(ctl('extract', path, out), out, *directories)
        there = {n: what for n, what in scan(disk.files / 'out').items() if n != TMP}
        assert 'MANIFEST' not in there and not (disk.files / 'out' / TMP).exists()
        # which of two was kept under the name of the other is not known, but it is whole
        want = expected(c.files())
        whole = [want[n] for n in pair if n in want]
        assert all(what == want[n] or (n in pair and what in whole) for n, what in there.items()), there


def test_names_that_the_file_system_changes(work, disk):
    """One that is kept as another, with no second: the copy would not be the carton."""
    disk.set('fold')
    out = disk.path / 'out'
    path = Carton().add('model/end.', b'x').write(work / 'm.carton')
    p = ctl('extract', path, out)
    assert p.returncode == 1 and 'model/end.: cannot be in' in p.stderr and 'changes this name' in p.stderr, p.stderr
    assert not (out / 'MANIFEST').exists()


def test_a_file_that_was_there_under_another_name(work, disk):
    """It is the user's own, and is not replaced."""
    disk.set('fold')
    out = disk.path / 'out'
    (out / 'model').mkdir(parents=True)
    (out / 'model/README').write_text('mine')
    p = ctl('extract', Carton().add('model/readme', b'new').write(work / 'm.carton'), out)
    assert p.returncode == 1 and 'model/readme: cannot be in' in p.stderr, p.stderr
    assert (out / 'model/README').read_text() == 'mine' and not (out / 'MANIFEST').exists()


def test_names_that_a_folding_file_system_tells_apart(work, disk):
    """All that is there under its own name is kept or replaced, as elsewhere."""
    c = sample()
    disk.set('fold')
    path, out = c.write(work / 'm.carton'), disk.path / 'out'
    assert ctl('extract', path, out).returncode == 0
    (out / 'model/main.py').write_bytes(b'damaged')
    os.remove(out / 'MANIFEST')
    p = ctl('extract', path, out)
    assert p.returncode == 0 and ' kept' in p.stdout, p.stderr
    assert scan(disk.files / 'out') == expected(c.files(), c.links())


def test_a_path_that_is_named_twice(work):
    p = ctl('extract', Carton().add('model/x', b'x').write(work / 'm.carton'), work / 'out', 'model/x', 'model', 'model/x')
    assert p.returncode == 0 and p.stdout.startswith('1 file, '), p.stdout + p.stderr

# ---- a directory in which others can write ----

OTHER = harness.NOBODY - 1              # the attacker


@pytest.fixture
def shared(work):
    """A sticky directory, as /tmp is, and a carton."""
    out = work / 'shared'
    out.mkdir()
    out.chmod(0o1777)
    c = sample()
    path = c.write(work / 'm.carton')
    path.chmod(0o644)
    return out, path, c


@pytest.mark.needs_root
@pytest.mark.parametrize('owner, mode, why', [
    (OTHER, 0o777, f'belongs to uid {OTHER}'), (OTHER, 0o755, f'belongs to uid {OTHER}'),
    (None, 0o777, 'has mode 0777'), (None, 0o720, 'has mode 0720')])
def test_temporary_directory_of_another_user(shared, who, owner, mode, why):
    """He would open the files in it while they are written, and put his bytes there."""
    out, path, _ = shared
    (out / TMP).mkdir()
    os.chmod(out / TMP, mode)
    uid = (who or 0) if owner is None else owner
    os.chown(out / TMP, uid, uid)
    p = ctl('extract', path, out, uid=who)
    assert p.returncode == 1 and f'{TMP} {why}' in p.stderr and p.stderr.count('\n') == 1, p.stderr
    assert os.listdir(out) == [TMP] and os.listdir(out / TMP) == []


@pytest.mark.needs_root
def test_directory_of_another_user_below(shared, who):
    """He would replace the files in it, and does so when they were verified."""
    out, path, _ = shared
    (out / 'model').mkdir()
    os.chmod(out / 'model', 0o777)
    os.chown(out / 'model', OTHER, OTHER)
    p = ctl('extract', path, out, uid=who)
    assert p.returncode == 1 and 'model/' in p.stderr, p.stderr
    assert os.listdir(out / 'model') == [] and not (out / 'MANIFEST').exists()


@pytest.mark.needs_root
def test_file_of_another_user_is_not_kept(shared):
    """It has the right bytes while they are compared, and others later."""
    out, path, c = shared
    name, data = next((n, d) for n, d in c.files().items() if '/' not in n)
    (out / name).write_bytes(data)
    (out / name).chmod(0o644)
    os.chown(out / name, OTHER, OTHER)
    p = ctl('extract', path, out, uid=harness.NOBODY)
    assert p.returncode == 1 and name in p.stderr, p.stderr
    assert not (out / 'MANIFEST').exists()
    os.unlink(out / name)
    p = ctl('extract', path, out, uid=harness.NOBODY)
    assert p.returncode == 0, p.stderr
    assert os.stat(out / name).st_uid == harness.NOBODY


# ---- copies of a mount ----

@pytest.fixture
def tensor_carton(work):
    return packerform.packed().write(work / 'tensors.carton')


@pytest.mark.parametrize('options', [[], ['-o', 'views=shown']])
def test_a_copied_mount_is_a_carton(mount, tensor_carton, work, who, options):
    path = tensor_carton
    copy = work / 'home' / 'copy'
    os.mkdir(copy.parent)
    if who is not None:
        os.chown(copy.parent, who, who)
    with mount(path, *options, uid=who) as m:
        assert run('cp', '-a', m.path, copy, uid=who).returncode == 0
        model = ctl('hash', path).stdout
    assert (copy / (options[-1][6:] if options else 'views') / 'tensor_data/index.json').exists()
    good(copy)
    assert ctl('hash', copy).stdout == model
    assert 'views' not in ctl('ls', '-0', copy).stdout
    assert ctl('extract', copy, work / 'out').returncode == 0
    assert set(os.listdir(work / 'out')) == {'MANIFEST', 'carton.toml', 'misc', 'model', 'tensor_data'}
    with mount(copy, *options, uid=who) as m:
        assert m.stderr == ''
        assert m.sha('views/tensor_data/index.json' if not options else 'shown/tensor_data/index.json')
    assert run('rm', '-rf', copy, uid=who).returncode == 0 and not copy.exists()


def test_only_an_exact_marker_counts(mount, tensor_carton, work):
    with mount(tensor_carton) as m:
        shutil.copytree(m.path, work / 'copy')
    marker = work / 'copy/views/.cartonfs-views'
    text = marker.read_bytes()
    for other in (text[:-1], text[:-1] + b'X', text + b'\n', b''):
        marker.write_bytes(other)
        p = ctl('verify', work / 'copy')
        assert p.returncode == 2 and 'views/tensor_data/index.json: is not listed' in p.stdout
    marker.write_bytes(text)
    good(work / 'copy')


def test_a_marker_hides_nothing_that_is_listed(work):
    """In a carton of its own, such a directory is like every other."""
    text = b'This directory was generated by cartonfs. It is not part of the carton: in ' \
        b'a copy of the mount it is ignored, and can be removed.\n'
    c = Carton().add('model/.cartonfs-views', text).add('model/m', b'm')
    root = c.unpack(work / 'dir')
    (root / 'model/extra').write_bytes(b'x')
    assert 'model/m' in ctl('ls', '-0', root).stdout
    assert ctl('cat', root, 'model/m').stdout == 'm'
    # in a zip no marker counts
    c.add('model/unlisted', b'x', listed=False)
    assert ctl('verify', c.write(work / 'm.carton')).returncode == 2
