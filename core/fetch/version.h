/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all fetching shares: options, one version of a file at a URL, the way to it.
 *
 * Threads: any. A struct version is constant but for its flags.
 */
#ifndef CARTON_FETCH_VERSION_H
#define CARTON_FETCH_VERSION_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/digest.h"
#include "base/event.h"
#include "carton.h"
#include "fetch/server.h"
#include "http/http.h"

/* Shared by all fetches of a carton. Constant once made, but for `wait`. */
struct fetch_options {
	struct http *http;
	struct events *events;
	struct workers *workers;
	int64_t timeout_ms;
	unsigned connections;	   /* at once to one server, and so for one large file */
	uint64_t max_size;	   /* bytes of one file; 0: MAX_FETCHED, MAX_FETCHED_UNSAID */
	atomic_uint *extra;	   /* connections of all fetches now, besides one for each */
	_Atomic uint64_t *fetched; /* counts bytes that come, whatever for; or NULL */
	struct budget *budget;	   /* where it is short, there are no extra ones; or NULL */
	struct servers *servers;   /* the load of servers; NULL: not minded */
	struct cancel *cancel;	   /* fires when the carton is closed */
	/* servers that are not reached are waited for until the timeout, not just for seconds */
	atomic_bool wait;
	/* while `opener`, a thread, opens the carton: for fetch_show(); or NULL */
	carton_progress_fn *progress;
	void *progress_ctx;
	pthread_t opener;
};

/*
 * The way to a file whose URL redirects: the first answer shows where it leads (a redirect target),
 * and later requests begin there until one fails or the time in that URL is over. Then one request
 * goes to the first URL again, and those that come meanwhile wait for its answer.
 */
struct route {
	pthread_mutex_t lock; /* guards what follows */
	char *url;	      /* in place of the file's; or NULL */
	struct http_redirect *redirect;
	bool moves;		/* it has redirected */
	const void *pathfinder; /* the request that asks the first URL; NULL: none */
	struct queue queue;
};

/* One version of a file whose server answers Range requests. */
struct version {
	const char *url; /* for the log */
	uint64_t size;
	char etag[256];		/* strong, or "" */
	char last_modified[64]; /* used when there is no such ETag; or "" */
	bool one_of_several;	/* one of several: the caller says what is wrong with it */
	/*
	 * The last `end_n` bytes of the file; 0: they are not known. Some servers have several
	 * validators for one version, or refuse their own: then these bytes are fetched again, and
	 * compared (unsure.c).
	 */
	uint64_t end_n;
	uint8_t end_sha256[SHA256_SIZE];
	/*
	 * MANIFEST and all contents are compared with hashes, so that another validator alone is no
	 * reason to fail. This does not hold for the central directory before the last `end_n`
	 * bytes: it has no hash, and its requests may be answered from two versions. Then contents
	 * do not have their hashes, and reading them fails with EIO.
	 */
	bool hashed;
	/* requests have no condition any more: validators are compared with those of answers */
	atomic_bool unconditional;
	atomic_bool untrusted; /* validators are not compared at all */
	/* what was logged since the last right answer: the status of a wrong one; that none came */
	atomic_int logged_status;
	atomic_bool logged_once;
};

/*
 * Keeps what a response (to a HEAD, or 200 or 206 to a GET) says of the file. False: not enough to
 * read ranges of it.
 */
bool version_identify(const struct http_response *response, struct version *ret);

/* Do requests for it have a condition: a validator that the server compares? */
bool version_asks(const struct version *r);

/* Asks for [first, last] of that version only; without a URL and a trust. */
void version_request(const struct version *r, uint64_t first, uint64_t last,
		     struct http_request *ret);

/*
 * Is it a 206 for just these bytes of that version, or for enough of the first of them? 0;
 * VERSION_UNSURE: it has other validators, or is a 412; -ESTALE: it is another version, or the
 * server no longer sends ranges; or the error of the status. If the file has several URLs,
 * -EOPNOTSUPP: this server sends no ranges.
 */
#define VERSION_UNSURE 1
int version_check(struct version *r, const struct http_response *a, uint64_t first, uint64_t last);

/*
 * Logs a result of version_check(), once until there is a right answer; nothing of one of several
 * URLs. `a` NULL: there is no such answer, the end of the file is another one.
 */
void version_log(struct version *r, const struct http_response *a, int error);

/*
 * After VERSION_UNSURE: can the end of the file tell whether the version is the same? If the end is
 * the same, version_trust() keeps that; `same`: the answer with it had the validators, too.
 */
bool version_can_tell(const struct version *r, const struct http_response *a);
void version_trust(struct version *r, bool same);

/* Wrong bytes came: validators count again. */
void version_distrust(struct version *r);

/* Does the answer have the validators of the version? */
bool version_is_named(const struct version *r, const struct http_response *a);

void route_init(struct route *r);
void route_finish(struct route *r);

/*
 * For a request `who`: 0, with a reference to where it begins (NULL: at the first URL, which is
 * *ret_url, malloc'ed, if that is not NULL, else the file's). -EAGAIN: the slot is queued until
 * another request knows the way. -ENOMEM.
 */
int route_enter(struct route *r, const void *who, struct queue_slot *slot,
		struct http_redirect **ret, char **ret_url);

/* That request was answered well, and was led there (a reference, taken over; or NULL). */
void route_found(struct route *r, const void *who, struct http_redirect *redirect);

/* It has failed: where it began, if that was a redirect target, is left. */
void route_failed(struct route *r, const void *who, const struct http_redirect *began);

void route_give_up(struct route *r, struct queue_slot *slot);

/* From now on begins at this URL. 0 or -ENOMEM. */
int route_replace(struct route *r, const char *url);

#endif
