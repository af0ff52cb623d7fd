/* SPDX-License-Identifier: Apache-2.0 */
#include "writer/pack.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "archive/decode.h"
#include "base/ingest.h"
#include "base/util.h"
#include "writer/content.h"

#define SMALL CHOOSE_LARGE /* up to here a file is prepared in memory */
#define AHEAD 256	   /* items prepared before their turn */
#define PROGRESS_MS 100

struct run {
	struct pack_job *job;
	unsigned threads;
	uint64_t max_held;
	_Atomic uint64_t done;
	int64_t shown_ms; /* when progress was reported last */

	pthread_mutex_t lock;	/* guards what follows */
	pthread_cond_t work;	/* there is something to prepare or fill, or all is done */
	pthread_cond_t moved;	/* something was prepared or filled, or failed */
	size_t next;		/* the next item to prepare */
	size_t at;		/* the item to place */
	uint64_t held;		/* bytes of prepared items */
	struct pack_item *head; /* items to fill */
	struct pack_item **tail;
	size_t filling; /* items to fill, and those under way */
	int error;
	bool over;
};

static unsigned level_of(const struct pack_job *job)
{
	return job->level ? job->level : ENCODE_LEVEL;
}

/* ---- prepare ---- */

/* Is it prepared in memory? Else there is nothing to prepare. */
static bool in_memory(const struct pack_item *item)
{
	return !item->literal && item->choice != CHOOSE_COPY && item->zip.size <= SMALL;
}

/* The memory that an item takes from when it is prepared until it is placed. */
static uint64_t cost(const struct pack_item *item)
{
	return in_memory(item) ? 2 * item->zip.size : 0;
}

/*
 * Compresses the loaded bytes. Keeps the compressed or the plain bytes, by the choice for the item.
 */
static int compress(struct pack_item *item, struct encoder *e)
{
	size_t n = (size_t)item->zip.size, packed;
	void *out = malloc((size_t)encode_bound(n));
	int r = out ? encoder_block(e, item->data, n, out, &packed) : -ENOMEM;

	if (r == 0 && item->choice == CHOOSE_SHRINK)
		item->choice = choose_shrinks(n, packed) ? CHOOSE_ZSTD : CHOOSE_STORE;
	if (r < 0 || item->choice == CHOOSE_STORE) {
		free(out);
		return r;
	}
	free(item->data);
	item->data = out;
	item->zip.stored = packed;
	return 0;
}

/* ---- fill ---- */

static struct content content_of(struct run *run, struct pack_item *item)
{
	return (struct content){ .job = run->job, .item = item, .done = &run->done };
}

/*
 * Does content.c read, hash and write the item, in memory or in its place? Then each byte is read
 * once.
 */
static bool is_stored(const struct run *run, const struct pack_item *item)
{
	return item->choice != CHOOSE_COPY ||
	       (run->job->chunks && item->zip.size > CHUNKS_MIN_FILE &&
		item->zip.method == METHOD_STORED);
}

static int copy(struct run *run, struct pack_item *item)
{
	struct content c = content_of(run, item);
	int r = 0;

	if (run->job->chunks && item->zip.size > CHUNKS_MIN_FILE)
		r = content_digest(&c);
	return r < 0 ? r : content_copy(&c);
}

static int put_header(struct run *run, struct pack_item *item)
{
	int r = zip_writer_header(&run->job->zip, &item->zip);

	return r < 0 ? content_write_error(run->job, r) : 0;
}

/* ---- threads ---- */

struct worker {
	struct run *run;
	struct encoder *encoder;
	struct pack_item *first; /* is next, or NULL */
};

/* The next item that may be prepared now, or NULL. Lock held. */
static struct pack_item *to_prepare(struct run *run)
{
	struct pack_item *items = run->job->items;

	while (run->next < run->job->n && items[run->next].ready)
		run->next++;
	if (run->next >= run->job->n || run->next >= run->at + AHEAD)
		return NULL;
	if (run->held > 0 && run->held + cost(&items[run->next]) > run->max_held)
		return NULL;
	return &items[run->next];
}

/*
 * May it be read with others? Not if other threads would have nothing to do meanwhile, or if the
 * others might wait for it.
 */
static bool has_partners(const struct pack_item *item)
{
	return item->crowded && item->plain;
}

/* Takes what is next to fill or else to prepare; NULL: there is nothing now. Lock held. */
static struct pack_item *take(struct run *run, bool partner)
{
	struct pack_item *item = run->head ? run->head : to_prepare(run);

	if (!item || run->error < 0 || run->over || (partner && !has_partners(item)))
		return NULL;
	if (item == run->head) {
		run->head = item->next;
		if (!run->head)
			run->tail = &run->head;
	} else {
		run->next++;
		run->held += cost(item);
	}
	return item;
}

/* Its content was stored, or copied: ends it. */
static void end_item(struct worker *w, struct pack_item *item, int r)
{
	struct run *run = w->run;

	if (r == 0 && item->ready)
		r = put_header(run, item);
	else if (r == 0 && item->choice != CHOOSE_STORE)
		r = compress(item, w->encoder);
	pthread_mutex_lock(&run->lock);
	if (item->ready)
		run->filling--;
	item->ready = true;
	if (r < 0 && run->error == 0)
		run->error = r;
	pthread_cond_signal(&run->moved);
	pthread_mutex_unlock(&run->lock);
}

/* Begins an item. False: it is over, as there is nothing to store. */
static bool begin_item(struct worker *w, struct pack_item *item)
{
	if (!item->ready) {
		item->zip.stored = item->zip.size;
		item->data = malloc(item->zip.size ? item->zip.size : 1);
		if (!item->data)
			end_item(w, item, -ENOMEM);
		return item->data;
	}
	if (is_stored(w->run, item))
		return true;
	end_item(w, item, copy(w->run, item));
	return false;
}

/* Takes the item that the worker begins with, then partners. */
static struct pack_item *take_partner(struct worker *w)
{
	struct pack_item *item = w->first;

	w->first = NULL;
	if (item)
		return item;
	pthread_mutex_lock(&w->run->lock);
	item = take(w->run, true);
	pthread_mutex_unlock(&w->run->lock);
	return item;
}

static bool next_partner(void *worker, struct content *ret)
{
	struct worker *w = worker;
	struct pack_item *item;

	while ((item = take_partner(w)))
		if (begin_item(w, item)) {
			*ret = content_of(w->run, item);
			return true;
		}
	return false;
}

static void partner_done(void *worker, const struct content *c, int r)
{
	end_item(worker, c->item, r);
}

/* Fills or prepares an item, and others beside it. */
static void work_on(struct worker *w, struct pack_item *item)
{
	struct content c = content_of(w->run, item);

	if (has_partners(item)) {
		w->first = item;
		content_store_several(&(struct content_queue){ w, next_partner, partner_done });
	} else if (begin_item(w, item)) {
		end_item(w, item, content_store(&c));
	}
}

static void *work(void *arg)
{
	struct worker w = { .run = arg };
	struct run *run = w.run;
	int r = encoder_new(level_of(run->job), 0, &w.encoder);

	pthread_mutex_lock(&run->lock);
	if (r < 0) {
		run->error = r;
		pthread_cond_signal(&run->moved);
	}
	while (run->error == 0 && !run->over) {
		struct pack_item *item = take(run, false);

		if (!item) {
			pthread_cond_wait(&run->work, &run->lock);
			continue;
		}
		pthread_mutex_unlock(&run->lock);
		work_on(&w, item);
		pthread_mutex_lock(&run->lock);
	}
	pthread_mutex_unlock(&run->lock);
	encoder_free(w.encoder);
	return NULL;
}

static void tick(void *ctx)
{
	struct run *run = ctx;
	int64_t now = now_ms();

	if (!run->job->progress || now - run->shown_ms < PROGRESS_MS)
		return;
	run->shown_ms = now;
	run->job->progress(run->job->progress_ctx, atomic_load(&run->done));
}

/* Waits a moment for something to move. Lock held. */
static void wait_moved(struct run *run)
{
	struct timespec until = ms_to_timespec(now_ms() + PROGRESS_MS);

	if (pthread_cond_timedwait(&run->moved, &run->lock, &until) == ETIMEDOUT) {
		pthread_mutex_unlock(&run->lock);
		tick(run);
		pthread_mutex_lock(&run->lock);
	}
}

/* ---- place ---- */

/* An item whose bytes are in memory. */
static int put_prepared(struct run *run, struct pack_item *item)
{
	struct zip_writer *w = &run->job->zip;
	const void *data = item->literal ? item->literal : item->data;
	int r;

	if (item->literal) {
		item->zip.stored = item->zip.size;
		item->zip.crc = crc32_update(0, data, (size_t)item->zip.size);
	}
	zip_writer_place(w, &item->zip, item->zip.stored);
	r = pwrite_full(w->fd, data, (size_t)item->zip.stored, item->zip.data);
	if (r == 0)
		r = zip_writer_header(w, &item->zip);
	if (r < 0)
		content_write_error(run->job, r);
	free(item->data);
	item->data = NULL;
	return r;
}

/* A large file: libzstd uses all threads. */
static int put_encoded(struct run *run, struct pack_item *item)
{
	struct zip_writer *w = &run->job->zip;
	struct content c = { run->job, item, &run->done, tick, run };
	struct encoder *e;
	int r = encoder_new(level_of(run->job), run->threads, &e);

	if (r < 0)
		return r;
	zip_writer_place(w, &item->zip, encode_bound(item->zip.size));
	r = content_encode(&c, e);
	encoder_free(e);
	if (r < 0)
		return r;
	w->at = item->zip.data + item->zip.stored;
	r = zip_writer_header(w, &item->zip);
	return r < 0 ? content_write_error(run->job, r) : 0;
}

/* Places an item of known size for the workers to fill. */
static void submit(struct run *run, struct pack_item *item)
{
	const struct entry *e = item->choice == CHOOSE_COPY ? item->entry : NULL;

	if (e)
		item->zip.crc = e->crc;
	zip_writer_place(&run->job->zip, &item->zip, e ? e->stored : item->zip.size);
	pthread_mutex_lock(&run->lock);
	item->next = NULL;
	*run->tail = item;
	run->tail = &item->next;
	run->filling++;
	pthread_cond_signal(&run->work);
	pthread_mutex_unlock(&run->lock);
}

static int place(struct run *run, struct pack_item *item)
{
	item->zip.method = item->literal || item->choice == CHOOSE_STORE ? METHOD_STORED :
			   item->choice == CHOOSE_COPY			 ? item->entry->method :
									   METHOD_ZSTD;
	if (item->literal || item->data)
		return put_prepared(run, item);
	if (item->choice == CHOOSE_ZSTD)
		return put_encoded(run, item);
	submit(run, item);
	return 0;
}

static int place_all(struct run *run)
{
	struct pack_job *job = run->job;
	int r = 0;

	pthread_mutex_lock(&run->lock);
	for (; run->at < job->n && r == 0;) {
		struct pack_item *item = &job->items[run->at];

		while (!item->ready && run->error == 0)
			wait_moved(run);
		r = run->error;
		if (r < 0)
			break;
		pthread_mutex_unlock(&run->lock);
		r = place(run, item);
		pthread_mutex_lock(&run->lock);
		run->held -= cost(item);
		run->at++;
		pthread_cond_broadcast(&run->work);
	}
	if (run->error == 0)
		run->error = r;
	while (run->filling > 0 && run->error == 0)
		wait_moved(run);
	run->over = true;
	r = run->error;
	pthread_cond_broadcast(&run->work);
	pthread_mutex_unlock(&run->lock);
	return r;
}

int pack_run(struct pack_job *job)
{
	uint64_t per_thread = encode_memory(level_of(job)) + 4 * SMALL, behind = 0;
	struct run run = { .job = job };
	struct pack_item *items = job->items;
	pthread_t *threads;
	unsigned n = 0;
	int r = 0;

	run.threads = (unsigned)MAX(MIN((uint64_t)job->threads, job->memory / per_thread), 1);
	run.max_held = run.threads * 2 * SMALL;
	run.tail = &run.head;
	for (size_t i = job->n; i-- > 0; behind += items[i].zip.size) {
		items[i].crowded = ingest_crowded(items[i].zip.size, behind, run.threads);
		items[i].choice = choose(job->compress, job->level != 0, items[i].zip.size,
					 items[i].entry);
		items[i].ready = !in_memory(&items[i]);
	}
	threads = calloc(run.threads, sizeof(*threads));
	if (!threads)
		return -ENOMEM;
	pthread_mutex_init(&run.lock, NULL);
	pthread_cond_init(&run.work, NULL);
	cond_init(&run.moved);
	for (; n < run.threads && r == 0; n += r == 0)
		r = thread_start(&threads[n], work, &run);
	/* if a thread cannot be started, the others take longer */
	r = n ? place_all(&run) : r;
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < job->n; i++) {
		free(items[i].data);
		items[i].data = NULL;
	}
	if (r == 0 && job->progress)
		job->progress(job->progress_ctx, atomic_load(&run.done));
	pthread_cond_destroy(&run.moved);
	pthread_cond_destroy(&run.work);
	pthread_mutex_destroy(&run.lock);
	free(threads);
	return r;
}

static int compare_names(const void *name, const void *item)
{
	return strcmp(name, ((const struct pack_item *)item)->zip.name);
}

uint8_t (*pack_tags_of(const struct pack_tags *made, const struct entry *e))[TAG_SIZE]
{
	const struct pack_item *item = made ? bsearch(e->name, made->items, made->n, sizeof(*item),
						      compare_names) :
					      NULL;

	return item && item->zip.size == e->size ? item->tags : NULL;
}
