/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ingest.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"

#define BLOCK (4 * CHUNK_SIZE)
#define BLOCKS 4
/* blocks after which a second thread is worth its start */
#define ALONE 8

struct block {
	char *data;
	size_t n;
};

struct run {
	const struct ingest *job;
	struct sha256 *sha256;
	struct block blocks[BLOCKS];
	uint64_t done;	 /* bytes read */
	uint64_t n_read; /* blocks read */
	uint8_t (*tags)[TAG_SIZE];
	size_t tag_cap;
	pthread_t hasher;
	bool threaded;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t moved;
	uint64_t n_given;  /* blocks given to the hasher */
	uint64_t n_hashed; /* blocks it is through with */
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
		r = sha256_update(run->sha256, b->data, b->n);
		pthread_mutex_lock(&run->lock);
		run->n_hashed++;
		if (r < 0)
			run->hash_error = r;
		pthread_cond_signal(&run->moved);
	}
	pthread_mutex_unlock(&run->lock);
	return NULL;
}

static void start_hasher(struct run *run)
{
	sigset_t all, old;

	run->n_given = run->n_hashed = run->n_read;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	/* without a second thread it only takes longer */
	run->threaded = pthread_create(&run->hasher, NULL, hash_blocks, run) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* The block to read into, once the hasher is through with it. */
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
	if (!run->job->hash)
		return 0;
	if (!run->threaded)
		return sha256_update(run->sha256, b->data, b->n);
	pthread_mutex_lock(&run->lock);
	run->n_given++;
	pthread_cond_signal(&run->moved);
	pthread_mutex_unlock(&run->lock);
	return 0;
}

static int tag_block(struct run *run, const struct block *b)
{
	size_t first = (size_t)(run->done / CHUNK_SIZE), n = (b->n + CHUNK_SIZE - 1) / CHUNK_SIZE;
	int r = 0;

	if (first + n > run->tag_cap) {
		/* as the bytes come, not as somebody says how many there will be */
		size_t cap = MAX(first + n, MAX(run->tag_cap * 2, (size_t)64));
		void *tags = reallocarray(run->tags, cap, TAG_SIZE);

		if (!tags)
			return -ENOMEM;
		run->tags = tags;
		run->tag_cap = cap;
	}
	for (size_t i = 0; i < n && r == 0; i++)
		r = tagger_tag(run->job->tagger, b->data + i * CHUNK_SIZE,
			       MIN(CHUNK_SIZE, b->n - i * CHUNK_SIZE), run->tags[first + i]);
	return r;
}

static int keep_block(struct run *run, const struct block *b)
{
	const struct ingest *job = run->job;
	int r = 0;

	if (job->size != UINT64_MAX && b->n > job->size - run->done)
		return -EBADMSG;
	if (job->size == UINT64_MAX && b->n > job->max - run->done)
		return -EFBIG;
	if (job->tagger)
		r = tag_block(run, b);
	if (r == 0 && job->fd >= 0)
		r = pwrite_full(job->fd, b->data, b->n, run->done);
	return r;
}

static int read_blocks(struct run *run)
{
	const struct ingest *job = run->job;
	struct block *b;
	int r = 0;

	do {
		ssize_t got;

		if (job->stop && job->stop(job->ctx))
			return -ECANCELED;
		b = next_block(run);
		if (!b)
			return -ENOMEM;
		got = stream_read_full(job->in, b->data, BLOCK);
		if (got < 0)
			return (int)got;
		b->n = (size_t)got;
		r = keep_block(run, b);
		if (r == 0)
			r = hash_block(run, b);
		if (r < 0)
			return r;
		run->done += b->n;
		run->n_read++;
		if (job->progress)
			job->progress(job->ctx, b->n);
		if (run->n_read == ALONE && job->hash)
			start_hasher(run);
	} while (b->n == BLOCK);
	if (job->size != UINT64_MAX && run->done != job->size)
		return -EBADMSG;
	/* what an earlier try has left behind the end was never hashed */
	return job->fd >= 0 && ftruncate(job->fd, (off_t)run->done) < 0 ? -errno : 0;
}

static int join_hasher(struct run *run)
{
	if (!run->threaded)
		return 0;
	pthread_mutex_lock(&run->lock);
	run->over = true;
	pthread_cond_signal(&run->moved);
	pthread_mutex_unlock(&run->lock);
	pthread_join(run->hasher, NULL);
	return run->hash_error;
}

int ingest_run(const struct ingest *job, struct ingested *ret)
{
	struct run run = { .job = job };
	struct ingested out = { 0 };
	int r, hash_error;

	r = sha256_new(&run.sha256);
	if (r < 0)
		return r;
	pthread_mutex_init(&run.lock, NULL);
	pthread_cond_init(&run.moved, NULL);
	r = read_blocks(&run);
	hash_error = join_hasher(&run);
	r = r ? r : hash_error;
	if (r == 0 && job->hash)
		r = sha256_final(run.sha256, out.sha256);
	sha256_free(run.sha256);
	for (size_t i = 0; i < BLOCKS; i++)
		free(run.blocks[i].data);
	pthread_cond_destroy(&run.moved);
	pthread_mutex_destroy(&run.lock);
	if (r < 0) {
		free(run.tags);
		return r;
	}
	out.size = run.done;
	out.tags = run.tags;
	*ret = out;
	return 0;
}
