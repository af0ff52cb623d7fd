/* SPDX-License-Identifier: Apache-2.0 */
#include "object/partial.h"

#include <stdlib.h>
#include <unistd.h>

#include "archive/container.h"
#include "base/util.h"
#include "cache/dest.h"
#include "fetch/fetcher.h"
#include "fetch/remote_source.h"

/* the validator of a partial file of chunks, in place of an ETag: each chunk has a hash */
#define VALIDATOR "chunks"
#define MAX_FLIGHTS 32
/* readahead: at most this share of what was read in order, and at most so many bytes */
#define AHEAD_SHARE 8
#define AHEAD_MAX (8 * MIB)

/* Chunks [first, end), which somebody fetches now; end 0: unused. */
struct flight {
	uint64_t first, end;
};

struct partial {
	struct object *object;
	const struct entry *entry;
	const struct chunks_file *file;
	struct chunked_bytes bytes;

	pthread_mutex_t lock;	 /* guards the rest */
	pthread_cond_t changed;	 /* a flight has ended */
	struct cache_fill *fill; /* NULL: an unnamed file, or published */
	struct flight flights[MAX_FLIGHTS];
	bool located;
	uint64_t data;	    /* where the entry's data begins in the carton, once located */
	uint64_t next, run; /* the chunk behind the last one asked for; how many came in order */
};

static const struct object_options *options_of(const struct partial *p)
{
	return &p->object->store->options;
}

/* ---- fetching ---- */

/* Fetches [off, off + n) of the carton, and waits. */
static int fetch_range(const struct partial *p, uint64_t off, uint64_t n, struct source **ret)
{
	const struct object_options *o = options_of(p);
	struct fetch f = {
		.options = o->remote,
		.cancel = &p->object->store->stop,
		.what = FETCH_RANGE,
		.trust = HTTP_USER,
		.off = off,
		.n = n,
	};
	struct ingested in;
	int r;

	f.remote = o->remote ? remote_source_version(o->source) : NULL;
	if (!f.remote)
		return -ENETUNREACH;
	r = dest_memory(n, &f.dest);
	if (r < 0)
		return r;
	r = fetch_run(&f, &in);
	if (r == 0)
		return dest_commit(f.dest, NULL, in.size, ret);
	dest_abort(f.dest, false);
	return r;
}

/* The data's offset is in the local header. */
static int locate(struct partial *p, uint64_t *ret_data)
{
	const struct entry *e = p->entry;
	struct source *head;
	uint64_t off;
	int r;

	pthread_mutex_lock(&p->lock);
	*ret_data = p->data;
	r = p->located;
	pthread_mutex_unlock(&p->lock);
	if (r)
		return 0;
	r = fetch_range(p, e->header, entry_end(e) - e->header - e->stored, &head);
	if (r < 0)
		return r;
	r = container_locate_in(options_of(p)->container, e, head, &off);
	source_unref(head);
	if (r < 0)
		return r;
	*ret_data = e->header + off;
	pthread_mutex_lock(&p->lock);
	p->data = *ret_data;
	p->located = true;
	pthread_mutex_unlock(&p->lock);
	return 0;
}

static int put_chunks(const struct partial *p, struct chunked *c, struct flight f,
		      struct source *got)
{
	uint64_t size = p->file->chunk_size;
	char *data = malloc((size_t)size);
	int r = data ? 0 : -ENOMEM;
	bool all = false;

	for (uint64_t i = f.first; i < f.end && r >= 0; i++) {
		uint64_t at = (i - f.first) * size;

		r = source_pread(got, data, (size_t)MIN(size, got->size - at), at);
		if (r == 0)
			r = chunked_put(c, &p->bytes, i, data);
		all |= r == 1;
	}
	free(data);
	if (all)
		object_complete(p->object);
	return r < 0 ? r : 0;
}

static int fetch_chunks(struct partial *p, struct chunked *c, struct flight f)
{
	uint64_t from = f.first * p->file->chunk_size;
	uint64_t n = MIN(f.end * p->file->chunk_size, p->file->size) - from, data;
	struct cache *cache = options_of(p)->cache;
	struct source *got;
	int r = locate(p, &data);

	/* without room in the cache, the file still grows while the disk has some, as an unnamed one would */
	if (r == 0 && cache && cache_reserve(cache, n) < 0 &&
	    !dest_disk_has_room(p->bytes.source->fd, n, UINT64_MAX))
		r = -ENOSPC;
	if (r == 0)
		r = fetch_range(p, data + from, n, &got);
	if (r == -ECANCELED || r == -ESHUTDOWN)
		return -ENOTCONN; /* the mount ends */
	if (r < 0) {
		carton_log(
			CARTON_LOG_ERROR, object_name(p->object),
			r == -ENETUNREACH ?
				"bytes %llu to %llu are not in the cache, and nothing is fetched "
				"when offline: %s" :
				"bytes %llu to %llu cannot be fetched now: %s",
			(unsigned long long)from, (unsigned long long)(from + n - 1), strerror(-r));
		return r;
	}
	r = put_chunks(p, c, f, got);
	source_unref(got);
	/* the server's bytes are wrong, not those that are here: they may be asked for again */
	return r == -EBADMSG ? -EIO : r;
}

/* ---- who fetches what ---- */

static bool in_flight(const struct partial *p, uint64_t i)
{
	for (size_t k = 0; k < MAX_FLIGHTS; k++)
		if (i >= p->flights[k].first && i < p->flights[k].end)
			return true;
	return false;
}

static struct flight *unused(struct partial *p)
{
	for (size_t k = 0; k < MAX_FLIGHTS; k++)
		if (p->flights[k].end == 0)
			return &p->flights[k];
	return NULL;
}

/* Chunk `i`, and what follows and is not there, for who reads in order. Lock held. */
static struct flight plan(struct partial *p, const struct chunked *c, uint64_t i)
{
	uint64_t n_chunks = chunks_count(p->file), end = i + 1, most;

	p->run = i == p->next ? p->run : 0;
	most = MIN(p->run / AHEAD_SHARE, AHEAD_MAX / p->file->chunk_size);
	while (end < n_chunks && end - i < most && !chunked_is_verified(c, end) &&
	       !in_flight(p, end))
		end++;
	p->run += end - i;
	p->next = end;
	return (struct flight){ i, end };
}

/* A get() of a chunk_origin. Waits at most as long as a fetch may take: each ends by its deadline. */
static int get_chunk(void *ctx, struct chunked *c, uint64_t i)
{
	struct partial *p = ctx;
	int64_t timeout_ms = options_of(p)->timeout_ms, end_ms = now_ms() + timeout_ms;
	struct flight *f;
	bool failed = false;
	int r = 0;

	pthread_mutex_lock(&p->lock);
	/* another one's fetch may fail: then this one tries, while it has time */
	while (in_flight(p, i) || !(f = unused(p))) {
		failed |= in_flight(p, i);
		pthread_cond_wait(&p->changed, &p->lock);
	}
	if (!chunked_is_verified(c, i) && failed && timeout_ms && now_ms() >= end_ms) {
		r = -ETIMEDOUT;
	} else if (!chunked_is_verified(c, i)) {
		*f = plan(p, c, i);
		pthread_mutex_unlock(&p->lock);
		r = fetch_chunks(p, c, *f);
		pthread_mutex_lock(&p->lock);
		*f = (struct flight){ 0 };
		pthread_cond_broadcast(&p->changed);
	}
	pthread_mutex_unlock(&p->lock);
	/* what was fetched ahead may be wrong, and this right */
	return r < 0 && chunked_is_verified(c, i) ? 0 : r;
}

/* ---- the file ---- */

static void complete(void *ctx)
{
	object_complete(((struct partial *)ctx)->object);
}

/* The whole is right: others find it under its hash. Best effort. */
static void publish(void *ctx)
{
	struct partial *p = ctx;
	int fd;

	pthread_mutex_lock(&p->lock);
	if (p->fill && cache_fill_publish_as(p->fill, p->object->sha256, p->file->size, &fd) == 0) {
		p->fill = NULL;
		fd_close(fd);
	}
	pthread_mutex_unlock(&p->lock);
}

static void partial_free(void *ctx)
{
	struct partial *p = ctx;

	cache_fill_abort(p->fill, true);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static const struct chunk_origin origin = { get_chunk, complete, publish, partial_free };

/* A partial of that size, whatever is in it: it is hashed before use. */
static int adopt(struct partial *p)
{
	char validator[MAX_CACHE_VALIDATOR + 1];
	uint64_t size = p->file->size, len;
	int r = cache_fill_partial(p->fill, &len, validator, sizeof(validator));

	if (r == 0 && len == size && strcmp(validator, VALIDATOR) == 0)
		return 0;
	r = cache_fill_restart(p->fill, VALIDATOR);
	if (r == 0 && ftruncate(cache_fill_fd(p->fill), (off_t)size) < 0)
		r = -errno;
	return r < 0 ? r : cache_fill_progress(p->fill, size);
}

/* Its name in the cache is no sha256 of content: nobody finds it as an object. */
static int open_fill(struct partial *p)
{
	uint8_t name[sizeof(VALIDATOR) + SHA256_SIZE], key[SHA256_SIZE];
	struct cache *cache = options_of(p)->cache;
	int r;

	memcpy(name, VALIDATOR, sizeof(VALIDATOR));
	memcpy(name + sizeof(VALIDATOR), p->object->sha256, SHA256_SIZE);
	r = cache ? sha256_mem(name, sizeof(name), key) : -ENOENT;
	if (r == 0)
		r = cache_begin(cache, key, &p->fill);
	if (r == 0)
		r = adopt(p);
	if (r == 0)
		r = fd_dup(cache_fill_fd(p->fill));
	if (r >= 0)
		return r;
	/* the bytes go elsewhere: this file must not be published */
	cache_fill_abort(p->fill, true);
	p->fill = NULL;
	return r;
}

static int open_file(struct partial *p, struct source **ret)
{
	int fd = open_fill(p), r = 0;

	if (fd < 0)
		r = cache_tmpfile(options_of(p)->cache, &fd);
	if (r < 0)
		return r;
	if (ftruncate(fd, (off_t)p->file->size) < 0) {
		r = -errno;
		fd_close(fd);
		return r;
	}
	return source_from_fd(fd, ret);
}

int partial_open(struct object *o, const struct entry *e, const struct chunks_file *f,
		 struct bytes *ret)
{
	struct bytes bytes = { .kind = BYTES_FILE };
	struct partial *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->object = o;
	p->entry = e;
	p->file = f;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, NULL);
	r = open_file(p, &bytes.source);
	if (r == 0) {
		bytes.tags = calloc((size_t)((f->size - 1) / CHUNK_SIZE) + 1, TAG_SIZE);
		r = bytes.tags ? chunked_new(&o->store->index, f, o->name, &bytes.chunks) : -ENOMEM;
	}
	if (r < 0) {
		partial_free(p);
		bytes_free(&bytes);
		return r;
	}
	p->bytes = (struct chunked_bytes){ bytes.source, 0, bytes.tags, o->store->tagger };
	chunked_set_origin(bytes.chunks, &origin, p);
	*ret = bytes;
	return 0;
}
