/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restores the list of files of a commit from the late carton that was made of it: for an open that
 * needs all hashes, after others have opened the commit without them. So the hub is not asked for
 * the list again, and offline the small files that the cache has by now are found.
 */
#include "archive/container.h"
#include "archive/zip.h"
#include "base/budget.h"
#include "base/source.h"
#include "format/manifest.h"
#include "import/internal.h"

static int read_text(struct container *zip, const char *name, size_t max, struct buf *ret)
{
	const struct entry *e = container_find(zip, name);

	return e && e->kind == ENTRY_FILE ? container_read(zip, e, max, ret) : -ENOENT;
}

/* Adds a file. One without a link is empty, since the late carton itself has only those. */
static int add(struct listing *l, const char *path, const struct links *links)
{
	uint8_t sha256[SHA256_SIZE], id[SHA1_SIZE];
	const struct link *link;
	const struct late *late;
	int r;

	if (strncmp(path, "model/", 6) != 0)
		return 0;
	manifest_hash(path, sha256);
	link = links_find(links, sha256);
	late = link_late(link);
	if (late)
		return listing_add(l, path + 6, link->size, late->git_id, NULL);
	if (link)
		return listing_add(l, path + 6, link->size, NULL, sha256);
	r = git_blob_id("", 0, id);
	return r < 0 ? r : listing_add(l, path + 6, 0, id, NULL);
}

static int add_left_out(struct listing *l, const struct links *links)
{
	for (size_t i = 0; i < MAX_REPORTED && links->left_out[i].name && links->left_out[i].why;
	     i++) {
		const struct left_out *o = &links->left_out[i];

		l->left_out[i] = (struct left_out){
			arena_text(&l->names, o->name, strlen(o->name)),
			arena_text(&l->names, o->why, strlen(o->why)),
		};
		if (!l->left_out[i].name || !l->left_out[i].why)
			return arena_error(&l->names);
	}
	l->n_left_out = links->n_left_out;
	return 0;
}

static int add_all(struct listing *l, const struct manifest *m, const struct links *links)
{
	int r = links ? add_left_out(l, links) : 0;

	for (size_t i = 0; i < m->n && r >= 0; i++)
		r = add(l, manifest_path(m, i), links);
	return r < 0 ? r : listing_sort(l);
}

static int read_lists(struct listing *l, struct container *zip)
{
	struct buf manifest = { 0 }, links_text = { 0 };
	struct links *links = NULL;
	struct manifest *m = NULL;
	uint64_t taken = 0;
	int r = read_text(zip, "carton.toml", MAX_CARTON_TOML, &l->carton_toml);

	if (r == 0)
		r = read_text(zip, "LINKS", MAX_LINKS_FILE, &links_text);
	if (r == 0)
		r = budget_take(l->budget, LINKS_EXPANSION * links_text.len);
	if (r == 0) {
		taken = LINKS_EXPANSION * links_text.len;
		r = links_parse(links_text.data, links_text.len, l->budget, &links);
	}
	/* a file without its link would be taken for an empty one */
	if (r == 0 && *links->error.text)
		r = log_error(-EFBIG, l->name, "the list of its files cannot be read: %s",
			      links->error.text);
	if (r == 0 || r == -ENOENT)
		r = read_text(zip, "MANIFEST", MAX_MANIFEST, &manifest);
	if (r == 0)
		r = manifest_parse(manifest.data, manifest.len, l->budget, &m);
	else
		buf_finish(&manifest);
	links_of_user(links);
	if (r == 0)
		r = add_all(l, m, links);
	manifest_free(m);
	links_free(links);
	budget_give(l->budget, taken);
	buf_finish(&links_text);
	return r;
}

int import_again(const struct import *im, struct listing *l)
{
	struct container *zip = NULL;
	struct source *source;
	int r;

	if (!l->lister->git_ids || l->late)
		return -ENOENT;
	l->late = true;
	r = kept_open(im, l, &source);
	l->late = false;
	if (r < 0)
		return r;
	r = zip_open(source, im->budget, &zip);
	source_unref(source);
	if (r == 0)
		r = read_lists(l, zip);
	container_close(zip);
	/* the list of the hub would take as much memory */
	if (r == 0 || r == -ENOMEM || r == -EFBIG)
		return r;
	/* the late carton is of no use: the caller asks the hub for the list */
	l->n = 0;
	l->small = l->n_left_out = 0;
	buf_finish(&l->carton_toml);
	return -ENOENT;
}
