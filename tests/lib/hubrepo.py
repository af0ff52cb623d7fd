# SPDX-License-Identifier: Apache-2.0
"""A hub with the API of repositories: commits, pages of files, content by redirects to a CDN."""
import contextlib
import functools
import hashlib
import json
import os
import re
import threading
import urllib.parse

from harness import eventually
from hub import HubAndCdn
from origin import MIB, fault_bytes

LARGE = 1024  # files of more bytes are in LFS


def git_id(data):
    return hashlib.sha1(b'blob %d\0' % len(data) + data).hexdigest()


def name_of(data):
    """What stands for the sha256 while only git's id is known."""
    return hashlib.sha256(b'git ' + git_id(data).encode()).digest()


def pointer(sha256, size):
    return f'version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n'.encode()


@functools.cache
def large(data):
    """(size, sha256) of a file that is in LFS: of its bytes, or as they are given."""
    return data if isinstance(data, tuple) else (len(data), hashlib.sha256(data).hexdigest())


class Repo:
    """
    Files at one commit: bytes, or (size, sha256) of a large one that nobody reads. `gated`: anybody may list it, but
    only the token of the hub fetches files; `private`: only that finds it. `marked`: {path: level} of a scan.
    """

    def __init__(self, files, license='apache-2.0', page=1000, gated=False, private=False, marked=()):
        self.files, self.license, self.page = files, license, page
        self.gated, self.private, self.marked = gated, private, dict(marked)

    @property
    def commit(self):
        return hashlib.sha1(repr(sorted((p, d if isinstance(d, tuple) else git_id(d))
                                        for p, d in self.files.items())).encode()).hexdigest()

    def is_large(self, path):
        return isinstance(self.files[path], tuple) or len(self.files[path]) > LARGE

    def listed(self):
        out = [{'type': 'directory', 'oid': '0' * 40, 'size': 0, 'path': d}
               for d in sorted({p.rpartition('/')[0] for p in self.files} - {''})]
        for path, data in self.files.items():
            if not self.is_large(path):
                out.append({'type': 'file', 'oid': git_id(data), 'size': len(data), 'path': path})
                continue
            size, sha256 = large(data)
            text = pointer(sha256, size)
            out.append({'type': 'file', 'oid': git_id(text), 'size': size, 'path': path,
                        'lfs': {'oid': sha256, 'size': size, 'pointerSize': len(text)}, 'xetHash': '5' * 64})
        return out


class HubServer(HubAndCdn):
    """
    `repos`: by KIND/ORG/REPO, in any case of letters; `renamed` has {old: new} of them. `token`: what the hub accepts.
    `change(path, status, headers, body)` may change an answer.
    """

    def __init__(self, repos, change=None, token=None, renamed=()):
        self.repos, self.change, self.token, self.renamed = repos, change, token, dict(renamed)
        self.asked, self.tokens, self.secrets = [], [], []
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
        if not {'Content-Length', 'Transfer-Encoding'} & set(headers):
            h.send_header('Content-Length', str(len(body)))
        h.end_headers()
        if h.command != 'HEAD':
            with contextlib.suppress(ConnectionError):
                for part in body if not isinstance(body, bytes) else [body]:
                    h.wfile.write(part)

    def refuse(self, h, status, code, message=''):
        headers = {'X-Error-Message': message, 'Content-Type': 'application/json'} | ({'X-Error-Code': code} if code else {})
        return self.send(h, status, headers, json.dumps({'error': message}).encode())

    def send_part(self, h, headers, data):
        headers |= {'Accept-Ranges': 'bytes'}
        if m := re.fullmatch(r'bytes=(\d+)-(\d*)', h.headers.get('Range', '')):
            first, last = int(m[1]), min(int(m[2] or len(data) - 1), len(data) - 1)
            headers['Content-Range'] = f'bytes {first}-{last}/{len(data)}'
            return self.send(h, 206, headers, data[first:last + 1])
        return self.send(h, 200, headers, data)

    def find(self, h, key, known):
        """(name, repository), or None after the refusal. `known`: the hub knows who asks."""
        if new := self.renamed.get(key):
            self.send(h, 307, {'Location': h.path.replace(key.partition('/')[2], new.partition('/')[2], 1)}, b'')
            return None
        name = next((k for k in self.repos if k.lower() == key.lower()), None)
        if name and (known or not self.repos[name].private):
            return name.partition('/')[2], self.repos[name]
        self.refuse(h, 404 if known else 401, 'RepoNotFound', 'Repository not found')
        return None

    def resolve(self, h):
        secret = h.headers.get('Authorization')
        with self.lock:
            self.asked.append(h.path)
            self.tokens.append(secret)
        known = self.token is not None and secret == f'Bearer {self.token}'
        if secret and self.token is not None and not known:
            return self.refuse(h, 401, '', 'Invalid credentials in Authorization header')
        url = urllib.parse.urlsplit(h.path)
        if m := re.fullmatch(r'/api/(\w+)/([^/]+(?:/[^/]+)?)/(revision|tree)/([^/]+)', url.path):
            kind, name, what, revision = m.groups()
            path = None
        elif m := re.fullmatch(r'/(datasets/|spaces/)?([^/]+(?:/[^/]+)?)/resolve/([^/]+)/(.*)', url.path):
            kind, name, revision, path = m.groups()
            kind = (kind or 'models/')[:-1]
        else:
            return self.send(h, 404, {}, b'')
        found = self.find(h, f'{kind}/{name}', known)
        if not found:
            return None
        name, repo = found
        if urllib.parse.unquote(revision) not in ('main', 'v1', 'refs/pr/1', repo.commit):
            return self.refuse(h, 404, 'RevisionNotFound', 'Invalid rev id')
        if path is not None:
            return self.content(h, repo, urllib.parse.unquote(path), known)
        query = dict(urllib.parse.parse_qsl(url.query))
        return self.revision(h, name, repo, query) if what == 'revision' else self.tree(h, url.path, repo, query)

    def revision(self, h, name, repo, query):
        body = {'_id': '0' * 24, 'sha': repo.commit, 'id': name, 'gated': 'manual' if repo.gated else False,
                'private': repo.private, 'cardData': {'license': repo.license},
                'siblings': [{'rfilename': p} for p in repo.files]}
        if query.get('securityStatus'):
            body['securityRepoStatus'] = {'scansDone': True, 'filesWithIssues': [
                {'path': p, 'level': level} for p, level in repo.marked.items()]}
        return self.send(h, 200, {'Content-Type': 'application/json'}, json.dumps(body).encode())

    def tree(self, h, path, repo, query):
        at, headers, all_of_it = int(query.get('cursor', 0)), {'Content-Type': 'application/json'}, repo.listed()
        if at + repo.page < len(all_of_it):
            headers['Link'] = (f'<{self.endpoint}{path}?recursive=true&expand=false&cursor={at + repo.page}>; '
                               f'rel="next"')
        return self.send(h, 200, headers, json.dumps(all_of_it[at:at + repo.page]).encode())

    def content(self, h, repo, path, known):
        if repo.gated and not known:
            return self.refuse(h, 401, 'GatedRepo', 'Access is restricted')
        if path not in repo.files:
            return self.refuse(h, 404, 'EntryNotFound', 'Entry not found')
        data, headers = repo.files[path], {'X-Repo-Commit': repo.commit}
        if not repo.is_large(path):
            return self.send_part(h, headers | {'ETag': f'"{git_id(data)}"'}, data)
        size, sha256 = large(data)
        return self.send(h, 302, headers | {'Location': f'http://127.0.0.1:{self.cdn.server_address[1]}/{sha256}',
                                            'X-Linked-Etag': f'"{sha256}"', 'X-Linked-Size': str(size),
                                            'X-Xet-Hash': '5' * 64}, b'')

    def deliver(self, h):
        with self.lock:
            self.secrets.append(h.headers.get('Authorization'))
        data = next(d for r in self.repos.values() for d in r.files.values() if large(d)[1] == h.path[1:])
        return self.send_part(h, {'ETag': f'"{h.path[1:]}"'}, data)


NAME = 'models/me/my-model'


def files(n=3):
    return {'config.json': b'{"a": 1}\n', 'README.md': b'---\nlicense: apache-2.0\n---\n', 'empty': b'',
            'sub/a b/ü.py': b'print()\n', '.gitattributes': b'*.safetensors filter=lfs\n'} | {
        f'model-{i + 1:05}-of-{n:05}.safetensors': fault_bytes(2 * MIB + i, seed=40 + i) for i in range(n)}


def env(hub, **kw):
    return {'HF_ENDPOINT': hub.endpoint, 'HF_TOKEN': ''} | kw


# carton.toml by version 1 of the rule
TOML = b"""\
spec_version = 1
model_name = "my-model"
license = "apache-2.0"
homepage = "https://huggingface.co/me/my-model"

[runner]
runner_name = "noop"
required_framework_version = "*"
runner_compat_version = 1
"""


def model_hash(wanted):
    lines = [f'{path}={hashlib.sha256(data).hexdigest()}\n'
             for path, data in sorted(({'carton.toml': TOML} | {f'model/{p}': d for p, d in wanted.items()}).items())]
    return hashlib.sha256(''.join(lines).encode()).hexdigest()


def same(m, wanted):
    """The mount has just these files in model/."""
    found = {os.path.relpath(os.path.join(d, f), m / 'model') for d, _, fs in os.walk(m / 'model') for f in fs}
    assert found == set(wanted)
    for path, data in wanted.items():
        assert m.read(f'model/{path}') == data, path


def settled(m):
    """Waits until the background has read the small files: the model hash."""
    return eventually('the model hash is known', lambda: json.loads(m.read('.cartonfs/status.json'))['model_hash'])


def lie_to(at, lie):
    """A `change` that lets `lie` change the JSON of answers whose path has `at` in it."""
    def change(path, status, headers, body):
        if at not in path or status != 200:
            return None
        listed = json.loads(body)
        lie(listed)
        return status, headers, json.dumps(listed).encode()
    return change
