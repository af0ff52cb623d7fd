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

int plan_links(const struct pack_plan *p, struct buf *ret)
{
	const struct links *old = p->c->links;
	static const char *const none[] = { NULL };
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
		const uint8_t *sha256 = i < p->n_linked ? hash : NULL;
		const struct link *link = old && o < old->n ? &old->list[o] : NULL;
		int order;

		if (sha256)
			manifest_hash(p->linked[i]->name, hash);
		order = !sha256 ? 1 : !link ? -1 : memcmp(hash, link->sha256, SHA256_SIZE);

		if (order > 0 && (o++, link->fault))
			continue;
		r = lists_add_link(ret, order > 0 ? link->sha256 : sha256,
				   order > 0 ? none : p->options->urls, order < 0 ? NULL : link);
		i += order <= 0;
		o += order == 0;
	}
	return r == 0 ? lists_copy_sizes(ret, old) : r;
}
