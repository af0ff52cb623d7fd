# SPDX-License-Identifier: Apache-2.0
"""Claims about sources and Makefile: layers, symbols, rebuilds, install, man pages, the unit."""
import configparser
import os
import re
import shutil
from pathlib import Path

import pytest

from harness import BUILD, CARTONCTL, CARTONFS, ROOT, run

CORE, FS = ROOT / 'core', ROOT / 'fs'
MAN = ('cartonfs.1', 'cartonctl.1')
UNIT = 'cartonfs@.service'
# What fs/ may see of core/, and so no module of core/ is too low to know.
PUBLIC = ('carton.h', 'log.h')


def make(*args, cwd=ROOT, status=0):
    p = run('make', '--no-print-directory', *args, cwd=cwd)
    assert p.returncode == status, p.stdout + p.stderr
    return p.stdout


def includes(path, form):
    return re.findall(r'^\s*#\s*include\s*' + form, path.read_text(), re.M)


def sources(directory):
    files = sorted(directory.glob('*.[ch]'))
    assert len(files) > 5
    return files


# ---- layers ----

def rooms():
    """The folders of core/, highest first, as the stack in core/README.md has them; '' is core/ itself."""
    block = re.search(r'```text\n(core/ .*?)```', (CORE / 'README.md').read_text(), re.S)
    names = [line.split()[0] for line in block[1].splitlines() if not line.startswith(' ')]
    assert names[0] == 'core/' and set(names[1:]) == {f'{p.name}/' for p in CORE.iterdir() if p.is_dir()}
    return ['', *(name.rstrip('/') for name in names[1:])]


def room(name):
    return name.rpartition('/')[0]


def core_sources():
    files = sorted(str(p.relative_to(CORE)) for p in CORE.rglob('*.[ch]'))
    assert len(files) > 100
    return files


def test_core_includes_downwards():
    order = rooms()
    for name in core_sources():
        for target in includes(CORE / name, '"([^"]*)"'):
            assert (CORE / target).exists(), f'core/{name} includes {target}'
            if target in PUBLIC:
                continue
            assert order.index(room(target)) >= order.index(room(name)), \
                f'core/{name} includes {target}, of a higher folder'


def test_one_internal_header_for_each_folder():
    for name in core_sources():
        stem = Path(name).stem
        assert stem == 'internal' or not re.search('priv|parts|internal', stem), name
        if stem == 'internal':
            continue
        for target in includes(CORE / name, '"([^"]*)"'):
            assert Path(target).stem != 'internal' or room(target) == room(name), \
                f'core/{name} includes {target}, which is private to its folder'


def calls():
    """Which object file of core/ uses which: by the symbols that nm shows."""
    defines, uses = {}, {}
    for path in (BUILD / 'core').rglob('*.o'):
        name = str(path.relative_to(BUILD / 'core'))[:-2]
        if not (CORE / f'{name}.c').exists():  # from before the file was removed
            continue
        uses[name] = set()
        for line in run('nm', path).stdout.splitlines():
            *_, kind, symbol = line.split()
            if kind in 'TDBRV':
                defines[symbol] = name
            elif kind == 'U':
                uses[name].add(symbol)
    assert len(uses) > 50
    return {a: {defines[s] for s in symbols if s in defines} - {a} for a, symbols in uses.items()}


def circles(graph):
    """The sets of nodes that reach each other (Tarjan's strongly connected components)."""
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph.get(v, ()):
            if w not in index:
                visit(w)
            if w in stack:
                low[v] = min(low[v], low[w])
        if low[v] == index[v]:
            at = stack.index(v)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for v in graph:
        if v not in index:
            visit(v)
    return found


def test_circles_are_found():
    assert circles({'a': {'b'}, 'b': {'c'}, 'c': set()}) == []
    assert circles({'a': {'b'}, 'b': {'c'}, 'c': {'b', 'd'}, 'd': set()}) == [['b', 'c']]


def test_no_circles():
    files = calls()
    order = rooms()
    for a, bs in files.items():
        for b in bs:
            if b != 'base/log':
                assert order.index(room(b)) >= order.index(room(a)), f'{a} calls {b}, of a higher folder'
    assert circles(files) == []
