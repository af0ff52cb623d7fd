/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of nodes, which are the same in another process: their places in the array that
 * tree_build() has made.
 */
#include "carton/opened.h"

#include "base/digest.h"
#include "base/util.h"

uint64_t carton_number(const struct carton *c, const struct carton_node *node)
{
	const struct tree *t = c->tree;
	const struct node *n = to_node((struct carton_node *)node);

	if (n == t->root || n == t->shown)
		return 1;
	return n >= t->nodes && n < t->nodes + t->n_places ? (uint64_t)(n - t->nodes) + 2 : 0;
}

struct carton_node *carton_by_number(const struct carton *c, uint64_t number)
{
	const struct tree *t = c->tree;

	if (number == 1)
		return from_node(t->shown);
	if (number < 2 || number - 2 >= t->n_places || !t->nodes[number - 2].name)
		return NULL;
	return from_node(&t->nodes[number - 2]);
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
