# SPDX-License-Identifier: Apache-2.0
"""Prints the directory below a prefix in which this Python looks for modules: where.py PREFIX"""
import sys
import sysconfig

prefix, schemes = sys.argv[1].rstrip('/'), sysconfig.get_scheme_names()
if prefix == '/usr' and 'deb_system' in schemes:        # Debian's own modules
    scheme = 'deb_system'
elif prefix.endswith('/local') and 'posix_local' in schemes:
    scheme, prefix = 'posix_local', prefix[:-len('/local')]
else:
    scheme = 'posix_prefix'
print(sysconfig.get_path('purelib', scheme, vars={'base': prefix}))
