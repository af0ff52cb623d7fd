#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
Prints what README.md says of the speed, from what `tests/bench/run --json` wrote, or puts it there: a sentence
about the machine, and a table.

    tests/bench/table.py NUMBERS.json [README.md]

What was not measured is left out, and named.
"""
import json
import re
import sys

BEGIN, END = '<!-- by make bench-readme -->', '<!-- end -->'
LEGEND = ('"As long" is as long as cartonfs. "Cache" is that of cartonfs; each round has one of its own. No two files '
          'have the\nsame content.')
PICTURE = ('![Seconds to open a file and read 4 KiB of it, by its size: the first mount hashes it, later ones do not]'
           '(.github/bench.svg)')
HEAD = ['| work | under which condition | cartonfs | `ONLY=` |', '|---|---|---|---|']

# (section, work, (what, against, what is said of the two) ...); {} is a number of the section's title, or of `what`.
# The condition is that of the first `what`, or of `against` where a peer is compared with us.
ROWS = (
    ('stored', 'first read of a stored file of {} MiB',
     ('first open and read', 'sha256 in one thread', '{ratio} times the time of its sha256 in one thread'),
     ('fuse-zip, first read', 'first open and read', 'fuse-zip, which verifies nothing, takes {ratio} times as long'),
     ('squashfuse, first read', 'first open and read', 'squashfuse {ratio} times as long')),
    ('stored', 'second read of it, in the same mount',
     ('second open and read', 'reading the file beneath', '{ratio} times the time of the file beneath'),
     ('fuse-zip, second read', 'second open and read', 'fuse-zip takes {ratio} times as long'),
     ('squashfuse, second read', 'second open and read', 'squashfuse {ratio} times as long')),
    ('zstd', 'first read of a zstd file of {} MiB',
     ('first open and read', 'zstd -dc | sha256', '{ratio} times the time of `zstd -dc` and sha256, in two threads')),
    ('sizes', 'open a stored file of {} MiB, read 4 KiB of it',
     (r'first mount, (1024|8) MiB', r'sha256 in one thread, (1024|8) MiB', '{time}')),
    ('sizes', 'the same in a later mount',
     (r'later mount, (1024|8) MiB', r'first mount, (1024|8) MiB', '{time}')),
    ('access', 'random reads of 4 KiB',
     ('cartonfs: random 4 KiB reads', 'beneath: random 4 KiB reads', '{time} each'),
     ('fuse-zip: random 4 KiB reads', 'cartonfs: random 4 KiB reads', 'fuse-zip takes {ratio} times as long'),
     ('squashfuse: random 4 KiB reads', 'cartonfs: random 4 KiB reads', 'squashfuse {ratio} times as long')),
    ('loaders', 'reads of 1 MiB with `O_DIRECT`, 4 processes',
     ('fuse-zip: O_DIRECT, 1 MiB blocks, 4 at once', 'cartonfs: O_DIRECT, 1 MiB blocks, 4 at once',
      'fuse-zip takes {ratio} times as long'),
     ('squashfuse: O_DIRECT, 1 MiB blocks, 4 at once', 'cartonfs: O_DIRECT, 1 MiB blocks, 4 at once',
      'squashfuse {ratio} times as long')),
    ('loaders', 'tensors of 16 MiB copied out of a mapping',
     ('cartonfs: tensors from a mapping, 1 at once', 'beneath: tensors from a mapping, 1 at once',
      '{ratio} times the time of the file beneath')),
    ('loaders', 'shards of a model, mapped and copied in order',
     ('local: shards in order, headers first, later, out', 'ext4: shards in order, headers first, out',
      '{ratio} times the time of the files beneath'),
     ('local: shards in order, headers first, later, in', 'ext4: shards in order, headers first, in',
      '{ratio} times with both in the page cache')),
    ('many', '{} files of 1 KiB, deflated, read by `tar`',
     (r'cartonfs, (\d+) by tar, first time', r'unzip -p of \d+', '{time}, {ratio} times the time of `unzip -p`'),
     (r'fuse-zip, (\d+) by tar, first time', r'cartonfs, (\d+) by tar, first time',
      'fuse-zip takes {ratio} times as long'),
     (r'squashfuse, (\d+) by tar, first time', r'cartonfs, (\d+) by tar, first time', 'squashfuse {ratio} times as long')),
    ('extract', 'a copy on disk of {} deflated files of {} MiB by `cartonctl extract`',
     ('cartonctl extract', 'unzip', '{ratio} times the time of `unzip`'),
     ('cartonctl extract', 'bsdtar', '{ratio} times that of `bsdtar`'),
     ('cartonctl extract', '7zz', '{ratio} times that of `7zz`; these use one thread')),
    ('entries', 'mount of {} files',
     (r'mount of (1000000|1000)', r'unzip -l of (1000000|1000)', '{time}, {ratio} times the time of `unzip -l`')),
    ('remote', 'mount a carton on a web server, read {} MiB',
     ('mount and read, no limit', 'curl, no limit', '{ratio} times the time of `curl`, then `openssl dgst -sha256`'),
     ('mount and read, no limit', 'rclone, no limit', '{ratio} times that of `rclone`, then the same')),
)


def find(section, what, against):
    """(the row of these, as regular expressions; the numbers in `what`), or None."""
    for r in section['rows']:
        # names have characters that mean something in an expression; those that are meant have a bracket
        m = re.fullmatch(what if '(' in what else re.escape(what), r['what'])
        if m and re.fullmatch(against if '\\d' in against or '(' in against else re.escape(against), r['against']):
            return r, [g for g in m.groups() if g]
    return None


def as_time(s):
    scale, unit = (1, 's') if s >= 1 else (1e3, 'ms') if s >= 1e-3 else (1e6, 'µs')
    return f'{float(f"{s * scale:.2g}"):g} {unit}'


def number(x):
    return f'{x:.0f}' if x >= 10 else f'{x:.1f}' if x >= 2 else f'{x:.2f}'


def line(sections, word, work, parts, missing):
    """A line of the table, or None if nothing of it was measured; what was not is added to `missing`."""
    said, condition, numbers = [], None, []
    for what, against, text in parts:
        s, row, found = next(((s, *f) for s in sections if s['word'] == word and (f := find(s, what, against))),
                             (None, None, None))
        if not row:
            missing.append(f'{word}: {what} / {against}')
            continue
        if not said:
            ours = what.startswith(('fuse-zip', 'squashfuse'))
            condition = row['reference_condition' if ours else 'condition']
            numbers = found or re.findall(r'\d+', s['title'])
        said.append(text.format(ratio=number(row['ratio']), time=as_time(row['seconds'] / row['count'])))
    return said and f'| {work.format(*numbers)} | {condition} | {"; ".join(said)} | `{word}` |'


def table(numbers):
    """(lines, what was not measured)."""
    missing = []
    lines = [line(numbers['sections'], word, work, parts, missing) for word, work, *parts in ROWS]
    return HEAD + [text for text in lines if text], missing


def sentence(numbers):
    """On what, when, and how undisturbed. A load of one and a half is that of the measurement itself."""
    m = numbers['machine']
    load = max(m['loads'])
    other = '' if load < 2 * m['cpus'] else f'; other programs ran on the machine, load {load:.0f}'
    return (f'Measured on {m["date"]} with `make bench-readme` on {m["system"]}, Linux {m["kernel"].split("-")[0]}, '
            f'on {m["cpus"]} CPUs ({m["processor"]}, with{"" if m["sha_instructions"] else "out"} SHA instructions)'
            f'{other}; medians of {numbers["rounds"]} rounds.')


def figures(numbers):
    """All of README.md that depends on what was measured."""
    lines, _ = table(numbers)
    return '\n'.join([sentence(numbers), '', *lines, '', LEGEND, '', PICTURE, ''])


def put(text, what):
    """README.md with `what` as its figures."""
    new, n = re.subn(f'({BEGIN}\n).*({END}\n)', lambda m: m[1] + what + m[2], text, flags=re.S)
    if n != 1:
        sys.exit(f'README.md has no {BEGIN} with {END} after it')
    return new


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.strip())
    with open(sys.argv[1]) as f:
        numbers = json.load(f)
    for what in table(numbers)[1]:
        print(f'not measured: {what}', file=sys.stderr)
    if len(sys.argv) == 2:
        print('\n'.join([sentence(numbers), '', *table(numbers)[0]]))
        return
    with open(sys.argv[2]) as f:
        text = put(f.read(), figures(numbers))
    with open(sys.argv[2], 'w') as f:
        f.write(text)


if __name__ == '__main__':
    main()
