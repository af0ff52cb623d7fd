/* SPDX-License-Identifier: Apache-2.0 */
/* A cache with the key of a source, as who opens a carton has it. */
#ifndef KEYED_H
#define KEYED_H

#include "cache/cache.h"

/* The key of source `n`. */
static inline void use_key_of(struct cache *c, uint8_t n)
{
	uint8_t key[KEY_SIZE] = { n, 1, 2, 3 };

	cache_use_key(c, key);
}

static inline int cache_open_keyed(const char *dir, uint64_t limit, struct cache **ret)
{
	int r = cache_open(dir, limit, ret);

	if (r == 0)
		use_key_of(*ret, 1);
	return r;
}

#endif
