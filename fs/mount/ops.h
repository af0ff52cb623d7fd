/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers FUSE requests from a carton.
 *
 * libfuse's threads never wait. A request that must wait (opening a file that is not verified yet,
 * a read from disk) is parked (park.h): a worker replies later, or an interrupt replies EINTR at
 * once.
 */
#ifndef FS_OPS_H
#define FS_OPS_H

#include "mount/mount.h"

/* The user data of the session is a struct mount. */
extern const struct fuse_lowlevel_ops mount_ops;

/* files.c: requests about files, which are verified when they are opened. */
void files_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void files_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void files_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);

/* xattr.c: requests about extended attributes. */
void xattr_get(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void xattr_list(fuse_req_t req, fuse_ino_t ino, size_t size);

#endif
