# SPDX-License-Identifier: Apache-2.0
"""The functions that hash several streams at once are right, and are used wherever the processor can."""
import platform

from harness import BUILD, run

# What /proc/cpuinfo must have for the instructions of each.
NEEDS = dict(x86_64=('SHA-NI', {'sha_ni', 'ssse3', 'sse4_1'}), aarch64=('SHA2 of ARMv8', {'sha2'}))


def test_the_processor_is_used():
    name, flags = NEEDS.get(platform.machine(), ('none', set()))
    with open('/proc/cpuinfo') as f:
        has = next((set(line.split()) for line in f if line.startswith(('flags', 'Features'))), set())
    p = run(BUILD / 'tests/tools/sha256-lanes')
    assert p.returncode == 0, p.stderr
    assert p.stdout == (name if flags <= has else 'none') + '\n'
