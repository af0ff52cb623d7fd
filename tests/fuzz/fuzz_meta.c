/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as carton.toml: what is kept is text without NULs, complete where it is counted. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/meta.h"
#include "base/util.h"

#include "fuzz.h"

static void check_text(const char *s)
{
	CHECK(!s || utf8_valid(s, strlen(s)));
}

static void check_tensors(const struct meta_tensor *t, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		check_text(t[i].name);
		check_text(t[i].dtype);
		check_text(t[i].description);
		check_text(t[i].internal_name);
		if (t[i].shape) {
			size_t len = strlen(t[i].shape);

			check_text(t[i].shape);
			CHECK(len >= 2 && (t[i].shape[0] == '"' || t[i].shape[0] == '['));
			CHECK(t[i].shape[len - 1] == (t[i].shape[0] == '"' ? '"' : ']'));
		}
	}
}

static void check_values(const struct meta_value *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		CHECK(v[i].name && v[i].reference);
		check_text(v[i].name);
		check_text(v[i].reference);
	}
}

static void check_cases(const struct meta_case *c, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		check_text(c[i].name);
		check_text(c[i].description);
		CHECK(c[i].has_inputs || !c[i].n_inputs);
		CHECK(c[i].has_outputs || !c[i].n_outputs);
		check_values(c[i].inputs, c[i].n_inputs);
		check_values(c[i].outputs, c[i].n_outputs);
	}
}

/* Returns how many options are below `o`. */
static size_t check_option(const struct meta_option *o, size_t depth)
{
	size_t n = 0, all = 0;

	CHECK(depth < 2 * TOML_MAX_KEY_PARTS + TOML_MAX_DEPTH);
	if (o->type < TOML_TABLE) {
		CHECK(o->value && !o->first);
		check_text(o->value);
		return 0;
	}
	for (const struct meta_option *c = o->first; c; c = c->next, n++) {
		CHECK((o->type == TOML_TABLE) == (c->name != NULL));
		all += 1 + check_option(c, depth + 1);
	}
	CHECK(n == o->n);
	return all;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct meta *m;
	int r = meta_parse((const char *)data, n, NULL, &m);

	CHECK(r == 0 || r == -EBADMSG || r == -EFBIG);
	if (r < 0)
		return 0;
	check_text(m->model_name);
	check_text(m->license);
	check_text(m->runner_name);
	check_tensors(m->inputs, m->n_inputs);
	check_tensors(m->outputs, m->n_outputs);
	check_cases(m->self_tests, m->n_self_tests);
	check_cases(m->examples, m->n_examples);
	for (size_t i = 0; i < m->n_platforms; i++) {
		CHECK(m->platforms[i]);
		check_text(m->platforms[i]);
	}
	CHECK(check_option(&m->options, 0) == m->n_options);
	CHECK(m->n_problems <= MAX_REPORTED);
	for (size_t i = 0; i < m->n_problems; i++)
		CHECK(*m->problems[i].text);
	meta_free(m);
	return 0;
}
