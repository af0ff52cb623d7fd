/* SPDX-License-Identifier: Apache-2.0 */
#include "open/load.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "open/load_lines.h"
#include "views/views.h"

/* ---- nodes ---- */

/*
 * Counts what the nodes take, before they are made: one long path may be of thousands of
 * directories.
 */
static int count_nodes(const struct loader *l, uint64_t *ret)
{
	const struct tree_paths all = { l->m->text, l->m->lines, l->m->n };
	uint64_t bytes;

	tree_count(&all, ret, &bytes);
	if (*ret + 1 > MAX_NODES)
		return log_error(-EFBIG, NULL, "more than %d files and directories", MAX_NODES);
	return budget_take(l->c->budget, bytes);
}

static void add_leaf(void *ctx, size_t i, struct node *n)
{
	const struct loader *l = ctx;
	const struct entry *e = l->entries[i] == NO_ENTRY ? NULL : &l->c->entries[l->entries[i]];
	size_t low = 0, high = l->n_special;

	n->kind = NODE_FILE;
	if (e && e->kind == ENTRY_FILE) {
		tree_set_entry(l->tree, n, e);
		return;
	}
	while (high - low > 1) {
		size_t mid = low + (high - low) / 2;

		if (l->special[mid].line <= i)
			low = mid;
		else
			high = mid;
	}
	if (!e) {
		tree_set_object(l->tree, n, l->special[low].object);
		return;
	}
	n->kind = NODE_SYMLINK;
	n->link.entry = e;
	n->link.target = l->special[low].target;
}

/*
 * Nobody opens an entry that is not listed, so its local header is compared now, unless that costs
 * a request. 0, also with a fault, which is logged; or of the system.
 */
static int check_place(struct loader *l, const struct entry *e)
{
	struct source *source;
	uint64_t off;
	int r;

	if (!l->c->one_file || l->c->remote)
		return 0;
	r = container_locate(l->c, e, &source, &off);
	if (r == 0)
		source_unref(source);
	l->faults += r == -EBADMSG;
	return r == -EBADMSG ? 0 : r;
}

/* `keep_going`: their headers are compared later, by carton_verify(). */
static int report_unlisted(struct loader *l, bool keep_going)
{
	const char *listed = l->m->text, *end = listed + l->m->size;
	struct load_views views = { 0 };
	size_t n = 0;
	int r = 0;

	for (size_t i = 0; i < l->c->n_entries && r == 0 && l->faults < MAX_REPORTED; i++) {
		const struct entry *e = &l->c->entries[i];

		if (e->kind == ENTRY_DIR || (e->name >= listed && e->name < end) ||
		    strcmp(e->name, "MANIFEST") == 0 || strcmp(e->name, "LINKS") == 0 ||
		    manifest_leaves_out(l->m, e->name))
			continue;
		if (load_in_views(l->c, e, &views))
			continue;
		if (n++ < MAX_REPORTED)
			carton_log(CARTON_LOG_WARNING, e->name,
				   "is not listed in MANIFEST: not shown");
		r = keep_going ? 0 : check_place(l, e);
	}
	if (n > MAX_REPORTED)
		carton_log(CARTON_LOG_WARNING, NULL, "%zu more entries are not listed in MANIFEST",
			   n - MAX_REPORTED);
	return r;
}

/* Sets the content of MANIFEST to `late`, which is made when all hashes are known. */
static int set_late_manifest(struct loader *l, struct node *n, struct object *late)
{
	const struct extent all = { .object = late, .len = l->m->size, .whole = true };

	return tree_set_extents(l->tree, n, &all, 1, NULL);
}

static int add_manifest(struct loader *l, struct object *late)
{
	struct tree *t = l->tree;
	struct file_header *text = arena_alloc(&t->arena, sizeof(*text));
	struct node *n;
	int r = text ? tree_add(t, t->root, "MANIFEST", NODE_FILE, &n) : -ENOMEM;

	if (r < 0)
		return r;
	*text = (struct file_header){
		.data = l->m->text,
		.len = l->m->size,
		.nul = '=', /* its paths end with a NUL */
		.mark = l->tree->model,
		.entry = container_find(l->c, "MANIFEST"),
	};
	n->has_body = true;
	n->body.header = text;
	r = late ? set_late_manifest(l, n, late) : 0;
	t->files++;
	t->bytes += l->m->size;
	tree_sort(t->root);
	return r;
}

/* ---- symlinks ---- */

static const char *check_link(const struct loader *l, struct node *link)
{
	const struct node *at = tree_resolve(link);
	uint8_t sha256[SHA256_SIZE];

	if (at && at->kind == NODE_DIR)
		return "is a symlink to a directory, and those of a carton lead to files: "
		       "cartonctl pack --dereference packs what is in the directory";
	if (!at || at->kind != NODE_FILE || !node_object(at))
		return "is a symlink that does not lead to a file that MANIFEST lists, by a "
		       "relative path inside the carton and without a loop";
	if (l->m->unhashed)
		return NULL;
	manifest_hash(link->name, sha256);
	if (memcmp(object_sha256(node_object(at)), sha256, SHA256_SIZE) != 0)
		return "is a symlink to a file whose hash is not the one that MANIFEST gives the "
		       "link";
	return NULL;
}

static void check_links(struct loader *l)
{
	char path[MAX_PATH_LEN + 1];
	bool any = false;

	for (size_t i = 0; i < l->n_special && !any; i++)
		any = l->special[i].target;
	for (struct node *n = l->tree->root; n && any; n = tree_next(l->tree->root, n)) {
		const char *what = n->kind == NODE_SYMLINK ? check_link(l, n) : NULL;

		if (what)
			load_fault(l, tree_path(n, path), what);
	}
}

static int build(struct loader *l, const struct load_input *in)
{
	struct tree_paths paths = { .text = l->m->text };
	uint64_t nodes;
	int r = count_nodes(l, &nodes);

	if (r == 0)
		r = load_match_entries(l);
	if (r == 0)
		r = load_check_lines(l);
	paths.lines = l->lines;
	paths.n = l->n;
	if (r == 0)
		r = tree_build(l->tree, &paths, nodes, add_leaf, l);
	if (r == 0 && !l->bare)
		r = add_manifest(l, in->late);
	if (r < 0)
		return r;
	check_links(l);
	r = report_unlisted(l, in->keep_going);
	if (r < 0)
		return r;
	if (l->faults > MAX_REPORTED)
		carton_log(CARTON_LOG_ERROR, NULL, "%zu more faults like these",
			   l->faults - MAX_REPORTED);
	return l->faults && !in->keep_going ? -EBADMSG : 0;
}

int load_tree(const struct load_input *in, struct tree **ret, size_t *ret_faults)
{
	struct loader l = {
		.c = in->container,
		.m = in->manifest,
		.links = in->links,
		.store = in->store,
		.bare = in->bare,
		.said_bad_url = in->held,
	};
	int r = tree_new(in->date ? in->date : l.c->mtime, &l.tree);

	if (r < 0)
		return r;
	l.tree->store = l.store;
	l.tree->model = tree_mark(l.m->model_hash);
	l.tree->dates = in->date || (in->bare && l.c->dated) ? DATES_ONE :
			l.c->dated			     ? DATES_OWN :
							       DATES_BY_CONTENT;
	l.tree->budget = l.c->budget;
	l.entries = calloc(l.m->n + 1, sizeof(*l.entries));
	r = l.entries ? build(&l, in) : -ENOMEM;
	free(l.good);
	free(l.entries);
	free(l.special);
	if (r < 0) {
		tree_free(l.tree);
		return r;
	}
	*ret = l.tree;
	*ret_faults = l.faults;
	return 0;
}
