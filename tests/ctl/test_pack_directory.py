# SPDX-License-Identifier: Apache-2.0
"""cartonctl pack: which files of a directory it takes. What it leaves out, what symlinks lead to, a hub's cache."""
import os
import shutil
import stat
import unicodedata

import pytest

import packerform
from harness import ctl, scan
from packing import COMMIT, files_of, hub_cache, pack, refused, verified
from zipwriter import Carton

TOML = Carton().entries['carton.toml'].data


def put(root, **files):
    """Files by their paths, in which __ is /."""
    for name, data in files.items():
        path = root / name.replace('__', '/')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


@pytest.fixture
def flat(work):
    """A directory of the files of a model, with carton.toml."""
    path = put(work / 'flat', config=b'{}', sub__deep__weights=b'w' * 5000)
    (path / 'carton.toml').write_bytes(TOML)
    return path


@pytest.fixture
def out(work):
    (work / 'out').mkdir()
    return work / 'out/m.carton'


def test_files_of_a_model(flat, work, out):
    """Without model/, misc/ and tensor_data/ they are what model/ has."""
    got = pack('pack', flat, out)
    verified(out)
    assert files_of(out) == {'model/config', 'model/sub/deep/weights'}
    put(work / 'parts', model__config=b'{}', model__sub__deep__weights=b'w' * 5000)
    (work / 'parts/carton.toml').write_bytes(TOML)
    assert pack('pack', work / 'parts', out) == got
    # one of the three is a part, and the files beside it are not
    for name in ('misc', 'tensor_data', 'model'):
        (flat / name).mkdir()
        assert 'config: is not a part of a carton' in refused(out, 'pack', flat, out, old=out.read_bytes())
        (flat / name).rmdir()
    # files of these names are none of them
    put(flat, model=b'1', misc=b'2', MANIFEST=b'3', sub__carton=b'4')
    pack('pack', flat, out)
    assert files_of(out) == {'model/config', 'model/sub/deep/weights', 'model/model', 'model/misc', 'model/MANIFEST',
                             'model/sub/carton'}


def test_names_in_two_forms(work, out, mount):
    """A name in NFC and the same in NFD are two files, as in every Linux file system; libarchive has one name for both."""
    names = [unicodedata.normalize(form, 'modèle') for form in ('NFC', 'NFD')]
    root = put(work / 'forms', **{f'model__{name}': data for name, data in zip(names, (b'composed', b'not'))})
    (root / 'carton.toml').write_bytes(TOML)
    pack('pack', root, out)
    verified(out)
    assert files_of(out) == {f'model/{name}' for name in names}
    with mount(out) as m:
        assert [m.read(f'model/{name}') for name in names] == [b'composed', b'not']
    assert ctl('extract', out, work / 'there').returncode == 0
    assert sorted(os.listdir(work / 'there/model')) == sorted(names)


def test_pointers_of_git_lfs(work, out):
    """A clone without git-lfs has pointers in place of its large files: each command that looks at them says so."""
    text = 'version https://git-lfs.github.com/spec/v1\n'
    pointer = f'{text}oid sha256:{1:064}\nsize 123456\n'.encode()
    root = put(work / 'clone', **{'config.json': b'{}', 'model.safetensors': pointer, 'sub__w.bin': pointer,
                                  'README.md': f'A file that begins with\n{pointer}'.encode(), 'short': text.encode(),
                                  'long': pointer + bytes(1024)})
    said = [f'cartonctl: model/{name}: is a git-lfs pointer, not the file: run git lfs pull where the repository was '
            'cloned, and pack that' for name in ('model.safetensors', 'sub/w.bin')]
    no_tensors = 'cartonctl: model/model.safetensors: no tensors are shown: it is a git-lfs pointer, not the file'
    for command in ('init', root), ('pack', root, out), ('verify', out), ('info', out), ('info', '--json', out):
        p = ctl(*command)
        assert p.returncode == 0
        assert p.stderr.splitlines() == said + [no_tensors] * (command == ('info', out)), command


def test_copy_of_a_mount(work, out, mount):
    """The generated directory stays behind, whatever its name; one with another marker is refused as ever."""
    source = packerform.packed().write(work / 'm.carton')
    want = ctl('hash', source).stdout
    for name in 'views', 'shown':
        with mount(source, '-o', f'views={name}') as m:
            p = ctl('pack', m.path, out)        # the mount itself is one, too
            assert (p.returncode, p.stdout) == (0, want)
            assert p.stderr == f'cartonctl: {name}/: is left out: a mount has generated it\n'
            shutil.copytree(m.path, work / name, symlinks=True)
        assert ctl('pack', work / name, out).stdout == want
        verified(out)
    with open(work / 'views/.cartonfs-views', 'ab') as f:
        f.write(b'x')
    assert 'views: is not a part of a carton' in refused(out, 'pack', work / 'views', out, old=out.read_bytes())


def test_no_carton_toml(flat, out):
    """One line says what is missing, and the command that makes it."""
    (flat / 'carton.toml').unlink()
    said = refused(out, 'pack', flat, out).splitlines()
    assert said == [f'cartonctl: carton.toml: is missing; make it: cartonctl init {flat}',
                    f'cartonctl: {out} was not made']
    odd = flat.rename(flat.parent / "it's a model")
    assert "make it: cartonctl init '" in refused(out, 'pack', odd, out)


# ---- what is left out ----

def test_left_by_tools(flat, out):
    """At any depth, whatever it is; nobody looks into it; one line says so."""
    want = pack('pack', flat, out)
    put(flat, **{'.git__config': b'1', 'sub__.cache__a': b'2', 'sub__deep__pycache': b'kept'})
    (flat / 'sub/__pycache__').write_bytes(b'a file')
    os.mkfifo(flat / '.git/fifo')
    assert pack('pack', flat, out, note='left out: ') != want
    assert files_of(out) == {'model/config', 'model/sub/deep/weights', 'model/sub/deep/pycache'}
    (flat / 'sub/deep/pycache').unlink()
    assert pack('pack', flat, out, note='left out: ') == want
    p = ctl('pack', flat, out)
    assert {*p.stderr.removeprefix('cartonctl: left out: ').rstrip('\n').split(', ')} == \
        {'.git', 'sub/.cache', 'sub/__pycache__'}
    for i in range(4):
        put(flat, **{f'{i}__.git': b''})
    assert pack('pack', flat, out, note=' and 4 more') == want


@pytest.mark.parametrize('globs, left', [
    (['*.bin'], {'config', 'sub/deep/weights'}),        # * matches / too
    (['sub'], {'config', 'a.bin'}), (['sub/*'], {'config', 'a.bin'}), (['*/deep'], {'config', 'a.bin', 'sub/b.bin'}),
    (['*/w?ights', '[ab].bin'], {'config', 'sub/b.bin'}), (['sub/b.bin', 'a.*', 'sub/deep/*'], {'config'}),
])
def test_exclude(flat, out, globs, left):
    put(flat, **{'a.bin': b'a', 'sub__b.bin': b'b'})
    pack('pack', *(f'--exclude={g}' for g in globs), flat, out)
    verified(out)
    assert files_of(out) == {f'model/{name}' for name in left}


def test_excluded_directories_are_not_read(flat, out):
    put(flat, bad__file=b'')
    os.mkfifo(flat / 'bad/fifo')
    os.symlink('/etc/passwd', flat / 'bad/link')
    pack('pack', '--exclude=bad', flat, out)
    assert files_of(out) == {'model/config', 'model/sub/deep/weights'}


def test_exclude_refused(flat, out):
    """Not carton.toml; a pattern too many; a pattern that matches nothing is said."""
    want = pack('pack', flat, out)
    old = out.read_bytes()
    for glob in ('carton.toml', '*.toml', '*'):
        assert f'carton.toml: has to be in a carton, but --exclude={glob} matches it' in \
            refused(out, 'pack', f'--exclude={glob}', flat, out, old=old)
    assert pack('pack', '--exclude=*.tmol', flat, out, note='--exclude=*.tmol matches nothing') == want
    many = [f'--exclude=config{"*" * i}' for i in range(64)]
    pack('pack', *many, flat, out)
    assert files_of(out) == {'model/sub/deep/weights'}
    assert 'at most 64 times' in refused(out, 'pack', *many, '--exclude=x', flat, out, old=out.read_bytes())
    assert 'repack has no option --exclude' in refused(out, 'repack', '--exclude=x', out, out, old=out.read_bytes())


# ---- symlinks ----

def test_symlinks_out_of_the_directory(flat, work, out):
    """Refused with the option that packs them; with it, they are files, wherever they lead."""
    put(work / 'far', a=b'far away', dir__b=b'far below', dir__more__c=b'c')
    os.chmod(work / 'far/a', 0o755)
    for name, target in (('a', work / 'far/a'), ('dir', '../far/dir'), ('again', 'a'), ('near', 'sub/deep/weights')):
        os.symlink(target, flat / name)
    said = refused(out, 'pack', flat, out)
    assert 'is a symlink that does not lead to a file of the directory; --dereference packs what it leads to' in said
    pack('pack', '--dereference', flat, out)
    verified(out)
    assert files_of(out) == {f'model/{name}' for name in
                             ('config', 'sub/deep/weights', 'a', 'again', 'near', 'dir/b', 'dir/more/c')}
    assert ctl('extract', out, work / 'copy').returncode == 0
    got = work / 'copy/model'
    assert not (got / 'a').is_symlink() and (got / 'again').read_bytes() == b'far away'
    assert os.stat(got / 'a').st_mode & stat.S_IXUSR and (got / 'near').read_bytes() == b'w' * 5000
    # without it, those that stay in the directory stay symlinks
    for name in ('a', 'dir', 'again'):
        (flat / name).unlink()
    pack('pack', flat, out)
    assert 'symlink' in ctl('ls', out).stdout


@pytest.mark.parametrize('name, target, text', [
    ('sub/l', '.', 'is a symlink to a directory that it is in'), ('l', '.', 'is a symlink to a directory that it is in'),
    ('sub/deep/l', '../..', 'is a symlink to a directory that it is in'),
    ('sub/l', 'l', 'cannot be followed: Too many levels'), ('l', 'gone', 'cannot be followed: No such file'),
    ('l', '/dev/null', 'is a fifo, device or socket'), ('l', '/proc/self/fd/0', 'cannot be followed: Too many levels'),
])
def test_symlinks_that_cannot_be_followed(flat, out, name, target, text):
    os.symlink(target, flat / name)
    said = refused(out, 'pack', '--dereference', flat, out)
    assert f'model/{name}: ' in said and text in said and said.count('\n') == 2, said


def test_symlinks_that_meet(flat, work, out):
    """Two directories that lead to each other."""
    put(work / 'x', a=b'')
    put(work / 'y', b=b'')
    os.symlink('../y', work / 'x/y')
    os.symlink('../x', work / 'y/x')
    os.symlink('../x', flat / 'x')
    assert 'model/x/y/x: is a symlink to a directory that it is in' in refused(out, 'pack', '--dereference', flat, out)


# ---- the cache of a hub's client ----

HUB = {'config.json': b'{}', 'onnx/model.onnx': b'o' * 3000, 'model/weights': b'w' * 4000, '.gitattributes': b''}


@pytest.fixture
def snapshot(work):
    path = hub_cache(work / 'hub', HUB)
    (path / 'carton.toml').write_bytes(TOML)
    return path


def test_hub_cache(snapshot, work, out):
    """Its symlinks are followed, which is said; all of it is the model, as of the repository at the hub."""
    said = 'is in a hub\'s cache: its symlinks are followed, as with --dereference'
    want = pack('pack', snapshot, out, note=said)
    verified(out)
    assert files_of(out) == {f'model/{name}' for name in HUB}
    assert ctl('extract', out, work / 'copy').returncode == 0
    assert {n: (work / 'copy/model' / n).read_bytes() for n in HUB} == HUB
    # the same by another name, and with the option; and of plain files
    p = ctl('pack', '.', out, cwd=snapshot)
    assert p.stdout.strip() == want and said in p.stderr
    assert pack('pack', '--dereference', snapshot, out) == want
    assert pack('pack', work / 'copy', out) == want


def test_hub_cache_does_not_lead_out(snapshot, work, out):
    """What is followed without being asked ends at the directory of the repository."""
    put(work / 'hub/models--org--other', blobs__secret=b'secret')
    put(work, secret=b'secret')
    for target in ('../../../models--org--other/blobs/secret', work / 'secret', '/etc/passwd',
                   snapshot / 'config.json'):
        os.symlink(target, snapshot / 'out')
        said = refused(out, 'pack', snapshot, out)
        assert 'model/out: is a symlink that does not lead' in said and '--dereference' in said
        (snapshot / 'out').unlink()
    # what was not fetched
    (snapshot / 'config.json').resolve().unlink()
    assert 'model/config.json: is a symlink that cannot be followed: No such file' in refused(out, 'pack', snapshot, out)


@pytest.mark.parametrize('revision', [True, False])
def test_hub_cache_of_a_repository(work, out, revision):
    """Not the snapshot, but the directory above all of them: the snapshot is named."""
    path = hub_cache(work / 'hub', HUB, revision).parent.parent
    commit = COMMIT if revision else 'COMMIT'
    assert refused(out, 'pack', path, out).splitlines()[0].endswith(f'name a commit of it: {path}/snapshots/{commit}')
    (path / 'refs').mkdir(exist_ok=True)
    (path / 'refs/main').write_bytes(b'../../\x1b[31m' * 100)
    assert 'snapshots/COMMIT\n' in refused(out, 'pack', path, out)
    (path / 'refs/main').unlink()
    os.mkfifo(path / 'refs/main')       # which nobody writes to
    assert 'snapshots/COMMIT\n' in refused(out, 'pack', path, out)


def test_what_a_mount_of_it_shows(snapshot, out, mount):
    pack('pack', snapshot, out, note='--dereference')
    with mount(out) as m:
        assert {n for n, what in scan(m / 'model').items() if what[0] == 'file'} == set(HUB)
