/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cancellation: one token per piece of work, passed down to all functions that work on it.
 *
 * The caller that starts the work owns the token and fires it when the result is no longer needed.
 * Loops check cancel_fired(); code that waits for something else adds a hook. Firing a token fires
 * its children too: closing a carton cancels all its work.
 *
 * Threads: any, but only the owner calls cancel_init() and cancel_finish(). NULL is a token that
 * never fires, for the functions marked NULL-safe.
 */
#ifndef CARTON_BASE_CANCEL_H
#define CARTON_BASE_CANCEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Embedded in the struct of the work that it cancels (container_of()). All but `fire` is private.
 */
struct cancel_hook {
	void (*fire)(struct cancel_hook *hook);
	struct cancel_hook *next, **link; /* link is NULL while it is not in a list */
};

struct cancel {
	atomic_bool fired;
	struct cancel *parent;
	struct cancel_hook in_parent; /* fires this token */
	pthread_mutex_t lock;	      /* guards what follows; not held while a hook runs */
	pthread_cond_t changed;	      /* fired, or a hook has returned */
	struct cancel_hook *hooks;
	struct cancel_hook *running; /* or NULL */
	pthread_t runner;	     /* the thread that runs it */
};

/* A new token. `parent` outlives it and may be NULL. When the parent has fired, so has this one. */
void cancel_init(struct cancel *c, struct cancel *parent);

/* No hook may be left. Waits for a parent that is firing this token. */
void cancel_finish(struct cancel *c);

/*
 * Fires the token: runs its hooks, one after the other, in this thread. Only the first call does.
 */
void cancel_fire(struct cancel *c);

/* NULL-safe. */
static inline bool cancel_fired(const struct cancel *c)
{
	return c && atomic_load(&c->fired);
}

/*
 * Makes cancel_fire() call hook->fire, once. If the token has fired already, hook->fire is called
 * here. The hook must not wait for the thread that adds or removes it. NULL-safe.
 */
void cancel_hook_add(struct cancel *c, struct cancel_hook *hook);

/*
 * Afterwards the hook is not running and will not run. Do not hold a lock that the hook takes. A
 * hook may remove itself. NULL-safe.
 */
void cancel_hook_remove(struct cancel *c, struct cancel_hook *hook);

/* Sleeps for `ms` milliseconds. 0, or -ECANCELED as soon as the token fires. NULL-safe. */
int cancel_sleep(struct cancel *c, int64_t ms);

#endif
