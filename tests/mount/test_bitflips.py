# SPDX-License-Identifier: Apache-2.0
"""
Flips at every byte of small cartons, and every truncation: the answer is always an error or the
right bytes. One `cartonctl cat` a flip, which reads through the same core as a mount.
"""
import concurrent.futures
import os
import subprocess

import pytest

from harness import CARTONCTL, SLOW, ctl, environment
from zipwriter import Carton

MASKS = (0x01, 0x80, 0xff)
TOML = b"spec_version = 1\n"           # short: each byte is tried
WORKERS = 2


def small(kind):
    c = Carton(TOML, method='stored')
    c.add('model/s', b'stored bytes')
    c.add('model/d', b'deflate' * 12, method='deflate')
    c.add('model/z', b'zstd' * 20, method='zstd')
    if kind == 'descriptors':
        for form, path in (('sig', 'model/s'), ('nosig', 'model/d'), ('sig', 'model/z')):
            c.change(path, descriptor=form)
        c.zip.comment = b'comment'
        c.symlink('l', 'model/z')
    if kind == 'zip64':
        c.zip.zip64_end = True
        for path, e in c.entries.items():
            e.zip64 = True
        c.change('model/z', descriptor='sig64')
    return c


def owner(c, pos, paths):
    """The file whose bytes `pos` belongs to; those of no file take turns."""
    for path in paths:
        p = c.placed.get(path)
        if p and (p.local <= pos < p.end or p.central <= pos < p.central + 46 + len(path)):
            return path
    return paths[pos % len(paths)]


def cat(source, path):
    """(exit code, what it printed); the path goes through a directory, so no shell is needed."""
    p = subprocess.Popen([CARTONCTL, 'cat', source, path], stdin=subprocess.DEVNULL, env=ENV,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out = p.communicate(timeout=30 * SLOW)[0]
    return p.returncode, out


ENV = environment()


def judge(good, jobs, work):
    """Runs (label, bytes, path) jobs; every answer must be an error or `good[path]`."""
    wrong, right = [], 0

    def one(job):
        label, data, path = job
        name = f'{work}/{label}'
        with open(name, 'wb') as f:
            f.write(data)
        code, out = cat(name, path)
        os.unlink(name)
        return label, path, code, out
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for label, path, code, out in pool.map(one, jobs):
            if code == 0 and out == good[path]:
                right += 1
            elif code == 0:
                wrong.append(f'{label}: {path}: exit 0 with other bytes: {out[:60]!r}')
            elif code not in (1, 2, 32):
                wrong.append(f'{label}: {path}: ended with {code}')
            elif out:
                wrong.append(f'{label}: {path}: exit {code} after printing {out[:60]!r}')
    assert not wrong, '\n'.join(wrong[:40])
    return right


@pytest.mark.parametrize('kind', ['descriptors', 'zip64'])
def test_flips(work, kind):
    c = small(kind)
    source = c.write(work / 'm.carton')
    data, good = source.read_bytes(), c.files()
    paths = list(good)
    for path in paths:
        assert cat(source, path) == (0, good[path])

    def jobs():
        for pos in range(len(data)):
            for mask in MASKS:
                flipped = bytearray(data)
                flipped[pos] ^= mask
                yield f'{pos}-{mask:02x}', flipped, owner(c, pos, paths)
    total = len(data) * len(MASKS)
    right = judge(good, jobs(), work)
    # Most bytes mean something: only times, versions, attributes, comments may differ unseen.
    assert right < total / 3, f'{right} of {total} flips went unnoticed'


def test_truncations(work):
    c = small('descriptors')
    data, good = c.write(work / 'm.carton').read_bytes(), c.files()
    paths = list(good)
    right = judge(good, ((f'cut-{n}', data[:n], paths[n % len(paths)]) for n in range(len(data))),
                  work)
    assert right == 0


def test_bytes_put_in_and_taken_out(work):
    """One byte more or less at every place."""
    c = small('plain')
    data, good = c.write(work / 'm.carton').read_bytes(), c.files()
    paths = list(good)

    def jobs():
        for pos in range(len(data)):
            path = owner(c, pos, paths)
            yield f'more-{pos}', data[:pos] + b'\0' + data[pos:], path
            yield f'less-{pos}', data[:pos] + data[pos + 1:], path
    judge(good, jobs(), work)


def test_flips_of_stored_data_never_pass(work):
    """Every data byte of every method, each flip: an error, and verify names the file."""
    c = small('plain')
    source = c.write(work / 'm.carton')
    data = source.read_bytes()
    for path in ('model/s', 'model/d', 'model/z'):
        place = c.placed[path]
        flipped = bytearray(data)
        flipped[place.end - 1] ^= 4
        (work / 'f.carton').write_bytes(flipped)
        assert cat(work / 'f.carton', path)[0] != 0
        p = ctl('verify', work / 'f.carton')
        assert p.returncode == 1 and path in p.stdout + p.stderr


@pytest.mark.parametrize('mask', MASKS)
def test_flips_through_a_mount(mount, work, mask):
    """A handful of the same through the kernel: one byte of each file's data, then all are read."""
    c = small('descriptors')
    source = c.write(work / 'm.carton')
    data = bytearray(source.read_bytes())
    for path in ('model/s', 'model/d', 'model/z'):
        data[c.placed[path].data + 3] ^= mask
    source.write_bytes(data)
    with mount(source) as m:
        for path, good in c.files().items():
            error = m.error(path)
            assert error == 'EIO' or (not error and m.read(path) == good), path
            assert error or path not in ('model/s',)
