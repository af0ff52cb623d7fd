# SPDX-License-Identifier: Apache-2.0
"""A bare safetensors file at a URL: read by ranges of one version, or as a whole by its hash."""
import datetime
import errno
import hashlib
import json
import os

import pytest

from dates import FIRST, date_of, look
from dates import LAST as LAST_DATE
from harness import ctl
from hubrepo import HubServer, Repo
from origin import MIB, errno_of, fault_bytes, lines_of
from tensorfiles import weights
from zipwriter import Carton

UNVERIFIED = 'a bare file is not verified'
LAST = fault_bytes(100000, seed=2)


def put(fault, name='w.safetensors', seed=0, size=24 * MIB):
    data = weights(a=fault_bytes(size, seed=seed), z=LAST)
    with open(os.path.join(fault.root, 'next'), 'wb') as f:
        f.write(data)
    os.replace(os.path.join(fault.root, 'next'), os.path.join(fault.root, name))
    return data


def pin(data):
    return '-o', f'sha256={hashlib.sha256(data).hexdigest()}'


def test_read_as_it_is_needed(fault, mount_fg, cache):
    """The header, then what is read; said once that nothing verifies it; nothing of it is in the cache."""
    data = put(fault)
    with mount_fg(fault.url('w.safetensors', file='w.safetensors') + '?token=hunter2', *cache.options) as m:
        assert set(os.listdir(m)) == {'a.bin', 'a.npy', 'z.bin', 'z.npy', 'index.json', 'w.safetensors'}
        asked = fault.requests('w.safetensors')
        assert len(asked) <= 3 and sum(r['sent'] for r in asked) < MIB
        assert m.read('z.bin') == LAST and m.read('z.npy').endswith(LAST)
        assert [t['name'] for t in json.loads(m.read('index.json'))['tensors']] == ['a', 'z']
        assert sum(r['sent'] for r in fault.requests('w.safetensors')) < 4 * MIB
        assert m.read('w.safetensors') == data
        assert all('if-match' in r['h'] or 'if-range' in r['h'] for r in fault.requests('w.safetensors')[1:])
        assert len(lines_of(m.log(), UNVERIFIED)) == 1 and 'hunter2' not in m.log()
        assert json.loads(m.read('.cartonfs/status.json'))['verify'] == 'off'
    assert hashlib.sha256(data).hexdigest() not in cache.objects()


@pytest.mark.parametrize('kind', [{}, dict(noetag=1, lastmod='Tue, 01 Jan 2019 00:00:00 GMT')], ids=['etag', 'date'])
def test_replaced_while_mounted(fault, mount_fg, cache, kind):
    """Another version behind the URL is an error, not other bytes among the first ones."""
    data = put(fault)
    with mount_fg(fault.url('w.safetensors', file='w.safetensors', **kind), *cache.options) as m:
        assert m.read('z.bin') == LAST
        put(fault, seed=7, size=20 * MIB)
        assert errno_of(m.read, 'a.bin') == errno.ESTALE
        assert lines_of(m.log(), 'w.safetensors: .*changed')
        put(fault)
    assert data


def test_without_ranges(fault, mount_fg, cache):
    data = put(fault, size=2 * MIB)
    with mount_fg(fault.url('w.safetensors', file='w.safetensors', norange=1), *cache.options) as m:
        assert m.read('w.safetensors') == data and m.read('z.bin') == LAST


def test_by_its_hash(fault, mount_fg, cache):
    """Before the whole was hashed, no reader gets a name or a byte; then the cache has it, without its server."""
    data = put(fault, size=3 * MIB)
    url = fault.url('w.safetensors', file='w.safetensors')
    with mount_fg(url, *pin(data), *cache.options) as m:
        assert m.read('z.bin') == LAST and m.read('w.safetensors') == data
        assert UNVERIFIED not in m.log()
    fault.clear()
    with mount_fg(url, *pin(data), *cache.options, '-o', 'offline') as m:
        assert m.read('w.safetensors') == data
    assert not fault.requests()


def test_dates(fault, mount_fg, cache):
    """By content if the hash is given, whatever the server says; else that of the server."""
    data = put(fault, size=3 * MIB)
    seen = []
    for year in 2018, 2019:
        url = fault.url('w.safetensors', file='w.safetensors', lastmod=f'Tue, 01 Jan {year} 00:00:00 GMT')
        with mount_fg(url, *pin(data), *cache.options) as m:
            seen.append(look(m))
        assert seen[-1]['w.safetensors'][0] == date_of(data)
        with mount_fg(url, *cache.options) as m:
            dates = {date for date, _ in look(m).values()}
        assert dates == {datetime.datetime(year, 1, 1, tzinfo=datetime.timezone.utc).timestamp()}
    assert seen[0] == seen[1] and all(FIRST <= date <= LAST_DATE for date, _ in seen[0].values())


def test_the_wrong_hash(fault, mount_fg, cache):
    data = put(fault, size=3 * MIB)
    with mount_fg(fault.url('w.safetensors', file='w.safetensors', flip=2 * MIB), *pin(data), *cache.options) as m:
        assert sorted(os.listdir(m)) == ['index.json', 'w.safetensors']
        assert len(lines_of(m.log(), 'other bytes than sha256= says')) == 1
        assert errno_of(m.read, 'w.safetensors') == errno.EIO
        assert UNVERIFIED not in m.log()
    assert not cache.objects()


def test_a_file_of_a_hub(mount_fg, cache):
    """hf://ORG/REPO/PATH.safetensors, also with the token, which only the hub gets."""
    data = weights(a=fault_bytes(2 * MIB), z=LAST)
    repo = Repo({'sub/w.safetensors': data})
    with HubServer({'models/me/m': repo}, token='hf_x') as hub:
        env = {'HF_ENDPOINT': hub.endpoint, 'HF_TOKEN': 'hf_x'}
        for more in ((), pin(data)):
            with mount_fg(f'hf://me/m@{repo.commit}/sub/w.safetensors', *more, *cache.options, env=env) as m:
                assert m.read('z.bin') == LAST and m.read('w.safetensors') == data
                assert (UNVERIFIED in m.log()) == (not more)
        assert set(hub.secrets) == {None}


def test_what_is_no_such_file(fault, nginx, cache):
    """A carton, a page: refused by that name; and no other source becomes one."""
    c = Carton()
    c.add('model/w.safetensors', weights(a=b'1234'))
    c.write(os.path.join(fault.root, 'c.carton'))
    p = ctl('ls', cache.flag, fault.url('c.safetensors', file='c.carton'))
    assert p.returncode == 1 and 'is not a safetensors file' in p.stderr
    page = b'<!DOCTYPE html>\n<html><title>Log in</title></html>' + b' ' * 1000000
    for name in ('page.safetensors', 'page.carton'):
        for kind in ({}, {'norange': 1}):
            (os.path.exists(os.path.join(fault.root, 'page')) or
             open(os.path.join(fault.root, 'page'), 'wb').write(page))
            p = ctl('ls', cache.flag, fault.url(name, file='page', type='text/html', **kind))
            assert p.returncode == 1 and 'is an HTML page: the URL is wrong, or needs a login' in p.stderr, p.stderr
    # the URL of a carton that leads to such a file now
    put(fault, name='evil', size=MIB)
    p = ctl('ls', cache.flag, fault.url('m.carton', file='evil'))
    assert p.returncode == 1 and 'is a safetensors file' in p.stderr and UNVERIFIED not in p.stderr
