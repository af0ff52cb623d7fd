/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FUSE requests that must wait, without a thread that waits.
 *
 * A request is parked with a function that starts the wait (such as carton_pin()) and one that
 * replies; an operation that need not wait calls the second function directly. Either the carton
 * ends the wait (parked_done) or an interrupt; carton_request_cancel() decides which.
 */
#ifndef FS_PARK_H
#define FS_PARK_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "carton.h"
#include "process/fuse.h"

struct parked {
	/* set by the operation, with its arguments for `finish` */
	fuse_req_t req;
	void (*finish)(struct parked *p, int result); /* answers */
	struct carton_node *node;
	struct fuse_file_info fi;
	size_t size;
	off_t off;
	char name[256];
	bool reads; /* the request is a READ of an open file */

	/* private */
	pthread_mutex_t lock;		/* guards what follows */
	struct carton_request *request; /* NULL: not parked yet; for `start` and `finish` */
	int error;			/* the request was cancelled; its answer is this errno */
	unsigned refs; /* the operation that parks it, the one that ends it, parked_cancel_all() */

	LIST_ENTRY(parked) all;
	struct parked *next_cancelled; /* a list of parked_cancel_all() */
};

/*
 * Parks a copy of `q`. `start` starts the wait, passing parked_done() and &p->request to the
 * carton. The FUSE request is answered in any case, now or later.
 */
void park(const struct parked *q, int (*start)(struct parked *p));

/* Answers all parked requests but READs with `error`, a positive errno. */
void parked_cancel_all(int error);

/* A carton_done_fn; its context is the struct parked. */
void parked_done(void *parked, int result);

#endif
