/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files that implement tree.h: node.c has the memory and the bytes of single nodes,
 * tree.c and build.c make a tree of them.
 */
#ifndef CARTON_TREE_INTERNAL_H
#define CARTON_TREE_INTERNAL_H

#include "tree/tree.h"

struct text {
	struct text *next;
	void *data;
};

/* The arena for the names and content of a node. */
struct arena *node_arena(struct tree *t, const struct node *n);

/*
 * Counts `n` bytes for nodes below a lazy directory. `lazy` NULL: does nothing, since those of the
 * carton itself were counted before. 0 or -EFBIG.
 */
int lazy_take(struct tree *t, struct lazy_dir *lazy, uint64_t n);

#endif
