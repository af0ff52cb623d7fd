/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree that a mount shows: nodes by path, and every file as a list of extents.
 *
 * An extent is literal bytes or a range of an object. A plain file has one extent, all of one
 * object; a view has several. So all files are read in one way, and no bytes are copied for a view.
 *
 * Built by one thread, then immutable: no lock. The nodes below a lazy directory are built later,
 * by the one job of that directory, and touched by nobody else before the job is done.
 *
 * Memory: a node takes 40 bytes, and those of one directory stand in one array, sorted by name.
 * Names of files point into MANIFEST; those of directories, and all that a view needs, are in
 * arenas.
 */
#ifndef CARTON_TREE_TREE_H
#define CARTON_TREE_TREE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "content/object.h"
#include "tensor/dtype.h"

struct budget;
struct entry;

/* A part of a file. Made by node_extent(), not kept. */
struct extent {
	const void *literal; /* bytes that live as long as the file; NULL: of the object */
	struct object *object;
	uint64_t off; /* in the object */
	uint64_t len;
	uint64_t start; /* in the file: extents follow each other from 0 */
	bool whole; /* must be all of the object: if a server has another size, the read fails */
	char nul;   /* the character that a NUL in a literal stands for; 0: itself */
};

/* The literal that a file begins with. Several files may share it. */
struct file_header {
	const char *data;
	uint64_t len;
	const struct entry *entry; /* the file's entry of the container; NULL: none */
	uint64_t mark;		   /* a fingerprint of the bytes: see mark.c */
	char nul;		   /* as in struct extent */
};

/* The ranges of objects that a file has behind its header. Several may share them. */
struct content {
	const struct tensor_info *tensor; /* that is shown; NULL: no view of a tensor */
	uint64_t mark;			  /* a fingerprint of the pieces: see mark.c */
	size_t n;
	struct piece {
		struct object *object;
		uint64_t off : 63;
		uint64_t whole : 1;
		uint64_t end; /* behind the header; OBJECT_NO_SIZE: as long as the object */
	} pieces[];
};

enum node_kind {
	NODE_DIR,
	NODE_FILE,
	NODE_SYMLINK,
};

struct node_list {
	struct node *list; /* sorted by strcmp once tree_sort() was called */
	uint32_t n, n_dirs;
};

/* The state of a lazy directory, whose children are made at the first lookup. */
struct lazy_dir {
	struct node_list children;
	struct object *object; /* verified once the children are made */
	struct node *dir;
	struct arena arena; /* owns all below the directory but `texts` */
	struct text *texts; /* literals that were malloc'ed */
	uint64_t nodes, owned,
		cost;	/* of all below: nodes, bytes of `texts`, bytes of the budget */
	uint64_t first; /* the place of the first child, once tree_place() was called */
};

struct node {
	const char *name;    /* one component; "" for the root */
	struct node *parent; /* the root's is itself */
	union {
		struct node_list plain; /* a directory that is not lazy */
		struct lazy_dir *lazy;
		struct {
			const struct entry *entry; /* of the container; NULL: `object` is set */
			struct object *object;	   /* of an entry: made at first use */
		} file;				   /* without a body */
		struct {
			const struct file_header *header; /* NULL: none */
			union {
				const struct content *content;	  /* likewise */
				const struct tensor_info *tensor; /* of_tensor: its data */
			};
		} body;
		struct {
			const struct entry *entry; /* NULL: none */
			const char *target;
		} link;
	};
	uint32_t date;	    /* a directory: the bits of its mark that choose its date (dates.c) */
	unsigned char mark; /* see carton_mark() */
	uint8_t room;	    /* a directory: its array has room for 2^room nodes; 0: it is full */
	/* compilers read the kind together with the flags, so `mark` does not stand between them */
	uint8_t kind;	    /* enum node_kind */
	bool owns_list : 1; /* its array was malloc'ed for it */
	bool is_lazy : 1;
	bool has_body : 1;  /* a file that is not simply the bytes of an object */
	bool of_tensor : 1; /* of a body: behind the header are the bytes of the tensor */
	bool nested : 1;    /* a directory that shows a nested tensor */
	bool hidden : 1;    /* found by name, not listed */
};

/* Which dates the nodes show. */
enum tree_dates {
	DATES_BY_CONTENT,
	DATES_OWN, /* the date of a node's entry; by content for a node without an entry */
	DATES_ONE, /* `mtime` of the tree */
};

struct tree {
	struct node *root;
	struct node *shown;	    /* in its place: the root, or the lazy directory "" in it */
	struct object_store *store; /* where entries get their objects; NULL: no node has one */
	struct budget *budget;	    /* counts the memory of views; may be NULL */
	enum tree_dates dates;
	int64_t mtime;		     /* the date of all nodes, with DATES_ONE */
	uint64_t model;		     /* the mark of MANIFEST (mark.c) */
	struct numbered *renumbered; /* inode numbers that tree_number() changed; by node */
	size_t n_renumbered, cap_renumbered;
	struct node *nodes; /* the nodes that tree_build() has made */
	size_t n_places; /* the number of places in `nodes`; one whose node has no name is free */
	size_t spare;	 /* free places behind those of the root */
	pthread_mutex_t lock; /* guards `placed` */
	struct placed {	      /* the lazy directories that tree_place() was called for */
		struct placed_dir {
			uint64_t first;
			struct lazy_dir *dir; /* has another `first`: it was cleared since */
		} * list;		      /* sorted by `first` */
		size_t n, cap;
		uint64_t next; /* the next free place */
	} placed;
	struct arena arena;    /* for all nodes that are not below a lazy directory */
	uint64_t files, bytes; /* the number of files that tree_build() has made, and their size */
	_Atomic uint64_t n_nodes;
	_Atomic uint64_t owned; /* bytes of literals of views */
	struct node top;
};

/* ---- making it ---- */

int tree_new(int64_t mtime, struct tree **ret); /* a root with nothing in it: 0 or -ENOMEM */
void tree_free(struct tree *t);			/* NULL-safe */

/*
 * Paths at text + lines[i], NUL-terminated and sorted by path_compare(); none is a directory of
 * another.
 */
struct tree_paths {
	const char *text; /* outlives the tree */
	const uint32_t *lines;
	size_t n;
};

/*
 * Counts the nodes of these paths and of the directories above them, and the memory that they take.
 */
void tree_count(const struct tree_paths *paths, uint64_t *ret_nodes, uint64_t *ret_bytes);

/* Makes a node a file or symlink: that of path `i`. */
typedef void tree_leaf_fn(void *ctx, size_t i, struct node *ret);

/* Makes the nodes of an empty tree: at most `nodes`, as tree_count() says. 0 or -ENOMEM. */
int tree_build(struct tree *t, const struct tree_paths *paths, uint64_t nodes, tree_leaf_fn *leaf,
	       void *ctx);

/*
 * Call it once, when all directories of tree_build() have their children. Computes the dates of the
 * directories. Of several nodes with one inode number, the first in the order of paths keeps the
 * number, and the others get new ones. The memory that this takes counts in the budget. 0, -ENOMEM,
 * or -EFBIG over the budget.
 */
int tree_number(struct tree *t);

/*
 * A new node below `parent`: the root, or a directory below a lazy one. The name is copied; it must
 * be new there. Moves the other nodes of that directory. 0, -ENOMEM, or -EFBIG over MAX_NODES or
 * the budget.
 */
int tree_add(struct tree *t, struct node *parent, const char *name, enum node_kind kind,
	     struct node **ret);

/* Makes a new directory lazy. 0 or -ENOMEM. */
int tree_set_lazy(struct tree *t, struct node *dir);

/* Frees all that is below a lazy directory. */
void tree_clear(struct tree *t, struct node *dir);

/* Sorts a directory, so that it can be searched. Moves its nodes. */
void tree_sort(struct node *dir);

/*
 * Call it once, when a lazy directory has all its children. Moves all nodes below the directory to
 * one array, in which each directory is sorted, and gives each node its place. The memory that this
 * takes meanwhile counts in the budget. 0, -ENOMEM, or -EFBIG over the budget.
 */
int tree_place(struct tree *t, struct node *top);

/*
 * The place of a node. The place of a node of tree_build() is its index in `nodes`. The place of a
 * node below a lazy directory is PLACE_GENERATED plus a number that no other such node has, or had
 * before its directory was cleared. Other nodes have PLACE_NONE.
 */
#define PLACE_GENERATED (1ULL << 47)
#define PLACE_NONE UINT64_MAX
uint64_t node_place(const struct tree *t, const struct node *n);

/* Returns the node at this place, or NULL. The place may be any number. Any thread. */
struct node *tree_at(struct tree *t, uint64_t place);

/*
 * Gives a file an entry of the container. Its object is made at first use. The node's name must be
 * a part of the text of MANIFEST, in which the hash of the file follows it.
 */
void tree_set_entry(struct tree *t, struct node *file, const struct entry *entry);

/* Gives a file one object. */
void tree_set_object(struct tree *t, struct node *file, struct object *object);

/* Gives a file extents, of which only the first may be a literal. Copied. 0, -ENOMEM or -EFBIG. */
int tree_set_extents(struct tree *t, struct node *file, const struct extent *extents, size_t n,
		     const struct tensor_info *tensor);

/* Gives a file the data of a tensor that has an object; the tensor outlives it. */
void tree_set_tensor(struct node *file, const struct tensor_info *tensor);

/* Puts a header before the bytes that tree_set_extents() or tree_set_tensor() has set. */
void tree_set_header(struct node *file, const struct file_header *header);

/* Copies a header. 0, -ENOMEM or -EFBIG. */
int tree_add_header(struct tree *t, struct node *below, const void *data, size_t len,
		    const struct file_header **ret);

/*
 * Takes over malloc'ed bytes, a literal of a file below `below`, and frees them with `below`. 0,
 * -ENOMEM, or -EFBIG when all such literals together would be over MAX_VIEW_MEMORY, or over the
 * budget.
 */
int tree_own(struct tree *t, struct node *below, void *data, uint64_t n);

/* ---- nodes ---- */

static inline struct node_list *node_children(const struct node *dir)
{
	return dir->is_lazy ? &dir->lazy->children : (struct node_list *)&dir->plain;
}

/* The object that has to be verified before the children of a directory are there; NULL: none. */
static inline struct object *node_lazy_object(const struct node *dir)
{
	return dir->kind == NODE_DIR && dir->is_lazy ? dir->lazy->object : NULL;
}

struct tree *node_tree(const struct node *n);

/* The lazy directory that a node is below, or the node itself; NULL: none. */
struct lazy_dir *node_lazy_above(const struct node *n);

/* The mark (mark.c) of bytes with this sha256. */
uint64_t tree_mark(const uint8_t *sha256);

/*
 * The date that a node shows, in seconds since 1970, and the inode number that programs see. The
 * date follows from the content, and the number from the path and the content (dates.c). The number
 * has 48 bits, and the highest one is set for generated nodes. Only the root has a number below 16.
 */
#define TREE_ROOT_INO 1
int64_t node_mtime(const struct node *n);
uint64_t node_ino(const struct node *n);

bool node_is_executable(const struct node *n);

/* The tensor that a view shows, or NULL. A nested tensor has no dtype: it is NULL. */
const struct tensor_info *node_tensor(const struct node *n);

/* The size of a file in bytes; OBJECT_NO_SIZE while only a server knows it (object_get_size()). */
uint64_t node_size(const struct node *file);

/* False: a server may still report another size than node_size(). */
bool node_size_is_certain(const struct node *file);

/*
 * How many extents a file has, and one of them. An entry must have its object: node_make_object().
 */
size_t node_n_extents(const struct node *file);
struct extent node_extent(const struct node *file, size_t i);

/*
 * The object whose bytes are all of the file, made now if the file has an entry; NULL: the file is
 * a view of several, or literal, or there is no memory. Any thread.
 */
struct object *node_object(const struct node *n);

/* The same if it was made before; NULL also for an entry that was never opened. Any thread. */
struct object *node_known_object(const struct node *n);

/* Makes the object of a file with an entry: 0, -ENOMEM or -EFBIG. */
int node_make_object(struct node *file);

/* ---- finding ---- */

/* The child of that name, or NULL. `dir` must be sorted. */
struct node *tree_child(const struct node *dir, const char *name);

/*
 * The node at a path from the root ("" is the root), or NULL. Follows no symlink, enters no lazy
 * directory.
 */
struct node *tree_find(const struct tree *t, const char *path);

/*
 * The node that a node leads to, following symlinks as the kernel would, but never out of the tree:
 * NULL for nothing, a loop, more than MAX_SYMLINK_HOPS, or a NULL node.
 */
struct node *tree_resolve(struct node *node);

/*
 * The next node in depth-first order below `top`, or NULL: tree_next(top, top) is the first. Goes
 * into no lazy directory but `top`.
 */
struct node *tree_next(const struct node *top, struct node *node);

/* The node's path from the root, into `ret` (MAX_PATH_LEN + 1 bytes): returns `ret`. */
char *tree_path(const struct node *node, char *ret);

#endif
