/* SPDX-License-Identifier: Apache-2.0 */
#include "import/scan.h"

#include <stdlib.h>

#include "base/limits.h"

struct scan *scan_new(const char *text, size_t n)
{
	struct scan *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	/* all of it is read where it is */
	s->json.window = text;
	s->json.n = n;
	s->token = buf_init(MAX_LISTING_PAGE);
	s->json.read = mem_text_read;
	s->json.ctx = &s->none;
	s->json.text = &s->token;
	s->json.halves = true;
	return s;
}

void scan_free(struct scan *s)
{
	if (!s)
		return;
	buf_finish(&s->token);
	free(s);
}

static int next(struct scan *s, enum json_event *ret)
{
	return json_next(&s->json, ret);
}

bool scan_is(const struct scan *s, const char *text)
{
	const struct json *j = &s->json;

	return json_text_len(j) == strlen(text) &&
	       memcmp(j->text->data + j->kept, text, strlen(text)) == 0;
}

/* Goes on until the end of what `e` has begun at that depth. */
static int leave(struct scan *s, enum json_event e, unsigned depth)
{
	int r = 0;

	if (e != JSON_OBJECT && e != JSON_ARRAY)
		return 0;
	while (r == 0 && s->json.depth > depth)
		r = next(s, &e);
	return r;
}

int scan_skip(struct scan *s)
{
	unsigned depth = s->json.depth;
	enum json_event e;
	int r = next(s, &e);

	return r < 0 ? r : leave(s, e, depth);
}

int scan_begin(struct scan *s, enum json_event what)
{
	unsigned depth = s->json.depth;
	enum json_event e;
	int r = next(s, &e);

	if (r == 0 && e == what)
		return 1;
	return r < 0 ? r : leave(s, e, depth);
}

int scan_item(struct scan *s)
{
	for (;;) {
		unsigned depth = s->json.depth;
		enum json_event e;
		int r = next(s, &e);

		if (r < 0 || e == JSON_END || e == JSON_OBJECT)
			return r < 0 ? r : e == JSON_OBJECT;
		r = leave(s, e, depth);
		if (r < 0)
			return r;
	}
}

int scan_key(struct scan *s)
{
	enum json_event e;
	int r = next(s, &e);

	return r < 0 ? r : e == JSON_KEY;
}

int scan_string(struct scan *s, char *ret, size_t n)
{
	int r = scan_begin(s, JSON_STRING);
	size_t len = json_text_len(&s->json);
	const char *text;

	if (r <= 0)
		return r;
	text = s->token.data + s->json.kept;
	if (len >= n || memchr(text, '\0', len))
		return 0;
	memcpy(ret, text, len);
	ret[len] = '\0';
	return 1;
}

int scan_name(struct scan *s, char *ret, size_t n)
{
	int r = scan_begin(s, JSON_STRING);
	size_t len = MIN(json_text_len(&s->json), n - 1);

	if (r <= 0)
		return r;
	memcpy(ret, s->token.data + s->json.kept, len);
	ret[len] = '\0';
	for (size_t i = 0; i < len; i++)
		if (!ret[i])
			ret[i] = '\1';
	return 1;
}

int scan_take(struct scan *s, struct buf *ret)
{
	int r = scan_begin(s, JSON_STRING);

	if (r <= 0)
		return r;
	*ret = s->token;
	s->token = buf_init(ret->max);
	return 1;
}

int scan_string_item(struct scan *s, char *ret, size_t n)
{
	unsigned depth = s->json.depth;
	int r;

	*ret = '\0';
	r = scan_string(s, ret, n);
	return r == 0 && s->json.depth == depth ? 1 : r;
}

int scan_number(struct scan *s, uint64_t *ret)
{
	int r = scan_begin(s, JSON_NUMBER);
	size_t len = json_text_len(&s->json);
	uint64_t v = 0;

	if (r <= 0)
		return r;
	for (size_t i = 0; i < len; i++) {
		char c = s->token.data[s->json.kept + i];

		if (c < '0' || c > '9' || v > (INT64_MAX - 9) / 10)
			return 0;
		v = 10 * v + (uint64_t)(c - '0');
	}
	*ret = v;
	return 1;
}
