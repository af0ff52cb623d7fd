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


def start_nginx(b, root, rate):
    exe = shutil.which('nginx') or shutil.which('nginx', path='/usr/sbin:/sbin')
    if not exe:
        raise Skip('nginx is not installed')
    where = b.path('nginx')
    os.makedirs(where)
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    with open(f'{where}/conf', 'w') as f:
        f.write(NGINX.format(dir=where, port=port, root=root, rate=rate))
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
    mib, rate = (16, 16) if b.quick else (64, 16)
    s = b.section(f'A remote carton: a Stored file of {mib} MiB, {rate} MiB/s a connection')
    source, _ = b.large(data.STORED, mib)
    try:
        nginx, url = start_nginx(b, b.where, rate * MIB)
    except Skip as e:
        s.skipped.append(str(e))
        return
    name = os.path.basename(source)

    def fetch(path, label, *options):
        def contest(note):
            with b.carton(f'{url}/{path}{name}', options=options) as top:
                note(label, timed(timing.read_file, f'{top}/model/big'))
        return contest

    def curl(note):
        note('curl, no limit', timed(timing.shell, 'curl -sf "$1" | sha256sum', f'{url}/{name}'))

    try:
        s.run(fetch('slow/', '8 connections'), fetch('slow/', '1 connection', 'connections=1'),
              fetch('', 'no limit'), *([curl] if shutil.which('curl') else []))
    finally:
        nginx.terminate()
        nginx.wait()
    s.row('1 connection', '8 connections', 'at best 8')
    s.row('no limit', 'curl, no limit', 'and keeps it')
