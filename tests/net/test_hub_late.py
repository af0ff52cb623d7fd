# SPDX-License-Identifier: Apache-2.0
"""The small files of a hub, whose sha256 is known once they were read: a mount does not wait for them."""
import contextlib
import hashlib
import json
import os
import threading
import urllib.parse

import pytest

from dates import FIRST
from harness import ctl, eventually, small_disk
from hubrepo import NAME, HubServer, Repo, env, files, git_id, model_hash, name_of, settled
from origin import PRIVATE, LinkedCarton, fault_bytes, lines_of
from zipwriter import sha256

SOURCE = 'hf://me/my-model'
LATE = {'config.json', 'README.md', 'sub/a b/ü.py', '.gitattributes'}
ORDER = sorted(LATE, key=lambda path: name_of(files(0)[path]))  # in which the background fetches them


def status(m):
    return json.loads(m.read('.cartonfs/status.json'))


def asked(hub):
    """The small files that were asked for."""
    return [urllib.parse.unquote(p).partition('/resolve/')[2].partition('/')[2] for p in hub.resolved()]


@contextlib.contextmanager
def holding(wanted, *free, first=None):
    """A hub that answers for small files, but `free` ones, once the event is set; for the `first` once that one is."""
    go = threading.Event()

    def change(path, status, headers, body):
        if '/resolve/' in path and status == 200 and not path.endswith((*free, '.safetensors')):
            (first[1] if first and urllib.parse.unquote(path).endswith(first[0]) else go).wait()
    with HubServer({NAME: Repo(wanted)}, change=change) as hub:
        try:
            yield hub, go
        finally:
            go.set()


def test_nobody_waits(mount, cache):
    """All but the bytes of small files is there; these are read first that somebody wants; the model hash is late."""
    wanted = files(1)
    with holding(wanted, 'README.md') as (hub, go):
        with mount(SOURCE, *cache.options, env=env(hub)) as m:
            assert {p: os.stat(m / f'model/{p}').st_size for p in wanted} == {p: len(d) for p, d in wanted.items()}
            size = os.stat(m / 'MANIFEST').st_size
            assert m.read('model/README.md') == wanted['README.md'] and m.read('model/empty') == b''
            assert m.sha('model/model-00001-of-00001.safetensors') == sha256(wanted['model-00001-of-00001.safetensors'])
            s = status(m)
            assert s['model_hash'] == '' and s['late_files'] == len(LATE) - 1 and not s['waiting'], s
            assert 'known once all small files were read' in ctl('status', m.path).stdout
            with pytest.raises(OSError):
                os.getxattr(m / 'model/config.json', 'user.carton.sha256')
            assert os.getxattr(m / 'model/README.md', 'user.carton.sha256').decode() == sha256(wanted['README.md'])
            go.set()
            assert settled(m) == model_hash(wanted) == sha256(m.read('MANIFEST'))
            assert len(m.read('MANIFEST')) == size and status(m)['late_files'] == 0
            assert os.getxattr(m / 'model/config.json', 'user.carton.sha256').decode() == sha256(wanted['config.json'])
            assert len(hub.resolved()) == len(LATE) + 1, 'each once'


def test_an_unmount_does_not_wait(mount, cache):
    with holding(files(0)) as (hub, _):
        with mount(SOURCE, *cache.options, env=env(hub)) as m:
            eventually('it is under way', hub.resolved)
        m.wait_end()


def test_a_reader_of_manifest_waits(mount, cache):
    """Nothing else does what the background does."""
    wanted = files(0)
    with holding(wanted) as (hub, go):
        with mount(SOURCE, *cache.options, env=env(hub)) as m:
            got = []
            reader = threading.Thread(target=lambda: got.append(m.read('MANIFEST')))
            reader.start()
            eventually('somebody waits', lambda: m.read('model/empty') == b'' and hub.resolved())
            assert not got
            go.set()
            reader.join()
            assert sha256(got[0]) == model_hash(wanted) and len(hub.resolved()) == len(LATE)


def test_dates(mount, cache, tmp_path):
    """By git's id and the commit: the same in each mount. An imported carton has the hashes, and goes by them."""
    wanted = files(1)
    with HubServer({NAME: Repo(wanted)}) as hub:
        seen = []
        for at in cache.options, ('-o', f'cache_dir={tmp_path}/other'):
            with mount(SOURCE, *at, env=env(hub)) as m:
                before = {p: os.stat(m / p) for p in ['MANIFEST', '.', *(f'model/{p}' for p in wanted)]}
                settled(m)
                for p, st in before.items():
                    assert (os.stat(m / p).st_mtime, os.stat(m / p).st_ino) == (st.st_mtime, st.st_ino), p
                seen.append({p: (st.st_mtime, st.st_ino) for p, st in before.items()})
        assert seen[0] == seen[1]
        for p, data in wanted.items():
            mark = name_of(data) if p in LATE else hashlib.sha256(data).digest()
            assert seen[0][f'model/{p}'][0] == FIRST + 2 * int(mark.hex()[:7], 16), p
        out = tmp_path / 'out'
        assert ctl('extract', cache.flag, SOURCE, out, env=env(hub)).returncode == 0
        assert os.stat(out / 'model/config.json').st_mtime == seen[0]['model/config.json'][0]
        # one after the other: all is there
        assert ctl('extract', cache.flag, SOURCE, out, env=env(hub)).returncode == 0
        assert sha256((out / 'MANIFEST').read_bytes()) == model_hash(wanted)


def test_offline(mount, cache):
    """What was read is there offline, for a pin, too; what was not is said."""
    wanted = files(0)
    with HubServer({NAME: Repo(wanted)}) as hub:
        p = ctl('cat', cache.flag, SOURCE, 'model/config.json', env=env(hub))
        assert p.stdout.encode() == wanted['config.json'] and len(hub.resolved()) == 1, p.stderr
        with mount(SOURCE, *cache.options, '-o', 'offline', env=env(hub)) as m:
            assert m.read('model/config.json') == wanted['config.json']
            assert m.error('model/README.md') == 'ENETUNREACH' and status(m)['model_hash'] == ''
        p = ctl('hash', cache.flag, '--offline', SOURCE, env=env(hub))
        assert p.returncode and 'is not in the cache, and nothing is fetched when offline' in p.stderr, p.stderr
        with mount(SOURCE, *cache.options, env=env(hub)) as m:
            pin = settled(m)
            assert pin == model_hash(wanted)
        asked = len(hub.asked)
        with mount(SOURCE, *cache.options, '-o', 'offline', env=env(hub)) as m:
            assert settled(m) == pin
        assert ctl('hash', cache.flag, '--offline', SOURCE, env=env(hub)).stdout.strip() == pin
        assert len(hub.asked) == asked
        # with a pin it is a source of its own
        with mount(SOURCE, *cache.options, '-o', f'manifest_sha256={pin}', env=env(hub)) as m:
            assert status(m)['late_files'] == 0
        asked = len(hub.asked)
        with mount(SOURCE, *cache.options, '-o', f'offline,manifest_sha256={pin}', env=env(hub)) as m:
            assert m.read('model/README.md') == wanted['README.md'] and status(m)['late_files'] == 0
            assert status(m)['model_hash'] == sha256(m.read('MANIFEST')) == pin
        assert len(hub.asked) == asked


def test_the_other_way_round(mount, cache):
    """What has fetched all hashes leaves what a plain mount needs, offline, too."""
    wanted = files(0)
    with HubServer({NAME: Repo(wanted)}) as hub:
        assert ctl('hash', cache.flag, SOURCE, env=env(hub)).stdout.strip() == model_hash(wanted)
        with mount(SOURCE, *cache.options, '-o', 'offline', env=env(hub)) as m:
            assert settled(m) == model_hash(wanted)
            assert os.stat(m / 'model/config.json').st_mtime == FIRST + 2 * int(name_of(wanted['config.json']).hex()[:7], 16)


def test_without_a_cache(mount, tmp_path):
    wanted = files(0)
    (tmp_path / 'file').write_text('no directory')
    with HubServer({NAME: Repo(wanted)}) as hub:
        with mount(SOURCE, env=env(hub, XDG_CACHE_HOME=f'{tmp_path}/file')) as m:
            assert settled(m) == model_hash(wanted)
            assert {p: m.read(f'model/{p}') for p in wanted} == wanted


@pytest.mark.parametrize('answer, error', [
    (lambda data: (200, data[::-1]), 'EIO'), (lambda data: (200, data + b'x'), 'EIO'), (lambda data: (200, data[:-1]), 'EIO'),
    (lambda data: (404, b''), 'ENOENT')], ids=['other bytes', 'more', 'fewer', 'none'])
def test_a_small_file_that_is_another(mount, cache, answer, error):
    """It is said once, of that file; others are there; MANIFEST cannot be made. Nothing of it stays in the cache."""
    wanted = files(0)

    def change(path, status, headers, body):
        if path.endswith('config.json'):
            status, body = answer(wanted['config.json'])
            return status, {'ETag': '"x"'}, body
    with HubServer({NAME: Repo(wanted)}, change=change) as hub:
        with mount(SOURCE, *cache.options, env=env(hub)) as m:
            assert m.error('model/config.json') == error and m.error('MANIFEST') == error
            assert all(m.read(f'model/{p}') == wanted[p] for p in wanted if p != 'config.json')
            s = status(m)
            assert s['model_hash'] == '' and s['late_files'] == 1, s
        kept = {p.read_bytes() for p in cache.objects().values() if p.stat().st_size < 64}
        assert kept == {wanted[p] for p in LATE - {'config.json'}}
        hub.change = None
        with mount(SOURCE, *cache.options, env=env(hub)) as m:
            assert settled(m) == model_hash(wanted)


@pytest.mark.parametrize('bad', [ORDER[0], ORDER[1]], ids=['the first', 'another'])
@pytest.mark.parametrize('body', [b'', b'{"a": 2}\n'], ids=['none', 'other bytes'])
def test_one_bad_file_does_not_stop_the_others(mount, cache, bad, body):
    """They come in the background. The one is said to who reads MANIFEST, and asked for again, alone."""
    wanted = files(0)

    def change(path, status, headers, _):
        if urllib.parse.unquote(path).endswith(bad):
            return 200 if body else 404, {'ETag': '"x"'}, body
    with HubServer({NAME: Repo(wanted)}, change=change) as hub:
        with mount(SOURCE, *cache.options, env=env(hub)) as m:
            eventually('the others are here', lambda: status(m)['late_files'] == 1)
            before = len(hub.resolved())
            assert m.error('MANIFEST') == ('EIO' if body else 'ENOENT') and set(asked(hub)[before:]) <= {bad}
            errors = eventually('it is logged', lambda: lines_of(m.log(), 'other bytes|cannot be read'), why=m.log)
            assert all(f'model/{bad}' in line for line in errors), errors
            hub.change, before = None, len(hub.resolved())
            assert sha256(m.read('MANIFEST')) == settled(m) == model_hash(wanted) and asked(hub)[before:] == [bad]


def test_a_hub_without_any_of_them(mount, cache):
    """It is not asked for each of many files."""
    wanted = {f'{i}.txt': b'%d' % i for i in range(200)}

    def change(path, status, headers, body):
        if '/resolve/' in path:
            return 404, {}, b''
    with HubServer({NAME: Repo(wanted)}, change=change) as hub:
        with mount(SOURCE, *cache.options, env=env(hub)) as m:
            assert m.error('MANIFEST') == 'ENOENT'
            assert len({*asked(hub)}) <= 8 + 2 * 32, 'in a row, and at once, for the background and the reader'


@pytest.mark.parametrize('path', ['MANIFEST', f'model/{ORDER[3]}'])
def test_a_reader_is_served_before_the_background(mount, cache, path):
    """What the background has asked for, or would, waits for the user's connections; not once somebody reads it."""
    wanted, begun = files(0), threading.Event()
    with holding(wanted, ORDER[2], ORDER[3], first=(ORDER[0], begun)) as (hub, go):
        with mount(SOURCE, *cache.options, '-o', 'connections=1', env=env(hub)) as m:
            eventually('the background has begun', lambda: asked(hub) == ORDER[:1])
            held = threading.Thread(target=m.read, args=(f'model/{ORDER[1]}',))
            held.start()
            eventually('a reader has the connection', lambda: asked(hub) == ORDER[:2])
            begun.set()
            eventually('the background goes on', lambda: status(m)['late_files'] == 3)
            reader = threading.Thread(target=m.read, args=(path,))
            reader.start()
            eventually('what is read is asked for', lambda: {*ORDER[3:], *(ORDER if path == 'MANIFEST' else ())} <= {*asked(hub)})
            assert path == 'MANIFEST' or ORDER[2] not in asked(hub)
            go.set()
            held.join()
            reader.join()
            assert settled(m) == model_hash(wanted)


def test_a_list_that_cannot_be_kept(work, cache):
    """Who waits for all hashes needs no list for those who do not."""
    wanted, full = files(0), threading.Event()
    with small_disk(work / 'disk', 1) as disk:
        def change(path, status, headers, body):
            if '/tree/' in path:
                with contextlib.suppress(OSError), open(disk / 'full', 'wb', buffering=0) as f:
                    while f.write(bytes(4096)):
                        pass
                full.set()
            elif '/resolve/' in path and full.is_set():
                (disk / 'full').unlink(missing_ok=True)
        with HubServer({NAME: Repo(wanted)}, change=change) as hub:
            p = ctl('hash', f'--cache-dir={disk}/cache', SOURCE, env=env(hub))
            assert (p.returncode, p.stdout.strip()) == (0, model_hash(wanted)), p.stderr
            assert 'the cache cannot keep its list' in p.stderr and 'No space left' in p.stderr, p.stderr


def test_only_our_own_lists_say_git(fault, mount, cache, tmp_path):
    """LINKS of a carton is nobody's word: where MANIFEST has a sha256, no sha1 will do."""
    data = fault_bytes(5000)
    name = name_of(data).hex()
    c = LinkedCarton().link('model/x', (len(data), name), fault.url('good', size=len(data)))
    c.links_text = c.links_toml() + f'[sizes]\n{name} = {len(data)}\n[git]\n{name} = "{git_id(data)}"\n'
    c.write(tmp_path / 'm.carton')
    with mount(tmp_path / 'm.carton', *cache.options, *PRIVATE) as m:
        assert m.error('model/x') == 'EIO' and fault.requests()
        assert m.read('MANIFEST') == c.manifest_bytes()
    assert not cache.objects()
