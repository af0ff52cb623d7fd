/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FUSE requests that have to wait.
 *
 * A request is parked with a call that begins the wait (carton_pin() and its like) and one that answers
 * in the end. Two may end it, the carton (parked_done) and an interrupt; carton_request_cancel() decides
 * which. No thread waits meanwhile.
 */
#ifndef FS_PARK_H
#define FS_PARK_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "carton.h"
#include "fuse.h"

struct parked {
	fuse_req_t req;
	void (*finish)(struct parked *p, int result); /* answers */
	struct carton_node *node;

	/* what the operation wants to find again */
	struct fuse_file_info fi;
	size_t size;
	off_t off;
	char name[256];

	pthread_mutex_t lock;		/* guards what follows */
	struct carton_request *request; /* NULL: not parked yet */
	bool interrupted;
	unsigned refs; /* the operation that parks it, and the one that ends it */
};

/* NULL: no memory. */
struct parked *parked_new(fuse_req_t req, struct carton_node *node,
			  void (*finish)(struct parked *p, int result));

/*
 * Parks it, and gives it up: `start` begins the wait, with parked_done() and the request's address for
 * the carton. However that goes, the FUSE request is answered, now or later.
 */
void park(struct parked *p, int (*start)(struct parked *p));

/* A carton_done_fn; its context is the struct parked. */
void parked_done(void *parked, int result);

#endif
