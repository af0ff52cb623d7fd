/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "toml/toml.h"
#include "base/util.h"
#include "../must.h"

/* ---- events as text: one line each ---- */

static void add_path(struct buf *b, const struct toml_path *path)
{
	size_t i;

	for (i = 0; i < path->n; i++) {
		if (path->steps[i].key)
			assert_int_equal(buf_addf(b, "%s%s", i ? "." : "", path->steps[i].key), 0);
		else
			assert_int_equal(buf_addf(b, "[%zu]", path->steps[i].index), 0);
	}
}

static int on_begin(void *ctx, const struct toml_path *path, enum toml_type type, size_t line)
{
	struct buf *b = ctx;

	buf_addf(b, "%zu begin ", line);
	add_path(b, path);
	return buf_addf(b, " %s\n", type == TOML_TABLE ? "table" : "array");
}

static int on_end(void *ctx, const struct toml_path *path, enum toml_type type)
{
	struct buf *b = ctx;

	buf_adds(b, "end ");
	add_path(b, path);
	return buf_addf(b, " %s\n", type == TOML_TABLE ? "table" : "array");
}

static int on_value(void *ctx, const struct toml_path *path, const struct toml_value *value)
{
	struct buf *b = ctx;

	buf_addf(b, "%zu ", value->line);
	add_path(b, path);
	switch (value->type) {
	case TOML_INTEGER:
		return buf_addf(b, " = %lld\n", (long long)value->integer);
	case TOML_FLOAT:
		return buf_addf(b, " = %.17g\n", value->real);
	case TOML_BOOL:
		return buf_addf(b, " = %s\n", value->boolean ? "true" : "false");
	default:
		assert_int_equal(value->str[value->len], '\0');
		buf_adds(b, value->type == TOML_STRING ? " = " : " @ ");
		buf_add_json(b, value->str, value->len);
		return buf_addc(b, '\n');
	}
}

static const struct toml_events events = {
	.begin = on_begin,
	.end = on_end,
	.value = on_value,
};

/* Gives a document in pieces of at most `piece` bytes, and `result` at its end. */
struct pieces {
	const char *text;
	size_t n;
	size_t piece;
	ssize_t result;
};

static ssize_t read_pieces(void *ctx, void *ret_buf, size_t n)
{
	struct pieces *p = ctx;

	n = MIN(MIN(n, p->n), p->piece);
	if (!n)
		return p->result;
	memcpy(ret_buf, p->text, n);
	p->text += n;
	p->n -= n;
	return (ssize_t)n;
}

static void expect_events(const char *text, const char *want)
{
	size_t piece;

	for (piece = 1; piece <= 7; piece++) {
		struct pieces p = { text, strlen(text), piece, 0 };
		struct buf b = buf_init(1 * MIB);
		struct reason error;

		assert_int_equal(toml_parse(read_pieces, &p, &events, &b, &error), 0);
		assert_string_equal(b.len ? b.data : "", want);
		assert_int_equal(error.line, 0);
		assert_string_equal(error.text, "");
		buf_finish(&b);
	}
}

static void expect_error(const char *text, int want, size_t line, const char *message)
{
	struct reason error;

	assert_int_equal(
		toml_parse_mem(text, strlen(text), &(struct toml_events){ 0 }, NULL, &error), want);
	assert_int_equal(error.line, line);
	assert_string_equal(error.text, message);
}

static int parse(const struct buf *b, struct reason *ret_error)
{
	return toml_parse_mem(b->data, b->len, &(struct toml_events){ 0 }, NULL, ret_error);
}

static void repeat(struct buf *b, const char *s, size_t n)
{
	for (; n; n--)
		assert_int_equal(buf_adds(b, s), 0);
}

/* ---- tests ---- */

static void test_events(void **state)
{
	(void)state;
	expect_events("", "");
	expect_events("a = 1\n\"b c\".d = 'x'\n", "1 a = 1\n2 b c.d = \"x\"\n");
	expect_events("[a.b]\nc = true\n[a]\nd = -1.5\n",
		      "1 begin a.b table\n2 a.b.c = true\n3 begin a table\n4 a.d = -1.5\n");
	expect_events("[[t]]\nx = 1\n[t.u]\n[[t]]\n[[t.v]]\n[[t.v]]\ny = 2\n",
		      "1 begin t array\n1 begin t[0] table\n2 t[0].x = 1\n3 begin t[0].u table\n"
		      "4 begin t[1] table\n5 begin t[1].v array\n5 begin t[1].v[0] table\n"
		      "6 begin t[1].v[1] table\n7 t[1].v[1].y = 2\n");
	expect_events("a = [1, [], # c\n {b.c = 2, d = {}}, ]\ne = 3",
		      "1 begin a array\n1 a[0] = 1\n1 begin a[1] array\nend a[1] array\n"
		      "2 begin a[2] table\n2 a[2].b.c = 2\n2 begin a[2].d table\nend a[2].d table\n"
		      "end a[2] table\nend a array\n3 e = 3\n");
	expect_events("a = 1979-05-27 07:32:00.1234567891z\r\nb = [07:32:00 , 1979-05-27 ]\r\n",
		      "1 a @ \"1979-05-27T07:32:00.123456789Z\"\n2 begin b array\n"
		      "2 b[0] @ \"07:32:00\"\n2 b[1] @ \"1979-05-27\"\nend b array\n");
}

static void test_strings(void **state)
{
	(void)state;
	/* An escape that ends a window of text is not the end of the string: piece 1 has it. */
	expect_events("\xef\xbb\xbf"
		      "a = \"\\u00e9\\U0001F600\\n\\\"\"\nb = 'x\\'\nc = \"\"\n",
		      "1 a = \"\xc3\xa9\xf0\x9f\x98\x80\\n\\\"\"\n2 b = \"x\\\\\"\n3 c = \"\"\n");
	expect_events("a = \"\"\"\r\nx\r\n\"y\"\" \\\r\n\r\n\t z\"\"\"\"\"\nb = '''''''\nc = 1",
		      "1 a = \"x\\n\\\"y\\\"\\\" z\\\"\\\"\"\n6 b = \"'\"\n7 c = 1\n");
	expect_events("a = \"\xf0\x9f\x8e\x89\xe2\x82\xac\xc3\xbc\" # \xf0\x9f\x8e\x89\n",
		      "1 a = \"\xf0\x9f\x8e\x89\xe2\x82\xac\xc3\xbc\"\n");
}

static int check_nul(void *ctx, const struct toml_path *path, const struct toml_value *value)
{
	assert_int_equal(path->steps[0].len, 3);
	assert_memory_equal(path->steps[0].key, "k\0y", 4);
	assert_int_equal(value->len, 3);
	assert_memory_equal(value->str, "a\0b", 4);
	++*(int *)ctx;
	return 0;
}

static void test_nul_in_string(void **state)
{
	static const char text[] = "\"k\\u0000y\" = \"a\\u0000b\"";
	struct toml_events on = { .value = check_nul };
	int n = 0;

	(void)state;
	assert_int_equal(toml_parse_mem(text, strlen(text), &on, &n, NULL), 0);
	assert_int_equal(n, 1);
}

static void test_errors(void **state)
{
	(void)state;
	expect_error("a = 1\nb = \n", -EBADMSG, 2, "expected a value, found the end of the line");
	expect_error("a = \"\"\"\n\n", -EBADMSG, 3,
		     "expected the end of the string, found the end of the text");
	expect_error("\n\na = 1\na = 2", -EBADMSG, 4, "key \"a\" is defined twice");
	expect_error("[a\xc3\xa9]", -EBADMSG, 1, "expected ']', found byte 0xc3");
	expect_error("'\xc3\xa9' = 1\n'\xc3\xa9' = 1", -EBADMSG, 2, "key \"??\" is defined twice");
	expect_error("a = 1\n# \xff", -EBADMSG, 2, "ill-formed UTF-8");
	expect_error("# \xc3", -EBADMSG, 1, "ill-formed UTF-8");
	expect_error("# \xff\n", -EBADMSG, 1, "ill-formed UTF-8");
	expect_error("\n# \x01", -EBADMSG, 2, "a control character");
	expect_error("a = 1\r", -EBADMSG, 1, "a carriage return without a newline");
	expect_error("a = 2001-02-29", -EBADMSG, 1, "not a date or time");
	expect_error("a = 9223372036854775808", -EBADMSG, 1, "an integer beyond 64 bits");
	expect_error("a = \"\\ud800\"", -EBADMSG, 1, "U+D800 is not a character");
	expect_error("a.b = 1\n[a]", -EBADMSG, 2, "key \"a\" is defined twice");
	expect_error("a = 1\n[a.b]", -EBADMSG, 2, "key \"a\" is not a table");
	expect_error("[a.b]\n[a]\nb.c = 1", -EBADMSG, 3,
		     "key \"b\" has been defined and cannot be added to here");
}

static int refuse(void *ctx, const struct toml_path *path, const struct toml_value *value)
{
	(void)path;
	(void)value;
	return *(int *)ctx;
}

static int refuse_begin(void *ctx, const struct toml_path *path, enum toml_type type, size_t line)
{
	(void)path;
	(void)type;
	(void)line;
	return *(int *)ctx;
}

static int refuse_end(void *ctx, const struct toml_path *path, enum toml_type type)
{
	(void)path;
	(void)type;
	return *(int *)ctx;
}

static void test_callback_stops(void **state)
{
	static const char *const text[] = { "a = 1\n!", "a = ['x'\n!", "a = {b = 1\n!" };
	struct toml_events on_v = { .value = refuse }, on_b = { .begin = refuse_begin },
			   on_e = { .end = refuse_end };
	int codes[] = { -EIO, 1, 7, -EBADMSG }, *code;
	struct reason error;
	size_t i;

	(void)state;
	for (code = codes; code < codes + ARRAY_SIZE(codes); code++) {
		for (i = 0; i < ARRAY_SIZE(text); i++) {
			assert_int_equal(
				toml_parse_mem(text[i], strlen(text[i]), &on_v, code, &error),
				*code);
			assert_string_equal(error.text, "");
		}
		assert_int_equal(toml_parse_mem("[a]\n!", 5, &on_b, code, NULL), *code);
		assert_int_equal(toml_parse_mem("[[a]]\n!", 7, &on_b, code, NULL), *code);
		assert_int_equal(toml_parse_mem("a=[!", 4, &on_b, code, NULL), *code);
		assert_int_equal(toml_parse_mem("a=[]!", 5, &on_e, code, NULL), *code);
		assert_int_equal(toml_parse_mem("a={}!", 5, &on_e, code, NULL), *code);
		assert_int_equal(toml_parse_mem("a=[{}!", 6, &on_e, code, NULL), *code);
	}
}

static void test_read_fails(void **state)
{
	static const char text[] =
		"a = [1, 'xyz', \"\"\"\\u1234\n\"\"\", 2000-01-01 ]\n[b]\nc = {d = 1}";
	size_t n;

	(void)state;
	for (n = 0; n <= strlen(text); n++) {
		struct pieces p = { text, n, 3, -ETIMEDOUT };
		struct reason error;

		assert_int_equal(
			toml_parse(read_pieces, &p, &(struct toml_events){ 0 }, NULL, &error),
			-ETIMEDOUT);
		assert_string_equal(error.text, "");
	}
}

/* At the edge 0, one past it -EFBIG with the message. */
static void expect_limit(const char *head, const char *item, size_t n, const char *middle,
			 const char *back, const char *tail, const char *message)
{
	size_t past;

	for (past = 0; past <= 1; past++) {
		struct buf b = buf_init(GIB);
		struct reason error;

		repeat(&b, head, 1);
		repeat(&b, item, n + past);
		repeat(&b, middle, 1);
		repeat(&b, back, n + past);
		repeat(&b, tail, 1);
		assert_int_equal(parse(&b, &error), past ? -EFBIG : 0);
		assert_string_equal(error.text, past ? message : "");
		buf_finish(&b);
	}
}

static void test_limits(void **state)
{
	const char *depth = "arrays and tables nested too deeply",
		   *keys = "a path of too many keys";
	const char *key = "a key that is too long";

	(void)state;
	expect_limit("a = ", "[", TOML_MAX_DEPTH, "", "]", "", depth);
	expect_limit("a = ", "[", TOML_MAX_DEPTH - 1, "{}", "]", "", depth);
	expect_limit("", "a.", TOML_MAX_KEY_PARTS - 1, "a = 1", "", "", keys);
	expect_limit("[", "a.", TOML_MAX_KEY_PARTS - 1, "a]", "", "", keys);
	expect_limit("[[", "a.", TOML_MAX_KEY_PARTS - 1, "a]]", "", "", keys);
	expect_limit("[a]\n", "a.", TOML_MAX_KEY_PARTS - 2, "a = 1", "", "", keys);
	expect_limit("a = ", "{a = ", TOML_MAX_KEY_PARTS - 1, "1", "}", "", keys);
	expect_limit("", "k", TOML_MAX_KEY, " = 1", "", "", key);
	expect_limit("'", "k", TOML_MAX_KEY, "' = 1", "", "", key);
	expect_limit("[\"", "k", TOML_MAX_KEY, "\"]", "", "", key);
	expect_limit("a = 0.", "1", TOML_MAX_NUMBER - 2, "", "", "", "a number that is too long");
	expect_limit("a = 2000-01-01 00:00:00.", "1", TOML_MAX_NUMBER - 20, "", "", "",
		     "a number that is too long");
}

static void test_string_limit(void **state)
{
	static const char *const quotes[] = { "\"", "'", "\"\"\"", "'''" };
	size_t i, past;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(quotes); i++) {
		for (past = 0; past <= 1; past++) {
			struct buf b = buf_init(GIB);
			struct reason error;

			buf_adds(&b, "a = ");
			buf_adds(&b, quotes[i]);
			assert_int_equal(buf_reserve(&b, TOML_MAX_STRING + 16), 0);
			memset(b.data + b.len, 'x', TOML_MAX_STRING + past);
			b.len += TOML_MAX_STRING + past;
			buf_adds(&b, quotes[i]);
			assert_int_equal(parse(&b, &error), past ? -EFBIG : 0);
			assert_string_equal(error.text, past ? "a string that is too long" : "");
			buf_finish(&b);
		}
	}
}

static void test_key_limits(void **state)
{
	struct buf b = buf_init(2 * GIB);
	struct reason error;
	size_t i;

	(void)state;
	for (i = 0; i < TOML_MAX_KEYS; i++)
		assert_int_equal(buf_addf(&b, "k%zu=1\n", i), 0);
	assert_int_equal(parse(&b, &error), 0);
	assert_int_equal(buf_adds(&b, "more = 1\n"), 0);
	assert_int_equal(parse(&b, &error), -EFBIG);
	assert_int_equal(error.line, TOML_MAX_KEYS + 1);
	assert_string_equal(error.text, "too many keys");

	b.len = 0;
	for (i = 0; i < TOML_MAX_KEY_BYTES / TOML_MAX_KEY; i++)
		assert_int_equal(buf_addf(&b, "%0*zu=1\n", TOML_MAX_KEY, i), 0);
	assert_int_equal(parse(&b, &error), 0);
	assert_int_equal(buf_adds(&b, "m = 1\n"), 0);
	assert_int_equal(parse(&b, &error), -EFBIG);
	assert_string_equal(error.text, "too many keys");
	buf_finish(&b);
}

/* More keys than may be remembered at once, in elements that are over. */
struct elements {
	const char *head, *item, *tail;
	size_t left;
	int stage;
};

static ssize_t read_elements(void *ctx, void *ret_buf, size_t n)
{
	struct elements *e = ctx;
	size_t len = 0, m = strlen(e->item);

	if (e->stage == 0 || (e->stage == 1 && !e->left)) {
		len = strlen(e->stage ? e->tail : e->head);
		memcpy(ret_buf, e->stage ? e->tail : e->head, len);
		e->stage++;
		return (ssize_t)len;
	}
	for (; e->left && len + m <= n; e->left--, len += m)
		memcpy((char *)ret_buf + len, e->item, m);
	return (ssize_t)len;
}

static int count(void *ctx, const struct toml_path *path, const struct toml_value *value)
{
	(void)path;
	(void)value;
	++*(size_t *)ctx;
	return 0;
}

static void test_elements_are_forgotten(void **state)
{
	const size_t n = TOML_MAX_KEYS / 2;
	struct elements cases[] = {
		{ "a = [\n", "{b = 1, c = {d = 2}, e.f = [{g = 3}]},\n", "]\n", n, 0 },
		{ "#\n", "[[a]]\nb = 1\nc.d = 2\n[a.e]\n[[a.f]]\ng = 3\n", "#\n", n, 0 },
		{ "a = [", "[{b = 1}, {b = 2, c = 3}], ", "]\n", n, 0 },
	};
	struct toml_events on = { .value = count };
	size_t i, got;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		got = 0;
		assert_int_equal(toml_parse(read_elements, &cases[i], &on, &got, NULL), 0);
		assert_int_equal(got, 3 * n);
	}
}

static int check_float(void *ctx, const struct toml_path *path, const struct toml_value *value)
{
	(void)path;
	assert_int_equal(value->type, TOML_FLOAT);
	assert_true(value->real == 2.5);
	++*(size_t *)ctx;
	return 0;
}

/* Where the comma is the decimal point, if this machine has such a locale, nothing changes. */
static void test_locale(void **state)
{
	static const char text[] = "a = 2.5\nb = 25e-1";
	struct toml_events on = { .value = check_float };
	char *old = must(strdup(setlocale(LC_NUMERIC, NULL)));
	size_t n = 0;

	(void)state;
	if (!setlocale(LC_NUMERIC, "de_DE.UTF-8"))
		assert_non_null(setlocale(LC_NUMERIC, "C"));
	assert_int_equal(toml_parse_mem(text, strlen(text), &on, &n, NULL), 0);
	assert_non_null(setlocale(LC_NUMERIC, old));
	assert_int_equal(n, 2);
	free(old);
}

#define KEY(k)                                   \
	{                                        \
		.key = (k), .len = sizeof(k) - 1 \
	}
#define INDEX(i)             \
	{                    \
		.index = (i) \
	}
#define IS(pattern, ...)                                                                \
	toml_path_is(&(struct toml_path){ (struct toml_step[]){ __VA_ARGS__ },          \
					  sizeof((struct toml_step[]){ __VA_ARGS__ }) / \
						  sizeof(struct toml_step) },           \
		     pattern)

static void test_path_is(void **state)
{
	struct toml_path root = { NULL, 0 };

	(void)state;
	assert_true(toml_path_is(&root, ""));
	assert_false(toml_path_is(&root, "a"));
	assert_false(toml_path_is(&root, "*"));
	assert_true(IS("a", KEY("a")));
	assert_false(IS("", KEY("a")));
	assert_false(IS("ab", KEY("a")));
	assert_false(IS("a", KEY("ab")));
	assert_false(IS("a", KEY("a"), KEY("b")));
	assert_false(IS("a.b", KEY("a")));
	assert_false(IS("a[]", KEY("a")));
	assert_false(IS("a", KEY("a"), INDEX(0)));
	assert_false(IS("a.b", KEY("a.b")));
	assert_false(IS("a[]", KEY("a[]")));
	assert_false(IS("a", KEY("a\0")));
	assert_true(IS("tensor[].name", KEY("tensor"), INDEX(7), KEY("name")));
	assert_false(IS("tensor[].name", KEY("tensor"), KEY("name")));
	assert_false(IS("tensor.name", KEY("tensor"), INDEX(0), KEY("name")));
	assert_false(IS("tensor[]name", KEY("tensor"), INDEX(0), KEY("name")));
	assert_true(IS("a[][].b", KEY("a"), INDEX(0), INDEX(1), KEY("b")));
	assert_false(IS("a[].b", KEY("a"), INDEX(0), INDEX(1), KEY("b")));
	assert_true(IS("urls.*", KEY("urls"), KEY("00ff")));
	assert_true(IS("urls.*[]", KEY("urls"), KEY("a.b"), INDEX(2)));
	assert_true(IS("*.b", KEY("*"), KEY("b")));
	assert_false(IS("*", KEY("a"), KEY("b")));
	assert_false(IS("*", INDEX(0)));
	assert_true(IS("a.", KEY("a"), KEY("")));
	assert_true(IS("", KEY("")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_nul_in_string),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_callback_stops),
		cmocka_unit_test(test_read_fails),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_string_limit),
		cmocka_unit_test(test_key_limits),
		cmocka_unit_test(test_elements_are_forgotten),
		cmocka_unit_test(test_locale),
		cmocka_unit_test(test_path_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
