/* SPDX-License-Identifier: Apache-2.0 */
/* Which mirror to try, and what its failure means. */
#include <stdlib.h>

#include "base/util.h"
#include "fetch/internal.h"

/* how long one of the user's mirrors has until its first byte, for an object or of the carton itself */
#define BY_HASH_MS 5000
/* a pause that is not worth another mirror */
#define SHORT_PAUSE_MS 250

int mirror_list(struct fetcher *x)
{
	struct version *version = x->f.version;

	x->n_mirrors = !version ? x->f.n_urls : version->other ? 2 : 1;
	x->mirrors = calloc(x->n_mirrors, sizeof(*x->mirrors));
	if (!x->mirrors)
		return -ENOMEM;
	for (size_t i = 0; i < x->n_mirrors; i++) {
		struct url_state *state = x->f.states ? &x->f.states[i] : NULL;
		struct mirror *m = &x->mirrors[i];

		m->version = version;
		m->url = version ? version->url : x->f.urls[i];
		m->exhausted = version ? version->other && atomic_load(&version->gone) :
					 state && atomic_load(&state->bad);
		m->error = state && m->exhausted ? -EBADMSG : 0;
		m->by_hash = i < x->f.n_by_hash;
		m->trust = m->by_hash ? HTTP_USER : x->f.trust;
		/* a miss is no news */
		m->logged_once = m->by_hash;
		route_init(&m->own);
		m->route = version ? version->route : state ? &state->route : &m->own;
		version = version ? version->other : NULL;
	}
	return 0;
}

void mirror_free(struct fetcher *x)
{
	for (size_t i = 0; i < x->n_mirrors; i++)
		route_destroy(&x->mirrors[i].own);
	free(x->mirrors);
}

size_t mirror_index(const struct fetcher *x)
{
	size_t user = x->f.n_by_hash;

	if (x->tried < user)
		return x->tried;
	return user + (x->first + x->tried - user) % (x->n_mirrors - user);
}

bool mirror_has_other(const struct fetcher *x)
{
	return x->f.what == FETCH_RANGE && x->tried + 1 < x->n_mirrors;
}

struct mirror *mirror_next(struct fetcher *x)
{
	for (; x->tried < x->n_mirrors; x->tried++) {
		struct mirror *m = &x->mirrors[mirror_index(x)];

		if (!m->exhausted)
			return m;
	}
	return NULL;
}

struct mirror *mirror_ready(struct fetcher *x)
{
	struct mirror *m = mirror_next(x);

	while (m && (m->by_hash || x->tried + 1 < x->n_mirrors)) {
		struct server *o = server_get(x->f.options->servers, m->url);
		bool paused = server_paused(o) > SHORT_PAUSE_MS;
		size_t tried = x->tried++;
		struct mirror *next = paused ? mirror_next(x) : NULL;

		server_unref(o);
		if (!paused || (!next && !m->by_hash)) {
			x->tried = tried;
			break;
		}
		m->error = -EBUSY;
		m->exhausted |= m->by_hash;
		m = next;
	}
	return m;
}

int64_t mirror_deadline(const struct fetcher *x)
{
	int64_t now = now_ms(), left = MAX(x->deadline_ms - now, 0);
	size_t sharers = 0;

	for (size_t i = x->tried; i < x->n_mirrors; i++)
		sharers += !x->mirrors[i].exhausted;
	if (x->m && (x->m->by_hash || mirror_has_other(x)))
		return now + MIN(left / (int64_t)MAX(sharers, 1), BY_HASH_MS);
	return now + left / (int64_t)MAX(sharers, 1);
}

/* Once for each mirror. http/ logs what fails below a status, the check of the hash wrong bytes. */
static void log_failure(struct mirror *m, bool trusted)
{
	char shown[256];

	/* an overloaded server was logged as such; one without ranges is asked for all, next */
	if (m->error == -EBUSY || (m->error == -ESTALE && !m->exhausted) ||
	    atomic_exchange(&m->logged_once, true))
		return;
	http_url_redact(m->url, shown, sizeof(shown));
	if (trusted && m->status >= 400 && m->error != -ERANGE) {
		carton_log(CARTON_LOG_ERROR, shown, "the server answers with status %d", m->status);
		return;
	}
	if (m->error == -ENOENT || m->error == -EACCES || m->error == -EAGAIN ||
	    m->error == -EPROTO)
		carton_log(CARTON_LOG_WARNING, shown, "cannot be fetched from there: %s",
			   m->error == -EAGAIN ? "the server asks to come back later" :
						 strerror(-m->error));
}

static bool check_failure(struct mirror *m, int error)
{
	/* there may be a fault with ranges; all else is a miss */
	if (m->by_hash && (error != -ESTALE || m->no_resume)) {
		m->exhausted = true;
		return false;
	}
	if (m->too_large) {
		m->exhausted = true;
		return false;
	}
	if (error == -EBADMSG || error == -EFBIG) {
		m->exhausted = m->bad_hash;
		m->bad_hash = m->no_resume = true;
		return !m->exhausted;
	}
	if (error == -ESTALE) {
		m->exhausted = m->no_resume;
		m->no_resume = true;
		return !m->exhausted;
	}
	m->exhausted = !fetch_error_passes(error);
	return false;
}

bool mirror_failed(struct fetcher *x, int error)
{
	struct mirror *m = x->m;
	bool again = check_failure(m, error);

	m->error = error;
	if (m->by_hash && (error == -ECONNREFUSED || error == -EHOSTUNREACH ||
			   error == -ETIMEDOUT || error == -ENETUNREACH))
		server_unreached(x->f.options->servers, m->url);
	log_failure(m, m->trust == HTTP_USER);
	return again;
}

long mirror_wait(const struct fetcher *x)
{
	long soonest = -1;

	for (size_t i = 0; i < x->n_mirrors; i++) {
		const struct mirror *m = &x->mirrors[i];
		long wait = MAX(m->retry_after_s, 0);

		if (m->by_hash)
			continue;
		if (m->error == -ENODATA)
			return -1;
		if (!m->exhausted && (soonest < 0 || wait < soonest))
			soonest = wait;
	}
	return soonest;
}

/*
 * An error that may pass is better than -EBADMSG, which must be true of all mirrors; so is -EFBIG, since a file that is
 * too large may be the right one. A mirror that does not say a size still has the file, and after a full disk there may
 * be room elsewhere.
 */
int mirror_sum_up(const struct fetcher *x)
{
	int sum = -EBADMSG;

	for (size_t i = x->n_mirrors > x->f.n_by_hash ? x->f.n_by_hash : 0; i < x->n_mirrors; i++) {
		int e = x->mirrors[i].error;

		if (e == -ENODATA || e == -ENOSPC || e == -EDQUOT)
			return e;
		/* whether the others have the bytes or not: it may have all of them */
		if (e == -EOPNOTSUPP && x->f.what == FETCH_PART)
			return e;
		/* there was no time to ask it */
		if (e == 0)
			e = -ETIMEDOUT;
		if (e == -EFBIG && x->mirrors[i].too_large && sum == -EBADMSG)
			sum = -EFBIG;
		if (e == -EBADMSG || e == -EFBIG)
			continue;
		/* asked to come back later than this fetch waits */
		if (e == -EBUSY || (e == -EAGAIN && x->mirrors[i].retry_after_s > 0))
			e = -ETIMEDOUT;
		if (e != -EACCES && e != -ETIMEDOUT && e != -ECONNREFUSED && e != -EHOSTUNREACH &&
		    e != -ENETUNREACH && e != -ECONNRESET)
			e = -EIO;
		if (sum == -EBADMSG || sum == -EFBIG || sum == -EIO)
			sum = e;
	}
	return sum;
}
