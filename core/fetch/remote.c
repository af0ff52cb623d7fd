/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/remote.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/util.h"

#define BACKOFF_FIRST_MS 100
#define BACKOFF_MAX_MS 5000
#define STOP_CHECK_MS 20
#define MIN_RATE 1024 /* bytes a second */

bool remote_identify(const struct http_response *response, struct remote *ret)
{
	int64_t size = response->status == 206 ? response->range_total : response->length;

	if (size < 0 || response->coding[0])
		return false;
	ret->size = (uint64_t)size;
	ret->etag[0] = ret->last_modified[0] = '\0';
	if (response->strong_etag)
		strcpy(ret->etag, response->etag);
	else
		strcpy(ret->last_modified, response->last_modified);
	return true;
}

int remote_backoff(unsigned attempt, long retry_after_s, int64_t deadline_ms, bool (*stop)(void *),
		   void *ctx)
{
	int64_t pause = BACKOFF_FIRST_MS, until;
	uint32_t random = 0;

	for (unsigned i = 1; i < attempt && pause < BACKOFF_MAX_MS; i++)
		pause *= 2;
	(void)!getrandom(&random, sizeof(random), 0);
	/* half of it to all of it, so that many who failed together do not come back together */
	pause = pause / 2 + random % (pause / 2 + 1);
	pause = MAX(pause, (int64_t)retry_after_s * 1000);
	until = now_ms() + pause;
	if (deadline_ms && until >= deadline_ms)
		return -ETIMEDOUT;
	for (int64_t left; (left = until - now_ms()) > 0;) {
		if (stop && stop(ctx))
			return -ECANCELED;
		poll(NULL, 0, (int)MIN(left, STOP_CHECK_MS));
	}
	return 0;
}

/*
 * Does the answer still name the version that was opened? A 206 to a request without If-Range has all
 * that a 200 would have (RFC 9110, 15.3.7), so one that names none is not of a server that checks.
 */
static bool same_version(const struct remote *r, const struct http_response *a)
{
	if (r->etag[0])
		return strcmp(r->etag, a->etag) == 0;
	return !r->last_modified[0] || strcmp(r->last_modified, a->last_modified) == 0;
}

/* Logs a wrong answer, once for all who get the same one. */
static void tell(struct remote *r, int status, int error)
{
	char shown[256];

	if (atomic_exchange(&r->told_status, status) == status)
		return;
	http_url_redact(r->url, shown, sizeof(shown));
	if (error == -ESTALE)
		carton_log(CARTON_LOG_ERROR, shown,
			   "changed on its server, or the server no longer answers Range requests "
			   "(status %d); open it again",
			   status);
	else
		carton_log(CARTON_LOG_ERROR, shown, "the server answers with status %d", status);
}

static int check_answer(struct remote *r, const struct http_response *a, uint64_t off, size_t n)
{
	int error = http_status_errno(a->status);

	if (a->status == 206 && a->range_first == (int64_t)off &&
	    a->range_last == (int64_t)(off + n - 1) && a->range_total == (int64_t)r->size &&
	    same_version(r, a)) {
		atomic_store(&r->told_status, 0);
		return 0;
	}
	if (error == 0 || error == -ERANGE)
		error = -ESTALE;
	/* it was there: a reader must not take the file for one that the carton does not have */
	if (error == -ENOENT)
		error = -EIO;
	tell(r, a->status, error);
	return error;
}

/* Who waits for bytes, and how. */
struct waiting {
	struct remote *remote;
	struct http_cancel *cancel;
	remote_arrived_fn *arrived; /* or NULL */
	void *ctx;
	int64_t deadline_ms; /* for the next byte */
};

/* One request for [off, off+n); *ret_got counts what came, also on failure. */
static int attempt(struct waiting *w, char *buf, size_t n, uint64_t off, size_t *ret_got,
		   long *ret_retry_after)
{
	struct remote *r = w->remote;
	struct http_request request = {
		.url = r->url,
		.trust = r->trust,
		.has_range = true,
		.first = off,
		.last = off + n - 1,
		.if_match = r->etag[0] ? r->etag : NULL,
		.if_unmodified_since = !r->etag[0] && r->last_modified[0] ? r->last_modified : NULL,
		.logged_once = &r->told,
	};
	struct http_response *answer = malloc(sizeof(*answer));
	struct http_reader *stream;
	ssize_t got = 0;
	int result;

	if (!answer)
		return -ENOMEM;
	result = http_open(r->options->http, &request, w->deadline_ms, w->cancel, &stream, answer);
	if (result < 0)
		goto out;
	*ret_retry_after = answer->retry_after_s;
	result = check_answer(r, answer, off, n);
	while (result == 0 && *ret_got < n) {
		got = http_read(stream, buf + *ret_got, n - *ret_got);
		if (got <= 0)
			break;
		*ret_got += (size_t)got;
		w->deadline_ms = remote_deadline(r->options, w->deadline_ms, (size_t)got);
		http_set_deadline(stream, w->deadline_ms);
		if (w->arrived)
			w->arrived(w->ctx, (size_t)got);
	}
	if (got < 0)
		result = (int)got;
	else if (result == 0 && *ret_got < n)
		result = -ECONNRESET;
	http_reader_close(stream);
out:
	free(answer);
	return result;
}

int64_t remote_deadline(const struct remote_options *o, int64_t deadline_ms, size_t n)
{
	return MIN(now_ms() + o->timeout_ms, deadline_ms + 1 + (int64_t)n * 1000 / MIN_RATE);
}

bool remote_passes(int error)
{
	return error == -EAGAIN || error == -ECONNRESET || error == -ETIMEDOUT ||
	       error == -ECONNREFUSED || error == -EHOSTUNREACH || error == -ENETUNREACH;
}

static bool must_stop(void *ctx)
{
	const struct waiting *w = ctx;

	return atomic_load(w->remote->options->stopping) ||
	       (w->cancel && atomic_load(&w->cancel->fired));
}

int remote_read(struct remote *r, void *ret_buf, size_t n, uint64_t off, struct http_cancel *cancel,
		remote_arrived_fn *arrived, void *ctx)
{
	struct waiting w = { r, cancel, arrived, ctx, now_ms() + r->options->timeout_ms };
	char *buf = ret_buf;
	unsigned failures = 0;

	while (n > 0) {
		size_t got = 0;
		long retry_after = 0;
		int result = attempt(&w, buf, n, off, &got, &retry_after), pause;

		buf += got;
		off += got;
		n -= got;
		if (result == 0) {
			atomic_store(&r->told, false);
			continue;
		}
		if (got >= MIN_REMOTE_PROGRESS)
			failures = 0;
		if (!remote_passes(result))
			return result;
		if (++failures > MAX_REMOTE_ATTEMPTS)
			return result == -EAGAIN ? -EIO : result;
		pause = remote_backoff(failures, retry_after, w.deadline_ms, must_stop, &w);
		if (pause < 0)
			return pause == -ETIMEDOUT && result != -EAGAIN ? result : pause;
	}
	return 0;
}

int remote_pread(struct remote *r, void *ret_buf, size_t n, uint64_t off,
		 struct http_cancel *cancel)
{
	return remote_read(r, ret_buf, n, off, cancel, NULL, NULL);
}
