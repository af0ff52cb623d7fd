# SPDX-License-Identifier: Apache-2.0
"""A terminal of a given width, and what is on it."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import unicodedata

from harness import CARTONCTL, environment


def terminal(columns, *args, program=CARTONCTL, **env):
    """What `cartonctl *args`, or another program, prints at a terminal of so many columns, as one string."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack('4H', 50, columns, 0, 0))
    p = subprocess.Popen([program, *map(str, args)], stdin=subprocess.DEVNULL, stdout=follower, stderr=follower,
                         env=environment() | {'TERM': 'xterm', **env})
    os.close(follower)
    out = b''
    while True:
        try:
            block = os.read(leader, 65536)
        except OSError:                 # the other side is closed
            break
        out += block
    os.close(leader)
    p.wait()
    return out.decode().replace('\r\n', '\n')


def plain(text):
    return re.sub(r'\x1b\[[0-9;]*[mK]', '', text)


def width(line):
    """Columns of a line at a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in 'WF' else 1
               for c in plain(line))
