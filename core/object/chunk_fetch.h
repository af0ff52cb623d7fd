/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches chunks of an object into its file, from the first place that has the right bytes: mirrors
 * by hash, then the URLs of LINKS, or the carton, also at its other place. What is right of them is
 * kept, whatever the rest is.
 *
 * Threads: a fetch belongs to its starter until it is started, then to one thread at a time.
 */
#ifndef CARTON_OBJECT_CHUNK_FETCH_H
#define CARTON_OBJECT_CHUNK_FETCH_H

#include <pthread.h>
#include <stdatomic.h>

#include "object/chunked.h"

struct cancel;
struct dest;
struct entry;
struct link;
struct making;
struct url_state;

/*
 * Where the chunks of an object are. Embedded in their owner, and outlives the fetches. A URL that
 * gave other bytes is not asked again, nor are the mirrors that were asked in vain.
 */
struct chunk_places {
	/* constant; one of `entry` and `link` is NULL */
	struct object *object;
	const struct chunks_file *file;
	const struct entry *entry;
	const struct link *link;
	struct chunked *chunks;
	struct chunked_bytes bytes; /* of the file that they go to */
	char **urls;		    /* of `n_by_hash` mirrors, then of LINKS */
	size_t n_urls, n_by_hash;

	struct url_state *states; /* of these URLs; any thread */
	atomic_size_t first;	  /* of those of LINKS, the one that worked last */
	atomic_bool logged;	  /* that the carton has other bytes */

	pthread_mutex_t lock; /* the owner's, too; taken before the store's; guards what follows */
	bool located;
	uint64_t data; /* where the entry's data begins in the carton, once located */
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
	struct cancel *cancel;
	struct making *making; /* whose progress it is */
	/*
	 * All chunks of the object have been verified. 0, or -errno, with which the fetch fails.
	 * Any thread.
	 */
	int (*complete)(struct chunk_fetch *f);
	/*
	 * The end, on any thread. 0: the chunks that are left are verified; -EBADMSG: no place has
	 * the right bytes; -EOPNOTSUPP: none has ranges; -ENETUNREACH: offline; -ECANCELED,
	 * -ESHUTDOWN; or what the network says.
	 */
	void (*done)(struct chunk_fetch *f, int result);

	/* its own; all zero at first */
	struct dest *dest, *header; /* where the chunks go, and the entry's local header */
	bool wrong;		    /* what came last has other bytes, */
	uint64_t bad;		    /* first in this chunk */
	bool other;		    /* the carton has been asked at its other place, too */
};

/* Finds the URLs of p->object. 0 or -ENOMEM; freed in any case by chunk_places_finish(). */
int chunk_places_find(struct chunk_places *p);
void chunk_places_finish(struct chunk_places *p); /* NULL members are fine */

/* Where the chunks are in the object, and how many bytes they have. */
uint64_t chunk_fetch_off(const struct chunk_fetch *f);
uint64_t chunk_fetch_bytes(const struct chunk_fetch *f);

/* 0; or as for done(), which then is not called. May be started again after its end. */
int chunk_fetch_start(struct chunk_fetch *f);

#endif
