/* SPDX-License-Identifier: Apache-2.0 */
/* FUSE requests about files: they are verified when they are opened. See ops.h. */
#ifndef FS_FILES_H
#define FS_FILES_H

#include "mount.h"

void files_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void files_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void files_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);

#endif
