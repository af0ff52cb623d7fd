/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carton.toml: which values are kept, which are problems, and that malformed values cost no memory.
 */
#include <malloc.h>

#include "format/meta.h"
#include "format/values.h"
#include "zip_help.h"

static struct meta *parse(const char *text)
{
	struct meta *m = NULL;

	assert_int_equal(meta_parse(text, strlen(text), NULL, &m), 0);
	return m;
}

static bool has_problem(const struct meta *m, const char *text)
{
	char line[300];

	for (size_t i = 0; i < m->n_problems; i++) {
		snprintf(line, sizeof(line), "line %zu: %s", m->problems[i].line,
			 m->problems[i].text);
		if (strstr(line, text))
			return true;
	}
	return false;
}

static void test_full(void **state)
{
	struct meta *m = parse(
		"spec_version = 1\nmodel_name = 'm'\nshort_description = 's'\nmodel_description = '''a\nb'''\n"
		"license = 'MIT'\nrepository = 'r'\nhomepage = 'h'\n"
		"required_platforms = ['x86_64-unknown-linux-gnu', 'aarch64-apple-darwin']\n"
		"[[input]]\nname = 'x'\ndtype = 'float32'\nshape = ['batch', 3, '*\"']\n"
		"description = 'd'\ninternal_name = 'i'\n"
		"[[input]]\nname = 'z'\nshape = []\n"
		"[[output]]\nname = 'y'\ndtype = 'string'\nshape = '*'\n"
		"[[self_test]]\nname = 't'\ninputs = { x = '@tensor_data/x', \"a b\" = '@misc/b' }\n"
		"expected_out = { y = '@tensor_data/y' }\n"
		"[[self_test]]\n"
		"[[example]]\ndescription = 'e'\n[example.inputs]\nx = '@misc/a'\n[example.sample_out]\n"
		"[runner]\nrunner_name = 'torch'\nrequired_framework_version = '=1'\n"
		"runner_compat_version = 2\n[runner.opts]\nn = 1\ns = 'x'\nf = 2.5\nb = false\n");

	const struct meta_option *o;

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
	assert_string_equal(m->platforms[1], "aarch64-apple-darwin");
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
	o = m->options.first;
	assert_string_equal(o->name, "n");
	assert_string_equal(o->value, "1");
	assert_string_equal(o->next->value, "\"x\"");
	assert_string_equal(o->next->next->value, "2.5");
	assert_ptr_equal(m->options.last, o->next->next->next);
	assert_string_equal(m->options.last->value, "false");
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

#define A10 "aaaaaaaaaa"
#define A100 A10 A10 A10 A10 A10 A10 A10 A10 A10 A10

static void test_problems(void **state)
{
	static const struct {
		const char *text, *says;
	} list[] = {
		{ "required_platforms = 'x86_64-unknown-linux-gnu'",
		  "required_platforms is not a list" },
		{ "[required_platforms]\na = 1", "line 1: required_platforms is not a list" },
		{ "required_platforms = [['x86_64-unknown-linux-gnu']]",
		  "required_platforms is not a list" },
		{ "required_platforms = ['linux']",
		  "item of required_platforms does not begin with" },
		{ "required_platforms = ['x86_64-linux-linux']", "is not a target triple" },
		{ "[runner]\nrequired_framework_version = '1.x.1'",
		  "line 2: runner.required_framework_version is not a version" },
		{ "[runner]\nrequired_framework_version = ['=1']",
		  "required_framework_version is not a string" },
		{ "[runner.required_framework_version]\n",
		  "required_framework_version is not a string" },
		{ "runner.required_framework_version = 1.2",
		  "required_framework_version is not a string" },
		{ "[input]\nname = 'x'",
		  "line 1: input is not an array of tables: write [[input]]" },
		{ "output.name = 'x'", "output is not an array of tables: write [[output]]" },
		{ "self_test = 1", "self_test is not an array of tables" },
		{ "[runner.opts]\na = [1]", "line 2: option \"a\" is an array" },
		{ "[runner.opts]\na = 1979-05-27", "option \"a\" is a date or time" },
		{ "[runner.opts]\na.b = 1", "option \"a\" is a table" },
		{ "[runner.opts.a]", "option \"a\" is a table" },
		{ "short_description = '" A100 "é'",
		  "short_description has more than 100 characters" },
		{ "spec_version = '1'", "line 1: spec_version is not an integer" },
		{ "\nmodel_name = 1", "line 2: model_name is not a string" },
		{ "license = \"a\\u0000\"", "license contains a NUL" },
		{ "required_platforms = ['a', 1, 'b']",
		  "item of required_platforms is not a string" },
		{ "input = [1]", "input is not a table" },
		{ "[[input]]\nname = 1", "name is not a string" },
		{ "[[input]]\nshape = 1", "shape is neither a list nor a symbol" },
		{ "[[input]]\nshape = [-1]", "a dimension of a shape" },
		{ "[[input]]\nshape = [1.5]", "a dimension of a shape" },
		{ "[[input]]\nshape = [[1]]", "a dimension of a shape" },
		{ "[[input]]\nshape.a = 1", "shape is neither" },
		{ "[[self_test]]\ninputs = { x = 1 }", "line 2: inputs: a value that is not NAME" },
		{ "[[self_test]]\nexpected_out = 'x'", "expected_out: a value that is not NAME" },
		{ "[[example]]\nsample_out.a.b = 'x'", "sample_out: a value that is not NAME" },
		{ "[[example]]\ninputs = { \"a\\u0000\" = 'x' }",
		  "inputs: a value that is not NAME" },
		{ "[[example]]\ninputs = { a = '\\u0000' }\n[[example]]\ninputs = { a = \"\\u0000\" }",
		  "line 4: inputs: a value that is not NAME" },
		{ "[[example]]\ninputs = []", "inputs: an array where NAME" },
		{ "[[example]]\ninputs = { x = {} }", "inputs: a table where NAME" },
		{ "runner.runner_compat_version = -1", "not a version number" },
		{ "runner.runner_name = []\nrunner.required_framework_version = 1",
		  "is not a string" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		struct meta *m = parse(list[i].text);

		if (!has_problem(m, list[i].says))
			fail_msg("\"%s\": no problem of %zu says \"%s\"", list[i].text,
				 m->n_problems, list[i].says);
		meta_free(m);
	}
}

/* Well-formed values next to malformed ones are kept. */
static void test_kept_beside_faults(void **state)
{
	struct meta *m = parse("required_platforms = ['a', 1, 'x86_64', 'b']\n[[self_test]]\n"
			       "inputs = { x = 1, y = '@tensor_data/y', z = [], w = '@misc/w' }\n");

	(void)state;
	assert_int_equal(m->n_platforms, 3);
	assert_string_equal(m->platforms[0], "a");
	assert_string_equal(m->platforms[2], "b");
	assert_int_equal(m->self_tests[0].n_inputs, 2);
	assert_string_equal(m->self_tests[0].inputs[0].name, "y");
	assert_string_equal(m->self_tests[0].inputs[1].reference, "@misc/w");
	assert_true(m->self_tests[0].bad_inputs && m->self_tests[0].has_inputs);
	assert_false(m->self_tests[0].bad_outputs || m->self_tests[0].has_outputs);
	meta_free(m);
}

/* A malformed shape is dropped whole. */
static void test_bad_shape(void **state)
{
	static const char *const shapes[] = {
		"= [1.5, 3]",	      "= [-1, 3]", "= [3, 1.5]",    "= [3, [1], 2]",
		"= [[], 3, 1.5, -1]", "= [3, {}]", "= [[1], [2]]",  "= [{ a = 1 }, 3]",
		"= [true]",	      ".a = 1",	   "= { a = [3] }",
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
	assert_int_equal(meta_parse("a = 1\nb = \n", 11, NULL, &m), -EBADMSG);
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
	buf_finish(&b);
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
		assert_int_equal(meta_parse(b.data, b.len, NULL, &m), 0);
		assert_int_equal(m->n_inputs + m->n_outputs + m->n_self_tests + m->n_examples,
				 MAX_META_TABLES);
		meta_free(m);
		m = NULL;
		assert_int_equal(seen->n, 0);
		b.len--;
		buf_adds(&b, "{}]");
		assert_int_equal(meta_parse(b.data, b.len, NULL, &m), -EFBIG);
		assert_null(m);
		assert_int_equal(seen->n, 1);
		assert_says(seen, "more than 100000 tables");
		buf_finish(&b);
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
		assert_int_equal(meta_parse(b.data, b.len, NULL, &m), more ? -EFBIG : 0);
		assert_int_equal(seen->n, more);
		if (!more) {
			assert_int_equal(strlen(m->inputs[0].shape), MAX_CARTON_TOML);
			meta_free(m);
		}
	}
	assert_says(seen, "too long a shape");
	buf_finish(&b);
	carton_log_set(NULL, NULL);
}

/*
 * Malformed items after a long list of good ones must not make the list grow. Each once copied the
 * whole list, so that 16 MiB of text took hundreds of gigabytes.
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
		assert_true(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd <
			    64 * MIB);
		meta_free(m);
		buf_finish(&b);
	}
}

/* Options nest as in TOML, whichever way and in whichever order the tables are written. */
static void test_options(void **state)
{
	struct meta *m = parse(
		"[runner.opts.x.y]\na = 1\n[other]\n[runner.opts]\nc.d = 2\ne = [3, {}, [4]]\n"
		"c.\"f.\\u0000\" = { g = {}, h.i = 5 }\n[runner.opts.x]\nb = nan\n"
		"[[runner.opts.z]]\nk = 6\n[[runner.opts.z]]\n[runner.opts.z.l]\n");
	const struct meta_option *o = m->options.first;

	(void)state;
	assert_string_equal(o->name, "x");
	assert_int_equal(o->n, 2);
	assert_string_equal(o->first->first->value, "1");
	assert_string_equal(o->last->value, "nan");
	o = o->next;
	assert_string_equal(o->name, "c");
	assert_int_equal(o->n, 2);
	assert_int_equal(o->last->len, 3);
	assert_string_equal(o->last->last->first->value, "5");
	o = o->next;
	assert_int_equal(o->type, TOML_ARRAY);
	assert_int_equal(o->n, 3);
	assert_int_equal(o->first->next->type, TOML_TABLE);
	assert_string_equal(o->last->first->value, "4");
	o = o->next;
	assert_ptr_equal(o, m->options.last);
	assert_int_equal(o->n, 2);
	assert_string_equal(o->first->first->value, "6");
	assert_string_equal(o->last->first->name, "l");
	meta_free(m);
}

/* Floats are the shortest text that reads back as the same value. */
static void test_floats(void **state)
{
	static const char *const list[] = {
		"0.1",
		"2.0",
		"-0.0",
		"1e+100",
		"5e-324",
		"1.7976931348623157e+308",
		"0.30000000000000004",
		"1e-05",
		"0.0001",
		"100.0",
		"-12.5",
		"123456789.0",
		"1234567890123456.0",
		"1e+16",
		"0.0",
		"nan",
		"inf",
		"-inf",
		"16777216.0",
		"1e+22",
	};
	char text[100];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		struct meta *m;

		snprintf(text, sizeof(text), "[runner.opts]\na = %s\n", list[i]);
		m = parse(text);
		assert_string_equal(m->options.first->value, list[i]);
		meta_free(m);
	}
}

static void test_option_limits(void **state)
{
	struct buf b = buf_init(MAX_CARTON_TOML);
	struct meta *m;

	(void)state;
	buf_adds(&b, "[runner.opts]\n");
	for (size_t i = 0; i < MAX_META_OPTIONS; i++)
		buf_addf(&b, "k%zu=%zu\n", i, i);
	m = parse(b.data);
	assert_int_equal(m->n_problems, 0);
	assert_int_equal(m->options.n, MAX_META_OPTIONS);
	meta_free(m);
	buf_adds(&b, "one = 1\n");
	m = parse(b.data);
	assert_true(has_problem(m, "too many values"));
	assert_int_equal(m->options.n, MAX_META_OPTIONS);
	meta_free(m);

	/* tables: each is looked up again, in the worst order */
	b.len = 0;
	buf_adds(&b, "[runner.opts]\n");
	for (size_t k = 0; k < 3; k++)
		for (size_t i = 0; i <= MAX_META_OPTION_TABLES; i++)
			buf_addf(&b, "t%zu.k%zu=0\n", i, k);
	m = parse(b.data);
	assert_int_equal(m->options.n, MAX_META_OPTION_TABLES);
	assert_int_equal(m->options.first->n, 3);
	meta_free(m);
	buf_finish(&b);
}

static void test_version_requirements(void **state)
{
	static const char *const good[] = {
		"=1.12.1", "1", "1.2", "^1.2.3", "~1", ">=1.2, <2", ">= 1.2.3 ,< 2", "*", " x", "X ", "1.*",
		"1.*.*", "1.2.X", "=1.2.3-alpha.1", "=1.2.3-0a", "=1.2.3-0+build.01", "=1.2.3+01", ">0",
		"18446744073709551615", "=1.2.3--",
	}, *const bad[] = {
		"", " ", "latest", "=", "v1", "1.", "1.2.", "1..2", "1.2.3.4", "01", "1.02", "1.*.2", "*,1",
		"1,*", "1,", ",1", "1 2", "==1", "=>1", "1.2.3-", "1.2.3-01", "1.2.3-a..b", "1.2.3+",
		"1.2-a", "1.2.*-a", "18446744073709551616", "1.2.3-ä", "\t1", "* *", "!=1",
	};
	struct buf b = buf_init(1000);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		if (version_req_fault(good[i]))
			fail_msg("\"%s\" is refused", good[i]);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (!version_req_fault(bad[i]))
			fail_msg("\"%s\" is accepted", bad[i]);
	for (size_t i = 0; i < 32; i++)
		buf_adds(&b, i ? ",1" : "1");
	assert_null(version_req_fault(b.data));
	buf_adds(&b, ",1");
	assert_non_null(version_req_fault(b.data));
	buf_finish(&b);
}

static void test_platforms(void **state)
{
	static const char *const good[] = {
		"x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "x86_64-apple-darwin",
		"aarch64-apple-darwin", "x86_64", "wasm32-wasi", "x86_64-pc-windows-msvc", "unknown-foo",
		"thumbv8m.main-none-eabihf", "msp430-none-elf", "i686-apple-macosx10.7.0", "aarch64-fuchsia",
		"x86_64-customvendor-linux", "x86_64-unknown-linux-gnu-elf", "unknown-unknown-unknown",
	}, *const bad[] = {
		"", "-", "linux", "x86_64-", "x86_64--", "x86_64--linux", "x86_64-42-linux", "x86-64-linux",
		"x86_64-linux-linux", "x86_64-gnu-linux", "x86_64-Custom-linux", "customvendor-x86_64",
		"x86_64-unknown-linux-gnu-elf-x", "x86_64-unknown-linux gnu", "x86_64-linux-customvendor",
		"X86_64-unknown-linux-gnu", "x86_64-unknown-linux-gnu-",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		if (platform_fault(good[i]))
			fail_msg("\"%s\" is refused", good[i]);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (!platform_fault(bad[i]))
			fail_msg("\"%s\" is accepted", bad[i]);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full),	      cmocka_unit_test(test_empty),
		cmocka_unit_test(test_problems),      cmocka_unit_test(test_kept_beside_faults),
		cmocka_unit_test(test_bad_shape),     cmocka_unit_test(test_not_toml),
		cmocka_unit_test(test_reported),      cmocka_unit_test(test_tables),
		cmocka_unit_test(test_long_shape),    cmocka_unit_test(test_faults_cost_nothing),
		cmocka_unit_test(test_options),	      cmocka_unit_test(test_floats),
		cmocka_unit_test(test_option_limits), cmocka_unit_test(test_version_requirements),
		cmocka_unit_test(test_platforms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
