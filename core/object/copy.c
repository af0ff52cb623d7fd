/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/util.h"
#include "base/ingest.h"
#include "cache/read.h"
#include "object/internal.h"

/* how long another process may hold an object and add nothing to it, if there is no timeout */
#define PATIENCE_MS 60000
#define CACHE_TRIES 8

static struct object_store *store_of(const struct copy *c)
{
	return c->making->object->store;
}

static void keep_source(struct copy *c, struct source *source, struct ingested *in)
{
	struct making *m = c->making;

	m->bytes = (struct bytes){ .kind = BYTES_FILE, .source = source, .tags = in->tags };
	m->size = source->size;
	m->copied = true;
}

/* ---- the cache ---- */

static struct ingest ingest_of(struct copy *c)
{
	return (struct ingest){
		.size = c->making->object->size,
		.tagger = store_of(c)->tagger,
		.cancel = &c->making->waits.cancel,
		.progress = making_count,
		.ctx = c->making,
		.observe = c->making->observer ? making_observe : NULL,
	};
}

/* What the cache has under that name, hashed again. A damaged one is dropped, and made anew. */
static int from_cache(struct copy *c)
{
	struct object *o = c->making->object;
	struct ingest how = ingest_of(c);
	struct ingested in;
	struct source *source;
	int r = cache_read(o->store->options.cache, o->sha256, &how, &source, &in);

	atomic_fetch_add(r == 0 ? &o->store->cache_hits : &o->store->cache_misses, 1);
	if (r == 0)
		keep_source(c, source, &in);
	c->making->observed = r == 0;
	/* found, but not right: the observer may have had some of it */
	if (r < 0 && r != -ENOENT)
		making_end_observer(c->making, r);
	return r == -EBADMSG ? -ENOENT : r;
}

/*
 * What a directory of the user's mirrors has: read in place. Another's cache, so nothing is
 * dropped.
 */
static int from_mirror(struct copy *c)
{
	struct object *o = c->making->object;
	struct ingest how = ingest_of(c);
	size_t i = 0;
	int fd;

	for (; plan_open_directory(c->making->plan, &i, &fd) == 0; i++) {
		struct ingested in;
		struct source *source;
		int r = source_from_fd(fd, &source);

		if (r == 0)
			r = cache_check(source, o->sha256, &how, &in);
		if (r == 0) {
			keep_source(c, source, &in);
			return 0;
		}
		/* the observer may have had bytes that another place does not replace */
		making_end_observer(c->making, r);
		how.observe = NULL;
		if (r == -ECANCELED || r == -ENOMEM)
			return r;
		carton_log(CARTON_LOG_WARNING, object_name(o),
			   "a directory given with mirror= has other bytes than MANIFEST says");
	}
	return -ENOENT;
}

static void try_places(struct copy *c);

/* The destination has all bytes, and they are right (0, with their size and tags); or why not. */
static void filled(struct copy *c, int result, struct ingested *in)
{
	struct source *source;
	uint64_t reached = 0;

	if (result == 0) {
		result = dest_commit(c->dest, NULL, in->size, &source);
		if (result == 0)
			keep_source(c, source, in);
		else
			free(in->tags);
	} else {
		reached = dest_end(c->dest);
		/* on a full disk a partial is in the way of all that would fit */
		dest_abort(c->dest, result != -EBADMSG && !room_is_full(result));
	}
	if (room_is_full(result) && room_next(&c->room, result, reached))
		try_places(c);
	else
		c->done(c, result);
}

static void got(struct get *g, int result, struct ingested *in)
{
	filled(container_of(g, struct copy, get), result, in);
}

static void fill(struct copy *c)
{
	struct ingested in = { 0 };
	int r;

	if (c->fill) {
		filled(c, c->fill(c, c->dest, &in), &in);
		return;
	}
	c->get.plan = c->making->plan;
	c->get.waits = &c->making->waits;
	c->get.making = c->making;
	c->get.dest = c->dest;
	c->get.done = got;
	r = get_start(&c->get);
	if (r < 0)
		filled(c, r, &in);
}

static void on_cancel(struct cancel_hook *hook)
{
	task_wake(&container_of(hook, struct copy, hook)->wait);
}

/* Looks now and then how far the other process is. 0: it has ended; -EAGAIN: not yet. */
static int look(struct copy *c)
{
	const struct object_options *options = &store_of(c)->options;
	uint64_t filled;
	int r = cache_is_filling(options->cache, c->making->object->sha256, &filled);
	int64_t now = now_ms();

	if (cancel_fired(&c->making->waits.cancel))
		return -ECANCELED;
	if (r <= 0)
		return r;
	if (filled > c->filled || !c->patience_ms) {
		c->filled = filled;
		c->patience_ms = now + (options->timeout_ms ? options->timeout_ms : PATIENCE_MS);
	}
	return now < c->patience_ms ? -EAGAIN : -ETIMEDOUT;
}

static bool wait_step(struct task *t)
{
	struct copy *c = container_of(t, struct copy, wait);
	int r;

	if (!c->hook.fire) {
		c->hook.fire = on_cancel;
		cancel_hook_add(&c->making->waits.cancel, &c->hook);
	}
	r = look(c);
	if (r == -EAGAIN) {
		task_wake_at(t, now_ms() + CACHE_WAIT_STEP_MS);
		return true;
	}
	cancel_hook_remove(&c->making->waits.cancel, &c->hook);
	task_finish(t);
	if (r == -ECANCELED) {
		c->done(c, r);
		return false;
	}
	if (r < 0) {
		carton_log(CARTON_LOG_WARNING, object_name(c->making->object),
			   r == -ETIMEDOUT ? "another process is making a copy of it, but does not "
					     "proceed: it is made again" :
					     "the cache cannot be used: %s",
			   strerror(-r));
		room_next(&c->room, r, 0);
	}
	try_places(c);
	return false;
}

/* Another process fills the entry: waits without a thread until it has ended. */
static void wait_for_other(struct copy *c)
{
	const struct object *o = c->making->object;

	c->hook.fire = NULL;
	c->patience_ms = 0;
	task_init(&c->wait, o->store->options.events, o->maker->ops->lane(o), wait_step);
	task_wake(&c->wait);
}

/* What is there already: in the cache, or in a directory of a mirror. -ENOENT: nothing. */
static int find(struct copy *c)
{
	int r = room_in_cache(&c->room) ? from_cache(c) : -ENOENT;

	if (r != -ENOENT || !c->cached || c->looked)
		return r;
	c->looked = true;
	return from_mirror(c);
}

static void try_places(struct copy *c)
{
	int r;

	for (;;) {
		c->dest = NULL;
		r = find(c);
		if (r == -ENOENT)
			r = room_open(&c->room, &c->dest);
		if (r != -EEXIST)
			break;
		/* published meanwhile; again and again when it is damaged and cannot be removed */
		if (++c->found >= CACHE_TRIES)
			room_next(&c->room, r, 0);
	}
	if (r == 0 && c->dest)
		fill(c);
	else if (r == -EAGAIN)
		wait_for_other(c);
	else
		c->done(c, r);
}

void copy_start(struct copy *c)
{
	const struct object *o = c->making->object;

	c->found = 0;
	c->room = (struct room){
		.cache = o->store->options.cache,
		.key = c->cached ? o->sha256 : NULL,
		.size = o->size,
		.memory = MAX_MEMORY_OBJECT,
		.drop = keep_drop_idle,
		.ctx = o->store,
	};
	try_places(c);
}
