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
	struct mem_text none; /* behind the text */
	struct buf token;
	struct json json;
};

/* Of a text in memory, which outlives it. NULL: out of memory. */
struct scan *scan_new(const char *text, size_t n);
void scan_free(struct scan *s); /* NULL-safe */

/* Is the current token this text? */
bool scan_is(const struct scan *s, const char *text);

/* All that follow return the errors of json_next(). */

/* Skips the next value. 0. */
int scan_skip(struct scan *s);

/*
 * Begins the next value if it is of that kind: 1. Skips it if it is of another kind: 0. Then
 * scan_key() gives the keys of an object, scan_item() begins the objects of an array.
 */
int scan_begin(struct scan *s, enum json_event what);

/* Begins the next object of an array: 1. Skips other values. 0 at the array's end. */
int scan_item(struct scan *s);

/* Reads the next key of an object: 1. 0 at the object's end. */
int scan_key(struct scan *s);

/*
 * Copies the next string, with a NUL: 1. 0, with `ret` unchanged, for a string of more than n - 1
 * bytes or with a NUL in it, and for another value, which is skipped.
 */
int scan_string(struct scan *s, char *ret, size_t n);

/*
 * The same of any length, for a long one: gives the text itself, which the caller frees. 0 for
 * another value.
 */
int scan_take(struct scan *s, struct buf *ret);

/*
 * Copies the next string, a file name, cut to n - 1 bytes: 1. NUL, and half of a surrogate pair,
 * which some servers write for a byte that is no UTF-8, become \1, which no path may have either. 0
 * for another value.
 */
int scan_name(struct scan *s, char *ret, size_t n);

/*
 * Copies the next string of an array: 1; "" for one that is longer, or for another value. 0 at the
 * array's end.
 */
int scan_string_item(struct scan *s, char *ret, size_t n);

/* Reads the next number, whole and below 2^63. As scan_string(). */
int scan_number(struct scan *s, uint64_t *ret);

#endif
