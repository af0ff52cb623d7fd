/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for one fill of an object (fill.h), until when, and how far the fill is.
 *
 * A waiter has a deadline where a server may be needed; bytes that come move it on. When nobody
 * waits any more, the cancel token fires, and the work ends.
 *
 * Threads: any. The store's lock guards the list.
 */
#ifndef CARTON_CONTENT_WAITS_H
#define CARTON_CONTENT_WAITS_H

#include <stdatomic.h>

#include "base/cancel.h"
#include "base/event.h"
#include "content/object.h"

struct waits {
	struct object *object;
	struct cancel cancel;
	bool fixed;			  /* bytes do not move the deadlines */
	_Atomic uint64_t progress;	  /* bytes that the deadlines do not know of yet, */
	_Atomic int64_t progress_ms;	  /* and when the last of them came */
	uint64_t moved;			  /* bytes that the deadlines are to be moved on by, and */
	int64_t moved_ms;		  /* until when they may; guarded by the store's lock */
	_Atomic uint64_t arrived, hashed; /* bytes, see struct object_progress, */
	_Atomic uint64_t announced;	  /* likewise; 0: not known */
	/* One has waited too long, and is told so. With the store's lock. Or NULL. */
	void (*expired)(struct waits *l, const struct object_wait *w);
	unsigned n;
	struct object_wait *first;		/* NULL-terminated */
	struct waits *next_timed, **timed_link; /* those with deadlines; or NULL */
};

void waits_init(struct waits *l, struct object *o);
void waits_finish(struct waits *l);

/*
 * May the object need a server, so that its waiters have a deadline? So do those who wait for it on
 * behalf of such an object.
 */
bool waits_are_timed(const struct object *o);

/* Lock held: */

/*
 * Adds a waiter, and sets its deadline. If it is the first that is not in the background, requests
 * for the work no longer give way to others.
 */
void waits_add(struct waits *l, struct object_wait *w);

/*
 * The work has ended: was it cancelled for lack of waiters, and one has come since? Then it has to
 * be done again, with a token that has not fired.
 */
bool waits_renew(struct waits *l, int result);

/* Takes all waiters off, as a list. The second: those that miss chunks before `end` only. */
struct object_wait *waits_take(struct waits *l);
struct object_wait *waits_take_until(struct waits *l, uint64_t end);

/* How many readers wait, here or for the work that waits here. */
unsigned waits_readers(const struct waits *l);

/* Not held: */

/*
 * Does no reader wait for the work now, but others do, in the background? `waits` as below. Who
 * will certainly open the object later (object_want()) is no reader.
 */
bool waits_background(void *waits);

/* Gives `result` to each waiter of a list; below 0, with the text of this thread (failure.h). */
void waits_end(struct object_wait *list, int result);

/* The step of the store's clock: ends the waits that are overdue. */
bool waits_expire(struct task *clock);

/*
 * Bytes came, or the like was done: the deadlines move on. `waits` is a struct waits, as others
 * call this. The second counts bytes that came from a server, too, and the third those that were
 * read to be verified.
 */
void waits_progress(void *waits, uint64_t bytes);
void waits_arrived(void *waits, uint64_t bytes);
void waits_hashed(void *waits, uint64_t bytes);

/* A server says that so many bytes will come. */
void waits_announced(void *waits, uint64_t bytes);

/* The work goes on, with so many bytes: 0, or -ECANCELED since nobody waits for it. NULL-safe. */
int waits_work(struct waits *l, uint64_t bytes);

#endif
