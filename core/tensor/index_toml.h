/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_data/index.toml: which tensors there are, their types and shapes, and in which files.
 *
 * A fault of one tensor is not a fault of the index: the tensor stays in the list and its `problem` says
 * what is wrong. Text that is not TOML, or over a limit, fails as a whole. Keys that the format does not
 * know are ignored.
 *
 * Reads no tensor data: index_toml_check_files() asks a callback for sizes. Whether a file of strings has
 * as many elements as the shape says is for strings_measure(), with index_toml_fault() to record it.
 *
 * Memory: 64 bytes a tensor, and its name, file, shape and inner names in an arena. Not for several
 * threads at once, but immutable once checked.
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
	struct tensor_info
		info; /* meaningful only without a problem, but for the name (NULL: none) */
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
	const char *problem; /* of the index as a whole, e.g. `tensor` is no array */
	size_t problem_line;
	struct arena arena; /* owns what tensors and problems point to */
};

/*
 * Parses index.toml and checks each tensor by itself: name, dtype, shape, file and inner have the right
 * types; the dtype is known; at most MAX_TENSOR_RANK dimensions, none negative, and a size that fits 64
 * bits; a file, unless nested, with a path that stays inside tensor_data, ending in ".toml" for strings;
 * inner, for nested ones only, naming other tensors that are not nested; no name used twice (then all of
 * that name are at fault).
 *
 * Returns 0; -EBADMSG when it is not TOML (ret_error says where); -EFBIG over MAX_TENSORS,
 * MAX_TENSOR_INNER or a limit of the TOML parser (likewise); -ENOMEM; or what `read` gave. `ret_error`
 * may be NULL.
 */
int index_toml_parse(toml_read_fn *read, void *ctx, struct index_toml **ret,
		     struct toml_error *ret_error);
int index_toml_parse_mem(const char *text, size_t n, struct index_toml **ret,
			 struct toml_error *ret_error);

/*
 * Gives the size in bytes of a file by its path in the carton ("tensor_data/x.bin"). 0; -ENOENT: not in
 * the carton; -EISDIR: not a regular file; -EAGAIN: its size is not known yet, and not checked.
 * Anything else ends the check.
 */
typedef int index_toml_size_fn(void *ctx, const char *path, uint64_t *ret_size);

/*
 * Finds missing files, and numeric ones whose size is not shape × dtype. Can be called again. Returns 0,
 * -ENOMEM, or what `size` gave that ended it.
 */
int index_toml_check_files(struct index_toml *x, index_toml_size_fn *size, void *ctx);

/* Records a problem unless the tensor has one already. Returns 0 or -ENOMEM. */
int index_toml_fault(struct index_toml *x, struct tensor *t, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Passes problems of inner tensors on to nested ones, after index_toml_fault(). 0 or -ENOMEM. */
int index_toml_propagate(struct index_toml *x);

/* The tensor of that name, which may have a problem (as all of several have); NULL: there is none. */
struct tensor *index_toml_find(const struct index_toml *x, const char *name, size_t n);

/* NULL-safe. */
void index_toml_free(struct index_toml *x);

/*
 * For the parser, once all tensors are known: sorts the names, finds duplicates, links nested tensors
 * to their inner ones. Returns 0 or -ENOMEM.
 */
int index_toml_check(struct index_toml *x);

#endif
