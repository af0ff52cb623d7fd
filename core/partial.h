/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Going on with an object that an earlier fill has left in the cache as a part.
 */
#ifndef CARTON_PARTIAL_H
#define CARTON_PARTIAL_H

#include "cache.h"
#include "source.h"

/*
 * The first `have` bytes of the fill's file, then `rest` (taken over, also on failure), as one
 * stream. As it is read, reserves space, and notes how far the file is: whoever reads must have
 * written to the file what it got before it asks for more. `fill` may be NULL: then it is just
 * `rest`. 0, -ENOMEM or -errno; reading also gives -ENOSPC.
 */
int partial_stream(struct cache_fill *fill, uint64_t have, struct stream *rest,
		   struct stream **ret);

#endif
