/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strings of a tensor in a binary form, converted from the verified bytes of their file at
 * open. Kept in memory if small, else in an unnamed file with tags.
 */
#include <stdlib.h>

#include "content/derived.h"
#include "views/internal.h"

struct strings_view {
	struct object *file;
	uint64_t count, width, size;
};

static int report(const struct strings_view *sv, const struct reason *reason, int r)
{
	if (reason->text[0])
		carton_log(CARTON_LOG_ERROR, object_name(sv->file), "%s", reason->text);
	return r;
}

/* The size of the derived object, measured from the file if it is not known yet. */
static int measure(const struct strings_view *sv, struct fill *fill, uint64_t *ret_size)
{
	struct index_reader reader = { sv->file, &fill->waits, 0 };
	struct reason reason = { 0 };
	struct strings_size size;
	int r;

	*ret_size = sv->size;
	if (sv->size != OBJECT_NO_SIZE)
		return 0;
	r = strings_measure(index_read, &reader, &size, &reason);
	if (r == 0)
		*ret_size = size.bytes;
	return report(sv, &reason, r);
}

static int emit(const struct strings_view *sv, struct fill *fill, uint64_t size)
{
	struct index_reader reader = { sv->file, &fill->waits, 0 };
	struct reason reason = { 0 };
	struct derived_file out;
	const struct strings_output to = { sv->count, sv->width, derived_write, &out };
	int r = derived_begin(&out, fill, size);

	if (r < 0)
		return r;
	r = strings_emit(index_read, &reader, &to, &reason);
	return derived_end(&out, report(sv, &reason, r));
}

static int derive(void *ctx, struct fill *fill)
{
	const struct strings_view *sv = ctx;
	uint64_t size;
	int r = index_need(sv->file, &fill->waits);

	if (r < 0)
		return r;
	r = measure(sv, fill, &size);
	if (r == 0)
		r = emit(sv, fill, size);
	object_put(sv->file);
	return r;
}

int view_add_strings(struct views *v, struct tensor *t, uint64_t width, uint64_t size,
		     struct object **ret)
{
	struct node *file = index_file(v->options.tree, t);
	struct strings_view *sv = malloc(sizeof(*sv));
	int r;

	if (!sv || !file) {
		free(sv);
		return sv ? -EBADMSG : -ENOMEM;
	}
	*sv = (struct strings_view){ node_object(file), tensor_count(&t->info), width, size };
	r = view_keep(v, sv, free);
	return r < 0 ? r :
		       object_add_derived(v->options.store, t->info.name, size, derive, sv, ret);
}
