# SPDX-License-Identifier: Apache-2.0
"""What leaves a mount with a copy of its files, and what does not: attributes say something of the mount only."""
import json
import os
import subprocess

import pytest

from harness import CARTONCTL, ctl, read_file, run
from tensorfiles import st, st_bytes
from zipwriter import Carton, sha256

STATE = 'user.carton.state'
needs_root = pytest.mark.needs_root


@pytest.fixture
def shown(mount, work):
    """A mount with a file that is verified, and others whose names mean something to cartonctl."""
    c = Carton(method='stored').add('model/a', b'the bytes\n').add('model/w.safetensors', st_bytes({'t': st('F32', (2, 3), 0, 24)}, bytes(24)))
    c.add('misc/inner.carton', Carton().add('model/x', b'x').write(work / 'inner.carton').read_bytes())
    with mount(c.write(work / 'm.carton')) as m:
        read_file(m / 'model/a')
        assert m.state('model/a') == 'verified'
        yield m, c.files()


def attributes(path):
    try:
        return {name: os.getxattr(path, name) for name in (*os.listxattr(path), STATE)}
    except OSError as e:
        return os.strerror(e.errno)


def test_copies(shown, work):
    """Programs that copy attributes have none to copy: nothing is called verified that somebody may change."""
    m, _ = shown
    for command in ('cp', '-a'), ('cp', '--preserve=all'), ('rsync', '-aX'), ('tar',):
        to = work / '-'.join(command).replace('/', '')
        to.mkdir()
        if command == ('tar',):
            p = subprocess.run(f'tar --xattrs --xattrs-include=* -cC {m.path} model/a | tar --xattrs -xC {to}', shell=True,
                               capture_output=True, text=True)
            copy = to / 'model/a'
        else:
            p = run(*command, m / 'model/a', f'{to}/')
            copy = to / 'a'
        assert p.returncode == 0 and p.stderr == '', command
        assert os.listxattr(copy) == [] and attributes(copy) == 'No data available', command


@needs_root
def test_copies_to_where_there_are_no_attributes(shown, work):
    """rsync -X to a file system without attributes fails if there is one to copy."""
    m, files = shown
    to = work / 'ramfs'
    to.mkdir()
    assert run('mount', '-t', 'ramfs', 'none', to).returncode == 0
    try:
        p = run('rsync', '-aX', f'{m / "model"}/', f'{to}/')
        assert p.returncode == 0, p.stderr
        assert read_file(to / 'a') == files['model/a']
    finally:
        run('umount', to)


@needs_root
def test_overlay(shown, work):
    """overlayfs copies a file up with its attributes before somebody writes to it."""
    m, files = shown
    for name in ('layers', 'merged'):
        (work / name).mkdir()
    # on a file system of its own: overlayfs takes not every one as its upper layer
    assert run('mount', '-t', 'tmpfs', 'none', work / 'layers').returncode == 0
    try:
        for name in ('upper', 'index'):
            (work / 'layers' / name).mkdir()
        options = f'lowerdir={m.path},upperdir={work}/layers/upper,workdir={work}/layers/index'
        assert run('mount', '-t', 'overlay', 'o', '-o', options, work / 'merged').returncode == 0
        try:
            with open(work / 'merged/model/a', 'ab') as f:
                f.write(b'changed')
            assert read_file(work / 'merged/model/a') == files['model/a'] + b'changed'
            assert attributes(work / 'merged/model/a') == 'No data available'
            assert attributes(work / 'layers/upper/model/a') == 'No data available'
        finally:
            run('umount', work / 'merged')
    finally:
        run('umount', work / 'layers')


# ---- cartonctl info FILE ----

def rows(text):
    """{label: value} of what it prints below the name."""
    return dict(line.split(None, 1) for line in text.splitlines()[2:])


def test_info_of_a_file(shown):
    m, files = shown
    p = ctl('info', m / 'model/a')
    assert p.stdout.splitlines()[:2] == [str(m / 'model/a'), '']
    assert rows(p.stdout) == {'size': '10 B', 'sha256': sha256(files['model/a']), 'state': 'verified', 'storage': 'stored 10'}
    for name in 'model/w.safetensors', 'misc/inner.carton':         # whatever its name
        got = json.loads(ctl('info', '--json', m / name).stdout)
        assert got == {'file': str(m / name), 'bytes': len(files[name]), 'sha256': sha256(files[name]),
                       'state': 'unverified', 'storage': f'stored {len(files[name])}'}
    view = json.loads(ctl('info', '--json', m / 'views/model/w.safetensors/t.npy').stdout)
    assert (view['dtype'], view['shape']) == ('float32', '[2,3]') and 'sha256' not in view
    assert rows(ctl('info', m / 'MANIFEST').stdout).keys() == {'size'}


def test_info_of_what_is_no_file(shown, work):
    """A directory of a mount; the mount itself; and a copy, which is no file of the mount."""
    m, files = shown
    p = ctl('info', m / 'model')
    assert p.returncode == 1 and p.stdout == '' and 'is a directory of a mount' in p.stderr
    assert ctl('hash', work / 'm.carton').stdout.strip() in ctl('info', m.path).stdout.split()
    (work / 'w.safetensors').write_bytes(files['model/w.safetensors'])
    assert 'a bare file and no carton' in ctl('info', work / 'w.safetensors').stdout
    p = run(CARTONCTL, 'info', '--json', 'a', cwd=m / 'model')      # a relative path
    assert json.loads(p.stdout)['state'] == 'verified'


@needs_root
def test_info_below_a_bind_mount(shown, work):
    """As a container sees a model: only the device says that it is a file of ours."""
    m, files = shown
    (work / 'bound').mkdir()
    assert run('mount', '--bind', m / 'model', work / 'bound').returncode == 0
    try:
        assert rows(ctl('info', work / 'bound/a').stdout)['sha256'] == sha256(files['model/a'])
    finally:
        run('umount', work / 'bound')
