/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A remote carton whose server does not answer Range requests: downloaded once, as a whole, into the
 * cache, and a local file from then on.
 */
#ifndef CARTON_DOWNLOAD_H
#define CARTON_DOWNLOAD_H

#include "cache.h"
#include "remote.h"

/*
 * The file at `url` as a local source, and when it was last modified (INT64_MIN: not said). One that
 * was downloaded before is used again when the server still names the same version of it (an ETag or
 * a Last-Modified) and its bytes are intact. `cache` may be NULL: then into a temporary file. 0, or
 * -errno as remote.h, logged.
 */
int download_carton(const struct remote_options *options, struct cache *cache, const char *url,
		    struct source **ret, int64_t *ret_mtime);

#endif
