/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far ahead of its readers chunks of an object are fetched.
 *
 * Who goes through a file in order is a stream: it has a window, the chunks behind its last one
 * that are fetched before anyone asks for them. A window opens once two chunks were read in order,
 * and is never longer than twice the part that its reader has read. It is as long as the servers
 * need to be busy: a few times the bytes that come while a request waits for its answer, both
 * measured here. So a random reader has none, and a reader of a close server a short one. Several
 * streams of one file have windows of their own; of those that nobody goes on with, the oldest
 * gives way.
 *
 * A new connection is slow at first, and who reads in order waits for the slowest. So a stream has
 * one request at a time until it has read as much as the servers need, which takes longer than
 * that; and the first request of a further connection is short.
 *
 * All numbers are of chunks, unless they say otherwise. Threads: the owner's lock, but for the
 * servers.
 */
#ifndef CARTON_CONTENT_AHEAD_H
#define CARTON_CONTENT_AHEAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define AHEAD_STREAMS 16

struct ahead_stream {
	uint64_t next;	/* behind the last one that was read */
	uint64_t asked; /* chunks before it are there, or were asked for */
	uint64_t run;	/* how many were read in order; 0: the stream is free */
	uint64_t used;	/* when it was last read, by a->reads */
	bool wide;	/* it may have several requests at once */
};

/* The servers of a carton, taken as one; their requests for whatever object. Any thread. */
struct ahead_servers {
	pthread_mutex_t lock; /* of those that change it */
	/* the shortest time to an answer lately, bytes a second, and how often that was measured */
	_Atomic uint64_t answer_us, rate;
	atomic_uint rates;
	atomic_uint busy, connections; /* requests that are under way; the most at once */
	uint64_t slower;	       /* answers since the shortest */
	uint64_t since_us, came; /* when bytes came first that are not measured; those since */
};

struct ahead {
	uint64_t unit;	/* bytes of a chunk */
	uint64_t reads; /* calls of ahead_read() */
	struct ahead_servers *servers;
	struct ahead_stream streams[AHEAD_STREAMS];
};

void ahead_servers_init(struct ahead_servers *l);

void ahead_init(struct ahead *a, uint64_t unit, struct ahead_servers *servers);

/* Somebody reads [i, end). Returns the stream, which begins with it unless it goes on; not NULL. */
struct ahead_stream *ahead_read(struct ahead *a, uint64_t i, uint64_t end);

/* A stream of an object with such chunks goes on at the start of this one. Returns it; not NULL. */
struct ahead_stream *ahead_continue(struct ahead *a, const struct ahead_stream *s, uint64_t unit);

/* How many bytes of a stream's window are behind chunk `end`. */
uint64_t ahead_beyond(const struct ahead *a, const struct ahead_stream *s, uint64_t end);

/* The stream whose chunks were asked for up to `asked`; or NULL. */
struct ahead_stream *ahead_find(struct ahead *a, uint64_t asked);

/* May a request of the stream need one more connection? */
bool ahead_may_connect(const struct ahead *a, struct ahead_stream *s);

/*
 * The chunks [*ret_first, *ret_end) that are to be asked for next, as one request at most. False:
 * none. The owner leaves out what is there, and says by stream->asked how far it has got.
 */
bool ahead_next(const struct ahead *a, struct ahead_stream *s, unsigned busy, uint64_t *ret_first,
		uint64_t *ret_end);

/* A request begins, and has ended. */
void ahead_began(struct ahead_servers *l);
void ahead_ended(struct ahead_servers *l);

/* Bytes have come. Times are of CLOCK_MONOTONIC, in microseconds. */
void ahead_came(struct ahead_servers *l, uint64_t bytes, uint64_t now_us);

/* A request has ended well, whose first bytes came after that time. */
void ahead_answered(struct ahead_servers *l, uint64_t us);

/* A request has failed: from chunk `i` on it is to be asked for again. */
void ahead_failed(struct ahead *a, uint64_t i);

#endif
