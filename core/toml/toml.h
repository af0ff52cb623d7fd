/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TOML 1.0 as a stream of events: no tree of values, no recursion, bounded memory.
 *
 * The parser pulls its text through a callback, so a document may be far larger than memory. It
 * keeps one token and the names of the keys seen so far, which TOML requires to refuse duplicates
 * and redefined tables. It does not keep values; it drops the keys of an inline table at its end
 * and those of a [[table]] when the next one starts. Memory does not grow with the length of any
 * array.
 *
 * Threads: no shared state; any number of documents can be parsed at once.
 */
#ifndef CARTON_TOML_TOML_H
#define CARTON_TOML_TOML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "base/util.h"

struct budget;

/* The position of a value: keys and array indices from the root, outermost first. */
struct toml_step {
	const char *key; /* NUL-terminated, but may contain NUL: use len; NULL: an array element */
	size_t len;	 /* bytes of key */
	size_t index;	 /* of the array element, from 0 */
};

struct toml_path {
	const struct toml_step *steps;
	size_t n;
};

enum toml_type {
	TOML_STRING,
	TOML_INTEGER,
	TOML_FLOAT,
	TOML_BOOL,
	TOML_OFFSET_DATETIME,
	TOML_LOCAL_DATETIME,
	TOML_LOCAL_DATE,
	TOML_LOCAL_TIME,
	TOML_TABLE, /* begin and end only */
	TOML_ARRAY, /* begin and end only */
};

struct toml_value {
	enum toml_type type;
	size_t line;	 /* from 1 */
	const char *str; /* STRING: unescaped UTF-8, may hold NUL; dates: normalized, see below */
	size_t len;	 /* bytes of str, which is NUL-terminated beyond them */
	int64_t integer; /* INTEGER */
	double real;	 /* FLOAT */
	bool boolean;	 /* BOOL */
};

/*
 * CRLF is read as LF, also in strings. Dates and times are given as RFC 3339 with 'T' and 'Z' in
 * upper case and a fraction of at most nine digits; the year 0000 and the second 60 are accepted. A
 * float outside the range of a double is an infinity; an integer that does not fit 64 bits an
 * error.
 *
 * Callbacks; each may be NULL. A non-zero return stops the parse, which then returns it. Strings
 * and paths are valid until the callback returns.
 *
 *  begin	a table ([header], element of [[header]], inline table) or an array ([…] or the
 *		first [[header]]) starts at `path`. Called for the line of a [header], also if its
 *		children came before it; not called for tables that exist only through a dotted key
 *		or a longer header.
 *  end		an inline table or a […] array is complete. Not called for [header] and [[header]].
 *  value	a scalar.
 */
struct toml_events {
	int (*begin)(void *ctx, const struct toml_path *path, enum toml_type type, size_t line);
	int (*end)(void *ctx, const struct toml_path *path, enum toml_type type);
	int (*value)(void *ctx, const struct toml_path *path, const struct toml_value *value);
	struct budget *budget; /* counts the keys that are remembered; NULL: nothing does */
};

/*
 * Reads up to `n` bytes of the document. Returns how many, 0 at its end, or -errno.
 * mem_text_read() does so for a document in memory.
 */
typedef ssize_t toml_read_fn(void *ctx, void *ret_buf, size_t n);

/*
 * Parses a whole document. Returns 0; -EBADMSG if it is not TOML 1.0; -EFBIG over a limit
 * TOML_MAX_… of limits.h; -ENOMEM; or the error of `read` or of a callback. `ret_error` may be
 * NULL; it is always set, and its message, in printable ASCII, is empty unless the parser itself
 * found a fault. Events before an error have been delivered: the caller drops what it built from
 * them.
 */
int toml_parse(toml_read_fn *read, void *read_ctx, const struct toml_events *events, void *ctx,
	       struct reason *ret_error);

/* toml_parse() of a document in memory. */
int toml_parse_mem(const char *text, size_t n, const struct toml_events *events, void *ctx,
		   struct reason *ret_error);

/* Compares the whole key, which may contain NUL. */
static inline bool toml_is_key(const struct toml_step *step, const char *key)
{
	return step->key && step->len == strlen(key) && memcmp(step->key, key, step->len) == 0;
}

/*
 * Does `path` match `pattern`? A pattern is written "tensor[].name": keys by name, "[]" for any
 * array element, "*" for any one key; "" is the root. Its keys cannot contain '.' or '[', nor be
 * "*".
 */
bool toml_path_is(const struct toml_path *path, const char *pattern);

#endif
