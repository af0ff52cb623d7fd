/* SPDX-License-Identifier: Apache-2.0 */
#include "format/internal.h"

#include <stdlib.h>

#include "format/values.h"
#include "base/util.h"

#define MAX_SHORT_DESCRIPTION 100 /* characters, by the format */

/* The state of a parse: the meta so far, and the shape that is being read. */
struct reader {
	struct meta *m;
	struct meta_tensor *shape_of; /* whose shape is read; NULL: none, or it is malformed */
	struct buf shape;	      /* its JSON so far */
};

/* ---- known keys ---- */

static const char *description_fault(const char *text)
{
	return utf8_count(text, strlen(text)) > MAX_SHORT_DESCRIPTION ?
		       "has more than 100 characters" :
		       NULL;
}

/* The arrays of tables, with their offsets in struct meta. */
static const struct table {
	const char *name;
	size_t array, n, size;
	const char *outputs; /* of a case: the key of its outputs */
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

/* Strings, with the check of their syntax. */
static const struct string {
	const char *path;
	size_t field;
	const char *(*fault)(const char *text);
} strings[] = {
	{ "model_name", offsetof(struct meta, model_name), NULL },
	{ "short_description", offsetof(struct meta, short_description), description_fault },
	{ "model_description", offsetof(struct meta, model_description), NULL },
	{ "license", offsetof(struct meta, license), NULL },
	{ "repository", offsetof(struct meta, repository), NULL },
	{ "homepage", offsetof(struct meta, homepage), NULL },
	{ "runner.runner_name", offsetof(struct meta, runner_name), NULL },
	{ "runner.required_framework_version", offsetof(struct meta, framework_version),
	  version_req_fault },
}, platform = { "an item of required_platforms", 0, platform_fault }, tensor_strings[] = {
	{ "name", offsetof(struct meta_tensor, name), NULL },
	{ "dtype", offsetof(struct meta_tensor, dtype), NULL },
	{ "description", offsetof(struct meta_tensor, description), NULL },
	{ "internal_name", offsetof(struct meta_tensor, internal_name), NULL },
};

/* ---- top-level and runner values ---- */

static int take_string(struct meta *m, const char *what, const struct toml_value *v, char **ret)
{
	if (v->type != TOML_STRING)
		return meta_problem(m, v->line, "%s is not a string", what);
	if (memchr(v->str, '\0', v->len))
		return meta_problem(m, v->line, "%s contains a NUL character", what);
	return meta_strdup(m, v->str, v->len, ret);
}

/* The same, and checks the syntax; a malformed text is kept too. */
static int take_checked(struct meta *m, const struct string *s, const struct toml_value *v,
			char **ret)
{
	char *text = NULL;
	int r = take_string(m, s->path, v, &text);
	const char *fault = text && s->fault ? s->fault(text) : NULL;

	if (r < 0 || !text)
		return r;
	*ret = text;
	return fault ? meta_problem(m, v->line, "%s %s", s->path, fault) : 0;
}

static int take_platform(struct meta *m, const struct toml_value *v)
{
	char **platforms, *item = NULL;
	int r = take_checked(m, &platform, v, &item);

	if (r < 0 || !item)
		return r;
	platforms = meta_grow(m, m->platforms, m->n_platforms, sizeof(char *));
	if (!platforms)
		return -ENOMEM;
	m->platforms = platforms;
	platforms[m->n_platforms++] = item;
	return 0;
}

/* Reports a value, table or array that has the wrong type for its key. */
static int check_type(struct meta *m, const struct toml_path *path, enum toml_type type,
		      size_t line)
{
	const struct toml_step *key = &path->steps[0];
	bool one_table = path->n > 1 ? path->steps[1].key != NULL : type != TOML_ARRAY;

	for (size_t i = 0; i < ARRAY_SIZE(tables) && one_table; i++) {
		if (!toml_is_key(key, tables[i].name) || (m->not_arrays & 1U << i))
			continue;
		m->not_arrays |= 1U << i;
		return meta_problem(m, line, "%s is not an array of tables: write [[%s]]",
				    tables[i].name, tables[i].name);
	}
	if (toml_is_key(key, "required_platforms") && (path->n > 1 || type != TOML_ARRAY))
		return meta_problem(m, line, "required_platforms is not a list of strings");
	for (size_t i = 0; i < ARRAY_SIZE(strings) && type >= TOML_TABLE; i++)
		if (toml_path_is(path, strings[i].path))
			return meta_problem(m, line, "%s is not a string", strings[i].path);
	return 0;
}

static int take_top(struct meta *m, const struct toml_path *path, const struct toml_value *v)
{
	if (meta_is_option(path))
		return meta_add_option(m, path, v->type, v->line, v);
	if (toml_path_is(path, "required_platforms[]"))
		return take_platform(m, v);
	for (size_t i = 0; i < ARRAY_SIZE(strings); i++)
		if (toml_path_is(path, strings[i].path))
			return take_checked(m, &strings[i], v,
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
	} else {
		return check_type(m, path, v->type, v->line);
	}
	return 0;
}

/* ---- [[input]] and [[output]] ---- */

/* Drops a malformed shape whole: a truncated one would be wrong. */
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

	return r < 0 ? r : meta_add_value(&rd->shape, v);
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
	r = meta_add_value(&rd->shape, v);
	return r < 0 ? r : meta_strdup(rd->m, rd->shape.data, rd->shape.len, &t->shape);
}

static int take_tensor(struct reader *rd, struct meta_tensor *t, const struct toml_path *path,
		       const struct toml_value *v)
{
	const struct toml_step *key = &path->steps[2];

	if (toml_is_key(key, "shape"))
		return take_shape(rd, t, path, v);
	for (size_t i = 0; i < ARRAY_SIZE(tensor_strings) && path->n == 3; i++)
		if (toml_is_key(key, tensor_strings[i].path))
			return take_string(rd->m, key->key, v,
					   (char **)((char *)t + tensor_strings[i].field));
	return 0;
}

/* ---- [[self_test]] and [[example]] ---- */

static int take_reference(struct meta *m, struct meta_value **values, size_t *n,
			  const struct toml_step *key, const struct toml_value *v)
{
	struct meta_value value = { NULL, NULL }, *grown;
	int r = meta_strdup(m, v->str, v->len, &value.reference);

	if (r == 0)
		r = meta_strdup(m, key->key, key->len, &value.name);
	if (r < 0)
		return r;
	/* last, so that the array does not grow for values that are dropped */
	grown = meta_grow(m, *values, *n, sizeof(**values));
	if (!grown)
		return -ENOMEM;
	*values = grown;
	grown[(*n)++] = value;
	return 0;
}

/* The flag for malformed inputs or outputs, as `key` says; NULL: it is neither key. */
static bool *bad_flag(struct meta_case *c, const char *outputs, const struct toml_step *key)
{
	return toml_is_key(key, "inputs") ? &c->bad_inputs :
	       toml_is_key(key, outputs)  ? &c->bad_outputs :
					    NULL;
}

static int take_case(struct meta *m, struct meta_case *c, const char *outputs,
		     const struct toml_path *path, const struct toml_value *v)
{
	const struct toml_step *key = &path->steps[2], *name = &path->steps[3];
	bool *bad = bad_flag(c, outputs, key);

	if (path->n == 3 && toml_is_key(key, "name"))
		return take_string(m, "name", v, &c->name);
	if (path->n == 3 && toml_is_key(key, "description"))
		return take_string(m, "description", v, &c->description);
	if (!bad)
		return 0;
	if (path->n != 4 || !name->key || memchr(name->key, '\0', name->len) ||
	    v->type != TOML_STRING || memchr(v->str, '\0', v->len)) {
		*bad = true;
		return meta_problem(m, v->line,
				    "%s: a value that is not NAME = \"@tensor_data/...\"",
				    bad == &c->bad_inputs ? "inputs" : outputs);
	}
	if (bad == &c->bad_inputs) {
		c->has_inputs = true;
		return take_reference(m, &c->inputs, &c->n_inputs, name, v);
	}
	c->has_outputs = true;
	return take_reference(m, &c->outputs, &c->n_outputs, name, v);
}

/* A table or array in a case: the table of inputs or outputs; others have the wrong type. */
static int begin_case(struct meta *m, struct meta_case *c, const char *outputs,
		      const struct toml_path *path, const struct toml_value *v)
{
	bool *bad;

	if (path->n == 2)
		c->line = v->line;
	bad = path->n > 2 && path->steps[2].key ? bad_flag(c, outputs, &path->steps[2]) : NULL;
	if (!bad)
		return 0;
	if (path->n == 3 && v->type == TOML_TABLE) {
		c->has_inputs |= bad == &c->bad_inputs;
		c->has_outputs |= bad == &c->bad_outputs;
		return 0;
	}
	*bad = true;
	return meta_problem(m, v->line, "%s: %s where NAME = \"@tensor_data/...\" must be",
			    bad == &c->bad_inputs ? "inputs" : outputs,
			    v->type == TOML_TABLE ? "a table" : "an array");
}

/* ---- events ---- */

static const struct table *find_table(const struct toml_path *path)
{
	if (path->n < 2 || !path->steps[0].key || path->steps[1].key)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		if (toml_is_key(&path->steps[0], tables[i].name))
			return &tables[i];
	return NULL;
}

/* Element `index` of an array of tables, which grows as needed; NULL: out of memory. */
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

/* A header is not the only way to write a table: keys with dots in them make one, too. */
static void note_runner(struct meta *m, const struct toml_path *path, enum toml_type type)
{
	if (toml_path_is(path, "runner") ?
		    type == TOML_TABLE :
		    path->n > 1 && toml_is_key(&path->steps[0], "runner") && path->steps[1].key)
		m->has_runner = true;
}

static int on_begin(void *ctx, const struct toml_path *path, enum toml_type type, size_t line)
{
	const struct toml_value value = { .type = type, .line = line };
	struct reader *rd = ctx;
	const struct table *t = find_table(path);
	void *element;

	note_runner(rd->m, path, type);
	if (meta_is_option(path))
		return meta_add_option(rd->m, path, type, line, NULL);
	if (!t)
		return check_type(rd->m, path, type, line);
	if (path->steps[1].index >= MAX_META_TABLES)
		return -EFBIG;
	element = table_element(rd->m, t, path->steps[1].index);
	if (!element)
		return -ENOMEM;
	if (t->outputs)
		return begin_case(rd->m, element, t->outputs, path, &value);
	if (path->n < 3 || !toml_is_key(&path->steps[2], "shape"))
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

	note_runner(rd->m, path, v->type);
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

int meta_parse(const char *text, size_t n, struct budget *budget, struct meta **ret)
{
	const struct toml_events events = {
		.begin = on_begin, .end = on_end, .value = on_value, .budget = budget
	};
	struct reader rd = { .m = calloc(1, sizeof(*rd.m)), .shape = buf_init(MAX_CARTON_TOML) };
	struct reason error = { 0 };
	int r;

	if (!rd.m)
		return -ENOMEM;
	rd.m->options.type = TOML_TABLE;
	r = toml_parse_mem(text, n, &events, &rd, &error);
	buf_finish(&rd.shape);
	if (r == 0)
		r = meta_sort_names(rd.m, rd.m->inputs, rd.m->n_inputs, &rd.m->input_names);
	if (r == 0)
		r = meta_sort_names(rd.m, rd.m->outputs, rd.m->n_outputs, &rd.m->output_names);
	if (r < 0) {
		if (r == -EFBIG && !*error.text)
			carton_log(CARTON_LOG_ERROR, "carton.toml",
				   "has more than %d tables of one kind, or too long a shape",
				   MAX_META_TABLES);
		else if (r == -EBADMSG || r == -EFBIG)
			carton_log(CARTON_LOG_ERROR, "carton.toml", "line %zu: %s", error.line,
				   error.text);
		meta_free(rd.m);
		return r;
	}
	*ret = rd.m;
	return 0;
}
