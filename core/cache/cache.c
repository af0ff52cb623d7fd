/* SPDX-License-Identifier: Apache-2.0 */
/* The cache's published objects. See cache.h for the layout and the locks. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "cache/internal.h"

#define LOOKUP_TRIES 8 /* an object may be replaced between its open and its lock */

/* ---- names ---- */

void cache_object_name(const uint8_t sha256[32], char ret_name[OBJECT_NAME_SIZE])
{
	hex_encode(sha256, 1, ret_name);
	ret_name[2] = '/';
	hex_encode(sha256, 32, ret_name + 3);
}

void cache_sidecar_name(const uint8_t sha256[32], char ret_name[SIDECAR_NAME_SIZE])
{
	hex_encode(sha256, 32, ret_name);
	memcpy(ret_name + 64, SIDECAR_SUFFIX, sizeof(SIDECAR_SUFFIX));
}

static bool is_named(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

int cache_tmp_create(struct cache *c, char ret_name[HEX_SIZE], int *ret_fd)
{
	for (int i = 0; i < LOOKUP_TRIES; i++) {
		uint8_t id[32];
		int fd;

		if (getrandom(id, sizeof(id), 0) != sizeof(id))
			return -EIO;
		hex_encode(id, sizeof(id), ret_name);
		fd = openat(c->tmp, ret_name, O_RDWR | O_CREAT | O_EXCL | OPEN_FLAGS, 0600);
		if (fd < 0 && errno == EEXIST)
			continue;
		if (fd < 0)
			return -errno;
		/* A sweep may have had it before us; then it is gone, or is about to be. */
		if (flock(fd, LOCK_EX | LOCK_NB) < 0 ? errno != EWOULDBLOCK : is_named(fd)) {
			*ret_fd = fd;
			return 0;
		}
		fd_close(fd);
	}
	return -EEXIST;
}

static int tmpfile_elsewhere(int *ret_fd)
{
	const char *dir = getenv("TMPDIR");
	int fd = dir && *dir ? open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		fd = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0) {
		int r = -errno;

		carton_log(CARTON_LOG_ERROR, "/var/tmp", "cannot hold a temporary file: %s",
			   strerror(-r));
		return r == -ENOSPC || r == -EDQUOT ? r : -EIO;
	}
	*ret_fd = fd;
	return 0;
}

int cache_tmpfile(struct cache *c, int *ret_fd)
{
	char name[HEX_SIZE];
	int fd, r;

	if (!c)
		return tmpfile_elsewhere(ret_fd);
	fd = openat(c->tmp, ".", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0) {
		*ret_fd = fd;
		return 0;
	}
	if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)
		return -errno;
	r = cache_tmp_create(c, name, &fd);
	if (r < 0)
		return r;
	unlinkat(c->tmp, name, 0);
	*ret_fd = fd;
	return 0;
}

/* ---- published objects ---- */

bool cache_is_published(struct cache *c, const uint8_t sha256[32])
{
	char name[OBJECT_NAME_SIZE];
	struct stat st;

	cache_object_name(sha256, name);
	return fstatat(c->objects, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       !cache_is_damaged(st.st_mode);
}

/* One try of a lookup: -ESTALE when the file was removed or replaced under us. */
static int lookup_once(struct cache *c, const uint8_t sha256[32], int *ret_fd, uint64_t *ret_size)
{
	char name[OBJECT_NAME_SIZE];
	struct stat st;
	int fd, r = 0;

	cache_object_name(sha256, name);
	fd = openat(c->objects, name, O_RDONLY | O_NOATIME | OPEN_FLAGS);
	if (fd < 0) {
		r = -errno;
		/* A damaged one, or none of ours: begin may replace it. */
		if ((r == -EACCES || r == -ELOOP) && !cache_is_published(c, sha256))
			r = -ENOENT;
		return r;
	}
	/* Who has the exclusive lock is about to remove it. */
	if (flock(fd, LOCK_SH | LOCK_NB) < 0)
		r = errno == EWOULDBLOCK ? -ENOENT : -errno;
	else if (fstat(fd, &st) < 0)
		r = -errno;
	else if (!S_ISREG(st.st_mode) || cache_is_damaged(st.st_mode))
		r = -ENOENT;
	else if (st.st_nlink == 0)
		r = -ESTALE;
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	*ret_fd = fd;
	if (ret_size)
		*ret_size = (uint64_t)st.st_size;
	return 0;
}

int cache_lookup(struct cache *c, const uint8_t sha256[32], int *ret_fd, uint64_t *ret_size)
{
	const struct timespec used[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };
	int r = -ESTALE;

	for (int i = 0; i < LOOKUP_TRIES && r == -ESTALE; i++)
		r = lookup_once(c, sha256, ret_fd, ret_size);
	if (r == 0)
		futimens(*ret_fd, used); /* best effort: only the order of gc */
	return r == -ESTALE ? -ENOENT : r;
}

int cache_drop(struct cache *c, const uint8_t sha256[32], int fd)
{
	char name[OBJECT_NAME_SIZE];
	struct cache_lock lock;
	struct stat bad, now;
	int r;

	if (fstat(fd, &bad) < 0)
		return -errno;
	cache_object_name(sha256, name);
	if (fstatat(c->objects, name, &now, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (now.st_ino != bad.st_ino || now.st_dev != bad.st_dev)
		return 0;
	/* The mark stays on this inode, whatever the name means by now. */
	if (fchmod(fd, 0) < 0)
		return -errno;
	carton_log(CARTON_LOG_WARNING, name + 3, "damaged object dropped from the cache");
	/* Who holds the lock will replace it, or leaves it to gc. */
	r = cache_lock_try(c, sha256, &lock);
	if (r < 0)
		return r == -EAGAIN || r == -ENOSPC ? 0 : r;
	if (fstatat(c->objects, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_ino == bad.st_ino &&
	    unlinkat(c->objects, name, 0) < 0)
		r = -errno;
	cache_lock_release(c, &lock);
	return r;
}

int cache_path(struct cache *c, const uint8_t sha256[32], char *ret_path, size_t n)
{
	char name[OBJECT_NAME_SIZE];

	if (!cache_is_published(c, sha256))
		return -ENOENT;
	if (strlen(c->path) + strlen("/objects/") + OBJECT_NAME_SIZE > n)
		return -ENAMETOOLONG;
	cache_object_name(sha256, name);
	snprintf(ret_path, n, "%s/objects/%s", c->path, name);
	return 0;
}

/* ---- walking ---- */

int cache_opendir(int fd, const char *name, DIR **ret_dir)
{
	int sub = openat(fd, name, O_RDONLY | O_DIRECTORY | OPEN_FLAGS), r;
	DIR *dir;

	if (sub < 0)
		return -errno;
	dir = fdopendir(sub);
	if (!dir) {
		r = -errno;
		fd_close(sub);
		return r;
	}
	*ret_dir = dir;
	return 0;
}

static int each_in_bucket(DIR *dir, uint8_t bucket, cache_each_fn *fn, void *ctx)
{
	uint8_t sha256[32];
	struct dirent *de;
	struct stat st;
	int r = 0;

	while (r == 0 && (de = readdir(dir))) {
		if (!cache_name_decode(de->d_name, 32, sha256) || sha256[0] != bucket)
			continue;
		if (fstatat(dirfd(dir), de->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode))
			r = fn(ctx, sha256, &st);
	}
	return r;
}

static int each_bucket(struct cache *c, const char *name, cache_each_fn *fn, void *ctx)
{
	uint8_t bucket;
	DIR *dir;
	int r;

	if (!cache_name_decode(name, 1, &bucket))
		return 0;
	r = cache_opendir(c->objects, name, &dir);
	if (r < 0)
		return r;
	r = each_in_bucket(dir, bucket, fn, ctx);
	closedir(dir);
	return r;
}

int cache_each(struct cache *c, cache_each_fn *fn, void *ctx)
{
	struct dirent *de;
	DIR *dir;
	int r;

	r = cache_opendir(c->objects, ".", &dir);
	if (r < 0)
		return r;
	while (r == 0 && (de = readdir(dir)))
		r = each_bucket(c, de->d_name, fn, ctx);
	closedir(dir);
	return r;
}

struct list_ctx {
	cache_list_fn *fn;
	void *ctx;
};

static int list_one(void *ctx, const uint8_t sha256[32], const struct stat *st)
{
	struct list_ctx *list = ctx;
	struct cache_object object = { .size = (uint64_t)st->st_size, .used = st->st_mtime };

	if (cache_is_damaged(st->st_mode))
		return 0;
	memcpy(object.sha256, sha256, 32);
	return list->fn(list->ctx, &object);
}

int cache_list(struct cache *c, cache_list_fn *fn, void *ctx)
{
	struct list_ctx list = { fn, ctx };

	return cache_each(c, list_one, &list);
}
