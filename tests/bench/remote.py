# SPDX-License-Identifier: Apache-2.0
"""
A carton on a web server.
"""
import os
import shutil
import socket
import subprocess
import time

import data
import timing
from timing import Skip, timed

MIB = 1 << 20

NGINX = """
daemon off;
master_process off;
pid {dir}/pid;
error_log {dir}/error.log warn;
events {{ worker_connections 64; }}
http {{
    client_body_temp_path {dir}/t1;
    proxy_temp_path {dir}/t2;
    fastcgi_temp_path {dir}/t3;
    uwsgi_temp_path {dir}/t4;
    scgi_temp_path {dir}/t5;
    access_log off;
    server {{
        listen 127.0.0.1:{port};
        root {root};
        location /slow/ {{ alias {root}/; limit_rate {rate}; }}
    }}
}}
"""


def start_nginx(b, root, conf, **words):
    """(process, URL) of one with that configuration, in the directory nginx of the bench."""
    exe = shutil.which('nginx') or shutil.which('nginx', path='/usr/sbin:/sbin')
    if not exe:
        raise Skip('nginx is not installed')
    where = b.path('nginx')
    shutil.rmtree(where, ignore_errors=True)    # of another section
    os.makedirs(where)
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    with open(f'{where}/conf', 'w') as f:
        f.write(conf.format(dir=where, port=port, root=root, **words))
    p = subprocess.Popen([exe, '-p', where, '-c', f'{where}/conf', '-e', f'{where}/error.log'],
                         stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(('127.0.0.1', port), 1).close()
            return p, f'http://127.0.0.1:{port}'
        except OSError:
            if p.poll() is not None or time.monotonic() > end:
                raise Skip('nginx does not start') from None
            time.sleep(0.01)


def remote(b):
    mib, rate = b.pick(64, 16, 8), 16
    s = b.section(f'A remote carton: a Stored file of {mib} MiB, {rate} MiB/s a connection')
    source, _ = b.large(data.STORED, mib)
    try:
        nginx, url = start_nginx(b, b.where, NGINX, rate=rate * MIB)
    except Skip as e:
        s.skipped.append(str(e))
        return
    name = os.path.basename(source)

    def fetch(path, label, *options):
        def contest(note):
            b.conditions.pages(source, name='carton of the server')
            start = time.perf_counter()
            with b.carton(f'{url}/{path}{name}', options=options) as top:
                timing.read_file(f'{top}/model/big')
                note(label, time.perf_counter() - start)
        return contest

    def other(label, program, command, path):
        """What it fetches is on the disk afterwards, as in our cache, and is hashed."""
        def contest(note):
            if not shutil.which(program):
                raise Skip(f'{label}: not installed')
            b.conditions.pages(source, name='carton of the server')
            out = b.path('fetched')
            note(label, timed(timing.shell, command + ' && openssl dgst -sha256 "$3"', f'{url}/{path}', name, out))
            os.unlink(out)
        return contest

    curl = 'curl -sf -o "$3" "$1$2"'
    rclone = 'rclone --config= --multi-thread-streams=8 --multi-thread-cutoff=1M copyto --http-url="$1" ":http:$2" "$3"'
    try:
        s.run(fetch('slow/', 'mount and read, 8 connections'),
              fetch('slow/', 'mount and read, 1 connection', 'connections=1'), fetch('', 'mount and read, no limit'),
              other('curl, no limit', 'curl', curl, ''), other('rclone, no limit', 'rclone', rclone, ''),
              other('rclone, 8 connections', 'rclone', rclone, 'slow/'))
    finally:
        nginx.terminate()
        nginx.wait()
    s.row('mount and read, 1 connection', 'mount and read, 8 connections', 'at best 8')
    s.row('mount and read, 8 connections', 'rclone, 8 connections', 'and openssl dgst')
    for peer in ('curl', 'rclone'):
        s.row('mount and read, no limit', f'{peer}, no limit', 'and openssl dgst')
