/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three checks over bytes, and the only file that knows OpenSSL and zlib:
 *
 *  sha256	says that content is what MANIFEST lists
 *  tags	say that a chunk read again is still what was hashed: Poly1305 under a random key that
 *		never leaves this process, four times as fast as sha256
 *  crc32	guards MANIFEST, LINKS and symlinks, which no hash covers, against bit rot
 */
#ifndef CARTON_BASE_DIGEST_H
#define CARTON_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE 32
#define TAG_SIZE 16

/* A sha256 under way. */
struct sha256;

int sha256_new(struct sha256 **ret);				   /* 0 or -ENOMEM */
int sha256_update(struct sha256 *s, const void *data, size_t n);   /* 0 or -EIO */
int sha256_final(struct sha256 *s, uint8_t ret_hash[SHA256_SIZE]); /* 0 or -EIO */
void sha256_free(struct sha256 *s);

/* The sha256 of bytes in memory: 0, -ENOMEM or -EIO. */
int sha256_mem(const void *data, size_t n, uint8_t ret_hash[SHA256_SIZE]);

/* Makes tags under one key. Any number of threads may use one tagger at once. */
struct tagger;

int tagger_new(struct tagger **ret); /* a fresh random key: 0, -ENOMEM or -EIO */
void tagger_free(struct tagger *t);

/*
 * The tag of one chunk: 0, -ENOMEM or -EIO. Tags must stay secret: whoever sees them could compute the
 * key, and then change bytes without changing tags.
 */
int tagger_tag(const struct tagger *t, const void *data, size_t n, uint8_t ret_tag[TAG_SIZE]);

/* The same in parts: begin, update as often as need be, end or abort, which free it. */
struct tag;

int tag_begin(const struct tagger *t, struct tag **ret);     /* 0 or -ENOMEM */
int tag_update(struct tag *tag, const void *data, size_t n); /* 0 or -EIO */
int tag_end(struct tag *tag, uint8_t ret_tag[TAG_SIZE]);     /* 0 or -EIO */
void tag_abort(struct tag *tag);			     /* NULL-safe */

/* zip's crc32; start with 0. */
uint32_t crc32_update(uint32_t crc, const void *data, size_t n);

#endif
