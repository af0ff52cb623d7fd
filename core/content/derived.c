/* SPDX-License-Identifier: Apache-2.0 */
#include "content/derived.h"

#include <stdlib.h>

#include "base/util.h"
#include "content/internal.h"

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

static void derived_get(struct fill *f)
{
	const struct derived *d = derived_of(f->object);

	fill_done(f, d->derive(d->ctx, f));
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

/* ---- the bytes ---- */

int derived_begin(struct derived_file *out, struct fill *f, uint64_t size)
{
	struct object_store *s = f->object->store;
	struct room room = {
		.cache = s->options.cache,
		.size = size,
		.drop = keep_drop_copies,
		.ctx = s,
	};
	int r;

	*out = (struct derived_file){ .fill = f, .size = size };
	if (object_take_memory(s, size)) {
		out->memory = malloc((size_t)size + 1);
		if (out->memory)
			return 0;
		object_give_memory(s, size);
		return -ENOMEM;
	}
	r = room_open(&room, &out->dest);
	if (r == 0)
		r = hasher_begin(&out->hasher, s->tagger, false);
	if (r < 0)
		file_abort(out->dest, false);
	return r;
}

int derived_write(void *output, const void *data, size_t n)
{
	struct derived_file *out = output;
	int r = 0;

	if (cancel_fired(&out->fill->waits.cancel))
		return -ECANCELED;
	if (n > out->size - out->done)
		return -EBADMSG;
	if (out->memory) {
		memcpy(out->memory + out->done, data, n);
	} else {
		r = file_write(out->dest, data, n, out->done);
		if (r == 0)
			r = hasher_feed(&out->hasher, data, n);
	}
	out->done += n;
	waits_progress(&out->fill->waits, n);
	return r;
}

static int end_memory(struct derived_file *out, int result)
{
	struct fill *f = out->fill;

	if (result < 0) {
		free(out->memory);
		object_give_memory(f->object->store, out->size);
		return result;
	}
	f->bytes = (struct bytes){ .kind = BYTES_MEMORY, .memory = out->memory };
	return 0;
}

static int end_file(struct derived_file *out, int result)
{
	struct fill *f = out->fill;
	struct ingested in = { 0 };
	struct source *source;

	if (result < 0) {
		hasher_abort(&out->hasher);
		file_abort(out->dest, false);
		return result;
	}
	result = hasher_end(&out->hasher, &in);
	if (result < 0) {
		file_abort(out->dest, false);
		return result;
	}
	result = file_commit(out->dest, NULL, out->size, &source);
	if (result < 0) {
		free(in.tags);
		return result;
	}
	f->bytes = (struct bytes){ .kind = BYTES_FILE, .source = source, .tags = in.tags };
	f->copied = true;
	return 0;
}

int derived_end(struct derived_file *out, int result)
{
	if (result == 0 && out->done != out->size)
		result = -EBADMSG;
	out->fill->size = out->size;
	return out->memory ? end_memory(out, result) : end_file(out, result);
}
