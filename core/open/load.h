/* SPDX-License-Identifier: Apache-2.0 */
/* Joins what a carton lists (MANIFEST) with what it holds (its container) into the tree. */
#ifndef CARTON_OPEN_LOAD_H
#define CARTON_OPEN_LOAD_H

#include "carton/opened.h"

/*
 * Reads a hash as people paste it, the value of `option`: 64 hex digits in either case. 0; -EINVAL,
 * logged.
 */
int load_pin(const char *option, const char *pin, uint8_t ret[SHA256_SIZE]);

/*
 * Reads and parses MANIFEST. `pin`: the model hash it must have, 64 hex digits, or NULL. 0;
 * -EBADMSG: none, damaged, malformed, or another model; -EINVAL: a pin that is no hash; errors of
 * container_read() and manifest_parse(). Logged.
 */
int load_manifest(struct container *c, const char *pin, struct manifest **ret);

/*
 * Tells whether the entry is a directory of the root with the marker of generated views, or below
 * one: a copy of a mount has such a directory. A zip is never taken for a copy of a mount.
 */
struct load_views {
	char dir[MAX_COMPONENT + 2]; /* of the entry before, with a slash; "" at first */
	bool marked;		     /* `dir` has the marker */
};
bool load_in_views(struct container *c, const struct entry *e, struct load_views *before);

/*
 * Is there, at the top of a directory that is to be packed, only what belongs into a carton?
 * -EBADMSG, logged: there is something else.
 */
int load_check_parts(struct container *c);

/*
 * Makes a MANIFEST of what a directory holds, with a hash for each file that is only its number. 0;
 * -EBADMSG, logged: no carton.toml, something that does not belong into a carton, or LINKS; errors
 * of manifest_parse(). `directory`: its name, for the message that says how to make carton.toml.
 */
int load_listing(struct container *c, const char *directory, struct manifest **ret);

/*
 * Reads LINKS, NULL when there is none. 0; -EBADMSG: it is damaged (logged); errors of
 * container_read() and links_parse(). Faults of single URLs are kept, and logged for the files that
 * need them.
 */
int load_links(struct container *c, struct links **ret);

/*
 * Fetches the parts that opening will read, with as few requests as possible, if the container is
 * remote.
 */
int load_ahead(struct container *c);

/* What a tree is made from. */
struct load_input {
	struct container *container;
	const struct manifest *manifest;
	const struct links *links; /* NULL: none */
	struct object_store *store;
	struct object *late; /* the content of MANIFEST of a late carton; else NULL */
	bool keep_going;
	bool bare;    /* the tree gets no MANIFEST */
	int64_t date; /* of all; 0: those that follow from content, or of files that have dates */
	bool held;    /* nothing is fetched: bad URLs of LINKS are not logged */
};

/*
 * Builds the tree: exactly what MANIFEST lists, plus MANIFEST. A path that neither the container
 * nor LINKS has, a directory that is listed, and a symlink that does not lead, inside the tree, to
 * a file of the hash that MANIFEST gives the link are faults: logged, and -EBADMSG, or with
 * `keep_going` left out of the tree and counted in *ret_faults. Entries of the container that
 * MANIFEST does not list are logged and left out.
 */
int load_tree(const struct load_input *in, struct tree **ret, size_t *ret_faults);

/*
 * Reads the chunk index, if there is one, whose file stays pinned. 0, also if the file itself is
 * damaged or out of reach, or of version 1 (logged); -EBADMSG and other errors of chunks_parse():
 * the index cannot be used (logged).
 */
int load_index(struct carton *c, struct carton_index *ret);

/*
 * The next entry that should have the object's bytes: its line is the one at *line, or behind it.
 * NULL: there is none. Any thread.
 */
const struct entry *load_find_entry(const struct container *c, const struct manifest *m,
				    const struct object *o, size_t *line);

#endif
