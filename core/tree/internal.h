/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of tree.h: memory of nodes and what they have (node.c), which tree.c and
 * build.c put together.
 */
#ifndef CARTON_TREE_INTERNAL_H
#define CARTON_TREE_INTERNAL_H

#include "tree/tree.h"

struct text {
	struct text *next;
	void *data;
};

/* Where what belongs to a node is allocated. */
struct arena *node_arena(struct tree *t, const struct node *n);

/*
 * Counts `n` bytes for what is below a lazy directory; without one, they were counted. 0 or -EFBIG.
 */
int lazy_take(struct tree *t, struct lazy_dir *lazy, uint64_t n);

#endif
