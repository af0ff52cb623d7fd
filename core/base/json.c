/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

/* ---- bytes ---- */

static int fail(struct json *j, const char *fault)
{
	if (j->r == 0) {
		j->fault = fault;
		j->r = -EBADMSG;
	}
	return j->r;
}

/* The next byte, not consumed; -1 at the end and after a failure. */
static int peek(struct json *j)
{
	ssize_t got;

	if (j->at == j->n && j->r == 0) {
		got = j->read(j->ctx, j->own, sizeof(j->own));
		j->window = j->own;
		if (got < 0)
			j->r = (int)got;
		j->n = got < 0 ? 0 : (size_t)got;
		j->at = 0;
	}
	return j->at < j->n ? (unsigned char)j->window[j->at] : -1;
}

static int peek_token(struct json *j)
{
	int c = peek(j);

	for (; c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = peek(j))
		j->at++;
	return c;
}

static int unexpected(struct json *j, int c)
{
	return fail(j, c < 0		     ? "it ends too early" :
		       c < 0x20 || c == 0x7f ? "it has a control character between its tokens" :
					       "it has an unexpected character between its tokens");
}

static int add(struct json *j, const char *s, size_t n)
{
	int r = buf_add(j->text, s, n);

	if (r < 0 && j->r == 0)
		j->r = r;
	return j->r;
}

/* ---- strings ---- */

/* Checks the text added so far, except for a last character that may be incomplete. */
static int check_utf8(struct json *j, bool complete)
{
	const struct buf *b = j->text;

	for (size_t step; j->checked < b->len; j->checked += step) {
		j->checked += ascii_run(b->data + j->checked, b->len - j->checked);
		if (j->checked == b->len)
			break;
		if (!complete && b->len - j->checked < 4)
			break;
		step = utf8_step(b->data + j->checked, b->len - j->checked);
		if (step == 0)
			return fail(j, "it is not valid UTF-8");
	}
	return j->r;
}

/* The value of the four digits of a \u escape, or -EBADMSG. */
static int hex4(struct json *j)
{
	int v = 0;

	for (int i = 0; i < 4; i++, j->at++) {
		int digit = hex_value(peek(j));

		if (digit == 16)
			return fail(j, "it has a \\u escape without four hex digits");
		v = v << 4 | digit;
	}
	return v;
}

/* A surrogate without its other half: NUL, or a fault. */
static int half_of_pair(struct json *j)
{
	return j->halves ? add(j, "", 1) :
			   fail(j, "it has half of a surrogate pair in a \\u escape");
}

static int letter_escape(struct json *j)
{
	static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	int c = peek(j);
	const char *found = c > 0 ? strchr(letters, c) : NULL;

	if (c < 0)
		return unexpected(j, c);
	j->at++;
	return found ? add(j, &values[found - letters], 1) : fail(j, "it has an unknown escape");
}

static int code_escape(struct json *j)
{
	int c = hex4(j), low;
	char utf8[4];

	for (; c >= 0xd800 && c <= 0xdbff; c = low) {
		if (peek(j) != '\\')
			return half_of_pair(j);
		j->at++;
		if (peek(j) != 'u')
			return half_of_pair(j) < 0 ? j->r : letter_escape(j);
		j->at++;
		low = hex4(j);
		if (low >= 0xdc00 && low <= 0xdfff) {
			c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
			break;
		}
		if (low < 0 || half_of_pair(j) < 0)
			return j->r;
	}
	if (c < 0)
		return c;
	if (c >= 0xdc00 && c <= 0xdfff)
		return half_of_pair(j);
	return add(j, utf8, utf8_encode((uint32_t)c, utf8));
}

static int escape(struct json *j)
{
	if (peek(j) != 'u')
		return letter_escape(j);
	j->at++;
	return code_escape(j);
}

/*
 * Adds the bytes of the window up to a quote, a backslash or a control character, of which at least
 * one is there. Looks at RUN bytes: else each escape of a long text would cost a look at all of it.
 */
#define RUN 512
static int add_run(struct json *j)
{
	const char *s = j->window + j->at, *end;
	size_t n = MIN(j->n - j->at, (size_t)RUN), plain;

	end = memchr(s, '"', n);
	n = end ? (size_t)(end - s) : n;
	end = memchr(s, '\\', n);
	n = end ? (size_t)(end - s) : n;
	plain = ascii_run(s, n);
	while (plain < n && (unsigned char)s[plain] >= 0x20)
		plain += 1 + ascii_run(s + plain + 1, n - plain - 1);
	j->at += plain;
	return add(j, s, plain) < 0 ? j->r : check_utf8(j, false);
}

/* After the opening quote. */
static int string(struct json *j)
{
	j->checked = j->kept;
	for (int c = peek(j); c != '"'; c = peek(j)) {
		if (c >= 0 && c < 0x20)
			return fail(j, "it has a control character in a string");
		if (c < 0)
			return unexpected(j, c);
		if (c == '\\') {
			j->at++;
			if (escape(j) < 0)
				return j->r;
			continue;
		}
		if (add_run(j) < 0)
			return j->r;
	}
	j->at++;
	return check_utf8(j, true);
}

/* ---- numbers and names ---- */

static const char *digits(const char *s)
{
	const char *start = s;

	while (*s >= '0' && *s <= '9')
		s++;
	return s > start ? s : NULL;
}

static bool is_number(const char *s)
{
	s += *s == '-';
	s = *s == '0' ? s + 1 : digits(s);
	if (s && *s == '.')
		s = digits(s + 1);
	if (s && (*s | 0x20) == 'e')
		s = digits(s + 1 + (s[1] == '+' || s[1] == '-'));
	return s && *s == '\0';
}

static bool in_number(int c)
{
	return (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E';
}

static int number(struct json *j)
{
	while (in_number(peek(j))) {
		size_t from = j->at;

		while (j->at < j->n && in_number(j->window[j->at]))
			j->at++;
		if (add(j, j->window + from, j->at - from) < 0)
			return j->r;
	}
	if (j->r == 0 && !is_number(j->text->data + j->kept))
		return fail(j, "it has a malformed number");
	return j->r;
}

static int literal(struct json *j, const char *word)
{
	for (; *word; word++, j->at++)
		if (peek(j) != *word)
			return fail(j, "it has an unknown literal");
	return 0;
}

/* ---- structure ---- */

static bool in_object(const struct json *j)
{
	return j->depth > 0 && (j->objects >> (j->depth - 1) & 1);
}

/* After a value: its object or array goes on, or nothing may follow. */
static int leave(struct json *j)
{
	j->state = j->depth ? JSON_NEXT : JSON_DONE;
	return 0;
}

static int enter(struct json *j, bool object)
{
	if (j->depth == JSON_MAX_DEPTH)
		return fail(j, "it is nested too deeply");
	j->objects &= ~(1ULL << j->depth);
	j->objects |= (uint64_t)object << j->depth;
	j->depth++;
	j->state = JSON_FIRST;
	return 0;
}

static int value(struct json *j, int c, enum json_event *ret)
{
	enum json_event e = JSON_OTHER;
	int r;

	if (c == '"') {
		e = JSON_STRING;
		j->at++;
		r = string(j);
	} else if (c == '-' || (c >= '0' && c <= '9')) {
		e = JSON_NUMBER;
		r = number(j);
	} else if (c == 't' || c == 'f' || c == 'n') {
		e = c == 'n' ? JSON_NULL : JSON_OTHER;
		r = literal(j, c == 't' ? "true" : c == 'f' ? "false" : "null");
	} else if (c == '{' || c == '[') {
		j->at++;
		*ret = c == '{' ? JSON_OBJECT : JSON_ARRAY;
		return enter(j, c == '{');
	} else {
		return unexpected(j, c);
	}
	if (r < 0)
		return r;
	*ret = e;
	return leave(j);
}

static int key(struct json *j, int c, enum json_event *ret)
{
	if (c != '"')
		return unexpected(j, c);
	j->at++;
	if (string(j) < 0)
		return j->r;
	c = peek_token(j);
	if (c != ':')
		return unexpected(j, c);
	j->at++;
	j->state = JSON_VALUE;
	*ret = JSON_KEY;
	return 0;
}

static int end_of_text(struct json *j, enum json_event *ret)
{
	if (peek_token(j) >= 0)
		return fail(j, "it has more than white space after its value");
	if (j->r == 0)
		*ret = JSON_EOF;
	return j->r;
}

int json_next(struct json *j, enum json_event *ret)
{
	int c;

	if (j->r < 0)
		return j->r;
	j->text->len = j->kept;
	if (j->state == JSON_DONE)
		return end_of_text(j, ret);
	c = peek_token(j);
	if (j->state >= JSON_FIRST && c == (in_object(j) ? '}' : ']')) {
		j->at++;
		j->depth--;
		*ret = JSON_END;
		return leave(j);
	}
	if (j->state == JSON_NEXT) {
		if (c != ',')
			return unexpected(j, c);
		j->at++;
		c = peek_token(j);
	}
	if (j->state != JSON_VALUE && in_object(j))
		return key(j, c, ret);
	return value(j, c, ret);
}

const char *json_keep(struct json *j)
{
	size_t start = j->kept;

	if (buf_addc(j->text, '\0') < 0)
		return NULL;
	j->kept = j->text->len;
	return j->text->data + start;
}
