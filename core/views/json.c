/* SPDX-License-Identifier: Apache-2.0 */
#include "views/json.h"

#include <inttypes.h>

#include "base/limits.h"

/* What is collected before it is written. */
#define PIECE (64 * KIB)

void view_json_begin(struct view_json *j, view_json_write_fn *write, void *ctx)
{
	*j = (struct view_json){ .write = write, .ctx = ctx, .text = buf_init(16 * PIECE) };
}

void view_json_free(struct view_json *j)
{
	buf_free(&j->text);
}

static int flush(struct view_json *j)
{
	int r = j->write && j->text.len ? j->write(j->ctx, j->text.data, j->text.len) : 0;

	j->size += j->text.len;
	j->text.len = 0;
	return r;
}

/* Ends the current part, if any, and begins `part`. */
static int begin_part(struct view_json *j, enum view_json_part part)
{
	static const char *const open[] = {
		[VIEW_JSON_TENSORS] = "{\n \"tensors\": [",
		[VIEW_JSON_METADATA] = ",\n \"metadata\": {",
		[VIEW_JSON_PROBLEMS] = ",\n \"problems\": [",
	};
	int r = 0;

	if (j->part != VIEW_JSON_NONE) {
		r = j->any ? buf_adds(&j->text, "\n ") : 0;
		if (!r)
			r = buf_addc(&j->text, j->part == VIEW_JSON_METADATA ? '}' : ']');
	}
	j->part = part;
	j->any = false;
	return r ? r : buf_adds(&j->text, open[part]);
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

/* Starts the line of one more element of `part`. */
static int element(struct view_json *j, enum view_json_part part)
{
	int r = j->text.len >= PIECE ? flush(j) : 0;

	if (!r)
		r = enter(j, part);
	if (!r)
		r = buf_adds(&j->text, j->any ? ",\n  " : "\n  ");
	j->any = true;
	return r;
}

/* Writes a string piece by piece: one string may be as long as all the rest. */
static int add_text(struct view_json *j, const char *s, size_t n)
{
	int r = buf_addc(&j->text, '"');

	for (size_t i = 0, end; i < n && !r; i = end) {
		end = MIN(n, i + PIECE);
		/* whole characters, if they are UTF-8 */
		while (end < n && i + PIECE - end < 3 && (s[end] & 0xc0) == 0x80)
			end--;
		r = buf_add_json_part(&j->text, s + i, end - i);
		if (!r && j->text.len >= PIECE)
			r = flush(j);
	}
	return r ? r : buf_addc(&j->text, '"');
}

static int add_texts(struct view_json *j, const char *key, const struct view_json_text *texts,
		     size_t n)
{
	int r = buf_addf(&j->text, ", \"%s\": [", key);

	for (size_t i = 0; i < n && !r; i++) {
		r = i ? buf_adds(&j->text, ", ") : 0;
		if (!r)
			r = add_text(j, texts[i].s, texts[i].n);
	}
	return r ? r : buf_addc(&j->text, ']');
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
		r = buf_adds(&j->text, "{\"name\": ");
	if (!r)
		r = add_text(j, info->name, info->name_len);
	if (!r)
		r = buf_addf(&j->text, ", \"dtype\": \"%s\"", t->dtype);
	if (!r)
		r = info->dtype == dtype_nested ? add_texts(j, "inner", t->inner, t->n_inner) :
						  add_shape(&j->text, info);
	if (!r)
		r = t->bytes == VIEW_JSON_UNKNOWN ?
			    buf_adds(&j->text, ", \"bytes\": null") :
			    buf_addf(&j->text, ", \"bytes\": %" PRIu64, t->bytes);
	if (!r)
		r = add_texts(j, "files", t->files, t->n_files);
	return r ? r : buf_addc(&j->text, '}');
}

int view_json_pair(struct view_json *j, struct view_json_text key, struct view_json_text value)
{
	int r = element(j, VIEW_JSON_METADATA);

	if (!r)
		r = add_text(j, key.s, key.n);
	if (!r)
		r = buf_adds(&j->text, ": ");
	return r ? r : add_text(j, value.s, value.n);
}

int view_json_problem(struct view_json *j, struct view_json_text name, size_t line,
		      const char *problem)
{
	int r = element(j, VIEW_JSON_PROBLEMS);

	if (!r)
		r = buf_addc(&j->text, '{');
	if (!r && name.s) {
		r = buf_adds(&j->text, "\"name\": ");
		if (!r)
			r = add_text(j, name.s, name.n);
		if (!r)
			r = buf_adds(&j->text, ", ");
	}
	if (!r && line)
		r = buf_addf(&j->text, "\"line\": %zu, ", line);
	if (!r)
		r = buf_adds(&j->text, "\"problem\": ");
	if (!r)
		r = add_text(j, problem, strlen(problem));
	return r ? r : buf_addc(&j->text, '}');
}

int view_json_end(struct view_json *j)
{
	int r = enter(j, VIEW_JSON_PROBLEMS);

	if (!r)
		r = buf_adds(&j->text, j->any ? "\n ]\n}\n" : "]\n}\n");
	return r ? r : flush(j);
}
