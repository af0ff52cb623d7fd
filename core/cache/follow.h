/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes and tags the bytes of a file (file.h) as they arrive, in a job, since that takes as long
 * as fetching them.
 *
 * Whoever else can write to the file may do so at any time. So each block is read once, into a
 * buffer of our own, and its hash and its tag come from there; also where an earlier fill has left
 * it.
 *
 * Embedded in its owner, which lends it to the task that fills the file. Threads: all
 * functions belong to that task, or to the owner while there is none. They take NULL, for a
 * file that nobody follows.
 */
#ifndef CARTON_CACHE_FOLLOW_H
#define CARTON_CACHE_FOLLOW_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/cancel.h"
#include "base/event.h"
#include "base/hasher.h"
#include "cache/file.h"

struct follow {
	/* the owner's */
	struct file *dest;
	struct workers *workers;
	struct cancel *cancel;	     /* hashing stops once this fires; may be NULL */
	const struct tagger *tagger; /* makes tags; NULL: none */
	bool hash;		     /* false: the sha256 stays all zero */
	void (*progress)(void *ctx, uint64_t bytes); /* bytes hashed, on workers; or NULL */
	void *ctx;

	/* its own */
	struct job job;
	struct task *task;    /* of those who fill it: woken when a job is over */
	pthread_mutex_t lock; /* guards busy */
	bool busy;	      /* the job runs; else `end` is the task's */
	bool begun;	      /* the hasher is */
	uint64_t end;	      /* where the job ends at the latest */
	_Atomic uint64_t to;  /* what has arrived, for the job */
	_Atomic uint64_t done;
	atomic_int error;
	struct hasher hasher;
};

void follow_init(struct follow *f); /* the owner's fields are set */
void follow_finish(struct follow *f);

/* Does a job run? Then nobody may restart or end the file; the task is woken after it. */
bool follow_is_busy(struct follow *f);

/* Begins at the first byte; what was hashed before is of no use. No job runs. 0 or -ENOMEM. */
int follow_begin(struct follow *f, struct task *task);

/*
 * The first `arrived` bytes are there, and no more will come (`all`): hashes them if they are
 * enough to be worth it. False: all of them are hashed, or that has failed.
 */
bool follow_on(struct follow *f, uint64_t arrived, bool all);

/* The task stops when so many bytes have arrived, until more were hashed. */
uint64_t follow_limit(const struct follow *f);

/* All bytes are hashed: their hash and tags. 0; -ENOMEM; -EIO; or as file_read(). */
int follow_end(struct follow *f, struct ingested *ret);

#endif
