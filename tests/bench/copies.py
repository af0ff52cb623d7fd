# SPDX-License-Identifier: Apache-2.0
"""
`cartonctl extract` against programs that unpack a zip. Those compare a CRC; extract compares the sha256 of
each file.
"""
import os
import shutil
import subprocess

import data
from timing import Skip, timed

MIB = 1 << 20


def contestant(name, command, out=None):
    """A shell command; `out` is a directory that it makes, of which the next one finds nothing."""
    def contest(note):
        program = command.split()[0]
        if not shutil.which(program):
            raise Skip(f'{name}: {program} is not installed')
        if out:
            shutil.rmtree(out, ignore_errors=True)
            os.mkdir(out)
        note(name, timed(subprocess.run, command, shell=True, check=True, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL))
    return contest


def write(carton, files, mib, method):
    """`files` large files of one compression, and MANIFEST."""
    plain = f'{carton}.plain'
    what = data.write_plain(plain, mib * MIB)
    packed = plain
    if method != data.STORED:
        packed = f'{plain}.packed'
        data.deflated(plain, packed)
    w = data.Writer(carton)
    w.bytes('carton.toml', data.TOML, data.DEFLATE)
    for i in range(files):
        w.add(f'model/{i:02}', *what, data.chunks_of(packed), os.path.getsize(packed), method)
    w.close()


def copies(b):
    ctl = os.path.join(os.path.dirname(b.cartonfs), 'cartonctl')
    n, mib = (8, 8) if b.quick else (64, 32)
    small = 2000 if b.quick else 20000

    for what, carton, make in (
            (f'{n // 4} files of {mib} MiB, deflated', b.path('copies-deflate.carton'),
             lambda p: write(p, n // 4, mib, data.DEFLATE)),
            (f'{small} files of 1 KiB, deflated', b.path('copies-small.carton'),
             lambda p: data.write_small(p, small))):
        make(carton)
        out = b.path('extracted')
        s = b.section(f'A copy on disk of {what}')
        s.run(contestant('cartonctl extract', f'{ctl} extract --seals=off {carton} {out}', out),
              contestant('unzip', f'unzip -qo {carton} -d {out}', out),
              contestant('bsdtar', f'bsdtar -xf {carton} -C {out}', out))
        for peer in ('unzip', 'bsdtar'):
            s.row('cartonctl extract', peer, 'which compares CRCs only')
        os.unlink(carton)
