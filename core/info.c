/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carton_info(): the model's metadata from carton.toml, as text or as JSON.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "internal.h"
#include "base/util.h"

#define MAX_INFO (256 * MIB)
#define INDENT "             " /* of the lines after the first of a value */

/* The output so far. After the first error nothing more is added: callers need no checks. */
struct out {
	struct buf text;
	int error;
};

#define OUT(o, call)                         \
	do {                                 \
		if ((o)->error == 0)         \
			(o)->error = (call); \
	} while (0)

static void put(struct out *o, const char *s)
{
	OUT(o, buf_adds(&o->text, s));
}

static void put_json(struct out *o, const char *s)
{
	if (s)
		OUT(o, buf_add_json(&o->text, s, strlen(s)));
	else
		put(o, "null");
}

/* Text from the carton, for a terminal: keeps tabs and newlines, escapes other control characters. */
static void put_text(struct out *o, const char *s, const char *indent)
{
	for (size_t step; *s; s += step) {
		step = *s == '\t' ? 1 : utf8_plain(s, strnlen(s, 4));
		OUT(o, buf_add(&o->text, s, step));
		if (step)
			continue;
		step = 1;
		if (*s == '\n') {
			put(o, "\n");
			put(o, indent);
		} else {
			OUT(o, buf_addf(&o->text, "\\x%02x", (unsigned char)*s));
		}
	}
}

/* ---- JSON ---- */

static void json_member(struct out *o, const char *key, const char *value)
{
	put_json(o, key);
	put(o, ":");
	put_json(o, value);
	put(o, ",");
}

/* Ends a list or object; overwrites the comma after its last member. */
static void json_end(struct out *o, const char *end)
{
	if (o->error == 0 && o->text.len && o->text.data[o->text.len - 1] == ',')
		o->text.len--;
	put(o, end);
}

static void json_tensors(struct out *o, const char *key, const struct meta_tensor *list, size_t n)
{
	put_json(o, key);
	put(o, ":[");
	for (size_t i = 0; i < n; i++) {
		put(o, "{");
		json_member(o, "name", list[i].name);
		json_member(o, "dtype", list[i].dtype);
		put(o, "\"shape\":");
		put(o, list[i].shape ? list[i].shape : "null");
		put(o, ",");
		json_member(o, "description", list[i].description);
		json_member(o, "internal_name", list[i].internal_name);
		json_end(o, "},");
	}
	json_end(o, "],");
}

static void json_values(struct out *o, const char *key, const struct meta_value *list, size_t n)
{
	put_json(o, key);
	put(o, ":{");
	for (size_t i = 0; i < n; i++)
		json_member(o, list[i].name, list[i].reference);
	json_end(o, "},");
}

static void json_cases(struct out *o, const char *key, const char *outputs,
		       const struct meta_case *list, size_t n)
{
	put_json(o, key);
	put(o, ":[");
	for (size_t i = 0; i < n; i++) {
		put(o, "{");
		json_member(o, "name", list[i].name);
		json_member(o, "description", list[i].description);
		json_values(o, "inputs", list[i].inputs, list[i].n_inputs);
		json_values(o, outputs, list[i].outputs, list[i].n_outputs);
		json_end(o, "},");
	}
	json_end(o, "],");
}

/* An option with all below it; JSON has no dates, nan and inf. The depth is bounded by TOML_MAX_KEY_PARTS and TOML_MAX_DEPTH. */
static void json_option(struct out *o, const struct meta_option *option)
{
	bool table = option->type == TOML_TABLE;

	if (option->type < TOML_TABLE) {
		if (option->type > TOML_BOOL)
			put_json(o, option->value);
		else if (option->type == TOML_FLOAT && strpbrk(option->value, "ni"))
			put(o, "null");
		else
			put(o, option->value);
		return;
	}
	put(o, table ? "{" : "[");
	for (const struct meta_option *c = option->first; c; c = c->next) {
		if (table) {
			OUT(o, buf_add_json(&o->text, c->name, c->len));
			put(o, ":");
		}
		json_option(o, c);
		put(o, ",");
	}
	json_end(o, table ? "}" : "]");
}

static void json_info(struct out *o, const struct carton *c, const char *hash)
{
	const struct meta *m = c->meta;

	put(o, "{");
	json_member(o, "model_hash", hash);
	OUT(o, buf_addf(&o->text, "\"files\":%" PRIu64 ",\"bytes\":%" PRIu64 ",", c->tree->files,
			c->tree->bytes));
	OUT(o, buf_addf(&o->text, "\"spec_version\":%" PRId64 ",", m->spec_version));
	json_member(o, "model_name", m->model_name);
	json_member(o, "short_description", m->short_description);
	json_member(o, "model_description", m->model_description);
	json_member(o, "license", m->license);
	json_member(o, "repository", m->repository);
	json_member(o, "homepage", m->homepage);
	put(o, "\"required_platforms\":[");
	for (size_t i = 0; i < m->n_platforms; i++) {
		put_json(o, m->platforms[i]);
		put(o, ",");
	}
	json_end(o, "],");
	json_tensors(o, "inputs", m->inputs, m->n_inputs);
	json_tensors(o, "outputs", m->outputs, m->n_outputs);
	json_cases(o, "self_tests", "expected_out", m->self_tests, m->n_self_tests);
	json_cases(o, "examples", "sample_out", m->examples, m->n_examples);
	put(o, "\"runner\":{");
	json_member(o, "runner_name", m->runner_name);
	json_member(o, "required_framework_version", m->framework_version);
	if (m->has_compat_version)
		OUT(o, buf_addf(&o->text, "\"runner_compat_version\":%" PRId64 ",",
				m->compat_version));
	put(o, "\"opts\":");
	json_option(o, &m->options);
	json_end(o, "}");
	json_end(o, "}\n");
}

/* ---- text ---- */

static void text_member(struct out *o, const char *key, const char *value)
{
	if (!value || !*value)
		return;
	OUT(o, buf_addf(&o->text, "%-13s", key));
	put_text(o, value, INDENT);
	put(o, "\n");
}

static void text_tensors(struct out *o, const char *key, const struct meta_tensor *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		OUT(o, buf_addf(&o->text, "%-13s", i == 0 ? key : ""));
		put_text(o, list[i].name ? list[i].name : "?", "");
		put(o, "  ");
		put_text(o, list[i].dtype ? list[i].dtype : "?", "");
		put(o, " ");
		put_text(o, list[i].shape ? list[i].shape : "?", "");
		if (list[i].internal_name) {
			put(o, "  (internal name ");
			put_text(o, list[i].internal_name, INDENT);
			put(o, ")");
		}
		if (list[i].description) {
			put(o, "  ");
			put_text(o, list[i].description, INDENT);
		}
		put(o, "\n");
	}
}

static void text_cases(struct out *o, const char *key, const struct meta_case *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		OUT(o, buf_addf(&o->text, "%-13s", i == 0 ? key : ""));
		put_text(o, list[i].name && *list[i].name ? list[i].name : "(no name)", INDENT);
		if (list[i].description && *list[i].description) {
			put(o, "  ");
			put_text(o, list[i].description, INDENT);
		}
		put(o, "\n");
	}
}

/* A key as TOML spells it: quoted if it has other characters than letters, digits, '_' and '-'. */
static void text_key(struct out *o, const struct meta_option *option)
{
	static const char bare[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
	struct buf quoted = buf_init(MAX_INFO);

	if (option->len && strspn(option->name, bare) == option->len) {
		put(o, option->name);
		return;
	}
	OUT(o, buf_add_json(&quoted, option->name, option->len));
	if (quoted.data)
		put_text(o, quoted.data, "");
	buf_free(&quoted);
}

/* A value on one line, as TOML spells it. */
static void text_value(struct out *o, const struct meta_option *option)
{
	bool table = option->type == TOML_TABLE;

	if (option->type < TOML_TABLE) {
		put_text(o, option->value, "");
		return;
	}
	put(o, table ? "{" : "[");
	for (const struct meta_option *c = option->first; c; c = c->next) {
		put(o, c != option->first ? ", " : table ? " " : "");
		if (table) {
			text_key(o, c);
			put(o, " = ");
		}
		text_value(o, c);
	}
	put(o, table ? option->first ? " }" : "}" : "]");
}

static void text_options(struct out *o, const struct meta_option *opts)
{
	for (const struct meta_option *c = opts->first; c; c = c->next) {
		OUT(o, buf_addf(&o->text, "%-13s", c == opts->first ? "options" : ""));
		text_key(o, c);
		put(o, " = ");
		text_value(o, c);
		put(o, "\n");
	}
}

static void text_info(struct out *o, const struct carton *c, const char *hash)
{
	const struct meta *m = c->meta;
	char size[32];

	text_member(o, "model", m->model_name ? m->model_name : "(no name)");
	text_member(o, "", m->short_description);
	text_member(o, "hash", hash);
	OUT(o, buf_addf(&o->text, "%-13s%" PRIu64 ", %s\n", "files", c->tree->files,
			size_format(c->tree->bytes, size, sizeof(size))));
	text_member(o, "license", m->license);
	text_member(o, "repository", m->repository);
	text_member(o, "homepage", m->homepage);
	for (size_t i = 0; i < m->n_platforms; i++)
		text_member(o, i == 0 ? "platforms" : "", m->platforms[i]);
	text_member(o, "runner", m->runner_name);
	text_member(o, "framework", m->framework_version);
	if (m->has_compat_version)
		OUT(o, buf_addf(&o->text, "%-13s%" PRId64 "\n", "compat", m->compat_version));
	text_options(o, &m->options);
	text_tensors(o, "inputs", m->inputs, m->n_inputs);
	text_tensors(o, "outputs", m->outputs, m->n_outputs);
	text_cases(o, "self tests", m->self_tests, m->n_self_tests);
	text_cases(o, "examples", m->examples, m->n_examples);
	if (m->model_description && *m->model_description) {
		put(o, "\n");
		put_text(o, m->model_description, "");
		put(o, "\n");
	}
}

int carton_info(struct carton *c, bool json, char **ret_text)
{
	struct out o = { .text = buf_init(MAX_INFO) };
	char hash[65];

	if (!c->meta)
		return -EBADMSG;
	carton_model_hash(c, hash);
	if (json)
		json_info(&o, c, hash);
	else
		text_info(&o, c, hash);
	if (o.error < 0) {
		buf_free(&o.text);
		return o.error;
	}
	*ret_text = o.text.data;
	return 0;
}
