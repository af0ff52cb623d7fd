/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Triton's v2 HTTP protocol with the binary tensor data extension: the JSON of a request or
 * response, and the HTTP headers for it.
 *
 * The JSON is compact, with keys in the order of the public client. The binary blocks follow it
 * without a gap, in the order of the tensors; the caller adds them.
 */
#ifndef CARTON_TENSOR_TRITON_H
#define CARTON_TENSOR_TRITON_H

#include "tensor/dtype.h"
#include "base/util.h"

/*
 * One input or output. `info.name` is the input's name, not the tensor's; `info.bytes` is the size
 * of the binary block, for strings of their BYTES form.
 */
struct triton_tensor {
	struct tensor_info info;
	size_t position; /* in [[input]] or [[output]]; SIZE_MAX: not declared there */
	void *user;	 /* moves with it when they are sorted */
};

/* Sorts tensors for a body: in the order of their declaration, then the rest by name, bytewise. */
void triton_sort(struct triton_tensor *tensors, size_t n);

/*
 * Why these tensors cannot be in a body, as a constant sentence: one has a dtype that the protocol
 * lacks, or the blocks have 2 GiB or more in all. NULL: they can.
 */
const char *triton_obstacle(const struct triton_tensor *tensors, size_t n);

/*
 * Appends the JSON of an inference request with binary output. `ret_body`: bytes of the new JSON
 * and the blocks. Returns 0; -EINVAL for a tensor whose dtype Triton does not have; -EFBIG when `b`
 * is full; -EOVERFLOW for a body over MAX_TRITON_BODY; -ENOMEM.
 */
int triton_request(const struct triton_tensor *inputs, size_t n, struct buf *b, uint64_t *ret_body);

/* The same for the response of a server. `model_name` NULL: left out. */
int triton_response(const char *model_name, const struct triton_tensor *outputs, size_t n,
		    struct buf *b, uint64_t *ret_body);

/*
 * Appends the header lines for `curl -H @file`: the content type, and the bytes of the JSON (0 for
 * a raw request). curl itself adds Content-Length. Returns 0, -ENOMEM or -EFBIG.
 */
int triton_headers(uint64_t json_length, struct buf *b);

/* The declaration of the model's inputs in carton.toml. */
struct triton_declared {
	size_t n_inputs;	   /* of the model; of the first of them: */
	const char *name;	   /* NULL: none */
	const struct dtype *dtype; /* NULL: none that is known */
	bool any_shape;		   /* the shape is one symbol or "*": unknown rank */
	unsigned rank;
	const int64_t *dims; /* rank of them; -1: a symbol or "*" */
};

/*
 * Can this tensor be sent as a raw binary request, a body without JSON? The model must have one
 * input, and the server must be able to deduce its shape from the body's size: at most one variable
 * dimension and then none of 0, for strings exactly [1]. And the tensor must fit the declaration,
 * since the body has no name, dtype or shape.
 */
bool triton_raw_applies(const struct triton_declared *declared, const struct tensor_info *input);

#endif
