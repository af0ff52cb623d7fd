/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of a fetch: for which bytes, when they may be sent, where they begin, what their
 * answers say of the server.
 *
 * A large file is cut into pieces for several connections.
 *
 * Bytes that are not contiguous with the start are lost when the fetch ends early. So pieces begin
 * small, and grow only as long as each takes a fraction of a second; and none is larger than its
 * share of what is left, so that all connections end at about the same time, unless it would mostly
 * be waited for. Pieces begin and end at multiples of their size, as caches on the way cut files.
 */
#include <stdlib.h>

#include "base/util.h"
#include "fetch/internal.h"

#define PIECE_MIN (256 * KIB)
#define PIECE_MAX (4 * MIB)
#define PIECE_QUICK_MS 250 /* a piece that takes less may be larger next time, */
#define PIECE_SLOW_MS 1000 /* one that takes more smaller */
#define PIECE_WAIT 2	   /* none takes less than so many times the wait for its first byte */
/* up to here it is one piece */
#define SHORT (8 * MIB)
/*
 * how many pieces of PIECE_MAX, besides one for each connection, may be ahead of what is contiguous
 */
#define AHEAD 2

/* ---- pieces ---- */

void pieces_begin(struct pieces *p, uint64_t off, uint64_t end, unsigned connections, size_t size)
{
	bool one = end - off <= SHORT;

	*p = (struct pieces){ .next = off, .end = end, .size = MAX(size, PIECE_FIRST) };
	p->max = p->want = one ? 1 : MIN(MAX(connections, 1U), MAX_CONNECTIONS);
	if (one)
		p->size = SHORT;
}

static struct piece cut(const struct pieces *p)
{
	uint64_t left = p->end - p->next, unit = PIECE_MIN, end;
	uint64_t most = MIN((uint64_t)p->size, MAX(left / p->max, MAX(p->least, PIECE_MIN)));

	if (p->max == 1 && left <= p->size)
		return (struct piece){ p->next, p->end, false };
	/* only the first one may begin anywhere, as where an earlier fetch ended */
	while (2 * unit <= most && (p->next % PIECE_MIN || p->next % (2 * unit) == 0))
		unit *= 2;
	end = (p->next / unit + 1) * unit;
	/* what is left behind it is not worth a request */
	return (struct piece){ p->next, end + PIECE_MIN < p->end ? end : p->end, false };
}

bool pieces_follow(struct pieces *p, uint64_t off, struct piece *ret)
{
	if (off != p->next || p->next == p->end)
		return false;
	*ret = cut(p);
	p->next = ret->end;
	return true;
}

bool pieces_take(struct pieces *p, uint64_t arrived, struct piece *ret)
{
	if (p->n_returned > 0) {
		*ret = p->returned[--p->n_returned];
		return true;
	}
	if (p->next > arrived && p->next - arrived > (p->max + AHEAD) * PIECE_MAX)
		return false;
	return pieces_follow(p, p->next, ret);
}

void pieces_return(struct pieces *p, struct piece left)
{
	if (left.off < left.end)
		p->returned[p->n_returned++] = left;
}

void pieces_cut(struct pieces *p, struct piece *piece, uint64_t end)
{
	if (end >= piece->end || p->n_returned >= MAX_CONNECTIONS)
		return;
	pieces_return(p, (struct piece){ end, piece->end, piece->again });
	piece->end = end;
}

void pieces_learn(struct pieces *p, uint64_t n, int64_t ms, int64_t wait_ms)
{
	p->want = MIN(p->want + 1, p->max);
	p->least = MIN(PIECE_WAIT * n * (uint64_t)wait_ms / (uint64_t)MAX(ms - wait_ms, 1),
		       PIECE_MAX);
	/* a smaller one, at the end or of an earlier size, says nothing new */
	if (n != p->size)
		return;
	if (ms < PIECE_QUICK_MS)
		p->size = (size_t)MIN(2 * n, PIECE_MAX);
	else if (ms > PIECE_SLOW_MS)
		p->size = (size_t)MAX(n / 2, PIECE_MIN);
}

/* ---- requests ---- */

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
	server_give_up(x->waits_for, &x->at_server);
	server_unref(x->waits_for);
	x->waits_for = NULL;
	if (x->u)
		route_give_up(&x->u->place->route, &x->at_route);
	x->slot_ms = 0;
}

bool conn_is_away(const struct fetcher *x)
{
	int64_t ms;

	return server_error(x->u->at, &ms) != 0;
}

int conn_waits_why(const struct fetcher *x)
{
	int64_t ms;
	int error = server_error(x->waits_for, &ms);

	return error ? error : -EBUSY;
}

/* Its slot at the server of `url`; the fetch may have waited at another server before. */
static int enter_server(struct fetcher *x, struct conn *c, const char *url)
{
	const struct fetch_options *options = x->f.options;
	struct server *o = server_get(options->servers, url);
	int64_t served;
	int r;

	c->first = o;
	o = url_server(x->u, o);
	served = server_served(o);
	if (o != x->waits_for) {
		server_give_up(x->waits_for, &x->at_server);
		server_unref(x->waits_for);
		x->waits_for = server_ref(o);
	}
	/* its time begins when its turn has come, at a server that serves others */
	if (x->slot_ms && served && !x->at_server.entered && !x->f.deadline_ms)
		x->deadline_ms = MAX(x->deadline_ms, served + options->timeout_ms);
	x->at_server.patience_ms = url_patience(x);
	x->at_server.elsewhere = !url_is_last(x);
	x->at_server.background = conns_active(x) > 0 ||
				  (x->f.background && x->f.background(x->f.arrived_ctx));
	r = server_enter(o, &x->at_server, x->deadline_ms, &x->slot_ms);
	if (r == 0)
		c->server = server_ref(o);
	c->asking = r == 0;
	return r;
}

static void heard(struct conn *c)
{
	if (c->asking)
		server_heard(c->server);
	c->asking = false;
}

int conn_open(struct fetcher *x, struct conn *c, struct http_request *q)
{
	char *url = NULL;
	int r = route_enter(&x->u->place->route, c, &x->at_route, &c->redirect, &url);

	if (r < 0) {
		x->slot_ms = INT64_MAX;
		conn_close(x, c);
		return r;
	}
	q->url = url ? url : x->u->url;
	q->trust = x->u->place->trust;
	q->accept = x->f.accept;
	q->redirect = c->redirect;
	c->answered = false;
	c->began_ms = now_ms();
	c->size = c->left.end - c->left.off;
	r = enter_server(x, c, c->redirect ? http_redirect_url(c->redirect) : q->url);
	if (r == 0) {
		/* the server's time to answer begins here */
		if (x->slot_ms)
			x->try_deadline_ms = url_deadline(x);
		x->slot_ms = 0;
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
	q->url = x->u->url;
	q->trust = x->u->place->trust;
	return http_start_request(x->f.options->http, q, wake, x, &c->stream);
}

/*
 * Another server may be bad than the one that is asked: where that redirects to, or where it has a
 * token fetched. What it does so is a good answer.
 */
static void tell_server(struct fetcher *x, struct conn *c, const struct http_response *a, int error)
{
	const char *from = c->redirect ? http_redirect_url(c->redirect) : x->u->url;
	char *to = http_answered_by(c->stream);
	struct server *o = to ? server_get(x->f.options->servers, to) : server_ref(c->first);

	if (o != c->first)
		server_answered(c->first, from, 200, 0);
	if (error < 0)
		server_failed(o, error);
	else
		server_answered(o, to ? to : from, a->status, a->retry_after_s);
	server_unref(x->u->at);
	/* a redirect target is left: the next request may be led elsewhere */
	x->u->at = c->redirect ? NULL : server_ref(o);
	server_unref(o);
	free(to);
}

void conn_answered(struct fetcher *x, struct conn *c, const struct http_response *a, int error)
{
	struct http_redirect *redirect;

	tell_server(x, c, a, error);
	heard(c);
	/* a redirect is not kept either if its target answers with no part of the file */
	if (error < 0 || http_status_errno(a->status) < 0 || (c->exact && a->status != 206)) {
		route_failed(&x->u->place->route, c, c->redirect);
		return;
	}
	/* it may lead to where only a HEAD may go */
	if (x->head)
		return;
	redirect = http_redirect_of(c->stream);
	if (redirect || !c->redirect)
		route_found(&x->u->place->route, c, redirect);
}

bool conn_lost_way(const struct conn *c, int status)
{
	return c->redirect && (http_status_errno(status) < 0 || (c->exact && status != 206));
}

void conn_close(struct fetcher *x, struct conn *c)
{
	if (x->u)
		route_failed(&x->u->place->route, c, NULL);
	http_close(c->stream);
	c->stream = NULL;
	http_redirect_unref(c->redirect);
	c->redirect = NULL;
	heard(c);
	if (c->server) {
		server_leave(c->server, c->answered);
		server_unref(c->server);
	}
	server_unref(c->first);
	c->server = c->first = NULL;
	if (c->extra)
		atomic_fetch_sub(x->f.options->extra, 1);
	c->extra = false;
}
