/* SPDX-License-Identifier: Apache-2.0 */
/* Small files: git names them by a hash of their own, so each is fetched once, and compared. */
#include <stdlib.h>

#include "base/budget.h"
#include "base/semaphore.h"
#include "cache/file.h"
#include "fetch/fetcher.h"
#include "import/internal.h"

/* fetches at once */
#define PARALLEL 16
#define PROGRESS_MS 100

struct batch {
	const struct import *im;
	struct listing *l;
	struct semaphore free; /* of PARALLEL */
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
		r = listing_take(o->f, data);
	if (r == -EBADMSG)
		carton_log(CARTON_LOG_ERROR, o->f->path,
			   "the hub sends other bytes than its listing of %s says",
			   o->batch->l->name);
	if (r < 0)
		free(data);
	else
		kept_put_small(o->batch->im, o->f);
	return r;
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
	free(o);
	semaphore_post(&b->free);
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
		semaphore_post(&b->free);
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

/* Waits until one more may begin. */
static void wait_for_one(struct batch *b)
{
	do {
		fetch_show(b->im->fetch, atomic_load(&b->done), b->l->small);
	} while (!semaphore_wait(&b->free, now_ms() + PROGRESS_MS));
}

int import_small(const struct import *im, struct listing *l)
{
	struct batch b = { .im = im, .l = l };
	int r = budget_take(l->budget, 2 * l->small);

	if (r < 0)
		return r;
	l->taken += 2 * l->small;
	semaphore_init(&b.free, PARALLEL);
	for (size_t i = 0; i < l->n && atomic_load(&b.error) == 0; i++) {
		if (!l->files[i].small)
			continue;
		if (kept_small(im, &l->files[i]) == 0) {
			b.done += l->files[i].size;
			continue;
		}
		wait_for_one(&b);
		begin(&b, &l->files[i]);
	}
	for (size_t i = 0; i < PARALLEL; i++)
		wait_for_one(&b);
	semaphore_finish(&b.free);
	return atomic_load(&b.error);
}
