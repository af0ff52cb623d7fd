/* SPDX-License-Identifier: Apache-2.0 */
/*
 * views/: the tensors of a carton in the forms that other programs read.
 *
 *	tensor_data/NAME.bin  NAME.npy  NESTED/0.bin  index.json	tensor_data.c
 *	tensor_data.safetensors						tensor_data.c
 *	PATH/OF/w.safetensors/NAME.bin  NAME.npy  index.json		safetensors.c
 *	triton/self_test-0/request  headers  expected_output  raw	triton.c
 *
 * A generated file is a list of ranges of the carton's objects, which are verified when it is opened;
 * nothing is copied. Only strings are converted, into an object of their own. Each directory is lazy
 * (tree.h): a job fills it at the first lookup in it.
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
	const char *name;    /* of the directory below the root */
	bool hidden;	     /* found by name, but not listed */
};

/*
 * Adds the directory to the tree, unless the carton itself has an entry of that name (logged; *ret is
 * NULL). What the options point to must outlive the views. 0 or -ENOMEM. For the thread that builds
 * the tree.
 */
int views_new(const struct views_options *options, struct views **ret);

/* Call it after tree_free(). NULL-safe. */
void views_free(struct views *v);

#endif
