/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree that a mount shows: nodes by path, and every file as a list of extents.
 *
 * An extent is literal bytes or a range of an object. A plain file is one extent over one object;
 * what is put together from several (a view) is many. So one way of reading serves all files, and
 * nothing that is shown is copied to be shown.
 *
 * Built by one thread, then immutable: no lock. What is below a directory with a gate is built later,
 * by the one job of that gate, and touched by nobody else before the gate is open.
 */
#ifndef CARTON_TREE_TREE_H
#define CARTON_TREE_TREE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "object/object.h"

struct extent {
	const void *literal; /* bytes that live as long as the tree; NULL: of the object */
	struct object *object;
	uint64_t off; /* in the object */
	uint64_t len;
	uint64_t start; /* in the file: extents follow each other from 0 */
	bool whole;	/* must be all of the object: a server may have another size of it */
};

enum node_kind {
	NODE_DIR,
	NODE_FILE,
	NODE_SYMLINK,
};

struct node {
	char *name;	     /* one component; "" for the root */
	struct node *parent; /* the root's is itself */
	uint64_t ino;	     /* the root's is 1 */
	int64_t mtime;	     /* seconds since 1970 */
	uint32_t at;	     /* its place among the parent's children; MAX_NODES fits */
	enum node_kind kind;
	bool executable;
	bool hidden;			  /* found by name, not listed */
	atomic_uchar mark;		  /* see carton_mark() */
	const struct tensor_info *tensor; /* what a view shows; NULL: no view of a tensor */
	union {
		struct {
			struct node **children; /* sorted by strcmp once tree_sort() was called */
			size_t n, cap;
			size_t n_dirs;
			struct tree *tree;   /* of the root only */
			struct object *gate; /* its children are there once this is verified;
						 * NULL: they always are */
		} dir;
		struct {
			struct extent one;	   /* most files have one extent */
			const struct entry *entry; /* of the container, or NULL; with `sha256`, what
						    * `one.object` is made from at first use */
			const uint8_t *sha256;
			struct extent *extents; /* &one, or an array of its own */
			size_t n;
			uint64_t size;	   /* see node_size() */
			bool owns_literal; /* the first extent's bytes are freed with it */
		} file;
		struct {
			char *target;
			uint8_t sha256[SHA256_SIZE];
		} link;
	};
};

struct tensor_info;

struct tree {
	struct node *root;
	struct object_store
		*store; /* where entries get their objects; NULL: no node has an entry */
	_Atomic uint64_t last_ino;
	_Atomic uint64_t n_nodes;
	_Atomic uint64_t n_files;
	_Atomic uint64_t bytes; /* of all files whose size is known */
	_Atomic uint64_t owned; /* bytes of literals that files own */
};

/* Bytes that a node takes, without the characters of its name. */
extern const size_t tree_node_cost;

int tree_new(int64_t mtime, struct tree **ret); /* a root with nothing in it: 0 or -ENOMEM */
void tree_free(struct tree *t);			/* NULL-safe */

/*
 * A new node below `parent`, a directory. The name is copied; it must be new there. A file has no
 * extents and size 0 yet. 0, -ENOMEM, or -EFBIG over MAX_NODES.
 */
int tree_add(struct tree *t, struct node *parent, const char *name, size_t len, enum node_kind kind,
	     struct node **ret);

/*
 * A new node at `path`, with the directories above it where they are missing. Paths must come in the
 * order of path_compare(). As tree_add().
 */
int tree_add_path(struct tree *t, const char *path, enum node_kind kind, struct node **ret);

/* Frees all that is below a directory. */
void tree_clear(struct tree *t, struct node *dir);

/* Sorts a directory and all below it, so that they can be searched. */
void tree_sort(struct node *dir);

/*
 * Gives a file its extents, in order: their literal and object, offset and length count; `start` is
 * set here. Copied. 0 or -ENOMEM.
 */
int tree_set_extents(struct tree *t, struct node *file, const struct extent *extents, size_t n);

/* Gives a file its one extent. */
void tree_set_object(struct tree *t, struct node *file, struct object *object);

/* Gives a file an entry of the container. Its object is made at first use. Both outlive the tree. */
void tree_set_entry(struct tree *t, struct node *file, const struct entry *entry,
		    const uint8_t sha256[SHA256_SIZE]);
void tree_set_literal(struct tree *t, struct node *file, const void *data, uint64_t size);

/*
 * Has a file own the literal that it begins with: that is freed with it. 0, or -EFBIG when all such
 * literals together would be over MAX_VIEW_MEMORY.
 */
int tree_own_literal(struct tree *t, struct node *file);

/* Bytes of a file: OBJECT_NO_SIZE while only a server could tell (object_get_size()). */
uint64_t node_size(const struct node *file);

/*
 * The object that a file shows as a whole, made now if it has an entry; NULL: it is put together, or
 * literal, or there is no memory. Any thread.
 */
struct object *node_object(const struct node *n);

/* Makes the object of a file with an entry: 0, -ENOMEM or -EFBIG. */
int node_make_object(struct node *file);

/* The child of that name, or NULL. `dir` must be sorted. */
struct node *tree_child(const struct node *dir, const char *name);

/* The node at a path from the root ("" is the root), or NULL. Follows no symlink, passes no gate. */
struct node *tree_find(const struct tree *t, const char *path);

/*
 * What a node leads to, following symlinks as the kernel would, but never out of the tree: NULL for
 * nothing, a loop, more than MAX_SYMLINK_HOPS, or a NULL node.
 */
struct node *tree_resolve(struct node *node);

/*
 * The next node in depth-first order below `top`, or NULL: tree_next(top, top) is the first. Goes
 * through no gate but that of `top`.
 */
struct node *tree_next(const struct node *top, struct node *node);

/* The node's path from the root, into `ret` (MAX_PATH_LEN + 1 bytes): returns `ret`. */
char *tree_path(const struct node *node, char *ret);

#endif
