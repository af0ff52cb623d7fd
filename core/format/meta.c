/* SPDX-License-Identifier: Apache-2.0 */
#include "format/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"

/* Everything a meta points to, freed as one. */
struct meta_block {
	struct meta_block *next;
	char data[];
};

/* What a document is read with: the meta, and what is half read. */
struct reader {
	struct meta *m;
	struct meta_tensor *shape_of; /* whose list is being read, without a fault so far */
	struct buf shape;	      /* its JSON */
};

void *meta_alloc(struct meta *m, size_t n)
{
	struct meta_block *b = calloc(1, sizeof(*b) + n);

	if (!b)
		return NULL;
	b->next = m->blocks;
	m->blocks = b;
	return b->data;
}

int meta_strdup(struct meta *m, const char *s, size_t n, char **ret)
{
	char *copy = meta_alloc(m, n + 1);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, s, n);
	*ret = copy;
	return 0;
}

void *meta_grow(struct meta *m, void *array, size_t n, size_t size)
{
	void *grown;

	if (n == 0 || (n >= 4 && (n & (n - 1)) == 0) || !array) {
		grown = meta_alloc(m, size * MAX((size_t)4, 2 * n));
		if (grown && n)
			memcpy(grown, array, n * size);
		return grown;
	}
	return array;
}

int meta_problem(struct meta *m, size_t line, const char *fmt, ...)
{
	char text[512];
	char **problems;
	va_list ap;
	int n;

	if (m->n_problems >= MAX_REPORTED)
		return 0;
	n = line ? snprintf(text, sizeof(text), "line %zu: ", line) : 0;
	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	va_end(ap);
	problems = meta_grow(m, m->problems, m->n_problems, sizeof(*problems));
	if (!problems)
		return -ENOMEM;
	m->problems = problems;
	return meta_strdup(m, text, strlen(text), &m->problems[m->n_problems++]);
}

/* ---- top-level and runner values ---- */

static const struct {
	const char *path;
	size_t field;
} strings[] = {
	{ "model_name", offsetof(struct meta, model_name) },
	{ "short_description", offsetof(struct meta, short_description) },
	{ "model_description", offsetof(struct meta, model_description) },
	{ "license", offsetof(struct meta, license) },
	{ "repository", offsetof(struct meta, repository) },
	{ "homepage", offsetof(struct meta, homepage) },
	{ "runner.runner_name", offsetof(struct meta, runner_name) },
	{ "runner.required_framework_version", offsetof(struct meta, framework_version) },
}, tensor_strings[] = {
	{ "name", offsetof(struct meta_tensor, name) },
	{ "dtype", offsetof(struct meta_tensor, dtype) },
	{ "description", offsetof(struct meta_tensor, description) },
	{ "internal_name", offsetof(struct meta_tensor, internal_name) },
};

static int take_string(struct meta *m, const char *what, const struct toml_value *v, char **ret)
{
	if (v->type != TOML_STRING)
		return meta_problem(m, v->line, "%s is not a string", what);
	if (memchr(v->str, '\0', v->len))
		return meta_problem(m, v->line, "%s holds a NUL character", what);
	return meta_strdup(m, v->str, v->len, ret);
}

static int take_top(struct meta *m, const struct toml_path *path, const struct toml_value *v)
{
	for (size_t i = 0; i < ARRAY_SIZE(strings); i++)
		if (toml_path_is(path, strings[i].path))
			return take_string(m, strings[i].path, v,
					   (char **)((char *)m + strings[i].field));
	if (toml_path_is(path, "spec_version")) {
		if (v->type != TOML_INTEGER)
			return meta_problem(m, v->line, "spec_version is not an integer");
		m->spec_version = v->integer;
		m->has_spec_version = true;
	} else if (toml_path_is(path, "runner.runner_compat_version")) {
		if (v->type != TOML_INTEGER || v->integer < 0)
			return meta_problem(m, v->line,
					    "runner.runner_compat_version is not a version number");
		m->compat_version = v->integer;
		m->has_compat_version = true;
	} else if (toml_path_is(path, "required_platforms[]")) {
		char **platforms, *item = NULL;
		int r = take_string(m, "an item of required_platforms", v, &item);

		if (r < 0 || !item)
			return r;
		platforms = meta_grow(m, m->platforms, m->n_platforms, sizeof(char *));
		if (!platforms)
			return -ENOMEM;
		m->platforms = platforms;
		platforms[m->n_platforms++] = item;
	}
	return meta_is_option(path) ? meta_take_option(m, path, v) : 0;
}

/* ---- [[input]] and [[output]] ---- */

/* A shape with a fault is none: what is left of it would be another one. */
static int bad_shape(struct reader *rd, size_t line)
{
	rd->shape_of->dims = NULL;
	rd->shape_of->rank = 0;
	rd->shape_of->has_dims = false;
	rd->shape_of = NULL;
	return meta_problem(rd->m, line, "a dimension of a shape is neither a size nor a symbol");
}

static int take_dimension(struct reader *rd, const struct toml_value *v)
{
	struct meta_tensor *t = rd->shape_of;
	int64_t *dims;

	if (v->type != TOML_STRING && (v->type != TOML_INTEGER || v->integer < 0))
		return bad_shape(rd, v->line);
	dims = meta_grow(rd->m, t->dims, t->rank, sizeof(*dims));
	if (!dims)
		return -ENOMEM;
	t->dims = dims;
	dims[t->rank++] = v->type == TOML_INTEGER ? v->integer : -1;
	int r = rd->shape.len > 1 ? buf_addc(&rd->shape, ',') : 0;

	return r < 0 ? r : meta_value_json(&rd->shape, v);
}

static int take_shape(struct reader *rd, struct meta_tensor *t, const struct toml_path *path,
		      const struct toml_value *v)
{
	int r;

	if (path->n > 3 && !path->steps[3].key)
		return rd->shape_of ? take_dimension(rd, v) : 0;
	if (path->n != 3 || v->type != TOML_STRING)
		return meta_problem(rd->m, v->line, "shape is neither a list nor a symbol");
	rd->shape.len = 0;
	r = meta_value_json(&rd->shape, v);
	return r < 0 ? r : meta_strdup(rd->m, rd->shape.data, rd->shape.len, &t->shape);
}

static int take_tensor(struct reader *rd, struct meta_tensor *t, const struct toml_path *path,
		       const struct toml_value *v)
{
	const struct toml_step *key = &path->steps[2];

	if (meta_is_key(key, "shape"))
		return take_shape(rd, t, path, v);
	for (size_t i = 0; i < ARRAY_SIZE(tensor_strings) && path->n == 3; i++)
		if (meta_is_key(key, tensor_strings[i].path))
			return take_string(rd->m, key->key, v,
					   (char **)((char *)t + tensor_strings[i].field));
	return 0;
}

/* ---- [[self_test]] and [[example]] ---- */

static int take_reference(struct meta *m, struct meta_value **values, size_t *n,
			  const struct toml_step *key, const struct toml_value *v)
{
	struct meta_value value = { NULL, NULL }, *grown;
	int r;

	r = meta_strdup(m, v->str, v->len, &value.reference);
	if (r == 0)
		r = meta_strdup(m, key->key, key->len, &value.name);
	if (r < 0)
		return r;
	/* only now: an array grows for what is kept, not for each fault */
	grown = meta_grow(m, *values, *n, sizeof(**values));
	if (!grown)
		return -ENOMEM;
	*values = grown;
	grown[(*n)++] = value;
	return 0;
}

/* The flag of the side of a case that `key` names; NULL: it names none. */
static bool *odd_side(struct meta_case *c, const char *outputs, const struct toml_step *key)
{
	return meta_is_key(key, "inputs") ? &c->odd_inputs :
	       meta_is_key(key, outputs)  ? &c->odd_outputs :
					    NULL;
}

static int take_case(struct meta *m, struct meta_case *c, const char *outputs,
		     const struct toml_path *path, const struct toml_value *v)
{
	const struct toml_step *key = &path->steps[2], *name = &path->steps[3];
	bool *odd = odd_side(c, outputs, key);

	if (path->n == 3 && meta_is_key(key, "name"))
		return take_string(m, "name", v, &c->name);
	if (path->n == 3 && meta_is_key(key, "description"))
		return take_string(m, "description", v, &c->description);
	if (!odd)
		return 0;
	if (path->n != 4 || !name->key || memchr(name->key, '\0', name->len) ||
	    v->type != TOML_STRING || memchr(v->str, '\0', v->len)) {
		*odd = true;
		return meta_problem(m, v->line,
				    "%s: a value that is no NAME = \"@tensor_data/...\"",
				    odd == &c->odd_inputs ? "inputs" : outputs);
	}
	if (odd == &c->odd_inputs) {
		c->has_inputs = true;
		return take_reference(m, &c->inputs, &c->n_inputs, name, v);
	}
	c->has_outputs = true;
	return take_reference(m, &c->outputs, &c->n_outputs, name, v);
}

/* Tables and arrays: the one that holds the values, and those that have no place among them. */
static int begin_case(struct meta *m, struct meta_case *c, const char *outputs,
		      const struct toml_path *path, enum toml_type type, size_t line)
{
	bool *odd;

	if (path->n == 2)
		c->line = line;
	odd = path->n > 2 && path->steps[2].key ? odd_side(c, outputs, &path->steps[2]) : NULL;
	if (!odd)
		return 0;
	if (path->n == 3 && type == TOML_TABLE) {
		c->has_inputs |= odd == &c->odd_inputs;
		c->has_outputs |= odd == &c->odd_outputs;
		return 0;
	}
	*odd = true;
	return meta_problem(m, line, "%s: %s where NAME = \"@tensor_data/...\" must be",
			    odd == &c->odd_inputs ? "inputs" : outputs,
			    type == TOML_TABLE ? "a table" : "an array");
}

/* ---- events ---- */

/* The arrays of tables, each with its place in the meta. */
static const struct table {
	const char *name;
	size_t array, n, size;
	const char *outputs; /* of a case */
} tables[] = {
	{ "input", offsetof(struct meta, inputs), offsetof(struct meta, n_inputs),
	  sizeof(struct meta_tensor), NULL },
	{ "output", offsetof(struct meta, outputs), offsetof(struct meta, n_outputs),
	  sizeof(struct meta_tensor), NULL },
	{ "self_test", offsetof(struct meta, self_tests), offsetof(struct meta, n_self_tests),
	  sizeof(struct meta_case), "expected_out" },
	{ "example", offsetof(struct meta, examples), offsetof(struct meta, n_examples),
	  sizeof(struct meta_case), "sample_out" },
};

static const struct table *find_table(const struct toml_path *path)
{
	if (path->n < 2 || !path->steps[0].key || path->steps[1].key)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		if (meta_is_key(&path->steps[0], tables[i].name))
			return &tables[i];
	return NULL;
}

/* The index'th element of a table's array, which grows as needed; NULL: no memory. */
static void *table_element(struct meta *m, const struct table *t, size_t index)
{
	void **array = (void **)((char *)m + t->array);
	size_t *n = (size_t *)((char *)m + t->n);

	while (*n <= index) {
		void *grown = meta_grow(m, *array, *n, t->size);

		if (!grown)
			return NULL;
		*array = grown;
		memset((char *)grown + *n * t->size, 0, t->size);
		++*n;
	}
	return (char *)*array + index * t->size;
}

static int on_begin(void *ctx, const struct toml_path *path, enum toml_type type, size_t line)
{
	struct reader *rd = ctx;
	const struct table *t = find_table(path);
	void *element;

	if (toml_path_is(path, "runner"))
		rd->m->has_runner = true;
	if (!t)
		return 0;
	if (path->steps[1].index >= MAX_META_TABLES)
		return -EFBIG;
	element = table_element(rd->m, t, path->steps[1].index);
	if (!element)
		return -ENOMEM;
	if (t->outputs)
		return begin_case(rd->m, element, t->outputs, path, type, line);
	if (path->n < 3 || !meta_is_key(&path->steps[2], "shape"))
		return 0;
	if (path->n > 3)
		return rd->shape_of ? bad_shape(rd, line) : 0;
	if (type != TOML_ARRAY)
		return 0;
	rd->shape.len = 0;
	rd->shape_of = element;
	rd->shape_of->has_dims = true;
	return buf_addc(&rd->shape, '[');
}

static int on_end(void *ctx, const struct toml_path *path, enum toml_type type)
{
	struct reader *rd = ctx;
	char **shape;
	int r;

	if (meta_is_option(path))
		return meta_end_option(rd->m, path, type);
	if (type != TOML_ARRAY || !rd->shape_of || path->n != 3)
		return 0;
	shape = &rd->shape_of->shape;
	rd->shape_of = NULL;
	r = buf_addc(&rd->shape, ']');
	return r < 0 ? r : meta_strdup(rd->m, rd->shape.data, rd->shape.len, shape);
}

static int on_value(void *ctx, const struct toml_path *path, const struct toml_value *v)
{
	struct reader *rd = ctx;
	const struct table *t = find_table(path);
	void *element;

	if (!t)
		return take_top(rd->m, path, v);
	if (path->n < 3 || !path->steps[2].key)
		return meta_problem(rd->m, v->line, "%s is not a table", t->name);
	element = table_element(rd->m, t, path->steps[1].index);
	if (!element)
		return -ENOMEM;
	return t->outputs ? take_case(rd->m, element, t->outputs, path, v) :
			    take_tensor(rd, element, path, v);
}

/* ---- names ---- */

static int by_name(const void *a, const void *b)
{
	const struct meta_tensor *x = *(const struct meta_tensor *const *)a;
	const struct meta_tensor *y = *(const struct meta_tensor *const *)b;
	int c = strcmp(x->name, y->name);

	return c ? c : (x > y) - (x < y);
}

static int sort_names(struct meta *m, const struct meta_tensor *list, size_t n,
		      struct meta_names *ret)
{
	ret->list = meta_alloc(m, n * sizeof(*ret->list));
	if (!ret->list)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (list[i].name)
			ret->list[ret->n++] = &list[i];
	qsort(ret->list, ret->n, sizeof(*ret->list), by_name);
	return 0;
}

const struct meta_tensor *meta_find(const struct meta_names *names, const char *name)
{
	size_t lo = 0, hi = names->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (strcmp(names->list[mid]->name, name) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < names->n && strcmp(names->list[lo]->name, name) == 0 ? names->list[lo] : NULL;
}

int meta_parse(const char *text, size_t n, struct meta **ret)
{
	static const struct toml_events events = { on_begin, on_end, on_value };
	struct reader rd = { .m = calloc(1, sizeof(*rd.m)), .shape = buf_init(MAX_CARTON_TOML) };
	struct toml_error error = { 0 };
	int r;

	if (!rd.m)
		return -ENOMEM;
	r = toml_parse_mem(text, n, &events, &rd, &error);
	buf_free(&rd.shape);
	if (r == 0)
		r = sort_names(rd.m, rd.m->inputs, rd.m->n_inputs, &rd.m->input_names);
	if (r == 0)
		r = sort_names(rd.m, rd.m->outputs, rd.m->n_outputs, &rd.m->output_names);
	if (r < 0) {
		if (r == -EFBIG && !*error.message)
			carton_log(
				CARTON_LOG_ERROR, "carton.toml",
				"has more than %d tables of one kind, or a shape that is too long",
				MAX_META_TABLES);
		else if (r == -EBADMSG || r == -EFBIG)
			carton_log(CARTON_LOG_ERROR, "carton.toml", "line %zu: %s", error.line,
				   error.message);
		meta_free(rd.m);
		return r;
	}
	*ret = rd.m;
	return 0;
}

void meta_free(struct meta *m)
{
	if (!m)
		return;
	while (m->blocks) {
		struct meta_block *b = m->blocks;

		m->blocks = b->next;
		free(b);
	}
	free(m);
}
