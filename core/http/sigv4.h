/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AWS Signature Version 4 of a request without a body, by the rules of S3: the path is signed as it
 * is sent. Any thread.
 */
#ifndef CARTON_HTTP_SIGV4_H
#define CARTON_HTTP_SIGV4_H

#include "http/aws.h"
#include "http/policy.h"

struct buf;

struct sigv4 {
	const struct aws_keys *keys;
	const char *region;
	const char *method;
	const struct http_target *target;
	bool requester_pays; /* send x-amz-request-payer */
	int64_t when;	     /* in seconds since 1970, by the server's clock */
};

/*
 * Returns the headers to send besides Host, one on each line without CR: x-amz-date,
 * x-amz-content-sha256, x-amz-request-payer if the requester pays, x-amz-security-token if there is
 * a token, Authorization. The caller owns *ret and wipes it. 0, -ENOMEM, -EIO; -EFBIG: of no length
 * that can be sent.
 */
int sigv4_headers(const struct sigv4 *s, struct buf *ret);

#endif
