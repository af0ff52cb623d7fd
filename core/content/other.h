/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits without a thread while another process does what a fill is for: looks now and then how far
 * it is.
 *
 * Embedded in its owner. Threads: it belongs to its starter until it is started, then to one
 * worker at a time.
 */
#ifndef CARTON_CONTENT_OTHER_H
#define CARTON_CONTENT_OTHER_H

#include "base/cancel.h"
#include "base/event.h"

struct waits;

struct other {
	struct waits *waits; /* of those who wait for it: they do as long as it goes on */
	int64_t patience_ms; /* how long it may stay as it is */
	/* 0: it has ended; -EAGAIN: not yet, and *ret_at says how far it is; or -errno. */
	int (*look)(struct other *o, uint64_t *ret_at);
	/*
	 * The end, on a worker: what look() says; -ETIMEDOUT: it does not go on; -ECANCELED. It may
	 * be started again.
	 */
	void (*done)(struct other *o, int result);

	/* its own; all zero at first */
	struct task task;
	struct cancel_hook hook;
	uint64_t at;	  /* how far it was, */
	int64_t until_ms; /* and until when that has to change; 0: it was not looked at yet */
	int64_t step_ms;
};

void other_wait(struct other *o);

#endif
