/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the content of one item, computes its crc and sha256, and writes it where it belongs. Each
 * function returns 0 or -errno, logged. `done` counts the bytes that were read.
 *
 * Threads: calls for different items share nothing but `done`.
 */
#ifndef CARTON_WRITER_CONTENT_H
#define CARTON_WRITER_CONTENT_H

#include <stdatomic.h>

#include "writer/pack.h"

struct content {
	const struct pack_job *job;
	struct pack_item *item;
	_Atomic uint64_t *done;
	void (*tick)(void *ctx); /* after each block; or NULL */
	void *ctx;
};

/* Into memory, item->zip.size bytes. */
int content_load(const struct content *c, void *ret_data);

/* To its place, Stored. */
int content_store(const struct content *c);

/* To its place, through `e`; sets zip.stored. */
int content_encode(const struct content *c, struct encoder *e);

/* Nowhere: only the hashes are wanted. */
int content_digest(const struct content *c);

/* The bytes of the entry as they are, which are verified when the carton is. */
int content_copy(const struct content *c);

/*
 * Log a failure of reading, unless that was done, or of writing. They return the -errno of the
 * caller.
 */
int content_read_error(const char *name, int r);
int content_write_error(int r);

#endif
