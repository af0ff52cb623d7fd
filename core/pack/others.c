/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/others.h"

#include "import/lister.h"
#include "writer/lists.h"

int others_check(const char *const *sources)
{
	char shown[256];

	for (size_t i = 0; sources && sources[i]; i++) {
		carton_source_label(sources[i], shown, sizeof(shown));
		if (i == MAX_OTHERS)
			return log_error(-EINVAL, shown,
					 "is one of more than %d other repositories", MAX_OTHERS);
		if (!lister_of(sources[i]))
			return log_error(-EINVAL, shown,
					 "is no repository that may have the same files");
	}
	return 0;
}

const char *others_next(const struct others *o)
{
	return o->sources ? o->sources[o->n] : NULL;
}

int others_open(struct others *o, const struct carton_options *options)
{
	struct carton_options with = *options;
	size_t i = o->n++;

	/* these are of the repository that is imported */
	with.manifest_sha256 = with.header_file = NULL;
	return carton_open(o->sources[i], &with, &o->list[i]);
}

/* ---- LINKS ---- */

static bool has(const struct link *l, const char *url)
{
	for (size_t i = 0; i < l->n_urls; i++)
		if (strcmp(l->urls[i], url) == 0)
			return true;
	return false;
}

/* One that says another size has other bytes, or lies. */
static bool is_same(const struct link *own, const struct link *other)
{
	return other && !other->fault &&
	       (own->size == LINKS_NO_SIZE || other->size == LINKS_NO_SIZE ||
		own->size == other->size);
}

/* Adds the URLs of all others to those of `own`, in their order. */
static int add_link(struct others *o, const struct link *own, struct buf *ret)
{
	static const char *const none[] = { NULL };
	char *urls[MAX_HASH_URLS];
	struct link all = { .urls = urls, .n_urls = MIN(own->n_urls, (size_t)MAX_HASH_URLS) };

	memcpy(urls, own->urls, all.n_urls * sizeof(*urls));
	for (size_t i = 0; i < o->n; i++) {
		const struct link *l = links_find(o->list[i]->links, own->sha256);

		for (size_t u = 0; is_same(own, l) && u < l->n_urls; u++)
			if (all.n_urls < MAX_HASH_URLS && !has(&all, l->urls[u]))
				urls[all.n_urls++] = l->urls[u];
	}
	o->shared += all.n_urls > own->n_urls;
	return lists_add_link(ret, own->sha256, none, &all);
}

static int add_sizes(const struct links *own, struct buf *ret)
{
	int r = lists_begin_sizes(ret);

	for (size_t i = 0; i < own->n && r == 0; i++)
		if (!own->list[i].fault && own->list[i].size != LINKS_NO_SIZE)
			r = lists_add_size(ret, own->list[i].sha256, own->list[i].size);
	return r;
}

int others_links(struct others *o, const struct links *own, struct buf *ret)
{
	int r = 0;

	*ret = buf_init(MAX_LINKS_FILE);
	if (!own)
		return 0;
	r = lists_begin_links(ret);
	for (size_t i = 0; i < own->n && r == 0; i++)
		if (!own->list[i].fault)
			r = add_link(o, &own->list[i], ret);
	return r == 0 ? add_sizes(own, ret) : r;
}

void others_close(struct others *o)
{
	for (size_t i = 0; i < o->n; i++)
		carton_close(o->list[i]);
}
