/* SPDX-License-Identifier: Apache-2.0 */
#include "base/workers.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"

#define MAX_THREADS 128 /* of one lane */

struct queue {
	struct workers *pool;
	pthread_cond_t ready;
	struct job *head, **tail;
	unsigned waiting; /* jobs queued */
	unsigned idle;	  /* threads that wait for one */
	unsigned n_threads;
	unsigned max_threads;
	pthread_t threads[MAX_THREADS];
};

struct workers {
	pthread_mutex_t lock; /* guards all of it */
	bool ending;
	unsigned unfinished;	/* jobs queued or running, which may queue others */
	atomic_uint signalling; /* threads that have queued a job, and are about to wake a worker */
	struct queue queues[LANES];
};

/* Makes idle threads check whether they can end. Lock held. */
static void wake_all(struct workers *w)
{
	for (size_t i = 0; i < LANES; i++)
		pthread_cond_broadcast(&w->queues[i].ready);
}

static void *work(void *arg)
{
	struct queue *q = arg;
	struct workers *w = q->pool;

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
		job->run(job);
		pthread_mutex_lock(&w->lock);
		if (--w->unfinished == 0 && w->ending)
			wake_all(w);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static int add_thread(struct queue *q)
{
	int r = thread_start(&q->threads[q->n_threads], work, q);

	if (r == 0)
		q->n_threads++;
	return r;
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
	if (r < 0) {
		workers_free(w);
		return -ENOMEM;
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
	if (q->waiting > q->idle && q->n_threads < q->max_threads && !w->ending)
		add_thread(q); /* on failure, existing threads run the job later */
	atomic_fetch_add(&w->signalling, 1);
	pthread_mutex_unlock(&w->lock);
	/* after the unlock: the woken thread takes the lock */
	pthread_cond_signal(&q->ready);
	atomic_fetch_sub(&w->signalling, 1);
}

void workers_free(struct workers *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->ending = true;
	wake_all(w);
	pthread_mutex_unlock(&w->lock);
	for (size_t i = 0; i < LANES; i++)
		for (unsigned t = 0; t < w->queues[i].n_threads; t++)
			pthread_join(w->queues[i].threads[t], NULL);
	/*
	 * the last job may have run before its submitter, such as a timer, came to wake a thread
	 * for it
	 */
	while (atomic_load(&w->signalling) > 0)
		sched_yield();
	for (size_t i = 0; i < LANES; i++)
		pthread_cond_destroy(&w->queues[i].ready);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
