/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Escapes text from a carton, a server or a user before it is shown. No other file decides which
 * characters may be shown.
 */
#include <stdio.h>

#include "base/util.h"

/*
 * Characters that a terminal obeys, that reorder or end a line, or that nobody sees, so that two
 * names could look the same: controls, line separators, and what Unicode calls
 * Default_Ignorable_Code_Point. Sorted.
 */
static const struct {
	uint32_t first, last;
} hidden[] = {
	{ 0x0000, 0x001f },   /* C0 */
	{ 0x007f, 0x009f },   /* DEL, C1 */
	{ 0x00ad, 0x00ad },   /* soft hyphen */
	{ 0x034f, 0x034f },   /* combining grapheme joiner */
	{ 0x061c, 0x061c },   /* Arabic letter mark, which reorders */
	{ 0x115f, 0x1160 },   /* Hangul fillers */
	{ 0x17b4, 0x17b5 },   /* Khmer inherent vowels */
	{ 0x180b, 0x180f },   /* Mongolian separators */
	{ 0x200b, 0x200f },   /* zero width, direction marks */
	{ 0x2028, 0x202e },   /* line and paragraph separators, direction */
	{ 0x2060, 0x206f },   /* word joiner, invisible operators, direction */
	{ 0x3164, 0x3164 },   /* Hangul filler */
	{ 0xfe00, 0xfe0f },   /* variation selectors */
	{ 0xfeff, 0xfeff },   /* byte order mark */
	{ 0xffa0, 0xffa0 },   /* Hangul filler */
	{ 0xfff0, 0xfffb },   /* annotations */
	{ 0x1bca0, 0x1bca3 }, /* shorthand format controls */
	{ 0x1d173, 0x1d17a }, /* musical format controls */
	{ 0xe0000, 0xe0fff }, /* tags, variation selectors */
};

static bool is_hidden(uint32_t c)
{
	size_t i = 0;

	if (c >= 0x20 && c < 0x7f)
		return false;
	while (i < ARRAY_SIZE(hidden) && c > hidden[i].last)
		i++;
	return i < ARRAY_SIZE(hidden) && c >= hidden[i].first;
}

/* \xNN for each byte; in a label with its backslash escaped. */
static void put_bytes(enum carton_escape style, const char *s, size_t n, char *ret)
{
	const char *more = style == CARTON_ESCAPE_LABEL ? "\\" : "";

	for (size_t i = 0; i < n; i++) {
		ret = stpcpy(stpcpy(ret, more), "\\x");
		hex_encode((const uint8_t *)s + i, 1, ret);
		ret += 2;
	}
}

/* \uNNNN, or two of them. */
static void put_code(uint32_t c, char *ret)
{
	uint32_t first = c < 0x10000 ? c : 0xd800 + ((c - 0x10000) >> 10);
	const uint8_t unit[] = { (uint8_t)(first >> 8), (uint8_t)first };

	hex_encode(unit, sizeof(unit), stpcpy(ret, "\\u"));
	if (c >= 0x10000)
		put_code(0xdc00 + (c & 0x3ff), ret + 6);
}

/* The character, perhaps behind a backslash. */
static void put_plain(const char *before, const char *s, size_t n, char *ret)
{
	ret = stpcpy(ret, before);
	memcpy(ret, s, n);
	ret[n] = '\0';
}

static bool is_quoted(enum carton_escape style, char c)
{
	return style >= CARTON_ESCAPE_JSON && (c == '"' || c == '\\');
}

/* The character at `s` in a string of JSON. Returns its bytes in `s`. */
static size_t escape_json(const char *s, size_t n, char ret[CARTON_ESCAPE_SIZE])
{
	static const char names[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
	const char *found = *s ? strchr(names, *s) : NULL;
	size_t step = utf8_step(s, n);

	if (step == 0)
		strcpy(ret, "\xef\xbf\xbd");
	else if (found)
		put_plain("\\", &letters[found - names], 1, ret);
	else if ((unsigned char)*s < 0x20)
		put_code((unsigned char)*s, ret);
	else
		put_plain("", s, step, ret);
	return step ? step : 1;
}

size_t carton_escape(enum carton_escape style, const char *s, size_t n,
		     char ret[CARTON_ESCAPE_SIZE])
{
	size_t step = utf8_step(s, n);
	uint32_t c = step ? utf8_code(s, step) : 0;

	/* what a terminal obeys or nobody sees is escaped in JSON, too, which does not need it */
	if (style == CARTON_ESCAPE_JSON && !(step && is_hidden(c)))
		return escape_json(s, n, ret);
	if (step && style != CARTON_ESCAPE_ALL && !is_hidden(c) && !is_quoted(style, *s)) {
		put_plain("", s, step, ret);
	} else if (step == 0 && style >= CARTON_ESCAPE_JSON) {
		strcpy(ret, "\xef\xbf\xbd");
	} else if (is_quoted(style, *s)) {
		put_plain("\\", s, 1, ret);
	} else if (style == CARTON_ESCAPE_JSON) {
		put_code(c, ret);
	} else if (style == CARTON_ESCAPE_LABEL && *s == '\n') {
		strcpy(ret, "\\n");
	} else {
		put_bytes(style, s, step ? step : 1, ret);
	}
	return step ? step : 1;
}

/* How many bytes at the start of [s, s+n) are characters that a string of JSON has as they are. */
static size_t json_run(const char *s, size_t n)
{
	size_t at = 0, step = 1;

	for (; at < n && step > 0; at += step) {
		unsigned char c = (unsigned char)s[at];

		if (c >= 0x80)
			step = utf8_step(s + at, n - at);
		else
			step = c >= 0x20 && c != '"' && c != '\\';
	}
	return at;
}

int buf_add_json_part(struct buf *b, const char *s, size_t n)
{
	char shown[CARTON_ESCAPE_SIZE];

	while (n > 0 && !b->error) {
		size_t step = json_run(s, n);

		if (step > 0) {
			buf_add(b, s, step);
		} else {
			step = escape_json(s, n, shown);
			buf_adds(b, shown);
		}
		s += step;
		n -= step;
	}
	return b->error;
}

int buf_add_json(struct buf *b, const char *s, size_t n)
{
	buf_addc(b, '"');
	buf_add_json_part(b, s, n);
	return buf_addc(b, '"');
}

char *carton_shell_word(const char *s, char *ret, size_t n)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789/._-+,:@%=";
	static const char quote[] = "'\\''";
	const char *before = *s == '-' ? "./" : ""; /* the command takes the word for no option */
	bool quoted = !*s || s[strspn(s, plain)];
	size_t at = 0, room = n - (quoted ? sizeof(quote) + 1 : 1);

	at += (size_t)snprintf(ret, n, "%s%s", quoted ? "'" : "", before);
	for (; *s && at < room; s++) {
		if (*s == '\'')
			at += (size_t)snprintf(ret + at, n - at, "%s", quote);
		else
			ret[at++] = *s;
	}
	snprintf(ret + at, n - at, "%s", quoted ? "'" : "");
	return ret;
}
