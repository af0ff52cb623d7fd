/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the JSON of a hub, value by value. What is not asked for is skipped.
 *
 * Threads: one at a time.
 */
#ifndef CARTON_IMPORT_SCAN_H
#define CARTON_IMPORT_SCAN_H

#include "base/json.h"

struct scan {
	const char *text; /* what is left of it */
	size_t n;
	struct buf token;
	struct json json;
};

/* Of a text in memory, which outlives it. NULL: out of memory. */
struct scan *scan_new(const char *text, size_t n);
void scan_free(struct scan *s); /* NULL-safe */

/* The next event, as json_next(). */
int scan_next(struct scan *s, enum json_event *ret);

/* Is the current token this text? */
bool scan_is(const struct scan *s, const char *text);

/* Skips the value that comes next. */
int scan_skip(struct scan *s);

/*
 * Begins the value that comes next, if it is an object (or array): 1. Else skips it: 0. Then
 * scan_next() gives its keys (or scan_item() its values) until its end.
 */
int scan_begin(struct scan *s, enum json_event what);

/*
 * The next object of an array: 1. Else 0: its end. Other values are skipped.
 */
int scan_item(struct scan *s);

/* The key that comes next: 1. 0: the object's end. */
int scan_key(struct scan *s);

/*
 * The string that comes next, with a NUL: 1. Else 0: it has more than n - 1 bytes, or a NUL, or is
 * another value, which was skipped.
 */
int scan_string(struct scan *s, char *ret, size_t n);

/* The whole number that comes next, below 2^63. As scan_string(). */
int scan_number(struct scan *s, uint64_t *ret);

#endif
