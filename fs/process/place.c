/* SPDX-License-Identifier: Apache-2.0 */
#include "process/place.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/mountinfo.h"
#include "log.h"
#include "process/directory.h"
#include "process/fuse.h"

#define TRIES 100 /* to find a mount whose path is changed all the time */

int place_open(struct place *p, const char *path)
{
	int fd = directory_open(path);

	*p = (struct place){ .dir = fd < 0 ? -1 : fd };
	return fd < 0 ? fd : 0;
}

void place_close(struct place *p)
{
	if (p->dir >= 0)
		close(p->dir);
	p->dir = -1;
}

struct search {
	char path[PATH_MAX];
	char device[32];
};

/* Takes the device of the last mount of this user at the path: it is on top. */
static void compare(void *ctx, const struct mountinfo *mount)
{
	struct search *s = ctx;
	const char *user = strstr(mount->options, "user_id=");

	if (strcmp(mount->type, MOUNTINFO_TYPE) == 0 && strcmp(mount->path, s->path) == 0 && user &&
	    strtoul(user + 8, NULL, 10) == geteuid())
		snprintf(s->device, sizeof(s->device), "%s", mount->device);
}

/* Where the directory is now. */
static bool path_of(int dir, char ret[PATH_MAX])
{
	char link[32];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
	n = readlink(link, ret, PATH_MAX - 1);
	ret[n < 0 ? 0 : n] = '\0';
	return n > 0;
}

/* Finds the file system that was just mounted on the directory. */
static int find(struct place *p)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct search s = { .device = "" };

	/* the directory may be renamed before the list is read */
	for (int i = 0; f && i < TRIES && !*s.device; i++)
		if (path_of(p->dir, s.path))
			mountinfo_each(f, compare, &s);
	if (f)
		fclose(f);
	strcpy(p->device, s.device);
	return *s.device ? 0 : -ESTALE;
}

int place_mount(struct place *p, struct fuse_session *se, const char *path, bool helped)
{
	/* mount(2) takes what "." is, and resolves no path again */
	int before = helped ? -1 : directory_enter(p->dir), r;

	if (before < 0 && !helped) {
		carton_log(CARTON_LOG_ERROR, path, "cannot be mounted on: %s", strerror(-before));
		return -EIO;
	}
	r = fuse_session_mount(se, helped ? path : ".") < 0 ? -EIO : 0;
	if (before >= 0)
		directory_leave(before);
	if (r == 0 && (r = find(p)) < 0)
		carton_log(CARTON_LOG_WARNING, path,
			   "is mounted, but is not in /proc/self/mountinfo, as if it was moved: it "
			   "has to be unmounted by umount");
	return r;
}
