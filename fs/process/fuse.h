/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Includes libfuse and what the kernel says of FUSE. The program uses version 3.12 of its API,
 * which all supported distributions have.
 */
#ifndef FS_FUSE_H
#define FS_FUSE_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <sys/ioctl.h>

/* of Linux 6.9; older headers do not have them */
#ifndef FUSE_DEV_IOC_BACKING_OPEN
struct fuse_backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define FUSE_DEV_IOC_BACKING_OPEN _IOW(229, 1, struct fuse_backing_map)
#define FUSE_DEV_IOC_BACKING_CLOSE _IOW(229, 2, uint32_t)
#endif

#endif
