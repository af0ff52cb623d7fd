/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON to a stream, one member or element after the other: the writer puts the quotes, the
 * colons and the commas. The stream remembers errors.
 */
#ifndef FS_JSON_WRITER_H
#define FS_JSON_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json_writer {
	FILE *f;
	bool spaced; /* a space follows each colon and each comma */

	/* its own */
	bool comma;	/* the next value is not the first of its object or array */
	unsigned depth; /* objects and arrays that are open */
};

/*
 * `bracket` is { or [. `key`, here and below: of a member, with no character that JSON escapes;
 * NULL: the value is an element of an array, or the outermost.
 */
void json_begin(struct json_writer *w, const char *key, char bracket);

/* Ends an object or an array; a newline follows the outermost. */
void json_end(struct json_writer *w, char bracket);

/* The same on a line of its own. */
void json_end_line(struct json_writer *w, char bracket);

/* The next value is on a line of its own, behind `indent` spaces. */
void json_line(struct json_writer *w, int indent);

void json_text(struct json_writer *w, const char *key, const char *value); /* NULL: null */
void json_number(struct json_writer *w, const char *key, uint64_t value);
void json_time(struct json_writer *w, const char *key, int64_t value); /* since 1970 */
void json_bool(struct json_writer *w, const char *key, bool value);

/* A value that is JSON already, as json_document(). */
void json_value(struct json_writer *w, const char *key, const char *json);

#endif
