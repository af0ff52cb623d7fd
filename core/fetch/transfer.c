/* SPDX-License-Identifier: Apache-2.0 */
/* One try of one URL: its requests, and their bytes on the way to the file. */
#include <stdlib.h>

#include "base/budget.h"
#include "base/util.h"
#include "fetch/internal.h"

/* bytes of one connection in one step, after which other fetches have their turn */
#define STEP_BYTES (1 * MIB)
/* written at once: meanwhile the network thread fills the space before it */
#define BLOCK (128 * KIB)

/* May the fetch have one connection more than `active`? */
static bool conn_allow(struct fetcher *x, struct conn *c, unsigned active)
{
	atomic_uint *extra = x->f.options->extra;

	c->extra = active > 0;
	if (c->extra && budget_left(x->f.options->budget) < BUDGET_RESERVE) {
		c->extra = false;
		return false;
	}
	if (!c->extra || atomic_fetch_add(extra, 1) < MAX_EXTRA_CONNECTIONS)
		return true;
	atomic_fetch_sub(extra, 1);
	c->extra = false;
	return false;
}

void transfer_end(struct fetcher *x)
{
	for (size_t i = 0; i < MAX_CONNECTIONS; i++)
		conn_close(x, &x->conns[i]);
	conn_give_up(x);
	gunzip_free(x->gunzip);
	x->gunzip = NULL;
	free(x->end);
	x->end = NULL;
}

/* ---- bytes ---- */

static uint64_t lead_end(const struct fetcher *x)
{
	return x->f.lead + x->f.n_lead;
}

/* As led(), of bytes that are written. */
static int put_lead(struct fetcher *x, struct conn *c, const char *data, size_t n)
{
	int r = file_write(x->f.lead_dest, data, n, c->left.off - x->f.lead);

	if (r < 0 || c->left.off + n < lead_end(x))
		return r;
	r = x->f.led(x->f.ctx, x->u->place);
	x->led = r == 0;
	x->final = r < 0;
	return r;
}

static int put(struct fetcher *x, struct conn *c, const char *data, size_t n)
{
	uint64_t off = fetch_is_part(x) ? c->left.off - x->f.off + x->f.at : c->left.off;

	if (!x->led)
		return put_lead(x, c, data, n);
	return x->gunzip ? gunzip_feed(x->gunzip, data, n) : file_write(x->f.dest, data, n, off);
}

/* Takes the bytes that are there. 1: the body or the piece is over; -EAGAIN: more to come. */
static int drain(struct fetcher *x, struct conn *c)
{
	uint64_t taken = 0;
	const char *data;
	ssize_t got;
	int r;

	if (!x->version && x->arrived > follow_limit(x->f.follow))
		return -EAGAIN;
	while ((got = http_peek(c->stream, &data)) > 0) {
		uint64_t end = x->led ? c->left.end : MIN(c->left.end, lead_end(x));
		size_t n = (size_t)MIN(MIN((uint64_t)got, BLOCK), end - c->left.off);

		/* an answer of the whole file goes on behind its piece */
		if (n == 0)
			return 1;
		r = put(x, c, data, n);
		if (r < 0)
			return r;
		http_skip(c->stream, n);
		c->left.off += n;
		x->came += n;
		x->taken += n;
		taken += n;
		/* a try that had its share of the time has all of it once it delivers */
		x->bytes_came = true;
		if (taken >= STEP_BYTES) {
			task_wake(&x->task);
			return -EAGAIN;
		}
	}
	if (got == 0 && c->left.end != UINT64_MAX && c->left.off < c->left.end)
		return -ECONNRESET;
	return got == 0 ? 1 : (int)got;
}

/* ---- one connection ---- */

/* Ends the request of a piece, which is asked for again. */
static int ask_again(struct fetcher *x, struct conn *c)
{
	pieces_return(&x->pieces, c->left);
	conn_close(x, c);
	return 0;
}

/*
 * Is a failed piece worth a second request at once, on another connection? Of several machines
 * behind one name or one redirect, one may refuse what the others have, or send a page instead.
 */
static bool may_be_odd(const struct fetcher *x, const struct conn *c, int error)
{
	return !c->left.again && !x->u->place->mirror && !x->version->one_of_several &&
	       (error == -EACCES || error == -EIO || error == -ESTALE || error == -EPROTO ||
		error == -EOPNOTSUPP);
}

/* The request of a piece failed: it is asked for again after a pause. 0, or the end of the try. */
static int piece_failed(struct fetcher *x, struct conn *c, int error, long retry_after_s)
{
	bool away = conn_is_away(x) && url_is_last(x);
	int64_t now = now_ms();
	unsigned active;

	if (may_be_odd(x, c, error)) {
		c->left.again = true;
		return ask_again(x, c);
	}
	pieces_return(&x->pieces, c->left);
	conn_close(x, c);
	/* the queue says when, unless the fetch can go elsewhere */
	if (error == -EBUSY && url_is_last(x))
		return 0;
	active = conns_active(x);
	x->u->retry_after_s = retry_after_s;
	/* another URL may be better than another try */
	if (!error_passes(error) || (fetch_is_part(x) && !x->bytes_came))
		return error;
	/* perhaps the server does not like so many at once */
	if (!away)
		x->pieces.want = MAX(active, 1U);
	if (x->came >= MIN_FETCH_PROGRESS)
		x->failures = 0;
	x->came = 0;
	/* those that fail together count as one */
	if (now < x->hold_ms)
		return 0;
	/* what has come of a range is kept */
	if (++x->failures > (fetch_is_part(x) && x->u->place->mirror ? 1 : MAX_FETCH_ATTEMPTS) &&
	    !away)
		return error;
	x->hold_ms = now + server_pause(x->failures, retry_after_s);
	return x->hold_ms >= x->deadline_ms && active == 0 ? error : 0;
}

/*
 * A server may give the first part of what it was asked for (RFC 9110, 15.3.7): the rest is asked
 * for again.
 */
static int take_piece(struct fetcher *x, struct conn *c, const struct http_response *a)
{
	int r = version_check(x->version, a, c->left.off, c->left.end - 1);

	if (r < 0 && !may_be_odd(x, c, r))
		version_log(x->version, a, r);
	if (r != 0)
		return r;
	pieces_cut(&x->pieces, &c->left, (uint64_t)a->range_last + 1);
	c->size = c->left.end - c->left.off;
	return 0;
}

/* Back to where the redirects began. */
static int go_back(struct fetcher *x, struct conn *c)
{
	if (x->version)
		return ask_again(x, c);
	conn_close(x, c);
	return -EREMCHG;
}

static int conn_step(struct fetcher *x, struct conn *c)
{
	struct http_response a = { .retry_after_s = 0 };
	int r = c->answered ? 0 : http_answer(c->stream, &a);

	if (r == -EAGAIN)
		return 0;
	if (!c->answered) {
		c->wait_ms = now_ms() - c->began_ms;
		conn_answered(x, c, &a, r);
		if (r == 0 && conn_lost_way(c, a.status))
			return go_back(x, c);
		/* what is in front of a server may drop a request that it does not understand */
		if (r == -ECONNRESET && x->f.what == FETCH_SUFFIX) {
			x->final = true;
			return 1;
		}
	}
	if (r == 0 && !c->answered)
		r = c->exact ? take_piece(x, c, &a) : answer_take(x, c, &a);
	if (r == VERSION_UNSURE && c->exact && !c->answered) {
		r = unsure_answer(x, c, &a);
		return r == 0 ? ask_again(x, c) : r;
	}
	if (r == 0) {
		c->answered = true;
		r = drain(x, c);
		if (r == -EAGAIN)
			return 0;
	}
	if (r < 0)
		return x->version && !x->final ? piece_failed(x, c, r, a.retry_after_s) : r;
	if (x->final)
		return r;
	if (!x->version) {
		x->all_arrived = true;
		return x->gunzip ? gunzip_end(x->gunzip) : 0;
	}
	atomic_store(&x->version->logged_once, false);
	pieces_learn(&x->pieces, c->size, now_ms() - c->began_ms, c->wait_ms);
	if (x->pieces.max > 1)
		atomic_store(&x->u->place->piece, x->pieces.size);
	c->began_ms = now_ms();
	c->wait_ms = 0;
	/* a whole answer reads on where nobody else has begun */
	if (!c->exact && pieces_follow(&x->pieces, c->left.off, &c->left)) {
		c->size = c->left.end - c->left.off;
		task_wake(&x->task);
	} else {
		conn_close(x, c);
	}
	return 0;
}

/* ---- the try ---- */

static int ask_pieces(struct fetcher *x)
{
	uint64_t base = fetch_is_part(x) ? x->f.off : 0;
	size_t want = x->led ? x->pieces.want : 1;
	int r = 0;

	for (size_t i = 0; i < want && r == 0 && now_ms() >= x->hold_ms; i++) {
		struct conn *c = &x->conns[i];
		struct http_request q;

		if (c->stream)
			continue;
		if (!conn_allow(x, c, conns_active(x)))
			break;
		if (!pieces_take(&x->pieces, base + MIN(x->arrived, follow_limit(x->f.follow)),
				 &c->left)) {
			conn_close(x, c);
			break;
		}
		version_request(x->version, c->left.off, c->left.end - 1, &q);
		q.logged_once = &x->version->logged_once;
		q.no_cache = x->u->bad_hash;
		q.new_connection = c->left.again;
		c->exact = true;
		c->conditional = version_asks(x->version);
		r = conn_open(x, c, &q);
		if (r < 0)
			pieces_return(&x->pieces, c->left);
	}
	/* others are under way */
	if (error_is_outage(r) && conns_active(x) > 0)
		r = 0;
	/* a slot that is not used would block those behind it */
	if (r == 0 && x->slot_ms)
		conn_give_up(x);
	return r == -EAGAIN ? 0 : r;
}

/* How far the file has all bytes. */
static void find_arrived(struct fetcher *x)
{
	uint64_t least = x->pieces.next;

	if (x->gunzip || !x->led)
		return;
	if (!x->version) {
		x->arrived = x->conns[0].left.off;
		return;
	}
	for (size_t i = 0; i < MAX_CONNECTIONS; i++)
		if (x->conns[i].stream)
			least = MIN(least, x->conns[i].left.off);
	for (size_t i = 0; i < x->pieces.n_returned; i++)
		least = MIN(least, x->pieces.returned[i].off);
	x->all_arrived = least == x->pieces.end;
	/* the request of the lead may still be under way */
	x->arrived = fetch_is_part(x) ? MAX(least, x->f.off + x->have) - x->f.off : least;
}

/* At this URL any version will do. */
static void use_url(struct fetcher *x)
{
	struct version *v = &x->found;

	v->url = x->u->url;
	v->size = x->f.size;
	v->etag[0] = v->last_modified[0] = '\0';
	v->one_of_several = true;
	atomic_store(&v->logged_once, atomic_load(&x->u->logged_once));
	x->version = v;
}

/* The lead is the first piece, or the beginning of it. */
static void add_lead(struct fetcher *x)
{
	if (lead_end(x) == x->pieces.next)
		x->pieces.next = x->f.lead;
	else
		pieces_return(&x->pieces, (struct piece){ x->f.lead, lead_end(x), false });
}

int transfer_begin(struct fetcher *x)
{
	struct conn *c = &x->conns[0];
	struct url *u = x->u;
	struct http_request q = {
		.no_cache = u->bad_hash,
		.identity = x->f.plain || (u->bad_hash && u->no_resume),
		/* libcurl decodes the first member only of a gzip body */
		.undecoded = u->as_is || (u->bad_hash && u->no_resume && u->gzip),
		.plain = answer_has_hash(x) && !u->bad_hash ? x->f.n : 0,
		.new_connection = u->again,
		.logged_once = &u->logged_once,
	};

	u->status = 0;
	u->reason[0] = '\0';
	u->maybe_plain = false;
	x->all_arrived = x->bytes_came = x->final = x->probing = false;
	x->failures = 0;
	x->bound = 0;
	x->hold_ms = 0;
	x->arrived = 0;
	x->version = NULL;
	if (fetch_is_part(x)) {
		x->arrived = x->have;
		x->unsure &= u->place->version && u->place->version->end_n > 0;
		if (x->unsure)
			return unsure_begin(x);
		x->version = u->place->version;
		if (!x->version)
			use_url(x);
		pieces_begin(&x->pieces, x->f.off + x->have, x->f.off + x->f.n,
			     x->f.options->connections, atomic_load(&x->u->place->piece));
		if (!x->led)
			add_lead(x);
		return ask_pieces(x);
	}
	c->exact = false;
	c->left = (struct piece){ .end = UINT64_MAX };
	if (x->f.what == FETCH_SUFFIX) {
		q.suffix = x->f.n;
	} else if (x->f.what == FETCH_RANGE) {
		q.has_range = true;
		q.first = x->f.off;
		q.last = x->f.off + x->f.n - 1;
	} else if (answer_partial(x, &c->left.off, x->found.etag, sizeof(x->found.etag))) {
		q.has_range = true;
		q.first = c->left.off;
		q.last = c->left.off + MAX_FILE_SIZE;
		q.if_range = x->found.etag;
	} else {
		c->left.off = 0;
		/* a small file is asked for without, so that it may come in a content coding */
		x->probing = x->f.what == FETCH_FILE && !x->f.plain && !u->no_resume &&
			     x->f.options->connections > 1 && (!x->f.n || x->f.n > PARALLEL);
		q.has_range = x->probing;
		q.last = PIECE_FIRST - 1;
	}
	return conn_open(x, c, &q);
}

int transfer_step(struct fetcher *x)
{
	int r = 0;

	if (x->unsure)
		return unsure_step(x);
	for (size_t i = 0; i < MAX_CONNECTIONS && r == 0 && !x->all_arrived; i++)
		if (x->conns[i].stream)
			r = conn_step(x, &x->conns[i]);
	if (x->version || x->conns[0].answered) {
		find_arrived(x);
		file_progress(x->f.dest, x->arrived);
	}
	if (r != 0 || x->all_arrived)
		return r;
	if (x->version)
		r = ask_pieces(x);
	return r < 0 ? r : -EINPROGRESS;
}

int64_t transfer_deadline(const struct fetcher *x)
{
	return x->bytes_came || x->slot_ms ? x->deadline_ms :
					     MIN(x->try_deadline_ms, x->deadline_ms);
}

int transfer_late(struct fetcher *x)
{
	atomic_bool *logged = x->version ? &x->version->logged_once : &x->u->logged_once;
	bool answered = false;
	char shown[256];
	int64_t ms;
	int error;

	if (x->slot_ms && conns_active(x) == 0)
		return conn_waits_why(x);
	for (size_t i = 0; i < MAX_CONNECTIONS; i++)
		answered |= x->conns[i].stream && x->conns[i].answered;
	/* a request without an answer says less than those that failed before it */
	error = answered ? 0 : server_error(x->waits_for, &ms);
	log_attempt(atomic_exchange(logged, true) ? CARTON_LOG_DEBUG : CARTON_LOG_WARNING,
		    http_url_redact(x->u->url, shown, sizeof(shown)), "%s",
		    answered ? "the body did not end before the deadline" :
			       "no answer before the deadline");
	return error ? error : -ETIMEDOUT;
}
