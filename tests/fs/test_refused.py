# SPDX-License-Identifier: Apache-2.0
"""Where a machine or a container does not permit a mount: what is said then; and process 1, which signals have to end."""
import contextlib
import os
import shutil
import signal
import subprocess

import pytest

import harness
from harness import CARTONCTL, CARTONFS, EXIT_S, PRELOAD, SLOW, ctl, environment, eventually, mountinfo, run

NO_THREAD = 'not mounted: no thread or process can be started; raise the limit of them: ulimit -u, TasksMax= of a unit'
NAMELESS = 54321


@pytest.fixture(scope='module')
def few_threads(session_dir):
    out = session_dir / 'nothreads.so'
    p = run('cc', '-shared', '-fPIC', '-D_GNU_SOURCE', '-o', out, PRELOAD / 'nothreads.c', '-ldl')
    assert p.returncode == 0, p.stderr
    return out


@pytest.mark.needs_plain_build
def test_no_thread(few_threads, sample_carton, point, who):
    """With one more at each turn, until it is mounted: also where libfuse has not one."""
    where = point(who)
    said = set()
    for n in range(30):
        p = run(CARTONFS, sample_carton[0], where, uid=who, env=dict(LD_PRELOAD=str(few_threads), THREADS=str(n)))
        if p.returncode == 0:
            break
        assert p.returncode == 2 and NO_THREAD in p.stderr and mountinfo(where) is None, (n, p.stderr)
        said.add('error creating thread' in p.stderr)
    assert said == {True, False} and mountinfo(where)
    assert ctl('stop', where, uid=who).returncode == 0


@pytest.mark.needs_plain_build
def test_no_thread_of_cartonctl(few_threads, sample_carton):
    p = ctl('verify', sample_carton[0], env=dict(LD_PRELOAD=str(few_threads), THREADS='0'))
    assert p.returncode != 0 and 'no thread or process can be started' in p.stdout + p.stderr
    p = ctl('ls', sample_carton[0], env=dict(LD_PRELOAD=str(few_threads), THREADS='0'))
    assert p.returncode == 1 and 'no thread or process can be started' in p.stderr


@pytest.mark.needs_plain_build
@pytest.mark.parametrize('program', [CARTONFS, CARTONCTL])
def test_no_memory_for_the_stack_of_a_thread(sample_carton, point, program):
    """It is not the number of threads that is limited."""
    words = [sample_carton[0], point()] if program == CARTONFS else ['ls', sample_carton[0]]
    p = run('sh', '-c', 'ulimit -s 1048576 && ulimit -v 524288 && exec "$0" "$@"', program, *words)
    assert p.returncode in (1, 2) and 'no thread or process can be started' in p.stderr and 'ulimit -v' in p.stderr


@pytest.mark.needs_root
@pytest.mark.parametrize('user, why', [
    (['--reuid', str(NAMELESS), '--regid', str(NAMELESS), '--clear-groups'], f'uid {NAMELESS} has no name here'),
    (['--reuid', '65534', '--regid', '65534', '--clear-groups', '--no-new-privs'], 'start this without no-new-privileges'),
    (['--bounding-set=-sys_admin', '--inh-caps=-sys_admin'], 'root of this container may not mount'),
], ids=['nameless', 'no-new-privs', 'root'])
def test_may_not_mount(sample_carton, point, user, why):
    """Not in the words of fusermount3 alone, which say nothing that helps."""
    where = point(NAMELESS if str(NAMELESS) in user else harness.NOBODY if 'reuid' in user[0] else None)
    p = subprocess.run(['setpriv', *user, '--', CARTONFS, sample_carton[0], where], env=environment(), text=True,
                       capture_output=True, timeout=EXIT_S * SLOW)
    assert p.returncode == 32 and why in p.stderr, p.stderr
    assert mountinfo(where) is None


@contextlib.contextmanager
def first_process(*command):
    """Process 1 of a namespace."""
    with subprocess.Popen(['unshare', '--pid', '--fork', '--kill-child', *map(str, command)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as p:
        try:
            yield p
        finally:
            p.kill()


@pytest.mark.needs_root
@pytest.mark.parametrize('sig', [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_cartonctl_as_process_1(sig):
    with first_process(CARTONCTL, 'status', '--watch') as p:
        assert p.stdout.read(1)
        os.kill(*harness.children(p.pid), sig)
        assert p.wait(EXIT_S * SLOW) == 128 + sig


@pytest.mark.needs_root
def test_cartonfs_as_process_1(disk, sample_carton, point):
    """Before it is mounted, too."""
    shutil.copy(sample_carton[0], disk.files / 'm.carton')
    disk.set('slow 300')
    where = point()
    with first_process(CARTONFS, '-f', disk.path / 'm.carton', where) as p:
        def pid_that_reads():
            for pid in harness.children(p.pid):
                with contextlib.suppress(OSError):
                    for n in os.listdir(f'/proc/{pid}/fd'):
                        if os.readlink(f'/proc/{pid}/fd/{n}') == str(disk.path / 'm.carton'):
                            return pid
            return None
        os.kill(eventually('it reads from the disk', pid_that_reads), signal.SIGTERM)
        assert p.wait(EXIT_S * SLOW) == 128 + signal.SIGTERM and mountinfo(where) is None
