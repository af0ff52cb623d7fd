/* SPDX-License-Identifier: Apache-2.0 */
#include "object/partial.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"
#include "object/chunk_fetch.h"

/* the validator of a file of chunks, in place of an ETag: each chunk has a hash */
#define VALIDATOR "chunks"
/* readahead: at most this share of what was read in order, and at most so many bytes */
#define AHEAD_SHARE 8
#define AHEAD_MAX (8 * MIB)
/*
 * the kernel repeats a page at once whose readahead failed: it gets the same answer, without
 * another wait
 */
#define REPEAT_MS 500

struct partial {
	struct chunk_places at; /* its lock guards the rest */
	struct flight *flights;
	uint64_t next, run;    /* the chunk behind the last one asked for; how many came in order */
	unsigned char *failed; /* a bit for each chunk: it could not be fetched, */
	int64_t failed_ms;     /* at the last time then, */
	int error;	       /* and why */
};

/* Chunks that are being fetched. */
struct flight {
	struct waits waits;
	struct partial *partial;
	struct flight *next, **link; /* guarded by the partial's lock */
	struct chunk_fetch fetch;
	struct making *probe; /* it is for this one, not for readers; or NULL */
	void (*probed)(struct making *m, int result);
};

static struct object_store *store_of(const struct partial *p)
{
	return p->at.plan->object->store;
}

/* ---- which chunks ---- */

static struct flight *in_flight(const struct partial *p, uint64_t i)
{
	struct flight *f = p->flights;

	while (f && (i < f->fetch.first || i >= f->fetch.end))
		f = f->next;
	return f;
}

/*
 * Chunk `i`, and what follows and is not there: up to `end`, which somebody waits for, and more for
 * who reads in order. Claims them. Lock held.
 */
static void plan(struct flight *f, uint64_t i, uint64_t end)
{
	struct partial *p = f->partial;
	uint64_t most = AHEAD_MAX / p->at.file->chunk_size;

	p->run = i == p->next ? p->run : 0;
	end = MIN(MAX(end, i + p->run / AHEAD_SHARE), i + most);
	end = MIN(end, chunks_count(p->at.file));
	f->fetch.first = f->fetch.end = i;
	do
		f->fetch.end++;
	while (f->fetch.end < end && !in_flight(p, f->fetch.end) &&
	       chunked_is_hole(p->at.chunks, &p->at.bytes, f->fetch.end) &&
	       chunked_claim(p->at.chunks, f->fetch.end));
	p->run += f->fetch.end - i;
	p->next = f->fetch.end;
}

/* Chunks [first, end) could not be fetched. Lock held. */
static void note_failed(struct partial *p, uint64_t first, uint64_t end, int error)
{
	for (uint64_t i = first; i < end; i++)
		p->failed[i / 8] |= (unsigned char)(1 << (i % 8));
	p->failed_ms = now_ms();
	p->error = error;
}

/* Why chunk `i` could not be fetched just now; once. Lock held. */
static int repeated(struct partial *p, uint64_t i)
{
	unsigned char bit = (unsigned char)(1 << (i % 8));
	bool failed = p->failed[i / 8] & bit;

	p->failed[i / 8] &= (unsigned char)~bit;
	return failed && now_ms() - p->failed_ms < REPEAT_MS ? p->error : 0;
}

/* ---- the end ---- */

static void flight_begin(struct flight *f);

/* Is it gone, unless somebody has come to wait for it since it was cancelled? */
static bool unlink_flight(struct flight *f, int result, struct object_wait **ret_waits)
{
	struct partial *p = f->partial;
	struct object_store *s = store_of(p);
	bool gone;

	pthread_mutex_lock(&p->at.lock);
	pthread_mutex_lock(&s->lock);
	gone = !waits_renew(&f->waits, result);
	if (gone) {
		for (uint64_t i = f->fetch.first; i < f->fetch.end; i++)
			chunked_unclaim(p->at.chunks, i);
		*f->link = f->next;
		if (f->next)
			f->next->link = f->link;
		*ret_waits = waits_take(&f->waits);
		if (result < 0 && result != -ECANCELED)
			note_failed(p, f->fetch.first, f->fetch.end, result);
	}
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_unlock(&p->at.lock);
	return gone;
}

static void log_failure(const struct flight *f, int error)
{
	unsigned long long from = chunk_fetch_off(&f->fetch);
	unsigned long long to = from + chunk_fetch_bytes(&f->fetch) - 1;

	carton_log(CARTON_LOG_ERROR, object_name(f->partial->at.plan->object),
		   error == -ENETUNREACH ?
			   "bytes %llu to %llu are not in the cache, and nothing is fetched "
			   "when offline: %s" :
			   "bytes %llu to %llu cannot be fetched now: %s",
		   from, to, strerror(-error));
}

static void flight_end(struct flight *f, int result)
{
	struct partial *p = f->partial;
	struct object *o = p->at.plan->object;
	struct making *probe = f->probe;
	struct object_wait *waits = NULL;

	if (result == -ESHUTDOWN)
		result = -ECANCELED;
	if (!probe && (result == -EBADMSG || result == -EOPNOTSUPP)) {
		if (p->at.plan->link)
			object_distrust(o);
		/*
		 * the servers' bytes are wrong, not those that are here: they may be asked for
		 * again
		 */
		result = -EIO;
	}
	if (!unlink_flight(f, result, &waits)) {
		flight_begin(f);
		return;
	}
	/* over the budget: chunked_read() has said so */
	if (!probe && result < 0 && result != -ECANCELED && result != -EFBIG)
		log_failure(f, result);
	waits_finish(&f->waits);
	waits_end(waits, result == -ECANCELED ? -ENOTCONN : result);
	if (probe)
		f->probed(probe, result);
	free(f);
	if (!probe)
		object_put(o);
}

/* ---- beginning ---- */

static void flight_begin(struct flight *f)
{
	const struct partial *p = f->partial;
	int r = dest_claim(p->at.dest, chunk_fetch_bytes(&f->fetch), keep_drop_idle, store_of(p));

	if (r == 0)
		r = chunk_fetch_start(&f->fetch);
	if (r < 0)
		flight_end(f, r);
}

static void fetched(struct chunk_fetch *fetch, int result)
{
	flight_end(container_of(fetch, struct flight, fetch), result);
}

/*
 * All of it is there, and is hashed next; while it is probed, once the object has these bytes. 0 or
 * -ENOMEM.
 */
static int all_there(struct chunk_fetch *fetch)
{
	const struct flight *f = container_of(fetch, struct flight, fetch);
	const struct chunk_places *at = f->fetch.places;

	if (f->probe)
		return object_new_hash_job(at->plan->object, &f->probe->bytes, at->file->size,
					   &f->probe->hash_job);
	object_complete(at->plan->object);
	return 0;
}

static struct flight *flight_new(struct partial *p)
{
	struct flight *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->partial = p;
	waits_init(&f->waits, p->at.plan->object);
	f->fetch = (struct chunk_fetch){
		.places = &p->at,
		.waits = &f->waits,
		.complete = all_there,
		.done = fetched,
	};
	return f;
}

/* In the partial's list. Lock held. */
static void link_flight(struct flight *f)
{
	struct partial *p = f->partial;

	f->next = p->flights;
	if (f->next)
		f->next->link = &f->next;
	f->link = &p->flights;
	p->flights = f;
}

/* A new one for chunk `i`; or the one that has it; NULL: no memory. Lock held. */
static struct flight *flight_for(struct partial *p, uint64_t i, uint64_t end, bool *ret_new)
{
	struct flight *f = in_flight(p, i);

	*ret_new = !f;
	if (f)
		return f;
	f = flight_new(p);
	if (!f)
		return NULL;
	plan(f, i, end);
	link_flight(f);
	return f;
}

/* A fetch() of a chunk_origin. */
static int fetch(void *ctx, uint64_t i, uint64_t end, struct object_wait *wait)
{
	struct partial *p = ctx;
	struct object_store *s = store_of(p);
	struct flight *f = NULL;
	bool new = false;
	int r = 0;

	pthread_mutex_lock(&p->at.lock);
	while (i < end && (chunked_is_verified(p->at.chunks, i) ||
			   (!in_flight(p, i) && !chunked_claim(p->at.chunks, i))))
		i++;
	if (i < end)
		r = in_flight(p, i) ? 0 : repeated(p, i);
	if (i < end && r == 0) {
		f = flight_for(p, i, end, &new);
		r = f ? -EINPROGRESS : -ENOMEM;
	}
	if (i < end && r != -EINPROGRESS)
		chunked_unclaim(p->at.chunks, i);
	pthread_mutex_lock(&s->lock);
	if (f) {
		p->at.plan->object->pins += new;
		waits_add(&f->waits, wait);
	}
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_unlock(&p->at.lock);
	if (new &&f)
		flight_begin(f);
	return r;
}

/* ---- the partial ---- */

static void complete(void *ctx)
{
	object_complete(((struct partial *)ctx)->at.plan->object);
}

static void publish(void *ctx)
{
	const struct partial *p = ctx;

	dest_publish(p->at.dest, p->at.plan->object->sha256);
}

static void partial_free(void *ctx)
{
	struct partial *p = ctx;

	dest_abort(p->at.dest, true);
	pthread_mutex_destroy(&p->at.lock);
	plan_unref(p->at.plan);
	free(p->failed);
	free(p);
}

static const struct chunk_origin origin = { fetch, complete, publish, partial_free };

/*
 * Opens the file that the chunks go to. It is a partial of the cache under a name that is no sha256
 * of content, so nobody finds it as an object; one process at a time fills it, and the next mount
 * goes on with what is there.
 */
static int open_file(struct partial *p)
{
	const struct object *o = p->at.plan->object;
	uint8_t name[sizeof(VALIDATOR) + SHA256_SIZE], key[SHA256_SIZE];
	/* its length says nothing of how much of it will be fetched */
	struct room room = { .cache = o->store->options.cache, .key = key, .size = UINT64_MAX };
	struct dest *d;
	int r;

	memcpy(name, VALIDATOR, sizeof(VALIDATOR));
	memcpy(name + sizeof(VALIDATOR), o->sha256, SHA256_SIZE);
	r = sha256_mem(name, sizeof(name), key);
	if (r < 0)
		return r;
	do {
		r = room_open(&room, &d);
		if (r < 0)
			continue;
		r = dest_sparse(d, p->at.file->size, VALIDATOR);
		if (r == 0)
			p->at.dest = d;
		else
			dest_abort(d, true);
	} while (r < 0 && r != -ENOMEM && room_next(&room, r, 0));
	return r;
}

int partial_open(struct plan *plan, const struct chunks_file *file, struct bytes *ret)
{
	struct bytes bytes = { .kind = BYTES_FILE };
	struct partial *p = calloc(1, sizeof(*p));
	const struct object *o = plan->object;
	int r;

	if (!p)
		return -ENOMEM;
	p->at = (struct chunk_places){ .plan = plan_ref(plan), .file = file };
	pthread_mutex_init(&p->at.lock, NULL);
	p->failed = calloc(chunks_count(p->at.file) / 8 + 1, 1);
	r = p->failed ? plan_find_urls(plan) : -ENOMEM;
	if (r == 0)
		r = open_file(p);
	if (r == 0)
		r = dest_source(p->at.dest, &bytes.source);
	if (r == 0)
		r = bytes_use_chunks(&bytes, &o->store->index, p->at.file, o->name);
	if (r < 0) {
		partial_free(p);
		bytes_finish(&bytes);
		return r;
	}
	p->at.chunks = bytes.chunks;
	p->at.bytes = (struct chunked_bytes){ bytes.source, 0, bytes.tags, o->store->tagger };
	chunked_set_origin(bytes.chunks, &origin, p);
	*ret = bytes;
	return 0;
}

void partial_probe(struct making *m, void (*done)(struct making *m, int result))
{
	struct partial *p = chunked_origin(m->bytes.chunks);
	struct flight *f;

	if (!store_of(p)->options.fetch || lseek(p->at.bytes.source->fd, 0, SEEK_DATA) >= 0) {
		done(m, 0);
		return;
	}
	f = flight_new(p);
	if (!f) {
		done(m, -ENOMEM);
		return;
	}
	chunked_claim(p->at.chunks, 0);
	f->fetch.end = 1;
	f->probe = m;
	f->probed = done;
	f->fetch.waits = &m->waits;
	pthread_mutex_lock(&p->at.lock);
	link_flight(f);
	pthread_mutex_unlock(&p->at.lock);
	flight_begin(f);
}
