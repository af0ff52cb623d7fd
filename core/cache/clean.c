/* SPDX-License-Identifier: Apache-2.0 */
/* Removes files that do not belong into the cache, which a person or a damaged disk put there. */
#include <stdio.h>
#include <unistd.h>

#include "cache/internal.h"

#define MAX_DEPTH 32 /* of a directory that is removed */

/* Which names of regular files a directory may have. */
enum names {
	NAMES_ANY,
	NAMES_HEX,     /* 32 bytes in hex */
	NAMES_SIDECAR, /* the same, and names of sidecars */
};

static int remove_any(int dir, const char *name, unsigned depth);

static int remove_dir(int parent, const char *name, unsigned depth)
{
	struct dirent *de;
	DIR *dir;
	int r = depth == 0 ? -ELOOP : cache_opendir(parent, name, &dir);

	if (r < 0)
		return r;
	while (r == 0 && (de = readdir(dir)))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			r = remove_any(dirfd(dir), de->d_name, depth - 1);
	closedir(dir);
	if (r == 0 && unlinkat(parent, name, AT_REMOVEDIR) < 0)
		r = -errno;
	return r;
}

static int remove_any(int dir, const char *name, unsigned depth)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return remove_dir(dir, name, depth);
	return unlinkat(dir, name, 0) < 0 ? -errno : 0;
}

int cache_remove_any(int dir, const char *name)
{
	return remove_any(dir, name, MAX_DEPTH);
}

/* Returns how many were removed: 0 or 1. */
static size_t remove_foreign(int dir, const char *name, const char *where)
{
	char subject[300];
	int r = cache_remove_any(dir, name);

	if (r == -ENOENT)
		return 0;
	snprintf(subject, sizeof(subject), "%s/%s", where, name);
	if (r < 0)
		carton_log(CARTON_LOG_WARNING, subject,
			   "does not belong into the cache, and cannot be removed: %s",
			   strerror(-r));
	else
		carton_log(CARTON_LOG_WARNING, subject, "does not belong into the cache: removed");
	return r == 0;
}

static bool is_kind(int dir, const char *name, mode_t kind)
{
	struct stat st;

	/* removed meanwhile: nothing to do */
	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || (st.st_mode & S_IFMT) == kind;
}

static bool name_fits(const char *name, enum names names)
{
	uint8_t id[32];
	char hex[HEX_SIZE];

	if (names == NAMES_ANY || cache_name_decode(name, 32, id))
		return true;
	if (names != NAMES_SIDECAR || strlen(name) != SIDECAR_NAME_SIZE - 1)
		return false;
	memcpy(hex, name, HEX_SIZE - 1);
	hex[HEX_SIZE - 1] = '\0';
	return cache_name_decode(hex, 32, id) && strcmp(name + 64, SIDECAR_SUFFIX) == 0;
}

/* Cleans a directory of files. `bucket`: the two digits that their names begin with, or "". */
static size_t clean_dir(int fd, const char *where, const char *bucket, enum names names)
{
	struct dirent *de;
	size_t n = 0;
	DIR *dir;

	if (cache_opendir(fd, bucket[0] ? bucket : ".", &dir) < 0)
		return 0;
	/* a file system may have files of its own, whose names begin with a dot */
	while ((de = readdir(dir)))
		if (de->d_name[0] != '.' && (!name_fits(de->d_name, names) ||
					     strncmp(de->d_name, bucket, strlen(bucket)) != 0 ||
					     !is_kind(dirfd(dir), de->d_name, S_IFREG)))
			n += remove_foreign(dirfd(dir), de->d_name, where);
	closedir(dir);
	return n;
}

size_t cache_clean(struct cache *c)
{
	static const char *const files[] = { LOCK_FILE, NAMES_FILE, NAMES_OLD_FILE };
	struct dirent *de;
	uint8_t bucket;
	size_t n = 0;
	DIR *dir;

	n += clean_dir(c->partial, "partials", "", NAMES_SIDECAR);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (!is_kind(c->v1, files[i], S_IFREG))
			n += remove_foreign(c->v1, files[i], "v1");
	n += clean_dir(c->notes, "notes", "", NAMES_HEX);
	n += clean_dir(c->seals, "seals", "", NAMES_HEX);
	n += clean_dir(c->tmp, "tmp", "", NAMES_ANY);
	if (cache_opendir(c->objects, ".", &dir) < 0)
		return n;
	while ((de = readdir(dir))) {
		if (de->d_name[0] == '.')
			continue;
		if (!cache_name_decode(de->d_name, 1, &bucket) ||
		    !is_kind(dirfd(dir), de->d_name, S_IFDIR))
			n += remove_foreign(dirfd(dir), de->d_name, "objects");
		else
			n += clean_dir(c->objects, "objects", de->d_name, NAMES_HEX);
	}
	closedir(dir);
	return n;
}
