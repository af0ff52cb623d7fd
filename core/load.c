/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"

/* 64 hex digits as people paste them, in either case. */
static bool read_pin(const char *pin, uint8_t ret[SHA256_SIZE])
{
	char lower[2 * SHA256_SIZE + 1];
	size_t n = strlen(pin);

	if (n != 2 * SHA256_SIZE)
		return false;
	for (size_t i = 0; i <= n; i++)
		lower[i] = (char)(pin[i] >= 'A' && pin[i] <= 'F' ? pin[i] | 32 : pin[i]);
	return hex_decode(lower, SHA256_SIZE, ret);
}

int load_manifest(struct container *c, const char *pin, struct manifest **ret)
{
	const struct entry *e = container_find(c, "MANIFEST");
	uint8_t wanted[SHA256_SIZE];
	struct buf text = { 0 };
	struct manifest *m;
	char hex[2 * SHA256_SIZE + 1];
	int r;

	if (pin && !read_pin(pin, wanted)) {
		carton_log(CARTON_LOG_ERROR, NULL,
			   "manifest_sha256 must be 64 hex digits, not \"%s\"", pin);
		return -EINVAL;
	}
	if (!e || e->kind != ENTRY_FILE) {
		carton_log(CARTON_LOG_ERROR, "MANIFEST", "%s, so this is not a carton",
			   e ? "is not a regular file" : "is missing");
		return -EBADMSG;
	}
	r = container_read(c, e, MAX_MANIFEST, &text);
	if (r < 0) {
		buf_free(&text);
		return r;
	}
	r = manifest_parse(text.data, text.len, c->budget, &m);
	if (r < 0)
		return r;
	if (pin && memcmp(m->model_hash, wanted, SHA256_SIZE) != 0) {
		hex_encode(m->model_hash, SHA256_SIZE, hex);
		carton_log(CARTON_LOG_ERROR, "MANIFEST",
			   "this is not the model asked for: its hash is %s, not %s", hex, pin);
		manifest_free(m);
		return -EBADMSG;
	}
	*ret = m;
	return 0;
}

int load_links(struct container *c, struct links **ret)
{
	const struct entry *e = container_find(c, "LINKS");
	struct buf text = { 0 };
	int r;

	*ret = NULL;
	if (!e)
		return 0;
	if (e->kind != ENTRY_FILE) {
		carton_log(CARTON_LOG_ERROR, "LINKS", "is not a regular file");
		return -EBADMSG;
	}
	r = container_read(c, e, MAX_LINKS_FILE, &text);
	if (r == 0)
		r = budget_take(c->budget, LINKS_EXPANSION * text.len);
	if (r == 0)
		r = links_parse(text.data, text.len, ret);
	buf_free(&text);
	return r;
}

int load_ahead(struct container *c)
{
	static const char *const names[] = { "MANIFEST", "LINKS", "carton.toml" };
	const struct entry **list;
	size_t n = 0;
	int r;

	if (!c->remote)
		return 0;
	list = malloc((c->n_entries + 1) * sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const struct entry *e = container_find(c, names[i]);

		if (e && e->kind == ENTRY_FILE)
			list[n++] = e;
	}
	for (size_t i = 0; i < c->n_entries; i++)
		if (c->entries[i].kind == ENTRY_SYMLINK)
			list[n++] = &c->entries[i];
	r = container_prefetch(c, list, n);
	free(list);
	return r;
}

/* ---- nodes ---- */

struct loader {
	struct container *c;
	const struct manifest *m;
	const struct links *links;
	struct object_store *store;
	struct tree *tree;
	size_t faults;
};

static void fault(struct loader *l, const char *path, const char *what)
{
	if (l->faults < MAX_REPORTED)
		carton_log(CARTON_LOG_ERROR, path, "%s", what);
	l->faults++;
}

static int add_symlink(struct loader *l, const struct manifest_line *line, const struct entry *e,
		       struct node **ret)
{
	struct buf target = { 0 };
	int r = container_readlink(l->c, e, &target);

	if (r == -EBADMSG || r == -EFBIG) {
		fault(l, line->path, "its target cannot be read");
		r = 0;
		goto out;
	}
	if (r < 0)
		goto out;
	if (target.len == 0 || memchr(target.data, '\0', target.len) ||
	    !utf8_valid(target.data, target.len)) {
		fault(l, line->path, "is a symlink whose target is not a path");
		goto out;
	}
	r = tree_add_path(l->tree, line->path, NODE_SYMLINK, ret);
	if (r < 0)
		goto out;
	(*ret)->link.target = target.data;
	memcpy((*ret)->link.sha256, line->sha256, SHA256_SIZE);
	return 0;
out:
	buf_free(&target);
	return r;
}

static int links_fault(struct loader *l, size_t line, const char *what, const char *path)
{
	char at[32] = "";

	if (line)
		snprintf(at, sizeof(at), "line %zu: ", line);
	carton_log(CARTON_LOG_ERROR, "LINKS", "%s%s; needed by \"%s\"", at, what, path);
	l->faults++;
	return 0;
}

/* A path that the container does not have: the same bytes under another name, or LINKS. */
static int add_missing(struct loader *l, const struct manifest_line *line)
{
	struct link *link = links_find(l->links, line->sha256);
	struct object *o;
	struct node *n;
	int r = object_add_link(l->store, line->sha256, line->path, link, &o);

	if (r == -ENOENT && l->links && *l->links->error.message)
		return links_fault(l, l->links->error.line, l->links->error.message, line->path);
	if (r == -ENOENT) {
		fault(l, line->path,
		      "is listed in MANIFEST, but neither the carton nor LINKS has it");
		return 0;
	}
	if (r < 0)
		return r;
	if (!object_entry(o) && *l->links->error.message)
		return links_fault(l, l->links->error.line, l->links->error.message, line->path);
	if (!object_entry(o) && link->fault)
		return links_fault(l, link->line, link->fault, line->path);
	r = tree_add_path(l->tree, line->path, NODE_FILE, &n);
	if (r < 0)
		return r;
	tree_set_object(l->tree, n, o);
	n->mtime = l->c->mtime;
	return 0;
}

/* Adds the node of one line; `o` is the object of its entry, where that is a file. */
static int add_line(struct loader *l, const struct manifest_line *line)
{
	const struct entry *e = container_find(l->c, line->path);
	struct node *n = NULL;
	int r;

	if (!e)
		return add_missing(l, line);
	if (e->kind == ENTRY_DIR) {
		fault(l, line->path, "is listed in MANIFEST, but it is a directory");
		return 0;
	}
	r = e->kind == ENTRY_FILE ? tree_add_path(l->tree, line->path, NODE_FILE, &n) :
				    add_symlink(l, line, e, &n);
	if (r < 0 || !n)
		return r;
	if (n->kind == NODE_FILE)
		tree_set_entry(l->tree, n, e, line->sha256);
	n->executable = e->executable;
	n->mtime = e->mtime == NO_TIME ? l->c->mtime : e->mtime;
	return 0;
}

/* For paths that the container lacks: another entry may have the same bytes. */
static int add_objects(struct loader *l)
{
	const struct manifest *m = l->m;
	struct object *o;
	int r = 0;

	for (size_t i = 0; i < m->n && r == 0; i++) {
		const struct entry *e = container_find(l->c, m->lines[i].path);

		if (e && e->kind == ENTRY_FILE)
			r = object_add(l->store, m->lines[i].sha256, e, &o);
	}
	return r;
}

static int add_lines(struct loader *l)
{
	const struct manifest *m = l->m;
	bool missing = false;
	int r = 0;

	for (size_t i = 0; i < m->n && !missing; i++)
		missing = !container_find(l->c, m->lines[i].path);
	if (missing)
		r = add_objects(l);
	for (size_t i = 0; i < m->n && r == 0; i++)
		r = add_line(l, &m->lines[i]);
	return r;
}

const struct entry *load_find_entry(const struct container *c, const struct manifest *m,
				    const struct object *o, size_t *line)
{
	while (*line < m->n) {
		const struct manifest_line *at = &m->lines[(*line)++];
		const struct entry *e;

		if (memcmp(at->sha256, object_sha256(o), SHA256_SIZE) != 0)
			continue;
		e = container_find(c, at->path);
		if (e && e->kind == ENTRY_FILE && e->size == object_size(o))
			return e;
	}
	return NULL;
}

/*
 * Counts what add_lines() will allocate, before it does: one long path may stand for thousands of
 * directories. In sorted lines, the directories that a line does not share with the one before are new.
 */
static int count_nodes(const struct loader *l)
{
	uint64_t nodes = 2, names = 0;
	const char *last = "";

	for (size_t i = 0; i < l->m->n; last = l->m->lines[i++].path) {
		const char *path = l->m->lines[i].path;
		size_t same = 0, at;

		for (at = 0; path[at] && path[at] == last[at]; at++)
			if (path[at] == '/')
				same = at + 1;
		nodes++;
		for (at = same; path[at]; at++)
			nodes += path[at] == '/';
		names += at - same;
	}
	if (nodes > MAX_NODES) {
		carton_log(CARTON_LOG_ERROR, NULL, "more than %d files and directories", MAX_NODES);
		return -EFBIG;
	}
	return budget_take(l->c->budget, names + nodes * tree_node_cost);
}

static void report_unlisted(const struct loader *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->c->n_entries; i++) {
		const struct entry *e = &l->c->entries[i];

		if (e->kind == ENTRY_DIR || manifest_find(l->m, e->name) ||
		    strcmp(e->name, "MANIFEST") == 0 || strcmp(e->name, "LINKS") == 0)
			continue;
		if (n++ < MAX_REPORTED)
			carton_log(CARTON_LOG_WARNING, e->name,
				   "is not listed in MANIFEST: not shown");
	}
	if (n > MAX_REPORTED)
		carton_log(CARTON_LOG_WARNING, NULL, "%zu more entries are not listed in MANIFEST",
			   n - MAX_REPORTED);
}

/* ---- symlinks ---- */

static const char *check_link(struct node *link)
{
	const struct node *at = tree_resolve(link);

	if (!at || at->kind != NODE_FILE || !node_object(at))
		return "is a symlink that does not lead to a file that MANIFEST lists, by a "
		       "relative "
		       "path inside the carton and without a loop";
	if (memcmp(object_sha256(node_object(at)), link->link.sha256, SHA256_SIZE) != 0)
		return "is a symlink to a file whose hash is not the one that MANIFEST gives the "
		       "link";
	return NULL;
}

static void check_links(struct loader *l)
{
	char path[MAX_PATH_LEN + 1];

	for (struct node *n = l->tree->root; n; n = tree_next(l->tree->root, n)) {
		const char *what = n->kind == NODE_SYMLINK ? check_link(n) : NULL;

		if (what)
			fault(l, tree_path(n, path), what);
	}
}

int load_tree(struct container *c, const struct manifest *m, const struct links *links,
	      struct object_store *store, bool keep_going, struct tree **ret, size_t *ret_faults)
{
	struct loader l = { .c = c, .m = m, .links = links, .store = store };
	struct node *manifest;
	int r;

	r = count_nodes(&l);
	if (r == 0)
		r = tree_new(c->mtime, &l.tree);
	if (r < 0)
		return r;
	l.tree->store = store;
	r = add_lines(&l);
	if (r == 0)
		r = tree_add(l.tree, l.tree->root, "MANIFEST", 8, NODE_FILE, &manifest);
	if (r == 0) {
		const struct entry *e = container_find(c, "MANIFEST");

		tree_set_literal(l.tree, manifest, m->text, m->size);
		manifest->mtime = e->mtime == NO_TIME ? c->mtime : e->mtime;
		tree_sort(l.tree->root);
		check_links(&l);
		report_unlisted(&l);
		if (l.faults > MAX_REPORTED)
			carton_log(CARTON_LOG_ERROR, NULL, "%zu more faults like these",
				   l.faults - MAX_REPORTED);
		if (l.faults && !keep_going)
			r = -EBADMSG;
	}
	if (r < 0) {
		tree_free(l.tree);
		return r;
	}
	*ret = l.tree;
	*ret_faults = l.faults;
	return 0;
}
