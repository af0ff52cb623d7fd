# SPDX-License-Identifier: Apache-2.0
"""The first open of a file, which verifies it: small ones in the thread that gets the request."""
import os
import random
import subprocess
import threading

import pytest

from harness import eventually, expected, read_file, run, scan
from zipwriter import Carton

METHODS = ['stored', 'deflate', 'zstd']


def small_files(method, count=400):
    c, rng = Carton(method=method), random.Random(1)
    for i in range(count):
        c.add(f'model/{i:04}', rng.randbytes(rng.choice((0, 1, 1000, 5000, 60000))))
    return c


@pytest.mark.parametrize('method', METHODS)
def test_small_files_by_many(mount, work, method):
    """Eight readers want all of them, each in another order."""
    c = small_files(method)
    want = {k: v for k, v in c.files().items() if k.startswith('model/')}
    wrong = []
    with mount(c.write(work / 'm.carton')) as m:
        def reader(seed):
            names = list(want)
            random.Random(seed).shuffle(names)
            wrong.extend(n for n in names if read_file(m / n) != want[n])
        readers = [threading.Thread(target=reader, args=(i,)) for i in range(8)]
        for t in readers:
            t.start()
        for t in readers:
            t.join()
        assert wrong == []
        assert {m.state(n) for n in want} == {'verified'}


@pytest.mark.parametrize('method', METHODS)
def test_wrong_hash_of_a_small_file(mount_fg, work, method):
    """Nothing of it can be read, it is logged once, and its neighbours are not affected."""
    c = small_files(method, 3).add('model/bad', b'x' * 5000, sha='0' * 64)
    with mount_fg(c.write(work / 'm.carton')) as m:
        for _ in range(3):
            assert m.error('model/bad') == 'EIO'
        assert m.state('model/bad') == 'corrupt'
        assert [i for i in range(3) if m.read(f'model/{i:04}') != c.files()[f'model/{i:04}']] == []
        assert m.log().count('sha256 mismatch') == 1


@pytest.mark.parametrize('method', METHODS)
def test_signals_during_opens(mount, work, method):
    """A reader whose opens are interrupted all the time gets all bytes, or EINTR as open(2) says."""
    c = small_files(method)
    code = """
import signal, sys, os
signal.signal(signal.SIGALRM, lambda *a: None)
signal.setitimer(signal.ITIMER_REAL, .0001, .0001)
for top, _, names in os.walk(sys.argv[1]):
    for name in sorted(names):
        with open(os.path.join(top, name), 'rb') as f:
            sys.stdout.buffer.write(f.read())
signal.setitimer(signal.ITIMER_REAL, 0)
"""
    with mount(c.write(work / 'm.carton')) as m:
        p = run('/usr/bin/python3', '-c', code, m / 'model', text=False)
        assert p.returncode == 0, p.stderr
        files = c.files()
        assert p.stdout == b''.join(files[n] for n in sorted(files) if n.startswith('model/'))


def test_killed_during_opens(mount, work):
    """Readers die anywhere between their first and last open: no pin stays, so the daemon ends."""
    c = small_files('deflate')
    size = sum(len(v) for v in c.files().values())
    with mount(c.write(work / 'm.carton')) as m:
        for i in range(20):
            p = subprocess.Popen(['tar', '-C', m, '-cf', '-', 'model'], stdout=subprocess.PIPE)
            p.stdout.read(size * i // 20)
            p.kill()
            p.communicate()
        assert scan(m.path) == expected(c.files())


def test_reads_further_ahead(mount, work, who):
    """Where the kernel lets: it is root's to say."""
    c = Carton(method='stored').add('model/big', b'x' * (3 << 20))
    with mount(c.write(work / 'm.carton'), uid=who) as m:
        assert m.read('model/big') == c.files()['model/big']
        dev = m.do(os.stat, m.path).st_dev
        setting = f'/sys/class/bdi/{os.major(dev)}:{os.minor(dev)}/read_ahead_kb'
        if who or not os.access(setting, os.W_OK):
            assert int(read_file(setting)) >= 4
        else:
            eventually('the kernel reads 512 KiB ahead', lambda: int(read_file(setting)) == 512)
