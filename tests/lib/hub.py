# SPDX-License-Identifier: Apache-2.0
"""A hub that redirects to URLs with a signature, which expire."""
import re
import threading
import time
import urllib.parse

from served import serve, stop


class HubAndCdn:
    """Two servers: resolve(h) answers the requests to the hub, deliver(h) those to its CDN."""

    def __enter__(self):
        self.hub, self.cdn = (serve(f) for f in (self.resolve, self.deliver))
        return self

    def __exit__(self, *a):
        for s in (self.hub, self.cdn):
            stop(s)


class Hub(HubAndCdn):
    """
    Redirects /hub/NAME to CDN/NAME?X-Amz-Date=…&X-Amz-Expires=TTL, which is good for so many seconds.
    Serves the CDN too: 403 once that is over, `rate` bytes a second.
    """

    def __init__(self, files, ttl=1000, rate=None, dead=lambda n: False, etag='"one"'):
        self.files, self.ttl, self.rate, self.dead, self.etag = files, ttl, rate, dead, etag
        self.resolves, self.parts, self.secrets, self.asked = [], [], [], []
        self.lock = threading.Lock()

    def url(self, name):
        return f'http://127.0.0.1:{self.hub.server_address[1]}/hub/{name}'

    def resolve(self, h):
        now = time.time()
        with self.lock:
            self.resolves.append((now, h.headers.get('Authorization')))
            self.asked.append(h.path)
        date = time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))
        query = urllib.parse.urlencode({'X-Amz-Date': date, 'X-Amz-Expires': self.ttl,
                                        'X-Amz-Signature': f'{now:.6f}'})
        name = h.path.rpartition('/')[2]
        h.send_response(302)
        h.send_header('Location', f'http://localhost:{self.cdn.server_address[1]}/{name}?{query}')
        h.send_header('Content-Length', '0')
        h.end_headers()

    def deliver(self, h):
        url = urllib.parse.urlsplit(h.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        with self.lock:
            n = len(self.parts)
            self.parts.append(query['X-Amz-Signature'])
            self.secrets.append(h.headers.get('Authorization'))
        if time.time() > float(query['X-Amz-Signature']) + self.ttl or self.dead(n):
            h.send_response(403 if not self.dead(n) else self.dead(n))
            h.send_header('Content-Length', '0')
            h.end_headers()
            return
        data = self.files[url.path[1:]]
        first, last = 0, len(data) - 1
        if wanted := re.fullmatch(r'bytes=(\d*)-(\d*)', h.headers.get('Range', '')):
            a, b = wanted.groups()
            first, last = (int(a), min(int(b), last)) if a else (len(data) - int(b), last)
        h.send_response(206 if wanted else 200)
        h.send_header('Content-Length', str(last + 1 - first))
        h.send_header('ETag', self.etag)
        h.send_header('Accept-Ranges', 'bytes')
        if wanted:
            h.send_header('Content-Range', f'bytes {first}-{last}/{len(data)}')
        h.end_headers()
        if h.command == 'HEAD':
            return
        begin = time.monotonic()
        for at in range(first, last + 1, 65536):
            h.wfile.write(data[at:min(at + 65536, last + 1)])
            if self.rate:
                time.sleep(max(0, (at - first) / self.rate - (time.monotonic() - begin)))
