/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which compression an entry gets. The answer depends on content and options only, so that the same
 * input makes the same carton.
 */
#ifndef CARTON_WRITER_CHOOSE_H
#define CARTON_WRITER_CHOOSE_H

#include "archive/container.h"
#include "archive/encode.h"

enum choice {
	CHOOSE_STORE,  /* Stored */
	CHOOSE_ZSTD,   /* compressed by the writer */
	CHOOSE_COPY,   /* the stored bytes of an entry, copied from its zip file */
	CHOOSE_SHRINK, /* zstd if that makes it smaller by a twentieth, else Stored */
};

enum compression {
	COMPRESS_AUTO,
	COMPRESS_STORE,
	COMPRESS_ZSTD,
	COMPRESS_KEEP, /* entries of a zip file as they are; other files as COMPRESS_AUTO */
};

/* Is `packed` smaller than `size` by at least a twentieth? */
bool choose_shrinks(uint64_t size, uint64_t packed);

/*
 * The choice for a file of `size` bytes; `e`: the entry of a zip file that has them, or NULL.
 * `level_given`: zstd entries are compressed anew, as their level is not known.
 */
enum choice choose(enum compression how, bool level_given, uint64_t size, const struct entry *e);

/* Reads exactly `n` bytes at `off` of the content. 0 or -errno. */
typedef int choose_read_fn(void *ctx, void *ret_buf, size_t n, uint64_t off);

/*
 * Takes samples of a large file to estimate whether it shrinks. 0, -ENOMEM, -EIO, or what `read`
 * returns.
 */
int choose_by_samples(struct encoder *e, uint64_t size, choose_read_fn *read, void *ctx, bool *ret);

#endif
