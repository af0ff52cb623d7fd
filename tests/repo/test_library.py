# SPDX-License-Identifier: Apache-2.0
"""libcarton without FUSE: the examples in C and Python, built and run as a user of the library would."""
import io
import json
import re
import sys

import numpy
import pytest

from harness import BUILD, ROOT, run
from zipwriter import sample

EXAMPLES = ROOT / 'tests/library'


@pytest.fixture
def carton(work):
    c = sample()
    c.write(work / 'm.carton')
    return work / 'm.carton', c


# the interpreter has no sanitizer
@pytest.fixture(params=['c', 'c-static', pytest.param('python', marks=pytest.mark.needs_plain_build)])
def example(request, work):
    """example(ARGUMENT…): runs it."""
    env = {'XDG_CACHE_HOME': str(work / 'cache')}
    if request.param == 'python':
        env['LIBCARTON'], env['PYTHONPATH'] = str(BUILD / 'libcarton.so.0'), str(ROOT / 'core')
        return lambda *args, **kw: run(sys.executable, EXAMPLES / 'example.py', *args, env=env, **kw)
    dest = work / 'dest'
    p = run('make', '-o', 'all', 'install', f'BUILD={BUILD}', f'DESTDIR={dest}', cwd=ROOT)
    assert p.returncode == 0, p.stderr
    there = {'PKG_CONFIG_PATH': f'{dest}/usr/local/lib/pkgconfig', 'PKG_CONFIG_SYSROOT_DIR': str(dest)}
    flags = run('pkg-config', '--cflags', '--libs', 'carton', env=there).stdout.split()
    if request.param == 'c-static':
        needed = re.search(r'^Requires.private: (.*)$',
                           (dest / 'usr/local/lib/pkgconfig/carton.pc').read_text(), re.M)[1]
        flags = ['-l:libcarton.a' if f == '-lcarton' else f for f in flags]
        flags += run('pkg-config', '--libs', *needed.split()).stdout.split()
    variant = re.findall(r'-fsanitize=\S+', (BUILD / 'flags').read_text())
    p = run('cc', '-Wall', '-Wextra', '-Werror', *variant, '-o', work / 'example', EXAMPLES / 'example.c',
            *flags, '-pthread')
    assert p.returncode == 0, p.stderr
    env['LD_LIBRARY_PATH'] = f'{dest}/usr/local/lib'
    return lambda *args, **kw: run(work / 'example', *args, env=env, **kw)


def test_lists(example, carton):
    path, c = carton
    p = example(path)
    assert p.returncode == 0, p.stderr
    rows = {re.sub(r'^ *\d+  ', '', line) for line in p.stdout.splitlines()}
    assert set(c.files()) <= rows


def test_reads_a_tensor(example, carton):
    """A view of a tensor, which is verified and waited for by a callback."""
    path, c = carton
    p = example(path, 'views/tensor_data/numeric.npy', text=False)
    assert p.returncode == 0, p.stderr
    if p.stdout.startswith(b'\x93NUMPY'):
        got = numpy.load(io.BytesIO(p.stdout))
    else:
        got = numpy.array(json.loads(p.stdout), dtype='<f4')
    assert got.size and got.tobytes() == c.files()['tensor_data/tensor_0.bin']


def test_damaged_bytes_are_an_error(example, carton):
    path, c = carton
    data = bytearray(path.read_bytes())
    name = 'model/weights.bin' if 'model/weights.bin' in c.files() else max(c.files(), key=lambda f: len(c.files()[f]))
    at = data.find(c.files()[name][:64])
    if at < 0:
        pytest.fail(f'{name} is not Stored')
    data[at] ^= 1
    path.write_bytes(data)
    p = example(path, name, text=False)
    assert p.returncode == 1 and name.encode() in p.stderr and c.files()[name][:64] not in p.stdout
    assert example(path, 'none').returncode == 1
    assert example('/nonexistent.carton').returncode == 1


def test_headers_compile_alone(work):
    """Alone, and with the strictest warnings."""
    for name in ('carton.h', 'log.h'):
        p = run('cc', '-std=c11', '-Wall', '-Wextra', '-Wpedantic', '-Werror', '-fsyntax-only', '-x', 'c',
                ROOT / 'core' / name)
        assert p.returncode == 0, p.stderr


# 2b is C++23, by the name that clang 14 knows. The sanitizers of the library are those of gcc
@pytest.mark.needs_plain_build
@pytest.mark.parametrize('std', ['98', '11', '14', '17', '20', '2b'])
def test_headers_serve_cplusplus(work, carton, std):
    """All that the library exports links from C++, by g++ and clang++, also where the program has an extern "C"."""
    nm = run('nm', '-D', '--defined-only', BUILD / 'libcarton.so.0').stdout
    names = sorted({line.split()[2].split('@')[0] for line in nm.splitlines() if ' T carton_' in line})
    assert {'carton_open', 'carton_log', 'carton_mark', 'carton_stat'} <= set(names)
    include = '#include <carton.h>\n#include <log.h>\n'
    code = """
#include <cstdio>

typedef void fn();
fn *all[] = { %s };

int main(int, char **argv)
{
	carton_options options = carton_options();
	char hash[65];
	carton *c;

	if (carton_open(argv[1], &options, &c) < 0)
		return 1;
	carton_model_hash(c, hash);
	std::printf("%%s %%d\\n", hash, int(sizeof(all) / sizeof(*all)));
	carton_close(c);
}
""" % ', '.join(f'reinterpret_cast<fn *>(&{name})' for name in names)
    env = {'XDG_CACHE_HOME': str(work / 'cache'), 'LD_LIBRARY_PATH': str(BUILD)}
    for compiler in 'g++', 'clang++':
        for form, text in (('plain', include), ('in-c', f'extern "C" {{\n{include}}}\n')):
            source, program = work / f'{form}.cc', work / f'{compiler}-{form}'
            source.write_text(text + code)
            p = run(compiler, f'-std=c++{std}', '-Wall', '-Wextra', '-Wpedantic', '-Werror', '-I', ROOT / 'core',
                    '-o', program, source, BUILD / 'libcarton.so.0')
            assert p.returncode == 0, p.stderr
            p = run(program, carton[0], env=env)
            assert p.stdout == f'{carton[1].model_hash()} {len(names)}\n' and p.returncode == 0, p.stderr
