/* SPDX-License-Identifier: Apache-2.0 */
#include "content/hash_job.h"

#include <stdlib.h>

#include "base/budget.h"
#include "base/pace.h"
#include "base/util.h"

#define BLOCK MIB
#define BLOCKS 4 /* in one step */
/*
 * after a step during which somebody read, so many times as long: readers keep four fifths of a
 * core and of the disk
 */
#define PAUSE 4
#define MIN_PAUSE_MS 20
#define AT_ONCE 2

struct hash_job {
	struct hash_job_options o;
	struct hash_job *next; /* in the queue */
	struct task task;
	struct cancel_hook hook;
	struct hasher hasher;
	char *block; /* once it has begun */
	uint64_t done;
	uint64_t reads;		 /* when the last step ended */
	int64_t read_ms, due_ms; /* when a read was last seen; when it no longer waits */
};

/* Bytes of the tags that it makes, beside those that readers check. */
static uint64_t cost(const struct hash_job_options *o)
{
	return (o->size / TAG_BLOCK + 1) * TAG_SIZE;
}

int hash_job_new(const struct hash_job_options *options, struct hash_job **ret)
{
	struct hash_job *j;
	int r = -ENOMEM;

	if (!budget_try(options->budget, cost(options)))
		return -EFBIG;
	j = calloc(1, sizeof(*j));
	if (j) {
		j->o = *options;
		r = hasher_begin(&j->hasher, options->tagger, true);
	}
	if (r < 0) {
		budget_give(options->budget, cost(options));
		free(j);
		return r;
	}
	*ret = j;
	return 0;
}

void hash_job_free(struct hash_job *j)
{
	if (!j)
		return;
	hasher_abort(&j->hasher);
	budget_give(j->o.budget, cost(&j->o));
	free(j->block);
	free(j);
}

static int hash_block(struct hash_job *j)
{
	size_t n = (size_t)MIN(BLOCK, j->o.size - j->done);
	int r = source_pread(j->o.source, j->block, n, j->o.off + j->done);

	/* a file that ends too early was cut off since */
	if (r == -ENODATA)
		r = -EBADMSG;
	if (r == 0)
		r = hasher_feed(&j->hasher, j->block, n);
	if (r == 0) {
		j->done += n;
		atomic_fetch_add(j->o.hashed, n);
	}
	return r;
}

/* ---- the queue ---- */

static bool step(struct task *t);

static void run(struct hash_job *j)
{
	j->reads = atomic_load(j->o.reads);
	j->read_ms = now_ms();
	j->due_ms = j->read_ms + pace.hash_ms;
	task_init(&j->task, j->o.events, LANE_BULK, step);
	task_wake(&j->task);
}

void hash_job_start(struct hash_job *j)
{
	struct hash_job_queue *q = j->o.queue;
	bool now;

	pthread_mutex_lock(&q->lock);
	now = q->running < AT_ONCE;
	q->running += now;
	if (!now) {
		if (q->first)
			q->last->next = j;
		else
			q->first = j;
		q->last = j;
	}
	pthread_mutex_unlock(&q->lock);
	if (now)
		run(j);
}

/* One has ended: the next one's turn. */
static void run_next(struct hash_job_queue *q)
{
	struct hash_job *j;

	pthread_mutex_lock(&q->lock);
	j = q->first;
	if (j)
		q->first = j->next;
	else
		q->running--;
	pthread_mutex_unlock(&q->lock);
	if (j)
		run(j);
}

/* ---- one ---- */

static bool end(struct hash_job *j, int r)
{
	struct hash_job_options o = j->o;
	struct ingested in;

	cancel_hook_remove(o.cancel, &j->hook);
	task_finish(&j->task);
	run_next(o.queue);
	if (r == 0)
		r = hasher_end(&j->hasher, &in);
	hash_job_free(j);
	o.done(o.ctx, r, r == 0 ? &in : NULL);
	return false;
}

static void on_cancel(struct cancel_hook *hook)
{
	task_wake(&container_of(hook, struct hash_job, hook)->task);
}

/*
 * Must readers be waited for? They keep the disk and the cores while they read, and what they have
 * read is in the page cache then.
 */
static bool gives_way(struct hash_job *j, int64_t now)
{
	uint64_t reads = atomic_load(j->o.reads);

	if (reads != j->reads)
		j->read_ms = now;
	j->reads = reads;
	return now < j->due_ms && now < j->read_ms + pace.idle_ms;
}

static bool step(struct task *t)
{
	struct hash_job *j = container_of(t, struct hash_job, task);
	int64_t began_ms = now_ms(), now;
	int r = 0;

	/* in a step: a hook that fires at once cannot end the task while it is being started */
	if (!j->block) {
		j->hook.fire = on_cancel;
		cancel_hook_add(j->o.cancel, &j->hook);
		j->block = malloc(BLOCK);
		r = j->block ? 0 : -ENOMEM;
	}
	if (r == 0 && cancel_fired(j->o.cancel))
		r = -ECANCELED;
	if (r == 0 && gives_way(j, began_ms)) {
		task_wake_at(t, MIN(j->due_ms, j->read_ms + pace.idle_ms));
		return true;
	}
	for (int i = 0; i < BLOCKS && r == 0 && j->done < j->o.size; i++)
		r = cancel_fired(j->o.cancel) ? -ECANCELED : hash_block(j);
	if (r < 0 || j->done == j->o.size)
		return end(j, r);
	now = now_ms();
	if (atomic_load(j->o.reads) != j->reads)
		task_wake_at(t, now + MAX(MIN_PAUSE_MS, PAUSE * (now - began_ms)));
	else
		task_wake(t);
	return true;
}
