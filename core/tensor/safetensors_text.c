/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "tensor/internal.h"

/* A json_read_fn over the header. */
static ssize_t read_header(void *ctx, void *ret_buf, size_t n)
{
	struct header *h = ctx;
	int r;

	n = (size_t)MIN(n, h->end - h->off);
	r = n ? h->file->read(h->file->ctx, ret_buf, n, h->off) : 0;
	if (r < 0)
		return r;
	if (n && h->off == 8 && *(char *)ret_buf != '{')
		return reason_set(h->reason, -EBADMSG, "the header does not begin with '{'");
	h->off += n;
	return (ssize_t)n;
}

int header_next(struct header *h, enum json_event *ret)
{
	int r = json_next(&h->json, ret);

	if (r == -EBADMSG && h->json.fault)
		reason_set(h->reason, r, "the header is not valid JSON: %s", h->json.fault);
	return r;
}

bool header_text_is(const struct header *h, const char *s)
{
	const struct json *j = &h->json;

	return json_text_len(j) == strlen(s) && !memcmp(j->text->data + j->kept, s, strlen(s));
}

int header_keep_key(struct header *h, struct header_key *ret)
{
	struct header_key key = { .len = json_text_len(&h->json) };

	if (key.len > MAX_TENSOR_NAME)
		return reason_set(h->reason, -EFBIG, "a key has %zu bytes, more than %llu", key.len,
				  MAX_TENSOR_NAME);
	key.text = json_keep(&h->json);
	if (!key.text)
		return -ENOMEM;
	*ret = key;
	return 0;
}

int header_push_key(struct header *h)
{
	int r;

	if (h->n_other_keys++ == MAX_SAFETENSORS_KEYS)
		return reason_set(h->reason, -EFBIG,
				  "there are more than %d keys that name no tensor",
				  MAX_SAFETENSORS_KEYS);
	r = budget_room(h->file->budget, &h->keys_taken, h->keys, &h->cap_keys, h->n_keys + 1);
	if (r == 0)
		r = header_keep_key(h, &h->keys[h->n_keys]);
	h->n_keys += r == 0;
	return r;
}

static int by_text(const void *a, const void *b)
{
	const struct header_key *x = a, *y = b;

	return name_cmp(x->text, x->len, y->text, y->len);
}

int header_end_object(struct header *h, size_t first)
{
	if (h->n_keys > first)
		qsort(h->keys + first, h->n_keys - first, sizeof(*h->keys), by_text);
	for (size_t i = first + 1; i < h->n_keys; i++)
		if (by_text(&h->keys[i - 1], &h->keys[i]) == 0)
			return safetensors_duplicate(h->keys[i].text, h->keys[i].len, h->reason);
	h->n_keys = first;
	return 0;
}

int header_skip(struct header *h)
{
	size_t first = h->n_keys, depth = h->json.depth;
	enum json_event e, begun;
	int r = header_next(h, &begun);

	if (r < 0 || (begun != JSON_OBJECT && begun != JSON_ARRAY))
		return r;
	while (r == 0 && h->json.depth > depth) {
		if (begun == JSON_ARRAY) {
			r = header_skip(h);
			continue;
		}
		r = header_next(h, &e);
		if (r == 0 && e == JSON_KEY)
			r = header_push_key(h);
		if (r == 0 && e == JSON_KEY)
			r = header_skip(h);
	}
	return r < 0 ? r : header_end_object(h, first);
}

void header_begin(struct header *h, struct buf *text)
{
	h->off = 8;
	h->json.read = read_header;
	h->json.ctx = h;
	h->json.text = text;
}

void header_end(struct header *h)
{
	budget_give(h->file->budget, h->keys_taken);
	free(h->keys);
}
