/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches chunks of an object into its file, from the first place of its plan that has the right
 * bytes. What is right of them is kept, whatever the rest is. A URL that gave other bytes is not
 * asked again, nor are the mirrors that were asked in vain.
 *
 * Threads: a fetch belongs to its starter until it is started, then to one thread at a time.
 */
#ifndef CARTON_OBJECT_CHUNK_FETCH_H
#define CARTON_OBJECT_CHUNK_FETCH_H

#include <pthread.h>
#include <stdatomic.h>

#include "object/chunked.h"
#include "object/get.h"

/* An object of which chunks are fetched. Embedded in its owner, and outlives the fetches. */
struct chunk_places {
	/* constant */
	struct plan *plan;
	const struct chunks_file *file;
	struct chunked *chunks;
	struct dest *dest;	    /* where they go */
	struct chunked_bytes bytes; /* the same file */

	atomic_bool logged; /* that the carton has other bytes */
	/* the owner's, too; taken before the store's; guards first and end of fetches */
	pthread_mutex_t lock;
};

/* Embedded in what starts it. */
struct chunk_fetch {
	/*
	 * Chunks [first, end), which the starter has claimed; changed with the lock. When only one
	 * is still wanted, the fetch releases the others; those that are left are released by the
	 * starter, after the end.
	 */
	uint64_t first, end;
	struct chunk_places *places;
	struct waits *waits; /* of those who wait for it */
	/*
	 * All chunks of the object have been verified. 0, or -errno, with which the fetch fails.
	 * Any thread.
	 */
	int (*complete)(struct chunk_fetch *f);
	/*
	 * The end, on any thread: the chunks that are left are verified (0), or as done() of struct
	 * get.
	 */
	void (*done)(struct chunk_fetch *f, int result);

	/* its own; all zero at first */
	struct get get;
	uint64_t bad; /* the first chunk with other bytes of what came last */
};

/* Where the chunks are in the object, and how many bytes they have. */
uint64_t chunk_fetch_off(const struct chunk_fetch *f);
uint64_t chunk_fetch_bytes(const struct chunk_fetch *f);

/* 0; or as for done(), which then is not called. May be started again after its end. */
int chunk_fetch_start(struct chunk_fetch *f);

#endif
