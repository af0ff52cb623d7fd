/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of carton.h for the cache alone, without a carton. */
#include <stdio.h>
#include <sys/stat.h>

#include "cache/read.h"
#include "carton.h"
#include "base/own.h"
#include "base/util.h"

static int open_cache(const struct carton_cache_options *options, bool make, struct cache **ret)
{
	struct carton_paths paths = { 0 };
	struct cache *cache;
	int r = cache_find(options->dir, make, &cache);

	if (r == -ENOENT)
		return log_error(r, options->dir, "there is no cache here%s",
				 options->dir ? "" :
						": neither in $XDG_CACHE_HOME/cartonfs nor in "
						"~/.cache/cartonfs");
	/* any other failure was logged */
	if (r < 0)
		return r;
	paths.cache = cache_directory(cache);
	r = options->confine ? options->confine(NULL, &paths) : 0;
	if (r < 0) {
		cache_close(cache);
		return r;
	}
	r = cache_start(cache, options->size);
	if (r < 0)
		cache_close(cache);
	else
		*ret = cache;
	return r;
}

struct listing {
	int (*fn)(void *ctx, const struct carton_cache_object *object);
	void *ctx;
};

static int list_one(void *ctx, const struct cache_object *object)
{
	const struct listing *l = ctx;
	struct carton_cache_object shown = { .size = object->size,
					     .used = object->used,
					     .seal = object->kind == CACHE_SEAL,
					     .partial = object->kind == CACHE_PARTIAL,
					     .path = object->path,
					     .source = object->source };

	hex_encode(object->sha256, SHA256_SIZE, shown.sha256);
	return l->fn(l->ctx, &shown);
}

int carton_cache_list(const struct carton_cache_options *options,
		      int (*fn)(void *ctx, const struct carton_cache_object *object), void *ctx)
{
	struct listing l = { fn, ctx };
	struct cache *cache;
	int r = open_cache(options, false, &cache);

	if (r < 0)
		return r;
	r = cache_list(cache, list_one, &l);
	cache_close(cache);
	return r;
}

int carton_cache_gc(const struct carton_cache_options *options, uint64_t target,
		    uint64_t *ret_freed)
{
	struct cache *cache;
	int r = open_cache(options, false, &cache);

	if (r < 0)
		return r;
	r = cache_gc(cache, target, ret_freed);
	cache_close(cache);
	return r;
}

/* The objects whose hashes begin with these digits. */
struct beginning {
	const char *digits;
	size_t n;
	uint8_t sha256[SHA256_SIZE]; /* of the last one */
};

static int compare_beginning(void *ctx, const struct cache_object *object)
{
	struct beginning *b = ctx;
	char hex[2 * SHA256_SIZE + 1];

	hex_encode(object->sha256, SHA256_SIZE, hex);
	if (object->kind != CACHE_OBJECT || strncasecmp(hex, b->digits, strlen(b->digits)) != 0)
		return 0;
	b->n++;
	memcpy(b->sha256, object->sha256, SHA256_SIZE);
	return 0;
}

/* The hash that begins with `digits`, at most 64 of them. 0, -ENOENT, or logged. */
static int complete_hash(struct cache *cache, const char *digits, uint8_t ret[SHA256_SIZE])
{
	struct beginning b = { .digits = digits };
	int r;

	if (strlen(digits) == 2 * SHA256_SIZE)
		return hex_decode(digits, SHA256_SIZE, ret) ? 0 : -EINVAL;
	r = cache_list(cache, compare_beginning, &b);
	if (r == 0 && b.n > 1)
		return log_error(-ENOTUNIQ, digits,
				 "%zu hashes in the cache begin so: more digits are needed", b.n);
	if (r == 0)
		memcpy(ret, b.sha256, SHA256_SIZE);
	return r < 0 ? r : b.n ? 0 : -ENOENT;
}

int carton_cache_path(const struct carton_cache_options *options, const char *sha256,
		      char *ret_path, size_t n)
{
	size_t len = strspn(sha256, "0123456789abcdefABCDEF");
	uint8_t hash[SHA256_SIZE];
	struct cache *cache;
	int r;

	if (sha256[len] || len < CARTON_CACHE_DIGITS || len > 2 * SHA256_SIZE)
		return -EINVAL;
	r = open_cache(options, false, &cache);
	if (r < 0)
		return r;
	r = complete_hash(cache, sha256, hash);
	if (r == 0)
		r = cache_path(cache, hash, ret_path, n);
	cache_close(cache);
	return r == -ENOENT ? log_error(r, sha256, "is not in the cache") : r;
}

/* ---- verify ---- */

struct verify {
	struct cache *cache;
	carton_progress_fn *progress;
	void *ctx;
	uint64_t done, total;
	ssize_t dropped;
};

static int add_size(void *ctx, const struct cache_object *object)
{
	struct verify *v = ctx;

	v->total += object->kind == CACHE_OBJECT ? object->size : 0;
	return 0;
}

static void count(void *ctx, uint64_t bytes)
{
	struct verify *v = ctx;

	v->done += bytes;
	if (v->progress)
		v->progress(v->ctx, v->done, MAX(v->total, v->done));
}

static int verify_one(void *ctx, const struct cache_object *object)
{
	const struct timespec used[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = object->used } };
	const struct ingest how = { .size = UINT64_MAX, .progress = count, .ctx = ctx };
	struct verify *v = ctx;
	struct source *source;
	struct ingested in;
	int r;

	/* the bytes of a partial are hashed once all of them have come */
	if (object->kind == CACHE_PARTIAL)
		return 0;
	r = object->kind == CACHE_SEAL ? cache_seal_check(v->cache, object->name) :
					 cache_read(v->cache, object->sha256, &how, &source, &in);
	if (r == 0 && object->kind == CACHE_OBJECT) {
		/* a check is not a use: the entry keeps its last use */
		futimens(source->fd, used);
		source_unref(source);
	}
	/* the failure was logged */
	if (r == -EBADMSG)
		v->dropped++;
	return r == -ENOENT || r == -EBADMSG ? 0 : r;
}

ssize_t carton_cache_verify(const struct carton_cache_options *options,
			    carton_progress_fn *progress, void *ctx)
{
	struct verify v = { .progress = progress, .ctx = ctx };
	int r = open_cache(options, false, &v.cache);

	if (r < 0)
		return r;
	v.dropped = (ssize_t)cache_clean(v.cache);
	r = cache_list(v.cache, add_size, &v);
	if (r == 0)
		r = cache_list(v.cache, verify_one, &v);
	cache_close(v.cache);
	return r < 0 ? r : v.dropped;
}

int carton_cache_directory(const struct carton_cache_options *options, char *ret_path, size_t n)
{
	struct cache *cache;
	int r = open_cache(options, true, &cache);

	if (r < 0)
		return r;
	if ((size_t)snprintf(ret_path, n, "%s", cache_directory(cache)) >= n)
		r = -ENAMETOOLONG;
	cache_close(cache);
	return r;
}

int carton_check_own(int fd, char ret_why[CARTON_WHY])
{
	_Static_assert(CARTON_WHY == OWN_WHY, "the same buffer");
	return own_check(fd, false, ret_why);
}
