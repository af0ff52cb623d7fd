/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of string tensors, `data = ["a", "b", …]`: measures them, and converts them to Triton's
 * BYTES or to numpy's fixed-width strings.
 *
 * Works on a stream: memory is one string and one output buffer. The file has exactly one key,
 * `data`, with the elements in C order.
 */
#ifndef CARTON_TENSOR_STRINGS_H
#define CARTON_TENSOR_STRINGS_H

#include <stdbool.h>

#include "base/util.h"
#include "toml/toml.h"

struct strings_size {
	uint64_t count;	   /* elements */
	uint64_t bytes;	   /* of the BYTES form */
	uint64_t width;	   /* code points of the longest element */
	bool trailing_nul; /* some element ends with U+0000, which numpy drops when reading */
};

/*
 * Counts and measures the strings of a file. Returns 0; -EBADMSG if it is not TOML, has another
 * key, no data, or an element that is not a string; -EFBIG over a limit of the TOML parser;
 * -ENOMEM; or the error of `read`. The first two set the reason, which may be NULL.
 */
int strings_measure(toml_read_fn *read, void *ctx, struct strings_size *ret, struct reason *reason);

/* Takes the next bytes of the output. Non-zero stops strings_emit(), which returns it. */
typedef int strings_write_fn(void *ctx, const void *data, size_t n);

/*
 * Where strings go, and in which form.
 *  width 0	Triton's BYTES: for each its length, u32 little-endian, and its UTF-8
 *  else	numpy's "<U{width}": code points, u32 little-endian, padded with zeros. At least
 *		those of the longest element (else -EBADMSG), and 1 if all are empty, as in numpy
 */
struct strings_output {
	uint64_t count; /* elements; -EBADMSG if there are more or fewer */
	uint64_t width;
	strings_write_fn *write;
	void *ctx;
};

/*
 * Converts the strings of a file and writes them in pieces of up to 64 KiB. Returns as
 * strings_measure(), or the error of `write`. Discard the output after a failure.
 */
int strings_emit(toml_read_fn *read, void *ctx, const struct strings_output *out,
		 struct reason *reason);

#endif
