# SPDX-License-Identifier: Apache-2.0
"""
Runs the program under test: mounts, unmounts, waits for daemons, reads as another user.

Nothing here sleeps to let something happen; `eventually` polls a condition with a deadline.
"""
import atexit
import contextlib
import ctypes
import errno
import gc
import hashlib
import os
import pickle
import re
import select
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
import traceback
from pathlib import Path


def pace_of(path):
    """{name: seconds} of a table of pauses and deadlines: core/base/pace.c or tests/lib/pace.c."""
    unit = dict(ms=1000, us=1000000)
    return {name: int(n) / unit[u] for name, u, n in re.findall(r'^\t\.(\w+)_(ms|us) = (\d+),$', path.read_text(), re.M)}


def copy_programs(build):
    """
    The path of a directory with copies of cartonfs and cartonctl that every user can execute, and syslog.so. The
    programs are those of the tests, whose pauses are short (tests/lib/pace.c).

    The tree itself may be in a private directory, such as /root. The copies are made once per run:
    the workers of pytest-xdist inherit the path in the environment.
    """
    if 'CARTONFS_TEST_PROGRAMS' not in os.environ:
        path = os.path.realpath(tempfile.mkdtemp(prefix='cartonfs-programs-'))
        atexit.register(shutil.rmtree, path, ignore_errors=True)
        os.chmod(path, 0o755)
        for name in ('cartonfs', 'cartonctl'):
            if (build / 'tests' / name).exists():
                shutil.copy(build / 'tests' / name, path)
                os.chmod(f'{path}/{name}', 0o755)
        subprocess.run(['cc', '-shared', '-fPIC', '-o', f'{path}/syslog.so', PRELOAD / 'syslog.c'], check=True)
        os.environ['CARTONFS_TEST_PROGRAMS'] = path
    return Path(os.environ['CARTONFS_TEST_PROGRAMS'])


def sanitizer_reports():
    """
    A directory, one of each worker, to which sanitizers write: a daemon has no stderr. Its sandbox permits this
    directory, so that what a report may need is there too.
    """
    path = os.path.realpath(tempfile.mkdtemp(prefix='cartonfs-reports-'))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    os.chmod(path, 0o1777)
    os.environ['SANITIZER_REPORTS'] = path
    for kind in 'asan', 'ubsan', 'tsan', 'lsan':
        # UBSan alone names no function unless it is asked for the stack; libraries are loaded before ASan's
        name = f'{kind.upper()}_OPTIONS'
        more = {'ubsan': ':print_stacktrace=1', 'asan': ':verify_asan_link_order=0'}.get(kind, '')
        file = ROOT / f'tests/{kind}.supp'
        if file.exists():   # copied, because a user who mounts may not read the checkout
            more += f':suppressions={shutil.copy(file, path)}'
        os.environ[name] = f'{os.environ.get(name, "")}:log_path={path}/report{more}'
    return Path(path)


ROOT = Path(__file__).resolve().parents[2]
PRELOAD = ROOT / 'tests/tools/preload'  # sources of libraries that tests preload
BUILD = (ROOT / os.environ.get('BUILD_DIR', 'build')).resolve()
PROGRAMS = copy_programs(BUILD)
CARTONFS = str(PROGRAMS / 'cartonfs')
CARTONCTL = str(PROGRAMS / 'cartonctl')
SYSLOG = PROGRAMS / 'syslog.so'         # see tools/preload/syslog.c
# A carton that the reference packer wrote, which is not part of this repository.
REFERENCE = ROOT.parent / 'shared/data/reference-packer.carton'
FLAGS = BUILD / 'flags'
TOOLS = BUILD / 'tests/tools'           # programs of the tests
SANITIZED = FLAGS.exists() and '-fsanitize' in FLAGS.read_text()
RACES = SANITIZED and '-fsanitize=thread' in FLAGS.read_text()
REPORTS = sanitizer_reports() if SANITIZED else None
NOBODY = 65534                          # the ordinary user of the tests
IS_ROOT = os.geteuid() == 0
EXIT_S = 30                             # what a daemon may take to end
# What the program under test waits for: a test that waits for it, too, has its time from here.
PACE = pace_of(ROOT / 'tests/lib/pace.c')
TIMEOUT = PACE['timeout']               # -o timeout= if it is not given
STALL = PACE['stall']                   # below 1 KiB/s after which a fetch is given up
# Factor of every deadline, for slow builds such as those with sanitizers.
SLOW = float(os.environ.get('TEST_SLOWDOWN', '1'))
# (major, minor) of the kernel
LINUX = tuple(map(int, re.match(r'(\d+)\.(\d+)', os.uname().release).groups()))

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """Makes daemons our children, so that we can get their exit status."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def drop_pages(f):
    """Lets the kernel forget what it has of an open file, which is what was verified: reads ask the daemon."""
    os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def eventually(what, condition, seconds=EXIT_S, why=lambda: ''):
    """Polls condition() until it is true; its value. Fails after `seconds`, with why()."""
    left, last = seconds * SLOW, time.monotonic()
    while not (value := condition()):
        # A long gap between two polls counts as 0.1 s: the whole machine was slow.
        now = time.monotonic()
        left, last = left - min(now - last, 0.1), now
        if left < 0:
            raise AssertionError(f'not within {seconds} s: {what}\n{why()}')
        time.sleep(0.005)
    return value


def freeze(pid):
    """Stops a process: SIGSTOP reaches one thread of it, and the others go on for a moment."""
    os.kill(pid, signal.SIGSTOP)
    eventually('it is stopped', lambda: all(
        ') T ' in task.read_text() for task in Path(f'/proc/{pid}/task').glob('*/stat')))


@contextlib.contextmanager
def at_once(alternative=TIMEOUT):
    """
    The block does not wait for what takes `alternative` seconds, such as a timeout of the program.
    A part of that is allowed, because a busy machine may take long for anything.
    """
    begin = time.monotonic()
    yield
    took = time.monotonic() - begin
    assert took < alternative / 3 * SLOW, f'took {took:.1f} s where {alternative} s are a wait'


# ---- processes ----

# HOME for each uid, so that no test uses the real cache of a user, nor the real key of one.
HOMES = {}


def make_home(uid, path):
    os.mkdir(path, 0o700)
    if uid is not None:
        os.chown(path, uid, uid)
    HOMES[uid] = str(path)
    if uid is None:     # also for a test that starts a program without environment()
        os.environ['XDG_STATE_HOME'] = f'{path}/state'


def environment(uid=None, **more):
    keep = {k: v for k, v in os.environ.items()
            if k in ('TMPDIR', 'LD_LIBRARY_PATH', 'SANITIZER_REPORTS') or k.endswith('SAN_OPTIONS')}
    keep['HOME'] = HOMES.get(uid, '/nonexistent')
    keep['XDG_STATE_HOME'] = f'{keep["HOME"]}/state'
    path = os.environ.get('PATH', '') + ':/usr/sbin:/usr/bin:/sbin:/bin'
    return keep | dict(PATH=path, LC_ALL='C.UTF-8', TZ='UTC') | more


def has_ended(pid):
    """Has it ended? It may still have to be waited for."""
    try:
        return ') Z ' in Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return True


UNNAMED = re.compile(r'  \((/\S+)\+(0x[0-9a-f]+)\)$', re.M)


def name_function(found):
    """`in FUNCTION FILE:LINE` for a line of a stack that has none: a confined process may not open its program."""
    p = run('addr2line', '-fspe', *found.groups())
    return f' in {p.stdout.strip()}' if p.returncode == 0 else found[0]


def take_reports():
    """The text of all reports of sanitizers since the last call."""
    text = ''
    for path in sorted(REPORTS.glob('report.*')) if REPORTS else ():
        pid = int(path.suffix[1:])
        eventually(f'process {pid}, which writes a report, ends', lambda: has_ended(pid), why=lambda: doing(pid))
        text += f'{path.name}:\n{path.read_text(errors="replace")}\n'
        path.unlink()
    return UNNAMED.sub(name_function, text)


def identity(uid):
    """Popen arguments that run a command as `uid`; None: as the user of the tests. Slower than as_command()."""
    return {} if uid is None else dict(user=uid, group=uid, extra_groups=[])


def as_command(uid):
    """
    What runs the command behind it as `uid`; None: nothing is needed. The arguments of identity() make Popen fork, which
    copies the tables of all that the tests have in memory.
    """
    return [] if uid is None else ['setpriv', f'--reuid={uid}', f'--regid={uid}', '--clear-groups', '--']


def run(*cmd, uid=None, timeout=60, env=None, text=True, **kw):
    kw.setdefault('stdin', subprocess.DEVNULL)
    return subprocess.run([*as_command(uid), *(str(c) for c in cmd)], capture_output=True, text=text,
                          errors='surrogateescape' if text else None,
                          timeout=timeout * SLOW, env=environment(uid, **(env or {})), **kw)


@contextlib.contextmanager
def small_disk(path, size):
    """A tmpfs of `size` MiB."""
    path.mkdir()
    assert run('mount', '-t', 'tmpfs', '-o', f'size={size}m,mode=0755', 'none',
               path).returncode == 0
    try:
        yield path
    finally:
        run('umount', '-l', path)


def ctl(*args, **kw):
    """`link` leaves out small files too, unless the test says how large."""
    if args[:1] == ('link',) and not any(str(a).startswith('--min-size') for a in args):
        args += ('--min-size=0',)
    return run(CARTONCTL, *args, **kw)


def problems(p):
    """What cartonctl has said on stderr, without the line that comes when an open takes a second: of a busy machine too."""
    return re.sub(r'^cartonctl: .*: (waiting for the server|fetching [\d.]+ \w+ to open it)\n', '', p.stderr, flags=re.M)


LIBC = ctypes.CDLL(None, use_errno=True)
# of x86-64 and arm64
SETRESUID, SETRESGID, SETGROUPS, UNSHARE = {
    'x86_64': (117, 119, 116, 272), 'aarch64': (147, 149, 159, 97)}[os.uname().machine]
CLONE_FS, CLONE_FILES = 0x200, 0x400


def become(uid):
    """
    Makes the calling thread one of `uid`, with a working directory and descriptors of its own. The functions of
    libc would change all threads.
    """
    for call in ((UNSHARE, CLONE_FS | CLONE_FILES), (SETGROUPS, 0, None), (SETRESGID, uid, uid, uid),
                 (SETRESUID, uid, uid, uid)):
        if LIBC.syscall(*call) != 0:
            raise OSError(ctypes.get_errno(), f'system call {call}')
        if call[0] == UNSHARE:
            leave_pipes()


def leave_pipes():
    """
    Gives up the copies of pipes: a subprocess.Popen of another thread, and what it runs, wait for the end of theirs.
    Their numbers stay taken: an object that closes one later, in another thread, would close another file there.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for fd in map(int, os.listdir('/proc/thread-self/fd')):
        with contextlib.suppress(OSError):
            if fd > 2 and stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.dup2(null, fd, inheritable=False)
    os.close(null)


def as_user(uid, fn, *args):
    """
    Calls fn(*args) as `uid`, in a thread: a fork would copy the tables of all that the tests have in memory.
    Descriptors that it leaves open are closed. Limits and signals are those of all threads: see in_child().
    """
    if uid is None:
        return fn(*args)
    value, errors = [], []

    def call():
        try:
            become(uid)
            value.append(fn(*args))
        except BaseException as e:      # noqa: B902: it is raised again by the caller
            traceback.clear_frames(e.__traceback__)     # files in there would be closed by another thread
            errors.append(e)
    thread = threading.Thread(target=call)
    collects = gc.isenabled()
    gc.disable()        # it would close descriptors of other threads here, and leave theirs open
    try:
        thread.start()
        thread.join()
    finally:
        if collects:
            gc.enable()
    if errors:
        raise errors[0]
    return value[0]


def in_child(fn):
    """Calls fn(), which changes the process, in a child. Returns its value, which can be pickled."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException), os.fdopen(w, 'wb') as f:
            pickle.dump(fn(), f)
        os._exit(0)
    os.close(w)
    with os.fdopen(r, 'rb') as f:
        data = f.read()
    os.waitpid(pid, 0)
    assert data, 'the child has raised an exception'
    return pickle.loads(data)


def read_proc(name):
    """The content of a file of /proc; b'' if its process is gone."""
    with contextlib.suppress(OSError), open(f'/proc/{name}', 'rb', buffering=0) as f:
        return f.read()
    return b''


def children(pid):
    """The pids of the children of all threads of a process."""
    with contextlib.suppress(OSError):
        return [int(c) for task in os.listdir(f'/proc/{pid}/task') for c in read_proc(f'{pid}/task/{task}/children').split()]
    return []


def daemons(mountpoint):
    """The pids of cartonfs processes that name this mountpoint. All descend from us: see adopt_orphans()."""
    found, want, todo = [], os.fsencode(str(mountpoint)), children(os.getpid())
    while todo:
        pid = todo.pop()
        todo += children(pid)
        if want in read_proc(f'{pid}/cmdline').split(b'\0'):
            with contextlib.suppress(OSError):
                if os.readlink(f'/proc/{pid}/exe') == CARTONFS:
                    found.append(pid)
    return sorted(found)


def reap_orphans():
    """
    Reaps the programs under test that have ended and that no test waits for, such as an adopted daemon that refused its
    source. Otherwise such zombies accumulate, and each search for a process reads them all.
    """
    known = {p for m in MOUNTS for p in m.pids}
    for pid in children(os.getpid()):
        if pid not in known and re.match(rb'\d+ \((mount\.)?cartonfs.*\) Z ', read_proc(f'{pid}/stat')):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def parent(pid):
    return int(Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[1])


def memory_group():
    """A path for a new memory control group (version 1) below our own; None if there is none."""
    own = re.search(r'^\d+:memory:(.*)$', Path('/proc/self/cgroup').read_text(), re.M)
    parent = Path('/sys/fs/cgroup/memory') / own[1].lstrip('/') if own else None
    if parent and parent.is_dir() and os.access(parent, os.W_OK):
        return parent / f'cartonfs-{os.getpid()}'
    return None


def doing(pid):
    """For a failure: the state of each thread of a process, and all mount namespaces."""
    text = []
    for path in (Path(f'/proc/{pid}/cmdline'), *Path(f'/proc/{pid}/task').glob('*/s*')):
        if path.name in ('cmdline', 'stat', 'syscall', 'stack'):
            with contextlib.suppress(OSError):
                text.append(f'{path}: {path.read_text()[:1000]}'.replace('\0', ' '))
    # A copy of the mount in another namespace keeps the daemon alive.
    spaces = {}
    for link in Path('/proc').glob('[0-9]*/ns/mnt'):
        with contextlib.suppress(OSError):
            spaces.setdefault(os.readlink(link), []).append(link.parts[2])
    return '\n'.join(text + [f'{k}: {len(v)} processes, {v[:3]}' for k, v in spaces.items()])


def wait_exit(pid, seconds=EXIT_S):
    """The exit status of a daemon (negative: its signal; None: not our child)."""
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        ends = select.poll()                    # select() takes no descriptor over 1023
        ends.register(fd, select.POLLIN)
        try:
            eventually(f'process {pid} ends', lambda: ends.poll(50), seconds, lambda: doing(pid))
        finally:
            os.close(fd)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return None


# ---- mounts ----

def mountinfo(path):
    """The fields of the mountinfo line of the mount on `path`; None if there is none."""
    want = str(path).replace(' ', '\\040')
    last = None
    # by bytes, and not splitlines(): other tests mount on names with \r and the like, which are not escaped there
    for line in Path('/proc/self/mountinfo').read_bytes().decode(errors='surrogateescape').split('\n')[:-1]:
        if line.split(' ')[4] == want:
            last = line.split(' ')
    return last


def try_unmount(path, uid=None, lazy=False):
    if uid is not None or not IS_ROOT:
        cmd = ['fusermount3', '-u'] + (['-z'] if lazy else [])
    else:
        cmd = ['umount'] + (['-l'] if lazy else [])
    return run(*cmd, path, uid=uid)


def when_unused(what, fn, *args, **kw):
    """
    fn(), which runs a command that unmounts what this test does not use. `cartonctl status` of another test looks into
    every mount of the user, which is busy for that moment, or as long as its daemon is stopped.
    """
    def done():
        p = fn(*args, **kw)
        return p if 'busy' not in p.stderr.lower() else None
    return eventually(f'{what} is not busy', done)


def unmount(path, uid=None, lazy=False):
    return when_unused(path, try_unmount, path, uid, lazy)


# Those of the running test and of its fixtures, for what a failure prints.
MOUNTS = []


class Mount(os.PathLike):
    """
    A mount. Its methods read as the user who mounted it; `log` gives the daemon's log so far. `failure` has what a
    failure prints of it: how the daemon is, and its status, as they were before the mount was removed.
    """

    def __init__(self, path, uid, pids, command=(), log=lambda: ''):
        self.path, self.uid, self.pids, self.ended = str(path), uid, pids, False
        self.command, self.log, self.stderr = command, log, ''
        self.process, self.exits, self.failure, self.over = None, {}, None, False
        MOUNTS.append(self)

    def __fspath__(self):
        return self.path

    def __truediv__(self, name):
        return os.path.join(self.path, name)

    def do(self, fn, *args):
        return as_user(self.uid, fn, *args)

    def read(self, name):
        return self.do(read_file, self / name)

    def sha(self, name):
        return self.do(sha_file, self / name)

    def state(self, name):
        return self.do(os.getxattr, self / name, 'user.carton.state').decode()

    def error(self, name):
        """The name of the errno of opening or reading `name`; '' if it can be read."""
        try:
            self.sha(name)
        except OSError as e:
            return errno.errorcode[e.errno]
        return ''

    def gone(self):
        return mountinfo(self.path) is None

    def exit_status(self, pid):
        """As wait_exit() gives it; None: it runs, or was another's child. It can still be waited for."""
        if pid in self.exits:
            return self.exits[pid]
        with contextlib.suppress(ChildProcessError):
            if end := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        return None

    def is_how(self):
        """How the daemons are, in words."""
        def words(pid):
            status = self.process.poll() if self.process else self.exit_status(pid)
            if status is None:
                return 'runs' if os.path.exists(f'/proc/{pid}') else 'has ended'
            return f'killed by {signal.Signals(-status).name}' if status < 0 else f'exit status {status}'
        return ', '.join(map(words, self.pids)) or 'was not found'

    def keep_failure(self):
        if self.failure is None:
            status = ''
            with contextlib.suppress(subprocess.TimeoutExpired):
                if not self.over:
                    p = run(CARTONCTL, 'status', '--json', self.path, uid=self.uid, timeout=5)
                    status = p.stdout + p.stderr
            self.failure = self.is_how(), status or 'cartonctl status gives no answer'

    @property
    def source(self):
        return str(self.command[-2]) if self.command else ''

    def close(self):
        """Keeps the log, whose file goes."""
        text = self.log()
        self.log, self.over = lambda: text, True

    def wait_end(self, status=0):
        """Waits until the daemon has ended and the mount is gone."""
        self.exits = {p: wait_exit(p) for p in self.pids}
        got = [*self.exits.values()]
        eventually(f'{self.path} is no longer mounted', self.gone)
        self.ended = True
        assert [s for s in got if s not in (status, None)] == [], f'exit status of the daemon: {got}, not {status}'


@contextlib.contextmanager
def kept(mount):
    """Keeps what a failure prints of a mount, before the mount is removed."""
    try:
        yield
    except BaseException:
        mount.keep_failure()
        raise


@contextlib.contextmanager
def mounted(source, mountpoint, *options, uid=None, env=None, cwd=None, name=None, umask=-1):
    """Runs `cartonfs SOURCE MOUNTPOINT`. At the end unmounts and checks the exit status."""
    with tempfile.NamedTemporaryFile(dir=PROGRAMS, prefix='log-') as log:
        os.chmod(log.name, 0o666)
        command = [CARTONFS, *options, source, name or mountpoint]
        p = run(*command, uid=uid, cwd=cwd, umask=umask, env=dict(LD_PRELOAD=str(SYSLOG), SYSLOG_FILE=log.name) | (env or {}))
        assert p.returncode == 0, f'exit {p.returncode}: {p.stderr}'
        assert mountinfo(mountpoint), f'exit 0 but nothing is mounted: {p.stderr}'
        pids = daemons(name or mountpoint)
        m = Mount(mountpoint, uid, pids, command, lambda: Path(log.name).read_text(errors='replace'))
        m.stderr = p.stderr
        try:
            with kept(m):
                assert len(pids) == 1, f'{len(pids)} daemons'
                yield m
                if not m.ended:
                    r = unmount(mountpoint, uid)
                    assert r.returncode == 0, r.stderr
                    m.wait_end()
        finally:
            abandon(mountpoint, pids)
            m.close()


@contextlib.contextmanager
def foreground(source, mountpoint, *options, uid=None, env=None):
    """The same with `cartonfs -f`. The Mount has its `process`, and its log is all of stderr."""
    with tempfile.TemporaryFile() as err:
        cmd = [CARTONFS, '-f', *options, str(source), str(mountpoint)]
        p = subprocess.Popen([*as_command(uid), *cmd], stderr=err, stdin=subprocess.DEVNULL,
                             env=environment(uid, **(env or {})))
        m = Mount(mountpoint, uid, [p.pid], cmd,
                  lambda: os.pread(err.fileno(), 1 << 22, 0).decode(errors='replace'))
        m.process = p
        try:
            with kept(m):
                eventually('a mount or an end',
                           lambda: mountinfo(mountpoint) or p.poll() is not None, 30)
                assert p.poll() is None, f'exit {p.returncode}: {m.log()}'
                yield m
                if not m.ended:
                    r = unmount(mountpoint, uid)
                    assert r.returncode == 0, r.stderr
                    eventually('the daemon ends', lambda: p.poll() is not None,
                               why=lambda: doing(p.pid))
                    assert p.returncode == 0, m.log()
                    assert m.gone()
        finally:
            if p.poll() is None:
                p.kill()
                p.wait()
            abandon(mountpoint, [])
            m.close()


def abandon(mountpoint, pids):
    """Cleans up after a failure: kills the daemon and removes the mount."""
    for pid in pids:
        with contextlib.suppress(OSError):      # it has ended
            if os.path.realpath(f'/proc/{pid}/exe') == CARTONFS:
                os.kill(pid, signal.SIGKILL)
    while mountinfo(mountpoint):
        # By force if that is allowed: no signal ends a process that waits for a page.
        if run('umount' if IS_ROOT else 'fusermount3', '-fl' if IS_ROOT else '-uz',
               mountpoint).returncode:
            break
    for pid in pids:
        with contextlib.suppress(ChildProcessError, AssertionError):
            wait_exit(pid)


# ---- reading ----

def read_file(path):
    with open(path, 'rb') as f:
        return f.read()


def sha_file(path):
    sha = hashlib.sha256()
    with open(path, 'rb', buffering=0) as f:
        while block := f.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()


def scan(root, views=False):
    """
    {path: ('dir',) | ('link', target) | ('file', size, sha256)} of a tree, root left out, and what
    is generated in views/ too unless `views`.
    """
    out, todo = {}, ['']
    while todo:
        rel = todo.pop()
        for e in os.scandir(os.path.join(root, rel)):
            name = os.path.join(rel, e.name)
            if name == 'views' and not views:
                continue
            st = e.stat(follow_symlinks=False)
            if stat.S_ISDIR(st.st_mode):
                out[name] = ('dir',)
                todo.append(name)
            elif stat.S_ISLNK(st.st_mode):
                out[name] = ('link', os.readlink(os.path.join(root, name)))
            else:
                assert stat.S_ISREG(st.st_mode), name
                out[name] = ('file', st.st_size, sha_file(os.path.join(root, name)))
    return out


def expected(files, links=None):
    """What scan() returns for these {path: data or (size, sha256)} and {path: target}."""
    out = {}
    for path, data in files.items():
        parts = path.split('/')
        for i in range(1, len(parts)):
            out['/'.join(parts[:i])] = ('dir',)
        if links and path in links:
            out[path] = ('link', links[path])
        elif isinstance(data, tuple):
            out[path] = ('file', *data)
        else:
            out[path] = ('file', len(data), hashlib.sha256(data).hexdigest())
    return out


def manifest(text):
    """{path: hex} of a MANIFEST."""
    return dict(line.rsplit('=', 1) for line in text.decode().splitlines())


# ---- containers ----

def podman(rootfs):
    """Makes a directory for a container with this system's programs, and returns the command that runs one."""
    for name in ('usr', 'etc', 'w', 'proc', 'dev', 'sys', 'tmp', 'var/tmp', 'run', 'prog'):
        (rootfs / name).mkdir(parents=True)
    for name in ('bin', 'lib', 'lib64', 'sbin'):
        (rootfs / name).symlink_to(f'usr/{name}')
    return ['podman', *(('--runtime', 'runc') if shutil.which('runc') else ()),
            '--cgroup-manager=cgroupfs', 'run', '--rm', '--network=none', '--cap-drop=all',
            '--security-opt=no-new-privileges', '--user=65534:65534', '--ulimit=nofile=1024:1024',
            '--ulimit=nproc=1024:1024', '--volume=/usr:/usr:ro']


def podman_runs():
    if not shutil.which('podman') or not IS_ROOT:
        return False
    with tempfile.TemporaryDirectory() as d:
        return run(*podman(Path(d) / 'rootfs'), '--rootfs', Path(d) / 'rootfs', '/bin/true').returncode == 0
