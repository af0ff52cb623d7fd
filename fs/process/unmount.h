/* SPDX-License-Identifier: Apache-2.0 */
/* Unmounts a file system, which is known by its device: its path may be that of another by now. */
#ifndef FS_UNMOUNT_H
#define FS_UNMOUNT_H

#include <stdbool.h>

#include "common/mountinfo.h"

/*
 * Unmounts the file system wherever it is mounted in this namespace, or only at `path`. No mount is
 * unmounted that has another one on it or in it: -ENOTEMPTY, and *ret_top is that one, with the
 * path "" where only a directory above is covered. Else 0, also if there is no mount; -EBUSY, if it
 * is in use and not `lazy`; or -errno. One thread: it changes its directory for a moment.
 */
int unmount_device(const char *device, const char *path, bool lazy, struct mountinfo_copy *ret_top);

/*
 * What keeps a file system mounted, for a message, and what to do: "a tmpfs is mounted on it, at
 * /m: first run umount /m". Returns `ret`.
 */
#define UNMOUNT_TEXT 9000
char *unmount_explain(const struct mountinfo_copy *top, char ret[UNMOUNT_TEXT]);

#endif
