/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of one tensor, and across all tensors of a header. */
#include <inttypes.h>
#include <stdlib.h>

#include "tensor/internal.h"

int safetensors_duplicate(const char *key, size_t n, struct reason *reason)
{
	return reason_set(reason, -EBADMSG, "the key '%.*s' occurs twice", utf8_quoted(key, n),
			  key);
}

int safetensors_check_tensor(struct tensor_info *i, const uint64_t *shape,
			     const uint64_t offsets[2], struct reason *reason)
{
	uint64_t begin = offsets[0], end = offsets[1];
	int r = dtype_bytes(i->dtype, shape, i->rank, &i->bytes);

	if (end < begin)
		return reason_set(reason, -EBADMSG,
				  TENSOR_FMT " ends at %" PRIu64 ", before it begins at %" PRIu64,
				  TENSOR_ARG(i), end, begin);
	if (r < 0)
		return reason_set(
			reason, -EBADMSG, TENSOR_FMT " has a shape whose size %s", TENSOR_ARG(i),
			r == -EBADMSG ? "is not a whole number of bytes" : "does not fit 64 bits");
	if (i->bytes != end - begin)
		return reason_set(reason, -EBADMSG,
				  TENSOR_FMT " has %" PRIu64
					     " bytes by its data_offsets, but %" PRIu64
					     " by its shape and dtype",
				  TENSOR_ARG(i), end - begin, i->bytes);
	i->off = begin;
	return 0;
}

static int by_name(const void *a, const void *b, void *list)
{
	const struct tensor_info *x = &((struct tensor_info *)list)[*(const uint32_t *)a];
	const struct tensor_info *y = &((struct tensor_info *)list)[*(const uint32_t *)b];

	return name_cmp(x->name, x->name_len, y->name, y->name_len);
}

static int by_offset(const void *a, const void *b, void *list)
{
	const struct tensor_info *x = &((struct tensor_info *)list)[*(const uint32_t *)a];
	const struct tensor_info *y = &((struct tensor_info *)list)[*(const uint32_t *)b];

	if (x->off != y->off)
		return x->off < y->off ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* The tensors follow each other from 0 to the end of the `data` bytes. */
static int check_offsets(const struct safetensors *s, const uint32_t *order, uint64_t data,
			 struct reason *reason)
{
	uint64_t at = 0;

	for (size_t i = 0; i < s->n; i++) {
		const struct tensor_info *t = &s->list[order[i]];

		if (t->off != at)
			return reason_set(reason, -EBADMSG,
					  TENSOR_FMT
					  " begins at %" PRIu64
					  ", %s the data before it, which ends at %" PRIu64,
					  TENSOR_ARG(t), t->off,
					  t->off < at ? "overlapping" : "leaving a hole after", at);
		at = t->off + t->bytes;
	}
	if (at != data)
		return reason_set(reason, -EBADMSG,
				  "the tensors end at %" PRIu64 ", but the file has %" PRIu64
				  " bytes of data",
				  at, data);
	return 0;
}

int safetensors_check(const struct safetensors *s, uint64_t data, struct reason *reason)
{
	uint32_t *order = calloc(s->n + 1, sizeof(*order));
	int r = 0;

	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < s->n; i++)
		order[i] = (uint32_t)i;
	if (s->n)
		qsort_r(order, s->n, sizeof(*order), by_name, s->list);
	for (size_t i = 1; i < s->n && r == 0; i++)
		if (by_name(&order[i - 1], &order[i], s->list) == 0)
			r = safetensors_duplicate(s->list[order[i]].name,
						  s->list[order[i]].name_len, reason);
	if (r == 0 && s->n)
		qsort_r(order, s->n, sizeof(*order), by_offset, s->list);
	if (r == 0)
		r = check_offsets(s, order, data, reason);
	free(order);
	return r;
}
