/* SPDX-License-Identifier: Apache-2.0 */
#include "views/json.h"

#include <inttypes.h>

#include "base/budget.h"

int view_json_begin(struct view_json *j, struct buf *b, struct budget *budget)
{
	*j = (struct view_json){ .b = b, .budget = budget };
	return buf_adds(b, "{");
}

/* Ends the current part, if any, and begins `part`. */
static int begin_part(struct view_json *j, enum view_json_part part)
{
	static const char *const open[] = {
		[VIEW_JSON_TENSORS] = "\n \"tensors\": [",
		[VIEW_JSON_METADATA] = ",\n \"metadata\": {",
		[VIEW_JSON_PROBLEMS] = ",\n \"problems\": [",
	};
	int r = 0;

	if (j->part != VIEW_JSON_NONE) {
		r = j->any ? buf_adds(j->b, "\n ") : 0;
		if (!r)
			r = buf_addc(j->b, j->part == VIEW_JSON_METADATA ? '}' : ']');
	}
	j->part = part;
	j->any = false;
	return r ? r : buf_adds(j->b, open[part]);
}

/* Begins `part` and those before it that are missing. */
static int enter(struct view_json *j, enum view_json_part part)
{
	int r = 0;

	if (j->part > part)
		return -EINVAL;
	if (j->part == VIEW_JSON_NONE)
		r = begin_part(j, VIEW_JSON_TENSORS);
	if (!r && j->part < part)
		r = begin_part(j, part);
	return r;
}

/* Counts the text, as far as it has grown. */
static int count(struct view_json *j)
{
	uint64_t more = j->b->cap - j->taken;
	int r = budget_take(j->budget, more);

	if (r == 0)
		j->taken += more;
	return r;
}

void view_json_free(struct view_json *j)
{
	budget_give(j->budget, j->taken);
	j->taken = 0;
}

/* Starts the line of one more element of `part`. */
static int element(struct view_json *j, enum view_json_part part)
{
	int r = count(j);

	if (!r)
		r = enter(j, part);

	if (!r)
		r = buf_adds(j->b, j->any ? ",\n  " : "\n  ");
	j->any = true;
	return r;
}

static int add_texts(struct buf *b, const char *key, const struct view_json_text *texts, size_t n)
{
	int r = buf_addf(b, ", \"%s\": [", key);

	for (size_t i = 0; i < n && !r; i++) {
		r = i ? buf_adds(b, ", ") : 0;
		if (!r)
			r = buf_add_json(b, texts[i].s, texts[i].n);
	}
	return r ? r : buf_addc(b, ']');
}

static int add_shape(struct buf *b, const struct tensor_info *info)
{
	int r = buf_adds(b, ", \"shape\": [");

	for (unsigned d = 0; d < info->rank && !r; d++)
		r = buf_addf(b, "%s%" PRIu64, d ? ", " : "", info->shape[d]);
	return r ? r : buf_addc(b, ']');
}

int view_json_tensor(struct view_json *j, const struct view_json_tensor *t)
{
	const struct tensor_info *info = t->info;
	int r = element(j, VIEW_JSON_TENSORS);

	if (!r)
		r = buf_adds(j->b, "{\"name\": ");
	if (!r)
		r = buf_add_json(j->b, info->name, info->name_len);
	if (!r)
		r = buf_addf(j->b, ", \"dtype\": \"%s\"", t->dtype);
	if (!r)
		r = info->dtype == dtype_nested ? add_texts(j->b, "inner", t->inner, t->n_inner) :
						  add_shape(j->b, info);
	if (!r)
		r = t->bytes == VIEW_JSON_UNKNOWN ?
			    buf_adds(j->b, ", \"bytes\": null") :
			    buf_addf(j->b, ", \"bytes\": %" PRIu64, t->bytes);
	if (!r)
		r = add_texts(j->b, "files", t->files, t->n_files);
	return r ? r : buf_addc(j->b, '}');
}

int view_json_pair(struct view_json *j, struct view_json_text key, struct view_json_text value)
{
	int r = element(j, VIEW_JSON_METADATA);

	if (!r)
		r = buf_add_json(j->b, key.s, key.n);
	if (!r)
		r = buf_adds(j->b, ": ");
	return r ? r : buf_add_json(j->b, value.s, value.n);
}

int view_json_problem(struct view_json *j, struct view_json_text name, size_t line,
		      const char *problem)
{
	int r = element(j, VIEW_JSON_PROBLEMS);

	if (!r)
		r = buf_addc(j->b, '{');
	if (!r && name.s) {
		r = buf_adds(j->b, "\"name\": ");
		if (!r)
			r = buf_add_json(j->b, name.s, name.n);
		if (!r)
			r = buf_adds(j->b, ", ");
	}
	if (!r && line)
		r = buf_addf(j->b, "\"line\": %zu, ", line);
	if (!r)
		r = buf_adds(j->b, "\"problem\": ");
	if (!r)
		r = buf_add_json(j->b, problem, strlen(problem));
	return r ? r : buf_addc(j->b, '}');
}

int view_json_end(struct view_json *j)
{
	int r = enter(j, VIEW_JSON_PROBLEMS);

	if (!r)
		r = buf_adds(j->b, j->any ? "\n ]\n}\n" : "]\n}\n");
	return r;
}
