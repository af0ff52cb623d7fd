/* SPDX-License-Identifier: Apache-2.0 */
#include "import/packed.h"

#include <stdlib.h>

#include "archive/decode.h"
#include "cache/cache.h"
#include "import/internal.h"

struct packed {
	struct container container;
	struct container *zip;
	struct cache *cache; /* or NULL */
	struct packed_layer {
		struct source *source;
		uint8_t sha256[SHA256_SIZE];
	} * layers;
	size_t n_layers;
	size_t cap;
	uint64_t taken;
};

static struct packed *packed_of(struct container *c)
{
	return container_of(c, struct packed, container);
}

/* Else it is of a layer: entry.layer is set, not entry.crc. */
static bool is_of_zip(const struct entry *e)
{
	return e->has_crc;
}

/* ---- the container ---- */

static int packed_locate(struct container *c, const struct entry *e, struct source **ret_source,
			 uint64_t *ret_off)
{
	struct packed *p = packed_of(c);

	if (is_of_zip(e))
		return container_locate(p->zip, e, ret_source, ret_off);
	*ret_source = source_ref(p->layers[e->layer - 1].source);
	*ret_off = e->header;
	return 0;
}

static int packed_peek(struct container *c, const struct entry *e, void *buf,
		       const void **ret_stored)
{
	struct packed *p = packed_of(c);

	if (is_of_zip(e))
		return container_peek(p->zip, e, buf, ret_stored);
	if (source_pread_nowait(p->layers[e->layer - 1].source, buf, (size_t)e->stored, e->header) <
	    0)
		return -EAGAIN;
	*ret_stored = buf;
	return 0;
}

static int packed_readlink(struct container *c, const struct entry *e, struct buf *ret)
{
	return container_readlink(packed_of(c)->zip, e, ret);
}

/* Drops the entry's layer from the cache, so that the next mount fetches it again. */
static void packed_damaged(struct container *c, const struct entry *e)
{
	const struct packed *p = packed_of(c);
	const struct packed_layer *layer;

	if (is_of_zip(e) || !p->cache)
		return;
	layer = &p->layers[e->layer - 1];
	cache_drop(p->cache, layer->sha256, layer->source->fd);
}

static void packed_free(struct container *c)
{
	struct packed *p = packed_of(c);

	for (size_t i = 0; i < p->n_layers; i++)
		source_unref(p->layers[i].source);
	container_close(p->zip);
	budget_give(c->budget, p->taken);
	arena_finish(&c->names);
	free(c->entries);
	free(p->layers);
	free(p);
}

static const struct container_ops packed_ops = {
	.locate = packed_locate,
	.peek = packed_peek,
	.readlink = packed_readlink,
	.damaged = packed_damaged,
	.free = packed_free,
};

/* ---- its entries ---- */

static int add_entry(struct packed *p, const struct entry *e)
{
	struct container *c = &p->container;
	struct entry *mine;
	int r = budget_room(c->budget, &p->taken, c->entries, &p->cap, c->n_entries + 1);

	if (r < 0)
		return r;
	mine = &c->entries[c->n_entries];
	*mine = *e;
	mine->name = arena_text(&c->names, e->name, e->name_len);
	if (!mine->name)
		return -ENOMEM;
	c->n_entries++;
	return 0;
}

static int add_file(void *ctx, const struct layers_file *f)
{
	return add_entry(ctx, &(struct entry){
				      .name = f->path,
				      .name_len = (uint32_t)f->n_path,
				      .size = f->size,
				      .stored = f->size,
				      .header = f->off,
				      .method = METHOD_STORED,
				      .kind = ENTRY_FILE,
				      .executable = f->executable,
				      .layer = f->layer,
			      });
}

static int add_zip(struct packed *p)
{
	int r = 0;

	for (size_t i = 0; i < p->zip->n_entries && r == 0; i++)
		if (strcmp(p->zip->entries[i].name, LAYERS) != 0)
			r = add_entry(p, &p->zip->entries[i]);
	return r;
}

/* ---- opening ---- */

/* Reads LAYERS: its layers go to `noted`, its files become entries. */
static int read_list(struct packed *p, struct listing *noted, const struct entry *e)
{
	struct buf text = { 0 };
	int r = container_read(p->zip, e, MAX_MANIFEST, &text);

	if (r == 0)
		r = layers_parse(noted, &text, add_file, p);
	buf_finish(&text);
	return r;
}

/* Opens the tars of all layers: those that `l` has open, and others by layer_get(). */
static int get_layers(const struct import *im, struct packed *p, const struct listing *l,
		      struct listing *noted)
{
	int r = 0;

	p->layers = calloc(noted->n_layers + 1, sizeof(*p->layers));
	if (!p->layers)
		return -ENOMEM;
	for (size_t i = 0; i < noted->n_layers && r == 0; i++) {
		struct listed_layer *layer = &noted->layers[i];
		uint64_t size = layer->size;

		if (i < l->n_layers && l->layers[i].source)
			layer->source = source_ref(l->layers[i].source);
		else
			r = layer_get(im, l, layer, NULL);
		if (r == 0) {
			memcpy(p->layers[p->n_layers].sha256, layer->tar, SHA256_SIZE);
			p->layers[p->n_layers++].source = source_ref(layer->source);
		}
		if (r == 0 && layer->source->size != size)
			r = log_error(-EBADMSG, l->name, "a layer has another size than was noted");
	}
	return r;
}

int packed_open(const struct import *im, struct listing *l, struct container *zip,
		struct container **ret)
{
	const struct entry *list = container_find(zip, LAYERS);
	struct listing noted = { .name = l->name, .budget = im->budget };
	struct packed *p;
	int r;

	if (!list) {
		*ret = zip;
		return 0;
	}
	p = calloc(1, sizeof(*p));
	if (!p) {
		container_close(zip);
		return -ENOMEM;
	}
	p->zip = zip;
	p->cache = im->cache;
	p->container = (struct container){ .ops = &packed_ops,
					   .budget = im->budget,
					   .one_file = true };
	r = add_zip(p);
	if (r == 0)
		r = read_list(p, &noted, list);
	if (r == 0)
		r = get_layers(im, p, l, &noted);
	if (r == 0)
		r = container_index(&p->container);
	listing_finish(&noted);
	if (r < 0)
		packed_free(&p->container);
	else
		*ret = &p->container;
	return r;
}
