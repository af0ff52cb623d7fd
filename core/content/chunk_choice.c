/* SPDX-License-Identifier: Apache-2.0 */
#include "content/chunk_choice.h"

#include "base/util.h"
#include "cache/claims.h"
#include "content/internal.h"

/* bytes of one fill: no more than the fetcher asks for in one request */
#define MAX_FILL (8 * MIB)

bool sparse_take(const struct sparse *p, uint64_t i)
{
	return claim_take(p->fd, i * p->file->chunk_size, p->file->chunk_size);
}

void sparse_give(const struct sparse *p, uint64_t i)
{
	claim_give(p->fd, i * p->file->chunk_size, p->file->chunk_size);
}

void sparse_unclaim(const struct sparse *p, uint64_t i)
{
	sparse_give(p, i);
	chunked_unclaim(p->chunks, i);
}

struct fill *choice_find(const struct sparse *p, uint64_t i)
{
	struct fill *f = p->fills;

	while (f && (i < f->first || i >= f->end))
		f = f->next;
	return f;
}

bool choice_claim(const struct sparse *p, uint64_t i)
{
	if (choice_find(p, i) || !sparse_take(p, i))
		return false;
	/* looked at once no other process fetches it */
	if (chunked_is_hole(p->chunks, i) && chunked_claim(p->chunks, i))
		return true;
	sparse_give(p, i);
	return false;
}

bool choice_is_full(const struct fill *f)
{
	return (f->end - f->first) * f->sparse->file->chunk_size >= MAX_FILL;
}

void choice_make(struct fill *f, uint64_t first, uint64_t i, uint64_t end)
{
	const struct sparse *p = f->sparse;

	end = sparse_take(p, i) ? MIN(end, chunks_count(p->file)) : i;
	f->first = f->settled = first;
	do
		f->end = ++i;
	while (i < end && !choice_is_full(f) && choice_claim(p, i));
}

void choice_release(struct fill *f)
{
	struct sparse *p = f->sparse;

	f->held = false;
	f->began_us = now_us();
	p->n_fills++;
	f->server = p->ahead.server;
	rates_began(f->server);
}

bool choice_has_held(const struct sparse *p)
{
	const struct fill *f = p->fills;

	while (f && !f->held)
		f = f->next;
	return f;
}

bool choice_is_early(const struct sparse *p)
{
	return p->n_fills > 0 && !p->answered;
}

/* Are chunks beside its own being asked for? Lock held. */
static bool follows(const struct fill *f)
{
	for (const struct fill *other = f->sparse->fills; other; other = other->next)
		/* reads of a stream come in any order */
		if (!other->held && (other->end == f->first || other->first == f->end))
			return true;
	return false;
}

/* Is a connection to the server free? */
static bool is_free(const struct sparse *p)
{
	return p->ahead.server->busy < p->ahead.server->connections;
}

bool choice_may_begin(const struct fill *f)
{
	return !choice_is_early(f->sparse) && (is_free(f->sparse) || !follows(f));
}

void choice_came(const struct fill *f, uint64_t bytes)
{
	struct sparse *p = f->sparse;

	pthread_mutex_lock(&p->lock);
	for (struct fill *other = p->fills; other; other = other->next)
		if (other->held)
			waits_progress(&other->waits, bytes);
	pthread_mutex_unlock(&p->lock);
}

void choice_served(struct sparse *p, const char *url)
{
	struct server_rates *server = rates_of(&sparse_object(p)->store->rates, url);

	pthread_mutex_lock(&p->lock);
	p->ahead.server = server;
	pthread_mutex_unlock(&p->lock);
}

struct fill *choice_next(struct sparse *p)
{
	struct ahead_stream *s;
	struct ahead_part part;
	struct fill *f;

	pthread_mutex_lock(&p->lock);
	f = p->fills;
	while (f && (!f->held || !choice_may_begin(f)))
		f = f->next;
	if (f) {
		/* the first request of a connection is short */
		s = is_free(p) ? ahead_find(&p->ahead, f->end) : NULL;
		if (s && !choice_is_full(f) && sparse_take(p, f->first) &&
		    ahead_next(&p->ahead, s, 0, chunks_count(p->file), &part) &&
		    choice_claim(p, part.first)) {
			choice_make(f, f->first, part.first, part.end);
			s->asked = f->end;
		}
		choice_release(f);
	}
	pthread_mutex_unlock(&p->lock);
	return f;
}
