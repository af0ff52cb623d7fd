/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Going on with an object that an earlier fill has left in the cache as a part.
 */
#ifndef CARTON_FETCH_PARTIAL_H
#define CARTON_FETCH_PARTIAL_H

#include "cache/cache.h"
#include "base/source.h"

/*
 * The first `have` bytes of the fill's file, then `rest` (taken over, also on failure), as one
 * stream. As it is read, reserves space, and notes how far the file is: whoever reads must have
 * written to the file what it got before it asks for more. `fill` may be NULL: then it is just
 * `rest`. 0, -ENOMEM or -errno; reading also gives -ENOSPC.
 */
int partial_stream(struct cache_fill *fill, uint64_t have, struct stream *rest,
		   struct stream **ret);

/*
 * `in` (taken over, also on failure) as a stream that is to be written to the unnamed file `fd`, and
 * must not fill its file system. `size` is how many bytes come at most, when that is known: they
 * must all fit. UINT64_MAX: then it fails with -ENOSPC where less than the cache's share would be
 * left free. And with -ENOSPC after `most` bytes. 0, -ENOSPC or -ENOMEM.
 */
int partial_bound(int fd, uint64_t most, uint64_t size, struct stream *in, struct stream **ret);

/* Has the file system of `fd` room for `n` more bytes, and is a twentieth of it, or `keep`, left? */
bool partial_room(int fd, uint64_t n, uint64_t keep);

#endif
