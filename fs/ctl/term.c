/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/term.h"

#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "log.h"
#include "common/bar.h"

#define MIN_COLUMNS 40

static struct {
	bool tty, color, utf8;
	FILE *out;
} term;

void term_open(void)
{
	const char *no_color = getenv("NO_COLOR"), *type = getenv("TERM");

	term.out = stdout;
	term.tty = isatty(STDOUT_FILENO);
	term.color = term.tty && !(no_color && *no_color) && type && strcmp(type, "dumb") != 0;
	term.utf8 = setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	/* for wcwidth(): names in a carton are UTF-8, whatever the locale is */
	setlocale(LC_CTYPE, "C.UTF-8");
}

void term_to(FILE *f)
{
	term.out = f;
}

bool term_is_tty(void)
{
	return term.tty;
}

unsigned term_columns(unsigned otherwise)
{
	struct winsize size;

	if (!term.tty)
		return otherwise;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
		return 80;
	return size.ws_col < MIN_COLUMNS ? MIN_COLUMNS : size.ws_col;
}

void term_style(enum term_style style)
{
	static const char *const codes[] = {
		[TERM_PLAIN] = "0", [TERM_TITLE] = "1", [TERM_FAINT] = "2",  [TERM_DIR] = "1;34",
		[TERM_LINK] = "36", [TERM_GOOD] = "32", [TERM_BAD] = "1;31", [TERM_BAR] = "34",
	};

	if (term.color)
		fprintf(term.out, "\033[%sm", codes[style]);
}

const char *term_symbol(const char *text, const char *ascii)
{
	return term.utf8 ? text : ascii;
}

/* ---- characters ---- */

/* One character as it is printed. */
struct glyph {
	char text[CARTON_ESCAPE_SIZE]; /* printable, NUL-terminated */
	unsigned width;
};

/* Decodes the character at `s`, which is not the NUL. Returns its length in bytes. */
static size_t next_glyph(const char *s, struct glyph *ret)
{
	mbstate_t state = { 0 };
	wchar_t c;
	int width = mbrtowc(&c, s, strnlen(s, 4), &state) <= 4 ? wcwidth(c) : -1;
	/* a character without a known width is escaped too */
	size_t n = carton_escape(width < 0 ? CARTON_ESCAPE_ALL : CARTON_ESCAPE_TEXT, s,
				 strnlen(s, 4), ret->text);
	size_t len = strlen(ret->text);

	ret->width = len == n ? (unsigned)width : (unsigned)len;
	return n;
}

unsigned term_width(const char *s)
{
	unsigned width = 0;
	struct glyph g;

	while (*s) {
		s += next_glyph(s, &g);
		width += g.width;
	}
	return width;
}

/* Prints as much of `s` as fits in `width` columns. Returns the number of columns left. */
static unsigned put_up_to(const char *s, unsigned width)
{
	struct glyph g;

	while (*s) {
		s += next_glyph(s, &g);
		if (g.width > width)
			break;
		width -= g.width;
		fputs(g.text, term.out);
	}
	return width;
}

void term_put(const char *s)
{
	put_up_to(s, UINT32_MAX);
}

/* The start of the longest end of `s` that fits in `width` columns. */
static const char *end_of(const char *s, unsigned all, unsigned width)
{
	struct glyph g;

	while (all > width) {
		s += next_glyph(s, &g);
		all -= g.width;
	}
	/* skips the accents of a character that is left out */
	for (size_t n; *s && (n = next_glyph(s, &g)) && g.width == 0;)
		s += n;
	return s;
}

/* Returns the columns that are left. */
static unsigned put_short(const char *s, unsigned width)
{
	unsigned all = term_width(s), tail = width * 2 / 3, left;
	const char *dots = term_symbol("…", "~");

	if (all <= width)
		return put_up_to(s, width);
	if (width < 8)
		return put_up_to(s, width);
	/* the end of a path says more than its start */
	left = put_up_to(s, width - 1 - tail) + tail;
	fputs(dots, term.out);
	return put_up_to(end_of(s, all, left), left);
}

void term_short(const char *s, unsigned width)
{
	put_short(s, width);
}

void term_spaces(unsigned n)
{
	fprintf(term.out, "%*s", (int)n, "");
}

void term_cell(const char *s, unsigned width)
{
	term_spaces(put_short(s, width));
}

/* ---- paragraphs ---- */

/* The columns of the word at `s`; *ret_end is behind it. */
static unsigned word_width(const char *s, const char **ret_end)
{
	unsigned width = 0;
	struct glyph g;

	while (*s && !strchr(" \t\n", *s)) {
		s += next_glyph(s, &g);
		width += g.width;
	}
	*ret_end = s;
	return width;
}

/*
 * Prints the word, which begins `at` columns behind the indentation. At a terminal, one that is
 * longer than a line is broken, where the terminal would break it to its first column. Returns the
 * columns behind the indentation.
 */
static unsigned put_word(const char *s, const char *end, unsigned at, unsigned indent,
			 unsigned width)
{
	struct glyph g;

	while (s < end) {
		s += next_glyph(s, &g);
		if (term.tty && at > 0 && indent + at + g.width > width) {
			fprintf(term.out, "\n%*s", (int)indent, "");
			at = 0;
		}
		fputs(g.text, term.out);
		at += g.width;
	}
	return at;
}

/* The columns of the spaces at *s, which are skipped; a tab counts as one. */
static unsigned skip_spaces(const char **s)
{
	unsigned n = 0;

	for (; **s == ' ' || **s == '\t'; (*s)++)
		n++;
	return n;
}

void term_wrap(const char *s, unsigned indent, unsigned width)
{
	unsigned at = 0, own = skip_spaces(&s), gap = own;

	while (*s) {
		const char *end;
		unsigned n = word_width(s, &end);

		if (*s == '\n') {
			fputc('\n', term.out);
			s++;
			at = 0;
			own = gap = skip_spaces(&s);
			if (*s && *s != '\n')
				term_spaces(indent);
			continue;
		}
		if (at > 0 && indent + at + gap + n > width) {
			/* keep the indentation of the text, such as that of a list */
			fprintf(term.out, "\n%*s", (int)indent, "");
			at = 0;
			gap = own;
		}
		term_spaces(gap);
		at = put_word(s, end, at + gap, indent, width);
		s = end;
		gap = skip_spaces(&s);
	}
}

void term_row(const char *label, const char *value, unsigned width)
{
	term_style(TERM_TITLE);
	term_cell(label, TERM_LABEL);
	term_style(TERM_PLAIN);
	term_wrap(value, TERM_LABEL, width);
	fputc('\n', term.out);
}

/* ---- numbers ---- */

void term_bar(uint64_t part, uint64_t whole, unsigned width)
{
	term_style(TERM_BAR);
	bar_put(term.out, part, whole, width, term.utf8);
	term_style(TERM_PLAIN);
}

char *term_count(uint64_t n, const char *noun, char ret[TERM_COUNT])
{
	snprintf(ret, TERM_COUNT, "%" PRIu64 " %s%s", n, noun, n == 1 ? "" : "s");
	return ret;
}
