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
