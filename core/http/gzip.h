/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gzip body of several members, one after the other (RFC 1952, 2.2), of which libcurl decodes the
 * first only.
 */
#ifndef CARTON_HTTP_GZIP_H
#define CARTON_HTTP_GZIP_H

#include "base/source.h"

/*
 * What `in` (taken over, also on failure) decodes to. 0 or -ENOMEM; reading gives -EBADMSG for what is
 * no gzip, is cut off, or has something else behind its last member; else as `in`. Holds 64 KiB.
 */
int http_gzip_stream(struct stream *in, struct stream **ret);

#endif
