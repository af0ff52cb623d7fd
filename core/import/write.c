/* SPDX-License-Identifier: Apache-2.0 */
/* The carton that says what a listing says. */
#include <stdlib.h>

#include "archive/decode.h"
#include "base/budget.h"
#include "base/limits.h"
#include "cache/file.h"
#include "format/values.h"
#include "import/internal.h"
#include "import/lister.h"
#include "writer/lists.h"
#include "writer/zip_writer.h"

#define MAX_RUNNER 64

/* ---- its texts ---- */

const char *listing_runner_fault(const struct carton_runner *r)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
	size_t n = r->name ? strlen(r->name) : 1;

	if (r->name && (n == 0 || n > MAX_RUNNER || strspn(r->name, letters) != n))
		return "the name of a runner has 1 to 64 letters, digits, - _ and .";
	return r->framework && version_req_fault(r->framework) ?
		       "the framework version is no version requirement such as =1.2.3" :
		       NULL;
}

int listing_add_runner(const struct carton_runner *r, struct buf *ret)
{
	buf_adds(ret, "\n[runner]\n");
	lists_add_string(ret, "runner_name", r->name ? r->name : "noop");
	lists_add_string(ret, "required_framework_version", r->framework ? r->framework : "*");
	return buf_addf(ret, "runner_compat_version = %u\n", r->compat ? r->compat : 1);
}

static int carton_toml(const struct listing *l, struct buf *ret)
{
	const char *slash = strrchr(l->name, '/');
	char *homepage;

	if (l->carton_toml.data)
		return buf_add(ret, l->carton_toml.data, l->carton_toml.len);
	homepage = l->lister->homepage ? l->lister->homepage(l) : NULL;
	if (!homepage && l->lister->homepage)
		return -ENOMEM;
	buf_adds(ret, "spec_version = 1\n");
	lists_add_string(ret, "model_name", slash ? slash + 1 : l->name);
	if (l->license)
		lists_add_string(ret, "license", l->license);
	if (homepage)
		lists_add_string(ret, "homepage", homepage);
	free(homepage);
	return listing_add_runner(l->runner, ret);
}

static int manifest(const struct listing *l, const struct buf *toml, struct buf *ret)
{
	uint8_t sha256[SHA256_SIZE];
	int r = sha256_mem(toml->data, toml->len, sha256);

	if (l->manifest.data)
		return buf_add(ret, l->manifest.data, l->manifest.len);
	if (r == 0)
		r = lists_add_file(ret, "carton.toml", sha256);
	for (size_t i = 0; i < l->n && r == 0; i++)
		r = lists_add_file(ret, l->files[i].path, l->files[i].sha256);
	return r;
}

static int by_hash(const void *a, const void *b)
{
	return memcmp((*(struct listed *const *)a)->sha256, (*(struct listed *const *)b)->sha256,
		      SHA256_SIZE);
}

/* Files with one hash stay in the order of their paths, whatever qsort() does with equal ones. */
static int by_hash_and_path(const void *a, const void *b)
{
	int order = by_hash(a, b);

	return order ? order :
		       strcmp((*(struct listed *const *)a)->path,
			      (*(struct listed *const *)b)->path);
}

/* Is large[i] the first file with its hash? */
static bool is_first(struct listed *const *large, size_t i)
{
	return i == 0 || by_hash(&large[i], &large[i - 1]) != 0;
}

/* [urls], [sizes] and [git]: a line for each hash, the URLs of all files that have it. */
static int add_lines(const struct listing *l, struct listed *const *large, size_t n,
		     struct buf *ret)
{
	int r = lists_begin_links(ret);

	for (size_t i = 0, end; i < n && r == 0; i = end) {
		char *urls[MAX_HASH_URLS + 1] = { NULL };
		size_t k = 0;

		for (end = i; end < n && by_hash(&large[end], &large[i]) == 0; end++)
			if (k < MAX_HASH_URLS && r == 0 &&
			    !(urls[k++] = l->lister->url(l, large[end])))
				r = -ENOMEM;
		if (r == 0)
			r = lists_add_link(ret, large[i]->sha256, (const char *const *)urls, NULL);
		while (k > 0)
			free(urls[--k]);
	}
	if (r == 0)
		r = lists_begin_sizes(ret);
	for (size_t i = 0; i < n && r == 0; i++)
		if (is_first(large, i))
			r = lists_add_size(ret, large[i]->sha256, large[i]->size);
	if (r == 0 && l->late)
		r = lists_begin_git(ret);
	for (size_t i = 0; i < n && r == 0; i++)
		if (large[i]->unknown && is_first(large, i))
			r = lists_add_git(ret, large[i]->sha256, large[i]->oid);
	return r;
}

static int links(const struct listing *l, struct buf *ret)
{
	struct listed **large = calloc(l->n + 1, sizeof(*large));
	size_t n = 0;
	int r = large ? 0 : -ENOMEM;

	for (size_t i = 0; i < l->n && r == 0; i++)
		if ((!l->files[i].small || l->files[i].unknown) && !l->files[i].layer)
			large[n++] = &l->files[i];
	if (r == 0 && n + l->n_left_out > 0) {
		qsort(large, n, sizeof(struct listed *), by_hash_and_path);
		r = add_lines(l, large, n, ret);
	}
	if (r == 0 && l->n_left_out)
		r = lists_add_left_out(ret, l->n_left_out, l->left_out);
	free(large);
	return r;
}

/* ---- the zip file ---- */

struct texts {
	struct buf toml, links, layers, manifest;
};

struct out {
	struct zip_writer zip;
	struct zip_entry *entries;
	size_t n;
};

static int put(struct out *o, const char *name, const void *data, uint64_t size)
{
	struct zip_entry *e = &o->entries[o->n++];

	*e = (struct zip_entry){ .name = name };
	return zip_writer_literal(&o->zip, e, data, size, strcmp(name, "MANIFEST") == 0);
}

static int put_link(struct out *o, const struct listed *f)
{
	struct zip_entry *e = &o->entries[o->n++];

	*e = (struct zip_entry){ .name = f->path, .symlink = true };
	return zip_writer_literal(&o->zip, e, f->target, strlen(f->target), false);
}

/*
 * Writes symlinks and small files. MANIFEST has the hashes of the files as they were fetched, so
 * bytes that the disk has damaged since are found by the reader.
 */
static int put_listed(const struct listing *l, struct out *o)
{
	char *data = malloc(MAX_LISTED_SMALL);
	int r = data ? 0 : -ENOMEM;

	for (size_t i = 0; i < l->n && r == 0; i++) {
		const struct listed *f = &l->files[i];

		if (f->target)
			r = put_link(o, f);
		else if (f->small && !f->unknown && f->size)
			r = file_read(l->bytes, data, f->size, f->at);
		if (r == 0 && f->small && !f->unknown)
			r = put(o, f->path, data, f->size);
	}
	free(data);
	return r;
}

static int put_all(const struct listing *l, const struct texts *t, struct out *o)
{
	int r = put(o, "carton.toml", t->toml.data, t->toml.len);

	if (r == 0)
		r = put_listed(l, o);
	if (r == 0 && t->layers.len > 0)
		r = put(o, LAYERS, t->layers.data, t->layers.len);
	if (r == 0 && t->links.len > 0)
		r = put(o, "LINKS", t->links.data, t->links.len);
	return r == 0 ? put(o, "MANIFEST", t->manifest.data, t->manifest.len) : r;
}

static int write_zip(const struct listing *l, const struct texts *texts, int fd)
{
	struct out o = { .zip = { fd, 0, 1 } };
	const struct zip_entry **list;
	int r;

	o.entries = calloc(l->n + 4, sizeof(*o.entries));
	list = calloc(l->n + 4, sizeof(*list));
	r = o.entries && list ? put_all(l, texts, &o) : -ENOMEM;
	for (size_t i = 0; i < o.n && list; i++)
		list[i] = &o.entries[i];
	if (r == 0)
		r = zip_writer_end(&o.zip, list, o.n);
	free(list);
	free(o.entries);
	return r;
}

/* What the texts and tables take, at most: a path is there twice, once percent-encoded. */
static uint64_t memory(const struct listing *l)
{
	const size_t each = sizeof(struct zip_entry) + sizeof(struct zip_entry *) +
			    sizeof(struct listed *) + strlen(l->repo->server) + strlen(l->name) +
			    512;
	uint64_t n = 64 * KIB + MIN(l->small, MAX_LISTED_SMALL);

	for (size_t i = 0; i < l->n; i++)
		n += each + 4 * strlen(l->files[i].path);
	/* a buffer grows by half, and is copied then */
	return n + n / 2;
}

int listing_write(const struct listing *l, int fd)
{
	struct texts t = { buf_init(MAX_CARTON_TOML), buf_init(MAX_LINKS_FILE),
			   buf_init(MAX_MANIFEST), buf_init(MAX_MANIFEST) };
	uint64_t taken = memory(l);
	int r = budget_take(l->budget, taken);

	if (r < 0)
		return r;
	r = carton_toml(l, &t.toml);
	if (r == 0)
		r = links(l, &t.links);
	if (r == 0 && l->n_layers > 0)
		r = layers_write(l, &t.layers);
	if (r == 0)
		r = manifest(l, &t.toml, &t.manifest);
	if (r < 0) {
		carton_log(CARTON_LOG_ERROR, l->name, "no lists can be made of it: %s",
			   strerror(-r));
	} else {
		r = write_zip(l, &t, fd);
		if (r < 0)
			carton_log(CARTON_LOG_ERROR, l->name, "cannot be written: %s",
				   carton_write_error(r));
	}
	buf_finish(&t.toml);
	buf_finish(&t.links);
	buf_finish(&t.layers);
	buf_finish(&t.manifest);
	budget_give(l->budget, taken);
	return r;
}
