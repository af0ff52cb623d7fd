/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filling an object of the cache: the lock per object, the partial file, and its sidecar, which
 * says how many bytes of the partial count. A partial that several fill counts whole, whatever is
 * in it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file_size.h"
#include "base/own.h"
#include "cache/internal.h"

#define SPARSE_VALIDATOR "chunks" /* of bytes in any order, in place of an ETag */
#define SMALL_ROOM (64 * KIB)	  /* freed on a full disk, so that a few file names fit */

struct cache_fill {
	struct cache *cache;
	struct cache_lock lock;
	uint8_t sha256[32];
	char name[HEX_SIZE]; /* of the partial */
	uint64_t shared;     /* with others, of that size; 0: with nobody */
	int fd;		     /* the partial, O_RDWR */
	uint64_t counted;    /* bytes of the partial that are in cache->used */
	struct cache_grant grant;
	struct sidecar sidecar;
};

/* ---- beginning ---- */

static int partial_open(struct cache_fill *f)
{
	int dir = f->cache->partial, fd;
	int r = cache_open_file(dir, f->name, O_RDWR | O_CREAT, &f->fd);

	if (r != -EACCES)
		return r;
	/* Its writer died while publishing, between chmod and rename. */
	r = cache_open_file(dir, f->name, O_RDONLY, &fd);
	if (r < 0)
		return r;
	r = fchmod(fd, 0600) < 0 ? -EACCES : 0;
	fd_close(fd);
	return r < 0 ? r : cache_open_file(dir, f->name, O_RDWR, &f->fd);
}

/* Takes over the valid part of an earlier partial file, and cuts off the rest. */
static int partial_adopt(struct cache_fill *f)
{
	struct stat st;
	int r;

	r = partial_open(f);
	if (r == 0)
		r = sidecar_read(f->cache, f->sha256, &f->sidecar);
	if (r < 0)
		return r;
	if (fstat(f->fd, &st) < 0)
		return -errno;
	f->sidecar.len = MIN(f->sidecar.len, (uint64_t)st.st_size);
	if (f->sidecar.len == 0) {
		r = sidecar_remove(f->cache, f->sha256, &f->sidecar);
		if (r < 0)
			return r;
	}
	f->counted = f->sidecar.len;
	return fd_resize(f->fd, f->sidecar.len);
}

/*
 * Makes the directory of an object at the start, so that publishing needs no more than a rename.
 * -ENOTDIR or -EISDIR: a file of another kind has that name.
 */
static int make_bucket(struct cache *c, const uint8_t sha256[32])
{
	char name[OBJECT_NAME_SIZE];
	struct stat st;
	int r;

	cache_object_name(sha256, name);
	name[2] = '\0';
	r = own_make_dir(c->objects, name, 0700);
	if (r != -EEXIST)
		return r;
	if (fstatat(c->objects, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	name[2] = '/';
	if (fstatat(c->objects, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
		return -EISDIR;
	return 0;
}

static int begin_alone(struct cache *c, struct cache_fill *f)
{
	int r = cache_is_published(c, f->sha256) ? -EEXIST : make_bucket(c, f->sha256);

	return r < 0 ? r : partial_adopt(f);
}

/* Opens the partial that all have, or makes it. What is mended here takes no bytes from anyone. */
static int share_partial(struct cache_fill *f)
{
	int r = partial_open(f);

	if (r == 0)
		r = sidecar_read(f->cache, f->sha256, &f->sidecar);
	if (r == 0 && f->sidecar.len != f->shared) {
		sidecar_close(&f->sidecar);
		f->sidecar.validator = strdup(SPARSE_VALIDATOR);
		r = f->sidecar.validator ? sidecar_write(f->cache, f->sha256, &f->sidecar) :
					   -ENOMEM;
		if (r == 0)
			r = sidecar_note(&f->sidecar, f->shared);
	}
	return r == 0 ? fd_resize(f->fd, f->shared) : r;
}

static int begin_shared(struct cache_fill *f)
{
	int r = cache_lock_name(&f->lock, true);

	if (r < 0)
		return r;
	r = share_partial(f);
	cache_lock_name(&f->lock, false);
	/* by those who write it */
	f->counted = f->shared;
	return r;
}

static int begin_once(struct cache *c, struct cache_fill *f)
{
	int r;

	f->fd = f->sidecar.fd = -1;
	memcpy(f->grant.sha256, f->sha256, 32);
	r = f->shared ? cache_lock_share(c, f->sha256, &f->lock) :
			cache_lock_try(c, f->sha256, &f->lock);
	if (r < 0)
		return r;
	r = f->shared ? begin_shared(f) : begin_alone(c, f);
	f->grant.fd = f->fd;
	if (r == 0)
		return 0;
	fd_close(f->fd);
	sidecar_close(&f->sidecar);
	cache_lock_release(&f->lock);
	return r;
}

static int begin(struct cache *c, const uint8_t sha256[32], uint64_t shared,
		 struct cache_fill **ret_fill)
{
	struct cache_fill *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return -ENOMEM;
	f->cache = c;
	f->shared = shared;
	memcpy(f->sha256, sha256, 32);
	hex_encode(sha256, 32, f->name);
	r = begin_once(c, f);
	if ((r == -ENOSPC || r == -EDQUOT) && cache_evict(c, SMALL_ROOM) == 0)
		r = begin_once(c, f);
	if (r < 0) {
		free(f);
		return r == -EDQUOT ? -ENOSPC : r;
	}
	*ret_fill = f;
	return 0;
}

int cache_begin(struct cache *c, const uint8_t sha256[32], struct cache_fill **ret_fill)
{
	return begin(c, sha256, 0, ret_fill);
}

int cache_join(struct cache *c, const uint8_t key[32], uint64_t size, struct cache_fill **ret_fill)
{
	return begin(c, key, size, ret_fill);
}

/* ---- under way ---- */

int cache_fill_fd(const struct cache_fill *f)
{
	return f->fd;
}

int cache_fill_partial(const struct cache_fill *f, uint64_t *ret_len, char *ret_validator, size_t n)
{
	const char *validator = f->sidecar.validator ? f->sidecar.validator : "";

	if (strlen(validator) >= n)
		return -ERANGE;
	memcpy(ret_validator, validator, strlen(validator) + 1);
	*ret_len = f->sidecar.validator ? f->sidecar.len : 0;
	return 0;
}

int cache_fill_restart(struct cache_fill *f, const char *validator)
{
	size_t n = validator ? strnlen(validator, MAX_CACHE_VALIDATOR + 1) : 0;
	int r;

	if (n > MAX_CACHE_VALIDATOR)
		return -EFBIG;
	r = sidecar_remove(f->cache, f->sha256, &f->sidecar);
	if (r < 0)
		return r;
	r = fd_resize(f->fd, 0);
	if (r < 0)
		return r;
	f->counted = 0;
	cache_grant_drop(f->cache, &f->grant);
	if (n == 0)
		return 0;
	f->sidecar.validator = strdup(validator);
	if (!f->sidecar.validator)
		return -ENOMEM;
	r = sidecar_write(f->cache, f->sha256, &f->sidecar);
	if ((r == -ENOSPC || r == -EDQUOT) && cache_evict(f->cache, SMALL_ROOM) == 0)
		r = sidecar_write(f->cache, f->sha256, &f->sidecar);
	return r;
}

int cache_fill_reserve(struct cache_fill *f, uint64_t size)
{
	uint64_t have, before = f->grant.bytes;
	struct stat st;
	int r;

	if (size > MAX_FILE_SIZE)
		return -ENOSPC;
	if (fstat(f->fd, &st) < 0)
		return -errno;
	have = (uint64_t)st.st_blocks * 512;
	if (size <= have)
		return 0;
	r = cache_grant(f->cache, &f->grant, size);
	if (r < 0)
		return r;
	r = cache_allocate(f->fd, size);
	/* Other writers took the space, or a quota is smaller than the disk. */
	if (r == -ENOSPC && cache_evict(f->cache, size - have) == 0)
		r = cache_allocate(f->fd, size);
	if (r == 0) {
		f->counted = MAX(f->counted, size);
		return 0;
	}
	cache_grant_cut(f->cache, &f->grant, f->grant.bytes - before);
	/* gives back the blocks that the file got */
	return ftruncate(f->fd, st.st_size) < 0 ? -errno : r;
}

int cache_fill_more(struct cache_fill *f, uint64_t n)
{
	return cache_grant(f->cache, &f->grant, MAX(cache_blocks(f->fd), f->grant.bytes) + n);
}

void cache_fill_less(struct cache_fill *f, uint64_t n)
{
	cache_grant_cut(f->cache, &f->grant, n);
}

int cache_fill_progress(struct cache_fill *f, uint64_t len)
{
	return sidecar_note(&f->sidecar, len);
}

/* ---- ending ---- */

static void fill_free(struct cache_fill *f)
{
	cache_grant_drop(f->cache, &f->grant);
	fd_close(f->fd);
	sidecar_close(&f->sidecar);
	cache_lock_release(&f->lock);
	free(f);
}

/* Opens the partial read-only, with the flock of a reader, so that gc never finds it unused. */
static int open_locked(struct cache_fill *f, int *ret_fd)
{
	struct stat ours, opened;
	int fd, r;

	r = cache_open_file(f->cache->partial, f->name, O_RDONLY | O_NOATIME, &fd);
	if (r < 0)
		return r;
	if (flock(fd, LOCK_SH | LOCK_NB) == 0 && fstat(fd, &opened) == 0 &&
	    fstat(f->fd, &ours) == 0) {
		if (ours.st_ino == opened.st_ino && ours.st_dev == opened.st_dev) {
			*ret_fd = fd;
			return 0;
		}
		errno = ESTALE;
	}
	r = -errno;
	fd_close(fd);
	return r;
}

/* As cache_fill_publish(); nobody else gives the partial a name now. */
static int publish(struct cache_fill *f, const uint8_t *sha256, uint64_t size, int *ret_fd)
{
	char object[OBJECT_NAME_SIZE];
	struct cache *c = f->cache;
	struct stat st;
	int fd = -1, r;

	if (fstat(f->fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size < size)
		return -EINVAL;
	/* Also frees the space reserved behind the end. */
	if (ftruncate(f->fd, (off_t)size) < 0)
		return -errno;
	sha256 = sha256 ? sha256 : f->sha256;
	r = make_bucket(c, sha256);
	if (r == 0)
		r = open_locked(f, &fd);
	if (r < 0)
		return r;
	cache_object_name(sha256, object);
	r = fchmod(f->fd, 0400) < 0 ? -errno : cache_grant_rename(c, &f->grant, f->name, object);
	if (r < 0) {
		fchmod(f->fd, 0600);
		fd_close(fd);
		return r;
	}
	sidecar_remove(f->cache, f->sha256, &f->sidecar);
	size -= MIN(size, f->counted);
	fill_free(f);
	cache_trim(c, size);
	*ret_fd = fd;
	return 0;
}

int cache_fill_publish(struct cache_fill *f, const uint8_t *sha256, uint64_t size, int *ret_fd)
{
	int r = f->shared ? cache_lock_name(&f->lock, true) : 0;

	if (r < 0)
		return r;
	r = publish(f, sha256, size, ret_fd);
	if (r < 0 && f->shared)
		cache_lock_name(&f->lock, false);
	return r;
}

/* Others go on with the file, but nobody finds it any more, unless it has another name by now. */
static void unname(struct cache_fill *f)
{
	struct stat ours, named;

	if (cache_lock_name(&f->lock, true) == 0 && fstat(f->fd, &ours) == 0 &&
	    fstatat(f->cache->partial, f->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	    ours.st_ino == named.st_ino && ours.st_dev == named.st_dev)
		cache_remove_partial(f->cache, f->sha256);
}

void cache_fill_abort(struct cache_fill *f, bool keep_partial)
{
	if (!f)
		return;
	if (f->shared) {
		if (!keep_partial)
			unname(f);
		fill_free(f);
		return;
	}
	if (keep_partial && f->sidecar.fd >= 0 && f->sidecar.len > 0) {
		/* Frees the reserved space. If that fails, the next writer does it. */
		if (ftruncate(f->fd, (off_t)f->sidecar.len) < 0)
			keep_partial = false;
	} else {
		keep_partial = false;
	}
	if (!keep_partial) {
		sidecar_remove(f->cache, f->sha256, &f->sidecar);
		unlinkat(f->cache->partial, f->name, 0);
	}
	fill_free(f);
}
