/* SPDX-License-Identifier: Apache-2.0 */
#include "object/chunk_fetch.h"

#include "base/util.h"
#include "http/http.h"
#include "object/internal.h"

uint64_t chunk_fetch_off(const struct chunk_fetch *f)
{
	return f->first * f->places->file->chunk_size;
}

uint64_t chunk_fetch_bytes(const struct chunk_fetch *f)
{
	const struct chunks_file *file = f->places->file;

	return MIN(f->end * file->chunk_size, file->size) - chunk_fetch_off(f);
}

/* ---- what comes ---- */

static void note_bad(struct chunk_fetch *f, const char *url)
{
	struct chunk_places *p = f->places;
	struct plan *plan = p->plan;
	unsigned long long from = f->bad * p->file->chunk_size;
	unsigned long long to = MIN(from + p->file->chunk_size, p->file->size) - 1;
	size_t i = plan_index(plan, url);
	char shown[256];

	if (i < plan->n_urls && plan_drop_url(plan, i))
		carton_log(CARTON_LOG_ERROR, http_url_redact(url, shown, sizeof(shown)),
			   "has other bytes of \"%s\" than " CHUNKS_PATH
			   " says, from %llu to %llu; "
			   "it is not asked for it again",
			   object_name(plan->object), from, to);
	else if (i == plan->n_urls && !atomic_exchange(&p->logged, true))
		carton_log(CARTON_LOG_ERROR, object_name(plan->object),
			   "bytes %llu to %llu do not have the sha256 that " CHUNKS_PATH
			   " says; get the carton again",
			   from, to);
}

/*
 * A check() of a get: all chunks are in the file. Those that are right are kept, whatever the
 * others are.
 */
static int check(struct get *g, const char *url)
{
	struct chunk_fetch *f = container_of(g, struct chunk_fetch, get);
	struct chunk_places *p = f->places;
	bool all = false, bad = false;

	for (uint64_t i = f->first; i < f->end; i++) {
		int r = chunked_is_verified(p->chunks, i) ?
				0 :
				chunked_fetched(p->chunks, &p->bytes, i);

		if (r < 0 && r != -EBADMSG)
			return r;
		if (r == -EBADMSG && !bad)
			f->bad = i;
		bad |= r == -EBADMSG;
		all |= r == 1;
	}
	if (bad) {
		note_bad(f, url);
		return -EBADMSG;
	}
	plan_drop_mirrors(p->plan, plan_index(p->plan, url));
	return all ? f->complete(f) : 0;
}

/* Only the chunk that was wrong is still wanted: what is verified must not be written to again. */
static int keep_bad(struct get *g)
{
	struct chunk_fetch *f = container_of(g, struct chunk_fetch, get);
	struct chunk_places *p = f->places;

	pthread_mutex_lock(&p->lock);
	for (uint64_t i = f->first; i < f->end; i++)
		if (i != f->bad)
			chunked_unclaim(p->chunks, i);
	f->first = f->bad;
	f->end = f->bad + 1;
	pthread_mutex_unlock(&p->lock);
	g->off = chunk_fetch_off(f);
	g->n = chunk_fetch_bytes(f);
	return 0;
}

/* ---- beginning and end ---- */

static void got(struct get *g, int result, struct ingested *in)
{
	struct chunk_fetch *f = container_of(g, struct chunk_fetch, get);

	(void)in;
	f->done(f, result);
}

int chunk_fetch_start(struct chunk_fetch *f)
{
	f->get = (struct get){
		.plan = f->places->plan,
		.waits = f->waits,
		.dest = f->places->dest,
		.off = chunk_fetch_off(f),
		.n = chunk_fetch_bytes(f),
		.size = f->places->file->size,
		.check = check,
		.again = keep_bad,
		.done = got,
	};
	return get_start(&f->get);
}
