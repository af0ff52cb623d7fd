/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes a file in the background, while nobody reads, or in short steps: for objects whose bytes
 * are verified chunk by chunk until then. A few files at a time, whoever else is waiting.
 */
#ifndef CARTON_CONTENT_HASH_JOB_H
#define CARTON_CONTENT_HASH_JOB_H

#include "base/cancel.h"
#include "base/event.h"
#include "base/hasher.h"
#include "base/source.h"

struct budget;
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
 * Called once, on a worker. `in` (NULL on failure): its tags are the callee's. -ECANCELED: it was
 * stopped.
 */
typedef void hash_done_fn(void *ctx, int result, struct ingested *in);

struct hash_job_options {
	struct source *source; /* a local one, which outlives it, and where the bytes are in it */
	uint64_t off, size;
	const struct tagger *tagger;
	struct events *events;
	struct cancel *cancel;
	struct hash_job_queue *queue;  /* outlives it */
	struct budget *budget;	       /* counts its tags; NULL: no limit */
	const _Atomic uint64_t *reads; /* grows with each read that somebody waits for */
	_Atomic uint64_t *hashed;      /* bytes, to be added to */
	hash_done_fn *done;
	void *ctx;
};

/* Not started. 0, -ENOMEM, or -EFBIG: its tags would be over the budget. */
int hash_job_new(const struct hash_job_options *options, struct hash_job **ret);

/* It begins in its turn, ends and frees itself. */
void hash_job_start(struct hash_job *j);

/* Frees one that was not started. NULL-safe. */
void hash_job_free(struct hash_job *j);

#endif
