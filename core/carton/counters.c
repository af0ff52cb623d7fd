/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of an open carton: carton_counters(), carton_waiting(). */
#include "carton/opened.h"

#include <stdlib.h>

#include "base/util.h"
#include "cache/cache.h"

static bool is_local(const struct carton *c, const struct node *n)
{
	const struct entry *e = n->has_body ? NULL : n->file.entry;
	const struct object *o = node_known_object(n);

	return e ? !c->container->remote : !o || object_entry(o);
}

/* ---- what the cache has, looked for on a worker, as its disk may keep one waiting ---- */

static bool find_in_cache(const struct carton *c, const struct node *n)
{
	const struct object *o = node_known_object(n);
	uint8_t sha256[SHA256_SIZE];

	if (!o)
		manifest_hash(n->name, sha256);
	else if (!object_cache_name(o, sha256))
		return false;
	return cache_lists(c->cache, sha256, node_size(n));
}

static void look(struct job *job)
{
	struct carton *c = container_of(job, struct carton, look);
	const struct tree *t = c->tree;
	int64_t began = now_ms(), ended;
	atomic_bool *found = c->in_cache ? c->in_cache : calloc(t->n_places + 1, sizeof(*found));

	for (size_t i = 0; found && i < t->n_places && !cancel_fired(&c->stop); i++) {
		const struct node *n = &t->nodes[i];

		if (n->name && n->kind == NODE_FILE && !n->has_body && !is_local(c, n))
			atomic_store(&found[i], find_in_cache(c, n));
	}
	c->in_cache = found;
	ended = now_ms();
	/* whoever asks again and again has a tenth of a thread for it at most */
	atomic_store(&c->look_after_ms, ended + 9 * (ended - began));
	atomic_store(&c->looking, false);
}

/* Has the last search found the file in the cache? */
static bool is_in_cache(const struct carton *c, const struct node *n)
{
	const struct tree *t = c->tree;
	const atomic_bool *found = c->in_cache;

	return found && n >= t->nodes && n < t->nodes + t->n_places && found[n - t->nodes];
}

void carton_look_in_cache(struct carton *c)
{
	if (!c->cache || (!c->container->remote && !c->links) ||
	    now_ms() < atomic_load(&c->look_after_ms) || atomic_exchange(&c->looking, true))
		return;
	c->look.run = look;
	workers_submit(c->workers, &c->look, LANE_QUICK);
}

/* ---- counting ---- */

static bool is_verified(struct object *o)
{
	enum object_state state = object_known_state(o);

	return state == OBJECT_VERIFIED || state == OBJECT_SEALED;
}

static void count_file(const struct carton *c, const struct node *n, struct carton_counters *ret)
{
	struct object *o = node_known_object(n);
	uint64_t size = node_size(n) == OBJECT_NO_SIZE ? 0 : node_size(n);
	const struct entry *e = n->has_body ? NULL : n->file.entry;
	bool local = is_local(c, n);
	/* MANIFEST was read when the carton was opened */
	bool verified = o ? is_verified(o) : !e;
	uint64_t came = 0;
	uint8_t sha256[SHA256_SIZE];

	ret->late_files += o && !object_known_sha256(o, sha256);
	ret->files++;
	ret->bytes += size;
	if (o && !object_entry(o) && !c->bare) {
		ret->linked_files++;
		ret->linked_bytes += size;
		ret->unsized_files += node_size(n) == OBJECT_NO_SIZE;
	}
	if (verified) {
		ret->verified_files++;
		ret->verified_bytes += size;
	} else if (o && object_known_state(o) == OBJECT_CORRUPT) {
		ret->corrupt_files++;
		ret->corrupt_bytes += size;
	}
	if (!local && !verified)
		came = is_in_cache(c, n) ? size : o ? MIN(object_here(o), size) : 0;
	if (!local)
		ret->cached_bytes += verified ? size : came;
	if (!local && !verified)
		ret->remote_bytes += size - came;
}

void carton_counters(struct carton *c, struct carton_counters *ret)
{
	const struct node *root = c->tree->root;
	struct carton_counters k = { .hashed_bytes = object_store_ingested(c->store) };
	struct object_traffic traffic;
	struct object_progress p;

	for (struct node *n = c->tree->root; n; n = tree_next(root, n)) {
		struct object *o = node_known_object(n);

		if (n->kind == NODE_FILE)
			count_file(c, n, &k);
		if (o && object_progress(o, &p))
			k.waiting += p.waiting;
	}
	object_store_traffic(c->store, &traffic);
	k.fetched_bytes = traffic.fetched;
	k.cache_hits = traffic.cache_hits;
	k.cache_misses = traffic.cache_misses;
	*ret = k;
	carton_look_in_cache(c);
}

void carton_waiting(struct carton *c, carton_waiting_fn *fn, void *ctx)
{
	const struct node *root = c->tree->root;
	char path[MAX_PATH_LEN + 1];
	struct object_progress p;

	for (struct node *n = c->tree->root; n; n = tree_next(root, n)) {
		struct object *o = node_known_object(n);

		if (!o || !object_progress(o, &p) || p.waiting == 0)
			continue;
		fn(ctx, &(struct carton_waiting){
				.path = tree_path(n, path),
				.fetching = p.fetching,
				.done = p.done,
				.size = node_size(n) == OBJECT_NO_SIZE ? 0 : node_size(n),
				.opens = p.waiting,
			});
	}
}
