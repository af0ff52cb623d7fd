/* SPDX-License-Identifier: Apache-2.0 */
#include "carton/opened.h"

#include <stdio.h>

#include "views/index.h"
#include "base/util.h"

struct check {
	struct carton *c;
	struct index index;
	size_t problems;
};

/* Logs and counts a problem: its subject, a format, arguments. */
#define report(k, ...) ((k)->problems++, carton_log(CARTON_LOG_WARNING, __VA_ARGS__))

/* ---- tensor_data ---- */

/* Looks for problems of string tensors. 0 or -ENOMEM: other failures were logged by the read. */
static int check_strings(struct index *x)
{
	const struct strings_size *size;

	for (size_t i = 0; i < x->n_strings; i++)
		x->strings[i].error = index_measure(&x->strings[i], NULL);
	for (size_t i = 0; i < x->tensors->n; i++) {
		struct tensor *t = &x->tensors->list[i];
		const struct index_strings *s = index_strings_of(x, t);

		if (s && (s->error ? s->error : index_size(x, t, &size)) == -ENOMEM)
			return -ENOMEM;
	}
	return 0;
}

static int check_tensors(struct check *k)
{
	static const char index_path[] = "tensor_data/index.toml";
	const struct tree *t = k->c->tree;
	struct index_toml *tensors;
	int r = index_load(t, NULL, &k->index);

	if (r == -ENOMEM)
		return r;
	/* where it cannot be had, the check of its hash says so */
	if (r == -EBADMSG || r == -EFBIG)
		report(k, index_path, "cannot be read: %s", strerror(-r));
	if (*k->index.problem.text && k->index.problem.line)
		report(k, index_path, "line %zu: %s", k->index.problem.line, k->index.problem.text);
	else if (*k->index.problem.text)
		report(k, index_path, "%s", k->index.problem.text);
	tensors = k->index.tensors;
	if (!tensors)
		return 0;
	r = check_strings(&k->index);
	if (r == 0)
		r = index_toml_propagate(tensors);
	if (r < 0)
		return r;
	if (tensors->problem)
		report(k, index_path, "line %zu: %s", tensors->problem_line, tensors->problem);
	for (size_t i = 0; i < tensors->n; i++) {
		const struct tensor *tensor = &tensors->list[i];

		if (tensor->problem)
			report(k, index_path, "line %u: tensor \"%s\": %s", tensor->line,
			       tensor->info.name ? tensor->info.name : "", tensor->problem);
	}
	return 0;
}

/* ---- carton.toml ---- */

static void check_io(struct check *k, const char *what, const struct meta_tensor *list, size_t n,
		     const struct meta_names *names)
{
	for (size_t i = 0; i < n; i++) {
		const struct meta_tensor *t = &list[i];
		const struct dtype *dtype = t->dtype ? dtype_by_name(t->dtype, strlen(t->dtype)) :
						       NULL;

		if (!t->name) {
			report(k, "carton.toml", "%s %zu has no name", what, i);
			continue;
		}
		if (!t->dtype)
			report(k, "carton.toml", "%s \"%s\" has no dtype", what, t->name);
		else if (!dtype || !dtype->name || dtype == dtype_nested)
			report(k, "carton.toml", "%s \"%s\" has unknown dtype \"%s\"", what,
			       t->name, t->dtype);
		if (!t->shape)
			report(k, "carton.toml", "%s \"%s\" has no shape", what, t->name);
		if (meta_find(names, t->name) != t)
			report(k, "carton.toml", "two %ss are named \"%s\"", what, t->name);
	}
}

/* The fault of a reference, or NULL. */
static const char *reference_fault(const struct check *k, const char *reference, bool tensors_only)
{
	static const char tensor_prefix[] = "@tensor_data/", misc_prefix[] = "@misc/";
	const struct node *n;

	if (strncmp(reference, tensor_prefix, strlen(tensor_prefix)) == 0) {
		const char *name = reference + strlen(tensor_prefix);

		/* an unreadable index was reported already */
		if (k->index.tensors && !index_toml_find(k->index.tensors, name, strlen(name)))
			return "which is not a tensor of tensor_data/index.toml";
		if (!k->index.tensors && !tree_find(k->c->tree, "tensor_data"))
			return "but there is no tensor_data";
		return NULL;
	}
	if (tensors_only || strncmp(reference, misc_prefix, strlen(misc_prefix)) != 0)
		return tensors_only ? "which is not @tensor_data/NAME" :
				      "which is neither @tensor_data/NAME nor @misc/FILE";
	n = tree_find(k->c->tree, reference + 1);
	return n && n->kind != NODE_DIR ? NULL : "which is not a file in misc";
}

static void check_values(struct check *k, const char *where, const struct meta_case *c,
			 bool outputs, bool tensors_only)
{
	const struct meta *m = k->c->meta;
	const struct meta_names *names = outputs ? &m->output_names : &m->input_names;
	const struct meta_value *values = outputs ? c->outputs : c->inputs;
	size_t n = outputs ? c->n_outputs : c->n_inputs;

	for (size_t i = 0; i < n; i++) {
		const char *why = reference_fault(k, values[i].reference, tensors_only);

		if (why)
			report(k, "carton.toml", "%s: \"%s\" is \"%s\", %s", where, values[i].name,
			       values[i].reference, why);
		if (names->n && !meta_find(names, values[i].name))
			report(k, "carton.toml", "%s: \"%s\" is not declared", where,
			       values[i].name);
	}
}

static void check_cases(struct check *k, const char *what, const struct meta_case *cases, size_t n,
			bool tensors_only)
{
	const struct meta *m = k->c->meta;
	char where[64];

	if (n && m->n_inputs == 0 && m->n_outputs == 0)
		report(k, "carton.toml", "has a [[%s]], but declares no [[input]] or [[output]]",
		       what);
	for (size_t i = 0; i < n; i++) {
		snprintf(where, sizeof(where), "line %zu: [[%s]] %zu", cases[i].line, what, i);
		if (!cases[i].has_inputs)
			report(k, "carton.toml", "%s has no inputs", where);
		if (!tensors_only && !cases[i].has_outputs)
			report(k, "carton.toml", "%s has no sample_out", where);
		check_values(k, where, &cases[i], false, tensors_only);
		check_values(k, where, &cases[i], true, tensors_only);
	}
}

static void check_meta(struct check *k)
{
	const struct meta *m = k->c->meta;
	const struct node *model = tree_find(k->c->tree, "model");

	if (!model || model->kind != NODE_DIR)
		report(k, "model", "is missing: a carton must have a directory model");
	if (!m)
		return;
	for (size_t i = 0; i < m->n_problems; i++)
		report(k, "carton.toml", "line %zu: %s", m->problems[i].line, m->problems[i].text);
	if (!m->has_runner)
		report(k, "carton.toml", "has no [runner]");
	if (m->has_runner && !m->runner_name)
		report(k, "carton.toml", "[runner] has no runner_name");
	if (m->has_runner && !m->framework_version)
		report(k, "carton.toml", "[runner] has no required_framework_version");
	if (m->has_runner && !m->has_compat_version)
		report(k, "carton.toml", "[runner] has no runner_compat_version");
	check_io(k, "input", m->inputs, m->n_inputs, &m->input_names);
	check_io(k, "output", m->outputs, m->n_outputs, &m->output_names);
	check_cases(k, "self_test", m->self_tests, m->n_self_tests, true);
	check_cases(k, "example", m->examples, m->n_examples, false);
}

ssize_t carton_check_contents(struct carton *c)
{
	struct check k = { .c = c };
	/* what is not signed says nothing */
	bool none = c->bare || manifest_leaves_out(c->manifest, "carton.toml");
	int r = none ? 0 : check_tensors(&k);

	if (r == 0 && !none)
		check_meta(&k);
	index_finish(&k.index);
	return r < 0 ? r : (ssize_t)k.problems;
}
