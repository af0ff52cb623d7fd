/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock of an object, for the process that fills, drops or removes it; or for all that fill a
 * sparse partial together. These share the first byte of the lock file, and the one of them that
 * makes, names or unnames the partial has the second. Who has it alone has all bytes.
 */
#include <unistd.h>

#include "cache/internal.h"

#define LOCK_TRIES 100 /* the lock file may be removed between open and lock */

/* Does the name still lead to the inode that was locked? Else the lock guards nothing. */
static bool lock_is_current(struct cache *c, const struct cache_lock *lock)
{
	struct stat ours, named;

	return fstat(lock->fd, &ours) == 0 &&
	       fstatat(c->locks, lock->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

static int set(int fd, short type, off_t start, off_t n)
{
	struct flock fl = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = n };

	if (fcntl(fd, F_OFD_SETLK, &fl) == 0)
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

static int take(struct cache *c, const uint8_t sha256[32], bool share, struct cache_lock *ret_lock)
{
	struct cache_lock lock;

	hex_encode(sha256, 32, lock.name);
	for (int i = 0; i < LOCK_TRIES; i++) {
		int r = cache_open_file(c->locks, lock.name, O_RDWR | O_CREAT, &lock.fd);

		if (r < 0)
			return r;
		r = set(lock.fd, share ? F_RDLCK : F_WRLCK, 0, share);
		if (r < 0) {
			fd_close(lock.fd);
			return r;
		}
		if (lock_is_current(c, &lock)) {
			*ret_lock = lock;
			return 0;
		}
		fd_close(lock.fd);
	}
	return -EAGAIN;
}

int cache_lock_try(struct cache *c, const uint8_t sha256[32], struct cache_lock *ret_lock)
{
	return take(c, sha256, false, ret_lock);
}

int cache_lock_share(struct cache *c, const uint8_t sha256[32], struct cache_lock *ret_lock)
{
	return take(c, sha256, true, ret_lock);
}

int cache_lock_name(const struct cache_lock *lock, bool on)
{
	return set(lock->fd, on ? F_WRLCK : F_UNLCK, 1, 1);
}

void cache_lock_release(struct cache *c, struct cache_lock *lock)
{
	/*
	 * The file is removed while locked by nobody else: a process that opened it before finds in
	 * lock_is_current() that it is stale.
	 */
	if (set(lock->fd, F_WRLCK, 0, 0) == 0)
		unlinkat(c->locks, lock->name, 0);
	/* A forked child may have the same description open: closing would not unlock. */
	set(lock->fd, F_UNLCK, 0, 0);
	fd_close(lock->fd);
	lock->fd = -1;
}

int cache_lock_is_held(struct cache *c, const char *name)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd, r = cache_open_file(c->locks, name, O_RDWR, &fd);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = fcntl(fd, F_OFD_GETLK, &fl) < 0 ? -errno : fl.l_type != F_UNLCK;
	fd_close(fd);
	return r;
}

/* ---- waiting ---- */

/* The number of bytes that the current writer has written; 0: there is no writer. */
static uint64_t filled(struct cache *c, const char *name)
{
	struct stat st;

	return fstatat(c->partial, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : (uint64_t)st.st_size;
}

int cache_is_filling(struct cache *c, const uint8_t sha256[32], uint64_t *ret_filled)
{
	char name[HEX_SIZE];

	hex_encode(sha256, 32, name);
	*ret_filled = filled(c, name);
	return cache_lock_is_held(c, name);
}

int cache_wait(struct cache *c, const uint8_t sha256[32], int timeout_ms, struct cancel *cancel)
{
	int64_t end = now_ms() + timeout_ms, step = 1;
	uint64_t most = 0, now;

	for (bool first = true;; first = false) {
		int r = cache_is_filling(c, sha256, &now);
		int64_t left;

		if (r <= 0)
			return r;
		if (now > most && !first)
			end = now_ms() + timeout_ms;
		most = MAX(now, most);
		left = timeout_ms < 0 ? step : end - now_ms();
		if (left <= 0)
			return -ETIMEDOUT;
		r = cancel_sleep(cancel, MIN(left, step));
		if (r < 0)
			return r;
		step = MIN(2 * step, (int64_t)CACHE_WAIT_STEP_MS);
	}
}
