/* SPDX-License-Identifier: Apache-2.0 */
#include "content/span_choice.h"

#include <stdlib.h>

#include "base/util.h"
#include "cache/cache.h"
#include "fetch/remote_source.h"
#include "content/internal.h"

/* how many a reader gets at once where there is no cache to keep them */
#define MAX_UNKEPT 64
/* the longest time that all of what is wanted for certain takes */
#define WANTED_MS 4000

bool span_is_left(const struct object_store *store, const struct entry *e)
{
	return remote_source_cached(store->options.source, NULL, entry_end(e) - e->header,
				    e->header);
}

/* Has it been fetched, here or by an earlier mount? */
static bool is_here(const struct object *o)
{
	struct object_store *store = o->store;
	bool here;

	pthread_mutex_lock(&store->lock);
	here = o->bytes.kind != BYTES_NONE || o->state == OBJECT_CORRUPT;
	pthread_mutex_unlock(&store->lock);
	return here || cache_has(store->options.cache, o->sha256);
}

/*
 * The object of an entry that is to be fetched with others, as somebody wants it, or, if it is
 * `near`, soon will; or NULL. Lock held.
 */
static struct object *neighbour_of(struct object_store *store, const struct entry *e, bool near)
{
	const struct object_options *options = &store->options;
	struct object *o;

	if (run_has_seen(&store->runs.run, e) || span_is_left(store, e))
		return NULL;
	o = options->object_of(options->ctx, e, near);
	if (!near && (!o || !atomic_load(&o->wanted)))
		return NULL;
	run_see(&store->runs.run, e);
	return o && !is_here(o) ? o : NULL;
}

/* Lock held. */
static bool add(struct span_choice *c, const struct entry *e, struct object *o)
{
	if (array_room(c->list, &c->cap, c->n + 1) < 0)
		return false;
	c->list[c->n].entry = e;
	c->list[c->n++].object = o;
	return true;
}

/* All that is `near`, and what is wanted of what is `far`. Lock held. */
static void add_around(struct span_choice *c, struct object *o, const struct run_window *near,
		       const struct run_window *far)
{
	struct object_store *store = o->store;
	const struct object_options *options = &store->options;
	const struct run *run = &store->runs.run;
	/* without a cache few are kept until they are opened */
	size_t most = options->cache && options->verify ? SIZE_MAX : MAX_UNKEPT;
	size_t low, high, near_low, near_high;

	run_around(run, near, &near_low, &near_high);
	run_around(run, far, &low, &high);
	for (size_t i = low; i < high; i++) {
		const struct entry *e = run->order[i];
		struct object *other = NULL;

		if (i != near->at && most > 0)
			other = neighbour_of(store, e, near_low <= i && i < near_high);
		if (i == near->at)
			other = o;
		else
			most -= other != NULL;
		if (other && !add(c, e, other))
			return;
	}
}

void span_choose(struct object *o, const struct entry *e, struct span_choice *ret)
{
	struct run *run = &o->store->runs.run;
	struct run_window near, far;

	if (run_follow(run, e, &near) < 0)
		return;
	far = near;
	if (atomic_load(&o->wanted))
		far.before = far.after = run_most(run, WANTED_MS);
	ret->request = run_request(MAX(far.before, far.after));
	if (far.before + far.after > 0)
		add_around(ret, o, &near, &far);
}
