/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for many small allocations with one lifetime: no header for each, none is moved, all are
 * freed at once. One thread at a time.
 */
#ifndef CARTON_BASE_ARENA_H
#define CARTON_BASE_ARENA_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

struct arena_block;
struct budget;

/* All zero: an empty arena. */
struct arena {
	struct arena_block *blocks;
	char *at; /* the free bytes of the newest block */
	size_t left;
	size_t total;	       /* of all blocks */
	struct budget *budget; /* counts the blocks; NULL: not counted */
	bool refused;	       /* the budget had no room for a block */
};

/* The error after an allocation has failed: -ENOMEM, or -EFBIG over the budget. */
static inline int arena_error(const struct arena *a)
{
	return a->refused ? -EFBIG : -ENOMEM;
}

/* `n` bytes, aligned for integers and pointers; NULL: no memory. */
void *arena_alloc(struct arena *a, size_t n);

/* A copy of a text, not aligned, with a NUL behind it; NULL: no memory. */
char *arena_text(struct arena *a, const char *s, size_t n);

/* Frees all; the arena is empty again. */
void arena_finish(struct arena *a);

#endif
