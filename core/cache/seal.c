/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seals: the tags of verified bytes. A seal is a header and the tags, encrypted and authenticated
 * with a key that only this cache has. Any other file in its place (the seal of another object or
 * of another cache, a torn one) does not open and is removed; then the reader hashes the object.
 *
 *	 0  16	MAGIC
 *	16  32	the sha256 of the object
 *	48   8	its size
 *	56   8	bytes per tag
 *	64  28	the lock of the box (digest.h)
 *	92  ..	the tags
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/hasher.h"
#include "cache/internal.h"

#define MAGIC "cartonfs seal 1"
#define HEADER_SIZE 64
#define TAGS_AT (HEADER_SIZE + BOX_LOCK_SIZE)

/* ---- the secret ---- */

/* Reads the secret. -EBADMSG: it belongs to another user, is cut off, or others can read it. */
static int read_secret(struct cache *c)
{
	struct stat st;
	int fd, r = cache_open_file(c->seals, SECRET_NAME, O_RDONLY, &fd);

	if (r < 0)
		return r == -EISDIR || r == -EACCES ? -EBADMSG : r;
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if (st.st_uid != geteuid() || st.st_mode & 077 || st.st_size != KEY_SIZE)
		r = -EBADMSG;
	else
		r = pread_full(fd, c->secret, KEY_SIZE, 0);
	fd_close(fd);
	return r;
}

/* Makes a new secret; `replace`: in place of a bad one. -EEXIST: another process was faster. */
static int make_secret(struct cache *c, bool replace)
{
	uint8_t secret[KEY_SIZE];
	char tmp[HEX_SIZE];
	int fd, r;

	if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
		return -EIO;
	r = cache_tmp_create(c, tmp, &fd);
	if (r < 0)
		return r;
	r = pwrite_full(fd, secret, sizeof(secret), 0);
	if (r == 0 && (replace ? renameat(c->tmp, tmp, c->seals, SECRET_NAME) :
				 linkat(c->tmp, tmp, c->seals, SECRET_NAME, 0)) < 0)
		r = -errno;
	unlinkat(c->tmp, tmp, 0);
	fd_close(fd);
	return r;
}

void cache_open_secret(struct cache *c)
{
	int r = read_secret(c);

	if (r == -EBADMSG)
		carton_log(CARTON_LOG_NOTICE, "seals/" SECRET_NAME,
			   "is damaged, or others can read it: the cache gets a new key, and all "
			   "files are hashed again");
	if (r == -ENOENT || r == -EBADMSG || r == -ENODATA) {
		r = make_secret(c, r != -ENOENT);
		if (r == 0 || r == -EEXIST)
			r = read_secret(c);
	}
	c->has_secret = r == 0;
	if (r < 0 && r != -ENOSPC)
		carton_log(CARTON_LOG_INFO, "seals/" SECRET_NAME,
			   "cannot be read or made (%s): each mount hashes its files again",
			   strerror(-r));
}

int cache_tag_key(const struct cache *c, uint8_t ret_key[KEY_SIZE])
{
	return c->has_secret ? key_derive(c->secret, "tags", ret_key) : -ENOENT;
}

int cache_mac(const struct cache *c, const char *purpose, const uint8_t of[2 * SHA256_SIZE],
	      uint8_t ret_mac[SHA256_SIZE])
{
	uint8_t key[KEY_SIZE];
	int r = c->has_secret ? key_derive(c->secret, purpose, key) : -ENOENT;

	return r < 0 ? r : hmac_sha256(key, sizeof(key), of, 2 * SHA256_SIZE, ret_mac);
}

/* ---- seals ---- */

static size_t tags_size(uint64_t size)
{
	return (size_t)((size + TAG_BLOCK - 1) / TAG_BLOCK) * TAG_SIZE;
}

static void write_header(uint8_t header[HEADER_SIZE], const uint8_t sha256[32], uint64_t size)
{
	memcpy(header, MAGIC, 16);
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
	int r = key_derive(c->secret, "seals", key);

	return r < 0 ? r : fn(&box, all + HEADER_SIZE);
}

static int open_box(const struct box_of *box, uint8_t *lock)
{
	return box_open(box, lock);
}

int cache_seal_put(struct cache *c, const uint8_t sha256[32], uint64_t size,
		   uint8_t (*tags)[TAG_SIZE])
{
	char name[HEX_SIZE];
	uint8_t *all;
	size_t n;
	int r;

	if (!c->has_secret || size < MIN_SEALED || size > MAX_SEALED)
		return -EINVAL;
	n = TAGS_AT + tags_size(size);
	r = cache_reserve(c, n);
	if (r < 0)
		return r;
	all = malloc(n);
	if (!all)
		return -ENOMEM;
	hex_encode(sha256, 32, name);
	write_header(all, sha256, size);
	memcpy(all + TAGS_AT, tags, n - TAGS_AT);
	r = with_box(c, all, size, box_close);
	if (r == 0)
		r = cache_put_file(c, c->seals, name, all, n);
	free(all);
	return r;
}

/*
 * Reads a seal's file and decrypts its tags. `size` UINT64_MAX: of any size. -EBADMSG; -ENOMEM; …
 */
static int read_seal(struct cache *c, int fd, const uint8_t sha256[32], uint64_t size,
		     uint8_t **ret_all)
{
	uint8_t header[HEADER_SIZE], want[HEADER_SIZE], *all;
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : pread_full(fd, header, HEADER_SIZE, 0);

	if (r < 0)
		return r == -ENODATA ? -EBADMSG : r;
	write_header(want, sha256, size == UINT64_MAX ? get_le64(header + 48) : size);
	size = get_le64(want + 48);
	if (memcmp(header, want, HEADER_SIZE) != 0 || size < MIN_SEALED || size > MAX_SEALED ||
	    (uint64_t)st.st_size != TAGS_AT + tags_size(size))
		return -EBADMSG;
	all = malloc((size_t)st.st_size);
	if (!all)
		return -ENOMEM;
	r = pread_full(fd, all, (size_t)st.st_size, 0);
	/* the file may have been changed since its header was compared */
	memcpy(all, want, HEADER_SIZE);
	if (r == 0)
		r = with_box(c, all, size, open_box);
	if (r == 0)
		*ret_all = all;
	else
		free(all);
	return r == -ENODATA || r == -EIO ? -EBADMSG : r;
}

static int open_seal(struct cache *c, const uint8_t sha256[32], uint64_t size, bool used,
		     uint8_t **ret_all)
{
	const struct timespec now[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };
	char name[HEX_SIZE];
	int fd, r;

	hex_encode(sha256, 32, name);
	r = cache_open_file(c->seals, name, O_RDONLY | O_NOATIME, &fd);
	if (r < 0)
		return r == -EISDIR ? -ENOENT : r;
	r = read_seal(c, fd, sha256, size, ret_all);
	if (r == 0 && used)
		futimens(fd, now); /* best effort: only the order of gc */
	fd_close(fd);
	if (r == -EBADMSG) {
		carton_log(CARTON_LOG_NOTICE, name, "damaged seal dropped from the cache");
		cache_seal_drop(c, sha256);
	}
	return r;
}

int cache_seal_get(struct cache *c, const uint8_t sha256[32], uint64_t size,
		   uint8_t (**ret_tags)[TAG_SIZE])
{
	uint8_t *all;
	int r = -ENOENT;

	if (c->has_secret && size >= MIN_SEALED && size <= MAX_SEALED)
		r = open_seal(c, sha256, size, true, &all);
	if (r < 0)
		return r == -EBADMSG ? -ENOENT : r;
	memmove(all, all + TAGS_AT, tags_size(size));
	*ret_tags = (uint8_t(*)[TAG_SIZE])all;
	return 0;
}

int cache_seal_check(struct cache *c, const uint8_t sha256[32])
{
	uint8_t *all = NULL;
	int r = c->has_secret ? open_seal(c, sha256, UINT64_MAX, false, &all) : -ENOENT;

	free(all);
	return r;
}

void cache_seal_drop(struct cache *c, const uint8_t sha256[32])
{
	char name[HEX_SIZE];

	hex_encode(sha256, 32, name);
	unlinkat(c->seals, name, 0);
}
