/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TOML 1.0 as a stream of events: no tree of values, no recursion, bounded memory.
 *
 * The parser pulls its text through a callback, so a document may be far larger than memory; what
 * it keeps is one token and the names of the keys seen so far (they are needed to refuse
 * duplicates and redefined tables, as TOML demands). Values are handed over and forgotten, and so
 * are the keys of an inline table at its end and of a [[table]] when the next one starts: memory
 * does not grow with the number of elements of any array.
 */
#ifndef CARTON_TOML_TOML_H
#define CARTON_TOML_TOML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Where a value stands: from the root, keys and array indices, outermost first. */
struct toml_step {
	const char *key; /* NUL-terminated (keys may hold NUL: use len); NULL: an array element */
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
 * CRLF reads as LF, also in strings. Dates and times are RFC 3339 with 'T' and 'Z' in upper case
 * and at most nine digits of a fraction; the year 0000 and, in any minute, the second 60 pass. A
 * float beyond a double is an infinity, an integer beyond 64 bits an error.
 *
 * Callbacks, each may be NULL; a non-zero return stops the parse, which then returns it. Strings
 * and paths live until the callback returns.
 *
 *  begin	a table ([header], element of [[header]], inline table) or an array ([…] or the
 *		first [[header]]) starts at `path`. A [header] is begun when its line is read, also
 *		when only its children were known before; tables made on the way by a dotted key or
 *		a longer header are not announced.
 *  end		an inline table or a […] array is complete. Not called for [header] and [[header]].
 *  value	a scalar.
 */
struct toml_events {
	int (*begin)(void *ctx, const struct toml_path *path, enum toml_type type, size_t line);
	int (*end)(void *ctx, const struct toml_path *path, enum toml_type type);
	int (*value)(void *ctx, const struct toml_path *path, const struct toml_value *value);
};

/* Gives up to `n` bytes of the document: how many, 0 at its end, or -errno. */
typedef ssize_t toml_read_fn(void *ctx, void *ret_buf, size_t n);

struct toml_error {
	size_t line;	   /* from 1; 0: not about a line */
	char message[160]; /* what is wrong there, printable ASCII; "": nothing to say */
};

/*
 * Parses a whole document. Returns 0; -EBADMSG for text that is not TOML 1.0 (ret_error says where
 * and why); -EFBIG for a limit TOML_MAX_… of limits.h (likewise); -ENOMEM; or what `read` or a
 * callback gave. `ret_error` may be NULL; it is always set, and empty where there is no more to
 * say than the return value does. Events before an error have been delivered: what they built is
 * the caller's to drop.
 */
int toml_parse(toml_read_fn *read, void *read_ctx, const struct toml_events *events, void *ctx,
	       struct toml_error *ret_error);

/* The same for a document in memory. */
int toml_parse_mem(const char *text, size_t n, const struct toml_events *events, void *ctx,
		   struct toml_error *ret_error);

/*
 * Does `path` match `pattern`? Patterns are written "tensor[].name": keys by name, "[]" any array
 * element, "*" any one key; "" is the root. Keys of the pattern cannot hold '.' or '[', nor be "*".
 */
bool toml_path_is(const struct toml_path *path, const char *pattern);

#endif
