# SPDX-License-Identifier: Apache-2.0
"""
Who can write to the cache, such as a daemon that another carton has taken over, and has not its key: what such a one
puts there mounts no other model. And where that key is.
"""
import contextlib
import os
import re
import sys

import pytest

import sealforge
import harness
from harness import CARTONFS, IS_ROOT, ctl, environment, run
from hubrepo import HubServer, Repo
from origin import MIB, digest, fault_bytes, lines_of, sealed
from probing import LANDLOCK
from registry import Artifact, layout
from zipwriter import Carton

DATA = fault_bytes(2 * MIB + 5, seed=70)
EVIL = fault_bytes(2 * MIB + 5, seed=71)


def notes(cache):
    return {p.name: p.read_bytes() for p in cache.path.glob('v1/notes/*')}


def opened(m, path='model/x'):
    os.close(m.do(os.open, m / path, os.O_RDONLY))
    return m.state(path)


def forge_notes(cache, theirs, names, said):
    """All that the attacker knows how to write: under all names, each text of a note, and what an old note said."""
    for name in names:
        sealforge.old_note(cache, name, said)
    mine = set(notes(cache)) - set(theirs)
    for name in mine:
        for text in theirs.values():
            (cache.path / 'v1/notes' / name).write_bytes(text)
            yield
        (cache.path / 'v1/notes' / name).write_text(said)
        yield
    yield


def good_or_none(p):
    """Offline: what was kept of the good one is right, or is not believed."""
    assert (p.returncode, p.stdout) == (0, 'good') or (p.stdout == '' and 'is not in the cache' in p.stderr), p


# ---- notes ----

@pytest.mark.parametrize('offline', [(), ('-o', 'offline')], ids=['online', 'offline'])
def test_a_note_names_no_other_commit(mount, cache, offline):
    """The commit of a repository that was never mounted here, and of one that was."""
    repos = {f'models/me/{name}': Repo({'config.json': text}) for name, text in (('good', b'good'), ('evil', b'evil'))}
    with HubServer(repos) as hub:
        env = {'HF_ENDPOINT': hub.endpoint, 'HF_TOKEN': ''}
        commit = {name: hub.repos[f'models/me/{name}'].commit for name in ('good', 'evil')}
        good, evil = (f'hf://me/{name}@{commit[name]}' for name in ('good', 'evil'))
        with mount(evil, *cache.options, env=env) as m:
            assert m.read('model/config.json') == b'evil'
        # the carton that says so, which its daemon has
        carton, = (name for name, p in cache.objects().items() if p.read_bytes()[:2] == b'PK')
        theirs = notes(cache)
        names = [sealforge.hub_note(hub.endpoint, 'me/good', commit['good'])]
        for kept in False, True:
            if kept:
                with mount(good, *cache.options, env=env) as m:
                    assert m.read('model/config.json') == b'good'
            tried = 0
            for _ in forge_notes(cache, theirs, names, f'{carton} {commit["good"]}'):
                tried += 1
                if offline:
                    good_or_none(ctl('cat', cache.flag, '--offline', good, 'model/config.json', env=env))
                    continue
                with mount(good, *cache.options, env=env) as m:
                    assert m.read('model/config.json') == b'good'
            assert tried > 1


@pytest.mark.parametrize('offline', [(), ('-o', 'offline')], ids=['online', 'offline'])
def test_a_note_names_no_other_artifact(mount, cache, work, point, running_registry, offline):
    """A digest says what its manifest is: the carton is made of that, whatever notes there are, and without any."""
    urls, digests = {}, {}
    for name, text in (('good', b'good'), ('evil', b'evil')):
        artifact = Artifact({'config.json': text})
        running_registry.push(layout(work / name, artifact), 'latest', f'tests/key/{name}')
        urls[name], digests[name] = running_registry.oci('latest', f'tests/key/{name}'), artifact.digest
    good, evil = (f'{urls[name].rpartition(":")[0]}@{digests[name]}' for name in ('good', 'evil'))
    for source in evil, good:
        with mount(source, *cache.options) as m:
            assert m.read('model/config.json') == (b'good' if source == good else b'evil')
    cartons = [name for name, p in cache.objects().items() if p.read_bytes()[:2] == b'PK']
    for path in cache.path.glob('v1/notes/*'):
        path.unlink()
    for server in f'http://{running_registry.host}', f'https://{running_registry.host}':
        for carton in cartons:
            sealforge.old_note(cache, sealforge.hub_note(server, 'tests/key/good', digests['good']),
                             f'{carton} {digests["good"]}')
            with mount(good, *cache.options, *offline) as m:
                assert m.read('model/config.json') == b'good'
    # nor does a good note say what it is where the manifest is not here, or is another one
    with mount(good, *cache.options) as m:
        assert m.read('model/config.json') == b'good'
    manifests = {name: cache.objects()[d.partition(':')[2]] for name, d in digests.items()}
    for content in manifests['evil'].read_bytes(), None:
        manifests['good'].unlink(missing_ok=True)
        if content:
            manifests['good'].write_bytes(content)
            manifests['good'].chmod(0o400)
        if offline:
            p = run(CARTONFS, *cache.options, *offline, good, point())
            assert p.returncode == 32 and 'is not in the cache' in p.stderr, p.stderr
            continue
        with mount(good, *cache.options) as m:
            assert m.read('model/config.json') == b'good'
        assert manifests['good'].exists()


def test_a_kept_carton_is_hashed(mount, cache):
    """What a note names is right, or made again; offline it is not here."""
    with HubServer({'models/me/good': Repo({'config.json': b'good'})}) as hub:
        env = {'HF_ENDPOINT': hub.endpoint, 'HF_TOKEN': ''}
        good = f'hf://me/good@{hub.repos["models/me/good"].commit}'
        for offline in True, False:
            with mount(good, *cache.options, env=env) as m:
                assert m.read('model/config.json') == b'good'
            carton, = (p for p in cache.objects().values() if p.read_bytes()[:2] == b'PK')
            data = carton.read_bytes()
            carton.chmod(0o600)
            carton.write_bytes(data.replace(b'"noop"', b'"evil"'))
            carton.chmod(0o400)
            if offline:
                p = ctl('cat', cache.flag, '--offline', good, 'carton.toml', env=env)
                assert p.stdout == '' and 'is not in the cache' in p.stderr, p.stderr
                assert lines_of(p.stderr, 'damaged object dropped')
        with mount(good, *cache.options, env=env) as m:
            assert b'"noop"' in m.read('carton.toml')


@pytest.mark.parametrize('how', ['', 'norange/'], ids=['a snapshot', 'a download'])
def test_a_note_names_no_other_url(nginx, mount, cache, how):
    """Offline, a URL is what it was, and not what another one is."""
    for name, data in (('good', b'good'), ('evil', b'evil')):
        Carton().add('model/x', data).write(nginx.root / f'{name}.carton')
    good, evil = (nginx.url(f'{how}{name}.carton') for name in ('good', 'evil'))
    with mount(evil, *cache.options) as m:
        assert m.read('model/x') == b'evil'
    theirs = notes(cache)
    old = [good, f'snapshot {good}']
    said = next(iter(theirs.values()))[64:].decode()
    for kept in False, True:
        if kept:
            with mount(good, *cache.options) as m:
                assert m.read('model/x') == b'good'
        for _ in forge_notes(cache, theirs, old, said):
            good_or_none(ctl('cat', cache.flag, '--offline', good, 'model/x'))


# ---- seals ----

def test_a_new_key_in_the_cache(mount, cache, work):
    """The attack: other bytes of an entry, and seals to fit of a key that lies in the cache. The model is pinned."""
    source = Carton(method='zstd').add('model/x', DATA, level=1).write(work / 'm.carton')
    pin = ('-o', f'manifest_sha256={ctl("hash", source).stdout.strip()}')
    with mount(source, *cache.options, *pin) as m:
        assert opened(m) == 'verified'
    path = cache.objects()[digest(DATA)]
    path.chmod(0o600)
    path.write_bytes(EVIL)
    path.chmod(0o400)
    for seal in cache.path.glob('v1/seals/*'):
        seal.unlink()
    sealforge.put_seals(cache, bytes(range(32)), digest(DATA), EVIL)
    with mount(source, *cache.options, *pin) as m:
        assert m.read('model/x') == DATA and m.state('model/x') == 'verified'
    assert not (cache.path / 'v1/seals/secret').exists()
    cache.check()


def test_a_seal_of_another_source(mount, cache, work):
    """A daemon that its own carton has taken over seals other bytes of another one's file, with the key that it has."""
    source = Carton(method='stored').add('model/x', DATA).write(work / 'm.carton')
    with open(source, 'rb') as f:
        at = f.read().index(DATA[:100])
    evil = Carton(method='stored').add('model/x', EVIL).write(work / 'evil.carton')
    for carton in source, evil:
        with mount(carton, *cache.options) as m:
            assert opened(m) == 'verified'
    seals = {sealed(p): p for p in cache.path.glob('v1/seals/*')}
    user = harness.Path(environment()['XDG_STATE_HOME'], 'cartonfs/cache.key')
    key = sealforge.key_of_path(bytes.fromhex(user.read_text()), evil)
    # this is the key that its seals are made with
    assert seals[digest(EVIL)].name == sealforge.seal_name(key, digest(EVIL))
    forged = sealforge.seal(key, digest(DATA), EVIL, 2)
    seals[digest(DATA)].write_bytes(forged)
    (cache.path / 'v1/seals' / sealforge.seal_name(key, digest(DATA))).write_bytes(forged)
    with open(source, 'r+b') as f:
        f.seek(at)
        f.write(EVIL)
    with mount(source, *cache.options) as m, pytest.raises(OSError):
        m.read('model/x')


def test_a_key_is_of_one_source(nginx, mount, cache):
    """A file of repositories, revisions, servers and URLs is sealed by each of them, and by the same again not."""
    name, repo = 'model-00001-of-00001.safetensors', {'model-00001-of-00001.safetensors': DATA}
    for c in 'ab':
        Carton(method='stored').add(f'model/{name}', DATA).write(nginx.root / f'{c}.carton')
    with contextlib.ExitStack() as stack:
        hubs = [stack.enter_context(HubServer({f'models/me/{c}': Repo(repo) for c in 'ab'})) for _ in range(2)]
        commit = hubs[0].repos['models/me/a'].commit
        sources = [(0, 'hf://me/a'), (0, f'hf://me/a@{commit}'), (0, 'hf://me/b'), (1, 'hf://me/a'),
                   (0, nginx.url('a.carton')), (0, nginx.url('b.carton'))]
        for again in False, True:
            for i, (hub, source) in enumerate(sources):
                with mount(source, *cache.options, env={'HF_ENDPOINT': hubs[hub].endpoint, 'HF_TOKEN': ''}) as m:
                    assert opened(m, f'model/{name}') == ('sealed' if again else 'verified'), source
                seals = [sealed(p) for p in cache.path.glob('v1/seals/*')]
                assert seals == (len(sources) if again else i + 1) * [digest(DATA)]


# ---- where the key is ----

PLACES = ['the cache', 'v1', 'the source', 'a mirror', 'by a link']


@pytest.fixture
def reached(work, cache):
    """reached(place): (a directory that a carton might reach, the source, options)."""
    root = Carton().add('model/x', DATA).unpack(work / 'unpacked')
    cache.path.mkdir(mode=0o700)
    (cache.path / 'v1').mkdir(mode=0o700)
    (work / 'mirror').mkdir()
    os.symlink(cache.path, work / 'link')
    return lambda place: (
        {'the cache': cache.path, 'v1': cache.path / 'v1', 'the source': root, 'a mirror': work / 'mirror',
         'by a link': work / 'link'}[place], root,
        (*cache.options, '-o', f'mirror={work}/mirror/{{sha256}}'))


@pytest.mark.parametrize('place', PLACES)
def test_a_key_that_a_carton_might_reach(reached, mount_fg, point, cache, place):
    """As an option it is refused, and no file is made; by default the mount goes on without a key."""
    where, source, options = reached(place)
    p = run(CARTONFS, *options, '-o', f'cache_key={where}/key', source, point())
    assert p.returncode == 1 and 'cannot be the key of the cache: it lies in the directory of' in p.stderr, p.stderr
    assert not (where / 'key').exists()
    for _ in range(2):
        with mount_fg(source, *options, env={'XDG_STATE_HOME': str(where)}) as m:
            assert opened(m) == 'verified'
            assert len(lines_of(m.log(), 'cannot be the key of the cache: it lies in the directory of')) == 1
    assert cache.seals() == {} and not list(where.rglob('cache.key'))


@pytest.mark.skipif(LANDLOCK < 2, reason='what Landlock forbids')
def test_a_key_that_the_sandbox_lets_in(mount_fg, point, cache, work, sample_carton):
    """Where files without a name may be written, the daemon could write the key."""
    (work / 'tmp').mkdir()
    env = {'TMPDIR': str(work / 'tmp')}
    p = run(CARTONFS, *cache.options, '-o', f'cache_key={work}/tmp/key', sample_carton[0], point(), env=env)
    assert p.returncode == 1 and 'can be opened by the process that reads the carton' in p.stderr, p.stderr
    source = Carton(method='stored').add('model/x', DATA).write(work / 'm.carton')
    for _ in range(2):
        with mount_fg(source, *cache.options, env=env | {'XDG_STATE_HOME': f'{work}/tmp'}) as m:
            assert opened(m) == 'verified'
            assert len(lines_of(m.log(), 'can be opened by the process that reads the carton')) == 1
    assert cache.seals() == {}


@pytest.mark.parametrize('why', ['no directory can be made', 'read-only', 'others may read it', 'damaged', 'a link'])
def test_no_key(mount_fg, point, cache, work, why):
    """One line says so, and what helps; all is verified anew. As an option it is refused."""
    state = work / 'state/cartonfs'
    state.mkdir(parents=True, mode=0o700)
    key, source = state / 'cache.key', Carton(method='stored').add('model/x', DATA).write(work / 'm.carton')
    if why == 'no directory can be made':
        state.rmdir()
        state.write_bytes(b'')
    elif why == 'read-only':
        if IS_ROOT:
            assert run('mount', '-t', 'tmpfs', '-o', 'ro', 'none', state).returncode == 0
        state.chmod(0o500) if not IS_ROOT else None
    elif why == 'a link':
        (work / 'elsewhere').write_text('0' * 64 + '\n')
        (work / 'elsewhere').chmod(0o600)
        key.symlink_to(work / 'elsewhere')
    else:
        key.write_text('0' * (60 if why == 'damaged' else 64) + '\n')
        key.chmod(0o600 if why == 'damaged' else 0o640)
    try:
        p = run(CARTONFS, *cache.options, '-o', f'cache_key={key}', source, point())
        assert p.returncode in (1, 32) and f'{key}: cannot be the key of the cache: it ' in p.stderr, p.stderr
        for _ in range(2):
            with mount_fg(source, *cache.options, env={'XDG_STATE_HOME': str(work / 'state')}) as m:
                assert opened(m) == 'verified' and m.read('model/x') == DATA
                line, = lines_of(m.log(), 'cannot be the key of the cache: it ')
                assert 'cache_key= names another file' in line and str(key) in line
        assert cache.seals() == {} and notes(cache) == {}
    finally:
        if why == 'read-only' and IS_ROOT:
            run('umount', state)


def writable(pid):
    """The memory of a process that it can write."""
    with open(f'/proc/{pid}/maps') as maps, open(f'/proc/{pid}/mem', 'rb', buffering=0) as memory:
        for line in maps:
            at, end = (int(x, 16) for x in line.split()[0].split('-'))
            if line.split()[1].startswith('rw') and end - at < 64 * MIB:
                try:
                    yield os.pread(memory.fileno(), end - at, at)
                except OSError:
                    pass


@pytest.mark.needs_root     # such memory can be read by root alone
def test_the_daemon_forgets_the_key(mount, cache, work):
    """It has that of its source, and nothing to make another's with."""
    key, source = work / 'key', Carton(method='stored').add('model/x', DATA).write(work / 'm.carton')
    with mount(source, *cache.options, '-o', f'cache_key={key}') as m:
        assert opened(m) == 'verified'
        text = key.read_text().strip()
        for pid in (m.pids[0], *map(int, open(f'/proc/{m.pids[0]}/task/{m.pids[0]}/children').read().split())):
            memory = b''.join(writable(pid))
            assert len(memory) > MIB / 4 or pid != m.pids[0]
            assert bytes.fromhex(text) not in memory and text[:40].encode() not in memory
    assert cache.seals()
    with mount(source, *cache.options, '-o', f'cache_key={key}') as m:
        assert opened(m) == 'sealed'


@pytest.mark.needs_plain_build      # the interpreter has no sanitizer
def test_by_the_library(cache, work):
    """A program that uses the library has the same key in the same place, and shares what it says."""
    source = Carton(method='stored').add('model/x', DATA).write(work / 'm.carton')
    code = '''if True:
        import carton, sys
        with carton.open(sys.argv[1], cache_dir=sys.argv[2]) as c, c.open('model/x', 'rb') as f:
            f.read()
        try:
            carton.open(sys.argv[1], cache_dir=sys.argv[2], cache_key=sys.argv[2] + '/key')
        except OSError as e:
            print(e)
    '''
    env = {'LIBCARTON': str(harness.BUILD / 'libcarton.so.0'), 'PYTHONPATH': str(harness.ROOT / 'core'),
           'PYTHONDONTWRITEBYTECODE': '1'}
    for _ in range(2):
        p = run(sys.executable, '-c', code, source, cache.path, env=env)
        assert p.returncode == 0 and 'lies in the directory of the cache' in p.stdout, p.stdout + p.stderr
        seal, = cache.path.glob('v1/seals/*')
    before = seal.stat().st_ino
    p = ctl('cat', cache.flag, source, 'model/x', text=False)
    assert p.stdout == DATA and [p.stat().st_ino for p in cache.path.glob('v1/seals/*')] == [before]


def test_plain_options(work, point, cache):
    """An option without a file, or one in no directory."""
    source = Carton().add('model/x', b'1').write(work / 'm.carton')
    for value, status, says in (('', 1, 'cache_key'), (f'{work}/none/key', 32, 'No such file or directory')):
        p = run(CARTONFS, *cache.options, '-o', f'cache_key={value}', source, point())
        assert p.returncode == status and re.search(says, p.stderr), p.stderr


@pytest.mark.parametrize('options, says', [
    ((), ''), (('cache_key={}/key',), ', and cache_key= has no effect'),
    (('cache_size=1G',), ', and cache_size= has no effect'),
    (('cache_size=1G', 'cache_key={}/key'), ', and cache_size= and cache_key= have no effect')],
    ids=['none', 'key', 'size', 'both'])
def test_no_cache(mount_fg, work, options, says):
    """Without one, an option of the cache does nothing: the line about the cache says so, as a warning."""
    source = Carton().add('model/x', b'1').write(work / 'm.carton')
    words = [x for o in options for x in ('-o', o.format(work))]
    with mount_fg(source, *words, env={'XDG_CACHE_HOME': '/proc/none', 'HOME': '/proc/none'}) as m:
        line, = lines_of(m.log(), 'no cache directory')
        assert line.endswith(f': unpacked files go to $TMPDIR or /var/tmp{says}')
        assert line.startswith('cartonfs: warning: ') == bool(options) and m.read('model/x') == b'1'
    assert not (work / 'key').exists()
