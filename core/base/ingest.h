/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a stream to its end, and hashes and tags its bytes (hasher.h).
 *
 * A stream of more than a few blocks is decoded on the calling thread and hashed on a second one,
 * since both take about the same time; unless the caller has other work for all processors.
 *
 * Threads: calls share no state.
 */
#ifndef CARTON_BASE_INGEST_H
#define CARTON_BASE_INGEST_H

#include <stdbool.h>

#include "base/cancel.h"
#include "base/hasher.h"
#include "base/source.h"

struct ingest {
	struct stream *in;	     /* read to its end */
	uint64_t size;		     /* its length; UINT64_MAX: not known */
	uint64_t max;		     /* if not known: the most it may have */
	const struct tagger *tagger; /* makes tags; NULL: none */
	bool parts;		     /* one for each TAG_PART bytes, not TAG_BLOCK */
	bool hash;		     /* false: the sha256 stays all zero */
	uint64_t states;	     /* if it hashes: as hasher_keep_states(); 0: keeps none */
	bool alone;		     /* no second thread: other calls keep all processors busy */
	struct cancel *cancel;	     /* when it fires, -ECANCELED; may be NULL */
	void *ctx;
	void (*progress)(void *ctx, uint64_t bytes); /* called with each block's size; or NULL */
	/*
	 * Gets each block before it is verified, from whichever thread has time: in any order, on
	 * two threads at once. NULL: no observer.
	 */
	void (*observe)(void *ctx, uint64_t off, const void *data, size_t n);
};

/*
 * 0; -EBADMSG if the length is not `size`; -EFBIG over `max`; -ECANCELED; -ENOMEM; or the stream's
 * error.
 */
int ingest_run(const struct ingest *job, struct ingested *ret);

/*
 * Several streams on the calling thread, up to HASHERS of them at once: their blocks are hashed
 * together (hasher_hash_several()), each stream by its own hasher. None waits for another: one that
 * ends makes room for the next.
 */
struct ingest_queue {
	void *ctx;
	/* Returns the next stream, which has the number `i` until done(). False: none is left. */
	bool (*next)(void *ctx, size_t i, struct ingest *ret);
	/* Stream `i` has ended: `r` as of ingest_run(); `found` is NULL on failure. */
	void (*done)(void *ctx, size_t i, int r, struct ingested *found);
};

void ingest_several(const struct ingest_queue *q);

/*
 * The `alone` of a stream of `size` bytes, one of several that `threads` threads take in order:
 * true if the streams behind it, of `behind` bytes in all, keep each other thread busy for as long.
 */
static inline bool ingest_crowded(uint64_t size, uint64_t behind, unsigned threads)
{
	return threads > 1 && size <= behind / (threads - 1);
}

#endif
