/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits for an object's verified bytes, and who has them pinned. */
#include <stdlib.h>

#include "base/util.h"
#include "carton.h"
#include "cache/cache.h"
#include "object/internal.h"

#define STALE_REPEAT_MS 500
#define MIN_RATE 1024 /* bytes a second that keep a waiter waiting */
/* a fetch that times out by itself says better why, so it gets to */
#define DEADLINE_GRACE_MS 500
#define DROP_STEP (16 * MIB)
#define PROGRESS_OF_WORK (64 * KIB)

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

enum object_state object_state(struct object *o)
{
	enum object_state state;

	pthread_mutex_lock(&o->store->lock);
	state = o->state;
	pthread_mutex_unlock(&o->store->lock);
	return state;
}

/* May the object need a server, so that its waiters have a deadline? */
static bool is_timed(const struct object *o)
{
	const struct object_options *options = &o->store->options;

	return options->events && options->timeout_ms &&
	       (o->maker->ops->may_wait || options->source);
}

bool object_progress(struct object *o, struct object_progress *ret)
{
	const struct making *m;

	pthread_mutex_lock(&o->store->lock);
	m = o->content;
	if (m) {
		uint64_t arrived = atomic_load(&m->arrived), hashed = atomic_load(&m->hashed);

		/* what was fetched is hashed on the way, or after it */
		ret->fetching = arrived > 0 || (hashed == 0 && is_timed(o));
		ret->done = MAX(arrived, hashed);
		ret->waiting = m->n_waiting;
	}
	pthread_mutex_unlock(&o->store->lock);
	return m;
}

/* ---- attempts, and those who wait for them ---- */

static void run_making(struct job *job);

/* An attempt nobody waits for yet; NULL: no memory. */
static struct making *making_new(struct object *o, bool size_only)
{
	struct making *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->object = o;
	m->size_only = size_only;
	m->try_seal = !size_only && o->maker->ops->by_seal &&
		      o->store->options.seals == SEALS_USE && o->size >= MIN_SEALED;
	m->job.run = run_making;
	cancel_init(&m->cancel, &o->store->stop);
	return m;
}

static void making_free(struct making *m)
{
	cancel_destroy(&m->cancel);
	free(m);
}

static void making_submit(struct making *m)
{
	struct object *o = m->object;

	workers_submit(o->store->options.workers, &m->job,
		       m->try_seal ? LANE_QUICK : o->maker->ops->lane(o));
}

static void unlink_wait(struct object_wait *w)
{
	*w->link = w->next;
	if (w->next)
		w->next->link = w->link;
	w->link = NULL;
	w->making->n_waiting--;
}

/* Lock held. */
static void link_wait(struct making *m, struct object_wait *w)
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

/* Takes all waits off an attempt, as a list. Lock held. */
static struct object_wait *take_waits(struct making *m)
{
	struct object_wait *list = NULL, *w;

	while ((w = m->waits)) {
		unlink_wait(w);
		w->next = list;
		list = w;
	}
	return list;
}

static void finish_waits(struct object_wait *list, int result)
{
	while (list) {
		struct object_wait *w = list;

		list = w->next;
		w->done(w, result);
	}
}

/* ---- deadlines ---- */

/* Gives a new waiter its deadline. Lock held. */
static void time_wait(struct making *m, struct object_wait *w)
{
	struct object_store *s = m->object->store;

	if (!is_timed(m->object))
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

/* Lock held. */
static void untime(struct making *m)
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
		carton_log(CARTON_LOG_ERROR, object_name(m->object), "cannot be read now: %s",
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
	finish_waits(list, -ETIMEDOUT);
	return true;
}

/* ---- running an attempt ---- */

/*
 * The kernel repeats an open at once that failed with -ESTALE. The second one gets the same answer,
 * without another request and another line in the log.
 */
static bool stale_repeated(struct making *m)
{
	struct object *o = m->object;
	bool repeated = !m->size_only && o->stale_ms && now_ms() - o->stale_ms < STALE_REPEAT_MS;

	if (!m->size_only)
		o->stale_ms = 0;
	return repeated;
}

static void finish(struct making *m, int result);

/* True: the bytes are there without hashing, or another lane gets them. */
static bool got_by_seal(struct making *m)
{
	const struct object *o = m->object;

	m->try_seal = false;
	m->sealed = o->maker->ops->by_seal(m);
	if (m->sealed)
		making_done(m, 0);
	else if (o->maker->ops->lane(o) != LANE_QUICK)
		making_submit(m);
	else
		return false;
	return true;
}

static void run_making(struct job *job)
{
	struct making *m = container_of(job, struct making, job);
	const struct maker_ops *ops = m->object->maker->ops;

	if (cancel_fired(&m->cancel))
		making_done(m, -ECANCELED);
	else if (stale_repeated(m))
		finish(m, -ESTALE);
	else if (m->try_seal && got_by_seal(m))
		return;
	else if (m->size_only)
		ops->get_size(m);
	else
		ops->get_bytes(m);
}

/* Lock held. */
static void set_bytes(struct object *o, const struct bytes *bytes)
{
	o->bytes = *bytes;
	atomic_store(&o->read_failed, false);
	if (o->store->options.verify || o->maker->ops->always_verified)
		o->state = OBJECT_VERIFIED;
	o->store->files_used += bytes->kind == BYTES_FILE;
}

/* The bytes become the object's, pinned by all who wait for them. Lock held. */
static void take_bytes(struct making *m)
{
	struct object *o = m->object;
	struct object_store *s = o->store;

	set_bytes(o, &m->bytes);
	o->size = m->size;
	o->copied = m->copied;
	if (m->bytes.chunks || m->sealed)
		o->state = m->bytes.chunks ? OBJECT_CHUNKED : OBJECT_SEALED;
	/* the background has one, too */
	o->pins += m->n_waiting + (m->whole != NULL);
	if (o->pins == 0 && m->bytes.kind != BYTES_PLACE)
		keep_add(s, o);
}

/* Lock held. */
static void take_result(struct making *m, int result)
{
	struct object *o = m->object;

	untime(m);
	if (m->size_only) {
		o->length = NULL;
		if (result == 0)
			atomic_store(m->bytes.kind ? &o->size : &o->reported_size, m->size);
		return;
	}
	o->content = NULL;
	if (result == 0)
		take_bytes(m);
	if (result == -EBADMSG) {
		o->state = OBJECT_CORRUPT;
		atomic_store(&o->read_failed, false);
	}
}

/* Only the size was wanted, but the bytes had to be made for it. */
static void drop_bytes(struct making *m)
{
	if (m->bytes.kind == BYTES_MEMORY)
		object_unclaim_memory(m->object->store, m->size);
	bytes_free(&m->bytes);
}

static void report(struct making *m, int result)
{
	struct object *o = m->object;

	if (m->size_only || result == 0 || result == -EBADMSG || result == -ECANCELED)
		return;
	/* copy_offline() has said so */
	if (result == -ENETUNREACH && !o->store->options.remote)
		return;
	if (result == -ESTALE)
		o->stale_ms = now_ms();
	carton_log(CARTON_LOG_ERROR, object_name(o), "cannot be read now: %s", strerror(-result));
}

static void finish(struct making *m, int result)
{
	struct object_store *s = m->object->store;
	struct whole *whole = m->whole;
	struct object_wait *waits;

	making_end_tap(m, result < 0 || m->tapped ? result : -EALREADY);
	pthread_mutex_lock(&s->lock);
	/* Cancelled for lack of waiters, but one has arrived since: run it again. */
	if (result == -ECANCELED && m->waits && !cancel_fired(&s->stop)) {
		cancel_destroy(&m->cancel);
		cancel_init(&m->cancel, &s->stop);
		pthread_mutex_unlock(&s->lock);
		making_submit(m);
		return;
	}
	take_result(m, result);
	waits = take_waits(m);
	/* it releases the lock: a wait that was cancelled then would leave its pin */
	keep_limit_files(s);
	pthread_mutex_unlock(&s->lock);
	if (m->size_only && result == 0)
		drop_bytes(m);
	making_free(m);
	finish_waits(waits, result == -ECANCELED ? -ENOTCONN : result);
	if (whole)
		whole_start(whole);
}

void making_done(struct making *m, int result)
{
	if (result == -ESHUTDOWN)
		result = -ECANCELED;
	/* descriptors are used up: those of copies that nobody reads can be closed */
	if ((result == -EMFILE || result == -ENFILE) && !m->retried &&
	    keep_drop_idle(m->object->store)) {
		m->retried = true;
		making_submit(m);
		return;
	}
	if (result == 0 && !m->sealed && !m->bytes.chunks)
		seal_keep(m->object, m->size, m->bytes.tags);
	report(m, result);
	finish(m, result);
}

void making_progress(void *making, uint64_t bytes)
{
	struct making *m = making;

	atomic_store(&m->progress_ms, now_ms());
	atomic_fetch_add(&m->progress, bytes);
}

void making_arrived(void *making, uint64_t bytes)
{
	struct making *m = making;

	atomic_fetch_add(&m->object->store->fetched, bytes);
	atomic_fetch_add(&m->arrived, bytes);
	making_progress(m, bytes);
}

void making_count(void *making, uint64_t bytes)
{
	struct making *m = making;

	atomic_fetch_add(&m->hashed, bytes);

	atomic_fetch_add(&m->object->store->ingested, bytes);
	making_progress(m, bytes);
}

void making_tap(void *making, uint64_t off, const void *data, size_t n)
{
	struct making *m = making;

	m->tap->bytes(m->tap, off, data, n);
	if (off % DROP_STEP == 0)
		making_drop_pages(m, off);
}

void making_drop_pages(struct making *m, uint64_t end)
{
	uint64_t from = end - MIN(end, 2 * DROP_STEP);

	/* the steps overlap, since a large folio goes only as a whole; 0 would mean all */
	if (m->behind && end > 0)
		source_drop_pages(m->behind, m->behind_off + from, end - from);
}

void making_end_tap(struct making *m, int result)
{
	if (m->tap)
		m->tap->end(m->tap, result);
	m->tap = NULL;
}

int making_check(const struct making *m, const uint8_t found[SHA256_SIZE])
{
	char want_hex[2 * SHA256_SIZE + 1], found_hex[2 * SHA256_SIZE + 1];
	const struct object *o = m->object;

	if (!o->store->options.verify || memcmp(o->sha256, found, SHA256_SIZE) == 0)
		return 0;
	hex_encode(o->sha256, SHA256_SIZE, want_hex);
	hex_encode(found, SHA256_SIZE, found_hex);
	carton_log(CARTON_LOG_ERROR, object_name(o),
		   "sha256 mismatch: MANIFEST says %s, the bytes have %s; get the carton again",
		   want_hex, found_hex);
	return -EBADMSG;
}

/*
 * Waits for an attempt, a new one unless one is under way. *ret_start: it has to be submitted. Lock
 * held.
 */
static int begin_wait(struct object *o, bool size_only, struct object_wait *wait,
		      struct making **ret_start)
{
	struct making **at = size_only ? &o->length : &o->content;

	if (cancel_fired(&o->store->stop))
		return -ENOTCONN;
	if (!wait)
		return -EAGAIN;
	if (!*at) {
		*at = making_new(o, size_only);
		if (!*at)
			return -ENOMEM;
		*ret_start = *at;
		(*at)->tap = wait->tap;
		wait->tap = NULL;
	}
	link_wait(*at, wait);
	time_wait(*at, wait);
	return -EINPROGRESS;
}

/* ---- the public calls ---- */

/*
 * Gets the bytes of a small object in this thread, without the lock, which is held before and after. Another
 * thread may get them too: the first one's are kept.
 */
static void get_now(struct object *o)
{
	struct object_store *s = o->store;
	struct bytes bytes = { .kind = BYTES_NONE };
	int r;

	pthread_mutex_unlock(&s->lock);
	r = o->maker->ops->get_now(o, &bytes);
	pthread_mutex_lock(&s->lock);
	if (r < 0)
		return;
	if (o->bytes.kind == BYTES_NONE && !o->content) {
		set_bytes(o, &bytes);
		keep_add(s, o);
		return;
	}
	pthread_mutex_unlock(&s->lock);
	object_unclaim_memory(s, o->size);
	bytes_free(&bytes);
	pthread_mutex_lock(&s->lock);
}

int object_get(struct object *o, struct object_wait *wait)
{
	struct object_store *s = o->store;
	struct making *start = NULL;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	if (o->bytes.kind == BYTES_NONE && !wait && !o->content && o->state != OBJECT_CORRUPT &&
	    o->maker->ops->get_now && !cancel_fired(&s->stop))
		get_now(o);
	if (o->bytes.chunks && o->state == OBJECT_CORRUPT) {
		r = -EBADMSG;
	} else if (o->bytes.kind != BYTES_NONE) {
		keep_remove(s, o);
		o->pins++;
	} else if (o->state == OBJECT_CORRUPT && o->maker->ops->final &&
		   !atomic_load(&o->read_failed)) {
		r = -EBADMSG;
	} else {
		r = begin_wait(o, false, wait, &start);
	}
	pthread_mutex_unlock(&s->lock);
	if (start)
		making_submit(start);
	return r;
}

int object_get_size(struct object *o, struct object_wait *wait)
{
	struct object_store *s = o->store;
	struct making *start = NULL;
	int r = 0;

	if (object_size(o) != OBJECT_NO_SIZE)
		return 0;
	pthread_mutex_lock(&s->lock);
	if (object_size(o) == OBJECT_NO_SIZE)
		r = begin_wait(o, true, wait, &start);
	pthread_mutex_unlock(&s->lock);
	if (start)
		making_submit(start);
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

int object_get_wait(struct object *o)
{
	struct sleeper sl = {
		.wait.done = sleeper_done,
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
		if (wait->making->n_waiting == 0)
			cancel_fire(&wait->making->cancel);
	}
	pthread_mutex_unlock(&s->lock);
	return queued;
}

bool object_must_stop(const struct object *o)
{
	bool stop;

	pthread_mutex_lock(&o->store->lock);
	/* asking shows that the work goes on */
	if (o->content)
		making_progress(o->content, PROGRESS_OF_WORK);
	stop = (!o->content || cancel_fired(&o->content->cancel)) &&
	       (!o->length || cancel_fired(&o->length->cancel));
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
	keep_limit_files(s);
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

/* Drops the cache entry after a failed read check. The caller holds a pin. */
static void drop_cached(struct object *o)
{
	const struct object_options *options = &o->store->options;

	/* which leaves the entry alone when it is another file than ours */
	if (options->cache && o->state != OBJECT_UNVERIFIED)
		cache_drop(options->cache, o->sha256, o->bytes.source->fd);
}

int object_read(struct object *o, void *ret_buf, size_t n, uint64_t off, bool nowait)
{
	int r;

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

/* ---- chunked bytes ---- */

bool object_read_waits(const struct object *o)
{
	return o->bytes.chunks && chunked_has_origin(o->bytes.chunks);
}

/* All of it has another hash than the chunks led to expect. */
static void whole_failed(struct object *o)
{
	atomic_store(&o->no_chunks, true);
	atomic_store(&o->read_failed, true);
	chunked_fail(o->bytes.chunks);
	pthread_mutex_lock(&o->store->lock);
	o->state = OBJECT_CORRUPT;
	pthread_mutex_unlock(&o->store->lock);
}

/* What is wrong with an object all of which was hashed, or NULL. */
static const char *whole_fault(struct object *o, const struct ingested *in)
{
	const struct chunked_bytes b = { o->bytes.source, o->bytes.off, o->bytes.tags,
					 o->store->tagger };

	if (memcmp(o->sha256, in->sha256, SHA256_SIZE) != 0)
		return "does not have the sha256 that MANIFEST says, whatever " CHUNKS_PATH
		       " says of its chunks; it can no longer be read: get the carton again";
	if (chunked_complete(o->bytes.chunks, &b, in->tags) < 0)
		return "had other bytes when they were read: it changed on disk, or " CHUNKS_PATH
		       " is wrong; close and open it again";
	return NULL;
}

static void object_hashed(void *ctx, int result, struct ingested *in)
{
	struct object *o = ctx;
	const char *fault = NULL;

	if (result == 0) {
		fault = whole_fault(o, in);
		if (!fault) {
			chunked_hashed(o->bytes.chunks);
			seal_keep(o, in->size, in->tags);
		}
		free(in->tags);
	} else if (result == -EBADMSG) {
		fault = "the carton has been cut off since it was opened; it can no longer be read";
	}
	if (fault) {
		carton_log(CARTON_LOG_ERROR, object_name(o), "%s", fault);
		whole_failed(o);
	} else if (result == 0) {
		pthread_mutex_lock(&o->store->lock);
		o->state = OBJECT_VERIFIED;
		pthread_mutex_unlock(&o->store->lock);
	} else if (result != -ECANCELED) {
		/* whoever opens it once it was closed has to wait for all of it */
		carton_log(CARTON_LOG_ERROR, object_name(o), "cannot be hashed: %s",
			   strerror(-result));
		atomic_store(&o->no_chunks, true);
		atomic_store(&o->read_failed, true);
	}
	object_put(o);
}

int object_whole(struct object *o, const struct bytes *at, struct whole **ret)
{
	const struct whole_options options = {
		.source = at->source,
		.off = at->off,
		.size = o->size,
		.tagger = o->store->tagger,
		.events = o->store->options.events,
		.cancel = &o->store->stop,
		.reads = &o->store->reads,
		.hashed = &o->store->ingested,
		.done = object_hashed,
		.ctx = o,
	};

	return whole_new(&options, ret);
}

/* Hashes all of an object that is pinned, with a pin of its own. 0 or -ENOMEM. */
static int hash_whole(struct object *o)
{
	struct whole *w;
	int r = object_whole(o, &o->bytes, &w);

	if (r < 0)
		return r;
	pthread_mutex_lock(&o->store->lock);
	o->pins++;
	pthread_mutex_unlock(&o->store->lock);
	whole_start(w);
	return 0;
}

void object_complete(struct object *o)
{
	if (hash_whole(o) == 0)
		return;
	/* whoever opens it once it was closed has to wait for all of it */
	atomic_store(&o->no_chunks, true);
	atomic_store(&o->read_failed, true);
}
