/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/index_toml.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"

/* ---- all tensors together ---- */

static int by_name(const void *a, const void *b)
{
	const struct tensor_info *x = &(*(struct tensor *const *)a)->info;
	const struct tensor_info *y = &(*(struct tensor *const *)b)->info;

	return name_cmp(x->name, x->name_len, y->name, y->name_len);
}

static int sort_names(struct tensors *t)
{
	t->by_name = calloc(t->n ? t->n : 1, sizeof(struct tensor *));
	if (!t->by_name)
		return -ENOMEM;
	for (size_t i = 0; i < t->n; i++) {
		if (t->list[i].named)
			t->by_name[t->n_by_name++] = &t->list[i];
	}
	qsort(t->by_name, t->n_by_name, sizeof(struct tensor *), by_name);
	return 0;
}

/* All tensors of one name are at fault: nobody can tell which was meant. */
static int fault_duplicates(struct tensors *t)
{
	int r = 0;

	for (size_t i = 0, end; i < t->n_by_name && !r; i = end) {
		for (end = i + 1; end < t->n_by_name; end++) {
			if (by_name(&t->by_name[i], &t->by_name[end]))
				break;
		}
		for (size_t j = i; end - i > 1 && j < end && !r; j++)
			r = tensor_fault(t->by_name[j], "%zu tensors have this name", end - i);
	}
	return r;
}

/* The first of the sorted names that is not before `name`. */
static size_t lower_bound(const struct tensors *t, const char *name, size_t n)
{
	size_t lo = 0, hi = t->n_by_name;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct tensor_info *i = &t->by_name[mid]->info;

		if (name_cmp(i->name, i->name_len, name, n) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct tensor *tensors_find(const struct tensors *t, const char *name, size_t n)
{
	size_t at = lower_bound(t, name, n);
	struct tensor *found = at < t->n_by_name ? t->by_name[at] : NULL;

	return found && !name_cmp(found->info.name, found->info.name_len, name, n) ? found : NULL;
}

static int resolve(struct tensors *t, struct tensor *nested)
{
	int r = 0;

	for (size_t i = 0; i < nested->n_inner && !r; i++) {
		struct tensor_ref *ref = &nested->inner[i];

		ref->tensor = tensors_find(t, ref->name, ref->len);
		if (!ref->tensor)
			r = tensor_fault(nested, "its inner tensor '%.*s' does not exist",
					 utf8_quoted(ref->name, ref->len), ref->name);
		else if (ref->tensor->info.dtype == dtype_nested)
			r = tensor_fault(nested, "its inner tensor '%.*s' is itself nested",
					 utf8_quoted(ref->name, ref->len), ref->name);
	}
	return r;
}

static int settle_one(struct tensor *nested)
{
	for (size_t i = 0; i < nested->n_inner && !nested->problem; i++) {
		struct tensor_ref *ref = &nested->inner[i];

		if (ref->tensor && ref->tensor->problem)
			return tensor_fault(nested, "its inner tensor '%.*s' has a problem",
					    utf8_quoted(ref->name, ref->len), ref->name);
	}
	return 0;
}

int tensors_settle(struct tensors *t)
{
	int r = 0;

	for (size_t i = 0; i < t->n && !r; i++) {
		if (t->list[i].info.dtype == dtype_nested)
			r = settle_one(&t->list[i]);
	}
	return r;
}

int tensors_judge(struct tensors *t)
{
	int r = sort_names(t);

	if (!r)
		r = fault_duplicates(t);
	for (size_t i = 0; i < t->n && !r; i++) {
		if (!t->list[i].problem && t->list[i].info.dtype == dtype_nested)
			r = resolve(t, &t->list[i]);
	}
	return r ? r : tensors_settle(t);
}

/* ---- against the carton ---- */

static int check_one(struct tensor *t, tensor_size_fn *size, void *ctx)
{
	char path[MAX_PATH_LEN + 1];
	uint64_t bytes;
	int r;

	snprintf(path, sizeof(path), "tensor_data/%s", t->file);
	r = size(ctx, path, &bytes);
	if (r == -EAGAIN)
		return 0;
	if (r == -ENOENT)
		return tensor_fault(t, "its file '%s' is not in the carton", path);
	if (r == -EISDIR)
		return tensor_fault(t, "its file '%s' is not a regular file", path);
	if (r || t->info.dtype == dtype_string || bytes == t->info.bytes)
		return r;
	return tensor_fault(
		t, "its file '%s' has %" PRIu64 " bytes, but the shape and dtype need %" PRIu64,
		path, bytes, t->info.bytes);
}

int tensors_check(struct tensors *t, tensor_size_fn *size, void *ctx)
{
	int r = 0;

	for (size_t i = 0; i < t->n && !r; i++) {
		if (!t->list[i].problem && t->list[i].info.dtype != dtype_nested)
			r = check_one(&t->list[i], size, ctx);
	}
	return r ? r : tensors_settle(t);
}
