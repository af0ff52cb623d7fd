/* SPDX-License-Identifier: Apache-2.0 */
/* views/PATH/OF/w.safetensors/: the tensors of a safetensors file in the carton. */
#include "tensor/safetensors.h"
#include "views/internal.h"

struct reader {
	struct object *file;
	struct fill *fill;
};

static int read_file(void *ctx, void *ret_buf, size_t n, uint64_t off)
{
	const struct reader *rd = ctx;
	int r = view_cancelled(rd->fill);

	return r < 0 ? r : object_read_wait(rd->file, ret_buf, n, off, &rd->fill->waits);
}

static int parse(struct views *v, struct fill *fill, struct object *file, struct safetensors **ret,
		 struct reason *reason)
{
	struct reader reader = { file, fill };
	const struct safetensors_file f = {
		.read = read_file,
		.ctx = &reader,
		.size = object_size(file),
		.budget = v->options.tree->budget,
	};

	return safetensors_parse(&f, ret, reason);
}

static void free_safetensors(void *p)
{
	safetensors_free(p);
}

/* ---- index.json ---- */

static int list_all(struct fill *fill, const struct safetensors *s, struct view_json *j)
{
	char stem[TENSOR_FILENAME_SIZE];
	int r = 0;

	for (size_t i = 0; i < s->n && r == 0; i++) {
		const struct tensor_info *t = &s->list[i];
		const struct view_json_tensor shown = { .info = t,
							.dtype = t->dtype->safetensors,
							.bytes = t->bytes };

		r = view_cancelled(fill);
		if (r == 0)
			r = tensor_filename(t->name, t->name_len, false, stem);
		if (r == 0)
			r = view_list_tensor(j, &shown, stem, view_has_npy(t, t->dtype->npy));
	}
	for (size_t i = 0; i < s->n_metadata && r == 0; i++) {
		const struct safetensors_pair *p = &s->metadata[i];

		r = view_json_pair(j, (struct view_json_text){ p->key, p->key_len },
				   (struct view_json_text){ p->value, p->value_len });
	}
	return r;
}

/* The header is parsed again, so that no names need to be kept. */
static int write_index(struct views *v, struct fill *fill, void *ctx, struct view_json *j)
{
	struct safetensors *s = NULL;
	struct reason reason = { 0 };
	int r = parse(v, fill, ctx, &s, &reason);

	if (r == 0)
		r = list_all(fill, s, j);
	safetensors_free(s);
	return r;
}

static int append(void *ctx, const void *data, size_t n)
{
	return buf_add(ctx, data, n);
}

/* An index.json that only says why there are no tensors. */
static int add_problem(struct views *v, struct node *dir, const char *problem)
{
	struct buf text = buf_init(64 * KIB);
	struct view_json j;
	int r;

	view_json_init(&j, append, &text);
	r = view_json_problem(&j, (struct view_json_text){ 0 }, 0, problem);
	if (r == 0)
		r = view_json_end(&j);
	view_json_finish(&j);
	if (r == 0)
		return view_add_text(v, dir, "index.json", &text);
	buf_finish(&text);
	return r;
}

/* ---- the directory ---- */

static int add_tensors(struct views *v, struct node *dir, struct fill *fill, struct safetensors *s,
		       struct object *file)
{
	struct view_headers headers = { 0 };
	char stem[TENSOR_FILENAME_SIZE];
	int r = 0;

	for (size_t i = 0; i < s->n && r == 0; i++) {
		struct tensor_info *t = &s->list[i];
		struct extent data = { .object = file, .off = t->off, .len = t->bytes };
		const struct view_tensor vt = { t, data, t->dtype->npy, data };

		t->object = file;
		r = view_cancelled(fill);
		if (r == 0)
			r = tensor_filename(t->name, t->name_len, false, stem);
		if (r == 0)
			r = view_add_tensor(v, dir, stem, &vt, &headers);
	}
	return r;
}

static int add_all(struct views *v, struct node *dir, struct fill *fill, struct object *file,
		   struct safetensors *s)
{
	const struct view_index index = { .write = write_index, .ctx = file, .file = file };
	struct view_json j;
	int r;

	view_json_init(&j, NULL, NULL);
	r = list_all(fill, s, &j);
	if (r == 0)
		r = view_json_end(&j);
	view_json_finish(&j);
	if (r == 0)
		r = view_add_index(v, dir, &index, j.size);
	return r < 0 ? r : add_tensors(v, dir, fill, s, file);
}

/*
 * Fills the directory from the pinned file. The header is kept without its names: the new files
 * refer to it.
 */
static int make_nodes(struct views *v, struct node *dir, struct fill *fill, struct object *file)
{
	struct safetensors *s = NULL;
	struct reason reason = { 0 };
	int r = parse(v, fill, file, &s, &reason);

	if (r < 0 && reason.text[0]) {
		view_log_empty(dir, reason.text);
		return add_problem(v, dir, reason.text);
	}
	if (r == 0)
		r = add_all(v, dir, fill, file, s);
	if (r < 0) {
		safetensors_free(s);
		return r;
	}
	safetensors_free_text(s);
	return view_keep(v, s, free_safetensors);
}

int view_make_bare(struct views *v, struct node *dir, struct fill *fill, void *ctx)
{
	struct node *file = v->safetensors[0];
	struct object *o = node_object(file);
	struct extent all = { .object = o, .whole = true };
	int r = -ENOMEM;

	(void)ctx;
	if (o) {
		all.len = object_size(o);
		r = view_add_file(v, dir, file->name, &all, NULL);
	}
	return r < 0 ? r : view_make_safetensors(v, dir, fill, o);
}

int view_make_safetensors(struct views *v, struct node *dir, struct fill *fill, void *ctx)
{
	struct object *file = ctx;
	int r = object_get_wait(file, &fill->waits);

	if (r == -EBADMSG)
		return add_problem(v, dir, "the file is damaged: its sha256 is not the right one");
	if (r < 0)
		return r;
	r = make_nodes(v, dir, fill, file);
	object_put(file);
	return r;
}
