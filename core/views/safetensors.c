/* SPDX-License-Identifier: Apache-2.0 */
/*
 * views/PATH/OF/w.safetensors/: the tensors of a safetensors file in the carton.
 */
#include "tensor/safetensors.h"
#include "views/internal.h"

struct reader {
	struct object *file;
	const struct node *dir; /* which is being filled */
};

static int read_file(void *ctx, void *ret_buf, size_t n, uint64_t off)
{
	const struct reader *rd = ctx;
	int r = view_cancelled(rd->dir);

	return r < 0 ? r : object_read(rd->file, ret_buf, n, off, false);
}

static void free_safetensors(void *p)
{
	safetensors_free(p);
}

/* A directory that is being filled. */
struct filling {
	struct views *v;
	struct node *dir;
	struct object *file; /* pinned */
	struct view_json *json;
	struct view_headers headers;
};

static int add_tensor(struct filling *f, const struct safetensors *s, const struct safetensor *t)
{
	struct view_tensor vt = {
		.info = &t->info,
		.data = { .object = f->file,
			  .off = s->data_start + t->begin,
			  .len = t->end - t->begin },
		.descr = t->info.dtype->npy,
	};
	char stem[TENSOR_FILENAME_SIZE];
	size_t before = node_children(f->dir)->n;
	int r = tensor_filename(t->info.name, t->info.name_len, false, stem);

	vt.npy_data = vt.data;
	if (r == 0)
		r = view_add_tensor(f->v, f->dir, stem, &vt, &f->headers);
	if (r < 0)
		return r;
	return view_list_tensor(f->json, &t->info, t->info.dtype->safetensors, t->info.bytes, stem,
				node_children(f->dir)->n - before > 1);
}

static int add_tensors(struct filling *f, const struct safetensors *s)
{
	int r = 0;

	for (size_t i = 0; i < s->n && r == 0; i++) {
		r = view_cancelled(f->dir);
		if (r == 0)
			r = add_tensor(f, s, &s->list[i]);
	}
	for (size_t i = 0; i < s->n_metadata && r == 0; i++) {
		const struct safetensors_pair *p = &s->metadata[i];

		r = view_json_pair(f->json, (struct view_json_text){ p->key, p->key_len },
				   (struct view_json_text){ p->value, p->value_len });
	}
	return r;
}

/*
 * Fills the directory from the pinned file, or adds the reason to index.json. `ret`: the header, which the
 * new files refer to; unchanged if there are none.
 */
static int add_all(struct filling *f, struct safetensors **ret)
{
	char path[MAX_PATH_LEN + 1];
	struct reason reason = { 0 };
	struct reader reader = { f->file, f->dir };
	const struct safetensors_file file = {
		.read = read_file,
		.ctx = &reader,
		.size = object_size(f->file),
		.budget = f->v->options.tree->budget,
	};
	int r = safetensors_parse(&file, ret, &reason);

	if (r < 0 && reason.text[0]) {
		carton_log(CARTON_LOG_WARNING, tree_path(f->dir, path), "is empty: %s",
			   reason.text);
		return view_json_problem(f->json, (struct view_json_text){ 0 }, 0, reason.text);
	}
	return r < 0 ? r : add_tensors(f, *ret);
}

int view_make_safetensors(struct views *v, struct node *dir, struct making *m, void *ctx)
{
	struct object *file = ctx;
	struct buf text = buf_init(MAX_VIEW_MEMORY);
	struct safetensors *s = NULL;
	struct view_json j;
	struct filling f = { .v = v, .dir = dir, .file = file, .json = &j };
	int r = making_need(m, file), made;

	if (r < 0 && r != -EBADMSG)
		return r;
	made = view_json_begin(&j, &text, v->options.tree->budget);
	if (r == -EBADMSG && made == 0)
		made = view_json_problem(&j, (struct view_json_text){ 0 }, 0,
					 "the file is damaged: its sha256 is not that in MANIFEST");
	else if (made == 0)
		made = add_all(&f, &s);
	if (r == 0)
		object_put(file);
	if (made == 0)
		made = view_json_end(&j);
	view_json_free(&j);
	if (made == 0)
		made = view_add_text(v, dir, "index.json", &text);
	buf_free(&text);
	if (made < 0 || !s) {
		safetensors_free(s);
		return made;
	}
	safetensors_free_text(s);
	return view_keep(v, s, free_safetensors);
}
