/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches chunks of an object into its file, from the first place that has the right bytes: mirrors by hash, then the
 * URLs of LINKS, or the carton, also at its other place. What is right of them is kept, whatever the rest is.
 *
 * Threads: a fetch belongs to its starter until it is started, then to one thread at a time.
 */
#ifndef CARTON_OBJECT_CHUNK_FETCH_H
#define CARTON_OBJECT_CHUNK_FETCH_H

#include <pthread.h>

#include "object/chunk_urls.h"
#include "object/chunked.h"

struct cancel;
struct dest;
struct entry;
struct making;

/* Where the chunks of an object are. Embedded in their owner, and outlives the fetches. */
struct chunk_places {
	/* constant; one of `entry` and `link` is NULL */
	struct object *object;
	const struct chunks_file *file;
	const struct entry *entry;
	const struct link *link;
	struct chunked *chunks;
	struct chunked_bytes bytes; /* of the file that they go to */

	pthread_mutex_t lock; /* the owner's, too; taken before the store's; guards what follows */
	struct chunk_urls urls;
	bool located;
	uint64_t data; /* where the entry's data begins in the carton, once located */
};

/* Embedded in what starts it. */
struct chunk_fetch {
	/*
	 * Chunks [first, end), which the starter has claimed; changed with the lock. When only one is still wanted, the
	 * fetch releases the others; those that are left are released by the starter, after the end.
	 */
	uint64_t first, end;
	struct chunk_places *places;
	struct cancel *cancel;
	struct making *making; /* whose progress it is */
	/* All chunks of the object have been verified. 0, or -errno, with which the fetch fails. Any thread. */
	int (*complete)(struct chunk_fetch *f);
	/*
	 * The end, on any thread. 0: the chunks that are left are verified; -EBADMSG: no place has the right bytes;
	 * -EOPNOTSUPP: none has ranges; -ENETUNREACH: offline; -ECANCELED, -ESHUTDOWN; or what the network says.
	 */
	void (*done)(struct chunk_fetch *f, int result);

	/* its own; all zero at first */
	struct dest *dest, *header; /* where the chunks go, and the entry's local header */
	char **urls;		    /* those that it asks, in their order */
	bool wrong;		    /* what came last has other bytes, */
	uint64_t bad;		    /* first in this chunk */
	bool other;		    /* the carton has been asked at its other place, too */
};

/* Where the chunks are in the object, and how many bytes they have. */
uint64_t chunk_fetch_off(const struct chunk_fetch *f);
uint64_t chunk_fetch_bytes(const struct chunk_fetch *f);

/* 0; or as for done(), which then is not called. May be started again after its end. */
int chunk_fetch_start(struct chunk_fetch *f);

#endif
