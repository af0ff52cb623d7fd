# SPDX-License-Identifier: Apache-2.0
"""
A carton in the form in which the reference packer writes it, byte for byte where that matters:

  - each entry one zstd frame that does not say how long its content is; MANIFEST, LINKS and
    symlinks Stored
  - no modes, and dates that are either 1980-01-01 or 0 (month 0, day 0)
  - symlinks are zip symlinks; MANIFEST has the hash of the file that they lead to
  - TOML strings are literal ('…') or multi-line literal ('''…'''); every tensor has `inner = []`
"""
import hashlib
import struct

import zstandard

from zipwriter import Carton

DATES = {'date 0': None, 'date 1980-01-01': (1980, 1, 1, 0, 0, 0)}

CARTON_TOML = """\
spec_version = 1
model_name = 'Test Model'
short_description = 'A "short" description with a \\ that escapes nothing'
model_description = '''

Some description, over several lines, that has 'single' and ''two'' quotes. 🥳

![Model Architecture](@misc/model_architecture.png)
'''
required_platforms = [
    'x86_64-unknown-linux-gnu',
    'aarch64-apple-darwin',
]

[[input]]
name = 'a'
dtype = 'float32'
shape = '*'

[[input]]
name = 'b'
dtype = 'string'
shape = ['some_symbol']

[[input]]
name = 'f'
dtype = 'int32'
shape = [
    'batch_size',
    3,
    512,
    512,
]

[[output]]
name = 'y'
dtype = 'uint32'
shape = []
description = 'Some description of the output with emoji! 🥳'

[[self_test]]
name = 'a_self_test'
description = 'A self test'

[self_test.inputs]
b = '@tensor_data/_tensor_0'
a = '@tensor_data/_tensor_1'

[self_test.expected_out]
y = '@tensor_data/_tensor_2'

[[example]]
name = 'an_optional_name'

[example.inputs]
f = '@misc/_example_misc_file_0'

[example.sample_out]
y = '@tensor_data/_tensor_3'

[runner]
runner_name = 'python'
required_framework_version = '=3.11'
runner_compat_version = 1

[runner.opts]
entrypoint_fn = 'get_model'
"""

INDEX_TOML = """\
[[tensor]]
name = '_tensor_1'
dtype = 'float32'
shape = [5]
file = 'tensor_0.bin'
inner = []

[[tensor]]
name = '_tensor_0'
dtype = 'string'
shape = [4]
file = 'tensor_1.toml'
inner = []

[[tensor]]
name = '_tensor_2'
dtype = 'uint32'
shape = [2, 2]
file = 'tensor_2.bin'
inner = []

[[tensor]]
name = '_tensor_3'
dtype = 'int64'
shape = []
file = 'tensor_3.bin'
inner = []
"""

STRINGS = ['Hello 💖 😂😍🎉👍 Unicode', 'a \\ and a "', "Let's 🤑 make 🙋😬 sure",
           "two\nlines, and ''"]
STRINGS_TOML = """\
data = [
    'Hello 💖 😂😍🎉👍 Unicode',
    'a \\ and a "',
    '''Let's 🤑 make 🙋😬 sure''',
    '''
two
lines, and \'\'''',
]
"""


def frame(data):
    """One zstd frame as a streaming encoder makes it: no content size, no checksum."""
    c = zstandard.ZstdCompressor(level=3).compressobj()
    out = c.compress(data) + c.flush()
    assert out[4] & 0xe4 == 0 or not data
    return out


def packed(date=None):
    """A Carton of that form. All dates in it are `date`, one of DATES' values."""
    c = Carton(toml=None)
    common = dict(mode=0, mtime=date)

    def add(path, data):
        c.add(path, data, payload=frame(data), **common)

    add('carton.toml', CARTON_TOML.encode())
    picture = bytes(i * i % 251 for i in range(300000))
    add('misc/_example_misc_file_0', picture[::-1])
    add('misc/model_architecture.png', picture)
    add('tensor_data/tensor_0.bin', struct.pack('<5f', 1, -1, 0.5, 3e38, 0))
    add('tensor_data/tensor_1.toml', STRINGS_TOML.encode())
    add('tensor_data/tensor_2.bin', struct.pack('<4I', 0, 1, 2, 2**32 - 1))
    add('tensor_data/tensor_3.bin', struct.pack('<q', -(2**63)))
    add('tensor_data/index.toml', INDEX_TOML.encode())
    add('model/main.py', b'def get_model():\n    return None\n')
    add('model/.carton/carton.lock', b"orig_deps_hash = '73dd'\n")
    add('model/empty', b'')
    c.symlink('misc/latest.png', 'model_architecture.png', mtime=date)
    c.symlink('model/weights', '../misc/_example_misc_file_0', mtime=date)
    digest = hashlib.sha256(picture).hexdigest()
    links = f"version = 1\n\n[urls]\n{digest} = ['https://example.com/model_architecture.png']\n"
    c.add('LINKS', links.encode(), method='stored', **common)
    c.manifest_entry = common
    return c
