/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of the load of servers. A server is an origin: scheme, host and port of a URL.
 *
 * Who wants to send a request enters its origin, and leaves it when the request is over. A server that
 * answers 429 or 503 asks for less: then all requests to it share one pause, and after it they are
 * fewer at once (half) and further apart (twice the time). Both grow back little by little with right
 * answers. Whoever has to wait is served in the order of asking, and keeps no thread.
 *
 * The first refusal of an incident is logged, and at its end how many there were.
 *
 * Threads: any. Functions take NULL origins.
 */
#ifndef CARTON_FETCH_ORIGIN_H
#define CARTON_FETCH_ORIGIN_H

#include "base/event.h"

struct origins;
struct origin;

/* A task's place in a queue; zeroed at first. Private but for `task`. */
struct turn {
	struct task *task;
	struct turn *next, **link; /* link is NULL while it is in no queue */
	bool entered;		   /* it has sent a request */
};

/* Tasks that wait, in their order; guarded by its owner's lock. */
struct queue {
	struct turn *first;
};

void queue_add(struct queue *q, struct turn *t); /* at the end, unless it is in it */
void queue_remove(struct turn *t);
void queue_wake(const struct queue *q, bool all); /* the first, or all */

/* 0 or -ENOMEM. */
int origins_new(struct origins **ret);

/* Logs the ends of incidents. All references are given back by then. NULL-safe. */
void origins_free(struct origins *o);

/* A reference to the origin of a URL; NULL: `o` is NULL, or out of memory. */
struct origin *origin_get(struct origins *o, const char *url);
struct origin *origin_ref(struct origin *o);
void origin_unref(struct origin *o);

/*
 * 0: a request may be sent; then origin_leave() is called once. -EAGAIN: the turn is queued, and the task
 * asks again when it is woken, and at *ret_when_ms. -EBUSY: the server asks to be left alone until
 * after `deadline_ms`. (Who comes then for the first time may try all the same, one at a time.)
 */
int origin_enter(struct origin *o, struct turn *t, int64_t deadline_ms, int64_t *ret_when_ms);
void origin_leave(struct origin *o);

/* The turn is not wanted any more. May be called at any time. */
void origin_give_up(struct origin *o, struct turn *t);

/* The server has answered so. The URL is for the log. */
void origin_answered(struct origin *o, const char *url, int status, long retry_after_s);

/* A mirror there could not be reached: for a while it counts as paused. Logged once. */
void origin_unreached(struct origins *o, const char *url);

/* How long the origin will be paused, in ms; 0: it is not. */
int64_t origin_paused(struct origin *o);

/* When it last gave a right answer, in now_ms(); 0: never. */
int64_t origin_served(struct origin *o);

/*
 * The pause in ms before attempt number `attempt` (from 1): longer each time, never the same for all,
 * at least `retry_after_s`.
 */
int64_t origin_pause(unsigned attempt, long retry_after_s);

#endif
