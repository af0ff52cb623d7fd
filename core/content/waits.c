/* SPDX-License-Identifier: Apache-2.0 */
#include "content/waits.h"

#include <stdlib.h>

#include "base/failure.h"
#include "base/pace.h"
#include "base/util.h"
#include "fetch/server.h"
#include "fetch/version.h"
#include "content/internal.h"

#define MIN_RATE 1024 /* bytes a second that keep a waiter waiting */

void waits_init(struct waits *l, struct object *o)
{
	*l = (struct waits){ .object = o };
	cancel_init(&l->cancel, &o->store->stop);
}

void waits_finish(struct waits *l)
{
	cancel_finish(&l->cancel);
}

/* ---- the list ---- */

static void unlink_wait(struct object_wait *w)
{
	*w->link = w->next;
	if (w->next)
		w->next->link = w->link;
	w->link = NULL;
	w->waits->n--;
}

bool waits_are_timed(const struct object *o)
{
	const struct object_options *options = &o->store->options;

	return options->timeout_ms && (o->ops->may_wait || options->source);
}

static void set_deadline(struct waits *l, struct object_wait *w)
{
	struct object_store *s = l->object->store;

	w->deadline_ms = now_ms() + s->options.timeout_ms + pace.grace_ms;
	if (!l->timed_link) {
		l->next_timed = s->timed;
		l->timed_link = &s->timed;
		if (l->next_timed)
			l->next_timed->timed_link = &l->next_timed;
		s->timed = l;
	}
	task_wake_at(&s->clock, w->deadline_ms);
}

static bool is_background(const struct waits *l);

static bool is_reader(const struct object_wait *w)
{
	return !w->background && !(w->above && is_background(w->above));
}

/* Lock held. */
static bool is_background(const struct waits *l)
{
	const struct object_wait *w = l->first;

	while (w && !is_reader(w))
		w = w->next;
	return (l->first && !w) || atomic_load(&l->object->wanted);
}

bool waits_background(void *waits)
{
	struct waits *l = waits;
	bool background;

	pthread_mutex_lock(&l->object->store->lock);
	background = is_background(l);
	pthread_mutex_unlock(&l->object->store->lock);
	return background;
}

unsigned waits_readers(const struct waits *l)
{
	unsigned n = 0;

	for (const struct object_wait *w = l->first; w; w = w->next)
		n += is_reader(w);
	/* object_want() has a waiter, too, and is no reader */
	return n - MIN(n, (unsigned)atomic_load(&l->object->wanted));
}

void waits_add(struct waits *l, struct object_wait *w)
{
	const struct fetch_options *fetch = l->object->store->options.fetch;
	bool before = is_background(l);

	w->object = l->object;
	w->waits = l;
	w->next = l->first;
	w->link = &l->first;
	if (w->next)
		w->next->link = &w->next;
	l->first = w;
	l->n++;
	w->deadline_ms = INT64_MAX;
	if (waits_are_timed(l->object) || (w->above && waits_are_timed(w->above->object)))
		set_deadline(l, w);
	if (fetch && before && !is_background(l))
		servers_look_again(fetch->servers);
}

bool waits_renew(struct waits *l, int result)
{
	struct cancel *stop = &l->object->store->stop;

	if (result != -ECANCELED || !l->first || cancel_fired(stop))
		return false;
	cancel_finish(&l->cancel);
	cancel_init(&l->cancel, stop);
	return true;
}

struct object_wait *waits_take_until(struct waits *l, uint64_t end)
{
	struct object_wait *list = NULL, *following;

	for (struct object_wait *w = l->first; w; w = following) {
		following = w->next;
		if (w->end > end)
			continue;
		unlink_wait(w);
		w->next = list;
		list = w;
	}
	if (l->timed_link && !l->first) {
		*l->timed_link = l->next_timed;
		if (l->next_timed)
			l->next_timed->timed_link = l->timed_link;
		l->timed_link = NULL;
	}
	return list;
}

struct object_wait *waits_take(struct waits *l)
{
	return waits_take_until(l, UINT64_MAX);
}

void waits_end(struct object_wait *list, int result)
{
	/* a waiter's callback may leave another text */
	char *why = result < 0 ? failure_copy() : NULL;

	while (list) {
		struct object_wait *w = list;

		list = w->next;
		failure_set(why);
		w->done(w, result);
	}
	free(why);
}

bool object_wait_cancel(struct object_wait *wait)
{
	struct object_store *s = wait->object->store;
	bool queued;

	pthread_mutex_lock(&s->lock);
	queued = wait->link != NULL;
	if (queued) {
		unlink_wait(wait);
		if (wait->waits->n == 0)
			cancel_fire(&wait->waits->cancel);
	}
	pthread_mutex_unlock(&s->lock);
	return queued;
}

/* ---- deadlines ---- */

/*
 * Bytes came: they move on the deadlines of those who wait, and of those for whose work one of them
 * waits. Lock held.
 */
static void move_on(struct waits *l, uint64_t bytes, int64_t ms)
{
	l->moved += bytes;
	l->moved_ms = MAX(l->moved_ms, ms);
	for (struct object_wait *w = l->first; w && bytes > 0; w = w->next)
		if (w->above)
			move_on(w->above, bytes, ms);
}

/* Moves overdue waits to *list; *next_ms is the earliest deadline that is left. Lock held. */
static void expire(struct waits *l, struct object_wait **list, int64_t *next_ms)
{
	int64_t more = (int64_t)(l->moved * 1000 / MIN_RATE);
	int64_t most = l->moved_ms + l->object->store->options.timeout_ms + pace.grace_ms;
	unsigned before = l->n;

	l->moved = 0;
	for (struct object_wait *w = l->first, *following; w; w = following) {
		following = w->next;
		if (more > 0 && !l->fixed && w->deadline_ms != INT64_MAX)
			w->deadline_ms = MAX(w->deadline_ms, MIN(w->deadline_ms + more, most));
		if (w->deadline_ms > now_ms()) {
			*next_ms = MIN(*next_ms, w->deadline_ms);
			continue;
		}
		unlink_wait(w);
		w->next = *list;
		*list = w;
		if (l->expired)
			l->expired(l, w);
	}
	if (before > 0 && l->n == 0) {
		carton_log(CARTON_LOG_ERROR, l->object->name, "cannot be read now: %s",
			   strerror(ETIMEDOUT));
		cancel_fire(&l->cancel);
	}
}

bool waits_expire(struct task *clock)
{
	struct object_store *s = container_of(clock, struct object_store, clock);
	struct object_wait *list = NULL;
	int64_t next_ms = INT64_MAX;

	pthread_mutex_lock(&s->lock);
	for (struct waits *l = s->timed; l; l = l->next_timed)
		move_on(l, atomic_exchange(&l->progress, 0), atomic_load(&l->progress_ms));
	for (struct waits *l = s->timed; l; l = l->next_timed)
		expire(l, &list, &next_ms);
	if (next_ms != INT64_MAX && !cancel_fired(&s->stop))
		task_wake_at(&s->clock, next_ms);
	pthread_mutex_unlock(&s->lock);
	waits_end(list, -ETIMEDOUT);
	return true;
}

void waits_progress(void *waits, uint64_t bytes)
{
	struct waits *l = waits;

	atomic_store(&l->progress_ms, now_ms());
	atomic_fetch_add(&l->progress, bytes);
}

void waits_arrived(void *waits, uint64_t bytes)
{
	struct waits *l = waits;

	atomic_fetch_add(&l->arrived, bytes);
	waits_progress(l, bytes);
}

void waits_hashed(void *waits, uint64_t bytes)
{
	struct waits *l = waits;

	atomic_fetch_add(&l->hashed, bytes);
	atomic_fetch_add(&l->object->store->ingested, bytes);
	waits_progress(l, bytes);
}

void waits_announced(void *waits, uint64_t bytes)
{
	atomic_store(&((struct waits *)waits)->announced, bytes);
}

int waits_work(struct waits *l, uint64_t bytes)
{
	if (l)
		waits_progress(l, bytes);
	return l && cancel_fired(&l->cancel) ? -ECANCELED : 0;
}
