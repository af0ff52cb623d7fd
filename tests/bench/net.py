# SPDX-License-Identifier: Apache-2.0
"""
A carton behind a link: nginx, and tests/tools/relay before it. What is on the right is what the link itself takes for
the bytes that are wanted: one round trip and their time at its rate. Beside that are the requests, and the bytes that
came, until the mount has ended.
"""
import contextlib
import http.client
import os
import random
import socket
import statistics
import subprocess
import threading
import time

import data
import relay
import remote
import timing
from timing import Skip

MIB = 1 << 20
MBIT = 1000                             # of all links here

NGINX = """
daemon off;
master_process off;
pid {dir}/pid;
error_log {dir}/error.log crit;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
    client_body_temp_path {dir}/t1;
    proxy_temp_path {dir}/t2;
    fastcgi_temp_path {dir}/t3;
    uwsgi_temp_path {dir}/t4;
    scgi_temp_path {dir}/t5;
    log_format paths '$request_uri';
    access_log {dir}/access.log paths;
    keepalive_requests 1000000;
    sendfile on;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        root {root};
        if (-f {dir}/sick503) {{ return 503; }}
        if (-f {dir}/sick429) {{ return 429; }}
    }}
}}
"""


def prefer(p):
    """What stands for the network gets a processor when it needs one; only root may say so."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, p.pid, -15)


def quiet_port():
    """A port that no connection gets by itself: links have it one after the other."""
    for port in random.sample(range(20000, 30000), 100):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(('127.0.0.1', port))
            return port
    raise Skip('no free port')


class Link:
    """Of one contestant: a relay. timed() is what counts of it."""

    def __init__(self, net, rtt):
        self.net, self.rtt, self.seconds, self.relay = net, rtt, None, None
        self.came = self.connections = 0
        self.up()

    def up(self):
        self.relay = relay.Relay(self.net.nginx_port, self.rtt, MBIT, slow_start=True, listen=self.net.port,
                                 program=self.net.program)
        prefer(self.relay.process)

    def down(self):
        """Adds what came. Connections break, and new ones are refused."""
        if self.relay:
            counts, self.relay = self.relay.stop(), None
            self.came += counts['down']
            self.connections += counts['connections']

    @contextlib.contextmanager
    def timed(self):
        before = self.relay.counts() if self.relay else dict(down=0, connections=0)
        self.came, self.connections = -before['down'], -before['connections']
        self.asked = self.net.requests()
        start = time.perf_counter()
        yield
        self.seconds = time.perf_counter() - start

    def end(self):
        self.down()
        return dict(requests=self.net.requests() - self.asked, bytes=self.came, connections=self.connections)


class Contest:
    """
    fn(link) does something in which link.timed() is what is measured; it may return more numbers. `size` bytes are
    wanted; the server needs `late` seconds more.
    """

    def __init__(self, label, fn, size, rtt=50, late=0):
        self.label, self.fn, self.rtt, self.counts = label, fn, rtt, []
        self.ideal = late + rtt / 1000 + size * 8 / MBIT / 1e6
        self.reference = f'the link ({timing.number(size / MIB)} MiB, {rtt} ms)' + f' after {late} s' * bool(late)


class Net:
    """The server of all rows, and their cartons."""

    def __init__(self, b):
        self.b, self.marks = b, 0
        self.nginx, url = remote.start_nginx(b, b.where, NGINX)
        prefer(self.nginx)
        self.nginx_port, self.port = int(url.rpartition(':')[2]), quiet_port()
        self.url = f'http://127.0.0.1:{self.port}'
        self.program = next((p for p in (os.path.join(b.args.build, 'tests/tools/relay'), relay.PROGRAM)
                             if os.path.exists(p)), None)
        if not self.program:
            raise Skip('net: tests/tools/relay is not built: make tests')

    def rtt(self, ms):
        return self.b.pick(ms, ms, ms / 10)

    def end(self):
        self.nginx.terminate()
        self.nginx.wait()

    def requests(self):
        """How many there were, up to one of our own, which is logged after its answer."""
        self.marks += 1
        name = f'/_mark{self.marks}\n'
        c = http.client.HTTPConnection('127.0.0.1', self.nginx_port, timeout=60)
        c.request('GET', name.strip())
        c.getresponse().read()
        c.close()
        with open(self.b.path('nginx/access.log')) as f:
            text = f.read()
            while name not in text:
                text += f.read()
        return sum(not line.startswith('/_mark') for line in text.split())

    @contextlib.contextmanager
    def sick(self, status, seconds):
        """The server answers with this status, for so many seconds from the beginning of the block."""
        path = self.b.path(f'nginx/sick{status}')
        open(path, 'w').close()
        with after(seconds, os.unlink, path):
            yield

    # ---- cartons; their URL is name() of the path ----

    def large(self, mib, index):
        """The path of a carton with model/big."""
        return self.b.large(data.STORED, mib, index)[0]

    def at(self, path):
        return f'{self.url}/{os.path.relpath(path, self.b.where)}'

    # ---- measuring ----

    def turn(self, contest, source):
        def run(note):
            b = self.b
            b.conditions.pages(source, name='carton of the server')
            link = Link(self, contest.rtt)
            try:
                more = contest.fn(link) or {}
                contest.counts.append(link.end() | more)
            except (Skip, OSError, RuntimeError, subprocess.SubprocessError) as e:
                raise Skip(f'{contest.label}: {reason(e)}') from None
            finally:
                link.down()
            note(contest.label, link.seconds)
        return run

    def ideal(self, contests):
        """Notes what the link takes for each."""
        def run(note):
            self.b.conditions.say('computed')
            for c in contests:
                note(c.reference, c.ideal)
        return run

    def group(self, title, source, *contests, rounds=None):
        """A section, in which these take turns."""
        s = self.b.section(title)
        s.run(*(self.turn(c, source) for c in contests), self.ideal(contests), rounds=rounds)
        for c in contests:
            before = len(s.rows)
            s.row(c.label, c.reference)
            for row in s.rows[before:]:
                row |= {k: statistics.median(x[k] for x in c.counts) for k in c.counts[0]}
                row['remark'] = described(row, c.counts[0])


def described(row, keys):
    def one(k):
        return f'{row[k] / MIB:.1f} MiB' + f' of {k}' * (k != 'bytes') if k in ('bytes', 'disk') else f'{row[k]:g} {k}'
    return ', '.join([f'{row["seconds"]:.3g} s', *map(one, keys)])


def reason(e):
    """The last line of what a program said, or the error."""
    text = e.stderr if isinstance(e, subprocess.SubprocessError) and e.stderr else str(e)
    text = text.decode(errors='replace') if isinstance(text, bytes) else text
    return 'fails: ' + (text.strip().splitlines() or ['?'])[-1]


@contextlib.contextmanager
def after(seconds, fn, *args):
    """Calls fn so many seconds after the beginning of the block, which ends behind that."""
    t = threading.Timer(seconds, fn, args)
    t.start()
    try:
        yield
    finally:
        t.join()


def read_pieces(path, size, piece=MIB, at=0):
    """`size` bytes from there on, each piece by a read of its own."""
    fd = os.open(path, os.O_RDONLY)
    try:
        for off in range(at, at + size, piece):
            if len(os.pread(fd, piece, off)) != piece:
                raise OSError(f'{path}: short read at {off}')
    finally:
        os.close(fd)
