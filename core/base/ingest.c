/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ingest.h"

#include <stdlib.h>

#include "base/util.h"

#define BLOCK ((size_t)512 * 1024)
#define BLOCKS 4
/* blocks to hash before it pays to start a second thread */
#define ALONE 8

struct block {
	char *data;
	size_t n;
	uint64_t off;
	struct tagged tagged; /* the same bytes, to be hashed */
	bool observe;	      /* the second thread gives it to the observer */
};

struct run {
	const struct ingest *job;
	struct hasher hasher;
	struct block blocks[BLOCKS];
	uint64_t n_read; /* blocks read */
	pthread_t thread;
	bool threaded;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t moved;
	uint64_t n_given;  /* blocks given to the second thread */
	uint64_t n_hashed; /* of these, blocks hashed */
	bool over;	   /* no more will be given */
	int hash_error;
};

static void *hash_blocks(void *arg)
{
	struct run *run = arg;

	pthread_mutex_lock(&run->lock);
	for (;;) {
		struct block *b = &run->blocks[run->n_hashed % BLOCKS];
		int r;

		if (run->n_hashed == run->n_given) {
			if (run->over)
				break;
			pthread_cond_wait(&run->moved, &run->lock);
			continue;
		}
		pthread_mutex_unlock(&run->lock);
		r = hasher_hash(&run->hasher, &b->tagged);
		if (b->observe)
			run->job->observe(run->job->ctx, b->off, b->data, b->n);
		pthread_mutex_lock(&run->lock);
		run->n_hashed++;
		if (r < 0)
			run->hash_error = r;
		pthread_cond_signal(&run->moved);
	}
	pthread_mutex_unlock(&run->lock);
	return NULL;
}

static void start_thread(struct run *run)
{
	run->n_given = run->n_hashed = run->n_read;
	/* on failure this thread continues to hash */
	run->threaded = thread_start(&run->thread, hash_blocks, run) == 0;
}

/* The block to read into, once it has been hashed. */
static struct block *next_block(struct run *run)
{
	struct block *b = &run->blocks[run->n_read % BLOCKS];

	if (run->threaded) {
		pthread_mutex_lock(&run->lock);
		while (run->n_given - run->n_hashed == BLOCKS)
			pthread_cond_wait(&run->moved, &run->lock);
		pthread_mutex_unlock(&run->lock);
	}
	if (!b->data)
		b->data = malloc(BLOCK);
	return b->data ? b : NULL;
}

static int hash_block(struct run *run, struct block *b)
{
	const struct ingest *job = run->job;
	bool observe = job->observe && b->n > 0;
	int r = 0;

	b->observe = false;
	if (run->threaded) {
		pthread_mutex_lock(&run->lock);
		/* the second thread waits, so it has time for the observer */
		if (observe && run->n_given == run->n_hashed) {
			b->observe = true;
			observe = false;
		}
		run->n_given++;
		pthread_cond_signal(&run->moved);
		pthread_mutex_unlock(&run->lock);
	} else {
		r = hasher_hash(&run->hasher, &b->tagged);
	}
	if (observe && r == 0)
		job->observe(job->ctx, b->off, b->data, b->n);
	return r;
}

static int check_size(const struct ingest *job, uint64_t done, size_t n)
{
	if (job->size != UINT64_MAX)
		return n > job->size - done ? -EBADMSG : 0;
	return n > job->max - done ? -EFBIG : 0;
}

/* Reads and tags the next block, of which the hasher knows where it is. */
static int read_block(const struct ingest *job, struct hasher *h, struct block *b)
{
	ssize_t got;
	int r;

	if (cancel_fired(job->cancel))
		return -ECANCELED;
	got = stream_read_full(job->in, b->data, BLOCK);
	if (got < 0)
		return (int)got;
	b->n = (size_t)got;
	b->off = h->tagged;
	r = check_size(job, b->off, b->n);
	return r < 0 ? r : hasher_tag(h, b->data, b->n, &b->tagged);
}

/* At the end of the stream. */
static int check_end(const struct ingest *job, const struct hasher *h)
{
	return job->size != UINT64_MAX && h->tagged != job->size ? -EBADMSG : 0;
}

static int read_blocks(struct run *run)
{
	const struct ingest *job = run->job;
	struct block *b;
	int r = 0;

	do {
		b = next_block(run);
		if (!b)
			return -ENOMEM;
		r = read_block(job, &run->hasher, b);
		if (r == 0)
			r = hash_block(run, b);
		if (r < 0)
			return r;
		run->n_read++;
		if (job->progress)
			job->progress(job->ctx, b->n);
		if (run->n_read == ALONE && job->hash && !job->alone)
			start_thread(run);
	} while (b->n == BLOCK);
	return check_end(job, &run->hasher);
}

static int join_thread(struct run *run)
{
	if (!run->threaded)
		return 0;
	pthread_mutex_lock(&run->lock);
	run->over = true;
	pthread_cond_signal(&run->moved);
	pthread_mutex_unlock(&run->lock);
	pthread_join(run->thread, NULL);
	return run->hash_error;
}

static int begin_hasher(const struct ingest *job, struct hasher *ret)
{
	int r = hasher_begin(ret, job->tagger, job->hash);

	if (r < 0)
		return r;
	if (job->parts)
		hasher_tag_parts(ret);
	hasher_keep_states(ret, job->states);
	return 0;
}

int ingest_run(const struct ingest *job, struct ingested *ret)
{
	struct run run = { .job = job };
	int r, hash_error;

	r = begin_hasher(job, &run.hasher);
	if (r < 0)
		return r;
	pthread_mutex_init(&run.lock, NULL);
	pthread_cond_init(&run.moved, NULL);
	r = read_blocks(&run);
	hash_error = join_thread(&run);
	r = r ? r : hash_error;
	if (r == 0)
		r = hasher_end(&run.hasher, ret);
	else
		hasher_abort(&run.hasher);
	for (size_t i = 0; i < BLOCKS; i++)
		free(run.blocks[i].data);
	pthread_cond_destroy(&run.moved);
	pthread_mutex_destroy(&run.lock);
	return r;
}

/* ---- several ---- */

struct one {
	struct ingest job;
	struct hasher hasher;
	struct block block;
	bool busy;
};

/* Begins streams of the queue until one can be hashed. False: the queue has no stream now. */
static bool begin_one(const struct ingest_queue *q, size_t i, struct one *o)
{
	while (!o->busy && q->next(q->ctx, i, &o->job)) {
		int r;

		if (!o->block.data)
			o->block.data = malloc(BLOCK);
		r = o->block.data ? begin_hasher(&o->job, &o->hasher) : -ENOMEM;
		if (r < 0)
			q->done(q->ctx, i, r, NULL);
		o->busy = r == 0;
	}
	return o->busy;
}

/* Ends a stream that has failed, or is at its end; else its block was one of several. */
static void end_one(const struct ingest_queue *q, size_t i, struct one *o, int r)
{
	struct ingested found;

	if (r == 0 && o->job.observe && o->block.n > 0)
		o->job.observe(o->job.ctx, o->block.off, o->block.data, o->block.n);
	if (r == 0 && o->job.progress)
		o->job.progress(o->job.ctx, o->block.n);
	if (r == 0 && o->block.n == BLOCK)
		return;
	if (r == 0)
		r = check_end(&o->job, &o->hasher);
	if (r == 0)
		r = hasher_end(&o->hasher, &found);
	else
		hasher_abort(&o->hasher);
	o->busy = false;
	q->done(q->ctx, i, r, r == 0 ? &found : NULL);
}

/* The next block of each. */
static void step_all(const struct ingest_queue *q, struct one *all)
{
	struct to_hash list[HASHERS];
	int results[HASHERS], r;
	size_t n = 0;

	for (size_t i = 0; i < HASHERS; i++) {
		struct one *o = &all[i];

		if (!o->busy)
			continue;
		results[i] = read_block(&o->job, &o->hasher, &o->block);
		if (results[i] == 0)
			list[n++] = (struct to_hash){ &o->hasher, &o->block.tagged };
	}
	r = hasher_hash_several(list, n);
	for (size_t i = 0; i < HASHERS; i++)
		if (all[i].busy)
			end_one(q, i, &all[i], results[i] < 0 ? results[i] : r);
}

void ingest_several(const struct ingest_queue *q)
{
	struct one all[HASHERS] = { 0 };
	bool any;

	do {
		any = false;
		for (size_t i = 0; i < HASHERS; i++)
			any = begin_one(q, i, &all[i]) || any;
		if (any)
			step_all(q, all);
	} while (any);
	for (size_t i = 0; i < HASHERS; i++)
		free(all[i].block.data);
}
