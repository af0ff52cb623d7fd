# SPDX-License-Identifier: Apache-2.0
"""The EXAMPLES of the manual pages are run, as they are printed."""
import os
import re

import pytest

import harness
import oms
from harness import BUILD, IS_ROOT, PROGRAMS, ROOT, SANITIZED, run
from tensorfiles import weights
from zipwriter import Carton, sample

FS = ROOT / 'fs'


def examples(page):
    """The literal blocks of the section, as roff shows them."""
    text = re.search(r'^\.Sh EXAMPLES\n(.*?)^\.Sh ', page.read_text(), re.M | re.S)[1]
    blocks = re.findall(r'^\.Bd -literal.*?\n(.*?)^\.Ed$', text, re.M | re.S)
    return [b.replace(r'\e', '\\').replace(r'\&', '') for b in blocks]


@pytest.fixture
def place(work):
    sample().write(work / 'm.carton')
    sample().write(work / 'tested.carton')
    (work / 'model.safetensors').write_bytes(weights(a=b'1234'))
    return work


def shell(block, place, **env):
    p = run('sh', '-ec', block, cwd=place,
            env={'PATH': f'{PROGRAMS}:{os.environ["PATH"]}:/usr/sbin:/sbin', 'XDG_CACHE_HOME': str(place / 'cache'), **env})
    assert p.returncode == 0, f'{block}\n{p.stderr}'
    return p.stdout


def test_cartonctl(place, nginx):
    blocks = examples(FS / 'ctl/cartonctl.1')
    assert len(blocks) >= 3
    sample().write(nginx.root / 'm.carton')
    url = nginx.url('m.carton')
    for block in blocks:
        assert re.search(r'^cartonctl ', block, re.M), block
        shell(re.sub(r'https://[\w.]+/m\.carton', url, block), place)


def test_cartonfs(place):
    """Those that are commands; /tmp/m is a directory of the test."""
    blocks = [b for b in examples(FS / 'mount/cartonfs.1') if re.search(r'^(\w+=\$\()?cartonfs ', b, re.M) or 'cartonfs -o' in b]
    assert len(blocks) >= 2
    for n, block in enumerate(blocks):
        where = place / f'mnt{n}'
        where.mkdir()
        block = block.replace('/tmp/m', str(where))
        if not IS_ROOT:
            block = block.replace('umount ', 'fusermount3 -u ')
        try:
            shell(block, place)
        finally:
            if harness.mountinfo(where):
                harness.unmount(where)
            harness.eventually('the daemon ended', lambda where=where: not harness.daemons(where))


def test_fstab_lines_have_options_that_exist(place):
    lines = [line.split() for b in examples(FS / 'mount/cartonfs.1') for line in b.splitlines()
             if ' cartonfs ' in line and line.endswith('0  0')]
    assert len(lines) >= 3
    helper = place / 'mount.cartonfs'
    helper.symlink_to(PROGRAMS / 'cartonfs')
    for source, where, kind, options, *_ in lines:
        assert kind == 'cartonfs'
        p = run(helper, source, where, '-f', '-o', options)
        assert p.returncode == 0, p.stderr


def test_signed_model_of_kubernetes(work, nginx, point):
    """The arguments are those of a mount, with a key that is one, and in its place ours."""
    text = (ROOT / '.container/kubernetes-signed.yaml').read_text()
    words = re.findall(r'^            - (\S+)$', re.search(r'args:\n(.*?)\n +securityContext', text, re.S)[1], re.M)
    key, mine = work / 'models.pub', oms.Key(work)
    sample().write(nginx.root / 'signed.carton')
    shell(f'cartonctl sign --key={mine.path} signed.carton', nginx.root)
    url, where = nginx.url('signed.carton'), point()
    for old, new in (('/keys/models.pub', key), ('/dev/termination-log', work / 'why'), ('/cache', work / 'cache'),
                     ('https://models.example.com/m.carton', url), ('/mnt/carton/model', where)):
        assert any(old in word for word in words), old
        words = [word.replace(old, str(new)) for word in words]
    theirs = re.search(r'models\.pub: \|\n(.*?)\n---', text, re.S)[1].replace('    ', '')
    for pem, status in ((theirs, 32), (mine.public.read_text(), 0)):
        key.write_text(pem + '\n')
        p = run(PROGRAMS / 'cartonfs', *[w for w in words if IS_ROOT or w != 'allow_other'])
        assert p.returncode == status, p.stderr
        assert status == 0 or 'key: ' in (work / 'why').read_text()
    harness.unmount(where)
    harness.eventually('the daemon ended', lambda: not harness.daemons(where))


def test_carton_toml(work):
    block, = examples(FS / 'ctl/carton.toml.5')
    Carton(toml=block.encode()).add('model/a', b'x').write(work / 'm.carton')
    p = run(PROGRAMS / 'cartonctl', 'info', work / 'm.carton')
    assert p.returncode == 0 and 'digit_reader' in p.stdout and 'a zero' in p.stdout, p.stderr
    assert 'warning' not in p.stderr


def test_libcarton(work, sample_carton):
    """The program of the page is complete."""
    path, c = sample_carton
    block = examples(ROOT / 'core/libcarton.3')[0]
    (work / 'x.c').write_text(block)
    variant = re.findall(r'-fsanitize=\S+', (BUILD / 'flags').read_text()) if SANITIZED else []
    p = run('cc', '-Wall', '-Wextra', '-Werror', *variant, '-o', work / 'x', work / 'x.c', f'-I{ROOT}/core',
            f'-L{BUILD}', '-lcarton')
    assert p.returncode == 0, p.stderr
    env = {'LD_LIBRARY_PATH': str(BUILD), 'XDG_CACHE_HOME': str(work / 'cache')}
    p = run(work / 'x', path, 'carton.toml', env=env)
    assert (p.returncode, p.stdout) == (0, c.files()['carton.toml'].decode())
    assert run(work / 'x', path, 'none', env=env).returncode == 1
