/* SPDX-License-Identifier: Apache-2.0 */
/* A try of a fetch that asks how long a file is: a HEAD, then a GET of the first byte. */
#include "base/util.h"
#include "fetch/internal.h"

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
	/* how long coded bytes are says nothing of the file */
	if (r == 0 && (a->coding[0] || !version_identify(a, &found)))
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
	/* all of it came, in a coding that is not read here */
	if (r == -EOPNOTSUPP)
		r = -ENODATA;
	if (r == 0)
		r = read_size(x, &a);
	if (x->head && r < 0 && !(u->place->mirror && r == -ENOENT)) {
		/* some servers have no HEAD, and a URL may be signed for GET only */
		u->no_head = a.status >= 400 || r == -ENODATA || r == -EPROTO || r == -ECONNRESET;
		if (u->no_head && ((r != -EAGAIN && r != -EBUSY) || u->retry_after_s <= 0)) {
			x->head = false;
			r = ask(x, conn_ask_again);
			return r < 0 ? r : -EINPROGRESS;
		}
	}
	if (r == 0 || conn_is_away(x) || !only_fetching_tells(u, a.status, r))
		return r;
	if (!atomic_exchange(&u->logged_once, true))
		carton_log(CARTON_LOG_WARNING, http_url_redact(u->url, shown, sizeof(shown)),
			   "does not say how long the file is: status %d", a.status);
	return -ENODATA;
}
