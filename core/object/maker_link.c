/* SPDX-License-Identifier: Apache-2.0 */
/* The maker for what LINKS lists: fetched into a copy, and verified as it comes. */
#include <stdlib.h>

#include "base/util.h"
#include "cache/cache.h"
#include "format/links.h"
#include "object/internal.h"
#include "object/partial.h"

struct maker_link {
	struct maker maker;
	struct link *link;
};

static struct link *link_of(const struct object *o)
{
	return container_of(o->maker, struct maker_link, maker)->link;
}

/* ---- bytes ---- */

static void copy_done(struct copy *c, int result)
{
	struct making *m = c->making;
	const struct object *o = m->object;

	free(c);
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

static struct copy *copy_new(struct making *m)
{
	struct copy *c = calloc(1, sizeof(*c));

	if (!c)
		making_done(m, -ENOMEM);
	else
		*c = (struct copy){ .making = m, .cached = true, .done = copy_done };
	return c;
}

/* Small files are fetched whole. */
static const struct chunks_file *in_index(const struct object *o)
{
	const struct chunks_file *f = indexed_find(o, atomic_load(&o->size));

	return f && f->size > PARTIAL_MIN ? f : NULL;
}

static void get_all(struct making *m)
{
	struct copy *c = copy_new(m);

	if (c)
		copy_start(c);
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
	const struct chunks_file *f = in_index(o);
	int r;

	if (f && indexed_is_doubted(m))
		return;
	r = making_plan(m, NULL, link_of(o));
	if (r < 0)
		making_done(m, r);
	else if (!f || indexed_fetch(m, f) < 0)
		get_all(m);
	else if (m->hash_job)
		making_done(m, 0);
	else
		partial_probe(m, probed);
}

/* ---- the size ---- */

static void size_got(struct get *g, int result, struct ingested *in)
{
	struct copy *c = container_of(g, struct copy, get);

	c->making->size = in->size;
	/* no server says: then only all of it tells, and the cache has it for the open to come */
	if (result == -ENODATA)
		copy_start(c);
	else
		copy_done(c, result);
}

static int ask_size(struct copy *c)
{
	const struct object_options *options = &c->making->object->store->options;

	c->get = (struct get){
		.plan = c->making->plan,
		.waits = &c->making->waits,
		.making = c->making,
		/* also where all of it has to be fetched for that */
		.deadline_ms = now_ms() + options->timeout_ms,
		.done = size_got,
	};
	return get_start_size(&c->get);
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
	struct copy *c = copy_new(m);
	int r;

	if (!c)
		return;
	r = making_plan(m, NULL, link_of(m->object));
	if (r == 0)
		r = size_in_cache(m);
	if (r == 1) {
		copy_start(c);
		return;
	}
	if (r == -ENOENT) {
		r = ask_size(c);
		if (r == 0)
			return;
	}
	copy_done(c, r);
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
