/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits for an attempt to get an object's bytes, and until when. */
#include "base/util.h"
#include "object/internal.h"

#define MIN_RATE 1024 /* bytes a second that keep a waiter waiting */
/* a fetch that times out by itself says better why, so it gets to */
#define DEADLINE_GRACE_MS 500

bool waits_are_timed(const struct object *o)
{
	const struct object_options *options = &o->store->options;

	return options->events && options->timeout_ms &&
	       (o->maker->ops->may_wait || options->source);
}

static void unlink_wait(struct object_wait *w)
{
	*w->link = w->next;
	if (w->next)
		w->next->link = w->link;
	w->link = NULL;
	w->making->n_waiting--;
}

void wait_link(struct making *m, struct object_wait *w)
{
	w->object = m->object;
	w->making = m;
	w->next = m->waits;
	w->link = &m->waits;
	if (w->next)
		w->next->link = &w->next;
	m->waits = w;
	m->n_waiting++;
}

struct object_wait *waits_take(struct making *m)
{
	struct object_wait *list = NULL, *w;

	while ((w = m->waits)) {
		unlink_wait(w);
		w->next = list;
		list = w;
	}
	return list;
}

void waits_finish(struct object_wait *list, int result)
{
	while (list) {
		struct object_wait *w = list;

		list = w->next;
		w->done(w, result);
	}
}

/* ---- deadlines ---- */

void wait_time(struct making *m, struct object_wait *w)
{
	struct object_store *s = m->object->store;

	if (!waits_are_timed(m->object))
		return;
	w->deadline_ms = now_ms() + s->options.timeout_ms + DEADLINE_GRACE_MS;
	if (!m->timed_link) {
		m->next_timed = s->timed;
		m->timed_link = &s->timed;
		if (m->next_timed)
			m->next_timed->timed_link = &m->next_timed;
		s->timed = m;
	}
	task_wake_at(&s->clock, w->deadline_ms);
}

void waits_untime(struct making *m)
{
	if (!m->timed_link)
		return;
	*m->timed_link = m->next_timed;
	if (m->next_timed)
		m->next_timed->timed_link = m->timed_link;
	m->timed_link = NULL;
}

/* Moves overdue waits to *list; *next_ms is the earliest deadline that is left. Lock held. */
static void expire_waits(struct making *m, struct object_wait **list, int64_t *next_ms)
{
	int64_t more = (int64_t)(atomic_exchange(&m->progress, 0) * 1000 / MIN_RATE);
	int64_t most = atomic_load(&m->progress_ms) + m->object->store->options.timeout_ms +
		       DEADLINE_GRACE_MS;
	unsigned before = m->n_waiting;

	for (struct object_wait *w = m->waits, *following; w; w = following) {
		following = w->next;
		/* a size that only all bytes tell is not waited for longer than others */
		if (more > 0 && !m->size_only)
			w->deadline_ms = MAX(w->deadline_ms, MIN(w->deadline_ms + more, most));
		if (w->deadline_ms > now_ms()) {
			*next_ms = MIN(*next_ms, w->deadline_ms);
			continue;
		}
		unlink_wait(w);
		w->next = *list;
		*list = w;
	}
	if (before > 0 && m->n_waiting == 0) {
		carton_log(CARTON_LOG_ERROR, m->object->name, "cannot be read now: %s",
			   strerror(ETIMEDOUT));
		cancel_fire(&m->cancel);
	}
}

bool object_expire(struct task *clock)
{
	struct object_store *s = container_of(clock, struct object_store, clock);
	struct object_wait *list = NULL;
	int64_t next_ms = INT64_MAX;

	pthread_mutex_lock(&s->lock);
	for (struct making *m = s->timed; m; m = m->next_timed)
		expire_waits(m, &list, &next_ms);
	if (next_ms != INT64_MAX && !cancel_fired(&s->stop))
		task_wake_at(&s->clock, next_ms);
	pthread_mutex_unlock(&s->lock);
	waits_finish(list, -ETIMEDOUT);
	return true;
}

bool object_wait_cancel(struct object_wait *wait)
{
	struct object_store *s = wait->object->store;
	bool queued;

	pthread_mutex_lock(&s->lock);
	queued = wait->link != NULL;
	if (queued) {
		unlink_wait(wait);
		if (wait->making->n_waiting == 0)
			cancel_fire(&wait->making->cancel);
	}
	pthread_mutex_unlock(&s->lock);
	return queued;
}
