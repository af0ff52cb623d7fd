/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <yajl/yajl_parse.h>

#include "tensor/json_guard.h"
#include "tensor/internal.h"

#define CHUNK (1 * MIB)

/* ---- the parser's events ---- */

static int on_scalar(struct st_parse *p)
{
	if (p->state != UNKNOWN)
		return st_unexpected(p);
	if (!p->depth)
		p->state = TENSOR_KEY;
	return 1;
}

static int on_null(void *ctx)
{
	return on_scalar(ctx);
}

static int on_boolean(void *ctx, int value)
{
	(void)value;
	return on_scalar(ctx);
}

static int on_number(void *ctx, const char *s, size_t n)
{
	struct st_parse *p = ctx;
	uint64_t v;

	if (p->state != SHAPE_ITEM && p->state != OFFSETS_ITEM)
		return on_scalar(p);
	if (!st_parse_u64(s, n, &v))
		return st_unexpected(p);
	if (p->state == SHAPE_ITEM)
		return st_add_dimension(p, v);
	if (p->n_offsets == 2)
		return st_unexpected(p);
	p->offsets[p->n_offsets++] = v;
	return 1;
}

static int on_string(void *ctx, const unsigned char *s, size_t n)
{
	struct st_parse *p = ctx;

	if (p->state == METADATA_VALUE)
		return st_metadata_value(p, s, n);
	if (p->state == DTYPE)
		return st_set_dtype(p, s, n);
	if (!utf8_valid((const char *)s, n))
		return st_stop(p, -EBADMSG, "the header is not valid UTF-8");
	return on_scalar(p);
}

static int on_start_map(void *ctx)
{
	struct st_parse *p = ctx;

	if (p->state == START) {
		p->state = ROOT;
	} else if (p->state == METADATA || p->state == TENSOR) {
		p->state = p->state == METADATA ? METADATA_KEY : TENSOR_KEY;
		p->object = ++p->objects;
	} else if (p->state == UNKNOWN) {
		p->nested[p->depth++] = ++p->objects; /* the guard bounds the depth */
	} else {
		return st_unexpected(p);
	}
	return 1;
}

static int on_map_key(void *ctx, const unsigned char *s, size_t n)
{
	struct st_parse *p = ctx;

	if (p->state == ROOT)
		return st_root_key(p, s, n);
	if (p->state == METADATA_KEY)
		return st_metadata_key(p, s, n);
	if (p->state == TENSOR_KEY)
		return st_tensor_key(p, s, n);
	return st_other_key(p, p->nested[p->depth - 1], s, n);
}

/* Leaves an object or array inside an unknown value. */
static int leave(struct st_parse *p)
{
	if (!--p->depth)
		p->state = TENSOR_KEY;
	return 1;
}

static int on_end_map(void *ctx)
{
	struct st_parse *p = ctx;

	if (p->state == UNKNOWN)
		return leave(p);
	if (p->state == TENSOR_KEY)
		return st_end_tensor(p);
	p->state = p->state == METADATA_KEY ? ROOT : DONE;
	return 1;
}

static int on_start_array(void *ctx)
{
	struct st_parse *p = ctx;

	if (p->state == SHAPE)
		p->state = SHAPE_ITEM;
	else if (p->state == OFFSETS)
		p->state = OFFSETS_ITEM;
	else if (p->state == UNKNOWN)
		p->nested[p->depth++] = 0;
	else
		return st_unexpected(p);
	return 1;
}

static int on_end_array(void *ctx)
{
	struct st_parse *p = ctx;

	if (p->state == UNKNOWN)
		return leave(p);
	if (p->state == OFFSETS_ITEM && p->n_offsets != 2)
		return st_unexpected(p);
	p->state = TENSOR_KEY;
	return 1;
}

static const yajl_callbacks callbacks = {
	.yajl_null = on_null,
	.yajl_boolean = on_boolean,
	.yajl_number = on_number,
	.yajl_string = on_string,
	.yajl_start_map = on_start_map,
	.yajl_map_key = on_map_key,
	.yajl_end_map = on_end_map,
	.yajl_start_array = on_start_array,
	.yajl_end_array = on_end_array,
};

/* ---- the whole header ---- */

/* Why yajl stopped: a callback's reason, or its own. */
static int yajl_reason(struct st_parse *p, yajl_handle json)
{
	unsigned char *text;

	if (p->r)
		return p->r;
	text = yajl_get_error(json, 0, NULL, 0);
	st_stop(p, -EBADMSG, "the header is not valid JSON: %.*s",
		text ? (int)strcspn((char *)text, "\n") : 0, text ? (char *)text : "");
	if (text)
		yajl_free_error(json, text);
	return p->r;
}

/* Reads the header, and has the guard look at all of it. */
static int read_text(struct st_parse *p, safetensors_read_fn *read, void *ctx, char *text, size_t n)
{
	struct json_guard guard = json_guard_init(MAX_SAFETENSORS_DEPTH);
	const char *fault = NULL;

	for (size_t at = 0, part; at < n && !fault; at += part) {
		int r;

		part = (size_t)MIN(CHUNK, n - at);
		r = read(ctx, text + at, part, 8 + at);
		if (r)
			return r;
		if (text[0] != '{') {
			st_stop(p, -EBADMSG, "the header does not begin with '{'");
			return p->r;
		}
		fault = json_guard_feed(&guard, text + at, part);
	}
	if (fault)
		st_stop(p, -EBADMSG, "the header is not valid JSON: %s", fault);
	return p->r;
}

/* In one piece: at each new one, yajl begins a token that is not complete anew. */
static int feed(struct st_parse *p, yajl_handle json, safetensors_read_fn *read, void *ctx)
{
	size_t n = (size_t)p->s->data_start - 8;
	char *text = malloc(n);
	int r = text ? read_text(p, read, ctx, text, n) : -ENOMEM;

	if (!r && (yajl_parse(json, (unsigned char *)text, n) != yajl_status_ok ||
		   yajl_complete_parse(json) != yajl_status_ok))
		r = yajl_reason(p, json);
	free(text);
	return r;
}

static int parse_json(struct st_parse *p, safetensors_read_fn *read, void *ctx, uint64_t data)
{
	yajl_handle json = yajl_alloc(&callbacks, NULL, p);
	int r;

	if (!json)
		return -ENOMEM;
	r = feed(p, json, read, ctx);
	yajl_free(json);
	if (!r && p->state != DONE)
		r = st_stop(p, -EBADMSG, "the header is not a JSON object") ? 0 : p->r;
	if (!r && !st_end(p, data))
		r = p->r;
	return r;
}

/* The length of the header, under the rules that need no look into it. */
static int read_length(struct st_parse *p, safetensors_read_fn *read, void *ctx, uint64_t size,
		       uint64_t *ret)
{
	uint8_t length[8];
	uint64_t n;
	int r;

	if (size < sizeof(length)) {
		st_stop(p, -EBADMSG, "the file has %" PRIu64 " bytes, too few for a header", size);
		return p->r;
	}
	r = read(ctx, length, sizeof(length), 0);
	if (r)
		return r;
	n = get_le64(length);
	if (n > MAX_SAFETENSORS_HEADER)
		st_stop(p, -EFBIG, "the header has %" PRIu64 " bytes, more than %d", n,
			MAX_SAFETENSORS_HEADER);
	else if (n > size - sizeof(length))
		st_stop(p, -EBADMSG,
			"the header has %" PRIu64 " bytes, more than the file of %" PRIu64, n,
			size);
	else if (!n)
		st_stop(p, -EBADMSG, "the header is empty");
	else
		*ret = n;
	return p->r;
}

int safetensors_parse(safetensors_read_fn *read, void *ctx, uint64_t size, struct safetensors **ret,
		      struct safetensors_error *ret_error)
{
	struct safetensors_error error = { "" };
	struct st_parse p = { .error = &error };
	uint64_t n = 0;
	int r = read_length(&p, read, ctx, size, &n);

	if (!r) {
		p.s = calloc(1, sizeof(*p.s));
		r = p.s ? 0 : -ENOMEM;
	}
	if (!r) {
		p.s->data_start = 8 + n;
		p.s->text = buf_init(n);
		r = buf_reserve(&p.s->text, n);
	}
	if (!r)
		r = parse_json(&p, read, ctx, size - p.s->data_start);
	free(p.keys);
	if (r) {
		safetensors_free(p.s);
		if (ret_error)
			*ret_error = error;
		return r;
	}
	*ret = p.s;
	return 0;
}

void safetensors_free_text(struct safetensors *s)
{
	for (size_t i = 0; i < s->n; i++) {
		s->list[i].info.name = NULL;
		s->list[i].info.name_len = 0;
	}
	free(s->metadata);
	s->metadata = NULL;
	s->n_metadata = 0;
	buf_free(&s->text);
}

void safetensors_free(struct safetensors *s)
{
	if (!s)
		return;
	safetensors_free_text(s);
	free(s->list);
	free(s->dims);
	free(s);
}
