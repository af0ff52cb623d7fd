# SPDX-License-Identifier: Apache-2.0
"""A disk that fails when a test says so: tests/tools/faulty-disk.c, which reads from the file `control` what goes wrong."""
import os
import subprocess

import harness
from harness import TOOLS, eventually, mountinfo, run


class Disk:
    """What is at `path` lies in `files`, and has faults."""

    def __init__(self, where, options=''):
        self.files, self.path, self.control = where / 'files', where / 'disk', where / 'control'
        for d in (self.files, self.path):
            d.mkdir()
        self.set('none')
        # for each user, as other disks are
        self.process = subprocess.Popen(
            [TOOLS / 'faulty-disk', self.files, self.control, '-f', '-o',
             'max_threads=10' + (',allow_other' if harness.IS_ROOT else '') + options, self.path],
            stdin=subprocess.DEVNULL)
        eventually('the disk is there', lambda: mountinfo(self.path))

    def set(self, fault, part=''):
        new = self.control.with_suffix('.new')
        new.write_text(f'{fault if " " in fault else fault + " 1"} {part}\n')
        os.rename(new, self.control)

    def stop(self):
        self.set('none')
        run('umount' if harness.IS_ROOT else 'fusermount3',
            '-fl' if harness.IS_ROOT else '-uz', self.path)
        try:
            # killed at its end, where a sanitizer looks for leaks, it would seem to have a fault
            eventually('the disk ends', lambda: self.process.poll() is not None)
        finally:
            self.process.kill()
            self.process.wait()
