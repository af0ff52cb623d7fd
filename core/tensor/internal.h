/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by safetensors.c (the parser), safetensors_text.c (its JSON) and safetensors_check.c. */
#ifndef CARTON_TENSOR_INTERNAL_H
#define CARTON_TENSOR_INTERNAL_H

#include "base/json.h"
#include "tensor/safetensors.h"

/* A tensor in a message. */
#define TENSOR_FMT "tensor '%.*s'"
#define TENSOR_ARG(i) utf8_quoted((i)->name, (i)->name_len), (i)->name

struct header_key {
	const char *text;
	size_t len;
};

/*
 * The JSON text of a header, and the keys of the objects that are being read: they are kept, so
 * that duplicates are found. Each int is 0 or -errno, with the reason set where a fault is the
 * file's.
 */
struct header {
	const struct safetensors_file *file;
	struct reason *reason;
	uint64_t off, end; /* of the text that is not read yet */
	struct json json;
	struct header_key *keys; /* a stack: keys of the open objects that are not tensor names */
	size_t n_keys, cap_keys;
	size_t n_other_keys; /* all keys so far that are not tensor names */
	uint64_t keys_taken; /* of the budget, for `keys` */
};

/*
 * `file`, `reason` and `end` are set, the rest is zero. `text` has room for the whole header, so it
 * never moves.
 */
void header_begin(struct header *h, struct buf *text);
void header_end(struct header *h);

int header_next(struct header *h, enum json_event *ret);

/* Is the current string `s`? */
bool header_text_is(const struct header *h, const char *s);

/* Keeps the current key; or one that is not a tensor's name, for header_end_object(). */
int header_keep_key(struct header *h, struct header_key *ret);
int header_push_key(struct header *h);

/* At the end of an object, whose keys are those from `first` on: refuses duplicates. */
int header_end_object(struct header *h, size_t first);

/* Skips the value of a key that the format does not know. JSON_MAX_DEPTH bounds the recursion. */
int header_skip(struct header *h);

/* Sets the reason for a duplicate key. Returns -EBADMSG. */
int safetensors_duplicate(const char *key, size_t n, struct reason *reason);

/*
 * Checks that dtype, shape and the two data_offsets agree, and sets what the tensor's bytes are. 0,
 * or -EBADMSG with the reason set.
 */
int safetensors_check_tensor(struct tensor_info *i, const uint64_t *shape,
			     const uint64_t offsets[2], struct reason *reason);

/*
 * Checks all tensors together: no name twice, and their data covers the `data` bytes without hole
 * or overlap. 0; -EBADMSG with the reason set; -ENOMEM.
 */
int safetensors_check(const struct safetensors *s, uint64_t data, struct reason *reason);

#endif
