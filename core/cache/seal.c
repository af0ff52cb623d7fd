/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seals: the tags of verified bytes. A seal is a header and the tags, encrypted and authenticated
 * with the key of a source, which also gives it its name. Any other file in its place (the seal of
 * another object or of another source, a torn one) does not open and is removed; then the reader
 * hashes the object.
 *
 *	 0  16	SEAL_MAGIC
 *	16  32	the sha256 of the object
 *	48   8	its size
 *	56   8	bytes per tag
 *	64  28	the lock of the box (digest.h)
 *	92  ..	the tags
 *	..  32	the sha256 of all before, by which damage is found without the key
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/hasher.h"
#include "cache/internal.h"

#define HEADER_SIZE SEAL_HEADER_SIZE
#define TAGS_AT (HEADER_SIZE + BOX_LOCK_SIZE)

int cache_seal_name(const struct cache *c, const uint8_t sha256[32], char ret_name[HEX_SIZE])
{
	uint8_t name[SHA256_SIZE];
	int r = cache_mac(c, "names of seals", sha256, 32, name);

	if (r == 0)
		hex_encode(name, sizeof(name), ret_name);
	return r;
}

static size_t tags_size(uint64_t size)
{
	return (size_t)((size + TAG_BLOCK - 1) / TAG_BLOCK) * TAG_SIZE;
}

static size_t file_size(uint64_t size)
{
	return TAGS_AT + tags_size(size) + SHA256_SIZE;
}

static void write_header(uint8_t header[HEADER_SIZE], const uint8_t sha256[32], uint64_t size)
{
	memcpy(header, SEAL_MAGIC, 16);
	memcpy(header + 16, sha256, 32);
	put_le64(header + 48, size);
	put_le64(header + 56, TAG_BLOCK);
}

/* `all` is a whole seal: its tags are encrypted or decrypted in place. */
static int with_box(struct cache *c, uint8_t *all, uint64_t size,
		    int (*fn)(const struct box_of *box, uint8_t *lock))
{
	uint8_t key[KEY_SIZE];
	struct box_of box = { key, all, HEADER_SIZE, all + TAGS_AT, tags_size(size) };
	int r = key_derive(c->key, "seals", key);

	if (r == 0)
		r = fn(&box, all + HEADER_SIZE);
	explicit_bzero(key, sizeof(key));
	return r;
}

static int open_box(const struct box_of *box, uint8_t *lock)
{
	return box_open(box, lock);
}

static int write_seal(struct cache *c, const uint8_t sha256[32], uint64_t size,
		      uint8_t (*tags)[TAG_SIZE], const char *name)
{
	size_t n = file_size(size);
	uint8_t *all = malloc(n);
	int r;

	if (!all)
		return -ENOMEM;
	write_header(all, sha256, size);
	memcpy(all + TAGS_AT, tags, tags_size(size));
	r = with_box(c, all, size, box_close);
	if (r == 0)
		r = sha256_mem(all, n - SHA256_SIZE, all + n - SHA256_SIZE);
	if (r == 0)
		r = cache_put_file(c, c->seals, name, all, n);
	free(all);
	return r;
}

int cache_seal_put(struct cache *c, const uint8_t sha256[32], uint64_t size,
		   uint8_t (*tags)[TAG_SIZE])
{
	struct cache_grant grant = { .fd = -1 };
	char name[HEX_SIZE];
	int r;

	if (size < MIN_SEALED || size > MAX_SEALED || cache_seal_name(c, sha256, name) < 0)
		return -EINVAL;
	r = cache_grant(c, &grant, file_size(size));
	if (r == 0)
		r = write_seal(c, sha256, size, tags, name);
	cache_grant_drop(c, &grant);
	return r;
}

/* Reads a seal's file. Its header must be `want`, or any valid one if that is NULL. */
static int read_all(int fd, const uint8_t *want, uint8_t **ret_all, uint64_t *ret_size)
{
	uint8_t header[HEADER_SIZE], again[HEADER_SIZE], *all;
	struct stat st;
	uint64_t size;
	int r = fstat(fd, &st) < 0 ? -errno : pread_full(fd, header, HEADER_SIZE, 0);

	if (r < 0)
		return r == -ENODATA ? -EBADMSG : r;
	size = get_le64(header + 48);
	write_header(again, header + 16, size);
	if (memcmp(header, want ? want : again, HEADER_SIZE) != 0 || size < MIN_SEALED ||
	    size > MAX_SEALED || (uint64_t)st.st_size != file_size(size))
		return -EBADMSG;
	all = malloc((size_t)st.st_size);
	if (!all)
		return -ENOMEM;
	r = pread_full(fd, all, (size_t)st.st_size, 0);
	if (r < 0) {
		free(all);
		return r == -ENODATA || r == -EIO ? -EBADMSG : r;
	}
	/* the file may have been changed since its header was compared */
	memcpy(all, header, HEADER_SIZE);
	*ret_all = all;
	*ret_size = size;
	return 0;
}

/* Reads a seal's file and decrypts its tags. -EBADMSG; -ENOMEM; … */
static int read_seal(struct cache *c, int fd, const uint8_t sha256[32], uint64_t size,
		     uint8_t **ret_all)
{
	uint8_t want[HEADER_SIZE];
	int r;

	write_header(want, sha256, size);
	r = read_all(fd, want, ret_all, &size);
	if (r < 0)
		return r;
	r = with_box(c, *ret_all, size, open_box);
	if (r < 0)
		free(*ret_all);
	return r == -EIO ? -EBADMSG : r;
}

/* Removes a damaged seal. The log names the object by `sha256`, as far as the seal tells it. */
static void drop_damaged(struct cache *c, const char *name, const uint8_t sha256[32])
{
	char hex[HEX_SIZE];

	hex_encode(sha256, 32, hex);
	carton_log(CARTON_LOG_NOTICE, hex, "damaged seal dropped from the cache");
	unlinkat(c->seals, name, 0);
}

static int open_seal(struct cache *c, const uint8_t sha256[32], uint64_t size, uint8_t **ret_all)
{
	const struct timespec now[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };
	char name[HEX_SIZE];
	int fd, r = cache_seal_name(c, sha256, name);

	if (r == 0)
		r = cache_open_file(c->seals, name, O_RDONLY | O_NOATIME, &fd);
	if (r < 0)
		return r == -EISDIR ? -ENOENT : r;
	r = read_seal(c, fd, sha256, size, ret_all);
	if (r == 0)
		futimens(fd, now); /* best effort: only the order of gc */
	fd_close(fd);
	if (r == -EBADMSG)
		drop_damaged(c, name, sha256);
	return r;
}

int cache_seal_get(struct cache *c, const uint8_t sha256[32], uint64_t size,
		   uint8_t (**ret_tags)[TAG_SIZE])
{
	uint8_t *all;
	int r = -ENOENT;

	if (size >= MIN_SEALED && size <= MAX_SEALED)
		r = open_seal(c, sha256, size, &all);
	if (r < 0)
		return r == -EBADMSG ? -ENOENT : r;
	memmove(all, all + TAGS_AT, tags_size(size));
	*ret_tags = (uint8_t(*)[TAG_SIZE])all;
	return 0;
}

int cache_seal_check(struct cache *c, const uint8_t name[32])
{
	uint8_t *all = NULL, found[SHA256_SIZE], says[SHA256_SIZE];
	char hex[HEX_SIZE];
	uint64_t size;
	size_t n;
	int fd, r;

	hex_encode(name, 32, hex);
	r = cache_open_file(c->seals, hex, O_RDONLY | O_NOATIME, &fd);
	if (r < 0)
		return r == -EISDIR ? -ENOENT : r;
	memcpy(says, name, sizeof(says));
	cache_seal_says(fd, says);
	r = read_all(fd, NULL, &all, &size);
	fd_close(fd);
	if (r == 0) {
		n = file_size(size) - SHA256_SIZE;
		r = sha256_mem(all, n, found);
		if (r == 0 && memcmp(all + n, found, SHA256_SIZE) != 0)
			r = -EBADMSG;
	}
	free(all);
	if (r == -EBADMSG)
		drop_damaged(c, hex, says);
	return r;
}

void cache_seal_drop(struct cache *c, const uint8_t sha256[32])
{
	char name[HEX_SIZE];

	if (cache_seal_name(c, sha256, name) == 0)
		unlinkat(c->seals, name, 0);
}
