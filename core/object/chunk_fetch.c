/* SPDX-License-Identifier: Apache-2.0 */
#include "object/chunk_fetch.h"

#include <stdlib.h>

#include "archive/container.h"
#include "base/util.h"
#include "cache/dest.h"
#include "fetch/fetcher.h"
#include "fetch/mirrors.h"
#include "fetch/remote_source.h"
#include "format/links.h"
#include "object/internal.h"

static struct object_store *store_of(const struct chunk_fetch *f)
{
	return f->places->object->store;
}

uint64_t chunk_fetch_off(const struct chunk_fetch *f)
{
	return f->first * f->places->file->chunk_size;
}

uint64_t chunk_fetch_bytes(const struct chunk_fetch *f)
{
	const struct chunks_file *file = f->places->file;

	return MIN(f->end * file->chunk_size, file->size) - chunk_fetch_off(f);
}

/* ---- URLs ---- */

int chunk_places_find(struct chunk_places *p)
{
	const struct link *link = p->link;
	int r = mirrors_urls(p->object->store->options.mirrors, p->object->sha256,
			     object_name(p->object), link ? link->urls : NULL,
			     link ? link->n_urls : 0, &p->urls, &p->n_by_hash);
	size_t n = p->n_by_hash + (link ? link->n_urls : 0);

	if (r < 0)
		return r;
	p->states = calloc(n + 1, sizeof(*p->states));
	if (!p->states)
		return -ENOMEM;
	for (p->n_urls = 0; p->n_urls < n; p->n_urls++)
		route_init(&p->states[p->n_urls].route);
	return 0;
}

void chunk_places_finish(struct chunk_places *p)
{
	for (size_t i = 0; i < p->n_urls; i++)
		route_finish(&p->states[i].route);
	free(p->states);
	free(p->urls);
}

/* Is there one that may be asked? */
static bool has_urls(const struct chunk_places *p)
{
	size_t i = 0;

	while (i < p->n_urls && atomic_load(&p->states[i].bad))
		i++;
	return i < p->n_urls;
}

/* Its number; p->n_urls: it is the carton's. */
static size_t index_of(const struct chunk_places *p, const char *url)
{
	size_t i = 0;

	while (i < p->n_urls && p->urls[i] != url)
		i++;
	return i;
}

/* The first `n` mirrors are not asked again. */
static void drop_mirrors(struct chunk_places *p, size_t n)
{
	for (size_t i = 0; i < MIN(n, p->n_by_hash); i++)
		atomic_store(&p->states[i].bad, true);
}

/* ---- what comes ---- */

static void note_bad(struct chunk_fetch *f, const char *url)
{
	struct chunk_places *p = f->places;
	unsigned long long from = f->bad * p->file->chunk_size;
	unsigned long long to = MIN(from + p->file->chunk_size, p->file->size) - 1;
	size_t i = index_of(p, url);
	bool listed = i < p->n_urls;
	char shown[256];

	if (atomic_exchange(listed ? &p->states[i].bad : &p->logged, true))
		return;
	if (listed)
		carton_log(CARTON_LOG_ERROR, http_url_redact(url, shown, sizeof(shown)),
			   "has other bytes of \"%s\" than " CHUNKS_PATH
			   " says, from %llu to %llu; "
			   "it is not asked for it again",
			   object_name(p->object), from, to);
	else
		carton_log(CARTON_LOG_ERROR, object_name(p->object),
			   "bytes %llu to %llu do not have the sha256 that " CHUNKS_PATH
			   " says; get the carton again",
			   from, to);
}

/*
 * A check() of a fetch: all chunks are in the file. Those that are right are kept, whatever the
 * others are.
 */
static int check(void *ctx, const char *url)
{
	struct chunk_fetch *f = ctx;
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
	f->wrong = bad;
	if (bad)
		note_bad(f, url);
	else
		drop_mirrors(p, index_of(p, url));
	if (bad)
		return -EBADMSG;
	return all ? f->complete(f) : 0;
}

/* ---- the end ---- */

static void finish(struct chunk_fetch *f, int result)
{
	dest_abort(f->dest, false);
	f->dest = NULL;
	f->done(f, result);
}

/* ---- from the carton ---- */

static struct fetch fetch_of(struct chunk_fetch *f)
{
	return (struct fetch){
		.options = store_of(f)->options.fetch,
		.cancel = f->cancel,
		.off = chunk_fetch_off(f),
		.n = chunk_fetch_bytes(f),
		.dest = f->dest,
		.check = check,
		.arrived = making_arrived,
		.progress_ctx = f->making,
		.ctx = f,
	};
}

static int ask_carton(struct chunk_fetch *f, struct fetch *fetch)
{
	fetch->what = FETCH_RANGE;
	fetch->trust = HTTP_USER;
	if (fetch->options)
		fetch->version = remote_source_version(store_of(f)->options.source);
	return fetch->version ? fetch_start(fetch) : -ENETUNREACH;
}

static void chunks_done(void *ctx, int result, struct ingested *in);

static int ask_chunks(struct chunk_fetch *f)
{
	struct fetch fetch = fetch_of(f);

	fetch.off += f->places->data;
	fetch.done = chunks_done;
	return ask_carton(f, &fetch);
}

/* Only the chunk that was wrong is still wanted: what is verified must not be written to again. */
static int keep_bad(struct chunk_fetch *f)
{
	struct chunk_places *p = f->places;

	pthread_mutex_lock(&p->lock);
	for (uint64_t i = f->first; i < f->end; i++)
		if (i != f->bad)
			chunked_unclaim(p->chunks, i);
	f->first = f->bad;
	f->end = f->bad + 1;
	f->wrong = false;
	pthread_mutex_unlock(&p->lock);
	dest_abort(f->dest, false);
	f->dest = NULL;
	return dest_place(p->bytes.source->fd, chunk_fetch_off(f), chunk_fetch_bytes(f), &f->dest);
}

/*
 * After wrong bytes, or an answer that cannot be decoded, the other place of the carton is asked,
 * if it has one.
 */
static void chunks_done(void *ctx, int result, struct ingested *in)
{
	struct chunk_fetch *f = ctx;
	struct version *version;
	int r = result;

	(void)in;
	if (result == -EBADMSG && !f->other) {
		version = remote_source_version(store_of(f)->options.source);
		f->other = true;
		r = version->other ? 0 : result;
		if (r == 0 && f->wrong)
			r = keep_bad(f);
		if (r == 0)
			r = ask_chunks(f);
		if (r == 0)
			return;
	}
	finish(f, r);
}

/* The data's offset is in the local header. */
static int locate(struct chunk_places *p, struct dest *header)
{
	const struct entry *e = p->entry;
	struct source *head;
	uint64_t off;
	int r = dest_commit(header, NULL, dest_end(header), &head);

	if (r < 0)
		return r;
	r = container_locate_in(p->object->store->options.container, e, head, &off);
	source_unref(head);
	if (r < 0)
		return r;
	pthread_mutex_lock(&p->lock);
	/* once: others read it without the lock */
	if (!p->located)
		p->data = e->header + off;
	p->located = true;
	pthread_mutex_unlock(&p->lock);
	return 0;
}

static void header_done(void *ctx, int result, struct ingested *in)
{
	struct chunk_fetch *f = ctx;

	(void)in;
	if (result == 0)
		result = locate(f->places, f->header);
	else
		dest_abort(f->header, false);
	if (result == 0)
		result = ask_chunks(f);
	if (result < 0)
		finish(f, result);
}

static int begin_carton(struct chunk_fetch *f)
{
	const struct entry *e = f->places->entry;
	struct fetch fetch = fetch_of(f);
	bool located;
	int r;

	pthread_mutex_lock(&f->places->lock);
	located = f->places->located;
	pthread_mutex_unlock(&f->places->lock);
	if (located)
		return ask_chunks(f);
	fetch.off = e->header;
	fetch.n = entry_end(e) - e->header - e->stored;
	fetch.check = NULL;
	fetch.done = header_done;
	r = dest_memory(fetch.n, &f->header);
	if (r < 0)
		return r;
	fetch.dest = f->header;
	r = ask_carton(f, &fetch);
	if (r < 0)
		dest_abort(f->header, false);
	return r;
}

/* ---- from mirrors, and as LINKS says ---- */

static void part_done(void *ctx, int result, struct ingested *in);

/* -ENOENT: there are no more. */
static int begin_urls(struct chunk_fetch *f)
{
	struct chunk_places *p = f->places;
	struct fetch fetch = fetch_of(f);

	fetch.what = FETCH_PART;
	fetch.urls = p->urls;
	fetch.n_urls = p->n_urls;
	fetch.n_by_hash = p->n_by_hash;
	fetch.states = p->states;
	fetch.first = &p->first;
	fetch.size = p->file->size;
	fetch.trust = HTTP_LINKS;
	fetch.done = part_done;
	if (!has_urls(p))
		return -ENOENT;
	return fetch.options ? fetch_start(&fetch) : -ENETUNREACH;
}

static void part_done(void *ctx, int result, struct ingested *in)
{
	struct chunk_fetch *f = ctx;
	int r = result;

	(void)in;
	if (result == -EBADMSG && f->wrong) {
		r = keep_bad(f);
		if (r == 0)
			r = begin_urls(f);
		if (r == -ENOENT && f->places->link)
			r = -EBADMSG;
	} else if (f->places->entry && result < 0 && result != -ECANCELED && result != -ESHUTDOWN &&
		   result != -ENOMEM && result != -ENOSPC && result != -EFBIG) {
		drop_mirrors(f->places, SIZE_MAX);
		r = -ENOENT;
	} else {
		finish(f, result);
		return;
	}
	if (r == -ENOENT && f->places->entry)
		r = begin_carton(f);
	if (r < 0)
		finish(f, r);
}

/* ---- beginning ---- */

int chunk_fetch_start(struct chunk_fetch *f)
{
	const struct chunk_places *p = f->places;
	int r = dest_place(p->bytes.source->fd, chunk_fetch_off(f), chunk_fetch_bytes(f), &f->dest);

	if (r == 0)
		r = begin_urls(f);
	if (r == -ENOENT)
		r = p->entry ? begin_carton(f) : -EBADMSG;
	if (r < 0) {
		dest_abort(f->dest, false);
		f->dest = NULL;
	}
	return r;
}
