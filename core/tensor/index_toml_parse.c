/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the list of tensors from the events of the TOML parser. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/budget.h"
#include "base/util.h"
#include "tensor/index_toml.h"

struct parse {
	struct index_toml *x;
	size_t cap;	     /* of x->list */
	size_t total_inner;  /* of all tensors */
	struct reason limit; /* set with -EFBIG: which one was reached */

	/* the last tensor, until finish_last(): */
	size_t element; /* its place in the array `tensor` */
	unsigned seen;	/* bits of enum field */
	uint64_t shape[MAX_TENSOR_RANK];
	const char *file; /* NULL: none */
	struct tensor_ref *inner;
	size_t n_inner, cap_inner;
	uint64_t taken; /* of the budget, for `inner` */
};

/* The known keys of a tensor, in the order of `fields`. */
enum field { NAME, DTYPE, SHAPE, FILE_, INNER, OTHER };

static const char *const fields[] = { "name", "dtype", "shape", "file", "inner" };

/* Records a fault of the last tensor. */
#define fault(p, ...) index_toml_fault((p)->x, &(p)->x->list[(p)->x->n - 1], __VA_ARGS__)

static int index_fault(struct parse *p, size_t line, const char *text)
{
	if (p->x->problem)
		return 0;
	p->x->problem = text;
	p->x->problem_line = line;
	return 0;
}

static int over_limit(struct parse *p, size_t line, unsigned max, const char *what)
{
	p->limit.line = line;
	return reason_set(&p->limit, -EFBIG, "there are more than %u %s", max, what);
}

/* ---- one tensor ---- */

static bool has(const struct parse *p, enum field f)
{
	return p->seen >> f & 1;
}

static int check_nested(struct parse *p)
{
	if (has(p, FILE_))
		return fault(p, "it is nested, but has a file");
	return has(p, INNER) ? 0 : fault(p, "it is nested, but has no inner");
}

static int check_plain(struct parse *p, struct tensor_info *i)
{
	uint64_t count;
	int r;

	if (p->n_inner)
		return fault(p, "it has inner tensors, but is not nested");
	if (!has(p, SHAPE))
		return fault(p, "it has no shape");
	if (!has(p, FILE_))
		return fault(p, "it has no file");
	if (i->dtype == dtype_string && !ends_with(p->file, ".toml"))
		return fault(p, "it holds strings, but its file is not a .toml file");
	r = i->dtype == dtype_string ? shape_count(i->shape, i->rank, &count) :
				       dtype_bytes(i->dtype, i->shape, i->rank, &i->bytes);
	return r < 0 ? fault(p, "its shape is too large: the size does not fit 64 bits") : 0;
}

static int check_tensor(struct parse *p, struct tensor *t)
{
	if (t->problem)
		return 0;
	if (!t->info.name)
		return fault(p, "it has no name");
	if (!t->info.dtype)
		return fault(p, "it has no dtype");
	return t->info.dtype == dtype_nested ? check_nested(p) : check_plain(p, &t->info);
}

/* Copies an array into the arena; `n` 0 is NULL. 0 or -ENOMEM. */
static int keep(struct parse *p, const void *array, size_t n, size_t size, void *ret)
{
	void *copy = n ? arena_alloc(&p->x->arena, n * size) : NULL;

	if (n && !copy)
		return arena_error(&p->x->arena);
	if (n)
		memcpy(copy, array, n * size);
	memcpy(ret, &copy, sizeof(copy));
	return 0;
}

/* Many tensors have the shape of the one before. */
static int keep_shape(struct parse *p, struct tensor *t)
{
	const struct tensor_info *last = p->x->n > 1 ? &t[-1].info : NULL;
	size_t size = t->info.rank * sizeof(*p->shape);

	if (last && last->rank && last->rank == t->info.rank &&
	    memcmp(last->shape, p->shape, size) == 0) {
		t->info.shape = last->shape;
		return 0;
	}
	return keep(p, p->shape, t->info.rank, sizeof(*p->shape), &t->info.shape);
}

/* Completes and checks the last tensor: all its keys are known now. */
static int finish_last(struct parse *p)
{
	struct tensor *t = p->x->n ? &p->x->list[p->x->n - 1] : NULL;
	int r;

	if (!t)
		return 0;
	r = keep_shape(p, t);
	if (r == 0)
		r = check_tensor(p, t);
	if (r < 0 || t->info.dtype != dtype_nested) {
		t->file = p->file;
		return r;
	}
	t->n_inner = (uint32_t)p->n_inner;
	return keep(p, p->inner, p->n_inner, sizeof(*p->inner), &t->inner);
}

static int begin_tensor(struct parse *p, size_t element, size_t line)
{
	struct index_toml *x = p->x;
	int r = finish_last(p);

	if (r < 0)
		return r;
	if (x->n == MAX_TENSORS)
		return over_limit(p, line, MAX_TENSORS, "tensors");
	r = budget_room(x->arena.budget, &x->taken, x->list, &p->cap, x->n + 1);
	if (r < 0)
		return r;
	x->list[x->n++] = (struct tensor){ .line = (uint32_t)line };
	p->element = element;
	p->seen = 0;
	p->file = NULL;
	p->n_inner = 0;
	return 0;
}

/* ---- events ---- */

/* Is `path` the array `tensor`, or below it? */
static bool at_top(const struct toml_path *path)
{
	return path->n && toml_is_key(&path->steps[0], "tensor");
}

/* Is such a path an element of the array, or below one? Then steps[2] is the key of the tensor. */
static bool in_tensor(const struct toml_path *path)
{
	return path->n >= 2 && !path->steps[1].key;
}

/* The last tensor if `path` is in it; NULL: `path` is in an element that is not a table. */
static struct tensor *tensor_at(struct parse *p, const struct toml_path *path)
{
	return p->x->n && path->steps[1].index == p->element ? &p->x->list[p->x->n - 1] : NULL;
}

static enum field field_of(const struct toml_path *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (toml_is_key(&path->steps[2], fields[i]))
			return (enum field)i;
	return OTHER;
}

static int on_begin(void *ctx, const struct toml_path *path, enum toml_type type, size_t line)
{
	struct parse *p = ctx;
	enum field f;
	struct tensor *t;

	if (!at_top(path))
		return 0;
	if (path->n == 1 && type == TOML_ARRAY)
		return 0;
	if (!in_tensor(path))
		return index_fault(p, line, "tensor is not an array");
	if (path->n == 2 && type == TOML_TABLE)
		return begin_tensor(p, path->steps[1].index, line);
	if (path->n == 2)
		return index_fault(p, line, "an element of tensor is not a table");
	t = tensor_at(p, path);
	f = field_of(path);
	if (!t || f == OTHER)
		return 0;
	if (path->n == 3 && type == TOML_ARRAY && (f == SHAPE || f == INNER)) {
		p->seen |= 1U << f;
		return 0;
	}
	return fault(p, f == SHAPE ? "its shape is not a list of integers" :
			f == INNER ? "its inner is not a list of names" :
			f == NAME  ? "its name is not a string" :
			f == DTYPE ? "its dtype is not a string" :
				     "its file is not a string");
}

static int add_dimension(struct parse *p, struct tensor *t, const struct toml_value *v)
{
	if (v->type != TOML_INTEGER)
		return fault(p, "its shape is not a list of integers");
	if (v->integer < 0)
		return fault(p, "its shape has a negative dimension, %" PRId64, v->integer);
	if (t->info.rank == MAX_TENSOR_RANK)
		return fault(p, "it has more than %d dimensions", MAX_TENSOR_RANK);
	p->shape[t->info.rank++] = (uint64_t)v->integer;
	return 0;
}

static int add_inner(struct parse *p, const struct toml_value *v)
{
	struct index_toml *x = p->x;
	const char *name;
	int r;

	if (v->type != TOML_STRING)
		return fault(p, "its inner is not a list of names");
	if (p->total_inner == MAX_TENSOR_INNER)
		return over_limit(p, v->line, MAX_TENSOR_INNER, "names in inner");
	name = arena_text(&x->arena, v->str, v->len);
	r = name ? budget_room(x->arena.budget, &p->taken, p->inner, &p->cap_inner,
			       p->n_inner + 1) :
		   arena_error(&x->arena);
	if (r < 0)
		return r;
	p->inner[p->n_inner++] = (struct tensor_ref){ .name = name, .len = (uint32_t)v->len };
	p->total_inner++;
	return 0;
}

static int set_name(struct parse *p, struct tensor *t, const struct toml_value *v)
{
	if (v->len > MAX_TENSOR_NAME)
		return fault(p, "its name has %zu bytes, more than %llu", v->len, MAX_TENSOR_NAME);
	t->info.name = arena_text(&p->x->arena, v->str, v->len);
	t->info.name_len = (uint32_t)v->len;
	return t->info.name ? 0 : arena_error(&p->x->arena);
}

static int set_file(struct parse *p, const struct toml_value *v)
{
	const char *bad = path_fault(v->str, v->len);

	if (!bad && strlen("tensor_data/") + v->len > MAX_PATH_LEN)
		bad = "the path is too long";
	if (bad)
		return fault(p, "its file '%.*s' is not a path inside tensor_data: %s",
			     utf8_quoted(v->str, v->len), v->str, bad);
	p->file = arena_text(&p->x->arena, v->str, v->len);
	return p->file ? 0 : arena_error(&p->x->arena);
}

static int set_scalar(struct parse *p, struct tensor *t, enum field f, const struct toml_value *v)
{
	if (f == SHAPE)
		return fault(p, "its shape is not a list of integers");
	if (f == INNER)
		return fault(p, "its inner is not a list of names");
	if (v->type != TOML_STRING)
		return fault(p, "its %s is not a string", fields[f]);
	if (f == NAME)
		return set_name(p, t, v);
	if (f == FILE_)
		return set_file(p, v);
	t->info.dtype = dtype_by_name(v->str, v->len);
	if (!t->info.dtype)
		return fault(p, "its dtype '%.*s' is unknown", utf8_quoted(v->str, v->len), v->str);
	return 0;
}

static int on_value(void *ctx, const struct toml_path *path, const struct toml_value *v)
{
	struct parse *p = ctx;
	struct tensor *t;
	enum field f;

	if (!at_top(path))
		return 0;
	if (!in_tensor(path))
		return index_fault(p, v->line, "tensor is not an array");
	if (path->n == 2)
		return index_fault(p, v->line, "an element of tensor is not a table");
	t = tensor_at(p, path);
	f = field_of(path);
	if (!t || f == OTHER)
		return 0;
	if (path->n == 3) {
		p->seen |= 1U << f;
		return set_scalar(p, t, f, v);
	}
	if (path->n == 4 && !path->steps[3].key && f == SHAPE)
		return add_dimension(p, t, v);
	if (path->n == 4 && !path->steps[3].key && f == INNER)
		return add_inner(p, v);
	return fault(p, "its %s is of the wrong type", fields[f]);
}

int index_toml_parse(toml_read_fn *read, void *ctx, struct budget *budget, struct index_toml **ret,
		     struct reason *ret_error)
{
	const struct toml_events events = { .begin = on_begin,
					    .value = on_value,
					    .budget = budget };
	struct index_toml *x = calloc(1, sizeof(*x));
	struct parse p = { .x = x };
	int r;

	if (!x)
		return -ENOMEM;
	x->arena.budget = budget;
	r = toml_parse(read, ctx, &events, &p, ret_error);
	if (p.limit.line && ret_error)
		*ret_error = p.limit;
	if (r == 0)
		r = finish_last(&p);
	free(p.inner);
	budget_give(budget, p.taken);
	x->list = array_fit(x->list, x->n, sizeof(*x->list));
	budget_give(budget, (p.cap - x->n) * sizeof(*x->list));
	x->taken -= (p.cap - x->n) * sizeof(*x->list);
	if (r == 0)
		r = index_toml_check(x);
	if (r < 0)
		index_toml_free(x);
	else
		*ret = x;
	return r;
}
