/* SPDX-License-Identifier: Apache-2.0 */
/* The mounts of this namespace, from /proc/self/mountinfo; proc_pid_mountinfo(5). */
#ifndef FS_MOUNTINFO_H
#define FS_MOUNTINFO_H

#include <stdbool.h>
#include <stdio.h>

struct mountinfo {
	unsigned id, parent; /* of the mount, and of the one that it is mounted on or in */
	const char *device;  /* "0:57" */
	const char *path;    /* the mountpoint */
	const char *type;    /* "fuse.cartonfs" */
	const char *options; /* of the file system: "rw,user_id=0,…" */
};

/*
 * Calls `use` for each mount, from the start of the open file; of several at one path, the last one
 * is on top. False: they could not be read to the end.
 */
typedef void mountinfo_fn(void *ctx, const struct mountinfo *mount);
bool mountinfo_each(FILE *f, mountinfo_fn *use, void *ctx);

#define MOUNTINFO_TYPE "fuse.cartonfs"

/* What mountinfo_find() has found. */
struct mountinfo_copy {
	unsigned id;
	char device[32], type[32], path[4096];
	bool shared; /* FUSE: with allow_other, so not only its user may look at it */
};

void mountinfo_copy(const struct mountinfo *mount, struct mountinfo_copy *ret);

/*
 * Is the file `name` in the directory `dir`, as for openat(2), or with "" the file `dir` itself, of
 * the file system `device`? Follows no symlink at the end, and asks nothing of the file system.
 */
bool mountinfo_is_on(int dir, const char *name, const char *device);

/*
 * Finds the mount that is on top at `path`, or with `path` NULL one of the file system `device`. 1;
 * 0: there is none; or -EIO.
 */
int mountinfo_find(FILE *f, const char *path, const char *device, struct mountinfo_copy *ret);

#endif
