/* SPDX-License-Identifier: Apache-2.0 */
#include "tree/internal.h"

#include <stdlib.h>

#include "base/budget.h"
#include "base/util.h"

_Static_assert(sizeof(struct node) == 40, "there may be millions");

int tree_new(int64_t mtime, struct tree **ret)
{
	struct tree *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	t->root = t->shown = &t->top;
	t->mtime = mtime;
	t->top = (struct node){ .name = "", .parent = t->root, .kind = NODE_DIR };
	t->n_nodes = 1;
	*ret = t;
	return 0;
}

/* ---- adding ---- */

/* Fixes the parent pointers after the array of children moved. */
static void moved(const struct node_list *c)
{
	for (size_t i = 0; i < c->n; i++) {
		struct node *n = &c->list[i];
		const struct node_list *below;

		if (n->kind != NODE_DIR)
			continue;
		if (n->is_lazy)
			n->lazy->dir = n;
		below = node_children(n);
		for (size_t k = 0; k < below->n; k++)
			below->list[k].parent = n;
	}
}

/* Makes room for one more node in a directory. */
static int make_room(struct tree *t, struct node *dir)
{
	struct node_list *c = node_children(dir);
	struct lazy_dir *lazy = node_lazy_above(dir);
	uint8_t room = 2;
	struct node *list;
	int r;

	if (dir == t->root && t->spare) {
		t->spare--;
		return 0;
	}
	if (dir->room && c->n < 1U << dir->room)
		return 0;
	while (1U << room <= c->n)
		room++;
	r = lazy_take(t, lazy,
		      (1ULL << room) * sizeof(*list) - (dir->room ? c->n * sizeof(*list) : 0));
	if (r < 0)
		return r;
	list = reallocarray(dir->owns_list ? c->list : NULL, 1U << room, sizeof(*list));
	if (!list)
		return -ENOMEM;
	if (!dir->owns_list && c->n)
		memcpy(list, c->list, c->n * sizeof(*list));
	if (list != c->list) {
		c->list = list;
		moved(c);
	}
	dir->owns_list = true;
	dir->room = room;
	return 0;
}

int tree_add(struct tree *t, struct node *parent, const char *name, enum node_kind kind,
	     struct node **ret)
{
	struct node_list *c = node_children(parent);
	struct lazy_dir *lazy = node_lazy_above(parent);
	struct arena *a = node_arena(t, parent);
	char *copy;
	struct node *n;
	int r;

	if (t->n_nodes >= MAX_NODES)
		return log_error(-EFBIG, NULL, "more than %d files and directories", MAX_NODES);
	r = make_room(t, parent);
	if (r < 0)
		return r;
	copy = arena_text(a, name, strlen(name));
	if (!copy)
		return arena_error(a);
	n = &c->list[c->n++];
	*n = (struct node){ .name = copy, .parent = parent, .kind = (uint8_t)kind };
	t->n_nodes++;
	c->n_dirs += kind == NODE_DIR;
	if (lazy)
		lazy->nodes++;
	*ret = n;
	return 0;
}

int tree_set_lazy(struct tree *t, struct node *dir)
{
	struct lazy_dir *lazy = arena_alloc(node_arena(t, dir), sizeof(*lazy));

	if (!lazy)
		return -ENOMEM;
	*lazy = (struct lazy_dir){ .dir = dir, .arena.budget = t->budget };
	dir->lazy = lazy;
	dir->is_lazy = true;
	return 0;
}

/* Frees what a lazy directory owns but its nodes. */
static void lazy_empty(struct tree *t, struct lazy_dir *lazy)
{
	for (struct text *x = lazy->texts; x; x = x->next)
		free(x->data);
	arena_finish(&lazy->arena);
	t->n_nodes -= lazy->nodes;
	t->owned -= lazy->owned;
	budget_give(t->budget, lazy->cost);
	lazy->texts = NULL;
	lazy->nodes = lazy->owned = lazy->cost = 0;
}

void tree_clear(struct tree *t, struct node *dir)
{
	/* frees the last child of the last child first: no recursion, no second list */
	for (struct node *n = dir;;) {
		struct node *parent = n->parent;
		struct node_list *c = n->kind == NODE_DIR ? node_children(n) : NULL;

		if (c && c->n > 0) {
			n = &c->list[--c->n];
			continue;
		}
		if (c && n->owns_list)
			free(c->list);
		if (c && n->is_lazy)
			lazy_empty(t, n->lazy);
		if (c) {
			*c = (struct node_list){ 0 };
			n->owns_list = false;
			n->room = 0;
		}
		if (n == dir)
			break;
		n = parent;
	}
}

void tree_free(struct tree *t)
{
	const struct node_list *top;

	if (!t)
		return;
	top = &t->root->plain;
	/* below it, only lazy directories have allocations of their own */
	for (size_t i = 0; t->nodes && i < top->n; i++)
		if (top->list[i].kind == NODE_DIR && top->list[i].is_lazy)
			tree_clear(t, &top->list[i]);
	if (t->nodes && t->root->owns_list)
		free(top->list);
	if (!t->nodes)
		tree_clear(t, t->root);
	free(t->nodes);
	free(t->renumbered);
	free(t->placed.list);
	pthread_mutex_destroy(&t->lock);
	arena_finish(&t->arena);
	free(t);
}

/* ---- sorting ---- */

static int compare_nodes(const void *a, const void *b)
{
	return strcmp(((const struct node *)a)->name, ((const struct node *)b)->name);
}

void tree_sort(struct node *dir)
{
	const struct node_list *c = node_children(dir);

	for (size_t i = 1; i < c->n; i++)
		if (compare_nodes(&c->list[i - 1], &c->list[i]) > 0) {
			qsort(c->list, c->n, sizeof(*c->list), compare_nodes);
			moved(c);
			return;
		}
}

/* ---- places ---- */

/*
 * Sorts the children of a directory and moves them to the array `to`. Frees their former array, if
 * it was theirs alone. Returns the end of the moved children.
 */
static struct node *move_children(struct node *dir, struct node *to)
{
	struct node_list *c = node_children(dir);
	struct node *before = c->list;

	tree_sort(dir);
	if (c->n)
		memcpy(to, before, c->n * sizeof(*to));
	c->list = to;
	if (dir->owns_list)
		free(before);
	dir->owns_list = false;
	dir->room = 0;
	for (size_t i = 0; i < c->n; i++)
		to[i].parent = dir;
	moved(c);
	return to + c->n;
}

/* Gives the next free places to the nodes below the directory, in order. 0 or -ENOMEM. */
static int add_placed(struct tree *t, struct lazy_dir *lazy)
{
	struct placed *p = &t->placed;
	int r;

	pthread_mutex_lock(&t->lock);
	r = array_room(p->list, &p->cap, p->n + 1);
	if (r == 0) {
		lazy->first = p->next;
		p->next += lazy->nodes;
		p->list[p->n++] = (struct placed_dir){ lazy->first, lazy };
	}
	pthread_mutex_unlock(&t->lock);
	return r;
}

int tree_place(struct tree *t, struct node *top)
{
	struct lazy_dir *lazy = top->lazy;
	struct node_list *c = &lazy->children;
	const uint64_t below = (lazy->nodes - c->n) * sizeof(struct node);
	struct node *nodes, *end;
	int r = budget_take(t->budget, below);

	if (r < 0)
		return r;
	nodes = reallocarray(c->list, lazy->nodes ? lazy->nodes : 1, sizeof(*nodes));
	if (nodes) {
		c->list = nodes;
		top->owns_list = true;
		top->room = 0;
		moved(c);
		tree_sort(top);
		end = nodes + c->n;
		for (struct node *n = nodes; n < end; n++)
			if (n->kind == NODE_DIR && !n->is_lazy)
				end = move_children(n, end);
	}
	budget_give(t->budget, below);
	return nodes ? add_placed(t, lazy) : -ENOMEM;
}

uint64_t node_place(const struct tree *t, const struct node *n)
{
	const struct lazy_dir *lazy;

	if (n >= t->nodes && n < t->nodes + t->n_places)
		return (uint64_t)(n - t->nodes);
	lazy = node_lazy_above(n->parent);
	return lazy ? PLACE_GENERATED | (lazy->first + (uint64_t)(n - lazy->children.list)) :
		      PLACE_NONE;
}

/* Returns the only lazy directory that a node at that place can be below; NULL: none. */
static struct lazy_dir *find_placed(struct tree *t, uint64_t place)
{
	const struct placed *p = &t->placed;
	struct placed_dir found = { 0 };
	size_t low = 0, high;

	pthread_mutex_lock(&t->lock);
	high = p->n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (p->list[mid].first <= place)
			low = mid + 1;
		else
			high = mid;
	}
	if (low > 0)
		found = p->list[low - 1];
	pthread_mutex_unlock(&t->lock);
	return found.dir && found.dir->first == found.first ? found.dir : NULL;
}

struct node *tree_at(struct tree *t, uint64_t place)
{
	struct lazy_dir *lazy;

	if (!(place & PLACE_GENERATED))
		return place < t->n_places && t->nodes[place].name ? &t->nodes[place] : NULL;
	place &= ~PLACE_GENERATED;
	lazy = find_placed(t, place);
	return lazy && place - lazy->first < lazy->nodes ?
		       lazy->children.list + (place - lazy->first) :
		       NULL;
}

/* ---- finding ---- */

static int compare_child(const void *key, const void *child)
{
	return strcmp(key, ((const struct node *)child)->name);
}

struct node *tree_child(const struct node *dir, const char *name)
{
	const struct node_list *c;

	if (dir->kind != NODE_DIR)
		return NULL;
	c = node_children(dir);
	return c->n ? bsearch(name, c->list, c->n, sizeof(*c->list), compare_child) : NULL;
}

struct node *tree_find(const struct tree *t, const char *path)
{
	struct node *at = t->root;
	char name[MAX_COMPONENT + 1];

	while (at && *path) {
		size_t len = strcspn(path, "/");

		if (len == 0 || len > MAX_COMPONENT || (at->kind == NODE_DIR && at->is_lazy))
			return NULL;
		memcpy(name, path, len);
		name[len] = '\0';
		at = tree_child(at, name);
		path += len + (path[len] == '/');
	}
	return at;
}

struct node *tree_next(const struct node *top, struct node *node)
{
	if (node->kind == NODE_DIR && (!node->is_lazy || node == top) && node_children(node)->n > 0)
		return node_children(node)->list;
	for (; node != top; node = node->parent) {
		const struct node_list *c = node_children(node->parent);

		if (node + 1 < c->list + c->n)
			return node + 1;
	}
	return NULL;
}

char *tree_path(const struct node *node, char *ret)
{
	size_t at = MAX_PATH_LEN;

	ret[at] = '\0';
	/* the root has no name, nor what is shown in its place */
	for (; *node->name; node = node->parent) {
		size_t len = strlen(node->name);
		bool below = *node->parent->name;

		if (len + below > at)
			break;
		at -= len;
		memcpy(ret + at, node->name, len);
		if (below)
			ret[--at] = '/';
	}
	return memmove(ret, ret + at, MAX_PATH_LEN + 1 - at);
}

/* The node that a relative symlink leads to, as the kernel would walk it; NULL: none. */
static struct node *walk(struct node *link)
{
	struct node *at = link->parent;
	const char *p = link->link.target;
	char name[MAX_COMPONENT + 1];

	if (*p == '/')
		return NULL;
	while (*p) {
		size_t len = strcspn(p, "/");

		if (!at || at->kind != NODE_DIR || len > MAX_COMPONENT)
			return NULL;
		memcpy(name, p, len);
		name[len] = '\0';
		if (strcmp(name, "..") == 0) {
			if (at->parent == at)
				return NULL;
			at = at->parent;
		} else if (len > 0 && strcmp(name, ".") != 0) {
			at = tree_child(at, name);
		}
		p += len;
		/* a slash behind the name of a file is an error, for the kernel too */
		if (*p == '/' && (!at || at->kind != NODE_DIR))
			return NULL;
		p += *p == '/';
	}
	return at;
}

struct node *tree_resolve(struct node *node)
{
	for (size_t hops = 0; node && node->kind == NODE_SYMLINK; hops++)
		node = hops < MAX_SYMLINK_HOPS ? walk(node) : NULL;
	return node;
}
