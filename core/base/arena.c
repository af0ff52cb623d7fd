/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdlib.h>

#include "base/budget.h"
#include "base/util.h"

/* Blocks grow with the arena, so that little is wasted in a small or a large one. */
#define MIN_BLOCK (4 * KIB)
#define MAX_BLOCK (1 * MIB)

struct arena_block {
	struct arena_block *next;
	uint64_t data[];
};

static void *take(struct arena *a, size_t n, size_t skip)
{
	struct arena_block *b;
	size_t size;
	char *p;

	if (a->at && skip <= a->left && n <= a->left - skip) {
		p = a->at + skip;
		a->at = p + n;
		a->left -= skip + n;
		return p;
	}
	size = MAX(n, MIN(MAX(a->total / 8, (size_t)MIN_BLOCK), (size_t)MAX_BLOCK));
	if (n > SIZE_MAX - sizeof(*b))
		return NULL;
	a->refused = budget_take(a->budget, size) < 0;
	b = a->refused ? NULL : malloc(sizeof(*b) + size);
	if (!b) {
		if (!a->refused)
			budget_give(a->budget, size);
		return NULL;
	}
	b->next = a->blocks;
	a->blocks = b;
	a->total += size;
	a->at = (char *)b->data + n;
	a->left = size - n;
	return b->data;
}

void *arena_alloc(struct arena *a, size_t n)
{
	return take(a, n, -(uintptr_t)a->at % sizeof(uint64_t));
}

char *arena_text(struct arena *a, const char *s, size_t n)
{
	char *copy = n < SIZE_MAX ? take(a, n + 1, 0) : NULL;

	if (copy) {
		if (n)
			memcpy(copy, s, n);
		copy[n] = '\0';
	}
	return copy;
}

void arena_finish(struct arena *a)
{
	while (a->blocks) {
		struct arena_block *b = a->blocks;

		a->blocks = b->next;
		free(b);
	}
	budget_give(a->budget, a->total);
	*a = (struct arena){ .budget = a->budget };
}
