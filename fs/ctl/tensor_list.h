/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a file, or of tensor_data/, by name. */
#ifndef FS_TENSOR_LIST_H
#define FS_TENSOR_LIST_H

#include "ctl/tensors.h"

struct tensor {
	char *name;
	char dtype[32], shape[256];
	struct carton_node *data;
};

struct tensor_list {
	struct tensor *list; /* by name */
	size_t n, cap;
};

/*
 * Loads those of a path into a list that is all zero: 0, also if there are none, or if the file is
 * damaged, which was reported; or -errno.
 */
int tensor_list_load(struct carton *c, const char *path, struct tensor_list *ret);
void tensor_list_finish(struct tensor_list *list);

#endif
