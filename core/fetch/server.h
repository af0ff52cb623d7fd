/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load of servers, as far as it is known. A server is the scheme, host and port of a URL.
 *
 * A task enters the server before it sends a request, and leaves it when the request is over. A
 * server that cannot be reached, or answers 429 or 502 to 504, is bad: all requests to it share one
 * pause, then one of them asks, and so on, until there is an answer. Then it is well, and all may
 * go on. Background requests, which no reader waits for, also wait while the server has as many
 * connections as the user allows, whatever is fetched through them (each request has its own,
 * with HTTP/2, too), and let all others go first. Tasks that wait are served in the order of
 * asking, and keep no thread.
 *
 * One that refuses after it has served asks for less: from then on requests are fewer at once
 * (half) and further apart (twice the time). Both grow back little by little with right answers; at
 * once where it turns out that it was away, unless it refuses again. Where it refuses as large a
 * share of requests that are far apart, they come closer again (half the time).
 *
 * The first refusal of an incident is logged, and at its end how many there were.
 *
 * Threads: any. Functions take NULL servers.
 */
#ifndef CARTON_FETCH_SERVER_H
#define CARTON_FETCH_SERVER_H

#include "fetch/queue.h"

struct servers;
struct server;

/* `most`: how many connections one server gets at once. 0 or -ENOMEM. */
int servers_new(unsigned most, struct servers **ret);

/* Logs the ends of incidents. All references are given back by then. NULL-safe. */
void servers_free(struct servers *all);

/* Writes the scheme, host and port of a URL, without userinfo. */
#define SERVER_NAME 512
void server_name(const char *url, char ret[SERVER_NAME]);

/* A reference to the server of a URL; NULL: `all` is NULL, or out of memory. */
struct server *server_get(struct servers *all, const char *url);
struct server *server_ref(struct server *s);
void server_unref(struct server *s);

/*
 * 0: a request may be sent; then server_heard() and server_leave() are called once each. -EAGAIN:
 * the slot is queued, and the task asks again when it is woken, and at *ret_when_ms. Else why the
 * server is bad: longer than `deadline_ms`, or than the slot's patience. (Who comes then for the
 * first time may try all the same, one at a time.)
 */
int server_enter(struct server *s, struct queue_slot *slot, int64_t deadline_ms,
		 int64_t *ret_when_ms);
void server_heard(struct server *s);		  /* there is an answer, or none will come */
void server_leave(struct server *s, bool served); /* and has sent bytes until now */

/* The slot is not wanted any more. May be called at any time. */
void server_give_up(struct server *s, struct queue_slot *slot);

/* The server has answered so. The URL is for the log. */
void server_answered(struct server *s, const char *url, int status, long retry_after_s);

/* There was no answer: why. */
void server_failed(struct server *s, int error);

/* Why it is bad, and for how many ms it has been; 0: it is well. */
int server_error(struct server *s, int64_t *ret_ms);

/* A mirror there could not be reached: for a while it counts as paused. Logged once. */
void server_unreached(struct servers *all, const char *url);

/* How long at least no request may be sent, in ms; 0: now. */
int64_t server_paused(struct server *s);

/*
 * A reader waits for what was a background request: all tasks that wait for a server look at
 * theirs again. NULL-safe.
 */
void servers_look_again(struct servers *all);

/* When it last gave a right answer, or a part of one, in now_ms(); 0: never. */
int64_t server_served(struct server *s);

/*
 * The pause in ms before attempt number `attempt` (from 1): longer each time, never the same for
 * all, at least `retry_after_s`.
 */
int64_t server_pause(unsigned attempt, long retry_after_s);

#endif
