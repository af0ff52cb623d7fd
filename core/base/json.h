/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict JSON scanner (RFC 8259): pulls its text through a callback, returns one event at a time.
 *
 * Stricter than the RFC: strings are well-formed UTF-8 without halves of surrogate pairs (unless
 * `halves`), and nesting ends at JSON_MAX_DEPTH. Duplicate keys are for the caller. Memory: one
 * window, and the text of the current token. Not for several threads at once.
 */
#ifndef CARTON_BASE_JSON_H
#define CARTON_BASE_JSON_H

#include "base/util.h"

enum json_event {
	JSON_OBJECT, /* begins */
	JSON_ARRAY,  /* begins */
	JSON_END,    /* of the innermost object or array */
	JSON_KEY,    /* has a text; its value follows */
	JSON_STRING, /* has a text */
	JSON_NUMBER, /* has a text: the number as it is written */
	JSON_NULL,
	JSON_OTHER, /* true or false */
	JSON_EOF,
};

/* Gives up to `n` bytes: how many, 0 at the end, or -errno, which ends the scan. */
typedef ssize_t json_read_fn(void *ctx, void *ret_buf, size_t n);

struct json {
	json_read_fn *read; /* set by the caller, like the next two */
	void *ctx;
	struct buf *text;  /* gets the texts */
	bool halves;	   /* half of a surrogate pair reads as NUL; false: as a fault */
	const char *fault; /* out: a constant sentence "it …"; NULL: no syntax error */

	/* private */
	int r;
	size_t kept;	  /* bytes of `text` before the current token */
	size_t checked;	  /* bytes of `text` that are UTF-8 */
	uint64_t objects; /* a bit for each level: an object, not an array */
	unsigned depth;
	enum json_state { JSON_VALUE, JSON_FIRST, JSON_NEXT, JSON_DONE } state;
	const char *window; /* the bytes that were read last */
	size_t at, n;	    /* in the window */
	char own[64 * KIB];
};

/*
 * The next event. Its text is the end of *text, from `kept` on, until the next call. 0; -EBADMSG
 * with `fault` set; -ENOMEM or -EFBIG when `text` is full; or the error of `read`. A failure is
 * final.
 */
int json_next(struct json *j, enum json_event *ret);

/*
 * Keeps the text of the current token in *text and adds a NUL. Returns its start, valid until the
 * buffer grows; NULL: out of memory.
 */
const char *json_keep(struct json *j);

/* Bytes in the text of the current token. */
static inline size_t json_text_len(const struct json *j)
{
	return j->text->len - j->kept;
}

#endif
