/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of an open carton: tensor_data/index.toml (tensors.h) held against its tree.
 */
#ifndef CARTON_INDEX_H
#define CARTON_INDEX_H

#include "strings.h"
#include "tensors.h"
#include "tree.h"

struct index {
	struct tensors *tensors; /* NULL: there are none, or `problem` */
	char *problem;		 /* why the index cannot be read; NULL: it can, or is not there */
	size_t problem_line;	 /* 0: not about a line */
};

/*
 * Reads and checks the index, waiting for it. 0 also when it is bad, which `problem` then says; -errno
 * when that may change (network, memory).
 */
int index_load(const struct tree *t, struct index *ret);
void index_free(struct index *x);

/* The file with the tensor's data; NULL: there is none. */
struct node *index_file(const struct tree *t, const struct tensor *tensor);

/*
 * Reads a string tensor's file through and tells how long its forms are, waiting for it. 0; -EBADMSG
 * with the tensor's problem set; -errno when it may work later.
 */
int index_measure(const struct tree *t, struct tensor *tensor, struct strings_size *ret);

/* A toml_read_fn over the verified bytes of a pinned object. */
struct index_reader {
	struct object *object;
	uint64_t off;
};

ssize_t index_read(void *reader, void *ret_buf, size_t n);

#endif
