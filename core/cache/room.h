/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a file (file.h) that has room for the bytes of an object. These are tried, in this order:
 *
 *	an entry of the cache
 *	an unnamed file beside the cache
 *	an unnamed file where temporary files are, unless that is the same disk
 *	memory
 *
 * Where a kind of file has no room, drop() is called once for those of that kind, and it is tried
 * again before the next one. A kind that cannot be used for another reason is left at once. That
 * the cache has no room is logged, once in an incident. What is larger than any file may be
 * (base/file_size.h) is refused, and logged; nothing is dropped for it.
 *
 * Threads: a room belongs to one thread at a time.
 */
#ifndef CARTON_CACHE_ROOM_H
#define CARTON_CACHE_ROOM_H

#include <sys/types.h>

#include "cache/file.h"

/* How often an entry is tried that exists, but cannot be used or removed; then room_next(). */
#define CACHE_TRIES 8

struct room {
	/* the owner's */
	const char *name;    /* of what has the bytes, for the log; or NULL */
	struct cache *cache; /* NULL: there is none */
	const uint8_t *key; /* of the entry, 32 bytes, which outlive it; NULL: it must not be one */
	uint64_t size;	    /* of an unnamed file; UINT64_MAX: not known */
	uint64_t sparse;    /* bytes of an entry that several processes fill; 0: one does */
	bool only_cache;    /* they are of no use elsewhere */
	uint64_t memory;    /* how many bytes may be in memory; 0: none */
	/*
	 * Drops copies that nobody needs: entries of the cache, or unnamed files. True: there were
	 * some. Or NULL.
	 */
	bool (*drop)(void *ctx, bool entries);
	void *ctx;
	uint64_t wanted; /* what file_wanted() said of the file that was full */

	/* its own; all zero at first */
	enum { ROOM_CACHE, ROOM_BESIDE, ROOM_ELSEWHERE, ROOM_MEMORY, ROOM_NONE } at;
	bool dropped;	  /* for this kind of file */
	dev_t disk;	  /* of the file beside the cache */
	uint64_t reached; /* how many bytes there were when there was no room for more */
};

/* Is it an error of a full disk? */
bool room_is_full(int error);

/* Is a cache entry next? */
bool room_in_cache(struct room *room);

/*
 * Opens the first file that can be used. 0; -EAGAIN, -EEXIST: as cache_begin() or cache_join(),
 * whose entry is tried again by the next call; -ENOMEM; -EMFILE, -ENFILE; -EFBIG, logged: it is
 * larger than any file may be; or, when no kind is left, why the last one cannot be used.
 */
int room_open(struct room *room, struct file **ret);

/*
 * Goes on to the next kind: this one cannot be used any more, or was full when `reached` bytes were
 * there. 0; or, when no kind is left, what the caller gets: `error`, or -EFBIG as room_open().
 */
int room_next(struct room *room, int error, uint64_t reached);

/*
 * If *result is an error of a full disk, goes on to the next kind. True: there is one, and *result
 * is 0. False: *result is the caller's.
 */
bool room_again(struct room *room, int *result, uint64_t reached);

#endif
