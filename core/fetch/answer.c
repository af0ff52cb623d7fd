/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer to a request that is not for just a piece: what it is, where its body goes, and
 * whether other connections take a part of it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "fetch/internal.h"

/* ---- what a content coding means: something only if bytes can be decoded ---- */

bool answer_has_hash(const struct fetcher *x)
{
	return x->f.what == FETCH_FILE && !fetch_is_part(x) && (x->f.check || x->f.whole);
}

/* Is it the file itself that comes, although the server says that it is coded? */
static bool is_plain(const struct fetcher *x, const struct http_response *a)
{
	return x->u->as_is || a->status == 206 ||
	       (answer_has_hash(x) && !x->u->bad_hash && x->f.n && a->sent == (int64_t)x->f.n);
}

/* Are other bytes written than the server sends? */
static bool is_decoded(const struct fetcher *x, const struct http_response *a)
{
	return a->coding[0] && !(a->coded && is_plain(x, a));
}

/* ---- how long the file may be: the least of what is known, and never without end ---- */

static uint64_t bound_of(const struct fetcher *x)
{
	uint64_t max = x->f.options->max_size;

	if (!max)
		max = x->f.max || x->announced >= 0 ? MAX_FETCHED : MAX_FETCHED_UNSAID;
	return x->f.max ? MIN(x->f.max, max) : max;
}

static bool announced_more(const struct fetcher *x)
{
	return x->announced >= 0 && (uint64_t)x->announced > x->bound;
}

int bound_answer(struct fetcher *x, const struct http_response *a)
{
	if (x->f.what != FETCH_FILE)
		return 0;
	/* a coded body becomes longer */
	x->announced = is_decoded(x, a) ? -1 : a->status == 206 ? a->range_total : a->length;
	if (x->f.announced && x->announced > 0)
		x->f.announced(x->f.arrived_ctx, (uint64_t)(x->announced - MAX(a->range_first, 0)));
	x->bound = bound_of(x);
	file_limit(x->f.dest, x->bound);
	return announced_more(x) ? -EFBIG : 0;
}

static void log_wrong_size(const struct fetcher *x, const char *shown)
{
	enum carton_log_level level = x->u->bad_hash ? CARTON_LOG_DEBUG : CARTON_LOG_ERROR;

	if (x->announced >= 0)
		carton_log(level, shown, "the carton says that it has %llu bytes, but it has %llu",
			   (unsigned long long)x->bound, (unsigned long long)x->announced);
	else
		carton_log(level, shown, "the carton says that it has %llu bytes, but it has more",
			   (unsigned long long)x->bound);
}

static void log_too_large(const struct fetcher *x, const char *shown)
{
	if (x->announced >= 0)
		carton_log(CARTON_LOG_ERROR, shown,
			   "refused: it has %llu bytes, more than %llu; the option max_size "
			   "allows it",
			   (unsigned long long)x->announced, (unsigned long long)x->bound);
	else
		carton_log(CARTON_LOG_ERROR, shown,
			   "stopped after %llu bytes: the server does not say how long it is; the "
			   "option max_size allows more",
			   (unsigned long long)x->bound);
}

int bound_passed(struct fetcher *x)
{
	bool known = x->f.max && x->bound == x->f.max;
	char shown[256];

	if (!x->bound || (!announced_more(x) && !file_is_over(x->f.dest)))
		return -EFBIG;
	http_url_redact(x->u->url, shown, sizeof(shown));
	if (known)
		log_wrong_size(x, shown);
	else
		log_too_large(x, shown);
	/* nothing of it can be used */
	file_restart(x->f.dest, NULL);
	x->u->too_large = !known;
	return known ? -EBADMSG : -EFBIG;
}

/* ---- what the answer is ---- */

bool answer_partial(const struct fetcher *x, uint64_t *ret_len, char *ret_etag, size_t n)
{
	char validator[MAX_CACHE_VALIDATOR + 1], *space, *url;
	bool same;

	if (x->f.what != FETCH_FILE || x->u->no_resume || x->u->place->mirror ||
	    file_partial(x->f.dest, ret_len, validator, sizeof(validator)) < 0 || *ret_len == 0)
		return false;
	space = strrchr(validator, ' ');
	url = http_url_public(x->u->url);
	same = space && url && strcmp(space + 1, url) == 0 && (size_t)(space - validator) < n;
	free(url);
	if (!same)
		return false;
	*space = '\0';
	strcpy(ret_etag, validator);
	return true;
}

/* Empties the file for a body that begins with the first byte. */
static int start_over(struct fetcher *x, const struct http_response *a)
{
	char validator[MAX_CACHE_VALIDATOR + 1] = "", *url = http_url_public(x->u->url);
	int64_t length = a->length;
	int r;

	/* of the URL only what may be in a file */
	if (x->f.what == FETCH_FILE && !x->u->place->mirror && a->strong_etag && !a->coding[0] &&
	    url &&
	    (size_t)snprintf(validator, sizeof(validator), "%s %s", a->etag, url) >=
		    sizeof(validator))
		validator[0] = '\0';
	free(url);
	r = file_restart(x->f.dest, validator);
	if (x->probing && a->status == 206)
		length = a->range_total;
	if (r == 0 && length > 0 && !is_decoded(x, a))
		r = file_reserve(x->f.dest, (uint64_t)length, false);
	return r;
}

/*
 * Pieces of that version are fetched from `next` on; the first answer's body is what stands before.
 */
static void begin_pieces(struct fetcher *x, uint64_t next)
{
	struct version *v = &x->found;

	v->url = x->u->url;
	/* any version will do that has the hash */
	if (x->u->place->mirror)
		v->etag[0] = v->last_modified[0] = '\0';
	v->one_of_several = false;
	atomic_store(&v->logged_once, false);
	atomic_store(&v->logged_status, 0);
	x->version = v;
	pieces_begin(&x->pieces, next, v->size, x->f.options->connections,
		     atomic_load(&x->u->place->piece));
}

/* An answer to a request for the first piece of a large file. -ESTALE: ask without a range. */
static int take_first_piece(struct fetcher *x, struct conn *c, const struct http_response *a)
{
	if (a->range_first != 0 || !version_identify(a, &x->found))
		return -ESTALE;
	/* parts of coded bytes are of no use, unless these are the file's own after all */
	if (a->coding[0] && x->found.size != x->f.n)
		return -ESTALE;
	/* what follows has to be of the same version */
	if (!x->found.etag[0] && !x->u->place->mirror &&
	    (uint64_t)a->range_last + 1 < x->found.size)
		return -ESTALE;
	c->left = (struct piece){ .end = (uint64_t)a->range_last + 1 };
	c->exact = true; /* nothing comes behind it */
	begin_pieces(x, c->left.end);
	return 0;
}

/* A large object at a URL that has ranges: several connections take what follows. */
static void split(struct fetcher *x, struct conn *c, const struct http_response *a)
{
	struct version *v = &x->found;

	if (x->f.what != FETCH_FILE || x->f.plain || x->u->no_resume ||
	    x->f.options->connections < 2 || (a->status != 206 && !a->accept_ranges) ||
	    !version_identify(a, v) || (!v->etag[0] && !x->u->place->mirror) ||
	    v->size < c->left.off || v->size - c->left.off <= PARALLEL)
		return;
	begin_pieces(x, c->left.off);
	pieces_follow(&x->pieces, c->left.off, &c->left);
}

static int put_decoded(void *ctx, const void *data, size_t n)
{
	struct fetcher *x = ctx;
	int r = n ? file_write(x->f.dest, data, n, x->arrived) : 0;

	if (r == 0)
		x->arrived += n;
	return r;
}

/*
 * May a refusal of the last bytes mean that the server has no ranges that are counted from the end?
 * Not if it wants a login, or may answer later. S3 also says 403 of a wrong signature.
 */
static bool lacks_suffix(const struct url *u, int status, int error)
{
	if (status == 401 || status == 407 || error == -EBUSY ||
	    (status == 403 && strncmp(u->url, "s3://", 5) == 0))
		return false;
	return error != -EAGAIN || status == 500 || status == 501;
}

int answer_take(struct fetcher *x, struct conn *c, const struct http_response *a)
{
	struct url *u = x->u;
	int r = http_status_errno(a->status);

	u->retry_after_s = a->retry_after_s;
	u->status = a->status;
	strcpy(u->reason, a->reason);
	u->gzip = !strcmp(a->coding, "gzip") || !strcmp(a->coding, "x-gzip");
	u->maybe_plain = answer_has_hash(x) && is_decoded(x, a) &&
			 (!x->f.n || a->sent < 0 || a->sent == (int64_t)x->f.n);
	if (r < 0 && x->f.what == FETCH_SUFFIX && lacks_suffix(u, a->status, r)) {
		x->final = true;
		return 1;
	}
	if ((r == -ERANGE || r == -EPROTO) && x->probing)
		r = -ESTALE;
	if (r == -ERANGE && x->f.what == FETCH_FILE) {
		u->no_resume = true; /* the partial is not a part of what is there */
		r = -EAGAIN;
	}
	if (r < 0 && x->f.refused && !error_passes(r)) {
		x->f.refused(x->f.ctx, a);
		atomic_store(&u->logged_once, true);
	}
	if (r == 0 && x->f.answered) {
		r = x->f.answered(x->f.ctx, a);
		x->final = r != 0;
	}
	if (r == 0)
		r = bound_answer(x, a);
	if (r != 0)
		return r;
	if (x->probing && a->status == 206) {
		r = take_first_piece(x, c, a);
		return r < 0 ? r : start_over(x, a);
	}
	if (x->f.what == FETCH_FILE && a->status == 206) {
		if (c->left.off == 0)
			return -EPROTO;
		/*
		 * only all that is left will do, of the same version: some servers ignore If-Range
		 */
		if (a->range_first != (int64_t)c->left.off || a->range_last + 1 != a->range_total ||
		    strcmp(a->etag, x->found.etag) != 0)
			return -ESTALE;
	}
	if (a->status != 206 || x->f.what == FETCH_SUFFIX || x->f.what == FETCH_RANGE) {
		c->left.off = 0;
		r = start_over(x, a);
	}
	x->arrived = c->left.off;
	if (r == 0 && a->coded && is_decoded(x, a))
		r = u->gzip ? gunzip_new(put_decoded, x, &x->gunzip) : -EBADMSG;
	if (r == 0)
		split(x, c, a);
	return r;
}
