/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far ahead of its readers chunks of an object are fetched.
 *
 * Who goes through a file in order is a stream: it has a window, the chunks behind its last one
 * that are fetched before anyone asks for them. A window opens once two chunks were read in order,
 * and is never longer than the part that its reader has read. It is as long as the link needs to be
 * busy: twice the bytes that come while a request waits for its answer, both measured here. So a
 * random reader has none, and a reader of a close server a short one. Several streams of one file
 * have windows of their own; of those that nobody goes on with, the oldest gives way.
 *
 * All numbers are of chunks, unless they say otherwise. Threads: the owner's lock.
 */
#ifndef CARTON_CONTENT_AHEAD_H
#define CARTON_CONTENT_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AHEAD_STREAMS 16

struct ahead_stream {
	uint64_t next;	/* behind the last one that was read */
	uint64_t asked; /* chunks before it are there, or were asked for */
	uint64_t run;	/* how many were read in order; 0: the stream is free */
	uint64_t used;	/* when it was last read, by a->reads */
};

struct ahead {
	uint64_t unit;		    /* bytes of a chunk */
	uint64_t reads;		    /* calls of ahead_read() */
	uint64_t answer_us, slower; /* the shortest time to an answer lately; slower ones since */
	uint64_t since_us, came;    /* since when requests are under way, and bytes since then */
	uint64_t rate;		    /* bytes a second */
	struct ahead_stream streams[AHEAD_STREAMS];
};

void ahead_init(struct ahead *a, uint64_t unit);

/* Somebody reads [i, end). Returns the stream, which begins with it unless it goes on; not NULL. */
struct ahead_stream *ahead_read(struct ahead *a, uint64_t i, uint64_t end);

/*
 * The chunks [*ret_first, *ret_end) that are to be asked for next, as one request at most. False:
 * none. The owner leaves out what is there, and says by stream->asked how far it has got.
 */
bool ahead_next(const struct ahead *a, const struct ahead_stream *s, uint64_t *ret_first,
		uint64_t *ret_end);

/* A request has ended well. Times are of CLOCK_MONOTONIC, in microseconds. */
struct ahead_request {
	uint64_t bytes;
	uint64_t began_us, answered_us, ended_us; /* answered: its first bytes came */
	bool last;				  /* no other is under way */
};
void ahead_learn(struct ahead *a, const struct ahead_request *r);

/* A request has failed: from chunk `i` on it is to be asked for again. `last`: as above. */
void ahead_failed(struct ahead *a, uint64_t i, bool last);

#endif
