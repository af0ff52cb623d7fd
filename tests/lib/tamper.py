# SPDX-License-Identifier: Apache-2.0
"""
Another process of the user that writes to files while a mount takes their bytes in.

A Tamperer changes one byte of each file to and fro, from when the byte has arrived until the reader has come
to its end, and leaves it wrong in three files of four. Whoever reads a byte once to hash it and once to tag
it takes tags of a wrong byte under a right hash in one of four cases. Each reader gets the right bytes or an
error.
"""
import contextlib
import multiprocessing
import os
import random
import time

MIB = 1 << 20
SPINS = 400                 # the most that passes between two writes


def reads(f):
    """All of an open file, and once more past the page cache."""
    out = []
    for _ in range(2):
        os.lseek(f.fileno(), 0, os.SEEK_SET)
        out.append(b''.join(iter(lambda: f.read(MIB), b'')))
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return out


def judge(got, want):
    """'right', 'wrong' or the name of the errno."""
    return got if isinstance(got, str) else 'right' if got == [want, want] else 'wrong'


class Target:
    """A file, or where it lies in another one; while it has not arrived, it is not there or its bytes are others."""

    def __init__(self, data, path, at=0):
        self.data, self.path, self.at = data, str(path), at


class Tamperer:
    """with Tamperer(targets) as t: for i in …: with t.reading(i): …;  then t.hits() and t.writes()"""

    def __init__(self, targets, seed=0):
        self.targets, self.seed = targets, seed
        self.numbers = multiprocessing.RawArray('q', 5)     # begun, ended, hits, writes, ready
        self.process = multiprocessing.get_context('fork').Process(target=self.work, daemon=True)

    def __enter__(self):
        self.process.start()
        while not self.numbers[4]:
            assert self.process.is_alive()
            time.sleep(0)
        return self

    def __exit__(self, *_):
        self.numbers[0] = self.numbers[1] = len(self.targets) + 1
        self.process.join()
        assert self.process.exitcode == 0

    @contextlib.contextmanager
    def reading(self, i):
        self.numbers[0] = i + 1
        try:
            yield
        finally:
            self.numbers[1] = i + 1

    def hits(self):
        """Files of which a byte was wrong for a time while they were taken in."""
        return self.numbers[2]

    def writes(self):
        return self.numbers[3]

    # -- the process --

    def work(self):
        rng = random.Random(self.seed)
        self.numbers[4] = 1
        for i, target in enumerate(self.targets):
            while self.numbers[0] <= i:
                pass
            fd = self.open(i, target)
            if fd is not None:
                self.numbers[2] += self.toggle(i, target, fd, rng)
                os.close(fd)

    def open(self, i, target):
        while self.numbers[1] <= i:
            with contextlib.suppress(FileNotFoundError):
                return os.open(target.path, os.O_RDWR)

    def toggle(self, i, target, fd, rng):
        """Did a wrong byte get into the window?"""
        off = rng.randrange(len(target.data))
        right = target.data[off:off + 1]
        wrong, at, hit = bytes([right[0] ^ 0x40]), target.at + off, False
        while os.pread(fd, 1, at) != right:
            if self.numbers[1] > i:
                return False
        while self.numbers[1] <= i:
            for byte in wrong, right:
                os.pwrite(fd, byte, at)
                self.numbers[3] += 1
                # still under its name, and the reader has not come to its end
                hit = hit or (byte == wrong and self.numbers[1] <= i and os.path.exists(target.path))
                for _ in range(rng.randrange(SPINS)):
                    pass
        if i % 4 != 3:
            os.pwrite(fd, wrong, at)
        return hit
