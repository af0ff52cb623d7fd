/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists the files of an artifact whose layers are archives. Each layer is read once, and its files
 * are hashed. No entry of a layer is used before the digest of the layer was compared.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/budget.h"
#include "cache/cache.h"
#include "fetch/fetcher.h"
#include "import/internal.h"
#include "import/merge.h"

/* ---- one layer ---- */

struct reading {
	struct merge merge;
	uint32_t layer;
};

static int begin(void *ctx)
{
	struct reading *rd = ctx;

	merge_begin(&rd->merge, rd->layer);
	return 0;
}

static int entry(void *ctx, const struct tar_entry *e)
{
	return merge_add(&((struct reading *)ctx)->merge, e);
}

/*
 * What eStargz adds to the root of a layer, for a reader that fetches parts of it (estargz.md of
 * stargz-snapshotter). They are no files of the image.
 */
static const char *const of_estargz[] = {
	"stargz.index.json",
	".prefetch.landmark",
	".no.prefetch.landmark",
};

/* Writes seals of the layer's files, so that the next open need not hash them again. */
static void keep_seals(const struct import *im, struct merge *m)
{
	for (size_t i = 0; i < m->n; i++) {
		struct member *f = &m->list[i];

		if (f->tags && f->size <= MAX_SEALED)
			cache_seal_put(im->cache, f->sha256, f->size, f->tags);
		free(f->tags);
		f->tags = NULL;
	}
}

static int read_layer(const struct import *im, struct listing *l, struct reading *rd,
		      const struct tagger *tagger)
{
	const struct layer_scan scan = { begin, entry, tagger, rd };
	struct listed_layer *layer = &l->layers[rd->layer - 1];
	int r = layer_get(im, l, layer, &scan);

	for (size_t i = 0; i < ARRAY_SIZE(of_estargz) && r == 0 && layer->estargz; i++)
		merge_forget(&rd->merge, of_estargz[i]);
	if (r == 0)
		r = merge_layer(&rd->merge);
	if (r == 0)
		keep_seals(im, &rd->merge);
	return r;
}

/* A tagger with the key of the cache's seals. NULL: no seals are written. */
static struct tagger *tagger_of(const struct import *im)
{
	uint8_t key[KEY_SIZE];
	struct tagger *t = NULL;

	if (!im->seals || !im->cache || cache_tag_key(im->cache, key) < 0 ||
	    tagger_new(key, &t) < 0)
		t = NULL;
	explicit_bzero(key, sizeof(key));
	return t;
}

/* ---- the files ---- */

/* The target of a symlink at `path` that leads to `to`, malloc'ed. NULL: no memory. */
static char *relative(const char *path, const char *to)
{
	/* at worst one "../" for each two bytes of the path */
	struct buf text = buf_init(3 * MAX_PATH_LEN);
	size_t same = 0;
	char *target;

	for (size_t i = 0; path[i] && path[i] == to[i]; i++)
		if (path[i] == '/')
			same = i + 1;
	for (const char *p = strchr(path + same, '/'); p; p = strchr(p + 1, '/'))
		buf_adds(&text, "../");
	target = buf_adds(&text, to + same) == 0 ? text.data : NULL;
	if (!target)
		buf_finish(&text);
	return target;
}

static int set_target(struct listing *l, struct listed *f, const struct member *m)
{
	char *target = relative(m->path, m->to->path);

	if (!target)
		return -ENOMEM;
	if (strlen(target) > MAX_PATH_LEN) {
		free(target);
		return log_error(-EBADMSG, m->path,
				 "in layer %u of %s, is a link from so deep that its target is "
				 "longer than 4095 bytes",
				 m->layer, l->name);
	}
	f->target = arena_text(&l->names, target, strlen(target));
	free(target);
	return f->target ? 0 : arena_error(&l->names);
}

static int add_files(struct listing *l, struct merge *m, const char *root)
{
	size_t skip = *root ? strlen(root) + 1 : 0;
	int r = 0;

	for (size_t i = 0; i < m->n && r == 0; i++) {
		const struct member *from = &m->list[i];
		struct listed *f;

		if (from->gone)
			continue;
		r = listing_add(l, from->path + skip, from->size, NULL, from->sha256);
		if (r < 0)
			break;
		f = &l->files[l->n - 1];
		f->layer = from->layer;
		f->off = from->off;
		f->executable = from->executable;
		if (from->to)
			r = set_target(l, f, from);
	}
	return r;
}

/* ---- all layers ---- */

static uint64_t size_of(const struct listing *l)
{
	uint64_t n = 0;

	for (size_t i = 0; i < l->n_layers; i++)
		n += l->layers[i].blob_size;
	return n;
}

static void announce(const struct listing *l)
{
	carton_log(CARTON_LOG_INFO, l->name,
		   "has %zu layers that are archives, %.1f MiB: all is read before a file is shown",
		   l->n_layers, (double)size_of(l) / MIB);
}

static void report(const struct listing *l, struct merge *m, int64_t begun_ms)
{
	carton_log(CARTON_LOG_INFO, l->name, "its archives were read in %.1f s, %.1f MiB",
		   (double)(now_ms() - begun_ms) / 1000, (double)size_of(l) / MIB);
	if (m->left_out.n)
		carton_log(CARTON_LOG_WARNING, l->name,
			   "entries of its archives are left out (a device, a link that does not "
			   "lead to a file of it, or a name that no carton can have): %s",
			   names_end(&m->left_out));
}

int layers_read(const struct import *im, struct listing *l, const char *root)
{
	struct reading rd = { .merge = { .name = l->name, .budget = l->budget } };
	struct tagger *tagger = tagger_of(im);
	int64_t begun_ms = now_ms();
	int r = 0;

	merge_init(&rd.merge);
	announce(l);
	for (size_t i = 0; i < l->n_layers && r == 0; i++) {
		rd.layer = (uint32_t)i + 1;
		r = read_layer(im, l, &rd, tagger);
	}
	if (r == 0)
		r = add_files(l, &rd.merge, merge_end(&rd.merge, root));
	if (r == 0)
		report(l, &rd.merge, begun_ms);
	merge_finish(&rd.merge);
	tagger_free(tagger);
	return r;
}
