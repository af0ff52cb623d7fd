/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/util.h"
#include "base/ingest.h"
#include "cache/dest.h"
#include "cache/read.h"
#include "object/internal.h"

/* measurements of the free space of one disk differ by less */
#define SAME_DISK (16 * MIB)
/* how long another process may hold an object and add nothing to it, if there is no timeout */
#define PATIENCE_MS 60000
#define CACHE_TRIES 8

static bool disk_full(int error)
{
	return error == -ENOSPC || error == -EDQUOT;
}

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
		.cancel = &c->making->cancel,
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

/* Descriptors are used up: another place would need one, too. */
static bool no_descriptor(int error)
{
	return error == -EMFILE || error == -ENFILE;
}

/* The cache cannot be used, for this object or at all. Logged; returns -ENOSPC. */
static int without_cache(struct copy *c, int error)
{
	if (error == -ETIMEDOUT)
		carton_log(CARTON_LOG_WARNING, object_name(c->making->object),
			   "another process is making a copy of it, but does not proceed: it is "
			   "made again");
	else if (!disk_full(error) && !atomic_exchange(&store_of(c)->cache_failed, true))
		carton_log(CARTON_LOG_WARNING, NULL,
			   "the cache cannot be used: %s; copies are kept for this mount only",
			   strerror(-error));
	return -ENOSPC;
}

/*
 * 0 with a destination, or with bytes that were there already. -EAGAIN: another process is filling
 * it; -ENOSPC: not in this cache.
 */
static int open_cache(struct copy *c)
{
	struct cache *cache = store_of(c)->options.cache;
	const uint8_t *sha256 = c->making->object->sha256;
	int r;

	do {
		r = from_cache(c);
		if (r == -ENOENT)
			r = from_mirror(c);
		if (r == -ENOENT)
			r = dest_cache(cache, sha256, &c->dest);
		/* published meanwhile; again and again when it is damaged and cannot be removed */
	} while (r == -EEXIST && ++c->found < CACHE_TRIES);
	if (r == 0 || r == -EAGAIN || r == -ECANCELED || r == -ENOMEM || no_descriptor(r))
		return r;
	return without_cache(c, r);
}

/* ---- other places ---- */

/* An unnamed file, unless its disk has no room for what another one had none for. */
static int open_file(struct copy *c, struct cache *cache)
{
	int r = dest_file(cache, &c->disk, &c->dest);

	if (r == 0 && c->reached > 0 && c->making->object->size == OBJECT_NO_SIZE &&
	    !dest_has_room(c->dest, c->reached + SAME_DISK)) {
		dest_abort(c->dest, false);
		c->dest = NULL;
		r = -ENOSPC;
	}
	return r;
}

static int open_place(struct copy *c)
{
	struct cache *cache = store_of(c)->options.cache;
	uint64_t size = c->making->object->size;
	int r;

	switch (c->place) {
	case COPY_CACHE:
		return open_cache(c);
	case COPY_FILE:
		r = cache ? open_file(c, cache) : -ENOSPC;
		return r == 0 || r == -ENOMEM || no_descriptor(r) ? r : -ENOSPC;
	case COPY_OTHER_FILE:
		r = open_file(c, NULL);
		return r < 0 && cache && !no_descriptor(r) ? -ENOSPC : r;
	case COPY_MEMORY:
		if ((size != OBJECT_NO_SIZE ? size : c->reached) > MAX_MEMORY_OBJECT)
			return -ENOSPC;
		return dest_memory(MAX_MEMORY_OBJECT, &c->dest);
	}
	return -EINVAL;
}

static void first_place(struct copy *c)
{
	c->place = c->cached && store_of(c)->options.cache ? COPY_CACHE : COPY_FILE;
}

/*
 * Where to go when there is no room: copies that nobody reads give way to what somebody waits for.
 */
static bool next_place(struct copy *c)
{
	bool *dropped = c->place == COPY_CACHE ? &c->dropped_idle : &c->again;

	if (c->place == COPY_CACHE || c->place == COPY_MEMORY)
		if (!*dropped && keep_drop_idle(store_of(c))) {
			*dropped = true;
			first_place(c);
			return true;
		}
	if (c->place == COPY_MEMORY)
		return false;
	c->place++;
	return true;
}

static void try_places(struct copy *c);

/* The destination has all bytes, and they are right (0, with their size and tags); or why not. */
static void filled(struct copy *c, int result, struct ingested *in)
{
	struct source *source;

	if (result == 0) {
		result = dest_commit(c->dest, NULL, in->size, &source);
		if (result == 0)
			keep_source(c, source, in);
		else
			free(in->tags);
	} else {
		if (disk_full(result))
			c->reached = MAX(c->reached, dest_end(c->dest));
		/* on a full disk a partial is in the way of all that would fit */
		dest_abort(c->dest, result != -EBADMSG && !disk_full(result));
	}
	c->dest = NULL;
	if (disk_full(result) && next_place(c))
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
	c->get.making = c->making;
	c->get.dest = c->dest;
	c->get.all = true;
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

	if (cancel_fired(&c->making->cancel))
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
		cancel_hook_add(&c->making->cancel, &c->hook);
	}
	r = look(c);
	if (r == -EAGAIN) {
		task_wake_at(t, now_ms() + CACHE_WAIT_STEP_MS);
		return true;
	}
	cancel_hook_remove(&c->making->cancel, &c->hook);
	task_finish(t);
	if (r == -ECANCELED) {
		c->done(c, r);
		return false;
	}
	if (r < 0) {
		without_cache(c, r);
		c->place++;
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

static void try_places(struct copy *c)
{
	int r;

	do {
		c->dest = NULL;
		r = open_place(c);
		if (r == 0 && c->dest) {
			fill(c);
			return;
		}
		if (r == -EAGAIN && c->place == COPY_CACHE) {
			wait_for_other(c);
			return;
		}
	} while (disk_full(r) && next_place(c));
	c->done(c, r);
}

int making_verify(struct making *m, struct stream *in, struct ingested *ret)
{
	const struct object_store *s = m->object->store;
	struct ingest job = {
		.in = in,
		.size = m->object->size,
		.tagger = s->tagger,
		.hash = s->options.verify,
		.cancel = &m->cancel,
		.progress = making_count,
		.ctx = m,
		.observe = m->observer ? making_observe : NULL,
	};
	struct ingested done = { 0 };
	int r = ingest_run(&job, &done);

	stream_close(in);
	if (r == 0)
		r = making_check(m, done.sha256);
	m->observed = r == 0;
	if (r < 0) {
		/* another place may have other bytes */
		making_end_observer(m, r);
		free(done.tags);
		return r;
	}
	*ret = done;
	return 0;
}

void copy_start(struct copy *c)
{
	int r = -ENOENT;

	first_place(c);
	/* else in its turn */
	if (c->cached && c->place != COPY_CACHE)
		r = from_mirror(c);
	if (r == -ENOENT)
		try_places(c);
	else
		c->done(c, r);
}
