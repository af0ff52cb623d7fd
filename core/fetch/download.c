/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/download.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache/read.h"
#include "cache/dest.h"
#include "base/util.h"

struct download {
	const struct remote_options *options;
	struct cache *cache; /* NULL: there is none, or it has no room */
	const char *url;
	uint8_t key[SHA256_SIZE]; /* what the URL is called in the cache */
	int64_t deadline_ms;
	atomic_bool told; /* a failure was logged */
	bool whole;	  /* what an earlier download left is no part of it: do not go on with it */
	struct http_reader *body;
	struct stream stream;
};

static bool stopping(void *ctx)
{
	const struct download *d = ctx;

	return d->options && atomic_load(d->options->stopping);
}

static ssize_t body_read(struct stream *s, void *ret_buf, size_t n)
{
	struct download *d = container_of(s, struct download, stream);
	ssize_t got = http_read(d->body, ret_buf, n);

	if (got > 0) {
		d->deadline_ms = remote_deadline(d->options, d->deadline_ms, (size_t)got);
		http_set_deadline(d->body, d->deadline_ms);
	}
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

static int hash_all(struct download *d, struct stream *in, struct ingested *ret)
{
	struct ingest job = {
		.in = in,
		.size = UINT64_MAX,
		.max = MAX_FILE_SIZE,
		.hash = true,
		.ctx = d,
	};

	return ingest_run(&job, ret);
}

/* ---- one that is there already ---- */

/* An intact download of `version`, or of any when that is NULL; -ENOENT: there is none. */
static int find_earlier(struct download *d, const char *version, int *ret_fd)
{
	char note[MAX_CACHE_VALIDATOR + 1];
	uint8_t sha256[SHA256_SIZE];
	struct ingested in;
	struct source *source;
	int r;

	/* "<sha256> <version>" */
	if (!d->cache || cache_note_get(d->cache, d->key, note, sizeof(note)) < 0 ||
	    strlen(note) <= 2 * SHA256_SIZE || note[2 * SHA256_SIZE] != ' ' ||
	    !hex_decode(note, SHA256_SIZE, sha256))
		return -ENOENT;
	if (version && (!*version || strcmp(note + 2 * SHA256_SIZE + 1, version) != 0))
		return -ENOENT;
	r = cache_read(d->cache, sha256, &(struct ingest){ .size = UINT64_MAX }, &source, &in);
	if (r < 0)
		return r == -EBADMSG ? -ENOENT : r;
	*ret_fd = fd_dup(source->fd);
	source_unref(source);
	return *ret_fd < 0 ? *ret_fd : 0;
}

int download_kept(struct cache *cache, const char *url, struct source **ret)
{
	struct download d = { .cache = cache, .url = url };
	int fd = -1, r = sha256_mem(url, strlen(url), d.key);

	if (r == 0)
		r = find_earlier(&d, NULL, &fd);
	return r < 0 ? r : source_from_fd(fd, ret);
}

/* ---- one attempt ---- */

/* What names these very bytes, for who resumes: "" when nothing does. */
static const char *validator_of(const struct http_response *answer)
{
	return answer->strong_etag ? answer->etag : "";
}

/* Notes which version the URL's bytes are. */
static void note_version(struct download *d, const struct http_response *answer,
			 const uint8_t sha256[SHA256_SIZE])
{
	char note[2 * SHA256_SIZE + 1 + sizeof(answer->etag)];

	hex_encode(sha256, SHA256_SIZE, note);
	snprintf(note + 2 * SHA256_SIZE, sizeof(note) - 2 * SHA256_SIZE, " %s", version_of(answer));
	cache_note_put(d->cache, d->key, note);
}

static int open_body(struct download *d, uint64_t have, const char *etag,
		     struct http_response *answer)
{
	struct http_request request = {
		.url = d->url,
		.trust = HTTP_USER,
		.identity = true,
		.has_range = have > 0,
		.first = have,
		.last = have + MAX_FILE_SIZE,
		.if_range = have > 0 ? etag : NULL,
		.logged_once = &d->told,
	};
	int r = http_open(d->options->http, &request, d->deadline_ms, NULL, &d->body, answer);

	if (r < 0)
		return r;
	r = http_status_errno(answer->status);
	if (r == 0 && answer->status == 206 && (have == 0 || answer->range_first != (int64_t)have))
		r = -EPROTO;
	if (r == -ERANGE) {
		d->whole = true;
		r = -EAGAIN;
	}
	if (r < 0)
		http_reader_close(d->body);
	return r;
}

/* Where the body goes, and what came of it. */
struct target {
	struct dest *dest;
	uint64_t have; /* bytes of it that need not come again */
	int earlier;   /* not -1: the cache has this version already, here */
	struct ingested in;
};

/* Makes the file hold what comes before the body: all it has for a 206, else nothing. */
static int prepare(const struct target *t, const struct http_response *answer)
{
	int r = 0;

	if (answer->status != 206)
		r = dest_restart(t->dest, validator_of(answer));
	if (r == 0 && answer->length > 0)
		r = dest_reserve(t->dest, t->have + (uint64_t)answer->length, true);
	return r;
}

static int take_body(struct download *d, struct target *t)
{
	struct stream *in;
	int r = dest_stream(t->dest, t->have, &d->stream, &in);

	if (r == 0) {
		r = hash_all(d, in, &t->in);
		stream_close(in);
	}
	return r;
}

/* Goes on with what the fill has, if the server still has that version, else begins anew. */
static int attempt(struct download *d, struct target *t, struct http_response *answer)
{
	char *etag = calloc(1, MAX_CACHE_VALIDATOR + 1);
	int r = etag ? 0 : -ENOMEM;

	t->have = 0;
	if (r == 0 && !d->whole)
		r = dest_partial(t->dest, &t->have, etag, MAX_CACHE_VALIDATOR + 1);
	if (r == 0)
		r = open_body(d, t->have, etag, answer);
	free(etag);
	if (r < 0)
		return r;
	if (answer->status != 206)
		t->have = 0;
	r = t->have ? -ENOENT : find_earlier(d, version_of(answer), &t->earlier);
	if (r == -ENOENT) {
		r = prepare(t, answer);
		if (r == 0)
			r = take_body(d, t);
	}
	http_reader_close(d->body);
	return r;
}

/* Tries again as long as it may help: what moves forward may fail often. */
static int attempts(struct download *d, struct target *t, struct http_response *answer)
{
	uint64_t best = 0;

	for (unsigned failures = 1;; failures++) {
		int r;

		d->deadline_ms = now_ms() + d->options->timeout_ms;
		r = attempt(d, t, answer);
		if (t->have >= best + MIN_REMOTE_PROGRESS) {
			best = t->have;
			failures = 1;
		}
		if (!remote_passes(r) || failures > MAX_REMOTE_ATTEMPTS ||
		    remote_backoff(failures, answer->retry_after_s, 0, stopping, d) < 0)
			return r;
	}
}

/* ---- all of it ---- */

/* Becomes the one process that downloads this; NULL where there is no cache to share it by. */
static int begin(struct download *d, struct dest **ret)
{
	int r;

	*ret = NULL;
	if (!d->cache)
		return 0;
	while ((r = dest_cache(d->cache, d->key, ret)) == -EAGAIN) {
		r = cache_wait(d->cache, d->key, (int)d->options->timeout_ms, NULL);
		/* the process that downloads it was stopped */
		if (r < 0)
			return r == -ETIMEDOUT ? 0 : r;
	}
	return r;
}

/* Ends the destination. */
static int into(struct download *d, struct target *t, struct http_response *answer,
		struct source **ret)
{
	bool cached = dest_is_cached(t->dest);
	int r = attempts(d, t, answer);

	if (r < 0 || t->earlier >= 0) {
		dest_abort(t->dest, r < 0 && r != -ENOSPC);
		return r < 0 ? r : source_from_fd(t->earlier, ret);
	}
	r = dest_commit(t->dest, t->in.sha256, t->in.size, ret);
	if (r == 0 && cached && *version_of(answer))
		note_version(d, answer, t->in.sha256);
	return r;
}

static int into_temporary(struct download *d, struct target *t, struct http_response *answer,
			  struct source **ret)
{
	int r = dest_file(d->cache, NULL, &t->dest);

	if (r < 0 && d->cache)
		r = dest_file(NULL, NULL, &t->dest);
	return r < 0 ? r : into(d, t, answer, ret);
}

int download_carton(const struct remote_options *options, struct cache *cache, const char *url,
		    struct source **ret, int64_t *ret_mtime)
{
	struct http_response *answer = calloc(1, sizeof(*answer));
	struct target t = { .earlier = -1 };
	struct download d = {
		.options = options,
		.cache = cache,
		.url = url,
		.stream.ops = &body_ops,
	};
	char shown[256];
	int r;

	if (!answer)
		return -ENOMEM;
	carton_log(CARTON_LOG_INFO, http_url_redact(url, shown, sizeof(shown)),
		   "the server does not answer Range requests: downloading the whole carton");
	r = sha256_mem(url, strlen(url), d.key);
	if (r == 0)
		r = begin(&d, &t.dest);
	if (r == 0)
		r = t.dest ? into(&d, &t, answer, ret) : -ENOSPC;
	if (r == -ENOSPC)
		r = into_temporary(&d, &t, answer, ret);
	if (r == 0)
		*ret_mtime = remote_parse_date(answer->last_modified);
	free(answer);
	return r == -EAGAIN ? -EIO : r;
}
