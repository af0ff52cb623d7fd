/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as TOML. The events must be well formed (brackets pair, strings are UTF-8 and end in a
 * NUL), and the way the text is cut into reads must not matter.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "toml/toml.h"
#include "base/util.h"

#include "fuzz.h"

struct seen {
	uint64_t sum; /* of all events */
	size_t open;
};

static void add(struct seen *seen, const void *data, size_t n)
{
	const uint8_t *p = data;

	for (; n; n--)
		seen->sum = (seen->sum ^ *p++) * 0x100000001b3ULL;
}

static void add_path(struct seen *seen, const struct toml_path *path)
{
	size_t i;

	for (i = 0; i < path->n; i++) {
		const struct toml_step *step = &path->steps[i];

		if (step->key) {
			CHECK(step->key[step->len] == '\0' && utf8_valid(step->key, step->len));
			add(seen, step->key, step->len + 1);
		} else {
			add(seen, &step->index, sizeof(step->index));
		}
	}
}

static int on_begin(void *ctx, const struct toml_path *path, enum toml_type type, size_t line)
{
	struct seen *seen = ctx;

	CHECK(path->n && line);
	CHECK(type == TOML_TABLE || type == TOML_ARRAY);
	add_path(seen, path);
	add(seen, &line, sizeof(line));
	seen->open++;
	return 0;
}

static int on_end(void *ctx, const struct toml_path *path, enum toml_type type)
{
	struct seen *seen = ctx;

	CHECK(path->n && seen->open);
	add_path(seen, path);
	add(seen, &type, sizeof(type));
	seen->open--;
	return 0;
}

static int on_value(void *ctx, const struct toml_path *path, const struct toml_value *value)
{
	struct seen *seen = ctx;

	CHECK(path->n && path->steps[0].key);
	add_path(seen, path);
	add(seen, &value->type, sizeof(value->type));
	add(seen, &value->line, sizeof(value->line));
	if (value->str) {
		CHECK(value->str[value->len] == '\0' && utf8_valid(value->str, value->len));
		add(seen, value->str, value->len);
	}
	add(seen, &value->integer, sizeof(value->integer));
	return 0;
}

struct pieces {
	const uint8_t *data;
	size_t n;
	size_t piece;
};

static ssize_t read_pieces(void *ctx, void *ret_buf, size_t n)
{
	struct pieces *p = ctx;

	n = MIN(MIN(n, p->n), p->piece);
	if (n)
		memcpy(ret_buf, p->data, n);
	p->data += n;
	p->n -= n;
	return (ssize_t)n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct toml_events events = {
		.begin = on_begin,
		.end = on_end,
		.value = on_value,
	};
	struct seen whole = { 0 }, cut = { 0 };
	struct pieces pieces = { data, n, n ? 1 + data[0] % 16 : 1 };
	struct reason error, cut_error;
	int r = toml_parse_mem((const char *)data, n, &events, &whole, &error);

	CHECK(r == 0 || r == -EBADMSG || r == -EFBIG);
	CHECK(!r == !*error.text && !r == !error.line);
	CHECK(toml_parse(read_pieces, &pieces, &events, &cut, &cut_error) == r);
	CHECK(whole.sum == cut.sum && whole.open == cut.open);
	CHECK(error.line == cut_error.line && !strcmp(error.text, cut_error.text));
	return 0;
}
