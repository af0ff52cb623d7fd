/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_MOUNTPOINT_H
#define FS_MOUNTPOINT_H

/*
 * Checks that `path` is a directory, and unmounts a dead cartonfs mount that a killed process has left
 * there. 0, or -errno after printing the reason and what to do.
 */
int mountpoint_prepare(const char *path);

#endif
