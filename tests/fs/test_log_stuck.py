# SPDX-License-Identifier: Apache-2.0
"""A log that nobody reads: no reader of a file waits for it, nor does the end; what is missing is counted and said later."""
import contextlib
import fcntl
import os
import re
import signal
import subprocess

import pytest

import harness
from harness import CARTONFS, EXIT_S, SLOW, at_once, environment, eventually, mountinfo
from probing import mounter_of
from zipwriter import Carton

BAD = 300       # more lines than wait, and than a small pipe has room for
TIMEOUT = 30    # longer than nobody waits


@pytest.fixture(scope='module')
def damaged(session_dir):
    """A carton whose files but one are damaged: each is a line of the log, once."""
    c = Carton(method='stored')
    for i in range(BAD):
        c.add(f'model/{i:03}', b'%03d' % i * 100)
    c.add('model/good', b'good')
    path = c.write(session_dir / 'stuck.carton')
    data = path.read_bytes()
    for i in range(BAD):
        data = data.replace(b'%03d' % i * 100, b'%03d' % i * 99 + b'bad')
    path.write_bytes(data)
    return path


def fail_all(where, who):
    def read():
        for i in range(BAD):
            with pytest.raises(OSError):
                harness.read_file(os.path.join(where, f'model/{i:03}'))
        assert harness.read_file(os.path.join(where, 'model/good')) == b'good'
    with at_once(TIMEOUT):
        harness.as_user(who, read)


def check(text):
    """Each line is there, or was counted."""
    lines = [line for line in text.splitlines() if 'model/' in line]
    missing = sum(map(int, re.findall(r'(\d+) lines of the log are missing here: nobody took them', text)))
    assert len(lines) + missing == BAD and missing > 0, text


def read_some(fd, enough):
    """Reads a pipe until what has come is enough."""
    text = b''

    def come():
        nonlocal text
        with contextlib.suppress(BlockingIOError):
            text += os.read(fd, 1 << 16)
        return enough(text.decode())
    os.set_blocking(fd, False)
    eventually('the rest', come, why=lambda: text)
    return text.decode()


def all_there(text):
    lines = sum('model/' in line for line in text.splitlines())
    return text.endswith('\n') and lines + sum(map(int, re.findall(r'(\d+) lines of the log', text))) >= BAD


@pytest.mark.parametrize('to', ['stderr', 'error_file'])
def test_in_the_foreground(damaged, work, point, who, to):
    where, fifo = point(who), work / 'fifo'
    os.mkfifo(fifo)
    if who:
        os.chown(fifo, who, who)
    r = os.open(fifo, os.O_RDWR)
    fcntl.fcntl(r, fcntl.F_SETPIPE_SZ, 4096)
    with open(work / 'other', 'w') as other:
        if who:
            os.chown(work / 'other', who, who)
        p = subprocess.Popen([*harness.as_command(who), CARTONFS, '-f', '-o',
                              f'error_file={fifo if to == "error_file" else work / "other"}', damaged, where],
                             env=environment(who), stdin=subprocess.DEVNULL, stderr=other if to == 'error_file' else r)
    try:
        eventually('a mount or an end', lambda: mountinfo(where) or p.poll() is not None)
        fail_all(where, who)
        # where somebody takes them, all lines come
        eventually('all lines', lambda: (work / 'other').read_text().count('model/') == BAD)
        assert 'missing' not in (work / 'other').read_text()
        if to == 'stderr':
            # it is read again
            check(read_some(r, all_there))
            fail_all(where, who)
        else:
            # this end waits a second for the log, and not longer
            with at_once(TIMEOUT):
                p.send_signal(signal.SIGTERM)
                assert p.wait(EXIT_S * SLOW) == 0
            eventually('unmounted', lambda: mountinfo(where) is None)
    finally:
        p.kill()
        p.wait()
        os.close(r)
        harness.abandon(where, [])


def test_full_from_the_start(damaged, point):
    """Also what libfuse says with -d before the mount is there waits for nobody."""
    where = point()
    r, w = os.pipe()
    room = fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, 4096)
    os.write(w, b'-' * (room - 1) + b'\n')
    p = subprocess.Popen([CARTONFS, '-d', damaged, where], env=environment(), stdin=subprocess.DEVNULL, stderr=w)
    try:
        eventually('a mount', lambda: mountinfo(where))
        with at_once(TIMEOUT):
            assert harness.read_file(os.path.join(where, 'model/good')) == b'good'
        assert ' lines of the log are missing here' in read_some(r, lambda text: ' lines of the log' in text)
        with at_once(TIMEOUT):
            p.send_signal(signal.SIGTERM)
            assert p.wait(EXIT_S * SLOW) == 0
    finally:
        p.kill()
        p.wait()
        os.close(r)
        os.close(w)
        harness.abandon(where, [])


@pytest.mark.parametrize('ending', [False, True])
def test_syslog(damaged, work, point, who, ending):
    """syslog(3) of these tests opens a file: here it waits in that until somebody reads."""
    fifo = work / 'fifo'
    os.mkfifo(fifo)
    os.chmod(fifo, 0o666)
    where = point(who)
    with harness.mounted(damaged, where, uid=who, env=dict(SYSLOG_FILE=str(fifo))) as m:
        fail_all(where, who)
        if not ending:
            r = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
            check(read_some(r, all_there))
            os.close(r)
        with at_once(TIMEOUT):
            os.kill(m.pids[0], signal.SIGTERM)
            m.wait_end()


def test_a_mounter_that_is_stopped(damaged, work, point, who):
    """It passes the log on: what it has not taken is counted, also if the end comes next."""
    where = point(who)
    with harness.mounted(damaged, where, uid=who) as m:
        mounter, = mounter_of(m.pids[0])
        os.kill(mounter, signal.SIGSTOP)
        try:
            fail_all(where, who)
        finally:
            os.kill(mounter, signal.SIGCONT)
        os.kill(m.pids[0], signal.SIGTERM)
        m.wait_end()
        eventually('all lines', lambda: all_there(m.log()), why=m.log)
        check(m.log())
