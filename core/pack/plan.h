/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contents of a new carton: an item (pack/pack.h) for each file of an open carton, and the
 * files that LINKS will name instead.
 */
#ifndef CARTON_PACK_PLAN_H
#define CARTON_PACK_PLAN_H

#include "base/arena.h"
#include "carton/opened.h"
#include "writer/pack.h"

struct others;

struct pack_plan {
	struct carton *c;
	struct others *others; /* of an import */
	const struct carton_pack_options *options;
	struct pack_item *items; /* sorted by name (strcmp); `from` is the node */
	size_t n;
	bool index; /* the carton gets a new chunk index */
	/* to be named in LINKS, sorted by hash, each hash once; of an import, to be read */
	struct node **linked;
	size_t n_linked;
	uint64_t bytes; /* of all items */
	struct arena names;
};

/* The callbacks of pack_run(); their context is the plan. Content is opened once; any thread. */
extern const struct pack_ops plan_ops;

/*
 * Makes the items. All sizes must be known: those of fetched files, after carton_materialize(). 0;
 * -EINVAL, logged: a path of the options that is not there; -ENOMEM; -EFBIG over the budget.
 */
int plan_make(struct carton *c, const struct carton_pack_options *options, struct pack_plan *ret);
void plan_finish(struct pack_plan *p);

/* Will the new carton contain the file? */
bool plan_includes(const struct carton_pack_options *options, const struct node *file);

/*
 * Writes the text of MANIFEST into an empty buf, when the items have been hashed. `index`: the hash
 * of the chunk index, or NULL. 0, -ENOMEM or -EFBIG.
 */
int plan_manifest(const struct pack_plan *p, const uint8_t *index, struct buf *ret);

/* Writes the text of LINKS likewise; empty if there is none. */
int plan_links(const struct pack_plan *p, struct buf *ret);

#endif
