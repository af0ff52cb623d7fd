/* SPDX-License-Identifier: Apache-2.0 */
/* The maker for what LINKS lists: fetched into a copy, and verified as it comes. */
#include <stdlib.h>

#include "base/util.h"
#include "cache/cache.h"
#include "fetch/fetch.h"
#include "object/internal.h"

struct maker_link {
	struct maker maker;
	struct link *link;
};

static struct link *link_of(const struct object *o)
{
	return container_of(o->maker, struct maker_link, maker)->link;
}

/* A fetch for a making, which ends when that is cancelled. */
struct guarded_fetch {
	struct fetch fetch;
	struct http_cancel http;
	struct cancel_hook hook;
};

static void on_cancel(struct cancel_hook *hook)
{
	http_cancel_fire(&container_of(hook, struct guarded_fetch, hook)->http);
}

static int fetch_begin(struct guarded_fetch *g, struct making *m, struct dest *dest)
{
	const struct object_store *s = m->object->store;
	int r;

	if (!s->options.remote)
		return copy_offline(m);
	r = http_cancel_init(&g->http);
	if (r < 0)
		return r;
	g->fetch = (struct fetch){
		.remote = s->options.remote,
		.tagger = s->tagger,
		.link = link_of(m->object),
		.dest = dest,
		.deadline_ms = now_ms() + s->options.remote->timeout_ms,
		.cancel = &g->http,
		.token = &m->cancel,
		.progress = making_count,
		.ctx = m,
	};
	g->hook.fire = on_cancel;
	cancel_hook_add(&m->cancel, &g->hook);
	return 0;
}

static void fetch_end(struct guarded_fetch *g)
{
	struct making *m = g->fetch.ctx;

	cancel_hook_remove(&m->cancel, &g->hook);
	http_cancel_destroy(&g->http);
}

static void fill_copy(struct copy *c, struct dest *dest)
{
	struct ingested in = { 0 };
	struct guarded_fetch g;
	int r = fetch_begin(&g, c->making, dest);

	if (r == 0) {
		r = fetch_object(&g.fetch, &in);
		fetch_end(&g);
	}
	copy_filled(c, r, &in);
}

static void copy_done(struct copy *c, int result)
{
	struct making *m = c->making;

	free(c);
	making_done(m, result);
}

static void link_get_bytes(struct making *m)
{
	struct copy *c = calloc(1, sizeof(*c));

	if (!c) {
		making_done(m, -ENOMEM);
		return;
	}
	*c = (struct copy){
		.making = m,
		.cached = true,
		.fill = fill_copy,
		.done = copy_done,
	};
	copy_start(c);
}

static void link_get_size(struct making *m)
{
	const struct object_options *options = &m->object->store->options;
	struct guarded_fetch g;
	int fd, r = -ENOENT;

	if (options->cache)
		r = cache_lookup(options->cache, m->object->sha256, &fd, &m->size);
	if (r == 0) {
		fd_close(fd);
	} else {
		r = fetch_begin(&g, m, NULL);
		if (r == 0) {
			r = fetch_size(&g.fetch, &m->size);
			fetch_end(&g);
		}
	}
	/* no server says: then only all of it tells, and the cache has it for the open to come */
	if (r == -ENODATA)
		link_get_bytes(m);
	else
		making_done(m, r);
}

static enum lane link_lane(const struct object *o)
{
	(void)o;
	return LANE_NET;
}

static void link_free(struct maker *maker)
{
	free(container_of(maker, struct maker_link, maker));
}

static const struct maker_ops link_ops = {
	.get_bytes = link_get_bytes,
	.get_size = link_get_size,
	.lane = link_lane,
	.free = link_free,
	.always_verified = true,
};

int object_add_link(struct object_store *s, const uint8_t sha256[SHA256_SIZE], const char *name,
		    struct link *link, struct object **ret)
{
	struct object *o = store_find(s, sha256, OBJECT_NO_SIZE);
	struct maker_link *ml;

	if (o) {
		*ret = o;
		return 0;
	}
	if (!link)
		return -ENOENT;
	ml = malloc(sizeof(*ml));
	if (!ml)
		return -ENOMEM;
	*ml = (struct maker_link){ { &link_ops }, link };
	return store_add(s, sha256, name, OBJECT_NO_SIZE, &ml->maker, ret);
}
