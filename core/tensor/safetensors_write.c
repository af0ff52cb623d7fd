/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>

#include "tensor/safetensors.h"

static const char reserved[] = "__metadata__";

bool safetensors_can_hold(const struct tensor_info *info)
{
	return info->dtype->safetensors &&
	       name_cmp(info->name, info->name_len, reserved, strlen(reserved));
}

static int in_file_order(const void *a, const void *b)
{
	const struct tensor_info *x = ((const struct safetensors_item *)a)->info;
	const struct tensor_info *y = ((const struct safetensors_item *)b)->info;

	if (x->dtype->order != y->dtype->order)
		return x->dtype->order > y->dtype->order ? -1 : 1;
	return name_cmp(x->name, x->name_len, y->name, y->name_len);
}

static int add_tensor(struct buf *b, const struct safetensors_item *item, bool first)
{
	const struct tensor_info *i = item->info;
	if (!first)
		buf_addc(b, ',');
	buf_add_json(b, i->name, i->name_len);
	buf_addf(b, ":{\"dtype\":\"%s\",\"shape\":[", i->dtype->safetensors);
	for (unsigned d = 0; d < i->rank; d++)
		buf_addf(b, "%s%" PRIu64, d ? "," : "", i->shape[d]);
	return buf_addf(b, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", item->offset,
			item->offset + i->bytes);
}

/* The JSON, behind the `start` bytes that are in `b` already. */
static int add_json(struct buf *b, size_t start, struct safetensors_item *items, size_t n)
{
	uint64_t offset = 0;
	int r = buf_addc(b, '{');

	for (size_t i = 0; i < n && r == 0; i++) {
		items[i].offset = offset;
		if (!safetensors_can_hold(items[i].info))
			return -EINVAL;
		if (__builtin_add_overflow(offset, items[i].info->bytes, &offset))
			return -EOVERFLOW;
		r = add_tensor(b, &items[i], !i);
	}
	if (r == 0)
		r = buf_addc(b, '}');
	while (r == 0 && (b->len - start) % 8)
		r = buf_addc(b, ' ');
	if (r == 0 && b->len - start > MAX_SAFETENSORS_HEADER)
		return -EFBIG;
	return r == 0 && offset > INT64_MAX - 8 - (b->len - start) ? -EOVERFLOW : r;
}

int safetensors_header(struct safetensors_item *items, size_t n, struct buf *b)
{
	size_t start = b->len + sizeof(uint64_t);
	int r;

	if (n)
		qsort(items, n, sizeof(*items), in_file_order);
	r = buf_add(b, "\0\0\0\0\0\0\0", sizeof(uint64_t)); /* the length */
	if (r < 0)
		return r;
	r = add_json(b, start, items, n);
	if (r < 0)
		b->len = start - sizeof(uint64_t);
	else
		put_le64(b->data + start - sizeof(uint64_t), b->len - start);
	b->data[b->len] = '\0';
	return r;
}
