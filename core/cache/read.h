/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening what the cache has. No file in it is trusted: all of one is hashed before anyone uses it.
 */
#ifndef CARTON_CACHE_READ_H
#define CARTON_CACHE_READ_H

#include "cache/cache.h"
#include "base/ingest.h"

/*
 * The object of that name, with what `how` (its size, tagger, cancel and progress) asks for of it.
 * One with another size (unless that is UINT64_MAX) or other bytes, or that cannot be read, is
 * dropped, which is logged. 0 and references for the caller; -ENOENT: there is none that can be
 * opened; -EBADMSG: it was dropped; -ECANCELED; -ENOMEM; -EMFILE. Any thread may call it.
 */
int cache_read(struct cache *cache, const uint8_t sha256[SHA256_SIZE], const struct ingest *how,
	       struct source **ret, struct ingested *ret_in);

/*
 * The bytes of a file that may be that object, with what `how` asks for: 0, and the tags in *ret_in
 * are the caller's; -EBADMSG: it is not, and the source is gone, as on every failure; -ECANCELED;
 * -ENOMEM; -errno.
 */
int cache_check(struct source *source, const uint8_t sha256[SHA256_SIZE], const struct ingest *how,
		struct ingested *ret_in);

#endif
