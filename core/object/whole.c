/* SPDX-License-Identifier: Apache-2.0 */
#include "object/whole.h"

#include <stdlib.h>

#include "base/budget.h"
#include "base/util.h"

#define BLOCK MIB
#define BLOCKS 4 /* in one step */
/* after a step during which somebody read, so many times as long: readers keep four fifths of a core and of the disk */
#define PAUSE 4
#define MIN_PAUSE_MS 20
#define AT_ONCE 2

struct whole {
	struct whole_options o;
	struct whole *next; /* in the queue */
	struct task task;
	struct cancel_hook hook;
	struct hasher hasher;
	char *block; /* once it has begun */
	uint64_t done;
	uint64_t reads; /* when the last step ended */
};

/* Bytes of the tags that it makes, beside those that readers check. */
static uint64_t cost(const struct whole_options *o)
{
	return (o->size / TAG_BLOCK + 1) * TAG_SIZE;
}

int whole_new(const struct whole_options *options, struct whole **ret)
{
	struct whole *w;
	int r = -ENOMEM;

	if (!budget_try(options->budget, cost(options)))
		return -EFBIG;
	w = calloc(1, sizeof(*w));
	if (w) {
		w->o = *options;
		r = hasher_begin(&w->hasher, options->tagger, true);
	}
	if (r < 0) {
		budget_give(options->budget, cost(options));
		free(w);
		return r;
	}
	*ret = w;
	return 0;
}

void whole_free(struct whole *w)
{
	if (!w)
		return;
	hasher_abort(&w->hasher);
	budget_give(w->o.budget, cost(&w->o));
	free(w->block);
	free(w);
}

static int hash_block(struct whole *w)
{
	size_t n = (size_t)MIN(BLOCK, w->o.size - w->done);
	int r = source_pread(w->o.source, w->block, n, w->o.off + w->done);

	/* a file that ends too early was cut off since */
	if (r == -ENODATA)
		r = -EBADMSG;
	if (r == 0)
		r = hasher_feed(&w->hasher, w->block, n);
	if (r == 0) {
		w->done += n;
		atomic_fetch_add(w->o.hashed, n);
	}
	return r;
}

/* ---- the queue ---- */

static bool step(struct task *t);

static void run(struct whole *w)
{
	w->reads = atomic_load(w->o.reads);
	task_init(&w->task, w->o.events, LANE_BULK, step);
	task_wake(&w->task);
}

void whole_start(struct whole *w)
{
	struct whole_queue *q = w->o.queue;
	bool now;

	pthread_mutex_lock(&q->lock);
	now = q->running < AT_ONCE;
	q->running += now;
	if (!now) {
		if (q->first)
			q->last->next = w;
		else
			q->first = w;
		q->last = w;
	}
	pthread_mutex_unlock(&q->lock);
	if (now)
		run(w);
}

/* One has ended: the next one's turn. */
static void run_next(struct whole_queue *q)
{
	struct whole *w;

	pthread_mutex_lock(&q->lock);
	w = q->first;
	if (w)
		q->first = w->next;
	else
		q->running--;
	pthread_mutex_unlock(&q->lock);
	if (w)
		run(w);
}

/* ---- one ---- */

static bool end(struct whole *w, int r)
{
	struct whole_options o = w->o;
	struct ingested in;

	cancel_hook_remove(o.cancel, &w->hook);
	task_end(&w->task);
	run_next(o.queue);
	if (r == 0)
		r = hasher_end(&w->hasher, &in);
	whole_free(w);
	o.done(o.ctx, r, r == 0 ? &in : NULL);
	return false;
}

static void on_cancel(struct cancel_hook *hook)
{
	task_wake(&container_of(hook, struct whole, hook)->task);
}

static bool step(struct task *t)
{
	struct whole *w = container_of(t, struct whole, task);
	uint64_t reads = atomic_load(w->o.reads);
	int64_t began_ms = now_ms(), now;
	int r = 0;

	/* in a step: a hook that fires at once cannot end the task while it is being started */
	if (!w->block) {
		w->hook.fire = on_cancel;
		cancel_hook_add(w->o.cancel, &w->hook);
		w->block = malloc(BLOCK);
		r = w->block ? 0 : -ENOMEM;
	}
	for (int i = 0; i < BLOCKS && r == 0 && w->done < w->o.size; i++)
		r = cancel_fired(w->o.cancel) ? -ECANCELED : hash_block(w);
	if (r < 0 || w->done == w->o.size)
		return end(w, r);
	now = now_ms();
	if (reads != w->reads)
		task_wake_at(t, now + MAX(MIN_PAUSE_MS, PAUSE * (now - began_ms)));
	else
		task_wake(t);
	w->reads = reads;
	return true;
}
