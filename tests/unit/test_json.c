/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON scanner: events and texts, tokens across windows, what is refused, and that a reader can
 * stop it. tests/format/test_view_safetensors.py has it read headers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/json.h"
#include "../must.h"

struct text {
	const char *s;
	size_t n;
	size_t piece; /* bytes given at once */
	size_t stop;  /* bytes until the reader fails */
};

static ssize_t read_text(void *ctx, void *ret_buf, size_t n)
{
	struct text *t = ctx;

	n = MIN(MIN(n, t->piece), t->n);
	if (t->stop < n)
		return -ECANCELED;
	memcpy(ret_buf, t->s, n);
	t->s += n;
	t->n -= n;
	t->stop -= n;
	return (ssize_t)n;
}

/* Scans all: the events as letters, texts in parentheses. Returns what json_next() did last. */
static int scan(struct text t, struct buf *ret, const char **ret_fault)
{
	static const char letters[] = "{[.ksnzo";
	struct buf text = buf_init(GIB);
	struct json *j = must(calloc(1, sizeof(*j)));
	enum json_event e = JSON_OTHER;
	int r = 0;

	j->read = read_text;
	j->ctx = &t;
	j->text = &text;
	while (r == 0 && e != JSON_EOF) {
		r = json_next(j, &e);
		if (r < 0 || e == JSON_EOF)
			break;
		assert_int_equal(buf_addc(ret, letters[e]), 0);
		if (e == JSON_KEY || e == JSON_STRING || e == JSON_NUMBER)
			assert_int_equal(
				buf_addf(ret, "(%.*s)", (int)json_text_len(j), text.data + j->kept),
				0);
	}
	/* a failure is final, and says why if the text is at fault */
	if (r < 0)
		assert_int_equal(json_next(j, &e), r);
	assert_int_equal(r == -EBADMSG, j->fault != NULL);
	if (ret_fault)
		*ret_fault = j->fault;
	buf_finish(&text);
	free(j);
	return r;
}

static void good(const char *s, const char *want)
{
	for (size_t piece = 1; piece <= strlen(s); piece++) {
		struct buf got = buf_init(GIB);

		assert_int_equal(scan((struct text){ s, strlen(s), piece, SIZE_MAX }, &got, NULL),
				 0);
		assert_string_equal(got.data, want);
		buf_finish(&got);
	}
}

static void test_good(void **state)
{
	(void)state;
	good("{}", "{.");
	good("[ ]  ", "[.");
	good("{}\n\t\r ", "{.");
	good("\t\r\n 1", "n(1)");
	good("[0,-0,1.5,-1e5,2E+3,3e-1,12345678901234567890123]",
	     "[n(0)n(-0)n(1.5)n(-1e5)n(2E+3)n(3e-1)n(12345678901234567890123).");
	good("{\"a\":[true,false,null],\"\":{\"b\" : \"c\"}}", "{k(a)[ooz.k(){k(b)s(c)..");
	good("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83e\\udd73\x7f\"",
	     "s(\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\xa5\xb3\x7f)");
	good("\"\xc3\xa9\xe2\x82\xac\xf0\x9f\xa5\xb3\"", "s(\xc3\xa9\xe2\x82\xac\xf0\x9f\xa5\xb3)");
}

static void test_bad(void **state)
{
	static const char *const bad[] = {
		"",
		" ",
		"{",
		"[",
		"{\"a\"",
		"{\"a\":",
		"{\"a\":1",
		"[1",
		"\"",
		"\"\\",
		"\"\\u12",
		"]",
		"}",
		",",
		":",
		"[1,]",
		"[,1]",
		"{,}",
		"{\"a\":1,}",
		"{\"a\" 1}",
		"{\"a\"}",
		"{1:2}",
		"{a:1}",
		"[1 2]",
		"[1}",
		"{\"a\":1]",
		"{}{}",
		"{}\f",
		"{},",
		"1 2",
		"[\v]",
		"[\f]",
		"[1\x7f]",
		"tru",
		"truex",
		"nul",
		"True",
		"NaN",
		"Infinity",
		"-",
		"+1",
		"01",
		"-01",
		"1.",
		".5",
		"1e",
		"1e+",
		"1.e5",
		"0x1",
		"1-2",
		"--1",
		"'a'",
		"// c\n1",
		"/**/1",
		"\"\n\"",
		"\"\x1f\"",
		"\"\\x\"",
		"\"\\'\"",
		"\"\\u00g0\"",
		"\"\\U0041\"",
		"\"\\ud800\"",
		"\"\\udc00\"",
		"\"\\ud800x\"",
		"\"\\ud800\\n\"",
		"\"\\ud800\\ud800\"",
		"\"\\udc00\\ud800\"",
		"\"\xff\"",
		"\"\xc3\"",
		"\"\xc3\\u0041\"",
		"\"\xc0\xaf\"",
		"\"\xed\xa0\x80\"",
		"\"\xf4\x90\x80\x80\"",
		"\"\xe2\x82\"",
		"\"plain text \xe2\x82 and more plain text\"",
		"\"\xe2 plain text \x82\xac\"",
		"\"plain text, and then \x82\"",
		"\"\xf0\x9f\\n\xa5\xb3\"",
		"\xef\xbb\xbf{}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		for (size_t piece = 1; piece < 4; piece++) {
			struct buf got = buf_init(GIB);
			const char *fault = NULL;

			assert_int_equal(
				scan((struct text){ bad[i], strlen(bad[i]), piece, SIZE_MAX }, &got,
				     &fault),
				-EBADMSG);
			assert_int_equal(strncmp(fault, "it ", 3), 0);
			buf_finish(&got);
		}
	}
}

static void test_depth(void **state)
{
	(void)state;
	for (size_t depth = JSON_MAX_DEPTH; depth <= JSON_MAX_DEPTH + 1; depth++) {
		struct buf s = buf_init(KIB), got = buf_init(KIB);
		const char *fault = NULL;

		for (size_t i = 0; i < depth; i++)
			assert_int_equal(buf_adds(&s, i % 2 ? "[" : "{\"\":"), 0);
		for (size_t i = depth; i > 0; i--)
			assert_int_equal(buf_adds(&s, i % 2 ? i == depth ? "0}" : "}" : "]"), 0);
		assert_int_equal(scan((struct text){ s.data, s.len, 7, SIZE_MAX }, &got, &fault),
				 depth > JSON_MAX_DEPTH ? -EBADMSG : 0);
		if (fault)
			assert_string_equal(fault, "it is nested too deeply");
		buf_finish(&s);
		buf_finish(&got);
	}
}

/* However long one token is, its reader is asked again and again, and can stop it. */
static void test_stopped(void **state)
{
	static const char *const parts[][3] = {
		{ "\"", "x", "\"" }, { "\"", "\\n", "\"" }, { "", "1", "" },
		{ "", " ", "1" },    { "[1", ",1", "]" },   { "1", " ", "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		struct buf s = buf_init(GIB), got = buf_init(GIB);

		assert_int_equal(buf_adds(&s, parts[i][0]), 0);
		while (s.len < MIB)
			assert_int_equal(buf_adds(&s, parts[i][1]), 0);
		assert_int_equal(buf_adds(&s, parts[i][2]), 0);
		assert_int_equal(
			scan((struct text){ s.data, s.len, SIZE_MAX, MIB / 2 }, &got, NULL),
			-ECANCELED);
		got.len = 0;
		assert_int_equal(
			scan((struct text){ s.data, s.len, SIZE_MAX, SIZE_MAX }, &got, NULL), 0);
		buf_finish(&s);
		buf_finish(&got);
	}
}

/* Kept texts stay, others go. */
static void test_keep(void **state)
{
	struct text t = { "[\"a\",\"bc\",\"\",\"d\"]", 17, 3, SIZE_MAX };
	struct buf text = buf_init(KIB);
	struct json *j = must(calloc(1, sizeof(*j)));
	enum json_event e;

	(void)state;
	j->read = read_text;
	j->ctx = &t;
	j->text = &text;
	assert_int_equal(json_next(j, &e), 0);
	assert_int_equal(json_next(j, &e), 0);
	assert_string_equal(json_keep(j), "a");
	assert_int_equal(json_next(j, &e), 0);
	assert_int_equal(json_next(j, &e), 0);
	assert_string_equal(json_keep(j), "");
	assert_int_equal(json_next(j, &e), 0);
	assert_string_equal(json_keep(j), "d");
	assert_memory_equal(text.data, "a\0\0d", 5);
	buf_finish(&text);
	free(j);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),  cmocka_unit_test(test_bad),
		cmocka_unit_test(test_depth), cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_keep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
