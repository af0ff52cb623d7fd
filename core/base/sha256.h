/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 (FIPS 180-4) of a stream, and its states.
 *
 * A state is what the function has computed after a whole number of blocks, before any padding:
 * eight 32-bit words, big-endian. With the state after the first n bytes of a file, the rest can be
 * hashed without these n bytes.
 *
 * Threads: a hash belongs to one thread at a time.
 */
#ifndef CARTON_BASE_SHA256_H
#define CARTON_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE 32	/* bytes of a hash, and of a state */
#define SHA256_BLOCK 64 /* bytes */

/* An incremental sha256. */
struct sha256;

int sha256_new(struct sha256 **ret);				   /* 0 or -ENOMEM */
int sha256_update(struct sha256 *s, const void *data, size_t n);   /* 0 or -EIO */
int sha256_final(struct sha256 *s, uint8_t ret_hash[SHA256_SIZE]); /* 0 or -EIO */
void sha256_free(struct sha256 *s);				   /* NULL-safe */

/*
 * Begins anew behind the first `size` bytes of a message, a multiple of SHA256_BLOCK, after which
 * the state is `state`. With size 0 the state is the constant of FIPS 180-4, and `state` is not
 * read.
 */
void sha256_resume(struct sha256 *s, const uint8_t state[SHA256_SIZE], uint64_t size);

/* The state after all bytes so far, which are a multiple of SHA256_BLOCK. */
void sha256_state(const struct sha256 *s, uint8_t ret_state[SHA256_SIZE]);

/* Bytes that a hash gets. */
struct sha256_part {
	struct sha256 *s; /* in one part of a call only */
	const void *data;
	size_t n;
	struct sha256_part *next; /* private */
};

/*
 * sha256_update() of each part, and in a fraction of the time where the processor can compute
 * several at once (sha256_lanes.h): about half with two parts, less with three or more, best if
 * they are of a length. Uses up the parts. 0 or -EIO.
 */
int sha256_update_many(struct sha256_part *parts, size_t n);

/* The sha256 of bytes in memory: 0 or -EIO. */
int sha256_mem(const void *data, size_t n, uint8_t ret_hash[SHA256_SIZE]);

#endif
