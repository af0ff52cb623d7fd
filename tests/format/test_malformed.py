# SPDX-License-Identifier: Apache-2.0
"""Every case of malformed.py is refused where and how it says; what may be accepted is."""
import hashlib
import io
import re
import unicodedata

import pytest

import zipwriter as zw
from harness import CARTONFS, ctl, eventually, expected, mountinfo, run, scan, unmount
from malformed import all_cases, base
from zipwriter import Carton, Entry

CASES = all_cases()


def says(text, case):
    """Does one line hold the reason and the entry's name?"""
    return any(re.search(case.regex, line, re.I) and (not case.entry or case.entry in line)
               for line in text.splitlines())


def refused(p, case):
    """Exit 32 with one line that says why; no crash, no second story."""
    assert p.returncode == 32, f'exit {p.returncode}: {p.stderr}'
    assert says(p.stderr, case), f'not said (/{case.regex}/, {case.entry}): {p.stderr}'
    assert not any(unicodedata.category(c) == 'Cc' for c in p.stderr if c != '\n')


def fails_at_open(m, case):
    """Only the victims fail, with an errno that is expected; at least one does."""
    victims = [case.entry] if case.entry else list(case.victims)
    good = case.carton.files()
    failed = 0
    for path in victims:
        got = m.error(path)
        assert got == '' or got in case.errors, f'{path}: {got}'
        if got:
            failed += 1
            eventually('the reason is logged', lambda: says(m.log(), case))
        else:
            assert m.read(path) == good[path]
    assert failed, f'{victims}: all of them can be read'
    for path, data in good.items():
        if path not in victims:
            assert m.read(path) == data, path


@pytest.mark.parametrize('case', CASES, ids=lambda c: c.name)
def test_malformed(case, work, point, mount_fg):
    source = case.make(work / ('source' if case.directory else 'm.carton'))
    if case.stage in ('mount', 'either'):
        where = point()
        p = run(CARTONFS, source, where)
        if case.stage == 'mount' or p.returncode == 32:
            try:
                refused(p, case)
                assert mountinfo(where) is None
            finally:
                if mountinfo(where):
                    unmount(where)
            return
        assert p.returncode == 0, p.stderr
        unmount(where)
    with mount_fg(source) as m:
        fails_at_open(m, case)


@pytest.mark.parametrize('case', [c for c in CASES if c.stage == 'mount'], ids=lambda c: c.name)
def test_cartonctl_agrees(case, work):
    """No other way in: cat and verify fail on what a mount refuses."""
    source = case.make(work / ('source' if case.directory else 'm.carton'))
    for args in (('verify', source), ('cat', source, 'model/c')):
        p = ctl(*args, text=False)
        assert p.returncode in (1, 2, 32), (args, p.returncode, p.stderr)
        assert p.stderr or p.stdout


# ---- accepted ----


def accept_descriptor(form):
    def change(c):
        for e in c.entries.values():
            e.descriptor, e.zip64 = form, form.endswith('64')
    return change


def fields(**kw):
    def change(c):
        for e in c.entries.values():
            for k, v in kw.items():
                setattr(e, k, v)
    return change


def manifest(fn, **entry):
    def change(c):
        c.manifest = fn(c.manifest_bytes())
        c.manifest_entry = entry
    return change


def own_unicode_path(c):
    for e in c.entries.values():
        e.central_extra = e.local_extra = zw.unicode_path_extra(e.raw_name(), e.raw_name())


def chain(n):
    def change(c):
        for i in range(n):
            c.symlink(f'misc/chain{i}', f'chain{i + 1}' if i < n - 1 else 'd')
    return change


def whole(**kw):
    return lambda c: c.zip.__dict__.update(kw)


def directories(c):
    c.directory('model').directory('misc').directory('empty')
    for method in ('deflate', 'zstd'):
        c.directory(f'empty/{method}', method=method)
    c.reorder = lambda entries: entries[::-1]


def text(extra, old=b'', new=b''):
    return lambda c: c.change('carton.toml', data=zw.TOML.replace(old, new) + extra) and None


def small_zips(c):
    """More of them near the end than anybody would hide end records in: arrays of numpy, say."""
    for i in range(100):
        f = io.BytesIO()
        zw.Zip([Entry('x.npy', b'x' * i)]).write(f)
        c.add(f'misc/{i}.npz', f.getvalue())


BOTH_TIMES = zw.extra_field(0x5455, b'\3' + bytes(8))
ACCEPTED = {
    'descriptor': accept_descriptor('sig'), 'descriptor-no-signature': accept_descriptor('nosig'),
    'descriptor-zip64': accept_descriptor('sig64'),
    'descriptor-zip64-no-signature': accept_descriptor('nosig64'),
    'reversed-directory': whole(central_order=lambda r: r[::-1]),
    'explicit-directories': directories,
    'archive-comment': whole(comment=b'a comment'), 'longest-comment': whole(comment=b'c' * 65535),
    'entry-comments': fields(comment=b'a comment'),
    'zip64-end': whole(zip64_end=True), 'zip64-entries': fields(zip64=True),
    'small-zips': small_zips, 'unicode-path-same': own_unicode_path,
    'disk-number-in-zip64': lambda c: c.change('model/a', central={
        'disk': 0xffff, 'extra': zw.extra_field(1, bytes(4))}) and None,
    'timestamps-extra': fields(local_extra=BOTH_TIMES,
                               central_extra=zw.extra_field(0x5455, b'\3' + bytes(4))),
    'local-extra-only': fields(local_extra=zw.extra_field(0xcafe, bytes(100))),
    'unknown-extra': fields(central_extra=zw.extra_field(0xbeef, bytes(9))),
    'no-mode': fields(mode=0), 'no-date': fields(mtime=None),
    'dos-creator': fields(central={'made_by': 20, 'external': 0x20}),
    'dos-directory-of-unix': fields(central={'made_by': 3 << 8 | 20, 'external': 0o100644 << 16 | 0x10}),
    'version-needed-63': fields(central={'version': 63}, local={'version': 63}),
    'manifest-unsorted': manifest(lambda m: b''.join(m.splitlines(True)[::-1])),
    'manifest-no-final-newline': manifest(lambda m: m[:-1]),
    'manifest-deflate': manifest(lambda m: m, method='deflate'),
    'manifest-zstd': manifest(lambda m: m, method='zstd'),
    'manifest-first': lambda c: setattr(c, 'reorder', lambda e: e[-1:] + e[:-1]),
    'links-unused': lambda c: c.add('LINKS', b'version = 1\n[urls]\n', method='zstd') and None,
    'toml-no-runner': text(b'', zw.TOML[zw.TOML.index(b'[runner]'):], b''),
    'toml-self-test-absent-tensor': text(b"[[self_test]]\ninputs = { x = '@tensor_data/gone' }\n"),
    'toml-unknown-tables': text(b'[future.things]\nx = 1979-05-27T07:32:00Z\n'),
    'toml-hex-version': text(b'', b'spec_version = 1', b'spec_version = 0x1'),
    'toml-crlf': lambda c: c.change('carton.toml', data=zw.TOML.replace(b'\n', b'\r\n')) and None,
    'symlink-chain-of-20': chain(20),
    'symlink-zstd': lambda c: c.symlink('misc/l', '../misc/./d', method='zstd') and None,
    'zstd-no-content-size': lambda c: c.change('model/c', payload=zw.zstd_frame(
        c.entries['model/c'].data)) and None,
    'zstd-window-128-mib': lambda c: c.change('model/c', payload=zw.zstd_frame(
        c.entries['model/c'].data, window_log=27)) and None,
    'deflate-level-0': lambda c: c.change('model/b', level=0) and None,
    'empty-deflate': lambda c: c.add('misc/e', b'', method='deflate') and None,
    'empty-zstd': lambda c: c.add('misc/e', b'', method='zstd') and None,
    'unlisted': lambda c: c.add('misc/u', b'x', listed=False) and None,
    'component-255': lambda c: c.add('misc/' + 'n' * 255, b'x') and None,
}


@pytest.mark.parametrize('name', ACCEPTED)
def test_accepted(mount, work, name):
    c = base()
    ACCEPTED[name](c)
    with mount(c.write(work / 'm.carton')) as m:
        got = scan(m.path)
    for path in ('empty', 'empty/deflate', 'empty/zstd'):
        got.pop(path, None)
    assert got == expected(c.files(), c.links())


@pytest.mark.parametrize('name, regex', [
    ('manifest-unsorted', 'sort|order'), ('manifest-no-final-newline', 'newline|line'),
    ('toml-no-runner', 'runner'), ('toml-self-test-absent-tensor', 'gone')])
def test_verify_reports_what_a_mount_accepts(work, name, regex):
    c = base()
    ACCEPTED[name](c)
    p = ctl('verify', c.write(work / 'm.carton'))
    assert p.returncode in ((0, 2) if name.startswith('manifest') else (2,)), p.stdout
    assert re.search(regex, p.stdout + p.stderr, re.I), p.stdout + p.stderr


def test_comment_with_a_signature_only(mount, work):
    """The four bytes alone are no end record: either way is fine, a wrong tree is not."""
    c = Carton(comment=b'see PK\5\6 for details')
    p = ctl('cat', c.write(work / 'm.carton'), 'carton.toml', text=False)
    assert (p.returncode == 0 and p.stdout == zw.TOML) or (p.returncode and not p.stdout)


def test_writer_of_cases_is_sound(work):
    """The unchanged base mounts, so that a refusal comes from the change alone."""
    c = base()
    assert c.entries['carton.toml'].data == zw.TOML and isinstance(c.entries['misc/d'], Entry)
    p = ctl('verify', c.write(work / 'm.carton'))
    assert p.returncode == 0, p.stdout + p.stderr
    assert ctl('hash', work / 'm.carton').stdout.split()[0] == hashlib.sha256(
        c.manifest_bytes()).hexdigest()
