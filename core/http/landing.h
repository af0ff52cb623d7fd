/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where redirects have led, so that the next request can begin there; and what is signed in a URL.
 *
 * Object stores and hubs redirect to URLs that are good for a while: their query has a signature and
 * a time. A request that begins at a landing obeys the rules of the redirects that led there: the same
 * addresses are allowed, and no credentials are sent to another origin.
 *
 * Threads: any; a landing is constant.
 */
#ifndef CARTON_HTTP_LANDING_H
#define CARTON_HTTP_LANDING_H

#include "http/http.h"

/* Where the redirects of a stream that has been answered have led: a reference; NULL: none, or ENOMEM. */
struct http_landing *http_landing(struct http_stream *stream);
struct http_landing *http_landing_ref(struct http_landing *l); /* both NULL-safe */
void http_landing_unref(struct http_landing *l);

const char *http_landing_url(const struct http_landing *l);

/* Is the time in its URL over, or nearly? False if there is none. */
bool http_landing_expired(const struct http_landing *l);

/*
 * When a signed URL stops to be valid, in seconds since 1970 (X-Amz-Date and X-Amz-Expires, the same of
 * X-Goog, Expires, Azure's se); 0: it does not say.
 */
int64_t http_url_expiry(const char *url);

/* 20250131T235959Z, or with - and : (perhaps as %3A), in seconds since 1970; 0: it is no such time. */
int64_t http_parse_time(const char *text);

/*
 * `url` without the parameters of known signatures, if it is signed so: a name for what it leads to. NULL: out of
 * memory.
 */
char *http_url_unsigned(const char *url);

#endif
