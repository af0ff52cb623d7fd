/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_data/index.toml: which tensors there are, their types and shapes, and in which files.
 *
 * A tensor with an error stays in the list, and `problem` says what is wrong with it. Only text
 * that is not TOML, or over a limit, is refused as a whole. Unknown keys are ignored.
 *
 * Reads no tensor data: index_toml_check_files() gets file sizes from a callback. The elements of
 * string tensors are counted by strings_measure(); the caller records a wrong count with
 * index_toml_fault().
 *
 * Memory: 64 bytes per tensor, and its name, file, shape and inner names in an arena. Threads: one
 * at a time; immutable once checked.
 */
#ifndef CARTON_TENSOR_INDEX_TOML_H
#define CARTON_TENSOR_INDEX_TOML_H

#include "base/arena.h"
#include "tensor/dtype.h"
#include "toml/toml.h"

struct tensor;

/* One name of `inner`. */
struct tensor_ref {
	const char *name;      /* NUL-terminated beyond len */
	struct tensor *tensor; /* as index_toml_find() */
	uint32_t len;
};

struct tensor {
	struct tensor_info info; /* valid if there is no problem, except the name (NULL: none) */
	union {
		const char *file;	  /* not nested: relative to tensor_data/; NULL: none */
		struct tensor_ref *inner; /* nested: n_inner of them, in order */
	};
	const char *problem; /* NULL: none found. One sentence, may hold hostile text */
	uint32_t n_inner;    /* 0 if not nested */
	uint32_t line;	     /* where it begins in index.toml */
};

struct index_toml {
	struct tensor *list; /* in the order of the file */
	size_t n;
	uint32_t *by_name; /* places in `list` of those with a name, sorted bytewise */
	size_t n_by_name;
	const char *problem; /* of the whole index, such as "tensor is not an array" */
	size_t problem_line;
	struct arena arena; /* owns what tensors and problems point to */
	uint64_t taken;	    /* counted in the budget of the arena, for the arrays */
};

/*
 * Parses index.toml and checks each tensor by itself: name, dtype, shape, file and inner have the
 * right types; the dtype is known; at most MAX_TENSOR_RANK dimensions, none negative, and a size
 * that fits 64 bits; a file, unless nested, with a path that stays inside tensor_data, ending in
 * ".toml" for strings; inner, for nested ones only, naming other tensors that are not nested; a
 * name that no other tensor has.
 *
 * Returns 0; -EBADMSG if it is not TOML; -EFBIG over MAX_TENSORS, MAX_TENSOR_INNER or a limit of
 * the TOML parser (both with ret_error, which may be NULL), or over `budget`, which counts all
 * memory (NULL: none); -ENOMEM; or the error of `read`.
 */
int index_toml_parse(toml_read_fn *read, void *ctx, struct budget *budget, struct index_toml **ret,
		     struct reason *ret_error);

/*
 * Returns the size in bytes of a file by its path in the carton ("tensor_data/x.bin"). 0; -ENOENT:
 * not in the carton; -EISDIR: not a regular file; -EAGAIN: its size is not known yet and is not
 * checked. Any other error ends the check.
 */
typedef int index_toml_size_fn(void *ctx, const char *path, uint64_t *ret_size);

/*
 * Finds missing files, and numeric ones whose size is not shape × dtype. Can be called again.
 * Returns 0, -ENOMEM, or another error of `size`.
 */
int index_toml_check_files(struct index_toml *x, index_toml_size_fn *size, void *ctx);

/* Records a problem unless the tensor has one already. Returns 0 or -ENOMEM. */
int index_toml_fault(struct index_toml *x, struct tensor *t, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* After index_toml_fault(): a nested tensor has a problem if an inner one has. 0 or -ENOMEM. */
int index_toml_propagate(struct index_toml *x);

/* The tensor of that name, which may have a problem; NULL: there is none. */
struct tensor *index_toml_find(const struct index_toml *x, const char *name, size_t n);

/* NULL-safe. */
void index_toml_free(struct index_toml *x);

/*
 * For the parser, once all tensors are known: sorts the names, finds duplicates, links nested
 * tensors to their inner ones. Returns 0 or -ENOMEM.
 */
int index_toml_check(struct index_toml *x);

#endif
