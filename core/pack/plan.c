/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/plan.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "archive/decode.h"
#include "base/util.h"
#include "writer/lists.h"

/* ---- the content of an item ---- */

/* Bytes of a file of a directory, which must not change until its end. */
struct watched {
	struct stream stream;
	struct stream *in;
	struct source *source;
	const char *name;
	struct stat before;
};

static ssize_t watched_read(struct stream *s, void *ret_buf, size_t n)
{
	struct watched *w = container_of(s, struct watched, stream);
	ssize_t got = stream_read(w->in, ret_buf, n);
	int same = got ? 1 : source_is_same(w->source, &w->before);

	if (same)
		return same < 0 ? same : got;
	return log_error(-EBADMSG, w->name, "has changed while it was read");
}

static void watched_close(struct stream *s)
{
	struct watched *w = container_of(s, struct watched, stream);

	stream_close(w->in);
	source_unref(w->source);
	free(w);
}

static int open_watched(struct container *c, const struct entry *e, struct stream **ret)
{
	static const struct stream_ops ops = { watched_read, watched_close };
	struct watched *w = calloc(1, sizeof(*w));
	uint64_t off;
	int r;

	if (!w)
		return -ENOMEM;
	w->stream.ops = &ops;
	w->name = e->name;
	r = container_locate(c, e, &w->source, &off);
	if (r == 0 && fstat(w->source->fd, &w->before) < 0)
		r = -errno;
	if (r == 0)
		r = source_stream(w->source, off, e->size, &w->in);
	if (r < 0) {
		watched_close(&w->stream);
		return r; /* cppcheck-suppress memleak; watched_close() frees what has it */
	}
	*ret = &w->stream;
	return 0;
}

/* Bytes of a pinned file. */
struct pinned {
	struct stream stream;
	struct carton_node *file;
	uint64_t off;
};

static ssize_t pinned_read(struct stream *s, void *ret_buf, size_t n)
{
	struct pinned *p = container_of(s, struct pinned, stream);
	ssize_t got = carton_read(p->file, ret_buf, n, p->off, false);

	p->off += got > 0 ? (uint64_t)got : 0;
	return got;
}

static void pinned_close(struct stream *s)
{
	struct pinned *p = container_of(s, struct pinned, stream);

	carton_unpin(p->file);
	free(p);
}

static int open_pinned(struct carton *c, struct node *n, struct stream **ret)
{
	static const struct stream_ops ops = { pinned_read, pinned_close };
	struct pinned *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	r = carton_pin_wait(c, from_node(n));
	if (r < 0) {
		free(p);
		return r;
	}
	*p = (struct pinned){ { &ops }, from_node(n), 0 };
	*ret = &p->stream;
	return 0;
}

/* The entry of a local container that has the file, or NULL. */
static const struct entry *local_entry(const struct carton *c, const struct node *n)
{
	return c->container->remote ? NULL : n->file.entry;
}

/* An entry of a local zip, which can be copied unchanged; else NULL. One of a layer has no crc. */
static const struct entry *zip_entry_of(const struct carton *c, const struct node *n)
{
	const struct entry *e = c->container->one_file ? local_entry(c, n) : NULL;

	return e && e->has_crc ? e : NULL;
}

static int open_item(void *ctx, const struct pack_item *item, struct stream **ret)
{
	struct pack_plan *p = ctx;
	const struct entry *e = local_entry(p->c, item->from);

	if (!e)
		return open_pinned(p->c, item->from, ret);
	return p->c->container->one_file ? container_stream(p->c->container, e, ret) :
					   open_watched(p->c->container, e, ret);
}

const struct pack_ops plan_ops = { open_item };

/* ---- which files ---- */

/* Is the path one of `paths`, or below one? *ret_exactly: it is one itself. */
static bool is_named(const char *const *paths, const char *path, bool *ret_exactly)
{
	*ret_exactly = false;
	/* a reader needs the index before all other files */
	if (strcmp(path, CHUNKS_PATH) == 0)
		return false;
	if (!paths)
		return strcmp(path, "carton.toml") != 0;
	for (; *paths; paths++) {
		size_t n = strlen(*paths);

		*ret_exactly = strcmp(*paths, path) == 0;
		if (*ret_exactly || (strncmp(*paths, path, n) == 0 && path[n] == '/'))
			return true;
	}
	return false;
}

static bool is_linked(const struct carton_pack_options *options, const struct node *file)
{
	char path[MAX_PATH_LEN + 1];
	bool exactly;

	/* what LINKS has already is linked again, whatever its size */
	return options->mode == CARTON_LINK &&
	       is_named(options->paths, tree_path(file, path), &exactly) &&
	       (exactly || !file->file.entry || node_size(file) >= options->min_size);
}

bool plan_includes(const struct carton_pack_options *options, const struct node *n)
{
	return options->mode == CARTON_EMBED || n->kind == NODE_SYMLINK ||
	       (!n->has_body && n->file.entry && !is_linked(options, n));
}

/* Each path names a file, or a directory with files, and not carton.toml, which opening needs. */
static int check_paths(const struct pack_plan *p)
{
	const char *const *paths = p->options->mode == CARTON_LINK ? p->options->paths : NULL;

	for (; paths && *paths; paths++) {
		const struct node *n = tree_find(p->c->tree, *paths);
		const char *what = !n || n == p->c->tree->root ? "is not in the carton" :
				   n->kind == NODE_SYMLINK     ? "is a symlink: name its file" :
				   strcmp(*paths, "MANIFEST") == 0 ||
						   strcmp(*paths, "carton.toml") == 0 ?
							     "has to stay in the carton" :
							     NULL;

		if (what)
			return log_error(-EINVAL, *paths, "%s", what);
	}
	return 0;
}

/* ---- the plan ---- */

static int add_item(struct pack_plan *p, struct node *n, const char *path)
{
	struct pack_item *item = &p->items[p->n];
	const struct entry *local;

	item->zip.name = arena_text(&p->names, path, strlen(path));
	if (!item->zip.name)
		return -ENOMEM;
	item->zip.executable = node_is_executable(n);
	item->from = n;
	if (n->kind == NODE_SYMLINK) {
		item->zip.symlink = true;
		item->literal = n->link.target;
		item->zip.size = strlen(n->link.target);
	} else {
		item->zip.size = node_size(n);
		item->entry = zip_entry_of(p->c, n);
		local = local_entry(p->c, n);
		item->plain = local && local->method == METHOD_STORED;
		item->line = p->c->manifest->unhashed ? NULL : n->name;
	}
	p->bytes += item->zip.size;
	p->n++;
	return 0;
}

static int add_node(struct pack_plan *p, struct node *n)
{
	char path[MAX_PATH_LEN + 1];

	tree_path(n, path);
	/* the tree has MANIFEST, which is made later */
	if (n->kind == NODE_DIR || strcmp(path, "MANIFEST") == 0 ||
	    (p->index && strcmp(path, CHUNKS_PATH) == 0))
		return 0;
	if (plan_includes(p->options, n))
		return add_item(p, n, path);
	if (is_linked(p->options, n) ||
	    (p->options->mode == CARTON_IMPORT && p->index && !n->has_body))
		p->linked[p->n_linked++] = n;
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct pack_item *)a)->zip.name,
		      ((const struct pack_item *)b)->zip.name);
}

static int compare_hashes(const void *a, const void *b)
{
	return memcmp(manifest_hex((*(struct node *const *)a)->name),
		      manifest_hex((*(struct node *const *)b)->name), 2 * SHA256_SIZE);
}

/* Sorts by hash, and leaves one of each. */
static void sort_linked(struct pack_plan *p)
{
	size_t n = 0;

	if (p->n_linked)
		qsort(p->linked, p->n_linked, sizeof(*p->linked), compare_hashes);
	for (size_t i = 0; i < p->n_linked; i++)
		if (n == 0 || compare_hashes(&p->linked[n - 1], &p->linked[i]) != 0)
			p->linked[n++] = p->linked[i];
	p->n_linked = n;
}

/*
 * Does the new carton get an index? A packed directory may have one, perhaps of other bytes; and
 * large files that are Stored open at once by it.
 */
static bool wants_index(const struct carton *c, const struct carton_pack_options *options)
{
	const struct tree *t = c->tree;
	bool stores = options->compress == CARTON_COMPRESS_DEFAULT ||
		      options->compress == CARTON_COMPRESS_AUTO;

	if (options->mode != CARTON_PACK || options->chunk_index || tree_find(t, CHUNKS_PATH))
		return options->chunk_index || options->mode == CARTON_PACK;
	for (struct node *n = t->root; n && stores; n = tree_next(t->root, n))
		if (n->kind == NODE_FILE && n->file.entry && node_size(n) >= CHOOSE_LARGE)
			return true;
	return false;
}

int plan_make(struct carton *c, const struct carton_pack_options *options, struct pack_plan *ret)
{
	const struct tree *t = c->tree;
	size_t n = (size_t)t->n_nodes + 1;
	struct pack_plan p = { .c = c, .options = options };
	int r = check_paths(&p);

	/* names are as long as in MANIFEST; sorting copies references */
	if (r == 0)
		r = budget_take(&c->budget,
				n * (sizeof(*p.items) + 3 * sizeof(void *)) + c->manifest->size);
	if (r < 0)
		return r;
	p.index = wants_index(c, options);
	p.items = calloc(n, sizeof(*p.items));
	p.linked = calloc(n, sizeof(struct node *));
	if (!p.items || !p.linked)
		r = -ENOMEM;
	for (struct node *node = t->root; node && r == 0; node = tree_next(t->root, node))
		r = add_node(&p, node);
	if (r < 0) {
		plan_finish(&p);
		return r;
	}
	if (p.n)
		qsort(p.items, p.n, sizeof(*p.items), compare_names);
	sort_linked(&p);
	*ret = p;
	return 0;
}

void plan_finish(struct pack_plan *p)
{
	for (size_t i = 0; p->items && i < p->n; i++) {
		chunks_made_finish(&p->items[i].chunks);
		free(p->items[i].tags);
	}
	free(p->items);
	free(p->linked);
	arena_finish(&p->names);
	*p = (struct pack_plan){ 0 };
}

/* ---- MANIFEST ---- */

/* The hash of an item; of a symlink: that of the file that it leads to. */
static const uint8_t *hash_of(const struct pack_plan *p, const struct pack_item *item,
			      const uint8_t *index)
{
	struct pack_item key = { 0 };
	char path[MAX_PATH_LEN + 1];

	if (!item->zip.symlink)
		return item->sha256;
	/* each symlink of the tree leads to a file; the index is no item if it is made anew */
	key.zip.name = tree_path(tree_resolve(item->from), path);
	item = bsearch(&key, p->items, p->n, sizeof(key), compare_names);
	return item ? item->sha256 : index;
}

/* Copies the text of the source's MANIFEST. */
static int manifest_copy(const struct manifest *m, struct buf *ret)
{
	int r = buf_add(ret, m->text, m->size);

	for (size_t i = 0; i < m->n && r == 0; i++)
		ret->data[manifest_hex(manifest_path(m, i)) - 1 - m->text] = '=';
	return r;
}

/* Puts the line of the index into the text, instead of an older one. */
static int replace_index_line(const uint8_t *index, struct buf *text)
{
	static const char name[] = CHUNKS_PATH "=";
	struct buf old = *text;
	const char *line = old.data, *end = old.data + old.len;
	size_t n = sizeof(name) - 1;
	int r = 0;

	*text = buf_init(MAX_MANIFEST);
	while (line < end && r == 0) {
		const char *eol = memchr(line, '\n', (size_t)(end - line));
		size_t len = (size_t)((eol ? eol + 1 : end) - line);
		int order = memcmp(line, name, MIN(len, n));

		if (index && order >= 0) {
			r = lists_add_file(text, CHUNKS_PATH, index);
			index = NULL;
		}
		if (r == 0 && (order != 0 || len < n))
			r = buf_add(text, line, len);
		line += len;
	}
	if (r == 0 && index && text->len && text->data[text->len - 1] != '\n')
		r = buf_addc(text, '\n');
	buf_finish(&old);
	return r == 0 && index ? lists_add_file(text, CHUNKS_PATH, index) : r;
}

int plan_manifest(const struct pack_plan *p, const uint8_t *index, struct buf *ret)
{
	const struct manifest *m = p->c->manifest;
	const uint8_t *hash = index;
	int r = 0;

	*ret = buf_init(MAX_MANIFEST);
	if (!m->unhashed) {
		r = manifest_copy(m, ret);
		if (r == 0 && index)
			r = replace_index_line(index, ret);
		return r;
	}
	for (size_t i = 0; i < p->n && r == 0; i++) {
		if (index && strcmp(p->items[i].zip.name, CHUNKS_PATH) > 0) {
			r = lists_add_file(ret, CHUNKS_PATH, index);
			index = NULL;
		}
		if (r == 0)
			r = lists_add_file(ret, p->items[i].zip.name,
					   hash_of(p, &p->items[i], hash));
	}
	return r == 0 && index ? lists_add_file(ret, CHUNKS_PATH, index) : r;
}
