#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
A carton from Python, without a mount: lists it, or reads a tensor of it into NumPy.

	example.py CARTON [PATH.npy]

The module carton is in the package python3-carton, or in core/: PYTHONPATH=core. Set LIBCARTON=FILE if the library is
not installed.
"""
import io
import sys

import carton


def main():
    try:
        with carton.open(sys.argv[1]) as c:
            if len(sys.argv) == 2:
                print('\n'.join(c.paths()))
                return
            import numpy
            with c.open(sys.argv[2], 'rb') as f:
                print(numpy.load(io.BytesIO(f.read())).tolist())
    except OSError as e:
        sys.exit(str(e))


if __name__ == '__main__':
    main()
