/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans: small entries that lie next to each other in a remote carton (run.h), fetched by one
 * request into memory. Whoever waits for one of the entries then takes its part; those that nobody
 * has asked for get a fill, so that they are verified and kept as all others are.
 *
 * A span is no more than bytes that may be right: each part is a copy of its own, whose header is
 * compared and which is hashed, as if it had been fetched alone. A span that cannot be fetched is
 * nobody's failure: each entry is then asked for alone.
 *
 * Threads: any.
 */
#ifndef CARTON_CONTENT_SPAN_H
#define CARTON_CONTENT_SPAN_H

#include <stdbool.h>
#include <stdint.h>

struct entry;
struct fetch_place;
struct file;
struct object;
struct span;
struct waits;

/* Who waits for a span. Belongs to the caller, who sets the first three. */
struct span_wait {
	/*
	 * The span is there, as long as the call lasts; NULL: it is not, and the entry is to be
	 * asked for alone. Called once, on a worker.
	 */
	void (*done)(struct span_wait *w, struct span *span);
	struct object *object;
	const struct entry *entry;
	struct waits *waits; /* whose deadlines its bytes move on */
	struct span_wait *next;
};

/*
 * The object's fill needs this entry: waits for the span that has it, which may be a new one, with
 * others. False: there is none, so it is to be asked for alone.
 */
bool span_ask(struct span_wait *w);

/* Does a span have it, or will soon? */
bool span_has(const struct object *o, const struct entry *e);

/* Copies the `n` bytes at `off` of the carton; *ret_from is who has sent them. 0 or -errno. */
int span_copy(const struct span *s, struct file *dest, uint64_t off, uint64_t n,
	      struct fetch_place **ret_from);

#endif
