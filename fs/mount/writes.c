/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/writes.h"

#include <errno.h>
#include <unistd.h>

static void refuse(fuse_req_t req)
{
	fuse_reply_err(req, EROFS);
}

static void on_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	(void)ino, (void)attr, (void)to_set, (void)fi;
	refuse(req);
}

static void on_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	(void)parent, (void)name, (void)mode, (void)rdev;
	refuse(req);
}

static void on_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	(void)parent, (void)name, (void)mode;
	refuse(req);
}

/* unlink, rmdir and removexattr. */
static void on_remove(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	(void)ino, (void)name;
	refuse(req);
}

static void on_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	(void)target, (void)parent, (void)name;
	refuse(req);
}

static void on_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		      const char *new_name, unsigned flags)
{
	(void)parent, (void)name, (void)new_parent, (void)new_name, (void)flags;
	refuse(req);
}

static void on_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
	(void)ino, (void)new_parent, (void)new_name;
	refuse(req);
}

static void on_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	(void)parent, (void)name, (void)mode, (void)fi;
	refuse(req);
}

static void on_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
			size_t size, int flags)
{
	(void)ino, (void)name, (void)value, (void)size, (void)flags;
	refuse(req);
}

/* The kernel asks this for access(2), without default_permissions. Reading is always allowed. */
static void on_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	(void)ino;
	fuse_reply_err(req, mask & W_OK ? EROFS : 0);
}

void writes_refuse(struct fuse_lowlevel_ops *ops)
{
	ops->setattr = on_setattr;
	ops->mknod = on_mknod;
	ops->mkdir = on_mkdir;
	ops->unlink = on_remove;
	ops->rmdir = on_remove;
	ops->removexattr = on_remove;
	ops->symlink = on_symlink;
	ops->rename = on_rename;
	ops->link = on_link;
	ops->create = on_create;
	ops->setxattr = on_setxattr;
	ops->access = on_access;
}
