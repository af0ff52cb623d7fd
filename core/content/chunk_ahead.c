/* SPDX-License-Identifier: Apache-2.0 */
#include "content/chunk_ahead.h"

#include "base/util.h"
#include "content/chunk_fill.h"
#include "content/internal.h"

/* objects that a window is followed to, or back from: files of the same content can be a ring */
#define MAX_OBJECTS 16

struct fill *chunk_ahead_add(struct sparse *p, uint64_t first, uint64_t i, uint64_t end)
{
	struct object *o = sparse_object(p);
	struct fill *f = fill_new(o, FILL_CHUNKS);

	if (!f)
		return NULL;
	f->ops = &chunk_fill_ops;
	f->waits.expired = chunk_fill_expired;
	f->sparse = p;
	choice_make(f, first, i, end);
	f->held = true;
	f->next = p->fills;
	if (f->next)
		f->next->link = &f->next;
	f->link = &p->fills;
	p->fills = f;
	object_pin_for_fill(o);
	return f;
}

/*
 * Adds fills of the chunks that a stream will probably read next. They have no waiter yet. With
 * `keep`, these fills go on even if no reader has the object open. Lock held.
 */
static void read_ahead(struct sparse *p, struct ahead_stream *s, bool keep, struct chunk_begun *b)
{
	uint64_t n = chunks_count(p->file);
	const struct fetch_options *fetch = sparse_object(p)->store->options.fetch;
	unsigned most = fetch ? MIN(fetch->connections, CHUNK_MAX_AHEAD) : 0;
	struct ahead_part part;

	/* there is no room for it, as far as is known; or the free connection is a reader's */
	if (atomic_load(&p->full) || choice_has_held(p))
		return;
	/* those of other objects may end meanwhile */
	while (b->n < CHUNK_MAX_AHEAD && !choice_is_early(p) && p->ahead.server->busy < most &&
	       ahead_next(&p->ahead, s, p->ahead.server->busy, n, &part)) {
		bool far = part.first > s->asked;
		struct fill *f;

		/* the first request is of the first chunk: what all need is in front of that */
		if (far && !p->answered)
			return;
		/* where the far end is there already, none is looked for behind it */
		*(far ? &s->far : &s->asked) = far ? n : part.first + 1;
		if (!choice_claim(p, part.first))
			continue;
		f = chunk_ahead_add(p, part.first, part.first, part.end);
		if (!f) {
			sparse_unclaim(p, part.first);
			return;
		}
		f->ahead = true;
		f->keep = keep;
		*(far ? &s->far : &s->asked) = f->end;
		choice_release(f);
		b->fills[b->n++] = f;
	}
}

void chunk_ahead_read(struct sparse *p, struct ahead_stream *s, struct chunk_begun *b)
{
	uint64_t n = chunks_count(p->file), beyond;

	p->ahead.more = atomic_load(&sparse_object(p)->next);
	/* skips the chunks that were requested at the far end, once the stream has come there */
	while (s->asked < s->far &&
	       (chunked_is_verified(p->chunks, s->asked) || choice_find(p, s->asked)))
		s->asked++;
	if (chunked_is_complete(p->chunks))
		s->asked = n;
	else
		read_ahead(p, s, false, b);
	if (!atomic_load(&sparse_object(p)->next) || choice_has_held(p))
		return;
	beyond = ahead_beyond(&p->ahead, s, n);
	/* of several windows, the one that reaches furthest goes on */
	if (beyond > b->beyond) {
		b->beyond = beyond;
		b->unit = p->ahead.unit;
		b->stream = *s;
	}
}

static void begin_fills(const struct chunk_begun *b)
{
	for (size_t k = 0; k < b->n; k++)
		chunk_fill_begin(b->fills[k]);
}

static struct sparse *sparse_of(const struct object *o)
{
	return o->bytes.chunks ? chunked_filler(o->bytes.chunks) : NULL;
}

/*
 * Fetches the first of the `beyond` bytes of a window from this object, which is open. Returns how
 * many bytes are behind its end, once all chunks before them were requested.
 */
static uint64_t read_into(struct object *o, const struct chunk_begun *before, uint64_t beyond)
{
	struct sparse *p = sparse_of(o);
	struct chunk_begun begun = { 0 };
	struct ahead_stream *s;
	bool all = true;

	if (p && !chunked_is_complete(p->chunks)) {
		pthread_mutex_lock(&p->lock);
		s = ahead_continue(&p->ahead, &before->stream, before->unit, beyond);
		p->ahead.more = true;
		read_ahead(p, s, true, &begun);
		all = s->asked >= chunks_count(p->file);
		pthread_mutex_unlock(&p->lock);
		begin_fills(&begun);
	}
	return all && beyond > object_size(o) ? beyond - object_size(o) : 0;
}

/* Fetches the rest of a window from the objects behind `o`, as far as they are open. */
static void read_on(const struct object *o, const struct chunk_begun *before)
{
	uint64_t beyond = before->beyond;
	struct object *next = atomic_load(&o->next);

	/* an open may have led elsewhere since */
	for (unsigned k = 0; k < MAX_OBJECTS && beyond > 0 && next; k++) {
		struct object *last = next;

		if (object_get(next, NULL) < 0)
			return;
		beyond = read_into(next, before, beyond);
		next = atomic_load(&next->next);
		object_put(last);
	}
}

void chunk_ahead_begin(const struct object *o, const struct chunk_begun *b)
{
	begin_fills(b);
	if (b->beyond > 0)
		read_on(o, b);
}

/* Is there a stream that is read now, and needs several requests at once? Its window goes on. */
static bool windows_go_on(struct sparse *p)
{
	struct chunk_begun begun = { 0 };
	bool any = false;

	pthread_mutex_lock(&p->lock);
	for (size_t k = 0; k < AHEAD_STREAMS; k++) {
		struct ahead_stream *s = &p->ahead.streams[k];

		if (s->most > 0 || !ahead_is_long(&p->ahead, s))
			continue;
		chunk_ahead_read(p, s, &begun);
		any = true;
	}
	pthread_mutex_unlock(&p->lock);
	chunk_ahead_begin(sparse_object(p), &begun);
	return any;
}

void chunk_ahead_go_on(struct sparse *p)
{
	const struct object *o = sparse_object(p);
	bool gone = cancel_fired(&o->store->stop) || windows_go_on(p);

	for (unsigned k = 0; k < MAX_OBJECTS && !gone; k++) {
		struct object *before = atomic_load(&o->before);

		if (!before || atomic_load(&before->next) != o || object_get(before, NULL) < 0)
			return;
		p = sparse_of(before);
		gone = p && windows_go_on(p);
		object_put(before);
		o = before;
	}
}
