/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Digests; only digest.c and sha256.c use OpenSSL for them:
 *
 *  sha256	compared with MANIFEST (sha256.h)
 *  tags	detect changes of a block since it was hashed: Poly1305 with a secret key, four
 *		times as fast as sha256
 *  boxes	tables of tags on disk: AES-256-GCM, so that nobody reads or changes them unnoticed
 *  sha1	names a file of a git repository, and is compared where that is all there is
 *  crc32	detects damage in MANIFEST, LINKS and symlinks, which no sha256 covers
 */
#ifndef CARTON_BASE_DIGEST_H
#define CARTON_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/sha256.h"

/*
 * The library context that the process uses, with OpenSSL's default provider; NULL: out of memory.
 * It is never freed: threads that have used it may end at any time.
 */
struct ossl_lib_ctx_st *digest_library(void);

#define TAG_SIZE 16
#define KEY_SIZE 32

/* HMAC-SHA256 (RFC 2104): 0, -ENOMEM or -EIO. */
int hmac_sha256(const void *key, size_t n_key, const void *data, size_t n,
		uint8_t ret_mac[SHA256_SIZE]);

/* Are the `n` bytes equal? Takes as long wherever they differ, so no MAC can be guessed by time. */
bool mac_matches(const void *a, const void *b, size_t n);

/* The key of tags. Any number of threads may use one tagger at once. */
struct tagger;

/* Makes a tagger with that key, or with a new random one if `key` is NULL. 0, -ENOMEM or -EIO. */
int tagger_new(const uint8_t key[KEY_SIZE], struct tagger **ret);
void tagger_free(struct tagger *t); /* NULL-safe */

/*
 * The tag of one block: 0, -ENOMEM or -EIO. Tags must stay secret: the key can be computed from
 * them.
 */
int tagger_tag(const struct tagger *t, const void *data, size_t n, uint8_t ret_tag[TAG_SIZE]);

/* The same in parts: begin, any number of updates, then end or abort, which free it. */
struct tag;

int tag_begin(const struct tagger *t, struct tag **ret);     /* 0 or -ENOMEM */
int tag_update(struct tag *tag, const void *data, size_t n); /* 0 or -EIO */
int tag_end(struct tag *tag, uint8_t ret_tag[TAG_SIZE]);     /* 0 or -EIO */
void tag_abort(struct tag *tag);			     /* NULL-safe */

/* ---- boxes ---- */

#define BOX_LOCK_SIZE 28 /* a nonce and a MAC */

struct box_of {
	const uint8_t *key; /* KEY_SIZE bytes */
	const void *header; /* is authenticated with the data */
	size_t n_header;
	void *data; /* is encrypted in place */
	size_t n;   /* at most INT_MAX, as n_header */
};

/* Encrypts under a new random nonce. 0, -ENOMEM or -EIO. */
int box_close(const struct box_of *box, uint8_t ret_lock[BOX_LOCK_SIZE]);

/*
 * Decrypts in place. 0; -EBADMSG: the key, the header, the data or the lock is another one;
 * -ENOMEM.
 */
int box_open(const struct box_of *box, const uint8_t lock[BOX_LOCK_SIZE]);

/* A key for one purpose, from a secret one of KEY_SIZE bytes. 0 or -EIO. */
int key_derive(const uint8_t secret[KEY_SIZE], const char *purpose, uint8_t ret_key[KEY_SIZE]);

#define SHA1_SIZE 20

/* The id that git gives a file of these bytes. 0, -ENOMEM or -EIO. */
int git_blob_id(const void *data, size_t n, uint8_t ret_id[SHA1_SIZE]);

/*
 * Makes a name for content of which only the git id is known: the sha256 of the text "git " and the
 * id in hex. So no file of a model has the name as its sha256.
 */
int git_name(const uint8_t id[SHA1_SIZE], uint8_t ret_name[SHA256_SIZE]);

/* Writes base64 of n bytes, and a NUL: 4 * ((n + 2) / 3) + 1 bytes. */
void base64_encode(const void *data, size_t n, char *ret);

/*
 * Decodes base64 in place: exactly the text that base64_encode() writes, so with padding, and
 * without spaces or other letters. Returns how many bytes it is; -EBADMSG: it is another text.
 */
ssize_t base64_decode(char *text, size_t n);

/* zip's crc32; start with 0. */
uint32_t crc32_update(uint32_t crc, const void *data, size_t n);

/* That of two pieces, one after the other; the second has `n` bytes. */
uint32_t crc32_join(uint32_t first, uint32_t second, uint64_t n);

#endif
