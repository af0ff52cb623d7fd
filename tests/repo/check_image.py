# SPDX-License-Identifier: Apache-2.0
"""The image of .container/, run by podman as kubernetes.yaml says: see tests/image."""
import json
import os
import shlex

import pytest
import yaml

import handover
import harness
from handover import csi_driver, device, listening, serves_in_container
from harness import ROOT, eventually, run

carton = handover.carton      # a fixture
PODMAN = shlex.split(os.environ.get('CARTONFS_PODMAN', 'podman'))
LIMITS = ('--network=none', '--ulimit=nofile=1024:1024', '--ulimit=nproc=1024:1024')


def manifests(name='kubernetes.yaml'):
    return list(yaml.safe_load_all((ROOT / '.container' / name).read_text()))


def spec_of(manifest):
    return manifest['spec'].get('template', manifest)['spec']


def containers_of(manifest):
    return spec_of(manifest)['containers'] + spec_of(manifest).get('initContainers', [])


def container(kind, name, file='kubernetes.yaml'):
    """The container of that name in a manifest of that kind."""
    return next(c for d in manifests(file) if d['kind'] == kind for c in containers_of(d) if c['name'] == name)


def flags(c, volumes):
    """What podman calls the settings of a container; `volumes`: {name: directory}."""
    s = c['securityContext']
    out = [f'--user={s["runAsUser"]}:{s["runAsUser"]}'] if 'runAsUser' in s else []
    out += [f'--cap-drop={x}' for x in s.get('capabilities', {}).get('drop', [])]
    out += ['--security-opt=no-new-privileges'] if s.get('allowPrivilegeEscalation') is False else []
    out += ['--read-only'] if s.get('readOnlyRootFilesystem') else []
    out += ['--privileged'] if s.get('privileged') else []
    for v in c['volumeMounts']:
        how = {'Bidirectional': ':rshared', 'HostToContainer': ':rslave', None: ''}[v.get('mountPropagation')]
        out.append(f'--volume={volumes[v["name"]]}:{v["mountPath"]}{how}')
    return out


def command(c, url):
    """Its arguments, of which one is the URL of a carton."""
    assert sum(a.startswith('https://') for a in c['args']) == 1
    return [url if a.startswith('https://') else a for a in c['args']]


def test_manifests():
    """What they refer to is there."""
    for d in manifests() + manifests('kubernetes-csi.yaml'):
        assert (d['apiVersion'], d['kind']) in (('apps/v1', 'DaemonSet'), ('v1', 'Pod'))
        volumes = [v['name'] for v in spec_of(d)['volumes']]
        used = {v['name'] for c in containers_of(d) for v in c['volumeMounts']}
        assert len(set(volumes)) == len(volumes) and used == set(volumes), d['metadata']['name']
        for c in containers_of(d):
            assert c['image'] and len({v['mountPath'] for v in c['volumeMounts']}) == len(c['volumeMounts'])
            # only what is privileged may mount for others
            assert c.get('securityContext', {}).get('privileged') or not [
                v for v in c['volumeMounts'] if v.get('mountPropagation') == 'Bidirectional']
        if d['kind'] == 'DaemonSet':
            labels = d['spec']['template']['metadata']['labels']
            assert d['spec']['selector']['matchLabels'].items() <= labels.items()


def test_sidecar(carton, work):
    """Without any privilege, on what is handed over."""
    c, path, where = carton
    sidecar = container('Pod', 'cartonfs')
    (work / 'handover').mkdir()
    (work / 'handover').chmod(0o1777)     # as the manifest tells the driver
    volumes = {'handover': work / 'handover', 'cache': work / 'cache'}
    with device(where) as fd, listening(work / 'handover/fuse.sock', fd):
        serves_in_container(where, c, [
            *PODMAN, 'run', '--rm', *LIMITS, *flags(sidecar, volumes), f'--volume={path}:/m.carton:ro', 'cartonfs',
            *command(sidecar, '/m.carton')])


def test_generic_csi_driver(carton, work):
    """As kubernetes-csi.yaml: the first container makes the directory sticky, the second serves."""
    c, path, where = carton
    volumes = {'handover': work / 'handover', 'cache': work / 'cache'}
    with csi_driver(work / 'handover', where):
        sticky, sidecar = (container('Pod', name, 'kubernetes-csi.yaml') for name in ('sticky', 'cartonfs'))
        p = run(*PODMAN, 'run', '--rm', *LIMITS, *flags(sticky, volumes), f'--entrypoint={sticky["command"][0]}',
                'cartonfs', *sticky['command'][1:])
        assert p.returncode == 0, p.stderr
        serves_in_container(where, c, [
            *PODMAN, 'run', '--rm', *LIMITS, *flags(sidecar, volumes), f'--volume={path}:/m.carton:ro', 'cartonfs',
            *command(sidecar, '/m.carton')])


@pytest.fixture
def shared(work):
    """A directory whose mounts are seen in containers and outside."""
    at = work / 'shared'
    at.mkdir()
    assert run('mount', '--bind', at, at).returncode == 0
    assert run('mount', '--make-rshared', at).returncode == 0
    yield at
    run('umount', '-l', at)


def test_node_mount(carton, work, shared):
    """Mounted by one container, read by another and by the machine, unmounted by the first one's hook."""
    c, path, _ = carton
    daemon = container('DaemonSet', 'cartonfs')
    (shared / 'model').mkdir()
    (work / 'own').mkdir()
    volumes = {'mounts': shared, 'cache': work / 'own'}
    p = run(*PODMAN, 'run', '--detach', *LIMITS, *flags(daemon, volumes), f'--volume={path}:/m.carton:ro',
            'cartonfs', *command(daemon, '/m.carton'))
    assert p.returncode == 0, p.stderr
    name = p.stdout.strip()
    try:
        ready = daemon['readinessProbe']['exec']['command']
        eventually('it is ready', lambda: run(*PODMAN, 'exec', name, *ready).returncode == 0,
                   why=lambda: run(*PODMAN, 'logs', name).stderr)
        for file, sha in c.hashes().items():
            assert harness.sha_file(shared / 'model' / file) == sha
        p = run(*PODMAN, 'run', '--rm', *LIMITS, f'--volume={shared}:/mnt/carton:rslave,ro', '--user=65534',
                '--entrypoint=/usr/bin/sha256sum', 'cartonfs', '/mnt/carton/model/MANIFEST')
        assert p.stdout.split()[:1] == [c.model_hash()], p.stderr
        # the container ends with the mount, and with it what runs there
        run(*PODMAN, 'exec', name, *daemon['lifecycle']['preStop']['exec']['command'])
        eventually('it is unmounted', lambda: not harness.mountinfo(shared / 'model'))

        def ended():
            return json.loads(run(*PODMAN, 'inspect', name).stdout)[0]['State']
        assert eventually('it has ended', lambda: ended()['Status'] == 'exited' and ended())['ExitCode'] == 0
    finally:
        run('umount', '-l', shared / 'model')
        run(*PODMAN, 'rm', '--force', '--time=1', name)
