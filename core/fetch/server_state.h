/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What server.c, the load of one server, and servers.c, the table of all, know of a server. The
 * lock of the table guards all of it.
 */
#ifndef CARTON_FETCH_SERVER_STATE_H
#define CARTON_FETCH_SERVER_STATE_H

#include <pthread.h>

#include "fetch/server.h"

struct servers {
	pthread_mutex_t lock; /* guards all that is here and in the servers */
	struct server *list;
	unsigned n;
	unsigned most; /* connections to one at once */
};

/* Of so many answers, later ones counting more, so many refuse. */
struct refusals {
	unsigned of, n;
};

struct server {
	struct servers *all;
	struct server *next;
	unsigned refs;
	unsigned active;  /* requests under way, */
	unsigned asked;	  /* and those of them that have no answer yet */
	unsigned limit;	  /* of those under way; 0: none */
	unsigned good;	  /* right answers since the limit was changed */
	unsigned in_row;  /* pauses since it became bad */
	unsigned refused; /* in this incident; 0: there is none */
	unsigned limited; /* how often it got less in this incident */
	bool quick;	  /* it was away, and now gets more with each right answer */
	int error;	  /* why it is bad; 0: it is well */
	int64_t bad_ms;	  /* since when */

	struct refusals close, apart; /* while requests were so, see is_pace() */
	int64_t interval_us;
	int64_t next_us;	       /* no request before */
	int64_t pause_us;	       /* end of the last pause */
	int64_t refused_ms, served_ms; /* last */
	int64_t down_ms;	       /* a mirror that is not asked until then */
	bool unreached;		       /* which was logged */
	struct queue queue;
	char name[];
};

/* Logs how many requests the incident has cost, if there is one. Lock held. */
void server_end_incident(struct server *s);

#endif
