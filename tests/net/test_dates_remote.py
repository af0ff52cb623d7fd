# SPDX-License-Identifier: Apache-2.0
"""Dates and inode numbers are the same wherever the bytes are, and whatever a server says of its own dates."""
import hashlib
import os
import tempfile

from dates import FIRST, date_of, look
from hubrepo import HubServer, Repo, name_of, settled
from origin import MIB, PRIVATE, LinkedCarton, fault_bytes
from registry import Artifact, layout
from tensorfiles import weights
from zipwriter import Carton

FILES = {'config.json': b'{"a": 1}\n', 'sub/big.safetensors': weights(a=fault_bytes(2 * MIB, seed=3))}


def of_carton(mount, work):
    """What a carton with the same files shows."""
    c = Carton()
    for path, data in FILES.items():
        c.add('model/' + path, data)
    with mount(c.write(work / 'packed.carton')) as m:
        return look(m.path)


def check(got, want):
    """Files of the same path and content; there is more in a carton that was made of a repository."""
    for path, data in FILES.items():
        assert got['model/' + path] == want['model/' + path] and want['model/' + path][0] == date_of(data), path
    assert got['model/sub'] == want['model/sub'] and got['model'] == want['model']


def test_links(mount, work, fault, cache):
    """All is as if the files were in the carton."""
    c = LinkedCarton()
    for i, (path, data) in enumerate(FILES.items()):
        with open(os.path.join(fault.root, f'{i}'), 'wb') as f:
            f.write(data)
        c.link('model/' + path, data, fault.url(f'{i}', file=f'{i}', lastmod='Tue, 01 Jan 2019 00:00:00 GMT'))
    want = of_carton(mount, work)
    with mount(c.write(work / 'm.carton'), *PRIVATE, *cache.options) as m:
        assert look(m.path) == want


def test_registry(mount, work, registry, cache):
    want = of_carton(mount, work)
    name = f'tests/{hashlib.sha256(str(work).encode()).hexdigest()[:8]}'
    registry.push(layout(tempfile.mkdtemp(dir=work), Artifact(FILES)), 'latest', name)
    with mount(registry.oci('latest', name), *cache.options) as m:
        check(look(m.path), want)


def test_hub(mount, work, cache):
    """Of a small file git's id is known, and its sha256 is late: with a pin, it is there from the start."""
    want = of_carton(mount, work)
    with HubServer({'models/me/m': Repo(FILES)}) as hub:
        env = {'HF_ENDPOINT': hub.endpoint, 'HF_TOKEN': ''}
        with mount('hf://me/m', *cache.options, env=env) as m:
            got, pin = look(m.path), settled(m)
            assert got == look(m.path)
        assert got['model/sub'] == want['model/sub'] and got['model/config.json'] != want['model/config.json']
        assert got['model/sub/big.safetensors'] == want['model/sub/big.safetensors']
        by_id = 2 * int(name_of(FILES['config.json']).hex()[:7], 16)
        assert got['model/config.json'][0] - FIRST == by_id
        with mount('hf://me/m', *cache.options, '-o', f'manifest_sha256={pin}', env=env) as m:
            check(look(m.path), want)
