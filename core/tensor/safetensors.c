/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>

#include "tensor/internal.h"

struct parse {
	struct header h;
	struct safetensors *s;
	size_t cap, cap_dims, cap_metadata; /* of the arrays in `s` */
	size_t n_dims;
	struct shape {
		size_t start; /* in `dims` */
		unsigned rank;
	} shapes[256]; /* some, by their hash */
};

/* ---- __metadata__ ---- */

static int parse_metadata(struct parse *p)
{
	struct safetensors *s = p->s;
	size_t first = p->h.n_keys;
	enum json_event e;
	int r = header_next(&p->h, &e);

	if (r == 0 && e == JSON_NULL) /* no metadata, as in the reference implementation */
		return 0;
	if (r == 0 && e != JSON_OBJECT)
		goto wrong;
	while (r == 0 && (r = header_next(&p->h, &e)) == 0 && e == JSON_KEY) {
		struct safetensors_pair *pair;

		r = header_push_key(&p->h);
		if (r == 0)
			r = budget_room(s->budget, &s->text_taken, s->metadata, &p->cap_metadata,
					s->n_metadata + 1);
		if (r == 0)
			r = header_next(&p->h, &e);
		if (r < 0)
			return r;
		if (e != JSON_STRING)
			goto wrong;
		pair = &s->metadata[s->n_metadata++];
		pair->key = p->h.keys[p->h.n_keys - 1].text;
		pair->key_len = p->h.keys[p->h.n_keys - 1].len;
		pair->value_len = json_text_len(&p->h.json);
		pair->value = json_keep(&p->h.json);
		if (!pair->value)
			return -ENOMEM;
	}
	return r < 0 ? r : header_end_object(&p->h, first);
wrong:
	return reason_set(p->h.reason, -EBADMSG, "__metadata__ is not an object of strings");
}

/* ---- a tensor ---- */

static int parse_dtype(struct parse *p, struct tensor_info *i)
{
	const struct buf *b = p->h.json.text;
	const char *name;
	enum json_event e;
	int r = header_next(&p->h, &e);

	if (r < 0)
		return r;
	if (e != JSON_STRING)
		return reason_set(p->h.reason, -EBADMSG,
				  TENSOR_FMT " has a dtype that is not a string", TENSOR_ARG(i));
	name = b->data + p->h.json.kept;
	i->dtype = dtype_by_safetensors(name, json_text_len(&p->h.json));
	return i->dtype ? 0 :
			  reason_set(p->h.reason, -EOPNOTSUPP,
				     TENSOR_FMT " has the unknown dtype '%.*s'", TENSOR_ARG(i),
				     utf8_quoted(name, json_text_len(&p->h.json)), name);
}

/* The current number, if it is an integer from 0 to 2^64-1 and written as one. */
static bool number_is_u64(const struct parse *p, uint64_t *ret)
{
	const struct json *j = &p->h.json;
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
		return reason_set(p->h.reason, -EFBIG, TENSOR_FMT " has more than %d dimensions",
				  TENSOR_ARG(i), MAX_TENSOR_RANK);
	if (p->n_dims == MAX_SAFETENSORS_DIMS)
		return reason_set(p->h.reason, -EFBIG, "there are more than %d dimensions",
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
	int r = header_next(&p->h, &e);

	if (r == 0 && e != JSON_ARRAY)
		goto wrong;
	while (r == 0 && (r = header_next(&p->h, &e)) == 0 && e != JSON_END) {
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
	return reason_set(p->h.reason, -EBADMSG, TENSOR_FMT " has %s integers from 0 to 2^64-1",
			  TENSOR_ARG(i),
			  offsets ? "data_offsets that are not two" :
				    "a shape that is not a list of");
}

static int add_tensor(struct parse *p, struct tensor_info **ret)
{
	struct safetensors *s = p->s;
	struct header_key name;
	int r;

	if (s->n == MAX_TENSORS)
		return reason_set(p->h.reason, -EFBIG, "there are more than %d tensors",
				  MAX_TENSORS);
	r = budget_room(s->budget, &s->taken, s->list, &p->cap, s->n + 1);
	if (r == 0)
		r = header_keep_key(&p->h, &name);
	if (r < 0)
		return r;
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

	while (k < ARRAY_SIZE(known) && !header_text_is(&p->h, known[k]))
		k++;
	if (k == ARRAY_SIZE(known)) {
		r = header_push_key(&p->h);
		return r < 0 ? r : header_skip(&p->h);
	}
	if (rd->has & 1U << k)
		return reason_set(p->h.reason, -EBADMSG, TENSOR_FMT " has the key '%s' twice",
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
	size_t first = p->h.n_keys, text;
	enum json_event e;
	int r = add_tensor(p, &rd.t);

	if (r == 0)
		r = header_next(&p->h, &e);
	if (r < 0)
		return r;
	if (e != JSON_OBJECT)
		return reason_set(p->h.reason, -EBADMSG, TENSOR_FMT " is not an object",
				  TENSOR_ARG(rd.t));
	text = p->h.json.kept;
	while (r == 0 && (r = header_next(&p->h, &e)) == 0 && e == JSON_KEY)
		r = parse_member(p, &rd);
	for (size_t k = 0; r == 0 && k < ARRAY_SIZE(known); k++)
		if (!(rd.has & 1U << k))
			return reason_set(p->h.reason, -EBADMSG, TENSOR_FMT " has no %s",
					  TENSOR_ARG(rd.t), known[k]);
	if (r == 0)
		r = header_end_object(&p->h, first);
	if (r < 0)
		return r;
	p->h.json.kept = text; /* drops unknown keys, which are no longer needed */
	r = safetensors_check_tensor(rd.t, rd.t->rank ? &p->s->dims[p->n_dims - rd.t->rank] : NULL,
				     rd.offsets, p->h.reason);
	share_shape(p, rd.t);
	return r;
}

/* ---- the whole header ---- */

static int parse_root(struct parse *p)
{
	bool metadata = false;
	enum json_event e;
	int r = header_next(&p->h, &e);

	while (r == 0 && (r = header_next(&p->h, &e)) == 0 && e == JSON_KEY) {
		if (!header_text_is(&p->h, "__metadata__")) {
			r = parse_tensor(p);
			continue;
		}
		if (metadata)
			return safetensors_duplicate("__metadata__", strlen("__metadata__"),
						     p->h.reason);
		metadata = true;
		r = parse_metadata(p);
	}
	return r < 0 ? r : header_next(&p->h, &e); /* JSON_EOF */
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
	p->s->budget = p->h.file->budget;
	p->s->data_start = p->h.end = 8 + n;
	p->s->text = buf_init(n);
	header_begin(&p->h, &p->s->text);
	r = budget_take(p->s->budget, n);
	if (r < 0)
		return r;
	p->s->text_taken = n;
	r = buf_reserve(&p->s->text, n);
	if (r == 0)
		r = parse_root(p);
	if (r == 0)
		r = safetensors_check(p->s, data, p->h.reason);
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
	if (memcmp(length, "version ", sizeof(length)) == 0)
		return reason_set(reason, -EBADMSG, "it is a git-lfs pointer, not the file");
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
	p->h.file = file;
	p->h.reason = reason;
	r = parse(p, n, file->size - 8 - n);
	if (r == 0)
		*ret = p->s;
	else
		safetensors_free(p->s);
	header_end(&p->h);
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
