# SPDX-License-Identifier: Apache-2.0
"""
Every malformed carton that must be refused, by name, and what the refusal must say.

A case changes a good small carton in one place. Its stage says when the fault must be met:
  mount   `cartonfs` exits with 32 and one line of stderr names the entry and the reason
  open    the mount stands, opening that entry is EIO, every other file reads right
  either  one of the two (a fault that shows only in the entry's local header or stream)

    python3 malformed.py DIRECTORY      writes all of them there, for a look by hand
"""
import importlib
import os
import sys
from dataclasses import dataclass

from zipwriter import Carton

CASES = {}


@dataclass
class Case:
    name: str
    regex: str
    change: object
    stage: str = 'mount'
    entry: str = None               # named in the message; what is read at stage open
    errors: tuple = ('EIO',)
    directory: bool = False
    victims: tuple = ()             # with no entry: which of the files may fail at open
    carton: Carton = None

    def make(self, path):
        """Writes it to `path`; afterwards `carton` tells what the good files hold."""
        self.carton = c = base()
        if self.directory:
            self.change(c, c.unpack(path))
            return path
        patch = self.change(c)
        c.write(path)
        if patch:
            with open(path, 'rb') as f:
                data = bytearray(f.read())
            replaced = patch(data, c.placed)
            with open(path, 'wb') as f:
                f.write(data if replaced is None else replaced)
        return path


def case(name, regex, stage='mount', entry=None, **kw):
    """Decorates change(c), which may return patch(bytearray, {name: Placed})."""
    def keep(change):
        assert name not in CASES, name
        CASES[name] = Case(name, regex, change, stage, entry, **kw)
        return change
    return keep


def fields(name, regex, stage, path='model/a', named=..., victims=(), **changes):
    """A case that only changes Entry fields of `path`, which the message names unless `named`."""
    entry = path if named is ... else named
    case(name, regex, stage, entry, victims=victims)(lambda c: c.change(path, **changes) and None)


def whole(name, regex, **changes):
    """A case that only changes Zip fields: the fault is the archive's, not an entry's."""
    case(name, regex)(lambda c: c.zip.__dict__.update(changes))


def base():
    c = Carton(method='stored')
    c.add('model/a', b'content of a\n' * 50)
    c.add('model/b', b'content of b\n' * 500, method='deflate')
    c.add('model/c', b'content of c\n' * 500, method='zstd')
    c.add('misc/d', b'content of d\n')
    return c


def all_cases():
    for module in ('malformed_zip', 'malformed_text'):
        importlib.import_module(module)
    return list(CASES.values())


def main():
    import malformed                # the module the cases register with, not __main__
    os.makedirs(sys.argv[1], exist_ok=True)
    cases = malformed.all_cases()
    for c in cases:
        c.make(os.path.join(sys.argv[1], c.name + ('' if c.directory else '.carton')))
    print(len(cases), 'written to', sys.argv[1])


if __name__ == '__main__':
    main()
