# SPDX-License-Identifier: Apache-2.0
"""
What the process cannot do once it reads a carton, tried inside the running program (probe.c), as root
and as an ordinary user; and the mounter, which can do more and reads nothing.

What Landlock forbids is tried only where the kernel has it: test_landlock_is_here names that.
"""
import contextlib
import errno
import fcntl
import http.server
import os
import re
import signal
import socket
import stat
import subprocess
import tempfile
import termios
from pathlib import Path

import pytest

import harness
import probing
from harness import (CARTONCTL, CARTONFS, IS_ROOT, NOBODY, eventually, mountinfo, run, wait_exit)
from probing import LANDLOCK, READ_SEARCH, Probe, mounter_of, status
from served import serving
from zipwriter import Carton

needs_root = pytest.mark.needs_root     # files of other users do
SANITIZED = harness.SANITIZED
library = probing.library       # a fixture


@pytest.fixture
def probe(library, point):
    """with probe(source, '-o', …, uid=None) as p: a mounted cartonfs in the foreground."""
    @contextlib.contextmanager
    def make(source, *options, uid=None, env=()):
        where = point(uid)
        p = Probe(library, [CARTONFS, '-f', *options, source, where], uid, env)
        p.where = where
        try:
            eventually('a mount or an end', lambda: mountinfo(where) or p.process.poll() is not None)
            assert p.process.poll() is None, p.process.communicate()
            yield p
            if p.process.poll() is None:
                assert p.ask('call getpid') == ''       # it lives
                p.process.terminate()
                p.out, p.err = p.process.communicate(timeout=harness.EXIT_S * harness.SLOW)
                assert p.process.returncode == 0, p.err
                assert mountinfo(where) is None
        finally:
            p.close()
            p.process.kill()
            p.process.communicate()
            harness.abandon(where, [])
    return make


# ---- what /proc says ----

def test_landlock_is_here():
    """Not a claim about the program: where this kernel lacks Landlock, its tests are not collected."""
    if LANDLOCK < 2:
        print('this kernel has no Landlock: the tests of files are left out')


@pytest.mark.needs_own_threads
def test_status(mount, sample_carton, who):
    """In every thread: no privileges, none to be had, a filter, no core."""
    with mount(sample_carton[0], uid=who) as m:
        m.sha('MANIFEST')
        tasks = list(Path(f'/proc/{m.pids[0]}/task').glob('*/status'))
        assert len(tasks) > 2
        for s in map(status, tasks):
            # as who has mounted it; where root's has a user of its own, see test_system_user.py
            assert s['Uid'].split() == [str(os.geteuid() if who is None else who)] * 4
            assert (s['NoNewPrivs'], s['Seccomp']) == ('1', '2')
            assert {int(s[f'Cap{k}'], 16) for k in ('Inh', 'Prm', 'Eff', 'Amb')} == {0}
            if who is None and IS_ROOT:
                assert int(s['CapBnd'], 16) == 0
        # not dumpable: its files in /proc are root's
        assert os.stat(f'/proc/{m.pids[0]}/environ').st_uid == 0


def test_nosandbox(mount, sample_carton, who):
    with mount(sample_carton[0], '-o', 'nosandbox', uid=who) as m:
        s = status(f'/proc/{m.pids[0]}/status')
        assert (s['NoNewPrivs'], s['Seccomp']) == ('0', '0')


@needs_root
def test_root_reads_what_others_own(mount, work):
    """With the one capability that needs, and only where it is needed."""
    c = Carton().add('model/a', b'x' * 1000)
    private = work / 'private'
    private.mkdir(0o700)
    c.write(private / 'a.carton')
    tree = private / 'tree'
    for name, data in {**c.files()}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(data)
    for path in [private, *private.rglob('*')]:
        os.chown(path, NOBODY, NOBODY)
        path.chmod(0o700 if path.is_dir() else 0o600)
    for source, capabilities in ((private / 'a.carton', 0), (tree, READ_SEARCH)):
        with mount(source) as m:
            s = status(f'/proc/{m.pids[0]}/status')
            assert int(s['CapEff'], 16) == int(s['CapPrm'], 16) == capabilities
            assert m.read('model/a') == b'x' * 1000


# ---- the mounter ----

def test_mounter_holds_nothing(mount, sample_carton, who):
    with mount(sample_carton[0], uid=who) as m:
        pid, = mounter_of(m.pids[0])
        assert Path(f'/proc/{pid}/cmdline').read_bytes().startswith(b'cartonfs: mounter\0')
        assert os.readlink(f'/proc/{pid}/cwd') == '/'
        held = {os.readlink(f'/proc/{pid}/fd/{n}') for n in os.listdir(f'/proc/{pid}/fd')}
        assert {re.sub(r'\d+', '', h) for h in held} == {
            '/dev/null', 'socket:[]', 'anon_inode:[pidfd]', 'anon_inode:seccomp notify', '/proc//mem'}
        os.kill(pid, signal.SIGTERM)                # what ends a whole group ends the daemon first
        m.sha('MANIFEST')
    assert not os.path.exists(f'/proc/{pid}')


@pytest.mark.parametrize('options', [(), ('-o', 'auto_unmount')])
def test_mounter_ends_with_a_killed_daemon(mount, sample_carton, who, options):
    with mount(sample_carton[0], *options, uid=who) as m:
        pid, = mounter_of(m.pids[0])
        os.kill(m.pids[0], signal.SIGKILL)
        wait_exit(m.pids[0])
        wait_exit(pid)
        # fusermount3 may unmount it at any time now
        eventually('unmounted', lambda: harness.try_unmount(m.path, who).returncode == 0 or m.gone())
        m.ended = True


def test_failed_start_leaves_no_mounter(point, work):
    (work / 'bad').write_bytes(b'not a zip')
    where = point()
    p = subprocess.Popen([CARTONFS, '-f', work / 'bad', where], stderr=subprocess.PIPE,
                         env=harness.environment(), start_new_session=True)
    p.communicate(timeout=harness.EXIT_S * harness.SLOW)
    assert p.returncode == 32 and mountinfo(where) is None
    assert not [n for n in map(status, Path('/proc').glob('[0-9]*/status'))
                if n['PPid'] == str(p.pid)]


# ---- files ----

def forbidden(who, work):
    """Files that the user of the daemon may read and write, and it may not."""
    mine = work / 'mine'
    mine.write_text('secret')
    if who is not None:
        os.chown(mine, who, who)
    mine.chmod(0o600)
    return mine


if LANDLOCK >= 2:
    def test_files(probe, sample_carton, who, work):
        mine = forbidden(who, work)
        open_dir = work / 'open'
        open_dir.mkdir()
        open_dir.chmod(0o777)
        with probe(sample_carton[0], uid=who) as p:
            # /proc/1/status: everybody may read it; a sanitizer reads of other processes, too
            for path in ('/etc/shadow', mine, open_dir, '/proc/1/environ', *([] if SANITIZED else ['/proc/1/status'])):
                assert p.ask('read', path) == 'EACCES', path
            assert p.ask('write', mine) == p.ask('truncate', mine) == 'EACCES'
            assert p.ask('create', open_dir / 'new') == 'EACCES'
            # where its files without a name are
            assert p.ask('create', f'/var/tmp/{work.name}') == 'EACCES'
            assert p.ask('remove', mine) == 'EACCES'
            assert p.ask('read /etc/hosts') == ''       # what names are resolved with
            assert p.ask('read /proc/self/status') == ''
        assert mine.read_text() == 'secret' and os.listdir(open_dir) == []

    def test_offline_reads_nothing_of_the_network(probe, sample_carton, who):
        with probe(sample_carton[0], '-o', 'offline', uid=who) as p:
            for path in ('/etc/hosts', '/etc/resolv.conf', '/etc/passwd'):
                assert p.ask('read', path) == 'EACCES', path

    def test_cache_is_writable_beneath_v1_only(probe, sample_carton, who, work):
        cache = work / 'cache'
        cache.mkdir(0o700)
        if who is not None:
            os.chown(cache, who, who)
        with probe(sample_carton[0], '-o', f'cache_dir={cache}', uid=who) as p:
            assert p.ask('create', cache / 'v1/tmp/x') == ''
            assert p.ask('remove', cache / 'v1/tmp/x') == ''
            assert p.ask('create', cache / 'x') == 'EACCES'

    def test_source_directory_is_read_only(probe, who, work):
        c = Carton().add('model/a', b'x' * 1000)
        for name, data in c.files().items():
            (work / 'tree' / name).parent.mkdir(parents=True, exist_ok=True)
            (work / 'tree' / name).write_bytes(data)
        (work / 'beside').write_text('x')
        for path in [work / 'tree', *work.rglob('*')]:
            path.chmod(0o777)
        with probe(work / 'tree', uid=who) as p:
            assert p.ask('read', work / 'tree/model/a') == ''
            assert p.ask('read', work / 'beside') == 'EACCES'
            assert p.ask('write', work / 'tree/model/a') == p.ask('truncate', work / 'tree/model/a') == 'EACCES'
            assert p.ask('create', work / 'tree/model/b') == p.ask('remove', work / 'tree/model/a') == 'EACCES'

    def test_cartonctl_files(library, sample_carton, who, work):
        mine = forbidden(who, work)
        with cartonctl(library, sample_carton[0], who) as p:
            assert [p.ask('read', x) for x in ('/etc/shadow', mine)] == ['EACCES'] * 2
            assert p.ask('write', mine) == 'EACCES'

    @pytest.mark.parametrize('home, where', [
        ('home', 'home'), ('home/', 'home'), ('home', 'home//'), ('.', 'home'), ('link', 'home'), ('home', 'link')],
        ids=['as it is', 'slash', 'two slashes', 'of another user', 'linked home', 'linked file'])
    def test_files_beside_those_of_options(probe, remote, who, work, home, where):
        """Only the files that are named, whatever HOME is, and also once they are replaced."""
        (work / 'home/.ssh').mkdir(parents=True)
        (work / 'link').symlink_to('home')
        for name in ('.ssh/id', 'id', 'token', 'ca.pem', '.netrc'):
            (work / 'home' / name).write_text('# secret\n')
            (work / 'home' / name).chmod(0o600)
        if who is not None:
            for path in (work / 'home', *(work / 'home').rglob('*')):
                os.chown(path, who, who)
        token, ca, netrc = f'{work}/{where}/token', f'{work}/{where}/ca.pem', f'{work}/{home}/.netrc'
        beside = [f'{work}/{at}/{name}' for at in ('home', where) for name in ('.ssh/id', 'id', '../home/id')]

        def check(p):
            for path in beside:
                assert p.ask('read', path) == 'EACCES', path
            for path in (token, ca) + (() if home == '.' else (netrc,)):
                assert p.ask('read', path) == '', path
                assert p.ask('write', path) == 'EACCES', path
        with probe(remote, '-o', f'header_file={token},cacert={ca}', uid=who, env=[('HOME', f'{work}/{home}')]) as p:
            check(p)
            for name in ('token', 'ca.pem', '.netrc'):
                new = work / 'home/new'
                harness.as_user(who, new.write_text, '# new\n')
                new.rename(work / 'home' / name)
            check(p)
            # a name that is in the list, below another directory
            assert p.ask('read', f'/proc/self/root{token}') == 'EACCES'

    def test_file_of_an_option_behind_a_symlink(probe, remote, who, work):
        """As Kubernetes replaces it, which leaves only what the link leads to now."""
        for name in ('one', 'two'):
            (work / 'secrets' / name).mkdir(parents=True)
            (work / 'secrets' / name / 'token').write_text('# token\n')
            (work / 'secrets' / name / 'id').write_text('secret')
        (work / 'secrets/..data').symlink_to('one')
        (work / 'secrets/token').symlink_to('..data/token')
        with probe(remote, '-o', f'header_file={work}/secrets/token', uid=who) as p:
            for name in ('one', 'two'):
                assert p.ask('read', work / 'secrets/token') == ''
                assert p.ask('read', work / 'secrets' / name / 'id') == 'EACCES'
                (work / 'secrets/new').symlink_to('two')
                (work / 'secrets/new').rename(work / 'secrets/..data')
            assert p.ask('read', work / 'secrets/two/token') == 'EACCES'

    def test_file_of_an_option_that_is_no_file(probe, remote, who, work):
        """A FIFO in its place does not keep the mounter, which unmounts."""
        token = work / 'token'
        token.write_text('# token\n')
        with probe(remote, '-o', f'header_file={token}', uid=who) as p:
            token.unlink()
            os.mkfifo(token, 0o666)
            assert p.ask('read', token) == 'EACCES'
            assert p.ask('read', '/etc/hosts') == ''

    if LANDLOCK >= 4:
        def test_no_server_port(probe, sample_carton, who, remote):
            with probe(remote, uid=who) as p:
                assert p.ask('bind 0') == 'EACCES'


def test_without_landlock(probe, sample_carton):
    """A kernel that lacks it: a line of the log, and all the rest."""
    with probe(sample_carton[0], env=[('PROBE_NO_LANDLOCK', '1')]) as p:
        assert status(f'/proc/{p.process.pid}/status')['Seccomp'] == '2'
        assert p.ask('read', CARTONFS) == ''
    assert p.err.count('Landlock') == 1


# ---- system calls ----

PROGRAMS = ['execve', 'execveat', 'fork', 'vfork', 'ptrace', 'process_vm_readv', 'personality', 'clone',
            'kill', 'tgkill', 'tkill', 'sched_setaffinity', 'setrlimit', 'prlimit64']
# Independent of the table in fs/: what no confined process may call, whatever the arguments.
KILLED = """
    process_vm_writev process_madvise process_mrelease pidfd_getfd pidfd_open pidfd_send_signal kcmp
    rt_sigqueueinfo rt_tgsigqueueinfo setpriority setpgid sched_setscheduler sched_setattr ioprio_set timer_create
    shmget shmat shmctl msgget semget mq_open remap_file_pages pkey_mprotect
    mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr setns unshare
    name_to_handle_at open_by_handle_at quotactl fanotify_init
    init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct syslog
    sethostname setdomainname vhangup iopl ioperm settimeofday clock_settime clock_adjtime adjtimex modify_ldt
    bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register keyctl add_key request_key
    migrate_pages move_pages mbind vmsplice splice tee
    setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset
    chmod fchmodat chown lchown fchown fchownat utime utimes futimesat setxattr lsetxattr fsetxattr removexattr
    lremovexattr fremovexattr mknod mknodat truncate listen accept accept4""".split()


def here(names):
    """Those that this processor has."""
    known = (harness.BUILD / 'fs/syscall_names.c').read_text()
    return [n for n in names if f'"{n}"' in known]


@pytest.mark.parametrize('call', here(KILLED + ([] if SANITIZED else PROGRAMS)))
def test_killed(library, sample_carton, call):
    """In the same way in cartonfs and cartonctl, and for root and users; a line says what it was."""
    with cartonctl(library, sample_carton[0], None) as p:
        assert p.ask('call', call, 1) == 'SIGSYS'
        assert re.search(rf'^cartonctl: sandbox: the system call {call}\(1, .*\) is not allowed; the process ends$',
                         p.process.communicate()[1], re.M)


def test_handlers_of_signals(library, sample_carton):
    """Of each signal but the one that reports denied calls, whatever is in the upper half of the register."""
    with cartonctl(library, sample_carton[0], None) as p:
        for n in {*range(1, signal.SIGRTMAX + 1)} - {signal.SIGSYS}:
            assert p.ask('call', 'rt_sigaction', n, 0, 0, 8) == '', n
            assert p.ask('call', 'rt_sigaction', n | 1 << 32, 0, 0, 8) == '', n


@pytest.mark.parametrize('number', [signal.SIGRTMAX + 1, signal.SIGSYS | 1 << 7])
@pytest.mark.needs_plain_build       # a sanitizer has handlers of its own
def test_handler_of_no_signal(library, sample_carton, number):
    with cartonctl(library, sample_carton[0], None) as p:
        assert p.ask('call', 'rt_sigaction', number, 0, 0, 8) == 'SIGSYS'


def test_more_are_known():
    """Most of the list above are calls of any processor: the names of this one are right."""
    assert len(here(KILLED)) > 80


class Attack:
    """What a try gives: an end of the process, or an errno; and the call that the log names."""

    def __init__(self, call, gives, *words):
        self.call, self.gives, self.words = call, gives, words

    def __repr__(self):
        return '-'.join(map(str, self.words)).replace('/', '_')


CLONE_VM, CLONE_NEWUSER, CLONE_NEWNET = 0x100, 0x10000000, 0x40000000
O_ASYNC = 0o20000
F_SETSIG, F_SETOWN_EX = 10, 15
NETLINK_AUDIT = 9
MEMORY = [Attack('mmap', 'EPERM', 'memory'), Attack('mmap', 'EPERM', 'code'),
          Attack('mmap', 'EPERM', 'code', 'PROGRAM'), Attack('mprotect', 'EPERM', 'protect')]
ATTACKS = [
    # a program of root's with a set-id bit; one that others may write
    Attack('fchmod', 'SIGSYS', 'mode', 'PROGRAM', '04755'),
    Attack('fchmod', 'SIGSYS', 'mode', 'PROGRAM', '02755'),
    Attack('fchmod', 'SIGSYS', 'mode', 'PROGRAM', '0777'),
    Attack('openat', 'SIGSYS', 'setid', 'NEW'),
    # times of a file by its name
    Attack('utimensat', 'SIGSYS', 'call', 'utimensat', 0, 1, 0, 0),
    # signals by way of a limit, of input or output, of a lease, of a directory
    Attack('fcntl', 'SIGSYS', 'fcntl', fcntl.F_SETOWN, 1), Attack('fcntl', 'SIGSYS', 'fcntl', F_SETSIG, 9),
    Attack('fcntl', 'SIGSYS', 'fcntl', F_SETOWN_EX, 1), Attack('fcntl', 'SIGSYS', 'fcntl', fcntl.F_NOTIFY, 1),
    Attack('fcntl', 'SIGSYS', 'fcntl', fcntl.F_SETLEASE, 0), Attack('fcntl', 'SIGSYS', 'fcntl', fcntl.F_SETFL, O_ASYNC),
    # memory that other processes see
    Attack('shmget', 'SIGSYS', 'call', 'shmget', 0, 4096, 0o1600),
    # the filters
    Attack('seccomp', 'SIGSYS', 'call', 'seccomp', 1, 0, 0),
    # sockets of other kinds
    Attack('socket', 'EACCES', 'family', int(socket.AF_PACKET)), Attack('socket', 'EACCES', 'family', int(socket.AF_ALG)),
    # what a library may try
    Attack('600', 'ENOSYS', 'call', 600),
]
# what builds with a sanitizer may do
PLAIN_ATTACKS = MEMORY + [
    Attack('prctl', 'EPERM', 'call', 'prctl', 4, 1), Attack('ioctl', 'ENOTTY', 'call', 'ioctl', 0, termios.TIOCSTI),
    Attack('prlimit64', 'SIGSYS', 'call', 'prlimit64', 'PARENT', 0, 1, 0),
    Attack('prlimit64', 'SIGSYS', 'call', 'prlimit64', 0, 0, 1, 0),
    Attack('prlimit64', 'SIGSYS', 'call', 'prlimit64', 'PARENT', 0, 0, 1),
    Attack('kill', 'SIGSYS', 'call', 'kill', 'PARENT', 0), Attack('tgkill', 'SIGSYS', 'call', 'tgkill', 'PARENT', 'PARENT', 0),
    Attack('clone', 'SIGSYS', 'call', 'clone', CLONE_NEWUSER), Attack('clone', 'SIGSYS', 'call', 'clone', CLONE_VM),
    Attack('rt_sigaction', 'SIGSYS', 'call', 'rt_sigaction', int(signal.SIGSYS), 0, 0, 8),
    # the kernel ignores the upper half
    Attack('rt_sigaction', 'SIGSYS', 'call', 'rt_sigaction', 1 << 32 | int(signal.SIGSYS), 0, 0, 8),
    # every flag of a thread, and a namespace
    Attack('clone', 'SIGSYS', 'call', 'clone', 0x3d0f00 | CLONE_NEWNET),
]


@pytest.fixture
def program(request):
    """A file of the daemon's user where the daemon may read and write."""
    with tempfile.NamedTemporaryFile(dir='/var/tmp') as f:
        f.write(b'#!/bin/sh\n' * 1000)
        f.flush()
        os.chmod(f.name, 0o755)
        if 'who' in request.fixturenames and request.getfixturevalue('who') is not None:
            os.chown(f.name, NOBODY, NOBODY)
        yield f.name


def expect(p, attack, program):
    """Tries it. Returns what then looks for the line of the log in p.err."""
    stand_for = {'PARENT': os.getpid(), 'PROGRAM': program, 'NEW': f'{program}.new'}
    assert p.ask(*[stand_for.get(w, w) for w in attack.words]) == attack.gives
    if attack.gives == 'SIGSYS':
        p.err = p.process.communicate()[1]
    line = rf'^cartonfs: sandbox: the system call {attack.call}\(.*\) is not allowed; ' + \
        ('the process ends$' if attack.gives == 'SIGSYS' else f'it fails with {attack.gives}$')
    return lambda: re.search(line, p.err, re.M)


@pytest.mark.parametrize('attack', ATTACKS + ([] if SANITIZED else PLAIN_ATTACKS), ids=repr)
def test_attack_in_a_mount(probe, sample_carton, program, who, attack):
    """Each ends the daemon, or fails and leaves it alive; and its log names the call."""
    with probe(sample_carton[0], uid=who) as p:
        logged = expect(p, attack, program)
    assert logged(), p.err
    assert stat.S_IMODE(os.stat(program).st_mode) == 0o755 and not os.path.exists(f'{program}.new')


if not SANITIZED:
    @pytest.mark.parametrize('attack', MEMORY, ids=repr)
    def test_code_while_a_carton_is_opened(library, sample_carton, program, attack):
        """Libraries have been loaded before, and no byte has been parsed."""
        with cartonctl(library, sample_carton[0], None) as p:
            assert p.ask(*[program if w == 'PROGRAM' else w for w in attack.words]) == attack.gives


def test_numbers_of_other_programs(library, sample_carton):
    """The filter's rules are for this processor's numbers, so all others end the program."""
    if os.uname().machine != 'x86_64':
        return
    x32 = 0x40000000
    for words, call in ((['old'], r'20 of another processor type'), (['call', x32 | 39], rf'{x32 | 39:#x}\(.*\)')):
        with cartonctl(library, sample_carton[0], None) as p:
            assert p.ask(*words) == 'SIGSYS'
            assert re.search(rf'sandbox: the system call {call} is not allowed; the process ends',
                             p.process.communicate()[1])


def test_log_of_a_daemon(library, sample_carton, point, who, work):
    """A daemon has no stderr: the mounter writes the line, after the daemon has ended too."""
    where, log = point(who), work / 'log'
    work.chmod(0o777)
    p = Probe(library, [CARTONFS, sample_carton[0], where], who, [('SYSLOG_FILE', str(log))])
    try:
        assert p.process.wait(harness.EXIT_S * harness.SLOW) == 0
        p.ours.sendall(b'family 17\n')
        assert p.answers.readline() == f'{errno.EACCES}\n'
        p.ours.sendall(b'family 17\n')
        assert p.answers.readline() == f'{errno.EACCES}\n'
        p.ours.sendall(b'call mount\n')
        assert p.answers.readline() == ''
        eventually('a line of the log', lambda: log.exists() and 'the process ends' in log.read_text())
        lines = [line for line in log.read_text().splitlines() if 'sandbox' in line]
        assert len(lines) == 2, lines       # one of a kind
        assert re.fullmatch(r'.*: sandbox: the system call socket\(17, .*\) is not allowed; it fails with EACCES', lines[0])
        assert re.fullmatch(r'.*: sandbox: the system call mount\(0, .*\) is not allowed; the process ends', lines[1])
    finally:
        p.close()
        harness.abandon(where, [])


def test_the_same_calls_with_good_arguments(probe, sample_carton, who):
    """What the program itself does with these calls goes on."""
    with probe(sample_carton[0], uid=who) as p:
        assert p.ask('call prlimit64 0 7 0 0') == ''
        assert p.ask('fcntl', fcntl.F_SETFL, os.O_NONBLOCK) == ''
        assert p.ask('call rt_sigaction', int(signal.SIGPIPE), 0, 0, 8) == ''
        assert p.ask('call kill', p.process.pid, 0) == ''


def test_files_are_made_only_where_they_are_needed(library, sample_carton, program, work):
    """cartonctl makes symlinks where it extracts, and nowhere else; the mount keeps no directory's calls."""
    with cartonctl(library, sample_carton[0], None) as p:
        assert p.ask('call symlinkat 0 0 0') == 'EPERM'
        assert p.ask('call openat2 0 0 0 0') == 'ENOSYS'
        assert p.ask('call setsid') == 'EPERM'
    out = work / 'out'
    p = Probe(library, [CARTONCTL, 'extract', sample_carton[0], out], None, [('PROBE_WAIT', '1')])
    try:
        assert p.ask('call symlinkat 0 0 0') == 'EFAULT'
        assert p.ask('mode', program, '0755') == ''
        assert p.ask('mode', program, '04755') == 'SIGSYS'
    finally:
        p.close()
        p.process.kill()
        p.process.communicate()


@pytest.mark.needs_plain_build      # the filter of the others permits every ioctl
@pytest.mark.parametrize('high', [0, 1 << 32, 0xffffffff << 32])
@pytest.mark.parametrize('request_name', ['TIOCSTI', 'TIOCLINUX'])
def test_no_input_to_a_terminal(library, sample_carton, request_name, high):
    """Whatever is in the half of the register that the kernel ignores."""
    number = {'TIOCSTI': termios.TIOCSTI, 'TIOCLINUX': 0x541c}[request_name]
    shown = number | high if number | high < 65536 else f'{number | high:#x}'
    with cartonctl(library, sample_carton[0], None) as p:
        assert p.ask('call ioctl 0', number | high) == 'ENOTTY'
        p.close()
        # the kernel says so of what is no terminal, too
        said = p.process.communicate(timeout=harness.EXIT_S * harness.SLOW)[1]
    assert re.search(rf'sandbox: the system call ioctl\(0, {shown}, .*\) is not allowed; it fails with ENOTTY$', said, re.M), said


def test_killed_daemon_is_a_dead_mount(probe, sample_carton, who):
    with probe(sample_carton[0], uid=who) as p:
        pid, = mounter_of(p.process.pid)
        assert p.ask('call mount') == 'SIGSYS'
        wait_exit(pid)
        with pytest.raises(OSError) as e:
            harness.as_user(who, os.listdir, p.where)
        assert e.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)


def test_refused(probe, sample_carton, who):
    """What libraries try is refused, and the daemon lives."""
    with probe(sample_carton[0], uid=who) as p:
        assert p.ask('call clone3') == 'ENOSYS'
        assert p.ask('call kill', p.process.pid, 0) == ''
        for family in (socket.AF_UNIX, socket.AF_PACKET, socket.AF_VSOCK, socket.AF_ALG):
            assert p.ask('family', int(family)) == 'EACCES'
        if not SANITIZED:
            assert p.ask('memory') == 'EPERM'


# ---- the network ----

class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def remote(work):
    """The URL of a carton, by a name of /etc/hosts."""
    (work / 'www').mkdir()
    Carton().add('model/a', b'x' * 1000).write(work / 'www/a.carton')

    def handler(*args):
        return Handler(*args, directory=work / 'www')
    with serving(http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)) as server:
        yield f'http://localhost:{server.server_address[1]}/a.carton'


@pytest.fixture
def listener():
    with socket.create_server(('127.0.0.1', 0)) as s:
        yield s.getsockname()


@needs_root
def test_replaced_files_of_etc(library, remote, point, work):
    """As a DHCP client replaces them: with names of /etc that a daemon of root could not open."""
    where = point()
    # the daemons of other tests would outlive their umount as long as this namespace has copies of their mounts
    script = """
umount -a -l -t fuse.cartonfs
mount -t tmpfs none "$1" && cp -a /etc/. "$1" && mount --bind "$1" /etc
umask 022
echo start > /etc/resolv.conf.new; mv /etc/resolv.conf.new /etc/resolv.conf
exec "$2" -f "$3" "$4"
"""
    (work / 'etc').mkdir()
    p = Probe(library, ['unshare', '--mount', 'sh', '-c', script, 'sh', work / 'etc', CARTONFS,
                        remote, where])
    try:
        assert p.ask('read /etc/resolv.conf') == ''
        inside = Path(f'/proc/{p.process.pid}/root/etc')
        for name in ('resolv.conf', 'hosts'):
            before = os.stat(inside / name).st_ino
            (inside / 'new').write_text('127.0.0.1 localhost\n')
            (inside / 'new').rename(inside / name)
            assert os.stat(inside / name).st_ino != before
            assert p.ask('read', f'/etc/{name}') == ''
            assert p.ask('write', f'/etc/{name}') == ('EACCES' if LANDLOCK >= 2 else '')
        if LANDLOCK >= 2:
            assert p.ask('read /etc/shadow') == 'EACCES'
            assert p.ask('read /etc/../etc/hosts') == 'EACCES'
        assert p.ask('call getpid') == ''
    finally:
        p.close()
        p.process.terminate()
        p.process.communicate(timeout=harness.EXIT_S * harness.SLOW)


def test_names_are_resolved(mount, remote, who):
    with mount(remote, uid=who) as m:
        assert m.read('model/a') == b'x' * 1000


@pytest.mark.parametrize('options', [(), ('-o', 'offline')])
def test_no_network_where_none_is_needed(probe, sample_carton, listener, who, options):
    """A local carton without LINKS has nothing to fetch, nor has one that is offline."""
    with probe(sample_carton[0], *options, uid=who) as p:
        assert p.ask('connect', *listener) == 'EACCES'
        assert p.ask('family', int(socket.AF_INET6)) == 'EACCES'
        assert p.ask('family', int(socket.AF_NETLINK)) == 'EACCES'


def test_offline_before_it_is_open(library, sample_carton, listener):
    with cartonctl(library, sample_carton[0], None, 'verify', '--offline') as p:
        assert p.ask('connect', *listener) == 'EACCES'
    with cartonctl(library, sample_carton[0], None) as p:
        assert p.ask('connect', *listener) == ''


def test_network_of_a_remote_carton(probe, remote, listener):
    """TCP, and what resolving a name takes: no other protocol, kernel interface or socket of another process."""
    allowed = [(socket.AF_INET, socket.SOCK_STREAM, 0), (socket.AF_INET6, socket.SOCK_DGRAM, 0),
               (socket.AF_NETLINK, socket.SOCK_RAW, 0)]
    refused = [(family, kind, 0) for family in (socket.AF_UNIX, socket.AF_PACKET, socket.AF_VSOCK, socket.AF_ALG)
               for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)]
    refused += [(socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_INET6, socket.SOCK_SEQPACKET, 0),
                (socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_AUDIT)]
    with probe(remote) as p:
        assert p.ask('connect', *listener) == ''
        for words in allowed:
            assert p.ask('call socket', *map(int, words)) == '', words
        for words in refused:
            assert p.ask('call socket', *map(int, words)) == 'EACCES', words
        # one of datagrams could be connected to another process; the address of the answer is wrong
        for kind, gives in (socket.SOCK_STREAM, 'EFAULT'), (socket.SOCK_DGRAM, 'EACCES'):
            assert p.ask('call socketpair', int(socket.AF_UNIX), int(kind), 0, 0) == gives


# ---- as a service ----

class Manager:
    """The side of systemd: a socket that it is told on, and the descriptors it was given."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        os.chmod(path, 0o666)
        self.env = {'NOTIFY_SOCKET': str(path)}

    def message(self):
        text, fds, *_ = socket.recv_fds(self.socket, 4096, 1)
        return text.decode().split('\n'), fds


@pytest.fixture
def manager(work):
    m = Manager(work / 'notify')
    yield m
    m.socket.close()


def forgets(manager):
    for name in ('cartonfs', 'cartonfs-state', 'cartonfs-source'):
        assert manager.message() == (['FDSTOREREMOVE=1', f'FDNAME={name}'], [])


def test_mount_and_main_process(manager, sample_carton, point, who):
    """As the unit does it: a step that mounts, and a main process that only serves."""
    path, c = sample_carton
    where = point(who)
    p = run(CARTONFS, '-o', 'mount_only', path, where, uid=who, env=manager.env)
    assert p.returncode == 0 and mountinfo(where), p.stderr
    forgets(manager)
    words, (fd,) = manager.message()
    assert words == ['FDSTORE=1', 'FDNAME=cartonfs']
    main = subprocess.Popen([CARTONFS, '-f', path, f'/dev/fd/{fd}'], pass_fds=[fd],
                            env=harness.environment(who, **manager.env), **harness.identity(who))
    try:
        os.close(fd)
        # the main process is the only one to hold it, so that the mount dies with it
        forgets(manager)
        words, fds = manager.message()
        assert words[0] == 'READY=1' and words[1].startswith('STATUS=') and fds == []
        for name, sha in c.hashes().items():
            assert harness.as_user(who, harness.sha_file, os.path.join(where, name)) == sha
        assert int(status(f'/proc/{main.pid}/status')['CapEff'], 16) == 0
        main.terminate()
        assert main.wait(harness.EXIT_S * harness.SLOW) == 0
        assert manager.message() == (['STOPPING=1'], [])
        with pytest.raises(OSError) as e:
            harness.as_user(who, os.listdir, where)
        assert e.value.errno == errno.ENOTCONN
        assert harness.unmount(where, who).returncode == 0
    finally:
        main.kill()
        main.wait()
        harness.abandon(where, [])


def test_mount_only_needs_a_manager(sample_carton, point, who):
    where = point(who)
    p = run(CARTONFS, '-o', 'mount_only', sample_carton[0], where, uid=who)
    assert p.returncode == 32 and 'no service manager' in p.stderr
    assert mountinfo(where) is None


# ---- cartonctl ----

@contextlib.contextmanager
def cartonctl(library, source, uid, *words):
    """One that has been confined, and waits."""
    p = Probe(library, [CARTONCTL, *(words or ['verify']), source], uid, [('PROBE_WAIT', '1')])
    try:
        assert p.ask('call getpid') == ''
        yield p
        if p.process.poll() is None:
            p.close()
            out, err = p.process.communicate(timeout=harness.EXIT_S * harness.SLOW)
            assert p.process.returncode == 0, out + err
    finally:
        p.close()
        p.process.kill()
        p.process.communicate()


def test_cartonctl(library, sample_carton, who):
    with cartonctl(library, sample_carton[0], who) as p:
        s = status(f'/proc/{p.process.pid}/status')
        assert (s['NoNewPrivs'], s['Seccomp'], int(s['CapEff'], 16)) == ('1', '2', 0)
        assert p.ask('family', int(socket.AF_UNIX)) == 'EACCES'


def test_cartonctl_nosandbox(library, sample_carton, who):
    with cartonctl(library, sample_carton[0], who, 'verify', '--nosandbox') as p:
        s = status(f'/proc/{p.process.pid}/status')
        assert (s['NoNewPrivs'], s['Seccomp']) == ('0', '0')
