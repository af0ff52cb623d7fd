/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of an open carton: tensor_data/index.toml (tensors.h) held against its tree.
 */
#ifndef CARTON_VIEWS_INDEX_H
#define CARTON_VIEWS_INDEX_H

#include "tensor/strings.h"
#include "tensor/index_toml.h"
#include "tree/tree.h"

/* A file of strings, read through once for all tensors that it is the data of. */
struct index_strings {
	const struct object *object;
	struct strings_size size;
	char *problem; /* what is wrong with it; NULL: nothing, or not measured yet */
	bool measured;
};

struct index {
	const struct tree *tree;       /* which it is the index of */
	struct tensors *tensors;       /* NULL: there are none, or `problem` */
	struct index_strings *strings; /* sorted by object */
	size_t n_strings;
	char *problem;	     /* why the index cannot be read; NULL: it can, or is not there */
	size_t problem_line; /* 0: not about a line */
};

/*
 * Reads and checks the index, waiting for it. 0 also when it is bad, which `problem` then says; -errno
 * when that may change (network, memory). `asking`, here and below: the object that it is done for,
 * -ECANCELED once nobody waits for that; NULL: it is done to its end.
 */
int index_load(const struct tree *t, const struct object *asking, struct index *ret);
void index_free(struct index *x);

/* The file with the tensor's data; NULL: there is none. */
struct node *index_file(const struct tree *t, const struct tensor *tensor);

/*
 * Tells how long the forms of a string tensor are; the first call for a file waits for it and reads it
 * through. 0; -EBADMSG with the tensor's problem set; -errno when it may work later.
 */
int index_measure(struct index *x, struct tensor *tensor, const struct object *asking,
		  const struct strings_size **ret);

/* A toml_read_fn over the verified bytes of a pinned object. */
struct index_reader {
	struct object *object;
	const struct object *asking;
	uint64_t off;
};

ssize_t index_read(void *reader, void *ret_buf, size_t n);

#endif
