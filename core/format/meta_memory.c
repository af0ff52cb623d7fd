/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "format/internal.h"

void *meta_alloc(struct meta *m, size_t n)
{
	void *p = arena_alloc(&m->arena, n);

	return p ? memset(p, 0, n) : NULL;
}

int meta_strdup(struct meta *m, const char *s, size_t n, char **ret)
{
	char *copy = arena_text(&m->arena, s, n);

	if (!copy)
		return -ENOMEM;
	*ret = copy;
	return 0;
}

void *meta_grow(struct meta *m, void *array, size_t n, size_t size)
{
	void *grown;

	if (n == 0 || (n >= 4 && (n & (n - 1)) == 0) || !array) {
		grown = meta_alloc(m, size * MAX((size_t)4, 2 * n));
		if (grown && n)
			memcpy(grown, array, n * size);
		return grown;
	}
	return array;
}

int meta_problem(struct meta *m, size_t line, const char *fmt, ...)
{
	struct reason *problem = &m->problems[m->n_problems];
	va_list ap;

	if (m->n_problems >= MAX_REPORTED)
		return 0;
	problem->line = line;
	va_start(ap, fmt);
	vsnprintf(problem->text, sizeof(problem->text), fmt, ap);
	va_end(ap);
	m->n_problems++;
	return 0;
}

void meta_free(struct meta *m)
{
	if (!m)
		return;
	arena_finish(&m->arena);
	free(m);
}

/* ---- the inputs and outputs by their names; of several with one name, the first declared ---- */

static int by_name(const void *a, const void *b)
{
	const struct meta_tensor *x = *(const struct meta_tensor *const *)a;
	const struct meta_tensor *y = *(const struct meta_tensor *const *)b;
	int c = strcmp(x->name, y->name);

	return c ? c : (x > y) - (x < y);
}

int meta_sort_names(struct meta *m, const struct meta_tensor *list, size_t n,
		    struct meta_names *ret)
{
	ret->list = meta_alloc(m, n * sizeof(*ret->list));
	if (!ret->list)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (list[i].name)
			ret->list[ret->n++] = &list[i];
	qsort(ret->list, ret->n, sizeof(*ret->list), by_name);
	return 0;
}

const struct meta_tensor *meta_find(const struct meta_names *names, const char *name)
{
	size_t lo = 0, hi = names->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (strcmp(names->list[mid]->name, name) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < names->n && strcmp(names->list[lo]->name, name) == 0 ? names->list[lo] : NULL;
}
