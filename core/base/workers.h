/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded pool of threads for work that takes long or blocks: hashing, decoding, disk reads.
 *
 * Each lane has threads and a queue of its own, so that slow jobs of one kind (hashing a model) do
 * not delay the others (listing small files, reading an open file).
 *
 * A thread whose job waits for something else (workers_block()) does not count as one of its lane:
 * another takes its place, and ends when there are too many. One thread of each lane is always left
 * to run jobs, so that what is waited for can be queued on the same lane.
 */
#ifndef CARTON_BASE_WORKERS_H
#define CARTON_BASE_WORKERS_H

#include <stdbool.h>

enum lane {
	LANE_QUICK, /* takes milliseconds: small objects */
	LANE_BULK,  /* takes a core for long: large objects */
	LANE_NET,   /* short steps driven by the network: never waits */
	LANE_VIEWS, /* waits for objects, also for its own; no other lane may wait for it */
	LANE_READS, /* disk reads of open files */
	LANES,
};

struct job {
	void (*run)(struct job *job); /* owns the job from here on */
	struct job *next;	      /* the pool's while it is queued */
};

struct workers;

/* Threads are started as they are needed. 0 or -ENOMEM. */
int workers_new(struct workers **ret);

/* Queues a job; jobs of one lane start in order. `job` must live until it runs. Never fails. */
void workers_submit(struct workers *w, struct job *job, enum lane lane);

/*
 * The job of this thread is about to wait for something that may take any time; sleeper.h calls it.
 * False: MAX_BLOCKED threads of the lane wait already, or no thread can be started in place of this
 * one. In a thread that is no worker: true. Then workers_unblock() follows.
 */
bool workers_block(void);
void workers_unblock(void);

/* Runs all queued jobs, also those that they queue, then ends all threads. NULL-safe. */
void workers_free(struct workers *w);

#endif
