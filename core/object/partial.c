/* SPDX-License-Identifier: Apache-2.0 */
#include "object/partial.h"

#include <stdlib.h>
#include <unistd.h>

#include "archive/container.h"
#include "base/util.h"
#include "cache/dest.h"
#include "fetch/fetcher.h"
#include "fetch/mirrors.h"
#include "fetch/remote_source.h"
#include "object/chunk_urls.h"
#include "object/partial_file.h"

/* readahead: at most this share of what was read in order, and at most so many bytes */
#define AHEAD_SHARE 8
#define AHEAD_MAX (8 * MIB)
/* the kernel repeats a page at once whose readahead failed: it gets the same answer, without another wait */
#define REPEAT_MS 500

struct partial {
	struct partial_options o;
	struct chunked *chunks;
	struct chunked_bytes bytes;

	pthread_mutex_t lock; /* guards the rest; taken before the store's */
	struct chunk_urls urls;
	struct partial_file file;
	struct flight *flights;
	bool located;
	uint64_t data;	       /* where the entry's data begins in the carton, once located */
	uint64_t next, run;    /* the chunk behind the last one asked for; how many came in order */
	unsigned char *failed; /* a bit for each chunk: it could not be fetched, */
	int64_t failed_ms;     /* at the last time then, */
	int error;	       /* and why */
};

/* Chunks [first, end), which are being fetched. */
struct flight {
	struct making making; /* of its waiters and its end only */
	struct partial *partial;
	struct flight *next, **link; /* guarded by the partial's lock */
	uint64_t first, end;
	struct dest *dest, *header; /* where the chunks go, and the entry's local header */
	struct cancel *cancel;
	char **urls;	      /* those that it asks, in their order */
	uint64_t bad;	      /* the first chunk with other bytes */
	bool other;	      /* the carton has been asked at its other place, too */
	struct making *probe; /* it is for this one, not for readers; or NULL */
	void (*probed)(struct making *m, int result);
};

static struct object_store *store_of(const struct partial *p)
{
	return p->o.object->store;
}

static uint64_t flight_off(const struct flight *f)
{
	return f->first * f->partial->o.file->chunk_size;
}

static uint64_t flight_bytes(const struct flight *f)
{
	const struct chunks_file *file = f->partial->o.file;

	return MIN(f->end * file->chunk_size, file->size) - flight_off(f);
}

/* ---- which chunks ---- */

static struct flight *in_flight(const struct partial *p, uint64_t i)
{
	struct flight *f = p->flights;

	while (f && (i < f->first || i >= f->end))
		f = f->next;
	return f;
}

/*
 * Chunk `i`, and what follows and is not there: up to `end`, which somebody waits for, and more for who reads in
 * order. Claims them. Lock held.
 */
static void plan(struct flight *f, uint64_t i, uint64_t end)
{
	struct partial *p = f->partial;
	uint64_t most = AHEAD_MAX / p->o.file->chunk_size;

	p->run = i == p->next ? p->run : 0;
	end = MIN(MAX(end, i + p->run / AHEAD_SHARE), i + most);
	end = MIN(end, chunks_count(p->o.file));
	f->first = f->end = i;
	do
		f->end++;
	while (f->end < end && !in_flight(p, f->end) &&
	       chunked_is_hole(p->chunks, &p->bytes, f->end) && chunked_claim(p->chunks, f->end));
	p->run += f->end - i;
	p->next = f->end;
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

/* ---- what comes ---- */

static void note_good(struct partial *p, const char *url)
{
	pthread_mutex_lock(&p->lock);
	chunk_urls_good(&p->urls, url);
	pthread_mutex_unlock(&p->lock);
}

static void note_bad(struct flight *f, const char *url)
{
	struct partial *p = f->partial;
	unsigned long long from = f->bad * p->o.file->chunk_size;
	unsigned long long to = MIN(from + p->o.file->chunk_size, p->o.file->size) - 1;
	char shown[256];
	bool first;

	pthread_mutex_lock(&p->lock);
	first = chunk_urls_bad(&p->urls, url);
	pthread_mutex_unlock(&p->lock);
	if (!first)
		return;
	if (chunk_urls_has(&p->urls, url))
		carton_log(CARTON_LOG_ERROR, http_url_redact(url, shown, sizeof(shown)),
			   "has other bytes of \"%s\" than " CHUNKS_PATH
			   " says, from %llu to %llu; "
			   "it is not asked for it again",
			   object_name(p->o.object), from, to);
	else
		carton_log(CARTON_LOG_ERROR, object_name(p->o.object),
			   "bytes %llu to %llu do not have the sha256 that " CHUNKS_PATH
			   " says; get the carton again",
			   from, to);
}

/* All of it is there, and is hashed next; while it is probed, once the object has these bytes. 0 or -ENOMEM. */
static int all_there(const struct flight *f)
{
	const struct partial_options *o = &f->partial->o;

	if (f->probe)
		return object_whole(o->object, &f->probe->bytes, o->file->size, &f->probe->whole);
	object_complete(o->object);
	return 0;
}

/* A check() of a fetch: all chunks are in the file. Those that are right are kept, whatever the others are. */
static int check(void *ctx, const char *url)
{
	struct flight *f = ctx;
	struct partial *p = f->partial;
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
	if (bad)
		note_bad(f, url);
	else
		note_good(p, url);
	if (bad)
		return -EBADMSG;
	return all ? all_there(f) : 0;
}

/* ---- the end ---- */

static void flight_begin(struct flight *f);

/* Is it gone, unless somebody has come to wait for it since it was cancelled? */
static bool unlink_flight(struct flight *f, int result, struct object_wait **ret_waits)
{
	struct partial *p = f->partial;
	struct object_store *s = store_of(p);
	bool gone;

	pthread_mutex_lock(&p->lock);
	pthread_mutex_lock(&s->lock);
	gone = result != -ECANCELED || !f->making.waits || cancel_fired(&s->stop);
	if (gone) {
		for (uint64_t i = f->first; i < f->end; i++)
			chunked_unclaim(p->chunks, i);
		*f->link = f->next;
		if (f->next)
			f->next->link = f->link;
		waits_untime(&f->making);
		*ret_waits = waits_take(&f->making);
		if (result < 0 && result != -ECANCELED)
			note_failed(p, f->first, f->end, result);
	} else {
		cancel_destroy(&f->making.cancel);
		cancel_init(&f->making.cancel, &s->stop);
	}
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_unlock(&p->lock);
	return gone;
}

static void log_failure(const struct flight *f, int error)
{
	unsigned long long from = flight_off(f), to = from + flight_bytes(f) - 1;

	carton_log(CARTON_LOG_ERROR, object_name(f->partial->o.object),
		   error == -ENETUNREACH ?
			   "bytes %llu to %llu are not in the cache, and nothing is fetched "
			   "when offline: %s" :
			   "bytes %llu to %llu cannot be fetched now: %s",
		   from, to, strerror(-error));
}

static void flight_end(struct flight *f, int result)
{
	struct partial *p = f->partial;
	struct object *o = p->o.object;
	struct making *probe = f->probe;
	struct object_wait *waits = NULL;

	dest_abort(f->dest, false);
	f->dest = NULL;
	free(f->urls);
	f->urls = NULL;
	if (result == -ESHUTDOWN)
		result = -ECANCELED;
	if (!probe && (result == -EBADMSG || result == -EOPNOTSUPP)) {
		if (p->o.link)
			object_distrust(o);
		/* the servers' bytes are wrong, not those that are here: they may be asked for again */
		result = -EIO;
	}
	if (!unlink_flight(f, result, &waits)) {
		flight_begin(f);
		return;
	}
	if (!probe && result < 0 && result != -ECANCELED)
		log_failure(f, result);
	cancel_destroy(&f->making.cancel);
	waits_finish(waits, result == -ECANCELED ? -ENOTCONN : result);
	if (probe)
		f->probed(probe, result);
	free(f);
	if (!probe)
		object_put(o);
}

/* ---- from the carton ---- */

static struct fetch fetch_of(struct flight *f)
{
	return (struct fetch){
		.options = store_of(f->partial)->options.remote,
		.cancel = f->cancel,
		.off = flight_off(f),
		.n = flight_bytes(f),
		.dest = f->dest,
		.check = check,
		.arrived = making_arrived,
		.progress_ctx = f->probe ? f->probe : &f->making,
		.ctx = f,
	};
}

static int ask_carton(struct flight *f, struct fetch *fetch)
{
	fetch->what = FETCH_RANGE;
	fetch->trust = HTTP_USER;
	if (fetch->options)
		fetch->remote = remote_source_version(store_of(f->partial)->options.source);
	return fetch->remote ? fetch_start(fetch) : -ENETUNREACH;
}

static void chunks_done(void *ctx, int result, struct ingested *in);

static int ask_chunks(struct flight *f)
{
	struct fetch fetch = fetch_of(f);

	fetch.off += f->partial->data;
	fetch.done = chunks_done;
	return ask_carton(f, &fetch);
}

/* Only the chunk that was wrong is still wanted: what is verified must not be written to again. */
static int keep_bad(struct flight *f)
{
	struct partial *p = f->partial;

	pthread_mutex_lock(&p->lock);
	for (uint64_t i = f->first; i < f->end; i++)
		if (i != f->bad)
			chunked_unclaim(p->chunks, i);
	f->first = f->bad;
	f->end = f->bad + 1;
	pthread_mutex_unlock(&p->lock);
	dest_abort(f->dest, false);
	f->dest = NULL;
	return dest_place(p->bytes.source->fd, flight_off(f), flight_bytes(f), &f->dest);
}

/* After wrong bytes, the other place of the carton is asked, if it has one. */
static void chunks_done(void *ctx, int result, struct ingested *in)
{
	struct flight *f = ctx;
	struct remote *remote;
	int r = result;

	(void)in;
	if (result == -EBADMSG && !f->other) {
		remote = remote_source_version(store_of(f->partial)->options.source);
		f->other = true;
		r = remote->other ? keep_bad(f) : result;
		if (r == 0)
			r = ask_chunks(f);
		if (r == 0)
			return;
	}
	flight_end(f, r);
}

/* The data's offset is in the local header. */
static int locate(struct partial *p, struct dest *header)
{
	const struct entry *e = p->o.entry;
	struct source *head;
	uint64_t off;
	int r = dest_commit(header, NULL, dest_end(header), &head);

	if (r < 0)
		return r;
	r = container_locate_in(store_of(p)->options.container, e, head, &off);
	source_unref(head);
	if (r < 0)
		return r;
	pthread_mutex_lock(&p->lock);
	p->data = e->header + off;
	p->located = true;
	pthread_mutex_unlock(&p->lock);
	return 0;
}

static void header_done(void *ctx, int result, struct ingested *in)
{
	struct flight *f = ctx;

	(void)in;
	if (result == 0)
		result = locate(f->partial, f->header);
	else
		dest_abort(f->header, false);
	if (result == 0)
		result = ask_chunks(f);
	if (result < 0)
		flight_end(f, result);
}

static int begin_carton(struct flight *f)
{
	const struct entry *e = f->partial->o.entry;
	struct fetch fetch = fetch_of(f);
	bool located;
	int r;

	pthread_mutex_lock(&f->partial->lock);
	located = f->partial->located;
	pthread_mutex_unlock(&f->partial->lock);
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

static int list_urls(struct flight *f, struct fetch *ret)
{
	struct partial *p = f->partial;

	free(f->urls);
	f->urls = malloc((p->urls.n + 1) * sizeof(*f->urls));
	if (!f->urls)
		return -ENOMEM;
	pthread_mutex_lock(&p->lock);
	ret->n_urls = chunk_urls_list(&p->urls, f->urls, &ret->n_by_hash);
	pthread_mutex_unlock(&p->lock);
	ret->urls = f->urls;
	return 0;
}

static void part_done(void *ctx, int result, struct ingested *in);

/* -ENOENT: there are no more. */
static int begin_urls(struct flight *f)
{
	struct fetch fetch = fetch_of(f);
	int r = list_urls(f, &fetch);

	fetch.what = FETCH_PART;
	fetch.size = f->partial->o.file->size;
	fetch.trust = HTTP_LINKS;
	fetch.done = part_done;
	if (r == 0 && !fetch.n_urls)
		r = -ENOENT;
	if (r == 0 && !fetch.options)
		r = -ENETUNREACH;
	return r < 0 ? r : fetch_start(&fetch);
}

static void drop_mirrors(struct partial *p)
{
	pthread_mutex_lock(&p->lock);
	chunk_urls_drop_mirrors(&p->urls);
	pthread_mutex_unlock(&p->lock);
}

static void part_done(void *ctx, int result, struct ingested *in)
{
	struct flight *f = ctx;
	int r = result;

	(void)in;
	if (result == -EBADMSG) {
		r = keep_bad(f);
		if (r == 0)
			r = begin_urls(f);
		if (r == -ENOENT && f->partial->o.link)
			r = -EBADMSG;
	} else if (f->partial->o.entry && result < 0 && result != -ECANCELED &&
		   result != -ESHUTDOWN && result != -ENOMEM && result != -ENOSPC) {
		drop_mirrors(f->partial);
		r = -ENOENT;
	} else {
		flight_end(f, result);
		return;
	}
	if (r == -ENOENT && f->partial->o.entry)
		r = begin_carton(f);
	if (r < 0)
		flight_end(f, r);
}

/* ---- beginning ---- */

static int make_room(struct partial *p, uint64_t n)
{
	int r;

	pthread_mutex_lock(&p->lock);
	r = partial_file_make_room(&p->file, p->bytes.source->fd, n);
	pthread_mutex_unlock(&p->lock);
	return r;
}

static void flight_begin(struct flight *f)
{
	struct partial *p = f->partial;
	int r = make_room(p, flight_bytes(f));

	if (r == 0)
		r = dest_place(p->bytes.source->fd, flight_off(f), flight_bytes(f), &f->dest);
	if (r == 0)
		r = begin_urls(f);
	if (r == -ENOENT)
		r = p->o.entry ? begin_carton(f) : -EBADMSG;
	if (r < 0)
		flight_end(f, r);
}

/* In the partial's list. Lock held. */
static struct flight *flight_new(struct partial *p)
{
	struct flight *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->partial = p;
	f->making.object = p->o.object;
	cancel_init(&f->making.cancel, &store_of(p)->stop);
	f->cancel = &f->making.cancel;
	return f;
}

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

	pthread_mutex_lock(&p->lock);
	while (i < end && (chunked_is_verified(p->chunks, i) ||
			   (!in_flight(p, i) && !chunked_claim(p->chunks, i))))
		i++;
	if (i < end)
		r = in_flight(p, i) ? 0 : repeated(p, i);
	if (i < end && r == 0) {
		f = flight_for(p, i, end, &new);
		r = f ? -EINPROGRESS : -ENOMEM;
	}
	if (i < end && r != -EINPROGRESS)
		chunked_unclaim(p->chunks, i);
	pthread_mutex_lock(&s->lock);
	if (f) {
		p->o.object->pins += new;
		wait_link(&f->making, wait);
		wait_time(&f->making, wait);
	}
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_unlock(&p->lock);
	if (new &&f)
		flight_begin(f);
	return r;
}

/* ---- the partial ---- */

static void complete(void *ctx)
{
	object_complete(((struct partial *)ctx)->o.object);
}

static void publish(void *ctx)
{
	struct partial *p = ctx;

	pthread_mutex_lock(&p->lock);
	partial_file_publish(&p->file);
	pthread_mutex_unlock(&p->lock);
}

static void partial_free(void *ctx)
{
	struct partial *p = ctx;

	partial_file_close(&p->file);
	pthread_mutex_destroy(&p->lock);
	chunk_urls_free(&p->urls);
	free(p->failed);
	free(p);
}

static const struct chunk_origin origin = { fetch, complete, publish, partial_free };

int partial_open(const struct partial_options *options, struct bytes *ret)
{
	struct bytes bytes = { .kind = BYTES_FILE };
	struct partial *p = calloc(1, sizeof(*p));
	const struct object *o = options->object;
	int r;

	if (!p)
		return -ENOMEM;
	p->o = *options;
	pthread_mutex_init(&p->lock, NULL);
	p->failed = calloc(chunks_count(p->o.file) / 8 + 1, 1);
	r = p->failed ? chunk_urls_find(&p->urls, o, p->o.link) : -ENOMEM;
	if (r == 0)
		r = partial_file_open(&p->file, o, p->o.file->size, &bytes.source);
	if (r == 0)
		r = bytes_use_chunks(&bytes, &o->store->index, p->o.file, o->name);
	if (r < 0) {
		partial_free(p);
		bytes_free(&bytes);
		return r;
	}
	p->chunks = bytes.chunks;
	p->bytes = (struct chunked_bytes){ bytes.source, 0, bytes.tags, o->store->tagger };
	chunked_set_origin(bytes.chunks, &origin, p);
	*ret = bytes;
	return 0;
}

void partial_probe(struct making *m, void (*done)(struct making *m, int result))
{
	struct partial *p = chunked_origin(m->bytes.chunks);
	struct flight *f;

	if (!store_of(p)->options.remote || lseek(p->bytes.source->fd, 0, SEEK_DATA) >= 0) {
		done(m, 0);
		return;
	}
	f = flight_new(p);
	if (!f) {
		done(m, -ENOMEM);
		return;
	}
	chunked_claim(p->chunks, 0);
	f->end = 1;
	f->probe = m;
	f->probed = done;
	f->cancel = &m->cancel;
	pthread_mutex_lock(&p->lock);
	link_flight(f);
	pthread_mutex_unlock(&p->lock);
	flight_begin(f);
}
