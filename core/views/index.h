/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of an open carton: tensor_data/index.toml (index_toml.h), checked against its tree.
 * Not for several threads at once.
 */
#ifndef CARTON_VIEWS_INDEX_H
#define CARTON_VIEWS_INDEX_H

#include "object/derived.h"
#include "tensor/strings.h"
#include "tensor/index_toml.h"
#include "tree/tree.h"

/* The sizes of a file of strings, measured once for all tensors that use it. */
struct index_strings {
	const struct object *object;
	struct strings_size size;
	char *problem; /* NULL: none, or not measured yet */
	bool measured;
	int error;	   /* of the attempt to read it */
	uint64_t asked_in; /* the attempt (fill_number()) with that error */
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
 * Reads and checks the index. Returns 0 also for a bad index, with `problem` set; -EINPROGRESS as
 * fill_need(); another -errno if it may work later (network, memory). `m`, here and below: the
 * object being made; -ECANCELED once it has no waiters. NULL: block, without cancellation.
 */
int index_load(const struct tree *t, struct fill *m, struct index *ret);
void index_finish(struct index *x);

/* The file with the tensor's data; NULL: there is none. */
struct node *index_file(const struct tree *t, const struct tensor *tensor);

/*
 * Measures the forms of a string tensor. The first call for a file reads the whole file. 0;
 * -EBADMSG with the tensor's problem set; -EINPROGRESS as fill_need(); another -errno if it may
 * work later, and then every call of one attempt gets the same.
 */
int index_measure(struct index *x, struct tensor *tensor, struct fill *m,
		  const struct strings_size **ret);

/* As fill_need(), for an object that is converted: all of it is verified, not only its chunks. */
int index_need(struct fill *m, struct object *o);

/* The context of index_read(), a toml_read_fn over the verified bytes of a pinned object. */
struct index_reader {
	struct object *object;
	const struct cancel *cancel;
	uint64_t off;
};

ssize_t index_read(void *reader, void *ret_buf, size_t n);

#endif
