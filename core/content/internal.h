/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of content/. From the bottom up:
 *
 *	chunk_read	reads, hashes and tags a chunk
 *	chunked		bytes that are verified as they are read
 *	ahead		how far ahead of their readers chunks are fetched
 *	disk_ahead	reads local files from the disk ahead of their readers
 *	bytes		verified bytes, and reading them
 *	hash_job	verifies their chunks in the background
 *	late		content of which only the git id is known
 *	keep		how long copies are kept: the idle list, the budget for memory, seals
 *	waits		who waits for a fill of an object, and until when
 *	other		waits for what another process does
 *	fault		why objects are corrupt
 *	store		finds objects by their hash
 *	plan		where the bytes may be
 *	run		which small entries are fetched together
 *	fill		an attempt to get bytes of an object: its beginning and its end
 *	object		who has it pinned
 *	hash		what verifying all chunks of it shows
 *	span		fetches small entries together
 *	entry_part	the header of an entry, or all of it, which is decoded
 *	get		gets bytes from the network
 *	into_file	a file for what cannot be read in place
 *	chunk_choice	which chunks one request asks for, and when
 *	chunk_fill	fetches and verifies chunks
 *	chunk_ahead	fetches chunks ahead of readers
 *	sparse		fetches the chunks of an object as they are read
 *	by_index	what need not be copied first, since the chunk index has it
 *	local		bytes of entries of a local container
 *	original	objects of the container and of LINKS
 *	derived		objects that are made of others
 *
 * What happens when somebody opens an object: object_get() finds its bytes, or waits for a fill.
 * The fill looks for a seal, or calls get_bytes() of original.c, which tries, in this order,
 *
 *	the chunk index		by_index: the bytes are there at once; sparse fetches its chunks
 *	a local entry		local: hashed in place, or decoded into memory
 *	a file of our own	into_file: found in the cache, or filled by a get or by a decoder
 *
 * fill_done() then gives the bytes to the object and to all who wait. When somebody reads,
 * object_read() compares blocks with their tags; of a chunk that is missing it says -EINPROGRESS,
 * and object_fetch() has sparse begin a fill of chunks, which chunk_fill runs.
 */
#ifndef CARTON_CONTENT_INTERNAL_H
#define CARTON_CONTENT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/budget.h"
#include "base/event.h"
#include "base/siphash.h"
#include "cache/room.h"
#include "content/get.h"
#include "content/fill.h"
#include "content/hash_job.h"
#include "content/run.h"

struct object {
	struct object_store *store;
	struct object *next_hash;
	uint8_t sha256[SHA256_SIZE];
	const char *name; /* of one path that has it, for the log */
	const struct object_ops *ops;
	struct late *late;     /* NULL: its sha256 is known from the start; else see late.h */
	_Atomic uint64_t size; /* OBJECT_NO_SIZE until it is certain */
	_Atomic uint64_t reported_size; /* by a server; OBJECT_NO_SIZE: not yet */
	atomic_bool read_failed; /* a bad read was logged; the bytes go when nobody has it open */
	atomic_bool no_chunks;	 /* or it could not be hashed: the next open hashes all of it */
	atomic_bool wanted;	 /* somebody will certainly open it, see object_want() */
	atomic_bool doubted;	 /* there is a note of that, see doubt_keep() */
	atomic_bool named;	 /* this mount has noted its name, see name_keep() */
	_Atomic(struct object *) next, before; /* opened after and before it: object_follow() */
	_Atomic uint64_t in_order; /* bytes that the last reader has read so, of it or before it */
	atomic_uint n_ahead;	   /* jobs that verify chunks ahead of who reads in order */
	int64_t stale_ms;	   /* of `content`: when the last one ended with -ESTALE; 0 */

	/* guarded by store->lock; `bytes` is constant while pinned */
	enum object_state state;
	unsigned pins, fill_pins;      /* fill_pins: the pins of fills of chunks and of the hash */
	struct fill *content, *length; /* NULL: not under way */
	struct bytes bytes;
	bool copied;		      /* as in struct fill */
	struct object *older, *newer; /* in the idle list */
	bool idle;		      /* in that list */
	atomic_bool withdrawn;	      /* see object_is_withdrawn(); set with the lock */
};

/* See span.h. */
struct object_runs {
	pthread_mutex_t lock; /* guards what follows; the store's may be taken with it */
	struct run run;
	struct span *spans;
};

struct object_store {
	struct object_options options;
	struct tagger *tagger; /* NULL when nothing is verified */
	struct object **buckets;
	struct object *derived; /* guarded by lock; linked by next_hash */
	size_t n_buckets, n_objects;
	struct siphash_key bucket_key;
	struct cancel stop;	   /* fired when the store is stopped; the parent of all fills */
	_Atomic uint64_t ingested; /* bytes read to be verified */
	atomic_bool only_cache;	   /* see object_store_only_cache() */
	_Atomic uint64_t cache_hits, cache_misses; /* see struct object_traffic */
	_Atomic uint64_t reads;			   /* calls of object_read() */
	struct chunk_index index;		   /* its chunks are NULL if there is none */
	struct hash_job_queue hash_jobs;
	struct object_runs runs;
	struct rates rates;

	pthread_mutex_t lock;		   /* guards what objects say it guards, and: */
	struct object *oldest, *newest;	   /* copies that nobody has pinned, by last use */
	uint64_t memory_used, idle_memory; /* of all copies; of the idle ones */
	unsigned files_used;
	struct fault *faults; /* the newest is first */
	struct waits *timed;  /* those with deadlines */
	struct task clock;    /* looks at them */
};

/* ---- fault.c, called with the lock held ---- */

/* Why an object is damaged: later readers of the object get the same text. */
struct fault {
	struct fault *next;
	const struct object *object;
	char *text;
};

/* The text of this thread's failure is why the object is corrupt. */
void fault_keep(const struct object *o);

/* The object was found corrupt before: sets this thread's text again. Returns -EBADMSG. */
int fault_again(const struct object *o);

/* Frees all texts. */
void fault_finish(struct object_store *s);

/* ---- fill.c ---- */

/*
 * Waits for a fill of all bytes or of the size (FILL_ALL, FILL_SIZE), a new one unless one is under
 * way. *ret_start: it has to be submitted. Lock held. -EINPROGRESS, -EAGAIN (no `wait`), -ENOTCONN,
 * -ENOMEM.
 */
int fill_join(struct object *o, enum fill_what what, struct object_wait *wait,
	      struct fill **ret_start);
void fill_submit(struct fill *f);

struct ingest;
struct stream;

/* How the object's bytes are hashed, tagged and observed; its stream is not set. */
struct ingest fill_ingest(struct fill *f);

/*
 * Reads, hashes and checks a stream, which is closed. 0, -EBADMSG (logged), -ECANCELED, or why not.
 */
int fill_verify(struct fill *f, struct stream *in, struct ingested *ret);

/* ---- hash.c ---- */

/*
 * What verifies the chunks that are left in the background, for an object that has a pin for it by
 * then: hash_job_start() begins. 0 or -ENOMEM.
 */
int object_new_hash_job(struct object *o, struct chunked *chunks, struct hash_job **ret);

/* All chunks of a pinned object are verified: starts a job that calls object_proven(). */
void object_start_hash(struct object *o);

/* Adds a pin for a fill of chunks or for a hash job, which are no readers. */
void object_pin_for_fill(struct object *o);

/*
 * Stops using the chunk index for this object, as its chunks or its hash cannot be had: after the
 * last close, the next open verifies all of it.
 */
void object_distrust(struct object *o);

/* ---- keep.c. The first five are called with the lock held ---- */

void keep_remove(struct object_store *s, struct object *o);
void keep_add(struct object_store *s, struct object *o);

/* Gives the object verified bytes. */
void keep_attach(struct object *o, const struct bytes *bytes, uint64_t size);

/*
 * Drops idle copies while there are too many, or too many files are open. Releases the lock
 * meanwhile.
 */
void keep_limit(struct object_store *s);

/* Takes the object's bytes away from it; the caller frees them without the lock. */
struct bytes keep_detach(struct object_store *s, struct object *o);

/* The make_room of the budget: drops idle copies in memory until `n` bytes are left of it. */
void keep_make_room(void *store, uint64_t n);

/* Drops all idle copies; false: none of them was a file. */
bool keep_drop_idle(struct object_store *s);

/* A drop() of a room: drops those idle copies whose room that would be. */
bool keep_drop_copies(void *store, bool entries);

/* The tags of the fill's object, if it has `size` bytes and a seal. The caller frees them. */
bool seal_tags(const struct fill *f, uint64_t size, uint8_t (**ret_tags)[TAG_SIZE]);

/* A by_seal(): the cache entry of the object. */
bool seal_of_cached(struct fill *f);

/* Leaves a seal of bytes that were hashed. Best effort: without it they are hashed again. */
void seal_keep(struct object *o, uint64_t size, uint8_t (*tags)[TAG_SIZE]);

/*
 * If all chunks have passed, from state to state, in this mount: that is the sha256 of the whole.
 * The object is verified then, sealed, and a cache entry if it was fetched. Once.
 */
void object_proven(struct object *o);

/* Bytes did not fit their tags: the next open hashes all of them. */
void seal_drop(const struct object *o);

/* Notes in the cache which file of the source an object is, which the cache has from now on. */
void name_keep(struct object *o);

/*
 * Leaves a note that a chunk did not fit the index, for later mounts, which open it at once
 * otherwise: wherever the bytes come from, the word of this index is not enough. Best effort.
 */
void doubt_keep(struct object *o);

/*
 * Is there such a note? Then all of it is hashed first. It makes things stricter only, so it need
 * not be true.
 */
bool doubt_find(struct object *o);

/* ---- store.c, called with the lock held ---- */

/* The object of that hash, and of that size unless that is OBJECT_NO_SIZE; or NULL. */
struct object *store_find(const struct object_store *s, const uint8_t sha256[SHA256_SIZE],
			  uint64_t size);

/*
 * Adds a new object, which has its ops, name and size and is zero otherwise; NULL: no memory. The
 * store owns the object, also on failure. 0 or -ENOMEM.
 */
int store_add(struct object_store *s, const uint8_t sha256[SHA256_SIZE], struct object *o,
	      struct object **ret);

/* The same for a derived one. Lock not held. */
int store_add_derived(struct object_store *s, struct object *o, struct object **ret);

/* ---- into_file.c ---- */

/*
 * Gets a verified copy of what cannot be read in place: in the cache, for everyone, or wherever
 * there is room (room.h). f->file.done is called at the end.
 */
void fill_into_file(struct fill *f);

/*
 * Opens the file that chunks of an object go to. It is a partial of the cache, which all processes
 * fill that have the same index of it; under a name that is no sha256 of content, so nobody finds
 * it as an object. Or another file, wherever there is room. 0 or -errno.
 */
int fill_open_chunks(const struct object *o, const struct chunks_file *file, struct file **ret);

/* ---- by_index.c ---- */

/*
 * What the index says of an object of `size` bytes (or OBJECT_NO_SIZE); NULL: it is to be hashed
 * first, since there is nothing, or a read has failed.
 */
const struct chunks_file *by_index_find(const struct object *o, uint64_t size);

/*
 * An earlier mount has found another file there: begins anew, to hash all of it on the lane for
 * that. False: not so.
 */
bool by_index_is_doubted(struct fill *f);

/*
 * The fill's bytes are all there, and verified as they are read. 0, -ENOMEM, or -EFBIG over the
 * budget.
 */
int by_index_use(struct fill *f, const struct chunks_file *c);

/*
 * The same for what is fetched: those of a copy in the cache, or as they are read. 0 or -errno,
 * without bytes.
 */
int by_index_fetch(struct fill *f, const struct chunks_file *c);

/* ---- local.c: an entry of a local container. 0 or -errno, without bytes ---- */

/* Hashes the bytes where they are. */
int local_in_place(struct fill *f, const struct entry *e);

/*
 * Takes the bytes where they are, unhashed, as the index or a seal says: after a bad chunk or
 * block, the next open hashes all places. The second: false: there is no seal, or no such entry.
 */
int local_by_index(struct fill *f, const struct entry *e, const struct chunks_file *c);
bool local_by_seal(struct fill *f, const struct entry *e);

/* Decodes and hashes the bytes in memory, which is claimed. */
int local_into_memory(struct fill *f, const struct entry *e);

/* A get_now() of struct object_ops. */
int local_get_now(const struct object *o, const struct entry *e, struct bytes *ret);

#endif
