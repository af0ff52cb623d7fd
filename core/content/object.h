/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects: content named by its sha256, and the one place where bytes become verified.
 *
 * An object starts unverified. The first object_get() queues a job that materializes it: finds the
 * bytes, decodes and hashes them, and keeps them in one of three ways:
 *
 *	in place	a large Stored entry of a local container: nothing is copied
 *	in the cache	a fetched file, or a decoded entry that can be sealed (cache.h)
 *	in memory	what is small, as long as all of it together stays within a budget
 *
 * Bytes kept in a file can change after they were hashed. So the hash pass leaves a secret tag for
 * each block (digest.h), and every read is checked against it before it is given to anyone. The
 * tags of a large object are sealed in the cache (cache.h): a later mount uses them, and does not
 * hash it again.
 *
 * An object with the wrong hash is corrupt, and stays so. Any other failure (disk full, no memory,
 * network) is only that attempt's: the next object_get() tries again.
 *
 * Where the carton has a chunk index (chunks.h), a large entry is not hashed at first: each chunk
 * is verified when it is first read, and the whole is hashed in the background.
 *
 * This module does not know where in the tree an object stands, nor what MANIFEST is.
 */
#ifndef CARTON_CONTENT_OBJECT_H
#define CARTON_CONTENT_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/workers.h"

struct budget;
struct carton_observer;
struct cache;
struct cancel;
struct chunks;
struct container;
struct entry;
struct events;
struct link;
struct mirrors;
struct object;
struct object_store;
struct waits;
struct fetch_options;

struct object_options {
	struct container *container; /* where entries are; outlives the store */
	struct workers *workers;     /* likewise */
	struct events *events;	     /* likewise */
	struct cache *cache;   /* likewise; NULL: large copies go to unnamed temporary files */
	struct source *source; /* of a remote carton (remote_source.h), likewise */
	const struct fetch_options *fetch; /* likewise; NULL: nothing is fetched (offline) */
	const struct mirrors
		*mirrors;   /* likewise; asked before links and a remote carton; or NULL */
	int64_t timeout_ms; /* for a server, or another process, to make progress; 0: the default */
	struct cancel *stop; /* likewise; firing it ends all waits, with -ENOTCONN; NULL: never */
	/* Returns the next other entry with the object's bytes; *at is 0 at first. Any thread. */
	const struct entry *(*find_entry)(void *ctx, const struct object *o, size_t *at);
	/*
	 * The object whose first entry is `e`, of a remote carton; NULL: there is none. Not `make`:
	 * only if somebody has asked for it before. Any thread.
	 */
	struct object *(*object_of)(void *ctx, const struct entry *e, bool make);
	void *ctx;
	/*
	 * All of an object has another hash than its chunks, which were read; or NULL. May wait for
	 * reads.
	 */
	void (*damaged)(void *ctx, const struct object *o);
	struct budget *budget; /* likewise; for copies in memory; NULL: none */
	const char *pin;       /* what says the hashes, for the log; NULL: MANIFEST */
	const char *label;     /* the source, as it may be shown; outlives the store; NULL: none */
	bool verify;	       /* false: nothing is hashed, nothing checked (-o verify=off) */
	enum {
		SEALS_OFF,
		SEALS_MAKE, /* but all is hashed (-o verify=mount) */
		SEALS_USE,
	} seals; /* need a cache */
};

/* Bytes that an object of an entry takes without content. */
extern const size_t object_cost;

int object_store_new(const struct object_options *options, struct object_store **ret);

/*
 * From now on what `chunks` lists is verified chunk by chunk, and has the size there. `index` is
 * the object that it was made from, which is pinned as long as the store exists; both outlive it.
 * Before other threads use the store.
 */
void object_use_chunks(struct object_store *s, struct chunks *chunks, struct object *index);

/* Bytes that were read to be verified so far: how far all jobs together are. */
uint64_t object_store_ingested(const struct object_store *s);

/* From now on, what the cache has no room for is not fetched (`only`): -ENOSPC. Or it is. */
void object_store_only_cache(struct object_store *s, bool only);

/* Since it was made: bytes that came from servers, and objects that the cache had. */
struct object_traffic {
	uint64_t fetched, cache_hits, cache_misses;
};
void object_store_traffic(const struct object_store *s, struct object_traffic *ret);

/*
 * Ends all waits: they, and every later one, get -ENOTCONN. Jobs under way end soon; they are over
 * when the workers are.
 */
void object_store_stop(struct object_store *s);

/* Frees all objects. No job may be left, no object pinned. NULL-safe. */
void object_store_free(struct object_store *s);

/*
 * The object of that hash and size, made on the first call, with `entry` as the first place where
 * its bytes may be; find_entry() knows the others. Several entries with one hash share an object;
 * were their sizes to differ, one of them must be bad, so they are two objects. Owned by the store.
 * Any thread. 0, -ENOMEM, or -EFBIG over the budget.
 */
int object_add(struct object_store *s, const uint8_t sha256[SHA256_SIZE], const struct entry *entry,
	       struct object **ret);

/*
 * The object of that hash whatever its size, or a new one that is fetched as `link` says (which
 * outlives the store, as `name` does). -ENOENT: there is none, and `link` is NULL. As object_add().
 */
int object_add_link(struct object_store *s, const uint8_t sha256[SHA256_SIZE], const char *name,
		    struct link *link, struct object **ret);

enum object_state {
	OBJECT_UNVERIFIED,
	OBJECT_VERIFIED,
	OBJECT_SEALED,	/* verified by an earlier mount; each read is checked */
	OBJECT_CHUNKED, /* each chunk is verified when it is read; the whole is not yet */
	OBJECT_CORRUPT,
};

#define OBJECT_NO_SIZE UINT64_MAX

const char *object_name(const struct object *o); /* what to call it in the log */
const uint8_t *object_sha256(const struct object *o);

/*
 * The sha256 of its content. False: of late content it is not known before the bytes have come;
 * then object_sha256() is a name made of the git id, which MANIFEST has in its place (links.h).
 */
bool object_known_sha256(const struct object *o, uint8_t ret[SHA256_SIZE]);

/* The name under which the cache may have it: its sha256, as it is known or as a hint says. */
bool object_cache_name(const struct object *o, uint8_t ret[SHA256_SIZE]);

const struct entry *object_entry(const struct object *o); /* NULL: it is fetched */

/*
 * How many bytes servers have to send for an object that is in no cache: all that it takes, less
 * what an earlier fill may have left. 0: none; OBJECT_NO_SIZE: not known.
 */
uint64_t object_to_fetch(const struct object *o);

/*
 * In bytes. OBJECT_NO_SIZE: not known yet (see object_get_size). It is certain when the container
 * says it, or once the object was verified; before that it is what a server says.
 */
uint64_t object_size(const struct object *o);
bool object_size_is_certain(const struct object *o);

/* Is `o` made of `of`, as object_depend() said? */
bool object_made_of(const struct object *o, const struct object *of);

/* Is it withdrawn, since what it was made of is damaged? Then nobody gets it any more. */
bool object_is_withdrawn(const struct object *o);

enum object_state object_state(struct object *o);

/* What to tell people: corrupt once a read has found that, not when its last reader has gone. */
enum object_state object_known_state(struct object *o);

/*
 * Somebody will certainly open it soon: it is fetched with what lies beside it at a server. Any
 * thread.
 */
void object_want(struct object *o);

/* How far the attempt to get an object's bytes is. */
struct object_progress {
	bool fetching;		/* from a server; else read to be verified */
	uint64_t done, arrived; /* bytes; of these, from servers */
	uint64_t announced;	/* so many come, as a server says; 0: not known */
	unsigned waiting;	/* how many wait for it */
};

/* True: there is one. */
bool object_progress(struct object *o, struct object_progress *ret);

/*
 * Bytes of an object that is not verified and that the container does not have, which are here by
 * now: they arrive, or their chunks are verified.
 */
uint64_t object_here(struct object *o);

/*
 * A waiter. Belongs to the caller, who sets `done`; the rest is private. What needs a server ends
 * with -ETIMEDOUT for a waiter once `timeout_ms` has passed since it came, whoever else waits;
 * bytes move that on, as long as at least 1 KiB/s comes, for those who wait for bytes.
 */
struct object_wait {
	/* the object is pinned (0), or why not; called once, on a worker's thread */
	void (*done)(struct object_wait *wait, int result);
	struct carton_observer
		*observer;   /* or NULL; taken by the attempt that this waiter begins */
	struct waits *above; /* of the work that waits: bytes move its deadlines on, too; or NULL */
	bool background;     /* no reader waits: requests give way to others (server.h) */
	struct object *object;
	struct waits *waits;
	uint64_t first, end; /* of a fill of chunks: those that its reader misses */
	int64_t deadline_ms; /* now_ms(); guarded by the store's lock, as the next line */
	struct object_wait *next, **link; /* guarded by the store's lock; link NULL: not queued */
};

/*
 * Pins the object's verified bytes, so that they can be read until object_put(). Returns
 *	0		pinned
 *	-EINPROGRESS	`wait` is queued: its `done` will be called (perhaps it was already)
 *	-EAGAIN		it would have to wait, and `wait` is NULL. A small object whose bytes are
 *			in memory is verified by the calling thread.
 *	-EBADMSG	corrupt
 *	-ENOTCONN	the store is stopped
 * `done` gets 0 or -EBADMSG, -ENOSPC, -EIO, -ENOMEM, -ENOTCONN, … as that attempt ended.
 */
int object_get(struct object *o, struct object_wait *wait);

/*
 * Finds out object_size(), where only a server can tell. Returns as object_get(), but pins nothing;
 * when no server says, it is fetched.
 */
int object_get_size(struct object *o, struct object_wait *wait);

/* True: `done` has not been and will not be called. What others wait for goes on. */
bool object_wait_cancel(struct object_wait *wait);

/*
 * As object_get(), but waits. `above`: of the work that the thread does, a fill on LANE_VIEWS;
 * -ECANCELED as soon as nobody waits for that any more, -EBUSY if too many threads wait already.
 * NULL: for as long as it takes, not on a lane that the object may need.
 */
int object_get_wait(struct object *o, struct waits *above);

/*
 * Gets each object of `list` once, several at a time, and puts it again, so that late ones learn
 * their sha256. Waits as object_get_wait() for the work of `above`. 0, or the error of the first
 * that failed: the others are got all the same, unless they would fail, too.
 */
int object_get_each(struct object *const *list, size_t n, struct waits *above);

/*
 * Starts fetching the first missing chunk of [off, off+n) of a pinned object, and perhaps more. 0:
 * nothing is missing; -EINPROGRESS: `wait` gets 0 once there is more, or why not;
 * -ENOTCONN, -ENOMEM; -EFBIG as object_read(). Whoever reads a part that is there by now need not
 * mind the failure of the rest.
 */
int object_fetch(struct object *o, uint64_t off, size_t n, struct object_wait *wait);

/*
 * A reader that reads `o` in order will read `next` then (NULL: nothing): fetching ahead of it goes
 * on at the start of `next`, as long as somebody has `o` open. A reader that then reads `next` from
 * its start has a window at once, as if `next` were a part of `o`.
 */
void object_follow(struct object *o, struct object *next);

/* Unpins. */
void object_put(struct object *o);

/*
 * Copies bytes [off, off+n), which lie within the size, of a pinned object. 0; -EBADMSG (logged
 * once) when they are no longer those that were verified, or a chunk is bad; -EIO, -ENOMEM; -EFBIG
 * (likewise) when what checks a chunk would be over the budget; -EINPROGRESS when they have to be
 * fetched first. With `nowait`, -EAGAIN when they are not in memory now, or not verified.
 */
int object_read(struct object *o, void *ret_buf, size_t n, uint64_t off, bool nowait);

/*
 * The file of a pinned object whose bytes are all of it, if they are a copy of ours that was hashed
 * whole since the store was made: its descriptor, the object's, while it is pinned. -ENODATA: not
 * so.
 */
int object_copy_fd(struct object *o);

/* As object_read() without `nowait`, but waits for what has to be fetched, as object_get_wait(). */
int object_read_wait(struct object *o, void *ret_buf, size_t n, uint64_t off, struct waits *above);

/*
 * Hashes all of a pinned object of which only chunks are verified: for who makes something of it
 * that would stay when the whole turns out to be another file. 0; -EBADMSG; -ECANCELED; or as
 * object_read_wait().
 */
int object_hash_all(struct object *o, struct waits *above);

#endif
