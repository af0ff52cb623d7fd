# SPDX-License-Identifier: Apache-2.0
"""What a process holds, may do and waits for: by /proc, and by a library that is loaded into it (probe.c)."""
import contextlib
import ctypes
import errno
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest

import harness
from harness import eventually, read_file, run

LANDLOCK = ctypes.CDLL(None).syscall(444, None, 0, 1)   # the version; less than 2 does not suffice
READ_SEARCH = 1 << 2


@pytest.fixture(scope='module')
def library(session_dir):
    path = session_dir / 'probe.so'
    p = run('cc', '-shared', '-fPIC', '-O1', '-D_GNU_SOURCE', '-o', path,
            harness.PRELOAD / 'probe.c', harness.BUILD / 'fs/syscall_names.c', '-ldl')
    assert p.returncode == 0, p.stderr
    return path


class Probe:
    """A running program with the library in it."""

    def __init__(self, library, cmd, uid=None, env=(), **kw):
        self.ours, theirs = socket.socketpair()
        self.answers = self.ours.makefile('r')
        more = dict(LD_PRELOAD=f'{library}:{harness.SYSLOG}', PROBE_FD=f'/dev/fd/{theirs.fileno()}', **dict(env))
        self.process = subprocess.Popen(
            [str(c) for c in cmd], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, pass_fds=[theirs.fileno()],
            env=harness.environment(uid, **more), **harness.identity(uid), **kw)
        theirs.close()

    def ask(self, *words):
        """The errno name of a try, '' when it succeeds; 'SIGSYS' when it kills the program."""
        self.ours.sendall((' '.join(map(str, words)) + '\n').encode())
        line = self.answers.readline()
        if not line:
            return signal.Signals(-self.process.wait(harness.EXIT_S)).name
        number = int(line)
        assert number != errno.ENOEXEC, words
        return errno.errorcode[number] if number else ''

    def close(self):
        self.answers.close()
        self.ours.close()


def status(path):
    return dict(re.findall(r'^(\w+):\t(.*)$', Path(path).read_text(), re.M))


def mounter_of(pid):
    """The pids of the mounter of a daemon: its only child."""
    return [int(n) for n in Path(f'/proc/{pid}/task/{pid}/children').read_text().split()]


def sits_in_open(pid, path):
    """Is a process inside openat(2) or open(2) of `path`?"""
    want = os.fsencode(path) + b'\0'
    with contextlib.suppress(OSError, ValueError, KeyError):
        call = read_file(f'/proc/{pid}/syscall').split()
        name = int(call[{b'257': 2, b'56': 2, b'2': 1}[call[0]]], 16)
        with open(f'/proc/{pid}/mem', 'rb', buffering=0) as memory:
            return os.pread(memory.fileno(), len(want), name) == want
    return False


def in_open(pid, path):
    eventually('the reader is inside open', lambda: sits_in_open(pid, path))
