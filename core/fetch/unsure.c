/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An answer has another validator than the version, or is a 412: the file may have changed. But
 * some servers have several validators for one version: machines behind one name may have an ETag
 * each, compression may add -gzip to it, and some refuse the ETag that they have just sent. So the
 * last bytes of the file are fetched again, without a condition, and compared with those of the
 * version. In a carton they are the central directory, or its end, with a checksum of each file. If
 * they are the same, validators are no longer compared, and the hashes decide.
 */
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "fetch/internal.h"

int unsure_answer(struct fetcher *x, const struct conn *c, const struct http_response *a)
{
	struct version *v = x->version;

	/* another request has found out meanwhile that conditions do not help */
	if (c->conditional && !version_asks(v))
		return 0;
	/* a file with a hash may be of any version: only a refusal without a condition counts */
	if (v == &x->found && x->f.check) {
		if (!v->etag[0] && !v->last_modified[0])
			return -ESTALE;
		v->etag[0] = v->last_modified[0] = '\0';
		return 0;
	}
	if (version_can_tell(v, a)) {
		x->unsure = true;
		return -EREMCHG;
	}
	version_log(v, a, -ESTALE);
	return -ESTALE;
}

int unsure_begin(struct fetcher *x)
{
	struct version *v = x->u->place->version;
	struct conn *c = &x->conns[0];
	struct http_request q = {
		.has_range = true,
		.first = v->size - v->end_n,
		.last = v->size - 1,
		.logged_once = &v->logged_once,
	};

	x->version = v;
	c->left = (struct piece){ q.first, v->size, false };
	c->exact = true;
	c->conditional = false;
	x->end = malloc(v->end_n);
	return x->end ? conn_open(x, c, &q) : -ENOMEM;
}

/* Checks that the answer has the end of a file of the same size. 0 or -errno, logged. */
static int take_end(struct fetcher *x, const struct conn *c, const struct http_response *a)
{
	int r = version_check(x->version, a, c->left.off, c->left.end - 1);

	x->u->retry_after_s = a->retry_after_s;
	if (r == VERSION_UNSURE)
		r = a->status == 206 && x->version->hashed ? 0 : -ESTALE;
	if (r == 0 && a->range_last != (int64_t)c->left.end - 1)
		r = -EPROTO;
	if (r < 0)
		version_log(x->version, a, r);
	x->named = version_is_named(x->version, a);
	return r;
}

/* Compares the end of the file, all of which has come. As unsure_step(). */
static int compare(struct fetcher *x)
{
	struct version *v = x->version;
	uint8_t sha256[SHA256_SIZE];
	int r = sha256_mem(x->end, v->end_n, sha256);

	if (r < 0)
		return r;
	if (memcmp(sha256, v->end_sha256, SHA256_SIZE) != 0) {
		version_log(v, NULL, -ESTALE);
		return -ESTALE;
	}
	version_trust(v, x->named);
	x->unsure = false;
	return -EREMCHG;
}

int unsure_step(struct fetcher *x)
{
	struct conn *c = &x->conns[0];
	struct http_response a = { .retry_after_s = 0 };
	int r = c->answered ? 0 : http_answer(c->stream, &a);
	const char *data;
	ssize_t got;

	if (r == -EAGAIN)
		return -EINPROGRESS;
	if (!c->answered) {
		conn_answered(x, c, &a, r);
		/* the next try asks the URL where the redirects began */
		if (r == 0 && conn_lost_way(c, a.status))
			return -EREMCHG;
		if (r == 0)
			r = take_end(x, c, &a);
		if (r < 0)
			return r;
		c->answered = true;
	}
	while ((got = http_peek(c->stream, &data)) > 0) {
		uint64_t left = c->left.end - c->left.off, n = MIN((uint64_t)got, left);

		if (n == 0)
			return -EPROTO;
		memcpy(x->end + x->version->end_n - left, data, n);
		http_skip(c->stream, n);
		c->left.off += n;
		x->taken += n;
		x->bytes_came = true;
	}
	if (got == 0)
		return c->left.off == c->left.end ? compare(x) : -ECONNRESET;
	return got == -EAGAIN ? -EINPROGRESS : (int)got;
}
