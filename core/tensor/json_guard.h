/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a lenient JSON parser lets pass: a look at the raw bytes before it sees them.
 *
 * Refuses, in one JSON object: control characters in strings, halves of surrogate pairs in \u
 * escapes, whitespace that is not JSON's, nesting beyond a depth, and anything but spaces behind
 * the object. It does not replace the parser: text it accepts need not be JSON.
 */
#ifndef CARTON_TENSOR_JSON_GUARD_H
#define CARTON_TENSOR_JSON_GUARD_H

#include <stdbool.h>
#include <stddef.h>

struct json_guard {
	unsigned depth, max_depth;
	bool ended;	   /* the outermost object is complete */
	bool string;	   /* inside a string */
	bool escape;	   /* after its backslash */
	unsigned hex_left; /* digits of a \u escape still to come */
	unsigned code;	   /* what the digits say so far */
	bool want_low;	   /* a high surrogate was read: \u of a low one must follow */
};

/* Starts at the first byte of the object. */
static inline struct json_guard json_guard_init(unsigned max_depth)
{
	return (struct json_guard){ .max_depth = max_depth };
}

/* Looks at the next bytes: NULL, or a constant sentence that says what is wrong with them. */
const char *json_guard_feed(struct json_guard *g, const char *s, size_t n);

#endif
