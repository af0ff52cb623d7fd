/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the two halves of meta.h: all of carton.toml (meta.c), and runner.opts (meta_options.c).
 * What returns an int gives 0 or -ENOMEM, if no more is said.
 */
#ifndef CARTON_FORMAT_INTERNAL_H
#define CARTON_FORMAT_INTERNAL_H

#include "format/meta.h"
#include "toml/toml.h"
#include "base/util.h"

/* Memory that lives as long as the meta, all zero; NULL: there is none. */
void *meta_alloc(struct meta *m, size_t n);
int meta_strdup(struct meta *m, const char *s, size_t n, char **ret);

/* Room for one more in an array that grows by doubling; outgrown arrays stay in their block. */
void *meta_grow(struct meta *m, void *array, size_t n, size_t size);

/* Notes a problem, up to MAX_REPORTED of them. `line` 0: not of a line. */
int meta_problem(struct meta *m, size_t line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Keys may hold a NUL, so a comparison up to there is not enough. */
static inline bool meta_is_key(const struct toml_step *step, const char *key)
{
	return step->key && step->len == strlen(key) && memcmp(step->key, key, step->len) == 0;
}

/* Appends a scalar as JSON. 0, -ENOMEM or -EFBIG. */
int meta_value_json(struct buf *b, const struct toml_value *v);

/* Is this below runner.opts? */
bool meta_is_option(const struct toml_path *path);

/* A value there; and the end of an array or inline table there, which is an option when it is empty. */
int meta_take_option(struct meta *m, const struct toml_path *path, const struct toml_value *v);
int meta_end_option(struct meta *m, const struct toml_path *path, enum toml_type type);

#endif
