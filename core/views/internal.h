/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the makers of views share.
 */
#ifndef CARTON_VIEWS_INTERNAL_H
#define CARTON_VIEWS_INTERNAL_H

#include <pthread.h>

#include "tensor/filename.h"
#include "views/json.h"
#include "views/views.h"

/* What there is of a string tensor. */
struct view_strings {
	struct object *bytes; /* the BYTES form; NULL: not asked for yet */
	char *later; /* why it was not measured when tensor_data/ was listed; NULL: it was */
};

struct views {
	struct views_options options;
	pthread_mutex_t lock;	     /* held while a view of the index is made: guards these four */
	const struct object *asking; /* the gate that is being opened */
	bool loaded;
	struct index index;
	struct view_strings *strings; /* one for each tensor of the index */
	struct node **safetensors;    /* of the carton: files and symlinks; constant */
	size_t n_safetensors;
	pthread_mutex_t kept_lock;
	struct view_kept *kept; /* what nodes point to, freed at the end; by kept_lock */
};

/*
 * Makes what is in a directory. Runs on a worker; with the lock held, but for view_make_safetensors.
 * 0; -EFBIG: it is too much to be kept, now and later; or why not now.
 */
typedef int view_make_fn(struct views *v, struct node *dir, void *ctx);

/* A directory whose contents `make` makes when somebody looks. 0 or -errno. */
int view_add_dir(struct views *v, struct node *parent, const char *name, view_make_fn *make,
		 void *ctx, struct node **ret);

/* A file of one extent, which is a view of `tensor`. */
int view_add_file(struct views *v, struct node *parent, const char *name, const struct extent *data,
		  const struct tensor_info *tensor);

/*
 * A file of literal text, taken over from `b` also on failure; and one with extents behind it.
 * `tensor`: what it is a view of, or NULL.
 */
int view_add_text(struct views *v, struct node *parent, const char *name, struct buf *b);
int view_add_body(struct views *v, struct node *parent, const char *name, struct buf *b,
		  const struct extent *extents, size_t n, const struct tensor_info *tensor);

/*
 * The files of one tensor with data: NAME.bin, and NAME.npy where numpy has its dtype. `data`: its
 * bytes; `descr`: numpy's name of what `npy_data` holds, NULL: no .npy.
 */
struct view_tensor {
	const struct tensor_info *info;
	struct extent data;
	const char *descr;
	struct extent npy_data;
};

int view_add_tensor(struct views *v, struct node *dir, const char *stem,
		    const struct view_tensor *t);

/* Its line in index.json, with the dtype as its source spells it. */
int view_list_tensor(struct view_json *j, const struct tensor_info *info, const char *dtype,
		     uint64_t bytes, const char *stem, bool npy);

/* Frees `p` by `free_fn` when the views are freed; at once when it cannot be kept (-ENOMEM). */
int view_keep(struct views *v, void *p, void (*free_fn)(void *));

/* The index, read when it is needed first. 0, or why not now. */
int view_load(struct views *v);

/* The size of a string tensor's forms. 0; -EBADMSG: it has a problem; or not now. */
int view_measure(struct views *v, struct tensor *t, const struct strings_size **ret);

/*
 * The bytes of a tensor of the index in its binary form (numeric, or BYTES). 0; -EBADMSG: it has a
 * problem, or is nested; or why not now.
 */
int view_data(struct views *v, struct tensor *t, struct extent *ret);

/*
 * An object with the strings of `t` in a form, made from its file when it is read. `size`: OBJECT_NO_SIZE
 * for a BYTES form that is not measured yet.
 */
int view_add_strings(struct views *v, struct tensor *t, enum strings_form form, uint64_t width,
		     uint64_t size, struct object **ret);

/*
 * Is it only that some server does not give what is needed? Then whatever else there is can be shown
 * without it. The other passing reasons are ours, and the next attempt is better off whole.
 */
static inline bool view_is_out_of_reach(int r)
{
	return r < 0 && r != -EBADMSG && r != -EFBIG && r != -ENOMEM && r != -ENOSPC &&
	       r != -ECANCELED && r != -ENOTCONN;
}

/* For the loops of a maker: -ECANCELED when nobody waits any more for what is in `dir`, else 0. */
static inline int view_go_on(const struct node *dir)
{
	return object_must_stop(dir->dir.gate) ? -ECANCELED : 0;
}

view_make_fn view_make_tensors;	    /* tensor_data/; no ctx */
view_make_fn view_make_safetensors; /* ctx: the object of the file */
view_make_fn view_make_triton;	    /* triton/; no ctx */

/* tensor_data.safetensors, if there is anything to put into it. */
int view_add_collection(struct views *v, struct node *dir);

#endif
