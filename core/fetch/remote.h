/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all fetching shares: options, one version of a file at a URL, pauses between tries.
 *
 * Threads: any. A struct remote is constant but for its flags.
 */
#ifndef CARTON_FETCH_REMOTE_H
#define CARTON_FETCH_REMOTE_H

#include <stdatomic.h>

#include "base/event.h"
#include "fetch/route.h"
#include "http/http.h"

/* Shared by all fetches of a carton. Constant once made. */
struct remote_options {
	struct http *http;
	struct events *events;
	struct workers *workers;
	int64_t timeout_ms;
	unsigned connections;	 /* at once for one large file */
	atomic_uint *extra;	 /* connections of all fetches now, besides one for each */
	struct budget *budget;	 /* where it is short, there are no extra ones; or NULL */
	struct origins *origins; /* the load of servers; NULL: not minded */
	struct cancel *cancel;	 /* fires when the carton is closed */
};

/* One version of a file whose origin answers Range requests. */
struct remote {
	char *url;
	struct route *route; /* for requests; NULL: there is none yet */
	enum http_trust trust;
	uint64_t size;
	char etag[256];		/* strong, or "" */
	char last_modified[64]; /* used when there is no such ETag; or "" */
	bool is_mirror;		/* one of several: the caller says what is wrong with it */
	/* what was logged since the last right answer: the status of a wrong one; that none came */
	atomic_int logged_status;
	atomic_bool logged_once;
	/* the same file elsewhere, of the same size, asked when this one fails; or NULL */
	struct remote *other;
	atomic_bool gone; /* it has changed or was taken away: only the other is asked */
};

/*
 * Keeps what a response (to a HEAD, or 200 or 206 to a GET) says of the file. False: not enough to read
 * ranges of it.
 */
bool remote_identify(const struct http_response *response, struct remote *ret);

/* Asks for [first, last] of that version only. */
void remote_request(const struct remote *r, uint64_t first, uint64_t last,
		    struct http_request *ret);

/*
 * Is it a 206 for just these bytes of that version, or for enough of the first of them? 0; -ESTALE: another version, or no ranges any more;
 * or what the status means. A wrong status is logged once, until there is a right one. Of a mirror, nothing is
 * logged, and -EOPNOTSUPP means that there are no such ranges.
 */
int remote_check(struct remote *r, const struct http_response *a, uint64_t first, uint64_t last);

/* May it help to try again later? */
bool remote_passes(int error);

/*
 * The pause in ms before attempt number `attempt` (from 1): longer each time, never the same for all,
 * at least `retry_after_s`.
 */
int64_t remote_pause(unsigned attempt, long retry_after_s);

#endif
