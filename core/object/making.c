/* SPDX-License-Identifier: Apache-2.0 */
/* An attempt to get an object's bytes, or its size: running it, its progress, its end. */
#include <stdlib.h>

#include "base/ingest.h"
#include "base/util.h"
#include "carton.h"
#include "object/internal.h"

#define STALE_REPEAT_MS 500
#define DROP_STEP (16 * MIB)

static void run_making(struct job *job);

/* An attempt nobody waits for yet; NULL: no memory. */
static struct making *making_new(struct object *o, bool size_only)
{
	struct making *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	waits_init(&m->waits, o);
	m->object = o;
	m->size_only = size_only;
	/* a size that only all bytes tell is not waited for longer than others */
	m->waits.fixed = size_only;
	m->try_seal = !size_only && o->maker->ops->by_seal &&
		      o->store->options.seals == SEALS_USE && o->size >= MIN_SEALED;
	m->job.run = run_making;
	return m;
}

static void making_free(struct making *m)
{
	waits_finish(&m->waits);
	plan_unref(m->plan);
	free(m);
}

int making_plan(struct making *m, const struct place *first, struct link *link)
{
	plan_unref(m->plan);
	m->plan = plan_new(m->object, first, link);
	return m->plan ? 0 : -ENOMEM;
}

void making_submit(struct making *m)
{
	struct object *o = m->object;

	workers_submit(o->store->options.workers, &m->job,
		       m->try_seal ? LANE_QUICK : o->maker->ops->lane(o));
}

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

	if (cancel_fired(&m->waits.cancel))
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

/* The bytes become the object's, pinned by all who wait for them. Lock held. */
static void take_bytes(struct making *m)
{
	struct object *o = m->object;
	struct object_store *s = o->store;

	keep_attach(o, &m->bytes);
	o->size = m->size;
	o->copied = m->copied;
	if (m->bytes.chunks || m->sealed)
		o->state = m->bytes.chunks ? OBJECT_CHUNKED : OBJECT_SEALED;
	/* the background has one, too */
	o->pins += m->waits.n + (m->hash_job != NULL);
	if (o->pins == 0 && m->bytes.kind != BYTES_PLACE)
		keep_add(s, o);
}

/* Lock held. */
static void take_result(struct making *m, int result)
{
	struct object *o = m->object;

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

/* Only the size was wanted, but the bytes had to be made for it; or nobody may have them. */
static void drop_bytes(struct making *m)
{
	if (m->bytes.kind == BYTES_MEMORY)
		object_unclaim_memory(m->object->store, m->size);
	bytes_finish(&m->bytes);
}

static void report(struct making *m, int result)
{
	struct object *o = m->object;

	if (m->size_only || result == 0 || result == -EBADMSG || result == -ECANCELED)
		return;
	/* get_start() has said so */
	if (result == -ENETUNREACH && !o->store->options.fetch)
		return;
	if (result == -ESTALE)
		o->stale_ms = now_ms();
	carton_log(CARTON_LOG_ERROR, object_name(o), "cannot be read now: %s", strerror(-result));
}

static void finish(struct making *m, int result)
{
	struct object_store *s = m->object->store;
	struct hash_job *hash_job = m->hash_job;
	struct object_wait *waits;
	bool withdrawn;

	making_end_observer(m, result < 0 || m->observed ? result : -EALREADY);
	pthread_mutex_lock(&s->lock);
	/* what it is made of was found damaged meanwhile */
	withdrawn = result == 0 && object_is_withdrawn(m->object);
	if (withdrawn)
		result = -EBADMSG;
	if (waits_renew(&m->waits, result)) {
		pthread_mutex_unlock(&s->lock);
		making_submit(m);
		return;
	}
	take_result(m, result);
	waits = waits_take(&m->waits);
	/* it releases the lock: a wait that was cancelled then would leave its pin */
	keep_limit(s);
	pthread_mutex_unlock(&s->lock);
	if ((m->size_only && result == 0) || withdrawn)
		drop_bytes(m);
	making_free(m);
	waits_end(waits, result == -ECANCELED ? -ENOTCONN : result);
	if (hash_job)
		hash_job_start(hash_job);
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
	if (result == 0 && !m->sealed && !m->bytes.chunks) {
		seal_keep(m->object, m->size, m->bytes.tags);
		/* else only its size is known */
		if (m->bytes.kind != BYTES_NONE)
			doubt_drop(m->object);
	}
	if (result == 0)
		bytes_count(&m->bytes, m->size ? m->size : object_size(m->object),
			    m->object->store->options.budget);
	report(m, result);
	finish(m, result);
}

void making_count(void *making, uint64_t bytes)
{
	waits_hashed(&((struct making *)making)->waits, bytes);
}

void making_observe(void *making, uint64_t off, const void *data, size_t n)
{
	struct making *m = making;

	m->observer->bytes(m->observer, off, data, n);
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

void making_end_observer(struct making *m, int result)
{
	if (m->observer)
		m->observer->end(m->observer, result);
	m->observer = NULL;
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

int making_verify(struct making *m, struct stream *in, struct ingested *ret)
{
	const struct object_store *s = m->object->store;
	struct ingest job = {
		.in = in,
		.size = m->object->size,
		.tagger = s->tagger,
		.hash = s->options.verify,
		.cancel = &m->waits.cancel,
		.progress = making_count,
		.ctx = m,
		.observe = m->observer ? making_observe : NULL,
	};
	struct ingested done = { 0 };
	int r = ingest_run(&job, &done);

	stream_close(in);
	if (r == 0)
		r = making_check(m, done.sha256);
	m->observed = r == 0;
	if (r < 0) {
		/* another place may have other bytes */
		making_end_observer(m, r);
		free(done.tags);
		return r;
	}
	*ret = done;
	return 0;
}

int making_join(struct object *o, bool size_only, struct object_wait *wait,
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
		(*at)->observer = wait->observer;
		wait->observer = NULL;
	}
	waits_add(&(*at)->waits, wait);
	return -EINPROGRESS;
}
