/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merges the files of stacked layers into one tree (OCI image spec, layer.md). An entry replaces a
 * file at its path in lower layers; one that is no directory also replaces a directory with all in
 * it. A whiteout removes entries of lower layers: `.wh.NAME` a file, or a directory with all in it;
 * `.wh..wh..opq` all in its directory. If a layer has several entries of one path, the last one
 * counts, as it does to tar.
 *
 * No path leads out of the tree. A path with "..", a path below a file or symlink of its layer, and
 * a hard link that leads to no file of the tree are refused. An absolute path or target starts at
 * the root of the tree. A name that no carton can have, a device, a fifo, a socket, and a symlink
 * that leads to no file of the tree are left out.
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
	const char *target; /* of a link: its target, as the tar has it; else NULL */
	struct member *to;  /* of a symlink, after merge_end(): the member at its target */
	uint64_t off, size;
	uint8_t sha256[SHA256_SIZE];
	uint32_t layer; /* number of the layer, from 1 */
	uint32_t at;	/* position among the members of the layer, from 0 */
	uint8_t kind;	/* enum tar_kind */
	bool executable;
	bool fresh;		   /* the member is of the layer that is being read */
	bool gone;		   /* the entry was replaced, removed or left out */
	uint8_t (*tags)[TAG_SIZE]; /* owned; or NULL */
};

/* Removes entries of lower layers. */
struct whiteout {
	const char *path;
	bool self; /* removes the path itself, too, not only all below it */
};

struct merge {
	/* set by the caller */
	const char *name; /* for the log */
	struct budget *budget;
	/* out: the merged tree, sorted by path, without directories */
	struct member *list;
	size_t n;
	struct names left_out; /* set by merge_end() */
	/* private */
	struct arena names;
	uint64_t taken;
	size_t cap;
	struct member *fresh; /* members of the layer that is being read */
	size_t n_fresh, cap_fresh;
	struct whiteout *whiteouts;
	size_t n_whiteouts, cap_whiteouts;
	uint32_t layer;
};

void merge_init(struct merge *m); /* after the caller has set its fields */

/* Begins a layer, or the same one again: forgets the entries that were added to it before. */
void merge_begin(struct merge *m, uint32_t layer);

/* Adds an entry of the layer. 0; -EBADMSG, logged; -ENOMEM; -EFBIG. */
int merge_add(struct merge *m, const struct tar_entry *e);

/* Forgets the entries of that path that were added to the layer. */
void merge_forget(struct merge *m, const char *path);

/* Merges the layer into the list, after its last entry. Errors of merge_add(). */
int merge_layer(struct merge *m);

/*
 * Resolves symlinks after the last layer, and marks members that are left out as gone. If any
 * member is below the directory `root`, all others are gone, too; else "", the root of the tree, is
 * used in place of `root`. Returns the root that is used.
 */
const char *merge_end(struct merge *m, const char *root);

void merge_finish(struct merge *m);

/* ---- shared by merge.c and merge_end.c ---- */

/*
 * Writes `path`, normalized and relative to the root of the tree, to `ret`, of MAX_PATH_LEN + 1
 * bytes; "" is the root. A relative `path` starts in the directory of the member `from`, or at the
 * root if `from` is NULL. Returns its length; -EBADMSG: it leads out of the tree; -ENAMETOOLONG.
 */
ssize_t merge_path(const char *from, const char *path, char *ret);

/* Is `path` below the directory `dir`? "" is the root. */
bool merge_is_below(const char *path, const char *dir);

/* The member of that path in the list, or NULL. */
struct member *merge_find(const struct merge *m, const char *path);

#endif
