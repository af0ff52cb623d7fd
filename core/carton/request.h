/* SPDX-License-Identifier: Apache-2.0 */
/* Requests, for which callers of carton.h wait. Shared by request.c, which pins, and read.c. */
#ifndef CARTON_REQUEST_H
#define CARTON_REQUEST_H

#include <stdatomic.h>

#include "base/util.h"
#include "carton/opened.h"

/* One extent of a file that is being pinned. */
struct pin {
	struct object_wait wait;
	struct carton_request *request;
	struct object *object; /* NULL: literal bytes need no pin */
	enum { PIN_NONE, PIN_WAITING, PIN_DONE } state;
};

struct carton_request {
	atomic_uint refs; /* the caller's handle, and the work that will call `done` */
	carton_done_fn *done;
	void *ctx;
	pthread_mutex_t lock; /* guards what follows */
	bool cancelled, finished;
	int result;
	char *failure;	/* why, see base/failure.h; or NULL */
	size_t pending; /* pins being waited for */
	bool holds;	/* the request waits for pins, and puts them when it fails */

	struct node *file; /* NULL: the request is not for a file */

	struct workers *workers; /* of a late read; else NULL */
	struct job job;
	struct object_wait wait; /* for bytes that have to be fetched */
	unsigned round;		 /* guarded by the lock: how often a wait has begun or ended */
	bool waiting;		 /* likewise: a wait goes on */
	int error;		 /* with which the last wait has ended */
	uint64_t off;
	size_t n;
	char *data; /* NULL while it waits */

	size_t n_pins; /* when pinning: one for each extent */
	struct pin pins[];
};

/*
 * Makes a request with two references: the caller's, and that of the work that calls `done`. NULL:
 * no memory.
 */
struct carton_request *request_new(size_t n_pins, carton_done_fn *done, void *ctx);
void request_unref(struct carton_request *q);

/* Gives back the pins that the request holds. */
void request_put_pins(struct carton_request *q);

/*
 * -EBADMSG: the directory of the file was generated from an object that turned out to be damaged,
 * so the literal bytes of the file are wrong too. Else 0.
 */
int request_check_withdrawn(const struct node *file);

#endif
