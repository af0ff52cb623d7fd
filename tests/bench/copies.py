# SPDX-License-Identifier: Apache-2.0
"""
`cartonctl extract` and `pack` against programs that unpack or make a zip. Those compare a CRC; cartonctl compares
the sha256 of each file.
"""
import contextlib
import os
import random
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


TOML = "spec_version = 1\n[runner]\nrunner_name = 'x'\nrequired_framework_version = '=1'\nrunner_compat_version = 1\n"


def pack(b):
    """A directory of one large file of floats, one of random bytes, and some small ones."""
    mib = b.size // MIB // 4
    tree, out = b.path('unpacked'), b.path('packed')
    os.makedirs(f'{tree}/model/small')
    with open(f'{tree}/carton.toml', 'w') as f:
        f.write(TOML)
    shutil.copy(b.plain(mib)[0], f'{tree}/model/floats')
    with open(f'{tree}/model/random', 'wb') as f:
        for i in range(mib):
            f.write(random.Random(i).randbytes(MIB))
    for i in range(1000):
        with open(f'{tree}/model/small/{i}', 'w') as f:
            f.write(f'{i}\n' * 200)

    def made(name, *words):
        def contest(note):
            if not shutil.which(words[0]):
                raise Skip(f'{name}: not installed')
            with contextlib.suppress(FileNotFoundError):
                os.unlink(out)
            note(name, timed(subprocess.run, words, check=True, cwd=tree, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL))
        return contest

    ctl = os.path.join(os.path.dirname(b.cartonfs), 'cartonctl')
    zip7 = shutil.which('7zz') or '7z'
    s = b.section(f'Making a carton of two files of {mib} MiB and 1000 small ones')
    copy = 'cp -r . "$1" && sync -f "$1" && rm -r "$1"'
    s.run(*[made(f'pack --compress={how}', ctl, 'pack', f'--compress={how}', '.', out)
            for how in ('store', 'auto', 'zstd')],
          made('cp -r, and sync', 'sh', '-c', copy, 'sh', out),
          made('zip -0', 'zip', '-qr0', out, '.'), made('zip -6', 'zip', '-qr6', out, '.'),
          made('7z, deflated', zip7, 'a', '-tzip', '-bd', '-mx=5', out, '.'))
    s.row('pack --compress=store', 'cp -r, and sync', 'hashes it, and reads it again to verify it')
    for how in ('store', 'auto', 'zstd'):
        s.row(f'pack --compress={how}', 'zip -0' if how == 'store' else 'zip -6')
    s.row('pack --compress=zstd', '7z, deflated', '7-Zip does not write zstd')
