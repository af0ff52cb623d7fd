/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses whether a container has an entry, before it is opened. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/container.h"
#include "archive/internal.h"

/*
 * Longer than a central header with its name, extra field and comment, the end records and the
 * comment of the archive together. So each block that lies in the central directory, or ends where
 * the file does, has the start of a header.
 */
#define BLOCK (256 * KIB)
#define NAME_LEN_AT 28

static const uint8_t signature[] = { 'P', 'K', 1, 2 };

/* Is this name, of `n` bytes, in the central header at `h`? "./" may be before it. */
static bool has_name(const uint8_t *h, size_t n, const char *name)
{
	const size_t dot = get_le16(h + NAME_LEN_AT) == n + 2 ? 2 : 0;

	return get_le16(h + NAME_LEN_AT) == n + dot && memcmp(h + CENTRAL_SIZE, "./", dot) == 0 &&
	       memcmp(h + CENTRAL_SIZE + dot, name, n) == 0;
}

/* Is there a central header with this name? */
static bool has_header(const uint8_t *data, size_t n, const char *name)
{
	const size_t len = strlen(name);

	for (const uint8_t *p = data, *end = data + n, *h;
	     (h = memmem(p, (size_t)(end - p), signature, sizeof(signature))); p = h + 1)
		if ((size_t)(end - h) >= CENTRAL_SIZE + len + 2 && has_name(h, len, name))
			return true;
	return false;
}

static bool zip_may_have(int fd, uint64_t size, const char *name, uint8_t *block)
{
	const size_t overlap = CENTRAL_SIZE + strlen(name) + 2;
	const uint64_t last = size > MAX_CENTRAL_DIRECTORY ? size - MAX_CENTRAL_DIRECTORY : 0;
	uint64_t end = size;

	while (end > last) {
		uint64_t at = end > BLOCK ? end - BLOCK : 0;
		size_t n = (size_t)MIN(end + overlap, size) - (size_t)at;

		if (pread_full(fd, block, n, at) < 0 || has_header(block, n, name))
			return true;
		if (!memmem(block, n, signature, sizeof(signature)))
			return false;
		end = at;
	}
	return last > 0;
}

bool container_may_have(int fd, const struct stat *st, const char *name)
{
	uint8_t *block;
	bool may;

	if (S_ISDIR(st->st_mode))
		return faccessat(fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
	block = malloc(BLOCK + CENTRAL_SIZE + MAX_PATH_LEN + 2);
	may = !block || zip_may_have(fd, (uint64_t)st->st_size, name, block);
	free(block);
	return may;
}
