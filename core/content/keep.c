/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long verified copies are kept: those that nobody has pinned are dropped, oldest first, when
 * they take more than their share of the budget, or too many descriptors. And what is kept for
 * later mounts: seals, and notes of what failed. An object without its bytes at hand has no use for
 * a seal: both are found, or neither.
 */
#include <stdlib.h>

#include "base/util.h"
#include "cache/cache.h"
#include "content/internal.h"

void keep_remove(struct object_store *s, struct object *o)
{
	if (!o->idle)
		return;
	*(o->older ? &o->older->newer : &s->oldest) = o->newer;
	*(o->newer ? &o->newer->older : &s->newest) = o->older;
	o->older = o->newer = NULL;
	o->idle = false;
	if (o->bytes.kind == BYTES_MEMORY)
		s->idle_memory -= o->size;
}

void keep_add(struct object_store *s, struct object *o)
{
	o->older = s->newest;
	o->newer = NULL;
	*(s->newest ? &s->newest->newer : &s->oldest) = o;
	s->newest = o;
	o->idle = true;
	if (o->bytes.kind == BYTES_MEMORY)
		s->idle_memory += o->size;
}

/* A share of the budget, which is enough for one object in any case. */
static uint64_t share(const struct object_store *s, unsigned part)
{
	const struct budget *b = s->options.budget;

	return b ? MAX(b->limit / part, MAX_MEMORY_OBJECT) : UINT64_MAX;
}

static void give(struct object_store *s, uint64_t size)
{
	s->memory_used -= size;
	budget_drop(s->options.budget, size);
}

void keep_attach(struct object *o, const struct bytes *bytes, uint64_t size)
{
	o->bytes = *bytes;
	bytes_read_ahead(&o->bytes, size);
	atomic_store(&o->read_failed, false);
	if (o->store->options.verify || o->ops->always_verified)
		o->state = OBJECT_VERIFIED;
	o->store->files_used += bytes->kind == BYTES_FILE;
}

struct bytes keep_detach(struct object_store *s, struct object *o)
{
	struct bytes bytes = o->bytes;

	if (bytes.kind == BYTES_MEMORY)
		give(s, o->size);
	else if (bytes.kind == BYTES_FILE)
		s->files_used--;
	o->bytes = (struct bytes){ .kind = BYTES_NONE };
	return bytes;
}

/* Drops an idle copy; true: it was a file. Lock held, but not while it is freed. */
static bool drop(struct object_store *s, struct object *o)
{
	struct bytes bytes;
	bool file;

	keep_remove(s, o);
	bytes = keep_detach(s, o);
	file = bytes.kind == BYTES_FILE;
	/* closing a large file that has no name any more takes long */
	pthread_mutex_unlock(&s->lock);
	bytes_finish(&bytes);
	pthread_mutex_lock(&s->lock);
	return file;
}

/*
 * The oldest idle copy that takes memory, or NULL. Few of the others stand before it: they are
 * files.
 */
static struct object *oldest_in_memory(const struct object_store *s)
{
	struct object *o = s->oldest;

	while (o && o->bytes.kind != BYTES_MEMORY)
		o = o->newer;
	return o;
}

void keep_limit(struct object_store *s)
{
	struct object *o;

	while (s->oldest && s->files_used > MAX_OBJECT_FILES)
		drop(s, s->oldest);
	while (s->idle_memory > share(s, IDLE_SHARE) && (o = oldest_in_memory(s)))
		drop(s, o);
}

void keep_make_room(void *store, uint64_t n)
{
	struct object_store *s = store;
	struct object *o;

	pthread_mutex_lock(&s->lock);
	while (budget_left(s->options.budget) < n && (o = oldest_in_memory(s)))
		drop(s, o);
	pthread_mutex_unlock(&s->lock);
}

bool keep_drop_idle(struct object_store *s)
{
	bool dropped = false;

	pthread_mutex_lock(&s->lock);
	while (s->oldest)
		dropped |= drop(s, s->oldest);
	pthread_mutex_unlock(&s->lock);
	return dropped;
}

/* The oldest idle copy that is an entry of the cache, or that has no name; or NULL. Lock held. */
static struct object *oldest_copy(const struct object_store *s, bool entries)
{
	struct object *o = s->oldest;

	while (o && (o->bytes.kind != BYTES_FILE || !o->copied ||
		     source_has_name(o->bytes.source) != entries))
		o = o->newer;
	return o;
}

bool keep_drop_copies(void *store, bool entries)
{
	struct object_store *s = store;
	struct object *o;
	bool dropped = false;

	pthread_mutex_lock(&s->lock);
	while ((o = oldest_copy(s, entries)))
		dropped |= drop(s, o);
	pthread_mutex_unlock(&s->lock);
	return dropped;
}

/* Lock held. */
static bool take(struct object_store *s, uint64_t size)
{
	if (s->memory_used + size > share(s, KEPT_SHARE) || !budget_keep(s->options.budget, size))
		return false;
	s->memory_used += size;
	return true;
}

bool object_take_memory(struct object_store *s, uint64_t size)
{
	struct object *o;
	bool fits;

	if (size > MAX_MEMORY_OBJECT)
		return false;
	pthread_mutex_lock(&s->lock);
	while (!(fits = take(s, size)) && (o = oldest_in_memory(s)))
		drop(s, o);
	pthread_mutex_unlock(&s->lock);
	return fits;
}

void object_give_memory(struct object_store *s, uint64_t size)
{
	pthread_mutex_lock(&s->lock);
	give(s, size);
	pthread_mutex_unlock(&s->lock);
}

/* ---- names ---- */

void name_keep(struct object *o)
{
	const struct object_options *options = &o->store->options;

	uint8_t name[SHA256_SIZE];

	if (options->label && object_known_sha256(o, name) && !atomic_exchange(&o->named, true))
		cache_name_put(options->cache, name, o->name, options->label);
}

/* ---- seals ---- */

bool seal_tags(const struct fill *f, uint64_t size, uint8_t (**ret_tags)[TAG_SIZE])
{
	const struct object *o = f->object;

	return cache_seal_get(o->store->options.cache, o->sha256, size, ret_tags) == 0;
}

bool seal_of_cached(struct fill *f)
{
	const struct object *o = f->object;
	uint8_t(*tags)[TAG_SIZE];
	struct source *source;

	if (cache_source(o->store->options.cache, o->sha256, &source) < 0)
		return false;
	if ((o->size != OBJECT_NO_SIZE && o->size != source->size) ||
	    !seal_tags(f, source->size, &tags)) {
		source_unref(source);
		return false;
	}
	f->bytes = (struct bytes){ .kind = BYTES_FILE, .source = source, .tags = tags };
	f->size = source->size;
	f->copied = true;
	return true;
}

void seal_keep(struct object *o, uint64_t size, uint8_t (*tags)[TAG_SIZE])
{
	/* what has no tags is in memory, and what has no by_seal() has no sha256 */
	if (o->store->options.seals && o->ops->by_seal && tags &&
	    cache_seal_put(o->store->options.cache, o->sha256, size, tags) == 0)
		name_keep(o);
}

void seal_drop(const struct object *o)
{
	if (o->store->options.seals && o->ops->by_seal)
		cache_seal_drop(o->store->options.cache, o->sha256);
}

/* Are the tags of use to later mounts: of bytes that were right until now, and that they find? */
static bool may_seal(const struct object *o)
{
	return !atomic_load(&o->read_failed) &&
	       (!o->copied || chunked_filler(o->bytes.chunks) || source_has_name(o->bytes.source));
}

void object_proven(struct object *o)
{
	if (!chunked_completed(o->bytes.chunks))
		return;
	/* what was fetched gets no name if a read has found it changed since */
	if (!atomic_load(&o->read_failed))
		chunked_proven(o->bytes.chunks);
	if (may_seal(o))
		seal_keep(o, o->size, o->bytes.tags);
	pthread_mutex_lock(&o->store->lock);
	if (o->state == OBJECT_CHUNKED)
		o->state = OBJECT_VERIFIED;
	pthread_mutex_unlock(&o->store->lock);
}

/* ---- notes of what failed ---- */

#define DOUBT "other bytes than its chunks"

/*
 * The key of the hint of a doubt, which only makes opens stricter: it is made of the sha256 of the
 * object and that of the index that was wrong. False: there is no place for it.
 */
static bool doubt_key(const struct object *o, uint8_t ret_key[SHA256_SIZE])
{
	const struct object_store *s = o->store;
	const struct object *index = s->index.ctx;
	uint8_t name[sizeof(DOUBT) + 2 * SHA256_SIZE];

	if (!s->options.cache || !s->index.chunks)
		return false;
	memcpy(name, DOUBT, sizeof(DOUBT));
	memcpy(name + sizeof(DOUBT), o->sha256, SHA256_SIZE);
	memcpy(name + sizeof(DOUBT) + SHA256_SIZE, index->sha256, SHA256_SIZE);
	return sha256_mem(name, sizeof(name), ret_key) == 0;
}

void doubt_keep(struct object *o)
{
	uint8_t key[SHA256_SIZE];

	if (doubt_key(o, key) && cache_hint_put(o->store->options.cache, key, DOUBT) == 0)
		atomic_store(&o->doubted, true);
}

bool doubt_find(struct object *o)
{
	char text[MAX_CACHE_VALIDATOR + 1];
	uint8_t key[SHA256_SIZE];

	if (doubt_key(o, key) &&
	    cache_hint_get(o->store->options.cache, key, text, sizeof(text)) == 0)
		atomic_store(&o->doubted, true);
	return atomic_load(&o->doubted);
}
