# SPDX-License-Identifier: Apache-2.0
"""cartonctl init: what it writes passes pack and verify as it stands, and nothing that is there is lost."""
import os
import re
import subprocess
import tomllib

import pytest

from harness import CARTONCTL, IS_ROOT, NOBODY, ctl, run
from packing import hub_cache, pack, verified, zipped


def init(*words, **kw):
    """Runs it; the lines that it prints."""
    p = ctl('init', *words, **kw)
    assert p.returncode == 0 and p.stderr == '', p.stderr
    return p.stdout.splitlines()


def refused(*words, **kw):
    p = ctl('init', *words, **kw)
    assert p.returncode == 1 and p.stdout == '', p.stdout
    return p.stderr


def read(path):
    return tomllib.loads((path / 'carton.toml').read_text())


@pytest.fixture
def model(work):
    path = work / 'mymodel'
    path.mkdir()
    (path / 'model.safetensors').write_bytes(b'')
    return path


def test_what_it_writes(model, work):
    """The required keys, each optional one as a comment with an example, and what to do next."""
    lines = init('mymodel', cwd=work)
    assert lines == ['mymodel/carton.toml: model_name mymodel', 'runner noop, framework *',
                     'noop: programs read them themselves, no runner of Carton loads safetensors files',
                     'next: cartonctl pack mymodel mymodel.carton']
    assert max(map(len, lines)) <= 80
    assert read(model) == {'spec_version': 1, 'model_name': 'mymodel',
                           'runner': {'runner_name': 'noop', 'required_framework_version': '*',
                                      'runner_compat_version': 1}}
    pack('pack', model, work / 'm.carton')
    verified(work / 'm.carton')
    # the comments are right, too: all but references to files that the model does not have
    text = (model / 'carton.toml').read_text()
    known = set(tomllib.loads(re.sub('^# ', '', text, flags=re.M)))
    assert known == {'spec_version', 'model_name', 'short_description', 'model_description', 'license', 'repository',
                     'homepage', 'required_platforms', 'input', 'output', 'self_test', 'example', 'runner'}
    (model / 'carton.toml').write_text(re.sub(r'^# (?!\[\[self|\[\[exam|inputs|expected|sample)', '', text, flags=re.M))
    pack('pack', model, work / 'm.carton')
    verified(work / 'm.carton')
    assert '[batch, 3, 224, 224]' in ctl('info', work / 'm.carton').stdout


@pytest.mark.parametrize('name, want', [
    ('a model', 'a model'), ("it's \"quoted\"", "it's \"quoted\""), ('名前 Ω🥳', '名前 Ω🥳'), ('new\nline\t', 'new_line_'),
    ('.hidden', 'hidden'), ('...', 'model'), ('-rf', '-rf'), ('$(id);`id`&', '$(id);`id`&'), ('back\\slash', 'back\\slash'),
    ('\x1b[31m\u202e', '_[31m_'), (b'\xff\xc3model', '__model'), ('n' * 255, 'n' * 240), ('#', '#'), ('é' * 127, 'é' * 120),
])
def test_odd_directories(work, name, want):
    """The name is valid, and the command that is printed does what it says."""
    name = os.fsdecode(name)
    path = work / name
    path.mkdir()
    (path / 'config.json').write_bytes(b'')
    lines = init(f'./{name}' if name == '-rf' else name, cwd=work)
    assert read(path)['model_name'] == want
    command = lines[-1].removeprefix('next: ')
    if want == name or name in ('.hidden', '...', '-rf'):
        p = subprocess.run(command.replace('cartonctl', str(CARTONCTL), 1), shell=True, cwd=work, capture_output=True)
        assert p.returncode == 0 and p.stderr == b'', p.stderr
    else:
        pack('pack', path, work / f'{want}.carton')
    verified(work / f'{want}.carton')
    # from within
    (path / 'carton.toml').unlink()
    assert init('.', cwd=path)[-1].startswith('next: cartonctl pack . ')


def test_in_the_directory(model, work):
    """A carton may not lie in the directory that it is made of."""
    assert init('.', cwd=model)[-1] == 'next: cartonctl pack . ../mymodel.carton'
    (model / 'carton.toml').unlink()
    assert init('.', '--name=org/model', cwd=model)[-1] == 'next: cartonctl pack . ../org_model.carton'
    assert read(model)['model_name'] == 'org/model'
    (model / 'carton.toml').unlink()
    assert init(f'{model}/')[0] == f'{model}/carton.toml: model_name mymodel'


@pytest.mark.parametrize('there', ['file', 'symlink', 'directory'])
def test_never_overwrites(model, there):
    path = model / 'carton.toml'
    if there == 'file':
        path.write_text('mine')
    elif there == 'symlink':
        os.symlink('gone', path)
    else:
        path.mkdir()
    assert refused(model) == 'cartonctl: carton.toml: is there already, and stays as it is; ' \
        'without it, init makes another\n'
    assert path.is_dir() if there == 'directory' else path.is_symlink() if there == 'symlink' else \
        path.read_text() == 'mine'
    assert not (model / 'gone').exists()


DATA = {'script': lambda: zipped('model/data.pkl', 'model/constants.pkl', 'model/version'),
        'checkpoint': lambda: zipped('model/data.pkl', 'model/version'), 'other': lambda: b'?'}


@pytest.mark.parametrize('name, data, runner, framework', [
    ('model.pt', 'script', 'torchscript', '*'), ('model.wasm', 'other', 'wasm', '=0.0.1'),
    ('model.pt', 'checkpoint', 'PyTorch', None), ('model.pt', 'other', 'PyTorch', None),
    ('other.pt', 'script', 'PyTorch', None), ('model.gguf', 'other', 'GGUF', None), ('a/b/c.onnx', 'other', 'ONNX', None),
    ('pytorch_model.bin', 'other', 'PyTorch', None), ('weights.bin', 'other', 'these', None), ('readme', 'other', 'these', None),
])
@pytest.mark.parametrize('parts', [False, True])
def test_runner_by_files(work, name, data, runner, framework, parts):
    """One that loads just this file; else noop, which is said with what there is."""
    path = work / 'm' / ('model/' if parts else '') / name
    path.parent.mkdir(parents=True)
    path.write_bytes(DATA[data]())
    lines = init(work / 'm')
    got = read(work / 'm')['runner']
    if framework:
        assert (got['runner_name'], got['required_framework_version']) == (runner, framework)
        assert lines[1] == f'runner {runner}, framework {framework}, for model/{name}' and len(lines) == 3
    else:
        assert (got['runner_name'], got['required_framework_version']) == ('noop', '*')
        assert f' loads {runner} files' in lines[2]
    pack('pack', work / 'm', work / 'm.carton')
    verified(work / 'm.carton')


def test_options(model, work):
    for words, name, runner, framework in (
            (['--runner=python'], 'mymodel', 'python', '*'),
            (['--runner=python@2', '--framework=>=3.9, <4', '--name=a "b"'], 'a "b"', 'python', '>=3.9, <4'),
            (['--framework==1.12.1'], 'mymodel', 'noop', '=1.12.1'),
            (['--name=' + 'n' * 240, '--runner=' + 'r' * 64], 'n' * 240, 'r' * 64, '*')):
        lines = init(*words, model)
        toml = read(model)
        assert (toml['model_name'], toml['runner']['runner_name'],
                toml['runner']['required_framework_version']) == (name, runner, framework)
        assert (len(lines) == 3) == ('--runner' in ''.join(words))
        pack('pack', model, work / 'm.carton')
        verified(work / 'm.carton')
        (model / 'carton.toml').unlink()


def test_refused(model, work):
    for words, text in ((['--runner=@1', model], 'expected NAME or NAME@VERSION'), (['--runner=a b', model], 'the name of a runner'),
                        (['--runner=' + 'r' * 65, model], 'the name of a runner'),
                        (['--runner=x@y', model], 'expected NAME or NAME@VERSION'),
                        (['--framework=one', model], 'is no version requirement'),
                        (['--name=' + 'n' * 241, model], 'the name is not'), (['--name=a\nb', model], 'the name is not'),
                        (['--name=.a', model], 'the name is not'), ([], 'DIRECTORY is missing'),
                        ([model, 'more'], 'too many arguments: more'), ([work / 'gone'], 'gone: cannot open'),
                        ([model / 'model.safetensors'], 'model.safetensors: is not a directory'),
                        (['--exclude=*', model], 'has no files of a model'),
                        (['--jobs=2', model], 'init has no option --jobs')):
        assert text in refused(*words), words
    assert os.listdir(model) == ['model.safetensors']
    # what pack would refuse
    (model / 'misc').mkdir()
    assert f'{model}: has no files of a model' in refused(model)
    (model / 'model').mkdir()
    (model / 'model/a').write_bytes(b'')
    assert 'model.safetensors: is not a part of a carton' in refused(model)
    os.mkfifo(model / 'model/fifo')
    assert 'model/fifo: is a fifo' in refused(model)
    assert not (model / 'carton.toml').exists()


def test_the_same_files_as_pack(model, work):
    """--exclude and --dereference stand in the command that is printed."""
    (work / 'far').write_bytes(b'far')
    os.symlink('../far', model / 'far')
    os.mkfifo(model / "fifo's")
    assert 'is a fifo' in refused('--dereference', model) and '--dereference' in refused("--exclude=fi*", model)
    lines = init("--exclude=fifo'*", '--dereference', 'mymodel', cwd=work)
    assert lines[-1] == "next: cartonctl pack --dereference --exclude='fifo'\\''*' mymodel mymodel.carton"
    pack('pack', '--dereference', "--exclude=fifo'*", model, work / 'm.carton')


def test_hub_cache(work):
    """Named as the repository; the file is beside the symlinks; the directory above is refused."""
    path = hub_cache(work / 'hub', {'config.json': b'{}', 'model.safetensors': b'', 'model/x': b'x'})
    p = ctl('init', path)
    assert p.returncode == 0 and 'is in a hub\'s cache' in p.stderr and read(path)['model_name'] == 'name'
    assert p.stdout.splitlines()[-1] == f'next: cartonctl pack {path} name.carton'
    pack('pack', path, work / 'm.carton', note='--dereference')
    verified(work / 'm.carton')
    assert f'name a commit of it: {path}\n' in refused(path.parent.parent)


@pytest.mark.needs_root
def test_directory_of_others(model):
    """A user may not write there."""
    os.chmod(model, 0o755)
    assert 'carton.toml: cannot be written: Permission denied' in refused(model, uid=NOBODY)
    os.chown(model, NOBODY, NOBODY)
    init(model, uid=NOBODY)
    assert os.stat(model / 'carton.toml').st_uid == NOBODY and IS_ROOT


@pytest.mark.needs_plain_build
def test_killed(model):
    """No file may be so large: nothing is left."""
    p = run('sh', '-c', 'ulimit -f 0; "$0" init "$1"', CARTONCTL, model)
    assert p.returncode == 1, p.stderr
    assert 'carton.toml: cannot be written: the limit of the size of files is met; raise it: ulimit -f' in p.stderr
    assert os.listdir(model) == ['model.safetensors']


@pytest.mark.parametrize('command', ['init', 'pack'])
def test_symlink_that_leads_nowhere(work, command):
    """It is said by the command that looks at the files first."""
    (work / 'd').mkdir()
    (work / 'd/w.bin').write_bytes(b'x')
    if command == 'pack':
        assert ctl('init', work / 'd').returncode == 0
    (work / 'd/link').symlink_to('gone')
    p = ctl(command, work / 'd', *([work / 'm.carton'] if command == 'pack' else []))
    assert p.returncode == 1 and 'model/link: is a symlink that does not lead to a file: remove it' in p.stderr, p.stderr
    assert (work / 'd/carton.toml').exists() == (command == 'pack')


@pytest.mark.parametrize('top', ['', 'model/'])
def test_symlink_to_a_directory(work, top):
    """init warns of what pack will refuse, and both say what helps; beneath model/ or at the top."""
    (work / 'd' / top / 'sub').mkdir(parents=True)
    (work / 'd' / top / 'sub/f').write_bytes(b'x')
    (work / 'd' / top / 'file').symlink_to('sub/f')
    (work / 'd' / top / 'link').symlink_to('sub')
    p = ctl('init', work / 'd')
    assert p.returncode == 0 and p.stderr == (
        'cartonctl: model/link: is a symlink to a directory, which pack refuses: --dereference packs what is in it, '
        '--exclude=GLOB leaves it out\n')
    p = ctl('pack', work / 'd', work / 'm.carton')
    assert p.returncode == 1 and p.stderr.startswith(
        'cartonctl: model/link: is a symlink to a directory, and those of a carton lead to files: cartonctl pack '
        '--dereference packs what is in the directory\n'), p.stderr
    assert not (work / 'm.carton').exists()
    pack('pack', '--dereference', work / 'd', work / 'm.carton')
    assert ctl('cat', work / 'm.carton', 'model/link/f').stdout == 'x'
    pack('pack', f'--exclude={top}link', work / 'd', work / 'without.carton')
