# SPDX-License-Identifier: Apache-2.0
"""A bare safetensors file in place of a carton: what is shown of it, and when it is verified."""
import errno
import hashlib
import json
import os
import re
import resource

import pytest

import harness
from harness import CARTONFS, ctl, eventually, run
from origin import MIB, errno_of, fault_bytes, lines_of
from tensorfiles import BAD, every_safetensors_dtype, safetensors, st_bytes, weights
from zipwriter import Carton

UNVERIFIED = 'a bare file is not verified'


def put(where, data):
    where.write_bytes(data)
    return where


def pin(data):
    return '-o', f'sha256={hashlib.sha256(data).hexdigest()}'


def shown(m):
    return sorted(m.do(os.listdir, os.fspath(m)))


def status(m):
    return json.loads(m.read('.cartonfs/status.json'))


@pytest.mark.parametrize('pinned', [False, True])
def test_tensors_at_the_top(work, mount_fg, who, pinned):
    """Each dtype, names that are no file names, the file itself; said once that nothing verifies it."""
    header, data = every_safetensors_dtype()
    header |= {'a/../b': {'dtype': 'U8', 'shape': [3], 'data_offsets': [len(data), len(data) + 3]}}
    path = put(work / 'w.safetensors', whole := st_bytes(header, data + b'xyz'))
    with mount_fg(path, *(pin(whole) if pinned else ()), uid=who) as m:
        index = json.loads(m.read('index.json'))
        assert {t['name'] for t in index['tensors']} == set(header) - {'__metadata__'}
        assert index['metadata'] == header['__metadata__'] and index['problems'] == []
        named = {f for t in index['tensors'] for f in t['files']}
        assert set(shown(m)) == named | {'index.json', 'w.safetensors'}
        rest = (data + b'xyz')
        for t in index['tensors']:
            begin, end = header[t['name']]['data_offsets']
            assert m.read(t['files'][0]) == rest[begin:end], t
            for npy in t['files'][1:]:
                assert m.read(npy).endswith(rest[begin:end]) and m.read(npy)[:6] == b'\x93NUMPY'
        assert 'a%2F..%2Fb.bin' in named
        assert m.read('w.safetensors') == whole
        assert status(m)['verify'] == ('auto' if pinned else 'off') and status(m)['model_hash'] == ''
        assert len(lines_of(m.log(), UNVERIFIED)) == (not pinned)
        assert errno_of(m.read, 'MANIFEST') == errno_of(m.read, 'carton.toml') == errno.ENOENT
        text = ctl('status', m.path, uid=who).stdout
        assert ('verify    off: nothing is verified' in text) == (not pinned)


@pytest.mark.parametrize('size', [1000, 3 * MIB])
def test_the_wrong_hash(work, mount_fg, cache, size):
    """No byte and no name of it reaches a reader; one line says why."""
    whole = weights(secret=fault_bytes(size // 4 * 4))
    path = put(work / 'w.safetensors', whole)
    with mount_fg(path, *pin(whole + b'x'), *cache.options) as m:
        assert shown(m) == ['index.json', 'w.safetensors']
        for _ in range(2):
            assert errno_of(m.read, 'w.safetensors') == errno.EIO
        assert 'not the right one' in m.read('index.json').decode()
        assert len(lines_of(m.log(), 'sha256 mismatch: sha256= says')) == 1
        assert UNVERIFIED not in m.log()
    # the same bytes under their own hash are right; the seal of them is used, and is of this hash only
    for _ in range(2):
        with mount_fg(path, *pin(whole), *cache.options) as m:
            assert m.read('w.safetensors') == whole


@pytest.mark.parametrize('pinned', [False, True])
@pytest.mark.parametrize('cut', [False, True])
def test_changed_while_mounted(work, mount_fg, pinned, cut):
    """An error, not a mixture: by its tags, or without a hash by its size and times."""
    whole = weights(a=fault_bytes(4 * MIB), b=fault_bytes(4 * MIB, seed=1))
    path = put(work / 'w.safetensors', whole)
    with mount_fg(path, *(pin(whole) if pinned else ())) as m:
        assert m.read('b.bin') == fault_bytes(4 * MIB, seed=1)
        before = os.stat(path)
        with open(path, 'r+b') as f:
            f.truncate(5 * MIB) if cut else f.seek(100) and f.write(b'\0' * (3 * MIB))
        # the clock of the file system has ticked
        eventually('another time', lambda: os.utime(path) or os.stat(path).st_mtime_ns != before.st_mtime_ns)
        error = errno_of(m.read, 'b.bin' if cut else 'a.bin')
        if cut:
            # what the kernel has of it is what it was; the rest of the file is not
            error = errno_of(m.read, 'w.safetensors')
        assert error == (errno.EIO if pinned else errno.ESTALE)
        eventually('the line', lambda: 'changed' in m.log())
        assert len(lines_of(m.log(), 'w.safetensors.*changed|has changed')) == 1


@pytest.mark.parametrize('case', BAD)
def test_hostile_headers(work, mount_fg, case):
    """Refused at the mount where it does not even begin as one; else the index says what is wrong."""
    header, data, says = BAD[case]
    path = put(work / 'w.safetensors', st_bytes(header.encode() if isinstance(header, str) else header, data, False))
    p = ctl('info', path)
    assert p.returncode == 1 and (says in p.stderr or 'is not a safetensors file' in p.stderr), p.stderr
    if 'is not a safetensors file' in p.stderr:
        return
    assert p.stderr.count('w.safetensors: no tensors are shown: ') == 1 == p.stderr.count(': no tensors'), p.stderr
    assert ctl('info', '--json', path).returncode == 1
    with mount_fg(path) as m:
        assert shown(m) == ['index.json', 'w.safetensors']
        assert says in json.loads(m.read('index.json'))['problems'][0]['problem']


@pytest.mark.parametrize('n', [0, 1, 8, 9])
def test_short_and_long_headers(work, n):
    for length in (2 ** 63, 100000001, 1 << 20):
        path = put(work / 'w.safetensors', (length.to_bytes(8, 'little') + b'{')[:n])
        p = ctl('ls', path)
        assert p.returncode == 1 or n == 9 and length == 1 << 20, p.stdout
        assert 'Traceback' not in p.stderr and p.stderr


def test_info_of_much_metadata(work):
    """Each text of it is read for itself, however much follows: it takes a second of CPU at most."""
    metadata = {f'key {i}': 'a "value" é\1 ' * 20 for i in range(10000)}
    path = put(work / 'w.safetensors', st_bytes({'__metadata__': metadata}, b''))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = ctl('info', path).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert re.findall(r'(key \d+): a "value" é\\x01 a', out) == list(metadata)
    assert took < 1 * harness.SLOW


def test_no_carton_comes_here(work, mount_fg, cache):
    """An attacker's carton: neither by its name, nor by what is in it, are its bytes read unverified."""
    good, bad = weights(a=b'good'), weights(a=b'evil')
    c = Carton()
    c.add('model/w.safetensors', good, method='stored')
    path = c.write(work / 'm.carton')
    whole = path.read_bytes()
    assert whole.count(good) == 1
    path.write_bytes(whole.replace(good, bad))
    with mount_fg(path, *cache.options) as m:
        assert errno_of(m.read, 'model/w.safetensors') == errno.EIO
        assert os.listdir(m / 'views/model/w.safetensors') == ['index.json']
        assert UNVERIFIED not in m.log()
    # the same carton under the other name is refused, not mounted in the other way
    other = put(work / 'm.safetensors', whole)
    p = ctl('ls', other)
    assert p.returncode == 1 and 'is not a safetensors file' in p.stderr
    # and what is a carton for its reader is not mounted bare, whatever it begins with
    p = ctl('ls', put(work / 'both.carton', good + whole))
    assert p.returncode == 1 and UNVERIFIED not in p.stderr
    # an unpacked carton may have that name
    c.files()
    os.mkdir(work / 'd.safetensors')
    p = ctl('ls', work / 'd.safetensors')
    assert p.returncode == 1 and 'has no MANIFEST' in p.stderr


def test_each_hash_for_its_kind(work, point, sample_carton):
    """A hash that would not be compared is refused; so is what is none."""
    path = put(work / 'w.safetensors', weights(a=b'1234'))
    h = 64 * 'a'
    for source, option, says in ((path, f'manifest_sha256={h}', 'of a bare file it is sha256'),
                                 (sample_carton[0], f'sha256={h}', 'carton it is manifest_sha256'),
                                 (path, 'sha256=xyz', 'must be 64 hex digits'),
                                 (path, 'verify=mount', 'only with sha256=HEX')):
        p = run(CARTONFS, '-o', option, source, point())
        assert p.returncode and says in p.stderr, p.stderr
        assert p.stdout == ''


def test_commands(work, sample_carton):
    """info, ls and cat show it; what needs a carton says so."""
    whole = safetensors({'x': ('F32', [2, 2], bytes(16)), 'y z': ('BF16', [4], bytes(8))})
    path, h = put(work / 'w.safetensors', whole), hashlib.sha256(whole).hexdigest()
    p = ctl('info', path)
    assert p.returncode == 0 and 'not verified; --sha256=HEX' in p.stdout and '2 tensors in the file' in p.stdout
    p = ctl('info', f'--sha256={h}', path)
    assert h in p.stdout and p.stderr == ''
    info = json.loads(ctl('info', '--json', f'--sha256={h}', path).stdout)
    assert (info['file'], info['bytes'], info['verified'], info['sha256']) == ('w.safetensors', len(whole), True, h)
    assert [t['name'] for t in info['index']['tensors']] == ['x', 'y z']
    info = json.loads(ctl('info', '--json', path).stdout)
    assert not info['verified'] and info['sha256'] is None
    other = h[1:] + h[:1]
    p = ctl('info', f'--sha256={other}', path)
    assert p.returncode == 1 and 'hash         not that of --sha256' in p.stdout and other not in p.stdout
    p = ctl('info', '--json', f'--sha256={other}', path)
    assert p.returncode == 1 and not json.loads(p.stdout)['verified']
    names = {e['path'] for e in json.loads(ctl('ls', '--json', path).stdout)}
    assert names == {'x.bin', 'x.npy', 'y%20z.bin', 'index.json', 'w.safetensors'} or 'y z.bin' in names
    assert ctl('cat', path, 'x.bin', text=False).stdout == bytes(16)
    assert ctl('verify', f'--sha256={h}', path).returncode == 0
    p = ctl('verify', path)
    assert p.returncode == 1 and UNVERIFIED in p.stdout and '1 problem' in p.stdout
    p = ctl('verify', f'--sha256={h[:-1]}{"0" if h[-1] != "0" else "1"}', path)
    assert p.returncode == 2 and 'sha256 mismatch' in p.stdout
    for words in (['hash', path], ['diff', path, path], ['diff', sample_carton[0], path],
                  ['repack', path, work / 'o.carton'], ['fetch', path]):
        p = ctl(*words)
        assert p.returncode and 'bare file' in p.stderr.splitlines()[-1 if words[0] != 'repack' else -2], p.stderr
    assert not (work / 'o.carton').exists()
