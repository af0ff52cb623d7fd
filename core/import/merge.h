/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of layers that lie one upon the other (OCI image spec, layer.md): a later one replaces
 * what it has too, and its whiteouts take away what is below: `.wh.NAME` a file or a directory with
 * all in it, `.wh..wh..opq` all that lower layers have in its directory. In one layer the last
 * entry of a name counts, as it does to tar.
 *
 * Nothing leads out of the tree. A path with "..", a path below what its layer has as a file or a
 * symlink, and a hard link to what is not there are refused. An absolute path or target counts from
 * the root of the tree. A name that no carton can have, a device, a fifo, a socket, and a symlink
 * that does not lead to a file of the tree are left out.
 *
 * Threads: one at a time.
 */
#ifndef CARTON_IMPORT_MERGE_H
#define CARTON_IMPORT_MERGE_H

#include "archive/tar.h"
#include "base/arena.h"
#include "base/names.h"

struct member {
	const char *path;
	const char *target; /* of a link: what it says, */
	struct member *to;  /* and, after merge_end(), what a symlink leads to */
	uint64_t off, size;
	uint8_t sha256[SHA256_SIZE];
	uint32_t layer, at; /* from 1; its place in the layer */
	uint8_t kind;	    /* enum tar_kind */
	bool executable, fresh, gone;
	uint8_t (*tags)[TAG_SIZE]; /* owned; or NULL */
};

/* What is taken away from lower layers. */
struct whiteout {
	const char *path;
	bool self; /* the path itself, too, not only what is below it */
};

struct merge {
	/* the owner's */
	const char *name; /* for the log */
	struct budget *budget;
	/* the result: sorted by path; directories are not listed */
	struct member *list;
	size_t n;
	struct names left_out; /* after merge_end() */
	/* its own */
	struct arena names;
	uint64_t taken;
	size_t cap;
	struct member *fresh; /* of the layer that is read */
	size_t n_fresh, cap_fresh;
	struct whiteout *whiteouts;
	size_t n_whiteouts, cap_whiteouts;
	uint32_t layer;
};

void merge_init(struct merge *m); /* the owner's fields are set */

/* A layer, or the same again: what it had before is forgotten. */
void merge_begin(struct merge *m, uint32_t layer);

/* An entry. 0; -EBADMSG, logged; -ENOMEM; -EFBIG. */
int merge_add(struct merge *m, const struct tar_entry *e);

/* All entries of the layer were added: puts it upon the others. As merge_add(). */
int merge_layer(struct merge *m);

/*
 * After the last layer. What is below the directory `root` is all that there is, if there is
 * anything; "" is all. Marks members that are left out as gone. Returns the root that it is.
 */
const char *merge_end(struct merge *m, const char *root);

void merge_finish(struct merge *m);

/* ---- shared by merge.c and merge_end.c ---- */

/*
 * Writes the path, as it is from the root of the tree, into `ret`, of MAX_PATH_LEN + 1 bytes: that
 * of `path`, or if it is relative and `from` is not NULL, from the directory `from` is in. "": the
 * root. Returns its length; -EBADMSG: it leads out of the tree; -ENAMETOOLONG.
 */
ssize_t merge_path(const char *from, const char *path, char *ret);

/* Is the path below that directory? "" is the root. */
bool merge_is_below(const char *path, const char *dir);

/* The member of that path in the list, or NULL. */
struct member *merge_find(const struct merge *m, const char *path);

#endif
