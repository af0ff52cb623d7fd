/* SPDX-License-Identifier: Apache-2.0 */
#include "common/text.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "log.h"

/* Writes `s` escaped. */
static void put(FILE *f, enum carton_escape style, const char *s)
{
	char shown[CARTON_ESCAPE_SIZE];

	while (*s) {
		s += carton_escape(style, s, strnlen(s, 4), shown);
		fputs(shown, f);
	}
}

char *text_format(char *ret, size_t n, const char *fmt, ...)
{
	char *text = NULL, shown[CARTON_ESCAPE_SIZE];
	size_t used = 0;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	for (const char *s = text; s && *s; used += strlen(shown)) {
		s += carton_escape(CARTON_ESCAPE_TEXT, s, strnlen(s, 4), shown);
		if (strlen(shown) >= n - used)
			break;
		strcpy(ret + used, shown);
	}
	ret[used] = '\0';
	free(text);
	return ret;
}

int text_close(FILE *memory, char **text)
{
	int failed = ferror(memory);

	if (fclose(memory) == 0 && !failed && *text)
		return 0;
	free(*text);
	*text = NULL;
	return -ENOMEM;
}

static void put_line(FILE *f, const char *text)
{
	put(f, CARTON_ESCAPE_TEXT, text);
	fputc('\n', f);
}

char *text_new_line(const char *fmt, va_list ap)
{
	char *text, *line = NULL;
	size_t n;
	FILE *memory;

	if (vasprintf(&text, fmt, ap) < 0)
		return NULL;
	memory = open_memstream(&line, &n);
	if (memory) {
		put_line(memory, text);
		text_close(memory, &line);
	}
	free(text);
	return line;
}

void text_vline(FILE *f, const char *fmt, va_list ap)
{
	char *line, begin[2048];
	va_list again;

	va_copy(again, ap);
	line = text_new_line(fmt, ap);
	/* stderr has no buffer: a line is one write(2); without memory, its beginning is several */
	if (line) {
		fputs(line, f);
	} else {
		vsnprintf(begin, sizeof(begin), fmt, again);
		put_line(f, begin);
	}
	va_end(again);
	free(line);
}

void text_line(FILE *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	text_vline(f, fmt, ap);
	va_end(ap);
}

static void put_quoted(FILE *f, enum carton_escape style, const char *s)
{
	fputc('"', f);
	put(f, style, s);
	fputc('"', f);
}

void json_string(FILE *f, const char *s)
{
	put_quoted(f, CARTON_ESCAPE_JSON, s);
}

void json_label(FILE *f, const char *s)
{
	put_quoted(f, CARTON_ESCAPE_LABEL, s);
}

void json_document(FILE *f, const char *s)
{
	char shown[CARTON_ESCAPE_SIZE];

	while (*s) {
		/* characters that JSON has between and in its strings */
		if (strchr("\"\\\n\t", *s)) {
			fputc(*s++, f);
		} else {
			s += carton_escape(CARTON_ESCAPE_JSON, s, strnlen(s, 4), shown);
			fputs(shown, f);
		}
	}
}

/* ---- reading JSON ---- */

/* Reads the \uNNNN at `s`; of the text behind it nothing, which sscanf() would measure first. */
static bool read_unit(const char *s, unsigned *ret)
{
	char unit[sizeof("\\uNNNN")];

	snprintf(unit, sizeof(unit), "%.6s", s);
	return sscanf(unit, "\\u%4x", ret) == 1;
}

/*
 * The character of the \uNNNN at `s`, or of two that are a surrogate pair. Returns the bytes of it;
 * 0: none.
 */
static size_t decode_code(const char *s, char ret[MB_LEN_MAX], size_t *ret_n)
{
	mbstate_t state = { 0 };
	unsigned c, low;
	size_t took = 6;

	if (strncmp(s, "\\u", 2) != 0 || !read_unit(s, &c) || c == 0)
		return 0;
	if (c >= 0xd800 && c < 0xdc00 && strnlen(s, 12) == 12 && read_unit(s + 6, &low) &&
	    low >= 0xdc00 && low < 0xe000) {
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
		took = 12;
	}
	*ret_n = wcrtomb(ret, (wchar_t)c, &state);
	return *ret_n == (size_t)-1 ? 0 : took;
}

void json_decode(const char *at, char *ret, size_t n)
{
	size_t len = 0;

	ret[0] = '\0';
	if (!at || *at++ != '"')
		return;
	while (*at && *at != '"') {
		char c[MB_LEN_MAX];
		size_t c_len = 1, took = strnlen(at, 6) == 6 ? decode_code(at, c, &c_len) : 0;

		if (took == 0) {
			at += *at == '\\' && at[1];
			c[0] = *at;
			took = c_len = 1;
		}
		if (len + c_len >= n)
			break;
		memcpy(ret + len, c, c_len);
		len += c_len;
		at += took;
	}
	ret[len] = '\0';
}
