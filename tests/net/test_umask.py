# SPDX-License-Identifier: Apache-2.0
"""A umask that takes rights from the owner: what a program makes, it and later ones have to enter and read."""
import os
import stat

import pytest

from harness import CARTONCTL, NOBODY, mounted, run
from hubrepo import HubServer, Repo
from origin import LinkedCarton, digest, fault_bytes, needs_root
from zipwriter import sample

N = 200000
OWNER = [f'0{taken:o}77' for taken in range(1, 8)]
pytestmark = [needs_root, pytest.mark.parametrize('mask', OWNER)]


@pytest.fixture
def home(work):
    """Of the ordinary user: root may enter anything."""
    for path in work / 'home', work / 'home/out':
        path.mkdir()
        os.chown(path, NOBODY, NOBODY)
    return work / 'home'


@pytest.fixture
def out(home):
    return home / 'out'


@pytest.fixture
def cartonctl(mask, home):
    """cartonctl(*args, umask=mask, **environment): as that user; it succeeds and says nothing."""
    def make(*args, umask=mask, **env):
        p = run(CARTONCTL, *args, uid=NOBODY, umask=int(umask, 8), cwd=home / 'out',
                env=dict(XDG_CACHE_HOME='', XDG_STATE_HOME='', HF_TOKEN='', HOME=str(home), **env))
        assert (p.returncode, p.stderr) == (0, ''), p.stderr
        return p.stdout
    return make


@pytest.fixture
def linked(work, fault):
    c = LinkedCarton().add('misc/local', b'in the carton\n')
    c.link('model/large', fault_bytes(N), fault.url('large', size=N))
    c.write(work / 'm.carton')
    return work / 'm.carton'


def check(path):
    """The owner can use all of it, and nobody else, as the umask says. How many files and directories."""
    modes = {x: stat.S_IMODE(os.stat(x).st_mode) for x in [path, *path.rglob('*')] if not x.is_symlink()}
    wrong = {str(x): oct(mode) for x, mode in modes.items()
             if mode & 0o77 or not (mode & 0o700 == 0o700 if x.is_dir() else mode & 0o400)}
    assert wrong == {}
    return len(modes)


def test_cache_and_key(linked, home, cartonctl):
    """The first run makes them, and a run with another umask uses them."""
    cartonctl('fetch', '--private-links', linked)
    cartonctl('fetch', '--private-links', '--offline', linked, umask='022')
    assert digest(fault_bytes(N)) in {x.name for x in (home / '.cache/cartonfs/v1/objects').rglob('*')}
    assert stat.S_IMODE((home / '.local/state/cartonfs/cache.key').stat().st_mode) == 0o600
    assert check(home / '.cache') > 10 and check(home / '.local') == 4
    cartonctl('cache', 'gc', '0')


def test_import_and_mount(out, mask, cartonctl):
    """A mountpoint, with the directories above it, and a small carton of a repository."""
    files = {'config.json': b'{}\n', 'README.md': b'# m\n'}
    with HubServer({'models/me/m': Repo(files)}) as hub:
        cartonctl('import', 'hf://me/m', 'm.carton', HF_ENDPOINT=hub.endpoint)
    assert check(out / 'm.carton') == 1
    with mounted(out / 'm.carton', out / 'a/b/c', '-o', 'mkdir=0777', uid=NOBODY, umask=int(mask, 8)) as m:
        assert m.read('model/README.md') == b'# m\n'
    assert check(out / 'a') == 3


def test_pack_and_extract(work, out, cartonctl):
    sample().write(work / 's.carton')
    cartonctl('extract', work / 's.carton', 'all')
    assert (out / 'all/model/weights.bin').read_bytes() == bytes(range(256)) * 64
    assert check(out / 'all') > 10
    cartonctl('pack', 'all', 'again.carton')
    assert check(out / 'again.carton') == 1
    assert cartonctl('hash', 'again.carton').split()[0] == cartonctl('hash', 'all').split()[0]
    cartonctl('link', '--min-size=1', '--url=https://models.test/{sha256}', '--objects=objects', 'again.carton', 'l.carton')
    assert check(out / 'objects') > 3 and check(out / 'l.carton') == 1
