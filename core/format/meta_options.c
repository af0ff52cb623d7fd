/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "format/internal.h"

int meta_value_json(struct buf *b, const struct toml_value *v)
{
	switch (v->type) {
	case TOML_INTEGER:
		return buf_addf(b, "%" PRId64, v->integer);
	case TOML_FLOAT:
		/* JSON has no nan and no inf */
		if (v->real != v->real || v->real - v->real != 0)
			return buf_adds(b, "null");
		return buf_addf(b, "%.17g", v->real);
	case TOML_BOOL:
		return buf_adds(b, v->boolean ? "true" : "false");
	default:
		return buf_add_json(b, v->str, v->len);
	}
}

/* A key as it stands in TOML: quoted, where its characters would be taken for the path's. */
static int add_key(struct buf *b, const struct toml_step *step)
{
	static const char bare[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

	return step->len && strspn(step->key, bare) == step->len ?
		       buf_add(b, step->key, step->len) :
		       buf_add_json(b, step->key, step->len);
}

static int add_name(struct buf *b, const struct toml_path *path)
{
	int r = 0;

	for (size_t i = 2; i < path->n && r == 0; i++) {
		const struct toml_step *step = &path->steps[i];

		if (!step->key)
			r = buf_addf(b, "[%zu]", step->index);
		else if (i > 2)
			r = buf_addc(b, '.');
		if (r == 0 && step->key)
			r = add_key(b, step);
	}
	return r;
}

static int add_option(struct meta *m, const struct buf *name, const struct buf *value)
{
	struct meta_option *options = meta_grow(m, m->options, m->n_options, sizeof(*options));
	int r = options ? 0 : -ENOMEM;

	if (r == 0) {
		m->options = options;
		r = meta_strdup(m, name->data, name->len, &options[m->n_options].name);
	}
	if (r == 0)
		r = meta_strdup(m, value->data, value->len, &options[m->n_options].value);
	m->n_options += r == 0;
	return r;
}

bool meta_is_option(const struct toml_path *path)
{
	return path->n > 2 && meta_is_key(&path->steps[0], "runner") &&
	       meta_is_key(&path->steps[1], "opts");
}

int meta_take_option(struct meta *m, const struct toml_path *path, const struct toml_value *v)
{
	struct buf name = buf_init(TOML_MAX_KEY), value = buf_init(TOML_MAX_STRING);
	int r = add_name(&name, path);

	if (r == 0)
		r = meta_value_json(&value, v);
	if (r == 0)
		r = add_option(m, &name, &value);
	buf_free(&name);
	buf_free(&value);
	return r == -EFBIG ? meta_problem(m, v->line, "a runner option is too long") : r;
}

int meta_end_option(struct meta *m, const struct toml_path *path, enum toml_type type)
{
	struct buf name = buf_init(TOML_MAX_KEY), value = buf_init(2);
	const char *last = m->n_options ? m->options[m->n_options - 1].name : "";
	int r = add_name(&name, path);

	/* the last option, if it is in here, has a name that goes on from this one */
	if (r == 0 && (strncmp(last, name.data, name.len) || !strchr(".[", last[name.len]))) {
		r = buf_adds(&value, type == TOML_ARRAY ? "[]" : "{}");
		if (r == 0)
			r = add_option(m, &name, &value);
	}
	buf_free(&name);
	buf_free(&value);
	return r == -EFBIG ? meta_problem(m, 0, "a runner option is too long") : r;
}
