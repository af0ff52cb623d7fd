/* SPDX-License-Identifier: Apache-2.0 */
#include "object/derived.h"

#include <stdlib.h>

#include "base/util.h"
#include "object/internal.h"

struct derived {
	struct object object;
	object_derive_fn *derive;
	void *ctx;
	struct object *of; /* what it is made of; NULL: nothing that can be damaged later */
};

static struct derived *derived_of(const struct object *o)
{
	return container_of(o, struct derived, object);
}

/* An attempt, which may run several times: once more for each object that it has to wait for. */
struct derivation {
	struct fill *fill;
	uint64_t number;
	struct job job; /* runs it again */
	struct object_wait wait;
	struct object *needed; /* NULL: none */
	bool known;	       /* the result of the wait; with 0, `needed` is pinned */
	int result;
	struct object *read; /* pinned; what of it has to be fetched; NULL: nothing */
	uint64_t off;
	size_t n;
	int error; /* of the last fetch */
};

/* Forgets the object that was waited for. */
static void forget(struct derivation *d)
{
	if (d->known && d->result == 0)
		object_put(d->needed);
	d->needed = NULL;
	d->known = false;
}

static void forget_read(struct derivation *d)
{
	if (d->read)
		object_put(d->read);
	d->read = NULL;
}

uint64_t fill_number(const struct fill *m)
{
	return m && m->derivation ? m->derivation->number : 0;
}

int fill_need(struct fill *m, struct object *o)
{
	struct derivation *d = m ? m->derivation : NULL;
	int r;

	if (!d)
		return object_get_wait(o);
	if (d->known && d->needed == o) {
		d->known = false;
		d->needed = NULL;
		return d->result;
	}
	forget(d);
	r = object_get(o, NULL);
	if (r != -EAGAIN)
		return r;
	/*
	 * The wait begins when the derive function has returned: it may hold locks and has to clean
	 * up.
	 */
	d->needed = o;
	return -EINPROGRESS;
}

int fill_read(struct fill *m, struct object *o, void *ret_buf, size_t n, uint64_t off)
{
	struct derivation *d = m ? m->derivation : NULL;
	int r;

	if (!d)
		return object_read_wait(o, ret_buf, n, off);
	r = object_read(o, ret_buf, n, off, false);
	if (r != -EINPROGRESS)
		return r;
	/* others may have been fetched, but not these */
	if (d->error)
		return d->error;
	forget_read(d);
	r = object_get(o, NULL);
	if (r < 0)
		return r;
	d->read = o;
	d->off = off;
	d->n = n;
	return -EINPROGRESS;
}

/* Waits for what the derive function needs. -EINPROGRESS: `d` may be gone already. */
static int begin_wait(struct derivation *d)
{
	if (d->read && !d->needed)
		return object_fetch(d->read, d->off, d->n, &d->wait);
	return object_get(d->needed, &d->wait);
}

/* It has ended. */
static void end_wait(struct derivation *d, int result)
{
	if (d->needed) {
		d->result = result;
		d->known = true;
	} else {
		d->error = result;
	}
}

/* Runs the derive function until it is done, or an object has to be waited for. */
static void run_derivation(struct derivation *d)
{
	struct fill *m = d->fill;
	const struct derived *of = derived_of(m->object);
	int r;

	while ((r = cancel_fired(&m->waits.cancel) ? -ECANCELED : of->derive(of->ctx, m)) ==
	       -EINPROGRESS) {
		r = begin_wait(d);
		if (r == -EINPROGRESS)
			return;
		end_wait(d, r);
	}
	forget(d);
	forget_read(d);
	free(d);
	fill_done(m, r);
}

static void derive_again(struct job *job)
{
	run_derivation(container_of(job, struct derivation, job));
}

static void needed_done(struct object_wait *wait, int result)
{
	struct derivation *d = container_of(wait, struct derivation, wait);

	end_wait(d, result);
	workers_submit(d->fill->object->store->options.workers, &d->job, LANE_VIEWS);
}

static void derived_get(struct fill *m)
{
	static _Atomic uint64_t last;
	struct derivation *d = malloc(sizeof(*d));

	if (!d) {
		fill_done(m, -ENOMEM);
		return;
	}
	*d = (struct derivation){
		.fill = m,
		.number = ++last,
		.job.run = derive_again,
		.wait.done = needed_done,
	};
	m->derivation = d;
	run_derivation(d);
}

static enum lane derived_lane(const struct object *o)
{
	(void)o;
	return LANE_VIEWS;
}

static void derived_free(struct object *o)
{
	free(derived_of(o));
}

static const struct object_ops derived_ops = {
	.get_bytes = derived_get,
	.get_size = derived_get,
	.lane = derived_lane,
	.free = derived_free,
	.may_wait = true,
};

int object_add_derived(struct object_store *s, const char *name, uint64_t size,
		       object_derive_fn *derive, void *ctx, struct object **ret)
{
	struct derived *d = malloc(sizeof(*d));

	if (!d)
		return -ENOMEM;
	*d = (struct derived){
		.object = { .ops = &derived_ops, .name = name, .size = size },
		.derive = derive,
		.ctx = ctx,
	};
	return store_add_derived(s, &d->object, ret);
}

void object_depend(struct object *derived, struct object *of)
{
	derived_of(derived)->of = of;
}

bool object_made_of(const struct object *o, const struct object *of)
{
	return o->ops == &derived_ops && derived_of(o)->of == of;
}

/* ---- output ---- */

int output_begin(struct output *out, struct fill *m, uint64_t size)
{
	struct object_store *s = m->object->store;
	struct room room = {
		.cache = s->options.cache,
		.size = size,
		.drop = keep_drop_idle,
		.ctx = s,
	};
	int r;

	*out = (struct output){ .fill = m, .size = size };
	if (object_claim_memory(s, size)) {
		out->memory = malloc((size_t)size + 1);
		if (out->memory)
			return 0;
		object_unclaim_memory(s, size);
		return -ENOMEM;
	}
	r = room_open(&room, &out->dest);
	if (r == 0)
		r = hasher_begin(&out->hasher, s->tagger, false);
	if (r < 0)
		dest_abort(out->dest, false);
	return r;
}

int output_write(void *output, const void *data, size_t n)
{
	struct output *out = output;
	int r = 0;

	if (cancel_fired(&out->fill->waits.cancel))
		return -ECANCELED;
	if (n > out->size - out->done)
		return -EBADMSG;
	if (out->memory) {
		memcpy(out->memory + out->done, data, n);
	} else {
		r = dest_write(out->dest, data, n, out->done);
		if (r == 0)
			r = hasher_feed(&out->hasher, data, n);
	}
	out->done += n;
	waits_progress(&out->fill->waits, n);
	return r;
}

static int end_memory(struct output *out, int result)
{
	struct fill *m = out->fill;

	if (result < 0) {
		free(out->memory);
		object_unclaim_memory(m->object->store, out->size);
		return result;
	}
	m->bytes = (struct bytes){ .kind = BYTES_MEMORY, .memory = out->memory };
	return 0;
}

static int end_file(struct output *out, int result)
{
	struct fill *m = out->fill;
	struct ingested in = { 0 };
	struct source *source;

	if (result < 0) {
		hasher_abort(&out->hasher);
		dest_abort(out->dest, false);
		return result;
	}
	result = hasher_end(&out->hasher, &in);
	if (result < 0) {
		dest_abort(out->dest, false);
		return result;
	}
	result = dest_commit(out->dest, NULL, out->size, &source);
	if (result < 0) {
		free(in.tags);
		return result;
	}
	m->bytes = (struct bytes){ .kind = BYTES_FILE, .source = source, .tags = in.tags };
	m->copied = true;
	return 0;
}

int output_end(struct output *out, int result)
{
	if (result == 0 && out->done != out->size)
		result = -EBADMSG;
	out->fill->size = out->size;
	return out->memory ? end_memory(out, result) : end_file(out, result);
}
