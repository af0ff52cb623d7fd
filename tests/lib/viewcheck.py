# SPDX-License-Identifier: Apache-2.0
"""What the tests of views share: what is below views/tensor_data, held against a TensorData."""
import json
import os
import re

import numpy as np

import harness
from tensorfiles import TensorData
from zipwriter import Carton

MIB = 1 << 20
DATA = 'views/tensor_data'


def index_of(m, where=DATA):
    return json.loads(harness.read_file(m / f'{where}/index.json'))


def names_in(m, where=DATA):
    """All below a directory but index.json, as paths from there. Opens no file."""
    return {os.path.relpath(p, m / where) for p in names_of_walk(m / where)} - {'index.json'}


def names_of_walk(top):
    return sorted(os.path.join(r, n) for r, d, f in os.walk(top) for n in d + f)


def files_in(m, where=DATA):
    return {n for n in names_in(m, where) if os.path.isfile(m / f'{where}/{n}')}


def xattr(path, name):
    return os.getxattr(path, 'user.carton.' + name).decode()


def write(work, *tensors, method='zstd', name='m.carton', **kw):
    """A carton file with these tensors; its TensorData."""
    td = TensorData(*tensors)
    td.put(Carton(method=method, **kw)).write(work / name)
    return td


def check_values(m, td):
    """Bytes, and what numpy loads, of each view."""
    for t in td.list:
        stem = m / f'{DATA}/{t.name}'
        if t.dtype == 'nested':
            assert xattr(stem, 'dtype') == 'nested'
            for i, name in enumerate(t.inner):
                inner = next(x for x in td.list if x.name == name)
                path = f'{stem}/{i}.bin'
                assert harness.read_file(path) == inner.bin(), path
                assert xattr(path, 'dtype') == inner.dtype
                assert json.loads(xattr(path, 'shape')) == list(inner.shape)
            assert sorted(os.listdir(stem)) == sorted(f'{i}.bin' for i in range(len(t.inner)))
            continue
        assert harness.read_file(stem + '.bin') == t.bin(), t.name
        npy, want = t.npy(), [stem + '.bin']
        assert os.path.exists(stem + '.npy') == (npy is not None)
        if npy is not None:
            want.append(stem + '.npy')
            assert harness.read_file(stem + '.npy') == npy, t.name
            for mode in (None, 'r'):
                got = np.load(stem + '.npy', mmap_mode=mode)
                assert got.dtype == t.array().dtype and got.shape == tuple(t.shape)
                assert got.tobytes() == t.array().tobytes()
        for path in want:
            assert xattr(path, 'dtype') == t.dtype
            assert json.loads(xattr(path, 'shape')) == list(t.shape)
            assert os.listxattr(path) == []


def check_index(m, td):
    index, by_name = index_of(m), {t.name: t for t in td.list}
    assert index['problems'] == [] and list(index) == ['tensors', 'problems']
    assert [t['name'] for t in index['tensors']] == [t.name for t in td.list]
    for got in index['tensors']:
        t = by_name[got['name']]
        assert got['dtype'] == t.dtype
        if t.dtype == 'nested':
            assert got['inner'] == t.inner
            assert got['files'] == [f'{t.name}/{i}.bin' for i in range(len(t.inner))]
            assert got['bytes'] == sum(len(by_name[n].bin()) for n in t.inner)
        else:
            suffixes = ['bin', 'npy'] if t.npy() is not None else ['bin']
            assert got['files'] == [f'{t.name}.{s}' for s in suffixes]
            assert (got['shape'], got['bytes']) == (list(t.shape), len(t.bin()))
    files = [f for t in index['tensors'] for f in t['files']]
    assert len(files) == len(set(files))
    assert files_in(m) == set(files)


def io_read(pid):
    return int(re.search(r'rchar: (\d+)', open(f'/proc/{pid}/io').read())[1])


def cpu_seconds(pid):
    """What a process has used so far, which is the same however busy the machine is."""
    fields = harness.read_file(f'/proc/{pid}/stat').rpartition(b')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
