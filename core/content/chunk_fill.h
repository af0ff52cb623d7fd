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

#include "content/chunk_choice.h"

/* The ops of a fill of chunks, and the function that is called when a waiter has timed out. */
extern const struct fill_ops chunk_fill_ops;
void chunk_fill_expired(struct waits *waits, const struct object_wait *w);

/*
 * Begins a new fill of chunks [f->first, f->end), which are claimed; or of one chunk that another
 * process has claimed. The fill is in the list of its sparse file and holds a pin of the object. It
 * ends with fill_done().
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
