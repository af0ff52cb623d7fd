/* SPDX-License-Identifier: Apache-2.0 */
#include "tree/tree.h"

#include <stdlib.h>

#include "archive/container.h"
#include "base/util.h"

/* two blocks, and a place in an array that may be twice as large as needed */
const size_t tree_node_cost = sizeof(struct node) + 2 * MALLOC_SIZE + 2 * sizeof(struct node *);

static void node_free(struct tree *t, struct node *n)
{
	t->n_nodes--;
	if (n->kind == NODE_FILE) {
		t->n_files--;
		t->bytes -= n->file.size == OBJECT_NO_SIZE ? 0 : n->file.size;
		t->owned -= n->file.owns_literal ? n->file.extents[0].len : 0;
	}
	if (n->kind == NODE_DIR)
		free(n->dir.children);
	else if (n->kind == NODE_SYMLINK)
		free(n->link.target);
	if (n->kind == NODE_FILE && n->file.owns_literal)
		free((void *)n->file.extents[0].literal);
	if (n->kind == NODE_FILE && n->file.extents != &n->file.one)
		free(n->file.extents);
	free(n->name);
	free(n);
}

static struct node *node_new(struct tree *t, const char *name, size_t len, enum node_kind kind)
{
	struct node *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->kind = kind;
	if (kind == NODE_FILE)
		n->file.extents = &n->file.one;
	n->name = strndup(name, len);
	if (!n->name) {
		free(n);
		return NULL;
	}
	n->ino = ++t->last_ino;
	t->n_nodes++;
	t->n_files += kind == NODE_FILE;
	return n;
}

int tree_new(int64_t mtime, struct tree **ret)
{
	struct tree *t = calloc(1, sizeof(*t));

	if (t)
		t->root = node_new(t, "", 0, NODE_DIR);
	if (!t || !t->root) {
		free(t);
		return -ENOMEM;
	}
	t->root->parent = t->root;
	t->root->dir.tree = t;
	t->root->mtime = mtime;
	*ret = t;
	return 0;
}

void tree_clear(struct tree *t, struct node *dir)
{
	/* always the last child of the last child…: no recursion, no second list */
	for (struct node *n = dir;;) {
		struct node *parent = n->parent;

		if (n->kind == NODE_DIR && n->dir.n > 0) {
			n = n->dir.children[--n->dir.n];
			continue;
		}
		if (n == dir)
			break;
		node_free(t, n);
		n = parent;
	}
	dir->dir.n_dirs = 0;
}

void tree_free(struct tree *t)
{
	if (!t)
		return;
	tree_clear(t, t->root);
	node_free(t, t->root);
	free(t);
}

int tree_add(struct tree *t, struct node *parent, const char *name, size_t len, enum node_kind kind,
	     struct node **ret)
{
	struct node *n, **children;

	if (t->n_nodes >= MAX_NODES) {
		carton_log(CARTON_LOG_ERROR, NULL, "more than %d files and directories", MAX_NODES);
		return -EFBIG;
	}
	children = array_grow(parent->dir.children, &parent->dir.cap, parent->dir.n + 1,
			      sizeof(struct node *));
	if (!children)
		return -ENOMEM;
	parent->dir.children = children;
	n = node_new(t, name, len, kind);
	if (!n)
		return -ENOMEM;
	n->parent = parent;
	n->mtime = parent->mtime;
	n->at = (uint32_t)parent->dir.n;
	parent->dir.children[parent->dir.n++] = n;
	parent->dir.n_dirs += kind == NODE_DIR;
	*ret = n;
	return 0;
}

int tree_add_path(struct tree *t, const char *path, enum node_kind kind, struct node **ret)
{
	struct node *at = t->root;
	const char *slash;
	int r;

	for (; (slash = strchr(path, '/')); path = slash + 1) {
		size_t len = (size_t)(slash - path);
		/* in order, a directory that exists already is the last child */
		struct node *last = at->dir.n ? at->dir.children[at->dir.n - 1] : NULL;

		if (last && last->kind == NODE_DIR && strlen(last->name) == len &&
		    memcmp(last->name, path, len) == 0) {
			at = last;
			continue;
		}
		r = tree_add(t, at, path, len, NODE_DIR, &at);
		if (r < 0)
			return r;
	}
	return tree_add(t, at, path, strlen(path), kind, ret);
}

static int compare_nodes(const void *a, const void *b)
{
	return strcmp((*(struct node *const *)a)->name, (*(struct node *const *)b)->name);
}

void tree_sort(struct node *dir)
{
	for (struct node *n = dir; n; n = tree_next(dir, n)) {
		if (n->kind != NODE_DIR || n->dir.n < 2)
			continue;
		qsort(n->dir.children, n->dir.n, sizeof(struct node *), compare_nodes);
		for (size_t i = 0; i < n->dir.n; i++)
			n->dir.children[i]->at = (uint32_t)i;
	}
}

int tree_set_extents(struct tree *t, struct node *file, const struct extent *extents, size_t n)
{
	struct extent *copy = n > 1 ? calloc(n, sizeof(*copy)) : &file->file.one;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, extents, n * sizeof(*copy));
	file->file.extents = copy;
	file->file.n = n;
	file->file.size = 0;
	for (size_t i = 0; i < n; i++) {
		copy[i].start = file->file.size;
		file->file.size += copy[i].len;
	}
	t->bytes += file->file.size;
	return 0;
}

void tree_set_object(struct tree *t, struct node *file, struct object *object)
{
	uint64_t size = object_size(object);

	file->file.one = (struct extent){ .object = object, .len = size };
	file->file.n = 1;
	file->file.size = size;
	t->bytes += size == OBJECT_NO_SIZE ? 0 : size;
}

void tree_set_literal(struct tree *t, struct node *file, const void *data, uint64_t size)
{
	file->file.one = (struct extent){ .literal = data, .len = size };
	file->file.n = 1;
	file->file.size = size;
	t->bytes += size;
}

int tree_own_literal(struct tree *t, struct node *file)
{
	uint64_t n = file->file.extents[0].len;

	if (atomic_fetch_add(&t->owned, n) + n > MAX_VIEW_MEMORY) {
		t->owned -= n;
		return -EFBIG;
	}
	file->file.owns_literal = true;
	return 0;
}

void tree_set_entry(struct tree *t, struct node *file, const struct entry *entry,
		    const uint8_t sha256[SHA256_SIZE])
{
	file->file.one = (struct extent){ .len = entry->size };
	file->file.n = 1;
	file->file.size = entry->size;
	file->file.entry = entry;
	file->file.sha256 = sha256;
	t->bytes += entry->size;
}

int node_make_object(struct node *file)
{
	struct object **at = &file->file.one.object, *made, *none = NULL;
	const struct node *root = file;
	int r;

	if (!file->file.entry || __atomic_load_n(at, __ATOMIC_ACQUIRE))
		return 0;
	while (root->parent != root)
		root = root->parent;
	r = object_add(root->dir.tree->store, file->file.sha256, file->file.entry, &made);
	/* another thread may have done so: it is the same object, and is not written twice */
	if (r == 0)
		__atomic_compare_exchange_n(at, &none, made, false, __ATOMIC_ACQ_REL,
					    __ATOMIC_ACQUIRE);
	return r;
}

struct object *node_object(const struct node *n)
{
	if (n->kind != NODE_FILE || n->file.n != 1 || node_make_object((struct node *)n) < 0)
		return NULL;
	return n->file.extents[0].object;
}

uint64_t node_size(const struct node *file)
{
	return file->file.size == OBJECT_NO_SIZE ? object_size(file->file.one.object) :
						   file->file.size;
}

static int compare_child(const void *key, const void *child)
{
	return strcmp(key, (*(struct node *const *)child)->name);
}

struct node *tree_child(const struct node *dir, const char *name)
{
	struct node **found;

	if (dir->kind != NODE_DIR || dir->dir.n == 0)
		return NULL;
	found = bsearch(name, dir->dir.children, dir->dir.n, sizeof(struct node *), compare_child);
	return found ? *found : NULL;
}

struct node *tree_find(const struct tree *t, const char *path)
{
	struct node *at = t->root;
	char name[MAX_COMPONENT + 1];

	while (at && *path) {
		size_t len = strcspn(path, "/");

		if (len == 0 || len > MAX_COMPONENT || (at->kind == NODE_DIR && at->dir.gate))
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
	if (node->kind == NODE_DIR && (!node->dir.gate || node == top) && node->dir.n > 0)
		return node->dir.children[0];
	for (; node != top; node = node->parent)
		if (node->at + 1 < node->parent->dir.n)
			return node->parent->dir.children[node->at + 1];
	return NULL;
}

char *tree_path(const struct node *node, char *ret)
{
	size_t at = MAX_PATH_LEN;

	ret[at] = '\0';
	for (; node->parent != node; node = node->parent) {
		size_t len = strlen(node->name);
		bool below = node->parent->parent != node->parent;

		if (len + below > at)
			break;
		at -= len;
		memcpy(ret + at, node->name, len);
		if (below)
			ret[--at] = '/';
	}
	return memmove(ret, ret + at, MAX_PATH_LEN + 1 - at);
}

/* Where a relative target leads from `link`, as the kernel would walk it; NULL: nowhere. */
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
