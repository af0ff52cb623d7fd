# SPDX-License-Identifier: Apache-2.0
"""
The rows of the section net: what is read through a link, and when the server is not well.
"""
import concurrent.futures
import contextlib
import os
import re
import shutil
import subprocess

import data
import loaders
import net
import timing
from net import Contest
from timing import Skip

MIB = 1 << 20
BIG = 'model/big'
HOSTS = ('mount --make-rprivate / && mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/resolv.conf && '
         'shift 2 && exec "$@"')


def mount_and(n, path, fn, options=(), cache=None):
    """For a Contest: mounts, then measures fn(top)."""
    def run(link):
        with n.b.carton(n.at(path), options=options, cache=cache) as top, link.timed():
            return fn(top)
    return run


def read_big(top):
    timing.read_file(f'{top}/{BIG}')


def program(n, command, path, *args):
    """For a Contest: a shell command with the URL as $1, and the path of what it may write as $2."""
    def run(link):
        if not shutil.which(command.split()[0]):
            raise Skip('not installed')
        out = n.b.path('fetched')
        try:
            with link.timed():
                timing.shell(command, n.at(path), out, *args)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(out)
    return run


def peers(n, path, size, rtt=50):
    commands = {'curl': 'curl -sf -o "$2" "$1"',
                'aria2c': 'aria2c -q --no-conf -x8 -s8 -k1M --file-allocation=none -d / -o "$2" "$1"',
                'rclone': 'rclone --config= --multi-thread-streams=8 --multi-thread-cutoff=1M copyto '
                          '--http-url="${1%/*}" ":http:${1##*/}" "$2"'}
    return [Contest(f'{name}, {rtt:g} ms', program(n, command, path), size, rtt) for name, command in commands.items()]


def cartonctl(n, *words):
    """The command line, with an empty cache, which is the condition."""
    line = n.b.ctl(*words)
    n.b.conditions.cache(line[2].partition('=')[2])
    return line


# ---- one large file ----

def sequence(n):
    mib = n.b.pick(1024, 512, 12)
    n.b.say('cartons')
    plain, index = n.large(mib, False), n.large(mib, True)
    rtt = n.rtt(50)
    n.group(f'{mib} MiB in sequence', plain,
            Contest('mount, no index', mount_and(n, plain, read_big), mib * MIB, rtt),
            Contest('mount, chunk index', mount_and(n, index, read_big), mib * MIB, rtt),
            *peers(n, plain, mib * MIB, rtt))


def distance(n):
    mib = n.b.pick(256, 256, 12)
    for ms in n.b.pick((20, 50, 100), (20, 50, 100), (50,)):
        plain, index, rtt = n.large(mib, False), n.large(mib, True), n.rtt(ms)
        n.group(f'{mib} MiB at {rtt:g} ms', plain,
                Contest(f'mount, no index, {rtt:g} ms', mount_and(n, plain, read_big), mib * MIB, rtt),
                Contest(f'mount, chunk index, {rtt:g} ms', mount_and(n, index, read_big), mib * MIB, rtt),
                *peers(n, plain, mib * MIB, rtt)[:1])


def ranges(n, path, at, size, count):
    """For a Contest: what the link gives to a client that knows all it wants: `count` requests at once."""
    part = size // count
    command = ''.join(f'curl -sf -r {at + k * part}-{at + (k + 1) * part - 1} -o "$2.{k}" "$1" & ' for k in range(count))
    return program(n, f'{command}wait; stat -c %s "$2".* | awk \'{{ n += $1 }} END {{ exit n != {size} }}\' && rm "$2".*',
                   path)


def tensor(n):
    mib, size = n.b.pick(256, 256, 12), n.b.pick(16, 16, 2) * MIB
    index, at, rtt = n.large(mib, True), mib // 4 * MIB, n.rtt(50)

    def one(top):
        net.read_pieces(f'{top}/{BIG}', size, at=at)

    n.group(f'A tensor of {size // MIB} MiB in reads of 1 MiB, of {mib} MiB with an index', index,
            Contest('one tensor', mount_and(n, index, one), size, rtt),
            *(Contest(f'curl, {k} range{"s at once" * (k > 1)}', ranges(n, index, at, size, k), size, rtt) for k in (1, 8, 16)))


def tensors(n):
    mib, size = n.b.pick(256, 256, 12), n.b.pick(16, 16, 1) * MIB
    index = n.large(mib, True)
    offsets = range(0, mib * MIB, mib // 8 * MIB)[:8]

    def by_threads(top):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda at: net.read_pieces(f'{top}/{BIG}', size, at=at), offsets))

    def by_processes(top):
        loaders.in_processes(8, lambda path, own: [net.read_pieces(path, size, at=at) for at in own], f'{top}/{BIG}',
                             offsets)

    n.group(f'8 tensors of {size // MIB} MiB at once, of {mib} MiB with an index', index,
            Contest('8 threads', mount_and(n, index, by_threads), 8 * size, n.rtt(50)),
            Contest('8 processes', mount_and(n, index, by_processes), 8 * size, n.rtt(50)))


def cold(n):
    mib = n.b.pick(1024, 512, 12)
    index = n.large(mib, True)

    def read(at):
        return mount_and(n, index, lambda top: net.read_pieces(f'{top}/{BIG}', 4096, 4096, at=at))

    n.group(f'Open and 4 KiB of {mib} MiB with an index', index,
            Contest('at its start', read(0), 4096, n.rtt(50)),
            Contest('in its middle', read(mib // 2 * MIB), 4096, n.rtt(50)))


def shards(n):
    count, mib = n.b.pick(30, 30, 3), n.b.pick(16, 16, 1)
    paths = [n.b.path(f'shards{"i" * index}.carton') for index in (False, True)]
    for index, path in enumerate(paths):
        if not os.path.exists(path):
            n.b.say(f'writing {count} shards')
            data.write_shards(path, count, mib, bool(index))

    def all_of(top):
        for i in range(count):
            timing.read_file(f'{top}/model/{i:02}')

    n.group(f'{count} shards of {mib} MiB, one after the other', paths[0],
            Contest('shards, no index', mount_and(n, paths[0], all_of), count * mib * MIB, n.rtt(50)),
            Contest('shards, chunk index', mount_and(n, paths[1], all_of), count * mib * MIB, n.rtt(50)))


def node(n):
    count, mib = n.b.pick(20, 20, 3), n.b.pick(256, 256, 12)
    index = n.large(mib, True)

    def run(link):
        cache = n.b.new_cache()
        n.b.conditions.cache(cache)
        with contextlib.ExitStack() as stack:
            tops = [stack.enter_context(timing.mounted([n.b.cartonfs, '-o', f'cache_dir={cache}'], n.at(index),
                                                       n.b.path(f'node{i}'))) for i in range(count)]
            pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(count))
            with link.timed():
                list(pool.map(read_big, tops))
            return dict(disk=used(cache))

    n.group(f'{count} mounts of one node, one cache, all read {mib} MiB with an index', index,
            Contest(f'{count} mounts', run, mib * MIB, n.rtt(50)))


def used(path):
    """Bytes on the disk; files may vanish meanwhile."""
    total = 0
    for where, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(where, name)).st_blocks * 512
    return total


# ---- many small files ----

def small_carton(n):
    """(path, bytes in it)"""
    count = n.b.pick(1000, 1000, 100)
    path = n.b.path('netsmall.carton')
    if not os.path.exists(path):
        data.write_sized(path, count)
    return path, count, os.path.getsize(path)


def small(n):
    path, count, size = small_carton(n)
    rtt = n.rtt(50)

    def tar(top):
        timing.shell('tar -C "$1" -cf - . | cat', top)

    def cat(top):
        timing.shell('cd "$1" && find model -type f -print0 | xargs -0 -P 16 -n 64 cat', top)

    def ctl(*words):
        def run(link):
            line = cartonctl(n, *words)
            with link.timed():
                subprocess.run(line, check=True, capture_output=True)
        return run

    def extract(link):
        # small files are not removed: see conditions.remove_large()
        ctl('extract', n.at(path), n.b.path(f'extracted{n.b.conditions.n}'))(link)

    n.group(f'{count} files of {size / MIB:.2g} MiB together', path,
            Contest('tar of the mount', mount_and(n, path, tar), size, rtt),
            Contest('16 cat of the mount', mount_and(n, path, cat), size, rtt),
            Contest('cartonctl extract', extract, size, rtt),
            Contest('cartonctl fetch', ctl('fetch', n.at(path)), size, rtt), *peers(n, path, size, rtt)[:1])


def files(n):
    """As many descriptors as many systems allow. cartonctl names each file that fails."""
    path, count, size = small_carton(n)
    linked = n.b.path('netlinks.carton')
    if not os.path.exists(linked):
        data.write_linked(linked, n.b.path('linked'), n.url + '/linked', count)

    def fetch(source):
        def run(link):
            line = cartonctl(n, 'fetch', '--private-links', source)
            with link.timed():
                p = subprocess.run(['sh', '-c', 'ulimit -n 1024; exec "$@"', 'sh', *line], capture_output=True,
                                   text=True)
            return dict(failed=len({m for m in re.findall(r'model/\w+', p.stderr)}) or p.returncode)
        return run

    n.group(f'cartonctl fetch of {count} files, at most 1024 descriptors', path,
            Contest('of the carton', fetch(n.at(path)), size, n.rtt(50)),
            Contest('of LINKS', fetch(linked), size, n.rtt(50)))


# ---- servers that are not well ----

def outages(n, title, path, size, modes):
    """modes: (what, seconds, a context with the link in which the server is not well)"""
    rtt = n.rtt(50)

    def mount(mode):
        def run(link):
            with mode(link), link.timed(), n.b.carton(n.at(path)) as top:
                read_big(top)
        return run

    def read(mode):
        def run(link):
            with n.b.carton(n.at(path)) as top, mode(link), link.timed():
                read_big(top)
        return run

    n.group(title, path, *(Contest(f'{name}, {what} for {s:g} s', kind(mode), size, rtt, late=s)
                           for what, s, mode in modes for name, kind in (('mount and read', mount), ('read', read))),
            rounds=min(2, n.b.rounds))


def sick(n):
    path = n.large(1, False)
    modes = [(f'status {status}', s, lambda link, status=status, s=s: n.sick(status, s))
             for s in n.b.pick((2, 5, 15), (2, 5, 15), (.3,)) for status in (503, 429)]
    outages(n, 'A server that is overloaded for a while', path, MIB, modes)


def gone(n):
    path, s = n.large(1, False), n.b.pick(6, 6, .3)

    @contextlib.contextmanager
    def away(link):
        link.down()
        with net.after(s, link.up):
            yield

    outages(n, 'A server that is down for a while', path, MIB, [('down', s, away)])


def name(n):
    """cartonctl, in a mount namespace with its own /etc/hosts."""
    path, s = n.large(1, False), n.b.pick(3, 3, .3)
    hosts, resolv = n.b.path('hosts'), n.b.path('resolv.conf')

    def write(known):
        with open(hosts, 'r+' if os.path.exists(hosts) else 'w') as f:      # the file that is mounted stays
            f.truncate(0)
            f.write('127.0.0.1 localhost' + ' carton.test' * known + '\n')

    def run(link):
        if not timing.IS_ROOT:
            raise Skip('needs root')
        with open(resolv, 'w') as f:
            f.write('nameserver 127.0.0.1\noptions attempts:1\n')
        write(False)
        line = cartonctl(n, 'cat', n.at(path).replace('127.0.0.1', 'carton.test'), BIG)
        with net.after(s, write, True), link.timed():
            p = subprocess.run(['unshare', '--mount', 'sh', '-c', HOSTS, 'sh', hosts, resolv, *line], check=True,
                               capture_output=True)
        if len(p.stdout) != MIB:
            raise OSError(f'{len(p.stdout)} bytes')

    n.group('A name that is not known for a while', path,
            Contest(f'cartonctl cat, no such name for {s:g} s', run, MIB, n.rtt(50), late=s),
            rounds=min(2, n.b.rounds))


def mirrors(n):
    mib = n.b.pick(256, 64, 4)
    path, (plain, what) = n.large(mib, False), n.b.plain(mib)
    for where in ('good', 'bad'):
        os.makedirs(n.b.path(where), exist_ok=True)
        copy = n.b.path(f'{where}/{what[2]}')
        if not os.path.exists(copy):
            shutil.copy(plain, copy)
            if where == 'bad':
                spoil(copy, mib * MIB // 2)
    options = [f'mirror={n.url}/{where}/{{sha256}}' for where in ('bad', 'good')]
    n.group(f'Two mirrors of {mib} MiB without an index, one byte of the first is wrong', path,
            Contest('bad mirror, good mirror', mount_and(n, path, read_big, options), mib * MIB, n.rtt(50)),
            Contest('good mirror', mount_and(n, path, read_big, options[1:]), mib * MIB, n.rtt(50)))


def spoil(path, at):
    with open(path, 'r+b') as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 1]))


ROWS = dict(sequence=sequence, distance=distance, tensor=tensor, tensors=tensors, cold=cold, shards=shards, node=node,
            small=small, files=files, sick=sick, gone=gone, name=name, mirrors=mirrors)


def rows(b):
    """The section: those of --row, or all."""
    try:
        n = net.Net(b)
    except Skip as e:
        b.section('A carton behind a link').skipped.append(str(e))
        return
    try:
        for word in b.args.row or ROWS:
            ROWS[word](n)
    finally:
        n.end()
