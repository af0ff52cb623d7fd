/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of one tensor of the index, as an extent.
 */
#include <stdlib.h>

#include "views/internal.h"

int view_with_index(struct views *v, struct node *dir, struct fill *m, view_fill_fn *make)
{
	int r;

	pthread_mutex_lock(&v->lock);
	v->fill = m;
	r = make(v, dir);
	pthread_mutex_unlock(&v->lock);
	return r;
}

int view_load(struct views *v)
{
	int r;

	if (v->loaded)
		return 0;
	r = index_load(v->options.tree, v->fill, &v->index);
	if (r < 0)
		return r;
	if (v->index.strings_taken) {
		v->strings = calloc(v->index.tensors->n + 1, sizeof(*v->strings));
		if (!v->strings) {
			index_finish(&v->index);
			return -ENOMEM;
		}
	}
	v->loaded = true;
	return 0;
}

int view_measure(struct views *v, struct tensor *t, const struct strings_size **ret)
{
	return t->problem ? -EBADMSG : index_measure(&v->index, t, v->fill, ret);
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
	r = view_measure(v, t, &size);
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
