/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as text that is shown: only plain characters come out, and JSON gives back what went
 * in.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/util.h"

#include "fuzz.h"

#define TEXT_MAX 4096

struct text {
	char data[TEXT_MAX * CARTON_ESCAPE_SIZE + 2];
	size_t len, at;
};

static void add(struct text *t, const char *s)
{
	size_t n = strlen(s);

	memcpy(t->data + t->len, s, n);
	t->len += n;
}

static void escape(struct text *t, enum carton_escape style, const char *s, size_t n)
{
	char out[CARTON_ESCAPE_SIZE];

	t->len = t->at = 0;
	for (size_t i = 0, step; i < n; i += step) {
		step = carton_escape(style, s + i, n - i, out);
		CHECK(step >= 1 && step <= n - i && strlen(out) < sizeof(out));
		add(t, out);
	}
}

/* Escaping it again changes nothing: nothing is left that a terminal obeys. */
static void check_plain(const struct text *t)
{
	char out[CARTON_ESCAPE_SIZE];

	for (size_t i = 0, step; i < t->len; i += step) {
		step = carton_escape(CARTON_ESCAPE_TEXT, t->data + i, t->len - i, out);
		CHECK(strlen(out) == step && memcmp(out, t->data + i, step) == 0);
		CHECK((unsigned char)out[0] >= 0x20 && out[0] != 0x7f);
	}
}

static ssize_t read_text(void *ctx, void *ret_buf, size_t n)
{
	struct text *t = ctx;

	n = MIN(n, t->len - t->at);
	memcpy(ret_buf, t->data + t->at, n);
	t->at += n;
	return (ssize_t)n;
}

/* The JSON string has the same text, with U+FFFD for what is not UTF-8. */
static void check_json(struct text *t, const char *s, size_t n)
{
	static struct json j;
	struct buf back = buf_init(4 * TEXT_MAX), want = buf_init(4 * TEXT_MAX);
	enum json_event e;

	memmove(t->data + 1, t->data, t->len);
	t->data[0] = t->data[t->len + 1] = '"';
	t->len += 2;
	j = (struct json){ .read = read_text, .ctx = t, .text = &back };
	CHECK(json_next(&j, &e) == 0 && e == JSON_STRING);
	for (size_t i = 0, step; i < n; i += step ? step : 1) {
		step = utf8_step(s + i, n - i);
		buf_add(&want, step ? s + i : "\xef\xbf\xbd", step ? step : 3);
	}
	CHECK(back.len == want.len && (want.len == 0 || !memcmp(back.data, want.data, want.len)));
	buf_finish(&back);
	buf_finish(&want);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct text t;
	const char *s = (const char *)data;
	size_t n = MIN(size, TEXT_MAX);

	escape(&t, CARTON_ESCAPE_TEXT, s, n);
	check_plain(&t);
	escape(&t, CARTON_ESCAPE_LABEL, s, n);
	check_plain(&t);
	escape(&t, CARTON_ESCAPE_JSON, s, n);
	check_plain(&t);
	check_json(&t, s, n);
	return 0;
}
