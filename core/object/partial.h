/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A large object of which only those chunks are fetched that are read, into a file of the cache
 * (room.h): a Stored entry of a remote carton, or what LINKS names. The next mount finds what is
 * there, chunk by chunk, by its hash. When all is there and has the right hash, it becomes a cache
 * entry.
 *
 * Chunks come from mirrors by hash, then from the URLs of LINKS, or the carton (chunk_fetch.h). A
 * URL that gives a wrong chunk is not asked again; the other chunks that it gave are kept.
 *
 * A chunk that is fetched costs no thread: its readers are waiters, as those of an object are. A
 * fetch without waiters is cancelled.
 */
#ifndef CARTON_OBJECT_PARTIAL_H
#define CARTON_OBJECT_PARTIAL_H

#include "object/internal.h"

/* Smaller ones are fetched whole. */
#define PARTIAL_MIN (8 * MIB)

/*
 * The bytes of the plan's object, as `file` says. The plan's entry, if it has one, is
 * plan_is_direct(). 0, -ENOMEM, -ENOSPC, or -errno.
 */
int partial_open(struct plan *plan, const struct chunks_file *file, struct bytes *ret);

/*
 * Before m->bytes, from partial_open(), are the object's: has its first chunk fetched, unless
 * something of it is there or nothing can be fetched. `done` gets 0; -EOPNOTSUPP: there may be a
 * server, but without ranges; -EBADMSG: no server has the chunk that the index says; or what the
 * network says.
 */
void partial_probe(struct making *m, void (*done)(struct making *m, int result));

#endif
