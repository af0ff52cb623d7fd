# SPDX-License-Identifier: Apache-2.0
"""
Where LINKS and redirects may not lead: private addresses. In a network namespace of the test's own,
in which such addresses, and public ones, are on the loopback interface; nothing leaves it.
"""
import json
import os
import subprocess

import pytest

import harness
from harness import CARTONCTL, CARTONFS, eventually, run
from origin import Cache, Fault, LinkedCarton, fault_bytes, lines_of, needs_root
from zipwriter import sample

pytestmark = needs_root
N = 1000
PUBLIC = '93.184.216.34'
METADATA = '169.254.169.254'
ADDRESSES = [PUBLIC, METADATA, '10.1.2.3', '172.16.5.5', '192.168.1.1', '100.64.0.1', '198.18.0.1',
             '2a00::5', 'fd00::1']


class Namespace:
    def __init__(self):
        self.process = subprocess.Popen(['unshare', '--net', 'sleep', 'infinity'])
        pid = self.process.pid
        ours = os.readlink('/proc/self/ns/net')
        eventually('it has its own network', lambda: os.readlink(f'/proc/{pid}/ns/net') != ours)
        self.prefix = ['nsenter', f'--net=/proc/{pid}/ns/net', '--']
        for words in ['link set lo up'] + [f'addr add {a} dev lo' + (' nodad' if ':' in a else '')
                                           for a in ADDRESSES]:
            p = self.run('ip', *words.split())
            assert p.returncode == 0, p.stderr
        self.servers = []

    def run(self, *cmd, **kw):
        return run(*self.prefix, *cmd, **kw)

    def server(self, root):
        s = Server(self, root)
        self.servers.append(s)
        return s

    def stop(self):
        for s in self.servers:
            s.stop()
        self.process.kill()
        self.process.wait()


class Server(Fault):
    """On all addresses of the namespace."""

    def __init__(self, ns, root):
        self.ns = ns
        super().__init__(host='::', root=root, prefix=ns.prefix)

    def ask(self, path):
        p = self.ns.run('curl', '-sSf', f'http://127.0.0.1:{self.port}{path}')
        assert p.returncode == 0, p.stderr
        return json.loads(p.stdout)

    def at(self, host, path, **kw):
        return self.url(path, **kw).replace('[::]', host)


@pytest.fixture(scope='module')
def namespace(session_dir):
    ns = Namespace()
    yield ns
    ns.stop()


@pytest.fixture(scope='module')
def there(namespace, session_dir):
    """(public, victim): two servers; the victim must not hear of us."""
    return namespace.server(session_dir), namespace.server(session_dir)


@pytest.fixture
def cat(namespace, there, work):
    """cat(*urls, options) -> the process that read a file with these in LINKS."""
    for s in there:
        s.clear()

    def make(*urls, options=()):
        c = LinkedCarton().link('model/x', fault_bytes(N), *urls)
        c.write(work / 'm.carton')
        return namespace.run(CARTONCTL, 'cat', f'--cache-dir={work}/cache', '--timeout=5', *options,
                             work / 'm.carton', 'model/x', text=False)
    yield make
    Cache(work / 'cache').check()


def was_refused(p, what='LINKS|URL|redirect'):
    err = p.stderr.decode()
    assert p.returncode == 1 and p.stdout == b'', err
    assert lines_of(err, '--private-links') and lines_of(err, what), err
    assert 'Permission denied' in err


HOSTS = {METADATA: 'link-local', '127.0.0.1': 'loopback', '127.9.9.9': 'loopback',
         '10.1.2.3': 'private',
         '172.16.5.5': 'private', '192.168.1.1': 'private', '100.64.0.1': 'private',
         '198.18.0.1': 'private', '0.0.0.0': 'unspecified', 'localhost': 'loopback',
         '[::1]': 'loopback',
         '[fd00::1]': 'private', '[::]': 'unspecified', f'[::ffff:{METADATA}]': 'link-local',
         '[::ffff:7f00:1]': 'loopback', '[64:ff9b::a9fe:a9fe]': 'link-local',
         '224.0.0.1': 'multicast', '[ff02::1]': 'multicast', '2130706433': 'loopback',
         '0x7f.1': 'loopback', '0251.0376.0251.0376': 'link-local', '127.1': 'loopback'}


@pytest.mark.parametrize('host', HOSTS)
def test_refused(cat, there, host):
    """In whatever form the address comes; nothing is sent."""
    p = cat(there[1].at(host, 'x', size=N))
    was_refused(p)
    assert HOSTS[host] in p.stderr.decode()
    assert there[1].connections() == 0


@pytest.mark.parametrize('host', [METADATA, '127.0.0.1', '10.1.2.3', '[fd00::1]', 'localhost'])
def test_allowed_by_the_option(cat, there, host):
    p = cat(there[1].at(host, 'x', size=N), options=['--private-links'])
    assert p.returncode == 0 and p.stdout == fault_bytes(N), p.stderr


@pytest.mark.parametrize('host', [PUBLIC, '[2a00::5]', f'[::ffff:{PUBLIC}]'])
def test_public_needs_no_option(cat, there, host):
    p = cat(there[0].at(host, 'x', size=N))
    assert p.returncode == 0 and p.stdout == fault_bytes(N), p.stderr


@pytest.mark.parametrize('host', [METADATA, '127.0.0.1', '10.1.2.3', '[::1]',
                                  f'[::ffff:{METADATA}]'])
@pytest.mark.parametrize('way', ['redirect', 'dl'])
def test_redirect_refused(cat, there, host, way):
    """From a public server to the inside."""
    public, victim = there
    to = victim.at(host, 'x', size=N)
    kw = dict(redirect=302, to=to) if way == 'redirect' else dict(text='x', dl=to)
    p = cat(public.at(PUBLIC, 'r', **kw))
    was_refused(p, 'redirect')
    assert public.requests('r') and victim.connections() == 0
    p = cat(public.at(PUBLIC, 'r', **kw), options=['--private-links'])
    assert p.returncode == 0 and p.stdout == fault_bytes(N), p.stderr


def test_next_url(cat, there):
    """A refused URL counts as one that failed."""
    public, victim = there
    p = cat(victim.at(METADATA, 'x', size=N), public.at(PUBLIC, 'x', size=N))
    assert p.returncode == 0 and p.stdout == fault_bytes(N)
    assert victim.connections() == 0


def hash_of(namespace, url):
    return namespace.run(CARTONCTL, 'hash', '--timeout=5', url)


def test_source(namespace, there, work, session_dir):
    """What the user typed may be anywhere; its redirects stay in the same class, or go public."""
    public, victim = there
    c = sample()
    c.write(session_dir / 'source.carton')
    for s in there:
        s.clear()

    def carton(server, host):
        return server.at(host, 'm.carton', file='source.carton')

    def redirect(host, to):
        return public.at(host, 'r', redirect=302, to=to)
    good = [carton(public, h) for h in ('127.0.0.1', '10.1.2.3', METADATA, '[fd00::1]', PUBLIC)]
    good += [redirect('10.1.2.3', carton(public, '192.168.1.1')),
             redirect('127.0.0.1', carton(public, '[::1]')),
             redirect('10.1.2.3', carton(public, PUBLIC))]
    for url in good:
        p = hash_of(namespace, url)
        assert p.returncode == 0 and p.stdout.strip() == c.model_hash(), (url, p.stderr)
    for host, to in ((PUBLIC, '10.1.2.3'), (PUBLIC, METADATA), ('10.1.2.3', METADATA),
                     ('10.1.2.3', '127.0.0.1'), ('127.0.0.1', '10.1.2.3')):
        p = hash_of(namespace, redirect(host, carton(victim, to)))
        assert p.returncode == 1 and 'redirect' in p.stderr, (host, to, p.stderr)
        assert 'the option --private-links allows it' in p.stderr
    assert victim.connections() == 0


def test_mounted(namespace, there, work, point):
    """Through a mount: EACCES, and the metadata service hears nothing."""
    victim = there[1]
    victim.clear()
    c = LinkedCarton().link('model/x', fault_bytes(N), victim.at(METADATA, 'x', size=N))
    c.write(work / 'm.carton')
    where = point()
    p = namespace.run(CARTONFS, '-o', f'cache_dir={work}/cache', work / 'm.carton', where)
    assert p.returncode == 0, p.stderr
    pids = harness.daemons(where)
    try:
        for words in (['cat'], ['stat']):
            p = run(*words, os.path.join(where, 'model/x'))
            assert p.returncode == 1 and 'Permission denied' in p.stderr
        assert os.listdir(os.path.join(where, 'model')) == ['x']
        assert victim.connections() == 0
    finally:
        assert harness.unmount(where).returncode == 0
        assert [harness.wait_exit(pid) for pid in pids] == [0]
