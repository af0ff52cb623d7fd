/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What chunked.c and chunked_tags.c know of the chunks of a file. Each chunk that has the tags of a
 * seal has its bit, but `left` counts it until the whole is hashed: this mount has not read it.
 */
#ifndef CARTON_CONTENT_CHUNKED_STATE_H
#define CARTON_CONTENT_CHUNKED_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "content/chunk_read.h"

/* chunk i has lock i % STRIPES: of two readers of a chunk, one waits while the other hashes it */
#define STRIPES 16

struct chunked {
	const struct chunk_index *index;
	const struct chunks_file *file;
	struct chunked_bytes bytes;
	const char *name;
	uint64_t n_chunks;
	const struct chunk_filler *filler; /* NULL: all are in the file */
	void *filler_ctx;
	_Atomic uint64_t left;	       /* chunks that are not verified, */
	_Atomic uint64_t sealed;       /* and these, whose tags are of an earlier mount's seal */
	_Atomic uint64_t doubts;       /* how often a chunk was found changed: chunked_doubt() */
	_Atomic uint64_t kept;	       /* chunks whose tags chunked_new_tags() has given */
	atomic_bool told;	       /* chunked_completed() has returned true */
	atomic_bool failed;	       /* a chunk had other bytes; logged */
	atomic_bool bad;	       /* the whole file has another hash */
	atomic_bool by_whole;	       /* a chunk is verified that the index did not vouch for */
	atomic_bool refused;	       /* there is no memory for a chunk; logged */
	_Atomic uint64_t counted;      /* of the budget, as tables; */
	_Atomic uint64_t charged;      /* and what is not refused */
	pthread_mutex_t lock[STRIPES]; /* of each chunk, guards its tags until its bit is set */
	struct chunk_slots slots;
	atomic_uchar *claimed;	 /* as `verified`, behind it; set under the chunk's lock; */
	atomic_uchar *doubted;	 /* and behind that, likewise: it was, once */
	atomic_uchar verified[]; /* a bit for each chunk: it has its tags */
};

static inline bool chunk_bit(const atomic_uchar *bits, uint64_t i)
{
	return atomic_load_explicit(&bits[i / 8], memory_order_acquire) >> (i % 8) & 1;
}

/* Its lock is held, and it is not verified yet. 1: it was the last one. */
static inline int chunked_set_verified(struct chunked *c, uint64_t i)
{
	atomic_fetch_or_explicit(&c->verified[i / 8], (unsigned char)(1 << (i % 8)),
				 memory_order_release);
	return atomic_fetch_sub(&c->left, 1) == 1;
}

#endif
