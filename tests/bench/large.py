# SPDX-License-Identifier: Apache-2.0
"""
One large file: its first read, reads after that, and reads here and there.
"""
import fcntl
import hashlib
import os
import queue
import random
import shutil
import subprocess
import threading
import zlib

import data
import timing
from timing import mounted, timed

MIB = 1 << 20
BLOCK = 512 << 10                       # that zlib gives at once


def stored(b):
    source, plain = b.large(data.STORED, b.size // MIB)
    cold = b.args.cold

    def limits(note):
        timing.read_file(plain)
        note('reading the file beneath', timed(timing.read_file, plain))
        note('sha256 in one thread', timed(timing.hash_file, plain))

    def cartonfs(note):
        with b.carton(source) as top:
            opened, read = timing.open_and_read(f'{top}/model/big')
            note('first open: verifies', opened)
            note('reading after that', read)
            note('first open and read', opened + read)
            note('second open and read', sum(timing.open_and_read(f'{top}/model/big')))
            if cold:
                timing.drop_caches()
                note('open and read after drop_caches',
                     sum(timing.open_and_read(f'{top}/model/big')))

    def after_drop(note):
        if cold:
            timing.drop_caches()
            note('reading the file beneath after drop_caches', timed(timing.read_file, plain))

    def peer(name, command):
        def contest(note):
            with b.patience(name), mounted(command, source, b.mnt) as top:
                note(f'{name}, first read', sum(timing.open_and_read(f'{top}/model/big')))
                note(f'{name}, second read', sum(timing.open_and_read(f'{top}/model/big')))
        return contest

    s = b.section(f'A Stored file of {b.size // MIB} MiB')
    s.run(limits, cartonfs, after_drop, *[peer(k, v) for k, v in b.peers.items()])
    s.row('first open: verifies', 'sha256 in one thread')
    s.row('reading after that', 'reading the file beneath')
    s.row('first open and read', 'sha256 in one thread')
    s.row('second open and read', 'reading the file beneath')
    s.row('open and read after drop_caches', 'reading the file beneath after drop_caches')
    for name in b.peers:
        s.row(f'{name}, first read', 'first open and read', 'and verifies nothing')
        s.row(f'{name}, second read', 'second open and read')
    if not cold:
        s.skipped.append('cold reads: --cold, as root, drops the page cache')


def inflate_and_hash(path):
    """zlib in one thread, sha256 in another: the limit for deflate."""
    blocks, sha = queue.Queue(8), hashlib.sha256()

    def hash_blocks():
        while block := blocks.get():
            sha.update(block)
    t = threading.Thread(target=hash_blocks)
    t.start()
    d = zlib.decompressobj(-15)
    for part in data.chunks_of(path):
        while part:
            blocks.put(d.decompress(part, BLOCK))
            part = d.unconsumed_tail
    if rest := d.flush():
        blocks.put(rest)
    blocks.put(b'')
    t.join()


def packed(b, method, name, limit, limit_name):
    mib = b.size // MIB // 4
    source, plain = b.large(method, mib)

    def limits(note):
        note(limit_name, timed(limit, plain))
        note('sha256 in one thread', timed(timing.hash_file, plain))
        note('reading the file beneath', timed(timing.read_file, plain))

    def cartonfs(note):
        cache = b.new_cache()
        with b.carton(source, cache=cache) as top:
            opened, read = timing.open_and_read(f'{top}/model/big')
            note('first open: unpacks, verifies, keeps', opened)
            note('reading after that', read)
            note('second open and read', sum(timing.open_and_read(f'{top}/model/big')))
        with b.carton(source, cache=cache) as top:
            note('first open in the next mount: has a seal',
                 timing.open_and_read(f'{top}/model/big')[0])

    s = b.section(f'A {name} file of {mib} MiB')
    s.run(limits, cartonfs)
    s.row('first open: unpacks, verifies, keeps', limit_name)
    s.row('reading after that', 'reading the file beneath')
    s.row('second open and read', 'reading the file beneath')
    s.row('first open in the next mount: has a seal', 'sha256 in one thread')


def deflate(b):
    packed(b, data.DEFLATE, 'deflated', lambda plain: inflate_and_hash(plain + '.deflate'),
           'zlib and sha256, two threads')


def unzstd_and_hash(path):
    """The zstd program, and sha256 here: the limit for zstd."""
    with subprocess.Popen(['zstd', '-qdc', path], stdout=subprocess.PIPE) as p:
        fcntl.fcntl(p.stdout, fcntl.F_SETPIPE_SZ, MIB)
        timing.hash_file(p.stdout.fileno())


def zstd(b):
    if not shutil.which('zstd'):
        b.section('A zstd file').skipped.append('zstd is not installed')
        return
    packed(b, data.ZSTD, 'zstd', lambda plain: unzstd_and_hash(plain + '.zst'), 'zstd -dc | sha256')


def later(b):
    """Open and 4 KiB from the middle, in a mount that finds the seal of an earlier one."""
    sizes = [n for n in (8, 64, b.size // MIB) if n <= b.size // MIB]
    s = b.section('A later mount: open, and 4 KiB of a Stored file')
    names = {mib: (f'{mib} MiB, sealed', f'{mib} MiB, seals=off') for mib in sizes}

    def first_bytes(source, mib, cache, *options):
        with b.carton(source, cache=cache, options=options) as top:
            return timed(timing.pread_all, f'{top}/model/big', [mib * MIB // 2], 4096)

    def contest(mib):
        source, cache = b.large(data.STORED, mib)[0], b.path(f'later{mib}')
        first_bytes(source, mib, cache)

        def run(note):
            for name, options in zip(names[mib], ((), ('seals=off',))):
                note(name, first_bytes(source, mib, cache, *options))
        return run

    s.run(*[contest(mib) for mib in sizes])
    for sealed, off in names.values():
        s.row(sealed, off, 'as if nothing had been hashed')
    s.row(names[sizes[-1]][0], names[sizes[0]][0], 'the size does not matter')


def chunks(b):
    """A file that the chunk index lists, against one that is hashed before it opens."""
    mib = b.size // MIB
    plain, source = b.large(data.STORED, mib)[0], b.path('indexed.carton')
    ctl = os.path.join(b.args.build, 'cartonctl')
    subprocess.run([ctl, 'repack', '--chunk-index', plain, source], check=True, capture_output=True)

    def contest(name, *options):
        def run(note):
            with b.carton(source, options=('seals=off', *options)) as top:
                note(f'4 KiB in the middle, {name}',
                     timed(timing.pread_all, f'{top}/model/big', [mib * MIB // 2], 4096))
            with b.carton(source, options=('seals=off', *options)) as top:
                note(f'all of it in order, {name}', sum(timing.open_and_read(f'{top}/model/big')))
        return run

    s = b.section(f'Chunks: the first open and read of a Stored file of {mib} MiB')
    s.run(contest('with the index'), contest('chunks=off', 'chunks=off'))
    s.row('4 KiB in the middle, with the index', '4 KiB in the middle, chunks=off')
    s.row('all of it in order, with the index', 'all of it in order, chunks=off',
          'and then hashed once more, in the background')


def access(b):
    mib = b.size // MIB // 4
    source, plain = b.large(data.STORED, mib)
    n = 2000 if b.quick else 10000

    def reads(name, path, note, spread):
        # every page at most once, so that none of them is in the page cache of the mount
        pages = spread.sample(range(mib * MIB // 4096), 2 * n)
        note(f'{name}: random 4 KiB reads', timed(timing.pread_all, path,
             [p * 4096 for p in pages[:n]], 4096))
        note(f'{name}: the same again', timed(timing.pread_all, path,
             [p * 4096 for p in pages[:n]], 4096))
        return pages[n:]

    def beneath(note):
        timing.read_file(plain)
        pages = reads('beneath', plain, note, random.Random(3))
        note('beneath: mmap, random pages', timed(timing.touch_all, plain,
             [p * 4096 for p in pages]))

    def through(name, mount):
        def contest(note):
            with b.patience(name), mount() as top:
                path = f'{top}/model/big'
                timing.verify(path)
                pages = reads(name, path, note, random.Random(3))
            with b.patience(name), mount() as top:
                path = f'{top}/model/big'
                timing.verify(path)
                note(f'{name}: mmap, random pages', timed(timing.touch_all, path,
                     [p * 4096 for p in pages]))
        return contest

    s = b.section(f'Random access to a Stored file of {mib} MiB')
    tools = [through(k, lambda c=v: mounted(c, source, b.mnt)) for k, v in b.peers.items()]
    s.run(beneath, through('cartonfs', lambda: b.carton(source)), *tools)
    kinds = ('random 4 KiB reads', 'the same again', 'mmap, random pages')
    for what in kinds:
        s.row(f'cartonfs: {what}', f'beneath: {what}')
    for name in b.peers:
        for what in kinds:
            s.row(f'{name}: {what}', f'cartonfs: {what}')
