/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of nodes: their places in the tree. */
#include "carton/opened.h"

#include "base/digest.h"
#include "base/util.h"

_Static_assert(CARTON_GENERATED == PLACE_GENERATED, "numbers are places");

uint64_t carton_number(const struct carton *c, const struct carton_node *node)
{
	const struct tree *t = c->tree;
	const struct node *n = to_node((struct carton_node *)node);
	uint64_t place;

	if (n == t->root || n == t->shown)
		return 1;
	place = node_place(t, n);
	if (place == PLACE_NONE)
		return 0;
	return place & PLACE_GENERATED ? place : place + 2;
}

struct carton_node *carton_by_number(const struct carton *c, uint64_t number)
{
	struct tree *t = c->tree;
	struct node *n;

	if (number == 1)
		return from_node(t->shown);
	if (number < 2)
		return NULL;
	n = tree_at(t, number & CARTON_GENERATED ? number : number - 2);
	return n ? from_node(n) : NULL;
}

static int add_to_layout(struct sha256 *s, const struct carton *c, const struct node *n)
{
	uint64_t words[] = { carton_number(c, from_node((struct node *)n)),
			     carton_number(c, from_node(n->parent)), n->kind, node_is_executable(n),
			     (uint64_t)node_mtime(n) };
	int r = sha256_update(s, words, sizeof(words));

	return r < 0 ? r : sha256_update(s, n->name, strlen(n->name) + 1);
}

int carton_layout(const struct carton *c, char ret_hex[65])
{
	const struct tree *t = c->tree;
	uint8_t hash[SHA256_SIZE];
	struct sha256 *s;
	int r = sha256_new(&s);

	if (r < 0)
		return r;
	hex_encode(c->manifest->model_hash, SHA256_SIZE, ret_hex);
	r = sha256_update(s, ret_hex, 64);
	for (size_t i = 0; r == 0 && i < t->n_places; i++)
		if (t->nodes[i].name)
			r = add_to_layout(s, c, &t->nodes[i]);
	if (r == 0)
		r = sha256_final(s, hash);
	sha256_free(s);
	if (r == 0)
		hex_encode(hash, sizeof(hash), ret_hex);
	return r;
}
