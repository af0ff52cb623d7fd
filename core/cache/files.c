/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the cache: their names, temporary ones, and walking through them. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/own.h"
#include "cache/internal.h"

#define KEEP_FREE 20 /* a twentieth of the file system */

#define TMP_TRIES 8 /* a sweep may remove a new name before it is locked */

int cache_disk_short(int fd, uint64_t n, uint64_t keep, uint64_t *ret_short)
{
	struct statvfs vfs;
	uint64_t avail, want;

	if (fstatvfs(fd, &vfs) < 0)
		return -errno;
	keep = MIN(keep, (uint64_t)vfs.f_blocks / KEEP_FREE * vfs.f_frsize);
	avail = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	if (__builtin_add_overflow(n, keep, &want))
		want = UINT64_MAX;
	/* a memfd has no file system size */
	*ret_short = vfs.f_blocks == 0 || want <= avail ? 0 : want - avail;
	return 0;
}

int cache_allocate(int fd, uint64_t size)
{
	int r;

	/* fallocate() refuses that */
	if (size == 0)
		return 0;
	do
		r = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)size) < 0 ? -errno : 0;
	while (r == -EINTR);
	return r == -EDQUOT ? -ENOSPC : r == -EOPNOTSUPP || r == -ENOSYS ? 0 : r;
}

uint64_t cache_blocks(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

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

/*
 * An open of a FIFO would wait for its other end, and an open of a device may do anything. So the
 * kind of the file is checked before it is opened, and again when it is open.
 */
int cache_open_file(int dir, const char *name, int flags, int *ret_fd)
{
	struct stat st;
	int fd, r = 0;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode))
		return -EISDIR;
	fd = openat(dir, name, flags | O_NONBLOCK | O_NOCTTY | OPEN_FLAGS, 0600);
	if (fd < 0)
		return errno == ELOOP ? -EISDIR : -errno;
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if (!S_ISREG(st.st_mode))
		r = -EISDIR;
	else if (flags & O_CREAT)
		own_give(fd, 0600); /* if that fails, a later run logs why it cannot open it */
	if (r < 0)
		fd_close(fd);
	else
		*ret_fd = fd;
	return r;
}

int cache_open_object(struct cache *c, const uint8_t sha256[32], int *ret_fd)
{
	char name[OBJECT_NAME_SIZE];
	int bucket, r;

	cache_object_name(sha256, name);
	name[2] = '\0';
	bucket = openat(c->objects, name, O_PATH | O_DIRECTORY | OPEN_FLAGS);
	if (bucket < 0)
		return -errno;
	r = cache_open_file(bucket, name + 3, O_RDONLY | O_NOATIME, ret_fd);
	fd_close(bucket);
	return r;
}

static bool is_named(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

int cache_tmp_create(struct cache *c, char ret_name[HEX_SIZE], int *ret_fd)
{
	for (int i = 0; i < TMP_TRIES; i++) {
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
		own_give(fd, 0600);
		/* A sweep may have locked the file first; then it is removed, or soon will be. */
		if (flock(fd, LOCK_EX | LOCK_NB) < 0 ? errno != EWOULDBLOCK : is_named(fd)) {
			*ret_fd = fd;
			return 0;
		}
		fd_close(fd);
	}
	return -EEXIST;
}

int cache_put_file(struct cache *c, int dir, const char *name, const void *data, size_t n)
{
	char tmp[HEX_SIZE];
	int fd, r = cache_tmp_create(c, tmp, &fd);

	if (r < 0)
		return r;
	r = pwrite_full(fd, data, n, 0);
	if (r == 0 && renameat(c->tmp, tmp, dir, name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(c->tmp, tmp, 0);
	fd_close(fd);
	return r;
}

static int tmpfile_elsewhere(int *ret_fd)
{
	const char *dir = getenv("TMPDIR");
	int fd = dir && *dir ? open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		fd = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0) {
		int r = -errno;

		if (r == -EMFILE || r == -ENFILE)
			return r;
		return log_error(r == -ENOSPC || r == -EDQUOT ? r : -EIO, "/var/tmp",
				 "cannot hold a temporary file: %s", strerror(-r));
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

bool cache_is_published(struct cache *c, const uint8_t sha256[32])
{
	char name[OBJECT_NAME_SIZE];
	struct stat st;

	cache_object_name(sha256, name);
	return fstatat(c->objects, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       !cache_is_damaged(st.st_mode);
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

/* Calls `fn` for the files named by a sha256. `bucket`: the first byte of it; < 0: any. */
static int each_in_dir(DIR *dir, int bucket, cache_each_fn *fn, void *ctx)
{
	uint8_t sha256[32];
	struct dirent *de;
	struct stat st;
	int r = 0;

	while (r == 0 && (de = readdir(dir))) {
		if (!cache_name_decode(de->d_name, 32, sha256) ||
		    (bucket >= 0 && sha256[0] != bucket))
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
	if (r == -ENOTDIR || r == -ELOOP || r == -ENOENT)
		return 0; /* not a bucket, or removed just now */
	if (r < 0)
		return r;
	r = each_in_dir(dir, bucket, fn, ctx);
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

int cache_each_in(int fd, cache_each_fn *fn, void *ctx)
{
	DIR *dir;
	int r = cache_opendir(fd, ".", &dir);

	if (r < 0)
		return r;
	r = each_in_dir(dir, -1, fn, ctx);
	closedir(dir);
	return r;
}

int cache_seal_says(int fd, uint8_t ret_sha256[32])
{
	uint8_t header[SEAL_HEADER_SIZE];
	int r = pread_full(fd, header, SEAL_HEADER_SIZE, 0);

	if (r < 0)
		return r == -ENODATA ? 0 : r;
	if (memcmp(header, SEAL_MAGIC, 16) != 0)
		return 0;
	memcpy(ret_sha256, header + 16, 32);
	return 1;
}
