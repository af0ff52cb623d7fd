# SPDX-License-Identifier: Apache-2.0
"""cartonctl fetch: what it says, and when it succeeds. Packed entries of a remote carton are resumed, and nothing
that was kept is trusted."""
import json
import os
import random
import re
import signal
import subprocess

import pytest

import harness
from harness import CARTONCTL, ctl, eventually, problems
from origin import MIB, PRIVATE, LinkedCarton, digest, fault_bytes, lines_of
from rawhttp import ETAG, Raw, head, right
from terminal import plain, terminal, width
from zipwriter import Carton, sample

SIZE = 24 * MIB


def rng_bytes(n, seed=0):
    return random.Random(seed).randbytes(n)


# ---- packed entries of a remote carton ----

DATA = rng_bytes(SIZE)


def packed(fault, method, rate=6 * MIB):
    """A URL of a carton whose only large entry is packed, as large as its content."""
    Carton(method='stored').add('model/x', DATA, method=method).write(os.path.join(fault.root, 'p.carton'))
    return fault.url('p.carton', file='p.carton', rate=rate)


def sent(fault):
    return sum(r['sent'] for r in fault.requests('p.carton'))


def interrupted(source, cache, sig=signal.SIGKILL, options=()):
    """A fetch that ends in the middle. Returns how many bytes are noted, and the file that has them."""
    p = subprocess.Popen([CARTONCTL, 'fetch', '--connections=2', cache.flag, *options, source],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=harness.environment())
    eventually('a part is noted', lambda: max(cache.partials().values(), default=0) >= 6 * MIB, 30)
    p.send_signal(sig)
    assert p.wait() == -sig
    (name, noted), = [(n, v) for n, v in cache.partials().items() if v]
    assert noted < SIZE and name != digest(DATA)
    return noted, cache.path / 'v1/partials' / name


def all_there(cache):
    assert harness.sha_file(cache.objects()[digest(DATA)]) == digest(DATA)
    assert cache.partials() == {} and not list(cache.path.glob('v1/partials/*'))
    cache.check()


@pytest.mark.parametrize('method', ['zstd', 'deflate'])
@pytest.mark.parametrize('sig', [signal.SIGKILL, signal.SIGTERM])
def test_packed_entry_is_resumed(fault, cache, method, sig):
    """What has come stays, byte by byte; it is gone when all is decoded."""
    url = packed(fault, method)
    noted, _ = interrupted(url, cache, sig)
    cache.check()
    fault.clear()
    p = ctl('fetch', cache.flag, url)
    assert p.returncode == 0, p.stderr
    assert SIZE - noted <= sent(fault) < SIZE - noted + MIB
    all_there(cache)


def test_packed_entry_is_resumed_by_a_mount(fault, cache, mount):
    url = packed(fault, 'zstd')
    noted, _ = interrupted(url, cache)
    fault.clear()
    with mount(url, *PRIVATE, *cache.options) as m:
        assert m.read('model/x') == DATA
    assert sent(fault) < SIZE - noted + MIB
    all_there(cache)


@pytest.mark.parametrize('at', [0, 5000, 4 * MIB], ids=['header', 'start', 'middle'])
@pytest.mark.parametrize('method', ['zstd', 'deflate'])
def test_kept_part_is_tampered_with(fault, cache, mount, method, at):
    """It is found out by the hash of what is decoded, said, and all comes once more from the server."""
    url = packed(fault, method)
    _, part = interrupted(url, cache)
    with open(part, 'r+b') as f:
        f.seek(at)
        f.write(b'damaged')
    fault.clear()
    p = ctl('fetch', cache.flag, url)
    assert p.returncode == 0 and lines_of(p.stderr, 'fetched again'), p.stderr
    assert sent(fault) > SIZE
    all_there(cache)
    with mount(url, *PRIVATE, *cache.options) as m:
        assert m.read('model/x') == DATA


def test_part_is_tampered_with_while_it_comes(fault, cache):
    """Whoever writes to it meanwhile: the server is not blamed for that."""
    url = packed(fault, 'zstd')
    p = subprocess.Popen([CARTONCTL, 'fetch', cache.flag, '--connections=1', url], stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, text=True, env=harness.environment())
    eventually('a part is noted', lambda: max(cache.partials().values(), default=0) >= 6 * MIB, 30)
    name, = (n for n, v in cache.partials().items() if v)
    with open(cache.path / 'v1/partials' / name, 'r+b') as f:
        f.seek(MIB)
        f.write(b'damaged')
    assert lines_of(p.communicate()[1], 'fetched again') and p.returncode == 0
    all_there(cache)


@pytest.mark.parametrize('method', ['zstd', 'deflate'])
def test_room_of_the_content_is_written_to(fault, cache, mount, method):
    """It is there while the packed bytes come, and whoever writes to it then writes in vain."""
    url = packed(fault, method)
    with mount(url, *PRIVATE, *cache.options) as m:
        cat = subprocess.Popen(['sha256sum', m / 'model/x'], stdout=subprocess.PIPE, text=True)
        eventually('a part is noted', lambda: max(cache.partials().values(), default=0) >= 6 * MIB, 30)
        with open(cache.path / 'v1/partials' / digest(DATA), 'r+b') as f:
            f.write(b'damaged' * 1000)
            f.truncate(SIZE + 1000)
        assert cat.communicate()[0].split()[0] == digest(DATA)
        assert m.read('model/x') == DATA
    all_there(cache)


def test_wrong_entry_after_an_interruption(fault, cache):
    """What was kept is right, and so is what comes, but the content is not what MANIFEST says: asked for once more."""
    Carton(method='stored').add('model/x', DATA, method='zstd', sha='1' * 64).write(
        os.path.join(fault.root, 'p.carton'))
    url = fault.url('p.carton', file='p.carton', rate=6 * MIB)
    noted, _ = interrupted(url, cache)
    fault.clear()
    p = ctl('fetch', cache.flag, url)
    assert p.returncode == 1 and lines_of(p.stderr, 'sha256 mismatch') and '2 of 3 files in the cache' in p.stdout
    assert 2 * SIZE - noted <= sent(fault) < 2 * SIZE - noted + MIB
    assert not set(cache.objects()) & {'1' * 64, digest(DATA)} and cache.partials() == {}


def test_wrong_bytes_of_a_mirror_after_an_interruption(fault, cache):
    """What is behind the kept part is wrong at a mirror: it is asked for all, then found out, and the origin has it."""
    url = packed(fault, 'zstd')
    copy = fault.url('copy.carton', file='p.carton', flip=20 * MIB, rate=6 * MIB)
    options = [f'--mirror={copy}?{{source}}', '--private-links', f'--manifest-sha256={ctl("hash", url).stdout.strip()}']
    interrupted(url, cache, options=options)
    fault.clear()
    p = ctl('fetch', cache.flag, *options, url)
    assert p.returncode == 0 and lines_of(p.stderr, 'fetched again'), p.stderr
    assert fault.requests('copy.carton') and sent(fault) > SIZE
    all_there(cache)


def test_kept_part_is_cut(fault, cache):
    """Less is there than was noted: only that counts."""
    url = packed(fault, 'zstd')
    _, part = interrupted(url, cache)
    os.truncate(part, MIB)
    fault.clear()
    p = ctl('fetch', cache.flag, url)
    assert p.returncode == 0 and problems(p) == '', p.stderr
    assert SIZE - MIB <= sent(fault) < SIZE
    all_there(cache)


@pytest.mark.parametrize('note', ['etag', 'longer'])
def test_kept_part_of_another_version(fault, cache, note):
    """Nothing of it is used: neither where the carton has changed, nor where more is noted than there can be."""
    url = packed(fault, 'zstd')
    _, part = interrupted(url, cache)
    side = part.with_suffix('.v')
    if note == 'etag':
        os.utime(os.path.join(fault.root, 'p.carton'), (1, 1))
    else:
        side.write_bytes(side.read_bytes()[:8] + (99 * MIB).to_bytes(8, 'little') + side.read_bytes()[16:])
        os.truncate(part, 99 * MIB)
    fault.clear()
    p = ctl('fetch', cache.flag, url)
    assert p.returncode == 0 and problems(p) == '', p.stderr
    assert sent(fault) >= SIZE
    all_there(cache)


def test_kept_part_is_no_use_where_nothing_is_verified(fault, cache, mount):
    url = packed(fault, 'zstd')
    _, part = interrupted(url, cache)
    with open(part, 'r+b') as f:
        f.seek(4 * MIB)
        f.write(b'damaged')
    fault.clear()
    with mount(url, *PRIVATE, *cache.options, '-o', 'verify=off') as m:
        assert m.read('model/x') == DATA
    assert sent(fault) > SIZE and part.exists()


# ---- what it says ----

def no_room(p):
    """The bytes that are missing, in MiB."""
    line, = lines_of(p.stderr, 'there is no room in the cache: ')
    assert '--cache-size=' in line and '--cache-dir=' in line
    return float(re.search(r': ([\d.]+) MiB are missing;', line)[1])


@pytest.mark.parametrize('method', ['stored', 'zstd'])
def test_no_room(fault, cache, method):
    """Nothing is fetched that does not fit, and the difference to the limit is named; with as much more it succeeds."""
    c = Carton(method='stored')
    for i in range(4):
        c.add(f'model/{i}', rng_bytes(4 * MIB, i), method=method)
    c.write(os.path.join(fault.root, 'room.carton'))
    url = fault.url('room.carton', file='room.carton')
    p = ctl('fetch', cache.flag, '--cache-size=10M', url)
    assert p.returncode == 1 and 5.9 < no_room(p) < 6.1, p.stderr
    # carton.toml and MANIFEST were read to open it
    assert p.stdout.endswith(', 2 of 6 files in the cache\n') and p.stdout.startswith('fetched 0 B ')
    assert sum(r['sent'] for r in fault.requests('room.carton')) < MIB > cache.used()
    p = ctl('fetch', cache.flag, '--cache-size=10M', url, 'model/1', 'model/2')
    assert p.returncode == 0 and problems(p) == '' and p.stdout.endswith(', 2 of 2 files in the cache\n')
    p = ctl('fetch', cache.flag, '--cache-size=10M', '--json', url)
    assert p.returncode == 1 and no_room(p) > 5.9
    said = json.loads(p.stdout)
    assert (said['ok'], said['files'], said['cached'], said['failed'], said['fetched_bytes']) == (False, 6, 4, 2, 0)
    assert 5.9 * MIB < said['missing_bytes'] < 6.1 * MIB
    p = ctl('fetch', cache.flag, '--cache-size=17M', '--json', url)
    said = json.loads(p.stdout)
    assert p.returncode == 0 and said['ok'] and said['cached'] == 6 and said['missing_bytes'] == 0
    assert 8 * MIB < said['fetched_bytes'] < 9 * MIB


@pytest.mark.parametrize('kind', [{}, dict(chunked=1)], ids=str)
def test_no_room_for_what_a_server_sends(work, fault, cache, kind):
    """Its size is not known before: no more is fetched than there is room for, and it is not put elsewhere."""
    data = fault_bytes(12 * MIB)
    LinkedCarton().link('model/x', data, fault.url('x', size=12 * MIB, **kind)).write(work / 'm.carton')
    p = ctl('fetch', cache.flag, '--private-links', '--cache-size=4M', work / 'm.carton')
    assert p.returncode == 1 and p.stdout.endswith(', 0 of 3 files in the cache, 2 in the carton\n'), p.stdout
    line, = lines_of(p.stderr, 'there is no room for it in the cache')
    assert '; the option --cache-size allows more, or --cache-dir names another disk' in line
    if not kind:
        assert 8 * MIB <= int(re.search(r': (\d+) bytes \([\d.]+ MiB\) are missing;', line)[1]) < 8.1 * MIB
    assert len([r for r in fault.requests('x') if r['method'] == 'GET']) == 1
    p = ctl('fetch', cache.flag, '--private-links', '--cache-size=16M', work / 'm.carton')
    assert p.returncode == 0 and re.fullmatch(r'fetched 12\.0 MiB in .* s, 1 of 3 files in the cache, 2 in the carton\n', p.stdout)


def test_what_displaces_another(work, fault, cache):
    """Of several whose sizes nobody knows each one fits, but not all of them: that is no success."""
    c = LinkedCarton()
    for i in range(4):
        c.link(f'model/{i}', fault_bytes(4 * MIB, i), fault.url(f'f{i}', size=4 * MIB, seed=i))
    c.write(work / 'm.carton')
    p = ctl('fetch', cache.flag, '--private-links', '--cache-size=10M', work / 'm.carton')
    there = sum(digest(fault_bytes(4 * MIB, i)) in cache.objects() for i in range(4))
    assert there < 4 and p.returncode == 1 and p.stdout.endswith(f', {there} of 6 files in the cache, 2 in the carton\n'), p


def test_without_a_cache(fault):
    """Then there is nowhere to fetch it to."""
    sample().write(os.path.join(fault.root, 's.carton'))
    p = ctl('fetch', fault.url('s.carton', file='s.carton'), env=dict(XDG_CACHE_HOME='/proc/none'))
    assert p.returncode == 1 and lines_of(p.stderr, 'there is no cache'), p.stderr


def test_nothing_to_fetch(work, cache):
    p = ctl('fetch', cache.flag, sample().write(work / 'm.carton'))
    assert p.returncode == 0 and p.stdout == 'nothing to fetch: all files are in the carton\n' and problems(p) == ''


def test_fetch_without_ranges(fault, cache):
    """All of it came when it was opened, and is in the cache: said, as "nothing to fetch" would be of a local one."""
    sample().write(os.path.join(fault.root, 'm.carton'))
    url = fault.url('m', file='m.carton', norange=1)
    p = ctl('fetch', cache.flag, url)
    assert p.returncode == 0 and 'all of it comes when it is opened' in p.stdout, p.stdout
    assert ctl('verify', cache.flag, '--offline', url).returncode == 0
    p = ctl('fetch', cache.flag, '--offline', url)
    assert (p.returncode, p.stdout) == (0, 'nothing to fetch: all of the carton is in the cache\n')


def frames(shown):
    """What was drawn, one after the other, as lists of lines."""
    parts = re.split(r'(?:\x1b\[\d+A)?\r\x1b\[[JK]', shown)
    return [plain(part).split('\n') for part in parts if part]


def screen(shown):
    """What is on the screen at the end: frames are gone, with the ^C behind the last one."""
    return plain(re.split(r'\r\x1b\[[JK]', shown)[-1])


def test_bar_counts_bytes_of_the_network(fault, cache):
    """Of a packed entry too; at 80 columns nothing wraps, and the summary stays."""
    Carton(method='stored').add('model/x', bytes(24 * MIB) + rng_bytes(8 * MIB), method='zstd').write(
        os.path.join(fault.root, 'b.carton'))
    url = fault.url('b.carton', file='b.carton', rate=3 * MIB)
    *drawn, last = frames(terminal(80, 'fetch', '--connections=1', cache.flag, url))
    assert re.fullmatch(r'fetched 8\.0 MiB in \d+ s, 3 of 3 files in the cache', last[0]), last
    seen = []
    for frame in drawn:
        assert all(width(line) < 80 for line in frame) and len(frame) == 1
        m = re.fullmatch(r'fetch ([█▉▊▋▌▍▎▏ ]*) +(\d+)%  ([\d.]+) MiB/8\.0 MiB  [\d.]+ [KM]iB/s  [\d.]+ s left', frame[0])
        seen += [int(m[2])] if m else []
        assert m or re.fullmatch(r'fetch 8\.0 MiB  [\d.]+ [KM]iB/s', frame[0]), frame
    assert len(set(seen)) > 5 and seen == sorted(seen) and min(seen) < 70 and max(seen) > 80


@pytest.mark.parametrize('method, year', [
    ('stored', None), ('zstd', None), pytest.param('stored', 2100, marks=pytest.mark.needs_plain_build)])
def test_cat_has_a_bar_too(fault, cache, work, at_clock, method, year):
    """
    At a terminal whose stdout is elsewhere; nothing is left of it, and nothing of it is in the file. Nor is there less of
    it if the clock is set meanwhile.
    """
    data = rng_bytes(8 * MIB)
    Carton(method=method).add('model/x', data).write(os.path.join(fault.root, 'c.carton'))
    url = fault.url('c.carton', file='c.carton', rate=3 * MIB)
    with open(work / 'out', 'wb') as out:
        shown = terminal(80, 'cat', '--connections=1', cache.flag, url, 'model/x', stdout=out,
                         **(at_clock(year) if year else {}))
    assert (work / 'out').read_bytes() == data
    bars = [f[0] for f in frames(shown) if re.match(r'cat [█▉▊▋▌▍▎▏ ]* +\d+%  [\d.]+ MiB/8\.0 MiB  ', f[0])]
    assert len(set(bars)) > 2 and screen(shown) == '', shown


@pytest.mark.parametrize('columns', [80, 40, 24])
def test_large_files_have_a_line_each(fault, cache, columns):
    """While several run: name, how far it is, and nothing wraps; names are shortened, what fits least is left out."""
    c = Carton(method='stored').add('model/' + 'long' * 30 + '-1.bin', rng_bytes(10 * MIB, 1))
    c.add('model/two.bin', rng_bytes(12 * MIB, 2), method='zstd').add('model/small', b'x' * 5000)
    c.write(os.path.join(fault.root, 'l.carton'))
    url = fault.url('l.carton', file='l.carton', rate=8 * MIB)
    *drawn, last = frames(terminal(columns, 'fetch', '--connections=1', cache.flag, url))
    assert last[0].endswith('5 of 5 files in the cache')
    several = [f for f in drawn if len(f) == 3]
    assert len(several) > 3
    sizes = columns == 80
    for frame in several:
        assert [line for line in frame if width(line) >= columns] == [], frame
        files = sorted(frame[:2], key=lambda line: 'two' in line)
        end = r' +[\d.]+ [KM]iB of +1%s\.0 MiB' if sizes else '(?#%s)'
        assert re.fullmatch(r'  m.*-1\.bin +\d+%' + end % 0, files[0]), files
        assert re.fullmatch(r'  m.*two\.bin +\d+%' + end % 2, files[1]), files
        assert re.match('fetch [█▉▊▋▌▍▎▏]' if sizes else r'fetch .* +\d+%  [\d.]+', frame[2]), frame


@pytest.mark.parametrize('command', ['fetch', 'extract', 'verify'])
def test_ctrl_c_leaves_a_clean_line(fault, cache, work, command):
    """No bar, with the lines above it, and no ^C; what goes on where it was, says so. It ends by the signal."""
    c = Carton(method='stored').add('model/a', rng_bytes(10 * MIB, 1)).add('model/b', rng_bytes(12 * MIB, 2))
    c.write(os.path.join(fault.root, 'i.carton'))
    words = [work / 'out'] if command == 'extract' else []
    shown = terminal(80, command, '--connections=1', cache.flag, fault.url('i.carton', file='i.carton', rate=3 * MIB), *words,
                     ctrl_c=rf'{command} [^\n]*%')
    assert screen(shown) == ('' if command == 'verify' else 'cartonctl: interrupted; run it again to resume\n'), shown


def test_bar_of_a_resumed_fetch(fault, cache):
    """What is there already need not come: the bar is of the rest."""
    url = packed(fault, 'zstd', rate=3 * MIB)
    noted, _ = interrupted(url, cache)
    shown = terminal(80, 'fetch', '--connections=1', cache.flag, url)
    totals = set(re.findall(r'MiB/([\d.]+) MiB ', shown))
    assert len(totals) == 1 and abs(float(totals.pop()) - (SIZE - noted) / MIB) < 1.5
    all_there(cache)


def test_what_an_open_waits_for(fault, cache):
    """It is said to a user at a terminal, and is no problem."""
    sample().write(os.path.join(fault.root, 'm.carton'))
    url = fault.url('m', file='m.carton', norange=1)
    says = 'downloading all of it'
    assert says in terminal(80, 'hash', cache.flag, url)
    shown = terminal(80, 'verify', cache.flag, url)
    assert says in shown and 'ok: ' in plain(shown)
    p = ctl('verify', cache.flag, url)
    assert p.returncode == 0 and not problems(p)


def test_download_that_breaks_off(fault, cache, point):
    """Few lines, however often it is tried; and the same cause where it is to be mounted."""
    sample().write(os.path.join(fault.root, 'm.carton'))
    url = fault.url('m', file='m.carton', norange=1, truncate=1000)
    shown = plain(terminal(80, 'hash', cache.flag, url))
    # the first failure, and the last if a try came further
    assert shown.count('downloading all of it') == 1 and 1 <= shown.count(' bytes remaining to read') <= 2, shown
    p = harness.run(harness.CARTONFS, url, point(), *cache.options)
    assert p.returncode and re.search(r': not mounted: .* bytes remaining to read$', p.stderr), p.stderr


def test_cause_before_another_message(work, cache, point):
    """What was a failure is still the cause after a message that is none."""
    data = sample().write(work / 'm.carton').read_bytes()
    opening = ('bytes=-', 'bytes=0-0')

    def answer(r):
        if r.h.get('range', '').startswith(opening):
            r.range = None
            yield from right(r)
        elif len([q for q in raw.requests if not q.h.get('range', '').startswith(opening)]) > 1:
            yield head(200, f'Content-Length: {len(data)}', ETAG)
            yield data[:1000]
        yield None                      # the first one without an answer

    with Raw({'m': data}, {'m': answer}) as raw:
        p = harness.run(harness.CARTONFS, raw.url('m'), point(), *cache.options)
    first, then, last = p.stderr.splitlines()
    assert 'warning: ' in first and 'downloading all of it' in then, p.stderr
    assert p.returncode and re.search(r'/m: not mounted: .* bytes remaining to read$', last), p.stderr


def test_what_is_tried_again(fault, cache):
    """Why nothing comes yet: in the bar where nobody listens, in the line above where the server is overloaded."""
    shown = plain(terminal(80, 'hash', cache.flag, 'http://127.0.0.1:1/m.carton'))
    assert 'trying again' in shown and 'download 0 B' not in shown, shown
    p = ctl('hash', '--timeout=2', cache.flag, fault.url('m', status=503))
    assert '(status 503): requests are sent again later, fewer at once, until the timeout\n' in p.stderr, p.stderr


def test_bar_of_an_open(fault, cache):
    """A carton that is downloaded as a whole: a bar at a terminal, one line where there is none."""
    c = sample()
    c.add('model/large', rng_bytes(4 * MIB))
    c.write(os.path.join(fault.root, 'm.carton'))
    size = os.path.getsize(os.path.join(fault.root, 'm.carton')) / MIB
    shown = plain(terminal(80, 'hash', cache.flag, fault.url('m', file='m.carton', norange=1, rate=2 * MIB)))
    assert re.search(rf'download .* \d+%  [\d.]+ [KM]iB/{size:.1f} MiB ', shown), shown
    p = ctl('hash', cache.flag, fault.url('n', file='m.carton', norange=1, rate=2 * MIB))
    assert p.returncode == 0, p.stderr
    # a busy machine may not have answered within a second
    said = re.sub(r'^cartonctl: .*: waiting for the server\n', '', p.stderr, count=1)
    assert re.fullmatch(rf'cartonctl: http://[^\n]*: fetching {size:.1f} MiB to open it\n', said), p.stderr


def test_verify_offline(nginx, cache):
    """It uses what the cache has, as `extract` does: a file that was not fetched cannot be checked."""
    c = sample()
    c.write(nginx.root / 'm.carton')
    url = nginx.url('m.carton')
    assert ctl('fetch', cache.flag, url, 'model/weights.bin').returncode == 0
    p = ctl('verify', cache.flag, '--offline', url)
    assert p.returncode == 1 and 'model/weights.bin' not in p.stdout and 'misc/picture.png' in p.stdout, p.stdout
    assert p.stdout.endswith('; what is not in the cache was not checked\n'), 'no server was asked'
    assert '; run cartonctl fetch without --offline first' in ctl('fetch', cache.flag, '--offline', url).stderr
    assert ctl('fetch', cache.flag, url).returncode == 0
    p = ctl('verify', cache.flag, '--offline', url)
    assert p.returncode == 0 and p.stdout.startswith('ok: '), p.stdout
    # what is damaged there is not what the carton has
    for path in cache.objects().values():
        path.chmod(0o600)
        path.write_bytes(b'~' * path.stat().st_size)
        path.chmod(0o400)
    p = ctl('verify', cache.flag, '--offline', url)
    assert p.returncode and 'ok' not in p.stdout
    p = ctl('cache', 'verify', cache.flag)
    assert p.returncode == 1 and cache.wrong() == [], p.stdout


def test_bar_of_what_servers_say(work, fault, cache):
    """Their sizes are known once each has answered; of a part that was kept only the rest counts."""
    c, size = LinkedCarton(), 20 * MIB
    # two servers, so that both are fetched at once over a connection each
    for i, host in enumerate(('127.0.0.1', 'localhost')):
        url = fault.url(f'f{i}', size=size, seed=i, rate=4 * MIB).replace('127.0.0.1', host)
        c.link(f'model/{i}', fault_bytes(size, i), url)
    c.write(work / 'm.carton')
    args = ['fetch', '--private-links', '--connections=1', cache.flag, work / 'm.carton']
    p = subprocess.Popen([CARTONCTL, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         env=harness.environment())
    eventually('parts are noted', lambda: len(cache.partials()) == 2 and min(cache.partials().values()) > 3 * MIB, 30)
    p.kill()
    p.wait()
    rest = (2 * size - sum(cache.partials().values())) / MIB
    *drawn, last = frames(terminal(80, *args))
    assert last[0].endswith('2 of 4 files in the cache, 2 in the carton')
    totals = {float(t) for t in re.findall(r'MiB/([\d.]+) MiB ', ' '.join(line for f in drawn for line in f))}
    assert len(totals) == 1 and abs(totals.pop() - rest) < 0.2
    assert any(len(f) == 3 and all('%' in line for line in f) for f in drawn)
