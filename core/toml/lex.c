/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>

#include "toml/internal.h"

/* ---- errors ---- */

int toml_fail(struct toml_lexer *lex, int error, const char *fmt, ...)
{
	char *p = lex->error.text;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p, sizeof(lex->error.text), fmt, ap);
	va_end(ap);
	for (; *p; p++)
		if (*p < 0x20 || *p > 0x7e)
			*p = '?';
	lex->error.line = lex->in.line;
	return error;
}

int toml_unexpected(struct toml_lexer *lex, int c, const char *wanted)
{
	if (!c)
		return toml_fail(lex, -EBADMSG, "expected %s, found the end of the text", wanted);
	if (c == '\n')
		return toml_fail(lex, -EBADMSG, "expected %s, found the end of the line", wanted);
	if (c < 0x20 || c > 0x7e)
		return toml_fail(lex, -EBADMSG, "expected %s, found byte 0x%02x", wanted,
				 (unsigned)c);
	return toml_fail(lex, -EBADMSG, "expected %s, found '%c'", wanted, c);
}

int toml_limit(struct toml_lexer *lex, int error, const char *what)
{
	return error == -EFBIG ? toml_fail(lex, error, "%s", what) : error;
}

/* ---- bytes ---- */

int toml_refill(struct toml_lexer *lex)
{
	int r = toml_input_fill(&lex->in);

	if (r < 0 && lex->in.fault)
		return toml_fail(lex, r, "%s", lex->in.fault);
	return r <= 0 ? r : (unsigned char)*lex->in.p;
}

int toml_skip_blanks(struct toml_lexer *lex)
{
	int c;

	while ((c = toml_peek(lex)) == ' ' || c == '\t')
		lex->in.p++;
	return c;
}

static int skip_comment(struct toml_lexer *lex)
{
	int c;

	while ((c = toml_peek(lex)) > 0 && c != '\n')
		lex->in.p += strcspn(lex->in.p, "\n");
	return c;
}

int toml_skip_space(struct toml_lexer *lex)
{
	int c;

	for (;;) {
		c = toml_skip_blanks(lex);
		if (c == '#')
			c = skip_comment(lex);
		if (c != '\n')
			return c;
		lex->in.p++;
		lex->in.line++;
	}
}

int toml_end_of_line(struct toml_lexer *lex)
{
	int c = toml_skip_blanks(lex);

	if (c == '#')
		c = skip_comment(lex);
	if (c < 0)
		return c;
	if (c && c != '\n')
		return toml_unexpected(lex, c, "the end of the line");
	if (c) {
		lex->in.p++;
		lex->in.line++;
	}
	return 0;
}

/* ---- strings ---- */

#define STOP_BASIC 1
#define STOP_LITERAL 2

static const uint8_t stops[256] = {
	['\0'] = STOP_BASIC | STOP_LITERAL,
	['\n'] = STOP_BASIC | STOP_LITERAL,
	['"'] = STOP_BASIC,
	['\\'] = STOP_BASIC,
	['\''] = STOP_LITERAL,
};

static inline char *find_stop(char *p, uint8_t mask)
{
	while (!(stops[(unsigned char)*p] & mask))
		p++;
	return p;
}

static int add_text(struct toml_lexer *lex, const char *s, size_t n)
{
	return n ? toml_limit(lex, buf_add(&lex->text, s, n), "a string that is too long") : 0;
}

/* The `n` hexadecimal digits of \uXXXX or \UXXXXXXXX. */
static int escape_code(struct toml_lexer *lex, int n)
{
	uint32_t v = 0;
	char utf8[4];
	size_t len;
	int c;

	for (; n; n--, lex->in.p++) {
		c = toml_peek(lex);
		if (c < 0)
			return c;
		if (hex_value(c) == 16)
			return toml_unexpected(lex, c, "a hexadecimal digit");
		v = v << 4 | (uint32_t)hex_value(c);
	}
	if (v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff))
		return toml_fail(lex, -EBADMSG, "U+%04X is not a character", v);
	len = utf8_encode(v, utf8);
	return add_text(lex, utf8, len);
}

/* A backslash at the end of a line: skips it and all white space after it. */
static int escape_newline(struct toml_lexer *lex)
{
	int c = toml_skip_blanks(lex);

	if (c < 0)
		return c;
	if (c != '\n')
		return toml_unexpected(lex, c, "the end of the line after a backslash");
	while (c == '\n') {
		lex->in.p++;
		lex->in.line++;
		c = toml_skip_blanks(lex);
	}
	return c < 0 ? c : 0;
}

/* An escape sequence, at its backslash. */
static int escape(struct toml_lexer *lex, bool multi)
{
	static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
	const char *found;
	int c;

	lex->in.p++;
	c = toml_peek(lex);
	if (c < 0)
		return c;
	if (multi && (c == ' ' || c == '\t' || c == '\n'))
		return escape_newline(lex);
	found = c ? strchr(from, c) : NULL;
	if (!found && c != 'u' && c != 'U')
		return toml_unexpected(lex, c, "an escape sequence");
	lex->in.p++;
	return found ? add_text(lex, &to[found - from], 1) : escape_code(lex, c == 'u' ? 4 : 8);
}

/* A string on one line, after its opening quote. */
static int line_string(struct toml_lexer *lex, int quote, char **ret_s, size_t *ret_n)
{
	uint8_t mask = quote == '"' ? STOP_BASIC : STOP_LITERAL;
	char *start = lex->in.p, *p;
	int r;

	for (;;) {
		p = lex->in.p = find_stop(lex->in.p, mask);
		if (*p == quote)
			break;
		r = add_text(lex, start, (size_t)(p - start));
		if (r < 0)
			return r;
		if (*p == '\n')
			return toml_unexpected(lex, '\n', "the end of the string");
		if (*p == '\\') {
			r = escape(lex, false);
		} else {
			r = toml_refill(lex);
			if (!r)
				r = toml_unexpected(lex, 0, "the end of the string");
		}
		if (r < 0)
			return r;
		start = lex->in.p;
	}
	lex->in.p++;
	*ret_s = start; /* in place; the closing quote becomes its NUL */
	*ret_n = (size_t)(p - start);
	*p = '\0';
	if (lex->text.len) {
		r = add_text(lex, start, (size_t)(p - start));
		if (r < 0)
			return r;
		*ret_s = lex->text.data;
		*ret_n = lex->text.len;
	}
	return 0;
}

/* Consumes up to `max` quotes. Returns how many, or an error. */
static int take_quotes(struct toml_lexer *lex, int quote, int max)
{
	int c = 0, n = 0;

	for (; n < max && (c = toml_peek(lex)) == quote; n++)
		lex->in.p++;
	return c < 0 ? c : n;
}

/* A multi-line string, after its three opening quotes. */
static int multi_string(struct toml_lexer *lex, int quote, char **ret_s, size_t *ret_n)
{
	static const char quotes[] = "\"\"\"\"\"''''";
	uint8_t mask = quote == '"' ? STOP_BASIC : STOP_LITERAL;
	int c = toml_peek(lex), n, r;
	char *start;

	if (c == '\n') {
		lex->in.p++;
		lex->in.line++;
	}
	for (;;) {
		c = toml_peek(lex);
		if (c < 0)
			return c;
		if (!c)
			return toml_unexpected(lex, 0, "the end of the string");
		start = lex->in.p;
		lex->in.p = find_stop(start, mask);
		if (*lex->in.p == '\n') {
			lex->in.p++;
			lex->in.line++;
		}
		r = add_text(lex, start, (size_t)(lex->in.p - start));
		if (r < 0)
			return r;
		if (*lex->in.p == '\\' && quote == '"')
			r = escape(lex, true);
		if (r < 0)
			return r;
		if (*lex->in.p != quote)
			continue;
		n = take_quotes(lex, quote, 5);
		if (n < 0)
			return n;
		r = add_text(lex, quote == '"' ? quotes : quotes + 5, (size_t)(n < 3 ? n : n - 3));
		if (r < 0)
			return r;
		if (n >= 3)
			break;
	}
	*ret_s = lex->text.len ? lex->text.data : (char *)"";
	*ret_n = lex->text.len;
	return 0;
}

int toml_string(struct toml_lexer *lex, bool may_be_multi, char **ret_s, size_t *ret_n)
{
	int quote = (unsigned char)*lex->in.p++;
	int c = toml_peek(lex);

	lex->text.len = 0;
	if (c < 0)
		return c;
	if (c != quote)
		return line_string(lex, quote, ret_s, ret_n);
	lex->in.p++;
	c = may_be_multi ? toml_peek(lex) : 0;
	if (c < 0)
		return c;
	if (c == quote) {
		lex->in.p++;
		return multi_string(lex, quote, ret_s, ret_n);
	}
	*ret_s = (char *)"";
	*ret_n = 0;
	return 0;
}

/* ---- keys and scalars ---- */

static inline bool is_bare(int c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '-';
}

int toml_key_part(struct toml_lexer *lex, struct buf *ret)
{
	int c = toml_peek(lex), r = 0;
	char *s;
	size_t n;

	ret->len = 0;
	if (c == '"' || c == '\'') {
		r = toml_string(lex, false, &s, &n);
		if (!r && n)
			r = toml_limit(lex, buf_add(ret, s, n), "a key that is too long");
		return r ? r : toml_skip_blanks(lex);
	}
	if (c > 0 && !is_bare(c))
		return toml_unexpected(lex, c, "a key");
	while (c > 0 && is_bare(c)) {
		for (s = lex->in.p, n = 0; is_bare((unsigned char)s[n]); n++)
			;
		r = toml_limit(lex, buf_add(ret, s, n), "a key that is too long");
		if (r < 0)
			return r;
		lex->in.p += n;
		c = toml_peek(lex);
	}
	if (!c && !ret->len)
		return toml_unexpected(lex, 0, "a key");
	return c < 0 ? c : toml_skip_blanks(lex);
}

static inline bool is_scalar(int c)
{
	return is_bare(c) || c == '+' || c == '.' || c == ':';
}

int toml_scalar_bytes(struct toml_lexer *lex, char *text, size_t *n)
{
	int c;

	while ((c = toml_peek(lex)) > 0 && is_scalar(c)) {
		if (*n == TOML_MAX_NUMBER)
			return toml_fail(lex, -EFBIG, "a number that is too long");
		text[(*n)++] = (char)c;
		lex->in.p++;
	}
	return c;
}
