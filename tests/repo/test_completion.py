# SPDX-License-Identifier: Apache-2.0
"""What bash, fish and zsh complete, asked of the shells themselves."""
import os
import re
import shlex
import signal

import pytest

from harness import PROGRAMS, ROOT, at_once, freeze, run
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


# Of zsh's own functions, what the script calls: they take the line apart, and keep what it begins with.
ZSH = r'''
words=(${(z)2}); [[ $2 = *' ' ]] && words+=('')
CURRENT=$#words PREFIX=$words[-1] service=$words[1]
compadd() {
	while [[ $1 != -- ]]; do shift; done
	shift
	for word; do [[ $word = ${PREFIX}* ]] && print -r -- $word; done
}
compset() { PREFIX=${PREFIX##$~2}; }
_arguments() { [[ $words[-2] = -o ]] && _cartonfs_options; }
source $1
'''


def zsh(line, cwd):
    p = run('zsh', '-f', '-c', ZSH, 'zsh', COMPLETIONS / '_cartonfs', line, cwd=cwd, env=PATH)
    assert p.stderr == ''
    return set(p.stdout.split('\n')) - {''}


SHELLS = pytest.mark.parametrize('shell', [bash, fish])
ALL_SHELLS = pytest.mark.parametrize('shell', [bash, fish, zsh])


def of_table(*takers):
    """The options of the table in the source that one of `takers` has, but other names of the same."""
    text = (ROOT / 'fs/common/option_table.c').read_text().partition('/* other names */')[0]
    rows = re.findall(r'^\t\{ "([\w-]+)", (?:0|\'.\'),\s+(\w+|"[^"]*")', text, re.M)
    assert len(rows) > 40
    names = {'MOUNT': 'cartonfs', 'BOTH': 'cartonfs cartonctl', 'CACHE': 'cartonfs cartonctl cache',
             'PACK': 'pack repack link embed',
             'SIGNED': 'cartonfs info verify extract fetch'}
    return {name for name, who in rows if set(names.get(who, who.strip('"')).split()) & set(takers)} - {'--x-words'}


def as_word(name):
    return name if name.startswith('-') else '--' + name.replace('_', '-')


@ALL_SHELLS
def test_commands_and_options(there, shell):
    """Those of the table, of each command its own."""
    shown = run(PROGRAMS / 'cartonctl', '--help').stdout
    commands = set(re.findall(r'^  ([a-z]+) ', shown, re.M))
    commands |= {'help', 'version'}         # these are in its first line
    assert {'info', 'ls', 'cat', 'cache'} <= commands == shell('cartonctl ', there[0]) == shell('cartonctl help ', there[0])
    assert shell('cartonctl ve', there[0]) == {'verify', 'version'}
    for command in 'ls', 'info', 'status', 'link', 'embed':
        got = {word.partition('=')[0] for word in shell(f'cartonctl {command} -', there[0])}
        want = {as_word(name) for name in of_table('cartonctl', command)}
        assert {word for word in got if word.startswith('--') or word == '-0'} == want
    assert {'--cache-dir=', '--seals=off', '--json', '-j', '-0'} <= shell('cartonctl ls -', there[0])
    assert '--compress=zstd' in shell('cartonctl pack --', there[0])
    cache = re.findall(r'^  cache (.*?)(?:  |$)', shown, re.M)
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


@ALL_SHELLS
def test_mount_options(there, shell):
    """All of the table; also behind a comma, and values."""
    want = {name for name in of_table('cartonfs') if not name.startswith('-')}
    got = shell('cartonfs -o ', there[0])
    assert {word.partition('=')[0] for word in got} == want > {'verify', 'mkdir', 'cache_dir', 'uid'}
    assert {'cache_dir=', 'verify=auto', 'views=', 'views=hidden', 'mkdir', 'offline', 'noexec'} <= got
    assert {x.rpartition(',')[2] for x in shell('cartonfs -o offline,cache_', there[0])} == {'cache_dir=', 'cache_key=', 'cache_size='}
    assert {x.rpartition('=')[2] for x in shell('cartonfs -o verify=', there[0])} == {
        'auto', 'open', 'mount', 'background', 'off'}
    assert {'-d', '--help', '-V'} <= shell('cartonfs -', there[0])


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
        freeze(pid)
        try:
            with at_once():
                assert shell(f'cartonctl cat {m.path} ', work) == set()
        finally:
            os.kill(pid, signal.SIGCONT)
