# SPDX-License-Identifier: Apache-2.0
"""-o mirror=: other caches and copies, asked by hash before the origin."""
import errno
import os
import signal
import threading

import pytest

import chunkindex
import harness
from harness import ctl, eventually
from origin import (MIB, PRIVATE, Cache, LinkedCarton, as_expected, digest, fault_bytes, lines_of,
                    mirror, nginx_at, reserved_port)
from zipwriter import Carton

SIZE = 30 * MIB


def linked(nginx, tmp_path):
    """A LinkedCarton of a small and a large file."""
    data = {'small': fault_bytes(1000, seed=1), 'large': fault_bytes(SIZE, seed=2)}
    c = LinkedCarton()
    for name, d in data.items():
        c.link(f'model/{name}', d, nginx.put(f'origin-{name}', d))
    nginx.clear()
    return c, c.write(tmp_path / 'm.carton'), data


def publish(nginx, c, where='objects'):
    """All files of a carton below `where`, by hash: a template for them."""
    for path, sha in c.hashes().items():
        nginx.put(f'{where}/{sha[:2]}/{sha}', c.files()[path])
    nginx.clear()
    return nginx.url('') + where + '/{ab}/{sha256}'


def test_links_by_hash(nginx, mount_fg, cache, tmp_path):
    """Nothing is asked of the origin, no validator is sent, every byte comes once."""
    c, path, data = linked(nginx, tmp_path)
    template = publish(nginx, c)
    with mount_fg(path, *PRIVATE, *mirror(template), *cache.options) as m:
        as_expected(m, c)
    asked = nginx.requests()
    assert asked and all('/objects/' in r['path'] for r in asked)
    assert not any(r['if_range'] or r['if_match'] for r in asked)
    assert sum(r['sent'] for r in asked if r['method'] == 'GET') == sum(map(len, data.values()))


def test_entries_of_a_remote_carton(nginx, mount_fg, cache):
    c = Carton(method='stored').add('model/large', fault_bytes(SIZE, seed=2))
    c.add('model/text', b'so it is ' * 100000, method='zstd')
    c.write(nginx.root / 'entries.carton')
    template = publish(nginx, c)
    with mount_fg(nginx.url('entries.carton'), *mirror(template), *cache.options) as m:
        as_expected(m, c)
    assert sum(r['sent'] for r in nginx.requests('entries.carton')) < MIB
    assert sum(r['sent'] for r in nginx.requests() if '/objects/' in r['path']) >= SIZE


def test_entry_shorter_than_its_file(nginx, mount_fg, cache):
    """The carton says half the size of what has the hash: half of it is not given as all of it."""
    data = fault_bytes(2 * MIB, seed=3)
    c = Carton(method='stored').add('model/cut', data[:MIB], sha=digest(data))
    c.write(nginx.root / 'cut.carton')
    nginx.put('objects/' + digest(data), data)
    template = nginx.url('objects/') + '{sha256}'
    with mount_fg(nginx.url('cut.carton'), *mirror(template), *cache.options) as m:
        with pytest.raises(OSError) as e:
            m.read('model/cut')
        assert e.value.errno == errno.EIO
        assert 'model/cut: sha256 mismatch' in m.log()


@pytest.mark.parametrize('kind', ['miss', 'wrong', 'short', 'refused', '500', 'changing'])
def test_mirror_that_does_not_help(nginx, fault, mount_fg, cache, tmp_path, kind):
    """A miss is silent; whatever it is, the bytes are right, and it costs no second."""
    c, path, data = linked(nginx, tmp_path)
    port, s = reserved_port()
    template = {'miss': nginx.url('nothing/') + '{sha256}',
                'wrong': fault.url('', size=SIZE) + '{sha256}',
                'short': fault.url('', size=500) + '{sha256}',
                'refused': f'http://127.0.0.1:{port}/{{sha256}}',
                '500': fault.url('', status=500) + '{sha256}',
                'changing': None}[kind]
    if kind == 'changing':
        # another entity tag for each request: of no importance
        name = os.path.join(fault.root, 'changing')
        with open(name, 'wb') as f:
            f.write(data['large'])
        template = fault.url('', file='changing', newetag=1) + '{sha256}'
    with harness.at_once(), mount_fg(path, *PRIVATE, *mirror(template), *cache.options) as m:
        for name, d in data.items():
            assert m.read(f'model/{name}') == d
        log = m.log()
    s.close()
    noise = lines_of(log, 'warning|sha256')
    assert len(noise) == {'refused': 1, 'wrong': 2}.get(kind, len(noise)), log
    assert kind not in ('miss', '500') or not noise, log
    if kind == 'changing':
        assert sum(r['sent'] for r in nginx.requests('origin-large') if r['method'] == 'GET') == 0


def test_order_of_urls(nginx, mount_fg, cache, tmp_path):
    c, path, _ = linked(nginx, tmp_path)
    full = publish(nginx, c)
    with mount_fg(path, *PRIVATE, *mirror(nginx.url('none/') + '{sha256}', full),
                  *cache.options) as m:
        assert m.read('model/small') == c.linked['model/small']
    paths = [r['path'].split('/')[1] for r in nginx.requests()]
    assert paths[:2] == ['none', 'objects'] and not any('origin' in p for p in paths)


def test_placeholders(nginx, fault, cache, tmp_path):
    c = LinkedCarton().link('model/a b+ä', b'text', fault.url('origin', size=4))
    path = c.write(tmp_path / 'm.carton')
    ctl('fetch', cache.flag, '--private-links', '--mirror=' + nginx.url('p/') + '{path}',
        '--mirror=' + nginx.url('q') + '?of={path}&from={source}', path)
    seen = nginx.requests()
    assert any(r['path'] == '/p/model/a b+ä' for r in seen)
    queries = {r['query'] for r in seen} - {''}
    assert queries == {f'of=model%2Fa%20b%2B%C3%A4&from={str(path).replace("/", "%2F")}'}


@pytest.mark.parametrize('text', ['relative/{sha256}', 'http://h/nothing', 'http://h/{sha}',
                                  'ftp://h/{sha256}', '/dir/{source}', 'http://h{path}', 'http://h:80{path}?x',
                                  'http:///{path}/x', 'http://{path}@h/{sha256}', 's3://b{path}/{sha256}'])
def test_bad_templates(tmp_path, text):
    path = Carton().write(tmp_path / 'm.carton')
    p = ctl('info', f'--mirror={text}', path)
    assert p.returncode and 'is no template for a mirror' in p.stderr


# ---- directories ----

def snapshot(path):
    return {p: (p.lstat().st_mtime_ns, p.lstat().st_size) for p in path.rglob('*')}


@pytest.mark.parametrize('layout', ['cache', 'template', 'tree'])
def test_directory(nginx, mount_fg, cache, tmp_path, layout):
    """Read in place: nothing is fetched, copied into the cache, or written there."""
    c, path, data = linked(nginx, tmp_path)
    lower = tmp_path / 'lower'
    if layout == 'cache':
        ctl('fetch', f'--cache-dir={lower}', '--private-links', path)
        template = lower
    else:
        lower.mkdir()
        for name, d in data.items():
            name = c.sum(d) if layout == 'template' else f'model/{name}'
            (lower / name).parent.mkdir(exist_ok=True)
            (lower / name).write_bytes(d)
        template = f'{lower}/' + ('{sha256}' if layout == 'template' else '{path}')
    before = snapshot(lower)
    nginx.clear()
    with mount_fg(path, *PRIVATE, *mirror(template), *cache.options) as m:
        for name, d in data.items():
            assert m.read(f'model/{name}') == d
    assert not [r for r in nginx.requests() if r['method'] == 'GET']
    assert snapshot(lower) == before and not cache.objects()


@pytest.mark.parametrize('store', ['.cache/huggingface/hub/models--ORG--NAME/blobs/{sha256}',
                                   '.ollama/models/blobs/sha256-{sha256}', 'layout/blobs/sha256/{sha256}'])
def test_stores_of_other_programs(nginx, mount_fg, cache, tmp_path, store):
    """The hub's client, Ollama, OCI layouts: read in place, by the templates of the man page, and verified."""
    assert store in (harness.ROOT / 'fs/mount/cartonfs.1').read_text()
    c, path, data = linked(nginx, tmp_path)
    store = tmp_path / 'me' / store
    store.parent.mkdir(parents=True)
    files = {name: store.with_name(store.name.format(sha256=c.sum(d))) for name, d in data.items()}
    for name, file in files.items():
        file.write_bytes(data[name])
    # as the hub's client shows them
    os.symlink(files['large'], store.parent.parent / 'model.safetensors')
    before = snapshot(tmp_path / 'me')
    nginx.clear()
    with mount_fg(path, *PRIVATE, *mirror(store), *cache.options) as m:
        for name, d in data.items():
            assert m.read(f'model/{name}') == d
    assert not [r for r in nginx.requests() if r['method'] == 'GET']
    assert snapshot(tmp_path / 'me') == before and not cache.objects()
    # other bytes under the name are not what the reader gets
    files['small'].write_bytes(b'?' * len(data['small']))
    with mount_fg(path, *PRIVATE, *mirror(store), *cache.options) as m:
        assert m.read('model/small') == data['small'] and 'has other bytes' in m.log()


def test_directory_with_damage(nginx, mount_fg, cache, tmp_path):
    """It is told, left as it is, and the origin is asked."""
    c, path, data = linked(nginx, tmp_path)
    lower = tmp_path / 'lower'
    lower.mkdir()
    (lower / c.sum(data['large'])).write_bytes(data['large'][:-1] + b'?')
    os.mkfifo(lower / c.sum(data['small']))
    with mount_fg(path, *PRIVATE, *mirror(f'{lower}/{{sha256}}'), *cache.options) as m:
        for name, d in data.items():
            assert m.read(f'model/{name}') == d
        log = m.log()
    assert len(lines_of(log, 'mirror= has other bytes')) == 1
    assert len(list(lower.iterdir())) == 2


def test_carton_itself(nginx, mount_fg, cache, tmp_path):
    """With the pin, its directory and MANIFEST come from a mirror too; without, from the origin."""
    c = Carton(method='stored').add('model/x', fault_bytes(SIZE, seed=2))
    c.write(nginx.root / 'copy.carton')
    os.symlink(nginx.root / 'copy.carton', nginx.root / 'itself.carton')
    url, template = nginx.url('itself.carton'), nginx.url('copy.carton') + '?{source}'
    pin = ('-o', f'manifest_sha256={c.model_hash()}')
    nginx.clear()
    with mount_fg(url, *mirror(template), *pin, *cache.options) as m:
        as_expected(m, c)
    assert not nginx.requests('itself.carton') and nginx.requests('copy.carton')
    nginx.clear()
    with mount_fg(url, *mirror(template), '-o', f'cache_dir={tmp_path}/other') as m:
        as_expected(m, c)
    assert nginx.requests('itself.carton') and not nginx.requests('copy.carton')


def test_carton_at_a_mirror_without_checks(nginx, mount_fg, cache):
    """Where files are not compared with MANIFEST, nobody but the origin is asked for them."""
    c = Carton(method='stored').add('model/x', fault_bytes(SIZE, seed=2))
    path = c.write(nginx.root / 'home.carton')
    bad = bytearray(path.read_bytes())
    bad[bad.index(fault_bytes(SIZE, seed=2)) + SIZE // 2] ^= 1
    (nginx.root / 'copy.carton').write_bytes(bad)
    with mount_fg(nginx.url('home.carton'), *mirror(nginx.url('copy.carton') + '?{source}'), *cache.options,
                  '-o', f'verify=off,manifest_sha256={c.model_hash()}') as m:
        as_expected(m, c)
    assert nginx.requests('home.carton') and not nginx.requests('copy.carton')


def test_mirror_by_hash_without_checks(nginx, mount_fg, cache):
    """The same of a file: what a mirror has under its hash may be anything."""
    data = fault_bytes(2 * MIB, seed=2)
    c = Carton(method='stored').add('model/x', data)
    c.write(nginx.root / 'home.carton')
    nginx.put(f'objects/{digest(data)}', data[:MIB] + b'?' + data[MIB + 1:])
    with mount_fg(nginx.url('home.carton'), *mirror(nginx.url('objects/') + '{sha256}'), *cache.options,
                  '-o', 'verify=off') as m:
        as_expected(m, c)
    assert not nginx.requests(digest(data))


@pytest.mark.parametrize('template', ['copy.carton?{source}', 'mirror/{source}'])
def test_secrets_of_the_source_stay_home(nginx, mount_fg, cache, template):
    """A mirror gets the URL of the source without what permits to read it; what says which file it is stays."""
    c = Carton(method='stored').add('model/x', fault_bytes(MIB, seed=2))
    c.write(nginx.root / 'copy.carton')
    c.write(nginx.root / 'home.carton')
    plain = nginx.url('home.carton')
    url = (plain.replace('//', '//me:hunter2@') +
           '?token=tok3n&id=5&X-Amz-Signature=s1gn&v=a%2Fb&of=http%3A%2F%2Fme%3Ahunter2%40h%2F#fr4g')
    pin = ('-o', f'manifest_sha256={c.model_hash()}')
    nginx.clear()
    with mount_fg(url, *mirror(nginx.url('') + template), *pin, *cache.options) as m:
        as_expected(m, c)
        said = m.log() + m.read('.cartonfs/status.json').decode() + ctl('status', m.path).stdout
    asked = [r for r in nginx.requests() if not r['path'].startswith('/home.carton')]
    assert asked
    said += ''.join(r['path'] + r['query'] for r in asked)
    assert not any(secret in said for secret in ('hunter2', 'tok3n', 's1gn', 'fr4g')), said
    assert any('id%3D5%26v%3Da%252Fb' in r['query'] + r['path'] or 'id=5&v=a%2Fb' in r['query'] + r['path']
               for r in asked), asked


def test_secrets_are_not_in_the_cache(fault, mount_fg, cache, tmp_path):
    """Which URL a part of a file came from is kept beside it."""
    data = fault_bytes(SIZE)
    url = fault.url('part', size=SIZE, truncate=SIZE // 2, norange=1).replace('//', '//me:hunter2@') + '?token=tok3n&id=5'
    path = LinkedCarton().link('model/x', data, url).write(tmp_path / 'm.carton')
    p = ctl('fetch', cache.flag, '--timeout=2', '--private-links', path)
    assert p.returncode and 'hunter2' not in p.stderr and 'tok3n' not in p.stderr
    kept = b''.join(f.read_bytes() for f in (cache.path / 'v1').rglob('*')
                    if f.is_file() and f.stat().st_size < 8192)
    assert b'/part' in kept and b'hunter2' not in kept and b'tok3n' not in kept, kept


@pytest.fixture
def far(nginx, tmp_path):
    """(carton, its URL, options) of a carton that a server of its own mirrors, and that server."""
    c = Carton(method='stored').add('model/x', fault_bytes(SIZE, seed=2))
    c.add('model/y', fault_bytes(MIB, seed=3), method='zstd')
    c.write(nginx.root / 'far.carton')
    with nginx_at(tmp_path / 'near', rate=8 * MIB) as near:
        c.write(near.root / 'copy.carton')
        nginx.clear()
        yield c, nginx.url('far.carton'), near, (
            '-o', f'manifest_sha256={c.model_hash()}', *mirror(near.url('slow/copy.carton') + '?{source}'))


@pytest.mark.parametrize('how', ['stopped', 'frozen', 'removed', 'changed', 'wrong'])
def test_mirror_of_the_carton_fails(far, nginx, mount_fg, cache, how):
    """The origin is asked instead, for what comes after that."""
    c, url, near, options = far
    with mount_fg(url, *options, *cache.options) as m:
        assert not nginx.requests()
        if how == 'stopped':
            near.stop()
        elif how == 'frozen':
            harness.freeze(near.process.pid)
        elif how == 'removed':
            (near.root / 'copy.carton').unlink()
        else:
            copy, data = near.root / 'copy.carton', bytearray((nginx.root / 'far.carton').read_bytes())
            data[SIZE // 2] ^= 1
            # its last bytes tell a new one from the same one with another ETag
            data[-1] ^= how == 'changed'
            # nginx makes ETags of the size and the second
            seconds = copy.stat().st_mtime + (how == 'changed')
            copy.write_bytes(data)
            os.utime(copy, (seconds, seconds))
        try:
            as_expected(m, c)
        finally:
            near.process.send_signal(signal.SIGCONT)
        log = m.log()
    assert sum(r['sent'] for r in nginx.requests()) >= SIZE
    assert len(lines_of(log, 'going on without it')) == (
        how in ('stopped', 'frozen')), log
    assert bool(lines_of(log, 'sha256 mismatch')) == (how == 'wrong'), log


def test_mirror_of_the_carton_fails_half_way(far, nginx, mount_fg, cache):
    """What has come from it is not fetched again."""
    c, url, near, options = far
    got = []
    with mount_fg(url, *options, *cache.options) as m:
        reader = threading.Thread(target=lambda: got.append(m.read('model/x')))
        reader.start()
        eventually('8 MiB are here', lambda: max(cache.partials().values(), default=0) >= 8 * MIB)
        near.stop()
        reader.join()
    assert got == [c.files()['model/x']]
    assert 0 < sum(r['sent'] for r in nginx.requests()) <= SIZE - 8 * MIB


@pytest.mark.parametrize('what', ['header', 'data'])
def test_wrong_part_of_a_mirror(far, nginx, mount_fg, cache, what):
    """What says where a file begins, and what has to be decoded, is trusted no more than all else."""
    c, url, near, options = far
    copy = near.root / 'copy.carton'
    bad = bytearray(copy.read_bytes())
    x, y = c.placed['model/x'], c.placed['model/y']
    # the last letter of the name in the local header; the middle of what zstd has made
    bad[x.data - 1 if what == 'header' else (y.data + y.end) // 2] ^= 1
    copy.write_bytes(bad)
    with mount_fg(url, *options, *cache.options) as m:
        assert not nginx.requests()
        for path in 'model/y', 'model/x':
            assert m.read(path) == c.files()[path]
    # the mirror is not asked again
    assert sum(r['sent'] for r in nginx.requests()) >= SIZE


def test_header_of_a_mirror(nginx, mount_fg, cache):
    """A mirror that lies about where the data of a file begins does not keep the origin's from being read."""
    data = fault_bytes(SIZE, seed=2)
    c = Carton(method='stored').add('model/x', data)
    c.add(chunkindex.PATH, chunkindex.index(data))
    path = c.write(nginx.root / 'home.carton')
    bad = bytearray(path.read_bytes())
    header = bad.index(data) - 30 - len('model/x')
    assert bad[header:header + 4] == b'PK\3\4' and bad[header + 28] == 0
    bad[header + 28] = 1  # bytes of extra fields
    (nginx.root / 'copy.carton').write_bytes(bad)
    with mount_fg(nginx.url('home.carton'), *mirror(nginx.url('copy.carton') + '?{source}'), *cache.options,
                  '-o', f'manifest_sha256={c.model_hash()}') as m:
        for off in 5 * chunkindex.CHUNK, 50 * chunkindex.CHUNK:
            assert chunkindex.pread(m / 'model/x', 1000, off) == data[off:off + 1000]
    assert sum(r['sent'] for r in nginx.requests('home.carton')) >= 2 * chunkindex.CHUNK


def test_mirror_of_the_carton_and_then(far, nginx, mount_fg, cache, tmp_path):
    """A URL that replaces the origin's is used; offline it is found under the URL that was given."""
    c, url, near, options = far
    with mount_fg(url, *options, *cache.options) as m:
        assert ctl('refresh', m.path, nginx.url('secret/far.carton')).returncode == 0
        with pytest.raises(OSError, match=os.strerror(errno.EACCES)):
            m.read('model/x')
        assert ctl('refresh', m.path, url).returncode == 0
        as_expected(m, c)
    near.stop()
    with mount_fg(url, *options[:2], '-o', 'offline', *cache.options) as m:
        as_expected(m, c)


def test_export(nginx, mount_fg, cache, tmp_path):
    """The configuration that it writes makes nginx serve the cache of a node."""
    c, path, _ = linked(nginx, tmp_path)
    ctl('fetch', cache.flag, '--private-links', path)
    p = ctl('cache', 'export', cache.flag)
    assert p.returncode == 0, p.stderr
    with nginx_at(tmp_path / 'node', more=p.stdout) as node:
        mine = Cache(tmp_path / 'mine')
        nginx.clear()
        with mount_fg(path, *PRIVATE, *mirror(node.url('') + 'carton/{ab}/{sha256}'),
                      *mine.options) as m:
            as_expected(m, c)
        assert not nginx.requests()
