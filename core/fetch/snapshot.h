/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What opening a remote carton reads of it (the end, the central directory, MANIFEST, LINKS,
 * symlinks), kept in the cache, so that the carton can be opened again without its server. Its files
 * are objects of the cache as any others.
 *
 * A snapshot is an object of the cache: "cfsnap01", le64 size of the carton, le64 its time, then
 * (le64 offset, le64 length, bytes) as often as there were reads, in their order. A note under the
 * sha256 of "snapshot " and the URL says which object.
 */
#ifndef CARTON_FETCH_SNAPSHOT_H
#define CARTON_FETCH_SNAPSHOT_H

#include "cache/cache.h"
#include "base/source.h"

/*
 * A source that reads `inner` (a reference is taken) and remembers what was read, until
 * snapshot_save(). Until then one thread uses it. 0 or -ENOMEM.
 */
int snapshot_record(struct source *inner, int64_t mtime, struct source **ret);

/*
 * Keeps what `recorder`, from snapshot_record(), has read of the carton at `url`, in place of what was
 * kept before, and ends the recording. Best effort: more than MAX_SNAPSHOT bytes, or what the cache
 * has no room for, is not kept.
 */
void snapshot_save(struct source *recorder, struct cache *cache, const char *url);

/*
 * The carton at `url` as it was when it was last opened: reading what was not read then gives
 * -ENETUNREACH. `ret_mtime` is that of snapshot_record(). 0; -ENOENT: nothing was kept, or it is
 * damaged; -ENOMEM or -errno.
 */
int snapshot_open(struct cache *cache, const char *url, struct source **ret, int64_t *ret_mtime);

#endif
