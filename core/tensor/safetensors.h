/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a safetensors file: read under all rules of the format, and written as the
 * reference serializer writes it. Tensor data is never touched here.
 *
 * The file: 8 bytes little-endian N, N bytes of JSON, then the data buffer. The reference reader
 * accepts more: duplicate keys (the last one wins), other whitespace at the end of the header, and
 * null as metadata. Both readers ignore unknown keys of a tensor.
 */
#ifndef CARTON_TENSOR_SAFETENSORS_H
#define CARTON_TENSOR_SAFETENSORS_H

#include "base/budget.h"
#include "base/util.h"
#include "tensor/dtype.h"

struct safetensors_pair {
	const char *key, *value; /* NUL-terminated beyond their lengths; may hold NUL */
	size_t key_len, value_len;
};

/* A header that has passed every check. Immutable; owns all its text. */
struct safetensors {
	struct tensor_info *list; /* in the order of the header; `off` is in the file */
	size_t n;
	struct safetensors_pair *metadata; /* in the order of the header */
	size_t n_metadata;
	uint64_t data_start; /* of the data buffer in the file: 8 + N */
	uint64_t *dims;	     /* of all shapes */
	struct buf text;     /* of all names and metadata */
	struct budget *budget;
	uint64_t taken, text_taken; /* of the budget: in all, and of that for names and metadata */
};

/* Reads exactly `n` bytes of the file at `off` (never beyond its size): 0 or -errno. */
typedef int safetensors_read_fn(void *ctx, void *ret_buf, size_t n, uint64_t off);

struct safetensors_file {
	safetensors_read_fn *read;
	void *ctx;
	uint64_t size;
	struct budget *budget; /* counts all memory; outlives what is parsed; NULL: none */
};

/*
 * Parses the header of a file. Accepted are only headers of at most 100,000,000
 * bytes that begin with '{', are one JSON object in valid UTF-8 without duplicate keys at any
 * level, followed only by spaces; whose __metadata__ is an object of strings;
 * whose tensors each have a known dtype, a shape of integers and two data_offsets that agree
 * with them, and together cover the data buffer to its last byte without hole or overlap.
 *
 * Returns 0; -EBADMSG for a broken rule, -EOPNOTSUPP for a dtype we do not know, -EFBIG over a
 * limit, each with the reason set; -EFBIG over the budget; -ENOMEM; or the error of `read`, which
 * is called for at most 64 KiB and so can cancel a long parse.
 */
int safetensors_parse(const struct safetensors_file *file, struct safetensors **ret,
		      struct reason *reason);

/* Frees names and metadata, when only dtypes, shapes, sizes and offsets are still needed. */
void safetensors_free_text(struct safetensors *s);

void safetensors_free(struct safetensors *s);

/* ---- writing ---- */

struct safetensors_item {
	const struct tensor_info *info; /* in */
	void *user;			/* in: moves with the item when they are sorted */
	uint64_t offset;		/* out: of its data from the start of the data buffer */
};

/* Can a safetensors file have this tensor? It must be numeric and not be named "__metadata__". */
bool safetensors_can_hold(const struct tensor_info *info);

/*
 * Appends to `b` the bytes that the reference serializer writes before the data of these tensors:
 * the length, then compact JSON padded with spaces to a multiple of 8. Sorts the items into the
 * order of their data (dtypes by alignment, descending, then names bytewise) and gives each its
 * offset.
 *
 * Names must be unique. Returns 0; -EINVAL if safetensors_can_hold() is false for one; -EFBIG if
 * the header is too long; -EOVERFLOW for a file of 2^63 bytes or more; -ENOMEM. On failure `b` is
 * unchanged.
 */
int safetensors_header(struct safetensors_item *items, size_t n, struct buf *b);

#endif
