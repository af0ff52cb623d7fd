/* SPDX-License-Identifier: Apache-2.0 */
/* carton_escape(): each code point in each style, and what is not UTF-8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/util.h"

/* What the man pages promise, in another form than the table of the function. */
static bool must_not_be_seen(uint32_t c)
{
	static const uint32_t single[] = { 0xad,   0x34f,  0x61c,  0x115f, 0x1160,
					   0x17b4, 0x17b5, 0x3164, 0xfeff, 0xffa0 };

	for (size_t i = 0; i < ARRAY_SIZE(single); i++)
		if (c == single[i])
			return true;
	return c < 0x20 || c - 0x7f < 0x21 || c - 0x180b < 5 || c - 0x200b < 5 || c - 0x2028 < 7 ||
	       c - 0x2060 < 16 || c - 0xfe00 < 16 || c - 0xfff0 < 12 || c - 0x1bca0 < 4 ||
	       c - 0x1d173 < 8 || c - 0xe0000 < 0x1000;
}

/* Undoes \xNN. Returns the number of bytes. */
static size_t from_hex(const char *s, char ret[8])
{
	size_t n = 0;
	unsigned byte;

	for (; *s; s += 4) {
		assert_int_equal(sscanf(s, "\\x%2x", &byte), 1);
		ret[n++] = (char)byte;
	}
	return n;
}

static ssize_t read_text(void *ctx, void *ret_buf, size_t n)
{
	char **text = ctx;
	size_t len = strlen(*text);

	assert_true(len <= n);
	memcpy(ret_buf, *text, len);
	*text += len;
	return (ssize_t)len;
}

/* The value of a JSON string, by the parser of this project. */
static void from_json(const char *inside, struct buf *ret)
{
	char quoted[CARTON_ESCAPE_SIZE + 2], *text = quoted;
	static struct json j;
	enum json_event e;

	snprintf(quoted, sizeof(quoted), "\"%s\"", inside);
	ret->len = 0;
	j = (struct json){ .read = read_text, .ctx = &text, .text = ret };
	assert_int_equal(json_next(&j, &e), 0);
	assert_int_equal(e, JSON_STRING);
}

static bool is_ascii_text(const char *s)
{
	for (; *s; s++)
		if (*s < 0x20 || *s > 0x7e)
			return false;
	return true;
}

static void check_code(uint32_t c, struct buf *buf)
{
	char s[4], out[CARTON_ESCAPE_SIZE], back[8];
	size_t n = utf8_encode(c, s);
	bool hidden = must_not_be_seen(c), quoted = c == '"' || c == '\\';

	assert_int_equal(carton_escape(CARTON_ESCAPE_TEXT, s, n, out), n);
	if (hidden) {
		assert_true(is_ascii_text(out));
		assert_int_equal(from_hex(out, back), n);
		assert_memory_equal(back, s, n);
	} else {
		assert_int_equal(strlen(out), n);
		assert_memory_equal(out, s, n);
	}
	assert_int_equal(carton_escape(CARTON_ESCAPE_ALL, s, n, out), n);
	assert_int_equal(from_hex(out, back), n);
	assert_memory_equal(back, s, n);

	assert_int_equal(carton_escape(CARTON_ESCAPE_JSON, s, n, out), n);
	assert_int_equal(strlen(out), quoted ? 2 : hidden ? (n < 4 ? 6 : 12) : n);
	assert_true(!hidden || is_ascii_text(out));
	from_json(out, buf);
	assert_int_equal(buf->len, n);
	assert_memory_equal(buf->data, s, n);

	assert_int_equal(carton_escape(CARTON_ESCAPE_LABEL, s, n, out), n);
	assert_int_equal(strlen(out), c == '\n' || quoted ? 2 : hidden ? 5 * n : n);
	assert_true(!hidden || is_ascii_text(out));
}

static void test_each_code_point(void **state)
{
	struct buf buf = buf_init(64);

	(void)state;
	for (uint32_t c = 0; c <= 0x10ffff; c++)
		if (c < 0xd800 || c > 0xdfff)
			check_code(c, &buf);
	buf_finish(&buf);
}

static void test_not_utf8(void **state)
{
	static const struct {
		const char *s, *text, *label;
	} bad[] = {
		{ "\x9b", "\\x9b", "\xef\xbf\xbd" },	     /* C1 as one byte */
		{ "\xc2", "\\xc2", "\xef\xbf\xbd" },	     /* ends too early */
		{ "\xed\xa0\x80", "\\xed", "\xef\xbf\xbd" }, /* half of a surrogate pair */
		{ "\xc0\x9b", "\\xc0", "\xef\xbf\xbd" },     /* overlong */
		{ "\xf4\x90\x80\x80", "\\xf4", "\xef\xbf\xbd" },
		{ "\xff", "\\xff", "\xef\xbf\xbd" },
	};
	char out[CARTON_ESCAPE_SIZE];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		size_t n = strlen(bad[i].s);

		assert_int_equal(carton_escape(CARTON_ESCAPE_TEXT, bad[i].s, n, out), 1);
		assert_string_equal(out, bad[i].text);
		assert_int_equal(carton_escape(CARTON_ESCAPE_ALL, bad[i].s, n, out), 1);
		assert_string_equal(out, bad[i].text);
		assert_int_equal(carton_escape(CARTON_ESCAPE_JSON, bad[i].s, n, out), 1);
		assert_string_equal(out, "\xef\xbf\xbd");
		assert_int_equal(carton_escape(CARTON_ESCAPE_LABEL, bad[i].s, n, out), 1);
		assert_string_equal(out, bad[i].label);
	}
}

/* Not a byte behind the end is looked at. */
static void test_end(void **state)
{
	char out[CARTON_ESCAPE_SIZE];

	(void)state;
	assert_int_equal(carton_escape(CARTON_ESCAPE_TEXT, "\xe2\x80\x8b", 2, out), 1);
	assert_string_equal(out, "\\xe2");
	assert_int_equal(carton_escape(CARTON_ESCAPE_TEXT, "\xe2\x80\x8b", 3, out), 3);
	assert_string_equal(out, "\\xe2\\x80\\x8b");
	assert_int_equal(carton_escape(CARTON_ESCAPE_LABEL, "\xf3\xa0\x81\x81", 4, out), 4);
	assert_string_equal(out, "\\\\xf3\\\\xa0\\\\x81\\\\x81");
	assert_int_equal(carton_escape(CARTON_ESCAPE_JSON, "\xf3\xa0\x81\x81", 4, out), 4);
	assert_string_equal(out, "\\udb40\\udc41");
}

/* Runs of text that stays as it is, and what does not, in each order of three. */
static void test_runs_of_json(void **state)
{
	static const struct {
		const char *s, *json;
	} parts[] = {
		{ "plain, 1 \x7f", "plain, 1 \x7f" },
		{ "\"", "\\\"" },
		{ "\\", "\\\\" },
		{ "\r\n", "\\r\\n" },
		{ "\x01\x1f", "\\u0001\\u001f" },
		{ "\xc3\xa9\xe6\xa8\xa1\xf0\x9f\x98\x80", "\xc3\xa9\xe6\xa8\xa1\xf0\x9f\x98\x80" },
		{ "\xff", "\xef\xbf\xbd" },
		{ "\xe6\xa8", "\xef\xbf\xbd\xef\xbf\xbd" }, /* ends too early */
		{ "", "" },
	};
	const size_t n = ARRAY_SIZE(parts);

	(void)state;
	for (size_t i = 0; i < n * n * n; i++) {
		struct buf text = buf_init(256), want = buf_init(256), got = buf_init(256);
		const size_t order[] = { i / n / n, i / n % n, i % n };

		buf_adds(&want, "\"");
		for (size_t k = 0; k < ARRAY_SIZE(order); k++) {
			buf_adds(&text, parts[order[k]].s);
			buf_adds(&want, parts[order[k]].json);
		}
		buf_adds(&want, "\"");
		assert_int_equal(buf_add_json(&got, text.data, text.len), 0);
		assert_string_equal(got.data, want.data);
		buf_finish(&text);
		buf_finish(&want);
		buf_finish(&got);
	}
}

static char logged[4096];

static void on_log(void *ctx, enum carton_log_level level, const char *subject, const char *message)
{
	(void)ctx;
	(void)level;
	snprintf(logged, sizeof(logged), "%s|%s", subject, message);
}

static void test_log(void **state)
{
	(void)state;
	carton_log_set(on_log, NULL);
	carton_log(CARTON_LOG_ERROR, "a\xe2\x80\xae\x1b[2J", "zero\xe2\x80\x8bwidth %s",
		   "\xc2\x9b");
	carton_log_set(NULL, NULL);
	assert_string_equal(logged, "a\\xe2\\x80\\xae\\x1b[2J|zero\\xe2\\x80\\x8bwidth \\xc2\\x9b");
}

static void test_shell_word(void **state)
{
	static const struct {
		const char *text, *word;
	} words[] = {
		{ "a/b-1.x", "a/b-1.x" }, { "a b", "'a b'" }, { "it's", "'it'\\''s'" },
		{ "-x", "./-x" },	  { "", "''" },	      { "''", "''\\'''\\'''" },
	};
	char word[64], small[16];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		assert_string_equal(carton_shell_word(words[i].text, word, sizeof(word)),
				    words[i].word);
	/* cut: still a word, with its NUL */
	assert_string_equal(carton_shell_word("abcdefghijklmnop", small, sizeof(small)),
			    "abcdefghijklmno");
	assert_string_equal(carton_shell_word("''''''", small, sizeof(small)), "''\\'''\\'''\\'''");
	assert_string_equal(carton_shell_word("abcdefgh    ijk", small, sizeof(small)),
			    "'abcdefgh '");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_code_point),
		cmocka_unit_test(test_not_utf8),
		cmocka_unit_test(test_end),
		cmocka_unit_test(test_runs_of_json),
		cmocka_unit_test(test_log),
		cmocka_unit_test(test_shell_word),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
