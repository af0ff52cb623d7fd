/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- failing ---- */

int st_stop(struct st_parse *p, int r, const char *fmt, ...)
{
	va_list args;

	p->r = r;
	va_start(args, fmt);
	vsnprintf(p->error->message, sizeof(p->error->message), fmt, args);
	va_end(args);
	return 0;
}

static int no_memory(struct st_parse *p)
{
	return st_stop(p, -ENOMEM, "out of memory");
}

static const char *rule_of(enum st_state state)
{
	switch (state) {
	case TENSOR:
		return "is not an object";
	case DTYPE:
		return "has a dtype that is not a string";
	case SHAPE:
	case SHAPE_ITEM:
		return "has a shape that is not a list of integers from 0 to 2^64-1";
	default:
		return "has data_offsets that are not two integers from 0 to 2^64-1";
	}
}

int st_unexpected(struct st_parse *p)
{
	const struct tensor_info *i;

	if (p->state == START)
		return st_stop(p, -EBADMSG, "the header is not a JSON object");
	if (p->state == METADATA || p->state == METADATA_VALUE)
		return st_stop(p, -EBADMSG, "__metadata__ is not an object of strings");
	i = &p->s->list[p->s->n - 1].info;
	return st_stop(p, -EBADMSG, "tensor " NAME_FMT " %s", NAME_ARG(i), rule_of(p->state));
}

/* ---- keeping ---- */

/* Makes room for one more element of an array; false when there is no memory. */
static bool grow(void *array, size_t n, size_t *cap, size_t size)
{
	void *grown, *old;
	size_t more = *cap ? 2 * *cap : 64;

	if (n < *cap)
		return true;
	memcpy(&old, array, sizeof(old));
	grown = reallocarray(old, more, size);
	if (!grown)
		return false;
	memcpy(array, &grown, sizeof(grown));
	*cap = more;
	/* cppcheck-suppress memleak; the array has it now */
	return true;
}

/*
 * Keeps a string. The buffer has room for all from the start, so they never move: each takes
 * one byte more than its text, and had two quotes in the header.
 */
static const char *keep(struct st_parse *p, const unsigned char *s, size_t n)
{
	struct buf *b = &p->s->text;
	const char *kept = b->data + b->len;

	if (!utf8_valid((const char *)s, n)) {
		st_stop(p, -EBADMSG, "the header is not valid UTF-8");
		return NULL;
	}
	if (buf_add(b, s, n) || buf_addc(b, '\0')) {
		no_memory(p);
		return NULL;
	}
	return kept;
}

static const char *keep_key(struct st_parse *p, size_t object, const unsigned char *s, size_t n)
{
	const char *kept;

	if (n > MAX_TENSOR_NAME) {
		st_stop(p, -EFBIG, "a key has %zu bytes, more than %llu", n, MAX_TENSOR_NAME);
		return NULL;
	}
	kept = keep(p, s, n);
	if (!kept)
		return NULL;
	if (!grow(&p->keys, p->n_keys, &p->cap_keys, sizeof(*p->keys))) {
		no_memory(p);
		return NULL;
	}
	p->keys[p->n_keys++] = (struct st_key){ object, kept, n };
	return kept;
}

/* ---- what the format knows ---- */

int st_root_key(struct st_parse *p, const unsigned char *s, size_t n)
{
	const char *name = keep_key(p, 0, s, n);
	struct safetensors *t = p->s;

	if (!name)
		return 0;
	if (!name_cmp(name, n, "__metadata__", strlen("__metadata__"))) {
		p->state = METADATA;
		return 1;
	}
	if (t->n == MAX_TENSORS)
		return st_stop(p, -EFBIG, "there are more than %d tensors", MAX_TENSORS);
	if (!grow(&t->list, t->n, &p->cap, sizeof(*t->list)))
		return no_memory(p);
	t->list[t->n++] = (struct safetensor){ .info = { .name = name, .name_len = n } };
	p->has = 0;
	p->n_offsets = 0;
	p->state = TENSOR;
	return 1;
}

/* A key that names no tensor; NULL: stopped. */
static const char *keep_other_key(struct st_parse *p, size_t object, const unsigned char *s,
				  size_t n)
{
	if (p->n_other_keys++ == MAX_SAFETENSORS_KEYS) {
		st_stop(p, -EFBIG, "there are more than %d keys that name no tensor",
			MAX_SAFETENSORS_KEYS);
		return NULL;
	}
	return keep_key(p, object, s, n);
}

int st_other_key(struct st_parse *p, size_t object, const unsigned char *s, size_t n)
{
	return keep_other_key(p, object, s, n) != NULL;
}

int st_metadata_key(struct st_parse *p, const unsigned char *s, size_t n)
{
	struct safetensors *t = p->s;
	const char *key = keep_other_key(p, p->object, s, n);

	if (!key)
		return 0;
	if (!grow(&t->metadata, t->n_metadata, &p->cap_metadata, sizeof(*t->metadata)))
		return no_memory(p);
	t->metadata[t->n_metadata++] = (struct safetensors_pair){ .key = key, .key_len = n };
	p->state = METADATA_VALUE;
	return 1;
}

int st_metadata_value(struct st_parse *p, const unsigned char *s, size_t n)
{
	struct safetensors_pair *pair = &p->s->metadata[p->s->n_metadata - 1];

	pair->value = keep(p, s, n);
	pair->value_len = n;
	p->state = METADATA_KEY;
	return pair->value != NULL;
}

int st_tensor_key(struct st_parse *p, const unsigned char *s, size_t n)
{
	static const struct {
		const char *name;
		unsigned bit;
		enum st_state state;
	} known[] = {
		{ "dtype", HAS_DTYPE, DTYPE },
		{ "shape", HAS_SHAPE, SHAPE },
		{ "data_offsets", HAS_OFFSETS, OFFSETS },
	};
	const struct tensor_info *info = &p->s->list[p->s->n - 1].info;

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (strlen(known[i].name) != n || memcmp(known[i].name, s, n))
			continue;
		if (p->has & known[i].bit)
			return st_stop(p, -EBADMSG, "tensor " NAME_FMT " has the key '%s' twice",
				       NAME_ARG(info), known[i].name);
		p->has |= known[i].bit;
		p->state = known[i].state;
		return 1;
	}
	p->state = UNKNOWN;
	return st_other_key(p, p->object, s, n);
}

int st_set_dtype(struct st_parse *p, const unsigned char *s, size_t n)
{
	struct tensor_info *i = &p->s->list[p->s->n - 1].info;

	i->dtype = dtype_by_safetensors((const char *)s, n);
	p->state = TENSOR_KEY;
	if (!i->dtype)
		return st_stop(p, -EOPNOTSUPP, "tensor " NAME_FMT " has the unknown dtype '%.*s'",
			       NAME_ARG(i), utf8_quoted((const char *)s, n), (const char *)s);
	return 1;
}

bool st_parse_u64(const char *s, size_t n, uint64_t *ret)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++) {
		if (s[i] < '0' || s[i] > '9' || __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
			return false;
	}
	*ret = v;
	return n > 0;
}

int st_add_dimension(struct st_parse *p, uint64_t v)
{
	struct tensor_info *i = &p->s->list[p->s->n - 1].info;

	if (i->rank == MAX_TENSOR_RANK)
		return st_stop(p, -EFBIG, "tensor " NAME_FMT " has more than %d dimensions",
			       NAME_ARG(i), MAX_TENSOR_RANK);
	if (p->n_dims == MAX_SAFETENSORS_DIMS)
		return st_stop(p, -EFBIG, "there are more than %d dimensions",
			       MAX_SAFETENSORS_DIMS);
	if (!grow(&p->s->dims, p->n_dims, &p->cap_dims, sizeof(*p->s->dims)))
		return no_memory(p);
	p->s->dims[p->n_dims++] = v;
	i->rank++;
	return 1;
}

int st_end_tensor(struct st_parse *p)
{
	struct safetensor *t = &p->s->list[p->s->n - 1];
	struct tensor_info *i = &t->info;
	const uint64_t *shape = i->rank ? &p->s->dims[p->n_dims - i->rank] : NULL;
	int r;

	p->state = ROOT;
	if (p->has != HAS_ALL || p->n_offsets != 2)
		return st_stop(p, -EBADMSG, "tensor " NAME_FMT " has no %s", NAME_ARG(i),
			       !(p->has & HAS_DTYPE)   ? "dtype" :
			       !(p->has & HAS_SHAPE)   ? "shape" :
			       !(p->has & HAS_OFFSETS) ? "data_offsets" :
							 "two data_offsets");
	t->begin = p->offsets[0];
	t->end = p->offsets[1];
	if (t->end < t->begin)
		return st_stop(p, -EBADMSG,
			       "tensor " NAME_FMT " ends at %" PRIu64
			       ", before it begins at %" PRIu64,
			       NAME_ARG(i), t->end, t->begin);
	r = shape_count(shape, i->rank, &i->count);
	if (!r)
		r = dtype_bytes(i->dtype, shape, i->rank, &i->bytes);
	if (r)
		return st_stop(
			p, -EBADMSG, "tensor " NAME_FMT " has a shape whose size %s", NAME_ARG(i),
			r == -EBADMSG ? "is not a whole number of bytes" : "does not fit 64 bits");
	if (i->bytes != t->end - t->begin)
		return st_stop(p, -EBADMSG,
			       "tensor " NAME_FMT " has %" PRIu64
			       " bytes by its data_offsets, but %" PRIu64 " by its shape and dtype",
			       NAME_ARG(i), t->end - t->begin, i->bytes);
	return 1;
}

/* ---- the whole header ---- */

static int by_object_and_text(const void *a, const void *b)
{
	const struct st_key *x = a, *y = b;

	if (x->object != y->object)
		return x->object < y->object ? -1 : 1;
	return name_cmp(x->text, x->len, y->text, y->len);
}

static int check_keys(struct st_parse *p)
{
	if (p->n_keys)
		qsort(p->keys, p->n_keys, sizeof(*p->keys), by_object_and_text);
	for (size_t i = 1; i < p->n_keys; i++) {
		const struct st_key *k = &p->keys[i];

		if (!by_object_and_text(k - 1, k))
			return st_stop(p, -EBADMSG, "the key '%.*s' is there twice",
				       utf8_quoted(k->text, k->len), k->text);
	}
	return 1;
}

static int by_offset(const void *a, const void *b)
{
	const struct safetensor *x = *(struct safetensor *const *)a;
	const struct safetensor *y = *(struct safetensor *const *)b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	if (x->end != y->end)
		return x->end < y->end ? -1 : 1;
	return x < y ? -1 : x > y;
}

static int check_offsets(struct st_parse *p, struct safetensor **sorted, uint64_t data)
{
	uint64_t at = 0;

	for (size_t i = 0; i < p->s->n; i++) {
		const struct safetensor *t = sorted[i];

		if (t->begin != at)
			return st_stop(p, -EBADMSG,
				       "tensor " NAME_FMT " begins at %" PRIu64
				       ", %s the data before it, which ends at %" PRIu64,
				       NAME_ARG(&t->info), t->begin,
				       t->begin < at ? "overlapping" : "leaving a hole after", at);
		at = t->end;
	}
	if (at != data)
		return st_stop(p, -EBADMSG,
			       "the tensors end at %" PRIu64 ", but the file has %" PRIu64
			       " bytes of data",
			       at, data);
	return 1;
}

static void link_shapes(struct st_parse *p)
{
	const uint64_t *dims = p->s->dims;

	for (size_t i = 0; i < p->s->n; i++) {
		struct tensor_info *info = &p->s->list[i].info;

		if (!info->rank)
			continue;
		info->shape = dims;
		dims += info->rank;
	}
}

int st_end(struct st_parse *p, uint64_t data)
{
	struct safetensor **sorted;
	int go;

	if (!check_keys(p))
		return 0;
	sorted = calloc(p->s->n ? p->s->n : 1, sizeof(struct safetensor *));
	if (!sorted)
		return no_memory(p);
	for (size_t i = 0; i < p->s->n; i++)
		sorted[i] = &p->s->list[i];
	qsort(sorted, p->s->n, sizeof(struct safetensor *), by_offset);
	go = check_offsets(p, sorted, data);
	free(sorted);
	link_shapes(p);
	return go;
}
