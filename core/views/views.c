/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "views/internal.h"

/*
 * Added by fill_top() before the directories of the carton: the marker, tensor_data,
 * tensor_data.safetensors, triton.
 */
#define OWN_CHILDREN 4

/* The object of a file, or of a symlink's target, if the name ends in .safetensors; else NULL. */
static struct object *safetensors_object(struct node *n)
{
	if (n->kind == NODE_DIR || !ends_with(n->name, ".safetensors"))
		return NULL;
	n = tree_resolve(n);
	return n && n->kind == NODE_FILE ? node_object(n) : NULL;
}

/* In tree order, so that the files of one directory follow each other. */
static int find_safetensors(struct views *v)
{
	const struct node *root = v->options.tree->root;
	size_t cap = 0;

	for (struct node *n = v->options.tree->root; n; n = tree_next(root, n)) {
		if (!safetensors_object(n))
			continue;
		if (array_room(v->safetensors, &cap, v->n_safetensors + 1) < 0)
			return -ENOMEM;
		v->safetensors[v->n_safetensors++] = n;
	}
	return 0;
}

/*
 * The child with that name. A directory that is being filled is not sorted yet, but the files come
 * in tree order: besides OWN_CHILDREN at the top, only the last child can match.
 */
static struct node *find_dir(const struct node *top, const struct node *at, const char *name)
{
	const struct node_list *c = node_children(at);

	for (size_t i = 0; at == top && i < c->n && i < OWN_CHILDREN; i++)
		if (strcmp(c->list[i].name, name) == 0)
			return &c->list[i];
	return c->n && strcmp(c->list[c->n - 1].name, name) == 0 ? &c->list[c->n - 1] : NULL;
}

static int no_views(const struct node *taken, const char *path)
{
	char where[MAX_PATH_LEN + 1];

	carton_log(CARTON_LOG_WARNING, path, "has no view: another view has the name %s",
		   tree_path(taken, where));
	return 0;
}

/*
 * Adds the lazy directory of a safetensors file, below the same directories that the file is in.
 * Not below tensor_data/ and triton/, which are generated themselves.
 */
static int add_in_place(struct views *v, struct node *top, struct node *file)
{
	char path[MAX_PATH_LEN + 1], full[MAX_PATH_LEN + 1], *slash;
	struct node *at = top, *child;
	struct object *o;
	int r = 0;

	tree_path(file, path);
	for (char *p = path; r == 0 && (slash = strchr(p, '/')); p = slash + 1) {
		*slash = '\0';
		child = find_dir(top, at, p);
		if (child && (child->kind != NODE_DIR || child->is_lazy))
			return no_views(child, tree_path(file, full));
		if (!child)
			r = tree_add(v->options.tree, at, p, NODE_DIR, &child);
		at = child;
		*slash = '/';
	}
	if (r < 0)
		return r;
	child = find_dir(top, at, file->name);
	if (child)
		return no_views(child, path);
	o = safetensors_object(file);
	r = view_add_dir(v, at, &(struct view_lazy){ file->name, view_make_safetensors, o },
			 &child);
	if (r == 0)
		object_depend(node_lazy_object(child), o);
	return r;
}

static int add_marker(struct views *v, struct node *dir)
{
	const struct extent text = { .literal = VIEWS_MARKER_TEXT,
				     .len = strlen(VIEWS_MARKER_TEXT) };

	return view_add_file(v, dir, VIEWS_MARKER, &text, NULL);
}

/* `later`: the index cannot be read now. */
static int fill_top(struct views *v, struct node *dir, bool later)
{
	static const struct view_lazy tensor_data = { "tensor_data", view_make_tensors, NULL },
				      triton = { "triton", view_make_triton, NULL };
	const struct meta *m = v->options.meta;
	int r = add_marker(v, dir);

	/* tensor_data/ is added anyway: each lookup in it retries */
	if (r == 0 && (later || v->index.tensors || *v->index.problem.text))
		r = view_add_dir(v, dir, &tensor_data, NULL);
	if (r == 0 && !later && v->index.tensors)
		r = view_add_collection(v, dir);
	if (r == 0 && m && (m->n_self_tests || m->n_examples))
		r = view_add_dir(v, dir, &triton, NULL);
	for (size_t i = 0; i < v->n_safetensors && r == 0; i++)
		r = add_in_place(v, dir, v->safetensors[i]);
	return r;
}

static int make_top(struct views *v, struct node *dir, struct fill *m, void *ctx)
{
	int r = view_load(v, m);
	bool later = view_unreachable(r);

	(void)ctx;
	if (later)
		carton_log(CARTON_LOG_WARNING, "tensor_data/index.toml",
			   "cannot be read now (%s), so %s/tensor_data.safetensors is missing",
			   strerror(-r), dir->name);
	else if (r < 0)
		return r;
	pthread_mutex_lock(&v->lock);
	r = fill_top(v, dir, later);
	pthread_mutex_unlock(&v->lock);
	return r;
}

/* The nodes do not move any more. */
static int show(struct views *v)
{
	struct tree *t = v->options.tree;
	struct node *dir = tree_child(t->root, v->options.name);
	struct object *file;
	int r = find_safetensors(v);

	dir->hidden = v->options.hidden;
	if (r < 0 || !v->options.bare)
		return r;
	/* a file with a fault is left out of a tree that is to be checked */
	file = v->n_safetensors ? safetensors_object(v->safetensors[0]) : NULL;
	if (!file)
		return -EBADMSG;
	t->shown = dir;
	object_depend(node_lazy_object(dir), file);
	return 0;
}

int views_new(const struct views_options *options, struct views **ret)
{
	struct tree *t = options->tree;
	const struct view_lazy top = { options->name, options->bare ? view_make_bare : make_top,
				       NULL };
	struct views *v;
	int r;

	*ret = NULL;
	if (tree_child(t->root, options->name)) {
		carton_log(CARTON_LOG_WARNING, options->name,
			   "exists in the carton, so no views are generated; a mount with the "
			   "option views gives them another name");
		return 0;
	}
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	v->options = *options;
	pthread_mutex_init(&v->lock, NULL);
	pthread_mutex_init(&v->kept_lock, NULL);
	r = view_add_load(v);
	if (r == 0)
		r = view_add_dir(v, t->root, &top, NULL);
	if (r == 0) {
		tree_sort(t->root);
		r = show(v);
	}
	if (r < 0)
		views_free(v);
	else
		*ret = v;
	return r;
}

void views_free(struct views *v)
{
	if (!v)
		return;
	view_free_kept(v);
	for (size_t i = 0; v->strings && i < v->index.tensors->n; i++)
		free(v->strings[i].later);
	index_finish(&v->index);
	free(v->strings);
	free(v->safetensors);
	pthread_mutex_destroy(&v->lock);
	pthread_mutex_destroy(&v->kept_lock);
	free(v);
}
