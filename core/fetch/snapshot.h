/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What opening a remote carton reads of it (the end, the central directory, MANIFEST, LINKS,
 * symlinks), kept in the cache, so that the carton can be opened again without its server. Its files
 * are objects of the cache as any others.
 *
 * A snapshot is an object of the cache: "cfsnap01", le64 size of the carton, le64 its time, then for each
 * stretch le64 offset, le64 length and its bytes, in the order in which they were read. A note under the
 * sha256 of "snapshot " and the URL, without its signature (http/http.h), names the object.
 *
 * Threads: each call is on its own, but where it says more.
 */
#ifndef CARTON_FETCH_SNAPSHOT_H
#define CARTON_FETCH_SNAPSHOT_H

#include "base/digest.h"
#include "base/source.h"
#include "base/util.h"
#include "cache/cache.h"

/* Stretches of a remote file in memory. Any thread. */
struct held;

/* May hold `max` bytes: older stretches give way. NULL: out of memory. */
struct held *held_new(uint64_t max);
void held_free(struct held *h); /* NULL-safe */

/* Holds `data` (malloc'ed; taken over, also on failure). 0 or -ENOMEM. */
int held_add(struct held *h, char *data, uint64_t n, uint64_t off);

/* Copies [off, off + n) (`ret_buf` NULL: does not); false: no one stretch has all of it. */
bool held_read(struct held *h, void *ret_buf, uint64_t n, uint64_t off);

/* From now on holds at most `max` bytes. */
void held_trim(struct held *h, uint64_t max);

/* What is known of a carton at a URL. */
struct snapshot {
	uint64_t size;
	int64_t mtime; /* seconds since 1970 */
	struct held *held;
};

/* Its text: 0; -EFBIG: `to` is full, or not all of it is held any more; -ENOMEM. */
int snapshot_write(const struct snapshot *s, struct buf *to);

/*
 * The same backwards, into an empty `ret->held`, hashed in the memory that it is read to. 0; -EBADMSG: also another
 * sha256; -EFBIG: over MAX_SNAPSHOT; -errno.
 */
int snapshot_read(struct source *from, const uint8_t sha256[SHA256_SIZE], struct snapshot *ret);

/*
 * Keeps it, in place of what was kept before. Best effort: more than MAX_SNAPSHOT bytes, or what the
 * cache has no room for, is not kept.
 */
void snapshot_save(const struct snapshot *s, struct cache *cache, const char *url);

/* What was kept last; `held` is the caller's. 0; -ENOENT: nothing, or it is damaged; -ENOMEM. */
int snapshot_load(struct cache *cache, const char *url, struct snapshot *ret);

#endif
