# SPDX-License-Identifier: Apache-2.0
"""
Root's daemon where the packages have made a system user for it. Only a mount namespace of the test's own has that
user, as /etc/passwd and /var/cache are other files there.
"""
import contextlib
import hashlib
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import harness
import probing
from harness import CARTONCTL, CARTONFS, NOBODY, eventually, run, wait_exit
from origin import MIB, PRIVATE, LinkedCarton, fault_bytes
from probing import LANDLOCK, READ_SEARCH, Probe, mounter_of, status
from zipwriter import Carton, sample

pytestmark = pytest.mark.needs_root
UID, GID = 4242, 4243
# root's process has a group more, which the user's must not have
GROUP = ['setpriv', '--groups=4244']
library = probing.library
SCRIPT = """
set -e
umount -a -l -t fuse.cartonfs
for f in passwd group; do mount --bind "$1/$f" /etc/$f; done
mount -t tmpfs -o mode=755 none /var/cache
echo ready
exec cat
"""


class Namespace:
    """Its mounts are below `root`, for whoever is outside."""

    def __init__(self, work):
        work.mkdir()
        for name, line in (('passwd', f'cartonfs:x:{UID}:{GID}::/nonexistent:/usr/sbin/nologin\n'),
                           ('group', f'cartonfs:x:{GID}:\n')):
            (work / name).write_text(Path('/etc', name).read_text().rstrip('\n') + '\n' + line)
        self.process = subprocess.Popen(['unshare', '--mount', '--propagation', 'private', 'sh', '-c', SCRIPT, 'sh', work],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == 'ready\n'
        self.root = f'/proc/{self.process.pid}/root'
        self.prefix = ['nsenter', '-t', str(self.process.pid), '-m', '-r', '--']

    def run(self, *cmd, **kw):
        return run(*self.prefix, *cmd, **kw)

    def at(self, path):
        """The name of a path inside, for this process."""
        return Path(f'{self.root}{path}')

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def namespace(work):
    n = Namespace(work / 'namespace')
    yield n
    n.close()


@pytest.fixture
def probe(library, namespace, point):
    """with probe(source, '-o', …) as p: a mounted cartonfs in there; p.read(name) reads from it."""
    @contextlib.contextmanager
    def make(source, *options, env=()):
        where = point()
        p = Probe(library, [*namespace.prefix, *GROUP, CARTONFS, '-f', *options, source, where], None, env)
        inside = namespace.at(where)
        p.where, p.inside, p.pid = where, inside, p.process.pid
        p.read = lambda name: (inside / name).read_bytes()
        try:
            eventually('a mount or an end', lambda: os.path.exists(inside / 'MANIFEST') or p.process.poll() is not None)
            assert p.process.poll() is None, p.process.communicate()
            yield p
            if p.process.poll() is None:
                p.process.terminate()
                p.out, p.err = p.process.communicate(timeout=harness.EXIT_S * harness.SLOW)
                assert p.process.returncode == 0, p.err
                assert not os.path.exists(inside / 'MANIFEST')      # the mounter, as root, has unmounted it
        finally:
            p.close()
            p.process.kill()
            p.process.communicate()
            namespace.run('umount', '-l', where)
    return make


def private(path, data=b'secret'):
    """A file of root that nobody else can read, in such a directory."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def owners(path):
    """The owners of all that is below."""
    return {(s.st_uid, s.st_gid) for s in map(os.lstat, [path, *Path(path).rglob('*')])}


def ids(s):
    return [s[name].split() for name in ('Uid', 'Gid', 'Groups')]


CHANGED = [[str(UID)] * 4, [str(GID)] * 4, []]


# ---- the process ----

def test_all_threads_are_the_users(probe, work):
    """A carton that only root can read, named by root."""
    c = sample()
    source = c.write(work / 'm.carton')
    (work / 'root').mkdir(mode=0o700)
    source = source.rename(work / 'root/m.carton')
    source.chmod(0o600)
    with probe(source, env=[('PROBE_NO_LANDLOCK', '1')]) as p:
        for name, data in c.files().items():
            assert p.read(name) == data
        tasks = list(Path(f'/proc/{p.pid}/task').glob('*/status'))
        assert len(tasks) > 2
        for s in map(status, tasks):
            assert ids(s) == CHANGED
            assert {int(s[f'Cap{k}'], 16) for k in ('Inh', 'Prm', 'Eff', 'Amb', 'Bnd')} == {0}
            assert (s['NoNewPrivs'], s['Seccomp']) == ('1', '2')
        assert os.stat(f'/proc/{p.pid}/environ').st_uid == 0        # it is not dumpable
        pid, = mounter_of(p.pid)
        assert ids(status(f'/proc/{pid}/status'))[:2] == [['0'] * 4] * 2
        # also without Landlock
        mine = private(work / 'mine')
        for path in (mine, source, '/etc/shadow', f'/proc/{os.getpid()}/environ'):
            assert p.ask('read', path) == 'EACCES', path
        assert p.ask('write', '/etc/passwd') == 'EACCES'
        assert p.ask('create', '/var/cache/x') == 'EACCES'
        assert p.ask('call setuid') == 'SIGSYS'


def test_only_root_changes(namespace, sample_carton, point):
    """An ordinary user's daemon stays that user's, and so does one without a sandbox root's."""
    for uid, options in ((NOBODY, ()), (None, ('-o', 'nosandbox'))):
        where = point(uid)
        p = subprocess.Popen([*namespace.prefix, *(['setpriv', f'--reuid={uid}', f'--regid={uid}', '--clear-groups']
                                                   if uid else []), CARTONFS, '-f', *options, sample_carton[0], where],
                             env=harness.environment(uid), stderr=subprocess.PIPE)
        try:
            mounts = Path(f'/proc/{namespace.process.pid}/mountinfo')
            eventually('a mount', lambda: f' {where} ' in mounts.read_text())
            assert ids(status(f'/proc/{p.pid}/status'))[0] == [str(uid or 0)] * 4
        finally:
            p.terminate()
            p.communicate(timeout=harness.EXIT_S * harness.SLOW)


# A user namespace with all users, in which nobody may change groups.
NO_GROUPS = """
import ctypes, os, sys
mine, theirs = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(theirs)
    os.read(mine, 1)
    for name, text in (('setgroups', 'deny'), ('uid_map', '0 0 65536'), ('gid_map', '0 0 65536')):
        with open(f'/proc/{os.getppid()}/{name}', 'w') as f:
            f.write(text)
    os._exit(0)
assert ctypes.CDLL(None).unshare(0x10000000) == 0
os.close(theirs)
assert os.waitpid(pid, 0)[1] == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_groups_that_cannot_be_dropped(namespace, sample_carton, cache):
    """There root does not change to the user, and goes on."""
    r = namespace.run(sys.executable, '-c', NO_GROUPS, CARTONCTL, cache.flag, 'verify', sample_carton[0])
    assert r.returncode == 0, r.stdout + r.stderr


def test_killed_and_mounted_again(namespace, sample_carton, point):
    where = point()
    for _ in range(2):
        p = namespace.run(CARTONFS, sample_carton[0], where)
        assert p.returncode == 0, p.stderr
        pid, = (n for n in harness.daemons(where) if status(f'/proc/{n}/status')['Uid'].startswith(str(UID)))
        assert (namespace.at(where) / 'MANIFEST').read_bytes() == sample_carton[1].files()['MANIFEST']
        os.kill(pid, signal.SIGKILL)
        wait_exit(pid)
        with pytest.raises(OSError):
            os.stat(namespace.at(where) / 'model')
    assert namespace.run('umount', '-l', where).returncode == 0


def test_directory_of_private_files(probe, work):
    """Which can only be read with the capability for that, and with no other."""
    c = Carton().add('model/a', b'x' * 1000)
    for name, data in c.files().items():
        (work / 'tree' / name).parent.mkdir(parents=True, exist_ok=True)
        private(work / 'tree' / name, data)
    for path in (work / 'tree', *work.glob('tree/**/')):
        path.chmod(0o700)
    mine = private(work / 'mine')
    with probe(work / 'tree') as p:
        s = status(f'/proc/{p.pid}/status')
        assert ids(s) == CHANGED and int(s['CapEff'], 16) == int(s['CapPrm'], 16) == READ_SEARCH
        assert p.read('model/a') == b'x' * 1000
        if LANDLOCK >= 2:
            assert p.ask('read', mine) == 'EACCES'


@pytest.mark.parametrize('mode, capabilities', [(0o755, 0), (0o700, READ_SEARCH)])
def test_directory_of_a_mirror(probe, nginx, cache, work, mode, capabilities):
    """One that others may read needs no capability."""
    data = fault_bytes(MIB, seed=3)
    (nginx.root / 'mirrored').write_bytes(data)
    LinkedCarton().link('model/x', data, nginx.url('mirrored')).write(work / 'm.carton')
    (work / 'mirror').mkdir()
    file = work / 'mirror' / hashlib.sha256(data).hexdigest()
    file.write_bytes(data)
    file.chmod(0o644 if mode & 0o5 else 0o600)
    (work / 'mirror').chmod(mode)
    nginx.clear()
    with probe(work / 'm.carton', *PRIVATE, '-o', f'mirror={work}/mirror/{{sha256}}') as p:
        assert p.read('model/x') == data
        s = status(f'/proc/{p.pid}/status')
        assert ids(s) == CHANGED and int(s['CapPrm'], 16) == capabilities
    assert not [r for r in nginx.requests() if r['method'] == 'GET']


# ---- files of options ----

def test_private_header_file_is_replaced(probe, fault, cache, work):
    """Only root can read it, or search its directory."""
    c = Carton(method='stored').add('model/x', fault_bytes(20 * MIB, seed=1)).add('model/y', fault_bytes(9 * MIB, seed=2))
    c.write(os.path.join(fault.root, 'h.carton'))
    accepts = Path(fault.root, 'accepts')
    accepts.write_text('old')
    token = private(work / 'secrets/token', b'X-Token: old\n')
    beside = private(work / 'secrets/id')
    with probe(fault.url('h.carton', file='h.carton', needs='X-Token:accepts'), '-o', f'header_file={token}') as p:
        assert p.read('model/y') == c.files()['model/y']
        accepts.write_text('new')
        private(work / 'secrets/new', b'X-Token: new\n').rename(token)
        assert p.read('model/x') == c.files()['model/x']
        assert ids(status(f'/proc/{p.pid}/status')) == CHANGED
        assert p.ask('read', token) == '' and p.ask('read', beside) == 'EACCES'


# A filter of a container: it allows all, and has the one listener that a process may have.
LISTENED = r"""
import ctypes, os, sys
code = (ctypes.c_uint8 * 8)(6, 0, 0, 0, 0, 0, 0xff, 0x7f)       # return ALLOW
program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(code))
fd = ctypes.CDLL(None, use_errno=True).syscall(317, 1, 8, program)
assert fd >= 0, os.strerror(ctypes.get_errno())
os.set_inheritable(fd, True)
os.environ['HELD'] = f'/dev/fd/{fd}'      # else it is closed
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.needs_x86_64      # it makes a system call by number
def test_private_header_file_without_the_helper(namespace, fault, cache, work, point):
    """Where another program has the listener, the process reads the file itself, by the one capability for that."""
    c = sample()
    c.write(os.path.join(fault.root, 'h.carton'))
    Path(fault.root, 'accepts').write_text('old')
    token = private(work / 'secrets/token', b'X-Token: old\n')
    where = point()
    p = subprocess.Popen([*namespace.prefix, sys.executable, '-c', LISTENED, CARTONFS, '-f', '-o', f'header_file={token}',
                          fault.url('h.carton', file='h.carton', needs='X-Token:accepts'), where],
                         env=harness.environment(None), stderr=subprocess.PIPE)
    try:
        inside = namespace.at(where)
        eventually('a mount or an end', lambda: os.path.exists(inside / 'MANIFEST') or p.poll() is not None)
        assert p.poll() is None, p.communicate()
        s = status(f'/proc/{p.pid}/status')
        assert ids(s) == CHANGED and int(s['CapPrm'], 16) == READ_SEARCH
        for name, data in c.files().items():
            assert (inside / name).read_bytes() == data
    finally:
        p.terminate()
        p.communicate(timeout=harness.EXIT_S * harness.SLOW)


def test_netrc_of_root(namespace, probe, nginx, cache, work):
    """For cartonfs, whose mounter opens it, and for cartonctl, which has no such helper."""
    c = sample()
    c.write(nginx.root / 'n.carton')
    netrc = private(work / 'home/.netrc', b'machine 127.0.0.1 login me password hunter2\n')
    env = [('HOME', str(netrc.parent))]
    with probe(nginx.url('netrc/n.carton'), env=env) as p:
        assert p.read('MANIFEST') == c.files()['MANIFEST']
        s = status(f'/proc/{p.pid}/status')
        assert ids(s) == CHANGED and int(s['CapPrm'], 16) == 0
    r = namespace.run(CARTONCTL, 'verify', nginx.url('netrc/n.carton'), env=harness.environment(None, **dict(env)))
    assert r.returncode == 0, r.stderr


def test_refresh_is_for_root(namespace, probe, fault, work):
    """Not for the system user, whom the process is now."""
    sample().write(os.path.join(fault.root, 'one'))
    sample().write(os.path.join(fault.root, 'two'))
    with probe(fault.url('one', file='one'), '-o', 'allow_other') as p:
        refresh = [CARTONCTL, 'refresh', p.where, fault.url('two', file='two')]
        change = ['setpriv', f'--reuid={UID}', f'--regid={GID}', '--clear-groups']
        r = namespace.run(*change, *refresh)
        assert r.returncode == 1 and 'only root' in r.stderr
        assert namespace.run(*refresh).returncode == 0


# ---- the cache ----

def compressed():
    return Carton().add('model/large', bytes(range(250)) * 40000, method='deflate')


def test_cache_of_the_user(namespace, probe, work):
    """/var/cache/cartonfs, also for cartonctl; it is made if it is missing."""
    c = compressed()
    source = c.write(work / 'm.carton')
    source.chmod(0o600)
    cache = namespace.at('/var/cache/cartonfs')
    with probe(source) as p:
        assert p.read('model/large') == c.files()['model/large']
        assert owners(cache / 'v1') == {(UID, GID)}
        assert stat.S_IMODE(os.stat(cache / 'v1').st_mode) == 0o700
    r = namespace.run(CARTONCTL, 'cache', 'list')
    assert r.returncode == 0 and c.hashes()['model/large'] in r.stdout, r.stderr
    r = namespace.run(CARTONCTL, 'verify', source)
    assert r.returncode == 0, r.stderr
    assert owners(cache / 'v1') == {(UID, GID)}


@pytest.mark.parametrize('private_parent', [False, True])
def test_cache_of_an_earlier_version(mount, probe, work, private_parent):
    """What root has there becomes the user's, with its seals."""
    c = compressed()
    source = c.write(work / 'm.carton')
    (work / 'above').mkdir(mode=0o700 if private_parent else 0o755)
    cache = work / 'above/cache'
    with mount(source, '-o', f'cache_dir={cache}') as m:
        m.sha('model/large')
    assert owners(cache) == {(0, 0)}
    outside = private(work / 'outside')
    os.link(outside, cache / 'v1/notes/linked')
    (cache / 'beside').write_text('root')
    with probe(source, '-o', f'cache_dir={cache}') as p:
        assert os.getxattr(p.inside / 'model/large', 'user.carton.state') == b'unverified'
        assert p.read('model/large') == c.files()['model/large']
        assert os.getxattr(p.inside / 'model/large', 'user.carton.state') == b'sealed'
        assert owners(cache / 'v1') == {(UID, GID), (0, 0)}         # the last one is the link
        assert os.stat(outside).st_uid == os.stat(cache / 'beside').st_uid == 0


def test_cache_that_others_may_change(namespace, work, sample_carton, point):
    """Nothing of it is given to the user, and it is refused."""
    for name, uid, mode in (('foreign', NOBODY, 0o755), ('open', 0, 0o777)):
        cache = work / name
        (cache / 'v1/notes').mkdir(parents=True)
        private(cache / 'v1/notes/x')
        os.chown(cache, uid, uid)
        cache.chmod(mode)
        r = namespace.run(CARTONFS, '-o', f'cache_dir={cache}', sample_carton[0], point())
        assert r.returncode == 32 and 'cache_dir=' in r.stderr, r.stderr
        assert owners(cache / 'v1') == {(0, 0)}


def test_directory_of_another_user_in_the_cache(namespace, work, sample_carton, point):
    """Nothing in it is given to the user: that one could change it meanwhile."""
    cache = work / 'cache'
    for name, uid, mode in (('foreign', NOBODY, 0o755), ('open', 0, 0o777), ('shared', 0, 0o755)):
        private(work / 'file')
        (cache / 'v1' / name).mkdir(parents=True)
        (work / 'file').rename(cache / 'v1' / name / 'x')
        os.chown(cache / 'v1' / name, uid, uid)
        (cache / 'v1' / name).chmod(mode)
    where = point()
    r = namespace.run(CARTONFS, '-o', f'cache_dir={cache}', sample_carton[0], where)
    assert r.returncode == 0 and namespace.run('umount', '-l', where).returncode == 0, r.stderr
    assert owners(cache / 'v1/foreign') == {(NOBODY, NOBODY), (0, 0)} and owners(cache / 'v1/open') == {(0, 0)}
    assert owners(cache / 'v1/shared') == {(UID, GID)}


# ---- cartonctl ----

def test_cartonctl(namespace, library, work):
    """It changes the user too, unless it writes files: those are root's."""
    c = sample()
    source = c.write(work / 'm.carton')
    source.chmod(0o600)
    p = Probe(library, [*namespace.prefix, CARTONCTL, 'verify', source], None, [('PROBE_WAIT', '1')])
    assert p.ask('call getpid') == ''
    assert ids(status(f'/proc/{p.process.pid}/status')) == CHANGED
    p.close()
    out, err = p.process.communicate(timeout=harness.EXIT_S * harness.SLOW)
    assert p.process.returncode == 0, out + err
    r = namespace.run(CARTONCTL, 'extract', source, work / 'out')
    assert r.returncode == 0, r.stderr
    assert owners(work / 'out') == {(0, 0)}
