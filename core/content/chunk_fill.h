/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fill of chunks (fill.h) of an object whose file lacks some: asks the places of the object's
 * plan, and verifies each chunk as soon as it is there. Chunks that are right are kept, whatever
 * the others are, and are not written to again. A URL that gave a wrong chunk is not asked again,
 * nor are the mirrors that were asked in vain.
 *
 * Other processes may fill the same file. A fill claims its chunks against them (claims.h), gives
 * each back once it is verified, and waits for a first chunk that another process has claimed:
 * until it is there, or is given back, or does not proceed. Then the fill verifies what is there,
 * or fetches it.
 *
 * Threads: the lock of a struct sparse guards what it says, and which chunks its fills have.
 */
#ifndef CARTON_CONTENT_CHUNK_FILL_H
#define CARTON_CONTENT_CHUNK_FILL_H

#include <pthread.h>
#include <stdatomic.h>

#include "content/ahead.h"
#include "content/chunked.h"
#include "content/fill.h"

struct sparse {
	/* constant */
	struct plan *plan;
	const struct chunks_file *file;
	struct chunked *chunks;
	struct file *dest;	    /* where they go */
	struct chunked_bytes bytes; /* the same file */

	atomic_bool logged; /* that the carton has other bytes */

	pthread_mutex_t lock; /* before the store's; guards what follows, and the chunks of fills */
	struct fill *fills;
	unsigned n_fills;
	struct ahead ahead;
	unsigned char *failed; /* a bit for each chunk: it could not be fetched, */
	int64_t failed_ms;     /* at the last time then, */
	int error;	       /* and why */
};

static inline struct object *sparse_object(const struct sparse *p)
{
	return p->plan->object;
}

/*
 * Claims chunk `i` against other processes: false: one of them has it. The second gives it back to
 * them, and the third to all.
 */
bool sparse_take(const struct sparse *p, uint64_t i);
void sparse_give(const struct sparse *p, uint64_t i);
void sparse_unclaim(const struct sparse *p, uint64_t i);

/* The ops of a fill of chunks. */
extern const struct fill_ops chunk_fill_ops;

/*
 * Begins a new fill of chunks [f->first, f->end), which are claimed; or of one that another process
 * has. It is in the list of its
 * sparse file and holds a pin of the object. It ends with fill_done().
 */
void chunk_fill_begin(struct fill *f);

/*
 * Before f->bytes, from sparse_open(), are the object's: fetches the first chunk, unless
 * something of it is there or nothing can be fetched. `done` gets 0; -EOPNOTSUPP: there may be a
 * server, but without ranges; -EBADMSG: no server has the chunk that the index says; or what the
 * network says.
 */
void chunk_fill_probe(struct fill *f, void (*done)(struct fill *f, int result));

#endif
