# SPDX-License-Identifier: Apache-2.0
"""
Flips at every byte of small cartons, and every truncation: the answer is always an error or the
right bytes. tests/tools/read-many.c reads each through the same core as a mount, all in one process; every
SAMPLE'th goes through `cartonctl cat` too, for its exit code and output.
"""
import subprocess

import pytest

from harness import CARTONCTL, SLOW, TOOLS, ctl, environment
from zipwriter import Carton

MASKS = (0x01, 0x80, 0xff)
TOML = b"spec_version = 1\n"           # short: each byte is tried
SAMPLE = 61


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
    """(exit code, what it printed)"""
    p = subprocess.run([CARTONCTL, 'cat', source, path], stdin=subprocess.DEVNULL, env=ENV,
                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60 * SLOW)
    return p.returncode, p.stdout


class ReadMany:
    """read(source, path) -> (0 or -errno, errors logged, content)"""

    def __init__(self):
        self.process = subprocess.Popen([TOOLS / 'read-many'], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env=ENV)

    def read(self, source, path):
        self.process.stdin.write(f'{source}\t{path}\n'.encode())
        self.process.stdin.flush()
        head = self.process.stdout.readline().split()
        assert head, f'read-many ended with {self.process.wait()} at {source} {path}'
        return int(head[0]), int(head[1]), self.process.stdout.read(int(head[2]))

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(60 * SLOW) == 0
        self.process.stdout.close()


ENV = environment()


@pytest.fixture
def check(work):
    """
    check(good, jobs): reads (label, carton, path) jobs. Every answer must be an error or
    `good[path]`; returns how many were good.
    """
    many = ReadMany()

    def fault(data, path, good):
        """What is wrong with the answer; '' if nothing, None if the content is good."""
        (work / 'x.carton').write_bytes(data)
        r, errors, content = many.read(work / 'x.carton', path)
        if r == 0:
            return None if content == good else f'other bytes: {content[:60]!r}'
        if content or not errors:
            return f'{r} after {errors} errors and {content[:60]!r}'
        return ''

    def sampled(data, path, good):
        code, out = cat(work / 'x.carton', path)
        if code == 0:
            return None if out == good else f'exit 0 with other bytes: {out[:60]!r}'
        return '' if code in (1, 2, 32) and not out else f'exit {code} after {out[:60]!r}'

    def run(good, jobs):
        wrong, right = [], 0
        for n, (label, data, path) in enumerate(jobs):
            answer = fault(data, path, good[path])
            if n % SAMPLE == 0 and not answer:
                same = sampled(data, path, good[path])
                answer = answer if same == answer else f'cartonctl cat: {same}'
            right += answer is None
            if answer:
                wrong.append(f'{label}: {path}: {answer}')
        assert not wrong, '\n'.join(wrong[:40])
        return right
    yield run
    many.end()


@pytest.mark.parametrize('kind', ['descriptors', 'zip64'])
def test_flips(work, check, kind):
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
    right = check(good, jobs())
    # Most bytes mean something: only times, versions, attributes, comments may differ unseen.
    assert right < total / 3, f'{right} of {total} flips went unnoticed'


def test_truncations(work, check):
    c = small('descriptors')
    data, good = c.write(work / 'm.carton').read_bytes(), c.files()
    paths = list(good)
    right = check(good, ((f'cut-{n}', data[:n], paths[n % len(paths)]) for n in range(len(data))))
    assert right == 0


def test_bytes_put_in_and_taken_out(work, check):
    """One byte more or less at every place."""
    c = small('plain')
    data, good = c.write(work / 'm.carton').read_bytes(), c.files()
    paths = list(good)

    def jobs():
        for pos in range(len(data)):
            path = owner(c, pos, paths)
            yield f'more-{pos}', data[:pos] + b'\0' + data[pos:], path
            yield f'less-{pos}', data[:pos] + data[pos + 1:], path
    check(good, jobs())


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
        assert p.returncode == 2 and path in p.stdout + p.stderr


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
