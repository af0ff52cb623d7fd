# SPDX-License-Identifier: Apache-2.0
"""
A link of a given round trip and rate before a server of this machine: tests/tools/relay.c in a process of its own.
"""
import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / os.environ.get('BUILD_DIR', 'build') / 'tests/tools/relay'


class Relay:
    """Listens on `port`. `rtt` is in ms, `rate` in Mbit/s; 0 is none, and any."""

    def __init__(self, target, rtt=0, rate=0, slow_start=False, listen=0, program=PROGRAM):
        words = [f'--rtt={rtt}', f'--rate={rate}'] + ['--slow-start'] * slow_start
        self.process = subprocess.Popen([program, str(listen), str(target), *words], text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())

    def counts(self):
        """Of now: connections, open, up and down, the bytes that clients and the server have sent."""
        self.process.send_signal(signal.SIGUSR1)
        return json.loads(self.process.stdout.readline())

    def stop(self):
        """The counts at the end."""
        self.process.terminate()
        out, _ = self.process.communicate()
        return json.loads(out)


@contextlib.contextmanager
def relay(port, rtt=0, rate=0, **kw):
    """A Relay to that port of this machine."""
    r = Relay(port, rtt, rate, **kw)
    try:
        yield r
    finally:
        r.process.kill()
        r.process.communicate()
