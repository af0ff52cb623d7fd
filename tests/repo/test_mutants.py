# SPDX-License-Identifier: Apache-2.0
"""The tables of tests/mutants: what they take out is there, and so are the tests that must find it."""
import importlib.machinery
import importlib.util

from harness import ROOT

PROGRAM = ROOT / 'tests/mutants/run'


def program():
    loader = importlib.machinery.SourceFileLoader('mutants', str(PROGRAM))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('mutants', loader))
    loader.exec_module(module)
    return module


def test_tables():
    mutants, faults = program().load()
    assert faults == []
    assert len(mutants) >= 2


def test_faults_are_found(work):
    """A table that names what is not there."""
    for name in ('tests/mutants', 'tests/unit', 'core'):
        (work / name).mkdir(parents=True)
    (work / 'core/a.c').write_text('\tone();\n\ttwo();\n\ttwo();\n')
    (work / 'tests/unit/test_a.c').write_text('cmocka_unit_test(test_one),\n')
    table = work / 'tests/mutants/a.toml'

    def faults(**fields):
        good = {'name': 'one', 'guards': 'One is always called.', 'file': 'core/a.c', 'before': '\tone();\n', 'after': '',
                'tests': ['unit/test_a:test_one'], **fields}
        entry = '[[mutant]]\n' + ''.join(f'{k} = {v!r}\n' if isinstance(v, list) else f"{k} = '''\n{v}'''\n" if '\n' in v
                                         else f"{k} = '{v}'\n" for k, v in good.items() if v is not None)
        table.write_text(entry)
        return program().load(work)[1]

    assert faults() == []
    for fields, fault in (({'before': '\ttwo();\n'}, 'its text is 2 times in core/a.c'),
                          ({'before': '\tthree();\n'}, 'its text is 0 times in core/a.c'),
                          ({'before': 'one();\n'}, 'its text is 0 times in core/a.c'),
                          ({'file': 'core/b.c'}, 'its text is 0 times in core/b.c'),
                          ({'after': '\tone();\n'}, 'changes no line'),
                          ({'name': 'One'}, 'is no name'),
                          ({'guards': 'x'}, 'does not say what the check guards'),
                          ({'tests': []}, 'names no test'),
                          ({'tests': ['unit/test_a:test_on']}, 'there is no test unit/test_a:test_on'),
                          ({'tests': ['fs/test_a.py::test_one']}, 'there is no test fs/test_a.py::test_one'),
                          ({'soak': ['none']}, 'there is no kind none of tests/soak'),
                          ({'guards': None}, 'has the fields name file before after tests'),
                          ({'second': 'Because.'}, 'has the fields name guards file before after tests second'),
                          ({'with': 'two', 'second': 'Because.'}, 'no mutant is called two')):
        found = faults(**fields)
        assert len(found) == 1 and found[0].endswith(fault), found
    assert faults() == []
    table.write_text(table.read_text() * 2)
    assert program().load(work)[1] == ['a.toml: one: the name is there twice']
