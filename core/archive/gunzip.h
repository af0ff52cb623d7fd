/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes gzip data that may have several members, one after the other (RFC 1952, 2.2), as HTTP
 * bodies and layers of artifacts may; libcurl decodes only the first member. Zeros behind the last
 * one are padding, of a tape for example, as for gzip(1).
 *
 * Threads: a decoder is used by one thread at a time.
 */
#ifndef CARTON_ARCHIVE_GUNZIP_H
#define CARTON_ARCHIVE_GUNZIP_H

#include <stddef.h>

struct gunzip;

/* Receives decoded bytes. 0, or -errno to stop. */
typedef int gunzip_put_fn(void *ctx, const void *data, size_t n);

int gunzip_new(gunzip_put_fn *put, void *ctx, struct gunzip **ret);

/*
 * Decodes the next coded bytes. 0; -EBADMSG: not gzip, or other bytes than zeros follow its last
 * member; or the error of `put`.
 */
int gunzip_feed(struct gunzip *g, const void *data, size_t n);

/* After all bytes were fed: 0, or -EBADMSG if the last member is incomplete. */
int gunzip_end(const struct gunzip *g);

void gunzip_free(struct gunzip *g); /* NULL-safe */

#endif
