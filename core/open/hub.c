/* SPDX-License-Identifier: Apache-2.0 */
/* A repository of a hub: the carton that says what it has. */

#include "archive/container.h"
#include "fetch/reach.h"
#include "import/import.h"
#include "open/kind.h"
#include "open/late.h"

static bool takes(const char *name)
{
	return lister_of(name) != NULL;
}

static int begin(struct carton_source *s)
{
	int r = lister_parse(lister_of(s->name), s->name, &s->repository);

	if (r < 0)
		return r;
	s->repository.plain |= s->place.plain;
	/* what has this origin gets the user's token */
	s->url = strdup(s->repository.server);
	return s->url ? 0 : -ENOMEM;
}

static bool may_fetch(const struct carton_source *s)
{
	(void)s;
	return true;
}

static bool may_unpack(const struct carton_source *s)
{
	return lister_of(s->name) == &oci_lister && !s->options->offline;
}

static int entries(struct carton_source *s, struct container **ret)
{
	struct carton *c = s->carton;
	struct import im = { .cache = c->cache, .budget = &c->budget };
	char commit[LISTING_COMMIT];
	int r = open_network(s);

	if (r == 0 && c->fetch.http)
		r = fetch_reach_mirrors(&c->fetch, s->place.mirrors, s->place.n_mirrors,
					c->mirrors);
	if (r < 0)
		return r;
	if (s->pack)
		im.runner = s->pack->runner;
	im.fetch = c->fetch.http ? &c->fetch : NULL;
	im.mirrors = s->place.mirrors;
	im.n_mirrors = s->place.n_mirrors;
	im.token = c->logins || s->options->header_file;
	im.seals = !s->options->noseals;
	im.late = late_is_wanted(s);
	r = import_repository(&im, lister_of(s->name), &s->repository, commit, ret);
	if (r < 0 || !*commit)
		return r;
	c->commit = strdup(commit);
	if (c->commit)
		return 0;
	container_close(*ret);
	return -ENOMEM;
}

static int signatures(struct carton_source *s, import_signature_fn *take, void *ctx)
{
	struct carton *c = s->carton;
	const struct import im = { .fetch = c->fetch.http ? &c->fetch : NULL,
				   .cache = c->cache,
				   .budget = &c->budget,
				   .mirrors = s->place.mirrors,
				   .n_mirrors = s->place.n_mirrors,
				   .attached_ms = ATTACHED_TIMEOUTS * c->fetch.timeout_ms };

	return c->commit ? import_signatures(&im, &(struct import_signed){ lister_of(s->name),
									   &s->repository,
									   c->commit, take, ctx }) :
			   0;
}

const struct source_kind hub_kind = {
	.takes = takes,
	.begin = begin,
	.may_fetch = may_fetch,
	.may_unpack = may_unpack,
	.entries = entries,
	.signatures = signatures,
	.own_links = true,
};
