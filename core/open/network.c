/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pace.h"
#include "http/hf.h"
#include "http/http.h"
#include "http/scheme.h"
#include "open/kind.h"

int open_network(const struct carton_source *s)
{
	const struct carton_options *options = s->options;
	struct carton *c = s->carton;
	struct http_options http = {
		.private_links = options->private_links,
		.requester_pays = options->requester_pays,
		.cacert = options->cacert,
		.bundle = &s->bundle,
		.header_file = options->header_file,
		.source_url = s->url ? s->url : s->hub,
		.source_scheme = s->url ? scheme_of(s->name) : &hf_scheme,
		.logins = c->logins,
		.registries = c->registries,
		.budget = &c->budget,
	};
	int r;

	if (options->offline || c->fetch.http)
		return 0;
	c->fetch.timeout_ms = options->timeout_s ? options->timeout_s * 1000L : pace.timeout_ms;
	/* libcurl gives half of it to the first address, so the next has its turn before the end */
	http.connect_timeout_ms = (long)MIN(c->fetch.timeout_ms, pace.connect_ms);
	c->fetch.connections = options->connections ? options->connections : 8;
	c->fetch.max_size = options->max_size;
	c->fetch.extra = &c->extra_connections;
	c->fetch.fetched = &c->fetched;
	c->fetch.budget = &c->budget;
	r = servers_new(c->fetch.connections, &c->servers);
	if (r < 0)
		return r;
	c->fetch.servers = c->servers;
	c->fetch.cancel = &c->stop;
	c->fetch.progress = options->progress;
	c->fetch.progress_ctx = options->progress_ctx;
	c->fetch.opener = pthread_self();
	c->fetch.workers = c->workers;
	c->fetch.events = c->events;
	return http_new(&http, &c->fetch.http);
}
