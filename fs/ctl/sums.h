/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of tensors: how many, of how many elements, and the bytes of each dtype. */
#ifndef FS_SUMS_H
#define FS_SUMS_H

#include "ctl/tensors.h"

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
