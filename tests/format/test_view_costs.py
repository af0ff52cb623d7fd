# SPDX-License-Identifier: Apache-2.0
"""What views may cost: reads of a file, work that nobody waits for, memory."""
import os
import re
import subprocess
from pathlib import Path

import harness
from harness import ctl, eventually
from tensorfiles import Tensor, TensorData, st, st_bytes
from viewcheck import DATA, MIB, cpu_seconds, index_of
from zipwriter import Carton


def strings(n):
    """A file of `n` empty strings."""
    return b'data = [' + b'"",' * n + b']\n'


def shared(work, n, tensors, name):
    """A carton with one file of strings, which is the data of so many tensors."""
    td = TensorData(*[Tensor(f't{i}', 'string', (n,), raw=strings(n), file='s.toml')
                      for i in range(tensors)])
    return td.put(Carton().add('model/x', b'')).write(work / name)


def test_strings_are_measured_once(work, mount):
    """A file of strings is read once, however many tensors use it."""
    n, spent = 4000000, []
    for tensors in (1, 100):
        path = shared(work, n, tensors, f'{tensors}.carton')
        with mount(path) as m:
            m.read('tensor_data/s.toml')
            before = cpu_seconds(m.pids[0])
            assert len(os.listdir(m / DATA)) == 2 * tensors + 1
            spent.append(cpu_seconds(m.pids[0]) - before)
            assert index_of(m)['tensors'][-1]['bytes'] == 4 * n
        before = os.times().children_user
        assert ctl('verify', path).returncode == 0
        spent.append(os.times().children_user - before)
    assert spent[2] < 10 * spent[0] + 0.1 and spent[3] < 10 * spent[1]


def test_strings_of_another_shape(work, mount):
    """One file, right for one tensor and wrong for others: each is checked by itself."""
    td = TensorData(*[Tensor(f't{i}', 'string', (i,), raw=strings(3), file='s.toml')
                      for i in range(6)],
                    *[Tensor(f'b{i}', 'string', (i,), raw=b'data = [1]', file='b.toml')
                      for i in range(2)])
    td.put(Carton()).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        index = index_of(m)
        assert [t['name'] for t in index['tensors']] == ['t3']
        assert [(p['name'], p['problem']) for p in index['problems']] == [
            (f't{i}', f's.toml: data has 3 elements, but its shape {i}')
            for i in range(6) if i != 3] + [
            (f'b{i}', 'b.toml: line 1: an element of data is not a string') for i in range(2)]


def idle(pid):
    """Does no thread of the process run?"""
    return all(harness.read_file(s).rpartition(b')')[2].split()[0] == b'S'
               for s in Path(f'/proc/{pid}/task').glob('*/stat'))


def test_nobody_waits_any_more(work, mount):
    """A listing that nobody waits for is cancelled; the next one starts over."""
    n, files = 6000000, 12
    td = TensorData(*[Tensor(f't{i:02}', 'string', (n + i,), raw=strings(n + i))
                      for i in range(files)])
    td.put(Carton()).write(work / 'm.carton')
    with mount(work / 'm.carton') as m:
        last = f'tensor_data/{td.list[-1].file}'
        p = subprocess.Popen(['ls', m / DATA], stdout=subprocess.DEVNULL)
        eventually('the first is looked at', lambda: m.state('tensor_data/t0.toml') == 'verified')
        p.kill()
        p.wait()
        eventually('nothing is done', lambda: idle(m.pids[0]))
        assert m.state(last) == 'unverified'
        assert len(os.listdir(m / DATA)) == 2 * files + 1 and m.state(last) == 'verified'


def test_header_costs_as_much_as_it_is_long(work, mount):
    """A string of eight times the length takes eight times the work, not 64 times."""
    spent = []
    for mib in (8, 64):
        header = {'__metadata__': {'k': 'x' * (mib << 20)}}
        Carton().add('model/w.safetensors', st_bytes(header)).write(work / f'{mib}.carton')
        with mount(work / f'{mib}.carton', '-o', f'memory=2G,cache_dir={work}/cache') as m:
            before = cpu_seconds(m.pids[0])
            assert len(index_of(m, 'views/model/w.safetensors')['metadata']['k']) == mib << 20
            spent.append(cpu_seconds(m.pids[0]) - before)
    assert spent[1] < 20 * spent[0] + 0.1


def resident(pid):
    """Bytes of memory that a process has now."""
    return int(re.search(r'VmRSS:\s+(\d+) kB', open(f'/proc/{pid}/status').read())[1]) << 10


REFUSED = 'too many files or too much text'


def test_memory_of_headers(work, mount_fg):
    """Many views of one long header: their text is made when it is read, and not kept in memory."""
    header = {'__metadata__': {f'k{i}': 'x' * 60000 for i in range(1000)}}
    data, c, files = st_bytes(header), Carton(), 5
    for i in range(files):
        c.add(f'model/{i:02}.safetensors', data)
    c.write(work / 'm.carton')
    with mount_fg(work / 'm.carton', '-o', f'memory=2G,cache_dir={work}/cache') as m:
        for i in range(files):
            where = f'views/model/{i:02}.safetensors'
            index = index_of(m, where)
            assert index['metadata'] == header['__metadata__'] and index['problems'] == []
            assert len(m.read(f'{where}/index.json')) == os.path.getsize(m / f'{where}/index.json')
        if harness.SLOW == 1:           # sanitizers keep freed memory
            assert resident(m.pids[0]) < len(data) + 40 * MIB


# Bytes for each tensor of a directory: the table and two files; for index.toml also its place in
# tensor_data.safetensors. malloc of glibc 2.41 keeps more of what was freed than 2.36.
W = 'views/model/w.safetensors'
PER_TENSOR = {W: 300, DATA: 360}


def test_memory_of_tensors(work, mount_fg):
    n = 200000
    text = b''.join(b'[[tensor]]\nname = "layer.%d"\ndtype = "float32"\nshape = [2, 3]\n'
                    b'file = "t.bin"\ninner = []\n' % i for i in range(n))
    header = {f'layer.{i}': st('F32', (1, 1), 4 * i, 4 * i + 4) for i in range(n)}
    files = {DATA: ('tensor_data/index.toml', text),
             W: ('model/w.safetensors', st_bytes(header, bytes(4 * n)))}
    for where, limit in PER_TENSOR.items():
        c = Carton().add('tensor_data/t.bin', bytes(24)) if where == DATA else Carton()
        c.add(*files[where]).write(work / 'm.carton')
        with mount_fg(work / 'm.carton', '-o', f'memory=2G,cache_dir={work}/cache') as m:
            before = resident(m.pids[0])
            assert len(os.listdir(m / where)) == 2 * n + 1
            if harness.SLOW == 1:
                assert resident(m.pids[0]) - before < limit * n, where


def test_memory_of_requests(work, mount_fg):
    """Every response has the model's name: together over the limit. Other views are there."""
    td = TensorData(Tensor('x', 'uint8', (1,), b'x'))
    toml = b"spec_version = 1\nmodel_name = '%s'\n" % (b'n' * (8 * MIB))
    toml += b"[[self_test]]\ninputs.x = '@tensor_data/x'\nexpected_out.y = '@tensor_data/x'\n" * 65
    td.put(Carton(toml)).write(work / 'm.carton')
    with mount_fg(work / 'm.carton', '-o', 'memory=1G') as m:
        assert os.listdir(m / 'views/triton') == ['index.json']
        assert REFUSED in index_of(m, 'views/triton')['problems'][0]['problem']
        assert REFUSED in m.log() and m.read(f'{DATA}/x.bin') == b'x'
        if harness.SLOW == 1:
            assert resident(m.pids[0]) < 200 * MIB
