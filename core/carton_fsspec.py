# SPDX-License-Identifier: Apache-2.0
"""
A carton as a file system of fsspec, read-only: every byte is verified, as carton.py does it.

    fs = fsspec.filesystem('carton', fo='hf://org/repo')
    fs.ls('model')
    fsspec.open('carton://model/config.json::https://host/m.carton', carton={'offline': True})

Options of carton.open() are those of the file system.
"""
import difflib
import errno
import os

from fsspec import AbstractFileSystem

import carton


# what the base class takes; any other option is one of carton.open(), which refuses what it does not know
_BASE = {'use_listings_cache', 'listings_expiry_time', 'max_paths', 'skip_instance_cache', 'asynchronous', 'loop',
         'add_docs', 'add_aliases'}


def _of_a_file(options):
    """Refuses options of the file system, which come too late here. Others are for other file systems, and are ignored."""
    for name in options:
        if difflib.get_close_matches(name, carton._kinds, 1, .8):
            raise TypeError(f'{name} is no option for a file, only for the file system')


class CartonFileSystem(AbstractFileSystem):
    """fo: the path or URL of a carton."""
    protocol = 'carton'
    root_marker = ''
    cachable = False        # a file of that name may be another carton by now

    def __init__(self, fo='', target_protocol=None, target_options=None, **options):
        base = {name: options.pop(name) for name in _BASE.intersection(options)}
        super().__init__(**base)
        if not fo:
            raise ValueError("a carton is needed: fo='m.carton', or carton://PATH::m.carton")
        fo = os.fsdecode(fo)
        fo = fo[len('file://'):] if fo.startswith('file://') else fo
        if target_protocol not in (None, 'file', 'local', 'http', 'https', 's3', 'hf', 'ms', 'oci') or \
                set(target_options or ()) - {'protocol', 'fo', 'target_protocol'}:
            raise ValueError(f'libcarton fetches cartons by itself, without {target_protocol} of fsspec or its options')
        if '://' not in fo and target_protocol not in (None, 'file', 'local'):
            fo = f'{target_protocol}://{fo}'
        self.fo, self.carton = fo, carton.open(fo, **options)

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        return super()._strip_protocol(path).strip('/')

    def close(self):
        self.carton.close()

    @staticmethod
    def _entry(stat, path):
        # fsspec has no word for a symlink that is listed: it is its file, as info() says
        return {'name': path, 'size': None if stat.kind == 'directory' else stat.size, 'mtime': stat.mtime,
                'type': 'directory' if stat.kind == 'directory' else 'file', 'executable': stat.executable}

    def info(self, path, **kwargs):
        _of_a_file(kwargs)
        path = self._strip_protocol(path)
        return self._entry(self.carton.stat(path), path)

    def ls(self, path, detail=True, **kwargs):
        _of_a_file(kwargs)
        path = self._strip_protocol(path)
        top = self.info(path)
        if top['type'] != 'directory':
            return [top] if detail else [path]
        found = []
        for stat in self.carton.scandir(path):
            name = f'{path}/{stat.name}' if path else stat.name
            found.append(self.info(name) if stat.kind == 'symlink' else self._entry(stat, name))
        return found if detail else [entry['name'] for entry in found]

    def created(self, path):
        return self.modified(path)

    def modified(self, path):
        import datetime
        return datetime.datetime.fromtimestamp(self.info(path)['mtime'], datetime.timezone.utc)

    def _open(self, path, mode='rb', block_size=None, autocommit=True, cache_options=None, **kwargs):
        _of_a_file(kwargs)
        if mode != 'rb':
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        f = self.carton.open(self._strip_protocol(path), 'rb')
        f.size = f.raw.size
        return f

    def cat_file(self, path, start=None, end=None, **kwargs):
        _of_a_file(kwargs)
        with self.carton.file(self._strip_protocol(path)) as f:
            start, end, _ = slice(start, end).indices(f.size)
            f.seek(start)
            return f.read(max(end - start, 0))
