/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "format/internal.h"

/* The shortest decimal that reads back as the same double; never without '.' or exponent. */
static int add_float(struct buf *b, double value)
{
	char text[32];
	int digits = 0, exponent;

	if (value - value != 0)
		return buf_adds(b, value != value ? "nan" : value > 0 ? "inf" : "-inf");
	do
		snprintf(text, sizeof(text), "%.*e", digits, value);
	while (strtod(text, NULL) != value && ++digits < 17);
	exponent = atoi(strchr(text, 'e') + 1);
	if (exponent > -5 && exponent < 16)
		snprintf(text, sizeof(text), "%.*f", MAX(digits - exponent, 1), value);
	return buf_adds(b, text);
}

int meta_add_value(struct buf *b, const struct toml_value *v)
{
	switch (v->type) {
	case TOML_INTEGER:
		return buf_addf(b, "%" PRId64, v->integer);
	case TOML_FLOAT:
		return add_float(b, v->real);
	case TOML_BOOL:
		return buf_adds(b, v->boolean ? "true" : "false");
	case TOML_STRING:
		return buf_add_json(b, v->str, v->len);
	default:
		return buf_add(b, v->str, v->len);
	}
}

bool meta_is_option(const struct toml_path *path)
{
	return path->n > 2 && toml_is_key(&path->steps[0], "runner") &&
	       toml_is_key(&path->steps[1], "opts");
}

/* A child that exists: only tables and arrays are entered again, so only they are searched. */
static struct meta_option *find_child(struct meta_option *parent, const struct toml_step *step)
{
	struct meta_option **link, *o;

	if (!step->key) /* elements come in order */
		return step->index < parent->n ? parent->last : NULL;
	for (link = &parent->opened; *link; link = &(*link)->next_opened) {
		o = *link;
		if (o->len != step->len || memcmp(o->name, step->key, step->len) != 0)
			continue;
		*link = o->next_opened; /* move the last used one to the front */
		o->next_opened = parent->opened;
		parent->opened = o;
		return o;
	}
	return NULL;
}

/* Adds a child at the end. NULL: out of memory. */
static struct meta_option *add_child(struct meta *m, struct meta_option *parent,
				     const struct toml_step *step, enum toml_type type)
{
	struct meta_option *o = meta_alloc(m, sizeof(*o));

	if (!o || (step->key && meta_strdup(m, step->key, step->len, &o->name) < 0))
		return NULL;
	o->len = step->len;
	o->type = type;
	if (type >= TOML_TABLE) {
		o->next_opened = parent->opened;
		parent->opened = o;
	}
	*(parent->last ? &parent->last->next : &parent->first) = o;
	parent->last = o;
	parent->n++;
	return o;
}

/* Is there room for one more option of this type? */
static bool count_option(struct meta *m, enum toml_type type, size_t line)
{
	bool opened = type >= TOML_TABLE;

	if (m->n_options == MAX_META_OPTIONS ||
	    (opened && m->n_opened_options == MAX_META_OPTION_TABLES)) {
		meta_problem(m, line, "runner.opts has too many values: some are left out");
		return false;
	}
	m->n_options++;
	m->n_opened_options += opened;
	return true;
}

/* The reference loader takes strings, numbers and booleans. */
static void check_type(struct meta *m, const struct toml_step *step, enum toml_type type,
		       size_t line)
{
	const char *what = type == TOML_TABLE ? "a table" :
			   type == TOML_ARRAY ? "an array" :
						"a date or time";

	if (type > TOML_BOOL)
		meta_problem(m, line, "option \"%.64s\" is %s, not a string, a number or a boolean",
			     step->key, what);
}

static int set_value(struct meta *m, struct meta_option *o, const struct toml_value *v)
{
	struct buf json = buf_init(SIZE_MAX / 2);
	int r = meta_add_value(&json, v);

	if (r == 0)
		r = meta_strdup(m, json.data, json.len, &o->value);
	buf_finish(&json);
	return r;
}

int meta_add_option(struct meta *m, const struct toml_path *path, enum toml_type type, size_t line,
		    const struct toml_value *v)
{
	struct meta_option *o = &m->options, *child;

	for (size_t i = 2; i < path->n; i++, o = child) {
		const struct toml_step *step = &path->steps[i];

		if (o->type != (step->key ? TOML_TABLE : TOML_ARRAY))
			return 0; /* its parent was left out */
		/* on the way to `path`: a table made by a dotted key or a longer header */
		enum toml_type here = i + 1 == path->n ? type : TOML_TABLE;

		child = find_child(o, step);
		if (child)
			continue;
		if (!count_option(m, here, line))
			return 0;
		if (i == 2)
			check_type(m, step, here, line);
		child = add_child(m, o, step, here);
		if (!child)
			return -ENOMEM;
	}
	return v ? set_value(m, o, v) : 0;
}
