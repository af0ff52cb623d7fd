/* SPDX-License-Identifier: Apache-2.0 */
/* The store of objects: one for each distinct sha256, found by it; and what an object is. */
#include <stdlib.h>
#include <sys/random.h>

#include "object/internal.h"

const uint8_t *object_sha256(const struct object *o)
{
	return o->sha256;
}

const struct entry *object_entry(const struct object *o)
{
	return o->origins ? o->origins->entry : NULL;
}

const char *object_name(const struct object *o)
{
	return o->name;
}

uint64_t object_size(const struct object *o)
{
	uint64_t size = atomic_load(&o->size);

	return size != OBJECT_NO_SIZE ? size : atomic_load(&o->said_size);
}

bool object_size_is_certain(const struct object *o)
{
	return atomic_load(&o->size) != OBJECT_NO_SIZE;
}

enum object_state object_state(struct object *o)
{
	enum object_state state;

	pthread_mutex_lock(&o->store->lock);
	state = o->state;
	pthread_mutex_unlock(&o->store->lock);
	return state;
}

/* Hashes are what an attacker chooses; under random keys no choice makes a long chain. */
static size_t bucket_of(const struct object_store *s, const uint8_t sha256[SHA256_SIZE])
{
	uint64_t sum = 0;

	for (size_t i = 0; i < 4; i++)
		sum += s->bucket_keys[i] *
		       (get_le64(sha256 + 8 * i) ^ (get_le64(sha256 + 8 * i) >> 32));
	return (size_t)((sum >> 32) % s->n_buckets);
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

/* One of that hash, and of that size unless that is OBJECT_NO_SIZE; or NULL. */
static struct object *find_object(const struct object_store *s, const uint8_t sha256[SHA256_SIZE],
				  uint64_t size)
{
	struct object *o = s->n_buckets ? s->buckets[bucket_of(s, sha256)] : NULL;

	while (o && (memcmp(o->sha256, sha256, SHA256_SIZE) != 0 ||
		     (size != OBJECT_NO_SIZE && o->size != size)))
		o = o->next_hash;
	return o;
}

static struct object *object_alloc(struct object_store *s, const char *name, uint64_t size)
{
	struct object *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->store = s;
	o->name = name;
	o->size = size;
	o->said_size = OBJECT_NO_SIZE;
	o->content.job.run = object_run_content;
	o->length.job.run = object_run_length;
	return o;
}

static int new_object(struct object_store *s, const uint8_t sha256[SHA256_SIZE], const char *name,
		      uint64_t size, struct object **ret)
{
	struct object *o, **bucket;

	if (s->n_objects >= s->n_buckets && grow_buckets(s) < 0)
		return -ENOMEM;
	o = object_alloc(s, name, size);
	if (!o)
		return -ENOMEM;
	memcpy(o->sha256, sha256, SHA256_SIZE);
	bucket = &s->buckets[bucket_of(s, sha256)];
	o->next_hash = *bucket;
	*bucket = o;
	s->n_objects++;
	*ret = o;
	return 0;
}

int object_add(struct object_store *s, const uint8_t sha256[SHA256_SIZE], const struct entry *entry,
	       struct object **ret)
{
	struct origin *origin = calloc(1, sizeof(*origin)), **last;
	struct object *o = find_object(s, sha256, entry->size);
	int r = origin ? 0 : -ENOMEM;

	if (r == 0 && !o)
		r = new_object(s, sha256, entry->name, entry->size, &o);
	if (r < 0) {
		free(origin);
		return r;
	}
	origin->entry = entry;
	/* the first stays the first; the order of the others does not matter */
	last = o->origins ? &o->origins->next : &o->origins;
	origin->next = *last;
	*last = origin;
	*ret = o;
	return 0;
}

int object_add_derived(struct object_store *s, const char *name, uint64_t size,
		       object_derive_fn *derive, void *ctx, struct object **ret)
{
	struct object *o = object_alloc(s, name, size);

	if (!o)
		return -ENOMEM;
	o->derive = derive;
	o->derive_ctx = ctx;
	pthread_mutex_lock(&s->lock);
	o->next_hash = s->derived;
	s->derived = o;
	pthread_mutex_unlock(&s->lock);
	*ret = o;
	return 0;
}

int object_add_link(struct object_store *s, const uint8_t sha256[SHA256_SIZE], const char *name,
		    struct link *link, struct object **ret)
{
	struct object *o = find_object(s, sha256, OBJECT_NO_SIZE);
	int r = 0;

	if (!o && !link)
		return -ENOENT;
	if (!o)
		r = new_object(s, sha256, name, OBJECT_NO_SIZE, &o);
	if (r < 0)
		return r;
	if (!o->origins)
		o->link = link;
	*ret = o;
	return 0;
}

int object_store_new(const struct object_options *options, struct object_store **ret)
{
	struct object_store *s = calloc(1, sizeof(*s));
	int r = -ENOMEM;

	if (!s)
		return -ENOMEM;
	s->options = *options;
	pthread_mutex_init(&s->lock, NULL);
	s->n_buckets = 1023;
	if (getrandom(s->bucket_keys, sizeof(s->bucket_keys), 0) != sizeof(s->bucket_keys))
		r = -EIO;
	for (size_t i = 0; i < ARRAY_SIZE(s->bucket_keys); i++)
		s->bucket_keys[i] |= 1;
	s->buckets = calloc(s->n_buckets, sizeof(*s->buckets));
	if (s->buckets && r != -EIO)
		r = options->verify ? tagger_new(&s->tagger) : 0;
	if (r < 0) {
		object_store_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

uint64_t object_store_ingested(const struct object_store *s)
{
	return atomic_load(&s->ingested);
}

void object_store_stop(struct object_store *s)
{
	atomic_store(&s->stopping, true);
}

static void object_free(struct object *o)
{
	bytes_free(&o->bytes);
	while (o->origins) {
		struct origin *origin = o->origins;

		o->origins = origin->next;
		free(origin);
	}
	free(o);
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
	pthread_mutex_destroy(&s->lock);
	free(s);
}
