/* SPDX-License-Identifier: Apache-2.0 */
/* Removes the files that dead processes left, with the lock of their object. */
#include <sys/file.h>
#include <unistd.h>

#include "cache/internal.h"

void cache_remove_partial(struct cache *c, const uint8_t sha256[32])
{
	char name[SIDECAR_NAME_SIZE];

	cache_sidecar_name(sha256, name);
	unlinkat(c->partial, name, 0); /* first: without it no byte of the partial counts */
	name[64] = '\0';
	unlinkat(c->partial, name, 0);
}

/* A date in the future counts as old. While the clock is not set, no date is old. */
static bool older_than(int fd, const char *name, int64_t age_s)
{
	struct timespec now;
	struct stat st;

	clock_gettime(CLOCK_REALTIME, &now);
	return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (now.tv_sec - st.st_mtim.tv_sec > age_s || clock_is_future(st.st_mtim.tv_sec));
}

/*
 * Will nobody resume the partial? It is too old, or one of its two files is missing. The lock is
 * held.
 */
static bool partial_is_leftover(struct cache *c, const uint8_t sha256[32])
{
	char name[SIDECAR_NAME_SIZE];

	cache_sidecar_name(sha256, name);
	if (faccessat(c->partial, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return true;
	name[64] = '\0';
	return faccessat(c->partial, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 ||
	       older_than(c->partial, name, CACHE_PARTIAL_MAX_AGE_S);
}

/* Gives back the blocks behind its end, which a process reserved that was killed. */
static void give_back(struct cache *c, const char *name)
{
	struct stat st;
	int fd;

	if (cache_open_file(c->partial, name, O_RDWR, &fd) < 0)
		return;
	if (fstat(fd, &st) == 0 && (uint64_t)st.st_blocks * 512 > (uint64_t)st.st_size)
		(void)!ftruncate(fd, st.st_size);
	fd_close(fd);
}

static void sweep_partial(struct cache *c, char *name)
{
	struct cache_lock lock;
	uint8_t sha256[32];

	if (strlen(name) == SIDECAR_NAME_SIZE - 1 && strcmp(name + 64, SIDECAR_SUFFIX) == 0)
		name[64] = '\0';
	if (!cache_name_decode(name, 32, sha256) || cache_lock_try(c, sha256, &lock) < 0)
		return;
	if (partial_is_leftover(c, sha256))
		cache_remove_partial(c, sha256);
	else
		give_back(c, name);
	cache_lock_release(&lock);
}

/* A note belongs to no object, so it goes once nobody has read or written it for a long time. */
static void sweep_note(struct cache *c, char *name)
{
	if (older_than(c->notes, name, CACHE_NOTE_MAX_AGE_S))
		unlinkat(c->notes, name, 0);
}

static void sweep_tmp(struct cache *c, char *name)
{
	int fd;

	if (cache_open_file(c->tmp, name, O_RDONLY, &fd) < 0)
		return;
	/*
	 * A name in use is locked by the process that made it, which looks again when a sweep was
	 * faster.
	 */
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		unlinkat(c->tmp, name, 0);
	fd_close(fd);
}

/* Version 0.1.0 filled objects in these, with locks of its own: mounts of it may still run. */
static void sweep_old(struct cache *c)
{
	static const char *const old[] = { "partial", "locks" };

	for (size_t i = 0; i < ARRAY_SIZE(old); i++)
		if (older_than(c->v1, old[i], CACHE_PARTIAL_MAX_AGE_S))
			cache_remove_any(c->v1, old[i]);
}

/* Older versions had their key in the cache: whoever could read that could make seals. */
static void sweep_old_seal(struct cache *c, char *name)
{
	uint8_t sha256[32];
	int fd;

	if (cache_open_file(c->seals, name, O_RDONLY, &fd) < 0)
		return;
	if (cache_seal_says(fd, sha256) == 0)
		unlinkat(c->seals, name, 0);
	fd_close(fd);
}

static void sweep(struct cache *c, int fd, void (*fn)(struct cache *c, char *name))
{
	struct dirent *de;
	DIR *dir;

	if (cache_opendir(fd, ".", &dir) < 0)
		return;
	while ((de = readdir(dir)))
		if (de->d_name[0] != '.')
			fn(c, de->d_name);
	closedir(dir);
}

void cache_sweep(struct cache *c)
{
	sweep(c, c->partial, sweep_partial);
	sweep(c, c->notes, sweep_note);
	sweep(c, c->tmp, sweep_tmp);
	if (faccessat(c->seals, OLD_SECRET, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
		sweep(c, c->seals, sweep_old_seal);
		cache_remove_any(c->seals, OLD_SECRET);
	}
	sweep_old(c);
}
