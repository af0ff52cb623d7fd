/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of an open carton: tensor_data/index.toml (index_toml.h), checked against its tree.
 *
 * Threads: index_load() is for one thread, then the index is constant but for the problems of its
 * tensors (index_size()) and what index_measure() finds. `waits`, here and below: of the work that
 * waits for the files, as object_get_wait() takes it; NULL: however long it takes.
 */
#ifndef CARTON_VIEWS_INDEX_H
#define CARTON_VIEWS_INDEX_H

#include "content/waits.h"
#include "tensor/strings.h"
#include "tensor/index_toml.h"
#include "tree/tree.h"

/* The sizes of a file of strings, measured once for all tensors that use it. */
struct index_strings {
	struct object *object;
	struct strings_size size; /* once it was measured */
	char *problem;		  /* likewise; NULL: none */
	struct object *sizes;	  /* the views' own: to be pinned to have it measured */
	int error;		  /* for who measures several: what became of this one */
};

struct index {
	const struct tree *tree;       /* of the carton */
	struct index_toml *tensors;    /* NULL: no index, or `problem` has a text */
	struct index_strings *strings; /* sorted by object */
	size_t n_strings;
	uint64_t strings_taken; /* of the budget */
	struct reason problem;	/* why the index cannot be read */
};

/*
 * Reads and checks the index. Returns 0 also for a bad index, with `problem` set; another -errno if
 * it may work later (network, memory); -ECANCELED.
 */
int index_load(const struct tree *t, struct waits *waits, struct index *ret);
void index_finish(struct index *x);

/* The file with the tensor's data; NULL: there is none. */
struct node *index_file(const struct tree *t, const struct tensor *tensor);

/* The file of a string tensor; NULL: the tensor is of another kind, or has a problem. */
struct index_strings *index_strings_of(const struct index *x, const struct tensor *tensor);

/* Reads a file, and measures it. 0, also if that shows a problem; -errno if it may work later. */
int index_measure(struct index_strings *s, struct waits *waits);

/*
 * The sizes of the forms of a string tensor whose file was measured. 0, -ENOMEM, or -EBADMSG with
 * the tensor's problem set.
 */
int index_size(struct index *x, struct tensor *tensor, const struct strings_size **ret);

/* As object_get_wait(), for one that is converted: all of it is verified, not only its chunks. */
int index_need(struct object *o, struct waits *waits);

/* The context of index_read(), a toml_read_fn over the verified bytes of a pinned object. */
struct index_reader {
	struct object *object;
	struct waits *waits;
	uint64_t off;
};

ssize_t index_read(void *reader, void *ret_buf, size_t n);

#endif
