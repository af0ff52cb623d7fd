/* SPDX-License-Identifier: Apache-2.0 */
#include "views/json.h"

#include <inttypes.h>

#include "base/limits.h"

/* Bytes of text that are collected before they are written. */
#define PIECE (64 * KIB)

void view_json_init(struct view_json *j, view_json_write_fn *write, void *ctx)
{
	*j = (struct view_json){ .write = write, .ctx = ctx, .text = buf_init(16 * PIECE) };
}

void view_json_finish(struct view_json *j)
{
	buf_finish(&j->text);
}

/* A failure of `write` fails the text, too: nothing more is added. */
static void flush(struct view_json *j)
{
	if (j->write && j->text.len && !j->text.error)
		j->text.error = j->write(j->ctx, j->text.data, j->text.len);
	j->size += j->text.len;
	j->text.len = 0;
}

/* Ends the current part, if any, and begins `part`. */
static void begin_part(struct view_json *j, enum view_json_part part)
{
	static const char *const open[] = {
		[VIEW_JSON_TENSORS] = "{\n \"tensors\": [",
		[VIEW_JSON_METADATA] = ",\n \"metadata\": {",
		[VIEW_JSON_PROBLEMS] = ",\n \"problems\": [",
	};

	if (j->part != VIEW_JSON_NONE && j->any)
		buf_adds(&j->text, "\n ");
	if (j->part != VIEW_JSON_NONE)
		buf_addc(&j->text, j->part == VIEW_JSON_METADATA ? '}' : ']');
	j->part = part;
	j->any = false;
	buf_adds(&j->text, open[part]);
}

/* Begins `part` and those before it that are missing. */
static void enter(struct view_json *j, enum view_json_part part)
{
	if (j->part > part && !j->text.error)
		j->text.error = -EINVAL;
	if (j->part == VIEW_JSON_NONE)
		begin_part(j, VIEW_JSON_TENSORS);
	if (j->part < part)
		begin_part(j, part);
}

/* Starts the line of one more element of `part`. */
static void element(struct view_json *j, enum view_json_part part)
{
	if (j->text.len >= PIECE)
		flush(j);
	enter(j, part);
	buf_adds(&j->text, j->any ? ",\n  " : "\n  ");
	j->any = true;
}

/* Writes a string piece by piece: one string may be as long as all other text. */
static void add_text(struct view_json *j, const char *s, size_t n)
{
	buf_addc(&j->text, '"');
	for (size_t i = 0, end; i < n; i = end) {
		end = MIN(n, i + PIECE);
		/* cuts between characters, if they are UTF-8 */
		while (end < n && i + PIECE - end < 3 && (s[end] & 0xc0) == 0x80)
			end--;
		buf_add_json_part(&j->text, s + i, end - i);
		if (j->text.len >= PIECE)
			flush(j);
	}
	buf_addc(&j->text, '"');
}

static void add_texts(struct view_json *j, const char *key, const struct view_json_text *texts,
		      size_t n)
{
	buf_addf(&j->text, ", \"%s\": [", key);
	for (size_t i = 0; i < n; i++) {
		buf_adds(&j->text, i ? ", " : "");
		add_text(j, texts[i].s, texts[i].n);
	}
	buf_addc(&j->text, ']');
}

static void add_shape(struct buf *b, const struct tensor_info *info)
{
	buf_adds(b, ", \"shape\": [");
	for (unsigned d = 0; d < info->rank; d++)
		buf_addf(b, "%s%" PRIu64, d ? ", " : "", info->shape[d]);
	buf_addc(b, ']');
}

int view_json_tensor(struct view_json *j, const struct view_json_tensor *t)
{
	const struct tensor_info *info = t->info;

	element(j, VIEW_JSON_TENSORS);
	buf_adds(&j->text, "{\"name\": ");
	add_text(j, info->name, info->name_len);
	buf_addf(&j->text, ", \"dtype\": \"%s\"", t->dtype);
	if (info->dtype == dtype_nested)
		add_texts(j, "inner", t->inner, t->n_inner);
	else
		add_shape(&j->text, info);
	if (t->bytes == VIEW_JSON_UNKNOWN)
		buf_adds(&j->text, ", \"bytes\": null");
	else
		buf_addf(&j->text, ", \"bytes\": %" PRIu64, t->bytes);
	add_texts(j, "files", t->files, t->n_files);
	return buf_addc(&j->text, '}');
}

int view_json_pair(struct view_json *j, struct view_json_text key, struct view_json_text value)
{
	element(j, VIEW_JSON_METADATA);
	add_text(j, key.s, key.n);
	buf_adds(&j->text, ": ");
	add_text(j, value.s, value.n);
	return j->text.error;
}

int view_json_problem(struct view_json *j, struct view_json_text name, size_t line,
		      const char *problem)
{
	element(j, VIEW_JSON_PROBLEMS);
	buf_addc(&j->text, '{');
	if (name.s) {
		buf_adds(&j->text, "\"name\": ");
		add_text(j, name.s, name.n);
		buf_adds(&j->text, ", ");
	}
	if (line)
		buf_addf(&j->text, "\"line\": %zu, ", line);
	buf_adds(&j->text, "\"problem\": ");
	add_text(j, problem, strlen(problem));
	return buf_addc(&j->text, '}');
}

int view_json_end(struct view_json *j)
{
	enter(j, VIEW_JSON_PROBLEMS);
	buf_adds(&j->text, j->any ? "\n ]\n}\n" : "]\n}\n");
	flush(j);
	return j->text.error;
}
