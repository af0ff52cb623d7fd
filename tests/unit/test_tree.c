/* SPDX-License-Identifier: Apache-2.0 */
/* The tree: paths in, nodes out; symlinks that lead somewhere, and those that do not. */
#include "archive/container.h"
#include "tree/tree.h"
#include "zip_help.h"

static struct node *add(struct tree *t, const char *path, enum node_kind kind)
{
	struct node *n = NULL;

	assert_int_equal(tree_add_path(t, path, kind, &n), 0);
	return n;
}

static struct node *add_link(struct tree *t, const char *path, const char *target)
{
	struct node *n = add(t, path, NODE_SYMLINK);

	n->link.target = must(strdup(target));
	return n;
}

static void test_paths(void **state)
{
	/* in the order of path_compare() */
	static const char *const paths[] = {
		"a/b/c", "a/b/d", "a/b d", "a/b.c", "a b", "a.b/x", "z"
	};
	char text[MAX_PATH_LEN + 1];
	struct tree *t;
	struct node *n;
	size_t files = 0;

	(void)state;
	assert_int_equal(tree_new(77, &t), 0);
	assert_int_equal(t->root->ino, 1);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		add(t, paths[i], NODE_FILE);
	tree_sort(t->root);
	assert_int_equal(t->n_files, 7);
	assert_int_equal(t->n_nodes, 1 + 7 + 3);
	assert_int_equal(t->root->dir.n, 4);
	assert_int_equal(t->root->dir.n_dirs, 2);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		n = tree_find(t, paths[i]);
		assert_non_null(n);
		assert_string_equal(tree_path(n, text), paths[i]);
		assert_int_equal(n->mtime, 77);
		assert_int_equal(n->file.size, 0);
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
	for (n = tree_next(t->root, t->root); n; n = tree_next(t->root, n)) {
		files += n->kind == NODE_FILE;
		assert_ptr_equal(tree_find(t, tree_path(n, text)), n);
	}
	assert_int_equal(files, 7);
	files = 0;
	for (n = tree_find(t, "a"); n; n = tree_next(tree_find(t, "a"), n))
		files++;
	assert_int_equal(files, 6);
	tree_free(t);
	tree_free(NULL);
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
		assert_int_equal(
			tree_add(t, t->root, names[i], 1, i % 2 ? NODE_FILE : NODE_DIR, &n), 0);
	tree_sort(t->root);
	for (n = t->root; n && seen < 100; n = tree_next(t->root, n))
		seen++;
	assert_int_equal(seen, 1 + ARRAY_SIZE(names));
	tree_free(t);
}

static void test_literal(void **state)
{
	struct tree *t;
	struct node *n;

	(void)state;
	assert_int_equal(tree_new(0, &t), 0);
	n = add(t, "MANIFEST", NODE_FILE);
	tree_set_literal(t, n, "text", 4);
	assert_int_equal(n->file.n, 1);
	assert_int_equal(n->file.size, 4);
	assert_int_equal(t->bytes, 4);
	tree_free(t);
}

/* As deep and as long as a path may be: no recursion, and its path comes back whole. */
static void test_deep(void **state)
{
	char path[MAX_PATH_LEN + 1], text[MAX_PATH_LEN + 1];
	struct tree *t;
	struct node *n;

	(void)state;
	for (size_t i = 0; i < MAX_PATH_LEN; i++)
		path[i] = i % 2 ? '/' : 'd';
	path[MAX_PATH_LEN] = '\0';
	assert_int_equal(tree_new(0, &t), 0);
	n = add(t, path, NODE_FILE);
	tree_sort(t->root);
	assert_string_equal(tree_path(n, text), path);
	assert_ptr_equal(tree_find(t, path), n);
	assert_int_equal(t->n_nodes, 2 + MAX_PATH_LEN / 2);
	tree_free(t);
}

static void test_max_nodes(void **state)
{
	struct log_seen *seen = log_watch();
	struct node *n = NULL;
	struct tree *t;

	(void)state;
	assert_int_equal(tree_new(0, &t), 0);
	t->n_nodes = MAX_NODES - 2;
	add(t, "a/b", NODE_FILE);
	assert_int_equal(t->n_nodes, MAX_NODES);
	assert_int_equal(tree_add_path(t, "a/c", NODE_FILE, &n), -EFBIG);
	assert_int_equal(tree_add(t, t->root, "d", 1, NODE_DIR, &n), -EFBIG);
	assert_null(n);
	assert_says(seen, "more than 8000000 files and directories");
	carton_log_set(NULL, NULL);
	tree_free(t);
}

/* Literals that files own: up to the bound, one more is refused; freed, there is room again. */
static void test_owned(void **state)
{
	struct tree *t;
	struct node *dir;
	uint64_t nodes;

	(void)state;
	assert_int_equal(tree_new(0, &t), 0);
	dir = add(t, "d", NODE_DIR);
	nodes = t->n_nodes;
	for (size_t n = 1; n <= 2; n++) {
		struct extent e = { .literal = must(calloc(1, n)), .len = n };
		struct node *file;

		t->owned = MAX_VIEW_MEMORY - 1;
		assert_int_equal(tree_add(t, dir, "f", 1, NODE_FILE, &file), 0);
		assert_int_equal(tree_set_extents(t, file, &e, 1), 0);
		assert_int_equal(tree_own_literal(t, file), n == 1 ? 0 : -EFBIG);
		if (n > 1)
			free((void *)e.literal);
		tree_clear(t, dir);
		assert_int_equal(t->owned, MAX_VIEW_MEMORY - 1);
		assert_int_equal(t->n_nodes, nodes);
		assert_int_equal(t->n_files, 0);
		assert_int_equal(t->bytes, 0);
	}
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
	char name[400];
	struct tree *t;

	(void)state;
	assert_int_equal(tree_new(0, &t), 0);
	add(t, "dir/file", NODE_FILE);
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		add_link(t, links[i].path, links[i].target);
	memset(name, 'n', MAX_COMPONENT + 1);
	name[MAX_COMPONENT + 1] = '\0';
	add_link(t, "dir/m", name);
	add(t, "dir/sub/deep", NODE_FILE);
	add(t, "top", NODE_FILE);
	tree_sort(t->root);
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
	tree_free(t);
}

static void test_hops(void **state)
{
	char name[16], target[16];
	struct tree *t;

	(void)state;
	assert_int_equal(tree_new(0, &t), 0);
	add(t, "a000", NODE_FILE);
	for (size_t i = 1; i <= MAX_SYMLINK_HOPS + 1; i++) {
		snprintf(name, sizeof(name), "a%03zu", i);
		snprintf(target, sizeof(target), "a%03zu", i - 1);
		add_link(t, name, target);
	}
	tree_sort(t->root);
	snprintf(name, sizeof(name), "a%03d", MAX_SYMLINK_HOPS);
	assert_ptr_equal(tree_resolve(tree_find(t, name)), tree_find(t, "a000"));
	snprintf(name, sizeof(name), "a%03d", MAX_SYMLINK_HOPS + 1);
	assert_null(tree_resolve(tree_find(t, name)));
	tree_free(t);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths),	  cmocka_unit_test(test_equal_names),
		cmocka_unit_test(test_literal),	  cmocka_unit_test(test_deep),
		cmocka_unit_test(test_max_nodes), cmocka_unit_test(test_owned),
		cmocka_unit_test(test_links),	  cmocka_unit_test(test_hops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
