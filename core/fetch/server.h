/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load of servers, as far as it is known. A server is the scheme, host and port of a URL.
 *
 * A task enters the server before it sends a request, and leaves it when the request is over. A
 * server that answers 429 or 503 asks for less: then all requests to it share one pause, and after
 * it they are fewer at once (half) and further apart (twice the time). Both grow back little by
 * little with right answers. Tasks that wait are served in the order of asking, and keep no thread.
 *
 * The first refusal of an incident is logged, and at its end how many there were.
 *
 * Threads: any. Functions take NULL servers.
 */
#ifndef CARTON_FETCH_SERVER_H
#define CARTON_FETCH_SERVER_H

#include "base/event.h"

struct servers;
struct server;

/* A task's place in a queue; zeroed at first. Private but for `task`. */
struct queue_slot {
	struct task *task;
	struct queue_slot *next, **link; /* link is NULL while it is in no queue */
	bool entered;			 /* it has sent a request */
};

/* Tasks that wait, in their order; guarded by its owner's lock. */
struct queue {
	struct queue_slot *first;
};

void queue_add(struct queue *q, struct queue_slot *slot); /* at the end, unless it is in it */
void queue_remove(struct queue_slot *slot);
void queue_wake(const struct queue *q, bool all); /* the first, or all */

/* 0 or -ENOMEM. */
int servers_new(struct servers **ret);

/* Logs the ends of incidents. All references are given back by then. NULL-safe. */
void servers_free(struct servers *all);

/* A reference to the server of a URL; NULL: `all` is NULL, or out of memory. */
struct server *server_get(struct servers *all, const char *url);
struct server *server_ref(struct server *s);
void server_unref(struct server *s);

/*
 * 0: a request may be sent; then server_leave() is called once. -EAGAIN: the slot is queued, and
 * the task asks again when it is woken, and at *ret_when_ms. -EBUSY: the server asks to be left
 * alone until after `deadline_ms`. (Who comes then for the first time may try all the same, one at
 * a time.)
 */
int server_enter(struct server *s, struct queue_slot *slot, int64_t deadline_ms,
		 int64_t *ret_when_ms);
void server_leave(struct server *s);

/* The slot is not wanted any more. May be called at any time. */
void server_give_up(struct server *s, struct queue_slot *slot);

/* The server has answered so. The URL is for the log. */
void server_answered(struct server *s, const char *url, int status, long retry_after_s);

/* A mirror there could not be reached: for a while it counts as paused. Logged once. */
void server_unreached(struct servers *all, const char *url);

/* How long the server will be paused, in ms; 0: it is not. */
int64_t server_paused(struct server *s);

/* When it last gave a right answer, in now_ms(); 0: never. */
int64_t server_served(struct server *s);

/*
 * The pause in ms before attempt number `attempt` (from 1): longer each time, never the same for
 * all, at least `retry_after_s`.
 */
int64_t server_pause(unsigned attempt, long retry_after_s);

#endif
