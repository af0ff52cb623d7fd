/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes and tags bytes as they arrive. ingest.h does it for a whole stream.
 *
 * A later read compares the bytes with their tags, not with the hash. So hash and tags must be
 * computed from one buffer, which no other process can write to: if each read the file by itself, a
 * writer in between could leave tags of wrong bytes under a right hash. Therefore only this file
 * makes tags that stand for a hash, and hasher_hash() takes only bytes that were tagged (struct
 * tagged).
 *
 * Threads: a hasher belongs to one thread at a time, but hasher_hash() and hasher_tag() work on
 * different fields, so one thread may hash a buffer while another one tags the next.
 */
#ifndef CARTON_BASE_HASHER_H
#define CARTON_BASE_HASHER_H

#include <stdbool.h>

#include "base/digest.h"

/*
 * Bytes of a block, which has one tag. A read reads whole blocks to check their tags: for a random
 * one of 4 KiB, 32 KiB take a third of the time of 128; a tag takes 1/2048 of the size of an open
 * file in memory.
 */
#define TAG_BLOCK ((size_t)32 * 1024)

/* Bytes that have one tag where all of a file is read again, and not a random block of it. */
#define TAG_PART ((size_t)16 * 1024 * 1024)

/* The result. */
struct ingested {
	uint8_t sha256[SHA256_SIZE]; /* all zero when nothing was hashed */
	uint64_t size;
	uint8_t (*tags)[TAG_SIZE];	/* one for each block; the caller frees them; or NULL */
	uint8_t (*states)[SHA256_SIZE]; /* hasher_keep_states(); the caller frees them; or NULL */
};

/*
 * A buffer that was tagged, and is still to be hashed. All private: hasher_tag() makes it,
 * hasher_hash() takes it.
 */
struct tagged {
	const void *data;
	size_t n;
	uint64_t off;
};

/* All private. */
struct hasher {
	struct sha256 *sha256; /* NULL: does not hash */
	const struct tagger *tagger;
	size_t block;	 /* bytes that have one tag */
	struct tag *tag; /* of the last block, while it is not full; or NULL */
	uint8_t (*tags)[TAG_SIZE];
	size_t tag_cap;
	uint64_t tagged, hashed; /* bytes; counted also without a tagger or sha256 */
	uint64_t step;		 /* the state is kept after each so many bytes; 0: none is */
	uint8_t (*states)[SHA256_SIZE];
	size_t state_cap;
};

/*
 * Begins with `tagger` (NULL: makes no tags), which makes one for each TAG_BLOCK bytes; `hash`
 * false: the sha256 stays all zero. 0 or -ENOMEM.
 */
int hasher_begin(struct hasher *h, const struct tagger *tagger, bool hash);

/* Before the first byte: one tag for each TAG_PART bytes. */
void hasher_tag_parts(struct hasher *h);

/*
 * Before the first byte: keeps the state after each `step` bytes, a multiple of SHA256_BLOCK. In
 * place of the last one is the sha256: of n bytes, n > 0, there are (n - 1) / step + 1.
 */
void hasher_keep_states(struct hasher *h, uint64_t step);

/* Before the first byte: hashes as sha256_resume(); tags are made as from the start. */
void hasher_resume(struct hasher *h, const uint8_t state[SHA256_SIZE], uint64_t size);

/* The next `n` bytes. 0, -ENOMEM or -EIO; after a failure only hasher_abort() may be called. */
int hasher_feed(struct hasher *h, const void *data, size_t n);

#define HASHERS 3 /* at once, at most */

/* Bytes for a hasher, in a buffer of their own. */
struct hasher_part {
	struct hasher *hasher;
	const void *data;
	size_t n;
};

/* hasher_feed() of several, whose bytes are hashed together (sha256_update_many()). */
int hasher_feed_several(const struct hasher_part *list, size_t n);

/*
 * hasher_feed() in two halves, for two threads: first the buffer is tagged, then hashed, and it
 * stays as it is until both are done. Each half gets all bytes in order. As hasher_feed().
 */
int hasher_tag(struct hasher *h, const void *data, size_t n, struct tagged *ret);
int hasher_hash(struct hasher *h, const struct tagged *t);

/* hasher_hash() of several at once, each with a buffer of its own. */
struct to_hash {
	struct hasher *hasher;
	const struct tagged *tagged;
};

int hasher_hash_several(const struct to_hash *list, size_t n);

/*
 * hasher_end() ends and frees the hasher, also on failure: 0, -ENOMEM or -EIO (also: a tagged
 * buffer was not hashed). hasher_end_state() does the same, but returns the state in place of the
 * sha256; the bytes so far are a multiple of SHA256_BLOCK. hasher_abort() only frees the hasher.
 */
int hasher_end(struct hasher *h, struct ingested *ret);
int hasher_end_state(struct hasher *h, struct ingested *ret);
void hasher_abort(struct hasher *h);

#endif
