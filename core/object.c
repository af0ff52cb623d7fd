/* SPDX-License-Identifier: Apache-2.0 */
#include "object.h"

#include <stdlib.h>
#include <sys/random.h>

#include "object_priv.h"

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
	o->bytes = (struct bytes){ .kind = BYTES_NONE };
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

void object_drop_idle(struct object_store *s)
{
	pthread_mutex_lock(&s->lock);
	drop_idle(s, true);
	pthread_mutex_unlock(&s->lock);
}

bool object_claim_memory(struct object_store *s, uint64_t size)
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

void object_unclaim_memory(struct object_store *s, uint64_t size)
{
	pthread_mutex_lock(&s->lock);
	s->memory_used -= size;
	pthread_mutex_unlock(&s->lock);
}

/* ---- tasks and those who wait for them ---- */

bool object_must_stop(const struct object *o)
{
	return atomic_load(&o->store->stopping) ||
	       (atomic_load(&o->content.n_waiting) == 0 && atomic_load(&o->length.n_waiting) == 0);
}

/* Nobody may want the object any more: then whoever waits for a server need not. Lock held. */
static void give_up(struct object *o)
{
	for (struct object_fetch *f = o->fetches; f && object_must_stop(o); f = f->next)
		http_cancel_fire(&f->cancel);
}

int object_fetch_begin(struct object *o, struct object_fetch *fetch)
{
	int r = http_cancel_init(&fetch->cancel);

	if (r < 0)
		return r;
	pthread_mutex_lock(&o->store->lock);
	fetch->next = o->fetches;
	o->fetches = fetch;
	/* the last who waited may have gone before there was anything to fire */
	give_up(o);
	pthread_mutex_unlock(&o->store->lock);
	return 0;
}

void object_fetch_end(struct object *o, struct object_fetch *fetch)
{
	struct object_fetch **at = &o->fetches;

	pthread_mutex_lock(&o->store->lock);
	while (*at != fetch)
		at = &(*at)->next;
	*at = fetch->next;
	pthread_mutex_unlock(&o->store->lock);
	http_cancel_destroy(&fetch->cancel);
}

static enum lane object_lane(const struct object *o)
{
	if (o->derive)
		return LANE_VIEWS;
	if (!o->origins || o->store->options.container->remote)
		return LANE_NET;
	return o->size > BULK_OBJECT ? LANE_BULK : LANE_QUICK;
}

static void unlink_wait(struct object_wait *w)
{
	*w->link = w->next;
	if (w->next)
		w->next->link = w->link;
	w->link = NULL;
	atomic_fetch_sub(&w->task->n_waiting, 1);
}

/* Queues a wait; true: the task has to be started. Lock held. */
static bool link_wait(struct object *o, struct object_task *task, struct object_wait *w)
{
	bool start = !task->busy;

	w->object = o;
	w->task = task;
	w->next = task->waits;
	w->link = &task->waits;
	if (w->next)
		w->next->link = &w->next;
	task->waits = w;
	atomic_fetch_add(&task->n_waiting, 1);
	if (start) {
		task->busy = true;
		task->since_ms = now_ms();
	}
	return start;
}

/* Takes all waits off a task, as a list. Lock held. */
static struct object_wait *take_waits(struct object_task *task, size_t *ret_n)
{
	struct object_wait *list = NULL, *w;

	for (*ret_n = 0; (w = task->waits); ++*ret_n) {
		unlink_wait(w);
		w->next = list;
		list = w;
	}
	task->busy = false;
	return list;
}

static void tell_waits(struct object_wait *list, int result)
{
	while (list) {
		struct object_wait *w = list;

		list = w->next;
		w->done(w, result);
	}
}

/* Given up for want of anyone who waits, and now there is one again: once more. Lock held. */
static bool wanted_again(struct object *o, struct object_task *task, int result)
{
	if (result != -ECANCELED || !task->waits || atomic_load(&o->store->stopping))
		return false;
	task->since_ms = now_ms();
	return true;
}

static void run_content(struct job *job)
{
	struct object *o = container_of(job, struct object, content.job);
	struct object_store *s = o->store;
	struct bytes bytes = { .kind = BYTES_NONE };
	struct object_wait *waits;
	uint64_t size = 0;
	size_t n;
	int r = object_must_stop(o) ? -ECANCELED : object_materialize(o, &bytes, &size);

	if (r < 0 && r != -EBADMSG && r != -ECANCELED)
		carton_log(CARTON_LOG_ERROR, object_name(o), "cannot be read now: %s",
			   strerror(-r));
	pthread_mutex_lock(&s->lock);
	if (wanted_again(o, &o->content, r)) {
		pthread_mutex_unlock(&s->lock);
		workers_submit(s->options.workers, &o->content.job, object_lane(o));
		return;
	}
	if (r == -ECANCELED)
		r = -ENOTCONN;
	waits = take_waits(&o->content, &n);
	if (r == 0) {
		o->bytes = bytes;
		o->size = size;
		/* an unverified carton stays one; what was fetched is always verified */
		if (s->options.verify || o->link)
			o->state = OBJECT_VERIFIED;
		s->files_used += bytes.kind == BYTES_FILE;
		o->pins += (unsigned)n;
		if (o->pins == 0 && bytes.kind != BYTES_PLACE)
			idle_add(s, o);
	} else if (r == -EBADMSG) {
		o->state = OBJECT_CORRUPT;
	}
	drop_idle(s, false);
	pthread_mutex_unlock(&s->lock);
	tell_waits(waits, r);
}

static void run_length(struct job *job)
{
	struct object *o = container_of(job, struct object, length.job);
	struct object_store *s = o->store;
	struct object_wait *waits;
	uint64_t size = OBJECT_NO_SIZE;
	size_t n;
	bool certain = false;
	int r = object_must_stop(o) ? -ECANCELED : object_ask_size(o, &size, &certain);

	pthread_mutex_lock(&s->lock);
	if (wanted_again(o, &o->length, r)) {
		pthread_mutex_unlock(&s->lock);
		workers_submit(s->options.workers, &o->length.job, LANE_NET);
		return;
	}
	if (r == -ECANCELED)
		r = -ENOTCONN;
	if (r == 0)
		atomic_store(certain ? &o->size : &o->said_size, size);
	waits = take_waits(&o->length, &n);
	pthread_mutex_unlock(&s->lock);
	tell_waits(waits, r);
}

/* What is not there has to be waited for. *ret_start: the task has to be started. Lock held. */
static int begin_wait(struct object *o, struct object_task *task, struct object_wait *wait,
		      bool *ret_start)
{
	if (atomic_load(&o->store->stopping))
		return -ENOTCONN;
	if (!wait)
		return -EAGAIN;
	*ret_start = link_wait(o, task, wait);
	return -EINPROGRESS;
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
	} else if (o->state == OBJECT_CORRUPT && o->origins) {
		/* what is fetched may be mended where it comes from, a carton is not */
		r = -EBADMSG;
	} else {
		r = begin_wait(o, &o->content, wait, &start);
	}
	pthread_mutex_unlock(&s->lock);
	if (start)
		workers_submit(s->options.workers, &o->content.job, object_lane(o));
	return r;
}

int object_get_size(struct object *o, struct object_wait *wait)
{
	struct object_store *s = o->store;
	bool start = false;
	int r = 0;

	if (object_size(o) != OBJECT_NO_SIZE)
		return 0;
	pthread_mutex_lock(&s->lock);
	if (object_size(o) == OBJECT_NO_SIZE)
		r = begin_wait(o, &o->length, wait, &start);
	pthread_mutex_unlock(&s->lock);
	if (start)
		workers_submit(s->options.workers, &o->length.job, LANE_NET);
	return r;
}

struct sleeper {
	struct object_wait wait;
	pthread_mutex_t lock;
	pthread_cond_t over;
	bool done;
	int result;
};

static void wake_sleeper(struct object_wait *wait, int result)
{
	struct sleeper *sl = container_of(wait, struct sleeper, wait);

	pthread_mutex_lock(&sl->lock);
	sl->done = true;
	sl->result = result;
	pthread_cond_signal(&sl->over);
	pthread_mutex_unlock(&sl->lock);
}

int object_get_wait(struct object *o)
{
	struct sleeper sl = {
		.wait.done = wake_sleeper,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.over = PTHREAD_COND_INITIALIZER,
	};
	int r = object_get(o, &sl.wait);

	if (r != -EINPROGRESS)
		return r;
	pthread_mutex_lock(&sl.lock);
	while (!sl.done)
		pthread_cond_wait(&sl.over, &sl.lock);
	r = sl.result;
	pthread_mutex_unlock(&sl.lock);
	return r;
}

bool object_wait_cancel(struct object_wait *wait)
{
	struct object_store *s = wait->object->store;
	bool queued;

	pthread_mutex_lock(&s->lock);
	queued = wait->link != NULL;
	if (queued) {
		unlink_wait(wait);
		give_up(wait->object);
	}
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

static int new_object(struct object_store *s, const uint8_t sha256[SHA256_SIZE], const char *name,
		      uint64_t size, struct object **ret)
{
	struct object *o, **bucket;

	if (s->n_objects >= s->n_buckets && grow_buckets(s) < 0)
		return -ENOMEM;
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->store = s;
	memcpy(o->sha256, sha256, SHA256_SIZE);
	o->name = name;
	o->size = size;
	o->said_size = OBJECT_NO_SIZE;
	o->content.job.run = run_content;
	o->length.job.run = run_length;
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
	struct object *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->store = s;
	o->name = name;
	o->size = size;
	o->said_size = OBJECT_NO_SIZE;
	o->content.job.run = run_content;
	o->length.job.run = run_length;
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
