/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What opening a remote carton reads of it (the end, the central directory, MANIFEST, LINKS,
 * symlinks), kept in the cache, so that the carton can be opened again without its server. Its
 * files are objects of the cache as any others.
 *
 * A snapshot is an object of the cache: "cfsnap01", le64 size of the carton, le64 its time, then
 * for each range le64 offset, le64 length and its bytes, in the order in which they were read. A
 * note under the sha256 of "snapshot " and the URL, without its signature (http/http.h), names the
 * object.
 *
 * Threads: each call is on its own, but where it says more.
 */
#ifndef CARTON_FETCH_SNAPSHOT_H
#define CARTON_FETCH_SNAPSHOT_H

#include "base/digest.h"
#include "base/source.h"
#include "base/util.h"
#include "cache/cache.h"

/* Ranges of a remote file that are cached in memory. Any thread. */
struct cached_ranges;

/* May hold `max` bytes: older ranges give way. NULL: out of memory. */
struct cached_ranges *cached_ranges_new(uint64_t max);
void cached_ranges_free(struct cached_ranges *h); /* NULL-safe */

/* Adds `data` (malloc'ed; taken over, also on failure). 0 or -ENOMEM. */
int cached_ranges_add(struct cached_ranges *h, char *data, uint64_t n, uint64_t off);

/* Copies [off, off + n) (`ret_buf` NULL: does not); false: no one range has all of it. */
bool cached_ranges_read(struct cached_ranges *h, void *ret_buf, uint64_t n, uint64_t off);

/* From now on has at most `max` bytes. */
void cached_ranges_trim(struct cached_ranges *h, uint64_t max);

/* What is known of a carton at a URL. */
struct snapshot {
	uint64_t size;
	int64_t mtime; /* seconds since 1970 */
	struct cached_ranges *ranges;
};

/* Its text: 0; -EFBIG: `to` is full, or some ranges have given way; -ENOMEM. */
int snapshot_write(const struct snapshot *s, struct buf *to);

/*
 * The same backwards, into an empty `ret->ranges`, hashed in the memory that it is read to. 0;
 * -EBADMSG: also another sha256; -EFBIG: over MAX_SNAPSHOT; -errno.
 */
int snapshot_read(struct source *from, const uint8_t sha256[SHA256_SIZE], struct snapshot *ret);

/*
 * Keeps it, in place of what was kept before. Best effort: more than MAX_SNAPSHOT bytes, or what
 * the cache has no room for, is not kept.
 */
void snapshot_save(const struct snapshot *s, struct cache *cache, const char *url);

/* What was kept last; `ranges` is the caller's. 0; -ENOENT: nothing, or it is damaged; -ENOMEM. */
int snapshot_load(struct cache *cache, const char *url, struct snapshot *ret);

#endif
