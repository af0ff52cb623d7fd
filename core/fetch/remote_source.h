/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A remote carton as a source, for whoever opens it: reads wait for the network, and all that was
 * read is cached in memory. Once the carton is open, nothing waits here any more: its entries are
 * fetched (fetcher.h).
 */
#ifndef CARTON_FETCH_REMOTE_SOURCE_H
#define CARTON_FETCH_REMOTE_SOURCE_H

#include "base/source.h"
#include "cache/cache.h"
#include "fetch/fetcher.h"

/*
 * The carton at a URL that the user gave: its size and last bytes are known after one request. 0;
 * 1: it is there, but its server does not answer Range requests; else as fetch_run(). If `url` is a
 * mirror's, the carton is also at `source_url`, which is asked when the mirror fails; else that is
 * NULL. `hashed`: as in struct version. `options` outlive it.
 */
int remote_source_open(const struct fetch_options *options, const char *url, const char *source_url,
		       bool hashed, struct source **ret);

/* The same as it was when it was opened last, without its server. 0; -ENOENT: not kept; -ENOMEM. */
int remote_source_restore(struct cache *cache, const char *url, struct source **ret);

/* Seconds since 1970; INT64_MIN: not known. */
int64_t remote_source_mtime(const struct source *s);

/*
 * Does the server say that it has a content coding? Then either its ranges are of coded bytes, or
 * it is wrong.
 */
bool remote_source_is_coded(const struct source *s);

/*
 * The carton is open: the cached ranges are kept for remote_source_restore() (NULL: it is not),
 * then dropped.
 */
void remote_source_opened(struct source *s, struct cache *cache);

/* From now on it is fetched from here. 0; -EOPNOTSUPP: it was restored; -ENOMEM. */
int remote_source_refresh(struct source *s, const char *url);

/* Where all requests go, in this order; they live as long as `s`. 0: it was restored. */
size_t remote_source_places(struct source *s, struct fetch_place **ret);

/*
 * Copies [off, off + n) if it is cached, as the first of these URLs has sent it, and that has not
 * been found out.
 */
bool remote_source_cached(struct source *s, void *ret_buf, uint64_t n, uint64_t off);

#endif
