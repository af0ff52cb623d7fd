/* SPDX-License-Identifier: Apache-2.0 */
/* Unmounts a file system, which is known by its device: its path may be that of another by now. */
#ifndef FS_UNMOUNT_H
#define FS_UNMOUNT_H

#include <stdbool.h>

#include "common/mountinfo.h"

/*
 * Unmounts the file system `device` at each of its mountpoints in this namespace, or only at
 * `path`. A mount that has another one on it or in it stays: the result is then -ENOTEMPTY, and
 * *ret_top is the other one, with the path "" if only a directory above is covered. 0, also if
 * there is no mount; -EBUSY: the mount is in use, and `lazy` is false; or -errno. The working
 * directory changes for a moment: meanwhile no other thread may use a relative path.
 */
int unmount_device(const char *device, const char *path, bool lazy, struct mountinfo_copy *ret_top);

/*
 * What keeps a file system mounted, for a message, and what to do: "a tmpfs is mounted on it, at
 * /m: first run umount /m". Returns `ret`.
 */
#define UNMOUNT_TEXT 9000
char *unmount_explain(const struct mountinfo_copy *top, char ret[UNMOUNT_TEXT]);

#endif
