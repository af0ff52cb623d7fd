/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sidecar of a partial. Without a good one no byte of a partial counts: each change removes the
 * sidecar first or replaces it whole, so a kill in between loses bytes at worst.
 *
 * Format: "cfspart1", le64 length that counts, le32 n, n bytes of validator; nothing more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache/internal.h"

#define MAGIC "cfspart1"
#define LEN_AT 8
#define HEADER 20

int sidecar_read(struct cache *c, const uint8_t sha256[32], struct sidecar *s)
{
	char name[SIDECAR_NAME_SIZE], *validator = NULL;
	uint8_t header[HEADER];
	struct stat st;
	uint32_t n;
	int fd, r;

	cache_sidecar_name(sha256, name);
	r = cache_open_file(c->partial, name, O_RDWR, &fd);
	if (r < 0)
		return r == -ENOENT || r == -EISDIR ? 0 : r;
	if (fstat(fd, &st) < 0 || pread_full(fd, header, sizeof(header), 0) < 0 ||
	    memcmp(header, MAGIC, 8) != 0)
		goto bad;
	n = get_le32(header + 16);
	if (n == 0 || n > MAX_CACHE_VALIDATOR || st.st_size != (off_t)HEADER + n)
		goto bad;
	validator = calloc(1, (size_t)n + 1);
	if (!validator) {
		fd_close(fd);
		return -ENOMEM;
	}
	if (pread_full(fd, validator, n, HEADER) < 0 || strlen(validator) != n)
		goto bad;
	*s = (struct sidecar){ fd, get_le64(header + LEN_AT), validator };
	return 0;
bad:
	free(validator);
	fd_close(fd);
	return 0;
}

void sidecar_close(struct sidecar *s)
{
	fd_close(s->fd);
	free(s->validator);
	*s = (struct sidecar){ .fd = -1 };
}

int sidecar_remove(struct cache *c, const uint8_t sha256[32], struct sidecar *s)
{
	char name[SIDECAR_NAME_SIZE];

	cache_sidecar_name(sha256, name);
	if (unlinkat(c->partial, name, 0) < 0 && errno != ENOENT)
		return -errno;
	sidecar_close(s);
	return 0;
}

int sidecar_write(struct cache *c, const uint8_t sha256[32], struct sidecar *s)
{
	uint8_t all[HEADER + MAX_CACHE_VALIDATOR] = MAGIC;
	char name[SIDECAR_NAME_SIZE];
	size_t n = strlen(s->validator);
	int r;

	put_le32(all + 16, (uint32_t)n);
	memcpy(all + HEADER, s->validator, n);
	cache_sidecar_name(sha256, name);
	r = cache_put_file(c, c->partial, name, all, HEADER + n);
	return r < 0 ? r : cache_open_file(c->partial, name, O_RDWR, &s->fd);
}

int sidecar_note(struct sidecar *s, uint64_t len)
{
	uint8_t le[8];
	int r;

	if (s->fd < 0)
		return 0;
	put_le64(le, len);
	r = pwrite_full(s->fd, le, sizeof(le), LEN_AT);
	if (r == 0)
		s->len = len;
	return r;
}
