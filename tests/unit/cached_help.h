/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of objects with a cache share: a cache in a directory of its own, and damage to
 * it.
 */
#ifndef CACHED_HELP_H
#define CACHED_HELP_H

#include <sys/stat.h>

#include "cache/internal.h"
#include "keyed.h"
#include "object_help.h"

struct cached {
	char dir[64];
	struct cache *cache;
};

static inline int cached_setup(void **state)
{
	struct cached *e = must(calloc(1, sizeof(*e)));

	snprintf(e->dir, sizeof(e->dir), "/tmp/object-test-XXXXXX");
	if (!mkdtemp(e->dir)) {
		free(e);
		return -1;
	}
	*state = e;
	return cache_open_keyed(e->dir, 0, &e->cache);
}

static inline int cached_teardown(void **state)
{
	struct cached *e = *state;
	char command[100];
	int r;

	cache_close(e->cache);
	snprintf(command, sizeof(command), "rm -rf '%s'", e->dir);
	r = system(command);
	free(e);
	return r;
}

/* Has the cache a good seal of that object? -ENOENT: none. */
static inline int check_seal(struct cached *e, const uint8_t sha256[SHA256_SIZE])
{
	char hex[HEX_SIZE];
	uint8_t name[SHA256_SIZE];

	assert_int_equal(cache_seal_name(e->cache, sha256, hex), 0);
	assert_true(hex_decode(hex, sizeof(name), name));
	return cache_seal_check(e->cache, name);
}

/* Flips a bit of byte `at` of the cached file of an item. */
static inline void damage(struct cached *e, const struct box_item *item, uint64_t at)
{
	char path[300], was;
	int fd;

	assert_int_equal(cache_path(e->cache, item->sha256, path, sizeof(path)), 0);
	assert_int_equal(chmod(path, 0600), 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread_full(fd, &was, 1, at), 0);
	was ^= 1;
	assert_int_equal(pwrite_full(fd, &was, 1, at), 0);
	close(fd);
	assert_int_equal(chmod(path, 0400), 0);
}

#endif
