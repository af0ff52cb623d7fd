/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes: small texts in the cache, written whole or not at all.
 */
#include "cache/internal.h"

int cache_note_put(struct cache *c, const uint8_t key[32], const char *text)
{
	char name[HEX_SIZE];

	if (strlen(text) > MAX_CACHE_VALIDATOR)
		return -EFBIG;
	hex_encode(key, 32, name);
	return cache_put_file(c, c->notes, name, text, strlen(text));
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
