/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/json.h"
#include "tensor/internal.h"

/* A key of an object that is being read, kept to find duplicates. */
struct key {
	const char *text;
	size_t len;
};

struct parse {
	const struct safetensors_file *file;
	uint64_t keys_taken; /* of the budget, for `keys` */
	uint64_t off, end;   /* of the header text that is not read yet */
	struct safetensors *s;
	struct reason *reason;
	size_t cap, cap_dims, cap_metadata; /* of the arrays in `s` */
	size_t n_dims;
	struct shape {
		size_t start; /* in `dims` */
		unsigned rank;
	} shapes[256];	  /* some, by their hash */
	struct key *keys; /* a stack: keys of the open objects that are not tensor names */
	size_t n_keys, cap_keys;
	size_t n_other_keys; /* all keys so far that are not tensor names */
	struct json json;
};

/* ---- JSON ---- */

/* A json_read_fn over the header. */
static ssize_t read_header(void *ctx, void *ret_buf, size_t n)
{
	struct parse *p = ctx;
	int r;

	n = (size_t)MIN(n, p->end - p->off);
	r = n ? p->file->read(p->file->ctx, ret_buf, n, p->off) : 0;
	if (r < 0)
		return r;
	if (n && p->off == 8 && *(char *)ret_buf != '{')
		return reason_set(p->reason, -EBADMSG, "the header does not begin with '{'");
	p->off += n;
	return (ssize_t)n;
}

static int next(struct parse *p, enum json_event *ret)
{
	int r = json_next(&p->json, ret);

	if (r == -EBADMSG && p->json.fault)
		reason_set(p->reason, r, "the header is not valid JSON: %s", p->json.fault);
	return r;
}

static bool text_is(const struct parse *p, const char *s)
{
	const struct json *j = &p->json;

	return json_text_len(j) == strlen(s) && !memcmp(j->text->data + j->kept, s, strlen(s));
}

static int check_key_length(const struct parse *p)
{
	size_t n = json_text_len(&p->json);

	if (n > MAX_TENSOR_NAME)
		return reason_set(p->reason, -EFBIG, "a key has %zu bytes, more than %llu", n,
				  MAX_TENSOR_NAME);
	return 0;
}

/*
 * Keeps the current key; `text` is NULL if there is no memory. The text buffer is as large as the
 * header from the start, so it never moves.
 */
static struct key keep_key(struct parse *p)
{
	size_t n = json_text_len(&p->json);

	return (struct key){ json_keep(&p->json), n };
}

/* Keeps a key that is not a tensor name, for end_object(). */
static int push_key(struct parse *p)
{
	int r;

	if (p->n_other_keys++ == MAX_SAFETENSORS_KEYS)
		return reason_set(p->reason, -EFBIG,
				  "there are more than %d keys that name no tensor",
				  MAX_SAFETENSORS_KEYS);
	r = budget_room(p->file->budget, &p->keys_taken, p->keys, &p->cap_keys, p->n_keys + 1);
	if (r == 0)
		r = check_key_length(p);
	if (r < 0)
		return r;
	p->keys[p->n_keys] = keep_key(p);
	return p->keys[p->n_keys++].text ? 0 : -ENOMEM;
}

static int by_text(const void *a, const void *b)
{
	const struct key *x = a, *y = b;

	return name_cmp(x->text, x->len, y->text, y->len);
}

/* At the end of an object, whose keys are those from `first` on: refuses duplicates. */
static int end_object(struct parse *p, size_t first)
{
	if (p->n_keys > first)
		qsort(p->keys + first, p->n_keys - first, sizeof(*p->keys), by_text);
	for (size_t i = first + 1; i < p->n_keys; i++)
		if (by_text(&p->keys[i - 1], &p->keys[i]) == 0)
			return safetensors_duplicate(p->keys[i].text, p->keys[i].len, p->reason);
	p->n_keys = first;
	return 0;
}

/* Skips the value of a key that the format does not know. JSON_MAX_DEPTH bounds the recursion. */
static int skip(struct parse *p)
{
	size_t first = p->n_keys, depth = p->json.depth;
	enum json_event e, begun;
	int r = next(p, &begun);

	if (r < 0 || (begun != JSON_OBJECT && begun != JSON_ARRAY))
		return r;
	while (r == 0 && p->json.depth > depth) {
		if (begun == JSON_ARRAY) {
			r = skip(p);
			continue;
		}
		r = next(p, &e);
		if (r == 0 && e == JSON_KEY)
			r = push_key(p);
		if (r == 0 && e == JSON_KEY)
			r = skip(p);
	}
	return r < 0 ? r : end_object(p, first);
}

/* ---- __metadata__ ---- */

static int parse_metadata(struct parse *p)
{
	struct safetensors *s = p->s;
	size_t first = p->n_keys;
	enum json_event e;
	int r = next(p, &e);

	if (r == 0 && e != JSON_OBJECT)
		goto wrong;
	while (r == 0 && (r = next(p, &e)) == 0 && e == JSON_KEY) {
		struct safetensors_pair *pair;

		r = push_key(p);
		if (r == 0)
			r = budget_room(s->budget, &s->text_taken, s->metadata, &p->cap_metadata,
					s->n_metadata + 1);
		if (r == 0)
			r = next(p, &e);
		if (r < 0)
			return r;
		if (e != JSON_STRING)
			goto wrong;
		pair = &s->metadata[s->n_metadata++];
		pair->key = p->keys[p->n_keys - 1].text;
		pair->key_len = p->keys[p->n_keys - 1].len;
		pair->value_len = json_text_len(&p->json);
		pair->value = json_keep(&p->json);
		if (!pair->value)
			return -ENOMEM;
	}
	return r < 0 ? r : end_object(p, first);
wrong:
	return reason_set(p->reason, -EBADMSG, "__metadata__ is not an object of strings");
}

/* ---- a tensor ---- */

static int parse_dtype(struct parse *p, struct tensor_info *i)
{
	const struct buf *b = p->json.text;
	const char *name;
	enum json_event e;
	int r = next(p, &e);

	if (r < 0)
		return r;
	if (e != JSON_STRING)
		return reason_set(p->reason, -EBADMSG,
				  TENSOR_FMT " has a dtype that is not a string", TENSOR_ARG(i));
	name = b->data + p->json.kept;
	i->dtype = dtype_by_safetensors(name, json_text_len(&p->json));
	return i->dtype ? 0 :
			  reason_set(p->reason, -EOPNOTSUPP,
				     TENSOR_FMT " has the unknown dtype '%.*s'", TENSOR_ARG(i),
				     utf8_quoted(name, json_text_len(&p->json)), name);
}

/* The current number, if it is an integer from 0 to 2^64-1 and written as one. */
static bool number_is_u64(const struct parse *p, uint64_t *ret)
{
	const struct json *j = &p->json;
	uint64_t v = 0;

	for (size_t i = j->kept; i < j->text->len; i++) {
		char c = j->text->data[i];

		if (c < '0' || c > '9' || __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(c - '0'), &v))
			return false;
	}
	*ret = v;
	return true;
}

static int add_dimension(struct parse *p, struct tensor_info *i, uint64_t v)
{
	int r;

	if (i->rank == MAX_TENSOR_RANK)
		return reason_set(p->reason, -EFBIG, TENSOR_FMT " has more than %d dimensions",
				  TENSOR_ARG(i), MAX_TENSOR_RANK);
	if (p->n_dims == MAX_SAFETENSORS_DIMS)
		return reason_set(p->reason, -EFBIG, "there are more than %d dimensions",
				  MAX_SAFETENSORS_DIMS);
	r = budget_room(p->s->budget, &p->s->taken, p->s->dims, &p->cap_dims, p->n_dims + 1);
	if (r < 0)
		return r;
	p->s->dims[p->n_dims++] = v;
	i->rank++;
	return 0;
}

/* An array of integers: the shape, or exactly two `offsets`. */
static int parse_integers(struct parse *p, struct tensor_info *i, uint64_t *offsets)
{
	enum json_event e;
	unsigned n = 0;
	uint64_t v;
	int r = next(p, &e);

	if (r == 0 && e != JSON_ARRAY)
		goto wrong;
	while (r == 0 && (r = next(p, &e)) == 0 && e != JSON_END) {
		if (e != JSON_NUMBER || !number_is_u64(p, &v) || (offsets && n == 2))
			goto wrong;
		if (offsets)
			offsets[n++] = v;
		else
			r = add_dimension(p, i, v);
	}
	if (r < 0 || !offsets || n == 2)
		return r;
wrong:
	return reason_set(
		p->reason, -EBADMSG, TENSOR_FMT " has %s integers from 0 to 2^64-1", TENSOR_ARG(i),
		offsets ? "data_offsets that are not two" : "a shape that is not a list of");
}

/* Checks that dtype, shape and data_offsets agree. */
static int check_tensor(struct parse *p, struct tensor_info *i, const uint64_t offsets[2])
{
	uint64_t begin = offsets[0], end = offsets[1];
	const uint64_t *shape = i->rank ? &p->s->dims[p->n_dims - i->rank] : NULL;
	int r = dtype_bytes(i->dtype, shape, i->rank, &i->bytes);

	if (end < begin)
		return reason_set(p->reason, -EBADMSG,
				  TENSOR_FMT " ends at %" PRIu64 ", before it begins at %" PRIu64,
				  TENSOR_ARG(i), end, begin);
	if (r < 0)
		return reason_set(
			p->reason, -EBADMSG, TENSOR_FMT " has a shape whose size %s", TENSOR_ARG(i),
			r == -EBADMSG ? "is not a whole number of bytes" : "does not fit 64 bits");
	if (i->bytes != end - begin)
		return reason_set(p->reason, -EBADMSG,
				  TENSOR_FMT " has %" PRIu64
					     " bytes by its data_offsets, but %" PRIu64
					     " by its shape and dtype",
				  TENSOR_ARG(i), end - begin, i->bytes);
	i->off = begin;
	return 0;
}

static int add_tensor(struct parse *p, struct tensor_info **ret)
{
	struct safetensors *s = p->s;
	struct key name;
	int r;

	if (s->n == MAX_TENSORS)
		return reason_set(p->reason, -EFBIG, "there are more than %d tensors", MAX_TENSORS);
	r = budget_room(s->budget, &s->taken, s->list, &p->cap, s->n + 1);
	if (r == 0)
		r = check_key_length(p);
	if (r < 0)
		return r;
	name = keep_key(p);
	if (!name.text)
		return -ENOMEM;
	*ret = &s->list[s->n++];
	**ret = (struct tensor_info){ .name = name.text, .name_len = (uint32_t)name.len };
	return 0;
}

/* A tensor that is being read. */
struct reading {
	struct tensor_info *t;
	uint64_t offsets[2];
	unsigned has; /* bits of the known keys found so far */
};

static const char *const known[] = { "dtype", "shape", "data_offsets" };

/* Parses the value of the current key of a tensor. */
static int parse_member(struct parse *p, struct reading *rd)
{
	struct tensor_info *i = rd->t;
	size_t k = 0;
	int r;

	while (k < ARRAY_SIZE(known) && !text_is(p, known[k]))
		k++;
	if (k == ARRAY_SIZE(known)) {
		r = push_key(p);
		return r < 0 ? r : skip(p);
	}
	if (rd->has & 1U << k)
		return reason_set(p->reason, -EBADMSG, TENSOR_FMT " has the key '%s' twice",
				  TENSOR_ARG(i), known[k]);
	rd->has |= 1U << k;
	return k == 0 ? parse_dtype(p, i) : parse_integers(p, i, k == 1 ? NULL : rd->offsets);
}

/*
 * Many tensors have one shape: it is kept once. Until link_shapes(), `shape` is where it begins in
 * `dims`.
 */
static void share_shape(struct parse *p, struct tensor_info *t)
{
	size_t start = p->n_dims - t->rank, size = t->rank * sizeof(*p->s->dims);
	const uint64_t *dims = p->s->dims;
	struct shape *slot;
	uint64_t hash = t->rank;

	if (!t->rank)
		return;
	for (size_t i = start; i < p->n_dims; i++)
		hash = (hash ^ dims[i]) * 0x9e3779b97f4a7c15;
	slot = &p->shapes[hash >> 56];
	if (slot->rank == t->rank && memcmp(dims + slot->start, dims + start, size) == 0)
		p->n_dims = start;
	else
		*slot = (struct shape){ start, t->rank };
	t->shape = (const uint64_t *)(uintptr_t)slot->start;
}

static int parse_tensor(struct parse *p)
{
	struct reading rd = { 0 };
	size_t first = p->n_keys, text;
	enum json_event e;
	int r = add_tensor(p, &rd.t);

	if (r == 0)
		r = next(p, &e);
	if (r < 0)
		return r;
	if (e != JSON_OBJECT)
		return reason_set(p->reason, -EBADMSG, TENSOR_FMT " is not an object",
				  TENSOR_ARG(rd.t));
	text = p->json.kept;
	while (r == 0 && (r = next(p, &e)) == 0 && e == JSON_KEY)
		r = parse_member(p, &rd);
	for (size_t k = 0; r == 0 && k < ARRAY_SIZE(known); k++)
		if (!(rd.has & 1U << k))
			return reason_set(p->reason, -EBADMSG, TENSOR_FMT " has no %s",
					  TENSOR_ARG(rd.t), known[k]);
	if (r == 0)
		r = end_object(p, first);
	if (r < 0)
		return r;
	p->json.kept = text; /* drops unknown keys, which are no longer needed */
	r = check_tensor(p, rd.t, rd.offsets);
	share_shape(p, rd.t);
	return r;
}

/* ---- the whole header ---- */

static int parse_root(struct parse *p)
{
	bool metadata = false;
	enum json_event e;
	int r = next(p, &e);

	while (r == 0 && (r = next(p, &e)) == 0 && e == JSON_KEY) {
		if (!text_is(p, "__metadata__")) {
			r = parse_tensor(p);
			continue;
		}
		if (metadata)
			return safetensors_duplicate("__metadata__", strlen("__metadata__"),
						     p->reason);
		metadata = true;
		r = parse_metadata(p);
	}
	return r < 0 ? r : next(p, &e); /* JSON_EOF */
}

/* Sets the shapes and the offsets, once the array of dimensions no longer moves. */
static void link_shapes(struct safetensors *s)
{
	for (size_t i = 0; i < s->n; i++) {
		struct tensor_info *info = &s->list[i];

		info->shape = info->rank ? s->dims + (uintptr_t)info->shape : NULL;
		info->off += s->data_start;
	}
}

/* Parses a header of `n` bytes before `data` bytes. */
static int parse(struct parse *p, uint64_t n, uint64_t data)
{
	uint64_t more;
	int r;

	p->s = calloc(1, sizeof(*p->s));
	if (!p->s)
		return -ENOMEM;
	p->s->budget = p->file->budget;
	p->s->data_start = p->end = 8 + n;
	p->off = 8;
	p->s->text = buf_init(n);
	p->json.read = read_header;
	p->json.ctx = p;
	p->json.text = &p->s->text;
	r = budget_take(p->s->budget, n);
	if (r < 0)
		return r;
	p->s->text_taken = n;
	r = buf_reserve(&p->s->text, n);
	if (r == 0)
		r = parse_root(p);
	if (r == 0)
		r = safetensors_check(p->s, data, p->reason);
	if (r < 0)
		return r;
	p->s->list = array_fit(p->s->list, p->s->n, sizeof(*p->s->list));
	p->s->dims = array_fit(p->s->dims, p->n_dims, sizeof(*p->s->dims));
	more = (p->cap - p->s->n) * sizeof(*p->s->list) +
	       (p->cap_dims - p->n_dims) * sizeof(*p->s->dims);
	budget_give(p->s->budget, more);
	p->s->taken -= more;
	link_shapes(p->s);
	return 0;
}

/* The length of the header, checked against the file's. */
static int read_length(const struct safetensors_file *file, struct reason *reason, uint64_t *ret)
{
	uint64_t size = file->size;
	uint8_t length[8];
	uint64_t n;
	int r;

	if (size < sizeof(length))
		return reason_set(reason, -EBADMSG,
				  "the file has %" PRIu64 " bytes, too few for a header", size);
	r = file->read(file->ctx, length, sizeof(length), 0);
	if (r < 0)
		return r;
	n = get_le64(length);
	if (n > MAX_SAFETENSORS_HEADER)
		return reason_set(reason, -EFBIG, "the header has %" PRIu64 " bytes, more than %d",
				  n, MAX_SAFETENSORS_HEADER);
	if (n > size - sizeof(length))
		return reason_set(reason, -EBADMSG,
				  "the header has %" PRIu64
				  " bytes, more than the file of %" PRIu64,
				  n, size);
	if (n == 0)
		return reason_set(reason, -EBADMSG, "the header is empty");
	*ret = n;
	return 0;
}

int safetensors_parse(const struct safetensors_file *file, struct safetensors **ret,
		      struct reason *reason)
{
	struct parse *p;
	uint64_t n = 0;
	int r = read_length(file, reason, &n);

	if (r < 0)
		return r;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->file = file;
	p->reason = reason;
	r = parse(p, n, file->size - 8 - n);
	if (r == 0)
		*ret = p->s;
	else
		safetensors_free(p->s);
	budget_give(file->budget, p->keys_taken);
	free(p->keys);
	free(p);
	return r;
}

void safetensors_free_text(struct safetensors *s)
{
	for (size_t i = 0; i < s->n; i++) {
		s->list[i].name = NULL;
		s->list[i].name_len = 0;
	}
	free(s->metadata);
	s->metadata = NULL;
	s->n_metadata = 0;
	buf_finish(&s->text);
	budget_give(s->budget, s->text_taken);
	s->text_taken = 0;
}

void safetensors_free(struct safetensors *s)
{
	if (!s)
		return;
	safetensors_free_text(s);
	budget_give(s->budget, s->taken);
	free(s->list);
	free(s->dims);
	free(s);
}
