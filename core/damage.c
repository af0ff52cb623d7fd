/* SPDX-License-Identifier: Apache-2.0 */
#include "damage.h"

/* Bytes of the object, or what was made of it. */
static bool shows(const struct node *file, const struct object *o)
{
	/* an entry without an object was never opened */
	if (!file->has_body)
		return __atomic_load_n(&file->file.object, __ATOMIC_ACQUIRE) == o;
	for (size_t i = 0; i < node_n_extents(file); i++) {
		const struct object *shown = node_extent(file, i).object;

		if (shown && (shown == o || object_made_of(shown, o)))
			return true;
	}
	return false;
}

/* Below `top`, also in generated directories that somebody has looked at. */
static void tell(struct carton *c, const struct node *top, const struct object *o)
{
	for (struct node *n = tree_next(top, (struct node *)top); n; n = tree_next(top, n)) {
		if (n->kind == NODE_DIR && n->gated &&
		    object_state(node_gate(n)) == OBJECT_VERIFIED)
			tell(c, n, o);
		else if (n->kind == NODE_FILE && shows(n, o))
			c->damaged(c->damaged_ctx, from_node(n));
	}
}

void damage_found(void *carton, const struct object *o)
{
	struct carton *c = carton;

	if (c->damaged)
		tell(c, c->tree->root, o);
}
