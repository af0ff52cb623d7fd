# SPDX-License-Identifier: Apache-2.0
"""What the user sees while an open waits for servers: a bar at a terminal, else one line; in the first second nothing."""
import contextlib
import hashlib
import os
import pty
import re
import signal
import subprocess
import threading

import pytest

import oms
from harness import CARTONCTL, CARTONFS, environment
from hubrepo import HubServer, Repo
from modelscope import Model, ModelScope
from origin import MIB, fault_bytes
from registry import Artifact, Front, layout
from zipwriter import sample

FILES = {'config.json': b'{"a": 1}\n', 'x.safetensors': fault_bytes(MIB, seed=3)}


def watch(p, stderr, go, pattern):
    """Reads until the pattern is there; then lets the server go on. What was shown until the end."""
    shown = ''
    with contextlib.suppress(OSError):      # the other side of a terminal is closed
        while block := os.read(stderr, 4096).decode(errors='replace'):
            shown += block
            if re.search(pattern, shown):
                go.set()
    os.close(stderr)
    go.set()
    assert p.wait() == 0, shown
    return shown


def run_slow(go, env, terminal, pattern, *args):
    """`cartonctl *args` with its messages at a terminal or in a pipe; the server waits until they match."""
    reader, writer = pty.openpty() if terminal else os.pipe()
    p = subprocess.Popen([CARTONCTL, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=writer, env=environment() | env)
    os.close(writer)
    return watch(p, reader, go, pattern)


@contextlib.contextmanager
def slow_hub(go, registry, work):
    with HubServer({'models/me/m': Repo(FILES)}, change=lambda path, *_: '/api/' in path and go.wait(60) and None) as hub:
        yield 'hf://me/m', {'HF_ENDPOINT': hub.endpoint, 'HF_TOKEN': ''}


@contextlib.contextmanager
def slow_modelscope(go, registry, work):
    with ModelScope({'me/m': Model(FILES)}, change=lambda path, *_: '/api/' in path and go.wait(60) and None) as ms:
        yield 'ms://me/m', {'MODELSCOPE_ENDPOINT': ms.endpoint}


@contextlib.contextmanager
def slow_registry(go, registry, work):
    name = f'tests/{hashlib.sha256(str(work).encode()).hexdigest()[:8]}'
    registry.push(layout(work / 'layout', Artifact(FILES)), 'latest', name)
    with Front(registry, before=lambda method, path, _: '/manifests/' in path and go.wait(60) and None) as front:
        yield f'oci://{front.host}/{name}:latest', {}


@pytest.mark.parametrize('terminal', [True, False], ids=['terminal', 'pipe'])
@pytest.mark.parametrize('slow', [slow_hub, slow_modelscope, slow_registry])
def test_a_slow_listing(registry, work, cache, slow, terminal):
    """The server has not sent a byte."""
    go = threading.Event()
    with slow(go, registry, work) as (source, env):
        pattern = r'download 0 B  0 B/s' if terminal else f'^cartonctl: {source}: waiting for the server\n'
        shown = run_slow(go, env, terminal, pattern, 'ls', cache.flag, source)
    assert re.search(pattern, shown), shown
    if not terminal:
        assert len(shown.splitlines()) == 1, shown


def test_a_quick_listing(work, cache):
    """No word of it."""
    go = threading.Event()
    go.set()
    with slow_hub(go, None, work) as (source, env):
        assert run_slow(go, env, False, 'never', 'ls', cache.flag, source) == ''


MAKE = {'pack': ('repack',), 'link': ('link', '--url=https://example.com/{sha256}', '--min-size=0'), 'sign': ('sign',)}


@pytest.mark.parametrize('terminal', [True, False], ids=['terminal', 'pipe'])
@pytest.mark.parametrize('what', MAKE)
def test_a_source_that_is_downloaded(fault, work, cache, what, terminal):
    """Its server has no Range requests, and takes over a second for it."""
    c = sample()
    c.add('model/large', os.urandom(3 * MIB))
    c.write(os.path.join(fault.root, 'm.carton'))
    size = os.path.getsize(os.path.join(fault.root, 'm.carton')) / MIB
    url = fault.url('m', file='m.carton', norange=1, rate=3 * MIB // 2)
    words = (f'--key={oms.Key(work).path}', f'--output={work}/s.sig', url) if what == 'sign' else (
        url, work / 'new.carton')
    shown = run_slow(threading.Event(), {}, terminal, 'never', *MAKE[what], cache.flag, *words)
    if terminal:
        assert re.search(rf'download .* \d+%  [\d.]+ [KM]iB/{size:.1f} MiB ', shown), shown
    else:
        assert re.fullmatch(rf'cartonctl: http://.*: fetching {size:.1f} MiB to open it\n', shown), shown


@pytest.mark.parametrize('terminal', [True, False], ids=['terminal', 'pipe'])
def test_a_slow_import(work, cache, terminal):
    """Its list is one of those; what follows has the same word."""
    go = threading.Event()
    with slow_hub(go, None, work) as (source, env):
        pattern = 'import 0 B  0 B/s' if terminal else f'^cartonctl: {source}: waiting for the server\n'
        shown = run_slow(go, env, terminal, pattern, 'import', cache.flag, source, work / 'm.carton')
    assert re.search(pattern, shown), shown


def test_an_interrupted_mount(registry, work, cache):
    """One line of its own, over the bar, and the exit status of a shell."""
    go = threading.Event()
    (work / 'mnt').mkdir()
    with slow_hub(go, registry, work) as (source, env):
        reader, writer = pty.openpty()
        p = subprocess.Popen([CARTONFS, *cache.options, source, work / 'mnt'], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=writer, env=environment() | env)
        os.close(writer)
        shown = ''
        with contextlib.suppress(OSError):
            while block := os.read(reader, 4096).decode(errors='replace'):
                shown += block
                if 'download 0 B' in shown:
                    p.send_signal(signal.SIGINT)
        os.close(reader)
        go.set()
        assert p.wait() == 128 + signal.SIGINT, shown
    assert shown.endswith('\r\x1b[Kcartonfs: interrupted; nothing is mounted\r\n'), shown
    assert not os.path.ismount(work / 'mnt')
