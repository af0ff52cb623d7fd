/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file at a URL whose origin answers Range requests, held to one version of it.
 *
 * Every answer must be a 206 for just the bytes asked for, of the size and with the validator
 * (strong ETag, else Last-Modified) that the file had when it was opened; anything else is -ESTALE.
 * What fails on the way is tried again, from where it broke off, with growing pauses, until
 * `timeout_ms` have gone by without a single byte.
 */
#ifndef CARTON_FETCH_REMOTE_H
#define CARTON_FETCH_REMOTE_H

#include <stdatomic.h>

#include "http/blocking.h"
#include "base/source.h"

/* What all remote access of a carton shares. Constant once made. */
struct remote_options {
	struct http *http;
	int64_t timeout_ms;
	unsigned connections;	     /* Range requests at once for one large stretch */
	const atomic_bool *stopping; /* true once nothing is wanted any more */
	atomic_uint *range_threads;  /* how many there are, for all stretches together */
};

struct remote {
	const struct remote_options *options;
	char *url;
	enum http_trust trust;
	uint64_t size;
	char etag[256];		/* strong, or "" */
	char last_modified[64]; /* used when there is no such ETag; or "" */
	/* what was logged since the last right answer: a wrong one's status; that there was none */
	atomic_int told_status;
	atomic_bool told;
};

/*
 * Keeps what a response (to a HEAD, or 200 or 206 to a GET) says of the file. False: it does not say
 * enough to read ranges of it.
 */
bool remote_identify(const struct http_response *response, struct remote *ret);

/*
 * Bytes [off, off+n): 0, or -errno as http.h, -ESTALE, -ETIMEDOUT. A status that is none of a right
 * answer is logged once, until there is a right one. `cancel` may be NULL.
 */
int remote_pread(struct remote *r, void *ret_buf, size_t n, uint64_t off,
		 struct http_cancel *cancel);

/* The same; `arrived` is told of each so many more bytes of ret_buf, in order. */
typedef void remote_arrived_fn(void *ctx, size_t n);
int remote_read(struct remote *r, void *ret_buf, size_t n, uint64_t off, struct http_cancel *cancel,
		remote_arrived_fn *arrived, void *ctx);

/*
 * The same as a stream, over several connections when it is long: what is on its way is about a
 * second's worth, or 512 KiB for each connection where that is more. `r` must live as long.
 */
int remote_stream(struct remote *r, uint64_t off, uint64_t n, struct stream **ret);

/*
 * Waits before attempt number `attempt` (from 1), a little longer each time and never the same for
 * all, at least `retry_after_s`. 0; -ETIMEDOUT when the deadline (now_ms) would pass; -ECANCELED
 * when `stop` (may be NULL), asked often, says so.
 */
int remote_backoff(unsigned attempt, long retry_after_s, int64_t deadline_ms, bool (*stop)(void *),
		   void *ctx);

/* May it help to try again later? */
bool remote_passes(int error);

/*
 * The deadline of who waits (now_ms), after `n` more bytes came: a little later, and not more than the
 * timeout away. What comes at 1 KiB/s or faster never meets it; a byte now and then does not help.
 */
int64_t remote_deadline(const struct remote_options *options, int64_t deadline_ms, size_t n);

/*
 * The carton at a URL that the user gave, as a source: its size and last bytes are known after one
 * request. 0; -ENOTSUP: it is there, but its origin does not answer Range requests; else as http.h.
 */
int remote_source_open(const struct remote_options *options, const char *url, struct source **ret);

/* An HTTP date in seconds since 1970; INT64_MIN when it is none. */
int64_t remote_parse_date(const char *date);

/* The time of its last modification, seconds since 1970; INT64_MIN: not known. */
int64_t remote_source_mtime(const struct source *s);

#endif
