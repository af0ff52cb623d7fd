# SPDX-License-Identifier: Apache-2.0
"""What of a directory the kernel keeps when it is listed: names only, until files of some were looked at."""
import os
import re

from harness import eventually, foreground
from zipwriter import Carton

FILES = 200
LOOKED_AT = 32      # LISTED_FILES in fs/mount/ops.c


def test_files_are_known_once_some_were_looked_at(work):
    c = Carton(method='stored')
    for i in range(FILES):
        c.add(f'model/sub/{i:03}', b'x' * i)
    c.write(work / 'm.carton')
    (work / 'mnt').mkdir()
    with foreground(work / 'm.carton', work / 'mnt', '-d') as m:
        sub = os.path.join(m, 'model/sub')

        def looked_up():
            return len(re.findall('opcode: LOOKUP', m.log()))

        def names():
            return sorted(e.name for e in os.scandir(sub) if e.is_file(follow_symlinks=False))

        want = [f'{i:03}' for i in range(FILES)]
        assert names() == want
        before = looked_up()
        for i in range(LOOKED_AT):
            assert os.stat(f'{sub}/{i:03}').st_size == i
        eventually('each was looked up', lambda: looked_up() == before + LOOKED_AT)
        assert names() == want
        # now a list has the attributes, too, of all the others
        assert [os.stat(f'{sub}/{name}').st_size for name in want] == list(range(FILES))
        assert looked_up() == before + LOOKED_AT
