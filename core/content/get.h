/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gets content from the network: from the URLs of a plan, then from those of the carton, until one
 * has the right bytes. Either all of it, hashed as it comes, or some bytes of it, which the
 * owner checks.
 *
 * Embedded in its owner. Threads: it belongs to its starter until it is started, then to one thread
 * at a time.
 */
#ifndef CARTON_CONTENT_GET_H
#define CARTON_CONTENT_GET_H

#include "base/hasher.h"
#include "base/source.h"
#include "base/workers.h"
#include "cache/follow.h"
#include "content/plan.h"
#include "content/span.h"

struct fill;
struct waits;

struct get {
	struct plan *plan;   /* outlives it */
	struct waits *waits; /* of those who wait for it */
	struct fill *fill;   /* that wants all of the content; NULL: some bytes are wanted */
	struct file *dest;   /* where the bytes go; stays the owner's */
	int64_t deadline_ms; /* for URLs: now_ms(), which bytes do not move; 0: as usual */
	/* `fill` is NULL: [off, off + n) is wanted, of content of `size` bytes; else not used */
	uint64_t off, n, size;
	/*
	 * Some bytes: they are in `dest`, from that URL. 0; -EBADMSG: they are wrong; -errno: that
	 * is not known, and ends it.
	 */
	int (*check)(struct get *g, const char *url);
	/*
	 * Some bytes: settle() of struct fetch; its context is the get. With 0 for `arrived` it
	 * returns how many bytes are right so far.
	 */
	uint64_t (*settle)(void *get, uint64_t arrived);
	/* Some bytes were wrong: sets `off` and `n` to the bytes still wanted. 0 or -errno. */
	int (*again)(struct get *g);
	/*
	 * The end, on any thread. 0: all is in `dest`; its tags in `in` are the callee's. -EBADMSG:
	 * no place has the right bytes; -EOPNOTSUPP: none has ranges; -ENETUNREACH: offline;
	 * -ECANCELED, -ESHUTDOWN; or what the network says.
	 */
	void (*done)(struct get *g, int result, struct ingested *in);

	/* its own; all zero at first */
	struct follow follow;	       /* hashes `dest`, when all is wanted */
	struct ingested in;	       /* what that has found */
	struct fetch_place *wrong;     /* the last one whose bytes had another hash */
	int checked;		       /* what check() said last */
	bool in_carton;		       /* the URLs are not asked any more, but the carton is, */
	size_t left;		       /* which had so many URLs then, */
	struct fetch_place *part_from; /* and this one sent the part */
	struct file *part_file;	       /* the entry's header, or all of it to be decoded; NULL */
	uint64_t held;		       /* bytes of it in memory that the budget counts */
	struct source *part;	       /* the bytes of part_file, once all have come; else NULL */
	struct span_wait span_wait;    /* for others that are fetched with it */
	bool partial; /* the part is one of the cache, which any place goes on with, */
	bool anew;    /* and was wrong */
	struct job job;
};

/* 0; or as for done(), which then is not called. May be started again after its end. */
int get_start(struct get *g);

/*
 * Asks the URLs how long the content is, by the deadline: in->size of done(). -ENODATA: none says.
 * As get_start().
 */
int get_start_size(struct get *g);

#endif
