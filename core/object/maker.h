/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makers: how an object gets its bytes and its size. There is one kind for entries of the container
 * (maker_entry.c), one for what LINKS lists (maker_link.c) and one for content derived from other
 * objects (maker_derived.c). making.c asks them, and knows nothing of where bytes come from.
 *
 * Threads: a maker is asked on a worker of its lane. It may complete on any thread, also after it
 * has returned; so whatever waits for a server need not keep a thread.
 */
#ifndef CARTON_OBJECT_MAKER_H
#define CARTON_OBJECT_MAKER_H

#include "base/hasher.h"
#include "object/bytes.h"
#include "object/object.h"
#include "object/waits.h"

/* One attempt to get an object's bytes or its size, for all who wait for it. */
struct making {
	struct waits waits;
	struct object *object;

	/* What the maker leaves here before it completes with 0. */
	struct bytes bytes; /* not BYTES_NONE: verified, and so the size is certain */
	uint64_t size;
	bool copied; /* the bytes are in a file of ours, which can be made again */
	bool sealed; /* the tags are from a seal: the bytes were hashed by an earlier mount */

	struct hash_job *hash_job; /* the bytes are chunked: this hashes all of them; else NULL */

	struct plan *plan; /* where the bytes may be, once the maker has said so; or NULL */
	struct derivation *derivation;	  /* maker_derived.c's own */
	struct carton_observer *observer; /* for one pass over the bytes; or NULL */
	bool observed;			  /* all bytes went through it */
	struct source *behind; /* its pages are dropped once they were observed; or NULL */
	uint64_t behind_off;   /* where the bytes begin in it */

	/* making.c's own */
	struct job job;
	bool size_only;
	bool try_seal; /* a seal is looked for first */
	bool retried;  /* after idle copies were closed for their descriptors */
};

struct hash_job;

struct maker {
	const struct maker_ops *ops;
};

struct maker_ops {
	/*
	 * Finds the bytes, verifies them, and completes with making_done(). get_size() may leave
	 * bytes, too; it may be NULL where the size is known from the start.
	 */
	void (*get_bytes)(struct making *m);
	void (*get_size)(struct making *m);
	/*
	 * The verified bytes of a small object, if that takes neither waiting nor long: 0. Else
	 * -EAGAIN, unlogged. On any thread, perhaps on several at once; not called where it is
	 * NULL.
	 */
	int (*get_now)(const struct object *o, struct bytes *ret);
	/*
	 * Finds the bytes and, by seal_tags(), the seal that they are read with, without hashing;
	 * on LANE_QUICK. False: get_bytes() has to. NULL: there are no seals of this kind.
	 */
	bool (*by_seal)(struct making *m);
	enum lane (*lane)(const struct object *o);
	void (*free)(struct maker *maker);
	bool always_verified; /* also when the carton is mounted unverified */
	bool final;	      /* bad bytes stay bad: they are not asked for again */
	bool may_wait;	      /* for a server, also where the carton is local */
};

/*
 * Ends an attempt, once. 0; -EBADMSG: bad bytes; -ECANCELED; or what failed for now. Not from a
 * cancel hook. `m` is gone.
 */
void making_done(struct making *m, int result);

/* waits_hashed(); `making` is a struct making, as struct ingest has it. */
void making_count(void *making, uint64_t bytes);

/* The observer of struct ingest; `making` as above. */
void making_observe(void *making, uint64_t off, const void *data, size_t n);

/* Drops the pages of m->behind up to `end` of the bytes. */
void making_drop_pages(struct making *m, uint64_t end);

/*
 * Ends the observer, if there is one: what it got is of no use (result < 0), or all of it is right.
 */
void making_end_observer(struct making *m, int result);

/* Compares a hash with the object's: 0, or -EBADMSG, which is logged. */
int making_check(const struct making *m, const uint8_t found[SHA256_SIZE]);

struct place;
struct link;

/* Begins with a new plan. As plan_new(): 0 or -ENOMEM. */
int making_plan(struct making *m, const struct place *first, struct link *link);

/*
 * Counts `size` bytes of memory as used by kept objects, dropping others for them. False: there is
 * no room, or it is too large to be kept in memory.
 */
bool object_claim_memory(struct object_store *s, uint64_t size);
void object_unclaim_memory(struct object_store *s, uint64_t size);

/* ---- maker_derived.c ---- */

/*
 * Makes content from other objects, on a worker of LANE_VIEWS. Gets those by making_need(). Sets
 * m->bytes and m->size (an output does). 0 or -errno.
 */
typedef int object_derive_fn(void *ctx, struct making *m);

/*
 * Pins an object for a derive function, without keeping its thread. 0; or -EINPROGRESS, which the
 * derive function then returns: once the object is pinned, or that has failed, it is called again
 * from its start, and gets that result here. Or -errno. With NULL for `m`: object_get_wait().
 */
int making_need(struct making *m, struct object *o);

/*
 * The number of an attempt, however often its derive function is called in it; no other has it. 0:
 * `m` is NULL.
 */
uint64_t making_number(const struct making *m);

/*
 * The same for bytes [off, off+n) of an object that is pinned: as object_read(), and what has to be
 * fetched is, without keeping the thread. The derive function is then called again from its start,
 * with these bytes there.
 */
int making_read(struct making *m, struct object *o, void *ret_buf, size_t n, uint64_t off);

/*
 * An object without a hash, which `derive` makes. Owned by the store; `name` outlives it. May be
 * added at any time, by any thread. 0 or -ENOMEM.
 */
int object_add_derived(struct object_store *s, const char *name, uint64_t size,
		       object_derive_fn *derive, void *ctx, struct object **ret);

/*
 * Says what a derived object is made of, before anyone gets it: if that turns out to be damaged
 * after it was made, it is withdrawn. Needs no call for what object_hash_all() was asked about.
 */
void object_depend(struct object *derived, struct object *of);

/* Where derived bytes go: memory if they are few, else an unnamed file with tags. Private. */
struct output {
	struct making *making;
	uint64_t size, done;
	char *memory;	   /* or */
	struct dest *dest; /* with */
	struct hasher hasher;
};

/* For just `size` bytes. 0, -ENOMEM, -ENOSPC or -errno. */
int output_begin(struct output *out, struct making *m, uint64_t size);

/* The next bytes. 0; -EBADMSG: more than `size`; -ECANCELED; -ENOSPC or -errno. */
int output_write(void *output, const void *data, size_t n);

/*
 * Ends it with `result`: when that is 0 and all bytes are there they are the object's. 0 or -errno.
 */
int output_end(struct output *out, int result);

#endif
