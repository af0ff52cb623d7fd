/* SPDX-License-Identifier: Apache-2.0 */
/* Content that is derived from other objects: what views convert, and lazy directories. */
#ifndef CARTON_CONTENT_DERIVED_H
#define CARTON_CONTENT_DERIVED_H

#include "content/fill.h"

/*
 * Makes content from other objects, on a worker of LANE_VIEWS. It runs once, from start to end, and
 * waits for others by object_get_wait() and object_read_wait() with &f->waits; these may be derived
 * too, as long as none needs itself. It holds no lock meanwhile that another would wait for. Sets
 * f->bytes and f->size (an output does). 0 or -errno.
 */
typedef int object_derive_fn(void *ctx, struct fill *f);

/*
 * An object without a hash, which `derive` makes. Owned by the store; `name` outlives it. May be
 * added at any time, by any thread. 0 or -ENOMEM.
 */
int object_add_derived(struct object_store *s, const char *name, uint64_t size,
		       object_derive_fn *derive, void *ctx, struct object **ret);

/*
 * Says what a derived object is made of, before anyone gets it: if that turns out to be damaged
 * after it was made, it is withdrawn. Needs no call for what object_hash_all() was asked about.
 */
void object_depend(struct object *derived, struct object *of);

/* Where derived bytes go: memory if they are few, else an unnamed file with tags. Private. */
struct derived_file {
	struct fill *fill;
	uint64_t size, done;
	char *memory;	   /* or */
	struct file *dest; /* with */
	struct hasher hasher;
};

/* For just `size` bytes. 0, -ENOMEM, -ENOSPC or -errno. */
int derived_begin(struct derived_file *out, struct fill *f, uint64_t size);

/* The next bytes. 0; -EBADMSG: more than `size`; -ECANCELED; -ENOSPC or -errno. */
int derived_write(void *output, const void *data, size_t n);

/*
 * Ends it with `result`: when that is 0 and all bytes are there they are the object's. 0 or -errno.
 */
int derived_end(struct derived_file *out, int result);

#endif
