/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that waits for a callback, or until a token fires. A worker that waits so does not count
 * as a thread of its lane (workers.h).
 *
 * Threads: one waits, any thread may wake it.
 */
#ifndef CARTON_BASE_SLEEPER_H
#define CARTON_BASE_SLEEPER_H

#include "base/cancel.h"

/* Embedded in what the callback gets, or that itself. All but `result` is private. */
struct sleeper {
	pthread_mutex_t lock; /* guards the next two */
	pthread_cond_t changed;
	bool woken, fired;
	struct cancel_hook hook;
	int result;    /* what it was woken with */
	char *failure; /* the text of a result below 0, see failure.h; or NULL */
};

void sleeper_init(struct sleeper *s);
void sleeper_finish(struct sleeper *s);

/*
 * The callback has come, with that result; below 0, the text of the failure (failure.h) goes to the
 * thread that waits. Once, and the last thing that is done with `s`.
 */
void sleeper_wake(struct sleeper *s, int result);

/*
 * Waits until it was woken: 0; -ECANCELED if `cancel` fires before that; -EBUSY: too many threads
 * of the lane wait already. With NULL for `cancel` it cannot fail. After a failure the callback may
 * still come: either the caller sees to it that it does not, or waits again.
 */
int sleeper_wait(struct sleeper *s, struct cancel *cancel);

/* Waits as with NULL, but only until `until_ms` (now_ms()): was it woken? It may wait again. */
bool sleeper_wait_until(struct sleeper *s, int64_t until_ms);

#endif
