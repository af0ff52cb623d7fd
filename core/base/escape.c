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

	while (i < ARRAY_SIZE(hidden) && c > hidden[i].last)
		i++;
	return i < ARRAY_SIZE(hidden) && c >= hidden[i].first;
}

/* \xNN for each byte; in a label with its backslash escaped. */
static void put_bytes(enum carton_escape style, const char *s, size_t n, char *ret)
{
	const char *more = style == CARTON_ESCAPE_LABEL ? "\\" : "";

	for (size_t i = 0; i < n; i++)
		ret += sprintf(ret, "%s\\x%02x", more, (unsigned)(uint8_t)s[i]);
}

/* \uNNNN, or two of them. */
static void put_code(uint32_t c, char *ret)
{
	if (c < 0x10000)
		sprintf(ret, "\\u%04x", (unsigned)c);
	else
		sprintf(ret, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((c - 0x10000) >> 10)),
			(unsigned)(0xdc00 + (c & 0x3ff)));
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
		sprintf(ret, "\\%c", letters[found - names]);
	else if ((unsigned char)*s < 0x20)
		put_code((unsigned char)*s, ret);
	else
		sprintf(ret, "%.*s", (int)step, s);
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
		memcpy(ret, s, step);
		ret[step] = '\0';
	} else if (step == 0 && style >= CARTON_ESCAPE_JSON) {
		strcpy(ret, "\xef\xbf\xbd");
	} else if (is_quoted(style, *s)) {
		sprintf(ret, "\\%c", *s);
	} else if (style == CARTON_ESCAPE_JSON) {
		put_code(c, ret);
	} else if (style == CARTON_ESCAPE_LABEL && *s == '\n') {
		strcpy(ret, "\\n");
	} else {
		put_bytes(style, s, step ? step : 1, ret);
	}
	return step ? step : 1;
}

int buf_add_json_part(struct buf *b, const char *s, size_t n)
{
	char shown[CARTON_ESCAPE_SIZE];

	while (n > 0 && !b->error) {
		size_t step = escape_json(s, n, shown);

		buf_adds(b, shown);
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
