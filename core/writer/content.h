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
#include <stdbool.h>

#include "archive/encode.h"
#include "writer/pack.h"

struct content {
	struct pack_job *job;
	struct pack_item *item;
	_Atomic uint64_t *done;
	void (*tick)(void *ctx); /* after each block; or NULL */
	void *ctx;
};

/* Stores it as it is: in item->data, of zip.size bytes, or if that is NULL in its place. */
int content_store(const struct content *c);

/*
 * The same of several, by one thread, which hashes up to HASHERS of them together
 * (ingest_several()). None waits for another: `next` is asked again after each block. False: there
 * is none now. `done` gets the result of content_store().
 */
struct content_queue {
	void *ctx;
	bool (*next)(void *ctx, struct content *ret);
	void (*done)(void *ctx, const struct content *c, int r);
};

void content_store_several(const struct content_queue *queue);

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
