# SPDX-License-Identifier: Apache-2.0
"""
What somebody can put into a cache without its key, byte by byte: objects, notes as versions before 0.3 made them, and
seals with a key that lies in the cache.
"""
import ctypes
import hashlib
import hmac
import os
import struct

BLOCK = 32 << 10    # bytes of one tag
RUNNER = '\n[runner]\nrunner_name = "noop"\nrequired_framework_version = "*"\nrunner_compat_version = 1\n'


def place(cache, data):
    """Puts the bytes there as an object, under their name. Its sha256."""
    name = hashlib.sha256(data).hexdigest()
    path = cache.path / 'v1/objects' / name[:2] / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o400)
    return name


def old_note(cache, text, said):
    """The note under a name, for all sources."""
    path = cache.path / 'v1/notes' / hashlib.sha256(text.encode()).hexdigest()
    path.write_text(said)


def hub_note(server, name, revision):
    """The name of the note of a repository."""
    return f'hub 1 {server} models {name} {revision}{RUNNER}'


def poly1305(key, data):
    r, s = (int.from_bytes(key[i:i + 16], 'little') for i in (0, 16))
    r &= 0x0ffffffc0ffffffc0ffffffc0fffffff
    a = 0
    for i in range(0, len(data), 16):
        a = (a + int.from_bytes(data[i:i + 16] + b'\1', 'little')) * r % ((1 << 130) - 5)
    return ((a + s) % (1 << 128)).to_bytes(16, 'little')


def aes_256_gcm(key, nonce, header, data):
    """(encrypted, mac), by OpenSSL."""
    lib = ctypes.CDLL('libcrypto.so.3')
    for f in ('EVP_CIPHER_CTX_new', 'EVP_aes_256_gcm'):
        getattr(lib, f).restype = ctypes.c_void_p
    ctx, out, mac, n = ctypes.c_void_p(lib.EVP_CIPHER_CTX_new()), ctypes.create_string_buffer(len(data)), \
        ctypes.create_string_buffer(16), ctypes.c_int()
    try:
        assert lib.EVP_EncryptInit_ex(ctx, ctypes.c_void_p(lib.EVP_aes_256_gcm()), None, key, nonce) == 1
        assert lib.EVP_EncryptUpdate(ctx, None, ctypes.byref(n), header, len(header)) == 1
        assert lib.EVP_EncryptUpdate(ctx, out, ctypes.byref(n), data, len(data)) == 1
        assert lib.EVP_EncryptFinal_ex(ctx, None, ctypes.byref(n)) == 1
        assert lib.EVP_CIPHER_CTX_ctrl(ctx, 0x10, 16, mac) == 1     # EVP_CTRL_AEAD_GET_TAG
    finally:
        lib.EVP_CIPHER_CTX_free(ctx)
    return out.raw, mac.raw


def derive(key, purpose):
    return hmac.digest(key, purpose.encode(), 'sha256')


def key_of_path(key, path):
    """The key of a carton at a path, without pins: it is derived from the user's, and its daemon has it."""
    path = os.path.realpath(path)
    return derive(key, f'cartonfs source 1\npath {len(path)}:{path}\n')


def seal_name(secret, sha256):
    return hmac.digest(derive(secret, 'names of seals'), bytes.fromhex(sha256), 'sha256').hex()


def seal(secret, sha256, data, version):
    """The seal which says that these bytes were verified as the object of that name."""
    header = struct.pack('<16s32sQQ', b'cartonfs seal %d' % version, bytes.fromhex(sha256), len(data), BLOCK)
    key, nonce = derive(secret, 'tags'), os.urandom(12)
    tags = b''.join(poly1305(key, data[i:i + BLOCK]) for i in range(0, len(data), BLOCK))
    tags, mac = aes_256_gcm(derive(secret, 'seals'), nonce, header, tags)
    text = header + nonce + mac + tags
    return text if version == 1 else text + hashlib.sha256(text).digest()


def put_seals(cache, secret, sha256, data):
    """A key in the cache, and seals to fit, by all names that this key gives."""
    seals = cache.path / 'v1/seals'
    (seals / 'secret').write_bytes(secret)
    (seals / 'secret').chmod(0o600)
    (seals / sha256).write_bytes(seal(secret, sha256, data, 1))
    (seals / seal_name(secret, sha256)).write_bytes(seal(secret, sha256, data, 2))
