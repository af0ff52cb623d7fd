/* SPDX-License-Identifier: Apache-2.0 */
/* Which URL to try, and what its failure means. */
#include <stdio.h>
#include <stdlib.h>

#include "base/pace.h"
#include "base/util.h"
#include "fetch/internal.h"

int urls_init(struct fetcher *x)
{
	x->n_urls = x->f.n_places;
	x->urls = calloc(x->n_urls, sizeof(*x->urls));
	if (!x->urls)
		return -ENOMEM;
	for (size_t i = 0; i < x->n_urls; i++) {
		struct fetch_place *place = &x->f.places[i];
		struct url *u = &x->urls[i];

		u->place = place;
		u->url = place->url;
		u->exhausted = atomic_load(&place->bad);
		u->error = u->exhausted ? -EBADMSG : 0;
		/* there is no other way to ask for a version */
		u->no_resume = place->version;
		/* a miss is no news; what is wrong with a version, version.c says */
		u->logged_once = place->mirror || place->version;
		x->n_mirrors += place->mirror;
	}
	return 0;
}

size_t url_index(const struct fetcher *x)
{
	size_t user = x->n_mirrors;

	if (x->tried < user)
		return x->tried;
	return user + (x->first + x->tried - user) % (x->n_urls - user);
}

bool url_is_last(const struct fetcher *x)
{
	size_t left = 0;

	for (size_t i = 0; i < x->n_urls; i++)
		left += !x->urls[i].exhausted;
	return left <= 1;
}

struct url *url_next(struct fetcher *x)
{
	for (; x->tried < x->n_urls; x->tried++) {
		struct url *u = &x->urls[url_index(x)];

		if (!u->exhausted)
			return u;
	}
	return NULL;
}

struct url *url_ready(struct fetcher *x)
{
	struct url *u = url_next(x);

	while (u && (u->place->mirror || x->tried + 1 < x->n_urls)) {
		struct server *o = server_get(x->f.options->servers, u->url);
		bool paused = server_paused(url_server(u, o)) > pace.pause_short_ms;
		size_t tried = x->tried++;
		struct url *next = paused ? url_next(x) : NULL;

		server_unref(o);
		if (!paused || (!next && !u->place->mirror)) {
			x->tried = tried;
			break;
		}
		u->error = -EBUSY;
		u->exhausted |= u->place->mirror;
		u = next;
	}
	return u;
}

int64_t url_deadline(const struct fetcher *x)
{
	int64_t now = now_ms(), left = MAX(x->deadline_ms - now, 0);
	size_t sharers = 0;

	for (size_t i = x->tried; i < x->n_urls; i++)
		sharers += !x->urls[i].exhausted;
	if (x->u && x->u->place->mirror)
		return now + MIN(left / (int64_t)MAX(sharers, 1), pace.mirror_ms);
	return now + left / (int64_t)MAX(sharers, 1);
}

/* Behind the message: what helps where a server was asked without a token or a password. */
static const char *advice(const struct url *u, bool trusted)
{
	bool hub = strcmp(u->reason, "GatedRepo") == 0 || strcmp(u->reason, "RepoNotFound") == 0;

	/* requests to S3 are signed: neither option would help */
	if (!hub && (!trusted || *u->reason || strncmp(u->url, "s3://", 5) == 0))
		return "";
	if (!hub)
		return u->status == 401 ? "; it wants a login: give it with the option "
					  "header_file, or in ~/.netrc" :
		       u->status == 403 ? "; it wants a login that may read this (option "
					  "header_file, or ~/.netrc), or the URL has expired" :
		       u->status == 404 || u->status == 410 ?
					  "; the URL is wrong, or needs a login (option "
					  "header_file, or ~/.netrc)" :
					  "";
	if (u->status != 401)
		return "";
	return trusted ? "; give a token in HF_TOKEN" :
			 "; the option hub_token sends your token there";
}

/* Once for each URL. http/ logs what fails below a status, the check of the hash wrong bytes. */
static void log_failure(struct url *u, bool trusted)
{
	char shown[256], status[40];

	/* an overloaded server was logged as such; a URL that is asked again may yet answer */
	if (u->error == -EBUSY || (!u->exhausted && !error_passes(u->error)) ||
	    atomic_exchange(&u->logged_once, true))
		return;
	http_url_redact(u->url, shown, sizeof(shown));
	if (trusted && u->status >= 400 && u->error != -ERANGE) {
		log_attempt(CARTON_LOG_ERROR, shown, "the server answers with status %d%s%s%s",
			    u->status, *u->reason ? ": " : "", u->reason, advice(u, trusted));
		return;
	}
	snprintf(status, sizeof(status), "the server answers with status %d", u->status);
	if (u->error == -ENOENT || u->error == -EACCES || u->error == -EAGAIN ||
	    u->error == -EPROTO)
		log_attempt(CARTON_LOG_WARNING, shown, "cannot be fetched from there: %s%s%s%s",
			    u->error == -EAGAIN ? "the server asks to come back later" :
			    u->status >= 400	? status :
						  strerror(-u->error),
			    *u->reason ? ": " : "", u->reason, advice(u, trusted));
}

/*
 * One machine of many may lack what the others have, or answer with something else. As the
 * function of this name in transfer.c, of what is not asked for in pieces.
 */
static bool may_be_odd(const struct fetcher *x, int error)
{
	if (!x->f.check)
		return false;
	/* a wrong answer may have no status that counts, such as one that contradicts itself */
	return error == -EPROTO ? !fetch_is_part(x) :
				  (error == -EACCES || error == -ENOENT) && x->u->status >= 400;
}

/* Could the bytes that were decoded be right as they are? */
static bool may_be_plain(const struct fetcher *x)
{
	/* of a whole carton, a coding that broke in the middle was one */
	return x->u->maybe_plain && (x->f.check || x->arrived == 0);
}

static bool check_failure(const struct fetcher *x, struct url *u, int error)
{
	bool as_is;

	/* there may be a fault with ranges; all else is a miss, for good unless it may pass */
	if (u->place->mirror && (error != -ESTALE || u->no_resume)) {
		u->exhausted = true;
		if (!error_passes(error))
			atomic_store(&u->place->bad, true);
		return false;
	}
	if (u->too_large) {
		u->exhausted = true;
		return false;
	}
	if (error == -EBADMSG || error == -EFBIG) {
		as_is = u->bad_hash && !u->as_is && may_be_plain(x);
		u->exhausted = u->bad_hash && !as_is;
		u->as_is |= as_is;
		u->bad_hash = u->no_resume = true;
		return !u->exhausted && url_is_last(x);
	}
	if (error == -ESTALE) {
		u->exhausted = u->no_resume;
		u->no_resume = true;
		return !u->exhausted;
	}
	if (may_be_odd(x, error) && !u->again && url_is_last(x)) {
		u->again = true;
		return true;
	}
	u->exhausted = !error_passes(error);
	return false;
}

int64_t url_patience(const struct fetcher *x)
{
	return atomic_load(&x->f.options->wait) ? INT64_MAX : pace.soon_ms;
}

/*
 * Is the server of a URL that has failed bad? It is given up if that lasts too long. One that has
 * served others since this failed before is there: what is bad is the URL.
 */
static void find_away(const struct fetcher *x, struct url *u)
{
	struct server *first = server_get(x->f.options->servers, u->url), *o = url_server(u, first);
	int64_t ms = 0, served = server_served(o);
	int error = server_error(o, &ms);

	server_unref(first);
	u->away = error == -EBUSY || (error && (!u->failed_ms || served < u->failed_ms));
	u->failed_ms = now_ms();
	if (error && error != -EBUSY && ms >= url_patience(x))
		u->exhausted = true;
}

bool url_failed(struct fetcher *x, int error)
{
	struct url *u = x->u;
	bool again = check_failure(x, u, error);

	u->error = error;
	find_away(x, u);
	if (u->place->mirror && (error == -ECONNREFUSED || error == -EHOSTUNREACH ||
				 error == -ETIMEDOUT || error == -ENETUNREACH))
		server_unreached(x->f.options->servers, u->url);
	log_failure(u, u->place->trust == HTTP_USER);
	return again;
}

long url_wait(const struct fetcher *x)
{
	long soonest = -1;

	for (size_t i = 0; i < x->n_urls; i++) {
		const struct url *u = &x->urls[i];
		long wait = MAX(u->retry_after_s, 0);

		if (u->place->mirror)
			continue;
		if (u->error == -ENODATA)
			return -1;
		if (!u->exhausted && (soonest < 0 || wait < soonest))
			soonest = wait;
	}
	return soonest;
}

/*
 * An error that may pass is better than -EBADMSG, which must be true of all URLs; so is -EFBIG,
 * since a file that is too large may be the right one. A server that does not say a size still has
 * the file, and after a full disk there may be room elsewhere.
 */
int url_sum_up(const struct fetcher *x)
{
	int sum = -EBADMSG;

	for (size_t i = x->n_urls > x->n_mirrors ? x->n_mirrors : 0; i < x->n_urls; i++) {
		int e = x->urls[i].error;

		if (e == -ENODATA || e == -ENOSPC || e == -EDQUOT)
			return e;
		/* whether the others have the bytes or not: it may have all of them */
		if (e == -EOPNOTSUPP && x->f.what == FETCH_PART)
			return e;
		/* there was no time to ask it */
		if (e == 0)
			e = -ETIMEDOUT;
		if (e == -EFBIG && x->urls[i].too_large && sum == -EBADMSG)
			sum = -EFBIG;
		if (e == -EBADMSG || e == -EFBIG)
			continue;
		/* asked to come back later than this fetch waits */
		if (e == -EBUSY || (e == -EAGAIN && x->urls[i].retry_after_s > 0))
			e = -ETIMEDOUT;
		if (e != -EACCES && e != -ETIMEDOUT && e != -ECONNREFUSED && e != -EHOSTUNREACH &&
		    e != -ENETUNREACH && e != -ECONNRESET)
			e = -EIO;
		if (sum == -EBADMSG || sum == -EFBIG || sum == -EIO)
			sum = e;
	}
	return sum;
}
