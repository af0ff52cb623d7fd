/* SPDX-License-Identifier: Apache-2.0 */
#include "content/plan.h"

#include <stdlib.h>

#include "archive/container.h"
#include "archive/decode.h"
#include "base/util.h"
#include "fetch/fetcher.h"
#include "fetch/mirrors.h"
#include "format/links.h"
#include "content/internal.h"

/* a Stored entry up to here is fetched with all that is around its data, and copied */
#define WHOLE (8 * MIB)

struct plan *plan_new(struct object *o, const struct entry *first, struct link *link)
{
	struct plan *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->refs = 1;
	p->object = o;
	p->link = link;
	p->first = p->entry = first;
	return p;
}

struct plan *plan_ref(struct plan *p)
{
	atomic_fetch_add(&p->refs, 1);
	return p;
}

void plan_unref(struct plan *p)
{
	if (!p || atomic_fetch_sub(&p->refs, 1) > 1)
		return;
	for (size_t i = 0; i < p->n_urls; i++)
		route_finish(&p->urls[i].route);
	for (char **name = p->names; name && *name; name++)
		free(*name);
	free(p->urls);
	free(p->names);
	free(p);
}

/* ---- entries ---- */

bool plan_next_entry(struct plan *p)
{
	const struct object_options *options = &p->object->store->options;

	if (!p->entry)
		return false;
	p->header_at = NULL;
	do
		p->entry = options->find_entry(options->ctx, p->object, &p->found);
	while (p->entry && p->entry == p->first);
	return p->entry;
}

bool plan_is_direct(const struct entry *e)
{
	return e->method == METHOD_STORED && entry_end(e) - e->header > WHOLE &&
	       !(e->flags & ENTRY_DESCRIPTOR);
}

/* ---- directories and URLs ---- */

int plan_open_directory(const struct plan *p, size_t *at, int *ret_fd)
{
	const struct object *o = p->object;
	const struct mirrors *m = o->store->options.mirrors;

	return m ? mirrors_open(m, o->sha256, object_name(o), at, ret_fd) : -ENOENT;
}

int plan_find_urls(struct plan *p)
{
	const struct object *o = p->object;
	const struct mirrors *m = o->store->options.mirrors;
	size_t n_mirrors = 0, n_listed = p->link ? p->link->n_urls : 0;

	if (p->urls)
		return 0;
	/* mirrors have files by their sha256, which is not known yet */
	if (link_late(p->link))
		m = NULL;
	if (m && !p->names && mirrors_urls(m, o->sha256, object_name(o), &p->names) < 0)
		return -ENOMEM;
	while (p->names && p->names[n_mirrors])
		n_mirrors++;
	p->urls = calloc(n_mirrors + n_listed + 1, sizeof(*p->urls));
	if (!p->urls)
		return -ENOMEM;
	for (; p->n_urls < n_mirrors + n_listed; p->n_urls++) {
		struct fetch_place *u = &p->urls[p->n_urls];

		u->mirror = p->n_urls < n_mirrors;
		u->url = u->mirror ? p->names[p->n_urls] : p->link->urls[p->n_urls - n_mirrors];
		u->trust = u->mirror || p->link->user ? HTTP_USER : HTTP_LINKS;
		route_init(&u->route);
	}
	return 0;
}

bool plan_has_urls(const struct plan *p)
{
	size_t i = 0;

	while (i < p->n_urls && atomic_load(&p->urls[i].bad))
		i++;
	return i < p->n_urls;
}

size_t plan_index(const struct plan *p, const char *url)
{
	size_t i = 0;

	while (i < p->n_urls && p->urls[i].url != url)
		i++;
	return i;
}

bool plan_drop_url(struct plan *p, size_t index)
{
	return !atomic_exchange(&p->urls[index].bad, true);
}

void plan_drop_mirrors(struct plan *p, size_t n)
{
	for (size_t i = 0; i < MIN(n, p->n_urls) && p->urls[i].mirror; i++)
		plan_drop_url(p, i);
}

void plan_allow_urls(struct plan *p)
{
	for (size_t i = 0; i < p->n_urls; i++)
		atomic_store(&p->urls[i].bad, false);
}

/* ---- the carton ---- */

size_t plan_carton(const struct plan *p, struct fetch_place **ret)
{
	return remote_source_places(p->object->store->options.source, ret);
}

size_t plan_carton_left(const struct plan *p)
{
	struct fetch_place *places;
	size_t left = 0, n = plan_carton(p, &places);

	while (n-- > 0)
		left += !atomic_load(&places[n].bad);
	return left;
}

bool plan_has_header(const struct plan *p)
{
	const struct fetch_place *at = atomic_load(&p->header_at);

	return at && !atomic_load(&at->bad);
}

void plan_keep_header(struct plan *p, const struct fetch_place *from)
{
	atomic_store(&p->header_at, from);
}
