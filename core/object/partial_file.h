/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file that the chunks of an object go to. It is a partial of the cache under a name of its
 * own: one process at a time fills it, and the next mount finds what is there. When all is right,
 * it becomes a cache entry. Where another process fills it, or there is no cache or no room in it,
 * the file is an unnamed one.
 *
 * Embedded in its owner, and guarded by the owner's lock, which is held in make_room and publish;
 * that lock is taken before the store's.
 */
#ifndef CARTON_OBJECT_PARTIAL_FILE_H
#define CARTON_OBJECT_PARTIAL_FILE_H

#include <stdint.h>

struct cache_fill;
struct object;
struct source;

/* All zero: closed. */
struct partial_file {
	const struct object *object; /* outlives it */
	uint64_t size;
	struct cache_fill *fill; /* NULL: an unnamed file, or published */
};

/*
 * The file of `size` bytes; what is in it already may be damaged: it is hashed before use. The
 * source is the caller's, and is not closed with the rest. 0, -ENOMEM, -ENOSPC, or -errno; closed
 * in any case by partial_file_close().
 */
int partial_file_open(struct partial_file *f, const struct object *o, uint64_t size,
		      struct source **ret);

/*
 * Room for `n` bytes more, by the cache's limit; drops idle copies for it. Without room in the
 * cache the file goes on as an unnamed one, as long as the disk has some. `fd` is the source's. 0
 * or -ENOSPC.
 */
int partial_file_make_room(struct partial_file *f, int fd, uint64_t n);

/* The whole is right: others find it under its hash. Best effort. */
void partial_file_publish(struct partial_file *f);

/* What is in the cache stays for the next mount. */
void partial_file_close(struct partial_file *f);

#endif
