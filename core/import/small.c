/* SPDX-License-Identifier: Apache-2.0 */
/* Small files: git names them by a hash of their own, so each is fetched once, and compared. */
#include <stdlib.h>

#include "base/budget.h"
#include "base/semaphore.h"
#include "cache/room.h"
#include "fetch/fetcher.h"
#include "import/internal.h"

/* fetches at once; each is in memory, so a file counts once more for each PART of its size */
#define PARALLEL 16
#define PART (2 * MIB)
#define IN_MEMORY (64 * MIB) /* larger sums of small files are kept on disk */
#define PROGRESS_MS 100

struct batch {
	const struct import *im;
	struct listing *l;
	struct semaphore free; /* how much of PARALLEL is not in use */
	_Atomic int error;     /* of the first that failed */
	_Atomic uint64_t done; /* bytes that are here */
	atomic_bool said;      /* why the hub refuses them */
};

struct one {
	struct batch *batch;
	struct listed *f;
	struct fetch_place place;
	char *url;
	struct file *dest;
};

static int take(struct one *o, uint64_t size)
{
	char *data = malloc(size + 1);
	int r = data ? file_read(o->dest, data, size, 0) : -ENOMEM;

	if (r == 0 && size != o->f->size)
		r = -EBADMSG;
	if (r == 0)
		r = listing_take(o->batch->l, o->f, data);
	if (r == -EBADMSG)
		carton_log(CARTON_LOG_ERROR, o->f->path,
			   "the hub sends other bytes than its listing of %s says",
			   o->batch->l->name);
	if (r == 0)
		kept_put_small(o->batch->im, o->f, data);
	free(data);
	return r;
}

/* How much of PARALLEL the fetch of a file uses. */
static unsigned parts_of(const struct listed *f)
{
	return (unsigned)(1 + f->size / PART);
}

static void give_back(struct batch *b, const struct listed *f)
{
	for (unsigned i = parts_of(f); i > 0; i--)
		semaphore_post(&b->free);
}

static void end(struct one *o, int result)
{
	struct batch *b = o->batch;
	int none = 0;

	if (result < 0)
		atomic_compare_exchange_strong(&b->error, &none, result);
	else
		atomic_fetch_add(&b->done, o->f->size);
	if (o->dest)
		file_abort(o->dest, false);
	route_finish(&o->place.route);
	free(o->url);
	give_back(b, o->f);
	free(o);
}

static void refused(void *ctx, const struct http_response *a)
{
	const struct one *o = ctx;

	if (!atomic_exchange(&o->batch->said, true))
		o->batch->l->lister->refused(o->batch->im, o->batch->l, a);
}

static void done(void *ctx, int result, uint64_t size)
{
	struct one *o = ctx;

	if (result < 0 && !atomic_load(&o->batch->said))
		carton_log(CARTON_LOG_ERROR, o->f->path, "cannot be fetched from %s: %s",
			   o->batch->l->name, strerror(-result));
	if (result == 0)
		result = take(o, size);
	end(o, result);
}

static void begin(struct batch *b, struct listed *f)
{
	struct one *o = calloc(1, sizeof(*o));
	struct fetch fetch = {
		.options = b->im->fetch,
		.cancel = b->im->fetch->cancel,
		.what = FETCH_FILE,
		.n_places = 1,
		.n = f->size,
		.max = f->size,
		.plain = true,
		.refused = refused,
		.done = done,
		.ctx = o,
	};
	int r;

	if (!o) {
		atomic_store(&b->error, -ENOMEM);
		give_back(b, f);
		return;
	}
	o->batch = b;
	o->f = f;
	route_init(&o->place.route);
	o->url = b->l->lister->url(b->l, f);
	r = o->url ? file_memory(f->size, &o->dest) : -ENOMEM;
	o->place.url = o->url;
	o->place.trust = HTTP_USER;
	fetch.places = &o->place;
	fetch.dest = o->dest;
	if (r == 0)
		r = fetch_start(&fetch);
	if (r < 0)
		end(o, r);
}

/* Takes `parts` of PARALLEL, once they are free. */
static void wait_for(struct batch *b, unsigned parts)
{
	while (parts > 0 && b->im->fetch) {
		fetch_show(b->im->fetch, atomic_load(&b->done), b->l->small);
		parts -= semaphore_wait(&b->free, now_ms() + PROGRESS_MS);
	}
}

static void get_all(struct batch *b, bool one)
{
	struct listing *l = b->l;
	uint64_t at = 0;

	for (size_t i = 0; i < l->n && atomic_load(&b->error) == 0; i++) {
		struct listed *f = &l->files[i];

		if (!f->small || !f->size)
			continue;
		f->at = at;
		at += f->size;
		if (kept_small(b->im, l, f) == 0) {
			b->done += f->size;
			if (one)
				break;
			continue;
		}
		if (!b->im->fetch) {
			atomic_store(&b->error, -ENETUNREACH);
			carton_log(CARTON_LOG_ERROR, f->path,
				   "is not in the cache, and nothing is fetched when offline");
			break;
		}
		wait_for(b, parts_of(f));
		begin(b, f);
		if (one)
			break;
	}
	wait_for(b, PARALLEL);
}

/* Opens l->bytes: in memory, or a file on disk if they are many. */
static int open_bytes(const struct import *im, struct listing *l)
{
	struct room room = { .name = l->name, .cache = im->cache, .size = l->small };
	int r;

	if (l->small > IN_MEMORY) {
		r = room_open(&room, &l->bytes);
		return r < 0 ? log_error(r, l->name,
					 "has %llu MiB of small files, for which neither the disk "
					 "of the cache has room nor TMPDIR or /var/tmp: %s",
					 (unsigned long long)(l->small / MIB), strerror(-r)) :
			       0;
	}
	r = budget_take(l->budget, l->small);
	if (r < 0)
		return r;
	l->taken += l->small;
	return file_memory(l->small, &l->bytes);
}

int import_small(const struct import *im, struct listing *l, bool one)
{
	const uint64_t under_way = MIN(l->small, PARALLEL * PART + MAX_LISTED_SMALL);
	struct batch b = { .im = im, .l = l };
	int r = open_bytes(im, l);

	if (r == 0)
		r = budget_take(l->budget, under_way);
	if (r < 0)
		return r;
	semaphore_init(&b.free, PARALLEL);
	get_all(&b, one);
	semaphore_finish(&b.free);
	budget_give(l->budget, under_way);
	return atomic_load(&b.error);
}
