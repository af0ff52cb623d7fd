/* SPDX-License-Identifier: Apache-2.0 */
/*
 * views/: the tensors of a carton in the forms that others read, generated beside its files.
 *
 *	tensor_data/NAME.bin  NAME.npy  NESTED/0.bin  index.json	view_tensors.c
 *	tensor_data.safetensors						view_tensors.c
 *	PATH/OF/w.safetensors/NAME.bin  NAME.npy  index.json		view_safetensors.c
 *	triton/self_test-0/request  headers  expected_output  raw	view_triton.c
 *
 * A view is a list of extents over the objects beneath, so it is verified as they are, and costs no
 * copy; only strings are converted, into an object derived from their file. Nothing of it is made
 * before somebody looks: each directory has a gate (tree.h), whose job makes what is in it.
 */
#ifndef CARTON_VIEWS_VIEWS_H
#define CARTON_VIEWS_VIEWS_H

#include "views/index.h"
#include "format/meta.h"
#include "tree/tree.h"

struct views;

struct views_options {
	struct tree *tree;
	struct object_store *store;
	const struct meta *meta;
	struct cache *cache; /* for large converted strings; may be NULL */
	const char *name;    /* of the directory in the root */
	bool hidden;	     /* found by name, not listed */
};

/*
 * Puts the directory into the tree, unless the carton has something of that name itself (logged).
 * What the options point to must outlive the views. 0 or -ENOMEM.
 */
int views_new(const struct views_options *options, struct views **ret);

/* After the tree was freed. NULL-safe. */
void views_free(struct views *v);

#endif
