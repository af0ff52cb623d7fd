/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects whose bytes are stored somewhere: in entries of the container, any of which will do, or
 * at the URLs of LINKS. The bytes are verified in place where they are in a local file as they are,
 * else in memory or a file of ours (into_file.c), or chunk by chunk.
 */
#include <stdlib.h>

#include "archive/container.h"
#include "archive/decode.h"
#include "base/util.h"
#include "cache/cache.h"
#include "format/links.h"
#include "content/internal.h"
#include "content/chunk_fill.h"
#include "content/entry_part.h"
#include "content/sparse.h"

struct original {
	struct object object;
	const struct entry *entry; /* the first one; NULL: none, LINKS names the object */
	struct link *link;	   /* NULL: the container has the object */
};

/* with its pointers in the hash table */
const size_t object_cost = sizeof(struct original) + MALLOC_SIZE + 2 * sizeof(struct object *);

static struct container *container_of_object(const struct object *o)
{
	return o->store->options.container;
}

static struct original *original_of(const struct object *o)
{
	return container_of(o, struct original, object);
}

/* Is it in a file of this machine? */
static bool is_local(const struct object *o)
{
	return original_of(o)->entry && !container_of_object(o)->remote;
}

uint64_t object_to_fetch(const struct object *o)
{
	const struct entry *e = object_entry(o);
	uint64_t n = object_size(o), kept = 0;
	struct cache *cache = o->store->options.cache;

	if (e && is_local(o))
		return 0;
	if (e && !plan_is_direct(e))
		n = part_to_fetch(o, e);
	else if (cache && cache_is_filling(cache, o->sha256, &kept) < 0)
		kept = 0;
	return n == OBJECT_NO_SIZE ? n : n - MIN(n, kept);
}

/* ---- chunk by chunk ---- */

/*
 * What the index says of an object that can be read in place, or of which parts can be fetched;
 * NULL: to be hashed first. Small files are fetched whole.
 */
static const struct chunks_file *in_index(const struct object *o)
{
	const struct entry *e = original_of(o)->entry;
	const struct chunks_file *c;

	if (o->late)
		return NULL;
	if (e && (e->method != METHOD_STORED || o->size <= CHUNKS_MIN_FILE ||
		  (!is_local(o) && !plan_is_direct(e))))
		return NULL;
	c = by_index_find(o, atomic_load(&o->size));
	return c && (e || c->size > SPARSE_MIN) ? c : NULL;
}

/* 0 or -errno, without bytes. */
static int use_index(struct fill *f, const struct chunks_file *c)
{
	return is_local(f->object) ? local_by_index(f, f->plan->entry, c) : by_index_fetch(f, c);
}

/* ---- small, or sealed ---- */

static int entry_get_now(const struct object *o, struct bytes *ret)
{
	return local_get_now(o, original_of(o)->entry, ret);
}

static bool original_by_seal(struct fill *f)
{
	const struct entry *e = original_of(f->object)->entry;

	return is_local(f->object) && e->method == METHOD_STORED ? local_by_seal(f, e) :
								   seal_of_cached(f);
}

/* ---- all places ---- */

static void place_done(struct fill *f, int result);

/* Does a decoded copy go to the cache? Its seal spares later mounts the decoding and the hash. */
static bool is_sealed_copy(const struct object *o, const struct entry *e)
{
	const struct object_options *options = &o->store->options;

	return e->method != METHOD_STORED && o->size >= MIN_SEALED && options->cache &&
	       options->verify && options->seals != SEALS_OFF;
}

static void try_place(struct fill *f)
{
	const struct object *o = f->object;
	const struct entry *e = f->plan->entry;
	int r;

	f->size = o->size;
	if (!is_local(o)) {
		fill_into_file(f);
	} else if (e->method == METHOD_STORED && o->size > MAX_SMALL_STORED) {
		place_done(f, local_in_place(f, e));
	} else if (is_sealed_copy(o, e) || !object_take_memory(o->store, o->size)) {
		fill_into_file(f);
	} else {
		r = local_into_memory(f, e);
		if (r < 0)
			object_give_memory(o->store, o->size);
		place_done(f, r);
	}
}

/* A file that has the hash, and is longer or shorter than everybody was told, is damaged. */
static int check_size(struct fill *f)
{
	const struct object *o = f->object;

	if (!f->plan->link || o->size == OBJECT_NO_SIZE || o->size == f->size)
		return 0;
	carton_log(CARTON_LOG_ERROR, object_name(o),
		   "%s says that it has %llu bytes, but it has %llu",
		   f->plan->link->size == o->size ? "LINKS" : CHUNKS_PATH,
		   (unsigned long long)o->size, (unsigned long long)f->size);
	bytes_finish(&f->bytes);
	return -EBADMSG;
}

/* Any place with the right bytes will do; one that failed for a passing reason may do later. */
static void place_done(struct fill *f, int result)
{
	if (result == 0)
		result = check_size(f);
	if (result == -ENODATA && is_local(f->object)) {
		carton_log(CARTON_LOG_ERROR, object_name(f->object),
			   "the carton has been cut off since it was opened");
		result = -EBADMSG;
	}
	if (result < 0 && result != -ECANCELED && result != -ESHUTDOWN) {
		if (result != -EBADMSG)
			f->error = result;
		if (plan_next_entry(f->plan)) {
			try_place(f);
			return;
		}
		result = f->error;
	}
	fill_done(f, result);
}

static void get_all(struct fill *f)
{
	const struct object *o = f->object;

	memset(&f->file, 0, sizeof(f->file));
	f->file.cached = o->ops->always_verified || o->store->options.verify;
	f->file.done = place_done;
	f->error = -EBADMSG;
	try_place(f);
}

/*
 * Without ranges, or with other bytes than the index says, all of it is fetched, and has to have
 * the hash.
 */
static void probed(struct fill *f, int result)
{
	if (result < 0)
		bytes_finish(&f->bytes);
	if (result == -EOPNOTSUPP || result == -EBADMSG)
		get_all(f);
	else
		fill_done(f, result);
}

static int begin(struct fill *f)
{
	const struct original *og = original_of(f->object);

	plan_unref(f->plan);
	f->plan = plan_new(f->object, og->entry, og->link);
	return f->plan ? 0 : -ENOMEM;
}

static void original_get_bytes(struct fill *f)
{
	const struct chunks_file *c = in_index(f->object);
	int r;

	/* who wants all bytes at once has them hashed once */
	if (fill_given_fd(f) >= 0 && is_local(f->object))
		c = NULL;
	if (c && by_index_is_doubted(f))
		return;
	r = begin(f);
	if (r < 0)
		fill_done(f, r);
	else if (!c || use_index(f, c) < 0)
		/* where that failed, hashing all says why */
		get_all(f);
	else if (!chunked_filler(f->bytes.chunks) || !f->plan->link)
		fill_done(f, 0);
	else
		chunk_fill_probe(f, probed);
}

static enum lane original_lane(const struct object *o)
{
	uint64_t size = object_size(o);

	/* a copy that is in the cache already is hashed there; a fetch waits elsewhere */
	if (in_index(o))
		return LANE_QUICK;
	return size != OBJECT_NO_SIZE && size > BULK_OBJECT ? LANE_BULK : LANE_QUICK;
}

/* ---- the size of what LINKS names ---- */

static void size_got(struct get *g, int result, struct ingested *in)
{
	struct fill *f = container_of(g, struct fill, get);

	f->size = in->size;
	/* no server says: then only all of it tells, and the cache has it for the open to come */
	if (result == -ENODATA)
		get_all(f);
	else
		fill_done(f, result);
}

static int ask_size(struct fill *f)
{
	/* also where all of it has to be fetched for that */
	f->deadline_ms = now_ms() + f->object->store->options.timeout_ms;
	f->get = (struct get){
		.plan = f->plan,
		.waits = &f->waits,
		.fill = f,
		.deadline_ms = f->deadline_ms,
		.done = size_got,
	};
	return get_start_size(&f->get);
}

/*
 * The size of a copy in the cache. Where seals are used, an unverified entry does not tell its
 * size: a seal must confirm it, unless nothing can be fetched. 0; 1: it is small, and has to be
 * hashed; -ENOENT.
 */
static int size_in_cache(struct fill *f)
{
	const struct object_options *options = &f->object->store->options;
	int fd, r = options->cache ?
			    cache_lookup(options->cache, f->object->sha256, &fd, &f->size) :
			    -ENOENT;

	if (r < 0)
		return -ENOENT;
	fd_close(fd);
	if (f->size < MIN_SEALED)
		return 1;
	if (options->seals == SEALS_USE && seal_of_cached(f)) {
		bytes_finish(&f->bytes);
		f->copied = false;
	} else if (options->seals == SEALS_USE && options->fetch) {
		return -ENOENT;
	}
	return 0;
}

static void original_get_size(struct fill *f)
{
	int r = begin(f);

	f->deadline_ms = 0;
	if (r == 0)
		r = size_in_cache(f);
	if (r == 1) {
		get_all(f);
		return;
	}
	if (r == -ENOENT) {
		r = ask_size(f);
		if (r == 0)
			return;
	}
	fill_done(f, r);
}

/* ---- adding ---- */

static void original_free(struct object *o)
{
	free(original_of(o));
}

static const struct object_ops entry_ops = {
	.get_bytes = original_get_bytes,
	.get_now = entry_get_now,
	.by_seal = original_by_seal,
	.lane = original_lane,
	.free = original_free,
	.final = true,
};

static const struct object_ops link_ops = {
	.get_bytes = original_get_bytes,
	.get_size = original_get_size,
	.by_seal = original_by_seal,
	.lane = original_lane,
	.free = original_free,
	.always_verified = true,
	.may_wait = true,
};

/* Late content: without a sha256 there is no seal, and no list of chunks. */
static const struct object_ops late_ops = {
	.get_bytes = original_get_bytes,
	.lane = original_lane,
	.free = original_free,
	.always_verified = true,
	.may_wait = true,
};

const struct entry *object_entry(const struct object *o)
{
	return o->ops == &entry_ops ? original_of(o)->entry : NULL;
}

static struct object *original_new(const struct entry *entry, struct link *link, const char *name,
				   uint64_t size)
{
	struct original *og = calloc(1, sizeof(*og));

	if (!og)
		return NULL;
	og->entry = entry;
	og->link = link;
	og->object.late = link_late(link);
	og->object.ops = entry ? &entry_ops : og->object.late ? &late_ops : &link_ops;
	og->object.name = name;
	og->object.size = size;
	return &og->object;
}

int object_add(struct object_store *s, const uint8_t sha256[SHA256_SIZE], const struct entry *entry,
	       struct object **ret)
{
	/* before the lock is taken, since others may have to give way */
	int r = budget_take(s->options.budget, object_cost);
	struct object *o;

	if (r < 0)
		return r;
	pthread_mutex_lock(&s->lock);
	o = store_find(s, sha256, entry->size);
	if (!o)
		r = store_add(s, sha256, original_new(entry, NULL, entry->name, entry->size), &o);
	else
		budget_give(s->options.budget, object_cost);
	pthread_mutex_unlock(&s->lock);
	if (r == 0)
		*ret = o;
	return r;
}

int object_add_link(struct object_store *s, const uint8_t sha256[SHA256_SIZE], const char *name,
		    struct link *link, struct object **ret)
{
	struct object *o = store_find(s, sha256, OBJECT_NO_SIZE);

	if (!o && !link)
		return -ENOENT;
	if (!o)
		return store_add(s, sha256, original_new(NULL, link, name, link->size), ret);
	*ret = o;
	return 0;
}
