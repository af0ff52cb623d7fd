/* SPDX-License-Identifier: Apache-2.0 */
#include "process/unmount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "process/directory.h"

extern char **environ;

struct mounts {
	const char *device, *path; /* what is looked for; the path may be NULL */
	size_t skip;		   /* passes over so many of these */
	size_t n;		   /* how many there are */
	struct mountinfo_copy *own, *top;
	bool covered;
};

static void look_for_own(void *ctx, const struct mountinfo *mount)
{
	struct mounts *m = ctx;

	if (strcmp(mount->device, m->device) != 0 || strcmp(mount->type, MOUNTINFO_TYPE) != 0 ||
	    (m->path && strcmp(mount->path, m->path) != 0))
		return;
	if (m->n++ == m->skip)
		mountinfo_copy(mount, m->own);
}

/* Looks for a mount on or in the one that was found. The root of a namespace is its own parent. */
static void look_for_top(void *ctx, const struct mountinfo *mount)
{
	struct mounts *m = ctx;

	if (mount->parent != m->own->id || mount->id == m->own->id)
		return;
	m->covered = true;
	mountinfo_copy(mount, m->top);
}

/*
 * Unmounts by umount2(2), or for users by fusermount3. That does not say why it fails: most likely
 * the mount is busy.
 */
static int unmount_name(const char *name, const char *path, bool lazy)
{
	char *argv[] = { "fusermount3",
			 "-u",
			 lazy ? "-z" : "--",
			 lazy ? "--" : (char *)path,
			 lazy ? (char *)path : NULL,
			 NULL };
	posix_spawn_file_actions_t quiet;
	pid_t child;
	int status, r;

	if (umount2(name, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
		return 0;
	if (errno != EPERM)
		return -errno;
	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	r = posix_spawnp(&child, argv[0], &quiet, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&quiet);
	if (r != 0)
		return -r;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : lazy ? -EPERM : -EBUSY;
}

/*
 * Unmounts a mount that has no other on it, from its parent directory: a rename of that meanwhile
 * does not lead to another mount.
 */
static int unmount_one(const struct mountinfo_copy *own, bool lazy)
{
	const char *slash = strrchr(own->path, '/');
	char parent[PATH_MAX];
	int dir, before, r;

	if (!slash || !slash[1])
		return -EBUSY; /* the root */
	snprintf(parent, sizeof(parent), "%.*s", slash == own->path ? 1 : (int)(slash - own->path),
		 own->path);
	dir = directory_open(parent);
	before = dir < 0 ? dir : directory_enter(dir);
	if (dir >= 0)
		close(dir);
	if (before < 0)
		return before;
	/* else another mount is on top there */
	r = mountinfo_is_on(AT_FDCWD, slash + 1, own->device) ?
		    unmount_name(slash + 1, own->path, lazy) :
		    -ENOTEMPTY;
	directory_leave(before);
	return r;
}

int unmount_device(const char *device, const char *path, bool lazy, struct mountinfo_copy *ret_top)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct mountinfo_copy own;
	/*
	 * Counts the mounts first, and unmounts no more: once the last one is gone, the kernel may
	 * give the number of the device to the next file system, which is not ours.
	 */
	struct mounts all = { device, path, .skip = SIZE_MAX };
	size_t skip = 0;
	int r = 0;

	if (!f)
		return -errno;
	ret_top->path[0] = ret_top->type[0] = '\0';
	if (!mountinfo_each(f, look_for_own, &all)) {
		all.n = 0;
		r = -EIO;
	}
	while (all.n > 0) {
		struct mounts m = { device, path, skip, .own = &own, .top = ret_top };

		if (!mountinfo_each(f, look_for_own, &m)) {
			r = -EIO;
			break;
		}
		if (m.n <= skip)
			break;
		if (!mountinfo_each(f, look_for_top, &m)) {
			r = -EIO;
			break;
		}
		r = m.covered ? -ENOTEMPTY : unmount_one(&own, lazy);
		/* the mount may have been on one that was passed over: begins again */
		skip = r == 0 ? 0 : skip + 1;
		all.n -= r == 0;
	}
	fclose(f);
	return r;
}

char *unmount_explain(const struct mountinfo_copy *top, char ret[UNMOUNT_TEXT])
{
	char word[PATH_MAX];

	if (*top->path)
		snprintf(ret, UNMOUNT_TEXT,
			 "a %s is mounted on it or in it, at %s: first run umount %s", top->type,
			 top->path, carton_shell_word(top->path, word, sizeof(word)));
	else
		snprintf(ret, UNMOUNT_TEXT, "another mount covers it: first unmount that");
	return ret;
}
