/* SPDX-License-Identifier: Apache-2.0 */
#include "content/fill.h"

#include <stdlib.h>

#include "archive/container.h"
#include "base/failure.h"
#include "base/ingest.h"
#include "base/pace.h"
#include "base/util.h"
#include "carton.h"
#include "http/http.h"
#include "content/internal.h"

#define DROP_STEP (16 * MIB)

static void run_fill(struct job *job);

struct fill *fill_new(struct object *o, enum fill_what what)
{
	struct fill *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	waits_init(&f->waits, o);
	f->object = o;
	f->what = what;
	/* a size that only all bytes tell is not waited for longer than others */
	f->waits.fixed = what == FILL_SIZE;
	f->try_seal = what == FILL_ALL && o->ops->by_seal && o->store->options.seals == SEALS_USE &&
		      o->size >= MIN_SEALED;
	f->job.run = run_fill;
	return f;
}

static void fill_free(struct fill *f)
{
	waits_finish(&f->waits);
	plan_unref(f->plan);
	free(f);
}

/* ---- running ---- */

void fill_submit(struct fill *f)
{
	struct object *o = f->object;

	workers_submit(o->store->options.workers, &f->job,
		       f->try_seal ? LANE_QUICK : o->ops->lane(o));
}

/*
 * The kernel repeats an open at once that failed with -ESTALE. The second one gets the same answer,
 * without another request and another line in the log.
 */
static bool stale_repeated(struct fill *f)
{
	struct object *o = f->object;
	bool repeated = f->what == FILL_ALL && o->stale_ms &&
			now_ms() - o->stale_ms < pace.repeats_ms;

	if (f->what == FILL_ALL)
		o->stale_ms = 0;
	return repeated;
}

static void finish(struct fill *f, int result);

/* True: the bytes are there without hashing, or another lane gets them. */
static bool got_by_seal(struct fill *f)
{
	const struct object *o = f->object;

	f->try_seal = false;
	f->sealed = o->ops->by_seal(f);
	if (f->sealed)
		fill_done(f, 0);
	else if (o->ops->lane(o) != LANE_QUICK)
		fill_submit(f);
	else
		return false;
	return true;
}

static void run_fill(struct job *job)
{
	struct fill *f = container_of(job, struct fill, job);
	const struct object_ops *ops = f->object->ops;

	if (cancel_fired(&f->waits.cancel))
		fill_done(f, -ECANCELED);
	else if (stale_repeated(f))
		finish(f, -ESTALE);
	else if (f->try_seal && got_by_seal(f))
		return;
	else if (f->what == FILL_SIZE)
		ops->get_size(f);
	else
		ops->get_bytes(f);
}

/* ---- the end ---- */

/* The bytes become the object's, pinned by all who wait for them. Lock held. */
static void take_bytes(struct fill *f)
{
	struct object *o = f->object;

	keep_attach(o, &f->bytes, f->size);
	o->size = f->size;
	o->copied = f->copied;
	if (f->bytes.chunks || f->sealed)
		o->state = f->bytes.chunks ? OBJECT_CHUNKED : OBJECT_SEALED;
	/* the background has one, too */
	o->pins += f->waits.n + (f->hash_job != NULL);
	o->fill_pins += f->hash_job != NULL;
	if (o->pins == 0 && f->bytes.kind != BYTES_ENTRY)
		keep_add(o->store, o);
}

/* Lock held. */
static void take_all(struct fill *f, int result)
{
	struct object *o = f->object;

	o->content = NULL;
	if (result == 0)
		take_bytes(f);
	if (result == -EBADMSG) {
		fault_keep(o);
		o->state = OBJECT_CORRUPT;
		atomic_store(&o->read_failed, false);
	}
}

/* Lock held. */
static void take_result(struct fill *f, int result)
{
	struct object *o = f->object;

	if (f->ops) {
		f->ops->take(f, result);
	} else if (f->what == FILL_ALL) {
		take_all(f, result);
	} else {
		o->length = NULL;
		if (result == 0)
			atomic_store(f->bytes.kind ? &o->size : &o->reported_size, f->size);
	}
}

/* Only the size was wanted, but the bytes had to be made for it; or nobody may have them. */
static void drop_bytes(struct fill *f)
{
	if (f->bytes.kind == BYTES_MEMORY)
		object_give_memory(f->object->store, f->size);
	bytes_finish(&f->bytes);
}

static void report(struct fill *f, int result)
{
	struct object *o = f->object;
	char *why;

	if (f->what == FILL_SIZE || f->quiet || result == 0 || result == -EBADMSG ||
	    result == -ECANCELED)
		return;
	/* get_start() has logged it */
	if (result == -ENETUNREACH && !o->store->options.fetch)
		return;
	if (result == -ESTALE)
		o->stale_ms = now_ms();
	why = failure_copy();
	carton_log(CARTON_LOG_ERROR, object_name(o), "cannot be read now: %s", strerror(-result));
	/* keeps the earlier text, such as an answer of the server: it says more than strerror() */
	failure_set(why);
	free(why);
}

static void lock(struct fill *f)
{
	if (f->ops)
		f->ops->lock(f);
	pthread_mutex_lock(&f->object->store->lock);
}

static void unlock(struct fill *f)
{
	pthread_mutex_unlock(&f->object->store->lock);
	if (f->ops)
		f->ops->unlock(f);
}

static void finish(struct fill *f, int result)
{
	struct object *o = f->object;
	struct hash_job *hash_job = f->hash_job;
	struct object_wait *waits;
	const struct fill_ops *ops = f->ops;
	bool withdrawn;

	fill_end_observer(f, result < 0 || f->observed ? result : -EALREADY);
	lock(f);
	/* what it is made of was found damaged meanwhile */
	withdrawn = !ops && result == 0 && object_is_withdrawn(o);
	if (withdrawn)
		result = -EBADMSG;
	if (waits_renew(&f->waits, result)) {
		unlock(f);
		if (ops)
			ops->begin(f);
		else
			fill_submit(f);
		return;
	}
	take_result(f, result);
	waits = waits_take(&f->waits);
	/* it releases the lock: a wait that was cancelled then would leave its pin */
	if (!ops)
		keep_limit(o->store);
	unlock(f);
	/* nobody minds what was asked for ahead */
	if (ops && waits && result < 0 && result != -ECANCELED)
		ops->report(f, result);
	if ((f->what == FILL_SIZE && result == 0) || withdrawn)
		drop_bytes(f);
	fill_free(f);
	waits_end(waits, result == -ECANCELED ? -ENOTCONN : result);
	if (hash_job)
		hash_job_start(hash_job);
	if (ops)
		ops->ended(o, result);
}

/* What was hashed is kept for later mounts. */
static void keep_result(struct fill *f)
{
	struct object *o = f->object;

	/* the cache has no copy of what is in a file of the caller's */
	if (!f->sealed && !f->bytes.chunks && !f->given)
		seal_keep(o, f->size, f->bytes.tags);
	bytes_count(&f->bytes, f->size ? f->size : object_size(o), o->store->options.budget);
}

void fill_done(struct fill *f, int result)
{
	if (result == -ESHUTDOWN)
		result = -ECANCELED;
	if (!f->ops) {
		/* descriptors are used up: those of copies that nobody reads can be closed */
		if ((result == -EMFILE || result == -ENFILE) && !f->retried &&
		    keep_drop_idle(f->object->store)) {
			f->retried = true;
			fill_submit(f);
			return;
		}
		if (result == 0)
			keep_result(f);
		report(f, result);
	}
	finish(f, result);
}

/* ---- what is read to be verified ---- */

void fill_count(void *fill, uint64_t bytes)
{
	waits_hashed(&((struct fill *)fill)->waits, bytes);
}

void fill_observe(void *fill, uint64_t off, const void *data, size_t n)
{
	struct fill *f = fill;

	f->observer->bytes(f->observer, off, data, n);
	if (off % DROP_STEP == 0)
		fill_drop_pages(f, off);
}

int fill_given_fd(const struct fill *f)
{
	return f->observer ? f->observer->fd : -1;
}

void fill_drop_pages(struct fill *f, uint64_t end)
{
	uint64_t from = end - MIN(end, 2 * DROP_STEP);

	/* the steps overlap, since a large folio goes only as a whole; 0 would mean all */
	if (f->behind && end > 0)
		source_drop_pages(f->behind, f->behind_off + from, end - from);
}

void fill_end_observer(struct fill *f, int result)
{
	if (f->observer)
		f->observer->end(f->observer, result);
	f->observer = NULL;
}

void fill_log_wrong(const struct fill *f, const uint8_t found[SHA256_SIZE], const char *url)
{
	char want_hex[2 * SHA256_SIZE + 1], found_hex[2 * SHA256_SIZE + 1], shown[256];
	const char *pin = f->object->store->options.pin;

	hex_encode(f->object->sha256, SHA256_SIZE, want_hex);
	hex_encode(found, SHA256_SIZE, found_hex);
	if (url)
		carton_log(CARTON_LOG_ERROR, http_url_redact(url, shown, sizeof(shown)),
			   "has other bytes than %s says: sha256 %s instead of %s", pin, found_hex,
			   want_hex);
	else
		carton_log(CARTON_LOG_ERROR, object_name(f->object),
			   "sha256 mismatch: %s says %s, the bytes have %s; get it again", pin,
			   want_hex, found_hex);
}

int fill_check(const struct fill *f, const uint8_t found[SHA256_SIZE])
{
	const struct object *o = f->object;

	if (!o->store->options.verify || memcmp(o->sha256, found, SHA256_SIZE) == 0)
		return 0;
	fill_log_wrong(f, found, NULL);
	if (f->plan->entry)
		container_damaged(o->store->options.container, f->plan->entry);
	return -EBADMSG;
}

struct ingest fill_ingest(struct fill *f)
{
	const struct object_store *s = f->object->store;

	return (struct ingest){
		.size = f->object->size,
		.tagger = s->tagger,
		.hash = s->options.verify,
		.cancel = &f->waits.cancel,
		.progress = fill_count,
		.ctx = f,
		.observe = f->observer ? fill_observe : NULL,
	};
}

int fill_verify(struct fill *f, struct stream *in, struct ingested *ret)
{
	struct ingest how = fill_ingest(f);
	struct ingested done = { 0 };
	int r;

	how.in = in;
	r = ingest_run(&how, &done);
	stream_close(in);
	if (r == 0)
		r = fill_check(f, done.sha256);
	f->observed = r == 0;
	if (r < 0) {
		/* another place may have other bytes */
		fill_end_observer(f, r);
		free(done.tags);
		return r;
	}
	*ret = done;
	return 0;
}

/* ---- beginning ---- */

int fill_join(struct object *o, enum fill_what what, struct object_wait *wait,
	      struct fill **ret_start)
{
	struct fill **at = what == FILL_SIZE ? &o->length : &o->content;

	if (cancel_fired(&o->store->stop))
		return -ENOTCONN;
	if (!wait)
		return -EAGAIN;
	if (!*at) {
		*at = fill_new(o, what);
		if (!*at)
			return -ENOMEM;
		*ret_start = *at;
		(*at)->observer = wait->observer;
		wait->observer = NULL;
	}
	waits_add(&(*at)->waits, wait);
	return -EINPROGRESS;
}
