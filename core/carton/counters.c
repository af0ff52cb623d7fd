/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of an open carton: carton_counters(), carton_waiting(). */
#include "carton/opened.h"

#include "base/util.h"

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
	bool local = e ? !c->container->remote : !o || object_entry(o);
	/* MANIFEST was read when the carton was opened */
	bool verified = o ? is_verified(o) : !e;
	uint64_t came = 0;

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
	if (!local && !verified && o)
		came = MIN(object_here(o), size);
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
