# SPDX-License-Identifier: Apache-2.0
"""
One allocation fails, or all from one on, at each place in turn: nobody crashes or hangs, no reader gets wrong bytes, and
what has failed says so. The whole is for make check-long, and some of it for make check. See tools/preload/no-memory.c.
"""
import itertools
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import CARTONCTL, CARTONFS, PRELOAD, SLOW, environment, eventually, mountinfo, run
from hubrepo import HubServer, Repo
from zipwriter import sample

# the sanitizers replace malloc() themselves
pytestmark = pytest.mark.needs_plain_build

FILES = {'config.json': b'{}', 'model.safetensors': b'weights' * 1000}


@pytest.fixture(scope='module')
def library(session_dir):
    out = session_dir / 'no-memory.so'
    p = run('cc', '-O1', '-D_GNU_SOURCE', '-shared', '-fPIC', '-Wall', '-Werror', '-o', out, PRELOAD / 'no-memory.c')
    assert p.returncode == 0, p.stderr
    return out


@pytest.fixture(scope='module')
def hub():
    with HubServer({'models/me/m': Repo(FILES)}) as server:
        yield server


class Runs:
    """Runs with caches and counts of their own, each in `seconds` at most: else it hangs."""

    def __init__(self, work, library, seconds=60):
        self.work, self.library, self.seconds, self.numbers = work, library, seconds, itertools.count()

    def start(self, words, at, on, **env):
        place = self.work / f'run{next(self.numbers)}'
        env |= {'LD_PRELOAD': str(self.library), 'NO_MEMORY_COUNT': f'{place}.count', 'NO_MEMORY_AT': str(at),
                'XDG_CACHE_HOME': str(place), **({'NO_MEMORY_ON': '1'} if on else {})}
        return place, subprocess.Popen([str(w) for w in words], env=environment(**env), stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)

    def allocations(self, place):
        return int.from_bytes((self.work / f'{place.name}.count').read_bytes(), 'little')

    def command(self, words, at=0, on=False, **env):
        """The status, the output, and how many allocations there were."""
        place, p = self.start(words, at, on, **env)
        with p:
            try:
                out, err = p.communicate(timeout=self.seconds * SLOW)
            except subprocess.TimeoutExpired:
                p.kill()
                return 'hangs', b'', b'', 0
        return p.returncode, out, err, self.allocations(place)


def places(n, request):
    """(place, is it also each later one): all of them, or some of make check."""
    few = max(n // 12, 1)
    one, on = (few, few) if request.param == 'some' else (1, 7)
    return [(at, False) for at in range(1, n + 2, one)] + [(at, True) for at in range(1, n + 2, on)]


@pytest.fixture(params=['some', pytest.param('all', marks=pytest.mark.slow)])
def amount(request):
    return lambda n: places(n, request)


@pytest.mark.parametrize('what', ['local', 'hub'])
def test_each_allocation_of_a_command(work, library, hub, amount, what):
    """It opens, fetches, keeps in the cache, reads and ends."""
    c = sample()
    path = c.write(work / 'm.carton')
    words = {'local': (CARTONCTL, 'cat', path, 'model/weights.bin'),
             'hub': (CARTONCTL, 'cat', 'hf://me/m', 'model/config.json')}[what]
    want = {'local': c.files()['model/weights.bin'], 'hub': FILES['config.json']}[what]
    runs, env = Runs(work, library), {'HF_ENDPOINT': hub.endpoint, 'HF_TOKEN': ''}
    status, out, err, n = runs.command(words, **env)
    assert (status, out) == (0, want) and n > 100, err

    def wrong(place):
        status, out, err, _ = runs.command(words, *place, **env)
        # it may fail for a while: each failure is said, and what came before it is right
        right = out == want if status == 0 else status in (1, 2, 32, 75, 127) and want.startswith(out) and err
        return None if right else (*place, status, out, err)

    with ThreadPoolExecutor(2) as pool:
        found = [x for x in pool.map(wrong, amount(n)) if x]
    assert not found


def test_each_allocation_of_a_mount(work, library, amount, point):
    """It mounts, answers and ends; what it cannot read is an error."""
    c = sample()
    path, names = c.write(work / 'm.carton'), ['model/weights.bin', 'model/main.py', 'views/tensor_data/numeric.npy']
    runs, where = Runs(work, library), point()

    def mounted(at=0, on=False):
        """(status, what was read or why not, allocations)."""
        place, p = runs.start((CARTONFS, '-f', path, where), at, on)
        read = []
        with p:
            eventually('it is mounted, or ends', lambda: p.poll() is not None or mountinfo(where))
            for name in names if p.poll() is None else ():
                try:
                    with open(f'{where}/{name}', 'rb') as f:
                        read.append(f.read())
                except OSError as e:
                    read.append(e.strerror)
            if mountinfo(where):
                run('umount', where)
            err = p.communicate(timeout=60 * SLOW)[1]
        return p.returncode, read, runs.allocations(place), err

    status, want, n, err = mounted()
    assert status == 0 and want[0] == c.files()['model/weights.bin'] and n > 100, err
    found = []
    for place in amount(n):
        status, read, _, err = mounted(*place)
        died = any(r in ('Transport endpoint is not connected', 'Software caused connection abort') for r in read)
        if status < 0 or died or any(isinstance(r, bytes) and r != w for r, w in zip(read, want)):
            found.append((*place, status, err))
    assert not found
