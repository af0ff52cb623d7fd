/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded pool of threads for what must wait: hashing, decoding, disks, networks.
 *
 * Jobs go into lanes, each with threads of its own, so that listing a directory of small files is
 * not held up by a model being hashed, nor either of them by a dead server, nor who reads an open
 * file by those who open others.
 */
#ifndef CARTON_BASE_WORKERS_H
#define CARTON_BASE_WORKERS_H

enum lane {
	LANE_QUICK, /* done in milliseconds: small objects, of which many may queue */
	LANE_BULK,  /* takes a core for long: large objects */
	LANE_NET,   /* short steps of what the network drives: never waits */
	LANE_VIEWS, /* waits for what the other lanes do, so none of them may wait for it */
	LANE_READS, /* verified bytes from a slow disk, for one who has them open */
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

/* Runs what is still queued, and what that queues, then ends all threads. NULL-safe. */
void workers_free(struct workers *w);

#endif
