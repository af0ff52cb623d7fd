/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for an object's verified bytes, and keeping them as long as there is room. */
#include <stdlib.h>

#include "object/internal.h"

#define STALE_REPEAT_MS 500

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

/* Drops the oldest idle copy, not holding the lock while it is freed; true: it was a file. */
static bool drop_oldest(struct object_store *s)
{
	struct object *o = s->oldest;
	struct bytes bytes;
	bool file;

	idle_remove(s, o);
	bytes = detach_bytes(s, o);
	file = bytes.kind == BYTES_FILE;
	/* to close a large file that has no name any more takes long */
	pthread_mutex_unlock(&s->lock);
	bytes_free(&bytes);
	pthread_mutex_lock(&s->lock);
	return file;
}

/* Drops idle copies until `more` bytes of memory fit the budgets. Lock held, but not all along. */
static void make_room(struct object_store *s, uint64_t more)
{
	while (s->oldest &&
	       (s->memory_used + more > MAX_OBJECT_MEMORY || s->files_used > MAX_OBJECT_FILES))
		drop_oldest(s);
}

bool object_drop_idle(struct object_store *s)
{
	bool dropped = false;

	pthread_mutex_lock(&s->lock);
	while (s->oldest)
		dropped |= drop_oldest(s);
	pthread_mutex_unlock(&s->lock);
	return dropped;
}

bool object_claim_memory(struct object_store *s, uint64_t size)
{
	bool fits;

	if (size > MAX_MEMORY_OBJECT)
		return false;
	pthread_mutex_lock(&s->lock);
	make_room(s, size);
	fits = s->memory_used + size <= MAX_OBJECT_MEMORY;
	if (fits)
		s->memory_used += size;
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

/*
 * The kernel opens again, at once, what is -ESTALE. That gets the same answer, without another
 * request and another line in the log.
 */
static int materialize(struct object *o, struct bytes *ret, uint64_t *ret_size)
{
	bool repeated = o->stale_ms && now_ms() - o->stale_ms < STALE_REPEAT_MS;
	int r;

	o->stale_ms = 0;
	if (repeated)
		return -ESTALE;
	r = object_must_stop(o) ? -ECANCELED : object_materialize(o, ret, ret_size);
	if (r == -ESTALE)
		o->stale_ms = now_ms();
	if (r < 0 && r != -EBADMSG && r != -ECANCELED)
		carton_log(CARTON_LOG_ERROR, object_name(o), "cannot be read now: %s",
			   strerror(-r));
	return r;
}

/* Are the bytes a file of ours, which can be made again? One of an unpacked carton is not. */
static bool is_copy(const struct object *o, const struct bytes *bytes)
{
	const struct container *c = o->store->options.container;

	return bytes->kind == BYTES_FILE && (!o->origins || c->remote || c->one_file);
}

void object_run_content(struct job *job)
{
	struct object *o = container_of(job, struct object, content.job);
	struct object_store *s = o->store;
	struct bytes bytes = { .kind = BYTES_NONE };
	struct object_wait *waits;
	uint64_t size = 0;
	size_t n;
	int r = materialize(o, &bytes, &size);

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
		o->copied = is_copy(o, &bytes);
		atomic_store(&o->read_failed, false);
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
	make_room(s, 0);
	pthread_mutex_unlock(&s->lock);
	tell_waits(waits, r);
}

void object_run_length(struct job *job)
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
		workers_submit(s->options.workers, &o->length.job, object_lane(o));
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
		workers_submit(s->options.workers, &o->length.job, object_lane(o));
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

/* Nobody has the object open any more: its copy is kept, unless it is damaged. Lock held. */
static struct bytes let_go(struct object_store *s, struct object *o)
{
	struct bytes none = { .kind = BYTES_NONE };

	if (o->bytes.kind != BYTES_MEMORY && o->bytes.kind != BYTES_FILE)
		return none;
	if (o->copied && atomic_load(&o->read_failed)) {
		o->state = OBJECT_UNVERIFIED;
		return detach_bytes(s, o);
	}
	idle_add(s, o);
	make_room(s, 0);
	return none;
}

void object_put(struct object *o)
{
	struct bytes bytes = { .kind = BYTES_NONE };
	struct object_store *s = o->store;

	pthread_mutex_lock(&s->lock);
	if (--o->pins == 0)
		bytes = let_go(s, o);
	pthread_mutex_unlock(&s->lock);
	bytes_free(&bytes);
}

int object_read(struct object *o, void *ret_buf, size_t n, uint64_t off, bool nowait)
{
	int r = bytes_read(&o->bytes, o->store->tagger, o->size, ret_buf, n, off, nowait);

	if (r == -EBADMSG && !atomic_exchange(&o->read_failed, true)) {
		carton_log(CARTON_LOG_ERROR, object_name(o),
			   "changed on disk since it was verified, near byte %llu; %s it again",
			   (unsigned long long)off, o->copied ? "close and open" : "mount");
		if (o->copied)
			object_drop_cached(o);
	}
	return r;
}
