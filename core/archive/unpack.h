/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes a stream of unknown length: gzip with any number of members, or zstd with any number of
 * frames. The first bytes of the data tell which, not a file name or media type.
 *
 * Threads: a stream is used by one thread at a time.
 */
#ifndef CARTON_ARCHIVE_UNPACK_H
#define CARTON_ARCHIVE_UNPACK_H

#include "base/budget.h"
#include "base/source.h"

#define UNPACK_MAGIC 4 /* bytes that tell the coding */

enum unpack_coding {
	UNPACK_NONE,
	UNPACK_GZIP,
	UNPACK_ZSTD,
};

/* The coding of data that begin with `head`. `n` may be less than UNPACK_MAGIC. */
enum unpack_coding unpack_coding(const void *head, size_t n);

/*
 * Opens a stream of the decoded bytes of `in`, which it takes over, also on failure. `name`, for
 * the log, outlives it. `budget` counts the memory of the decoder. 0; -ENOMEM; -EFBIG: over budget.
 *
 * Reading fails with -EBADMSG for data that is damaged or cut off; -EOPNOTSUPP for a zstd frame
 * whose window is over MAX_ZSTD_WINDOW_LOG or that needs a dictionary; -EFBIG over the budget;
 * -ENOMEM; or the error of `in`. The first two are logged.
 */
int unpack_open(struct stream *in, const char *name, enum unpack_coding coding,
		struct budget *budget, struct stream **ret);

#endif
