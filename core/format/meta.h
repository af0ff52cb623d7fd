/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carton.toml (carton format v1): what the model is called, takes, gives and needs to run.
 *
 * Only spec_version decides whether a carton can be read; the rest is for people, for runners and
 * for views. So parsing keeps what is well-formed, notes the rest as problems, and goes on.
 */
#ifndef CARTON_FORMAT_META_H
#define CARTON_FORMAT_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One input or output. NULL: not said. */
struct meta_tensor {
	char *name;
	char *dtype;
	char *shape;   /* as JSON: "\"*\"", "[]", "[\"batch\",3]" */
	int64_t *dims; /* when the shape is a list: its sizes, -1 for a symbol */
	size_t rank;
	bool has_dims;
	char *description;
	char *internal_name;
};

/* The inputs or outputs that have a name, sorted by it; of one name the first that stands there first. */
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
	bool odd_inputs, odd_outputs; /* they hold something that is no such value */
	size_t line;
};

struct meta_option {
	char *name;  /* of runner.opts, dotted where nested */
	char *value; /* as JSON */
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
	struct meta_option *options;
	size_t n_options;
	char **problems; /* each one sentence, may hold hostile text */
	size_t n_problems;
	struct meta_block *blocks; /* what all of it lies in */
};

/*
 * Parses carton.toml. 0; -EBADMSG when it is not TOML (logged with its line); -EFBIG over a
 * limit (logged); -ENOMEM.
 */
int meta_parse(const char *text, size_t n, struct meta **ret);

/* The first input or output of that name, or NULL. */
const struct meta_tensor *meta_find(const struct meta_names *names, const char *name);

/* NULL-safe. */
void meta_free(struct meta *m);

#endif
