# SPDX-License-Identifier: Apache-2.0
"""ModelScope: one answer lists a model, with a sha256 for each file; content by redirects to a CDN."""
import hashlib
import json
import re
import urllib.parse

from hubrepo import HubServer


class Model:
    """Files at one commit. Each file says at which commit it was changed last: `older` ones at another."""

    def __init__(self, files, older=()):
        self.files, self.older = files, set(older)

    @property
    def commit(self):
        hashes = sorted((p, hashlib.sha1(d).hexdigest()) for p, d in self.files.items())
        return hashlib.sha1(repr(hashes).encode()).hexdigest()

    @property
    def commits(self):
        commit = self.commit
        return {p: hashlib.sha1(d).hexdigest() if p in self.older else commit for p, d in self.files.items()}

    def listed(self):
        commits = self.commits
        out = [{'Type': 'tree', 'Path': d, 'Size': 0, 'Sha256': '', 'Revision': self.commit}
               for d in sorted({p.rpartition('/')[0] for p in self.files} - {''})]
        for path, data in self.files.items():
            sha256 = hashlib.sha256(data).hexdigest()
            out.append({'Type': 'blob', 'Path': path, 'Name': path.rpartition('/')[2], 'Size': len(data),
                        'Sha256': sha256.upper() if path.endswith('.json') else sha256,
                        'Revision': commits[path]})
        return out


class ModelScope(HubServer):
    """`repos`: by ORG/REPO. `change` as HubServer's."""

    def resolve(self, h):
        with self.lock:
            self.asked.append(h.path)
            self.secrets.append(h.headers.get('Authorization'))
        url = urllib.parse.urlsplit(h.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if m := re.fullmatch(r'/api/v1/models/([^/]+/[^/]+)/repo/files', url.path):
            model = self.repos.get(m[1])
            if not model or query['Revision'] not in ('master', 'v1', model.commit):
                return self.send(h, 404, {}, json.dumps({'Code': 10010205001, 'Success': False}).encode())
            assert query['Recursive'] == 'true'
            body = {'Code': 200, 'Success': True, 'Message': '', 'Data': {
                'Files': model.listed(), 'LatestCommitter': {'Id': '', 'ShortId': model.commit[:8]}}}
            return self.send(h, 200, {}, json.dumps(body).encode())
        name, commit, path = re.fullmatch(r'/models/([^/]+/[^/]+)/resolve/([^/]+)/(.*)', url.path).groups()
        model, path = self.repos[name], urllib.parse.unquote(path)
        if model.commits[path] != commit:
            return self.send(h, 404, {}, b'')
        sha256 = hashlib.sha256(model.files[path]).hexdigest()
        return self.send(h, 302, {'Location': f'http://127.0.0.1:{self.cdn.server_address[1]}/{sha256}'}, b'')
