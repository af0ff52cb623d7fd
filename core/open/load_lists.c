/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the lists of a carton: MANIFEST, LINKS, the chunk index. */
#include "open/load.h"

#include <stdio.h>
#include <stdlib.h>

#include "archive/what.h"
#include "base/util.h"
#include "views/views.h"

int load_pin(const char *option, const char *pin, uint8_t ret[SHA256_SIZE])
{
	char lower[2 * SHA256_SIZE + 1];
	size_t n = strlen(pin);

	for (size_t i = 0; i <= n && n == 2 * SHA256_SIZE; i++)
		lower[i] = (char)(pin[i] >= 'A' && pin[i] <= 'F' ? pin[i] | 32 : pin[i]);
	if (n == 2 * SHA256_SIZE && hex_decode(lower, SHA256_SIZE, ret))
		return 0;
	return log_error(-EINVAL, NULL, "%s must be 64 hex digits, not \"%s\"", option, pin);
}

int load_manifest(struct container *c, const char *pin, struct manifest **ret)
{
	const struct entry *e = container_find(c, "MANIFEST");
	uint8_t wanted[SHA256_SIZE];
	struct buf text = { 0 };
	struct manifest *m;
	char hex[2 * SHA256_SIZE + 1];
	int r = pin ? load_pin("manifest_sha256", pin, wanted) : 0;

	if (r < 0)
		return r;
	if (!e)
		return what_refuse_container(c);
	if (e->kind != ENTRY_FILE)
		return log_error(-EBADMSG, "MANIFEST",
				 "is not a regular file, so this is not a carton");
	r = container_read(c, e, MAX_MANIFEST, &text);
	if (r < 0) {
		buf_finish(&text);
		return r;
	}
	r = manifest_parse(text.data, text.len, c->budget, &m);
	if (r < 0)
		return r;
	if (pin && memcmp(m->model_hash, wanted, SHA256_SIZE) != 0) {
		hex_encode(m->model_hash, SHA256_SIZE, hex);
		carton_log(CARTON_LOG_ERROR, NULL,
			   "not the model of manifest_sha256: its hash is %s, not %.16s...", hex,
			   pin);
		manifest_free(m);
		return -EBADMSG;
	}
	*ret = m;
	return 0;
}

static bool has_marker(struct container *c, const char *dir)
{
	struct buf text = { 0 };
	const struct entry *marker;
	char path[MAX_PATH_LEN + 1];
	bool is;

	if (snprintf(path, sizeof(path), "%s" VIEWS_MARKER, dir) >= (int)sizeof(path))
		return false;
	marker = container_find(c, path);
	if (!marker || marker->kind != ENTRY_FILE || marker->size != strlen(VIEWS_MARKER_TEXT))
		return false;
	is = container_read(c, marker, strlen(VIEWS_MARKER_TEXT), &text) == 0 &&
	     strcmp(text.data, VIEWS_MARKER_TEXT) == 0;
	buf_finish(&text);
	return is;
}

bool load_in_views(struct container *c, const struct entry *e, struct load_views *before)
{
	size_t n = strcspn(e->name, "/");

	if (c->one_file || n > MAX_COMPONENT || (!e->name[n] && e->kind != ENTRY_DIR))
		return false;
	if (strncmp(before->dir, e->name, n) != 0 || before->dir[n] != '/') {
		snprintf(before->dir, sizeof(before->dir), "%.*s/", (int)n, e->name);
		before->marked = has_marker(c, before->dir);
	}
	return before->marked;
}

/* An old MANIFEST, which is replaced. */
static bool is_replaced(const struct entry *e)
{
	return e->kind == ENTRY_FILE && strcmp(e->name, "MANIFEST") == 0;
}

/* NULL, or why an entry of a directory cannot be packed. */
static const char *listing_fault(const struct entry *e)
{
	static const char *const parts[] = { "carton.toml", "model", "tensor_data", "misc" };
	size_t n = strcspn(e->name, "/");

	if (is_replaced(e))
		return NULL;
	if (strcmp(e->name, "LINKS") == 0)
		return "is there, so files may be missing that it names; repack keeps it, embed "
		       "fetches them, or remove it";
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (strlen(parts[i]) == n && memcmp(e->name, parts[i], n) == 0)
			return NULL;
	return "is not a part of a carton: it has carton.toml, model, tensor_data and misc";
}

int load_check_parts(struct container *c)
{
	struct load_views views = { 0 };
	size_t faults = 0;

	for (size_t i = 0; i < c->n_entries && faults < MAX_REPORTED; i++) {
		const struct entry *e = &c->entries[i];
		const char *what = listing_fault(e);

		/* for a directory that is not part of a carton, one message is enough */
		if (what && !strchr(e->name, '/') && !load_in_views(c, e, &views)) {
			carton_log(CARTON_LOG_ERROR, e->name, "%s", what);
			faults++;
		}
	}
	return faults ? -EBADMSG : 0;
}

int load_listing(struct container *c, const char *directory, struct manifest **ret)
{
	struct buf text = buf_init(MAX_MANIFEST);
	struct load_views views = { 0 };
	char word[4096];
	int r;

	if (!container_find(c, "carton.toml"))
		return log_error(-EBADMSG, "carton.toml", "is missing; make it: cartonctl init %s",
				 carton_shell_word(directory, word, sizeof(word)));
	r = load_check_parts(c);
	if (r == 0)
		what_say_cartons(c);
	if (r == 0)
		r = what_say_pointers(c);
	for (size_t i = 0; i < c->n_entries && r == 0; i++) {
		const struct entry *e = &c->entries[i];

		if (load_in_views(c, e, &views)) {
			if (e->kind == ENTRY_FILE &&
			    strcmp(e->name + strlen(views.dir), VIEWS_MARKER) == 0)
				carton_log(CARTON_LOG_WARNING, views.dir,
					   "is left out: a mount has generated it");
			continue;
		}
		if (e->kind != ENTRY_DIR && !is_replaced(e))
			r = buf_addf(&text, "%s=%064zx\n", e->name, i);
	}
	if (r < 0) {
		buf_finish(&text);
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
	if (e->kind != ENTRY_FILE)
		return log_error(-EBADMSG, "LINKS", "is not a regular file");
	r = container_read(c, e, MAX_LINKS_FILE, &text);
	if (r == 0)
		r = budget_take(c->budget, LINKS_EXPANSION * text.len);
	if (r == 0)
		r = links_parse(text.data, text.len, c->budget, ret);
	buf_finish(&text);
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
	return object_read_wait(ctx, ret_buf, n, off, NULL);
}

int load_index(struct carton *c, struct carton_index *ret)
{
	struct node *n = tree_find(c->tree, CHUNKS_PATH);
	int r;

	*ret = (struct carton_index){ 0 };
	if (!n || n->kind != NODE_FILE || carton_pin_wait(c, from_node(n)) < 0)
		return 0;
	r = chunks_parse(node_size(n), read_index, node_object(n), &c->budget, &ret->chunks);
	if (r == 0 && ret->chunks) {
		ret->file = n;
		return 0;
	}
	carton_unpin(from_node(n));
	/* bytes that are wrong were logged with their place */
	if (r < 0 && r != -EBADMSG && r != -EOPNOTSUPP && r != -EFBIG)
		carton_log(CARTON_LOG_WARNING, CHUNKS_PATH, "cannot be read: %s", strerror(-r));
	return r;
}
