/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens objects of the cache. No file there is trusted: all of it is hashed before anyone uses it.
 */
#ifndef CARTON_CACHE_READ_H
#define CARTON_CACHE_READ_H

#include "cache/cache.h"
#include "base/ingest.h"

/*
 * Opens and hashes the object of that name, with the size, tagger, cancel and progress of `how`. An
 * object with another size (unless that is UINT64_MAX) or other bytes, or that cannot be read, is
 * dropped (logged). 0 and references for the caller; -ENOENT: no object can be opened; -EBADMSG:
 * the object was dropped; -ECANCELED; -ENOMEM; -EMFILE. Any thread may call it.
 */
int cache_read(struct cache *cache, const uint8_t sha256[SHA256_SIZE], const struct ingest *how,
	       struct source **ret, struct ingested *ret_in);

/*
 * Hashes a file that may be that object, as cache_read(): 0, and the tags in *ret_in are the
 * caller's; -EBADMSG: it is not that object; -ECANCELED; -ENOMEM; -errno.
 */
int cache_check(struct source *source, const uint8_t sha256[SHA256_SIZE], const struct ingest *how,
		struct ingested *ret_in);

#endif
