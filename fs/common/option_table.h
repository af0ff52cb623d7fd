/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of named options, each of which fills one field of a struct.
 *
 * carton_option_table is shared: cartonfs reads it as `-o cache_dir=DIR`, cartonctl as
 * `--cache-dir=DIR`.
 */
#ifndef FS_OPTION_TABLE_H
#define FS_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum option_kind {
	OPTION_FLAG,   /* bool; takes no value */
	OPTION_UNLESS, /* bool; true for the value off, false for on */
	OPTION_TEXT,   /* char *, malloc'ed; empty only if `expected` is NULL */
	OPTION_SIZE,   /* uint64_t: bytes, at least 1, with an optional unit */
	OPTION_COUNT,  /* unsigned: 1 to max */
	OPTION_NUMBER, /* unsigned: 0 to max */
	OPTION_LIST,   /* char **, malloc'ed, ends with NULL; each value is added */
	OPTION_OCTAL,  /* unsigned: 0 to max, in octal digits */
};

struct option_spec {
	const char *name; /* NULL ends a table */
	enum option_kind kind;
	size_t offset;	      /* of the field in the struct */
	const char *expected; /* what a value has to be, for the error text */
	unsigned max;
};

/* For struct carton_options. */
extern const struct option_spec carton_option_table[];

/* The option called by the first `n` bytes of `name`, or NULL. */
const struct option_spec *option_find(const struct option_spec *table, const char *name, size_t n);

/*
 * Sets the field of `target`, a struct of the table's kind. `value` is NULL if none was given. 0;
 * -EINVAL for an invalid value; or -ENOMEM.
 */
int option_set(const struct option_spec *spec, void *target, const char *value);

/* Frees the texts of `target`. */
void option_finish(const struct option_spec *table, void *target);

/*
 * Is `a` perhaps a typo of `b`? True if it takes at most 2 edits, fewer than half of the length of
 * `b`.
 */
bool option_similar(const char *a, const char *b);

#endif
