/* SPDX-License-Identifier: Apache-2.0 */
/* The maker for content derived from other objects: what views convert, and lazy directories. */
#include <stdlib.h>

#include "base/util.h"
#include "cache/dest.h"
#include "object/internal.h"

struct maker_derived {
	struct maker maker;
	object_derive_fn *derive;
	void *ctx;
};

static void derived_get(struct making *m)
{
	const struct maker_derived *md = container_of(m->object->maker, struct maker_derived,
						      maker);

	making_done(m, md->derive(md->ctx, m));
}

static enum lane derived_lane(const struct object *o)
{
	(void)o;
	return LANE_VIEWS;
}

static void derived_free(struct maker *maker)
{
	free(container_of(maker, struct maker_derived, maker));
}

static const struct maker_ops derived_ops = {
	.get_bytes = derived_get,
	.get_size = derived_get,
	.lane = derived_lane,
	.free = derived_free,
};

int object_add_derived(struct object_store *s, const char *name, uint64_t size,
		       object_derive_fn *derive, void *ctx, struct object **ret)
{
	struct maker_derived *md = malloc(sizeof(*md));

	if (!md)
		return -ENOMEM;
	*md = (struct maker_derived){ { &derived_ops }, derive, ctx };
	return store_add_derived(s, name, size, &md->maker, ret);
}

/* ---- output ---- */

int output_begin(struct output *out, struct making *m, uint64_t size)
{
	struct object_store *s = m->object->store;
	int r;

	*out = (struct output){ .making = m, .size = size };
	if (object_claim_memory(s, size)) {
		out->memory = malloc((size_t)size + 1);
		if (out->memory)
			return 0;
		object_unclaim_memory(s, size);
		return -ENOMEM;
	}
	r = dest_file(s->options.cache, NULL, &out->dest);
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

	if (cancel_fired(&out->making->cancel))
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
	return r;
}

static int end_memory(struct output *out, int result)
{
	struct making *m = out->making;

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
	struct making *m = out->making;
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
	out->making->size = out->size;
	return out->memory ? end_memory(out, result) : end_file(out, result);
}
