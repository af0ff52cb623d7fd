/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_MOUNTPOINT_H
#define FS_MOUNTPOINT_H

/*
 * Checks that something can be mounted there, and removes a dead cartonfs mount that an earlier
 * process, killed, has left. 0, or -errno after saying what is wrong and what to do.
 */
int mountpoint_prepare(const char *path);

#endif
