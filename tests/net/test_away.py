# SPDX-License-Identifier: Apache-2.0
"""Far from the carton: secrets that rotate, URLs with a signature, servers that are down, foreign schemes."""
import contextlib
import os
import re
import subprocess
import tempfile
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import harness
from harness import ctl, run
from origin import MIB, LinkedCarton, errno_of, fault_bytes, reserved_port
from zipwriter import Carton, sample


def large():
    return Carton(method='stored').add('model/x', fault_bytes(20 * MIB, seed=1)) \
        .add('model/y', fault_bytes(9 * MIB, seed=2))


# ---- header_file ----

@pytest.mark.parametrize('how', ['rewrite', 'rename', 'symlink'])
def test_header_file_changes(fault, mount_fg, cache, tmp_path, how):
    """It is read again when the server refuses what it said before, within the same open."""
    c = large()
    c.write(os.path.join(fault.root, 'h.carton'))
    secrets = tmp_path / 'secrets'
    (secrets / 'one').mkdir(parents=True)
    (secrets / 'two').mkdir()
    (secrets / 'data').symlink_to('one')
    path = secrets / 'token'
    if how == 'symlink':                # as Kubernetes mounts a Secret
        path.symlink_to('data/token')
    path.write_text('X-Token: old\n')
    with open(os.path.join(fault.root, 'accepts'), 'w') as f:
        f.write('old')
    url = fault.url('h.carton', file='h.carton', needs='X-Token:accepts')
    with mount_fg(url, *cache.options, '-o', f'header_file={path}') as m:
        assert m.read('model/y')
        with open(os.path.join(fault.root, 'accepts'), 'w') as f:
            f.write('new')
        if how == 'rewrite':
            path.write_text('X-Token: new\n')
        elif how == 'rename':
            (secrets / 'next').write_text('X-Token: new\n')
            (secrets / 'next').rename(path)
        else:
            (secrets / 'two/token').write_text('X-Token: new\n')
            (secrets / 'next').symlink_to('two')
            (secrets / 'next').rename(secrets / 'data')
        assert harness.sha_file(m / 'model/x') == c.hashes()['model/x'], m.log()
        # and what is wrong with it later does not matter as long as it is not needed
        path.write_text('no header\n')


# ---- signed URLs ----

def test_refresh(fault, mount_fg, cache, tmp_path):
    """A live mount gets a URL with a new signature; one of another file is noticed."""
    c = large()
    c.write(os.path.join(fault.root, 'r.carton'))
    large().add('model/z', b'other').write(os.path.join(fault.root, 'other.carton'))

    def url(signature, name='r.carton'):
        return fault.url(name, file=name, signed='good') + f'?X-Amz-Signature={signature}'
    with open(os.path.join(fault.root, 'good'), 'w') as f:
        f.write('one')
    with mount_fg(url('one'), *cache.options) as m:
        with open(os.path.join(fault.root, 'good'), 'w') as f:
            f.write('two')
        assert errno_of(m.read, 'model/x') == 13
        p = ctl('refresh', m.path, url('two', 'other.carton'))
        assert p.returncode == 0, p.stderr
        assert errno_of(m.read, 'model/x') == 116
        p = ctl('refresh', m.path, url('two'))
        assert p.returncode == 0 and 'the next request goes to the new URL' in p.stdout, p.stderr
        assert m.sha('model/x') == c.hashes()['model/x']
        for bad in ('ftp://h/x', 'nothing'):
            p = ctl('refresh', m.path, bad)
            assert p.returncode == 1 and 'URL cannot be used' in p.stderr
        if harness.IS_ROOT:
            p = ctl('refresh', m.path, url('two'), uid=harness.NOBODY)
            assert p.returncode == 1
        assert 'Signature' not in m.log()
    p = ctl('refresh', tmp_path, url('two'))
    assert p.returncode == 1 and 'is not a mount of cartonfs' in p.stderr
    assert ctl('refresh', tmp_path).returncode == 1


def test_refresh_of_a_local_carton(mount_fg, tmp_path):
    with mount_fg(sample().write(tmp_path / 'm.carton')) as m:
        p = ctl('refresh', m.path, 'http://localhost/m.carton')
        assert p.returncode == 1 and 'does not come from a server' in p.stderr


def test_snapshot_under_a_fresh_signature(nginx, mount, cache):
    """What was kept of a carton is found offline, however its URL is signed now."""
    c = sample('stored')
    c.write(nginx.root / 's.carton')

    def url(**query):
        return nginx.url('s.carton') + '?' + urllib.parse.urlencode(query)
    first = url(**{'X-Amz-Date': '20250101T000000Z', 'X-Amz-Signature': 'a', 'part': 1})
    assert ctl('fetch', cache.flag, first).returncode == 0
    nginx.clear()
    then = url(**{'X-Amz-Date': '20260101T000000Z', 'part': 1, 'X-Amz-Signature': 'b'})
    with mount(then, *cache.options, '-o', 'offline') as m:
        assert m.sha('MANIFEST')
    assert ctl('info', cache.flag, '--offline', url(part=2)).returncode == 1
    assert not nginx.requests()


# ---- exit status ----

@pytest.mark.parametrize('kind, status', [
    ('refused', 75), ('name', 75), ('500', 75), ('503', 75), ('404', 32), ('403', 32),
    ('damaged', 32), ('offline', 32)])
def test_exit_status(fault, tmp_path, cache, kind, status):
    """75 is what a later attempt may change."""
    port, s = reserved_port()
    where = tmp_path / 'mnt'
    where.mkdir()
    with open(os.path.join(fault.root, 'damaged'), 'wb') as f:
        f.write(b'no carton' * 100)
    url = {'refused': f'http://127.0.0.1:{port}/x', 'name': 'http://nobody.invalid/x',
           'damaged': fault.url('x', file='damaged'),
           'offline': f'http://127.0.0.1:{port}/x'}.get(kind)
    url = url or fault.url('x', fail=f'9999:{kind}')
    p = run(harness.CARTONFS, *cache.options, '-o', 'timeout=2',
            *(('-o', 'offline') if kind == 'offline' else ()), url, where)
    s.close()
    assert p.returncode == status, p.stderr


COMMANDS = {'info': [], 'ls': [], 'tree': [], 'hash': [], 'cat': ['model/x'], 'verify': [], 'fetch': [], 'extract': ['d'],
            'diff': ['../here.carton'], 'embed': ['o.carton'], 'repack': ['o.carton']}


def status_of(tmp_path, cache, command, source, *options):
    where = tempfile.mkdtemp(dir=tmp_path)
    p = subprocess.run([harness.CARTONCTL, command, cache.flag, '--timeout=2', *options, source, *COMMANDS[command]],
                       env=harness.environment(), cwd=where, capture_output=True, text=True, check=False)
    return p.returncode, p.stderr


@pytest.mark.parametrize('command', COMMANDS)
def test_exit_status_of_cartonctl(fault, tmp_path, cache, command):
    """75 only where nothing but a server is in the way; diff says 2 of all else that it cannot compare."""
    port, s = reserved_port()
    bad = 2 if command == 'diff' else 1
    sample().write(tmp_path / 'here.carton')
    wanted = {'http://nobody.invalid/x': 75, f'http://127.0.0.1:{port}/x': 75,
              fault.url('x', fail='9999:429'): 75, fault.url('x', fail='9999:404'): bad}
    with ThreadPoolExecutor(len(wanted)) as them:       # each waits for its server
        got = them.map(lambda url: status_of(tmp_path, cache, command, url)[0], wanted)
    assert dict(zip(wanted, got)) == wanted
    assert status_of(tmp_path, cache, command, f'http://127.0.0.1:{port}/x', '--offline')[0] == bad
    s.close()


@pytest.mark.parametrize('command', ['cat', 'verify', 'fetch', 'extract', 'embed'])
def test_exit_status_of_what_links_lead_to(fault, tmp_path, cache, command):
    """One file that is not there, or damaged, is more than one whose server is away."""
    port, s = reserved_port()
    c = LinkedCarton().link('model/x', b'text', f'http://127.0.0.1:{port}/x')
    path = c.write(tmp_path / 'a.carton')
    assert status_of(tmp_path, cache, command, path, '--private-links') [0] == 75
    s.close()


# ---- verify ----

def test_verify_in_little_memory(nginx, cache):
    """A large entry of a remote carton passes through a window; each byte comes once."""
    size = 300 * MIB
    c = Carton(method='stored').add('model/x', fault_bytes(size, seed=1))
    c.write(nginx.root / 'v.carton')
    nginx.clear()
    p = subprocess.Popen([harness.CARTONCTL, 'verify', cache.flag, nginx.url('v.carton')],
                         env=harness.environment())
    peak = 0
    while p.poll() is None:
        # before the exec, it is that of our own process
        with contextlib.suppress(OSError):
            status = Path(f'/proc/{p.pid}/status').read_text()
            found = re.search(r'^VmHWM:\s+(\d+) kB', status, re.M)
            if found and os.readlink(f'/proc/{p.pid}/exe') == harness.CARTONCTL:
                peak = max(peak, int(found[1]))
        with contextlib.suppress(subprocess.TimeoutExpired):
            p.wait(0.02)
    assert p.returncode == 0 and peak
    assert harness.SANITIZED or peak < 128 << 10
    assert sum(r['sent'] for r in nginx.requests()) < size + 2 * MIB


# ---- messages ----

@pytest.mark.parametrize('scheme', ['ftp', 'gs', 'az', 'file', 'git+ssh'])
def test_foreign_schemes(scheme):
    p = ctl('info', f'{scheme}://user:secret@host/x?token=secret')
    assert p.returncode == 1 and 'secret' not in p.stderr
    assert f'{scheme}:// cannot be read here, only http, https, s3, hf, ms and oci' in p.stderr


@pytest.mark.parametrize('typed, meant', [('htps', 'https'), ('HTP', 'http'), ('htttps', 'https'), ('gs', None), ('ftp', None),
                                          ('h' * 40, None)])
def test_misspelt_schemes(typed, meant):
    p = ctl('info', f'{typed}://host/x')
    assert p.returncode == 1 and len(p.stderr.splitlines()) == 1
    assert p.stderr.endswith(f'; did you mean {meant}://?\n' if meant else ' and oci\n'), p.stderr


def test_url_with_a_space():
    """The query is not shown, so the line says what is wrong with it."""
    p = ctl('info', 'http://host/m.carton?token=secret b')
    assert p.returncode == 1
    assert p.stderr == 'cartonctl: http://host/m.carton: not a valid URL: its query has a space; write %20\n'


def test_the_cache_of_another_user(tmp_path, sample_carton):
    os.chown(tmp_path, harness.NOBODY, harness.NOBODY)
    p = ctl('info', f'--cache-dir={tmp_path}', sample_carton[0], env=harness.environment())
    assert p.returncode == 1 and len(p.stderr.splitlines()) == 1, p.stderr
    assert f'{tmp_path}: this directory of the cache belongs to uid {harness.NOBODY}' in p.stderr, p.stderr


@pytest.mark.needs_root     # sets the attribute
def test_a_cache_that_the_kernel_refuses(tmp_path, sample_carton):
    """EPERM is not only what the owner of a directory gives: the line names the cache."""
    flag = f'--cache-dir={tmp_path}'
    assert ctl('info', flag, sample_carton[0]).returncode == 0
    tmp = tmp_path / 'v1/tmp'
    harness.run('chattr', '+i', tmp, check=True)
    try:
        p = ctl('info', flag, sample_carton[0])
    finally:
        harness.run('chattr', '-i', tmp, check=True)
    assert p.returncode == 1
    assert f'{tmp_path}/v1: cannot make a file in tmp in the cache: Operation not permitted' in p.stderr, p.stderr


def test_unwritable_parent_of_the_cache(tmp_path):
    """The error of the directory that could not be made, not of the one below."""
    uid = harness.NOBODY if harness.IS_ROOT else None
    tmp_path.chmod(0o755)
    (tmp_path / 'closed').mkdir(mode=0o555)
    path = sample().write(tmp_path / 'm.carton')
    p = ctl('info', f'--cache-dir={tmp_path}/closed/a/b', path, uid=uid)
    assert p.returncode == 1 and 'Permission denied' in p.stderr, p.stderr
