/* SPDX-License-Identifier: Apache-2.0 */
/* The text of LINKS of a new carton. */
#include "pack/plan.h"

#include "pack/others.h"
#include "writer/lists.h"

/* Copies the text of the source's LINKS. */
static int copy_links(const struct pack_plan *p, struct buf *ret)
{
	struct container *c = p->c->container;
	const struct entry *e = container_find(c, "LINKS");

	*ret = (struct buf){ 0 };
	return e ? container_read(c, e, MAX_LINKS_FILE, ret) : 0;
}

/* The size of a linked file, which was read, or is what `old` says. */
static int add_size(struct buf *sizes, const struct node *file, const struct link *old,
		    const uint8_t sha256[SHA256_SIZE])
{
	uint64_t size = file ? node_size(file) : OBJECT_NO_SIZE;

	if (size == OBJECT_NO_SIZE)
		size = old ? old->size : LINKS_NO_SIZE;
	if (size == LINKS_NO_SIZE)
		return 0;
	if (!sizes->len)
		lists_begin_sizes(sizes);
	return lists_add_size(sizes, sha256, size);
}

int plan_links(const struct pack_plan *p, struct buf *ret)
{
	const struct links *old = p->c->links;
	static const char *const none[] = { NULL };
	struct buf sizes = buf_init(MAX_LINKS_FILE);
	uint8_t hash[SHA256_SIZE];
	size_t o = 0, i = 0;
	int r;

	if (p->options->mode == CARTON_IMPORT)
		return others_links(p->others, old, ret);
	if (p->options->mode != CARTON_LINK) {
		*ret = (struct buf){ 0 };
		return p->options->mode == CARTON_REPACK ? copy_links(p, ret) : 0;
	}
	*ret = buf_init(MAX_LINKS_FILE);
	r = lists_begin_links(ret);
	/* both are sorted by hash */
	while (r == 0 && (i < p->n_linked || (old && o < old->n))) {
		const struct node *file = i < p->n_linked ? p->linked[i] : NULL;
		const struct link *link = old && o < old->n ? &old->list[o] : NULL;
		const uint8_t *sha256 = hash;
		int order;

		if (file)
			manifest_hash(file->name, hash);
		order = !file ? 1 : !link ? -1 : memcmp(hash, link->sha256, SHA256_SIZE);
		if (order > 0 && (o++, link->fault))
			continue;
		if (order > 0) {
			sha256 = link->sha256;
			file = NULL;
		} else if (order < 0) {
			link = NULL;
		}
		r = lists_add_link(ret, sha256, file ? p->options->urls : none, link);
		if (r == 0)
			r = add_size(&sizes, file, link, sha256);
		i += order <= 0;
		o += order == 0;
	}
	if (r == 0)
		r = buf_add(ret, sizes.data, sizes.len);
	buf_finish(&sizes);
	return r;
}
