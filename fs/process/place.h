/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a carton is mounted. Until then it is a directory, which was looked at and stays open: what
 * another user renames, or puts a symlink to, is not mounted on. From then on it is a file system,
 * which is known by its device: its mounts may have been moved, and other ones may have its path.
 */
#ifndef FS_PLACE_H
#define FS_PLACE_H

#include <stdbool.h>

struct fuse_session;

struct place {
	int dir;	 /* the directory, O_PATH; -1: none */
	char device[32]; /* of the file system, as "0:57"; "": not mounted, or not found */
};

/* Opens the directory. The path has no symlinks: -ELOOP if there is one by now. 0 or -errno. */
int place_open(struct place *p, const char *path);
void place_close(struct place *p);

/*
 * Mounts the session on the open directory, or by `path` if a helper mounts, which resolves that
 * with the rights of the user (`helped`). 0, -ESTALE if the file system is not found afterwards, or
 * -EIO, which libfuse has logged. One thread.
 */
int place_mount(struct place *p, struct fuse_session *se, const char *path, bool helped);

#endif
