/* SPDX-License-Identifier: Apache-2.0 */
#include "content/hash_job.h"

#include <stdlib.h>

#include "base/pace.h"
#include "base/util.h"

#define STEP (4 * MIB) /* bytes of chunks in one step */
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
	bool alone; /* it takes no turn: nothing is left to verify */
	bool begun;
	uint64_t at;		 /* the next chunk */
	uint64_t reads;		 /* when the last step ended */
	int64_t read_ms, due_ms; /* when a read was last seen; when it no longer waits */
};

int hash_job_new(const struct hash_job_options *options, struct hash_job **ret)
{
	struct hash_job *j = calloc(1, sizeof(*j));

	if (!j)
		return -ENOMEM;
	j->o = *options;
	*ret = j;
	return 0;
}

/* Verifies some chunks. 0; -EBADMSG: one does not fit; -ECANCELED; or why one could not be read. */
static int verify_some(struct hash_job *j)
{
	uint64_t n = chunked_count(j->o.chunks), done = 0;

	while (done < STEP && j->at < n) {
		uint64_t from = j->at;
		int r;

		if (chunked_is_verified(j->o.chunks, from)) {
			j->at++;
			continue;
		}
		r = cancel_fired(j->o.cancel) ?
			    -ECANCELED :
			    chunked_verify_several(j->o.chunks, from, n, &j->at);
		if (r < 0)
			return r;
		done += (j->at - from) * chunked_len(j->o.chunks, from);
	}
	return 0;
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

	j->alone = chunked_is_complete(j->o.chunks);
	if (j->alone) {
		run(j);
		return;
	}
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

	cancel_hook_remove(o.cancel, &j->hook);
	task_finish(&j->task);
	if (!j->alone)
		run_next(o.queue);
	free(j);
	o.done(o.ctx, r);
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
	int r;

	/* in a step: a hook that fires at once cannot end the task while it is being started */
	if (!j->begun) {
		j->hook.fire = on_cancel;
		cancel_hook_add(j->o.cancel, &j->hook);
		j->begun = true;
	}
	if (chunked_is_complete(j->o.chunks))
		return end(j, 0);
	if (cancel_fired(j->o.cancel))
		return end(j, -ECANCELED);
	if (gives_way(j, began_ms)) {
		task_wake_at(t, MIN(j->due_ms, j->read_ms + pace.idle_ms));
		return true;
	}
	r = verify_some(j);
	if (r < 0)
		return end(j, r);
	if (j->at == chunked_count(j->o.chunks))
		return end(j, 0);
	now = now_ms();
	if (atomic_load(j->o.reads) != j->reads)
		task_wake_at(t, now + MAX(MIN_PAUSE_MS, PAUSE * (now - began_ms)));
	else
		task_wake(t);
	return true;
}
