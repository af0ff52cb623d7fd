/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3://BUCKET/KEY: requests to an object store, signed by libcurl (AWS_SIGV4).
 *
 * The keys are loaded by a process that is forked before this one is confined: it may read ~/.aws
 * and run credential_process whenever keys are about to expire or were refused. It ends with us.
 */
#ifndef CARTON_HTTP_S3_H
#define CARTON_HTTP_S3_H

#include "http/aws.h"
#include "http/scheme.h"

extern const struct scheme s3_scheme;

/* The http(s) URL of an s3:// URL, malloc'ed: path style with an endpoint, else virtual host. */
char *s3_url_at(const struct aws_place *place, const char *url);

#endif
