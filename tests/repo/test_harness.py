# SPDX-License-Identifier: Apache-2.0
"""The harness itself: what would make a test hang, or fail another one."""
import os
import select
import stat
import threading

from harness import SLOW, as_user, run
from origin import needs_root

pytestmark = needs_root


def test_readers_have_no_pipes():
    """A thread that reads as another user, and waits, keeps no pipe open whose end somebody else waits for."""
    r, w = os.pipe()
    inside, ends, modes = threading.Event(), threading.Event(), []

    def wait():
        modes.append([os.fstat(fd).st_mode for fd in (r, w)])
        inside.set()
        assert ends.wait(60 * SLOW)
    reader = threading.Thread(target=as_user, args=(os.geteuid(), wait))
    reader.start()
    try:
        assert inside.wait(30 * SLOW)
        os.close(w)
        assert select.select([r], [], [], 30 * SLOW)[0] and os.read(r, 1) == b''
    finally:
        ends.set()
        reader.join()
        os.close(r)
    # the numbers are not free there
    assert [stat.S_ISCHR(mode) for mode in modes[0]] == [True, True]


def test_programs_beside_readers():
    """subprocess.Popen has pipes for a moment, of which a reader's thread that begins just then gets copies."""
    for _ in range(20):
        ends = threading.Event()
        readers = [threading.Thread(target=as_user, args=(os.geteuid(), ends.wait, 60 * SLOW)) for _ in range(4)]
        for reader in readers:
            reader.start()
        try:
            assert [run('true', timeout=30).returncode for _ in range(3)] == [0, 0, 0]
        finally:
            ends.set()
            for reader in readers:
                reader.join()
