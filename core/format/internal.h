/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files that implement meta.h, lowest first: memory and problems (meta_memory.c),
 * runner.opts (meta_options.c), all of carton.toml (meta.c). Functions return 0 or -ENOMEM unless
 * stated otherwise.
 */
#ifndef CARTON_FORMAT_INTERNAL_H
#define CARTON_FORMAT_INTERNAL_H

#include "format/meta.h"
#include "base/util.h"

/* Zeroed memory that is freed with the meta; NULL: out of memory. */
void *meta_alloc(struct meta *m, size_t n);
int meta_strdup(struct meta *m, const char *s, size_t n, char **ret);

/* Makes room for one more element; a replaced array is freed with the meta. */
void *meta_grow(struct meta *m, void *array, size_t n, size_t size);

/*
 * Adds a problem, unless there are MAX_REPORTED already. `line` 0: no particular line. Returns 0.
 */
int meta_problem(struct meta *m, size_t line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Appends a scalar as JSON; nan, inf and dates, which JSON lacks, as TOML. 0, -ENOMEM or -EFBIG. */
int meta_add_value(struct buf *b, const struct toml_value *v);

/* Sorts a list of inputs or outputs by name: 0 or -ENOMEM. */
int meta_sort_names(struct meta *m, const struct meta_tensor *list, size_t n,
		    struct meta_names *ret);

/* Is this path below runner.opts? */
bool meta_is_option(const struct toml_path *path);

/* Adds an option: a scalar, or an array or table (`v` is NULL), which may exist already. */
int meta_add_option(struct meta *m, const struct toml_path *path, enum toml_type type, size_t line,
		    const struct toml_value *v);

#endif
