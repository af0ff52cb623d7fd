/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_data/index.toml: which tensors there are, what they are made of and in which files.
 *
 * A fault of one tensor is not a fault of the index: the tensor keeps its place in the list and
 * says in `problem` what is wrong with it. What is not TOML at all, or over a limit, fails as a
 * whole. Keys that the format does not know are ignored.
 *
 * This module reads no tensor data: tensors_check() asks a callback for sizes, and whether a string
 * file holds as many strings as its shape says is for strings_measure(); tensor_fault() records it.
 */
#ifndef CARTON_TENSOR_INDEX_TOML_H
#define CARTON_TENSOR_INDEX_TOML_H

#include "tensor/dtype.h"
#include "toml/toml.h"

struct tensor;

/* One name of `inner`. */
struct tensor_ref {
	char *name; /* NUL-terminated beyond len */
	size_t len;
	struct tensor *tensor; /* as tensors_find() */
};

struct tensor {
	struct tensor_info info;  /* all of it is meaningful only without a problem */
	bool named;		  /* false: no usable name; then `line` is all there is */
	char *file;		  /* relative to tensor_data/, NUL-terminated; NULL: none */
	struct tensor_ref *inner; /* of a nested tensor, in order */
	size_t n_inner;
	size_t line;   /* of index.toml, where it begins */
	char *problem; /* NULL: none found. One sentence, may hold hostile text */
};

/* Immutable once parsed and checked. Owns all that its tensors point to. */
struct tensors {
	struct tensor *list; /* in the order of the file */
	size_t n;
	struct tensor **by_name; /* the named ones, sorted bytewise */
	size_t n_by_name;
	char *problem; /* of the index as a whole, e.g. `tensor` is no array */
	size_t problem_line;
};

/*
 * Parses index.toml and judges each tensor by what stands there alone: name, dtype, shape, file and
 * inner of the right types; dtype known; at most MAX_TENSOR_RANK dimensions, none negative, and
 * a size that fits 64 bits; a file, for all but nested ones, with a path that stays inside
 * tensor_data, ending in ".toml" for strings; inner, for nested ones only, naming other
 * tensors that are not nested; no name used twice (all of that name are at fault).
 *
 * Returns 0 and the list; -EBADMSG when it is not TOML (ret_error says where); -EFBIG over
 * MAX_TENSORS, MAX_TENSOR_INNER or a limit of the TOML parser (likewise); -ENOMEM; or what `read` gave.
 * `ret_error` may be NULL.
 */
int tensors_parse(toml_read_fn *read, void *ctx, struct tensors **ret,
		  struct toml_error *ret_error);
int tensors_parse_mem(const char *text, size_t n, struct tensors **ret,
		      struct toml_error *ret_error);

/*
 * Tells the size in bytes of a file of the carton, by its path from the root ("tensor_data/x.bin").
 * 0 and the size; -ENOENT: not in the carton; -EISDIR: not a regular file; -EAGAIN: it is there,
 * its size is not known yet (and is not checked now). Anything else ends the check.
 */
typedef int tensor_size_fn(void *ctx, const char *path, uint64_t *ret_size);

/*
 * Finds the problems that show only against the carton: files that are missing, and numeric
 * ones whose size is not shape × dtype. Nested tensors take the problems of their inner ones.
 * Can be called again. Returns 0, -ENOMEM, or what `size` gave that ended it.
 */
int tensors_check(struct tensors *t, tensor_size_fn *size, void *ctx);

/* Records a problem unless there is one already. Returns 0 or -ENOMEM. */
int tensor_fault(struct tensor *tensor, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Gives nested tensors the problems of their inner ones, after tensor_fault(). 0 or -ENOMEM. */
int tensors_settle(struct tensors *t);

/* The tensor of that name, which may have a problem (as all of several have); NULL: there is none. */
struct tensor *tensors_find(const struct tensors *t, const char *name, size_t n);

void tensors_free(struct tensors *t);

/*
 * Finds the problems that show only when all tensors are read: sorts the names, faults duplicates,
 * links nested tensors to their inner ones. Once for each index. Returns 0 or -ENOMEM.
 */
int tensors_judge(struct tensors *t);

#endif
