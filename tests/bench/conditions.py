# SPDX-License-Identifier: Apache-2.0
"""
Under which conditions a time was taken: what the cache of cartonfs has, and what the page cache has. Both are
brought about before each time that counts, then looked at; what was found stands beside the time.
"""
import contextlib
import ctypes
import mmap
import os
import subprocess

import timing
from timing import Skip

# Where programs keep what they find again. The default cache of cartonfs is below the first.
VARIABLES = ('XDG_CACHE_HOME', 'XDG_CONFIG_HOME', 'XDG_DATA_HOME', 'XDG_STATE_HOME', 'XDG_RUNTIME_DIR')


def isolate(where):
    """
    From here on, what this process and its children call home is below `where`: no program finds, and none writes,
    the user's own cache or settings.
    """
    for name in ('HOME', 'TMPDIR', *VARIABLES):
        os.environ[name] = os.path.join(where, name.lower())
        os.mkdir(os.environ[name], 0o700)


def drop(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)        # what is not written yet is not dropped
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def resident(path):
    """Bytes of it in the page cache."""
    with open(path, 'rb') as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
        pages = (ctypes.c_ubyte * -(-len(m) // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(m)
        r = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(m)),
                                      pages)
        del start
        assert r == 0
        return sum(p & 1 for p in pages) * mmap.PAGESIZE


def remove_large(path):
    """
    Small files stay until the bench ends: for minutes after many were removed, ext4 takes long to make each new one,
    as it does not use an inode that was freed a moment ago. That would be the next one's time.
    """
    for where, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                if os.lstat(os.path.join(where, name)).st_size >= 1 << 20:
                    os.unlink(os.path.join(where, name))


class Conditions:
    """Of the contestant whose turn it is."""

    def __init__(self, where):
        self.where, self.n, self.texts = where, 0, {}

    def begin(self):
        """Nothing is known, and what the last one wrote is on the disk: it does not hold up the next."""
        self.texts = {}
        subprocess.run(['sync', '-f', self.where], check=True)
        self.check_default_cache()

    def check_default_cache(self):
        """It would be filled in one round, and found filled in the next."""
        if os.path.exists(os.path.join(os.environ['XDG_CACHE_HOME'], 'cartonfs')):
            raise RuntimeError('a program used the default cache: give it one of its own, as Bench.ctl does')

    def new_cache(self):
        """The path of a cache directory that is not there yet. The one before loses its large files."""
        remove_large(os.path.join(self.where, f'cache{self.n}'))
        self.n += 1
        return os.path.join(self.where, f'cache{self.n}')

    def cache(self, path):
        """The next program uses this cache."""
        kept = os.path.exists(path)
        self.texts['cache'] = 'later mount, cache filled by the first' if kept else 'first mount, cache empty'

    def peer(self):
        self.texts['cache'] = 'mounted anew'

    def pages(self, *paths, cached=True, name='carton'):
        """Has these files in the page cache, or not at all. Skip if the kernel wants it otherwise."""
        for path in paths:
            (timing.read_file if cached else drop)(path)
        size = sum(map(os.path.getsize, paths))
        share = sum(map(resident, paths)) / size
        if size > mmap.PAGESIZE * 64 and not (share > .99 if cached else share < .01):
            raise Skip(f'{os.path.basename(paths[0])}: {share:.0%} of it is in the page cache, not '
                       + ('all: too little memory' if cached else 'none'))
        self.texts['pages'] = f'{name} {"" if cached else "not "}in the page cache'

    def say(self, text):
        """What else is so, such as 'synced'."""
        self.texts['more'] = text

    def text(self):
        if not self.texts:
            raise RuntimeError('under which condition? call Conditions.pages, .cache or .say before note')
        return '; '.join(self.texts[k] for k in ('cache', 'pages', 'more') if k in self.texts)
