/* SPDX-License-Identifier: Apache-2.0 */
#include "content/sparse.h"

#include <stdlib.h>

#include "base/util.h"
#include "content/chunk_fill.h"
#include "content/internal.h"

/* bytes of one request that a reader waits for */
#define MAX_WAITED (8 * MIB)
/* requests ahead of readers, of one object */
#define MAX_AHEAD 16

/* ---- which chunks ---- */

static struct fill *find_fill(const struct sparse *p, uint64_t i)
{
	struct fill *f = p->fills;

	while (f && (i < f->first || i >= f->end))
		f = f->next;
	return f;
}

/* May chunk `i` be fetched with others? Claims it. Lock held. */
static bool claim_hole(const struct sparse *p, uint64_t i)
{
	if (find_fill(p, i) || !sparse_take(p, i))
		return false;
	/* looked at once no other process fetches it */
	if (chunked_is_hole(p->chunks, &p->bytes, i) && chunked_claim(p->chunks, i))
		return true;
	sparse_give(p, i);
	return false;
}

/*
 * Gives the fill chunk `i`, which is claimed, and claims for it the holes that follow, up to `end`;
 * none if another process fetches chunk `i`. Lock held.
 */
static void choose(struct fill *f, uint64_t i, uint64_t end)
{
	const struct sparse *p = f->sparse;

	end = sparse_take(p, i) ? MIN(end, chunks_count(p->file)) : i;
	f->first = i;
	do
		f->end = ++i;
	while (i < end && claim_hole(p, i));
}

/*
 * Why chunk `i` could not be fetched just now, once: the kernel repeats a page at once whose
 * readahead failed, which gets the same answer, without another wait. Lock held.
 */
static int repeated(struct sparse *p, uint64_t i)
{
	unsigned char bit = (unsigned char)(1 << (i % 8));
	bool failed = p->failed[i / 8] & bit;

	p->failed[i / 8] &= (unsigned char)~bit;
	return failed && now_ms() - p->failed_ms < KERNEL_REPEATS_MS ? p->error : 0;
}

/* ---- readers ---- */

/* A new one for chunk `i`, which is claimed, up to `end`. NULL: no memory. Lock held. */
static struct fill *add_fill(struct sparse *p, uint64_t i, uint64_t end)
{
	struct object *o = sparse_object(p);
	struct fill *f = fill_new(o, FILL_CHUNKS);

	if (!f)
		return NULL;
	f->ops = &chunk_fill_ops;
	f->sparse = p;
	f->began_us = now_us();
	choose(f, i, end);
	f->settled = f->first;
	f->next = p->fills;
	if (f->next)
		f->next->link = &f->next;
	f->link = &p->fills;
	p->fills = f;
	p->n_fills++;
	pthread_mutex_lock(&o->store->lock);
	o->pins++;
	pthread_mutex_unlock(&o->store->lock);
	return f;
}

/* The fills that are to begin once the locks are released. */
struct begun {
	size_t n;
	struct fill *fills[MAX_AHEAD + 1];
};

static void begin_all(const struct begun *b)
{
	for (size_t k = 0; k < b->n; k++)
		chunk_fill_begin(b->fills[k]);
}

/* Adds fills for what a stream will probably read next. Nobody waits for them yet. Lock held. */
static void read_ahead(struct sparse *p, struct ahead_stream *s, struct begun *b)
{
	uint64_t first, last, n = chunks_count(p->file);

	while (p->n_fills < MAX_AHEAD && ahead_next(&p->ahead, s, &first, &last) && first < n) {
		struct fill *f;

		s->asked = first + 1;
		if (!claim_hole(p, first))
			continue;
		f = add_fill(p, first, last);
		if (!f) {
			sparse_unclaim(p, first);
			return;
		}
		f->ahead = true;
		s->asked = f->end;
		b->fills[b->n++] = f;
	}
}

/* A read() of a chunk_filler. */
static void was_read(void *ctx, uint64_t i, uint64_t end)
{
	struct sparse *p = ctx;
	struct object_store *s = sparse_object(p)->store;
	struct begun begun = { 0 };

	if (!s->options.fetch || cancel_fired(&s->stop))
		return;
	/* another read of the stream sees to it */
	if (pthread_mutex_trylock(&p->lock) != 0)
		return;
	read_ahead(p, ahead_read(&p->ahead, i, end), &begun);
	pthread_mutex_unlock(&p->lock);
	begin_all(&begun);
}

/* The first chunk of [i, end) that is not there; it is being fetched, or is claimed. Lock held. */
static uint64_t find_missing(const struct sparse *p, uint64_t i, uint64_t end)
{
	while (i < end && (chunked_is_verified(p->chunks, i) ||
			   (!find_fill(p, i) && !chunked_claim(p->chunks, i))))
		i++;
	return i;
}

/*
 * A new fill of chunk `i`, which is claimed, for the reader of a stream up to `end`, and for what
 * it will probably read next, as one request. NULL: no memory. Lock held.
 */
static struct fill *fill_for(struct sparse *p, uint64_t i, uint64_t end, struct ahead_stream *s)
{
	uint64_t first, last;
	struct fill *f;

	end = MIN(end, i + MAX(MAX_WAITED / p->file->chunk_size, 1));
	if (s->asked <= end && ahead_next(&p->ahead, s, &first, &last))
		end = MAX(end, last);
	f = add_fill(p, i, end);
	if (f)
		s->asked = MAX(s->asked, f->end);
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
	struct begun begun = { 0 };
	struct ahead_stream *s;
	uint64_t missing;
	struct fill *f;
	int r = 0;

	pthread_mutex_lock(&p->lock);
	s = ahead_read(&p->ahead, i, end);
	missing = find_missing(p, i, end);
	f = missing < end ? find_fill(p, missing) : NULL;
	if (missing < end && !f) {
		r = repeated(p, missing);
		f = r < 0 ? NULL : fill_for(p, missing, end, s);
		if (f)
			begun.fills[begun.n++] = f;
		else
			sparse_unclaim(p, missing);
	}
	if (f) {
		wait_for(f, wait);
		r = -EINPROGRESS;
		if (sparse_object(p)->store->options.fetch)
			read_ahead(p, s, &begun);
	} else if (missing < end && r == 0) {
		r = -ENOMEM;
	}
	pthread_mutex_unlock(&p->lock);
	begin_all(&begun);
	return r;
}

/* ---- the sparse file ---- */

static void complete(void *ctx)
{
	object_complete(sparse_object(ctx));
}

static void publish(void *ctx)
{
	const struct sparse *p = ctx;

	file_publish(p->dest, sparse_object(p)->sha256);
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

static const struct chunk_filler filler = { fetch, was_read, complete, publish, sparse_free };

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
	pthread_mutex_init(&p->lock, NULL);
	p->failed = calloc(chunks_count(file) / 8 + 1, 1);
	r = p->failed ? plan_find_urls(plan) : -ENOMEM;
	if (r == 0)
		r = fill_open_chunks(o, file, &p->dest);
	if (r == 0)
		r = file_source(p->dest, &bytes.source);
	if (r == 0)
		r = bytes_use_chunks(&bytes, &o->store->index, file, o->name);
	if (r < 0) {
		sparse_free(p);
		bytes_finish(&bytes);
		return r;
	}
	p->chunks = bytes.chunks;
	ahead_init(&p->ahead, file->chunk_size);
	p->bytes = (struct chunked_bytes){ bytes.source, 0, bytes.tags, o->store->tagger };
	chunked_set_filler(bytes.chunks, &filler, p);
	*ret = bytes;
	return 0;
}
