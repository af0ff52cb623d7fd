# SPDX-License-Identifier: Apache-2.0
"""carton.py: libcarton from Python, in an interpreter of its own."""
import re
import sys

import pytest

from harness import BUILD, ROOT, run
from zipwriter import sample

pytestmark = pytest.mark.needs_plain_build      # the interpreter has no sanitizer


def python(work, code, *args):
    return run(sys.executable, '-c', f'import sys, carton\n{code}', *args,
               env={'PYTHONPATH': str(ROOT / 'core'), 'LIBCARTON': str(BUILD / 'libcarton.so.0'),
                    'PYTHONDONTWRITEBYTECODE': '1', 'XDG_CACHE_HOME': str(work / 'cache')})


def test_files_and_tensors(work):
    c = sample()
    path = c.write(work / 'm.carton')
    p = python(work, '''
with carton.open(sys.argv[1]) as c:
    print(c.model_hash)
    print(sorted(c.paths()))
    with c.file('model/weights.bin') as f:
        part = bytearray(16)
        f.seek(3)
        assert f.readinto(part) == 16 and f.tell() == 19
        print(part.hex())
        assert f.seek(-2, 2) == f.size - 2 and len(f.read()) == 2
    print(c.memoryview('model/weights.bin').hex())
    a = c.tensor('numeric')
    print(a.dtype, a.shape, not a.flags.owndata, a.tobytes().hex())
    late = c.file('model/weights.bin')
print(late.read(4).hex())       # the carton stays until its files are closed
try:
    c.paths()
except ValueError as e:
    print(e)
c = carton.open(sys.argv[1])    # left open at the end
''', path)
    assert p.returncode == 0 and p.stderr == ''
    lines, weights = p.stdout.splitlines(), c.files()['model/weights.bin']
    assert lines[0] == c.model_hash() and "'model/weights.bin'" in lines[1]
    assert lines[2:4] == [weights[3:19].hex(), weights.hex()]
    assert lines[4] == f"float32 (2, 3) True {c.files()['tensor_data/tensor_0.bin'].hex()}"
    assert lines[5:] == [weights[:4].hex(), 'the carton is closed']


def test_errors_have_the_text_of_the_library(work):
    c = sample(method='stored')
    path = c.write(work / 'm.carton')
    data = bytearray(path.read_bytes())
    for name in ('model/weights.bin', 'tensor_data/tensor_0.bin'):
        data[data.find(c.files()[name][:64])] ^= 1
    path.write_bytes(data)
    p = python(work, '''
import errno
c = carton.open(sys.argv[1])
for path in ('model/weights.bin', 'model/weights.bin', 'none'):
    try:
        c.file(path)
    except OSError as e:
        print(errno.errorcode[e.errno], e.filename, e.strerror)
for wrong in (lambda: c.tensor('numeric'), lambda: carton.open(sys.argv[1] + '.none'),
              lambda: carton.open(sys.argv[1], memory=1),
              lambda: carton.open(sys.argv[1], color=1)):
    try:
        wrong()
    except (OSError, TypeError) as e:
        print(type(e).__name__, e)
''', path)
    assert p.returncode == 0 and p.stderr == ''
    first, second, none, tensor, missing, memory, option = p.stdout.splitlines()
    assert first == second and re.match(r'EBADMSG model/weights.bin .*sha256', first)
    assert none.startswith('ENOENT none ') and missing.startswith('FileNotFoundError')
    assert 'tensor_data/tensor_0.bin: ' in tensor and 'sha256' in tensor
    assert 'memory' in memory and option == 'TypeError no such option: color'


def test_options_are_those_of_the_header(work):
    """The same members at the same offsets."""
    p = python(work, '''
for o in (carton._Options, carton._Stat):
    print(*(f'{name}={getattr(o, name).offset}' for name, _ in o._fields_), carton.ctypes.sizeof(o))
''')
    lines = {'carton_options': '', 'carton_stat': ''}
    for struct, line in zip(lines, p.stdout.splitlines()):
        names = [word.split('=')[0] for word in line.split()[:-1]]
        assert len(names) > 8
        lines[struct] = ''.join(f'printf("{n}=%zu ", offsetof(struct {struct}, {n}));\n' for n in names)
    source = work / 'offsets.c'
    source.write_text('#include <carton.h>\n#include <stdio.h>\nint main(void)\n{\n' + ''.join(
        f'{text}printf("%zu\\n", sizeof(struct {struct}));\n' for struct, text in lines.items()) + 'return 0;\n}\n')
    assert run('cc', '-I', ROOT / 'core', '-o', work / 'offsets', source).returncode == 0
    assert run(work / 'offsets').stdout == p.stdout
