/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compresses to zstd, one frame at a time (the other direction of decode.h).
 *
 * The bytes of a frame depend on the content, the level and the version of libzstd, not on the
 * number of threads: a block is compressed by one thread; a stream in jobs of a fixed size, by any
 * number.
 *
 * Threads: an encoder is used by one thread at a time.
 */
#ifndef CARTON_ARCHIVE_ENCODE_H
#define CARTON_ARCHIVE_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENCODE_MAX_LEVEL 19
#define ENCODE_LEVEL 3 /* the default of zstd */

struct encoder;

/*
 * `threads`: that work on a stream; 0: for blocks only. 0; -ENOMEM; -EOPNOTSUPP: libzstd has none.
 */
int encoder_new(unsigned level, unsigned threads, struct encoder **ret);
void encoder_free(struct encoder *e); /* NULL-safe */

/* The most bytes that `n` bytes can take. */
uint64_t encode_bound(uint64_t n);

/* Bytes of memory that a thread of a stream takes, about. */
uint64_t encode_memory(unsigned level);

/* One frame in memory: `ret_data` has room for encode_bound(n) bytes. 0, -ENOMEM or -EIO. */
int encoder_block(struct encoder *e, const void *data, size_t n, void *ret_data, size_t *ret_n);

/* Gets the compressed bytes, in order. 0, or the -errno that feeding returns. */
typedef int encode_write_fn(void *ctx, const void *data, size_t n);

/*
 * One frame of `size` bytes in parts: begin, then feed all bytes; `last`: with these it ends. 0,
 * -ENOMEM, -EBADMSG: not `size` bytes; or what `write` returns.
 */
int encoder_begin(struct encoder *e, uint64_t size, encode_write_fn *write, void *ctx);
int encoder_feed(struct encoder *e, const void *data, size_t n, bool last);

#endif
