/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the content of one item, computes its crc and sha256, and writes it to its place. Each
 * function returns 0 or -errno, logged. `done` counts the bytes that were read.
 *
 * Threads: calls for different items share nothing but `done`.
 */
#ifndef CARTON_WRITER_CONTENT_H
#define CARTON_WRITER_CONTENT_H

#include <stdatomic.h>

#include "archive/encode.h"
#include "writer/pack.h"

struct content {
	struct pack_job *job;
	struct pack_item *item;
	_Atomic uint64_t *done;
	void (*tick)(void *ctx); /* after each block; or NULL */
	void *ctx;
};

/* Reads item->zip.size bytes into memory. */
int content_load(const struct content *c, void *ret_data);

/* Writes it to its place, Stored. */
int content_store(const struct content *c);

/* Compresses it with `e` to its place; sets zip.stored. */
int content_encode(const struct content *c, struct encoder *e);

/* Only computes the hashes. */
int content_digest(const struct content *c);

/* Copies the stored bytes of the entry, which are verified later with all of the new carton. */
int content_copy(const struct content *c);

/*
 * Log a failure of reading, unless it was logged, or the first of writing. Return the -errno for
 * the caller.
 */
int content_read_error(const char *name, int r);
int content_write_error(struct pack_job *job, int r);

#endif
