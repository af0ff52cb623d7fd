/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the nodes of sorted paths: one array, in which the children of a directory follow each
 * other, directory after directory. A directory that is not filled yet is a range of the paths.
 */
#include <stdlib.h>

#include "base/util.h"
#include "tree/tree.h"

/* The nodes that are added to the root later: MANIFEST and views. */
#define SPARE 2

void tree_count(const struct tree_paths *paths, uint64_t *ret_nodes, uint64_t *ret_bytes)
{
	uint64_t nodes = 1, names = 0;
	const char *last = "";

	/*
	 * in sorted paths, a path adds the directories that it does not share with the one before
	 */
	for (size_t i = 0; i < paths->n; i++) {
		const char *path = paths->text + paths->lines[i], *slash;
		size_t at, start = 0;

		for (at = 0; path[at] && path[at] == last[at]; at++)
			if (path[at] == '/')
				start = at + 1;
		for (; (slash = strchr(path + start, '/')); nodes++) {
			names += (size_t)(slash - path) + 1 - start;
			start = (size_t)(slash - path) + 1;
		}
		nodes++;
		last = path;
	}
	*ret_nodes = nodes;
	*ret_bytes = names + (nodes + SPARE) * sizeof(struct node);
}

struct builder {
	struct tree *tree;
	const struct tree_paths *paths;
	tree_leaf_fn *leaf;
	void *ctx;
	struct node *free; /* the next node */
};

static const char *path_at(const struct builder *b, size_t i, size_t off)
{
	return b->paths->text + b->paths->lines[i] + off;
}

/*
 * The end of the group of paths, from `first` to before `end`, that have the same `n` bytes at
 * `off` as the first one. All of them share the bytes before `off`. Groups are mostly small, or all
 * of the paths.
 */
static uint32_t end_of_group(const struct builder *b, uint32_t first, uint32_t end, size_t off,
			     size_t n)
{
	const char *name = path_at(b, first, off);
	uint32_t low = first, high = end, step = 1;

	if (strncmp(path_at(b, end - 1, off), name, n) == 0)
		return end;
	/* low is in the group, high is not */
	for (high = end - 1; high - low > step; step *= 2) {
		if (strncmp(path_at(b, low + step, off), name, n) != 0) {
			high = low + step;
			break;
		}
		low += step;
	}
	while (high - low > 1) {
		uint32_t mid = low + (high - low) / 2;

		if (strncmp(path_at(b, mid, off), name, n) == 0)
			low = mid;
		else
			high = mid;
	}
	return high;
}

/* A directory that is not filled yet: its paths, and where their next components begin. */
static void set_range(struct node *dir, uint32_t first, uint32_t end, size_t off)
{
	dir->plain = (struct node_list){ .list = (struct node *)off, .n = first, .n_dirs = end };
}

static int fill(struct builder *b, struct node *dir)
{
	uint32_t at = dir->plain.n, end = dir->plain.n_dirs, next;
	size_t off = (size_t)dir->plain.list;
	struct node_list list = { .list = b->free };

	for (; at < end; at = next) {
		const char *name = path_at(b, at, off), *slash = strchr(name, '/');
		struct node *n = b->free++;

		n->parent = dir;
		b->tree->n_nodes++;
		next = at + 1;
		if (slash) {
			size_t len = (size_t)(slash - name);

			n->name = arena_text(&b->tree->arena, name, len);
			if (!n->name)
				return -ENOMEM;
			n->kind = NODE_DIR;
			next = end_of_group(b, at, end, off, len + 1);
			set_range(n, at, next, off + len + 1);
		} else {
			n->name = name;
			b->leaf(b->ctx, at, n);
		}
		list.n++;
		list.n_dirs += n->kind == NODE_DIR;
	}
	dir->plain = list;
	return 0;
}

int tree_build(struct tree *t, const struct tree_paths *paths, uint64_t nodes, tree_leaf_fn *leaf,
	       void *ctx)
{
	struct builder b = { .tree = t, .paths = paths, .leaf = leaf, .ctx = ctx };
	int r;

	t->nodes = b.free = calloc(nodes + SPARE, sizeof(*t->nodes));
	if (!t->nodes)
		return -ENOMEM;
	set_range(t->root, 0, (uint32_t)paths->n, 0);
	r = fill(&b, t->root);
	b.free += SPARE;
	t->spare = SPARE;
	for (struct node *n = t->nodes; r == 0 && n < b.free; n++)
		if (n->kind == NODE_DIR && n->name)
			r = fill(&b, n);
	t->n_places = (size_t)(b.free - t->nodes);
	return r;
}
