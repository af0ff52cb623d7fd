/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What toml.c is made of: the text, cleaned as it is read; its bytes and strings; the names of the
 * keys; one scalar. Only toml*.c include this.
 */
#ifndef CARTON_TOML_INTERNAL_H
#define CARTON_TOML_INTERNAL_H

#include <locale.h>

#include "toml/toml.h"
#include "base/util.h"

/* ---- the text ---- */

#define TOML_BUFFER (64 * KIB)

/*
 * A window on the document. All that TOML forbids wherever it stands is dealt with while reading:
 * a byte-order mark at the start is dropped, CRLF becomes LF, and a control character (but tab and
 * LF), a CR alone or ill-formed UTF-8 ends the text with a fault. So a NUL is never part of it and
 * can mark the end of the window.
 */
struct toml_input {
	toml_read_fn *read;
	void *read_ctx;
	char *p;	   /* the next byte; NUL: call toml_input_fill */
	size_t line;	   /* of p, from 1; kept by the one that moves p */
	const char *fault; /* why the text ends at the end of the window, or NULL */
	bool started;	   /* a byte-order mark is behind */
	bool ended;	   /* read has returned 0 */
	unsigned n_tail;   /* an incomplete sequence or CR that was read after the window */
	char tail[4];
	char buf[TOML_BUFFER + 1];
};

void toml_input_init(struct toml_input *in, toml_read_fn *read, void *read_ctx);

/*
 * Replaces the window, of which nothing is left, by the next one. Returns 1; 0 at the end of the
 * document; -EBADMSG with `fault` set; or what read gave.
 */
int toml_input_fill(struct toml_input *in);

/* ---- its bytes and strings ---- */

struct toml_lexer {
	struct toml_input in;
	struct buf text;	 /* a string that is not in the window as it is */
	struct toml_error error; /* of the call that failed */
};

/* Each sets the error, at the line we are in, and returns the errno. */
int toml_fail(struct toml_lexer *lex, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* -EBADMSG: `wanted` was expected but c, as from toml_peek, is there. */
int toml_unexpected(struct toml_lexer *lex, int c, const char *wanted);

/* Says for -EFBIG which bound it is about; leaves other errors, and 0, as they are. */
int toml_limit(struct toml_lexer *lex, int error, const char *what);

/* What toml_peek is at the end of the window. */
int toml_refill(struct toml_lexer *lex);

/* The next byte, 0 at the end, or an error. It is not taken: that is lex->in.p++. */
static inline int toml_peek(struct toml_lexer *lex)
{
	return *lex->in.p ? (unsigned char)*lex->in.p : toml_refill(lex);
}

/* Take blanks; blanks, comments and newlines. Return what toml_peek does then. */
int toml_skip_blanks(struct toml_lexer *lex);
int toml_skip_space(struct toml_lexer *lex);

/* Takes blanks, a comment and the newline, or refuses what else is there. 0 or an error. */
int toml_end_of_line(struct toml_lexer *lex);

/*
 * Takes a string, from its opening quote on, of one line or, if it may be, of several. What it
 * gives is NUL-terminated and lives until the next byte is looked at. 0 or an error.
 */
int toml_string(struct toml_lexer *lex, bool may_be_multi, char **ret_s, size_t *ret_n);

/* ---- the names ---- */

enum toml_kind {
	TOML_KIND_VALUE,    /* a scalar, […] or {…}: closed */
	TOML_KIND_IMPLICIT, /* a table known only from a longer header */
	TOML_KIND_HEADER,   /* a table with a header of its own */
	TOML_KIND_DOTTED,   /* a table made by a dotted key */
	TOML_KIND_TABLES,   /* an array of [[headers]]; below it: the keys of its last element */
};

struct toml_node {
	struct toml_node *parent;
	struct toml_node *child;   /* the newest one */
	struct toml_node *sibling; /* the next older one */
	struct toml_node *chain;   /* in its bucket */
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
	size_t n;	  /* keys known now */
	size_t bytes;	  /* of their names */
	uint64_t seed[2];
};

/* 0 or -ENOMEM. */
int toml_keys_init(struct toml_keys *keys);

/* Frees all. NULL-safe; a zeroed one is fine. */
void toml_keys_free(struct toml_keys *keys);

/*
 * Gives the key `name` of table `parent`, made with `kind` where there was none (*ret_new says
 * so). Returns 0, -ENOMEM, or -EFBIG past TOML_MAX_KEYS or TOML_MAX_KEY_BYTES. The node lives until
 * a node above it is emptied.
 */
int toml_keys_get(struct toml_keys *keys, struct toml_node *parent, const char *name, size_t len,
		  enum toml_kind kind, bool *ret_new, struct toml_node **ret);

/* Forgets all keys below `top`. */
void toml_keys_empty(struct toml_keys *keys, struct toml_node *top);

/* ---- one scalar ---- */

/*
 * Reads a boolean, number, date or time, the whole of the NUL-terminated `text`, into type, str,
 * len, integer, real and boolean of `ret`. `text` is scratch: ret->str may point into it. Returns
 * 0, or -EBADMSG with what it is in ret_why. `c_locale` is the "C" locale.
 */
int toml_scalar_parse(char *text, size_t n, locale_t c_locale, struct toml_value *ret,
		      const char **ret_why);

#endif
