/* SPDX-License-Identifier: Apache-2.0 */
/* The store of objects: one for each distinct sha256, found by it; and what an object is. */
#include <stdlib.h>

#include "base/util.h"
#include "cache/cache.h"
#include "content/internal.h"

/* ---- objects ---- */

const uint8_t *object_sha256(const struct object *o)
{
	return o->sha256;
}

const char *object_name(const struct object *o)
{
	return o->name;
}

uint64_t object_size(const struct object *o)
{
	uint64_t size = atomic_load(&o->size);

	return size != OBJECT_NO_SIZE ? size : atomic_load(&o->reported_size);
}

bool object_size_is_certain(const struct object *o)
{
	return atomic_load(&o->size) != OBJECT_NO_SIZE;
}

bool object_is_withdrawn(const struct object *o)
{
	return atomic_load(&o->withdrawn);
}

void object_want(struct object *o)
{
	atomic_store(&o->wanted, true);
}

enum object_state object_state(struct object *o)
{
	enum object_state state;

	pthread_mutex_lock(&o->store->lock);
	state = o->state;
	pthread_mutex_unlock(&o->store->lock);
	return state;
}

static void object_free(struct object *o)
{
	bytes_finish(&o->bytes);
	o->ops->free(o);
}

/* An attacker chooses the hashes in MANIFEST, so they are hashed again under a key. */
static size_t bucket_of(const struct object_store *s, const uint8_t sha256[SHA256_SIZE])
{
	return siphash(&s->bucket_key, 0, sha256, SHA256_SIZE) % s->n_buckets;
}

static int grow_buckets(struct object_store *s)
{
	size_t old_n = s->n_buckets;
	struct object **old = s->buckets, **buckets = calloc(2 * old_n + 1, sizeof(*buckets));

	if (!buckets)
		return -ENOMEM;
	s->buckets = buckets;
	s->n_buckets = 2 * old_n + 1;
	for (size_t i = 0; i < old_n; i++)
		while (old[i]) {
			struct object *o = old[i], **to = &buckets[bucket_of(s, o->sha256)];

			old[i] = o->next_hash;
			o->next_hash = *to;
			*to = o;
		}
	free(old);
	return 0;
}

struct object *store_find(const struct object_store *s, const uint8_t sha256[SHA256_SIZE],
			  uint64_t size)
{
	struct object *o = s->n_buckets ? s->buckets[bucket_of(s, sha256)] : NULL;

	while (o && (memcmp(o->sha256, sha256, SHA256_SIZE) != 0 ||
		     (size != OBJECT_NO_SIZE && o->size != size)))
		o = o->next_hash;
	return o;
}

int store_add(struct object_store *s, const uint8_t sha256[SHA256_SIZE], struct object *o,
	      struct object **ret)
{
	struct object **bucket;

	if (!o)
		return -ENOMEM;
	o->store = s;
	o->reported_size = OBJECT_NO_SIZE;
	if (s->n_objects >= s->n_buckets && grow_buckets(s) < 0) {
		object_free(o);
		return -ENOMEM;
	}
	memcpy(o->sha256, sha256, SHA256_SIZE);
	bucket = &s->buckets[bucket_of(s, sha256)];
	o->next_hash = *bucket;
	*bucket = o;
	s->n_objects++;
	*ret = o;
	return 0;
}

int store_add_derived(struct object_store *s, struct object *o, struct object **ret)
{
	if (!o)
		return -ENOMEM;
	o->store = s;
	o->reported_size = OBJECT_NO_SIZE;
	pthread_mutex_lock(&s->lock);
	o->next_hash = s->derived;
	s->derived = o;
	pthread_mutex_unlock(&s->lock);
	*ret = o;
	return 0;
}

/* ---- the store ---- */

/* Tags of seals are made with the key of the cache, others with one that nobody else has. */
static int make_tagger(struct object_store *s)
{
	uint8_t key[KEY_SIZE];
	int r = -ENOENT;

	if (!s->options.verify || !s->options.cache)
		s->options.seals = SEALS_OFF;
	if (s->options.seals)
		r = cache_tag_key(s->options.cache, key);
	if (r < 0)
		s->options.seals = SEALS_OFF;
	if (s->options.verify)
		r = tagger_new(r == 0 ? key : NULL, &s->tagger);
	return s->options.verify ? r : 0;
}

int object_store_new(const struct object_options *options, struct object_store **ret)
{
	struct object_store *s = calloc(1, sizeof(*s));
	int r = -ENOMEM;

	if (!s)
		return -ENOMEM;
	s->options = *options;
	s->options.pin = options->pin ? options->pin : "MANIFEST";
	if (options->budget) {
		options->budget->ctx = s;
		options->budget->make_room = keep_make_room;
	}
	cancel_init(&s->stop, options->stop);
	task_init(&s->clock, s->options.events, LANE_QUICK, waits_expire);
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->hash_jobs.lock, NULL);
	pthread_mutex_init(&s->runs.lock, NULL);
	s->runs.run.container = options->container;
	rates_init(&s->rates);
	s->runs.run.server = rates_of(&s->rates, NULL);
	s->n_buckets = 1023;
	siphash_key_init(&s->bucket_key);
	s->buckets = calloc(s->n_buckets, sizeof(*s->buckets));
	if (s->buckets)
		r = make_tagger(s);
	if (r < 0) {
		object_store_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void object_store_traffic(const struct object_store *s, struct object_traffic *ret)
{
	const struct fetch_options *fetch = s->options.fetch;

	ret->fetched = fetch && fetch->fetched ? atomic_load(fetch->fetched) : 0;
	ret->cache_hits = atomic_load(&s->cache_hits);
	ret->cache_misses = atomic_load(&s->cache_misses);
}

void object_store_only_cache(struct object_store *s, bool only)
{
	atomic_store(&s->only_cache, only);
}

uint64_t object_store_ingested(const struct object_store *s)
{
	return atomic_load(&s->ingested);
}

void object_store_stop(struct object_store *s)
{
	cancel_fire(&s->stop);
	/* from here on nobody sets the clock */
	pthread_mutex_lock(&s->lock);
	task_finish(&s->clock);
	pthread_mutex_unlock(&s->lock);
}

void object_store_free(struct object_store *s)
{
	if (!s)
		return;
	for (size_t i = 0; s->buckets && i < s->n_buckets; i++)
		while (s->buckets[i]) {
			struct object *o = s->buckets[i];

			s->buckets[i] = o->next_hash;
			object_free(o);
		}
	while (s->derived) {
		struct object *o = s->derived;

		s->derived = o->next_hash;
		object_free(o);
	}
	fault_finish(s);
	free(s->buckets);
	tagger_free(s->tagger);
	cancel_finish(&s->stop);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->hash_jobs.lock);
	pthread_mutex_destroy(&s->runs.lock);
	rates_finish(&s->rates);
	run_finish(&s->runs.run);
	free(s);
}
