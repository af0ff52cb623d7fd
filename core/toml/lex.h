/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes, comments, strings and keys of a TOML document, and the error of the parse. */
#ifndef CARTON_TOML_LEX_H
#define CARTON_TOML_LEX_H

#include "toml/input.h"

struct toml_lexer {
	struct toml_input in;
	struct buf text;     /* a string with escapes, or that does not fit in the window */
	struct reason error; /* set by the call that failed */
};

/* Sets the error at the current line and returns `error`. */
int toml_fail(struct toml_lexer *lex, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Sets the error "expected WANTED, found C", with c as toml_peek returned it. -EBADMSG. */
int toml_unexpected(struct toml_lexer *lex, int c, const char *wanted);

/* Sets the error to `what` if `error` is -EFBIG. Returns `error`. */
int toml_limit(struct toml_lexer *lex, int error, const char *what);

/* toml_peek at the end of the window. */
int toml_refill(struct toml_lexer *lex);

/* The next byte, 0 at the end, or an error. Does not consume it: lex->in.p++ does. */
static inline int toml_peek(struct toml_lexer *lex)
{
	return *lex->in.p ? (unsigned char)*lex->in.p : toml_refill(lex);
}

/* Skip blanks; or blanks, comments and newlines. Return toml_peek() of what follows. */
int toml_skip_blanks(struct toml_lexer *lex);
int toml_skip_space(struct toml_lexer *lex);

/* Consumes blanks, a comment and the newline; anything else is an error. 0 or an error. */
int toml_end_of_line(struct toml_lexer *lex);

/*
 * Consumes a string, starting at its opening quote; a multi-line string only if `may_be_multi`. The
 * result is NUL-terminated and valid until the next byte is read. 0 or an error.
 */
int toml_string(struct toml_lexer *lex, bool may_be_multi, char **ret_s, size_t *ret_n);

/* Reads one part of a key. Returns the byte after it and blanks, or an error. */
int toml_key_part(struct toml_lexer *lex, struct buf *ret);

/*
 * Appends bytes that can belong to a scalar to `text`, which has *n of at most TOML_MAX_NUMBER.
 * Returns the byte after them, or an error.
 */
int toml_scalar_bytes(struct toml_lexer *lex, char *text, size_t *n);

#endif
