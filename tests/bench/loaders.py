# SPDX-License-Identifier: Apache-2.0
"""
What programs do that load a model: tensors copied out of a mapping in any order, by one process or
several; O_DIRECT reads of large blocks, by several at once. The file is verified before.
"""
import mmap
import os
import random

import conditions
import data
import patterns
import timing
from timing import timed

MIB = 1 << 20
TENSOR = 16 * MIB


def copy_tensors(path, offsets):
    with open(path, 'rb') as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
        for off in offsets:
            bytes(memoryview(m)[off + timing.ASIDE:off + TENSOR])
            timing.check_patience()


def read_direct(path, offsets):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with mmap.mmap(-1, MIB) as block:
        for off in offsets:
            for at in range(off, off + TENSOR, MIB):
                os.preadv(fd, [block], at)
                timing.check_patience()
    os.close(fd)


def in_processes(n, fn, path, offsets):
    """Each of `n` processes does a part."""
    timing.processes(n, lambda i: fn(path, offsets[i::n]))


def loaders(b):
    mib = b.size // MIB // 2
    source, plain = b.large(data.STORED, mib)
    offsets = list(range(0, mib * MIB, TENSOR))
    random.Random(5).shuffle(offsets)
    ways = [('tensors from a mapping', copy_tensors, (1, 4)),
            ('O_DIRECT, 1 MiB blocks', read_direct, (1, 4, 8))]

    def reads(name, path, note):
        for what, fn, counts in ways:
            for n in counts:
                conditions.drop(path)
                b.conditions.say('verified, not in the page cache of the mount')
                note(f'{name}: {what}, {n} at once', timed(in_processes, n, fn, path, offsets))

    def beneath(note):
        b.conditions.pages(plain, name='file')
        for what, fn, counts in ways[:1]:
            for n in counts:
                note(f'beneath: {what}, {n} at once', timed(in_processes, n, fn, plain, offsets))

    def through(name, mount):
        def contest(note):
            with b.patience(name), mount() as top:
                timing.verify(f'{top}/model/big')
                reads(name, f'{top}/model/big', note)
        return contest

    s = b.section(f'Loading 16 MiB tensors of a Stored file of {mib} MiB, in any order')
    tools = [through(k, lambda c=v: b.peer(c, source)) for k, v in b.peers.items()]
    s.run(beneath, through('cartonfs', lambda: b.carton(source)), *tools)
    for what, _, counts in ways:
        for n in counts:
            row = f'{what}, {n} at once'
            s.row(f'cartonfs: {row}', f'beneath: {row}')
            for name in b.peers:
                s.row(f'{name}: {row}', f'cartonfs: {row}')
    patterns.patterns(b)
