/* SPDX-License-Identifier: Apache-2.0 */
/* Directories by descriptor, where another user may change what a path leads to. */
#ifndef FS_DIRECTORY_H
#define FS_DIRECTORY_H

/*
 * Opens a path, O_PATH, without following symlinks: -ELOOP if it has one that leads on. Its last
 * part is opened if it is one. The descriptor or -errno.
 */
int directory_open(const char *path);

/*
 * Changes to an open directory: system calls then take what "." is. Returns a descriptor of the one
 * before, for directory_leave(), or -errno. One thread.
 */
int directory_enter(int dir);
void directory_leave(int before);

#endif
