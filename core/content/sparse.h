/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A large object of which only those chunks are fetched that are read, into a file of the cache
 * (room.h): a Stored entry of a remote carton, or what LINKS names. The next mount finds what is
 * there, chunk by chunk, by its hash. When all is there and has the right hash, it becomes a cache
 * entry.
 *
 * Chunks come from the places of the object's plan (get.h). Chunks that are right are kept,
 * whatever the others are. A URL that gave a wrong chunk is not asked again, nor are the mirrors
 * that were asked in vain.
 *
 * A chunk that is fetched costs no thread: its readers wait for a fill of it, as who opens an
 * object waits for a fill of all. A fill without waiters is cancelled.
 */
#ifndef CARTON_CONTENT_SPARSE_H
#define CARTON_CONTENT_SPARSE_H

#include "content/fill.h"

/* Smaller ones are fetched whole. */
#define SPARSE_MIN (8 * MIB)

struct chunks_file;

/*
 * The bytes of the plan's object, as `file` says. The plan's entry, if it has one, is
 * plan_is_direct(). 0, -ENOMEM, -ENOSPC, or -errno.
 */
int sparse_open(struct plan *plan, const struct chunks_file *file, struct bytes *ret);

/*
 * Before f->bytes, from sparse_open(), are the object's: fetches the first chunk, unless
 * something of it is there or nothing can be fetched. `done` gets 0; -EOPNOTSUPP: there may be a
 * server, but without ranges; -EBADMSG: no server has the chunk that the index says; or what the
 * network says.
 */
void sparse_probe(struct fill *f, void (*done)(struct fill *f, int result));

#endif
