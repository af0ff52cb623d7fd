/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes: small texts in the cache, written whole or not at all.
 */
#include <stdio.h>
#include <unistd.h>

#include "cache/internal.h"

int cache_note_put(struct cache *c, const uint8_t key[32], const char *text)
{
	char tmp[HEX_SIZE], name[HEX_SIZE];
	size_t n = strlen(text);
	int fd, r;

	if (n > MAX_CACHE_VALIDATOR)
		return -EFBIG;
	r = cache_tmp_create(c, tmp, &fd);
	if (r < 0)
		return r;
	hex_encode(key, 32, name);
	r = pwrite_full(fd, text, n, 0);
	if (r == 0 && renameat(c->tmp, tmp, c->notes, name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(c->tmp, tmp, 0);
	fd_close(fd);
	return r;
}

int cache_note_get(struct cache *c, const uint8_t key[32], char *ret_text, size_t n)
{
	const struct timespec used[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };
	char name[HEX_SIZE];
	struct stat st;
	int fd, r;

	hex_encode(key, 32, name);
	r = cache_open_file(c->notes, name, O_RDONLY, &fd);
	if (r < 0)
		return r == -EISDIR ? -ENOENT : r;
	r = fstat(fd, &st) < 0 ? -errno : (uint64_t)st.st_size >= n ? -ERANGE : 0;
	if (r == 0)
		r = pread_full(fd, ret_text, (size_t)st.st_size, 0);
	if (r == 0) {
		ret_text[st.st_size] = '\0';
		futimens(fd, used); /* best effort: only for how long it is kept */
	}
	fd_close(fd);
	return r;
}
