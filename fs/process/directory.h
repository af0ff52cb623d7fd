/* SPDX-License-Identifier: Apache-2.0 */
/* Directories by descriptor, where another user may change what a path leads to. */
#ifndef FS_DIRECTORY_H
#define FS_DIRECTORY_H

/*
 * Opens a path, O_PATH, without following symlinks: -ELOOP if a directory on the way is one. If the
 * last part is a symlink, opens the symlink itself. The descriptor or -errno.
 */
int directory_open(const char *path);

/*
 * Makes an open directory the working directory, so that system calls can use it as ".". Returns a
 * descriptor of the former one, for directory_leave(), or -errno. Until then no other thread may
 * use a relative path.
 */
int directory_enter(int dir);
void directory_leave(int before);

#endif
