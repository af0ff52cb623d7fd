/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A large Stored entry of a remote carton of which only those chunks are fetched that are read, into a file of the
 * cache. That is a partial under a name of its own: one process at a time fills it, and the next mount finds what is
 * there, chunk by chunk, by its hash. When all is there and has the right hash, it becomes a cache entry.
 *
 * Where another process fills it, or there is no cache, the file is an unnamed one.
 */
#ifndef CARTON_OBJECT_PARTIAL_H
#define CARTON_OBJECT_PARTIAL_H

#include "object/internal.h"

/* The bytes of `o`, an entry that copy_is_direct(). 0, -ENOMEM, -ENOSPC, or -errno. */
int partial_open(struct object *o, const struct entry *e, const struct chunks_file *f,
		 struct bytes *ret);

#endif
