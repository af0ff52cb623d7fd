/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of toml.h, lowest first: input.c, lex.c, scalar.c, keys.c; then toml.c. */
#ifndef CARTON_TOML_INTERNAL_H
#define CARTON_TOML_INTERNAL_H

#include <locale.h>
#include <stddef.h>
#include <stdint.h>

#include "base/siphash.h"
#include "base/util.h"
#include "toml/toml.h"

/* ---- input.c: the text of a document, read in blocks, with encoding and line ends checked ---- */

#define TOML_BUFFER (64 * KIB)

/*
 * A window on the document. A byte-order mark at the start is dropped, and CRLF becomes LF. A
 * control character (except tab and LF), a lone CR or ill-formed UTF-8 ends the text and sets
 * `fault`. The window never contains a NUL, so a NUL marks its end.
 */
struct toml_input {
	toml_read_fn *read;
	void *read_ctx;
	char *p;	   /* the next byte; NUL: call toml_input_fill */
	size_t line;	   /* of p, from 1; the code that advances p updates it */
	const char *fault; /* why the text ends at the end of the window, or NULL */
	bool started;	   /* the byte-order mark, if any, has been skipped */
	bool ended;	   /* read has returned 0 */
	unsigned n_tail; /* bytes of an incomplete UTF-8 sequence, or a CR, read past the window */
	char tail[4];
	char buf[TOML_BUFFER + 1];
};

void toml_input_init(struct toml_input *in, toml_read_fn *read, void *read_ctx);

/*
 * Replaces the exhausted window by the next one. Returns 1; 0 at the end of the document; -EBADMSG
 * with `fault` set; or the error of `read`.
 */
int toml_input_fill(struct toml_input *in);

/* ---- lex.c: bytes, comments, strings and keys of a document, and the error of the parse ---- */

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

/* ---- scalar.c: a value that is not a string: boolean, number, date or time ---- */

/*
 * Parses all `n` bytes of the NUL-terminated `text` into `ret`, whose line is kept. Overwrites
 * `text`; ret->str may point into it. `c_locale` is the "C" locale. NULL, or what is wrong.
 */
const char *toml_scalar_parse(char *text, size_t n, locale_t c_locale, struct toml_value *ret);

/* ---- keys.c: the keys defined so far: a tree, with one hash table for lookup ---- */

enum toml_kind {
	TOML_KIND_NEW,	    /* added by toml_keys_get(): its caller says what it is */
	TOML_KIND_VALUE,    /* a scalar, […] or {…}: closed */
	TOML_KIND_IMPLICIT, /* a table known only from a longer header */
	TOML_KIND_HEADER,   /* a table with a header of its own */
	TOML_KIND_DOTTED,   /* a table made by a dotted key */
	TOML_KIND_TABLES,   /* an array of [[headers]]; has the keys of the last element */
};

struct budget;

struct toml_node {
	struct toml_node *parent;
	struct toml_node *child;   /* the newest one */
	struct toml_node *sibling; /* the next older one */
	struct toml_node *chain;   /* next in the hash bucket */
	uint64_t hash;
	size_t index; /* TABLES: of the last element */
	enum toml_kind kind;
	uint32_t len;
	char name[]; /* len bytes and a NUL */
};

struct toml_keys {
	struct toml_node *root;
	struct toml_node **buckets;
	size_t n_buckets; /* a power of two */
	size_t n;	  /* keys stored now */
	size_t bytes;	  /* total length of their names */
	struct budget *budget;
	struct siphash_key key;
};

/* `budget` counts the keys; it may be NULL. 0 or -ENOMEM. */
int toml_keys_init(struct toml_keys *keys, struct budget *budget);

/* Frees all keys. NULL-safe; a zeroed struct is fine. */
void toml_keys_finish(struct toml_keys *keys);

/*
 * Finds the key `name` of table `parent`, or adds it, as TOML_KIND_NEW. Returns 0, -ENOMEM, or
 * -EFBIG over TOML_MAX_KEYS, TOML_MAX_KEY, TOML_MAX_KEY_BYTES or the budget. The node lives until
 * toml_keys_empty() is called on one of its ancestors.
 */
int toml_keys_get(struct toml_keys *keys, struct toml_node *parent, const char *name, size_t len,
		  struct toml_node **ret);

/* Removes all keys below `top`. */
void toml_keys_empty(struct toml_keys *keys, struct toml_node *top);

#endif
