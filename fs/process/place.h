/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a carton is mounted. Before the mount, a place is a directory that was checked and stays
 * open, so that no rename and no symlink of another user can redirect the mount. Afterwards, it is
 * a file system, known by its device: the mount may be moved, and another one may get its path.
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
 * Mounts the session on the open directory; or on `path` if fusermount3 mounts (`helped`), which
 * resolves the path with the rights of the user. 0; -ESTALE, logged: mounted, but the file system
 * is not found afterwards; -EIO, which this or libfuse has logged: not mounted. One thread.
 */
int place_mount(struct place *p, struct fuse_session *se, const char *path, bool helped);

#endif
