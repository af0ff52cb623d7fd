/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/index_toml.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/budget.h"
#include "base/util.h"

int index_toml_fault(struct index_toml *x, struct tensor *t, const char *fmt, ...)
{
	char text[MAX_PATH_LEN + 256];
	va_list args;

	if (t->problem)
		return 0;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	t->problem = arena_text(&x->arena, text, strlen(text));
	return t->problem ? 0 : arena_error(&x->arena);
}

void index_toml_free(struct index_toml *x)
{
	if (!x)
		return;
	free(x->list);
	free(x->by_name);
	budget_give(x->arena.budget, x->taken);
	arena_finish(&x->arena);
	free(x);
}

/* ---- names ---- */

static int by_name(const void *a, const void *b, void *list)
{
	const struct tensor_info *x = &((struct tensor *)list)[*(const uint32_t *)a].info;
	const struct tensor_info *y = &((struct tensor *)list)[*(const uint32_t *)b].info;

	return name_cmp(x->name, x->name_len, y->name, y->name_len);
}

static int sort_names(struct index_toml *x)
{
	size_t cap = 0;
	/* and the copy that qsort_r() makes */
	int r = budget_grow(x->arena.budget, &x->taken, 0, 2 * x->n, sizeof(*x->by_name));

	if (r == 0)
		r = array_room(x->by_name, &cap, x->n + 1);
	if (r < 0)
		return r;
	for (size_t i = 0; i < x->n; i++)
		if (x->list[i].info.name)
			x->by_name[x->n_by_name++] = (uint32_t)i;
	if (x->n_by_name)
		qsort_r(x->by_name, x->n_by_name, sizeof(*x->by_name), by_name, x->list);
	return 0;
}

/* Every tensor whose name is used twice has a problem: a reference to it would be ambiguous. */
static int fault_duplicates(struct index_toml *x)
{
	int r = 0;

	for (size_t i = 0, end; i < x->n_by_name && r == 0; i = end) {
		for (end = i + 1; end < x->n_by_name; end++)
			if (by_name(&x->by_name[i], &x->by_name[end], x->list))
				break;
		for (size_t j = i; end - i > 1 && j < end && r == 0; j++)
			r = index_toml_fault(x, &x->list[x->by_name[j]],
					     "%zu tensors have this name", end - i);
	}
	return r;
}

struct tensor *index_toml_find(const struct index_toml *x, const char *name, size_t n)
{
	size_t low = 0, high = x->n_by_name;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		struct tensor *t = &x->list[x->by_name[mid]];
		int c = name_cmp(t->info.name, t->info.name_len, name, n);

		if (c == 0)
			return t;
		if (c < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

/* ---- nested tensors ---- */

static int link_inner(struct index_toml *x, struct tensor *nested)
{
	int r = 0;

	for (size_t i = 0; i < nested->n_inner && r == 0; i++) {
		struct tensor_ref *ref = &nested->inner[i];

		ref->tensor = index_toml_find(x, ref->name, ref->len);
		if (!ref->tensor || ref->tensor->info.dtype == dtype_nested)
			r = index_toml_fault(x, nested, "its inner tensor '%.*s' %s",
					     utf8_quoted(ref->name, ref->len), ref->name,
					     ref->tensor ? "is itself nested" : "does not exist");
	}
	return r;
}

int index_toml_propagate(struct index_toml *x)
{
	int r = 0;

	for (size_t i = 0; i < x->n; i++) {
		struct tensor *t = &x->list[i];

		for (size_t k = 0; k < t->n_inner && !t->problem && r == 0; k++) {
			const struct tensor_ref *ref = &t->inner[k];

			if (ref->tensor && ref->tensor->problem)
				r = index_toml_fault(x, t, "its inner tensor '%.*s' has a problem",
						     utf8_quoted(ref->name, ref->len), ref->name);
		}
	}
	return r;
}

int index_toml_check(struct index_toml *x)
{
	int r = sort_names(x);

	if (r == 0)
		r = fault_duplicates(x);
	for (size_t i = 0; i < x->n && r == 0; i++)
		if (!x->list[i].problem)
			r = link_inner(x, &x->list[i]);
	return r < 0 ? r : index_toml_propagate(x);
}

/* ---- files ---- */

static int check_file(struct index_toml *x, struct tensor *t, index_toml_size_fn *size, void *ctx)
{
	char path[MAX_PATH_LEN + 1];
	uint64_t bytes;
	int r;

	snprintf(path, sizeof(path), "tensor_data/%s", t->file);
	r = size(ctx, path, &bytes);
	if (r == -EAGAIN)
		return 0;
	if (r == -ENOENT)
		return index_toml_fault(x, t, "its file '%s' is not in the carton", path);
	if (r == -EISDIR)
		return index_toml_fault(x, t, "its file '%s' is not a regular file", path);
	if (r < 0 || t->info.dtype == dtype_string || bytes == t->info.bytes)
		return r;
	return index_toml_fault(
		x, t, "its file '%s' has %" PRIu64 " bytes, but the shape and dtype need %" PRIu64,
		path, bytes, t->info.bytes);
}

int index_toml_check_files(struct index_toml *x, index_toml_size_fn *size, void *ctx)
{
	int r = 0;

	for (size_t i = 0; i < x->n && r == 0; i++)
		if (!x->list[i].problem && x->list[i].info.dtype != dtype_nested)
			r = check_file(x, &x->list[i], size, ctx);
	return r < 0 ? r : index_toml_propagate(x);
}
