/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a carton that is not open yet; ends its requests; closes it. */
#include <stdlib.h>

#include "carton/opened.h"
#include "fetch/remote_source.h"
#include "http/http.h"
#include "http/registries.h"
#include "http/scheme.h"

struct carton *carton_new(void)
{
	struct carton *c = calloc(1, sizeof(*c));

	if (c)
		cancel_init(&c->stop, NULL);
	return c;
}

void carton_stop(struct carton *c)
{
	cancel_fire(&c->stop);
	/* its thread is making the parts; the token ends what that waits for */
	if (atomic_load(&c->opening))
		return;
	if (c->store)
		object_store_stop(c->store);
	if (c->fetch.http)
		http_stop(c->fetch.http);
}

void carton_close(struct carton *c)
{
	if (!c)
		return;
	carton_stop(c);
	if (c->has_opener) {
		pthread_join(c->opener, NULL);
		carton_stop(c);
	}
	workers_free(c->workers);
	events_free(c->events);
	if (c->index.file)
		carton_unpin(from_node(c->index.file));
	meta_free(c->meta);
	views_free(c->views);
	tree_free(c->tree);
	object_store_free(c->store);
	chunks_free(c->index.chunks);
	manifest_free(c->manifest);
	links_free(c->links);
	container_close(c->container);
	source_unref(c->remote_source);
	http_free(c->fetch.http);
	servers_free(c->servers);
	mirrors_free(c->mirrors);
	login_free(c->logins);
	registries_free(c->registries);
	cache_close(c->cache);
	free(c->late.list);
	free(c->in_cache);
	free(c->commit);
	free(c->label);
	cancel_finish(&c->stop);
	free(c);
}
