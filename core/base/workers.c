/* SPDX-License-Identifier: Apache-2.0 */
#include "base/workers.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/limits.h"
#include "base/util.h"

#define MAX_THREADS 128 /* of one lane, besides those that wait */

struct queue {
	struct workers *pool;
	pthread_cond_t ready;
	struct job *head, **tail;
	unsigned waiting; /* jobs queued */
	unsigned idle;	  /* threads that wait for one */
	unsigned blocked; /* threads whose jobs wait for something else */
	unsigned n_threads;
	unsigned max_threads; /* besides the blocked ones */
};

struct workers {
	pthread_mutex_t lock; /* guards all of it */
	bool ending;
	unsigned unfinished;	/* jobs queued or running, which may queue others */
	unsigned n_threads;	/* of all lanes */
	pthread_cond_t gone;	/* n_threads is 0 */
	bool any_ended;		/* a thread has, */
	pthread_t ended;	/* the last of them, which has not been joined */
	atomic_uint signalling; /* threads that have queued a job, and are about to wake a worker */
	struct queue queues[LANES];
};

static _Thread_local struct queue
	*here; /* the lane of this thread; NULL: the thread is no worker */

/* Makes idle threads check whether they can end. Lock held. */
static void wake_all(struct workers *w)
{
	for (size_t i = 0; i < LANES; i++)
		pthread_cond_broadcast(&w->queues[i].ready);
}

/* How many threads of the lane are there to run jobs? Lock held. */
static unsigned running(const struct queue *q)
{
	return q->n_threads - q->blocked;
}

/* Ends this thread; the next one that ends joins it. Lock held, and given back. */
static void leave(struct queue *q)
{
	struct workers *w = q->pool;
	pthread_t before = w->ended;
	bool any_before = w->any_ended;

	w->ended = pthread_self();
	w->any_ended = true;
	q->n_threads--;
	if (--w->n_threads == 0)
		pthread_cond_signal(&w->gone);
	pthread_mutex_unlock(&w->lock);
	if (any_before)
		pthread_join(before, NULL);
}

static void *work(void *arg)
{
	struct queue *q = arg;
	struct workers *w = q->pool;

	here = q;
	pthread_mutex_lock(&w->lock);
	for (;;) {
		struct job *job = q->head;

		if (!job && w->ending && w->unfinished == 0)
			break;
		if (!job) {
			q->idle++;
			pthread_cond_wait(&q->ready, &w->lock);
			q->idle--;
			continue;
		}
		q->head = job->next;
		if (!q->head)
			q->tail = &q->head;
		q->waiting--;
		pthread_mutex_unlock(&w->lock);
		failure_forget();
		job->run(job);
		pthread_mutex_lock(&w->lock);
		if (--w->unfinished == 0 && w->ending)
			wake_all(w);
		/* others have come while this one or another waited */
		if (running(q) > q->max_threads)
			break;
	}
	leave(q);
	return NULL;
}

/* Lock held. */
static int add_thread(struct queue *q)
{
	pthread_t thread;
	int r = thread_start(&thread, work, q);

	if (r == 0) {
		q->n_threads++;
		q->pool->n_threads++;
	}
	return r;
}

/* Starts a thread if there are more jobs than idle ones. Lock held. */
static void grow(struct queue *q)
{
	if (q->waiting > q->idle && running(q) < q->max_threads)
		add_thread(q); /* on failure, existing threads run the job later */
}

int workers_new(struct workers **ret)
{
	static const unsigned per_cpu[LANES] = { 2, 1, 2, 2, 2 };
	static const unsigned at_least[LANES] = { 4, 2, 8, 16, 4 };
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct workers *w = calloc(1, sizeof(*w));
	int r = 0;

	if (!w)
		return -ENOMEM;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->gone, NULL);
	pthread_mutex_lock(&w->lock);
	for (size_t i = 0; i < LANES; i++) {
		struct queue *q = &w->queues[i];

		q->pool = w;
		q->tail = &q->head;
		q->max_threads = (unsigned)MAX(cpus, 1) * per_cpu[i];
		q->max_threads = MIN(MAX(q->max_threads, at_least[i]), MAX_THREADS);
		pthread_cond_init(&q->ready, NULL);
		/* one thread per lane from the start, so that workers_submit() cannot fail */
		if (r == 0)
			r = add_thread(q);
	}
	pthread_mutex_unlock(&w->lock);
	if (r < 0) {
		workers_free(w);
		return r;
	}
	*ret = w;
	return 0;
}

void workers_submit(struct workers *w, struct job *job, enum lane lane)
{
	struct queue *q = &w->queues[lane];

	job->next = NULL;
	pthread_mutex_lock(&w->lock);
	*q->tail = job;
	q->tail = &job->next;
	q->waiting++;
	w->unfinished++;
	grow(q);
	atomic_fetch_add(&w->signalling, 1);
	pthread_mutex_unlock(&w->lock);
	/* after the unlock: the woken thread takes the lock */
	pthread_cond_signal(&q->ready);
	atomic_fetch_sub(&w->signalling, 1);
}

bool workers_block(void)
{
	struct queue *q = here;
	bool may;

	if (!q)
		return true;
	pthread_mutex_lock(&q->pool->lock);
	may = q->blocked < MAX_BLOCKED && (running(q) > 1 || add_thread(q) == 0);
	q->blocked += may;
	if (may)
		grow(q);
	pthread_mutex_unlock(&q->pool->lock);
	return may;
}

void workers_unblock(void)
{
	if (!here)
		return;
	pthread_mutex_lock(&here->pool->lock);
	here->blocked--;
	pthread_mutex_unlock(&here->pool->lock);
}

void workers_free(struct workers *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->ending = true;
	wake_all(w);
	while (w->n_threads > 0)
		pthread_cond_wait(&w->gone, &w->lock);
	pthread_mutex_unlock(&w->lock);
	if (w->any_ended)
		pthread_join(w->ended, NULL);
	/*
	 * the last job may have run before its submitter, such as a timer, came to wake a thread
	 * for it
	 */
	while (atomic_load(&w->signalling) > 0)
		sched_yield();
	for (size_t i = 0; i < LANES; i++)
		pthread_cond_destroy(&w->queues[i].ready);
	pthread_cond_destroy(&w->gone);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
