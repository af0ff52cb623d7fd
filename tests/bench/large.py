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
from timing import Skip, timed

MIB = 1 << 20
BLOCK = 512 << 10                       # that zlib gives at once


def lanes(b):
    """What sha256 of several streams costs, where the processor can take them at once."""
    program = os.path.join(b.args.build, 'tests/tools/sha256-rate')
    names = dict(evp='OpenSSL, one stream', one='one stream of ours', two='two streams at once', three='three streams at once')
    s = b.section('sha256 on one core, CPU time for as many bytes')
    if not os.access(program, os.X_OK):
        s.skipped.append(f'{program} is not there: make bench builds it')
        return

    def rates(note):
        b.conditions.say("bytes in the processor's cache")
        out = subprocess.run([program, str(b.pick(3072, 300, 30))], check=True, capture_output=True, text=True).stdout
        for name, seconds in map(str.split, out.splitlines()):
            note(names[name], float(seconds))

    s.run(rates)
    for name in ('one', 'two', 'three'):
        s.row(names[name], names['evp'])


def stored(b):
    source, plain = b.large(data.STORED, b.size // MIB)

    def limits(note):
        b.conditions.pages(plain, name='file')
        note('reading the file beneath', timed(timing.read_file, plain))
        note('sha256 in one thread', timed(timing.hash_file, plain))

    def cartonfs(note):
        with b.carton(source) as top:
            opened, read = timing.open_and_read(f'{top}/model/big')
            note('first open: verifies', opened)
            note('reading after that', read)
            note('first open and read', opened + read)
            note('second open and read', sum(timing.open_and_read(f'{top}/model/big')))

    def limits_cold(note):
        b.conditions.pages(plain, cached=False, name='file')
        note('sha256 in one thread, from the disk', timed(timing.hash_file, plain))

    def cold(note):
        with b.carton(source, cached=False) as top:
            note('first open and read, from the disk', sum(timing.open_and_read(f'{top}/model/big')))

    def peer(name, command):
        def contest(note):
            with b.patience(name), b.peer(command, source) as top:
                note(f'{name}, first read', sum(timing.open_and_read(f'{top}/model/big')))
                note(f'{name}, second read', sum(timing.open_and_read(f'{top}/model/big')))
        return contest

    s = b.section(f'A Stored file of {b.size // MIB} MiB')
    s.run(limits, cartonfs, *[limits_cold, cold] * b.args.cold, *[peer(k, v) for k, v in b.peers.items()])
    s.row('first open: verifies', 'sha256 in one thread')
    s.row('reading after that', 'reading the file beneath')
    s.row('first open and read', 'sha256 in one thread')
    s.row('second open and read', 'reading the file beneath')
    s.row('first open and read, from the disk', 'sha256 in one thread, from the disk')
    for name in b.peers:
        s.row(f'{name}, first read', 'first open and read', 'and verifies nothing')
        s.row(f'{name}, second read', 'second open and read')
    if not b.args.cold:
        s.skipped.append('reads of what is not in the page cache: --cold')


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
    mib = b.size // MIB // 2
    source, plain = b.large(method, mib)
    body = f'{plain}.{method}'

    def limits(note):
        b.conditions.pages(plain, body, name='files')
        note(limit_name, timed(limit, body))
        note('sha256 in one thread', timed(timing.hash_file, plain))
        note('reading the file beneath', timed(timing.read_file, plain))

    def cartonfs(note):
        cache = b.new_cache()
        with b.carton(source, cache=cache) as top:
            opened, read = timing.open_and_read(f'{top}/model/big')
            note('first open: unpacks, verifies, keeps', opened)
            note('reading after that', read)
            note('first open and read', opened + read)
            note('second open and read', sum(timing.open_and_read(f'{top}/model/big')))
        with b.carton(source, cache=cache) as top:
            note('open in the next mount: has a seal', timing.open_and_read(f'{top}/model/big')[0])

    s = b.section(f'A {name} file of {mib} MiB')
    s.run(limits, cartonfs)
    s.row('first open: unpacks, verifies, keeps', limit_name)
    s.row('first open and read', limit_name)
    s.row('reading after that', 'reading the file beneath')
    s.row('second open and read', 'reading the file beneath')
    s.row('open in the next mount: has a seal', 'sha256 in one thread')


def deflate(b):
    packed(b, data.DEFLATE, 'deflated', inflate_and_hash, 'zlib and sha256, two threads')


def unzstd_and_hash(path):
    """The zstd program, and sha256 here: the limit for zstd."""
    with subprocess.Popen(['zstd', '-qdc', path], stdout=subprocess.PIPE) as p:
        fcntl.fcntl(p.stdout, fcntl.F_SETPIPE_SZ, MIB)
        timing.hash_file(p.stdout.fileno())


def zstd(b):
    if not shutil.which('zstd'):
        b.section('A zstd file').skipped.append('zstd is not installed')
        return
    packed(b, data.ZSTD, 'zstd', unzstd_and_hash, 'zstd -dc | sha256')


def chunks(b):
    """A file that the chunk index lists, against one that is hashed before it opens."""
    mib = b.size // MIB
    plain, source = b.large(data.STORED, mib)[0], b.path('indexed.carton')
    subprocess.run(b.ctl('repack', '--chunk-index', plain, source), check=True, capture_output=True)

    def contest(name, *options):
        def run(note):
            with b.carton(source, options=('seals=off', *options)) as top:
                note(f'4 KiB in the middle, {name}',
                     timed(timing.pread_all, f'{top}/model/big', [mib * MIB // 2], 4096))
            with b.carton(source, options=('seals=off', *options)) as top:
                note(f'all of it in order, {name}', sum(timing.open_and_read(f'{top}/model/big')))
        return run

    s = b.section(f'Chunks: the first open and read of a Stored file of {mib} MiB')
    s.run(contest('with the index'), contest('verify=open', 'verify=open'))
    s.row('4 KiB in the middle, with the index', '4 KiB in the middle, verify=open')
    s.row('all of it in order, with the index', 'all of it in order, verify=open',
          'and then hashed once more, in the background')


def access(b):
    mib = b.size // MIB // 4
    source, plain = b.large(data.STORED, mib)
    n = b.pick(10000, 2000, 200)

    def reads(name, path, note, spread):
        # every page at most once, so that none of them is in the page cache of the mount
        pages = spread.sample(range(mib * MIB // 4096), 2 * n)
        b.conditions.say('verified, not read')
        note(f'{name}: random 4 KiB reads', timed(timing.pread_all, path,
             [p * 4096 for p in pages[:n]], 4096))
        b.conditions.say('just read')
        note(f'{name}: the same again', timed(timing.pread_all, path,
             [p * 4096 for p in pages[:n]], 4096))
        return pages[n:]

    def beneath(note):
        b.conditions.pages(plain, name='file')
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
                b.conditions.say('verified, not read')
                note(f'{name}: mmap, random pages', timed(timing.touch_all, path,
                     [p * 4096 for p in pages]))
        return contest

    s = b.section(f'Random access to a Stored file of {mib} MiB')
    tools = [through(k, lambda c=v: b.peer(c, source)) for k, v in b.peers.items()]
    s.run(beneath, through('cartonfs', lambda: b.carton(source)), *tools)
    kinds = ('random 4 KiB reads', 'the same again', 'mmap, random pages')
    for what in kinds:
        s.row(f'cartonfs: {what}', f'beneath: {what}', count=n)
    for name in b.peers:
        for what in kinds:
            s.row(f'{name}: {what}', f'cartonfs: {what}')


def passthrough(b):
    """What the kernel reads by itself from the cache, once it was decoded."""
    mib = b.size // MIB // 2
    s = b.section(f'Passthrough: a zstd file of {mib} MiB, read again')
    if not shutil.which('zstd'):
        s.skipped.append('zstd is not installed')
        return
    source, plain = b.large(data.ZSTD, mib)

    def beneath(note):
        b.conditions.pages(plain, name='file')
        note('the file beneath', timed(timing.read_file, plain))

    def cartonfs(note):
        with b.carton(source, options=['passthrough']) as top, open(f'{top}/model/big', 'rb'):
            if os.getxattr(f'{top}/model/big', 'user.carton.passthrough') != b'yes':
                raise Skip('passthrough: not possible here (it needs root, libfuse 3.17 and Linux 6.9)')
            timing.read_file(f'{top}/model/big')
            b.conditions.say('just read')
            note('passthrough', timed(timing.read_file, f'{top}/model/big'))

    s.run(beneath, cartonfs)
    s.row('passthrough', 'the file beneath')
