/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carton.toml (carton format v1): the model's name, its inputs and outputs, and what it needs to
 * run.
 *
 * Only spec_version decides whether a carton can be mounted; the rest is for people, runners and
 * views. Parsing therefore keeps the valid values and records a problem for each other one. A value
 * is invalid if the reference loader refuses it.
 *
 * Threads: immutable once parsed.
 */
#ifndef CARTON_FORMAT_META_H
#define CARTON_FORMAT_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/limits.h"
#include "toml/toml.h"

/* One [[input]] or [[output]]. NULL: absent. */
struct meta_tensor {
	char *name;
	char *dtype;
	char *shape;   /* as JSON: "\"*\"", "[]", "[\"batch\",3]" */
	int64_t *dims; /* if the shape is a list: sizes, -1 for a symbol */
	size_t rank;
	bool has_dims;
	char *description;
	char *internal_name;
};

/* The named inputs or outputs, sorted by name; duplicates in file order. */
struct meta_names {
	const struct meta_tensor **list;
	size_t n;
};

/* name = "@tensor_data/…" or "@misc/…" */
struct meta_value {
	char *name;
	char *reference;
};

/* A [[self_test]] (outputs: expected_out) or an [[example]] (outputs: sample_out). */
struct meta_case {
	char *name;
	char *description;
	struct meta_value *inputs, *outputs;
	size_t n_inputs, n_outputs;
	bool has_inputs, has_outputs;
	bool bad_inputs, bad_outputs; /* some value is not a reference, and is left out */
	size_t line;
};

/* A value of [runner.opts]: a scalar, or a table or array with children, in file order. */
struct meta_option {
	char *name; /* NUL-terminated, may contain NUL; NULL: element of an array */
	size_t len; /* bytes of name */
	enum toml_type type;
	char *value;			  /* of a scalar: as JSON; nan, inf and dates as TOML */
	struct meta_option *first, *last; /* children */
	struct meta_option *next;	  /* sibling */
	size_t n;			  /* number of children */
	struct meta_option *opened;	  /* children that are tables or arrays, for the parser */
	struct meta_option *next_opened;
};

struct meta {
	bool has_spec_version;
	int64_t spec_version;
	char *model_name, *short_description, *model_description, *license, *repository, *homepage;
	char **platforms;
	size_t n_platforms;
	struct meta_tensor *inputs, *outputs;
	size_t n_inputs, n_outputs;
	struct meta_names input_names, output_names;
	struct meta_case *self_tests, *examples;
	size_t n_self_tests, n_examples;
	char *runner_name, *framework_version;
	bool has_runner, has_compat_version;
	int64_t compat_version;
	struct meta_option options;	      /* [runner.opts], a table */
	size_t n_options, n_opened_options;   /* in it, at all depths; tables and arrays of them */
	struct reason problems[MAX_REPORTED]; /* may quote hostile text */
	size_t n_problems;
	unsigned not_arrays; /* bits: arrays of tables of the wrong type, for the parser */
	struct arena arena;  /* owns all of the above */
};

/* Parses carton.toml. 0; -EBADMSG if it is not TOML; -EFBIG over a limit, or `budget`
 * (NULL: none), which counts the keys and what is kept (all logged); -ENOMEM.
 */
int meta_parse(const char *text, size_t n, struct budget *budget, struct meta **ret);

/* The first input or output of that name, or NULL. */
const struct meta_tensor *meta_find(const struct meta_names *names, const char *name);

/* NULL-safe. */
void meta_free(struct meta *m);

#endif
