/* SPDX-License-Identifier: Apache-2.0 */
#include "base/own.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int own_check(int fd, bool root, char ret_why[OWN_WHY])
{
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : 0;

	if (r < 0) {
		snprintf(ret_why, OWN_WHY, "cannot be examined: %s", strerror(-r));
		return r;
	}
	if (st.st_uid != geteuid() && !(root && st.st_uid == 0)) {
		snprintf(ret_why, OWN_WHY, "belongs to uid %u, not to uid %u of this process",
			 (unsigned)st.st_uid, (unsigned)geteuid());
		return -EPERM;
	}
	if (st.st_mode & (S_IWGRP | S_IWOTH)) {
		snprintf(ret_why, OWN_WHY, "has mode %04o, so others may write to it",
			 (unsigned)(st.st_mode & 07777));
		return -EPERM;
	}
	return 0;
}

/* Returns the mode of the file with the owner's bits of `mode` added. -1: the file has them. */
static int missing_mode(const struct stat *st, mode_t mode)
{
	mode &= S_IRWXU;
	return (st->st_mode & mode) == mode ? -1 : (int)((st->st_mode & 07777) | mode);
}

int own_give(int fd, mode_t mode)
{
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : 0, want = r < 0 ? -1 : missing_mode(&st, mode);

	return want >= 0 && fchmod(fd, (mode_t)want) < 0 ? -errno : r;
}

/* A directory that its owner cannot open has no fchmod(2). It is changed by descriptor, too. */
static int give_closed(int at, const char *name, mode_t mode)
{
	int fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r;
	char path[32];
	struct stat st;

	r = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (r == 0 && st.st_uid != geteuid())
		r = -EPERM;
	if (r == 0 && missing_mode(&st, mode) >= 0 &&
	    chmod(path, (mode_t)missing_mode(&st, mode)) < 0)
		r = -errno;
	if (fd >= 0)
		close(fd);
	return r;
}

int own_make_dir(int at, const char *name, mode_t mode)
{
	int fd, r;

	if (mkdirat(at, name, mode) < 0)
		return -errno;
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = fd < 0 ? -errno : own_give(fd, mode);
	if (fd >= 0)
		close(fd);
	if (r == -EACCES && fd < 0)
		r = give_closed(at, name, mode);
	/* a directory that nobody can enter would be in the way of later runs, too */
	if (r < 0)
		unlinkat(at, name, AT_REMOVEDIR);
	return r;
}
