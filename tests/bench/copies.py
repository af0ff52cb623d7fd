# SPDX-License-Identifier: Apache-2.0
"""
`cartonctl extract` and `pack` against programs that unpack or make a zip. Those compare a CRC; cartonctl compares
the sha256 of each file.
"""
import os
import random
import shutil
import subprocess

import data
from timing import Skip, timed

MIB = 1 << 20


def run(*words, cwd=None):
    subprocess.run(words, check=True, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)


def contestant(b, name, command, out, source, cwd=None):
    """
    command() is what to run; what it writes is at `out`, where it finds nothing. `source` is (what it reads, the paths
    of this, what else is so).
    """
    def contest(note):
        remove(out)
        b.conditions.begin()            # what was removed needs no time of this one
        words = command()
        if not shutil.which(words[0]):
            raise Skip(f'{name}: {words[0]} is not installed')
        b.conditions.pages(*source[1], name=source[0])
        b.conditions.say(source[2])
        note(name, timed(run, *words, cwd=cwd))
    return contest


# ---- reading a carton ----

def extract(b):
    """Files of other content each, and an empty cache: each program decodes all of them."""
    files, mib, small = b.pick(16, 4, 2), b.pick(32, 8, 1), b.pick(20000, 2000, 200)

    for what, carton, make in (
            (f'{files} files of {mib} MiB, deflated', b.path('large-ones.carton'),
             lambda p: data.write_several(p, b.path('extract'), mib, [data.DEFLATE] * files)),
            (f'{small} files of 1 KiB, deflated', b.path('small-ones.carton'),
             lambda p: data.write_small(p, small))):
        for plain in make(carton) or ():
            os.unlink(plain)
        out = b.path('extracted')
        s = b.section(f'A copy on disk of {what}')

        def by(name, command):
            kept = 'cache empty, ' if name.startswith('cartonctl') else ''
            return contestant(b, name, command, out, ('carton', [carton], kept + 'not synced'))

        s.run(by('cartonctl extract', lambda: b.ctl('extract', carton, out)),
              by('cartonctl extract --seals=off', lambda: b.ctl('extract', '--seals=off', carton, out)),
              by('unzip', lambda: ['unzip', '-qo', carton, '-d', out]),
              by('bsdtar', lambda: os.mkdir(out) or ['bsdtar', '-xf', carton, '-C', out]),
              by('7zz', lambda: [shutil.which('7zz') or '7z', 'x', '-bd', '-y', f'-o{out}', carton]))
        for peer in ('unzip', 'bsdtar', '7zz'):
            s.row('cartonctl extract', peer, 'which compares CRCs only, in one thread')
        s.row('cartonctl extract', 'cartonctl extract --seals=off')
        os.unlink(carton)


# ---- making one ----

def write_tree(b, tree, mib):
    """A directory of one large file of floats, one of random bytes, and some small ones; all paths."""
    os.makedirs(f'{tree}/model/small')
    with open(f'{tree}/carton.toml', 'wb') as f:
        f.write(data.TOML)
    shutil.copy(b.plain(mib)[0], f'{tree}/model/floats')
    with open(f'{tree}/model/random', 'wb') as f:
        for i in range(mib):
            f.write(random.Random(i).randbytes(MIB))
    for i in range(b.pick(1000, 1000, 100)):
        with open(f'{tree}/model/small/{i}', 'w') as f:
            f.write(f'{i}\n' * 200)
    return [os.path.join(where, f) for where, _, names in os.walk(tree) for f in names]


def pack(b):
    """All have written their file to the disk when they end, as pack has."""
    mib = b.size // MIB // 4
    tree, out = b.path('unpacked'), b.path('packed')
    paths = write_tree(b, tree, mib)

    def made(name, *words):
        def command():
            return ['sh', '-c', '"$@" && sync -f .', 'sh', *(words or b.ctl('pack', name.split()[1], '.', out))]
        return contestant(b, name, command, out, ('source', paths, 'synced'), tree)

    zip7 = shutil.which('7zz') or '7z'
    s = b.section(f'Making a carton of two files of {mib} MiB and 1000 small ones')
    s.run(*[made(f'pack --compress={how}') for how in ('store', 'auto', 'zstd')],
          made('cp -r', 'cp', '-r', '.', out),
          *[made(f'zip -{n}', 'zip', f'-qr{n}', out, '.') for n in (0, 6) if shutil.which('zip')],
          *[made('7z, deflated', zip7, 'a', '-tzip', '-bd', '-mx=5', out, '.')] * bool(shutil.which(zip7)))
    s.row('pack --compress=store', 'cp -r', 'hashes it, and reads it again to verify it')
    for how in ('store', 'auto', 'zstd'):
        s.row(f'pack --compress={how}', 'zip -6' if how == 'zstd' else 'zip -0', 'in one thread')
    s.row('pack --compress=zstd', '7z, deflated', '7-Zip does not write zstd')
