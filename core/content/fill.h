/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fill: one attempt to get bytes of an object, for all who wait for them. One of
 *
 *	all of them	before the object is open; leaves its bytes and their size
 *	the size	where only a server can tell
 *	some chunks	of an object that is open, and of which chunks are fetched as they are read
 *			(chunk_fill.h)
 *
 * fill.c begins a fill and ends it. It does not know where bytes come from: the object's ops get
 * all bytes or the size, on a worker of their lane; sparse.c begins a fill of chunks, on the
 * thread of the first reader.
 *
 * Threads: a fill belongs to one thread at a time. It may end on any thread: one that waits for a
 * server keeps no thread.
 */
#ifndef CARTON_CONTENT_FILL_H
#define CARTON_CONTENT_FILL_H

#include "base/hasher.h"
#include "cache/room.h"
#include "content/bytes.h"
#include "content/get.h"
#include "content/object.h"
#include "content/other.h"
#include "content/waits.h"

struct fill;
struct hash_job;
struct link;
struct sparse;

enum fill_what { FILL_ALL, FILL_SIZE, FILL_CHUNKS };

/* What is different for a fill of chunks; all functions are set. */
struct fill_ops {
	/* Gets the bytes, and ends with fill_done(); again, if somebody came after a cancel. */
	void (*begin)(struct fill *f);
	/* A lock that comes before the store's. */
	void (*lock)(struct fill *f);
	void (*unlock)(struct fill *f);
	/* The fill has ended. Both locks are held. */
	void (*take)(struct fill *f, int result);
	/* Logs why it failed. */
	void (*report)(const struct fill *f, int error);
	/* All who waited have their answer, and the fill is gone, which has ended so. */
	void (*ended)(struct object *o, int result);
};

struct fill {
	struct waits waits;
	struct object *object;
	enum fill_what what;
	const struct fill_ops *ops; /* of FILL_CHUNKS; else NULL */

	/* FILL_ALL, FILL_SIZE: the result, set before the end with 0 */
	struct bytes bytes; /* not BYTES_NONE: verified, and so the size is certain */
	uint64_t size;
	bool copied; /* the bytes are in a file of ours, which can be made again */
	bool sealed; /* the tags are from a seal: the bytes were hashed by an earlier mount */
	bool quiet;  /* the failure is not logged here: the caller has logged its cause */
	struct hash_job *hash_job; /* verifies chunks that nobody reads; NULL: no chunks */

	struct plan *plan;		  /* where the bytes may be; or NULL */
	int error;			  /* of the places of the plan that were tried */
	int64_t deadline_ms;		  /* now_ms(), which bytes do not move; 0: none */
	struct carton_observer *observer; /* for one pass over the bytes; or NULL */
	bool observed;			  /* all bytes went through it */
	bool given;			  /* the bytes are in its file */
	struct source *behind; /* its pages are dropped once they were observed; or NULL */
	uint64_t behind_off;   /* where the bytes begin in it */
	struct get get;	       /* what the network is asked for */
	struct other other;    /* while another process gets it */

	struct {	     /* into_file.c's own, but for the first two */
		bool cached; /* it may be a cache entry: the bytes are verified */
		/* Called once at the end, on any thread. 0: the fill has the bytes. */
		void (*done)(struct fill *f, int result);
		struct room room;
		struct file *dest;
		bool looked;	/* in the directories */
		unsigned found; /* how often another process had published it, but damaged */
	} file;

	/* chunk_fill.c's own */
	struct sparse *sparse;
	uint64_t first, end;	     /* chunks [first, end), with its lock */
	uint64_t settled;	     /* chunks [first, settled) are verified, */
	bool complete;		     /* and with them, all chunks of the object */
	uint64_t looked;	     /* so many bytes of this try were looked at */
	bool ahead;		     /* nobody waits when it begins */
	bool spilled;		     /* the disk was full: the rest goes to a second file */
	bool keep;		     /* it goes on also while nobody has the object open */
	bool held;		     /* it has not begun: it waits for another one */
	uint64_t bad;		     /* the first chunk with other bytes of those that came last */
	struct fill *next, **link;   /* in the list of the sparse file */
	int64_t began_us;	     /* now_us(); */
	bool answered;		     /* bytes have come since */
	struct server_rates *server; /* which is asked first; NULL while it is held */
	void (*probed)(struct fill *f, int result);

	/* fill.c's own */
	struct job job;
	bool try_seal; /* a seal is looked for first */
	bool retried;  /* after idle copies were closed for their descriptors */
};

/* How a kind of object gets its bytes and its size. */
struct object_ops {
	/*
	 * Finds the bytes, verifies them, and ends with fill_done(). get_size() may leave bytes,
	 * too; it may be NULL where the size is known from the start.
	 */
	void (*get_bytes)(struct fill *f);
	void (*get_size)(struct fill *f);
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
	bool (*by_seal)(struct fill *f);
	enum lane (*lane)(const struct object *o);
	void (*free)(struct object *o);
	bool always_verified; /* also when the carton is mounted unverified */
	bool final;	      /* bad bytes stay bad: they are not asked for again */
	bool may_wait;	      /* for a server, also where the carton is local */
};

/* A fill that nobody waits for yet; NULL: no memory. */
struct fill *fill_new(struct object *o, enum fill_what what);

/*
 * Ends a fill, once. 0; -EBADMSG: bad bytes; -ECANCELED; or what failed for now. Not from a
 * cancel hook. `f` is gone.
 */
void fill_done(struct fill *f, int result);

/* The progress() of struct ingest: calls waits_hashed(). `fill` is a struct fill. */
void fill_count(void *fill, uint64_t bytes);

/* The observer of struct ingest; `fill` as above. */
void fill_observe(void *fill, uint64_t off, const void *data, size_t n);

/* The file of the observer that takes the bytes; -1: there is none. */
int fill_given_fd(const struct fill *f);

/* Drops the pages of f->behind up to `end` of the bytes. */
void fill_drop_pages(struct fill *f, uint64_t end);

/*
 * Ends the observer, if there is one: what it got is of no use (result < 0), or all of it is right.
 */
void fill_end_observer(struct fill *f, int result);

/* Logs that the bytes have another hash: those at a URL, or those of the carton (NULL). */
void fill_log_wrong(const struct fill *f, const uint8_t found[SHA256_SIZE], const char *url);

/* Compares a hash with the object's: 0, or -EBADMSG, which is logged. */
int fill_check(const struct fill *f, const uint8_t found[SHA256_SIZE]);

/*
 * Counts `size` bytes of memory as used by kept objects, dropping others for them. False: there is
 * no room, or it is too large to be kept in memory.
 */
bool object_take_memory(struct object_store *s, uint64_t size);
void object_give_memory(struct object_store *s, uint64_t size);

#endif
