/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The date and the inode number that a node shows. Both follow from content, so that each machine
 * shows the same ones, and two versions of a file differ in them.
 *
 * The first 28 bits of the mark of the content (mark.c) choose the date. The inode number is a hash
 * of path and mark.
 *
 * The hash of a path is a chain: of the name, with the hash of the directory's path before it. So
 * a walk over the tree hashes each name once, however deep the tree is.
 */
#include <stdlib.h>

#include "archive/container.h"
#include "base/budget.h"
#include "base/siphash.h"
#include "base/util.h"
#include "format/manifest.h"
#include "tree/internal.h"

#define DATE_FIRST 631152000 /* 1990-01-01, UTC; the last is in January 2007 */
#define DATE_STEP 2	     /* seconds: what zip and FAT can keep */
#define DATE_BITS 28

/*
 * Inode numbers have 48 bits; the highest one is set for generated nodes. The first ones are for
 * the root and for files that are no part of a carton.
 */
#define INO_BITS 47
#define INO_GENERATED (1ULL << INO_BITS)
#define INO_HASHED 16

/* The most directories above a node, with the root: each takes two bytes of the path. */
#define MAX_ABOVE (MAX_PATH_LEN / 2 + 1)

/* ---- marks ---- */

/* A file that has all bytes of one object, and no others, has the mark of the object. */
static uint64_t mark_of_body(const struct tree *t, const struct node *n)
{
	const struct file_header *h = n->body.header;
	const struct content *c = n->body.content;
	uint64_t mark = h ? h->mark : 0;

	if (n->of_tensor) {
		const struct tensor_info *i = n->body.tensor;
		const struct piece p = { i->object, i->off, i->whole, i->bytes };

		return !h && p.whole ? tree_mark_object(t, p.object) : tree_mark_piece(t, mark, &p);
	}
	if (!c)
		return mark;
	return !h && c->n == 1 && c->pieces[0].whole ? tree_mark_object(t, c->pieces[0].object) :
						       tree_hash_words(mark, &c->mark, 1);
}

static uint64_t mark_of_file(const struct tree *t, const struct node *n)
{
	uint8_t first[8];

	if (n->has_body)
		return mark_of_body(t, n);
	if (!n->file.entry)
		return tree_mark_object(t, n->file.object);
	hex_decode(manifest_hex(n->name), sizeof(first), first);
	return tree_mark(first);
}

static bool is_plain(const struct node *n)
{
	return n->kind != NODE_DIR || !n->is_lazy;
}

/* The mark of a node that is not below a lazy directory. */
static uint64_t mark_of_plain(const struct tree *t, const struct node *n)
{
	switch ((enum node_kind)n->kind) {
	case NODE_FILE:
		return mark_of_file(t, n);
	case NODE_SYMLINK:
		return tree_mark_text(n->link.target, strlen(n->link.target));
	case NODE_DIR:
		break;
	}
	return (uint64_t)n->date << (64 - DATE_BITS);
}

/* A generated directory has the mark of the model: its children may not be made yet. */
static uint64_t mark_of(const struct tree *t, const struct node *n)
{
	return n->kind == NODE_DIR && node_lazy_above(n) ? t->model : mark_of_plain(t, n);
}

/* ---- dates ---- */

static int64_t date_of(uint64_t mark)
{
	return DATE_FIRST + DATE_STEP * (int64_t)(mark >> (64 - DATE_BITS));
}

int64_t node_mtime(const struct node *n)
{
	const struct tree *t = node_tree(n);
	const struct entry *e = node_entry(n);

	if (t->dates == DATES_ONE)
		return t->mtime;
	if (t->dates == DATES_OWN && e)
		return e->mtime;
	return date_of(mark_of(t, n));
}

/* The directory's date follows from the names and marks of its children that are not generated. */
static void set_date(const struct tree *t, struct node *dir)
{
	const struct node_list *c = node_children(dir);
	uint64_t mark = 0;

	for (size_t i = 0; i < c->n; i++) {
		const struct node *n = &c->list[i];

		if (!is_plain(n))
			continue;
		mark = tree_hash_words(mark, (uint64_t[]){ n->kind, mark_of_plain(t, n) }, 2);
		mark = tree_hash(mark, n->name, strlen(n->name));
	}
	dir->date = (uint32_t)(mark >> (64 - DATE_BITS));
}

/* ---- inode numbers ---- */

/* Makes an inode number of a hash. */
static uint64_t ino_of(uint64_t hash)
{
	uint64_t ino = hash & (INO_GENERATED - 1);

	return ino < INO_HASHED ? ino + INO_HASHED : ino;
}

static uint64_t hash_path(const struct node *n)
{
	char path[MAX_PATH_LEN + 1], *at = tree_path(n, path);
	uint64_t hash = 0;

	while (*at) {
		size_t len = strcspn(at, "/");

		hash = tree_hash(hash, at, len);
		at += len + (at[len] == '/');
	}
	return hash;
}

static uint64_t ino_by_hash(uint64_t path, uint64_t mark)
{
	return ino_of(tree_hash_words(path, &mark, 1));
}

static int by_node(const void *a, const void *b)
{
	const struct numbered *x = a, *y = b;

	return (x->node > y->node) - (x->node < y->node);
}

uint64_t node_ino(const struct node *n)
{
	const struct tree *t = node_tree(n);
	const struct numbered *found, key = { .node = n };

	if (n == t->root || n == t->shown)
		return TREE_ROOT_INO;
	if (node_lazy_above(n))
		return ino_by_hash(hash_path(n), mark_of(t, n)) | INO_GENERATED;
	found = t->n_renumbered ?
			bsearch(&key, t->renumbered, t->n_renumbered, sizeof(key), by_node) :
			NULL;
	return found ? found->ino : ino_by_hash(hash_path(n), mark_of_plain(t, n));
}

/* A set of numbers. The key is random, so that nobody can choose many that share a slot. */
struct number_set {
	uint64_t *slots; /* 0: free */
	uint64_t n_slots;
	struct siphash_key key;
};

/* Returns true if the set had the number before. */
static bool set_add(struct number_set *s, uint64_t ino)
{
	uint64_t i = siphash(&s->key, ino, "", 0) % s->n_slots;

	while (s->slots[i] && s->slots[i] != ino)
		i = i + 1 < s->n_slots ? i + 1 : 0;
	if (s->slots[i])
		return true;
	s->slots[i] = ino;
	return false;
}

/* Makes an empty set for up to `n` numbers. 0, -ENOMEM or -EFBIG. */
static int set_init(struct number_set *s, uint64_t n, struct budget *budget)
{
	int r;

	*s = (struct number_set){ .n_slots = n + n / 2 + 1 };
	siphash_key_init(&s->key);
	r = budget_take(budget, s->n_slots * sizeof(*s->slots));
	if (r < 0)
		return r;
	s->slots = calloc(s->n_slots, sizeof(*s->slots));
	if (s->slots)
		return 0;
	budget_give(budget, s->n_slots * sizeof(*s->slots));
	return -ENOMEM;
}

static void set_finish(struct number_set *s, struct budget *budget)
{
	budget_give(budget, s->n_slots * sizeof(*s->slots));
	free(s->slots);
}

/* Gives a node a number that is free, as `ino` is the number of an earlier path. */
static int renumber(struct tree *t, struct number_set *s, const struct node *n, uint64_t ino)
{
	uint64_t prefix = tree_hash(ino, n->name, strlen(n->name)), count = 0, taken = 0;
	int r = budget_room(t->budget, &taken, t->renumbered, &t->cap_renumbered,
			    t->n_renumbered + 1);

	if (r < 0)
		return r;
	/* each try hashes another count, so the tries do not repeat */
	do {
		count++;
		ino = ino_of(tree_hash_words(prefix, &count, 1));
	} while (set_add(s, ino));
	t->renumbered[t->n_renumbered++] = (struct numbered){ n, ino };
	return 0;
}

/* A walk over the nodes in the order of their paths. */
struct walk {
	struct node *at;
	size_t depth;
	uint64_t hashes[MAX_ABOVE +
			1]; /* of the paths of `at` and the directories above, by depth */
};

static bool walk_next(struct walk *w, struct node *root)
{
	struct node *next = tree_next(root, w->at);

	if (!next)
		return false;
	w->depth++;
	for (const struct node *n = w->at; n != next->parent; n = n->parent)
		w->depth--;
	w->hashes[w->depth] = tree_hash(w->hashes[w->depth - 1], next->name, strlen(next->name));
	w->at = next;
	return true;
}

static int make_unique(struct tree *t, struct number_set *s)
{
	struct walk w = { .at = t->root };
	int r = 0;

	while (r == 0 && walk_next(&w, t->root)) {
		uint64_t ino;

		if (!is_plain(w.at))
			continue;
		ino = ino_by_hash(w.hashes[w.depth], mark_of_plain(t, w.at));
		if (set_add(s, ino))
			r = renumber(t, s, w.at, ino);
	}
	if (r == 0 && t->n_renumbered)
		qsort(t->renumbered, t->n_renumbered, sizeof(*t->renumbered), by_node);
	return r;
}

int tree_number(struct tree *t)
{
	struct number_set s;
	int r;

	/* backwards: a directory stands before its children, whose marks it needs */
	for (size_t i = t->n_places; i-- > 0;)
		if (t->nodes[i].name && t->nodes[i].kind == NODE_DIR && is_plain(&t->nodes[i]))
			set_date(t, &t->nodes[i]);
	set_date(t, t->root);
	r = set_init(&s, t->n_nodes, t->budget);
	if (r < 0)
		return r;
	r = make_unique(t, &s);
	set_finish(&s, t->budget);
	return r;
}
