/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A remote carton as a source.
 *
 * Keeps a few stretches of it that were asked for ahead (source_prefetch): the tail, the central
 * directory, an entry with its headers. So a mount costs a few requests, and a small file one.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "fetch/remote.h"
#include "base/util.h"

#define TAIL (256 * KIB)
#define MAX_HELD 32 /* stretches */

struct held {
	char *data;
	uint64_t off;
	size_t n;
	uint64_t used; /* when, in calls */
};

struct remote_source {
	struct source source;
	struct remote remote;
	int64_t mtime;
	pthread_mutex_t lock; /* guards what follows */
	struct held held[MAX_HELD];
	size_t bytes;
	uint64_t calls;
};

/* Copies from what is held; false when it is not, or not all of it. Lock held. */
static bool copy_held(struct remote_source *s, void *ret_buf, size_t n, uint64_t off)
{
	for (size_t i = 0; i < MAX_HELD; i++) {
		struct held *h = &s->held[i];

		if (!h->data || off < h->off || n > h->n || off - h->off > h->n - n)
			continue;
		if (ret_buf)
			memcpy(ret_buf, h->data + (off - h->off), n);
		h->used = ++s->calls;
		return true;
	}
	return false;
}

/* Keeps `data` (taken over) in place of what was used longest ago. Lock held. */
static void hold(struct remote_source *s, char *data, size_t n, uint64_t off)
{
	struct held *to = &s->held[0];

	for (;;) {
		struct held *oldest = NULL;

		for (size_t i = 0; i < MAX_HELD; i++) {
			struct held *h = &s->held[i];

			if (!h->data)
				to = h;
			else if (!oldest || h->used < oldest->used)
				oldest = h;
		}
		if (!to->data && s->bytes + n <= MAX_HELD_BYTES)
			break;
		if (!oldest)
			break;
		s->bytes -= oldest->n;
		free(oldest->data);
		oldest->data = NULL;
		to = oldest;
	}
	*to = (struct held){ data, off, n, ++s->calls };
	s->bytes += n;
}

static int source_read(struct source *base, void *ret_buf, size_t n, uint64_t off)
{
	struct remote_source *s = container_of(base, struct remote_source, source);
	bool found;

	if (off > base->size || n > base->size - off)
		return -ENODATA;
	pthread_mutex_lock(&s->lock);
	found = copy_held(s, ret_buf, n, off);
	pthread_mutex_unlock(&s->lock);
	return found ? 0 : remote_pread(&s->remote, ret_buf, n, off, NULL);
}

static int prefetch(struct source *base, uint64_t off, uint64_t n, uint64_t before)
{
	struct remote_source *s = container_of(base, struct remote_source, source);
	bool found;
	char *data;
	int r;

	if (off > base->size || n > base->size - off || n > MAX_HELD_BYTES / 2 || n == 0)
		return 0;
	pthread_mutex_lock(&s->lock);
	found = copy_held(s, NULL, (size_t)n, off);
	pthread_mutex_unlock(&s->lock);
	if (found)
		return 0;
	before = MIN(before, MIN(off, MAX_HELD_BYTES / 2 - n));
	off -= before;
	n += before;
	data = malloc((size_t)n);
	if (!data)
		return -ENOMEM;
	r = remote_pread(&s->remote, data, (size_t)n, off, NULL);
	if (r < 0) {
		free(data);
		return r;
	}
	pthread_mutex_lock(&s->lock);
	hold(s, data, (size_t)n, off);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static int open_stream(struct source *base, uint64_t off, uint64_t n, struct stream **ret)
{
	struct remote_source *s = container_of(base, struct remote_source, source);
	bool found;

	if (off > base->size || n > base->size - off)
		return -ENODATA;
	pthread_mutex_lock(&s->lock);
	found = n <= MAX_HELD_BYTES && copy_held(s, NULL, (size_t)n, off);
	pthread_mutex_unlock(&s->lock);
	/* a part of what is held goes by source_read() */
	return found ? source_part(base, off, n, ret) : remote_stream(&s->remote, off, n, ret);
}

static void source_free(struct source *base)
{
	struct remote_source *s = container_of(base, struct remote_source, source);

	for (size_t i = 0; i < MAX_HELD; i++)
		free(s->held[i].data);
	pthread_mutex_destroy(&s->lock);
	free((char *)s->source.version);
	free(s->remote.url);
	free(s);
}

static const struct source_ops remote_ops = { source_read, open_stream, source_free, prefetch };

/* The body of the first answer is the tail. */
static int keep_tail(struct remote_source *s, struct http_reader *body,
		     const struct http_response *answer, int64_t deadline_ms)
{
	size_t n = (size_t)MIN(TAIL, s->remote.size), have = 0;
	uint64_t off = s->remote.size - n;
	char *data = malloc(n + 1), shown[256];
	ssize_t got = 0;

	if (!data)
		return -ENOMEM;
	/* one byte more, to see that it ends there */
	while (have <= n && (got = http_read(body, data + have, n + 1 - have)) > 0) {
		have += (size_t)got;
		deadline_ms = remote_deadline(s->remote.options, deadline_ms, (size_t)got);
		http_set_deadline(body, deadline_ms);
	}
	if (got < 0 || have != n || answer->range_first != (int64_t)off) {
		free(data);
		if (got >= 0)
			carton_log(CARTON_LOG_ERROR,
				   http_url_redact(s->remote.url, shown, sizeof(shown)),
				   "the server answers with other bytes than the last ones it was "
				   "asked for");
		return got < 0 ? (int)got : -EPROTO;
	}
	hold(s, data, n, off);
	return 0;
}

int64_t remote_parse_date(const char *date)
{
	struct tm tm = { 0 };
	const char *end = strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &tm);

	return end && !*end ? timegm(&tm) : INT64_MIN;
}

static int first_request(struct remote_source *s, struct http_response *answer)
{
	struct http_request request = {
		.url = s->remote.url,
		.trust = HTTP_USER,
		.suffix = TAIL,
		.logged_once = &s->remote.told,
	};
	int64_t deadline = now_ms() + s->remote.options->timeout_ms;
	struct http_reader *body;
	char shown[256];
	int r = http_open(s->remote.options->http, &request, deadline, NULL, &body, answer);

	if (r < 0)
		return r;
	r = http_status_errno(answer->status);
	if (r == 0 && (answer->status != 206 || !remote_identify(answer, &s->remote)))
		r = -ENOTSUP;
	if (r == 0)
		r = keep_tail(s, body, answer, deadline);
	else if (r != -ENOTSUP && r != -ERANGE)
		carton_log(atomic_exchange(&s->remote.told_status, answer->status) ==
					   answer->status ?
				   CARTON_LOG_DEBUG :
				   CARTON_LOG_ERROR,
			   http_url_redact(s->remote.url, shown, sizeof(shown)),
			   "the server answers with status %d", answer->status);
	http_reader_close(body);
	return r;
}

static bool stopping(void *ctx)
{
	return atomic_load((const atomic_bool *)ctx);
}

int remote_source_open(const struct remote_options *options, const char *url, struct source **ret)
{
	struct remote_source *s = calloc(1, sizeof(*s));
	struct http_response *answer = malloc(sizeof(*answer));
	int64_t deadline = now_ms() + options->timeout_ms;
	int r = -ENOMEM;

	if (!s || !answer || !(s->remote.url = strdup(url))) {
		free(s);
		free(answer);
		return r;
	}
	pthread_mutex_init(&s->lock, NULL);
	s->source.ops = &remote_ops;
	s->source.refs = 1;
	s->source.fd = -1;
	s->remote.options = options;
	s->remote.trust = HTTP_USER;
	for (unsigned failures = 1;; failures++) {
		memset(answer, 0, sizeof(*answer));
		r = first_request(s, answer);
		if (!remote_passes(r) || failures > MAX_REMOTE_ATTEMPTS ||
		    remote_backoff(failures, answer->retry_after_s, deadline, stopping,
				   (void *)options->stopping) < 0)
			break;
	}
	/* an empty file has no last bytes: it is no carton either way */
	if (r == -ERANGE)
		r = -EBADMSG;
	/* only a strong ETag names bytes */
	if (r == 0 && s->remote.etag[0]) {
		char *version = NULL;

		if (asprintf(&version, "%s %s", s->remote.etag, url) < 0 ||
		    strlen(version) > MAX_CACHE_VALIDATOR)
			free(version);
		else
			s->source.version = version;
	}
	s->source.size = s->remote.size;
	s->mtime = remote_parse_date(answer->last_modified);
	free(answer);
	if (r < 0) {
		source_free(&s->source);
		return r == -EAGAIN ? -EIO : r;
	}
	*ret = &s->source;
	return 0;
}

int64_t remote_source_mtime(const struct source *s)
{
	return container_of(s, struct remote_source, source)->mtime;
}
