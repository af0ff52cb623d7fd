/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins what a carton lists (MANIFEST) with what it holds (its container) into the tree.
 */
#ifndef CARTON_LOAD_H
#define CARTON_LOAD_H

#include "container.h"
#include "manifest.h"
#include "object.h"
#include "tree.h"

/*
 * Reads and parses MANIFEST. `pin`: the model hash it must have, 64 hex digits, or NULL. 0;
 * -EBADMSG: none, damaged, malformed, or another model; -EINVAL: a pin that is no hash; errors of
 * container_read() and manifest_parse(). Logged.
 */
int load_manifest(struct container *c, const char *pin, struct manifest **ret);

/*
 * Builds the tree: exactly what MANIFEST lists, plus MANIFEST. A path without bytes, a directory
 * that is listed, and a symlink that does not lead, inside the tree, to a file of the hash that
 * MANIFEST gives the link are faults: logged, and -EBADMSG, or with `keep_going` left out of the
 * tree and counted in *ret_faults. What the container has beyond MANIFEST is logged and left out.
 */
int load_tree(struct container *c, const struct manifest *m, struct object_store *store,
	      bool keep_going, struct tree **ret, size_t *ret_faults);

#endif
