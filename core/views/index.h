/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of an open carton: tensor_data/index.toml (index_toml.h), checked against its tree. Not
 * for several threads at once.
 */
#ifndef CARTON_VIEWS_INDEX_H
#define CARTON_VIEWS_INDEX_H

#include "object/maker.h"
#include "tensor/strings.h"
#include "tensor/index_toml.h"
#include "tree/tree.h"

/* The sizes of a file of strings, measured once for all tensors that use it. */
struct index_strings {
	const struct object *object;
	struct strings_size size;
	char *problem; /* NULL: none, or not measured yet */
	bool measured;
};

struct index {
	const struct tree *tree;       /* which it is the index of */
	struct index_toml *tensors;    /* NULL: there are none, or `problem` */
	struct index_strings *strings; /* sorted by object */
	size_t n_strings;
	char *problem;	     /* why the index cannot be read; NULL: it can, or there is none */
	size_t problem_line; /* 0: not about a line */
};

/*
 * Reads and checks the index. Returns 0 also when it is bad: `problem` then says why. -EINPROGRESS as
 * making_need(); another -errno when it may work later (network, memory). `m`, here and below: the
 * making that this is done for; -ECANCELED once nobody waits for it. NULL: waits, and is never cancelled.
 */
int index_load(const struct tree *t, struct making *m, struct index *ret);
void index_free(struct index *x);

/* The file with the tensor's data; NULL: there is none. */
struct node *index_file(const struct tree *t, const struct tensor *tensor);

/*
 * Gives the sizes of a string tensor's forms. The first call for a file reads all of it, and blocks
 * while it is fetched. 0; -EBADMSG with the tensor's problem set; -errno when it may work later.
 */
int index_measure(struct index *x, struct tensor *tensor, const struct making *m,
		  const struct strings_size **ret);

/* The context of index_read(), a toml_read_fn over the verified bytes of a pinned object. */
struct index_reader {
	struct object *object;
	const struct cancel *cancel;
	uint64_t off;
};

ssize_t index_read(void *reader, void *ret_buf, size_t n);

#endif
