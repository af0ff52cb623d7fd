# SPDX-License-Identifier: Apache-2.0
"""Malformed names, MANIFEST, symlinks, carton.toml and directory sources. See malformed.py."""
import hashlib
import os
import shutil

import zipwriter as zw
from malformed import case
from zipwriter import Entry

# ---- names ----

# label: (name, what the message shows of it, keyword)
NAMES = {
    'not-utf8': (b'misc/caf\xe9', 'misc/caf', 'utf-?8'),
    'overlong-utf8': (b'misc/x\xc0\xaf', 'misc/x', 'utf-?8'),
    'surrogate': (b'misc/x\xed\xa0\x80', 'misc/x', 'utf-?8'),
    'beyond-unicode': (b'misc/x\xf4\x90\x80\x80', 'misc/x', 'utf-?8'),
    'absolute': (b'/etc/passwd', 'etc/passwd', 'absolute|relative|empty'),
    'empty-component': (b'misc//x', 'misc//x', 'empty'),
    'dot': (b'misc/./x', 'misc/./x', r"'\.'|\"\.\"|dot|\. or \.\.|component"),
    'dot-first': (b'././x', '././x', r"'\.'|\"\.\"|dot|\. or \.\.|component"),
    'dotdot': (b'misc/../x', 'misc/../x', r"\.\.|dot|component"),
    'dotdot-first': (b'../x', '../x', r"\.\.|dot|component"),
    'dotdot-last': (b'misc/..', 'misc/..', r"\.\.|dot|component"),
    'backslash': (b'misc\\x', 'misc', 'backslash'),
    'backslash-dotdot': (b'misc/..\\x', 'misc/..', 'backslash'),
    'drive': (b'C:/x', 'C:/x', 'drive'),
    'drive-no-slash': (b'c:x', 'c:x', 'drive'),
    'nul': (b'misc/x\0y', 'misc/x', 'nul|control'),
    'newline': (b'misc/x\ny', 'misc/x', 'control'),
    'tab': (b'misc/x\ty', 'misc/x', 'control'),
    'escape': (b'misc/x\x1b[31m', 'misc/x', 'control'),
    'delete': (b'misc/x\x7f', 'misc/x', 'control'),
    'component-256': (b'misc/' + b'n' * 256, 'misc/nnn', 'long|255'),
    'component-256-bytes': ('misc/' + 'é' * 128, 'misc/', 'long|255'),
    'path-4096': (b'misc/' + b'/'.join([b'n' * 200] * 20) + b'/' + b'z' * 71, 'misc/nnn',
                  'long|4095'),
    'empty': (b'', '', 'empty|name'),
    'only-slash': (b'/', '', 'empty|absolute|relative|name'),
}
assert len(NAMES['path-4096'][0]) == 4096

for _label, (_name, _shown, _regex) in NAMES.items():
    @case(f'name-{_label}', _regex, entry=_shown)
    def _(c, name=_name):
        c.add_entry(Entry(name, b'x', listed=False), 'bad')

# The same in MANIFEST, where its line says it: the path is in no zip at all.
for _label in ('not-utf8', 'absolute', 'empty-component', 'dot', 'dotdot', 'backslash', 'drive',
               'escape', 'component-256', 'path-4096', 'empty'):
    @case(f'manifest-name-{_label}', r'(line |:)3\b')
    def _(c, name=NAMES[_label][0]):
        name = name.encode() if isinstance(name, str) else name
        lines = c.manifest_bytes().splitlines(True)
        lines.insert(2, name + b'=' + b'0' * 64 + b'\n')
        c.manifest = b''.join(lines)


@case('name-file-as-directory', 'director', entry='misc/d')
def _(c):
    c.add('misc/d/below', b'x')


@case('name-file-as-directory-first', 'director', entry='misc/d')
def _(c):
    c.add('misc/d/below', b'x')
    c.reorder = lambda entries: entries[::-1]


@case('name-file-and-directory', 'director|duplicate|twice', entry='misc/d')
def _(c):
    c.directory('misc/d')


@case('name-symlink-as-directory', 'director|symlink|link', entry='misc/l')
def _(c):
    c.symlink('misc/l', 'd').add('misc/l/below', b'x')


# ---- MANIFEST ----


def lines(name, regex, edit, entry=None):
    """`edit` gets the list of lines, each with its newline; line 3 is model/b."""
    @case('manifest-' + name, regex, entry=entry)
    def _(c):
        c.manifest = b''.join(edit(c.manifest_bytes().splitlines(True)))


LINE3 = r'(line |:)3\b'
GOOD = b'=' + b'0' * 64 + b'\n'
MISSING = 'missing|neither|not in|absent|no entry|nowhere|no bytes|no such'


def third(fn):
    return lambda ls: ls[:2] + [fn(ls[2])] + ls[3:]


lines('no-equals', LINE3, third(lambda ln: ln.replace(b'=', b' ')))
lines('hash-upper-case', LINE3, third(lambda ln: ln[:-65] + ln[-65:].upper().replace(b'0', b'A')))
lines('hash-63', LINE3, third(lambda ln: ln[:-2] + b'\n'))
lines('hash-65', LINE3, third(lambda ln: ln[:-1] + b'0\n'))
lines('hash-not-hex', LINE3, third(lambda ln: ln[:-2] + b'g\n'))
lines('no-hash', LINE3, third(lambda ln: ln[:-65] + b'\n'))
lines('empty-line', LINE3, third(lambda ln: b'\n' + ln))
lines('empty-last-line', r'(line |:)6\b', lambda ls: ls + [b'\n'])
lines('comment-line', LINE3, third(lambda ln: b'# a comment\n' + ln))
lines('space-after', LINE3, third(lambda ln: ln[:-1] + b' \n'))
lines('space-around-equals', LINE3, third(lambda ln: ln[:-65] + b' ' + ln[-65:]))
lines('crlf', r'(line |:)1\b', lambda ls: [ln[:-1] + b'\r\n' for ln in ls])
lines('crlf-once', LINE3, third(lambda ln: ln[:-1] + b'\r\n'))
lines('nul-in-path', LINE3, third(lambda ln: b'model/\0' + ln))
lines('nul-after-hash', LINE3, third(lambda ln: ln[:-1] + b'\0\n'))
lines('nul-at-end', 'line|:', lambda ls: ls + [b'\0'])
lines('duplicate', r'(line |:)4\b|duplicate|twice', lambda ls: ls[:3] + ls[2:], 'model/')
lines('duplicate-other-hash', 'duplicate|twice',
      lambda ls: ls[:3] + [ls[2][:-65] + b'0' * 64 + b'\n'] + ls[3:])
lines('lists-itself', LINE3, lambda ls: ls[:2] + [b'MANIFEST' + GOOD] + ls[2:], 'MANIFEST')
lines('lists-links', LINE3, lambda ls: ls[:2] + [b'LINKS' + GOOD] + ls[2:], 'LINKS')
# a path below them, whose bytes another entry has: nothing else would miss it
lines('lists-below-itself', LINE3,
      lambda ls: ls[:2] + [b'MANIFEST/b=' + ls[2][-65:]] + ls[2:], 'MANIFEST')
lines('lists-below-links', LINE3,
      lambda ls: ls[:2] + [b'LINKS/b=' + ls[2][-65:]] + ls[2:], 'LINKS')
lines('missing-file', MISSING,
      lambda ls: ls + [b'zzz/gone' + GOOD], 'zzz/gone')
lines('lists-directory', 'director', lambda ls: ls + [b'model' + GOOD], 'model')
lines('bom', '.', lambda ls: [b'\xef\xbb\xbf' + ls[0]] + ls[1:])
lines('empty', 'MANIFEST|carton.toml', lambda ls: [])
lines('without-carton-toml', 'carton.toml',
      lambda ls: [ln for ln in ls if b'carton.toml' not in ln])
lines('utf16', 'MANIFEST', lambda ls: [b''.join(ls).decode().encode('utf-16')])


@case('manifest-links-listed-and-there', LINE3, entry='LINKS')
def _(c):
    c.add('LINKS', b'version = 1\n[urls]\n')
    ls = c.manifest_bytes().splitlines(True)
    ls.insert(2, b'LINKS=' + hashlib.sha256(b'version = 1\n[urls]\n').hexdigest().encode() + b'\n')
    c.manifest = b''.join(ls)


@case('manifest-below-itself-in-links', LINE3, entry='MANIFEST')
def _(c):
    gone = hashlib.sha256(b'fetched').hexdigest().encode()
    c.add('LINKS', b'version = 1\n[urls]\n%s = ["http://host/x"]\n' % gone, listed=False)
    ls = c.manifest_bytes().splitlines(True)
    c.manifest = b''.join(ls[:2] + [b'MANIFEST/b=' + gone + b'\n'] + ls[2:])


@case('manifest-below-an-unlisted-file', 'below a path that is not a directory', entry='misc/u/x')
def _(c):
    """Its bytes are there under another name, so nothing else would miss it."""
    c.add('misc/u', b'x', listed=False)
    c.manifest = c.manifest_bytes() + b'misc/u/x=' + zw.sha256(c.entries['misc/d'].data).encode()


@case('manifest-lists-a-directory-of-an-unlisted-file', 'directory', entry='misc/u')
def _(c):
    c.add('misc/u/x', b'x', listed=False)
    c.manifest = c.manifest_bytes() + b'misc/u=' + zw.sha256(c.entries['misc/d'].data).encode()


@case('manifest-missing', 'MANIFEST')
def _(c):
    c.manifest_entry = {'skip': True}


@case('manifest-crc', 'crc|checksum', entry='MANIFEST')
def _(c):
    c.manifest_entry = {'local': {'crc': 1}, 'central': {'crc': 1}}


@case('manifest-damaged', 'crc|checksum|MANIFEST')
def _(c):
    def patch(data, placed):
        data[placed['MANIFEST'].data + 20] ^= 1     # a hash digit or a letter, still well-formed
    return patch


@case('manifest-deflate-crc', 'crc|checksum', entry='MANIFEST')
def _(c):
    c.manifest_entry = {'method': 'deflate', 'local': {'crc': 1}, 'central': {'crc': 1}}


@case('manifest-symlink', 'regular|symlink|link|type', entry='MANIFEST')
def _(c):
    c.add('misc/m', c.manifest_bytes(), listed=False)
    c.manifest_entry = {'data': b'misc/m', 'mode': 0o120777}


@case('manifest-directory', 'MANIFEST')
def _(c):
    c.manifest_entry = {'skip': True}
    c.add('MANIFEST/x', b'x')


@case('links-crc', 'crc|checksum', entry='LINKS')
def _(c):
    c.add('LINKS', b'version = 1\n[urls]\n', local={'crc': 1}, central={'crc': 1})


@case('links-other-table', MISSING, entry='misc/gone')
def _(c):
    """A name that only begins like [urls]: no URL of it counts."""
    gone = hashlib.sha256(b'fetched').hexdigest().encode()
    c.add('LINKS', b'version = 1\n["urls\\u0000x"]\n%s = ["http://host/x"]\n' % gone)
    c.manifest = c.manifest_bytes() + b'misc/gone=' + gone + b'\n'


@case('links-symlink', 'regular|symlink|link|type', entry='LINKS')
def _(c):
    c.add('LINKS', b'misc/d', mode=0o120777)


# ---- symlinks ----


def link(name, regex, target, path='misc/l', sha=None, prepare=None):
    @case('symlink-' + name, regex, entry=path)
    def _(c):
        if prepare:
            prepare(c)
        c.symlink(path, target, sha=sha or zw.sha256(c.entries['misc/d'].data))


link('absolute', 'absolute|relative', '/etc/passwd')
link('absolute-inside', 'absolute|relative', '/misc/d')
link('escapes', 'outside|escape|leave|inside|above', '../../misc/d')
link('escapes-and-returns', 'outside|escape|leave|inside|above', '../../carton/misc/d')
link('escapes-from-root', 'outside|escape|leave|inside|above', '../misc/d', path='l')
link('dangling', 'missing|lists|listed|target|no such|dangling|exist', 'nothing')
link('to-directory', 'director|file|listed', '../model')
link('to-carton-root', 'director|file|listed|outside|target', '..')
link('to-itself', 'loop|cycle|itself|many', 'l')
link('loop', 'loop|cycle|many', 'm',
     prepare=lambda c: c.symlink('misc/m', 'l', sha=zw.sha256(c.entries['misc/d'].data)))
link('empty', 'empty|target', '')
link('nul', 'nul|control|target|character', 'd\0e')
link('not-utf8', 'utf-?8|target|listed', b'\xff\xfe')
link('to-unlisted', 'lists|listed|missing|target', 'u',
     prepare=lambda c: c.add('misc/u', c.entries['misc/d'].data, listed=False))
link('to-manifest', 'listed|MANIFEST|target|hash|sha256', '../MANIFEST')
link('wrong-hash', 'hash|sha256', 'd', sha='0' * 64)
link('other-files-hash', 'hash|sha256', 'd', sha=zw.sha256(b'content of a\n' * 50))
link('hash-of-target-text', 'hash|sha256', 'd', sha=zw.sha256(b'd'))
link('through-file', 'director|missing|target|listed|not', 'd/../d')
link('trailing-slash', 'director|slash|target|missing|listed|not', 'd/')
link('too-long', 'long|limit|large|4095', './' * 2100 + 'd')


def _chain(c):
    for i in range(50):
        c.symlink(f'misc/chain{i}', f'chain{i + 1}' if i < 49 else 'd',
                  sha=zw.sha256(c.entries['misc/d'].data))


@case('symlink-chain-of-50', 'loop|many|long|hops|link')
def _(c):
    _chain(c)


# ---- carton.toml ----


def toml(name, text, regex='.'):
    @case('toml-' + name, regex, entry='carton.toml')
    def _(c):
        c.change('carton.toml', data=text)


def version(text):
    return zw.TOML.replace(b'spec_version = 1', text)


toml('version-2', version(b'spec_version = 2'), 'spec_version')
toml('version-0', version(b'spec_version = 0'), 'spec_version')
toml('version-minus-1', version(b'spec_version = -1'), 'spec_version')
toml('version-huge', version(b'spec_version = 9223372036854775807'), 'spec_version')
toml('version-float', version(b'spec_version = 1.0'), 'spec_version')
toml('version-string', version(b'spec_version = "1"'), 'spec_version')
toml('version-array', version(b'spec_version = [1]'), 'spec_version')
toml('version-true', version(b'spec_version = true'), 'spec_version')
toml('version-missing', version(b''), 'spec_version')
toml('version-in-a-table', version(b'[x]\nspec_version = 1'), 'spec_version')
toml('version-twice', version(b'spec_version = 1\nspec_version = 1'),
     'line|duplicate|twice|defined')
toml('empty', b'', 'spec_version')
toml('syntax', zw.TOML + b'[[[\n', 'line|:')
toml('not-utf8', zw.TOML + b'x = "\xff"\n', 'line|utf-?8')
toml('nul', zw.TOML + b'\0', 'line|control|nul')
toml('deep', zw.TOML + b'x = ' + b'[' * 100000, 'deep|nest|limit|line')
toml('unclosed-string', zw.TOML + b'x = """', 'line|end')


@case('toml-hash', 'hash|sha256', entry='carton.toml')
def _(c):
    c.change('carton.toml', sha='0' * 64)


@case('toml-missing', 'carton.toml')
def _(c):
    del c.entries['carton.toml']


@case('toml-symlink', 'regular|symlink|link|type', entry='carton.toml')
def _(c):
    c.add('misc/real.toml', zw.TOML)
    c.symlink('carton.toml', 'misc/real.toml')


# ---- directory sources ----


def folder(name, regex, entry=None, stage='mount'):
    def keep(fn):
        case('directory-' + name, regex, stage, entry, directory=True)(fn)
    return keep


@folder('no-manifest', 'MANIFEST')
def _(c, root):
    os.unlink(f'{root}/MANIFEST')


@folder('missing-file', MISSING, 'misc/d')
def _(c, root):
    os.unlink(f'{root}/misc/d')


@folder('content-differs', 'hash|sha256', 'model/a', 'open')
def _(c, root):
    with open(f'{root}/model/a', 'r+b') as f:
        f.write(b'C')


@folder('symlink-absolute', 'absolute|outside|relative|link', 'misc/l')
def _(c, root):
    os.symlink('/etc/hostname', f'{root}/misc/l')
    listed(c, root, 'misc/l', c.entries['misc/d'].data)


@folder('symlink-out', 'outside|escape|leave|inside|link|above', 'misc/l')
def _(c, root):
    with open(f'{root}/../outside', 'wb') as f:
        f.write(b'outside')
    os.symlink('../../outside', f'{root}/misc/l')
    listed(c, root, 'misc/l', b'outside')


@folder('symlinked-parent', 'link|outside|director|beneath|' + MISSING, 'misc/d')
def _(c, root):
    away = f'{root}.away'
    shutil.rmtree(away, ignore_errors=True)
    os.rename(f'{root}/misc', away)
    os.symlink(away, f'{root}/misc')


@folder('manifest-symlink', 'MANIFEST')
def _(c, root):
    os.rename(f'{root}/MANIFEST', f'{root}/misc/m')
    os.symlink('misc/m', f'{root}/MANIFEST')


@folder('fifo', 'regular|type|fifo|special|mode', 'misc/d')
def _(c, root):
    os.unlink(f'{root}/misc/d')
    os.mkfifo(f'{root}/misc/d')


@folder('directory-for-file', 'director|regular|type', 'misc/d')
def _(c, root):
    os.unlink(f'{root}/misc/d')
    os.mkdir(f'{root}/misc/d')


@folder('toml-version', 'spec_version', 'carton.toml')
def _(c, root):
    text = version(b'spec_version = 2')
    with open(f'{root}/carton.toml', 'wb') as f:
        f.write(text)
    c.change('carton.toml', data=text)
    with open(f'{root}/MANIFEST', 'wb') as f:
        f.write(c.manifest_bytes())


@folder('manifest-line', r'(line |:)6\b')
def _(c, root):
    with open(f'{root}/MANIFEST', 'ab') as f:
        f.write(b'nonsense\n')


def listed(c, root, path, data):
    """Adds a MANIFEST line for what was put into the directory by hand."""
    c.add(path, data)
    with open(f'{root}/MANIFEST', 'wb') as f:
        f.write(c.manifest_bytes())
