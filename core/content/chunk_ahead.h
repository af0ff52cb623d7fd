/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches chunks ahead of the readers of an object, as far as the windows of their streams reach
 * (ahead.h): of the object itself, and of those that are read after it (object_follow()).
 *
 * A window belongs to the object in which its reader is. It goes on when that is read, and when a
 * request in it ends, or is the first to be answered, of whichever object that is.
 *
 * Threads: chunk_ahead_add() and chunk_ahead_read() are called with the lock of the struct sparse,
 * the others without any.
 */
#ifndef CARTON_CONTENT_CHUNK_AHEAD_H
#define CARTON_CONTENT_CHUNK_AHEAD_H

#include "content/chunk_choice.h"

/* requests to one server, while some are ahead of readers; and fills that are begun at once */
#define CHUNK_MAX_AHEAD 16

/*
 * The fills that are to begin once the locks are released, and the rest of a stream's window, which
 * is in the objects that follow. All zero at first.
 */
struct chunk_begun {
	size_t n;
	struct fill *fills[CHUNK_MAX_AHEAD];
	uint64_t beyond; /* bytes; 0: none. Else: */
	uint64_t unit;
	struct ahead_stream stream;
};

/*
 * Makes a held fill of the chunks from `first` to `i`, which are claimed, and on up to `end`. NULL:
 * no memory.
 */
struct fill *chunk_ahead_add(struct sparse *p, uint64_t first, uint64_t i, uint64_t end);

/* Adds fills of the chunks in the window of a stream that is read in this object. */
void chunk_ahead_read(struct sparse *p, struct ahead_stream *s, struct chunk_begun *b);

/* Begins these fills, and fetches the rest of the window, which is behind this object. */
void chunk_ahead_begin(const struct object *o, const struct chunk_begun *b);

/* A go_on() of struct sparse. */
void chunk_ahead_go_on(struct sparse *p);

#endif
