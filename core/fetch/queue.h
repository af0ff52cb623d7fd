/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks that wait for a server or a route, in the order of asking. Guarded by its owner's lock. */
#ifndef CARTON_FETCH_QUEUE_H
#define CARTON_FETCH_QUEUE_H

#include "base/event.h"

/*
 * What a task has in a queue; zeroed at first. Private but for `task`, `background` and the last
 * two.
 */
struct queue_slot {
	struct task *task;
	struct queue_slot *next, **link; /* link is NULL while it is in no queue */
	bool background;		 /* no reader waits for this request: set by its owner, */
	bool yields;			 /* and as it was when the slot was queued */
	bool entered;			 /* it has sent a request */
	unsigned seen;			 /* pauses of the server when it was queued */
	int64_t patience_ms;		 /* with a server that has not been reached for so long */
	bool elsewhere;			 /* it does not wait if the next request fails, too */
};

/* Tasks that wait, in their order. */
struct queue {
	struct queue_slot *first;
};

/* Adds a slot that is in no queue: at the end, or in front of all background ones. */
void queue_add(struct queue *q, struct queue_slot *slot);
void queue_remove(struct queue_slot *slot);
void queue_wake(const struct queue *q, bool all); /* the first, or all */

#endif
