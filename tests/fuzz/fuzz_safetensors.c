/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a safetensors header: the first two are the size of the data behind it, the rest
 * is the JSON. What is accepted must cover the data exactly, and be accepted again when it is
 * written anew.
 */
#include <stdlib.h>

#include "tensor/safetensors.h"

#include "fuzz.h"

struct file {
	uint8_t length[8];
	const uint8_t *json;
	size_t n;
};

static int read_file(void *ctx, void *ret_buf, size_t n, uint64_t off)
{
	const struct file *f = ctx;

	CHECK(off == 0 ? n == 8 : off >= 8 && off - 8 + n <= f->n);
	memcpy(ret_buf, off ? f->json + off - 8 : f->length, n);
	return 0;
}

static int parse(const void *json, size_t n, uint64_t data, struct safetensors **ret)
{
	struct file f = { .json = json, .n = n };
	struct reason error = { 0 };
	int r;

	put_le64(f.length, n);
	r = safetensors_parse(&(struct safetensors_file){ read_file, &f, 8 + n + data, NULL }, ret,
			      &error);
	CHECK(!r == !*error.text);
	CHECK(r == 0 || r == -EBADMSG || r == -EOPNOTSUPP || r == -EFBIG);
	return r;
}

/* What holds for all that is accepted; returns the bytes of all tensors. */
static uint64_t check(const struct safetensors *s)
{
	uint64_t sum = 0, bytes;

	for (size_t i = 0; i < s->n; i++) {
		const struct tensor_info *t = &s->list[i];

		CHECK(t->dtype && utf8_valid(t->name, t->name_len) && !t->name[t->name_len]);
		CHECK(!dtype_bytes(t->dtype, t->shape, t->rank, &bytes) && bytes == t->bytes);
		CHECK(t->off >= s->data_start);
		sum += bytes;
	}
	for (size_t i = 0; i < s->n_metadata; i++)
		CHECK(s->metadata[i].value &&
		      utf8_valid(s->metadata[i].value, s->metadata[i].value_len));
	return sum;
}

static void write_again(const struct safetensors *s, uint64_t data)
{
	struct safetensors_item *items = calloc(s->n + 1, sizeof(*items));
	struct buf b = buf_init(MAX_SAFETENSORS_HEADER + 8);
	struct safetensors *again = NULL;

	CHECK(items);
	for (size_t i = 0; i < s->n; i++)
		items[i].info = &s->list[i];
	CHECK(!safetensors_header(items, s->n, &b));
	CHECK(!parse(b.data + 8, b.len - 8, data, &again));
	CHECK(again->n == s->n && check(again) == data);
	for (size_t i = 0; i < s->n; i++)
		CHECK(again->list[i].off == again->data_start + items[i].offset);
	safetensors_free(again);
	buf_finish(&b);
	free(items);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct safetensors *s = NULL;
	uint64_t size;

	if (n < 2)
		return 0;
	size = get_le16(data);
	if (parse(data + 2, n - 2, size, &s))
		return 0;
	CHECK(check(s) == size);
	write_again(s, size);
	safetensors_free(s);
	return 0;
}
