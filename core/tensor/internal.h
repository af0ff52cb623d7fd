/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the two halves of the safetensors reader: what stands in a header, piece by piece
 * (safetensors_build.c), as the JSON parser meets it (safetensors.c).
 */
#ifndef CARTON_TENSOR_INTERNAL_H
#define CARTON_TENSOR_INTERNAL_H

#include "tensor/safetensors.h"

/* A name in a message. */
#define NAME_FMT "'%.*s'"
#define NAME_ARG(i) utf8_quoted((i)->name, (i)->name_len), (i)->name

/* What the parser waits for. */
enum st_state {
	START,	      /* the object itself */
	ROOT,	      /* a name, or the end */
	METADATA,     /* the object of __metadata__ */
	METADATA_KEY, /* a key in it, or its end */
	METADATA_VALUE,
	TENSOR,	    /* the object of a tensor */
	TENSOR_KEY, /* a key in it, or its end */
	DTYPE,
	SHAPE,
	SHAPE_ITEM, /* the array; a dimension, or its end */
	OFFSETS,
	OFFSETS_ITEM, /* likewise */
	UNKNOWN,      /* the value of a key we do not know */
	DONE,
};

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

/* A key of some object, to find those that are there twice. */
struct st_key {
	size_t object;
	const char *text;
	size_t len;
};

struct st_parse {
	struct safetensors *s;
	struct safetensors_error *error;
	int r; /* why a callback stopped the parse */
	enum st_state state;
	size_t cap, cap_dims, cap_metadata;
	size_t n_dims;
	struct st_key *keys;
	size_t n_keys, cap_keys, n_other_keys;
	size_t objects; /* so far; each has its number from 1, the root is 0 */
	size_t object;	/* of the tensor or metadata we are in */
	size_t nested[MAX_SAFETENSORS_DEPTH + 1]; /* objects and arrays inside UNKNOWN */
	unsigned depth;				  /* of `nested` */
	unsigned has;				  /* of the last tensor, as is all below */
	uint64_t offsets[2];
	unsigned n_offsets;
};

/*
 * All return 1, or 0 to stop the parse, as yajl wants it; then `r` and the message are set. Strings
 * are the decoded text, not yet known to be UTF-8.
 */

/* Stops with an errno and a message. */
int st_stop(struct st_parse *p, int r, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Stops because another kind of value stands here than `state` wants. */
int st_unexpected(struct st_parse *p);

/* A key of the root, of __metadata__, of a tensor, and of anything else. */
int st_root_key(struct st_parse *p, const unsigned char *s, size_t n);
int st_metadata_key(struct st_parse *p, const unsigned char *s, size_t n);
int st_tensor_key(struct st_parse *p, const unsigned char *s, size_t n);
int st_other_key(struct st_parse *p, size_t object, const unsigned char *s, size_t n);

/* Values of __metadata__ and of a tensor's dtype and shape. */
int st_metadata_value(struct st_parse *p, const unsigned char *s, size_t n);
int st_set_dtype(struct st_parse *p, const unsigned char *s, size_t n);
int st_add_dimension(struct st_parse *p, uint64_t v);

/* Reads a JSON number that is an integer from 0 to 2^64-1 and written as one. */
bool st_parse_u64(const char *s, size_t n, uint64_t *ret);

/* The tensor's object is complete: do its parts agree? */
int st_end_tensor(struct st_parse *p);

/* The header is complete: no key twice, no hole, no overlap, no byte left of `data` bytes. */
int st_end(struct st_parse *p, uint64_t data);

#endif
