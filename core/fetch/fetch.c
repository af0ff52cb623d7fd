/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/fetch.h"

#include <stdlib.h>

#include "fetch/internal.h"
#include "base/util.h"

/* ---- one attempt ---- */

/* What there is no room for goes elsewhere, or is given up: either way it shows where it came from. */
static void tell_no_room(const struct fetch *f, const struct mirror *m)
{
	char shown[256];

	carton_log(CARTON_LOG_WARNING, http_url_redact(m->url, shown, sizeof(shown)),
		   dest_is_cached(f->dest) ?
			   "there is no room for it in the cache: stopped after %llu bytes" :
			   "there is no room for it on the disk: stopped after %llu bytes",
		   (unsigned long long)dest_end(f->dest));
}

static int try_mirror(struct fetch *f, struct mirror *m, struct ingested *ret)
{
	char want[2 * SHA256_SIZE + 1], found[2 * SHA256_SIZE + 1], shown[256];
	struct ingested in = { 0 };
	struct ingest job = {
		.size = UINT64_MAX,
		.max = MAX_FILE_SIZE,
		.tagger = f->tagger,
		.hash = true,
		.cancel = f->token,
		.ctx = f->ctx,
		.progress = f->progress,
	};
	int r = fetch_open(f, m, &job.in);

	if (r == 0) {
		r = ingest_run(&job, &in);
		stream_close(job.in);
	}
	if (r == -ENOSPC || r == -EDQUOT)
		tell_no_room(f, m);
	if (r == 0 && memcmp(in.sha256, f->link->sha256, SHA256_SIZE) != 0) {
		hex_encode(f->link->sha256, SHA256_SIZE, want);
		hex_encode(in.sha256, SHA256_SIZE, found);
		carton_log(m->wrong ? CARTON_LOG_DEBUG : CARTON_LOG_ERROR,
			   http_url_redact(m->url, shown, sizeof(shown)),
			   "has other bytes than MANIFEST says: sha256 %s instead of %s", found,
			   want);
		/* what was kept of it is no use to anyone */
		dest_restart(f->dest, NULL);
		r = -EBADMSG;
	}
	if (r < 0) {
		free(in.tags);
		return r;
	}
	*ret = in;
	return 0;
}

/* ---- all mirrors ---- */

/* Decides what a failed try means for the mirror; true: it may be asked again at once. */
static bool judge(struct mirror *m, int error)
{
	m->error = error;
	if (error == -EBADMSG || error == -EFBIG) {
		bool again = !m->wrong;

		m->out = m->wrong;
		m->wrong = m->whole = true;
		return again;
	}
	if (error == -ESTALE) {
		m->out = m->whole;
		m->whole = true;
		return !m->out;
	}
	m->out = !remote_passes(error);
	return false;
}

/* Once for each mirror: http.c logs what fails below a status, try_mirror() a wrong hash. */
static void tell(struct mirror *m)
{
	char shown[256];

	if (atomic_exchange(&m->told, true))
		return;
	if (m->error == -ENOENT || m->error == -EACCES || m->error == -EAGAIN ||
	    m->error == -EPROTO)
		carton_log(CARTON_LOG_WARNING, http_url_redact(m->url, shown, sizeof(shown)),
			   "cannot be fetched from there: %s",
			   m->error == -EAGAIN ? "the server asks to come back later" :
						 strerror(-m->error));
}

/*
 * The one error to give for all: one that may pass is better than one that says the bytes are wrong
 * everywhere, which must be true of all of them.
 */
static int sum_up(const struct mirror *mirrors, size_t n)
{
	int sum = -EBADMSG;

	for (size_t i = 0; i < n; i++) {
		int e = mirrors[i].error;

		/* a size: one that does not say it still has the file; elsewhere there may be room */
		if (e == -ENODATA || e == -ENOSPC || e == -EDQUOT)
			return e;
		/* there was no time to ask it */
		if (e == 0)
			e = -ETIMEDOUT;
		if (e == -EBADMSG || e == -EFBIG)
			continue;
		/* asked to come back later than this open waits */
		if (e == -EAGAIN && mirrors[i].retry_after_s > 0)
			e = -ETIMEDOUT;
		if (e != -EACCES && e != -ETIMEDOUT && e != -ECONNREFUSED && e != -EHOSTUNREACH &&
		    e != -ENETUNREACH && e != -ECONNRESET)
			e = -EIO;
		if (sum == -EBADMSG || sum == -EIO)
			sum = e;
	}
	return sum;
}

static bool ends_all(int error)
{
	return error == -ECANCELED || error == -ESHUTDOWN || error == -ENOMEM;
}

typedef int try_fn(struct fetch *f, struct mirror *m, void *ret);

/* A mirror that does not answer leaves as much time for each of those behind it. */
static int64_t share_of_time(const struct fetch *f, const struct mirror *mirrors, size_t n,
			     size_t at, size_t n_left)
{
	int64_t now = now_ms(), left = MAX(f->deadline_ms - now, 0);
	size_t sharers = 0;

	for (size_t i = 0; i < n_left; i++)
		sharers += !mirrors[(at + i) % n].out;
	return now + left / (int64_t)MAX(sharers, 1);
}

/* Tries all that are left, once: 0, or what ends it; 1 when all have failed for now. */
static int go_round(struct fetch *f, struct mirror *mirrors, size_t n, try_fn *try, void *ret)
{
	size_t first = atomic_load(&f->link->first) % n;

	for (size_t i = 0; i < n && now_ms() < f->deadline_ms; i++) {
		size_t at = (first + i) % n;
		struct mirror *m = &mirrors[at];
		bool again = !m->out;

		while (again) {
			int r;

			m->deadline_ms = share_of_time(f, mirrors, n, at, n - i);
			r = cancel_fired(f->token) ? -ECANCELED : try(f, m, ret);

			if (r == 0)
				atomic_store(&f->link->first, at);
			if (r == 0 || ends_all(r))
				return r;
			again = judge(m, r);
			tell(m);
		}
	}
	return 1;
}

/* How long to wait at least before any mirror can be asked again, in s; -1: there is no use. */
static long soonest(const struct mirror *mirrors, size_t n)
{
	long soonest = -1;

	for (size_t i = 0; i < n; i++) {
		long wait = MAX(mirrors[i].retry_after_s, 0);

		if (mirrors[i].error == -ENODATA)
			return -1;
		if (!mirrors[i].out && (soonest < 0 || wait < soonest))
			soonest = wait;
	}
	return soonest;
}

static bool stopped(void *ctx)
{
	const struct fetch *f = ctx;

	return cancel_fired(f->token);
}

static int try_all(struct fetch *f, try_fn *try, void *ret)
{
	size_t n = f->link->n_urls;
	struct mirror *mirrors = calloc(n, sizeof(*mirrors));
	int r = 1;

	if (!mirrors)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		mirrors[i].url = f->link->urls[i];
	for (unsigned round = 1; r == 1; round++) {
		long wait;

		r = go_round(f, mirrors, n, try, ret);
		if (r != 1)
			break;
		wait = soonest(mirrors, n);
		r = wait < 0 || round == MAX_REMOTE_ATTEMPTS ?
			    -ETIMEDOUT :
			    remote_backoff(round, wait, f->deadline_ms, stopped, f);
		if (r == -ETIMEDOUT)
			r = sum_up(mirrors, n);
		else if (r == 0)
			r = 1;
	}
	free(mirrors);
	return r;
}

static int try_object(struct fetch *f, struct mirror *m, void *ret)
{
	return try_mirror(f, m, ret);
}

int fetch_object(struct fetch *f, struct ingested *ret)
{
	return try_all(f, try_object, ret);
}

/* ---- sizes ---- */

/*
 * One question: a HEAD, or a GET of the first byte. *ret_size stays where the answer does not say,
 * *ret_status where there is none.
 */
static int ask_size(struct fetch *f, struct mirror *m, bool head, uint64_t *ret_size,
		    int *ret_status)
{
	struct http_request request = {
		.url = m->url,
		.trust = HTTP_LINKS,
		.method = head ? HTTP_HEAD : HTTP_GET,
		.identity = true,
		.has_range = !head,
		.first = 0,
		.last = 0,
		.logged_once = &m->told,
	};
	struct http_response *answer = malloc(sizeof(*answer));
	struct http_reader *stream;
	struct remote found;
	int r;

	if (!answer)
		return -ENOMEM;
	r = http_open(f->remote->http, &request, m->deadline_ms, f->cancel, &stream, answer);
	/* a part of a coded body, which says nothing of what it is decoded */
	if (r == -EOPNOTSUPP)
		r = -ENODATA;
	if (r == 0) {
		m->retry_after_s = answer->retry_after_s;
		r = http_status_errno(answer->status);
		*ret_status = answer->status;
		/* the one byte of an empty file is out of its range */
		if (r == -ERANGE && answer->range_total == 0) {
			*ret_size = 0;
			r = 0;
		} else if (r == 0) {
			r = remote_identify(answer, &found) ? 0 : -ENODATA;
			if (r == 0)
				*ret_size = found.size;
		}
		http_reader_close(stream);
	}
	free(answer);
	return r;
}

/*
 * What only the whole file can tell now. A server may fail at a HEAD, or at a part, and have the file
 * all the same: its failures are those of the fetch to come, which tries again. One that says when to
 * come back is taken at its word.
 */
static bool only_fetching_tells(const struct mirror *m, int status, int error)
{
	return status >= 400 && error != -EACCES && error != -ENOENT && m->retry_after_s <= 0;
}

static int try_size(struct fetch *f, struct mirror *m, void *ret)
{
	int status = 0, r = -ENODATA;
	char shown[256];

	m->retry_after_s = 0;
	if (!m->no_head)
		r = ask_size(f, m, true, ret, &status);
	/* not every server knows HEAD, and a URL may be signed for GET only */
	m->no_head = r < 0 && (status >= 400 || r == -ENODATA || r == -EPROTO || r == -ECONNRESET);
	if (m->no_head && (r != -EAGAIN || m->retry_after_s <= 0)) {
		status = 0;
		r = ask_size(f, m, false, ret, &status);
	}
	if (!only_fetching_tells(m, status, r))
		return r;
	if (!atomic_exchange(&m->told, true))
		carton_log(CARTON_LOG_WARNING, http_url_redact(m->url, shown, sizeof(shown)),
			   "does not say how long the file is: status %d", status);
	return -ENODATA;
}

int fetch_size(struct fetch *f, uint64_t *ret_size)
{
	return try_all(f, try_size, ret_size);
}
