/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/follow.h"

#include "base/util.h"

/* the network may be so far ahead of the hash: together they use all cores to the end */
#define LAG (16 * MIB)
/* what is hashed at once: by the task itself; by the job, after which others have their turn */
#define HASH_HERE (256 * KIB)
#define HASH_JOB (32 * MIB)

static void hash_blocks(struct follow *f)
{
	char block[128 * KIB];

	for (uint64_t to;
	     (to = MIN(f->to, f->end)) > f->done && f->error == 0 && !cancel_fired(f->cancel);) {
		size_t n = (size_t)MIN(sizeof(block), to - f->done);
		int r = file_read(f->dest, block, n, f->done);

		if (r == 0)
			r = hasher_feed(&f->hasher, block, n);
		f->error = r;
		f->done += n;
		if (r == 0 && f->progress)
			f->progress(f->ctx, n);
	}
}

static void run(struct job *job)
{
	struct follow *f = container_of(job, struct follow, job);

	hash_blocks(f);
	pthread_mutex_lock(&f->lock);
	f->busy = false;
	/* with the lock: the task may be over as soon as it sees this */
	task_wake(f->task);
	pthread_mutex_unlock(&f->lock);
}

void follow_init(struct follow *f)
{
	f->job.run = run;
	f->busy = f->begun = false;
	pthread_mutex_init(&f->lock, NULL);
}

static void drop(struct follow *f)
{
	if (f->begun)
		hasher_abort(&f->hasher);
	f->begun = false;
}

void follow_finish(struct follow *f)
{
	drop(f);
	pthread_mutex_destroy(&f->lock);
}

bool follow_is_busy(struct follow *f)
{
	bool busy;

	if (!f)
		return false;
	pthread_mutex_lock(&f->lock);
	busy = f->busy;
	pthread_mutex_unlock(&f->lock);
	return busy;
}

int follow_begin(struct follow *f, struct task *task)
{
	int r;

	if (!f)
		return 0;
	drop(f);
	f->task = task;
	f->to = f->done = 0;
	f->error = 0;
	r = hasher_begin(&f->hasher, f->tagger, f->hash);
	f->begun = r == 0;
	return r;
}

static bool is_behind(const struct follow *f)
{
	return f->error == 0 && f->done < f->to;
}

bool follow_on(struct follow *f, uint64_t arrived, bool all)
{
	if (!f)
		return false;
	f->to = arrived;
	/* a job that runs goes on */
	if (follow_is_busy(f))
		return true;
	if (!is_behind(f))
		return false;
	f->end = f->done + HASH_JOB;
	if (arrived - f->done > HASH_HERE) {
		/* no other thread looks at `busy` until the job is submitted */
		f->busy = true;
		workers_submit(f->workers, &f->job, LANE_NET);
		return true;
	}
	/* not little by little, which costs more */
	if (all)
		hash_blocks(f);
	return is_behind(f);
}

uint64_t follow_limit(const struct follow *f)
{
	return f && f->error == 0 ? f->done + LAG : UINT64_MAX;
}

int follow_end(struct follow *f, struct ingested *ret)
{
	if (f->error < 0)
		return f->error;
	f->begun = false;
	return hasher_end(&f->hasher, ret);
}
