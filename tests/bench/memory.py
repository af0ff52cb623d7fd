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
    """An index.toml of `count` tensors, which share one file: what a file takes is what an entry takes."""
    w = data.Writer(path)
    w.bytes('carton.toml', data.TOML, data.DEFLATE)
    w.bytes('tensor_data/t.bin', bytes(64))
    w.bytes('tensor_data/index.toml', ''.join(
        f"[[tensor]]\nname = 'layer.{i}'\ndtype = 'float32'\nshape = [4, 4]\n"
        "file = 't.bin'\ninner = []\n" for i in range(count)).encode(), data.DEFLATE)
    w.close()


def entries(b):
    s = b.section('Mounting entries of 8 bytes, by their number')
    counts = [10 ** i for i in range(1, b.pick(7, 5, 4))]
    peaks = {}
    for count in counts:
        b.say(f'{count} entries')
        source = b.path('tiny.carton')
        write_tiny(source, count)

        def mount(note):
            with b.carton(source, lambda seconds: note(f'mount of {count}', seconds)):
                peaks.setdefault(count, []).append(timing.peak_memory(b.mnt))

        def listing(note):
            b.conditions.pages(source)
            note(f'unzip -l of {count}', timed(timing.shell, 'unzip -l "$1"', source))

        def peer(name, command):
            def contest(note):
                with b.peer(command, source, lambda seconds: note(f'{name}, mount of {count}', seconds)):
                    pass
            return contest

        s.run(mount, *[listing] * bool(shutil.which('unzip')), *[peer(k, v) for k, v in b.peers.items()])
        b.remove(source)
        for what in ('unzip -l', *(f'{name}, mount' for name in b.peers)):
            s.row(f'mount of {count}', f'{what} of {count}')
    s.time_curve('entries', {'mount': [(n, f'mount of {n}') for n in counts],
                             'unzip -l': [(n, f'unzip -l of {n}') for n in counts]})
    medians = {n: statistics.median(p) for n, p in peaks.items()}
    s.curve('bytes', 'entries', {'of an entry, at the peak': [
        (n, (medians[n] - medians[counts[0]]) / n) for n in counts[1:]]}, s.conditions[f'mount of {counts[0]}'])


def tensors(b):
    s = b.section('Listing the views of tensors, with their index.json, by their number')
    kinds = {'index.toml, of one file': (write_index, 'views/tensor_data'),
             'safetensors header': (data.write_safetensors, 'views/model/w.safetensors')}
    peaks = {name: [] for name in kinds}
    for count in [10 ** i for i in range(3, b.pick(7, 5, 4))]:
        for name, (write, path) in kinds.items():
            b.say(f'{count} tensors')
            source = b.path('tensors.carton')
            write(source, count)
            with b.carton(source, options=['memory=2G']) as top:
                before = timing.peak_memory(b.mnt)
                os.listdir(f'{top}/{path}')
                peaks[name].append((count, (timing.peak_memory(b.mnt) - before) / count))
            os.unlink(source)
    s.curve('bytes', 'tensors', {f'{name}: of a tensor': p for name, p in peaks.items()},
            b.conditions.text())
