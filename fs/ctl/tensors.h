/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a carton: those of tensor_data/ and of each safetensors file, as views/ shows
 * them. The carton is opened with the options of ctl_hide_views().
 */
#ifndef FS_CTL_TENSORS_H
#define FS_CTL_TENSORS_H

#include "carton.h"

/* No carton has a directory of this name. */
#define CTL_TENSOR_VIEWS ".cartonctl-tensors"

static inline void ctl_hide_views(struct carton_options *options)
{
	options->views = CTL_TENSOR_VIEWS;
	options->views_hidden = true;
}

struct ctl_tensor {
	char *name; /* that of its view */
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

/* ---- a list of those of a file, or of tensor_data/ ---- */

struct tensor_list {
	struct ctl_tensor *list; /* by name; owned, with their names */
	size_t n, cap;
};

/*
 * Loads those of a path into a list that is all zero: 0, also if there are none, or if the file is
 * damaged, which was reported; or -errno.
 */
int tensor_list_load(struct carton *c, const char *path, struct tensor_list *ret);
void tensor_list_finish(struct tensor_list *list);

/* ---- sums: how many, of how many elements, and the bytes of each dtype ---- */

#define CTL_DTYPES 32

struct ctl_sums {
	uint64_t tensors, elements, bytes;
	struct ctl_dtype_sum {
		char name[32];
		uint64_t bytes;
	} dtypes[CTL_DTYPES]; /* others are not listed */
	size_t n_dtypes;
};

/* A ctl_tensor_fn; its context is the sums. */
int ctl_sums_add(void *sums, const struct ctl_tensor *t);

/* Prints them: of the tensors in `where`, with `noun` for an element. Nothing if there are none. */
void ctl_sums_put(const char *where, const char *noun, struct ctl_sums *s);

#endif
