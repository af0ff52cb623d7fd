/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes a stream whose length is not known before: gzip of any number of members, or zstd of any
 * number of frames. Its first bytes say which, whatever it is called.
 *
 * Threads: a stream is used by one thread at a time.
 */
#ifndef CARTON_ARCHIVE_UNPACK_H
#define CARTON_ARCHIVE_UNPACK_H

#include "base/budget.h"
#include "base/source.h"

#define UNPACK_MAGIC 4

enum unpack_coding {
	UNPACK_NONE,
	UNPACK_GZIP,
	UNPACK_ZSTD,
};

/* Which coding begins so? `n` may be less than UNPACK_MAGIC. */
enum unpack_coding unpack_coding(const void *head, size_t n);

/*
 * The decoded bytes of `in`, which is owned by the stream, also on failure; `name`, for the log,
 * outlives it. `budget` counts what the coded bytes ask for. 0, -ENOMEM, or -EFBIG over the budget.
 *
 * Reading fails with -EBADMSG for data that is damaged or cut off; -EOPNOTSUPP for a zstd frame
 * whose window is over MAX_ZSTD_WINDOW_LOG or that needs a dictionary; -EFBIG over the budget;
 * -ENOMEM; or the error of `in`. The first two are logged.
 */
int unpack_open(struct stream *in, const char *name, enum unpack_coding coding,
		struct budget *budget, struct stream **ret);

#endif
