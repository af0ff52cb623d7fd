/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_WRITES_H
#define FS_WRITES_H

#include "process/fuse.h"

/*
 * Sets the requests that would write: each gets EROFS. The kernel sends them where another program
 * has made the mount, and not read-only (mount.fuse3 -o drop_privileges).
 */
void writes_refuse(struct fuse_lowlevel_ops *ops);

#endif
