/* SPDX-License-Identifier: Apache-2.0 */
#include "content/late.h"

#include <stdlib.h>

#include "base/limits.h"
#include "base/util.h"
#include "cache/read.h"
#include "format/links.h"
#include "http/http.h"
#include "content/internal.h"

bool object_known_sha256(const struct object *o, uint8_t ret[SHA256_SIZE])
{
	const struct late *l = o->late;

	if (l && !atomic_load(&l->known))
		return false;
	memcpy(ret, l ? l->sha256 : o->sha256, SHA256_SIZE);
	return true;
}

bool object_cache_name(const struct object *o, uint8_t ret[SHA256_SIZE])
{
	struct cache *cache = o->store->options.cache;
	char hint[MAX_CACHE_VALIDATOR + 1];

	return object_known_sha256(o, ret) ||
	       (cache && cache_hint_get(cache, o->sha256, hint, sizeof(hint)) == 0 &&
		strlen(hint) == 2 * SHA256_SIZE && hex_decode(hint, SHA256_SIZE, ret));
}

void late_keep(const struct object *o)
{
	char hint[2 * SHA256_SIZE + 1];
	uint8_t sha256[SHA256_SIZE];

	if (!object_known_sha256(o, sha256))
		return;
	hex_encode(sha256, SHA256_SIZE, hint);
	cache_hint_put(o->store->options.cache, o->sha256, hint);
}

/* ---- comparing ---- */

/* Keeps the first sha256. False: these bytes have another one, although they have the git id. */
static bool learn(const struct object *o, const uint8_t sha256[SHA256_SIZE])
{
	struct late *l = o->late;
	bool same;

	pthread_mutex_lock(&o->store->lock);
	if (!atomic_load(&l->known))
		memcpy(l->sha256, sha256, SHA256_SIZE);
	atomic_store(&l->known, true);
	same = memcmp(l->sha256, sha256, SHA256_SIZE) == 0;
	pthread_mutex_unlock(&o->store->lock);
	return same;
}

static int compare(const struct object *o, const void *data, const struct ingested *in)
{
	uint8_t id[SHA1_SIZE], sha256[SHA256_SIZE];
	int r = git_blob_id(data, in->size, id);

	if (r == 0)
		r = sha256_mem(data, in->size, sha256);
	if (r < 0)
		return r;
	if (memcmp(id, o->late->git_id, SHA1_SIZE) != 0)
		return -EBADMSG;
	/* somebody has written to the file between the two passes */
	if (memcmp(sha256, in->sha256, SHA256_SIZE) != 0)
		return -EBADMSG;
	return learn(o, sha256) ? 0 : -EBADMSG;
}

/* Reads from `source`, or from `file` if that is NULL. */
static int check(const struct object *o, struct source *source, struct file *file,
		 const struct ingested *in)
{
	struct budget *budget = o->store->options.budget;
	char *data;
	int r = -ENOMEM;

	if (in->size > MAX_LISTED_SMALL)
		return -EBADMSG;
	if (!budget_hold(budget, in->size))
		return -ENOMEM;
	data = malloc(in->size + 1);
	if (data)
		r = source ? source_pread(source, data, in->size, 0) :
			     file_read(file, data, in->size, 0);
	if (r == 0)
		r = compare(o, data, in);
	free(data);
	budget_drop(budget, in->size);
	return r;
}

/* Frees the tags of a check that has failed. Returns its result. */
static int checked(int r, struct ingested *in)
{
	if (r < 0) {
		free(in->tags);
		*in = (struct ingested){ 0 };
	}
	return r;
}

int late_check(const struct object *o, struct file *file, struct ingested *in)
{
	return checked(check(o, NULL, file, in), in);
}

void late_log_wrong(const struct object *o, const char *url)
{
	char id[2 * SHA1_SIZE + 1], shown[256];

	hex_encode(o->late->git_id, SHA1_SIZE, id);
	carton_log(CARTON_LOG_ERROR, o->name,
		   "%s sends other bytes than the listing of the repository says, whose id in git "
		   "is %s",
		   http_url_redact(url, shown, sizeof(shown)), id);
}

/* Anyone who can write to the cache can have a hint name an object that takes hours to hash. */
static int check_size(struct cache *cache, const uint8_t sha256[SHA256_SIZE])
{
	uint64_t size;
	int fd, r = cache_lookup(cache, sha256, &fd, &size);

	if (r < 0)
		return r;
	fd_close(fd);
	return size > MAX_LISTED_SMALL ? -ENOENT : 0;
}

int late_from_cache(const struct fill *f, const struct ingest *how, struct source **ret,
		    struct ingested *ret_in)
{
	const struct object *o = f->object;
	struct cache *cache = o->store->options.cache;
	struct ingested in = { 0 };
	struct source *source;
	uint8_t sha256[SHA256_SIZE];
	int r = object_cache_name(o, sha256) ? check_size(cache, sha256) : -ENOENT;

	if (r == 0)
		r = cache_read(cache, sha256, how, &source, &in);
	if (r < 0)
		return r;
	r = checked(check(o, source, NULL, &in), &in);
	if (r < 0) {
		/* the bytes have the sha256 that the hint says, but not the git id */
		if (r == -EBADMSG)
			cache_hint_drop(cache, o->sha256);
		source_unref(source);
		return r;
	}
	*ret = source;
	*ret_in = in;
	return 0;
}
