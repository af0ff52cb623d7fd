/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element types: one table with their names in each format, and the size of a shape of them. Also
 * the description of one tensor, which all formats share.
 */
#ifndef CARTON_TENSOR_DTYPE_H
#define CARTON_TENSOR_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct dtype {
	const char *name;	 /* in carton.toml and index.toml; NULL: not carton's */
	const char *safetensors; /* in a safetensors header; NULL: cannot be in one */
	const char *npy;	 /* numpy's descr; NULL: none, or it depends on the data */
	const char *triton;	 /* datatype of the v2 protocol; NULL: none */
	unsigned bits;		 /* of one element; 0: not of fixed size (string, nested) */
	unsigned order;		 /* in a safetensors file: highest first */
	const char *label;	 /* for users, if it is not carton's: spelled as carton's are */
};

/* The two carton dtypes without fixed element size, by address. */
extern const struct dtype *const dtype_string;
extern const struct dtype *const dtype_nested;

/* The dtype with that carton or safetensors name, or NULL. `n` bytes at `name`, no NUL needed. */
const struct dtype *dtype_by_name(const char *name, size_t n);
const struct dtype *dtype_by_safetensors(const char *name, size_t n);

/* Every dtype in the table, by index from 0; NULL past the last. */
const struct dtype *dtype_at(size_t i);

/* Its name for users: carton's, else one that is spelled like these. Never NULL. */
const char *dtype_label(const struct dtype *dtype);

struct object;

/* The description of a tensor. Owns nothing. */
struct tensor_info {
	const char *name; /* UTF-8, may hold NUL; NUL-terminated beyond name_len */
	const struct dtype *dtype;
	const uint64_t *shape; /* rank dimensions, outermost first; NULL when rank is 0 */
	uint64_t bytes;	       /* of a numeric tensor's data; 0 for string and nested */
	uint32_t name_len;     /* at most MAX_TENSOR_NAME */
	uint32_t rank : 31;    /* 0: a scalar */
	uint32_t whole : 1;    /* the data must be all of the object */
	uint64_t off;	       /* of numeric data: in the object, or as its format counts */
	struct object *object; /* which has the data of a numeric tensor; NULL: not known here */
};

/*
 * The number of elements of a shape. Returns 0, or -EOVERFLOW when the product of the dimensions
 * that are not 0 does not fit 64 bits: readers then disagree, depending on the order they multiply
 * in.
 */
int shape_count(const uint64_t *shape, unsigned rank, uint64_t *ret_count);

/* The number of elements of a tensor whose shape was checked. */
static inline uint64_t tensor_count(const struct tensor_info *t)
{
	uint64_t n = 1;

	shape_count(t->shape, t->rank, &n);
	return n;
}

/*
 * The bytes of a contiguous tensor: packed, with no padding between elements or rows. Returns 0,
 * -EOVERFLOW as shape_count() or when the bits do not fit, -EBADMSG when elements smaller than
 * a byte do not end on a whole byte, -EINVAL for a dtype without fixed size.
 */
int dtype_bytes(const struct dtype *dtype, const uint64_t *shape, unsigned rank,
		uint64_t *ret_bytes);

/* Orders names bytewise, a prefix first: the order of the formats that sort names. */
static inline int name_cmp(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t n = a_len < b_len ? a_len : b_len;
	int c = n ? memcmp(a, b, n) : 0;

	return c ? c : (a_len > b_len) - (a_len < b_len);
}

#endif
