/* SPDX-License-Identifier: Apache-2.0 */
#include "mountpoint.h"

#include <errno.h>
#include <mntent.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static bool is_cartonfs(const char *path)
{
	FILE *f = setmntent("/proc/self/mounts", "r");
	const struct mntent *entry;
	bool found = false;

	if (!f)
		return false;
	/* the last one at a path is the one on top */
	while ((entry = getmntent(f)))
		if (strcmp(entry->mnt_dir, path) == 0)
			found = strcmp(entry->mnt_type, "fuse.cartonfs") == 0;
	endmntent(f);
	return found;
}

static int detach(const char *path)
{
	char *argv[] = { "fusermount3", "-u", "-z", "--", (char *)path, NULL };
	pid_t child;
	int status, r;

	if (geteuid() == 0)
		return umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 ? -errno : 0;
	r = posix_spawnp(&child, argv[0], NULL, NULL, argv, environ);
	if (r != 0)
		return -r;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

int mountpoint_prepare(const char *path)
{
	struct statfs fs;
	struct stat st;
	int r;

	/* mounted already, by the one who opened the device for us */
	if (strncmp(path, "/dev/fd/", 8) == 0)
		return 0;

	/* a dead mount may still answer stat(2) from what the kernel remembers, but not this */
	if (statfs(path, &fs) == 0 && stat(path, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			return 0;
		fprintf(stderr, "cartonfs: %s: not a directory; mount on one\n", path);
		return -ENOTDIR;
	}
	r = -errno;
	if (r == -ENOTCONN && is_cartonfs(path)) {
		r = detach(path);
		if (r == 0) {
			fprintf(stderr,
				"cartonfs: %s: removed the dead mount of an earlier cartonfs\n",
				path);
			return 0;
		}
	}
	if (r == -ENOENT)
		fprintf(stderr, "cartonfs: %s: no such directory; make it with mkdir -p\n", path);
	else
		fprintf(stderr, "cartonfs: %s: cannot mount there: %s\n", path, strerror(-r));
	return r;
}
