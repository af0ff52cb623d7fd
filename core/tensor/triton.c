/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/triton.h"

#include <inttypes.h>
#include <stdlib.h>

static int in_order(const void *a, const void *b)
{
	const struct triton_tensor *x = a, *y = b;

	if (x->position != y->position)
		return x->position < y->position ? -1 : 1;
	return name_cmp(x->info.name, x->info.name_len, y->info.name, y->info.name_len);
}

void triton_sort(struct triton_tensor *tensors, size_t n)
{
	if (n)
		qsort(tensors, n, sizeof(*tensors), in_order);
}

/* Bytes of all blocks; UINT64_MAX if that overflows. */
static uint64_t blocks(const struct triton_tensor *tensors, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		if (__builtin_add_overflow(sum, tensors[i].info.bytes, &sum))
			return UINT64_MAX;
	}
	return sum;
}

const char *triton_obstacle(const struct triton_tensor *tensors, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (tensors[i].info.dtype == dtype_nested)
			return "one of the tensors is nested, which the protocol does not have";
		if (!tensors[i].info.dtype->triton)
			return "one of the tensors has a dtype that the protocol does not have";
	}
	if (blocks(tensors, n) > MAX_TRITON_BODY)
		return "the body would have 2 GiB or more";
	return NULL;
}

static int add_tensor(struct buf *b, const struct tensor_info *i, bool first)
{
	buf_adds(b, first ? "{\"name\":" : ",{\"name\":");
	buf_add_json(b, i->name, i->name_len);
	buf_adds(b, ",\"shape\":[");
	for (unsigned d = 0; d < i->rank; d++)
		buf_addf(b, "%s%" PRIu64, d ? "," : "", i->shape[d]);
	buf_addf(b, "],\"datatype\":\"%s\",\"parameters\":{", i->dtype->triton);
	return buf_addf(b, "\"binary_data_size\":%" PRIu64 "}}", i->bytes);
}

static int add_tensors(struct buf *b, const struct triton_tensor *tensors, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && !r; i++) {
		if (!tensors[i].info.dtype->triton)
			return -EINVAL;
		r = add_tensor(b, &tensors[i].info, !i);
	}
	return r;
}

static int body_length(uint64_t json, const struct triton_tensor *tensors, size_t n, uint64_t *ret)
{
	uint64_t sum;

	if (__builtin_add_overflow(json, blocks(tensors, n), &sum) || sum > MAX_TRITON_BODY)
		return -EOVERFLOW;
	*ret = sum;
	return 0;
}

int triton_request(const struct triton_tensor *inputs, size_t n, struct buf *b, uint64_t *ret_body)
{
	size_t before = b->len;
	int r;

	buf_adds(b, "{\"inputs\":[");
	r = add_tensors(b, inputs, n);
	if (!r)
		r = buf_adds(b, "],\"parameters\":{\"binary_data_output\":true}}");
	return r ? r : body_length(b->len - before, inputs, n, ret_body);
}

int triton_response(const char *model_name, const struct triton_tensor *outputs, size_t n,
		    struct buf *b, uint64_t *ret_body)
{
	size_t before = b->len;
	int r;

	buf_addc(b, '{');
	if (model_name) {
		buf_adds(b, "\"model_name\":");
		buf_add_json(b, model_name, strlen(model_name));
		buf_addc(b, ',');
	}
	buf_adds(b, "\"outputs\":[");
	r = add_tensors(b, outputs, n);
	if (!r)
		r = buf_adds(b, "]}");
	return r ? r : body_length(b->len - before, outputs, n, ret_body);
}

int triton_headers(uint64_t json_length, struct buf *b)
{
	return buf_addf(b,
			"Content-Type: application/octet-stream\n"
			"Inference-Header-Content-Length: %" PRIu64 "\n",
			json_length);
}

bool triton_raw_applies(const struct triton_declared *declared, const struct tensor_info *input)
{
	unsigned variable = 0;
	bool empty = false;

	if (declared->n_inputs != 1 || declared->any_shape || !input->dtype->triton ||
	    declared->rank != input->rank || declared->dtype != input->dtype || !declared->name ||
	    name_cmp(declared->name, strlen(declared->name), input->name, input->name_len))
		return false;
	for (unsigned d = 0; d < input->rank; d++) {
		if (declared->dims[d] < 0)
			variable++;
		else if ((uint64_t)declared->dims[d] != input->shape[d])
			return false;
		empty |= declared->dims[d] == 0;
	}
	if (input->dtype == dtype_string)
		return declared->rank == 1 && declared->dims[0] == 1;
	return variable <= !empty;
}
