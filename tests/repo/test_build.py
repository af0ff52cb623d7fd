# SPDX-License-Identifier: Apache-2.0
"""Claims about sources and Makefile: layers, symbols, rebuilds, install, man pages, the unit."""
import ast
import configparser
import functools
import io
import os
import re
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from harness import BUILD, CARTONCTL, CARTONFS, ROOT, run

CORE, FS, TESTS = ROOT / 'core', ROOT / 'fs', ROOT / 'tests'
MAN = ('mount/cartonfs.1', 'ctl/cartonctl.1', 'ctl/cartonctl-pack.1', 'ctl/cartonctl-sign.1')
PAGES = [p.name for d in (FS, CORE) for p in d.rglob('*.[1-8]')]
UNIT = 'cartonfs@.service'
VERSION = re.search(r'^VERSION := (\S+)$', (ROOT / 'Makefile').read_text(), re.M)[1]
# What fs/ may see of core/, and so no module of core/ is too low to know.
PUBLIC = ('carton.h', 'log.h')


def make(*args, cwd=ROOT, status=0):
    p = run('make', '--no-print-directory', *args, cwd=cwd)
    assert p.returncode == status, p.stdout + p.stderr
    return p.stdout


def includes(path, form):
    return re.findall(r'^\s*#\s*include\s*' + form, path.read_text(), re.M)


def sources(directory):
    """The C files of core/ or fs/, by their names in it."""
    files = sorted(str(p.relative_to(directory)) for p in directory.rglob('*.[ch]'))
    assert len(files) > 50
    return files


# ---- layers ----

def rooms(layer):
    """The folders of core/ or fs/, highest first, as the stack in its README.md has them; '' is core/ itself."""
    block = re.search(r'```text\n(.*?)```', (layer / 'README.md').read_text(), re.S)
    names = [line.split()[0].rstrip('/') for line in block[1].splitlines() if not line.startswith(' ')]
    order = ['' if name == layer.name else name for name in names]
    assert set(order) | {''} == {room(name) for name in sources(layer)} | {''}
    return order


def room(name):
    return name.rpartition('/')[0]


@pytest.mark.parametrize('layer', [CORE, FS], ids=lambda p: p.name)
def test_includes_go_down(layer):
    order = rooms(layer)
    for name in sources(layer):
        for target in includes(layer / name, '"([^"]*)"'):
            if target in PUBLIC:
                continue
            assert (layer / target).exists(), f'{layer.name}/{name} includes {target}'
            assert order.index(room(target)) >= order.index(room(name)), \
                f'{layer.name}/{name} includes {target}, of a higher folder'


def test_the_programs_do_not_see_each_other():
    for name in sources(FS):
        seen = {room(target) for target in includes(FS / name, '"([^"]*)"')} | {room(name)}
        assert not {'mount', 'ctl'} <= seen, name


def test_one_internal_header_for_each_folder():
    for name in sources(CORE):
        stem = Path(name).stem
        assert stem == 'internal' or not re.search('priv|parts|internal', stem), name
        if stem == 'internal':
            continue
        for target in includes(CORE / name, '"([^"]*)"'):
            assert Path(target).stem != 'internal' or room(target) == room(name), \
                f'core/{name} includes {target}, which is private to its folder'


def objects(layer):
    """{name: path} of the object files of core/ or fs/, without those from before a file was removed."""
    found = {str(p.relative_to(BUILD / layer.name))[:-2]: p for p in (BUILD / layer.name).rglob('*.o')}
    found = {name: p for name, p in found.items() if (layer / f'{name}.c').exists()}
    assert len(found) > 40
    return found


@functools.cache
def symbols(layer):
    """[(object file, kind, symbol)] of core/ or fs/, by nm."""
    names = {str(path): name for name, path in objects(layer).items()}
    p = run('nm', '-A', *names)
    assert p.returncode == 0, p.stderr
    rows = [line.rpartition(':') for line in p.stdout.splitlines()]
    return [(names[path], *rest.split()[-2:]) for path, _, rest in rows]


def calls(layer):
    """Which object file of core/ or fs/ uses which: by the symbols that nm shows."""
    defines, uses = {}, {name: set() for name in objects(layer)}
    for name, kind, symbol in symbols(layer):
        if kind in 'TDBRV':
            defines[symbol] = name
        elif kind == 'U':
            uses[name].add(symbol)
    return {a: {defines[s] for s in symbols if s in defines} - {a} for a, symbols in uses.items()}


# Who may call what computes a hash or a tag in parts: see "A block is read once" in core/README.md.
PASSES = {
    'hasher_hash': {'base/ingest'}, 'hasher_hash_several': {'base/ingest'}, 'hasher_tag': {'base/ingest'},
    'tag_begin': {'base/hasher'}, 'tag_update': {'base/hasher'}, 'tag_end': {'base/hasher'},
    'tagger_tag': {'content/bytes'},     # compares
    'sha256_update_many': {'base/hasher'}, 'sha256_update_by': set(),
    'sha256_update': {'carton/number', 'fetch/snapshot', 'sign/write'},
}


def test_one_pass_hashes_and_tags():
    users = {symbol: set() for symbol in PASSES}
    for name, kind, symbol in symbols(CORE):
        if kind in 'Uvw' and symbol in users:
            users[symbol].add(name)
    assert users == PASSES


def circles(graph):
    """The sets of nodes that reach each other (Tarjan's strongly connected components)."""
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph.get(v, ()):
            if w not in index:
                visit(w)
            if w in stack:
                low[v] = min(low[v], low[w])
        if low[v] == index[v]:
            at = stack.index(v)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for v in graph:
        if v not in index:
            visit(v)
    return found


def test_circles_are_found():
    assert circles({'a': {'b'}, 'b': {'c'}, 'c': set()}) == []
    assert circles({'a': {'b'}, 'b': {'c'}, 'c': {'b', 'd'}, 'd': set()}) == [['b', 'c']]


@pytest.mark.parametrize('layer', [CORE, FS], ids=lambda p: p.name)
def test_no_circles(layer):
    files = calls(layer)
    order = rooms(layer)
    for a, bs in files.items():
        for b in bs:
            if b != 'base/log':
                assert order.index(room(b)) >= order.index(room(a)), f'{a} calls {b}, of a higher folder'
    assert circles(files) == []


def test_fs_sees_only_the_public_headers():
    own = set(sources(FS))
    assert not own & set(PUBLIC)
    for name in own:
        for target in includes(FS / name, '"([^"]*)"'):
            assert target in own or target in PUBLIC, f'fs/{name} includes {target}'
    # nor could it by accident: the others are in none of the directories it is compiled with
    assert sorted(os.listdir(BUILD / 'include')) == sorted(PUBLIC)
    for command in compile_commands('fs'):
        words = command.split()
        paths = [w for w in words if w.startswith('-I')]
        assert 'core' not in ' '.join(paths) and any(p.endswith('/include') for p in paths)


@functools.cache
def compile_commands(layer):
    """How make would compile each object of a layer."""
    out = make('-n', '-B', 'V=1', 'BUILD=/nonexistent/b', 'all')
    lines = [ln for ln in out.splitlines() if f' -o /nonexistent/b/{layer}/' in ln and ' -c ' in ln]
    assert len(lines) > 5, out
    return lines


def test_core_is_without_fuse():
    compiled = {re.search(r'core/[\w/]+\.c', c)[0] for c in compile_commands('core')}
    others = {f'core/{name}' for name in sources(CORE) if name.endswith('.c')} - compiled
    # of two implementations, a build has one: with ISA-L or without
    with_isal = {'core/archive/inflate_isal.c', 'core/base/crc32_isal.c'}
    assert others in (with_isal, {'core/archive/inflate_zlib.c', 'core/base/crc32_zlib.c'})
    for command in compile_commands('core'):
        assert 'fuse' not in command.lower(), command
    for name in sources(CORE):
        assert not [i for i in includes(CORE / name, '[<"]([^>"]*)[>"]') if 'fuse' in i], name
    for name in ('cartonctl', 'cartonfs'):
        p = run('readelf', '-d', BUILD / name)
        assert p.returncode == 0 and ('libfuse' in p.stdout) == (name == 'cartonfs'), name


# Each foreign library is used by one file; libcurl, libarchive and libzstd by one folder.
@pytest.mark.parametrize('header, where', [
    (r'archive(?:_entry)?\.h', r'archive/\w+\.[ch]'), (r'zstd\w*\.h', r'archive/((de|en)code\.c|inflate\.h|unpack\.c)'),
    (r'isa-l/.*', r'(archive/inflate|base/crc32)_isal\.c'), (r'zlib\.h', r'(archive/(gunzip|inflate_zlib)|base/crc32_(zlib|join))\.c'),
    (r'openssl/.*', r'(base/(digest|sha256)|http/bundle|sign/\w+)\.c'), (r'curl/.*', r'http/\w+\.[ch]')])
def test_one_place_for_each_library(header, where):
    users = {name for name in sources(CORE) if includes(CORE / name, f'[<"]({header})[>"]')}
    assert users, 'nothing uses it'
    assert [name for name in users if not re.fullmatch(where, name)] == [], users
    assert not [name for name in sources(FS) if includes(FS / name, f'[<"]({header})[>"]')]


def test_exported_symbols_have_one_prefix():
    p = run('nm', '-g', '--defined-only', BUILD / 'libcarton.a')
    names = re.findall(r'^[0-9a-f]+ [A-Z] (\S+)$', p.stdout, re.M)
    names = [n for n in names if not re.match(r'_*(asan|tsan|ubsan|odr_asan)', n.lstrip('_.'))]
    assert len(names) > 20 and 'carton_open' in names
    assert [n for n in names if not n.startswith('carton_')] == []
    # all that is declared public is there, and nothing else
    declared = set()
    for header in PUBLIC:
        text = re.sub(r'/\*.*?\*/', '', (CORE / header).read_text(), flags=re.S)
        declared |= set(re.findall(r'\b(carton_\w+)\((?!\*)', text))
    assert {n for n in names} == {n for n in declared if not n.endswith('_fn')}


# ---- sizes ----

COLUMNS, FILE_LINES, FUNCTION_LINES, PARAMETERS = 100, 900, 59, 5
LONG_FILES = {'core/carton.h'}     # documents the whole library
MANY_PARAMETERS = {'control_ioctl', 'on_rename', 'on_setxattr',     # called by libfuse
                   'bytes_read', 'object_add_derived', 'read_chunks', 'read_part', 'read_tagged',
                   'read_whole'}


def functions(text):
    """The functions that a C file declares or defines: name, number of parameters, lines between the braces."""
    text = re.sub(r'/\*.*?\*/', lambda m: '\n' * m[0].count('\n'), text, flags=re.S)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', '0', text)
    text = re.sub(r'^\s*#(?:.*\\\n)*.*', lambda m: '\n' * m[0].count('\n'), text, flags=re.M)
    text = re.sub(r'__attribute__\(\((?:[^()]|\([^()]*\))*\)\)\s*', '', text)
    for m in re.finditer(r'^\w[\w\s*]*?\b(\w+)\((?!\*)', text, re.M):
        depth, n, at = 1, 1, m.end()
        while depth:
            depth += (text[at] in '([{') - (text[at] in ')]}')
            n += text[at] == ',' and depth == 1
            at += 1
        if re.match(r'\s*[{;]', text[at:]):
            body = text[at:text.index('\n}', at)] if text[at:].lstrip()[0] == '{' else ''
            yield m[1], n, max(0, body.count('\n') - 1)


def c_texts():
    for layer in (CORE, FS):
        for name in sources(layer):
            yield f'{layer.name}/{name}', (layer / name).read_text()


def test_functions_are_found():
    text = """struct s { int (*f)(int a, int b, int c, int d, int e, int f); };
#define M(a, b, c, d, e, f) g(a)
typedef int f_fn(void *ctx, int a);
__attribute__((format(printf, 1, 2))) static void log(const char *fmt, ...)
{
	g("{", '}', 3); /* } */
}

int six(int a, int (*b)(int, int), int c, int d,
	int e, int f);
"""
    assert list(functions(text)) == [('f_fn', 2, 0), ('log', 2, 1), ('six', 6, 0)]
    found = [f for _, text in c_texts() for f in functions(text)]
    assert len(found) > 2000 and {n for _, n, _ in found} >= {1, 2, 3, 4, 5}


def test_functions_are_small():
    for name, text in c_texts():
        for function, n, lines in functions(text):
            assert n <= PARAMETERS or function in MANY_PARAMETERS, f'{name}: {function}() has {n} parameters'
            assert lines <= FUNCTION_LINES, f'{name}: {function}() has {lines} lines'


def test_files_fit():
    for name, text in c_texts():
        lines = text.expandtabs(8).splitlines()
        assert len(lines) <= FILE_LINES or name in LONG_FILES, f'{name} has {len(lines)} lines'
        for i, line in enumerate(lines, 1):
            assert len(line) <= COLUMNS, f'{name}:{i} has {len(line)} columns'


# ---- make ----

@pytest.fixture
def tree(work):
    """A copy of the sources; an object of each layer is enough to see what make does."""
    where = work / 'tree'
    shutil.copytree(ROOT, where, symlinks=True,
                    ignore=shutil.ignore_patterns('build*', '.git', '__pycache__'))
    return where


OBJECTS = 'b/core/base/log.o', 'b/fs/process/options.o'


def compiles(tree, *args):
    out = make('BUILD=b', *OBJECTS, *args, cwd=tree)
    return re.findall(r'^  CC +(\S+)$', out, re.M)


def test_rebuilds(tree):
    def touch(name):
        at = max(os.stat(tree / o).st_mtime_ns for o in OBJECTS) + 1
        os.utime(tree / name, ns=(at, at))

    both = ['core/base/log.c', 'fs/process/options.c']
    assert compiles(tree) == both
    assert compiles(tree) == []
    assert compiles(tree, 'CFLAGS=-O0') == both
    assert compiles(tree, 'CFLAGS=-O0') == []
    assert compiles(tree, 'CPPFLAGS=-DX', 'CFLAGS=-O0') == both
    assert compiles(tree) == both
    for name, built in (('core/archive/zip.h', []), ('fs/process/options.h', both[1:]), ('core/base/util.h', both[:1]),
                        ('core/log.h', both)):
        touch(name)
        assert compiles(tree) == built, name


def test_hardening_flags():
    """All that the compiler of this machine knows; both programs have the checked functions of libc."""
    if '-fsanitize' not in (BUILD / 'flags').read_text():
        for command in compile_commands('core') + compile_commands('fs'):
            words = command.split()
            assert {'-fstack-protector-strong', '-fstack-clash-protection',
                    '-D_FORTIFY_SOURCE=3'} <= set(words), command
            assert '-fcf-protection' in words or os.uname().machine != 'x86_64'
        for program in (CARTONFS, CARTONCTL):
            assert re.search(r'__\w+_chk', run('nm', '-D', program).stdout), program


def test_build_is_quiet_unless_asked(tree):
    assert make('BUILD=b', OBJECTS[0], cwd=tree) == '  CC    core/base/log.c\n'
    out = make('BUILD=b', 'V=1', 'CFLAGS=-O0', OBJECTS[0], cwd=tree)
    assert ' -O0 ' in out and ' -c -o b/core/base/log.o core/base/log.c' in out


@pytest.mark.parametrize('target', ['tests', '{b}/tests/unit/test_toml'])
def test_tests_without_cmocka(work, target):
    """One line says what to run, before anything is compiled."""
    fake = work / 'bin/pkg-config'
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\ncase "$*" in *cmocka*) echo "No package" >&2; exit 1;; esac\n'
                    f'exec {shutil.which("pkg-config")} "$@"\n')
    fake.chmod(0o755)
    p = run('make', '--no-print-directory', f'BUILD={work}/b', target.format(b=f'{work}/b'), cwd=ROOT,
            env={'PATH': f'{fake.parent}:{os.environ["PATH"]}'})
    assert p.returncode == 2 and ' CC ' not in p.stdout, p.stdout
    assert re.fullmatch(r'Makefile:\d+: \*\*\* cmocka is not installed: run make test-deps\.  Stop\.\n', p.stderr)


def test_help_names_every_target():
    out = make('help')
    for target in ('demo', 'check', 'asan', 'tsan', 'fuzz', 'lint', 'format', 'man', 'install',
                   'uninstall', 'deps', 'clean', 'V=1', 'DESTDIR', 'PREFIX'):
        assert target in out, target
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize('works', [True, False])
def test_run_exits_by_its_tests(work, works):
    """tests/run, whose end is a trap: the status says what the last line says."""
    fake = work / 'make'
    fake.write_text(f'#!/bin/sh\n{str(works).lower()}\n')
    fake.chmod(0o755)
    p = run(ROOT / 'tests/run', BUILD, 'lint', cwd=ROOT, env={'PATH': f'{work}:{os.environ["PATH"]}'})
    assert (p.returncode, p.stdout.splitlines()[-1]) == (
        (0, '1 passed, 0 failed') if works else (1, '0 passed, 1 failed'))


def installed(work, *args):
    """`make install` of what is built, and what it has put where."""
    dest = work / 'dest'
    make('-o', 'all', 'install', f'BUILD={BUILD}', f'DESTDIR={dest}', *args)
    return dest, {str(p.relative_to(dest)): p for p in dest.rglob('*') if not p.is_dir()}


UNITS = [str(p.relative_to(ROOT / 'systemd')) for d in ('', 'user')
         for p in sorted((ROOT / 'systemd' / d).iterdir()) if p.suffix in ('.service', '.timer')]


def unit_target(unit):
    return f'lib/systemd/{unit if "/" in unit else "system/" + unit}'


def test_install_as_an_ordinary_user(work):
    """Below a directory of his own, without what only root may do; uninstall leaves no file."""
    prefix = work / 'prefix'
    (work / 'id').write_text('#!/bin/sh\necho 1000\n')
    (work / 'id').chmod(0o755)
    for target in ('install', 'uninstall'):
        p = run('make', '-o', 'all', target, f'BUILD={BUILD}', f'PREFIX={prefix}', cwd=ROOT,
                env={'PATH': f'{work}:{os.environ["PATH"]}'})
        assert p.returncode == 0, p.stderr
        files = {str(f.relative_to(prefix)) for f in prefix.rglob('*') if not f.is_dir()}
        assert ({'bin/cartonfs', 'sbin/mount.cartonfs'} <= files) if target == 'install' else not files


@pytest.mark.parametrize('prefix', ['/usr/local', '/usr', '/opt/carton'])
def test_install_and_uninstall(work, prefix):
    args = [] if prefix == '/usr/local' else [f'PREFIX={prefix}']
    dest, files = installed(work, *args)
    base = prefix.lstrip('/')
    version = '{}.{}'.format(*sys.version_info)
    modules = f'{base}/' + {'/usr': 'lib/python3/dist-packages', '/usr/local': f'lib/python{version}/dist-packages',
                            '/opt/carton': f'lib/python{version}/site-packages'}[prefix]
    python = [f'{modules}/{name}' for name in (
        'carton.py', 'carton_fsspec.py', *(f'cartonfs-{VERSION}.dist-info/{n}' for n in ('METADATA', 'entry_points.txt')))]
    links = {'sbin/mount.cartonfs': f'{prefix}/bin/cartonfs',
             f'{base}/lib/libcarton.so': 'libcarton.so.0',
             f'{base}/lib/libcarton.so.0': f'libcarton.so.0.{VERSION}',
             f'{base}/share/man/man8/mount.cartonfs.8': '../man1/cartonfs.1',
             f'{base}/share/bash-completion/completions/cartonctl': 'cartonfs'}
    below = ['bin/cartonfs', 'bin/cartonctl', 'lib/libcarton.a', f'lib/libcarton.so.0.{VERSION}',
             'lib/pkgconfig/carton.pc', 'include/carton/carton.h', 'include/carton/log.h',
             'lib/tmpfiles.d/cartonfs.conf', 'lib/sysusers.d/cartonfs.conf', 'share/bash-completion/completions/cartonfs',
             'share/fish/vendor_completions.d/cartonfs.fish',
             'share/fish/vendor_completions.d/cartonctl.fish', 'share/zsh/site-functions/_cartonfs',
             'share/doc/cartonfs/examples/mnt-m.mount', 'share/doc/cartonfs/examples/mnt-m.automount',
             *map(unit_target, UNITS), *(f'share/man/man{page[-1]}/{page}' for page in PAGES)]
    assert set(files) == set(links) | {f'{base}/{name}' for name in below} | set(python)
    assert f'\nVersion: {VERSION}\n' in files[python[2]].read_text()
    for name, path in files.items():
        if name in links:
            assert os.readlink(path) == links[name]
            continue
        assert path.stat().st_mode & 0o777 == (0o755 if '/bin/' in name else 0o644), name
        if path.suffix in ('.service', '.pc'):
            assert not re.search(r'@[A-Z_]+@', path.read_text()), name
    unit = files[f'{base}/lib/systemd/system/{UNIT}'].read_text()
    assert f'ExecStart={prefix}/bin/cartonfs ' in unit
    p = run(files[f'{base}/bin/cartonctl'], '--version')
    assert p.returncode == 0
    make('uninstall', f'DESTDIR={dest}', *args)
    assert [p for p in dest.rglob('*') if not p.is_dir()] == []


def test_install_without_python(work):
    """Then there is no module, and uninstall leaves one that is not ours."""
    dest, files = installed(work, 'PYTHON=/nonexistent')
    assert files and not [name for name in files if 'python' in name]
    (dest / 'carton.py').write_text('theirs')
    make('uninstall', f'DESTDIR={dest}', 'PYTHON=/nonexistent')
    assert [p.name for p in dest.rglob('*') if not p.is_dir()] == ['carton.py']


def test_shared_library():
    """Its name, no symbols but those of carton.h and log.h, each with a version."""
    dynamic = run('readelf', '-d', BUILD / 'libcarton.so.0').stdout
    assert 'Library soname: [libcarton.so.0]' in dynamic and 'fuse' not in dynamic
    shown = run('nm', '-D', '--defined-only', '--with-symbol-versions', BUILD / 'libcarton.so.0').stdout
    names = re.findall(r'^[0-9a-f]+ T (\S+)$', shown, re.M)
    static = run('nm', '-g', '--defined-only', BUILD / 'libcarton.a').stdout
    public = re.findall(r'^[0-9a-f]+ T (carton_\w+)$', static, re.M)
    assert len(public) > 20 and sorted(names) == sorted(f'{n}@@LIBCARTON_0' for n in public)


def test_pkg_config(work):
    """What a user of the library gets: flags with which a program is built."""
    dest, files = installed(work)
    env = {'PKG_CONFIG_PATH': f'{dest}/usr/local/lib/pkgconfig', 'PKG_CONFIG_SYSROOT_DIR': str(dest)}
    assert run('pkg-config', '--modversion', 'carton', env=env).stdout.strip() == VERSION
    flags = run('pkg-config', '--cflags', '--libs', 'carton', env=env).stdout.split()
    assert {f'-I{dest}/usr/local/include/carton', f'-L{dest}/usr/local/lib', '-lcarton'} <= set(flags)
    private = run('pkg-config', '--static', '--libs', 'carton', env=env).stdout
    assert {'-lzstd', '-lcrypto', '-lz'} <= set(private.split())
    # loaded when it is needed
    assert '-lcurl' not in private.split()


def test_dist(work):
    """Twice the same bytes, whatever the umask; no file of the repository is missing."""
    clone = work / 'clone'
    shutil.copytree(ROOT, clone, symlinks=True, ignore=shutil.ignore_patterns('build*', '.git'))
    for command in (['init', '-q'], ['add', '-A'],
                    ['-c', 'user.name=x', '-c', 'user.email=x@x', 'commit', '-qm', 'x']):
        assert run('git', *command, cwd=clone).returncode == 0
    seen = []
    for umask in (0o022, 0o077):
        before = os.umask(umask)
        try:
            make('dist', 'BUILD=b', cwd=clone)
        finally:
            os.umask(before)
        seen.append((clone / f'b/cartonfs-{VERSION}.tar.gz').read_bytes())
    assert seen[0] == seen[1]
    with tarfile.open(fileobj=io.BytesIO(seen[0])) as t:
        names = {m.name.partition('/')[2] for m in t.getmembers() if not m.isdir()}
        assert {m.mode & 0o7777 for m in t.getmembers()} <= {0o755, 0o644, 0o777}
        assert len({m.mtime for m in t.getmembers()}) == 1
    assert names == set(run('git', 'ls-files', cwd=clone).stdout.split('\n')) - {''}


def test_versions_agree():
    """Those of the packages and the Makefile's."""
    packaging = ROOT / '.packaging'
    assert re.match(rf'cartonfs \({re.escape(VERSION)}-\d+\) ', (packaging / 'debian/changelog').read_text())
    assert f'\nVersion:        {VERSION}\n' in (packaging / 'cartonfs.spec').read_text()


# ---- the rooms of tests/ ----

ROOMS = ['fs', 'net', 'ctl', 'format', 'repo']
# What a room imports of tests/: repo/ has the tests of bench/.
MAY = {name: {'lib'} for name in ROOMS} | {'repo': {'lib', 'bench'}}
FOREIGN = {'numpy', 'pytest', 'xdist', 'yaml', 'zstandard'}


def floors():
    """The folders of tests/, highest floor first, as the stack in tests/README.md has them."""
    block = re.search(r'```text\n(fs/ .*?)```', (TESTS / 'README.md').read_text(), re.S)
    found = [re.findall(r'^(\w+)/ ', floor, re.M) for floor in re.split(r'^-+$', block[1], flags=re.M)]
    assert sorted(sum(found, [])) == sorted(
        p.name for p in TESTS.iterdir() if p.is_dir() and p.name != '__pycache__')
    assert found[0][:len(ROOMS)] == ROOMS
    return found


def scripts(folder):
    """The Python files of a folder, with those that only their first line names."""
    files = (p for p in (TESTS / folder).iterdir() if p.is_file())
    return [p for p in sorted(files) if p.suffix == '.py' or re.match(rb'#!.*python3\n', p.read_bytes())]


@functools.cache
def imported(path):
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    return {n.partition('.')[0] for n in names + [n.module for n in nodes if isinstance(n, ast.ImportFrom)]}


def test_rooms_import_downwards():
    """A test imports no test; what two of them share is in tests/lib."""
    order = floors()
    where = {p.stem: folder for floor in order for folder in floor for p in scripts(folder) if p.suffix == '.py'}
    assert where['harness'] == 'lib' and where[Path(__file__).stem] == 'repo'
    for level, floor in enumerate(order):
        below = set(sum(order[level + 1:], []))
        for folder in floor:
            may = MAY.get(folder, below | {folder})
            for path in scripts(folder):
                for name in imported(path) & set(where):
                    assert where[name] in may, f'tests/{folder}/{path.name} imports {name} of {where[name]}/'
                others = imported(path) - set(where) - sys.stdlib_module_names
                assert folder not in [*ROOMS, 'lib'] or others <= FOREIGN, (path, others)


def test_no_two_modules_of_tests_have_one_name():
    """pytest and the scripts find them by name alone."""
    names = [p.stem for floor in floors() for folder in floor for p in scripts(folder) if p.suffix == '.py']
    assert len(names) > 90 and [n for n in names if names.count(n) > 1] == []


def test_lib_has_no_circles_and_is_listed():
    modules = {p.stem: imported(p) - {p.stem} for p in scripts('lib')}
    assert circles(modules) == []
    section = (TESTS / 'README.md').read_text().split('\n## lib/\n')[1].split('\n## ')[0]
    rows = re.findall(r'^\| (`.*?`) \|', section, re.M)
    assert sorted(re.findall(r'`(\w+)`', ' '.join(rows))) == sorted(modules)


# ---- man pages ----

def test_man_pages_lint():
    assert shutil.which('mandoc'), 'needs mandoc; make test-deps'
    p = run('make', 'man', cwd=ROOT)
    assert p.returncode == 0 and 'WARNING' not in p.stdout + p.stderr, p.stdout + p.stderr


def option_table():
    """The rows of the table in the source: name, letter, who takes it, the words that its value may be."""
    text = (FS / 'common/option_table.c').read_text()
    names = {'MOUNT': 'cartonfs', 'BOTH': 'cartonfs cartonctl', 'CACHE': 'cartonfs cartonctl cache',
             'PACK': 'pack repack link embed',
             'SIGNED': 'cartonfs info verify extract fetch'}
    rows = re.findall(r'^\t\{ "([\w.-]+)", (?:0|\'(.)\'),\s+(\w+|"[^"]*"), OPTION_\w+,\s+[\w.()]+(?:,\s+"([^"]*)")?',
                      text, re.M)
    assert len(rows) == text.count('\n\t{ "') > 40
    for name, letter, takers, value in rows:
        words = {re.sub(r'\[.*', '', word) for word in value.split('|')}
        yield name, letter, set(names.get(takers, takers.strip('"')).split()), {w for w in words if w[:1].islower()}


def page_options(page):
    """The items of OPTIONS in a man page: {name: (the words of its value, the text below it)}."""
    section = re.search(r'^\.Sh OPTIONS\n(.*?)^\.Sh ', (FS / page).read_text(), re.M | re.S)[1]
    found = {}
    for item in re.split(r'^(?=\.It (?:Fl|Cm) )', section, flags=re.M)[1:]:
        for line in re.findall(r'^\.It (.*)', item, re.M):
            for part in line.split(' , '):
                head, _, value = re.sub(r' ?Ns (Op )?', '', part).partition('=')
                names = re.match(r'Cm (\S+)|Fl (\S+)', head)
                words = set(re.findall(r'[a-z]+', re.sub(r'Ar \S+|Op.*|Cm', '', value)))
                if names:       # else the rest of -o option,...
                    name = names[1] or '-' + names[2]
                    found[name] = (found.get(name, (set(),))[0] | words, item)
    return found


def as_word(name):
    return name if name.startswith('-') else '--' + name.replace('_', '-')


def test_man_pages_have_every_option():
    """Those of the table, no others, with the words of their values and the commands that take them."""
    mount, ctl, pack, sign = (page_options(page) for page in MAN)
    want = {'mount': {'-o'}, 'ctl': set(), 'pack': set(), 'sign': set()}
    # the pages that have the options of these commands
    own = [('pack', pack, {'init', 'pack', 'repack', 'link', 'embed', 'import'}), ('sign', sign, {'sign'})]
    for name, letter, takers, words in option_table():
        letters = {'-' + letter} - {'-'}
        if 'cartonfs' in takers:
            if name in ('debug', 'chunks', 'noexec', 'noatime') or 'mount.mkdir' in name:    # in the text of another
                assert name.lower() in (FS / MAN[0]).read_text().lower()
                continue
            # values may be explained one by one
            want['mount'] |= {name} | letters | (words & set(mount))
            assert mount[name][0] == words, name
        if takers == {'cartonfs'}:
            continue
        pages = [(kind, page) for kind, page, of in own if takers & of]
        if not takers <= {command for _, _, of in own for command in of}:
            pages = [('ctl', ctl)]
        for kind, page in pages:
            want[kind] |= {as_word(name)} | letters
            assert page[as_word(name)][0] == words, name
            if kind == 'ctl' and 'cartonctl' not in takers:
                assert takers <= set(re.findall(r'\w+', page[as_word(name)][1])), name
    assert set(mount) == want['mount']
    assert (set(ctl), set(pack), set(sign)) == (want['ctl'], want['pack'], want['sign'])


@pytest.mark.parametrize('program, page', [(CARTONFS, MAN[0]), (CARTONCTL, MAN[1])], ids=['cartonfs', 'cartonctl'])
def test_man_pages_have_every_command(program, page):
    text = ''.join((FS / p).read_text() for p in (page, *MAN[2:]))
    for command in re.findall(r'^  ([a-z]+) [A-Z\[]', run(program, '--help').stdout, re.M):
        assert f'.It Cm {command}\n' in text, command
    for heading in ('EXIT STATUS', 'ENVIRONMENT', 'FILES', 'EXAMPLES', 'SECURITY CONSIDERATIONS'):
        assert f'.Sh {heading}\n' in text
    for variable in ('XDG_CACHE_HOME', 'TMPDIR'):
        assert variable in text


# ---- systemd ----

def test_unit_mounts_outside_of_its_namespace():
    """The directives that protect the main process give it a mount namespace, which others do not see."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(ROOT / 'systemd' / UNIT)
    service = unit['Service']           # of several lines the last
    for step in ('ExecStartPre', 'ExecStopPost'):
        assert re.match(r'[+-]+/usr/bin/nsenter -t 1 -m -- ', service[step]), step
    assert ' -o mount_only ' in service['ExecStartPre']
    assert service['ExecStart'].endswith(' ${SOURCE} /dev/fd/3')
    # systemd does not look at the status of a step: the main process ends with it
    assert service['ExecStartPre'].startswith('-') and service['RestartPreventExitStatus'] == '1 32'
    assert (service['Type'], service['NotifyAccess']) == ('notify', 'exec')
    assert service['FileDescriptorStoreMax'] == '3'
    assert service['EnvironmentFile'] == '/etc/cartonfs/%i.conf'
    assert service['CapabilityBoundingSet'] == '' and '/dev/fuse rw' in service['DeviceAllow']
    # what the sandbox of the program itself needs
    text = (ROOT / 'systemd' / UNIT).read_text()
    assert re.search(r'^SystemCallFilter=@system-service .*seccomp.*landlock_restrict_self$', text, re.M)
    # mounts of others, and sources anywhere, are seen
    assert not {'PrivateTmp', 'PrivateUsers', 'DynamicUser', 'InaccessiblePaths'} & set(service)


def test_unit_exposure(work):
    _, files = installed(work)
    unit = work / 'cartonfs@x.service'
    unit.write_text(files[f'usr/local/lib/systemd/system/{UNIT}'].read_text())
    p = run('systemd-analyze', 'security', '--offline=yes', '--no-pager', unit)
    exposure = re.search(r'Overall exposure level for \S+: ([\d.]+)', p.stdout)
    assert exposure and float(exposure[1]) <= 1.6, p.stdout + p.stderr


@pytest.mark.parametrize('unit', UNITS)
def test_units_verify(work, unit):
    """systemd-analyze finds wrong directives and missing programs; the pages are ours."""
    dest, files = installed(work)
    pages = re.findall(r'^Documentation=man:(\w+)\((\d)\)$', (ROOT / 'systemd' / unit).read_text(), re.M)
    assert pages and all(f'{name}.{section}' in PAGES for name, section in pages)
    # with the others of its kind: a timer needs its service
    for other in UNITS:
        if other.startswith('user/') == unit.startswith('user/'):
            where = work / Path(other).name.replace('@.', '@x.')
            where.write_text(files[f'usr/local/{unit_target(other)}'].read_text().replace(
                '/usr/local/bin', f'{dest}/usr/local/bin'))
    there = work / Path(unit).name.replace('@.', '@x.')
    verify = ['systemd-analyze', 'verify', '--man=no', *(['--user'] if unit.startswith('user/') else []), there]
    p = run(*verify, env={'XDG_RUNTIME_DIR': str(work)})
    # there may be no D-Bus
    found = [x for x in p.stderr.splitlines() if not x.startswith('Failed to connect to system bus: ')]
    assert (p.returncode, p.stdout, found) == (0, '', [])
    there.write_text(there.read_text() + '\n[Unit]\nNoSuchDirective=1\n')
    p = run(*verify, env={'XDG_RUNTIME_DIR': str(work)})
    assert 'NoSuchDirective' in p.stderr


def test_example_automount_verifies(work):
    units = [shutil.copy(ROOT / 'systemd/examples' / name, work) for name in ('mnt-m.mount', 'mnt-m.automount')]
    p = run('systemd-analyze', 'verify', '--man=no', *units)
    assert (p.returncode, p.stdout, p.stderr) == (0, '', '')


@pytest.mark.needs_root
def test_tmpfiles(work):
    (work / 'etc').mkdir()
    (work / 'etc/passwd').write_text('root:x:0:0::/:/bin/sh\n')
    (work / 'etc/group').write_text('root:x:0:\n')
    for program in ('systemd-sysusers', 'systemd-tmpfiles --create'):
        with open(ROOT / f"systemd/{program.split()[0].removeprefix('systemd-')}.conf") as f:
            p = run(*program.split(), f'--root={work}', '-', stdin=f)
        assert p.returncode == 0, p.stderr
    user = re.search(r'^cartonfs:[^:]*:(\d+):(\d+):.*/nologin$', (work / 'etc/passwd').read_text(), re.M)
    cache = (work / 'var/cache/cartonfs').stat()
    assert (cache.st_mode & 0o777, cache.st_uid, cache.st_gid) == (0o700, int(user[1]), int(user[2])) and cache.st_uid
    assert (work / 'etc/cartonfs').stat().st_mode & 0o777 == 0o755


# ---- tests ----

def test_ids_are_short(request):
    """Of all tests of this run: each is a line of a log, and each worker of pytest-xdist sends all of them."""
    names = [item.name for item in request.session.items]
    assert request.node.name in names
    assert [name[:200] for name in names if len(name) > 100] == []
