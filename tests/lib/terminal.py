# SPDX-License-Identifier: Apache-2.0
"""A terminal of a given width, and what is on it."""
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import unicodedata

from harness import CARTONCTL, environment


def terminal(columns, *args, program=CARTONCTL, stdout=None, ctrl_c=None, **env):
    """
    What `cartonctl *args`, or another program, prints at a terminal of so many columns, as one string; without its
    stdout, if that is another file. Once that matches `ctrl_c`, this key is pressed, and ends the program.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack('4H', 50, columns, 0, 0))
    p = subprocess.Popen([program, *map(str, args)], stdin=follower if ctrl_c else subprocess.DEVNULL,
                         stdout=stdout or follower, stderr=follower, env=environment() | {'TERM': 'xterm', **env},
                         start_new_session=bool(ctrl_c),
                         preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if ctrl_c else None)
    os.close(follower)
    out, pressed = b'', None
    while True:
        try:
            block = os.read(leader, 65536)
        except OSError:                 # the other side is closed
            break
        out += block
        if ctrl_c and not pressed and re.search(ctrl_c, out.decode(errors='replace')):
            pressed = os.write(leader, b'\3')
    os.close(leader)
    p.wait()
    assert not ctrl_c or pressed and p.returncode == -signal.SIGINT, (p.returncode, out)
    return out.decode().replace('\r\n', '\n')


def plain(text):
    return re.sub(r'\x1b\[[0-9;]*[mK]', '', text)


def width(line):
    """Columns of a line at a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in 'WF' else 1
               for c in plain(line))
