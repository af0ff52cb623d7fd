/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifies the chunks of a file that nobody has read yet, once each, in the background: while
 * nobody reads, or in short steps. A few files at a time, whoever else is waiting. When all chunks
 * are verified, it ends at once.
 */
#ifndef CARTON_CONTENT_HASH_JOB_H
#define CARTON_CONTENT_HASH_JOB_H

#include "base/cancel.h"
#include "base/event.h"
#include "content/chunked.h"

struct hash_job;

/*
 * Those that wait for their turn: each that runs reads a file of its own from its start. All zero:
 * empty.
 */
struct hash_job_queue {
	pthread_mutex_t lock; /* guards what follows */
	unsigned running;
	struct hash_job *first, *last;
};

/*
 * Called once, on a worker. 0: all chunks are verified; -EBADMSG: some do not fit; -ECANCELED: it
 * was stopped; or why one could not be read, after which no other was.
 */
typedef void hash_done_fn(void *ctx, int result);

struct hash_job_options {
	struct chunked *chunks; /* outlives it */
	struct events *events;
	struct cancel *cancel;
	struct hash_job_queue *queue;  /* outlives it */
	const _Atomic uint64_t *reads; /* grows with each read that somebody waits for */
	hash_done_fn *done;
	void *ctx;
};

/* Not started. 0 or -ENOMEM. */
int hash_job_new(const struct hash_job_options *options, struct hash_job **ret);

/* It begins in its turn, ends and frees itself. */
void hash_job_start(struct hash_job *j);

#endif
