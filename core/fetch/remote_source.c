/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/remote_source.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "fetch/snapshot.h"
#include "http/http.h"

#define TAIL (256 * KIB)
#define MAX_PREFETCH (16 * MIB)	   /* bytes of one range that is fetched ahead */
#define MAX_CACHED_OPEN (32 * MIB) /* bytes of the cached ranges that stay after the open */
/* a carton has at most two URLs: one at a mirror, and the source URL */
#define REMOTE_PLACES 2

struct remote_source {
	struct source source;
	const struct fetch_options *options; /* NULL: restored */
	/* where the carton is: at a mirror, if it was opened there, then at the source URL */
	struct fetch_place places[REMOTE_PLACES];
	size_t n_places;
	struct version versions[REMOTE_PLACES]; /* versions[i]: of the file at places[i] */
	int64_t mtime;
	bool short_whole; /* the answer for the last bytes was the whole file, not over TAIL */
	bool coded;	  /* the server says that they are of a coded file */
	struct cached_ranges *ranges;
};

static struct remote_source *of(const struct source *s)
{
	return container_of(s, struct remote_source, source);
}

/* ---- fetching, while the carton is opened ---- */

/* Runs a fetch of at most `n` bytes into memory: malloc'ed, with how many there are. */
static int fetch_bytes(struct remote_source *s, struct fetch *f, uint64_t n, char **ret,
		       uint64_t *ret_n)
{
	struct source *bytes;
	uint64_t size;
	char *data;
	int r = file_memory(n, &f->dest);

	if (r < 0)
		return r;
	f->options = s->options;
	f->places = s->places;
	f->n_places = s->n_places;
	f->cancel = s->options->cancel;
	r = fetch_run(f, &size);
	if (r != 0) {
		file_abort(f->dest, false);
		return r;
	}
	r = file_commit(f->dest, NULL, size, &bytes);
	if (r < 0)
		return r;
	data = malloc(size + 1);
	r = data ? source_pread(bytes, data, size, 0) : -ENOMEM;
	source_unref(bytes);
	if (r < 0) {
		free(data);
		return r;
	}
	*ret = data;
	*ret_n = size;
	return 0;
}

/* The same, into the cached ranges, and `wanted` bytes of it into `ret_buf`. */
static int fetch_range(struct remote_source *s, struct fetch *f, uint64_t n, void *ret_buf,
		       uint64_t wanted)
{
	uint64_t size;
	char *data;
	int r = fetch_bytes(s, f, n, &data, &size);

	if (r != 0)
		return r;
	/* from here on others may take them from the ranges, which give way */
	if (wanted)
		memcpy(ret_buf, data, (size_t)MIN(wanted, size));
	return cached_ranges_add(s->ranges, data, size, f->off);
}

/* A background() of fetches. */
static bool always(void *ctx)
{
	(void)ctx;
	return true;
}

/* Fetches [off, off + n) unless it is cached. `ret_buf` gets it, unless that is NULL. */
static int cache_range(struct remote_source *s, uint64_t off, uint64_t n, void *ret_buf)
{
	struct fetch f = { .what = FETCH_PART, .off = off, .n = n, .background = always };

	if (off > s->source.size || n > s->source.size - off)
		return -ENODATA;
	if (n == 0 || cached_ranges_read(s->ranges, ret_buf, n, off))
		return 0;
	/* reading waits for an open, and nothing else */
	return s->options ? fetch_range(s, &f, n, ret_buf, ret_buf ? n : 0) : -ENETUNREACH;
}

/* ---- the source ---- */

static int source_read(struct source *base, void *ret_buf, size_t n, uint64_t off)
{
	return cache_range(of(base), off, n, ret_buf);
}

static int prefetch(struct source *base, uint64_t off, uint64_t n, uint64_t before)
{
	struct remote_source *s = of(base);

	if (!s->options || off > base->size || n > base->size - off || n > MAX_PREFETCH ||
	    cached_ranges_read(s->ranges, NULL, n, off))
		return 0;
	before = MIN(before, MIN(off, MAX_PREFETCH - n));
	return cache_range(s, off - before, n + before, NULL);
}

/* A large range, of which only a window is in memory: for checking all of a carton. */
struct window {
	struct stream stream;
	struct source *source;
	uint64_t off, end; /* of what was not fetched yet */
	char *data;
	uint64_t at, n; /* in `data` */
};

static ssize_t window_read(struct stream *stream, void *ret_buf, size_t n)
{
	struct window *w = container_of(stream, struct window, stream);
	struct remote_source *s = of(w->source);

	if (w->at == w->n && w->off < w->end) {
		struct fetch f = {
			.what = FETCH_PART,
			.background = always,
			.off = w->off,
			.n = MIN(MAX_PREFETCH, w->end - w->off),
		};
		int r;

		free(w->data);
		w->data = NULL;
		w->at = w->n = 0;
		r = fetch_bytes(s, &f, f.n, &w->data, &w->n);
		if (r < 0)
			return r;
		w->off += w->n;
	}
	n = (size_t)MIN((uint64_t)n, w->n - w->at);
	if (n > 0)
		memcpy(ret_buf, w->data + w->at, n);
	w->at += n;
	return (ssize_t)n;
}

static void window_close(struct stream *stream)
{
	struct window *w = container_of(stream, struct window, stream);

	source_unref(w->source);
	free(w->data);
	free(w);
}

static const struct stream_ops window_ops = { window_read, window_close };

static int open_window(struct source *base, uint64_t off, uint64_t n, struct stream **ret)
{
	struct window *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->stream.ops = &window_ops;
	w->source = source_ref(base);
	w->off = off;
	w->end = off + n;
	*ret = &w->stream;
	return 0;
}

static int open_stream(struct source *base, uint64_t off, uint64_t n, struct stream **ret)
{
	int r = 0;

	if (off > base->size || n > base->size - off)
		return -ENODATA;
	if (of(base)->options && n > MAX_PREFETCH &&
	    !cached_ranges_read(of(base)->ranges, NULL, n, off))
		return open_window(base, off, n, ret);
	/* all of it at once; without a network perhaps only parts are there */
	if (of(base)->options)
		r = cache_range(of(base), off, n, NULL);
	return r < 0 ? r : source_part(base, off, n, ret);
}

static void source_free(struct source *base)
{
	struct remote_source *s = of(base);

	cached_ranges_free(s->ranges);
	for (size_t i = 0; i < s->n_places; i++) {
		route_finish(&s->places[i].route);
		free((char *)s->places[i].url);
	}
	free((char *)s->source.version);
	free(s);
}

static const struct source_ops remote_ops = { source_read, open_stream, source_free, prefetch };

/* The carton is there, too. 0 or -ENOMEM. */
static int add_place(struct remote_source *s, const char *url)
{
	struct fetch_place *p = &s->places[s->n_places];
	char *copy = strdup(url);

	if (!copy)
		return -ENOMEM;
	p->url = copy;
	p->trust = HTTP_USER;
	route_init(&p->route);
	s->versions[s->n_places++].url = copy;
	return 0;
}

static int source_new(const char *url, struct remote_source **ret)
{
	struct remote_source *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->source = (struct source){ .ops = &remote_ops, .refs = 1, .fd = -1 };
	if (add_place(s, url) < 0) {
		source_free(&s->source);
		return -ENOMEM; /* cppcheck-suppress memleak; source_free() frees what has it */
	}
	*ret = s;
	return 0;
}

/* ---- opening ---- */

/* Keeps the version of an answer. 0; 1: it has no part of the file, or names no version. */
static int take_version(struct remote_source *s, const struct http_response *a)
{
	if (a->status != 206 || a->range_first < 0 || !version_identify(a, &s->versions[0]))
		return 1;
	s->mtime = a->last_modified_s;
	s->coded = a->coding[0];
	return 0;
}

static int answer_of_first(void *ctx, const struct http_response *a)
{
	return take_version(ctx, a) == 0 && a->range_first == 0 && a->range_last == 0 ? 0 : 1;
}

static int answer_of_last(void *ctx, const struct http_response *a)
{
	struct remote_source *s = ctx;
	const struct version *v = &s->versions[0];

	s->short_whole = a->status == 200 && a->length >= 0 && a->length <= (int64_t)TAIL;
	return take_version(s, a) == 0 && a->range_last == (int64_t)v->size - 1 &&
			       a->range_first == (int64_t)(v->size - MIN(TAIL, v->size)) ?
		       0 :
		       1;
}

/* Fetches the last bytes of the carton, and keeps its version. 1: the answer has other bytes. */
static int fetch_end(struct remote_source *s, struct fetch *f)
{
	struct version *v = &s->versions[0];
	char *data;
	int r;

	f->answered = answer_of_last;
	f->ctx = s;
	r = fetch_bytes(s, f, f->n, &data, &v->end_n);
	if (r != 0)
		return r;
	r = sha256_mem(data, v->end_n, v->end_sha256);
	if (r < 0) {
		free(data);
		return r;
	}
	return cached_ranges_add(s->ranges, data, v->end_n, v->size - v->end_n);
}

/*
 * Many servers have no ranges that are counted from the end: they send the whole file, other bytes,
 * or any of several errors. Then the first byte is asked for, since its answer has the size, and
 * after that the last bytes by their numbers.
 */
static int fetch_tail(struct remote_source *s)
{
	struct version *v = &s->versions[0];
	struct fetch f = { .what = FETCH_SUFFIX, .n = TAIL };
	int r = fetch_end(s, &f);
	char shown[256];

	/* so short a file is downloaded */
	if (r == 1 && s->short_whole)
		return 1;
	if (r == 1) {
		struct fetch first = { .what = FETCH_RANGE, .n = 1, .answered = answer_of_first };
		uint64_t size;
		char *data;

		first.ctx = s;
		r = fetch_bytes(s, &first, 1, &data, &size);
		if (r != 0)
			/* an empty file has no first byte */
			return r == -ERANGE ? 1 : r;
		free(data);
		f = (struct fetch){ .what = FETCH_RANGE, .n = MIN(TAIL, v->size) };
		f.off = v->size - f.n;
		r = fetch_end(s, &f);
	}
	s->places[0].version = v;
	if (r != 1)
		return r;
	return log_error(-EPROTO, http_url_redact(v->url, shown, sizeof(shown)),
			 "the server answers with other bytes than the last ones it was asked for");
}

/* What was opened is a mirror. Any version will do there: whatever comes from it has a hash. */
static int add_source_url(struct remote_source *s, const char *url)
{
	int r = add_place(s, url);

	if (r < 0)
		return r;
	s->places[0].mirror = true;
	s->versions[1].size = s->versions[0].size;
	s->places[1].version = &s->versions[1];
	return 0;
}

int remote_source_open(const struct fetch_options *options, const char *url, const char *source_url,
		       bool hashed, struct source **ret)
{
	struct remote_source *s;
	char *version = NULL, *plain;
	int r = source_new(url, &s);

	if (r < 0)
		return r;
	s->options = options;
	s->versions[0].hashed = hashed;
	s->ranges = cached_ranges_new(MAX_SNAPSHOT);
	r = s->ranges ? fetch_tail(s) : -ENOMEM;
	if (r == 0 && source_url)
		r = add_source_url(s, source_url);
	if (r != 0) {
		source_free(&s->source);
		return r;
	}
	s->source.size = s->versions[0].size;
	/* only a strong ETag names bytes; the name goes to the cache */
	plain = http_url_public(url);
	if (plain && s->versions[0].etag[0] &&
	    asprintf(&version, "%s %s", s->versions[0].etag, plain) >= 0) {
		if (strlen(version) <= MAX_CACHE_VALIDATOR)
			s->source.version = version;
		else
			free(version);
	}
	free(plain);
	*ret = &s->source;
	return 0;
}

int remote_source_restore(struct cache *cache, const char *url, struct source **ret)
{
	struct snapshot snapshot;
	struct remote_source *s;
	int r = snapshot_load(cache, url, &snapshot);

	if (r < 0)
		return r;
	r = source_new(url, &s);
	if (r < 0) {
		cached_ranges_free(snapshot.ranges);
		return r;
	}
	s->ranges = snapshot.ranges;
	s->source.size = snapshot.size;
	s->mtime = snapshot.mtime;
	*ret = &s->source;
	return 0;
}

/* ---- when it is open ---- */

void remote_source_opened(struct source *base, struct cache *cache)
{
	struct remote_source *s = of(base);
	struct snapshot snapshot = { base->size, s->mtime, s->ranges };

	if (s->options && cache)
		snapshot_save(&snapshot, cache, s->places[s->n_places - 1].url);
	cached_ranges_trim(s->ranges, MAX_CACHED_OPEN);
}

int64_t remote_source_mtime(const struct source *s)
{
	return of(s)->mtime;
}

bool remote_source_is_coded(const struct source *s)
{
	return of(s)->coded;
}

int remote_source_refresh(struct source *base, const char *url)
{
	struct remote_source *s = of(base);
	int r = s->options ? route_replace(&s->places[s->n_places - 1].route, url) : -EOPNOTSUPP;

	/* the user knows better than the mirror */
	if (r == 0 && s->n_places > 1)
		atomic_store(&s->places[0].bad, true);
	return r;
}

size_t remote_source_places(struct source *base, struct fetch_place **ret)
{
	struct remote_source *s = of(base);

	*ret = s->places;
	return s->options ? s->n_places : 0;
}

bool remote_source_cached(struct source *base, void *ret_buf, uint64_t n, uint64_t off)
{
	struct remote_source *s = of(base);

	return !atomic_load(&s->places[0].bad) && cached_ranges_read(s->ranges, ret_buf, n, off);
}
