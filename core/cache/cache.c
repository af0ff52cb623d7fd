/* SPDX-License-Identifier: Apache-2.0 */
/* The cache's published objects. See cache.h for the layout and the locks. */
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include "cache/internal.h"

#define LOOKUP_TRIES 8 /* an object may be replaced between its open and its lock */

/* One try of a lookup: -ESTALE when the file was removed or replaced meanwhile. */
static int lookup_once(struct cache *c, const uint8_t sha256[32], int *ret_fd, uint64_t *ret_size)
{
	struct stat st;
	int fd, r = cache_open_object(c, sha256, &fd);

	/* A damaged object, or no object at all. */
	if (r == -EACCES || r == -EISDIR || r == -ENOTDIR || r == -ELOOP)
		return -ENOENT;
	if (r < 0)
		return r;
	/* The holder of the exclusive lock is about to remove the file. */
	if (flock(fd, LOCK_SH | LOCK_NB) < 0)
		r = errno == EWOULDBLOCK ? -ENOENT : -errno;
	else if (fstat(fd, &st) < 0)
		r = -errno;
	else if (cache_is_damaged(st.st_mode))
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
		futimens(*ret_fd, used); /* best effort: only gc needs it, for its order */
	return r == -ESTALE ? -ENOENT : r;
}

int cache_source(struct cache *c, const uint8_t sha256[32], struct source **ret)
{
	int fd, r = c ? cache_lookup(c, sha256, &fd, NULL) : -ENOENT;

	return r < 0 ? r : source_from_fd(fd, ret);
}

bool cache_has(struct cache *c, const uint8_t sha256[32])
{
	int fd;

	if (!c || cache_lookup(c, sha256, &fd, NULL) < 0)
		return false;
	fd_close(fd);
	return true;
}

bool cache_lists(const struct cache *c, const uint8_t sha256[32], uint64_t size)
{
	char name[OBJECT_NAME_SIZE];
	struct stat st;

	cache_object_name(sha256, name);
	return fstatat(c->objects, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       !cache_is_damaged(st.st_mode) && (uint64_t)st.st_size == size;
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
	/* Marks this inode, even if another file has its name by now. */
	if (fchmod(fd, 0) < 0)
		return -errno;
	carton_log(CARTON_LOG_NOTICE, name + 3, "damaged object dropped from the cache");
	/* The holder of the lock replaces the file, or leaves it to gc. */
	r = cache_lock_try(c, sha256, &lock);
	if (r < 0)
		return r == -EAGAIN || r == -ENOSPC ? 0 : r;
	if (fstatat(c->objects, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_ino == bad.st_ino &&
	    unlinkat(c->objects, name, 0) < 0)
		r = -errno;
	cache_lock_release(&lock);
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

struct list_ctx {
	struct cache *cache;
	cache_list_fn *fn;
	void *ctx;
	struct cache_names *names;
	enum cache_kind kind;
};

/* The sha256 that a seal says it is of, which nothing has checked. */
static void seal_says(struct cache *c, struct cache_object *object)
{
	char name[HEX_SIZE];
	int fd;

	hex_encode(object->name, 32, name);
	if (cache_open_file(c->seals, name, O_RDONLY | O_NOATIME, &fd) < 0)
		return;
	cache_seal_says(fd, object->sha256);
	fd_close(fd);
}

static int list_one(void *ctx, const uint8_t sha256[32], const struct stat *st)
{
	struct list_ctx *list = ctx;
	struct cache_object object = { .size = (uint64_t)st->st_size,
				       .used = st->st_mtime,
				       .kind = list->kind };

	if (list->kind == CACHE_OBJECT && cache_is_damaged(st->st_mode))
		return 0;
	memcpy(object.sha256, sha256, 32);
	memcpy(object.name, sha256, 32);
	if (list->kind == CACHE_SEAL)
		seal_says(list->cache, &object);
	/* it may have holes */
	if (list->kind == CACHE_PARTIAL)
		object.size = (uint64_t)st->st_blocks * 512;
	cache_names_find(list->names, &object);
	return list->fn(list->ctx, &object);
}

int cache_list(struct cache *c, cache_list_fn *fn, void *ctx)
{
	struct list_ctx list = { .cache = c, .fn = fn, .ctx = ctx };
	int r = cache_names_read(c, &list.names);

	if (r == 0)
		r = cache_each(c, list_one, &list);
	list.kind = CACHE_SEAL;
	if (r == 0)
		r = cache_each_in(c->seals, list_one, &list);
	list.kind = CACHE_PARTIAL;
	if (r == 0)
		r = cache_each_in(c->partial, list_one, &list);
	cache_names_free(list.names);
	return r;
}
