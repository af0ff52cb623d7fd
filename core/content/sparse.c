/* SPDX-License-Identifier: Apache-2.0 */
#include "content/sparse.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"
#include "http/http.h"
#include "content/internal.h"

/* readahead: at most this share of what was read in order, and at most so many bytes */
#define AHEAD_SHARE 8
#define AHEAD_MAX (8 * MIB)

struct sparse {
	/* constant */
	struct plan *plan;
	const struct chunks_file *file;
	struct chunked *chunks;
	struct file *dest;	    /* where they go */
	struct chunked_bytes bytes; /* the same file */

	atomic_bool logged; /* that the carton has other bytes */

	pthread_mutex_t lock; /* before the store's; guards what follows, and the chunks of fills */
	struct fill *fills;
	uint64_t next, run;    /* the chunk behind the last one asked for; how many came in order */
	unsigned char *failed; /* a bit for each chunk: it could not be fetched, */
	int64_t failed_ms;     /* at the last time then, */
	int error;	       /* and why */
};

static struct object *object_of(const struct sparse *p)
{
	return p->plan->object;
}

/* The bytes [*ret_off, *ret_off + n) of the fill's chunks; returns n. */
static uint64_t range_of(const struct fill *f, uint64_t *ret_off)
{
	const struct chunks_file *file = f->sparse->file;

	*ret_off = f->first * file->chunk_size;
	return MIN(f->end * file->chunk_size, file->size) - *ret_off;
}

/* ---- which chunks ---- */

static struct fill *find_fill(const struct sparse *p, uint64_t i)
{
	struct fill *f = p->fills;

	while (f && (i < f->first || i >= f->end))
		f = f->next;
	return f;
}

/*
 * Chunk `i`, and what follows and is not there: up to `end`, which somebody waits for, and more for
 * who reads in order. Claims them. Lock held.
 */
static void choose(struct fill *f, uint64_t i, uint64_t end)
{
	struct sparse *p = f->sparse;
	uint64_t most = AHEAD_MAX / p->file->chunk_size;

	p->run = i == p->next ? p->run : 0;
	end = MIN(MAX(end, i + p->run / AHEAD_SHARE), i + most);
	end = MIN(end, chunks_count(p->file));
	f->first = f->end = i;
	do
		f->end++;
	while (f->end < end && !find_fill(p, f->end) &&
	       chunked_is_hole(p->chunks, &p->bytes, f->end) && chunked_claim(p->chunks, f->end));
	p->run += f->end - i;
	p->next = f->end;
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

/* ---- what comes ---- */

static void note_bad(struct fill *f, const char *url)
{
	struct sparse *p = f->sparse;
	unsigned long long from = f->bad * p->file->chunk_size;
	unsigned long long to = MIN(from + p->file->chunk_size, p->file->size) - 1;
	size_t i = plan_index(p->plan, url);
	char shown[256];

	if (i < p->plan->n_urls && plan_drop_url(p->plan, i))
		carton_log(CARTON_LOG_ERROR, http_url_redact(url, shown, sizeof(shown)),
			   "has other bytes of \"%s\" than " CHUNKS_PATH
			   " says, from %llu to %llu; "
			   "it is not asked for it again",
			   object_name(object_of(p)), from, to);
	else if (i == p->plan->n_urls && !atomic_exchange(&p->logged, true))
		carton_log(CARTON_LOG_ERROR, object_name(object_of(p)),
			   "bytes %llu to %llu do not have the sha256 that " CHUNKS_PATH
			   " says; get the carton again",
			   from, to);
}

/*
 * All chunks of the object are there: all of it is hashed next; while it is probed, once the object
 * has these bytes. 0 or -ENOMEM.
 */
static int complete_fill(struct fill *f)
{
	struct object *o = f->object;

	if (f->what == FILL_ALL)
		return object_new_hash_job(o, &f->bytes, f->sparse->file->size, &f->hash_job);
	object_complete(o);
	return 0;
}

/* A check() of a get: all chunks are in the file. */
static int check(struct get *g, const char *url)
{
	struct fill *f = container_of(g, struct fill, get);
	struct sparse *p = f->sparse;
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
	return all ? complete_fill(f) : 0;
}

/* Only the chunk that was wrong is still wanted: what is verified must not be written to again. */
static int keep_bad(struct get *g)
{
	struct fill *f = container_of(g, struct fill, get);
	struct sparse *p = f->sparse;

	pthread_mutex_lock(&p->lock);
	for (uint64_t i = f->first; i < f->end; i++)
		if (i != f->bad)
			chunked_unclaim(p->chunks, i);
	f->first = f->bad;
	f->end = f->bad + 1;
	pthread_mutex_unlock(&p->lock);
	g->n = range_of(f, &g->off);
	return 0;
}

/* ---- one fill ---- */

/* Asks the network for the fill's chunks. 0; or -errno, and then `done` is not called. */
static int ask(struct fill *f, void (*done)(struct get *g, int result, struct ingested *in))
{
	struct sparse *p = f->sparse;
	int r;

	f->get = (struct get){
		.plan = p->plan,
		.waits = &f->waits,
		.dest = p->dest,
		.size = p->file->size,
		.check = check,
		.again = keep_bad,
		.done = done,
	};
	f->get.n = range_of(f, &f->get.off);
	r = file_claim(p->dest, f->get.n, keep_drop_idle, object_of(p)->store);
	return r < 0 ? r : get_start(&f->get);
}

static void end(struct fill *f, int result)
{
	if (result == -EBADMSG || result == -EOPNOTSUPP) {
		if (f->sparse->plan->link)
			object_distrust(f->object);
		/* the servers' bytes are wrong, not those that are here: they may be asked again */
		result = -EIO;
	}
	fill_done(f, result);
}

static void got(struct get *g, int result, struct ingested *in)
{
	(void)in;
	end(container_of(g, struct fill, get), result);
}

static void begin_chunks(struct fill *f)
{
	int r = ask(f, got);

	if (r < 0)
		end(f, r);
}

static void lock_chunks(struct fill *f)
{
	pthread_mutex_lock(&f->sparse->lock);
}

static void unlock_chunks(struct fill *f)
{
	pthread_mutex_unlock(&f->sparse->lock);
}

static void take_chunks(struct fill *f, int result)
{
	struct sparse *p = f->sparse;
	bool failed = result < 0 && result != -ECANCELED;

	for (uint64_t i = f->first; i < f->end; i++) {
		chunked_unclaim(p->chunks, i);
		if (failed)
			p->failed[i / 8] |= (unsigned char)(1 << (i % 8));
	}
	if (failed) {
		p->failed_ms = now_ms();
		p->error = result;
	}
	*f->link = f->next;
	if (f->next)
		f->next->link = f->link;
}

static void report_chunks(const struct fill *f, int error)
{
	uint64_t off, n = range_of(f, &off);

	/* over the budget: chunked_read() has said so */
	if (error == -EFBIG)
		return;
	carton_log(CARTON_LOG_ERROR, object_name(f->object),
		   error == -ENETUNREACH ?
			   "bytes %llu to %llu are not in the cache, and nothing is fetched "
			   "when offline: %s" :
			   "bytes %llu to %llu cannot be fetched now: %s",
		   (unsigned long long)off, (unsigned long long)(off + n - 1), strerror(-error));
}

/* The fill held a pin of its object, so that the object and the sparse file live until here. */
static const struct fill_ops chunk_ops = {
	begin_chunks, lock_chunks, unlock_chunks, take_chunks, report_chunks, object_put,
};

/* ---- readers ---- */

/* In the list of the sparse file. Lock held. */
static void link_fill(struct fill *f)
{
	struct sparse *p = f->sparse;

	f->next = p->fills;
	if (f->next)
		f->next->link = &f->next;
	f->link = &p->fills;
	p->fills = f;
}

/* A new one for chunk `i`; or the one that has it; NULL: no memory. Lock held. */
static struct fill *fill_for(struct sparse *p, uint64_t i, uint64_t end, bool *ret_new)
{
	struct fill *f = find_fill(p, i);

	*ret_new = !f;
	if (f)
		return f;
	f = fill_new(object_of(p), FILL_CHUNKS);
	if (!f)
		return NULL;
	f->ops = &chunk_ops;
	f->sparse = p;
	choose(f, i, end);
	link_fill(f);
	return f;
}

/* A fetch() of a chunk_filler. */
static int fetch(void *ctx, uint64_t i, uint64_t end, struct object_wait *wait)
{
	struct sparse *p = ctx;
	struct object_store *s = object_of(p)->store;
	struct fill *f = NULL;
	bool new = false;
	int r = 0;

	pthread_mutex_lock(&p->lock);
	while (i < end && (chunked_is_verified(p->chunks, i) ||
			   (!find_fill(p, i) && !chunked_claim(p->chunks, i))))
		i++;
	if (i < end)
		r = find_fill(p, i) ? 0 : repeated(p, i);
	if (i < end && r == 0) {
		f = fill_for(p, i, end, &new);
		r = f ? -EINPROGRESS : -ENOMEM;
	}
	if (i < end && r != -EINPROGRESS)
		chunked_unclaim(p->chunks, i);
	pthread_mutex_lock(&s->lock);
	if (f) {
		object_of(p)->pins += new;
		waits_add(&f->waits, wait);
	}
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_unlock(&p->lock);
	if (new &&f)
		begin_chunks(f);
	return r;
}

/* ---- the sparse file ---- */

static void complete(void *ctx)
{
	object_complete(object_of(ctx));
}

static void publish(void *ctx)
{
	const struct sparse *p = ctx;

	file_publish(p->dest, object_of(p)->sha256);
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

static const struct chunk_filler filler = { fetch, complete, publish, sparse_free };

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
	/* one process at a time fills it, and the next mount goes on with what is there */
	if (r == 0)
		r = fill_open_chunks(o, file->size, &p->dest);
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
	p->bytes = (struct chunked_bytes){ bytes.source, 0, bytes.tags, o->store->tagger };
	chunked_set_filler(bytes.chunks, &filler, p);
	*ret = bytes;
	return 0;
}

/* ---- probing ---- */

static void probe_end(struct fill *f, int result)
{
	f->sparse = NULL;
	f->probed(f, result);
}

static void probe_got(struct get *g, int result, struct ingested *in)
{
	(void)in;
	probe_end(container_of(g, struct fill, get), result);
}

void sparse_probe(struct fill *f, void (*done)(struct fill *f, int result))
{
	struct sparse *p = chunked_filler(f->bytes.chunks);
	int r;

	f->probed = done;
	/* nobody else has these bytes yet, so the chunk need not be claimed */
	f->sparse = p;
	f->first = 0;
	f->end = 1;
	if (!f->object->store->options.fetch || lseek(p->bytes.source->fd, 0, SEEK_DATA) >= 0) {
		probe_end(f, 0);
		return;
	}
	r = ask(f, probe_got);
	if (r < 0)
		probe_end(f, r);
}
