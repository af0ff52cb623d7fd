/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gets the tar of a layer. The cache keeps a blob that is an uncompressed tar as an object. Of a
 * compressed blob it keeps the unpacked tar, and not the blob.
 */
#include "import/layer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "fetch/fetcher.h"
#include "http/registries.h"

/* ---- fetching ---- */

struct fetching {
	struct layer_get *get;
	struct follow follow;
};

static int check(void *ctx, struct fetch_place *from)
{
	struct fetching *f = ctx;
	struct ingested in = { 0 };
	int r = follow_end(&f->follow, &in);

	/* wrong bytes of a mirror are not logged */
	if (r == 0 && from->mirror)
		return memcmp(in.sha256, f->get->layer->blob, SHA256_SIZE) == 0 ? 0 : -EBADMSG;
	return r < 0 ? r : layer_compare(f->get, in.sha256);
}

static void refused(void *ctx, const struct http_response *a)
{
	const struct fetching *f = ctx;

	f->get->l->lister->refused(f->get->im, f->get->l, a);
}

/* Frees the places of `n` mirrors and of the registry, which is the last one. */
static void places_free(struct fetch_place *places, size_t n)
{
	for (size_t i = 0; i <= n; i++) {
		route_finish(&places[i].route);
		if (i < n)
			free((char *)places[i].url);
	}
	free(places);
}

/* The places to fetch the blob from: the mirrors, then the registry. NULL: no memory. */
static struct fetch_place *places_new(const struct layer_get *g)
{
	size_t n = g->im->n_mirrors, i = 0;
	struct fetch_place *places = calloc(n + 1, sizeof(*places));

	for (; places && i < n; i++) {
		char *url;

		if (asprintf(&url, "%s/blobs/%s", g->im->mirrors[i].base, g->name) < 0)
			break;
		places[i].url = url;
		places[i].mirror = true;
		places[i].trust = HTTP_USER;
		route_init(&places[i].route);
	}
	if (!places)
		return NULL;
	places[i].url = g->url;
	places[i].trust = HTTP_USER;
	route_init(&places[i].route);
	if (i == n)
		return places;
	places_free(places, i);
	return NULL;
}

static int fetch_to(struct layer_get *g, struct file *dest)
{
	const struct fetch_options *options = g->im->fetch;
	struct fetching f = { .get = g };
	struct fetch_place *places = places_new(g);
	struct fetch fetch = {
		.options = options,
		.cancel = options->cancel,
		.what = FETCH_FILE,
		.places = places,
		.n_places = g->im->n_mirrors + 1,
		.n = g->layer->blob_size,
		.max = g->layer->blob_size,
		.whole = true,
		.dest = dest,
		.follow = &f.follow,
		.check = check,
		.refused = refused,
		.ctx = &f,
	};
	uint64_t size;
	int r;

	if (!places)
		return -ENOMEM;
	f.follow = (struct follow){
		.dest = dest, .workers = options->workers, .cancel = options->cancel, .hash = true
	};
	follow_init(&f.follow);
	r = fetch_run(&fetch, &size);
	follow_finish(&f.follow);
	places_free(places, g->im->n_mirrors);
	if (r == 0 && size != g->layer->blob_size)
		r = log_error(-EBADMSG, g->l->name,
			      "a layer has %" PRIu64 " bytes, not %" PRIu64 " as the manifest says",
			      size, g->layer->blob_size);
	return r;
}

/* Reads the blob that was fetched to `dest`. Commits or aborts `dest`. */
static int read_fetched(struct layer_get *g, struct file *dest)
{
	struct layer_blob b = { .file = dest };
	bool cached = file_is_cached(dest);
	int r = layer_is_plain(g, &b);

	if (r > 0) {
		r = file_commit(dest, NULL, g->layer->blob_size, &b.source);
		if (r < 0)
			return r;
		if (cached)
			cache_name_put(g->im->cache, g->layer->blob, "", g->l->name);
		r = layer_read(g, &b);
		source_unref(b.source);
		return r;
	}
	if (r == 0)
		r = layer_read(g, &b);
	file_abort(dest, r == -ECANCELED || room_is_full(r));
	return r;
}

/* Reads the blob from the cache. -ENOENT: it is not there, or was damaged and is dropped. */
static int read_cached(struct layer_get *g)
{
	struct layer_blob b = { 0 };
	int r = g->im->cache ? cache_source(g->im->cache, g->layer->blob, &b.source) : -ENOENT;

	if (r < 0)
		return r == -ENOMEM ? r : -ENOENT;
	g->sound = false;
	r = b.source->size == g->layer->blob_size ? layer_read(g, &b) : -EBADMSG;
	if (r == -EBADMSG && !g->sound) {
		cache_drop(g->im->cache, g->layer->blob, b.source->fd);
		r = -ENOENT;
	}
	source_unref(b.source);
	return r;
}

static int fetch_blob(struct layer_get *g)
{
	struct room room = { .name = g->name,
			     .cache = g->im->cache,
			     .key = g->layer->blob,
			     .size = g->layer->blob_size };
	struct file *dest;
	unsigned found = 0;
	bool again;
	int r;

	do {
		r = layer_room(g, &room, &dest);
		again = r == -EEXIST;
		if (again) { /* the cache has the blob: another process has fetched it */
			r = read_cached(g);
			if (r != -ENOENT)
				return r;
			if (cancel_fired(g->cancel))
				return -ECANCELED;
			/* the entry can neither be used nor removed: tries another kind of room */
			if (++found >= CACHE_TRIES)
				room_next(&room, r, 0);
			continue;
		}
		if (r < 0)
			return r;
		/* a blob that is unpacked is not kept, but what it unpacks to */
		r = g->waited ? layer_kept(g) : -ENOENT;
		g->waited = false;
		if (r != -ENOENT) {
			file_abort(dest, true);
			return r;
		}
		r = fetch_to(g, dest);
		if (r == 0)
			return read_fetched(g, dest);
		room.wanted = file_wanted(dest);
		file_abort(dest, !room_is_full(r));
		again = room_again(&room, &r, 0);
	} while (again);
	return r;
}

/* ---- a layer ---- */

static int get_tar(struct layer_get *g)
{
	struct listed f = { .path = "" };
	int r;

	r = layer_kept(g);
	if (r != -ENOENT)
		return r;
	if (!g->im->fetch)
		return log_error(-ENETUNREACH, g->l->name,
				 "a layer of it is not in the cache, and nothing is fetched when "
				 "offline");
	r = read_cached(g);
	if (r != -ENOENT)
		return r;
	memcpy(f.sha256, g->layer->blob, SHA256_SIZE);
	g->url = g->l->lister->url(g->l, &f);
	r = g->url ? fetch_blob(g) : -ENOMEM;
	free(g->url);
	return r;
}

int layer_get(const struct import *im, const struct listing *l, struct listed_layer *layer,
	      const struct layer_scan *scan)
{
	struct layer_get g = { .im = im, .l = l, .layer = layer, .scan = scan };

	g.cancel = im->fetch ? im->fetch->cancel : NULL;
	memcpy(g.name, "sha256:", 7);
	hex_encode(layer->blob, SHA256_SIZE, g.name + 7);
	return get_tar(&g);
}
