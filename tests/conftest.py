# SPDX-License-Identifier: Apache-2.0
"""
Fixtures of the tests in all rooms (see README.md). BUILD_DIR (default: build) has the programs. Without /dev/fuse
the tests fail. As root, tests with `who` run twice: as root and as an ordinary user.
"""
import contextlib
import fcntl
import functools
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

sys.dont_write_bytecode = sys.pycache_prefix is None
pytest.register_assert_rewrite(*(p.stem for p in Path(__file__).with_name('lib').glob('*.py')))

import bigcarton  # noqa: E402
import failure  # noqa: E402
import faultydisk  # noqa: E402
import harness  # noqa: E402
import origin  # noqa: E402
import packerform  # noqa: E402
import registry  # noqa: E402
import runs  # noqa: E402
import zipwriter  # noqa: E402


def pytest_configure(config):
    for module in (origin, registry):       # for their fixtures
        config.pluginmanager.register(module)
    if config.pluginmanager.hasplugin('xdist'):
        config.pluginmanager.register(runs)
    config.addinivalue_line('markers', 'big: reads gigabytes; some seconds')
    for name, where in NEEDS.items():
        config.addinivalue_line('markers', f'{name}: collected only {where[0]}')


# A test with one of these marks runs only if the condition holds.
NEEDS = {
    'needs_root': ('for root', lambda: harness.IS_ROOT),
    'needs_reference': ('where the carton of the reference packer is', harness.REFERENCE.exists),
    'needs_promtool': ('where Prometheus is installed', lambda: shutil.which('promtool')),
    'slow': ('with TEST_SLOW=1 (make slow): takes minutes', lambda: os.environ.get('TEST_SLOW')),
    'needs_plain_build': ('without sanitizers', lambda: not harness.SANITIZED),
    'needs_sanitizers': ('with sanitizers (make asan, make tsan)', lambda: harness.SANITIZED),
    'needs_own_threads': ('without the thread sanitizer, which has a thread of its own', lambda: not harness.RACES),
    'needs_x86_64': ('on x86-64', lambda: os.uname().machine == 'x86_64'),
    'needs_podman': ('where podman can run a container', harness.podman_runs),
    'needs_resend': ('where the kernel sends requests again (Linux 6.9)', lambda: harness.LINUX >= (6, 9)),
    'needs_autofs': ('where the kernel has autofs', lambda: 'autofs' in Path('/proc/filesystems').read_text().split()),
    'needs_memory_group': ('where a memory control group can be made', harness.memory_group),
}


def pytest_collection_modifyitems(config, items):
    """Deselects what cannot run here, so that a skipped test is always a fault."""
    holds = functools.cache(lambda name: NEEDS[name][1]())

    def can_run(item):
        return all(holds(mark.name) for mark in item.iter_markers() if mark.name in NEEDS)

    away = [item for item in items if not can_run(item)]
    if away:
        config.hook.pytest_deselected(items=away)
        items[:] = [item for item in items if can_run(item)]


def pytest_make_parametrize_id(val):
    """
    Names a long text by its beginning and its length, and a dict by its keys; escapes what cannot be printed: ids are
    in every log.
    """
    if isinstance(val, dict):
        val = '+'.join(map(str, val)) or 'nothing'
    if isinstance(val, (str, bytes)):
        if len(ascii(val)) <= 38:
            return None if isinstance(val, bytes) else ''.join(c if c.isprintable() else ascii(c)[1:-1] for c in val)
        begin = val[:24] if isinstance(val, str) else val[:24].decode('latin-1')
        return re.sub(r'[^\w.:/=-]+', '_', begin, flags=re.ASCII) + f'~{len(val)}'
    return None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """With TEST_TIMES=FILE: writes the wall and CPU seconds of each test there, its fixtures and children included."""
    def cpu():
        return sum(sum(resource.getrusage(w)[:2]) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

    path, begin, used = os.environ.get('TEST_TIMES'), time.monotonic(), cpu()
    yield
    harness.reap_orphans()
    if path:
        with open(path, 'a') as f:
            f.write(f'{time.monotonic() - begin:.3f} {cpu() - used:.3f} {item.nodeid}\n')


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if outcome.get_result().failed:
        failure.explain(outcome.get_result())


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish():
    """The next test has other mounts, and those of fixtures that are still there."""
    harness.MOUNTS[:] = [m for m in harness.MOUNTS if not m.over]


def pytest_sessionstart(session):
    os.umask(0o022)
    # Programs started in the background of a script inherit SIGINT as ignored; tests send it. Workers inherit
    # this from here; on a busy machine one runs its tests beside its main thread, which alone could set it.
    if not hasattr(session.config, 'workerinput'):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
    harness.adopt_orphans()


@pytest.fixture(autouse=True)
def sanitizers():
    """Fails a test in which a sanitizer has found something, and prints it."""
    yield
    report = harness.take_reports()
    assert report == '', report


@pytest.fixture(scope='session')
def dev_fuse():
    """The programs and /dev/fuse must be there, for the ordinary user too."""
    for path in (harness.CARTONFS, harness.CARTONCTL):
        assert os.access(path, os.X_OK), f'{path} is not there: build first, or set BUILD_DIR'
    assert os.path.exists('/dev/fuse'), 'these tests need FUSE: modprobe fuse'
    if harness.IS_ROOT:
        os.chmod('/dev/fuse', 0o666)    # as udev has it
        assert harness.as_user(harness.NOBODY, os.access, harness.CARTONFS, os.X_OK), \
            f'an ordinary user cannot reach {harness.CARTONFS}: set TMPDIR to a public directory'


@pytest.fixture(scope='session')
def session_dir(dev_fuse):
    """A directory for files that many tests share; every user can read it."""
    path = Path(tempfile.mkdtemp(prefix='cartonfs-test-'))
    path.chmod(0o755)
    harness.make_home(None, path / 'home')
    if harness.IS_ROOT:
        harness.make_home(harness.NOBODY, path / 'home-of-user')
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def work(session_dir):
    """An empty directory of this test."""
    path = Path(tempfile.mkdtemp(dir=session_dir))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def disk(work):
    """A faultydisk.Disk of this test."""
    where = work / 'disk'
    where.mkdir()
    d = faultydisk.Disk(where)
    yield d
    d.stop()


USERS = [pytest.param(None, id='root'), pytest.param(harness.NOBODY, id='user')]


@pytest.fixture(params=USERS if harness.IS_ROOT else [pytest.param(None, id='user')])
def who(request):
    """The uid that mounts and reads; None: whoever runs the tests."""
    return request.param


@pytest.fixture
def point(work):
    """point(uid=None): a new empty mountpoint that the user owns."""
    def make(uid=None):
        path = tempfile.mkdtemp(prefix='mnt', dir=work)
        os.chmod(path, 0o755)
        if uid is not None:
            os.chown(path, uid, uid)
        return path
    return make


@pytest.fixture
def mount(point):
    """with mount(source, '-o', 'uid=5', uid=None) as m: …  a harness.Mount."""
    @contextlib.contextmanager
    def make(source, *options, uid=None, **kw):
        where = point(uid)
        with harness.mounted(source, where, *options, uid=uid, **kw) as m:
            yield m
        os.rmdir(where)
    return make


@pytest.fixture
def mount_fg(point):
    """The same with harness.foreground()."""
    @contextlib.contextmanager
    def make(source, *options, uid=None, **kw):
        with harness.foreground(source, point(uid), *options, uid=uid, **kw) as m:
            yield m
    return make


@pytest.fixture(scope='session')
def at_clock(session_dir):
    """A function of a year: the environment of a program that takes it for this year. See tools/preload/clock.c."""
    out = session_dir / 'clock.so'
    p = harness.run('cc', '-shared', '-fPIC', '-o', out, harness.PRELOAD / 'clock.c')
    assert p.returncode == 0, p.stderr
    return lambda year: {'LD_PRELOAD': str(out), 'CLOCK': str(int((year - 1970) * 365.2425 * 86400))}


@pytest.fixture(scope='session')
def sample_carton(session_dir):
    """(path, Carton) of the sample. Tests must not change it."""
    carton = zipwriter.sample()
    return carton.write(session_dir / 'sample.carton'), carton


@pytest.fixture
def installed():
    """
    mount(8) finds `cartonfs` and `mount.cartonfs` by name: links unless they are installed there. One
    test at a time has them: other workers of pytest-xdist, and other runs, wait.
    """
    links = '/usr/bin/cartonfs', '/usr/sbin/mount.cartonfs'
    made = []
    lock = os.open('/usr/bin', os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            for link in links:
                if not os.path.lexists(link):
                    os.symlink(harness.CARTONFS, link)
                    made.append(link)
                assert os.path.realpath(link) == harness.CARTONFS, \
                    f'{link} is another build: these tests would use it'
            yield
        finally:
            for link in made:
                os.unlink(link)
    finally:
        os.close(lock)


FROM_THE_PACKER = pytest.param('packer', marks=pytest.mark.needs_reference)


@pytest.fixture(params=[*packerform.DATES, FROM_THE_PACKER])
def packer_carton(request, work):
    """(path, {symlink: target}) of cartons in the reference packer's form, and of one by it."""
    if request.param == 'packer':
        return harness.REFERENCE, {}
    carton = packerform.packed(packerform.DATES[request.param])
    return carton.write(work / 'm.carton'), carton.links()


@pytest.fixture(scope='session')
def big_carton(session_dir):
    """(path, Carton) of bigcarton.py."""
    carton = bigcarton.big_carton()
    return carton.write(session_dir / 'big.carton'), carton


@pytest.fixture(scope='session')
def killer(session_dir):
    """A library to preload, which sends a signal at a certain call: see killer.c."""
    out = session_dir / 'killer.so'
    p = harness.run('cc', '-shared', '-fPIC', '-o', out, harness.PRELOAD / 'killer.c')
    assert p.returncode == 0, p.stderr
    return out
