/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks: state machines that run in short steps on workers, so that waiting costs no thread.
 *
 * A callback of http, a cancel hook, a timer or another task wakes a task that waits. Each wake
 * makes a worker run a step soon; several wakes may be one step, so a step checks each thing that
 * the task waits for.
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

/* Embedded in the struct that it works on (container_of()). All fields are private. */
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
 * `step` runs on `lane` and must not wait. It returns false when the task is over: by then nothing
 * wakes the task any more, `step` has called task_finish(), and may have freed the task.
 */
void task_init(struct task *t, struct events *e, enum lane lane, bool (*step)(struct task *t));

/* Runs a step soon; once more when one is running now. Never fails, never waits. */
void task_wake(struct task *t);

/*
 * Wakes the task at `when_ms` (now_ms()) at the latest. The wake may come earlier, so each step
 * sets the time anew.
 */
void task_wake_at(struct task *t, int64_t when_ms);

/* Stops the timer. */
void task_finish(struct task *t);

#endif
