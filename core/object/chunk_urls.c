/* SPDX-License-Identifier: Apache-2.0 */
#include "object/chunk_urls.h"

#include <stdlib.h>

#include "base/util.h"
#include "fetch/mirrors.h"
#include "format/links.h"
#include "object/internal.h"

int chunk_urls_find(struct chunk_urls *u, const struct object *o, const struct link *link)
{
	int r = mirrors_urls(o->store->options.mirrors, o->sha256, object_name(o),
			     link ? link->urls : NULL, link ? link->n_urls : 0, &u->urls,
			     &u->n_by_hash);

	if (r < 0)
		return r;
	u->n = u->n_by_hash + (link ? link->n_urls : 0);
	u->good = u->n_by_hash;
	u->dropped = calloc(u->n + 1, sizeof(*u->dropped));
	return u->dropped ? 0 : -ENOMEM;
}

void chunk_urls_free(struct chunk_urls *u)
{
	free(u->urls);
	free(u->dropped);
}

size_t chunk_urls_list(const struct chunk_urls *u, char **ret, size_t *ret_n_by_hash)
{
	size_t n = 0, by_hash = 0, links = u->n - u->n_by_hash;

	for (size_t i = 0; i < u->n; i++) {
		size_t k = i < u->n_by_hash ?
				   i :
				   u->n_by_hash + (u->good + i - 2 * u->n_by_hash) % links;

		if (!u->dropped[k])
			ret[n++] = u->urls[k];
		if (i + 1 == u->n_by_hash)
			by_hash = n;
	}
	*ret_n_by_hash = by_hash;
	return n;
}

/* u->n: it is not in the list. */
static size_t index_of(const struct chunk_urls *u, const char *url)
{
	size_t i = 0;

	while (i < u->n && u->urls[i] != url)
		i++;
	return i;
}

bool chunk_urls_has(const struct chunk_urls *u, const char *url)
{
	return index_of(u, url) < u->n;
}

void chunk_urls_good(struct chunk_urls *u, const char *url)
{
	size_t at = index_of(u, url);

	if (at < u->n)
		u->good = MAX(at, u->n_by_hash);
	for (size_t i = 0; i < MIN(at, u->n_by_hash); i++)
		u->dropped[i] = true;
}

bool chunk_urls_bad(struct chunk_urls *u, const char *url)
{
	size_t i = index_of(u, url);
	bool *noted = i < u->n ? &u->dropped[i] : &u->logged;
	bool first = !*noted;

	*noted = true;
	return first;
}

void chunk_urls_drop_mirrors(struct chunk_urls *u)
{
	for (size_t i = 0; i < u->n_by_hash; i++)
		u->dropped[i] = true;
}
