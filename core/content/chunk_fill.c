/* SPDX-License-Identifier: Apache-2.0 */
#include "content/chunk_fill.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/pace.h"
#include "base/util.h"
#include "http/http.h"
#include "content/internal.h"

/*
 * a chunk of another process may stay as it is for a part of the timeout, so that time is left to
 * fetch it; not all who wait take the same
 */
#define PATIENCE_SHARE 4

/* The bytes [*ret_off, *ret_off + n) of the fill's chunks; returns n. */
static uint64_t range_of(const struct fill *f, uint64_t *ret_off)
{
	const struct chunks_file *file = f->sparse->file;

	*ret_off = f->first * file->chunk_size;
	return MIN(f->end * file->chunk_size, file->size) - *ret_off;
}

/* ---- what comes ---- */

/* Begins those that are held, as far as they may by now. */
static void begin_held(struct sparse *p)
{
	struct fill *f;

	while ((f = choice_next(p)))
		chunk_fill_begin(f);
}

/* The first bytes of the fill are there. */
static void note_answer(struct fill *f)
{
	struct sparse *p = f->sparse;
	bool early;

	f->answered = true;
	if (f->what != FILL_CHUNKS)
		return;
	rates_answered(f->server, (uint64_t)MAX(now_us() - f->began_us, 1));
	early = !atomic_exchange(&p->answered, true);
	begin_held(p);
	if (early)
		p->go_on(p);
}

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
			   object_name(sparse_object(p)), from, to);
	else if (i == p->plan->n_urls && !atomic_exchange(&p->logged, true))
		carton_log(CARTON_LOG_ERROR, object_name(sparse_object(p)),
			   "bytes %llu to %llu do not have the sha256 that " CHUNKS_PATH
			   " says; get the carton again",
			   from, to);
}

/*
 * All chunks of the object are verified: that is made known; while it is probed, once the object
 * has these bytes. 0 or -ENOMEM.
 */
static int complete(struct fill *f)
{
	f->complete = false;
	if (f->what == FILL_ALL)
		return object_new_hash_job(f->object, f->bytes.chunks, &f->hash_job);
	object_start_hash(f->object);
	return 0;
}

/* Chunk `i` of the fill is in the file: 0, or as chunked_verify(). */
static int verify(struct fill *f, uint64_t i)
{
	struct sparse *p = f->sparse;
	int r = chunked_is_verified(p->chunks, i) ? 0 : chunked_verify(p->chunks, i);

	f->complete |= r == 1;
	if (r >= 0)
		sparse_give(p, i);
	return MIN(r, 0);
}

/*
 * Those whose chunks are there up to chunk `end`, or the fill's, look at them: they come again if
 * others are not. With both locks: nobody joins who has not seen what is verified.
 */
static void wake_readers(struct fill *f, uint64_t end)
{
	struct object_wait *waits;

	if (f->what != FILL_CHUNKS)
		return;
	pthread_mutex_lock(&f->sparse->lock);
	pthread_mutex_lock(&f->object->store->lock);
	waits = waits_take_until(&f->waits, end < f->end ? end : UINT64_MAX);
	pthread_mutex_unlock(&f->object->store->lock);
	pthread_mutex_unlock(&f->sparse->lock);
	waits_end(waits, 0);
}

/* How many bytes of the fill there are up to the end of chunk `i`. */
static uint64_t end_of(const struct fill *f, uint64_t i)
{
	const struct chunks_file *file = f->sparse->file;

	return MIN((i + 1) * file->chunk_size, file->size) - f->get.off;
}

/*
 * A settle() of a get: verifies each chunk when it is there, once in each try. Wrong ones are left
 * to check(), and the last: who waits for it asks for more, over the connection of this request.
 */
static uint64_t settle(void *get, uint64_t arrived)
{
	const struct get *g = get;
	struct fill *f = container_of(g, struct fill, get);
	uint64_t i = f->settled;

	if (arrived > 0 && !f->answered)
		note_answer(f);
	/* another try begins behind what is settled */
	if (arrived < f->looked)
		f->looked = i > f->first ? end_of(f, i - 1) : 0;
	if (arrived > f->looked) {
		choice_came(f, arrived - f->looked);
		if (f->what == FILL_CHUNKS)
			rates_came(f->server, arrived - f->looked, (uint64_t)now_us());
	}
	while (i + 1 < f->end && end_of(f, i) <= arrived && end_of(f, i) > f->looked &&
	       verify(f, i) == 0)
		i++;
	f->looked = MAX(f->looked, arrived);
	if (i > f->settled) {
		f->settled = i;
		wake_readers(f, i);
	}
	return i > f->first ? end_of(f, i - 1) : 0;
}

/* A check() of a get: all chunks are in the file. */
static int check(struct get *g, const char *url)
{
	struct fill *f = container_of(g, struct fill, get);
	struct sparse *p = f->sparse;
	bool bad = false;

	for (uint64_t i = f->settled; i < f->end; i++) {
		int r = verify(f, i);

		if (r < 0 && r != -EBADMSG)
			return r;
		if (r == -EBADMSG && !bad)
			f->bad = i;
		bad |= r == -EBADMSG;
	}
	if (bad) {
		note_bad(f, url);
		return -EBADMSG;
	}
	plan_drop_mirrors(p->plan, plan_index(p->plan, url));
	choice_served(p, url);
	return f->complete ? complete(f) : 0;
}

/* Only the chunk that was wrong is still wanted: what is verified must not be written to again. */
static int keep_bad(struct get *g)
{
	struct fill *f = container_of(g, struct fill, get);
	struct sparse *p = f->sparse;

	pthread_mutex_lock(&p->lock);
	for (uint64_t i = f->first; i < f->end; i++)
		if (i != f->bad)
			sparse_unclaim(p, i);
	f->first = f->settled = f->bad;
	f->end = f->bad + 1;
	f->looked = 0;
	pthread_mutex_unlock(&p->lock);
	/* the others are there */
	wake_readers(f, f->end);
	g->n = range_of(f, &g->off);
	return 0;
}

/* ---- one fill ---- */

static void end(struct fill *f, int result)
{
	if (result == -EBADMSG || result == -EOPNOTSUPP) {
		if (f->sparse->plan->link)
			object_distrust(f->object);
		/* a server, or the index, is wrong: the whole says which, to later mounts, too */
		if (f->sparse->plan->link && result == -EBADMSG)
			doubt_keep(f->object);
		/* the server sent wrong bytes; the file is good: another attempt may succeed */
		result = -EIO;
	}
	fill_done(f, result);
}

static void probe_end(struct fill *f, int result)
{
	sparse_give(f->sparse, 0);
	f->sparse = NULL;
	f->probed(f, result);
}

static void leave(struct fill *f, int result)
{
	if (f->what == FILL_ALL)
		probe_end(f, result);
	else
		end(f, result);
}

/* Makes room for the chunks, on the disk of the file or in a second file. 0 or -ENOSPC. */
static int find_room(struct fill *f)
{
	struct sparse *p = f->sparse;
	struct object *o = sparse_object(p);
	/* chunks that nobody waits for displace no copies, */
	int r = f->spilled ? -ENOSPC :
			     file_make_room(p->dest, f->get.n, object_name(o),
					    f->ahead ? NULL : keep_drop_copies, o->store);

	/* and begin no second file */
	if (r < 0 && (!f->ahead || file_has_spilled(p->dest)))
		r = file_spill(p->dest, f->get.off, f->get.n);
	return r;
}

/* Gives back the room of what is behind `settled`: it has not come, or is wrong. */
static void give_room(struct fill *f)
{
	uint64_t came = f->settled > f->first ? end_of(f, f->settled - 1) : 0;

	if (!f->spilled)
		file_give_room(f->sparse->dest, f->get.n - came);
}

static void got(struct get *g, int result, struct ingested *in);

/* Asks the network for the fill's chunks. 0; or -errno, and then got() is not called. */
static int ask(struct fill *f)
{
	struct sparse *p = f->sparse;
	int r;

	f->get = (struct get){
		.plan = p->plan,
		.waits = &f->waits,
		.dest = p->dest,
		.size = p->file->size,
		.check = check,
		.settle = settle,
		.again = keep_bad,
		.done = got,
	};
	f->get.n = range_of(f, &f->get.off);
	f->looked = 0;
	r = find_room(f);
	atomic_store(&p->full, r < 0 && f->ahead);
	if (r < 0 && f->ahead)
		r = -ECANCELED;
	f->ahead = false;
	if (r < 0)
		return r;
	r = get_start(&f->get);
	if (r < 0)
		give_room(f);
	return r;
}

/* When it is begun again, what is verified is no longer its own: that is not written to again. */
static void release_settled(struct fill *f)
{
	struct sparse *p = f->sparse;

	pthread_mutex_lock(&p->lock);
	for (; f->first < f->settled; f->first++)
		sparse_unclaim(p, f->first);
	pthread_mutex_unlock(&p->lock);
}

/* Nobody else fetches its chunks, or does not proceed: verifies the first, or fetches all. */
static void fetch_chunks(struct fill *f)
{
	struct sparse *p = f->sparse;
	int r;

	/* it may have come since a reader looked */
	if (!chunked_is_hole(p->chunks, f->first) && verify(f, f->first) == 0) {
		f->settled = f->first + 1;
		wake_readers(f, f->settled);
		release_settled(f);
	}
	if (f->first == f->end) {
		leave(f, f->complete ? complete(f) : 0);
		return;
	}
	f->began_us = now_us();
	r = ask(f);
	if (r < 0)
		leave(f, r);
}

/* A look() of struct other. */
static int look(struct other *o, uint64_t *ret_at)
{
	struct fill *f = container_of(o, struct fill, other);
	struct sparse *p = f->sparse;
	uint64_t off, n = range_of(f, &off);
	off_t hole = lseek(p->fd, (off_t)off, SEEK_HOLE);

	if (sparse_take(p, f->first))
		return 0;
	*ret_at = hole < 0 ? 0 : MIN((uint64_t)hole - off, n);
	if (*ret_at > o->at)
		choice_came(f, *ret_at - o->at);
	/* all of it has come, and is right, whoever keeps it */
	return *ret_at == n && o->at < n && verify(f, f->first) == 0 ? 0 : -EAGAIN;
}

static void other_done(struct other *o, int result)
{
	struct fill *f = container_of(o, struct fill, other);

	if (result == -ECANCELED)
		leave(f, result);
	else
		fetch_chunks(f);
}

static void begin(struct fill *f)
{
	int64_t patience_ms = f->object->store->options.timeout_ms;

	if (sparse_take(f->sparse, f->first)) {
		fetch_chunks(f);
		return;
	}
	atomic_store(&f->sparse->answered, true);
	begin_held(f->sparse);
	patience_ms = (patience_ms ? patience_ms : pace.timeout_ms) / PATIENCE_SHARE;
	f->other = (struct other){
		.waits = &f->waits,
		.patience_ms = patience_ms + patience_ms * (now_us() % 8) / 8,
		.look = look,
		.done = other_done,
	};
	other_wait(&f->other);
}

void chunk_fill_begin(struct fill *f)
{
	release_settled(f);
	if (f->first == f->end)
		end(f, f->complete ? complete(f) : 0);
	else
		begin(f);
}

/*
 * A done() of a get. If the disk is full in spite of find_room(), for example by a quota, the rest
 * goes to the second file. That is tried once.
 */
static void got(struct get *g, int result, struct ingested *in)
{
	struct fill *f = container_of(g, struct fill, get);

	(void)in;
	if (result < 0)
		give_room(f);
	if (room_is_full(result) && !f->spilled) {
		f->spilled = true;
		release_settled(f);
		fetch_chunks(f);
		return;
	}
	leave(f, result);
}

static void lock_chunks(struct fill *f)
{
	pthread_mutex_lock(&f->sparse->lock);
}

static void unlock_chunks(struct fill *f)
{
	pthread_mutex_unlock(&f->sparse->lock);
}

/* Chunks that one waits for could not be fetched, which the kernel is told twice. Lock held. */
static void note_failed(struct fill *f, const struct object_wait *w, int error)
{
	struct sparse *p = f->sparse;

	for (uint64_t i = w->first; i < w->end; i++)
		p->failed[i / 8] |= (unsigned char)(1 << (i % 8));
	p->failed_ms = now_ms();
	p->error = error;
}

void chunk_fill_expired(struct waits *waits, const struct object_wait *w)
{
	note_failed(container_of(waits, struct fill, waits), w, -ETIMEDOUT);
}

static void take_chunks(struct fill *f, int result)
{
	struct sparse *p = f->sparse;

	for (uint64_t i = f->first; i < f->end; i++)
		sparse_unclaim(p, i);
	/* what nobody has waited for is asked for again by who does */
	for (const struct object_wait *w = f->waits.first; w && result < 0; w = w->next)
		if (result != -ECANCELED)
			note_failed(f, w, result);
	*f->link = f->next;
	if (f->next)
		f->next->link = f->link;
	p->n_fills--;
	rates_ended(f->server);
	f->object->fill_pins--;
	if (result < 0)
		ahead_failed(&p->ahead, f->settled);
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
static void ended(struct object *o, int result)
{
	struct sparse *p = chunked_filler(o->bytes.chunks);

	begin_held(p);
	if (result == 0)
		p->go_on(p);
	object_put(o);
}

const struct fill_ops chunk_fill_ops = {
	chunk_fill_begin, lock_chunks, unlock_chunks, take_chunks, report_chunks, ended,
};

/* ---- probing ---- */

void chunk_fill_probe(struct fill *f, void (*done)(struct fill *f, int result))
{
	struct sparse *p = chunked_filler(f->bytes.chunks);

	f->probed = done;
	/* nobody else here has these bytes yet */
	f->sparse = p;
	f->first = f->settled = 0;
	f->end = 1;
	f->complete = false;
	if (!f->object->store->options.fetch || lseek(p->fd, 0, SEEK_DATA) >= 0) {
		probe_end(f, 0);
		return;
	}
	begin(f);
}
