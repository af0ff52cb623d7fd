/* SPDX-License-Identifier: Apache-2.0 */
#include "object.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "bytes.h"
#include "decode.h"
#include "ingest.h"

/* One more entry that should hold the object's bytes. */
struct origin {
	const struct entry *entry;
	struct origin *next;
};

struct object {
	struct object_store *store;
	struct object *next_hash;
	uint8_t sha256[SHA256_SIZE];
	uint64_t size;
	struct origin first;
	struct job job;
	atomic_uint n_waiting;
	atomic_bool read_failed;		/* a bad read was logged */

	/* guarded by store->lock; `bytes` is constant while pinned */
	enum object_state state;
	bool busy;				/* its job is queued or runs */
	unsigned pins;
	struct object_wait *waits;
	struct bytes bytes;
	struct object *older, *newer;		/* in the list of what may be dropped */
	bool idle;				/* in that list */
};

struct object_store {
	struct object_options options;
	struct tagger *tagger;			/* NULL when nothing is verified */
	struct object **buckets;
	size_t n_buckets, n_objects;
	uint64_t bucket_keys[5];		/* random and odd */
	atomic_bool stopping;

	pthread_mutex_t lock;			/* guards what objects say it guards, and: */
	struct object *oldest, *newest;		/* kept copies nobody has pinned, by last use */
	uint64_t memory_used;
	unsigned files_used;
};

/* ---- copies that nobody uses: dropped, oldest first, when there are too many ---- */

static void idle_remove(struct object_store *s, struct object *o)
{
	if (!o->idle)
		return;
	*(o->older ? &o->older->newer : &s->oldest) = o->newer;
	*(o->newer ? &o->newer->older : &s->newest) = o->older;
	o->older = o->newer = NULL;
	o->idle = false;
}

static void idle_add(struct object_store *s, struct object *o)
{
	o->older = s->newest;
	o->newer = NULL;
	*(s->newest ? &s->newest->newer : &s->oldest) = o;
	s->newest = o;
	o->idle = true;
}

/* Takes the object's bytes away from it; the caller frees them without the lock. */
static struct bytes detach_bytes(struct object_store *s, struct object *o)
{
	struct bytes bytes = o->bytes;

	if (bytes.kind == BYTES_MEMORY)
		s->memory_used -= o->size;
	else if (bytes.kind == BYTES_FILE)
		s->files_used--;
	o->bytes.kind = BYTES_NONE;
	return bytes;
}

static bool over_budget(const struct object_store *s)
{
	return s->memory_used > MAX_OBJECT_MEMORY || s->files_used > MAX_OBJECT_FILES;
}

/* Drops idle copies until the budgets are kept, or all of them. Called with the lock held. */
static void drop_idle(struct object_store *s, bool all)
{
	while (s->oldest && (all || over_budget(s))) {
		struct object *o = s->oldest;
		struct bytes bytes;

		idle_remove(s, o);
		bytes = detach_bytes(s, o);
		bytes_free(&bytes);
	}
}

/* ---- materializing: on a worker ---- */

static bool must_stop(void *ctx)
{
	struct object *o = ctx;

	return atomic_load(&o->store->stopping) || atomic_load(&o->n_waiting) == 0;
}

static const char *object_name(const struct object *o)
{
	return o->first.entry->name;
}

static int check_hash(const struct object *o, const uint8_t found[SHA256_SIZE], const char *name)
{
	char want_hex[2 * SHA256_SIZE + 1], found_hex[2 * SHA256_SIZE + 1];

	if (!o->store->options.verify || memcmp(o->sha256, found, SHA256_SIZE) == 0)
		return 0;
	hex_encode(o->sha256, SHA256_SIZE, want_hex);
	hex_encode(found, SHA256_SIZE, found_hex);
	carton_log(CARTON_LOG_ERROR, name,
		   "sha256 mismatch: MANIFEST says %s, the bytes have %s; get the carton again",
		   want_hex, found_hex);
	return -EBADMSG;
}

static int hash_stream(struct object *o, struct stream *in, int fd, struct ingested *ret)
{
	struct object_store *s = o->store;
	struct ingest job = {
		.in = in,
		.size = o->size,
		.tagger = s->tagger,
		.hash = s->options.verify,
		.fd = fd,
		.stop = must_stop,
		.ctx = o,
	};

	return ingest_run(&job, ret);
}

static int into_memory(struct object *o, struct stream *in, const char *name, struct bytes *ret)
{
	struct bytes bytes = { .kind = BYTES_MEMORY, .memory = malloc((size_t)o->size + 1) };
	uint8_t found[SHA256_SIZE] = { 0 };
	ssize_t got;
	int r;

	if (!bytes.memory)
		return -ENOMEM;
	/* one byte more, so that the stream gets to check its end */
	got = stream_read_full(in, bytes.memory, (size_t)o->size + 1);
	r = got < 0 ? (int)got : (uint64_t)got != o->size ? -EBADMSG : 0;
	if (r == 0 && o->store->options.verify)
		r = sha256_mem(bytes.memory, (size_t)o->size, found);
	if (r == 0)
		r = check_hash(o, found, name);
	if (r < 0) {
		bytes_free(&bytes);
		return r;
	}
	*ret = bytes;
	return 0;
}

static int in_place(struct object *o, struct source *source, uint64_t off, const char *name,
		    struct bytes *ret)
{
	struct ingested in = { 0 };
	struct stream *stream;
	int r;

	r = source_stream(source, off, o->size, &stream);
	if (r < 0)
		return r;
	r = hash_stream(o, stream, -1, &in);
	stream_close(stream);
	if (r == -EIO && source->fd >= 0 && lseek(source->fd, 0, SEEK_END) < (off_t)(off + o->size)) {
		carton_log(CARTON_LOG_ERROR, name, "the carton file has been cut off since it was mounted");
		r = -EBADMSG;
	}
	if (r == 0)
		r = check_hash(o, in.sha256, name);
	if (r < 0) {
		free(in.tags);
		return r;
	}
	*ret = (struct bytes){ BYTES_PLACE, NULL, source_ref(source), off, in.tags };
	return 0;
}

/* The verified file `fd` (taken over) becomes the object's bytes, with their tags. */
static int keep_file(int fd, struct ingested *in, struct bytes *ret)
{
	struct source *source;
	int r = source_from_fd(fd, &source);

	if (r < 0) {
		free(in->tags);
		return r;
	}
	*ret = (struct bytes){ BYTES_FILE, NULL, source, 0, in->tags };
	return 0;
}

static int open_temporary(struct cache *cache)
{
	const char *dir = getenv("TMPDIR");
	int fd, r;

	if (cache) {
		r = cache_tmpfile(cache, &fd);
		return r < 0 ? r : fd;
	}
	fd = open(dir && *dir ? dir : "/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

/* A copy in an unnamed file: where there is no cache, or it may not grow so large. */
static int into_temporary(struct object *o, struct stream *in, const char *name, struct bytes *ret)
{
	struct ingested done = { 0 };
	int fd = open_temporary(o->store->options.cache), r;

	if (fd < 0)
		return fd;
	r = hash_stream(o, in, fd, &done);
	if (r == 0)
		r = check_hash(o, done.sha256, name);
	if (r < 0) {
		free(done.tags);
		fd_close(fd);
		return r;
	}
	return keep_file(fd, &done, ret);
}

static int into_cache(struct object *o, struct cache_fill *fill, struct stream *in,
		      const char *name, struct bytes *ret)
{
	struct ingested done = { 0 };
	int fd, r;

	r = hash_stream(o, in, cache_fill_fd(fill), &done);
	if (r == 0)
		r = check_hash(o, done.sha256, name);
	if (r == 0)
		r = cache_fill_publish(fill, done.size, &fd);
	if (r < 0) {
		free(done.tags);
		cache_fill_abort(fill, false);
		return r;
	}
	return keep_file(fd, &done, ret);
}

/* What the cache has under that name, if it is what it says. -ENOENT: nothing (any more). */
static int from_cache(struct object *o, struct bytes *ret)
{
	struct cache *cache = o->store->options.cache;
	struct ingested in = { 0 };
	struct source *source;
	struct stream *stream;
	int fd, r;

	r = cache_lookup(cache, o->sha256, &fd, NULL);
	if (r < 0)
		return r;
	r = source_from_fd(fd, &source);
	if (r < 0)
		return r;
	r = source_stream(source, 0, source->size, &stream);
	if (r == 0) {
		r = hash_stream(o, stream, -1, &in);
		stream_close(stream);
	}
	if (r == 0 && memcmp(in.sha256, o->sha256, SHA256_SIZE) != 0)
		r = -EBADMSG;
	if (r == -EBADMSG) {
		/* no trust in old files: a damaged one goes, and is made anew */
		r = cache_drop(cache, o->sha256, fd);
		r = r < 0 ? r : -ENOENT;
	}
	if (r < 0) {
		free(in.tags);
		source_unref(source);
		return r;
	}
	*ret = (struct bytes){ BYTES_FILE, NULL, source, 0, in.tags };
	return 0;
}

/*
 * Becomes the one who fills the object's place in the cache (0 and *ret_fill), or finds it filled (0
 * and *ret). -ENOSPC when the cache has no room for it.
 */
static int claim_cache(struct object *o, struct cache_fill **ret_fill, struct bytes *ret)
{
	struct cache *cache = o->store->options.cache;
	int r;

	for (;;) {
		r = from_cache(o, ret);
		if (r != -ENOENT)
			return r;
		r = cache_begin(cache, o->sha256, ret_fill);
		if (r == 0)
			break;
		if (r == -EAGAIN)
			r = cache_wait(cache, o->sha256, -1, must_stop, o);
		if (r < 0 && r != -EEXIST)
			return r;
	}
	r = cache_fill_restart(*ret_fill, NULL);
	if (r == 0)
		r = cache_fill_reserve(*ret_fill, o->size);
	if (r < 0) {
		cache_fill_abort(*ret_fill, false);
		*ret_fill = NULL;
	}
	return r;
}

/* A large object that is compressed or comes over a network: once into the cache, for everyone. */
static int copy_object(struct object *o, const struct entry *e, struct bytes *ret)
{
	struct object_store *s = o->store;
	struct cache_fill *fill = NULL;
	struct stream *in;
	int r = -ENOSPC;

	if (s->options.cache && s->options.verify)
		r = claim_cache(o, &fill, ret);
	if ((r < 0 && r != -ENOSPC) || (r == 0 && !fill))
		return r;
	r = container_stream(s->options.container, e, &in);
	if (r < 0) {
		cache_fill_abort(fill, false);
		return r;
	}
	r = fill ? into_cache(o, fill, in, e->name, ret) : into_temporary(o, in, e->name, ret);
	stream_close(in);
	return r;
}

/* Room for a small one in memory, perhaps after dropping others; else it goes to a file. */
static bool claim_memory(struct object_store *s, uint64_t size)
{
	bool fits;

	if (size > MAX_MEMORY_OBJECT)
		return false;
	pthread_mutex_lock(&s->lock);
	s->memory_used += size;
	drop_idle(s, false);
	fits = s->memory_used <= MAX_OBJECT_MEMORY;
	if (!fits)
		s->memory_used -= size;
	pthread_mutex_unlock(&s->lock);
	return fits;
}

static void unclaim_memory(struct object_store *s, uint64_t size)
{
	pthread_mutex_lock(&s->lock);
	s->memory_used -= size;
	pthread_mutex_unlock(&s->lock);
}

static int from_entry(struct object *o, const struct entry *e, struct bytes *ret)
{
	struct object_store *s = o->store;
	struct source *source;
	struct stream *in;
	uint64_t off;
	int r;

	if (e->method == METHOD_STORED && o->size > CHUNK_SIZE) {
		r = container_locate(s->options.container, e, &source, &off);
		if (r < 0)
			return r;
		if (source_is_local(source)) {
			r = in_place(o, source, off, e->name, ret);
			source_unref(source);
			return r;
		}
		source_unref(source);
	}
	if (!claim_memory(s, o->size))
		return copy_object(o, e, ret);
	r = container_stream(s->options.container, e, &in);
	if (r == 0) {
		r = into_memory(o, in, e->name, ret);
		stream_close(in);
	}
	if (r < 0)
		unclaim_memory(s, o->size);
	return r;
}

/* Any origin with the right hash will do. One that failed for a passing reason may do later. */
static int materialize(struct object *o, struct bytes *ret)
{
	int r = -EBADMSG;

	for (const struct origin *origin = &o->first; origin; origin = origin->next) {
		int attempt = from_entry(o, origin->entry, ret);

		if (attempt == -ENOSPC) {
			/* what nobody reads now is worth less than what somebody waits for */
			pthread_mutex_lock(&o->store->lock);
			drop_idle(o->store, true);
			pthread_mutex_unlock(&o->store->lock);
			attempt = from_entry(o, origin->entry, ret);
		}
		if (attempt == 0)
			return 0;
		if (attempt == -ECANCELED)
			return attempt;
		if (attempt != -EBADMSG)
			r = attempt;
	}
	return r;
}

/* ---- the job and those who wait for it ---- */

static enum lane object_lane(const struct object *o)
{
	return o->size > BULK_OBJECT ? LANE_BULK : LANE_QUICK;
}

static void unlink_wait(struct object_wait *w)
{
	*w->link = w->next;
	if (w->next)
		w->next->link = w->link;
	w->link = NULL;
	atomic_fetch_sub(&w->object->n_waiting, 1);
}

static void link_wait(struct object *o, struct object_wait *w)
{
	w->object = o;
	w->next = o->waits;
	w->link = &o->waits;
	if (w->next)
		w->next->link = &w->next;
	o->waits = w;
	atomic_fetch_add(&o->n_waiting, 1);
}

/* Takes all waits off the object; on success each is given its pin. Lock held. */
static struct object_wait *take_waits(struct object *o, int result)
{
	struct object_wait *list = NULL, *w;

	while ((w = o->waits)) {
		unlink_wait(w);
		w->next = list;
		list = w;
		if (result == 0)
			o->pins++;
	}
	return list;
}

static void settle(struct object *o, int result, const struct bytes *bytes)
{
	struct object_store *s = o->store;

	o->busy = false;
	if (result == 0) {
		o->bytes = *bytes;
		if (s->options.verify)
			o->state = OBJECT_VERIFIED;
		if (bytes->kind == BYTES_FILE)
			s->files_used++;
	} else if (result == -EBADMSG) {
		o->state = OBJECT_CORRUPT;
	}
}

static void run_object(struct job *job)
{
	struct object *o = container_of(job, struct object, job);
	struct object_store *s = o->store;
	struct bytes bytes = { .kind = BYTES_NONE };
	struct object_wait *waits;
	int r = must_stop(o) ? -ECANCELED : materialize(o, &bytes);

	if (r < 0 && r != -EBADMSG && r != -ECANCELED)
		carton_log(CARTON_LOG_ERROR, object_name(o), "cannot be read now: %s", strerror(-r));
	pthread_mutex_lock(&s->lock);
	if (r == -ECANCELED && o->waits && !atomic_load(&s->stopping)) {
		/* given up for want of readers, and now there is one again */
		pthread_mutex_unlock(&s->lock);
		workers_submit(s->options.workers, &o->job, object_lane(o));
		return;
	}
	if (r == -ECANCELED)
		r = -ENOTCONN;
	settle(o, r, &bytes);
	waits = take_waits(o, r);
	if (r == 0 && o->pins == 0 && bytes.kind != BYTES_PLACE)
		idle_add(s, o);
	drop_idle(s, false);
	pthread_mutex_unlock(&s->lock);
	while (waits) {
		struct object_wait *w = waits;

		waits = w->next;
		w->done(w, r);
	}
}

int object_get(struct object *o, struct object_wait *wait)
{
	struct object_store *s = o->store;
	bool start = false;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	if (o->bytes.kind != BYTES_NONE) {
		idle_remove(s, o);
		o->pins++;
	} else if (o->state == OBJECT_CORRUPT) {
		r = -EBADMSG;
	} else if (atomic_load(&s->stopping)) {
		r = -ENOTCONN;
	} else if (!wait) {
		r = -EAGAIN;
	} else {
		r = -EINPROGRESS;
		link_wait(o, wait);
		start = !o->busy;
		o->busy = true;
	}
	pthread_mutex_unlock(&s->lock);
	if (start)
		workers_submit(s->options.workers, &o->job, object_lane(o));
	return r;
}

bool object_wait_cancel(struct object_wait *wait)
{
	struct object_store *s = wait->object->store;
	bool queued;

	pthread_mutex_lock(&s->lock);
	queued = wait->link != NULL;
	if (queued)
		unlink_wait(wait);
	pthread_mutex_unlock(&s->lock);
	return queued;
}

void object_put(struct object *o)
{
	struct object_store *s = o->store;

	pthread_mutex_lock(&s->lock);
	if (--o->pins == 0 && (o->bytes.kind == BYTES_MEMORY || o->bytes.kind == BYTES_FILE)) {
		idle_add(s, o);
		drop_idle(s, false);
	}
	pthread_mutex_unlock(&s->lock);
}

int object_read(struct object *o, void *ret_buf, size_t n, uint64_t off, bool nowait)
{
	int r = bytes_read(&o->bytes, o->store->tagger, o->size, ret_buf, n, off, nowait);

	if (r == -EBADMSG && !atomic_exchange(&o->read_failed, true))
		carton_log(CARTON_LOG_ERROR, object_name(o),
			   "changed on disk since it was verified, near byte %llu; mount it again",
			   (unsigned long long)off);
	return r;
}

/* ---- the store ---- */

const uint8_t *object_sha256(const struct object *o)
{
	return o->sha256;
}

const struct entry *object_entry(const struct object *o)
{
	return o->first.entry;
}

uint64_t object_size(const struct object *o)
{
	return o->size;
}

enum object_state object_state(struct object *o)
{
	enum object_state state;

	pthread_mutex_lock(&o->store->lock);
	state = o->state;
	pthread_mutex_unlock(&o->store->lock);
	return state;
}

/* Hashes and sizes are what an attacker chooses; under random keys no choice makes a long chain. */
static size_t bucket_of(const struct object_store *s, const uint8_t sha256[SHA256_SIZE],
			uint64_t size)
{
	uint64_t sum = s->bucket_keys[4] * size;

	for (size_t i = 0; i < 4; i++)
		sum += s->bucket_keys[i] * (get_le64(sha256 + 8 * i) ^ (get_le64(sha256 + 8 * i) >> 32));
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
			struct object *o = old[i], **to = &buckets[bucket_of(s, o->sha256, o->size)];

			old[i] = o->next_hash;
			o->next_hash = *to;
			*to = o;
		}
	free(old);
	return 0;
}

static int add_origin(struct object *o, const struct entry *entry)
{
	struct origin *origin = malloc(sizeof(*origin));

	if (!origin)
		return -ENOMEM;
	*origin = (struct origin){ entry, o->first.next };
	o->first.next = origin;
	return 0;
}

int object_add(struct object_store *s, const uint8_t sha256[SHA256_SIZE],
	       const struct entry *entry, struct object **ret)
{
	struct object *o, **bucket;

	if (s->n_objects >= s->n_buckets && grow_buckets(s) < 0)
		return -ENOMEM;
	bucket = &s->buckets[bucket_of(s, sha256, entry->size)];
	for (o = *bucket; o; o = o->next_hash)
		if (memcmp(o->sha256, sha256, SHA256_SIZE) == 0 && o->size == entry->size) {
			*ret = o;
			return add_origin(o, entry);
		}
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->store = s;
	memcpy(o->sha256, sha256, SHA256_SIZE);
	o->size = entry->size;
	o->first.entry = entry;
	o->job.run = run_object;
	o->next_hash = *bucket;
	*bucket = o;
	s->n_objects++;
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

void object_store_stop(struct object_store *s)
{
	atomic_store(&s->stopping, true);
}

static void object_free(struct object *o)
{
	bytes_free(&o->bytes);
	while (o->first.next) {
		struct origin *origin = o->first.next;

		o->first.next = origin->next;
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
	free(s->buckets);
	tagger_free(s->tagger);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
