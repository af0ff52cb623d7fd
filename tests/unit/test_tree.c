/* SPDX-License-Identifier: Apache-2.0 */
/* The tree: paths in, nodes out; symlinks that lead somewhere, and those that do not. */
#include "archive/container.h"
#include "base/budget.h"
#include "content/derived.h"
#include "tree/internal.h"
#include "zip_help.h"

/* What dates.c calls, with a count of the bytes that it hashes, and of its walks to the root. */
static size_t n_hashed, n_walks;

static uint64_t counted_hash(uint64_t prefix, const void *data, size_t n)
{
	n_hashed += n;
	return tree_hash(prefix, data, n);
}

static uint64_t counted_words(uint64_t prefix, const uint64_t *words, size_t n)
{
	n_hashed += n * sizeof(*words);
	return tree_hash_words(prefix, words, n);
}

static struct lazy_dir *counted_lazy_above(const struct node *n)
{
	n_walks++;
	return node_lazy_above(n);
}

static struct tree *counted_tree(const struct node *n)
{
	n_walks++;
	return node_tree(n);
}

static char *counted_path(const struct node *n, char *ret)
{
	n_walks++;
	return tree_path(n, ret);
}

#define tree_hash counted_hash
#define tree_hash_words counted_words
#define node_lazy_above counted_lazy_above
#define node_tree counted_tree
#define tree_path counted_path
#include "tree/dates.c"
#undef tree_hash
#undef tree_hash_words
#undef node_lazy_above
#undef node_tree
#undef tree_path

/* What tests build: paths, in the order of path_compare(); NULL for a target: a file. */
struct plant {
	struct tree *tree;
	struct buf text; /* as MANIFEST: paths, each with a NUL */
	uint32_t lines[5000];
	const char *targets[5000];
	size_t n;
};

static struct plant *plant_new(void)
{
	struct plant *p = must(calloc(1, sizeof(*p)));

	assert_int_equal(tree_new(77, &p->tree), 0);
	p->tree->dates = DATES_ONE;
	p->text = buf_init(MIB);
	return p;
}

static void plant_add(struct plant *p, const char *path, const char *target)
{
	p->lines[p->n] = (uint32_t)p->text.len;
	p->targets[p->n++] = target;
	assert_int_equal(buf_add(&p->text, path, strlen(path) + 1), 0);
}

static void leaf(void *ctx, size_t i, struct node *n)
{
	const struct plant *p = ctx;

	n->kind = p->targets[i] ? NODE_SYMLINK : NODE_FILE;
	n->link.target = p->targets[i];
}

static struct tree *plant_build(struct plant *p)
{
	const struct tree_paths paths = { p->text.data, p->lines, p->n };
	uint64_t nodes, bytes;

	tree_count(&paths, &nodes, &bytes);
	assert_int_equal(tree_build(p->tree, &paths, nodes, leaf, p), 0);
	assert_int_equal(p->tree->n_nodes, nodes);
	assert_in_range(bytes, nodes * sizeof(struct node),
			nodes * sizeof(struct node) + p->text.len + 100);
	return p->tree;
}

static void plant_free(struct plant *p)
{
	tree_free(p->tree);
	buf_finish(&p->text);
	free(p);
}

static struct node *add(struct tree *t, struct node *parent, const char *name, enum node_kind kind)
{
	struct node *n = NULL;

	assert_int_equal(tree_add(t, parent, name, kind, &n), 0);
	return n;
}

/* Each node is found by its path, once, and its directory has it. */
static size_t check_walk(const struct tree *t)
{
	char text[MAX_PATH_LEN + 1];
	size_t n = 1;

	for (struct node *at = t->root; (at = tree_next(t->root, at)); n++) {
		const struct node_list *c = node_children(at->parent);

		assert_ptr_equal(tree_find(t, tree_path(at, text)), at);
		assert_in_range(at - c->list, 0, c->n - 1);
	}
	return n;
}

static void test_paths(void **state)
{
	/* in the order of path_compare() */
	static const char *const paths[] = {
		"a/b/c", "a/b/d", "a/b d", "a/b.c", "a b", "a.b/x", "z"
	};
	struct plant *p = plant_new();
	char text[MAX_PATH_LEN + 1];
	struct tree *t;
	struct node *n;
	size_t files = 0;

	(void)state;
	assert_int_equal(node_ino(p->tree->root), 1);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		plant_add(p, paths[i], NULL);
	t = plant_build(p);
	assert_int_equal(t->n_nodes, 1 + 7 + 3);
	assert_int_equal(t->root->plain.n, 4);
	assert_int_equal(t->root->plain.n_dirs, 2);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		n = tree_find(t, paths[i]);
		assert_non_null(n);
		assert_string_equal(tree_path(n, text), paths[i]);
		assert_int_equal(node_mtime(n), 77);
		assert_int_equal(node_size(n), 0);
		assert_ptr_equal(node_tree(n), t);
	}
	assert_ptr_equal(tree_find(t, ""), t->root);
	assert_string_equal(tree_path(t->root, text), "");
	assert_int_equal(tree_find(t, "a/b")->kind, NODE_DIR);
	assert_null(tree_find(t, "a/"
				 "/b"));
	assert_null(tree_find(t, "/a"));
	assert_null(tree_find(t, "b"));
	assert_null(tree_find(t, "z/x"));
	assert_null(tree_child(tree_find(t, "z"), "x"));
	/* each node once, and no other */
	for (n = t->root; (n = tree_next(t->root, n));)
		files += n->kind == NODE_FILE;
	assert_int_equal(files, 7);
	assert_int_equal(check_walk(t), t->n_nodes);
	files = 0;
	for (n = tree_find(t, "a"); n; n = tree_next(tree_find(t, "a"), n))
		files++;
	assert_int_equal(files, 6);
	plant_free(p);
	tree_free(NULL);
}

/* Every way in which few or many paths share directories. */
static void test_groups(void **state)
{
	(void)state;
	for (size_t wide = 1; wide < 40; wide++)
		for (size_t deep = 0; deep < 3; deep++) {
			struct plant *p = plant_new();
			char path[32];

			for (size_t i = 0; i < 300; i++) {
				snprintf(path, sizeof(path), "%s%03zu/%03zu", "a/b/" + 4 - 2 * deep,
					 i / wide, i);
				plant_add(p, path, NULL);
			}
			plant_build(p);
			assert_int_equal(check_walk(p->tree), 1 + deep + (299 / wide + 1) + 300);
			for (size_t i = 0; i < p->n; i++)
				assert_int_equal(
					tree_find(p->tree, p->text.data + p->lines[i])->kind,
					NODE_FILE);
			plant_free(p);
		}
}

/* What is added to the root moves the nodes there; more than there is room for, too. */
static void test_add_to_root(void **state)
{
	static const char *const names[] = { "b2", "a", "zz", "b0", "m" };
	struct plant *p = plant_new();
	struct tree *t;

	(void)state;
	plant_add(p, "b1/x/y", NULL);
	plant_add(p, "c", NULL);
	plant_add(p, "d/x", NULL);
	t = plant_build(p);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct node *n = add(t, t->root, names[i], NODE_DIR);

		assert_int_equal(tree_set_lazy(t, n), 0);
		assert_ptr_equal(n->lazy->dir, n);
		tree_sort(t->root);
		assert_ptr_equal(tree_child(t->root, names[i])->lazy->dir,
				 tree_child(t->root, names[i]));
		add(t, tree_child(t->root, names[i]), "below", NODE_FILE);
		tree_sort(t->root);
		assert_int_equal(check_walk(t), 1 + 6 + i + 1);
	}
	assert_int_equal(t->root->plain.n_dirs, 2 + 5);
	plant_free(p);
}

/* The nodes below `top` have places from *next on, each its own. Other numbers lead to no node. */
static void check_places(struct tree *t, struct node *top, uint64_t *next)
{
	const uint64_t n = top->lazy->nodes;

	for (const struct node *at = tree_next(top, top); at;
	     at = tree_next(top, (struct node *)at)) {
		uint64_t place = node_place(t, at);

		assert_in_range(place, PLACE_GENERATED | *next, PLACE_GENERATED | (*next + n - 1));
		assert_ptr_equal(tree_at(t, place), at); /* so no two have the same */
	}
	*next += n;
	assert_null(tree_at(t, PLACE_GENERATED | *next));
	assert_null(tree_at(t, *next));
	assert_null(tree_at(t, (uint64_t)(uintptr_t)top));
	assert_null(tree_at(t, PLACE_GENERATED | (uint64_t)(uintptr_t)top));
	assert_null(tree_at(t, UINT64_MAX));
}

/* Directories behind a gate grow, are sorted, finished, emptied and filled again. */
static void test_lazy(void **state)
{
	struct tree *t;
	struct node *top, *dir, *n;
	char name[32];
	uint64_t next = 0;

	(void)state;
	assert_int_equal(tree_new(0, &t), 0);
	top = add(t, t->root, "views", NODE_DIR);
	assert_int_equal(tree_set_lazy(t, top), 0);
	for (size_t count = 0; count < 300; count = count * 2 + 1) {
		for (size_t i = 0; i < count; i++) {
			snprintf(name, sizeof(name), "%03zu", i * 7 % 307);
			dir = add(t, top, name, i % 3 ? NODE_DIR : NODE_FILE);
			for (size_t k = 0; i % 3 && k < i % 11; k++) {
				snprintf(name, sizeof(name), "%zu", 20 - k);
				n = add(t, dir, name, k % 2 ? NODE_DIR : NODE_FILE);
				if (k % 2)
					assert_int_equal(tree_set_lazy(t, n), 0);
			}
		}
		assert_int_equal(tree_place(t, top), 0);
		assert_null(tree_find(t, "views/000"));
		for (size_t i = 0; i < count; i++) {
			snprintf(name, sizeof(name), "%03zu", i * 7 % 307);
			dir = tree_child(top, name);
			assert_ptr_equal(dir->parent, top);
			for (size_t k = 0; i % 3 && k < i % 11; k++) {
				snprintf(name, sizeof(name), "%zu", 20 - k);
				n = tree_child(dir, name);
				assert_ptr_equal(n->parent, dir);
				assert_true(!n->is_lazy || n->lazy->dir == n);
			}
		}
		check_places(t, top, &next);
		tree_clear(t, top);
		/* as after a failure: the next attempt has other places */
		assert_int_equal(t->n_nodes, 2);
	}
	tree_free(t);
}

/* No name is twice in a directory; were one, a walk would still see each node once and end. */
static void test_equal_names(void **state)
{
	static const char *const names[] = { "b", "a", "b", "b", "c" };
	struct tree *t;
	struct node *n;
	size_t seen = 0;

	(void)state;
	assert_int_equal(tree_new(0, &t), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_int_equal(tree_add(t, t->root, names[i], i % 2 ? NODE_FILE : NODE_DIR, &n),
				 0);
	tree_sort(t->root);
	for (n = t->root; n && seen < 100; n = tree_next(t->root, n))
		seen++;
	assert_int_equal(seen, 1 + ARRAY_SIZE(names));
	tree_free(t);
}

/* Of bytes that nobody reads: it has a hash that begins with `first`; 0: it has none. */
static struct object *object_new(struct object_store *s, uint8_t first)
{
	const uint8_t sha256[SHA256_SIZE] = { first };
	static const struct entry entry = { .name = "x", .size = 100, .stored = 100 };
	struct object *o = NULL;

	assert_int_equal(first ? object_add(s, sha256, &entry, &o) :
				 object_add_derived(s, "x", 100, NULL, NULL, &o),
			 0);
	return o;
}

static struct object_store *store_new(void)
{
	struct object_store *s = NULL;

	assert_int_equal(object_store_new(&(struct object_options){ 0 }, &s), 0);
	return s;
}

/* A literal; one of which NULs stand for something; a header before ranges that others share. */
static void test_extents(void **state)
{
	struct object_store *store = store_new();
	struct object *const object = object_new(store, 1);
	const struct extent text = { .literal = "text", .len = 4 };
	const struct extent parts[] = {
		{ .literal = "head", .len = 4 },
		{ .object = object, .off = 7, .len = 10 },
		{ .object = object, .off = 1, .len = 0 },
		{ .object = object, .off = 3, .len = 5, .whole = true },
	};
	const struct tensor_info info = { .name = "x" };
	const struct file_header *header;
	struct tree *t;
	struct node *n, *m;

	(void)state;
	assert_int_equal(tree_new(0, &t), 0);
	n = add(t, t->root, "n", NODE_FILE);
	assert_int_equal(node_size(n), 0);
	assert_int_equal(tree_set_extents(t, n, &text, 1, NULL), 0);
	assert_int_equal(node_n_extents(n), 1);
	assert_int_equal(node_size(n), 4);
	assert_true(node_size_is_certain(n));
	assert_null(node_object(n));
	assert_null(node_tensor(n));
	assert_memory_equal(node_extent(n, 0).literal, "text", 4);
	assert_int_equal(tree_set_extents(t, n, parts, 4, &info), 0);
	assert_ptr_equal(node_tensor(n), &info);
	assert_int_equal(tree_add_header(t, t->root, "HEADER", 6, &header), 0);
	m = add(t, t->root, "m", NODE_FILE);
	n = m - 1;
	assert_int_equal(tree_set_extents(t, m, parts + 1, 3, &info), 0);
	tree_set_header(m, header);
	for (size_t other = 0; other < 2; other++) {
		const struct node *at = other ? m : n;
		uint64_t start = other ? 6 : 4;

		assert_int_equal(node_n_extents(at), 4);
		assert_int_equal(node_size(at), start + 15);
		assert_int_equal(node_extent(at, 0).len, start);
		for (size_t i = 1; i < 4; i++) {
			struct extent x = node_extent(at, i);

			assert_null(x.literal);
			assert_int_equal(x.start, start);
			assert_int_equal(x.off, parts[i].off);
			assert_int_equal(x.len, parts[i].len);
			assert_int_equal(x.whole, parts[i].whole);
			start += x.len;
		}
	}
	tree_free(t);
	object_store_free(store);
}

/* Files with these extents have the same date if they have the same number in `same`. */
static void test_dates_of_extents(void **state)
{
	struct object_store *store = store_new();
	struct object *const one = object_new(store, 1), *const two = object_new(store, 2),
			     *const derived = object_new(store, 0);
	const struct {
		struct extent extent;
		size_t same;
	} files[] = {
		{ { .object = one, .len = 100, .whole = true }, 0 },
		/* a process may know the size, and the next one may not */
		{ { .object = one, .len = OBJECT_NO_SIZE, .whole = true }, 0 },
		{ { .object = two, .len = 100, .whole = true }, 2 },
		{ { .object = one, .len = 10 }, 3 },
		{ { .object = one, .len = 11 }, 4 },
		{ { .object = one, .off = 1, .len = 10 }, 5 },
		{ { .object = derived, .len = 100 }, 6 },
		{ { .object = derived, .len = OBJECT_NO_SIZE }, 6 },
	};
	const struct node *nodes;
	struct tree *t;
	struct node *n;

	(void)state;
	assert_int_equal(tree_new(0, &t), 0);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		n = add(t, t->root, "n", NODE_FILE);
		assert_int_equal(tree_set_extents(t, n, &files[i].extent, 1, NULL), 0);
	}
	/* all of an object has its date */
	n = add(t, t->root, "n", NODE_FILE);
	tree_set_object(t, n, one);
	nodes = node_children(t->root)->list;
	assert_int_equal(node_mtime(n), node_mtime(&nodes[0]));
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		for (size_t k = 0; k < ARRAY_SIZE(files); k++)
			assert_int_equal(node_mtime(&nodes[i]) == node_mtime(&nodes[k]),
					 files[i].same == files[k].same);
	tree_free(t);
	object_store_free(store);
}

/* A file that is the data of one tensor has no extents of its own. */
static void test_of_tensor(void **state)
{
	struct object *object = (struct object *)&state;
	const struct tensor_info info = { .bytes = 10, .off = 5, .whole = 1, .object = object };
	const struct file_header *header;
	struct extent x;
	struct tree *t;
	struct node *n;

	assert_int_equal(tree_new(0, &t), 0);
	n = add(t, t->root, "n", NODE_FILE);
	tree_set_tensor(n, &info);
	for (size_t headers = 0; headers < 2; headers++) {
		assert_ptr_equal(node_tensor(n), &info);
		assert_int_equal(node_n_extents(n), headers + 1);
		assert_int_equal(node_size(n), 10 + 6 * headers);
		x = node_extent(n, headers);
		assert_ptr_equal(x.object, object);
		assert_int_equal(x.off, 5);
		assert_int_equal(x.len, 10);
		assert_int_equal(x.start, 6 * headers);
		assert_true(x.whole);
		assert_int_equal(tree_add_header(t, t->root, "HEADER", 6, &header), 0);
		tree_set_header(n, header);
	}
	assert_true(node_size_is_certain(n));
	tree_free(t);
}

/* As deep and as long as a path may be: no recursion, and its path comes back whole. */
static void test_deep(void **state)
{
	char path[MAX_PATH_LEN + 1], text[MAX_PATH_LEN + 1];
	struct plant *p = plant_new();
	struct node *n;

	(void)state;
	for (size_t i = 0; i < MAX_PATH_LEN; i++)
		path[i] = i % 2 ? '/' : 'd';
	path[MAX_PATH_LEN] = '\0';
	plant_add(p, path, NULL);
	plant_build(p);
	n = tree_find(p->tree, path);
	assert_string_equal(tree_path(n, text), path);
	assert_int_equal(p->tree->n_nodes, 2 + MAX_PATH_LEN / 2);
	assert_int_equal(check_walk(p->tree), 2 + MAX_PATH_LEN / 2);
	plant_free(p);
}

/* The bytes that are hashed to number one path of so many directories. */
static size_t work_of_depth(size_t depth)
{
	char path[MAX_PATH_LEN + 1];
	struct plant *p = plant_new();
	size_t n = 0;

	for (size_t i = 0; i < depth; i++) {
		path[n++] = 'd';
		path[n++] = '/';
	}
	path[n++] = 'f';
	path[n] = '\0';
	plant_add(p, path, "t");
	plant_build(p);
	n_hashed = n_walks = 0;
	assert_int_equal(tree_number(p->tree), 0);
	n = n_hashed;
	assert_int_equal(n_walks, 0);
	/* the counters work */
	assert_in_range(node_ino(tree_find(p->tree, path)), 16, (1ULL << 47) - 1);
	assert_in_range(n_hashed - n, depth + 1, SIZE_MAX);
	assert_true(n_walks > 0);
	plant_free(p);
	return n;
}

/* Opening takes the same work for each node, however deep it is. */
static void test_work(void **state)
{
	size_t shallow = work_of_depth(500), deep = work_of_depth(2000);

	(void)state;
	assert_in_range(shallow, 500, SIZE_MAX);
	assert_in_range(deep, 2000, 4 * shallow);
}

static void test_max_nodes(void **state)
{
	struct log_seen *seen = log_watch();
	struct node *n = NULL, *dir;
	struct tree *t;

	(void)state;
	assert_int_equal(tree_new(0, &t), 0);
	t->n_nodes = MAX_NODES - 2;
	dir = add(t, t->root, "a", NODE_DIR);
	add(t, dir, "b", NODE_FILE);
	assert_int_equal(t->n_nodes, MAX_NODES);
	assert_int_equal(tree_add(t, dir, "c", NODE_FILE, &n), -EFBIG);
	assert_int_equal(tree_add(t, t->root, "d", NODE_DIR, &n), -EFBIG);
	assert_null(n);
	assert_says(seen, "more than 8000000 files and directories");
	carton_log_set(NULL, NULL);
	tree_free(t);
}

/*
 * Pairs of symlinks to "t" that have the same inode number at first: a search of 90 million paths
 * found them. The earlier path keeps the number. No number may ever change, as other machines show
 * the same ones.
 */
static void test_clash(void **state)
{
	static const struct {
		const char *path;
		uint64_t first, last;
	} links[] = {
		{ "l020144f", 0x5c51c5aae1c6, 0x5c51c5aae1c6 },
		{ "l096d78f", 0x28a36cbde2a3, 0x28a36cbde2a3 },
		{ "l2069b1e", 0x5c51c5aae1c6, 0x6eb64e29ef0c },
		{ "l39916f6", 0x28a36cbde2a3, 0x37d453378d94 },
		{ "other", 0x2ef2704f9ff3, 0x2ef2704f9ff3 },
	};
	struct budget budget = { .limit = MIB };
	struct plant *p = plant_new();
	struct tree *t;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		plant_add(p, links[i].path, "t");
	t = plant_build(p);
	t->budget = &budget;
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		assert_int_equal(node_ino(tree_find(t, links[i].path)), links[i].first);
	assert_int_equal(tree_number(t), 0);
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		assert_int_equal(node_ino(tree_find(t, links[i].path)), links[i].last);
	/* what it takes meanwhile is given back, and is refused if it is too much */
	assert_int_equal(budget.tables, t->cap_renumbered * sizeof(struct numbered));
	t->n_nodes = MAX_NODES;
	assert_int_equal(tree_number(t), -EFBIG);
	assert_int_equal(budget.tables, t->cap_renumbered * sizeof(struct numbered));
	plant_free(p);
}

/* Other names, targets and places of what is below a directory change its date. */
static void test_dates(void **state)
{
	static const char *const trees[][2] = {
		{ "dir/a", "x" }, { "dir/a", "y" }, { "dir/b", "x" }, { "dir/a/b", "x" }
	};
	int64_t dates[ARRAY_SIZE(trees)];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(trees); i++) {
		struct plant *p = plant_new();
		struct tree *t;

		plant_add(p, trees[i][0], trees[i][1]);
		t = plant_build(p);
		t->dates = DATES_BY_CONTENT;
		assert_int_equal(tree_number(t), 0);
		dates[i] = node_mtime(tree_find(t, "dir"));
		/* 1990 to January 2007, as a zip can keep it */
		assert_in_range(dates[i], 631152000, 631152000 + 2 * ((1 << 28) - 1));
		assert_int_equal(dates[i] % 2, 0);
		for (size_t k = 0; k < i; k++)
			assert_int_not_equal(dates[k], dates[i]);
		plant_free(p);
	}
}

/* Literals that are owned: up to the bound, one more is refused; freed, there is room again. */
static void test_owned(void **state)
{
	struct tree *t;
	struct node *dir;
	uint64_t nodes;

	(void)state;
	assert_int_equal(tree_new(0, &t), 0);
	dir = add(t, t->root, "d", NODE_DIR);
	assert_int_equal(tree_set_lazy(t, dir), 0);
	nodes = t->n_nodes;
	for (size_t n = 1; n <= 2; n++) {
		struct extent e = { .literal = must(calloc(1, n)), .len = n };
		struct node *file;

		t->owned = MAX_VIEW_MEMORY - 1;
		assert_int_equal(tree_add(t, dir, "f", NODE_FILE, &file), 0);
		assert_int_equal(tree_set_extents(t, file, &e, 1, NULL), 0);
		assert_int_equal(tree_own(t, dir, (void *)e.literal, n), n == 1 ? 0 : -EFBIG);
		if (n > 1)
			free((void *)e.literal);
		tree_clear(t, dir);
		assert_int_equal(t->owned, MAX_VIEW_MEMORY - 1);
		assert_int_equal(t->n_nodes, nodes);
	}
	tree_free(t);
}

/* What is behind a gate is counted as long as it is there, and refused when there is no room. */
static void test_budget(void **state)
{
	struct log_seen *seen = log_watch();
	struct budget budget = { .limit = 100000 };
	struct node *dir, *n;
	struct tree *t;
	char name[16];
	int r = 0;

	(void)state;
	assert_int_equal(tree_new(0, &t), 0);
	t->budget = &budget;
	dir = add(t, t->root, "d", NODE_DIR);
	assert_int_equal(tree_set_lazy(t, dir), 0);
	for (size_t round = 0; round < 2; round++) {
		size_t i;

		for (i = 0, r = 0; r == 0 && i < 10000; i++) {
			snprintf(name, sizeof(name), "%zu", i);
			r = tree_add(t, dir, name, NODE_FILE, &n);
			assert_true(budget.tables >= i * sizeof(struct node));
		}
		assert_int_equal(r, -EFBIG);
		assert_in_range(i, 1000, 2400);
		assert_says(seen, "of memory, and the limit is");
		tree_clear(t, dir);
		assert_int_equal(budget.tables, 0);
		assert_int_equal(budget.used, 0);
	}
	carton_log_set(NULL, NULL);
	tree_free(t);
}

static void test_links(void **state)
{
	static const struct {
		const char *path, *target, *to; /* NULL: nowhere */
	} links[] = {
		{ "dir/l00", "file", "dir/file" },
		{ "dir/l01", "./file", "dir/file" },
		{ "dir/l02", "../top", "top" },
		{ "dir/l03", "..//dir/./sub/../file", "dir/file" },
		{ "dir/l04", "sub/deep", "dir/sub/deep" },
		{ "dir/l05", "l00", "dir/file" },
		{ "dir/l06", "sub", "dir/sub" },
		{ "dir/l07", "..", "dir/.." },
		{ "dir/l08", "../../top", NULL },
		{ "dir/l09", "/top", NULL },
		{ "dir/l10", "none", NULL },
		{ "dir/l11", "none/../file", NULL },
		{ "dir/l12", "file/../file", NULL },
		{ "dir/l13", "file/", NULL },
		{ "dir/l14", "file/.", NULL },
		{ "dir/l15", "l15", NULL },
		{ "dir/l16", "l17", NULL },
		{ "dir/l17", "l16", NULL },
		{ "dir/l18", "sub/", "dir/sub" },
	};
	struct plant *p = plant_new();
	char name[400];
	struct tree *t;

	(void)state;
	plant_add(p, "dir/file", NULL);
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		plant_add(p, links[i].path, links[i].target);
	memset(name, 'n', MAX_COMPONENT + 1);
	name[MAX_COMPONENT + 1] = '\0';
	plant_add(p, "dir/m", name);
	plant_add(p, "dir/sub/deep", NULL);
	/* a kernel would leave the mount by these */
	plant_add(p, "l19", "/top");
	plant_add(p, "l20", "../top");
	plant_add(p, "top", NULL);
	t = plant_build(p);
	assert_null(tree_resolve(tree_find(t, "l19")));
	assert_null(tree_resolve(tree_find(t, "l20")));
	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		const char *to = links[i].to;
		struct node *want = !to			      ? NULL :
				    strcmp(to, "dir/..") == 0 ? t->root :
								tree_find(t, to);

		if (tree_resolve(tree_find(t, links[i].path)) != want)
			fail_msg("%s -> %s", links[i].path, links[i].target);
	}
	assert_null(tree_resolve(tree_find(t, "dir/m")));
	assert_null(tree_resolve(NULL));
	assert_ptr_equal(tree_resolve(t->root), t->root);
	plant_free(p);
}

static void test_hops(void **state)
{
	char name[16], targets[MAX_SYMLINK_HOPS + 2][16];
	struct plant *p = plant_new();
	struct tree *t;

	(void)state;
	plant_add(p, "a000", NULL);
	for (size_t i = 1; i <= MAX_SYMLINK_HOPS + 1; i++) {
		snprintf(name, sizeof(name), "a%03zu", i);
		snprintf(targets[i], sizeof(targets[i]), "a%03zu", i - 1);
		plant_add(p, name, targets[i]);
	}
	t = plant_build(p);
	snprintf(name, sizeof(name), "a%03d", MAX_SYMLINK_HOPS);
	assert_ptr_equal(tree_resolve(tree_find(t, name)), tree_find(t, "a000"));
	snprintf(name, sizeof(name), "a%03d", MAX_SYMLINK_HOPS + 1);
	assert_null(tree_resolve(tree_find(t, name)));
	plant_free(p);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_add_to_root),
		cmocka_unit_test(test_lazy),
		cmocka_unit_test(test_equal_names),
		cmocka_unit_test(test_extents),
		cmocka_unit_test(test_of_tensor),
		cmocka_unit_test(test_deep),
		cmocka_unit_test(test_dates_of_extents),
		cmocka_unit_test(test_work),
		cmocka_unit_test(test_max_nodes),
		cmocka_unit_test(test_clash),
		cmocka_unit_test(test_dates),
		cmocka_unit_test(test_owned),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_links),
		cmocka_unit_test(test_hops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
