/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of objects: one for each distinct sha256, found by it; what an object is; and who
 * waits, until when.
 */
#include <stdlib.h>

#include "base/util.h"
#include "cache/cache.h"
#include "object/internal.h"

#define MIN_RATE 1024 /* bytes a second that keep a waiter waiting */
/* a fetch that times out by itself says better why, so it gets to */
#define DEADLINE_GRACE_MS 500

/* ---- who waits, and until when ---- */

bool waits_are_timed(const struct object *o)
{
	const struct object_options *options = &o->store->options;

	return options->events && options->timeout_ms &&
	       (o->maker->ops->may_wait || options->source);
}

static void unlink_wait(struct object_wait *w)
{
	*w->link = w->next;
	if (w->next)
		w->next->link = w->link;
	w->link = NULL;
	w->making->n_waiting--;
}

void wait_link(struct making *m, struct object_wait *w)
{
	w->object = m->object;
	w->making = m;
	w->next = m->waits;
	w->link = &m->waits;
	if (w->next)
		w->next->link = &w->next;
	m->waits = w;
	m->n_waiting++;
}

struct object_wait *waits_take(struct making *m)
{
	struct object_wait *list = NULL, *w;

	while ((w = m->waits)) {
		unlink_wait(w);
		w->next = list;
		list = w;
	}
	return list;
}

void waits_end(struct object_wait *list, int result)
{
	while (list) {
		struct object_wait *w = list;

		list = w->next;
		w->done(w, result);
	}
}

/* ---- deadlines ---- */

void wait_time(struct making *m, struct object_wait *w)
{
	struct object_store *s = m->object->store;

	if (!waits_are_timed(m->object))
		return;
	w->deadline_ms = now_ms() + s->options.timeout_ms + DEADLINE_GRACE_MS;
	if (!m->timed_link) {
		m->next_timed = s->timed;
		m->timed_link = &s->timed;
		if (m->next_timed)
			m->next_timed->timed_link = &m->next_timed;
		s->timed = m;
	}
	task_wake_at(&s->clock, w->deadline_ms);
}

void waits_untime(struct making *m)
{
	if (!m->timed_link)
		return;
	*m->timed_link = m->next_timed;
	if (m->next_timed)
		m->next_timed->timed_link = m->timed_link;
	m->timed_link = NULL;
}

/* Moves overdue waits to *list; *next_ms is the earliest deadline that is left. Lock held. */
static void expire_waits(struct making *m, struct object_wait **list, int64_t *next_ms)
{
	int64_t more = (int64_t)(atomic_exchange(&m->progress, 0) * 1000 / MIN_RATE);
	int64_t most = atomic_load(&m->progress_ms) + m->object->store->options.timeout_ms +
		       DEADLINE_GRACE_MS;
	unsigned before = m->n_waiting;

	for (struct object_wait *w = m->waits, *following; w; w = following) {
		following = w->next;
		/* a size that only all bytes tell is not waited for longer than others */
		if (more > 0 && !m->size_only)
			w->deadline_ms = MAX(w->deadline_ms, MIN(w->deadline_ms + more, most));
		if (w->deadline_ms > now_ms()) {
			*next_ms = MIN(*next_ms, w->deadline_ms);
			continue;
		}
		unlink_wait(w);
		w->next = *list;
		*list = w;
	}
	if (before > 0 && m->n_waiting == 0) {
		carton_log(CARTON_LOG_ERROR, m->object->name, "cannot be read now: %s",
			   strerror(ETIMEDOUT));
		cancel_fire(&m->cancel);
	}
}

bool object_expire(struct task *clock)
{
	struct object_store *s = container_of(clock, struct object_store, clock);
	struct object_wait *list = NULL;
	int64_t next_ms = INT64_MAX;

	pthread_mutex_lock(&s->lock);
	for (struct making *m = s->timed; m; m = m->next_timed)
		expire_waits(m, &list, &next_ms);
	if (next_ms != INT64_MAX && !cancel_fired(&s->stop))
		task_wake_at(&s->clock, next_ms);
	pthread_mutex_unlock(&s->lock);
	waits_end(list, -ETIMEDOUT);
	return true;
}

bool object_wait_cancel(struct object_wait *wait)
{
	struct object_store *s = wait->object->store;
	bool queued;

	pthread_mutex_lock(&s->lock);
	queued = wait->link != NULL;
	if (queued) {
		unlink_wait(wait);
		if (wait->making->n_waiting == 0)
			cancel_fire(&wait->making->cancel);
	}
	pthread_mutex_unlock(&s->lock);
	return queued;
}

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
	o->maker->ops->free(o->maker);
	free(o);
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

/* Takes over the maker, also on failure. */
static struct object *object_new(struct object_store *s, const char *name, uint64_t size,
				 struct maker *maker)
{
	struct object *o = maker ? calloc(1, sizeof(*o)) : NULL;

	if (!o) {
		if (maker)
			maker->ops->free(maker);
		return NULL;
	}
	o->store = s;
	o->name = name;
	o->size = size;
	o->reported_size = OBJECT_NO_SIZE;
	o->maker = maker;
	return o;
}

int store_add(struct object_store *s, const uint8_t sha256[SHA256_SIZE], const char *name,
	      uint64_t size, struct maker *maker, struct object **ret)
{
	struct object *o = object_new(s, name, size, maker), **bucket;

	if (!o)
		return -ENOMEM;
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

int store_add_derived(struct object_store *s, const char *name, uint64_t size, struct maker *maker,
		      struct object **ret)
{
	struct object *o = object_new(s, name, size, maker);

	if (!o)
		return -ENOMEM;
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
	if (options->budget) {
		options->budget->ctx = s;
		options->budget->make_room = keep_make_room;
	}
	cancel_init(&s->stop, NULL);
	if (s->options.events)
		task_init(&s->clock, s->options.events, LANE_QUICK, object_expire);
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->hash_jobs.lock, NULL);
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
	ret->fetched = atomic_load(&s->fetched);
	ret->cache_hits = atomic_load(&s->cache_hits);
	ret->cache_misses = atomic_load(&s->cache_misses);
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
	if (s->options.events)
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
	free(s->buckets);
	tagger_free(s->tagger);
	cancel_finish(&s->stop);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->hash_jobs.lock);
	free(s);
}
