/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock of an object is two bytes of LOCK_FILE. A process that fills, drops or removes the
 * object alone locks both. Processes that fill one sparse partial together share the first byte,
 * and the one that makes, names or unnames the partial locks the second.
 *
 * No call removes the file. To make and unlink a file for each object is slow on ext4, which does
 * not use an inode again that was freed a moment ago, and searches for another one.
 */
#include <unistd.h>

#include "cache/internal.h"

#define LOCK_BYTES 2

/*
 * Two objects may have the same two bytes, if somebody makes up hashes for that: one of them is
 * then filled after the other, or without the cache.
 */
static off_t lock_at(const uint8_t sha256[32])
{
	return (off_t)(get_le64(sha256) >> 2 & ~(uint64_t)1);
}

static int set(const struct cache_lock *lock, short type, int first, int n)
{
	struct flock fl = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = lock->at + first, .l_len = n
	};

	if (fcntl(lock->fd, F_OFD_SETLK, &fl) == 0)
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

/* Each lock has a description of its own: the kernel lets two locks of one description overlap. */
static int take(struct cache *c, const uint8_t sha256[32], bool share, struct cache_lock *ret_lock)
{
	struct cache_lock lock = { .at = lock_at(sha256) };
	int r = cache_open_file(c->v1, LOCK_FILE, O_RDWR | O_CREAT, &lock.fd);

	if (r < 0)
		return r;
	r = share ? set(&lock, F_RDLCK, 0, 1) : set(&lock, F_WRLCK, 0, LOCK_BYTES);
	if (r < 0)
		fd_close(lock.fd);
	else
		*ret_lock = lock;
	return r;
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
	return set(lock, on ? F_WRLCK : F_UNLCK, 1, 1);
}

void cache_lock_release(struct cache_lock *lock)
{
	/* A forked child may have the same description open: closing would not unlock. */
	set(lock, F_UNLCK, 0, LOCK_BYTES);
	fd_close(lock->fd);
	lock->fd = -1;
}

int cache_lock_is_held(struct cache *c, const uint8_t sha256[32])
{
	struct flock fl = { .l_type = F_WRLCK,
			    .l_whence = SEEK_SET,
			    .l_start = lock_at(sha256),
			    .l_len = LOCK_BYTES };
	int fd, r = cache_open_file(c->v1, LOCK_FILE, O_RDWR, &fd);

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
	return cache_lock_is_held(c, sha256);
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
