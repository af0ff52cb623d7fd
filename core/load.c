/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "views/views.h"

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

/* NULL, or why an entry of a directory cannot be packed. */
static const char *listing_fault(const struct entry *e)
{
	static const char *const parts[] = { "carton.toml", "model", "tensor_data", "misc" };
	size_t n = strcspn(e->name, "/");

	if (strcmp(e->name, "LINKS") == 0)
		return "is there, so files may be missing that it names; repack keeps it, embed "
		       "fetches them, or remove it";
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (strlen(parts[i]) == n && memcmp(e->name, parts[i], n) == 0)
			return NULL;
	return "is not a part of a carton: it has carton.toml, model, tensor_data and misc";
}

int load_listing(struct container *c, struct manifest **ret)
{
	struct buf text = buf_init(MAX_MANIFEST);
	size_t faults = 0;
	int r = 0;

	if (!container_find(c, "carton.toml")) {
		carton_log(CARTON_LOG_ERROR, "carton.toml", "is missing");
		faults++;
	}
	for (size_t i = 0; i < c->n_entries && r == 0 && faults < MAX_REPORTED; i++) {
		const struct entry *e = &c->entries[i];
		const char *what = listing_fault(e);

		/* an old MANIFEST is replaced */
		if (e->kind == ENTRY_FILE && strcmp(e->name, "MANIFEST") == 0)
			continue;
		/* for a directory that is not part of a carton, one message is enough */
		if (what && !strchr(e->name, '/')) {
			carton_log(CARTON_LOG_ERROR, e->name, "%s", what);
			faults++;
		} else if (!what && e->kind != ENTRY_DIR) {
			r = buf_addf(&text, "%s=%064zx\n", e->name, i);
		}
	}
	if (r == 0 && faults)
		r = -EBADMSG;
	if (r < 0) {
		buf_free(&text);
		return r;
	}
	r = manifest_parse(text.data, text.len, c->budget, ret);
	if (r == 0)
		(*ret)->unhashed = true;
	return r;
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
		r = links_parse(text.data, text.len, c->budget, ret);
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

/* ---- the chunk index ---- */

static int read_index(void *ctx, void *ret_buf, size_t n, uint64_t off)
{
	return object_read(ctx, ret_buf, n, off, false);
}

int load_chunks(struct node *index, struct budget *budget, struct chunks **ret)
{
	int r = chunks_parse(node_size(index), read_index, node_object(index), budget, ret);

	/* bytes that are wrong were logged with their place */
	if (r < 0 && r != -EBADMSG && r != -EOPNOTSUPP && r != -EFBIG)
		carton_log(CARTON_LOG_WARNING, CHUNKS_PATH, "cannot be read: %s", strerror(-r));
	return r;
}

/* ---- lines ---- */

#define NO_ENTRY UINT32_MAX

/* What a line leads to that is no file of the container. */
struct special {
	uint32_t line; /* in `lines` */
	const char *target;
	struct object *object;
};

struct loader {
	struct container *c;
	const struct manifest *m;
	const struct links *links;
	struct object_store *store;
	struct tree *tree;
	size_t faults;

	/* The lines without a fault, their entries (NO_ENTRY: none), and those that are special. */
	const uint32_t *lines; /* those of `m`, or */
	uint32_t *good;	       /* a copy, where some have a fault */
	uint32_t *entries;
	size_t n;
	struct special *special;
	size_t n_special, cap_special;
};

static void fault(struct loader *l, const char *path, const char *what)
{
	if (l->faults < MAX_REPORTED)
		carton_log(CARTON_LOG_ERROR, path, "%s", what);
	l->faults++;
}

/*
 * Finds the entry of each line; both are sorted. Entries that MANIFEST lists get its paths as their names,
 * and those of all others are copied, so that their text can be freed.
 */
static int match_entries(struct loader *l)
{
	struct container *c = l->c;
	struct arena names = { 0 };
	size_t i = 0;

	for (size_t k = 0; k < c->n_entries; k++) {
		struct entry *e = &c->entries[k];
		int order = 1;

		while (i < l->m->n && (order = path_compare(manifest_path(l->m, i), e->name)) < 0)
			l->entries[i++] = NO_ENTRY;
		if (i < l->m->n && order == 0) {
			e->name = manifest_path(l->m, i);
			l->entries[i++] = (uint32_t)k;
			continue;
		}
		e->name = arena_text(&names, e->name, e->name_len);
		if (!e->name) {
			arena_free(&names);
			return -ENOMEM;
		}
	}
	while (i < l->m->n)
		l->entries[i++] = NO_ENTRY;
	arena_free(&c->names);
	c->names = names;
	return 0;
}

static int add_special(struct loader *l, const char *target, struct object *o)
{
	if (array_room(l->special, &l->cap_special, l->n_special + 1) < 0)
		return -ENOMEM;
	l->special[l->n_special++] = (struct special){ (uint32_t)l->n, target, o };
	return 1;
}

/* Each of these returns 1: a node; 0: none, because of a fault; or -errno. */

static int add_symlink(struct loader *l, const char *path, const struct entry *e)
{
	struct buf target = { 0 };
	char *copy;
	int r = container_readlink(l->c, e, &target);

	if (r == -EBADMSG || r == -EFBIG) {
		fault(l, path, "its target cannot be read");
		r = 0;
	} else if (r == 0 && (target.len == 0 || memchr(target.data, '\0', target.len) ||
			      !utf8_valid(target.data, target.len))) {
		fault(l, path, "is a symlink whose target is not a path");
	} else if (r == 0) {
		copy = arena_text(&l->tree->arena, target.data, target.len);
		r = copy ? add_special(l, copy, NULL) : -ENOMEM;
	}
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
static int add_missing(struct loader *l, const char *path)
{
	uint8_t sha256[SHA256_SIZE];
	struct object *o;
	struct link *link;
	int r;

	manifest_hash(path, sha256);
	link = links_find(l->links, sha256);
	r = object_add_link(l->store, sha256, path, link, &o);
	if (r == -ENOENT && l->links && *l->links->error.message)
		return links_fault(l, l->links->error.line, l->links->error.message, path);
	if (r == -ENOENT) {
		fault(l, path, "is listed in MANIFEST, but neither the carton nor LINKS has it");
		return 0;
	}
	if (r < 0)
		return r;
	if (!object_entry(o) && *l->links->error.message)
		return links_fault(l, l->links->error.line, l->links->error.message, path);
	if (!object_entry(o) && link->fault)
		return links_fault(l, link->line, link->fault, path);
	return add_special(l, NULL, o);
}

static int check_line(struct loader *l, const char *path, uint32_t at)
{
	const struct entry *e = at == NO_ENTRY ? NULL : &l->c->entries[at];

	if (!e)
		return add_missing(l, path);
	if (e->kind == ENTRY_DIR) {
		fault(l, path, "is listed in MANIFEST, but it is a directory");
		return 0;
	}
	return e->kind == ENTRY_FILE ? 1 : add_symlink(l, path, e);
}

/* For paths that the container lacks: another entry may have the same bytes. */
static int add_objects(struct loader *l)
{
	const struct manifest *m = l->m;
	uint8_t sha256[SHA256_SIZE];
	struct object *o;
	int r = 0;

	for (size_t i = 0; i < m->n && r == 0; i++) {
		const struct entry *e = l->entries[i] == NO_ENTRY ? NULL :
								    &l->c->entries[l->entries[i]];

		if (!e || e->kind != ENTRY_FILE)
			continue;
		manifest_hash(manifest_path(m, i), sha256);
		r = object_add(l->store, sha256, e, &o);
	}
	return r;
}

/* From now on lines are copied, because one is left out. */
static int copy_lines(struct loader *l)
{
	if (l->good)
		return 0;
	l->lines = l->good = calloc(l->m->n, sizeof(*l->good));
	if (!l->good)
		return -ENOMEM;
	memcpy(l->good, l->m->lines, l->n * sizeof(*l->good));
	return 0;
}

/* Checks all lines, and leaves those with a fault out. */
static int check_lines(struct loader *l)
{
	const struct manifest *m = l->m;
	bool missing = false;
	int r;

	for (size_t i = 0; i < m->n && !missing; i++)
		missing = l->entries[i] == NO_ENTRY;
	l->lines = m->lines;
	r = missing ? add_objects(l) : 0;
	for (size_t i = 0; i < m->n && r >= 0; i++) {
		r = check_line(l, manifest_path(m, i), l->entries[i]);
		if (r == 0)
			r = copy_lines(l);
		if (r <= 0)
			continue;
		if (l->good)
			l->good[l->n] = m->lines[i];
		l->entries[l->n++] = l->entries[i];
	}
	return MIN(r, 0);
}

const struct entry *load_find_entry(const struct container *c, const struct manifest *m,
				    const struct object *o, size_t *line)
{
	char hex[2 * SHA256_SIZE + 1];

	hex_encode(object_sha256(o), SHA256_SIZE, hex);
	while (*line < m->n) {
		const char *path = manifest_path(m, (*line)++);
		const struct entry *e;

		if (memcmp(manifest_hex(path), hex, 2 * SHA256_SIZE) != 0)
			continue;
		e = container_find(c, path);
		if (e && e->kind == ENTRY_FILE && e->size == object_size(o))
			return e;
	}
	return NULL;
}

/* ---- nodes ---- */

/* Counts what the nodes take, before they are made: one long path may be of thousands of directories. */
static int count_nodes(const struct loader *l, uint64_t *ret)
{
	const struct tree_paths all = { l->m->text, l->m->lines, l->m->n };
	uint64_t bytes;

	tree_count(&all, ret, &bytes);
	if (*ret + 1 > MAX_NODES) {
		carton_log(CARTON_LOG_ERROR, NULL, "more than %d files and directories", MAX_NODES);
		return -EFBIG;
	}
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

/* The entry is in a directory of the root that has the marker of generated views. */
static bool in_copied_views(const struct loader *l, const struct entry *e)
{
	size_t len = strcspn(e->name, "/");
	const struct entry *marker;
	struct buf text = { 0 };
	char path[MAX_PATH_LEN + 1];
	bool is;

	/* a zip is not a copy of a mount */
	if (l->c->one_file || !e->name[len] ||
	    snprintf(path, sizeof(path), "%.*s/" VIEWS_MARKER, (int)len, e->name) >=
		    (int)sizeof(path))
		return false;
	marker = container_find(l->c, path);
	if (!marker || marker->kind != ENTRY_FILE || marker->size != strlen(VIEWS_MARKER_TEXT))
		return false;
	is = container_read(l->c, marker, strlen(VIEWS_MARKER_TEXT), &text) == 0 &&
	     strcmp(text.data, VIEWS_MARKER_TEXT) == 0;
	buf_free(&text);
	return is;
}

static void report_unlisted(const struct loader *l)
{
	const char *listed = l->m->text, *end = listed + l->m->size;
	char views[MAX_COMPONENT + 2] = ""; /* the last directory with the marker, and a slash */
	size_t n = 0;

	for (size_t i = 0; i < l->c->n_entries; i++) {
		const struct entry *e = &l->c->entries[i];

		if (e->kind == ENTRY_DIR || (e->name >= listed && e->name < end) ||
		    strcmp(e->name, "MANIFEST") == 0 || strcmp(e->name, "LINKS") == 0)
			continue;
		if (*views && strncmp(e->name, views, strlen(views)) == 0)
			continue;
		if (in_copied_views(l, e)) {
			snprintf(views, sizeof(views), "%.*s/", (int)strcspn(e->name, "/"),
				 e->name);
			continue;
		}
		if (n++ < MAX_REPORTED)
			carton_log(CARTON_LOG_WARNING, e->name,
				   "is not listed in MANIFEST: not shown");
	}
	if (n > MAX_REPORTED)
		carton_log(CARTON_LOG_WARNING, NULL, "%zu more entries are not listed in MANIFEST",
			   n - MAX_REPORTED);
}

static int add_manifest(struct loader *l)
{
	struct tree *t = l->tree;
	struct head *text = arena_alloc(&t->arena, sizeof(*text));
	struct node *n;
	int r = text ? tree_add(t, t->root, "MANIFEST", 8, NODE_FILE, &n) : -ENOMEM;

	if (r < 0)
		return r;
	*text = (struct head){
		.data = l->m->text,
		.len = l->m->size,
		.nul = '=', /* its paths end with a NUL */
		.entry = container_find(l->c, "MANIFEST"),
	};
	n->has_body = true;
	n->body.head = text;
	t->files++;
	t->bytes += l->m->size;
	tree_sort(t->root);
	return 0;
}

/* ---- symlinks ---- */

static const char *check_link(const struct loader *l, struct node *link)
{
	const struct node *at = tree_resolve(link);
	uint8_t sha256[SHA256_SIZE];

	if (!at || at->kind != NODE_FILE || !node_object(at))
		return "is a symlink that does not lead to a file that MANIFEST lists, by a "
		       "relative "
		       "path inside the carton and without a loop";
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
			fault(l, tree_path(n, path), what);
	}
}

static int build(struct loader *l, bool keep_going)
{
	struct tree_paths paths = { .text = l->m->text };
	uint64_t nodes;
	int r = count_nodes(l, &nodes);

	if (r == 0)
		r = match_entries(l);
	if (r == 0)
		r = check_lines(l);
	paths.lines = l->lines;
	paths.n = l->n;
	if (r == 0)
		r = tree_build(l->tree, &paths, nodes, add_leaf, l);
	if (r == 0)
		r = add_manifest(l);
	if (r < 0)
		return r;
	check_links(l);
	report_unlisted(l);
	if (l->faults > MAX_REPORTED)
		carton_log(CARTON_LOG_ERROR, NULL, "%zu more faults like these",
			   l->faults - MAX_REPORTED);
	return l->faults && !keep_going ? -EBADMSG : 0;
}

int load_tree(struct container *c, const struct manifest *m, const struct links *links,
	      struct object_store *store, bool keep_going, struct tree **ret, size_t *ret_faults)
{
	struct loader l = { .c = c, .m = m, .links = links, .store = store };
	int r = tree_new(c->mtime, &l.tree);

	if (r < 0)
		return r;
	l.tree->store = store;
	l.tree->budget = c->budget;
	l.entries = calloc(m->n + 1, sizeof(*l.entries));
	r = l.entries ? build(&l, keep_going) : -ENOMEM;
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
