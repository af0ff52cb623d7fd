/* SPDX-License-Identifier: Apache-2.0 */
#include "download.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ingest.h"
#include "util.h"

struct download {
	const struct remote_options *options;
	struct cache *cache;
	const char *url;
	uint8_t key[SHA256_SIZE]; /* what the URL is called in the cache */
	int64_t deadline_ms;
	struct http_stream *body;
	struct stream stream;
};

static bool stopping(void *ctx)
{
	const struct download *d = ctx;

	return atomic_load(d->options->stopping);
}

static ssize_t body_read(struct stream *s, void *ret_buf, size_t n)
{
	struct download *d = container_of(s, struct download, stream);
	ssize_t got = http_read(d->body, ret_buf, n);

	if (got > 0)
		http_set_deadline(d->body, now_ms() + d->options->timeout_ms);
	return got;
}

static void body_close(struct stream *s)
{
	(void)s;
}

static const struct stream_ops body_ops = { body_read, body_close };

/* What the server calls this version: an ETag or a date; "" when it does not. */
static const char *version_of(const struct http_response *answer)
{
	return answer->etag[0] ? answer->etag : answer->last_modified;
}

static int hash_to(struct download *d, struct stream *in, int fd, struct ingested *ret)
{
	struct ingest job = {
		.in = in,
		.size = UINT64_MAX,
		.max = MAX_FILE_SIZE,
		.hash = true,
		.fd = fd,
		.stop = stopping,
		.ctx = d,
	};

	return ingest_run(&job, ret);
}

/* A download of this very version that is in the cache and intact; -ENOENT: there is none. */
static int find_earlier(struct download *d, const struct http_response *answer, int *ret_fd)
{
	char note[MAX_CACHE_VALIDATOR + 1], *version;
	uint8_t sha256[SHA256_SIZE];
	struct ingested in = { 0 };
	struct source *source;
	struct stream *stream;
	int fd, r;

	/* "<sha256> <version>" */
	if (!d->cache || !*version_of(answer) ||
	    cache_note_get(d->cache, d->key, note, sizeof(note)) < 0)
		return -ENOENT;
	version = note + 2 * SHA256_SIZE;
	if (strlen(note) <= 2 * SHA256_SIZE || *version++ != ' ' ||
	    !hex_decode(note, SHA256_SIZE, sha256) || strcmp(version, version_of(answer)) != 0)
		return -ENOENT;
	r = cache_lookup(d->cache, sha256, &fd, NULL);
	if (r < 0)
		return -ENOENT;
	r = fd_dup(fd);
	if (r >= 0)
		r = source_from_fd(r, &source);
	if (r == 0) {
		r = source_stream(source, 0, source->size, &stream);
		if (r == 0) {
			r = hash_to(d, stream, -1, &in);
			stream_close(stream);
		}
		source_unref(source);
	}
	if (r == 0 && memcmp(in.sha256, sha256, SHA256_SIZE) != 0) {
		cache_drop(d->cache, sha256, fd);
		r = -ENOENT;
	}
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

/* Takes the body into the cache, and notes which version it is. */
static int into_cache(struct download *d, const struct http_response *answer, int *ret_fd)
{
	char note[2 * SHA256_SIZE + 1 + sizeof(answer->etag)];
	struct ingested in = { 0 };
	struct cache_fill *fill;
	int r;

	/* another process may be at it: two downloads are better than none */
	r = d->cache ? cache_begin(d->cache, d->key, &fill) : -EAGAIN;
	if (r < 0)
		return -EAGAIN;
	r = cache_fill_restart(fill, NULL);
	if (r == 0 && answer->length > 0)
		r = cache_fill_reserve(fill, (uint64_t)answer->length);
	if (r == -ENOSPC) {
		cache_fill_abort(fill, false);
		return -EAGAIN;
	}
	if (r == 0)
		r = hash_to(d, &d->stream, cache_fill_fd(fill), &in);
	if (r == 0)
		r = cache_fill_publish_as(fill, in.sha256, in.size, ret_fd);
	if (r < 0) {
		cache_fill_abort(fill, false);
		return r;
	}
	hex_encode(in.sha256, SHA256_SIZE, note);
	snprintf(note + 2 * SHA256_SIZE, sizeof(note) - 2 * SHA256_SIZE, " %s", version_of(answer));
	if (*version_of(answer))
		cache_note_put(d->cache, d->key, note);
	return 0;
}

static int into_temporary(struct download *d, int *ret_fd)
{
	struct ingested in = { 0 };
	int fd = -1, r = cache_tmpfile(d->cache, &fd);

	if (r < 0 && d->cache)
		r = cache_tmpfile(NULL, &fd);
	if (r == 0)
		r = hash_to(d, &d->stream, fd, &in);
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

static int attempt(struct download *d, struct http_response *answer, int *ret_fd)
{
	struct http_request request = {
		.url = d->url,
		.trust = HTTP_USER,
		.identity = true,
		.deadline_ms = d->deadline_ms,
	};
	int r = http_open(d->options->http, &request, NULL, &d->body, answer);

	if (r < 0)
		return r;
	r = http_status_errno(answer->status);
	if (r == 0)
		r = find_earlier(d, answer, ret_fd);
	if (r == -ENOENT && http_status_errno(answer->status) == 0) {
		r = into_cache(d, answer, ret_fd);
		if (r == -EAGAIN)
			r = into_temporary(d, ret_fd);
	}
	http_close(d->body);
	return r;
}

int download_carton(const struct remote_options *options, struct cache *cache, const char *url,
		    struct source **ret, int64_t *ret_mtime)
{
	struct http_response *answer = calloc(1, sizeof(*answer));
	struct download d = {
		.options = options,
		.cache = cache,
		.url = url,
		.stream.ops = &body_ops,
		.deadline_ms = now_ms() + options->timeout_ms,
	};
	char shown[256];
	int fd, r;

	if (!answer)
		return -ENOMEM;
	carton_log(CARTON_LOG_INFO, http_url_redact(url, shown, sizeof(shown)),
		   "the server does not answer Range requests: downloading the whole carton");
	r = sha256_mem(url, strlen(url), d.key);
	for (unsigned failures = 1; r == 0; failures++) {
		r = attempt(&d, answer, &fd);
		if (!remote_passes(r) || failures > MAX_REMOTE_ATTEMPTS ||
		    remote_backoff(failures, answer->retry_after_s, 0, stopping, &d) < 0)
			break;
		d.deadline_ms = now_ms() + options->timeout_ms;
		r = 0;
	}
	if (r == 0) {
		*ret_mtime = remote_parse_date(answer->last_modified);
		r = source_from_fd(fd, ret);
	}
	free(answer);
	return r == -EAGAIN ? -EIO : r;
}
