# SPDX-License-Identifier: Apache-2.0
"""
What a failed test prints, in at most LINES lines: what was compared, how its mounts are, with their status and the end
of their logs, and the command that runs it alone.
"""
import itertools
import json
import os
import re
import shlex

import harness

LINES = 60
WIDTH = 300             # a longer line is cut
TRACEBACK = 32          # lines of 60
COMPARED = 20           # of one assertion
CAPTURED = 3            # of each stream
LOGGED = 12             # of a daemon's log
MOUNTS = 2              # whose state is printed
UNSAID = 'mountpoint', 'source', 'model_hash', 'version', 'pid', 'started', 'last_errors'


def cut(lines, n, end):
    """At most n lines, the last `end` of them from the end."""
    if len(lines) <= n:
        return lines
    begin = n - end - 1
    return [*lines[:begin], f'[{len(lines) - n + 1} lines left out]', *lines[len(lines) - end:]]


def narrow(lines):
    return [line if len(line) <= WIDTH else f'{line[:WIDTH]}[…]' for line in lines]


def traceback(text):
    """The lines of pytest's traceback: of each assertion its begin, of the calls those nearest to it."""
    lines, block = [], []
    for line in [*text.splitlines(), '']:
        if block and not line.startswith('E '):
            lines += cut(block, COMPARED, 4)
            block = []
        if line.startswith('E '):
            block.append(line)
        else:
            lines.append(line)
    return narrow(cut(lines[:-1], TRACEBACK, TRACEBACK - 6))


def shortened(status, logged):
    """`cartonctl status --json` without what is nothing, what says nothing of a failure, and what the log says."""
    try:
        fields = json.loads(status)[0]
    except (ValueError, LookupError):
        return status.splitlines()
    errors = [] if logged else fields['last_errors'][-2:]
    fields = {k: v for k, v in fields.items() if v and k not in UNSAID}
    return [json.dumps(fields), *(f'{e["level"]}: {e["message"]}' for e in errors)]


def counted(lines):
    """Says once what is said many times in a row."""
    return [line if n == 1 else f'{line} ({n} times)'
            for line, n in ((line, len([*same])) for line, same in itertools.groupby(lines))]


def of_mount(mount, room):
    how, status = mount.failure
    command = shlex.join(map(str, mount.command))
    log = [line.removeprefix(f'{mount.source}: ') for line in mount.log().splitlines()]
    lines = [f'-- {command}', f'   the daemon: {how}', *(f'   status: {line}' for line in shortened(status, log)[:4])]
    log, n = counted(log), max(min(LOGGED, room - len(lines) - 1), 0)
    lines.append('   its log is empty' if not log else '   its log:' if len(log) <= n else
                 f'   its log, the last {n} of {len(log)} lines:')
    # names of temporary directories say nothing
    text = '\n'.join([*lines, *(f'   | {line}' for line in log[max(len(log) - n, 0):])])
    text = text.replace(f'{harness.PROGRAMS}/', '').replace(f'{os.path.dirname(mount.path)}/', '')
    return narrow(text.splitlines())[:room]


def of_mounts(room):
    """The lines about the mounts of the test: first those that it was in, then others that are there, then the rest."""
    inside = [m for m in harness.MOUNTS if m.failure]
    alive = [m for m in harness.MOUNTS if not m.failure and not m.over]
    ended = [m for m in harness.MOUNTS if not m.failure and m.over]
    chosen = [*inside, *alive, *reversed(ended)][:MOUNTS]
    lines = []
    for left, m in zip(range(len(chosen), 0, -1), chosen):
        m.keep_failure()
        lines += of_mount(m, (room - len(lines)) // left)
    return lines


def alone(nodeid):
    """The command that runs this test and no other, from the top of the repository."""
    words = [f'BUILD_DIR={os.path.relpath(harness.BUILD, harness.ROOT)}']
    for name in ('TEST_SLOWDOWN', 'ASAN_OPTIONS', 'TSAN_OPTIONS'):
        # without what the harness adds
        value = re.sub(r':(print_stacktrace|verify_asan_link_order|log_path|suppressions)=[^: ]*', '',
                       os.environ.get(name, ''))
        if value:
            words.append(f'{name}={shlex.quote(value)}')
    return ' '.join([*words, '/usr/bin/python3 -m pytest -q -p no:cacheprovider', shlex.quote(f'tests/{nodeid}')])


def explain(report):
    """Makes this the text of a failed report."""
    captured = []
    for title, text in report.sections[-2:]:
        captured += [f'-- {title}', *narrow(cut(text.splitlines(), CAPTURED, CAPTURED - 2))]
    lines = traceback(report.longreprtext)
    # beside the title, the name of the worker and the command
    lines += of_mounts(LINES - 3 - len(lines) - len(captured))
    report.sections = []
    report.longrepr = '\n'.join([*lines, *captured, f'-- alone: {alone(report.nodeid)}'])
