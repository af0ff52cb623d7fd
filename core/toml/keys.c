/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "toml/internal.h"
#include "base/budget.h"
#include "base/util.h"

#define FIRST_BUCKETS 64

static struct toml_node **bucket(const struct toml_keys *keys, uint64_t hash)
{
	return &keys->buckets[hash & (keys->n_buckets - 1)];
}

int toml_keys_init(struct toml_keys *keys, struct budget *budget)
{
	*keys = (struct toml_keys){ .n_buckets = FIRST_BUCKETS, .budget = budget };
	keys->root = calloc(1, sizeof(*keys->root) + 1);
	keys->buckets = calloc(FIRST_BUCKETS, sizeof(*keys->buckets));
	if (!keys->root || !keys->buckets) {
		toml_keys_finish(keys);
		return -ENOMEM;
	}
	keys->root->kind = TOML_KIND_HEADER;
	siphash_key_init(&keys->key);
	return 0;
}

void toml_keys_finish(struct toml_keys *keys)
{
	if (!keys)
		return;
	if (keys->root && keys->buckets)
		toml_keys_empty(keys, keys->root);
	free(keys->root);
	free(keys->buckets);
	*keys = (struct toml_keys){ .n_buckets = 0 };
}

/* Of a key: with its places in an array of buckets, and in the next one. */
static size_t cost(size_t len)
{
	return sizeof(struct toml_node) + len + 1 + MALLOC_SIZE + 3 * sizeof(struct toml_node *);
}

static int grow(struct toml_keys *keys)
{
	size_t i, n = keys->n_buckets, n_new = 2 * n;
	struct toml_node **old = keys->buckets, *node, *next;

	keys->buckets = calloc(n_new, sizeof(*keys->buckets));
	if (!keys->buckets) {
		keys->buckets = old;
		return -ENOMEM;
	}
	keys->n_buckets = n_new;
	for (i = 0; i < n; i++) {
		for (node = old[i]; node; node = next) {
			next = node->chain;
			node->chain = *bucket(keys, node->hash);
			*bucket(keys, node->hash) = node;
		}
	}
	free(old);
	return 0;
}

int toml_keys_get(struct toml_keys *keys, struct toml_node *parent, const char *name, size_t len,
		  struct toml_node **ret)
{
	uint64_t hash = siphash(&keys->key, parent->hash, name, len);
	struct toml_node *node;

	for (node = *bucket(keys, hash); node; node = node->chain) {
		if (node->hash == hash && node->parent == parent && node->len == len &&
		    !memcmp(node->name, name, len)) {
			*ret = node;
			return 0;
		}
	}
	if (keys->n >= TOML_MAX_KEYS || len > TOML_MAX_KEY ||
	    keys->bytes + len > TOML_MAX_KEY_BYTES)
		return -EFBIG;
	if (keys->n >= keys->n_buckets && grow(keys) < 0)
		return -ENOMEM;
	if (budget_take(keys->budget, cost(len)) < 0)
		return -EFBIG;
	node = malloc(sizeof(*node) + len + 1);
	if (!node) {
		budget_give(keys->budget, cost(len));
		return -ENOMEM;
	}
	*node = (struct toml_node){
		.parent = parent,
		.sibling = parent->child,
		.chain = *bucket(keys, hash),
		.hash = hash,
		.len = (uint32_t)len,
	};
	memcpy(node->name, name, len);
	node->name[len] = '\0';
	parent->child = node;
	*bucket(keys, hash) = node;
	keys->n++;
	keys->bytes += len;
	*ret = node;
	return 0;
}

static void drop(struct toml_keys *keys, struct toml_node *node)
{
	struct toml_node **link = bucket(keys, node->hash);

	while (*link != node)
		link = &(*link)->chain;
	*link = node->chain;
	keys->n--;
	keys->bytes -= node->len;
	budget_give(keys->budget, cost(node->len));
	free(node);
}

void toml_keys_empty(struct toml_keys *keys, struct toml_node *top)
{
	struct toml_node *node = top->child, *next;

	top->child = NULL;
	while (node) {
		next = node->child;
		if (next) { /* children first; the walk returns to node afterwards */
			node->child = NULL;
			node = next;
			continue;
		}
		next = node->sibling;
		if (!next && node->parent != top)
			next = node->parent;
		drop(keys, node);
		node = next;
	}
}
