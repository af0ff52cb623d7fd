/* SPDX-License-Identifier: Apache-2.0 */
#include "object/plan.h"

#include <stdlib.h>

#include "archive/container.h"
#include "archive/decode.h"
#include "base/util.h"
#include "fetch/fetcher.h"
#include "fetch/mirrors.h"
#include "format/links.h"
#include "object/internal.h"

/* a Stored entry up to here costs one request, a larger one another one for its local header */
#define WHOLE (8 * MIB)

struct plan *plan_new(struct object *o, const struct place *first, struct link *link)
{
	struct plan *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->refs = 1;
	p->object = o;
	p->link = link;
	p->first = p->at = first;
	p->entry = first ? first->entry : NULL;
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
		route_finish(&p->states[i].route);
	free(p->states);
	free(p->urls);
	free(p);
}

/* ---- entries ---- */

bool plan_next_entry(struct plan *p)
{
	const struct object_options *options = &p->object->store->options;

	if (!p->entry)
		return false;
	p->data = 0;
	if (!options->find_entry) {
		p->at = p->at->next;
		p->entry = p->at ? p->at->entry : NULL;
		return p->entry;
	}
	do
		p->entry = options->find_entry(options->ctx, p->object, &p->found);
	while (p->entry && p->entry == p->first->entry);
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

	return mirrors_open(o->store->options.mirrors, o->sha256, object_name(o), at, ret_fd);
}

int plan_find_urls(struct plan *p)
{
	const struct object *o = p->object;
	char *const *listed = p->link ? p->link->urls : NULL;
	size_t n, n_listed = p->link ? p->link->n_urls : 0;

	if (p->states)
		return 0;
	if (mirrors_urls(o->store->options.mirrors, o->sha256, object_name(o), listed, n_listed,
			 &p->urls, &p->n_by_hash) < 0)
		return -ENOMEM;
	n = p->n_by_hash + n_listed;
	p->states = calloc(n + 1, sizeof(*p->states));
	if (!p->states) {
		free(p->urls);
		p->urls = NULL;
		return -ENOMEM;
	}
	for (; p->n_urls < n; p->n_urls++)
		route_init(&p->states[p->n_urls].route);
	return 0;
}

bool plan_has_urls(const struct plan *p)
{
	size_t i = 0;

	while (i < p->n_urls && atomic_load(&p->states[i].bad))
		i++;
	return i < p->n_urls;
}

size_t plan_index(const struct plan *p, const char *url)
{
	size_t i = 0;

	while (i < p->n_urls && p->urls[i] != url)
		i++;
	return i;
}

bool plan_drop_url(struct plan *p, size_t index)
{
	return !atomic_exchange(&p->states[index].bad, true);
}

void plan_drop_mirrors(struct plan *p, size_t n)
{
	for (size_t i = 0; i < MIN(n, p->n_by_hash); i++)
		plan_drop_url(p, i);
}

void plan_allow_urls(struct plan *p)
{
	for (size_t i = 0; i < p->n_urls; i++)
		atomic_store(&p->states[i].bad, false);
}
