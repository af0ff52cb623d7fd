/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of a fetch: for which bytes, when they may be sent, where they begin, what their
 * answers say of the server; and those that ask for a size.
 *
 * A large file is cut into pieces for several connections.
 *
 * Bytes that are not contiguous with the start are lost when the fetch ends early. So pieces begin
 * small, and grow only as long as each takes a fraction of a second; and none is larger than its
 * share of what is left, so that all connections end at about the same time. Pieces begin and end
 * at multiples of their size, as caches on the way cut files.
 */
#include <stdlib.h>

#include "base/util.h"
#include "fetch/internal.h"

#define PIECE_MIN (256 * KIB)
#define PIECE_MAX (4 * MIB)
#define PIECE_QUICK_MS 250 /* a piece that takes less may be larger next time, */
#define PIECE_SLOW_MS 1000 /* one that takes more smaller */
/* up to here it is one piece */
#define SHORT (8 * MIB)
/*
 * how many pieces of PIECE_MAX, besides one for each connection, may be ahead of what is contiguous
 */
#define AHEAD 2

/* ---- pieces ---- */

void pieces_begin(struct pieces *p, uint64_t off, uint64_t end, unsigned connections)
{
	bool one = end - off <= SHORT;

	*p = (struct pieces){ .next = off, .end = end, .size = PIECE_FIRST };
	p->max = p->want = one ? 1 : MIN(MAX(connections, 1U), MAX_CONNECTIONS);
	if (one)
		p->size = SHORT;
}

static struct piece cut(const struct pieces *p)
{
	uint64_t left = p->end - p->next, unit = PIECE_MIN;
	uint64_t most = MIN((uint64_t)p->size, MAX(left / p->max, PIECE_MIN));

	if (p->max == 1 && left <= p->size)
		return (struct piece){ p->next, p->end };
	while (2 * unit <= most)
		unit *= 2;
	return (struct piece){ p->next, MIN((p->next / unit + 1) * unit, p->end) };
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
	pieces_return(p, (struct piece){ end, piece->end });
	piece->end = end;
}

void pieces_learn(struct pieces *p, uint64_t n, int64_t ms)
{
	p->want = MIN(p->want + 1, p->max);
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
		route_give_up(x->u->route, &x->at_route);
	x->slot_ms = 0;
}

/* Its slot at the server of `url`; the fetch may have waited at another server before. */
static int enter_server(struct fetcher *x, struct conn *c, const char *url)
{
	struct server *o = server_get(x->f.options->servers, url);
	int64_t served = server_served(o);
	int r;

	if (o != x->waits_for) {
		server_give_up(x->waits_for, &x->at_server);
		server_unref(x->waits_for);
		x->waits_for = server_ref(o);
	}
	/* a fetch that waits in the queue of a server that serves others does not time out */
	if (x->slot_ms && served && !x->f.deadline_ms)
		x->deadline_ms = MAX(x->deadline_ms, served + x->f.options->timeout_ms);
	r = server_enter(o, &x->at_server, x->deadline_ms, &x->slot_ms);
	if (r == 0)
		c->server = o;
	else
		server_unref(o);
	return r;
}

int conn_open(struct fetcher *x, struct conn *c, struct http_request *q)
{
	char *url = NULL;
	int r = route_enter(x->u->route, c, &x->at_route, &c->redirect, &url);

	if (r < 0) {
		x->slot_ms = INT64_MAX;
		conn_close(x, c);
		return r;
	}
	q->url = url ? url : x->u->url;
	q->trust = x->u->trust;
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

void conn_answered(struct fetcher *x, struct conn *c, const struct http_response *a, int error)
{
	struct http_redirect *redirect;

	if (error < 0) {
		route_failed(x->u->route, c, c->redirect);
		return;
	}
	server_answered(c->server, c->redirect ? http_redirect_url(c->redirect) : x->u->url,
			a->status, a->retry_after_s);
	if (http_status_errno(a->status) < 0 || conn_lost_way(c, a->status)) {
		route_failed(x->u->route, c, c->redirect);
		return;
	}
	redirect = http_redirect_of(c->stream);
	if (redirect || !c->redirect)
		route_found(x->u->route, c, redirect);
}

bool conn_lost_way(const struct conn *c, int status)
{
	return c->redirect && (http_status_errno(status) < 0 || (c->exact && status != 206));
}

void conn_close(struct fetcher *x, struct conn *c)
{
	if (x->u)
		route_failed(x->u->route, c, NULL);
	http_close(c->stream);
	c->stream = NULL;
	http_redirect_unref(c->redirect);
	c->redirect = NULL;
	if (c->server) {
		server_leave(c->server);
		server_unref(c->server);
	}
	c->server = NULL;
	if (c->extra)
		atomic_fetch_sub(x->f.options->extra, 1);
	c->extra = false;
}

/* ---- the size: a HEAD, then a GET of the first byte ---- */

/* Another request of the same slot. */
static int ask_again(struct fetcher *x, struct conn *c, struct http_request *q)
{
	http_close(c->stream);
	c->stream = NULL;
	q->url = x->u->url;
	q->trust = x->u->trust;
	return http_start_request(x->f.options->http, q, wake, x, &c->stream);
}

static int ask(struct fetcher *x,
	       int (*send)(struct fetcher *, struct conn *, struct http_request *))
{
	struct http_request q = {
		.method = x->head ? HTTP_HEAD : HTTP_GET,
		.identity = true,
		.has_range = !x->head,
		.probe = true,
		.logged_once = &x->u->logged_once,
	};

	return send(x, &x->conns[0], &q);
}

int size_begin(struct fetcher *x)
{
	x->u->retry_after_s = 0;
	x->version = NULL;
	x->bytes_came = x->final = false;
	x->head = !x->u->no_head;
	return ask(x, conn_open);
}

/* What an answer says: 0 with x->arrived, -ENODATA or what its status means. */
static int read_size(struct fetcher *x, const struct http_response *a)
{
	int r = http_status_errno(a->status);
	struct version found;

	x->u->retry_after_s = a->retry_after_s;
	/* the one byte of an empty file is out of its range */
	if (r == -ERANGE && a->range_total == 0) {
		x->arrived = 0;
		return 0;
	}
	if (r == 0 && !version_identify(a, &found))
		r = -ENODATA;
	if (r == 0)
		x->arrived = found.size;
	return r;
}

/*
 * True: only fetching the file tells its size. A server may fail at a HEAD, or at a part, and have
 * the file all the same: its failures are those of the fetch to come, which tries again. One that
 * says when to come back is taken at its word.
 */
static bool only_fetching_tells(const struct url *u, int status, int error)
{
	return status >= 400 && error != -EACCES && error != -ENOENT && error != -EBUSY &&
	       u->retry_after_s <= 0;
}

int size_step(struct fetcher *x)
{
	struct url *u = x->u;
	struct http_response a = { .status = 0 };
	int r = http_answer(x->conns[0].stream, &a);
	char shown[256];

	if (r == -EAGAIN)
		return -EINPROGRESS;
	/* that a server fails at HEAD says nothing of its load */
	if (r < 0 || !x->head || a.retry_after_s > 0 || http_status_errno(a.status) == 0)
		conn_answered(x, &x->conns[0], &a, r);
	/* a part of a coded body: it says nothing of the size when decoded */
	if (r == -EOPNOTSUPP)
		r = -ENODATA;
	if (r == 0)
		r = read_size(x, &a);
	if (x->head && r < 0 && !(u->by_hash && r == -ENOENT)) {
		/* some servers have no HEAD, and a URL may be signed for GET only */
		u->no_head = a.status >= 400 || r == -ENODATA || r == -EPROTO || r == -ECONNRESET;
		if (u->no_head && ((r != -EAGAIN && r != -EBUSY) || u->retry_after_s <= 0)) {
			x->head = false;
			r = ask(x, ask_again);
			return r < 0 ? r : -EINPROGRESS;
		}
	}
	if (r == 0 || !only_fetching_tells(u, a.status, r))
		return r;
	if (!atomic_exchange(&u->logged_once, true))
		carton_log(CARTON_LOG_WARNING, http_url_redact(u->url, shown, sizeof(shown)),
			   "does not say how long the file is: status %d", a.status);
	return -ENODATA;
}
