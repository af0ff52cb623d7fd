/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hidden directory .cartonfs/ in the root of a mount, with the files status.json and metrics.
 * It is found by name, but not listed, so that no copy of the mount has it. A carton's own entry of
 * that name is shown instead.
 */
#ifndef FS_STATUS_FILES_H
#define FS_STATUS_FILES_H

#include "mount/ops.h"

/* The operations of a mount: mount_ops, and these files. */
const struct fuse_lowlevel_ops *status_ops(void);

/* Frees the texts of files that were open when the mount ended. No request is being answered. */
void status_files_finish(struct status *s);

#endif
