/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What object.c (who waits, what is kept), materialize.c (how bytes are found) and object_copy.c (where
 * copies go) share.
 */
#ifndef CARTON_OBJECT_INTERNAL_H
#define CARTON_OBJECT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "object/bytes.h"
#include "http/blocking.h"
#include "object/object.h"

/* An entry that should hold the object's bytes. */
struct origin {
	const struct entry *entry;
	struct origin *next;
};

/* Something to find out about an object, on a worker, for all who wait for it. */
struct object_task {
	struct job job;
	int64_t since_ms; /* when it was queued */
	atomic_uint n_waiting;
	bool busy;		   /* its job is queued or runs; guarded by store->lock */
	struct object_wait *waits; /* likewise */
};

/* A fetch, and how to end it. */
struct object_fetch {
	struct http_cancel cancel;
	struct object_fetch *next;
};

struct object {
	struct object_store *store;
	struct object *next_hash;
	uint8_t sha256[SHA256_SIZE];
	const char *name;	  /* of one path that has it, for the log */
	struct origin *origins;	  /* where to look first; or */
	struct link *link;	  /* where to fetch it; or */
	object_derive_fn *derive; /* how to make it; one of the three is there */
	void *derive_ctx;
	_Atomic uint64_t size;	    /* OBJECT_NO_SIZE until it is certain */
	_Atomic uint64_t said_size; /* what a server says; OBJECT_NO_SIZE: nothing yet */
	struct object_task content, length;
	atomic_bool read_failed; /* a bad read was logged; a copy goes when nobody has it open */
	int64_t stale_ms; /* when it was found stale, if that was the last try; the content job's own */

	/* guarded by store->lock; `bytes` is constant while pinned */
	enum object_state state;
	unsigned pins;
	struct object_fetch *fetches; /* under way, ended when nobody waits any more */
	struct bytes bytes;
	bool copied;		      /* they are in a file of ours, which can be made again */
	struct object *older, *newer; /* in the list of what may be dropped */
	bool idle;		      /* in that list */
};

struct object_store {
	struct object_options options;
	struct tagger *tagger; /* NULL when nothing is verified */
	struct object **buckets;
	struct object *derived; /* guarded by lock; linked by next_hash */
	size_t n_buckets, n_objects;
	uint64_t bucket_keys[4]; /* random and odd */
	atomic_bool stopping;
	atomic_bool cache_failed;  /* which was logged */
	_Atomic uint64_t ingested; /* bytes read to be verified */

	pthread_mutex_t lock;		/* guards what objects say it guards, and: */
	struct object *oldest, *newest; /* kept copies nobody has pinned, by last use */
	uint64_t memory_used;
	unsigned files_used;
};

/* What a worker does for an object: get and verify its bytes, or ask for its size; then tell who waits. */
void object_run_content(struct job *job);
void object_run_length(struct job *job);

/* Stands around a fetch, so that it ends when nobody waits for the object any more. 0 or -errno. */
int object_fetch_begin(struct object *o, struct object_fetch *fetch);
void object_fetch_end(struct object *o, struct object_fetch *fetch);

/* Counts `size` bytes of memory as used, after dropping others if need be; false: no room. */
bool object_claim_memory(struct object_store *s, uint64_t size);
void object_unclaim_memory(struct object_store *s, uint64_t size);

/* Drops all copies that nobody has pinned; false: there was none in a file. */
bool object_drop_idle(struct object_store *s);

/* What to call the object in the log. */
const char *object_name(const struct object *o);

/* For what works on an object, which is the context: asks object_must_stop(); counts what it read. */
bool object_stop(void *ctx);
void object_count(void *ctx, uint64_t bytes);

/*
 * Reads all of a stream, which is closed, and writes it to `fd` unless that is -1. 0 with its hash and
 * tags; -EBADMSG (logged) when the hash is not the object's; -errno.
 */
struct ingested;
int object_take_stream(struct object *o, struct stream *in, int fd, struct ingested *ret);

/*
 * object_copy.c. A verified copy of what cannot be read in place, from `e`, or where LINKS says when
 * that is NULL: in the cache, else in an unnamed file, else (when it is small) in memory. 0; -EBADMSG;
 * -ENOSPC: nowhere is room; or as object_materialize().
 */
struct entry;
int object_copy(struct object *o, const struct entry *e, struct bytes *ret);

/* Runs a fetch of the object, which ends when nobody waits for it. As `run`; -ENETUNREACH: offline. */
struct fetch;
int object_fetch(struct object *o, struct fetch *f, int (*run)(struct fetch *f, void *ret),
		 void *ret);

static inline bool object_disk_full(int error)
{
	return error == -ENOSPC || error == -EDQUOT;
}

/* Its copy is no longer what was verified: nobody shall find it in the cache. For who has it pinned. */
void object_drop_cached(struct object *o);

/*
 * Finds the object's bytes and verifies them, on a worker. 0 with the bytes (memory is claimed) and
 * their number; -EBADMSG, -ECANCELED, or why not now. Logged.
 */
int object_materialize(struct object *o, struct bytes *ret, uint64_t *ret_size);

/* Asks how long the object is, on a worker: 0 (and whether that is certain), or why not now. */
int object_ask_size(struct object *o, uint64_t *ret_size, bool *ret_certain);

#endif
