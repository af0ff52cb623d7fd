/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A remote carton whose server does not answer Range requests: downloaded once, as a whole, into
 * the cache, and a local file from then on. For the thread that opens it, which waits.
 */
#ifndef CARTON_FETCH_DOWNLOAD_H
#define CARTON_FETCH_DOWNLOAD_H

#include "base/source.h"
#include "cache/cache.h"
#include "fetch/version.h"

/*
 * The file at `url` as a local source, and when it was last modified (INT64_MIN: not said). An
 * earlier download is used again when the server still names the same version of it (an ETag or a
 * Last-Modified) and its bytes are intact; a partial one is resumed where the server allows it (a
 * Range under a strong ETag). Several processes download it once. `cache` may be NULL: then into an
 * unnamed file. 0, or -errno as fetch_run(), logged.
 */
int download_carton(const struct fetch_options *options, struct cache *cache, const char *url,
		    struct source **ret, int64_t *ret_mtime);

/* What was downloaded last from `url`, without asking its server. 0; -ENOENT; -ENOMEM. */
int download_kept(struct cache *cache, const char *url, struct source **ret);

#endif
