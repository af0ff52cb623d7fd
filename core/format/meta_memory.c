/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "format/internal.h"

#define BLOCK (4 * KIB)

/* Memory of a meta, handed out in pieces and freed at once. */
struct meta_block {
	struct meta_block *next;
	size_t used, size;
	char data[] __attribute__((aligned(16)));
};

void *meta_alloc(struct meta *m, size_t n)
{
	struct meta_block *b = m->blocks;
	void *piece;

	n = (n + 15) & ~(size_t)15;
	if (!b || n > b->size - b->used) {
		size_t size = MAX(n, (size_t)BLOCK);

		b = calloc(1, sizeof(*b) + size);
		if (!b)
			return NULL;
		b->size = size;
		b->next = m->blocks;
		m->blocks = b;
	}
	piece = b->data + b->used;
	b->used += n;
	return piece;
}

int meta_strdup(struct meta *m, const char *s, size_t n, char **ret)
{
	char *copy = meta_alloc(m, n + 1);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, s, n);
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
	struct toml_error *problem = &m->problems[m->n_problems];
	va_list ap;

	if (m->n_problems >= MAX_REPORTED)
		return 0;
	problem->line = line;
	va_start(ap, fmt);
	vsnprintf(problem->message, sizeof(problem->message), fmt, ap);
	va_end(ap);
	m->n_problems++;
	return 0;
}

void meta_free(struct meta *m)
{
	if (!m)
		return;
	while (m->blocks) {
		struct meta_block *b = m->blocks;

		m->blocks = b->next;
		free(b);
	}
	free(m);
}
