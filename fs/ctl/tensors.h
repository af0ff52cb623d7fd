/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a carton: those of tensor_data/ and of each safetensors file, as views/ shows
 * them. The carton is opened with views = CTL_TENSOR_VIEWS.
 */
#ifndef FS_CTL_TENSORS_H
#define FS_CTL_TENSORS_H

#include "carton.h"

/* No carton has a directory of this name. */
#define CTL_TENSOR_VIEWS ".cartonctl-tensors"

struct ctl_tensor {
	const char *name; /* that of its view */
	char dtype[32], shape[256];
	uint64_t bytes; /* 0 if they are not known */
	struct carton_node *data;
};

/*
 * Calls `fn` for each tensor of the file or directory at `path`, by name, until it does not return
 * 0. The file is verified, and so read as a whole. Returns what `fn` does; -ENOENT: it has no
 * tensors.
 */
typedef int ctl_tensor_fn(void *ctx, const struct ctl_tensor *tensor);
int ctl_tensors(struct carton *c, const char *path, ctl_tensor_fn *fn, void *ctx);

/* Is this a safetensors file? */
bool ctl_has_tensors(const struct carton_node *file);

/* May it be read although the user has not asked for it: is it local, and at most 256 MiB? */
bool ctl_is_cheap(const struct carton *c, const struct carton_node *file);

/* The number of elements of a shape such as "[2,3]". */
uint64_t ctl_elements(const char *shape);

#endif
