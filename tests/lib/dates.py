# SPDX-License-Identifier: Apache-2.0
"""The dates that a mount shows: see DATES in cartonfs(7)."""
import os

from zipwriter import sha256

FIRST = 631152000                       # 1990-01-01
LAST = FIRST + 2 * (16**7 - 1)


def date_of(data):
    return FIRST + 2 * int(sha256(data)[:7], 16)


def look(root, views=True):
    """{path: (date, inode number)} of all that is listed."""
    out = {'.': (os.stat(root).st_mtime, os.stat(root).st_ino)}
    for where, dirs, files in os.walk(root):
        for name in dirs + files:
            st = os.lstat(os.path.join(where, name))
            assert st.st_mtime == st.st_ctime == st.st_atime and st.st_mtime == int(st.st_mtime), name
            out[os.path.relpath(os.path.join(where, name), root)] = st.st_mtime, st.st_ino
    return {p: v for p, v in out.items() if views or not p.startswith('views')}
