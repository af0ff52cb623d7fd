/* SPDX-License-Identifier: Apache-2.0 */
/* The data of one tensor of the index, as an extent. */
#include <stdlib.h>

#include "views/internal.h"

/* Reads a file of strings, for all tensors that use it. */
static int derive_sizes(void *ctx, struct fill *fill)
{
	fill->quiet = true;
	fill->bytes = (struct bytes){ .kind = BYTES_ENTRY };
	return index_measure(ctx, &fill->waits);
}

static int add_sizes(struct views *v)
{
	int r = 0;

	v->strings = calloc(v->index.tensors->n + 1, sizeof(*v->strings));
	if (!v->strings)
		return -ENOMEM;
	for (size_t i = 0; i < v->index.n_strings && r == 0; i++) {
		struct index_strings *s = &v->index.strings[i];

		r = object_add_derived(v->options.store, object_name(s->object), 0, derive_sizes, s,
				       &s->sizes);
	}
	return r;
}

static int derive_index(void *ctx, struct fill *fill)
{
	struct views *v = ctx;
	int r = index_load(v->options.tree, &fill->waits, &v->index);

	fill->quiet = true;
	fill->bytes = (struct bytes){ .kind = BYTES_ENTRY };
	if (r == 0 && v->index.n_strings)
		r = add_sizes(v);
	if (r < 0) {
		index_finish(&v->index);
		free(v->strings);
		v->strings = NULL;
	}
	return r;
}

int view_add_load(struct views *v)
{
	return object_add_derived(v->options.store, "the index of tensor_data", 0, derive_index, v,
				  &v->loaded);
}

/* What is made needs no pin to stay. */
static int have_made(struct object *o, struct fill *fill)
{
	int r = object_get_wait(o, &fill->waits);

	if (r == 0)
		object_put(o);
	return r;
}

int view_load(struct views *v, struct fill *fill)
{
	return have_made(v->loaded, fill);
}

int view_measure(struct views *v, struct fill *fill, const struct tensor *t)
{
	const struct index_strings *s = index_strings_of(&v->index, t);

	return s ? have_made(s->sizes, fill) : 0;
}

int view_data(struct views *v, struct tensor *t, struct extent *ret)
{
	const struct strings_size *size;
	struct view_strings *s;
	struct node *file;
	int r;

	if (t->problem || t->info.dtype == dtype_nested)
		return -EBADMSG;
	if (t->info.dtype != dtype_string) {
		file = t->info.object ? NULL : index_file(v->options.tree, t);
		if (file) {
			t->info.object = node_object(file);
			t->info.whole = true;
		}
		*ret = (struct extent){
			.object = t->info.object,
			.len = t->info.bytes,
			.whole = true,
		};
		return t->info.object ? 0 : -EBADMSG;
	}
	r = index_size(&v->index, t, &size);
	if (r < 0)
		return r;
	s = &v->strings[t - v->index.tensors->list];
	if (!s->bytes)
		r = view_add_strings(v, t, 0, size->bytes, &s->bytes);
	if (r == 0)
		*ret = (struct extent){ .object = s->bytes, .len = size->bytes };
	return r;
}

int view_data_any(struct views *v, struct tensor *t, struct extent *ret)
{
	struct view_strings *s;
	int r = 0;

	if (!view_later(v, t))
		return view_data(v, t, ret);
	s = &v->strings[t - v->index.tensors->list];
	if (!s->bytes)
		r = view_add_strings(v, t, 0, OBJECT_NO_SIZE, &s->bytes);
	if (r == 0)
		*ret = (struct extent){ .object = s->bytes, .len = OBJECT_NO_SIZE };
	return r;
}
