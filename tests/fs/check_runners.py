# SPDX-License-Identifier: Apache-2.0
"""
What reads models, on a mount: `make check-runners` runs these, and names what is not installed here.

Not part of the mount tests, since the packages are large: see tests/deps, `runners`.
"""
import filecmp
import os
import shutil
import struct
import subprocess
import urllib.request

import pytest

import harness
from harness import NOBODY, run
from origin import nginx_at
from tensorfiles import floats, weights
from zipwriter import Carton, sample

INDEX = b"""[[tensor]]
name = 'm'
dtype = 'float32'
shape = [3, 1000]
file = 'm.bin'
"""
NUMBERS = struct.pack('<3000f', *range(3000))


def needs(program):
    """The test needs a program that is installed, or it says which one is missing."""
    if not shutil.which(program, path=harness.environment()['PATH']):
        pytest.skip(f'{program} is not installed')


def module(name):
    return pytest.importorskip(name, reason=f'the Python module {name} is not installed')


@pytest.fixture
def carton(work):
    c = sample(method='stored').add('model/large', os.urandom(5 << 20))
    c.add('model/w.safetensors', weights(x=floats(1, 2, 3), y=floats(*range(1000))))
    for name in ('index.toml', 'm.bin'):
        c.entries.pop(f'tensor_data/{name}', None)
    c.add('tensor_data/m.bin', NUMBERS)
    c.add('tensor_data/index.toml', INDEX)
    return c


def path_of(carton, work):
    return carton.write(work / 'm.carton')


# ---- Python ----

def test_numpy(carton, work, mount):
    numpy = module('numpy')
    with mount(path_of(carton, work)) as m:
        for a in (numpy.load(m / 'views/tensor_data/m.npy', mmap_mode='r'),
                  numpy.memmap(m / 'tensor_data/m.bin', '<f4', 'r', shape=(3, 1000))):
            assert a.shape == (3, 1000) and (a == numpy.arange(3000).reshape(3, 1000)).all()
            del a


def test_torch(work, mount):
    torch = module('torch')
    torch.save({'x': torch.arange(100000.0)}, work / 'x.pt')
    torch.jit.script(torch.nn.Linear(3, 2)).save(str(work / 'jit.pt'))
    c = Carton(method='stored')
    for name in ('x.pt', 'jit.pt'):
        c.add(f'model/{name}', (work / name).read_bytes())
    with mount(path_of(c, work)) as m:
        x = torch.load(m / 'model/x.pt')['x']
        assert x.sum() == torch.arange(100000.0).sum()
        if 'mmap' in torch.load.__code__.co_varnames:
            assert torch.load(m / 'model/x.pt', mmap=True)['x'].sum() == x.sum()
        assert torch.jit.load(m / 'model/jit.pt')(torch.ones(3)).shape == (2,)


def test_safetensors(carton, work, mount):
    module('numpy')
    load = module('safetensors.numpy').load_file
    with mount(path_of(carton, work)) as m:
        for name in ('model/w.safetensors', 'views/tensor_data.safetensors'):
            assert load(m / name)
        assert load(m / 'model/w.safetensors')['x'].tolist() == [1, 2, 3]


def test_onnxruntime_with_external_data(work, mount):
    """The weights are in a file of their own, which the runner maps."""
    onnx, runtime, numpy = module('onnx'), module('onnxruntime'), module('numpy')
    h = onnx.helper
    w = onnx.numpy_helper.from_array(numpy.arange(4000, dtype='float32').reshape(2, 2000), 'w')
    graph = h.make_graph(
        [h.make_node('MatMul', ['x', 'w'], ['y'])], 'g',
        [h.make_tensor_value_info('x', onnx.TensorProto.FLOAT, [1, 2])],
        [h.make_tensor_value_info('y', onnx.TensorProto.FLOAT, [1, 2000])], [w])
    model = h.make_model(graph, ir_version=8, opset_imports=[h.make_opsetid('', 13)])
    onnx.save(model, work / 'm.onnx', save_as_external_data=True, location='m.data', size_threshold=0)
    c = Carton(method='stored')
    for name in ('m.onnx', 'm.data'):
        c.add(f'model/{name}', (work / name).read_bytes())
    with mount(path_of(c, work)) as m:
        y, = runtime.InferenceSession(m / 'model/m.onnx').run(None, {'x': numpy.ones((1, 2), 'float32')})
        assert (y[0] == numpy.arange(2000) * 2 + 2000).all()


# ---- servers and copies ----

def test_nginx_with_sendfile(carton, work, mount):
    options = ['-o', 'allow_other'] if harness.IS_ROOT else []
    with mount(path_of(carton, work), *options) as m, nginx_at(work / 'www') as server:
        os.symlink(m.path, server.root / 'mnt')
        for name in ('model/large', 'model/w.safetensors', 'carton.toml'):
            with urllib.request.urlopen(server.url(f'mnt/{name}')) as answer:
                assert answer.read() == carton.files()[name]


def test_rsync_by_checksum(carton, work, mount):
    needs('rsync')
    with mount(path_of(carton, work)) as m:
        p = run('rsync', '-ac', f'{m.path}/', work / 'copy')
        assert p.returncode == 0, p.stderr
        # a second run finds nothing to do
        p = run('rsync', '-aci', f'{m.path}/', work / 'copy')
        assert (p.returncode, p.stdout) == (0, '')
    assert harness.ctl('verify', work / 'copy').returncode == 0


def test_tar(carton, work, mount):
    with mount(path_of(carton, work)) as m:
        assert run('tar', '-cf', work / 'm.tar', '-C', m.path, '.').returncode == 0
    (work / 'out').mkdir()
    assert run('tar', '-xf', work / 'm.tar', '-C', work / 'out').returncode == 0
    assert harness.ctl('verify', work / 'out').returncode == 0


# ---- containers ----

@pytest.mark.needs_root
def test_overlayfs(carton, work, mount):
    """A writable layer on top: the runner may write next to the model."""
    for name in ('upper', 'work', 'merged'):
        (work / name).mkdir()
    with mount(path_of(carton, work), '-o', 'allow_other') as m:
        p = run('mount', '-t', 'overlay', 'overlay', '-o',
                f'lowerdir={m.path},upperdir={work}/upper,workdir={work}/work', work / 'merged')
        if p.returncode:
            pytest.skip(f'no overlayfs here: {p.stderr.strip()}')
        try:
            assert filecmp.cmp(work / 'merged/model/large', m / 'model/large', shallow=False)
            (work / 'merged/model/new').write_text('new')
            (work / 'merged/carton.toml').write_text('changed')
            assert m.read('carton.toml') == carton.files()['carton.toml']
        finally:
            run('umount', work / 'merged')


def test_user_namespace(carton, work, mount, who):
    needs('unshare')
    with mount(path_of(carton, work), uid=who) as m:
        p = run('unshare', '--user', '--map-root-user', 'cat', m / 'carton.toml', uid=who, text=False)
        if p.returncode and b'unshare' in p.stderr:
            pytest.skip(f'no user namespaces here: {p.stderr.decode().strip()}')
        assert p.stdout == carton.files()['carton.toml'], p.stderr


@pytest.mark.needs_root
def test_podman_bind(carton, work, mount):
    """A bind of the mount in a container, whose root is the programs of this machine."""
    needs('podman')
    root = work / 'root'
    for name in ('bin', 'm', 'proc', 'dev', 'tmp', 'etc'):
        (root / name).mkdir(parents=True)
    with mount(path_of(carton, work), '-o', 'allow_other') as m:
        p = run('podman', 'run', '--rm', '--network=none', '--ulimit=host', '-v', f'{m.path}:/m:ro', '-v', '/usr:/usr:ro',
                '-v', '/lib:/lib:ro', '-v', '/lib64:/lib64:ro', '--rootfs', root,
                '/usr/bin/sha256sum', '/m/model/large')
        if p.returncode and 'sha256sum' not in p.stderr and '/m/' not in p.stderr:
            pytest.skip(f'podman runs no container here: {p.stderr.strip().splitlines()[-1]}')
        assert p.returncode == 0 and p.stdout.split()[0] == m.sha('model/large'), p.stderr


@pytest.mark.needs_root
def test_unprivileged_reader_of_a_root_mount(carton, work, mount):
    """As a service of its own user reads what systemd has mounted."""
    with mount(path_of(carton, work), '-o', 'allow_other') as m:
        p = subprocess.run(['cat', m / 'carton.toml'], capture_output=True, user=NOBODY, group=NOBODY)
        assert p.stdout == carton.files()['carton.toml']


# ---- programs that compare size and date: two versions of a model, one after the other at one place ----

def borg(where, work, out):
    repository = work / 'borg'
    env = {'BORG_BASE_DIR': work, 'BORG_REPO': repository}
    if not repository.exists():
        assert run('borg', 'init', '-e', 'none', env=env).returncode == 0
    name = out.name
    assert run('borg', 'create', f'::{name}', '.', cwd=where, env=env).returncode == 0
    out.mkdir()
    assert run('borg', 'extract', f'::{name}', cwd=out, env=env).returncode == 0


def restic(where, work, out):
    env = {'RESTIC_REPOSITORY': work / 'restic', 'RESTIC_PASSWORD': 'x', 'XDG_CACHE_HOME': work, 'HOME': work}
    if not (work / 'restic').exists():
        assert run('restic', 'init', env=env).returncode == 0
    assert run('restic', 'backup', '.', cwd=where, env=env).returncode == 0
    assert run('restic', 'restore', 'latest', '--target', out, env=env).returncode == 0


def rclone(where, work, out):
    p = run('rclone', '--config', work / 'none', 'sync', '--links', where, work / 'synced')
    assert p.returncode == 0, p.stderr
    shutil.copytree(work / 'synced', out, symlinks=True)


@pytest.mark.parametrize('program', [borg, restic, rclone])
def test_two_versions(work, program):
    """The second has files of the same names and sizes: whoever keeps those of the first has neither version."""
    needs(program.__name__)
    where = work / 'mnt'
    where.mkdir()
    for n in 1, 2:
        c = Carton(method='stored').add('model/w.bin', bytes([n]) * 100_000).add('model/same', b'same')
        c.symlink('misc/link', '../model/w.bin')
        with harness.mounted(path_of(c, work), where):
            program(where, work, work / f'out{n}')
        assert (work / f'out{n}/model/w.bin').read_bytes() == bytes([n]) * 100_000
        p = harness.ctl('verify', work / f'out{n}')
        assert p.returncode == 0, p.stdout
