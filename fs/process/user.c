/* SPDX-License-Identifier: Apache-2.0 */
#include "process/user.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAME "cartonfs"
#define CACHE "/var/cache/cartonfs"
/* v1/objects/ab/<hex>: directories of v1/ have no deeper ones */
#define MAX_DEPTH 3

/* ---- the user ---- */

/*
 * Finds the user in the local files. getpwnam(3) may ask a server for a missing name, and
 * fgetpwent(3) makes two system calls for each line.
 */
static bool find_local(struct user *ret)
{
	FILE *f = fopen("/etc/passwd", "re");
	unsigned uid, gid;
	char *line = NULL;
	size_t size = 0;
	bool found = false;

	while (f && !found && getline(&line, &size, f) > 0) {
		const char *ids = strncmp(line, NAME ":", sizeof(NAME)) == 0 ?
					  strchr(line + sizeof(NAME), ':') :
					  NULL;

		found = ids && sscanf(ids, ":%u:%u:", &uid, &gid) == 2 && uid && gid;
		if (found)
			*ret = (struct user){ uid, gid };
	}
	free(line);
	if (f)
		fclose(f);
	return found;
}

/* Is there such a number in this user namespace? */
static bool is_mapped(const char *map, unsigned id)
{
	FILE *f = fopen(map, "re");
	unsigned first, outside, n;
	bool found = false;

	while (f && !found && fscanf(f, "%u %u %u", &first, &outside, &n) == 3)
		found = id >= first && id - first < n;
	if (f)
		fclose(f);
	return found;
}

/* May this process drop its groups? A user namespace may forbid that to any capability. */
static bool may_drop_groups(void)
{
	FILE *f = fopen("/proc/self/setgroups", "re");
	char text[8] = "";
	bool denied = f && fgets(text, sizeof(text), f) && strncmp(text, "deny", 4) == 0;

	if (f)
		fclose(f);
	return !denied;
}

bool user_may(int capability)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct have[2];

	return syscall(SYS_capget, &header, have) == 0 &&
	       have[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability);
}

static bool may_change(void)
{
	return user_may(CAP_SETUID) && user_may(CAP_SETGID) && user_may(CAP_CHOWN) &&
	       may_drop_groups();
}

static bool look_for(struct user *ret)
{
	return getuid() == 0 && geteuid() == 0 && may_change() && find_local(ret) &&
	       is_mapped("/proc/self/uid_map", ret->uid) &&
	       is_mapped("/proc/self/gid_map", ret->gid);
}

bool user_find(struct user *ret)
{
	static bool looked, found;
	static struct user user;

	/* a later call would have a helper open each of the files (opener.h) */
	if (!looked)
		found = look_for(&user);
	looked = true;
	if (found)
		*ret = user;
	return found;
}

/*
 * Sets HOME to that of the user, as libraries look there for files of the user who has started the
 * program.
 */
static int keep_home(void)
{
	const struct passwd *pw = getenv("HOME") ? NULL : getpwuid(geteuid());

	return pw && setenv("HOME", pw->pw_dir, 1) < 0 ? -errno : 0;
}

int user_become(const struct user *user)
{
	int r = keep_home();

	if (r < 0)
		return r;
	/*
	 * keeps the capabilities, which the kernel would drop; the caller drops those that it does
	 * not need
	 */
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
	    setresgid(user->gid, user->gid, user->gid) < 0 ||
	    setresuid(user->uid, user->uid, user->uid) < 0 ||
	    prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) < 0)
		return -errno;
	return 0;
}

/* ---- the cache ---- */

int user_default_cache(const char **cache_dir)
{
	const char *xdg = secure_getenv("XDG_CACHE_HOME");
	struct user user;

	if (*cache_dir || (xdg && *xdg == '/') || !user_find(&user))
		return 0;
	*cache_dir = strdup(CACHE);
	return *cache_dir ? 0 : -ENOMEM;
}

/* May nobody but root and the user change what is in the directory? */
static bool is_safe(const struct user *user, const struct stat *st)
{
	return (st->st_uid == 0 || st->st_uid == user->uid) && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

static int give(const struct user *user, int fd, int depth);

/* Gives away the entry `name` of the directory `fd`, if it is root's. */
static int give_entry(const struct user *user, int fd, const char *name, int depth)
{
	struct stat st;
	int sub, r = 0;

	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	/*
	 * below a directory that was not root's, files could change meanwhile; below one of the
	 * user's, all was given before the directory was
	 */
	if (S_ISDIR(st.st_mode) && depth > 0 && st.st_uid == 0 && is_safe(user, &st)) {
		sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = sub < 0 ? (errno == ENOENT ? 0 : -errno) : give(user, sub, depth - 1);
		if (sub >= 0)
			close(sub);
		return r;
	}
	/* a file with a second name stays root's: it is not read, and made anew */
	if (!S_ISREG(st.st_mode) || st.st_uid != 0 || st.st_nlink != 1)
		return 0;
	r = fchownat(fd, name, user->uid, user->gid, AT_SYMLINK_NOFOLLOW);
	return r < 0 && errno != ENOENT ? -errno : 0;
}

/*
 * Gives away the entries of a directory, then the directory: until then the user cannot change it.
 */
static int give(const struct user *user, int fd, int depth)
{
	DIR *stream;
	const struct dirent *entry;
	int copy = dup(fd), r = 0;

	stream = copy < 0 ? NULL : fdopendir(copy);
	if (!stream) {
		r = -errno;
		if (copy >= 0)
			close(copy);
		return r;
	}
	while (r == 0 && (errno = 0, entry = readdir(stream)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = give_entry(user, fd, entry->d_name, depth);
	r = r == 0 && errno ? -errno : r;
	closedir(stream);
	if (r == 0 && fchown(fd, user->uid, user->gid) < 0)
		r = -errno;
	return r;
}

int user_give_cache(const struct user *user, const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r = 0;
	struct stat st, above;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || fstatat(fd, "..", &above, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	else if (st.st_uid == 0 && is_safe(user, &st) && is_safe(user, &above))
		r = give(user, fd, MAX_DEPTH);
	close(fd);
	return r;
}
