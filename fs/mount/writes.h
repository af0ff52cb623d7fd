/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_WRITES_H
#define FS_WRITES_H

#include "process/fuse.h"

/*
 * Sets the handlers of all requests that write: they answer with EROFS. The kernel sends such
 * requests only if another program has made the mount, and not read-only (mount.fuse3 -o
 * drop_privileges).
 */
void writes_refuse(struct fuse_lowlevel_ops *ops);

#endif
