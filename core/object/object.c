/* SPDX-License-Identifier: Apache-2.0 */
/* Who has an object's verified bytes pinned, and reads them. */
#include <stdlib.h>

#include "base/util.h"
#include "cache/cache.h"
#include "fetch/mirrors.h"
#include "object/internal.h"

#define PROGRESS_OF_WORK (64 * KIB)

bool object_progress(struct object *o, struct object_progress *ret)
{
	const struct fill *f;

	pthread_mutex_lock(&o->store->lock);
	f = o->content;
	if (f) {
		uint64_t arrived = atomic_load(&f->waits.arrived);
		uint64_t hashed = atomic_load(&f->waits.hashed);

		/* what was fetched is hashed on the way, or after it */
		ret->fetching = arrived > 0 || (hashed == 0 && waits_are_timed(o));
		ret->done = MAX(arrived, hashed);
		ret->waiting = f->waits.n;
	}
	pthread_mutex_unlock(&o->store->lock);
	return f;
}

/*
 * Gets the bytes of a small object in this thread, without the lock, which is held before and
 * after. Another thread may get them too: the first one's are kept.
 */
static void get_now(struct object *o)
{
	struct object_store *s = o->store;
	struct bytes bytes = { .kind = BYTES_NONE };
	int r;

	pthread_mutex_unlock(&s->lock);
	r = o->ops->get_now(o, &bytes);
	pthread_mutex_lock(&s->lock);
	if (r < 0)
		return;
	if (o->bytes.kind == BYTES_NONE && !o->content) {
		keep_attach(o, &bytes);
		keep_add(s, o);
		return;
	}
	pthread_mutex_unlock(&s->lock);
	object_unclaim_memory(s, o->size);
	bytes_finish(&bytes);
	pthread_mutex_lock(&s->lock);
}

int object_get(struct object *o, struct object_wait *wait)
{
	struct object_store *s = o->store;
	struct fill *start = NULL;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	if (o->bytes.kind == BYTES_NONE && !wait && !o->content && o->state != OBJECT_CORRUPT &&
	    o->ops->get_now && !cancel_fired(&s->stop))
		get_now(o);
	if (object_is_withdrawn(o) || (o->bytes.chunks && o->state == OBJECT_CORRUPT)) {
		r = -EBADMSG;
	} else if (o->bytes.kind != BYTES_NONE) {
		keep_remove(s, o);
		o->pins++;
	} else if (o->state == OBJECT_CORRUPT && o->ops->final && !atomic_load(&o->read_failed)) {
		r = -EBADMSG;
	} else {
		r = fill_join(o, FILL_ALL, wait, &start);
	}
	pthread_mutex_unlock(&s->lock);
	if (start)
		fill_submit(start);
	return r;
}

int object_get_size(struct object *o, struct object_wait *wait)
{
	struct object_store *s = o->store;
	struct fill *start = NULL;
	int r = 0;

	if (object_size(o) != OBJECT_NO_SIZE)
		return 0;
	pthread_mutex_lock(&s->lock);
	if (object_size(o) == OBJECT_NO_SIZE)
		r = fill_join(o, FILL_SIZE, wait, &start);
	pthread_mutex_unlock(&s->lock);
	if (start)
		fill_submit(start);
	return r;
}

struct sleeper {
	struct object_wait wait;
	pthread_mutex_t lock;
	pthread_cond_t over;
	bool done;
	int result;
};

static void sleeper_done(struct object_wait *wait, int result)
{
	struct sleeper *sl = container_of(wait, struct sleeper, wait);

	pthread_mutex_lock(&sl->lock);
	sl->done = true;
	sl->result = result;
	pthread_cond_signal(&sl->over);
	pthread_mutex_unlock(&sl->lock);
}

static void sleeper_init(struct sleeper *sl)
{
	*sl = (struct sleeper){
		.wait.done = sleeper_done,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.over = PTHREAD_COND_INITIALIZER,
	};
}

/* Waits for what is under way (-EINPROGRESS), or returns how it has ended. */
static int sleep_for(struct sleeper *sl, int r)
{
	if (r != -EINPROGRESS)
		return r;
	pthread_mutex_lock(&sl->lock);
	while (!sl->done)
		pthread_cond_wait(&sl->over, &sl->lock);
	r = sl->result;
	pthread_mutex_unlock(&sl->lock);
	return r;
}

int object_get_wait(struct object *o)
{
	struct sleeper sl;

	sleeper_init(&sl);
	return sleep_for(&sl, object_get(o, &sl.wait));
}

bool object_must_stop(const struct object *o)
{
	bool stop;

	pthread_mutex_lock(&o->store->lock);
	/* asking shows that the work goes on */
	if (o->content)
		waits_progress(&o->content->waits, PROGRESS_OF_WORK);
	stop = (!o->content || cancel_fired(&o->content->waits.cancel)) &&
	       (!o->length || cancel_fired(&o->length->waits.cancel));
	pthread_mutex_unlock(&o->store->lock);
	return stop;
}

/* Nobody has the object open any more: its bytes are kept, unless they are damaged. Lock held. */
static struct bytes let_go(struct object_store *s, struct object *o)
{
	struct bytes none = { .kind = BYTES_NONE };

	if (atomic_load(&o->read_failed)) {
		/* a copy is made again; else all of it is hashed once more to be certain */
		o->state = o->copied || !s->tagger ? OBJECT_UNVERIFIED : OBJECT_CORRUPT;
		return keep_detach(s, o);
	}
	if (o->bytes.kind != BYTES_MEMORY && o->bytes.kind != BYTES_FILE)
		return none;
	keep_add(s, o);
	keep_limit(s);
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
	bytes_finish(&bytes);
}

/* Drops the cache entry after a failed read check. The caller holds a pin. */
static void drop_cached(struct object *o)
{
	const struct object_options *options = &o->store->options;

	/* which leaves the entry alone when it is another file than ours */
	if (options->cache && object_state(o) != OBJECT_UNVERIFIED)
		cache_drop(options->cache, o->sha256, o->bytes.source->fd);
}

int object_read(struct object *o, void *ret_buf, size_t n, uint64_t off, bool nowait)
{
	int r;

	/* also who has it pinned; what it was made of has been reported */
	if (object_is_withdrawn(o))
		return -EBADMSG;
	atomic_fetch_add_explicit(&o->store->reads, 1, memory_order_relaxed);
	r = bytes_read(&o->bytes, o->store->tagger, o->size, ret_buf, n, off, nowait);
	if (r == -EBADMSG && !atomic_exchange(&o->read_failed, true)) {
		atomic_store(&o->no_chunks, true);
		if (!o->bytes.chunks || !chunked_failed(o->bytes.chunks))
			carton_log(CARTON_LOG_ERROR, object_name(o),
				   "changed on disk since it was verified, near byte %llu; close "
				   "and open it again",
				   (unsigned long long)off);
		seal_drop(o);
		if (o->copied)
			drop_cached(o);
	}
	return r;
}

int object_copy_fd(struct object *o)
{
	const struct object_options *options = &o->store->options;
	const struct bytes *b = &o->bytes;

	/* a directory of mirror= is another's cache */
	if (object_state(o) != OBJECT_VERIFIED || !o->copied || b->kind != BYTES_FILE || !b->tags ||
	    b->chunks || b->off || b->source->size != o->size || atomic_load(&o->read_failed) ||
	    mirrors_directories(options->mirrors))
		return -ENODATA;
	return b->source->fd;
}

int object_fetch(struct object *o, uint64_t off, size_t n, struct object_wait *wait)
{
	return cancel_fired(&o->store->stop) ? -ENOTCONN :
					       chunked_fetch(o->bytes.chunks, off, n, wait);
}

int object_read_wait(struct object *o, void *ret_buf, size_t n, uint64_t off)
{
	int r, error = 0;

	while ((r = object_read(o, ret_buf, n, off, false)) == -EINPROGRESS && error == 0) {
		struct sleeper sl;

		sleeper_init(&sl);
		error = sleep_for(&sl, object_fetch(o, off, n, &sl.wait));
	}
	return r == -EINPROGRESS ? error : r;
}
