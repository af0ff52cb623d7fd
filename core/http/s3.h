/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3://BUCKET/KEY: requests to an object store, signed by libcurl (AWS_SIGV4).
 *
 * The keys are loaded by a process that is forked before this one is confined: it may read ~/.aws
 * and run credential_process whenever keys are about to expire or were refused. It ends with us.
 *
 * Threads: one at a time.
 */
#ifndef CARTON_HTTP_S3_H
#define CARTON_HTTP_S3_H

#include "http/aws.h"

struct s3;

/* Is it s3://BUCKET/KEY? */
bool s3_is_url(const char *url);

/* The fault of such a URL, or NULL. */
const char *s3_url_fault(const char *url);

/* Loads the keys; may take as long as credential_process does. 0, or -errno, logged. */
int s3_new(struct s3 **ret);
void s3_free(struct s3 *s); /* NULL-safe */

/* The http(s) URL of an s3:// URL, malloc'ed: path style with an endpoint, else virtual host. */
char *s3_http_url(const struct s3 *s, const char *url);
char *s3_url_at(const struct aws_place *place, const char *url);

/* Are they of the same bucket? */
bool s3_same_bucket(const char *a, const char *b);

const char *s3_region(const struct s3 *s);

/* The keys to sign with now; never waits: keys that nearly expire are replaced by later calls. */
const struct aws_keys *s3_keys(struct s3 *s);

/* The server has refused them: new ones are loaded, at most every ten seconds. */
void s3_refused(struct s3 *s);

#endif
