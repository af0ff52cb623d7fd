/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measurements of servers, as requests for content see them: the time to an answer, and the
 * bytes a second. A server is the scheme, host and port of a URL, as in fetch/server.h; servers
 * over RATES_MAX share one measurement.
 *
 * Threads: any. The fields of struct server_rates are read without its lock.
 */
#ifndef CARTON_CONTENT_RATES_H
#define CARTON_CONTENT_RATES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define RATES_MAX 64

struct server_rates {
	pthread_mutex_t lock; /* of those that change it */
	/* the shortest time to an answer lately, bytes a second, and how often that was measured */
	_Atomic uint64_t answer_us, rate;
	atomic_uint rates;
	atomic_uint busy, connections; /* requests that are under way; the most at once */
	uint64_t slower;	       /* answers since the shortest */
	uint64_t since_us, came; /* when bytes came first that are not measured; those since */
};

/* The servers of a carton. */
struct rates {
	pthread_mutex_t lock;
	struct rated *list;
	size_t n;
	struct server_rates others;
};

void rates_init(struct rates *r);
void rates_finish(struct rates *r);

/* Returns the rates of the server of a URL (NULL: not known), which live as long as `r`. */
struct server_rates *rates_of(struct rates *r, const char *url);

void server_rates_init(struct server_rates *s);
void server_rates_finish(struct server_rates *s);

/* A request begins, and has ended. */
void rates_began(struct server_rates *s);
void rates_ended(struct server_rates *s);

/* Bytes have come. Times are of CLOCK_MONOTONIC, in microseconds. */
void rates_came(struct server_rates *s, uint64_t bytes, uint64_t now_us);

/* A request has its first bytes, after that time. */
void rates_answered(struct server_rates *s, uint64_t us);

#endif
