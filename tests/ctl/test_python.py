# SPDX-License-Identifier: Apache-2.0
"""carton.py: libcarton from Python, in an interpreter of its own."""
import errno
import hashlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import chunkindex
from chunkindex import CHUNK
from dates import FIRST, LAST, date_of
from harness import BUILD, ROOT, at_once, environment, eventually, run
from origin import LinkedCarton, fault_bytes
from zipwriter import Carton, sample

pytestmark = pytest.mark.needs_plain_build      # the interpreter has no sanitizer


def command(work, code, *args):
    """The words, and what the environment needs."""
    return ((sys.executable, '-c', f'import sys, carton\n{code}', *map(str, args)),
            {'PYTHONPATH': str(ROOT / 'core'), 'LIBCARTON': str(BUILD / 'libcarton.so.0'),
             'PYTHONDONTWRITEBYTECODE': '1', 'XDG_CACHE_HOME': str(work / 'cache')})


def python(work, code, *args):
    words, env = command(work, code, *args)
    return run(*words, env=env)


def start(work, code, *args):
    words, env = command(work, code, *args)
    return subprocess.Popen(words, env=environment(**env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


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


def damaged(work):
    """A carton with a wrong byte in a file and in a tensor."""
    c = sample(method='stored')
    path = c.write(work / 'm.carton')
    data = bytearray(path.read_bytes())
    for name in ('model/weights.bin', 'tensor_data/tensor_0.bin'):
        data[data.find(c.files()[name][:64])] ^= 1
    path.write_bytes(data)
    return path


def test_errors_have_the_text_of_the_library(work):
    path = damaged(work)
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


def test_tensors_that_are_not_there(work):
    """No tensor_data is no tensor; a damaged file is damaged, and does not merely lack them."""
    head = json.dumps({'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4]}}).encode()
    c = Carton()
    c.add('model/x.safetensors', struct.pack('<Q', len(head)) + head + bytes(4), method='stored')
    path = c.write(work / 'm.carton')
    data = bytearray(path.read_bytes())
    data[data.find(c.files()['model/x.safetensors'])] ^= 1
    (work / 'bad.carton').write_bytes(data)
    p = python(work, '''
good, bad = map(carton.open, sys.argv[1:])
print(good.tensors(), good.tensor('a', 'model/x.safetensors'))
for wrong in (lambda: good.tensor('a'), lambda: good.tensor('b', 'model/x.safetensors'),
              lambda: good.tensor('a', 'carton.toml'), lambda: good.tensors('model/none'),
              lambda: bad.tensor('a', 'model/x.safetensors'), lambda: bad.tensors('model/x.safetensors'), lambda: good.open('carton.toml', 'w'),
              lambda: carton.open(sys.argv[1], verify_key=1)):
    try:
        wrong()
    except Exception as e:
        print(type(e).__name__, e)
''', path, work / 'bad.carton')
    assert p.returncode == 0 and p.stderr == ''
    assert p.stdout.splitlines() == [
        '{} [0.]', "KeyError 'a'", "KeyError 'b'",
        "FileNotFoundError [Errno 2] has no tensors, or views are off: 'carton.toml'",
        "FileNotFoundError [Errno 2] No such file or directory: 'model/none'",
        *p.stdout.splitlines()[5:7], "UnsupportedOperation a carton can only be read, with the mode r, rt or rb: 'w'",
        'TypeError no such option: verify_key; did you mean verify_keys?']
    assert all(re.match('DamagedError .*model/x.safetensors', line) for line in p.stdout.splitlines()[5:7])


def test_no_byte_of_a_damaged_carton(work):
    """Not by any way to read, and also not of what is made of the file."""
    path = damaged(work)
    p = python(work, """
c, seen = carton.open(sys.argv[1]), bytearray(64)
def readinto():
    with c.file('model/weights.bin') as f:
        f.readinto(seen)
for way in (readinto, lambda: c.open('model/weights.bin', 'rb').read(), lambda: c.memoryview('model/weights.bin'),
            lambda: c.tensor('numeric'), lambda: c.memoryview('views/tensor_data/numeric.bin'),
            lambda: c.memoryview('views/tensor_data.safetensors')):
    try:
        print(way())
    except carton.DamagedError as e:
        print('damaged', e.errno)
print(bytes(seen) == bytes(64), c.memoryview('model/main.py').nbytes > 0)
""", path)
    assert p.returncode == 0 and p.stderr == ''
    assert p.stdout.splitlines() == [f'damaged {errno.EBADMSG}'] * 6 + ['True True']


def test_no_byte_that_changes_later(work):
    """It was verified when it was opened, and other bytes come from the disk now: none is left in the buffer."""
    c = sample(method='stored').add('model/large', fault_bytes(4 * CHUNK, seed=6))
    path = c.write(work / 'm.carton')
    p = python(work, """
seen = bytearray(1 << 20)
with carton.open(sys.argv[1]) as c, c.file('model/large') as f:
    with open(sys.argv[1], 'r+b') as disk:
        disk.seek(int(sys.argv[2]))
        disk.write(b'EVIL')
    try:
        f.readinto(seen)
    except carton.DamagedError:
        print('damaged', b'EVIL' in seen)
""", path, c.placed['model/large'].data + 2 * CHUNK + 100)
    assert p.stdout == 'damaged False\n' and p.stderr == '' and p.returncode == 0


def test_a_server_that_is_away_is_named(work):
    p = python(work, """
for url in sys.argv[1:]:
    try:
        carton.open(url, timeout_s=1, private_links=True)
    except OSError as e:
        print(type(e).__name__, e.strerror)
""", 'https://127.0.0.1:1/m.carton?secret=1', 'https://nowhere.invalid/m.carton')
    assert p.returncode == 0
    refused, unknown = p.stdout.splitlines()
    assert refused.startswith('ConnectionRefusedError ') and '127.0.0.1 port 1' in refused
    assert 'nowhere.invalid' in unknown and 'secret' not in p.stdout


def test_what_readers_want_of_a_file(work):
    """A file works as one of the built-in open() does: for numpy, which asks for a descriptor, zipfile, text, lines."""
    np.save(work / 'a.npy', np.arange(1000.))
    with zipfile.ZipFile(work / 'z', 'w') as z:
        z.writestr('in', 'the text')
    c = Carton().add('model/a.npy', (work / 'a.npy').read_bytes()).add('model/z', (work / 'z').read_bytes())
    p = python(work, r"""
import io, numpy as np, shutil, zipfile
c = carton.open(sys.argv[1])
for buffering in -1, 0, 7:
    with c.open('model/a.npy', 'rb', buffering) as f:
        for refused in f.fileno, f.truncate, lambda: f.write(b'x'), lambda: f.writelines([b'x']):
            try:
                refused()
            except io.UnsupportedOperation as e:
                print(type(e).__name__, end=' ')
        print(f.seekable(), f.readable(), f.writable(), f.mode, f.name, f.size, end=' ')
        print((np.load(f) == np.arange(1000.)).all(), f.tell() == f.size, f.seek(0), zipfile.is_zipfile(f), f.closed, end=' ')
        f.seek(1)
        shutil.copyfileobj(f, copy := io.BytesIO())
    print(f.closed, len(copy.getvalue()) == f.size - 1)
f = c.open('model/z', 'br')
print(zipfile.ZipFile(f).read('in'), f.seek(0), f.peek(2)[:2], f.read1(2), f.readline()[:2], f.raw.tell() > 4)
raw = f.detach()
print(type(raw).__name__, raw.closed, [line.strip() for line in c.open('carton.toml', 'tr')][0], next(c.open('carton.toml', 'rb')))
del f
""", c.write(work / 'm.carton'))
    assert p.returncode == 0 and p.stderr == ''
    line = 4 * 'UnsupportedOperation ' + 'True True False rb model/a.npy 8128 True True 0 False False True True'
    assert p.stdout.splitlines() == [line] * 3 + [
        "b'the text' 0 b'PK' b'PK' b'\\x03\\x04' True", "File False spec_version = 1 b'spec_version = 1\\n'"]


def test_looks_around(work):
    p = python(work, r"""
c = carton.open(sys.argv[1])
print(c.listdir('misc'), c.info()['model_name'], c.stat('misc/latest.png').size, sorted(c.tensors()))
with c.open('carton.toml', 'r', encoding='utf-8') as f:
    print(next(f).strip())
part = c.open('model/weights.bin', 'rb', buffering=0)
print(part.seek(10**15), part.read(), part.read(1 << 40))
for wrong in (lambda: c.listdir('carton.toml'), lambda: c.file('../carton.toml'), lambda: c.file('model'),
              lambda: c.file('carton.toml\0.txt'), lambda: c.file('a' * 5000), lambda: c.file('\udcff/\n'),
              lambda: c.tensor('../numeric'), lambda: c.tensor('ragged'), lambda: c.open('carton.toml', 'w'),
              lambda: part.seek(-1), lambda: part.seek(0, 9), lambda: part.readinto(memoryview(b'four')[part.seek(0):]),
              lambda: carton.open(sys.argv[1] + '\0')):
    try:
        wrong()
    except Exception as e:
        print(type(e).__name__)
""", sample().write(work / 'm.carton'))
    assert p.returncode == 0 and p.stderr == ''
    assert p.stdout.splitlines() == [
        "['a=b c.txt', 'empty', 'latest.png', 'picture.png'] Sample model 3008 ['numeric', 'ragged', 'words']",
        'spec_version = 1', "1000000000000000 b'' b''", 'NotADirectoryError', 'FileNotFoundError', 'IsADirectoryError',
        'ValueError', 'FileNotFoundError', 'FileNotFoundError', 'KeyError', 'TypeError', 'UnsupportedOperation', 'ValueError',
        'ValueError', 'TypeError', 'ValueError']


def test_a_bare_file_with_what_numpy_lacks(work):
    head = json.dumps({'a': {'dtype': 'BF16', 'shape': [2], 'data_offsets': [0, 4]},
                       'x/b': {'dtype': 'F32', 'shape': [1], 'data_offsets': [4, 8]}}).encode()
    path = work / 'm.safetensors'
    path.write_bytes(struct.pack('<Q', len(head)) + head + bytes(range(8)))
    p = python(work, """
with carton.open(sys.argv[1]) as c:
    for name in c.tensors():
        a = c.tensor(name)
        print(name, a.dtype, a.shape, a.tobytes().hex(), a.flags.writeable, repr(c.model_hash))
""", path)
    assert p.stdout.splitlines() == ["a uint16 (2,) 00010203 False ''", "x/b float32 (1,) 04050607 False ''"]


def test_threads_close_and_garbage(work):
    """Readers on many threads, files closed under them, cartons that only a cycle holds."""
    p = python(work, """
import gc, threading
problems, want = [], bytes(carton.open(sys.argv[1]).memoryview('model/weights.bin'))
c = carton.open(sys.argv[1])
shared, start = c.file('model/weights.bin'), threading.Barrier(8)
def read(number):
    start.wait()
    for i in range(100):
        try:
            if bytes(c.memoryview('model/weights.bin')) != want:
                problems.append('other bytes')
            if number == 0 and i == 50:
                shared.close()
            shared.memoryview(1)
            try:
                c.file('none')
            except FileNotFoundError as e:
                if e.filename != 'none':
                    problems.append(e)
        except ValueError as e:
            if 'closed' not in str(e):
                problems.append(e)
threads = [threading.Thread(target=read, args=(n,)) for n in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join()
late = c.open('model/weights.bin', 'rb')
c.close()
print(problems, late.read() == want)
late.close()
for _ in range(20):
    cycle = [carton.open(sys.argv[1])]
    cycle += [cycle, cycle[0].file('model/main.py')]
del cycle
gc.collect()
print(len(carton._open), len(carton._waits), threading.active_count())
""", sample().write(work / 'm.carton'))
    assert p.returncode == 0 and p.stderr == ''
    # the first one is left open, and so is that which was closed above
    assert re.match(r'\[\] True\n[0-2] 0 1\n$', p.stdout)


def test_the_collector_on_a_thread_of_the_library(work):
    """It may run there before and after what is called: the carton is closed later, since its end waits for that thread."""
    p = python(work, """
import gc
from _queue import SimpleQueue
vars(carton).update(gc=gc, real=carton._on_done, drop=SimpleQueue(), done=SimpleQueue())
exec('''
def on_done(number, result):
    real(number, result)
    drop.get()
    gc.collect()
    done.put(None)
''', vars(carton))
for _ in range(2):
    c = carton.open(sys.argv[1])
    carton._on_done = carton._done_fn(carton.on_done)
    cycle = [c.file('model/weights.bin'), c]
    cycle.append(cycle)
    del c, cycle
    carton.drop.put(None)
    carton.done.get()
    print(len(carton._late), flush=True)
    carton._on_done = carton.real
carton.open(sys.argv[1]).close()
print(len(carton._late))
""", sample().write(work / 'm.carton'))
    assert p.returncode == 0 and p.stderr == '' and p.stdout.split() == ['1', '1', '0']


def test_a_fork_opens_it_anew(work):
    p = python(work, """
import os
c = carton.open(sys.argv[1])
f = c.file('model/weights.bin')
if os.fork() == 0:
    for use in (lambda: f.read(1), lambda: c.file('model/weights.bin'), c.paths):
        try:
            use()
        except RuntimeError as e:
            print(e)
    f.close()
    c.close()
    with carton.open(sys.argv[1]) as own:
        print(own.memoryview('model/weights.bin').nbytes, flush=True)
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.wait()[1]), len(f.read()))
""", sample().write(work / 'm.carton'))
    assert p.returncode == 0 and p.stderr == ''
    lines = p.stdout.splitlines()
    assert lines[:3] == ['the carton was opened before a fork: open it in this process'] * 3
    assert lines[4] == f'7 {lines[3]}'


WAYS = {
    'open': "carton.open(sys.argv[1])",
    'pin': "c.file('model/w.safetensors')",
    'resolve': "c.file('views/model/w.safetensors/x.bin')",
    'list': "c.listdir('views/model/w.safetensors')",
    'read': 'large.read()',
    'readinto': 'large.readinto(bytearray(large.size))',
}


@pytest.mark.parametrize('way', WAYS)
def test_an_interrupt_ends_a_wait(work, fault, cache, way):
    """Ctrl-C while a server is silent, or slow: at once; and the carton can be closed, or another opened."""
    large = fault_bytes(40 * CHUNK, seed=5)
    c = LinkedCarton(method='stored').add(chunkindex.PATH, chunkindex.index(large))
    c.link('model/w.safetensors', b'w', fault.url('link', silent=1))
    # the open has one chunk, and to read the rest takes half a minute
    c.link('model/large', large, fault.url('link', size=len(large), seed=5, rate=CHUNK))
    c.write(work / 'm.carton')
    code = f"""
c = carton.open(sys.argv[2], private_links=True, cache_dir=sys.argv[3])
large = c.file('model/large')
large.seek(CHUNK * 9)
print('ready', flush=True)
try:
    {WAYS[way]}
except KeyboardInterrupt:
    print('interrupted', carton._waits, large.tell() == CHUNK * 9)
assert large.seek(0) == 0 and len(large.read(CHUNK)) == CHUNK
large.close()
c.close()
carton.open(sys.argv[2]).close()
""".replace('CHUNK', str(CHUNK))
    with at_once(), start(work, code, fault.url('link', silent=1), work / 'm.carton', cache.path) as p:
        assert p.stdout.readline() == 'ready\n'
        eventually('the request is there', lambda: len(fault.requests()) > 1)      # besides that of the first chunk
        p.send_signal(signal.SIGINT)
        assert p.communicate() == ('interrupted {} True\n', '') and p.returncode == 0


@pytest.mark.parametrize('url', ['s3://bucket/m.carton', 'oci://127.0.0.1:1/m:x'])
def test_an_interrupt_ends_a_wait_for_credentials(work, url):
    """A program that looks for them may take a minute, and ends, too."""
    began = work / 'began'
    wait = f'echo $$ >"{began}"; read line <"{work}/fifo"'
    os.mkfifo(work / 'fifo')
    (work / 'config').write_text(f'[default]\ncredential_process = {wait}\n')
    (work / 'config.json').write_text('{"credsStore": "slow"}')
    (work / 'docker-credential-slow').write_text(f'#!/bin/sh\n{wait}\n')
    (work / 'docker-credential-slow').chmod(0o755)
    words, env = command(work, """
try:
    carton.open(sys.argv[1])
except KeyboardInterrupt:
    print('interrupted', carton._waits)
""", url)
    env |= {'HOME': str(work), 'AWS_CONFIG_FILE': str(work / 'config'), 'DOCKER_CONFIG': str(work),
            'PATH': f"{work}:{os.environ['PATH']}"}
    with at_once(), subprocess.Popen(words, env=environment(**env), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     text=True) as p:
        eventually('it is looked for', lambda: began.exists() and began.read_text().endswith('\n'))
        p.send_signal(signal.SIGINT)
        # the program has these ends of the pipes, too
        assert p.communicate() == ('interrupted {}\n', '') and p.returncode == 0
    assert not os.path.exists(f'/proc/{began.read_text().strip()}')


def test_a_second_interrupt_does_no_harm(work):
    """It comes while the first still ends the open: what calls back later finds nobody."""
    p = python(work, """
class Impatient(carton.SimpleQueue):
    def get(self):
        raise KeyboardInterrupt
carton.SimpleQueue = Impatient
try:
    carton.open(sys.argv[1])
except KeyboardInterrupt:
    print('interrupted', carton._waits)
""", sample().write(work / 'm.carton'))
    assert p.stdout == 'interrupted {}\n' and p.stderr == '' and p.returncode == 0


def test_copies_are_refused(work):
    """A copy would free what the original uses; what says so names what to do, and the original is as it was."""
    p = python(work, """
import copy, gc, pickle
c = carton.open(sys.argv[1])
raw, buffered, text = c.file('model/main.py'), c.open('model/main.py', 'rb'), c.open('model/main.py')
last = c.file('model/weights.bin')
for o in c, raw, buffered, text:
    for way in copy.copy, copy.deepcopy, pickle.dumps, lambda o: pickle.dumps(o, 0), lambda o: copy.deepcopy([o]):
        try:
            way(o)
            print('copied', o)
        except TypeError as e:
            print(e, end='; ' if o is text else '\\n')
        gc.collect()
print()
print(raw.read() == buffered.read() == text.read().encode())
for f in raw, buffered, text, c:
    f.close()
print(len(last.read()) == last.size)
""", sample().write(work / 'm.carton'))
    assert p.returncode == 0 and p.stderr == '' and p.stdout.endswith('\nTrue\nTrue\n')
    lines = p.stdout.splitlines()
    assert lines[:15] == [f'cannot copy or pickle a {kind}: open it again' for kind in ('Carton', 'File', 'BufferedFile')
                          for _ in range(5)]
    assert 'copied' not in p.stdout and len(lines) == 18


def test_a_fork_while_a_thread_reads(work):
    """What the thread holds stays locked in the child, which nevertheless gets an answer, and ends."""
    p = python(work, """
import os
c = carton.open(sys.argv[1])
f = c.file('model/weights.bin')
with f._lock, c._lock:
    if os.fork() == 0:
        # as another thread than the one that has the lock: this one was the thread of the fork
        from threading import Thread
        def use():
            for way in f.tell, f.read, lambda: f.readinto(bytearray(1)), c.paths:
                try:
                    way()
                except RuntimeError as e:
                    print(e, flush=True)
            f.close()
            c.close()
        t = Thread(target=use)
        t.start()
        t.join()
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
""", sample().write(work / 'm.carton'))
    assert p.returncode == 0 and p.stderr == ''
    assert p.stdout.splitlines() == ['the carton was opened before a fork: open it in this process'] * 4 + ['7']


GREEN = {'gevent': ('import gevent, gevent.monkey', 'gevent.monkey.patch_all()', 'gevent.joinall([gevent.spawn(f, i) for i in range(3)])'),
         'eventlet': ('import eventlet', 'eventlet.monkey_patch()',
                      '[t.wait() for t in [eventlet.spawn(f, i) for i in range(3)]]')}


@pytest.mark.parametrize('when', ['before', 'after'])
@pytest.mark.parametrize('kind', GREEN)
def test_greenlets(work, fault, cache, kind, when):
    """
    gevent and eventlet replace what threading has, by what waits for greenlets only. The library's threads are none:
    it opens, reads, waits for servers and ends, whether the module was imported before or after; and heeds Ctrl-C.
    """
    large = fault_bytes(2 * CHUNK, seed=5)
    c = LinkedCarton(method='stored').add(chunkindex.PATH, chunkindex.index(large))
    c.link('model/large', large, fault.url('link', size=len(large), seed=5))
    c.write(work / 'm.carton')
    load, patch, spawn = GREEN[kind]
    patch = f'{load}\n{patch}\n'
    words, env = command(work, ('' if when == 'before' else patch) + f"""
import gc, hashlib, os, signal
def f(i):
    c = carton.open(sys.argv[2], private_links=True, cache_dir=sys.argv[3])
    with c.open('model/large', 'rb') as f:
        print(hashlib.sha256(f.read()).hexdigest(), c.listdir('model'))
    cycle = [c.file('carton.toml')]
    cycle.append(cycle)
    if i == 1:
        c.close()
    del c, cycle
    gc.collect()
f(0)
{spawn}
print(len(carton._open), carton._waits, carton._late, flush=True)
try:
    carton.open(sys.argv[1])
except KeyboardInterrupt:
    print('interrupted')
""", fault.url('link', silent=1), work / 'm.carton', cache.path)
    if when == 'before':
        words = (*words[:2], patch + words[2], *words[3:])
    out = work / 'out'
    with open(out, 'w') as to, subprocess.Popen(words, env=environment(**env), stdout=to, stderr=subprocess.PIPE, text=True) as p:
        try:
            eventually('the request is there', lambda: any('silent' in r['path'] for r in fault.requests()), why=out.read_text)
            with at_once():
                p.send_signal(signal.SIGINT)
                assert p.communicate()[1] == '' and p.returncode == 0
        finally:
            p.kill()
    assert out.read_text().splitlines() == [f"{hashlib.sha256(large).hexdigest()} ['large']"] * 4 + ['0 {} []', 'interrupted']


def test_numbers_go_by_index(work):
    """As for the built-in open(): numbers of numpy are numbers; a float, a string and None are none, nor one that does not fit."""
    c = sample()
    p = python(work, r"""
import numpy as np
c = carton.open(sys.argv[1], date=np.int64(5), timeout_s=np.uint8(9), memory=np.int64(1 << 28))
f = c.file('model/weights.bin')
print(f.seek(np.int64(3)), f.seek(np.int8(2), np.int8(1)), f.read(np.uint8(4)).hex(), f.seek(True), f.memoryview(np.int64(-1)).nbytes)
b = c.open('model/weights.bin', 'rb', np.int64(7))
print(b.seek(np.int64(3)), b.read(np.int64(4)).hex(), c.open('model/weights.bin', 'rb', np.int64(0)).read(np.int32(1)).hex())
for wrong in (lambda: f.seek(1.0), lambda: f.seek(0, 1.0), lambda: f.seek('1'), lambda: f.seek(None), lambda: f.read(1.5),
              lambda: f.read('1'), lambda: f.memoryview(2.0), lambda: b.seek(1.0), lambda: b.read(1.5),
              lambda: c.open('model/weights.bin', 'rb', 1.5), lambda: carton.open(sys.argv[1], timeout_s=1.5),
              lambda: carton.open(sys.argv[1], cache_size='1'), lambda: carton.open(sys.argv[1], date=None),
              lambda: carton.open(sys.argv[1], verify='off'), lambda: carton.open(sys.argv[1], mirrors='/mirror'),
              lambda: carton.open(sys.argv[1], timeout_s=1 << 32), lambda: carton.open(sys.argv[1], cache_size=-1),
              lambda: carton.open(sys.argv[1], date=1 << 63)):
    try:
        print(wrong())
    except Exception as e:
        print(type(e).__name__, end=' ')
print(f.tell() == f.size)
""", c.write(work / 'm.carton'))
    weights = c.files()['model/weights.bin']
    assert p.returncode == 0 and p.stderr == ''
    assert p.stdout.splitlines() == [
        f'3 5 {weights[5:9].hex()} 1 {len(weights) - 1}', f'3 {weights[3:7].hex()} {weights[:1].hex()}',
        'TypeError ' * 15 + 'OverflowError ' * 3 + 'True']


def test_fsspec_drops_no_option(work):
    """By none of its ways: a pin with a typing error would be no pin. What its base class takes is taken."""
    p = python(work, """
import fsspec
m, url, pin = sys.argv[1], f'carton://carton.toml::{sys.argv[1]}', '0' * 64
for way in (lambda: fsspec.filesystem('carton', fo=m, manifest_sha265=pin), lambda: fsspec.filesystem('carton', fo=m, ofline=True),
            lambda: fsspec.filesystem('carton', fo=m, storage_options={'manifest_sha256': pin}),
            lambda: fsspec.filesystem('carton', fo=m, carton={'manifest_sha256': pin}),
            lambda: fsspec.filesystem('carton', fo=m, progress=1),
            lambda: fsspec.open(url, carton={'manifest_sha265': pin}), lambda: fsspec.open_files(url, carton={'ofline': True}),
            lambda: fsspec.core.url_to_fs(url, carton={'manifest_sha265': pin}),
            lambda: fsspec.get_mapper(url, carton={'manifest_sha265': pin}),
            lambda: fsspec.open(url, file={'manifest_sha256': pin}), lambda: fsspec.filesystem('carton', fo=m).open('carton.toml', manifest_sha256=pin),
            lambda: fsspec.filesystem('carton', fo=m).open('carton.toml', manifest_sha265=pin),
            lambda: fsspec.filesystem('carton', fo=m).cat('carton.toml', manifest_sha256=pin), lambda: fsspec.filesystem('carton', fo=m).ls('', verify=1),
            lambda: fsspec.open(url, carton={'manifest_sha256': pin})):
    try:
        print(way())
    except Exception as e:
        print(type(e).__name__, e)
fs = fsspec.filesystem('carton', fo=m, use_listings_cache=False, listings_expiry_time=1, max_paths=1, skip_instance_cache=True,
                       asynchronous=False, loop=None)
print(fs.cat('carton.toml') == fs.open('carton.toml', cache_type='none', block_size=1, size=3).read() == fs.read_bytes('carton.toml'))
""", sample().write(work / 'm.carton'))
    assert p.returncode == 0 and p.stderr == ''
    lines = p.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ['TypeError'] * 9 + ['ValueError'] + ['TypeError'] * 4 + ['DamagedError', 'True']
    assert lines[0] == 'TypeError no such option: manifest_sha265; did you mean manifest_sha256?'
    assert lines[1] == 'TypeError no such option: ofline; did you mean offline?'


def test_fsspec(work):
    """A file system of the real fsspec."""
    c = sample()
    p = python(work, """
import fsspec, pickle
fs = fsspec.filesystem('carton', fo=sys.argv[1], offline=True)
print(fs.ls('model', detail=False), fs.isdir('misc'), fs.exists('none'), fs.info('/carton.toml')['type'])
print(sorted(fs.find('misc')), fs.glob('model/*.py'), fs.du('misc') > 0)
print(fs.cat_file('model/weights.bin', 2, -2).hex())
print(fs.cat('misc/latest.png') == fs.cat('misc/picture.png'))
print(pickle.loads(pickle.dumps(fs)).cat('model/weights.bin') == fs.cat('model/weights.bin'))
for url in (f'carton://carton.toml::{sys.argv[1]}', f'carton://carton.toml::file://{sys.argv[1]}'):
    with fsspec.open(url, 'rt') as f:
        print(next(f).strip())
with fs.open('model/weights.bin') as f:
    f.seek(-3, 2)
    print(f.tell() == f.size - 3, f.readinto(bytearray(9)))
for wrong in (lambda: fs.open('x', 'wb'), lambda: fs.ls('none'), lambda: fsspec.filesystem('carton'),
              lambda: fs.cat_file('carton.toml', 0, 4, mode='x') and fs.cat('../carton.toml'),
              lambda: fsspec.filesystem('carton', fo='m', target_protocol='simplecache')):
    try:
        wrong()
    except Exception as e:
        print(type(e).__name__)
""", c.write(work / 'm.carton'))
    assert p.returncode == 0 and p.stderr == ''
    weights = c.files()['model/weights.bin']
    assert p.stdout.splitlines() == [
        "['model/main.py', 'model/run.sh', 'model/weights.bin'] True False file",
        "['misc/a=b c.txt', 'misc/empty', 'misc/latest.png', 'misc/picture.png'] ['model/main.py'] True",
        weights[2:-2].hex(), 'True', 'True', 'spec_version = 1', 'spec_version = 1', 'True 3', 'OSError',
        'FileNotFoundError', 'ValueError', 'FileNotFoundError', 'ValueError']


def test_dates(work):
    """stat() has the dates of a mount, or the date that was given to open()."""
    c = sample()
    p = python(work, """
for options in {}, {'date': 5}:
    c = carton.open(sys.argv[1], **options)
    print(*(c.stat(path).mtime for path in ('model/weights.bin', 'MANIFEST', 'model', 'views/tensor_data/numeric.npy')))
""", c.write(work / 'm.carton'))
    assert p.returncode == 0 and p.stderr == ''
    dates, given = ([int(x) for x in line.split()] for line in p.stdout.splitlines())
    assert dates[:2] == [date_of(c.files()[path]) for path in ('model/weights.bin', 'MANIFEST')]
    assert all(FIRST <= date <= LAST for date in dates) and given == [5] * 4


def test_options_are_those_of_the_header(work):
    """The same members at the same offsets."""
    p = python(work, '''
for o in (carton._Options, carton._Stat, carton._Range):
    print(*(f'{name}={getattr(o, name).offset}' for name, _ in o._fields_), carton.ctypes.sizeof(o))
''')
    lines = dict.fromkeys(('carton_options', 'carton_stat', 'carton_range'), '')
    for kind, line in zip(lines, p.stdout.splitlines()):
        names = [word.split('=')[0] for word in line.split()[:-1]]
        assert len(names) > 2
        lines[kind] = ''.join(f'printf("{n}=%zu ", offsetof(struct {kind}, {n}));\n' for n in names)
    source = work / 'offsets.c'
    source.write_text('#include <carton.h>\n#include <stdio.h>\nint main(void)\n{\n' + ''.join(
        f'{text}printf("%zu\\n", sizeof(struct {kind}));\n' for kind, text in lines.items()) + 'return 0;\n}\n')
    assert run('cc', '-I', ROOT / 'core', '-o', work / 'offsets', source).returncode == 0
    assert run(work / 'offsets').stdout == p.stdout
