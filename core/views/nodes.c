/* SPDX-License-Identifier: Apache-2.0 */
/* Adding generated directories and files to the tree. */
#include <stdio.h>
#include <stdlib.h>

#include "tensor/npy.h"
#include "views/internal.h"

struct view_kept {
	struct view_kept *next;
	void *p;
	void (*free_fn)(void *);
};

/* A directory that is filled at its first lookup. */
struct view_dir {
	struct views *v;
	struct lazy_dir *lazy;
	view_make_fn *make;
	void *ctx;
	char path[]; /* for the log */
};

int view_keep(struct views *v, void *p, void (*free_fn)(void *))
{
	struct view_kept *k = malloc(sizeof(*k));

	if (!k) {
		free_fn(p);
		return -ENOMEM;
	}
	pthread_mutex_lock(&v->kept_lock);
	*k = (struct view_kept){ v->kept, p, free_fn };
	v->kept = k;
	pthread_mutex_unlock(&v->kept_lock);
	return 0;
}

void view_free_kept(struct views *v)
{
	while (v->kept) {
		struct view_kept *k = v->kept;

		v->kept = k->next;
		k->free_fn(k->p);
		free(k);
	}
}

/* ---- directories ---- */

void view_log_empty(const struct node *dir, const char *why)
{
	const struct node *top = dir;
	char path[MAX_PATH_LEN + 1];
	size_t start = 0;

	while (top->parent->parent != top->parent)
		top = top->parent;
	tree_path(dir, path);
	/* users do not know the name of a hidden directory: the line names the model's file */
	if (top->hidden)
		start = strcspn(path, "/") + 1;
	/* what is shown in place of the root has no name */
	carton_log(CARTON_LOG_WARNING, *path ? path + start : NULL, "no tensors are shown: %s",
		   why);
}

/* Over a limit: the directory has only an index.json with the reason. Not retried. */
static int refuse(struct views *v, struct node *dir)
{
#define REFUSAL "the generated views have too many files or too much text"
	static const char index[] = "{\n \"tensors\": [],\n \"problems\": [\n"
				    "  {\"problem\": \"" REFUSAL "\"}\n ]\n}\n";
	const struct extent text = { .literal = index, .len = strlen(index) };

	view_log_empty(dir, REFUSAL);
	return view_add_file(v, dir, "index.json", &text, NULL);
}

static int make_nodes(void *ctx, struct fill *fill)
{
	struct view_dir *view = ctx;
	struct node *dir = view->lazy->dir;
	struct tree *t = view->v->options.tree;
	int r = view->make(view->v, dir, fill, view->ctx);

	if (r == 0)
		r = tree_place(t, dir);
	if (r < 0)
		tree_clear(t, dir); /* the next attempt starts over */
	if (r == -EFBIG) {
		r = refuse(view->v, dir);
		if (r == 0)
			r = tree_place(t, dir);
	}
	if (r < 0)
		return r;
	fill->bytes = (struct bytes){ .kind = BYTES_ENTRY };
	return 0;
}

int view_add_dir(struct views *v, struct node *parent, const struct view_lazy *d, struct node **ret)
{
	char path[MAX_PATH_LEN + 1];
	struct node *dir;
	struct view_dir *view;
	int r = tree_add(v->options.tree, parent, d->name, NODE_DIR, &dir);

	if (r == 0)
		r = tree_set_lazy(v->options.tree, dir);
	if (r < 0)
		return r;
	tree_path(dir, path);
	view = malloc(sizeof(*view) + strlen(path) + 1);
	if (!view)
		return -ENOMEM;
	*view = (struct view_dir){ v, dir->lazy, d->make, d->ctx };
	strcpy(view->path, path);
	r = view_keep(v, view, free);
	if (r == 0)
		r = object_add_derived(v->options.store, view->path, 0, make_nodes, view,
				       &dir->lazy->object);
	if (r == 0 && ret)
		*ret = dir;
	return r;
}

/* ---- files ---- */

int view_add_extents(struct views *v, struct node *parent, const char *name,
		     const struct extent *extents, size_t n)
{
	struct node *file;
	int r = tree_add(v->options.tree, parent, name, NODE_FILE, &file);

	return r < 0 ? r : tree_set_extents(v->options.tree, file, extents, n, NULL);
}

int view_add_file(struct views *v, struct node *parent, const char *name, const struct extent *data,
		  const struct tensor_info *tensor)
{
	struct node *file;
	int r = tree_add(v->options.tree, parent, name, NODE_FILE, &file);

	if (r < 0)
		return r;
	/* the common case needs no memory but the node */
	if (!tensor || data->object != tensor->object)
		return tree_set_extents(v->options.tree, file, data, 1, tensor);
	tree_set_tensor(file, tensor);
	return 0;
}

int view_own_text(struct views *v, struct node *parent, struct buf *b, struct extent *ret)
{
	char *fit;
	int r = buf_reserve(b, 0);

	if (r == 0) {
		fit = realloc(b->data, b->len + 1);
		if (fit)
			b->data = fit;
		r = tree_own(v->options.tree, parent, b->data, b->len);
	}
	if (r == 0) {
		*ret = (struct extent){ .literal = b->data, .len = b->len };
		*b = buf_init(b->max);
	}
	buf_finish(b);
	return r;
}

int view_add_text(struct views *v, struct node *parent, const char *name, struct buf *b)
{
	struct extent text;
	int r = view_own_text(v, parent, b, &text);

	return r < 0 ? r : view_add_extents(v, parent, name, &text, 1);
}

/* ---- index.json ---- */

/* An index.json whose text is made when it is opened. */
struct index_file {
	struct views *v;
	struct view_index index;
	uint64_t size;
	char path[]; /* for the log */
};

static int write_index(const struct index_file *f, struct fill *fill, struct view_json *j)
{
	int r;

	if (f->index.lock)
		pthread_mutex_lock(&f->v->lock);
	r = f->index.write(f->v, fill, f->index.ctx, j);
	if (f->index.lock)
		pthread_mutex_unlock(&f->v->lock);
	return r < 0 ? r : view_json_end(j);
}

static int derive_index(void *ctx, struct fill *fill)
{
	const struct index_file *f = ctx;
	struct view_json j;
	struct derived_file out;
	int r = f->index.file ? object_get_wait(f->index.file, &fill->waits) : 0;

	if (r < 0)
		return r;
	r = derived_begin(&out, fill, f->size);
	if (r == 0) {
		view_json_init(&j, derived_write, &out);
		r = derived_end(&out, write_index(f, fill, &j));
		view_json_finish(&j);
	}
	if (f->index.file)
		object_put(f->index.file);
	return r;
}

int view_add_index(struct views *v, struct node *dir, const struct view_index *index, uint64_t size)
{
	struct extent all = { .len = size };
	char path[MAX_PATH_LEN + 1];
	struct index_file *f;
	int r;

	if (size > MAX_VIEW_MEMORY)
		return -EFBIG;
	tree_path(dir, path);
	f = malloc(sizeof(*f) + strlen(path) + sizeof("/index.json"));
	if (!f)
		return -ENOMEM;
	*f = (struct index_file){ v, *index, size };
	sprintf(f->path, "%s/index.json", path);
	r = view_keep(v, f, free);
	if (r == 0)
		r = object_add_derived(v->options.store, f->path, size, derive_index, f,
				       &all.object);
	if (r == 0 && index->file)
		object_depend(all.object, index->file);
	return r < 0 ? r : view_add_file(v, dir, "index.json", &all, NULL);
}

/* ---- tensors ---- */

/* The slot for a header with these bytes, or with the same hash. */
static const struct file_header **header_slot(struct view_headers *h, const struct buf *header)
{
	uint32_t hash = 2166136261;

	for (size_t i = 0; i < header->len; i++)
		hash = (hash ^ (uint8_t)header->data[i]) * 16777619;
	return &h->headers[hash % ARRAY_SIZE(h->headers)];
}

/* The header of a .npy. Tensors of the same shape and dtype share one. 0 or -errno. */
static int npy_file_header(struct views *v, struct node *dir, const struct view_tensor *t,
			   struct view_headers *h, const struct file_header **ret)
{
	struct buf header = buf_init(NPY_HEADER_MAX);
	const struct file_header **slot, *found;
	int r = npy_header(t->descr, t->info->shape, t->info->rank, &header);

	if (r < 0)
		return r;
	slot = header_slot(h, &header);
	found = *slot;
	if (!found || found->len != header.len || memcmp(found->data, header.data, header.len) != 0)
		r = tree_add_header(v->options.tree, dir, header.data, header.len, &found);
	buf_finish(&header);
	if (r == 0)
		*ret = *slot = found;
	return r;
}

/* Adds NAME.npy: a header before the data, in the form that numpy has for it. */
static int add_npy(struct views *v, struct node *dir, const char *name, const struct view_tensor *t,
		   struct view_headers *h)
{
	const struct file_header *found = NULL;
	struct node_list *c;
	int r = npy_file_header(v, dir, t, h, &found);

	if (r == 0)
		r = view_add_file(v, dir, name, &t->npy_data, t->info);
	if (r < 0)
		return r;
	c = node_children(dir);
	tree_set_header(&c->list[c->n - 1], found);
	return 0;
}

bool view_has_npy(const struct tensor_info *info, const char *descr)
{
	return descr && npy_can_hold(descr, info->shape, info->rank);
}

int view_add_tensor(struct views *v, struct node *dir, const char *stem,
		    const struct view_tensor *t, struct view_headers *h)
{
	char name[MAX_COMPONENT + 1];
	int r;

	snprintf(name, sizeof(name), "%s.bin", stem);
	r = view_add_file(v, dir, name, &t->data, t->info);
	if (r < 0 || !view_has_npy(t->info, t->descr))
		return r;
	snprintf(name, sizeof(name), "%s.npy", stem);
	return add_npy(v, dir, name, t, h);
}

int view_list_tensor(struct view_json *j, const struct view_json_tensor *t, const char *stem,
		     bool npy)
{
	char names[2][MAX_COMPONENT + 1];
	struct view_json_text files[2];
	struct view_json_tensor shown = *t;

	shown.files = files;
	shown.n_files = 1 + (size_t)npy;
	snprintf(names[0], sizeof(names[0]), "%s.bin", stem);
	snprintf(names[1], sizeof(names[1]), "%s.npy", stem);
	for (size_t i = 0; i < shown.n_files; i++)
		files[i] = (struct view_json_text){ names[i], strlen(names[i]) };
	return view_json_tensor(j, &shown);
}
