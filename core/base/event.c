/* SPDX-License-Identifier: Apache-2.0 */
#include "base/event.h"

#include <stdlib.h>

#include "base/util.h"

enum task_state {
	TASK_IDLE,
	TASK_QUEUED,
	TASK_RUNNING,
	TASK_AGAIN, /* running, and woken since */
};

struct events {
	struct workers *workers;
	pthread_t thread;
	pthread_mutex_t lock; /* guards what follows, and the timers of tasks */
	pthread_cond_t changed;
	struct task *first;	 /* by when_ms */
	struct task **queue_end; /* &last->next: most new timers go to the end */
	bool stopping;
};

static void run_step(struct job *job)
{
	struct task *t = container_of(job, struct task, job);
	unsigned running = TASK_RUNNING;

	atomic_store(&t->state, TASK_RUNNING);
	if (!t->step(t))
		return;
	if (atomic_compare_exchange_strong(&t->state, &running, TASK_IDLE))
		return;
	atomic_store(&t->state, TASK_QUEUED);
	workers_submit(t->events->workers, &t->job, t->lane);
}

void task_init(struct task *t, struct events *e, enum lane lane, bool (*step)(struct task *t))
{
	*t = (struct task){ .job.run = run_step, .events = e, .step = step, .lane = lane };
}

void task_wake(struct task *t)
{
	unsigned state = atomic_load(&t->state);

	do {
		if (state == TASK_QUEUED || state == TASK_AGAIN)
			return;
	} while (!atomic_compare_exchange_weak(&t->state, &state,
					       state == TASK_IDLE ? TASK_QUEUED : TASK_AGAIN));
	if (state == TASK_IDLE)
		workers_submit(t->events->workers, &t->job, t->lane);
}

/* ---- timers ---- */

/* Takes a task off the list. Lock held. */
static void unlink_timer(struct events *e, struct task *t)
{
	*t->link = t->next;
	if (t->next)
		t->next->link = t->link;
	else
		e->queue_end = t->link;
	t->link = NULL;
}

void task_wake_at(struct task *t, int64_t when_ms)
{
	struct events *e = t->events;
	struct task **at;

	pthread_mutex_lock(&e->lock);
	/* firing early is harmless, and mostly the time only moves later */
	if (t->link && t->when_ms <= when_ms) {
		pthread_mutex_unlock(&e->lock);
		return;
	}
	if (t->link)
		unlink_timer(e, t);
	t->when_ms = when_ms;
	at = e->queue_end;
	if (at != &e->first && container_of(at, struct task, next)->when_ms > when_ms)
		for (at = &e->first; (*at)->when_ms <= when_ms;)
			at = &(*at)->next;
	t->next = *at;
	t->link = at;
	if (t->next)
		t->next->link = &t->next;
	else
		e->queue_end = &t->next;
	*at = t;
	if (e->first == t)
		pthread_cond_signal(&e->changed);
	pthread_mutex_unlock(&e->lock);
}

void task_finish(struct task *t)
{
	pthread_mutex_lock(&t->events->lock);
	if (t->link)
		unlink_timer(t->events, t);
	pthread_mutex_unlock(&t->events->lock);
}

static void *fire_timers(void *arg)
{
	struct events *e = arg;

	pthread_mutex_lock(&e->lock);
	while (!e->stopping) {
		struct task *t = e->first;

		if (!t) {
			pthread_cond_wait(&e->changed, &e->lock);
		} else if (t->when_ms > now_ms()) {
			struct timespec ts = ms_to_timespec(t->when_ms);

			pthread_cond_timedwait(&e->changed, &e->lock, &ts);
		} else {
			/* lock held: after task_finish() no wake may follow */
			unlink_timer(e, t);
			task_wake(t);
		}
	}
	pthread_mutex_unlock(&e->lock);
	return NULL;
}

int events_new(struct workers *workers, struct events **ret)
{
	struct events *e = calloc(1, sizeof(*e));
	int r;

	if (!e)
		return -ENOMEM;
	e->workers = workers;
	e->queue_end = &e->first;
	pthread_mutex_init(&e->lock, NULL);
	cond_init(&e->changed);
	r = thread_start(&e->thread, fire_timers, e);
	if (r < 0) {
		pthread_cond_destroy(&e->changed);
		pthread_mutex_destroy(&e->lock);
		free(e);
		return r;
	}
	*ret = e;
	return 0;
}

void events_free(struct events *e)
{
	if (!e)
		return;
	pthread_mutex_lock(&e->lock);
	e->stopping = true;
	pthread_cond_signal(&e->changed);
	pthread_mutex_unlock(&e->lock);
	pthread_join(e->thread, NULL);
	pthread_cond_destroy(&e->changed);
	pthread_mutex_destroy(&e->lock);
	free(e);
}
