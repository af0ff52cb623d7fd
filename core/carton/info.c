/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's metadata from carton.toml: carton_info() as JSON, carton_facts() one after the other.
 */
#include <inttypes.h>
#include <stdio.h>

#include "carton/opened.h"
#include "archive/what.h"
#include "base/failure.h"
#include "base/util.h"
#include "cache/cache.h"

#define MAX_INFO (256 * MIB)

static void put_json(struct buf *o, const char *s)
{
	if (s)
		buf_add_json(o, s, strlen(s));
	else
		buf_adds(o, "null");
}

/* ---- JSON ---- */

static void json_member(struct buf *o, const char *key, const char *value)
{
	put_json(o, key);
	buf_adds(o, ":");
	put_json(o, value);
	buf_adds(o, ",");
}

/* Ends a list or object; overwrites the comma after its last member. */
static void json_end(struct buf *o, const char *end)
{
	if (!o->error && o->data[o->len - 1] == ',')
		o->len--;
	buf_adds(o, end);
}

static void json_tensors(struct buf *o, const char *key, const struct meta_tensor *list, size_t n)
{
	put_json(o, key);
	buf_adds(o, ":[");
	for (size_t i = 0; i < n; i++) {
		buf_adds(o, "{");
		json_member(o, "name", list[i].name);
		json_member(o, "dtype", list[i].dtype);
		buf_adds(o, "\"shape\":");
		buf_adds(o, list[i].shape ? list[i].shape : "null");
		buf_adds(o, ",");
		json_member(o, "description", list[i].description);
		json_member(o, "internal_name", list[i].internal_name);
		json_end(o, "},");
	}
	json_end(o, "],");
}

static void json_values(struct buf *o, const char *key, const struct meta_value *list, size_t n)
{
	put_json(o, key);
	buf_adds(o, ":{");
	for (size_t i = 0; i < n; i++)
		json_member(o, list[i].name, list[i].reference);
	json_end(o, "},");
}

static void json_cases(struct buf *o, const char *key, const char *outputs,
		       const struct meta_case *list, size_t n)
{
	put_json(o, key);
	buf_adds(o, ":[");
	for (size_t i = 0; i < n; i++) {
		buf_adds(o, "{");
		json_member(o, "name", list[i].name);
		json_member(o, "description", list[i].description);
		json_values(o, "inputs", list[i].inputs, list[i].n_inputs);
		json_values(o, outputs, list[i].outputs, list[i].n_outputs);
		json_end(o, "},");
	}
	json_end(o, "],");
}

/*
 * Writes an option with all below it; JSON has no dates, nan and inf. TOML_MAX_KEY_PARTS and
 * TOML_MAX_DEPTH bound the depth.
 */
static void json_option(struct buf *o, const struct meta_option *option)
{
	bool table = option->type == TOML_TABLE;

	if (option->type < TOML_TABLE) {
		if (option->type > TOML_BOOL)
			put_json(o, option->value);
		else if (option->type == TOML_FLOAT && strpbrk(option->value, "ni"))
			buf_adds(o, "null");
		else
			buf_adds(o, option->value);
		return;
	}
	buf_adds(o, table ? "{" : "[");
	for (const struct meta_option *c = option->first; c; c = c->next) {
		if (table) {
			buf_add_json(o, c->name, c->len);
			buf_adds(o, ":");
		}
		json_option(o, c);
		buf_adds(o, ",");
	}
	json_end(o, table ? "}" : "]");
}

static void json_info(struct buf *o, struct carton *c, const char *hash)
{
	const struct meta *m = c->meta;
	struct carton_counters k;

	buf_adds(o, "{");
	json_member(o, "model_hash", hash);
	if (c->commit)
		json_member(o, "commit", c->commit);
	json_member(o, "signed_by", c->signature.checked ? c->signature.by : NULL);
	if (c->signature.ends)
		buf_addf(o, "\"signed_until\":%" PRId64 ",", c->signature.ends);
	buf_addf(o, "\"files\":%" PRIu64 ",\"bytes\":%" PRIu64 ",", c->tree->files, c->tree->bytes);
	carton_counters(c, &k);
	buf_addf(o, "\"linked_files\":%" PRIu64 ",\"linked_bytes\":%" PRIu64, k.linked_files,
		 k.linked_bytes);
	buf_addf(o, ",\"unsized_files\":%" PRIu64 ",", k.unsized_files);
	buf_addf(o, "\"spec_version\":%" PRId64 ",", m->spec_version);
	json_member(o, "model_name", m->model_name);
	json_member(o, "short_description", m->short_description);
	json_member(o, "model_description", m->model_description);
	json_member(o, "license", m->license);
	json_member(o, "repository", m->repository);
	json_member(o, "homepage", m->homepage);
	buf_adds(o, "\"required_platforms\":[");
	for (size_t i = 0; i < m->n_platforms; i++) {
		put_json(o, m->platforms[i]);
		buf_adds(o, ",");
	}
	json_end(o, "],");
	json_tensors(o, "inputs", m->inputs, m->n_inputs);
	json_tensors(o, "outputs", m->outputs, m->n_outputs);
	json_cases(o, "self_tests", "expected_out", m->self_tests, m->n_self_tests);
	json_cases(o, "examples", "sample_out", m->examples, m->n_examples);
	buf_adds(o, "\"runner\":{");
	json_member(o, "runner_name", m->runner_name);
	json_member(o, "required_framework_version", m->framework_version);
	if (m->has_compat_version)
		buf_addf(o, "\"runner_compat_version\":%" PRId64 ",", m->compat_version);
	buf_adds(o, "\"opts\":");
	json_option(o, &m->options);
	json_end(o, "}");
	json_end(o, "}\n");
}

/* ---- one after the other ---- */

/* A key as TOML spells it: quoted if it has other characters than letters, digits, '_' and '-'. */
static void toml_key(struct buf *o, const struct meta_option *option)
{
	static const char bare[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

	if (option->len && strspn(option->name, bare) == option->len)
		buf_adds(o, option->name);
	else
		buf_add_json(o, option->name, option->len);
}

/* A value on one line, as TOML spells it. */
static void toml_value(struct buf *o, const struct meta_option *option)
{
	bool table = option->type == TOML_TABLE;

	if (option->type < TOML_TABLE) {
		buf_adds(o, option->value);
		return;
	}
	buf_adds(o, table ? "{" : "[");
	for (const struct meta_option *c = option->first; c; c = c->next) {
		buf_adds(o, c != option->first ? ", " : table ? " " : "");
		if (table) {
			toml_key(o, c);
			buf_adds(o, " = ");
		}
		toml_value(o, c);
	}
	buf_adds(o, table ? option->first ? " }" : "}" : "]");
}

/* A shape without the quotes of JSON, and with a space after each comma: [batch, 3, 512, 512] */
static void plain_shape(struct buf *o, const char *json)
{
	bool quoted = false;

	for (const char *p = json; *p; p++) {
		if (*p == '"') {
			quoted = !quoted;
			continue;
		}
		/* an escaped character of a symbol stays escaped */
		if (*p == '\\' && p[1])
			buf_addc(o, *p++);
		buf_addc(o, *p);
		if (*p == ',' && !quoted)
			buf_addc(o, ' ');
	}
}

struct facts {
	struct buf text; /* of one fact */
	carton_fact_fn *fn;
	void *ctx;
};

static void tell(struct facts *f, const struct carton_fact *fact)
{
	if (!f->text.error)
		f->fn(f->ctx, fact);
	f->text.len = 0;
}

static void tell_text(struct facts *f, const char *name, const char *text)
{
	if (text && *text)
		tell(f,
		     &(struct carton_fact){ .kind = CARTON_FACT_TEXT, .name = name, .text = text });
}

static void tell_options(struct facts *f, const struct meta_option *opts)
{
	for (const struct meta_option *c = opts->first; c; c = c->next) {
		toml_key(&f->text, c);
		buf_adds(&f->text, " = ");
		toml_value(&f->text, c);
		tell(f, &(struct carton_fact){ .kind = CARTON_FACT_OPTION, .text = f->text.data });
	}
}

static void tell_tensors(struct facts *f, enum carton_fact_kind kind,
			 const struct meta_tensor *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (list[i].shape)
			plain_shape(&f->text, list[i].shape);
		tell(f, &(struct carton_fact){
				.kind = kind,
				.name = list[i].name,
				.text = list[i].description,
				.dtype = list[i].dtype,
				.shape = list[i].shape ? f->text.data : NULL,
				.internal_name = list[i].internal_name,
			});
	}
}

static void tell_cases(struct facts *f, enum carton_fact_kind kind, const struct meta_case *list,
		       size_t n)
{
	for (size_t i = 0; i < n; i++)
		tell(f, &(struct carton_fact){
				.kind = kind, .name = list[i].name, .text = list[i].description });
}

int carton_say_pointers(struct carton *c)
{
	return what_say_pointers(c->container);
}

int carton_facts(struct carton *c, carton_fact_fn *fn, void *ctx)
{
	struct facts f = { .text = buf_init(MAX_INFO), .fn = fn, .ctx = ctx };
	const struct meta *m = c->meta;
	char number[32];
	int r;

	if (!m)
		return -EBADMSG;
	tell_text(&f, "model_name", m->model_name);
	tell_text(&f, "short_description", m->short_description);
	tell_text(&f, "license", m->license);
	tell_text(&f, "repository", m->repository);
	tell_text(&f, "homepage", m->homepage);
	for (size_t i = 0; i < m->n_platforms; i++)
		tell_text(&f, "platform", m->platforms[i]);
	tell_text(&f, "runner_name", m->runner_name);
	tell_text(&f, "required_framework_version", m->framework_version);
	snprintf(number, sizeof(number), "%" PRId64, m->compat_version);
	if (m->has_compat_version)
		tell_text(&f, "runner_compat_version", number);
	tell_options(&f, &m->options);
	tell_tensors(&f, CARTON_FACT_INPUT, m->inputs, m->n_inputs);
	tell_tensors(&f, CARTON_FACT_OUTPUT, m->outputs, m->n_outputs);
	tell_cases(&f, CARTON_FACT_SELF_TEST, m->self_tests, m->n_self_tests);
	tell_cases(&f, CARTON_FACT_EXAMPLE, m->examples, m->n_examples);
	tell_text(&f, "model_description", m->model_description);
	r = f.text.error;
	buf_finish(&f.text);
	return r;
}

int carton_info(struct carton *c, char **ret_json)
{
	struct buf o = buf_init(MAX_INFO);
	char hash[65];
	int r;

	failure_forget();
	if (!c->meta)
		return -EBADMSG;
	carton_model_hash(c, hash);
	json_info(&o, c, hash);
	r = o.error;
	if (r < 0)
		buf_finish(&o);
	else
		*ret_json = o.data;
	return r;
}

const struct carton_signature *carton_signed(const struct carton *c)
{
	return &c->signature;
}

const char *carton_commit(const struct carton *c)
{
	return c->commit;
}

uint64_t carton_left_out(const struct carton *c, carton_left_out_fn *fn, void *ctx)
{
	const struct links *l = c->left_out;

	for (size_t i = 0; l && fn && i < MAX_REPORTED; i++)
		if (l->left_out[i].name && l->left_out[i].why)
			fn(ctx, l->left_out[i].name, l->left_out[i].why);
	return l ? l->n_left_out : 0;
}

/* ---- where the bytes are ---- */

void carton_places(struct carton *c, struct carton_places *ret)
{
	struct carton_places p = { 0 };
	struct node *root = c->tree->root;
	uint8_t sha256[SHA256_SIZE];

	for (struct node *n = root; n; n = tree_next(root, n)) {
		uint64_t size = n->kind == NODE_FILE ? node_size(n) : 0;
		struct object *o;

		if (n->kind != NODE_FILE || size == OBJECT_NO_SIZE)
			continue;
		o = n->file.entry && !c->container->remote ? NULL : node_object(n);
		if (!o || (object_entry(o) && !c->container->remote))
			p.local += size;
		else if (object_cache_name(o, sha256) && cache_has(c->cache, sha256))
			p.cached += size;
		else
			p.remote += size;
	}
	*ret = p;
}
