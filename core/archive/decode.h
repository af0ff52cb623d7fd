/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compression methods of the carton format: Stored (0), Deflate (8) and zstd (93).
 *
 * zstd is decoded by libzstd, Deflate by archive/inflate.h.
 *
 * Threads: each stream is used by one thread at a time.
 */
#ifndef CARTON_ARCHIVE_DECODE_H
#define CARTON_ARCHIVE_DECODE_H

#include <stdbool.h>

#include "base/budget.h"
#include "base/source.h"

struct entry;

enum decode_method {
	METHOD_STORED = 0,
	METHOD_DEFLATE = 8,
	METHOD_ZSTD = 93,
};

/* Is `method` one of the three? */
bool decode_knows(unsigned method);

/* "stored", "deflate", "zstd", else "unknown". */
const char *decode_name(unsigned method);

/*
 * Opens a stream of the decoded bytes of `in`, which is owned by it from now on, also on failure.
 * Decodes by the method of the entry `e`: its `stored` bytes must decode to exactly `size` bytes.
 * The entry's name must outlive the stream. `budget` counts the window of zstd; NULL: none.
 *
 * Reading fails with -EBADMSG for data that is damaged, too short, too long or followed by other
 * bytes; -EOPNOTSUPP for a zstd frame whose window is over MAX_ZSTD_WINDOW_LOG or that needs a
 * dictionary; -EFBIG for a window over the budget; -ENOMEM; or the error of `in`. All but the last
 * two are logged.
 */
int decode_open(struct stream *in, const struct entry *e, struct budget *budget,
		struct stream **ret);

/*
 * Decodes a small entry from memory to memory, in one step. 0 if its `stored` bytes gave exactly
 * `size` bytes; else -EAGAIN, unlogged: decode_open() shows why. `ret` may have been written to.
 */
int decode_memory(const void *in, size_t stored, unsigned method, void *ret, size_t size);

#endif
