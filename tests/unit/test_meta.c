/* SPDX-License-Identifier: Apache-2.0 */
/* carton.toml: what is kept, what is only a problem, and that faults cost no memory. */
#include <malloc.h>

#include "format/meta.h"
#include "zip_help.h"

static struct meta *parse(const char *text)
{
	struct meta *m = NULL;

	assert_int_equal(meta_parse(text, strlen(text), &m), 0);
	return m;
}

static bool has_problem(const struct meta *m, const char *text)
{
	for (size_t i = 0; i < m->n_problems; i++)
		if (strstr(m->problems[i], text))
			return true;
	return false;
}

static void test_full(void **state)
{
	struct meta *m = parse(
		"spec_version = 1\nmodel_name = 'm'\nshort_description = 's'\nmodel_description = '''a\nb'''\n"
		"license = 'MIT'\nrepository = 'r'\nhomepage = 'h'\n"
		"required_platforms = ['x86_64-unknown-linux-gnu', 'b']\n"
		"[[input]]\nname = 'x'\ndtype = 'float32'\nshape = ['batch', 3, '*\"']\n"
		"description = 'd'\ninternal_name = 'i'\n"
		"[[input]]\nname = 'z'\nshape = []\n"
		"[[output]]\nname = 'y'\ndtype = 'string'\nshape = '*'\n"
		"[[self_test]]\nname = 't'\ninputs = { x = '@tensor_data/x', \"a b\" = '@misc/b' }\n"
		"expected_out = { y = '@tensor_data/y' }\n"
		"[[self_test]]\n"
		"[[example]]\ndescription = 'e'\n[example.inputs]\nx = '@misc/a'\n[example.sample_out]\n"
		"[runner]\nrunner_name = 'torch'\nrequired_framework_version = '=1'\n"
		"runner_compat_version = 2\n[runner.opts]\nn = 1\nd.e = [true, 2.5]\nt = 1979-05-27\n");

	(void)state;
	assert_int_equal(m->n_problems, 0);
	assert_true(m->has_spec_version && m->spec_version == 1);
	assert_string_equal(m->model_name, "m");
	assert_string_equal(m->short_description, "s");
	assert_string_equal(m->model_description, "a\nb");
	assert_string_equal(m->license, "MIT");
	assert_string_equal(m->repository, "r");
	assert_string_equal(m->homepage, "h");
	assert_int_equal(m->n_platforms, 2);
	assert_string_equal(m->platforms[1], "b");
	assert_int_equal(m->n_inputs, 2);
	assert_string_equal(m->inputs[0].shape, "[\"batch\",3,\"*\\\"\"]");
	assert_string_equal(m->inputs[0].internal_name, "i");
	assert_string_equal(m->inputs[1].shape, "[]");
	assert_null(m->inputs[1].dtype);
	assert_int_equal(m->n_outputs, 1);
	assert_string_equal(m->outputs[0].shape, "\"*\"");
	assert_int_equal(m->n_self_tests, 2);
	assert_int_equal(m->self_tests[0].n_inputs, 2);
	assert_string_equal(m->self_tests[0].inputs[1].name, "a b");
	assert_string_equal(m->self_tests[0].inputs[1].reference, "@misc/b");
	assert_string_equal(m->self_tests[0].outputs[0].name, "y");
	assert_false(m->self_tests[1].has_inputs || m->self_tests[1].has_outputs);
	assert_int_equal(m->n_examples, 1);
	assert_true(m->examples[0].has_inputs && m->examples[0].has_outputs);
	assert_int_equal(m->examples[0].n_outputs, 0);
	assert_true(m->has_runner && m->has_compat_version && m->compat_version == 2);
	assert_string_equal(m->runner_name, "torch");
	assert_string_equal(m->framework_version, "=1");
	assert_int_equal(m->n_options, 4);
	assert_string_equal(m->options[0].name, "n");
	assert_string_equal(m->options[0].value, "1");
	assert_string_equal(m->options[1].name, "d.e[0]");
	assert_string_equal(m->options[2].value, "2.5");
	assert_string_equal(m->options[3].value, "\"1979-05-27\"");
	meta_free(m);
	meta_free(NULL);
}

static void test_empty(void **state)
{
	struct meta *m = parse("");

	(void)state;
	assert_false(m->has_spec_version || m->has_runner);
	assert_int_equal(m->n_problems, 0);
	meta_free(m);
}

static void test_problems(void **state)
{
	static const struct {
		const char *text, *says;
	} list[] = {
		{ "spec_version = '1'", "line 1: spec_version is not an integer" },
		{ "\nmodel_name = 1", "line 2: model_name is not a string" },
		{ "license = \"a\\u0000\"", "license holds a NUL" },
		{ "required_platforms = ['a', 1, 'b']", "item of required_platforms is not a string" },
		{ "input = [1]", "input is not a table" },
		{ "[[input]]\nname = 1", "name is not a string" },
		{ "[[input]]\nshape = 1", "shape is neither a list nor a symbol" },
		{ "[[input]]\nshape = [-1]", "a dimension of a shape" },
		{ "[[input]]\nshape = [1.5]", "a dimension of a shape" },
		{ "[[input]]\nshape = [[1]]", "a dimension of a shape" },
		{ "[[input]]\nshape.a = 1", "shape is neither" },
		{ "[[self_test]]\ninputs = { x = 1 }", "line 2: inputs: a value that is no NAME" },
		{ "[[self_test]]\nexpected_out = 'x'", "expected_out: a value that is no NAME" },
		{ "[[example]]\nsample_out.a.b = 'x'", "sample_out: a value that is no NAME" },
		{ "[[example]]\ninputs = { \"a\\u0000\" = 'x' }", "inputs: a value that is no NAME" },
		{ "[[example]]\ninputs = { a = '\\u0000' }\n[[example]]\ninputs = { a = \"\\u0000\" }",
		  "line 4: inputs: a value that is no NAME" },
		{ "[[example]]\ninputs = []", "inputs: an array where NAME" },
		{ "[[example]]\ninputs = { x = {} }", "inputs: a table where NAME" },
		{ "runner.runner_compat_version = -1", "not a version number" },
		{ "runner.runner_name = []\nrunner.required_framework_version = 1", "is not a string" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		struct meta *m = parse(list[i].text);

		if (!has_problem(m, list[i].says))
			fail_msg("\"%s\": no problem of %zu says \"%s\"", list[i].text, m->n_problems,
				 list[i].says);
		meta_free(m);
	}
}

/* What is well-formed beside a fault is kept. */
static void test_kept_beside_faults(void **state)
{
	struct meta *m = parse("required_platforms = ['a', 1, 'b']\n[[self_test]]\n"
			       "inputs = { x = 1, y = '@tensor_data/y', z = [], w = '@misc/w' }\n");

	(void)state;
	assert_int_equal(m->n_platforms, 2);
	assert_string_equal(m->platforms[0], "a");
	assert_string_equal(m->platforms[1], "b");
	assert_int_equal(m->self_tests[0].n_inputs, 2);
	assert_string_equal(m->self_tests[0].inputs[0].name, "y");
	assert_string_equal(m->self_tests[0].inputs[1].reference, "@misc/w");
	assert_true(m->self_tests[0].odd_inputs && m->self_tests[0].has_inputs);
	assert_false(m->self_tests[0].odd_outputs || m->self_tests[0].has_outputs);
	meta_free(m);
}

/* A shape with a fault is not said at all, however much of it is well-formed. */
static void test_bad_shape(void **state)
{
	static const char *const shapes[] = {
		"= [1.5, 3]", "= [-1, 3]", "= [3, 1.5]", "= [3, [1], 2]", "= [[], 3, 1.5, -1]",
		"= [3, {}]", "= [[1], [2]]", "= [{ a = 1 }, 3]", "= [true]", ".a = 1", "= { a = [3] }",
	};
	char text[100];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
		struct meta *m;

		snprintf(text, sizeof(text), "[[input]]\nshape %s\nname = 'x'\n", shapes[i]);
		m = parse(text);
		assert_int_equal(m->n_inputs, 1);
		assert_null(m->inputs[0].shape);
		assert_false(m->inputs[0].has_dims || m->inputs[0].rank || m->inputs[0].dims);
		assert_string_equal(m->inputs[0].name, "x");
		assert_int_equal(m->n_problems, 1);
		meta_free(m);
	}
}

static void test_not_toml(void **state)
{
	struct log_seen *seen = log_watch();
	struct meta *m = NULL;

	(void)state;
	assert_int_equal(meta_parse("a = 1\nb = \n", 11, &m), -EBADMSG);
	assert_null(m);
	assert_string_equal(seen->subject, "carton.toml");
	assert_says(seen, "line 2: ");
	carton_log_set(NULL, NULL);
}

static void test_reported(void **state)
{
	struct buf b = buf_init(100000);
	struct meta *m;

	(void)state;
	buf_adds(&b, "required_platforms = [");
	for (size_t i = 0; i < 3 * MAX_REPORTED; i++)
		buf_adds(&b, "1,\n");
	buf_adds(&b, "]\n");
	m = parse(b.data);
	assert_int_equal(m->n_problems, MAX_REPORTED);
	meta_free(m);
	buf_free(&b);
}

static void test_tables(void **state)
{
	static const char *const names[] = { "input", "output", "self_test", "example" };
	struct log_seen *seen = log_watch();

	(void)state;
	for (size_t k = 0; k < 4; k++) {
		struct buf b = buf_init(10 * MIB);
		struct meta *m = NULL;

		buf_addf(&b, "%s = [", names[k]);
		for (size_t i = 0; i < MAX_META_TABLES; i++)
			buf_adds(&b, "{},");
		buf_addc(&b, ']');
		seen->n = 0;
		assert_int_equal(meta_parse(b.data, b.len, &m), 0);
		assert_int_equal(m->n_inputs + m->n_outputs + m->n_self_tests + m->n_examples,
				 MAX_META_TABLES);
		meta_free(m);
		m = NULL;
		assert_int_equal(seen->n, 0);
		b.len--;
		buf_adds(&b, "{}]");
		assert_int_equal(meta_parse(b.data, b.len, &m), -EFBIG);
		assert_null(m);
		assert_int_equal(seen->n, 1);
		assert_says(seen, "more than 100000 tables");
		buf_free(&b);
	}
	carton_log_set(NULL, NULL);
}

/* A raw tab is two bytes of JSON: a text within its limit can make a shape beyond it. */
static void test_long_shape(void **state)
{
	struct log_seen *seen = log_watch();
	struct buf b = buf_init(MAX_CARTON_TOML);
	struct meta *m = NULL;
	size_t n = MAX_CARTON_TOML / 2 - 2;

	(void)state;
	for (size_t more = 0; more < 2; more++) {
		b.len = 0;
		assert_int_equal(buf_reserve(&b, n + 100), 0);
		buf_adds(&b, "[[input]]\nshape = ['");
		memset(b.data + b.len, '\t', n + more);
		b.len += n + more;
		buf_adds(&b, "']\n");
		assert_int_equal(meta_parse(b.data, b.len, &m), more ? -EFBIG : 0);
		assert_int_equal(seen->n, more);
		if (!more) {
			assert_int_equal(strlen(m->inputs[0].shape), MAX_CARTON_TOML);
			meta_free(m);
		}
	}
	assert_says(seen, "a shape that is too long");
	buf_free(&b);
	carton_log_set(NULL, NULL);
}

/*
 * Faults behind a long list of good items: what is left out must not make the list grow. Each one
 * once copied all of it, so that 16 MiB of text took hundreds of gigabytes.
 */
static void test_faults_cost_nothing(void **state)
{
	(void)state;
	for (size_t k = 0; k < 2; k++) {
		struct buf b = buf_init(8 * MIB);
		struct mallinfo2 before, after;
		struct meta *m;

		buf_adds(&b, k ? "[[self_test]]\n[self_test.inputs]\n" : "required_platforms = [");
		/* a power of two of good ones: the list is full */
		for (size_t i = 0; i < 16384 + 4000; i++)
			if (k)
				buf_addf(&b, "k%zu = %s\n", i, i < 16384 ? "'v'" : "1");
			else
				buf_adds(&b, i < 16384 ? "'p'," : "1,");
		buf_adds(&b, k ? "" : "]");
		before = mallinfo2();
		m = parse(b.data);
		after = mallinfo2();
		assert_int_equal(k ? m->self_tests[0].n_inputs : m->n_platforms, 16384);
		assert_int_equal(m->n_problems, MAX_REPORTED);
		/* 0 of 0 where a sanitizer replaces malloc */
		assert_true(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd < 64 * MIB);
		meta_free(m);
		buf_free(&b);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_problems),
		cmocka_unit_test(test_kept_beside_faults),
		cmocka_unit_test(test_bad_shape),
		cmocka_unit_test(test_not_toml),
		cmocka_unit_test(test_reported),
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_long_shape),
		cmocka_unit_test(test_faults_cost_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
