# SPDX-License-Identifier: Apache-2.0
"""
Many small files, and views of tensors.
"""
import json
import os
import shutil

import data
import timing
from timing import Skip, timed

MIB = 1 << 20


def many(b):
    count, part = b.pick(100000, 20000, 2000), b.pick(10000, 2000, 1000)
    dirs, limit = part // data.PER_DIR, 5 if b.quick else 30
    source, tree = b.path('small.carton'), b.path('tree')
    b.say(f'writing {count} files')
    data.write_small(source, count)
    by_tar = [f'model/d{i:03}' for i in range(dirs)]
    by_cat = [f'model/d{i:03}' for i in range(dirs, 2 * dirs)]
    tar = 'top=$1; shift; tar -C "$top" -cf - "$@" | cat'
    cat = 'cd "$1"; shift; find "$@" -type f -print0 | xargs -0 cat'

    def run(what, note, command, *words):
        try:
            note(what, timed(timing.shell, command, *words, timeout=limit))
        except Skip as e:
            raise Skip(f'{what}: {e}') from None

    def reads(name, top, note):
        for how, command, paths in (('tar', tar, by_tar), ('cat', cat, by_cat)):
            for turn in ('first', 'second'):
                run(f'{name}, {part} by {how}, {turn} time', note, command, top, *paths)

    def tool(name, mount):
        def contest(note):
            with mount(lambda s: note(f'{name}, mount', s)) as top:
                run(f'{name}, ls -lR', note, 'ls -lR "$1"', top)
                reads(name, top, note)
        return contest

    def unzipped(note):
        b.conditions.pages(*(os.path.join(where, f) for where, _, names in os.walk(tree) for f in names),
                           name='files')
        reads('unzipped', tree, note)

    def unzip(note):
        b.conditions.pages(source)
        note('unzip -l', timed(timing.shell, 'unzip -l "$1"', source))
        run(f'unzip -p of {part}', note, 'c=$1; shift; unzip -p "$c" "$@" | cat', source, *[d + '/*' for d in by_tar])

    s = b.section(f'{count} files of 1 KiB, deflated; {part} of them read')
    if not shutil.which('unzip'):
        s.skipped.append('files beneath: unzip is not installed')
        return
    timing.shell('c=$1 d=$2; shift 2; unzip -q "$c" "$@" -d "$d"', source, tree,
                 *[d + '/*' for d in by_tar + by_cat])
    tools = [tool('cartonfs', lambda note: b.carton(source, note))]
    for name, command in b.peers.items():
        tools.append(tool(name, lambda note, c=command: b.peer(c, source, note)))
    s.run(unzip, unzipped, *tools)
    s.row('cartonfs, mount', 'unzip -l')
    s.row('cartonfs, ls -lR', 'unzip -l')
    s.row(f'cartonfs, {part} by tar, first time', f'unzip -p of {part}')
    for name in ['cartonfs', *b.peers]:
        for how in ('tar', 'cat'):
            for turn in ('first', 'second'):
                s.row(f'{name}, {part} by {how}, {turn} time', f'unzipped, {part} by {how}, second time')
    for name in b.peers:
        for what in ('mount', 'ls -lR', f'{part} by tar, first time',
                     f'{part} by tar, second time'):
            s.row(f'{name}, {what}', f'cartonfs, {what}')


def signed(b):
    """What it costs that a mount has to be signed: nothing is hashed for that but the signature's own list."""
    count = b.pick(100000, 20000, 2000)
    source, key, public = (b.path(f'signed.{end}') for end in ('carton', 'pem', 'pub'))
    b.say(f'writing {count} files')
    data.write_small(source, count)
    timing.shell('umask 077; openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; '
                 'openssl pkey -in "$1" -pubout -out "$2"', key, public)

    def mount(what, *options):
        def contest(note):
            with b.carton(source, lambda seconds: note(what, seconds), options=options):
                pass
        return contest

    def sign(note):
        b.conditions.pages(source)
        command = ' '.join(b.ctl('sign', f'--key={key}', source))
        note('cartonctl sign', timed(timing.shell, command))

    sign(lambda what, seconds: None)
    s = b.section(f'A signed carton of {count} files')
    s.run(mount('mount'), mount('mount with verify_key', f'verify_key={public}'), sign)
    s.row('mount with verify_key', 'mount')
    s.row('cartonctl sign', 'mount')
    b.remove(source)


def views(b):
    mib, count = b.size // MIB // 4, b.pick(10000, 1000, 100)
    plain, what = b.plain(mib)
    source = b.path('tensors.carton')
    data.write_tensors(source, plain, what, count)
    big = {'the plain file': 'tensor_data/tensor_big.bin', 'its .bin': 'views/tensor_data/big.bin',
           'its .npy': 'views/tensor_data/big.npy',
           'all as .safetensors': 'views/tensor_data.safetensors'}

    def reading(first):
        names = list(big)[first:] + list(big)[:first]

        def contest(note):
            with b.carton(source) as top:
                for path in big.values():       # what is timed is reading, not verifying
                    timing.verify(f'{top}/{path}')
                b.conditions.say('verified, not read')
                for name in names:
                    note(f'reading {name}', timed(timing.read_file, f'{top}/{big[name]}'))
        return contest

    def listing(note):
        with b.carton(source) as top:
            note('ls -l of the plain files', timed(timing.walk, f'{top}/tensor_data'))
            note('ls -l of the views, first time', timed(timing.walk, f'{top}/views/tensor_data'))
            note('ls -l of the plain files, again', timed(timing.walk, f'{top}/tensor_data'))
            note('ls -l of the views, again', timed(timing.walk, f'{top}/views/tensor_data'))

    tensors = 10 * count
    file = b.path('safetensors.carton')
    header = data.write_safetensors(file, tensors)

    def header_list(note):
        b.conditions.say('in memory')
        note('json.loads of the header', timed(json.loads, header))
        with b.carton(file) as top:
            b.conditions.say('verified')
            timing.verify(f'{top}/model/w.safetensors')
            note('ls of the views, first time', timed(os.listdir, f'{top}/views/model/w.safetensors'))

    s = b.section(f'Views: a tensor of {mib} MiB, and {count} small ones')
    turns = iter(range(b.rounds))
    s.run(lambda note: reading(next(turns) % len(big))(note), listing)
    for name in list(big)[1:]:
        s.row(f'reading {name}', 'reading the plain file')
    s.row('ls -l of the views, first time', 'ls -l of the plain files', 'two views of each')
    s.row('ls -l of the views, again', 'ls -l of the plain files, again', 'two views of each')

    s = b.section(f'Views: a safetensors file with {tensors} tensors')
    s.run(header_list)
    s.row('ls of the views, first time', 'json.loads of the header', 'two views of each')
