/* SPDX-License-Identifier: Apache-2.0 */
/* The maker for what LINKS lists: fetched into a copy, and verified as it comes. */
#include <stdlib.h>

#include "base/util.h"
#include "cache/cache.h"
#include "fetch/fetcher.h"
#include "fetch/mirrors.h"
#include "format/links.h"
#include "object/internal.h"
#include "object/partial.h"

struct maker_link {
	struct maker maker;
	struct link *link;
};

struct link_copy {
	struct copy copy;
	char **urls;	     /* of the fetch */
	int64_t deadline_ms; /* for a size, which has to be known by then; or 0 */
};

static struct link *link_of(const struct object *o)
{
	return container_of(o->maker, struct maker_link, maker)->link;
}

/* A fetch for a making, which ends when that is cancelled. 0 or -ENOMEM. */
static int fetch_of(struct link_copy *lc, struct fetch *ret)
{
	struct making *m = lc->copy.making;
	const struct object *o = m->object;
	struct link *link = link_of(o);
	size_t n;
	int r;

	free(lc->urls);
	lc->urls = NULL;
	r = mirrors_urls(o->store->options.mirrors, o->sha256, object_name(o), link->urls,
			 link->n_urls, &lc->urls, &n);
	*ret = (struct fetch){
		.options = o->store->options.fetch,
		.cancel = &m->cancel,
		.urls = lc->urls,
		.n_urls = n + link->n_urls,
		.n_by_hash = n,
		.first = &link->first,
		.trust = HTTP_LINKS,
		.ctx = lc,
	};
	return r;
}

/* ---- bytes ---- */

static void fetched(void *ctx, int result, struct ingested *in)
{
	copy_filled(&((struct link_copy *)ctx)->copy, result, in);
}

static void fill_copy(struct copy *c, struct dest *dest)
{
	struct making *m = c->making;
	struct link_copy *lc = container_of(c, struct link_copy, copy);
	struct ingested in = { 0 };
	struct fetch f;
	int r = fetch_of(lc, &f);

	f.what = FETCH_FILE;
	f.n = object_size(m->object) != OBJECT_NO_SIZE ? object_size(m->object) : 0;
	/* the chunk index says how long it is; what a server has said may be wrong */
	f.max = m->object->size != OBJECT_NO_SIZE ? m->object->size : 0;
	f.deadline_ms = lc->deadline_ms;
	f.sha256 = m->object->sha256;
	f.hash = true;
	f.tagger = m->object->store->tagger;
	f.dest = dest;
	f.progress = making_count;
	f.arrived = making_arrived;
	f.progress_ctx = m;
	f.done = fetched;
	if (r == 0)
		r = f.options ? fetch_start(&f) : copy_offline(m);
	if (r < 0)
		copy_filled(c, r, &in);
}

static void copy_done(struct copy *c, int result)
{
	struct making *m = c->making;
	const struct object *o = m->object;
	struct link_copy *lc = container_of(c, struct link_copy, copy);

	free(lc->urls);
	free(lc);
	/* a file that has the hash, and is longer or shorter than everybody was told */
	if (result == 0 && o->size != OBJECT_NO_SIZE && o->size != m->size) {
		carton_log(CARTON_LOG_ERROR, object_name(o),
			   CHUNKS_PATH " says that it has %llu bytes, but it has %llu",
			   (unsigned long long)o->size, (unsigned long long)m->size);
		bytes_finish(&m->bytes);
		result = -EBADMSG;
	}
	making_done(m, result);
}

static struct link_copy *copy_new(struct making *m)
{
	struct link_copy *lc = calloc(1, sizeof(*lc));

	if (!lc)
		making_done(m, -ENOMEM);
	else
		lc->copy = (struct copy){
			.making = m,
			.cached = true,
			.fill = fill_copy,
			.done = copy_done,
		};
	return lc;
}

/* Small files are fetched whole. */
static const struct chunks_file *in_index(const struct object *o)
{
	const struct chunks_file *f = indexed_find(o, atomic_load(&o->size));

	return f && f->size > PARTIAL_MIN ? f : NULL;
}

static void get_all(struct making *m)
{
	struct link_copy *lc = copy_new(m);

	if (lc)
		copy_start(&lc->copy);
}

/*
 * Without ranges, or with other bytes than the index says, all of it is fetched, and has to have
 * the hash.
 */
static void probed(struct making *m, int result)
{
	if (result < 0)
		bytes_finish(&m->bytes);
	if (result == -EOPNOTSUPP || result == -EBADMSG)
		get_all(m);
	else
		making_done(m, result);
}

static void link_get_bytes(struct making *m)
{
	struct object *o = m->object;
	const struct partial_options options = {
		.object = o,
		.file = in_index(o),
		.link = link_of(o),
	};

	if (options.file && indexed_is_doubted(m))
		return;
	if (!options.file || indexed_fetch(m, &options) < 0)
		get_all(m);
	else if (m->hash_job)
		making_done(m, 0);
	else
		partial_probe(m, probed);
}

/* ---- the size ---- */

static void size_fetched(void *ctx, int result, struct ingested *in)
{
	struct link_copy *lc = ctx;

	lc->copy.making->size = in->size;
	/* no server says: then only all of it tells, and the cache has it for the open to come */
	if (result == -ENODATA)
		copy_start(&lc->copy);
	else
		copy_done(&lc->copy, result);
}

static int ask_size(struct link_copy *lc)
{
	struct fetch f;
	int r = fetch_of(lc, &f);

	if (r < 0)
		return r;
	if (!f.options)
		return copy_offline(lc->copy.making);
	lc->deadline_ms = now_ms() + f.options->timeout_ms;
	f.what = FETCH_SIZE;
	f.deadline_ms = lc->deadline_ms;
	f.done = size_fetched;
	return fetch_start(&f);
}

/*
 * The size of a copy in the cache. A damaged one must not tell its size: a large one has to be
 * sealed, unless nobody else can be asked. 0; 1: it is small, and has to be hashed; -ENOENT.
 */
static int size_in_cache(struct making *m)
{
	const struct object_options *options = &m->object->store->options;
	int fd, r = options->cache ?
			    cache_lookup(options->cache, m->object->sha256, &fd, &m->size) :
			    -ENOENT;

	if (r < 0)
		return -ENOENT;
	fd_close(fd);
	if (m->size < MIN_SEALED)
		return 1;
	if (options->seals == SEALS_USE && seal_of_cached(m)) {
		bytes_finish(&m->bytes);
		m->copied = false;
	} else if (options->seals == SEALS_USE && options->fetch) {
		return -ENOENT;
	}
	return 0;
}

static void link_get_size(struct making *m)
{
	struct link_copy *lc = copy_new(m);
	int r;

	if (!lc)
		return;
	r = size_in_cache(m);
	if (r == 1) {
		copy_start(&lc->copy);
		return;
	}
	if (r < 0) {
		r = ask_size(lc);
		if (r == 0)
			return;
	}
	copy_done(&lc->copy, r);
}

static enum lane link_lane(const struct object *o)
{
	uint64_t size = object_size(o);

	/* a copy that is in the cache already is hashed there; a fetch waits elsewhere */
	if (in_index(o))
		return LANE_QUICK;
	return size != OBJECT_NO_SIZE && size > BULK_OBJECT ? LANE_BULK : LANE_QUICK;
}

static void link_free(struct maker *maker)
{
	free(container_of(maker, struct maker_link, maker));
}

static const struct maker_ops link_ops = {
	.get_bytes = link_get_bytes,
	.get_size = link_get_size,
	.by_seal = seal_of_cached,
	.lane = link_lane,
	.free = link_free,
	.always_verified = true,
	.may_wait = true,
};

int object_add_link(struct object_store *s, const uint8_t sha256[SHA256_SIZE], const char *name,
		    struct link *link, struct object **ret)
{
	struct object *o = store_find(s, sha256, OBJECT_NO_SIZE);
	struct maker_link *ml;

	if (o) {
		*ret = o;
		return 0;
	}
	if (!link)
		return -ENOENT;
	ml = malloc(sizeof(*ml));
	if (!ml)
		return -ENOMEM;
	*ml = (struct maker_link){ { &link_ops }, link };
	return store_add(s, sha256, name, OBJECT_NO_SIZE, &ml->maker, ret);
}
