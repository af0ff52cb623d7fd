/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files that implement tree.h: node.c has the memory and the bytes of single nodes,
 * dates.c their dates and inode numbers (by mark.c), tree.c and build.c make a tree of them.
 */
#ifndef CARTON_TREE_INTERNAL_H
#define CARTON_TREE_INTERNAL_H

#include "tree/tree.h"

struct text {
	struct text *next;
	void *data;
};

/* A node whose inode number was already that of an earlier path, and the node's new number. */
struct numbered {
	const struct node *node;
	uint64_t ino;
};

/* The entry of the container that a node shows; NULL: none. */
const struct entry *node_entry(const struct node *n);

/* A hash that is the same on every machine; of up to MAX_HASH_WORDS words. */
#define MAX_HASH_WORDS 3
uint64_t tree_hash(uint64_t prefix, const void *data, size_t n);
uint64_t tree_hash_words(uint64_t prefix, const uint64_t *words, size_t n);

/* The marks (mark.c) of a text, of an object, and of pieces: those of `mark`, and then `p`. */
uint64_t tree_mark_text(const void *data, size_t n);
uint64_t tree_mark_object(const struct tree *t, const struct object *o);
uint64_t tree_mark_piece(const struct tree *t, uint64_t mark, const struct piece *p);

/* The arena for the names and content of a node. */
struct arena *node_arena(struct tree *t, const struct node *n);

/*
 * Counts `n` bytes for nodes below a lazy directory. `lazy` NULL: does nothing, since those of the
 * carton itself were counted before. 0 or -EFBIG.
 */
int lazy_take(struct tree *t, struct lazy_dir *lazy, uint64_t n);

#endif
