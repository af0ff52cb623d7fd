/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far ahead of its readers chunks of an object are fetched.
 *
 * Who goes through a file in order is a stream: it has a window, the chunks behind its last one
 * that are fetched before anyone asks for them. A window opens once two chunks were read in order,
 * and is never longer than twice the part that its reader has read. It is as long as the server
 * needs to be busy: a few times the bytes that come while a request waits for its answer, both
 * measured here. So a random reader has none, and a reader of a close server a short one. Several
 * streams of one file have windows of their own; of those that nobody goes on with, the oldest
 * gives way.
 *
 * A new connection is slow at first, and a reader in order waits for the slowest. So the first
 * request of a further connection is short, and lies at the far end of what the server needs to be
 * busy, even behind the window: what is before it comes over the connections that are quick by
 * then. A stream may have one more for each few MiB that were read, so that little is fetched in
 * vain for who stops soon.
 *
 * All numbers are of chunks, unless they say otherwise. Threads: the owner's lock.
 */
#ifndef CARTON_CONTENT_AHEAD_H
#define CARTON_CONTENT_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "content/rates.h"

#define AHEAD_STREAMS 16

struct ahead_stream {
	uint64_t next;	/* behind the last one that was read */
	uint64_t asked; /* chunks before it are there, or were asked for */
	uint64_t run;	/* how many were read in order; 0: the stream is free */
	uint64_t used;	/* when it was last read, by a->reads */
	uint64_t far;	/* behind the first requests of further connections */
	uint64_t most;	/* bytes of its window, a part of another object's; 0: it is read here */
	bool left;	/* the object was closed by all since the stream was read */
};

struct ahead {
	uint64_t unit;		     /* bytes of a chunk */
	uint64_t reads;		     /* calls of ahead_read() */
	struct server_rates *server; /* the one that is asked first; NULL: of a local file */
	bool more;		     /* who has read all of the object goes on in another one */
	struct ahead_stream streams[AHEAD_STREAMS];
};

void ahead_init(struct ahead *a, uint64_t unit, struct server_rates *server);

/* Somebody reads [i, end). Returns the stream, which begins with it unless it goes on; not NULL. */
struct ahead_stream *ahead_read(struct ahead *a, uint64_t i, uint64_t end);

/*
 * Continues the window of `s`, a stream of another object whose chunks have `unit` bytes: its next
 * `most` bytes are the first of this object. Returns the stream of this object; not NULL.
 */
struct ahead_stream *ahead_continue(struct ahead *a, const struct ahead_stream *s, uint64_t unit,
				    uint64_t most);

/* The last reader has closed the object: no stream is continued until it is read again. */
void ahead_leave(struct ahead *a);

/* How many bytes of a stream's window are behind chunk `end`. */
uint64_t ahead_beyond(const struct ahead *a, const struct ahead_stream *s, uint64_t end);

/* The stream whose chunks were asked for up to `asked`; or NULL. */
struct ahead_stream *ahead_find(struct ahead *a, uint64_t asked);

/* Is the stream still read, and long enough for several requests at once? */
bool ahead_is_long(const struct ahead *a, const struct ahead_stream *s);

/* The chunks [first, end). */
struct ahead_part {
	uint64_t first, end;
};

/*
 * What is to be asked for next, as one request at most, while `busy` are under way, of an object of
 * `n` chunks. False: nothing. It begins at s->asked, or behind it, at the far end. The owner leaves
 * out what is there, and says by s->asked, or s->far, how far it has got.
 */
bool ahead_next(const struct ahead *a, const struct ahead_stream *s, unsigned busy, uint64_t n,
		struct ahead_part *ret);

/* A request has failed: from chunk `i` on it is to be asked for again. */
void ahead_failed(struct ahead *a, uint64_t i);

#endif
