/* SPDX-License-Identifier: Apache-2.0 */
/*
 * views/triton/: for each self test, and each example whose values are all tensors, the body of an
 * inference request of Triton's v2 protocol and of the expected response.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tensor/triton.h"
#include "views/internal.h"

/* The inputs or the outputs of a case, in the order of a body. */
struct side {
	struct triton_tensor *tensors; /* user: a struct extent, its data */
	size_t n;
	char *problem; /* why there is no body, or NULL */
};

static void side_finish(struct side *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->tensors[i].user);
	free(s->tensors);
	free(s->problem);
}

/*
 * The tensor of a reference "@tensor_data/NAME"; NULL: another kind of reference, or no such
 * tensor.
 */
static struct tensor *find_tensor(const struct views *v, const char *reference)
{
	static const char prefix[] = "@tensor_data/";

	if (!v->index.tensors || strncmp(reference, prefix, strlen(prefix)) != 0)
		return NULL;
	reference += strlen(prefix);
	return index_toml_find(v->index.tensors, reference, strlen(reference));
}

static bool all_tensors(const struct meta_value *values, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strncmp(values[i].reference, "@tensor_data/", 13) != 0)
			return false;
	return true;
}

/* Adds one value. A bad tensor is a problem of the side. */
static int take_value(struct views *v, struct side *s, const struct meta_value *value,
		      size_t position)
{
	struct triton_tensor *tt = &s->tensors[s->n];
	struct tensor *t = find_tensor(v, value->reference);
	struct extent *data = calloc(1, sizeof(*data));
	int r = 0;

	if (!data)
		return -ENOMEM;
	tt->user = data;
	s->n++;
	if (t && t->info.dtype != dtype_nested)
		r = view_data(v, t, data);
	if (r < 0 && r != -EBADMSG)
		return r;
	if (!t || t->problem || r == -EBADMSG) {
		if (!s->problem &&
		    asprintf(&s->problem, "\"%s\" is %s, which %s%s", value->name, value->reference,
			     t ? "cannot be read: " : "is not a tensor of tensor_data/index.toml",
			     t && t->problem ? t->problem : "") < 0)
			return -ENOMEM;
		return 0;
	}
	tt->info = t->info;
	tt->info.name = value->name;
	tt->info.name_len = strlen(value->name);
	tt->info.bytes = data->len;
	tt->position = position;
	return 0;
}

static int side_load(struct views *v, const struct meta_case *c, bool outputs, struct side *ret)
{
	const struct meta *fill = v->options.meta;
	const struct meta_names *names = outputs ? &fill->output_names : &fill->input_names;
	const struct meta_tensor *declared = outputs ? fill->outputs : fill->inputs;
	const struct meta_value *values = outputs ? c->outputs : c->inputs;
	size_t n = outputs ? c->n_outputs : c->n_inputs;
	struct side s = { .tensors = calloc(n + 1, sizeof(*s.tensors)) };
	const char *obstacle;
	int r = s.tensors ? 0 : -ENOMEM;

	for (size_t i = 0; i < n && r == 0; i++) {
		const struct meta_tensor *at = meta_find(names, values[i].name);

		r = take_value(v, &s, &values[i], at ? (size_t)(at - declared) : SIZE_MAX);
	}
	if (r == 0 && !s.problem) {
		obstacle = triton_obstacle(s.tensors, s.n);
		if (obstacle && !(s.problem = strdup(obstacle)))
			r = -ENOMEM;
		triton_sort(s.tensors, s.n);
	}
	if (r < 0)
		side_finish(&s);
	else
		*ret = s;
	return r;
}

/* Sets the reason why a side has no body. */
static int side_refuse(struct side *s, const char *why)
{
	free(s->problem);
	s->problem = strdup(why);
	return s->problem ? 0 : -ENOMEM;
}

/* ---- files ---- */

/* The JSON at the start of a body. If it is too large, the side gets a problem. */
static int make_json(struct views *v, struct side *s, bool request, struct buf *json)
{
	const char *model = v->options.meta->model_name;
	uint64_t body;
	int r = request ? triton_request(s->tensors, s->n, json, &body) :
			  triton_response(model, s->tensors, s->n, json, &body);

	if (r != -EFBIG && r != -EOVERFLOW)
		return r;
	return side_refuse(s, r == -EFBIG ? "its JSON would be longer than 64 MiB" :
					    "its body would be 2 GiB or more");
}

/* Adds a file of the JSON and the tensors' data, unless the side has a problem. */
static int add_body(struct views *v, struct node *dir, struct side *s, bool request,
		    uint64_t *ret_json)
{
	const char *name = request ? "request" : "expected_output";
	struct buf json = buf_init(MAX_TRITON_JSON);
	struct extent *extents = calloc(s->n + 1, sizeof(*extents));
	int r;

	if (!extents)
		return -ENOMEM;
	r = make_json(v, s, request, &json);
	for (size_t i = 0; i < s->n && r == 0; i++)
		extents[i + 1] = *(struct extent *)s->tensors[i].user;
	*ret_json = json.len;
	if (r == 0 && !s->problem)
		r = view_own_text(v, dir, &json, &extents[0]);
	if (r == 0 && !s->problem)
		r = view_add_extents(v, dir, name, extents, s->n + 1);
	buf_finish(&json);
	free(extents);
	return r;
}

static int add_readme(struct views *v, struct node *dir, const char *what, const char *why)
{
	struct buf text = buf_init(64 * KIB);
	int r = buf_addf(&text, "There is no %s: %s.\n", what, why);

	if (r == 0)
		return view_add_text(v, dir, "README", &text);
	buf_finish(&text);
	return r;
}

/* A body without JSON, if the model has one input whose shape can be deduced from the size. */
static int add_raw(struct views *v, struct node *dir, const struct side *s,
		   const struct meta_case *c)
{
	const struct meta *fill = v->options.meta;
	const struct meta_tensor *input = &fill->inputs[0];
	struct triton_declared declared = { .n_inputs = fill->n_inputs };

	if (fill->n_inputs != 1 || s->n != 1)
		return 0;
	declared.name = input->name;
	declared.dtype = input->dtype ? dtype_by_name(input->dtype, strlen(input->dtype)) : NULL;
	declared.any_shape = !input->has_dims;
	declared.rank = (unsigned)input->rank;
	declared.dims = input->dims;
	if (!triton_raw_applies(&declared, &s->tensors[0].info))
		return 0;
	return view_add_file(v, dir, "raw", s->tensors[0].user,
			     &find_tensor(v, c->inputs[0].reference)->info);
}

static int add_request(struct views *v, struct node *dir, struct side *inputs,
		       const struct meta_case *c)
{
	struct buf headers = buf_init(KIB);
	uint64_t json;
	int r = inputs->problem ? 0 : add_body(v, dir, inputs, true, &json);

	if (r == 0 && inputs->problem)
		return add_readme(v, dir, "request", inputs->problem);
	if (r == 0)
		r = triton_headers(json, &headers);
	if (r == 0)
		r = view_add_text(v, dir, "headers", &headers);
	buf_finish(&headers);
	return r < 0 ? r : add_raw(v, dir, inputs, c);
}

static int add_expected(struct views *v, struct node *dir, struct side *outputs, bool have_readme)
{
	uint64_t json;
	int r = outputs->problem ? 0 : add_body(v, dir, outputs, false, &json);

	/* one README per case */
	return r == 0 && outputs->problem && !have_readme ?
		       add_readme(v, dir, "expected_output", outputs->problem) :
		       r;
}

static int add_case(struct views *v, struct node *parent, const char *kind, size_t i,
		    const struct meta_case *c)
{
	static const char bad[] = "carton.toml has values that are not references to tensors";
	struct side inputs = { 0 }, outputs = { 0 };
	struct node *dir;
	char name[64];
	int r;

	snprintf(name, sizeof(name), "%s-%zu", kind, i);
	r = side_load(v, c, false, &inputs);
	if (r == 0)
		r = side_load(v, c, true, &outputs);
	if (r == 0 && !c->has_inputs)
		r = side_refuse(&inputs, "carton.toml lists no inputs");
	if (r == 0 && c->bad_inputs)
		r = side_refuse(&inputs, bad);
	if (r == 0 && c->bad_outputs)
		r = side_refuse(&outputs, bad);
	if (r == 0)
		r = tree_add(v->options.tree, parent, name, NODE_DIR, &dir);
	if (r == 0)
		r = add_request(v, dir, &inputs, c);
	if (r == 0 && (c->has_outputs || c->bad_outputs))
		r = add_expected(v, dir, &outputs, inputs.problem != NULL);
	side_finish(&inputs);
	side_finish(&outputs);
	return r;
}

static bool is_shown(const struct meta_case *c)
{
	return c->has_inputs && !c->bad_inputs && !c->bad_outputs &&
	       all_tensors(c->inputs, c->n_inputs) && all_tensors(c->outputs, c->n_outputs);
}

/* Has the strings among them measured. */
static int measure(struct views *v, struct fill *fill, const struct meta_value *values, size_t n)
{
	int r = view_cancelled(fill);

	for (size_t i = 0; i < n && r == 0; i++) {
		const struct tensor *t = find_tensor(v, values[i].reference);

		r = t ? view_measure(v, fill, t) : 0;
	}
	return r;
}

/* A directory for each self test, or each example that can be shown. */
static int add_cases(struct views *v, struct node *dir, struct fill *fill, bool examples)
{
	const struct meta *meta = v->options.meta;
	const struct meta_case *c = examples ? meta->examples : meta->self_tests;
	size_t n = examples ? meta->n_examples : meta->n_self_tests;
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++, c++) {
		if (examples && !is_shown(c))
			continue;
		r = measure(v, fill, c->inputs, c->n_inputs);
		if (r == 0)
			r = measure(v, fill, c->outputs, c->n_outputs);
		pthread_mutex_lock(&v->lock);
		if (r == 0)
			r = add_case(v, dir, examples ? "example" : "self_test", i, c);
		pthread_mutex_unlock(&v->lock);
	}
	return r;
}

int view_make_triton(struct views *v, struct node *dir, struct fill *fill, void *ctx)
{
	int r = view_load(v, fill);

	(void)ctx;
	if (r == 0)
		r = add_cases(v, dir, fill, false);
	return r < 0 ? r : add_cases(v, dir, fill, true);
}
