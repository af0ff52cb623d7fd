/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which chunks of an object a fill asks for, and when. Chunks beside each other are one request, up
 * to a size. A fill may be held at first: others join it, until what is before it has come.
 *
 * Threads: the lock of a struct sparse guards what it says, and which chunks its fills have. All
 * functions are called with it but choice_came() and choice_next().
 */
#ifndef CARTON_CONTENT_CHUNK_CHOICE_H
#define CARTON_CONTENT_CHUNK_CHOICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "content/ahead.h"
#include "content/chunked.h"
#include "content/fill.h"

struct sparse {
	/* constant */
	struct plan *plan;
	const struct chunks_file *file;
	struct chunked *chunks;
	struct file *dest; /* where they go */
	int fd;		   /* of the same file */
	/* A request has ended well, or was answered first: others may begin. No lock held. */
	void (*go_on)(struct sparse *p);

	atomic_bool logged;   /* that the carton has other bytes */
	atomic_bool answered; /* a request was answered, or waits for another process */
	atomic_bool full;     /* a request ahead of readers had no room; none for a reader since */

	pthread_mutex_t lock; /* before the store's; guards what follows, and the chunks of fills */
	struct fill *fills;
	unsigned n_fills; /* that are not held */
	struct ahead ahead;

	/* guarded by the store's lock */
	unsigned char *failed; /* a bit for each chunk: it could not be fetched, */
	int64_t failed_ms;     /* at the last time then, */
	int error;	       /* and why */
};

static inline struct object *sparse_object(const struct sparse *p)
{
	return p->plan->object;
}

/*
 * sparse_take() claims chunk `i` against other processes; false: another process has claimed it.
 * sparse_give() ends that claim, sparse_unclaim() also the one against other fills of this process.
 */
bool sparse_take(const struct sparse *p, uint64_t i);
void sparse_give(const struct sparse *p, uint64_t i);
void sparse_unclaim(const struct sparse *p, uint64_t i);

/* The fill that has chunk `i`; or NULL. */
struct fill *choice_find(const struct sparse *p, uint64_t i);

/* May chunk `i` be fetched with others? Claims it, here and against other processes. */
bool choice_claim(const struct sparse *p, uint64_t i);

/* Is the fill as long as one request may be? */
bool choice_is_full(const struct fill *f);

/*
 * Gives a fill that has not begun the chunks from `first` to `i`, which are claimed, and claims for
 * it the holes that follow, up to `end`; none if another process fetches chunk `i`.
 */
void choice_make(struct fill *f, uint64_t first, uint64_t i, uint64_t end);

/* Is a fill held? */
bool choice_has_held(const struct sparse *p);

/* Is another one to be answered first? It brings what all need, such as the header of the entry. */
bool choice_is_early(const struct sparse *p);

/*
 * Bytes of a fill have come: moves the deadlines of those who wait for fills that are held until it
 * is answered or over. Lock not held.
 */
void choice_came(const struct fill *f, uint64_t bytes);

/* This URL has sent all of a fill. Lock not held. */
void choice_served(struct sparse *p, const char *url);

/*
 * May a held fill begin? What follows one that is under way waits for its connection, unless
 * another one is free: a new one is slow.
 */
bool choice_may_begin(const struct fill *f);

/* Marks a held fill as no longer held; the caller begins it. */
void choice_release(struct fill *f);

/*
 * Releases one of those that are held and may begin, with what its stream will read by now. NULL:
 * none. Lock not held.
 */
struct fill *choice_next(struct sparse *p);

#endif
