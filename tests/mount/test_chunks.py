# SPDX-License-Identifier: Apache-2.0
"""The chunk index: cartonfs-chunks(5), and mounts of cartons that have one."""
import hashlib
import re

import chunkindex
from harness import ROOT, run

PAGE = ROOT / 'fs/cartonfs-chunks.5'


# ---- the man page ----

def literal_blocks():
    return [re.sub(r'\\e', r'\\', block)
            for block in re.findall(r'^\.Bd -literal\n(.*?)^\.Ed', PAGE.read_text(), re.M | re.S)]


def test_page_example():
    """The bytes in the page are the index that this page describes, and its reader reads them."""
    dump, reader = literal_blocks()
    data = bytes.fromhex(''.join(line[6:53] for line in dump.splitlines()))
    content = bytes(300000)
    assert data == chunkindex.index(content)
    names = {}
    exec(reader, names)
    chunk, hashes = names['chunks'](data, hashlib.sha256(content).digest())
    assert chunk == chunkindex.CHUNK and hashes == chunkindex.chunk_hashes(content)
    assert names['chunks'](data, bytes(32)) is None


def test_page_is_valid():
    p = run('mandoc', '-T', 'lint', '-W', 'warning', PAGE)
    assert p.returncode == 0, p.stdout
