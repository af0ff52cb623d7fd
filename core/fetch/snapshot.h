/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What opening a remote carton reads of it (the end, the central directory, MANIFEST, LINKS,
 * symlinks), kept in the cache, so that the carton can be opened again without its server. Its files
 * are objects of the cache as any others.
 *
 * A snapshot is an object of the cache: "cfsnap01", le64 size of the carton, le64 its time, then the
 * held stretches (held.h). A note under the sha256 of "snapshot " and the URL, without its
 * signature (http/http.h), names the object.
 *
 * Threads: each call is on its own.
 */
#ifndef CARTON_FETCH_SNAPSHOT_H
#define CARTON_FETCH_SNAPSHOT_H

#include "cache/cache.h"
#include "fetch/held.h"

/* What is known of a carton at a URL. */
struct snapshot {
	uint64_t size;
	int64_t mtime; /* seconds since 1970 */
	struct held *held;
};

/*
 * Keeps it, in place of what was kept before. Best effort: more than MAX_SNAPSHOT bytes, or what the
 * cache has no room for, is not kept.
 */
void snapshot_save(const struct snapshot *s, struct cache *cache, const char *url);

/* What was kept last; `held` is the caller's. 0; -ENOENT: nothing, or it is damaged; -ENOMEM. */
int snapshot_load(struct cache *cache, const char *url, struct snapshot *ret);

#endif
