/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of Triton's v2 HTTP protocol with its binary tensor data extension: the JSON in front
 * of the binary blocks of a request or response, and the HTTP headers that go with it.
 *
 * The JSON is compact, in the key order of the public client. Binary blocks follow it at once,
 * in the order of the tensors; they are not made here.
 */
#ifndef CARTON_TENSOR_TRITON_H
#define CARTON_TENSOR_TRITON_H

#include "tensor/dtype.h"
#include "base/util.h"

/*
 * One input or output. `info.name` is that of the input, not that of the tensor it is fed from;
 * `info.bytes` is the size of the binary block, for strings that of the BYTES form.
 */
struct triton_tensor {
	struct tensor_info info;
	size_t position; /* in [[input]] or [[output]]; SIZE_MAX: not declared there */
	void *user;	 /* comes along when they are sorted */
};

/* Puts tensors into the order of a body: as declared, then the others by name, bytewise. */
void triton_sort(struct triton_tensor *tensors, size_t n);

/*
 * Why there can be no body of these tensors, as a constant sentence, or NULL: a nested tensor, or
 * blocks of 2 GiB and more together.
 */
const char *triton_obstacle(const struct triton_tensor *tensors, size_t n);

/*
 * Appends the JSON of an inference request that asks for binary output, and tells the length of the
 * whole body, JSON and blocks (what is in `b` before is not counted). Returns 0; -EINVAL for a
 * tensor that has no datatype here; -EFBIG when `b` is full; -EOVERFLOW for a body over
 * MAX_TRITON_BODY; -ENOMEM.
 */
int triton_request(const struct triton_tensor *inputs, size_t n, struct buf *b, uint64_t *ret_body);

/* The same for the response that a server would give. `model_name` may be NULL: left out. */
int triton_response(const char *model_name, const struct triton_tensor *outputs, size_t n,
		    struct buf *b, uint64_t *ret_body);

/*
 * Appends the lines for `curl -H @file`: the content type, and the length in bytes of the JSON;
 * 0 for a raw request. curl itself adds Content-Length. Returns 0, -ENOMEM or -EFBIG.
 */
int triton_headers(uint64_t json_length, struct buf *b);

/* What carton.toml declares of the model's inputs. */
struct triton_declared {
	size_t n_inputs;	   /* of the model; of the first of them: */
	const char *name;	   /* NULL: none */
	const struct dtype *dtype; /* NULL: none that is known */
	bool any_shape;		   /* the shape is one symbol or "*": not even the rank is known */
	unsigned rank;
	const int64_t *dims; /* rank of them; -1: a symbol or "*" */
};

/*
 * Does a raw binary request, a body without JSON, reach this model as the tensor that it is? Only
 * when it has one input whose shape the server can deduce from the body's size: at most one variable
 * dimension and then none of 0, for strings exactly [1]; and only a tensor that fits what is declared,
 * since the body says neither name nor dtype nor shape.
 */
bool triton_raw_applies(const struct triton_declared *declared, const struct tensor_info *input);

#endif
