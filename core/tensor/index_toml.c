/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/index_toml.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"

struct parse {
	struct tensors *t;
	size_t cap;			 /* of t->list */
	size_t element;			 /* of `tensor`, that the last one is */
	size_t n_inner;			 /* of all tensors */
	struct toml_error limit;	 /* which one was met, with -EFBIG */
	unsigned seen;			 /* bits of enum field, of the last tensor */
	uint64_t shape[MAX_TENSOR_RANK]; /* of the last tensor */
};

/* The keys of a tensor that mean something, in the order of `fields`. */
enum field { NAME, DTYPE, SHAPE, FILE_, INNER, OTHER };

static const char *const fields[] = { "name", "dtype", "shape", "file", "inner" };

/* ---- problems ---- */

__attribute__((format(printf, 2, 0))) static int set_problem(char **problem, const char *fmt,
							     va_list args)
{
	char text[MAX_PATH_LEN + 256];

	if (*problem)
		return 0;
	vsnprintf(text, sizeof(text), fmt, args);
	*problem = strdup(text);
	return *problem ? 0 : -ENOMEM;
}

int tensor_fault(struct tensor *tensor, const char *fmt, ...)
{
	va_list args;
	int r;

	va_start(args, fmt);
	r = set_problem(&tensor->problem, fmt, args);
	va_end(args);
	return r;
}

__attribute__((format(printf, 3, 4))) static int index_fault(struct tensors *t, size_t line,
							     const char *fmt, ...)
{
	va_list args;
	int r;

	if (t->problem)
		return 0;
	va_start(args, fmt);
	r = set_problem(&t->problem, fmt, args);
	va_end(args);
	t->problem_line = line;
	return r;
}

/* Past a bound: the index is no use. */
static int over(struct parse *p, size_t line, unsigned max, const char *what)
{
	p->limit.line = line;
	snprintf(p->limit.message, sizeof(p->limit.message), "there are more than %u %s", max,
		 what);
	return -EFBIG;
}

/* ---- events ---- */

/* A copy with a NUL after it. */
static char *copy(const char *s, size_t n)
{
	char *c = malloc(n + 1);

	if (c) {
		memcpy(c, s, n);
		c[n] = '\0';
	}
	return c;
}

/* What is wrong with a nested tensor by itself. */
static int judge_nested(struct parse *p, struct tensor *t)
{
	if (p->seen & 1U << FILE_)
		return tensor_fault(t, "it is nested, but has a file");
	if (!(p->seen & 1U << INNER))
		return tensor_fault(t, "it is nested, but has no inner");
	return 0;
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n > m && !strcmp(s + n - m, end);
}

static int judge_plain(struct parse *p, struct tensor *t)
{
	struct tensor_info *i = &t->info;
	int r;

	if (t->n_inner)
		return tensor_fault(t, "it has inner tensors, but is not nested");
	if (!(p->seen & 1U << SHAPE))
		return tensor_fault(t, "it has no shape");
	if (!(p->seen & 1U << FILE_))
		return tensor_fault(t, "it has no file");
	if (i->dtype == dtype_string && !ends_with(t->file, ".toml"))
		return tensor_fault(t, "it holds strings, but its file is not a .toml file");
	r = shape_count(i->shape, i->rank, &i->count);
	if (!r && i->dtype != dtype_string)
		r = dtype_bytes(i->dtype, i->shape, i->rank, &i->bytes);
	return r ? tensor_fault(t, "its shape is too large: the size does not fit 64 bits") : 0;
}

static int judge(struct parse *p, struct tensor *t)
{
	if (t->problem)
		return 0;
	if (!t->named)
		return tensor_fault(t, "it has no name");
	if (!t->info.dtype)
		return tensor_fault(t, "it has no dtype");
	return t->info.dtype == dtype_nested ? judge_nested(p, t) : judge_plain(p, t);
}

/* Ends the tensor that was being read: all its keys are known now. */
static int finish_last(struct parse *p)
{
	struct tensor *t = p->t->n ? &p->t->list[p->t->n - 1] : NULL;
	uint64_t *shape;

	if (!t)
		return 0;
	if (t->info.rank) {
		shape = malloc(t->info.rank * sizeof(*shape));
		if (!shape)
			return -ENOMEM;
		memcpy(shape, p->shape, t->info.rank * sizeof(*shape));
		t->info.shape = shape;
	}
	return judge(p, t);
}

static int begin_tensor(struct parse *p, size_t element, size_t line)
{
	struct tensors *t = p->t;
	int r = finish_last(p);

	if (r)
		return r;
	if (t->n == MAX_TENSORS)
		return over(p, line, MAX_TENSORS, "tensors");
	if (t->n == p->cap) {
		size_t cap = p->cap ? 2 * p->cap : 16;
		struct tensor *list = reallocarray(t->list, cap, sizeof(*list));

		if (!list)
			return -ENOMEM;
		t->list = list;
		p->cap = cap;
	}
	t->list[t->n++] = (struct tensor){ .line = line };
	p->element = element;
	p->seen = 0;
	return 0;
}

/* Is `path` at or below an element? Its own steps are then those from the third on. */
static bool in_tensor(const struct toml_path *path)
{
	return path->n >= 2 && path->steps[0].len == 6 &&
	       !memcmp(path->steps[0].key, "tensor", 6) && !path->steps[1].key;
}

static bool at_top(const struct toml_path *path)
{
	return path->n && path->steps[0].len == 6 && !memcmp(path->steps[0].key, "tensor", 6);
}

/* The last tensor, when `path` is in it; NULL: it is in an element that is no table. */
static struct tensor *tensor_at(struct parse *p, const struct toml_path *path)
{
	return p->t->n && path->steps[1].index == p->element ? &p->t->list[p->t->n - 1] : NULL;
}

static enum field field_of(const struct toml_path *path)
{
	const struct toml_step *s = &path->steps[2];

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		if (s->key && s->len == strlen(fields[i]) && !memcmp(s->key, fields[i], s->len))
			return (enum field)i;
	}
	return OTHER;
}

static int on_begin(void *ctx, const struct toml_path *path, enum toml_type type, size_t line)
{
	struct parse *p = ctx;
	enum field f;
	struct tensor *t;

	if (!at_top(path))
		return 0;
	if (path->n == 1)
		return type == TOML_ARRAY ? 0 : index_fault(p->t, line, "tensor is not an array");
	if (!in_tensor(path))
		return index_fault(p->t, line, "tensor is not an array");
	if (path->n == 2 && type == TOML_TABLE)
		return begin_tensor(p, path->steps[1].index, line);
	if (path->n == 2)
		return index_fault(p->t, line, "an element of tensor is not a table");
	t = tensor_at(p, path);
	f = field_of(path);
	if (!t || f == OTHER)
		return 0;
	if (path->n == 3 && type == TOML_ARRAY && (f == SHAPE || f == INNER)) {
		p->seen |= 1U << f;
		return 0;
	}
	return tensor_fault(t, f == SHAPE ? "its shape is not a list of integers" :
			       f == INNER ? "its inner is not a list of names" :
			       f == NAME  ? "its name is not a string" :
			       f == DTYPE ? "its dtype is not a string" :
					    "its file is not a string");
}

static int add_dimension(struct parse *p, struct tensor *t, const struct toml_value *v)
{
	if (v->type != TOML_INTEGER)
		return tensor_fault(t, "its shape is not a list of integers");
	if (v->integer < 0)
		return tensor_fault(t, "its shape has a negative dimension, %" PRId64, v->integer);
	if (t->info.rank == MAX_TENSOR_RANK)
		return tensor_fault(t, "it has more than %d dimensions", MAX_TENSOR_RANK);
	p->shape[t->info.rank++] = (uint64_t)v->integer;
	return 0;
}

static int add_inner(struct parse *p, struct tensor *t, const struct toml_value *v)
{
	size_t n = t->n_inner;
	char *name;

	if (v->type != TOML_STRING)
		return tensor_fault(t, "its inner is not a list of names");
	if (p->n_inner == MAX_TENSOR_INNER)
		return over(p, v->line, MAX_TENSOR_INNER, "names in inner");
	if (!(n & (n - 1))) { /* room for a power of two, doubled when it is full */
		struct tensor_ref *inner = reallocarray(t->inner, n ? 2 * n : 1, sizeof(*inner));

		if (!inner)
			return -ENOMEM;
		t->inner = inner;
	}
	name = copy(v->str, v->len);
	if (!name)
		return -ENOMEM;
	t->inner[t->n_inner++] = (struct tensor_ref){ .name = name, .len = v->len };
	p->n_inner++;
	return 0;
}

static int set_name(struct tensor *t, const struct toml_value *v)
{
	if (v->len > MAX_TENSOR_NAME)
		return tensor_fault(t, "its name has %zu bytes, more than %llu", v->len,
				    MAX_TENSOR_NAME);
	t->info.name = copy(v->str, v->len);
	if (!t->info.name)
		return -ENOMEM;
	t->info.name_len = v->len;
	t->named = true;
	return 0;
}

static int set_file(struct tensor *t, const struct toml_value *v)
{
	const char *fault = path_fault(v->str, v->len);

	if (!fault && strlen("tensor_data/") + v->len > MAX_PATH_LEN)
		fault = "the path is too long";
	if (fault)
		return tensor_fault(t, "its file '%.*s' is not a path inside tensor_data: %s",
				    utf8_quoted(v->str, v->len), v->str, fault);
	t->file = copy(v->str, v->len);
	return t->file ? 0 : -ENOMEM;
}

static int set_scalar(struct tensor *t, enum field f, const struct toml_value *v)
{
	if (f == SHAPE)
		return tensor_fault(t, "its shape is not a list of integers");
	if (f == INNER)
		return tensor_fault(t, "its inner is not a list of names");
	if (v->type != TOML_STRING)
		return tensor_fault(t, "its %s is not a string", fields[f]);
	if (f == NAME)
		return set_name(t, v);
	if (f == FILE_)
		return set_file(t, v);
	t->info.dtype = dtype_by_name(v->str, v->len);
	if (!t->info.dtype)
		return tensor_fault(t, "its dtype '%.*s' is unknown", utf8_quoted(v->str, v->len),
				    v->str);
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
		return index_fault(p->t, v->line, "tensor is not an array");
	if (path->n == 2)
		return index_fault(p->t, v->line, "an element of tensor is not a table");
	t = tensor_at(p, path);
	f = field_of(path);
	if (!t || f == OTHER)
		return 0;
	if (path->n == 3) {
		p->seen |= 1U << f;
		return set_scalar(t, f, v);
	}
	if (path->n == 4 && !path->steps[3].key && f == SHAPE)
		return add_dimension(p, t, v);
	if (path->n == 4 && !path->steps[3].key && f == INNER)
		return add_inner(p, t, v);
	return tensor_fault(t, "its %s is of the wrong type", fields[f]);
}

/* ---- parsing ---- */

static const struct toml_events events = { .begin = on_begin, .value = on_value };

/* Ends a parse that gave `r`: the tensors, or nothing. */
static int finish(struct parse *p, int r, struct tensors **ret, struct toml_error *ret_error)
{
	if (p->limit.line && ret_error)
		*ret_error = p->limit;
	if (!r)
		r = finish_last(p);
	if (!r)
		r = tensors_judge(p->t);
	if (r)
		tensors_free(p->t);
	else
		*ret = p->t;
	return r;
}

int tensors_parse(toml_read_fn *read, void *ctx, struct tensors **ret, struct toml_error *ret_error)
{
	struct parse p = { .t = calloc(1, sizeof(*p.t)) };

	if (!p.t)
		return -ENOMEM;
	return finish(&p, toml_parse(read, ctx, &events, &p, ret_error), ret, ret_error);
}

int tensors_parse_mem(const char *text, size_t n, struct tensors **ret,
		      struct toml_error *ret_error)
{
	struct parse p = { .t = calloc(1, sizeof(*p.t)) };

	if (!p.t)
		return -ENOMEM;
	return finish(&p, toml_parse_mem(text, n, &events, &p, ret_error), ret, ret_error);
}

static void free_tensor(struct tensor *t)
{
	for (size_t i = 0; i < t->n_inner; i++)
		free(t->inner[i].name);
	free(t->inner);
	free((void *)t->info.name);
	free((void *)t->info.shape);
	free(t->file);
	free(t->problem);
}

void tensors_free(struct tensors *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n; i++)
		free_tensor(&t->list[i]);
	free(t->list);
	free(t->by_name);
	free(t->problem);
	free(t);
}
