# SPDX-License-Identifier: Apache-2.0
"""What bash and fish complete, asked of the shells themselves."""
import os
import re
import shlex
import signal
from pathlib import Path

import pytest

from harness import PROGRAMS, ROOT, at_once, eventually, run
from zipwriter import sample

COMPLETIONS = ROOT / 'fs/completions'
PATH = {'PATH': f'{PROGRAMS}:{os.environ["PATH"]}'}
BASH = r'''
source "$1"
COMP_LINE=$2 COMP_POINT=${#2}
# as readline splits it
COMP_WORDS=() word=
for ((i = 0; i < ${#COMP_LINE}; i++)); do
	c=${COMP_LINE:i:1}
	case $c in
	' ') [[ -n $word ]] && COMP_WORDS+=("$word"); word= ;;
	'=') [[ -n $word ]] && COMP_WORDS+=("$word"); COMP_WORDS+=('='); word= ;;
	*) word+=$c ;;
	esac
done
if [[ -n $word || $c = ' ' ]]; then COMP_WORDS+=("$word"); fi
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
function=$(complete -p "${COMP_WORDS[0]}" | sed 's/.*-F \([^ ]*\).*/\1/')
"$function"
printf '%s\n' "${COMPREPLY[@]}"
'''


@pytest.fixture
def there(work):
    """A directory with cartons and other things."""
    c = sample()
    c.write(work / 'm.carton')
    c.write(work / 'other.carton')
    (work / 'notes.txt').touch()
    (work / 'models').mkdir()
    return work, c


def bash(line, cwd):
    p = run('bash', '-c', BASH, 'bash', COMPLETIONS / 'cartonfs.bash', line, cwd=cwd, env=PATH)
    assert (p.returncode, p.stderr) == (0, ''), p.stderr
    return set(p.stdout.split('\n')) - {''}


def fish(line, cwd):
    script = ''.join(f'source {shlex.quote(str(p))}; ' for p in COMPLETIONS.glob('*.fish'))
    home = {'HOME': str(cwd), 'XDG_CONFIG_HOME': str(cwd), 'XDG_DATA_HOME': str(cwd)}
    p = run('fish', '--no-config', '-c', script + f'complete -C {shlex.quote(line)}', cwd=cwd,
            env={**PATH, **home})
    assert (p.returncode, p.stderr) == (0, ''), p.stderr
    return {row.split('\t')[0] for row in p.stdout.splitlines()}


SHELLS = pytest.mark.parametrize('shell', [bash, fish])


@SHELLS
def test_commands_and_options(there, shell):
    """Those of --help, whatever it has."""
    shown = run(PROGRAMS / 'cartonctl', '--help').stdout
    commands = set(re.findall(r'^  ([a-z]+) ', shown, re.M))
    assert {'info', 'ls', 'cat', 'cache'} <= commands == shell('cartonctl ', there[0])
    assert shell('cartonctl ve', there[0]) == {'verify'}
    options = shell('cartonctl ls --', there[0])
    assert {'--offline', '--cache-dir=', '--json', '--help'} <= options and '--compress=' not in options
    assert {'--offline', '--compress=', '--chunk-index', '--url='} <= shell('cartonctl link --', there[0])
    cache = re.findall(r'^  cache (.*?)(?:   |$)', shown, re.M)
    words = {word.split()[0] for line in cache for word in line.split('|')}
    assert {'list', 'gc', 'verify', 'path'} <= words == shell('cartonctl cache ', there[0])


@SHELLS
def test_cartons(there, shell):
    work, _ = there
    found = {x.rstrip('/') for x in shell('cartonctl info ', work)}
    assert {'m.carton', 'other.carton', 'models'} <= found
    assert 'm.carton' in shell('cartonfs m', work)


@SHELLS
def test_paths_in_cartons(there, shell):
    """One component at a time; nothing where there is no carton."""
    work, c = there
    first = {p.split('/')[0] + '/' * ('/' in p) for p in c.files()}
    assert shell('cartonctl cat m.carton ', work) == first
    assert shell('cartonctl cat m.carton carton.toml mod', work) == {'model/'}
    inside = {p for p in c.files() if p.startswith('model/')}
    got = shell('cartonctl cat m.carton model/', work)
    assert got and got == {'/'.join(p.split('/')[:2]) + '/' * (p.count('/') > 1) for p in inside}
    assert shell('cartonctl cat none.carton mod', work) == set()


@SHELLS
def test_mount_options(there, shell):
    """All that the program knows; also behind a comma, and values."""
    names = set()
    for name in ('process/options.c', 'common/option_table.c'):
        names |= set(re.findall(r'^\tSPEC\((\w+),|^\t\{ "(\w+)", OPTION', (ROOT / 'fs' / name).read_text(), re.M))
    names = {a or b for a, b in names} - {'mount_only', 'uid', 'gid', 'chunks'}
    got = shell('cartonfs -o ', there[0])
    assert len(names) > 12 and names <= {x.rstrip('=').split('=')[0] for x in got}
    assert {x.rpartition(',')[2] for x in shell('cartonfs -o offline,cache_', there[0])} == {'cache_dir=', 'cache_size='}
    assert {x.rpartition('=')[2] for x in shell('cartonfs -o verify=', there[0])} == {
        'auto', 'open', 'mount', 'background', 'off'}


def test_bash_mountpoint(there):
    work, _ = there
    assert bash('cartonfs m.carton mod', work) == {'models'}
    assert bash('cartonfs -o verify=open m.carton mod', work) == {'models'}
    assert bash('cartonfs -o offline m.carton models x', work) == set()
    assert 'notes.txt' not in bash('cartonctl info ', work)


def test_bash_lists_mounts(mount, sample_carton):
    with mount(sample_carton[0]) as m:
        assert str(m.path) in bash(f'cartonctl stop {str(m.path)[:-2]}', '/')


def test_deep_paths(work):
    c = sample()
    for i in range(300):
        c.add(f'misc/deep/{i % 3}/{i}', b'%d' % i)
    c.write(work / 'm.carton')
    assert bash('cartonctl cat m.carton misc/deep/', work) == {f'misc/deep/{i}/' for i in range(3)}
    assert len(bash('cartonctl cat m.carton misc/deep/1/', work)) == 100


@SHELLS
def test_source_on_a_stopped_mount(mount, there, shell):
    """A shell does not hang for ever where its user has only pressed a key."""
    work, _ = there
    with mount(work / 'm.carton') as m:
        pid, = m.pids
        os.kill(pid, signal.SIGSTOP)
        try:
            eventually('it is stopped', lambda: ') T ' in Path(f'/proc/{pid}/stat').read_text())
            with at_once():
                assert shell(f'cartonctl cat {m.path} ', work) == set()
        finally:
            os.kill(pid, signal.SIGCONT)
