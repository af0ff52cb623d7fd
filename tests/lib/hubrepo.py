# SPDX-License-Identifier: Apache-2.0
"""A hub with the API of repositories: commits, pages of files, content by redirects to a CDN."""
import contextlib
import hashlib
import json
import os
import re
import threading
import urllib.parse

from hub import HubAndCdn

LARGE = 1024  # files of more bytes are in LFS


def git_id(data):
    return hashlib.sha1(b'blob %d\0' % len(data) + data).hexdigest()


def pointer(sha256, size):
    return f'version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n'.encode()


class Repo:
    """Files at one commit; `size` and `sha256` of a large one may be given instead of its bytes."""

    def __init__(self, files, license='apache-2.0', page=1000):
        self.files, self.license, self.page = files, license, page

    @property
    def commit(self):
        return hashlib.sha1(repr(sorted((p, git_id(d)) for p, d in self.files.items())).encode()).hexdigest()

    def listed(self):
        out = [{'type': 'directory', 'oid': '0' * 40, 'size': 0, 'path': d}
               for d in sorted({p.rpartition('/')[0] for p in self.files} - {''})]
        for path, data in self.files.items():
            if len(data) <= LARGE:
                out.append({'type': 'file', 'oid': git_id(data), 'size': len(data), 'path': path})
                continue
            sha256 = hashlib.sha256(data).hexdigest()
            text = pointer(sha256, len(data))
            out.append({'type': 'file', 'oid': git_id(text), 'size': len(data), 'path': path,
                        'lfs': {'oid': sha256, 'size': len(data), 'pointerSize': len(text)},
                        'xetHash': '5' * 64})
        return out


class HubServer(HubAndCdn):
    """`repos`: by KIND/ORG/REPO. `change(path, status, headers, body)` may change an answer."""

    def __init__(self, repos, change=None, token=None):
        self.repos, self.change, self.token = repos, change, token
        self.asked, self.secrets = [], []
        self.lock = threading.Lock()

    @property
    def endpoint(self):
        return f'http://127.0.0.1:{self.hub.server_address[1]}'

    def api(self):
        return [p for p in self.asked if p.startswith('/api/')]

    def resolved(self):
        return [p for p in self.asked if '/resolve/' in p]

    def send(self, h, status, headers, body):
        if self.change:
            status, headers, body = self.change(h.path, status, headers, body) or (status, headers, body)
        h.send_response(status)
        for k, v in headers.items():
            h.send_header(k, v)
        h.send_header('Content-Length', str(len(body)))
        h.end_headers()
        if h.command != 'HEAD':
            with contextlib.suppress(ConnectionError):
                h.wfile.write(body)

    def resolve(self, h):
        secret = h.headers.get('Authorization')
        with self.lock:
            self.asked.append(h.path)
        if self.token and secret != f'Bearer {self.token}':
            return self.send(h, 401, {'X-Error-Code': 'GatedRepo'}, b'')
        url = urllib.parse.urlsplit(h.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if m := re.fullmatch(r'/api/(\w+)/([^/]+/[^/]+)/(revision|tree)/([^/]+)', url.path):
            kind, name, what, revision = m.groups()
            repo = self.repos.get(f'{kind}/{name}')
            if not repo or urllib.parse.unquote(revision) not in ('main', 'v1', 'refs/pr/1', repo.commit):
                return self.send(h, 404, {'X-Error-Code': 'RepoNotFound'}, b'')
            if what == 'revision':
                body = {'sha': repo.commit, 'id': name, 'gated': False, 'cardData': {'license': repo.license},
                        'siblings': [{'rfilename': p} for p in repo.files]}
                return self.send(h, 200, {}, json.dumps(body).encode())
            at, headers, all_of_it = int(query.get('cursor', 0)), {}, repo.listed()
            if at + repo.page < len(all_of_it):
                headers['Link'] = (f'<{self.endpoint}{url.path}?recursive=true&expand=false&cursor={at + repo.page}>; '
                                   f'rel="next"')
            return self.send(h, 200, headers, json.dumps(all_of_it[at:at + repo.page]).encode())
        kind, name, revision, path = re.fullmatch(
            r'/(datasets/|spaces/)?([^/]+/[^/]+)/resolve/([^/]+)/(.*)', url.path).groups()
        repo = self.repos[f'{(kind or "models/")}{name}']
        data = repo.files[urllib.parse.unquote(path)]
        if revision != repo.commit:
            return self.send(h, 404, {}, b'')
        if len(data) <= LARGE:
            return self.send(h, 200, {'ETag': f'"{git_id(data)}"'}, data)
        sha256 = hashlib.sha256(data).hexdigest()
        return self.send(h, 302, {'Location': f'http://127.0.0.1:{self.cdn.server_address[1]}/{sha256}',
                                  'X-Linked-Etag': f'"{sha256}"', 'X-Linked-Size': str(len(data))}, b'')

    def deliver(self, h):
        with self.lock:
            self.secrets.append(h.headers.get('Authorization'))
        data = next(d for r in self.repos.values() for d in r.files.values()
                    if hashlib.sha256(d).hexdigest() == h.path[1:])
        headers = {'ETag': f'"{h.path[1:]}"', 'Accept-Ranges': 'bytes'}
        if m := re.fullmatch(r'bytes=(\d+)-(\d*)', h.headers.get('Range', '')):
            first, last = int(m[1]), min(int(m[2] or len(data) - 1), len(data) - 1)
            headers['Content-Range'] = f'bytes {first}-{last}/{len(data)}'
            return self.send(h, 206, headers, data[first:last + 1])
        return self.send(h, 200, headers, data)


def same(m, wanted):
    """The mount has just these files in model/."""
    found = {os.path.relpath(os.path.join(d, f), m / 'model') for d, _, fs in os.walk(m / 'model') for f in fs}
    assert found == set(wanted)
    for path, data in wanted.items():
        assert m.read(f'model/{path}') == data, path


def lie_to(at, lie):
    """A `change` that lets `lie` change the JSON of answers whose path has `at` in it."""
    def change(path, status, headers, body):
        if at not in path or status != 200:
            return None
        listed = json.loads(body)
        lie(listed)
        return status, headers, json.dumps(listed).encode()
    return change
