/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of a fetch: when they may be sent, where they begin, what their answers say of the server. */
#include <stdlib.h>

#include "base/util.h"
#include "fetch/internal.h"

/* Called by http on its thread. */
static void wake(void *fetcher)
{
	task_wake(&((struct fetcher *)fetcher)->task);
}

unsigned conns_active(const struct fetcher *x)
{
	unsigned n = 0;

	for (size_t i = 0; i < MAX_CONNECTIONS; i++)
		n += x->conns[i].stream != NULL;
	return n;
}

void conn_give_up(struct fetcher *x)
{
	origin_give_up(x->waits_for, &x->at_origin);
	origin_unref(x->waits_for);
	x->waits_for = NULL;
	if (x->m)
		route_give_up(x->m->route, &x->at_route);
	x->turn_ms = 0;
}

/* Its turn at the origin of `url`; it may wait for another origin than before. */
static int enter_origin(struct fetcher *x, struct conn *c, const char *url)
{
	struct origin *o = origin_get(x->f.options->origins, url);
	int64_t served = origin_served(o);
	int r;

	if (o != x->waits_for) {
		origin_give_up(x->waits_for, &x->at_origin);
		origin_unref(x->waits_for);
		x->waits_for = origin_ref(o);
	}
	/* who waits for its turn at a server that serves others does not time out */
	if (x->turn_ms && served && !x->f.deadline_ms)
		x->deadline_ms = MAX(x->deadline_ms, served + x->f.options->timeout_ms);
	r = origin_enter(o, &x->at_origin, x->deadline_ms, &x->turn_ms);
	if (r == 0)
		c->origin = o;
	else
		origin_unref(o);
	return r;
}

int conn_open(struct fetcher *x, struct conn *c, struct http_request *q)
{
	char *url = NULL;
	int r = route_enter(x->m->route, c, &x->at_route, &c->landing, &url);

	if (r < 0) {
		x->turn_ms = INT64_MAX;
		conn_close(x, c);
		return r;
	}
	q->url = url ? url : x->m->url;
	q->trust = x->m->trust;
	q->landing = c->landing;
	c->answered = false;
	c->began_ms = now_ms();
	c->size = c->left.end - c->left.off;
	r = enter_origin(x, c, c->landing ? http_landing_url(c->landing) : q->url);
	if (r == 0) {
		/* the server's time to answer begins here */
		if (x->turn_ms)
			x->try_deadline_ms = mirror_deadline(x);
		x->turn_ms = 0;
		r = http_start_request(x->f.options->http, q, wake, x, &c->stream);
	}
	free(url);
	if (r < 0)
		conn_close(x, c);
	return r;
}

int conn_ask_again(struct fetcher *x, struct conn *c, struct http_request *q)
{
	http_close(c->stream);
	c->stream = NULL;
	q->url = x->m->url;
	q->trust = x->m->trust;
	return http_start_request(x->f.options->http, q, wake, x, &c->stream);
}

void conn_answered(struct fetcher *x, struct conn *c, const struct http_response *a, int error)
{
	struct http_landing *landing;

	if (error < 0) {
		route_failed(x->m->route, c, c->landing);
		return;
	}
	origin_answered(c->origin, c->landing ? http_landing_url(c->landing) : x->m->url, a->status,
			a->retry_after_s);
	if (http_status_errno(a->status) < 0 || conn_lost_way(c, a->status)) {
		route_failed(x->m->route, c, c->landing);
		return;
	}
	landing = http_landing(c->stream);
	if (landing || !c->landing)
		route_found(x->m->route, c, landing);
}

bool conn_lost_way(const struct conn *c, int status)
{
	return c->landing && (http_status_errno(status) < 0 || (c->exact && status != 206));
}

void conn_close(struct fetcher *x, struct conn *c)
{
	if (x->m)
		route_failed(x->m->route, c, NULL);
	http_close(c->stream);
	c->stream = NULL;
	http_landing_unref(c->landing);
	c->landing = NULL;
	if (c->origin) {
		origin_leave(c->origin);
		origin_unref(c->origin);
	}
	c->origin = NULL;
	if (c->extra)
		atomic_fetch_sub(x->f.options->extra, 1);
	c->extra = false;
}
