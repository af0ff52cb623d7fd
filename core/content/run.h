/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which small entries of a remote carton are worth one request together.
 *
 * Who asks for entries one after the other, in the order of the archive or of the names, makes a
 * run: it has a window, the bytes behind the last one that are fetched with it, or before it where
 * the order is the other way round, or around it where it is only that of the names. A window opens
 * with the second entry in order, and doubles with each one that it did not have: so a reader of
 * all needs few requests, and a random reader has no window. Several runs have windows of their
 * own. What is between two entries that are fetched together is read over where that takes less
 * time than another request: for so many bytes as come while one waits for its answer.
 *
 * Threads: the owner's lock, but for run_takes().
 */
#ifndef CARTON_CONTENT_RUN_H
#define CARTON_CONTENT_RUN_H

#include "archive/container.h"
#include "content/ahead.h"

#define RUN_STREAMS 16
/* bytes of a window, and of one request */
#define MAX_RUN_WINDOW (8 * MIB)
#define MAX_SPAN (1 * MIB)

struct run_stream {
	size_t at;	 /* the last entry that was asked for, in `order` */
	uint64_t window; /* in bytes */
	uint64_t used;	 /* when that was, by run->asked; 0: the stream is free */
};

struct run {
	const struct container *container;
	const struct entry **order; /* the small entries by their offset; NULL: not made yet */
	size_t n;
	uint8_t *seen; /* bits, by the index in container->entries: asked for, or fetched ahead */
	uint64_t asked;
	struct run_stream streams[RUN_STREAMS];
	struct server_rates *server; /* of the carton */
};

/* Is it a small file, whose data is fetched with its header? */
bool run_takes(const struct entry *e);

/* Bytes around an entry. */
struct run_window {
	size_t at;		/* its index in run->order */
	uint64_t before, after; /* how many up to its end, and from its beginning on; 0: none */
};

/*
 * Somebody asks for this entry, which run_takes(), and which is not here: what is likely to be
 * asked for next. 0 or -ENOMEM.
 */
int run_follow(struct run *r, const struct entry *e, struct run_window *ret);

/* The entries [*ret_low, *ret_high) of run->order that are in the window, and the one itself. */
void run_around(const struct run *r, const struct run_window *w, size_t *ret_low, size_t *ret_high);

bool run_has_seen(const struct run *r, const struct entry *e);
void run_see(struct run *r, const struct entry *e);

/* How many bytes of one request, of a window, and between two entries, are worth it. */
uint64_t run_request(uint64_t window);
uint64_t run_most(const struct run *r, uint64_t ms);
uint64_t run_gap(const struct run *r);

void run_finish(struct run *r);

#endif
