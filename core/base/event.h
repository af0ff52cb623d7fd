/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks: state machines that run in short steps on workers, so that waiting costs no thread.
 *
 * A task that waits is woken by whatever it waits for: a callback of http, a cancel hook, a timer,
 * another task. Each wake makes a worker run a step soon; several wakes may be one step, so a step
 * looks at everything it waits for.
 *
 * Threads: any thread may wake a task and set its timer. Steps of one task never overlap.
 */
#ifndef CARTON_BASE_EVENT_H
#define CARTON_BASE_EVENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/workers.h"

struct events;

/* Embedded in what it works on; find that with container_of(). All fields are private. */
struct task {
	struct job job;
	struct events *events;
	bool (*step)(struct task *t);
	enum lane lane;
	atomic_uint state;
	int64_t when_ms;	   /* guarded by events, as the next line */
	struct task *next, **link; /* timers by time; link is NULL while none is set */
};

/* Starts the timer thread. `workers` outlives it. 0, -ENOMEM or -EAGAIN. */
int events_new(struct workers *workers, struct events **ret);

/* Ends the timer thread; no timer fires after it. NULL-safe. */
void events_free(struct events *e);

/*
 * `step` runs on `lane` and must not wait. It returns false when the task is over: before, it has
 * made sure that nothing wakes the task any more and called task_finish(), and it may have freed
 * it.
 */
void task_init(struct task *t, struct events *e, enum lane lane, bool (*step)(struct task *t));

/* Runs a step soon; once more when one is running now. Never fails, never waits. */
void task_wake(struct task *t);

/*
 * Wakes the task at `when_ms` (now_ms()) at the latest. It may come earlier: set it in each step.
 */
void task_wake_at(struct task *t, int64_t when_ms);

/* Stops the timer. */
void task_finish(struct task *t);

#endif
