/* SPDX-License-Identifier: Apache-2.0 */
#include "content/sparse.h"

#include <stdlib.h>

#include "base/pace.h"
#include "base/util.h"
#include "content/chunk_ahead.h"
#include "content/chunk_fill.h"
#include "content/internal.h"

/* bytes of a stream whose reads come in any order */
#define OVERTAKES (512 * KIB)

/* ---- readers ---- */

/*
 * Why chunk `i` could not be fetched just now, once: the kernel repeats a page at once whose
 * readahead failed, which gets the same answer, without another wait. Lock held.
 */
static int repeated(struct sparse *p, uint64_t i)
{
	unsigned char bit = (unsigned char)(1 << (i % 8));
	struct object_store *s = sparse_object(p)->store;
	int r;

	pthread_mutex_lock(&s->lock);
	r = (p->failed[i / 8] & bit) && now_ms() - p->failed_ms < pace.repeats_ms ? p->error : 0;
	p->failed[i / 8] &= (unsigned char)~bit;
	pthread_mutex_unlock(&s->lock);
	return r;
}

/*
 * Somebody reads [i, end): the stream. One that begins with an object goes on as fast as that which
 * has read the one before. Lock held.
 */
static struct ahead_stream *stream_of(struct sparse *p, uint64_t i, uint64_t end)
{
	struct object *o = sparse_object(p);
	struct ahead_stream *s = ahead_read(&p->ahead, i, end);

	if (i == 0)
		s->run = MAX(s->run, atomic_load(&o->in_order) / p->ahead.unit);
	atomic_store(&o->in_order, s->run * p->ahead.unit);
	return s;
}

/* A read() of a chunk_filler. */
static void was_read(void *ctx, uint64_t i, uint64_t end)
{
	struct sparse *p = ctx;
	const struct object *o = sparse_object(p);
	struct chunk_begun begun = { 0 };

	if (!o->store->options.fetch || cancel_fired(&o->store->stop) ||
	    (chunked_is_complete(p->chunks) && !atomic_load(&o->next)))
		return;
	/* another read of the stream sees to it */
	if (pthread_mutex_trylock(&p->lock) != 0)
		return;
	chunk_ahead_read(p, stream_of(p, i, end), &begun);
	pthread_mutex_unlock(&p->lock);
	chunk_ahead_begin(o, &begun);
}

/* The first chunk of [i, end) that is not there; it is being fetched, or is claimed. Lock held. */
static uint64_t find_missing(const struct sparse *p, uint64_t i, uint64_t end)
{
	while (i < end && (chunked_is_verified(p->chunks, i) ||
			   (!choice_find(p, i) && !chunked_claim(p->chunks, i))))
		i++;
	return i;
}

/*
 * Reads of a stream come in any order, also the first ones of an object: claims what chunk `i` has
 * overtaken. Returns the first chunk of it, or `i`. Lock held.
 */
static uint64_t claim_overtaken(struct sparse *p, uint64_t i, bool in_order)
{
	uint64_t first = i, most = OVERTAKES / p->file->chunk_size;

	if (in_order || (i < most && !p->fills && !p->answered))
		while (first > 0 && i - first < most && choice_claim(p, first - 1))
			first--;
	return first;
}

/*
 * A new fill of chunk `i`, which is claimed, for the reader of a stream up to `end`, and for what
 * it will probably read next, as one request. NULL: no memory. Lock held.
 */
static struct fill *fill_for(struct sparse *p, uint64_t i, uint64_t end, struct ahead_stream *s)
{
	uint64_t first = i;
	struct ahead_part part;
	struct fill *f;

	/* with a chunk that another process claims, or has written, no other is requested */
	if (sparse_take(p, i) && chunked_is_hole(p->chunks, i))
		first = claim_overtaken(p, i, s->run > end - i);
	if (s->asked <= end && ahead_next(&p->ahead, s, 0, chunks_count(p->file), &part))
		end = MAX(end, part.end);
	f = chunk_ahead_add(p, first, i, end);
	for (; !f && first < i; first++)
		sparse_unclaim(p, first);
	if (!f)
		return NULL;
	s->asked = MAX(s->asked, f->end);
	if (choice_may_begin(f))
		choice_release(f);
	return f;
}

/*
 * A fill that is held and that chunk `i`, which is claimed, continues gets it, and those behind it
 * up to `end`. Lock held.
 */
static struct fill *join_held(struct sparse *p, uint64_t i, uint64_t end, struct ahead_stream *s)
{
	struct fill *f = p->fills;

	while (f && (!f->held || f->end != i || choice_is_full(f)))
		f = f->next;
	/* what another process fetches is waited for alone; what it has left is looked at first */
	if (f &&
	    (!sparse_take(p, f->first) || !sparse_take(p, i) || !chunked_is_hole(p->chunks, i)))
		return NULL;
	if (f) {
		choice_make(f, f->first, i, end);
		s->asked = MAX(s->asked, f->end);
	}
	return f;
}

/* Adds a waiter to a fill. Lock held. */
static void wait_for(struct fill *f, struct object_wait *wait)
{
	pthread_mutex_lock(&f->object->store->lock);
	waits_add(&f->waits, wait);
	pthread_mutex_unlock(&f->object->store->lock);
}

/* A fetch() of a chunk_filler. */
static int fetch(void *ctx, uint64_t i, uint64_t end, struct object_wait *wait)
{
	struct sparse *p = ctx;
	const struct object *o = sparse_object(p);
	struct ahead_stream *s;
	struct chunk_begun begun = { 0 };
	uint64_t missing;
	struct fill *f;
	int r = 0;

	pthread_mutex_lock(&p->lock);
	s = stream_of(p, i, end);
	missing = find_missing(p, i, end);
	f = missing < end ? choice_find(p, missing) : NULL;
	if (missing < end)
		r = repeated(p, missing);
	/* nobody has asked for what is behind that yet */
	if (f && f->end < end)
		s->asked = MIN(s->asked, f->end);
	if (missing < end && !f && r == 0) {
		f = join_held(p, missing, end, s);
		if (!f)
			f = fill_for(p, missing, end, s);
		if (f && !f->held)
			begun.fills[begun.n++] = f;
	} else if (r < 0) {
		f = NULL;
	}
	if (missing < end && !f && !choice_find(p, missing))
		sparse_unclaim(p, missing);
	if (f) {
		wait->first = missing;
		wait->end = end;
		wait_for(f, wait);
		r = -EINPROGRESS;
		chunk_ahead_read(p, s, &begun);
	} else if (missing < end && r == 0) {
		r = -ENOMEM;
	}
	pthread_mutex_unlock(&p->lock);
	chunk_ahead_begin(o, &begun);
	return r;
}

/* An unpinned() of a chunk_filler. */
static void unpinned(void *ctx)
{
	struct sparse *p = ctx;
	struct object_store *s = sparse_object(p)->store;

	pthread_mutex_lock(&p->lock);
	ahead_leave(&p->ahead);
	pthread_mutex_lock(&s->lock);
	for (struct fill *f = p->fills; f; f = f->next)
		if (f->waits.n == 0 && !f->keep)
			cancel_fire(&f->waits.cancel);
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_unlock(&p->lock);
}

/* ---- the sparse file ---- */

static void complete(void *ctx)
{
	object_start_hash(sparse_object(ctx));
}

static void publish(void *ctx)
{
	const struct sparse *p = ctx;

	file_publish(p->dest, sparse_object(p)->sha256);
	name_keep(sparse_object(p));
}

static void sparse_free(void *ctx)
{
	struct sparse *p = ctx;

	file_abort(p->dest, true);
	pthread_mutex_destroy(&p->lock);
	plan_unref(p->plan);
	free(p->failed);
	free(p);
}

static const struct chunk_filler filler = {
	fetch, was_read, unpinned, complete, publish, sparse_free,
};

/* The server that is asked first. */
static struct server_rates *first_server(const struct plan *plan)
{
	struct fetch_place *places = plan->urls;

	if (plan->n_urls == 0 && plan_carton(plan, &places) == 0)
		return rates_of(&plan->object->store->rates, NULL);
	return rates_of(&plan->object->store->rates, places[0].url);
}

int sparse_open(struct plan *plan, const struct chunks_file *file, struct bytes *ret)
{
	struct bytes bytes = { .kind = BYTES_FILE };
	struct sparse *p = calloc(1, sizeof(*p));
	const struct object *o = plan->object;
	int r;

	if (!p)
		return -ENOMEM;
	p->plan = plan_ref(plan);
	p->file = file;
	p->go_on = chunk_ahead_go_on;
	pthread_mutex_init(&p->lock, NULL);
	p->failed = calloc(chunks_count(file) / 8 + 1, 1);
	r = p->failed ? plan_find_urls(plan) : -ENOMEM;
	if (r == 0)
		r = fill_open_chunks(o, file, &p->dest);
	if (r == 0)
		r = file_split(p->dest, file->chunk_size);
	if (r == 0)
		r = file_source(p->dest, &bytes.source);
	if (r == 0)
		r = bytes_use_chunks(&bytes, &o->store->index, file, o->store->tagger, o->name);
	if (r < 0) {
		sparse_free(p);
		bytes_finish(&bytes);
		return r;
	}
	p->chunks = bytes.chunks;
	ahead_init(&p->ahead, file->chunk_size, first_server(plan));
	p->fd = bytes.source->fd;
	chunked_set_filler(bytes.chunks, &filler, p);
	*ret = bytes;
	return 0;
}
