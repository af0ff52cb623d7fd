/* SPDX-License-Identifier: Apache-2.0 */
/* Who has an object's verified bytes pinned, and reads them. */
#include <stdlib.h>

#include "base/failure.h"
#include "base/sleeper.h"
#include "base/util.h"
#include "cache/cache.h"
#include "fetch/mirrors.h"
#include "content/internal.h"

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
		ret->arrived = arrived;
		ret->announced = atomic_load(&f->waits.announced);
		ret->waiting = waits_readers(&f->waits);
	}
	pthread_mutex_unlock(&o->store->lock);
	return f;
}

uint64_t object_here(struct object *o)
{
	uint64_t n = 0;

	pthread_mutex_lock(&o->store->lock);
	if (o->content)
		n = atomic_load(&o->content->waits.arrived);
	else if (o->bytes.chunks)
		n = chunked_verified_bytes(o->bytes.chunks);
	pthread_mutex_unlock(&o->store->lock);
	return n;
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
		keep_attach(o, &bytes, o->size);
		keep_add(s, o);
		return;
	}
	pthread_mutex_unlock(&s->lock);
	object_give_memory(s, o->size);
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
		r = fault_again(o);
	} else if (o->bytes.kind != BYTES_NONE) {
		keep_remove(s, o);
		o->pins++;
	} else if (o->state == OBJECT_CORRUPT && o->ops->final && !atomic_load(&o->read_failed)) {
		r = fault_again(o);
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

/* A thread that waits for an object. */
struct blocked {
	struct object_wait wait;
	struct sleeper sleeper;
};

static void wake_blocked(struct object_wait *wait, int result)
{
	sleeper_wake(&container_of(wait, struct blocked, wait)->sleeper, result);
}

static void blocked_init(struct blocked *b, struct waits *above)
{
	*b = (struct blocked){ .wait.done = wake_blocked, .wait.above = above };
	sleeper_init(&b->sleeper);
}

/* Waits for what is under way (-EINPROGRESS), or returns how it has ended. */
static int blocked_end(struct blocked *b, int r)
{
	struct waits *above = b->wait.above;

	if (r == -EINPROGRESS) {
		r = sleeper_wait(&b->sleeper, above ? &above->cancel : NULL);
		if (r == -EBUSY)
			carton_log(CARTON_LOG_ERROR, object_name(b->wait.object),
				   "is not waited for: so many threads wait already; try again "
				   "when some of their requests have ended");
		/* else the end is being told */
		if (r < 0 && !object_wait_cancel(&b->wait))
			r = sleeper_wait(&b->sleeper, NULL);
		if (r == 0)
			r = b->sleeper.result;
	}
	sleeper_finish(&b->sleeper);
	return r;
}

int object_get_wait(struct object *o, struct waits *above)
{
	struct blocked b;

	blocked_init(&b, above);
	return blocked_end(&b, object_get(o, &b.wait));
}

/* ---- many of them ---- */

/* how many objects object_get_each() waits for at a time */
#define EACH_AT_ONCE 32
/* so many that failed in a row say that the next one will fail, too */
#define MAX_IN_ROW 8

struct each {
	struct blocked ring[EACH_AT_ONCE];
	int results[EACH_AT_ONCE]; /* of object_get() */
	int error;		   /* of the first that failed, */
	char *why;		   /* and its text (failure.h) */
	unsigned in_row;	   /* so many have failed since one did not */
	bool got;		   /* one did not */
	bool over;		   /* the others are not tried */
};

/* Would the others fail, too, if one has failed so? */
static bool is_of_all(const struct each *e, int error)
{
	return error == -ECANCELED || error == -ENOTCONN || error == -EBUSY || error == -ENOMEM ||
	       error == -ENETUNREACH || (error_is_outage(error) && !e->got) ||
	       e->in_row == MAX_IN_ROW;
}

static void count_each(struct each *e, int r)
{
	e->got |= r == 0;
	e->in_row = r == 0 ? 0 : e->in_row + 1;
	if (r == 0)
		return;
	if (e->error == 0) {
		e->error = r;
		failure_keep(&e->why);
	}
	e->over |= is_of_all(e, r);
}

static void begin_each(struct each *e, size_t i, struct object *o, struct waits *above)
{
	struct blocked *b = &e->ring[i % EACH_AT_ONCE];

	blocked_init(b, above);
	e->results[i % EACH_AT_ONCE] = object_get(o, &b->wait);
}

static void end_each(struct each *e, size_t i, struct object *o)
{
	struct blocked *b = &e->ring[i % EACH_AT_ONCE];
	int r = e->results[i % EACH_AT_ONCE];

	if (e->over && r == -EINPROGRESS && object_wait_cancel(&b->wait))
		r = -ECANCELED;
	r = blocked_end(b, r);
	if (r == 0)
		object_put(o);
	count_each(e, r);
}

int object_get_each(struct object *const *list, size_t n, struct waits *above)
{
	struct each e = { .error = 0 };
	size_t begun = 0;

	for (size_t ended = 0; ended < begun || (ended < n && !e.over); ended++) {
		/* the first object alone: if none can be fetched, that is logged once */
		for (; begun < n && begun < ended + (ended ? EACH_AT_ONCE : 1) && !e.over; begun++)
			begin_each(&e, begun, list[begun], above);
		end_each(&e, ended, list[ended]);
	}
	/* the text of a later failure is of another object */
	failure_set(e.why);
	free(e.why);
	return e.error;
}

/* Nobody has the object open any more: its bytes are kept, unless they are damaged. Lock held. */
static struct bytes let_go(struct object_store *s, struct object *o)
{
	struct bytes none = { .kind = BYTES_NONE };
	bool failed = atomic_load(&o->read_failed);

	/* the chunks of one that is distrusted no longer count, whatever is in them */
	if (failed || (o->bytes.chunks && atomic_load(&o->no_chunks))) {
		/* a copy is made again; else all of it is hashed once more to be certain */
		o->state = o->copied || !s->tagger || !failed ? OBJECT_UNVERIFIED : OBJECT_CORRUPT;
		return keep_detach(s, o);
	}
	if (o->bytes.kind != BYTES_MEMORY && o->bytes.kind != BYTES_FILE)
		return none;
	keep_add(s, o);
	keep_limit(s);
	return none;
}

void object_pin_for_fill(struct object *o)
{
	pthread_mutex_lock(&o->store->lock);
	o->pins++;
	o->fill_pins++;
	pthread_mutex_unlock(&o->store->lock);
}

void object_put(struct object *o)
{
	struct bytes bytes = { .kind = BYTES_NONE };
	struct object_store *s = o->store;

	pthread_mutex_lock(&s->lock);
	if (o->pins == o->fill_pins + 1 && o->bytes.chunks && chunked_filler(o->bytes.chunks)) {
		pthread_mutex_unlock(&s->lock);
		chunked_unpinned(o->bytes.chunks);
		pthread_mutex_lock(&s->lock);
	}
	if (--o->pins == 0)
		bytes = let_go(s, o);
	pthread_mutex_unlock(&s->lock);
	bytes_finish(&bytes);
}

void object_follow(struct object *o, struct object *next)
{
	if (next == o)
		next = NULL;
	if (next) {
		atomic_store(&next->before, o);
		atomic_store(&next->in_order, atomic_load(&o->in_order));
	}
	atomic_store(&o->next, next);
}

/* Drops the cache entry after a failed read check. The caller holds a pin. */
static void drop_cached(struct object *o)
{
	const struct object_options *options = &o->store->options;
	uint8_t name[SHA256_SIZE];

	/* which leaves the entry alone when it is another file than ours */
	if (options->cache && object_state(o) != OBJECT_UNVERIFIED && object_cache_name(o, name))
		cache_drop(options->cache, name, o->bytes.source->fd);
}

/* ---- reading ---- */

/* jobs of one object: while all threads of their lane are busy, readers verify by themselves */
#define MAX_AHEAD 8

/* Verifies chunks that a reader in order will come to. */
struct ahead_job {
	struct job job;
	struct object *object; /* with a pin */
	struct disk_range at;
};

static void run_ahead(struct job *job)
{
	struct ahead_job *j = container_of(job, struct ahead_job, job);
	struct object *o = j->object;

	if (!cancel_fired(&o->store->stop) && !chunked_failed(o->bytes.chunks))
		chunked_verify_range(o->bytes.chunks, j->at.off, j->at.n);
	object_proven(o);
	atomic_fetch_sub(&o->n_ahead, 1);
	object_put(o);
	free(j);
}

/*
 * Starts a job that verifies the chunks of `at`. The kernel sends the READs of a mapping one after
 * the other, so without such jobs its reader would wait while each chunk is hashed.
 */
static void verify_ahead(struct object *o, struct disk_range at)
{
	struct ahead_job *j = NULL;

	if (atomic_fetch_add(&o->n_ahead, 1) < MAX_AHEAD)
		j = malloc(sizeof(*j));
	if (!j) {
		atomic_fetch_sub(&o->n_ahead, 1);
		return;
	}
	*j = (struct ahead_job){ .job.run = run_ahead, .object = o, .at = at };
	pthread_mutex_lock(&o->store->lock);
	o->pins++;
	pthread_mutex_unlock(&o->store->lock);
	workers_submit(o->store->options.workers, &j->job, LANE_BULK);
}

static void read_ahead(struct object *o, size_t n, uint64_t off)
{
	const struct disk_range next = bytes_ahead(&o->bytes, o->size, n, off);

	if (next.n > 0 && o->bytes.chunks && !chunked_is_complete(o->bytes.chunks) &&
	    !chunked_failed(o->bytes.chunks))
		verify_ahead(o, next);
}

int object_read(struct object *o, void *ret_buf, size_t n, uint64_t off, bool nowait)
{
	int r;

	/* also who has it pinned; what it was made of has been reported */
	if (object_is_withdrawn(o))
		return error_again(-EBADMSG, object_name(o), "is made of a damaged file");
	/* the background reads the index, and would make way for itself */
	if (o != o->store->index.ctx)
		atomic_fetch_add_explicit(&o->store->reads, 1, memory_order_relaxed);
	read_ahead(o, n, off);
	r = bytes_read(&o->bytes, o->store->tagger, o->size, ret_buf, n, off, nowait);
	if (r == 0 && o->bytes.chunks) {
		chunked_was_read(o->bytes.chunks, off, n);
		/* what was fetched is moved to its name by a worker */
		if (!chunked_filler(o->bytes.chunks))
			object_proven(o);
	}
	if (r == -EBADMSG && atomic_exchange(&o->read_failed, true)) {
		error_again(r, object_name(o), "is damaged, as was found before");
	} else if (r == -EBADMSG) {
		atomic_store(&o->no_chunks, true);
		if (!o->bytes.chunks || !chunked_failed(o->bytes.chunks))
			carton_log(CARTON_LOG_ERROR, object_name(o),
				   "changed on disk since it was verified%s, near byte %llu; close "
				   "and open it again, which hashes all of it",
				   object_state(o) == OBJECT_SEALED ?
					   ", or is a bad copy of what was" :
					   "",
				   (unsigned long long)off);
		else
			doubt_keep(o);
		seal_drop(o);
		if (o->copied)
			drop_cached(o);
	}
	return r;
}

enum object_state object_known_state(struct object *o)
{
	enum object_state state = object_state(o);

	return atomic_load(&o->read_failed) && state != OBJECT_UNVERIFIED ? OBJECT_CORRUPT : state;
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

int object_read_wait(struct object *o, void *ret_buf, size_t n, uint64_t off, struct waits *above)
{
	int r, error = 0;

	while ((r = object_read(o, ret_buf, n, off, false)) == -EINPROGRESS && error == 0) {
		struct blocked b;

		blocked_init(&b, above);
		error = blocked_end(&b, object_fetch(o, off, n, &b.wait));
	}
	return r == -EINPROGRESS ? error : r;
}
