/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way to a file whose URL redirects: the first answer shows where it leads (http/http.h), and
 * later requests begin there until one fails or the time in that URL is over. Then one request goes to
 * the first URL again, and those that come meanwhile wait for its answer.
 *
 * Threads: any.
 */
#ifndef CARTON_FETCH_ROUTE_H
#define CARTON_FETCH_ROUTE_H

#include <pthread.h>

#include "fetch/origin.h"
#include "http/http.h"

struct route {
	pthread_mutex_t lock; /* guards what follows */
	char *url;	      /* in place of the file's; or NULL */
	struct http_landing *landing;
	bool moves;		/* it has redirected */
	const void *pathfinder; /* the request that asks the first URL; NULL: none */
	struct queue queue;
};

void route_init(struct route *r);
void route_destroy(struct route *r);

/*
 * For a request `who`: 0, with a reference to where it begins (NULL: at the first URL, which is
 * *ret_url, malloc'ed, if that is not NULL, else the file's). -EAGAIN: the turn is queued until another
 * request knows the way. -ENOMEM.
 */
int route_enter(struct route *r, const void *who, struct turn *t, struct http_landing **ret,
		char **ret_url);

/* That request was answered well, and was led there (a reference, taken over; or NULL). */
void route_found(struct route *r, const void *who, struct http_landing *landing);

/* It has failed: where it began, if that was a landing, is left. */
void route_failed(struct route *r, const void *who, const struct http_landing *began);

void route_give_up(struct route *r, struct turn *t);

/* From now on begins at this URL. 0 or -ENOMEM. */
int route_replace(struct route *r, const char *url);

#endif
