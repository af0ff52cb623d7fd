/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a node, and its bytes. */
#include "tree/internal.h"

#include "archive/container.h"
#include "base/budget.h"
#include "base/util.h"
#include "format/manifest.h"

struct tree *node_tree(const struct node *n)
{
	while (n->parent != n)
		n = n->parent;
	return container_of(n, struct tree, top);
}

struct lazy_dir *node_lazy_above(const struct node *n)
{
	for (; n->parent != n; n = n->parent)
		if (n->kind == NODE_DIR && n->is_lazy)
			return n->lazy;
	return NULL;
}

struct arena *node_arena(struct tree *t, const struct node *n)
{
	struct lazy_dir *lazy = node_lazy_above(n);

	return lazy ? &lazy->arena : &t->arena;
}

int lazy_take(struct tree *t, struct lazy_dir *lazy, uint64_t n)
{
	int r = lazy ? budget_take(t->budget, n) : 0;

	if (r == 0 && lazy)
		lazy->cost += n;
	return r;
}

/* ---- setting its bytes ---- */

void tree_set_entry(struct tree *t, struct node *file, const struct entry *entry)
{
	file->file.entry = entry;
	t->bytes += entry->size;
	t->files++;
}

void tree_set_object(struct tree *t, struct node *file, struct object *object)
{
	uint64_t size = object_size(object);

	file->file.object = object;
	t->bytes += size == OBJECT_NO_SIZE ? 0 : size;
	t->files++;
}

static struct file_header *header_new(struct tree *t, struct node *below, const void *data,
				      uint64_t len)
{
	struct file_header *h = arena_alloc(node_arena(t, below), sizeof(*h));

	if (h)
		*h = (struct file_header){ .data = data,
					   .len = len,
					   .mark = tree_mark_text(data, len) };
	return h;
}

int tree_set_extents(struct tree *t, struct node *file, const struct extent *extents, size_t n,
		     const struct tensor_info *tensor)
{
	const struct extent *first = n && extents[0].literal ? extents : NULL;
	struct arena *a = node_arena(t, file);
	struct content *c = NULL;
	struct file_header *h = NULL;
	uint64_t end = 0;

	if (first) {
		h = header_new(t, file, first->literal, first->len);
		if (!h)
			return arena_error(a);
		extents++;
		n--;
	}
	if (n) {
		c = arena_alloc(a, sizeof(*c) + n * sizeof(*c->pieces));
		if (!c)
			return arena_error(a);
		*c = (struct content){ .tensor = tensor, .n = n };
	}
	for (size_t i = 0; i < n; i++) {
		end = extents[i].len == OBJECT_NO_SIZE ? OBJECT_NO_SIZE : end + extents[i].len;
		c->pieces[i] = (struct piece){ extents[i].object, extents[i].off, extents[i].whole,
					       end };
		c->mark = tree_mark_piece(t, c->mark, &c->pieces[i]);
	}
	file->body.header = h;
	file->body.content = c;
	file->has_body = true;
	return 0;
}

void tree_set_tensor(struct node *file, const struct tensor_info *tensor)
{
	file->body.header = NULL;
	file->body.tensor = tensor;
	file->has_body = file->of_tensor = true;
}

void tree_set_header(struct node *file, const struct file_header *header)
{
	file->body.header = header;
}

int tree_add_header(struct tree *t, struct node *below, const void *data, size_t len,
		    const struct file_header **ret)
{
	struct arena *a = node_arena(t, below);
	char *copy = arena_text(a, data, len);

	*ret = copy ? header_new(t, below, copy, len) : NULL;
	return *ret ? 0 : arena_error(a);
}

int tree_own(struct tree *t, struct node *below, void *data, uint64_t n)
{
	struct lazy_dir *lazy = node_lazy_above(below);
	struct text *x;
	int r;

	if (atomic_fetch_add(&t->owned, n) + n > MAX_VIEW_MEMORY)
		r = -EFBIG;
	else
		r = lazy_take(t, lazy, n);
	x = r == 0 ? arena_alloc(&lazy->arena, sizeof(*x)) : NULL;
	if (!x) {
		t->owned -= n;
		return r < 0 ? r : arena_error(&lazy->arena);
	}
	*x = (struct text){ lazy->texts, data };
	lazy->texts = x;
	lazy->owned += n;
	return 0;
}

/* ---- reading it ---- */

/* The pieces behind the header of a file that has a body. */

static size_t n_pieces(const struct node *file)
{
	if (file->of_tensor)
		return 1;
	return file->body.content ? file->body.content->n : 0;
}

static struct piece piece_at(const struct node *file, size_t i)
{
	const struct tensor_info *t = file->body.tensor;

	return file->of_tensor ? (struct piece){ t->object, t->off, t->whole, t->bytes } :
				 file->body.content->pieces[i];
}

const struct entry *node_entry(const struct node *n)
{
	if (n->kind == NODE_SYMLINK)
		return n->link.entry;
	if (n->kind == NODE_FILE && n->has_body)
		return n->body.header ? n->body.header->entry : NULL;
	return n->kind == NODE_FILE ? n->file.entry : NULL;
}

bool node_is_executable(const struct node *n)
{
	const struct entry *e = node_entry(n);

	return e && n->kind == NODE_FILE && !n->has_body && e->executable;
}

const struct tensor_info *node_tensor(const struct node *n)
{
	static const struct tensor_info nested = { .name = "" };

	if (n->kind == NODE_DIR && n->nested)
		return &nested;
	if (n->kind != NODE_FILE || !n->has_body)
		return NULL;
	return n->of_tensor ? n->body.tensor : n->body.content ? n->body.content->tensor : NULL;
}

int node_make_object(struct node *file)
{
	struct object **at = &file->file.object, *made, *none = NULL;
	uint8_t sha256[SHA256_SIZE];
	int r;

	if (file->has_body || !file->file.entry || __atomic_load_n(at, __ATOMIC_ACQUIRE))
		return 0;
	manifest_hash(file->name, sha256);
	r = object_add(node_tree(file)->store, sha256, file->file.entry, &made);
	/* another thread may have stored it: that is the same object, which is not written twice */
	if (r == 0)
		__atomic_compare_exchange_n(at, &none, made, false, __ATOMIC_ACQ_REL,
					    __ATOMIC_ACQUIRE);
	return r;
}

struct object *node_known_object(const struct node *n)
{
	return n->kind == NODE_FILE && !n->has_body ?
		       __atomic_load_n(&n->file.object, __ATOMIC_ACQUIRE) :
		       NULL;
}

struct object *node_object(const struct node *n)
{
	if (n->kind != NODE_FILE || n->has_body || node_make_object((struct node *)n) < 0)
		return NULL;
	return node_known_object(n);
}

uint64_t node_size(const struct node *file)
{
	uint64_t size;
	size_t n;

	if (!file->has_body)
		return file->file.entry	 ? file->file.entry->size :
		       file->file.object ? object_size(file->file.object) :
					   0;
	n = n_pieces(file);
	size = n ? piece_at(file, n - 1).end : 0;
	if (size == OBJECT_NO_SIZE)
		return object_size(piece_at(file, 0).object);
	return size + (file->body.header ? file->body.header->len : 0);
}

bool node_size_is_certain(const struct node *file)
{
	if (!file->has_body)
		return file->file.entry || !file->file.object ||
		       object_size_is_certain(file->file.object);
	return file->body.header || n_pieces(file) != 1 ||
	       object_size_is_certain(piece_at(file, 0).object);
}

size_t node_n_extents(const struct node *file)
{
	if (!file->has_body)
		return 1;
	return (file->body.header != NULL) + n_pieces(file);
}

struct extent node_extent(const struct node *file, size_t i)
{
	const struct file_header *h = file->body.header;
	uint64_t start, behind;
	struct piece p;

	if (!file->has_body)
		return (struct extent){ .object = node_known_object(file), .len = node_size(file) };
	if (h && i == 0)
		return (struct extent){ .literal = h->data, .len = h->len, .nul = h->nul };
	i -= h != NULL;
	p = piece_at(file, i);
	start = i ? piece_at(file, i - 1).end : 0;
	behind = h ? h->len : 0;
	return (struct extent){
		.object = p.object,
		.off = p.off,
		.len = p.end == OBJECT_NO_SIZE ? node_size(file) : p.end - start,
		.start = behind + start,
		.whole = p.whole,
	};
}
