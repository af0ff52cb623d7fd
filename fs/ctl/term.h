/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text for people, on stdout or where term_to() says: aligned by columns, safe to print, coloured
 * at a terminal. One thread.
 */
#ifndef FS_TERM_H
#define FS_TERM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum term_style {
	TERM_PLAIN,
	TERM_TITLE, /* headings */
	TERM_FAINT, /* less important */
	TERM_DIR,
	TERM_LINK,
	TERM_GOOD,
	TERM_BAD,
	TERM_BAR,
};

/* Checks stdout, the locale and NO_COLOR. Call it first, before the sandbox is entered. */
void term_open(void);

/* Where the text goes from now on; it is styled as stdout is. */
void term_to(FILE *f);

/* Is stdout a terminal? */
bool term_is_tty(void);

/* The width of the terminal, or `otherwise` if stdout is none. */
unsigned term_columns(unsigned otherwise);

/* Sets the style of the text that follows, if there are colours; TERM_PLAIN ends it. */
void term_style(enum term_style style);

/* `text`, or `ascii` where the locale has no UTF-8. */
const char *term_symbol(const char *text, const char *ascii);

/* The columns that term_put() fills with `s`. */
unsigned term_width(const char *s);

/* Prints `s`, escaped (carton_escape()). */
void term_put(const char *s);

/* Prints `s` in exactly `width` columns: padded with spaces, or shortened in its middle. */
void term_cell(const char *s, unsigned width);

/* The same, but not padded. */
void term_short(const char *s, unsigned width);

/*
 * Prints text in lines of at most `width` columns, broken between words; a longer word begins on a
 * line of its own, and is broken at a terminal only. Lines after the first begin with `indent`
 * spaces. Newlines in the text are kept.
 */
void term_wrap(const char *s, unsigned indent, unsigned width);

/* Prints a label in the first TERM_LABEL columns, and `value` behind it, wrapped at `width`. */
#define TERM_LABEL 13
void term_row(const char *label, const char *value, unsigned width);

/* Prints a bar of `width` columns, filled for `part` of `whole`. */
void term_bar(uint64_t part, uint64_t whole, unsigned width);

/* Prints `n` spaces. */
void term_spaces(unsigned n);

/* "1 file", "2 files". Returns `ret`. */
#define TERM_COUNT 48
char *term_count(uint64_t n, const char *noun, char ret[TERM_COUNT]);

#endif
