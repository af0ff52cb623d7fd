# SPDX-License-Identifier: Apache-2.0
"""
How the time of a mount and the memory of the process grow with the number of entries and of tensors.
"""
import os
import shutil
import statistics

import data
import timing
from timing import timed


def write_tiny(path, count):
    """`count` Stored files of 8 bytes, in directories of 1000."""
    w = data.Writer(path)
    w.bytes('carton.toml', data.TOML, data.DEFLATE)
    for i in range(count):
        w.bytes(f'model/d{i // data.PER_DIR:03}/file{i % data.PER_DIR:04}', b'%08d' % i)
    w.close()


def write_index(path, count):
    """An index.toml of `count` tensors, which share one file."""
    w = data.Writer(path)
    w.bytes('carton.toml', data.TOML, data.DEFLATE)
    w.bytes('tensor_data/t.bin', bytes(64))
    w.bytes('tensor_data/index.toml', ''.join(
        f"[[tensor]]\nname = 'layer.{i}'\ndtype = 'float32'\nshape = [4, 4]\n"
        "file = 't.bin'\ninner = []\n" for i in range(count)).encode(), data.DEFLATE)
    w.close()


def entries(b):
    s = b.section('Mounting entries of 8 bytes, by their number')
    times = {'mount': [], 'unzip -l': []} if shutil.which('unzip') else {'mount': []}
    peaks, idle = [], None
    for count in [10 ** i for i in range(1, 5 if b.quick else 7)]:
        b.say(f'{count} entries')
        source = b.path('tiny.carton')
        write_tiny(source, count)
        spent = {name: [] for name in times}
        for _ in range(3):
            with b.carton(source, spent['mount'].append):
                peak = timing.peak_memory(b.mnt)
            if 'unzip -l' in spent:
                spent['unzip -l'].append(timed(timing.shell, 'unzip -l "$1"', source))
        for name, seconds in spent.items():
            times[name].append((count, statistics.median(seconds)))
        if idle is None:
            idle = peak
        else:
            peaks.append((count, (peak - idle) / count))
        os.unlink(source)
    s.curve('seconds', 'entries', times)
    s.curve('bytes', 'entries', {'of an entry, at the peak': peaks})


def tensors(b):
    s = b.section('Listing the views of tensors, with their index.json, by their number')
    kinds = {'index.toml': (write_index, 'views/tensor_data'),
             'safetensors header': (data.write_safetensors, 'views/model/w.safetensors')}
    peaks = {name: [] for name in kinds}
    for count in [10 ** i for i in range(3, 5 if b.quick else 7)]:
        for name, (write, path) in kinds.items():
            b.say(f'{count} tensors')
            source = b.path('tensors.carton')
            write(source, count)
            with b.carton(source, options=['memory=2G']) as top:
                before = timing.peak_memory(b.mnt)
                os.listdir(f'{top}/{path}')
                peaks[name].append((count, (timing.peak_memory(b.mnt) - before) / count))
            os.unlink(source)
    s.curve('bytes', 'tensors', {f'{name}: of a tensor': p for name, p in peaks.items()})


def memory(b):
    entries(b)
    tensors(b)
