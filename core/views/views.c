/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "object/bytes.h"
#include "tensor/npy.h"
#include "views/internal.h"

/* What make_top() adds before the mirror: tensor_data, tensor_data.safetensors, triton. */
#define OWN_CHILDREN 3

/* Something to free at the end. */
struct view_kept {
	struct view_kept *next;
	void *p;
	void (*free_fn)(void *);
};

/* What the gate of a directory opens to. */
struct gate {
	struct views *v;
	struct node *dir;
	view_make_fn *make;
	void *ctx;
	char path[]; /* its name in the log */
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

/* ---- directories ---- */

/* Past a limit: an empty directory that says so, and is not made again. */
static int refuse(struct views *v, struct node *dir)
{
#define REFUSAL "the views of this carton are too many files, or too much text, to be kept"
	static const char index[] = "{\n \"tensors\": [],\n \"problems\": [\n"
				    "  {\"problem\": \"" REFUSAL "\"}\n ]\n}\n";
	char path[MAX_PATH_LEN + 1];
	struct node *file;
	int r;

	carton_log(CARTON_LOG_WARNING, tree_path(dir, path), "is empty: " REFUSAL);
	r = tree_add(v->options.tree, dir, "index.json", strlen("index.json"), NODE_FILE, &file);
	if (r == 0)
		tree_set_literal(v->options.tree, file, index, strlen(index));
	return r;
}

static int open_gate(void *ctx, struct object *o, struct bytes *ret, uint64_t *ret_size)
{
	struct gate *g = ctx;
	/* a file of the carton has nothing to do with the index, which may have to be waited for */
	bool indexed = g->make != view_make_safetensors;
	int r;

	if (indexed) {
		pthread_mutex_lock(&g->v->lock);
		g->v->asking = o;
	}
	r = g->make(g->v, g->dir, g->ctx);
	if (r < 0)
		tree_clear(g->v->options.tree, g->dir); /* the next attempt begins anew */
	if (r == -EFBIG)
		r = refuse(g->v, g->dir);
	if (r == 0)
		tree_sort(g->dir);
	if (indexed)
		pthread_mutex_unlock(&g->v->lock);
	if (r < 0)
		return r;
	*ret = (struct bytes){ .kind = BYTES_PLACE };
	*ret_size = 0;
	return 0;
}

int view_add_dir(struct views *v, struct node *parent, const char *name, view_make_fn *make,
		 void *ctx, struct node **ret)
{
	char path[MAX_PATH_LEN + 1];
	struct node *dir;
	struct gate *g;
	int r = tree_add(v->options.tree, parent, name, strlen(name), NODE_DIR, &dir);

	if (r < 0)
		return r;
	tree_path(dir, path);
	g = malloc(sizeof(*g) + strlen(path) + 1);
	if (!g)
		return -ENOMEM;
	*g = (struct gate){ v, dir, make, ctx };
	strcpy(g->path, path);
	r = view_keep(v, g, free);
	if (r == 0)
		r = object_add_derived(v->options.store, g->path, 0, open_gate, g, &dir->dir.gate);
	if (r == 0 && ret)
		*ret = dir;
	return r;
}

/* ---- files ---- */

int view_add_file(struct views *v, struct node *parent, const char *name, const struct extent *data,
		  const struct tensor_info *tensor)
{
	struct node *file;
	int r = tree_add(v->options.tree, parent, name, strlen(name), NODE_FILE, &file);

	if (r == 0 && data->len == OBJECT_NO_SIZE)
		tree_set_object(v->options.tree, file, data->object);
	else if (r == 0)
		r = tree_set_extents(v->options.tree, file, data, 1);
	if (r == 0)
		file->tensor = tensor;
	return r;
}

int view_add_body(struct views *v, struct node *parent, const char *name, struct buf *b,
		  const struct extent *extents, size_t n, const struct tensor_info *tensor)
{
	struct extent *all = calloc(n + 1, sizeof(*all));
	struct node *file;
	int r = all ? buf_reserve(b, 0) : -ENOMEM;

	if (r == 0)
		r = tree_add(v->options.tree, parent, name, strlen(name), NODE_FILE, &file);
	if (r == 0) {
		all[0] = (struct extent){ .literal = b->data, .len = b->len };
		if (n)
			memcpy(all + 1, extents, n * sizeof(*all));
		r = tree_set_extents(v->options.tree, file, all, n + 1);
	}
	if (r == 0)
		r = tree_own_literal(v->options.tree, file);
	if (r == 0) {
		file->tensor = tensor;
		*b = buf_init(b->max);
	}
	free(all);
	buf_free(b);
	return r;
}

int view_add_text(struct views *v, struct node *parent, const char *name, struct buf *b)
{
	return view_add_body(v, parent, name, b, NULL, 0, NULL);
}

int view_add_tensor(struct views *v, struct node *dir, const char *stem,
		    const struct view_tensor *t)
{
	char name[MAX_COMPONENT + 1];
	struct buf header = buf_init(NPY_HEADER_MAX);
	int r;

	snprintf(name, sizeof(name), "%s.bin", stem);
	r = view_add_file(v, dir, name, &t->data, t->info);
	if (r < 0 || !t->descr || !npy_can_hold(t->descr, t->info->shape, t->info->rank))
		return r;
	snprintf(name, sizeof(name), "%s.npy", stem);
	r = npy_header(t->descr, t->info->shape, t->info->rank, &header);
	if (r == 0)
		return view_add_body(v, dir, name, &header, &t->npy_data, 1, t->info);
	buf_free(&header);
	return r;
}

int view_list_tensor(struct view_json *j, const struct tensor_info *info, const char *dtype,
		     uint64_t bytes, const char *stem, bool npy)
{
	char names[2][MAX_COMPONENT + 1];
	struct view_json_text files[2];
	struct view_json_tensor shown = {
		.info = info,
		.dtype = dtype,
		.bytes = bytes,
		.files = files,
		.n_files = 1 + (size_t)npy,
	};

	snprintf(names[0], sizeof(names[0]), "%s.bin", stem);
	snprintf(names[1], sizeof(names[1]), "%s.npy", stem);
	for (size_t i = 0; i < shown.n_files; i++)
		files[i] = (struct view_json_text){ names[i], strlen(names[i]) };
	return view_json_tensor(j, &shown);
}

/* ---- tensors of the index ---- */

int view_load(struct views *v)
{
	int r;

	if (v->loaded)
		return 0;
	r = index_load(v->options.tree, v->asking, &v->index);
	if (r < 0)
		return r;
	if (v->index.tensors) {
		v->strings = calloc(v->index.tensors->n + 1, sizeof(*v->strings));
		if (!v->strings) {
			index_free(&v->index);
			return -ENOMEM;
		}
	}
	v->loaded = true;
	return 0;
}

int view_measure(struct views *v, struct tensor *t, const struct strings_size **ret)
{
	return t->problem ? -EBADMSG : index_measure(&v->index, t, v->asking, ret);
}

int view_data(struct views *v, struct tensor *t, struct extent *ret)
{
	const struct strings_size *size;
	struct view_strings *s;
	struct node *file;
	int r;

	if (t->problem || t->info.dtype == dtype_nested)
		return -EBADMSG;
	if (t->info.dtype != dtype_string) {
		file = index_file(v->options.tree, t);
		if (!file)
			return -EBADMSG;
		*ret = (struct extent){
			.object = node_object(file),
			.len = t->info.bytes,
			.whole = true,
		};
		return 0;
	}
	r = view_measure(v, t, &size);
	if (r < 0)
		return r;
	s = &v->strings[t - v->index.tensors->list];
	if (!s->bytes)
		r = view_add_strings(v, t, STRINGS_BYTES, 0, size->bytes, &s->bytes);
	if (r == 0)
		*ret = (struct extent){ .object = s->bytes, .len = size->bytes };
	return r;
}

/* ---- the top ---- */

/* The bytes of what is named as a safetensors file, or of what such a symlink leads to; else NULL. */
static struct object *safetensors_object(struct node *n)
{
	static const char suffix[] = ".safetensors";
	size_t len = strlen(n->name);

	if (n->kind == NODE_DIR || len <= strlen(suffix) ||
	    strcmp(n->name + len - strlen(suffix), suffix) != 0)
		return NULL;
	n = tree_resolve(n);
	return n && n->kind == NODE_FILE ? node_object(n) : NULL;
}

/* Found once, before there are views: in tree order, so that a directory's files stand together. */
static int find_safetensors(struct views *v)
{
	const struct node *root = v->options.tree->root;
	size_t cap = 0;

	for (struct node *n = v->options.tree->root; n; n = tree_next(root, n)) {
		if (!safetensors_object(n))
			continue;
		if (v->n_safetensors == cap) {
			size_t more = cap ? 2 * cap : 16;
			void *grown = reallocarray(v->safetensors, more, sizeof(struct node *));

			if (!grown)
				return -ENOMEM;
			v->safetensors = grown;
			cap = more;
		}
		v->safetensors[v->n_safetensors++] = n;
	}
	return 0;
}

/* A child that the mirror may meet: one of those that stand there first, or the last it has made. */
static struct node *find_mirrored(const struct node *top, const struct node *at, const char *name)
{
	for (size_t i = 0; at == top && i < at->dir.n && i < OWN_CHILDREN; i++)
		if (strcmp(at->dir.children[i]->name, name) == 0)
			return at->dir.children[i];
	if (at->dir.n && strcmp(at->dir.children[at->dir.n - 1]->name, name) == 0)
		return at->dir.children[at->dir.n - 1];
	return NULL;
}

static int no_views(const struct node *taken, const char *path)
{
	char where[MAX_PATH_LEN + 1];

	carton_log(CARTON_LOG_WARNING, path, "has no views of its own: %s shows other tensors",
		   tree_path(taken, where));
	return 0;
}

/*
 * views/ mirrors the directories above a safetensors file. tensor_data/ and triton/ have makers of
 * their own, so there is no mirror below them.
 */
static int add_mirror(struct views *v, struct node *top, struct node *file)
{
	char path[MAX_PATH_LEN + 1], full[MAX_PATH_LEN + 1], *slash;
	struct node *at = top, *child;
	int r = 0;

	tree_path(file, path);
	for (char *p = path; r == 0 && (slash = strchr(p, '/')); p = slash + 1) {
		*slash = '\0';
		child = find_mirrored(top, at, p);
		if (child && (child->kind != NODE_DIR || child->dir.gate))
			return no_views(child, tree_path(file, full));
		if (!child)
			r = tree_add(v->options.tree, at, p, strlen(p), NODE_DIR, &child);
		at = child;
		*slash = '/';
	}
	if (r < 0)
		return r;
	child = find_mirrored(top, at, file->name);
	if (child)
		return no_views(child, path);
	return view_add_dir(v, at, file->name, view_make_safetensors, safetensors_object(file),
			    NULL);
}

static int make_top(struct views *v, struct node *dir, void *ctx)
{
	const struct meta *m = v->options.meta;
	int r = view_load(v);
	/* then its directory says so to who looks into it, until it can be read */
	bool later = view_is_out_of_reach(r);

	(void)ctx;
	if (later) {
		carton_log(CARTON_LOG_WARNING, "tensor_data/index.toml",
			   "cannot be read now (%s): there is no %s/tensor_data.safetensors",
			   strerror(-r), dir->name);
		r = 0;
	}
	if (r == 0 && (later || v->index.tensors || v->index.problem))
		r = view_add_dir(v, dir, "tensor_data", view_make_tensors, NULL, NULL);
	if (r == 0 && v->index.tensors)
		r = view_add_collection(v, dir);
	if (r == 0 && m && (m->n_self_tests || m->n_examples))
		r = view_add_dir(v, dir, "triton", view_make_triton, NULL, NULL);
	for (size_t i = 0; i < v->n_safetensors && r == 0; i++)
		r = add_mirror(v, dir, v->safetensors[i]);
	return r;
}

int views_new(const struct views_options *options, struct views **ret)
{
	struct tree *t = options->tree;
	struct views *v;
	struct node *dir;
	int r;

	*ret = NULL;
	if (tree_child(t->root, options->name)) {
		carton_log(CARTON_LOG_WARNING, options->name,
			   "is in the carton itself: no generated views; -o views=NAME gives them "
			   "another name");
		return 0;
	}
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	v->options = *options;
	pthread_mutex_init(&v->lock, NULL);
	pthread_mutex_init(&v->kept_lock, NULL);
	r = find_safetensors(v);
	if (r == 0)
		r = view_add_dir(v, t->root, options->name, make_top, NULL, &dir);
	if (r < 0) {
		views_free(v);
		return r;
	}
	dir->hidden = options->hidden;
	tree_sort(t->root);
	*ret = v;
	return 0;
}

void views_free(struct views *v)
{
	if (!v)
		return;
	while (v->kept) {
		struct view_kept *k = v->kept;

		v->kept = k->next;
		k->free_fn(k->p);
		free(k);
	}
	for (size_t i = 0; v->strings && i < v->index.tensors->n; i++)
		free(v->strings[i].later);
	index_free(&v->index);
	free(v->strings);
	free(v->safetensors);
	pthread_mutex_destroy(&v->lock);
	pthread_mutex_destroy(&v->kept_lock);
	free(v);
}
