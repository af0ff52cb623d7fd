/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes gzip of several members, one after the other (RFC 1952, 2.2): a body, of which libcurl
 * decodes the first only, or a layer of an artifact. One thread at a time uses a decoder.
 */
#ifndef CARTON_ARCHIVE_GUNZIP_H
#define CARTON_ARCHIVE_GUNZIP_H

#include <stddef.h>

struct gunzip;

/* Takes decoded bytes: 0 or -errno. */
typedef int gunzip_put_fn(void *ctx, const void *data, size_t n);

int gunzip_new(gunzip_put_fn *put, void *ctx, struct gunzip **ret);

/*
 * Decodes the next coded bytes. 0; -EBADMSG: not gzip, or bytes follow its last member; or the
 * error of `put`.
 */
int gunzip_feed(struct gunzip *g, const void *data, size_t n);

/* Checks the end, after all bytes were fed: 0, or -EBADMSG when they were cut off. */
int gunzip_end(const struct gunzip *g);

void gunzip_free(struct gunzip *g); /* NULL-safe */

#endif
